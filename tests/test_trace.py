"""`--trace`: what CUPTI records becomes a timeline, and whatever stands in its way is said; CUPTI and the device are made up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from greenbench.cli.main import cli
from greenbench.errors import ExitCode, FailedError, MissingPackageError, UnfitError, UnsupportedError, UsageError
from greenbench.experiments import crew, sweep, tracing
from greenbench.experiments.sweep import SweepOutcome, SweepRequest, run_sweep
from greenbench.gpu.witness import Witness, obstacle
from greenbench.measure import Session
from greenbench.plan import load_plan
from greenbench.schema import Block, Grant, Partition, Point, Prepared, SmsMode, Timing
from greenbench.timeline.analysis import analyse
from greenbench.timeline.reading import read_capture
from greenbench.timeline.recorded import CallSeen, ContextSeen, KernelSeen, RangeSeen, Recorded
from greenbench.timeline.writing import write_trace
from tests.fake_cupti import FakeCupti, Kind
from tests.staging import Notes, WorkerHere

PRIMARY = 1


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> FakeCupti:
    """Let the package be installed."""
    made = FakeCupti()
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


class TracedHere(WorkerHere):
    """A worker of the modelled device in this process, which a sweep and its trace can use."""

    def __init__(self, *given: Any, traced: bool = False, **more: Any) -> None:
        super().__init__(*given, **more)
        self._hello = (*self._hello, traced)  # type: ignore[assignment]

    def open(self, partitions: list[Partition]) -> list[Grant]:
        """Open lanes."""
        return self._server.open(partitions)[0]  # type: ignore[return-value]

    def prepare(self, point: Point, timing: Timing | None = None, *, timeout_s: float) -> Prepared:
        """Prepare a point."""
        return self._server.prepare(point, timing, True)

    def warm_up(self, point: Point, *, timeout_s: float) -> float:
        """Warm up."""
        return self._server.warm_up(point)

    def block(self, *given: Any, timeout_s: float) -> Block:
        """Take a block."""
        return self._server.block(*given)

    def trace(self, point: Point, launches: int, *, timeout_s: float) -> Recorded:
        """Trace a point."""
        return self._server.trace(point, launches)

    def stop(self) -> None:
        """Close the device."""
        self._server.close()

    kill = stop


@pytest.fixture
def traced(
    cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Mapping[Partition, int]], tuple[SweepOutcome, Notes]]:
    """Run a small sweep with --trace in which each launch runs in the context that is said for its partition."""
    monkeypatch.setattr(crew, "Worker", TracedHere)
    monkeypatch.setattr(tracing, "refuse", lambda device: None)
    profile, correlations = Session.profile, iter(range(10**6))

    def run(places: Mapping[str, int]) -> tuple[SweepOutcome, Notes]:
        def watched(session: Session, point: Point, launches: int) -> Block:
            block = profile(session, point, launches)
            cupti.context(PRIMARY, None)
            for context, sms in ((2, 8), (3, 16)):
                cupti.context(context, sms, parent=PRIMARY)
            for _ in range(launches if point.partition.name in places else 0):
                cupti.launch(places[point.partition.name], next(correlations), point.kernel)
            return block

        monkeypatch.setattr(Session, "profile", watched)
        keys = {"sms": "8,16,primary", "kernels": "copy", "set": ("n=65536",), "timing": "steady", "rounds": "1"}
        request = SweepRequest(
            plan=load_plan("quick", keys, sweep.library()), device="model:h200", out=tmp_path / "run", trace=True
        )
        notes = Notes()
        return run_sweep(request, notes), notes

    return run


def test_a_traced_sweep_is_a_timeline(traced: Any, cupti: FakeCupti) -> None:
    """Each point's launches are in its range and context, with the SMs of the record; the rows keep their times."""
    outcome, notes = traced({"8": 2, "16": 3, "primary": PRIMARY})
    assert outcome.exit_code == ExitCode.DONE
    assert all(row.time_us and "profiled" not in row.flags for row in outcome.rows)
    assert outcome.trace == outcome.folder / "trace.sqlite"
    analysis = analyse(read_capture(outcome.trace))
    contexts = {each.label: each for each in analysis.capture.contexts}
    assert {label: context.sms for label, context in contexts.items()} == {"green:2": 8, "green:3": 16, "primary:1": None}
    ranges = {each.name: each for each in analysis.ranges}
    assert set(ranges) == {row.label for row in outcome.rows}
    assert {each.figures.kernels for each in ranges.values()} == {tracing.LAUNCHES}
    assert (analysis.outside, analysis.strays, analysis.unchecked, analysis.findings) == (0, 0, "", ())
    assert "15 kernels, all in the contexts of their points" in notes.notes[-1]
    assert not cupti.enabled


