"""rows.csv from run.json and the journal alone: one row per point, whatever became of it, and always the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from greenbench import bounds, figures
from greenbench.ceilings import flagged, launches
from greenbench.facts import Peaks, peaks
from greenbench.journal import drifted, voided
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import (
    Block,
    BlockKind,
    BlockStatus,
    Family,
    Flag,
    KernelSummary,
    Placement,
    Point,
    Row,
    RunMeta,
    SmsMode,
    Status,
    StopReason,
    Timing,
)
from greenbench.yardsticks import WAYS

# Two cycles at 2 GHz: no launch is shorter, so the events were elsewhere.
SHORTEST_US = 1e-3
# More SMs do not make these faster, so a speed-up of theirs would say nothing.
UNDIVIDED = (Family.LATENCY, Family.PROBE)


def point_key(point: Point) -> str:
    """Return what `Block.key` is for every block of this point."""
    return Block.visit(point, BlockStatus.OK).key


def derive_rows(meta: RunMeta, blocks: Sequence[Block]) -> list[Row]:
    """Return one row per point of `meta.points`, in their order."""
    visits = _visits(blocks)
    kernels = {kernel.name: kernel for kernel in meta.kernels}
    limits = peaks(meta.device)
    cases = [_Case(meta, limits, kernels.get(point.kernel), point) for point in meta.points]
    rows = [_row(case, visits.get(point_key(case.point), [])) for case in cases]
    rows = _with_speedup(cases, _with_best(cases, rows))
    return flagged(meta.device, rows, launches(row_labels(meta, blocks), blocks))


def row_labels(meta: RunMeta, blocks: Sequence[Block]) -> dict[str, str]:
    """Return the row's label for each Block.key, as `write_samples` takes it."""
    visits = _visits(blocks)
    keys = {point_key(point): point for point in meta.points}
    return {key: point.label(_timing(point, [block for block, _ in visits.get(key, [])])) for key, point in keys.items()}


def _visits(blocks: Sequence[Block]) -> dict[str, list[tuple[Block, bool]]]:
    """Return every point's blocks in their order, each with whether it was taken back; sentinels are nobody's."""
    gone, doubted = voided(blocks), drifted(blocks)
    visits: dict[str, list[tuple[Block, bool]]] = {}
    for block in blocks:
        if block.kind is BlockKind.BLOCK:
            marked = replace(block, flags=(*block.flags, Flag.DRIFTED)) if block.seq in doubted else block
            visits.setdefault(block.key, []).append((marked, block.seq in gone))
    return visits


def _timing(point: Point, blocks: Sequence[Block]) -> Timing:
    """Return the way of timing that was used; what was never prepared keeps the one asked for."""
    return next((block.timing for block in reversed(blocks) if block.timing is not Timing.AUTO), point.timing)


@dataclass(frozen=True, slots=True)
class _Case:
    """What is known of a point before its blocks are looked at."""

    meta: RunMeta
    limits: Peaks
    kernel: KernelSummary | None
    point: Point


def _row(case: _Case, visits: Sequence[tuple[Block, bool]]) -> Row:
    seen = [block for block, _ in visits]
    standing = [block for block, gone in visits if not gone]
    good = [block for block in standing if block.status is BlockStatus.OK and block.samples_us]
    row = _with_proof(_identity(case, good or seen), seen)
    status, reason = _outcome(standing, good, len(seen) - len(standing))
    if status is not Status.OK:
        return replace(row, throttle=figures.throttle(seen), status=status.value, reason=reason)
    if not good:
        return replace(row, flags=Flag.PROFILED.value, status=status.value)
    measured = _measured(case, row, good, standing)
    if reason := _impossible(case, measured):
        return replace(row, throttle=measured.throttle, status=Status.FAILED.value, reason=reason)
    return measured


