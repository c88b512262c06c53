/* greenbench
family  = "latency"
summary = "Pointer chase in the shared memory of a cluster of 2: the other CTA (DSMEM), or remote = 0 its own."
entry   = "dsmem"
args    = ["nodes", "end", "cycles", "lines", "hops", "remote"]
verify  = "chase_index"
sources = ["HPMLL/NVIDIA-Hopper-Benchmark DSM/Latency"]
min_cc  = [9, 0]
buffers = [
    { name = "nodes",  dtype = "uint64", count = "16 * lines", fill = "cycle", access = "in" },
    { name = "end",    dtype = "uint64", count = 1, fill = "poison" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
lines  = 1024
hops   = 16384
remote = 1

[launch]
block   = 256
grid    = 2
cluster = 2
smem    = "8 * lines"

[report]
buffer = "cycles"
per    = "hops"
fact   = "dsmem_{remote}"
*/

// Limited by the latency of one load through the network between the SMs of a cluster. The chain
// lies in CTA `remote`, and thread 0 of CTA 0 walks it; all others wait at the cluster barrier, so the network is idle.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
    dsmem(const u64* nodes, u64* end, u64* cycles, long long lines, long long hops, long long remote) {
    extern __shared__ u64 chain[];
    u32 rank;
    u64 base;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    // Where CTA 0 finds the chain of CTA `remote`, as a generic address: a hop is one load, with nothing to compute before it.
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(base) : "l"(chain), "r"((u32)remote & 1));
    // Both CTAs must have started before one touches the other's memory.
    cluster_barrier();
    if (rank == 0)
        for (u32 i = threadIdx.x; i < (u32)lines; i += blockDim.x)
            *(volatile u64*)(base + 8 * i) = base + nodes[16ull * i] / 16;
    cluster_barrier();
    if (rank == 0 && threadIdx.x == 0) {
        u64 at = base;
#pragma unroll 1
        for (u32 hop = 0; hop < 2 * (u32)lines; ++hop) asm volatile("ld.u64 %0, [%0];" : "+l"(at)::"memory");
        const u32 turns = (u32)hops / 4, rest = (u32)hops % 4;
        const u64 start = sm_cycles();
#pragma unroll 1
        for (u32 turn = 0; turn < turns; ++turn)
            asm volatile("ld.u64 %0, [%0];\n\tld.u64 %0, [%0];\n\tld.u64 %0, [%0];\n\tld.u64 %0, [%0];"
                         : "+l"(at)::"memory");
#pragma unroll 1
        for (u32 hop = 0; hop < rest; ++hop) asm volatile("ld.u64 %0, [%0];" : "+l"(at)::"memory");
        // Stored before the clock is read again, so that the last load has arrived.
        *end = (at - base) / 8;
        const u64 stop = sm_cycles();
        *cycles = stop - start;
    }
    // No CTA may leave while its shared memory is read.
    cluster_barrier();
}
