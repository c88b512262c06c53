"""What came of each point of a co-location: its rows from the journal and run.json alone, always the same.

`energy_mj` is that of the whole device while a point ran, and `energy_mj_per_op` the same over all tokens that the roles of the
point made in that time: energy has no owner on a shared device. `slowdown` is of latencies, from the due time; `slowdown_hbm` and
its kind, beside the loads of --interference, are of a step's own time from start to end.

Requests that arrive at a higher rate than the background does alone on the same SMs wait ever longer, though a window may be too
short to show it: such a point is saturated, and breaks any objectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from greenbench.arrivals import NS_PER_S
from greenbench.cojournal import CoVisit, Pace, RoleVisit, VisitKind
from greenbench.colocation.figures import RoleTimes, judged, service_slowdown, with_figures
from greenbench.corow import CoRow
from greenbench.queueing.model import Kind, Mechanism
from greenbench.records import LIST_SEPARATOR
from greenbench.schema import BlockStatus, Flag, Placement, RunMeta, Status
from greenbench.slo import Limit, Slo, Verdict
from greenbench.stats import percentile
from greenbench.tails import StepTimes, per_second, tail_columns

# The counter of energy moves in steps of 0.1 s.
ENERGY_WINDOW_S = 2.0
ALWAYS = 1 << 62
LOADS = ("compute", "l2", "hbm", "copy")

_Base = tuple[Kind, str, str, int | None, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A point: its decisive visit, one row per role, and whether it meets the objectives (unknown without any).

    `wanting` are the limits that it had too few requests for, where that is why nothing is known.
    """

    visit: CoVisit
    rows: tuple[CoRow, ...]
    verdict: Verdict = Verdict.UNKNOWN
    wanting: tuple[Limit, ...] = ()

    @property
    def status(self) -> Status:
        """Outcome of the point: both roles have the same."""
        return Status(self.rows[0].status)

    @property
    def grew(self) -> bool:
        """Whether a queue was still growing at the end."""
        return any(row.saturated == "true" for row in self.rows)

    def row(self, kind: Kind) -> CoRow | None:
        """Return the row of a role."""
        return next((row for row in self.rows if row.role == kind.value), None)


def decisive(visits: Iterable[CoVisit]) -> list[CoVisit]:
    """Return the visit of each point that counts, in the order of the plan: its last one, a discarded one for want of others."""
    last: dict[str, CoVisit] = {}
    for visit in visits:
        before = last.get(visit.key)
        if visit.kind is VisitKind.PROBE:
            continue
        if before is None or visit.status is not BlockStatus.DISCARDED or before.status is BlockStatus.DISCARDED:
            last[visit.key] = visit
    return sorted(last.values(), key=lambda visit: (visit.place, visit.rate_per_s or 0.0, visit.seq))


def outcomes(meta: RunMeta, visits: Iterable[CoVisit], slo: Slo | None = None) -> list[Outcome]:
    """Return the outcome of every point that was visited, in the order of the plan and then of the rates."""
    chosen = decisive(visits)
    bases = {
        _base(visit, role): kept(visit, role)
        for visit in chosen
        if visit.mechanism is Mechanism.ALONE and not problem(visit)[1]
        for role in visit.roles
    }
    loads = {visit.key: _load_slowdown(visit, bases) for visit in chosen if visit.load and not problem(visit)[1]}
    beside: dict[object, dict[str, float | None]] = {_under(visit): {} for visit in chosen if visit.load}
    for visit in chosen:
        if visit.load in LOADS and visit.key in loads:
            beside[_under(visit)][f"slowdown_{visit.load}"] = loads[visit.key]
    return [_outcome(meta, visit, bases, {} if visit.load else beside.get(_under(visit), {}), slo) for visit in chosen]


def co_rows(found: Sequence[Outcome]) -> list[CoRow]:
    """Return the lines of rows.csv.

    A point of --interference is a column of the green row beside it, and has rows of its own only where it gave no figure.
    """
    return [row for each in found for row in each.rows if not each.visit.load or row.status != Status.OK]


def kept(visit: CoVisit, role: RoleVisit) -> StepTimes:
    """Return the steps that count: due after the warm-up and, for those beside a latency role, before its last step ended."""
    return role.times.due_within(*_counted(visit, role))


