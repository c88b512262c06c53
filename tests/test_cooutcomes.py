"""Rows, verdicts and sentences of a co-location from visits alone: figures are exactly those of examples done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenbench.cojournal import CoVisit, Pace, RoleFacts, RoleVisit, VisitKind
from greenbench.colocation.outcomes import Outcome, co_rows, decisive, outcomes
from greenbench.colocation.verdicts import advice, interference, trials
from greenbench.corow import CoRow
from greenbench.facts import model_facts
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import BlockStatus, Evidence, Grant, Placement, RunMeta, Scope, Status
from greenbench.slo import Verdict, parse_slo
from greenbench.tails import Metric
from tests.test_cosetups import GRANT

META = RunMeta(
    run_id="run", created="", greenbench="", command="colocate", argv=(), seed=1, device=model_facts("h200", (13, 0)).device
)
US, MS = 1_000, 1_000_000
OTHER = Grant(sms=112, smids=tuple(range(20, 132)), placement=Placement.CONFINED, split_method="units", remainder=True)


def role(steps: list[tuple[int, int, int]], kind: Kind = Kind.LATENCY, slot: int | None = None, **more: object) -> RoleVisit:
    """A role with (due, start, end) in us."""
    latency = kind is Kind.LATENCY
    grant = {None: None, 0: GRANT, 1: OTHER}[slot]
    facts = RoleFacts(
        name=kind.value,
        kind=kind,
        workload="decode" if latency else "prefill",
        metrics=(Metric.STEP,) if latency else (Metric.TTFT,),
        tokens=8 if latency else 2048,
        sms_requested=str(grant.sms) if grant else "primary",
        slot=slot,
        pace=Pace.DEVICE if latency else Pace.CLOSED,
        grant=grant,
        smids=grant.smids if grant else (),
    )
    due, start, end = (tuple(step[i] * US for step in steps) for i in range(3))
    return RoleVisit(facts=replace(facts, **more), due_ns=due, start_ns=start, end_ns=end, late_ns=(0,) * len(steps))  # type: ignore[arg-type]


def visit(mechanism: Mechanism, *roles: RoleVisit, **more: object) -> CoVisit:
    """A visit; partitioned ones have the split 20 + 112."""
    split = any(each.facts.slot is not None for each in roles)
    known = {"label": f"{mechanism}/{more.get('rate_per_s')}/{more.get('load', '')}/{split}", "sizes": (20, 112) if split else ()}
    return CoVisit(mechanism=mechanism, roles=roles, split="20" if split else "", **{**known, **more})  # type: ignore[arg-type]


def every(period: int, wait: int, took: int, count: int = 10) -> list[tuple[int, int, int]]:
    """Steps that are due every `period` us, wait and then take so many us."""
    return [(i * period, i * period + wait, i * period + wait + took) for i in range(count)]


def rows_of(*visits: CoVisit, slo: str = "") -> list[CoRow]:
    """The rows of these visits."""
    return co_rows(outcomes(META, visits, parse_slo(slo) if slo else None))


def test_slowdown_overlap_and_throughput_by_hand() -> None:
    """50 us alone and 80 beside make 1.6; a background that is always busy covers every step; rates are over the steps' time."""
    alone = visit(Mechanism.ALONE, role(every(100, 0, 50), slot=0))
    back = visit(Mechanism.ALONE, role(every(200, 0, 200, 6), Kind.BACKGROUND, slot=1), label="background", place=1)
    both = visit(
        Mechanism.GREEN,
        role(every(100, 30, 50), slot=0),
        role(every(250, 0, 250, 8), Kind.BACKGROUND, slot=1),
        place=2,
    )
    rows = rows_of(both, back, alone)
    assert [(row.mechanism, row.role, row.status) for row in rows] == [
        ("alone", "latency", "ok"),
        ("alone", "background", "ok"),
        ("green", "latency", "ok"),
        ("green", "background", "ok"),
    ]
    latency, background = rows[2:]
    assert (rows[0].step_us_p50, latency.step_us_p50) == (50, 80)
    assert latency.slowdown == 1.6
    # Those due before the last latency step ended at 980 us: 0, 250, 500, 750.
    assert (background.steps, latency.steps) == (4, 10)
    assert background.slowdown is None  # four steps have no median
    assert latency.overlap_frac == background.overlap_frac == 1.0
    assert latency.throughput_per_s == pytest.approx(10 / 980e-6)
    assert latency.tokens_per_s == pytest.approx(80 / 980e-6)
    assert background.tokens_per_s == pytest.approx(4 * 2048 / 1000e-6)
    assert latency.slo_met == ""


