"""How a sample is taken, against a device that does what the script says, on clocks that only the script moves."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest
from hypothesis import given, strategies as st

from greenbench.errors import FailedError
from greenbench.gpu import ClockSample, Lane, Verification
from greenbench.measure import sampling
from greenbench.measure.sampling import COLD, Recipe, estimate, gated, quiet, recipe, replay, resolve, rewarm, take
from greenbench.schema import Family, Timing

HOST_S = 5e-6
WAYS = (Timing.STEADY, Timing.COLD_CLEAN, Timing.COLD_DIRTY, Timing.HOT, Timing.GRAPH)


class Script:
    """The clocks of host and device, and a log of the calls in their order."""

    def __init__(self, *launch_s: float) -> None:
        self.launch_s = list(launch_s)
        self.host_s = self.device_s = 0.0
        self.log: list[str] = []
        self.passes = True
        self.launched = 0
        self.collecting: list[bool] = []

    def next_launch(self) -> float:
        """Duration of the next launch; the last of the script is repeated."""
        place = min(self.launched, len(self.launch_s) - 1)
        self.launched += 1
        return self.launch_s[place]


class Mark:
    """Device time at which the stream reached it."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def since(self, earlier: Self) -> float:
        """Difference of two marks."""
        return self.at_s - earlier.at_s


class Work:
    """A kernel that takes what the script says."""

    config = ""
    flops = bytes = None
    working_set_bytes, grid, ctas_per_sm = 0, 1, 1

    def __init__(self, script: Script, reports: float | None = None) -> None:
        self.script, self.reports = script, reports

    def launch(self) -> None:
        """Enqueue: the host spends its time at once, the device its own when the gate opens."""
        self.script.log.append("launch")
        self.script.collecting.append(gc.isenabled())
        self.script.host_s += HOST_S
        self.script.device_s += self.script.next_launch()

    def verify(self) -> Verification:
        """Never asked here."""
        raise AssertionError

    def rotate(self, on: bool) -> None:
        """Never asked here."""
        raise AssertionError

    def capture(self, launches: int) -> Any:
        """Never asked here."""
        raise AssertionError

    def report(self) -> float | None:
        """What the kernel measured of itself."""
        return self.reports


class FakeLane:
    """A lane of the script."""

    partition = grant = None

    def __init__(self, script: Script) -> None:
        self.script = script

    def mark(self) -> Mark:
        """Record an event."""
        self.script.log.append("mark")
        return Mark(self.script.device_s)

    def flush_l2(self, dirty: bool) -> None:
        """Flush; it takes device time that must not be in a sample."""
        self.script.log.append("flush dirty" if dirty else "flush clean")
        self.script.device_s += 1.0

    def sync(self) -> None:
        """Wait."""
        self.script.log.append("sync")

    def census(self) -> tuple[int, ...]:
        """Never asked here."""
        raise AssertionError

    def probe(self) -> ClockSample:
        """Never asked here."""
        raise AssertionError

    def prepare(self, kernel: Any, params: Mapping[str, Any], share: Any = None) -> Any:
        """Never asked here."""
        raise AssertionError

    prepare_yardstick = prepare

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


class FakeGpu:
    """Gates of the script."""

    device: Any = None

    def __init__(self, script: Script) -> None:
        self.script = script

    def gate(self, *lanes: Lane) -> SimpleNamespace:
        """Hold."""
        self.script.log.append("gate")
        return SimpleNamespace(open=lambda: self.script.log.append("open"), passed=lambda: self.script.passes)

    def lanes(self, partitions: Any, *, disjoint: bool = False) -> Any:
        """Never asked here."""
        raise AssertionError

    @contextmanager
    def annotate(self, name: str, category: str = "sweep", payload: int = 0) -> Iterator[None]:
        """No tool listens."""
        yield


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build (script, gpu, lane, work) whose host clock is the script's."""

    def build(*launch_s: float, reports: float | None = None) -> tuple[Script, Any, Any, Any]:
        script = Script(*launch_s)
        monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: script.host_s))
        return script, FakeGpu(script), FakeLane(script), Work(script, reports)

    return build


