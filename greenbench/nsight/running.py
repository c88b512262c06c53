"""Run a tool that starts processes of its own, within a time limit, and leave nothing of it behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from greenbench.errors import MissingPackageError
from greenbench.timeline.database import clean

# Every process of the run inherits this, also one that leaves its session and its parent, as a daemon of a tool does.
MARK = "_GREENBENCH_UNDER_TOOL"
INTERRUPT_S, TERM_S, KILL_S = 20.0, 5.0, 5.0
POLL_S = 0.05
STDERR = 2


@dataclass(frozen=True, slots=True)
class Ended:
    """How it went: the exit status (negative for a signal), whether the limit passed, and the last line it wrote."""

    code: int
    timed_out: bool
    words: str


def run(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> Ended:
    """Run a command, its stdout on our stderr, until it ends or the limit passes; then end whatever is left of it.

    Raises MissingPackageError where it does not start. Ctrl-C gives it time to end by itself, and is raised again.
    """
    token = secrets.token_hex(16)
    environment = {**os.environ, **environment, MARK: token}
    tail: deque[str] = deque(maxlen=1)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, env=environment
        )
    except OSError as error:
        raise MissingPackageError(f"{command[0]} does not start: {(error.strerror or str(error)).lower()}") from error
    reader = threading.Thread(target=_forward, args=(process.stdout, tail), daemon=True)
    reader.start()
    timed_out = False
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    except KeyboardInterrupt:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_S)
        raise
    finally:
        end_all(token, process.pid)
        code = process.wait()
        # Whoever held the pipe open is gone.
        reader.join(KILL_S)
        if process.stdout is not None and not reader.is_alive():
            process.stdout.close()
    return Ended(code, timed_out, clean(tail[0].strip())[:240] if tail else "")


def _forward(source: IO[bytes] | None, tail: deque[str]) -> None:
    """Write each line to our stderr, where a person looks, and remember the last one that says anything."""
    for line in source or ():
        text = line.decode("utf-8", "replace")
        if text.strip():
            tail.append(text)
        with suppress(OSError):
            os.write(STDERR, line)


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
