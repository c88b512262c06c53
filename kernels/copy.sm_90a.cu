/* greenbench
family  = "memory"
summary = "STREAM copy a = b, 16-byte accesses; on few SMs through rings that the copy engine fills."
entry   = "copy"
args    = ["a", "b", "n"]
verify  = "copy"
sources = ["STREAM (J. McCalpin)", "bytes in flight: HPMLL/NVIDIA-Hopper-Benchmark TMA/Throughput"]
dtype   = "float32"
yardstick = "torch"
arch    = "sm_90a"
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
]

[params]
n = 268435456

[launch]
block = "128 + 128 * RING"
grid  = "RING * sms + (1 - RING) * min(ceil_div(n, 1024), 2147483647)"
smem  = "RING * 131072"

# Measured on an H200 in GB/s, tiles against rings: 780 and 809 at 8 SMs, 1539 and 1617 at 16, 2957 and 3207 at 32, 4262 and
# 3763 at 64.
[[variant]]
defines = { RING = 0 }
cost = "max(0, 44 - sms)"
[[variant]]
defines = { RING = 1 }
cost = "max(0, sms - 44)"

[work]
bytes = "2 * 4 * n"
*/

// Limited by memory bandwidth: on few SMs by the bytes that an SM keeps in flight, on all of them by DRAM, which likes
// addresses in order. So on many SMs a CTA takes one tile of 4 KiB, loads all of it before it stores, and CTAs come in address
// order. On few, every warp has a ring of its own that the copy engine keeps full, 128 KiB on each SM; stores of registers are
// no slower there than those of the copy engine.
#if RING
constexpr int WARPS = 8, THREADS = 32 * WARPS, STAGES = 4;
constexpr int CHUNK = 1024, BYTES = 4 * CHUNK;

extern __shared__ __align__(128) unsigned char ring[];

__device__ __forceinline__ void run(float* __restrict__ a, const float* __restrict__ b, i64 n) {
    __shared__ __align__(8) u64 full[WARPS][STAGES];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const i64 chunks = n / CHUNK, step = (i64)gridDim.x * WARPS;
    unsigned char* mine = ring + warp * (STAGES * BYTES);
    const u32 barriers = shared_address(full[warp]);
    auto fetch = [&](i64 chunk, int slot) {
        if (chunk >= chunks) return;
        barrier_expect(barriers + 8 * slot, BYTES);
        load_bulk(shared_address(mine) + slot * BYTES, b + chunk * CHUNK, BYTES, barriers + 8 * slot);
    };

    i64 chunk = (i64)blockIdx.x * WARPS + warp;
    if (lane == 0) {
        for (int i = 0; i < STAGES; ++i) barrier_init(barriers + 8 * i, 1);
        barrier_init_fence();
        for (int i = 0; i < STAGES; ++i) fetch(chunk + i * step, i);
    }
    __syncwarp();
    int slot = 0;
    u32 parity = 0;
#pragma unroll 1
    for (; chunk < chunks; chunk += step) {
        barrier_wait(barriers + 8 * slot, parity);
        const uint4* x = (const uint4*)(mine + slot * BYTES) + lane;
#pragma unroll
        for (int j = 0; j < BYTES / 512; ++j) store_plain(a + chunk * CHUNK + 4 * (lane + 32 * j), x[32 * j]);
        __syncwarp();
        if (lane == 0) fetch(chunk + STAGES * step, slot);
        if (++slot == STAGES) slot = 0, parity ^= 1;
    }
    for (i64 i = chunks * CHUNK + (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS)
        a[i] = b[i];
}
#else
constexpr int THREADS = 128, VECTORS = 2;
constexpr i64 TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ void run(float* __restrict__ a, const float* __restrict__ b, i64 n) {
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
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    copy(float* __restrict__ a, const float* __restrict__ b, long long n) {
    run(a, b, n);
}
