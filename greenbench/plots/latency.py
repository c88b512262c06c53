"""latency: cycles of a dependent load by working set, from the L1 to HBM."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from greenbench.plots import style
from greenbench.plots.curves import CYCLES, Run, binary_size
from greenbench.schema import Row, Status


def draw(run: Run) -> list[tuple[str, Figure]]:
    """Return one figure with a panel for each kernel that reports a latency over its working set; none where no kernel does.

    A kernel measured with one working set has no such curve.
    """
    kernels: dict[str, list[Row]] = {}
    for panel in run.panels:
        for curve in panel.curves:
            rows = [dot.row for dot in curve.points(CYCLES) if dot.row.working_set_bytes]
            kernels.setdefault(panel.kernel, []).extend(rows)
    shown = [(kernel, rows) for kernel, rows in kernels.items() if any(len(line) > 1 for line in _by_count(rows).values())]
    if not shown:
        return []
    wide, high, right = 5.6, 3.5, 1.5
    top, bottom = 1.12, 0.85
    frame = style.Frame(max(0.8 + len(shown) * (wide + right), 7.4), top + high + bottom)
    figure = frame.figure()
    for i, (kernel, rows) in enumerate(shown):
        axes = frame.axes(figure, 0.8 + i * (wide + right), bottom, wide, high)
        _panel(axes, run, rows)
        title = style.plain(kernel, 40) if len(shown) > 1 else ""
        axes.set_title(title, fontsize=9.5, fontweight="bold", color=style.INK, loc="left", pad=20)
    kernel = style.plain(shown[0][0], 40) if len(shown) == 1 else "all kernels that report one"
    lines = ["cycles and time of one load that waits for the one before"]
    style.heading(figure, frame, run, f"{kernel} · latency by working set", lines)
    style.footer(figure, frame, run)
    return [("latency", figure)]


def _by_count(rows: list[Row]) -> dict[int, dict[int, float]]:
    """Return {SMs: {working set: cycles}}."""
    found: dict[int, dict[int, float]] = {}
    for row in rows:
        value = CYCLES.value(row)
        if row.status == Status.OK and value is not None and row.sms_granted and row.working_set_bytes:
            found.setdefault(row.sms_granted, {})[row.working_set_bytes] = value
    return found


def _panel(axes: Axes, run: Run, rows: list[Row]) -> None:
    """Draw the smallest and the largest partition as lines, and what lies between them as a band."""
    found = _by_count(rows)
    sizes = sorted({row.working_set_bytes for row in rows if row.working_set_bytes})
    every = [value for line in found.values() for value in line.values()]
    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 4, sizes[-1] * 2)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: binary_size(value)))
    axes.set_xlabel("working set", color=style.MUTED, fontsize=9)
    style.value_axis(axes, 1.2 * max(every), "cycles")
    _levels(axes, run)
    span = [[line[x] for line in found.values() if x in line] for x in sizes]
    if len(found) > 1:
        low, high = [min(ys) for ys in span], [max(ys) for ys in span]
        axes.fill_between(sizes, low, high, color=style.MEASURED, alpha=0.15, linewidth=0, zorder=1.8, gid="span")
    labels = []
    for i, sms in enumerate(sorted({min(found), max(found)})):
        xs = sorted(found[sms])
        ys = [found[sms][x] for x in xs]
        color = (style.YARDSTICK, style.MEASURED)[i] if len(found) > 1 else style.MEASURED
        axes.plot(
            xs,
            ys,
            color=color,
            dashes=style.DASHES[1 - i] or (None, None) if len(found) > 1 else (None, None),
            marker=style.MARKERS[1 - i] if len(found) > 1 else "o",
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=4 + i,
            clip_on=False,
            gid=f"latency {sms}",
        )
        labels.append(style.EndLabel(xs[-1], ys[-1], f"{sms} SMs {style.number(ys[-1])}", color, bold=True))
    _values(axes, rows, max(found))
    style.end_labels(axes, labels)


def _ticks(sizes: list[int]) -> list[int]:
    """Return the working sets to name on the axis: those measured, thinned where they stand close."""
    ticks: list[int] = []
    for place in sizes:
        if not ticks or place >= 2.9 * ticks[-1]:
            ticks.append(place)
    return ticks


def _levels(axes: Axes, run: Run) -> None:
    """Name the levels and draw where they end: at the memory of an SM and at the L2."""
    low, high = axes.get_xlim()
    device = run.meta.device
    l1, l2 = float(device.smem_per_sm_bytes), float(device.l2_bytes)
    levels = ((low, l1, "L1"), (l1, l2, f"L2 ({binary_size(l2)})"), (l2, high, "device memory"))
    for start, end, name in levels:
        left, right = max(start, low), min(end, high)
        if left >= right:
            continue
        if right < high:
            axes.axvline(right, color=style.FAINT, linewidth=0.9, dashes=(2, 2), zorder=1.6)
        axes.annotate(
            name,
            (math.sqrt(left * right), 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, -3),
            textcoords="offset points",
            fontsize=8.5,
            color=style.MUTED,
            ha="center",
            va="top",
        )


def _values(axes: Axes, rows: list[Row], sms: int) -> None:
    """Write cycles and ns beside the points of the largest partition, on the side that a rising line leaves free."""
    shown = {row.working_set_bytes: row for row in rows if row.sms_granted == sms}
    for size, row in shown.items():
        value = CYCLES.value(row)
        if value is None or size is None:
            continue
        ns = f"\n{style.number(row.latency_ns)} ns" if row.latency_ns else ""
        axes.annotate(
            f"{style.number(value)}{ns}",
            (size, value),
            xytext=(-6, 4),
            textcoords="offset points",
            fontsize=8,
            color=style.INK,
            ha="right",
            va="bottom",
            linespacing=1.15,
            zorder=6,
        )
