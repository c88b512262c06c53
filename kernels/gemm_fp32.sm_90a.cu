/* greenbench
family    = "gemm"
summary   = "C = A*B in float32 on the FMA units (warp-specialised, stream-K), no tensor cores."
entry     = "gemm_fp32"
args      = ["a", "b", "c", "partial", "flags", "m", "n", "k"]
verify    = "gemm"
sources   = ["PTX ISA: cp.async, mbarrier, TMA", "register banks, operand reuse: arXiv 2503.20481", "stream-K: arXiv 2301.03598"]
dtype     = "float32"
arch      = "sm_90a"
yardstick = "cublas"
require   = ["n % 4", "k % 4"]
buffers   = [
    { name = "a", dtype = "float32", count = "m * k", fill = "normal" },
    { name = "b", dtype = "float32", shape = ["k", "n"], fill = "normal", tensor_map = { box = ["BN", 32], l2_promotion = 256 } },
    { name = "c", dtype = "float32", count = "m * n", fill = "poison" },
    { name = "partial", dtype = "float32", count = "sms * PER_SM * 128 * BN", fill = "poison", access = "scratch" },
    { name = "flags", dtype = "uint32", count = "sms * PER_SM * BN // 32", fill = "zero", access = "scratch" },
]

# In steps of 32 along k: what cutting tiles must save to be done, and the least share that is worth a CTA.
[defines]
CLUSTER    = 1
SPLIT_GAIN = 2
MIN_SHARE  = 4

[params]
m = 1024
n = 1024
k = 1024

# The busiest CTA by the arithmetic of Schedule in stream_k.cuh: whole tiles, or the first ones cut into equal shares.
[let]
units   = "sms * PER_SM"
tiles   = "ceil_div(m, 128) * ceil_div(n, BN)"
steps   = "ceil_div(k, 32)"
waves   = "tiles // units"
sharers = "min(units, max(tiles, tiles * steps // MIN_SHARE))"
share   = "ceil_div((tiles % units + min(waves, 1) * units) * steps, sharers)"
whole   = "ceil_div(tiles, units) * steps"
cut     = "max(waves - 1, 0) * steps + share"
busiest = "min(whole, cut + SPLIT_GAIN)"

[launch]
block = "BN + 128"
grid  = "units"
smem  = "STAGES * (32 * 132 + 32 * BN) * 4 + 16 * STAGES + BN * 4"

# cost: columns times steps of the busiest CTA, times the CTAs that share an SM's FMA units.
[[variant]]
defines = { BN = 256, STAGES = 4, PER_SM = 1 }
cost = "busiest * BN * 100"
[[variant]]
defines = { BN = 128, STAGES = 3, PER_SM = 2 }
cost = "busiest * BN * 2 * 101"

[work]
flops = "2 * m * n * k"
bytes = "4 * (m * k + k * n + m * n)"
*/

// Limited by the FMA units: a warp issues an FFMA in 94 of 100 slots, 128 of them for 6 loads from shared memory.
//
// All three matrices are row-major: A[m][k], B[k][n], C[m][n]; n and k are multiples of 4 (16-byte rows), m is anything.
//
// Persistent and warp-specialised. The four warps of a producer fill a ring of STAGES: B through the copy engine, A by 4-byte
// asynchronous copies that turn it, so that a column of A lies in a row of shared memory, and four of its elements are one
// load. A consumer warp multiplies 64 x 64, a thread 16 x 8, with the fragments of the next k on their way from shared memory.
// Consumers wait for nothing but the ring, and for each other never.
//
// What decides is the register file: two banks, odd and even, give one operand each in a cycle. An FFMA needs three; one is
// kept from the FFMA before it (the walk along a row of C turns back at its end), so the others, of B and of C, must lie in
// different banks. The compiler sees to that, if it is free to place C: hence `quad`.
//
// Whole tiles that would leave SMs idle in the last wave are cut along k (stream_k.cuh).
// partial: a tile per CTA, of any content. flags: a word per consumer warp, zero at the start, and zero again at the end.
#define ELEMENT_BYTES 4
constexpr int BM = 128, BK = 128 / ELEMENT_BYTES;
constexpr int GROUP = 16 / CLUSTER;  // rows of tiles that are walked together, for the L2

#include "stream_k.cuh"

