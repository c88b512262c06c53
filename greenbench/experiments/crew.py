"""The workers of a run, one per environment key: started when needed, replaced when lost, with lanes and points prepared anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greenbench.errors import FailedError, GreenbenchError, PointError, StickyError, UnfitError
from greenbench.schema import Backend, Block, BlockKind, DeviceFacts, Evidence, Grant, Partition, Point, Prepared, Timing
from greenbench.timeline.recorded import Recorded
from greenbench.worker import Worker

Key = int | None
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


class Crew:
    """Hands points to the worker of their environment; a lost worker costs the request under way and nothing else."""

    def __init__(
        self,
        device: str,
        kernel_dirs: Sequence[Path],
        log: Path | None,
        timeout_s: float,
        *,
        traced: bool = False,
        gates: bool = True,
    ) -> None:
        self._device, self._kernel_dirs, self._log = device, tuple(kernel_dirs), log
        self._more: dict[str, Any] = ({"traced": True} if traced else {}) | ({} if gates else {"gates": False})
        self.timeout_s = timeout_s
        self._workers: dict[Key, Worker] = {}
        self._partitions: dict[Key, list[Partition]] = {}
        self._prepared: dict[Key, set[Point]] = {}
        self._timings: dict[Point, Timing] = {}
        self._digests: dict[Point, str] = {}

    def facts(self, key: Key = None) -> DeviceFacts:
        """Start the worker of this key if need be; return what its device says. Raises MachineError's kin."""
        try:
            worker = self._worker(key)
        except StickyError as error:
            raise UnfitError(f"{self._device} cannot be opened: {error}; try again, and see greenbench devices") from error
        if worker.device is None:
            raise UnfitError("the worker opened no device")
        return worker.device

    def _worker(self, key: Key) -> Worker:
        if key not in self._workers:
            environment = {} if key is None else {CONNECTIONS: str(key)}
            worker = Worker(self._device, self._kernel_dirs, environment=environment, log=self._log, **self._more)
            try:
                _, obstacle = worker.start()
                if obstacle:
                    raise UnfitError(obstacle)
                if self._partitions.get(key):
                    worker.open(self._partitions[key])
            except GreenbenchError:
                worker.kill()
                raise
            except KeyboardInterrupt:
                worker.kill()
                raise
            self._workers[key] = worker
            self._prepared[key] = set()
        return self._workers[key]

    def open(self, key: Key, partitions: Sequence[Partition]) -> Mapping[Partition, Grant | GreenbenchError]:
        """Open lanes in the worker of this key and remember them for its successors."""
        try:
            found = self._worker(key).open(partitions)
        except StickyError as error:
            self._drop(key)
            raise UnfitError(f"opening the partitions failed: {error}") from error
        self._partitions[key] = [*self._partitions.get(key, []), *partitions]
        return dict(zip(partitions, found, strict=True))

    def prepare(self, point: Point) -> Prepared:
        """Prepare a point; raises PointError as its outcome, after replacing a worker that was lost on it."""
        key = point.connections
        with _Losing(self, key):
            prepared = self._worker(key).prepare(point, self._timings.get(point), timeout_s=self.timeout_s)
        # A replaced worker reads the kernel files anew: what it would measure now must be what was measured before.
        if self._digests.setdefault(point, prepared.source_digest) != prepared.source_digest:
            raise FailedError(f"kernel {point.kernel} was changed while the run was under way; start a new run")
        self._prepared[key].add(point)
        self._timings[point] = prepared.timing
        return prepared

    def remember(self, point: Point, timing: Timing) -> None:
        """Keep the resolved timing of an earlier run of the same point."""
        self._timings[point] = timing

    def warm_up(self, point: Point) -> float:
        """Warm the device with a point that is prepared."""
        with _Losing(self, point.connections):
            return self._worker(point.connections).warm_up(point, timeout_s=self.timeout_s)

    def visit(self, point: Point, round_: int, attempt: int = 1, kind: BlockKind = BlockKind.BLOCK) -> Block:
        """Take one block; raises PointError where it came to nothing."""
        key = point.connections
        self._ensure(point)
        with _Losing(self, key):
            return self._worker(key).block(point, round_, attempt, kind, self.size, timeout_s=self.timeout_s)

    def profile(self, point: Point, launches: int) -> Block:
        """Launch a point for a profiler."""
        self._ensure(point)
        with _Losing(self, point.connections):
            return self._worker(point.connections).profile(point, launches, timeout_s=self.timeout_s)

    def trace(self, point: Point, launches: int) -> Recorded:
        """Launch a point under CUPTI; the crew was made `traced`."""
        self._ensure(point)
        with _Losing(self, point.connections):
            return self._worker(point.connections).trace(point, launches, timeout_s=self.timeout_s)

    def _ensure(self, point: Point) -> None:
        self._worker(point.connections)
        if point not in self._prepared[point.connections]:
            self.prepare(point)

    @property
    def size(self) -> int:
        """Workers that hold the device now."""
        return len(self._workers)

    def cools(self) -> bool:
        """True where waiting lets something cool down: not on the modelled device."""
        return any(w.device is not None and w.device.backend is Backend.CUDA for w in self._workers.values())

    def evidence(self) -> Evidence | None:
        """Read NVML through any worker that lives."""
        for worker in self._workers.values():
            try:
                return worker.evidence()
            except PointError:
                continue
        return None

    def _drop(self, key: Key) -> None:
        worker = self._workers.pop(key, None)
        self._prepared.pop(key, None)
        if worker is not None:
            worker.kill()

    def stop(self) -> None:
        """End all workers in order."""
        while self._workers:
            self._workers.popitem()[1].stop()

    def kill(self) -> None:
        """End all workers at once."""
        while self._workers:
            self._workers.popitem()[1].kill()


class _Losing:
    """Drops the worker when the block inside it ends in a StickyError, so that the next request starts a new one."""

    def __init__(self, crew: Crew, key: Key) -> None:
        self._crew, self._key = crew, key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StickyError):
            self._crew._drop(self._key)
