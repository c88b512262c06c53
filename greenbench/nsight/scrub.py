"""A copy of an export that can be shown: what the analysis reads and nothing else, in a file that never held anything else.

The environment, host, user, command lines and the like are in tables and strings that no analysis needs, so they are not copied;
paths in the texts that are copied are blanked. Rowids stay, so that findings of either file name the same rows.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from greenbench.errors import OutputError, UsageError
from greenbench.storage import file_behind, put_in_place, writing
from greenbench.timeline.capture import NVTX, RUNTIME, SYNCHRONIZATION, TABLES, Kind
from greenbench.timeline.database import Database, opened
from greenbench.timeline.nvtx import CATEGORY, DOMAIN, RANGES

_WORK = ("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid")
# What the analysis reads, by table; a test compares this with what it asks for.
NUMBERS: dict[str, tuple[str, ...]] = {
    TABLES[Kind.KERNEL]: (*_WORK, "shortName", "demangledName", "graphNodeId"),
    TABLES[Kind.GRAPH]: (*_WORK, "graphId", "graphExecId"),
    TABLES[Kind.COPY]: (*_WORK, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"),
    TABLES[Kind.MEMSET]: (*_WORK, "bytes", "graphNodeId"),
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
    SYNCHRONIZATION: ("start", "end", "globalPid", "contextId", "streamId", "correlationId", "syncType"),
    NVTX: ("start", "end", "eventType", "globalTid", "domainId", "category", "textId", "uint64Value", "int64Value"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        *("processId", "deviceId", "contextId", "parentContextId", "isGreenContext", "nullStreamId", "numMultiprocessors"),
    ),
    "TARGET_INFO_CUDA_STREAM": ("processId", "streamId", "priority", "flag"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId"),
    "TARGET_INFO_GPU": ("id", "smCount"),
    "DIAGNOSTIC_EVENT": ("severity",),
    "StringIds": ("id",),
    "META_DATA_EXPORT": (),
    "EXPORT_META_DATA": (),
}
TEXTS: dict[str, tuple[str, ...]] = {
    NVTX: ("text",),
    "TARGET_INFO_GPU": ("name",),
    "DIAGNOSTIC_EVENT": ("text",),
    "StringIds": ("value",),
    "META_DATA_EXPORT": ("name", "value"),
    "EXPORT_META_DATA": ("name", "value"),
}
_REFERENCES = ("shortName", "demangledName", "nameId", "textId")
_NAMED_EVENTS = frozenset({*RANGES, CATEGORY, DOMAIN})
_WHERE = {
    # nsys's own words are shown where it warns; those that name a path, the host or the user are not copied.
    "DIAGNOSTIC_EVENT": "severity IN (2, 3)",
    "META_DATA_EXPORT": "name IN ('EXPORT_PRODUCT_VERSION', 'EXPORT_SCHEMA_VERSION')",
    "EXPORT_META_DATA": "name IN ('EXPORT_PRODUCT_VERSION', 'EXPORT_SCHEMA_VERSION')",
}
_PATH = re.compile(r"(?<![\w)\]}@.:/])(?:/[^\s/'\"<>|,;:()\[\]]+){2,}/?|\b[A-Za-z]:\\[^\s'\"]+")
BLANK = "(path)"


def scrub(source: Path, target: Path) -> None:
    """Write the copy to `target`, whole or not at all; raises ResultFileError for what is no export, OutputError, UsageError."""
    if target.exists() and target.samefile(source):
        raise UsageError(f"--scrub {target} is the file itself; name another one for the copy")
    with opened(source) as database:
        with writing(target):
            behind = file_behind(target)
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=None if behind is None else behind.parent)
        os.close(handle)
        try:
            _write(database, Path(name))
            Path(name).chmod(0o644)
            put_in_place(Path(name), target)
        except (OSError, sqlite3.Error) as error:
            raise OutputError(f"{target} cannot be written: {error}; make room or name another file") from error
        finally:
            with suppress(OSError):
                Path(name).unlink(missing_ok=True)


def _write(database: Database, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        used: set[int] = set()
        names = tuple(_machine_names(database))
        for table in (*(table for table in NUMBERS if table != "StringIds"), "StringIds"):
            _copy(database, connection, table, used, names)
        connection.commit()
        # Nothing was ever deleted from this file; what is gained is its size.
        connection.execute("VACUUM")


def _machine_names(database: Database) -> Iterator[str]:
    """Yield what the export calls the host and the user."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
        for _, name, value in database.rows(table, ("name", "value")):
            if re.search("host|user", str(name), re.IGNORECASE) and isinstance(value, str) and value:
                yield value


def _copy(database: Database, connection: sqlite3.Connection, table: str, used: set[int], machine: tuple[str, ...]) -> None:
    """Copy a table; ids of texts that its rows refer to are added to `used`, which chooses the rows of the table of texts."""
    have = database.columns(table)
    if table not in database.tables:
        return
    columns = [name for name in (*NUMBERS[table], *TEXTS.get(table, ())) if name in have]
    if "shortName" in columns:
        # Full names are read where there are no short ones.
        columns = [name for name in columns if name != "demangledName"]
    declared = ", ".join(f'"{name}" {"TEXT" if name in TEXTS.get(table, ()) else "INTEGER"}' for name in columns)
    connection.execute(f'CREATE TABLE "{table}" ({declared or "nothing"})')
    if columns:
        names = ", ".join(f'"{name}"' for name in columns)
        places = ", ".join("?" * (len(columns) + 1))
        rows: Iterator[list[object]] = _rows(database, table, columns, used)
        if table == "DIAGNOSTIC_EVENT":
            rows = (row for row in rows if not any(name in str(row[-1]) for name in (BLANK, *machine)))
        connection.executemany(f'INSERT INTO "{table}" (rowid, {names}) VALUES ({places})', rows)


def _rows(database: Database, table: str, columns: list[str], used: set[int]) -> Iterator[list[object]]:
    texts = TEXTS.get(table, ())
    references = [place for place, name in enumerate(columns, 1) if name in _REFERENCES]
    strings, kind = table == "StringIds", columns.index("eventType") + 1 if "eventType" in columns else 0
    for row in database.rows(table, columns, _condition(database, table)):
        if strings and row[1] not in used:
            continue
        cells = [row[0], *(_cell(cell, name in texts) for name, cell in zip(columns, row[1:], strict=True))]
        if kind and cells[kind] not in _NAMED_EVENTS:
            # A mark is counted, but what it says is nobody's.
            cells = [None if name in ("text", "textId") else cell for name, cell in zip(("", *columns), cells, strict=True)]
        used.update(cell for place in references if isinstance(cell := cells[place], int))
        yield cells


def _condition(database: Database, table: str) -> str:
    where = _WHERE.get(table, "")
    return where if not where or where.split(" ")[0] in database.columns(table) else "0"


def _cell(cell: object, text: bool) -> object:
    """Return a value where it belongs: numbers in columns of numbers, texts without paths in those of texts."""
    if text:
        return _PATH.sub(BLANK, cell) if isinstance(cell, str) else None
    return cell if isinstance(cell, int | float) else None
