"""The one seam to the GPU: protocols that `measure` is written against, and `open_gpu` that picks who answers.

Two implementations ship: `cuda` (a real device) and `modelled` (the arithmetic of `bounds`). Nothing above this layer imports
CUDA, cupy or NVML, and those packages are imported only when a real device is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from greenbench.catalog import Kernel
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, Trace
from greenbench.errors import PointError
from greenbench.schema import DeviceFacts, Evidence, Family, Grant, ParamValue, Partition


@dataclass(frozen=True, slots=True)
class ClockSample:
    """One pass of the clock probe over a lane: per SM seen, {smid: (globaltimer ns, SM cycles)}."""

    stamps: Mapping[int, tuple[int, int]]

    @property
    def smids(self) -> tuple[int, ...]:
        """Ids of the SMs that the probe's CTAs ran on, ascending."""
        return tuple(sorted(self.stamps))


@dataclass(frozen=True, slots=True)
class Verification:
    """Comparison of one launch's outputs with the reference; `error` is None where there is no reference, or no code ran."""

    error: float | None
    tolerance: float | None
    detail: str = ""

    @property
    def ok(self) -> bool:
        """True where there is no reference or the error is within tolerance; NaN never passes."""
        return self.error is None or (self.tolerance is not None and self.error <= self.tolerance)


class Mark(Protocol):
    """A recorded event on a lane's stream."""

    def since(self, earlier: Self) -> float:
        """Return seconds of device time from `earlier`, a mark of the same device, to this one (waits for this one)."""


class Replay(Protocol):
    """A CUDA graph of several launches, captured on the lane's own stream."""

    launches: int

    def run(self) -> float:
        """Replay once, wait, and return the seconds between the first launch's start and the last one's end."""

    def smids(self) -> tuple[int, ...]:
        """Return the SM ids that the census inside the latest replay saw."""


class Work(Protocol):
    """A kernel prepared for one lane: compiled, its buffers filled, its launch shape chosen for the lane's SMs."""

    config: str
    flops: float | None
    bytes: float | None
    working_set_bytes: int
    written_bytes: int
    grid: int
    ctas_per_sm: int | None

    def launch(self) -> None:
        """Enqueue one launch on the lane's stream, on the next of the rotating buffer sets."""

    def verify(self) -> Verification:
        """Poison the outputs, launch once, compare with the reference."""

    def rotate(self, on: bool) -> None:
        """Rotate over buffer sets that together exceed the L2 cache several times (on), or stay on one set (off)."""

    def capture(self, launches: int) -> Replay:
        """Capture a graph of that many launches, with the census in front, on the lane's stream."""

    def report(self) -> float | None:
        """Return what the latest launch measured of itself, per unit of the front matter's [report], or None."""


@runtime_checkable
class HostTimed(Protocol):
    """A Work whose cost is the host's: calls of the driver, timed by the host's clock and never mixed with device time.

    `most_launches` limits a sample where doing it once takes, or uses up, much more than the time that counts.
    """

    most_launches: int

    def timed(self, times: int) -> float:
        """Do it that many times and return the host's seconds; the stream is idle before and after."""


class Gate(Protocol):
    """A one-thread kernel that holds streams until `open` is called, so that a whole sample is queued before it starts."""

    def open(self) -> None:
        """Let the held streams run."""

    def passed(self) -> bool:
        """After a sync: True if the gate was opened in time, False if it gave up waiting."""


class OpenGate:
    """A gate that holds nobody: for tools under which a launch returns when it is done, so that a held stream never moves on."""

    def open(self) -> None:
        """Do nothing."""

    def passed(self) -> bool:
        """Return True: nobody waited."""
        return True


