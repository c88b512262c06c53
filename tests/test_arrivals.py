"""Arrivals: absolute times that a seed fixes, and that have the rate and the spread that was asked for."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from greenbench.arrivals import NS_PER_S, Arrivals, Process

PINNED = (30213, 1102938, 2080515, 3392334)

rates = st.floats(0.01, 1e6)
schedules = st.builds(
    Arrivals, st.sampled_from(Process), rates, st.integers(0, 2**63 - 1), st.sampled_from(["latency", "background"])
)


@given(arrivals=schedules, count=st.integers(0, 60))
def test_a_schedule_is_fixed_by_what_it_was_asked_for(arrivals: Arrivals, count: int) -> None:
    """The same request gives the same rising times after zero, whoever asks and however many."""
    times = arrivals.first(count)
    assert times == Arrivals(arrivals.process, arrivals.rate_per_s, arrivals.seed, arrivals.role).first(count + 5)[:count]
    assert len(times) == count
    assert all(time >= 0 for time in times)
    assert list(times) == sorted(times)


@given(arrivals=schedules, count=st.integers(1, 60))
def test_until_is_what_comes_before_a_time(arrivals: Arrivals, count: int) -> None:
    """Arrivals up to a time are the first ones, and no earlier one is missing."""
    *before, last = arrivals.first(count)
    assert arrivals.until(last) == tuple(time for time in before if time < last)


@given(rate=rates, count=st.integers(1, 2000))
def test_a_fixed_rate_does_not_drift(rate: float, count: int) -> None:
    """Arrival i is at i / rate to the ns, also after thousands of them."""
    assert Arrivals(Process.FIXED, rate).first(count)[-1] == round(count * (NS_PER_S / rate))


@given(seed=st.integers(0, 1000), factor=st.sampled_from([2, 4, 8]))
def test_another_rate_is_the_same_pattern(seed: int, factor: int) -> None:
    """At a multiple of the rate the same arrivals come in a fraction of the time, so that rates differ by the load alone."""
    slow = Arrivals(Process.POISSON, 100, seed).first(50)
    fast = Arrivals(Process.POISSON, 100 * factor, seed).first(50)
    assert all(abs(a - b * factor) <= factor for a, b in zip(slow, fast, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """Mean and spread of 5,000 gaps are 1 / rate, and a share of 1/e exceeds it, all within five standard errors."""
    times = (0, *Arrivals(Process.POISSON, 1000, seed).first(5000))
    gaps = [(later - earlier) / 1e6 for earlier, later in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(1, abs=5 / math.sqrt(5000))
    assert spread == pytest.approx(1, abs=10 / math.sqrt(5000))
    assert sum(gap > 1 for gap in gaps) / len(gaps) == pytest.approx(1 / math.e, abs=0.035)


def test_roles_and_seeds_have_patterns_of_their_own() -> None:
    """Two roles of a run, and two seeds of a role, share no arrival time."""
    asked = [(1, "latency"), (1, "background"), (2, "latency")]
    found = [set(Arrivals(Process.POISSON, 1000, seed, role).first(100)) for seed, role in asked]
    assert not any(a & b for a, b in itertools.combinations(found, 2))


def test_a_seed_means_the_same_everywhere() -> None:
    """These times are written down: another Python or machine must not change what a recorded seed stands for."""
    assert Arrivals(Process.POISSON, 1000, 1, "latency").first(4) == PINNED


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf])
def test_a_rate_is_above_zero(rate: float) -> None:
    """A rate that gives no schedule is refused before one is drawn."""
    with pytest.raises(ValueError, match="a rate is above 0"):
        Arrivals(Process.FIXED, rate)
