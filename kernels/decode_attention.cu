/* greenbench
family  = "memory"
summary = "Attention of one new token over a paged bfloat16 KV cache, grouped heads of dimension 128."
entry   = "decode_attention"
args    = ["out", "q", "keys", "values", "pages", "partial", "arrived", "batch", "heads", "kv_heads", "context", "page"]
verify  = "decode_attention"
sources = ["definition: torch.nn.functional.scaled_dot_product_attention", "paged keys and values: arXiv 2309.06180"]
min_cc  = [8, 0]
dtype   = "bfloat16"
yardstick = "torch"
require = ["heads % kv_heads"]
buffers = [
    { name = "out",     dtype = "bfloat16", count = "batch * heads * 128", fill = "poison" },
    { name = "q",       dtype = "bfloat16", count = "batch * heads * 128", fill = "normal" },
    { name = "keys",    dtype = "bfloat16", count = "batch * row_pages * kv_heads * page * 128", fill = "normal" },
    { name = "values",  dtype = "bfloat16", count = "batch * row_pages * kv_heads * page * 128", fill = "normal" },
    { name = "pages",   dtype = "int32",    count = "batch * row_pages", fill = "permutation" },
    { name = "partial", dtype = "float32",  count = "units * split * 1040", fill = "poison", access = "scratch" },
    { name = "arrived", dtype = "uint32",   count = "units", fill = "zero", access = "scratch" },
]

[params]
batch = 16
heads = 32
kv_heads = 8
context = 8192
page = 64

[defines]
WARPS = 4
STAGES = 3
PER_SM = 2
TASKS = 4

[let]
row_pages = "ceil_div(context, page)"
units = "batch * kv_heads * ceil_div(heads // kv_heads, 8)"
split = "max(1, min(256, ceil_div(context, 64 * WARPS), sms * PER_SM * TASKS // units))"

[launch]
block = "32 * WARPS"
grid  = "units * split"
smem  = "WARPS * STAGES * 8192"

[work]
bytes = "2 * 2 * batch * kv_heads * context * 128"
flops = "4 * batch * heads * context * 128"
*/

// Limited by memory bandwidth: every key and value is read once, for up to eight heads that share it. For those the FMA units
// would be the limit on few SMs, so the tensor cores multiply, and 16 tokens of keys and values wait in shared memory, several
// times per warp: that many bytes are in flight. A thread copies exactly the pieces that it will read itself, so a ring needs
// no barrier.
//
// q and out are [batch][heads][128], keys and values [page][kv_heads][token of the page][128], and pages[batch][i] is the page
// of tokens i * page and on. The heads of a KV head are beside each other, heads / kv_heads of them. The context is split over
// `split` CTAs, and tokens take turns over the warps of a CTA. The CTA of a head that comes last merges what the others left,
// in their order, so that every run gives the same bits. It leaves `arrived` as it was: zero.
//
// Scores are computed as K * q^T, results as V^T * p^T, so that heads are the 8 columns of a tensor core instruction. A lane
// is 4g + t. What a sum runs over, and the rows of V^T, come in whatever order makes 16-byte pieces: t has eight elements of
// tokens g and g + 8 of K, and g has eight of tokens 2t, 2t + 1, 2t + 8 and 2t + 9 of V.
constexpr int THREADS = 32 * WARPS, TOKENS = 16, SIZE = 128, HEADS = 8;
constexpr int STAGE = 2 * TOKENS * SIZE * 2;     // bytes: keys, then values
constexpr int SHARE = HEADS * SIZE + 2 * HEADS;  // floats that a CTA leaves: results, maxima, sums
constexpr float LOWEST = -3.0e38f;
constexpr float LOG2_E = 1.4426950408889634f;

// Where the tokens of one sequence and one KV head lie, in elements.
struct Places {
    const int* pages;
    u32 page, kv_heads, kv_head;

    __device__ __forceinline__ i64 operator()(u32 token) const {
        const u32 which = token / page;
        return (((i64)pages[which] * kv_heads + kv_head) * page + (token - which * page)) * SIZE;
    }
};

// Sends for the tokens from `first` on; zeros come for those that do not exist. One look-up serves all where they share a page.
__device__ __forceinline__ void request(u32 to, const u16* keys, const u16* values, const Places& places, int first,
                                        int context) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bool together = places.page % TOKENS == 0;
    const i64 base = places(first);
    auto place = [&](int token) { return together ? base + (token - first) * SIZE : places(min(token, context - 1)); };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int token = first + g + 8 * half;
        const u16* from = keys + place(token) + 8 * t;
