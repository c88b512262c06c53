/* greenbench
family  = "memory"
summary = "STREAM triad a = b + s*c, one element per thread."
entry   = "triad"
args    = ["a", "b", "c", "s", "n"]
min_cc  = [8, 0]
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "normal" },
    { name = "c", dtype = "float32", count = "n", fill = "normal" },
]
[params]
n = 1048576
s = 3.0
[launch]
block = 256
grid  = "ceil_div(n, 256)"
[work]
bytes = "3 * 4 * n"
flops = "2 * n"
*/
extern "C" __global__ void triad(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c, float s,
                                 long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) a[i] = b[i] + s * c[i];
}
