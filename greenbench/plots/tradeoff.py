"""tradeoff: what the protection of the latency role costs the background, one frontier per mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from greenbench.corow import CoRow
from greenbench.plots import style
from greenbench.plots.copoints import CLOSED, Case, Spot, duration, thousands
from greenbench.plots.mechanisms import look_of
from greenbench.plots.placing import Place, Placer
from greenbench.plots.tailaxis import GREW, SLO_INK, foot, foot_inches, heads, slo_box, tail_axis, told
from greenbench.schema import Status

WIDTH, HIGH, LEFT, RIGHT, RIGHT_OF_LINES = 9.3, 4.3, 0.85, 0.35, 2.6
# Two mechanisms this near to each other differ by noise: the first in the order of the run is named, as in the advice.
NEAR = 0.01
# Labels of sizes closer than this many points would say one thing twice.
APART_POINTS = 12.0
# What names the saturated ones stands above the axes, to the right of the quantity of the y axis.
LOST_SIZE, LOST_INCHES, QUANTITY_INCHES = 8.5, 0.14, 2.2
# More rates than these are told by their ends.
MOST_RATES = 4


@dataclass(frozen=True, slots=True)
class Dot:
    """One point of the trade-off; `y` is None where the latency role's queue grew."""

    x: float
    y: float | None
    spot: Spot


def draw(case: Case) -> Figure | None:
    """Return the figure of one case, all loads together; None where no point has both a tail and a throughput."""
    tokens = any(spot.background.tokens_per_s for spot in case.spots if spot.background and spot.background.status == Status.OK)
    curves = {name: dots for name, spots in case.curves.items() if (dots := _dots(case, spots, tokens=tokens))}
    if not any(dot.y for dots in curves.values() for dot in dots):
        return None
    # At one load mechanisms lie apart, at several their lines run beside each other from load to load.
    several = len(case.loads) > 1
    right = RIGHT_OF_LINES if several else RIGHT
    lines = told(case, WIDTH - 0.44)
    head = heads(case, _words(case), WIDTH - 0.5)
    lost = _lost(curves, WIDTH - LEFT - right)
    bottom, top = 0.84 + foot_inches(lines), 0.82 + 0.2 * len(head) + LOST_INCHES * max(0, len(lost) - 1)
    frame = style.Frame(WIDTH, bottom + HIGH + top)
    figure = frame.figure()
    axes = frame.axes(figure, LEFT, bottom, WIDTH - LEFT - right, HIGH)
    whole = case.reference(None)
    alone = next(
        (_throughput(spot.background, tokens=tokens) for spot in case.alone if spot.background and spot.size is None), None
    )
    _lay_out(axes, case, curves, alone, whole)
    axes.set_xlabel(
        f"{style.plain(case.background.kernel)} {'tokens' if tokens else 'steps'} a second", color=style.MUTED, fontsize=9
    )
    if lost:
        at = {"xycoords": "axes fraction", "textcoords": "offset points", "xytext": (0, 8), "ha": "right", "va": "bottom"}
        axes.annotate("\n".join(lost), (1, 1), color=style.MUTED, fontsize=LOST_SIZE, gid="lost", **at)  # type: ignore[arg-type]
    placer = Placer.of(axes, frame)
    edge = slo_box(axes, case)
    frontiers = {name: _frontier(dots, one_load=not several) for name, dots in curves.items()}
    for name, dots in curves.items():
        _draw(axes, placer, dots, frontiers[name])
    _corner(axes, placer, alone, whole)
    if edge:
        left, wide = axes.get_xlim()[0], axes.get_xlim()[1] - axes.get_xlim()[0]
        placer.cross([(x, case.limit_us or 0.0) for x in axes.get_xlim()])
        placer.write([(left + wide * i / 20, case.limit_us or 0.0) for i in range(1, 20)], edge, SLO_INK)
    _best(axes, placer, case, curves)
    if several:
        _name_ends(axes, curves, frontiers)
    else:
        _name(placer, curves, frontiers)
        _sizes(placer, frontiers)
    title = f"What isolation costs: {case.latency.kernel} {case.tail.name} against {case.background.kernel} throughput"
    style.heading(figure, frame, case.run, f"{title}, {case.apart}" if case.apart else title, head)
    foot(figure, frame, case, lines)
    return figure


