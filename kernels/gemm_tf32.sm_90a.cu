/* greenbench
family    = "gemm"
summary   = "C = A*B^T in tf32 on tensor cores (wgmma, TMA), float32 accumulation; B is [n][k]."
entry     = "gemm_tf32"
args      = ["a", "b", "c", "partial", "flags", "m", "n", "k"]
verify    = "gemm_tf32"
sources   = ["PTX ISA: wgmma, TMA, mbarrier", "pranjalssh/fast.cu, deepseek-ai/DeepGEMM: the pipeline", "stream-K: arXiv 2301.03598"]
dtype     = "tf32"
arch      = "sm_90a"
yardstick = "cublas"
require   = ["n % 4", "k % 4"]
buffers   = [
    { name = "a", dtype = "tf32", shape = ["m", "k"], fill = "normal", tensor_map = { box = [32, 128], swizzle = 128, l2_promotion = 128 } },
    { name = "b", dtype = "tf32", shape = ["n", "k"], fill = "normal", tensor_map = { box = [32, "BN // CLUSTER"], swizzle = 128, l2_promotion = 128 } },
    { name = "c", dtype = "float32", shape = ["m", "n"], fill = "poison", tensor_map = { box = [32, 64], swizzle = 128, l2_promotion = 128 } },
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
steps   = "ceil_div(k, 32)"
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

# cost: columns times steps of the busiest unit, times what a step takes, with the constants of gemm_bf16.sm_90a.cu: a step is
# 128 bytes of k there too, and takes the tensor cores the same time.
[[variant]]
defines = { BN = 256, STAGES = 4, CLUSTER = 1 }
cost = "busiest * BN * (24000 + 3 * sms)"
[[variant]]
defines = { BN = 256, STAGES = 4, CLUSTER = 2 }
cost = "busiest * BN * (24078 + 2 * sms)"
[[variant]]
defines = { BN = 128, STAGES = 6, CLUSTER = 1 }
cost = "busiest * BN * (28800 + 4 * sms)"

[work]
flops = "2 * m * n * k"
bytes = "4 * (m * k + k * n + m * n)"
*/

// Limited by the tensor cores, which do half as many products of tf32 as of bfloat16 and fetch as many bytes for them.
//
// A[m][k] and B[n][k] hold float32 that tensor cores read as tf32: they leave out the lowest 13 bits of the fraction. C[m][n] is
// float32, and leaves through shared memory in boxes of 32 columns.
#define ELEMENT "tf32"
#define ELEMENT_BYTES 4
#define PROMOTED 0
#include "gemm_wgmma.cuh"

extern "C" __global__ void GEMM gemm_tf32(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                          const __grid_constant__ CUtensorMap c, float* partial, u32* flags,
                                          long long m, long long n, long long k) {
    gemm(&a, &b, &c, partial, flags, m, n, k);
}
