"""What the times of a role's steps say: tails from the intended start, throughput, slowdown, and whether the queue still grew.

A quantity that the data cannot carry is None, never 0 or NaN.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from greenbench.arrivals import NS_PER_S
from greenbench.stats import P95_LEAST, P99_LEAST, median, percentile

# Six values are the fewest whose median has a 95 % interval.
P50_LEAST = 6
LEAST = {50: P50_LEAST, 95: P95_LEAST, 99: P99_LEAST}
# Below this many steps a quarter of them is too few to say where a queue goes.
SATURATION_LEAST = 16
# Simulated with Poisson arrivals and constant service: at 90 % load 1 % of schedules of 50 steps are called growing and none
# of 1,000; at twice the load 99 % of 50 are, at 1.2 times the load all of 1,000.
CHANCE = 1.5


class Metric(StrEnum):
    """What a latency is called: a step, a token's step at full depth (inter-token), a request's first token."""

    STEP = "step"
    ITL = "itl"
    TTFT = "ttft"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The steps of one role in the order in which they were due, on one clock, in ns.

    Raises ValueError where the three lists differ in length, intended starts fall, or a step ends before it starts.
    """

    intended_ns: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.intended_ns) == len(self.start_ns) == len(self.end_ns):
            counts = f"{len(self.intended_ns)} intended, {len(self.start_ns)} start and {len(self.end_ns)} end times"
            raise ValueError(f"steps have {counts}")
        if any(later < earlier for earlier, later in itertools.pairwise(self.intended_ns)):
            raise ValueError("the intended starts of steps fall")
        if any(end < start for start, end in self.intervals):
            raise ValueError("a step ends before it starts")

    @classmethod
    def of(cls, steps: Iterable[tuple[int, int, int]]) -> StepTimes:
        """Return the times of (intended, start, end) triples in any order."""
        ordered = sorted(steps)
        return cls(*(tuple(step[i] for step in ordered) for i in range(3)))

    def __len__(self) -> int:
        return len(self.intended_ns)

    @property
    def intervals(self) -> tuple[tuple[int, int], ...]:
        """Start and end of every step."""
        return tuple(zip(self.start_ns, self.end_ns, strict=True))

    @property
    def latencies_us(self) -> list[float]:
        """Completion less INTENDED start, in us: what waits in a queue counts."""
        return [(end - due) / 1e3 for due, end in zip(self.intended_ns, self.end_ns, strict=True)]

    @property
    def waits_us(self) -> list[float]:
        """Start less intended start, in us."""
        return [(start - due) / 1e3 for due, start in zip(self.intended_ns, self.start_ns, strict=True)]

    @property
    def seconds(self) -> float:
        """From the first intended start to the last end, in s; 0 without steps."""
        return (max(self.end_ns) - self.intended_ns[0]) / NS_PER_S if self.intended_ns else 0.0

    def due_within(self, begin_ns: int, end_ns: int) -> StepTimes:
        """Return the steps that were due in [begin, end): warm-up and end are cut by the intended start, never by the actual."""
        kept = [i for i, due in enumerate(self.intended_ns) if begin_ns <= due < end_ns]

        def of(times: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(times[i] for i in kept)

        return StepTimes(of(self.intended_ns), of(self.start_ns), of(self.end_ns))


@dataclass(frozen=True, slots=True)
class Tail:
    """p50, p95 and p99 in us; empty below 6, 1,000 and 3,000 values."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


def tail(latencies_us: Sequence[float]) -> Tail:
    """Return the percentiles that this many latencies carry."""
    return Tail(*(percentile(latencies_us, q, least) for q, least in LEAST.items()))


def tail_columns(times: StepTimes, metrics: Sequence[Metric]) -> dict[str, float | None]:
    """Return `step_us_p50` and so on for each metric that the workload has; without figures where the queue still grew."""
    found = Tail() if saturated(times) else tail(times.latencies_us)
    return {column(metric, q): getattr(found, f"p{q}") for metric in metrics for q in LEAST}


def column(metric: Metric, q: int) -> str:
    """Return the name of the column that holds a percentile of a metric."""
    return f"{metric.value}_us_p{q}"


def saturated(times: StepTimes) -> bool:
    """Return whether the queue was still growing at the end; with fewer than 16 steps that cannot be told, and is False.

    It grew if no step that was due in the second half found all earlier ones done, if the median wait rose from each quarter
    of the steps to the next, and if it rose further than chance carries it: the wait of n steps wanders by
    sqrt(n * (ca^2 + cs^2)) services, ca and cs being the relative spreads of gaps and services (the diffusion of a queue at
    full load; Kingman 1962).
    """
    n = len(times)
    if n < SATURATION_LEAST or not _busy_to_the_end(times):
        return False
    waits = times.waits_us
    quarters = [median(waits[n * part // 4 : n * (part + 1) // 4]) for part in range(4)]
    services = [(end - start) / 1e3 for start, end in times.intervals]
    gaps = [float(later - earlier) for earlier, later in itertools.pairwise(times.intended_ns)]
    wander = statistics.fmean(services) * math.sqrt(n * (_relative_variance(gaps) + _relative_variance(services)))
    rises = all(later > earlier for earlier, later in itertools.pairwise(quarters))
    return rises and quarters[-1] - quarters[0] > CHANCE * wander


def _busy_to_the_end(times: StepTimes) -> bool:
    """Return whether no step that was due in the second half found all earlier ones done."""
    done = 0
    for i, (due, end) in enumerate(zip(times.intended_ns, times.end_ns, strict=True)):
        if 2 * i >= len(times) and due >= done:
            return False
        done = max(done, end)
    return True


def _relative_variance(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.pvariance(values, mean) / mean**2 if mean > 0 else 0.0


def per_second(times: StepTimes, each: float = 1, window_s: float | None = None) -> float | None:
    """Return steps a second, each counted as `each` tokens or operations, or None without steps.

    `window_s` is the time in which they could come: few steps of an open loop fill little of it. None is the time that they took,
    which is right for a closed loop.
    """
    return _rate(len(times) * each, times, window_s)


def goodput_per_s(times: StepTimes, limit_us: float, window_s: float | None = None) -> float | None:
    """Return the steps a second whose own latency is within the limit, or None without steps; `window_s` as in `per_second`."""
    return _rate(sum(latency <= limit_us for latency in times.latencies_us), times, window_s)


def _rate(count: float, times: StepTimes, window_s: float | None) -> float | None:
    seconds = times.seconds if window_s is None else window_s
    return count / seconds if len(times) and seconds > 0 else None


def slowdown(corun: StepTimes, alone: StepTimes) -> float | None:
    """Return the median latency beside the other role over that alone on the same partition; None where a median is missing."""
    medians = [None if saturated(times) else tail(times.latencies_us).p50 for times in (corun, alone)]
    beside, apart = medians
    return beside / apart if beside is not None and apart is not None and apart > 0 else None
