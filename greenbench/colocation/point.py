"""One cell of a co-location: who runs, where, and beside whom; its name, its partner alone, and what stands in its way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from greenbench.colocation.figures import co_label
from greenbench.divisions import Pool
from greenbench.errors import PlanError
from greenbench.queueing.layout import GREEN, SIZED
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Backend, DeviceFacts, Scope, SmsMode
from greenbench.workload import Workload

# Whose partition a mechanism makes; the other role has every SM.
_CONFINED = {
    Kind.LATENCY: GREEN - {Mechanism.GREEN_BACKGROUND} | {Mechanism.ALONE},
    Kind.BACKGROUND: GREEN - {Mechanism.GREEN_PRIMARY} | {Mechanism.ALONE},
}
# One process per role.
APART = frozenset({Mechanism.TIMESLICE, Mechanism.MPS, Mechanism.MPS_LIMITED})
EXCLUSIVE = "exclusive_process"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoPoint:
    """One cell of a co-location. A point of `alone` has one of the two workloads; `sizes` None is no partition at all.

    `sizes` are those of the split, latency first, whichever of the two roles is confined; with mps_limited they are shares.
    `rate_per_s` is that of background requests, None a closed loop. `load` names the interfering load (compute, l2, hbm, copy)
    that stands in for the background, empty for the plan's own.
    """

    mechanism: Mechanism
    latency: Workload | None
    background: Workload | None
    chunks: tuple[Workload, ...] = ()
    chunk: int | None = None
    sizes: tuple[int, int] | None = None
    workqueue: Scope = Scope.DRIVER_DEFAULT
    concurrency_limit: int | None = None
    connections: int | None = None
    rate_per_s: float | None = None
    load: str = ""

    @property
    def apart(self) -> bool:
        """Return whether each role is a process of its own."""
        return self.mechanism in APART

    def workload(self, kind: Kind) -> Workload | None:
        """Return what a role runs, None where it is not there."""
        return self.latency if kind is Kind.LATENCY else self.background

    def slot(self, kind: Kind) -> int | None:
        """Return the index into `sizes` of a role's partition, None for the primary context: every SM."""
        if self.sizes is None or self.mechanism not in _CONFINED[kind]:
            return None
        return 0 if kind is Kind.LATENCY else 1

    def sms_requested(self, kind: Kind) -> str:
        """Return what a role's partition was asked for: a count, or `primary` where it may use every SM."""
        slot = self.slot(kind)
        return SmsMode.PRIMARY.value if slot is None or self.sizes is None else str(self.sizes[slot])

    @property
    def split(self) -> str:
        """Name the split by the latency role's SMs, empty where there is none; alone it is by those of who is there."""
        if self.sizes is None:
            return ""
        return str(self.sizes[1 if self.latency is None else 0])

    @property
    def mechanism_text(self) -> str:
        """Return the mechanism with what else tells points of it apart: `green`, `chunked:512`, `green+hbm`."""
        chunk = "" if self.chunk is None else f":{self.chunk}"
        return f"{self.mechanism.value}{chunk}{f'+{self.load}' if self.load else ''}"

    @property
    def label(self) -> str:
        """Return the name of the point, which no other point of a plan has."""
        first = self.latency or self.background
        name, params = ("", ()) if first is None else (first.name, first.params)
        scope = self.workqueue.value + ("" if self.concurrency_limit is None else f":{self.concurrency_limit}")
        place = (self.split or SmsMode.PRIMARY.value) + ("" if self.connections is None else f":c{self.connections}")
        return co_label(name, params, place, scope, self.mechanism_text, self.rate_per_s)

    def alone(self, kind: Kind) -> CoPoint:
        """Return the point of `alone` that a role of this one is compared with: the same workload on the same SMs."""
        here = kind is Kind.LATENCY
        return CoPoint(
            mechanism=Mechanism.ALONE,
            latency=self.latency if here else None,
            background=None if here else self.background,
            sizes=None if self.slot(kind) is None else self.sizes,
            connections=self.connections,
        )


def at_rate(point: CoPoint, rate: float) -> CoPoint:
    """Return the point with background requests that arrive at a rate; one alone, or beside another load, stays as it is."""
    return point if point.mechanism is Mechanism.ALONE or point.load else replace(point, rate_per_s=rate)


def obstacle(point: CoPoint, device: DeviceFacts) -> str:
    """Return why this device cannot do a point, as far as its facts tell, an empty string where nothing is known against it."""
    asked = point.workqueue is not Scope.DRIVER_DEFAULT or point.concurrency_limit is not None
    if asked and device.workqueue_obstacle:
        return device.workqueue_obstacle
    if point.mechanism is Mechanism.TIMESLICE and device.compute_mode == EXCLUSIVE:
        return "two processes cannot share a GPU in compute mode exclusive_process; nvidia-smi -c DEFAULT would let them"
    if point.sizes is None or point.mechanism not in SIZED | {Mechanism.ALONE}:
        return ""
    if sum(point.sizes) > device.sm_count:
        return f"{point.sizes[0]} + {point.sizes[1]} SMs are more than the {device.sm_count} of this device"
    if point.mechanism is Mechanism.TORCH_GREEN and (why := _torch_obstacle(point.sizes[0], device)):
        return why
    if point.mechanism is Mechanism.MPS_LIMITED or device.split_api == "structured":
        return ""
    return _split_obstacle(point.sizes, device)


def _torch_obstacle(latency: int, device: DeviceFacts) -> str:
    """Return why torch makes no green context of exactly these SMs here; its split by count rounds up."""
    if device.backend is Backend.MODELLED:
        return "torch_green is a cross-check of real green contexts; nothing runs on a modelled device"
    unit = max(1, device.min_partition)
    if latency % unit:
        below, above = latency - latency % unit, latency - latency % unit + unit
        near = f"{below} and {above}" if below else f"{above}"
        return f"--sms: torch rounds {latency} SMs up to {above}; nearest sizes: {near}"
    return ""


def _split_obstacle(sizes: tuple[int, int], device: DeviceFacts) -> str:
    """Return why one split by count cannot give exactly these two sizes, naming the nearest ones."""
    pool = Pool.of(device.sm_count, max(1, device.min_partition))
    latency, background = sizes
    if not pool.is_exact(latency):
        try:
            pool.pair(latency)
        except PlanError as error:
            return str(error)
    if _fits(pool, latency, background):
        return ""
    possible = sorted((size for size in pool.sizes() if _fits(pool, latency, size)), key=lambda size: abs(size - background))
    near = " and ".join(map(str, sorted(possible[:2]))) or "none"
    return f"--background-sms: {background} SMs cannot be split off exactly beside {latency}; nearest sizes: {near}"


def _fits(pool: Pool, *sizes: int) -> bool:
    """Return whether these exact sizes come out of one split: the remainder serves once, and the units suffice."""
    spares = [pool.needs_remainder(size) for size in sizes]
    whole = sum(sizes) - sum(spares) * pool.spare
    return all(map(pool.is_exact, sizes)) and sum(spares) <= 1 and whole <= pool.units * pool.unit
