"""What every measuring command does around its measuring: the lock, the folder of a run that never began, Ctrl-C, a full disk."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from greenbench.errors import GreenbenchError, InterruptedRunError, OutputError, UsageError
from greenbench.runfiles import RunFolder, begun_nothing

RUNS = Path("results") / "runs"
LOG = "worker.log"
RECORDED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_PATH", "NVIDIA_TF32_OVERRIDE")
RECORDED_PREFIXES = ("CUDA_MPS_", "GREENBENCH_", "CUBLAS_", "NSYS_PROFILING")


class Locked(Protocol):
    """A journal that is locked while it is open."""

    @property
    def empty(self) -> bool:
        """Return whether no visit is in it."""

    def close(self) -> None:
        """Give the lock back."""


J = TypeVar("J", bound=Locked)


class Killable(Protocol):
    """The processes of a run."""

    def kill(self) -> None:
        """End all of them."""


class Ending(Protocol):
    """Who is told that a run is over."""

    def finished(self) -> None:
        """No more progress will be told."""


def locked(folder: RunFolder, open_journal: Callable[[Path], J], *, new: bool) -> J:
    """Take the journal's lock, before anything is written: a run that another greenbench is at stays untouched."""
    try:
        journal = open_journal(folder.journal_path)
    except OutputError:
        if new:
            discard(folder)
        raise
    if new and (not journal.empty or folder.meta_path.exists()):
        # The folder was bare when it was looked at; another greenbench has run in it since.
        journal.close()
        raise UsageError(f"{folder.path} was taken by another greenbench meanwhile; give another --out")
    return journal


@contextmanager
def guarded(folder: RunFolder, command: str, crew: Killable, listener: Ending, conclude: Callable[[], object]) -> Iterator[None]:
    """Measure inside: whatever ends it, no process is left, what was measured has its rows, and a run that never began no folder.

    Raises InterruptedRunError on Ctrl-C; `conclude` derives the rows.
    """
    try:
        yield
    except KeyboardInterrupt:
        crew.kill()
        if not folder.meta_path.is_file():
            discard(folder)
            raise InterruptedRunError("interrupted before anything was measured") from None
        conclude()
        raise InterruptedRunError(
            f"interrupted; everything measured is in {folder.path}; continue with greenbench {command} --resume {folder.path}"
        ) from None
    except GreenbenchError:
        if not folder.meta_path.is_file():
            discard(folder)
        raise
    finally:
        crew.kill()
        drop_empty_log(folder)
        listener.finished()


@contextmanager
def keeping(folder: RunFolder, conclude: Callable[[], object]) -> Iterator[None]:
    """Give what was measured its rows, if they can be written, where the device is lost or the disk is full."""
    try:
        yield
    except GreenbenchError as error:
        with suppress(GreenbenchError):
            conclude()
        if str(folder.path) in str(error):
            raise
        raise type(error)(f"{error}; what was measured is in {folder.path}") from error


def discard(folder: RunFolder) -> None:
    """Remove a folder whose run never began, and with it the journal's bare head; a log with words in it stays."""
    drop_empty_log(folder)
    if begun_nothing(folder.journal_path):
        with suppress(OSError):
            folder.journal_path.unlink()
    folder.remove_if_empty()


def drop_empty_log(folder: RunFolder) -> None:
    """Remove a log in which no process wrote anything."""
    log = folder.path / LOG
    with suppress(OSError):
        if log.is_file() and log.stat().st_size == 0:
            log.unlink()


def environment() -> dict[str, str]:
    """Return the variables that bear on a measurement, and what Python and system it ran on."""
    found = {name: value for name, value in os.environ.items() if name in RECORDED or name.startswith(RECORDED_PREFIXES)}
    return found | {"python": platform.python_version(), "platform": platform.platform()}


def under_nsys() -> bool:
    """Return whether Nsight Systems records this process: such times are never a baseline."""
    return bool(os.environ.get("NSYS_PROFILING_SESSION_ID"))


__all__ = ["LOG", "RUNS", "discard", "drop_empty_log", "environment", "guarded", "keeping", "locked", "under_nsys"]
