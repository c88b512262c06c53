"""The raw page of an Nsight Compute report as CSV: one line of names, one of units, then one line for each kernel launch."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

from greenbench.errors import IncompleteError
from greenbench.timeline.database import clean

IDENTITY = ("ID", "Kernel Name")
_MOST_LAUNCHES = 100_000
# To ns and bytes per second; `--print-units base` gives ns and byte/s, older versions spell units out.
_SCALE = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
    "byte/s": 1.0,
    "byte/second": 1.0,
    "Kbyte/s": 1e3,
    "Kbyte/second": 1e3,
    "Mbyte/s": 1e6,
    "Mbyte/second": 1e6,
    "Gbyte/s": 1e9,
    "Gbyte/second": 1e9,
    "Tbyte/s": 1e12,
    "Tbyte/second": 1e12,
}


@dataclass(frozen=True, slots=True)
class Launch:
    """The metrics of one launch by name, as ncu wrote them, and the unit of each."""

    cells: dict[str, str]
    units: dict[str, str]

    def text(self, *names: str) -> str:
        """Return the first of these metrics that this ncu collected, cleaned for a terminal; else an empty string."""
        return next((clean(self.cells[name]).strip() for name in names if self.cells.get(name, "").strip()), "")

    def number(self, *names: str) -> float | None:
        """Return the first of these metrics that is a number, in ns, bytes per second or as it is; else None."""
        for name in names:
            value = _number(self.cells.get(name, ""))
            if value is not None:
                return value * _SCALE.get(self.units.get(name, ""), 1.0)
        return None

    def whole(self, *names: str) -> int | None:
        """Return the first of these metrics as an integer."""
        value = self.number(*names)
        return None if value is None else round(value)


def _number(text: str) -> float | None:
    try:
        # Thousands are set off by commas, whatever the locale.
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_page(text: str) -> list[Launch]:
    """Return the launches of a raw page, which may have ncu's own lines in front; raises IncompleteError where it is none."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines[start:])), strict=True))
    except csv.Error as error:
        raise IncompleteError(f"ncu's raw page is no table of CSV: {error}; this version of ncu is not known here") from error
    names = rows[0]
    if not set(IDENTITY) <= set(names):
        raise IncompleteError(f"ncu's raw page lacks the columns {' and '.join(IDENTITY)}; this version of ncu is not known here")
    place = names.index("ID")
    body = [row for row in rows[1:] if len(row) == len(names)]
    # The line of units has no id.
    units = dict(zip(names, body[0], strict=True)) if body and not body[0][place].strip() else {}
    found = [row for row in body if row[place].strip()]
    return [Launch(dict(zip(names, row, strict=True)), units) for row in found[:_MOST_LAUNCHES]]
