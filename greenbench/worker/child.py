"""The worker process: owns the GPU, answers requests from its pipe one by one, and ends when the pipe does."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from greenbench import errors
from greenbench.catalog import Kernel, library
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, Trace
from greenbench.errors import GreenbenchError, PointError
from greenbench.gpu import Corun, open_gpu
from greenbench.gpu.witness import Witness
from greenbench.measure import Session
from greenbench.schema import Block, BlockKind, DeviceFacts, Evidence, Grant, Partition, Point, Prepared, Timing
from greenbench.timeline.recorded import RangeSeen, Recorded
from greenbench.worker.spawning import ignore_ctrl_c

PR_SET_PDEATHSIG = 1


class Server:
    """The verbs of the pipe; state lives from `hello` to `close`."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._kernels: Mapping[str, Kernel] = {}
        self._corun: tuple[CoSetup, Corun] | None = None
        self._witness: Witness | None = None

    @property
    def session(self) -> Session:
        """The opened device."""
        if self._session is None:
            raise GreenbenchError("internal: hello comes first")
        return self._session

    def hello(
        self, device: str, kernel_dirs: Sequence[Path], cache_dir: Path | None, traced: bool = False, gates: bool = True
    ) -> tuple[DeviceFacts, str]:
        """Open the device; return its facts and why it must not be measured, if so.

        `traced` puts it under a witness, and without `gates` no stream waits for the host, as a profiler needs it.
        """
        if traced:
            # CUPTI sees the contexts that are made after it only.
            self._witness = Witness(calls=True)
        gpu = open_gpu(device, cache_dir=cache_dir)
        gpu.gates = gates
        self._kernels = library(kernel_dirs)
        self._session = Session(gpu, self._kernels)
        return gpu.device, gpu.allowance()

    def open(self, partitions: Sequence[Partition]) -> tuple[list[Grant | tuple[str, str]], DeviceFacts]:
        """Open lanes; a refusal comes back as (class name, text)."""
        found = self.session.open(partitions)
        return [_portable(item) if isinstance(item, PointError) else item for item in found], self.session.device

    def prepare(self, point: Point, timing: Timing | None, verify: bool) -> Prepared:
        """Prepare a point on its lane."""
        return self.session.prepare(point, timing, verify)

    def warm_up(self, point: Point) -> float:
        """Warm the device with a prepared point."""
        return self.session.warm_up(point)

    def block(self, point: Point, round_: int, attempt: int, kind: BlockKind, own_processes: int) -> Block:
        """Visit a prepared point."""
        return self.session.block(point, round_=round_, attempt=attempt, kind=kind, own_processes=own_processes)

    def profile(self, point: Point, launches: int) -> Block:
        """Launch a prepared point for a profiler."""
        return self.session.profile(point, launches)

    def trace(self, point: Point, launches: int) -> Recorded:
        """Launch a prepared point under the witness; return what it saw of that alone."""
        if self._witness is None:
            raise GreenbenchError("internal: this worker was not started to be traced")
        self._witness.take()
        began = self._witness.now_ns()
        block = self.session.profile(point, launches)
        label = point.label(block.timing)
        return self._witness.record(RangeSeen(label, began, self._witness.now_ns(), payload=block.sms_granted or 0))

    def evidence(self) -> Evidence:
        """Read NVML."""
        return self.session.gpu.evidence()

    def co_prepare(self, setup: CoSetup) -> tuple[RolePrepared, ...]:
        """Prepare the roles of a point, after giving up those of the point before: only one holds memory and queues."""
        return self._prepared(setup).prepared

    def co_run(self, setup: CoSetup, schedule: CoSchedule) -> Trace:
        """Run the schedule of a point, which is prepared anew if it is not the latest."""
        corun = self._prepared(setup)
        with self.session.gpu.annotate(_range_name(setup), category="workload", payload=sum(setup.sizes[:1])):
            return corun.run(schedule)

    def co_now(self) -> int:
        """Read the device's clock, in ns."""
        return self.session.gpu.now_ns()

    def co_drop(self) -> None:
        """Give up the prepared roles, so that other processes have the device to themselves."""
        if self._corun is not None:
            self._corun[1].close()
            self._corun = None

    def _prepared(self, setup: CoSetup) -> Corun:
        if self._corun is None or self._corun[0] != setup:
            self.co_drop()
            with self.session.gpu.annotate("prepare", category="setup"):
                self._corun = (setup, self.session.gpu.corun(setup, self._kernels))
        return self._corun[1]

    def close(self) -> None:
        """Tear everything down in order."""
        self.co_drop()
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._witness is not None:
            self._witness.close()
            self._witness = None


def _range_name(setup: CoSetup) -> str:
    """Name the NVTX range of a co-location: its mechanism, and the sizes of its split."""
    sizes = "+".join(map(str, setup.sizes))
    return f"{setup.mechanism.value}@{sizes}" if sizes else setup.mechanism.value


def _portable(error: GreenbenchError) -> tuple[str, str]:
    """Name the nearest class of the error tree: what a subclass adds need not survive the pipe."""
    known = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return known, str(error)


def serve(pipe: Connection) -> None:
    """Answer requests until the pipe closes; anything but a GreenbenchError ends the process with a traceback on stderr."""
    server = Server()
    while True:
        try:
            verb, args = pipe.recv()
        except (EOFError, ConnectionResetError):
            # A parent that was killed may close the pipe with a reply still in it.
            return
        reply: tuple[str, Any]
        try:
            reply = ("done", getattr(server, verb)(*args))
        except GreenbenchError as error:
            reply = ("error", _portable(error))
        try:
            pipe.send(reply)
        except (BrokenPipeError, ConnectionResetError):
            return
        if verb == "close":
            return


def main(argv: Sequence[str]) -> int:
    """Run as `python -m greenbench.worker.child FD PARENT_PID`."""
    faulthandler.enable()
    # The parent decides what becomes of us.
    ignore_ctrl_c()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    descriptor, parent = int(argv[0]), int(argv[1])
    if os.getppid() != parent:
        return 1
    serve(Connection(descriptor))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
