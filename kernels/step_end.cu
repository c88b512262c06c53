/* greenbench
family   = "probe"
summary  = "Stamps the end of a step, keeps what its last kernel reported, and tells the host."
entry    = "step_end"
args     = ["ledger", "ended", "reported", "report", "done"]
verify   = "none"
internal = true
buffers  = [
    { name = "ledger",   dtype = "uint64", count = 8,     fill = "zero", access = "state" },
    { name = "ended",    dtype = "uint64", count = 65536, fill = "zero", access = "state" },
    { name = "reported", dtype = "uint64", count = 65536, fill = "zero", access = "state" },
    { name = "report",   dtype = "uint64", count = 1,     fill = "zero" },
    { name = "done",     dtype = "uint64", count = 1,     fill = "zero", access = "state" },
]

[launch]
block = 1
grid  = 1
*/

// Limited by its launch behind the step's last kernel. `done` lies in the host's memory; `report` may be null.
extern "C" __global__ void step_end(u64* ledger, u64* ended, u64* reported, const u64* report, u64* done) {
    const u64 step = ledger[0];
    ended[step] = device_ns();
    if (report) reported[step] = *report;
    ledger[0] = step + 1;
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(done), "l"(step + 1) : "memory");
}
