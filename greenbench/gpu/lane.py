"""A lane of a real device: a green context (or the primary one), its stream, and what was proved of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from greenbench.catalog import Kernel
from greenbench.errors import FailedError, UnsupportedError
from greenbench.gpu import ClockSample, Work, driver
from greenbench.gpu.work import KernelWork
from greenbench.schema import Grant, ParamValue, Partition, Placement

if TYPE_CHECKING:
    from greenbench.gpu.cuda import CudaGpu


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

    def __init__(self, gpu: CudaGpu, partition: Partition, stream: Any, sms: int, describe: Callable[[], dict[str, Any]]) -> None:
        self._gpu = gpu
        self.partition, self.stream, self.sms = partition, stream, sms
        self._works: list[Any] = []
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

    def prepare(self, kernel: Kernel, params: Mapping[str, ParamValue], share: Work | None = None) -> Work:
        """Compile for this device, choose the variant for this lane's SMs, allocate and fill."""
        obstacle = kernel.obstacle(self._gpu.device.compute_capability)
        if obstacle:
            raise UnsupportedError(obstacle)
        variant = kernel.choose(params, self.sms)
        gpu = self._gpu
        sets = share.sets if isinstance(share, KernelWork) else None
        with driver.translated(f"preparing {kernel.name}"):
            loaded = gpu.load(kernel, variant)
            return KernelWork(gpu.core, self, gpu.probes, gpu.arena, kernel, params, loaded, variant, sets)

    def prepare_yardstick(self, kernel: Kernel, params: Mapping[str, ParamValue]) -> Work:
        """Prepare the vendor kernel that stands beside this one, on the same buffers."""
        from greenbench.gpu.yardstick import CublasGemm

        if kernel.yardstick != "cublas":
            raise UnsupportedError(f"{kernel.name} names no yardstick")
        obstacle = kernel.obstacle(self._gpu.device.compute_capability)
        if obstacle:
            raise UnsupportedError(obstacle)
        gpu = self._gpu
        with driver.translated(f"preparing cuBLAS beside {kernel.name}"):
            return CublasGemm(gpu.core, self, gpu.probes, gpu.arena, kernel, params)

    def mark(self) -> EventMark:
        """Record the next of a ring of timing events on the stream."""
        if self._used == len(self._events):
            options = self._gpu.core.EventOptions(timing_enabled=True)
            self._events.append(self._gpu.core_device.create_event(options))
        event = self._events[self._used]
        self._used += 1
        self.stream.record(event)
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
        for event in (*self._events, self._flushed):
            event.close()
        self._events.clear()
