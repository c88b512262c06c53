"""overview: every scaling curve of a run, small, side by side."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from greenbench.plots import style
from greenbench.plots.curves import Panel, Run
from greenbench.plots.panel import knee_of, most_sms, top_of

COLUMNS = 4
PER_PAGE = 32


def draw(run: Run) -> list[tuple[str, Figure]]:
    """Return the overview, on several pages where it has more panels than one holds; none for a single panel."""
    panels = [panel for panel in run.panels if panel.main.points(panel.metric)]
    if len(panels) < 2:
        return []
    pages = [panels[i : i + PER_PAGE] for i in range(0, len(panels), PER_PAGE)]
    return [(f"overview_{i + 1}" if i else "overview", _page(run, page)) for i, page in enumerate(pages)]


def _page(run: Run, panels: list[Panel]) -> Figure:
    """Lay out up to 32 panels, four a line."""
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    wide, high, gap_x, gap_y = 2.25, 1.45, 0.72, 0.82
    top, bottom = 1.2, 0.78
    width = max(0.62 + columns * (wide + gap_x), 7.4)
    frame = style.Frame(width, top + rows * (high + gap_y) - gap_y + bottom)
    figure = frame.figure()
    knees, names = False, _names(run, panels)
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        axes = frame.axes(figure, 0.55 + column * (wide + gap_x), frame.height - top - row * (high + gap_y) - high, wide, high)
        knees |= _small(axes, run, panel, names[i], last=i + columns >= len(panels))
    note = "line: measured, with its value on the most SMs · dashes: bound · dots: ideal from the smallest count"
    note += " · ring: knee" if knees else ""
    style.heading(figure, frame, run, "Scaling at a glance", [note.replace("measured", "modelled") if run.modelled else note])
    style.footer(figure, frame, run)
    return figure


def _names(run: Run, panels: list[Panel]) -> list[tuple[str, str]]:
    """Return the kernel and the params of its own above each panel, so short that they fit and so long that they differ."""
    kernels = style.shortened([panel.kernel for panel in panels], 28)
    return list(zip(kernels, style.shortened([run.own_params(panel) for panel in panels], 24), strict=True))


def _small(axes: Axes, run: Run, panel: Panel, name: tuple[str, str], *, last: bool) -> bool:
    """Draw one panel: curve, bound, ideal and knee, without labels at the lines; return whether it has a knee."""
    metric, main = panel.metric, panel.main
    points = main.points(metric)
    most, top = most_sms(panel), top_of(run, panel)
    style.sm_axis(axes, most, ticks=5, label=last)
    style.value_axis(axes, top, "", ticks=4)
    axes.tick_params(labelsize=7.5)
    axes.xaxis.label.set_fontsize(8)
    xs, ys = main.line(metric, run.meta.device.sm_count)
    ends = [dots[-1].value for curve in panel.curves if (dots := curve.points(metric))]
    if not metric.scales:
        for curve in panel.curves:
            axes.plot(*curve.line(metric, run.meta.device.sm_count), color=style.MEASURED, linewidth=1.6, marker=".", zorder=3)
    if metric.scales and len(points) > 1:
        end = min(float(most), top / (ys[0] / xs[0]))
        axes.plot([0, end], [0, end * ys[0] / xs[0]], color=style.FAINT, linewidth=0.9, dashes=(1, 1.6), zorder=1.5)
    if metric.scales:
        limits = [(dot.sms, value) for dot in points if (value := metric.of_time(dot.row, dot.row.bound_us))]
        axes.plot([x for x, _ in limits], [y for _, y in limits], color=style.BOUND, linewidth=0.9, dashes=(6, 2.4), zorder=2)
    axes.plot(xs, ys, color=style.MEASURED, linewidth=1.6, marker="o", markersize=2.8, zorder=4, gid="measured")
    found = knee_of(run, main) if metric.scales else None
    if found and not found.at_full:
        at = xs.index(found.sms)
        axes.plot([xs[at]], [ys[at]], marker="o", markersize=6, mfc="white", mec=style.INK, mew=1.2, zorder=5, gid="knee")
    axes.set_title(name[0], fontsize=9, fontweight="bold", color=style.INK, loc="left", pad=14)
    shown = [ys[-1]] if metric.scales else sorted({min(ends), max(ends)})
    own = name[1]
    words = f"{' to '.join(style.number(value) for value in shown)} {metric.unit}{' · ' if own else ''}{own}"
    axes.annotate(
        words,
        (0, 1),
        xytext=(0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
        color=style.MUTED,
    )
    return bool(found and not found.at_full)
