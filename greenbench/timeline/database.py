"""An SQLite file that nobody vouches for, opened for reading alone: plain tables, probed columns, rows in chunks.

Views, virtual tables and triggers are never touched, values are checked, texts are cut and cleaned, and the number of rows
is bounded, so that a file can neither run code, nor write, nor fill the memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import numpy as np

from greenbench.errors import ResultFileError
from greenbench.timeline.intervals import Ints

MAGIC = b"SQLite format 3\0"
MOST_ROWS = 20_000_000
MOST_TABLES = 1_000
TEXT_LIMIT = 512
_CHUNK = 65_536
_VALUE_LIMIT = 64 << 20
_CACHE_KIB = 16_384
_WAY_OUT = "export the report again with 'nsys export -t sqlite'"


def clean(text: object) -> str:
    """Return a text from outside as one line that a terminal can show: what is not printable becomes U+FFFD."""
    line = str(text)[:TEXT_LIMIT]
    return line if line.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in " ".join(line.split()))


def check_file(path: Path) -> None:
    """Refuse what is no complete SQLite file, by its first bytes and its length."""
    try:
        if not path.is_file():
            raise ResultFileError(f"{path} is no file; give an Nsight Systems report exported to SQLite (nsys export -t sqlite)")
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise ResultFileError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not header.startswith(MAGIC):
        kind = "is empty" if not header else "is no SQLite database"
        raise ResultFileError(f"{path} {kind}; give an Nsight Systems report exported with 'nsys export -t sqlite'")
    # https://www.sqlite.org/fileformat2.html, 1.3: page size at 16 (1 means 65536), pages at 28, which hold if 24 equals 92.
    page = int.from_bytes(header[16:18], "big")
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0
    if len(header) < 100 or size < page * pages:
        raise ResultFileError(f"{path} is cut off: it has {size} of the {page * pages} bytes that its header names; {_WAY_OUT}")


class Database:
    """The plain tables of one file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        found = self._rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' "
            f"AND sql NOT LIKE '%WITHOUT ROWID%' ORDER BY name LIMIT {MOST_TABLES}"
        )
        self.tables = tuple(str(name) for (name,) in found)
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table; none where there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            self._columns[table] = frozenset(str(row[1]) for row in self._rows(f"PRAGMA table_info({_quoted(table)})"))
        return self._columns[table]

    def count(self, table: str) -> int:
        """Return how many rows a table has; 0 where there is no such table."""
        if table not in self.tables:
            return 0
        (count,) = next(self._rows(f"SELECT count(*) FROM {_quoted(table)}"))
        return count if isinstance(count, int) else 0

    def integers(self, table: str, wanted: Mapping[str, int], where: str = "") -> dict[str, Ints]:
        """Return columns of integers, first the rowid as `row`; a missing column and NULL give the default of `wanted`.

        `where` is a condition of ours. A value that is no integer, and too many rows, raise ResultFileError.
        """
        have = self.columns(table)
        names = ["row", *wanted]
        if not have:
            return {name: np.zeros(0, np.int64) for name in names}
        count = self.count(table)
        if count > MOST_ROWS:
            raise ResultFileError(
                f"{self.path}: {table} has {count:,} rows, more than the {MOST_ROWS:,} that are read; "
                "capture less, or export a part of it (nsys export --times)"
            )
        cells = [f"COALESCE({_quoted(name)}, {default})" if name in have else str(default) for name, default in wanted.items()]
        query = f"SELECT {', '.join(['rowid', *cells])} FROM {_quoted(table)}{f' WHERE {where}' if where else ''}"
        columns, filled = [np.empty(count, np.int64) for _ in names], 0
        for chunk in self._chunks(query):
            numbers = self._numbers(chunk, len(names), table)
            for index, column in enumerate(columns):
                column[filled : filled + len(chunk)] = numbers[:, index]
            filled += len(chunk)
        return {name: column[:filled] for name, column in zip(names, columns, strict=True)}

    def rows(self, table: str, wanted: Sequence[str], where: str = "") -> Iterator[tuple[object, ...]]:
        """Yield the rowid and columns as they are, texts cut; a missing column gives None."""
        have = self.columns(table)
        if have:
            cells = [_cell(name) if name in have else "NULL" for name in wanted]
            query = f"SELECT {', '.join(['rowid', *cells])} FROM {_quoted(table)}{f' WHERE {where}' if where else ''}"
            for chunk in self._chunks(query):
                yield from chunk

    def _numbers(self, chunk: list[tuple[object, ...]], width: int, table: str) -> Ints:
        try:
            numbers = np.fromiter(chain.from_iterable(chunk), np.int64, len(chunk) * width)
        except (TypeError, ValueError, OverflowError) as error:
            bad = next((row for row in chunk if not all(isinstance(cell, int) for cell in row)), chunk[0])
            what = next((cell for cell in bad if not isinstance(cell, int)), bad[0])
            raise ResultFileError(
                f"{self.path}: {table} row {bad[0]} holds {clean(repr(what))[:80]} where an integer belongs; {_WAY_OUT}"
            ) from error
        return numbers.reshape(len(chunk), width)

    def _chunks(self, query: str) -> Iterator[list[tuple[object, ...]]]:
        with _sentences(self.path):
            cursor = self._connection.execute(query)
            while chunk := cursor.fetchmany(_CHUNK):
                yield chunk

    def _rows(self, query: str) -> Iterator[tuple[object, ...]]:
        for chunk in self._chunks(query):
            yield from chunk


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(name: str) -> str:
    column = _quoted(name)
    return f"CASE typeof({column}) WHEN 'text' THEN substr({column}, 1, {TEXT_LIMIT}) WHEN 'blob' THEN NULL ELSE {column} END"


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """Turn what SQLite complains about into a sentence."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError, MemoryError) as error:
        raise ResultFileError(f"{path} is no readable SQLite database: {clean(error)}; {_WAY_OUT}") from error


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open a file read-only and as it is: no lock, no journal, nothing created beside it."""
    check_file(path)
    with _sentences(path):
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        with _sentences(path):
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_LIMIT)
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", f"cache_size = -{_CACHE_KIB}"):
                connection.execute(f"PRAGMA {setting}")
        yield Database(path, connection)
    finally:
        with suppress(sqlite3.Error):
            connection.close()