#pragma unroll
        for (int c = 0; c < 4; ++c) copy_async(to + (half * 4 + c) * 512, from + 32 * c, token < context);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int token = first + 2 * t + i % 2 + i / 2 * 8;
        const u16* from = values + place(token) + 8 * g;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            copy_async(to + (8 + i * 2 + half) * 512, from + 64 * half, token < context);
    }
}

__device__ __forceinline__ u32 transposed(u32 matrix) {
    u32 result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
    return result;
}

// Element `which` (0 to 7) of two pieces, side by side.
__device__ __forceinline__ u32 pair_of(const uint4& first, const uint4& second, int which) {
    const u32 a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
    return __byte_perm(a[which / 2], b[which / 2], which % 2 ? 0x7632 : 0x5410);
}

// What a warp has seen so far. Heads 2t and 2t + 1; result [j][e]: head 2t + e % 2, dimension 8g + j + e / 2 * 64.
struct State {
    float top[2], sum[2], result[8][4];

    __device__ __forceinline__ void scale(const float (&factor)[2]) {
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) result[j][e] *= factor[e % 2];
    }

    __device__ __forceinline__ void add(const unsigned char* stage, const uint4 (&q)[4], int first, int context) {
        const int lane = threadIdx.x % 32;
        const uint4* pieces = (const uint4*)stage + lane;
        float score[4] = {};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const uint4 low = pieces[c * 32], high = pieces[(4 + c) * 32];
            const u32 a[4] = {low.x, high.x, low.y, high.y}, b[4] = {low.z, high.z, low.w, high.w};
            mma_bf16(score, a, q[c].x, q[c].y);
            mma_bf16(score, b, q[c].z, q[c].w);
        }
        const float scale_log2 = 0.08838834764831845f * LOG2_E;
#pragma unroll
        for (int e = 0; e < 4; ++e) score[e] = first + lane / 4 + e / 2 * 8 < context ? score[e] * scale_log2 : LOWEST;
        float factor[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            float best = fmaxf(score[e], score[e + 2]);
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, distance));
            best = fmaxf(best, top[e]);
            factor[e] = power_of_two(top[e] - best);
            top[e] = best;
            score[e] = power_of_two(score[e] - best), score[e + 2] = power_of_two(score[e + 2] - best);
            sum[e] = sum[e] * factor[e] + score[e] + score[e + 2];
        }
        scale(factor);
        const u32 p0 = transposed(pack_bf16(score[0], score[1])), p1 = transposed(pack_bf16(score[2], score[3]));
        uint4 v[4][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i][0] = pieces[(8 + 2 * i) * 32], v[i][1] = pieces[(9 + 2 * i) * 32];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const u32 a[4] = {pair_of(v[0][0], v[1][0], j), pair_of(v[0][1], v[1][1], j), pair_of(v[2][0], v[3][0], j),
                              pair_of(v[2][1], v[3][1], j)};
            mma_bf16(result[j], a, p0, p1);
        }
    }

    // Goes over every WARPS-th group of 16 tokens from `from` to `stop`.
    __device__ __forceinline__ void run(unsigned char* ring, const uint4 (&q)[4], const u16* keys, const u16* values,
                                        const Places& places, int from, int stop, int context) {
        const u32 to = shared_address(ring) + threadIdx.x % 32 * 16;
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; ++s) {
            const int group = from + s * WARPS;
            if (group < stop) request(to + s * STAGE, keys, values, places, group * TOKENS, context);
            copy_commit();
        }
        int slot = 0, free = STAGES - 1;
#pragma unroll 1
        for (int group = from; group < stop; group += WARPS) {
            const int ahead = group + (STAGES - 1) * WARPS;
            if (ahead < stop) request(to + free * STAGE, keys, values, places, ahead * TOKENS, context);
            copy_commit();
            copy_wait<STAGES - 1>();
            add(ring + slot * STAGE, q, group * TOKENS, context);
            free = slot;
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        copy_wait<0>();
    }
};

// This CTA's maximum and sum of one head, from those of its warps: [warp][maximum, sum][head].
__device__ __forceinline__ float top_of(const float* stats, int head, int count, int apart) {
    float top = LOWEST;
    for (int i = 0; i < count; ++i) top = fmaxf(top, stats[i * apart + head]);
    return top;
}

extern __shared__ __align__(128) unsigned char ring[];

