/* greenbench
family  = "memory"
summary = "Attention of one new token over a paged bfloat16 KV cache, heads of dimension 128 (wgmma, TMA)."
entry   = "decode_attention"
args    = ["out", "q", "keys", "values", "pages", "partial", "arrived", "batch", "heads", "kv_heads", "context", "page"]
verify  = "decode_attention"
sources = ["definition: torch.nn.functional.scaled_dot_product_attention", "paged keys and values: arXiv 2309.06180"]
arch    = "sm_90a"
dtype   = "bfloat16"
yardstick = "torch"
require = ["heads % kv_heads"]
buffers = [
    { name = "out",     dtype = "bfloat16", count = "batch * heads * 128", fill = "poison" },
    { name = "q",       dtype = "bfloat16", count = "batch * heads * 128", fill = "normal" },
    { name = "keys",    dtype = "bfloat16", shape = ["batch * row_pages * kv_heads * page", "128"], fill = "normal", tensor_map = { box = [64, "BOX"], swizzle = 128, l2_promotion = 128 } },
    { name = "values",  dtype = "bfloat16", shape = ["batch * row_pages * kv_heads * page", "128"], fill = "normal", tensor_map = { box = [64, "BOX"], swizzle = 128, l2_promotion = 128 } },
    { name = "pages",   dtype = "int32",    count = "batch * row_pages", fill = "permutation" },
    { name = "partial", dtype = "float32",  count = "slots * 2 * 1040", fill = "poison", access = "scratch" },
    { name = "arrived", dtype = "uint32",   count = "units", fill = "zero", access = "scratch" },
]

[params]
batch = 16
heads = 32
kv_heads = 8
context = 8192
page = 64

[defines]
STAGES = 3
PER_SM = 2

[let]
row_pages = "ceil_div(context, page)"
units = "batch * kv_heads * ceil_div(heads // kv_heads, 8)"
slots = "sms * PER_SM"
# Whole units where they fill SMs that HBM cannot feed anyway: merging takes 2 to 4 us (measured on an H200).
whole = "min(1, sms // 96) * min(1, 10 * units // (9 * ceil_div(units, sms) * sms))"

[launch]
block = 160
grid  = "whole * ceil_div(units, ceil_div(units, slots)) + (1 - whole) * min(slots, units * ceil_div(context, 64))"
smem  = "STAGES * 32768 + 4224 + STAGES * 16 + 16"

# BOX: tokens that one copy brings, which must not cross a page. Each copy takes an engine 30 cycles and 2 for a token (measured on
# an H200), so that short pages are slow.
[[variant]]
defines = { BOX = 64 }
cost = "page % 64 * 1000"
[[variant]]
defines = { BOX = 16 }
cost = "page % 16 * 1000 + 1"
[[variant]]
defines = { BOX = 4 }
cost = "page % 4 * 1000 + 2"
[[variant]]
defines = { BOX = 1 }
cost = "3"

[work]
bytes = "2 * 2 * batch * kv_heads * context * 128"
flops = "4 * batch * heads * context * 128"
*/

// Limited by memory bandwidth: every key and value is read once, for up to eight heads that share it. On few SMs the link of an
// SM to the L2 is the limit; the ring holds as many bytes in flight as shared memory has room for.
//
// q and out are [batch][heads][128], keys and values [page][kv_heads][token of the page][128], and pages[batch][i] is the page
// of tokens i * page and on. The heads of a KV head are beside each other, heads / kv_heads of them. A unit is one sequence and
// up to eight heads of a KV head; a step of it, 64 tokens. All steps of all units are dealt out evenly over the CTAs.
//
// Scores are computed as K * q^T, results as V^T * p^T, so that heads are the 8 columns of a tensor core instruction. Exponents
// are taken from a reference that is raised only where a score is more than 2^60 above it: a softmax has the same value for any
// reference, and float32 and bfloat16 the same precision at any size.
#include "decode.cuh"

