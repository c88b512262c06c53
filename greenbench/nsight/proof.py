"""What a report must hold to count: the ranges of the run that was recorded, with kernels in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenbench.errors import GreenbenchError
from greenbench.gpu.annotate import DOMAIN
from greenbench.runfiles import read_rows
from greenbench.schema import Row, Status, Timing
from greenbench.timeline.analysis import Analysis
from greenbench.timeline.database import clean
from greenbench.timeline.finding import counted, listed
from greenbench.timeline.ranges import RangeFigures

SWEEP = "sweep"
WORKLOAD = "workload"


@dataclass(frozen=True, slots=True)
class Proof:
    """`sentence` sums up what was found; `problem` says what is missing, or is empty."""

    sentence: str
    problem: str = ""


def prove(analysis: Analysis, command: str, folder: Path) -> Proof:
    """Compare a report with the run that it was made of: each ok point of a sweep, else the runs of a co-location."""
    own = [each for each in analysis.ranges if each.domain == DOMAIN]
    if not own:
        seen = listed(sorted({repr(each.domain) for each in analysis.ranges})) or "none"
        return Proof("", f"the report has no range of domain {DOMAIN} (domains with ranges: {seen}); try --capture all")
    working = {each.name: each for each in own if each.figures.kernels + each.figures.graphs}
    if command == SWEEP:
        return _of_points(analysis, working, folder)
    found = [each for each in working.values() if each.category == WORKLOAD]
    if not found:
        return Proof("", f"the report has no range of category {WORKLOAD} with kernels, so no run of roles was recorded")
    return Proof(f"{counted(len(found), 'mechanism')} recorded, {_strays(analysis)}")


def _of_points(analysis: Analysis, working: dict[str, RangeFigures], folder: Path) -> Proof:
    try:
        rows = [row for row in read_rows(folder) if _launches(row)]
    except GreenbenchError as error:
        return Proof("", f"the run under nsys left no rows to compare with: {error}")
    if not rows:
        return Proof("", f"no point of the run in {folder} is ok, so there is nothing that the report could show")
    # More points than ranges are analysed may be there all the same.
    there = _names_with_kernels(analysis)
    missing = [row.label for row in rows if clean(row.label) not in there]
    if missing:
        shown = listed(missing, 3)
        return Proof("", f"{len(missing)} of {counted(len(rows), 'point')} have no range with kernels in the report: {shown}")
    inside = sum(_confined(analysis, working[name]) for row in rows if (name := clean(row.label)) in working)
    return Proof(
        f"{counted(len(rows), 'point')} with their ranges, {inside} of them with all kernels in one green context; "
        f"{_strays(analysis)}"
    )


def _names_with_kernels(analysis: Analysis) -> set[str]:
    """Return the names of greenbench's ranges in which a kernel or a graph was launched."""
    capture, attribution = analysis.capture, analysis.attribution
    busy = np.zeros(len(capture.ranges), np.bool_)
    busy[attribution.range[capture.work.computes[attribution.work]]] = True
    own = [index for index, text in enumerate(capture.texts) if text == DOMAIN]
    busy &= np.isin(capture.ranges.domain, np.array(own, np.int64))
    return {capture.texts[index] for index in np.unique(capture.ranges.name[busy]).tolist()}


def _launches(row: Row) -> bool:
    """True for an ok row that has kernels to be seen; what the host times need not launch any."""
    return row.status == Status.OK and row.timing != Timing.HOST


def _confined(analysis: Analysis, found: RangeFigures) -> bool:
    """True where the kernels of a range, those of its setup ranges left out, all ran in one green context."""
    strays = (analysis.stray_range[found.work] >= 0) & analysis.capture.work.computes[found.work]
    green = [each for each in found.figures.contexts if each.label.startswith("green:")]
    return len(green) == 1 and not strays.any()


def _strays(analysis: Analysis) -> str:
    return f"strays were not looked for: {analysis.unchecked}" if analysis.unchecked else counted(analysis.strays, "stray kernel")
