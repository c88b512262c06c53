"""The processes of co-runs: one that holds all roles of a point, or one for each role where the mechanism asks for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, Trace
from greenbench.errors import FailedError, GreenbenchError, MachineError, StickyError, UnfitError
from greenbench.experiments.crew import CONNECTIONS, Key
from greenbench.gpu.mps import SHARE
from greenbench.schema import DeviceFacts, Evidence
from greenbench.worker import Worker

# From the device's clock now to the origin of a run of several processes: time for all of them to queue their first steps.
LEAD_NS = 50_000_000
# In the run's folder, and only while processes run that have no end of their own.
STOP = ".stop"


class CoCrew:
    """Hands points to the worker of their environment; a lost worker costs the request under way and nothing else."""

    def __init__(self, device: str, kernel_dirs: Sequence[Path], log: Path | None, timeout_s: float) -> None:
        self._device, self._kernel_dirs, self._log = device, tuple(kernel_dirs), log
        self.timeout_s = timeout_s
        self._workers: dict[Key, Worker] = {}
        self._apart: list[Worker] = []

    @property
    def size(self) -> int:
        """Workers that hold the device now."""
        return len(self._workers) + len(self._apart)

    def facts(self, connections: Key = None) -> DeviceFacts:
        """Start the worker of this environment if need be; return what its device says. Raises MachineError's kin."""
        try:
            worker = self._worker(connections)
        except StickyError as error:
            raise UnfitError(f"{self._device} cannot be opened: {error}; try again, and see greenbench devices") from error
        if worker.device is None:
            raise UnfitError("the worker opened no device")
        return worker.device

    def prepare(self, setup: CoSetup, connections: Key = None) -> tuple[RolePrepared, ...]:
        """Prepare all roles in one process; raises PointError as the point's outcome, after giving up a worker that was lost."""
        try:
            self._leave(connections)
            return self._worker(connections).co_prepare(setup, timeout_s=self.timeout_s)
        except StickyError:
            self._drop(connections)
            raise

    def run(self, setup: CoSetup, schedule: CoSchedule, connections: Key = None) -> Trace:
        """Run a schedule of a setup; raises as `prepare`, also where it takes longer than its limit and the crew's timeout."""
        try:
            self._leave(connections)
            return self._worker(connections).co_run(setup, schedule, timeout_s=schedule.limit_s + self.timeout_s)
        except StickyError:
            self._drop(connections)
            raise

    def prepare_apart(
        self, setups: Sequence[CoSetup], environments: Sequence[Mapping[str, str]]
    ) -> list[tuple[RolePrepared, ...]]:
        """Start one process for each setup and prepare them one by one, so that none disturbs another's first look at its step.

        They live until `finish_apart`, or until any of them fails.
        """
        try:
            self.finish_apart()
            self._leave(None, all_=True)
            for environment in environments:
                worker = Worker(self._device, self._kernel_dirs, environment=environment, log=self._log)
                self._apart.append(worker)
                worker.begin_start()
            for worker, environment in zip(self._apart, environments, strict=True):
                obstacle = _opened(worker)
                # The share of a client is what is measured here.
                if obstacle and not (SHARE in environment and obstacle.startswith(SHARE)):
                    raise FailedError(obstacle)
            return [w.co_prepare(setup, timeout_s=self.timeout_s) for w, setup in zip(self._apart, setups, strict=True)]
        except BaseException:
            self._kill_apart()
            raise

    def run_prepared_apart(self, setups: Sequence[CoSetup], schedules: Sequence[CoSchedule]) -> list[Trace]:
        """Run all processes at once from one origin on the device's clock; endless roles stop when the others are done."""
        try:
            with self._stop_file() as stop:
                origin = self._apart[0].co_now(timeout_s=self.timeout_s) + LEAD_NS
                started = [replace(schedule, origin_ns=origin, stop=stop) for schedule in schedules]
                for worker, setup, schedule in zip(self._apart, setups, started, strict=True):
                    worker.start_co_run(setup, schedule)
                return self._finished(started, stop)
        except BaseException:
            self._kill_apart()
            raise

    @contextmanager
    def _stop_file(self) -> Iterator[Path]:
        """Yield a path beside the log at which there is no file; a run that is killed leaves nothing outside its folder."""
        if self._log is None:
            raise GreenbenchError("internal: processes run apart only in a run, which has a folder")
        path = self._log.with_name(STOP)
        path.unlink(missing_ok=True)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _finished(self, schedules: Sequence[CoSchedule], stop: Path) -> list[Trace]:
        """Wait for the processes that have an end, then let the endless ones stop and wait for them."""
        found: dict[int, Trace] = {}
        endless = [all(role.endless for role in schedule.roles) for schedule in schedules]
        for turn in (False, True):
            if turn:
                stop.touch()
            for place, (worker, schedule) in enumerate(zip(self._apart, schedules, strict=True)):
                if endless[place] is turn:
                    found[place] = worker.finish_co_run(timeout_s=schedule.limit_s + self.timeout_s)
        return [found[place] for place in range(len(schedules))]

    def run_apart(
        self, setups: Sequence[CoSetup], schedules: Sequence[CoSchedule], environments: Sequence[Mapping[str, str]]
    ) -> tuple[list[tuple[RolePrepared, ...]], list[Trace]]:
        """Prepare and run one process for each setup, and end them; raises PointError as the point's outcome."""
        with ExitStack() as stack:
            prepared = self.prepare_apart(setups, environments)
            stack.callback(self.finish_apart)
            return prepared, self.run_prepared_apart(setups, schedules)

    def finish_apart(self) -> None:
        """End the processes of the last such run in order."""
        while self._apart:
            self._apart.pop().stop()

    def evidence(self) -> Evidence | None:
        """Read NVML through any worker that lives."""
        for worker in self._workers.values():
            try:
                return worker.evidence()
            except GreenbenchError:
                continue
        return None

    def _worker(self, key: Key) -> Worker:
        if key not in self._workers:
            environment = {} if key is None else {CONNECTIONS: str(key)}
            worker = Worker(self._device, self._kernel_dirs, environment=environment, log=self._log)
            try:
                _, obstacle = worker.start()
                if obstacle:
                    raise UnfitError(obstacle)
            except BaseException:
                worker.kill()
                raise
            self._workers[key] = worker
        return self._workers[key]

    def _leave(self, key: Key, *, all_: bool = False) -> None:
        """Let the other workers give up what they have prepared: idle contexts cost nothing, memory and queues do."""
        for other in [each for each in self._workers if all_ or each != key]:
            try:
                self._workers[other].co_drop()
            except StickyError:
                self._drop(other)

    def _drop(self, key: Key) -> None:
        worker = self._workers.pop(key, None)
        if worker is not None:
            worker.kill()

    def _kill_apart(self) -> None:
        while self._apart:
            self._apart.pop().kill()

    def stop(self) -> None:
        """End all workers in order."""
        self.finish_apart()
        while self._workers:
            self._workers.popitem()[1].stop()

    def kill(self) -> None:
        """End all workers at once, and take away what an earlier part of the run left when it was killed."""
        self._kill_apart()
        if self._log is not None:
            with suppress(OSError):
                self._log.with_name(STOP).unlink()
        while self._workers:
            self._workers.popitem()[1].kill()


def _opened(worker: Worker) -> str:
    """Return why a process must not measure; the device works, so that one which cannot open it costs its point alone."""
    try:
        return worker.finish_start()[1]
    except MachineError as error:
        raise FailedError(f"a process of this mechanism cannot open the device: {error}") from error
