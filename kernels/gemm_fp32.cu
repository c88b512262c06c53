/* greenbench
family    = "gemm"
summary   = "C = A*B in float32 on the FMA units, no tensor cores."
entry     = "gemm_fp32"
args      = ["a", "b", "c", "m", "n", "k"]
verify    = "gemm"
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
block = "BM * BN // 64"
grid  = "tiles"

# cost: tiles on the busiest SM, times the area of a tile, times what a smaller tile loses to shared memory.
[[variant]]
defines = { BM = 128, BN = 128 }
cost = "ceil_div(tiles, sms) * BM * BN * 100"
[[variant]]
defines = { BM = 128, BN = 64 }
cost = "ceil_div(tiles, sms) * BM * BN * 104"
[[variant]]
defines = { BM = 64, BN = 64 }
cost = "ceil_div(tiles, sms) * BM * BN * 110"
[[variant]]
defines = { BM = 32, BN = 64 }
cost = "ceil_div(tiles, sms) * BM * BN * 125"

[work]
flops = "2 * m * n * k"
bytes = "4 * (m * k + k * n + m * n)"
*/

// Limited by the FMA units: 64 FMAs for 4 shared loads of 16 bytes and lane; on small shapes by waves and by too few warps.
//
// All three matrices are row-major: A[m][k], B[k][n], C[m][n]; n and k are multiples of 4 (16-byte rows), m is anything.
// A thread computes 8 x 8 elements, as four blocks of 4 x 4, so that a warp's 16-byte reads of shared memory meet no bank
// twice; a warp 32 x 64. Two buffers of BK columns of A (transposed) and BK rows of B: while one is multiplied, the next is
// on its way in registers.
constexpr int THREADS = BM * BN / 64, BK = 16;
constexpr int WARPS_N = BN / 64;
constexpr int A_PITCH = BM + 4;  // keeps 16-byte alignment and halves the conflicts of the transposing stores
constexpr int A_LOADS = BM * BK / 4 / THREADS, B_LOADS = BK * BN / 4 / THREADS;
constexpr int GROUP = 8;

static_assert(BM % 32 == 0 && BN % 64 == 0, "a warp computes 32 x 64");
static_assert(A_LOADS * THREADS * 4 == BM * BK && B_LOADS * THREADS * 4 == BK * BN, "all threads load in every step");
static_assert(THREADS % (BN / 4) == 0, "a thread keeps its column");

struct Shared {
    float a[2][BK][A_PITCH];
    float b[2][BK][BN];
};

__device__ __forceinline__ float4 load_or_zero(const float* from, bool wanted) {
    return wanted ? *(const float4*)from : make_float4(0.f, 0.f, 0.f, 0.f);
}

// This thread's share of a step, held in registers on the way from global to shared memory; zeros outside the matrices.
struct Chunk {
    // Rows that all threads load at once.
    static constexpr int A_ROWS = THREADS / (BK / 4), B_ROWS = THREADS / (BN / 4);

    float4 a[A_LOADS], b[B_LOADS];
    const float *from_a, *from_b;
    i64 a_step, b_step;
    int a_row, a_col, b_row, b_col;
    int rows;     // of A, below this thread's first row
    bool inside;  // this thread's columns of B

    __device__ __forceinline__ Chunk(const float* A, const float* B, i64 m, i64 n, i64 k, i64 row0, i64 col0) {
        a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
        b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
        from_a = A + (row0 + a_row) * k + a_col, a_step = A_ROWS * k;
        from_b = B + b_row * n + col0 + b_col, b_step = B_ROWS * n;
        rows = (int)(m - row0) - a_row, inside = col0 + b_col < n;
    }

    // `depth`: columns of A and rows of B from this step on.
    __device__ __forceinline__ void load(int depth) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) a[i] = load_or_zero(from_a + i * a_step, i * A_ROWS < rows && a_col < depth);
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i)
            b[i] = load_or_zero(from_b + i * b_step, inside && b_row + i * B_ROWS < depth);
        from_a += BK, from_b += B_LOADS * b_step;
    }

    __device__ __forceinline__ void store(Shared& shared, int buffer) const {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            float* to = &shared.a[buffer][a_col][a_row + i * A_ROWS];
            to[0] = a[i].x, to[A_PITCH] = a[i].y, to[2 * A_PITCH] = a[i].z, to[3 * A_PITCH] = a[i].w;
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) *(float4*)&shared.b[buffer][b_row + i * B_ROWS][b_col] = b[i];
    }
};

__device__ __forceinline__ void fetch(float (&to)[8], const float* row, int at, int apart) {
    const float4 low = *(const float4*)(row + at), high = *(const float4*)(row + at + apart);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

__device__ __forceinline__ void multiply(float (&acc)[8][8], const Shared& shared, int buffer, int row, int col) {
    float a[2][8], b[2][8];
    fetch(a[0], shared.a[buffer][0], row, 16);
    fetch(b[0], shared.b[buffer][0], col, 32);
#pragma unroll
    for (int p = 0; p < BK; ++p) {
        if (p + 1 < BK) {
            fetch(a[(p + 1) % 2], shared.a[buffer][p + 1], row, 16);
            fetch(b[(p + 1) % 2], shared.b[buffer][p + 1], col, 32);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(a[p % 2][i], b[p % 2][j], acc[i][j]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS == 256 ? 2 : 1)
    gemm_fp32(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, long long m, long long n,
              long long k) {
    __shared__ __align__(16) Shared shared;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * 32 + lane / 8 * 4, col = warp % WARPS_N * 64 + lane % 8 * 4;
    const int tiles_m = (int)((m + BM - 1) / BM), tiles_n = (int)((n + BN - 1) / BN);

    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        const int group = tile / (GROUP * tiles_n), first = group * GROUP;
        const int height = tiles_m - first < GROUP ? tiles_m - first : GROUP;
        const i64 row0 = (i64)(first + tile % (GROUP * tiles_n) % height) * BM;
        const i64 col0 = (i64)(tile % (GROUP * tiles_n) / height) * BN;

        Chunk chunk(a, b, m, n, k, row0, col0);
        float acc[8][8] = {};
        chunk.load((int)k);
        chunk.store(shared, 0);
        __syncthreads();
        int buffer = 0;
#pragma unroll 1
        for (int left = (int)k; left > 0; left -= BK, buffer ^= 1) {
            const bool more = left > BK;
            if (more) chunk.load(left - BK);
            multiply(acc, shared, buffer, row, col);
            if (more) chunk.store(shared, buffer ^ 1);
            __syncthreads();
        }

#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const i64 r = row0 + row + i / 4 * 16 + i % 4;
#pragma unroll
            for (int j = 0; j < 8; j += 4) {
                const i64 at = col0 + col + j * 8;
                if (r < m && at < n)
                    store_plain(c + r * n + at, make_uint4(float_bits(acc[i][j]), float_bits(acc[i][j + 1]),
                                                           float_bits(acc[i][j + 2]), float_bits(acc[i][j + 3])));
            }
        }
    }
}
