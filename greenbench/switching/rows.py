"""rows.csv of `greenbench switch` from run.json and the journal alone: one row per point, whatever became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from greenbench.cojournal import CoVisit, RoleVisit
from greenbench.colocation.outcomes import placement, problem
from greenbench.corow import CoRow
from greenbench.figures import last_of, median_of
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import Backend, BlockStatus, Flag, Placement, RunMeta, Scope, SmsMode, Status
from greenbench.switching import figures
from greenbench.switching.figures import Operations
from greenbench.switching.plan import SwitchPlan, SwitchPoint, Way
from greenbench.switching.setups import expand, percentage
from greenbench.words import Family

ROLE = "tenants"
# Behind the name of a tenant in the second phase of `repartition`.
RESIZED = "+resized"
UNVISITED = "not measured: the run ended before this point was visited"
# Only here does one tenant at a time have the device.
IN_TURN = Way.TIMESLICE


def derive_switch_rows(meta: RunMeta, plan: SwitchPlan, visits: Sequence[CoVisit]) -> list[CoRow]:
    """Return one row per point of the plan, in its order; throughput_pct is against one process alone with the same operation."""
    points, _ = expand(plan)
    chosen = decisive(visits)
    rows = {point: _row(meta, plan, point, chosen.get(plan.label(point))) for point in points}
    return [replace(row, throughput_pct=_share(row, rows.get(point.alone))) for point, row in rows.items()]


def decisive(visits: Sequence[CoVisit]) -> Mapping[str, CoVisit]:
    """Return the visit of each label that counts: the last one, a discarded one only for want of others."""
    last: dict[str, CoVisit] = {}
    for visit in visits:
        before = last.get(visit.label)
        if before is None or visit.status is not BlockStatus.DISCARDED or before.status is BlockStatus.DISCARDED:
            last[visit.label] = visit
    return last


def phases(visit: CoVisit) -> tuple[tuple[RoleVisit, ...], tuple[RoleVisit, ...]]:
    """Return the tenants before and after a resize; without one all are in the first."""
    after = tuple(role for role in visit.roles if role.facts.name.endswith(RESIZED))
    return tuple(role for role in visit.roles if role not in after), after


def _share(row: CoRow, alone: CoRow | None) -> float | None:
    return figures.share_pct(row.throughput_per_s, alone.throughput_per_s if alone else None)


def _row(meta: RunMeta, plan: SwitchPlan, point: SwitchPoint, visit: CoVisit | None) -> CoRow:
    row = _identity(meta, plan, point)
    if visit is None:
        return replace(row, status=Status.FAILED.value, reason=UNVISITED)
    before, after = phases(visit)
    tenants = after or before
    row = _with_proof(replace(row, throttle=visit.throttle), point, tenants)
    for phase in (before, after):
        status, reason = problem(replace(visit, roles=phase))
        if status is not Status.OK:
            return replace(row, status=status.value, reason=reason)
    found = [_operations(role) for role in tenants]
    within = figures.window(found)
    if within is None:
        return replace(row, status=Status.FAILED.value, reason=_why_no_window(tenants))
    # On the model no host time passes between the phases.
    gap = _gap_us(before, after) if meta.device.backend is Backend.CUDA else None
    return replace(_measured(meta, row, point, visit, tenants, within), gap_us=gap, status=Status.OK.value)


def _identity(meta: RunMeta, plan: SwitchPlan, point: SwitchPoint) -> CoRow:
    """Return the columns that every row has, whatever its outcome."""
    kernel = next((each for each in meta.kernels if each.name == plan.operation), None)
    return CoRow(
        run_id=meta.run_id,
        label=plan.label(point),
        device=meta.device.name,
        device_uuid=meta.device.uuid,
        driver=meta.device.driver,
        cuda=meta.device.cuda_text,
        nvrtc=meta.device.nvrtc,
        backend=meta.device.backend.value,
        kernel=plan.operation,
        family=kernel.family.value if kernel else Family.PROBE.value,
        dtype=kernel.dtype if kernel else "",
        params=",".join(f"{name}={value}" for name, value in point.params),
        source_digest=kernel.digest if kernel else "",
        sms_requested=SmsMode.PRIMARY.value,
        workqueue=Scope.DRIVER_DEFAULT.value,
        mechanism=point.mechanism.value,
        role=ROLE,
        arrivals="closed",
        processes=point.processes,
    )


def _with_proof(row: CoRow, point: SwitchPoint, tenants: Sequence[RoleVisit]) -> CoRow:
    """Return the row with what was asked, granted and seen: of partitions the sums over the tenants."""
    facts = [role.facts for role in tenants]
    grants = [each.grant for each in facts if each.grant is not None]
    if not grants:
        return row
    seen = {smid for each in facts for smid in each.smids}
    placed = [placement(role) for role in tenants]
    worst = next((each.value for each in (Placement.LEAKED, Placement.UNPROVEN, Placement.CONFINED) if each.value in placed), "")
    share = f"active thread percentage {percentage(point)}" if point.mechanism is Way.MPS_LIMITED else ""
    return replace(
        row,
        sms_requested="+".join(each.sms_requested for each in facts) if point.mechanism.partitioned else row.sms_requested,
        sms_granted=sum(grant.sms for grant in grants) if point.mechanism.partitioned else max(grant.sms for grant in grants),
        sms_observed=len(seen) or None,
        placement=worst,
        config="; ".join(filter(None, [share, facts[0].config])),
        source_digest=facts[0].source_digest or row.source_digest,
    )


def _operations(role: RoleVisit) -> Operations:
    return Operations(role.times, role.reported)


def _gap_us(before: Sequence[RoleVisit], after: Sequence[RoleVisit]) -> float | None:
    return figures.gap_us([_operations(role) for role in before], [_operations(role) for role in after])


def _why_no_window(tenants: Sequence[RoleVisit]) -> str:
    idle = [role.facts.name for role in tenants if not role.end_ns]
    if not tenants:
        return "no stamps: the visit has no tenants"
    if not idle:
        return "the tenants were never at work at the same time; give more --seconds"
    return f"{', '.join(idle)} of {len(tenants)} ended no operation; give more --seconds, or a shorter --duration-us"


def _measured(
    meta: RunMeta,
    row: CoRow,
    point: SwitchPoint,
    visit: CoVisit,
    tenants: Sequence[RoleVisit],
    within: figures.Window,
) -> CoRow:
    found = [_operations(role) for role in tenants]
    tail = figures.step_tail(found, within)
    count = sum(len(role.end_ns) for role in tenants)
    energy = figures.energy_mj_per_op(visit.before.energy_mj, visit.after.energy_mj, visit.window_s, count)

    def middle(read: Callable[[RoleVisit], float | None]) -> float | None:
        return median_of(read(role) for role in tenants)

    return replace(
        row,
        steps=count,
        step_us_p50=tail.p50,
        step_us_p95=tail.p95,
        step_us_p99=tail.p99,
        throughput_per_s=figures.throughput_per_s(found, within),
        overlap_frac=figures.overlap_frac(found, within),
        clock_error_us=None if visit.clock_error_ns is None else visit.clock_error_ns / 1e3,
        switch_us=figures.switch_us(found) if point.mechanism is IN_TURN else None,
        l2_retained_pct=_retained(meta, point, found),
        create_us=middle(lambda role: role.facts.create_us),
        destroy_us=middle(lambda role: role.facts.destroy_us),
        first_launch_us=middle(lambda role: role.facts.first_launch_us),
        energy_mj_per_op=energy,
        energy_mj=energy * count if energy is not None else None,
        power_w=energy * count / 1e3 / visit.window_s if energy is not None else visit.after.power_w,
        sm_clock_mhz=middle(lambda role: role.facts.sm_clock_mhz) if visit.clock_holds else None,
        mem_clock_mhz=visit.after.mem_clock_mhz,
        temperature_c=visit.after.temperature_c,
        flags=_flags(meta, visit, tenants),
        verified_error=last_of(role.facts.verified_error for role in visit.roles),
    )


def _retained(meta: RunMeta, point: SwitchPoint, found: Sequence[Operations]) -> float | None:
    """Return what the L2 kept; the modelled device has none that could lose anything."""
    asked = point.working_set > 0 and meta.device.backend is Backend.CUDA
    return figures.l2_retained_pct(found) if asked else None


def _flags(meta: RunMeta, visit: CoVisit, tenants: Sequence[RoleVisit]) -> str:
    remainder = any(role.facts.slot is not None and role.facts.grant and role.facts.grant.remainder for role in tenants)
    held = ((Flag.REMAINDER, remainder), (Flag.PROFILED, meta.profiled))
    seen = {*visit.flags, *(flag for flag, holds in held if holds)}
    return LIST_SEPARATOR.join(flag.value for flag in Flag if flag in seen)
