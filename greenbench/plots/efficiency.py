"""efficiency: what one SM of a partition yields, in per cent of what it yields in the smallest one measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from greenbench.knee import DIVIDED
from greenbench.plots import style
from greenbench.plots.curves import Curve, Metric, Panel, Run
from greenbench.plots.panel import most_sms
from greenbench.schema import Family
from greenbench.yardsticks import WAYS

WIDTH = 25
EFFICIENCY = Metric("efficiency_pct", "%", "efficiency", False)
TITLES = {Family.GEMM: "GEMM", Family.MEMORY: "memory"}
# More curves than these in one panel cannot be told apart.
MOST_CURVES = 10
COLUMNS = 4
WHAT = "throughput per SM, 100 % at the smallest count of each curve, by time: the clock's share of it is included"
Named = tuple[str, Curve, Panel]


def draw(run: Run) -> list[tuple[str, Figure]]:
    """Return the figure: a panel per family, or small ones where a family has many curves; none where no curve has two counts.

    Latency kernels and probes do not divide their work among SMs, so an efficiency of theirs would say nothing.
    """
    families = [(family, _curves(run, family)) for family in DIVIDED]
    shown = [(family, curves) for family, curves in families if curves]
    if not shown:
        return []
    if max(len(curves) for _, curves in shown) > MOST_CURVES:
        return [("efficiency", _grid(run, [curve for _, curves in shown for curve in curves]))]
    wide, high, right = 5.0, max(3.3, 0.17 * max(len(curves) for _, curves in shown)), 2.65
    lines = [WHAT, *_left_out([panel for _, curves in shown for _, _, panel in curves])]
    top, bottom = 0.96 + 0.2 * len(lines), 0.8
    frame = style.Frame(max(0.72 + len(shown) * (wide + right), 7.4), top + high + bottom)
    figure = frame.figure()
    for i, (family, curves) in enumerate(shown):
        axes = frame.axes(figure, 0.72 + i * (wide + right), bottom, wide, high)
        _panel(axes, run, curves)
        title = f"{TITLES[family]} kernels" if len(shown) > 1 else ""
        axes.set_title(title, fontsize=9.5, fontweight="bold", color=style.INK, loc="left", pad=22)
    style.heading(figure, frame, run, "Efficiency per SM against SMs", lines)
    style.footer(figure, frame, run)
    return [("efficiency", figure)]


def _left_out(panels: Sequence[Panel]) -> list[str]:
    """Say which yardsticks are not drawn, if any."""
    names = dict.fromkeys(way.rpartition(".")[2] for panel in panels for way in panel.ways[1:])
    return [style.plain(f"left out: {', '.join(WAYS.get(name, name) for name in names)}", 110)] if names else []


def _grid(run: Run, curves: list[Named]) -> Figure:
    """Lay out a small panel for each kernel, params and variant, four a line: ours dark, the yardstick beside it."""
    panels: dict[tuple[str, str], list[Named]] = {}
    for named in curves:
        _, curve, panel = named
        more = ", ".join(part for part in (run.own_params(panel), curve.label) if part)
        panels.setdefault((panel.kernel, more), []).append(named)
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    wide, high, gap_x, gap_y = 2.25, 1.45, 0.72, 0.82
    beside = any(curve.kernel != panel.kernel for _, curve, panel in curves)
    lines = [WHAT, "dark: ours, with its value on the most SMs" + " · orange squares: the yardstick's" * beside]
    lines += _left_out([panel for _, _, panel in curves])
    top, bottom = 0.82 + 0.2 * len(lines), 0.78
    frame = style.Frame(max(0.62 + columns * (wide + gap_x), 7.4), top + rows * (high + gap_y) - gap_y + bottom)
    figure = frame.figure()
    names = style.shortened([kernel for kernel, _ in panels], 28)
    own = style.shortened([more for _, more in panels], 24)
    for i, group in enumerate(panels.values()):
        row, column = divmod(i, columns)
        axes = frame.axes(figure, 0.55 + column * (wide + gap_x), frame.height - top - row * (high + gap_y) - high, wide, high)
        ends = _small(axes, run, group, last=i + columns >= len(panels))
        axes.set_title(names[i], fontsize=9, fontweight="bold", color=style.INK, loc="left", pad=14)
        words = " · ".join(part for part in (ends, own[i]) if part)
        place: dict[str, Any] = {"xytext": (0, 4), "xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(words, (0, 1), fontsize=8, color=style.MUTED, **place)
    style.heading(figure, frame, run, "Efficiency per SM against SMs", lines)
    style.footer(figure, frame, run)
    return figure


def _small(axes: Axes, run: Run, group: list[Named], *, last: bool) -> str:
    """Draw the curves of one small panel; return the value of ours on the most SMs."""
    style.sm_axis(axes, most_sms(group[0][2]), ticks=5, label=last)
    values = [dot.value for _, curve, _ in group for dot in curve.points(EFFICIENCY)]
    style.value_axis(axes, max(108.0, 1.06 * max(values)), "", ticks=4)
    axes.tick_params(labelsize=7.5)
    axes.xaxis.label.set_fontsize(8)
    axes.axhline(100, color=style.FAINT, linewidth=0.9, dashes=(1, 1.6), zorder=1.5)
    ends = []
    for _, curve, panel in group:
        xs, ys = curve.line(EFFICIENCY, run.meta.device.sm_count)
        look: dict[str, Any] = {"color": style.YARDSTICK, "linewidth": 1.1, "marker": "s", "markersize": 2.8, "zorder": 3}
        if curve.kernel == panel.kernel:
            look = {"color": style.MEASURED, "linewidth": 1.6, "marker": "o", "markersize": 2.8, "zorder": 4}
            ends.append(ys[-1])
        axes.plot(xs, ys, gid="efficiency", **look)
    return ", ".join(f"{style.number(value)} %" for value in ends)


def _curves(run: Run, family: Family) -> list[Named]:
    """Return the curves of a family that have an efficiency at two counts or more, with the name of each."""
    found = []
    for panel in run.panels:
        # Of a vendor's several ways the first, which is how everybody calls it: more lines could not be told apart.
        plain = [curve for curve in panel.yardsticks if curve.kernel == panel.ways[0]]
        for curve in (*panel.curves, *plain):
            points = curve.points(EFFICIENCY)
            if len({dot.sms for dot in points}) < 2 or points[0].row.family != family:
                continue
            more = ", ".join(part for part in (run.own_params(panel), curve.label) if part)
            found.append((more, curve, panel))
    return [(name, curve, panel) for name, (_, curve, panel) in zip(_names(found), found, strict=True)]


def _names(found: list[Named]) -> list[str]:
    """Return what stands at the end of each curve: its kernel, and what tells it from the kernel's others."""
    kernels = list(dict.fromkeys(curve.kernel for _, curve, _ in found))
    short = dict(zip(kernels, style.shortened(kernels, 16 if any(more for more, _, _ in found) else WIDTH), strict=True))
    names: dict[tuple[str, str], str] = {}
    for kernel, name in short.items():
        parts = list(dict.fromkeys(more for more, curve, _ in found if curve.kernel == kernel))
        for more, part in zip(parts, style.shortened(parts, WIDTH - 1 - len(name)), strict=True):
            names[kernel, more] = f"{name} {part}".strip()
    return [names[curve.kernel, more] for more, curve, _ in found]


