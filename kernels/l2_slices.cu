/* greenbench
family  = "latency"
summary = "L2 latency of each SM of the lane over the same warm lines; reports one percentile over the SMs."
entry   = "l2_slices"
args    = ["nodes", "state", "ends", "per_sm", "cycles", "lines", "percentile"]
verify  = "l2_slices"
sources = ["arXiv 2606.22588"]
buffers = [
    { name = "nodes",  dtype = "uint64", count = "16 * lines", fill = "cycle", access = "in" },
    { name = "state",  dtype = "uint32", count = 4096, fill = "zero", access = "state" },
    { name = "ends",   dtype = "uint64", count = "2 * sms", fill = "zero", access = "state" },
    { name = "per_sm", dtype = "uint64", count = "sms", fill = "zero", access = "state" },
    { name = "cycles", dtype = "uint64", count = 1, fill = "zero", access = "state" },
]

[params]
lines      = 16384
percentile = 50

[launch]
block       = 1024
grid        = ["sms", "occupancy"]
cooperative = true

[report]
buffer = "cycles"
per    = "lines"
fact   = "l2_sm_p{percentile}"
*/

// Limited by the latency of one L2 load. Every SM walks the whole random cycle once, so each meets every line, and with the
// lines every slice of the L2, equally often; what differs between SMs is their way to the slices. percentile 0 is the nearest
// SM, 50 the median, 100 the farthest; the values of all SMs stay in per_sm, in the order in which the SMs reported.
//
// The grid fills the lane (sms x occupancy CTAs, cooperative), so each SM holds a CTA; the first CTA of an SM to say so walks,
// the others leave. All SMs walk at once, from places spread over the cycle: 132 loads in flight are below 1 % of what the L2
// serves. Loads pass L1 by (.cg).
constexpr u32 SLOTS = 2048, ARRIVED = 2048, WALKERS = 2080, DONE = 2112,
              LINKED = 2144;  // places in `state`, a line each

extern "C" __global__ void __launch_bounds__(1024)
    l2_slices(u64* nodes, u32* state, u64* ends, u64* per_sm, u64* cycles, long long lines, long long percentile) {
    __shared__ u32 slot, last;
    const u32 ctas = gridDim.x * gridDim.y;
    const u64 base = (u64)nodes;
    u64* const linked = (u64*)(state + LINKED);
    // The first launch writes the addresses into word 1, every CTA the same: a hop is then one load and no arithmetic.
    if (*(volatile u64*)linked != base)
        for (u32 i = threadIdx.x; i < (u32)lines; i += blockDim.x) nodes[16ull * i + 1] = base + nodes[16ull * i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const u32 id = sm_id();
        const bool first = id < SLOTS && atomicExch(state + id, 1u) == 0;
        slot = first ? atomicAdd(state + WALKERS, 1u) : ~0u;
        __threadfence();
        // All CTAs are resident: nobody goes on before every SM has its walker. The count is never put back, since a CTA that
        // leaves may still be looking at it when the last walker has finished.
        const u32 before = atomicAdd(state + ARRIVED, 1u), after = before - before % ctas + ctas;
        while ((int)(*(volatile u32*)(state + ARRIVED) - after) < 0) {
        }
        __threadfence();
    }
    __syncthreads();
    if (slot >= gridDim.x) return;

    u64 mixed = 0;
    for (u32 pass = 0; pass < 2; ++pass)
#pragma unroll 4
        for (u32 i = threadIdx.x; i < (u32)lines; i += blockDim.x) {
            u64 value;
            asm volatile("ld.global.cg.u64 %0, [%1 + 8];" : "=l"(value) : "l"(nodes + 16ull * i) : "memory");
            mixed |= value;
        }
    // Addresses of words are even. The assembler cannot know, so it keeps the loads; unused, even volatile ones go.
    if (mixed & 1) cycles[0] = mixed;
    __syncthreads();
    if (threadIdx.x == 0) {
        const u64 from = slot * (u64)lines / gridDim.x * 128;
        u64 at = base + from;
        const u64 start = sm_cycles();
#pragma unroll 1
        for (u32 hop = 0; hop < (u32)lines; ++hop) asm volatile("ld.global.cg.u64 %0, [%0 + 8];" : "+l"(at)::"memory");
        // Stored before the clock is read again, so that the last load has arrived.
        ends[2 * slot] = at - base;
        const u64 stop = sm_cycles();
        ends[2 * slot + 1] = from;
        per_sm[slot] = stop - start;
        __threadfence();
        last = atomicAdd(state + DONE, 1u) + 1 == *(volatile u32*)(state + WALKERS);
        __threadfence();
    }
    __syncthreads();
    if (!last) return;

    // The last walker ranks the SMs (equal ones by their order) and makes everything ready for the next launch.
    const u32 walkers = *(volatile u32*)(state + WALKERS);
    const u32 count = walkers < gridDim.x ? walkers : gridDim.x;
    const u32 wanted = ((u32)percentile * (count - 1) + 50) / 100;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        const u64 own = *(volatile u64*)(per_sm + i);
        u32 rank = 0;
        for (u32 j = 0; j < count; ++j) {
            const u64 other = *(volatile u64*)(per_sm + j);
            rank += other < own || (other == own && j < i);
        }
        if (rank == wanted) cycles[0] = own;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < SLOTS; i += blockDim.x) state[i] = 0;
    if (threadIdx.x == 0) {
        state[WALKERS] = state[DONE] = 0;
        *linked = base;
    }
}
