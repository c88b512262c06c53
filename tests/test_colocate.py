"""Whole co-locations on the modelled device, through worker processes: rows, rates, resuming, lost workers, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenbench.catalog import library
from greenbench.cojournal import VisitKind, read_cojournal
from greenbench.colocation import room
from greenbench.colocation.keys import EVERY
from greenbench.colocation.outcomes import co_rows, outcomes
from greenbench.colocation.plan import CoPlan, coplan_from_dict, load_coplan
from greenbench.corow import CoRow
from greenbench.costeps import CoSchedule, CoSetup, RoleSchedule, RoleSpec, Trace
from greenbench.errors import (
    ExitCode,
    FailedError,
    InterruptedRunError,
    NotComparableError,
    OutputError,
    ResultFileError,
    StickyError,
    UnfitError,
    UnsupportedError,
)
from greenbench.experiments import cocrew, covisits
from greenbench.experiments.cocampaign import shuffled
from greenbench.experiments.cocrew import CoCrew
from greenbench.experiments.colocate import CoOutcome, CoRequest, length_s, preview, run_colocate
from greenbench.experiments.covisits import Job, Visitor
from greenbench.queueing.model import Kind, Mechanism
from greenbench.runfiles import read_corows, read_meta
from greenbench.schema import BlockStatus, DeviceFacts, Status
from greenbench.workload import load_workload
from tests.staging import Notes, model

# Two kernels each: quick to model, and no model's prefill, so that there are no chunks.
LATENCY = '[[kernels]]\nname = "copy"\nparams = { n = 1048576 }\n'
BACKGROUND = 'tokens = 16\n[[kernels]]\nname = "triad"\nparams = { n = 16777216 }\nrepeat = 4\n'


def planned(folder: Path, mechanisms: str = "streams,green", **more: object) -> CoPlan:
    """A small plan: 60 steps at 1,000 a second in 24 SMs."""
    folder.mkdir(exist_ok=True)
    for name, text in (("short", LATENCY), ("long", BACKGROUND)):
        (folder / f"{name}.toml").write_text(text)
    options = {"latency": str(folder / "short.toml"), "background": str(folder / "long.toml"), "mechanisms": mechanisms}
    known = {"sms": "24", "steps": "60", "step_rate": "1000"}
    plan = folder / "plan.toml"
    plan.write_text('command = "colocate"\n')
    return load_coplan(plan, {**options, **known, **more}, library())


def run(plan: CoPlan, out: Path, listener: Notes | None = None, **more: Any) -> CoOutcome:
    """Run a plan into a new folder."""
    return run_colocate(CoRequest(plan=plan, out=out, **{"device": "model:h200", **more}), listener or Notes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[CoPlan, CoOutcome, Notes]:
    """One run of every mechanism, which tests look at and leave as it is."""
    folder = tmp_path_factory.mktemp("whole")
    plan = planned(folder, "all")
    return plan, run(plan, folder / "run", listener := Notes()), listener


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each role alone, whose folder tests look at, or copy."""
    folder = tmp_path_factory.mktemp("apart")
    return run(planned(folder, "alone"), folder / "run").folder


def copied(run: Path, folder: Path) -> Path:
    """A copy of a run."""
    shutil.copytree(run, folder / run.name)
    return folder / run.name


def by(rows: list[CoRow], mechanism: Mechanism) -> list[CoRow]:
    """The rows of one mechanism."""
    return [row for row in rows if row.mechanism == mechanism]


Whole = tuple[CoPlan, CoOutcome, Notes]


