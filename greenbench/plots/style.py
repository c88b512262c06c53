"""The look of every figure: colours, frame, labels at the line's end, footer, marks, and the files they are saved to."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from greenbench.plots.curves import Run
from greenbench.storage import replace_file, writing

INK = "#1F2933"
MUTED = "#616E7C"
FAINT = "#9AA5B1"
GRID = "#E4E7EB"
ALARM = "#B3261E"

# Ordered from dark to light, apart in hue for red-green and blue-yellow vision; lines differ in dashes and markers as well.
PALETTE = ("#12284B", "#9A2B4B", "#0F7B7B", "#D2701F", "#5BAEEA", "#E8C54C")
MARKERS = ("o", "^", "D", "v", "P", "X")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.6), (2, 1.2), (7, 1.5, 1.5, 1.5), (1, 1), (9, 2))

# The same, dark enough for text on white.
INKS = ("#12284B", "#A03050", "#0F6B6B", "#B45309", "#1F74B5", "#8A6A00")

MEASURED = PALETTE[0]
YARDSTICK = PALETTE[3]
YARDSTICK_TEXT = INKS[3]
# The several ways of one vendor, below the line of the best of them.
WAY_DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.4), (1.2, 1.2))
PREDICTED = PALETTE[4]
PREDICTED_TEXT = INKS[4]
BOUND = "#3E4C59"
# A ceiling that was measured, beside the bound that was not.
CEILING, CEILING_TEXT = PALETTE[2], INKS[2]

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
    "svg.hashsalt": "greenbench",
    "svg.fonttype": "path",
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "path.simplify": True,
    "figure.max_open_warning": 0,
}
DPI = 150
# Fast compression: a tenth larger and a fifth of the time to draw.
PNG: dict[str, Any] = {"dpi": DPI, "metadata": {"Software": None}, "pil_kwargs": {"compress_level": 1}}
SVG: dict[str, Any] = {"metadata": {"Date": None}}


@contextmanager
def context() -> Iterator[None]:
    """Apply the style to figures made and saved within, and leave matplotlib's settings as they were."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


