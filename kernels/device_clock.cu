/* greenbench
family   = "probe"
summary  = "Writes the device's clock to where the host sees it."
entry    = "device_clock"
args     = ["now"]
verify   = "none"
internal = true
buffers  = [{ name = "now", dtype = "uint64", count = 1, fill = "zero", access = "state" }]

[launch]
block = 1
grid  = 1
*/

// Limited by the way to the host's memory.
extern "C" __global__ void device_clock(u64* now) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(now), "l"(device_ns()) : "memory");
}
