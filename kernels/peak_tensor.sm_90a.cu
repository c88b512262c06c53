/* greenbench
family  = "probe"
summary = "Peak of the tensor cores in bfloat16: wgmma back to back from shared memory, no global traffic."
entry   = "peak_tensor"
args    = ["out", "loops"]
verify  = "peak_tensor"
dtype   = "bfloat16"
arch    = "sm_90a"
sources = ["PTX ISA: wgmma, its descriptors and the 128-byte swizzle"]
buffers = [{ name = "out", dtype = "uint32", count = "128 * sms", fill = "poison" }]

[params]
loops = 512

[launch]
block = 256
grid  = "sms"
smem  = 122880

[work]
flops = "sms * loops * 2 * 2 * 128 * 256 * 64"
*/

// Limited by the tensor cores, and on many SMs by power: the ceiling of a product in bfloat16 or float16 in the same session.
//
// It asks for more than half of an SM's shared memory, so that CTAs spread over the SMs, one each.
#define ELEMENT_BITS 16
#define LARGEST 255
#define WGMMA "m64n256k16.f32.bf16.bf16"
#define WGMMA_FLAGS "1, 1, 0, 0"
#include "peak_tensor.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) peak_tensor(u32* __restrict__ out, long long loops) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ u32 sums[ROWS];
    if (threadIdx.x < ROWS) sums[threadIdx.x] = 0;
    multiply(memory, sums, loops);
    __syncthreads();
    if (threadIdx.x < ROWS) out[blockIdx.x * ROWS + threadIdx.x] = sums[threadIdx.x];
}
