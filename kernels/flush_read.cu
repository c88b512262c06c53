/* greenbench
family   = "probe"
summary  = "Replaces the contents of the L2 by read, clean lines."
entry    = "flush_read"
args     = ["data", "bytes", "sink"]
verify   = "none"
internal = true
buffers  = [
    { name = "data", dtype = "uint8", count = "bytes", fill = "zero" },
    { name = "sink", dtype = "uint32", count = 1024, fill = "zero", access = "state" },
]

[params]
bytes = 125829120

[launch]
block = 256
grid  = "8 * sms"

[work]
bytes = "bytes"
*/

// Limited by memory bandwidth. The loads are volatile, and a store that no data can be known to avoid keeps their values alive.
extern "C" __global__ void __launch_bounds__(256) flush_read(const u8* data, long long bytes, u32* sink) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    u32 mixed = 0;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < bytes / 16; i += step) {
        const uint4 v = load_streaming(data + 16 * i);
        mixed ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (mixed == 0x9e3779b9u) sink[threadIdx.x] = mixed;
}
