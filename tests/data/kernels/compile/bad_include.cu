/* greenbench
family  = "probe"
summary = "Does not compile."
entry   = "bad_include"
args    = ["out"]
buffers = [{ name = "out", dtype = "uint32", count = 32, fill = "poison" }]
[launch]
block = 32
grid  = 1
*/
// bad_include: names a header that is in no toolkit, so it must fail to compile everywhere; the kernel itself is sound.
// out: one unsigned int per thread.
#include "greenbench_has_no_such_header.h"

extern "C" __global__ void bad_include(unsigned int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1u; }