def test_the_timeline_of_a_run(traced: Any) -> None:
    """`greenbench timeline RUN` reads the trace that lies in the folder, and does not call it nsys's."""
    outcome, _ = traced({"8": 2, "16": 3, "primary": PRIMARY})
    done = CliRunner().invoke(cli, ["timeline", str(outcome.folder)])
    assert done.exit_code == 0
    assert "(greenbench " in done.stdout
    assert "nsys greenbench" not in done.stdout
    assert "green:3" in done.stdout
    assert "no findings" in done.stdout


def test_a_kernel_in_another_context_is_told(traced: Any) -> None:
    """A partition whose kernels ran in the primary context, or on other SMs, is counted in words."""
    _, notes = traced({"8": PRIMARY, "16": 2, "primary": PRIMARY})
    assert "10 outside the context of their point" in notes.notes[-1]


def test_a_point_that_cupti_does_not_see_is_lost(traced: Any) -> None:
    """The run is complete and the trace is not: exit 5, with the point named."""
    outcome, notes = traced({"8": 2, "primary": PRIMARY})
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert {row.status for row in outcome.rows} == {"ok"}
    assert any(note.startswith("not traced: copy[n=65536]@16") and "no kernel" in note for note in notes.notes)
    assert "2 of 3 points" in notes.notes[-1]


def test_cupti_that_refuses_costs_the_trace_alone(traced: Any, cupti: FakeCupti) -> None:
    """What was measured stands, no file is left, and the reason is told."""
    cupti.refused = (Kind.CONCURRENT_KERNEL,)
    outcome, notes = traced({"8": 2})
    assert (outcome.exit_code, outcome.trace) == (ExitCode.INCOMPLETE, None)
    assert {row.status for row in outcome.rows} == {"ok"}
    assert any("CUPTI does not record kernels here: CONCURRENT_KERNEL: ERROR_NOT_COMPATIBLE" in note for note in notes.notes)
    assert notes.notes[-1] == "no trace: nothing was recorded"


def test_the_witness_sees_its_own_stretch(cupti: FakeCupti) -> None:
    """Records come in order, contexts are known for ever, calls have names, and kinds that cannot be had are said."""
    cupti.refused = (Kind.RUNTIME,)
    witness = Witness(calls=True)
    cupti.context(PRIMARY, None)
    cupti.context(7, 24, parent=PRIMARY)
    cupti.launch(7, 1)
    kernels, contexts = witness.take()
    assert ([kernel.context for kernel in kernels], [context.sms for context in contexts]) == ([7], [24, None])
    cupti.launch(7, 2)
    cupti.launch(PRIMARY, 3, cbid=9999)
    seen = witness.record(RangeSeen("x", 0, 1))
    assert [kernel.correlation for kernel in seen.kernels] == [2, 3]
    assert [call.name for call in seen.calls] == ["cuLaunchKernelEx", "driver call 9999"]
    assert [(each.context, each.green, each.parent) for each in seen.contexts] == [(1, False, 0), (7, True, 1)]
    assert seen.missing == ("RUNTIME: ERROR_NOT_COMPATIBLE",)
    assert seen.place(seen.kernels[0]) == ContextSeen(7, True, 24, parent=1)
    witness.close()
    assert not cupti.enabled


