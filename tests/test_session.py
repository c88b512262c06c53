"""A session on the modelled device, in this process: what is proved before a block, and what a block carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenbench.catalog import library
from greenbench.errors import FailedError, PointError, StickyError, UnsupportedError
from greenbench.gpu import open_gpu
from greenbench.gpu.modelled.work import ModelledWork
from greenbench.measure import Session, sampling
from greenbench.measure.session import base_kernel
from greenbench.schema import (
    BlockKind,
    BlockStatus,
    Family,
    Flag,
    Grant,
    Partition,
    Placement,
    Point,
    Scope,
    SmsMode,
    Timing,
)
from tests.staging import SMALL, at, model, sized

FULL = Partition(SmsMode.FULL)
PRIMARY = Partition(SmsMode.PRIMARY)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Open sessions on models with faults; all are closed afterwards, twice, which must be safe."""
    opened: list[Session] = []

    def build(*faults: dict[str, Any], device: str = "", **facts: Any) -> Session:
        made = Session(open_gpu(device or model(tmp_path, *faults, **facts)), library())
        opened.append(made)
        return made

    yield build
    for each in opened:
        each.close()
        each.close()


def ready(session: Session, *points: Point) -> Session:
    """Open the partitions of the points and prepare them."""
    session.open(list(dict.fromkeys(point.partition for point in points)))
    for point in points:
        session.prepare(point)
    return session


# -- opening ---------------------------------------------------------------------------------------------------------------


def test_opening_gives_grants_and_refusals_in_order(session: Any) -> None:
    """H01: one list in, one list out; what the device refuses is that partition's outcome and nobody else's."""
    found = session(sm_count=48, refuse=[24]).open([sized(8), sized(24), FULL, sized(9)])
    assert [getattr(item, "sms", None) for item in found] == [8, None, 48, 16]
    refusal = found[1]
    assert isinstance(refusal, UnsupportedError)
    assert "915" in str(refusal)
    assert str(refusal).endswith("16 and 32")
    assert all(item.placement is Placement.CONFINED for item in found if isinstance(item, Grant))
    assert all(len(item.smids) == item.sms for item in found if isinstance(item, Grant))


def test_a_partition_is_opened_once(session: Any) -> None:
    """Asking again gives the same grant from the same lane; new ones are added."""
    made = session()
    (first,) = made.open([sized(8)])
    again, other = made.open([sized(8), sized(16)])
    assert again is first
    assert set(first.smids) < set(other.smids)


def test_a_scope_that_the_driver_lacks_is_refused(session: Any) -> None:
    """H11: on a 13.0 driver the point is unsupported with both versions, and its plain sibling opens."""
    refused, plain = session().open([sized(8, workqueue=Scope.GREEN_CTX_BALANCED), sized(8)])
    assert str(refused) == "workqueue configuration needs driver 13.1, this is 13.0"
    assert plain.sms == 8
    granted = session(device="model:h200@13.1").open([sized(8, workqueue=Scope.GREEN_CTX_BALANCED, concurrency_limit=4)])[0]
    assert (granted.workqueue, granted.concurrency_limit) == ("green_ctx_balanced", 4)


def test_a_leak_at_opening_fails_the_partition(session: Any) -> None:
    """A census with one SM more than granted: the grant tells it, preparing is refused with both numbers, others work."""
    made = session({"kind": "leak", "sms": 16})
    leaked, fine = made.open([sized(16), sized(8)])
    assert (leaked.placement, leaked.sms, len(leaked.smids)) == (Placement.LEAKED, 16, 17)
    with pytest.raises(FailedError, match="^leaked: 16 SMs granted, the census saw 17"):
        made.prepare(at(16))
    assert made.prepare(at(8)).grant is fine


def test_a_lane_whose_timer_lies_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spin of 100 us that reads as 5 us (events on another stream, H19) fails the partition before anything is timed."""
    real = sampling.gated
    monkeypatch.setattr(sampling, "gated", lambda *a: (real(*a)[0] / 20, 0.0))
    made = session()
    made.open([sized(8)])
    with pytest.raises(FailedError, match=r"^timer self-test: a spin of 100 us read as 5\.\d us"):
        made.prepare(at(8))


@pytest.mark.parametrize(("off", "fine"), [(0.0, True), (2.5e-6, True), (3.5e-6, False)])
def test_the_self_test_allows_one_per_cent_and_two_us(
    off: float, fine: bool, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 us may read 3 us more and not 3.5 us."""
    monkeypatch.setattr(sampling, "gated", lambda gpu, lane, work, n: (n * (work._shape.lasts_ns * 1e-9 + off), 0.0))
    made = session()
    made.open([sized(8)])
    monkeypatch.undo()
    if fine:
        assert made.prepare(at(8)).grant.sms == 8
    else:
        with pytest.raises(FailedError, match="timer self-test"):
            made.prepare(at(8))


