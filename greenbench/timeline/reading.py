"""An Nsight Systems SQLite export of any version from 2022.4 on, read into a Capture; what it lacks becomes a note.

Schemas differ from version to version, so tables and columns are looked for and never assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from greenbench.errors import GreenbenchError, IncompleteError, ResultFileError
from greenbench.timeline.capture import (
    NOTHING,
    RUNTIME,
    SYNCHRONIZATION,
    TABLES,
    Calls,
    Capture,
    Gpu,
    Kind,
    Stream,
    Waits,
    Work,
    process_of,
)
from greenbench.timeline.database import Database, clean, opened
from greenbench.timeline.intervals import Ints, coded
from greenbench.timeline.nvtx import Texts, read_ranges
from greenbench.timeline.places import name_contexts, read_context_rows

KNOWN_MAJOR = 3
_TIME_LIMIT = 1 << 53
# Times of text and blobs compare above every integer in SQLite, so this condition drops them too.
_USABLE = f'"start" > -{_TIME_LIMIT} AND "end" < {_TIME_LIMIT} AND "start" < {_TIME_LIMIT} AND "end" >= "start"'
_MOST_DIAGNOSTICS = 10
_WITHOUT_CALLS = "no queueing time, no attribution to NVTX ranges and no check for strays"
_SIGNS = ("META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME", "ENUM_NSYS_EVENT_TYPE")
_KEYS = {"deviceId": 0, "contextId": 0, "greenContextId": 0, "streamId": 0, "correlationId": NOTHING, "globalPid": 0}
_OWN = {
    Kind.KERNEL: {"shortName": NOTHING, "graphNodeId": NOTHING},
    Kind.GRAPH: {"graphId": NOTHING, "graphExecId": NOTHING},
    Kind.COPY: {"bytes": NOTHING, "copyKind": NOTHING, "srcKind": NOTHING, "dstKind": NOTHING, "graphNodeId": NOTHING},
    Kind.MEMSET: {"bytes": NOTHING, "graphNodeId": NOTHING},
}


def read_capture(path: Path) -> Capture:
    """Read an export; no database and foreign tables raise ResultFileError, a capture without kernels IncompleteError."""
    with opened(path) as database:
        notes = _check_version(database, path)
        parts = [_read_work(database, kind, notes) for kind in Kind]
        if not len(parts[Kind.KERNEL]) + len(parts[Kind.GRAPH]):
            raise _empty(database, path)
        notes += _missing(database, parts)
        calls = _read_calls(database, notes)
        work = _joined(parts, calls)
        del parts
        texts = Texts()
        last = max(int(work.end.max()), int(calls.end.max()) if len(calls) else 0)
        ranges, skipped = read_ranges(database, last, texts)
        notes += [f"{skipped} NVTX rows have no usable time and are left out"] if skipped else []
        rows = read_context_rows(database)
        product, schema = _versions(database)
        capture = Capture(
            source=str(path),
            product=product,
            schema=schema,
            work=work,
            calls=calls,
            ranges=ranges,
            waits=_read_waits(database),
            contexts=name_contexts(work, rows),
            context_rows=rows,
            streams=tuple(_read_streams(database)),
            gpus=_read_gpus(database),
            names=_read_names(database, work, calls),
            texts=texts.all(),
            row_counts={clean(table): database.count(table) for table in database.tables if not table.startswith("ENUM_")},
            knows_green=any("greenContextId" in database.columns(TABLES[kind]) for kind in (Kind.KERNEL, Kind.GRAPH)),
            notes=(*notes, *_diagnostics(database)),
        )
    return capture


def _check_version(database: Database, path: Path) -> list[str]:
    """Refuse tables that Nsight Systems does not write, and note a version that nobody has seen yet."""
    cuda = any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in database.tables)
    if not cuda and not any(sign in database.tables for sign in _SIGNS):
        shown = ", ".join(clean(name)[:40] for name in database.tables[:4]) or "none"
        raise ResultFileError(
            f"{path} is a database, but no export of Nsight Systems (tables: {shown}); make one with 'nsys export -t sqlite'"
        )
    _, schema = _versions(database)
    major = schema.partition(".")[0]
    if major.isdigit() and int(major) > KNOWN_MAJOR:
        return [
            f"schema {schema} is newer than the {KNOWN_MAJOR}.x that is known here; what was not found in it is missing below"
        ]
    return []


def _versions(database: Database) -> tuple[str, str]:
    """Return the versions of nsys and of the schema, empty where the file names none (2022.4)."""
    found: dict[str, str] = {}
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        found |= {clean(name): clean(value) for _, name, value in database.rows(table, ("name", "value")) if name is not None}
    return found.get("EXPORT_PRODUCT_VERSION", ""), found.get("EXPORT_SCHEMA_VERSION", "")


def _empty(database: Database, path: Path) -> GreenbenchError:
    """Tell a capture without kernels from one whose kernels cannot be used."""
    unusable = sum(database.count(TABLES[kind]) for kind in (Kind.KERNEL, Kind.GRAPH))
    if unusable:
        return ResultFileError(
            f"{path}: not one of its kernels has a usable time ({unusable} rows left out: end before start, no number, "
            "or beyond 2^53 ns); export the report again with 'nsys export -t sqlite'"
        )
    told = next(iter(_diagnostics(database)), "")
    seen = "NVTX ranges only" if database.count("NVTX_EVENTS") else "no GPU work"
    return IncompleteError(
        f"{path} is a valid but empty capture ({seen}, no kernel): capture with 'nsys profile -t cuda,nvtx' a process that "
        f"launches kernels{f'; {told}' if told else ''}"
    )


def _diagnostics(database: Database) -> list[str]:
    """Return what nsys itself warned of (severity 2 and 3)."""
    rows = database.rows("DIAGNOSTIC_EVENT", ("severity", "text"), "severity IN (2, 3)")
    texts = dict.fromkeys(f"nsys {'error' if severity == 3 else 'warning'}: {clean(text)}" for _, severity, text in rows)
    return list(texts)[:_MOST_DIAGNOSTICS]


def _read_work(database: Database, kind: Kind, notes: list[str]) -> Work:
    """Read one table of GPU work; rows without a usable time are counted in `notes` and left out."""
    table = TABLES[kind]
    have = database.columns(table)
    if have and not {"start", "end"} <= have:
        raise ResultFileError(f"{database.path}: {table} lacks its columns start and end, so there is no time to read")
    own = dict(_OWN[kind])
    if kind is Kind.KERNEL and "shortName" not in have and "demangledName" in have:
        own = {"demangledName": NOTHING, "graphNodeId": NOTHING}
    read = database.integers(table, {"start": 0, "end": 0, **_KEYS, **own}, _USABLE)
    count = len(read["row"])
    left = database.count(table) - count
    if left:
        notes.append(f"{left} rows of {table} have no usable time and are left out")
    nothing = np.full(count, NOTHING, np.int64)
    return Work(
        kind=np.full(count, int(kind), np.int64),
        row=read["row"],
        start=read["start"],
        end=read["end"],
        process=read["globalPid"],
        device=read["deviceId"],
        context=read["contextId"],
        green=np.maximum(read["greenContextId"], 0),
        stream=read["streamId"],
        correlation=read["correlationId"],
        name=read.get("shortName", read.get("demangledName", read.get("graphId", nothing))),
        node=read.get("graphNodeId", nothing),
        size=read.get("bytes", nothing),
        direction=read.get("copyKind", nothing),
        source=read.get("srcKind", nothing),
        target=read.get("dstKind", nothing),
        place=nothing,
        call=nothing,
    )


def _missing(database: Database, parts: list[Work]) -> Iterator[str]:
    """Yield a line for each thing that this export cannot tell."""
    kernels, graphs = parts[Kind.KERNEL], parts[Kind.GRAPH]
    table = TABLES[Kind.KERNEL] if len(kernels) else TABLES[Kind.GRAPH]
    if "greenContextId" not in database.columns(table):
        yield (
            "this nsys cannot tell green contexts (no column greenContextId), so work is grouped by parent context, "
            "and strays cannot be told; use nsys >= 2023.4"
        )
    if len(graphs):
        yield (
            f"{len(graphs)} graphs were traced whole: each counts as one piece of work, and overlap inside is unknown "
            "(capture with --cuda-graph-trace=node)"
        )
    if not database.count(RUNTIME):
        yield f"no API calls were recorded, so there is {_WITHOUT_CALLS}"
    elif not (np.concatenate((kernels.correlation, graphs.correlation)) >= 0).any():
        yield f"kernels have no correlation ids, so there is {_WITHOUT_CALLS}"
    if not database.count("TARGET_INFO_CUDA_CONTEXT_INFO"):
        yield "the file has no table of contexts; they are taken from the kernels"
    if not database.count("NVTX_EVENTS"):
        yield "no NVTX ranges were recorded, so only figures of the whole file are given and strays cannot be told"


def _read_calls(database: Database, notes: list[str]) -> Calls:
    have = database.columns(RUNTIME)
    if have and not {"start", "end", "globalTid"} <= have:
        notes.append(f"{RUNTIME} lacks start, end or globalTid and is not used")
        have = frozenset()
    defaults = {"start": 0, "end": 0, "globalTid": 0, "correlationId": NOTHING, "nameId": NOTHING}
    read = database.integers(RUNTIME if have else "", defaults, _USABLE)
    order = np.lexsort((read["row"], read["start"]))
    names = ("row", "start", "end", "globalTid", "correlationId", "nameId")
    return Calls(*(read[name][order] for name in names))


def _read_waits(database: Database) -> Waits:
    have = database.columns(SYNCHRONIZATION)
    names = ("start", "end", "globalPid", "contextId", "streamId", "correlationId", "syncType")
    usable = SYNCHRONIZATION if {"start", "end"} <= have else ""
    read = database.integers(usable, dict.fromkeys(names, NOTHING), _USABLE)
    order = np.lexsort((read["row"], read["start"]))
    return Waits(*(read[name][order] for name in ("row", *names)))


def _joined(parts: list[Work], calls: Calls) -> Work:
    """Put the kinds of work together, in the order of context and start, each with its place and its API call."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Work.__dataclass_fields__}
    place = np.zeros(len(columns["row"]), np.int64)
    for name in ("process", "device", "context", "green"):
        values, code = coded(columns[name])
        place = coded(place * len(values) + code)[1]
    columns["place"] = place
    columns["call"] = _calls_of(columns["process"], columns["correlation"], calls)
    order = np.lexsort((columns["row"], columns["kind"], columns["start"], columns["place"]))
    return Work(**{name: columns.pop(name)[order] for name in list(columns)})


