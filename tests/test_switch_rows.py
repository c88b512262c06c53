"""Visits to points of `switch` by a crew of fakes, and their rows: what each mechanism asks for and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from greenbench.catalog import library
from greenbench.cojournal import CoJournal, CoVisit, RoleVisit, read_cojournal
from greenbench.corow import CoRow
from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, RoleTrace, Trace
from greenbench.errors import FailedError, GreenbenchError, StickyError, UnsupportedError
from greenbench.experiments import tenants as experiment
from greenbench.experiments.tenants import Tenants, settled
from greenbench.facts import model_facts
from greenbench.schema import Backend, BlockStatus, Evidence, Grant, Placement, RunMeta, Status
from greenbench.switching.plan import SwitchPlan, SwitchPoint, Way, load_switch
from greenbench.switching.rows import RESIZED, UNVISITED, derive_switch_rows

KERNELS = dict(library())
# A real device by its facts, so that processes are asked for and figures are not those of the model.
DEVICE = replace(model_facts("h200").device, backend=Backend.CUDA)
META = RunMeta(run_id="r", created="2026-01-01T00:00:00+00:00", greenbench="0", command="switch", argv=(), seed=1, device=DEVICE)
WORK, TURN, HOST = 100_000, 137_000, 12_000


def plan_of(**given: Any) -> SwitchPlan:
    """The default plan with options over it."""
    return load_switch("switch", {"processes": "2", "working_set": "0", **given}, KERNELS)


def point(mechanism: Way, processes: int = 2, size: int = 0) -> SwitchPoint:
    """A point of 100 us."""
    return SwitchPoint(mechanism=mechanism, processes=processes, duration_us=100.0, working_set=size)


def stamps(who: int, tenants: int, count: int, begin: int, each: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Start and end of a tenant's operations when all work in turn, an operation every `each` ns."""
    starts = tuple(begin + (i * tenants + who) * each for i in range(count))
    return starts, tuple(start + WORK for start in starts)


@dataclass
class FakeCrew:
    """Answers as a device on which tenants work in turn; `error` is raised instead, `calls` is what was asked for."""

    error: GreenbenchError | None = None
    reported: tuple[float, ...] = ()
    size: int = 1
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    now: int = 1_000_000_000

    def prepared(self, setup: CoSetup) -> tuple[RolePrepared, ...]:
        """Grants that lie side by side, or the whole device."""
        found, first = [], 0
        for role in setup.roles:
            sms = setup.sizes[role.slot] if role.slot is not None else DEVICE.sm_count
            smids = tuple(range(first, first + sms)) if role.slot is not None else tuple(range(DEVICE.sm_count))
            first += sms
            grant = Grant(sms=sms, smids=smids, placement=Placement.CONFINED, split_method="units", remainder=sms % 8 != 0)
            made = 1500.0 if role.slot is not None else None
            found.append(RolePrepared(grant=grant, step_us=100.0, verified_error=0.0, source_digest="d", create_us=made))
        return tuple(found)

    def trace(self, setup: CoSetup, places: Sequence[int], tenants: int, begin: int, clock: float | None = None) -> Trace:
        """Stamps of 400 operations each, and what NVML says before and after."""
        known = self.prepared(setup)
        each = WORK + (HOST if tenants == 1 else TURN)
        roles = []
        for role, place, grant in zip(setup.roles, places, known, strict=True):
            starts, ends = stamps(place, tenants, 400, begin, each)
            roles.append(
                RoleTrace(
                    name=role.name,
                    due_ns=(begin, *ends[:-1]),
                    start_ns=starts,
                    end_ns=ends,
                    late_ns=(0,) * 400,
                    smids=grant.grant.smids,
                    reported=self.reported,
                    sm_clock_mhz=1980.0,
                )
            )
        before = Evidence(energy_mj=1_000.0, reasons=0)
        after = Evidence(energy_mj=1_401_000.0, reasons=0, temperature_c=50.0)
        return Trace(origin_ns=begin, roles=tuple(roles), before=before, after=after, seconds=2.1, clock_error_ns=clock)

    def prepare(self, setup: CoSetup) -> tuple[RolePrepared, ...]:
        """Prepare in one process."""
        self.calls.append(("prepare", setup.sizes, setup.verify))
        if self.error:
            raise self.error
        return self.prepared(setup)

    def run(self, setup: CoSetup, schedule: CoSchedule) -> Trace:
        """Run in one process, half a second after whatever was before."""
        self.calls.append(("run", setup.sizes))
        self.now += 500_000_000
        return self.trace(setup, range(len(setup.roles)), len(setup.roles), self.now)

    def run_apart(
        self, setups: Sequence[CoSetup], schedules: Sequence[CoSchedule], environments: Sequence[Mapping[str, str]]
    ) -> tuple[list[tuple[RolePrepared, ...]], list[Trace]]:
        """Run a process each."""
        self.calls.append(("apart", len(setups), [len(each.roles) for each in schedules], list(environments)))
        if self.error:
            raise self.error
        traces = [self.trace(setup, [place], len(setups), self.now, 40.0 + place) for place, setup in enumerate(setups)]
        return [self.prepared(setup) for setup in setups], traces


