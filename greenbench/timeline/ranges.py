"""NVTX ranges as a user meets them: one entry per domain and name, with the work that was launched in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from greenbench.timeline.attribution import Attribution
from greenbench.timeline.capture import NOTHING, Capture
from greenbench.timeline.figures import Figures, figures_of
from greenbench.timeline.intervals import Flags, Ints, coded, distinct, total

OWN_DOMAIN = "greenbench"
# Ranges with the most work; each costs one pass over that work.
MOST_RANGES = 200
# Work of these ranges is meant to run outside green contexts: warm-up, flush and filler, and mechanisms without partitions.
SETUP = "setup"
UNPARTITIONED = frozenset(
    {"streams", "priority", "alone", "primary", "setup"}
    # One role of these has a green context, the other none, as the user asked.
    | {"green_background", "green_primary"}
)
_SMS = re.compile(r"(?:^|[^A-Za-z0-9_])sms=([0-9]{1,5})(?![0-9])")
_SMS_BITS = 16


@dataclass(frozen=True, slots=True)
class Projection:
    """First start to last end of all GPU work of a range; `total_ns` sums this over its instances."""

    start_ns: int
    end_ns: int
    total_ns: int
    operations: int


@dataclass(frozen=True, slots=True)
class RangeFigures:
    """All instances of one name in one domain; `work` are positions in Capture.work, ascending."""

    domain: str
    name: str
    category: str
    group: int
    instances: int
    depth: int
    start_ns: int
    end_ns: int
    duration_ns: int
    projection: Projection | None
    exempt: bool
    figures: Figures
    work: Ints
    calls: Mapping[str, int]

    @property
    def title(self) -> str:
        """Domain and name as nsys writes them."""
        return f"{self.domain}:{self.name}"


def in_domain(capture: Capture, domain: str | None) -> Capture:
    """Return a capture with the ranges of one domain alone (`` is the default domain); None keeps all."""
    if domain is None:
        return capture
    wanted = [index for index, text in enumerate(capture.texts) if text == domain]
    kept = np.isin(capture.ranges.domain, np.array(wanted, np.int64))
    ranges = capture.ranges.take(kept)
    ranges = replace(ranges, group=coded(ranges.group)[1])
    if kept.any() or not len(capture.ranges):
        return replace(capture, ranges=ranges)
    seen = ", ".join(repr(capture.texts[index]) for index in np.unique(capture.ranges.domain).tolist()[:10])
    note = f"no range in domain {domain!r} (domains seen: {seen}), so only figures of the whole file are given"
    return replace(capture, ranges=ranges, notes=(*capture.notes, note))


def exempt_ranges(capture: Capture) -> Flags:
    """Return which ranges are meant to hold work outside green contexts: category `setup`, or so named by greenbench."""
    ranges, texts = capture.ranges, capture.texts
    setup = [index for index, text in enumerate(texts) if text == SETUP]
    named = [index for index, text in enumerate(texts) if UNPARTITIONED & set(re.split(r"[^a-z_]+", text.lower()))]
    own = [index for index, text in enumerate(texts) if text == OWN_DOMAIN]
    in_own = np.isin(ranges.domain, np.array(own, np.int64)) & np.isin(ranges.name, np.array(named, np.int64))
    found: Flags = np.isin(ranges.category, np.array(setup, np.int64)) | in_own
    return found


def green_ranges(capture: Capture, attribution: Attribution) -> Flags:
    """Return which ranges have kernels in a green context."""
    work = capture.work
    found = np.zeros(len(capture.ranges), np.bool_)
    inside = work.computes[attribution.work] & (work.green[attribution.work] > 0)
    found[attribution.range[inside]] = True
    return found


def range_figures(capture: Capture, attribution: Attribution) -> tuple[tuple[RangeFigures, ...], int]:
    """Return the ranges in the order of their first start, and how many with less work were left out."""
    ranges = capture.ranges
    groups = int(ranges.group.max(initial=-1)) + 1
    order = np.argsort(ranges.group[attribution.range], kind="stable")
    sorted_groups = ranges.group[attribution.range[order]]
    edges = np.searchsorted(sorted_groups, np.arange(groups + 1))
    sizes = np.diff(edges)
    shown = np.argsort(-sizes, kind="stable")[:MOST_RANGES]
    calls: dict[int, dict[str, int]] = {int(group): {} for group in shown}
    for (group, name), count in attribution.called.items():
        if group in calls:
            calls[group][capture.name(name)] = calls[group].get(capture.name(name), 0) + count
    exempt, level = exempt_ranges(capture), _depth(capture)
    found = []
    for group in shown.tolist():
        pairs = order[edges[group] : edges[group + 1]]
        of_group = np.flatnonzero(ranges.group == group)
        work = distinct(attribution.work[pairs], len(capture.work))
        figures = figures_of(capture, work)
        first = of_group[0]
        found.append(
            RangeFigures(
                domain=capture.texts[ranges.domain[first]],
                name=capture.texts[ranges.name[first]],
                category="" if ranges.category[first] == NOTHING else capture.texts[ranges.category[first]],
                group=group,
                instances=len(of_group),
                depth=int(level[of_group].min()),
                start_ns=int(ranges.start[of_group].min()),
                end_ns=int(ranges.end[of_group].max()),
                duration_ns=total(ranges.end[of_group] - ranges.start[of_group]),
                projection=_projection(capture, attribution.work[pairs], attribution.range[pairs]),
                exempt=bool(exempt[of_group].all()),
                figures=figures,
                work=work,
                calls=dict(sorted(calls[group].items())),
            )
        )
    return tuple(sorted(found, key=lambda each: (each.start_ns, -each.end_ns))), max(groups - MOST_RANGES, 0)


def _depth(capture: Capture) -> Ints:
    """Return how many ranges of its thread contain each range."""
    ranges = capture.ranges
    depth = np.zeros(len(ranges), np.int64)
    open_ends: list[int] = []
    thread: int | None = None
    for index, (owner, start, end) in enumerate(
        zip(ranges.thread.tolist(), ranges.start.tolist(), ranges.end.tolist(), strict=True)
    ):
        if owner != thread:
            thread, open_ends = owner, []
        while open_ends and -open_ends[-1] <= start:
            open_ends.pop()
        # Negative, so that they ascend; a range that crosses an open one is not in it, and nothing is in the crossing one.
        depth[index] = bisect_right(open_ends, -end)
        if depth[index] == len(open_ends):
            open_ends.append(-end)
    return depth


def _projection(capture: Capture, work: Ints, instance: Ints) -> Projection | None:
    if not len(work):
        return None
    start, end = capture.work.start[work], capture.work.end[work]
    of, position = coded(instance)
    first, last = np.full(len(of), start.max()), np.full(len(of), end.min())
    np.minimum.at(first, position, start)
    np.maximum.at(last, position, end)
    operations = len(distinct(capture.work.call[work], len(capture.calls)))
    return Projection(int(start.min()), int(end.max()), total(last - first), operations)


def with_reported_sms(capture: Capture, attribution: Attribution) -> Capture:
    """Fill in the SM counts of green contexts that the file does not have, from ranges that name the count of their lane.

    A range tells it as `sms=N` in its name or, in greenbench's own domain and category `kernel`, in the low 16 bits of its
    payload. It counts where all kernels of the range, those of setup ranges in it left out, ran in one green context;
    contradictions are a note.
    """
    ranges = capture.ranges
    told = {index: int(match[1]) for index, text in enumerate(capture.texts) if (match := _SMS.search(text))}
    own, kernel = (
        np.array([index for index, text in enumerate(capture.texts) if text == word], np.int64) for word in (OWN_DOMAIN, "kernel")
    )
    by_payload = np.isin(ranges.domain, own) & np.isin(ranges.category, kernel) & (ranges.payload > 0)
    named = np.isin(ranges.name, np.array(list(told), np.int64))
    computing = capture.work.computes[attribution.work] & (named | by_payload)[attribution.range]
    # A flush inside the range of a point runs elsewhere, and is no kernel of that point.
    exempt = exempt_ranges(capture)
    excused = np.zeros(len(capture.work), np.bool_)
    excused[attribution.work[exempt[attribution.range]]] = True
    computing &= exempt[attribution.range] | ~excused[attribution.work]
    place, where = capture.work.place[attribution.work[computing]], attribution.range[computing]
    lowest, highest = np.full(len(ranges), len(capture.contexts)), np.full(len(ranges), NOTHING)
    np.minimum.at(lowest, where, place)
    np.maximum.at(highest, where, place)
    votes: dict[int, set[int]] = {}
    for index in np.flatnonzero((lowest == highest) & (highest >= 0)).tolist():
        count = told.get(int(ranges.name[index])) or int(ranges.payload[index]) & ((1 << _SMS_BITS) - 1)
        votes.setdefault(int(highest[index]), set()).add(count)
    contexts, notes = list(capture.contexts), list(capture.notes)
    for spot, counts in votes.items():
        context = contexts[spot]
        if context.green and context.sms is None and len(counts) == 1:
            contexts[spot] = replace(context, sms=min(counts), sms_source="nvtx")
        elif context.green and context.sms is None:
            notes.append(f"ranges name different SM counts for {context.label} ({', '.join(map(str, sorted(counts)[:5]))})")
    if any(each.green and each.sms is None for each in contexts):
        notes.append("SMs of green contexts are not reported by this nsys")
    return replace(capture, contexts=tuple(contexts), notes=tuple(notes))
