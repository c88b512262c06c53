// Who computes which part of C, for a persistent GEMM. A unit is a cluster; its tile is CLUSTER * BM rows high and BN wide.
//
// Where whole tiles leave units idle in the last wave, the first tiles (up to two per unit) are cut along k into equal shares
// (stream-K). Who holds the front of a tile writes it, having added the float32 parts of the others in the order of k, so that
// the result does not depend on timing. A CTA waits only for CTAs of a lower index, which were started before it.
//
// The file that takes this in has set BM, BN, BK, CLUSTER, GROUP (rows of tiles that are walked together, for the L2),
// SPLIT_GAIN (what cutting must save) and MIN_SHARE (the least share that is worth a unit), both in steps of BK along k.

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

// A CTA has room for a tile in `partial`, and a flag for each of its two warpgroups, of 64 rows, each with barrier 1 + group.
constexpr int PARTS = BN / 8;  // float4 that a thread of a warpgroup holds

// Leaves its sums for the CTA that holds the front of this tile.
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
