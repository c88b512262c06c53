"""The table at the end of a run: kernels down, SM counts across, and every remark said once below it.

Nothing here draws: rows in, text out, so that what a terminal shows can be tested; `drawing` puts it on the screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase

from greenbench.bounds import ALLOWANCE
from greenbench.cli.cells import Getter, measure_of, number, percent, plus_minus, spread_pct
from greenbench.cli.rivals import Rivals, is_yardstick
from greenbench.knee import knee
from greenbench.limits import Limits, by_label, helped_by_l2, summary as ceilings_text
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import Backend, BoundRow, DeviceFacts, Flag, Row, RunMeta, Scope, SmsMode, Status, StopReason

REMARKS = {
    Flag.POWER_CAPPED: "the power limit held the clock down; compare cycles rather than times",
    Flag.CLOCK_UNSTABLE: "the SM clock differed by more than 1.5 % between blocks",
    Flag.CONTENDED: "another process was on the GPU",
    Flag.BIMODAL: "the blocks fall into two groups more than 3 % apart; the figure is the median of all",
    Flag.HOST_BOUND: "the host could not queue launches ahead of the GPU; the time holds launch cost",
    Flag.ABOVE_BOUND: "more than 2 % faster than the probe for it on these SMs; kept, since there the probe is the weaker figure",
    Flag.REMAINDER: "the partition was completed from the remainder of the split: no co-scheduling guarantee",
    Flag.SATURATED: "more work arrived than the lane could serve",
    Flag.PROFILED: "taken under a profiler; not a timing",
    Flag.BEST: "the fastest yardstick of its kernel at this size",
    Flag.DRIFTED: "the sentinel moved by more than 1 % after some of its blocks, and there was no taking them again",
    Flag.DISCARDED: "its blocks were thrown away three times in a row (throttled, or idle clocks), so it has fewer rounds",
}
FROM_L2 = "the L2 served part of its bytes; kept, since only what must have come from HBM is judged against the bus"
PAST_BOUND = "more than 2 % faster than the bound by specification; kept, since there the bound is the weaker figure"
REASON_WIDTH = 240
# Stands at a figure in place of a letter, since most tables have one in each column.
BEST_MARK = "*"
SHARE = "% of the bound that the line names"
SPREAD = "± half of the 95 % interval of the time, in %"

# What -v adds to a cell, one line each.
Detail = tuple[str, Getter, Callable[[float], str]]
_DETAILS: tuple[Detail, ...] = (
    ("time µs", lambda row: row.time_us, number),
    ("noise %", lambda row: row.noise_pct, "{:.2f}".format),
    ("SM clock MHz", lambda row: row.sm_clock_mhz, "{:,.0f}".format),
)

# Sort key and identity of a column: counts by what was granted, then `full`, then `primary`.
Column = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel with its params: a heading of two or more lines, and per column a cell of as many at most."""

    heading: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """The whole table as text."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Notes:
    """Gives each distinct remark a letter, in order of appearance, and counts the points that carry it."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def mark(self, kind: str, sentence: str) -> str:
        """Count the remark and return its letter."""
        self.counts[kind, sentence] += 1
        return _letter(list(self.counts).index((kind, sentence)))

    def lines(self) -> Iterator[str]:
        """Yield the footnotes."""
        for index, ((kind, sentence), count) in enumerate(self.counts.items()):
            yield f"[{_letter(index)}] {kind}, {counted(count, 'point')}: {sentence}"