def _lost(curves: dict[str, list[Dot]], inches: float) -> list[str]:
    """Return the text that names the mechanisms whose queue grew at every point, in lines that fit beside the axis' quantity."""
    names = [name for name, dots in curves.items() if all(dot.y is None for dot in dots)]
    return style.wrapped(f"{GREW}: {', '.join(names)}", inches - QUANTITY_INCHES, LOST_SIZE) if names else []


def _lay_out(axes: Axes, case: Case, curves: dict[str, list[Dot]], alone: float | None, whole: float | None) -> None:
    """Lay both axes out around all points and what the roles do by themselves."""
    dots = [dot for each in curves.values() for dot in each]
    values = [dot.y for dot in dots if dot.y is not None]
    _rate_axis(axes, [*(dot.x for dot in dots), *([alone] if alone else [])])
    tail_axis(axes, case, [*values, *([whole] if whole else [])], grown=len(values) < len(dots))


def _words(case: Case) -> str:
    """Return the workloads, and the loads where they are several."""
    if len(case.loads) == 1:
        return case.words
    loads = "always busy" if CLOSED in case.loads else ""
    found = [load for load in case.loads if load != CLOSED]
    rates = ", ".join(found) if len(found) <= MOST_RATES else f"{found[0]} to {found[-1]}"
    return f"{case.words.rpartition(', ')[0]}, {' and '.join(filter(None, (loads, f'{rates} requests a second')))}"


def _throughput(row: CoRow | None, *, tokens: bool) -> float | None:
    """Return tokens or steps a second."""
    if row is None or row.status != Status.OK:
        return None
    found = row.tokens_per_s if tokens else row.throughput_per_s
    return found if found is not None and 0 < found < math.inf else None


def _dots(case: Case, spots: Sequence[Spot], *, tokens: bool) -> list[Dot]:
    """Return the points of a mechanism that have a throughput, and a tail or a queue that grew."""
    found = [(_throughput(spot.background, tokens=tokens), case.tail.of(spot.latency), spot) for spot in spots]
    return [Dot(x, y, spot) for x, y, spot in found if x and (y is not None or spot.grew)]


def _frontier(dots: Sequence[Dot], *, one_load: bool) -> list[Dot]:
    """Return the points that a mechanism's line joins: its sizes in order; at several loads those that none beats."""
    known = [dot for dot in dots if dot.y is not None]
    if one_load:
        return known
    best: list[Dot] = []
    for dot in sorted(known, key=lambda dot: (-dot.x, dot.y or 0.0)):
        if not best or (dot.y or 0.0) < (best[-1].y or 0.0):
            best.append(dot)
    return best[::-1]


def _rate_axis(axes: Axes, values: Sequence[float]) -> None:
    """Lay the x axis out around the figures; it starts at 0 only where they come near it."""
    low, high = min(values), max(values)
    room = 0.07 * (high - low) or 0.1 * high
    axes.set_xlim(max(0.0, low - room) if low > 0.25 * high else 0.0, high + room)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value) if value else "0"))


def _corner(axes: Axes, placer: Placer, alone: float | None, whole: float | None) -> None:
    """Draw what each role does by itself on the whole device, and mark where both would: the best corner."""
    look = {"color": style.FAINT, "linewidth": 1.0, "dashes": (1.2, 1.6), "zorder": 1.4, "gid": "alone"}
    if whole is not None:
        axes.axhline(whole, **look)  # type: ignore[arg-type]
        placer.cross([(x, whole) for x in axes.get_xlim()])
    if alone is not None:
        axes.axvline(alone, **look)  # type: ignore[arg-type]
        placer.cross([(alone, y) for y in axes.get_ylim()])
    if whole is None or alone is None:
        return
    axes.plot(
        [alone], [whole], marker="*", markersize=13, color=style.INK, linestyle="none", zorder=5, clip_on=False, gid="corner"
    )
    placer.avoid([(alone, whole)])
    placer.write([(alone, whole)], "best: both as if alone", style.INK)


