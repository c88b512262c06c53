"""NVTX ranges of a trace: push/pop and start/end ranges of every domain, with names, categories and integer payloads."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from greenbench.timeline.capture import NOTHING, NVTX, Ranges, pid_of
from greenbench.timeline.database import Database, clean
from greenbench.timeline.intervals import Ints

# eventType: push/pop and start/end, each also in the form with a payload of its own kind (NVTXT).
RANGES = (59, 60, 70, 71)
CATEGORY, DOMAIN = 33, 75
MOST_NAMES = 100_000
OTHER_NAMES = "(further names)"
_TIME_LIMIT = 1 << 53
_OPEN = -(1 << 62)
_WIDTH = 8


class Texts:
    """Numbers distinct texts in the order in which they are met; beyond MOST_NAMES all become one."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text."""
        found = self._known.get(text)
        if found is None:
            text = text if len(self._known) < MOST_NAMES else OTHER_NAMES
            found = self._known.setdefault(text, len(self._known))
        return found

    def all(self) -> tuple[str, ...]:
        """Return the texts in order."""
        return tuple(self._known)


def read_ranges(database: Database, last: int, texts: Texts) -> tuple[Ranges, int]:
    """Return the ranges and how many rows had no usable time; an unclosed range ends at `last`, or at the latest range."""
    if not {"start", "end", "eventType", "globalTid"} <= database.columns(NVTX):
        return _table(np.zeros((0, _WIDTH), np.int64)), 0
    strings = _strings(database)
    domains, categories = _dictionaries(database, strings)
    found, skipped = array("q"), 0
    for row, start, end, thread, domain_id, category_id, text_id, text, unsigned, signed in _events(database):
        if not isinstance(start, int) or abs(start) >= _TIME_LIMIT or (isinstance(end, int) and end < start):
            skipped += 1
            continue
        key = pid_of(_whole(thread)), _whole(domain_id, 0)
        name = text if isinstance(text, str) else strings.get(_whole(text_id), "")
        domain = domains.get(key) or (f"domain#{key[1]}" if key[1] else "")
        category = categories.get((*key, _whole(category_id)))
        found.extend(
            (
                _whole(row),
                start,
                min(end, _TIME_LIMIT) if isinstance(end, int) else _OPEN,
                _whole(thread),
                texts.number(domain),
                texts.number(clean(name)),
                NOTHING if category is None else texts.number(category),
                _whole(unsigned if isinstance(unsigned, int) else signed),
            )
        )
    table = np.frombuffer(found, np.int64).reshape(-1, _WIDTH).copy()
    _close(table, last)
    return _table(table), skipped


def _events(database: Database) -> Iterator[tuple[object, ...]]:
    columns = ("start", "end", "globalTid", "domainId", "category", "textId", "text", "uint64Value", "int64Value")
    return database.rows(NVTX, columns, f"eventType IN ({', '.join(map(str, RANGES))})")


def _dictionaries(
    database: Database, strings: dict[int, str]
) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int, int], str]]:
    """Return the names of domains by (pid, id), and of categories by (pid, domain, id)."""
    domains: dict[tuple[int, int], str] = {}
    categories: dict[tuple[int, int, int], str] = {}
    columns = ("eventType", "globalTid", "domainId", "category", "textId", "text")
    for _, kind, thread, domain_id, category, text_id, text in database.rows(
        NVTX, columns, f"eventType IN ({CATEGORY}, {DOMAIN})"
    ):
        name = clean(text if isinstance(text, str) else strings.get(_whole(text_id), ""))
        key = pid_of(_whole(thread)), _whole(domain_id, 0)
        if kind == DOMAIN:
            domains[key] = name
        else:
            categories[(*key, _whole(category))] = name
    return domains, categories


def _whole(value: object, default: int = NOTHING) -> int:
    return value if isinstance(value, int) else default


def _strings(database: Database) -> dict[int, str]:
    """Return the registered texts that ranges use."""
    if "textId" not in database.columns(NVTX):
        return {}
    found = database.rows("StringIds", ("id", "value"), f"id IN (SELECT textId FROM {NVTX})")
    return {key: str(value) for _, key, value in found if isinstance(key, int)}


def _close(table: Ints, last: int) -> None:
    """Give ranges that nobody closed the last time of the trace as their end."""
    start, end = table[:, 1], table[:, 2]
    unclosed = end == _OPEN
    latest = max([last, *(int(part.max()) for part in (start, end[~unclosed]) if len(part))])
    end[unclosed] = latest


def _table(rows: Ints) -> Ranges:
    """Order the ranges by thread, start and descending end, and number the pairs of domain and name."""
    row, start, end, thread, domain, name, category, payload = rows.T
    order = np.lexsort((row, -end, start, thread))
    group = _groups(domain, name)
    return Ranges(*(column[order] for column in (row, start, end, thread, domain, name, category, payload, group)))


def _groups(domain: Ints, name: Ints) -> Ints:
    _, group = np.unique(domain * (MOST_NAMES + 2) + name, return_inverse=True)
    numbered: Ints = group.astype(np.int64)
    return numbered
