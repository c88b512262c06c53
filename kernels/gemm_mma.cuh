// C = A*B by mma.sync, persistent: what the GEMMs have in common on compute capabilities whose tensor cores it feeds, or where
// nothing faster is written yet. A[m][k] and C[m][n] are row-major, B is [k][n] or [n][k]. Rows are multiples of 16 bytes.
//
// A CTA computes BM x BN tiles of C, one after the other; a warp 64 x 64 of each (less in small tiles). BK columns of A and as much
// of B at a time pass through a ring of STAGES in shared memory, filled by cp.async, 16-byte chunks swizzled so that ldmatrix meets
// no bank twice. The ring runs on from tile to tile: while C of one leaves, straight from the registers, the next one is on its way.
// 96 KiB at most, so that every device from 8.0 on can run every variant.
//
// The file that takes this in defines OPERAND (bytes of an element of A and B), B_BY_COLUMNS (B is [n][k]), PROMOTED (sums leave the
// tensor core's own accumulators after every BK), multiply (one instruction) and pack (two neighbours of C as they are stored).
typedef decltype(pack(0.0f, 0.0f)) Pair;
constexpr int PAIR_WORDS = sizeof(Pair) / 4, RESULT = sizeof(Pair) / 2;

constexpr int ACCUMULATORS = PROMOTED ? 64 : 128;  // of a thread; what is promoted needs as many again
constexpr int THREADS = BM * BN / ACCUMULATORS < 128 ? 128 : BM * BN / ACCUMULATORS;
constexpr int WARPS_M = 2, WARPS_N = THREADS / 32 / WARPS_M;
constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;
constexpr int LINE = BK * OPERAND;  // bytes of a row of A in a stage
constexpr int A_BYTES = BM * LINE, STAGE_BYTES = (BM + BN) * LINE;
constexpr int CHUNKS = LINE / 16, WIDE_CHUNKS = BN * OPERAND / 16;
constexpr int STEPS = LINE / 32;        // of a stage: one instruction multiplies 32 bytes of a row of A
constexpr int BLOCKS = 4 / PAIR_WORDS;  // of 8 columns, which are 64 bytes of a row of C
constexpr int GROUP = 8;                // rows of tiles that are walked together, for the L2

static_assert(LINE == 64 || LINE == 128, "the swizzle knows rows of 64 and 128 bytes");
static_assert(WM % 16 == 0 && WN % (8 * BLOCKS) == 0, "a warp works on tiles of 16 x 16, and stores 64 bytes of a row");
static_assert(BM % (THREADS / CHUNKS * STEPS) == 0 && BN % (THREADS / CHUNKS * STEPS) == 0, "all load in every step");
static_assert(B_BY_COLUMNS || (OPERAND == 2 && BK % (THREADS / WIDE_CHUNKS * STEPS) == 0),
              "ldmatrix transposes elements of two bytes; all load in every step");

typedef float Sums[WM / 16][WN / 8][4];

// Where a chunk of a row along k lies in its part of a stage: A, and B[n][k].
__device__ __forceinline__ u32 line_offset(int row, int chunk) {
    const int swizzled = CHUNKS == 8 ? chunk ^ (row & 7) : chunk ^ ((row >> 1) & 3);
    return row * LINE + swizzled * 16;
}

// The same for rows along n, of B[k][n]: at least 128 bytes, so the low three bits of the chunk select the banks.
__device__ __forceinline__ u32 wide_offset(int row, int chunk) {
    return row * (BN * OPERAND) + (chunk ^ (row & 7)) * 16;
}

// ROWS rows along k, of which BK columns go into each stage; zeros outside the matrix. The copies are issued in STEPS parts, one with
// each step of what is multiplied meanwhile, so that the tensor cores need not wait until all addresses are computed.
template <int ROWS>
struct Lines {
    static constexpr int AT_ONCE = THREADS / CHUNKS, PART = ROWS / AT_ONCE / STEPS;
    const u8* from;  // this thread's chunk of its first row
    u32 inside;      // bit i: the i-th row that this thread copies is in the matrix

    __device__ __forceinline__ void aim(const u8* matrix, i64 first, i64 rows, i64 k) {
        const i64 row = first + threadIdx.x / CHUNKS;
        from = matrix + row * (k * OPERAND) + threadIdx.x % CHUNKS * 16;
        inside = 0;
#pragma unroll
        for (int i = 0; i < ROWS / AT_ONCE; ++i) inside |= (u32)(row + i * AT_ONCE < rows) << i;
    }

