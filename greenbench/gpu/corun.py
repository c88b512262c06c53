"""Co-location on the real device: roles on their lanes, each step a graph with its own gate and stamps."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from greenbench import stats
from greenbench.catalog import Kernel
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, RoleSchedule, RoleSpec, RoleTrace, Trace
from greenbench.errors import FailedError
from greenbench.gpu import ClockSample
from greenbench.gpu.colanes import CoLanes, Creation, Split
from greenbench.gpu.hosting import Queue, in_turn, side_by_side
from greenbench.gpu.lane import CudaLane
from greenbench.gpu.ledger import CAPACITY, Ledger, StepKernels
from greenbench.gpu.steps import COPY, Bench, StepGraph
from greenbench.queueing.model import Mechanism
from greenbench.workload import Workload, workload_digest

if TYPE_CHECKING:
    from greenbench.gpu.cuda import CudaGpu

IN_TURN = frozenset({Mechanism.SERIAL, Mechanism.CHUNKED})
# Steps by themselves that say how long one takes; the first ones warm up.
TRIALS = 5
CLOCK_READINGS = 50
# From now to the origin, where nobody gave one: filling the queues takes less.
LEAD_NS = 5_000_000


@dataclass(frozen=True, slots=True)
class Ready:
    """A role that can run."""

    spec: RoleSpec
    lane: CudaLane
    ledger: Ledger
    pieces: tuple[StepGraph, ...]
    prepared: RolePrepared


class DeviceClock:
    """The device's clock by the host's: the reading with the shortest way there and back gives the offset."""

    def __init__(self, gpu: CudaGpu) -> None:
        self._offset, self.error_ns = 0, 0.0
        best = None
        for _ in range(CLOCK_READINGS):
            before = time.perf_counter_ns()
            device = gpu.now_ns()
            after = time.perf_counter_ns()
            if best is None or after - before < best:
                best = after - before
                self._offset = device - (before + after) // 2
        self.error_ns = (best or 0) / 2

    def now_ns(self) -> int:
        """Return the device's time."""
        return time.perf_counter_ns() + self._offset


class CoRuns:
    """What co-locations of one process share: lanes, launches by lane, ledgers."""

    def __init__(self, gpu: CudaGpu, lanes: CoLanes, kernels: StepKernels) -> None:
        self.gpu, self.lanes, self._kernels = gpu, lanes, kernels
        self._benches: dict[int, Bench] = {}

    def bench(self, lane: CudaLane, kernels: Mapping[str, Kernel]) -> Bench:
        """Return the launches of a lane."""
        return self._benches.setdefault(id(lane), Bench(self.gpu.core, lane, kernels))

    def ledger(self) -> Ledger:
        """Return a new ledger."""
        return Ledger(self.gpu.core, self._kernels)

    def close(self) -> None:
        """Close the lanes; launches go with them."""
        self._benches.clear()
        self.lanes.close()


