/* greenbench
family  = "memory"
summary = "Rows of a table picked by an index, as an embedding or a page lookup does."
entry   = "gather"
args    = ["a", "b", "index", "rows", "d"]
verify  = "gather"
sources = ["definition: torch.index_select"]
min_cc  = [8, 0]
dtype   = "uint32"
yardstick = "torch"
buffers = [
    { name = "a",     dtype = "uint32", count = "rows * d", fill = "poison" },
    { name = "b",     dtype = "uint32", count = "rows * d", fill = "index" },
    { name = "index", dtype = "int32",  count = "rows", fill = "permutation" },
]

[params]
rows = 1048576
d = 256

[defines]
VECTORS = 4

[launch]
block = 128
grid  = "ceil_div(rows * d, 512 * VECTORS)"

[work]
bytes = "2 * 4 * rows * d + 4 * rows"
*/

// Limited by memory bandwidth, and by how DRAM and TLB take rows of 4*d bytes in random order; every row is read once and
// written once. A thread moves 16 bytes at a time: it looks up all its rows, loads all of them, then stores.
constexpr int THREADS = 128;

// Copies `Piece` by `Piece`; a row has `width` of them.
template <typename Piece>
struct Rows {
    Piece* to;
    const Piece* from;
    const int* index;
    u32 width;

    __device__ __forceinline__ const Piece* source(i64 row, u32 column) const {
        const u32 over = column / width;
        return from + (i64)index[row + over] * width + (column - over * width);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gather(u32* __restrict__ a, const u32* __restrict__ b, const int* __restrict__ index, long long rows, long long d) {
    if (d % 4 == 0) {
        const Rows<uint4> table = {(uint4*)a, (const uint4*)b, index, (u32)(d / 4)};
        const i64 first = (i64)blockIdx.x * (THREADS * VECTORS), end = rows * (d / 4);
        const i64 row = first / table.width;
        const u32 column = (u32)(first - row * table.width) + threadIdx.x;
        const uint4* from[VECTORS];
        uint4 x[VECTORS];
        bool inside[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            inside[j] = first + threadIdx.x + j * THREADS < end;
            from[j] = inside[j] ? table.source(row, column + j * THREADS) : table.from;
        }
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) x[j] = load_plain(from[j]);
#pragma unroll
        for (int j = 0; j < VECTORS; ++j)
            if (inside[j]) store_plain(table.to + first + threadIdx.x + j * THREADS, x[j]);
    } else {
        const Rows<u32> table = {a, b, index, (u32)d};
        const i64 first = (i64)blockIdx.x * (THREADS * VECTORS * 4), end = rows * d;
        const i64 row = first / d;
        const u32 column = (u32)(first - row * d);
        for (u32 i = threadIdx.x; i < THREADS * VECTORS * 4 && first + i < end; i += THREADS)
            table.to[first + i] = *table.source(row, column + i);
    }
}