constexpr int TOKENS = 64, SIZE = 128, HALF = TOKENS * 128;  // HALF: 64 dimensions of a step's keys or values, bytes
constexpr int STAGE_BYTES = 4 * HALF;                        // keys, then values
constexpr int COPIES = 4 * TOKENS / BOX;                     // boxes of a stage
constexpr int SHARE = COLUMNS * SIZE + 2 * COLUMNS;          // floats that a CTA leaves: results, references, sums
constexpr int P = STAGES * STAGE_BYTES, Q = P + 2048, STATS = Q + 2048, BARRIERS = STATS + 128;
constexpr int WORD = BARRIERS + 16 * STAGES;
constexpr int GROUP_BARRIER = 1;
constexpr float LOWEST = -3.0e38f, ROOM = 60.f;
constexpr float SCALE_LOG2 = 0.08838834764831845f * 1.4426950408889634f;  // 1 / sqrt(SIZE), log2(e)

static_assert(TOKENS % BOX == 0, "whole boxes in a stage");
static_assert(PER_SM * (WORD + 1040) <= 233472, "shared memory of an SM");

// What a unit is: which rows of q and out, which pages.
struct Unit {
    i64 first_row;
    int sequence, kv_head, count;

    __device__ __forceinline__ Unit(int unit, int heads, int kv_heads) {
        const int shared_by = heads / kv_heads, chunks = (shared_by + COLUMNS - 1) / COLUMNS;
        kv_head = unit / chunks % kv_heads, sequence = unit / chunks / kv_heads;
        const int head = unit % chunks * COLUMNS;
        count = min(COLUMNS, shared_by - head);
        first_row = (i64)sequence * heads + (i64)kv_head * shared_by + head;
    }
};

// Where the tokens of one unit lie, as rows of the matrices of keys and values.
struct Places {
    const int* pages;
    int page, kv_heads, kv_head, last;

    // Of the box with this token, or beyond the end of the last box, whose tokens are masked.
    __device__ __forceinline__ int operator()(int token) const {
        const u32 inside = min(token, last), which = inside / (u32)page;
        return (pages[which] * kv_heads + kv_head) * page + (int)(inside - which * page) / BOX * BOX;
    }
};

// By one warp, whose lanes send for boxes side by side.
__device__ __forceinline__ void produce(const CUtensorMap* keys, const CUtensorMap* values, const int* pages,
                                        const Shares& shares, int heads, int kv_heads, int context, int page,
                                        u32 base) {
    constexpr int EACH = (COPIES + 31) / 32;
    const int lane = threadIdx.x % 32, row_pages = (context + page - 1) / page;
    Stages<STAGES> ring(base + BARRIERS);
    const int end = shares.begin(blockIdx.x + 1);
    for (int at = shares.begin(blockIdx.x); at < end;) {
        const Segment part(shares, at, end);
        const Unit unit(part.tile, heads, kv_heads);
        const Places places = {pages + unit.sequence * row_pages, page, kv_heads, unit.kv_head, context - 1};
        for (int step = part.first; step < part.last; ++step, ring.advance()) {
            int rows[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) rows[i] = places(step * TOKENS + (lane + i * 32) / 4 * BOX);
            ring.wait_empty();
            if (lane == 0) barrier_expect(ring.full(), STAGE_BYTES);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < EACH; ++i) {
                const int copy = lane + i * 32, quarter = copy % 4;  // halves of keys, halves of values
                if (copy < COPIES)
                    load_box(base + ring.stage * STAGE_BYTES + quarter * HALF + copy / 4 * BOX * 128,
                             quarter < 2 ? keys : values, quarter % 2 * 64, rows[i], ring.full());
            }
        }
        at += part.last - part.first;
    }
}

// True for all threads if it is for one.
__device__ __forceinline__ bool any_of_group(bool mine) {
    u32 any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.or.pred q, %2, 128, p;\nselp.u32 %0, 1, 0, q;\n}"
        : "=r"(any)
        : "r"((u32)mine), "n"(GROUP_BARRIER)
        : "memory");
    return any;
}

