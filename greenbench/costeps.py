"""What a co-location asks of a device and what comes back: roles, their schedules, the stamps of every step; frozen data.

All times of a trace are in ns on the device's own clock (%globaltimer), which every process on the device shares.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Evidence, Grant, Scope
from greenbench.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """One role as a process prepares it.

    `slot` is the index into `CoSetup.sizes` of the partition that it gets; None is the primary context, every SM. `chunks` are
    the pieces of one step in order, for a background that gives way between them; a step then ends with its last piece.
    """

    name: str
    kind: Kind
    workload: Workload
    slot: int | None = None
    urgent: bool = False
    chunks: tuple[Workload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoSetup:
    """What one process prepares for one point: the roles that it holds itself, and the sizes of the one split."""

    mechanism: Mechanism
    roles: tuple[RoleSpec, ...]
    sizes: tuple[int, ...] = ()
    workqueue: Scope = Scope.DRIVER_DEFAULT
    concurrency_limit: int | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePrepared:
    """What became known when a role was prepared; `step_us` is one step by itself, the quicker of a few, without a wait.

    `create_us` is the host's time to create its context and stream, `first_launch_us` that of the first launch there with its
    wait; both are None where nothing was created.
    """

    grant: Grant
    step_us: float
    verified_error: float | None
    source_digest: str
    config: str = ""
    flops: float | None = None
    bytes: float | None = None
    create_us: float | None = None
    destroy_us: float | None = None
    first_launch_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSchedule:
    """When the steps of a role are due.

    `due_ns` counts from the origin (an open loop); None is a closed loop, where a step is due when the one before has ended. A
    closed loop ends after `steps`, or at the first end past `until_ns` from the origin, or, with neither, when every role that
    has an end has come to it or `CoSchedule.stop` says so; `ahead` is how many of its steps are enqueued at most, 1: the host
    waits for the end of each, None: enough to hide the host. `on_host` lets the host wait for the due time instead of a gate on
    the device, whose spinning would eat the time slices of others.
    """

    due_ns: tuple[int, ...] | None = None
    steps: int | None = None
    until_ns: int | None = None
    on_host: bool = False
    ahead: int | None = None

    @property
    def endless(self) -> bool:
        """Return whether others decide when this role ends."""
        return self.due_ns is None and self.steps is None and self.until_ns is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoSchedule:
    """One run of a prepared setup; `roles` are in the order of `CoSetup.roles`.

    `origin_ns` is on the device's clock, None: as soon as everything is queued. `stop` is a file whose appearance ends endless
    roles: the roles of other processes are done. `limit_s` is when to give up, in host seconds.
    """

    roles: tuple[RoleSchedule, ...]
    origin_ns: int | None = None
    stop: Path | None = None
    limit_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTrace:
    """The steps of one role in order, in ns of the device's clock; `late_ns` is how long the device waited for the host.

    `reported` holds, per step, what the last kernel of the step wrote into its report buffer; empty where it has none. `chunks`
    holds [start, end) of every piece of a chunked step.
    """

    name: str
    due_ns: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    late_ns: tuple[int, ...]
    smids: tuple[int, ...]
    reported: tuple[float, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()
    sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one run gave. `clock_error_ns` is how well the host's clock was fitted to the device's, where a host waited."""

    origin_ns: int
    roles: tuple[RoleTrace, ...]
    before: Evidence = field(default_factory=Evidence)
    after: Evidence = field(default_factory=Evidence)
    seconds: float = 0.0
    clock_error_ns: float | None = None
    notes: tuple[str, ...] = ()
