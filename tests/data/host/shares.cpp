// decode.cuh's sums of who works on what, on the host: `shares TILES STEPS CTAS` prints a line "cta tile first last slot whole"
// for every segment, and a line "tile first count slot..." for every tile.
#include <cstdio>
#include <cstdlib>

#define __device__
#define __forceinline__ inline
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
struct Where {
    int x;
};
Where blockIdx, gridDim, threadIdx;
inline int min(int a, int b) {
    return a < b ? a : b;
}
#include "shares.cuh"

int main(int, char** given) {
    const int tiles = atoi(given[1]), steps = atoi(given[2]);
    gridDim.x = atoi(given[3]);
    const Shares shares(tiles, steps);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        const int end = shares.begin(blockIdx.x + 1);
        for (int at = shares.begin(blockIdx.x); at < end;) {
            const Segment part(shares, at, end);
            printf("segment %d %d %d %d %d %d\n", blockIdx.x, part.tile, part.first, part.last, part.slot(),
                   part.whole);
            at += part.last - part.first;
        }
    }
    for (int tile = 0; tile < tiles; ++tile) {
        const Parts parts(shares, tile);
        printf("tile %d %d %d", tile, parts.first, parts.count);
        for (int i = 0; i < parts.count; ++i) printf(" %d", parts.slot(i));
        printf("\n");
    }
}
