/* greenbench
family    = "gemm"
summary   = "C = A*B in float32 on the FMA units, no tensor cores."
entry     = "gemm_fp32"
args      = ["a", "b", "c", "m", "n", "k"]
verify    = "gemm"
sources   = ["siboehm/SGEMM_CUDA: warp tiles", "register banks, operand reuse: arXiv 2503.20481"]
min_cc    = [8, 0]
dtype     = "float32"
yardstick = "cublas"
require   = ["n % 4", "k % 4"]
buffers   = [
    { name = "a", dtype = "float32", count = "m * k", fill = "normal" },
    { name = "b", dtype = "float32", count = "k * n", fill = "normal" },
    { name = "c", dtype = "float32", count = "m * n", fill = "poison" },
]

[params]
m = 1024
n = 1024
k = 1024

[let]
tiles = "ceil_div(m, BM) * ceil_div(n, BN)"

[launch]
block = "BM * BN // (TM * 8)"
grid  = "tiles"

# cost: tiles on the busiest SM, times the area of a tile, times what a smaller tile loses to shared memory.
[[variant]]
defines = { BM = 128, BN = 128, TM = 16 }
cost = "ceil_div(tiles, sms) * BM * BN * 100"
[[variant]]
defines = { BM = 128, BN = 64, TM = 8 }
cost = "ceil_div(tiles, sms) * BM * BN * 104"
[[variant]]
defines = { BM = 64, BN = 64, TM = 8 }
cost = "ceil_div(tiles, sms) * BM * BN * 110"
[[variant]]
defines = { BM = 32, BN = 64, TM = 8 }
cost = "ceil_div(tiles, sms) * BM * BN * 125"

[work]
flops = "2 * m * n * k"
bytes = "4 * (m * k + k * n + m * n)"
*/

// Limited by the FMA units: 128 FMAs for 6 shared loads of 16 bytes and lane; on small shapes by waves and by too few warps.
//
// All three matrices are row-major: A[m][k], B[k][n], C[m][n]; n and k are multiples of 4 (16-byte rows), m is anything.
// A thread computes TM x 8 elements, in blocks of 4 x 4 so that a warp's 16-byte reads of shared memory meet no bank twice; a
// warp 64 x 64 or 32 x 64. STAGES of BK columns of A and rows of B are on their way by asynchronous copies, those of A in
// 4 bytes, which turn it: a column of A lies in a row of shared memory.
constexpr int TN = 8, LANES_M = 4, LANES_N = 8;
constexpr int WARP_M = LANES_M * TM, WARP_N = LANES_N * TN;
constexpr int WARPS_N = BN / WARP_N, THREADS = BM / WARP_M * WARPS_N * 32;
constexpr int BK = TM == 16 ? 8 : 16, STAGES = TM == 16 ? 4 : 3;  // as many as leave room for two CTAs per SM
constexpr int A_PITCH = BM + 4;  // keeps 16-byte alignment; a warp copies 4 rows x 8 columns, to all banks
constexpr int A_ROWS = THREADS / 8, B_ROWS = THREADS / (BN / 4);  // rows that all threads copy at once; of A, 8 columns
constexpr int GROUP = 8;

static_assert(BM % WARP_M == 0 && BN % WARP_N == 0, "whole warps");
static_assert(BM % A_ROWS == 0 && BK % B_ROWS == 0, "all threads copy in every step");

struct Shared {
    float a[STAGES][BK][A_PITCH];
    float b[STAGES][BK][BN];
};

// Copies one float, or writes zero where `wanted` is false.
__device__ __forceinline__ void copy_float(u32 to, const float* from, bool wanted) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(wanted ? 4 : 0) : "memory");
}

// Which elements of A and B this thread copies in every step; zeros for those outside the matrices.
struct Copies {
    const float *from_a, *from_b;
    i64 a_step, b_step;
    u32 to_a, to_b;  // in the first stage
    int rows;        // of A, from this thread's first row on
    int a_col, b_row;
    bool inside;  // this thread's columns of B

    __device__ __forceinline__ Copies(const Shared& shared, const float* a, const float* b, i64 m, i64 n, i64 k,
                                      i64 row0, i64 col0) {
        const int a_row = threadIdx.x / 8, b_col = threadIdx.x % (BN / 4) * 4;
        a_col = threadIdx.x % 8, b_row = threadIdx.x / (BN / 4);
        from_a = a + (row0 + a_row) * k + a_col, a_step = A_ROWS * k;
        from_b = b + b_row * n + col0 + b_col, b_step = B_ROWS * n;
        to_a = shared_address(&shared.a[0][a_col][a_row]), to_b = shared_address(&shared.b[0][b_row][b_col]);
        rows = (int)(m - row0) - a_row, inside = col0 + b_col < n;
    }

