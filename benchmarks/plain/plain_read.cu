/* greenbench
family  = "memory"
summary = "Sum of 32-bit integers as anyone would write it: one uint4 per thread and turn."
entry   = "plain_read"
args    = ["partial", "b", "n"]
verify  = "read"
dtype   = "uint32"
require = ["n % 4"]
buffers = [
    { name = "partial", dtype = "uint32", count = "8 * sms * 256", fill = "poison" },
    { name = "b",       dtype = "uint32", count = "n", fill = "index" },
]

[params]
n = 268435456

[launch]
block = 256
grid  = "8 * sms"

[work]
bytes = "4 * n"
*/

extern "C" __global__ void plain_read(u32* __restrict__ partial, const uint4* __restrict__ b, long long n) {
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 sum = 0;
    for (i64 i = thread; i < n / 4; i += (i64)gridDim.x * blockDim.x) {
        const uint4 v = b[i];
        sum += v.x + v.y + v.z + v.w;
    }
    partial[thread] = sum;
}
