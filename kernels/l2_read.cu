/* greenbench
family  = "memory"
summary = "Reduction over a set that stays in the L2: the same 24 MB summed over and over, 16-byte loads."
entry   = "l2_read"
args    = ["partial", "b", "n", "passes"]
verify  = "l2_read"
sources = ["RRZE-HPC/gpu-benches gpu-l2-cache"]
timing  = "hot"
dtype   = "uint32"
require = ["n % 8192"]
buffers = [
    { name = "partial", dtype = "uint32", count = "4 * sms", fill = "poison" },
    { name = "b",       dtype = "uint32", count = "n", fill = "index" },
]

[params]
n      = 5996544
passes = 32

[launch]
block = 256
grid  = "4 * sms"

[work]
bytes = "4 * n * passes"
*/

// Limited by the links between the SMs and the L2, on many SMs by the L2 itself. `auto` times it hot, so that nothing evicts the
// set between launches; in any other timing it may measure HBM instead.
//
// 24 MB are 38 % of the L2 of an H200 and 57 % of that of an A100, whose halves may each hold a copy of what the SMs of both read;
// published curves are flat up to 60 %. Nothing is found in the L1: loads do not allocate there, and in every pass each tile goes to the next CTA.
// Sums of integers modulo 2^32 are exact in any order, so a tile that a pass reads twice or not at all shows.
constexpr int THREADS = 256, VECTORS = 8;
constexpr u32 TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ u32 warp_sum(u32 x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    l2_read(u32* __restrict__ partial, const u32* __restrict__ b, long long n, long long passes) {
    const u32 tiles = (u32)(n / TILE), all = tiles * (u32)passes;
    u32 sum = 0;
    for (u32 next = blockIdx.x; next < all; next += gridDim.x) {
        const u32 tile = (next + next / tiles) % tiles;
        const u32* from = b + (i64)tile * TILE + 4 * threadIdx.x;
        uint4 x[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) x[j] = load_streaming(from + j * 4 * THREADS);
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) sum += x[j].x + x[j].y + x[j].z + x[j].w;
    }
    __shared__ u32 sums[THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0);
        if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    }
}