def test_every_mechanism_in_one_run(whole: Whole) -> None:
    """Each point has a row per role, alone first; what 13.0 cannot do is unsupported with its reason, and the run is done."""
    _, done, listener = whole
    assert done.exit_code is ExitCode.DONE
    assert {row.mechanism for row in done.rows} == set(EVERY) - {Mechanism.CHUNKED}
    assert [row.role for row in by(done.rows, Mechanism.GREEN)] == ["latency", "background"]
    bad = [row for row in done.rows if row.status != Status.OK]
    assert {(row.mechanism, row.status) for row in bad} == {("green_balanced", "unsupported")}
    assert {row.reason for row in bad} == {"workqueue configuration needs driver 13.1, this is 13.0"}
    for row in done.rows:
        if row.status == Status.OK:
            assert row.steps
            assert row.backend == "modelled"
            assert row.source_digest
        if row.status == Status.OK and row.mechanism != Mechanism.ALONE:
            assert (row.overlap_frac is None) == (row.mechanism == Mechanism.TIMESLICE)
    green = by(done.rows, Mechanism.GREEN)
    assert [(row.sms_granted, row.placement) for row in green] == [(24, "confined"), (108, "confined")]
    assert [row.arrivals for row in by(done.rows, Mechanism.TIMESLICE)] == ["host", "closed"]
    assert [row.process for row in by(done.rows, Mechanism.STREAMS)] == ["fixed", ""]
    assert {row.label for row in green} == {green[0].label}
    assert read_corows(done.folder) == [replace(row, **_rounded(row)) for row in done.rows]
    # Each role alone, on the whole device and on its partition, and a point of every other mechanism but chunked.
    count = 4 + len(EVERY) - 2
    assert listener.total_blocks == count
    assert done.summary.startswith(f"{count} points: {count - 1} ok, 1 unsupported in ")
    # Each visit is one line; nothing was measured twice.
    visits = read_cojournal(done.folder / "blocks.csv")
    assert len({visit.key for visit in visits}) == len(visits) == count


def _rounded(row: CoRow) -> dict[str, float]:
    """Figures to the digits of rows.csv."""
    values = {name: getattr(row, name) for name in CoRow.__dataclass_fields__}
    return {name: float(f"{v:.7g}") for name, v in values.items() if isinstance(v, float) and not v.is_integer()}


def test_rows_come_from_the_run_folder_alone(whole: Whole) -> None:
    """run.json and blocks.csv give the same rows again, and the plan in run.json reads back."""
    plan, done, _ = whole
    meta = read_meta(done.folder / "run.json")
    assert co_rows(outcomes(meta, read_cojournal(done.folder / "blocks.csv"), plan.slo)) == done.rows
    assert coplan_from_dict(meta.plan, library()) == plan
    assert [kernel.name for kernel in meta.kernels] == ["copy", "triad"]
    assert meta.command == "colocate"
    assert meta.finished


def test_slowdown_is_against_alone_on_the_same_partition(whole: Whole) -> None:
    """Recomputed from the rows: medians beside over those of the row alone with as many SMs."""
    rows = whole[1].rows
    alone = {(row.role, row.sms_requested): row for row in by(rows, Mechanism.ALONE)}
    assert set(alone) == {(role, sms) for role, own in (("latency", "24"), ("background", "108")) for sms in ("primary", own)}
    for row in rows:
        if row.mechanism != Mechanism.ALONE and row.status == Status.OK:
            base = alone[row.role, row.sms_requested]
            assert row.slowdown == pytest.approx((row.step_us_p50 or 0) / (base.step_us_p50 or 1))


def test_two_runs_of_one_seed_are_equal(whole: Whole, tmp_path: Path) -> None:
    """Same arrivals, same order of visits, same figures; another seed has another order."""
    plan, first, _ = whole
    second = run(plan, tmp_path / "run")
    same = [replace(row, run_id="") for row in first.rows]
    assert same == [replace(row, run_id="") for row in second.rows]
    order = [[visit.label for visit in read_cojournal(done.folder / "blocks.csv")] for done in (first, second)]
    assert order[0] == order[1]
    points = preview(CoRequest(plan=plan, device="model:h200")).points
    assert shuffled(points, 1, "beside") != shuffled(points, 2, "beside")
    assert sorted(map(str, shuffled(points, 2, "beside"))) == sorted(map(str, points))


