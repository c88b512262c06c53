"""`switch` from request to run folder on modelled devices: its order, what a lost process costs, resuming, and the way out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenbench.catalog import library
from greenbench.cojournal import read_cojournal
from greenbench.errors import ExitCode, InterruptedRunError, NotComparableError, UsageError
from greenbench.experiments import cocrew
from greenbench.experiments.switch import SwitchOutcome, SwitchRequest, exit_code, preview, run_switch, visit_order
from greenbench.facts import model_facts
from greenbench.gpu.hosting import Queue
from greenbench.runfiles import read_corows, read_meta
from greenbench.schema import BlockStatus, Status
from greenbench.switching.plan import load_switch, switch_from_dict
from greenbench.switching.rows import derive_switch_rows
from greenbench.switching.setups import expand, schedule_of, setup_of
from tests.staging import Notes, WorkerHere, children, model

KERNELS = dict(library())
SMALL = {"processes": "2,8", "mechanisms": "green,timeslice", "working_set": "0", "seconds": "0.05"}


class Bench:
    """Runs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.listener = folder, folder / "run", Notes()

    def request(self, *faults: dict[str, Any], given: dict[str, str] | None = None, **changes: Any) -> SwitchRequest:
        """Ask for green and timeslice with 2 and 8 processes, unless the test says otherwise."""
        plan = load_switch("switch", {**SMALL, **(given or {})}, KERNELS)
        device = model(self.folder / "device", *faults)
        return SwitchRequest(plan=plan, device=device, **{"out": self.out, **changes})

    def run(self, *faults: dict[str, Any], **changes: Any) -> SwitchOutcome:
        """One run."""
        return run_switch(self.request(*faults, **changes), self.listener)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench of real worker processes; when the test is over none may be left."""
    before = children(os.getpid())
    yield Bench(tmp_path)
    assert children(os.getpid()) <= before


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose workers need no process, for what is decided on this side of the pipe."""
    monkeypatch.setattr(cocrew, "Worker", WorkerHere)
    return Bench(tmp_path)


def test_a_whole_run(bench: Bench) -> None:
    """Alone first, a row for each point, in agreement with the model's arithmetic; rows follow from journal and run.json."""
    outcome = bench.run()
    assert outcome.exit_code is ExitCode.DONE
    assert outcome.summary.startswith("5 points: 5 ok in ")
    assert bench.listener.labels[0].endswith("@1x/driver_default/alone/-")
    assert (bench.listener.total_blocks, bench.listener.ended) == (5, 1)
    rows = {(row.mechanism, row.processes): row for row in outcome.rows}
    assert [(row.label, row.status, row.steps) for row in read_corows(bench.out)] == [
        (row.label, row.status, row.steps) for row in outcome.rows
    ]
    meta = read_meta(bench.out / "run.json")
    assert derive_switch_rows(meta, switch_from_dict(meta.plan), read_cojournal(bench.out / "blocks.csv")) == outcome.rows
    assert (meta.command, len(meta.points), [kernel.name for kernel in meta.kernels]) == ("switch", 5, ["tenant"])
    alone, two, eight = rows["alone", 1], rows["timeslice", 2], rows["timeslice", 8]
    assert alone.throughput_pct == 100.0
    # 100 us and 12 of the host alone; 237 us a turn where the device changes hands after each operation.
    assert alone.throughput_per_s == pytest.approx(1e6 / 112, rel=0.02)
    for row, tenants in ((two, 2), (eight, 8)):
        assert row.throughput_pct == pytest.approx(100 * 112 / 237, rel=0.02)
        assert row.switch_us == pytest.approx(137.0, rel=0.01)
        assert row.overlap_frac == 0.0
        assert row.step_us_p50 == pytest.approx(tenants * 237, rel=0.02)
    green = rows["green", 8]
    assert (green.sms_requested, green.sms_granted, green.placement) == ("16+16+16+16+16+16+16+20", 132, "confined")
    assert green.overlap_frac is not None
    assert green.overlap_frac > 0.9
    assert {row.backend for row in outcome.rows} == {"modelled"}


def test_the_order_is_random_by_the_seed(here: Bench) -> None:
    """The same seed gives the same order, another one another; `alone` is first, since all others are compared with it."""
    plan = here.request(given={"processes": "2,3,4", "mechanisms": "all"}).plan
    points, _ = expand(plan)
    orders = [visit_order(replace(plan, seed=seed), points) for seed in (1, 1, 3)]
    assert orders[0] == orders[1] != orders[2]
    assert set(orders[0]) == set(orders[2]) == set(points)
    assert orders[0][0] == orders[2][0] == points[0]