def test_overlap_is_the_common_share_of_the_shorter() -> None:
    """Steps of 50 us, of which the background covers 20 each: 0.4."""
    rows = rows_of(visit(Mechanism.STREAMS, role(every(100, 0, 50)), role(every(100, 30, 40), Kind.BACKGROUND)))
    # Ten latency steps of 50 us, and the nine or ten background steps due before 950 us: 40 us each.
    assert rows[0].overlap_frac == pytest.approx(10 * 20 / (10 * 40))


def test_processes_in_turn_have_no_overlap_by_stamps() -> None:
    """A step stays open while its process has lost the device, so what the stamps have in common is no measurement."""
    step, beside = role(every(100, 0, 50)), role(every(100, 30, 40), Kind.BACKGROUND)
    assert [row.overlap_frac for row in rows_of(visit(Mechanism.TIMESLICE, step, beside))] == [None, None]


def test_clocks_under_mps_and_lateness_in_turns_are_not_shown() -> None:
    """Two launches under MPS need not see one SM under one id; a process that waits for its slice is not late by its host."""

    def rows(mechanism: Mechanism) -> list[CoRow]:
        step = role(every(100, 0, 50, 400))
        facts = replace(step.facts, sm_clock_mhz=1980.0)
        return rows_of(visit(mechanism, replace(step, facts=facts, late_ns=(5_000,) * 400)))

    plain, slices = rows(Mechanism.STREAMS)[0], rows(Mechanism.TIMESLICE)[0]
    assert (plain.sm_clock_mhz, plain.launch_late_us) == (1980.0, 5.0)
    assert (slices.sm_clock_mhz, slices.launch_late_us) == (1980.0, None)
    assert rows(Mechanism.MPS)[0].sm_clock_mhz is None
    assert rows(Mechanism.MPS_LIMITED)[0].sm_clock_mhz is None


def test_pieces_overlap_only_while_they_run() -> None:
    """A request of 200 us whose two pieces make way for a step between them: the request overlaps it, its pieces do not."""
    request = every(200, 0, 200, 10)
    whole = role(request, Kind.BACKGROUND)
    pieces = tuple(
        piece for due, _, _ in request for piece in ((due * US, (due + 50) * US), ((due + 110) * US, (due + 200) * US))
    )
    step = role(every(200, 50, 60))
    assert rows_of(visit(Mechanism.CHUNKED, step, whole, chunk=512))[0].overlap_frac == 1.0
    both = rows_of(visit(Mechanism.CHUNKED, step, replace(whole, chunks=pieces), chunk=512))
    assert [row.overlap_frac for row in both] == [0.0, 0.0]
    assert both[1].ttft_us_p50 == 200
    # Pieces that do run beside a step count, those of steps that warmed up do not.
    late = tuple((start, end + 6 * US) for start, end in pieces[:4]) + pieces[4:]
    half = [visit(Mechanism.CHUNKED, step, replace(whole, chunks=late), chunk=512, warm_ns=warm) for warm in (0, 200 * US)]
    assert [rows_of(each)[0].overlap_frac for each in half] == pytest.approx([2 * 6 / 600, 6 / 540])


def test_the_warm_up_is_cut_by_due_time() -> None:
    """Slow first steps of both roles are no part of any figure."""
    steps = [
        (0, 0, 5000),
        (5000, 5000, 9000),
        *((10_000 + due, 10_000 + start, 10_000 + end) for due, start, end in every(100, 0, 50)),
    ]
    (row,) = rows_of(visit(Mechanism.ALONE, role(steps), warm_ns=10_000 * US))
    assert (row.steps, row.step_us_p50) == (10, 50)


