/* greenbench
family  = "probe"
summary = "Peak of the tensor cores in tf32: mma.sync back to back from registers, no memory traffic."
entry   = "peak_tensor_tf32"
args    = ["out", "loops"]
verify  = "peak_tensor"
dtype   = "tf32"
min_cc  = [8, 0]
sources = ["PTX ISA: mma.sync, and the places of its fragments"]
buffers = [{ name = "out", dtype = "uint32", count = "128 * sms", fill = "poison" }]

[params]
loops = 512

[launch]
block = 256
grid  = "sms"
smem  = 98304

[work]
flops = "sms * loops * 2 * 2 * 128 * 256 * 32"
*/

// Limited by the tensor cores as mma.sync can feed them, and by power. On compute capability 9.0 and 10.0 wgmma and tcgen05 reach
// more, so there this file is no ceiling.
//
// It asks for shared memory that it does not use, so that CTAs spread over the SMs, one each.
#define ELEMENT_BITS 32
#define LARGEST 511
#define MMA "m16n8k8.row.col.f32.tf32.tf32.f32"
#include "peak_tensor.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) peak_tensor_tf32(u32* __restrict__ out, long long loops) {
    __shared__ u32 sums[ROWS];
    if (threadIdx.x < ROWS) sums[threadIdx.x] = 0;
    __syncthreads();
    multiply(sums, loops);
    __syncthreads();
    if (threadIdx.x < ROWS) out[blockIdx.x * ROWS + threadIdx.x] = sums[threadIdx.x];
}
