"""RFC 4180 tables of frozen dataclasses: one line per record, columns in the order of the fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import TypeVar

from greenbench.errors import GreenbenchError, ResultFileError
from greenbench.records import BadValueError, columns

# A reason may quote a compiler's log; the csv module's own limit of 128 KiB would make such a line unreadable.
_CELL_LIMIT = 1 << 26

Record = TypeVar("Record")


def table_line(cells: Sequence[str]) -> bytes:
    """Return one line in UTF-8; what UTF-8 cannot hold is escaped, since a log must not stop a run."""
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode("utf-8", errors="backslashreplace")


def header_line(record: type) -> bytes:
    """Return the line of column names."""
    return table_line([column.name for column in columns(record)])


def record_line(item: object, place: object, float_text: Callable[[float], str] = repr) -> bytes:
    """Return the line of a record; a value that is not of its column's type is an internal error, never written."""
    cells = []
    for column in columns(type(item), float_text):
        try:
            cells.append(column.write(getattr(item, column.name)))
        except (BadValueError, ValueError) as error:
            raise GreenbenchError(f"{place}: column {column.name} was given a wrong value: {error}") from error
    return table_line(cells)


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete lines (a quoted cell may span several text lines) and the unfinished rest."""
    lines: list[bytes] = []
    begin = quotes = 0
    end = data.find(b"\n")
    scanned = 0
    while end >= 0:
        quotes += data.count(b'"', scanned, end)
        scanned = end
        if quotes % 2 == 0:
            lines.append(data[begin : end + 1])
            begin, quotes = end + 1, 0
        end = data.find(b"\n", end + 1)
    return lines, data[begin:]


def parse_line(line: bytes, place: str) -> list[str]:
    """Return the cells of one complete line."""
    csv.field_size_limit(_CELL_LIMIT)
    try:
        rows = list(csv.reader([line.decode("utf-8")], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ResultFileError(f"{place} is not a line of CSV in UTF-8: {error}") from error
    return rows[0] if rows else []


def check_header(record: type, header: Sequence[str], place: object) -> None:
    """Refuse a table whose columns are not those of `record`; their order is free."""
    known = [column.name for column in columns(record)]
    missing = [name for name in known if name not in header]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ResultFileError(
            f"{place} lacks column {', '.join(missing[:3])}{more}: not a table of this greenbench, or one that was edited"
        )
    for name in header:
        if name not in known:
            raise ResultFileError(f"{place} has a column {name!r} that this greenbench does not know")
    if len(set(header)) != len(header):
        raise ResultFileError(f"{place} names a column twice")


def parse_record(record: type[Record], header: Sequence[str], cells: Sequence[str], place: str) -> Record:
    """Return the record of one line; `place` names file and row, the column is added here."""
    if len(cells) != len(header):
        raise ResultFileError(f"{place} has {len(cells)} cells where the header has {len(header)}")
    by_name = dict(zip(header, cells, strict=True))
    values = {}
    for column in columns(record):
        try:
            values[column.name] = column.read(by_name[column.name])
        except (BadValueError, ValueError) as error:
            raise ResultFileError(f"{place}, column {column.name}: {error}") from error
    return record(**values)
