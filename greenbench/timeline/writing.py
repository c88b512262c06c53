"""A trace of greenbench's own, written as the tables of an Nsight Systems export, so that one reader serves both.

Of the columns that nsys writes only those are here that are read; what was not recorded has no column.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from greenbench import __version__
from greenbench.storage import replace_file
from greenbench.timeline.capture import NVTX, RUNTIME, TABLES, Kind
from greenbench.timeline.recorded import ContextSeen, Recorded

PRODUCT = f"greenbench {__version__} (CUPTI)"
# The schema of nsys 2025.3, whose columns these are.
SCHEMA = "3.20.3"
_PID_BITS = 24
_PUSH_POP, _DOMAIN_CREATED, _CATEGORY_NAMED = 59, 75, 33
_DOMAIN = 1

_COLUMNS = {
    TABLES[Kind.KERNEL]: "start end deviceId contextId greenContextId streamId correlationId globalPid shortName graphNodeId",
    RUNTIME: "start end globalTid correlationId nameId",
    NVTX: "start end eventType category text globalTid domainId uint64Value",
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        "processId deviceId contextId parentContextId isGreenContext nullStreamId numMultiprocessors"
    ),
    "TARGET_INFO_GPU": "id name smCount",
    "META_DATA_EXPORT": "name value",
    "StringIds": "id value",
}


class _Tables:
    """Rows by table, and the numbers of their texts."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {table: [] for table in _COLUMNS}
        self._texts: dict[str, int] = {}

    def add(self, table: str, **cells: object) -> None:
        self.rows[table].append(cells)

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts) + 1
            self.add("StringIds", id=self._texts[text], value=text)
        return self._texts[text]


def write_trace(path: Path, parts: Sequence[Recorded], *, device: int, name: str, sms: int) -> None:
    """Write what was recorded; `device`, `name` and `sms` are of the GPU. Raises OutputError where it cannot be written."""
    tables = _Tables()
    tables.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=PRODUCT)
    tables.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value=SCHEMA)
    tables.add("TARGET_INFO_GPU", id=device, name=name, smCount=sms)
    # CUPTI's clock counts from 1970; a reader expects times from the start of the capture.
    origin = min((time for part in parts for time in _times(part)), default=0)
    known: set[tuple[int, int]] = set()
    for part in parts:
        _add(tables, part, origin, known)
    for process in dict.fromkeys(part.pid for part in parts):
        _add_names(tables, process)
    whole = all(part.place(kernel) is not None for part in parts for kernel in part.kernels)
    replace_file(path, _database(tables, knows_green=whole))


def _times(part: Recorded) -> Iterator[int]:
    yield from (kernel.start_ns for kernel in part.kernels)
    yield from (call.start_ns for call in part.calls)
    yield from (span.start_ns for span in part.ranges)


def _add(tables: _Tables, part: Recorded, origin: int, known: set[tuple[int, int]]) -> None:
    process = part.pid << _PID_BITS
    # A worker launches from its main thread alone, and CUPTI numbers threads in a way of its own.
    thread = process | part.pid
    for kernel in part.kernels:
        place = part.place(kernel)
        green = place is not None and place.green
        tables.add(
            TABLES[Kind.KERNEL],
            start=kernel.start_ns - origin,
            end=kernel.end_ns - origin,
            deviceId=kernel.device,
            contextId=place.parent if green and place is not None else kernel.context,
            greenContextId=kernel.context if green else 0,
            streamId=kernel.stream,
            correlationId=kernel.correlation,
            globalPid=process,
            shortName=tables.text(kernel.name),
            graphNodeId=kernel.node or None,
        )
    for call in part.calls:
        times = {"start": call.start_ns - origin, "end": call.end_ns - origin}
        tables.add(RUNTIME, **times, globalTid=thread, correlationId=call.correlation, nameId=tables.text(call.name))
    for span in part.ranges:
        times = {"start": span.start_ns - origin, "end": span.end_ns - origin}
        cells = {"eventType": _PUSH_POP, "text": span.name, "globalTid": thread, "domainId": _DOMAIN}
        tables.add(NVTX, **times, **cells, category=1 + _CATEGORIES.index(span.category), uint64Value=span.payload)
    for context in part.contexts:
        if (part.pid, context.context) not in known:
            known.add((part.pid, context.context))
            _add_context(tables, part.pid, context)


# In the order in which `gpu.annotate` numbers them.
_CATEGORIES = ("sweep", "kernel", "workload", "setup")


def _add_context(tables: _Tables, pid: int, context: ContextSeen) -> None:
    tables.add(
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        processId=pid,
        deviceId=context.device,
        contextId=context.context,
        parentContextId=context.parent,
        isGreenContext=int(context.green),
        nullStreamId=context.null_stream,
        numMultiprocessors=context.sms,
    )


def _add_names(tables: _Tables, pid: int) -> None:
    """Name domain and categories, as the first ranges of a process would."""
    thread = pid << _PID_BITS | pid
    tables.add(NVTX, start=0, eventType=_DOMAIN_CREATED, text="greenbench", globalTid=thread, domainId=_DOMAIN)
    for number, word in enumerate(_CATEGORIES, start=1):
        cells = {"category": number, "text": word, "globalTid": thread, "domainId": _DOMAIN}
        tables.add(NVTX, start=0, eventType=_CATEGORY_NAMED, **cells)


def _database(tables: _Tables, *, knows_green: bool) -> bytes:
    """Return the file; without the column of green contexts where the place of a kernel is not known."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, text in _COLUMNS.items():
            columns = [column for column in text.split() if knows_green or column != "greenContextId"]
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            connection.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
                [[row.get(column) for column in columns] for row in tables.rows[table]],
            )
        connection.commit()
        return connection.serialize()
