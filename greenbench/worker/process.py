"""The parent's end of a worker: spawn it, send work, watch the clock, kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from greenbench import errors
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, Trace
from greenbench.errors import GreenbenchError, StickyError
from greenbench.schema import Block, BlockKind, DeviceFacts, Evidence, Grant, Partition, Point, Prepared, Timing
from greenbench.timeline.recorded import Recorded
from greenbench.worker.spawning import ctrl_c_held

START_TIMEOUT_S = 120.0
GRACE_S = 3.0
# Under nsys a process writes out what was recorded of it before it ends; a signal would cut that short.
PROFILER_SESSION = "NSYS_PROFILING_SESSION_ID"
WATCHED_GRACE_S = 30.0
# A child whose pipe has closed is on its way out already.
GOING_S = 0.2
POLL_S = 0.2


class Lost(StickyError):
    """The worker died, or had to be killed because it did not answer in time."""


class Worker:
    """One child process that owns the GPU for one environment key."""

    def __init__(
        self,
        device: str,
        kernel_dirs: Sequence[Path] = (),
        *,
        environment: Mapping[str, str] | None = None,
        cache_dir: Path | None = None,
        log: Path | None = None,
        traced: bool = False,
        gates: bool = True,
    ) -> None:
        self._hello = (device, tuple(kernel_dirs), cache_dir, traced, gates)
        self._environment = dict(environment or {})
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self.device: DeviceFacts | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> tuple[DeviceFacts, str]:
        """Spawn the child and open the device; return its facts and why it must not be measured.

        Raises what the device says (MachineError's kin), or Lost if the child dies on the way.
        """
        self.begin_start()
        return self.finish_start()

    def begin_start(self) -> None:
        """Spawn the child and ask it to open the device, without waiting: several may come up at once. Raises as `start`."""
        ours, theirs = Pipe(duplex=True)
        environment = {**os.environ, **self._environment, "PYTHONPATH": python_path()}
        output: IO[bytes] | int = subprocess.DEVNULL
        if self._log is not None:
            output = self._log.open("ab")
        try:
            with ctrl_c_held():
                self._process = subprocess.Popen(
                    # -P: a folder `cuda` or a file `numpy.py` where the user happens to stand is not to be imported.
                    [sys.executable, "-P", "-m", "greenbench.worker.child", str(theirs.fileno()), str(os.getpid())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                )
        finally:
            theirs.close()
            if not isinstance(output, int):
                output.close()
        self._pipe = ours
        self._send("hello", *self._hello)

    def finish_start(self) -> tuple[DeviceFacts, str]:
        """Wait for what `begin_start` asked for; returns and raises as `start`."""
        facts: tuple[DeviceFacts, str] = self._wait(START_TIMEOUT_S)
        self.device = facts[0]
        return facts

    def open(self, partitions: Sequence[Partition], *, timeout_s: float = START_TIMEOUT_S) -> list[Grant | GreenbenchError]:
        """Open lanes; returns a grant or the refusal of each."""
        found, self.device = self._call("open", list(partitions), timeout_s=timeout_s)
        return [item if isinstance(item, Grant) else _rebuilt(*item) for item in found]

    def prepare(self, point: Point, timing: Timing | None = None, verify: bool = True, *, timeout_s: float) -> Prepared:
        """Prepare a point on its lane."""
        prepared: Prepared = self._call("prepare", point, timing, verify, timeout_s=timeout_s)
        return prepared

    def warm_up(self, point: Point, *, timeout_s: float) -> float:
        """Warm the device with a prepared point; returns the seconds it took."""
        return float(self._call("warm_up", point, timeout_s=timeout_s))

    def block(self, point: Point, round_: int, attempt: int, kind: BlockKind, own_processes: int, *, timeout_s: float) -> Block:
        """Visit a prepared point."""
        block: Block = self._call("block", point, round_, attempt, kind, own_processes, timeout_s=timeout_s)
        return block

    def profile(self, point: Point, launches: int, *, timeout_s: float) -> Block:
        """Launch a prepared point for a profiler."""
        block: Block = self._call("profile", point, launches, timeout_s=timeout_s)
        return block

    def trace(self, point: Point, launches: int, *, timeout_s: float) -> Recorded:
        """Launch a prepared point in a worker that was started to be traced; returns what CUPTI saw of that."""
        recorded: Recorded = self._call("trace", point, launches, timeout_s=timeout_s)
        return recorded

    def co_prepare(self, setup: CoSetup, *, timeout_s: float) -> tuple[RolePrepared, ...]:
        """Prepare the roles of a point of a co-location."""
        prepared: tuple[RolePrepared, ...] = self._call("co_prepare", setup, timeout_s=timeout_s)
        return prepared

    def co_run(self, setup: CoSetup, schedule: CoSchedule, *, timeout_s: float) -> Trace:
        """Run a schedule of a point, prepared before or not."""
        self.start_co_run(setup, schedule)
        return self.finish_co_run(timeout_s=timeout_s)

    def start_co_run(self, setup: CoSetup, schedule: CoSchedule) -> None:
        """Ask for a run without waiting for it: processes that run at once are started one after the other."""
        self._send("co_run", setup, schedule)

    def finish_co_run(self, *, timeout_s: float) -> Trace:
        """Wait for the run that was started."""
        trace: Trace = self._wait(timeout_s)
        return trace

    def co_now(self, *, timeout_s: float = START_TIMEOUT_S) -> int:
        """Read the device's clock, in ns."""
        return int(self._call("co_now", timeout_s=timeout_s))

    def co_drop(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Give up the prepared roles of a co-location."""
        self._call("co_drop", timeout_s=timeout_s)

    def evidence(self, *, timeout_s: float = START_TIMEOUT_S) -> Evidence:
        """Read NVML once."""
        reading: Evidence = self._call("evidence", timeout_s=timeout_s)
        return reading

    def _call(self, verb: str, *args: object, timeout_s: float) -> Any:
        self._send(verb, *args)
        return self._wait(timeout_s)

    def _send(self, verb: str, *args: object) -> None:
        if self._pipe is None:
            raise Lost("the worker was not started")
        try:
            self._pipe.send((verb, args))
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Lost(self._epitaph()) from error

    def _wait(self, timeout_s: float) -> Any:
        pipe = self._pipe
        if pipe is None:
            raise Lost("the worker was not started")
        deadline = time.monotonic() + timeout_s
        try:
            # Short polls, so that Ctrl-C is seen at once.
            while not pipe.poll(min(POLL_S, max(deadline - time.monotonic(), 0.0))):
                if time.monotonic() >= deadline:
                    self.kill()
                    raise Lost(f"timeout, {timeout_s:g} s")
            kind, value = pipe.recv()
        except (EOFError, ConnectionResetError, BrokenPipeError) as error:
            raise Lost(self._epitaph()) from error
        if kind == "error":
            raise _rebuilt(*value)
        return value

    def _epitaph(self) -> str:
        code = self._reap(GRACE_S)
        self.kill()
        where = f"; its last words are in {self._log.name}" if self._log is not None else ""
        if code is None:
            return f"the worker closed its pipe{where}"
        if code < 0:
            return f"the worker died of {signal.Signals(-code).name}{where}"
        return f"the worker ended with status {code}{where}"

    def _reap(self, seconds: float) -> int | None:
        if self._process is None:
            return None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Ask for an orderly end, and kill what does not comply."""
        if self._pipe is None:
            return
        # It is to end either way; what it could not tear down goes with its process.
        watched = bool(os.environ.get(PROFILER_SESSION))
        with suppress(GreenbenchError):
            self._call("close", timeout_s=WATCHED_GRACE_S if watched else GRACE_S)
            if watched:
                self._reap(WATCHED_GRACE_S)
        self.kill()

    def kill(self) -> None:
        """SIGTERM, then SIGKILL: an endless kernel ends with its process. Safe to call twice."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        process, self._process = self._process, None
        if process is None:
            return
        for ask in (None, process.terminate):
            if ask is not None:
                ask()
            try:
                process.wait(GRACE_S if ask is not None else GOING_S)
            except subprocess.TimeoutExpired:
                continue
            return
        process.kill()
        process.wait()


def python_path() -> str:
    """Put the folder of this package first, so that the child imports the same code."""
    own = str(Path(__file__).resolve().parents[2])
    rest = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([own, rest]) if rest else own


def _rebuilt(name: str, text: str) -> GreenbenchError:
    kind = getattr(errors, name)
    error: GreenbenchError = kind(text)
    return error
