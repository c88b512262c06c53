"""From SM counts to green contexts: one split per decision, whatever the driver's version makes of it.

Before driver 13.1 a split gives equal groups and rounds up; from 13.1 on it is structured, exact, and may refuse. Which of the
two is there is asked of the driver, never tabled. Contexts that must be disjoint come out of one split; a sweep, which uses one
partition at a time, takes a split of its own per size, so that the 8-SM set lies inside the 16-SM set. (CUDA driver API, "Green
Contexts".)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from greenbench.errors import UnsupportedError
from greenbench.gpu import driver
from greenbench.schema import FINE_UNIT, Partition, Scope, SmsMode

# CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING: units of 2 SMs where the default is 8.
IGNORE_COSCHEDULING = 1
NEAREST_TRIES = 16


@dataclass(frozen=True, slots=True)
class Slice:
    """The SM resources of one partition. `raw` marks CUdevResource objects of the bindings instead of cuda.core's."""

    resources: tuple[Any, ...]
    method: str
    unit_ids: tuple[int, ...] = ()
    remainder: bool = False
    raw: bool = False
    note: str = ""


@dataclass(slots=True)
class OpenPartition:
    """A created context with its stream; `close` destroys them in the order that every driver accepts."""

    context: Any
    stream: Any
    sms: int
    slice: Slice
    workqueue: str = Scope.DRIVER_DEFAULT.value
    concurrency_limit: int | None = None
    _close: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Destroy the stream, then the context; the caller has waited for the stream."""
        while self._close:
            self._close.pop()()


class Splitter:
    """Splits the SMs of one device whose primary context is current."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._core = driver.cuda_core()
        self.structured = self._asks_for_structured()

    @property
    def _sm(self) -> Any:
        return self._device.resources.sm

    @property
    def unit(self) -> int:
        """Smallest group that the driver splits off (8 on compute capability 9.0)."""
        return int(self._sm.min_partition_size)

    @property
    def total(self) -> int:
        """SMs of the device, or of its MIG or MPS share."""
        return int(self._sm.sm_count)

    def _asks_for_structured(self) -> bool:
        # Unequal counts are what the structured split is for; where it is not there, cuda.core refuses them with a RuntimeError.
        unit = self.unit
        try:
            self._split([unit, 2 * unit])
        except driver.cuda_error():
            return True
        except (RuntimeError, ValueError):
            return False
        return True

    def _split(self, count: int | list[int], **options: Any) -> tuple[list[Any], Any]:
        groups, rest = self._sm.split(self._core.SMResourceOptions(count=count, **options))
        return list(groups), rest

    def slice(self, partition: Partition) -> Slice:
        """Return the resources of one partition, from a split of its own; raises UnsupportedError where the driver refuses."""
        fine = partition.granularity is not None and partition.granularity < self.unit
        # From 13.1 on a plain split for all SMs is refused where they are no multiple of the alignment (132).
        if partition.mode is SmsMode.FULL or (partition.sms == self.total and not fine):
            return self._full()
        if partition.sms is None:
            raise UnsupportedError("the primary context is no partition")
        if fine:
            return self._fine(partition.sms)
        try:
            groups, _ = self._split(partition.sms)
        except (driver.cuda_error(), RuntimeError, ValueError) as error:
            raise self._refusal(partition.sms, error) from error
        return Slice(tuple(groups[:1]), "structured" if self.structured else "count")

    def _full(self) -> Slice:
        if self.structured:
            return Slice((self._sm,), "unsplit")
        try:
            groups, _ = self._split(self.total)
        except (driver.cuda_error(), RuntimeError, ValueError):
            return Slice((self._sm,), "unsplit")
        return Slice(tuple(groups[:1]), "count")

    def _fine(self, sms: int) -> Slice:
        if sms % FINE_UNIT:
            raise UnsupportedError(f"{sms} SMs: --granularity 2 gives even counts; nearest sizes: {sms - 1} and {sms + 1}")
        if self.structured:
            try:
                groups, _ = self._split(sms, coscheduled_sm_count=FINE_UNIT)
            except (driver.cuda_error(), RuntimeError, ValueError) as error:
                raise self._refusal(sms, error) from error
            return Slice(tuple(groups[:1]), "structured", note="coscheduled_sm_count=2")
        drv = driver.bindings()
        device = driver.checked(drv.cuDeviceGet(int(self._device.device_id)))
        whole = driver.checked(drv.cuDeviceGetDevResource(device, drv.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
        units, count, _ = driver.checked(
            drv.cuDevSmResourceSplitByCount(self.total // FINE_UNIT, whole, IGNORE_COSCHEDULING, FINE_UNIT)
        )
        need = sms // FINE_UNIT
        if need > int(count):
            raise UnsupportedError(f"{sms} SMs: the driver gives {int(count)} units of 2 SMs, at most {2 * int(count)} SMs")
        return Slice(tuple(units[:need]), "raw", tuple(range(need)), raw=True, note="split_flags=1")

    def disjoint(self, counts: Sequence[int], *, use_remainder: bool = False) -> list[Slice]:
        """Return resources of partitions that share no SM: one split for all of them.

        `use_remainder` lets the SMs that no unit holds complete a count, once (36 = 3 x 8 + 12 of 132); such a partition has no
        co-scheduling guarantee. Raises UnsupportedError where the counts cannot be made of what one split gives.
        """
        if sum(counts) > self.total:
            raise UnsupportedError(f"{' + '.join(map(str, counts))} SMs are more than the {self.total} of this device")
        return self._disjoint_structured(counts) if self.structured else self._disjoint_units(counts, use_remainder)

    def _disjoint_structured(self, counts: Sequence[int]) -> list[Slice]:
        alignment = int(self._sm.coscheduled_alignment)
        odd = [bool(count % alignment) for count in counts]
        try:
            groups, _ = self._split(list(counts), backfill=odd)
        except (driver.cuda_error(), RuntimeError, ValueError) as error:
            if all(odd):
                raise self._refusal(counts[0], error) from error
            # Aligned counts can be refused too: which groups of 8 exist together depends on the floor-swept die.
            try:
                groups, _ = self._split(list(counts), backfill=[True] * len(counts))
            except (driver.cuda_error(), RuntimeError, ValueError) as again:
                raise self._refusal(counts[0], again) from again
            odd = [True] * len(counts)
        return [
            Slice((group,), "structured", remainder=filled, note="backfill" if filled else "")
            for group, filled in zip(groups, odd, strict=True)
        ]

    def _disjoint_units(self, counts: Sequence[int], use_remainder: bool) -> list[Slice]:
        units, rest = self._units()
        unit, spare = self.unit, int(rest.sm_count) if rest is not None else 0
        slices, taken = [], 0
        for count in counts:
            whole, left = divmod(count, unit)
            add_rest = False
            if use_remainder and spare and count >= spare and (count - spare) % unit == 0 and left:
                whole, left, add_rest, spare = (count - spare) // unit, 0, True, 0
            if left:
                whole += 1
            if taken + whole > len(units):
                raise UnsupportedError(
                    f"{count} SMs: one split gives {len(units)} units of {unit} SMs and {taken} of them are taken; "
                    f"at most {(len(units) - taken) * unit} SMs are left for this partition"
                )
            ids = tuple(range(taken, taken + whole))
            parts = tuple(units[i] for i in ids) + ((rest,) if add_rest else ())
            slices.append(Slice(parts, "units", ids, remainder=add_rest))
            taken += whole
        return slices

    def _units(self) -> tuple[list[Any], Any | None]:
        for count in range(self.total // self.unit, 0, -1):
            try:
                units, rest = self._split([self.unit] * count)
            except driver.cuda_error():
                continue
            # The remainder may be empty, and an empty resource must never be passed on.
            return units, rest if int(rest.sm_count) > 0 else None
        raise UnsupportedError("the driver splits no SM units off this device")

    def _refusal(self, sms: int, error: Exception) -> UnsupportedError:
        name = driver.error_name(str(error))
        code = driver.CODES.get(name)
        said = f"{code} {name}" if code else str(error).strip().splitlines()[0]
        near = self._nearest(sms)
        advice = f"; nearest sizes that it grants: {' and '.join(map(str, near))}" if near else ""
        return UnsupportedError(f"{sms} SMs: refused by the driver ({said}){advice}")

    def _nearest(self, sms: int) -> list[int]:
        step = max(int(self._sm.coscheduled_alignment), 1)
        below = range(sms - (sms % step or step), 0, -step)
        above = range(sms + step - sms % step, self.total + 1, step)
        found = (next((n for n in list(side)[:NEAREST_TRIES] if self._grants(n)), None) for side in (below, above))
        return [n for n in found if n is not None]

    def _grants(self, sms: int) -> bool:
        try:
            groups, _ = self._split(sms)
        except (driver.cuda_error(), RuntimeError, ValueError):
            return False
        return bool(groups) and int(groups[0].sm_count) == sms

    def open(self, piece: Slice, partition: Partition) -> OpenPartition:
        """Create the context and its non-blocking stream; everything made so far is undone where a step fails."""
        if piece.raw:
            if partition.workqueue is not Scope.DRIVER_DEFAULT:
                # The raw chain is for drivers before 13.1 only.
                why = workqueue_obstacle(self._device) or "workqueue scopes and --granularity 2 do not go together"
                raise UnsupportedError(why)
            return self._open_raw(piece)
        resources: list[Any] = list(piece.resources)
        queue = self._workqueue(partition)
        if queue is not None:
            resources.append(queue)
        with ExitStack() as undo:
            try:
                context = self._device.create_context(self._core.ContextOptions(resources=resources))
                undo.callback(context.close)
                stream = context.create_stream(self._core.StreamOptions(nonblocking=True))
                undo.callback(stream.close)
                opened = OpenPartition(context, stream, int(context.resources.sm.sm_count), piece)
                if queue is not None:
                    got = context.resources.workqueue
                    opened.workqueue, opened.concurrency_limit = str(got.sharing_scope), int(got.concurrency_limit)
            except driver.cuda_error() as error:
                raise driver.point_error(str(error), f"green context of {partition.name} SMs") from error
            except (RuntimeError, ValueError) as error:
                raise UnsupportedError(f"green context of {partition.name} SMs: {error}") from error
            opened._close = [context.close, stream.close]
            undo.pop_all()
        return opened

    def _workqueue(self, partition: Partition) -> Any | None:
        if partition.workqueue is Scope.DRIVER_DEFAULT:
            return None
        try:
            # A fresh object per partition: configure() changes it in place.
            queue = self._device.resources.workqueue
            queue.configure(
                self._core.WorkqueueResourceOptions(
                    sharing_scope=partition.workqueue.value, concurrency_limit=partition.concurrency_limit
                )
            )
        except driver.cuda_error() as error:
            raise UnsupportedError(f"workqueue scope {partition.workqueue.value}: {error}") from error
        except (RuntimeError, ValueError) as error:
            why = workqueue_obstacle(self._device) or f"workqueue scope {partition.workqueue.value}: {error}"
            raise UnsupportedError(why) from error
        return queue

    def _open_raw(self, piece: Slice) -> OpenPartition:
        drv = driver.bindings()
        device = driver.checked(drv.cuDeviceGet(int(self._device.device_id)))
        desc = driver.checked(drv.cuDevResourceGenerateDesc(list(piece.resources), len(piece.resources)))
        # CU_GREEN_CTX_DEFAULT_STREAM is required before 13.1; CU_STREAM_NON_BLOCKING always.
        green = driver.checked(drv.cuGreenCtxCreate(desc, device, 1))
        with ExitStack() as undo:
            undo.callback(lambda: driver.checked(drv.cuGreenCtxDestroy(green)))
            handle = driver.checked(drv.cuGreenCtxStreamCreate(green, 1, 0))
            undo.callback(lambda: driver.checked(drv.cuStreamDestroy(handle)))
            got = driver.checked(drv.cuGreenCtxGetDevResource(green, drv.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
            stream = self._core.Stream.from_handle(int(handle))
            closers = [
                lambda: driver.checked(drv.cuGreenCtxDestroy(green)),
                lambda: driver.checked(drv.cuStreamDestroy(handle)),
            ]
            undo.pop_all()
        return OpenPartition((green, desc), stream, int(got.sm.smCount), piece, _close=closers)


def workqueue_obstacle(device: Any) -> str:
    """Return why workqueue scopes cannot be set here, or an empty string."""
    try:
        _ = device.resources.workqueue
    except (driver.cuda_error(), RuntimeError, ValueError):
        version = driver.driver_version()
        return f"workqueue configuration needs driver 13.1, this is {version[0]}.{version[1]}"
    return ""
