/* greenbench
family  = "latency"
summary = "Pointer chase in shared memory: cycles per dependent 4-byte load of one thread."
entry   = "chase_shared"
args    = ["nodes", "end", "cycles", "lines", "hops"]
verify  = "chase_index"
sources = ["arXiv 2402.13499", "HPMLL/NVIDIA-Hopper-Benchmark DSM/Latency"]
buffers = [
    { name = "nodes",  dtype = "uint64", count = "16 * lines", fill = "cycle", access = "in" },
    { name = "end",    dtype = "uint64", count = 1, fill = "poison" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
lines = 1024
hops  = 16384

[launch]
block = 256
grid  = 1
smem  = "4 * lines"

[report]
buffer = "cycles"
per    = "hops"
fact   = "shared"
*/

// Limited by the latency of one load from shared memory; one thread walks, so no two loads meet in a bank.
//
// A node is a word that holds the shared-memory address of the next one: the cycle of the fill, without its 128-byte lines.
// Four hops a turn, so that the counter of the loop never shows between two loads.
extern "C" __global__ void __launch_bounds__(256)
    chase_shared(const u64* nodes, u64* end, u64* cycles, long long lines, long long hops) {
    extern __shared__ u32 chain[];
    const u32 base = shared_address(chain);
    for (u32 i = threadIdx.x; i < (u32)lines; i += blockDim.x) chain[i] = base + 4 * (u32)(nodes[16ull * i] / 128);
    __syncthreads();
    if (threadIdx.x != 0) return;

    u32 at = base;
    // Twice round before the clock starts: instructions are cached then.
#pragma unroll 1
    for (u32 hop = 0; hop < 2 * (u32)lines; ++hop) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
    const u32 turns = (u32)hops / 4, rest = (u32)hops % 4;
    const u64 start = sm_cycles();
#pragma unroll 1
    for (u32 turn = 0; turn < turns; ++turn)
        asm volatile(
            "ld.shared.u32 %0, [%0];\n\tld.shared.u32 %0, [%0];\n\tld.shared.u32 %0, [%0];\n\tld.shared.u32 %0, [%0];"
            : "+r"(at)::"memory");
#pragma unroll 1
    for (u32 hop = 0; hop < rest; ++hop) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
    // Stored before the clock is read again, so that the last load has arrived.
    *end = (at - base) / 4;
    const u64 stop = sm_cycles();
    *cycles = stop - start;
}
