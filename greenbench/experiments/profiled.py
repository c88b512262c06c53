"""One point under Nsight Compute: measured as ever, then run by ncu in a process of its own, and its report read back."""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from os import environ
from pathlib import Path

from greenbench.errors import ExitCode, GreenbenchError, IncompleteError, MachineError, OutputError, UsageError
from greenbench.experiments.frame import RUNS
from greenbench.ncu.figures import LEAKED, Measured, NcuRow, Where, doubts, ncu_row
from greenbench.ncu.page import Launch, read_page
from greenbench.ncu.record import REPORT, TABLE, as_measured, measured_in, write_ncu
from greenbench.ncu.tool import Ran, Tool, command, find_ncu, last_words, raw_page, refused, run
from greenbench.runfiles import read_meta, read_rows
from greenbench.schema import Row, SmsMode, Status
from greenbench.timeline.finding import counted
from greenbench.worker.process import python_path

PLAN_S, SWEEP_S, NCU_S = 300.0, 1_800.0, 3_600.0
# ncu replays every launch once for each set of counters and saves its memory in between.
BLOCK_S = "600"
_KINDS: dict[int, type[GreenbenchError]] = {ExitCode.USAGE: UsageError, ExitCode.MACHINE: MachineError}


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuRequest:
    """What the command line decides; `sweep` are the words of the sweep, from its name on, and `options` are ncu's own."""

    kernel: str
    sms: str
    sweep: tuple[str, ...]
    options: tuple[str, ...] = ()
    launches: int = 3
    ncu: str = ""
    against: Path | None = None
    compare: bool = True
    out: Path | None = None
    timeout_given: bool = False


@dataclass(frozen=True, slots=True)
class NcuOutcome:
    """What was left: the run folder with ncu.csv in it, one row for each launch, and what must be known of them."""

    folder: Path
    paths: tuple[Path, ...]
    tool: Tool
    device: str
    rows: tuple[NcuRow, ...]
    notes: tuple[str, ...]
    exit_code: ExitCode


@dataclass(frozen=True, slots=True)
class _Planned:
    """The one point that the sweep comes to."""

    label: str
    device_sms: int


def run_ncu(request: NcuRequest, say: Callable[[str], None]) -> NcuOutcome:
    """Profile the point; `say` is told the line of ncu before it runs, and ncu's own words as they come.

    Raises MachineError's kin without ncu or without its permission, IncompleteError where nothing was captured, UsageError
    where the sweep comes to another number of points than one.
    """
    tool = find_ncu(request.ncu)
    out = _new_folder(request.out)
    planned = _planned(request)
    paths: list[Path] = []
    measured = _measured(request, planned, out, paths, say)
    report = out.with_name(f"{out.name}.ncu-rep")
    words = [
        *_sweep(request, out),
        "--profile",
        str(request.launches),
        *([] if request.timeout_given else ["--timeout", BLOCK_S]),
    ]
    line = command(tool, report, request.options, words)
    say(shlex.join(line))
    try:
        launches = _captured(tool, run(line, NCU_S, say, _environment()), report)
        row = _row(out)
        where = Where(row.label, row.sms_granted or 0, planned.device_sms, row.sms_requested != SmsMode.PRIMARY)
        rows = tuple(ncu_row(launch, where, measured) for launch in launches)
        write_ncu(out / TABLE, rows)
        report = _moved(report, out / REPORT)
    except GreenbenchError:
        # Beside a folder that nothing else names, half a report would be found by nobody.
        with suppress(OSError):
            report.unlink()
        raise
    notes = [*_counted(rows, request.launches), *doubts(rows)]
    leaked = any(each.placement == LEAKED for each in rows)
    name = read_meta(out / "run.json").device.name
    code = ExitCode.INCOMPLETE if leaked else ExitCode.DONE
    return NcuOutcome(out, (out, out / "rows.csv", out / TABLE, report, *paths), tool, name, rows, tuple(notes), code)


