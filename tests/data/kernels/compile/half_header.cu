/* greenbench
family  = "memory"
summary = "y = 2x + y in halves; needs one header of the toolkit."
entry   = "half_header"
args    = ["y", "x", "count"]
buffers = [
    { name = "y", dtype = "float16", count = "count", fill = "normal", access = "state" },
    { name = "x", dtype = "float16", count = "count", fill = "normal" },
]
[params]
count = 65536
[launch]
block = 256
grid  = "ceil_div(count, 256)"
[work]
bytes = "3 * 2 * count"
*/
// half_header: a correct kernel that needs one toolkit header, cuda_fp16.h; NVRTC does not find it without an include path.
// y, x: count halves each; y = 2 * x + y. Launch ceil(count / 256) CTAs of 256 threads.
#include <cuda_fp16.h>

extern "C" __global__ void half_header(__half *y, const __half *x, unsigned int count) {
  const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = __hfma(__float2half(2.0f), x[i], y[i]);
}
