"""`greenbench nsys`: a sweep, colocate or switch under Nsight Systems, and what its timeline says."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.choices import parse_seconds
from greenbench.cli.nsys_options import TIMEOUT_S, UnderTool, nsys_options, refuse_modelled, split_words
from greenbench.cli.signals import ending_like_ctrl_c
from greenbench.cli.targets import refuse_same
from greenbench.cli.terminal import emit
from greenbench.errors import (
    ExitCode,
    IncompleteError,
    InterruptedRunError,
    MissingPackageError,
    OutputError,
    UsageError,
)

if TYPE_CHECKING:
    from greenbench.nsight.line import Part
    from greenbench.nsight.proof import Proof
    from greenbench.nsight.recording import Recording
    from greenbench.nsight.tool import Nsys
    from greenbench.timeline.analysis import Analysis

# nsys is made for minutes, and times under it count for nothing: one round shows all that a timeline can.
ROUNDS = ("--rounds", "1")
# The name of a report that was given none, in the folder of its run, where `greenbench timeline RUN` looks.
IN_RUN = "nsys"
# Stands for nsys in the line of a dry run where there is none.
PLACEHOLDER = "nsys"
SECRETS = "hold the environment, host, user and command lines of this machine"

EPILOG = f"""\b
Examples:
  greenbench nsys -- sweep --sms 8,16,24,32
  greenbench nsys -o report -- sweep --kernels triad,gemm_bf16 --sms 16
  greenbench nsys --scrub shown.sqlite -- colocate --mechanisms green --sms 32 --steps 100
  greenbench nsys --gpuctxsw=true -- switch --mechanisms timeslice    (any option of nsys profile)

\b
Exit codes:
  0    done, and the report holds what it should
  2    an option is wrong, of this command or of the one under nsys
  4    no nsys, or one that cannot see the ranges; what the command under nsys ends with on such a machine
  5    nsys hung, died or wrote no report; the report lacks ranges or kernels; points failed
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP)

Without --timeout nsys is given {TIMEOUT_S} s."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The command under nsys: its words as they are run, its name, and the folder in which its run will be."""

    words: tuple[str, ...]
    command: str
    folder: Path
    processes: int
    notes: tuple[str, ...]


@click.command("nsys", cls=UnderTool, epilog=EPILOG)
@nsys_options
@click.pass_context
def nsys_command(context: click.Context, /, **given: Any) -> int:
    """Run a greenbench command under Nsight Systems with the right flags, and say what its timeline shows.

    Options before -- that are not greenbench's go to `nsys profile`; behind -- stands sweep, colocate or switch.
    """
    with ending_like_ctrl_c():
        return _nsys(context, given)


def _nsys(context: click.Context, given: dict[str, Any]) -> int:
    from greenbench.nsight.line import Part, command_line, flags
    from greenbench.nsight.recording import record

    own, words = split_words(context)
    wrapped = _wrapped(context, words)
    name = _name(given["output"], wrapped)
    timeout_s = parse_seconds(given["timeout"], "--timeout")
    _check_targets(given, name, wrapped)
    nsys, doubt = _tool(given["nsys"] or "", dry_run=given["dry_run"])
    part = Part(given["capture"]) if given["capture"] else _part(wrapped)
    line = command_line(nsys.path, part, own, name, wrapped.words)
    for note in (*wrapped.notes, doubt):
        if note:
            emit(f"note: {note}", err=True)
    if given["dry_run"]:
        emit(shlex.join(line))
        for flag in flags(part, own):
            emit(f"  {flag.text}: {flag.why}", err=True)
        return ExitCode.DONE
    emit(f"{nsys.title}: {shlex.join(line)}", err=True)
    try:
        made = record(nsys, line, name, part, timeout_s)
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted; nsys and all that it had started is ended, and nothing was recorded") from None
    return _present(_settled(made, wrapped) if given["output"] is None else made, nsys, wrapped, given)


def _tool(named: str, *, dry_run: bool) -> tuple[Nsys, str]:
    """Return nsys and what is doubtful about it; a dry run, which starts nothing, does with a placeholder where it is missing."""
    from greenbench.nsight.tool import Nsys, find, nvtx_version, refuse_blind

    try:
        nsys = find(named)
        return nsys, refuse_blind(nsys, nvtx_version())
    except MissingPackageError as error:
        if not dry_run:
            raise
        return Nsys(Path(PLACEHOLDER), ()), f"{error}; {PLACEHOLDER} stands for it in the line"


def _wrapped(context: click.Context, words: list[str]) -> Wrapped:
    """Read the command under nsys as greenbench will, so that what is wrong with it is said before nsys starts."""
    group = context.parent.command if context.parent is not None else None
    command = group.get_command(context, words[0]) if isinstance(group, click.Group) else None
    if command is None:
        raise UsageError(f"{words[0]!r} is no command of greenbench")
    inner = command.make_context(words[0], list(words[1:]), parent=context.parent)
    params = inner.params
    if params.get("dry_run"):
        raise UsageError("--dry-run behind -- measures nothing that nsys could record; put it before -- to see the line")
    if params.get("trace"):
        raise UsageError("--trace cannot be recorded by nsys: CUPTI serves one client; leave out one of them")
    if params.get("resume"):
        raise UsageError(f"--resume {params['resume']} cannot go on under nsys, whose times do not count; begin a new run")
    refuse_modelled(params.get("device", ""), "nsys")
    more: list[str] = []
    notes: list[str] = []
    if words[0] == "sweep" and all(params.get(key) is None for key in ("rounds", "max_rounds", "profile")):
        more += ROUNDS
        notes.append("one round: times under nsys are no timings, and it is made for runs of minutes (--rounds N changes it)")
    folder = params.get("out")
    if folder is None:
        folder = _fresh(words[0])
        more += ["--out", str(folder)]
    return Wrapped(
        words=(words[0], *more, *words[1:]),
        command=words[0],
        folder=Path(folder),
        processes=_processes(words[0], params),
        notes=tuple(notes),
    )