def _counted(visit: CoVisit, role: RoleVisit) -> tuple[int, int]:
    """Return between which due times the steps of a role count."""
    latency = visit.role(Kind.LATENCY)
    end = ALWAYS
    if latency is not None and latency is not role and latency.end_ns:
        end = max(latency.end_ns)
    return visit.warm_ns, end


def problem(visit: CoVisit) -> tuple[Status, str]:
    """Return status and reason of a point; an empty reason where it is ok."""
    if visit.status is BlockStatus.UNSUPPORTED:
        return Status.UNSUPPORTED, visit.reason or "unsupported, and no reason was recorded"
    if visit.status is not BlockStatus.OK:
        return Status.FAILED, visit.reason or "failed, and no reason was recorded"
    if doubt := _placement_doubt(visit):
        return Status.FAILED, doubt
    return Status.OK, ""


def placement(role: RoleVisit) -> str:
    """Return what the census of this visit shows of a role's partition; without one, what its lane's own census showed."""
    grant, seen = role.facts.grant, role.facts.smids
    if grant is None:
        return ""
    if role.facts.slot is None:
        return grant.placement.value
    if leak(role):
        return Placement.LEAKED.value
    return (Placement.CONFINED if seen else Placement.UNPROVEN).value


def leak(role: RoleVisit) -> str:
    """Return how a role's partition is not the SMs that were granted, an empty text where it is, or where it has none.

    The count of the grant is what the driver says; the census of its lane, and that of this visit, may each hold a leak.
    """
    grant, seen = role.facts.grant, set(role.facts.smids)
    if grant is None or role.facts.slot is None:
        return ""
    known = set(grant.smids)
    for census in (known, seen):
        if census and len(census) != grant.sms:
            return f"leaked: role {role.facts.name} was granted {grant.sms} SMs and ran on {len(census)}"
    if seen - known:
        return f"leaked: role {role.facts.name} has {grant.sms} SMs and ran on {len(seen - known)} others"
    return ""


def _in_common(confined: Sequence[RoleVisit]) -> set[int]:
    """Return the SMs that ran CTAs of more than one of these roles."""
    seen = [set(role.facts.smids) for role in confined]
    return set().union(*(a & b for i, a in enumerate(seen) for b in seen[i + 1 :]))


def _confined(visit: CoVisit) -> list[RoleVisit]:
    return [role for role in visit.roles if role.facts.slot is not None and role.facts.grant is not None]


def _placement_doubt(visit: CoVisit) -> str:
    """Return why partitions are not what was asked for: a leak, or two that are not proven to be disjoint."""
    confined = _confined(visit)
    for role in confined:
        if found := leak(role):
            return found
    if len(confined) < 2:
        return ""
    for role in confined:
        if placement(role) == Placement.UNPROVEN:
            return (
                f"leaked: no census of role {role.facts.name} shows where it ran, so that nothing proves the partitions disjoint"
            )
    common = _in_common(confined)
    return f"leaked: {len(common)} SMs ran CTAs of more than one role, whose partitions are to be disjoint" if common else ""


def _placed(visit: CoVisit, role: RoleVisit) -> str:
    """Return column placement; a partition that was refused for a leak before it ran, or that shares an SM, is leaked."""
    if role.facts.slot is None:
        # Ids under a share are not proven to be SMs of the device.
        unproven = role.facts.grant is not None and visit.mechanism is Mechanism.MPS_LIMITED
        return Placement.UNPROVEN.value if unproven else placement(role)
    refused = role.facts.grant is None and visit.status is BlockStatus.FAILED and visit.reason.startswith(Placement.LEAKED)
    shared = _in_common(_confined(visit)) & set(role.facts.smids)
    return Placement.LEAKED.value if refused or shared else placement(role)


def _window_s(visit: CoVisit, role: RoleVisit) -> float | None:
    """Return the time over which an open loop's steps count, None for a closed one, whose steps fill the time that they take.

    It goes from the end of the warm-up to the end of the latency role's last step, whether or not anything came in it. Where a
    step that counts ended later, it goes to that end: what queued up was not done any sooner.
    """
    latency = visit.role(Kind.LATENCY)
    if role.facts.pace is Pace.CLOSED or latency is None or not latency.end_ns:
        return None
    end = max((*latency.end_ns, *kept(visit, role).end_ns))
    return (end - visit.warm_ns) / NS_PER_S if end > visit.warm_ns else None


