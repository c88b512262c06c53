"""Made-up Nsight Systems exports: a few lines of work become the tables that nsys 2025.3 writes."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PID = 1000
PROCESS = (1 << 48) | (PID << 24)
THREAD = PROCESS | PID
# Greens of kernel rows, by the stream that the tests use for them.
STREAMS = {2: 15, 3: 18, 0: 7}

COLUMNS: dict[str, str] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid shortName graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId greenContextId streamId correlationId globalPid graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid bytes copyKind srcKind dstKind"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue",
    "NVTX_EVENTS": "start end eventType category text globalTid domainId uint64Value",
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        "processId deviceId contextId parentContextId isGreenContext nullStreamId numMultiprocessors"
    ),
    "TARGET_INFO_CUDA_STREAM": "processId streamId contextId priority flag",
    "TARGET_INFO_GPU": "id name smCount",
    "DIAGNOSTIC_EVENT": "severity text",
    "META_DATA_EXPORT": "name value",
    "StringIds": "id value",
}


@dataclass
class Export:
    """Tables in the making; `drop` names columns (TABLE.column) and tables that this nsys does not have."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    domains: dict[str, int] = field(default_factory=lambda: {"": 0})
    drop: frozenset[str] = frozenset()
    schema: str = "3.20.3"

    def add(self, table: str, **cells: Any) -> None:
        """Add a row as it is."""
        self.rows.setdefault(table, []).append(cells)

    def name(self, text: str) -> int:
        """Return the id of a text."""
        return self.names.setdefault(text, len(self.names) + 1)

    def call(self, name: str, start: int, end: int, correlation: int | None = None, thread: int = THREAD) -> int:
        """Add an API call and return its correlation id."""
        correlation = len(self.rows.get("CUPTI_ACTIVITY_KIND_RUNTIME", ())) + 1 if correlation is None else correlation
        cells = {"start": start, "end": end, "eventClass": 1, "globalTid": thread, "correlationId": correlation}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **cells, nameId=self.name(name), returnValue=0)
        return correlation

    def kernel(
        self, start: int, end: int, green: int = 2, launched: int | None = None, correlation: int | None = None, **more: Any
    ) -> int:
        """Add a kernel with its launch, 2 us long, which ends 1 us before the kernel starts, or begins at `launched`."""
        begin = start - 3_000 if launched is None else launched
        correlation = self.call("cuLaunchKernelEx", begin, begin + 2_000) if correlation is None else correlation
        cells = {"deviceId": 0, "contextId": 1, "greenContextId": green, "streamId": STREAMS.get(green, 99), "globalPid": PROCESS}
        cells |= {"shortName": self.name(more.pop("name", "step")), "graphNodeId": None} | more
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, correlationId=correlation, **cells)
        return correlation

    def copy(self, start: int, end: int, green: int = 0, kinds: tuple[int, int] = (1, 2), **more: Any) -> None:
        """Add a copy with its call; kinds are those of source and target memory (0 pageable, 1 pinned, 2 device)."""
        correlation = self.call("cuMemcpyHtoDAsync_v2", start - 3_000, start - 1_000)
        cells = {"deviceId": 0, "contextId": 1, "greenContextId": green, "streamId": STREAMS.get(green, 99), "globalPid": PROCESS}
        cells |= {"bytes": 4096, "copyKind": 1, "srcKind": kinds[0], "dstKind": kinds[1], "correlationId": correlation} | more
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, **cells)

    def range(self, name: str, start: int, end: int | None, domain: str = "greenbench", kind: int = 59, **more: Any) -> None:
        """Add an NVTX range; its domain is made on first use."""
        if domain not in self.domains:
            self.domains[domain] = len(self.domains)
            made = {"eventType": 75, "text": domain, "domainId": self.domains[domain]}
            self.add("NVTX_EVENTS", start=0, end=None, globalTid=THREAD, **made)
        cells = {"eventType": kind, "text": name, "globalTid": THREAD, "domainId": self.domains[domain]} | more
        self.add("NVTX_EVENTS", start=start, end=end, **cells)

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        self.rows["StringIds"] = [{"id": key, "value": text} for text, key in self.names.items()]
        self.rows["META_DATA_EXPORT"] = [
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"},
            {"name": "EXPORT_SCHEMA_VERSION", "value": self.schema},
        ]
        connection = sqlite3.connect(path)
        for table, rows in self.rows.items():
            if table not in self.drop:
                columns = [name for name in COLUMNS[table].split() if f"{table}.{name}" not in self.drop]
                connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
                connection.executemany(
                    f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
                    [[row.get(name) for name in columns] for row in rows],
                )
        connection.commit()
        connection.close()
        return path
