"""The metric columns of a co-location: from the step times of both roles to what their rows say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from greenbench.corow import CoRow
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import Flag, ParamValue
from greenbench.slo import Slo, Verdict
from greenbench.stats import percentile
from greenbench.tails import (
    P50_LEAST,
    SATURATION_LEAST,
    Metric,
    StepTimes,
    goodput_per_s,
    per_second,
    saturated,
    slowdown,
    tail_columns,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTimes:
    """The steps of one role at one point; `alone` are those of the role by itself on the same partition, where they are known.

    `pieces` are [start, end) of every piece of steps that give way between them, empty where a step runs through. `window_s` is
    the time in which steps of an open loop could come, None for a closed loop.
    """

    times: StepTimes
    metrics: tuple[Metric, ...]
    tokens: int | None = None
    alone: StepTimes | None = None
    pieces: tuple[tuple[int, int], ...] = ()
    window_s: float | None = None

    @property
    def running(self) -> tuple[tuple[int, int], ...]:
        """When something of the role ran: a step that gives way does not, between its pieces."""
        return self.pieces or self.times.intervals


def co_label(
    workload: str, params: Sequence[tuple[str, ParamValue]], sms: str, workqueue: str, mechanism: str, rate_per_s: float | None
) -> str:
    """Return the name of a point, equal for both of its roles' rows where `workload` and `params` are the latency role's.

    `decode[model=llama3-8b,layers=4]@20/driver_default/green/120` is of `sms` asked for, workqueue scope, mechanism and rate (`-`
    for a closed loop).
    """
    given = ",".join(f"{name}={value}" for name, value in params)
    return f"{workload}[{given}]@{sms}/{workqueue}/{mechanism}/{rate_text(rate_per_s)}"


def rate_text(rate_per_s: float | None) -> str:
    """Return a rate as labels have it: six digits, `-` for a closed loop."""
    return "-" if rate_per_s is None else f"{rate_per_s:g}"


def overlap_fraction(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> float | None:
    """Return the common time of two sets of [start, end) intervals over the shorter of their unions, 0 to 1.

    None where one of them covers nothing. Times are integers on one clock.
    """
    import numpy as np

    from greenbench.timeline.intervals import merge, overlap

    def union(intervals: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        pairs = np.asarray(intervals, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    first, second = merge(*union(a)), merge(*union(b))
    shorter = min(first.length, second.length)
    return overlap(first, second) / shorter if shorter else None


def service_slowdown(beside: StepTimes, alone: StepTimes) -> float | None:
    """Return the median time of a step from its start to its end beside a load, over that alone on the same partition.

    Waiting in the queue is not in it, so that it exists where the queue grows without end, which is where a load hurts most.
    None below 6 steps.
    """
    medians = [percentile([(end - start) / 1e3 for start, end in each.intervals], 50, P50_LEAST) for each in (beside, alone)]
    ours, base = medians
    return ours / base if ours is not None and base else None


def judged(roles: Sequence[RoleTimes], slo: Slo) -> tuple[Verdict, str]:
    """Return whether a point meets the objectives, all roles together, and which one decides."""
    latencies = {metric: role.times.latencies_us for role in roles for metric in role.metrics}
    growing = [metric for role in roles if saturated(role.times) for metric in role.metrics]
    return slo.verdict(latencies, growing)


def with_figures(row: CoRow, role: RoleTimes, other: RoleTimes | None, slo: Slo | None = None) -> CoRow:
    """Return the row of `role` with every figure that its own steps and those beside it carry; `other` is None alone.

    Tokens, steps and good steps a second are over the whole window of an open loop, and over the time from the first intended
    start to the last end of a closed one.
    """
    times = role.times
    growing = saturated(times)
    figures: Mapping[str, float | None] = tail_columns(times, role.metrics)
    limit = slo.request_limit_us(role.metrics) if slo else None
    met = judged([role, *([other] if other else [])], slo)[0] if slo else Verdict.UNKNOWN
    flags = [*filter(None, row.flags.split(LIST_SEPARATOR)), *([Flag.SATURATED] if growing else [])]
    return replace(
        row,
        **figures,  # type: ignore[arg-type]
        steps=len(times),
        tokens_per_s=per_second(times, role.tokens, role.window_s) if role.tokens else None,
        throughput_per_s=per_second(times, window_s=role.window_s),
        goodput_rps=goodput_per_s(times, limit, role.window_s) if limit is not None else None,
        slo=slo.text if slo else "",
        slo_met=met.value,
        saturated=str(growing).lower() if len(times) >= SATURATION_LEAST else "",
        overlap_frac=overlap_fraction(role.running, other.running) if other else None,
        slowdown=slowdown(times, role.alone) if role.alone else None,
        flags=LIST_SEPARATOR.join(dict.fromkeys(flags)),
    )
