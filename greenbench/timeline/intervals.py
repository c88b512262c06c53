"""Sets of time intervals as sorted arrays: union, intersection, difference and their exact lengths in integer ns.

Intervals are half-open: two that touch do not overlap, and one of no length covers nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LOW = 31
_DENSE = 1 << 20


def total(values: Ints) -> int:
    """Return the exact sum, also where it leaves 64 bits: both halves are summed apart."""
    return (int((values >> _LOW).sum()) << _LOW) + int((values & ((1 << _LOW) - 1)).sum())


def distinct(positions: Ints, length: int) -> Ints:
    """Return the distinct positions below `length` in ascending order; a mask is faster than a set."""
    seen = np.zeros(length, np.bool_)
    seen[positions] = True
    return np.flatnonzero(seen)


def coded(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values in ascending order and, for each entry, its position there."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > _DENSE:
        found, code = np.unique(values, return_inverse=True)
        return found, code.astype(np.int64)
    shifted = values - low
    present = distinct(shifted, high - low + 1)
    positions = np.zeros(high - low + 1, np.int64)
    positions[present] = np.arange(len(present))
    return present + low, positions[shifted]


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint intervals in ascending order with a gap between neighbours: `start` and `end` in ns, of one length."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        """How many ns are covered."""
        return total(self.end - self.start)

    def covered_before(self, times: Ints) -> Ints:
        """Return, for each time, how many ns lie before it."""
        if not len(self):
            return np.zeros(len(times), np.int64)
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, times, side="right")
        begun = np.maximum(index - 1, 0)
        open_rest = np.where(index > 0, np.maximum(self.end[begun] - times, 0), 0)
        covered: Ints = sums[index] - open_rest
        return covered

    def covered_within(self, start: Ints, end: Ints) -> Ints:
        """Return, for each window, how many of its ns are covered."""
        return self.covered_before(end) - self.covered_before(start)

    def gaps(self) -> Spans:
        """Return what lies between neighbours."""
        return Spans(self.end[:-1], self.start[1:])


EMPTY = Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))


def merge(start: Ints, end: Ints) -> Spans:
    """Return the union of any intervals."""
    order = np.argsort(start, kind="stable")
    return merge_sorted(start[order], end[order])


def merge_sorted(start: Ints, end: Ints) -> Spans:
    """Return the union of intervals in ascending order of their start."""
    some = end > start
    if not some.all():
        start, end = start[some], end[some]
    if not len(start):
        return EMPTY
    reach = np.maximum.accumulate(end)
    first = np.concatenate((np.ones(1, np.bool_), start[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(first)[1:] - 1, [len(start) - 1]))
    return Spans(start[first], reach[last])


def union(*sets: Spans) -> Spans:
    """Return the union of sets."""
    return merge(np.concatenate([each.start for each in sets]), np.concatenate([each.end for each in sets])) if sets else EMPTY


def overlap(a: Spans, b: Spans) -> int:
    """Return the length of the intersection."""
    few, many = (a, b) if len(a) <= len(b) else (b, a)
    return total(many.covered_within(few.start, few.end))


def active_times(sets: list[Spans]) -> tuple[Ints, Ints]:
    """Return the sorted event times of several sets, and how many sets are active from each on (ends come before starts)."""
    times = np.concatenate([part for each in sets for part in (each.start, each.end)] or [np.zeros(0, np.int64)])
    steps = np.concatenate(
        [np.full(len(each), step, np.int64) for each in sets for step in (1, -1)] or [np.zeros(0, np.int64)],
    )
    order = np.lexsort((steps, times))
    return times[order], np.cumsum(steps[order])


def intersection(a: Spans, b: Spans) -> Spans:
    """Return what both cover."""
    times, active = active_times([a, b])
    both = np.flatnonzero(active == len((a, b)))
    return merge_sorted(times[both], times[both + 1])


def difference(a: Spans, b: Spans) -> Spans:
    """Return what `a` covers and `b` does not."""
    if not len(a) or not len(b):
        return a
    low, high = min(a.start[0], b.start[0]), max(a.end[-1], b.end[-1])
    outside = merge_sorted(np.concatenate(([low], b.end)), np.concatenate((b.start, [high])))
    return intersection(a, outside)


def most_at_once(start: Ints, end: Ints) -> int:
    """Return the largest number of intervals that are open at one time."""
    some = end > start
    begins, ends = np.sort(start[some]), np.sort(end[some])
    if not len(begins):
        return 0
    open_now = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="right")
    return int(open_now.max())


def time_by_active(sets: list[Spans]) -> dict[int, int]:
    """Return {k: ns in which exactly k sets are active} from the first start to the last end; the values sum to that span."""
    times, active = active_times(sets)
    if not len(times):
        return {}
    width = np.diff(times)
    split = np.zeros(int(active.max()) + 1, np.int64)
    np.add.at(split, active[:-1], width)
    return {k: int(ns) for k, ns in enumerate(split) if ns or k == 0}
