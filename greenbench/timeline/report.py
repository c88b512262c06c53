"""An analysis for machines: one JSON object with everything, and one table of contexts and pairs. Times are integer ns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from greenbench.timeline.analysis import Analysis
from greenbench.timeline.api import Act, calls_that
from greenbench.timeline.capture import NOTHING, Capture, pid_of
from greenbench.timeline.figures import ContextFigures, DeviceFigures, Figures, KernelTotal
from greenbench.timeline.finding import busy_ns, work_list
from greenbench.timeline.gaps import Gaps
from greenbench.timeline.intervals import total
from greenbench.timeline.ranges import RangeFigures

SCHEMA = 1
# Kernels by name and rows that are listed; counts always hold all.
MOST_NAMES = 100
MOST_LISTED = 1_000
_DIGITS = 9


def as_json(analysis: Analysis, gaps: Sequence[tuple[RangeFigures, tuple[Gaps, ...]]] = ()) -> dict[str, object]:
    """Return the analysis as plain values; a figure that the file does not give is null, never 0."""
    capture = analysis.capture
    return {
        "schema": SCHEMA,
        "file": capture.source,
        "export": {"EXPORT_PRODUCT_VERSION": capture.product or None, "EXPORT_SCHEMA_VERSION": capture.schema or None},
        "row_counts": dict(capture.row_counts),
        "devices": {str(key): {"name": gpu.name, "sms": gpu.sms} for key, gpu in capture.gpus.items()},
        "context_info": [_context_row(row) for row in capture.context_rows],
        "whole_file": figures_json(analysis.whole),
        "ranges": [_range(analysis, found) for found in analysis.ranges],
        "kernels_outside_every_range": analysis.outside,
        "stray_kernels": None if analysis.unchecked else analysis.strays,
        "stray_check": analysis.unchecked or "done",
        "findings": [asdict(finding) for finding in analysis.findings],
        "gaps": [_gaps(found, each) for found, parts in gaps for each in parts],
        "streams": _streams(capture),
        "synchronization_rows": _waits(capture),
        "possibly_synchronising_api_calls": _synchronising(analysis),
        "launch_api_calls": _launches(capture),
        "notes": list(analysis.notes),
    }


def figures_json(figures: Figures) -> dict[str, object]:
    """Return the figures of a set; `device` are those of the only device, null where there are several."""
    devices = {str(each.device): _device(each) for each in figures.devices}
    return {
        "kernels": figures.kernels,
        "graphs": figures.graphs,
        "memcpy": figures.copies,
        "memset": figures.memsets,
        "total_ns": figures.total_ns,
        "contexts": {each.label: _context(each) for each in figures.contexts},
        "pairs": [
            {
                "a": pair.a,
                "b": pair.b,
                "overlap_ns": pair.overlap_ns,
                "fraction_of_smaller": round(pair.of_smaller, _DIGITS),
                "fraction_of_a": round(pair.of_a, _DIGITS),
                "fraction_of_b": round(pair.of_b, _DIGITS),
            }
            for pair in figures.pairs
        ],
        "contexts_without_pairs": figures.unpaired,
        "device": next(iter(devices.values())) if len(devices) == 1 else None,
        "devices": devices,
        "by_kernel": _names(figures.by_kernel),
    }


def _context(each: ContextFigures) -> dict[str, object]:
    return {
        "device": each.device,
        "sms": each.sms,
        "kernels": each.kernels,
        "graphs": each.graphs,
        "total_ns": each.total_ns,
        "busy_ns": each.busy_ns,
        "first_start_ns": each.first_start_ns,
        "last_end_ns": each.last_end_ns,
        "streams": list(each.streams),
        "by_kernel": _names(each.by_kernel),
        "idle": asdict(each.idle),
        "queue": asdict(each.queue) if each.queue else None,
    }


def _device(each: DeviceFigures) -> dict[str, object]:
    return {
        "span_ns": each.span_ns,
        "busy_ns": each.busy_ns,
        "busy_fraction": round(each.busy_ns / each.span_ns, _DIGITS) if each.span_ns else None,
        "two_or_more_contexts_ns": each.several_ns,
        "by_active_contexts_ns": {str(active): ns for active, ns in sorted(each.by_active_ns.items())},
        "max_concurrent_kernels": each.most_kernels,
        "max_concurrent_kernels_per_context": dict(each.most_per_context),
    }


def _names(by_kernel: Mapping[str, KernelTotal]) -> dict[str, dict[str, int]]:
    shown = {name: asdict(each) for name, each in list(by_kernel.items())[:MOST_NAMES]}
    rest = list(by_kernel.values())[MOST_NAMES:]
    if rest:
        shown["(others)"] = {"count": sum(each.count for each in rest), "total_ns": sum(each.total_ns for each in rest)}
    return shown


def _range(analysis: Analysis, found: RangeFigures) -> dict[str, object]:
    capture = analysis.capture
    strays = capture.work.take(found.work[analysis.stray_range[found.work] >= 0])
    kernels = strays.take(strays.computes)
    streams, counts = np.unique(kernels.stream, return_counts=True)
    projection = found.projection
    first = int(np.argmax(capture.ranges.group == found.group))
    return {
        "domain": found.domain,
        "name": found.name,
        "category": found.category or None,
        "depth": found.depth,
        "row": int(capture.ranges.row[first]),
        "instances": found.instances,
        "start_ns": found.start_ns,
        "end_ns": found.end_ns,
        "duration_ns": found.duration_ns,
        "gpu_projection": {
            "start_ns": projection.start_ns,
            "end_ns": projection.end_ns,
            "duration_ns": projection.total_ns,
            "distinct_correlations": projection.operations,
        }
        if projection
        else None,
        **figures_json(found.figures),
        "exempt": found.exempt,
        "stray_kernels": None
        if analysis.unchecked
        else {
            "count": len(kernels),
            "total_ns": total(kernels.duration),
            "busy_ns": busy_ns(kernels),
            "by_stream": dict(zip(map(str, streams.tolist()), counts.tolist(), strict=True)),
            "list": work_list(capture, kernels),
        },
        "api_calls": dict(found.calls),
    }


def _gaps(found: RangeFigures, each: Gaps) -> dict[str, object]:
    by_cause = {cause.name.lower(): ns for cause, ns in each.by_cause.items()}
    counts = {"gaps": each.gaps, "total_ns": each.total_ns, "longest_ns": each.longest_ns}
    return {"domain": found.domain, "name": found.name, "context": each.context, **counts, "by_cause_ns": by_cause}


def _context_row(row: object) -> dict[str, object]:
    names = {
        "context": "contextId",
        "parent": "parentContextId",
        "green": "isGreenContext",
        "null_stream": "nullStreamId",
        "device": "deviceId",
        "sms": "numMultiprocessors",
    }
    found = {name: getattr(row, own) for own, name in names.items()}
    return found | {"isGreenContext": int(bool(found["isGreenContext"]))}


def _stream_contexts(capture: Capture) -> dict[tuple[int, int], str]:
    """Return the context of each stream that ran a kernel; the table of streams knows the parent alone."""
    work = capture.work.take(capture.work.computes)
    pairs = np.unique(np.stack((work.stream, work.place)), axis=1).T.tolist()
    return {(pid_of(capture.contexts[place].process), stream): capture.contexts[place].label for stream, place in pairs}


def _streams(capture: Capture) -> dict[str, dict[str, object]]:
    known = _stream_contexts(capture)
    several = len({stream.pid for stream in capture.streams}) > 1
    return {
        f"{stream.stream}@{stream.pid}" if several else str(stream.stream): {
            "priority": stream.priority,
            "flag": stream.flag,
            "context": known.get((stream.pid, stream.stream)),
        }
        for stream in sorted(capture.streams, key=lambda each: (each.pid, each.stream))[:MOST_LISTED]
    }


def _waits(capture: Capture) -> list[dict[str, object]]:
    known, waits = _stream_contexts(capture), capture.waits.take(np.arange(min(len(capture.waits), MOST_LISTED)))
    order = np.argsort(capture.calls.correlation, kind="stable")
    spots = np.searchsorted(capture.calls.correlation[order], waits.correlation)
    found: list[dict[str, object]] = []
    for index, spot in enumerate(spots.tolist()):
        match = order[spot] if spot < len(order) else NOTHING
        hit = match >= 0 and capture.calls.correlation[match] == waits.correlation[index]
        stream = int(waits.stream[index])
        found.append(
            {
                "row": int(waits.row[index]),
                "api": capture.name(capture.calls.name[match]) if hit else None,
                "syncType_raw": int(waits.kind[index]),
                "streamId": stream,
                "context_via_stream": known.get((pid_of(int(waits.process[index])), stream)),
                "start_ns": int(waits.start[index]),
                "duration_ns": int(waits.end[index] - waits.start[index]),
            }
        )
    return found


def _synchronising(analysis: Analysis) -> list[dict[str, object]]:
    capture, attribution = analysis.capture, analysis.attribution
    which = np.flatnonzero(calls_that(capture, Act.WAIT, Act.COPY, Act.ALLOCATION, Act.MODULE))[:MOST_LISTED]
    ranges = capture.ranges
    found: list[dict[str, object]] = []
    order = np.argsort(attribution.watched, kind="stable")
    edges = np.searchsorted(attribution.watched[order], np.stack((which, which + 1)))
    for index, first, last in zip(which.tolist(), *edges.tolist(), strict=True):
        around = sorted(attribution.watched_range[order[first:last]].tolist())
        found.append(
            {
                "row": int(capture.calls.row[index]),
                "api": capture.name(capture.calls.name[index]),
                "correlationId": int(capture.calls.correlation[index]),
                "start_ns": int(capture.calls.start[index]),
                "duration_ns": int(capture.calls.end[index] - capture.calls.start[index]),
                "ranges": [f"{capture.texts[ranges.domain[each]]}:{capture.texts[ranges.name[each]]}" for each in around],
            }
        )
    return found


def _launches(capture: Capture) -> dict[str, int]:
    launches = np.flatnonzero(calls_that(capture, Act.LAUNCH, Act.GRAPH_LAUNCH))
    without = ~np.isin(launches, capture.work.call[capture.work.computes])
    return {"total": len(launches), "without_kernel_row": int(without.sum())}


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of --csv: a context or a pair of contexts (`beside` is the other), of the whole file or of a range."""

    scope: str
    domain: str
    range: str
    device: int | None
    context: str
    beside: str = ""
    sms: int | None = None
    kernels: int | None = None
    total_ns: int | None = None
    busy_ns: int | None = None
    idle_ns: int | None = None
    gaps: int | None = None
    longest_gap_ns: int | None = None
    queue_p50_ns: int | None = None
    queue_p99_ns: int | None = None
    overlap_ns: int | None = None
    fraction_of_smaller: float | None = None


def table(analysis: Analysis) -> Iterator[TableRow]:
    """Yield a line per context and per pair: of the whole file first, then of each range."""
    yield from _lines("file", "", "", analysis.whole)
    for found in analysis.ranges:
        yield from _lines("range", found.domain, found.name, found.figures)


def _lines(scope: str, domain: str, name: str, figures: Figures) -> Iterator[TableRow]:
    devices = {each.label: each.device for each in figures.contexts}
    for each in figures.contexts:
        yield TableRow(
            *(scope, domain, name, each.device, each.label),
            sms=each.sms,
            kernels=each.kernels + each.graphs,
            total_ns=each.total_ns,
            busy_ns=each.busy_ns,
            idle_ns=each.idle.total_ns,
            gaps=each.idle.gaps,
            longest_gap_ns=each.idle.longest_ns,
            queue_p50_ns=each.queue.p50_ns if each.queue else None,
            queue_p99_ns=each.queue.p99_ns if each.queue else None,
        )
    for pair in figures.pairs:
        share = round(pair.of_smaller, _DIGITS)
        yield TableRow(
            *(scope, domain, name, devices[pair.a], pair.a, pair.b), overlap_ns=pair.overlap_ns, fraction_of_smaller=share
        )
