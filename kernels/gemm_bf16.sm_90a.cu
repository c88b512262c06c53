/* greenbench
family    = "gemm"
summary   = "C = A*B in bfloat16 on tensor cores (wgmma, TMA), float32 accumulation."
entry     = "gemm_bf16"
args      = ["a", "b", "c", "partial", "flags", "m", "n", "k"]
verify    = "gemm"
dtype     = "bfloat16"
arch      = "sm_90a"
yardstick = "cublas"
require   = ["n % 8", "k % 8"]
buffers   = [
    { name = "a", dtype = "bfloat16", shape = ["m", "k"], fill = "normal", tensor_map = { box = [64, 128], swizzle = 128, l2_promotion = 256 } },
    { name = "b", dtype = "bfloat16", shape = ["k", "n"], fill = "normal", tensor_map = { box = [64, 64], swizzle = 128, l2_promotion = 256 } },
    { name = "c", dtype = "bfloat16", shape = ["m", "n"], fill = "poison", tensor_map = { box = [64, 64], swizzle = 128, l2_promotion = 256 } },
    { name = "partial", dtype = "float32", count = "sms * 128 * BN", fill = "poison", access = "scratch" },
    { name = "flags", dtype = "uint32", count = "2 * sms", fill = "zero", access = "scratch" },
]

# In steps of 64 along k: what cutting tiles must save to be done (leaving, fetching and adding a tile of float32 costs 5 to 14
# of them, measured on an H200 at 48 to 132 SMs), and the least share that is worth an SM where there are fewer tiles than SMs.
[defines]
SPLIT_GAIN = 12
MIN_SHARE  = 16

[params]
m = 4096
n = 4096
k = 4096

# The busiest unit (a cluster) by the arithmetic of Schedule below: whole tiles, or the first ones cut into equal shares.
[let]
units   = "max(1, sms // CLUSTER)"
tiles   = "ceil_div(m, 128 * CLUSTER) * ceil_div(n, BN)"
steps   = "ceil_div(k, 64)"
waves   = "tiles // units"
sharers = "min(units, max(tiles, tiles * steps // MIN_SHARE))"
share   = "ceil_div((tiles % units + min(waves, 1) * units) * steps, sharers)"
whole   = "ceil_div(tiles, units) * steps"
cut     = "max(waves - 1, 0) * steps + share"
busiest = "min(whole, cut + SPLIT_GAIN)"

[launch]
block   = 384
grid    = "max(1, sms // CLUSTER) * CLUSTER"
cluster = "CLUSTER"
smem    = "STAGES * (128 + BN) * 128 + 32768 + 16 * STAGES"

# cost: columns times steps of the busiest unit, times what a step takes. That grows with the SMs by the bytes that a CTA fetches
# for it: 3 : 2 : 4 for the same columns. The two CTAs of a cluster also wait for each other, which costs 0.3 % (measured on an
# H200: a loss of 0.1 to 0.6 % up to 64 SMs, a gain of 3 % on 132). A tile of 128 columns fetches 64 bytes in each cycle of
# its products, all that the link of an SM carries: 20 % more time is an estimate. It is for products of few tiles.
[[variant]]
defines = { BN = 256, STAGES = 4, CLUSTER = 1 }
cost = "busiest * BN * (24000 + 3 * sms)"
[[variant]]
defines = { BN = 256, STAGES = 4, CLUSTER = 2 }
cost = "busiest * BN * (24078 + 2 * sms)"
[[variant]]
defines = { BN = 128, STAGES = 6, CLUSTER = 1 }
cost = "busiest * BN * (28800 + 4 * sms)"

[work]
flops = "2 * m * n * k"
bytes = "2 * (m * k + k * n + m * n)"
*/

