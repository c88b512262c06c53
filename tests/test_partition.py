"""The partition layer against drivers before and from 13.1 on: what is asked of a split, what is made of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from greenbench.errors import FailedError, StickyError, UnsupportedError
from greenbench.schema import Partition, Scope, SmsMode

pytest.importorskip("cuda.core")

from cuda.bindings.driver import CUresult

from greenbench.gpu import Refusal
from greenbench.gpu.partition import OpenPartition, Slice, Splitter, workqueue_obstacle
from tests.fake_driver import FakeDriver, FakeSM, cuda_error, install

FULL = Partition(SmsMode.FULL)
OLD, NEW = (13, 0), (13, 1)


def asked(sms: int, **more: Any) -> Partition:
    """A partition by count."""
    return Partition(SmsMode.COUNT, sms, **more)


class Bench:
    """A splitter over a fake driver."""

    def __init__(self, patch: pytest.MonkeyPatch, units: int = 66, **rules: Any) -> None:
        self.driver = FakeDriver(**rules)
        self.device = install(patch, self.driver, units=units)
        self.splitter = Splitter(self.device)
        self.driver.log.clear()

    def open(self, partition: Partition) -> OpenPartition:
        """Split and open, as a lane does."""
        return self.splitter.open(self.splitter.slice(partition), partition)


def ids(piece: Slice) -> set[int]:
    """SM ids of a slice; the same id twice would show as a count that differs."""
    held = [i for resource in piece.resources for i in (resource.ids if isinstance(resource, FakeSM) else resource)]
    assert len(held) == len(set(held))
    return set(held)


# -- which API there is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "refused", "structured"),
    [((12, 5), (), False), ((13, 0), (), False), ((13, 1), (), True), ((13, 5), (), True), ((13, 1), (8, 16), True)],
)
def test_the_split_api_is_asked_of_the_driver(
    version: tuple[int, int], refused: Sequence[int], structured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unequal counts tell the two apart; a die on which even those are refused (915) has the structured split all the same."""
    assert Bench(monkeypatch, version=version, refused=frozenset(refused)).splitter.structured is structured


def test_granularity_comes_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit and total are what the device's own resource says, on a part with units of 4 as well."""
    bench = Bench(monkeypatch, sms=108, unit=4, most_units=27)
    assert (bench.splitter.unit, bench.splitter.total) == (4, 108)
    assert len(ids(bench.splitter.slice(asked(6)))) == 8


