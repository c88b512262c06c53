"""`greenbench colocate`: its options, the run, and what is shown and printed of it."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.cli.colocate_options import colocate_options
from greenbench.cli.delivery import corun_figures, print_paths
from greenbench.cli.options import PlannedCommand, complete_plan
from greenbench.cli.session import Session
from greenbench.cli.signals import ending_like_ctrl_c
from greenbench.cli.terminal import emit
from greenbench.errors import ExitCode, GreenbenchError, InterruptedRunError
from greenbench.schema import Status

if TYPE_CHECKING:
    from greenbench.colocation.plan import CoPoint
    from greenbench.experiments.colocate import CoOutcome, CoRequest

EXPORT_NAMES = {"json": "colocate.json", "sglang": "pdmux.yaml"}
EPILOG = """\b
Examples:
  greenbench colocate                                      the plan "colocate_llm": every mechanism, nine sizes
  greenbench colocate --sms 20,36 --mechanisms streams,priority,green
  greenbench colocate --steps 3000 --interference          p99, and what hurts the decode
  greenbench colocate --layers full --slo itl_p99=20ms,ttft_p99=500ms --rates auto --export sglang
  greenbench colocate --latency mine.toml --background hbm --mechanisms all
  greenbench colocate --device model:h200 --dry-run        no GPU needed, nothing runs

