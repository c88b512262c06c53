/* greenbench
family   = "probe"
summary  = "Stamps the start of a step where the first CTA of its first kernel can start."
entry    = "step_start"
args     = ["ledger", "started"]
verify   = "none"
internal = true
buffers  = [
    { name = "ledger",  dtype = "uint64", count = 8,     fill = "zero", access = "state" },
    { name = "started", dtype = "uint64", count = 65536, fill = "zero", access = "state" },
]

[launch]
block = 128
grid  = 1
*/

// Limited by the wait for an SM: launched with the block and the shared memory of the step's first kernel, so that it waits for
// room as that one would.
extern "C" __global__ void step_start(const u64* ledger, u64* started) {
    if (threadIdx.x == 0) started[ledger[0]] = device_ns();
}
