/* greenbench
family  = "probe"
summary = "Peak of float32 arithmetic: chains of fused multiply-adds in registers, no memory traffic."
entry   = "peak_fma"
args    = ["out", "loops"]
verify  = "peak_fma"
sources = ["CUDA C++ Programming Guide: throughput of arithmetic instructions"]
min_cc  = [8, 0]
dtype   = "float32"
buffers = [{ name = "out", dtype = "uint32", count = "512 * sms", fill = "poison" }]

[params]
loops = 512

[launch]
block = 512
grid  = "sms"
smem  = 98304

[work]
flops = "2 * sms * 512 * loops * 256"
*/

// Limited by the rate at which an SM issues FFMA: one for each of its 128 lanes in a cycle (64 on compute capability 8.0).
//
// A thread has 64 chains, so that none waits for itself. It adds y * k to each, for two numbers y of its own and a constant k of
// the chain, and then y * (d - k), where d is 1 or -1: after `loops` of both every sum is exactly loops * d * (y0 + y1). All are
// whole numbers drawn by a hash: they keep the multipliers as busy as random numbers do, and every sum is below 2^24, so exact.
//
// The register file gives one operand from each of its two banks in a cycle. Of the three that an FFMA takes here, k is part of
// the instruction, y is kept from the one before, and only the sum is read, so that no bank is asked twice.
//
// It asks for shared memory that it does not use, so that CTAs spread over the SMs, one each.
constexpr int THREADS = 512, CHAINS = 64, FACTORS = 2;
constexpr int LARGEST_Y = 1023, LARGEST_K = 2047;

constexpr __host__ __device__ u32 shifted(u32 x, int by) {
    return x ^ x >> by;
}

constexpr __host__ __device__ u32 mixed(u32 x) {
    return shifted(shifted(shifted(x, 16) * 0x7feb352du, 15) * 0x846ca68bu, 16);
}

constexpr __host__ __device__ int drawn(u32 place, int largest) {
    return (int)((mixed(place) >> 8) % (2 * largest + 1)) - largest;
}

// k of a chain, or what takes all of it away again but d.
constexpr __host__ __device__ float constant(int chain, int away) {
    const int k = drawn(2 * chain, LARGEST_K), d = mixed(2 * chain + 1) >> 31 ? -1 : 1;
    return (float)(away ? d - k : k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) peak_fma(u32* __restrict__ out, long long loops) {
    float y[FACTORS], c[CHAINS] = {};
#pragma unroll
    for (int i = 0; i < FACTORS; ++i) y[i] = (float)drawn(0x9e3779b9u + threadIdx.x * FACTORS + i, LARGEST_Y);
#pragma unroll 1
    for (int loop = 0; loop < (int)loops; ++loop)
#pragma unroll
        for (int away = 0; away < 2; ++away)
#pragma unroll
            for (int i = 0; i < FACTORS; ++i)
#pragma unroll
                for (int q = 0; q < CHAINS; ++q) c[q] = fmaf(y[i], constant(q, away), c[q]);
    u32 sum = 0;
#pragma unroll
    for (int q = 0; q < CHAINS; ++q) sum += (u32)(int)c[q] * (2 * q + 1);
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