def test_what_a_driver_cannot_do_is_refused_before_a_worker_is_asked(whole: Whole) -> None:
    """A workqueue scope on 13.0 costs no time: nothing is prepared, and it is not tried twice."""
    visits = [each for each in read_cojournal(whole[1].folder / "blocks.csv") if each.mechanism is Mechanism.GREEN_BALANCED]
    assert [each.status for each in visits] == [BlockStatus.UNSUPPORTED]
    # A crew that has nothing to give: whoever asks it fails.
    facts = read_meta(whole[1].folder / "run.json").device
    visitor = Visitor(None, whole[0], facts, whole[1].folder)  # type: ignore[arg-type]
    points = preview(CoRequest(plan=whole[0], device="model:h200")).points
    point = next(each for each in points if each.mechanism is Mechanism.GREEN_BALANCED)
    with pytest.raises(UnsupportedError, match="needs driver 13.1, this is 13.0"):
        visitor.take(Job(point, 0, 1000.0))


def test_a_chunked_request_overlaps_nothing(tmp_path: Path) -> None:
    """Its pieces are in the journal, and steps between them have no time in common with it."""
    options = {"background": "prefill", "layers": "1", "prompt": "1024", "chunk": "256", "steps": "40", "step_rate": "400"}
    done = run(planned(tmp_path, "serial,chunked", **options), tmp_path / "run")
    visits = {each.mechanism: each for each in read_cojournal(done.folder / "blocks.csv")}
    background = visits[Mechanism.CHUNKED].roles[1]
    assert len(background.chunks) == 4 * len(background.end_ns) > 0
    assert background.chunks[0][0] == background.start_ns[0]
    assert [end for _, end in background.chunks[3::4]] == list(background.end_ns)
    assert not visits[Mechanism.SERIAL].roles[1].chunks
    for mechanism in (Mechanism.SERIAL, Mechanism.CHUNKED):
        assert {row.overlap_frac for row in by(done.rows, mechanism)} == {0.0}