def _base(visit: CoVisit, role: RoleVisit) -> _Base:
    """Return what a role and its run alone have in common: what it does, and on which partition of which split."""
    facts = role.facts
    # A background that gives way between its pieces does the same by itself as one in a single piece.
    params = ",".join(part for part in facts.params.split(",") if visit.chunk is None or part != f"chunk={visit.chunk}")
    return facts.kind, facts.workload, params, visit.connections, visit.sizes if facts.slot is not None else ()


def _under(visit: CoVisit) -> tuple[object, ...]:
    """Return what the points of --interference and the green point that gets their columns have in common."""
    latency = visit.role(Kind.LATENCY)
    return visit.mechanism, visit.sizes, visit.workqueue, visit.connections, latency and _base(visit, latency)


def _load_slowdown(visit: CoVisit, bases: Mapping[_Base, StepTimes]) -> float | None:
    role = visit.role(Kind.LATENCY)
    alone = bases.get(_base(visit, role)) if role else None
    return service_slowdown(kept(visit, role), alone) if role and alone else None


def _outcome(
    meta: RunMeta,
    visit: CoVisit,
    bases: Mapping[_Base, StepTimes],
    columns: Mapping[str, float | None],
    slo: Slo | None,
) -> Outcome:
    status, reason = problem(visit)
    rows = [replace(_identity(meta, visit, role), status=status.value, reason=reason) for role in visit.roles]
    if status is not Status.OK:
        return Outcome(visit, tuple(rows))
    alone = visit.mechanism is Mechanism.ALONE
    roles = [
        RoleTimes(
            times=kept(visit, role),
            metrics=role.facts.metrics,
            tokens=role.facts.tokens,
            alone=None if alone else bases.get(_base(visit, role)),
            window_s=_window_s(visit, role),
            pieces=role.running(*_counted(visit, role)) if role.chunks else (),
        )
        for role in visit.roles
    ]
    beyond = [_beyond(visit, role, times.alone) for role, times in zip(visit.roles, roles, strict=True)]
    verdict = Verdict.UNKNOWN
    if slo:
        verdict = Verdict.BROKEN if any(beyond) else _verdict(visit, roles, slo)
    measured = []
    for place, role in enumerate(visit.roles):
        other = roles[1 - place] if len(roles) == 2 else None
        row = with_figures(_evidence(meta, visit, role, rows[place]), roles[place], other, slo)
        more = columns if role.facts.kind is Kind.LATENCY and visit.mechanism is Mechanism.GREEN else {}
        if visit.mechanism is Mechanism.TIMESLICE:
            # A step stays open while its process has lost the device: its stamps do not show when it ran.
            row = replace(row, overlap_frac=None)
        whole = replace(row, slo_met=verdict.value if slo else "", **more)  # type: ignore[arg-type]
        measured.append(_cut_off(whole, role) if role.cut or beyond[place] else whole)
    return Outcome(visit, tuple(measured), verdict, _wanting(roles, slo) if slo and verdict is Verdict.UNKNOWN else ())


def _beyond(visit: CoVisit, role: RoleVisit, alone: StepTimes | None) -> bool:
    """Return whether a background gets more requests than it does alone on the same SMs (without a partition: on all)."""
    if role.facts.kind is not Kind.BACKGROUND or visit.rate_per_s is None or alone is None:
        return False
    capacity = per_second(alone)
    return capacity is not None and visit.rate_per_s > capacity


def _wanting(roles: Sequence[RoleTimes], slo: Slo) -> tuple[Limit, ...]:
    return slo.undecided({metric: role.times.latencies_us for role in roles for metric in role.metrics})


def _verdict(visit: CoVisit, roles: Sequence[RoleTimes], slo: Slo) -> Verdict:
    for role in visit.roles:
        if role.cut and slo.metrics & set(role.facts.metrics):
            return Verdict.BROKEN
    return judged(roles, slo)[0]


