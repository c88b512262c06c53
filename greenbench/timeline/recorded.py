"""What a process recorded of itself: kernels, calls, contexts, and stretches of time with a name."""

from __future__ import annotations

from dataclasses import dataclass

TRACE = "trace.sqlite"


@dataclass(frozen=True, slots=True)
class KernelSeen:
    """One kernel; `context` is the green context where it ran in one, `node` 0 outside graphs."""

    name: str
    start_ns: int
    end_ns: int
    context: int
    stream: int
    node: int = 0
    correlation: int = -1
    device: int = 0


@dataclass(frozen=True, slots=True)
class CallSeen:
    """One call of the CUDA driver or runtime."""

    name: str
    start_ns: int
    end_ns: int
    correlation: int


@dataclass(frozen=True, slots=True)
class ContextSeen:
    """A context; `parent` is 0 for a primary one, and `sms` is known where CUPTI tells it."""

    context: int
    green: bool
    sms: int | None = None
    parent: int = 0
    device: int = 0
    null_stream: int = 0


@dataclass(frozen=True, slots=True)
class RangeSeen:
    """A stretch of the host's time with a name, as an NVTX range of domain `greenbench` would be."""

    name: str
    start_ns: int
    end_ns: int
    payload: int = 0
    category: str = "kernel"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one process recorded in one stretch; all times are ns on one clock."""

    pid: int
    kernels: tuple[KernelSeen, ...]
    calls: tuple[CallSeen, ...] = ()
    contexts: tuple[ContextSeen, ...] = ()
    ranges: tuple[RangeSeen, ...] = ()
    missing: tuple[str, ...] = ()

    def place(self, kernel: KernelSeen) -> ContextSeen | None:
        """Return the context that a kernel ran in, None where no record of it came."""
        return next((each for each in self.contexts if each.context == kernel.context), None)
