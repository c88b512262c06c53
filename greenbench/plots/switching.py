"""switching: what is left of one process's throughput, and how long an operation takes, when several share the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from greenbench.corow import CoRow
from greenbench.plots import style
from greenbench.plots.copoints import duration
from greenbench.plots.curves import Run
from greenbench.plots.mechanisms import look_of
from greenbench.plots.tailaxis import SPREAD
from greenbench.schema import Backend, RunMeta, Status
from greenbench.switching.plan import Way, params_text

LEFT, WIDE, RIGHT = 0.85, 5.4, 2.15
HIGH, BETWEEN, BOTTOM = 2.5, 0.62, 0.86
# The largest percentile that most points carry is shown.
TAILS = (99, 95, 50)
_LINE = 0.17


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one operation; `apart` says how it differs from the others of its run, empty for a run of one."""

    rows: tuple[CoRow, ...]
    apart: str

    @property
    def processes(self) -> list[int]:
        """Every number of processes that has a figure, rising."""
        return sorted({row.processes or 0 for row in self.ok})

    @property
    def ok(self) -> list[CoRow]:
        """The rows with figures."""
        return [row for row in self.rows if row.status == Status.OK]

    @property
    def alone(self) -> CoRow | None:
        """One process by itself."""
        return next((row for row in self.ok if row.mechanism == Way.ALONE), None)

    @property
    def curves(self) -> dict[str, list[CoRow]]:
        """The rows by mechanism, processes rising; where one process is `alone`, that is where a curve begins."""
        found: dict[str, list[CoRow]] = {}
        for row in self.ok:
            if row.mechanism != Way.ALONE:
                found.setdefault(row.mechanism, []).append(row)
        for curve in found.values():
            curve.sort(key=lambda row: row.processes or 0)
            if self.alone is not None and curve[0].processes != 1:
                curve.insert(0, self.alone)
        return found

    @property
    def tail(self) -> int:
        """The percentile that is shown."""
        shared = [row for row in self.ok if row.mechanism != Way.ALONE]
        counts = {q: sum(_tail(row, q) is not None for row in shared) for q in TAILS}
        return max(TAILS, key=lambda q: counts[q])


def _tail(row: CoRow, q: int) -> float | None:
    value: float | None = getattr(row, f"step_us_p{q}")
    return value


def draw_switch(rows: Sequence[CoRow], meta: RunMeta, folder: Path) -> list[Path]:
    """Draw a figure for each operation of a run into a folder and return the files written, PNG and SVG, in order."""
    paths: list[Path] = []
    with style.context():
        for stem, figure in figures(rows, meta):
            paths += style.save(figure, folder, stem)
    return paths


def figures(rows: Sequence[CoRow], meta: RunMeta) -> list[tuple[str, Figure]]:
    """Return the figures with the stems of their files, none where no two processes shared the device."""
    run = Run(meta, (), meta.device.backend is Backend.MODELLED, meta.profiled)
    return [
        (style.stem_of("switching", *filter(None, (group.apart,))), _figure(run, group)) for group in groups(rows) if group.curves
    ]


def groups(rows: Sequence[CoRow]) -> list[Group]:
    """Return the rows of each operation, named by the parameters in which they differ."""
    found: dict[tuple[str, str], list[CoRow]] = {}
    for row in rows:
        found.setdefault((row.kernel, row.params), []).append(row)
    lists = [params.split(",") for _, params in found]
    named = [", ".join(part for part in parts if not all(part in other for other in lists)) for parts in lists]
    return [Group(tuple(mine), apart) for mine, apart in zip(found.values(), named, strict=True)]