class CudaCorun:
    """The roles of one point in this process."""

    def __init__(self, runs: CoRuns, setup: CoSetup, kernels: Mapping[str, Kernel]) -> None:
        self._runs, self._setup = runs, setup
        split = Split(setup.sizes, setup.workqueue, setup.concurrency_limit) if setup.sizes else None
        self._shared = self._lane(setup.roles[0], split) if setup.mechanism in IN_TURN else None
        self._roles: list[Ready] = []
        try:
            for spec in setup.roles:
                self._roles.append(self._made_ready(spec, split, kernels))
        except BaseException:
            self.close()
            raise
        self.prepared: tuple[RolePrepared, ...] = tuple(role.prepared for role in self._roles)

    @property
    def _in_turn(self) -> bool:
        return self._setup.mechanism in IN_TURN

    def _lane(self, spec: RoleSpec, split: Split | None) -> tuple[CudaLane, Creation]:
        by_torch = self._setup.mechanism is Mechanism.TORCH_GREEN
        return self._runs.lanes.lane(spec.name, split, spec.slot, urgent=spec.urgent, by_torch=by_torch)

    def _made_ready(self, spec: RoleSpec, split: Split | None, kernels: Mapping[str, Kernel]) -> Ready:
        lane, cost = self._shared or self._lane(spec, split)
        bench, ledger = self._runs.bench(lane, kernels), self._runs.ledger()
        workloads: tuple[Workload, ...] = spec.chunks or (spec.workload,)
        pieces: list[StepGraph] = []
        try:
            pieces += [StepGraph(bench, ledger, each, verify=self._setup.verify) for each in workloads]
            step_us = self._step_us(lane, ledger, pieces)
        except BaseException:
            for piece in pieces:
                piece.close()
            raise
        prepared = RolePrepared(
            grant=lane.grant,
            step_us=step_us,
            verified_error=bench.error(workloads),
            source_digest=workload_digest(_kernels_only(spec.workload), kernels),
            config=bench.config(spec.workload),
            create_us=cost.create_us,
            destroy_us=cost.destroy_us,
            first_launch_us=cost.first_launch_us,
        )
        return Ready(spec, lane, ledger, tuple(pieces), prepared)

    @staticmethod
    def _step_us(lane: CudaLane, ledger: Ledger, pieces: Sequence[StepGraph]) -> float:
        ledger.reset(lane.stream, (), gated=True)
        for _ in range(TRIALS):
            for piece in pieces:
                piece.launch()
        lane.sync()
        seen = ledger.read(lane.stream, TRIALS * len(pieces))
        steps = [int(seen["ended"][(i + 1) * len(pieces) - 1]) - int(seen["started"][i * len(pieces)]) for i in range(TRIALS)]
        return max(min(steps) / 1e3, 1e-3)

    def run(self, schedule: CoSchedule) -> Trace:
        """Run every role's schedule; steps that the limit cut off are left out. Raises FailedError, StickyError."""
        if len(schedule.roles) != len(self._roles):
            raise FailedError(f"internal: {len(schedule.roles)} schedules for {len(self._roles)} roles")
        gpu = self._runs.gpu
        clock = DeviceClock(gpu)
        before = gpu.evidence(energy=True)
        first = [self._probed(role) for role in self._roles]
        began = time.perf_counter()
        origin = schedule.origin_ns or gpu.now_ns() + LEAD_NS
        queues = [self._queue(role, asked, origin) for role, asked in zip(self._roles, schedule.roles, strict=True)]
        if self._in_turn:
            in_time = in_turn(queues, schedule, clock, alternate=self._setup.mechanism is Mechanism.CHUNKED)
        else:
            in_time = side_by_side(queues, schedule, clock)
        for role in self._roles:
            role.lane.sync()
        seconds = time.perf_counter() - began
        second = [self._probed(role) for role in self._roles]
        books = [_Book.read(role, queue) for role, queue in zip(self._roles, queues, strict=True)]
        ends = [sorted(end for book in books for end in book.ended)] * len(books) if self._in_turn else [b.ended for b in books]
        traces = [
            _trace(book, _clear_ns(book, before_it, origin), origin, probes)
            for book, before_it, probes in zip(books, ends, zip(first, second, strict=True), strict=True)
        ]
        on_host = self._in_turn or any(asked.on_host for asked in schedule.roles)
        return Trace(
            origin_ns=origin,
            roles=tuple(traces),
            before=before,
            after=gpu.evidence(energy=True),
            seconds=seconds,
            clock_error_ns=clock.error_ns if on_host else None,
            notes=() if in_time else (f"stopped at its limit of {schedule.limit_s:g} s",),
        )

    def _probed(self, role: Ready) -> ClockSample:
        """Probe a lane inside a range whose name ties its context to its SMs, for whoever reads a capture."""
        with self._runs.gpu.annotate(f"probe|role={role.spec.name}|sms={role.lane.grant.sms}", "setup"):
            return role.lane.probe()

    @staticmethod
    def _queue(role: Ready, asked: RoleSchedule, origin: int) -> Queue:
        pieces = len(role.pieces)
        due = [origin + at for at in asked.due_ns] if asked.due_ns is not None else [origin]
        if len(due) * pieces > CAPACITY:
            raise FailedError(f"{len(due)} steps of {pieces} pieces are too many for one run; at most {CAPACITY // pieces}")
        # Only the first piece of a step waits for its due time.
        gates = [at if piece == 0 else 0 for at in due for piece in range(pieces)]
        role.ledger.reset(role.lane.stream, gates, gated=not asked.on_host)
        end = origin + asked.until_ns if asked.until_ns is not None else None
        return Queue(role.pieces, role.ledger, asked, due, end)

    def close(self) -> None:
        """Destroy the graphs; lanes stay for the next setup."""
        for role in self._roles:
            for piece in role.pieces:
                piece.close()
        self._roles.clear()