// Rows of V beyond the context may hold anything, even NaN, and 0 * NaN is NaN.
__device__ __forceinline__ void clear_values(unsigned char* stage, int from) {
    for (int i = threadIdx.x; i < (TOKENS - from) * 16; i += 128) {
        const int row = from + i / 16, half = i / 8 % 2;
        *(uint4*)(stage + (2 + half) * HALF + row * 128 + i % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
}

// One unit as far as this CTA has seen it. A lane is 4g + t: tokens or dimensions g and g + 8 of its warp's 16, heads 2t, 2t + 1.
struct State {
    float reference[2] = {LOWEST, LOWEST}, sum[2] = {}, result[2][4] = {};

    __device__ __forceinline__ void raise(const float (&score)[4], float* stats) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            float top = fmaxf(score[e], score[e + 2]);
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
            if (lane < 4) stats[warp * COLUMNS + 2 * lane + e] = top;
        }
        named_sync(GROUP_BARRIER, 128);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            float top = reference[e];
#pragma unroll
            for (int w = 0; w < 4; ++w) top = fmaxf(top, stats[w * COLUMNS + lane % 4 * 2 + e]);
            const float factor = power_of_two(reference[e] - top);
            reference[e] = top, sum[e] *= factor;
#pragma unroll
            for (int half = 0; half < 2; ++half) result[half][e] *= factor, result[half][e + 2] *= factor;
        }
        named_sync(GROUP_BARRIER, 128);
    }

    // Sums over all tokens, for each of this lane's heads.
    __device__ __forceinline__ void add_up(float* stats) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], distance);
            if (lane < 4) stats[warp * COLUMNS + 2 * lane + e] = sum[e];
        }
        named_sync(GROUP_BARRIER, 128);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const float* all = stats + lane % 4 * 2 + e;
            sum[e] = all[0] + all[COLUMNS] + all[2 * COLUMNS] + all[3 * COLUMNS];
        }
        named_sync(GROUP_BARRIER, 128);
    }
};

// Probabilities of 16 tokens of this warp as rows of heads, bfloat16, for the tensor cores; and what they add to the sums.
__device__ __forceinline__ void write_probabilities(const float (&score)[4], const float (&reference)[2], u32 to,
                                                    float (&added)[2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float p[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) p[e] = power_of_two(score[e] - reference[e % 2]);
    added[0] = p[0] + p[2], added[1] = p[1] + p[3];
    const u32 row = lane % 8, chunk = 2 * warp + lane / 8 % 2;
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to + row * 128 + (chunk ^ row) * 16),
        "r"(pack_bf16(p[0], p[1])), "r"(pack_bf16(p[2], p[3]))
        : "memory");
}

__device__ __forceinline__ void load_queries(const u16* q, const Unit& unit, unsigned char* to) {
    const int head = threadIdx.x / 16, half = threadIdx.x / 8 % 2, chunk = threadIdx.x % 8;
    const uint4 v = load_plain(q + (unit.first_row + min(head, unit.count - 1)) * SIZE + half * 64 + chunk * 8);
    *(uint4*)(to + half * 1024 + head * 128 + (chunk ^ head) * 16) = v;
    shared_fence();
    named_sync(GROUP_BARRIER, 128);
}

// Goes over the steps of a segment.
__device__ __forceinline__ void attend(State& state, Stages<STAGES>& ring, const Segment& part, int context,
                                       unsigned char* memory, u32 base) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int step = part.first; step < part.last; ++step, ring.advance()) {
        const u32 stage = base + ring.stage * STAGE_BYTES, to = base + P + step % 2 * 1024;
        float score[4];
        ring.wait_full();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            multiply<0>(score, operand(stage + i / 4 * HALF + i % 4 * 32),
                        operand(base + Q + i / 4 * 1024 + i % 4 * 32), i > 0);
        wgmma_commit();
        wgmma_wait<0>();

        const int there = context - step * TOKENS;
        bool above = false;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            score[e] = warp * 16 + lane / 4 + e / 2 * 8 < there ? score[e] * SCALE_LOG2 : LOWEST;
            above |= score[e] > state.reference[e % 2] + ROOM;
        }
        float added[2];
        write_probabilities(score, state.reference, to, added);
        if (there < TOKENS) clear_values(memory + ring.stage * STAGE_BYTES, there);
        shared_fence();
        if (any_of_group(above)) {
            state.raise(score, (float*)(memory + STATS));
            write_probabilities(score, state.reference, to, added);
            shared_fence();
            named_sync(GROUP_BARRIER, 128);
        }
        state.sum[0] += added[0], state.sum[1] += added[1];
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            multiply<1>(state.result[i % 2], operand(stage + (2 + i % 2) * HALF + i / 2 * 2048),
                        operand(to + i / 2 * 32), 1);
        wgmma_commit();
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(ring.empty());
    }
}

