"""Order statistics against published ranks and against what must hold for any data."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from greenbench import stats

TIMES = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)


def many(least: int, most: int = 40) -> st.SearchStrategy[list[float]]:
    """Lists of positive times."""
    return st.lists(TIMES, min_size=least, max_size=most)


def coverage(n: int, k: int) -> float:
    """Probability that the k-th smallest and the k-th largest of n enclose the median, summed the slow way."""
    return sum(math.comb(n, i) for i in range(k, n - k + 1)) / 2**n


def test_the_median_of_nothing_is_an_error() -> None:
    """There is no number that could stand for it."""
    with pytest.raises(ValueError, match="no values"):
        stats.median([])
    assert stats.median([3, 1, 2]) == 2
    assert stats.median([4, 1, 2, 3]) == 2.5


def test_six_values_are_the_fewest_with_a_95_percent_interval() -> None:
    """Five reach 93.75 % at most, so they have none; of six the interval is the whole range."""
    assert stats.median_interval([1, 2, 3, 4, 5]) is None
    assert stats.median_interval([6, 1, 5, 2, 4, 3]) == (1, 6)
    assert stats.median_interval([]) is None


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (15, 4, 12), (20, 6, 15), (30, 10, 21), (100, 40, 61), (1000, 469, 532)],
)
def test_ranks_of_the_interval_are_those_of_the_tables(n: int, low: int, high: int) -> None:
    """Ranks of the 95 % interval of a median as printed in tables of order statistics (n = 20: 6 to 15)."""
    assert stats.median_interval(list(range(1, n + 1))) == (low, high)


def test_the_interval_is_the_narrowest_that_covers() -> None:
    """At every n and confidence the ranks chosen cover, and one rank further in they would not."""
    for n, confidence in itertools.product(range(1, 90), (0.5, 0.9, 0.95, 0.99)):
        k = stats.median_rank(n, confidence)
        assert k == 0 or coverage(n, k) >= confidence
        if 2 * (k + 1) <= n:
            assert coverage(n, k + 1) < confidence


def test_the_interval_survives_many_samples() -> None:
    """Thousands of values neither overflow nor underflow: the normal approximation agrees."""
    k = stats.median_rank(10_000, 0.95)
    assert abs(k - (5000 - 1.96 * 50)) <= 1.5
    assert abs(stats.median_rank(10**7, 0.95) - (10**7 / 2 - 1.959964 * 10**3.5 / 2)) <= 1.5


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.96875, 0.99, 1 - 2.0**-9])
def test_ranks_are_those_of_whole_numbers(confidence: float) -> None:
    """Up to 400 values the rank is the one that exact integers give, also where a coverage is met to the last bit."""
    asked = Fraction(confidence).limit_denominator(10**12)
    for n in range(1, 400):
        binomial, below, k = 1, 0, 0
        while k < n // 2:
            below += binomial
            if 1 - Fraction(2 * below, 2**n) < asked:
                break
            k += 1
            binomial = binomial * (n - k + 1) // k
        assert stats.median_rank(n, confidence) == k, n


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 2,000 samples of 12 normal values, between 95 and 98.5 % of intervals hold the true median (exact: 96.1 %)."""
    source = random.Random(7)
    draws = [stats.median_interval([source.gauss(0, 1) for _ in range(12)]) for _ in range(2000)]
    held = sum(1 for draw in draws if draw and draw[0] <= 0 <= draw[1])
    assert 0.95 <= held / 2000 <= 0.985


@given(many(6))
def test_the_interval_brackets_the_median(xs: list[float]) -> None:
    """The median lies inside, and both ends are values that occurred."""
    interval = stats.median_interval(xs)
    assert interval is not None
    assert interval[0] <= stats.median(xs) <= interval[1]
    assert set(interval) <= set(xs)


