"""One step of a role as a CUDA graph on its lane: gate, stamp, kernels in order, stamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from greenbench.catalog import Kernel
from greenbench.errors import FailedError, StickyError, UnsupportedError
from greenbench.gpu import driver
from greenbench.gpu.lane import CudaLane
from greenbench.gpu.ledger import Ledger
from greenbench.gpu.work import KernelWork
from greenbench.schema import SmsMode
from greenbench.workload import Call, Workload

# A copy-engine transfer is no kernel of the library.
COPY = "memcpy_h2d"
COPY_ROOM = (32, 0)
# Gate, start and end.
FRAME = 3


class Launch(Protocol):
    """One launch of a step."""

    def enqueue(self, target: Any) -> None:
        """Capture it into a graph builder, or enqueue it on the stream."""

    @property
    def room(self) -> tuple[int, int]:
        """Threads and bytes of shared memory of one CTA."""

    @property
    def report_address(self) -> int:
        """Where it reports; 0 where it does not."""

    @property
    def per(self) -> float | None:
        """What a report is divided by."""


class HostCopy:
    """A transfer from pinned host memory by the copy engine, which needs no SM."""

    report_address = 0
    per = None
    room = COPY_ROOM

    def __init__(self, core: Any, size: int) -> None:
        if size < 1:
            raise UnsupportedError(f"{COPY}: a transfer of {size} bytes moves nothing; give bytes = 1 or more")
        self._size = size
        with driver.translated(f"preparing {COPY}"):
            self._from = core.LegacyPinnedMemoryResource().allocate(size)
            self._to = driver.cupy().empty(size, dtype="uint8")

    def enqueue(self, target: Any) -> None:
        """Capture the transfer."""
        stream = getattr(target, "stream", target)
        raw = driver.bindings()
        driver.checked(raw.cuMemcpyHtoDAsync(int(self._to.data.ptr), int(self._from.handle), self._size, stream.handle), COPY)


class Bench:
    """The launches that were prepared and verified on one lane; calls that recur share buffers."""

    def __init__(self, core: Any, lane: CudaLane, kernels: Mapping[str, Kernel]) -> None:
        self._core, self.lane, self._kernels = core, lane, kernels
        self._made: dict[tuple[Any, ...], Launch] = {}
        self._errors: dict[tuple[Any, ...], float | None] = {}
        self._configs: dict[str, str] = {}

    def launch(self, call: Call, *, verify: bool) -> Launch:
        """Return the launch of a call, verified on this very lane when it is first asked for."""
        key = (call.kernel, call.params)
        if key in self._made:
            return self._made[key]
        if call.kernel == COPY:
            self._made[key] = HostCopy(self._core, int(dict(call.params)["bytes"]))
            return self._made[key]
        work = self.lane.prepare(self._kernels[call.kernel], dict(call.params))
        if not isinstance(work, KernelWork):
            raise UnsupportedError(f"{call.kernel} is timed by the host and cannot be part of a step")
        if verify:
            found = work.verify()
            if not found.ok:
                raise FailedError(f"{call.text}: incorrect: error {found.error:.3g} above {found.tolerance:.3g}; {found.detail}")
            self._errors[key] = found.error
        if work.report_address:
            # A report is read from the first set of buffers.
            work.rotate(False)
        self._configs[call.kernel] = work.config
        self._made[key] = work
        return work

    def error(self, workloads: Sequence[Workload]) -> float | None:
        """Return the largest error that verifying these workloads found, None where nothing has a reference."""
        keys = {(call.kernel, call.params) for each in workloads for call in each.distinct()}
        errors = [error for key, error in self._errors.items() if key in keys and error is not None]
        return max(errors, default=None)

    def config(self, workload: Workload) -> str:
        """Return the variants that were chosen, kernel by kernel."""
        names = dict.fromkeys(call.kernel for call in workload.distinct())
        return "; ".join(f"{name}: {self._configs[name]}" for name in names if self._configs.get(name))


class StepGraph:
    """One workload captured on its lane, framed by the stamps of a ledger; proved to run on the lane's SMs."""

    def __init__(self, bench: Bench, ledger: Ledger, workload: Workload, *, verify: bool) -> None:
        self._lane, self._ledger = bench.lane, ledger
        self._launches = [bench.launch(call, verify=verify) for call in workload.calls()]
        self.launches = len(self._launches) + FRAME
        with driver.translated(f"capturing a step of {workload.name}"):
            self._graph = self._captured()
        self._prove()

    def _captured(self, *, census: bool = False) -> Any:
        lane = self._lane
        builder = lane.stream.create_graph_builder().begin_building()
        if census:
            lane.launch_probe(builder)
        self._ledger.open_step(builder, *self._launches[0].room)
        for launch in self._launches:
            launch.enqueue(builder)
        self._ledger.close_step(builder, self._launches[-1].report_address)
        graph = builder.end_building().complete()
        graph.upload(lane.stream)
        lane.stream.sync()
        return graph

    def _prove(self) -> None:
        """Replay a twin with the census in it: what was captured on a lane must run on its SMs."""
        lane = self._lane
        with driver.translated("proving a graph"):
            twin = self._captured(census=True)
            self._ledger.reset(lane.stream, (), gated=True)
            lane.clear_probe()
            twin.launch(lane.stream)
            seen = set(lane.read_probe().smids)
            twin.close()
        if lane.partition.mode is not SmsMode.PRIMARY and seen != set(lane.grant.smids):
            raise FailedError(f"leaked: {lane.grant.sms} SMs granted, a graph of the step ran on {len(seen)}")

    @property
    def per(self) -> float | None:
        """What the last kernel's report is divided by, None where it does not report."""
        return self._launches[-1].per

    def launch(self) -> None:
        """Enqueue one step."""
        try:
            self._graph.launch(self._lane.stream)
        except driver.cuda_error() as error:
            raise driver.point_error(str(error), "launching a step") from error

    def close(self) -> None:
        """Destroy the graph."""
        try:
            self._graph.close()
        except StickyError:
            return


__all__ = ["COPY", "Bench", "StepGraph"]
