"""The table at the end of `switch`: mechanisms and numbers of processes down, what they cost across.

Nothing here draws: rows in, text out; `codrawing` puts it on the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from greenbench.cli.cells import number
from greenbench.cli.coreport import CoCell, CoLine, CoPart, CoSheet
from greenbench.cli.report import REMARKS, Notes, counted, shortened, title
from greenbench.corow import CoRow
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import Backend, Flag, RunMeta, Status
from greenbench.switching.plan import params_text

ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading in two lines, what it reads of a row, and how that is written."""

    heading: str
    get: Callable[[CoRow], float | None]
    write: Callable[[float], str] = number


COLUMNS = (
    Column("operations\na second", lambda row: row.throughput_per_s),
    Column("of one\nalone", lambda row: row.throughput_pct, "{:.0f} %".format),
    Column("p50\nµs", lambda row: row.step_us_p50),
    Column("p95\nµs", lambda row: row.step_us_p95),
    Column("p99\nµs", lambda row: row.step_us_p99),
    Column("switch\nµs", lambda row: row.switch_us),
    Column("L2\nkept", lambda row: row.l2_retained_pct, "{:.0f} %".format),
    Column("two at\nonce", lambda row: row.overlap_frac, "{:.0%}".format),
    Column("mJ per\noperation", lambda row: row.energy_mj_per_op),
    Column("resize\ngap µs", lambda row: row.gap_us),
)
DETAILS = (
    Column("create\nµs", lambda row: row.create_us),
    Column("first launch\nµs", lambda row: row.first_launch_us),
    Column("destroy\nµs", lambda row: row.destroy_us),
    Column("clock\nMHz", lambda row: row.sm_clock_mhz),
    Column("power\nW", lambda row: row.power_w),
)


def lay_out(rows: Sequence[CoRow], meta: RunMeta, *, details: bool = False) -> CoSheet:
    """Arrange the rows of a run as a table of text; a column that is empty throughout is left out."""
    ok = [row for row in rows if row.status == Status.OK]
    columns = [each for each in (*COLUMNS, *(DETAILS if details else ())) if any(each.get(row) is not None for row in ok)]
    headings = tuple(each.heading for each in columns)
    notes = Notes()
    groups: dict[str, list[CoRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.kernel} [{params_text(row.params)}]" if row.params else row.kernel, []).append(row)
    parts = tuple(CoPart(name, headings, tuple(_line(row, columns, notes) for row in group)) for name, group in groups.items())
    return CoSheet(title=title(meta), parts=parts, notes=tuple(notes.lines()))


def name_of(row: CoRow) -> str:
    """`timeslice 8`, or `alone` for one process by itself."""
    return row.mechanism if row.mechanism == ALONE else f"{row.mechanism} {row.processes}"


def _line(row: CoRow, columns: Sequence[Column], notes: Notes) -> CoLine:
    if row.status != Status.OK:
        return CoLine(name_of(row), f"{row.status} [{notes.mark(row.status, shortened(row.reason))}]")
    letters = [notes.mark(flag, REMARKS[Flag(flag)]) for flag in row.flags.split(LIST_SEPARATOR) if flag]
    cells = tuple(CoCell("–" if (value := each.get(row)) is None else each.write(value)) for each in columns)
    return CoLine(name_of(row), f"[{','.join(letters)}]" if letters else "", cells)


def sentences(rows: Sequence[CoRow]) -> Iterator[str]:
    """Yield for each operation what is left of one process's throughput with the most processes, the best mechanism first."""
    for params in dict.fromkeys(row.params for row in rows):
        shared = [row for row in rows if row.params == params and row.mechanism != ALONE and row.throughput_pct is not None]
        most = max((row.processes or 0 for row in shared), default=0)
        shares = {row.mechanism: row.throughput_pct for row in shared if row.processes == most and row.throughput_pct is not None}
        if most < 2 or not shares:
            continue
        told = ", ".join(f"{mechanism} {share:.0f} %" for mechanism, share in sorted(shares.items(), key=lambda pair: -pair[1]))
        yield f"{most} processes{f' [{params_text(params)}]' if params else ''} together reach, of one alone: {told}"


def closing_lines(rows: Sequence[CoRow], meta: RunMeta, summary: str, *, brief: bool = False) -> list[str]:
    """Return what to say last: how it ended and what was found; the brief form has the reasons that the table would have."""
    lines = [summary, *sentences(rows)]
    if brief:
        reasons = Notes()
        for row in rows:
            if row.status != Status.OK:
                reasons.mark(row.status, shortened(row.reason))
        lines += [f"{status}, {counted(count, 'point')}: {reason}" for (status, reason), count in reasons.counts.items()]
    return [f"MODELLED: {line}" for line in lines] if meta.device.backend is Backend.MODELLED else lines
