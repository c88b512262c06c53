/* greenbench
family   = "probe"
summary  = "Device time and SM cycles on every SM, for the SM clock between two launches."
entry    = "clock_probe"
args     = ["stamps", "spin_ns"]
verify   = "none"
internal = true
buffers  = [{ name = "stamps", dtype = "uint64", count = 4096, fill = "zero", access = "state" }]

[params]
spin_ns = 2000

[launch]
block = 32
grid  = "4 * sms"
smem  = 49152
*/

// Limited by its own spin. Launched with more than half an SM's shared memory, so that CTAs spread over all SMs.
constexpr u32 SLOTS = 2048;

extern "C" __global__ void clock_probe(u64* stamps, long long spin_ns) {
    if (threadIdx.x != 0) return;
    u32 id;
    u64 ns, cycles;
    // One statement, so that nothing can come between the two clocks.
    asm volatile("mov.u32 %0, %%smid;\n\tmov.u64 %1, %%globaltimer;\n\tmov.u64 %2, %%clock64;"
                 : "=r"(id), "=l"(ns), "=l"(cycles)::"memory");
    if (id < SLOTS && atomicCAS(stamps + 2 * id, 0ull, ns) == 0) stamps[2 * id + 1] = cycles;
    wait_ns((u64)spin_ns);
}
