"""One panel of a scaling figure: a curve with its interval, and beside it ideal, bound, ceiling, yardstick, prediction, knee."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from greenbench import bounds, facts
from greenbench.knee import DIVIDED, Knee, knee
from greenbench.plots import style
from greenbench.plots.curves import Curve, Dot, Metric, Panel, Run
from greenbench.schema import Backend, SmsMode, Timing
from greenbench.yardsticks import WAYS

Key = dict[str, Line2D | Patch]

# How far above the data the y axis goes at most; lines beyond it end at the frame.
HEADROOM = 1.3

BOUND_WORDS = {
    "compute": "compute",
    "waves": "compute, in waves",
    "memory": "HBM bus",
    "link": "SM–L2 links",
    "l2": "L2",
}


def knee_of(run: Run, curve: Curve) -> Knee | None:
    """Return the knee of a curve."""
    return knee(curve.rows, run.limits)


def draw_panel(axes: Axes, run: Run, panel: Panel) -> Key:
    """Draw one panel and return the entries that its key needs."""
    metric, main = panel.metric, panel.main
    labels: list[style.EndLabel] = []
    most, top = most_sms(panel), top_of(run, panel)
    style.sm_axis(axes, most)
    style.value_axis(axes, top, metric.unit)
    if metric.scales and main.points(metric):
        labels += _ideal(axes, main.points(metric)[0], most, top) if len(main.points(metric)) > 1 else []
        labels += _bound(axes, main, metric)
        labels += _ceiling(axes, run, main, metric)
        labels += _predicted(axes, run, main, metric)
        _knee(axes, run, main, metric, most)
    key: Key = {}
    if metric.scales and main.points(metric):
        labels += _yardsticks(axes, run, panel, key)
    for i, curve in enumerate(panel.curves):
        labels += _curve(axes, run, curve, metric, i, key)
    _gaps(axes, run, panel, key)
    style.end_labels(axes, labels)
    return key


def most_sms(panel: Panel) -> int:
    """Return the right end of the x axis: the largest count that was granted or asked for."""
    rows = [row for curve in (*panel.curves, *panel.yardsticks) for row in curve.rows]
    counts = [row.sms_granted for row in rows if row.sms_granted]
    counts += [int(row.sms_requested) for row in rows if row.sms_requested.isdigit()]
    return max(counts, default=1)


def top_of(run: Run, panel: Panel) -> float:
    """Return the upper end of the y axis: room for the data, and for bound and prediction where they are not far above it."""
    metric = panel.metric
    rows = [row for curve in (*panel.curves, *panel.yardsticks) for row in curve.rows]
    values = [value for row in rows if (value := metric.value(row)) is not None]
    values += [interval[1] for row in rows if (interval := metric.interval(row)) is not None]
    most = max(values)
    if metric.scales:
        values += [value for _, value in _limits(panel.main, metric)]
        values += [value for _, value, kernel in _ceilings(run, panel.main, metric) if kernel]
        values += [value for _, value in predicted(run, panel.main, metric)]
    return min(1.08 * max(values), HEADROOM * most)


def _ideal(axes: Axes, first: Dot, most: int, top: float) -> list[style.EndLabel]:
    """Draw the line through the origin and the smallest count."""
    slope = first.value / first.sms
    end = min(float(most), top / slope)
    axes.plot([0, end], [0, slope * end], color=style.FAINT, linewidth=1.1, dashes=(1, 1.6), zorder=1.5, gid="ideal")
    if end >= 0.93 * most:
        return [style.EndLabel(end, slope * end, "ideal", style.MUTED)]
    axes.annotate("ideal", (end, top), xytext=(5, -3), textcoords="offset points", color=style.MUTED, fontsize=8.5, va="top")
    return []


def _alone(xs: list[int]) -> dict[str, Any]:
    """Return the marker that shows a line of one point."""
    return {"marker": "_", "markersize": 14} if len(xs) == 1 else {}


def _limits(curve: Curve, metric: Metric) -> list[tuple[Dot, float]]:
    """Return the points that have a bound, with the figure at it."""
    return [(dot, value) for dot in curve.points(metric) if (value := metric.of_time(dot.row, dot.row.bound_us)) is not None]


def _bound(axes: Axes, curve: Curve, metric: Metric) -> list[style.EndLabel]:
    """Draw the bound of every measured point."""
    limits = _limits(curve, metric)
    if not limits:
        return []
    xs, ys = [dot.sms for dot, _ in limits], [value for _, value in limits]
    axes.plot(xs, ys, color=style.BOUND, linewidth=1.2, dashes=(6, 2.4), zorder=2, gid="bound", **_alone(xs))
    by = limits[-1][0].row.bound_by
    return [style.EndLabel(xs[-1], ys[-1], f"bound {style.number(ys[-1])} ({BOUND_WORDS.get(by, by)})", style.BOUND)]


def _ceilings(run: Run, curve: Curve, metric: Metric) -> list[tuple[int, float, str]]:
    """Return (SMs, figure, kernel) at what other kernels reached on the same SMs; NaN where none did better."""
    found = [(dot, run.limits.get(dot.row.label)) for dot in curve.points(metric)]
    values = [(dot.sms, metric.of_time(dot.row, line.measured_us), line.measured_kernel) for dot, line in found if line]
    known = [(sms, math.nan if value is None else value, kernel) for sms, value, kernel in values]
    return known if any(kernel for _, _, kernel in known) else []


def _ceiling(axes: Axes, run: Run, curve: Curve, metric: Metric) -> list[style.EndLabel]:
    """Draw what the probes of the run reached on the same SMs: thinner than the bound, since it may lie close below it.

    Its pieces may belong to several kernels; named is that of the right end.
    """
    points = _ceilings(run, curve, metric)
    if not points:
        return []
    xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
    named = [point for point in points if point[2]]
    mark = _alone(xs if len(named) > 1 else xs[:1])
    axes.plot(xs, ys, color=style.CEILING, linewidth=0.9, dashes=(3.2, 2.2), zorder=2.1, gid="ceiling", **mark)
    sms, value, kernel = named[-1]
    text = f"measured ceiling {style.number(value)} ({style.fitted(kernel, 0.78, 8.5, 'normal')})"
    return [style.EndLabel(sms, value, text, style.CEILING_TEXT)]


def predicted(run: Run, curve: Curve, metric: Metric) -> list[tuple[int, float]]:
    """Return (SMs, figure) that the model of a measured device gives for its points; none where there is no model."""
    model = None if run.modelled else facts.model_of(run.meta.device)
    found: list[tuple[int, float]] = []
    for dot in curve.points(metric) if model else []:
        row = dot.row
        if model is None or row.family not in DIVIDED or not (row.flops or row.bytes):
            continue
        time = bounds.predict(
            model,
            family=row.family,
            dtype=row.dtype,
            flops=row.flops,
            bytes=row.bytes,
            sms=dot.sms,
            working_set_bytes=row.working_set_bytes,
            resident=row.timing == Timing.HOT,
        )
        launch = model.launch_us - model.graph_launch_us if row.timing == Timing.GRAPH else 0.0
        # How much of the bytes is written is not known here, so the model may promise more than the bound.
        value = metric.of_time(row, max(time.us - launch, row.bound_us or 0.0))
        found += [] if value is None else [(dot.sms, value)]
    return found


def _predicted(axes: Axes, run: Run, curve: Curve, metric: Metric) -> list[style.EndLabel]:
    """Draw what the model predicts."""
    points = predicted(run, curve, metric)
    if not points:
        return []
    xs, ys = [x for x, _ in points], [y for _, y in points]
    axes.plot(xs, ys, color=style.PREDICTED, linewidth=1.5, dashes=(4, 1.5, 1, 1.5), zorder=2.5, gid="predicted", **_alone(xs))
    return [style.EndLabel(xs[-1], ys[-1], "predicted (model)", style.PREDICTED_TEXT)]


def _yardsticks(axes: Axes, run: Run, panel: Panel, key: Key) -> list[style.EndLabel]:
    """Draw the vendor's kernels on the same partitions: one line, or the best of several ways with each of them thin below it."""
    if len(panel.ways) < 2:
        return [label for curve in panel.yardsticks for label in _yardstick(axes, run, curve, panel.metric)]
    for curve in panel.yardsticks:
        place = panel.ways.index(curve.kernel)
        dashes = style.WAY_DASHES[place % len(style.WAY_DASHES)]
        look: dict[str, Any] = {"color": style.YARDSTICK, "linewidth": 0.9, "alpha": 0.8, "dashes": dashes or (None, None)}
        xs, ys = curve.line(panel.metric, run.meta.device.sm_count)
        axes.plot(xs, ys, zorder=2.8, gid=f"way {place}", **look)
        key[style.plain(_vendor(curve.kernel), 24)] = Line2D([], [], **look)
    best = f"best {_vendor(panel.ways[0])}"
    return [label for curve in panel.best for label in _yardstick(axes, run, curve, panel.metric, best)]


