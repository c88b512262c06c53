"""What a co-location is made of: a device, roles with the kernels of one step, and when their steps are meant to start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from greenbench.errors import UsageError


class Mechanism(StrEnum):
    """How the roles share the device; what each does here stands in `greenbench.queueing`."""

    ALONE = "alone"
    SERIAL = "serial"
    CHUNKED = "chunked"
    STREAMS = "streams"
    PRIORITY = "priority"
    GREEN = "green"
    GREEN_BACKGROUND = "green_background"
    GREEN_PRIMARY = "green_primary"
    GREEN_PRIORITY = "green_priority"
    GREEN_BALANCED = "green_balanced"
    TORCH_GREEN = "torch_green"
    TIMESLICE = "timeslice"
    MPS = "mps"
    MPS_LIMITED = "mps_limited"


class Kind(StrEnum):
    """What a role is there for."""

    LATENCY = "latency"
    BACKGROUND = "background"


@dataclass(frozen=True, slots=True)
class Device:
    """The facts of a device that decide who waits for whom.

    `hbm_gb_s` is what kernels really reach (None: never scarce). `gap_us` passes between a kernel of a step and the next one,
    in which its SMs are free to others. A switch of 137 us between processes was measured on an H200 (driver 580); the slice
    is the driver's default as commonly given, not measured. `jitter_pct` is one standard deviation of a kernel's time.
    """

    sms: int
    hbm_gb_s: float | None = None
    gap_us: float = 0.0
    slice_us: float = 2000.0
    switch_us: float = 137.0
    jitter_pct: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """Times by SM count, {SMs: us}, as a callable.

    Between two counts the speed (1 / us) is linear; below the smallest it falls in proportion, above the largest it stays.
    """

    times_us: Mapping[int, float]

    def __call__(self, sms: int) -> float:
        """Return us on this many SMs."""
        if sms in self.times_us:
            return self.times_us[sms]
        counts = sorted(self.times_us)
        if not counts:
            raise UsageError("a table of times is empty: give the time on at least one SM count")
        if sms < counts[0]:
            return self.times_us[counts[0]] * counts[0] / sms
        if sms > counts[-1]:
            return self.times_us[counts[-1]]
        below = max(count for count in counts if count < sms)
        above = min(count for count in counts if count > sms)
        slow, fast = 1 / self.times_us[below], 1 / self.times_us[above]
        return 1 / (slow + (fast - slow) * (sms - below) / (above - below))


@dataclass(frozen=True, slots=True)
class Piece:
    """One kernel of a step: `us(n)` is what it takes alone on n SMs, for every n up to the device's.

    `hbm_bytes` cross the HBM bus during one launch: hbm_bytes / (us(n) * HBM rate) is its share of HBM, at most 1. A grid of
    `ctas` runs in waves, `ctas_per_sm` at once on an SM, and SMs change hands between waves. None stands for a persistent
    kernel (one CTA per SM that it may use), which keeps its SMs to its end.
    """

    us: Callable[[int], float]
    hbm_bytes: float = 0.0
    ctas: int | None = None
    ctas_per_sm: int = 1
    name: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: the next step is meant to start `think_us` after the one before has ended, the first one at 0.

    It is over after `steps`, or with the first step that ends past `until_us`. With neither the loop is the busy background of
    others: it releases steps until the last of theirs has ended.
    """

    steps: int | None = None
    think_us: float = 0.0
    until_us: float | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """A workload with a name: the kernels of one step in order, and when its steps are meant to start.

    `arrivals` are us, ascending (an open loop: they never move), or `Closed`. `chunk` is the number of kernels after which
    another role may have its turn under `chunked`, or those of each chunk in turn; None makes the whole step one chunk.
    """

    name: str
    kind: Kind
    step: tuple[Piece, ...]
    arrivals: tuple[float, ...] | Closed
    chunk: int | tuple[int, ...] | None = None

    @property
    def endless(self) -> bool:
        """Return whether the others decide when this role ends."""
        return isinstance(self.arrivals, Closed) and self.arrivals.steps is None and self.arrivals.until_us is None

    def kernels_from(self, at: int) -> int:
        """Return how many kernels the chunk holds that begins with kernel `at` of a step."""
        if self.chunk is None:
            return len(self.step) - at
        if isinstance(self.chunk, int):
            return self.chunk
        begin = 0
        for kernels in self.chunk:
            begin += kernels
            if at < begin:
                return begin - at
        return len(self.step) - at


def nanoseconds(us: float) -> int:
    """Return us as whole ns, rounded to the nearest."""
    return round(us * 1000)


def check(device: Device, roles: tuple[Role, ...]) -> None:
    """Raise UsageError where a device or its roles cannot be meant."""
    if device.sms < 1:
        raise UsageError(f"a device of {device.sms} SMs cannot run anything: give at least 1")
    if device.hbm_gb_s is not None and not device.hbm_gb_s > 0:
        raise UsageError(f"hbm_gb_s is {device.hbm_gb_s}: give a positive rate, or none where HBM is never scarce")
    if nanoseconds(device.slice_us) < 1:
        raise UsageError(f"slice_us is {device.slice_us}: a process needs at least 0.001 us in a turn")
    for name in ("gap_us", "switch_us", "jitter_pct"):
        if not (math.isfinite(value := getattr(device, name)) and value >= 0):
            raise UsageError(f"{name} is {value}: give zero or more")
    names = [role.name for role in roles]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two roles are called {twice[0]!r}: give each a name of its own")
    if all(role.endless for role in roles):
        raise UsageError("no role has a number of steps or arrivals, so the run would never end: give one of them")
    for role in roles:
        _check_role(role)


def _check_role(role: Role) -> None:
    if not role.step:
        raise UsageError(f"role {role.name!r} has no kernel: a step needs at least one")
    chunks = role.chunk if isinstance(role.chunk, tuple) else () if role.chunk is None else (role.chunk,)
    if any(kernels < 1 for kernels in chunks):
        raise UsageError(f"role {role.name!r} has chunks of {min(chunks)} kernels: give at least 1")
    for piece in role.step:
        if (piece.ctas is not None and piece.ctas < 1) or piece.ctas_per_sm < 1 or not 0 <= piece.hbm_bytes < math.inf:
            raise UsageError(f"kernel {piece.name!r} of role {role.name!r} has a grid below 1, or bytes that cannot be moved")
    if isinstance(role.arrivals, Closed):
        until = role.arrivals.until_us
        if (role.arrivals.steps or 0) < 0 or not 0 <= role.arrivals.think_us < math.inf or not 0 <= (until or 0.0) < math.inf:
            raise UsageError(f"role {role.name!r} has a negative number of steps, time between them or end: give zero or more")
        return
    before = 0.0
    for at in role.arrivals:
        if not before <= at < math.inf:
            raise UsageError(f"arrivals of role {role.name!r} have {at} after {before}: give ascending times from 0 on, in us")
        before = at
