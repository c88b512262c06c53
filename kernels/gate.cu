/* greenbench
family   = "probe"
summary  = "Holds a stream until the host raises a flag, or gives up."
entry    = "gate"
args     = ["flag", "ticket", "timeout_ns", "gave_up"]
verify   = "none"
internal = true
buffers  = [
    { name = "flag",    dtype = "uint32", count = 1, fill = "zero", access = "state" },
    { name = "gave_up", dtype = "uint32", count = 1, fill = "zero", access = "state" },
]

[params]
ticket     = 0
timeout_ns = 2000000000

[launch]
block = 1
grid  = 1
*/

// Limited by the host, which raises the flag; the time-out keeps a host that died from holding the device.
extern "C" __global__ void gate(const u32* flag, u32 ticket, long long timeout_ns, u32* gave_up) {
    const u64 start = device_ns();
    for (;;) {
        u32 raised;
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
        // Signed difference: tickets may wrap, and a flag that is ahead of this gate opens it too.
        if ((int)(raised - ticket) >= 0) return;
        if (device_ns() - start > (u64)timeout_ns) break;
    }
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(gave_up), "r"(ticket) : "memory");
}
