// What kernels of decoding share on Hopper: few columns (rows of x, or heads) against much memory. For sm_90a alone.
//
// The copy engine brings boxes of 128 bytes a row, swizzled, and wgmma takes them from shared memory: no thread ever touches an
// element of the big operand, so that a few warps keep up with the link of an SM.
#include "shares.cuh"

constexpr int COLUMNS = 8;

// Matrices in shared memory with the 128-byte swizzle: rows of 128 bytes, 1024 bytes to the next 8 rows. The same for operands
// that lie along k and for those that lie across it (of the second kind, 64 elements wide).
__device__ __forceinline__ u64 operand(u32 address) {
    return 1ull << 62 | (u64)(1024 / 16) << 32 | 1ull << 16 | (address >> 4 & 0x3fff);
}

// 64 rows by 8 columns, over 16 of k: c = A * B, or c += A * B. A lies across k where ACROSS is 1.
template <int ACROSS>
__device__ __forceinline__ void multiply(float (&c)[4], u64 a, u64 b, int adds) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, %7, 0;\n}"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "l"(a), "l"(b), "r"(adds), "n"(ACROSS));
}

// A ring of COUNT stages in shared memory, with a pair of barriers each: full and empty.
template <int COUNT>
struct Stages {
    u32 barriers, stage = 0, phase = 0;

    __device__ __forceinline__ explicit Stages(u32 at) : barriers(at) {}

    // By one thread: so many arrive for a stage that is full, and for one that is empty again.
    __device__ __forceinline__ void init(int writers, int readers) const {
        for (int i = 0; i < COUNT; ++i)
            barrier_init(barriers + 8 * i, writers), barrier_init(barriers + 8 * (COUNT + i), readers);
        barrier_init_fence();
    }
    __device__ __forceinline__ u32 full() const { return barriers + 8 * stage; }
    __device__ __forceinline__ u32 empty() const { return barriers + 8 * (COUNT + stage); }
    __device__ __forceinline__ void wait_full() const { barrier_wait(full(), phase); }
    __device__ __forceinline__ void wait_empty() const { barrier_wait(empty(), phase ^ 1); }
    __device__ __forceinline__ void advance() {
        if (++stage == COUNT) stage = 0, phase ^= 1;
    }
};

// Whether this CTA is the last of `count` to come here for a tile, and then all parts are there. For all 128 threads of a
// warpgroup; `word` is 4 bytes of shared memory, `barrier` a named one. Leaves `arrived` as it was: zero.
__device__ __forceinline__ bool arrives_last(u32* arrived, int count, u32* word, int barrier) {
    __threadfence();
    named_sync(barrier, 128);
    if (threadIdx.x % 128 == 0) {
        const bool last = atomicAdd(arrived, 1u) == (u32)count - 1;
        if (last) *arrived = 0;
        *word = last;
    }
    named_sync(barrier, 128);
    const bool last = *(volatile u32*)word;
    __threadfence();
    return last;
}
