"""A timeline in Chrome's trace format, for ui.perfetto.dev: GPU work by context and stream, API calls and ranges by thread.

Written event by event, so that a large capture needs no memory for its text; times are µs with three decimals from the first
event on. Slices of one track must nest, so work that overlaps on one stream spills to further tracks.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from greenbench.storage import replacing
from greenbench.timeline.attribution import Attribution
from greenbench.timeline.capture import NOTHING, Capture, Kind, Ranges, Work, pid_of
from greenbench.timeline.figures import segments
from greenbench.timeline.intervals import Ints, Spans, active_times

_HOST_PIDS = 1_000_000
_MOST_COUNTS = 200_000
_TID = (1 << 24) - 1
# Tracks of one thread for its ranges, and as many for its API calls: what crosses another slice goes to the next one.
_TRACKS = 32
Event = dict[str, object]


def write_trace(capture: Capture, attribution: Attribution, path: Path) -> None:
    """Write the whole capture to a file, which is replaced at once when all is written."""
    with replacing(path) as file:
        file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        for index, event in enumerate(trace_events(capture, attribution)):
            file.write(f"{',' if index else ''}{json.dumps(event, separators=(',', ':'))}\n".encode())
        file.write(b"]}\n")


def trace_events(capture: Capture, attribution: Attribution) -> Iterator[Event]:
    """Yield the names of tracks, then all slices and counters in the order of time."""
    work, calls, ranges = capture.work, capture.calls, capture.ranges
    tracks, names = _work_tracks(capture)
    threads = np.unique(np.concatenate((calls.thread, ranges.thread))).tolist()
    yield from _metadata(capture, names, threads)
    zero = min([int(part.min()) for part in (work.start, calls.start, ranges.start) if len(part)], default=0)
    innermost = attribution.of_work(capture)
    streams = (
        _work_slices(capture, tracks, innermost, zero),
        _call_slices(capture, zero),
        _range_slices(capture, zero),
        _counters(capture, zero),
    )
    for _, event in heapq.merge(*streams, key=lambda each: each[0]):
        yield event


def _us(ns: int) -> float:
    return round(ns / 1000, 3)


def _track(thread: int, level: int) -> int:
    return (thread & _TID) * 2 * _TRACKS + level


def _metadata(capture: Capture, names: list[tuple[int, str]], threads: list[int]) -> Iterator[Event]:
    for device in sorted({each.device for each in capture.contexts}):
        gpu = capture.gpus.get(device)
        yield _named("process_name", device, 0, f"GPU {device}{f' {gpu.name}' if gpu else ''}")
    for track, (device, name) in enumerate(names, start=1):
        yield _named("thread_name", device, track, name)
        yield {"ph": "M", "name": "thread_sort_index", "pid": device, "tid": track, "args": {"sort_index": track}}
    for process in sorted({pid_of(thread) for thread in threads}):
        yield _named("process_name", _HOST_PIDS + process, 0, f"process {process}")
    for thread in threads:
        tid = thread & _TID
        yield _named("thread_name", _HOST_PIDS + pid_of(thread), _track(thread, 0), f"thread {tid} NVTX")
        yield _named("thread_name", _HOST_PIDS + pid_of(thread), _track(thread, _TRACKS), f"thread {tid} CUDA API")


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _work_tracks(capture: Capture) -> tuple[Ints, list[tuple[int, str]]]:
    """Return the track of each piece of work, from 1 on, and (device, name) of each track."""
    work = capture.work
    tracks = np.zeros(len(work), np.int64)
    names: list[tuple[int, str]] = []
    order = np.lexsort((-work.end, work.start, work.stream, work.place))
    changed = (np.diff(work.place[order], prepend=-1) != 0) | (np.diff(work.stream[order], prepend=-1) != 0)
    edges = [*np.flatnonzero(changed).tolist(), len(work)]
    for first, last in pairwise(edges):
        part = order[first:last]
        spill = _spill(work.start[part], work.end[part])
        tracks[part] = spill + len(names) + 1
        context = capture.contexts[int(work.place[part[0]])]
        sms = f" - {context.sms} SMs" if context.sms else ""
        label = f"{context.label}{sms} - stream {int(work.stream[part[0]])}"
        names += [(context.device, label if not more else f"{label} ({more + 1})") for more in range(int(spill.max()) + 1)]
    return tracks, names


def _spill(start: Ints, end: Ints) -> Ints:
    """Return 0 for work that fits the track of its stream, and the number of a further track for what overlaps."""
    lanes = np.zeros(len(start), np.int64)
    if (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return lanes
    ends: list[tuple[int, int]] = []
    free: list[int] = []
    used = 0
    for index, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while ends and ends[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(ends)[1])
        lane = heapq.heappop(free) if free else used
        used = max(used, lane + 1)
        lanes[index] = lane
        heapq.heappush(ends, (stop, lane))
    return lanes


def _slice(name: str, place: tuple[int, int], start: int, length: int, category: str, args: Event) -> Event:
    pid, tid = place
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": _us(start),
        "dur": _us(length),
        "args": args,
    }


def _work_slices(capture: Capture, tracks: Ints, innermost: Ints, zero: int) -> Iterator[tuple[int, Event]]:
    work: Work = capture.work
    for index in np.argsort(work.start, kind="stable").tolist():
        kind, start = Kind(int(work.kind[index])), int(work.start[index])
        name = capture.name(int(work.name[index])) if kind is Kind.KERNEL else kind.name.lower()
        args: Event = {"correlation": int(work.correlation[index]), "row": int(work.row[index])}
        if work.node[index] != NOTHING:
            args["graphNodeId"] = int(work.node[index])
        if innermost[index] >= 0:
            args["range"] = capture.texts[int(capture.ranges.name[innermost[index]])]
        if work.size[index] != NOTHING:
            args["bytes"] = int(work.size[index])
        place = int(work.device[index]), int(tracks[index])
        yield start, _slice(name, place, start - zero, int(work.end[index]) - start, kind.name.lower(), args)


def _call_slices(capture: Capture, zero: int) -> Iterator[tuple[int, Event]]:
    calls = capture.calls
    level = _nested(calls.thread, calls.start, calls.end)
    for index in range(len(calls)):
        start, thread = int(calls.start[index]), int(calls.thread[index])
        place = _HOST_PIDS + pid_of(thread), _track(thread, _TRACKS + int(level[index]))
        args: Event = {"correlation": int(calls.correlation[index]), "row": int(calls.row[index])}
        name = capture.name(int(calls.name[index]))
        yield start, _slice(name, place, start - zero, int(calls.end[index]) - start, "api", args)


def _range_slices(capture: Capture, zero: int) -> Iterator[tuple[int, Event]]:
    """Yield ranges, which cross each other where they are start/end ranges."""
    ranges: Ranges = capture.ranges
    level = _nested(ranges.thread, ranges.start, ranges.end)
    for index in np.lexsort((-ranges.end, ranges.start)).tolist():
        start, thread = int(ranges.start[index]), int(ranges.thread[index])
        place = _HOST_PIDS + pid_of(thread), _track(thread, int(level[index]))
        args: Event = {"domain": capture.texts[int(ranges.domain[index])], "row": int(ranges.row[index])}
        name = capture.texts[int(ranges.name[index])]
        yield start, _slice(name, place, start - zero, int(ranges.end[index]) - start, "nvtx", args)


def _nested(thread: Ints, start: Ints, end: Ints) -> Ints:
    """Return the first track of its thread on which each slice nests; what fits none of them is on the last and may cross."""
    level = np.zeros(len(thread), np.int64)
    stacks: list[list[int]] = []
    owner: int | None = None
    order = np.lexsort((-end, start, thread))
    columns = (order.tolist(), thread[order].tolist(), start[order].tolist(), end[order].tolist())
    for index, tid, begin, stop in zip(*columns, strict=True):
        if tid != owner:
            owner, stacks = tid, [[] for _ in range(_TRACKS)]
        for track, stack in enumerate(stacks):
            while stack and stack[-1] <= begin:
                stack.pop()
            if not stack or stop <= stack[-1] or track == _TRACKS - 1:
                stack.append(stop)
                level[index] = track
                break
    return level


def _counters(capture: Capture, zero: int) -> Iterator[tuple[int, Event]]:
    """Yield, per context, how many of its kernels run at once; contexts with too many changes to be drawn are left out."""
    tracks = []
    for part in segments(capture.work):
        if 2 * len(part.work) <= _MOST_COUNTS:
            times, active = active_times([Spans(part.work.start, part.work.end)])
            last = np.append(np.diff(times) > 0, True)
            tracks.append(_counter(capture, part.place, times[last], active[last], zero))
    yield from heapq.merge(*tracks, key=lambda each: each[0])


def _counter(capture: Capture, place: int, times: Ints, active: Ints, zero: int) -> Iterator[tuple[int, Event]]:
    context = capture.contexts[place]
    for time, count in zip(times.tolist(), active.tolist(), strict=True):
        name = f"active kernels {context.label}"
        yield time, {"ph": "C", "name": name, "pid": context.device, "ts": _us(time - zero), "args": {"kernels": count}}