def test_known_arrivals_give_known_percentiles() -> None:
    """Of 3,000 steps 20 take 900 us, 130 take 400 us and the rest 100: p50, p95 and p99 by nearest rank."""
    took = [900] * 20 + [400] * 130 + [100] * 2850
    steps = [(i * 1000, i * 1000, i * 1000 + each) for i, each in enumerate(took)]
    (row,) = rows_of(visit(Mechanism.ALONE, role(steps)))
    assert (row.step_us_p50, row.step_us_p95, row.step_us_p99) == (100, 100, 400)


def test_goodput_counts_what_is_in_time() -> None:
    """Three of ten requests take longer than the limit; the point's verdict is on both rows."""
    steps = [(i * 1000, i * 1000, i * 1000 + (700 if i in (2, 5, 8) else 100)) for i in range(10)]
    both = visit(Mechanism.STREAMS, role(every(1000, 0, 10)), role(steps, Kind.BACKGROUND), rate_per_s=1000.0)
    latency, background = rows_of(both, slo="ttft_p50=500us")
    assert background.goodput_rps == pytest.approx(7 / 9.1e-3)
    assert latency.goodput_rps is None
    assert {latency.slo_met, background.slo_met} == {"true"}
    assert latency.slo == "ttft_p50=500us"


def test_a_role_that_its_limit_cut_off_is_saturated() -> None:
    """Steps were due that never ended: no percentile, no slowdown, objectives broken, the throughput kept."""
    alone = visit(Mechanism.ALONE, role(every(100, 0, 50)), place=-1)
    cut = visit(Mechanism.STREAMS, role(every(100, 0, 50), due=11), role(every(100, 0, 90), Kind.BACKGROUND))
    latency, background = rows_of(alone, cut, slo="step_p50=1s")[1:]
    assert (latency.step_us_p50, latency.slowdown, latency.saturated, latency.flags) == (None, None, "true", "saturated")
    assert latency.throughput_per_s is not None
    assert (background.ttft_us_p50, background.saturated) == (90, "")
    assert {latency.slo_met, background.slo_met} == {"false"}


@pytest.mark.parametrize(("rate", "beyond"), [(5000.0, False), (5001.0, True)])
@pytest.mark.parametrize("mechanism", [Mechanism.GREEN, Mechanism.GREEN_PRIMARY])
def test_more_requests_than_it_does_alone_are_never_held(mechanism: Mechanism, rate: float, beyond: bool) -> None:
    """Six requests of 200 us on end are 5,000 a second alone; one more breaks objectives, however calm the window was.

    On its partition it is compared with itself there, on the whole device with itself on that.
    """
    slot, other = (1, None) if mechanism is Mechanism.GREEN else (None, 1)
    label = {"label": "background", "place": -1}
    slow = visit(Mechanism.ALONE, role(every(200, 0, 200, 6), Kind.BACKGROUND, slot=slot), **label)
    fast = visit(Mechanism.ALONE, role(every(100, 0, 100, 6), Kind.BACKGROUND, slot=other), **{**label, "label": "other"})
    both = visit(
        mechanism,
        role(every(1000, 0, 50), slot=0),
        role(every(500, 0, 90, 20), Kind.BACKGROUND, slot=slot, rate_per_s=rate),
        rate_per_s=rate,
    )
    latency, background = rows_of(slow, fast, both, slo="step_p50=1ms,ttft_p50=1ms")[2:]
    assert {latency.slo_met, background.slo_met} == {"false" if beyond else "true"}
    assert background.saturated == ("true" if beyond else "false")
    assert background.flags.split(";") == (["remainder"] if slot else []) + (["saturated"] if beyond else [] if slot else [""])
    assert background.ttft_us_p50 == (None if beyond else 90)
    assert (latency.saturated, latency.step_us_p50) == ("", 50)
    assert background.throughput_per_s == pytest.approx(19 / 9.09e-3)
    # An objective on the other role is broken too; a point whose background was never alone is taken as it was seen.
    assert rows_of(slow, both, slo="step_p50=1ms")[1].slo_met == ("false" if beyond else "true")
    assert rows_of(both, slo="step_p50=1ms,ttft_p50=1ms")[0].slo_met == "true"


