"""What makes one context wait for another: synchronisation, copies with nothing beside them, and taking turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np

from greenbench.timeline.api import Act, calls_that, stem
from greenbench.timeline.attribution import Attribution
from greenbench.timeline.capture import NOTHING, Calls, Capture, Kind, Work, pid_of
from greenbench.timeline.figures import MOST_PAIRED, Segment, segments
from greenbench.timeline.finding import (
    Finding,
    Topic,
    counted,
    listed,
    milliseconds,
    rows_of_calls,
    rows_of_work,
    work_list,
)
from greenbench.timeline.intervals import Flags, Ints, Spans, difference, merge, overlap, total, union
from greenbench.timeline.ranges import exempt_ranges, green_ranges
from greenbench.timeline.strays import BLOCKING, NULL_STREAM

WATCHED = (Act.WAIT, Act.STREAM_WAIT, Act.COPY, Act.ALLOCATION, Act.MODULE)
PAGEABLE = 0
# Own heuristics: a kernel that starts this soon after one of another context ended was held back by it (the natural gap
# between kernels of one stream is about 1 us), and waits below this share of the smaller busy time are launch latency.
_SOON_NS = 3_000
_LEAST_WAIT_NS = 20_000
_LEAST_SHARE = 0.05
_DIRECTIONS = {1: "host to device", 2: "device to host", 8: "device to device", 10: "device to device"}


def shared_ranges(capture: Capture, attribution: Attribution) -> Flags:
    """Return which ranges have kernels in a green context and in at least one more context; those meant to are left out."""
    work, ranges = capture.work, capture.ranges
    computing = work.computes[attribution.work]
    lowest, highest = np.full(len(ranges), len(capture.contexts)), np.full(len(ranges), NOTHING)
    np.minimum.at(lowest, attribution.range[computing], work.place[attribution.work[computing]])
    np.maximum.at(highest, attribution.range[computing], work.place[attribution.work[computing]])
    found: Flags = green_ranges(capture, attribution) & (highest > lowest) & ~exempt_ranges(capture)
    return found


def find_synchronisation(capture: Capture, attribution: Attribution) -> Iterator[Finding]:
    """Yield explicit and implicit synchronisation inside ranges whose work is in several contexts, by range and kind."""
    shared = shared_ranges(capture, attribution)
    inside = np.full(len(capture.calls), NOTHING, np.int64)
    some = shared[attribution.watched_range]
    np.maximum.at(inside, attribution.watched[some], attribution.watched_range[some])
    last_launch = np.full(len(capture.ranges), -(1 << 62))
    called = capture.work.computes[attribution.work]
    np.maximum.at(last_launch, attribution.range[called], capture.calls.start[capture.work.call[attribution.work[called]]])
    followed = (inside >= 0) & (last_launch[inside] > capture.calls.end) if len(last_launch) else inside >= 0
    for act in WATCHED:
        which = np.flatnonzero(followed & calls_that(capture, act))
        groups = capture.ranges.group[inside[which]]
        for group in np.unique(groups).tolist():
            calls = capture.calls.take(which[groups == group])
            yield _sync_finding(capture, act, calls, _title(capture, inside[which[groups == group][0]]))
    yield from _pageable(capture, attribution, shared)
    yield from _null_streams(capture)


def _title(capture: Capture, index: int) -> str:
    return f"{capture.texts[capture.ranges.domain[index]]}:{capture.texts[capture.ranges.name[index]]}"


def _sync_finding(capture: Capture, act: Act, calls: Calls, title: str) -> Finding:
    names = Counter(stem(capture.name(name)) for name in calls.name.tolist())
    spent = total(calls.end - calls.start)
    told = listed([f"{name} ({count}x)" for name, count in names.most_common()])
    explicit = act in (Act.WAIT, Act.STREAM_WAIT)
    effect = {
        Act.WAIT: f"the host waited {milliseconds(spent)} there, and meanwhile launched nothing for any context",
        Act.STREAM_WAIT: "what follows on that stream starts only after the event, which may be of another context",
    }.get(act, f"{milliseconds(spent)} in calls that may wait for the whole device")
    return Finding(
        topic=Topic.SYNCHRONISATION,
        text=(
            f"{'explicit' if explicit else 'implicit'} synchronisation between contexts inside {title}: "
            f"{counted(len(calls), act.value, _plural(act))} followed by more launches, {told}; {effect}"
        ),
        where=title,
        count=len(calls),
        total_ns=spent,
        evidence={"kind": act.name.lower(), "explicit": explicit, "calls": dict(names)},
        rows=rows_of_calls(calls),
    )


def _plural(act: Act) -> str:
    head, _, rest = act.value.partition(" of ")
    more = "copies" if act is Act.COPY else ""
    return f"synchronous {more}" if more else f"{head}s{f' of {rest}' if rest else ''}"


def _pageable(capture: Capture, attribution: Attribution, shared: Flags) -> Iterator[Finding]:
    """Yield copies from or to pageable host memory, which return late or hold the host."""
    work = capture.work
    bad = (work.kind == int(Kind.COPY)) & ((work.source == PAGEABLE) | (work.target == PAGEABLE))
    within = np.full(len(work), NOTHING, np.int64)
    some = shared[attribution.range] & bad[attribution.work]
    np.maximum.at(within, attribution.work[some], attribution.range[some])
    found = np.flatnonzero(within >= 0)
    groups = capture.ranges.group[within[found]] if len(found) else found
    for group in np.unique(groups).tolist():
        copies, title = work.take(found[groups == group]), _title(capture, within[found[groups == group][0]])
        yield Finding(
            topic=Topic.SYNCHRONISATION,
            text=(
                f"implicit synchronisation inside {title}: {counted(len(copies), 'copy', 'copies')} from or to pageable memory "
                f"({total(np.maximum(copies.size, 0)):,} bytes, {milliseconds(total(copies.duration))}) hold the host; "
                "use pinned memory"
            ),
            where=title,
            count=len(copies),
            total_ns=total(copies.duration),
            evidence={"kind": "pageable_copy", "explicit": False, "list": work_list(capture, copies)},
            rows=rows_of_work(copies),
        )


def _null_streams(capture: Capture) -> Iterator[Finding]:
    """Yield work on a null stream of a context whose blocking streams have work too: each waits for the other."""
    work = capture.work
    flags = {(stream.pid, stream.stream): stream.flag for stream in capture.streams}
    for place in np.unique(work.place[work.green == 0]).tolist():
        context = capture.contexts[place]
        some = work.take(work.place == place)
        flag = np.array([flags.get((pid_of(context.process), stream), 0) for stream in some.stream.tolist()], np.int64)
        null, blocking = some.take(flag == NULL_STREAM), some.take(flag == BLOCKING)
        if len(null) and len(blocking):
            yield Finding(
                topic=Topic.SYNCHRONISATION,
                text=(
                    f"implicit synchronisation in {context.label}: {counted(len(null), 'piece', 'pieces')} of work on the "
                    f"default stream and {len(blocking)} on blocking streams of the same context wait for each other; "
                    "make the streams non-blocking"
                ),
                where=context.label,
                count=len(null),
                total_ns=total(null.duration),
                evidence={"kind": "null_stream", "explicit": False, "list": work_list(capture, null)},
                rows=rows_of_work(null),
            )


def find_copies(capture: Capture) -> Iterator[Finding]:
    """Yield, per device, the copies that ran while their context, or the whole device, stood still between two kernels."""
    parts = list(segments(capture.work))
    work = capture.work
    for device in sorted({capture.contexts[part.place].device for part in parts}):
        own = {part.place: part.busy for part in parts if capture.contexts[part.place].device == device}
        every = union(*own.values())
        copies = work.take((work.kind == int(Kind.COPY)) & (work.device == device))
        if not len(copies) or not len(every):
            continue
        exposed = np.zeros(len(copies), np.int64)
        for place in np.unique(copies.place).tolist():
            here = copies.place == place
            idle = own.get(place, every).gaps() if len(own.get(place, every)) > 1 else every.gaps()
            exposed[here] = idle.covered_within(copies.start[here], copies.end[here])
        yield from _copy_finding(capture, copies, exposed, every, device)


def _copy_finding(capture: Capture, copies: Work, exposed: Ints, every: Spans, device: int) -> Iterator[Finding]:
    lost = total(exposed)
    span = int(every.end[-1] - every.start[0])
    if not lost or lost < min(_LEAST_WAIT_NS, 0.01 * span):
        return
    order = np.argsort(-exposed, kind="stable")
    worst = copies.take(order[exposed[order] > 0])
    kinds = Counter(_DIRECTIONS.get(kind, "other") for kind in worst.direction.tolist())
    told, size = listed([f"{name} {count}x" for name, count in kinds.most_common()]), total(np.maximum(worst.size, 0))
    yield Finding(
        topic=Topic.COPY,
        text=(
            f"copies on the critical path of device {device}: {counted(len(worst), 'copy', 'copies')} ({told}, {size:,} bytes) "
            f"ran for {milliseconds(lost)} between kernels while their context computed nothing "
            f"({100 * lost / span:.1f} % of the span)"
        ),
        where=f"device {device}",
        count=len(worst),
        total_ns=lost,
        evidence={"exposed_ns": lost, "span_ns": span, "bytes": size, "list": work_list(capture, worst)},
        rows=rows_of_work(worst),
    )


def find_never_overlapping(capture: Capture, attribution: Attribution) -> Iterator[Finding]:
    """Yield pairs of contexts, at least one of them green, that never ran at once though both had work.

    Both had work where kernels of one stood in the queue while the other ran, or where both ran in one instance of a range.
    """
    parts = [part for part in segments(capture.work) if part.busy.length]
    paired = sorted(parts, key=lambda part: -part.busy.length)[:MOST_PAIRED]
    together = _together(capture, attribution)
    pending = {part.place: _pending(capture, part) for part in paired}
    for a, b in combinations(sorted(paired, key=lambda part: part.place), 2):
        first, second = capture.contexts[a.place], capture.contexts[b.place]
        if first.device != second.device or not (first.green or second.green) or overlap(a.busy, b.busy):
            continue
        waited = overlap(difference(pending[a.place], a.busy), b.busy) + overlap(difference(pending[b.place], b.busy), a.busy)
        least = max(_LEAST_WAIT_NS, _LEAST_SHARE * min(a.busy.length, b.busy.length))
        title = together.get((a.place, b.place), "")
        if waited >= least or title:
            yield _turns(capture, a, b, waited if waited >= least else 0, title)


def _pending(capture: Capture, part: Segment) -> Spans:
    """Return when work of a context had been launched and did not run yet."""
    known = part.work.take(part.work.call >= 0)
    launched = capture.calls.end[known.call]
    return merge(np.minimum(launched, known.start), known.start)


def _together(capture: Capture, attribution: Attribution) -> dict[tuple[int, int], str]:
    """Return pairs of places whose work shares the innermost instance of a range that is not exempt, with its title."""
    innermost = attribution.of_work(capture)
    exempt = exempt_ranges(capture)
    some = (innermost >= 0) & capture.work.computes
    if not some.any():
        return {}
    keys = np.unique(innermost[some] * len(capture.contexts) + capture.work.place[some])
    instances, in_places = keys // len(capture.contexts), keys % len(capture.contexts)
    found: dict[tuple[int, int], str] = {}
    edges = [*np.flatnonzero(np.diff(instances, prepend=NOTHING)).tolist(), len(keys)]
    for start, end in pairwise(edges):
        index, places = int(instances[start]), in_places[start:end].tolist()
        if not exempt[index]:
            for pair in combinations(places[:MOST_PAIRED], 2):
                found.setdefault(pair, _title(capture, index))
    return found


def _turns(capture: Capture, a: Segment, b: Segment, waited: int, title: str) -> Finding:
    labels = [capture.contexts[part.place].label for part in (a, b)]
    held = [_held_back(one, other) for one, other in ((a, b), (b, a))]
    soon = sum(len(work) for work in held)
    behind = f"; {counted(soon, 'kernel')} started within 3 µs after one of the other ended" if soon else ""
    why = (
        f"work of one stood in the queue for {milliseconds(waited)} while the other ran{behind}: they take turns, so look for "
        "a shared workqueue, an event between them, or kernels that fill the SMs of both"
        if waited
        else f"both ran in {title}, and neither had work queued while the other ran, so the host launches them in turn{behind}"
    )
    inside = f" inside {title}" if title and waited else ""
    return Finding(
        topic=Topic.NEVER_OVERLAP,
        text=f"{labels[0]} and {labels[1]} never overlap though both had work{inside}: {why}",
        where=title,
        count=len(a.work) + len(b.work),
        total_ns=waited,
        evidence={
            "contexts": labels,
            "busy_ns": [a.busy.length, b.busy.length],
            "waited_ns": waited,
            "started_right_after": dict(zip(labels, map(len, held), strict=True)),
        },
        rows=rows_of_work(a.work.take(np.arange(min(len(a.work), 10))) if not soon else held[0] if len(held[0]) else held[1]),
    )


def _held_back(one: Segment, other: Segment) -> Work:
    """Return the kernels of one context that start right after a kernel of the other ended."""
    ends = np.sort(other.work.end)
    spot = np.searchsorted(ends, one.work.start, side="right") - 1
    after = one.work.start - ends[np.maximum(spot, 0)]
    return one.work.take((spot >= 0) & (after <= _SOON_NS))