@cache
def _glyphs() -> frozenset[int]:
    """Return the characters that the font can draw."""
    return frozenset(FT2Font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def plain(text: str, width: int = 0) -> str:
    """Return text from outside as the font can show it: one line, unknown characters as □, cut to `width`.

    Nothing in it is markup: the style turns mathtext off.
    """
    line = "".join(c if ord(c) in _glyphs() and c.isprintable() else "□" for c in " ".join(text.split()))
    return line if not width or len(line) <= width else f"{line[: width - 1]}…"


def middle(text: str, width: int, tail: float = 0.5) -> str:
    """Return plain text cut in its middle to `width`, with this share of what is kept at its end."""
    line = plain(text)
    if len(line) <= width:
        return line
    end = round((width - 1) * tail)
    return f"{line[: width - 1 - end]}…{line[len(line) - end :]}"


def _alike(texts: Sequence[str]) -> int:
    """Return how many characters all texts begin with."""
    columns = zip(*texts, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def shortened(texts: Sequence[str], width: int) -> list[str]:
    """Return texts cut to `width` so that those that differ still do: in the middle, else around what differs, else numbered."""
    kinds = list(dict.fromkeys(texts))
    start = _alike(kinds)
    end = _alike([kind[start:][::-1] for kind in kinds])
    bare = [f"…{kind[start : len(kind) - end]}{'…' if end else ''}" for kind in kinds] if start > 1 else kinds
    tries = [[middle(kind, width, tail) for kind in of] for of in (kinds, bare) for tail in (0.5, 0.8, 0.2)]
    numbered = [middle(f"{i} {kind}", width, 0.2) for i, kind in enumerate(kinds, 1)]
    found = next((cut for cut in tries if len(set(cut)) == len(kinds)), numbered)
    return [dict(zip(kinds, found, strict=True))[text] for text in texts]


@cache
def _advance(character: str, weight: str) -> float:
    """Return how wide a character of the font is, as a share of its size."""
    font = FT2Font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    font.set_size(100, 72)
    return float(font.load_char(ord(character)).linearHoriAdvance) / 65536 / 100


def fitted(text: str, inches: float, size: float, weight: str = "bold") -> str:
    """Return plain text cut to what fits a width in inches."""
    line = plain(text)
    for cut in (line, *(f"{line[:length].rstrip()}…" for length in range(len(line) - 1, 0, -1))):
        if text_inches(cut, size, weight) <= inches:
            return cut
    return "…"


def text_inches(text: str, size: float, weight: str = "normal") -> float:
    """Return how wide a text of the font is."""
    return sum(_advance(character, weight) for character in text) * size / 72


def number(value: float) -> str:
    """Return a figure with at most four digits that mean something: 4368, 794.6, 33.7, 0.92."""
    if abs(value) >= 1000:
        return f"{value:.0f}"
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Frame:
    """The measures of a figure in inches, in which everything on it is placed."""

    width: float
    height: float

    def figure(self) -> Figure:
        """Return an empty white figure of this size."""
        return Figure(figsize=(self.width, self.height), facecolor="white")

    def axes(self, figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
        """Add axes at a place in inches."""
        axes = figure.add_axes((left / self.width, bottom / self.height, width / self.width, height / self.height))
        dress(axes)
        return axes


def dress(axes: Axes) -> None:
    """Give axes the house look: two thin spines, horizontal grid, muted ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=MUTED, labelsize=8.5, length=3, width=0.8, color=FAINT)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def sm_axis(axes: Axes, most: int, *, ticks: int = 9, label: bool = True) -> None:
    """Lay the x axis out for SM counts: from 0 to the largest, which is named, in steps of a power of two."""
    step = next(step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256) if most / step <= ticks or step == 256)
    places = [tick for tick in range(0, most, step) if most - tick >= 0.6 * step]
    axes.set_xlim(0, most * 1.02)
    axes.xaxis.set_major_locator(FixedLocator([*places, most]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    if label:
        axes.set_xlabel("granted SMs", color=MUTED, fontsize=9)


def value_axis(axes: Axes, top: float, unit: str, *, ticks: int = 6) -> None:
    """Lay the y axis out from 0, its unit above it."""
    axes.set_ylim(0, top)
    axes.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if unit:
        axes.annotate(
            unit,
            (0, 1),
            xytext=(-32, 7),
            xycoords="axes fraction",
            textcoords="offset points",
            color=MUTED,
            fontsize=9,
            ha="left",
        )


@dataclass(frozen=True, slots=True)
class EndLabel:
    """Text for the right end of a line."""

    x: float
    y: float
    text: str
    color: str
    bold: bool = False


def end_labels(axes: Axes, labels: Sequence[EndLabel], size: float = 8.5) -> None:
    """Write labels to the right of the axes, each at the height of its line's end, moved apart where they would meet."""
    height_pt = axes.get_position().height * axes.figure.get_figheight() * 72  # type: ignore[union-attr]
    # From data to shares of the axes, whatever their scale.
    shares = axes.transScale + axes.transLimits
    ordered = sorted(labels, key=lambda label: label.y)
    ends = [shares.transform((label.x, label.y)) for label in ordered]
    places = spread([float(y) for _, y in ends], 1.42 * size / height_pt)
    for label, (x, y), place in zip(ordered, ends, places, strict=True):
        end = min(float(y), 1.0)
        # A line, since an annotation's arrow takes ten times as long to draw.
        axes.plot(
            [x, 1.012, 1.03],
            [end, end, place],
            transform=axes.transAxes,
            color=label.color,
            linewidth=0.6,
            alpha=0.6,
            clip_on=False,
            zorder=1.4,
            gid="leader",
        )
        weight = "bold" if label.bold else "normal"
        axes.text(
            1.04, place, label.text, transform=axes.transAxes, color=label.color, fontsize=size, fontweight=weight, va="center"
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move ascending places (0 to 1) apart by at least `gap`, each group about the middle of where it belongs.

    Neighbours that meet become one group, which may meet the next in turn, until no two do.
    """
    groups: list[list[float]] = []

    def start(group: Sequence[float]) -> float:
        middle = sum(group) / len(group) - gap * (len(group) - 1) / 2
        return max(0.0, min(middle, 1.0 - gap * (len(group) - 1)))

    for place in places:
        groups.append([place])
        while len(groups) > 1 and start(groups[-2]) + gap * len(groups[-2]) > start(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [start(group) + gap * i for group in groups for i in range(len(group))]


def wrapped(text: str, inches: float, size: float) -> list[str]:
    """Break text into lines that fit a width; a character of the font is about 0.56 of its size wide."""
    return textwrap.wrap(text, max(20, int(inches * 72 / (0.56 * size))))


def heading(figure: Figure, frame: Frame, run: Run, title: str, lines: Sequence[str] = ()) -> None:
    """Write the title and the lines under it from the top left, and mark what is no measurement at the top right."""
    badge = _badge(run)
    room = frame.width - 0.44 - (text_inches(badge, 11, "bold") + 0.3 if badge else 0)
    place = frame.height - 0.36
    # A smaller title says more than one that is cut.
    size = next((size for size in (13.0, 12.0, 11.0) if fitted(title, room, size) == plain(title)), 11.0)
    text = fitted(title, room, size)
    figure.text(0.22 / frame.width, place / frame.height, text, fontsize=size, fontweight="bold", color=INK, va="baseline")
    for line in lines:
        place -= 0.2
        figure.text(0.22 / frame.width, place / frame.height, line, fontsize=9, color=MUTED, va="baseline")
    if badge:
        _mark(figure, frame, badge)


def _badge(run: Run) -> str:
    """Return the words that stand on every figure of a run that measured nothing."""
    return " · ".join(
        word for word, on in (("MODELLED — not measured", run.modelled), ("PROFILED — no timing", run.profiled)) if on
    )


def footer(figure: Figure, frame: Frame, run: Run) -> None:
    """Say at the bottom what was measured, with what, and when."""
    device = run.meta.device
    parts = (
        device.name,
        f"driver {device.driver}",
        f"CUDA {device.cuda_text}",
        run.meta.created[:10],
        f"backend {device.backend.value}",
        f"greenbench {run.meta.greenbench}",
        f"run {run.meta.run_id}",
    )
    text = plain(" · ".join(part for part in parts if part.strip()), int((frame.width - 0.4) / 0.058))
    figure.text(0.22 / frame.width, 0.13 / frame.height, text, fontsize=7.5, color=MUTED, va="baseline")


def _mark(figure: Figure, frame: Frame, words: str) -> None:
    """Print a badge at the top right and the same words across the figure."""
    figure.text(
        1 - 0.18 / frame.width,
        1 - 0.30 / frame.height,
        words,
        fontsize=11,
        fontweight="bold",
        color="white",
        ha="right",
        va="center",
        bbox={"boxstyle": "round,pad=0.4", "facecolor": ALARM, "edgecolor": "none"},
        zorder=20,
    )
    figure.text(
        0.46,
        0.5,
        words,
        fontsize=min(46.0, 60 * frame.width / len(words)),
        fontweight="bold",
        color=ALARM,
        alpha=0.13,
        rotation=24,
        ha="center",
        va="center",
        zorder=0.5,
    )


def stem_of(*parts: str) -> str:
    """Return a file stem that every file system takes."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", "_".join(parts))[:80].strip("._") or "figure"


def save(figure: Figure, out_dir: Path, stem: str) -> list[Path]:
    """Write a figure as PNG and SVG, each replaced as a whole; the same figure gives the same bytes."""
    with writing(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, options in (("png", PNG), ("svg", SVG)):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        paths.append(out_dir / f"{stem}.{suffix}")
        replace_file(paths[-1], buffer.getvalue())
    return paths
