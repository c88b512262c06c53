"""Host probes: what is timed and what is not, that everything made is destroyed, and that host time stays apart."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings.driver import CUresult

from greenbench.catalog import Kernel, library
from greenbench.errors import FailedError, UnsupportedError
from greenbench.gpu import HostTimed, driver as door, hostprobes, open_gpu
from greenbench.gpu.contexts import CoreMaker, DriverMaker, RuntimeMaker
from greenbench.gpu.partition import Slice
from greenbench.gpu.work import shape_of
from greenbench.measure import sampling
from greenbench.measure.session import Session
from greenbench.schema import Api, Family, HostAction, Partition, Point, SmsMode, Timing

EIGHT = Partition(SmsMode.COUNT, 8)
PRIMARY = Partition(SmsMode.PRIMARY)
CONTEXTS = (HostAction.CONTEXT_CREATE, HostAction.CONTEXT_DESTROY, HostAction.STREAM_CREATE)
# ns that each step of the fake takes.
COST = {"create": 1000, "destroy": 300, "stream": 50, "close": 7, "record": 3}


class FakeMaker:
    """Makes numbers, and lets a clock run."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self.clock, self.fails = clock, ""
        self.log: list[str] = []

    def _do(self, step: str) -> str:
        if step == self.fails:
            raise FailedError(f"{step} failed")
        self.clock.ns += COST[step]
        self.log.append(step)
        return step

    def create(self) -> Any:
        """A context."""
        return self._do("create")

    def destroy(self, context: Any) -> None:
        """Gone."""
        self._do("destroy")

    def create_stream(self, context: Any) -> Any:
        """A stream."""
        return self._do("stream")

    def destroy_stream(self, stream: Any) -> None:
        """Gone."""
        self._do("close")

    def launchable(self, stream: Any) -> Any:
        """Itself."""
        return stream


class FakeLane:
    """A lane of 8 SMs on a driver of CUDA 13.0."""

    sms, partition, cuda = 8, EIGHT, (13, 0)

    def __init__(self, clock: SimpleNamespace) -> None:
        self.made, self.seen, self.closed = FakeMaker(clock), 8, 0
        self.stream = SimpleNamespace(handle=5, record=lambda event: self.made._do("record"))

    def maker(self, api: Api) -> FakeMaker:
        """The one maker."""
        return self.made

    def census_of(self, stream: Any) -> tuple[int, ...]:
        """So many SMs."""
        return tuple(range(self.seen))

    def new_event(self) -> Any:
        """An event that counts its end."""

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(handle=9, is_done=True, sync=lambda: None, close=close)

    def sync(self) -> None:
        """Idle."""
        self.made.clock.ns += 10_000


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> FakeLane:
    """A lane whose clock moves only when something is done."""
    clock = SimpleNamespace(ns=0)
    monkeypatch.setattr(hostprobes, "now", lambda: clock.ns)
    return FakeLane(clock)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    """The library."""
    return library()


def probe(
    lane: Any, kernels: dict[str, Kernel], action: str, launch: Callable[[Any], None] = lambda _: None, **params: int
) -> Any:
    """The work of a host probe."""
    return hostprobes.prepare(lane, kernels[action], {"api": 0, **params}, launch)


def test_every_action_has_its_file(kernels: dict[str, Kernel]) -> None:
    """One file adds a probe: each action is a kernel of family latency, reports nothing, and takes no arguments."""
    assert {kernel.host for kernel in kernels.values()} - {""} == set(HostAction)
    for kernel in kernels.values():
        if kernel.host:
            assert (kernel.family, kernel.report, kernel.args, dict(kernel.params)) == (Family.LATENCY, None, (), {"api": 0})


