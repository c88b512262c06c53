/* greenbench
family  = "memory"
summary = "A template, so its entry is a name expression; its header lies beside it."
entry   = "user::scale<float, 128>"
args    = ["data", "n"]
buffers = [{ name = "data", dtype = "float32", count = "n", fill = "normal", access = "state" }]
[params]
n = 4096
[launch]
block = 128
grid  = "ceil_div(n, 128)"
*/
#include "own/factor.cuh"

namespace user {
template <typename T, int BLOCK>
__global__ void scale(T* data, long long n) {
  const long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  if (i < n) data[i] *= FACTOR;
}
}  // namespace user