def test_requests_without_room_cost_their_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a step rate that a look has to settle, what no run has room for is unsupported, and the rest is measured."""
    monkeypatch.setattr(room, "ROOM", 100)
    done = run(planned(tmp_path, "streams", step_rate="auto", rates="100,1000000"), tmp_path / "run")
    rows = by(done.rows, Mechanism.STREAMS)
    assert [(row.role, row.status) for row in rows] == [
        ("latency", "ok"),
        ("background", "ok"),
        ("latency", "unsupported"),
        ("background", "unsupported"),
    ]
    assert "requests at 1e+06 a second, and a run has room for 100; give fewer --steps" in rows[2].reason
    assert done.exit_code is ExitCode.DONE
    again = run_colocate(CoRequest(plan=recorded(done), device="model:h200", resume=done.folder), Notes())
    assert again.rows == done.rows


def test_an_estimate_counts_the_planned_length(tmp_path: Path) -> None:
    """60 steps and 20 of warm-up at 10 a second last 8 s; requests for an objective prolong that, up to 30 s and warm-up."""
    options = {"background": "prefill", "layers": "1", "prompt": "256", "slo": "ttft_p50=100ms", "rates": "5,0.5,0.01"}
    plan = planned(tmp_path, "streams", step_rate="10", **options)
    seen = preview(CoRequest(plan=plan, device="model:h200"))
    points = {point.rate_per_s: point for point in seen.points if point.mechanism is Mechanism.STREAMS}
    # A p50 needs five requests, and a tenth more are planned: 11 s at 0.5 a second.
    assert [length_s(plan, points[rate]) for rate in (5.0, 0.5, 0.01)] == [8.0, (110 + 20) / 10, (300 + 20) / 10]
    unknown = replace(plan, step_rate=None)
    assert [length_s(unknown, points[rate]) for rate in (5.0, 0.5, 0.01)] == pytest.approx([2.5, 11, 30])


def recorded(done: CoOutcome) -> CoPlan:
    """The plan of a run, from its run.json."""
    return coplan_from_dict(read_meta(done.folder / "run.json").plan, library())


def test_a_leak_leaves_no_figures(tmp_path: Path) -> None:
    """A partition whose CTAs run on an SM more is leaked, alone as beside; what has no partition is untouched."""
    done = run(planned(tmp_path), tmp_path / "run", device=model(tmp_path / "device", {"kind": "leak"}))
    split = [row for row in done.rows if row.sms_requested != "primary"]
    assert {(row.mechanism, row.status, row.placement) for row in split} == {
        ("alone", "failed", "leaked"),
        ("green", "failed", "leaked"),
    }
    assert {(row.step_us_p50, row.throughput_per_s) for row in split} == {(None, None)}
    assert {row.status for row in by(done.rows, Mechanism.STREAMS)} == {"ok"}
    assert done.exit_code is ExitCode.INCOMPLETE


def test_rare_requests_are_rare(tmp_path: Path) -> None:
    """At 0.001 a second none comes, which says nothing; the rate of those that come is that of the window."""
    options = {"background": "prefill", "layers": "1", "prompt": "256", "step_rate": "20", "slo": "ttft_p50=100ms"}
    done = run(planned(tmp_path, "streams", rates="0.001,20", **options), tmp_path / "run")
    none, some = [row for row in by(done.rows, Mechanism.STREAMS) if row.role == "background"]
    assert (none.status, none.steps, none.saturated, none.slo_met, none.throughput_per_s) == ("ok", 0, "", "", None)
    assert some.throughput_per_s is not None
    assert 10 < some.throughput_per_s < 30


def test_damaged_rows_are_made_anew(apart: Path, tmp_path: Path) -> None:
    """rows.csv follows from the journal: where that is whole the run goes on and says so; where it is not, it is refused."""
    folder = copied(apart, tmp_path)
    whole = (folder / "rows.csv").read_bytes()
    plan = coplan_from_dict(read_meta(folder / "run.json").plan, library())
    damaged = whole.replace(b",ok,", b",fine,", 1) + b"torn,line"
    for data in (damaged, b"\x00\xff", whole[:-40], b""):
        (folder / "rows.csv").write_bytes(data)
        listener = Notes()
        run_colocate(CoRequest(plan=plan, device="model:h200", resume=folder), listener)
        assert (folder / "rows.csv").read_bytes() == whole
        assert any("rows.csv is made anew from blocks.csv" in note for note in listener.notes)
    (folder / "rows.csv").write_bytes(whole + b"torn,line")
    journal = folder / "blocks.csv"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(ResultFileError, match="blocks.csv lacks 3 points that rows.csv has"):
        run_colocate(CoRequest(plan=plan, device="model:h200", resume=folder), Notes())


def test_a_background_that_runs_out_of_room_fails_its_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the latency role did after that it did beside nothing: the point has no figures, and says why."""
    monkeypatch.setattr(covisits, "ROOM", 5)
    done = run(planned(tmp_path, "streams"), tmp_path / "run")
    rows = by(done.rows, Mechanism.STREAMS)
    assert {row.status for row in rows} == {"failed"}
    assert "role background: 5 steps, all that a run has room for" in rows[0].reason
    assert {row.status for row in by(done.rows, Mechanism.ALONE)} == {"ok"}


def test_a_step_rate_of_three_tenths(tmp_path: Path) -> None:
    """Without --step-rate a short closed loop by itself comes first, and its line stays in the journal."""
    done = run(planned(tmp_path, "streams", step_rate="auto"), tmp_path / "run")
    probe, *visits = read_cojournal(done.folder / "blocks.csv")
    assert probe.kind is VisitKind.PROBE
    assert all(visit.kind is VisitKind.VISIT for visit in visits)
    took = [end - due for due, end in zip(probe.roles[0].due_ns, probe.roles[0].end_ns, strict=True)]
    assert len(took) >= 50
    rate = next(row.rate_per_s for row in done.rows if row.role == "latency")
    middle = sorted(took[-50:])[25]
    assert rate == pytest.approx(0.3e9 / middle, rel=0.06)
    assert rate == float(f"{rate:.2g}")


