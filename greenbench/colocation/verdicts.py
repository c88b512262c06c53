"""What a co-location says in the end: which mechanism holds the objectives, and what hurts the latency role."""

from __future__ import annotations

from collections.abc import Sequence

from greenbench.colocation.outcomes import LOADS, Outcome, throughput
from greenbench.corow import CoRow
from greenbench.queueing.model import Kind, Mechanism
from greenbench.rates import rounded
from greenbench.schema import Scope, Status
from greenbench.slo import Advice, Limit, Slo, Trial, Verdict, advise

# Up to this a load is not said to hurt; medians of one run repeat within 2 %.
HARMLESS = 1.05
WORDS = {"compute": "compute-only", "l2": "L2-only", "hbm": "HBM-only", "copy": "copy-engine"}


def trials(found: Sequence[Outcome]) -> list[Trial]:
    """Return what came of each mechanism and split at each rate, in the order of the plan.

    A closed loop counts as the rate that it reached, to two digits. Where a run has several latency workloads a rate holds only
    if it holds for each of them. A point without figures is unknown and wants no requests.
    """
    points = [each for each in found if each.visit.mechanism is not Mechanism.ALONE and not each.visit.load]
    scopes = {_scope(each) for each in points if each.visit.mechanism is Mechanism.GREEN}
    merged: dict[tuple[str, str, float], Verdict] = {}
    wanting: dict[tuple[str, str, float], dict[Limit, None]] = {}
    failed = set()
    for each in points:
        rate = _rate(each)
        if rate is None or each.status is Status.UNSUPPORTED:
            continue
        key = mechanism_name(each, named=len(scopes) > 1), each.visit.split, rate
        verdict = each.verdict if each.status is Status.OK else Verdict.UNKNOWN
        if each.status is not Status.OK:
            failed.add(key)
        merged[key] = _both(merged[key], verdict) if key in merged else verdict
        wanting.setdefault(key, {}).update(dict.fromkeys(each.wanting))
    held = {key[:2]: key[2] for key, verdict in sorted(merged.items(), key=lambda item: item[0][2]) if verdict is Verdict.HOLDS}
    return [
        Trial(*key, verdict, tuple(wanting[key]))
        for key, verdict in merged.items()
        # A lower rate with too few requests to be judged says nothing against a higher one that holds.
        if verdict is not Verdict.UNKNOWN or key[2] > held.get(key[:2], 0.0) or key in failed
    ]


def mechanism_name(found: Outcome, *, named: bool = False) -> str:
    """Return the mechanism with what tells points of it apart: `chunked:512`; with `named` the workqueue scope as well."""
    visit = found.visit
    parts = [visit.mechanism.value, *([str(visit.chunk)] if visit.chunk is not None else [])]
    if named and visit.mechanism is not Mechanism.GREEN_BALANCED and _scope(found) != (Scope.DRIVER_DEFAULT, None):
        parts.append(visit.workqueue.value)
        parts += [str(visit.concurrency_limit)] if visit.concurrency_limit is not None else []
    if visit.connections is not None:
        parts.append(f"c{visit.connections}")
    return ":".join(parts)


def _scope(found: Outcome) -> tuple[Scope, int | None]:
    return found.visit.workqueue, found.visit.concurrency_limit


def _rate(found: Outcome) -> float | None:
    if found.visit.rate_per_s is not None:
        return found.visit.rate_per_s
    reached = throughput(found, Kind.BACKGROUND)
    return rounded(reached) if reached else None


def _both(a: Verdict, b: Verdict) -> Verdict:
    if Verdict.BROKEN in (a, b):
        return Verdict.BROKEN
    return Verdict.UNKNOWN if Verdict.UNKNOWN in (a, b) else Verdict.HOLDS


def advice(found: Sequence[Outcome], slo: Slo | None) -> Advice | None:
    """Return which mechanism and split holds the objectives at the highest rate, None without objectives."""
    return advise(slo, trials(found)) if slo else None


def interference(found: Sequence[Outcome]) -> tuple[str, ...]:
    """Return one sentence for each latency workload that was measured beside loads: which of them hurts it, and how much."""
    rows = [row for each in found if each.visit.mechanism is Mechanism.GREEN if not each.visit.load for row in each.rows]
    told: dict[tuple[str, str], list[CoRow]] = {}
    for row in rows:
        if row.role == Kind.LATENCY.value and _slowdowns(row):
            told.setdefault((row.kernel, row.params), []).append(row)
    return tuple(_sentence(members) for members in told.values())


def _slowdowns(row: CoRow) -> dict[str, float]:
    values = {load: getattr(row, f"slowdown_{load}") for load in LOADS}
    return {load: value for load, value in values.items() if value is not None}


def _sentence(rows: Sequence[CoRow]) -> str:
    """Name the load beside which a step takes longest, with the range over its partitions, and then the others."""
    spans: dict[str, list[float]] = {}
    for row in rows:
        for load, value in _slowdowns(row).items():
            spans.setdefault(load, []).append(value)
    worst = sorted(spans, key=lambda load: max(spans[load]), reverse=True)
    first, rest = worst[0], worst[1:]
    sizes = [int(row.sms_requested) for row in rows if row.sms_requested.isdecimal()]
    who = f"{rows[0].kernel}[{rows[0].params}]" + (f" in {_span(sizes, '{:d}')} SMs" if sizes else "")
    others = ", ".join(f"{WORDS[load]} {_times(spans[load])}" for load in rest)
    beside = f"{_times(spans[first])} times the time of a step alone on the same partition" + (f" ({others})" if others else "")
    if max(spans[first]) <= HARMLESS:
        return f"{who} is hurt by none of the loads beside it: at most {WORDS[first]}, {beside}"
    return f"{who} is hurt most by the {WORDS[first]} load beside it: {beside}"


def _times(values: Sequence[float]) -> str:
    return _span(values, "{:.2f}")


def _span(values: Sequence[float] | Sequence[int], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


__all__ = ["advice", "interference", "mechanism_name", "trials"]
