"""What the numbers mean that cuBLASLt gives for tile, stages and cluster of an algorithm: the enumerations of cublasLt.h.

The lists follow its order, which is the same from CUDA 12 to 13; tiles are rows x columns of the column-major result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

_FIRST_TILES = (
    "8x8 8x16 16x8 8x32 16x16 32x8 8x64 16x32 32x16 64x8 32x32 32x64 64x32 32x128 64x64 128x32 64x128 128x64 64x256 128x128 "
    "256x64 64x512 128x256 256x128 512x64 64x96 96x64 96x128 128x160 160x128 192x128 128x192 128x96 32x256 256x32"
)
# Then come all multiples of (rows, columns) up to an area, as far as they are not there yet.
_SERIES = ((8, 64, 49152), (64, 8, 65536))
_LAST_TILES = "256x512 256x1024 512x512 512x1024"
_LONGEST = 768

STAGES = {
    **dict(enumerate((f"{depth}x{count}" for depth in (16, 32, 64, 128) for count in range(1, 7)), 1)),
    **{25: "32x10", 26: "8x4", 27: "16x10", 28: "8x5", 31: "8x3"},
    **dict(enumerate((f"{depth}xauto" for depth in (8, 16, 32, 64, 128, 256, 768)), 32)),
}
_CLUSTERS = (
    "1x1 2x1 4x1 1x2 2x2 4x2 1x4 2x4 4x4 8x1 1x8 8x2 2x8 16x1 1x16 3x1 5x1 6x1 7x1 9x1 10x1 11x1 12x1 13x1 14x1 15x1 "
    "3x2 5x2 6x2 7x2 1x3 2x3 3x3 4x3 5x3 3x4 1x5 2x5 3x5 1x6 2x6 1x7 2x7 1x9 1x10 1x11 1x12 1x13 1x14 1x15"
)
CLUSTERS = dict(enumerate(_CLUSTERS.split(), 2))


@cache
def tiles() -> dict[int, str]:
    """Return the names of tiles by their number."""
    return dict(enumerate(dict.fromkeys(_tiles()), 1))


def _tiles() -> Iterator[str]:
    yield from _FIRST_TILES.split()
    for rows, columns, area in _SERIES:
        for high in range(rows, _LONGEST + 1, rows):
            yield from (f"{high}x{wide}" for wide in range(columns, min(_LONGEST, area // high) + 1, columns))
    yield from _LAST_TILES.split()
