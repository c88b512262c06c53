/* greenbench
family   = "probe"
summary  = "Holds a step of a co-location until it is due, by the device's own clock."
entry    = "step_gate"
args     = ["ledger", "due", "entered"]
verify   = "none"
internal = true
buffers  = [
    { name = "ledger",  dtype = "uint64", count = 8,     fill = "zero", access = "state" },
    { name = "due",     dtype = "uint64", count = 65536, fill = "zero" },
    { name = "entered", dtype = "uint64", count = 65536, fill = "zero", access = "state" },
]

[launch]
block = 1
grid  = 1
*/

// Limited by the clock that it waits for: a step starts when it is due, however late the host was and whatever it does.
//
// ledger[0] counts the steps that are done, so that one graph serves them all; ledger[1] is 0 where the host waits instead.
extern "C" __global__ void step_gate(const u64* ledger, const u64* due, u64* entered) {
    const u64 step = ledger[0], until = ledger[1] ? due[step] : 0;
    entered[step] = device_ns();
    while (device_ns() < until) {
    }
}