# -- preparing -------------------------------------------------------------------------------------------------------------


def test_a_kernel_file_may_say_what_auto_is(session: Any) -> None:
    """What lives in the L2 is timed hot although it streams; a way that is asked for stands."""
    made, params = session(), dict(library()["l2_read"].params)
    auto, steady = (at(8, "l2_read", timing, **params) for timing in (Timing.AUTO, Timing.STEADY))
    ready(made, auto, steady)
    assert [made.prepare(point).timing for point in (auto, steady)] == [Timing.HOT, Timing.STEADY]


def test_preparing_settles_timing_and_sizes(session: Any) -> None:
    """`auto` is resolved by what the kernel takes on this lane: graph below 20 us, steady above, hot for latency kernels."""
    made = session()
    short, long = at(8, timing=Timing.AUTO), at(8, timing=Timing.AUTO, n=1 << 28)
    chase = at(8, "chase", Timing.AUTO, **dict(library()["chase"].params))
    ready(made, short, long, chase)
    assert [made.prepare(point).timing for point in (short, long, chase)] == [Timing.GRAPH, Timing.STEADY, Timing.HOT]
    prepared = made.prepare(long)
    assert (prepared.launches_per_sample, prepared.working_set_bytes) == (1, 2 * 4 << 28)
    assert prepared.source_digest == library()["copy"].for_arch("sm_90a").digest
    assert prepared.bytes == 8 << 28
    assert prepared.launch_us == pytest.approx(prepared.block_s / prepared.samples_per_block * 1e6, rel=0.2)


def test_an_earlier_resolution_is_repeated(session: Any) -> None:
    """After a crash or on --resume a point keeps the timing of its first blocks, whatever the estimate says now."""
    made = session()
    made.open([sized(8)])
    assert made.prepare(at(8, timing=Timing.AUTO), Timing.STEADY).timing is Timing.STEADY


