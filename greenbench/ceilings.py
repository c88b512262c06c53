"""What the SMs of a partition were seen to do in one run: ceilings by measurement, beside those of `bounds` by specification.

Only rows of our own kernels are ceilings, never a vendor's beside them. Pure: rows and journal in, figures out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from greenbench import bounds
from greenbench.facts import dtype_key
from greenbench.journal import voided
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import Block, BlockKind, BlockStatus, DeviceFacts, Family, Flag, Row, SmsMode, Status, Timing

# A working set of so many L2s is streamed from HBM; one of at most so much of the L2 stays in it: either half may hold a copy of
# what both read, and the published curves of A100, H100 and GH200 are flat up to there (RRZE-HPC/gpu-benches gpu-l2-cache).
PAST_L2, WITHIN_L2 = 4.0, 0.6
# Up to this share of the bytes the other way, traffic counts as going one way.
ONE_WAY = 0.1
# Kernels that do nothing but move bytes one way: nothing else should beat them on the same SMs.
STREAMS = ("read", "write", "l2_read")
# Types that the same unit multiplies at the same rate: one probe stands for both.
ALIKE = {"fp16": "bf16", "bf16": "fp16"}

# What is measured of what binds by specification (column bound_by).
COUNTERPARTS = {
    **dict.fromkeys(("compute", "waves"), ("compute", "waves")),
    **dict.fromkeys(("memory", "link", "l2"), ("memory", "l2", "read", "write")),
}

Lane = tuple[object, ...]
Key = TypeVar("Key")


class Way(StrEnum):
    """Which way the bytes go."""

    READ = "read"
    WRITE = "write"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Launch:
    """What a row does not say of its launch: what one writes, its CTAs, and how many of them an SM holds."""

    written_bytes: float | None = None
    grid: int | None = None
    ctas_per_sm: int | None = None


Launches = Mapping[str, Launch]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that was seen, in GB/s or TFLOP/s, and in which row."""

    rate: float
    kernel: str
    label: str


@dataclass(slots=True)
class Seen:
    """The ceilings of one lane; filled by `measured`, and read only afterwards."""

    hbm: dict[Way, Ceiling] = field(default_factory=dict)
    l2: dict[Way, Ceiling] = field(default_factory=dict)
    compute: dict[str, Ceiling] = field(default_factory=dict)
    streams: dict[str, Ceiling] = field(default_factory=dict)

    def flop(self, dtype: str) -> Ceiling | None:
        """Return the arithmetic ceiling of a type."""
        key = dtype_key(dtype)
        return self.compute.get(key) or self.compute.get(ALIKE.get(key, ""))


def launches(labels: Mapping[str, str], blocks: Sequence[Block]) -> Launches:
    """Return the launch of each row, by its label, as its latest block with samples has it; `labels` maps Block.key to it."""
    gone = voided(blocks)
    found: dict[str, Launch] = {}
    for block in blocks:
        if block.kind is BlockKind.BLOCK and block.status is BlockStatus.OK and block.samples_us and block.seq not in gone:
            found[labels.get(block.key, "")] = Launch(block.written_bytes, block.grid, block.ctas_per_sm)
    return found


def lane_of(row: Row) -> Lane:
    """Return what rows on the same SMs, got in the same way, have in common."""
    primary = row.sms_requested == SmsMode.PRIMARY
    return (row.sms_granted, primary, row.granularity, row.workqueue, row.concurrency_limit, row.connections)


def way_of(row: Row, launch: Launch) -> Way:
    """Return which way the bytes of a row go."""
    share = min((launch.written_bytes or 0.0) / row.bytes, 1.0) if row.bytes else 0.0
    return Way.READ if share <= ONE_WAY else Way.WRITE if share >= 1 - ONE_WAY else Way.MIXED


def measured(device: DeviceFacts, rows: Sequence[Row], launched: Launches) -> dict[Lane, Seen]:
    """Return the ceilings of every lane that rows of a run give."""
    found: dict[Lane, Seen] = {}
    for row in rows:
        if row.status != Status.OK or is_yardstick(row) or not row.sms_granted:
            continue
        seen = found.setdefault(lane_of(row), Seen())
        if row.family == Family.PROBE and row.tflop_per_s:
            _raise_to(seen.compute, dtype_key(row.dtype), row, row.tflop_per_s)
        pool = _pool(device, row, seen) if row.family == Family.MEMORY else None
        if pool is not None and row.gb_per_s:
            _raise_to(pool, way_of(row, launched.get(row.label, Launch())), row, row.gb_per_s)
            if row.kernel in STREAMS:
                _raise_to(seen.streams, row.kernel, row, row.gb_per_s)
    return found


def _raise_to(ceilings: dict[Key, Ceiling], key: Key, row: Row, rate: float) -> None:
    if key not in ceilings or rate > ceilings[key].rate:
        ceilings[key] = Ceiling(rate, row.kernel, row.label)


