/* greenbench
family  = "memory"
summary = "Linear layer of decoding, y = x*W^T in bfloat16 with few rows of x."
entry   = "gemv"
args    = ["y", "x", "w", "partial", "arrived", "m", "n", "k"]
verify  = "linear"
sources = ["definition: torch.nn.functional.linear"]
min_cc  = [8, 0]
dtype   = "bfloat16"
yardstick = "torch"
buffers = [
    { name = "y",       dtype = "bfloat16", count = "m * n", fill = "poison" },
    { name = "x",       dtype = "bfloat16", count = "m * k", fill = "normal" },
    { name = "w",       dtype = "bfloat16", count = "n * k", fill = "normal" },
    { name = "partial", dtype = "float32",  count = "blocks * split * ROWS * 8", fill = "poison", access = "scratch" },
    { name = "arrived", dtype = "uint32",   count = "blocks", fill = "zero", access = "scratch" },
]

[params]
m = 1
n = 8192
k = 8192

[defines]
WARPS = 4
ROWS = 16
DEPTH = 4
MAX_SPLIT = 16
PER_SM = 4
TASKS = 4

[let]
blocks = "ceil_div(n, ROWS) * ceil_div(m, 8)"
split = "max(1, min(MAX_SPLIT, ceil_div(k, 128 * WARPS * DEPTH), sms * PER_SM * TASKS // blocks))"

[launch]
block = "32 * WARPS"
grid  = ["ceil_div(n, ROWS)", "ceil_div(m, 8)", "split"]

[work]
bytes = "2 * n * k"
flops = "2 * m * n * k"
*/

// Limited by memory bandwidth: W, row-major [n][k], is read once. For eight rows of x the FMA units would be the limit on few
// SMs, so the tensor cores multiply, 16 rows of W by up to 8 of x. A thread reads W and x in pieces of 16 bytes and hands them
// to the tensor cores as they come: the order of k in a sum is free, as long as both operands have the same one.
//
// A CTA has ROWS rows of W, its warps take turns along k. Where that gives too few CTAs for the SMs, or an uneven last wave, k
// is split over `gridDim.z` CTAs; the one that comes last adds up their results, in their order, so that every run gives the
// same bits. It leaves `arrived` as it was: zero.
constexpr int THREADS = 32 * WARPS, TILES = ROWS / 16;
constexpr int STEP = 64;  // elements of k that a warp multiplies at once: a line of 128 bytes of every row
static_assert(ROWS % 16 == 0, "a tensor core takes 16 rows");

__device__ __forceinline__ uint4 load_weights(const u16* from, bool wanted) {
    uint4 v;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
        : "l"(from), "r"((u32)wanted));
    return v;
}

__device__ __forceinline__ uint4 load_input(const u16* from, bool wanted) {
    uint4 v;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
        : "l"(from), "r"((u32)wanted));
    return v;
}

// Eight elements of a row that does not begin on 16 bytes, zeros from `left` on.
__device__ __forceinline__ uint4 load_ragged(const u16* from, int left) {
    u32 v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        v[i] = (2 * i < left ? (u32)from[2 * i] : 0u) | (2 * i + 1 < left ? (u32)from[2 * i + 1] << 16 : 0u);
    return make_uint4(v[0], v[1], v[2], v[3]);
}

// Sums of this warp's share of k: a lane holds rows g and g + 8 of each tile, columns 2t and 2t + 1, where lane = 4g + t.
// It multiplies STRIDES lines of each of its rows at once.
template <bool RAGGED, int STRIDES>
__device__ __forceinline__ void multiply(float (&acc)[TILES][4], const u16* x, const u16* w, i64 m, i64 n, int k) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int steps = (k + STEP - 1) / STEP;
    const int start = (int)((i64)steps * blockIdx.z / gridDim.z) * STEP + warp * STEP;
    const int end = min(k, (int)((i64)steps * (blockIdx.z + 1) / gridDim.z) * STEP);
    // Rows outside are read from the last one inside: they reach only results that are not written.
    const u16* from_x = x + min((i64)blockIdx.y * 8 + lane / 4, m - 1) * k;
    const u16* from_w[2 * TILES];
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) from_w[i] = w + min((i64)blockIdx.x * ROWS + lane / 4 + 8 * i, n - 1) * k;

#pragma unroll 1
    for (int at = start; at < end; at += STRIDES * WARPS * STEP) {
        uint4 a[STRIDES][2 * TILES][2], b[STRIDES][2];
#pragma unroll
        for (int d = 0; d < STRIDES; ++d)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int here = at + lane % 4 * 8 + d * WARPS * STEP + half * 32;
#pragma unroll
                for (int i = 0; i < 2 * TILES; ++i)
                    a[d][i][half] =
                        RAGGED ? load_ragged(from_w[i] + here, end - here) : load_weights(from_w[i] + here, here < end);
                b[d][half] = RAGGED ? load_ragged(from_x + here, end - here) : load_input(from_x + here, here < end);
            }
#pragma unroll
        for (int d = 0; d < STRIDES; ++d)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < TILES; ++i) {
                    const uint4 &low = a[d][2 * i][half], &high = a[d][2 * i + 1][half], &v = b[d][half];
                    const u32 first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
                    mma_bf16(acc[i], first, v.x, v.y);
                    mma_bf16(acc[i], second, v.z, v.w);
                }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, PER_SM)
    gemv(u16* __restrict__ y, const u16* __restrict__ x, const u16* __restrict__ w, float* __restrict__ partial,
         u32* __restrict__ arrived, long long m, long long n, long long k) {
    __shared__ float sums[WARPS][8 * ROWS];
    __shared__ bool last;
    float acc[TILES][4] = {};
    if (k % 8 == 0)
        multiply<false, DEPTH>(acc, x, w, m, n, (int)k);
    else
        multiply<true, 1>(acc, x, w, m, n, (int)k);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sums[warp][(lane % 4 * 2 + e % 2) * ROWS + i * 16 + e / 2 * 8 + lane / 4] = acc[i][e];
    __syncthreads();

    const i64 blocks = (i64)gridDim.x * gridDim.y, block = (i64)blockIdx.y * gridDim.x + blockIdx.x;
    const i64 row0 = (i64)blockIdx.x * ROWS, col0 = (i64)blockIdx.y * 8;
    auto write = [&](int i, float sum) {
        if (row0 + i % ROWS < n && col0 + i / ROWS < m)
            y[(col0 + i / ROWS) * n + row0 + i % ROWS] = (u16)pack_bf16(sum, 0.f);
    };
    for (int i = threadIdx.x; i < 8 * ROWS; i += THREADS) {
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < WARPS; ++j) sum += sums[j][i];
        if (gridDim.z == 1)
            write(i, sum);
        else
            partial[(blockIdx.z * blocks + block) * (8 * ROWS) + i] = sum;
    }
    if (gridDim.z == 1) return;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(arrived + block, 1u) == gridDim.z - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int i = threadIdx.x; i < 8 * ROWS; i += THREADS) {
        float sum = 0.f;
        for (int z = 0; z < gridDim.z; ++z) sum += __ldcg(partial + (z * blocks + block) * (8 * ROWS) + i);
        write(i, sum);
    }
    if (threadIdx.x == 0) arrived[block] = 0;
}
