/* greenbench
family  = "probe"
summary = "One warp that waits a known time, to check a timer against."
entry   = "spin"
args    = ["elapsed", "ns"]
verify  = "spin"
sources = ["PTX ISA: %globaltimer"]
buffers = [{ name = "elapsed", dtype = "uint64", count = 1, fill = "poison" }]

[params]
ns = 100000

[launch]
block = 32
grid  = 1
*/

// Limited by %globaltimer, whose step (32 ns to 1 us, by device) is the error of the wait.
extern "C" __global__ void spin(u64* elapsed, long long ns) {
    if (threadIdx.x != 0) return;
    const u64 start = device_ns();
    u64 now = start;
    while (now - start < (u64)ns) now = device_ns();
    *elapsed = now - start;
}
