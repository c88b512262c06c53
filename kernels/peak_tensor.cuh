// The tensor cores of an SM at their peak: what all probes of them multiply, and what must come out.
//
// Every SM multiplies 128 rows of A with 256 columns of B, both along k, over and over: each instruction's part of A * B is added,
// and then that of A' * B, where A' is -A but for the first column of every instruction, which is 0. All else cancels, so that after
// `loops` of four such pairs element (i, j) is exactly 4 * loops * first(A, i) * first(B, j). The rest are whole numbers up to
// LARGEST, drawn by a hash: they keep the multipliers as busy as random numbers do (the clock depends on that), and every sum
// on the way is exact.
//
// Who includes this defines ELEMENT_BITS and LARGEST, and either MMA (a mma.sync of k = 32 bytes) or WGMMA (of 64 x 256).
constexpr int ROWS = 128, COLUMNS = 256, THREADS = 256;
constexpr int STEP_WORDS = 8;  // an instruction takes 32 bytes of every row, whatever their type
constexpr int PER_WORD = 32 / ELEMENT_BITS;

enum Operand { A, NEGATED_A, B };

__device__ __forceinline__ u32 mixed(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ __forceinline__ int first(Operand operand, int line) {
    return mixed(2 * line + (operand == B)) >> 31 ? -1 : 1;
}

// Element k of a row of A or a column of B, in the bits of its type.
__device__ __forceinline__ u32 element(Operand operand, int line, int k) {
    int value;
    if (k % (STEP_WORDS * PER_WORD) == 0) {
        value = operand == NEGATED_A ? 0 : first(operand, line);
    } else {
        const u32 drawn = mixed(0x9e3779b9u + 2 * (line * 1024 + k) + (operand == B)) >> 8;
        value = (int)(drawn % (2 * LARGEST + 1)) - LARGEST;
        if (operand == NEGATED_A) value = -value;
    }
    const u32 bits = float_bits((float)value);
    if (ELEMENT_BITS > 8) return bits >> (32 - ELEMENT_BITS);
    // e4m3: a sign, four bits of exponent (7 for 2^0, so 120 less than in float32), three of fraction.
    return value == 0 ? 0 : bits >> 31 << 7 | ((bits >> 20 & 0x7ff) - (120 << 3));
}

__device__ __forceinline__ u32 word_of(Operand operand, int line, int word) {
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < PER_WORD; ++i) bits |= element(operand, line, word * PER_WORD + i) << i * (ELEMENT_BITS % 32);
    return bits;
}

// What a thread has of a row goes into the row's sum of (2 j + 1) * c[i][j], modulo 2^32.
__device__ __forceinline__ u32 weighted(float c, int column) {
    return (u32)(int)c * (2 * column + 1);
}

#ifdef MMA
// With mma.sync: a warp has 64 x 64, one half of its columns after the other; its operands stay in registers.
constexpr int TILES_M = 4, TILES_N = 4, DEPTH = 4;

__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned." MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void multiply_half(u32* sums, const u32 (&a)[2][TILES_M][4], int row, int column,
                                              i64 loops) {
    const int lane = threadIdx.x % 32;
    u32 b[TILES_N][2];
    float c[TILES_M][TILES_N][4] = {};
#pragma unroll
    for (int j = 0; j < TILES_N; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) b[j][r] = word_of(B, column + 8 * j + lane / 4, lane % 4 + r * 4);
#pragma unroll 2
    for (int step = 0; step < (int)loops * DEPTH; ++step)
#pragma unroll
        for (int sign = 0; sign < 2; ++sign)
#pragma unroll
            for (int i = 0; i < TILES_M; ++i)
#pragma unroll
                for (int j = 0; j < TILES_N; ++j) mma(c[i][j], a[sign][i], b[j]);
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            u32 sum = 0;
#pragma unroll
            for (int j = 0; j < TILES_N; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) sum += weighted(c[i][j][2 * half + r], column + 8 * j + lane % 4 * 2 + r);
            atomicAdd(sums + row + 16 * i + 8 * half, sum);
        }
}

__device__ __forceinline__ void multiply(u32* sums, i64 loops) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / 4 * 64 + lane / 4;
    u32 a[2][TILES_M][4];
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int line = row + 16 * i + r % 2 * 8, word = lane % 4 + r / 2 * 4;
            a[0][i][r] = word_of(A, line, word), a[1][i][r] = word_of(NEGATED_A, line, word);
        }
#pragma unroll 1
    for (int half = 0; half < 2; ++half) multiply_half(sums, a, row, warp % 4 * 64 + half * 32, loops);
}
#endif

#ifdef WGMMA
// With wgmma: two warpgroups of 64 x 256 each, operands in shared memory in rows of 128 bytes with the swizzle of that width.
constexpr int ROW_WORDS = 32, DEPTH = 4;
constexpr int PANEL = 64 * 128;  // 64 rows: what a warpgroup has of A

__device__ __forceinline__ u64 operand(u32 address) {
    return 1ull << 62 | (u64)(1024 / 16) << 32 | 1ull << 16 | (address >> 4 & 0x3fff);
}

#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FLOATS_8(i)                                                                                             \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define FLOATS_32(i) FLOATS_8(i), FLOATS_8(i + 8), FLOATS_8(i + 16), FLOATS_8(i + 24)

__device__ __forceinline__ void wgmma(float (&c)[COLUMNS / 2], u64 a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned." WGMMA
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8)
                     TEN(9) TEN(10)
                         TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, " WGMMA_FLAGS ";\n}"
                 : FLOATS_32(0), FLOATS_32(32), FLOATS_32(64), FLOATS_32(96)
                 : "l"(a), "l"(b));
}

__device__ __forceinline__ void fill(unsigned char* to, Operand which, int lines) {
    for (int i = threadIdx.x; i < lines * ROW_WORDS; i += THREADS) {
        const int line = i / ROW_WORDS, word = i % ROW_WORDS;
        *(u32*)(to + line * 128 + ((word / 4 ^ line % 8) * 16 + word % 4 * 4)) = word_of(which, line, word);
    }
}

__device__ __forceinline__ void multiply(unsigned char* memory, u32* sums, i64 loops) {
    fill(memory, A, ROWS);
    fill(memory + 2 * PANEL, NEGATED_A, ROWS);
    fill(memory + 4 * PANEL, B, COLUMNS);
    shared_fence();
    __syncthreads();
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), lane = threadIdx.x % 32;
    const u32 base = shared_address(memory);
    const u64 a = operand(base + group * PANEL), negated = operand(base + (2 + group) * PANEL);
    const u64 b = operand(base + 4 * PANEL);
    float c[COLUMNS / 2] = {};
#pragma unroll 1
    for (i64 loop = 0; loop < loops; ++loop) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < DEPTH; ++s) {
            wgmma(c, a + 2 * s, b + 2 * s);
            wgmma(c, negated + 2 * s, b + 2 * s);
        }
        wgmma_commit();
        // The tensor cores never run dry: the next eight are queued while these are at work.
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        u32 sum = 0;
#pragma unroll
        for (int r = 0; r < COLUMNS / 4; ++r)
            sum += weighted(c[r / 2 * 4 + 2 * half + r % 2], r / 2 * 8 + lane % 4 * 2 + r % 2);
        atomicAdd(sums + threadIdx.x / 32 * 16 + lane / 4 + 8 * half, sum);
    }
}
#endif
