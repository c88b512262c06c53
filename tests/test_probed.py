"""References of the latency probes: what a right launch leaves passes, and each thing that can be wrong is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from greenbench.fills import fill
from greenbench.verify import check

POISON = 2**64 - 1
LINES = 64
Buffers = dict[str, Any]


def outcome(name: str, buffers: Buffers, **params: int) -> tuple[float, str]:
    """Error and sentence of a check; every tolerance is 0."""
    error, tolerance, detail = check(name, np, buffers, params, {})
    assert tolerance == 0
    return error, detail


def cycle() -> Any:
    """The lines of a chase."""
    return fill(np, "cycle", "uint64", 16 * LINES, 7)


def walked(nodes: Any, hops: int) -> int:
    """The line that so many hops from line 0 end at."""
    at = 0
    for _ in range(hops):
        at = int(nodes[16 * at]) // 128
    return at


def word(value: int, dtype: str = "uint64") -> Any:
    """A buffer of one word."""
    return np.array([value], dtype)


@pytest.mark.parametrize("hops", [1, 100, 3 * LINES])
def test_a_chase_ends_where_the_cycle_says(hops: int) -> None:
    """The right line passes; another one, poison, and cycles that no walk can take do not."""
    nodes = cycle()
    right = {"nodes": nodes, "end": word(walked(nodes, hops)), "cycles": word(30 * hops)}
    assert outcome("chase_index", right, hops=hops)[0] == 0
    for wrong in ({"end": word((walked(nodes, hops) + 1) % LINES)}, {"end": word(POISON)}, {"cycles": word(POISON)}):
        assert outcome("chase_index", right | wrong, hops=hops)[0] > 0
    assert "cannot take" in outcome("chase_index", right | {"cycles": word(hops - 1)}, hops=hops)[1]


def slices(sms: int = 5) -> Buffers:
    """What l2_slices leaves: the SMs report in any order."""
    starts = np.arange(sms) * LINES // sms * 128
    order = np.random.default_rng(1).permutation(sms)
    ends = np.stack([starts[order], starts[order]], axis=1).astype(np.uint64).ravel()
    per_sm = (LINES * (280 + order)).astype(np.uint64)
    return {"nodes": cycle(), "ends": ends, "per_sm": per_sm, "cycles": word(LINES * 282)}


@pytest.mark.parametrize(("percentile", "cycles"), [(0, 280), (50, 282), (100, 284)])
def test_percentiles_over_the_sms(percentile: int, cycles: int) -> None:
    """What is reported is that value of those that the SMs left, and no neighbour of it."""
    buffers = slices() | {"cycles": word(LINES * cycles)}
    assert outcome("l2_slices", buffers, lines=LINES, percentile=percentile)[0] == 0
    buffers["cycles"] = word(LINES * cycles + 1)
    assert "percentile" in outcome("l2_slices", buffers, lines=LINES, percentile=percentile)[1]


def test_an_sm_that_is_missing_or_astray() -> None:
    """An SM without a value, a walk that does not come back, and two walks from one place are told."""
    buffers = slices()
    buffers["per_sm"][3] = 0
    assert outcome("l2_slices", buffers, lines=LINES, percentile=50) == (1.0, "1 of 5 SMs did not report")
    for place in ([0], [0, 1]):
        buffers = slices()
        buffers["ends"][place] = (buffers["ends"][0] + np.uint64(128)) % np.uint64(128 * LINES)
        assert outcome("l2_slices", buffers, lines=LINES, percentile=50)[0] > 0


BASE = 0x7F00_0000_0000


def halves(half: int, hops: int) -> Buffers:
    """What l2_halves leaves: even lines are near, odd ones far, each half linked in ascending order."""
    nodes = cycle().reshape(LINES, 16)
    for line in range(LINES):
        nodes[line, 1] = BASE + 128 * ((line + 2) % LINES)
        nodes[line, 2], nodes[line, 3] = 250 + 40 * (line % 2), line % 2
    end = (half + 2 * hops) % LINES
    state = np.array([1, BASE, BASE, BASE + 128, BASE + 128 * end, 0, 0, 0], np.uint64)
    return {"nodes": nodes.ravel(), "state": state, "cycles": word(250 * hops)}


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("hops", [5, LINES // 2, 1000])
def test_halves_that_are_cycles(half: int, hops: int) -> None:
    """Both halves pass with the line that the walk ends at, and with no other."""
    buffers = halves(half, hops)
    assert outcome("l2_halves", buffers, lines=LINES, half=half, hops=hops)[0] == 0
    buffers["state"][4] += np.uint64(128)
    assert "ended at line" in outcome("l2_halves", buffers, lines=LINES, half=half, hops=hops)[1]


@pytest.mark.parametrize(
    ("line", "column", "value", "said"),
    [(4, 3, 1, "31 of 64 lines are near"), (4, 2, 300, "near lines took longer"), (4, 1, BASE, "before all 32 lines were met")],
)
def test_halves_that_are_none(line: int, column: int, value: int, said: str) -> None:
    """A line in the wrong half, a near line that is slow, and a shortcut in the cycle are told."""
    buffers = halves(0, 10)
    buffers["nodes"].reshape(LINES, 16)[line, column] = value
    assert said in outcome("l2_halves", buffers, lines=LINES, half=0, hops=10)[1]


def alone(hops: int) -> Buffers:
    """What a lone thread leaves: Fibonacci numbers modulo 2^32."""
    mask, current, returned = 2**32 - 1, 1, 1
    for _ in range(hops):
        current, returned = (current + returned) & mask, current
    return {"sums": word(current, "uint32"), "last": word(returned, "uint32"), "cycles": word(40 * hops)}


@pytest.mark.parametrize("hops", [1, 3, 4096])
def test_a_lone_chain_of_atomics(hops: int) -> None:
    """The sequence passes; one add more or less, or another last value, does not."""
    buffers = alone(hops)
    assert outcome("atomic", buffers, addresses=1, hops=hops)[0] == 0
    assert outcome("atomic", buffers | {"sums": alone(hops + 1)["sums"]}, addresses=1, hops=hops)[0] == 1
    assert outcome("atomic", buffers | {"last": word(2**32 - 1, "uint32")}, addresses=1, hops=hops)[0] == 1


@pytest.mark.parametrize("stride", [1, 8])
@pytest.mark.parametrize(("threads", "addresses"), [(64, 1), (64, 6), (4, 6)])
def test_atomics_add_up(stride: int, threads: int, addresses: int) -> None:
    """Exact sums in words side by side or a sector apart; a lost add, and one that was counted twice, are told."""
    hops, words = 10, np.arange(threads) % addresses
    sums = np.zeros((addresses, stride), np.uint32)
    sums[:, 0] = np.bincount(words, minlength=addresses) * hops
    last = np.arange(threads, dtype=np.uint32)
    last[: min(threads, addresses)] = sums[: min(threads, addresses), 0] - 1
    last[min(threads, addresses) :] = 0
    buffers = {"sums": sums.ravel(), "last": last, "cycles": word(1000)}
    assert outcome("atomic", buffers, addresses=addresses, hops=hops)[0] == 0
    lost = sums.copy()
    lost[0, 0] -= 1
    assert outcome("atomic", buffers | {"sums": lost.ravel()}, addresses=addresses, hops=hops)[0] > 0
    twice = last.copy()
    twice[0] -= 1
    assert outcome("atomic", buffers | {"last": twice}, addresses=addresses, hops=hops)[0] > 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda passed: passed.__setitem__((2, 0), 131), "1 of 4 CTAs passed another number of barriers than 132"),
        (lambda passed: passed.__setitem__((1, 1), 3), "3 times a CTA was past a barrier"),
    ],
)
def test_barriers_hold(spoil: Callable[[Any], None], said: str) -> None:
    """All CTAs through all barriers pass; one short, and one that was early, are told."""
    passed = np.zeros((4, 2), np.uint64)
    passed[:, 0] = 132
    buffers = {"passed": passed.ravel(), "cycles": word(10**6)}
    assert outcome("grid_sync", buffers, barriers=100)[0] == 0
    spoil(passed)
    error, detail = outcome("grid_sync", {"passed": passed.ravel(), "cycles": word(10**6)}, barriers=100)
    assert error > 0
    assert said in detail
