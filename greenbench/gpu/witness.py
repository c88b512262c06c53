"""A second witness: every kernel of this process as CUPTI saw it, with its times and the context and stream that it ran on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from greenbench.errors import MachineError, MissingPackageError, UnfitError, UnsupportedError
from greenbench.timeline.recorded import CallSeen, ContextSeen, KernelSeen, RangeSeen, Recorded

Kernel = KernelSeen
BUFFER_BYTES = 8 * 2**20
FORCED = 1
KERNEL, CONTEXT, DRIVER, RUNTIME = "CONCURRENT_KERNEL", "CONTEXT", "DRIVER", "RUNTIME"
# Any of them means that another tool holds CUPTI in this process.
RIVALS = {"NSYS_PROFILING_SESSION_ID": "nsys", "NV_TPS_LAUNCH_TOKEN": "ncu", "CUDA_INJECTION64_PATH": "another profiler"}


def obstacle(environment: Mapping[str, str] = os.environ) -> MachineError | None:
    """Return why no process of this environment can be traced, as far as that is known without a device."""
    tool = next((tool for name, tool in RIVALS.items() if environment.get(name)), "")
    if tool:
        return UnfitError(f"--trace: CUPTI serves one tool at a time, and this process runs under {tool}; leave out --trace")
    if find_spec("cupti") is None:
        return MissingPackageError("--trace needs the package cupti-python: pip install '.[trace]' in the checkout")
    return None


class Witness:
    """Records from its making to `close`; one per process, made before the device is opened.

    Recording slows launches, so a run that is watched yields no timings. With `calls` the calls of driver and runtime are
    recorded too, which costs more. Raises UnsupportedError where cupti-python is missing, another tool is CUPTI's client, or
    CUPTI refuses.
    """

    def __init__(self, *, calls: bool = False) -> None:
        found = obstacle()
        if found is not None:
            raise UnsupportedError(str(found))
        try:
            from cupti import cupti
        except ImportError as error:
            raise UnsupportedError(f"tracing needs cupti-python ({error}): pip install '.[trace]' in the checkout") from error
        self._cupti = cupti
        self._records: list[Any] = []
        self._contexts: dict[int, ContextSeen] = {}
        self.missing: tuple[str, ...] = ()
        try:
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._records.extend)
            wanted = (KERNEL, CONTEXT, *((DRIVER, RUNTIME) if calls else ()))
            self._enabled = [kind for kind in wanted if self._enable(kind)]
        except cupti.cuptiError as error:
            raise UnsupportedError(f"CUPTI does not record here: {error}") from error
        if KERNEL not in self._enabled:
            raise UnsupportedError(f"CUPTI does not record kernels here: {'; '.join(self.missing)}")

    def _enable(self, name: str) -> bool:
        try:
            self._cupti.activity_enable(getattr(self._cupti.ActivityKind, name))
        except self._cupti.cuptiError as error:
            self.missing = (*self.missing, f"{name}: {error}")
            return False
        return True

    def now_ns(self) -> int:
        """Read the clock that all records are on."""
        return int(self._cupti.get_timestamp())

    def take(self) -> tuple[list[KernelSeen], list[ContextSeen]]:
        """Return the kernels and contexts recorded since the last call; the caller has waited for the device."""
        kernels, _, contexts = self._drained()
        return kernels, contexts

    def record(self, *ranges: RangeSeen) -> Recorded:
        """Return what was recorded since the last call, with the contexts known so far; the caller has waited for the device."""
        kernels, calls, _ = self._drained()
        contexts = tuple(self._contexts[key] for key in sorted(self._contexts))
        return Recorded(os.getpid(), tuple(kernels), tuple(calls), contexts, ranges, self.missing)

    def _drained(self) -> tuple[list[KernelSeen], list[CallSeen], list[ContextSeen]]:
        self._cupti.activity_flush_all(FORCED)
        records, self._records[:] = list(self._records), []
        # Classes of records are renamed from release to release; their kind is not.
        kinds = self._cupti.ActivityKind
        contexts = [_context(record) for record in records if record.kind == kinds.CONTEXT]
        self._contexts |= {each.context: each for each in contexts}
        kernels = [_kernel(record) for record in records if record.kind == kinds.CONCURRENT_KERNEL]
        calls = [self._call(record) for record in records if record.kind in (kinds.DRIVER, kinds.RUNTIME)]
        return sorted(kernels, key=lambda each: each.start_ns), sorted(calls, key=lambda each: each.start_ns), contexts

    def _call(self, record: Any) -> CallSeen:
        domains = self._cupti.CallbackDomain
        driver = record.kind == self._cupti.ActivityKind.DRIVER
        try:
            name = self._cupti.get_callback_name(domains.DRIVER_API if driver else domains.RUNTIME_API, record.cbid)
        except self._cupti.cuptiError:
            # A call newer than this CUPTI has a number only.
            name = f"{'driver' if driver else 'runtime'} call {record.cbid}"
        return CallSeen(str(name), int(record.start), int(record.end), int(record.correlation_id))

    def close(self) -> None:
        """Record no more."""
        for name in self._enabled:
            self._cupti.activity_disable(getattr(self._cupti.ActivityKind, name))
        self._enabled.clear()


def _kernel(record: Any) -> KernelSeen:
    return KernelSeen(
        name=str(record.name),
        start_ns=int(record.start),
        end_ns=int(record.end),
        context=int(record.context_id),
        stream=int(record.stream_id),
        node=int(getattr(record, "graph_node_id", 0)),
        correlation=int(getattr(record, "correlation_id", -1)),
        device=int(getattr(record, "device_id", 0)),
    )


def _context(record: Any) -> ContextSeen:
    sms = getattr(record, "num_multiprocessors", None)
    return ContextSeen(
        context=int(record.context_id),
        green=bool(getattr(record, "is_green_context", False)),
        sms=int(sms) if sms else None,
        parent=int(getattr(record, "parent_context_id", 0)),
        device=int(getattr(record, "device_id", 0)),
        null_stream=int(getattr(record, "null_stream_id", 0)),
    )


__all__ = ["ContextSeen", "Kernel", "Witness", "obstacle"]