def test_a_chunked_background_is_compared_with_the_whole_request() -> None:
    """Its parameters name the chunk; by itself it ran in one piece."""
    alone = visit(Mechanism.ALONE, role(every(200, 0, 100), Kind.BACKGROUND, params="prompt=2048"), place=-1)
    pieces = role(every(200, 0, 150), Kind.BACKGROUND, params="prompt=2048,chunk=512")
    both = visit(Mechanism.CHUNKED, role(every(200, 0, 20)), pieces, chunk=512)
    assert rows_of(alone, both)[2].slowdown == 1.5


@pytest.mark.parametrize(
    ("latency", "background", "said"),
    [
        ((*range(19), 25), OTHER.smids, "leaked: role latency has 20 SMs and ran on 1 others"),
        (tuple(range(21)), OTHER.smids, "leaked: role latency was granted 20 SMs and ran on 21"),
        ((), OTHER.smids, "no census of role latency shows where it ran"),
    ],
)
def test_partitions_that_are_not_disjoint_fail(latency: tuple[int, ...], background: tuple[int, ...], said: str) -> None:
    """A role outside its grant, or one that no census was taken of, leaves no figures in either row."""
    both = visit(
        Mechanism.GREEN,
        role(every(100, 0, 50), slot=0, smids=latency),
        role(every(100, 0, 50), Kind.BACKGROUND, slot=1, smids=background),
    )
    for row in rows_of(both):
        assert (row.status, row.step_us_p50, row.throughput_per_s) == ("failed", None, None)
        assert said in row.reason


def test_grants_that_overlap_fail() -> None:
    """Two grants of one SM are no split, though each role stays within its own."""
    shared = replace(OTHER, smids=tuple(range(19, 131)))
    both = visit(
        Mechanism.GREEN,
        role(every(100, 0, 50), slot=0),
        role(every(100, 0, 50), Kind.BACKGROUND, slot=1, grant=shared, smids=shared.smids),
    )
    assert {row.reason for row in rows_of(both)} == {
        "leaked: 1 SMs ran CTAs of more than one role, whose partitions are to be disjoint"
    }


@pytest.mark.parametrize("mechanism", [Mechanism.ALONE, Mechanism.GREEN])
@pytest.mark.parametrize("at", ["grant", "run", "both"])
def test_a_leak_is_one_wherever_it_was_seen(mechanism: Mechanism, at: str) -> None:
    """The count that was granted decides: a census that holds the leak already hides nothing, nor does one that lacks an SM."""
    for census in (tuple(range(21)), tuple(range(19))):
        grant = replace(GRANT, smids=census if at != "run" else GRANT.smids)
        seen = census if at != "grant" else GRANT.smids
        latency = role(every(100, 0, 50), slot=0, grant=grant, smids=seen)
        beside = role(every(100, 0, 50), Kind.BACKGROUND, slot=1)
        rows = rows_of(visit(mechanism, latency, *([beside] if mechanism is Mechanism.GREEN else [])))
        assert {(row.status, row.step_us_p50, row.throughput_per_s) for row in rows} == {("failed", None, None)}
        assert rows[0].placement == "leaked"
        assert rows[0].reason == f"leaked: role latency was granted 20 SMs and ran on {len(census)}"


def test_partitions_that_share_or_were_refused_are_leaked() -> None:
    """Both roles of one SM say so in their column, and so does a role whose lane was refused before it ran."""
    shared = replace(OTHER, smids=tuple(range(19, 131)))
    both = visit(
        Mechanism.GREEN,
        role(every(100, 0, 50), slot=0),
        role(every(100, 0, 50), Kind.BACKGROUND, slot=1, grant=shared, smids=shared.smids),
    )
    assert [row.placement for row in rows_of(both)] == ["leaked", "leaked"]
    refused = visit(
        Mechanism.GREEN_PRIMARY,
        role([], slot=0, grant=None, smids=()),
        role([], Kind.BACKGROUND),
        status=BlockStatus.FAILED,
        reason="leaked: 20 SMs granted, the census saw 21",
    )
    assert [row.placement for row in rows_of(refused)] == ["leaked", ""]
    assert [row.placement for row in rows_of(replace(refused, reason="no memory"))] == ["", ""]


