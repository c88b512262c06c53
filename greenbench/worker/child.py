"""The worker process: owns the GPU, answers requests from its pipe one by one, and ends when the pipe does."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from greenbench import errors
from greenbench.catalog import library
from greenbench.errors import GreenbenchError, PointError
from greenbench.gpu import open_gpu
from greenbench.measure import Session
from greenbench.schema import Block, BlockKind, DeviceFacts, Evidence, Grant, Partition, Point, Prepared, Timing
from greenbench.worker.spawning import ignore_ctrl_c

PR_SET_PDEATHSIG = 1


class Server:
    """The verbs of the pipe; state lives from `hello` to `close`."""

    def __init__(self) -> None:
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The opened device."""
        if self._session is None:
            raise GreenbenchError("internal: hello comes first")
        return self._session

    def hello(self, device: str, kernel_dirs: Sequence[Path], cache_dir: Path | None) -> tuple[DeviceFacts, str]:
        """Open the device; return its facts and why it must not be measured, if so."""
        gpu = open_gpu(device, cache_dir=cache_dir)
        self._session = Session(gpu, library(kernel_dirs))
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

    def evidence(self) -> Evidence:
        """Read NVML."""
        return self.session.gpu.evidence()

    def close(self) -> None:
        """Tear everything down in order."""
        if self._session is not None:
            self._session.close()
            self._session = None


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
        except EOFError:
            return
        reply: tuple[str, Any]
        try:
            reply = ("done", getattr(server, verb)(*args))
        except GreenbenchError as error:
            reply = ("error", _portable(error))
        try:
            pipe.send(reply)
        except BrokenPipeError:
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