def _fresh(command: str) -> Path:
    from greenbench.experiments.frame import RUNS

    return RUNS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{command}-{secrets.token_hex(2)}"


def _processes(command: str, params: dict[str, Any]) -> int:
    """Return 1 where one process does all the measuring, else 2: every number of connections is a process of its own."""
    return 1 if command == "sweep" and "," not in str(params.get("connections") or "") else 2


def _part(wrapped: Wrapped) -> Part:
    from greenbench.nsight.line import Part

    return Part.MEASURING if wrapped.processes == 1 else Part.ALL


def _name(output: Path | None, wrapped: Wrapped) -> Path:
    """Return the report's path without suffix; nsys fills in a percent sign, and takes a folder for none."""
    name = wrapped.folder if output is None else output
    if name.name.endswith((".nsys-rep", ".sqlite")):
        name = name.with_suffix("")
    if "%" in str(name):
        raise UsageError(f"--output {name}: nsys replaces what follows a percent sign; give a name without")
    if not name.name or (output is not None and name.is_dir()):
        raise UsageError(f"--output {name} is a folder; give the name of a report in it")
    return name.absolute()


def _check_targets(given: dict[str, Any], name: Path, wrapped: Wrapped) -> None:
    """Refuse, before minutes are spent, a copy that would replace the report, and reports that are no files."""
    from greenbench.nsight.recording import DATABASE, REPORT, beside
    from greenbench.storage import why_no_file

    made = name if given["output"] is not None else wrapped.folder / IN_RUN
    reports = [beside(made, suffix) for suffix in (REPORT, DATABASE)]
    for path in reports:
        if problem := why_no_file(path):
            raise UsageError(f"--output {name}: {path} {problem}; give another name for the report")
    named = [("--scrub", given["scrub"])] if given["scrub"] is not None else []
    refuse_same(zip(("the report", "the report's export"), reports, strict=True), named)


def _settled(made: Recording, wrapped: Wrapped) -> Recording:
    """Put a report that was given no name into the folder of its run."""
    if not wrapped.folder.is_dir():
        return made
    home = wrapped.folder.absolute()
    report, database = home / f"{IN_RUN}{made.report.suffix}", home / f"{IN_RUN}{made.database.suffix}"
    try:
        made.report.replace(report)
        made.database.replace(database)
    except OSError as error:
        raise OutputError(f"{made.report} cannot be moved to {home}: {(error.strerror or str(error)).lower()}") from error
    return replace(made, report=report, database=database)


def _present(made: Recording, nsys: Nsys, wrapped: Wrapped, given: dict[str, Any]) -> int:
    """Say what the report shows, print the paths, and end as the command under nsys did, or with what is missing."""
    from greenbench.nsight.proof import prove
    from greenbench.timeline.analysis import analyse
    from greenbench.timeline.reading import read_capture

    try:
        analysis = analyse(read_capture(made.database))
    except IncompleteError:
        emit(made.report, err=given["json"])
        if made.code in (ExitCode.USAGE, ExitCode.MACHINE, ExitCode.INTERRUPTED):
            emit(f"the {wrapped.command} under {nsys.title} ended with {made.code} before it launched a kernel", err=True)
            return made.code
        raise
    proof = prove(analysis, wrapped.command, wrapped.folder)
    paths = [path for path in (wrapped.folder.absolute(), made.report, made.database) if path.exists()]
    if given["scrub"] is not None:
        from greenbench.nsight.scrub import scrub

        scrub(made.database, given["scrub"])
        paths.append(given["scrub"])
    _show(analysis, proof, paths, as_json=given["json"])
    way_out = (
        "" if given["scrub"] else f"; 'greenbench timeline {made.database} --scrub COPY.sqlite' writes one that can be shown"
    )
    emit(f"{made.report.name} and {made.database.name} {SECRETS}{way_out}", err=True)
    if proof.problem:
        raise IncompleteError(proof.problem)
    if made.code:
        emit(f"the {wrapped.command} under {nsys.title} ended with {made.code}", err=True)
    return made.code if made.code in list(ExitCode) else ExitCode.INCOMPLETE


def _show(analysis: Analysis, proof: Proof, paths: list[Path], *, as_json: bool) -> None:
    for note in analysis.notes:
        emit(f"note: {note}", err=True)
    if as_json:
        from greenbench.timeline.report import as_json as figures

        found = {"problem": proof.problem, "proof": proof.sentence, "written": [str(path) for path in paths]}
        emit(dumps(figures(analysis) | found, indent=1))
        return
    from greenbench.cli.timeline_text import lines

    for line in lines(analysis):
        emit(line)
    for path in paths:
        emit(path)
    if proof.sentence:
        emit(proof.sentence, err=True)
