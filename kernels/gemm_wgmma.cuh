// C = A*B on the tensor cores of Hopper: wgmma fed by the copy engine (TMA). A kernel file sets, before it takes this in:
//
//   ELEMENT        "bf16", "f16", "e4m3" or "tf32": what A and B hold, as wgmma calls it
//   ELEMENT_BYTES  the size of one. Those of 2 bytes lie as B[k][n], the others as B[n][k], which is all that wgmma takes.
//   RESULT         "bf16" or "f16": what C holds; not set for float32
//   PROMOTED       1: sums leave the tensor cores' own accumulators after every 128 bytes of k, to be added up in float32
//
// and its front matter sets the columns BN of a tile, the ring of STAGES, CLUSTER (1 or 2), SPLIT_GAIN and MIN_SHARE.
// A[m][k] and C[m][n] are row-major; rows of whole 16 bytes are what tensor maps want. At the edges the copy engine fills with
// zeros and clips.
//
// Persistent and warp-specialised. One thread of the producer warpgroup fills a ring of STAGES through the copy engine; two
// consumer warpgroups multiply 64 rows each and write C through shared memory. Consumer 1 runs one step behind consumer 0, so
// that one of them feeds the tensor cores while the other writes its tile.
//
// With CLUSTER = 2 the two CTAs of a cluster take tiles one above the other, and each fetches half of B for both.
//
// PROMOTED: a consumer waits for a stage and adds the sums to those in its registers, while the tensor cores work for the other.
// (Barriers that make them take turns, and tiles of 256 columns in two passes, cost 2 to 4 % on an H200.)
//
// partial: a tile per CTA, of any content. flags: two words per CTA, zero at the start, and zero again at the end.
#define WGMMA_COLUMNS BN
#include "wgmma.cuh"

constexpr int BM = 128, BK = 128 / ELEMENT_BYTES;  // BK: 128 bytes of A, the width of the swizzle
constexpr int GROUP = CLUSTER > 1 ? 4 : 16;        // rows of tiles that are walked together, for the L2
constexpr int PANEL = 64 * 128;                    // 64 rows of 128 bytes: a consumer's rows of A, one store of C
constexpr int STAGE_BYTES = (BM + BN) * 128;
constexpr int C_BYTES = 2 * 2 * PANEL;  // two buffers for each consumer
constexpr int BARRIERS = STAGES * STAGE_BYTES + C_BYTES;
constexpr int THREADS = 384;
constexpr int SKEW_BARRIER = 3;  // named barriers 1 and 2 belong to a consumer each

// Boxes of B, 128 bytes wide along n or along k: 128 bytes for each of their columns of B either way.
constexpr int BOX_COLUMNS = B_ALONG_N ? 64 : BN / CLUSTER;
constexpr int BOXES = BN / CLUSTER / BOX_COLUMNS;  // what a CTA fetches of them for a stage

#ifdef RESULT
constexpr int STORE_COLUMNS = 64;  // 128 bytes of C
#else
constexpr int STORE_COLUMNS = 32;
#endif
constexpr int STORES = BN / STORE_COLUMNS;

static_assert(BARRIERS + 16 * STAGES <= 232448, "shared memory of an SM");
static_assert(BN % (CLUSTER * BOX_COLUMNS) == 0 && BN % STORE_COLUMNS == 0, "boxes of B and C are dealt out evenly");
static_assert(BOX_COLUMNS % 8 == 0 && BOX_COLUMNS <= 256, "the swizzle repeats every 8 rows; a box has 256 at most");

#include "stream_k.cuh"

struct Ring {
    u32 stage = 0, phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

// ---- Producer

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
            for (int i = 0; i < BOXES; ++i) {
                const int first = (rank * BOXES + i) * BOX_COLUMNS, along_n = column + first, along_k = step * BK;
                const int x = B_ALONG_N ? along_n : along_k, y = B_ALONG_N ? along_k : along_n;
                if (CLUSTER > 1)
                    load_box_shared(to_b + first * 128, b, x, y, barrier, (1 << CLUSTER) - 1);
                else
                    load_box(to_b + first * 128, b, x, y, barrier);
            }
        }
    }
}

// ---- Consumers

// Gives a stage back to the producers of all CTAs that fill it.
__device__ __forceinline__ void release(u32 barrier, int lane) {
    if (lane >= CLUSTER) return;
    if (CLUSTER > 1)
        barrier_arrive_at(barrier, lane);
    else
        barrier_arrive(barrier);
}

#if PROMOTED
// Adds a stage to c.
__device__ __forceinline__ void promote_stage(float (&c)[BN / 2], u64 a, u64 b, u32 barrier, int lane) {
    float sums[BN / 2];
    wgmma_stage(sums, a, b, 0);
    wgmma_wait<0>();
    release(barrier, lane);
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) {
        asm volatile("" : "+f"(sums[i])::"memory");  // not to be read before the wait
        c[i] += sums[i];
    }
}
#endif

__device__ __forceinline__ void store_two(u32 to, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}

