"""Which NVTX ranges a piece of GPU work belongs to: those of the calling thread that contain the whole API call.

This is NVIDIA's rule for push/pop and start/end ranges alike; kernel times play no part, since kernels outlive a range that
does not wait for them. Nested ranges count inclusively.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from greenbench.timeline.capture import NOTHING, Calls, Capture, Ranges
from greenbench.timeline.intervals import Flags, Ints, coded

# Deeper nesting than this is not looked at; the outermost levels are kept.
MOST_DEPTH = 256
_MOST_KEY = 1 << 62


@dataclass(frozen=True, slots=True)
class Attribution:
    """What lies in which range, as pairs of positions: work with ranges, and watched calls with ranges.

    `innermost` is the innermost range of each call or NOTHING, `called` counts calls by (group of ranges, name of the call).
    """

    work: Ints
    range: Ints
    watched: Ints
    watched_range: Ints
    innermost: Ints
    called: Mapping[tuple[int, int], int]
    deeper: int

    def of_work(self, capture: Capture) -> Ints:
        """Return, for each piece of work, its innermost range or NOTHING."""
        found: Ints = np.append(self.innermost, NOTHING)[capture.work.call]
        return found


def attribute(capture: Capture, watched: Flags) -> Attribution:
    """Attribute the work that has an API call, and the calls of a mask; `deeper` counts ranges beyond MOST_DEPTH."""
    work, calls, ranges = capture.work, capture.calls, capture.ranges
    innermost = np.full(len(calls), NOTHING, np.int64)
    none = np.zeros(0, np.int64)
    if not len(ranges) or not len(calls):
        return Attribution(none, none, none, none, innermost, {}, 0)
    starts, ends, call_starts, call_ends = _keys(ranges, calls)
    level = _levels(starts, ends)
    made, watching = np.flatnonzero(work.call >= 0), np.flatnonzero(watched)
    of_work, of_calls = ([none], [none]), ([none], [none])
    called: Counter[tuple[int, int]] = Counter()
    for depth in range(min(int(level.max()) + 1, MOST_DEPTH)):
        here = np.flatnonzero(level == depth)
        spot = np.searchsorted(starts[here], call_starts, side="right") - 1
        candidate = here[np.maximum(spot, 0)]
        hit = np.where((spot >= 0) & (call_ends <= ends[candidate]), candidate, NOTHING)
        np.maximum(innermost, hit, out=innermost)
        _append(of_work, made, hit[work.call[made]])
        _append(of_calls, watching, hit[watching])
        called.update(_count(ranges.group[hit[hit >= 0]], calls.name[hit >= 0]))
    worked, ranged, watched_calls, watched_ranges = (np.concatenate(part).astype(np.int64) for part in (*of_work, *of_calls))
    deeper = int((level >= MOST_DEPTH).sum())
    return Attribution(worked, ranged, watched_calls, watched_ranges, innermost, called, deeper)


def _append(pairs: tuple[list[Ints], list[Ints]], what: Ints, found: Ints) -> None:
    """Keep the pairs in which there is a range, in half the memory."""
    some = found >= 0
    for part, column in zip(pairs, (what, found), strict=True):
        part.append(column[some].astype(np.int32))


def _count(group: Ints, name: Ints) -> dict[tuple[int, int], int]:
    """Return how often each pair occurs."""
    names, code = coded(name)
    keys, counts = np.unique(group * max(len(names), 1) + code, return_counts=True)
    return {
        (key // len(names), int(names[key % len(names)])): count
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True)
    }


def _keys(ranges: Ranges, calls: Calls) -> tuple[Ints, Ints, Ints, Ints]:
    """Return times in which those of one thread lie apart from those of all others, so that one search serves all threads."""
    threads = coded(np.concatenate((ranges.thread, calls.thread)))[1]
    of_range, of_call = threads[: len(ranges)], threads[len(ranges) :]
    times = [ranges.start, ranges.end, calls.start, calls.end]
    low = min(int(part.min()) for part in times)
    span = max(int(part.max()) for part in times) - low + 2
    if (int(threads.max()) + 1) * span >= _MOST_KEY:
        ranks = coded(np.concatenate(times))[1]
        times = np.split(ranks, np.cumsum([len(part) for part in times])[:-1])
        low, span = 0, int(ranks.max()) + 2
    start, end, call_start, call_end = (part - low for part in times)
    return of_range * span + start, of_range * span + end, of_call * span + call_start, of_call * span + call_end


def _levels(starts: Ints, ends: Ints) -> Ints:
    """Spread ranges over as few levels as possible so that those of one level are apart; `starts` ascend."""
    levels = np.zeros(len(starts), np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    used = 0
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while busy and busy[0][0] < start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            level = heapq.heappop(free)
        else:
            level, used = used, used + 1
        levels[index] = level
        heapq.heappush(busy, (end, level))
    return levels