class Lane(Protocol):
    """A partition that was got: a green context (or the primary one) and its stream."""

    partition: Partition
    grant: Grant

    def census(self) -> tuple[int, ...]:
        """Return the ids of the SMs on which CTAs of this lane's stream ran, ascending."""

    def probe(self) -> ClockSample:
        """Read timer and cycle counter on every SM of the lane (waits for the stream)."""

    def prepare(self, kernel: Kernel, params: Mapping[str, ParamValue], share: Work | None = None) -> Work:
        """Compile, allocate and fill; `share` reuses the buffers of another version of the kernel.

        Raises UnsupportedError where the lane cannot run it, FailedError where it cannot be compiled or allocated,
        KernelFileError where the file contradicts itself.
        """

    def prepare_yardstick(self, kernel: Kernel, params: Mapping[str, ParamValue], way: str) -> Work:
        """Prepare the vendor's kernel beside this one, on the same inputs, in one of `kernel.yardsticks`; raises as `prepare`."""

    def mark(self) -> Mark:
        """Record an event on the stream; `sync` makes all marks taken so far free for reuse."""

    def flush_l2(self, dirty: bool) -> None:
        """Empty the L2 of our data from the whole device; the stream waits for it. `dirty` leaves written lines behind."""

    def sync(self) -> None:
        """Wait for the stream; raises StickyError where the context is lost."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return (protocol version, stream address), as cuda.core asks for."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A partition that could not be got, with the outcome for its points."""

    partition: Partition
    error: PointError


class Corun(Protocol):
    """Roles that were prepared together: lanes opened, kernels verified on them, each step captured as a graph."""

    prepared: tuple[RolePrepared, ...]

    def run(self, schedule: CoSchedule) -> Trace:
        """Run every role's schedule and return its stamps; raises FailedError or StickyError where it came to nothing."""

    def close(self) -> None:
        """Destroy graphs, then lanes; safe to call twice."""


@runtime_checkable
class Gpu(Protocol):
    """A device in this process."""

    device: DeviceFacts
    # Set to False before lanes are opened, `gate` holds nobody.
    gates: bool

    def lanes(self, partitions: Sequence[Partition], *, disjoint: bool = False) -> AbstractContextManager[list[Lane | Refusal]]:
        """Give each partition its lane or its refusal, in order; teardown on leaving.

        `disjoint` takes all of them out of one split, so that no two share an SM. Otherwise each has a split of its own, for
        lanes that are used one at a time: the 8-SM set lies inside the 16-SM set.
        """

    def gate(self, *lanes: Lane) -> Gate:
        """Hold the streams of these lanes from here on."""

    def corun(self, setup: CoSetup, kernels: Mapping[str, Kernel]) -> Corun:
        """Prepare the roles of one point; raises UnsupportedError, FailedError or StickyError as the point's outcome."""

    def now_ns(self) -> int:
        """Read the device's clock (%globaltimer), which every process on the device shares."""

    def annotate(
        self, name: str, category: str = "sweep", payload: int = 0, family: Family | None = None
    ) -> AbstractContextManager[None]:
        """Open an NVTX push/pop range of domain `greenbench`; free when no tool listens."""

    def profiled(self) -> AbstractContextManager[None]:
        """Let a profiler that waits for cuProfilerStart record what is launched inside; free when there is none."""

    def evidence(self, *, energy: bool = False) -> Evidence:
        """Read NVML once; a device without NVML gives an empty reading. `energy` adds the slow energy counter."""

    def allowance(self) -> str:
        """Return why this process must not measure now (MPS percentage, MIG parent, ...), or an empty string."""

    def close(self) -> None:
        """Free what the device holds for this process; safe to call twice."""


def open_gpu(spec: str, *, cache_dir: Path | None = None) -> Gpu:
    """Open the device that `--device` names: `cuda:0`, `model:h200[@13.1]` or `model:FILE.toml`."""
    kind, _, rest = spec.partition(":")
    if kind == "model":
        from greenbench.gpu.modelled import open_modelled

        return open_modelled(rest)
    from greenbench.gpu.cuda import open_cuda

    return open_cuda(rest or "0", cache_dir=cache_dir)


__all__ = [
    "ClockSample",
    "Corun",
    "Gate",
    "Gpu",
    "HostTimed",
    "Lane",
    "Mark",
    "OpenGate",
    "Refusal",
    "Replay",
    "Verification",
    "Work",
    "open_gpu",
]
