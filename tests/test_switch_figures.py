"""Figures of tenants by hand: windows, shares, turns, overlap, what an L2 kept, energy; and laws that hold for any stamps."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from greenbench.switching.figures import (
    Operations,
    Window,
    energy_mj_per_op,
    gap_us,
    l2_retained_pct,
    overlap_frac,
    share_pct,
    step_tail,
    switch_us,
    throughput_per_s,
    turn_gaps_ns,
    window,
)
from greenbench.tails import StepTimes


def closed(*spans: tuple[int, int], reported: tuple[float, ...] = ()) -> Operations:
    """A closed loop: each operation is due when the one before ended, the first at 0."""
    starts, ends = zip(*spans, strict=True) if spans else ((), ())
    return Operations(StepTimes((0, *ends[:-1])[: len(ends)], tuple(starts), tuple(ends)), reported)


def turns(count: int, tenants: int = 2, work: int = 100_000, gap: int = 137_000) -> list[Operations]:
    """Tenants in turn: operations of `work` ns with `gap` between any two."""
    spans = [(i * (work + gap), i * (work + gap) + work) for i in range(count)]
    return [closed(*spans[who::tenants]) for who in range(tenants)]


def test_the_window_is_when_all_are_at_work() -> None:
    """From the later first due to the earlier last end, less a twentieth; none where one tenant ended nothing."""
    first = Operations(StepTimes((0,), (10,), (2000,)))
    second = Operations(StepTimes((1000,), (1000,), (3000,)))
    assert window([first, second]) == Window(1050, 2000)
    assert window([first, closed()]) is None
    assert window([]) is None
    assert window([first, Operations(StepTimes((5000,), (5000,), (6000,)))]) is None


def test_throughput_and_its_share_of_one_process() -> None:
    """Two tenants in turn for 101 us with 137 between: an operation each 238 us, 42 % of one that has no wait."""
    tenants = turns(2000, work=101_000)
    within = window(tenants)
    assert within is not None
    alone = [closed(*((i * 101_000, (i + 1) * 101_000) for i in range(2000)))]
    whole = window(alone)
    assert whole is not None
    assert throughput_per_s(tenants, within) == pytest.approx(1e9 / 238_000, rel=2e-3)
    assert throughput_per_s(alone, whole) == pytest.approx(1e9 / 101_000, rel=2e-3)
    assert share_pct(throughput_per_s(tenants, within), throughput_per_s(alone, whole)) == pytest.approx(42.4, abs=0.2)
    assert share_pct(1.0, None) is None
    assert share_pct(None, 1.0) is None


def test_tails_count_the_wait_for_the_others() -> None:
    """An operation is due when the one before has ended: of 4 tenants in turn it takes 4 turns, and p95 needs 1,000 of them."""
    tenants = turns(1200, tenants=4)
    within = window(tenants)
    assert within is not None
    found = step_tail(tenants, within)
    assert found.p50 == pytest.approx(4 * 237.0)
    assert found.p95 == pytest.approx(4 * 237.0)
    assert found.p99 is None


def test_turns_are_told_by_a_change_of_tenant() -> None:
    """Only where the tenant changes; where operations interleave there is no gap, and few gaps give no figure."""
    assert switch_us(turns(14)) == pytest.approx(137.0)
    assert turn_gaps_ns([closed((0, 10), (12, 20), (50, 60)), closed((27, 40))]) == [7, 10]
    assert turn_gaps_ns([closed((0, 100)), closed((10, 20), (30, 40))]) == []
    assert turn_gaps_ns([closed((0, 10), (11, 20))]) == []
    assert switch_us(turns(6)) is None


def test_an_interrupted_operation_hides_the_changes_inside_it() -> None:
    """The other's operations lie inside it; the change that follows its end is seen."""
    assert turn_gaps_ns([closed((0, 100), (101, 150)), closed((40, 60), (155, 170))]) == [5]


