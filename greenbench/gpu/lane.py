"""A lane of a real device: a green context (or the primary one), its stream, and what was proved of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from greenbench.catalog import Kernel, Variant
from greenbench.errors import FailedError, PointError, UnsupportedError
from greenbench.gpu import ClockSample, Work, driver, hostprobes
from greenbench.gpu.buffers import Arena
from greenbench.gpu.contexts import Maker, maker
from greenbench.gpu.partition import Slice
from greenbench.gpu.probes import Probes
from greenbench.gpu.tensormap import MappedWork
from greenbench.gpu.work import KernelWork, shape_of
from greenbench.schema import Api, DeviceFacts, Grant, ParamValue, Partition, Placement

if TYPE_CHECKING:
    from greenbench.gpu.torch_yardstick import TorchOperation
    from greenbench.gpu.yardstick import LibraryGemm

T = TypeVar("T")


class Home(Protocol):
    """What a lane needs of the device that it belongs to."""

    core: Any
    core_device: Any
    service: Any
    device: DeviceFacts

    @property
    def probes(self) -> Probes:
        """The tool's own kernels."""

    @property
    def arena(self) -> Arena:
        """Buffers of all kernels."""

    def load(self, kernel: Kernel, variant: Variant | None) -> Any:
        """Compile and load a kernel."""

    def slice(self, partition: Partition) -> Slice:
        """Return the SM resources of a partition."""