def test_rates_of_an_open_loop_are_over_the_window() -> None:
    """One request of 2,048 tokens in 30 s is 1/30 a second, not one in the 5 ms that it took; the warm-up is no part of it."""
    steps = role(every(100_000, 0, 50_000, 301))  # the last one ends at 30.05 s
    request = role([(10_000_000, 10_000_000, 10_005_000)], Kind.BACKGROUND, pace=Pace.DEVICE, rate_per_s=0.05)
    point = visit(Mechanism.STREAMS, steps, request, rate_per_s=0.05, warm_ns=50 * MS)
    background = rows_of(point, slo="ttft_p50=100ms")[1]
    assert background.throughput_per_s == pytest.approx(1 / 30)
    assert background.tokens_per_s == pytest.approx(2048 / 30)
    assert background.goodput_rps == pytest.approx(1 / 30)
    # A closed loop fills the time that it takes.
    closed = replace(request, facts=replace(request.facts, pace=Pace.CLOSED))
    assert rows_of(visit(Mechanism.STREAMS, steps, closed))[1].throughput_per_s == pytest.approx(1 / 5e-3)
    # Requests that queued up are not counted as done by the end of the window: 4 of 10 s each took 40 s.
    queued = role([(0, i * 10_000_000, (i + 1) * 10_000_000) for i in range(4)], Kind.BACKGROUND, pace=Pace.HOST)
    assert rows_of(visit(Mechanism.STREAMS, steps, queued))[1].throughput_per_s == pytest.approx(4 / 40)
    # The latency role's own window begins at the first step that counts.
    assert rows_of(replace(point, warm_ns=100 * MS))[0].throughput_per_s == pytest.approx(300 / 29.95)


def test_where_nothing_arrived_nothing_is_judged() -> None:
    """No request in a window is no queue that grows: empty cells, no flag, and a sentence that says that it is not decided."""
    none = role([], Kind.BACKGROUND, pace=Pace.DEVICE, rate_per_s=0.001, due=0)
    found = outcomes(
        META, [visit(Mechanism.STREAMS, role(every(100, 0, 50)), none, rate_per_s=0.001)], slo := parse_slo("ttft_p50=1s")
    )
    background = found[0].rows[1]
    assert (background.status, background.steps, background.saturated, background.flags) == ("ok", 0, "", "")
    assert (background.throughput_per_s, background.tokens_per_s, background.goodput_rps, background.slo_met) == (
        None,
        None,
        None,
        "",
    )
    told = advice(found, slo)
    assert told is not None
    assert "not decided" in told.text


def test_placement_and_flags() -> None:
    """Confined by the census of this very visit; a partition with the remainder says so; a role without one has its lane's."""
    whole = Grant(sms=132, smids=tuple(range(132)), placement=Placement.UNPROVEN, split_method="primary")
    both = visit(
        Mechanism.GREEN_BACKGROUND,
        role(every(100, 0, 50), grant=whole, smids=(1, 2)),
        role(every(100, 0, 50), Kind.BACKGROUND, slot=1),
    )
    latency, background = rows_of(both)
    assert (latency.placement, latency.sms_granted, latency.sms_observed, latency.flags) == ("unproven", 132, 2, "")
    assert (background.placement, background.sms_granted, background.flags) == ("confined", 112, "remainder")


@pytest.mark.parametrize(("window_s", "energy"), [(1.9, None), (2.0, 900.0)])
def test_energy_needs_two_seconds(window_s: float, energy: float | None) -> None:
    """Below that the counter resolves nothing; above, energy is per token of both roles, and power is its average."""
    readings = {"before": Evidence(energy_mj=100.0), "after": Evidence(energy_mj=1000.0, power_w=700.0)}
    both = visit(
        Mechanism.STREAMS, role(every(100, 0, 50)), role(every(500, 0, 90, 2), Kind.BACKGROUND), window_s=window_s, **readings
    )
    for row in rows_of(both):
        assert row.energy_mj == energy
        assert row.energy_mj_per_op == (None if energy is None else 900 / (10 * 8 + 2 * 2048))
        assert row.power_w == (700.0 if energy is None else pytest.approx(0.45))