    // `left` of k is still to come.
    __device__ __forceinline__ void copy(u32 to, int part, int left, i64, i64 k) const {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const u32 wanted = chunk * (16 / OPERAND) < left ? inside : 0;
#pragma unroll
        for (int i = part * PART; i < (part + 1) * PART; ++i)
            copy_async(to + line_offset(row + i * AT_ONCE, chunk), from + i * (AT_ONCE * OPERAND * k), wanted >> i & 1);
    }

    __device__ __forceinline__ void next(i64) { from += LINE; }
};

// The columns of B that a tile needs.
template <bool BY_COLUMNS>
struct Columns : Lines<BN> {};

template <>
struct Columns<false> {
    static constexpr int AT_ONCE = THREADS / WIDE_CHUNKS, PART = BK / AT_ONCE / STEPS;
    const u8* from;  // this thread's chunk of its first row
    bool inside;

    __device__ __forceinline__ void aim(const u8* matrix, i64 first, i64 n, i64) {
        const i64 column = first + threadIdx.x % WIDE_CHUNKS * (16 / OPERAND);
        from = matrix + (threadIdx.x / WIDE_CHUNKS * n + column) * OPERAND;
        inside = column < n;
    }

    __device__ __forceinline__ void copy(u32 to, int part, int left, i64 n, i64) const {
        const int row = threadIdx.x / WIDE_CHUNKS, chunk = threadIdx.x % WIDE_CHUNKS;
        const int rows = inside ? left : 0;
#pragma unroll
        for (int i = part * PART; i < (part + 1) * PART; ++i)
            copy_async(to + wide_offset(row + i * AT_ONCE, chunk), from + i * (AT_ONCE * OPERAND * n),
                       row + i * AT_ONCE < rows);
    }

    __device__ __forceinline__ void next(i64 n) { from += BK * OPERAND * n; }
};

struct Problem {
    const u8 *a, *b;
    u8* c;
    i64 m, n, k;
    int tile_rows, tile_columns, stages;

    __device__ __forceinline__ Problem(const void* a, const void* b, void* c, i64 m, i64 n, i64 k)
        : a((const u8*)a), b((const u8*)b), c((u8*)c), m(m), n(n), k(k) {
        tile_rows = (int)((m + BM - 1) / BM), tile_columns = (int)((n + BN - 1) / BN);
        stages = (int)((k + BK - 1) / BK);
    }

    __device__ __forceinline__ int tiles() const { return tile_rows * tile_columns; }

    // GROUP rows of tiles at a time, column by column.
    __device__ __forceinline__ void place(int tile, i64& row0, i64& col0) const {
        const int group = tile / (GROUP * tile_columns), within = tile % (GROUP * tile_columns);
        const int first = group * GROUP, height = tile_rows - first < GROUP ? tile_rows - first : GROUP;
        row0 = (i64)(first + within % height) * BM;
        col0 = (i64)(within / height) * BN;
    }
};

// Runs ahead of the products, over all of k of all tiles of this CTA.
struct Feeder {
    Lines<BM> rows;
    Columns<B_BY_COLUMNS> columns;
    int tile, stage;

    __device__ __forceinline__ void aim(const Problem& of, int next) {
        tile = next, stage = 0;
        if (tile >= of.tiles()) return;
        i64 row0, col0;
        of.place(tile, row0, col0);
        rows.aim(of.a, row0, of.m, of.k);
        columns.aim(of.b, col0, of.n, of.k);
    }

    // Without a branch, so that it mixes with the products; after the last tile nothing is read and zeros go where nobody looks.
    __device__ __forceinline__ void feed(const Problem& of, u32 to, int part) const {
        const i64 rest = of.k - (i64)stage * BK;
        const int left = tile >= of.tiles() ? 0 : rest < BK ? (int)rest : BK;
        rows.copy(to, part, left, of.m, of.k);
        columns.copy(to + A_BYTES, part, left, of.n, of.k);
    }

    // Ends the copies to one stage.
    __device__ __forceinline__ void next(const Problem& of) {
        copy_commit();
        rows.next(of.m), columns.next(of.n);
        if (++stage == of.stages) aim(of, tile + gridDim.x);
    }
};

