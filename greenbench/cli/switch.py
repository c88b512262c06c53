"""`greenbench switch`: its options, the run, and what is shown and printed of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.cli.delivery import corun_figures, print_paths
from greenbench.cli.options import PlannedCommand, complete_plan
from greenbench.cli.session import Session
from greenbench.cli.signals import ending_like_ctrl_c
from greenbench.cli.switch_options import switch_options
from greenbench.cli.terminal import emit
from greenbench.errors import ExitCode, InterruptedRunError
from greenbench.schema import Status

if TYPE_CHECKING:
    from greenbench.experiments.switch import SwitchOutcome, SwitchRequest

PLAN_KEYS = ("processes", "mechanisms", "duration_us", "working_set", "ahead", "workload", "seconds", "seed")
EPILOG = """\b
Examples:
  greenbench switch                                        the plan "switch": every mechanism, 1 to 8 processes
  greenbench switch --processes 1,2,8 --mechanisms timeslice,mps
  greenbench switch --duration-us 1000 --working-set 32M   longer operations that want the L2
  greenbench switch --workload hbm --mechanisms green,mps  a workload of your own
  greenbench switch --device model:h200 --dry-run          no GPU needed, nothing runs

\b
Exit codes:
  0    done
  2    an option, plan or workload is wrong
  4    this machine cannot, or every point is unsupported
  5    incomplete: points failed, or --strict and points are unsupported
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP); --resume goes on"""


@click.command("switch", cls=PlannedCommand, epilog=EPILOG)
@click.argument("plan", required=False, shell_complete=complete_plan)
@switch_options
@click.pass_context
def switch_command(context: click.Context, /, **given: Any) -> int:
    """Run several busy processes on one GPU, and show what time-slicing costs and what MPS or green contexts save.

    PLAN is one of the plans below or a .toml file of your own; options override it.  [default: switch]
    """
    with ending_like_ctrl_c():
        return _switch(context, given)


def _switch(context: click.Context, given: dict[str, Any]) -> int:
    from greenbench.cli.progress import listener
    from greenbench.experiments.switch import run_switch

    session = context.ensure_object(Session)
    session.command = str(context.command.name)
    request = switch_request(context, given, session.arguments)
    if given["dry_run"]:
        return _dry_run(request, as_json=given["json"])
    try:
        with listener(session, quiet=given["quiet"], ci=given["ci"]) as screen:
            outcome = run_switch(request, screen)
    except InterruptedRunError:
        if session.folder is not None and not given["json"]:
            print_paths([session.folder, session.folder / "rows.csv"])
        raise
    session.folder, session.exit_code, session.finished = outcome.folder, outcome.exit_code, True
    return _present(outcome, given)


def switch_request(context: click.Context, given: Mapping[str, Any], arguments: Sequence[str]) -> SwitchRequest:
    """Return what `run_switch` is to do; raises UsageError or one of its kind."""
    from greenbench.catalog import library
    from greenbench.choices import parse_seconds
    from greenbench.cli.request import earlier_run
    from greenbench.experiments.switch import SwitchRequest
    from greenbench.switching.plan import DEFAULT_PLAN, load_switch, recorded_switch

    if given["resume"] is None:
        chosen = {key: given[key] for key in PLAN_KEYS if given[key] is not None}
        return SwitchRequest(
            plan=load_switch(given["plan"] or DEFAULT_PLAN, chosen, library(given["kernels_dir"])),
            device=given["device"],
            out=given["out"],
            timeout_s=parse_seconds(given["timeout"], "--timeout"),
            strict=given["strict"],
            ci=given["ci"],
            kernel_dirs=given["kernels_dir"],
            argv=tuple(arguments),
        )
    earlier = earlier_run(context, given["resume"])
    return SwitchRequest(
        plan=recorded_switch(earlier.meta),
        device=earlier.then("device"),
        resume=given["resume"],
        timeout_s=parse_seconds(earlier.ways("timeout"), "--timeout"),
        strict=earlier.ways("strict"),
        ci=earlier.ways("ci"),
        kernel_dirs=earlier.then("kernels_dir"),
        argv=tuple(arguments),
    )


def _present(outcome: SwitchOutcome, given: Mapping[str, Any]) -> int:
    """Show the table, print the paths as soon as each is there, and close with the result in words."""
    if not given["quiet"]:
        _show_table(outcome, details=given["verbose"])
    if not given["json"]:
        print_paths([outcome.folder, outcome.folder / "rows.csv"])
    plots = [] if given["no_plots"] else corun_figures(outcome.rows, outcome.folder)
    if given["json"]:
        emit(_as_json(outcome, plots))
    else:
        print_paths(plots)
    _close(outcome, quiet=given["quiet"])
    return outcome.exit_code


def _show_table(outcome: SwitchOutcome, *, details: bool) -> None:
    from greenbench.cli.codrawing import draw
    from greenbench.cli.switchreport import lay_out
    from greenbench.cli.terminal import stderr_console

    draw(lay_out(outcome.rows, outcome.meta, details=details), stderr_console())


def _close(outcome: SwitchOutcome, *, quiet: bool) -> None:
    """Say in words how the run ended, and what sharing leaves of one process."""
    from greenbench.cli.switchreport import closing_lines

    for line in closing_lines(outcome.rows, outcome.meta, outcome.summary, brief=quiet):
        emit(line, err=True)


def _as_json(outcome: SwitchOutcome, plots: Sequence[Path]) -> str:
    from greenbench.cli.switchreport import sentences
    from greenbench.records import to_json

    return dumps(
        {
            "run": str(outcome.folder),
            "rows_csv": str(outcome.folder / "rows.csv"),
            "plots": [str(path) for path in plots],
            "backend": outcome.meta.device.backend.value,
            "exit_code": int(outcome.exit_code),
            "summary": outcome.summary,
            "sentences": list(sentences(outcome.rows)),
            "rows": to_json(outcome.rows),
        },
        indent=1,
        ensure_ascii=False,
    )


def _dry_run(request: SwitchRequest, *, as_json: bool) -> int:
    """Print the points, one a line with what stands in its way, and say on stderr what they would cost."""
    from greenbench.cli.progress import duration
    from greenbench.cli.report import counted, device_text
    from greenbench.experiments.switch import preview
    from greenbench.records import to_json

    seen = preview(request)
    labels = [request.plan.label(point) for point in seen.points]
    if as_json:
        report = {
            "device": to_json(seen.device),
            "points": labels,
            "obstacles": list(seen.obstacles),
            "notes": list(seen.notes),
            "estimate_s": seen.estimate_s,
        }
        emit(dumps(report, indent=1, ensure_ascii=False))
        return ExitCode.DONE
    width = max((len(label) for label in labels), default=0)
    for label, why in zip(labels, seen.obstacles, strict=True):
        emit(f"{label:<{width}}  {f'{Status.UNSUPPORTED}: {why}' if why else ''}".rstrip())
    for note in seen.notes:
        emit(f"note: {note}", err=True)
    cost = f"about {duration(seen.estimate_s)}"
    emit(f"{counted(len(labels), 'point')} on {device_text(seen.device)}, {cost}; nothing was measured", err=True)
    return ExitCode.DONE
