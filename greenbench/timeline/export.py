"""From a raw report (.nsys-rep) to SQLite by `nsys export`, in a folder that goes away again; the report stays as it is."""

from __future__ import annotations

import os
import re
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
# Where installers put it: Nsight Systems by itself, and the copy that each Nsight Compute brings along.
PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "opt/nvidia/nsight-compute*/*/host/target-linux-*/nsys",
    "usr/local/cuda*/nsight-compute*/host/target-linux-*/nsys",
    "usr/lib/nsight-compute*/host/target-linux-*/nsys",
)


def find_nsys(named: str = "", variable: str = VARIABLE) -> Path:
    """Return nsys: `named`, else what GREENBENCH_NSYS names, the one on PATH, or the newest where installers put it.

    None, or a name that is no program, raises MissingPackageError; `variable` is what the sentence calls the name by.
    """
    if not named:
        named, variable = os.environ.get(VARIABLE, ""), VARIABLE
    found = shutil.which(named or "nsys") or (None if named else next(installed(), None))
    if found is None:
        where = f"{variable} names {named!r}, which is no program" if named else "there is no nsys on PATH"
        raise MissingPackageError(
            f"a raw report needs nsys to be read, and {where}; install Nsight Systems (package nsight-systems), or run "
            "'nsys export -t sqlite' where it is and give the .sqlite file, which needs no nsys"
        )
    # A path loses its `./`, and a program without a folder is looked for on PATH alone.
    return Path(found).absolute()


def installed(root: Path = Path("/")) -> Iterator[str]:
    """Yield every nsys where installers put it, and beside an ncu on PATH; of one place the newest first."""
    for pattern in PLACES:
        found = [path for path in root.glob(pattern) if shutil.which(path)]
        yield from (str(path) for path in sorted(found, key=_numbers, reverse=True))
    ncu = shutil.which("ncu")
    for folder in Path(ncu).resolve().parents if ncu and PLACES else ():
        yield from (str(path) for path in sorted(folder.glob("host/target-linux-*/nsys")) if shutil.which(path))


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", str(path))]


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
        export(nsys, path, target)
        yield target


def export(nsys: Path, report: Path, target: Path) -> None:
    """Export a raw report to an SQLite file; raises as `as_sqlite` does."""
    told, code = _export(nsys, report.absolute(), target)
    if code:
        way_out = "use the nsys that wrote it, or a newer one" if "newer" in told.lower() else "record it again"
        raise ResultFileError(f"{report} was refused by {nsys} (exit {code}): {_last_line(told)}; {way_out}")
    if not target.is_file():
        raise IncompleteError(f"{nsys} said that it exported {report}, but wrote nothing; try 'nsys export -t sqlite' by hand")


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