// The part of a stage that belongs to this warp: fragments of the next 32 bytes are fetched while these are multiplied.
__device__ __forceinline__ void multiply_stage(Sums& sums, u32 stage, int warp_row, int warp_col, const Feeder& feeder,
                                               const Problem& of, u32 free_stage) {
    const int lane = threadIdx.x % 32, half = lane / 16, within = lane % 16;
    u32 fa[2][WM / 16][4], fb[2][WN / 16][4];

    auto fetch = [&](int to, int step) {
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
            load_matrices(fa[to][i], stage + line_offset(warp_row + 16 * i + within, 2 * step + half));
#pragma unroll
        for (int j = 0; j < WN / 16; ++j) {
            const u32 from = stage + A_BYTES;
            if (B_BY_COLUMNS)
                load_matrices(fb[to][j],
                              from + line_offset(warp_col + 16 * j + 8 * half + lane % 8, 2 * step + within / 8));
            else
                load_matrices_transposed(fb[to][j],
                                         from + wide_offset(16 * step + within, warp_col / 8 + 2 * j + half));
        }
    };

    fetch(0, 0);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step + 1 < STEPS) fetch((step + 1) % 2, step + 1);
        feeder.feed(of, free_stage, step);
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j)
                multiply(sums[i][j], fa[step % 2][i], fb[step % 2][j / 2][j % 2 * 2],
                         fb[step % 2][j / 2][j % 2 * 2 + 1]);
    }
}

__device__ __forceinline__ void add(Sums& sums, const Sums& part) {
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] += part[i][j][e];
}

// Between two lanes that are `distance` apart: y of the lower one changes places with x of the upper one.
__device__ __forceinline__ void exchange(u32& x, u32& y, int distance) {
    const bool upper = threadIdx.x & distance;
    const u32 got = __shfl_xor_sync(0xffffffffu, upper ? x : y, distance);
    if (upper)
        x = got;
    else
        y = got;
}

// Of every 64 bytes of a row four neighbouring lanes hold the first, second, ... pair of each block of 8 columns. Each gets 16
// bytes that lie together.
__device__ __forceinline__ void store_tile(const Problem& of, const Sums& sums, i64 row0, i64 col0) {
    const int lane = threadIdx.x % 32, quarter = lane % 4;
    const int chunk = PAIR_WORDS == 1 ? quarter : quarter % 2 * 2 + quarter / 2;
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < WN / 8; j += BLOCKS) {
                u32 w[4];
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const float* pair = &sums[i][j + q / PAIR_WORDS][2 * h];
                    w[q] = (u32)(pack(pair[0], pair[1]) >> (q % PAIR_WORDS * 32));
                }
                if (PAIR_WORDS == 1) {
                    exchange(w[0], w[2], 2), exchange(w[1], w[3], 2);
                    exchange(w[0], w[1], 1), exchange(w[2], w[3], 1);
                } else {
                    exchange(w[0], w[2], 1), exchange(w[1], w[3], 1);
                }
                const i64 row = row0 + 16 * i + 8 * h + lane / 4, column = col0 + 8 * j + chunk * (16 / RESULT);
                if (row < of.m && column < of.n)
                    store_plain(of.c + (row * of.n + column) * RESULT, make_uint4(w[0], w[1], w[2], w[3]));
            }
}

__device__ __forceinline__ void product(const Problem& of, u8* ring) {
    const u32 base = shared_address(ring);
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WM, warp_col = warp % WARPS_N * WN;

    Feeder feeder;
    feeder.aim(of, blockIdx.x);
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; ++s) {
#pragma unroll
        for (int part = 0; part < STEPS; ++part) feeder.feed(of, base + s * STAGE_BYTES, part);
        feeder.next(of);
    }

    int read = 0, write = STAGES - 1;
#pragma unroll 1
    for (int tile = blockIdx.x; tile < of.tiles(); tile += gridDim.x) {
        Sums sums = {};
#pragma unroll 1
        for (int stage = 0; stage < of.stages; ++stage) {
            copy_wait<STAGES - 2>();
            // One barrier for two reasons: all chunks of this stage are here, and the one before is free again.
            __syncthreads();
            Sums part = {};
            multiply_stage(PROMOTED ? part : sums, base + read * STAGE_BYTES, warp_row, warp_col, feeder, of,
                           base + write * STAGE_BYTES);
            if (PROMOTED) add(sums, part);
            feeder.next(of);
            read = read + 1 == STAGES ? 0 : read + 1;
            write = write + 1 == STAGES ? 0 : write + 1;
        }
        i64 row0, col0;
        of.place(tile, row0, col0);
        store_tile(of, sums, row0 + warp_row, col0 + warp_col);
    }
    copy_wait<0>();
}
