"""A stand-in for cuda.core's device and the raw bindings, with the split rules of a driver before or from 13.1 on.

It answers as the driver of an H200 did (132 SMs, units of 8) and keeps a log of what was made and destroyed. The option classes
and exceptions are cuda.core's own, so a wrong keyword or a wrong `except` shows here as it would on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from types import SimpleNamespace
from typing import Any

import cuda.core
from cuda.bindings.driver import CUresult
from cuda.core._utils.cuda_utils import CUDAError

REFUSED = CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
WRONG_TYPE = CUresult.CUDA_ERROR_INVALID_RESOURCE_TYPE
DEFAULT_LIMIT = 8


def cuda_error(code: CUresult) -> CUDAError:
    """Return the exception that cuda.core makes of a driver result: the enum's name, then an explanation."""
    return CUDAError(f"{code.name}: an explanation that may change\nand a second line")


@dataclass
class FakeDriver:
    """The rules of one device and driver, and the log of what happened to it."""

    version: tuple[int, int] = (13, 0)
    sms: int = 132
    unit: int = 8
    # Sizes that the floor-swept die does not hold, although they are aligned.
    refused: frozenset[int] = frozenset()
    # Path A: how many groups of the smallest size there are, and whether asking for more is refused or shrinks the answer.
    most_units: int = 15
    shrinks: bool = False
    # A call named here raises instead of answering.
    fails: dict[str, Exception] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def structured(self) -> bool:
        """True where the driver has the exact split."""
        return self.version >= (13, 1)

    def number(self) -> int:
        """Return a fresh number: a split, a context or a handle."""
        return int(next(self._numbers))

    def check(self, call: str) -> None:
        """Raise what was prepared for this call."""
        if call in self.fails:
            raise self.fails[call]

    def told(self, word: str) -> list[str]:
        """Return the entries of the log that begin with this word."""
        return [entry for entry in self.log if entry.startswith(word)]


