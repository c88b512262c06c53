"""Figures of a set of work: kernels, total and busy time per context, idle gaps, queueing time and pairwise overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from greenbench.timeline.capture import NOTHING, Capture, Kind, Work
from greenbench.timeline.intervals import (
    Flags,
    Ints,
    Spans,
    coded,
    merge_sorted,
    most_at_once,
    overlap,
    time_by_active,
    total,
    union,
)

# Pairs are made of the contexts with the most busy time; 64 of them give 2016 pairs.
MOST_PAIRED = 64


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """How often a kernel ran, and the sum of its durations in ns."""

    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Queue:
    """From the end of the API call to the start on the GPU, in ns, per call (its first kernel); negative if it began before."""

    launches: int
    p50_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Time between the first start and the last end of a context in which nothing of it ran."""

    gaps: int
    total_ns: int
    longest_ns: int
    longest_at_ns: int | None


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """One context within a set: `busy_ns` is the length of the union of its intervals, `total_ns` the sum of durations."""

    label: str
    device: int
    sms: int | None
    kernels: int
    graphs: int
    total_ns: int
    busy_ns: int
    first_start_ns: int
    last_end_ns: int
    streams: tuple[int, ...]
    by_kernel: Mapping[str, KernelTotal]
    idle: Idle
    queue: Queue | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two contexts of one device: length of the intersection of their unions, and what share of each it is."""

    a: str
    b: str
    overlap_ns: int
    of_a: float
    of_b: float

    @property
    def of_smaller(self) -> float:
        """Overlap over the smaller busy time."""
        return max(self.of_a, self.of_b)


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """All contexts of one device together; `by_active_ns` splits the span by how many contexts ran at once."""

    device: int
    span_ns: int
    busy_ns: int
    by_active_ns: Mapping[int, int]
    most_kernels: int
    most_per_context: Mapping[str, int]

    @property
    def several_ns(self) -> int:
        """Time in which two or more contexts ran."""
        return sum(ns for active, ns in self.by_active_ns.items() if active > 1)


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything about one set of work."""

    kernels: int
    graphs: int
    copies: int
    memsets: int
    total_ns: int
    contexts: tuple[ContextFigures, ...]
    pairs: tuple[Pair, ...]
    devices: tuple[DeviceFigures, ...]
    by_kernel: Mapping[str, KernelTotal]
    unpaired: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The computing work of one context within a set: its place, the work and the union of its intervals."""

    place: int
    work: Work
    busy: Spans


def segments(work: Work) -> Iterator[Segment]:
    """Split work, which is in the order of a Capture, by context; copies and memsets are left out."""
    computing = work.computing()
    edges = [*np.flatnonzero(np.diff(computing.place, prepend=NOTHING)).tolist(), len(computing)]
    for start, end in pairwise(edges):
        part = computing.take(slice(start, end))
        yield Segment(int(part.place[0]), part, merge_sorted(part.start, part.end))


def figures_of(capture: Capture, which: Ints | Flags | None = None) -> Figures:
    """Return the figures of some of a capture's work (positions in ascending order or a mask), or of all."""
    work = capture.work if which is None else capture.work.take(which)
    parts = list(segments(work))
    devices = sorted({capture.contexts[part.place].device for part in parts})
    by_device = {device: [part for part in parts if capture.contexts[part.place].device == device] for device in devices}
    paired = {device: sorted(parts, key=lambda part: -part.busy.length)[:MOST_PAIRED] for device, parts in by_device.items()}
    pairs = [
        _pair(capture, a, b) for some in paired.values() for a, b in combinations(sorted(some, key=lambda part: part.place), 2)
    ]
    computing = work.computing()
    return Figures(
        kernels=int((work.kind == int(Kind.KERNEL)).sum()),
        graphs=int((work.kind == int(Kind.GRAPH)).sum()),
        copies=int((work.kind == int(Kind.COPY)).sum()),
        memsets=int((work.kind == int(Kind.MEMSET)).sum()),
        total_ns=total(computing.duration),
        contexts=tuple(_context(capture, part) for part in parts),
        pairs=tuple(pairs),
        devices=tuple(_device(capture, device, some) for device, some in by_device.items()),
        by_kernel=_by_kernel(capture, computing),
        unpaired=sum(len(parts) - len(paired[device]) for device, parts in by_device.items()),
    )


