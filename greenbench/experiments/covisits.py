"""One visit to one point of a co-location: prepared, scheduled, run and judged; its outcome is a line of the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from greenbench.cojournal import CoVisit, Pace, RoleFacts, RoleVisit, VisitKind
from greenbench.colocation import setups as cosetups
from greenbench.colocation.plan import CoPlan, CoPoint, obstacle
from greenbench.colocation.room import ROOM
from greenbench.colocation.setups import Timing
from greenbench.costeps import CoSetup, RolePrepared, RoleSchedule, RoleTrace, Trace
from greenbench.errors import FailedError, UnsupportedError
from greenbench.experiments.cocrew import CoCrew
from greenbench.experiments.crew import CONNECTIONS
from greenbench.measure.validity import judge
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Backend, BlockStatus, DeviceFacts
from greenbench.worker.mps import MpsDaemon

MPS = frozenset({Mechanism.MPS, Mechanism.MPS_LIMITED})
THROTTLED = "throttled"


@dataclass(frozen=True, slots=True)
class Job:
    """A point to be visited: its place in the plan, and the rate of its latency role's steps, None where it has none."""

    point: CoPoint
    place: int
    step_rate: float | None = None
    kind: VisitKind = VisitKind.VISIT
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Ran:
    """What the processes of one visit gave, roles in the order of the point."""

    timing: Timing
    prepared: tuple[RolePrepared, ...]
    traces: tuple[Trace, ...]

    @property
    def roles(self) -> tuple[RoleTrace, ...]:
        """The traces of all roles."""
        return tuple(role for trace in self.traces for role in trace.roles)


