"""`greenbench plot`: draw the figures of finished runs from their files alone; no CUDA, no GPU."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from greenbench.cli.options import SectionedCommand, json_option, option
from greenbench.errors import ResultFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenbench.runfiles import RunFolder
    from greenbench.schema import Row, RunMeta


@click.command(
    "plot",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n  greenbench plot results/runs/20260101T120000Z-sweep-1a2b\n  greenbench plot RUN1 RUN2 --out figures",
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@option(
    "--out",
    "Options",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Put the figures here; with several runs, into one folder per run below it.  [default: RUN/plots]",
)
@json_option("Options", "Write one JSON object with the paths instead of a path per line.")
def plot_command(runs: tuple[Path, ...], out: Path | None, json: bool) -> None:
    """Draw the figures of each RUN (a folder that `sweep` wrote) as PNG and SVG, and print their paths."""
    from greenbench.runfiles import RunFolder, read_meta

    # All are read before any is drawn, so that a wrong name on the line costs nothing.
    folders = {path: RunFolder.open(path) for path in runs}
    loaded = [(folder, read_meta(folder.meta_path), load_rows(folder)) for folder in folders.values()]
    drawn: dict[str, list[Path]] = {}
    for folder, meta, rows in loaded:
        target = folder.path / "plots" if out is None else out / folder.run_id if len(loaded) > 1 else out
        drawn[str(folder.path)] = draw(rows, meta, target)
        if not json:
            for path in drawn[str(folder.path)]:
                click.echo(path)
    if json:
        click.echo(dumps({"plots": {run: [str(path) for path in paths] for run, paths in drawn.items()}}, indent=1))


def load_rows(folder: RunFolder) -> list[Row]:
    """Read rows.csv; derive the rows from the journal where the run was cut off before they were written."""
    from greenbench.rows import derive_rows
    from greenbench.runfiles import read_journal, read_meta, read_rows

    if folder.rows_path.exists() or not folder.journal_path.exists():
        rows = read_rows(folder.rows_path)
    else:
        click.echo(f"note: {folder.path} has no rows.csv, its run was cut off; the rows are derived from blocks.csv", err=True)
        rows = derive_rows(read_meta(folder.meta_path), read_journal(folder.journal_path))
    if not rows:
        raise ResultFileError(f"{folder.path} has no rows, so there is nothing to draw; go on with sweep --resume {folder.path}")
    return rows


def draw(rows: Sequence[Row], meta: RunMeta, target: Path) -> list[Path]:
    """Draw the figures of a run into a folder and return their paths."""
    import pandas as pd

    from greenbench.plots import draw_run
    from greenbench.storage import writing

    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        return draw_run(pd.DataFrame([asdict(row) for row in rows]), meta, target)
