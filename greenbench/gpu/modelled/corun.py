"""Co-runs on the modelled device: every mechanism in one process, by the discrete events of `queueing`, in virtual time.

Faults strike co-runs by the counting rules of `faults`: block k of a kernel on so many SMs is here the k-th co-run in which it
takes part on as many, whatever the mechanism, and block 1 includes preparing. Faults that change the times of single blocks
(bimodal, drift) leave co-runs alone. A client of MPS with a share sees as many SM ids as it has SMs, as measured on an H200;
which SMs these are is not known across clients, so its placement is unproven.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from greenbench.catalog import Kernel
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, RoleSchedule, RoleTrace, Trace
from greenbench.errors import FailedError, StickyError
from greenbench.gpu.modelled.coroles import Preparing, ReadyRole
from greenbench.gpu.modelled.faults import NOWHERE, FaultKind, Visit
from greenbench.gpu.modelled.grants import SplitRules
from greenbench.gpu.modelled.lane import EPOCH_NS, HANG_STEP_S
from greenbench.gpu.modelled.pieces import COPY, PreparedCall, reported
from greenbench.gpu.modelled.state import DeviceState
from greenbench.queueing import Closed, Outcome, Role, Step, corun, predicted
from greenbench.schema import Evidence, Family

NS_PER_US, US_PER_S, NS_PER_S = 1e3, 1e6, 1e9
# What a host needs that waits for the end of each step: 113 us a step for a kernel of 101 us (H200, driver 580).
HOST_TURN_US = 12.0
COPY_NOTE = f"{COPY} is modelled as a kernel that holds one SM: the model has no copy engines"


class ModelledCorun:
    """The roles of one point, prepared together; `prepared` is in their order."""

    def __init__(
        self,
        state: DeviceState,
        rules: SplitRules,
        evidence: Callable[[], Evidence],
        setup: CoSetup,
        kernels: Mapping[str, Kernel],
    ) -> None:
        state.require_context()
        self._state, self._evidence, self._mechanism = state, evidence, setup.mechanism
        # A step is a graph, in which the next kernel follows sooner than on a stream.
        self._device = replace(predicted.device(state.facts), gap_us=state.facts.graph_launch_us)
        self._roles = Preparing(state, rules, setup, kernels).roles()
        self._runs = 0
        self.prepared: tuple[RolePrepared, ...] = tuple(
            role.prepared(state, kernels, self._device.gap_us) for role in self._roles
        )

    def run(self, schedule: CoSchedule) -> Trace:
        """Run every role's schedule; the limit is in seconds of virtual time, and steps that it cuts off are left out.

        Raises FailedError, or StickyError where the process is lost, when a fault strikes.
        """
        if len(schedule.roles) != len(self._roles):
            raise FailedError(f"internal: {len(schedule.roles)} schedules for {len(self._roles)} roles")
        visits = self._strike(schedule.limit_s)
        clock = self._settle(visits)
        before = self._evidence()
        now = EPOCH_NS + int(self._state.now_ns)
        origin = now if schedule.origin_ns is None else schedule.origin_ns
        outcome = self._outcome(schedule, clock)
        last = max((step.end for steps in outcome.steps.values() for step in steps), default=0)
        traces = tuple(
            self._trace(role, asked, outcome, origin, clock, visits[role.spec.name])
            for role, asked in zip(self._roles, schedule.roles, strict=True)
        )
        self._pass(max(origin + last - now, 0), visits)
        return Trace(
            origin_ns=origin,
            roles=traces,
            before=before,
            after=self._evidence(),
            seconds=last / NS_PER_S,
            clock_error_ns=0.0 if any(asked.on_host for asked in schedule.roles) else None,
            notes=tuple(self._notes(schedule, outcome)),
        )

    def _strike(self, limit_s: float) -> dict[str, list[Visit]]:
        """Make every kernel of the co-run the device's work, so that faults strike, and return the visits of each role."""
        visits: dict[str, list[Visit]] = {}
        self._state.require_context()
        for role in self._roles:
            found = visits[role.spec.name] = []
            for call in role.calls:
                if call.shape is not None:
                    if self._state.faults.faults:
                        self._launch(role, call, limit_s)
                    found.append(self._state.arrive(call.shape.key, probe=call.shape.kernel.family is Family.PROBE))
        return visits

    def _launch(self, role: ReadyRole, call: PreparedCall, limit_s: float) -> None:
        """Launch once; what never ends takes the limit, in host seconds, and the process with it."""
        if call.work is None:
            return
        role.lane.sample += 1
        call.work.launch()
        deadline = time.monotonic() + limit_s
        while role.lane.hung:
            if time.monotonic() >= deadline:
                self._state.lost = f"{call.call.text} has not ended after {limit_s:g} s (modelled fault)"
                raise StickyError(self._state.lost)
            time.sleep(HANG_STEP_S)
        role.lane.wait()

    def _settle(self, visits: Mapping[str, Sequence[Visit]]) -> float:
        """Leave the device at the visit at which it is slowest, and return its SM clock: roles share one."""

        def clock(visit: Visit) -> float:
            self._state.visit = visit
            return self._state.sm_clock_mhz()

        slowest = min((visit for each in visits.values() for visit in each), key=clock, default=NOWHERE)
        return clock(slowest)

    def _outcome(self, schedule: CoSchedule, sm_clock_mhz: float) -> Outcome:
        roles = [
            Role(role.spec.name, role.spec.kind, role.pieces(self._state, sm_clock_mhz), _arrivals(asked), role.chunks or None)
            for role, asked in zip(self._roles, schedule.roles, strict=True)
        ]
        self._runs += 1
        return corun(
            self._device,
            roles,
            self._mechanism,
            placed=[role.place for role in self._roles],
            seed=self._runs,
            until_us=schedule.limit_s * US_PER_S,
        )

    def _trace(
        self, role: ReadyRole, asked: RoleSchedule, outcome: Outcome, origin: int, clock: float, visits: Sequence[Visit]
    ) -> RoleTrace:
        steps = outcome.steps[role.spec.name]
        last = role.calls[role.order[-1]]
        report = reported(last, role.pieces(self._state, clock)[-1].us(role.lane.sms), clock)
        return RoleTrace(
            name=role.spec.name,
            due_ns=tuple(origin + due for due in _due(asked, steps)),
            start_ns=tuple(origin + step.start for step in steps),
            end_ns=tuple(origin + step.end for step in steps),
            late_ns=(0,) * len(steps),
            smids=role.lane.seen_at(visits),
            reported=() if report is None else (report,) * len(steps),
            chunks=_chunks(role, outcome, origin) if len(role.chunks) > 1 else (),
            sm_clock_mhz=clock,
        )

    def _pass(self, ns: int, visits: Mapping[str, Sequence[Visit]]) -> None:
        """Let virtual time pass, with the counters that run in it, and count the co-run as a block of its kernels."""
        state = self._state
        state.now_ns += ns
        state.looked = False
        if state.faults.due(FaultKind.THROTTLE, state.visit):
            state.thermal_ns += ns
        if state.faults.due(FaultKind.POWER_CAP, state.visit):
            state.power_cap_ns += ns
        for key in {(visit.kernel, visit.params, visit.sms) for each in visits.values() for visit in each}:
            state.blocks[key] += 1

    def _notes(self, schedule: CoSchedule, outcome: Outcome) -> Iterator[str]:
        if any(call.shape is None for role in self._roles for call in role.calls):
            yield COPY_NOTE
        pairs = zip(self._roles, schedule.roles, strict=True)
        if not all(_is_done(asked, outcome.steps[role.spec.name]) for role, asked in pairs):
            yield f"stopped at its limit of {schedule.limit_s:g} s"

    def close(self) -> None:
        """Nothing is held."""


