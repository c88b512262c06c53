"""The whole analysis of a capture: figures of the file and of its ranges, and findings in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from greenbench.timeline.api import calls_that
from greenbench.timeline.attribution import Attribution, attribute
from greenbench.timeline.capture import Capture
from greenbench.timeline.figures import Figures, figures_of
from greenbench.timeline.finding import MOST_FINDINGS, Finding
from greenbench.timeline.intervals import Ints
from greenbench.timeline.ranges import RangeFigures, in_domain, range_figures, with_reported_sms
from greenbench.timeline.strays import find_graphs, find_strays, stray_ranges, why_unchecked
from greenbench.timeline.waiting import WATCHED, find_copies, find_never_overlapping, find_synchronisation


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a capture says.

    `stray_range` has the range that makes a piece of work a stray, `unchecked` says why none was looked for, and `outside` counts
    kernels and whole graphs in no range.
    """

    capture: Capture
    attribution: Attribution
    whole: Figures
    ranges: tuple[RangeFigures, ...]
    outside: int
    stray_range: Ints
    unchecked: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def strays(self) -> int:
        """How many kernels and whole graphs are strays."""
        return int(((self.stray_range >= 0) & self.capture.work.computes).sum())


def analyse(capture: Capture, domain: str | None = None) -> Analysis:
    """Analyse a capture, with the ranges of all domains or of one (an empty name is the default domain)."""
    capture = in_domain(capture, domain)
    attribution = attribute(capture, calls_that(capture, *WATCHED))
    capture = with_reported_sms(capture, attribution)
    ranges, left_out = range_figures(capture, attribution)
    stray_range = stray_ranges(capture, attribution)
    found = list(_findings(capture, attribution, stray_range))
    inside = np.zeros(len(capture.work), np.bool_)
    inside[attribution.work] = True
    notes = [*capture.notes]
    if left_out:
        notes.append(f"{left_out} more names of ranges, those with the least work, are left out")
    if attribution.deeper:
        notes.append(f"{attribution.deeper} ranges are nested deeper than is looked at and are left out")
    if len(found) > MOST_FINDINGS:
        notes.append(f"{len(found) - MOST_FINDINGS} more findings are left out")
    return Analysis(
        capture=replace(capture, notes=tuple(notes)),
        attribution=attribution,
        whole=figures_of(capture),
        ranges=ranges,
        outside=int((capture.work.computes & ~inside).sum()),
        stray_range=stray_range,
        unchecked=why_unchecked(capture),
        findings=tuple(found[:MOST_FINDINGS]),
        notes=tuple(notes),
    )


def _findings(capture: Capture, attribution: Attribution, stray_range: Ints) -> Iterator[Finding]:
    yield from find_strays(capture, stray_range)
    yield from find_graphs(capture, stray_range)
    yield from find_never_overlapping(capture, attribution)
    yield from find_synchronisation(capture, attribution)
    yield from find_copies(capture)
