"""The table at the end of a co-location: mechanisms and sizes down, what both roles got across, best and worst marked.

Nothing here draws: rows in, text out; `codrawing` puts it on the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from greenbench.cli.cells import number
from greenbench.cli.report import REMARKS, Notes, counted, shortened, title
from greenbench.colocation.pairs import Pair, pairs
from greenbench.corow import CoRow
from greenbench.queueing.model import Kind
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import Backend, Flag, RunMeta, Status
from greenbench.slo import Verdict
from greenbench.tails import LEAST, Metric, column

BEST, WORST = "*", "!"
# Two runs of one seed differ by so much.
NOISE = 1.02
# Stands for a percentile of a queue that grew.
GREW = "grows"
LEGEND = f"{BEST} the best of its column where the latency role keeps up, {WORST} the worst, alone aside"
VERDICTS = {Verdict.HOLDS.value: "holds", Verdict.BROKEN.value: "broken", Verdict.UNKNOWN.value: "unknown"}
# A latency is called by the first of these that has a figure somewhere.
_CALLED = (Metric.ITL, Metric.STEP, Metric.TTFT)
Getter = Callable[[CoRow], float | None]


@dataclass(frozen=True, slots=True)
class CoColumn:
    """One column: its heading in two lines, whose row it reads, how it is written, and which end is better (0: neither)."""

    heading: str
    role: Kind
    get: Getter
    write: Callable[[float], str] = number
    good: int = 0
    # A percentile, which a queue that grows does not have.
    tail: bool = False
    # Shown where all queues grew, too: the first percentile of a role.
    lead: bool = False
    # Only some points can have it: a blank rather than a dash.
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class CoCell:
    """A figure, and whether it is the best or the worst of its column."""

    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class CoLine:
    """One point, or several that have the same reason for no figure: a heading, a remark below it, and a cell per column."""

    heading: str
    remark: str
    cells: tuple[CoCell, ...] = ()


@dataclass(frozen=True, slots=True)
class CoPart:
    """What compares: the roles alone, or a latency workload at one load, with a name where there are several."""

    name: str
    columns: tuple[str, ...]
    lines: tuple[CoLine, ...]


@dataclass(frozen=True, slots=True)
class CoSheet:
    """The whole table as text."""

    title: str
    parts: tuple[CoPart, ...]
    notes: tuple[str, ...] = ()


def lay_out(rows: Sequence[CoRow], meta: RunMeta, *, details: bool = False) -> CoSheet:
    """Arrange the rows of a run as a table of text."""
    columns = list(_columns(rows, details=details))
    notes = Notes()
    parts = tuple(_part(name, group, columns, notes) for name, group in _grouped(pairs(rows)))
    marked = any(cell.mark for part in parts for line in part.lines for cell in line.cells)
    return CoSheet(title(meta), parts, (*((LEGEND,) if marked else ()), *notes.lines()))


def _part(name: str, group: Sequence[Pair], columns: Sequence[CoColumn], notes: Notes) -> CoPart:
    """Arrange points that compare; a column without a figure is left out."""
    shown = [
        each for each in columns if any(_value(pair, each) is not None or (each.lead and _grew(pair, each)) for pair in group)
    ]
    asked = any(row.slo for pair in group if not pair.alone for row in (pair.latency, pair.background) if row is not None)
    lines = tuple(_lines(group, shown, notes, asked=asked))
    return CoPart(name, (*(each.heading for each in shown), *(("SLO",) if asked else ())), lines)


def _grouped(points: Sequence[Pair]) -> list[tuple[str, list[Pair]]]:
    """Gather points that compare: those alone, then each latency workload at each rate of the background."""
    alone = ("", "", "")
    groups: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in points:
        row = pair.row
        # A point of --interference has rows only where it failed.
        key = alone if pair.alone or pair.load else (row.kernel, row.params, pair.rate)
        groups.setdefault(key, []).append(pair)
    several = len(groups.keys() - {alone}) > 1
    found = []
    for key, group in groups.items():
        kernel, params, rate = key
        load = f", {rate} background requests a second" if rate else ""
        found.append((f"{kernel} [{params}]{load}" if several and kernel else "", group))
    return found


def _columns(rows: Sequence[CoRow], *, details: bool) -> Iterator[CoColumn]:
    first, second = (
        next((row.kernel for row in rows if row.role == kind), kind.value) for kind in (Kind.LATENCY, Kind.BACKGROUND)
    )
    for q in LEAST:
        yield _percentile(rows, Kind.LATENCY, first, q)
    yield CoColumn(f"{first}\nslowdown", Kind.LATENCY, lambda row: row.slowdown, "{:.2f}x".format)
    yield CoColumn("time in\ncommon", Kind.LATENCY, lambda row: row.overlap_frac, "{:.0%}".format)
    yield _percentile(rows, Kind.BACKGROUND, second, 50)
    if any(row.tokens_per_s is not None for row in rows if row.role == Kind.BACKGROUND):
        yield CoColumn(f"{second}\ntokens/s", Kind.BACKGROUND, lambda row: row.tokens_per_s, number, 1)
    else:
        yield CoColumn(f"{second}\nsteps/s", Kind.BACKGROUND, lambda row: row.throughput_per_s, number, 1)
    yield CoColumn(f"{second}\nslowdown", Kind.BACKGROUND, lambda row: row.slowdown, "{:.2f}x".format)
    for load in ("compute", "l2", "hbm", "copy"):
        yield CoColumn(f"beside\n{load}", Kind.LATENCY, _field(f"slowdown_{load}"), "{:.2f}x".format, sparse=True)
    if not details:
        return
    yield CoColumn(f"{first}\nsteps/s", Kind.LATENCY, lambda row: row.throughput_per_s)
    yield CoColumn("late\nµs", Kind.LATENCY, lambda row: row.launch_late_us)
    yield CoColumn("clock\nMHz", Kind.LATENCY, lambda row: row.sm_clock_mhz)
    yield CoColumn("power\nW", Kind.LATENCY, lambda row: row.power_w)
    yield CoColumn("mJ per\ntoken", Kind.LATENCY, lambda row: row.energy_mj_per_op)


def _percentile(rows: Sequence[CoRow], role: Kind, name: str, q: int) -> CoColumn:
    """Return the column of a percentile, under the metric that the role's rows have."""
    mine = [row for row in rows if row.role == role]
    metric = next((each for each in _CALLED if any(_field(column(each, 50))(row) is not None for row in mine)), Metric.STEP)
    called = "" if metric is Metric.STEP else f"{metric.value} "
    return CoColumn(f"{name}\n{called}p{q} µs", role, _field(column(metric, q)), number, -1, tail=True, lead=q == min(LEAST))


