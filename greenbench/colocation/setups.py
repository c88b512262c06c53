"""From a point of a co-location to what each process prepares, and when the steps of its roles are due."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from greenbench.arrivals import NS_PER_S, Arrivals, Process
from greenbench.cojournal import Pace
from greenbench.colocation.plan import CoPlan, CoPoint
from greenbench.colocation.room import WARM_SHARE, requests_wanted, steps_beside, warm_steps
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, RoleSchedule, RoleSpec
from greenbench.errors import GreenbenchError
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Scope
from greenbench.tails import P50_LEAST
from greenbench.workload import Workload

LATENCY, BACKGROUND = Kind.LATENCY.value, Kind.BACKGROUND.value
# Where the host decides whose turn it is, it starts the steps as well.
HOST_PACED = frozenset({Mechanism.SERIAL, Mechanism.CHUNKED, Mechanism.TIMESLICE})
URGENT = frozenset({Mechanism.PRIORITY, Mechanism.GREEN_PRIORITY})
# A background by itself: long enough for its throughput, and for a median where one step takes longer than that.
ALONE_NS = 1_000_000_000
ALONE_STEPS = 2 * P50_LEAST
# The short look at a role that no rate is known for: at least so many steps, and so long that clocks have risen.
PROBE_STEPS, PROBE_NS = 50, 500_000_000
PROBE_MOST = 20_000
# A queue that grows is cut off after this many times the planned length, and a bit for queueing everything: by then it is known.
LIMIT_TIMES, LIMIT_MORE_S = 1.25, 0.5
# A long step may be under way when the last one is due, on a slower clock than when it was first looked at.
LIMIT_STEPS = 4


@dataclass(frozen=True, slots=True)
class Timing:
    """When the roles of a point are due: schedules in the order of its roles, where the warm-up ends, the limit of the visit."""

    roles: tuple[RoleSchedule, ...]
    warm_ns: int
    limit_s: float


def setups(point: CoPoint, *, apart: bool) -> tuple[CoSetup, ...]:
    """Return what each process prepares: one with all roles, or, `apart`, one for each role.

    An urgent role and the partitions of each mechanism are those of `queueing`. Without a partition of its own a role has slot
    None; `mps_limited` keeps the sizes in one process, where they are the most SMs that a role may hold at once.
    """
    together = CoSetup(
        mechanism=point.mechanism,
        roles=tuple(_specs(point)),
        sizes=point.sizes or (),
        workqueue=scope_of(point),
        concurrency_limit=point.concurrency_limit,
    )
    if not apart:
        return (together,)
    return tuple(replace(together, roles=(role,), sizes=()) for role in together.roles)


def scope_of(point: CoPoint) -> Scope:
    """Return the workqueue scope that a point really asks for."""
    return Scope.GREEN_CTX_BALANCED if point.mechanism is Mechanism.GREEN_BALANCED else point.workqueue


def _specs(point: CoPoint) -> list[RoleSpec]:
    specs = []
    for kind, workload in roles_of(point):
        urgent = kind is Kind.LATENCY and point.mechanism in URGENT
        chunks = point.chunks if kind is Kind.BACKGROUND and point.mechanism is Mechanism.CHUNKED else ()
        specs.append(RoleSpec(name=kind.value, kind=kind, workload=workload, slot=point.slot(kind), urgent=urgent, chunks=chunks))
    return specs


def roles_of(point: CoPoint) -> tuple[tuple[Kind, Workload], ...]:
    """Return the roles of a point with their workloads, the latency role first."""
    pairs = ((Kind.LATENCY, point.latency), (Kind.BACKGROUND, point.background))
    return tuple((kind, workload) for kind, workload in pairs if workload is not None)


def percentage(point: CoPoint, kind: Kind, sm_count: int) -> int | None:
    """Return the active-thread percentage of a role's process under `mps_limited`, None elsewhere.

    The least that grants the SMs asked for: a process gets the even count at or below its percentage of all SMs, seen on an H200
    with driver 580, where 15 % gave 18 of 132 SMs and 16 % gives 20.
    """
    if point.mechanism is not Mechanism.MPS_LIMITED or point.sizes is None:
        return None
    return min(100, max(1, -(-100 * point.sizes[0 if kind is Kind.LATENCY else 1] // sm_count)))


def process(plan: CoPlan, kind: Kind) -> Process:
    """Return how the steps of a role follow each other where they arrive at a rate."""
    return plan.process if kind is Kind.LATENCY else plan.background_process


def pace(point: CoPoint, kind: Kind) -> Pace:
    """Return whose clock starts the steps of a role: by themselves and without a rate backgrounds are closed loops."""
    if kind is Kind.BACKGROUND and point.rate_per_s is None:
        return Pace.CLOSED
    return Pace.HOST if point.mechanism in HOST_PACED else Pace.DEVICE


def latency_steps(plan: CoPlan, point: CoPoint, step_rate: float) -> int:
    """Return the steps that count at a point: those asked for, or as many as pass while enough requests come."""
    return steps_beside(plan, None if point.background is None else point.rate_per_s, step_rate)


def timing(plan: CoPlan, point: CoPoint, step_rate: float | None, prepared: tuple[RolePrepared, ...]) -> Timing:
    """Return the schedule of a point; `step_rate` is that of its latency role, None where it has none.

    Both roles' arrivals depend on seed, role and rate alone, so that every mechanism gets the same ones. The warm-up is cut by
    due time, for both roles at the same one.
    """
    if point.latency is None:
        until = max(ALONE_NS, round(ALONE_STEPS * prepared[0].step_us * 1e3))
        return Timing((RoleSchedule(until_ns=until),), round(WARM_SHARE * until), _limit_s(until, prepared))
    if step_rate is None:
        raise GreenbenchError("internal: a latency role is scheduled before its rate is known")
    kept = latency_steps(plan, point, step_rate)
    warm = warm_steps(kept)
    due = Arrivals(plan.process, step_rate, plan.seed, LATENCY).first(kept + warm)
    on_host = point.mechanism is Mechanism.TIMESLICE
    roles = [RoleSchedule(due_ns=due, on_host=on_host)]
    if point.background is not None:
        roles.append(replace(background_schedule(plan, point.rate_per_s, due[-1]), on_host=on_host))
    return Timing(tuple(roles), due[warm], _limit_s(due[-1], prepared))


def background_schedule(plan: CoPlan, rate_per_s: float | None, end_ns: int) -> RoleSchedule:
    """Return an endless closed loop, or the arrivals of requests up to the last step of the latency role."""
    if rate_per_s is None:
        return RoleSchedule()
    arrivals = Arrivals(plan.background_process, rate_per_s, plan.seed, BACKGROUND)
    return RoleSchedule(due_ns=arrivals.until(end_ns + 1) or arrivals.first(1))


def probing(prepared: tuple[RolePrepared, ...]) -> Timing:
    """Return the schedule of the short look at a latency role by itself."""
    step_ns = max(prepared[0].step_us * 1e3, 1.0)
    steps = min(max(PROBE_STEPS, math.ceil(PROBE_NS / step_ns)), PROBE_MOST)
    return Timing((RoleSchedule(steps=steps),), 0, _limit_s(round(steps * step_ns), prepared))


def co_schedules(timing: Timing, *, apart: bool) -> tuple[CoSchedule, ...]:
    """Return one schedule for each setup of the point."""
    together = CoSchedule(roles=timing.roles, limit_s=timing.limit_s)
    return tuple(replace(together, roles=(role,)) for role in timing.roles) if apart else (together,)


def _limit_s(planned_ns: int, prepared: Sequence[RolePrepared]) -> float:
    longest_us = max(role.step_us for role in prepared)
    return LIMIT_TIMES * planned_ns / NS_PER_S + LIMIT_MORE_S + LIMIT_STEPS * longest_us / 1e6


__all__ = [
    "HOST_PACED",
    "Timing",
    "co_schedules",
    "latency_steps",
    "pace",
    "percentage",
    "probing",
    "process",
    "requests_wanted",
    "roles_of",
    "scope_of",
    "setups",
    "timing",
    "warm_steps",
]