def _cut_off(row: CoRow, role: RoleVisit) -> CoRow:
    """Return the row of a role whose queue grows for certain: it has a throughput and no percentiles.

    It outlasted the limit of its visit, or more arrives than the role does alone.
    """
    none = dict.fromkeys(tail_columns(StepTimes((), (), ()), role.facts.metrics))
    flags = [*filter(None, row.flags.split(LIST_SEPARATOR)), Flag.SATURATED.value]
    text = LIST_SEPARATOR.join(dict.fromkeys(flags))
    return replace(row, **none, saturated="true", slowdown=None, flags=text)  # type: ignore[arg-type]


def _identity(meta: RunMeta, visit: CoVisit, role: RoleVisit) -> CoRow:
    facts, grant = role.facts, role.facts.grant
    return CoRow(
        run_id=meta.run_id,
        label=visit.label,
        device=meta.device.name,
        device_uuid=meta.device.uuid,
        driver=meta.device.driver,
        cuda=meta.device.cuda_text,
        nvrtc=meta.device.nvrtc,
        backend=meta.device.backend.value,
        kernel=facts.workload,
        family=facts.family,
        params=facts.params,
        config=facts.config,
        source_digest=facts.source_digest,
        sms_requested=facts.sms_requested,
        sms_granted=grant.sms if grant else None,
        sms_observed=len(facts.smids) or None,
        placement=_placed(visit, role),
        workqueue=visit.workqueue.value,
        concurrency_limit=visit.concurrency_limit,
        connections=visit.connections,
        mechanism=visit.mechanism.value,
        role=facts.kind.value,
        arrivals=facts.pace.value,
        process=facts.process,
        rate_per_s=facts.rate_per_s,
        processes=visit.processes,
    )


def _evidence(meta: RunMeta, visit: CoVisit, role: RoleVisit, row: CoRow) -> CoRow:
    facts, energy = role.facts, energy_mj(visit)
    remainder = facts.slot is not None and facts.grant is not None and facts.grant.remainder
    flags = [*visit.flags, *([Flag.REMAINDER] if remainder else []), *([Flag.PROFILED] if meta.profiled else [])]
    late = percentile(role.late_ns, 99, 1)
    return replace(
        row,
        # A process whose turn it is not is late by the other's slice, not by its host.
        launch_late_us=None if late is None or visit.mechanism is Mechanism.TIMESLICE else late / 1e3,
        clock_error_us=None if visit.clock_error_ns is None else visit.clock_error_ns / 1e3,
        create_us=facts.create_us,
        destroy_us=facts.destroy_us,
        first_launch_us=facts.first_launch_us,
        energy_mj_per_op=_energy_per_token(visit, energy),
        sm_clock_mhz=facts.sm_clock_mhz if visit.clock_holds else None,
        mem_clock_mhz=visit.after.mem_clock_mhz,
        power_w=visit.after.power_w if energy is None else energy / 1e3 / visit.window_s,
        energy_mj=energy,
        temperature_c=visit.after.temperature_c,
        throttle=visit.throttle,
        flags=LIST_SEPARATOR.join(flag.value for flag in flags),
        verified_error=facts.verified_error,
    )


def energy_mj(visit: CoVisit) -> float | None:
    """Return the device's energy during a visit, None where the window is too short to resolve it or there is no counter."""
    before, after = visit.before.energy_mj, visit.after.energy_mj
    if before is None or after is None or visit.window_s < ENERGY_WINDOW_S or after <= before:
        return None
    return after - before


def _energy_per_token(visit: CoVisit, energy: float | None) -> float | None:
    counts = [role.facts.tokens * len(role.end_ns) if role.facts.tokens else None for role in visit.roles]
    total = sum(count or 0 for count in counts)
    return energy / total if energy is not None and total and None not in counts else None


def throughput(found: Outcome, kind: Kind) -> float | None:
    """Return the steps a second of a role, None where the point has no figures."""
    row = found.row(kind)
    return row.throughput_per_s if row is not None and row.status == Status.OK else None


__all__ = [
    "Outcome",
    "co_rows",
    "decisive",
    "energy_mj",
    "kept",
    "leak",
    "outcomes",
    "placement",
    "problem",
    "throughput",
]
