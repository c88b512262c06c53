/* greenbench
family  = "latency"
summary = "atomicAdd in L2: cycles per dependent add; more threads and addresses give its throughput."
entry   = "atomic_global"
args    = ["sums", "last", "cycles", "per_sm", "threads", "addresses", "hops"]
verify  = "atomic"
sources = ["PTX ISA: atom.global; nothing published to compare with"]
buffers = [
    { name = "sums",   dtype = "uint32", count = "8 * addresses", fill = "zero", access = "state" },
    { name = "last",   dtype = "uint32", count = "threads * max(1, per_sm * sms)", fill = "poison" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
per_sm    = 0
threads   = 1
addresses = 1
hops      = 4096

[launch]
block = "threads"
grid  = "max(1, per_sm * sms)"

[report]
buffer = "cycles"
per    = "hops"
fact   = "atomic_global_{per_sm}_{threads}_{addresses}"
*/

// Limited by the way to the L2 slice of the word and back, and with more threads by the atomic units of the slices: thread t
// of the grid adds to word t % addresses, the words being 32 bytes apart (a sector each). per_sm CTAs on every SM of the lane,
// one CTA in all where it is 0. A thread has one add in flight, so the lane does threads / latency_cycles of them per clock.
//
// Every add waits for the one before. A lone thread adds what the last add returned, so the word runs through the Fibonacci
// numbers and the chain has no other instruction in it. Several threads add 1, kept dependent by the top bit of what came
// back, which is 0 in every count below 2^31. The words go on from launch to launch.
extern "C" __global__ void __launch_bounds__(1024)
    atomic_global(u32* sums, u32* last, u64* cycles, long long per_sm, long long threads, long long addresses,
                  long long hops) {
    const u32 number = blockIdx.x * blockDim.x + threadIdx.x;
    u32* const mine = sums + 8ull * (number % (u32)addresses);
    const bool alone = gridDim.x * blockDim.x == 1;
    u32 value = 0;
    if (alone) {
        *mine = 1;
        // Once before the clock starts, adding nothing: the line is in the L2 then, and its page in the TLB.
        asm volatile("atom.global.add.u32 %0, [%1], %0;" : "+r"(value) : "l"(mine) : "memory");
        last[0] = value;
    }
    __syncthreads();
    const u64 start = sm_cycles();
    if (alone) {
#pragma unroll 1
        for (u32 hop = 0; hop < (u32)hops; ++hop)
            asm volatile("atom.global.add.u32 %0, [%1], %0;" : "+r"(value) : "l"(mine) : "memory");
    } else {
#pragma unroll 1
        for (u32 hop = 0; hop < (u32)hops; ++hop)
            asm volatile("atom.global.add.u32 %0, [%1], %2;"
                         : "=r"(value)
                         : "l"(mine), "r"(1 + (value >> 31))
                         : "memory");
    }
    // Stored before the clock is read again, so that the last add has been done; all threads of the CTA have behind the barrier.
    last[number] = value;
    __syncthreads();
    const u64 stop = sm_cycles();
    if (number == 0) *cycles = stop - start;
}
