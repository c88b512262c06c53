// Enough of a GPU to run gemm_mma.cuh on the host, exactly: the threads of a CTA are fibers, the warps take turns at random,
// copies arrive no earlier than they are waited for, and fragments lie as the PTX ISA says.
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#define __device__
#define __forceinline__ inline
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
struct uint4 {
    u32 x, y, z, w;
};
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) {
    return {x, y, z, w};
}

#define REQUIRE(condition)                                                                           \
    do {                                                                                             \
        if (!(condition)) fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition), exit(1); \
    } while (0)

// ---- Threads.

constexpr int WARP = 32;
constexpr size_t STACK = 96 << 10;
struct Where {
    int x;
};
Where threadIdx, blockIdx, gridDim;

struct Copy {
    u32 to;
    const u8* from;
};
struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open;
    bool done = false;
};
struct Meeting {  // all of a warp, or all of the CTA, come together
    int arrived = 0, round = 0;
};

std::vector<Thread> threads;
std::vector<Meeting> warps;
Meeting cta;
ucontext_t scheduler;
void (*body)();

// Numbers that look random, the same in every run.
inline u32 chance() {
    static u32 state = 1;
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
}

// Returns when all are there; the last to come first does `act` for all.
template <class Act>
void meet(Meeting& meeting, int size, Act act) {
    const int self = threadIdx.x, round = meeting.round;
    if (++meeting.arrived == size) {
        act();
        meeting.arrived = 0, ++meeting.round;
    }
    while (meeting.round == round) {
        swapcontext(&threads[self].context, &scheduler);
        threadIdx.x = self;
    }
}

template <class Act>
void meet_warp(Act act) {
    meet(warps[threadIdx.x / WARP], WARP, act);
}

inline void __syncthreads() {
    meet(cta, (int)threads.size(), [] {});
}

void start() {
    body();
    threads[threadIdx.x].done = true;
}

// ---- Memory. What was not written holds POISON.

constexpr size_t SHARED = 96 << 10;
constexpr u8 POISON = 0x55;
alignas(128) u8 shared[SHARED];
std::vector<u8> a_memory, b_memory, c_memory, c_written;

inline bool within(const std::vector<u8>& memory, const void* at) {
    return at >= memory.data() && (const u8*)at + 16 <= memory.data() + memory.size() && (uintptr_t)at % 16 == 0;
}

inline u32 shared_address(const void* p) {
    return (u32)((const u8*)p - shared);
}

// Reads nothing before it is waited for; until then its place holds nothing of use.
inline void copy_async(u32 to, const void* from, bool wanted) {
    REQUIRE(to % 16 == 0 && to + 16 <= SHARED);
    REQUIRE(!wanted || within(a_memory, from) || within(b_memory, from));
    memset(shared + to, POISON, 16);
    threads[threadIdx.x].open.push_back({to, wanted ? (const u8*)from : nullptr});
}

inline void copy_commit() {
    Thread& self = threads[threadIdx.x];
    self.groups.push_back(std::move(self.open));
    self.open.clear();
}

template <int PENDING>
void copy_wait() {
    auto& groups = threads[threadIdx.x].groups;
    while ((int)groups.size() > PENDING) {
        for (const Copy& copy : groups.front())
            if (copy.from)
                memcpy(shared + copy.to, copy.from, 16);
            else
                memset(shared + copy.to, 0, 16);
        groups.erase(groups.begin());
    }
}

inline void store_plain(void* to, uint4 value) {
    REQUIRE(within(c_memory, to));
    for (int i = 0; i < 16; ++i) REQUIRE(!c_written[(u8*)to - c_memory.data() + i]++);
    memcpy(to, &value, 16);
}

// ---- Instructions of a warp.

u32 given[32][WARP];  // by warp and lane
u32* taken[32][WARP];
struct Operands {
    float* c;
    const u32* a;
    u32 b[2];
} operands[32][WARP];