// Writes STORE_COLUMNS columns of a consumer's 64 rows into a buffer, swizzled as the copy engine expects it.
__device__ __forceinline__ void write_box(const float* c, u32 buffer, int warp, int lane) {
#ifdef RESULT
    const u32 mine = (warp * 16 + lane % 16) * 128;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        u32 r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm("cvt.rn." RESULT "x2.f32 %0, %1, %2;" : "=r"(r[i]) : "f"(c[8 * w + 2 * i + 1]), "f"(c[8 * w + 2 * i]));
        store_matrices(buffer + mine + ((2 * w + lane / 16) ^ (lane & 7)) * 16, r[0], r[1], r[2], r[3]);
    }
#else
    // A lane holds two neighbours of every 8 columns. Those of odd rows begin with the 8 columns 16 further on, so that the
    // four rows of half a warp meet every bank once.
    const int row = lane / 4, odd = row & 1;
    const u32 mine = (warp * 16 + row) * 128 + (((lane % 4 / 2) ^ row) * 16 ^ odd * 64) + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int w = i / 2, lower = i % 2;  // which 8 columns, which 8 rows
        const float *near = c + 4 * w + 2 * lower, *far = near + 8;
        const u32 to = buffer + lower * 1024 + (mine ^ w * 32);
        store_two(to, odd ? far[0] : near[0], odd ? far[1] : near[1]);
        store_two(to ^ 64, odd ? near[0] : far[0], odd ? near[1] : far[1]);
    }
#endif
}

// Rounds the sums and stores C box by box, two buffers taking turns.
__device__ __forceinline__ void store(const float (&c)[BN / 2], const CUtensorMap* map, u32 buffers, int row,
                                      int column, int group) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
#pragma unroll
    for (int p = 0; p < STORES; ++p) {
        const u32 buffer = buffers + p % 2 * PANEL;
        // The buffer is free once all stores but the latest have read theirs; of an odd number the last one read this.
        if (thread == 0) {
            if (STORES % 2 && p == 0)
                store_wait_read<0>();
            else
                store_wait_read<1>();
        }
        named_sync(1 + group, 128);
        write_box(c + p * (STORE_COLUMNS / 2), buffer, thread / 32, lane);
        shared_fence();
        named_sync(1 + group, 128);
        if (thread == 0) store_box(map, column + p * STORE_COLUMNS, row, buffer);
    }
}

__device__ __forceinline__ void consume(const CUtensorMap* map, Schedule work, u32 base, u32 rank, int group,
                                        float* partial, u32* flags) {
    const int lane = threadIdx.x % 32;
    const u32 full = base + BARRIERS, empty = full + 8 * STAGES;
    const u32 buffers = base + STAGES * STAGE_BYTES + group * 2 * PANEL;
    Ring ring;
#if !PROMOTED
    bool first = true;
    if (group == 1) named_sync(SKEW_BARRIER, 256);
#endif

    while (work.next()) {
        float c[BN / 2];
        const int steps = work.end - work.begin;
#if PROMOTED
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) c[i] = 0;
#else
        const int signal = first && group == 0 ? 0 : -1;
        u32 last = 0;
        first = false;
#endif
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const u32 at = base + ring.stage * STAGE_BYTES;
            const u64 a = operand(A_LAYOUT, at + group * PANEL), b = operand(B_LAYOUT, at + 2 * PANEL);
            barrier_wait(full + 8 * ring.stage, ring.phase);
#if PROMOTED
            promote_stage(c, a, b, empty + 8 * ring.stage, lane);
#else
            wgmma_stage(c, a, b, step);
            if (step == signal) named_arrive(SKEW_BARRIER, 256);
            // One step stays in flight; nobody reads the stage of the one before any more.
            wgmma_wait<1>();
            if (step > 0) release(last, lane);
            last = empty + 8 * ring.stage;
#endif
            ring.advance();
        }
#if !PROMOTED
        wgmma_wait<0>();
        release(last, lane);
#endif

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
#if !PROMOTED
    if (first && group == 0) named_arrive(SKEW_BARRIER, 256);
#endif
    // Shared memory must outlive the stores that read it.
    if (threadIdx.x % 128 == 0) store_wait();
}

// ---- What a kernel is declared with, and all that it does

#if CLUSTER > 1
#define GEMM __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
#else
#define GEMM __launch_bounds__(THREADS, 1)
#endif

__device__ __forceinline__ void gemm(const CUtensorMap* a, const CUtensorMap* b, const CUtensorMap* c, float* partial,
                                     u32* flags, i64 m, i64 n, i64 k) {
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
        prefetch_map(a);
        prefetch_map(b);
        prefetch_map(c);
    }
    if (CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();

    // 40 registers for 128 threads and 232 for 256: together what the launch gave, 168 for each of 384.
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) produce(a, b, Schedule(m, n, k), base, rank);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume(c, Schedule(m, n, k), base, rank, group - 1, partial, flags);
    }
    // No CTA of a cluster leaves while the other may still write into its shared memory.
    if (CLUSTER > 1) cluster_sync();
}