# -- path A: equal groups, rounded up --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "granted"), [(1, 8), (8, 8), (9, 16), (12, 16), (16, 16), (24, 24), (124, 128), (128, 128), (130, 132), (132, 132)]
)
def test_a_count_is_rounded_up_and_read_back(count: int, granted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grants of an H200 on driver 13.0; what counts is the context's own number, not the request."""
    opened = Bench(monkeypatch).open(asked(count))
    assert opened.sms == granted
    assert opened.slice.method == "count"


def test_a_sweep_splits_the_whole_device_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """H03: no result is split again (the fake refuses that), in either order of sizes, and 8 SMs lie inside 16."""
    for order in ((24, 8, 16), (8, 16, 24)):
        bench = Bench(monkeypatch)
        held = {count: ids(bench.splitter.slice(asked(count))) for count in order}
        assert held[8] < held[16] < held[24]


def test_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """915 becomes an unsupported point that names the refusal and the largest size that is granted."""
    with pytest.raises(UnsupportedError, match=r"^140 SMs: refused by the driver \(915 INVALID_RESOURCE_CONFIGURATION\)"):
        Bench(monkeypatch).splitter.slice(asked(140))


def test_full_takes_all_sms_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """132 is no multiple of 8, and a split for 132 gives 132 (H06)."""
    opened = Bench(monkeypatch).open(FULL)
    assert (opened.sms, opened.slice.method) == (132, "count")


def test_full_falls_back_to_the_unsplit_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver splits no group of all SMs, the green context is made of the device's own resource, and says so."""
    bench = Bench(monkeypatch)
    monkeypatch.setattr(FakeSM, "split", lambda *_, **__: (_ for _ in ()).throw(cuda_error(CUresult(915))))
    opened = bench.open(FULL)
    assert (opened.sms, opened.slice.method) == (132, "unsplit")


def test_the_primary_context_is_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a silent fall-back: a partition without a count is refused."""
    with pytest.raises(UnsupportedError, match="primary"):
        Bench(monkeypatch).splitter.slice(Partition(SmsMode.PRIMARY))


# -- path A: disjoint partitions from units --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "sizes", "remainders"),
    [
        ((96, 16), (96, 16), (False, False)),
        ((96, 36), (96, 36), (False, True)),
        ((16, 116), (16, 116), (False, True)),
        ((20, 112), (20, 112), (True, False)),
        ((12, 120), (12, 120), (True, False)),
        ((20, 20), (20, 24), (True, False)),
        ((10, 10), (16, 16), (False, False)),
    ],
)
def test_units_are_merged_and_the_remainder_completes_once(
    counts: tuple[int, ...], sizes: tuple[int, ...], remainders: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H02 and green_contexts section 4: 96 + 36 = 12 units, and 3 units with the remainder of 12; all from one split."""
    bench = Bench(monkeypatch)
    pieces = bench.splitter.disjoint(counts, use_remainder=True)
    assert tuple(len(ids(piece)) for piece in pieces) == sizes
    assert tuple(piece.remainder for piece in pieces) == remainders
    assert len(set.union(*map(ids, pieces))) == sum(sizes)
    opened = [bench.splitter.open(piece, asked(count)) for piece, count in zip(pieces, counts, strict=True)]
    assert [each.sms for each in opened] == list(sizes)
    assert len({resource.split_number for piece in pieces for resource in piece.resources}) == 1


def test_without_leave_the_remainder_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep-like caller gets whole units only: 36 becomes 40, and no piece carries the flag."""
    pieces = Bench(monkeypatch).splitter.disjoint((36, 36))
    assert [len(ids(piece)) for piece in pieces] == [40, 40]
    assert not any(piece.remainder for piece in pieces)


@pytest.mark.parametrize("shrinks", [True, False])
def test_fewer_units_than_asked_for(shrinks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 units of 8 do not fit 132 SMs: whether the driver shrinks the answer or refuses it, the 15 that exist are used."""
    bench = Bench(monkeypatch, shrinks=shrinks)
    pieces = bench.splitter.disjoint((64, 56))
    assert [piece.unit_ids for piece in pieces] == [tuple(range(8)), tuple(range(8, 15))]
    with pytest.raises(UnsupportedError, match="15 units of 8 SMs and 8 of them are taken; at most 56 SMs are left"):
        bench.splitter.disjoint((64, 64))


def test_rounding_may_not_exceed_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 + 60 SMs are fewer than 120 and still need 16 of 15 units: refused with what is left, not overlapped."""
    with pytest.raises(UnsupportedError, match="at most 56 SMs are left"):
        Bench(monkeypatch).splitter.disjoint((60, 60))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_sum_above_the_device(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before any split, naming the sum and the device."""
    bench = Bench(monkeypatch, version=version)
    with pytest.raises(UnsupportedError, match=r"96 \+ 40 SMs are more than the 132 of this device"):
        bench.splitter.disjoint((96, 40), use_remainder=True)
    assert not bench.driver.log


def test_an_empty_remainder_is_never_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 128 SMs nothing is left over: no slice holds an empty resource, which the driver would refuse (914)."""
    bench = Bench(monkeypatch, sms=128, most_units=16)
    pieces = bench.splitter.disjoint((64, 60), use_remainder=True)
    assert all(resource.sm_count for piece in pieces for resource in piece.resources)
    assert [bench.splitter.open(piece, asked(64)).sms for piece in pieces] == [64, 64]


@given(counts=st.lists(st.integers(1, 132), min_size=1, max_size=5), new=st.booleans(), remainder=st.booleans())
def test_whatever_is_granted_is_disjoint_and_enough(counts: list[int], new: bool, remainder: bool) -> None:
    """Property: pieces share no SM, hold at least what was asked, exactly that on 13.1+, and the remainder goes out once."""
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(patch, version=NEW if new else OLD)
        try:
            pieces = bench.splitter.disjoint(counts, use_remainder=remainder)
        except UnsupportedError:
            return
        sizes = [len(ids(piece)) for piece in pieces]
        assert len(set.union(*map(ids, pieces))) == sum(sizes) <= 132
        for size, count in zip(sizes, counts, strict=True):
            assert size == count if new else count <= size < count + 8
        if not new:
            assert sum(piece.remainder for piece in pieces) <= int(remainder)


# -- path B: exact, and refused --------------------------------------------------------------------------------------------


def test_the_structured_split_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 13.1 on an aligned count is granted as it is, by a single-group split without options."""
    opened = Bench(monkeypatch, version=NEW).open(asked(24))
    assert (opened.sms, opened.slice.method, opened.slice.note) == (24, "structured", "")


def test_h01_a_refused_size_names_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 SMs whose layout has no 24: 915, and the nearest sizes that were tried and granted, 16 and 32."""
    bench = Bench(monkeypatch, version=NEW, sms=48, refused=frozenset({24}))
    with pytest.raises(UnsupportedError) as raised:
        bench.splitter.slice(asked(24))
    assert str(raised.value) == (
        "24 SMs: refused by the driver (915 INVALID_RESOURCE_CONFIGURATION); nearest sizes that it grants: 16 and 32"
    )
    assert [bench.open(asked(count)).sms for count in (8, 16, 32)] == [8, 16, 32]


def test_neighbours_are_those_that_are_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next aligned size may be refused too: it is passed over; where nothing lies above, only the lower one is named."""
    bench = Bench(monkeypatch, version=NEW, sms=48, refused=frozenset({16, 24, 32}))
    with pytest.raises(UnsupportedError, match="grants: 8 and 40$"):
        bench.splitter.slice(asked(24))
    with pytest.raises(UnsupportedError, match="grants: 40$"):
        Bench(monkeypatch, version=NEW, sms=46).splitter.slice(asked(44))


def test_a_misaligned_count_is_refused_and_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 gave 16 before 13.1; from then on it is unsupported with 8 and 16 as neighbours, and never silently another size."""
    with pytest.raises(UnsupportedError, match="grants: 8 and 16$"):
        Bench(monkeypatch, version=NEW).splitter.slice(asked(12))


def test_disjoint_counts_in_one_structured_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 + 116 of 132: the misaligned one takes backfill, and only that one is marked."""
    bench = Bench(monkeypatch, version=NEW)
    pieces = bench.splitter.disjoint((16, 116))
    assert [len(ids(piece)) for piece in pieces] == [16, 116]
    assert [(piece.remainder, piece.note) for piece in pieces] == [(False, ""), (True, "backfill")]
    assert len(bench.driver.told("split")) == 1


def test_backfill_is_the_second_try_and_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aligned counts that the die refuses together are asked again with backfill, and every piece says so."""
    bench = Bench(monkeypatch, version=NEW, sms=48, refused=frozenset({24}))
    pieces = bench.splitter.disjoint((24, 24))
    assert [len(ids(piece)) for piece in pieces] == [24, 24]
    assert all(piece.note == "backfill" and piece.remainder for piece in pieces)


def test_counts_that_no_split_can_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """An odd count is refused with backfill as well: unsupported, with the driver's code."""
    with pytest.raises(UnsupportedError, match=r"915 INVALID_RESOURCE_CONFIGURATION"):
        Bench(monkeypatch, version=NEW).splitter.disjoint((16, 7))


@pytest.mark.parametrize("partition", [FULL, asked(132)])
def test_the_full_device_is_the_unsplit_resource(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """H06: a plain split for 132 is refused from 13.1 on, so the whole device is a context of its own resource, in both words."""
    opened = Bench(monkeypatch, version=NEW).open(partition)
    assert (opened.sms, opened.slice.method) == (132, "unsplit")


# -- granularity 2 ---------------------------------------------------------------------------------------------------------


def test_fine_units_by_coscheduled_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 13.1 on --granularity 2 is the option of the structured split: 6 SMs are 6, recorded in the note."""
    opened = Bench(monkeypatch, version=NEW).open(asked(6, granularity=2))
    assert (opened.sms, opened.slice.method, opened.slice.note) == (6, "structured", "coscheduled_sm_count=2")


def test_fine_units_by_the_raw_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 13.1 the bindings split into 66 units of 2 with flag 1; three of them are one context with a stream of its own."""
    bench = Bench(monkeypatch)
    opened = bench.open(asked(6, granularity=2))
    assert (opened.sms, opened.slice.method, opened.slice.unit_ids, opened.slice.note) == (6, "raw", (0, 1, 2), "split_flags=1")
    assert opened.stream.handle >= 1000
    assert bench.driver.log[0] == "raw split flags=1 66 x 2"
    opened.close()
    kinds = [entry.split()[:2] for entry in bench.driver.log[1:]]
    assert kinds == [["make", "context"], ["make", "stream"], ["close", "stream"], ["close", "context"]]


def test_fine_units_of_the_whole_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """132 of 132 SMs in units of 2, and a driver that gives fewer units says how far it goes."""
    assert Bench(monkeypatch).open(asked(130, granularity=2)).sms == 130
    with pytest.raises(UnsupportedError, match="60 units of 2 SMs, at most 120 SMs"):
        Bench(monkeypatch, units=60).splitter.slice(asked(122, granularity=2))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_fine_units_are_even(version: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An odd count names its even neighbours, on either path."""
    with pytest.raises(UnsupportedError, match="nearest sizes: 6 and 8"):
        Bench(monkeypatch, version=version).splitter.slice(asked(7, granularity=2))


@pytest.mark.parametrize(
    ("call", "undone"),
    [
        ("cuDevResourceGenerateDesc", []),
        ("cuGreenCtxCreate", []),
        ("cuGreenCtxStreamCreate", ["close context"]),
        ("cuGreenCtxGetDevResource", ["close stream", "close context"]),
    ],
)
def test_the_raw_chain_undoes_what_it_made(call: str, undone: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call fails, what was made before it is destroyed, the stream first."""
    bench = Bench(monkeypatch)
    bench.driver.fails[call] = ValueError(CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(FailedError, match="out of memory"):
        bench.open(asked(6, granularity=2))
    assert [" ".join(entry.split()[:2]) for entry in bench.driver.told("close")] == undone


# -- workqueues ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 4])
@pytest.mark.parametrize("scope", [Scope.DEVICE_CTX, Scope.GREEN_CTX_BALANCED])
def test_a_workqueue_is_configured_and_read_back(scope: Scope, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 13.1 on scope and limit are set on a fresh object and told as the context has them."""
    bench = Bench(monkeypatch, version=NEW)
    opened = bench.open(asked(16, workqueue=scope, concurrency_limit=limit))
    assert (opened.workqueue, opened.concurrency_limit) == (scope.value, limit or 8)
    again = bench.open(asked(16, workqueue=Scope.DEVICE_CTX))
    assert (again.workqueue, again.concurrency_limit) == ("device_ctx", 8)


def test_without_a_scope_no_workqueue_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: on 13.0 a plain sweep asks nothing of workqueues and runs."""
    opened = Bench(monkeypatch).open(asked(8))
    assert (opened.workqueue, opened.concurrency_limit) == ("driver_default", None)


@pytest.mark.parametrize("granularity", [None, 2])
def test_a_scope_below_13_1_is_unsupported(granularity: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """H11: the reason names what is needed and what is there, with fine units too, and no context is left behind."""
    bench = Bench(monkeypatch)
    with pytest.raises(UnsupportedError) as raised:
        bench.open(asked(8, workqueue=Scope.DEVICE_CTX, granularity=granularity))
    assert str(raised.value) == "workqueue configuration needs driver 13.1, this is 13.0"
    assert not bench.driver.told("make")


def test_a_scope_that_the_driver_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal on 13.1+ is told with the scope; it is not blamed on the version."""
    bench = Bench(monkeypatch, version=NEW)
    bench.driver.fails["configure"] = ValueError("the scope is not available")
    with pytest.raises(UnsupportedError, match="^workqueue scope green_ctx_balanced: the scope is not available"):
        bench.open(asked(8, workqueue=Scope.GREEN_CTX_BALANCED))


def test_the_obstacle_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `devices` says: a sentence below 13.1, nothing from then on."""
    bench = Bench(monkeypatch, version=(12, 8))
    assert workqueue_obstacle(bench.device) == "workqueue configuration needs driver 13.1, this is 12.8"
    assert workqueue_obstacle(Bench(monkeypatch, version=(13, 5)).device) == ""


# -- teardown --------------------------------------------------------------------------------------------------------------


def test_streams_go_before_their_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 13.1 a stream that outlives its context cannot be destroyed any more; closing twice is safe."""
    bench = Bench(monkeypatch)
    opened = bench.open(asked(8))
    number = opened.context.number
    opened.close()
    opened.close()
    assert bench.driver.told("close") == [f"close stream of {number}", f"close context {number}"]


@pytest.mark.parametrize(
    ("call", "undone"),
    [("create_context", []), ("create_stream", ["close context"]), ("context.resources", ["close stream", "close context"])],
)
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (cuda_error(CUresult.CUDA_ERROR_OUT_OF_MEMORY), FailedError, "out of memory: green context of 8 SMs"),
        (cuda_error(CUresult.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION), UnsupportedError, "915"),
        (cuda_error(CUresult.CUDA_ERROR_ILLEGAL_ADDRESS), StickyError, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (RuntimeError("cuGreenCtxStreamCreate is not available"), UnsupportedError, "cuGreenCtxStreamCreate is not available"),
        (ValueError("resources must not be empty"), UnsupportedError, "resources must not be empty"),
    ],
)
def test_an_error_in_the_middle_undoes_the_rest(
    call: str, undone: list[str], error: Exception, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step of opening fails, and however, it is a point's outcome and nothing is left behind."""
    bench = Bench(monkeypatch)
    bench.driver.fails[call] = error
    with pytest.raises(kind, match=words):
        bench.open(asked(8))
    assert [" ".join(entry.split()[:2]) for entry in bench.driver.told("close")] == undone


class Probes:
    """Answers the census of a lane; counts what is leaked."""

    def __init__(self, *leaks: int) -> None:
        self.leaks = leaks

    def census(self, stream: Any) -> tuple[int, ...]:
        """As many SMs as the stream's context was made of, and those that leak."""
        sizes = {int(e.split()[2]): int(e.split()[-1]) for e in stream._driver.told("make context")}
        return (*range(sizes.get(stream._context, stream._driver.sms)), *self.leaks)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CudaGpu over the fake driver, as its constructor leaves it."""
    from greenbench.gpu import cuda
    from greenbench.schema import DeviceFacts

    driver = FakeDriver()
    device = install(monkeypatch, driver)
    made: Any = object.__new__(cuda.CudaGpu)
    made.core, made.core_device, made._splitter = __import__("cuda.core").core, device, Splitter(device)
    made.device = DeviceFacts.__new__(DeviceFacts)
    object.__setattr__(made.device, "timer_tick_ns", 32.0)
    made.__dict__["probes"] = Probes()
    driver.log.clear()
    return made


def test_lanes_end_in_order_whatever_happens(gpu: Any) -> None:
    """Leaving the lanes, by an exception too, waits for every stream before it destroys its events, stream and context."""
    log = gpu.core_device.driver.log
    numbers: list[str] = []

    def interrupted() -> None:
        with gpu.lanes([asked(8), Partition(SmsMode.PRIMARY), asked(12)]) as lanes:
            assert [lane.grant.sms for lane in lanes if not isinstance(lane, Refusal)] == [8, 132, 16]
            numbers.extend(e.split()[2] for e in log if e.startswith("make context"))
            log.clear()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    first, second = numbers
    assert log == [
        *(f"sync stream of {second}", "close event", f"close stream of {second}", f"close context {second}"),
        *("sync stream of 0", "close event", "close stream of 0"),
        *(f"sync stream of {first}", "close event", f"close stream of {first}", f"close context {first}"),
    ]


def test_a_lane_keeps_what_a_library_made_for_its_stream(gpu: Any) -> None:
    """Made once for each lane, and closed with it before its stream goes; what cannot be closed does not stop the rest."""
    log = gpu.core_device.driver.log

    class Handle:
        """A handle that cannot be destroyed."""

        def close(self) -> None:
            """Fail."""
            log.append("close handle")
            raise FailedError("cublasDestroy_v2: cuBLAS status 14")

    with gpu.lanes([asked(8), asked(16)]) as (small, large):
        first = small.kept("cublas", Handle)
        assert small.kept("cublas", Handle) is first
        assert large.kept("cublas", Handle) is not first
        log.clear()
    order = [entry.split()[:2] for entry in log]
    assert order == 2 * [["sync", "stream"], ["close", "handle"], ["close", "event"], ["close", "stream"], ["close", "context"]]


def test_one_refused_lane_leaves_the_others(gpu: Any) -> None:
    """A refusal is a lane's outcome: the other partitions open, and everything is torn down."""
    log = gpu.core_device.driver.log
    with gpu.lanes([asked(8), asked(8, workqueue=Scope.DEVICE_CTX), FULL]) as lanes:
        assert [isinstance(lane, Refusal) for lane in lanes] == [False, True, False]
    assert len([e for e in log if e.startswith("make context")]) == len([e for e in log if e.startswith("close context")]) == 2


def test_disjoint_lanes_come_from_one_split(gpu: Any) -> None:
    """`disjoint=True` gives contexts out of one split, remainder flagged; counts that do not fit refuse all of them."""
    log = gpu.core_device.driver.log
    with gpu.lanes([asked(96), asked(36)], disjoint=True) as lanes:
        assert [(lane.grant.sms, lane.grant.remainder, lane.grant.split_method) for lane in lanes] == [
            (96, False, "units"),
            (36, True, "units"),
        ]
        assert len([e for e in log if e.startswith("split")]) == 1
    with gpu.lanes([asked(128), asked(8)], disjoint=True) as lanes:
        assert all(isinstance(lane, Refusal) for lane in lanes)


def test_a_census_that_differs_is_a_leak(gpu: Any) -> None:
    """One SM more than granted is `leaked`, one that the grant has is `confined`; nothing is believed unseen."""
    gpu.__dict__["probes"] = Probes(131)
    with gpu.lanes([asked(8)]) as (lane,):
        assert (lane.grant.placement, len(lane.grant.smids), lane.grant.sms) == ("leaked", 9, 8)
    gpu.__dict__["probes"] = Probes()
    with gpu.lanes([asked(8)]) as (lane,):
        assert lane.grant.placement == "confined"