def _calls_of(process: Ints, correlation: Ints, calls: Calls) -> Ints:
    """Return the position of the call that each piece of work came from, by process and correlation id; else NOTHING."""
    if not len(calls):
        return np.full(len(process), NOTHING, np.int64)
    both = np.concatenate((process_of(calls.thread), process))
    processes = coded(both)[1]
    ids = coded(np.concatenate((calls.correlation, correlation)))[1]
    keys = processes * (int(ids.max()) + 1) + ids
    known, asked = keys[: len(calls)], keys[len(calls) :]
    order = np.argsort(known, kind="stable")
    spot = np.minimum(np.searchsorted(known[order], asked), len(calls) - 1)
    found = order[spot]
    hit = (known[found] == asked) & (correlation >= 0)
    return np.where(hit, found, NOTHING)


def _read_streams(database: Database) -> Iterator[Stream]:
    """Yield priorities as signed numbers; they are exported as unsigned 32 bit."""
    rows = database.rows("TARGET_INFO_CUDA_STREAM", ("processId", "streamId", "priority", "flag"))
    for _, pid, stream, priority, flag in rows:
        if isinstance(stream, int):
            value = priority if isinstance(priority, int) else 0
            signed = value - (1 << 32) if value >= 1 << 31 else value
            yield Stream(pid if isinstance(pid, int) else 0, stream, signed, flag if isinstance(flag, int) else 0)


def _read_gpus(database: Database) -> dict[int, Gpu]:
    """Return the devices by their CUDA id, which is the id of TARGET_INFO_GPU where no table maps one to the other."""
    rows = database.rows("TARGET_INFO_GPU", ("id", "name", "smCount"))
    found = {}
    for _, key, name, sms in rows:
        if isinstance(key, int):
            found[key] = Gpu(clean(name), sms if isinstance(sms, int) and sms > 0 else None)
    pairs = database.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId"))
    mapped = {cuda: found[gpu] for _, gpu, cuda in pairs if isinstance(cuda, int) and isinstance(gpu, int) and gpu in found}
    return mapped or found


def _read_names(database: Database, work: Work, calls: Calls) -> dict[int, str]:
    """Return the texts that kernels and calls use; a graph is named by its id."""
    graphs = work.kind == int(Kind.GRAPH)
    used = set(np.unique(np.concatenate((work.name[~graphs], calls.name))).tolist())
    rows = database.rows("StringIds", ("id", "value"))
    return {key: clean(value) for _, key, value in rows if isinstance(key, int) and key in used}