def _context(capture: Capture, part: Segment) -> ContextFigures:
    context, work = capture.contexts[part.place], part.work
    graphs = int((work.kind == int(Kind.GRAPH)).sum())
    return ContextFigures(
        label=context.label,
        device=context.device,
        sms=context.sms,
        kernels=len(work) - graphs,
        graphs=graphs,
        total_ns=total(work.duration),
        busy_ns=part.busy.length,
        first_start_ns=int(work.start[0]),
        last_end_ns=int(work.end.max()),
        streams=tuple(coded(work.stream)[0].tolist()),
        by_kernel=_by_kernel(capture, work),
        idle=_idle(part.busy),
        queue=_queue(capture, work),
    )


def _by_kernel(capture: Capture, work: Work) -> dict[str, KernelTotal]:
    """Return count and total by kernel name, the longest total first; a graph traced whole is named by its id."""
    keys = np.where(work.kind == int(Kind.GRAPH), -2 - work.name, work.name)
    values, code = coded(keys)
    counts = np.bincount(code, minlength=len(values))
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, code, work.duration)
    found: dict[str, KernelTotal] = {}
    for key, count, ns in sorted(zip(values.tolist(), counts.tolist(), sums.tolist(), strict=True), key=lambda each: -each[2]):
        name = f"graph {-2 - key}" if key < -1 else capture.name(key)
        have = found.get(name, KernelTotal(0, 0))
        found[name] = KernelTotal(have.count + count, have.total_ns + ns)
    return found


def _idle(busy: Spans) -> Idle:
    gaps = busy.gaps()
    if not len(gaps):
        return Idle(0, 0, 0, None)
    widths = gaps.end - gaps.start
    longest = int(widths.argmax())
    return Idle(len(gaps), gaps.length, int(widths[longest]), int(gaps.start[longest]))


def queue_times(capture: Capture, work: Work) -> Ints:
    """Return start less end of the API call for the first piece of work of each call, in ns."""
    called = work.take(work.call >= 0)
    order = np.lexsort((called.start, called.call))
    calls = called.call[order]
    first = order[np.concatenate((np.ones(min(len(calls), 1), np.bool_), calls[1:] != calls[:-1]))]
    waited: Ints = called.start[first] - capture.calls.end[called.call[first]]
    return waited


def _queue(capture: Capture, work: Work) -> Queue | None:
    """Return nearest-rank percentiles of the queueing time, or None where no API call is known."""
    waited = queue_times(capture, work)
    if not len(waited):
        return None
    p50, p99 = np.percentile(waited, (50, 99), method="inverted_cdf").tolist()
    return Queue(len(waited), int(p50), int(p99))


def _pair(capture: Capture, a: Segment, b: Segment) -> Pair:
    both = overlap(a.busy, b.busy)
    shares = [both / part.busy.length if part.busy.length else 0.0 for part in (a, b)]
    return Pair(capture.contexts[a.place].label, capture.contexts[b.place].label, both, shares[0], shares[1])


def _device(capture: Capture, device: int, parts: list[Segment]) -> DeviceFigures:
    sets = [part.busy for part in parts]
    start = np.concatenate([part.work.start for part in parts])
    end = np.concatenate([part.work.end for part in parts])
    return DeviceFigures(
        device=device,
        span_ns=int(end.max() - start.min()),
        busy_ns=union(*sets).length,
        by_active_ns=_with_edges(time_by_active(sets), int(end.max() - start.min())),
        most_kernels=most_at_once(start, end),
        most_per_context={capture.contexts[part.place].label: most_at_once(part.work.start, part.work.end) for part in parts},
    )


def _with_edges(split: dict[int, int], span: int) -> dict[int, int]:
    """Add what a kernel of no length at the edge of the span leaves idle, so that the split sums to the span."""
    return split | {0: split.get(0, 0) + span - sum(split.values())}
