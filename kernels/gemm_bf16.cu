/* greenbench
family    = "gemm"
summary   = "C = A*B in bfloat16 on tensor cores (mma.sync), float32 accumulation."
entry     = "gemm_bf16"
args      = ["a", "b", "c", "m", "n", "k"]
verify    = "gemm"
dtype     = "bfloat16"
min_cc    = [8, 0]
yardstick = "cublas"
require   = ["n % 8", "k % 8"]
buffers   = [
    { name = "a", dtype = "bfloat16", count = "m * k", fill = "normal" },
    { name = "b", dtype = "bfloat16", count = "k * n", fill = "normal" },
    { name = "c", dtype = "bfloat16", count = "m * n", fill = "poison" },
]

[params]
m = 4096
n = 4096
k = 4096

[let]
tiles = "ceil_div(m, BM) * ceil_div(n, BN)"

[launch]
block = "max(128, BM * BN // 128)"
grid  = "tiles"
smem  = "STAGES * (BM + BN) * BK * 2"

# cost: tiles on the busiest SM, times the area of a tile, times what a smaller tile loses to shared memory.
[[variant]]
defines = { BM = 128, BN = 256, BK = 32, STAGES = 4 }
cost = "ceil_div(tiles, sms) * BM * BN * 100"
[[variant]]
defines = { BM = 128, BN = 128, BK = 64, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 103"
[[variant]]
defines = { BM = 64, BN = 128, BK = 64, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 120"
[[variant]]
defines = { BM = 128, BN = 64, BK = 64, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 121"
[[variant]]
defines = { BM = 64, BN = 64, BK = 64, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 150"

[work]
flops = "2 * m * n * k"
bytes = "2 * (m * k + k * n + m * n)"
*/

// Limited by the tensor cores as mma.sync can feed them, which on compute capability 9.0 and 10.0 is well below what wgmma and
// tcgen05 reach; on smaller shapes by waves: the last tiles leave SMs idle.
//
// All three matrices are row-major: A[m][k], B[k][n], C[m][n]; n and k are multiples of 8 (16-byte rows), m is anything.
// A CTA computes a BM x BN tile; a warp 64 x 64 of it (less in the small tiles). BK columns of A and rows of B at a time pass
// through a ring of STAGES in shared memory, filled by cp.async, 16-byte chunks swizzled so that ldmatrix meets no bank twice.
// 96 KiB at most, so that every device from 8.0 on can run every variant.
constexpr int THREADS = BM * BN / 128 < 128 ? 128 : BM * BN / 128;
constexpr int WARPS_M = 2, WARPS_N = THREADS / 32 / WARPS_M;
constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = (BM + BN) * BK * 2;
constexpr int A_CHUNKS = BK / 8, B_CHUNKS = BN / 8;  // 16-byte chunks in a row
constexpr int GROUP = 8;                             // rows of tiles that are walked together, for the L2

static_assert(BK == 32 || BK == 64, "the swizzle of A knows rows of 64 and 128 bytes");
static_assert(WM % 16 == 0 && WN % 16 == 0, "a warp works on tiles of 16 x 16");
static_assert(THREADS % A_CHUNKS == 0 && THREADS % B_CHUNKS == 0, "a thread keeps its column of chunks");
static_assert(BM % (THREADS / A_CHUNKS) == 0 && BK % (THREADS / B_CHUNKS) == 0, "all threads load in every step");
static_assert(STAGES * STAGE_BYTES >= BM * BN * 2, "C leaves through the ring");

__device__ __forceinline__ u32 a_offset(int row, int chunk) {
    const int swizzled = A_CHUNKS == 8 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
    return row * (BK * 2) + swizzled * 16;
}

// Rows of B and C: at least 128 bytes, so the low three bits of the chunk select the banks.
__device__ __forceinline__ u32 wide_offset(int row, int chunk) {
    return row * (BN * 2) + (chunk ^ (row & 7)) * 16;
}

// Copies columns k0.. of the A tile and rows k0.. of the B tile into one stage; zeros outside the matrices.
struct Loader {
    const u16 *a, *b;  // this thread's first chunk at k0 = 0
    i64 a_step, b_row;
    int a_chunk, a_row, b_chunk, b_row0;
    u32 a_rows;  // bit i: the i-th row of A that this thread loads is inside
    bool b_col;

    static constexpr int A_ROWS = THREADS / A_CHUNKS, B_ROWS = THREADS / B_CHUNKS;

    __device__ __forceinline__ Loader(const u16* A, const u16* B, i64 m, i64 n, i64 k, i64 row0, i64 col0) {
        a_chunk = threadIdx.x % A_CHUNKS, a_row = threadIdx.x / A_CHUNKS;
        b_chunk = threadIdx.x % B_CHUNKS, b_row0 = threadIdx.x / B_CHUNKS;
        a = A + (row0 + a_row) * k + a_chunk * 8;
        b = B + b_row0 * n + col0 + b_chunk * 8;
        a_step = A_ROWS * k, b_row = n;
        a_rows = 0;
#pragma unroll
        for (int i = 0; i < BM / A_ROWS; ++i) a_rows |= (u32)(row0 + a_row + i * A_ROWS < m) << i;
        b_col = col0 + b_chunk * 8 < n;
    }

