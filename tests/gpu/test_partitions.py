"""Partitions on a real GPU: what is granted, where CTAs run, what is disjoint, and what clocks and gates read there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from greenbench import stats
from greenbench.catalog import library
from greenbench.errors import UnsupportedError
from greenbench.gpu import Lane, Refusal
from greenbench.gpu.cuda import CudaGpu, open_cuda
from greenbench.measure import Session, sampling
from greenbench.schema import Partition, Placement, Point, Scope, SmsMode, Timing


def count(sms: int, **more: object) -> Partition:
    """A partition of so many SMs."""
    return Partition(SmsMode.COUNT, sms, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaGpu]:
    """The first GPU of this machine, opened in this process (which later sweeps of the same session see as a foreign one)."""
    device = open_cuda("0")
    yield device
    device.close()


def opened(item: Lane | Refusal) -> Lane:
    """Return the lane, or fail with the refusal."""
    assert not isinstance(item, Refusal), item.error
    return item


def test_census_equals_the_grant_for_every_size(gpu: CudaGpu) -> None:
    """Each lane's CTAs run on exactly as many SMs as were granted, and small sets lie inside larger ones."""
    total = gpu.device.sm_count
    sizes = [8, 12, 16, 24, 32, 64, total]
    with gpu.lanes([*(count(n) for n in sizes), Partition(SmsMode.FULL), Partition(SmsMode.PRIMARY)]) as found:
        lanes = [opened(item) for item in found]
        for lane in lanes:
            assert lane.grant.placement is Placement.CONFINED
            assert len(lane.grant.smids) == lane.grant.sms == len(lane.census())
        assert lanes[0].grant.sms >= 8
        assert set(lanes[0].grant.smids) <= set(lanes[2].grant.smids)
        assert lanes[-1].grant.sms == lanes[-2].grant.sms == total


def test_disjoint_partitions_share_no_sm(gpu: CudaGpu) -> None:
    """Unequal partitions of one split, the remainder included, are disjoint by census."""
    total = gpu.device.sm_count
    for sizes in ([96, total - 96], [16, total - 16], [20, total - 20]):
        with gpu.lanes([count(n) for n in sizes], disjoint=True) as found:
            first, second = (opened(item).grant for item in found)
            assert (first.sms, second.sms) == tuple(sizes)
            assert not set(first.smids) & set(second.smids)
            assert len(first.smids) + len(second.smids) == total


def test_granularity_two_reaches_below_the_smallest_group(gpu: CudaGpu) -> None:
    """Units of two SMs make partitions of 2 and 6 SMs, exact by census."""
    with gpu.lanes([count(2, granularity=2), count(6, granularity=2)]) as found:
        assert [opened(item).grant.sms for item in found] == [2, 6]
        assert all(opened(item).grant.placement is Placement.CONFINED for item in found)


def test_workqueue_scopes_follow_the_driver(gpu: CudaGpu) -> None:
    """Before 13.1 a scope is refused with what is needed and found; from then on it is read back."""
    with gpu.lanes([count(8, workqueue=Scope.GREEN_CTX_BALANCED)]) as (item,):
        if gpu.device.cuda < (13, 1):
            assert isinstance(item, Refusal)
            assert isinstance(item.error, UnsupportedError)
            assert "13.1" in str(item.error)
            assert gpu.device.cuda_text in str(item.error)
        else:
            assert opened(item).grant.workqueue == Scope.GREEN_CTX_BALANCED


def test_clock_is_measured_without_sm_zero(gpu: CudaGpu) -> None:
    """A partition that lacks SM 0 gives an SM clock between half and the whole of the maximum."""
    with gpu.lanes([count(8), count(8)], disjoint=True) as (_, item):
        lane = opened(item)
        assert 0 not in lane.grant.smids
        spin = lane.prepare(library()["spin"], {"ns": 2_000_000})
        first = lane.probe()
        spin.launch()
        second = lane.probe()
        clock = stats.clock_mhz(first.stamps, second.stamps)
        assert first.smids == lane.grant.smids
        assert clock is not None
        most = gpu.device.max_sm_clock_mhz or 3000
        assert most / 2 < clock <= most * 1.01


def test_known_waits_are_read_in_every_way_of_timing(gpu: CudaGpu) -> None:
    """Spins of 100 us and 1 ms read within 1 % + 2 us in batches and graphs, within 1 % + 4 us as single cold launches.

    A launch alone between two events carries its own start and end, 2 to 3 us on an H200, as it does under NVBench.
    """
    with gpu.lanes([count(8), count(32), Partition(SmsMode.FULL)]) as found:
        for item in found:
            lane = opened(item)
            for ns in (100_000, 1_000_000):
                work = lane.prepare(library()["spin"], {"ns": ns})
                replay = work.capture(3)
                batched = [sampling.gated(gpu, lane, work, 2)[0] / 2, replay.run() / 3]
                assert replay.smids() == lane.grant.smids
                single = [
                    stats.median(sampling.take(gpu, lane, work, sampling.Recipe(timing, 1, 5, ns * 1e-9)).samples)
                    for timing in (Timing.COLD_CLEAN, Timing.COLD_DIRTY)
                ]
                for readings, slack in ((batched, 2e-6), (single, 4e-6)):
                    for seconds in readings:
                        assert 0 <= seconds - ns * 1e-9 <= 0.01 * ns * 1e-9 + slack


def test_many_lanes_open_and_close(gpu: CudaGpu) -> None:
    """Sixty-four contexts are alive at once, and a second opening works after teardown."""
    for _ in range(2):
        with gpu.lanes([count(8 * (1 + i % 16)) for i in range(64)]) as found:
            assert all(not isinstance(item, Refusal) for item in found)


def test_graph_blocks_prove_their_own_placement() -> None:
    """A block timed through a graph carries the census of the graph itself."""
    session = Session(open_cuda("0"), library())
    try:
        partition = count(16)
        session.open([partition])
        point = Point("triad", (("n", 1 << 20), ("s", 3.0)), partition, Timing.GRAPH)
        session.prepare(point)
        block = session.block(point, round_=1)
        assert block.placement is Placement.CONFINED
        assert block.sms_observed == block.sms_granted == 16
        assert block.sm_clock_mhz is not None
    finally:
        session.close()