def _letter(index: int) -> str:
    return ascii_lowercase[index % 26] * (index // 26 + 1)


def counted(count: int, noun: str) -> str:
    """Write `1 point`, `2 points`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def driver_text(device: DeviceFacts) -> str:
    """Write the driver and, where that is another number, its CUDA version."""
    cuda = "" if device.driver == device.cuda_text else f" (CUDA {device.cuda_text})"
    return f"driver {device.driver}{cuda}"


def device_text(device: DeviceFacts) -> str:
    """Name a device in a sentence; a modelled one is never taken for a GPU."""
    return f"{'modelled ' if device.backend is Backend.MODELLED else ''}{device.name} ({driver_text(device)})"


def title(meta: RunMeta) -> str:
    """Name device, driver and plan; a modelled run says so first."""
    device = meta.device
    plan = meta.plan.get("name")
    parts = [device.name, driver_text(device), *([f"plan {plan}"] if plan else [])]
    if device.backend is Backend.MODELLED:
        parts.insert(0, "MODELLED, nothing was measured")
    return " · ".join(parts)


def lay_out(rows: Sequence[Row], meta: RunMeta, *, details: bool = False) -> Sheet:
    """Arrange the rows of a run as a table of text."""
    columns = sorted({_column(row) for row in rows})
    notes, rivals = Notes(), _rivals(rows, meta)
    more = _DETAILS if details else ()
    lines = tuple(_line(group, heading, columns, notes, (*_against(group, rivals), *more)) for heading, group in curves(rows))
    headings = tuple(_column_heading([row for row in rows if _column(row) == column]) for column in columns)
    return Sheet(title(meta), headings, lines, (*_legend(rows), *notes.lines()))


def _rivals(rows: Sequence[Row], meta: RunMeta) -> Rivals:
    """Return the yardsticks of a run; none of a modelled one, whose ratios would be those of two assumptions."""
    return Rivals.of([] if meta.device.backend is Backend.MODELLED else rows)


def _legend(rows: Sequence[Row]) -> list[str]:
    """Explain what stands below a figure, as far as any does."""
    there = ((SHARE, any(row.bound_pct is not None for row in rows)), (SPREAD, any(spread_pct(row) for row in rows)))
    parts = [text for text, shown in there if shown]
    below = [f"below each figure: {', '.join(parts)}"] if parts else []
    return [*below, *([f"{BEST_MARK} {REMARKS[Flag.BEST]}"] if any(Flag.BEST in row.flags for row in rows) else [])]


def _against(group: Sequence[Row], rivals: Rivals) -> list[Detail]:
    """Return the line that compares a curve of ours with the vendor's, if anything stands beside it."""
    if not any(rivals.ratio(row) for row in group):
        return []
    return [(f"x {rivals.name(group[0].kernel)}", rivals.ratio, "{:.2f}".format)]


def _column(row: Row) -> Column:
    if row.sms_requested in (SmsMode.FULL, SmsMode.PRIMARY):
        return (1, 0, row.sms_requested)
    return (0, int(row.sms_requested) if row.sms_granted is None else row.sms_granted, "")


def _column_heading(rows: Sequence[Row]) -> str:
    _, count, mode = _column(rows[0])
    if mode:
        granted = next((row.sms_granted for row in rows if row.sms_granted is not None), None)
        return mode if granted is None else f"{mode}\n{granted} SMs"
    asked = sorted({int(row.sms_requested) for row in rows} - {count})
    return f"{count} SMs" + (f"\nasked {', '.join(map(str, asked))}" if asked else "")


def curves(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Gather the rows of each curve under its heading; a yardstick follows the kernel that it stands beside."""
    families: dict[str, int] = {}
    kin: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.kernel.partition(".")[0], len(families))
        kin.setdefault(row.kernel, []).append(row)
    shared = {kernel: _shared(same) for kernel, same in kin.items()}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_heading(row, shared[row.kernel]), []).append(row)
    return sorted(groups.items(), key=lambda item: families[item[1][0].kernel.partition(".")[0]])


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the rows of one kernel have in common: a heading names the rest. `timings` are those of each cell."""

    params: frozenset[str]
    timings: Mapping[object, frozenset[str]]


def _shared(same: Sequence[Row]) -> _Shared:
    params = frozenset.intersection(*(frozenset(row.params.split(",")) for row in same))
    timings: dict[object, frozenset[str]] = {}
    for row in same:
        timings[_cell_of(row)] = timings.get(_cell_of(row), frozenset()) | {row.timing}
    return _Shared(params, timings)


def _heading(row: Row, shared: _Shared) -> str:
    """Name the line of a row by its kernel and by what tells it from the other lines of that kernel."""
    parts = [row.kernel, *(param for param in row.params.split(",") if param not in shared.params)]
    if row.workqueue != Scope.DRIVER_DEFAULT:
        parts.append(row.workqueue + (f":{row.concurrency_limit}" if row.concurrency_limit is not None else ""))
    if row.granularity is not None:
        parts.append(f"granularity {row.granularity}")
    if row.connections is not None:
        parts.append(f"connections {row.connections}")
    # `auto` may time one curve in two ways; the timing tells lines apart only where a point was timed twice.
    if len(shared.timings[_cell_of(row)]) > 1:
        parts.append(row.timing)
    return " ".join(parts)


def _cell_of(row: Row) -> tuple[object, ...]:
    axes = (row.workqueue, row.concurrency_limit, row.granularity, row.connections)
    return (_column(row), row.params, *axes)


def _line(group: Sequence[Row], heading: str, columns: Sequence[Column], notes: Notes, extra: Sequence[Detail]) -> Line:
    unit, getter = measure_of(group)
    bounds = "/".join(dict.fromkeys(row.bound_by for row in group if row.bound_pct is not None))
    by_column = {_column(row): row for row in group}
    cells = (_cell(by_column[each], getter, notes, extra) if each in by_column else () for each in columns)
    second = f"  {unit}, % of {bounds}" if bounds else f"  {unit}".rstrip()
    return Line((heading, second, *(f"  {name}" for name, _, _ in extra)), tuple(cells))


def _cell(row: Row, getter: Getter, notes: Notes, extra: Sequence[Detail]) -> tuple[str, ...]:
    if row.status != Status.OK:
        return (row.status, f"[{notes.mark(row.status, shortened(row.reason))}]")
    flags = [Flag(flag) for flag in row.flags.split(LIST_SEPARATOR) if flag]
    marks = [notes.mark(flag, _remark(flag, row)) for flag in flags if flag is not Flag.BEST]
    best = BEST_MARK if Flag.BEST in flags else ""
    figure = _text(getter(row)) + best + (f" [{','.join(marks)}]" if marks else "")
    below = f"{percent(row.bound_pct)} {plus_minus(spread_pct(row))}".strip()
    return (figure, below, *(_text(get(row), write) for _, get, write in extra))


def _remark(flag: Flag, row: Row) -> str:
    """Explain a flag on a row; one above a bound by what it is above."""
    if flag is not Flag.ABOVE_BOUND or (row.bound_pct or 0.0) <= 100 * ALLOWANCE:
        return REMARKS[flag]
    return FROM_L2 if helped_by_l2(row) else PAST_BOUND


def _text(value: float | None, write: Callable[[float], str] = number) -> str:
    return "–" if value is None else write(value)


def shortened(reason: str) -> str:
    """Fit a reason, which may quote a compiler, into a footnote."""
    text = " ".join(reason.split())
    return text if len(text) <= REASON_WIDTH else f"{text[:REASON_WIDTH].rstrip()} … (rows.csv has it whole)"


def closing_lines(
    rows: Sequence[Row], meta: RunMeta, summary: str, *, brief: bool = False, bounds: Sequence[BoundRow] = ()
) -> list[str]:
    """Return what to say last: how it ended, where each curve comes near the full device, and what the probes reached.

    The brief form stands without a table, so it has the reasons that the table's footnotes would have given.
    """
    lines = [summary, *cut_short(rows, meta)]
    if brief:
        lines += reasons(rows)
    else:
        lines += _sentences(rows, meta, by_label(bounds))
        lines += filter(None, [ceilings_text(bounds)])
    if meta.device.backend is not Backend.MODELLED:
        return lines
    return [f"MODELLED: {line}" for line in lines]


def _sentences(rows: Sequence[Row], meta: RunMeta, limits: Limits) -> Iterator[str]:
    """Say of each curve where its knee is, and of ours how they stand beside the vendor's; several of those go without knees."""
    rivals, told = Rivals.of(rows), _rivals(rows, meta)
    for heading, group in curves(rows):
        one_of_several = is_yardstick(group[0]) and rivals.several(group[0].kernel)
        found = None if one_of_several else knee(group, limits)
        if found is not None:
            yield replace(found, kernel=heading).sentence
        yield from told.standing(heading, group)


def limit_text(limit_s: object) -> str:
    """Write a plan's time limit behind an estimate."""
    return f" (time limit {limit_s:g} s)" if isinstance(limit_s, int | float) else ""


def cut_short(rows: Sequence[Row], meta: RunMeta) -> list[str]:
    """Say how many points the time limit left with fewer rounds than the plan has, if any."""
    wanted, limit = meta.plan.get("rounds"), meta.plan.get("time_limit_s")
    if not isinstance(wanted, int) or not isinstance(limit, int | float):
        return []
    few = sum(row.stop_reason == StopReason.TIME_LIMIT and row.rounds is not None and row.rounds < wanted for row in rows)
    if not few:
        return []
    had = f"{counted(few, 'point')} had fewer than {counted(wanted, 'round')}"
    return [f"the time limit of {limit:g} s was reached: {had}; raise --time-limit, or take fewer points"]


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return each reason for a missing figure once, with the number of its points."""
    counts = Counter((row.status, shortened(row.reason)) for row in rows if row.status != Status.OK)
    return [f"{status}, {counted(count, 'point')}: {reason}" for (status, reason), count in counts.items()]