def test_the_last_word_of_a_point_counts() -> None:
    """A second try replaces a failure; a discarded visit counts only for want of others; a probe never."""
    good = visit(Mechanism.ALONE, role(every(100, 0, 50)))
    lost = replace(good, status=BlockStatus.FAILED, reason="the worker died")
    thrown = replace(good, status=BlockStatus.DISCARDED, reason="throttled: hw_thermal")
    probe = replace(good, kind=VisitKind.PROBE)
    assert decisive([lost, good, probe]) == [good]
    assert decisive([good, thrown]) == [good]
    (row,) = rows_of(thrown, thrown)
    assert (row.status, row.reason) == ("failed", "throttled: hw_thermal")
    (row,) = rows_of(replace(good, status=BlockStatus.UNSUPPORTED, reason="MPS needs a daemon"))
    assert (row.status, row.reason, row.step_us_p50) == ("unsupported", "MPS needs a daemon", None)


def loaded(load: str, more: int, **known: object) -> CoVisit:
    """The latency role beside a load that makes its steps take longer."""
    load_role = role(every(100, 0, 90), Kind.BACKGROUND, slot=1, workload=load)
    return visit(Mechanism.GREEN, role(every(100, 7, 50 + more), slot=0, **known), load_role, load=load, place=9)


def test_interference_is_a_column_of_the_green_row_and_a_sentence() -> None:
    """Median times of a step, waits aside, over that alone on the same partition; the load that hurts most is named first."""
    alone = visit(Mechanism.ALONE, role(every(100, 0, 50), slot=0), place=-1)
    green = visit(Mechanism.GREEN, role(every(100, 5, 50), slot=0), role(every(100, 0, 90), Kind.BACKGROUND, slot=1))
    found = outcomes(META, [alone, green, loaded("compute", 0), loaded("l2", 10), loaded("hbm", 42), loaded("copy", 1)])
    rows = co_rows(found)
    assert len(rows) == 3
    latency = rows[1]
    assert (latency.slowdown, latency.slowdown_compute, latency.slowdown_l2) == (1.1, 1.0, 1.2)
    assert (latency.slowdown_hbm, latency.slowdown_copy) == (1.84, 1.02)
    assert rows[2].slowdown_hbm is None
    assert interference(found) == (
        "decode[] in 20 SMs is hurt most by the HBM-only load beside it: 1.84 times the time of a step alone on the same "
        "partition (L2-only 1.20, copy-engine 1.02, compute-only 1.00)",
    )
    calm = outcomes(META, [alone, green, loaded("hbm", 1)])
    assert "is hurt by none of the loads beside it: at most HBM-only, 1.02 times" in interference(calm)[0]
    failed = replace(loaded("hbm", 1), status=BlockStatus.FAILED, reason="out of memory")
    rows = co_rows(outcomes(META, [alone, green, failed]))
    assert [(row.status, row.reason) for row in rows[3:]] == [("failed", "out of memory")] * 2
    assert rows[1].slowdown_hbm is None


def test_a_load_under_which_the_queue_grows_is_in_the_sentence() -> None:
    """Steps of 290 us that are due every 100 have no percentile, cut off or not: the load that hurts most is not left out."""
    alone = visit(Mechanism.ALONE, role(every(100, 0, 50), slot=0), place=-1)
    green = visit(Mechanism.GREEN, role(every(100, 5, 50), slot=0), role(every(100, 0, 90), Kind.BACKGROUND, slot=1))
    growing = [(i * 100, i * 290, (i + 1) * 290) for i in range(40)]
    for due in (40, 60):
        beside = visit(
            Mechanism.GREEN,
            role(growing, slot=0, due=due),
            role(every(100, 0, 90, 200), Kind.BACKGROUND, slot=1, workload="hbm"),
            load="hbm",
            place=9,
        )
        found = outcomes(META, [alone, green, loaded("l2", 10), beside])
        assert found[-1].row(Kind.LATENCY).saturated == "true"  # type: ignore[union-attr]
        assert co_rows(found)[1].slowdown_hbm == 5.8
        assert interference(found) == (
            "decode[] in 20 SMs is hurt most by the HBM-only load beside it: 5.80 times the time of a step alone on the same "
            "partition (L2-only 1.20)",
        )


