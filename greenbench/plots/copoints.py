"""From the rows of a co-location to what its figures show: points with both roles, cases of one latency workload, the tail."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from greenbench.colocation.pairs import granted, sms_text
from greenbench.corow import CoRow
from greenbench.plots import style
from greenbench.plots.curves import Run
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Backend, Flag, RunMeta, Scope, Status
from greenbench.slo import Slo
from greenbench.tails import LEAST, Metric, column

CLOSED = "-"
MOST_DIGITS = 7
# What the label says beyond the columns: `…]@20:c8/driver_default/chunked:512/-`, and `green+hbm` beside another load.
_CHUNK = re.compile(r"/chunked:([0-9]{1,9})/")
_LOAD = re.compile(r"/[a-z_]+\+[a-z0-9_]+/[^/]*$")
_SIZE = re.compile(r"\]@([0-9]{1,6})[/:]")
_WORDS = {Metric.STEP: "step", Metric.ITL: "ITL", Metric.TTFT: "TTFT"}


@dataclass(frozen=True, slots=True)
class Tail:
    """The percentile of the latency role that the figures show."""

    metric: Metric
    q: int

    @property
    def name(self) -> str:
        """`step p99`, in words."""
        return f"{_WORDS[self.metric]} p{self.q}"

    def of(self, row: CoRow | None) -> float | None:
        """Return the row's figure in us, None where it has none."""
        value = getattr(row, column(self.metric, self.q)) if row is not None and row.status == Status.OK else None
        return float(value) if value is not None and 0 < value < math.inf else None


@dataclass(frozen=True, slots=True)
class Spot:
    """One point of a co-location with the rows of its roles; `size` is the latency role's share, None without a partition.

    `name` is the mechanism with what tells it from others of the same (`chunked 512`), `load` the rate of the background as
    the label has it.
    """

    mechanism: str
    name: str
    size: int | None
    load: str
    latency: CoRow | None = None
    background: CoRow | None = None

    @property
    def row(self) -> CoRow:
        """The latency role's row, or the background's where that is by itself."""
        found = self.latency or self.background
        return CoRow() if found is None else found

    @property
    def status(self) -> str:
        """`ok` only where both roles are."""
        states = [row.status for row in (self.latency, self.background) if row is not None]
        return next((state for state in states if state != Status.OK), Status.OK)

    @property
    def grew(self) -> bool:
        """Whether the latency role's queue was still growing, so that it has no percentile."""
        return self.status == Status.OK and self.latency is not None and self.latency.saturated == "true"

    @property
    def granted(self) -> int | None:
        """The SMs that the latency role had: its size, or the count that MPS granted instead."""
        return None if self.size is None else granted(self.latency, self.size)

    @property
    def size_text(self) -> str:
        """The size as it is shown: `20`, and `20 (18)` where 18 SMs were granted; empty without a partition."""
        return "" if self.size is None else sms_text(self.latency, self.size)

    @property
    def met(self) -> bool:
        """Whether all objectives hold."""
        return self.row.slo_met == "true"


@dataclass(frozen=True, slots=True)
class Case:
    """What one figure shows: one latency workload (and queue setting) under all mechanisms.

    `apart` says how it differs from the other cases of its run, empty for a run of one.
    """

    run: Run
    tail: Tail
    latency: CoRow
    background: CoRow
    spots: tuple[Spot, ...]
    alone: tuple[Spot, ...]
    slo: Slo | None = None
    apart: str = ""

    @property
    def loads(self) -> tuple[str, ...]:
        """The loads, rising; a background that is always busy is the last."""
        return tuple(sorted({spot.load for spot in self.spots}, key=lambda load: (_rate(load), load)))

    @property
    def load(self) -> str:
        """The load at which mechanisms are compared: that with the most figures, of several the highest."""
        counts = {
            load: sum(self.tail.of(spot.latency) is not None for spot in self.spots if spot.load == load) for load in self.loads
        }
        return max(counts, key=lambda load: (counts[load], _rate(load)), default=CLOSED)

    def at(self, load: str) -> Case:
        """Return the case with the points of one load."""
        return replace(self, spots=tuple(spot for spot in self.spots if spot.load == load))

    @property
    def curves(self) -> dict[str, list[Spot]]:
        """The points by name, sizes rising; only mechanisms with a point that is ok."""
        grouped: dict[str, list[Spot]] = {}
        for spot in self.spots:
            grouped.setdefault(spot.name, []).append(spot)
        return {
            name: sorted(spots, key=lambda spot: spot.size or 0)
            for name, spots in grouped.items()
            if any(spot.status == Status.OK for spot in spots)
        }

    def reference(self, size: int | None) -> float | None:
        """Return the tail of the latency role by itself on so many SMs; None: on the whole device."""
        found = (self.tail.of(spot.latency) for spot in self.alone if spot.latency is not None and spot.size == size)
        return next((value for value in found if value is not None), None)

    @property
    def limit_us(self) -> float | None:
        """The objective on the very percentile that is shown, in us."""
        limits = self.slo.limits if self.slo else ()
        # At full depth a step is a token, so both names are of one figure.
        same = {Metric.STEP, Metric.ITL} if self.tail.metric == Metric.ITL else {self.tail.metric}
        return min((each.us for each in limits if each.metric in same and each.q == self.tail.q), default=None)

    @property
    def words(self) -> str:
        """Both workloads and the load in one line, as plain text."""
        ours, theirs = self.latency.params.split(","), self.background.params.split(",")
        own = ", ".join(part for part in theirs if part not in ours and not part.startswith("chunk"))
        texts = f"{self.latency.kernel} ({', '.join(filter(None, ours))})", f"{self.background.kernel} ({own})"
        load = "always busy" if self.load == CLOSED else f"{self.load} requests a second"
        return style.plain(f"{texts[0]} beside {texts[1].removesuffix(' ()')}, {load}")


