/* greenbench
family  = "memory"
summary = "Linear layer of decoding, y = x*W^T in bfloat16 with few rows of x (wgmma, TMA)."
entry   = "gemv"
args    = ["y", "x", "w", "partial", "arrived", "m", "n", "k"]
verify  = "linear"
sources = ["definition: torch.nn.functional.linear", "PTX ISA: wgmma, its descriptors and the 128-byte swizzle"]
arch    = "sm_90a"
dtype   = "bfloat16"
yardstick = "torch"
require = ["k % 8"]
buffers = [
    { name = "y",       dtype = "bfloat16", count = "m * n", fill = "poison" },
    { name = "x",       dtype = "bfloat16", shape = ["m", "k"], fill = "normal", tensor_map = { box = [64, 8], swizzle = 128, l2_promotion = 128 } },
    { name = "w",       dtype = "bfloat16", shape = ["n", "k"], fill = "normal", tensor_map = { box = [64, 64], swizzle = 128, l2_promotion = 128 } },
    { name = "partial", dtype = "float32",  count = "sms * PER_SM * 2 * 512", fill = "poison", access = "scratch" },
    { name = "arrived", dtype = "uint32",   count = "tiles", fill = "zero", access = "scratch" },
]

[params]
m = 1
n = 8192
k = 8192

[defines]
PER_SM = 2

[let]
tiles = "ceil_div(n, 64) * ceil_div(m, 8)"

slots = "sms * PER_SM"
# Whole tiles where they fill SMs that HBM cannot feed anyway: merging takes 2 to 4 us (measured on an H200).
whole = "min(1, sms // 96) * min(1, 10 * tiles // (9 * ceil_div(tiles, sms) * sms))"

[launch]
block = 160
grid  = "whole * ceil_div(tiles, ceil_div(tiles, slots)) + (1 - whole) * min(slots, tiles * ceil_div(k, 64 * BOXES))"
smem  = "STAGES * BOXES * 9216 + STAGES * 16 + 16"

# cost: longer pieces of rows pay where HBM is the limit, more and shorter steps where the links are (measured on an H200).
[[variant]]
defines = { BOXES = 2, STAGES = 6 }
cost = "max(0, sms - 48)"
[[variant]]
defines = { BOXES = 4, STAGES = 3 }
cost = "max(0, 48 - sms)"

[work]
bytes = "2 * n * k"
flops = "2 * m * n * k"
*/

// Limited by memory bandwidth: W, row-major [n][k], is read once. On few SMs the link of an SM to the L2 is the limit; the ring
// holds as many bytes in flight as shared memory has room for.
//
// A tile is 64 rows of W by up to 8 of x; a step of it, BOXES lines of 128 bytes of each row. All steps of all tiles are dealt
// out evenly over the CTAs, whatever the SMs are: a tile is cut along k where a share ends. x comes along with W, from the L2.
#include "decode.cuh"

constexpr int ROWS = 64, STEP = 64 * BOXES;
constexpr int W_BOX = 64 * 128, X_BOX = 8 * 128;
constexpr int STAGE_BYTES = BOXES * (W_BOX + X_BOX);
constexpr int BARRIERS = STAGES * STAGE_BYTES, WORD = BARRIERS + 16 * STAGES;
constexpr int GROUP_BARRIER = 1;
constexpr int CHAINS = 4;  // sums side by side: a product waits for the one before it in its chain

static_assert(PER_SM * (WORD + 1024) <= 233472, "shared memory of an SM");