@pytest.mark.parametrize(
    ("action", "ns"), [("context_create", 1000), ("context_destroy", 300), ("stream_create", 50), ("event_record", 3)]
)
def test_only_the_step_itself_is_timed(lane: FakeLane, kernels: dict[str, Kernel], action: str, ns: int) -> None:
    """Seconds are those of the step alone, for one and for many, and whatever was made is destroyed."""
    work = probe(lane, kernels, action)
    assert isinstance(work, HostTimed)
    assert work.timed(1) == pytest.approx(ns * 1e-9)
    assert work.timed(7) == pytest.approx(7 * ns * 1e-9)
    log = lane.made.log
    assert log.count("create") == log.count("destroy")
    assert log.count("stream") == log.count("close")
    assert lane.closed == (2 if action == "event_record" else 0)


def test_a_sample_makes_few_contexts(lane: FakeLane, kernels: dict[str, Kernel]) -> None:
    """Destroying is short, but what is destroyed was made before: a sample of it holds three, not hundreds."""
    work = probe(lane, kernels, HostAction.CONTEXT_DESTROY)
    assert sampling.recipe(Timing.HOST, 30e-6, sampling.most_launches(work)).launches == 3
    other = probe(lane, kernels, HostAction.STREAM_CREATE)
    assert sampling.recipe(Timing.HOST, 3e-6, sampling.most_launches(other)).launches == 240


@pytest.mark.parametrize("action", CONTEXTS)
def test_a_new_context_is_proved(lane: FakeLane, kernels: dict[str, Kernel], action: HostAction) -> None:
    """The file's kernel ran on the new stream; a census of other SMs than the lane's is an error, and nothing is left behind."""
    launched: list[Any] = []
    work = probe(lane, kernels, action, launched.append)
    assert work.verify().ok
    assert launched == ["stream"]
    lane.seen = 16
    assert work.verify().error == 8
    assert lane.made.log == ["create", "stream", "close", "destroy"] * 2


@pytest.mark.parametrize("action", CONTEXTS)
def test_what_fails_half_way_is_undone(lane: FakeLane, kernels: dict[str, Kernel], action: HostAction) -> None:
    """A stream that cannot be made costs its context, not the device's memory."""
    lane.made.fails = "stream"
    with pytest.raises(FailedError, match="stream failed"):
        probe(lane, kernels, action).verify()
    assert lane.made.log == ["create", "destroy"]


def test_what_cannot_be_is_unsupported(lane: FakeLane, kernels: dict[str, Kernel]) -> None:
    """Execution contexts before 13.1, contexts of the primary one, and an API of another number say what is needed."""
    with pytest.raises(UnsupportedError, match="execution contexts of the runtime need driver 13.1, this is 13.0"):
        probe(lane, kernels, "context_create", api=2)
    with pytest.raises(UnsupportedError, match="api = 3 is no API; there are 0 core, 1 driver, 2 runtime"):
        probe(lane, kernels, "event_record", api=3)
    assert hostprobes.obstacle(HostAction.STREAM_CREATE, Api.RUNTIME, (13, 1), EIGHT) == ""
    assert "primary" in hostprobes.obstacle(HostAction.CONTEXT_CREATE, Api.CORE, (13, 1), PRIMARY)
    assert hostprobes.obstacle(HostAction.EVENT_RECORD, Api.RUNTIME, (13, 0), PRIMARY) == ""
    with pytest.raises(UnsupportedError, match="cannot be captured"):
        probe(lane, kernels, "event_record").capture(20)