constexpr int TM = 16, TN = 8, LANES_M = 4, LANES_N = 8;  // of C: elements of a thread, lanes of a warp
constexpr int WARP_M = LANES_M * TM, WARP_N = LANES_N * TN;
constexpr int WARPS_N = BN / WARP_N, WARPS = BM / WARP_M * WARPS_N;
constexpr int PRODUCERS = 128, THREADS = WARPS * 32 + PRODUCERS;
constexpr int DEPTH = 4;               // of k in a turn of the inner loop
constexpr int A_PITCH = (BM + 4) * 4;  // bytes; keeps 16-byte alignment, and the copies of a warp in different banks
constexpr int B_PITCH = BN * 4;
constexpr int A_BYTES = BK * A_PITCH, STAGE_BYTES = A_BYTES + BK * B_PITCH;
constexpr int BARRIERS = STAGES * STAGE_BYTES;

static_assert(PER_SM * (BARRIERS + 16 * STAGES + B_PITCH + 1024) <= 233472, "shared memory of an SM");
static_assert(A_BYTES % 128 == 0 && STAGE_BYTES % 128 == 0, "the copy engine writes to multiples of 128 bytes");

struct Ring {
    u32 stage = 0, phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

// ---- Producer

// Copies one float, or writes zero where `bytes` is 0.
__device__ __forceinline__ void copy_float(u32 to, const float* from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Arrives once all copies of this thread have landed.
__device__ __forceinline__ void barrier_arrive_copied(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// A warp copies 4 rows x 8 columns of A at once. Rows below the matrix are left as they are: they yield rows of C that nobody
// stores. Columns beyond it become zeros, as the copy engine makes the rows of B beyond it.
__device__ __forceinline__ void produce(const float* a, const CUtensorMap* b, i64 m, i64 n, i64 k, u32 base) {
    const u32 full = base + BARRIERS, empty = full + 8 * STAGES;
    const int thread = threadIdx.x % PRODUCERS, row_in = thread / 32 * 4 + thread % 32 / 8, col_in = thread % 8;
    const i64 apart = 16 * k;
    Schedule work(m, n, k);
    Ring ring;
    while (work.next()) {
        int row, column;
        work.place(row, column);
        const int rows = (int)(m - (i64)row * BM < BM ? m - (i64)row * BM : BM) - row_in;
        const float* from = a + ((i64)row * BM + row_in) * k + work.begin * BK + col_in;
        int cols = (int)k - work.begin * BK - col_in;
#pragma unroll 1
        for (int step = work.begin; step < work.end; ++step, ring.advance(), from += BK, cols -= BK) {
            const u32 stage = base + ring.stage * STAGE_BYTES, barrier = full + 8 * ring.stage;
            barrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
            if (thread == 0) {
                barrier_expect(barrier, BK * B_PITCH);
                load_box(stage + A_BYTES, b, column * BN, step * BK, barrier);
            }
            const u32 to = stage + col_in * A_PITCH + row_in * 4;
            const float* at = from;
#pragma unroll
            for (int r = 0; r < BM; r += 16, at += apart) {
                if (r >= rows) break;
#pragma unroll
                for (int c = 0; c < BK; c += 8) copy_float(to + c * A_PITCH + r * 4, at + c, c < cols ? 4 : 0);
            }
            barrier_arrive_copied(barrier);
        }
    }
}

// ---- Consumers

__device__ __forceinline__ float4 load_shared(u32 from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
    return v;
}

// N / 4 quads of one k, a warp's lanes apart.
template <int N, int LANES>
__device__ __forceinline__ void fetch(float (&to)[N], u32 from) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 v = load_shared(from + i * LANES * 4);
        to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
}

__device__ __forceinline__ void multiply(float (&c)[TM][TN], const float (&a)[TM], const float (&b)[TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int jj = i % 2 ? TN - 1 - j : j;
            c[i][jj] = fmaf(a[i], b[jj], c[i][jj]);
        }
}

// One stage.
__device__ __forceinline__ void multiply(float (&c)[TM][TN], u32 from_a, u32 from_b) {
    float a[2][TM], b[2][TN];
    fetch<TM, LANES_M>(a[0], from_a);
    fetch<TN, LANES_N>(b[0], from_b);
#pragma unroll 1
    for (int turn = 0; turn < BK / DEPTH; ++turn, from_a += DEPTH * A_PITCH, from_b += DEPTH * B_PITCH)
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            // After the last of a stage this reads what follows (at the end of the ring, BN spare floats), and nobody uses it.
            fetch<TM, LANES_M>(a[(p + 1) % 2], from_a + (p + 1) * A_PITCH);
            fetch<TN, LANES_N>(b[(p + 1) % 2], from_b + (p + 1) * B_PITCH);
            multiply(c, a[p % 2], b[p % 2]);
        }
}

// Four sums for a 16-byte store. The compiler would keep them in four registers in a row from the first product on, which
// puts half of C into the bank of the b that it meets; `zero` is zero, which the compiler cannot know.
__device__ __forceinline__ uint4 quad(const float* c, u32 zero) {
    return make_uint4(float_bits(c[0]) ^ zero, float_bits(c[1]) ^ zero, float_bits(c[2]) ^ zero,
                      float_bits(c[3]) ^ zero);
}

// Leaves a warp's sums for the CTA that holds the front of this tile.
__device__ __forceinline__ void leave_warp(const float (&c)[TM][TN], float* partial, u32* flag, int lane, u32 zero) {
    uint4* to = (uint4*)partial + lane;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const uint4 v = quad(&c[i][j], zero);
            asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + (i * TN + j) * 8), "r"(v.x), "r"(v.y),
                         "r"(v.z), "r"(v.w)
                         : "memory");
        }
    __threadfence();
    __syncwarp();
    if (lane == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
}