extern "C" __global__ void __launch_bounds__(THREADS, PER_SM)
    decode_attention(u16* __restrict__ out, const u16* __restrict__ q, const u16* __restrict__ keys,
                     const u16* __restrict__ values, const int* __restrict__ pages, float* __restrict__ partial,
                     u32* __restrict__ arrived, long long batch, long long heads, long long kv_heads, long long context,
                     long long page) {
    __shared__ float stats[WARPS][2][HEADS];
    __shared__ bool last;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int shared_by = (int)(heads / kv_heads), chunks = (shared_by + HEADS - 1) / HEADS;
    const int units = (int)(batch * kv_heads) * chunks, splits = gridDim.x / units;
    const int unit = blockIdx.x / splits, split = blockIdx.x % splits;
    const int kv_head = unit / chunks % (int)kv_heads, sequence = unit / chunks / (int)kv_heads;
    const int head0 = unit % chunks * HEADS, count = min(HEADS, shared_by - head0);
    const i64 first_row = sequence * heads + (i64)kv_head * shared_by + head0;

    // Heads that do not exist are read from the last one: they reach only results that are not written.
    uint4 mine[4];
#pragma unroll
    for (int c = 0; c < 4; ++c)
        mine[c] = load_plain(q + (first_row + min(lane / 4, count - 1)) * SIZE + 32 * c + lane % 4 * 8);
    State state = {{LOWEST, LOWEST}, {}, {}};
    const i64 row_pages = (context + page - 1) / page, groups = (context + TOKENS - 1) / TOKENS;
    const Places places = {pages + sequence * row_pages, (u32)page, (u32)kv_heads, (u32)kv_head};
    const int from = (int)(groups * split / splits) + warp, stop = (int)(groups * (split + 1) / splits);
    unsigned char* own = ring + warp * (STAGES * STAGE);
    state.run(own, mine, keys, values, places, from, stop, (int)context);

    // Merge the warps, in their order.
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        float sum = state.sum[e];
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (lane < 4) stats[warp][0][2 * lane + e] = state.top[e], stats[warp][1][2 * lane + e] = sum;
    }
    __syncthreads();
    float factor[2];
#pragma unroll
    for (int e = 0; e < 2; ++e)
        factor[e] = power_of_two(state.top[e] - top_of(&stats[0][0][0], lane % 4 * 2 + e, WARPS, 2 * HEADS));
    state.scale(factor);
    float* results = (float*)ring;  // [warp][head][dimension]
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < 8; j += 4)
            *(float4*)&results[(warp * HEADS + lane % 4 * 2 + e % 2) * SIZE + lane / 4 * 8 + e / 2 * 64 + j] =
                make_float4(state.result[j][e], state.result[j + 1][e], state.result[j + 2][e], state.result[j + 3][e]);
    __syncthreads();

    float* left = partial + ((i64)unit * splits + split) * SHARE;
    for (int i = threadIdx.x; i < count * SIZE / 4; i += THREADS) {
        const int head = i / (SIZE / 4);
        float4 total = make_float4(0.f, 0.f, 0.f, 0.f);
        float sum = 0.f;
        const float top = top_of(&stats[0][0][0], head, WARPS, 2 * HEADS);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float4 v = ((const float4*)results)[w * (HEADS * SIZE / 4) + i];
            total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
            sum += stats[w][1][head] * power_of_two(stats[w][0][head] - top);
        }
        if (splits == 1) {
            const float by = 1.f / sum;
            *(uint2*)(out + first_row * SIZE + 4 * i) =
                make_uint2(pack_bf16(total.x * by, total.y * by), pack_bf16(total.z * by, total.w * by));
        } else {
            ((float4*)left)[i] = total;
            if (i % (SIZE / 4) == 0) left[HEADS * SIZE + head] = top, left[HEADS * SIZE + HEADS + head] = sum;
        }
    }
    if (splits == 1) return;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(arrived + unit, 1u) == splits - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    const float* all = partial + (i64)unit * splits * SHARE;
    for (int i = threadIdx.x; i < count * SIZE / 4; i += THREADS) {
        const int head = i / (SIZE / 4);
        float top = LOWEST, sum = 0.f;
#pragma unroll 8
        for (int s = 0; s < splits; ++s) top = fmaxf(top, __ldcg(all + s * SHARE + HEADS * SIZE + head));
        float4 total = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int s = 0; s < splits; ++s) {
            const float* share = all + s * SHARE;
            const float by = power_of_two(__ldcg(share + HEADS * SIZE + head) - top);
            const float4 v = __ldcg((const float4*)share + i);
            total.x += v.x * by, total.y += v.y * by, total.z += v.z * by, total.w += v.w * by;
            sum += __ldcg(share + HEADS * SIZE + HEADS + head) * by;
        }
        const float by = 1.f / sum;
        *(uint2*)(out + first_row * SIZE + 4 * i) =
            make_uint2(pack_bf16(total.x * by, total.y * by), pack_bf16(total.z * by, total.w * by));
    }
    if (threadIdx.x == 0) arrived[unit] = 0;
}
