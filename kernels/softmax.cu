/* greenbench
family  = "memory"
summary = "Softmax of bfloat16 rows, every row read once and kept in registers."
entry   = "softmax"
args    = ["y", "x", "rows", "cols"]
verify  = "softmax"
sources = ["definition: torch.softmax"]
min_cc  = [8, 0]
dtype   = "bfloat16"
yardstick = "torch"
buffers = [
    { name = "y", dtype = "bfloat16", count = "rows * cols", fill = "poison" },
    { name = "x", dtype = "bfloat16", count = "rows * cols", fill = "normal" },
]

[params]
rows = 16384
cols = 8192

[defines]
VECTORS = 8
MAX_THREADS = 512

[launch]
block = "32 * ceil_div(cols, 256 * VECTORS)"
grid  = "min(rows, 2147483647)"

[work]
bytes = "2 * 2 * rows * cols"
flops = "5 * rows * cols"
*/

// Limited by memory bandwidth: a row is read once and stays in registers. On few SMs the exponential unit comes near (16 per
// clock and SM), so each element has one: a thread takes powers relative to its own maximum, and what its maximum lacks to
// that of the row goes into the factor that divides by the sum. So one barrier serves maximum and sum. A row may have up to
// 8 * VECTORS * MAX_THREADS columns; one that is not made of 16-byte pieces is read element by element.
constexpr float LOG2_E = 1.4426950408889634f;
// Finite, so that a row of -inf gives no NaN on its way.
constexpr float LOWEST = -3.0e38f;

// A maximum, and the sum of the powers relative to it.
struct Part {
    float top, sum;

    __device__ __forceinline__ void merge(const Part& other) {
        const float both = fmaxf(top, other.top);
        sum = sum * power_of_two(top - both) + other.sum * power_of_two(other.top - both);
        top = both;
    }
};

// The whole row's part, in every thread. `parts` alternates between calls, so that one barrier is enough.
__device__ __forceinline__ Part cta_part(Part mine, Part* parts) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        mine.merge(
            {__shfl_xor_sync(0xffffffffu, mine.top, distance), __shfl_xor_sync(0xffffffffu, mine.sum, distance)});
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    Part all = parts[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) all.merge(parts[warp]);
    return all;
}

__device__ __forceinline__ void unpack(float (&to)[8], const uint4& v) {
    const u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) to[2 * i] = bf16_low(pairs[i]) * LOG2_E, to[2 * i + 1] = bf16_high(pairs[i]) * LOG2_E;
}

__device__ __forceinline__ void by_pieces(u16* y, const u16* x, i64 rows, int cols, Part (*parts)[32]) {
    const int pieces = cols / 8;
    int turn = 0;
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x, turn ^= 1) {
        uint4 packed[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            const int at = threadIdx.x + j * blockDim.x;
            // Outside the row: -inf, whose power is 0.
            packed[j] = make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u);
            if (at < pieces) packed[j] = load_streaming(x + r * cols + 8 * at);
        }
        float v[VECTORS][8];
        Part mine = {LOWEST, 0.f};
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            unpack(v[j], packed[j]);
#pragma unroll
            for (int i = 0; i < 8; ++i) mine.top = fmaxf(mine.top, v[j][i]);
        }
#pragma unroll
        for (int j = 0; j < VECTORS; ++j)
#pragma unroll
            for (int i = 0; i < 8; ++i) v[j][i] = power_of_two(v[j][i] - mine.top), mine.sum += v[j][i];
        const Part all = cta_part(mine, parts[turn]);
        const float factor = power_of_two(mine.top - all.top) / all.sum;
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            const int at = threadIdx.x + j * blockDim.x;
            if (at >= pieces) break;
            store_plain(y + r * cols + 8 * at, make_uint4(pack_bf16(v[j][0] * factor, v[j][1] * factor),
                                                          pack_bf16(v[j][2] * factor, v[j][3] * factor),
                                                          pack_bf16(v[j][4] * factor, v[j][5] * factor),
                                                          pack_bf16(v[j][6] * factor, v[j][7] * factor)));
        }
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS)
    softmax(u16* __restrict__ y, const u16* __restrict__ x, long long rows, long long cols) {
    __shared__ Part parts[2][32];
    if (cols % 8 == 0) return by_pieces(y, x, rows, (int)cols, parts);
    int turn = 0;
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x, turn ^= 1) {
        Part mine = {LOWEST, 0.f};
        for (int i = threadIdx.x; i < cols; i += blockDim.x) mine.merge({bf16_low(x[r * cols + i]) * LOG2_E, 1.f});
        const Part all = cta_part(mine, parts[turn]);
        for (int i = threadIdx.x; i < cols; i += blockDim.x) {
            const float power = power_of_two(bf16_low(x[r * cols + i]) * LOG2_E - all.top);
            y[r * cols + i] = (u16)pack_bf16(power / all.sum, 0.f);
        }
    }
}