def _yardstick(axes: Axes, run: Run, curve: Curve, metric: Metric, name: str = "") -> list[style.EndLabel]:
    """Draw one line of a vendor's kernel."""
    if not curve.points(metric):
        return []
    xs, ys = curve.line(metric, run.meta.device.sm_count)
    look: dict[str, Any] = {"marker": "s", "markersize": 4, "markerfacecolor": "white", "markeredgewidth": 1.2}
    axes.plot(xs, ys, color=style.YARDSTICK, linewidth=1.5, zorder=3, gid="yardstick", **look)
    modelled = any(row.backend == Backend.MODELLED for row in curve.rows) or run.meta.device.backend == Backend.MODELLED
    name = style.plain(" ".join(part for part in (name or _vendor(curve.kernel), curve.label) if part), 14 if modelled else 24)
    name += " modelled" if modelled else ""
    return [style.EndLabel(xs[-1], ys[-1], f"{name} {style.number(ys[-1])}", style.YARDSTICK_TEXT)]


def _vendor(kernel: str) -> str:
    """Return how a yardstick is written: the part of its name after the kernel's."""
    name = kernel.rpartition(".")[2]
    return {**WAYS, "cub": "CUB"}.get(name, name)


def _curve(axes: Axes, run: Run, curve: Curve, metric: Metric, index: int, key: Key) -> list[style.EndLabel]:
    """Draw one variant: its line, its interval, its points, `full` and `primary` each with a marker of their own."""
    color = style.PALETTE[index % len(style.PALETTE)]
    points, primary = curve.points(metric), curve.primary(metric)
    if primary is not None:
        _dots(axes, [primary], "D", 9.0, color, "primary", hollow=True)
        key["primary"] = Line2D([], [], linestyle="none", marker="D", markersize=7, mfc="none", mec=style.INK)
    if not points:
        at = [] if primary is None else [primary]
        return [style.EndLabel(dot.sms, dot.value, f"primary {style.number(dot.value)}", color, bold=True) for dot in at]
    xs, ys = curve.line(metric, run.meta.device.sm_count)
    axes.plot(xs, ys, color=color, dashes=style.DASHES[index % len(style.DASHES)] or (None, None), zorder=4, gid="measured")
    _band(axes, xs, points, metric, color, key)
    full = [dot for dot in points if dot.row.sms_requested == SmsMode.FULL]
    counts = [dot for dot in points if dot not in full]
    for dots, marker, size, name in ((counts, style.MARKERS[index % len(style.MARKERS)], 5.0, "count"), (full, "s", 6.5, "full")):
        if dots:
            _dots(axes, dots, marker, size, color, name)
            key[name] = Line2D([], [], linestyle="none", marker="s" if name == "full" else "o", markersize=size, color=style.INK)
    word = curve.label or ("modelled" if run.modelled else "measured")
    text = f"{style.plain(word, 24)} {style.number(ys[-1])}"
    return [style.EndLabel(xs[-1], ys[-1], text, style.INKS[index % len(style.INKS)], bold=True)]


