/* greenbench
family    = "gemm"
summary   = "C = A*B^T in e4m3 on tensor cores (wgmma, TMA), promoted every 128 of k; B is [n][k]."
entry     = "gemm_fp8"
args      = ["a", "b", "c", "partial", "flags", "m", "n", "k"]
verify    = "gemm_fp8"
sources   = ["PTX ISA: wgmma, TMA, mbarrier", "pranjalssh/fast.cu, deepseek-ai/DeepGEMM: the pipeline", "stream-K: arXiv 2301.03598", "sums promoted every 128 of k: deepseek-ai/DeepGEMM"]
dtype     = "e4m3"
arch      = "sm_90a"
yardstick = "cublas"
require   = ["n % 8", "k % 16"]
buffers   = [
    { name = "a", dtype = "e4m3", shape = ["m", "k"], fill = "normal", tensor_map = { box = [128, 128], swizzle = 128, l2_promotion = 128 } },
    { name = "b", dtype = "e4m3", shape = ["n", "k"], fill = "normal", tensor_map = { box = [128, "BN // CLUSTER"], swizzle = 128, l2_promotion = 128 } },
    { name = "c", dtype = "bfloat16", shape = ["m", "n"], fill = "poison", tensor_map = { box = [64, 64], swizzle = 128, l2_promotion = 128 } },
    { name = "partial", dtype = "float32", count = "sms * 128 * BN", fill = "poison", access = "scratch" },
    { name = "flags", dtype = "uint32", count = "2 * sms", fill = "zero", access = "scratch" },
]

# In steps along k, as in gemm_bf16.sm_90a.cu: what cutting tiles must save to be done, and the least share that is worth an SM.
[defines]
SPLIT_GAIN = 12
MIN_SHARE  = 16

[params]
m = 4096
n = 4096
k = 4096

# The busiest unit (a cluster) by the arithmetic of Schedule in stream_k.cuh: whole tiles, or the first ones cut into equal shares.
[let]
units   = "max(1, sms // CLUSTER)"
tiles   = "ceil_div(m, 128 * CLUSTER) * ceil_div(n, BN)"
steps   = "ceil_div(k, 128)"
waves   = "tiles // units"
sharers = "min(units, max(tiles, tiles * steps // MIN_SHARE))"
share   = "ceil_div((tiles % units + min(waves, 1) * units) * steps, sharers)"
whole   = "ceil_div(tiles, units) * steps"
cut     = "max(waves - 1, 0) * steps + share"
busiest = "min(whole, cut + SPLIT_GAIN)"

[launch]
block   = 384
grid    = "max(1, sms // CLUSTER) * CLUSTER"
cluster = "CLUSTER"
smem    = "STAGES * (128 + BN) * 128 + 32768 + 16 * STAGES"

# cost: columns times steps of the busiest unit, times what a step takes, as in gemm_bf16.sm_90a.cu. A tile of 192 columns fetches
# 53 bytes in each cycle of its products; one of 128 columns 64, which took 15 % more time (measured on an H200). Clusters lose.
[[variant]]
defines = { BN = 192, STAGES = 4, CLUSTER = 1 }
cost = "busiest * BN * 100"
[[variant]]
defines = { BN = 128, STAGES = 6, CLUSTER = 1 }
cost = "busiest * BN * 115"

[work]
flops = "2 * m * n * k"
bytes = "m * k + k * n + 2 * m * n"
*/

// Limited by the tensor cores if the additions of one consumer fit beside the products of the other, and by power on the full
// device.
//
// A[m][k] and B[n][k] in e4m3, C[m][n] in bfloat16. Tensor cores cut sums of e4m3 products to 14 bits, so that each sum of 128
// products is added to one in float32. That takes registers for both: 192 of 232 for 64 rows of 192 columns.
#define ELEMENT "e4m3"
#define ELEMENT_BYTES 1
#define RESULT "bf16"
#define PROMOTED 1
#include "gemm_wgmma.cuh"

extern "C" __global__ void GEMM gemm_fp8(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                         const __grid_constant__ CUtensorMap c, float* partial, u32* flags, long long m,
                                         long long n, long long k) {
    gemm(&a, &b, &c, partial, flags, m, n, k);
}
