"""`greenbench plot`: draw the figures of finished runs from their files alone; no CUDA, no GPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import count
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from greenbench.cli.options import SectionedCommand, json_option, option
from greenbench.cli.terminal import emit
from greenbench.errors import IncompleteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenbench.colocation.results import CoResults
    from greenbench.results import Results
    from greenbench.schema import BoundRow, Row, RunMeta


@click.command(
    "plot",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n  greenbench plot results/runs/20260101T120000Z-sweep-1a2b\n  greenbench plot RUN1 RUN2 --out figures"
    "\n\n\b\nExit codes:\n  0    done\n  2    a folder is no run, or cannot be read\n  5    a run has nothing to draw",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@option(
    "--out",
    "Options",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Put the figures here; with several runs, into a folder below it for each.  [default: RUN/plots]",
)
@json_option("Options", "Write one JSON object with the paths instead of a path per line.")
def plot_command(runs: tuple[Path, ...], out: Path | None, json: bool) -> None:
    """Draw the figures of each RUN (a folder of `sweep`, `colocate` or `switch`) as PNG and SVG, and print their paths."""
    # Each run once, however it is written. All are read before any is drawn, so that a wrong name on the line costs nothing.
    once: dict[Path, Path] = {}
    for path in runs:
        once.setdefault(path.resolve(), path)
    loaded = [_read(path) for path in once.values()]
    for note in filter(None, (run.note for run in loaded)):
        emit(f"note: {note}", err=True)
    drawn: dict[str, list[Path]] = {}
    for run, name in zip(loaded, own_names([run.folder.run_id for run in loaded]), strict=True):
        target = run.folder.path / "plots" if out is None else out / name if len(loaded) > 1 else out
        drawn[str(run.folder.path)] = _draw(run, target)
        if not json:
            for path in drawn[str(run.folder.path)]:
                emit(path)
    if json:
        emit(dumps({"plots": {run: [str(path) for path in paths] for run, paths in drawn.items()}}, indent=1))
    empty = [run for run in loaded if not drawn[str(run.folder.path)]]
    if empty:
        raise IncompleteError("; ".join(_nothing_to_draw(run) for run in empty))


def _read(path: Path) -> Results | CoResults:
    """Read a run of either kind of rows."""
    from greenbench.colocation.results import is_corun, read_corun
    from greenbench.results import read_run

    return read_corun(path) if is_corun(path) else read_run(path)


def _draw(run: Results | CoResults, target: Path) -> list[Path]:
    """Draw the figures of a run of either kind."""
    from greenbench.results import Results

    return draw(run.rows, run.meta, target, run.limits) if isinstance(run, Results) else draw_corun(run, target)


def _nothing_to_draw(run: Results | CoResults) -> str:
    found = Counter(row.status for row in run.rows)
    told = ", ".join(f"{count} {status}" for status, count in found.items())
    why = ", launched under --profile, which takes no times" if run.meta.profiled else ""
    return f"there is nothing to draw in {run.folder.path}: of {len(run.rows)} row{'' if len(run.rows) == 1 else 's'} {told}{why}"


def own_names(names: Sequence[str]) -> list[str]:
    """Give each run a name of its own: the one it has, with a number behind it where an earlier one has the same."""
    own: list[str] = []
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        own.append(name if name not in own else next(each for each in numbered if each not in own and each not in names))
    return own


def draw(rows: Sequence[Row], meta: RunMeta, target: Path, limits: Sequence[BoundRow] = ()) -> list[Path]:
    """Draw the figures of a run into a folder and return their paths."""
    import pandas as pd

    from greenbench.plots import draw_run
    from greenbench.storage import writing

    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        return draw_run(pd.DataFrame([asdict(row) for row in rows]), meta, target, limits)


def draw_corun(run: CoResults, target: Path) -> list[Path]:
    """Draw the figures of a run of `colocate` or `switch` into a folder and return their paths."""
    from greenbench.colocation.results import SWITCH, objectives
    from greenbench.plots.isolation import draw_colocation
    from greenbench.plots.switching import draw_switch
    from greenbench.storage import writing

    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        if run.meta.command == SWITCH:
            return draw_switch(run.rows, run.meta, target)
        return draw_colocation(run.rows, run.visits, run.meta, target, objectives(run.meta))
