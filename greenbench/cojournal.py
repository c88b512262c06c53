"""blocks.csv of `colocate` and `switch`: every visit to a point, with the stamps of all roles, on disk before the next starts.

A line holds what is the same for the whole visit in cells of its own, what is known of each role as JSON, and the stamps in one
cell per kind: integers in ns from the visit's origin, `;` between steps and `|` between roles. The pieces of steps that give way
between them have two cells of their own, as many entries a step as it has pieces.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from greenbench.appending import AppendedFile
from greenbench.errors import GreenbenchError, ResultFileError
from greenbench.queueing.model import Kind, Mechanism
from greenbench.records import LIST_SEPARATOR, BadValueError, from_json, to_json
from greenbench.schema import BlockStatus, Evidence, Flag, Grant, Scope
from greenbench.tables import check_header, header_line, parse_line, parse_record, record_line, split_lines
from greenbench.tails import Metric, StepTimes

ROLE_SEPARATOR = "|"
STAMPS = ("due_ns", "start_ns", "end_ns", "late_ns")
PIECES = ("piece_start_ns", "piece_end_ns")

# More SMs than any GPU has.
MOST_SMS = 100_000
# The least that a number of a visit, and of a role, can be.
LEAST = dict.fromkeys(("seq", "started", "seconds", "place", "rate_per_s", "warm_ns", "window_s"), 0)
LEAST |= dict.fromkeys(("attempt", "concurrency_limit", "connections", "chunk", "processes"), 1)
ROLE_LEAST = dict.fromkeys(("slot", "rate_per_s", "due", "step_us", "create_us", "destroy_us", "first_launch_us"), 0)
ROLE_LEAST |= {"tokens": 1, "sm_clock_mhz": 0}

_Value = TypeVar("_Value", int, float)


class VisitKind(StrEnum):
    """Why a point was visited: for its figures, or to learn how long a step takes before the rates are known."""

    VISIT = "visit"
    PROBE = "probe"


class Pace(StrEnum):
    """Whose clock starts a step: column arrivals. In a closed loop a step starts the next one."""

    DEVICE = "device"
    HOST = "host"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    """One role at one point: what it does, what was asked for, and what became known when it was prepared.

    `slot` is the place of its partition in the split, None where it may use every SM. `due` is the number of steps that were due
    (None: a closed loop): where fewer have stamps, the limit of the visit cut them off.
    """

    name: str
    kind: Kind
    workload: str = ""
    params: str = ""
    family: str = ""
    metrics: tuple[Metric, ...] = ()
    tokens: int | None = None
    sms_requested: str = ""
    slot: int | None = None
    pace: Pace = Pace.CLOSED
    process: str = ""
    rate_per_s: float | None = None
    due: int | None = None
    grant: Grant | None = None
    step_us: float | None = None
    verified_error: float | None = None
    source_digest: str = ""
    config: str = ""
    create_us: float | None = None
    destroy_us: float | None = None
    first_launch_us: float | None = None
    smids: tuple[int, ...] = ()
    sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleVisit:
    """The steps of one role in one visit, in ns from the visit's origin; `late_ns` is how long the device waited for the host.

    `chunks` are [start, end) of every piece, step by step, each step as many; empty where a step is one piece. Between its pieces
    a step waits.
    """

    facts: RoleFacts
    due_ns: tuple[int, ...] = ()
    start_ns: tuple[int, ...] = ()
    end_ns: tuple[int, ...] = ()
    late_ns: tuple[int, ...] = ()
    reported: tuple[float, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()

    @property
    def times(self) -> StepTimes:
        """The stamps in the order in which steps were due."""
        return StepTimes.of(zip(self.due_ns, self.start_ns, self.end_ns, strict=True))

    def running(self, begin_ns: int, end_ns: int) -> tuple[tuple[int, int], ...]:
        """Return when the steps that were due in [begin, end) really ran: [start, end) of their pieces, or of them as a whole."""
        if not self.chunks:
            return self.times.due_within(begin_ns, end_ns).intervals
        pieces = len(self.chunks) // len(self.due_ns)
        dues = (due for due in self.due_ns for _ in range(pieces))
        return tuple(chunk for due, chunk in zip(dues, self.chunks, strict=True) if begin_ns <= due < end_ns)

    @property
    def cut(self) -> bool:
        """True where steps were due that had not ended at the limit of the visit."""
        return self.facts.due is not None and len(self.end_ns) < self.facts.due


@dataclass(frozen=True, slots=True, kw_only=True)
class CoVisit:
    """One visit to one point, with what identifies it: rows.csv can be made anew from the journal and run.json alone.

    `place` is the place of the point in the plan, rates aside, `rate_per_s` the rate of the background's requests, `sizes` the
    SMs asked for, latency role first, and `split` the name of that in the label. `warm_ns` is where the warm-up ends, `window_s`
    the time between the readings `before` and `after`.
    """

    seq: int = 0
    kind: VisitKind = VisitKind.VISIT
    attempt: int = 1
    started: float = 0.0
    seconds: float = 0.0
    status: BlockStatus = BlockStatus.OK
    reason: str = ""
    label: str = ""
    place: int = 0
    mechanism: Mechanism
    split: str = ""
    sizes: tuple[int, ...] = ()
    workqueue: Scope = Scope.DRIVER_DEFAULT
    concurrency_limit: int | None = None
    connections: int | None = None
    chunk: int | None = None
    load: str = ""
    rate_per_s: float | None = None
    processes: int = 1
    warm_ns: int = 0
    window_s: float = 0.0
    clock_error_ns: float | None = None
    flags: tuple[Flag, ...] = ()
    throttle: str = ""
    notes: str = ""
    before: Evidence = field(default_factory=Evidence)
    after: Evidence = field(default_factory=Evidence)
    roles: tuple[RoleVisit, ...] = ()

    @property
    def key(self) -> str:
        """Identity of the point within its run: its label, and who is there, since both roles may be the same workload alone."""
        return " ".join((self.label, *(role.facts.name for role in self.roles)))

    @property
    def clock_holds(self) -> bool:
        """Return whether the SM clocks of its roles mean anything: they pair readings by %smid.

        Under MPS one id need not be one SM in two launches: an H200 showed clocks from 146 to 2,043 MHz there (driver 580).
        """
        return self.mechanism not in (Mechanism.MPS, Mechanism.MPS_LIMITED)

    def role(self, kind: Kind) -> RoleVisit | None:
        """Return the first role of that kind, None where the point has none."""
        return next((role for role in self.roles if role.facts.kind is kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A visit as it stands in the file."""

    seq: int
    kind: VisitKind
    attempt: int
    started: float
    seconds: float
    status: BlockStatus
    reason: str
    label: str
    place: int
    mechanism: Mechanism
    split: str
    sizes: tuple[int, ...]
    workqueue: Scope
    concurrency_limit: int | None
    connections: int | None
    chunk: int | None
    load: str
    rate_per_s: float | None
    processes: int
    warm_ns: int
    window_s: float
    clock_error_ns: float | None
    flags: tuple[Flag, ...]
    throttle: str
    notes: str
    before: str
    after: str
    roles: str
    due_ns: str
    start_ns: str
    end_ns: str
    late_ns: str
    piece_start_ns: str
    piece_end_ns: str
    reported: str


