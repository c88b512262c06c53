/* greenbench
family  = "latency"
summary = "L2 lines sorted by distance from one SM: cycles per hop over the near half (0) or the far (1)."
entry   = "l2_halves"
args    = ["nodes", "state", "cycles", "lines", "half", "hops"]
verify  = "l2_halves"
sources = ["RRZE-HPC/gpu-benches gpu-latency: two halves of the L2"]
require = ["max(0, 2 - lines)"]
buffers = [
    { name = "nodes",  dtype = "uint64", count = "16 * lines", fill = "cycle", access = "in" },
    { name = "state",  dtype = "uint64", count = 8, fill = "zero", access = "state" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "poison" },
]

[params]
lines = 16384
half  = 0
hops  = 8192

[launch]
block = 512
grid  = 1
smem  = "2 * lines"

[report]
buffer = "cycles"
per    = "hops"
fact   = "l2_half_{half}"
*/

// Limited by the latency of one L2 load to the slices that are nearer than the median line, or to those that are farther.
//
// A line is a node. Word 0 is the byte offset of the next node (the fill), word 1 the address of the next node of the same
// half, word 2 the fewest cycles that a load of this line took, word 3 its half. The first launch on an SM sorts the lines: one
// thread walks the cycle four times with a clock around each load (the first time is not kept), a histogram finds the median,
// and a last walk links each half in the order of the cycle. state[0] is the SM that the lines were sorted for (plus 1),
// state[1] the address of the nodes, state[2] and state[3] the first node of each half, state[4] where the walk ended.
//
// A clock around a load costs more cycles than a hop; that shifts all lines alike, and only their order counts.
constexpr u32 BINS = 2048, PASSES = 4;

// Writes into fewest[] what the loads of each line took, and counts the lines by that in bins[].
__device__ void measure_lines(const u64* nodes, u32 lines, unsigned short* fewest, u32* bins, volatile u64* arrived) {
    u64 at = 0;
#pragma unroll 1
    for (u32 pass = 0; pass < PASSES; ++pass)
#pragma unroll 1
        for (u32 i = 0; i < lines; ++i) {
            u64 next;
            const u64 start = sm_cycles();
            asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"((u64)nodes + at) : "memory");
            // Stored before the clock is read again, so that the load has arrived.
            *arrived = next;
            const u32 took = min((u32)(sm_cycles() - start), BINS - 1);
            if (pass <= 1 || took < fewest[at / 128]) fewest[at / 128] = took;
            at = next;
        }
    for (u32 i = 0; i < lines; ++i) ++bins[fewest[i]];
}

// Gives every line its half and links the halves; the near one gets half of the lines, rounded down.
__device__ void link_halves(u64* nodes, u64* state, u32 lines, const unsigned short* fewest, const u32* bins) {
    u32 below = 0, median = 0;
    while (below + bins[median] <= lines / 2) below += bins[median++];
    // Of the lines that took as long as the median one, as many are near as there is room for.
    u32 room = lines / 2 - below;
    u64 *first[2] = {nullptr, nullptr}, *latest[2] = {nullptr, nullptr};
    u64* node = nodes;
    for (u32 i = 0; i < lines; ++i) {
        const u32 took = fewest[(node - nodes) / 16];
        const bool tied = took == median && room > 0;
        const u32 half = took < median || tied ? 0 : 1;
        room -= tied;
        node[2] = took;
        node[3] = half;
        // The two halves written out, so that nothing is indexed and everything stays in registers.
        if (half == 0) {
            if (latest[0])
                latest[0][1] = (u64)node;
            else
                first[0] = node;
            latest[0] = node;
        } else {
            if (latest[1])
                latest[1][1] = (u64)node;
            else
                first[1] = node;
            latest[1] = node;
        }
        node = nodes + node[0] / 8;
    }
    if (latest[0]) latest[0][1] = (u64)first[0];
    if (latest[1]) latest[1][1] = (u64)first[1];
    state[2] = (u64)first[0];
    state[3] = (u64)first[1];
}

extern "C" __global__ void __launch_bounds__(512)
    l2_halves(u64* nodes, u64* state, u64* cycles, long long lines, long long half, long long hops) {
    extern __shared__ unsigned short fewest[];
    __shared__ u32 bins[BINS];
    __shared__ u64 arrived;
    for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) bins[i] = 0;
    u64 mixed = 0;
    for (u32 pass = 0; pass < 2; ++pass)
#pragma unroll 4
        for (u32 i = threadIdx.x; i < (u32)lines; i += blockDim.x) {
            u64 value;
            asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(nodes + 16ull * i) : "memory");
            mixed |= value;
        }
    // Offsets of lines are even. The assembler cannot know, so it keeps the loads; unused, even volatile ones go.
    if (mixed & 1) cycles[0] = mixed;
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (state[0] != sm_id() + 1 || state[1] != (u64)nodes) {
        measure_lines(nodes, (u32)lines, fewest, bins, &arrived);
        link_halves(nodes, state, (u32)lines, fewest, bins);
        __threadfence();
    }
    u64 at = state[2 + (half & 1)];
    const u64 start = sm_cycles();
#pragma unroll 1
    for (u32 hop = 0; hop < (u32)hops; ++hop) asm volatile("ld.global.cg.u64 %0, [%0 + 8];" : "+l"(at)::"memory");
    // Stored before the clock is read again, so that the last load has arrived.
    state[4] = at;
    const u64 stop = sm_cycles();
    state[0] = sm_id() + 1;
    state[1] = (u64)nodes;
    cycles[0] = stop - start;
}