    // `depth`: columns of A and rows of B from this step on.
    __device__ __forceinline__ void start(int stage, int depth) {
        const float* at = from_a;
#pragma unroll
        for (int r = 0; r < BM; r += A_ROWS, at += a_step)
#pragma unroll
            for (int col = 0; col < BK; col += 8)
                copy_float(to_a + ((stage * BK + col) * A_PITCH + r) * 4, at + col, r < rows && a_col + col < depth);
#pragma unroll
        for (int r = 0; r < BK; r += B_ROWS, from_b += b_step)
            copy_async(to_b + (stage * BK + r) * BN * 4, from_b, inside && b_row + r < depth);
        from_a += BK;
    }
};

__device__ __forceinline__ float4 load_shared(u32 from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
    return v;
}

template <int N, int LANES>
__device__ __forceinline__ void fetch(float (&to)[N], u32 from) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 v = load_shared(from + i * LANES * 4);
        to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
}

// One stage; the walk along rows of C turns back at their ends, so that an FMA shares an operand with the one before it.
__device__ __forceinline__ void multiply(float (&c)[TM][TN], u32 from_a, u32 from_b) {
    float a[2][TM], b[2][TN];
    fetch<TM, LANES_M>(a[0], from_a);
    fetch<TN, LANES_N>(b[0], from_b);
#pragma unroll
    for (int p = 0; p < BK; ++p) {
        if (p + 1 < BK) {
            fetch<TM, LANES_M>(a[(p + 1) % 2], from_a + (p + 1) * A_PITCH * 4);
            fetch<TN, LANES_N>(b[(p + 1) % 2], from_b + (p + 1) * BN * 4);
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                const int jj = i % 2 ? TN - 1 - j : j;
                c[i][jj] = fmaf(a[p % 2][i], b[p % 2][jj], c[i][jj]);
            }
    }
}

// Four sums for a 16-byte store. The compiler would keep them in four registers in a row from the first product on, which
// costs bank conflicts with the operands; `zero` is zero, which the compiler cannot know.
__device__ __forceinline__ uint4 quad(const float* c, u32 zero) {
    return make_uint4(float_bits(c[0]) ^ zero, float_bits(c[1]) ^ zero, float_bits(c[2]) ^ zero,
                      float_bits(c[3]) ^ zero);
}

extern "C" __global__ void __launch_bounds__(THREADS, 256 / THREADS * 16 / TM)
    gemm_fp32(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, long long m, long long n,
              long long k) {
    __shared__ __align__(16) Shared shared;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * WARP_M + lane / 8 * 4, col = warp % WARPS_N * WARP_N + lane % 8 * 4;
    const u32 from_a = shared_address(&shared.a[0][0][row]), from_b = shared_address(&shared.b[0][0][col]);
    const u32 zero = (u32)(k >> 63);
    const int tiles_m = (int)((m + BM - 1) / BM), tiles_n = (int)((n + BN - 1) / BN);

    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        const int group = tile / (GROUP * tiles_n), first = group * GROUP;
        const int height = tiles_m - first < GROUP ? tiles_m - first : GROUP;
        const i64 row0 = (i64)(first + tile % (GROUP * tiles_n) % height) * BM;
        const i64 col0 = (i64)(tile % (GROUP * tiles_n) / height) * BN;

        Copies copies(shared, a, b, m, n, k, row0, col0);
        float sums[TM][TN] = {};
        int ahead = (int)k;  // columns of A whose copies have not started
        __syncthreads();     // nobody reads the tile before any more
        for (int stage = 0; stage < STAGES - 1; ++stage, ahead -= BK) {
            if (ahead > 0) copies.start(stage, ahead);
            copy_commit();
        }
        int stage = 0, last = STAGES - 1;
#pragma unroll 1
        for (int left = (int)k; left > 0; left -= BK, ahead -= BK) {
            copy_wait<STAGES - 2>();
            __syncthreads();
            if (ahead > 0) copies.start(last, ahead);
            copy_commit();
            multiply(sums, from_a + stage * (BK * A_PITCH * 4), from_b + stage * (BK * BN * 4));
            last = stage, stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

#pragma unroll
        for (int i = 0; i < TM; ++i) {
            const i64 r = row0 + row + i / 4 * LANES_M * 4 + i % 4;
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const i64 at = col0 + col + j * LANES_N;
                if (r < m && at < n) store_plain(c + r * n + at, quad(&sums[i][j], zero));
            }
        }
    }
}