def _new_folder(given: Path | None) -> Path:
    out = given or RUNS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-ncu-{secrets.token_hex(2)}"
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"--out {out} exists and is not empty; give another name")
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{out.parent} cannot be written: {(error.strerror or str(error)).lower()}; give another --out"
        ) from error
    return out.absolute()


def _sweep(request: NcuRequest, out: Path) -> list[str]:
    """Return the sweep of this point alone; of options that come twice the last one counts."""
    point = ["--kernels", request.kernel, "--sms", request.sms, "--no-yardsticks"]
    return [sys.executable, "-P", "-m", "greenbench", *request.sweep, *point, "--no-plots", "--quiet", "--out", str(out)]


def _planned(request: NcuRequest) -> _Planned:
    """Ask the sweep what it would run, which opens the device and measures nothing."""
    line = [*_sweep(request, Path("none")), "--dry-run", "--json"]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PLAN_S, env=_environment()
        )
    except subprocess.TimeoutExpired as error:
        raise IncompleteError(f"the sweep did not say within {PLAN_S:g} s what it would run") from error
    if done.returncode:
        said = last_words(done.stderr).removeprefix("greenbench: ").removeprefix("error: ")
        raise _KINDS.get(done.returncode, IncompleteError)(said)
    seen = json.loads(done.stdout)
    labels = list(seen["points"])
    if len(labels) != 1:
        told = ", ".join(labels[:4]) + (", …" if len(labels) > 4 else "")
        raise UsageError(
            f"--point {request.kernel}@{request.sms} comes to {len(labels)} points with this sweep ({told}); "
            "give one value each to its --set, --workqueue, --connections and --timing"
        )
    if seen["obstacles"][0]:
        raise MachineError(f"{labels[0]} is {seen['obstacles'][0]}")
    return _Planned(labels[0], int(seen["device"]["sm_count"]))


def _environment() -> dict[str, str]:
    return {**environ, "PYTHONPATH": python_path()}


def _measured(
    request: NcuRequest, planned: _Planned, out: Path, paths: list[Path], say: Callable[[str], None]
) -> Measured | None:
    """Return the point's time without a profiler: from a run that was named, else measured now, else None."""
    if request.against is not None:
        return measured_in(request.against, planned.label)
    if not request.compare:
        return None
    folder = out.with_name(f"{out.name}-measured")
    done = run(_sweep(request, folder), SWEEP_S, say, _environment())
    if done.code:
        raise _KINDS.get(done.code, IncompleteError)(
            f"the sweep with which ncu is to be compared ended with {done.code}, in the words above; --no-compare does without it"
        )
    paths.append(folder)
    return as_measured(_row(folder))


def _row(folder: Path) -> Row:
    """Return the one row of a run, which must be ok."""
    row = read_rows(folder / "rows.csv")[0]
    if row.status != Status.OK:
        raise IncompleteError(f"{row.label} is {row.status}: {row.reason}")
    return row


def _captured(tool: Tool, ran: Ran, report: Path) -> list[Launch]:
    """Return the launches in the report; says why where there is none."""
    denied = refused(ran)
    if denied is not None:
        raise denied
    why = (ran.errors or [line for line in ran.told if line.startswith("==WARNING==")] or [f"the sweep ended with {ran.code}"])[0]
    if not report.is_file():
        raise IncompleteError(f"ncu captured nothing: {why}; see the line above, and whether the sweep runs without ncu")
    launches = read_page(raw_page(tool, report))
    if not launches:
        raise IncompleteError(f"ncu captured no launch of the point: {why}")
    return launches


def _moved(report: Path, target: Path) -> Path:
    try:
        return report.replace(target)
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {(error.strerror or str(error)).lower()}; the report is {report}"
        ) from error


def _counted(rows: Sequence[NcuRow], wanted: int) -> list[str]:
    if len(rows) == wanted:
        return []
    return [f"ncu captured {counted(len(rows), 'launch', 'launches')} where the point was launched {wanted} times"]