__device__ __forceinline__ void produce(const CUtensorMap* x, const CUtensorMap* w, const Shares& shares, int row_tiles,
                                        u32 base) {
    Stages<STAGES> ring(base + BARRIERS);
    const int end = shares.begin(blockIdx.x + 1);
    for (int at = shares.begin(blockIdx.x); at < end;) {
        const Segment part(shares, at, end);
        const int row = part.tile % row_tiles * ROWS, column = part.tile / row_tiles * COLUMNS;
        // CTAs begin at different columns: rows are a power of two apart, and so would be all that is wanted at once.
        int step = part.first + blockIdx.x * 5 % (part.last - part.first);
        for (int i = part.first; i < part.last; ++i, ring.advance()) {
            const u32 to = base + ring.stage * STAGE_BYTES, to_x = to + BOXES * W_BOX;
            ring.wait_empty();
            barrier_expect(ring.full(), STAGE_BYTES);
#pragma unroll
            for (int j = 0; j < BOXES; ++j) load_box(to + j * W_BOX, w, step * STEP + j * 64, row, ring.full());
#pragma unroll
            for (int j = 0; j < BOXES; ++j) load_box(to_x + j * X_BOX, x, step * STEP + j * 64, column, ring.full());
            if (++step == part.last) step = part.first;
        }
        at += part.last - part.first;
    }
}

__device__ __forceinline__ void consume(u16* y, float* partial, u32* arrived, const Shares& shares, int row_tiles,
                                        unsigned char* memory, u32 base, i64 m, i64 n) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Stages<STAGES> ring(base + BARRIERS);
    const int end = shares.begin(blockIdx.x + 1);
    for (int at = shares.begin(blockIdx.x); at < end;) {
        const Segment part(shares, at, end);
        float c[CHAINS][4] = {};
        u32 last = 0;
#pragma unroll 1
        for (int step = part.first; step < part.last; ++step, ring.advance()) {
            const u32 from = base + ring.stage * STAGE_BYTES;
            ring.wait_full();
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4 * BOXES; ++i)
                multiply<0>(c[i % CHAINS], operand(from + i / 4 * W_BOX + i % 4 * 32),
                            operand(from + BOXES * W_BOX + i / 4 * X_BOX + i % 4 * 32), 1);
            wgmma_commit();
            wgmma_wait<1>();
            if (last && lane == 0) barrier_arrive(last);
            last = ring.empty();
        }
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(last);
        at += part.last - part.first;

        float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) sum.x += c[i][0], sum.y += c[i][1], sum.z += c[i][2], sum.w += c[i][3];
        if (!part.whole) {
            const Parts parts(shares, part.tile);
            float4* all = (float4*)partial + threadIdx.x;
            all[part.slot() * 128] = sum;
            if (!arrives_last(arrived + part.tile, parts.count, (u32*)(memory + WORD), GROUP_BARRIER)) continue;
            sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
            for (int i = 0; i < parts.count; ++i) {
                const float4 v = __ldcg(all + parts.slot(i) * 128);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
        }
        // Rows g and g + 8 of this warp's 16, columns 2t and 2t + 1, where lane = 4g + t.
        const i64 row = (i64)(part.tile % row_tiles) * ROWS + warp * 16 + lane / 4;
        const i64 column = (i64)(part.tile / row_tiles) * COLUMNS + lane % 4 * 2;
        const float out[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (row + e / 2 * 8 < n && column + e % 2 < m)
                y[(column + e % 2) * n + row + e / 2 * 8] = (u16)pack_bf16(out[e], 0.f);
    }
}

extern "C" __global__ void __launch_bounds__(160, PER_SM)
    gemv(u16* __restrict__ y, const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
         float* __restrict__ partial, u32* __restrict__ arrived, long long m, long long n, long long k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 base = shared_address(memory);
    const int row_tiles = (int)((n + ROWS - 1) / ROWS);
    const Shares shares(row_tiles * (int)((m + COLUMNS - 1) / COLUMNS), (int)((k + STEP - 1) / STEP));
    if (threadIdx.x == 128) {
        prefetch_map(&w);
        prefetch_map(&x);
        Stages<STAGES>(base + BARRIERS).init(1, 4);
    }
    __syncthreads();
    if (threadIdx.x < 128)
        consume(y, partial, arrived, shares, row_tiles, memory, base, m, n);
    else if (threadIdx.x == 128)
        produce(&x, &w, shares, row_tiles, base);
}
