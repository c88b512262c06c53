"""A process that outlives greenbench: where that is killed under a tool, it ends the tool with all that it had started.

`python -m greenbench.nsight.guardian` holds one end of a pipe. It hears the mark of the run, then the tool's session, then that
all is done; a pipe that closes before that means that greenbench is no more.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from greenbench.worker.spawning import ctrl_c_held, ignore_ctrl_c

# Every process of the run inherits this, also one that leaves its session and its parent, as a daemon of a tool does.
MARK = "_GREENBENCH_UNDER_TOOL"
TERM_S, KILL_S = 5.0, 5.0
POLL_S = 0.05
LEAVE_S = 5.0
DONE = "done"
PR_SET_PDEATHSIG = 1
# Loaded here, since a child between fork and exec had better load nothing.
_LIBC = ctypes.CDLL(None)
# No process is of this session.
NO_SESSION = -1


class Guardian:
    """Greenbench's end of the pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def watch(self, session: int) -> None:
        """Name the session of the tool, whose processes may have dropped their mark."""
        self.tell(str(session))

    def dismiss(self) -> None:
        """Say that nothing is left to end, and wait until the guardian is gone."""
        self.tell(DONE)
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tell(self, word: str) -> None:
        """Send a word."""
        # A guardian that was killed guards nothing, and the run goes on.
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(f"{word}\n".encode())
                self._process.stdin.flush()


@contextmanager
def guarded(token: str) -> Iterator[Guardian]:
    """Have a guardian inside the block for the processes that carry this mark."""
    # The guardian itself has no need of what comes with this import, and starts the sooner without.
    from greenbench.worker.process import python_path

    environment = {key: value for key, value in os.environ.items() if key != MARK}
    with ctrl_c_held():
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "greenbench.nsight.guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": python_path()},
            # What ends the group or the terminal of greenbench must not end its guardian.
            start_new_session=True,
        )
    guardian = Guardian(process)
    try:
        guardian.tell(token)
        yield guardian
    finally:
        guardian.dismiss()


def tied_to_parent() -> None:
    """Run in a new child: it is killed when greenbench is, and Ctrl-C reaches it even where greenbench ignores that."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A shell starts what it puts into the background with SIGINT ignored, and a child would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_all(token: str, session: int) -> None:
    """End the processes of a run: ask, then kill, until there is none."""
    for number, seconds in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + seconds
        told: set[int] = set()
        while (left := living(token, session)) and time.monotonic() < deadline:
            for pid in left - told:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            told |= left
            time.sleep(POLL_S)


def living(token: str, session: int) -> set[int]:
    """Return the processes that carry the mark in their environment, or are of the session; those that have ended are not."""
    mark, found = f"{MARK}={token}".encode(), set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            if int(fields[3]) == session or mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found


def guard(pipe: IO[bytes]) -> None:
    """Listen until the pipe closes, and end what is left unless all is done: the guardian's whole life."""
    words = [line.decode().strip() for line in pipe]
    if words and words[-1] != DONE:
        end_all(words[0], int(words[1]) if len(words) > 1 else NO_SESSION)


def main() -> int:
    """Run as `python -m greenbench.nsight.guardian`, with greenbench's pipe as standard input."""
    ignore_ctrl_c()
    guard(sys.stdin.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