@dataclass(frozen=True, slots=True)
class _Book:
    """The stamps of every piece of the steps that were done."""

    role: Ready
    queue: Queue
    steps: int
    entered: list[int]
    started: list[int]
    ended: list[int]
    reported: list[int]

    @classmethod
    def read(cls, role: Ready, queue: Queue) -> _Book:
        """Read a ledger whose stream is idle."""
        steps = queue.ledger.done // len(role.pieces)
        seen = queue.ledger.read(role.lane.stream, steps * len(role.pieces))
        columns = (seen[name].astype("int64").tolist() for name in ("entered", "started", "ended", "reported"))
        return cls(role, queue, steps, *columns)

    @property
    def pieces(self) -> int:
        """Pieces of a step."""
        return len(self.role.pieces)

    def due_ns(self, origin: int) -> list[int]:
        """Return when each step was due; in a closed loop that is the end of the one before."""
        if self.queue.schedule.due_ns is not None:
            return list(self.queue.due_ns[: self.steps])
        return [origin, *self.ended[self.pieces - 1 :: self.pieces]][: self.steps]


def _clear_ns(book: _Book, ends: list[int], origin: int) -> list[int]:
    """Return when the stream was free for each step: the latest of `ends`, which rise, before the step was entered."""
    entered = book.entered[:: book.pieces]
    return [ends[place - 1] if (place := bisect_right(ends, at)) else origin for at in entered]


def _trace(book: _Book, clear: list[int], origin: int, probes: tuple[ClockSample, ClockSample]) -> RoleTrace:
    """Return the stamps of the steps that were done, pieces put together."""
    pieces, due = book.pieces, book.due_ns(origin)
    entered = book.entered[::pieces]
    per = book.role.pieces[-1].per
    return RoleTrace(
        name=book.role.spec.name,
        due_ns=tuple(due),
        start_ns=tuple(book.started[::pieces]),
        end_ns=tuple(book.ended[pieces - 1 :: pieces]),
        late_ns=tuple(max(0, at - max(when, free)) for at, when, free in zip(entered, due, clear, strict=True)),
        smids=tuple(sorted(set(probes[0].smids) | set(probes[1].smids))),
        reported=tuple(value / per for value in book.reported[pieces - 1 :: pieces]) if per else (),
        chunks=tuple(zip(book.started, book.ended, strict=True)) if pieces > 1 else (),
        sm_clock_mhz=stats.clock_mhz(probes[0].stamps, probes[1].stamps),
    )


def _kernels_only(workload: Workload) -> Workload:
    """Leave out transfers, which have no source."""
    groups = tuple(replace(g, calls=tuple(c for c in g.calls if c.kernel != COPY)) for g in workload.groups)
    return replace(workload, groups=groups)


__all__ = ["CoRuns", "CudaCorun", "DeviceClock"]
