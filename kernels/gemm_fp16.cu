/* greenbench
family    = "gemm"
summary   = "C = A*B in float16 on tensor cores (mma.sync), float32 accumulation."
entry     = "gemm_fp16"
args      = ["a", "b", "c", "m", "n", "k"]
verify    = "gemm"
dtype     = "float16"
min_cc    = [8, 0]
yardstick = "cublas"
sources   = ["PTX ISA: mma.sync, the places of its fragments, ldmatrix, cp.async"]
require   = ["n % 8", "k % 8"]
buffers   = [
    { name = "a", dtype = "float16", count = "m * k", fill = "normal" },
    { name = "b", dtype = "float16", count = "k * n", fill = "normal" },
    { name = "c", dtype = "float16", count = "m * n", fill = "poison" },
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

// c += a * b for a 16x16 tile of float16 times a 16x8 one, accumulated in float32.
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#include "gemm_mma.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_fp16(const u16* __restrict__ a, const u16* __restrict__ b, u16* __restrict__ c, long long m, long long n,
              long long k) {
    extern __shared__ __align__(128) u8 ring[];
    product({a, b, c, m, n, k}, ring);
}