def _figure(run: Run, group: Group) -> Figure:
    width = LEFT + WIDE + RIGHT
    lines = _missing(group, width - 0.44)
    bottom = BOTTOM + _LINE * len(lines)
    words = style.wrapped(_words(group), width - 0.5, 9)
    frame = style.Frame(width, bottom + 2 * HIGH + BETWEEN + 0.82 + 0.2 * len(words))
    figure = frame.figure()
    share = frame.axes(figure, LEFT, bottom + HIGH + BETWEEN, WIDE, HIGH)
    tails = frame.axes(figure, LEFT, bottom, WIDE, HIGH)
    _share_axis(share, group)
    _tail_axis(tails, group)
    for axes in (share, tails):
        _process_axis(axes, group.processes, label=axes is tails)
    _curves(share, group, lambda row: row.throughput_pct, lambda value: f"{value:.0f} %")
    _curves(tails, group, lambda row: _tail(row, group.tail), duration)
    title = "What it costs to share a GPU" + (f": {params_text(group.apart)}" if group.apart else "")
    style.heading(figure, frame, run, title, words)
    for i, line in enumerate(reversed(lines)):
        figure.text(0.22 / frame.width, (0.33 + _LINE * i) / frame.height, line, fontsize=8, color=style.MUTED, va="baseline")
    style.footer(figure, frame, run)
    return figure


def _words(group: Group) -> str:
    """Say what a process does, and what 100 % is."""
    row = group.alone or group.ok[0]
    what = f"{row.kernel} [{params_text(row.params)}]" if row.params else row.kernel
    alone = f"; alone {row.throughput_per_s:.0f} times a second" if group.alone and row.throughput_per_s else ""
    return f"each process repeats {what}{alone}"


def _process_axis(axes: Axes, processes: Sequence[int], *, label: bool) -> None:
    """Lay the x axis out with one place for each number of processes, equally far apart."""
    axes.set_xlim(-0.15, len(processes) - 0.85)
    axes.xaxis.set_major_locator(FixedLocator(list(range(len(processes)))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: str(processes[round(at)]) if 0 <= at < len(processes) else ""))
    if label:
        axes.set_xlabel("processes", color=style.MUTED, fontsize=9)


def _share_axis(axes: Axes, group: Group) -> None:
    values = [row.throughput_pct for row in group.ok if row.throughput_pct is not None]
    style.value_axis(axes, 1.12 * max([100.0, *values]), "")
    _above(axes, "throughput of all processes, % of one alone")
    axes.axhline(100, color=style.FAINT, linewidth=1.0, zorder=1.4, gid="one process")


def _tail_axis(axes: Axes, group: Group) -> None:
    """Lay the y axis out in us; log where the figures spread by more than 20."""
    values = [value for row in group.ok if (value := _tail(row, group.tail))]
    log = bool(values) and max(values) > SPREAD * min(values)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 1.4, max(values) * 1.4)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        style.value_axis(axes, 1.12 * max(values, default=1.0), "")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value) if value else "0"))
    _above(axes, f"operation p{group.tail}{' (log)' if log else ''}")


def _above(axes: Axes, text: str) -> None:
    axes.annotate(
        text,
        (0, 1),
        xytext=(-46, 8),
        xycoords="axes fraction",
        textcoords="offset points",
        color=style.MUTED,
        fontsize=9,
    )


def _curves(axes: Axes, group: Group, get: Callable[[CoRow], float | None], write: Callable[[float], str]) -> None:
    """Draw a line for each mechanism, with its last value at its end."""
    places = {processes: place for place, processes in enumerate(group.processes)}
    labels = []
    for mechanism, rows in group.curves.items():
        look = look_of(mechanism)
        known = [(places[row.processes or 0], value) for row in rows if (value := get(row)) is not None]
        if not known:
            continue
        axes.plot(
            [x for x, _ in known],
            [y for _, y in known],
            color=look.color,
            dashes=look.dashes or (None, None),
            linewidth=1.7,
            marker=look.marker,
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=4,
            clip_on=False,
            gid="mechanism",
        )
        x, y = known[-1]
        labels.append(style.EndLabel(x, y, f"{mechanism} {write(y)}", look.ink, bold=True))
    style.end_labels(axes, labels)


def _missing(group: Group, inches: float) -> list[str]:
    """Return a line for each reason why points are not there."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in group.rows:
        if row.status != Status.OK:
            found.setdefault((row.status, row.reason), {})[f"{row.mechanism} {row.processes}"] = None
    return [
        style.fitted(f"{status}: {', '.join(names)} ({reason})", inches, 8, "normal") for (status, reason), names in found.items()
    ]
