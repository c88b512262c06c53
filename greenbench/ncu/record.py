"""ncu.csv, one line for each launch; and the row of a sweep with which a launch is compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from greenbench.errors import UsageError
from greenbench.ncu.figures import Measured, NcuRow
from greenbench.runfiles import read_rows
from greenbench.schema import Row, Status, Timing
from greenbench.storage import replace_file
from greenbench.tables import header_line, record_line

TABLE, REPORT = "ncu.csv", "profile.ncu-rep"


def write_ncu(path: Path, rows: Sequence[NcuRow]) -> None:
    """Write ncu.csv. Raises OutputError where it cannot be written."""
    lines = [header_line(NcuRow), *(record_line(row, path, lambda value: f"{value:.7g}") for row in rows)]
    replace_file(path, b"".join(lines))


def without_timing(label: str) -> tuple[str, str]:
    """Split a label into the point and its timing, which `auto` has not settled before the point is prepared."""
    point, _, timing = label.rpartition("/")
    return point, timing


def measured_in(run: Path, label: str) -> Measured:
    """Return the point as a run measured it; raises UsageError where it has no such row, ResultFileError where it is no run."""
    point, timing = without_timing(label)
    rows = [row for row in read_rows(run) if row.status == Status.OK and row.time_us]
    fitting = [row for row in rows if without_timing(row.label)[0] == point]
    exact = [row for row in fitting if timing in (row.timing, Timing.AUTO)]
    if not exact:
        seen = ", ".join(dict.fromkeys(row.label for row in fitting or rows[:4])) or "none with a time"
        raise UsageError(f"--against {run}: it has no measured row of {label} (rows: {seen}); leave --against out to measure it")
    return as_measured(exact[0])


def as_measured(row: Row) -> Measured:
    """Return time and clock of a row that has them."""
    return Measured(row.time_us or 0.0, row.sm_clock_mhz)
