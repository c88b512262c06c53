"""The schedule of stream_k.cuh, in Python: every step of every tile is done once, and nobody waits for a later CTA."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, strategies as st

from greenbench.catalog import Kernel, Variant, kernels_dir, load_kernel

FILES = ("gemm_bf16.sm_90a", "gemm_fp16.sm_90a", "gemm_tf32.sm_90a", "gemm_fp32.sm_90a", "gemm_fp8.sm_90a", "gemm_fp8_raw")
KERNELS: dict[str, Kernel] = {name: load_kernel(kernels_dir() / f"{name}.cu") for name in FILES}
KERNEL = KERNELS["gemm_bf16.sm_90a"]
VARIANTS = [(kernel, variant) for kernel in KERNELS.values() for variant in kernel.variants]
BM, LINE = 128, 128


def depth(kernel: Kernel) -> int:
    """Return the elements of a step along k: 128 bytes of them."""
    found = re.search(r"#define ELEMENT_BYTES (\d)", kernel.source)
    assert found
    return LINE // int(found[1])


H200 = (8, 16, 24, 32, 48, 64, 80, 96, 104, 112, 120, 128, 132)


@dataclass
class Schedule:
    """What struct Schedule computes, and what each unit then does; the constants are those of a kernel and its variant."""

    m: int
    n: int
    k: int
    grid: int
    columns_of_a_tile: int
    cluster: int
    depth: int
    split_gain: int
    min_share: int
    done: Counter[tuple[int, int]] = field(default_factory=Counter)
    left: dict[int, int] = field(default_factory=dict)
    waits: list[tuple[int, int, int]] = field(default_factory=list)
    busiest: int = 0

    def __post_init__(self) -> None:
        self.rows = -(-self.m // (BM * self.cluster))
        self.columns, self.steps = -(-self.n // self.columns_of_a_tile), -(-self.k // self.depth)
        self.units = self.grid // self.cluster
        self.tiles = self.rows * self.columns
        waves, rest = divmod(self.tiles, self.units)
        self.shared = rest + (self.units if waves else 0)
        steps = self.shared * self.steps
        self.sharers = self.units
        if waves == 0:
            self.sharers = max(min(self.units, steps // self.min_share), self.shared)
        self.share_steps, self.longer = divmod(steps, self.sharers)
        self.whole = (waves + 1) * self.steps
        self.cut = max(waves - 1, 0) * self.steps + self.share_steps + (self.longer > 0)
        self.splits = rest != 0 and self.whole > self.cut + self.split_gain
        if not self.splits:
            self.shared = 0
        for unit in range(self.units):
            self.run(unit)

    def share(self, which: int) -> int:
        """Return where a share begins."""
        return self.share_steps * which + min(which, self.longer)

    def run(self, unit: int) -> None:
        """Do what a unit does: its share, front of a tile last, then whole tiles."""
        at = until = 0
        if self.shared and unit < self.sharers:
            at, until = self.share(self.sharers - 1 - unit), self.share(self.sharers - unit)
        steps = until - at
        while at < until:
            tile, begin = divmod(at, self.steps)
            end = min(begin + until - at, self.steps)
            at += end - begin
            self.done.update((tile, step) for step in range(begin, end))
            if begin > 0:
                assert unit not in self.left, "a CTA has room for one partial tile"
                self.left[unit] = tile
            elif end < self.steps:
                self.collect(unit, tile)
        for tile in range(self.shared + unit, self.tiles, self.units):
            self.done.update((tile, step) for step in range(self.steps))
            steps += self.steps
        self.busiest = max(self.busiest, steps)

    def collect(self, unit: int, tile: int) -> None:
        """Note whom the holder of a front waits for, in order."""
        which, need = self.sharers - 1 - unit, (tile + 1) * self.steps
        while True:
            which += 1
            self.waits.append((unit, self.sharers - 1 - which, tile))
            if self.share(which + 1) >= need:
                return

    def place(self, tile: int) -> tuple[int, int]:
        """Return row and column of a tile."""
        group = 16 // self.cluster
        first, within = tile // (group * self.columns) * group, tile % (group * self.columns)
        height = min(self.rows - first, group)
        return first + within % height, within // height


def scheduled(kernel: Kernel, variant: Variant, m: int, n: int, k: int, sms: int) -> Schedule:
    """Return the schedule on a lane of so many SMs, with the grid that the front matter asks for."""
    env = kernel.environment({"m": m, "n": n, "k": k}, sms=sms, variant=variant)
    grid, constants = int(kernel.launch.grid[0].value(env)), (int(env[name]) for name in ("SPLIT_GAIN", "MIN_SHARE"))
    return Schedule(m, n, k, grid, int(env["BN"]), int(env["CLUSTER"]), depth(kernel), *constants)


@given(
    which=st.sampled_from(VARIANTS),
    m=st.integers(1, 3000),
    n=st.integers(1, 500).map(lambda n: 8 * n),
    k=st.integers(1, 300).map(lambda k: 16 * k),
    sms=st.integers(2, 148),
)
@example(which=VARIANTS[1], m=4096, n=4096, k=4096, sms=120)
@example(which=VARIANTS[2], m=1, n=8, k=8, sms=2)
@example(which=VARIANTS[2], m=16, n=4096, k=4096, sms=132)
def test_every_step_is_done_once_and_nobody_waits_for_a_later_cta(
    which: tuple[Kernel, Variant], m: int, n: int, k: int, sms: int
) -> None:
    """Tiles are covered without overlap, what is left is collected once by its tile's owner, and waits point to lower units.

    A lower CTA was started earlier and writes what it leaves before it waits for anyone, so there is no deadlock at any count.
    """
    plan = scheduled(*which, m, n, k, sms)
    assert len(plan.done) == plan.tiles * plan.steps
    assert set(plan.done.values()) == {1}
    assert sorted(unit for _, unit, _ in plan.waits) == sorted(plan.left)
    assert all(unit < owner and plan.left[unit] == tile for owner, unit, tile in plan.waits)
    places = {plan.place(tile) for tile in range(plan.tiles)}
    assert places == {(row, column) for row in range(plan.rows) for column in range(plan.columns)}


@given(
    which=st.sampled_from(VARIANTS),
    m=st.integers(1, 9000),
    n=st.integers(1, 1100).map(lambda n: 8 * n),
    k=st.integers(1, 550).map(lambda k: 16 * k),
    sms=st.integers(2, 148),
)
def test_the_cost_in_front_matter_is_the_schedule_of_the_source(
    which: tuple[Kernel, Variant], m: int, n: int, k: int, sms: int
) -> None:
    """[let] counts the steps of the busiest unit as the device code does, so the choice of a variant rests on what happens."""
    env = which[0].environment({"m": m, "n": n, "k": k}, sms=sms, variant=which[1])
    plan = scheduled(*which, m, n, k, sms)
    assert env["busiest"] == plan.busiest + (plan.split_gain if plan.splits else 0)


def chosen(m: int, n: int, k: int, sms: int) -> tuple[dict[str, int], bool]:
    """Return the macros of the variant for a lane, and whether it splits tiles."""
    variant = KERNEL.choose({"m": m, "n": n, "k": k}, sms)
    assert variant is not None
    return dict(variant.defines), scheduled(KERNEL, variant, m, n, k, sms).splits


def test_the_choice_is_what_was_measured_best() -> None:
    """On an H200, 4096³: alone below 80 SMs, pairs from there on; cut where a last wave is short, whole at 104 and 132."""
    found = {sms: chosen(4096, 4096, 4096, sms) for sms in H200}
    assert {defines["BN"] for defines, _ in found.values()} == {256}
    assert [sms for sms, (defines, _) in found.items() if defines["CLUSTER"] == 2] == [80, 96, 104, 112, 120, 128, 132]
    assert [sms for sms, (_, splits) in found.items() if splits] == [24, 48, 80, 96, 112, 120]
    assert chosen(8192, 8192, 8192, 132) == ({"BN": 256, "STAGES": 4, "CLUSTER": 2}, True)
    assert chosen(1024, 1024, 1024, 132) == ({"BN": 128, "STAGES": 6, "CLUSTER": 1}, False)
    assert chosen(16, 4096, 4096, 132) == ({"BN": 128, "STAGES": 6, "CLUSTER": 1}, True)


@pytest.mark.parametrize("sms", [3, 9, 131])
def test_an_odd_count_leaves_one_sm_to_pairs(sms: int) -> None:
    """With clusters of two the grid is rounded down; the kernel runs on what is left."""
    pairs = next(variant for variant in KERNEL.variants if dict(variant.defines)["CLUSTER"] == 2)
    assert scheduled(KERNEL, pairs, 1000, 1016, 520, sms).grid == sms - 1


def test_the_constants_of_this_file_are_those_of_the_source() -> None:
    """The tile and the group of rows are written in the source, not in its front matter."""
    source = (kernels_dir() / "gemm_wgmma.cuh").read_text(encoding="utf-8")
    assert f"BM = {BM}, BK = {LINE} / ELEMENT_BYTES;" in source
    assert "GROUP = CLUSTER > 1 ? 4 : 16;" in source