class FakeDaemon:
    """An MPS daemon that is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def environment(self, percentage: int | None = None) -> dict[str, str]:
        """What a client needs."""
        return {"PIPE": "p"} | ({} if percentage is None else {"SHARE": str(percentage)})


@pytest.fixture
def crew() -> FakeCrew:
    """A crew on which all goes well."""
    return FakeCrew()


def visited(crew: FakeCrew, asked: SwitchPoint, plan: SwitchPlan | None = None, attempt: int = 1) -> tuple[CoVisit, bool]:
    """One visit."""
    return Tenants(crew, plan or plan_of(), DEVICE, KERNELS, Path("nowhere")).visit(asked, 0, attempt)


def rows_of(plan: SwitchPlan, *visits: CoVisit) -> dict[tuple[str, int | None], CoRow]:
    """Rows by mechanism and number of processes."""
    return {(row.mechanism, row.processes): row for row in derive_switch_rows(META, plan, visits)}


def test_time_slices_by_hand(crew: FakeCrew) -> None:
    """Alone an operation every 112 us; two in turn one every 237: 47 %, 474 us a step, 137 us a turn, none at the same time."""
    plan = plan_of(mechanisms="timeslice")
    alone, _ = visited(crew, point(Way.ALONE, 1), plan)
    shared, retry = visited(crew, point(Way.TIMESLICE), plan)
    assert not retry
    assert crew.calls[-1] == ("apart", 2, [1, 1], [{}, {}])
    rows = rows_of(plan, alone, shared)
    one, two = rows["alone", 1], rows["timeslice", 2]
    assert one.throughput_per_s == pytest.approx(1e9 / 112_000, rel=5e-3)
    assert (one.throughput_pct, one.switch_us, one.overlap_frac) == (100.0, None, None)
    assert two.throughput_pct == pytest.approx(100 * 112 / 237, rel=5e-3)
    assert (two.step_us_p50, two.switch_us, two.overlap_frac) == (474.0, 137.0, 0.0)
    assert (two.step_us_p95, two.step_us_p99) == (None, None)
    assert two.energy_mj_per_op == pytest.approx(1_400_000 / 800)
    assert two.power_w == pytest.approx(1_400 / 2.1)
    assert (two.sms_requested, two.sms_granted, two.placement) == ("primary", 132, "confined")
    assert (two.role, two.arrivals, two.steps, two.clock_error_us, two.temperature_c) == ("tenants", "closed", 800, 0.041, 50.0)
    assert (two.status, two.l2_retained_pct, two.gap_us, two.create_us) == ("ok", None, None, None)


def test_partitions_are_one_split_and_their_sums_are_shown(crew: FakeCrew) -> None:
    """One process, disjoint slots, the remainder flagged, no turn taken to be one; contexts have their cost."""
    plan = plan_of(mechanisms="green")
    visit, _ = visited(crew, point(Way.GREEN), plan)
    row = rows_of(plan, visit)["green", 2]
    assert [call[0] for call in crew.calls] == ["prepare", "run"]
    assert (row.sms_requested, row.sms_granted, row.sms_observed, row.flags) == ("64+68", 132, 132, "remainder")
    assert (row.create_us, row.switch_us) == (1500.0, None)


def test_partitions_that_share_an_sm_are_no_figure(crew: FakeCrew) -> None:
    """What a census proves wrong is failed, and carries nothing."""
    plan = plan_of(mechanisms="green")
    visit, _ = visited(crew, point(Way.GREEN), plan)
    first, second = visit.roles
    leaked = replace(second, facts=replace(second.facts, smids=(*second.facts.smids, first.facts.smids[0])))
    row = rows_of(plan, replace(visit, roles=(first, leaked)))["green", 2]
    assert row.status == "failed"
    assert row.reason.startswith("leaked")
    assert (row.throughput_per_s, row.step_us_p50) == (None, None)


def test_a_resize_is_two_phases_and_the_time_between(crew: FakeCrew) -> None:
    """Other sizes the second time, not verified again; figures are those of the second phase, the gap is on one clock."""
    plan = plan_of(mechanisms="repartition")
    visit, _ = visited(crew, point(Way.REPARTITION), plan)
    assert crew.calls == [
        ("prepare", (64, 68), True),
        ("run", (64, 68)),
        ("prepare", (32, 100), False),
        ("run", (32, 100)),
    ]
    assert [role.facts.name for role in visit.roles] == ["tenant0", "tenant1", f"tenant0{RESIZED}", f"tenant1{RESIZED}"]
    row = rows_of(plan, visit)["repartition", 2]
    last = (400 * 2 - 1) * (WORK + TURN) + WORK
    assert (row.status, row.sms_requested, row.steps) == ("ok", "32+100", 800)
    assert row.gap_us == pytest.approx((500_000_000 - last) / 1e3)
    assert (row.verified_error, row.mechanism) == (0.0, "repartition")


def test_clients_of_a_daemon_get_their_share(crew: FakeCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has the daemon's folders, under mps_limited its percentage as well, which the row names."""
    monkeypatch.setattr(experiment, "MpsDaemon", FakeDaemon)
    plan = plan_of(mechanisms="mps,mps_limited", processes="8")
    visited(crew, point(Way.MPS, 8), plan)
    assert crew.calls[-1] == ("apart", 8, [1] * 8, [{"PIPE": "p"}] * 8)
    visit, _ = visited(crew, point(Way.MPS_LIMITED, 8), plan)
    assert crew.calls[-1][3] == [{"PIPE": "p", "SHARE": "12"}] * 8
    assert rows_of(plan, visit)["mps_limited", 8].config == "active thread percentage 12"


