/* greenbench
family  = "probe"
summary = "Does not compile."
entry   = "type_traits"
args    = ["out"]
buffers = [{ name = "out", dtype = "uint32", count = 32, fill = "poison" }]
[launch]
block = 32
grid  = 1
*/
// type_traits: includes a header of the host's C++ library, which NVRTC does not have: the first
// error is at the #include line.
// out: one unsigned int per thread.
#include <type_traits>

extern "C" __global__ void type_traits(unsigned int *out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = std::is_same<int, int>::value ? 1u : 0u;
}
