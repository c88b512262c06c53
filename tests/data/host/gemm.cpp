// Runs gemm_mma.cuh on the host and compares with the exact product. How elements are encoded is nothing to the schedule, so they
// are whole numbers of their size here. The file's constants, the size of C's elements and the tile are macros.
#include "device.h"

CONSTANTS

template <int BYTES>
struct Whole;
template <>
struct Whole<1> {
    typedef int8_t type;
};
template <>
struct Whole<2> {
    typedef int16_t type;
};
template <>
struct Whole<4> {
    typedef int32_t type;
};
typedef Whole<OPERAND>::type Element;
typedef Whole<C_BYTES>::type Result;

void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    instruction<Element>(c, a, b0, b1);
}

std::conditional_t<C_BYTES == 4, u64, u32> pack(float low, float high) {
    const Result pair[2] = {(Result)low, (Result)high};
    std::conditional_t<C_BYTES == 4, u64, u32> packed;
    memcpy(&packed, pair, sizeof packed);
    return packed;
}

#include "gemm_mma.cuh"

template <class T>
T* matrix(std::vector<u8>& memory, i64 count) {
    memory.assign(count * sizeof(T), POISON);
    return (T*)memory.data();
}

int m, n, k;
Element *a, *b;
Result* c;

int main(int, char** given) {
    m = atoi(given[1]), n = atoi(given[2]), k = atoi(given[3]);
    a = matrix<Element>(a_memory, m * k), b = matrix<Element>(b_memory, n * k), c = matrix<Result>(c_memory, m * n);
    c_written.assign(c_memory.size(), 0);
    for (int i = 0; i < m * k; ++i) a[i] = (int)(chance() % 5) - 2;
    for (int i = 0; i < n * k; ++i) b[i] = (int)(chance() % 5) - 2;
    REQUIRE(STAGES * STAGE_BYTES <= (int)SHARED);

    launch(atoi(given[4]), THREADS, [] { product({a, b, c, m, n, k}, shared); });

    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            int sum = 0;
            for (int p = 0; p < k; ++p) sum += a[i * k + p] * (B_BY_COLUMNS ? b[j * k + p] : b[p * n + j]);
            if (c[i * n + j] != (Result)sum)
                return fprintf(stderr, "row %d, column %d: %d instead of %d\n", i, j, (int)c[i * n + j], sum), 1;
        }
    return 0;
}