def test_a_process_that_dies_costs_its_point(bench: Bench) -> None:
    """What strikes partitions of 16 SMs is tried twice and is that row's reason; every other point is there: exit 5."""
    outcome = bench.run({"kind": "sticky", "kernel": "tenant", "sms": 16})
    assert outcome.exit_code is ExitCode.INCOMPLETE
    (lost,) = [row for row in outcome.rows if row.status != Status.OK]
    assert (lost.mechanism, lost.processes, lost.status, lost.throughput_per_s) == ("green", 8, "failed", None)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in lost.reason
    tries = [visit for visit in read_cojournal(bench.out / "blocks.csv") if visit.status is BlockStatus.FAILED]
    assert [visit.attempt for visit in tries] == [1, 2]
    assert bench.listener.labels[-2:] == [lost.label, "done"]


def test_what_is_interrupted_goes_on(here: Bench) -> None:
    """Ctrl-C leaves rows and a way on; the rest is visited, what was measured is not, and other options are refused."""

    def stop(_: str, count: int) -> None:
        if count == 3:
            raise KeyboardInterrupt

    here.listener = Notes(stop)
    with pytest.raises(InterruptedRunError, match="greenbench switch --resume"):
        here.run()
    assert [row.status for row in read_corows(here.out)].count("ok") == 2
    with pytest.raises(NotComparableError, match="has a point that is not asked for now"):
        here.run(given={"processes": "2"}, out=None, resume=here.out)
    # Left by a run that was killed while processes of a point ran.
    (here.out / cocrew.STOP).touch()
    here.listener = Notes()
    outcome = here.run(out=None, resume=here.out)
    assert {path.name for path in here.out.iterdir()} == {"run.json", "blocks.csv", "rows.csv"}
    assert (outcome.exit_code, len(here.listener.labels)) == (ExitCode.DONE, 3 + 1)
    visits = read_cojournal(here.out / "blocks.csv")
    assert len({visit.label for visit in visits}) == len(visits) == 5


def test_what_cannot_be_done_is_a_row_and_strictly_an_error(here: Bench) -> None:
    """20 partitions of 132 SMs are unsupported; with --strict that is exit 5, and a preview says it beforehand."""
    given = {"processes": "20", "mechanisms": "green"}
    seen = preview(here.request(given=given))
    assert [bool(why) for why in seen.obstacles] == [False, True]
    assert not here.out.exists()
    outcome = here.run(given=given, strict=True)
    assert outcome.exit_code is ExitCode.INCOMPLETE
    assert [row.status for row in outcome.rows] == ["ok", "unsupported"]
    assert outcome.rows[1].reason == seen.obstacles[1]
    assert exit_code(outcome.rows) is ExitCode.DONE
    assert exit_code(outcome.rows[1:]) is ExitCode.MACHINE


def test_a_folder_that_is_taken_is_left_alone(here: Bench) -> None:
    """Another run's folder, or any that is not empty, is refused before a device is opened."""
    here.out.mkdir()
    (here.out / "mine.txt").touch()
    with pytest.raises(UsageError, match="not empty"):
        here.run()
    assert [path.name for path in here.out.iterdir()] == ["mine.txt"]


class Ledger:
    """A book in which nothing has ended until a test says so."""

    done = 0


class Step:
    """A graph of a few launches that only counts."""

    launches = 4

    def __init__(self) -> None:
        self.count = 0

    def launch(self) -> None:
        """Count."""
        self.count += 1


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_process_keeps_as_many_enqueued_as_was_asked(ahead: int, here: Bench) -> None:
    """With 1 the next operation waits for the end of the one before; with 3 the device has always two more."""
    plan = here.request(given={"ahead": str(ahead)}).plan
    alone = expand(plan)[0][0]
    (schedule,) = schedule_of(alone, setup_of(alone, plan, model_facts("h200").device, KERNELS), 1.0, 5.0).roles
    ledger, step = Ledger(), Step()
    queue = Queue([step], ledger, schedule, [0], 10**9)  # type: ignore[arg-type]
    assert [queue.fill(lambda: 5) for _ in range(ahead + 1)] == [True] * ahead + [False]
    ledger.done = 1
    assert [queue.fill(lambda: 5) for _ in range(2)] == [True, False]
    assert step.count == ahead + 1