@dataclass
class FakeSM:
    """SMResource: which SM ids it holds, and which split it came from (0: the device itself)."""

    driver: FakeDriver
    ids: tuple[int, ...]
    split_number: int = 0

    @property
    def sm_count(self) -> int:
        """SMs in it."""
        return len(self.ids)

    @property
    def min_partition_size(self) -> int:
        """Smallest group."""
        return self.driver.unit

    @property
    def coscheduled_alignment(self) -> int:
        """SMs that are scheduled together."""
        return self.driver.unit

    def split(self, options: cuda.core.SMResourceOptions, *, dry_run: bool = False) -> tuple[list[FakeSM], FakeSM]:
        """Split the device's resource; what came out of a split cannot be split again."""
        assert not dry_run, "a dry run refuses counts on 13.1+"
        if self.split_number:
            raise cuda_error(REFUSED)
        counts = list(options.count) if isinstance(options.count, (list, tuple)) else [options.count]
        if not counts or any(type(n) is not int or n < 0 for n in counts):
            raise TypeError(f"count {options.count!r}")
        sizes = self._exact(counts, options) if self.driver.structured else self._rounded(counts, options)
        number, groups, used = self.driver.number(), [], 0
        for size in sizes:
            groups.append(FakeSM(self.driver, self.ids[used : used + size], number))
            used += size
        self.driver.log.append(f"split {counts} -> {sizes}")
        return groups, FakeSM(self.driver, self.ids[used:], number)

    def _rounded(self, counts: list[int], options: cuda.core.SMResourceOptions) -> list[int]:
        """Equal groups, rounded up; a shortage of groups shrinks the answer or refuses it. `backfill` is ignored."""
        if len(set(counts)) > 1:
            raise RuntimeError("cuDevSmResourceSplitByCount only supports homogeneous count values")
        if options.coscheduled_sm_count is not None:
            raise RuntimeError("coscheduled_sm_count requires CUDA driver 13.1 or newer")
        if counts[0] > self.sm_count:
            raise cuda_error(REFUSED)
        size = min(-(-counts[0] // self.driver.unit) * self.driver.unit, self.sm_count)
        most = self.driver.most_units if size == self.driver.unit else self.sm_count // size
        if len(counts) > most and not self.driver.shrinks:
            raise cuda_error(REFUSED)
        return [size] * min(len(counts), most)

    def _exact(self, counts: list[int], options: cuda.core.SMResourceOptions) -> list[int]:
        filled = options.backfill if isinstance(options.backfill, list) else [options.backfill] * len(counts)
        together = options.coscheduled_sm_count or self.driver.unit
        for size, backfill in zip(counts, filled, strict=True):
            if size % 2 or size < 2 or (not backfill and (size % together or size in self.driver.refused)):
                raise cuda_error(REFUSED)
        if sum(counts) > self.sm_count:
            raise cuda_error(REFUSED)
        return counts


class FakeWorkqueue:
    """WorkqueueResource: configured in place."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.sharing_scope = "device_ctx"
        self.concurrency_limit = DEFAULT_LIMIT

    def configure(self, options: cuda.core.WorkqueueResourceOptions) -> None:
        """Take over what is set."""
        self.driver.check("configure")
        self.sharing_scope = options.sharing_scope or self.sharing_scope
        self.concurrency_limit = options.concurrency_limit or self.concurrency_limit


class FakeResources:
    """DeviceResources of the device or of a context."""

    def __init__(self, driver: FakeDriver, ids: tuple[int, ...], queue: FakeWorkqueue | None = None) -> None:
        self._driver, self._ids, self._queue = driver, ids, queue

    @property
    def sm(self) -> FakeSM:
        """A fresh query."""
        return FakeSM(self._driver, self._ids)

    @property
    def workqueue(self) -> FakeWorkqueue:
        """A fresh query; gated by the driver's version."""
        if not self._driver.structured:
            raise RuntimeError("WorkqueueResource requires CUDA driver 13.1 or newer")
        return self._queue or FakeWorkqueue(self._driver)


class FakeEvent:
    """An event that knows nothing."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver, self._name = driver, f"event {driver.number()}"

    def close(self) -> None:
        """Destroy it."""
        self._driver.log.append("close event")


class FakeStream:
    """A stream of a context, or of the primary one (0)."""

    def __init__(self, driver: FakeDriver, context: int) -> None:
        self._driver, self._context = driver, context
        self.handle = driver.number()
        driver.log.append(f"make stream of {context}")

    def sync(self) -> None:
        """Wait."""
        self._driver.check("stream.sync")
        self._driver.log.append(f"sync stream of {self._context}")

    def close(self) -> None:
        """Destroy it."""
        self._driver.log.append(f"close stream of {self._context}")

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class FakeContext:
    """A green context."""

    def __init__(self, driver: FakeDriver, options: cuda.core.ContextOptions) -> None:
        driver.check("create_context")
        pieces = [r for r in options.resources if isinstance(r, FakeSM)]
        queues = [r for r in options.resources if isinstance(r, FakeWorkqueue)]
        if not pieces or len(queues) > 1:
            raise ValueError("resources must hold SM resources and at most one workqueue")
        if any(piece.sm_count == 0 for piece in pieces):
            raise cuda_error(WRONG_TYPE)
        if len({piece.split_number for piece in pieces}) > 1:
            raise cuda_error(REFUSED)
        self._driver, self.number = driver, driver.number()
        self.ids = tuple(i for piece in pieces for i in piece.ids)
        self.queue = queues[0] if queues else None
        driver.log.append(f"make context {self.number} of {len(self.ids)}")

    @property
    def resources(self) -> FakeResources:
        """What the context was made with."""
        self._driver.check("context.resources")
        return FakeResources(self._driver, self.ids, self.queue)

    def create_stream(self, options: cuda.core.StreamOptions) -> FakeStream:
        """Make a stream; a green one must not block."""
        self._driver.check("create_stream")
        if not options.nonblocking:
            raise ValueError("green context streams must be nonblocking")
        return FakeStream(self._driver, self.number)

    def close(self) -> None:
        """Destroy it; before 13.1 a stream that is left cannot be destroyed any more."""
        self._driver.log.append(f"close context {self.number}")


class FakeDevice:
    """Device 0 of cuda.core."""

    device_id = 0
    pci_bus_id = "0000:01:00.0"
    name = "Fake H200"
    uuid = "GPU-fake"
    compute_capability = (9, 0)

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.properties = SimpleNamespace(
            l2_cache_size=60 << 20,
            max_shared_memory_per_multiprocessor=228 << 10,
            max_shared_memory_per_block_optin=227 << 10,
            max_threads_per_multiprocessor=2048,
            global_memory_bus_width=6144,
            ecc_enabled=True,
            mps_enabled=False,
            compute_mode=0,
        )

    @property
    def resources(self) -> FakeResources:
        """Of the whole device."""
        return FakeResources(self.driver, tuple(range(self.driver.sms)))

    def set_current(self) -> None:
        """Make the primary context current."""
        self.driver.check("set_current")
        self.driver.log.append("set current")

    def create_context(self, options: cuda.core.ContextOptions) -> FakeContext:
        """Make a green context."""
        return FakeContext(self.driver, options)

    def create_stream(self, options: cuda.core.StreamOptions) -> FakeStream:
        """Make a stream of the primary context."""
        return FakeStream(self.driver, 0)

    def create_event(self, options: object = None) -> FakeEvent:
        """Make an event."""
        return FakeEvent(self.driver)


class ResourceType(IntEnum):
    """CUdevResourceType."""

    CU_DEV_RESOURCE_TYPE_SM = 1


class FakeBindings:
    """cuda.bindings.driver: every call returns a tuple that begins with the result."""

    CUdevResourceType = ResourceType
    CUresult = CUresult

    def __init__(self, driver: FakeDriver, units: int = 66) -> None:
        self._driver, self._units = driver, units
        self._contexts: dict[int, tuple[int, ...]] = {}

    def _answer(self, call: str, make: Callable[[], Any] | None = None) -> tuple[Any, ...]:
        failure = self._driver.fails.get(call)
        if failure is not None:
            return (failure.args[0],)
        return (CUresult.CUDA_SUCCESS,) if make is None else (CUresult.CUDA_SUCCESS, make())

    def cuDriverGetVersion(self) -> tuple[Any, ...]:
        """13000 for 13.0."""
        return self._answer("cuDriverGetVersion", lambda: self._driver.version[0] * 1000 + self._driver.version[1] * 10)

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        """Free and total."""
        return (CUresult.CUDA_SUCCESS, 100 << 30, 140 << 30)

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        """The device is its number."""
        return self._answer("cuDeviceGet", lambda: ordinal)

    def cuDeviceGetDevResource(self, device: int, kind: ResourceType) -> tuple[Any, ...]:
        """All SMs."""
        return self._answer("cuDeviceGetDevResource", lambda: tuple(range(self._driver.sms)))

    def cuDevSmResourceSplitByCount(self, groups: int, whole: Sequence[int], flags: int, least: int) -> tuple[Any, ...]:
        """Units of `least` SMs; flag 1 alone gives units below the device's own."""
        if flags != 1 and least < self._driver.unit:
            least = self._driver.unit
        got = min(groups, self._units, len(whole) // least)
        units = [tuple(whole[i * least : (i + 1) * least]) for i in range(got)]
        self._driver.log.append(f"raw split flags={flags} {groups} x {least}")
        return CUresult.CUDA_SUCCESS, units, got, tuple(whole[got * least :])

    def cuDevResourceGenerateDesc(self, resources: Sequence[tuple[int, ...]], number: int) -> tuple[Any, ...]:
        """A description is the ids that it holds."""
        assert number == len(resources)
        return self._answer("cuDevResourceGenerateDesc", lambda: tuple(i for piece in resources for i in piece))

    def cuGreenCtxCreate(self, desc: tuple[int, ...], device: int, flags: int) -> tuple[Any, ...]:
        """Flag 1 is required before 13.1."""
        if flags != 1:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        return self._answer("cuGreenCtxCreate", lambda: self._made(desc))

    def _made(self, desc: tuple[int, ...]) -> int:
        handle = self._driver.number()
        self._contexts[handle] = desc
        self._driver.log.append(f"make context {handle} of {len(desc)}")
        return handle

    def cuGreenCtxStreamCreate(self, green: int, flags: int, priority: int) -> tuple[Any, ...]:
        """Flag 1, non-blocking, is required."""
        if flags != 1:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        return self._answer("cuGreenCtxStreamCreate", lambda: self._stream(green))

    def _stream(self, green: int) -> int:
        self._driver.log.append(f"make stream of {green}")
        return 1000 + green

    def cuGreenCtxGetDevResource(self, green: int, kind: ResourceType) -> tuple[Any, ...]:
        """What the context holds."""
        held = SimpleNamespace(sm=SimpleNamespace(smCount=len(self._contexts[green])))
        return self._answer("cuGreenCtxGetDevResource", lambda: held)

    def cuStreamDestroy(self, stream: int) -> tuple[Any, ...]:
        """Destroy a stream."""
        self._driver.log.append(f"close stream of {stream - 1000}")
        return self._answer("cuStreamDestroy")

    def cuGreenCtxDestroy(self, green: int) -> tuple[Any, ...]:
        """Destroy a context."""
        self._driver.log.append(f"close context {green}")
        return self._answer("cuGreenCtxDestroy")


class FakeCore:
    """cuda.core with its own option classes and a device that is not there."""

    SMResourceOptions = cuda.core.SMResourceOptions
    ContextOptions = cuda.core.ContextOptions
    StreamOptions = cuda.core.StreamOptions
    EventOptions = cuda.core.EventOptions
    WorkqueueResourceOptions = cuda.core.WorkqueueResourceOptions

    def __init__(self, driver: FakeDriver, devices: int = 1) -> None:
        made = [FakeDevice(driver) for _ in range(devices)]

        class Device:
            """Looked up by number, as cuda.core does."""

            def __new__(cls, index: int) -> Any:
                return made[index]

            @classmethod
            def get_all_devices(cls) -> tuple[FakeDevice, ...]:
                """All of them."""
                driver.check("get_all_devices")
                return tuple(made)

        class Stream:
            """Wraps a raw handle."""

            @staticmethod
            def from_handle(handle: int) -> SimpleNamespace:
                """Borrow the stream: closing the wrapper destroys nothing."""
                return SimpleNamespace(handle=handle)

        self.Device, self.Stream = Device, Stream


def install(patch: Any, driver: FakeDriver, **settings: int) -> FakeDevice:
    """Put the fake behind `greenbench.gpu.driver` and return its device."""
    from greenbench.gpu import driver as door

    core = FakeCore(driver, settings.get("devices", 1))
    raw = FakeBindings(driver, settings.get("units", 66))
    patch.setattr(door, "need_driver", lambda: None)
    patch.setattr(door, "cuda_core", lambda: core)
    patch.setattr(door, "bindings", lambda: raw)
    device = FakeDevice(driver)
    return device
