"""What the figures of a co-location share: the axis of a tail, the shaded objective, and what is missing, told at the bottom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from greenbench.plots import style
from greenbench.plots.copoints import Case, duration
from greenbench.schema import Status

# Above this ratio of the largest to the smallest figure the small ones would lie on a linear axis' floor.
SPREAD = 20.0
SLO_COLOR = "#E3F1EA"
SLO_INK = "#2F7A55"
GREW = "saturated"
GREW_WORDS = "saturated: the queue of steps was still growing at the end of the run, so there is no percentile"


def tail_axis(axes: Axes, case: Case, values: Sequence[float], *, grown: bool) -> None:
    """Lay the y axis out for these figures in us, its quantity above it; log where they spread by more than 20.

    `grown`: at the top there is to be room for mechanisms whose queue grew.
    """
    low, high = min(values), max(values)
    if high > SPREAD * low:
        least, most = low / 1.25, high * (2.6 if grown else 1.3)
        axes.set_yscale("log")
        axes.set_ylim(least, most)
        axes.yaxis.set_major_locator(FixedLocator(_log_ticks(least, most)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        style.value_axis(axes, (1.3 if grown else 1.12) * high, "")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))
    scale = " (log)" if axes.get_yscale() == "log" else ""
    axes.annotate(
        f"{case.latency.kernel} {case.tail.name}{scale}",
        (0, 1),
        xytext=(-46, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        color=style.MUTED,
        fontsize=9,
    )


def _log_ticks(low: float, high: float) -> list[float]:
    """Return ticks at 1, 2 and 5 of each decade; at 1 alone over more than three decades."""
    steps = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def slo_box(axes: Axes, case: Case) -> str:
    """Shade what is within the objective, where it is one on the percentile shown, and return the words for its edge."""
    limit = case.limit_us
    if limit is None:
        return ""
    low, high = axes.get_ylim()
    axes.axhspan(low, min(limit, high), color=SLO_COLOR, linewidth=0, zorder=0.2, gid="slo")
    if not low < limit < high:
        return ""
    axes.axhline(limit, color=SLO_INK, linewidth=0.8, dashes=(4, 2), zorder=1.2, gid="slo limit")
    return f"SLO {duration(limit)}"


def heads(case: Case, words: str, inches: float) -> list[str]:
    """Return the lines under the title: these words, and the objectives where the axes do not show all of them."""
    shown = case.limit_us is not None and case.slo is not None and len(case.slo.limits) == 1
    lines = style.wrapped(words, inches, 9)
    return lines if case.slo is None or shown else [*lines, style.fitted(f"SLO {case.slo.text}", inches, 9, "normal")]


@dataclass(frozen=True, slots=True)
class Told:
    """What a figure says below its axes; each line is as long as the figure is wide."""

    lines: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


def told(case: Case, inches: float) -> Told:
    """Return what `saturated` means where anything is, and a line each for what is unsupported and for what failed."""

    def line(status: str) -> list[str]:
        found: dict[str, dict[str, list[int | None]]] = {}
        for spot in case.spots:
            rows = [row for row in (spot.latency, spot.background) if row is not None and row.status == status]
            if rows:
                found.setdefault(rows[0].reason or "no reason recorded", {}).setdefault(spot.name, []).append(spot.size)
        parts = [f"{', '.join(_where(name, sizes) for name, sizes in names.items())} ({why})" for why, names in found.items()]
        return [style.fitted(f"{status}: {' · '.join(parts)}", inches, 8, "normal")] if parts else []

    def _where(name: str, sizes: Sequence[int | None]) -> str:
        """Return the name, with its sizes where other sizes of it came out."""
        if name not in case.curves or None in sizes:
            return name
        return f"{name} at {', '.join(str(size) for size in sizes)} SMs"

    grew = [style.fitted(GREW_WORDS, inches, 8, "normal")] if any(spot.grew for spot in case.spots) else []
    return Told((*grew, *_other_counts(case, inches), *line(Status.UNSUPPORTED)), tuple(line(Status.FAILED)))


def _other_counts(case: Case, inches: float) -> list[str]:
    """Return a line for the sizes of which MPS granted another count: `mps_limited 20 (18): SMs asked for (granted)`."""
    found: dict[str, dict[str, None]] = {}
    for name, spots in case.curves.items():
        for spot in spots:
            if spot.granted != spot.size:
                found.setdefault(name, {})[spot.size_text] = None
    if not found:
        return []
    parts = [f"{name} {', '.join(sizes)}" for name, sizes in found.items()]
    return [style.fitted(f"{' · '.join(parts)}: SMs asked for (granted)", inches, 8, "normal")]


def foot(figure: Figure, frame: style.Frame, case: Case, lines: Told) -> None:
    """Write what is missing and the footer at the bottom of a figure."""
    every = [(line, style.MUTED) for line in lines.lines] + [(line, style.ALARM) for line in lines.alarms]
    for i, (line, ink) in enumerate(reversed(every)):
        figure.text(0.22 / frame.width, (0.33 + 0.17 * i) / frame.height, line, fontsize=8, color=ink, va="baseline")
    style.footer(figure, frame, case.run)


def foot_inches(lines: Told) -> float:
    """Return how much room `foot` takes above the footer."""
    return 0.17 * (len(lines.lines) + len(lines.alarms))