def _identity(case: _Case, blocks: Sequence[Block]) -> Row:
    """Return the columns that every row has, whatever its outcome."""
    device, point = case.meta.device, case.point
    timing = _timing(point, blocks)
    known = partial(_last_text, blocks)
    return Row(
        run_id=case.meta.run_id,
        label=point.label(timing),
        device=device.name,
        device_uuid=device.uuid,
        driver=device.driver,
        cuda=device.cuda_text,
        nvrtc=device.nvrtc,
        backend=device.backend.value,
        kernel=point.kernel,
        family=case.kernel.family.value if case.kernel else "",
        dtype=case.kernel.dtype if case.kernel else "",
        params=point.param_text,
        config=known("config"),
        source_digest=known("source_digest") or (case.kernel.digest if case.kernel else ""),
        sms_requested=point.partition.name,
        granularity=point.partition.granularity,
        workqueue=point.partition.workqueue.value,
        concurrency_limit=point.partition.concurrency_limit,
        connections=point.connections,
        timing=timing.value,
    )


def _with_proof(row: Row, blocks: Sequence[Block]) -> Row:
    """Return the row with what was granted and seen; a leak stays visible even if a later block was confined."""
    granted = [block for block in blocks if block.sms_granted is not None]
    leaked = [block for block in granted if block.placement is Placement.LEAKED]
    if not granted:
        return row
    proof = (leaked or granted)[-1]
    placement = proof.placement.value if proof.placement else ""
    return replace(row, sms_granted=proof.sms_granted, sms_observed=proof.sms_observed, placement=placement)


def _last_text(blocks: Sequence[Block], name: str) -> str:
    return next((str(getattr(block, name)) for block in reversed(blocks) if getattr(block, name)), "")


def _outcome(standing: Sequence[Block], good: Sequence[Block], taken_back: int) -> tuple[Status, str]:
    """Return status and reason: the last word of the point's blocks, those taken back aside."""
    leaked = next((block for block in standing if block.placement is Placement.LEAKED), None)
    if leaked is not None:
        seen = f"leaked: {leaked.sms_observed} SMs were seen where {leaked.sms_granted} are granted"
        return Status.FAILED, leaked.reason or seen
    words = [block for block in standing if block.status is not BlockStatus.DISCARDED]
    last = words[-1] if words else None
    if last is not None and last.status is BlockStatus.UNSUPPORTED:
        return Status.UNSUPPORTED, last.reason or "unsupported, and no reason was recorded"
    if last is not None and last.status is BlockStatus.FAILED and (last.attempt >= figures.TRIES or not good):
        return Status.FAILED, last.reason or "failed, and no reason was recorded"
    if good or any(_only_profiled(block) for block in standing):
        return Status.OK, ""
    return Status.FAILED, _why_nothing(standing, taken_back)


def _only_profiled(block: Block) -> bool:
    """True for launches made for a profiler: nothing measured under one is used as a timing."""
    return block.status is BlockStatus.OK and not block.samples_us and Flag.PROFILED in block.flags


def _why_nothing(standing: Sequence[Block], taken_back: int) -> str:
    """Return why a point has no valid block although none failed."""
    if any(block.status is BlockStatus.OK for block in standing):
        return "no samples: every block of this point is empty"
    if standing:
        return standing[-1].reason or f"throttled: all {len(standing)} blocks were discarded"
    if taken_back:
        return f"drift: all {taken_back} blocks were taken back, since the sentinel moved; measure again on a quiet machine"
    return "not measured: the run ended before this point was visited"


def _is_yardstick(case: _Case) -> bool:
    """True for a vendor's kernel: its launch is its own, so the tiles of ours say nothing about its waves."""
    named = case.kernel is not None and bool(case.kernel.yardstick_of)
    return named or case.point.kernel.rpartition(".")[2] in WAYS


def _impossible(case: _Case, row: Row) -> str:
    if row.time_us is None or row.time_us < SHORTEST_US:
        return f"impossible: a launch took {row.time_us} us; the events are not around the work"
    return bounds.impossible(case.meta.device, case.limits, row)


