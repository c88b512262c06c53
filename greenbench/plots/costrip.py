"""strip: a few milliseconds of every mechanism on one axis, both roles as bars, so that overlap is seen or missed."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from greenbench.cojournal import CoVisit, RoleVisit
from greenbench.colocation.outcomes import decisive
from greenbench.divisions import sglang_divisions
from greenbench.plots import style
from greenbench.plots.copoints import CLOSED, Case, Spot, duration, named
from greenbench.plots.mechanisms import look_of
from greenbench.plots.tailaxis import GREW, foot, foot_inches, told
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import BlockStatus, Status
from greenbench.stats import median
from greenbench.timeline.intervals import Spans, intersection, merge

LEFT, WIDE, RIGHT, BAND = 1.75, 6.35, 1.2, 0.44
# How much of the run is shown: so many latency steps and background steps, and never more bars than can be told apart.
STEPS, REQUESTS, MOST_STEPS = 4, 2.2, 60
BACKGROUND, BOTH = "#CBD2D9", "#7B8794"
KEY = "tick: a step is due · thin line: it waits · colour: it runs · grey: the background runs, dark where both are under way"

ALL_OF_IT = -(1 << 62), 1 << 62

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Band:
    """One mechanism in the strip: its visit, and the point that its figures come from."""

    spot: Spot
    latency: RoleVisit
    background: RoleVisit | None


@dataclass(frozen=True, slots=True)
class Window:
    """What is shown, in ns from the origin that all visits share."""

    start: int
    end: int

    def cut(self, intervals: Sequence[tuple[int, int]]) -> list[Interval]:
        """Return what of [start, end) intervals lies within, in ms from the window's start."""
        within = [(max(a, self.start), min(b, self.end)) for a, b in intervals if b >= self.start and a < self.end]
        return [((a - self.start) / 1e6, (b - self.start) / 1e6) for a, b in within]


def draw(case: Case, visits: Sequence[CoVisit]) -> Figure | None:
    """Return the strip of one case; None where no mechanism has stamps of both roles at its load."""
    case = case.at(case.load)
    bands = bands_of(case, visits)
    if not any(band.background for band in bands):
        return None
    window = window_of(bands, visits)
    width = LEFT + WIDE + RIGHT
    lines = told(case, width - 0.44)
    head = [*style.wrapped(case.words, width - 0.5, 9), style.fitted(KEY, width - 0.44, 9, "normal")]
    bottom, top = 0.84 + foot_inches(lines), 0.66 + 0.2 * len(head)
    frame = style.Frame(width, bottom + BAND * len(bands) + top)
    figure = frame.figure()
    axes = frame.axes(figure, LEFT, bottom, WIDE, BAND * len(bands))
    _lay_out(axes, window, len(bands))
    for row, band in enumerate(reversed(bands)):
        _bars(axes, band, window, row)
        _words(axes, case, band, row)
    shown = duration((window.end - window.start) / 1e3)
    what = case.apart or f"{case.latency.kernel} beside {case.background.kernel}"
    style.heading(figure, frame, case.run, f"The same {shown} under each mechanism: {what}", head)
    foot(figure, frame, case, lines)
    return figure


def bands_of(case: Case, visits: Sequence[CoVisit]) -> list[Band]:
    """Return the mechanisms in their fixed order, `alone` on the whole device first, each at one size, the same for all."""
    found: dict[tuple[str, int | None], Band] = {}
    for visit in decisive(visits):
        latency = visit.role(Kind.LATENCY)
        if latency is None or not latency.due_ns or not _belongs(case, visit, latency):
            continue
        alone = visit.mechanism is Mechanism.ALONE
        size = visit.sizes[0] if visit.sizes else None
        chunk = "" if visit.chunk is None else str(visit.chunk)
        name = named(visit.mechanism, chunk, visit.workqueue)
        spots = case.alone if alone else case.spots
        known = (spot for spot in spots if spot.latency is not None and spot.size == size and (alone or spot.name == name))
        spot = next(known, Spot(visit.mechanism, name, size, case.load))
        background = visit.role(Kind.BACKGROUND)
        if spot.status != Status.OK:
            continue
        if (alone and size is None) or (background is not None and background.due_ns):
            found[name, size] = Band(replace(spot, name=name), latency, None if alone else background)
    chosen = _size(case, [size for _, size in found if size is not None])
    order = list(Mechanism)
    shown = [band for (_, size), band in found.items() if size in (None, chosen)]
    return sorted(shown, key=lambda band: order.index(Mechanism(band.spot.mechanism)))


def _belongs(case: Case, visit: CoVisit, latency: RoleVisit) -> bool:
    """Return whether a visit is of this case: the same latency workload, and the load at which mechanisms are compared."""
    row, facts = case.latency, latency.facts
    if visit.status is not BlockStatus.OK or visit.load:
        return False
    if (facts.workload, facts.params, visit.connections) != (row.kernel, row.params, row.connections):
        return False
    if visit.mechanism is Mechanism.ALONE:
        return True
    rate = CLOSED if visit.rate_per_s is None else f"{visit.rate_per_s:g}"
    return rate == case.load and visit.concurrency_limit == row.concurrency_limit


