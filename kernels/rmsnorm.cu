/* greenbench
family  = "memory"
summary = "RMSNorm of bfloat16 rows with weights, every row read once and kept in registers."
entry   = "rmsnorm"
args    = ["y", "x", "w", "eps", "rows", "cols"]
verify  = "rmsnorm"
sources = ["definition: torch.nn.functional.rms_norm"]
min_cc  = [8, 0]
dtype   = "bfloat16"
yardstick = "torch"
buffers = [
    { name = "y", dtype = "bfloat16", count = "rows * cols", fill = "poison" },
    { name = "x", dtype = "bfloat16", count = "rows * cols", fill = "normal" },
    { name = "w", dtype = "bfloat16", count = "cols", fill = "normal" },
]

[params]
rows = 16384
cols = 8192
eps = 0.000001

[defines]
VECTORS = 8
MAX_THREADS = 512

[launch]
block = "32 * ceil_div(cols, 256 * VECTORS)"
grid  = "min(rows, 2147483647)"

[work]
bytes = "2 * 2 * rows * cols"
flops = "4 * rows * cols"
*/

// Limited by memory bandwidth: a row is read once and stays in registers between its sum of squares and its scaling; CTAs
// beside each other on an SM load while one adds up. Weights come out of L1 and are not counted as bytes. A row may have up to
// 8 * VECTORS * MAX_THREADS columns; one whose rows are not made of 16-byte pieces is read element by element.
__device__ __forceinline__ float squares(u32 pair, float sum) {
    return fmaf(bf16_high(pair), bf16_high(pair), fmaf(bf16_low(pair), bf16_low(pair), sum));
}

__device__ __forceinline__ u32 scaled(u32 pair, u32 weights, float factor) {
    return pack_bf16(bf16_low(pair) * factor * bf16_low(weights), bf16_high(pair) * factor * bf16_high(weights));
}

// The sum over the CTA, in every thread. `sums` alternates between calls, so that one barrier is enough.
__device__ __forceinline__ float cta_sum(float x, float* sums) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0.f;
    for (int warp = 0; warp < blockDim.x / 32; ++warp) x += sums[warp];
    return x;
}

struct Row {
    uint4 x[VECTORS];

    __device__ __forceinline__ void load(const u16* from, int pieces) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            const int at = threadIdx.x + j * blockDim.x;
            x[j] = at < pieces ? load_streaming(from + 8 * at) : make_uint4(0, 0, 0, 0);
        }
    }
};

__device__ __forceinline__ void by_pieces(u16* y, const u16* x, const u16* w, float eps, i64 rows, int cols,
                                          float (*sums)[32]) {
    const int pieces = cols / 8;
    int turn = 0;
    Row row;
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        row.load(x + r * cols, pieces);
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < VECTORS; ++j)
            sum = squares(row.x[j].x, squares(row.x[j].y, squares(row.x[j].z, squares(row.x[j].w, sum))));
        const float factor = rsqrtf(cta_sum(sum, sums[turn]) / cols + eps);
        turn ^= 1;
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            const int at = threadIdx.x + j * blockDim.x;
            if (at >= pieces) break;
            const uint4 weights = load_plain(w + 8 * at), v = row.x[j];
            store_plain(y + r * cols + 8 * at,
                        make_uint4(scaled(v.x, weights.x, factor), scaled(v.y, weights.y, factor),
                                   scaled(v.z, weights.z, factor), scaled(v.w, weights.w, factor)));
        }
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
    rmsnorm(u16* __restrict__ y, const u16* __restrict__ x, const u16* __restrict__ w, float eps, long long rows,
            long long cols) {
    __shared__ float sums[2][32];
    if (cols % 8 == 0) return by_pieces(y, x, w, eps, rows, (int)cols, sums);
    int turn = 0;
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x, turn ^= 1) {
        float sum = 0.f;
        for (int i = threadIdx.x; i < cols; i += blockDim.x) sum = squares(x[r * cols + i], sum);
        const float factor = rsqrtf(cta_sum(sum, sums[turn]) / cols + eps);
        for (int i = threadIdx.x; i < cols; i += blockDim.x)
            y[r * cols + i] = (u16)scaled(x[r * cols + i], w[i], factor);
    }
}
