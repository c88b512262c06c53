"""Finds Nsight Compute, writes its command line, runs it, and says in one sentence what went wrong."""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from greenbench.errors import IncompleteError, MachineError, MissingPackageError
from greenbench.nsight.guardian import MARK, end_all, guarded, tied_to_parent

VARIABLE = "GREENBENCH_NCU"
SECTIONS = ("LaunchStats", "SpeedOfLight", "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "Occupancy")
# Where installers put it, below the folder of a toolkit or beside it; the newest name wins.
FOLDERS = ("/opt/nvidia/nsight-compute/*", "/usr/local/NVIDIA-Nsight-Compute*", "/usr/local/cuda*/nsight-compute*")
TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
PERMISSION = "ERR_NVGPUCTRPERM"
VERSION_S, IMPORT_S, GRACE_S = 60.0, 300.0, 10.0
MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class Tool:
    """An ncu that starts."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended; `told` are ncu's own lines, which begin with ==, and `lines` all others of its stdout."""

    code: int
    told: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def errors(self) -> list[str]:
        """Return what ncu calls an error, without its mark."""
        return [line.removeprefix("==ERROR==").strip() for line in self.told if line.startswith("==ERROR==")]


def find_ncu(named: str = "", environment: Mapping[str, str] = os.environ, folders: Sequence[str] = FOLDERS) -> Tool:
    """Return ncu: the one that is `named`, else GREENBENCH_NCU, PATH, the CUDA toolkit, and the folders of Nsight Compute.

    Raises MissingPackageError where there is none, or where it does not start.
    """
    named = named or environment.get(VARIABLE, "")
    if named:
        found = shutil.which(named, path=environment.get("PATH"))
        if found is None:
            raise MissingPackageError(f"{named} is no program; give --ncu (or {VARIABLE}) the path of Nsight Compute's ncu")
        # Without a slash in it a program would be looked for on PATH again.
        path = Path(found).absolute()
        return Tool(path, _version(path))
    for path in _places(environment, folders):
        return Tool(path, _version(path))
    raise MissingPackageError(
        "there is no ncu on PATH, in the CUDA toolkit or in a folder of Nsight Compute; install Nsight Compute "
        "(package nsight-compute of NVIDIA's CUDA repository, or conda's nvidia::nsight-compute), or give --ncu PATH"
    )


def _places(environment: Mapping[str, str], folders: Sequence[str]) -> Iterator[Path]:
    on_path = shutil.which("ncu", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path).absolute()
    for root in filter(None, (environment.get(name) for name in TOOLKITS)):
        yield from filter(_is_program, (Path(root) / "bin" / "ncu", *_newest(Path(root), "nsight-compute*")))
    for pattern in folders:
        parent = Path(pattern).anchor or "."
        yield from filter(_is_program, _newest(Path(parent), str(Path(pattern).relative_to(parent))))


def _newest(root: Path, pattern: str) -> list[Path]:
    """Return the programs of the folders that fit, 2025.10 before 2025.3 before 2024.1."""
    return [folder / "ncu" for folder in sorted(root.glob(pattern), key=_numbers, reverse=True)]


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version(path: Path) -> str:
    try:
        done = subprocess.run(
            [str(path), "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=VERSION_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"does not answer within {VERSION_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else _reason(error)
        raise MissingPackageError(f"{path} {why}; give --ncu PATH of another one") from error
    found = re.search(r"Version (\d[\d.]*)", done.stdout)
    if done.returncode or found is None:
        said = last_words(done.stdout + done.stderr)
        raise MissingPackageError(f"{path} --version ended with {done.returncode} and said {said!r}: is it Nsight Compute?")
    return found[1]


def _reason(error: Exception) -> str:
    return f"does not start ({(getattr(error, 'strerror', None) or str(error)).lower()})"


def command(tool: Tool, report: Path, options: Sequence[str], program: Sequence[str]) -> list[str]:
    """Return the whole line: no locking of clocks, only what lies between cuProfilerStart and Stop, in every child.

    `options` are the user's and come last, so that they win.
    """
    sections = [word for name in SECTIONS for word in ("--section", name)]
    fixed = ["--target-processes", "all", "--profile-from-start", "off", "--clock-control", "none", "--force-overwrite"]
    return [str(tool.path), *fixed, "--export", str(report), *sections, *options, *program]


def raw_page(tool: Tool, report: Path) -> str:
    """Return a report's raw page as CSV in base units (ns, bytes); raises IncompleteError where ncu does not read it."""
    line = [str(tool.path), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    done = run(line, IMPORT_S)
    text = "\n".join(done.lines)
    if done.code or done.errors:
        said = done.errors[0] if done.errors else last_words(text)
        raise IncompleteError(f"{tool.path} did not read its own report {report}: {said}")
    return text


def run(
    line: Sequence[str],
    timeout_s: float,
    heard: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a program in a process group of its own and leave nothing behind.

    `heard` is told ncu's own lines and everything on stderr as they come. Raises MissingPackageError where the program does not
    start, IncompleteError where it does not end.
    """
    told: list[str] = []
    lines: list[str] = []
    token = secrets.token_hex(16)
    with guarded(token) as guardian:
        try:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=tied_to_parent,  # noqa: PLW1509
                env={**(os.environ if environment is None else environment), MARK: token},
            )
        except OSError as error:
            raise MissingPackageError(f"{line[0]} {_reason(error)}") from error
        guardian.watch(process.pid)
        late = threading.Event()

        def stop() -> None:
            late.set()
            _interrupt(process, token)

        timer = threading.Timer(timeout_s, stop)
        timer.daemon = True
        # Versions of ncu differ in which stream their errors go to.
        errors = threading.Thread(target=_listen, args=(process.stderr, told, heard, heard), daemon=True)
        try:
            timer.start()
            errors.start()
            _listen(process.stdout, told, heard, lines.append)
            process.wait()
            errors.join(GRACE_S)
        except BaseException:
            _interrupt(process, token)
            raise
        finally:
            timer.cancel()
            end_all(token, process.pid)
            process.wait()
    if late.is_set():
        raise IncompleteError(f"{line[0]} did not end within {timeout_s:g} s and was ended; ask for fewer launches or sections")
    return Ran(process.returncode, tuple(told), tuple(lines))


def _listen(stream: IO[str] | None, told: list[str], heard: Callable[[str], None], other: Callable[[str], None]) -> None:
    """Read a stream to its end: ncu's own lines are kept and handed on, `other` takes the rest."""
    with stream or io.StringIO() as opened:
        for text in opened:
            words = text.rstrip("\n")
            if words.startswith("=="):
                told.append(words)
                heard(words)
            else:
                other(words)


def _interrupt(process: subprocess.Popen[str], token: str) -> None:
    """End all of it: first as Ctrl-C would, so that rows are written."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    end_all(token, process.pid)


def refused(ran: Ran) -> MachineError | None:
    """Return the sentence for counters that this user may not read."""
    if not any(PERMISSION in line for line in ran.told):
        return None
    return MachineError(
        f"ncu may not read the GPU's counters here ({PERMISSION}): run as root, or let the administrator load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0; a container needs --cap-add=SYS_ADMIN as well"
    )


def last_words(text: str) -> str:
    """Return the last line that is not empty, cut to what fits into a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:MOST_WORDS] if lines else "nothing"
