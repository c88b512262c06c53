"""How float32 results leave gemm_wgmma.cuh, in Python: every sum lands where the copy engine looks for it, past no bank twice."""

from __future__ import annotations

from collections import Counter

from greenbench.catalog import kernels_dir

WARPS, LANES, COLUMNS = 4, 32, 32

# The lines of write_box that this file retells.
LINES = (
    "const int row = lane / 4, odd = row & 1;",
    "const u32 mine = (warp * 16 + row) * 128 + (((lane % 4 / 2) ^ row) * 16 ^ odd * 64) + lane % 2 * 8;",
    "const int w = i / 2, lower = i % 2;",
    "const float *near = c + 4 * w + 2 * lower, *far = near + 8;",
    "const u32 to = buffer + lower * 1024 + (mine ^ w * 32);",
    "store_two(to, odd ? far[0] : near[0], odd ? far[1] : near[1]);",
    "store_two(to ^ 64, odd ? near[0] : far[0], odd ? near[1] : far[1]);",
)


def stores(warp: int, lane: int) -> list[tuple[int, int]]:
    """Return (address in the buffer, first of two accumulators) of each 8-byte store of a lane, in order."""
    row, odd = lane // 4, lane // 4 & 1
    mine = (warp * 16 + row) * 128 + (((lane % 4 // 2) ^ row) * 16 ^ odd * 64) + lane % 2 * 8
    done = []
    for i in range(4):
        w, lower = i // 2, i % 2
        near = 4 * w + 2 * lower
        to = lower * 1024 + (mine ^ w * 32)
        done += [(to, near + 8 if odd else near), (to ^ 64, near if odd else near + 8)]
    return done


def place(warp: int, lane: int, accumulator: int) -> tuple[int, int]:
    """Return row and column of an accumulator, as wgmma deals out 64 rows."""
    eight, rest = divmod(accumulator, 4)
    return warp * 16 + lane // 4 + 8 * (rest // 2), 8 * eight + 2 * (lane % 4) + rest % 2


def swizzled(row: int, column: int) -> int:
    """Return where the copy engine looks for an element of a box 128 bytes wide."""
    return row * 128 + (column // 4 ^ row % 8) * 16 + column % 4 * 4


def test_every_sum_lands_where_the_copy_engine_looks_for_it() -> None:
    """64 x 32 elements, each written once, to its place in the swizzled box."""
    written = {}
    for warp in range(WARPS):
        for lane in range(LANES):
            for to, first in stores(warp, lane):
                written |= {to + 4 * i: place(warp, lane, first + i) for i in range(2)}
    assert written == {swizzled(row, column): (row, column) for row in range(64) for column in range(COLUMNS)}


def test_half_a_warp_meets_every_bank_once() -> None:
    """8-byte stores are done by 16 lanes at a time: 32 words in 32 banks."""
    for warp in range(WARPS):
        for half in (range(16), range(16, 32)):
            for each in zip(*(stores(warp, lane) for lane in half), strict=True):
                banks = Counter((to // 4 + i) % 32 for to, _ in each for i in range(2))
                assert len(banks) == 32


def test_this_file_retells_the_source() -> None:
    """The arithmetic above is that of write_box."""
    source = (kernels_dir() / "gemm_wgmma.cuh").read_text(encoding="utf-8")
    assert [line for line in LINES if line not in source] == []
