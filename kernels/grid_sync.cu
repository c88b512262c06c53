/* greenbench
family  = "latency"
summary = "Barrier over one CTA per SM of the lane: cycles per barrier of a cooperative grid."
entry   = "grid_sync"
args    = ["state", "passed", "cycles", "barriers"]
verify  = "grid_sync"
sources = ["RRZE-HPC/gpu-benches gpu-small-kernels"]
buffers = [
    { name = "state",  dtype = "uint32", count = 64, fill = "zero", access = "state" },
    { name = "passed", dtype = "uint64", count = "2 * sms", fill = "zero", access = "state" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
barriers = 1000

[launch]
block       = 256
grid        = "sms"
cooperative = true

[report]
buffer = "cycles"
per    = "barriers"
fact   = "grid_sync"
*/

// Limited by two trips to one L2 slice, the last arrival's and the release that the others poll, and by the arrivals, which
// that slice adds up one by one: cycles grow with the SMs of the lane.
//
// Sense reversal: state[0] counts arrivals, state[32] (a line of its own) holds the sense of the last barrier that opened. The
// last CTA to arrive puts the count back before it turns the sense, so a barrier leaves everything as the next one needs it.
__device__ __forceinline__ void grid_barrier(u32* state, u32& sense) {
    __syncthreads();
    if (threadIdx.x == 0) {
        sense ^= 1;
        u32 before, seen;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(state) : "memory");
        if (before == gridDim.x - 1) {
            asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(state) : "memory");
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(state + 32), "r"(sense) : "memory");
        } else {
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(state + 32) : "memory");
            } while (seen != sense);
        }
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256) grid_sync(u32* state, u64* passed, u64* cycles, long long barriers) {
    constexpr u32 PROOF = 16;
    volatile u64* const count = passed + 2 * blockIdx.x;
    u32 sense = *(volatile u32*)(state + 32);
    // Proof, before the clock starts: behind its n-th barrier a CTA finds that its neighbour has arrived n times. A second
    // barrier keeps the neighbour from going on before it was looked at.
    volatile u64* const neighbour = passed + 2 * ((blockIdx.x + 1) % gridDim.x);
    u64 early = 0;
    for (u32 n = 1; n <= PROOF; ++n) {
        if (threadIdx.x == 0) count[0] = n;
        grid_barrier(state, sense);
        if (threadIdx.x == 0) early += neighbour[0] != n;
        grid_barrier(state, sense);
    }
    u64 through = 2 * PROOF;
    const u64 start = sm_cycles();
#pragma unroll 1
    for (u32 n = 0; n < (u32)barriers; ++n) {
        grid_barrier(state, sense);
        ++through;
    }
    const u64 stop = sm_cycles();
    if (threadIdx.x != 0) return;
    count[0] = through;
    count[1] = early;
    if (blockIdx.x == 0) *cycles = stop - start;
}
