"""isolation: the tail of the latency role against its SMs, one line per mechanism, and all figures of a co-location together."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from greenbench.cojournal import CoVisit
from greenbench.corow import CoRow
from greenbench.plots import costrip, style, tradeoff
from greenbench.plots.copoints import Case, Spot, cases_of, duration
from greenbench.plots.mechanisms import Look, look_of
from greenbench.plots.tailaxis import GREW, SLO_INK, foot, foot_inches, heads, slo_box, tail_axis, told
from greenbench.schema import RunMeta
from greenbench.slo import Slo

WIDE, HIGH, LEFT, RIGHT = 5.55, 3.7, 0.85, 2.9
# Between marks below each other, and as far down as the room above the highest figure goes.
STACK_POINTS, STACK_ROOM = 7.5, 44.0
# Ticks at the sizes themselves as long as their numbers have this much room.
TICK_ROOM = 0.22


def draw_colocation(
    rows: Sequence[CoRow], visits: Sequence[CoVisit], meta: RunMeta, folder: Path, slo: Slo | None = None
) -> list[Path]:
    """Draw every figure that a co-location allows into a folder and return the files written, PNG and SVG, in order.

    `visits` hold the stamps for the strip; without them there is none. A run whose latency role has no figure gives an empty
    list.
    """
    paths: list[Path] = []
    with style.context():
        for stem, figure in figures(rows, visits, meta, slo):
            paths += style.save(figure, folder, stem)
    return paths


def figures(rows: Sequence[CoRow], visits: Sequence[CoVisit], meta: RunMeta, slo: Slo | None = None) -> list[tuple[str, Figure]]:
    """Return the figures with the stems of their files; call it within `style.context`."""
    found: list[tuple[str, Figure]] = []
    for case in cases_of(rows, meta, slo):
        for name, drawn in (
            ("isolation", draw(case)),
            ("tradeoff", tradeoff.draw(case)),
            ("strip", costrip.draw(case, visits)),
        ):
            if drawn is not None:
                stem = style.stem_of(name, *filter(None, (case.apart,)))
                taken = {other.lower() for other, _ in found}
                found.append(
                    (next(each for each in (stem + "_" * i for i in itertools.count()) if each.lower() not in taken), drawn)
                )
    return found


def draw(case: Case) -> Figure | None:
    """Return the figure of one case at the load at which mechanisms are compared; None where nothing has a percentile there."""
    case = case.at(case.load)
    values = [value for spot in case.spots if (value := case.tail.of(spot.latency)) is not None]
    if not values:
        return None
    width = LEFT + WIDE + RIGHT
    lines = told(case, width - 0.44)
    head = heads(case, case.words, width - 0.5)
    bottom, top = 0.84 + foot_inches(lines), 0.82 + 0.2 * len(head)
    frame = style.Frame(width, bottom + HIGH + top)
    figure = frame.figure()
    axes = frame.axes(figure, LEFT, bottom, WIDE, HIGH)
    ours = [spot for spot in (*case.spots, *case.alone) if spot.latency is not None]
    sizes = sorted({spot.size for spot in ours if spot.size is not None})
    stacks = _Stacks(case)
    references = [value for size in (None, *sizes) if (value := case.reference(size)) is not None]
    _size_axis(axes, case, sizes)
    tail_axis(axes, case, [*values, *references], grown=any(spot.grew for spot in case.spots))
    if text := slo_box(axes, case):
        at = {"xycoords": axes.get_yaxis_transform(), "xytext": (4, -3), "textcoords": "offset points", "va": "top"}
        axes.annotate(text, (0, case.limit_us or 0.0), color=SLO_INK, fontsize=8.5, zorder=1.3, **at)  # type: ignore[arg-type]
    labels = _alone(axes, case, sizes)
    for name, spots in case.curves.items():
        sized = any(spot.size for spot in spots)
        labels += _line(axes, case, name, spots, stacks) if sized else _level(axes, case, name, spots[0])
    style.end_labels(axes, labels)
    title = f"Which isolation holds: {case.latency.kernel} {case.tail.name} against its SMs"
    style.heading(figure, frame, case.run, f"{title}, {case.apart}" if case.apart else title, head)
    foot(figure, frame, case, lines)
    return figure


def _size_axis(axes: Axes, case: Case, sizes: list[int]) -> None:
    """Lay the x axis out: from 0 to the largest size, with ticks at the sizes where they fit."""
    whole = case.run.meta.device.sm_count
    if not sizes:
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_locator(NullLocator())
        return
    style.sm_axis(axes, sizes[-1], label=False)
    inch = WIDE / (sizes[-1] * 1.02)
    if all((b - a) * inch >= TICK_ROOM for a, b in itertools.pairwise(sizes)):
        axes.xaxis.set_major_locator(FixedLocator([0, *sizes]))
    text = f"SMs of the latency role (of {whole}; the background has the rest)"
    axes.set_xlabel(text, color=style.MUTED, fontsize=9)


def _alone(axes: Axes, case: Case, sizes: list[int]) -> list[style.EndLabel]:
    """Draw the latency role by itself: on each size, and on the whole device."""
    labels = []
    known = [(size, value) for size in sizes if (value := case.reference(size)) is not None]
    if known:
        xs, ys = [float(x) for x, _ in known], [y for _, y in known]
        look = {"marker": "_", "markersize": 12.0} if len(known) == 1 else {}
        axes.plot(xs, ys, color=style.MUTED, linewidth=1.3, dashes=(1.2, 1.6), zorder=2, gid="alone", **look)  # type: ignore[arg-type]
        labels.append(style.EndLabel(xs[-1], ys[-1], f"alone on its SMs {duration(ys[-1])}", style.MUTED))
    whole = case.reference(None)
    if whole is not None:
        right = axes.get_xlim()[1]
        axes.plot([0, right], [whole, whole], color=style.FAINT, linewidth=1.0, zorder=1.4, gid="alone full")
        labels.append(style.EndLabel(right, whole, f"alone, whole device {duration(whole)}", style.MUTED))
    return labels


class _Stacks:
    """Where the marks of queues that grew stand: at the top, those of one size below each other."""

    def __init__(self, case: Case) -> None:
        grown = Counter(spot.granted for spots in case.curves.values() for spot in spots if spot.size and spot.grew)
        self._step = min(STACK_POINTS, STACK_ROOM / max(1, max(grown.values(), default=1) - 1))
        self._taken: Counter[float] = Counter()

    def draw(self, axes: Axes, look: Look, size: float) -> None:
        """Draw the mark of a mechanism whose queue grew at a size; its data lie at the top, wherever it is moved to."""
        down = -self._taken[size] * self._step / 72
        self._taken[size] += 1
        moved = ScaledTranslation(0, down, axes.figure.dpi_scale_trans)
        edge = {"markerfacecolor": "white", "markeredgecolor": look.color, "markeredgewidth": 1.3}
        at = {"linestyle": "none", "clip_on": False, "zorder": 5, "gid": "grew", "transform": axes.transData + moved}
        axes.plot([size], [axes.get_ylim()[1]], marker=look.marker, markersize=5.5, **edge, **at)  # type: ignore[arg-type]


def _line(axes: Axes, case: Case, name: str, spots: list[Spot], stacks: _Stacks) -> list[style.EndLabel]:
    """Draw a mechanism with sizes; where its queue grew a mark stands at the top, and no line bridges it."""
    look = look_of(spots[0].mechanism)
    places = {float(spot.granted or 0): case.tail.of(spot.latency) for spot in spots if spot.size}
    grown = [float(spot.granted or 0) for spot in spots if spot.size and spot.grew]
    top = axes.get_ylim()[1]
    for size in grown:
        stacks.draw(axes, look, size)
    xs = sorted(places)
    known = [(x, value) for x in xs if (value := places[x]) is not None]
    if not known:
        return [style.EndLabel(xs[-1], top, f"{name}: {GREW}", look.ink, bold=True)] if grown else []
    axes.plot(
        xs,
        [math.nan if (value := places[x]) is None else value for x in xs],
        color=look.color,
        dashes=look.dashes or (None, None),
        linewidth=1.7,
        marker=look.marker,
        markersize=5.5,
        markeredgecolor="white",
        markeredgewidth=0.7,
        zorder=4,
        clip_on=False,
        gid="mechanism",
    )
    x, value = known[-1]
    return [style.EndLabel(x, value, f"{name} {duration(value)}", look.ink, bold=True)]


def _level(axes: Axes, case: Case, name: str, spot: Spot) -> list[style.EndLabel]:
    """Draw a mechanism without a partition: one line across."""
    look, right = look_of(spot.mechanism), axes.get_xlim()[1]
    value = case.tail.of(spot.latency)
    if value is None:
        top = axes.get_ylim()[1]
        return [style.EndLabel(right, top, f"{name}: {GREW}", look.ink)] if spot.grew else []
    axes.plot([0, right], [value, value], color=look.color, linewidth=1.3, dashes=(6, 2), zorder=3, gid="level")
    return [style.EndLabel(right, value, f"{name} {duration(value)}", look.ink)]
