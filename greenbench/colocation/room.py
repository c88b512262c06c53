"""How many steps and requests one run of a point takes, and whether the device has room for the stamps of all of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from greenbench.arrivals import Process
from greenbench.errors import PlanError
from greenbench.queueing.model import Mechanism
from greenbench.slo import DOUBT, Slo
from greenbench.tails import P50_LEAST, Metric

if TYPE_CHECKING:
    from greenbench.colocation.plan import CoPlan

# Entries of one role's ledger on the device; a step takes one for each of its pieces.
ROOM = 65_536
WARM_SHARE, WARM_LEAST = 0.05, 20
# Requests that an objective needs may prolong a visit up to this; what is then undecided stays so.
LONGEST_S = 30.0
# Nobody waits longer for one point on purpose.
LONGEST_VISIT_S = 3600.0
# What is left of the room when the warm-up is counted too.
MOST_STEPS = 60_000
# Poisson arrivals in a window vary: 300 of them want one that is planned for a few more.
CROWD = 1.1
# By so many standard deviations a count of Poisson arrivals is hardly ever above its mean.
SPREAD = 4.0


def warm_steps(kept: int) -> int:
    """Return the steps that warm up before `kept` ones count: 5 %, at least 20."""
    return max(WARM_LEAST, math.ceil(WARM_SHARE * kept))


def requests_wanted(slo: Slo | None, metrics: Collection[Metric]) -> int:
    """Return how many requests can show that every limit on these metrics holds: 5 for a p50, 59 for a p95, 299 for a p99."""
    limits = [limit for limit in slo.limits if limit.metric in metrics] if slo else []
    return max((math.ceil(math.log(DOUBT) / math.log(limit.q / 100)) for limit in limits), default=P50_LEAST)


def steps_beside(plan: CoPlan, rate_per_s: float | None, step_rate: float) -> int:
    """Return the latency steps that count: those asked for, or as many as pass while enough requests come at their rate."""
    if rate_per_s is None:
        return plan.steps
    return max(plan.steps, min(math.ceil(requests_s(plan, rate_per_s) * step_rate), MOST_STEPS))


def requests_s(plan: CoPlan, rate_per_s: float) -> float:
    """Return how long a visit lasts for enough requests to come at their rate, in s; beyond `LONGEST_S` it waits for no more."""
    return min(CROWD * requests_wanted(plan.slo, plan.background.metrics) / rate_per_s, LONGEST_S)


def most_requests(plan: CoPlan, rate_per_s: float, step_rate: float) -> int:
    """Return how many requests may come in one run at these rates, a second each; of Poisson arrivals nearly never more."""
    kept = steps_beside(plan, rate_per_s, step_rate)
    mean = rate_per_s * (kept + warm_steps(kept)) / step_rate
    return math.ceil(mean + (SPREAD * math.sqrt(mean) if plan.background_process is Process.POISSON else 0.0))


def planned_s(plan: CoPlan, rate_per_s: float | None, step_rate: float) -> float:
    """Return how long the latency role's steps of one visit last, the warm-up with them, in s."""
    kept = steps_beside(plan, rate_per_s, step_rate)
    return (kept + warm_steps(kept)) / step_rate


def no_room(plan: CoPlan, rate_per_s: float | None, step_rate: float, pieces: int = 1) -> str:
    """Return why no run is long enough, or has room enough, for these rates; an empty text where one is.

    `pieces` are those of each background request.
    """
    seconds = planned_s(plan, rate_per_s, step_rate)
    if seconds > LONGEST_VISIT_S:
        return (
            f"{plan.steps} steps at {step_rate:g} a second make a visit of {seconds:.3g} s, and one lasts an hour at most; give "
            "fewer --steps, or a higher --step-rate"
        )
    count = 0 if rate_per_s is None else most_requests(plan, rate_per_s, step_rate)
    if count * pieces <= ROOM:
        return ""
    cut = f" in {pieces} pieces each" if pieces > 1 else ""
    return (
        f"beside {plan.steps} steps at {step_rate:g} a second come up to {count} requests at {rate_per_s:g} a "
        f"second{cut}, and a run has room for {ROOM // pieces}; give fewer --steps, or lower --rates"
    )


def refuse_crowds(plan: CoPlan, rates: Sequence[float], step_rate: float, place: str) -> None:
    """Raise PlanError, headed by `place`, where a visit at one of these rates, or without any, has no room or lasts too long."""
    chunks = plan.chunks if Mechanism.CHUNKED in plan.mechanisms else ()
    pieces = max((len(pieces) for _, pieces in chunks), default=1)
    for rate in (None, *rates):
        if why := no_room(plan, rate, step_rate, pieces):
            raise PlanError(f"{place}: {why}")


__all__ = [
    "LONGEST_VISIT_S",
    "ROOM",
    "most_requests",
    "no_room",
    "planned_s",
    "refuse_crowds",
    "requests_s",
    "requests_wanted",
    "steps_beside",
    "warm_steps",
]
