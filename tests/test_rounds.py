"""Order, stopping and drift: the rules that a sweep applies between blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from greenbench.experiments.rounds import DRIFTS_ALLOWED, SENTINELS_FOR_MEDIAN, SentinelWatch, Tally, permutation
from greenbench.schema import Block, BlockKind, BlockStatus, Partition, Point, SmsMode


def point(sms: int, kernel: str = "copy", connections: int | None = None) -> Point:
    """A point that differs where the test wants it to."""
    return Point(kernel, (("n", 1024),), Partition(SmsMode.COUNT, sms), connections=connections)


def block(seq: int, time_us: float | None, round_: int = 1, status: BlockStatus = BlockStatus.OK) -> Block:
    """A block whose samples are all the same."""
    made = Block.visit(point(8), status, kind=BlockKind.BLOCK, round_=round_)
    return replace(made, seq=seq, samples_us=() if time_us is None else (time_us,) * 3)


POINTS = st.lists(
    st.builds(point, st.integers(1, 132), st.sampled_from(["copy", "triad"]), st.sampled_from([None, 1, 8, 32])),
    unique=True,
    max_size=40,
)


# -- order -----------------------------------------------------------------------------------------------------------------


@given(points=POINTS, seed=st.integers(0, 2**63 - 1), round_=st.integers(1, 20))
def test_a_round_visits_every_point_once_key_by_key(points: list[Point], seed: int, round_: int) -> None:
    """Property: a permutation of all points, the same for the same seed and round, with the points of one worker together."""
    order = permutation(points, seed, round_)
    assert sorted(map(repr, order)) == sorted(map(repr, points))
    assert order == permutation(points, seed, round_)
    keys = [each.connections for each in order]
    changes = sum(a != b for a, b in pairwise(keys))
    assert changes == max(len(set(keys)) - 1, 0)


def test_order_depends_on_seed_and_round() -> None:
    """Rounds of one run differ from each other, and two seeds give different runs."""
    points = [point(sms) for sms in range(8, 133, 8)]
    orders = {tuple(permutation(points, seed, round_)) for seed in (1, 2) for round_ in range(1, 7)}
    assert len(orders) == 12
    assert tuple(points) not in orders


def test_keys_alternate() -> None:
    """Workers of different environments do not always come in the same order."""
    points = [point(8, connections=key) for key in (1, 8, 32)]
    assert len({permutation(points, 7, round_)[0].connections for round_ in range(1, 20)}) == 3


# -- stopping --------------------------------------------------------------------------------------------------------------


def tallied(*times: float) -> Tally:
    """A tally of blocks with these medians."""
    tally = Tally(0.05)
    for place, time_us in enumerate(times):
        tally.add(block(place, time_us, round_=place + 1))
    return tally


def test_a_narrow_interval_ends_a_point() -> None:
    """Six equal blocks are precise; five have no interval at all, so fewer rounds than asked for never end a point early."""
    assert tallied(*[10.0] * 6).settled(6, 15)
    assert not tallied(*[10.0] * 5).settled(6, 15)
    assert not tallied(*[10.0] * 6).settled(7, 15)


def test_a_wide_interval_goes_on_to_the_last_round() -> None:
    """2 % between blocks is not precise at 6 rounds, nor at 14; 15 are the most."""
    wide = [10.0, 10.2] * 8
    assert not tallied(*wide[:6]).settled(6, 15)
    assert not tallied(*wide[:14]).settled(6, 15)
    assert tallied(*wide[:15]).settled(6, 15)


def test_fewer_than_six_rounds_are_what_was_asked_for() -> None:
    """`--rounds 2` alone means exactly two, although two blocks have no interval."""
    assert tallied(10.0, 11.0).settled(2, 2)
    assert not tallied(10.0).settled(2, 2)


def test_blocks_taken_back_are_made_up_for() -> None:
    """What drifted no longer counts towards the end of a point; a block of another point changes nothing."""
    tally = tallied(*[10.0] * 6)
    assert not tally.take_back([77])
    assert tally.settled(6, 15)
    assert tally.take_back([2, 77])
    assert not tally.settled(6, 15)
    assert not tally.take_back([2])


# -- sentinel --------------------------------------------------------------------------------------------------------------


def watched(*times: float) -> tuple[SentinelWatch, list[list[int]]]:
    """Read sentinels of these times, with two blocks before each; return what each took back."""
    watch, lost = SentinelWatch(), []
    for place, time_us in enumerate(times):
        watch.visited(10 * place)
        watch.visited(10 * place + 1)
        lost.append(watch.read(block(10 * place + 2, time_us)))
    return watch, lost


def test_a_steady_sentinel_takes_nothing_back() -> None:
    """Up to 1 % of its median the device counts as steady."""
    watch, lost = watched(100.0, 100.5, 99.5, 100.9, 99.4, 100.0)
    assert lost == [[]] * 6
    assert not watch.unsteady


def test_a_step_takes_the_stretch_before_it_back() -> None:
    """2 % off: the two blocks since the last good sentinel are lost, none before and none after."""
    _, lost = watched(100.0, 100.0, 100.0, 102.0, 100.0)
    assert lost == [[], [], [], [30, 31], []]


def test_the_first_sentinels_make_the_median() -> None:
    """With fewer than three there is nothing to be off from."""
    assert SENTINELS_FOR_MEDIAN == 3
    _, lost = watched(100.0, 110.0, 120.0)
    assert lost == [[], [], []]


def test_more_drifts_than_redoing_can_mend() -> None:
    """Three steps can be made up for; with the fourth the machine is called unsteady. Each tells its stretch."""
    jumps = [100.0, 100.0, 100.0] + [103.0, 97.0] * 2
    watch, lost = watched(*jumps)
    assert lost[3:] == [[30, 31], [40, 41], [50, 51], [60, 61]]
    assert watch.drifts == DRIFTS_ALLOWED + 1
    assert watch.unsteady
    assert not watched(*jumps[:-1])[0].unsteady


@pytest.mark.parametrize("status", [BlockStatus.DISCARDED, BlockStatus.FAILED])
def test_a_sentinel_that_does_not_count_judges_nothing(status: BlockStatus) -> None:
    """A throttled sentinel is no evidence of drift; the stretch waits for the next good one."""
    watch, _ = watched(100.0, 100.0, 100.0)
    watch.visited(40)
    assert watch.read(block(41, 150.0, status=status)) == []
    assert watch.read(block(42, None)) == []
    assert watch.read(block(43, 103.0)) == [40]
