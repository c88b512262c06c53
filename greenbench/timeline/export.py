"""From a raw report (.nsys-rep) to SQLite by `nsys export`, in a folder that goes away again; the report stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenbench.errors import IncompleteError, MissingPackageError, ResultFileError
from greenbench.timeline.database import clean

SUFFIXES = (".nsys-rep", ".qdrep")
VARIABLE = "GREENBENCH_NSYS"
EXPORT_S = 1_800


def find_nsys() -> Path:
    """Return nsys: what the variable GREENBENCH_NSYS names, else the one on PATH; none raises MissingPackageError."""
    named = os.environ.get(VARIABLE, "")
    found = shutil.which(named or "nsys")
    if found is None:
        where = f"{VARIABLE} names {named!r}, which is no program" if named else "there is no nsys on PATH"
        raise MissingPackageError(
            f"a raw report needs nsys to be read, and {where}; install Nsight Systems (package nsight-systems), or run "
            "'nsys export -t sqlite' where it is and give the .sqlite file, which needs no nsys"
        )
    return Path(found)


@contextmanager
def as_sqlite(path: Path) -> Iterator[Path]:
    """Yield the SQLite form of a report: the path itself, or for a raw report an export that is removed afterwards.

    No nsys raises MissingPackageError; a report that nsys refuses (a newer version wrote it) ResultFileError; an nsys that hangs
    or writes nothing IncompleteError.
    """
    if path.suffix not in SUFFIXES:
        yield path
        return
    if not path.is_file():
        raise ResultFileError(f"{path} is no file; give a report of Nsight Systems")
    nsys = find_nsys()
    with tempfile.TemporaryDirectory(prefix="greenbench-nsys-") as folder:
        target = Path(folder) / "report.sqlite"
        told, code = _export(nsys, path.absolute(), target)
        if code:
            way_out = "use the nsys that wrote it, or a newer one" if "newer" in told.lower() else "record it again"
            raise ResultFileError(f"{path} was refused by {nsys} (exit {code}): {_last_line(told)}; {way_out}")
        if not target.is_file():
            raise IncompleteError(f"{nsys} said that it exported {path}, but wrote nothing; try 'nsys export -t sqlite' by hand")
        yield target


def _export(nsys: Path, report: Path, target: Path) -> tuple[str, int]:
    """Run the export in a process group of its own, so that nothing of it is left when it hangs."""
    command = [str(nsys), "export", "-t", "sqlite", "-f", "true", "-o", str(target), str(report)]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        ) as process:
            try:
                output, _ = process.communicate(timeout=EXPORT_S)
            except BaseException as error:
                _end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise IncompleteError(f"{nsys} did not export {report} within {EXPORT_S} s and was ended") from error
                raise
            return output.decode("utf-8", "replace"), process.returncode
    except OSError as error:
        raise MissingPackageError(f"{nsys} does not start: {(error.strerror or str(error)).lower()}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return clean(lines[-1].strip())[:240] if lines else "it said nothing"
