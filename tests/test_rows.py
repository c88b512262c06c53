"""rows.csv from run.json and the journal: one row per point, and only what was measured has figures."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from types import NoneType
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.bounds import bound
from greenbench.facts import model_facts, peaks
from greenbench.journal import void_reason
from greenbench.rows import derive_rows, point_key, row_labels
from greenbench.schema import (
    Block,
    BlockKind,
    BlockStatus,
    Family,
    Flag,
    KernelSummary,
    Partition,
    Placement,
    Point,
    Row,
    RunMeta,
    Scope,
    SmsMode,
    Status,
    Timing,
)

H200 = model_facts("h200").device
GIB = 1 << 30
LIMITED = {"rounds": 6, "max_rounds": 15, "time_limit_s": 120.0}
IDENTITY = {
    *("run_id", "label", "device", "device_uuid", "driver", "cuda", "nvrtc", "backend", "kernel", "family", "dtype", "params"),
    *("config", "source_digest", "sms_requested", "sms_granted", "sms_observed", "placement", "granularity", "workqueue"),
    *("concurrency_limit", "connections", "mechanism", "role", "timing", "schema", "throttle", "status", "reason"),
}


def point(sms: int | None = 8, kernel: str = "triad", **changes: object) -> Point:
    """Return a point of some SMs, of the full device for None."""
    mode = SmsMode.FULL if sms is None else SmsMode.COUNT
    return Point(kernel, (("n", 268435456),), Partition(mode, sms), **changes)  # type: ignore[arg-type]


def meta(*points: Point, **changes: object) -> RunMeta:
    """Return the run.json of a finished run with these points."""
    kernels = [
        KernelSummary(name="triad", family=Family.MEMORY, dtype="float32", summary="", digest="d0"),
        KernelSummary(name="gemm_bf16", family=Family.GEMM, dtype="bfloat16", summary="", digest="d0"),
    ]
    base = RunMeta(
        run_id="r1",
        created="",
        greenbench="0",
        command="sweep",
        argv=(),
        seed=1,
        device=H200,
        plan={"rounds": 6, "max_rounds": 15},
        kernels=tuple(kernels),
        points=points,
        finished="now",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def block(of: Point, us: float | tuple[float, ...] = 4000.0, **changes: object) -> Block:
    """Return one visit to a point: good unless `changes` say otherwise."""
    sms = of.partition.sms or 132
    samples = us if isinstance(us, tuple) else (us,) * 5
    made = Block(
        seq=0,
        kind=BlockKind.BLOCK,
        round=0,
        attempt=1,
        started=0.0,
        seconds=0.05,
        status=BlockStatus.OK,
        kernel=of.kernel,
        params=of.param_text,
        sms_requested=of.partition.name,
        workqueue=of.partition.workqueue,
        connections=of.connections,
        timing_requested=of.timing,
        timing=Timing.STEADY,
        config="c",
        source_digest="d1",
        sms_granted=sms,
        sms_observed=sms,
        placement=Placement.CONFINED,
        launches_per_sample=1,
        samples_us=samples,
        flops=2.0 * 268435456,
        bytes=3.0 * GIB,
        working_set_bytes=3 * GIB,
        grid=sms * 8,
        ctas_per_sm=8,
        sm_clock_mhz=1980.0,
        launch_host_us=6.2,
        verified_error=0.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def run(of: RunMeta, *blocks: Block) -> list[Row]:
    """Derive the rows of blocks, numbering lines and rounds."""
    seen: dict[str, int] = {}
    numbered = []
    for seq, each in enumerate(blocks):
        seen[each.key] = seen.get(each.key, -1) + 1
        numbered.append(replace(each, seq=seq, round=seen[each.key]))
    return derive_rows(of, numbered)


def figures_of(row: Row) -> dict[str, object]:
    """Return every cell of a row that holds a figure."""
    return {field.name: getattr(row, field.name) for field in fields(Row) if field.name not in IDENTITY}


def only(of: RunMeta, *blocks: Block) -> Row:
    """Derive the one row of a run with one point."""
    (row,) = run(of, *blocks)
    return row


def assert_empty(row: Row) -> None:
    """No figure of any kind is in the row."""
    assert set(figures_of(row).values()) <= {None, ""}, row
    assert row.reason


def test_key_of_point_and_block_agree() -> None:
    """A block finds its point by every part of the identity, also where scope, limit, granularity and connections are set."""
    partition = Partition(SmsMode.COUNT, 8, 2, Scope.DEVICE_CTX, 4)
    full = Point("triad", (("n", 1), ("s", 3.0)), partition, Timing.HOT, False, 8)
    of = block(full, granularity=2, concurrency_limit=4)
    assert point_key(full) == of.key
    for change in ("kernel", "params", "timing", "connections"):
        other = {"kernel": "x", "params": (), "timing": Timing.GRAPH, "connections": 1}[change]
        assert point_key(replace(full, **{change: other})) != of.key


def test_time_is_the_median_over_block_medians() -> None:
    """One block that was slow as a whole, and one slow sample elsewhere, move neither the time nor the minimum."""
    steady = [(3999.0 + i, 4001.0 + i, 4002.0 + i) for i in range(5)]
    samples = [(4000.0, 4001.0, 4002.0, 4003.0, 40000.0), *steady, (9000.0,) * 5]
    row = only(meta(point()), *(block(point(), each) for each in samples))
    assert (row.status, row.rounds, row.samples) == ("ok", 7, 25)
    assert (row.time_us, row.time_us_min) == (4003.0, 3999.0)
    assert (row.time_us_ci_low, row.time_us_ci_high) == (4001.0, 9000.0)
    assert row.noise_pct is not None
    assert row.launch_host_us == 6.2


@pytest.mark.parametrize(("count", "samples"), [(1, 1), (2, 1), (1, 2), (5, 3)])
def test_few_samples_have_no_spread(count: int, samples: int) -> None:
    """With one or two samples (nvbench#392, #402) there is a time and no interval, tail or noise, and no exception."""
    row = only(meta(point()), *[block(point(), (4000.0,) * samples)] * count)
    assert (row.status, row.time_us, row.samples) == ("ok", 4000.0, count * samples)
    assert (row.time_us_ci_low, row.time_us_ci_high, row.time_us_p95, row.time_us_p99) == (None,) * 4
    assert (row.noise_pct is None) == (count * samples < 4)


def test_tails_need_single_launches_and_enough_of_them() -> None:
    """p95 from 1,000 and p99 from 3,000 samples of one launch each; a sample of several launches is a mean and has no tail."""
    ramp = tuple(4000.0 + i for i in range(500))
    cases = ((1, 1, (None, None)), (2, 1, (4474.0, None)), (6, 1, (4474.0, 4494.0)), (6, 2, (None, None)))
    for count, launches, expected in cases:
        row = only(meta(point()), *[block(point(), ramp, launches_per_sample=launches)] * count)
        assert (row.time_us_p95, row.time_us_p99) == expected, (count, launches)


def test_rates_cycles_and_bound() -> None:
    """Rates come from the declared work, cycles from the clock in the partition, and the bound is that of `bounds`."""
    row = only(meta(point(132)), *[block(point(132), 772.0)] * 6)
    assert row.gb_per_s == pytest.approx(3 * GIB / 772e-6 / 1e9)
    assert row.tflop_per_s == pytest.approx(2 * 268435456 / 772e-6 / 1e12)
    assert row.cycles == pytest.approx(772 * 1980)
    limit = bound(
        H200,
        peaks(H200),
        family="memory",
        dtype="float32",
        flops=2.0 * 268435456,
        bytes=3.0 * GIB,
        sms=132,
        working_set_bytes=3 * GIB,
        sm_clock_mhz=1980.0,
        grid=132 * 8,
        ctas_per_sm=8,
    )
    assert limit is not None
    assert (row.bound_us, row.bound_by) == (limit.us, limit.by)
    assert row.bound_pct == pytest.approx(100 * limit.us / 772)
    assert 80 < row.bound_pct < 95


def test_a_kernel_that_measures_itself_has_a_latency() -> None:
    """latency_cycles is the median of what was reported, latency_ns is that over the measured clock; no clock, no ns."""
    chase = replace(point(), kernel="chase")
    visits = [block(chase, flops=None, bytes=0.0, reported=(274.0, 276.0, 275.0))] * 6
    row = only(meta(chase), *visits)
    assert row.latency_cycles == 275.0
    assert row.latency_ns == pytest.approx(275e3 / 1980)
    assert (row.tflop_per_s, row.gb_per_s, row.bytes) == (None, None, None), "no work is an empty cell, not 0"
    blind = only(meta(chase), *(replace(each, sm_clock_mhz=None) for each in visits))
    assert (blind.latency_cycles, blind.latency_ns, blind.cycles, blind.sm_clock_mhz) == (275.0, None, None, None)


def test_every_point_has_one_row_in_order() -> None:
    """Points that were never visited, and kernels that nobody described, are rows too; blocks of no point are nobody's."""
    rows = run(meta(point(8), point(16), point(kernel="new")), block(point(16)), block(point(64)))
    assert [(row.kernel, row.sms_requested, row.status) for row in rows] == [
        ("triad", "8", "failed"),
        ("triad", "16", "ok"),
        ("new", "8", "failed"),
    ]
    assert rows[0].reason == "not measured: the run ended before this point was visited"
    assert rows[0].source_digest == "d0"
    assert rows[0].label == "triad[n=268435456]@8/driver_default/auto"
    assert rows[1].label == "triad[n=268435456]@16/driver_default/steady"
    assert rows[1].timing == "steady"
    assert_empty(rows[0])


def test_identity_of_a_row() -> None:
    """Device, driver, partition and work are in every row, ok or not."""
    bad = block(point(), status=BlockStatus.FAILED, reason="timeout, 5 s", samples_us=(), attempt=2)
    for row in (only(meta(point()), block(point())), only(meta(point()), bad)):
        assert (row.run_id, row.device, row.device_uuid, row.backend) == ("r1", H200.name, H200.uuid, "modelled")
        assert (row.driver, row.cuda) == ("13.0", "13.0")
        assert (row.family, row.dtype, row.params, row.config, row.source_digest) == (
            *("memory", "float32", "n=268435456", "c", "d1"),
        )
        assert (row.sms_requested, row.sms_granted, row.sms_observed, row.placement) == ("8", 8, 8, "confined")
        assert (row.workqueue, row.schema) == ("driver_default", 1)


def failed(of: Point, attempt: int, reason: str = "timeout, 5 s") -> Block:
    """Return a visit that gave nothing."""
    return block(of, (), status=BlockStatus.FAILED, attempt=attempt, reason=reason, throttle="thermal")


@pytest.mark.parametrize(
    ("outcomes", "status", "reason"),
    [
        ("ok ok", "ok", ""),
        ("fail1", "failed", "timeout, 5 s"),
        ("fail1 ok", "ok", ""),
        ("fail1 fail2", "failed", "timeout, 5 s"),
        ("ok fail1 fail2", "failed", "timeout, 5 s"),
        ("ok fail1", "ok", ""),
        ("fail1 fail2 ok", "ok", ""),
        ("unsupported", "unsupported", "needs driver 13.1, this is 13.0"),
        ("discarded discarded", "failed", "throttled: thermal"),
        ("ok discarded", "ok", ""),
        ("discarded ok", "ok", ""),
        ("empty", "failed", "no samples: every block of this point is empty"),
    ],
)
def test_the_last_word_decides(outcomes: str, status: str, reason: str) -> None:
    """A retry that works is ok, two failures are failed, discarded blocks fail a point that has no others (nvbench#231)."""
    of = point()
    visits = {
        "ok": block(of),
        "fail1": failed(of, 1),
        "fail2": failed(of, 2),
        "unsupported": block(of, (), status=BlockStatus.UNSUPPORTED, reason="needs driver 13.1, this is 13.0"),
        "discarded": block(of, status=BlockStatus.DISCARDED, reason="throttled: thermal", throttle="thermal"),
        "empty": block(of, ()),
    }
    row = only(meta(of), *(visits[word] for word in outcomes.split()))
    assert (row.status, row.reason) == (status, reason)
    if status != "ok":
        assert_empty(row)
    else:
        assert row.samples == 5 * outcomes.split().count("ok")
        assert row.throttle == ""


def test_a_leak_fails_the_row_whatever_else_was_measured() -> None:
    """A census that differs from the grant fails the point even if later blocks were confined, and stays visible in the row."""
    leak = block(point(), placement=Placement.LEAKED, sms_observed=132)
    row = only(meta(point()), block(point()), leak, block(point()))
    assert (row.status, row.placement, row.sms_granted, row.sms_observed) == ("failed", "leaked", 8, 132)
    assert row.reason == "leaked: 132 SMs were seen where 8 are granted"
    assert_empty(row)


def test_impossible_figures_are_failed_and_no_base_of_a_curve() -> None:
    """A rate above the bus or the tensor peak is no figure (helion#2994), and speed-ups are taken without it."""
    of = meta(point(8), point(16), point(32))
    rows = run(of, block(point(8), 5.0), *[block(point(16), 2000.0)] * 2, block(point(32), 1000.0))
    assert rows[0].status == "failed"
    assert rows[0].reason.startswith("impossible: ")
    assert_empty(rows[0])
    assert [row.speedup for row in rows] == [None, 1.0, 2.0]
    nothing = only(meta(point()), block(point(), 0.0))
    assert nothing.reason == "impossible: a launch took 0.0 us; the events are not around the work"
    assert_empty(nothing)


def test_above_the_link_is_kept_with_a_flag() -> None:
    """A figure above the bound of its SMs, but not above the bus, is kept and marked."""
    row = only(meta(point(8)), *[block(point(8), 2000.0)] * 6)
    assert (row.status, row.flags, row.bound_by) == ("ok", "above_bound", "link")


def test_speedup_is_within_one_curve() -> None:
    """The base is the smallest ok grant of the same kernel, parameters, scope and connections; primary is apart."""
    primary = replace(point(), partition=Partition(SmsMode.PRIMARY))
    more = replace(point(8), connections=2)
    points = (point(16), point(8), point(None), primary, more, point(8, "gemm_bf16"))
    times = (2000.0, 4000.0, 1000.0, 900.0, 5000.0, 6000.0)
    rows = run(meta(*points), *(block(each, us) for each, us in zip(points, times, strict=True)))
    assert [row.speedup for row in rows] == [2.0, 1.0, 4.0, None, 1.0, 1.0]
    assert rows[2].efficiency_pct == pytest.approx(100 * 4 * 8 / 132)
    assert rows[1].efficiency_pct == 100.0


def test_a_timing_that_auto_chose_does_not_cut_a_curve() -> None:
    """Steady on few SMs and graph on many is one curve where `auto` chose both; timings that were asked for are two curves."""
    chosen = (point(8), point(16), point(None))
    ways = (Timing.STEADY, Timing.STEADY, Timing.GRAPH)
    times = (4000.0, 2000.0, 1000.0)
    rows = run(meta(*chosen), *(block(p, us, timing=way) for p, us, way in zip(chosen, times, ways, strict=True)))
    assert [row.speedup for row in rows] == [1.0, 2.0, 4.0]
    assert [row.timing for row in rows] == ["steady", "steady", "graph"]
    asked = [replace(each, timing=way) for each, way in zip(chosen, ways, strict=True)]
    rows = run(meta(*asked), *(block(p, us, timing=p.timing) for p, us in zip(asked, times, strict=True)))
    assert [row.speedup for row in rows] == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("family", [Family.LATENCY, Family.PROBE])
def test_what_does_not_divide_its_work_has_no_speedup(family: Family) -> None:
    """A chase is as fast on 8 SMs as on 16: a speed-up of 1 and an efficiency of 50 % would say nothing."""
    summary = KernelSummary(name="chase", family=family, dtype="int64", summary="", digest="")
    points = (point(8, "chase"), point(16, "chase"))
    rows = run(meta(*points, kernels=(summary,)), *(block(each, 900.0, flops=None, bytes=None) for each in points))
    assert [(row.status, row.speedup, row.efficiency_pct) for row in rows] == [("ok", None, None)] * 2


def test_flags_are_joined_and_seen_over_blocks() -> None:
    """Flags of any block, two modes, an unsteady clock and the profiler's mark are one sorted list."""
    visits = [block(point(), 4000.0 + 400 * (i % 2), sm_clock_mhz=1980.0 - 60 * (i % 2)) for i in range(8)]
    visits[3] = replace(visits[3], flags=(Flag.REMAINDER, Flag.POWER_CAPPED))
    row = only(meta(point(), profiled=True), *visits)
    assert row.flags == "power_capped;clock_unstable;bimodal;remainder;profiled"
    steady = only(meta(point()), *(block(point(), sm_clock_mhz=1980.0 - 20 * (i % 2)) for i in range(8)))
    assert steady.flags == ""


def test_evidence_is_what_the_kept_blocks_saw() -> None:
    """Medians over blocks; energy only from windows of 2 s; throttle reasons once each, not those of discarded blocks."""
    visits = [block(point(), power_w=300.0 + i, mem_clock_mhz=3201.0, temperature_c=40.0, energy_mj=9.0) for i in range(3)]
    visits[1] = replace(visits[1], throttle="power_cap;idle", seconds=2.5, energy_mj=700.0)
    visits[2] = replace(visits[2], throttle="power_cap")
    gone = block(point(), status=BlockStatus.DISCARDED, throttle="thermal")
    row = only(meta(point()), *visits, gone)
    assert (row.power_w, row.mem_clock_mhz, row.temperature_c, row.throttle) == (301.0, 3201.0, 40.0, "power_cap;idle")
    assert row.energy_mj == 700.0
    assert only(meta(point()), visits[0]).energy_mj is None


def test_void_lines_take_blocks_back() -> None:
    """Blocks named by a void line do not count; a point that has no others says why; sentinels are nobody's."""
    of = meta(point(8), point(16))
    void = block(point(8), (), kind=BlockKind.VOID, reason=void_reason([1, 2], "sentinel off by 1.4 %"))
    sentinel = block(point(8), 1.0, kind=BlockKind.SENTINEL)
    blocks = [block(point(8)), block(point(8), 9000.0), block(point(16)), sentinel, void]
    rows = run(of, *blocks)
    assert (rows[0].time_us, rows[0].samples) == (4000.0, 5)
    assert (rows[1].status, rows[1].sms_granted) == ("failed", 16)
    assert rows[1].reason.startswith("drift: all 1 blocks were taken back")
    assert_empty(rows[1])
    assert run(of, *blocks, block(point(16)))[1].status == "ok", "and may be measured again"


def test_blocks_that_are_kept_although_the_sentinel_moved_are_flagged() -> None:
    """A drift line takes nothing back: its points keep their figures, with the flag; others have none."""
    of = meta(point(8), point(16))
    drift = block(point(8), (), kind=BlockKind.DRIFT, reason=void_reason([1], "the sentinel moved"))
    rows = run(of, block(point(16)), block(point(8)), block(point(8)), drift)
    assert [(row.status, row.flags, row.samples) for row in rows] == [("ok", "drifted", 10), ("ok", "", 5)]


@pytest.mark.parametrize(
    ("us", "count", "changes", "reason"),
    [
        (lambda i: 4000.0, 6, {}, "precise"),
        (lambda i: 4000.0 + 100 * i, 15, {}, "max_rounds"),
        (lambda i: 4000.0 + 100 * i, 7, {"plan": LIMITED}, "time_limit"),
        (lambda i: 4000.0 + 100 * i, 7, {}, "max_rounds"),
        (lambda i: 4000.0 + 100 * i, 7, {"finished": ""}, "interrupted"),
        (lambda i: 4000.0, 3, {"plan": {"rounds": 3, "max_rounds": 3}}, "max_rounds"),
        (lambda i: 4000.0, 7, {"plan": LIMITED | {"rounds": 8}}, "time_limit"),
        (lambda i: 4000.0, 7, {"plan": LIMITED | {"rounds": 8}, "finished": ""}, "interrupted"),
        (lambda i: 4000.0, 7, {"plan": LIMITED, "finished": ""}, "precise"),
    ],
)
def test_why_a_point_stopped(us, count: int, changes: dict[str, object], reason: str) -> None:  # type: ignore[no-untyped-def]
    """The stop reason is read off the journal: a half-width of 0.5 % after the planned rounds, the last round, time, or user."""
    row = only(meta(point(), **changes), *(block(point(), us(i)) for i in range(count)))
    assert row.stop_reason == reason


def test_a_point_stopped_by_throttling_says_so() -> None:
    """A last visit that was discarded is why there are no more, and the row carries the flag; so it is for idle clocks."""
    noisy = [block(point(), 4000.0 + 100 * i) for i in range(3)]
    hot = block(point(), status=BlockStatus.DISCARDED, reason="throttled: hw_thermal")
    idle = replace(hot, reason="idle clocks during the block")
    row = only(meta(point()), *noisy, hot)
    assert (row.status, row.stop_reason, row.flags, row.rounds) == ("ok", "throttled", "discarded", 3)
    row = only(meta(point()), *noisy, hot, idle)
    assert (row.stop_reason, row.flags) == ("idle", "discarded")
    assert only(meta(point()), *noisy, hot, noisy[0]).flags == "", "what was taken again in the end is whole"


def test_an_interrupted_run_tells_given_up_points_from_unfinished_ones() -> None:
    """Three blocks thrown away in a row ended the point before Ctrl-C came; one does not."""
    noisy = [block(point(), 4000.0 + 100 * i) for i in range(3)]
    hot = block(point(), status=BlockStatus.DISCARDED, reason="throttled: hw_thermal")
    row = only(meta(point(), finished=""), *noisy, hot)
    assert (row.stop_reason, row.flags) == ("interrupted", "")
    row = only(meta(point(), finished=""), *noisy, hot, hot, hot)
    assert (row.stop_reason, row.flags) == ("throttled", "discarded")


def test_launches_for_a_profiler_are_ok_and_have_no_figures() -> None:
    """`--profile N` takes no timing: its points are ok, marked, and empty."""
    row = only(meta(point(), profiled=True), block(point(), (), flags=(Flag.PROFILED,)))
    assert (row.status, row.flags, row.reason, row.placement) == ("ok", "profiled", "", "confined")
    assert {value for name, value in figures_of(row).items() if name != "flags"} <= {None, ""}


def test_labels_for_the_samples() -> None:
    """Each key has the label of its row."""
    of = meta(point(8), point(16))
    blocks = [block(point(8))]
    labels = row_labels(of, blocks)
    assert [labels[point_key(each)] for each in of.points] == [row.label for row in derive_rows(of, blocks)]


def test_yardstick_rows_are_a_curve_of_their_own() -> None:
    """A vendor kernel beside ours has its own name, and with it its own rows and base."""
    summary = KernelSummary(
        name="gemm_bf16.cublas", family=Family.GEMM, dtype="bfloat16", summary="", digest="", yardstick_of="gemm_bf16"
    )
    points = (point(8, "gemm_bf16"), point(8, "gemm_bf16.cublas"), point(16, "gemm_bf16.cublas"))
    of = meta(*points, kernels=(summary,))
    rows = run(of, *(block(each, us) for each, us in zip(points, (9000.0, 8000.0, 4000.0), strict=True)))
    assert [row.speedup for row in rows] == [1.0, 1.0, 2.0]
    assert [row.family for row in rows] == ["", "gemm", "gemm"]


def beside(*ways: str, sms: int = 8) -> list[Point]:
    """Return the points of our GEMM and of its yardsticks on one partition."""
    return [point(sms, "gemm_bf16"), *(point(sms, f"gemm_bf16.{way}") for way in ways)]


def test_the_fastest_yardstick_of_a_point_is_best() -> None:
    """Each partition has its own; our kernel is never one, however fast; other flags stay in front."""
    small, large = beside("cublas", "cublas_sms", "cublaslt"), beside("cublas", "cublas_sms", "cublaslt", sms=16)
    times = dict(zip([*small, *large], (100.0, 9000.0, 8000.0, 8500.0, 100.0, 4000.0, 4500.0, 3900.0), strict=True))
    capped = {small[2]: (Flag.POWER_CAPPED,)}
    rows = run(meta(*times), *(block(each, us, flags=capped.get(each, ())) for each, us in times.items()))
    assert [row.flags for row in rows] == ["", "", "power_capped;best", "", "", "", "", "best"]


@pytest.mark.parametrize(
    ("ways", "broken", "best"),
    [
        (("cublaslt",), (), []),
        (("torch",), (), []),
        (("cublas", "cublaslt"), (), ["gemm_bf16.cublas"]),
        (("cublas", "cublaslt"), ("cublas",), ["gemm_bf16.cublaslt"]),
        (("cublas", "cublaslt"), ("cublas", "cublaslt"), []),
    ],
)
def test_only_what_was_measured_beside_another_is_best(ways: tuple[str, ...], broken: tuple[str, ...], best: list[str]) -> None:
    """One yardstick is no choice; where another failed, what is left was the best there was."""
    points = beside(*ways)
    times = [9000.0, 8000.0, 8500.0][: len(points)]
    of = {f"gemm_bf16.{way}" for way in broken}
    blocks = [
        block(each, (), status=BlockStatus.FAILED, attempt=2, reason="incorrect") if each.kernel in of else block(each, us)
        for each, us in zip(points, times, strict=True)
    ]
    assert [row.kernel for row in run(meta(*points), *blocks) if Flag.BEST in row.flags] == best


def test_points_with_other_params_scopes_or_timings_have_a_best_of_their_own() -> None:
    """Yardsticks are compared where all else is the same: nothing here stands beside another of its kind."""
    alone = [
        point(8, "gemm_bf16.cublas"),
        point(8, "gemm_bf16.cublaslt", timing=Timing.COLD_CLEAN),
        point(8, "gemm_bf16.cublaslt", connections=8),
        replace(point(8, "gemm_bf16.cublaslt"), params=(("n", 4),)),
        point(8, "gemm_fp32.cublaslt"),
        point(None, "gemm_bf16.cublaslt"),
    ]
    rows = run(meta(*alone), *(block(each, 8000.0) for each in alone))
    assert {row.status for row in rows} == {"ok"}
    assert {row.flags for row in rows} == {""}


@pytest.mark.parametrize("name", ["gemm_bf16.cublas", "gemm_bf16.torch"])
@pytest.mark.parametrize("grid", [0, 132 * 3 + 1])
def test_a_yardstick_is_not_bound_by_our_tiles(name: str, grid: int) -> None:
    """Whatever grid is recorded beside a vendor's kernel, its bound is that of even work; ours is longer by its last wave."""
    of = meta(point(132, "gemm_bf16"), point(132, name))
    work = {"flops": 2.0 * 8192**3, "bytes": 6.0 * 8192**2, "working_set_bytes": 6 * 8192**2}
    ours, theirs = run(
        replace(of, kernels=(*of.kernels, replace(of.kernels[1], name=name))),
        block(of.points[0], 3000.0, grid=132 * 3 + 1, ctas_per_sm=1, **work),
        block(of.points[1], 3000.0, grid=grid, ctas_per_sm=None, **work),
    )
    assert (ours.bound_by, theirs.bound_by) == ("waves", "compute")
    assert ours.bound_us == pytest.approx((theirs.bound_us or 0) * 4 * 132 / (132 * 3 + 1))


visits = st.builds(
    block,
    st.sampled_from([point(8), point(16), point(None)]),
    st.lists(st.floats(0, 1e9, allow_nan=False), max_size=8).map(tuple),
    status=st.sampled_from(BlockStatus),
    kind=st.sampled_from([BlockKind.BLOCK, BlockKind.SENTINEL]),
    attempt=st.integers(1, 3),
    placement=st.none() | st.sampled_from(Placement),
    sms_granted=st.none() | st.integers(1, 132),
    flops=st.none() | st.floats(0, 1e15),
    bytes=st.none() | st.floats(0, 1e12),
    working_set_bytes=st.none() | st.integers(0, 10**11),
    sm_clock_mhz=st.none() | st.floats(1, 3000) | st.just(0.0),
    launches_per_sample=st.none() | st.integers(1, 240),
    reported=st.lists(st.floats(0, 1e6), max_size=2).map(tuple),
)


@given(blocks=st.lists(visits, max_size=12))
@settings(max_examples=150)
def test_any_journal_gives_one_honest_row_per_point(blocks: list[Block]) -> None:
    """Whatever a journal holds: one row per point, figures finite and only where ok, a reason exactly where not, no exception."""
    of = meta(point(8), point(16), point(None), point(24))
    rows = run(of, *blocks)
    assert [row.sms_requested for row in rows] == ["8", "16", "full", "24"]
    for row in rows:
        assert (row.reason == "") == (row.status == Status.OK)
        if row.status != Status.OK:
            assert_empty(row)
        assert all(math.isfinite(value) for value in figures_of(row).values() if isinstance(value, float))
    assert rows[3].status == Status.FAILED


def test_identity_columns_here_are_all_columns_that_are_no_figures() -> None:
    """The list of this file is complete: every other column is optional or a text that is empty by default."""
    hints = get_type_hints(Row)
    for field in fields(Row):
        if field.name not in IDENTITY:
            assert NoneType in get_args(hints[field.name]) or field.default == "", field.name
