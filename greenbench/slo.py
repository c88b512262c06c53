"""Service-level objectives: limits on percentiles, the verdict of a point, and which mechanism holds them at the highest rate."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from greenbench.choices import split_items
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.stats import percentile
from greenbench.tails import LEAST, Metric

UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
MAX_LIMIT_US = 1e9
# A verdict from fewer values than a percentile is printed for is wrong in at most one of 20 cases.
DOUBT = 0.05
NAMES = tuple(f"{metric.value}_p{q}" for metric in Metric for q in LEAST)
EXAMPLE = "itl_p99=20ms,ttft_p99=500ms"

_LIMIT = re.compile(r"(?P<name>[^=]*)=(?P<number>[0-9]+(\.[0-9]+)?)\s*(?P<unit>[^0-9.]*)")


class Verdict(StrEnum):
    """Whether an objective is met: column slo_met; unknown is an empty cell."""

    HOLDS = "true"
    BROKEN = "false"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """One objective: the q-th percentile of a metric is at most `us`."""

    metric: Metric
    q: int
    us: float

    @property
    def name(self) -> str:
        """`itl_p99`, as it is written."""
        return f"{self.metric.value}_p{self.q}"

    @property
    def text(self) -> str:
        """`itl_p99=20ms`: reads back as this limit."""
        unit = next(unit for unit in ("s", "ms", "us") if self.us >= UNITS_US[unit] or unit == "us")
        scaled = self.us / UNITS_US[unit]
        # A float that was scaled may not read back as the same one; the small unit always does.
        if scaled * UNITS_US[unit] != self.us:
            unit, scaled = "us", self.us
        return f"{self.name}={_plain(scaled)}{unit}"

    def verdict(self, latencies_us: Sequence[float]) -> Verdict:
        """Return whether the percentile is within the limit.

        With enough values for the percentile to be printed it is compared as it is printed. With fewer, the number of values
        above the limit decides where it is beyond doubt at 5 % (binomial), and else nothing is known: 59 values, all of them
        within it, show that a p95 holds, 299 a p99.
        """
        found = percentile(latencies_us, self.q, LEAST[self.q])
        if found is not None:
            return Verdict.HOLDS if found <= self.us else Verdict.BROKEN
        above = sum(latency > self.us for latency in latencies_us)
        at_most, at_least = _binomial_tails(len(latencies_us), above, 1 - self.q / 100)
        if at_most <= DOUBT:
            return Verdict.HOLDS
        return Verdict.BROKEN if above and at_least <= DOUBT else Verdict.UNKNOWN


def _plain(number: float) -> str:
    """Return a number without an exponent, which the language of limits does not have."""
    return str(int(number)) if number.is_integer() else format(Decimal(repr(number)), "f")


def _binomial_tails(n: int, k: int, p: float) -> tuple[float, float]:
    """Return P(B <= k) and P(B >= k) of B binomial(n, p)."""
    term = (1 - p) ** n
    below = 0.0
    for i in range(k):
        below += term
        term *= (n - i) / (i + 1) * p / (1 - p)
    return below + term, 1 - below


@dataclass(frozen=True, slots=True)
class Slo:
    """All objectives of a run; they hold together or not at all."""

    limits: tuple[Limit, ...]

    @property
    def text(self) -> str:
        """The objectives in their own language."""
        return ",".join(limit.text for limit in self.limits)

    @property
    def metrics(self) -> frozenset[Metric]:
        """The metrics that have a limit."""
        return frozenset(limit.metric for limit in self.limits)

    def obstacle(self, metrics: Collection[Metric]) -> str:
        """Return why objectives cannot be judged by roles that have these metrics, an empty string if they can."""
        for limit in self.limits:
            if limit.metric in metrics:
                continue
            if limit.metric is Metric.ITL and Metric.STEP in metrics:
                return f"{limit.name}: a step of some of the layers is no token; add --layers full, or give step_p{limit.q}"
            known = ", ".join(sorted(metric.value for metric in metrics)) or "none"
            return f"{limit.name}: neither role has {limit.metric.value}; there is {known}"
        return ""

    def request_limit_us(self, metrics: Collection[Metric]) -> float | None:
        """Return up to what latency one request of a role counts as good: the widest of its limits, None where it has none."""
        return max((limit.us for limit in self.limits if limit.metric in metrics), default=None)

    def undecided(self, latencies_us: Mapping[Metric, Sequence[float]]) -> tuple[Limit, ...]:
        """Return the limits that these latencies are too few to judge; see `verdict`."""
        return tuple(limit for limit in self.limits if limit.verdict(latencies_us.get(limit.metric, ())) is Verdict.UNKNOWN)

    def verdict(self, latencies_us: Mapping[Metric, Sequence[float]], saturated: Collection[Metric] = ()) -> tuple[Verdict, str]:
        """Return whether a point meets all objectives, and in a few words which one decides; a queue that grew meets none.

        `latencies_us` has the latencies of both roles under the metrics that they have.
        """
        undecided = ""
        for limit in self.limits:
            if limit.metric in saturated:
                return Verdict.BROKEN, f"{limit.name}: the queue was still growing"
            values = latencies_us.get(limit.metric, ())
            found = limit.verdict(values)
            if found is Verdict.BROKEN:
                return found, f"{limit.text} is not met"
            if found is Verdict.UNKNOWN:
                undecided = undecided or f"{limit.text} is undecided after {len(values)} of {LEAST[limit.q]} requests"
        return (Verdict.UNKNOWN, undecided) if undecided else (Verdict.HOLDS, "")


def parse_slo(value: object, place: str = "--slo") -> Slo:
    """Read `itl_p99=20ms,ttft_p99=500ms`; raises PlanError naming the item. A limit has a unit: us, ms or s."""
    limits: list[Limit] = []
    for word in split_items(value, place):
        match = _LIMIT.fullmatch(word)
        if not match:
            raise PlanError(f"{place}: {word!r} is no objective; write METRIC_pQ=TIME with a unit, such as {EXAMPLE}")
        name, unit = match["name"].strip(), match["unit"].strip()
        if name not in NAMES:
            raise PlanError(f"{place}: {name!r} in {word!r} is no percentile{did_you_mean(name, NAMES)}; give {', '.join(NAMES)}")
        if unit not in UNITS_US:
            raise PlanError(f"{place}: {word!r} has {f'the unit {unit!r}' if unit else 'no unit'}; give us, ms or s")
        us = float(match["number"]) * UNITS_US[unit]
        if not 0 < us <= MAX_LIMIT_US:
            raise PlanError(f"{place}: {word!r} is out of range; give a time above 0 up to 1000 s")
        metric, _, q = name.partition("_p")
        limit = Limit(Metric(metric), int(q), us)
        if name in [each.name for each in limits]:
            raise PlanError(f"{place}: {name} is given twice; give each percentile once")
        limits.append(limit)
    return Slo(tuple(limits))


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one mechanism and split at one rate; `split` is column sms_requested, empty without a partition.

    `wanting` are the limits that had too few requests to be judged; a trial that is unknown and wants none gave no figures.
    """

    mechanism: str
    split: str
    rate_per_s: float
    verdict: Verdict
    wanting: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """The best mechanism and split: the highest rate that holds, None where none does, and who else holds that rate.

    `undecided` trials had too few requests for the limits in `wanting`, `failed` ones gave no figures at all.
    """

    slo: Slo
    rate_per_s: float | None = None
    mechanism: str = ""
    split: str = ""
    also: tuple[tuple[str, str], ...] = ()
    tried: tuple[float, ...] = ()
    undecided: int = 0
    failed: int = 0
    wanting: tuple[Limit, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether a rate holds, or none does for all that the run can tell."""
        return self.rate_per_s is not None or not self.undecided

    @property
    def text(self) -> str:
        """The advice as one sentence."""
        lost = f"{_points(self.failed)} failed" if self.failed else ""
        few = too_few(self.undecided) if self.undecided else ""
        if not self.decided:
            told = "; ".join(filter(None, (few, lost, deciding(self.wanting))))
            return f"{self.slo.text}: not decided at {_span(self.tried)}: {told}"
        doubt = f" ({'; '.join(filter(None, (few, lost)))})" if few or lost else ""
        if self.rate_per_s is None:
            return f"{self.slo.text}: no mechanism holds it at {_span(self.tried)}{doubt}"
        others = f"; so does {', '.join(_named(*each) for each in self.also)}" if self.also else ""
        return f"{self.slo.text}: {_named(self.mechanism, self.split)} holds it up to {self.rate_per_s:g} a second{others}{doubt}"


def too_few(points: int) -> str:
    """Say of how many points nothing is known."""
    return f"{_points(points)} had too few requests to be judged"


def deciding(limits: Collection[Limit]) -> str:
    """Say what decides limits whatever the latencies: --steps for those of the latency role, else requests; empty for none."""
    requests = [limit for limit in limits if limit.metric is Metric.TTFT]
    parts = []
    if steps := [limit for limit in limits if limit not in requests]:
        parts.append(f"--steps {max(LEAST[limit.q] for limit in steps)} decides {_listed(steps)}")
    if requests:
        most = max(LEAST[limit.q] for limit in requests)
        parts.append(f"{most:,} requests decide {_listed(requests)} (more --steps bring more)")
    return ", ".join(parts)


def _listed(limits: Sequence[Limit]) -> str:
    return " and ".join(limit.name for limit in limits)


def _points(count: int) -> str:
    return f"{count} point{'' if count == 1 else 's'}"


def _span(rates: Sequence[float]) -> str:
    """Say which rates were tried; rates rise."""
    if not rates:
        return "any rate that was tried"
    if len(rates) == 1:
        return f"{rates[0]:g} a second, the only rate that was tried"
    return f"any rate that was tried from {rates[0]:g} to {rates[-1]:g} a second"


def _named(mechanism: str, split: str) -> str:
    return f"{mechanism} at {split} SMs" if split else mechanism


def highest_rate(trials: Sequence[Trial]) -> float | None:
    """Return the highest rate at which one mechanism and split holds, all lower rates that were tried holding too.

    A rate that holds above one that does not is luck, and advice that rests on it would not repeat.
    """
    best = None
    for trial in sorted(trials, key=lambda each: each.rate_per_s):
        if trial.verdict is not Verdict.HOLDS:
            break
        best = trial.rate_per_s
    return best


def advise(slo: Slo, trials: Sequence[Trial]) -> Advice:
    """Return which mechanism and split holds the objectives at the highest rate.

    Of several that hold the same rate the first in the order of `trials` is named, and the others beside it: their latencies
    differ by noise, and two runs of one seed are to give one advice.
    """
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.mechanism, trial.split), []).append(trial)
    rates = {key: highest_rate(group) for key, group in groups.items()}
    best = max((rate for rate in rates.values() if rate is not None), default=None)
    tried = tuple(sorted({trial.rate_per_s for trial in trials}))
    unknown = [trial for trial in trials if trial.verdict is Verdict.UNKNOWN]
    wanting = tuple(limit for limit in slo.limits if any(limit in trial.wanting for trial in unknown))
    undecided = sum(bool(trial.wanting) for trial in unknown)
    failed = len(unknown) - undecided
    if best is None:
        return Advice(slo, tried=tried, undecided=undecided, failed=failed, wanting=wanting)
    first, *also = [key for key, rate in rates.items() if rate == best]
    return Advice(slo, best, *first, tuple(also), tried, undecided, failed, wanting)