// Limited by the tensor cores on few SMs, and by power on the full device; a last wave that leaves SMs idle is cut up.
//
// All three matrices are row-major: A[m][k], B[k][n], C[m][n]; rows of whole 16 bytes are what tensor maps want. At the edges
// the copy engine fills with zeros and clips.
//
// Persistent and warp-specialised. One thread of the producer warpgroup fills a ring of STAGES through the copy engine; two
// consumer warpgroups multiply 64 rows each and write C through shared memory. Consumer 1 runs one step behind consumer 0, so
// that one of them feeds the tensor cores while the other writes its tile.
//
// With CLUSTER = 2 the two CTAs of a cluster take tiles one above the other, and each fetches half of B for both.
//
// Where whole tiles leave SMs idle in the last wave, the first tiles (up to two per unit) are cut along k into equal shares
// (stream-K). Who holds the front of a tile writes it, having added the float32 parts of the others in the order of k, so that
// the result does not depend on timing. A CTA waits only for CTAs of a lower index, which were started before it.
//
// partial: a tile per CTA, of any content. flags: two words per CTA, zero at the start, and zero again at the end.
constexpr int BM = 128, BK = 64;     // BK: 128 bytes of A, the width of the swizzle
constexpr int GROUP = 16 / CLUSTER;  // rows of tiles that are walked together, for the L2
constexpr int PANEL = 64 * 128;      // 64 rows of 128 bytes: one box of B, a consumer's rows of A, one store of C
constexpr int BOXES = BN / 64;       // boxes of B in a stage, and of C in a consumer's rows
constexpr int PARTS = BN / 8;        // float4 that a thread accumulates
constexpr int STAGE_BYTES = (BM + BN) * BK * 2;
constexpr int C_BYTES = 2 * 2 * PANEL;  // two buffers for each consumer
constexpr int BARRIERS = STAGES * STAGE_BYTES + C_BYTES;
constexpr int THREADS = 384;
constexpr int SKEW_BARRIER = 3;  // named barriers 1 and 2 belong to a consumer each

static_assert(BN == 128 || BN == 256, "wgmma_step knows these widths");
static_assert(BARRIERS + 16 * STAGES <= 232448, "shared memory of an SM");
static_assert(BOXES % CLUSTER == 0, "boxes of B are dealt out evenly");

// ---- Tensor cores

// Matrices in shared memory with the 128-byte swizzle; distances in units of 16 bytes. A lies along k: 1024 bytes to the next
// 8 rows. B lies along n: a panel to the next 64 columns, 1024 bytes to the next 8 rows.
constexpr u64 A_LAYOUT = 1ull << 62 | (u64)(1024 / 16) << 32 | 1ull << 16;
constexpr u64 B_LAYOUT = 1ull << 62 | (u64)(1024 / 16) << 32 | (u64)(PANEL / 16) << 16;

__device__ __forceinline__ u64 operand(u64 layout, u32 address) {
    return layout | (address >> 4 & 0x3fff);
}

// The statement of wgmma names every accumulator, %0 up to %63 or %127, so macros write the list; the operands follow.
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FLOATS_8(i)                                                                                             \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define FLOATS_32(i) FLOATS_8(i), FLOATS_8(i + 8), FLOATS_8(i + 16), FLOATS_8(i + 24)
#define FIRST_60 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
#if BN == 256
#define SHAPE "m64n256k16"
#define LIST FIRST_60 TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define FLOATS FLOATS_32(0), FLOATS_32(32), FLOATS_32(64), FLOATS_32(96)
#define OPERANDS "%128, %129"
#define ADDS "%130"
#else
#define SHAPE "m64n128k16"
#define LIST FIRST_60 "%60, %61, %62, %63"
#define FLOATS FLOATS_32(0), FLOATS_32(32)
#define OPERANDS "%64, %65"
#define ADDS "%66"
#endif

// 16 columns of A times 16 rows of B, for the 64 rows of this warpgroup: c = A * B, or c += A * B.
__device__ __forceinline__ void wgmma_step(float (&c)[BN / 2], u64 a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS ", 0;\nwgmma.mma_async.sync.aligned." SHAPE
                 ".f32.bf16.bf16 {" LIST "}, " OPERANDS ", p, 1, 1, 0, 1;\n}"
                 : FLOATS
                 : "l"(a), "l"(b), "r"(adds));
}

// ---- Who does what. A unit is a cluster; its tile is CLUSTER * BM rows high.

struct Schedule {
    int rows, columns, steps;  // tiles down and across, steps of BK along k
    int units, unit;
    int sharers, shared_tiles;  // units that share, and the tiles that are shared: the first ones
    int share_steps, longer;    // steps of a share; the first few have one more
    int at, until;              // this unit's part of all shared steps
    int next_tile;              // then its whole tiles
    int tile, begin, end;       // the current work

    __device__ __forceinline__ Schedule(i64 m, i64 n, i64 k) {
        rows = (int)((m + BM * CLUSTER - 1) / (BM * CLUSTER)), columns = (int)((n + BN - 1) / BN);
        steps = (int)((k + BK - 1) / BK);
        units = gridDim.x / CLUSTER, unit = blockIdx.x / CLUSTER;
        const int tiles = rows * columns, waves = tiles / units, rest = tiles % units;
        shared_tiles = rest + (waves > 0 ? units : 0);
        const int all = shared_tiles * steps;
        sharers = units;
        if (waves == 0) {
            if (all / MIN_SHARE < sharers) sharers = all / MIN_SHARE;
            if (sharers < shared_tiles) sharers = shared_tiles;
        }
        share_steps = all / sharers, longer = all % sharers;
        const i64 whole = (i64)(waves + 1) * steps;
        const i64 cut = (i64)(waves > 0 ? waves - 1 : 0) * steps + share_steps + (longer > 0);
        if (rest == 0 || whole <= cut + SPLIT_GAIN) shared_tiles = 0;
        at = until = 0;
        // Fronts of tiles go to the units of higher index, which wait for those of lower index.
        if (shared_tiles && unit < sharers) at = share(sharers - 1 - unit), until = share(sharers - unit);
        next_tile = shared_tiles + unit;
    }