template <bool TRANSPOSED>
void load(u32 (&r)[4], u32 row_address) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    given[warp][lane] = row_address, taken[warp][lane] = r;
    meet_warp([warp] {
        for (int matrix = 0; matrix < 4; ++matrix) {
            const u32* rows = given[warp] + 8 * matrix;
            int banks = 0;
            for (int row = 0; row < 8; ++row) banks |= 1 << rows[row] / 16 % 8;
            REQUIRE(banks == 0xff);  // no bank conflict
            for (int lane = 0; lane < WARP; ++lane)
                for (int half = 0; half < 2; ++half) {
                    const int row = TRANSPOSED ? lane % 4 * 2 + half : lane / 4;
                    const int column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + half;
                    memcpy((u8*)&taken[warp][lane][matrix] + 2 * half, shared + rows[row] + 2 * column, 2);
                }
        }
    });
}
inline void load_matrices(u32 (&r)[4], u32 row_address) {
    load<false>(r, row_address);
}
inline void load_matrices_transposed(u32 (&r)[4], u32 row_address) {
    load<true>(r, row_address);
}

inline u32 __shfl_xor_sync(u32, u32 value, int distance) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 got = value;
    given[warp][lane] = value, taken[warp][lane] = &got;
    meet_warp([warp, distance] {
        for (int to = 0; to < WARP; ++to) *taken[warp][to] = given[warp][to ^ distance];
    });
    return got;
}

// Where element i of a thread's fragments of A and B lies, by the formulas of the PTX ISA for m16n8k8 of .tf32 (one element in a
// register), m16n8k16 of .f16 and .bf16 (two), and m16n8k32 of .e4m3 (four).
template <int IN_REGISTER>
struct Fragment;
template <>
struct Fragment<1> {
    static int a_row(int g, int i) { return i == 0 || i == 2 ? g : g + 8; }
    static int a_column(int t, int i) { return i < 2 ? t : t + 4; }
    static int b_row(int t, int i) { return i == 0 ? t : t + 4; }
};
template <>
struct Fragment<2> {
    static int a_row(int g, int i) { return i < 2 || (4 <= i && i < 6) ? g : g + 8; }
    static int a_column(int t, int i) { return i < 4 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8; }
    static int b_row(int t, int i) { return i < 2 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8; }
};
template <>
struct Fragment<4> {
    static int a_row(int g, int i) { return i < 4 || (8 <= i && i < 12) ? g : g + 8; }
    static int a_column(int t, int i) { return i < 8 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16; }
    static int b_row(int t, int i) { return i < 4 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16; }
};

// c += a * b of whole numbers.
template <class Element>
void instruction(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    constexpr int IN_REGISTER = 4 / sizeof(Element), K = 8 * IN_REGISTER;
    typedef Fragment<IN_REGISTER> Place;
    const int warp = threadIdx.x / WARP;
    operands[warp][threadIdx.x % WARP] = {c, a, {b0, b1}};
    meet_warp([warp] {
        float left[16][K], right[K][8];
        for (int lane = 0; lane < WARP; ++lane) {
            const Operands& of = operands[warp][lane];
            const int g = lane / 4, t = lane % 4;
            for (int i = 0; i < 4 * IN_REGISTER; ++i)
                left[Place::a_row(g, i)][Place::a_column(t, i)] = ((const Element*)of.a)[i];
            for (int i = 0; i < 2 * IN_REGISTER; ++i) right[Place::b_row(t, i)][g] = ((const Element*)of.b)[i];
        }
        for (int lane = 0; lane < WARP; ++lane)
            for (int i = 0; i < 4; ++i)
                for (int k = 0; k < K; ++k)
                    operands[warp][lane].c[i] += left[lane / 4 + (i < 2 ? 0 : 8)][k] * right[k][lane % 4 * 2 + (i & 1)];
    });
}

// ---- A launch: one CTA after the other, on fresh shared memory.

void launch(int grid, int block, void (*kernel)()) {
    body = kernel, gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        memset(shared, POISON, SHARED);
        threads.clear(), threads.resize(block), warps.assign(block / WARP, {}), cta = {};
        for (Thread& thread : threads) {
            getcontext(&thread.context);
            thread.stack.resize(STACK);
            thread.context.uc_stack.ss_sp = thread.stack.data(), thread.context.uc_stack.ss_size = STACK;
            thread.context.uc_link = &scheduler;
            makecontext(&thread.context, start, 0);
        }
        for (int left = block; left > 0;) {
            const int warp = chance() % (block / WARP);  // some warps fall behind
            for (int i = warp * WARP; i < (warp + 1) * WARP; ++i)
                if (!threads[i].done) {
                    threadIdx.x = i;
                    swapcontext(&scheduler, &threads[i].context);
                    left -= threads[i].done;
                }
        }
    }
}