def test_what_stands_in_the_way_is_said_before_measuring(cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tool, a missing package and the modelled device each get a sentence, and the first two exit 4."""
    assert obstacle({}) is None
    under = obstacle({"NSYS_PROFILING_SESSION_ID": "3"})
    assert isinstance(under, UnfitError)
    assert "runs under nsys" in str(under)
    with pytest.raises(UsageError, match="nothing runs"):
        tracing.refuse("model:h200")
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "3")
    with pytest.raises(UnfitError):
        tracing.refuse("cuda:0")
    with pytest.raises(UnsupportedError, match="one tool at a time"):
        Witness()
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID")
    monkeypatch.setattr("greenbench.gpu.witness.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"cupti-python: pip install"):
        tracing.refuse("cuda:0")


@pytest.mark.parametrize("words", [["--trace", "--device", "model:h200"], ["--trace", "--profile", "2"]])
def test_contradictions_on_the_command_line(words: list[str], tmp_path: Path) -> None:
    """They end with 2 and leave no folder."""
    done = CliRunner().invoke(cli, ["sweep", "--out", str(tmp_path / "run"), *words])
    assert done.exit_code == 2
    assert "contradict" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_worker_that_is_not_watched_traces_nothing() -> None:
    """It is a mistake of ours, not a point's."""
    worker = TracedHere("model:h200")
    worker.start()
    with pytest.raises(Exception, match="internal"):
        worker.trace(Point("copy", (), Partition(SmsMode.PRIMARY)), 1, timeout_s=1)
    worker.stop()


def test_a_run_with_several_reports(traced: Any) -> None:
    """The trace comes first; without it several reports are one too many, and an export is taken before a raw one."""
    outcome, _ = traced({"8": 2, "16": 3, "primary": PRIMARY})
    trace = outcome.folder / "trace.sqlite"
    one, two = outcome.folder / "one.sqlite", outcome.folder / "two.sqlite"
    one.write_bytes(trace.read_bytes())
    (outcome.folder / "one.nsys-rep").touch()
    trace.unlink()
    assert CliRunner().invoke(cli, ["timeline", str(outcome.folder)]).exit_code == 0
    two.write_bytes(one.read_bytes())
    done = CliRunner().invoke(cli, ["timeline", str(outcome.folder)])
    assert done.exit_code == 2
    assert "one.sqlite, two.sqlite" in done.stderr


TIMES = st.integers(0, 10**6)


@given(
    st.lists(st.tuples(TIMES, st.integers(1, 10**4), st.sampled_from([1, 2, 3])), min_size=1, max_size=30),
    st.integers(1, 2**22),
    st.integers(0, 2**60),
)
def test_what_is_written_is_read(tmp_path_factory: Any, launches: list[tuple[int, int, int]], pid: int, origin: int) -> None:
    """Any kernels on any clock come back with their contexts, durations and distances; the first call starts at 0."""
    contexts = (ContextSeen(1, False), ContextSeen(2, True, 8, parent=1), ContextSeen(3, True, 16, parent=1))
    kernels = tuple(
        KernelSeen("k", origin + 5 + start, origin + 5 + start + length, context, context + 10, correlation=place)
        for place, (start, length, context) in enumerate(launches)
    )
    calls = tuple(
        CallSeen("cuLaunchKernelEx", kernel.start_ns - 2, kernel.start_ns - 1, kernel.correlation) for kernel in kernels
    )
    span = RangeSeen("p", min(call.start_ns for call in calls), max(call.end_ns for call in calls))
    path = tmp_path_factory.mktemp("trace") / "trace.sqlite"
    write_trace(path, [Recorded(pid, kernels, calls, contexts, (span,))], device=0, name="GPU", sms=132)
    capture = read_capture(path)
    first = span.start_ns
    assert sorted(zip(capture.work.start, capture.work.end, capture.work.green, strict=True)) == sorted(
        (kernel.start_ns - first, kernel.end_ns - first, kernel.context if kernel.context > 1 else 0) for kernel in kernels
    )
    assert set(capture.work.context) == {1}
    assert analyse(capture).outside == 0
    assert capture.notes == ()


def test_kernels_in_unknown_contexts(tmp_path: Path) -> None:
    """Where no record of a kernel's context came, the file does not claim to know green contexts."""
    path = tmp_path / "trace.sqlite"
    write_trace(path, [Recorded(1, (KernelSeen("k", 10, 20, 4, 5),))], device=0, name="GPU", sms=132)
    capture = read_capture(path)
    assert not capture.knows_green
    assert [context.label for context in capture.contexts] == ["primary:4"]


def test_a_failed_point_is_left_out(traced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point that fails under CUPTI costs itself alone."""
    original = TracedHere.trace

    def trace(self: TracedHere, point: Point, launches: int, *, timeout_s: float) -> Recorded:
        if point.partition.sms == 16:
            raise FailedError("out of memory")
        return original(self, point, launches, timeout_s=timeout_s)

    monkeypatch.setattr(TracedHere, "trace", trace)
    outcome, notes = traced({"8": 2, "16": 3, "primary": PRIMARY})
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert any("out of memory" in note for note in notes.notes)
    assert outcome.trace is not None