@given(many(6), st.randoms())
def test_order_does_not_matter(xs: list[float], source: random.Random) -> None:
    """Every statistic of a permutation is that of the list."""
    mixed = source.sample(xs, len(xs))
    for of in (stats.median, stats.median_interval, stats.noise_pct, stats.half_width_pct, stats.is_bimodal):
        assert of(mixed) == of(xs)
    assert stats.percentile(mixed, 50, 1) == stats.percentile(xs, 50, 1)


@given(many(6), st.sampled_from([0.5, 2.0, 1024.0]))
def test_relative_measures_do_not_depend_on_the_unit(xs: list[float], factor: float) -> None:
    """Noise, half width and modes are the same in us and in ns; the interval scales."""
    scaled = [factor * x for x in xs]
    assert stats.noise_pct(scaled) == pytest.approx(stats.noise_pct(xs))
    assert stats.half_width_pct(scaled) == pytest.approx(stats.half_width_pct(xs))
    assert stats.is_bimodal(scaled) == stats.is_bimodal(xs)


@given(many(6), st.floats(min_value=1, max_value=1e6))
def test_one_outlier_does_not_move_the_interval_off_the_rest(xs: list[float], factor: float) -> None:
    """However slow one block is, the lower end stays a value of the others and the median stays in their range."""
    slow = [*xs, max(xs) * factor]
    interval = stats.median_interval(slow)
    assert interval is not None
    assert min(xs) <= interval[0] <= max(xs)
    assert min(xs) <= stats.median(slow) <= max(xs)


def test_half_width_is_half_the_interval_over_the_median() -> None:
    """(106 - 100) / 2 over 103 for six values; None where there is no interval."""
    assert stats.half_width_pct([100, 102, 102, 104, 105, 106]) == pytest.approx(100 * 3 / 103)
    assert stats.half_width_pct([100, 101]) is None


def test_noise_is_the_interquartile_range_over_the_median() -> None:
    """Quartiles of 1..5 are 2 and 4, of the median 3; below four values there are none."""
    assert stats.noise_pct([1, 2, 3, 4, 5]) == pytest.approx(100 * 2 / 3)
    assert stats.noise_pct([7, 7, 7, 7]) == 0
    assert stats.noise_pct([1, 2, 3]) is None


def test_percentiles_are_values_that_occurred() -> None:
    """Nearest rank: of 1..1000 the 95th percentile is 950, of 1..3000 the 99th is 2970, of 1..10000 the 99.9th is 9990."""
    assert stats.percentile(range(1, 1001), 95, stats.P95_LEAST) == 950
    assert stats.percentile(range(1, 3001), 99, stats.P99_LEAST) == 2970
    assert stats.percentile(range(1, 10001), 99.9, 3000) == 9990
    assert stats.percentile([5], 50, 1) == 5


def test_too_few_values_give_no_percentile() -> None:
    """The design prints p95 from 1,000 and p99 from 3,000; one value fewer is None."""
    assert stats.percentile(range(2999), 99, stats.P99_LEAST) is None
    assert stats.percentile(range(999), 95, stats.P95_LEAST) is None
    assert stats.percentile(range(299), 99, 300) is None


def test_a_tail_needs_enough_values_whatever_is_asked() -> None:
    """59 for p95, 299 for p99, 2,995 for p99.9: below, the largest value may be under the percentile."""
    assert [stats.fewest_for_tail(q) for q in (95, 99, 99.9)] == [59, 299, 2995]
    assert stats.percentile(range(298), 99, 1) is None
    assert stats.percentile(range(58), 95, 0) is None
    assert stats.percentile(range(59), 95, 0) is not None


@pytest.mark.parametrize("q", [0, 100, -1, 101])
def test_a_percentile_lies_between_0_and_100(q: float) -> None:
    """0.99 for 99 is caught as well, since a tail is asked with its number in per cent."""
    with pytest.raises(ValueError, match="between 0 and 100"):
        stats.percentile([1, 2, 3], q, 1)


