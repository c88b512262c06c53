"""scaling_KERNEL: a kernel's throughput against the SMs it was granted, beside what it could be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from greenbench.plots import style
from greenbench.plots.curves import Panel, Run
from greenbench.plots.panel import draw_panel, knee_of

REASONS = 5
RIGHT = 2.65
KEY_LINE = 0.2


@dataclass(frozen=True, slots=True)
class Shape:
    """The measures of one panel in inches."""

    width: float
    height: float
    columns: int


def draw(run: Run) -> list[tuple[str, Figure]]:
    """Return one figure per kernel, a panel for each set of params."""
    drawn: list[tuple[str, Figure]] = []
    stems: set[str] = set()
    for kernel, panels in run.kernels.items():
        stem = style.stem_of("scaling", kernel)
        while stem.lower() in stems:
            stem += "_"
        stems.add(stem.lower())
        drawn.append((stem, _figure(run, kernel, panels)))
    return drawn


def _figure(run: Run, kernel: str, panels: list[Panel]) -> Figure:
    """Lay out the panels of a kernel below its heading, and the key and the reasons of its gaps below them."""
    single = len(panels) == 1
    shape = Shape(5.9, 3.55, 1) if single else Shape(3.9, 2.7, 2)
    rows = math.ceil(len(panels) / shape.columns)
    width = 0.72 + shape.columns * (shape.width + RIGHT) + (shape.columns - 1) * 0.6
    reasons = _reasons(run, panels, width - 0.4)
    common = _common(panels)
    heads = [_panel_head(run, panel, run.own_params(panel), shape.width + 1.6, single=single) for panel in panels]
    head_lines = max(len(lines) for lines in heads)
    about = " · ".join(part for part in (run.summary(kernel).rstrip("."), common, _timings(panels)) if part)
    lines = style.wrapped(style.plain(about), width - 0.6, 9)
    top = 0.46 + 0.2 * len(lines)
    above = 0.38 + 0.18 * head_lines
    bottom = 1.08 + 0.17 * len(reasons) + (KEY_LINE if any(len(panel.ways) > 1 for panel in panels) else 0.0)
    frame = style.Frame(width, top + rows * (above + shape.height) + (rows - 1) * 0.55 + bottom)
    figure = frame.figure()
    key: dict[str, Line2D | Patch] = {}
    for i, panel in enumerate(panels):
        row, column = divmod(i, shape.columns)
        left = 0.72 + column * (shape.width + RIGHT + 0.6)
        base = frame.height - top - (row + 1) * (above + shape.height) - row * 0.55
        axes = frame.axes(figure, left, base, shape.width, shape.height)
        _write_head(figure, frame, heads[i], left - 0.5, base + shape.height + 0.38)
        key |= draw_panel(axes, run, panel)
    metric = panels[0].metric
    style.heading(figure, frame, run, f"{kernel} · {metric.title} against SMs", lines)
    _write_key(figure, frame, key, reasons)
    style.footer(figure, frame, run)
    return figure


def _common(panels: list[Panel]) -> str:
    """Return the params that all panels of a kernel share."""
    sets = [panel.params.split(",") for panel in panels]
    return ", ".join(part for part in sets[0] if part and all(part in other for other in sets))


def _timings(panels: list[Panel]) -> str:
    """Name the ways of timing of the points drawn."""
    found = dict.fromkeys(dot.row.timing for panel in panels for curve in panel.curves for dot in curve.points(panel.metric))
    return f"timing {', '.join(found)}" if any(found) else ""


def _panel_head(run: Run, panel: Panel, own: str, inches: float, *, single: bool) -> list[tuple[str, bool]]:
    """Return the lines above a panel: its own params (bold) and the sentence on its knee."""
    lines = [] if single else [(style.plain(own or panel.params, int(inches * 11)), True)]
    found = knee_of(run, panel.main)
    if found:
        lines += [(line, False) for line in style.wrapped(style.plain(found.sentence), inches, 8.5)]
    return lines


def _write_head(figure: Figure, frame: style.Frame, lines: list[tuple[str, bool]], left: float, base: float) -> None:
    """Write a panel's lines, the last of them lowest."""
    for i, (line, bold) in enumerate(reversed(lines)):
        figure.text(
            left / frame.width,
            (base + 0.18 * i) / frame.height,
            line,
            fontsize=9.5 if bold else 8.5,
            fontweight="bold" if bold else "normal",
            color=style.INK,
            va="baseline",
        )


def _reasons(run: Run, panels: list[Panel], inches: float) -> list[str]:
    """Return one line per reason for which points have no figure, with the counts that it cost."""
    found: dict[str, list[int]] = {}
    for panel in panels:
        for curve in panel.curves:
            for x, row in curve.gaps(panel.metric, run.meta.device.sm_count):
                text = f"{row.status or 'no figure'}: {row.reason or 'no figure recorded'}"
                whose = ", ".join(part for part in (run.own_params(panel), curve.label) if part)
                text = f"{whose} {text}" if whose else text
                found.setdefault(text, [])
                if x not in found[text]:
                    found[text].append(x)
    lines = [f"× {_counts(sorted(xs))}: {text}" for text, xs in found.items()]
    if len(lines) > REASONS:
        lines = [*lines[: REASONS - 1], f"× and {len(lines) - REASONS + 1} more reasons, in rows.csv"]
    return [piece for line in lines for piece in style.wrapped(style.plain(line), inches, 8)[:2]]


def _counts(counts: list[int]) -> str:
    """Write a list of SM counts; a long one by its ends."""
    if len(counts) > 6:
        return f"{len(counts)} counts from {counts[0]} to {counts[-1]} SMs"
    return f"{', '.join(str(count) for count in counts)} SMs"


KEY_WORDS = {
    "count": "green context",
    "full": "full device, green context",
    "primary": "primary context",
    "interval": "95 % interval",
    "gap": "no figure",
}


def _write_key(figure: Figure, frame: style.Frame, key: dict[str, Line2D | Patch], reasons: list[str]) -> None:
    """Write what the markers and thin lines mean, and why points are missing, below the panels."""
    base = 0.36 + 0.17 * len(reasons)
    lines = [[name for name in key if name not in KEY_WORDS], [name for name in KEY_WORDS if name in key]]
    for i, names in enumerate(names for names in lines if names):
        figure.legend(
            [key[name] for name in names],
            [KEY_WORDS.get(name, name) for name in names],
            loc="lower left",
            bbox_to_anchor=(0.12 / frame.width, (base - 0.06 + i * KEY_LINE) / frame.height),
            ncols=len(names),
            frameon=False,
            fontsize=8,
            labelcolor=style.MUTED,
            handletextpad=0.4,
            columnspacing=1.4,
            borderpad=0.2,
        )
    for i, line in enumerate(reasons):
        figure.text(
            0.22 / frame.width, (base - 0.13 - 0.17 * i) / frame.height, line, fontsize=8, color=style.ALARM, va="baseline"
        )