# -- how large a sample and a block are ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timing", "launch_s", "launches", "samples"),
    [
        (Timing.STEADY, 100e-6, 20, 20),
        (Timing.STEADY, 2e-6, 240, 20),
        (Timing.STEADY, 3e-3, 1, 20),
        (Timing.STEADY, 10e-3, 1, 10),
        (Timing.STEADY, 1.0, 1, 5),
        (Timing.HOT, 700e-6, 3, 20),
        (Timing.GRAPH, 2e-6, 200, 20),
        (Timing.GRAPH, 15e-6, 134, 20),
        (Timing.GRAPH, 1e-3, 20, 5),
        (Timing.COLD_CLEAN, 8e-6, 1, 20),
        (Timing.COLD_DIRTY, 60e-3, 1, 5),
    ],
)
def test_the_size_of_a_block(timing: Timing, launch_s: float, launches: int, samples: int) -> None:
    """About 2 ms a sample and 100 ms a block; cold is one launch a sample; a slow point gets fewer samples, never none."""
    found = recipe(timing, launch_s)
    assert (found.launches, found.samples) == (launches, samples)


@given(timing=st.sampled_from(WAYS), launch_s=st.floats(0, 100))
def test_the_limits_of_a_block(timing: Timing, launch_s: float) -> None:
    """Property: for any duration, also one too short to resolve, the queue holds (240 launches) and 5 to 20 samples are taken."""
    found = recipe(timing, launch_s)
    assert 1 <= found.launches <= 240
    assert 5 <= found.samples <= 20
    assert found.timing is timing
    assert found.block_s > 0
    if timing not in {Timing.GRAPH, *COLD}:
        assert found.launches == 1 or (found.launches - 1) * launch_s <= 2e-3


@pytest.mark.parametrize(
    ("family", "launch_s", "timing"),
    [
        (Family.MEMORY, 19.9e-6, Timing.GRAPH),
        (Family.MEMORY, 20.1e-6, Timing.STEADY),
        (Family.GEMM, 5e-6, Timing.GRAPH),
        (Family.LATENCY, 5e-6, Timing.HOT),
        (Family.PROBE, 1.0, Timing.HOT),
    ],
)
def test_what_auto_means(family: Family, launch_s: float, timing: Timing) -> None:
    """Probes and latency kernels run hot, short kernels in a graph, the rest steady."""
    assert resolve(Timing.AUTO, family, launch_s) is timing


@pytest.mark.parametrize("timing", WAYS)
def test_a_way_that_was_asked_for_stands(timing: Timing) -> None:
    """Only `auto` is resolved."""
    assert resolve(timing, Family.PROBE, 1e-6) is timing


# -- one sample ------------------------------------------------------------------------------------------------------------


def test_a_sample_is_queued_whole_before_it_starts(bench: Any) -> None:
    """Gate, event, launches, event, and only then the gate opens: the host's launch cost is reported and not in the time."""
    script, gpu, lane, work = bench(100e-6)
    device, host = gated(gpu, lane, work, 3)
    assert script.log == ["gate", "mark", "launch", "launch", "launch", "mark", "open", "sync"]
    assert device == pytest.approx(300e-6)
    assert host == pytest.approx(3 * HOST_S)


def test_a_gate_that_gave_up_fails_the_point(bench: Any) -> None:
    """A sample that started before it was queued whole is no sample: failed, with the reason, after the stream was waited for."""
    script, gpu, lane, work = bench(100e-6)
    script.passes = False
    with pytest.raises(FailedError, match="gate time-out"):
        gated(gpu, lane, work, 3)
    assert script.log[-2:] == ["open", "sync"]


@pytest.mark.parametrize(("timing", "word"), [(Timing.COLD_CLEAN, "flush clean"), (Timing.COLD_DIRTY, "flush dirty")])
def test_a_cold_sample_flushes_outside_its_events(timing: Timing, word: str, bench: Any) -> None:
    """The flush comes before the gate, once per sample, and its second of device time is in no sample."""
    script, gpu, lane, work = bench(8e-6)
    taken = take(gpu, lane, work, Recipe(timing, 1, 5, 8e-6))
    assert script.log == [word, "gate", "mark", "launch", "mark", "open", "sync"] * 5
    assert taken.samples == pytest.approx([8e-6] * 5)


