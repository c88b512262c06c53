"""strip: a timeline at a glance, one lane per context with the share of each moment it was busy, NVTX ranges above.

A lane is drawn from exact busy times per column of pixels, so a million kernels cost no more than ten.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from greenbench import __version__
from greenbench.plots import style
from greenbench.storage import replace_file, writing
from greenbench.timeline.analysis import Analysis
from greenbench.timeline.figures import Segment, segments
from greenbench.timeline.finding import counted
from greenbench.timeline.intervals import Ints, Spans, active_times, merge_sorted

Shares = npt.NDArray[np.float64]

MOST_LANES = 12
MOST_BARS = 200
_COLUMNS = 1_500
_LEFT, _RIGHT, _WIDE, _LANE, _BAR = 1.75, 1.55, 8.6, 0.46, 0.21
_LEVELS = 3
_LETTER = 0.075
_BAR_COLOR = "#E8EDF3"


def strip_paths(target: Path, stem: str) -> list[Path]:
    """Return the files that `save_strip` writes."""
    if target.suffix.lower() in (".png", ".svg"):
        return [target]
    return [target / f"{style.stem_of(stem, 'timeline')}.{suffix}" for suffix in ("png", "svg")]


def save_strip(analysis: Analysis, target: Path, stem: str) -> list[Path]:
    """Write the strip: to a file where the target ends in .png or .svg, else as both into that folder; return the paths."""
    one = target.suffix.lower().removeprefix(".")
    with style.context():
        figure = draw(analysis)
        if one not in ("png", "svg"):
            return style.save(figure, target, style.stem_of(stem, "timeline"))
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=one, **(style.PNG if one == "png" else style.SVG))
        replace_file(target, buffer.getvalue())
        return [target]


def draw(analysis: Analysis) -> Figure:
    """Return the figure; call it within `style.context`."""
    capture = analysis.capture
    every = list(segments(capture.work))
    parts = sorted(sorted(every, key=lambda part: -part.busy.length)[:MOST_LANES], key=lambda part: part.place)
    start, end = min(int(part.work.start[0]) for part in every), max(int(part.work.end.max()) for part in every)
    bars = _bars(analysis, start, end)
    levels = max((level for *_, level in bars), default=-1) + 1
    together = len(parts) > 1 and len(analysis.whole.devices) == 1
    lanes = len(parts) + together
    bottom, top = 0.72, 0.98
    frame = style.Frame(_LEFT + _WIDE + _RIGHT, top + levels * _BAR + lanes * _LANE + bottom)
    figure = frame.figure()
    axes = frame.axes(figure, _LEFT, bottom, _WIDE, levels * _BAR + lanes * _LANE)
    _lay_out(axes, (end - start) or 1, lanes + levels * _BAR / _LANE)
    edges = np.linspace(0, end - start or 1, _COLUMNS + 1)
    times = start + np.round(edges).astype(np.int64)
    for index, part in enumerate(parts):
        _lane(axes, analysis, part, lanes - 1 - index, times, style.PALETTE[index % len(style.PALETTE)])
    if together:
        _together(axes, [part.busy for part in parts], times)
    for name, left, width, level in bars:
        _bar(axes, name, (left - start) / 1e6, width / 1e6, lanes + (levels - 1 - level) * _BAR / _LANE, (end - start) / 1e6)
    _words(figure, frame, analysis, len(every) - len(parts))
    return figure


def _lay_out(axes: Axes, span: int, high: float) -> None:
    axes.set_xlim(0, span / 1e6)
    axes.set_ylim(0, high)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.set_xlabel("ms since the first kernel", color=style.MUTED, fontsize=9)


def _shares(spans: Spans, times: Ints) -> Shares:
    """Return, per column, which share of it is covered."""
    shares: Shares = np.diff(spans.covered_before(times)) / np.maximum(np.diff(times), 1)
    return shares


def _fill(axes: Axes, low: float, shares: Shares, times: Ints, color: str, gid: str) -> None:
    # Columns alike are one step, which keeps the SVG small.
    steps = np.concatenate(([True], np.diff(shares) != 0, [True]))
    x = (times - times[0])[steps] / 1e6
    high = low + 0.8 * np.append(shares, shares[-1:])[steps]
    axes.fill_between(x, low, high, step="post", color=color, linewidth=0, gid=gid)
    axes.plot([x[0], x[-1]], [low, low], color=style.GRID, linewidth=0.8, zorder=0.5)


def _lane(axes: Axes, analysis: Analysis, part: Segment, row: int, times: Ints, color: str) -> None:
    context = analysis.capture.contexts[part.place]
    _fill(axes, row + 0.08, _shares(part.busy, times), times, color, f"lane {part.place}")
    span = int(times[-1] - times[0]) or 1
    sms = f"{context.sms} SMs" if context.sms else ""
    labels = (style.plain(context.label, 22), " · ".join(filter(None, (sms, counted(len(part.work), "kernel")))))
    right = f"{100 * part.busy.length / span:.1f} % busy", f"{part.busy.length / 1e6:,.3f} ms"
    for x, texts, align in ((-0.012, labels, "right"), (1.012, right, "left")):
        for text, dy, ink, size in ((texts[0], 0.56, style.INK, 8.5), (texts[1], 0.22, style.MUTED, 7.5)):
            y = row + dy
            axes.text(x, y, text, transform=axes.get_yaxis_transform(), ha=align, va="center", fontsize=size, color=ink)


def _together(axes: Axes, sets: list[Spans], times: Ints) -> None:
    """Draw when two or more of the contexts ran."""
    at, active = active_times(sets)
    both = np.flatnonzero(active[:-1] > 1)
    spans = merge_sorted(at[both], at[both + 1])
    _fill(axes, 0.08, _shares(spans, times), times, style.MUTED, "together")
    span = int(times[-1] - times[0]) or 1
    words = ((-0.012, "two or more at once", "right"), (1.012, f"{100 * spans.length / span:.1f} % of the span", "left"))
    for x, text, align in words:
        axes.text(x, 0.42, text, transform=axes.get_yaxis_transform(), ha=align, va="center", fontsize=8.5, color=style.MUTED)


def _bars(analysis: Analysis, start: int, end: int) -> list[tuple[str, int, int, int]]:
    """Return (name, start, length, level) of the longest ranges by their GPU projection within the figure, outermost first."""
    attribution, capture = analysis.attribution, analysis.capture
    found, where = np.unique(attribution.range, return_inverse=True)
    if not len(found):
        return []
    first, last = np.full(len(found), end), np.full(len(found), start)
    np.minimum.at(first, where, capture.work.start[attribution.work])
    np.maximum.at(last, where, capture.work.end[attribution.work])
    longest = np.argsort(first - last, kind="stable")[:MOST_BARS]
    bars: list[tuple[str, int, int, int]] = []
    ends = [start - 1] * _LEVELS
    for index in longest[np.lexsort((-last[longest], first[longest]))].tolist():
        level = next((level for level, stop in enumerate(ends) if stop <= first[index]), None)
        if level is not None:
            ends[level] = int(last[index])
            name = capture.texts[int(capture.ranges.name[found[index]])]
            bars.append((name, int(first[index]), int(last[index] - first[index]), level))
    return bars


def _bar(axes: Axes, name: str, left: float, width: float, low: float, span: float) -> None:
    high = 0.8 * _BAR / _LANE
    axes.add_patch(Rectangle((left, low), width, high, facecolor=_BAR_COLOR, edgecolor="white", linewidth=0.8, gid="range"))
    room = int(width / (span or 1) * _WIDE / _LETTER)
    if room >= 4:
        text = style.middle(name, room)
        axes.text(left + width / 2, low + high / 2, text, ha="center", va="center", fontsize=7.5, color=style.INK, clip_on=True)


def _words(figure: Figure, frame: style.Frame, analysis: Analysis, left_out: int) -> None:
    capture = analysis.capture
    name = style.fitted(f"{Path(capture.source).name} · timeline", frame.width - 0.44, 13.0)
    pairs = sorted(analysis.whole.pairs, key=lambda pair: -pair.overlap_ns)[:2]
    told = [f"{pair.a} and {pair.b} overlap {100 * pair.of_smaller:.1f} % of the smaller" for pair in pairs]
    strays = f"strays not checked: {analysis.unchecked}" if analysis.unchecked else counted(analysis.strays, "stray kernel")
    more = [f"{left_out} more contexts not drawn"] if left_out else []
    line = style.fitted(" · ".join([strays, *more, *told]), frame.width - 0.44, 9, "normal")
    left = 0.22 / frame.width
    figure.text(left, 1 - 0.36 / frame.height, name, fontsize=13, fontweight="bold", color=style.INK)
    figure.text(left, 1 - 0.58 / frame.height, line, fontsize=9, color=style.MUTED)
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in capture.gpus.values()))
    parts = (gpus, _recorder(capture.product), f"greenbench {__version__}", "taken under a profiler")
    text = style.plain(" · ".join(filter(None, parts)), int((frame.width - 0.4) / 0.058))
    figure.text(left, 0.13 / frame.height, text, fontsize=7.5, color=style.MUTED)


def _recorder(product: str) -> str:
    """Name who recorded the trace: nsys by its version, greenbench's own pass by name."""
    return f"nsys {product}" if product and not product.startswith("greenbench") else product
