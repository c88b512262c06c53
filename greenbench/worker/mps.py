"""An MPS daemon of our own: private folders, in the foreground under a guardian process, and ended whatever ends greenbench.

The guardian (`python -m greenbench.worker.mps`) holds one end of a pipe. When that closes, because greenbench is done or was
killed, it tells the daemon to quit, ends what is left of it, and removes the folders. If the guardian itself is killed, the
daemon gets SIGKILL with it (PR_SET_PDEATHSIG), and greenbench ends the rest of its process group.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from greenbench.errors import UnsupportedError
from greenbench.gpu.mps import SHARE
from greenbench.worker.process import python_path
from greenbench.worker.spawning import ctrl_c_held, ignore_ctrl_c

CONTROL = "nvidia-cuda-mps-control"
PIPE_DIRECTORY, LOG_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
# The daemon sees every device and its clients choose; what is set for both is applied twice, by number.
VISIBLE = "CUDA_VISIBLE_DEVICES"
LOG = "mps.log"
# A socket's path has about 108 characters, and the daemon adds a name of its own.
LONGEST_BASE = 60
ANSWER_S = 10.0
ASK_S = 5.0
QUIT_S = 2.0
POLL_S = 0.05
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class MpsDaemon:
    """A context manager: inside it the daemon answers; `folder` keeps what it says (mps.log), if it says anything.

    Raises UnsupportedError on entering where there is no binary, or the daemon does not answer.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / LOG
        self._home: Path | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._group: int | None = None

    def environment(self, percentage: int | None = None, memory_limit: str = "") -> dict[str, str]:
        """Return a client's environment; `memory_limit` is of its first device (`40G`), or in MPS's words (`1=40G`)."""
        if self._home is None:
            raise UnsupportedError("internal: the MPS daemon is asked for before it runs")
        found = {PIPE_DIRECTORY: str(self._home / "pipe"), LOG_DIRECTORY: str(self._home / "log")}
        if percentage is not None:
            found[SHARE] = str(percentage)
        if memory_limit:
            found[MEMORY_LIMIT] = memory_limit if "=" in memory_limit else f"0={memory_limit}"
        return found

    def __enter__(self) -> Self:
        binary = shutil.which(CONTROL)
        if binary is None:
            raise UnsupportedError(f"MPS needs {CONTROL}, which is not on PATH; it comes with the driver")
        try:
            self._start(binary)
            self._await_answer(binary)
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, binary: str) -> None:
        self._home = _short_folder()
        for name in ("pipe", "log"):
            (self._home / name).mkdir(mode=0o700)
        environment = {key: value for key, value in os.environ.items() if key not in (VISIBLE, SHARE, MEMORY_LIMIT)}
        environment |= {**self.environment(), "PYTHONPATH": python_path()}
        with self._log.open("ab") as output, ctrl_c_held():
            self._guardian = subprocess.Popen(
                [sys.executable, "-P", "-m", "greenbench.worker.mps", binary, str(self._home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
                # What a terminal or a supervisor sends to the group is greenbench's to answer.
                start_new_session=True,
            )
        line = self._guardian.stdout.readline() if self._guardian.stdout else b""
        self._group = int(line) if line.strip().isdigit() else None

    def _await_answer(self, binary: str) -> None:
        deadline = time.monotonic() + ANSWER_S
        while True:
            gone = self._guardian is None or self._guardian.poll() is not None
            if not gone and asked(binary, "get_server_list", self.environment()):
                return
            if gone or time.monotonic() > deadline:
                raise UnsupportedError(f"the MPS daemon {'ended at once' if gone else 'does not answer'}{self._last_words()}")
            time.sleep(POLL_S)

    def _last_words(self) -> str:
        """Return the last line that the daemon wrote anywhere."""
        logs = [self._log, *(sorted((self._home / "log").glob("*.log")) if self._home else [])]
        for path in reversed(logs):
            with suppress(OSError):
                lines = path.read_text(errors="replace").strip().splitlines()
                if lines:
                    return f": {lines[-1].strip()}"
        return ""

    def close(self) -> None:
        """End the daemon and remove its folders; safe to call twice."""
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            for pipe in (guardian.stdin, guardian.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                guardian.wait(ASK_S + 3 * QUIT_S)
            except subprocess.TimeoutExpired:
                guardian.kill()
                guardian.wait()
        if self._group is not None and guardian is not None and guardian.returncode != 0:
            # The guardian was killed, and its daemon with it; what that had started is in its group.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)
        self._group = None
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
        with suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _short_folder() -> Path:
    """Make a new folder, whose path leaves room for the name of a socket, for this user alone."""
    base = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="gbmps-", dir=base if len(base) <= LONGEST_BASE else "/tmp"))


def asked(binary: str, command: str, environment: dict[str, str]) -> bool:
    """Send a command to the daemon of these folders; True if it answered."""
    try:
        done = subprocess.run(
            [binary],
            input=command.encode() + b"\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def guard(binary: str, home: Path, pipe: IO[bytes]) -> int:
    """Run the daemon until the pipe closes or it ends by itself, then leave nothing of it: the guardian's whole life."""
    libc = ctypes.CDLL(None, use_errno=True)
    # A server that the daemon leaves behind becomes the guardian's child instead of nobody's.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)

    def tied() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    daemon = subprocess.Popen(
        [binary, "-f"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        process_group=0,
        preexec_fn=tied,  # noqa: PLW1509
    )
    with suppress(BrokenPipeError):
        os.write(1, f"{daemon.pid}\n".encode())
    alone, ended = False, list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:
        while not alone and not ended and daemon.poll() is None:
            # Nothing is ever written to it: what can be read is its end.
            alone = bool(select.select([pipe], [], [], POLL_S)[0])
    finally:
        _end(binary, daemon)
    if alone:
        shutil.rmtree(home, ignore_errors=True)
    # Where greenbench lives, what the daemon left there is for it to read.
    return 0


def _end(binary: str, daemon: subprocess.Popen[bytes]) -> None:
    """Ask the daemon to quit, then end its group, then whatever else it has left us."""
    if daemon.poll() is None:
        asked(binary, "quit", {})
    with suppress(subprocess.TimeoutExpired):
        daemon.wait(QUIT_S)
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = children(os.getpid()) | ({daemon.pid} if daemon.poll() is None else set())
        if not left:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(daemon.pid, number)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        _reap(time.monotonic() + QUIT_S)


def _reap(deadline: float) -> None:
    """Wait for children until there are none or the time is up."""
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(POLL_S)


def children(parent: int) -> set[int]:
    """Return the ids of the living child processes of a process."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                found.add(int(stat.parent.name))
    return found


def main(argv: Sequence[str]) -> int:
    """Run as `python -m greenbench.worker.mps BINARY HOME`, with greenbench's pipe as standard input."""
    ignore_ctrl_c()
    return guard(argv[0], Path(argv[1]), sys.stdin.buffer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
