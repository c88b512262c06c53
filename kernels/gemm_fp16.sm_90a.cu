/* greenbench
family    = "gemm"
summary   = "C = A*B in float16 on tensor cores (wgmma, TMA), float32 accumulation."
entry     = "gemm_fp16"
args      = ["a", "b", "c", "partial", "flags", "m", "n", "k"]
verify    = "gemm"
sources   = ["PTX ISA: wgmma, TMA, mbarrier", "pranjalssh/fast.cu, deepseek-ai/DeepGEMM: the pipeline", "stream-K: arXiv 2301.03598"]
dtype     = "float16"
arch      = "sm_90a"
yardstick = "cublas"
require   = ["n % 8", "k % 8"]
buffers   = [
    { name = "a", dtype = "float16", shape = ["m", "k"], fill = "normal", tensor_map = { box = [64, 128], swizzle = 128, l2_promotion = 128 } },
    { name = "b", dtype = "float16", shape = ["k", "n"], fill = "normal", tensor_map = { box = [64, 64], swizzle = 128, l2_promotion = 128 } },
    { name = "c", dtype = "float16", shape = ["m", "n"], fill = "poison", tensor_map = { box = [64, 64], swizzle = 128, l2_promotion = 128 } },
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
steps   = "ceil_div(k, 64)"
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
bytes = "2 * (m * k + k * n + m * n)"
*/

// Limited by the tensor cores on few SMs, and by power on the full device; a last wave that leaves SMs idle is cut up.
//
// All three matrices are row-major: A[m][k], B[k][n], C[m][n].
#define ELEMENT "f16"
#define ELEMENT_BYTES 2
#define RESULT "f16"
#define PROMOTED 0
#include "gemm_wgmma.cuh"

extern "C" __global__ void GEMM gemm_fp16(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                          const __grid_constant__ CUtensorMap c, float* partial, u32* flags,
                                          long long m, long long n, long long k) {
    gemm(&a, &b, &c, partial, flags, m, n, k);
}
