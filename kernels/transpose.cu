/* greenbench
family  = "memory"
summary = "Transpose of a matrix of 32-bit elements through swizzled tiles of 64 x 64."
entry   = "transpose"
args    = ["a", "b", "rows", "cols"]
verify  = "transpose"
sources = ["definition: torch.Tensor.t, contiguous"]
min_cc  = [8, 0]
dtype   = "uint32"
yardstick = "torch"
buffers = [
    { name = "a", dtype = "uint32", count = "rows * cols", fill = "poison" },
    { name = "b", dtype = "uint32", count = "rows * cols", fill = "index" },
]

[params]
rows = 16384
cols = 16384

[defines]
THREADS = 256

[launch]
block = "THREADS"
grid  = "ceil_div(rows, 64) * ceil_div(cols, 64)"

[work]
bytes = "2 * 4 * rows * cols"
*/

// Limited by memory bandwidth: both sides are read and written in whole lines of 128 bytes. A tile lies in shared memory with
// its 16-byte pieces permuted, so that neither the rows that come in nor the columns that go out meet a bank twice. CTAs
// walk along the rows that are read: blocks of tiles, as long in DRAM on both sides, were slower on few SMs of an H200.
constexpr int TILE = 64, PIECES = TILE / 4;
constexpr int LOADS = TILE * PIECES / THREADS;
static_assert(LOADS * THREADS == TILE * PIECES, "all threads load in every step");

// Where element (row, 4 * piece) of a tile lies.
__device__ __forceinline__ int place(int row, int piece) {
    return row * TILE + (piece ^ (row / 4 % 8)) * 4;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose(u32* __restrict__ a, const u32* __restrict__ b, long long rows, long long cols) {
    __shared__ __align__(16) u32 tile[TILE * TILE];
    const u32 across = (u32)((cols + TILE - 1) / TILE);
    const i64 row0 = (i64)(blockIdx.x / across) * TILE, col0 = (i64)(blockIdx.x % across) * TILE;
    const int tid = threadIdx.x;
    if (row0 + TILE <= rows && col0 + TILE <= cols && rows % 4 == 0 && cols % 4 == 0) {
        uint4 x[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            const int at = tid + j * THREADS;
            x[j] = load_plain(b + (row0 + at / PIECES) * cols + col0 + at % PIECES * 4);
        }
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            const int at = tid + j * THREADS;
            *(uint4*)&tile[place(at / PIECES, at % PIECES)] = x[j];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            // A warp writes four columns of 32 rows.
            const int at = tid + j * THREADS, warp = at / 32, lane = at % 32;
            const int row = warp % 2 * 32 + lane % 8 * 4, col = warp / 2 * 4 + lane / 8;
            const u32* from = tile + place(row, col / 4) + col % 4;
            store_plain(a + (col0 + col) * rows + row0 + row,
                        make_uint4(from[0], from[TILE], from[2 * TILE], from[3 * TILE]));
        }
    } else {
        const int height = (int)min((i64)TILE, rows - row0), width = (int)min((i64)TILE, cols - col0);
        for (int at = tid; at < height * width; at += THREADS) {
            const int row = at / width, col = at % width;
            tile[place(row, col / 4) + col % 4] = b[(row0 + row) * cols + col0 + col];
        }
        __syncthreads();
        for (int at = tid; at < height * width; at += THREADS) {
            const int row = at % height, col = at / height;
            a[(col0 + col) * rows + row0 + row] = tile[place(row, col / 4) + col % 4];
        }
    }
}
