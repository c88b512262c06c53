"""A finding: one sentence on what a timeline shows, with its evidence and the rows in which to look it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from greenbench.timeline.capture import RUNTIME, TABLES, Calls, Capture, Kind, Work, pid_of
from greenbench.timeline.intervals import merge

# Rows and list entries that a finding names; it counts all.
MOST_ROWS = 20
MOST_FINDINGS = 50


class Topic(StrEnum):
    """What findings are about."""

    STRAY = "stray"
    SYNCHRONISATION = "synchronisation"
    COPY = "copy"
    NEVER_OVERLAP = "never_overlap"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` is for people, `evidence` for machines; `rows` are rowids by table, at most MOST_ROWS of each."""

    topic: Topic
    text: str
    where: str
    count: int
    total_ns: int
    evidence: Mapping[str, object]
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def milliseconds(ns: float) -> str:
    """Write a time for a sentence: in µs below one ms, else in ms."""
    return f"{ns / 1e3:,.1f} µs" if abs(ns) < 1e6 else f"{ns / 1e6:,.3f} ms"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write `1 kernel`, `2 kernels`, `2 copies`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Write some words, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def rows_of_work(work: Work) -> dict[str, tuple[int, ...]]:
    """Return the first rowids of each table that the work is from."""
    found = {TABLES[kind]: tuple(work.row[work.kind == int(kind)][:MOST_ROWS].tolist()) for kind in Kind}
    return {table: rows for table, rows in found.items() if rows}


def rows_of_calls(calls: Calls) -> dict[str, tuple[int, ...]]:
    """Return the first rowids of API calls."""
    return {RUNTIME: tuple(calls.row[:MOST_ROWS].tolist())} if len(calls) else {}


def work_list(capture: Capture, work: Work) -> list[dict[str, object]]:
    """Return the first pieces of work with all that is known of each."""
    priorities = {(stream.pid, stream.stream): stream.priority for stream in capture.streams}
    entries: list[dict[str, object]] = []
    for index in range(min(len(work), MOST_ROWS)):
        kind, call, stream = Kind(int(work.kind[index])), int(work.call[index]), int(work.stream[index])
        name = capture.name(int(work.name[index])) if kind is Kind.KERNEL else kind.name.lower()
        entries.append(
            {
                "table": TABLES[kind],
                "row": int(work.row[index]),
                "name": name,
                "context": capture.contexts[int(work.place[index])].label,
                "stream": stream,
                "priority": priorities.get((pid_of(int(work.process[index])), stream)),
                "start_ns": int(work.start[index]),
                "duration_ns": int(work.end[index] - work.start[index]),
                "correlation": int(work.correlation[index]),
                "api": capture.name(int(capture.calls.name[call])) if call >= 0 else None,
            }
        )
    return entries


def busy_ns(work: Work) -> int:
    """Return the length of the union of the work's intervals."""
    return merge(work.start, work.end).length