def tried(mechanism: Mechanism, rate: float | None, verdict: Verdict, split: str = "", **more: object) -> Outcome:
    """An outcome with a verdict."""
    row = CoRow(role="background", status=Status.OK.value, throughput_per_s=12.34, saturated="false")
    made = CoVisit(mechanism=mechanism, rate_per_s=rate, split=split, **more)  # type: ignore[arg-type]
    return Outcome(made, (row,), verdict)


def test_trials_and_advice() -> None:
    """The highest rate that holds wins, undecided lower ones or not; a closed loop stands for the rate that it reached."""
    green = [
        tried(Mechanism.GREEN, 5.0, Verdict.UNKNOWN, "20"),
        tried(Mechanism.GREEN, 10.0, Verdict.HOLDS, "20"),
        tried(Mechanism.GREEN, 20.0, Verdict.BROKEN, "20"),
    ]
    streams = [tried(Mechanism.STREAMS, 5.0, Verdict.HOLDS), tried(Mechanism.STREAMS, 10.0, Verdict.BROKEN)]
    alone = tried(Mechanism.ALONE, None, Verdict.HOLDS)
    slo = parse_slo("step_p99=5ms")
    best = advice([alone, *streams, *green], slo)
    assert best is not None
    assert (best.mechanism, best.split, best.rate_per_s, best.undecided) == ("green", "20", 10.0, 0)
    assert best.text == "step_p99=5ms: green at 20 SMs holds it up to 10 a second"
    assert advice(green, None) is None
    (closed,) = trials([tried(Mechanism.CHUNKED, None, Verdict.HOLDS, chunk=512)])
    assert (closed.mechanism, closed.rate_per_s) == ("chunked:512", 12.0)


def test_points_that_had_too_few_requests_say_what_they_want() -> None:
    """Ten steps cannot tell a p99: the limit is wanting; a point that failed wants nothing, and is counted apart."""
    few = visit(Mechanism.STREAMS, role(every(1000, 0, 50)), role(every(100, 0, 90), Kind.BACKGROUND), rate_per_s=5.0)
    lost = visit(Mechanism.MPS, *few.roles, status=BlockStatus.FAILED, reason="lost", rate_per_s=5.0)
    slo = parse_slo("step_p99=1ms,ttft_p50=1ms")
    found = outcomes(META, [few, lost], slo)
    assert [each.wanting for each in found] == [slo.limits[:1], ()]
    told = advice(found, slo)
    assert told is not None
    assert (told.decided, told.undecided, told.failed, told.wanting) == (False, 1, 1, slo.limits[:1])


def test_two_workloads_hold_a_rate_together() -> None:
    """One batch that breaks the objectives breaks the rate."""
    pair = [tried(Mechanism.GREEN, 5.0, Verdict.HOLDS, "20"), tried(Mechanism.GREEN, 5.0, Verdict.BROKEN, "20")]
    assert [trial.verdict for trial in trials(pair)] == [Verdict.BROKEN]


def test_scopes_are_told_apart_where_there_are_several() -> None:
    """Trials of two workqueue scopes have two names, those of one scope the mechanism's."""
    two = [
        tried(Mechanism.GREEN, 5.0, Verdict.HOLDS, "20"),
        tried(Mechanism.GREEN, 5.0, Verdict.BROKEN, "20", workqueue=Scope.DEVICE_CTX, concurrency_limit=4),
    ]
    assert [trial.mechanism for trial in trials(two)] == ["green", "green:device_ctx:4"]
    assert [trial.mechanism for trial in trials(two[1:])] == ["green"]
