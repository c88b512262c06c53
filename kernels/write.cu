/* greenbench
family  = "memory"
summary = "Fill with values that depend on the index, 16-byte stores."
entry   = "write_index"
args    = ["a", "n"]
verify  = "write"
sources = ["STREAM (J. McCalpin), without its load"]
dtype   = "float32"
buffers = [{ name = "a", dtype = "float32", count = "n", fill = "poison" }]

[params]
n = 268435456

[launch]
block = 256
grid  = "min(ceil_div(n, 1024), 2147483647)"

[work]
bytes = "4 * n"
*/

// Limited by memory bandwidth. The value of element i is the float in [1, 2) whose 23 fraction bits are the upper bits of
// i * 2654435761 modulo 2^32: exact, different for neighbours, and made without a load or a conversion.
constexpr int THREADS = 256, VECTORS = 1;
constexpr i64 TILE = THREADS * VECTORS * 4;

__device__ __forceinline__ u32 value_bits(u32 i) {
    return 0x3f800000u | (i * 2654435761u) >> 9;
}

extern "C" __global__ void __launch_bounds__(THREADS) write_index(float* __restrict__ a, long long n) {
    for (i64 first = (i64)blockIdx.x * TILE; first < n; first += (i64)gridDim.x * TILE) {
        if (first + TILE <= n) {
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                const i64 at = first + 4 * threadIdx.x + j * 4 * THREADS;
                const u32 i = (u32)at;
                store_plain(a + at, make_uint4(value_bits(i), value_bits(i + 1), value_bits(i + 2), value_bits(i + 3)));
            }
        } else {
            for (i64 i = first + threadIdx.x; i < n; i += THREADS) a[i] = bits_float(value_bits((u32)i));
        }
    }
}