// Merges what CTAs left of a unit: 32 threads a head, four dimensions each.
__device__ __forceinline__ void merge(u16* out, const float* partial, const Unit& unit, const Parts& parts) {
    for (int i = threadIdx.x; i < unit.count * (SIZE / 4); i += 128) {
        const int head = i / (SIZE / 4);
        float top = LOWEST, sum = 0.f;
#pragma unroll 4
        for (int s = 0; s < parts.count; ++s)
            top = fmaxf(top, __ldcg(partial + (i64)parts.slot(s) * SHARE + COLUMNS * SIZE + head));
        float4 total = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int s = 0; s < parts.count; ++s) {
            const float* share = partial + (i64)parts.slot(s) * SHARE;
            const float by = power_of_two(__ldcg(share + COLUMNS * SIZE + head) - top);
            const float4 v = __ldcg((const float4*)share + i);
            total.x += v.x * by, total.y += v.y * by, total.z += v.z * by, total.w += v.w * by;
            sum += __ldcg(share + COLUMNS * SIZE + COLUMNS + head) * by;
        }
        const float by = 1.f / sum;
        *(uint2*)(out + unit.first_row * SIZE + 4 * i) =
            make_uint2(pack_bf16(total.x * by, total.y * by), pack_bf16(total.z * by, total.w * by));
    }
}

// Writes a unit that this CTA has seen whole, or leaves its part of one.
__device__ __forceinline__ void put(const State& state, const Segment& part, const Unit& unit, u16* out, float* left) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int head = lane % 4 * 2 + e % 2, dimension = warp * 16 + lane / 4 + e / 2 * 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float value = state.result[half][e];
            if (!part.whole)
                left[head * SIZE + half * 64 + dimension] = value;
            else if (head < unit.count)
                out[(unit.first_row + head) * SIZE + half * 64 + dimension] =
                    (u16)pack_bf16(value / state.sum[e % 2], 0.f);
        }
        if (!part.whole && warp == 0 && lane < 4 && e < 2) {
            left[COLUMNS * SIZE + head] = state.reference[e];
            left[COLUMNS * SIZE + COLUMNS + head] = state.sum[e];
        }
    }
}

__device__ __forceinline__ void consume(u16* out, const u16* q, float* partial, u32* arrived, const Shares& shares,
                                        int heads, int kv_heads, int context, unsigned char* memory, u32 base) {
    Stages<STAGES> ring(base + BARRIERS);
    const int end = shares.begin(blockIdx.x + 1);
    for (int at = shares.begin(blockIdx.x); at < end;) {
        const Segment part(shares, at, end);
        const Unit unit(part.tile, heads, kv_heads);
        load_queries(q, unit, memory + Q);
        State state;
        attend(state, ring, part, context, memory, base);
        state.add_up((float*)(memory + STATS));
        at += part.last - part.first;
        put(state, part, unit, out, partial + (i64)part.slot() * SHARE);
        const Parts parts(shares, part.tile);
        if (!part.whole && arrives_last(arrived + part.tile, parts.count, (u32*)(memory + WORD), GROUP_BARRIER))
            merge(out, partial, unit, parts);
    }
}

extern "C" __global__ void __launch_bounds__(160, PER_SM)
    decode_attention(u16* __restrict__ out, const u16* __restrict__ q, const __grid_constant__ CUtensorMap keys,
                     const __grid_constant__ CUtensorMap values, const int* __restrict__ pages,
                     float* __restrict__ partial, u32* __restrict__ arrived, long long batch, long long heads,
                     long long kv_heads, long long context, long long page) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 base = shared_address(memory);
    const int shared_by = (int)(heads / kv_heads);
    const Shares shares((int)(batch * kv_heads) * ((shared_by + COLUMNS - 1) / COLUMNS),
                        (int)((context + TOKENS - 1) / TOKENS));
    if (threadIdx.x == 128) {
        prefetch_map(&keys);
        prefetch_map(&values);
        Stages<STAGES>(base + BARRIERS).init(1, 4);
    }
    __syncthreads();
    if (threadIdx.x < 128)
        consume(out, q, partial, arrived, shares, (int)heads, (int)kv_heads, (int)context, memory, base);
    else
        produce(&keys, &values, pages, shares, (int)heads, (int)kv_heads, (int)context, (int)page, base);
}