def _measured(case: _Case, row: Row, good: Sequence[Block], standing: Sequence[Block]) -> Row:
    """Return the row with every figure that its blocks carry."""
    device = case.meta.device
    times: dict[str, Any] = figures.times(good)
    evidence: dict[str, Any] = figures.evidence(good)
    clock, time_us = evidence["sm_clock_mhz"], times["time_us"]
    rates: dict[str, Any] = figures.rates(good, time_us, clock)
    working_set = next((block.working_set_bytes for block in reversed(good) if block.working_set_bytes is not None), None)
    limit = bounds.bound(
        device,
        case.limits,
        family=row.family,
        dtype=row.dtype,
        flops=rates["flops"],
        bytes=rates["bytes"],
        sms=row.sms_granted or 0,
        working_set_bytes=working_set,
        written_bytes=good[-1].written_bytes,
        sm_clock_mhz=clock,
        grid=None if _is_yardstick(case) else good[-1].grid,
        ctas_per_sm=good[-1].ctas_per_sm,
        resident=row.timing == Timing.HOT,
    )
    above = limit is not None and bounds.above_bound(limit.us, time_us)
    stop = figures.stop_reason(case.meta.plan, good, standing, bool(case.meta.finished))
    given_up = stop in (StopReason.THROTTLED, StopReason.IDLE)
    return replace(
        row,
        **times,
        **evidence,
        **rates,
        working_set_bytes=working_set,
        bound_us=limit.us if limit else None,
        bound_by=limit.by if limit else "",
        bound_pct=100 * limit.us / time_us if limit and time_us > 0 else None,
        flags=figures.flags(good, (Flag.ABOVE_BOUND, above), (Flag.PROFILED, case.meta.profiled), (Flag.DISCARDED, given_up)),
        stop_reason=stop.value,
        verified_error=figures.last_of(block.verified_error for block in good),
        status=Status.OK.value,
    )


def _with_best(cases: Sequence[_Case], rows: Sequence[Row]) -> list[Row]:
    """Return the rows with flag `best` on the fastest of each point's yardsticks, where the point has more than one."""
    groups: dict[Point, list[int]] = {}
    for place, case in enumerate(cases):
        if _is_yardstick(case):
            own = replace(case.point, kernel=case.point.kernel.partition(".")[0])
            groups.setdefault(own, []).append(place)
    marked = list(rows)
    for places in (places for places in groups.values() if len(places) > 1):
        times = {place: time_us for place in places if (time_us := rows[place].time_us)}
        if times:
            fastest = min(times, key=lambda place: times[place])
            flags = [*filter(None, rows[fastest].flags.split(LIST_SEPARATOR)), Flag.BEST]
            marked[fastest] = replace(rows[fastest], flags=LIST_SEPARATOR.join(flags))
    return marked


def _with_speedup(cases: Sequence[_Case], rows: Sequence[Row]) -> list[Row]:
    """Return the rows with speedup and efficiency against the smallest ok partition of their curve."""
    curves = [_curve(case.point) for case in cases]
    bases: dict[object, Row] = {}
    for curve, row in zip(curves, rows, strict=True):
        if _scales(row):
            base = bases.setdefault(curve, row)
            if (row.sms_granted or 0) < (base.sms_granted or 0):
                bases[curve] = row
    return [_against(row, bases.get(curve)) for curve, row in zip(curves, rows, strict=True)]


def _scales(row: Row) -> bool:
    """True for a point of a curve over SMs of a kernel that divides its work among them.

    The primary context is a baseline beside the curve, and the host has no SMs.
    """
    return (
        row.timing != Timing.HOST
        and row.status == Status.OK
        and bool(row.sms_granted and row.time_us)
        and row.sms_requested != SmsMode.PRIMARY
        and row.family not in UNDIVIDED
    )


def _curve(point: Point) -> Point:
    """Return what the points of a curve have in common: all but the size; the timing as asked for, not as `auto` chose it."""
    return replace(point, partition=replace(point.partition, mode=SmsMode.FULL, sms=None))


def _against(row: Row, base: Row | None) -> Row:
    if base is None or not _scales(row) or not (base.time_us and row.time_us and base.sms_granted and row.sms_granted):
        return row
    speedup = base.time_us / row.time_us
    return replace(row, speedup=speedup, efficiency_pct=100 * speedup * base.sms_granted / row.sms_granted)
