"""One visit to a point of `switch`: tenants prepared and run in one process or in one each, and what the journal keeps of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from greenbench.arrivals import NS_PER_S
from greenbench.catalog import Kernel
from greenbench.cojournal import CoVisit, Pace, RoleFacts, RoleVisit
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, RoleTrace, Trace
from greenbench.errors import KernelFileError, PointError, StickyError, UnsupportedError
from greenbench.figures import TRIES
from greenbench.measure.validity import judge
from greenbench.schema import Backend, BlockStatus, DeviceFacts
from greenbench.switching.figures import WARM_SHARE
from greenbench.switching.plan import SwitchPlan, SwitchPoint, Way
from greenbench.switching.rows import RESIZED
from greenbench.switching.setups import after_resize, obstacle, one_each, percentage, schedule_of, setup_of
from greenbench.worker.mps import MpsDaemon

# A closed loop ends by itself; what has not by then hangs.
LIMIT_TIMES, LIMIT_MORE_S = 3.0, 5.0

_Ran = tuple[CoSetup, Sequence[RolePrepared], Sequence[Trace]]


class Crew(Protocol):
    """The part of `CoCrew` that a visit needs."""

    @property
    def size(self) -> int:
        """Workers that hold the device."""

    def prepare(self, setup: CoSetup) -> tuple[RolePrepared, ...]:
        """Prepare all tenants in one process."""

    def run(self, setup: CoSetup, schedule: CoSchedule) -> Trace:
        """Run them."""

    def run_apart(
        self, setups: Sequence[CoSetup], schedules: Sequence[CoSchedule], environments: Sequence[Mapping[str, str]]
    ) -> tuple[list[tuple[RolePrepared, ...]], list[Trace]]:
        """Prepare and run a process for each setup."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """What visits of one run have in common; `folder` takes what an MPS daemon says."""

    crew: Crew
    plan: SwitchPlan
    device: DeviceFacts
    kernels: Mapping[str, Kernel]
    folder: Path

    def visit(self, point: SwitchPoint, place: int, attempt: int) -> tuple[CoVisit, bool]:
        """Return the visit, and whether another try might end otherwise; raises what is no outcome of a point."""
        began, started = time.perf_counter(), time.time()
        own = self.crew.size
        retry = False
        try:
            found = self._recorded(point, self._ran(point), own)
        except (PointError, KernelFileError) as error:
            status = BlockStatus.UNSUPPORTED if isinstance(error, UnsupportedError) else BlockStatus.FAILED
            retry = isinstance(error, StickyError) and attempt < TRIES
            found = replace(self._blank(point), status=status, reason=str(error))
            # What would only fail the same way again counts as tried for good.
            attempt = attempt if retry or status is BlockStatus.UNSUPPORTED else TRIES
        seconds = time.perf_counter() - began
        return replace(found, place=place, attempt=attempt, started=started, seconds=seconds), retry

    def _blank(self, point: SwitchPoint) -> CoVisit:
        split = point.mechanism.value if point.mechanism is Way.REPARTITION else ""
        return CoVisit(label=self.plan.label(point), mechanism=point.mechanism.mechanism, split=split, processes=point.processes)

    def _ran(self, point: SwitchPoint) -> list[_Ran]:
        """Run the point, and return every phase of it."""
        if why := obstacle(point, self.device):
            raise UnsupportedError(why)
        setup = setup_of(point, self.plan, self.device, self.kernels)
        schedule = schedule_of(point, setup, self.plan.seconds, LIMIT_TIMES * self.plan.seconds + LIMIT_MORE_S)
        # The model has every mechanism in one process.
        if point.mechanism.apart and self.device.backend is Backend.CUDA:
            return [self._apart(point, setup, schedule)]
        phases = [setup, after_resize(setup, self.device)] if point.mechanism is Way.REPARTITION else [setup]
        return [(each, self.crew.prepare(each), [self.crew.run(each, schedule)]) for each in phases]

    def _apart(self, point: SwitchPoint, setup: CoSetup, schedule: CoSchedule) -> _Ran:
        setups = one_each(setup)
        schedules = [replace(schedule, roles=(role,)) for role in schedule.roles]
        if point.mechanism is Way.TIMESLICE:
            prepared, traces = self.crew.run_apart(setups, schedules, [{}] * len(setups))
        else:
            share = percentage(point) if point.mechanism is Way.MPS_LIMITED else None
            with MpsDaemon(self.folder) as daemon:
                prepared, traces = self.crew.run_apart(setups, schedules, [daemon.environment(share)] * len(setups))
        return setup, [each for one in prepared for each in one], traces

    def _recorded(self, point: SwitchPoint, ran: Sequence[_Ran], own: int) -> CoVisit:
        """Return the visit with the stamps of every phase from the first one's origin, and what the last one's evidence says."""
        origin = ran[0][2][0].origin_ns
        roles: list[RoleVisit] = []
        for phase, (setup, prepared, traces) in enumerate(ran):
            steps = [role for trace in traces for role in trace.roles]
            for place, facts in enumerate(self._facts(point, setup, prepared, RESIZED if phase else "")):
                roles.append(_role(facts, steps[place], origin))
        last = ran[-1][2]
        apart = point.mechanism.apart and self.device.backend is Backend.CUDA
        # An MPS server is a process of greenbench's as well.
        mine = own + (point.processes if apart else 0) + int(apart and point.mechanism is not Way.TIMESLICE)
        verdict = judge(last[0].before, last[0].after, last[0].seconds, own_processes=mine)
        errors = [trace.clock_error_ns for trace in last if trace.clock_error_ns is not None]
        return replace(
            self._blank(point),
            sizes=ran[-1][0].sizes,
            status=verdict.status,
            reason=verdict.reason,
            flags=verdict.flags,
            throttle=verdict.throttle,
            warm_ns=round(WARM_SHARE * self.plan.seconds * NS_PER_S),
            window_s=last[0].seconds,
            clock_error_ns=max(errors, default=None),
            notes="; ".join(dict.fromkeys(note for trace in last for note in trace.notes)),
            before=last[0].before,
            after=last[0].after,
            roles=tuple(roles),
        )

    def _facts(self, point: SwitchPoint, setup: CoSetup, prepared: Sequence[RolePrepared], suffix: str) -> list[RoleFacts]:
        params = ",".join(f"{name}={value}" for name, value in point.params)
        return [
            RoleFacts(
                name=spec.name + suffix,
                kind=spec.kind,
                workload=self.plan.operation,
                params=params,
                sms_requested="" if spec.slot is None else str(setup.sizes[spec.slot]),
                slot=spec.slot,
                pace=Pace.CLOSED,
                grant=known.grant,
                step_us=known.step_us,
                verified_error=known.verified_error,
                source_digest=known.source_digest,
                config=known.config,
                create_us=known.create_us,
                destroy_us=known.destroy_us,
                first_launch_us=known.first_launch_us,
            )
            for spec, known in zip(setup.roles, prepared, strict=True)
        ]


def _role(facts: RoleFacts, trace: RoleTrace, origin: int) -> RoleVisit:
    def since(stamps: Sequence[int]) -> tuple[int, ...]:
        return tuple(stamp - origin for stamp in stamps)

    return RoleVisit(
        facts=replace(facts, smids=trace.smids, sm_clock_mhz=trace.sm_clock_mhz),
        due_ns=since(trace.due_ns),
        start_ns=since(trace.start_ns),
        end_ns=since(trace.end_ns),
        late_ns=trace.late_ns,
        reported=trace.reported,
    )


def settled(visit: CoVisit | None) -> bool:
    """Return whether a point needs no further visit."""
    if visit is None:
        return False
    return visit.status in (BlockStatus.OK, BlockStatus.UNSUPPORTED) or (
        visit.status is BlockStatus.FAILED and visit.attempt >= TRIES
    )


__all__ = ["Tenants", "settled"]
