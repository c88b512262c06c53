/* greenbench
family  = "latency"
summary = "atomicAdd in shared memory: cycles per dependent add; more threads give its throughput."
entry   = "atomic_shared"
args    = ["sums", "last", "cycles", "threads", "addresses", "hops"]
verify  = "atomic"
sources = ["PTX ISA: atom.shared; nothing published to compare with"]
buffers = [
    { name = "sums",   dtype = "uint32", count = "addresses", fill = "poison" },
    { name = "last",   dtype = "uint32", count = "threads", fill = "poison" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
threads   = 1
addresses = 1
hops      = 4096

[launch]
block = "threads"
grid  = 1
smem  = "4 * addresses"

[report]
buffer = "cycles"
per    = "hops"
fact   = "atomic_shared_{threads}_{addresses}"
*/

// Limited by the latency of one atomic add on shared memory, and with more threads by the unit that executes them: thread t
// adds to word t % addresses. One thread in flight at a time gives the latency, threads / latency_cycles the throughput.
//
// Every add waits for the one before. A lone thread adds what the last add returned, so the word runs through the Fibonacci
// numbers and the chain has no other instruction in it. Several threads add 1, kept dependent by the top bit of what came
// back, which is 0 in every count and which the compiler cannot know.
extern "C" __global__ void __launch_bounds__(1024)
    atomic_shared(u32* sums, u32* last, u64* cycles, long long threads, long long addresses, long long hops) {
    extern __shared__ u32 words[];
    for (u32 i = threadIdx.x; i < (u32)addresses; i += blockDim.x) words[i] = threads == 1 && i == 0;
    __syncthreads();
    const u32 mine = shared_address(words) + 4 * (threadIdx.x % (u32)addresses);
    u32 value = threads == 1;
    const u64 start = sm_cycles();
    if (threads == 1) {
#pragma unroll 1
        for (u32 hop = 0; hop < (u32)hops; ++hop)
            asm volatile("atom.shared.add.u32 %0, [%1], %0;" : "+r"(value) : "r"(mine) : "memory");
    } else {
#pragma unroll 1
        for (u32 hop = 0; hop < (u32)hops; ++hop)
            asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                         : "=r"(value)
                         : "r"(mine), "r"(1 + (value >> 31))
                         : "memory");
    }
    // Stored before the clock is read again, so that the last add has been done; all threads have when the barrier opens.
    last[threadIdx.x] = value;
    __syncthreads();
    const u64 stop = sm_cycles();
    for (u32 i = threadIdx.x; i < (u32)addresses; i += blockDim.x) sums[i] = words[i];
    if (threadIdx.x == 0) *cycles = stop - start;
}