@given(many(59, 200))
def test_percentiles_do_not_cross(xs: list[float]) -> None:
    """A higher percentile is never below a lower one, and none is outside the data."""
    found = [stats.percentile(xs, q, 1) for q in (5, 25, 50, 75, 95)]
    assert None not in found
    assert found == sorted(found, key=lambda value: value or 0)
    assert min(xs) <= (found[0] or 0) <= (found[-1] or 0) <= max(xs)


def test_two_clock_modes_are_found() -> None:
    """Blocks at 100 and 104 us, a third of them slow, are two modes; 102 us would be within 3 %."""
    near = [100.0, 100.1, 99.9, 100.05, 104.0, 104.1]
    assert stats.is_bimodal(near)
    assert not stats.is_bimodal([x if x < 102 else x - 2 for x in near])


def test_one_slow_block_is_no_mode() -> None:
    """An outlier is one block of six, or less than 20 % of many."""
    assert not stats.is_bimodal([100.0, 100.1, 99.9, 100.05, 100.0, 150.0])
    assert not stats.is_bimodal([100.0 + i / 100 for i in range(12)] + [150.0, 151.0])
    assert stats.is_bimodal([100.0 + i / 100 for i in range(8)] + [150.0, 151.0])


def test_one_broad_cloud_is_not_two_modes() -> None:
    """Evenly spread blocks over 8 % and blocks with 1 % noise are not called bimodal."""
    assert not stats.is_bimodal([96.0 + i for i in range(9)])
    source = random.Random(3)
    clouds = [[100 * (1 + source.gauss(0, 0.01)) for _ in range(12)] for _ in range(500)]
    assert sum(stats.is_bimodal(cloud) for cloud in clouds) <= 2


def test_modes_need_six_blocks() -> None:
    """Of five blocks nobody can tell."""
    assert not stats.is_bimodal([100, 100, 100, 110, 110])
    assert not stats.is_bimodal([])


def test_the_clock_is_the_median_over_sms_in_both_passes() -> None:
    """Per SM 1.98 cycles a ns; counters of different SMs are far apart and never mixed; a stranger SM is left out."""
    before = {0: (1000, 50_000), 1: (1001, 9_000_000), 7: (1002, 77)}
    after = {0: (2_001_000, 4_010_000), 1: (2_001_001, 12_960_000), 9: (2_001_000, 5)}
    assert stats.clock_mhz(before, after) == pytest.approx(1980)


def test_there_is_no_clock_without_a_common_sm_or_time() -> None:
    """No pair, no time between, or a counter that stood still give None: never 0, never NaN."""
    assert stats.clock_mhz({0: (1, 1)}, {1: (2, 2)}) is None
    assert stats.clock_mhz({}, {}) is None
    assert stats.clock_mhz({0: (5, 1)}, {0: (5, 900)}) is None
    assert stats.clock_mhz({0: (5, 1)}, {0: (500, 1)}) is None


def test_the_clock_works_without_sm_0() -> None:
    """A partition that holds no SM 0 has a clock (NVBench gives NaN there)."""
    ids = (2, 3, 18, 19, 34, 35, 50, 51)
    before = {sm: (1000 * sm, 10**6 * sm) for sm in ids}
    after = {sm: (1000 * sm + 2_000_000, 10**6 * sm + 3_450_000) for sm in ids}
    assert stats.clock_mhz(before, after) == pytest.approx(1725)


@given(st.dictionaries(st.integers(0, 131), st.integers(1, 10**6), min_size=1), st.floats(300, 2500))
def test_any_set_of_sms_gives_the_clock_that_ran(starts: dict[int, int], mhz: float) -> None:
    """Whatever SMs were seen and wherever their counters stood, the clock comes out."""
    before = {sm: (1000, start) for sm, start in starts.items()}
    after = {sm: (1000 + 10**7, start + round(mhz * 1e4)) for sm, start in starts.items()}
    assert stats.clock_mhz(before, after) == pytest.approx(mhz, rel=1e-5)