def _size(case: Case, sizes: Sequence[int]) -> int | None:
    """Return the size that stands for all: the fewest SMs that serving systems give a decode, else the middle one."""
    device = case.run.meta.device
    divisions = sglang_divisions(device.sm_count, max(1, device.min_partition), max(1, device.alignment))
    usual = [decode for _, decode in divisions if decode in sizes]
    ordered = sorted(set(sizes))
    return min(usual, default=ordered[len(ordered) // 2] if ordered else None)


def window_of(bands: Sequence[Band], visits: Sequence[CoVisit]) -> Window:
    """Return the stretch to show: the first after the warm-up with as many due steps as their rate lets expect.

    It begins with a step that finds the role of the first band idle, so that what waits there waits for the other role.
    """
    first = bands[0].latency.times
    due = first.intended_ns
    gap = max(1.0, (due[-1] - due[0]) / max(1, len(due) - 1))
    requests = [
        median([float(end - start) for start, end in band.background.times.intervals])
        for band in bands
        if band.background is not None
    ]
    length = min(max(STEPS * gap, REQUESTS * min(requests, default=gap)), MOST_STEPS * gap)
    warm = max((visit.warm_ns for visit in visits), default=0)
    idle = [time for before, time in zip(first.end_ns, due[1:], strict=False) if before <= time]
    # A saturated mechanism did not come to the last steps.
    starts = [time for time in idle if time >= warm and time + length <= due[-1]] or [due[0]]
    expected = round(length / gap)

    def off(start: int) -> int:
        return abs(bisect.bisect_left(due, start + length) - bisect.bisect_left(due, start) - expected)

    start = min(starts, key=off) - round(0.03 * length)
    return Window(start, start + round(length))


def _lay_out(axes: Axes, window: Window, bands: int) -> None:
    axes.set_xlim(0, (window.end - window.start) / 1e6)
    axes.set_ylim(0, bands)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.grid(axis="x", color=style.GRID, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(f"ms, from {duration(window.start / 1e3)} after the start of the run", color=style.MUTED, fontsize=9)
    for row in range(bands + 1):
        axes.axhline(row, color=style.GRID, linewidth=0.8, zorder=0.5, clip_on=False)


def _bars(axes: Axes, band: Band, window: Window, row: int) -> None:
    """Draw the background below, the latency role above it, and when its steps were due at the top.

    Of a background that gives way between the pieces of a request each piece is a bar, and the end of the request a line.
    """
    look = look_of(band.spot.mechanism)
    ours = _union(band.latency.running(*ALL_OF_IT))
    if band.background is not None:
        running = band.background.running(*ALL_OF_IT)
        theirs = _union(running)
        _row(axes, window.cut(running), row + 0.12, 0.28, BACKGROUND, "background", parted=True)
        both = intersection(ours, theirs)
        shared = [] if _in_turn(band) else list(zip(both.start.tolist(), both.end.tolist(), strict=True))
        _row(axes, window.cut(shared), row + 0.12, 0.28, BOTH, "both")
        edges = [(end - window.start) / 1e6 for end in band.background.end_ns if window.start < end < window.end]
        axes.vlines(edges, row + 0.12, row + 0.4, color="white", linewidth=1.0, zorder=4)
    waits = [(due, start) for due, start, _ in _steps(band.latency) if start > due]
    for left, right in window.cut(waits):
        axes.plot([left, right], [row + 0.6] * 2, color=look.color, linewidth=1.0, alpha=0.7, zorder=2, gid="waiting")
    _row(axes, window.cut(band.latency.times.intervals), row + 0.46, 0.28, look.color, "latency", parted=True)
    ticks = [(due - window.start) / 1e6 for due in band.latency.due_ns if window.start <= due < window.end]
    axes.vlines(ticks, row + 0.78, row + 0.96, color=style.INK, linewidth=1.1, zorder=3, gid="due")


def _in_turn(band: Band) -> bool:
    """Return whether one role at a time has the device: a step is then under way while it has lost it, which is no overlap."""
    return band.spot.mechanism == Mechanism.TIMESLICE


def _row(axes: Axes, bars: Sequence[Interval], low: float, high: float, color: str, gid: str, *, parted: bool = False) -> None:
    """Draw bars, none of them so thin that it is not seen."""
    least = 0.0016 * axes.get_xlim()[1]
    edge = {"edgecolor": "white", "linewidth": 0.4} if parted else {"linewidth": 0.0}
    axes.broken_barh([(a, max(b - a, least)) for a, b in bars], (low, high), facecolor=color, zorder=3, gid=gid, **edge)


def _steps(role: RoleVisit) -> list[tuple[int, int, int]]:
    return list(zip(role.due_ns, role.start_ns, role.end_ns, strict=True))


def _union(intervals: Sequence[tuple[int, int]]) -> Spans:
    pairs = np.asarray(intervals, np.int64).reshape(-1, 2)
    return merge(pairs[:, 0], pairs[:, 1])


def _words(axes: Axes, case: Case, band: Band, row: int) -> None:
    """Write who this is to the left, and what came of the whole run to the right."""
    spot, whole = band.spot, case.run.meta.device.sm_count
    value = case.tail.of(spot.latency)
    tail = f"p{case.tail.q} {duration(value)}" if value is not None else GREW if spot.grew else ""
    overlap = spot.latency.overlap_frac if spot.latency is not None else None
    size = f"{spot.size_text} of {whole} SMs" if spot.size else "whole device"
    shared = "in turn" if _in_turn(band) else "" if overlap is None else f"overlap {100 * overlap:.0f} %"
    ink = look_of(spot.mechanism).ink
    room = LEFT - 0.2
    own = next((size for size in (9.0, 8.0, 7.0) if style.text_inches(spot.name, size, "bold") <= room), 7.0)
    name = style.fitted(spot.name, room, own)
    for x, texts, side in ((-0.012, (name, size), "right"), (1.012, (tail, shared), "left")):
        first = own if side == "right" else 9.0
        for text, high, color, font, weight in (
            (texts[0], 0.68, ink, first, "bold"),
            (texts[1], 0.29, style.MUTED, 7.5, "normal"),
        ):
            at: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": side, "va": "center"}
            axes.text(x, row + high, text, fontsize=font, color=color, fontweight=weight, **at)
