/* greenbench
family   = "probe"
summary  = "Replaces the contents of the L2 by written lines."
entry    = "flush_write"
args     = ["data", "bytes"]
verify   = "none"
internal = true
buffers  = [{ name = "data", dtype = "uint8", count = "bytes", fill = "poison" }]

[params]
bytes = 125829120

[launch]
block = 256
grid  = "8 * sms"

[work]
bytes = "bytes"
*/

// Limited by memory bandwidth. Different data everywhere, so that compression of equal lines cannot make it small.
extern "C" __global__ void __launch_bounds__(256) flush_write(u8* data, long long bytes) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < bytes / 16; i += step) {
        const u32 x = (u32)i * 2654435761u;
        store_plain(data + 16 * i, make_uint4(x, x ^ 0x5bd1e995u, x + 0x1b873593u, ~x));
    }
}
