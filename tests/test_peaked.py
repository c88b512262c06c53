"""The ceiling probes' arithmetic done over in numpy: every sum on the way is exact, and references take it and nothing else."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from greenbench import fills
from greenbench.catalog import kernels_dir, load_kernel
from greenbench.peaked import mixed
from greenbench.verify import check

Matrix = np.ndarray[Any, Any]
TENSOR = ("peak_tensor", "peak_tensor_fp8", "peak_tensor_tf32")
# What an accumulator holds exactly: 24 bits of float32; of e4m3 products 14 are known of Hopper and Ada, so 12 are safe.
EXACT = {16: 2**24, 32: 2**24, 8: 2**12}


def macros(file: str) -> dict[str, int]:
    """The integers that a probe defines."""
    text = (kernels_dir() / file).read_text()
    return {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)$", text, re.MULTILINE)}


def first(lines: Matrix, of_b: bool) -> Matrix:
    """What every instruction adds in the first place of a row of A or a column of B."""
    return np.where(mixed(2 * lines + of_b) >> np.uint32(31), -1, 1)


def operand(lines: int, depth: int, step: int, largest: int, *, of_b: bool) -> Matrix:
    """A or B as the kernels draw them, [line][k]."""
    line, k = np.meshgrid(np.arange(lines), np.arange(depth), indexing="ij")
    drawn = (mixed(0x9E3779B9 + 2 * (line * 1024 + k) + of_b) >> np.uint32(8)) % np.uint32(2 * largest + 1)
    return np.where(k % step == 0, first(line, of_b), drawn.astype(np.int64) - largest)


@pytest.mark.parametrize("name", TENSOR)
def test_both_files_of_a_tensor_probe_draw_the_same(name: str) -> None:
    """One reference stands for mma.sync and wgmma, so type and range must agree."""
    assert macros(f"{name}.cu") == macros(f"{name}.sm_90a.cu") != {}


@pytest.mark.parametrize("name", TENSOR)
def test_the_tensor_probes_add_up_exactly(name: str) -> None:
    """Loops of + A B and + A' B leave four first products each; no sum on the way needs more bits than there are."""
    given = macros(f"{name}.cu")
    step, loops = 256 // given["ELEMENT_BITS"], 3
    a = operand(128, 4 * step, step, given["LARGEST"], of_b=False)
    b = operand(256, 4 * step, step, given["LARGEST"], of_b=True)
    negated = np.where(np.arange(4 * step) % step == 0, 0, -a)
    c, largest = np.zeros((128, 256), np.int64), 0
    for k, part in itertools.product([*range(0, 4 * step, step)] * loops, (a, negated)):
        c = c + part[:, k : k + step] @ b[:, k : k + step].T
        largest = max(largest, int(np.abs(c).max()))
    assert largest + 4 * dict(load_kernel(kernels_dir() / f"{name}.cu").params)["loops"] < EXACT[given["ELEMENT_BITS"]]
    assert (c == 4 * loops * np.outer(first(np.arange(128), False), first(np.arange(256), True))).all()
    sums = (c * (2 * np.arange(256) + 1)).sum(axis=1) % 2**32
    out = np.tile(sums.astype(np.uint32), 5)
    assert check("peak_tensor", np, {"out": out}, {"loops": loops}, {})[0] == 0
    assert check("peak_tensor", np, {"out": out}, {"loops": loops + 1}, {})[0] == 5 * 128
    out[300] += 1
    error, tolerance, detail = check("peak_tensor", np, {"out": out}, {"loops": loops}, {})
    assert (error, tolerance) == (1, 0)
    assert detail.startswith("row 44 of SM 2 sums to ")


def test_random_operands_are_few_of_them_zero() -> None:
    """The hash spreads over the whole range, so that the multipliers have work: a tenth of the values would not do."""
    a = operand(128, 64, 16, 255, of_b=False)
    assert len(np.unique(a)) > 500
    assert (a == 0).mean() < 0.01
    assert abs(float(a.mean())) < 10


def test_the_chains_of_peak_fma_add_up_exactly() -> None:
    """Every chain ends with loops * d * (y0 + y1); the largest sum on the way stays below 2^24."""
    loops, threads, chains = 2, 512, np.arange(64)

    def drawn(at: Matrix, largest: int) -> Matrix:
        return (mixed(at) >> np.uint32(8)).astype(np.int64) % (2 * largest + 1) - largest

    y = drawn(0x9E3779B9 + np.arange(2 * threads).reshape(threads, 2), 1023)
    k, d = drawn(2 * chains, 2047), np.where(mixed(2 * chains + 1) >> np.uint32(31), -1, 1)
    assert len(np.unique(k)) > 50
    c, largest = np.zeros((threads, 64), np.int64), 0
    for factor in (k, d - k) * loops:
        for i in range(2):
            c = c + y[:, i : i + 1] * factor
            largest = max(largest, int(np.abs(c).max()))
    assert largest + 2 * 1023 * dict(load_kernel(kernels_dir() / "peak_fma.cu").params)["loops"] < 2**24
    sums = (c * (2 * chains + 1)).sum(axis=1) % 2**32
    out = np.tile(sums.astype(np.uint32), 3)
    assert check("peak_fma", np, {"out": out}, {"loops": loops}, {})[0] == 0
    out[513] ^= 1
    error, _, detail = check("peak_fma", np, {"out": out}, {"loops": loops}, {})
    assert error == 1
    assert detail.startswith("thread 1 of SM 1 sums to ")


def test_every_pass_of_l2_read_counts() -> None:
    """The sum of b as often as there are passes, modulo 2^32; one tile too few in one pass is an error of its sum."""
    b = fills.fill(np, "index", "uint32", 3 * 8192, 7)
    once = int(b.sum(dtype=np.uint64)) % 2**32
    params = {"n": b.size, "passes": 5}
    partial = np.array([once, once, 0, 3 * once % 2**32], np.uint32)
    assert check("l2_read", np, {"b": b, "partial": partial}, params, {})[0] == 0
    tile = int(b[8192:16384].sum(dtype=np.uint64))
    short = np.array([(5 * once - tile) % 2**32], np.uint32)
    error = check("l2_read", np, {"b": b, "partial": short}, params, {})[0]
    assert error == min(tile % 2**32, -tile % 2**32) > 0


@pytest.mark.parametrize("name", [*TENSOR, "peak_fma"])
def test_declared_flops_are_those_of_the_loops(name: str) -> None:
    """Per SM and loop: 128 x 256 products over four instructions' depth, or two steps of 64 chains in 512 threads, twice."""
    kernel = load_kernel(kernels_dir() / f"{name}.cu")
    env = kernel.environment({"loops": 7}, sms=3)
    assert kernel.flops is not None
    bits = macros(f"{name}.cu").get("ELEMENT_BITS", 0)
    per_loop = 2 * 128 * 256 * (4 * 256 // bits) if bits else 2 * 512 * 64 * 2
    assert kernel.flops.value(env) == 3 * 7 * 2 * per_loop
    assert kernel.launch.grid[0].value(env) == 3