# -- a block ---------------------------------------------------------------------------------------------------------------


def test_a_block_is_its_samples_per_launch(bench: Any) -> None:
    """Each sample is divided by its launches, in order, and none is left out, the slow one neither."""
    script, gpu, lane, work = bench(*[1e-4] * 4, *[9e-4] * 2, 1e-4)
    taken = take(gpu, lane, work, Recipe(Timing.STEADY, 2, 5, 1e-4))
    assert taken.samples == pytest.approx([1e-4, 1e-4, 9e-4, 1e-4, 1e-4])
    assert taken.launch_host_s == pytest.approx(HOST_S)
    assert taken.reported == ()
    assert "flush" not in " ".join(script.log)


def test_a_kernel_that_measures_itself_reports_once_a_sample(bench: Any) -> None:
    """The report is read after the stream was waited for, once per sample."""
    _, gpu, lane, work = bench(1e-4, reports=655.0)
    assert take(gpu, lane, work, Recipe(Timing.HOT, 3, 5, 1e-4)).reported == (655.0,) * 5


def test_a_graph_times_itself() -> None:
    """Replays are divided by the launches inside; there is no host time to tell."""
    durations = iter([2e-4, 4e-4, 2e-4])
    graph = SimpleNamespace(launches=200, run=lambda: next(durations), smids=lambda: ())
    taken = replay(graph, Recipe(Timing.GRAPH, 200, 3, 1e-6))
    assert taken.samples == pytest.approx([1e-6, 2e-6, 1e-6])
    assert (taken.reported, taken.launch_host_s) == ((), None)


@pytest.mark.parametrize("enabled", [True, False])
def test_no_collection_inside_a_block(enabled: bool, bench: Any) -> None:
    """The collector rests while samples are taken and is afterwards as it was, after an error too."""
    script, gpu, lane, work = bench(1e-4)
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        take(gpu, lane, work, Recipe(Timing.STEADY, 1, 5, 1e-4))
        assert gc.isenabled() is enabled
        script.passes = False
        with pytest.raises(FailedError):
            take(gpu, lane, work, Recipe(Timing.STEADY, 1, 5, 1e-4))
        assert gc.isenabled() is enabled
        with quiet():
            assert not gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
    assert not any(script.collecting)


# -- before the samples ----------------------------------------------------------------------------------------------------


def test_the_estimate_comes_from_a_batch(bench: Any) -> None:
    """The best of three single launches (the first is cold) sizes a batch of about 2 ms, and the batch is what counts."""
    script, gpu, lane, work = bench(5e-3, 300e-6, 190e-6, *[180e-6] * 11)
    assert estimate(gpu, lane, work) == pytest.approx(180e-6)
    assert script.launched == 3 + 11


def test_a_slow_kernel_is_estimated_from_single_launches(bench: Any) -> None:
    """From 2 ms up no batch is needed: three launches and no more."""
    script, gpu, lane, work = bench(0.3, 0.2, 0.25)
    assert estimate(gpu, lane, work) == pytest.approx(0.2)
    assert script.launched == 3


def test_an_estimate_never_queues_more_than_the_gate_holds(bench: Any) -> None:
    """A launch that the events do not resolve (0 s) is estimated from 240 launches, and still sizes a block."""
    script, gpu, lane, work = bench(0.0)
    launch_s = estimate(gpu, lane, work)
    assert script.launched == 3 + 240
    assert recipe(Timing.STEADY, launch_s).launches == 240


@pytest.mark.parametrize(("launch_s", "launches"), [(1e-3, 10), (5e-3, 5), (1.0, 5), (1e-6, 1667)])
def test_rewarming(launch_s: float, launches: int, bench: Any) -> None:
    """10 ms of launches, at least five, and for tiny kernels no more than the host can launch in that time."""
    script, _, lane, work = bench(launch_s)
    rewarm(lane, work, launch_s)
    assert script.launched == launches
    assert script.log[-1] == "sync"
