"""Tails of co-located steps: known arrivals give known percentiles, too few give none, and a growing queue is told apart."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

from greenbench.arrivals import Arrivals, Process
from greenbench.tails import (
    LEAST,
    Metric,
    StepTimes,
    Tail,
    goodput_per_s,
    per_second,
    saturated,
    slowdown,
    tail,
    tail_columns,
)

SERVICE_NS = 100_000


def served(intended: tuple[int, ...], service_ns: int = SERVICE_NS) -> StepTimes:
    """Return the steps of the simplest queue: one server that takes them in order."""
    steps, free = [], intended[0] if intended else 0
    for due in intended:
        start = max(due, free)
        free = start + service_ns
        steps.append((due, start, free))
    return StepTimes.of(steps)


def at_load(load: float, count: int, process: Process = Process.FIXED, seed: int = 1) -> StepTimes:
    """Return the steps of a queue that is busy for this share of the time."""
    return served(Arrivals(process, load * 1e9 / SERVICE_NS, seed).first(count))


def with_latencies(latencies_ns: list[int]) -> StepTimes:
    """Return steps that are due a second apart and take these times."""
    return StepTimes.of((i * 10**9, i * 10**9, i * 10**9 + ns) for i, ns in enumerate(latencies_ns))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, Tail()),
        (6, Tail(p50=3)),
        (999, Tail(p50=500)),
        (1000, Tail(p50=500, p95=950)),
        (2999, Tail(p50=1500, p95=2850)),
        (3000, Tail(p50=1500, p95=2850, p99=2970)),
    ],
)
def test_percentiles_need_their_counts(count: int, expected: Tail) -> None:
    """Latencies of 1, 2, 3 ... us in any order: the rank is the percentile, and below 6, 1,000 and 3,000 there is none."""
    assert tail([float(us) for us in reversed(range(1, count + 1))]) == expected


def test_latency_counts_from_the_intended_start() -> None:
    """A step that waits 300 us and runs 100 us has a latency of 400 us, a wait of 300 us."""
    times = StepTimes.of([(0, 0, 400_000), (100_000, 400_000, 500_000)])
    assert times.latencies_us == [400, 400]
    assert times.waits_us == [0, 300]


@given(load=st.floats(0.05, 0.95), count=st.integers(1, 200))
def test_a_fixed_rate_below_capacity_waits_for_nothing(load: float, count: int) -> None:
    """With constant gaps and services below full load every latency is the service, and nothing grows."""
    times = at_load(load, count)
    assert set(times.latencies_us) == {SERVICE_NS / 1e3}
    assert not saturated(times)


@given(load=st.floats(1.02, 20), count=st.integers(16, 400))
def test_a_fixed_rate_above_capacity_is_saturated(load: float, count: int) -> None:
    """However little the load exceeds the capacity, the queue grows and there are no percentiles."""
    times = at_load(load, count)
    assert saturated(times)
    assert set(tail_columns(times, [Metric.STEP]).values()) == {None}
    assert slowdown(times, at_load(0.5, count)) is None


@pytest.mark.parametrize(("load", "count", "grows"), [(0.5, 50, False), (0.9, 1000, False), (1.2, 1000, True), (2, 200, True)])
def test_chance_is_told_from_growth(load: float, count: int, grows: bool) -> None:
    """Poisson arrivals: of 30 schedules none at 50 or 90 % is called growing, and all at 1.2 times the capacity or twice."""
    found = {saturated(at_load(load, count, Process.POISSON, seed)) for seed in range(30)}
    assert found == {grows}


@given(count=st.integers(0, 15), load=st.floats(0.1, 20))
def test_few_steps_say_nothing_of_growth(count: int, load: float) -> None:
    """Below 16 steps no queue is called saturated."""
    assert not saturated(at_load(load, count))


def test_columns_carry_the_metrics_of_the_workload() -> None:
    """A full-depth decode step fills step_us and itl_us with the same figures; names are those of CoRow."""
    columns = tail_columns(at_load(0.5, 3000), [Metric.STEP, Metric.ITL])
    assert columns == {f"{metric}_us_p{q}": SERVICE_NS / 1e3 for metric in ("step", "itl") for q in LEAST}


@given(bounds=st.tuples(st.integers(0, 50), st.integers(0, 50)))
def test_cutting_goes_by_the_intended_start(bounds: tuple[int, int]) -> None:
    """A step belongs to a window if it was due in it, wherever it ran; the rest of it stays as it was."""
    begin, end = min(bounds), max(bounds)
    times = StepTimes.of((due, 100 + due, 101 + due) for due in range(50))
    kept = times.due_within(begin, end)
    assert kept.intended_ns == tuple(range(begin, end))
    assert kept.start_ns == tuple(100 + due for due in range(begin, end))


def test_rates_are_over_the_time_that_steps_took() -> None:
    """Ten steps in 9.5 s; eight tokens each; those slower than the limit are no goodput."""
    times = with_latencies([500_000_000] * 8 + [900_000_000, 500_000_000])
    assert per_second(times) == pytest.approx(10 / 9.5)
    assert per_second(times, 8) == pytest.approx(80 / 9.5)
    assert goodput_per_s(times, 500_000) == pytest.approx(9 / 9.5)
    assert goodput_per_s(times, 499_999) == 0
    # In a window of 20 s, whatever the steps took of it.
    assert (per_second(times, 1, 20.0), per_second(times, 8, 20.0), goodput_per_s(times, 500_000, 20.0)) == (0.5, 4.0, 0.45)


def test_without_steps_nothing_was_measured() -> None:
    """No steps: empty, never 0."""
    none = StepTimes((), (), ())
    assert (per_second(none, 1, 5.0), goodput_per_s(none, 1, 5.0)) == (None, None)
    assert (per_second(none), goodput_per_s(none, 1), slowdown(none, none)) == (None, None, None)
    assert set(dataclasses.astuple(tail(none.latencies_us))) == {None}


def test_slowdown_is_the_ratio_of_medians() -> None:
    """Steps of 300 us beside the other role and of 100 us alone: 3."""
    assert slowdown(with_latencies([300_000] * 9), with_latencies([100_000] * 7)) == pytest.approx(3)


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        (((0, 1), (0,), (1, 2)), "2 intended, 1 start and 2 end times"),
        (((5, 4), (5, 5), (6, 6)), "the intended starts of steps fall"),
        (((0,), (5,), (4,)), "ends before it starts"),
    ],
)
def test_times_that_cannot_be(lists: tuple[tuple[int, ...], ...], said: str) -> None:
    """Stamps that contradict each other are refused, not averaged."""
    with pytest.raises(ValueError, match=said):
        StepTimes(*lists)
