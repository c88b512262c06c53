"""What every measuring command hands over: paths on stdout, and figures whose failure costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from greenbench.cli.session import write_traceback
from greenbench.cli.terminal import emit
from greenbench.errors import GreenbenchError
from greenbench.schema import Status

if TYPE_CHECKING:
    from greenbench.corow import CoRow


def print_paths(paths: Iterable[Path]) -> None:
    """Write the paths of results to stdout, one a line."""
    for path in paths:
        emit(path)


def figures(draw: Callable[[], list[Path]], folder: Path) -> list[Path]:
    """Draw the figures; whatever goes wrong there, the measurement is on disk and its exit code stands."""
    try:
        return draw()
    except GreenbenchError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a bug in a figure must not hide a run that is complete on disk
        home = write_traceback(error, folder)
        problem = f"{type(error).__name__}: {error}" + (f" (the traceback is in {home})" if home else "")
    emit(f"note: no figures: {problem}; the data are complete, and 'greenbench plot {folder}' tries again", err=True)
    return []


def corun_figures(rows: Sequence[CoRow], folder: Path) -> list[Path]:
    """Draw the figures of a run of `colocate` or `switch` from its folder, if it has a row with figures."""
    from greenbench.cli.plot import draw_corun
    from greenbench.colocation.results import read_corun

    if not any(row.status == Status.OK for row in rows):
        return []
    return figures(lambda: draw_corun(read_corun(folder), folder / "plots"), folder)