class Visitor:
    """Takes visits; on a real device the mechanisms of several processes have one for each role."""

    def __init__(self, crew: CoCrew, plan: CoPlan, device: DeviceFacts, folder: Path) -> None:
        self._crew, self._plan, self._device, self._folder = crew, plan, device, folder
        self._digests: dict[tuple[str, str], str] = {}

    def remember(self, visit: CoVisit) -> None:
        """Keep the kernels' digests of an earlier visit: what is measured now must be what was measured then."""
        for role in visit.roles:
            if role.facts.source_digest:
                self._digests.setdefault((role.facts.workload, role.facts.params), role.facts.source_digest)

    def line(self, job: Job, status: BlockStatus, reason: str = "") -> CoVisit:
        """Return the line of a visit that came to nothing."""
        point = job.point
        roles = tuple(RoleVisit(facts=self._facts(job, kind, None)) for kind, _ in cosetups.roles_of(point))
        return CoVisit(
            kind=job.kind,
            attempt=job.attempt,
            started=time.time(),
            status=status,
            reason=reason,
            label=point.label,
            place=job.place,
            mechanism=point.mechanism,
            split=point.split,
            sizes=point.sizes or (),
            workqueue=cosetups.scope_of(point),
            concurrency_limit=point.concurrency_limit,
            connections=point.connections,
            chunk=point.chunk,
            load=point.load,
            rate_per_s=point.rate_per_s,
            processes=2 if point.apart else 1,
            roles=roles,
        )

    def take(self, job: Job) -> CoVisit:
        """Visit a point; raises UnsupportedError, FailedError or StickyError as its outcome."""
        if why := obstacle(job.point, self._device):
            raise UnsupportedError(why)
        line, began = self.line(job, BlockStatus.OK), time.perf_counter()
        ran = self._apart(job) if self._is_apart(job.point) else self._together(job)
        visit = self._judged(job, line, ran)
        return replace(visit, seconds=time.perf_counter() - began)

    def _is_apart(self, point: CoPoint) -> bool:
        return point.apart and self._device.backend is Backend.CUDA

    def _timing(self, job: Job, prepared: tuple[RolePrepared, ...]) -> Timing:
        self._refuse_change(job.point, prepared)
        if job.kind is VisitKind.PROBE:
            return cosetups.probing(prepared)
        return cosetups.timing(self._plan, job.point, job.step_rate, prepared)

    def _refuse_change(self, point: CoPoint, prepared: Sequence[RolePrepared]) -> None:
        """Refuse kernels that are not those of an earlier visit: a replaced worker reads their files anew."""
        for (kind, workload), role in zip(cosetups.roles_of(point), prepared, strict=True):
            key = (workload.name, _params(point, kind))
            if self._digests.setdefault(key, role.source_digest) != role.source_digest:
                raise FailedError(f"a kernel of {workload.name} was changed while the run was under way; start a new run")

    def _together(self, job: Job) -> Ran:
        connections = job.point.connections
        (setup,) = cosetups.setups(job.point, apart=False)
        prepared = self._crew.prepare(setup, connections)
        timing = self._timing(job, prepared)
        (schedule,) = cosetups.co_schedules(timing, apart=False)
        return Ran(timing, prepared, (self._crew.run(setup, schedule, connections),))

    def _apart(self, job: Job) -> Ran:
        setups = cosetups.setups(job.point, apart=True)
        with ExitStack() as stack:
            daemon = stack.enter_context(MpsDaemon(self._folder)) if job.point.mechanism in MPS else None
            environments = [self._environment(job.point, setup, daemon) for setup in setups]
            stack.callback(self._crew.finish_apart)
            found = self._crew.prepare_apart(setups, environments)
            prepared = tuple(role for each in found for role in each)
            timing = self._timing(job, prepared)
            traces = self._crew.run_prepared_apart(setups, cosetups.co_schedules(timing, apart=True))
        return Ran(timing, prepared, tuple(traces))

    def _environment(self, point: CoPoint, setup: CoSetup, daemon: MpsDaemon | None) -> dict[str, str]:
        found = {} if point.connections is None else {CONNECTIONS: str(point.connections)}
        if daemon is None:
            return found
        share = cosetups.percentage(point, setup.roles[0].kind, self._device.sm_count)
        limit = self._plan.mps_memory_limit if point.mechanism is Mechanism.MPS_LIMITED else ""
        return found | daemon.environment(share, f"{self._device.index}={limit}" if limit else "")

    def _judged(self, job: Job, line: CoVisit, ran: Ran) -> CoVisit:
        _refuse_end_of_room(job.point, ran)
        first = ran.traces[0]
        # NVML lists the server of MPS as well.
        apart = len(ran.traces) + (job.point.mechanism in MPS) if self._is_apart(job.point) else 0
        verdict = judge(first.before, first.after, first.seconds, own_processes=self._crew.size + apart)
        # An open loop leaves the device idle between steps: only a clock that was held down spoils it.
        held = verdict.status is BlockStatus.DISCARDED and verdict.reason.startswith(THROTTLED)
        errors = [trace.clock_error_ns for trace in ran.traces if trace.clock_error_ns is not None]
        return replace(
            line,
            status=BlockStatus.DISCARDED if held else BlockStatus.OK,
            reason=verdict.reason if held else "",
            warm_ns=ran.timing.warm_ns,
            window_s=first.seconds,
            clock_error_ns=max(errors, default=None),
            flags=verdict.flags,
            throttle=verdict.throttle,
            notes="; ".join(dict.fromkeys(note for trace in ran.traces for note in trace.notes)),
            before=first.before,
            after=first.after,
            roles=self._roles(job, ran),
        )

    def _roles(self, job: Job, ran: Ran) -> tuple[RoleVisit, ...]:
        origin = ran.traces[0].origin_ns
        found = []
        rows = zip(cosetups.roles_of(job.point), ran.timing.roles, ran.prepared, ran.roles, strict=True)
        for (kind, _), schedule, prepared, trace in rows:
            facts = self._facts(job, kind, _due(schedule, ran.timing.roles[0]))
            facts = replace(
                facts,
                grant=prepared.grant,
                step_us=prepared.step_us,
                verified_error=prepared.verified_error,
                source_digest=prepared.source_digest,
                config=prepared.config,
                create_us=prepared.create_us,
                destroy_us=prepared.destroy_us,
                first_launch_us=prepared.first_launch_us,
                smids=trace.smids,
                sm_clock_mhz=trace.sm_clock_mhz,
            )
            found.append(
                RoleVisit(
                    facts=facts,
                    due_ns=tuple(due - origin for due in trace.due_ns),
                    start_ns=tuple(start - origin for start in trace.start_ns),
                    end_ns=tuple(end - origin for end in trace.end_ns),
                    late_ns=trace.late_ns,
                    reported=trace.reported,
                    chunks=tuple((start - origin, end - origin) for start, end in trace.chunks),
                )
            )
        return tuple(found)

    def _facts(self, job: Job, kind: Kind, due: int | None) -> RoleFacts:
        """Return what is known of a role before it is prepared, and of an open loop that was scheduled how many steps are due."""
        point = job.point
        workload = dict(cosetups.roles_of(point))[kind]
        pace = Pace.CLOSED if job.kind is VisitKind.PROBE else cosetups.pace(point, kind)
        rate = job.step_rate if kind is Kind.LATENCY else point.rate_per_s
        return RoleFacts(
            name=kind.value,
            kind=kind,
            workload=workload.name,
            params=_params(point, kind),
            family=workload.kind.value,
            metrics=workload.metrics,
            tokens=workload.tokens,
            sms_requested=point.sms_requested(kind),
            slot=point.slot(kind),
            pace=pace,
            process="" if pace is Pace.CLOSED else cosetups.process(self._plan, kind).value,
            rate_per_s=None if pace is Pace.CLOSED else rate,
            due=due,
        )


def _due(schedule: RoleSchedule, first: RoleSchedule) -> int | None:
    """Return how many steps of an open loop were due by the last one of the first role, None for a closed loop.

    A schedule has at least one step, which at a low rate is due when the visit is long over: that it did not end says nothing.
    """
    if schedule.due_ns is None:
        return None
    return sum(first.due_ns is None or due <= first.due_ns[-1] for due in schedule.due_ns)


def _refuse_end_of_room(point: CoPoint, ran: Ran) -> None:
    """Refuse a run in which a background that is to be always busy had no room left: what came after ran beside nothing."""
    for schedule, role in zip(ran.timing.roles, ran.roles, strict=True):
        if not schedule.endless:
            continue
        most = ROOM // (len(point.chunks) or 1)
        if len(role.end_ns) >= most:
            raise FailedError(
                f"role {role.name}: {most} steps, all that a run has room for, were done before the latency role had come to its "
                "end; give fewer --steps, or a higher --step-rate"
            )


def _params(point: CoPoint, kind: Kind) -> str:
    """Return the parameters of a role's workload, and the size of its pieces where it gives way between them."""
    workload = dict(cosetups.roles_of(point))[kind]
    pieces = f"chunk={point.chunk}" if kind is Kind.BACKGROUND and point.chunk is not None else ""
    return ",".join(filter(None, (workload.param_text, pieces)))


__all__ = ["Job", "Ran", "Visitor"]