    __device__ __forceinline__ void operator()(u32 stage, i64 k0, i64 k) const {
        const bool a_col = k0 + a_chunk * 8 < k;
        const u16* from = a + k0;
#pragma unroll
        for (int i = 0; i < BM / A_ROWS; ++i, from += a_step)
            copy_async(stage + a_offset(a_row + i * A_ROWS, a_chunk), from, a_col && (a_rows >> i & 1));
        from = b + k0 * b_row;
#pragma unroll
        for (int i = 0; i < BK / B_ROWS; ++i, from += B_ROWS * b_row)
            copy_async(stage + A_BYTES + wide_offset(b_row0 + i * B_ROWS, b_chunk), from,
                       b_col && k0 + b_row0 + i * B_ROWS < k);
    }
};

// The part of a BK step that belongs to this warp: fragments of the next 16 columns are fetched while these are multiplied.
__device__ __forceinline__ void multiply(float (&acc)[WM / 16][WN / 8][4], u32 stage, int warp_row, int warp_col) {
    const int lane = threadIdx.x % 32, half = lane / 16, within = lane % 16;
    u32 fa[2][WM / 16][4], fb[2][WN / 16][4];

    auto fetch = [&](int to, int step) {
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
            load_matrices(fa[to][i], stage + a_offset(warp_row + 16 * i + within, 2 * step + half));
#pragma unroll
        for (int j = 0; j < WN / 16; ++j)
            load_matrices_transposed(fb[to][j],
                                     stage + A_BYTES + wide_offset(16 * step + within, warp_col / 8 + 2 * j + half));
    };

    fetch(0, 0);
#pragma unroll
    for (int step = 0; step < BK / 16; ++step) {
        if (step + 1 < BK / 16) fetch((step + 1) % 2, step + 1);
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j)
                mma_bf16(acc[i][j], fa[step % 2][i], fb[step % 2][j / 2][j % 2 * 2],
                         fb[step % 2][j / 2][j % 2 * 2 + 1]);
    }
}

// Rounds the tile to bfloat16, through shared memory, so that it leaves in whole 16-byte chunks.
__device__ __forceinline__ void store_tile(const float (&acc)[WM / 16][WN / 8][4], unsigned char* ring, u16* c, i64 m,
                                           i64 n, i64 row0, i64 col0, int warp_row, int warp_col) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = warp_row + 16 * i + 8 * h + lane / 4, chunk = warp_col / 8 + j;
                *(u32*)(ring + wide_offset(row, chunk) + lane % 4 * 4) =
                    pack_bf16(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
            }
    __syncthreads();
    for (int i = threadIdx.x; i < BM * B_CHUNKS; i += THREADS) {
        const int row = i / B_CHUNKS, chunk = i % B_CHUNKS;
        if (row0 + row < m && col0 + chunk * 8 < n)
            store_plain(c + (row0 + row) * n + col0 + chunk * 8, *(const uint4*)(ring + wide_offset(row, chunk)));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_bf16(const u16* __restrict__ a, const u16* __restrict__ b, u16* __restrict__ c, long long m, long long n,
              long long k) {
    extern __shared__ __align__(128) unsigned char ring[];
    const u32 base = shared_address(ring);
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;
    const int tiles_m = (int)((m + BM - 1) / BM), tiles_n = (int)((n + BN - 1) / BN);
    const int steps = (int)((k + BK - 1) / BK);

    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        const int group = tile / (GROUP * tiles_n), first = group * GROUP;
        const int height = tiles_m - first < GROUP ? tiles_m - first : GROUP;
        const i64 row0 = (i64)(first + tile % (GROUP * tiles_n) % height) * BM;
        const i64 col0 = (i64)(tile % (GROUP * tiles_n) / height) * BN;
        const Loader load(a, b, m, n, k, row0, col0);

#pragma unroll
        for (int s = 0; s < STAGES - 1; ++s) {
            if (s < steps) load(base + s * STAGE_BYTES, (i64)s * BK, k);
            copy_commit();
        }
        float acc[WM / 16][WN / 8][4] = {};
        int read = 0, write = STAGES - 1;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            copy_wait<STAGES - 2>();
            // One barrier for two reasons: all chunks of this step are here, and the stage of the last step is free again.
            __syncthreads();
            const int ahead = step + STAGES - 1;
            if (ahead < steps) load(base + write * STAGE_BYTES, (i64)ahead * BK, k);
            copy_commit();
            multiply(acc, base + read * STAGE_BYTES, warp_row, warp_col);
            read = read + 1 == STAGES ? 0 : read + 1;
            write = write + 1 == STAGES ? 0 : write + 1;
        }
        copy_wait<0>();
        __syncthreads();
        store_tile(acc, ring, c, m, n, row0, col0, warp_row, warp_col);
        __syncthreads();
    }
}