def test_auto_rates_find_the_highest_that_holds(tmp_path: Path) -> None:
    """Each mechanism climbs the ladder until the objective breaks, then looks between; advice and trials agree."""
    plan = planned(tmp_path, "streams,green", rates="auto", slo="step_p95=1ms", steps="200")
    done = run(plan, tmp_path / "run")
    assert done.advice is not None
    assert done.advice.text in done.sentences
    # One sentence on protection, not one for each rate.
    assert len(done.sentences) == 2
    assert "protects it best" in done.sentences[0]
    backgrounds = [row for row in done.rows if row.role == "background" and row.mechanism == Mechanism.GREEN]
    rates = [row.rate_per_s for row in backgrounds]
    assert rates == sorted(rates, key=lambda rate: rate or 0)
    assert len(set(rates)) == len(rates) > 1
    assert {row.arrivals for row in backgrounds} == {"device"}
    assert {row.slo_met for row in backgrounds} <= {"true", "false", ""}
    held = [row.rate_per_s for row in backgrounds if row.slo_met == "true"]
    assert done.advice.rate_per_s is None or done.advice.rate_per_s >= max(held, default=0.0)


def test_no_rate_above_what_the_background_does_alone_is_held(tmp_path: Path) -> None:
    """On 20 SMs the background does less than the ladder's top: the climb breaks there, whatever a short window shows."""
    done = run(planned(tmp_path, "green", sms="112", rates="auto", slo="step_p50=1s"), tmp_path / "run")
    rows = [row for row in done.rows if row.role == "background" and row.mechanism == Mechanism.GREEN]
    (most,) = [
        row.throughput_per_s
        for row in by(done.rows, Mechanism.ALONE)
        if row.role == "background" and row.sms_requested != "primary"
    ]
    assert most is not None
    assert {(row.rate_per_s or 0) > most for row in rows} == {True, False}
    for row in rows:
        above = (row.rate_per_s or 0) > most
        assert (row.saturated == "true", row.slo_met) == (above, "false" if above else "true")
    assert done.advice is not None
    assert done.advice.rate_per_s == max(row.rate_per_s or 0 for row in rows if row.slo_met == "true") <= most


def test_interference_says_what_hurts(tmp_path: Path) -> None:
    """The green row has a slowdown for every load, and one sentence names the worst."""
    done = run(planned(tmp_path, "green", interference=True), tmp_path / "run")
    (row,) = [row for row in by(done.rows, Mechanism.GREEN) if row.role == "latency"]
    found = {load: getattr(row, f"slowdown_{load}") for load in ("compute", "l2", "hbm", "copy")}
    assert None not in found.values()
    (said,) = [text for text in done.sentences if "load" in text]
    assert said.startswith(f"{row.kernel}[")
    assert len(by(done.rows, Mechanism.GREEN)) == 2


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["crash", "hang"])
def test_a_lost_worker_costs_a_try(tmp_path: Path, kind: str) -> None:
    """A worker that dies or hangs once is replaced, and the point measured again; the run is complete."""
    device = model(tmp_path / "device", {"kind": kind, "kernel": "triad", "sms": 132, "times": 1}, state="state.json")
    done = run(planned(tmp_path, "alone"), tmp_path / "run", device=device, timeout_s=5.0)
    assert done.exit_code is ExitCode.DONE
    lost = [visit for visit in read_cojournal(done.folder / "blocks.csv") if visit.status is BlockStatus.FAILED]
    assert [visit.attempt for visit in lost] == [1]
    assert {row.status for row in done.rows} == {"ok"}