def test_without_a_daemon_a_point_is_unsupported(crew: FakeCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is that of whoever refused, and no process was asked for."""

    def none(_: Path) -> AbstractContextManager[None]:
        raise UnsupportedError("MPS needs nvidia-cuda-mps-control, which is not on PATH")

    monkeypatch.setattr(experiment, "MpsDaemon", none)
    plan = plan_of(mechanisms="mps")
    visit, retry = visited(crew, point(Way.MPS), plan)
    assert (visit.status, retry, crew.calls) == (BlockStatus.UNSUPPORTED, False, [])
    row = rows_of(plan, visit)["mps", 2]
    assert (row.status, row.reason) == ("unsupported", "MPS needs nvidia-cuda-mps-control, which is not on PATH")


@pytest.mark.parametrize(
    ("error", "attempt", "retry", "kept"),
    [
        (StickyError("the worker died"), 1, True, 1),
        (StickyError("the worker died"), 2, False, 2),
        (FailedError("out of memory"), 1, False, 2),
    ],
)
def test_a_lost_process_is_tried_twice_and_an_answer_once(error: GreenbenchError, attempt: int, retry: bool, kept: int) -> None:
    """What would only fail the same way again counts as tried for good."""
    visit, again = visited(FakeCrew(error), point(Way.TIMESLICE), attempt=attempt)
    assert (visit.status, visit.reason, again, visit.attempt) == (BlockStatus.FAILED, str(error), retry, kept)
    assert settled(visit) is not retry
    assert not settled(None)


def test_what_is_no_outcome_of_a_point_ends_the_run() -> None:
    """Only errors of points become rows."""
    with pytest.raises(GreenbenchError, match="disk"):
        visited(FakeCrew(GreenbenchError("disk")), point(Way.STREAMS))


def test_what_the_l2_kept_is_shown_where_there_is_a_set(crew: FakeCrew) -> None:
    """300 of 1000 after every turn of the other is 30 %; without a working set the reports mean nothing; nor on the model."""
    crew.reported = (0.0, *(300.0,) * 399)
    plan = plan_of(mechanisms="timeslice", working_set="16M")
    visit, _ = visited(crew, point(Way.TIMESLICE, 2, 16 << 20), plan)
    assert rows_of(plan, visit)["timeslice", 2].l2_retained_pct == pytest.approx(30.0)
    modelled = replace(META, device=replace(DEVICE, backend=Backend.MODELLED))
    assert all(row.l2_retained_pct is None for row in derive_switch_rows(modelled, plan, [visit]))
    bare = plan_of(mechanisms="timeslice")
    without, _ = visited(crew, point(Way.TIMESLICE), bare)
    assert rows_of(bare, without)["timeslice", 2].l2_retained_pct is None


def test_a_tenant_that_ended_nothing_is_named(crew: FakeCrew) -> None:
    """A starved process is a failed point, not a throughput of the others."""
    plan = plan_of(mechanisms="timeslice")
    visit, _ = visited(crew, point(Way.TIMESLICE), plan)
    starved = RoleVisit(facts=visit.roles[1].facts)
    row = rows_of(plan, replace(visit, roles=(visit.roles[0], starved)))["timeslice", 2]
    assert (row.status, row.throughput_per_s) == ("failed", None)
    assert row.reason.startswith("tenant1 of 2 ended no operation")


def test_every_point_has_a_row_whatever_happened(crew: FakeCrew) -> None:
    """A point that was never visited says so; of several visits the last counts, a throttled one only for want of others."""
    plan = plan_of(mechanisms="timeslice,streams")
    good, _ = visited(crew, point(Way.STREAMS), plan)
    hot = replace(good, status=BlockStatus.DISCARDED, reason="throttled: sw_thermal", throttle="sw_thermal")
    rows = rows_of(plan, good, hot)
    assert rows["streams", 2].status == Status.OK
    assert (rows["timeslice", 2].status, rows["timeslice", 2].reason) == ("failed", UNVISITED)
    assert (rows["alone", 1].status, rows["streams", 2].throughput_pct) == ("failed", None)
    thrown = rows_of(plan, hot)["streams", 2]
    assert (thrown.status, thrown.reason, thrown.throttle) == ("failed", "throttled: sw_thermal", "sw_thermal")


def test_rows_follow_from_the_journal_alone(crew: FakeCrew, tmp_path: Path) -> None:
    """What was written and read back gives the same rows."""
    plan = plan_of(mechanisms="timeslice,green,repartition")
    visits = [visited(crew, asked, plan)[0] for asked in (point(Way.ALONE, 1), point(Way.TIMESLICE), point(Way.REPARTITION))]
    with CoJournal(tmp_path / "blocks.csv") as journal:
        kept = [journal.append(visit) for visit in visits]
    assert derive_switch_rows(META, plan, read_cojournal(tmp_path / "blocks.csv")) == derive_switch_rows(META, plan, kept)
