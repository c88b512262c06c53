/* greenbench
family  = "memory"
summary = "STREAM triad a = b + s*c, 16-byte accesses; on few SMs through rings that the copy engine fills."
entry   = "triad"
args    = ["a", "b", "c", "s", "n"]
verify  = "triad"
sources = ["STREAM (J. McCalpin)", "bytes in flight: HPMLL/NVIDIA-Hopper-Benchmark TMA/Throughput"]
dtype   = "float32"
yardstick = "torch"
arch    = "sm_90a"
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
    { name = "c", dtype = "float32", count = "n", fill = "index" },
]

[params]
n = 268435456
s = 3.0

[launch]
block = "128 + 128 * RING"
grid  = "RING * sms + (1 - RING) * min(ceil_div(n, 1024), 2147483647)"
smem  = "RING * 196608"

# Measured on an H200 in GB/s, tiles against rings: 954 and 1000 at 8 SMs, 1907 and 1997 at 16, 3769 and 3914 at 32, 4377 and
# 3988 at 64.
[[variant]]
defines = { RING = 0 }
cost = "max(0, 36 - sms)"
[[variant]]
defines = { RING = 1 }
cost = "max(0, sms - 36)"

[work]
bytes = "3 * 4 * n"
flops = "2 * n"
*/

// Limited by memory bandwidth: on few SMs by the bytes that an SM keeps in flight, on all of them by DRAM, which likes
// addresses in order. So on many SMs a CTA takes one tile of 4 KiB of each array, loads all of it before it stores, and CTAs
// come in address order. On few, every warp has a ring of its own that the copy engine keeps full, 192 KiB on each SM.
__device__ __forceinline__ u32 fused(u32 b, u32 c, float s) {
    return float_bits(fmaf(s, bits_float(c), bits_float(b)));
}

__device__ __forceinline__ uint4 fused4(const uint4& x, const uint4& y, float s) {
    return make_uint4(fused(x.x, y.x, s), fused(x.y, y.y, s), fused(x.z, y.z, s), fused(x.w, y.w, s));
}

#if RING
constexpr int WARPS = 8, THREADS = 32 * WARPS, STAGES = 6;
constexpr int CHUNK = 512, BYTES = 4 * CHUNK;  // of one array

extern __shared__ __align__(128) unsigned char ring[];

__device__ __forceinline__ void run(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                                    float s, i64 n) {
    __shared__ __align__(8) u64 full[WARPS][STAGES];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const i64 chunks = n / CHUNK, step = (i64)gridDim.x * WARPS;
    unsigned char* mine = ring + warp * (STAGES * 2 * BYTES);
    const u32 barriers = shared_address(full[warp]);
    auto fetch = [&](i64 chunk, int slot) {
        if (chunk >= chunks) return;
        const u32 to = shared_address(mine) + slot * 2 * BYTES, barrier = barriers + 8 * slot;
        barrier_expect(barrier, 2 * BYTES);
        load_bulk(to, b + chunk * CHUNK, BYTES, barrier);
        load_bulk(to + BYTES, c + chunk * CHUNK, BYTES, barrier);
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
        const uint4* x = (const uint4*)(mine + slot * 2 * BYTES) + lane;
#pragma unroll
        for (int j = 0; j < BYTES / 512; ++j)
            store_plain(a + chunk * CHUNK + 4 * (lane + 32 * j), fused4(x[32 * j], x[BYTES / 16 + 32 * j], s));
        __syncwarp();
        if (lane == 0) fetch(chunk + STAGES * step, slot);
        if (++slot == STAGES) slot = 0, parity ^= 1;
    }
    for (i64 i = chunks * CHUNK + (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS)
        a[i] = fmaf(s, c[i], b[i]);
}
#else
constexpr int THREADS = 128, VECTORS = 2;
constexpr i64 TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ void run(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                                    float s, i64 n) {
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
            for (int j = 0; j < VECTORS; ++j) store_plain(a + mine + j * 4 * THREADS, fused4(x[j], y[j], s));
        } else {
            for (i64 i = first + threadIdx.x; i < n; i += THREADS) a[i] = fmaf(s, c[i], b[i]);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    triad(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c, float s, long long n) {
    run(a, b, c, s, n);
}