def _dots(axes: Axes, dots: list[Dot], marker: str, size: float, color: str, name: str, *, hollow: bool = False) -> None:
    """Draw markers without a line."""
    axes.plot(
        [dot.sms for dot in dots],
        [dot.value for dot in dots],
        linestyle="none",
        marker=marker,
        markersize=size,
        markerfacecolor="none" if hollow else color,
        markeredgecolor=color if hollow else "white",
        markeredgewidth=1.2 if hollow else 0.7,
        zorder=5 if hollow else 4.5,
        clip_on=False,
        gid=name,
    )


def _band(axes: Axes, xs: list[float], points: list[Dot], metric: Metric, color: str, key: Key) -> None:
    """Draw the 95 % interval: a band along the line, a bar at each point so that it shows where it is narrow."""
    known = {float(dot.sms): interval for dot in points if (interval := metric.interval(dot.row)) is not None}
    if not known:
        return
    low = [known[x][0] if x in known else math.nan for x in xs]
    high = [known[x][1] if x in known else math.nan for x in xs]
    axes.fill_between(xs, low, high, color=color, alpha=0.18, linewidth=0, zorder=1.8, gid="interval")
    axes.vlines(
        list(known), [ends[0] for ends in known.values()], [ends[1] for ends in known.values()], color=color, linewidth=1.1
    )
    key["interval"] = Patch(facecolor=color, alpha=0.18)


def _gaps(axes: Axes, run: Run, panel: Panel, key: Key) -> None:
    """Mark on the axis the counts that have no figure."""
    places = sorted({x for curve in panel.curves for x, _ in curve.gaps(panel.metric, run.meta.device.sm_count)})
    if not places:
        return
    look: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 6.5, "markeredgewidth": 1.8, "color": style.ALARM}
    axes.plot(places, [0.0] * len(places), zorder=6, clip_on=False, gid="gap", **look)
    key["gap"] = Line2D([], [], **look)


def _knee(axes: Axes, run: Run, curve: Curve, metric: Metric, most: int) -> None:
    """Mark the knee: the fewest SMs within 5 % of the full device, only where that was measured."""
    found = knee_of(run, curve)
    if found is None or found.at_full:
        return
    value = next(dot.value for dot in curve.points(metric) if dot.sms == found.sms)
    axes.plot([found.sms, found.sms], [0, value], color=style.INK, linewidth=0.9, dashes=(2, 2), zorder=2.2, gid="knee")
    right = found.sms < 0.72 * most
    axes.annotate(
        f"knee: {found.sms} SMs\n{found.share_pct:.0f} % of full",
        (found.sms, 0),
        xytext=(5 if right else -5, 9),
        textcoords="offset points",
        fontsize=8.5,
        color=style.INK,
        ha="left" if right else "right",
        va="bottom",
        linespacing=1.25,
        bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        zorder=5,
    )
