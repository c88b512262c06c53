/* greenbench
family  = "memory"
summary = "a = b as anyone would write it: one float4 per thread and turn."
entry   = "plain_copy"
args    = ["a", "b", "n"]
verify  = "copy"
dtype   = "float32"
require = ["n % 4"]
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
]

[params]
n = 268435456

[launch]
block = 256
grid  = "8 * sms"

[work]
bytes = "2 * 4 * n"
*/

extern "C" __global__ void plain_copy(float4* __restrict__ a, const float4* __restrict__ b, long long n) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += (i64)gridDim.x * blockDim.x) a[i] = b[i];
}
