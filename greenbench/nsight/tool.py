"""Nsight Systems itself: where it is, which version it is, and whether it can see what greenbench wants to show it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from greenbench.errors import IncompleteError, MachineError, MissingPackageError
from greenbench.timeline.database import clean
from greenbench.timeline.export import VARIABLE, find_nsys

ANSWER_S = 60
# The first whose exports tell green contexts.
OLDEST = (2023, 4, 1)
# nvtx asks the tool since this version whether it knows extensible domains, and records nothing where it does not.
ASKING_NVTX = (0, 2, 12)
# The last nsys that is known to decline, and the first that is known to accept; between them nobody has looked.
DECLINES, ACCEPTS = (2024, 2, 3), (2025, 3)
_VERSION = re.compile(r"\b(20[0-9]{2})\.([0-9]+)(?:\.([0-9]+))?")
_LIBRARY = re.compile(r"loading shared libraries: ([^\s:]+)")
# Of Debian and its kin; nsys inside Nsight Compute comes without them.
_PACKAGES = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}
HOW_TO_GET = (
    "install Nsight Systems (package nsight-systems of NVIDIA's CUDA repository, or of conda's channel nvidia; Nsight Compute "
    f"brings a copy as host/target-linux-x64/nsys) and name it by --nsys or {VARIABLE} where it is not on PATH"
)

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nsys:
    """A program that answered; `version` is empty where its answer holds none."""

    path: Path
    version: Version

    @property
    def title(self) -> str:
        """Name and version."""
        return f"nsys {shown(self.version)}" if self.version else "nsys of unknown version"


def shown(parts: Version) -> str:
    """Write a version with dots."""
    return ".".join(map(str, parts))


def find(named: str) -> Nsys:
    """Return the nsys of that name, else the one that is found by itself, with its version.

    Raises MissingPackageError where there is none or it does not start, IncompleteError where it does not answer.
    """
    try:
        path = find_nsys(named, "--nsys")
    except MissingPackageError as error:
        where = str(error).split(", and ", 1)[-1].split(";", 1)[0]
        raise MissingPackageError(f"greenbench nsys needs nsys, and {where}; {HOW_TO_GET}") from error
    return Nsys(path, parse_version(_answer(path)))


def _answer(path: Path) -> str:
    command = [str(path), "--version"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False)
    except OSError as error:
        raise MissingPackageError(f"{path} does not start: {(error.strerror or str(error)).lower()}; {HOW_TO_GET}") from error
    except subprocess.TimeoutExpired as error:
        raise IncompleteError(f"{path} --version gave no answer in {ANSWER_S} s; name another nsys by --nsys") from error
    told = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode:
        raise MissingPackageError(f"{path} does not start (exit {done.returncode}): {_why(told)}")
    return told


def _why(told: str) -> str:
    missing = _LIBRARY.search(told)
    if missing:
        package = _PACKAGES.get(missing[1], "")
        way_out = f"install {package}, or put it on LD_LIBRARY_PATH" if package else "put it on LD_LIBRARY_PATH"
        return f"it lacks {clean(missing[1])}: {way_out}"
    lines = [line for line in told.splitlines() if line.strip()]
    return f"{clean(lines[-1]) if lines else 'it said nothing'}; name another nsys by --nsys"


def parse_version(told: str) -> Version:
    """Return the first version in what `nsys --version` says, (2025, 3, 2); empty where there is none."""
    match = _VERSION.search(told)
    return tuple(int(part) for part in match.groups(default="0")) if match else ()


def nvtx_version() -> Version:
    """Return the version of the Python package nvtx; empty where it is not installed."""
    try:
        parts = re.findall(r"[0-9]+", version("nvtx"))
    except PackageNotFoundError:
        return ()
    return tuple(int(part) for part in parts[:3])


def refuse_blind(nsys: Nsys, nvtx: Version) -> str:
    """Raise MachineError where this nsys cannot record what is asked of it; return a doubt, or an empty string."""
    if not nvtx:
        raise MissingPackageError("greenbench nsys needs the Python package nvtx for its ranges: pip install nvtx")
    if not nsys.version:
        return f"{nsys.path} says no version; whether it can see greenbench's ranges is seen afterwards"
    if nsys.version < OLDEST:
        raise MachineError(
            f"{nsys.title} ({nsys.path}) cannot tell green contexts; use {shown(OLDEST[:2])} or newer, "
            f"named by --nsys or {VARIABLE}"
        )
    if nvtx >= ASKING_NVTX and nsys.version <= DECLINES:
        raise MachineError(
            f"{nsys.title} ({nsys.path}) records no ranges of nvtx {shown(nvtx)}: nvtx >= {shown(ASKING_NVTX)} needs nsys >= "
            f"{shown(ACCEPTS)}; use that, named by --nsys or {VARIABLE}, or nvtx 0.2.11"
        )
    if nvtx >= ASKING_NVTX and nsys.version < ACCEPTS:
        return f"whether {nsys.title} sees the ranges of nvtx {shown(nvtx)} is not known; {shown(ACCEPTS)} and newer do"
    return ""
