/* greenbench
family  = "memory"
summary = "a = b + s*c as anyone would write it: one float4 per thread and turn."
entry   = "plain_triad"
args    = ["a", "b", "c", "s", "n"]
verify  = "triad"
dtype   = "float32"
require = ["n % 4"]
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
    { name = "c", dtype = "float32", count = "n", fill = "index" },
]

[params]
n = 268435456
s = 3.0

[launch]
block = 256
grid  = "8 * sms"

[work]
bytes = "3 * 4 * n"
flops = "2 * n"
*/

extern "C" __global__ void plain_triad(float4* __restrict__ a, const float4* __restrict__ b,
                                       const float4* __restrict__ c, float s, long long n) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += (i64)gridDim.x * blockDim.x) {
        const float4 x = b[i], y = c[i];
        a[i] = make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
    }
}
