"""Run a tool that starts processes of its own, within a time limit, and leave nothing of it behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from greenbench.errors import MissingPackageError
from greenbench.nsight.guardian import MARK, end_all, guarded, tied_to_parent
from greenbench.timeline.database import clean

# A tool that was asked to end writes its report first; what comes of that is thrown away.
INTERRUPT_S = 5.0
LEFT_S = 5.0
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
    with guarded(token) as guardian:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=environment,
                preexec_fn=tied_to_parent,  # noqa: PLW1509
            )
        except OSError as error:
            raise MissingPackageError(f"{command[0]} does not start: {(error.strerror or str(error)).lower()}") from error
        guardian.watch(process.pid)
        reader = threading.Thread(target=_forward, args=(process.stdout, tail), daemon=True)
        reader.start()
        timed_out = _waited(process, token, reader, timeout_s)
    return Ended(process.returncode, timed_out, clean(tail[0].strip())[:240] if tail else "")


def _waited(process: subprocess.Popen[bytes], token: str, reader: threading.Thread, timeout_s: float) -> bool:
    """Wait for the tool and end what is left of it; True if the limit passed."""
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
        process.wait()
        # Whoever held the pipe open is gone.
        reader.join(LEFT_S)
        if process.stdout is not None and not reader.is_alive():
            process.stdout.close()
    return timed_out


def _forward(source: IO[bytes] | None, tail: deque[str]) -> None:
    """Write each line to our stderr, where a person looks, and remember the last one that says anything."""
    for line in source or ():
        text = line.decode("utf-8", "replace")
        if text.strip():
            tail.append(text)
        with suppress(OSError):
            os.write(STDERR, line)
