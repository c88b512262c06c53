/* greenbench
family  = "latency"
summary = "Pointer chase: cycles per dependent load, one random cycle over lines of 128 bytes."
entry   = "chase"
args    = ["nodes", "state", "cycles", "bytes", "hops"]
verify  = "chase"
sources = ["RRZE-HPC/gpu-benches gpu-latency", "HPMLL/NVIDIA-Hopper-Benchmark random_latency"]
buffers = [
    { name = "nodes",  dtype = "uint64", count = "16 * max(1, bytes // 128)", fill = "cycle", access = "in" },
    { name = "state",  dtype = "uint64", count = 2, fill = "zero", access = "state" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
bytes = 16384
hops  = 16384

[launch]
block = 512
grid  = 1

[report]
buffer = "cycles"
per    = "hops"
*/

// Limited by the latency of one load: L1, L2 or DRAM with its TLB, by the size of the working set.
//
// A node is a line: word 0 holds the byte offset of the next node (the fill), word 1 the same as an address, so that a hop is
// one load and no arithmetic. The first launch on a buffer writes the addresses and keeps the buffer's own address in state[1].
// state[0] is the position: a launch goes on where the last one ended, so that a set beyond the L2 is met cold.
//
// L1 does not survive a launch, and other work may have used the L2: sets of up to 32 MiB are touched by all threads before the
// clock starts, twice, those of up to 256 KiB through L1, larger ones past it. A launch begins with cold TLBs, so it makes many
// hops. On a device whose L2 is smaller than the set,
// a set of up to 32 MiB is therefore met half warm. Afterwards one thread alone walks.
constexpr i64 LINE = 128, L1_LIMIT = 256 << 10, WARM_LIMIT = 32 << 20;

template <bool THROUGH_L1>
__device__ __forceinline__ u64 touch(const u64* nodes, u32 count) {
    u64 mixed = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        u64 value;
        if (THROUGH_L1)
            asm volatile("ld.global.u64 %0, [%1 + 8];" : "=l"(value) : "l"(nodes + 16ull * i) : "memory");
        else
            asm volatile("ld.global.cg.u64 %0, [%1 + 8];" : "=l"(value) : "l"(nodes + 16ull * i) : "memory");
        mixed |= value;
    }
    return mixed;
}

extern "C" __global__ void __launch_bounds__(512)
    chase(u64* nodes, u64* state, u64* cycles, long long bytes, long long hops) {
    const u32 count = bytes < LINE ? 1 : (u32)(bytes / LINE);
    const u64 base = (u64)nodes;
    if (state[1] != base) {
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) nodes[16ull * i + 1] = base + nodes[16ull * i];
        __threadfence();
    }
    __syncthreads();
    u64 mixed = 0;
    if (bytes <= L1_LIMIT)
        mixed = touch<true>(nodes, count) | touch<true>(nodes, count);
    else if (bytes <= WARM_LIMIT)
        mixed = touch<false>(nodes, count) | touch<false>(nodes, count);
    // Addresses of words are even. The assembler cannot know, so it keeps the loads; unused, even volatile ones go.
    if (mixed & 1) cycles[0] = mixed;
    __syncthreads();
    if (threadIdx.x != 0) return;

    u64 at = base + state[0];
    const u64 start = sm_cycles();
#pragma unroll 1
    for (u32 hop = 0; hop < (u32)hops; ++hop) asm volatile("ld.global.u64 %0, [%0 + 8];" : "+l"(at)::"memory");
    // Stored before the clock is read again, so that the last load has arrived.
    state[0] = at - base;
    const u64 stop = sm_cycles();
    state[1] = base;
    cycles[0] = stop - start;
}
