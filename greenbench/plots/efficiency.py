"""efficiency: what one SM of a partition yields, in per cent of what it yields in the smallest one measured."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from greenbench.knee import DIVIDED
from greenbench.plots import style
from greenbench.plots.curves import Curve, Metric, Panel, Run
from greenbench.plots.panel import most_sms
from greenbench.schema import Family

WIDTH = 25
EFFICIENCY = Metric("efficiency_pct", "%", "efficiency", False)
TITLES = {Family.GEMM: "GEMM", Family.MEMORY: "memory"}


def draw(run: Run) -> list[tuple[str, Figure]]:
    """Return the figure, a panel per family; none where no curve has two counts.

    Latency kernels and probes do not divide their work among SMs, so an efficiency of theirs would say nothing.
    """
    families = [(family, _curves(run, family)) for family in DIVIDED]
    shown = [(family, curves) for family, curves in families if curves]
    if not shown:
        return []
    wide, high, right = 5.0, max(3.3, 0.17 * max(len(curves) for _, curves in shown)), 2.65
    top, bottom = 1.16, 0.8
    frame = style.Frame(max(0.72 + len(shown) * (wide + right), 7.4), top + high + bottom)
    figure = frame.figure()
    for i, (family, curves) in enumerate(shown):
        axes = frame.axes(figure, 0.72 + i * (wide + right), bottom, wide, high)
        _panel(axes, run, curves)
        title = f"{TITLES[family]} kernels" if len(shown) > 1 else ""
        axes.set_title(title, fontsize=9.5, fontweight="bold", color=style.INK, loc="left", pad=22)
    lines = ["time per launch × SMs, 100 % at the smallest count of each curve; the clock's share of it is included"]
    style.heading(figure, frame, run, "Efficiency per SM against SMs", lines)
    style.footer(figure, frame, run)
    return [("efficiency", figure)]


def _curves(run: Run, family: Family) -> list[tuple[str, Curve, Panel]]:
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


def _names(found: list[tuple[str, Curve, Panel]]) -> list[str]:
    """Return what stands at the end of each curve: its kernel, and what tells it from the kernel's others."""
    kernels = list(dict.fromkeys(curve.kernel for _, curve, _ in found))
    short = dict(zip(kernels, style.shortened(kernels, 16 if any(more for more, _, _ in found) else WIDTH), strict=True))
    names: dict[tuple[str, str], str] = {}
    for kernel, name in short.items():
        parts = list(dict.fromkeys(more for more, curve, _ in found if curve.kernel == kernel))
        for more, part in zip(parts, style.shortened(parts, WIDTH - 1 - len(name)), strict=True):
            names[kernel, more] = f"{name} {part}".strip()
    return [names[curve.kernel, more] for more, curve, _ in found]


def _panel(axes: Axes, run: Run, curves: list[tuple[str, Curve, Panel]]) -> None:
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