def _arrivals(asked: RoleSchedule) -> tuple[float, ...] | Closed:
    if asked.due_ns is not None:
        return tuple(due / NS_PER_US for due in asked.due_ns)
    think_us = HOST_TURN_US if asked.ahead == 1 else 0.0
    return Closed(asked.steps, think_us, None if asked.until_ns is None else asked.until_ns / NS_PER_US)


def _due(asked: RoleSchedule, steps: Sequence[Step]) -> list[int]:
    """Return when each step was due: in a closed loop when the one before had ended, whatever the host needed then."""
    if asked.due_ns is not None:
        return [step.intended for step in steps]
    return [0, *(step.end for step in steps[:-1])] if steps else []


def _is_done(asked: RoleSchedule, steps: Sequence[Step]) -> bool:
    """Return whether a role came to its end before the limit did."""
    if asked.due_ns is not None:
        return len(steps) == len(asked.due_ns)
    past = asked.until_ns is not None and bool(steps) and steps[-1].end > asked.until_ns
    return asked.endless or past or len(steps) == asked.steps


def _chunks(role: ReadyRole, outcome: Outcome, origin: int) -> tuple[tuple[int, int], ...]:
    """Return [start, end) of every chunk of the steps that ended, in order."""
    ends = list(accumulate(role.chunks))
    chunk_of = [next(chunk for chunk, end in enumerate(ends) if at < end) for at in range(len(role.order))]
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for part in outcome.parts:
        if part.role == role.spec.name and part.step < len(outcome.steps[part.role]):
            key = part.step, chunk_of[part.piece]
            start, end = found.get(key, (part.start, part.end))
            found[key] = min(start, part.start), max(end, part.end)
    return tuple((origin + start, origin + end) for _, (start, end) in sorted(found.items()))
