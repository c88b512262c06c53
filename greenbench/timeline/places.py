"""The contexts of a trace: labels that tell them apart, and how many SMs each has where the trace says so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from greenbench.timeline.capture import Context, ContextRow, Work, pid_of
from greenbench.timeline.database import Database

_TABLE = "TARGET_INFO_CUDA_CONTEXT_INFO"
MOST_CONTEXTS = 10_000


def read_context_rows(database: Database) -> tuple[ContextRow, ...]:
    """Return the table of contexts in order; the SM count is a column of nsys 2026.1 and newer."""
    columns = ("processId", "deviceId", "contextId", "parentContextId", "isGreenContext", "nullStreamId", "numMultiprocessors")
    found = []
    for _, *cells in database.rows(_TABLE, columns):
        pid, device, context, parent, green, null, sms = (cell if isinstance(cell, int) else 0 for cell in cells)
        found.append(ContextRow(pid, device, context, parent, bool(green), null, sms if sms > 0 else None))
    return tuple(sorted(found[:MOST_CONTEXTS], key=lambda row: (row.pid, row.device, row.context)))


def name_contexts(work: Work, rows: tuple[ContextRow, ...]) -> tuple[Context, ...]:
    """Return the contexts that work ran in, in the order of `place`: `green:N`, or `primary:N` by its context id.

    Where a label would name two (several processes or devices), all of them get `@pid` and then `/device` behind it.
    """
    _, first = np.unique(work.place, return_index=True)
    reported = {(row.pid, row.context): row.sms for row in rows if row.green and row.sms}
    found = []
    for index in first.tolist():
        process, device, context, green = (int(column[index]) for column in (work.process, work.device, work.context, work.green))
        label = f"green:{green}" if green else f"primary:{context}"
        sms = reported.get((pid_of(process), green)) if green else None
        found.append(Context(process, device, context, green, label, sms, "file" if sms else ""))
    for more in (_of_process, _of_device, _of_parent):
        counts = Counter(each.label for each in found)
        found = [replace(each, label=each.label + more(each)) if counts[each.label] > 1 else each for each in found]
    return tuple(found)


def _of_process(context: Context) -> str:
    return f"@{pid_of(context.process)}"


def _of_device(context: Context) -> str:
    return f"/{context.device}"


def _of_parent(context: Context) -> str:
    return f"#{context.context}"