def test_hot_and_cold_stay_on_one_buffer_set(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only steady and graph rotate past the L2; what is hot or flushed keeps its buffers."""
    calls: list[bool] = []
    monkeypatch.setattr(ModelledWork, "rotate", lambda self, on: calls.append(on))
    made = session()
    made.open([sized(8)])
    for timing in (Timing.STEADY, Timing.GRAPH):
        made.prepare(at(8, timing=timing))
    assert False not in calls
    for timing in (Timing.HOT, Timing.COLD_CLEAN, Timing.COLD_DIRTY):
        calls.clear()
        made.prepare(at(8, timing=timing))
        assert calls == [False]


def test_a_wrong_result_has_no_time(session: Any) -> None:
    """Verification comes before timing: the point fails as incorrect, and cannot be visited."""
    made = session({"kind": "wrong_result", "kernel": "copy"})
    made.open([sized(8)])
    with pytest.raises(FailedError, match=r"^incorrect: error 1 above 0;"):
        made.prepare(at(8))
    with pytest.raises(KeyError):
        made.block(at(8), round_=1)
    assert made.prepare(at(8, "triad")).verified_error is None


def test_memory_that_does_not_suffice_is_the_points(session: Any) -> None:
    """Out of memory fails the point and leaves the session usable; a kernel too large for the device says what is missing."""
    made = session({"kind": "out_of_memory", "kernel": "triad"})
    made.open([sized(8)])
    with pytest.raises(FailedError, match="^out of memory") as raised:
        made.prepare(at(8, "triad"))
    assert not isinstance(raised.value, StickyError)
    with pytest.raises(FailedError, match=r"out of memory: copy needs \d+\.\d\d GiB"):
        made.prepare(at(8, n=1 << 37))
    assert made.prepare(at(8)).grant.sms == 8


def test_a_sticky_error_is_told_apart(session: Any) -> None:
    """An illegal address takes the context: the error says that the process must be replaced, and nothing works afterwards."""
    made = session({"kind": "sticky", "kernel": "triad"})
    made.open([sized(8)])
    for point in (at(8, "triad"), at(8)):
        with pytest.raises(StickyError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            made.prepare(point)


def test_a_yardstick_is_prepared_beside_its_kernel(session: Any) -> None:
    """`gemm_bf16.cublas` has the params of its kernel, no digest of our source, and a config of its own."""
    params = {"m": 512, "n": 512, "k": 512}
    known = {**dict(library()["gemm_bf16"].params), **params}
    ours, theirs = at(8, "gemm_bf16", Timing.AUTO, **known), at(8, "gemm_bf16.cublas", Timing.AUTO, **known)
    made = ready(session(), ours, theirs)
    assert made.prepare(theirs).source_digest == ""
    assert made.prepare(theirs).flops == made.prepare(ours).flops == 2 * 512**3
    assert made.prepare(theirs).config != made.prepare(ours).config
    with pytest.raises(UnsupportedError, match="names no yardstick"):
        made.prepare(at(8, "copy.cublas"))


def test_a_yardstick_is_the_one_that_the_file_names(session: Any) -> None:
    """`rmsnorm.torch` stands beside rmsnorm, cuBLAS does not, and torch does not stand beside a GEMM."""
    params = dict(library()["rmsnorm"].params)
    made = ready(session(), at(8, "rmsnorm.torch", Timing.AUTO, **params))
    assert made.prepare(at(8, "rmsnorm.torch", Timing.AUTO, **params)).timing is Timing.STEADY
    for wrong in ("rmsnorm.cublas", "gemm_bf16.torch", "gemm_bf16.cublass"):
        with pytest.raises(UnsupportedError, match=f"{wrong.partition('.')[0]} names no yardstick '{wrong.partition('.')[2]}'"):
            made.prepare(at(8, wrong, Timing.AUTO, **dict(library()[wrong.partition(".")[0]].params)))


def test_what_a_yardstick_is_called() -> None:
    """The suffix is a word of its own; a kernel whose name merely ends alike is no yardstick."""
    assert base_kernel("gemm_bf16.cublas") == ("gemm_bf16", "cublas")
    assert base_kernel("rmsnorm.torch") == ("rmsnorm", "torch")
    assert base_kernel("my_cublas") == ("my_cublas", "")
    assert Family.GEMM.value == "gemm"


def test_a_partition_that_was_not_opened(session: Any) -> None:
    """Nothing is opened on the side: preparing without a lane is an error of ours that says so."""
    with pytest.raises(PointError, match="was not opened"):
        session().prepare(at(8))


# -- visiting --------------------------------------------------------------------------------------------------------------


def test_a_block_carries_identity_proof_and_evidence(session: Any) -> None:
    """One visit gives everything a row needs: grant and census of this very block, samples, clock and NVML reading."""
    point = at(16, timing=Timing.STEADY, n=1 << 26)
    made = ready(session(), point)
    block = made.block(point, round_=3, attempt=2)
    assert (block.kernel, block.params, block.sms_requested) == ("copy", f"n={1 << 26}", "16")
    assert (block.kind, block.status, block.round, block.attempt) == (BlockKind.BLOCK, BlockStatus.OK, 3, 2)
    assert (block.sms_granted, block.sms_observed, block.placement) == (16, 16, Placement.CONFINED)
    assert int(block.smids, 16).bit_count() == 16
    assert len(block.samples_us) == made.prepare(point).samples_per_block
    assert block.launches_per_sample == made.prepare(point).launches_per_sample
    assert block.sm_clock_mhz == pytest.approx(made.device.max_sm_clock_mhz, rel=0.15)
    assert (block.verified_error, block.throttle, block.flags) == (None, "", ())
    assert block.seconds > 0
    assert block.launch_host_us is not None


def test_times_scale_with_the_partition(session: Any) -> None:
    """The same copy takes about four times as long on 8 SMs as on 32: samples are microseconds per launch of this lane."""
    few, many = at(8, n=1 << 26), at(32, n=1 << 26)
    made = ready(session(), few, many)
    slow, fast = (min(made.block(point, round_=1).samples_us) for point in (few, many))
    assert slow / fast == pytest.approx(4, rel=0.2)
    assert slow == pytest.approx(made.prepare(few).launch_us, rel=0.05)


@pytest.mark.parametrize("timing", [Timing.STEADY, Timing.HOT, Timing.COLD_CLEAN, Timing.COLD_DIRTY, Timing.GRAPH])
def test_every_way_of_timing_agrees(timing: Timing, session: Any) -> None:
    """H19: a spin of 1 ms reads as 1 ms in each of them, per launch, within 1 % and 2 us."""
    spin = library()["spin"]
    point = at(8, "spin", timing, **{**dict(spin.params), "ns": 1_000_000})
    made = ready(session(), point)
    block = made.block(point, round_=1)
    assert block.timing is timing
    assert block.samples_us == pytest.approx([1000.0] * len(block.samples_us), abs=12)


def test_a_kernel_that_measures_itself_reports_per_unit(session: Any) -> None:
    """The chase reports cycles per hop in every sample."""
    known = {**dict(library()["chase"].params), "bytes": 16384}
    point = at(8, "chase", Timing.AUTO, **known)
    block = ready(session(), point).block(point, round_=1)
    assert len(block.reported) == len(block.samples_us)
    assert block.reported == pytest.approx([33.7] * len(block.reported), abs=2)


@pytest.mark.parametrize("timing", [Timing.STEADY, Timing.GRAPH])
def test_a_leak_while_measuring_fails_the_block(timing: Timing, session: Any) -> None:
    """The census of the block itself, the graph's included, is compared with the grant: leaked is failed, with both numbers."""
    point = at(8, timing=timing)
    made = ready(session({"kind": "leak", "kernel": "copy", "at_block": 2}), point)
    first, second = (made.block(point, round_=round_) for round_ in (1, 2))
    assert (first.status, first.placement) == (BlockStatus.OK, Placement.CONFINED)
    assert (second.status, second.placement) == (BlockStatus.FAILED, Placement.LEAKED)
    assert (second.sms_granted, second.sms_observed) == (8, 9)
    assert second.reason == "leaked: 8 SMs granted, CTAs ran on 9"


def test_evidence_decides_whether_a_block_counts(session: Any) -> None:
    """A throttled block is discarded, a capped or contended one kept and flagged; each says why."""
    point = at(8, n=1 << 26)
    throttled = ready(session({"kind": "throttle", "kernel": "copy", "at_block": 1}), point).block(point, round_=1)
    assert throttled.status is BlockStatus.DISCARDED
    assert throttled.reason.startswith("throttled: ")
    assert "thermal" in throttled.throttle
    capped = ready(session({"kind": "power_cap", "kernel": "copy"}), point).block(point, round_=1)
    assert (capped.status, capped.flags, capped.throttle) == (BlockStatus.OK, (Flag.POWER_CAPPED,), "power_cap")
    crowded = ready(session({"kind": "foreign_process"}), point).block(point, round_=1)
    assert (crowded.status, crowded.flags) == (BlockStatus.OK, (Flag.CONTENDED,))
    assert ready(session({"kind": "foreign_process"}), point).block(point, round_=1, own_processes=2).flags == ()


def test_the_sentinel_on_the_primary_context(session: Any) -> None:
    """The primary context is a lane like any other, proved over the whole device, and its blocks are of their own kind."""
    point = at(PRIMARY, n=1 << 26)
    block = ready(session(), point).block(point, round_=1, kind=BlockKind.SENTINEL)
    assert (block.kind, block.sms_requested, block.sms_granted, block.sms_observed) == (BlockKind.SENTINEL, "primary", 132, 132)
    assert block.placement is Placement.CONFINED


def test_warming_up_ends_when_windows_agree(session: Any) -> None:
    """Three windows within 0.5 % end it; on the modelled device, which has no clocks to ramp, at once."""
    point = at(PRIMARY, n=1 << 26)
    assert ready(session(), point).warm_up(point) < 1


def test_profiling_takes_no_time(session: Any) -> None:
    """`--profile` launches without a gate and yields a line without samples, flagged as profiled."""
    point = at(8)
    block = ready(session(), point).profile(point, 3)
    assert (block.status, block.flags, block.samples_us) == (BlockStatus.OK, (Flag.PROFILED,), ())
    assert (block.sms_granted, block.placement) == (8, Placement.CONFINED)


def test_energy_is_asked_for_only_over_two_seconds(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter moves in steps of 0.1 s: a block of milliseconds does not ask for it, one of seconds does."""
    spin = library()["spin"]
    short, long = at(8), at(8, "spin", Timing.STEADY, **{**dict(spin.params), "ns": 500_000_000})
    made = ready(session(), short, long)
    real, asked = made.gpu.evidence, []

    def evidence(*, energy: bool) -> Any:
        asked.append(energy)
        return real(energy=energy)

    monkeypatch.setattr(made.gpu, "evidence", evidence)
    made.block(short, round_=1)
    made.block(long, round_=1)
    assert asked == [False, False, True, True]


def test_a_remainder_is_flagged(session: Any) -> None:
    """A partition completed by the SMs that no unit holds says so in every block (no co-scheduling guarantee)."""
    point = at(8)
    made = ready(session(), point)
    lane = made._ready[point].lane
    made._ready[point].lane.grant = replace(lane.grant, remainder=True)
    assert Flag.REMAINDER in made.block(point, round_=1).flags


@contextmanager
def nothing() -> Iterator[None]:
    """No range."""
    yield


def test_ranges_name_the_point(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase is one NVTX range; that of a block has the row's label, and SM count and round as payload."""
    seen: list[tuple[str, str, int]] = []
    made = session()

    def annotate(name: str, category: str = "sweep", payload: int = 0, family: object = None) -> Any:
        seen.append((name, category, payload))
        return nothing()

    monkeypatch.setattr(made.gpu, "annotate", annotate)
    point = at(8)
    ready(made, point)
    made.block(point, round_=5)
    label = f"copy[n={SMALL}]@8/driver_default/steady"
    assert (label, "kernel", 5 << 16 | 8) in seen
    assert [name for name, category, _ in seen if category == "kernel"] == [label]
