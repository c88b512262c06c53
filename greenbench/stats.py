"""Order statistics of samples and blocks: medians with intervals, spread, tails, modes and the SM clock.

A quantity that the data cannot carry is None, never 0 or NaN.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache

P95_LEAST = 1_000
P99_LEAST = 3_000
# A coverage that is exactly the one asked for (31/32 of six values) is not to be missed by the last bits.
COVERAGE_ROUNDING = 1e-12

MODE_DISTANCE = 0.03
MODE_SHARE = 0.20
MODE_BLOCKS = 6


def median(xs: Sequence[float]) -> float:
    """Return the median; of an even number of values the mean of the two middle ones."""
    if not xs:
        raise ValueError("the median of no values was asked for")
    return float(statistics.median(xs))


@lru_cache(maxsize=256)
def median_rank(n: int, confidence: float) -> int:
    """Return the largest k for which (x_k, x_(n+1-k)) covers the median with at least this confidence; 0 where none does.

    The number of values below the median of a continuous distribution is binomial(n, 1/2), so the interval between the
    k-th smallest and the k-th largest covers it with probability 1 - 2 P(B <= k - 1) (David and Nagaraja, Order
    Statistics, 7.1). n = 6 gives k = 1 (96.9 %), n = 20 gives k = 6 (95.9 %), n = 5 none (93.75 % at most).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence} was asked for: it lies between 0 and 1")
    k = n // 2
    # From the middle outwards, where almost all of the distribution lies: some sqrt(n) steps instead of n binomials.
    share = math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))
    inside = share * (1 if n % 2 == 0 else 2)
    while k and inside < confidence - COVERAGE_ROUNDING:
        k -= 1
        share *= (k + 1) / (n - k)
        inside += 2 * share
    return k


def median_interval(xs: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the order-statistic interval of the median, or None where the values are too few (below 6 at 95 %)."""
    k = median_rank(len(xs), confidence)
    if k == 0:
        return None
    ordered = sorted(xs)
    return float(ordered[k - 1]), float(ordered[-k])


def half_width_pct(xs: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the median in per cent of it: what a point's stop rule looks at."""
    interval = median_interval(xs)
    middle = median(xs) if interval else 0.0
    if interval is None or middle <= 0:
        return None
    return 100 * (interval[1] - interval[0]) / (2 * middle)


def noise_pct(xs: Sequence[float]) -> float | None:
    """Return the interquartile range in per cent of the median, or None below 4 values.

    Quartiles are interpolated between order statistics, both ends included (Hyndman and Fan's type 7).
    """
    if len(xs) < 4:
        return None
    middle = median(xs)
    if middle <= 0:
        return None
    first, _, third = statistics.quantiles(xs, n=4, method="inclusive")
    return 100 * (third - first) / middle


def fewest_for_tail(q: float) -> int:
    """Return the fewest values whose largest bounds the q-th percentile from above with 95 %: 59 for p95, 299 for p99.

    All n values lie below the percentile with probability (q/100)^n; n is the least that keeps it at 5 %.
    """
    return math.ceil(math.log(0.05) / math.log(q / 100))


def percentile(xs: Sequence[float], q: float, least: int) -> float | None:
    """Return the q-th percentile (0 < q < 100) by nearest rank, or None where there are fewer than `least` values.

    Nearest rank gives a latency that occurred. Whatever `least` says, a tail (q above 50) from fewer values than
    `fewest_for_tail` is None: its largest value could still be below the percentile.
    """
    if not 0 < q < 100:
        raise ValueError(f"percentile {q} was asked for: it lies between 0 and 100")
    floor = fewest_for_tail(q) if q > 50 else 1
    if len(xs) < max(least, floor):
        return None
    # Rounded first: 99.9 % of 10,000 is 9990, but 9990.000000000002 in binary.
    rank = math.ceil(round(q * len(xs) / 100, 9))
    return float(sorted(xs)[max(rank, 1) - 1])


def is_bimodal(block_medians: Sequence[float]) -> bool:
    """Return whether blocks fall into two modes more than 3 % apart, each with 20 % of the blocks and at least two.

    The cut is the widest gap that leaves both sides large enough; it separates modes only if it is wider than twice the
    interquartile ranges of the two sides together, so that one broad cloud is not called two (simulated: of normal blocks
    with 2 % spread 8 % are at n = 6 and 0.6 % at n = 12; modes 4 % apart are found whenever both are large enough).
    """
    n = len(block_medians)
    smallest = max(2, math.ceil(MODE_SHARE * n))
    if n < MODE_BLOCKS or 2 * smallest > n:
        return False
    ordered = sorted(block_medians)
    cut = max(range(smallest, n - smallest + 1), key=lambda i: ordered[i] - ordered[i - 1])
    low, high = ordered[:cut], ordered[cut:]
    gap = high[0] - low[-1]
    return median(high) - median(low) > MODE_DISTANCE * median(low) > 0 and gap > 2 * (_spread(low) + _spread(high))


def _spread(ordered: Sequence[float]) -> float:
    """Return the interquartile range of two or more values."""
    first, _, third = statistics.quantiles(ordered, n=4, method="inclusive")
    return third - first


def clock_mhz(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]]) -> float | None:
    """Return the SM clock between two passes of the clock probe, {smid: (globaltimer ns, SM cycles)}.

    clock64 counts per SM, so cycles are subtracted on one SM and never across; the result is the median over the SMs that
    both passes saw. None where no SM is in both or no time passed.
    """
    rates = []
    for smid in before.keys() & after.keys():
        ns = after[smid][0] - before[smid][0]
        cycles = after[smid][1] - before[smid][1]
        if ns > 0 and cycles > 0:
            rates.append(1e3 * cycles / ns)
    return median(rates) if rates else None
