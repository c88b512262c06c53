/* greenbench
# A tile per CTA: the file exists to have variants, derived names, dynamic shared memory, a report and macros.
family  = "gemm"
summary = "Sums tiles of BM x BN elements."
entry   = "tiled"
args    = ["out", "cycles", "m", "n"]
dtype   = "tf32"
defines = { WARPS = 4, SCALAR = "float" }
buffers = [
    { name = "out", dtype = "float32", count = "tiles * WARPS", fill = "poison" },
    { name = "cycles", dtype = "int64", count = "tiles", fill = "zero", access = "out" },
]
[params]
m = 4096
n = 4096
[let]
tiles = "ceil_div(m, BM) * ceil_div(n, BN)"
waves = "ceil_div(tiles, sms)"
[launch]
block = "32 * WARPS"
grid  = ["min(tiles, sms * occupancy)", 1]
smem  = "BM * 4"
[[variant]]
defines = { BM = 128, BN = 256 }
cost    = "waves * BM * BN * 9"
[[variant]]
defines = { BM = 128, BN = 128 }
cost    = "waves * BM * BN * 10"
[work]
flops = "2 * m * n"
[report]
buffer = "cycles"
per    = "tiles"
*/
extern "C" __global__ void tiled(SCALAR* out, long long* cycles, long long m, long long n) {
  extern __shared__ SCALAR tile[];
  const long long start = clock64();
  for (int i = threadIdx.x; i < BM; i += blockDim.x) tile[i] = SCALAR(i * BN);
  __syncthreads();
  if (threadIdx.x < WARPS) out[blockIdx.x * WARPS + threadIdx.x] = tile[threadIdx.x] + SCALAR(m + n);
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}