def _rate(load: str) -> float:
    """Return a load as a number; a background that is always busy is the heaviest."""
    try:
        return float(load)
    except ValueError:
        return float("inf")


def cases_of(rows: Sequence[CoRow], meta: RunMeta, slo: Slo | None) -> list[Case]:
    """Return the cases of a run whose latency role has a figure anywhere."""
    modelled = meta.device.backend == Backend.MODELLED or any(row.backend == Backend.MODELLED for row in rows)
    run = Run(meta, (), modelled, meta.profiled or any(Flag.PROFILED in row.flags for row in rows))
    spots = _spots(rows, meta.device.sm_count)
    groups: dict[tuple[object, ...], list[Spot]] = {}
    for spot in spots:
        if spot.mechanism != Mechanism.ALONE and spot.latency is not None:
            groups.setdefault(_key(spot.latency), []).append(spot)
    found = []
    for key, members in groups.items():
        alone = [spot for spot in spots if spot.mechanism == Mechanism.ALONE and _belongs(spot, members[0])]
        tail = _tail([spot.latency for spot in members])
        background = next((spot.background for spot in members if spot.background is not None), CoRow())
        if tail is not None and any(spot.status == Status.OK for spot in members):
            apart = ", ".join(_differences(key, list(groups)))
            found.append(
                Case(run, tail, members[0].row, background, tuple(_named(members)), tuple(alone), slo, style.plain(apart))
            )
    return found


def _key(row: CoRow) -> tuple[object, ...]:
    return (row.kernel, *row.params.split(","), f"connections={row.connections}", f"limit={row.concurrency_limit}")


def _differences(key: tuple[object, ...], keys: Sequence[tuple[object, ...]]) -> list[str]:
    """Return the parts of a key that not all have."""
    return [str(part) for part in key if not all(part in other for other in keys)]


def _belongs(alone: Spot, spot: Spot) -> bool:
    """Return whether a role by itself is that of a point: the same latency workload, or any background."""
    ours, theirs = alone.latency, spot.latency
    return ours is None or (theirs is not None and (ours.kernel, ours.params) == (theirs.kernel, theirs.params))


def _spots(rows: Iterable[CoRow], sm_count: int) -> list[Spot]:
    """Pair the rows of both roles of a point, which have one label, in the order of the file."""
    found: list[Spot] = []
    open_: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.role not in set(Kind) or _LOAD.search(row.label):
            continue
        waiting = open_.setdefault((row.label, row.role), [])
        if waiting:
            spot = found[place := waiting.pop(0)]
            found[place] = replace(spot, latency=spot.latency or row, background=spot.background or row)
            continue
        ours = {"latency": row} if row.role == Kind.LATENCY else {"background": row}
        found.append(Spot(row.mechanism, row.mechanism, _size(row, sm_count), row.label.rpartition("/")[2] or CLOSED, **ours))
        other = Kind.BACKGROUND if row.role == Kind.LATENCY else Kind.LATENCY
        open_.setdefault((row.label, other), []).append(len(found) - 1)
    return found


def _size(row: CoRow, most: int) -> int | None:
    """Return the SMs that a point asks for the latency role, None without a partition; more than there are cannot be drawn."""
    match = _SIZE.search(row.label)
    text = match[1] if match else row.sms_requested
    size = int(text) if len(text) < MOST_DIGITS and text.isascii() and text.isdecimal() else 0
    return size if 1 <= size <= most else None


def _named(spots: Sequence[Spot]) -> list[Spot]:
    """Return the points with names that tell apart what is of one mechanism."""
    return [replace(spot, name=named(spot.mechanism, chunk_of(spot), spot.row.workqueue)) for spot in spots]


def named(mechanism: str, chunk: str, scope: str) -> str:
    """Return a mechanism with its chunk, and with the workqueue where that is not its own or the driver's default."""
    own = mechanism == Mechanism.GREEN_BALANCED or scope in ("", Scope.DRIVER_DEFAULT)
    return style.plain(" ".join(filter(None, (mechanism, chunk, "" if own else scope.replace("green_ctx_", "")))), 30)


def chunk_of(spot: Spot) -> str:
    """Return the tokens of a chunk where the background runs in pieces, an empty text elsewhere."""
    match = _CHUNK.search(spot.row.label)
    return match[1] if match and spot.mechanism == Mechanism.CHUNKED else ""


def _tail(rows: Sequence[CoRow | None]) -> Tail | None:
    """Return the highest percentile that at least half of the rows with a median have; of a token where steps are tokens."""
    for metric in (Metric.ITL, Metric.STEP):
        counts = {q: sum(Tail(metric, q).of(row) is not None for row in rows) for q in LEAST}
        for q in sorted(LEAST, reverse=True):
            if counts[q] and 2 * counts[q] >= counts[min(LEAST)]:
                return Tail(metric, q)
    return None


def duration(us: float) -> str:
    """Return a time with its unit: 43.2 µs, 1.55 ms, 2 s."""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= scale:
            return f"{style.number(us / scale)} {unit}"
    return f"{style.number(us)} µs"


def thousands(value: float) -> str:
    """Return a rate in three digits: 413k, 1.21M, 350."""
    for scale, unit in ((1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.3g}"