def test_a_point_that_always_crashes_costs_its_rows(tmp_path: Path) -> None:
    """Two tries, then failed with the reason in both rows; everything else is measured, and the run ends with 5."""
    device = model(tmp_path / "device", {"kind": "crash", "kernel": "triad", "sms": 108}, state="state.json")
    done = run(planned(tmp_path), tmp_path / "run", device=device)
    assert done.exit_code is ExitCode.INCOMPLETE
    bad = [row for row in done.rows if row.status == Status.FAILED]
    assert {(row.mechanism, row.role) for row in bad} == {("alone", "background"), ("green", "latency"), ("green", "background")}
    assert all("the worker" in row.reason for row in bad)
    assert {row.status for row in by(done.rows, Mechanism.STREAMS)} == {"ok"}
    assert [row.slowdown is not None for row in by(done.rows, Mechanism.STREAMS)] == [True, True]


def test_a_throttled_visit_is_taken_again(tmp_path: Path) -> None:
    """Once: the second visit counts; if that was throttled too the point has no figures and says so."""
    once = model(tmp_path / "once", {"kind": "throttle", "kernel": "copy", "sms": 24, "times": 1}, state="state.json")
    done = run(planned(tmp_path, "alone"), tmp_path / "a", device=once)
    statuses = [visit.status for visit in read_cojournal(done.folder / "blocks.csv")]
    assert statuses.count(BlockStatus.DISCARDED) == 1
    assert done.exit_code is ExitCode.DONE
    always = model(tmp_path / "always", {"kind": "throttle", "kernel": "copy", "sms": 24})
    done = run(planned(tmp_path, "alone"), tmp_path / "b", device=always)
    (bad,) = [row for row in done.rows if row.status != Status.OK]
    assert bad.reason.startswith("throttled: ")
    assert done.exit_code is ExitCode.INCOMPLETE


class Interrupting(Notes):
    """Ctrl-C at the n-th progress."""

    def __init__(self, at: int) -> None:
        def act(_: str, count: int) -> None:
            if count == at:
                raise KeyboardInterrupt

        super().__init__(act)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """What was measured is kept and has rows; --resume measures the rest alone, and the rows are those of a run in one piece."""
    plan = planned(tmp_path)
    with pytest.raises(InterruptedRunError, match="continue with greenbench colocate --resume"):
        run(plan, tmp_path / "run", Interrupting(4))
    before = read_cojournal(tmp_path / "run" / "blocks.csv")
    assert len(before) == 3
    reasons = [row.reason for row in read_corows(tmp_path / "run") if row.status != Status.OK]
    assert set(reasons) == {"not measured: the run ended before this point was visited"}
    done = run_colocate(CoRequest(plan=plan, device="model:h200", resume=tmp_path / "run"), Notes())
    after = read_cojournal(tmp_path / "run" / "blocks.csv")
    assert after[:3] == before
    assert len({visit.key for visit in after}) == len(after) == 6
    assert done.exit_code is ExitCode.DONE
    assert {row.status for row in done.rows} == {"ok"}
    labels = [point.label for point in preview(CoRequest(plan=plan, device="model:h200")).points]
    assert list(dict.fromkeys(row.label for row in done.rows)) == labels


@pytest.mark.parametrize(
    ("change", "device", "said"),
    [
        ({"steps": "80"}, "model:h200", "its plan has another steps"),
        ({"seed": "2"}, "model:h200", "its seed is 1, now it is 2"),
        ({}, "model:h100", "its device is "),
        ({}, "model:h200@13.1", "its driver is "),
    ],
)
def test_another_run_is_not_continued(apart: Path, change: dict[str, object], device: str, said: str) -> None:
    """Another plan, seed, device or driver is refused, and the journal left as it is."""
    before = (apart / "blocks.csv").read_bytes()
    plan = planned(apart.parent, "alone", **change)
    with pytest.raises(NotComparableError, match=said):
        run_colocate(CoRequest(plan=plan, device=device, resume=apart), Notes())
    assert (apart / "blocks.csv").read_bytes() == before


