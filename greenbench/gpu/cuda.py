"""The real device: cuda.core underneath, one primary context, green contexts beside it. Only worker processes open it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from greenbench.catalog import Kernel, Variant, library
from greenbench.costeps import CoSetup
from greenbench.errors import DriverTooOldError, FailedError, PointError, UnsupportedError
from greenbench.gpu import Gate, Lane, OpenGate, Refusal, driver
from greenbench.gpu.annotate import Annotator
from greenbench.gpu.buffers import Arena
from greenbench.gpu.colanes import CoLanes
from greenbench.gpu.corun import CoRuns, CudaCorun
from greenbench.gpu.evidence import Nvml
from greenbench.gpu.identity import device_facts
from greenbench.gpu.lane import CudaLane
from greenbench.gpu.ledger import HostWord, StepKernels
from greenbench.gpu.mps import share_obstacle
from greenbench.gpu.nvrtc import compile_kernel, nvrtc_version
from greenbench.gpu.partition import OpenPartition, Slice, Splitter
from greenbench.gpu.probes import ProbeKernels, Probes
from greenbench.schema import DeviceFacts, Evidence, Family, Partition, SmsMode

# cuGreenCtxStreamCreate came with 12.5; without it a green context has no stream that is safe to use.
OLDEST_DRIVER = (12, 5)


class StreamGate:
    """One gate over one or more lanes."""

    def __init__(self, probes: Probes, lanes: Sequence[CudaLane]) -> None:
        self._flag = probes.flag
        self._ticket = self._flag.take()
        for lane in lanes:
            probes.hold(lane.stream, self._ticket)

    def open(self) -> None:
        """Let the streams run."""
        self._flag.open(self._ticket)

    def passed(self) -> bool:
        """After a sync: False if the gate gave up waiting."""
        return not self._flag.gave_up(self._ticket)


class CudaGpu:
    """One GPU of this process."""

    def __init__(self, spec: str, cache_dir: Path | None) -> None:
        driver.need_driver()
        self.core = driver.cuda_core()
        version = driver.driver_version()
        if version < OLDEST_DRIVER:
            raise DriverTooOldError(
                f"green contexts need a driver for CUDA 12.4, and their streams 12.5; this one is for {version[0]}.{version[1]}: "
                "update the NVIDIA driver"
            )
        # Without a compiler nothing can be proved or measured: said before a context is made.
        nvrtc_version()
        self.core_device = driver.open_device(spec)
        self._cache_dir = cache_dir
        self.gates = True
        self._nvml = Nvml(str(self.core_device.pci_bus_id))
        self._splitter = Splitter(self.core_device)
        self.device: DeviceFacts = device_facts(self.core_device, self._nvml, self._splitter, int(spec))
        self._loaded: dict[tuple[str, str], Any] = {}
        self._annotator = Annotator()
        self.service = self.core_device.create_stream(options=self.core.StreamOptions(nonblocking=True))

    @cached_property
    def probes(self) -> Probes:
        """The tool's own kernels, compiled and allocated on first use."""
        facts = self.device
        with driver.translated("preparing the probes"):
            kernels = ProbeKernels.load(library(), lambda kernel: self.load(kernel, None))
            return Probes(
                self.core,
                kernels,
                self.service,
                sm_count=facts.sm_count,
                smem_per_sm=facts.smem_per_sm_bytes,
                smem_optin=facts.smem_optin_bytes,
                l2_bytes=facts.l2_bytes,
            )

    @cached_property
    def arena(self) -> Arena:
        """Buffers of all kernels."""
        return Arena(self.device.l2_bytes, self.service)

    def load(self, kernel: Kernel, variant: Variant | None) -> Any:
        """Compile (or take from the cache) and load a kernel; one loaded kernel serves every stream of the device."""
        key = (kernel.digest, variant.name if variant else "")
        if key not in self._loaded:
            compiled = compile_kernel(kernel, self.device.arch, variant, cache_dir=self._cache_dir)
            code = self.core.ObjectCode.from_cubin(compiled.cubin, name=kernel.path.name)
            self._loaded[key] = code.get_kernel(compiled.symbol)
        return self._loaded[key]

    @contextmanager
    def lanes(self, partitions: Sequence[Partition], *, disjoint: bool = False) -> Iterator[list[Lane | Refusal]]:
        """Open a lane per partition; `disjoint` takes all counts out of one split, so that no two lanes share an SM."""
        with ExitStack() as stack:
            pieces = self._disjoint(partitions) if disjoint else [None] * len(partitions)
            yield [
                self._lane(stack, partition, piece) if not isinstance(piece, Refusal) else piece
                for partition, piece in zip(partitions, pieces, strict=True)
            ]

    def _disjoint(self, partitions: Sequence[Partition]) -> list[Any]:
        counts = [p.sms for p in partitions if p.mode is SmsMode.COUNT and p.sms is not None]
        if len(counts) != len(partitions):
            raise UnsupportedError("disjoint partitions are asked for by SM counts only")
        try:
            return list(self._splitter.disjoint(counts, use_remainder=True))
        except UnsupportedError as error:
            return [Refusal(partition, error) for partition in partitions]

    def _lane(self, stack: ExitStack, partition: Partition, piece: Any) -> Lane | Refusal:
        try:
            if partition.mode is SmsMode.PRIMARY:
                stream = self.core_device.create_stream(options=self.core.StreamOptions(nonblocking=True))
                stack.callback(stream.close)
                lane = CudaLane(self, partition, stream, self._splitter.total, lambda: {"split_method": "primary"})
            else:
                opened = self._splitter.open(piece or self._splitter.slice(partition), partition)
                stack.callback(opened.close)
                lane = CudaLane(self, partition, opened.stream, opened.sms, lambda: self.description(opened))
        except PointError as error:
            return Refusal(partition, error)
        stack.callback(lane.close)
        if self.device.timer_tick_ns is None:
            self.device = replace(self.device, timer_tick_ns=timer_tick_ns(lane))
        return lane

    def slice(self, partition: Partition) -> Slice:
        """Return the resources of a partition from a split of its own; raises UnsupportedError where the driver refuses."""
        return self._splitter.slice(partition)

    def gate(self, *lanes: Lane) -> Gate:
        """Hold these lanes' streams until the gate is opened."""
        if not self.gates:
            return OpenGate()
        return StreamGate(self.probes, [lane for lane in lanes if isinstance(lane, CudaLane)])

    @cached_property
    def _steps(self) -> StepKernels:
        """The kernels that frame a step of a co-location."""
        with driver.translated("preparing the stamps"):
            return StepKernels.load(library(), lambda kernel: self.load(kernel, None))

    @cached_property
    def _word(self) -> HostWord:
        """Where the device writes its clock."""
        return HostWord(self.core)

    @cached_property
    def _coruns(self) -> CoRuns:
        """Lanes and launches of the co-locations of this process."""
        return CoRuns(self, CoLanes(self, self._splitter), self._steps)

    def corun(self, setup: CoSetup, kernels: Mapping[str, Kernel]) -> CudaCorun:
        """Prepare the roles of one point: lanes, verified launches, graphs."""
        return CudaCorun(self._coruns, setup, kernels)

    def now_ns(self) -> int:
        """Read the device's clock through the host's memory, in the time of one launch."""
        self._word.clear()
        with self._annotator.range("clock", "setup"):
            self._read_clock(self.service)
        now = self._word.wait()
        if not now:
            with driver.translated("reading the device's clock"):
                self.service.sync()
        return now or self._word.value

    def run_nothing(self, stream: Any) -> None:
        """Launch the smallest kernel on a stream and wait for it."""
        self._read_clock(stream)
        with driver.translated("launching the smallest kernel"):
            stream.sync()

    def _read_clock(self, stream: Any) -> None:
        with driver.translated("reading the device's clock"):
            self.core.launch(stream, self.core.LaunchConfig(grid=1, block=1), self._steps.clock, self._word.address)

    @staticmethod
    def description(opened: OpenPartition) -> dict[str, Any]:
        """Return what a grant says of an opened partition beside its SMs."""
        piece = opened.slice
        return {
            "split_method": piece.method,
            "unit_ids": piece.unit_ids,
            "remainder": piece.remainder,
            "workqueue": opened.workqueue,
            "concurrency_limit": opened.concurrency_limit,
            "note": piece.note,
        }

    def annotate(
        self, name: str, category: str = "sweep", payload: int = 0, family: Family | None = None
    ) -> AbstractContextManager[None]:
        """Open an NVTX range of domain `greenbench`."""
        return self._annotator.range(name, category, payload, family)

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """Bracket launches with cuProfilerStart and cuProfilerStop, which cost nothing where no profiler waits for them."""
        raw = driver.bindings()
        driver.checked(raw.cuProfilerStart(), "starting the profiler")
        # No `finally`: where a launch failed, that is what must be told.
        yield
        driver.checked(raw.cuProfilerStop(), "stopping the profiler")

    def evidence(self, *, energy: bool = False) -> Evidence:
        """Read NVML once."""
        return self._nvml.read(energy=energy)

    def allowance(self) -> str:
        """Return why this process must not measure partitions now, or an empty string."""
        return share_obstacle()

    def close(self) -> None:
        """Free device memory and the service stream."""
        try:
            if "_coruns" in self.__dict__:
                self._coruns.close()
            if "arena" in self.__dict__:
                self.arena.close()
            self.service.close()
        except FailedError:
            return


def timer_tick_ns(lane: Lane) -> float | None:
    """Return the step of %globaltimer: the greatest common divisor of the differences that the SMs of a lane read."""
    stamps = [ns for sample in (lane.probe(), lane.probe()) for ns, _ in sample.stamps.values()]
    return float(math.gcd(*(b - a for a, b in pairwise(stamps)))) or None


def open_cuda(spec: str, *, cache_dir: Path | None = None) -> CudaGpu:
    """Open the GPU of that number; raises MachineError's kin where this machine cannot."""
    return CudaGpu(spec, cache_dir)
