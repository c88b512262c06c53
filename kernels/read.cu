/* greenbench
family  = "memory"
summary = "Reduction: sum of 32-bit integers, 16-byte loads, one partial sum per CTA."
entry   = "read_sum"
args    = ["partial", "b", "n"]
verify  = "read"
sources = ["to compare with: sums of int32 by NVIDIA CUB and pranjalssh/fast.cu"]
dtype   = "uint32"
yardstick = "torch"
buffers = [
    { name = "partial", dtype = "uint32", count = "tiles", fill = "poison" },
    { name = "b",       dtype = "uint32", count = "n", fill = "index" },
]

[params]
n = 268435456

[let]
tiles = "ceil_div(n, 512 * VECTORS)"

[launch]
block = 128
grid  = "tiles"

# Few SMs need more bytes in flight on each; on many, DRAM likes the smaller tile.
[[variant]]
defines = { VECTORS = 8 }
cost = "max(0, 48 - sms)"
[[variant]]
defines = { VECTORS = 16 }
cost = "max(0, sms - 48)"

[work]
bytes = "4 * n"
*/

// Limited by memory bandwidth, on few SMs by the bytes that an SM keeps in flight. Integers, because their sum modulo 2^32 is
// exact in any order: one element read twice or not at all shows, whatever the schedule. Partial sums are written, not added
// up atomically, so that a launch needs nothing zeroed before it; they are not counted as bytes.
constexpr int THREADS = 128;
constexpr i64 TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ u32 warp_sum(u32 x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    read_sum(u32* __restrict__ partial, const u32* __restrict__ b, long long n) {
    u32 sum = 0;
    for (i64 first = (i64)blockIdx.x * TILE; first < n; first += (i64)gridDim.x * TILE) {
        if (first + TILE <= n) {
            const i64 mine = first + 4 * threadIdx.x;
            uint4 x[VECTORS];
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) x[j] = load_plain(b + mine + j * 4 * THREADS);
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) sum += x[j].x + x[j].y + x[j].z + x[j].w;
        } else {
            for (i64 i = first + threadIdx.x; i < n; i += THREADS) sum += b[i];
        }
    }
    __shared__ u32 sums[THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0);
        if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    }
}
