"""From points to processes: which partition and priority each mechanism gives a role, and when its steps are due."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from greenbench.arrivals import Arrivals, Process
from greenbench.cojournal import Pace
from greenbench.colocation import setups as cosetups
from greenbench.colocation.plan import CoPlan, CoPoint
from greenbench.costeps import RolePrepared
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Grant, Placement, Scope
from greenbench.slo import parse_slo
from greenbench.workload import Call, Group, StepKind, Workload

DECODE = Workload(name="decode", kind=StepKind.DECODE, groups=(Group((Call("rmsnorm"),)),), tokens=8)
PREFILL = Workload(name="prefill", kind=StepKind.PREFILL, groups=(Group((Call("gemm_bf16"),)),), tokens=2048)
PIECES = tuple(Workload(name=f"piece{i}", kind=StepKind.PREFILL, groups=PREFILL.groups) for i in range(2))
GRANT = Grant(sms=20, smids=tuple(range(20)), placement=Placement.CONFINED, split_method="units")
SIZES = (20, 112)


def plan(**more: object) -> CoPlan:
    """A plan of every mechanism."""
    return CoPlan(name="test", latency=(DECODE,), background=PREFILL, mechanisms=tuple(Mechanism), **more)  # type: ignore[arg-type]


def point(mechanism: Mechanism, sizes: tuple[int, int] | None = None, **more: object) -> CoPoint:
    """A point of both roles."""
    return CoPoint(mechanism=mechanism, latency=DECODE, background=PREFILL, sizes=sizes, **more)  # type: ignore[arg-type]


def prepared(step_us: float = 100.0) -> RolePrepared:
    """What is known of a role."""
    return RolePrepared(grant=GRANT, step_us=step_us, verified_error=None, source_digest="d")


# Mechanism: sizes, slots of both roles, whether the latency role is urgent.
PLACED = {
    Mechanism.SERIAL: (None, (None, None), False),
    Mechanism.CHUNKED: (None, (None, None), False),
    Mechanism.STREAMS: (None, (None, None), False),
    Mechanism.PRIORITY: (None, (None, None), True),
    Mechanism.GREEN: (SIZES, (0, 1), False),
    Mechanism.GREEN_BACKGROUND: (SIZES, (None, 1), False),
    Mechanism.GREEN_PRIMARY: (SIZES, (0, None), False),
    Mechanism.GREEN_PRIORITY: (SIZES, (0, 1), True),
    Mechanism.GREEN_BALANCED: (SIZES, (0, 1), False),
    Mechanism.TIMESLICE: (None, (None, None), False),
    Mechanism.MPS: (None, (None, None), False),
    Mechanism.MPS_LIMITED: (SIZES, (None, None), False),
}


@pytest.mark.parametrize("mechanism", PLACED)
def test_one_process_holds_both_roles(mechanism: Mechanism) -> None:
    """Each mechanism gives the roles the slots and the priority that its definition says, in one setup."""
    sizes, slots, urgent = PLACED[mechanism]
    (setup,) = cosetups.setups(point(mechanism, sizes, chunks=PIECES, chunk=512), apart=False)
    latency, background = setup.roles
    assert (latency.slot, background.slot) == slots
    assert (latency.urgent, background.urgent) == (urgent, False)
    assert (latency.name, latency.kind, latency.workload) == ("latency", Kind.LATENCY, DECODE)
    assert (background.name, background.kind, background.workload) == ("background", Kind.BACKGROUND, PREFILL)
    assert setup.sizes == (sizes or ())
    assert setup.mechanism is mechanism
    assert background.chunks == (PIECES if mechanism is Mechanism.CHUNKED else ())
    assert setup.workqueue is (Scope.GREEN_CTX_BALANCED if mechanism is Mechanism.GREEN_BALANCED else Scope.DRIVER_DEFAULT)


def test_processes_apart_hold_one_role_each_and_no_split() -> None:
    """Under MPS a share is the process's environment: no process splits what it sees."""
    setups = cosetups.setups(point(Mechanism.MPS_LIMITED, SIZES), apart=True)
    assert [[role.name for role in setup.roles] for setup in setups] == [["latency"], ["background"]]
    assert {setup.sizes for setup in setups} == {()}
    shares = [cosetups.percentage(point(Mechanism.MPS_LIMITED, SIZES), kind, 132) for kind in Kind]
    assert shares == [16, 85]
    assert cosetups.percentage(point(Mechanism.MPS), Kind.LATENCY, 132) is None


