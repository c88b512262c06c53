"""Work outside every green context inside ranges that use green contexts: it may run on any SM and so breaks the partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from greenbench.timeline.api import Act, act_of
from greenbench.timeline.attribution import Attribution
from greenbench.timeline.capture import NOTHING, Capture, Work
from greenbench.timeline.figures import Segment, segments
from greenbench.timeline.finding import (
    Finding,
    Topic,
    busy_ns,
    counted,
    listed,
    milliseconds,
    rows_of_work,
    work_list,
)
from greenbench.timeline.intervals import Flags, Ints, coded, merge, overlap, total
from greenbench.timeline.ranges import exempt_ranges, green_ranges

NULL_STREAM, BLOCKING = 3, 1


def why_unchecked(capture: Capture) -> str:
    """Return why strays cannot be told in this capture, or an empty string."""
    if not capture.knows_green:
        return "this nsys cannot tell green contexts"
    if not (capture.work.call >= 0).any():
        return "no kernel has its API call"
    if not len(capture.ranges):
        return "there are no NVTX ranges"
    return ""


def stray_ranges(capture: Capture, attribution: Attribution) -> Ints:
    """Return, for each piece of work, the innermost range that makes it a stray, or NOTHING.

    That is a range which uses green contexts; work that also lies in a range meant to run without them is no stray.
    """
    work = capture.work
    found = np.full(len(work), NOTHING, np.int64)
    exempt = exempt_ranges(capture)
    excused = np.zeros(len(work), np.bool_)
    excused[attribution.work[exempt[attribution.range]]] = True
    judged = green_ranges(capture, attribution)[attribution.range] & (work.green[attribution.work] == 0)
    judged &= ~excused[attribution.work]
    np.maximum.at(found, attribution.work[judged], attribution.range[judged])
    return found


def find_strays(capture: Capture, stray_range: Ints) -> Iterator[Finding]:
    """Yield a finding for each name of a range with stray kernels or graphs, or with stray copies alone."""
    inside = stray_range >= 0
    group = np.where(inside, capture.ranges.group[np.where(inside, stray_range, 0)], NOTHING) if inside.any() else stray_range
    green = [part for part in segments(capture.work) if capture.contexts[part.place].green]
    for one in np.unique(group[inside]).tolist():
        work = capture.work.take(group == one)
        order = np.argsort(work.start, kind="stable")
        yield _finding(capture, work.take(order), _title(capture, one), green)


def _finding(capture: Capture, work: Work, title: str, green: list[Segment]) -> Finding:
    kernels, rest = work.take(work.computes), work.take(~work.computes)
    spans = merge(kernels.start, kernels.end)
    beside = {capture.contexts[part.place].label: overlap(part.busy, spans) for part in green}
    streams = stream_words(capture, kernels if len(kernels) else rest)
    what = counted(len(kernels), "kernel") if len(kernels) else counted(len(rest), "copy or memset", "copies and memsets")
    also = f" (and {counted(len(rest), 'copy or memset', 'copies and memsets')})" if len(kernels) and len(rest) else ""
    touched = [f"{label} for {milliseconds(ns)}" for label, ns in beside.items() if ns]
    names = [capture.name(name) for name in dict.fromkeys(kernels.name.tolist())]
    return Finding(
        topic=Topic.STRAY,
        text=(
            f"{what}{also} ran outside every green context inside {title}, which uses green contexts: "
            f"{f'{listed(names, 3)}, ' if names else ''}{milliseconds(busy_ns(kernels if len(kernels) else rest))} busy on "
            f"{listed(streams)}{f', beside {listed(touched)}' if touched else ''}; "
            "launch this work on the stream of a green context"
        ),
        where=title,
        count=len(kernels),
        total_ns=total(kernels.duration),
        evidence={
            "kernels": len(kernels),
            "busy_ns": spans.length,
            "copies_and_memsets": len(rest),
            "overlap_ns": beside,
            "by_stream": _by_stream(kernels),
            "list": work_list(capture, work),
        },
        rows=rows_of_work(work),
    )


def stream_words(capture: Capture, work: Work) -> list[str]:
    """Name the streams of some work: the null stream, or its number with the priority where it has one."""
    known = {stream.stream: stream for stream in capture.streams}
    words = []
    for stream in np.unique(work.stream).tolist():
        facts = known.get(stream)
        null = " (the default stream)" if facts is not None and facts.flag == NULL_STREAM else ""
        priority = f" (priority {facts.priority})" if facts is not None and facts.priority and not null else ""
        words.append(f"stream {stream}{null}{priority}")
    return words


def _by_stream(work: Work) -> dict[str, int]:
    streams, counts = np.unique(work.stream, return_counts=True)
    return dict(zip(map(str, streams.tolist()), counts.tolist(), strict=True))


def _title(capture: Capture, group: int) -> str:
    first = int(np.argmax(capture.ranges.group == group))
    return f"{capture.texts[capture.ranges.domain[first]]}:{capture.texts[capture.ranges.name[first]]}"


def find_graphs(capture: Capture, stray_range: Ints) -> Iterator[Finding]:
    """Yield findings on graph replays that left their partition, where the trace has their kernels or whole graphs.

    A replay left it when part of its kernels ran in a green context and part in none, when its node ran in a green context in
    another replay, or when all of it ran in none inside a range that uses green contexts.
    """
    work, calls = capture.work, capture.calls
    launches = [key for key, name in capture.names.items() if act_of(name) is Act.GRAPH_LAUNCH]
    called = work.call >= 0
    by_call = np.zeros(len(work), np.bool_)
    by_call[called] = np.isin(calls.name[work.call[called]], np.array(launches, np.int64))
    replayed = work.computes & (by_call | (work.node >= 0))
    outside = replayed & (work.green == 0)
    if not outside.any():
        return
    green_calls, green_nodes = (_green(capture, replayed, column) for column in (work.call, work.node))
    split = outside & called & np.isin(work.call, green_calls)
    moved = outside & (work.node >= 0) & np.isin(_keyed(work, work.node), green_nodes) & ~split
    whole = outside & (stray_range >= 0) & ~split & ~moved
    for which, how in (
        (split, "while other kernels of the same replay ran in a green context"),
        (moved, "although the same nodes ran in a green context in other replays"),
        (whole, "inside a range that uses green contexts"),
    ):
        if which.any():
            yield _graph_finding(capture, work.take(which), how)


def _keyed(work: Work, column: Ints) -> Ints:
    """Return a column as numbers of pairs with the process, in whose space its ids are."""
    processes, ids = coded(work.process)[1], coded(column)[1]
    keys: Ints = processes * (int(ids.max(initial=0)) + 1) + ids
    return keys


def _green(capture: Capture, replayed: Flags, column: Ints) -> Ints:
    work = capture.work
    keys = _keyed(work, column) if column is work.node else column
    found: Ints = np.unique(keys[replayed & (work.green > 0) & (column >= 0)])
    return found


def _graph_finding(capture: Capture, work: Work, how: str) -> Finding:
    replays = len(np.unique(work.call))
    names = [capture.name(name) for name in dict.fromkeys(work.name[work.kind == 0].tolist())]
    return Finding(
        topic=Topic.GRAPH,
        text=(
            f"{counted(replays, 'graph replay')} left the partition: {counted(len(work), 'kernel')} "
            f"({listed(names, 3) or 'traced as whole graphs'}) ran outside every green context {how}; capture the graph on the "
            "stream of that green context"
        ),
        where="",
        count=replays,
        total_ns=total(work.duration),
        evidence={"kernels": len(work), "replays": replays, "list": work_list(capture, work)},
        rows=rows_of_work(work),
    )