def test_a_lost_journal_is_not_measured_over(apart: Path, tmp_path: Path) -> None:
    """A run whose rows.csv has points that its journal lacks is refused."""
    folder = copied(apart, tmp_path)
    path = folder / "blocks.csv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(ResultFileError, match="blocks.csv lacks 3 points that rows.csv has"):
        run_colocate(CoRequest(plan=planned(tmp_path, "alone"), device="model:h200", resume=folder), Notes())


def test_the_time_limit_leaves_points_out(tmp_path: Path) -> None:
    """No point begins after it; those left out are failed rows that say so."""
    done = run(planned(tmp_path, time_limit_s="0.001"), tmp_path / "run")
    assert {row.reason for row in done.rows if row.status != Status.OK} == {"not measured: the time limit of 0.001 s was reached"}
    assert done.exit_code is ExitCode.INCOMPLETE


def test_a_machine_that_cannot_leaves_no_folder(tmp_path: Path) -> None:
    """What fails before anything was measured takes its folder along; --ci refuses a throttling device."""
    throttling = model(tmp_path / "device", {"kind": "foreign_process"})
    with pytest.raises(UnfitError):
        run(planned(tmp_path), tmp_path / "run", device=throttling, ci=True)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append that fails ends the run with a sentence, and what came before is read back."""
    from greenbench.cojournal import CoJournal

    append = CoJournal.append

    def failing(self: CoJournal, visit: Any) -> Any:
        if len(self.visits) == 2:
            raise OutputError(f"{self.path} cannot be written: the disk is full; make room")
        return append(self, visit)

    monkeypatch.setattr(CoJournal, "append", failing)
    with pytest.raises(OutputError, match="the disk is full"):
        run(planned(tmp_path), tmp_path / "run")
    assert len(read_cojournal(tmp_path / "run" / "blocks.csv")) == 2
    assert sum(row.status == Status.OK for row in read_corows(tmp_path / "run")) == 2


# -- processes apart ---------------------------------------------------------------------------------------------------

SETUPS = tuple(
    CoSetup(
        mechanism=Mechanism.TIMESLICE,
        roles=(RoleSpec(name=kind.value, kind=kind, workload=load_workload("hbm", library())),),
    )
    for kind in Kind
)
SCHEDULES = (CoSchedule(roles=(RoleSchedule(due_ns=(0, 1000)),)), CoSchedule(roles=(RoleSchedule(),)))


class FakeWorker:
    """A worker that notes what it is asked, and runs until it is allowed to stop."""

    made: list[FakeWorker]
    fails: Mapping[str, Exception]

    def __init__(self, device: str, kernel_dirs: object, *, environment: Mapping[str, str], log: object) -> None:
        self.environment, self.calls, self.schedule = environment, [], None  # type: ignore[var-annotated]
        self.device: DeviceFacts | None = None
        self.made.append(self)
        self.place = len(self.made) - 1

    def _do(self, name: str) -> None:
        self.calls.append(name)
        if error := self.fails.get(f"{self.place} {name}"):
            raise error

    def begin_start(self) -> None:
        self._do("begin_start")

    def finish_start(self) -> tuple[None, str]:
        self._do("finish_start")
        share = self.environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
        return None, f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={share} overrides green partitions" if share else ""

    def co_prepare(self, setup: CoSetup, *, timeout_s: float) -> tuple[str]:
        self._do("co_prepare")
        return (setup.roles[0].name,)

    def co_now(self, *, timeout_s: float) -> int:
        return 1_000

    def start_co_run(self, setup: CoSetup, schedule: CoSchedule) -> None:
        self._do("start_co_run")
        self.schedule = schedule

    def finish_co_run(self, *, timeout_s: float) -> Trace:
        assert self.schedule is not None
        assert self.schedule.stop is not None
        self.stopped = self.schedule.stop.exists()
        self._do("finish_co_run")
        return Trace(origin_ns=self.schedule.origin_ns or 0, roles=())

    def stop(self) -> None:
        self._do("stop")

    def kill(self) -> None:
        self._do("kill")


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[FakeWorker]]:
    """Put fake workers in place; those calls fail that are named `PLACE CALL`."""

    def stage(**fails: Exception) -> list[FakeWorker]:
        FakeWorker.made, FakeWorker.fails = [], {name[1:].replace("_", " ", 1): error for name, error in fails.items()}
        monkeypatch.setattr(cocrew, "Worker", FakeWorker)
        return FakeWorker.made

    return stage


def test_processes_start_together_and_end_together(staged: Callable[..., list[FakeWorker]], tmp_path: Path) -> None:
    """All come up at once, run from one origin, and the endless one is told to stop when the other is done."""
    workers = staged()
    crew = CoCrew("cuda:0", (), tmp_path / "log", 5.0)
    # As a run that was killed leaves it.
    (tmp_path / cocrew.STOP).touch()
    prepared, traces = crew.run_apart(SETUPS, SCHEDULES, ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "15"}, {}))
    assert prepared == [("latency",), ("background",)]
    assert {trace.origin_ns for trace in traces} == {1_000 + cocrew.LEAD_NS}
    assert [worker.stopped for worker in workers] == [False, True]
    calls = ["begin_start", "finish_start", "co_prepare", "start_co_run", "finish_co_run", "stop"]
    assert [worker.calls for worker in workers] == [calls, calls]
    assert crew.size == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", ["_0_finish_start", "_1_co_prepare", "_0_finish_co_run", "_1_finish_co_run"])
def test_a_process_that_is_lost_ends_the_others(staged: Callable[..., list[FakeWorker]], failing: str, tmp_path: Path) -> None:
    """Whoever dies, every process of the point is killed, and the error is the point's."""
    workers = staged(**{failing: StickyError("the worker died of SIGSEGV")})
    crew = CoCrew("cuda:0", (), tmp_path / "log", 5.0)
    with pytest.raises(StickyError, match="SIGSEGV"):
        crew.run_apart(SETUPS, SCHEDULES, ({}, {}))
    assert [worker.calls[-1] for worker in workers] == ["kill", "kill"]
    assert crew.size == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_cannot_open_the_device_costs_its_point(staged: Callable[..., list[FakeWorker]]) -> None:
    """The device works in the first process: that another cannot open it, as under an exclusive mode, is the point's failure."""
    staged(_1_finish_start=UnfitError("cuda:0 is in exclusive mode"))
    with pytest.raises(FailedError, match="a process of this mechanism cannot open the device: cuda:0 is in exclusive mode"):
        CoCrew("cuda:0", (), None, 5.0).run_apart(SETUPS, SCHEDULES, ({}, {}))


def test_workers_apart_on_the_modelled_device(tmp_path: Path) -> None:
    """Two real processes, each with its own finite role, prepare and run; none is left."""
    crew = CoCrew("model:h200", (), tmp_path / "log", 60.0)
    schedules = [CoSchedule(roles=(RoleSchedule(steps=5),))] * 2
    try:
        prepared, traces = crew.run_apart(SETUPS, schedules, ({}, {}))
        assert crew.size == 0
    finally:
        crew.kill()
    assert [each[0].grant.sms for each in prepared] == [132, 132]
    assert [len(trace.roles[0].end_ns) for trace in traces] == [5, 5]


def test_a_run_is_json(apart: Path) -> None:
    """run.json is JSON that names the plan's workloads."""
    table = json.loads((apart / "run.json").read_text())
    assert [workload["name"] for workload in table["plan"]["latency"]] == ["short"]