    // Where a share begins.
    __device__ __forceinline__ int share(int which) const {
        return share_steps * which + (which < longer ? which : longer);
    }

    __device__ __forceinline__ bool next() {
        if (at < until) {
            tile = at / steps, begin = at % steps;
            end = until - at < steps - begin ? begin + until - at : steps;
            at += end - begin;
            return true;
        }
        tile = next_tile, begin = 0, end = steps;
        next_tile += units;
        return tile < rows * columns;
    }

    __device__ __forceinline__ void place(int& row, int& column) const {
        const int wide = GROUP * columns, first = tile / wide * GROUP, within = tile % wide;
        const int height = rows - first < GROUP ? rows - first : GROUP;
        row = first + within % height, column = within / height;
    }
};

struct Ring {
    u32 stage = 0, phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

__device__ __forceinline__ void produce(const CUtensorMap* a, const CUtensorMap* b, Schedule work, u32 base, u32 rank) {
    const u32 full = base + BARRIERS, empty = full + 8 * STAGES;
    Ring ring;
    while (work.next()) {
        int row, column;
        work.place(row, column);
        row = (row * CLUSTER + rank) * BM, column *= BN;
        for (int step = work.begin; step < work.end; ++step, ring.advance()) {
            const u32 to_a = base + ring.stage * STAGE_BYTES, to_b = to_a + 2 * PANEL, barrier = full + 8 * ring.stage;
            barrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
            barrier_expect(barrier, STAGE_BYTES);
            load_box(to_a, a, step * BK, row, barrier);
#pragma unroll
            for (int i = 0; i < BOXES / CLUSTER; ++i) {
                const int box = rank * (BOXES / CLUSTER) + i;
                if (CLUSTER > 1)
                    load_box_shared(to_b + box * PANEL, b, column + box * 64, step * BK, barrier, (1 << CLUSTER) - 1);
                else
                    load_box(to_b + box * PANEL, b, column + box * 64, step * BK, barrier);
            }
        }
    }
}

// ---- What a consumer does with its accumulators

// Leaves them for the CTA that holds the front of this tile.
__device__ __forceinline__ void leave(const float (&c)[BN / 2], float* partial, u32* flags, int group) {
    const int thread = threadIdx.x % 128, slot = blockIdx.x * 2 + group;
    float4* to = (float4*)partial + (i64)slot * PARTS * 128 + thread;
#pragma unroll
    for (int i = 0; i < PARTS; ++i)
        asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * 128), "f"(c[4 * i]),
                     "f"(c[4 * i + 1]), "f"(c[4 * i + 2]), "f"(c[4 * i + 3])
                     : "memory");
    __threadfence();
    named_sync(1 + group, 128);
    if (thread == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags + slot), "r"(1) : "memory");
}

// Adds what another CTA left, and takes its flag down for the next launch.
__device__ __forceinline__ void collect(float (&c)[BN / 2], const float* partial, u32* flags, int cta, int group) {
    const int thread = threadIdx.x % 128, slot = cta * 2 + group;
    if (thread == 0) {
        u32 there = 0;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flags + slot) : "memory");
        } while (!there);
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(flags + slot), "r"(0) : "memory");
    }
    named_sync(1 + group, 128);
    const float4* from = (const float4*)partial + (i64)slot * PARTS * 128 + thread;
#pragma unroll
    for (int i = 0; i < PARTS; i += 8) {
        float4 v[8];
#pragma unroll
        for (int j = 0; j < 8; ++j)
            asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(v[j].x), "=f"(v[j].y), "=f"(v[j].z), "=f"(v[j].w)
                         : "l"(from + (i + j) * 128)
                         : "memory");
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            c[4 * (i + j)] += v[j].x, c[4 * (i + j) + 1] += v[j].y;
            c[4 * (i + j) + 2] += v[j].z, c[4 * (i + j) + 3] += v[j].w;
        }
    }
}