@pytest.mark.parametrize("size", range(2, 132, 2))
def test_a_share_grants_what_was_asked(size: int) -> None:
    """The driver gives the even count at or below percentage times SMs: every even size of an H200 is granted, both roles'."""
    sizes = (size, 132 - size)
    shares = [cosetups.percentage(point(Mechanism.MPS_LIMITED, sizes), kind, 132) or 0 for kind in Kind]
    assert tuple(share * 132 // 100 // 2 * 2 for share in shares) == sizes


def test_known_shares_of_an_h200() -> None:
    """The sizes of a run on an H200 by hand; rounding gave 2 SMs less for eight of the nine."""
    sizes = {8: 7, 16: 13, 20: 16, 28: 22, 32: 25, 36: 28, 44: 34, 52: 40, 60: 46}
    found = [cosetups.percentage(point(Mechanism.MPS_LIMITED, (each, 132 - each)), Kind.LATENCY, 132) for each in sizes]
    assert found == list(sizes.values())
    assert cosetups.percentage(point(Mechanism.MPS_LIMITED, (132, 1)), Kind.LATENCY, 132) == 100


def test_a_role_alone_has_its_slot_of_the_same_split() -> None:
    """The background by itself on its partition is slot 1 of the split that both roles share beside each other."""
    alone = CoPoint(mechanism=Mechanism.ALONE, latency=None, background=PREFILL, sizes=SIZES)
    (setup,) = cosetups.setups(alone, apart=False)
    assert setup.sizes == SIZES
    assert [role.slot for role in setup.roles] == [1]


@pytest.mark.parametrize("mechanism", PLACED)
def test_every_mechanism_gets_the_same_arrivals(mechanism: Mechanism) -> None:
    """Due times depend on seed, role and rate alone; only timeslice lets the host wait for them."""
    timing = cosetups.timing(plan(steps=100), point(mechanism, PLACED[mechanism][0]), 200.0, (prepared(), prepared()))
    latency, background = timing.roles
    assert latency.due_ns == Arrivals(Process.FIXED, 200.0, 1, "latency").first(120)
    assert background.endless
    assert latency.on_host is background.on_host is (mechanism is Mechanism.TIMESLICE)
    assert timing.warm_ns == latency.due_ns[20]
    assert timing.limit_s == pytest.approx(1.25 * latency.due_ns[-1] / 1e9 + 0.5 + 4 * 100e-6)


def test_each_role_has_arrivals_of_its_own_kind() -> None:
    """Steps at a steady pace beside requests at random is what is usual; either may be the other."""
    both = point(Mechanism.STREAMS, rate_per_s=50.0)
    for ours, theirs in ((Process.FIXED, Process.POISSON), (Process.POISSON, Process.FIXED)):
        asked = plan(steps=100, process=ours, background_process=theirs)
        latency, background = cosetups.timing(asked, both, 200.0, (prepared(), prepared())).roles
        assert latency.due_ns == Arrivals(ours, 200.0, 1, "latency").first(120)
        assert background.due_ns == Arrivals(theirs, 50.0, 1, "background").until(latency.due_ns[-1] + 1)
        assert [cosetups.process(asked, kind) for kind in Kind] == [ours, theirs]


def test_a_long_request_may_end_after_the_last_step_was_due() -> None:
    """The limit leaves room for requests that are far longer than the run, so that waiting for one is not called growing."""
    timing = cosetups.timing(plan(steps=20), point(Mechanism.SERIAL), 1000.0, (prepared(), prepared(2e6)))
    assert timing.limit_s == pytest.approx(1.25 * 0.04 + 0.5 + 4 * 2.0)


def test_requests_come_until_the_last_step() -> None:
    """With a rate the background's requests are an open loop of their own that ends with the latency role's."""
    timing = cosetups.timing(plan(steps=400), point(Mechanism.STREAMS, rate_per_s=50.0), 200.0, (prepared(), prepared()))
    latency, background = timing.roles
    assert latency.due_ns is not None
    assert background.due_ns == Arrivals(Process.POISSON, 50.0, 1, "background").until(latency.due_ns[-1] + 1)
    slow = cosetups.timing(plan(steps=20), point(Mechanism.STREAMS, rate_per_s=1e-3), 200.0, (prepared(), prepared()))
    assert len(slow.roles[1].due_ns or ()) == 1


def test_an_objective_prolongs_a_visit_until_enough_requests_came() -> None:
    """A p99 of the requests wants 299 of them: at 50 a second that is 6.6 s, whatever --steps says, and never above 30 s."""
    asked = plan(steps=400, slo=parse_slo("step_p99=5ms,ttft_p99=500ms"))
    assert cosetups.requests_wanted(asked.slo, PREFILL.metrics) == 299
    assert cosetups.latency_steps(asked, point(Mechanism.STREAMS, rate_per_s=50.0), 200.0) == math.ceil(1.1 * 299 / 50 * 200)
    assert cosetups.latency_steps(asked, point(Mechanism.STREAMS, rate_per_s=1.0), 200.0) == 6000
    assert cosetups.latency_steps(asked, point(Mechanism.STREAMS), 200.0) == 400
    assert cosetups.latency_steps(asked, point(Mechanism.STREAMS, rate_per_s=1e5), 200.0) == 400


@pytest.mark.parametrize(
    ("objective", "count"), [("ttft_p50=1s", 5), ("ttft_p95=1s", 59), ("ttft_p99=1s", 299), ("step_p99=1s", 6)]
)
def test_as_few_requests_as_can_show_that_an_objective_holds(objective: str, count: int) -> None:
    """With that many requests, all of them within the limit, the verdict is that it holds; with one fewer it is open."""
    slo = parse_slo(objective)
    assert cosetups.requests_wanted(slo, PREFILL.metrics) == count
    if objective.startswith("ttft"):
        assert slo.limits[0].verdict([1.0] * count).value == "true"
        assert slo.limits[0].verdict([1.0] * (count - 1)).value == ""


def test_a_background_alone_runs_long_enough_for_a_median() -> None:
    """About a second, or twelve steps where one takes longer."""
    alone = CoPoint(mechanism=Mechanism.ALONE, latency=None, background=PREFILL)
    quick = cosetups.timing(plan(), alone, None, (prepared(),))
    assert (quick.roles[0].until_ns, quick.warm_ns) == (1_000_000_000, 50_000_000)
    slow = cosetups.timing(plan(), alone, None, (prepared(500_000.0),))
    assert slow.roles[0].until_ns == 6_000_000_000


def test_the_short_look_is_a_closed_loop() -> None:
    """At least 50 steps and about half a second."""
    assert cosetups.probing((prepared(100_000.0),)).roles[0].steps == 50
    assert cosetups.probing((prepared(100.0),)).roles[0].steps == 5000


@given(kept=st.integers(20, 100_000))
def test_the_warm_up_is_five_per_cent(kept: int) -> None:
    """5 % of the steps that count, rounded up, and at least 20."""
    assert cosetups.warm_steps(kept) == max(20, -(-kept // 20))


@pytest.mark.parametrize(
    ("mechanism", "rate", "paces"),
    [
        (Mechanism.GREEN, None, (Pace.DEVICE, Pace.CLOSED)),
        (Mechanism.GREEN, 5.0, (Pace.DEVICE, Pace.DEVICE)),
        (Mechanism.TIMESLICE, 5.0, (Pace.HOST, Pace.HOST)),
        (Mechanism.SERIAL, None, (Pace.HOST, Pace.CLOSED)),
    ],
)
def test_whose_clock_starts_a_step(mechanism: Mechanism, rate: float | None, paces: tuple[Pace, Pace]) -> None:
    """The device's gate does, except where processes take turns or the host decides whose turn it is."""
    asked = point(mechanism, SIZES if mechanism is Mechanism.GREEN else None, rate_per_s=rate)
    assert tuple(cosetups.pace(asked, kind) for kind in Kind) == paces


def test_schedules_apart_are_those_of_both_roles() -> None:
    """Each process gets its own role's schedule, with the same limit."""
    timing = cosetups.timing(plan(steps=50), point(Mechanism.TIMESLICE), 100.0, (prepared(), prepared()))
    (together,) = cosetups.co_schedules(timing, apart=False)
    apart = cosetups.co_schedules(timing, apart=True)
    assert together.roles == tuple(role for each in apart for role in each.roles)
    assert {each.limit_s for each in apart} == {together.limit_s}
