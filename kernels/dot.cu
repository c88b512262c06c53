/* greenbench
family  = "memory"
summary = "Dot product of two float32 arrays, 16-byte loads, one partial sum per CTA."
entry   = "dot"
args    = ["partial", "b", "c", "n"]
verify  = "dot"
sources = ["UoB-HPC/BabelStream, dot"]
min_cc  = [8, 0]
dtype   = "float32"
yardstick = "torch"
buffers = [
    { name = "partial", dtype = "float32", count = "tiles", fill = "poison" },
    { name = "b",       dtype = "float32", count = "n", fill = "index" },
    { name = "c",       dtype = "float32", count = "n", fill = "integer" },
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
defines = { VECTORS = 4 }
cost = "max(0, 48 - sms)"
[[variant]]
defines = { VECTORS = 8 }
cost = "max(0, sms - 48)"

[work]
bytes = "2 * 4 * n"
flops = "2 * n"
*/

// Limited by memory bandwidth, on few SMs by the bytes that an SM keeps in flight. Deterministic: who adds what, and in which
// order, follows from n alone. Partial sums are written, not added up atomically, so that a launch needs nothing zeroed before
// it; they are not counted as bytes. With b in eighths up to 64 and c in whole numbers up to 2, a partial sum of 16384
// products is exact in float32, so that one element read twice or not at all shows.
constexpr int THREADS = 128;
constexpr i64 TILE = THREADS * VECTORS * 4;
static_assert(TILE <= 16384, "partial sums must stay exact");

__device__ __forceinline__ float multiply_add(const uint4& b, const uint4& c, float sum) {
    sum = fmaf(bits_float(b.x), bits_float(c.x), sum);
    sum = fmaf(bits_float(b.y), bits_float(c.y), sum);
    sum = fmaf(bits_float(b.z), bits_float(c.z), sum);
    return fmaf(bits_float(b.w), bits_float(c.w), sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    dot(float* __restrict__ partial, const float* __restrict__ b, const float* __restrict__ c, long long n) {
    float sum = 0.f;
    const i64 first = (i64)blockIdx.x * TILE;
    if (first + TILE <= n) {
        const i64 mine = first + 4 * threadIdx.x;
        uint4 x[VECTORS], y[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            x[j] = load_plain(b + mine + j * 4 * THREADS);
            y[j] = load_plain(c + mine + j * 4 * THREADS);
        }
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) sum = multiply_add(x[j], y[j], sum);
    } else {
        for (i64 i = first + threadIdx.x; i < n; i += THREADS) sum = fmaf(b[i], c[i], sum);
    }
    __shared__ float sums[THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.f);
        if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    }
}
