/* greenbench
family   = "probe"
summary  = "A process's operation: counted arithmetic, and a working set that it looks for in the L2."
entry    = "tenant"
args     = ["set", "out", "state", "retained", "iterations", "bytes", "ctas", "threshold", "tenant"]
verify   = "tenant"
internal = true
dtype    = "float32"
sources  = ["CUDA C++ Programming Guide: throughput of arithmetic instructions", "RRZE-HPC/gpu-benches gpu-latency"]
buffers  = [
    { name = "set",      dtype = "uint32", count = "max(32, bytes // 4)", fill = "index" },
    { name = "out",      dtype = "uint32", count = "ctas", fill = "poison" },
    { name = "state",    dtype = "uint32", count = 4, fill = "zero", access = "state" },
    { name = "retained", dtype = "uint64", count = 1, fill = "poison" },
]
# The grid does not follow the lane: an operation is the same work on every partition. Counts of exact float32 end at 2^24.
require = ["bytes % 8192", "iterations // 16000000", "tenant // 1024"]

[params]
iterations = 6187
bytes      = 0
ctas       = 1056
threshold  = 468
tenant     = 0

[let]
one = "1"

[launch]
block = 512
grid  = "ctas"

[work]
flops = "2 * ctas * 512 * iterations"
bytes = "bytes"

[report]
buffer = "retained"
per    = "one"
*/

// Limited by float32 arithmetic: four warps on each scheduler, each a chain of multiply-adds that wait four cycles for the one
// before, fill it. Work is counted, not timed: a clock goes on while another process has the GPU, and a count does not.
//
// `multiplier` is 1, which the compiler cannot know; so a chain adds 1 `iterations` times, exact in float32.
//
// With a working set the first CTAs look for it before anything else: a load of a line that is faster than `threshold` cycles,
// the middle between the latencies of L2 and HBM, was kept there. In front of each goes a load from the same page, so that a TLB
// that was emptied is not taken for an L2. Lines that are looked for are odd, those in front are even. Only when all have looked
// are the lines read again, each by its CTA, past L1. `retained` is 1000 times the share of lines that were kept.
constexpr u32 THREADS = 512, UNROLL = 64;
constexpr u32 PROBERS = 32, SAMPLES = 4;  // CTAs, in each of which a thread of every warp takes so many samples
constexpr u32 LINE = 128;
enum : u32 { HITS, PROBED, FINISHED };

// Reads through the L2 alone, and holds the clock until the value has come: a store cannot be issued before.
__device__ __forceinline__ u32 load_cycles(const char* from, u32 kept_at) {
    const u64 start = sm_cycles();
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(kept_at), "r"(value) : "memory");
    return (u32)(sm_cycles() - start);
}

__device__ __forceinline__ u32 hashed(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ __forceinline__ u32 hits_of_warp(const char* set, u32 lines, u32 threshold, u32 kept_at) {
    u32 hits = 0;
    const u32 prober = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
#pragma unroll 1
    for (u32 i = 0; i < SAMPLES; ++i) {
        const u32 line = hashed(prober * SAMPLES + i) % (lines / 2) * 2 + 1;
        const u32 before = line >= 64 ? line - 63 : line + 63;
        load_cycles(set + (u64)before % lines * LINE, kept_at);
        hits += load_cycles(set + (u64)line * LINE, kept_at) < threshold;
    }
    return hits;
}

__device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ u32 sum_of_lines(const char* set, u32 first, u32 end) {
    const char* const stop = set + (u64)end * LINE;
    u32 sum = 0;
#pragma unroll 4
    for (const char* at = set + (u64)first * LINE + 16 * threadIdx.x; at < stop; at += 16 * THREADS) {
        uint4 v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at)
                     : "memory");
        sum += v.x + v.y + v.z + v.w;
    }
    return sum;
}

__device__ __forceinline__ u32 warp_sum(u32 x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

extern "C" __global__ void __launch_bounds__(512)
    tenant(const u32* set, u32* out, u32* state, u64* retained, long long iterations, long long bytes, long long ctas,
           long long threshold, long long tenant) {
    __shared__ u32 sums[THREADS / 32];
    const char* const base = (const char*)set;
    const u32 lines = (u32)(bytes / LINE), warp = threadIdx.x / 32, probers = min(PROBERS, gridDim.x);
    const bool first_lane = threadIdx.x % 32 == 0;
    if (lines && blockIdx.x < probers) {
        if (first_lane) atomicAdd(state + HITS, hits_of_warp(base, lines, (u32)threshold, shared_address(sums + warp)));
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(state + PROBED, 1);
    }

    const float multiplier = tenant < 0 ? 2.0f : 1.0f;
    float x = (float)tenant;
    const u32 rounds = (u32)iterations / UNROLL, rest = (u32)iterations % UNROLL;
#pragma unroll 1
    for (u32 i = 0; i < rounds; ++i)
#pragma unroll
        for (u32 j = 0; j < UNROLL; ++j) x = fmaf(x, multiplier, multiplier);
#pragma unroll 1
    for (u32 i = 0; i < rest; ++i) x = fmaf(x, multiplier, multiplier);

    u32 sum = (u32)x;
    if (lines) {
        // CTAs start in order, so those that look have started before any that waits for them here.
        while (threadIdx.x == 0 && load_acquire(state + PROBED) < probers) {
        }
        __syncthreads();
        const u64 each = blockIdx.x;
        sum += sum_of_lines(base, (u32)(each * lines / gridDim.x), (u32)((each + 1) * lines / gridDim.x));
    }
    sum = warp_sum(sum);
    __syncthreads();
    if (first_lane) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0);
    if (threadIdx.x != 0) return;
    out[blockIdx.x] = sum;
    if (atomicInc(state + FINISHED, gridDim.x - 1) != gridDim.x - 1) return;
    // The last CTA: nobody looks or waits any more.
    *retained = (u64)load_acquire(state + HITS) * 1000 / (probers * (THREADS / 32) * SAMPLES);
    state[HITS] = state[PROBED] = 0;
}
