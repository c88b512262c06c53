"""`greenbench sweep`: its options, the run, and what is shown and printed of it."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.cli.delivery import figures, print_paths
from greenbench.cli.options import PlannedCommand, complete_plan
from greenbench.cli.session import Session
from greenbench.cli.signals import ending_like_ctrl_c
from greenbench.cli.sweep_options import sweep_options
from greenbench.cli.terminal import emit
from greenbench.errors import ExitCode, InterruptedRunError
from greenbench.schema import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenbench.experiments.sweep import SweepOutcome, SweepRequest

EPILOG = """\b
Examples:
  greenbench sweep --sms 8,16,24,32                        the plan "quick" at four sizes
  greenbench sweep scaling --kernels triad,gemm_bf16       two kernels of another plan
  greenbench sweep --kernels triad --set n=1048576 --timing cold --sms auto
  greenbench sweep mine.toml --kernels-dir my_kernels --out results/mine
  greenbench sweep --resume results/mine                   go on with a run that was stopped

\b
Exit codes:
  0    done
  2    an option, plan or kernel file is wrong
  4    this machine cannot, or every point is unsupported
  5    incomplete: points failed, or --strict and points are unsupported
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP); --resume goes on"""


@click.command("sweep", cls=PlannedCommand, epilog=EPILOG)
@click.argument("plan", required=False, shell_complete=complete_plan)
@sweep_options
@click.pass_context
def sweep_command(context: click.Context, /, **given: Any) -> int:
    """Run kernels on partitions of chosen sizes, and show how they scale with the SMs.

    PLAN is one of the plans below or a .toml file of your own; options override it.  [default: quick]
    """
    with ending_like_ctrl_c():
        return _sweep(context, given)


def _sweep(context: click.Context, given: dict[str, Any]) -> int:
    from greenbench.cli.progress import listener
    from greenbench.cli.request import sweep_request
    from greenbench.experiments.sweep import run_sweep

    session = context.ensure_object(Session)
    request = sweep_request(context, given, session.arguments)
    if given["dry_run"]:
        return _dry_run(request, as_json=given["json"])
    try:
        with listener(session, quiet=given["quiet"], ci=given["ci"]) as screen:
            outcome = run_sweep(request, screen)
    except InterruptedRunError:
        if session.folder is not None and not given["json"]:
            print_paths([session.folder, session.folder / "rows.csv"])
        raise
    session.folder, session.exit_code, session.finished = outcome.folder, outcome.exit_code, True
    return _present(outcome, given)


def _present(outcome: SweepOutcome, given: dict[str, Any]) -> int:
    """Show the table, print the paths as soon as each is there, and close with the result in words."""
    if not given["quiet"]:
        _show_table(outcome, details=given["verbose"])
    paths = [outcome.folder, outcome.folder / "rows.csv"]
    if not given["json"]:
        print_paths([*paths, *([outcome.trace] if outcome.trace else [])])
    plots = [] if given["no_plots"] or outcome.meta.profiled else _draw(outcome)
    if given["json"]:
        emit(_as_json(outcome, plots))
    else:
        print_paths(plots)
    _close(outcome, quiet=given["quiet"])
    return outcome.exit_code


def _show_table(outcome: SweepOutcome, *, details: bool) -> None:
    from greenbench.cli.drawing import draw
    from greenbench.cli.report import lay_out
    from greenbench.cli.terminal import stderr_console

    draw(lay_out(outcome.rows, outcome.meta, details=details), stderr_console())


def _draw(outcome: SweepOutcome) -> list[Path]:
    """Draw the figures of a run that has any."""
    from greenbench.cli.plot import draw

    if not any(row.status == Status.OK for row in outcome.rows):
        return []
    return figures(lambda: draw(outcome.rows, outcome.meta, outcome.folder / "plots", outcome.limits), outcome.folder)


def _close(outcome: SweepOutcome, *, quiet: bool) -> None:
    """Say in words how the run ended, and where each curve bends."""
    from greenbench.cli.report import closing_lines

    for line in closing_lines(outcome.rows, outcome.meta, outcome.summary, brief=quiet, bounds=outcome.limits):
        emit(line, err=True)


def _as_json(outcome: SweepOutcome, plots: Sequence[Path]) -> str:
    from greenbench.records import to_json

    return dumps(
        {
            "run": str(outcome.folder),
            "rows_csv": str(outcome.folder / "rows.csv"),
            "plots": [str(path) for path in plots],
            "trace": str(outcome.trace) if outcome.trace else None,
            "backend": outcome.meta.device.backend.value,
            "exit_code": int(outcome.exit_code),
            "summary": outcome.summary,
            "rows": to_json(outcome.rows),
        },
        indent=1,
        ensure_ascii=False,
    )


def _dry_run(request: SweepRequest, *, as_json: bool) -> int:
    """Print the points, one a line with its grant or what stands in its way, and say on stderr what they would cost."""
    from greenbench.cli.progress import duration
    from greenbench.cli.report import counted, device_text, limit_text
    from greenbench.experiments.sweep import preview
    from greenbench.records import to_json

    seen = preview(request)
    if as_json:
        emit(
            dumps(
                {
                    "device": to_json(seen.device),
                    "points": [point.label() for point in seen.points],
                    "grants": [seen.granted(point) for point in seen.points],
                    "obstacles": [seen.obstacle(point) for point in seen.points],
                    "notes": list(seen.notes),
                    "estimate_s": seen.estimate_s,
                    "time_limit_s": request.plan.time_limit_s,
                },
                indent=1,
                ensure_ascii=False,
            )
        )
        return ExitCode.DONE
    width = max((len(point.label()) for point in seen.points), default=0)
    for point in seen.points:
        emit(f"{point.label():<{width}}  {seen.obstacle(point) or f'{seen.granted(point)} SMs'}")
    for note in seen.notes:
        emit(f"note: {note}", err=True)
    count = counted(len(seen.points), "point")
    cost = f"about {duration(seen.estimate_s)}{limit_text(request.plan.time_limit_s)}"
    emit(f"{count} on {device_text(seen.device)}, {cost}; nothing was measured", err=True)
    return ExitCode.DONE
