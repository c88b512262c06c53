"""One recording: run nsys around a command, and accept as its report only what this very run wrote."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenbench.errors import (
    ExitCode,
    GreenbenchError,
    IncompleteError,
    InterruptedRunError,
    MachineError,
    OutputError,
    UsageError,
)
from greenbench.nsight.line import Part
from greenbench.nsight.running import Ended, run
from greenbench.nsight.tool import Nsys
from greenbench.storage import put_in_place
from greenbench.timeline.export import export
from greenbench.worker.process import python_path

REPORT, DATABASE = ".nsys-rep", ".sqlite"
_BEFORE = ".before"


@dataclass(frozen=True, slots=True)
class Recording:
    """What was written, and the exit status of the command that was recorded (nsys hands it on)."""

    report: Path
    database: Path
    code: int


def beside(name: Path, suffix: str) -> Path:
    """Return NAME with a suffix behind it, whatever dots it has."""
    return name.with_name(name.name + suffix)


def record(nsys: Nsys, line: Sequence[str], name: Path, part: Part, timeout_s: float) -> Recording:
    """Run the line, which writes NAME.nsys-rep, and export that to NAME.sqlite; earlier files of these names give way.

    Raises IncompleteError where nsys hangs, dies or leaves no report, and what the command itself ended with otherwise.
    """
    report, database = beside(name, REPORT), beside(name, DATABASE)
    _make_folder(name)
    with _aside(report), _aside(database):
        ended = run(line, environment={"PYTHONPATH": python_path()}, timeout_s=timeout_s)
        _refuse(nsys, ended, report, part, timeout_s)
        export(nsys.path, report, database)
    return Recording(report, database, ended.code)


def _make_folder(name: Path) -> None:
    try:
        name.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(name.parent, error) from error


def _holds_something(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}; give another --output")


@contextmanager
def _aside(path: Path) -> Iterator[None]:
    """Keep an earlier file out of the way, so that it is never taken for a new one; where no new one comes, it returns."""
    kept = beside(path, _BEFORE)
    try:
        if path.exists() or path.is_symlink():
            path.replace(kept)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield
    finally:
        if kept.exists() or kept.is_symlink():
            if _holds_something(path) and kept.is_symlink():
                # A link stays one: what is new goes to the file behind it.
                put_in_place(path, kept)
                kept.replace(path)
            elif _holds_something(path):
                kept.unlink()
            else:
                kept.replace(path)


def _refuse(nsys: Nsys, ended: Ended, report: Path, part: Part, timeout_s: float) -> None:
    """Raise what stands in the way of using the report."""
    said = f": {ended.words}" if ended.words else ", and said nothing"
    if ended.timed_out:
        raise IncompleteError(
            f"{nsys.title} did not end within {timeout_s:g} s and was ended with all that it had started; "
            "record less (fewer points), or raise --timeout"
        )
    if ended.code < 0:
        raise IncompleteError(f"{nsys.title} died of {signal.Signals(-ended.code).name}{said}; try once more, or another nsys")
    if _holds_something(report):
        return
    if ended.code:
        raise _kind(ended.code)(
            f"the command under {nsys.title} ended with {ended.code}, and there is no report{said}; "
            "try the command by itself first"
        )
    way_out = "try --capture all, which waits for no range" if part is Part.MEASURING else "try another nsys"
    raise IncompleteError(f"{nsys.title} ended as if all were well, but wrote no {report}{said}; {way_out}")


def _kind(code: int) -> type[GreenbenchError]:
    """Return the error whose exit code the command under nsys ended with; anything foreign is 5."""
    kinds = {ExitCode.USAGE: UsageError, ExitCode.MACHINE: MachineError, ExitCode.INTERRUPTED: InterruptedRunError}
    return next((kind for known, kind in kinds.items() if known == code), IncompleteError)