def is_yardstick(row: Row) -> bool:
    """True for a vendor's kernel beside one of ours: `gemm_bf16.cublas`."""
    return "." in row.kernel


def _pool(device: DeviceFacts, row: Row, seen: Seen) -> dict[Way, Ceiling] | None:
    """Return the ceilings to which a streaming row belongs; None for one that is neither clearly past the L2 nor within it."""
    size = row.working_set_bytes or 0
    if row.timing == Timing.HOT:
        return seen.l2 if 0 < size <= WITHIN_L2 * device.l2_bytes else None
    return seen.hbm if size >= PAST_L2 * device.l2_bytes else None


@dataclass(frozen=True, slots=True)
class Term:
    """A time that a launch could not undercut if the ceiling held for it; `by` is compute, waves, memory, l2, read or write."""

    us: float
    by: str
    ceiling: Ceiling


def terms(device: DeviceFacts, row: Row, launch: Launch, seen: Seen) -> Iterator[Term]:
    """Yield a row's times at the ceilings of its lane.

    Bytes one way go at most as fast as anything went that way. Of a mix, each way does, and both together go at most as fast
    as anything went at all: how much turning the bus around costs depends on the mix, but it never gains.
    """
    flop = seen.flop(row.dtype) if row.flops else None
    if flop is not None and row.flops and row.sms_granted:
        q = 1.0 if is_yardstick(row) else bounds.quantisation(launch.grid, row.sms_granted)
        yield Term(row.flops / flop.rate / 1e6 * q, "waves" if q > bounds.QUANTISED else "compute", flop)
    if not row.bytes:
        return
    hot = row.timing == Timing.HOT
    if hot and (row.working_set_bytes or 0) > device.l2_bytes:
        return
    ways, name, way = seen.l2 if hot else seen.hbm, "l2" if hot else "memory", way_of(row, launch)
    if way is not Way.MIXED:
        if way in ways:
            yield Term(row.bytes / ways[way].rate / 1e3, name, ways[way])
        return
    written = min(launch.written_bytes or 0.0, row.bytes)
    for each, moved in ((Way.READ, row.bytes - written), (Way.WRITE, written)):
        if each in ways:
            yield Term(moved / ways[each].rate / 1e3, each.value, ways[each])
    if most := max(ways.values(), key=lambda ceiling: ceiling.rate, default=None):
        yield Term(row.bytes / most.rate / 1e3, name, most)


def binding(device: DeviceFacts, row: Row, launch: Launch, seen: Seen) -> Term | None:
    """Return the ceiling that is nearest to a row: None where it set it itself, or where what binds it was not measured."""
    found = list(terms(device, row, launch, seen))
    if not any(term.by in COUNTERPARTS.get(row.bound_by, ()) for term in found):
        return None
    nearest = max(found, key=lambda term: term.us)
    return None if nearest.ceiling.label == row.label else nearest


def above(device: DeviceFacts, row: Row, launch: Launch, seen: Seen) -> bool:
    """Return whether a row did more than 102 % of what the probe for it did on the same lane.

    Bytes are judged each way by itself, and only where all of them pass the L2, or none.
    """
    flop = seen.flop(row.dtype) if row.family != Family.PROBE else None
    if flop is not None and bounds.above_bound(row.tflop_per_s, flop.rate):
        return True
    pool = _pool(device, row, seen) if row.bytes and row.time_us and row.family == Family.MEMORY else None
    if pool is None or not row.bytes or not row.time_us:
        return False
    written = min(launch.written_bytes or 0.0, row.bytes)
    ways = {"l2_read": row.bytes - written} if pool is seen.l2 else {"read": row.bytes - written, "write": written}
    rates = {name: moved / row.time_us / 1e3 for name, moved in ways.items() if name in seen.streams}
    return any(bounds.above_bound(rate, seen.streams[name].rate) for name, rate in rates.items())


def flagged(device: DeviceFacts, rows: Sequence[Row], launched: Launches) -> list[Row]:
    """Return the rows with flag `above_bound` on those that are above a probe's ceiling; such a row is kept as it is."""
    found = measured(device, rows, launched)
    marked = list(rows)
    for place, row in enumerate(rows):
        seen = found.get(lane_of(row)) if row.status == Status.OK else None
        if seen is not None and above(device, row, launched.get(row.label, Launch()), seen):
            flags = {*row.flags.split(LIST_SEPARATOR), Flag.ABOVE_BOUND}
            marked[place] = replace(row, flags=LIST_SEPARATOR.join(flag for flag in Flag if flag in flags))
    return marked


__all__ = ["Launch", "Launches", "Seen", "Way", "binding", "flagged", "is_yardstick", "lane_of", "launches", "measured"]