class Calls:
    """Bindings that answer every call with success and a number, and keep a log."""

    class CUdevResourceType:
        CU_DEV_RESOURCE_TYPE_SM = 1

    class cudaDevResourceType:
        cudaDevResourceTypeSm = 1

    def __init__(self, sms: int = 132) -> None:
        self.log: list[Any] = []
        self.whole = SimpleNamespace(sm=SimpleNamespace(smCount=sms, smCoscheduledAlignment=8))

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.log.append((name, *args))
            if "GetDevResource" in name:
                return CUresult.CUDA_SUCCESS, self.whole
            if "Split" in name:
                return CUresult.CUDA_SUCCESS, ["group"], 1, "rest"
            return (CUresult.CUDA_SUCCESS,) if "Destroy" in name or "Init" in name else (CUresult.CUDA_SUCCESS, name)

        return call

    @property
    def told(self) -> list[str]:
        """Names of the calls."""
        return [entry[0] for entry in self.log]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Bindings of driver and runtime."""
    made = Calls()
    monkeypatch.setattr(door, "bindings", lambda: made)
    monkeypatch.setattr("greenbench.gpu.contexts.runtime", lambda: made)
    return made


DEVICE = SimpleNamespace(device_id=0)


def test_the_driver_is_called_itself(calls: Calls) -> None:
    """A count is split off once, before anything is timed; the whole device is not split; units of 2 are taken as they are."""
    made = DriverMaker(None, DEVICE, Slice((), "count"), 16)
    assert [entry for entry in calls.log if "Split" in entry[0]] == [("cuDevSmResourceSplitByCount", 1, calls.whole, 0, 16)]
    calls.log.clear()
    context = made.create()
    made.destroy_stream(made.create_stream(context))
    made.destroy(context)
    assert calls.log == [
        ("cuDevResourceGenerateDesc", ["group"], 1),
        ("cuGreenCtxCreate", "cuDevResourceGenerateDesc", "cuDeviceGet", 1),
        ("cuGreenCtxStreamCreate", "cuGreenCtxCreate", 1, 0),
        ("cuStreamDestroy", "cuGreenCtxStreamCreate"),
        ("cuGreenCtxDestroy", "cuGreenCtxCreate"),
    ]
    calls.log.clear()
    DriverMaker(None, DEVICE, Slice((), "count"), 132)
    assert "cuDevSmResourceSplitByCount" not in calls.told
    DriverMaker(None, DEVICE, Slice((), "count"), 6)
    assert calls.log[-1] == ("cuDevSmResourceSplitByCount", 1, calls.whole, 1, 6)
    DriverMaker(None, DEVICE, Slice(("unit",), "raw", raw=True), 2).create()
    assert calls.log[-2] == ("cuDevResourceGenerateDesc", ["unit"], 1)


def test_the_runtime_is_called_itself(calls: Calls) -> None:
    """Execution contexts are made and destroyed by the runtime's own calls, the primary context kept alive first."""
    made = RuntimeMaker(None, DEVICE, 16)
    assert calls.told == ["cudaInitDevice", "cudaDeviceGetDevResource", "cudaDevSmResourceSplitByCount"]
    calls.log.clear()
    context = made.create()
    made.destroy_stream(made.create_stream(context))
    made.destroy(context)
    assert calls.log[1:] == [
        ("cudaGreenCtxCreate", "cudaDevResourceGenerateDesc", 0, 0),
        ("cudaExecutionCtxStreamCreate", "cudaGreenCtxCreate", 1, 0),
        ("cudaStreamDestroy", "cudaExecutionCtxStreamCreate"),
        ("cudaExecutionCtxDestroy", "cudaGreenCtxCreate"),
    ]


def test_old_bindings_have_no_execution_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bindings without the calls are told by what to update."""
    monkeypatch.setattr("greenbench.gpu.contexts.runtime", SimpleNamespace)
    with pytest.raises(UnsupportedError, match="need cuda-python 13.1 or newer"):
        RuntimeMaker(None, DEVICE, 16)


def test_cuda_core_makes_no_raw_units() -> None:
    """Units of 2 SMs before 13.1 are not cuda.core's."""
    with pytest.raises(UnsupportedError, match="take api = 1"):
        CoreMaker(None, DEVICE, Slice((), "raw", raw=True))