_PLAIN = tuple(each.name for each in fields(CoVisit) if each.name not in ("before", "after", "roles"))


class CoJournal:
    """The append-only journal of one run; a context manager that holds the file's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = AppendedFile(path)
        try:
            self.visits = _parse(self._file.content, self._file.rest, path)
            if not self._file.content:
                self._file.append(header_line(_Line))
        except BaseException:
            self._file.close()
            raise

    def append(self, visit: CoVisit) -> CoVisit:
        """Put a visit on disk under the next sequence number, and return it with that."""
        numbered = replace(visit, seq=self.visits[-1].seq + 1 if self.visits else 0)
        kept = f"; everything before it is kept ({len(self.visits)} visits), continue with --resume {self.path.parent}"
        self._file.append(record_line(_line(numbered), self.path), kept)
        self.visits.append(numbered)
        return numbered

    @property
    def empty(self) -> bool:
        """Return whether nothing was ever visited."""
        return not self.visits

    def close(self) -> None:
        """Close the file and give back the lock; safe to call twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_cojournal(path: Path) -> list[CoVisit]:
    """Return the visits of a journal; an unfinished last line, as kill -9 leaves it, is dropped. Raises ResultFileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultFileError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    rest = split_lines(data)[1]
    return _parse(data[: len(data) - len(rest)], rest, path)


def holds_nothing(path: Path) -> bool:
    """Tell a journal in which no visit was ever begun: its head alone, or what kill -9 left of that."""
    try:
        return path.is_file() and header_line(_Line).startswith(path.read_bytes())
    except OSError:
        return False


def _parse(content: bytes, rest: bytes, path: Path) -> list[CoVisit]:
    lines, _ = split_lines(content)
    if not lines:
        if not header_line(_Line).startswith(rest):
            raise ResultFileError(f"{path} is not a journal of greenbench: it does not start with the names of its columns")
        return []
    header = parse_line(lines[0], f"{path} header")
    check_header(_Line, header, path)
    visits: list[CoVisit] = []
    for row, line in enumerate(lines[1:], start=1):
        place = f"{path} row {row}"
        visit = _visit(parse_record(_Line, header, parse_line(line, place), place), place)
        if visits and visit.seq <= visits[-1].seq:
            raise ResultFileError(f"{place}, column seq: {visit.seq} does not follow {visits[-1].seq}")
        visits.append(visit)
    return visits


def _line(visit: CoVisit) -> _Line:
    try:
        cells = {name: _text(to_json(getattr(visit, name))) for name in ("before", "after")}
        cells["roles"] = _text([to_json(role.facts) for role in visit.roles])
    except BadValueError as error:
        raise GreenbenchError(f"a visit was given a wrong value: {error}") from error
    lists = {name: [getattr(role, name) for role in visit.roles] for name in (*STAMPS, "reported")}
    lists |= {name: [[chunk[side] for chunk in role.chunks] for role in visit.roles] for side, name in enumerate(PIECES)}
    for name, each in lists.items():
        cells[name] = ROLE_SEPARATOR.join(LIST_SEPARATOR.join(map(repr, values)) for values in each)
    same: dict[str, Any] = {name: getattr(visit, name) for name in _PLAIN} | cells
    return _Line(**same)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _visit(line: _Line, place: str) -> CoVisit:
    facts = cast("tuple[RoleFacts, ...]", _from_text(line, "roles", tuple[RoleFacts, ...], place))
    lists = {name: _stamps(line, name, len(facts), int, place) for name in (*STAMPS, *PIECES)}
    reported = _stamps(line, "reported", len(facts), float, place)
    roles = []
    for index, each in enumerate(facts):
        stamps = {name: lists[name][index] for name in STAMPS}
        if len({len(found) for found in stamps.values()}) > 1:
            counts = ", ".join(f"{len(found)} {name}" for name, found in stamps.items())
            raise ResultFileError(f"{place}: the steps of role {each.name!r} have {counts}")
        starts, ends = (lists[name][index] for name in PIECES)
        chunks = _chunks(starts, ends, len(stamps["due_ns"]), f"{place}, role {each.name!r}")
        role = RoleVisit(facts=each, reported=reported[index], chunks=chunks, **stamps)
        try:
            _ = role.times
        except ValueError as error:
            raise ResultFileError(f"{place}, role {each.name!r}: {error}") from error
        roles.append(role)
    _refuse_impossible(line, facts, place)
    same: dict[str, Any] = {name: getattr(line, name) for name in _PLAIN}
    same |= {name: _from_text(line, name, Evidence, place) for name in ("before", "after")}
    return CoVisit(**same, roles=tuple(roles))


def _refuse_impossible(line: _Line, facts: Sequence[RoleFacts], place: str) -> None:
    """Refuse numbers that no visit has: below the least of their column, or SMs that no GPU has."""
    for name, least in LEAST.items():
        _refuse_outside(getattr(line, name), name, least, math.inf, place)
    for size in line.sizes:
        _refuse_outside(size, "sizes", 1, MOST_SMS, place)
    for each in facts:
        where = f"{place}, role {each.name!r}"
        for name, least in ROLE_LEAST.items():
            _refuse_outside(getattr(each, name), name, least, math.inf, where)
        for smid in (*each.smids, *(each.grant.smids if each.grant else ())):
            _refuse_outside(smid, "smids", 0, MOST_SMS, where)
        if each.grant is not None:
            _refuse_outside(each.grant.sms, "grant.sms", 1, MOST_SMS, where)


def _refuse_outside(value: float | None, name: str, least: float, most: float, place: str) -> None:
    if value is None or (least <= value <= most and math.isfinite(value)):
        return
    span = f"{least:g} or more" if math.isinf(most) else f"from {least:g} to {most:g}"
    raise ResultFileError(f"{place}, column {name}: {value} cannot be; it is {span}")


def _chunks(starts: Sequence[int], ends: Sequence[int], steps: int, place: str) -> tuple[tuple[int, int], ...]:
    if len(starts) != len(ends) or (len(starts) % steps if steps else starts):
        raise ResultFileError(f"{place}: {len(starts)} starts and {len(ends)} ends are not the pieces of {steps} steps")
    found = tuple(zip(starts, ends, strict=True))
    if any(end < start for start, end in found):
        raise ResultFileError(f"{place}: a piece ends before it starts")
    return found


def _from_text(line: _Line, name: str, hint: object, place: str) -> object:
    try:
        return from_json(hint, json.loads(getattr(line, name)))
    except (BadValueError, ValueError, RecursionError) as error:
        raise ResultFileError(f"{place}, column {name}: {error}") from error


def _stamps(line: _Line, name: str, roles: int, read: Callable[[str], _Value], place: str) -> Sequence[tuple[_Value, ...]]:
    text: str = getattr(line, name)
    cells = text.split(ROLE_SEPARATOR) if roles else []
    if len(cells) != roles or (text and not roles):
        raise ResultFileError(f"{place}, column {name}: {len(cells)} lists for {roles} roles")
    try:
        return [tuple(map(read, cell.split(LIST_SEPARATOR))) if cell else () for cell in cells]
    except ValueError as error:
        raise ResultFileError(f"{place}, column {name}: {error}") from error


__all__ = ["CoJournal", "CoVisit", "Pace", "RoleFacts", "RoleVisit", "VisitKind", "holds_nothing", "read_cojournal"]