// Rounds them and stores C in boxes of 64 x 64, two buffers taking turns.
__device__ __forceinline__ void store(const float (&c)[BN / 2], const CUtensorMap* map, u32 buffers, int row,
                                      int column, int group) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    const u32 mine = (thread / 32 * 16 + lane % 16) * 128;
#pragma unroll
    for (int p = 0; p < BOXES; ++p) {
        const u32 buffer = buffers + p % 2 * PANEL;
        // The number of boxes is even, so the buffer is free once all stores but the latest have read theirs.
        if (thread == 0) store_wait_read<1>();
        named_sync(1 + group, 128);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const float* v = c + (p * 4 + w) * 8;
            const u32 to = buffer + mine + ((2 * w + lane / 16) ^ (lane & 7)) * 16;
            store_matrices(to, pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                           pack_bf16(v[6], v[7]));
        }
        shared_fence();
        named_sync(1 + group, 128);
        if (thread == 0) store_box(map, column + p * 64, row, buffer);
    }
}

// Gives a stage back to the producers of all CTAs that fill it.
__device__ __forceinline__ void release(u32 barrier, int lane) {
    if (lane >= CLUSTER) return;
    if (CLUSTER > 1)
        barrier_arrive_at(barrier, lane);
    else
        barrier_arrive(barrier);
}

__device__ __forceinline__ void consume(const CUtensorMap* map, Schedule work, u32 base, u32 rank, int group,
                                        float* partial, u32* flags) {
    const int lane = threadIdx.x % 32;
    const u32 full = base + BARRIERS, empty = full + 8 * STAGES;
    const u32 buffers = base + STAGES * STAGE_BYTES + group * 2 * PANEL;
    Ring ring;
    bool first = true;
    if (group == 1) named_sync(SKEW_BARRIER, 256);

    while (work.next()) {
        float c[BN / 2];
        const int steps = work.end - work.begin;
        const int signal = first && group == 0 ? 0 : -1;
        u32 last = 0;
        first = false;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const u32 at = base + ring.stage * STAGE_BYTES;
            const u64 a = operand(A_LAYOUT, at + group * PANEL), b = operand(B_LAYOUT, at + 2 * PANEL);
            barrier_wait(full + 8 * ring.stage, ring.phase);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < BK / 16; ++s) wgmma_step(c, a + s * 32 / 16, b + s * 2048 / 16, s > 0 ? 1 : step);
            wgmma_commit();
            if (step == signal) named_arrive(SKEW_BARRIER, 256);
            // One step stays in flight; nobody reads the stage of the one before any more.
            wgmma_wait<1>();
            if (step > 0) release(last, lane);
            last = empty + 8 * ring.stage;
            ring.advance();
        }
        wgmma_wait<0>();
        release(last, lane);

        if (work.begin > 0) {
            leave(c, partial, flags, group);
            continue;
        }
        if (work.end < work.steps) {
            const int need = (work.tile + 1) * work.steps;
            int which = work.sharers - 1 - work.unit;
            do {
                ++which;
                collect(c, partial, flags, (work.sharers - 1 - which) * CLUSTER + rank, group);
            } while (work.share(which + 1) < need);
        }
        int row, column;
        work.place(row, column);
        store(c, map, buffers, (row * CLUSTER + rank) * BM + group * 64, column * BN, group);
    }
    if (first && group == 0) named_arrive(SKEW_BARRIER, 256);
    // Shared memory must outlive the stores that read it.
    if (threadIdx.x % 128 == 0) store_wait();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        gemm_bf16(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                  const __grid_constant__ CUtensorMap c, float* partial, u32* flags, long long m, long long n,
                  long long k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    u32 base;  // through asm, so that it is not computed again in every step
    asm volatile("mov.u32 %0, %1;" : "=r"(base) : "r"(shared_address(memory)));
    const int group =
        __shfl_sync(0xffffffff, threadIdx.x / 128, 0);  // the same for all lanes, and the compiler knows it
    const u32 rank = blockIdx.x % CLUSTER;

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(base + BARRIERS + 8 * i, 1);                       // full: the producer, and all bytes
            barrier_init(base + BARRIERS + 8 * (STAGES + i), 8 * CLUSTER);  // empty: every warp that reads the stage
        }
        barrier_init_fence();
        prefetch_map(&a);
        prefetch_map(&b);
        prefetch_map(&c);
    }
    if (CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();

    // 40 registers for 128 threads and 232 for 256: together what the launch gave, 168 for each of 384.
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) produce(&a, &b, Schedule(m, n, k), base, rank);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume(&c, Schedule(m, n, k), base, rank, group - 1, partial, flags);
    }
    // No CTA of a cluster leaves while the other may still write into its shared memory.
    if (CLUSTER > 1) cluster_sync();
}