// Adds what the same warp of another CTA left, and takes its flag down for the next launch.
__device__ __forceinline__ void collect_warp(float (&c)[TM][TN], const float* partial, u32* flag, int lane) {
    if (lane == 0) {
        u32 there = 0;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
        } while (!there);
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(0) : "memory");
    }
    __syncwarp();
    const float4* from = (const float4*)partial + lane;
#pragma unroll
    for (int i = 0; i < TM; i += 4) {
        float4 v[TN];
#pragma unroll
        for (int q = 0; q < TN; ++q)
            asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(v[q].x), "=f"(v[q].y), "=f"(v[q].z), "=f"(v[q].w)
                         : "l"(from + (i * TN + q * 4) * 8)
                         : "memory");
#pragma unroll
        for (int q = 0; q < TN; ++q) {
            float* to = &c[i + q * 4 / TN][q * 4 % TN];
            to[0] += v[q].x, to[1] += v[q].y, to[2] += v[q].z, to[3] += v[q].w;
        }
    }
}

__device__ __forceinline__ void consume(float* out, float* partial, u32* flags, i64 m, i64 n, i64 k, u32 base,
                                        int warp) {
    const u32 full = base + BARRIERS, empty = full + 8 * STAGES;
    const u32 zero = (u32)(k >> 63);
    const int lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * WARP_M + lane / LANES_N * 4;
    const int column = warp % WARPS_N * WARP_N + lane % LANES_N * 4;
    Schedule work(m, n, k);
    Ring ring;
    while (work.next()) {
        float c[TM][TN] = {};
#pragma unroll 1
        for (int step = work.begin; step < work.end; ++step, ring.advance()) {
            const u32 stage = base + ring.stage * STAGE_BYTES;
            barrier_wait(full + 8 * ring.stage, ring.phase);
            multiply(c, stage + row * 4, stage + A_BYTES + column * 4);
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * ring.stage);
        }

        const int mine = blockIdx.x * WARPS + warp;
        if (work.begin > 0) {
            leave_warp(c, partial + (i64)mine * TM * TN * 32, flags + mine, lane, zero);
            continue;
        }
        if (work.end < work.steps) {
            // From the next part of the tile to its last; the units that hold them go down.
            int other = work.unit;
            do {
                const int slot = --other * WARPS + warp;
                collect_warp(c, partial + (i64)slot * TM * TN * 32, flags + slot, lane);
            } while (work.share(work.sharers - other) < (work.tile + 1) * work.steps);
        }
        int tile_row, tile_column;
        work.place(tile_row, tile_column);
        const i64 r0 = (i64)tile_row * BM + row, c0 = (i64)tile_column * BN + column;
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            const i64 r = r0 + i / 4 * LANES_M * 4 + i % 4;
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                if (r < m && c0 + j * LANES_N < n) store_plain(out + r * n + c0 + j * LANES_N, quad(&c[i][j], zero));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, PER_SM)
    gemm_fp32(const float* __restrict__ a, const __grid_constant__ CUtensorMap b, float* __restrict__ c,
              float* __restrict__ partial, u32* __restrict__ flags, long long m, long long n, long long k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    u32 base;  // through asm, so that it is not computed again in every step
    asm volatile("mov.u32 %0, %1;" : "=r"(base) : "r"(shared_address(memory)));
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same for all lanes, and the compiler knows it

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(base + BARRIERS + 8 * i, 1 + PRODUCERS);  // full: the bytes of B, and every thread's part of A
            barrier_init(base + BARRIERS + 8 * (STAGES + i), WARPS);  // empty: every warp that reads the stage
        }
        barrier_init_fence();
        prefetch_map(&b);
    }
    __syncthreads();

    // 40 registers for a producer, the rest for the consumers: 168 for each of 384 threads, or 128 for each of 256.
    if (warp >= WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        produce(a, &b, m, n, k, base);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(PER_SM == 1 ? 232 : 216));
        consume(c, partial, flags, m, n, k, base, warp);
    }
}