def test_overlap_is_the_share_of_time_when_two_are_under_way() -> None:
    """Of 100 ns: 20 with two, 10 with three; what lies outside the window does not count, and one tenant has none."""
    tenants = [closed((0, 50)), closed((30, 60)), closed((40, 50), (90, 200))]
    assert overlap_frac(tenants, Window(0, 100)) == pytest.approx(0.20)
    assert overlap_frac(tenants, Window(35, 45)) == pytest.approx(1.0)
    assert overlap_frac(tenants[:1], Window(0, 100)) is None
    assert overlap_frac(turns(20), Window(0, 1_000_000)) == 0.0


def test_an_l2_is_asked_after_others_were_at_work() -> None:
    """The first of each says nothing; the second of A follows its own, the third one of B's; alone all but the first count."""
    a = closed((0, 10), (11, 20), (50, 60), reported=(0.0, 1000.0, 250.0))
    b = closed((21, 30), (31, 40), reported=(0.0, 900.0))
    assert l2_retained_pct([a, b]) == pytest.approx(25.0)
    assert l2_retained_pct([a]) == pytest.approx((100.0 + 25.0) / 2)
    assert l2_retained_pct([closed((0, 10), (11, 20)), closed((3, 5))]) is None
    side_by_side = closed((0, 100), (100, 200), reported=(0.0, 500.0))
    assert l2_retained_pct([side_by_side, closed((5, 150), (150, 250))]) == pytest.approx(50.0)


def test_energy_needs_two_seconds_and_a_counter_that_rises() -> None:
    """1,400 J over 2,000 operations are 700 mJ each; a short window, a missing reading and a reloaded driver give none."""
    assert energy_mj_per_op(100.0, 1_400_100.0, 2.0, 2000) == pytest.approx(700.0)
    assert energy_mj_per_op(100.0, 1_400_100.0, 1.9, 2000) is None
    assert energy_mj_per_op(None, 1.0, 3.0, 5) is None
    assert energy_mj_per_op(2.0, 1.0, 3.0, 5) is None
    assert energy_mj_per_op(1.0, 2.0, 3.0, 0) is None


def test_the_gap_of_a_resize_is_between_the_phases() -> None:
    """From the last end of any tenant to the first start of any; phases that cross say nothing."""
    assert gap_us([closed((0, 1000)), closed((0, 2000))], [closed((52_000, 60_000)), closed((90_000, 95_000))]) == 50.0
    assert gap_us([closed((0, 1000))], [closed((500, 600))]) is None
    assert gap_us([closed()], [closed((1, 2))]) is None


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=30)


@given(per_tenant=st.lists(spans, min_size=1, max_size=4))
def test_gaps_and_overlap_add_up_to_no_more_than_the_time(per_tenant: list[list[tuple[int, int]]]) -> None:
    """Gaps are not negative and disjoint; with the time in which two are at work they fit into the window."""
    tenants = []
    for pieces in per_tenant:
        now, found = 0, []
        for wait, work in pieces:
            found.append((now + wait, now + wait + work))
            now += wait + work
        tenants.append(closed(*found))
    gaps = turn_gaps_ns(tenants)
    last = max(end for tenant in tenants for end in tenant.times.end_ns)
    share = overlap_frac(tenants, Window(0, last)) or 0.0
    assert all(gap >= 0 for gap in gaps)
    assert sum(gaps) + round(share * last) <= last
    assert 0.0 <= share <= 1.0


@given(
    works=st.lists(st.integers(1, 1000), min_size=2, max_size=40),
    gap=st.integers(0, 500),
    tenants=st.integers(2, 5),
)
def test_every_turn_of_a_round_is_found(works: list[int], gap: int, tenants: int) -> None:
    """Tenants in turn, any work: as many gaps as there are changes, all of the length that was put there."""
    starts = [0, *itertools.accumulate(work + gap for work in works[:-1])]
    made = list(zip(starts, (start + work for start, work in zip(starts, works, strict=True)), strict=True))
    assert turn_gaps_ns([closed(*made[who::tenants]) for who in range(tenants)]) == [gap] * (len(works) - 1)