def _field(name: str) -> Getter:
    return lambda row: getattr(row, name)


def _value(pair: Pair, each: CoColumn) -> float | None:
    row = pair.of(each.role)
    return each.get(row) if row is not None and row.status == Status.OK else None


def _shown(pair: Pair, each: CoColumn) -> bool:
    return _value(pair, each) is not None or (each.lead and _grew(pair, each))


def _lines(group: Sequence[Pair], columns: Sequence[CoColumn], notes: Notes, *, asked: bool) -> Iterator[CoLine]:
    """Yield a line per point; neighbours of one mechanism that have the same reason for no figure share one."""
    ends = [_ends(group, each) for each in columns]
    without: list[Pair] = []
    for pair in group:
        if without and (pair.ok or _why(pair) != _why(without[0])):
            yield _excused(without, notes)
            without = []
        if not pair.ok:
            without.append(pair)
            continue
        cells = [_cell(pair, each, end) for each, end in zip(columns, ends, strict=True)]
        if asked:
            cells.append(CoCell("" if pair.alone else VERDICTS.get(pair.row.slo_met, "")))
        yield CoLine(pair.name, _marks(pair, notes), tuple(cells))
    if without:
        yield _excused(without, notes)


def _why(pair: Pair) -> tuple[str, str, str]:
    return pair.row.mechanism, pair.row.status, pair.row.reason


def _excused(points: Sequence[Pair], notes: Notes) -> CoLine:
    row = points[0].row
    letters = {notes.mark(row.status, shortened(row.reason)) for _ in points}
    splits = sorted({pair.split for pair in points if pair.split is not None})
    span = " " + "…".join(str(split) for split in dict.fromkeys((*splits[:1], *splits[-1:]))) if splits else ""
    mechanism = f"{row.mechanism}+…" if points[0].load else row.mechanism
    name = points[0].name if len(points) == 1 else f"{mechanism}{span}"
    return CoLine(name, f"{row.status} [{','.join(sorted(letters))}]")


def _marks(pair: Pair, notes: Notes) -> str:
    """Return the remarks on a point, each by its letter."""
    flags = {
        Flag(flag): None for row in (pair.latency, pair.background) if row for flag in row.flags.split(LIST_SEPARATOR) if flag
    }
    letters = [notes.mark(flag, REMARKS[flag]) for flag in flags]
    return f"[{','.join(letters)}]" if letters else ""


def _grew(pair: Pair, each: CoColumn) -> bool:
    """Return whether a point has no percentile because its queue was still growing."""
    row = pair.of(each.role)
    return each.tail and pair.ok and row is not None and row.saturated == "true"


def _ends(group: Sequence[Pair], each: CoColumn) -> tuple[str, str]:
    """Return the best and the worst cell of a column as written, empty where there is nothing to choose.

    A queue that grows without end is worse than any percentile, and what a latency role that is lost so leaves to the background
    is no merit: such a point is never the best.
    """
    beside = [pair for pair in group if not pair.alone]
    values = {pair: value for pair in beside if (value := _value(pair, each)) is not None}
    kept = [value for pair, value in values.items() if not _lost(pair)]
    if not each.good or not values:
        return "", ""
    low, high = min(values.values()), max(values.values())
    best = each.write(min(kept) if each.good < 0 else max(kept)) if kept else ""
    worst = each.write(high if each.good < 0 else low)
    if any(_grew(pair, each) for pair in beside):
        return best, GREW
    return (best, worst) if best != worst and high > NOISE * low else ("", "")


def _lost(pair: Pair) -> bool:
    """Return whether the latency role of a point cannot keep up."""
    return pair.latency is not None and pair.latency.saturated == "true"


def _cell(pair: Pair, each: CoColumn, ends: tuple[str, str]) -> CoCell:
    if pair.of(each.role) is None:
        return CoCell("")
    value = _value(pair, each)
    text = GREW if _grew(pair, each) else each.write(value) if value is not None else "" if pair.alone or each.sparse else "–"
    if pair.alone or not text or text not in ends:
        return CoCell(text)
    return CoCell(text, WORST if text != ends[0] else "" if _lost(pair) else BEST)


def closing_lines(
    rows: Sequence[CoRow], meta: RunMeta, summary: str, sentences: Sequence[str], *, brief: bool = False
) -> list[str]:
    """Return what to say last: how it ended and what was found; the brief form has the reasons that the table would have."""
    lines = [summary, *sentences]
    if brief:
        reasons = Notes()
        for pair in pairs(rows):
            if not pair.ok:
                reasons.mark(pair.row.status, shortened(pair.row.reason))
        lines += [f"{status}, {counted(count, 'point')}: {reason}" for (status, reason), count in reasons.counts.items()]
    if meta.device.backend is not Backend.MODELLED:
        return lines
    return [f"MODELLED: {line}" for line in lines]
