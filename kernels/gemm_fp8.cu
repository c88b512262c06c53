/* greenbench
family    = "gemm"
summary   = "C = A*B^T in e4m3 on tensor cores (mma.sync), promoted to float32 every 128 of k; B is [n][k]."
entry     = "gemm_fp8"
args      = ["a", "b", "c", "m", "n", "k"]
verify    = "gemm_fp8"
dtype     = "e4m3"
min_cc    = [8, 9]
yardstick = "cublas"
sources   = ["PTX ISA: mma.sync, the places of its fragments, ldmatrix, cp.async"]
require   = ["n % 8", "k % 16"]
buffers   = [
    { name = "a", dtype = "e4m3", count = "m * k", fill = "normal" },
    { name = "b", dtype = "e4m3", count = "n * k", fill = "normal" },
    { name = "c", dtype = "bfloat16", count = "m * n", fill = "poison" },
]

[params]
m = 4096
n = 4096
k = 4096

[let]
tiles = "ceil_div(m, BM) * ceil_div(n, BN)"

[launch]
block = "max(128, BM * BN // 64)"
grid  = "min(tiles, sms * occupancy)"
smem  = "STAGES * (BM + BN) * BK"

# cost: tiles on the busiest SM, times the area of a tile, times what a smaller tile loses to shared memory.
[[variant]]
defines = { BM = 128, BN = 128, BK = 128, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 100"
[[variant]]
defines = { BM = 64, BN = 128, BK = 128, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 117"
[[variant]]
defines = { BM = 128, BN = 64, BK = 128, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 118"
[[variant]]
defines = { BM = 64, BN = 64, BK = 128, STAGES = 3 }
cost = "ceil_div(tiles, sms) * BM * BN * 146"

[work]
flops = "2 * m * n * k"
bytes = "m * k + n * k + 2 * m * n"
*/

// Limited by the tensor cores as mma.sync can feed them, which on compute capability 9.0, 10.x and 11.0 is no more than in float16;
// on smaller shapes by waves: the last tiles leave SMs idle.
//
// Tensor cores sum e4m3 in registers of about 14 bits, so the sums of every BK = 128 products are added to others in float32.
constexpr int OPERAND = 1;
constexpr bool B_BY_COLUMNS = true, PROMOTED = true;

// c += a * b for a 16x32 tile of e4m3 times a 32x8 one, accumulated in float32.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
// Only wgmma and tcgen05 take e4m3 there, and for mma.sync the assembler would add the sums of two float16 products to c by itself.
// Here they are accumulated in place. A register holds four neighbours along k; the first product takes the lower pairs, the second
// the upper ones: another order of k, of both operands alike.
__device__ __forceinline__ void widen(u32 four, u32 (&pairs)[2]) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(pairs[0]), "=r"(pairs[1])
        : "r"(four));
}

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    u32 wide[6][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) widen(a[i], wide[i]);
    widen(b0, wide[4]), widen(b1, wide[5]);
#pragma unroll
    for (int half = 0; half < 2; ++half)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
            "%2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(wide[0][half]), "r"(wide[1][half]), "r"(wide[2][half]), "r"(wide[3][half]), "r"(wide[4][half]),
              "r"(wide[5][half]));
}
#else
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

__device__ __forceinline__ u32 pack(float low, float high) {
    return pack_bf16(low, high);
}

#include "gemm_mma.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_fp8(const u8* __restrict__ a, const u8* __restrict__ b, u16* __restrict__ c, long long m, long long n,
             long long k) {
    extern __shared__ __align__(128) u8 ring[];
    product({a, b, c, m, n, k}, ring);
}