\b
Exit codes:
  0    done
  2    an option, plan, model or workload is wrong, or --export lacks what it takes
  4    this machine cannot, or every point is unsupported
  5    incomplete: points failed, --strict and points are unsupported, or no point is one to export
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP); --resume goes on"""


@click.command("colocate", cls=PlannedCommand, epilog=EPILOG)
@click.argument("plan", required=False, shell_complete=complete_plan)
@colocate_options
@click.pass_context
def colocate_command(context: click.Context, /, **given: Any) -> int:
    """Run a latency role (decode) beside a background (prefill), and show which mechanism protects it at what cost.

    PLAN is one of the plans below or a .toml file of your own; options override it.  [default: colocate_llm]
    """
    with ending_like_ctrl_c():
        return _colocate(context, given)


def _colocate(context: click.Context, given: dict[str, Any]) -> int:
    from greenbench.cli.corequest import colocate_request
    from greenbench.cli.progress import listener
    from greenbench.experiments.colocate import run_colocate

    session = context.ensure_object(Session)
    session.command = str(context.command.name)
    request = colocate_request(context, given, session.arguments)
    if given["dry_run"]:
        return _dry_run(request, as_json=given["json"])
    try:
        with listener(session, quiet=given["quiet"], ci=given["ci"]) as screen:
            outcome = run_colocate(request, screen)
    except InterruptedRunError:
        if session.folder is not None and not given["json"]:
            print_paths([session.folder, session.folder / "rows.csv"])
        raise
    session.folder, session.exit_code, session.finished = outcome.folder, outcome.exit_code, True
    return _present(outcome, request, given, session)


def _present(outcome: CoOutcome, request: CoRequest, given: dict[str, Any], session: Session) -> int:
    """Show the table, print the paths as soon as each is there, and close with the result in words."""
    if not given["quiet"]:
        _show_table(outcome, details=given["verbose"])
    if not given["json"]:
        print_paths([outcome.folder, outcome.folder / "rows.csv"])
    exported, refusal = _export(outcome, request.export, given["export_to"])
    # What the run itself ended with is the cause of much that cannot be exported.
    code = session.exit_code = outcome.exit_code or (refusal.exit_code if refusal else ExitCode.DONE)
    if not given["json"]:
        print_paths(exported)
    plots = [] if given["no_plots"] else corun_figures(outcome.rows, outcome.folder)
    if given["json"]:
        emit(_as_json(outcome, plots, exported, code))
    else:
        print_paths(plots)
    _close(outcome, quiet=given["quiet"])
    if refusal and not outcome.exit_code:
        raise refusal
    if refusal:
        emit(f"note: nothing was exported: {refusal}", err=True)
    return code


def _show_table(outcome: CoOutcome, *, details: bool) -> None:
    from greenbench.cli.codrawing import draw
    from greenbench.cli.coreport import lay_out
    from greenbench.cli.terminal import stderr_console

    draw(lay_out(outcome.rows, outcome.meta, details=details), stderr_console())


def _export(outcome: CoOutcome, kind: str, target: Path | None) -> tuple[list[Path], GreenbenchError | None]:
    """Write the outcome for a program, as --export asks; return what is there, or why it is not."""
    if not kind:
        return [], None
    from greenbench.colocation.export import export_json, export_sglang
    from greenbench.storage import replace_file

    path = target or outcome.folder / EXPORT_NAMES[kind]
    try:
        if kind == "json":
            text = export_json(outcome.rows, outcome.advice, outcome.meta)
        else:
            text = export_sglang(outcome.rows, outcome.advice, outcome.meta.device)
        replace_file(path, text.encode())
    except GreenbenchError as error:
        return [], error
    return [path], None


def _close(outcome: CoOutcome, *, quiet: bool) -> None:
    """Say in words how the run ended, who protects the latency role, and what holds the objectives."""
    from greenbench.cli.coreport import closing_lines

    for line in closing_lines(outcome.rows, outcome.meta, outcome.summary, outcome.sentences, brief=quiet):
        emit(line, err=True)


def _as_json(outcome: CoOutcome, plots: Sequence[Path], exported: Sequence[Path], code: ExitCode) -> str:
    from greenbench.records import to_json

    return dumps(
        {
            "run": str(outcome.folder),
            "rows_csv": str(outcome.folder / "rows.csv"),
            "exported": [str(path) for path in exported],
            "plots": [str(path) for path in plots],
            "backend": outcome.meta.device.backend.value,
            "exit_code": int(code),
            "summary": outcome.summary,
            "sentences": list(outcome.sentences),
            "rows": to_json(outcome.rows),
        },
        indent=1,
        ensure_ascii=False,
    )


def where(point: CoPoint) -> str:
    """Say which SMs the roles of a point get: `20 + 112 SMs`, `all + 112 SMs`, `all SMs`, `at most 20 + 112 SMs`."""
    from greenbench.queueing.model import Kind, Mechanism

    if point.sizes is None:
        return "all SMs"
    if point.mechanism is Mechanism.MPS_LIMITED:
        return f"at most {point.sizes[0]} + {point.sizes[1]} SMs"
    slots = [point.slot(kind) for kind in Kind if point.workload(kind) is not None]
    return f"{' + '.join('all' if slot is None else str(point.sizes[slot]) for slot in slots)} SMs"


def _dry_run(request: CoRequest, *, as_json: bool) -> int:
    """Print the points, one a line with its SMs or what stands in its way, and say on stderr what they would cost."""
    from greenbench.cli.progress import duration
    from greenbench.cli.report import counted, device_text, limit_text
    from greenbench.colocation.plan import obstacle
    from greenbench.experiments.colocate import preview
    from greenbench.records import to_json

    seen = preview(request)
    obstacles = [obstacle(point, seen.device) for point in seen.points]
    if as_json:
        report = {
            "device": to_json(seen.device),
            "points": [point.label for point in seen.points],
            "sms": [where(point) for point in seen.points],
            "obstacles": obstacles,
            "notes": list(seen.notes),
            "estimate_s": seen.estimate_s,
            "time_limit_s": request.plan.time_limit_s,
        }
        emit(dumps(report, indent=1, ensure_ascii=False))
        return ExitCode.DONE
    width = max((len(point.label) for point in seen.points), default=0)
    for point, why in zip(seen.points, obstacles, strict=True):
        emit(f"{point.label:<{width}}  {f'{Status.UNSUPPORTED}: {why}' if why else where(point)}")
    for note in seen.notes:
        emit(f"note: {note}", err=True)
    cost = f"about {duration(seen.estimate_s)}{limit_text(request.plan.time_limit_s)}"
    emit(f"{counted(len(seen.points), 'point')} on {device_text(seen.device)}, {cost}; nothing was measured", err=True)
    return ExitCode.DONE