def _draw(axes: Axes, placer: Placer, dots: Sequence[Dot], frontier: Sequence[Dot]) -> None:
    """Draw a mechanism: its line, points that others of it beat, and at the top what grew."""
    look, top = look_of(dots[0].spot.mechanism), axes.get_ylim()[1]
    style_of = {"marker": look.marker, "markersize": 6.0, "clip_on": False, "linestyle": "none"}
    beaten = [(dot.x, dot.y) for dot in dots if dot.y is not None and dot not in frontier]
    grown = [(dot.x, top) for dot in dots if dot.y is None]
    line = [(dot.x, dot.y) for dot in frontier if dot.y is not None]
    if beaten:
        axes.plot(*zip(*beaten, strict=True), color=look.color, alpha=0.35, markeredgewidth=0, zorder=3, gid="beaten", **style_of)  # type: ignore[arg-type]
    if grown:
        hollow = {"markerfacecolor": "white", "markeredgecolor": look.color, "markeredgewidth": 1.4}
        axes.plot(*zip(*grown, strict=True), zorder=5, gid="grew", **style_of, **hollow)  # type: ignore[arg-type]
    if line:
        axes.plot(
            *zip(*line, strict=True),
            color=look.color,
            linewidth=1.6,
            dashes=look.dashes or (None, None),
            zorder=4,
            gid="frontier",
        )
        edge = {"color": look.color, "markeredgecolor": "white", "markeredgewidth": 0.7}
        axes.plot(*zip(*line, strict=True), zorder=4.5, gid="points", **style_of, **edge)  # type: ignore[arg-type]
    placer.avoid([*line, *beaten, *grown])
    placer.cross(line)


def best_of(curves: dict[str, list[Dot]]) -> tuple[str, Dot] | None:
    """Return the point with the highest background throughput that meets all objectives; of near ones the first of the run."""
    met = [(name, dot) for name, dots in curves.items() for dot in dots if dot.spot.met and dot.y is not None]
    most = max((dot.x for _, dot in met), default=0.0)
    return next(((name, dot) for name, dot in met if dot.x >= most * (1 - NEAR)), None)


def _best(axes: Axes, placer: Placer, case: Case, curves: dict[str, list[Dot]]) -> None:
    """Ring the best point that meets all objectives, and name it."""
    found = best_of(curves) if case.slo else None
    if found is None:
        return
    name, dot = found
    place = (dot.x, dot.y or 0.0)
    ring = {"markerfacecolor": "none", "markeredgecolor": SLO_INK, "markeredgewidth": 1.8}
    axes.plot(*place, marker="o", markersize=13, linestyle="none", zorder=5.5, gid="best", **ring)  # type: ignore[arg-type]
    where = f" at {dot.spot.size_text} SMs" if dot.spot.size else ""
    placer.write([place], f"most within SLO: {name}{where}", SLO_INK, bold=True)


def _name(placer: Placer, curves: dict[str, list[Dot]], frontiers: dict[str, list[Dot]]) -> None:
    """Write each mechanism's name beside its line or point; those with the least choice of a place first."""
    for name, dots in sorted(curves.items(), key=lambda pair: len(pair[1])):
        line: list[Place] = [(dot.x, dot.y) for dot in frontiers[name] if dot.y is not None]
        if line:
            placer.write(line, name, look_of(dots[0].spot.mechanism).ink, bold=True)


def _name_ends(axes: Axes, curves: dict[str, list[Dot]], frontiers: dict[str, list[Dot]]) -> None:
    """Write each mechanism's name to the right of its line, with the size that its last point has."""
    labels = []
    for name, dots in curves.items():
        line, ink = frontiers[name], look_of(dots[0].spot.mechanism).ink
        if line and line[-1].y is not None:
            size = f"@{line[-1].spot.size_text}" if line[-1].spot.size else ""
            labels.append(style.EndLabel(line[-1].x, line[-1].y, f"{name}{size} {duration(line[-1].y)}", ink, bold=True))
    style.end_labels(axes, labels, 8.0)


def _sizes(placer: Placer, frontiers: dict[str, list[Dot]]) -> None:
    """Write the SMs at the ends and in the middle of lines, where no other line says the same at the same place."""
    told_: list[tuple[str, Place]] = []
    for dots in frontiers.values():
        sized = [dot for dot in dots if dot.spot.size is not None]
        for i in sorted({0, len(sized) // 2, len(sized) - 1}) if len(sized) > 1 else ():
            dot = sized[i]
            size, at = dot.spot.size_text, placer.at(dot.x, dot.y or 0.0)
            text = f"{size} SMs" if not told_ else size
            if any(t.removesuffix(" SMs") == size and _near(at, other) for t, other in told_):
                continue
            told_.append((text, at))
            placer.write([(dot.x, dot.y or 0.0)], text, look_of(dot.spot.mechanism).ink, size=7.5)


def _near(a: Place, b: Place) -> bool:
    return abs(a[0] - b[0]) < APART_POINTS and abs(a[1] - b[1]) < APART_POINTS
