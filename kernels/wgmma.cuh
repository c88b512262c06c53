// The multiply-add of Hopper's tensor cores as a function: the 64 rows of a warpgroup times WGMMA_COLUMNS columns.
//
// The file that takes this in has set ELEMENT ("bf16", "f16", "e4m3" or "tf32", as wgmma calls them), ELEMENT_BYTES, and
// WGMMA_COLUMNS: 128, 192 or 256. A lies along k. So does B, but for elements of 2 bytes, which lie along n.
constexpr int WIDTH = WGMMA_COLUMNS;
constexpr bool B_ALONG_N = ELEMENT_BYTES == 2;

// Matrices in shared memory with the 128-byte swizzle; distances in units of 16 bytes. What lies along k: 1024 bytes to the
// next 8 rows. What lies along n: 64 rows of 128 bytes to the next 64 columns, 1024 bytes to the next 8 rows.
constexpr u64 ALONG_K = 1ull << 62 | (u64)(1024 / 16) << 32 | 1ull << 16;
constexpr u64 ALONG_N = 1ull << 62 | (u64)(1024 / 16) << 32 | (u64)(64 * 128 / 16) << 16;
constexpr u64 A_LAYOUT = ALONG_K, B_LAYOUT = B_ALONG_N ? ALONG_N : ALONG_K;

// From the part of a stage that one instruction multiplies to that of the next: 32 bytes of a row, or 16 rows.
constexpr int A_NEXT = 32, B_NEXT = B_ALONG_N ? 16 * 128 : 32;

__device__ __forceinline__ u64 operand(u64 layout, u32 address) {
    return layout | (address >> 4 & 0x3fff);
}

// The statement of wgmma names every accumulator, from %0 on, so macros write the list; the operands follow.
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FLOATS_8(i)                                                                                             \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define FLOATS_32(i) FLOATS_8(i), FLOATS_8(i + 8), FLOATS_8(i + 16), FLOATS_8(i + 24)
#define FIRST_60 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
#if WGMMA_COLUMNS == 256
#define SHAPE "m64n256"
#define LIST FIRST_60 TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define FLOATS FLOATS_32(0), FLOATS_32(32), FLOATS_32(64), FLOATS_32(96)
#define OPERANDS "%128, %129"
#define ADDS "%130"
#elif WGMMA_COLUMNS == 192
#define SHAPE "m64n192"
#define LIST FIRST_60 TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95"
#define FLOATS FLOATS_32(0), FLOATS_32(32), FLOATS_32(64)
#define OPERANDS "%96, %97"
#define ADDS "%98"
#elif WGMMA_COLUMNS == 128
#define SHAPE "m64n128"
#define LIST FIRST_60 "%60, %61, %62, %63"
#define FLOATS FLOATS_32(0), FLOATS_32(32)
#define OPERANDS "%64, %65"
#define ADDS "%66"
#else
#error "wgmma is written down for 128, 192 and 256 columns"
#endif

// What stands behind the operands: signs, and for elements of 2 bytes that A lies along k and B along n.
#if ELEMENT_BYTES == 1
#define TYPES "k32.f32." ELEMENT "." ELEMENT
#define MODES "1, 1"
#elif ELEMENT_BYTES == 2
#define TYPES "k16.f32." ELEMENT "." ELEMENT
#define MODES "1, 1, 0, 1"
#else
#define TYPES "k8.f32." ELEMENT "." ELEMENT
#define MODES "1, 1"
#endif

// 32 bytes of the rows of A times as much of the columns of B: c = A * B, or c += A * B.
__device__ __forceinline__ void wgmma(float (&c)[WIDTH / 2], u64 a, u64 b, int adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS ", 0;\nwgmma.mma_async.sync.aligned." SHAPE TYPES " {" LIST
                 "}, " OPERANDS ", p, " MODES ";\n}"
                 : FLOATS
                 : "l"(a), "l"(b), "r"(adds));
}

// 128 bytes of them, started and left to run.
__device__ __forceinline__ void wgmma_stage(float (&c)[WIDTH / 2], u64 a, u64 b, int adds) {
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma(c, a + s * A_NEXT / 16, b + s * B_NEXT / 16, s > 0 ? 1 : adds);
    wgmma_commit();
}