@pytest.mark.parametrize(("name", "wanted"), [("launch_pdl", True), ("null_launch", None)])
def test_a_dependent_launch_carries_the_attribute(kernels: dict[str, Kernel], name: str, wanted: bool | None) -> None:
    """pdl = true reaches cuda.core's configuration, and no other launch names it."""
    occupancy = SimpleNamespace(max_active_blocks_per_multiprocessor=lambda block, smem: 32)
    core, loaded = SimpleNamespace(LaunchConfig=lambda **given: given), SimpleNamespace(occupancy=occupancy)
    shape = shape_of(core, kernels[name], loaded, {"sms": 8}, SimpleNamespace(sms=8))
    assert shape.config.get("programmatic_stream_serialization") is wanted


@pytest.mark.parametrize("timing", [Timing.STEADY, Timing.HOT, Timing.GRAPH, Timing.COLD_CLEAN])
def test_host_and_device_time_do_not_mix(timing: Timing) -> None:
    """A host probe is timed by the host, and nothing else is."""
    assert sampling.resolve(Timing.AUTO, Family.LATENCY, 1e-6, on_host=True) is Timing.HOST
    with pytest.raises(UnsupportedError, match=f"a host probe is timed by the host, not {timing.value}"):
        sampling.resolve(timing, Family.LATENCY, 1e-6, on_host=True)
    with pytest.raises(UnsupportedError, match="a kernel is timed by the device, so it has no timing host"):
        sampling.resolve(Timing.HOST, Family.MEMORY, 1e-6)


def test_a_block_of_host_time(kernels: dict[str, Kernel]) -> None:
    """On the modelled device: timing host, no launch time beside it, placement proved, and about the model's figure."""
    gpu = open_gpu("model:h200")
    session = Session(gpu, kernels)
    point = Point("context_create", (("api", 0),), EIGHT)
    session.open([EIGHT])
    prepared = session.prepare(point)
    block = session.block(point, round_=1)
    assert (prepared.timing, prepared.config, prepared.working_set_bytes) == (Timing.HOST, "core", 0)
    assert block.launch_host_us is None
    assert block.reported == ()
    assert sum(block.samples_us) / len(block.samples_us) == pytest.approx(1672, rel=0.02)
    session.close()


@pytest.mark.parametrize(
    ("kernel", "params", "cycles"),
    [
        ("chase_shared", {}, 29.0),
        ("dsmem", {"remote": 0}, 33.0),
        ("dsmem", {"remote": 1}, 196.5),
        ("l2_slices", {"percentile": 100}, 295.0),
        ("grid_sync", {}, 2237.0),
    ],
)
def test_modelled_probes_answer_from_the_table(
    kernels: dict[str, Kernel], kernel: str, params: dict[str, int], cycles: float
) -> None:
    """A probe with a published figure reports it, whatever its working set is."""
    gpu = open_gpu("model:h200")
    with gpu.lanes([EIGHT]) as lanes:
        lane: Any = lanes[0]
        work = lane.prepare(kernels[kernel], {**dict(kernels[kernel].params), **params})
        sampling.gated(gpu, lane, work, 3)
        assert work.report() == pytest.approx(cycles, rel=0.02)


@pytest.mark.parametrize(
    ("kernel", "params", "said"),
    [
        ("l2_slices", {"percentile": 25}, "l2_sm_p25"),
        ("l2_halves", {}, "l2_half_0"),
        ("atomic_global", {}, "atomic_global_0_1_1"),
        ("launch_pdl", {}, "launch_pdl"),
        ("event_record", {"api": 1}, "event_record_driver"),
        ("context_create", {"api": 2}, "need driver 13.1"),
    ],
)
def test_modelled_probes_without_a_figure(kernels: dict[str, Kernel], kernel: str, params: dict[str, int], said: str) -> None:
    """What nobody has published is unsupported, never guessed."""
    gpu = open_gpu("model:h200")
    with gpu.lanes([EIGHT]) as lanes:
        lane: Any = lanes[0]
        with pytest.raises(UnsupportedError, match=said):
            lane.prepare(kernels[kernel], {**dict(kernels[kernel].params), **params})
