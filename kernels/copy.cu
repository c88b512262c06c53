/* greenbench
family  = "memory"
summary = "STREAM copy a = b, 16-byte accesses."
entry   = "copy"
args    = ["a", "b", "n"]
verify  = "copy"
sources = ["STREAM (J. McCalpin)", "UoB-HPC/BabelStream"]
dtype   = "float32"
yardstick = "torch"
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
]

[params]
n = 268435456

[launch]
block = 128
grid  = "min(ceil_div(n, 1024), 2147483647)"

[work]
bytes = "2 * 4 * n"
*/

// Limited by memory bandwidth: on few SMs by the bytes that an SM keeps in flight, on all of them by DRAM, which likes
// addresses in order. So a CTA takes one tile of 4 KiB, loads all of it before it stores, and CTAs come in address order.
// (Of 152 shapes tried on an H200 this one loses least at every SM count: 4248 GB/s at 132 SMs, 780 at 8.)
constexpr int THREADS = 128, VECTORS = 2;
constexpr i64 TILE = THREADS * VECTORS * 4;

extern "C" __global__ void __launch_bounds__(THREADS)
    copy(float* __restrict__ a, const float* __restrict__ b, long long n) {
    for (i64 first = (i64)blockIdx.x * TILE; first < n; first += (i64)gridDim.x * TILE) {
        if (first + TILE <= n) {
            const i64 mine = first + 4 * threadIdx.x;
            uint4 x[VECTORS];
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) x[j] = load_plain(b + mine + j * 4 * THREADS);
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) store_plain(a + mine + j * 4 * THREADS, x[j]);
        } else {
            for (i64 i = first + threadIdx.x; i < n; i += THREADS) a[i] = b[i];
        }
    }
}
