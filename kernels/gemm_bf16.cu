/* greenbench
family    = "gemm"
summary   = "C = A*B in bfloat16 on tensor cores (mma.sync), float32 accumulation."
entry     = "gemm_bf16"
args      = ["a", "b", "c", "m", "n", "k"]
verify    = "gemm"
dtype     = "bfloat16"
min_cc    = [8, 0]
yardstick = "cublas"
sources   = ["PTX ISA: mma.sync, the places of its fragments, ldmatrix, cp.async"]
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
grid  = "min(tiles, sms * occupancy)"
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
constexpr int OPERAND = 2;
constexpr bool B_BY_COLUMNS = false, PROMOTED = false;

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    mma_bf16(c, a, b0, b1);
}

__device__ __forceinline__ u32 pack(float low, float high) {
    return pack_bf16(low, high);
}

#include "gemm_mma.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_bf16(const u16* __restrict__ a, const u16* __restrict__ b, u16* __restrict__ c, long long m, long long n,
              long long k) {
    extern __shared__ __align__(128) u8 ring[];
    product({a, b, c, m, n, k}, ring);
}