def _panel(axes: Axes, run: Run, curves: list[Named]) -> None:
    """Draw the curves of one family, each with a colour, dashes and marker of its own."""
    most = max(most_sms(panel) for _, _, panel in curves)
    values = [dot.value for _, curve, _ in curves for dot in curve.points(EFFICIENCY)]
    top = max(108.0, 1.06 * max(values))
    style.sm_axis(axes, most)
    style.value_axis(axes, top, "%")
    axes.axhline(100, color=style.FAINT, linewidth=1.1, dashes=(1, 1.6), zorder=1.5)
    labels = []
    for i, (name, curve, _) in enumerate(curves):
        xs, ys = curve.line(EFFICIENCY, run.meta.device.sm_count)
        color = style.PALETTE[i % len(style.PALETTE)]
        dashes = style.DASHES[(i + i // len(style.PALETTE)) % len(style.DASHES)]
        axes.plot(
            xs,
            ys,
            color=color,
            linewidth=1.5,
            dashes=dashes or (None, None),
            marker=style.MARKERS[i % len(style.MARKERS)],
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=4,
            clip_on=False,
            gid="efficiency",
        )
        ink = style.INKS[i % len(style.INKS)]
        labels.append(style.EndLabel(xs[-1], ys[-1], f"{name} {style.number(ys[-1])}", ink))
    style.end_labels(axes, labels, size=8)
