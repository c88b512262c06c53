"""Figures of a run, PNG and SVG: what its rows say, and nothing that they do not say.

Import this package inside a command only: it brings matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# Figures go to files only, and matplotlib does not start with a MPLBACKEND that it does not know.
os.environ["MPLBACKEND"] = "agg"

from matplotlib.figure import Figure

from greenbench.plots import efficiency, latency, overview, scaling, style
from greenbench.plots.curves import Run, run_of
from greenbench.schema import BoundRow, RunMeta

if TYPE_CHECKING:
    import pandas


def draw_run(frame: pandas.DataFrame, meta: RunMeta, out_dir: Path, limits: Sequence[BoundRow] = ()) -> list[Path]:
    """Draw every figure that the rows of a run allow and return the files written, in order.

    `limits` are the lines of bounds.csv, for the ceilings that were measured. Only ok rows are drawn. A kernel without one has no
    figure, and a run without one gives an empty list.
    """
    run = run_of(frame, meta, limits)
    paths: list[Path] = []
    with style.context():
        for stem, figure in figures(run):
            paths += style.save(figure, out_dir, stem)
    return paths


def figures(run: Run) -> list[tuple[str, Figure]]:
    """Return the figures of a run with the stems of their files; call it within `style.context`."""
    drawn = scaling.draw(run)
    drawn += overview.draw(run)
    drawn += efficiency.draw(run)
    drawn += latency.draw(run)
    return drawn


__all__ = ["draw_run", "figures"]
