/* greenbench
family  = "memory"
summary = "STREAM triad a = b + s*c, 16-byte accesses."
entry   = "triad"
args    = ["a", "b", "c", "s", "n"]
verify  = "triad"
sources = ["STREAM (J. McCalpin)", "UoB-HPC/BabelStream"]
dtype   = "float32"
yardstick = "torch"
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
    { name = "c", dtype = "float32", count = "n", fill = "index" },
]

[params]
n = 268435456
s = 3.0

[launch]
block = 128
grid  = "min(ceil_div(n, 1024), 2147483647)"

[work]
bytes = "3 * 4 * n"
flops = "2 * n"
*/

// Limited by memory bandwidth: on few SMs by the bytes that an SM keeps in flight, on all of them by DRAM, which likes
// addresses in order. So a CTA takes one tile of 4 KiB of each array, loads all of it before it stores, and CTAs come in
// address order. (Of 145 shapes tried on an H200 this one loses least at every SM count: 4363 GB/s at 132 SMs, 954 at 8.)
constexpr int THREADS = 128, VECTORS = 2;
constexpr i64 TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ u32 fused(u32 b, u32 c, float s) {
    return float_bits(fmaf(s, bits_float(c), bits_float(b)));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    triad(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c, float s, long long n) {
    for (i64 first = (i64)blockIdx.x * TILE; first < n; first += (i64)gridDim.x * TILE) {
        if (first + TILE <= n) {
            const i64 mine = first + 4 * threadIdx.x;
            uint4 x[VECTORS], y[VECTORS];
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                x[j] = load_plain(b + mine + j * 4 * THREADS);
                y[j] = load_plain(c + mine + j * 4 * THREADS);
            }
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                const uint4 r = make_uint4(fused(x[j].x, y[j].x, s), fused(x[j].y, y[j].y, s), fused(x[j].z, y[j].z, s),
                                           fused(x[j].w, y[j].w, s));
                store_plain(a + mine + j * 4 * THREADS, r);
            }
        } else {
            for (i64 i = first + threadIdx.x; i < n; i += THREADS) a[i] = fmaf(s, c[i], b[i]);
        }
    }
}