class EventMark:
    """A timing event on a lane's stream."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def since(self, earlier: Self) -> float:
        """Return seconds between two neighbouring marks (float32 milliseconds underneath: never from the run's start)."""
        with driver.translated("reading an event"):
            self._event.sync()
            return float(self._event - earlier._event) / 1e3


class CudaLane:
    """A partition that was got."""

    def __init__(self, gpu: Home, partition: Partition, stream: Any, sms: int, describe: Callable[[], dict[str, Any]]) -> None:
        self._gpu = gpu
        self.partition, self.stream, self.sms = partition, stream, sms
        self._kept: dict[str, Any] = {}
        self._events: list[Any] = []
        self._used = 0
        self._flushed = gpu.core_device.create_event()
        seen = self.census()
        proved = Placement.CONFINED if len(seen) == sms else Placement.LEAKED
        self.grant = Grant(sms=sms, smids=seen, placement=proved, **describe())

    def census(self) -> tuple[int, ...]:
        """Return the ids of the SMs on which CTAs of this stream ran."""
        with driver.translated("census"):
            return self._gpu.probes.census(self.stream)

    def probe(self) -> ClockSample:
        """Read timer and cycle counter on every SM of the lane."""
        with driver.translated("clock probe"):
            return self._gpu.probes.clock(self.stream, self.sms)

    def launch_probe(self, target: Any) -> None:
        """Enqueue the clock probe on the stream, or capture it into a graph builder of it."""
        self._gpu.probes.launch_clock(target, self.sms)

    def clear_probe(self) -> None:
        """Forget what the probe wrote."""
        self._gpu.probes.zero_stamps(self.stream)

    def read_probe(self) -> ClockSample:
        """Wait for the stream and return what the probe wrote since it was cleared."""
        with driver.translated("reading the clock probe"):
            return self._gpu.probes.read_stamps(self.stream)

    def prepare(self, kernel: Kernel, params: Mapping[str, ParamValue], share: Work | None = None) -> Work:
        """Compile the file for this device, choose the variant for this lane's SMs, allocate and fill."""
        kernel = kernel.for_arch(self._gpu.device.arch)
        obstacle = kernel.obstacle(self._gpu.device.compute_capability)
        if obstacle:
            raise UnsupportedError(obstacle)
        variant = kernel.choose(params, self.sms)
        gpu = self._gpu
        sets = share.sets if isinstance(share, KernelWork) else None
        with driver.translated(f"preparing {kernel.name}"):
            loaded = gpu.load(kernel, variant)
            if kernel.host:
                return hostprobes.prepare(self, kernel, params, self._launcher(kernel, params, loaded))
            kind = MappedWork if any(buffer.tensor_map for buffer in kernel.buffers) else KernelWork
            return kind(gpu.core, self, gpu.probes, gpu.arena, kernel, params, loaded, variant, sets)

    def _launcher(self, kernel: Kernel, params: Mapping[str, ParamValue], loaded: Any) -> Callable[[Any], None]:
        """Return what puts a kernel without arguments on any stream."""
        core = self._gpu.core
        config = shape_of(core, kernel, loaded, kernel.environment(params, sms=self.sms), self).config
        return lambda stream: core.launch(stream, config, loaded)

    @property
    def cuda(self) -> tuple[int, int]:
        """CUDA version of the driver."""
        return self._gpu.device.cuda

    def maker(self, api: Api) -> Maker:
        """Return what makes further contexts of as many SMs as this lane has."""
        return maker(api, self._gpu.core, self._gpu.core_device, self._gpu.slice(self.partition), self.sms)

    def new_event(self) -> Any:
        """Return a timing event, for the caller to close."""
        return self._gpu.core_device.create_event(self._gpu.core.EventOptions(timing_enabled=True))

    def census_of(self, stream: Any) -> tuple[int, ...]:
        """Return the ids of the SMs on which CTAs of another stream run."""
        return self._gpu.probes.census(stream)

    def kept(self, key: str, make: Callable[[], T]) -> T:
        """Return what `make` gave for this lane at the first time of asking; it is closed with the lane."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def prepare_yardstick(self, kernel: Kernel, params: Mapping[str, ParamValue], way: str) -> Work:
        """Prepare the vendor's kernel that stands beside this one, on the same buffers."""
        # The same file as our kernel's, so that both work on the same buffers.
        kernel = kernel.for_arch(self._gpu.device.arch)
        if way not in kernel.yardsticks:
            raise UnsupportedError(f"{kernel.name} names no yardstick {way!r}")
        obstacle = kernel.obstacle(self._gpu.device.compute_capability)
        if obstacle:
            raise UnsupportedError(obstacle)
        gpu = self._gpu
        with driver.translated(f"preparing {way} beside {kernel.name}"):
            return _yardstick(way)(gpu.core, self, gpu.probes, gpu.arena, kernel, params)

    def mark(self) -> EventMark:
        """Record the next of a ring of timing events on the stream."""
        if self._used == len(self._events):
            options = self._gpu.core.EventOptions(timing_enabled=True)
            self._events.append(self._gpu.core_device.create_event(options))
        event = self._events[self._used]
        self._used += 1
        try:
            self.stream.record(event)
        except driver.cuda_error() as error:
            raise driver.point_error(str(error), "recording an event") from error
        return EventMark(event)

    def flush_l2(self, dirty: bool) -> None:
        """Flush on a full-device stream of the primary context; this lane waits for it and it for this lane."""
        gpu = self._gpu
        gpu.service.wait(self.stream)
        gpu.probes.flush(gpu.service, dirty)
        gpu.service.record(self._flushed)
        self.stream.wait(self._flushed)

    def sync(self) -> None:
        """Wait for the stream; afterwards its events may be used again."""
        with driver.translated("running"):
            self.stream.sync()
        self._used = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (protocol version, stream address)."""
        version, handle = self.stream.__cuda_stream__()
        return int(version), int(handle)

    def close(self) -> None:
        """Wait for the stream, then destroy the events; the context goes with its partition."""
        try:
            self.sync()
        except (FailedError, UnsupportedError):
            # The context is lost already: what is left goes with the process.
            return
        for kept in self._kept.values():
            with suppress(PointError):  # a library that cannot let go of its handle takes it into the end of the process
                kept.close()
        self._kept.clear()
        for event in (*self._events, self._flushed):
            event.close()
        self._events.clear()


def _yardstick(way: str) -> Callable[..., TorchOperation | LibraryGemm]:
    """Return what measures a yardstick; torch is imported only where it is asked for."""
    from greenbench.gpu.torch_yardstick import TorchOperation
    from greenbench.gpu.yardstick import LibraryGemm

    return TorchOperation if way == "torch" else partial(LibraryGemm, way=way)
