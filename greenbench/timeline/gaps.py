"""The idle time of a context between the kernels of a range, split by what went on instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from greenbench.timeline.api import Act, calls_that
from greenbench.timeline.capture import Capture, Kind, process_of
from greenbench.timeline.figures import segments
from greenbench.timeline.intervals import EMPTY, Ints, Spans, difference, intersection, merge
from greenbench.timeline.ranges import RangeFigures


class Cause(StrEnum):
    """What went on in a gap; where several did, the one that stands first here counts."""

    SAME_CONTEXT = "same context, outside the range"
    COPY = "copy"
    OTHER_CONTEXT = "another context running"
    SYNCHRONISATION = "synchronisation"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps of one context: how many, how long, and the ns by cause, which sum to `total_ns`."""

    context: str
    gaps: int
    total_ns: int
    longest_ns: int
    by_cause: Mapping[Cause, int]


def gaps_of(capture: Capture, found: RangeFigures) -> tuple[Gaps, ...]:
    """Return the gaps between the kernels of a range, per context."""
    work = capture.work
    waits = capture.calls.take(calls_that(capture, Act.WAIT, Act.COPY))
    waiters = process_of(waits.thread)
    everything = {part.place: part.busy for part in segments(work)}
    results = []
    for part in segments(work.take(found.work)):
        own = capture.contexts[part.place]
        others = [spans for place, spans in everything.items() if place != part.place and _beside(capture, place, part.place)]
        copies = (work.kind > int(Kind.GRAPH)) & (work.process == own.process) & (work.device == own.device)
        copies &= (work.green == own.green) | (work.green == 0)
        causes = {
            Cause.SAME_CONTEXT: everything[part.place],
            Cause.COPY: merge(work.start[copies], work.end[copies]),
            Cause.OTHER_CONTEXT: _all(others),
            Cause.SYNCHRONISATION: merge(waits.start[waiters == own.process], waits.end[waiters == own.process]),
        }
        gaps = part.busy.gaps()
        results.append(Gaps(own.label, len(gaps), gaps.length, _longest(gaps), _split(gaps, causes)))
    return tuple(results)


def _beside(capture: Capture, place: int, other: int) -> bool:
    return capture.contexts[place].device == capture.contexts[other].device


def _all(sets: list[Spans]) -> Spans:
    none: list[Ints] = [EMPTY.start]
    return merge(np.concatenate(none + [each.start for each in sets]), np.concatenate(none + [each.end for each in sets]))


def _longest(gaps: Spans) -> int:
    return int((gaps.end - gaps.start).max()) if len(gaps) else 0


def _split(gaps: Spans, causes: Mapping[Cause, Spans]) -> dict[Cause, int]:
    """Take from the gaps what each cause covers, in order; what is left is the host's."""
    split: dict[Cause, int] = {}
    rest = gaps
    for cause, spans in causes.items():
        split[cause] = intersection(rest, spans).length
        rest = difference(rest, spans)
    return split | {Cause.HOST: rest.length}
