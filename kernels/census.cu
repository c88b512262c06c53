/* greenbench
family   = "probe"
summary  = "Bitmap of the SMs that CTAs ran on."
entry    = "census"
args     = ["bitmap", "spin_cycles"]
verify   = "none"
internal = true
buffers  = [{ name = "bitmap", dtype = "uint32", count = 64, fill = "zero", access = "state" }]

[params]
spin_cycles = 20000

[launch]
block = 256
grid  = "8 * sms"
*/

// Limited by its own spin: every CTA stays long enough for the grid to reach all SMs that the launch may use.
constexpr u32 SLOTS = 2048;  // %smid may have gaps and may exceed the number of SMs

extern "C" __global__ void census(u32* bitmap, long long spin_cycles) {
    if (threadIdx.x == 0) {
        const u32 id = sm_id();
        if (id < SLOTS) atomicOr(bitmap + id / 32, 1u << id % 32);
    }
    const u64 start = sm_cycles();
    while (sm_cycles() - start < (u64)spin_cycles) {
    }
}
