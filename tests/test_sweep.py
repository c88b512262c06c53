"""A sweep from request to run folder on modelled devices: every point one row, whatever goes wrong, and nothing measured lost."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenbench import journal as journal_module
from greenbench.catalog import library
from greenbench.errors import (
    DriverTooOldError,
    ExitCode,
    GreenbenchError,
    InterruptedRunError,
    NoDriverError,
    NotComparableError,
    OutputError,
    PlanError,
    ResultFileError,
    UnfitError,
    UsageError,
)
from greenbench.experiments.campaign import Campaign
from greenbench.experiments.crew import Crew
from greenbench.experiments.rounds import COOL_S, SentinelWatch
from greenbench.experiments.sweep import SweepOutcome, SweepRequest, exit_code, preview, run_sweep
from greenbench.figures import TAKES
from greenbench.journal import read_journal
from greenbench.plan import load_plan
from greenbench.rows import derive_rows
from greenbench.runfiles import RunFolder, read_meta, read_rows
from greenbench.schema import Block, BlockKind, BlockStatus, Evidence, Row, Status, Timing
from greenbench.worker import Worker
from tests.staging import Notes, alive, children, environment, model

N = "n=1048576"
MINE = """/* greenbench
family  = "memory"
summary = "a = b"
entry   = "mine"
args    = ["a", "b", "n"]
verify  = "copy"
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
]
[params]
n = 1048576
[launch]
block = 256
grid  = "ceil_div(n, 256)"
[work]
bytes = "8 * n"
*/
extern "C" __global__ void mine(float *a, const float *b, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i];
}
"""
FIGURES = ("time_us", "gb_per_s", "tflop_per_s", "time_us_ci_low", "noise_pct", "cycles", "bound_pct", "speedup", "latency_ns")


def request(device: str, out: Path | None, **changes: Any) -> SweepRequest:
    """Ask for copy and triad at 8 and 16 SMs, twice each, unless the test says otherwise."""
    keys = {"kernels": "copy,triad", "sms": "8,16", "rounds": 2, "set": [N], "timing": "steady", **changes.pop("plan", {})}
    dirs = changes.get("kernel_dirs", ())
    return SweepRequest(plan=load_plan("quick", keys, library(dirs)), device=device, out=out, **changes)


class Bench:
    """Runs sweeps below one folder and looks at what they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "run"

    def run(self, *faults: dict[str, Any], listener: Notes | None = None, device: str = "", **changes: Any) -> SweepOutcome:
        """One sweep on a model with these faults."""
        self.listener = listener or Notes()
        device = device or model(self.folder / "device", *faults, **changes.pop("facts", {}))
        return run_sweep(request(device, changes.pop("out", self.out), **changes), self.listener)

    def blocks(self, **wanted: Any) -> list[Block]:
        """Lines of the journal with these values."""
        return [b for b in read_journal(self.out / "blocks.csv") if all(getattr(b, k) == v for k, v in wanted.items())]


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    """A bench; when the test is over no worker of ours may be left."""
    before = children(os.getpid())
    yield Bench(tmp_path)
    assert children(os.getpid()) <= before


def outcomes(rows: list[Row]) -> dict[tuple[str, str], str]:
    """Status by kernel and size."""
    return {(row.kernel, row.sms_requested): row.status for row in rows}


def failed(rows: list[Row]) -> list[Row]:
    """Rows that are not ok; proved to carry no figure at all."""
    found = [row for row in rows if row.status != Status.OK]
    for row in found:
        assert row.reason
        assert all(getattr(row, name) is None for name in FIGURES)
    return found


def only(rows: list[Row]) -> Row:
    """The one row that is not ok."""
    (row,) = failed(rows)
    return row


# -- a run that goes well --------------------------------------------------------------------------------------------------


def test_a_whole_run(bench: Any) -> None:
    """The folder holds all five files, each point has one ok row, and the rows follow from journal and run.json alone."""
    outcome = bench.run(device="model:h200", plan={"rounds": 6})
    assert outcome.exit_code is ExitCode.DONE
    assert set(outcomes(outcome.rows).values()) == {"ok"}
    assert [(row.kernel, row.sms_granted, row.sms_observed, row.placement) for row in outcome.rows] == [
        *(("copy", 8, 8, "confined"), ("copy", 16, 16, "confined")),
        *(("triad", 8, 8, "confined"), ("triad", 16, 16, "confined")),
    ]
    assert all(row.rounds == 6 and row.backend == "modelled" and row.timing == "steady" for row in outcome.rows)
    assert all(row.time_us_ci_low <= row.time_us <= row.time_us_ci_high for row in outcome.rows)
    names = {path.name for path in bench.out.iterdir()}
    assert names == {"run.json", "blocks.csv", "rows.csv", "bounds.csv", "samples.csv.gz"}
    meta, blocks = read_meta(bench.out / "run.json"), read_journal(bench.out / "blocks.csv")
    assert derive_rows(meta, blocks) == outcome.rows
    assert [row.label for row in read_rows(bench.out)] == [row.label for row in outcome.rows]
    assert meta == outcome.meta
    assert meta.finished
    assert meta.clocks_before is not None
    assert meta.clocks_after is not None
    # Six visits to each point, and the sentinel before, after every ten, and at the end.
    assert Counter(block.kind for block in blocks) == {BlockKind.BLOCK: 24, BlockKind.SENTINEL: 4}
    assert [block.seq for block in blocks] == list(range(28))
    assert blocks[0].kind is blocks[-1].kind is BlockKind.SENTINEL
    with gzip.open(bench.out / "samples.csv.gz", "rt") as file:
        assert sum(1 for _ in file) == 1 + sum(len(b.samples_us) for b in blocks if b.kind is BlockKind.BLOCK)
    listener = bench.listener
    assert (listener.total_blocks, listener.ended, listener.notes) == (24, 1, [])
    assert all(done <= expected for done, expected in listener.progressed)
    assert outcome.summary.startswith("4 points: 4 ok in ")


def test_the_default_plan_on_the_modelled_device(bench: Any) -> None:
    """`quick` at four sizes: every kernel, the three working sets of the chase and the yardsticks, all ok."""
    plan = load_plan("quick", {"sms": "8,16,24,32"}, library())
    outcome = run_sweep(SweepRequest(plan=plan, device="model:h200", out=bench.out), Notes())
    assert {row.status for row in outcome.rows} == {"ok"}
    found = Counter(row.kernel for row in outcome.rows)
    assert found["chase"] == 12
    assert {"copy", "triad", "gemm_bf16", "gemm_fp32", "null_launch", "gemm_bf16.cublas"} <= set(found)
    assert {row.timing for row in outcome.rows if row.kernel == "chase"} == {"hot"}
    assert {row.timing for row in outcome.rows if row.kernel == "copy"} == {"steady"}
    assert all(row.latency_cycles for row in outcome.rows if row.kernel == "chase")


def test_the_same_seed_visits_in_the_same_order(bench: Any) -> None:
    """Order is a function of the seed: two runs agree visit by visit, and the rounds of one run differ."""

    def order(name: str, seed: int) -> list[tuple[int, str, str]]:
        bench.out = bench.folder / name
        bench.run(device="model:h200", plan={"seed": seed, "sms": "8,16,24,32"})
        return [(b.round, b.kernel, b.sms_requested) for b in bench.blocks(kind=BlockKind.BLOCK)]

    first = order("a", 7)
    assert first == order("b", 7)
    assert [visit[1:] for visit in first[:8]] != [visit[1:] for visit in first[8:]]


def test_connections_have_workers_of_their_own(bench: Any) -> None:
    """One process per value of CUDA_DEVICE_MAX_CONNECTIONS; they are ours, so neither a note nor a flag calls them foreign."""
    outcome = bench.run(device="model:h200", plan={"connections": "1,8", "kernels": "copy", "sms": "8"}, ci=True)
    assert [(row.connections, row.status, row.flags) for row in outcome.rows] == [(1, "ok", ""), (8, "ok", "")]
    workers = {block.connections: block.worker for block in bench.blocks(kind=BlockKind.BLOCK)}
    assert len(set(workers.values())) == 2
    assert bench.listener.notes == []


# -- faults ----------------------------------------------------------------------------------------------------------------


LOSSES = [
    ("hang", "timeout, 0.5 s"),
    ("crash", "the worker died of SIGSEGV; its last words are in worker.log"),
    ("sticky", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
]


def tried_twice(bench: Any, outcome: SweepOutcome, reason: str) -> list[Block]:
    """Check what a run is in which triad at 16 SMs took its worker along twice, and return the lines of the two tries."""
    assert outcome.exit_code is ExitCode.INCOMPLETE
    row = only(outcome.rows)
    assert (row.kernel, row.sms_requested, row.status) == ("triad", "16", "failed")
    assert reason in row.reason
    assert (row.sms_granted, row.placement) == (16, "confined")
    bad = bench.blocks(kernel="triad", sms_requested="16", status=BlockStatus.FAILED)
    assert [block.attempt for block in bad] == [1, 2]
    assert len(bench.blocks(kind=BlockKind.BLOCK, status=BlockStatus.OK, round=1)) >= 3
    assert len(bench.blocks(kind=BlockKind.BLOCK, status=BlockStatus.OK, round=2)) == 3
    return list(bad)


@pytest.mark.parametrize(("fault", "reason"), [LOSSES[0], LOSSES[2]])
def test_what_takes_the_worker_along_is_tried_twice(fault: str, reason: str, bench: Any) -> None:
    """H17: a point that loses its worker while it is prepared fails after two tries; all others are prepared anew and ok."""
    outcome = bench.run({"kind": fault, "kernel": "triad", "sms": 16}, timeout_s=0.5)
    assert [block.round for block in tried_twice(bench, outcome, reason)] == [0, 0]


@pytest.mark.parametrize(("fault", "reason"), [LOSSES[1]])
def test_the_second_try_comes_at_the_end_of_the_round(fault: str, reason: str, bench: Any) -> None:
    """A point that loses its worker in round 2 moves to the end of that round, fails there, and keeps no figure of round 1."""
    strike = {"kind": fault, "kernel": "triad", "sms": 16}

    def worse(label: str, _: int) -> None:
        # Workers that are started from here on meet the fault in their first block.
        if label.startswith("round 2"):
            model(bench.folder / "device", strike)

    outcome = bench.run({**strike, "at_block": 2}, timeout_s=0.5, listener=Notes(worse))
    first, second = tried_twice(bench, outcome, reason)
    assert first.round == second.round == 2
    assert bench.blocks(kind=BlockKind.BLOCK)[-1] == second


def test_what_strikes_once_costs_one_block(bench: Any) -> None:
    """The second try succeeds in a new worker: the row is ok with all its rounds, and the journal keeps the lost try."""
    device = {"kind": "hang", "kernel": "triad", "sms": 16, "at_block": 2, "times": 1}
    outcome = bench.run(device, facts={"state": "faults.json"}, timeout_s=0.5)
    assert outcome.exit_code is ExitCode.DONE
    assert {row.status for row in outcome.rows} == {"ok"}
    assert all(row.rounds == 2 for row in outcome.rows)
    (lost,) = bench.blocks(status=BlockStatus.FAILED)
    assert (lost.kernel, lost.sms_requested, lost.attempt) == ("triad", "16", 1)
    assert len({block.worker for block in bench.blocks(status=BlockStatus.OK)}) == 2


def test_throttled_blocks_are_discarded_and_taken_again(bench: Any) -> None:
    """H21: two throttled blocks cost two tries and no row; a point that never gets a valid sample is failed (throttled)."""
    bench.out = bench.folder / "twice"
    outcome = bench.run({"kind": "throttle", "kernel": "triad", "sms": 16, "times": 2})
    assert {row.status for row in outcome.rows} == {"ok"}
    lost = bench.blocks(status=BlockStatus.DISCARDED)
    assert [(block.kernel, block.sms_requested) for block in lost] == [("triad", "16")] * 2
    bench.out = bench.folder / "always"
    outcome = bench.run({"kind": "throttle", "kernel": "triad"})
    assert outcome.exit_code is ExitCode.INCOMPLETE
    rows = failed(outcome.rows)
    assert [(row.kernel, row.status) for row in rows] == [("triad", "failed")] * 2
    assert all(row.reason.startswith("throttled") for row in rows)
    assert len(bench.blocks(status=BlockStatus.DISCARDED)) == 2 * 3


def test_a_point_that_is_given_up_for_throttling_says_so(bench: Any) -> None:
    """Three tries thrown away in round 2: the row keeps its one round, flagged, and the terminal names the point."""
    outcome = bench.run({"kind": "throttle", "kernel": "triad", "sms": 16, "at_block": 2}, plan={"rounds": 6})
    assert outcome.exit_code is ExitCode.DONE
    hot = {(row.kernel, row.sms_requested): (row.rounds, row.stop_reason, row.flags) for row in outcome.rows}
    assert hot.pop(("triad", "16")) == (1, "throttled", "discarded")
    assert set(hot.values()) == {(6, "precise", "")}
    point = f"triad[{N},s=3.0]@16/driver_default/steady"
    assert bench.listener.notes == [f"throttled: hw_thermal, thermal in 3 tries of {point}: it keeps 1 of 6 rounds"]


def test_discarded_blocks_are_taken_as_often_as_rows_believe() -> None:
    """A row calls a point given up after as many discards in a row as a campaign makes."""
    assert len(COOL_S) + 1 == TAKES


@pytest.mark.parametrize(
    ("fault", "reason", "granted"),
    [
        ({"kind": "out_of_memory", "kernel": "triad", "sms": 16}, "out of memory", (16, 16, "confined")),
        ({"kind": "wrong_result", "kernel": "triad", "sms": 16}, "incorrect: error 1 above 0", (16, 16, "confined")),
        (
            {"kind": "leak", "kernel": "triad", "sms": 16, "at_block": 2},
            "leaked: 16 SMs granted, CTAs ran on 17",
            (16, 17, "leaked"),
        ),
    ],
)
def test_what_would_fail_again_is_tried_once(fault: Any, reason: str, granted: Any, bench: Any) -> None:
    """A wrong result, missing memory or a leak is no accident: one line, one failed row, and the worker goes on."""
    outcome = bench.run(fault)
    row = only(outcome.rows)
    assert outcome.exit_code is ExitCode.INCOMPLETE
    assert row.reason.startswith(reason)
    assert (row.sms_granted, row.sms_observed, row.placement) == granted
    assert len(bench.blocks(status=BlockStatus.FAILED)) == 1
    assert len({block.worker for block in bench.blocks(status=BlockStatus.OK)}) == 1


def test_a_lane_that_leaks_from_the_start(bench: Any) -> None:
    """H02: the census of the empty lane differs from the grant: all its rows are failed, with what was granted and seen."""
    outcome = bench.run({"kind": "leak", "sms": 16})
    rows = failed(outcome.rows)
    assert [(row.kernel, row.sms_requested, row.status) for row in rows] == [("copy", "16", "failed"), ("triad", "16", "failed")]
    assert {(row.sms_granted, row.sms_observed, row.placement) for row in rows} == {(16, 17, "leaked")}
    assert {row.reason for row in rows} == {"leaked: 16 SMs granted, the census saw 17"}


def test_two_modes_are_flagged(bench: Any) -> None:
    """Blocks that alternate by 6 % never get precise: the row is kept, flagged, and stopped by its last round."""
    changes = {"kernels": "triad", "sms": "16", "rounds": 6, "max_rounds": 10}
    outcome = bench.run({"kind": "bimodal", "kernel": "triad"}, plan=changes)
    (row,) = outcome.rows
    assert (row.status, row.flags, row.rounds, row.stop_reason) == ("ok", "bimodal", 10, "max_rounds")
    bench.out = bench.folder / "steady"
    (row,) = bench.run(plan=changes, device="model:h200").rows
    assert (row.rounds, row.stop_reason, row.flags) == (6, "precise", "")


def test_a_power_cap_is_kept_and_flagged(bench: Any) -> None:
    """Normal for big kernels: ok, with the flag and the word, only on the rows that it concerned."""
    outcome = bench.run({"kind": "power_cap", "kernel": "triad"})
    assert {(row.kernel, row.status, row.flags, row.throttle) for row in outcome.rows} == {
        ("copy", "ok", "", ""),
        ("triad", "ok", "power_capped", "power_cap"),
    }


# Ten visits a sentinel: 5 points, and the sentinel is `copy` on all 132 SMs.
DRIFTING = {"kernels": "triad", "sms": "8,16,24,32,40", "rounds": 8}


def test_a_drift_takes_its_stretch_back(bench: Any) -> None:
    """The sentinel moves by 2 % once: the ten blocks before it are void and measured again, every row still has its rounds."""
    outcome = bench.run({"kind": "drift", "kernel": "copy", "sms": 132, "at_block": 4, "times": 1}, plan=DRIFTING)
    assert outcome.exit_code is ExitCode.DONE
    (void,) = bench.blocks(kind=BlockKind.VOID)
    gone = journal_module.voided(bench.blocks())
    assert len(gone) == 10
    assert max(gone) < void.seq
    assert {row.status for row in outcome.rows} == {"ok"}
    counted = Counter(b.sms_requested for b in bench.blocks(kind=BlockKind.BLOCK) if b.seq not in gone)
    assert set(counted.values()) == {8}
    assert bench.listener.notes == ["the sentinel moved by more than 1 %: 10 blocks before it are taken again"]


def test_the_last_sentinel_may_take_blocks_back_too(bench: Any) -> None:
    """A step that only the last sentinel sees: its stretch is measured again before the run ends, and no time limit is named."""
    outcome = bench.run({"kind": "drift", "kernel": "copy", "sms": 132, "at_block": 5, "times": 1}, plan=DRIFTING)
    (void,) = bench.blocks(kind=BlockKind.VOID)
    gone = journal_module.voided(bench.blocks())
    assert len(gone) == 10
    counted = Counter(b.sms_requested for b in bench.blocks(kind=BlockKind.BLOCK) if b.seq not in gone)
    assert set(counted.values()) == {8}
    assert bench.blocks()[-1].kind is BlockKind.SENTINEL
    assert bench.blocks()[-1].seq > void.seq + 10
    assert {(row.rounds, row.stop_reason, row.flags) for row in outcome.rows} == {(8, "precise", "")}


def test_what_drifted_after_the_time_limit_is_kept_and_flagged(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is left to take a block again when the last sentinel moves: it counts, flagged, and the run says so."""
    monkeypatch.setattr(Campaign, "_out_of_time", lambda self: len(self._watch.history) >= 4)
    outcome = bench.run(
        {"kind": "drift", "kernel": "copy", "sms": 132, "at_block": 5, "times": 1}, plan={**DRIFTING, "time_limit_s": 100}
    )
    assert outcome.exit_code is ExitCode.DONE
    assert bench.blocks(kind=BlockKind.VOID) == []
    (kept,) = journal_module.drifted(bench.blocks())
    assert kept == 34
    rows = {row.sms_requested: (row.rounds, row.stop_reason, row.flags) for row in outcome.rows}
    flagged = bench.blocks(seq=kept)[0].sms_requested
    assert rows.pop(flagged) == (7, "time_limit", "drifted")
    assert set(rows.values()) == {(6, "time_limit", "")}
    said = "the sentinel moved by more than 1 %: 1 block before it is kept and flagged, since the time limit is reached"
    assert bench.listener.notes == [said]


def test_a_point_whose_only_block_drifted_gets_another_one(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow points get fewer blocks, never none: blocks taken back are not what a point is left with when the time is over."""

    def read(self: Any, block: Block) -> list[int]:
        lost, self.stretch = self.stretch, []
        self.history.append(0.0)
        return list(lost) if len(self.history) == 2 else []

    monkeypatch.setattr(SentinelWatch, "read", read)
    monkeypatch.setattr(Campaign, "_out_of_time", lambda self: bool(journal_module.voided(self._journal.blocks)))
    outcome = bench.run(device="model:h200", plan={**DRIFTING, "sms": "8:88:8", "time_limit_s": 100})
    assert len(journal_module.voided(bench.blocks())) == 10
    assert {(row.status, row.rounds, row.stop_reason) for row in outcome.rows} == {("ok", 1, "time_limit")}


def test_a_machine_that_never_settles(bench: Any) -> None:
    """More drifts than redoing can mend: what is measured stays, flagged; with --ci the run ends with 4 and keeps its files."""
    drift = {"kind": "bimodal", "kernel": "copy", "sms": 132}
    changes = {**DRIFTING, "sms": "8:80:8"}
    with pytest.raises(UnfitError, match="not quiet") as raised:
        bench.run(drift, plan=changes, ci=True)
    assert raised.value.exit_code is ExitCode.MACHINE
    assert {row.status for row in read_rows(bench.out)} == {"ok"}
    assert len(bench.blocks(kind=BlockKind.VOID)) == 3
    assert "drifted" in {row.flags for row in read_rows(bench.out)}
    assert "not quiet" in bench.listener.notes[-1]


def test_a_sentinel_that_cannot_run_costs_nothing_else(bench: Any) -> None:
    """A hang of the sentinel is told once; the points are measured without it."""
    outcome = bench.run({"kind": "hang", "kernel": "copy", "sms": 132}, timeout_s=0.5)
    assert {row.status for row in outcome.rows} == {"ok"}
    assert bench.listener.notes == ["no sentinel: timeout, 0.5 s"]


def test_a_kernel_file_that_fails_on_the_lane_is_its_rows(bench: Any) -> None:
    """A grid that has no CTAs on 8 SMs is known only with the grant: that point fails with file, key and value, once."""
    folder = bench.folder / "kernels"
    folder.mkdir()
    (folder / "mine.cu").write_text(MINE.replace("ceil_div(n, 256)", "(sms - 8) * 512"))
    outcome = bench.run(device="model:h200", plan={"kernels": "copy,mine"}, kernel_dirs=(folder,))
    row = only(outcome.rows)
    assert outcome.exit_code is ExitCode.INCOMPLETE
    assert (row.kernel, row.sms_requested, row.status) == ("mine", "8", "failed")
    assert "mine.cu" in row.reason
    assert "grid" in row.reason
    assert len(bench.blocks(status=BlockStatus.FAILED)) == 1


def test_a_worker_that_someone_kills(bench: Any) -> None:
    """kill -9 of the worker in the middle of a round loses at most the block under way; the run ends as if nothing had been."""

    shot: list[int] = []

    def shoot(label: str, _: int) -> None:
        if label.startswith("round 2 triad@16") and not shot:
            shot.extend(children(os.getpid()))
            for pid in shot:
                os.kill(pid, signal.SIGKILL)

    outcome = bench.run(device="model:h200", listener=Notes(shoot), plan={"rounds": 3})
    assert outcome.exit_code is ExitCode.DONE
    assert {(row.status, row.rounds) for row in outcome.rows} == {("ok", 3)}
    (lost,) = bench.blocks(status=BlockStatus.FAILED)
    assert lost.reason.startswith("the worker died of SIGKILL")


def test_a_device_that_is_lost_in_the_middle(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No new worker can be started after a crash: exit 4 with what the driver says, and rows of what had been measured."""
    real, starts = Worker.start, []

    def start(self: Worker) -> Any:
        starts.append(self)
        if len(starts) > 1:
            raise NoDriverError("no NVIDIA GPU is visible")
        return real(self)

    monkeypatch.setattr(Worker, "start", start)
    with pytest.raises(NoDriverError) as raised:
        bench.run({"kind": "crash", "kernel": "triad", "sms": 16, "at_block": 2})
    assert raised.value.exit_code is ExitCode.MACHINE
    rows = read_rows(bench.out)
    assert len(rows) == 4
    assert {row.status for row in rows if row.kernel == "copy"} == {"ok"}


# -- a machine that is not fit ---------------------------------------------------------------------------------------------


HOT = Evidence(reasons=0x40 | 0x1)


def test_ci_refuses_a_gpu_that_throttles_before_anything_runs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 4 with the reason and the way out, and no folder; without --ci it is said and the blocks decide."""
    monkeypatch.setattr(Crew, "evidence", lambda self: HOT)
    with pytest.raises(UnfitError, match=r"throttles before anything runs on it \(hw_thermal\); let it cool down") as raised:
        bench.run(device="model:h200", ci=True)
    assert raised.value.exit_code is ExitCode.MACHINE
    assert not bench.out.exists()
    assert bench.run(device="model:h200", plan={"kernels": "copy"}).exit_code is ExitCode.DONE
    said = "this GPU throttles before anything runs on it (hw_thermal); blocks are thrown away as long as it does"
    assert bench.listener.notes == [said]


def test_ci_refuses_a_gpu_that_throttles_once_it_is_warm(bench: Any) -> None:
    """Cool at first, throttled after the warm-up: exit 4 before the first block, with run.json as evidence."""
    with pytest.raises(UnfitError, match=r"throttles as soon as it is warm \(hw_thermal, thermal\)"):
        bench.run({"kind": "throttle"}, ci=True)
    assert bench.blocks() == []
    assert (bench.out / "run.json").is_file()


@pytest.mark.parametrize("fault", [{"kind": "power_cap"}, {"kind": "throttle", "kernel": "copy", "sms": 8, "at_block": 2}])
def test_ci_measures_where_throttling_is_no_matter_of_the_machine(fault: dict[str, Any], bench: Any) -> None:
    """The power limit holds big kernels everywhere, and one kernel that overheats is a matter of its blocks."""
    outcome = bench.run(fault, ci=True, plan={"kernels": "copy"})
    assert {row.status for row in outcome.rows} == {"ok"}


@pytest.mark.parametrize(
    ("mode", "words"), [("mig", "in MIG mode: the 132 SMs are those of one instance"), ("mps", "under MPS: other clients")]
)
def test_a_mode_that_changes_what_sms_mean_is_told(mode: str, words: str, bench: Any) -> None:
    """MIG and MPS are said on the terminal and kept in run.json."""
    outcome = bench.run(facts={mode: True}, plan={"kernels": "copy", "sms": "8"})
    (note,) = outcome.meta.notes
    assert words in note
    assert bench.listener.notes == [note]
    device = f"model:{bench.folder / 'device' / 'device.toml'}"
    assert preview(request(device, None, plan={"kernels": "copy", "sms": "8"})).notes == (note,)


# -- sizes and scopes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["model:h200", "model:h200@13.1"])
def test_h06_the_whole_device_is_a_size(device: str, bench: Any) -> None:
    """132 is no multiple of 8 and measurable with either split; where it is the unsplit resource, the run says so."""
    outcome = bench.run(device=device, plan={"sms": "128,132,full", "kernels": "copy"})
    assert [(row.sms_requested, row.sms_granted, row.status) for row in outcome.rows] == [("128", 128, "ok"), ("full", 132, "ok")]
    said = " ".join(bench.listener.notes)
    assert "132 and full both give 132 SMs" in said
    assert ("unsplit" in said) is (device != "model:h200")


# -- limits ----------------------------------------------------------------------------------------------------------------


def test_a_time_limit_ends_after_a_whole_first_round(bench: Any) -> None:
    """Slow points get fewer blocks, never none: however short the limit, each point has one, and says why it has no more."""
    outcome = bench.run(device="model:h200", plan={"rounds": 6, "time_limit_s": 0.001})
    assert outcome.exit_code is ExitCode.DONE
    assert {(row.status, row.rounds, row.stop_reason) for row in outcome.rows} == {("ok", 1, "time_limit")}


def test_preparing_does_not_eat_the_time_limit(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for measuring: a cold compile of many seconds before the first round leaves all rounds their time."""
    real = Crew.prepare

    def slow(self: Crew, point: Any) -> Any:
        time.sleep(0.3)
        return real(self, point)

    monkeypatch.setattr(Crew, "prepare", slow)
    outcome = bench.run(device="model:h200", plan={"time_limit_s": 1, "kernels": "copy", "sms": "8,16,24"})
    assert {row.rounds for row in outcome.rows} == {2}


def test_profiling_launches_and_times_nothing(bench: Any) -> None:
    """`--profile 3`: one visit per point without samples, no sentinel, rows without figures that say what they are."""
    outcome = bench.run(device="model:h200", profile=3)
    assert outcome.exit_code is ExitCode.DONE
    assert outcome.meta.profiled
    assert bench.listener.total_blocks == 4
    blocks = bench.blocks()
    assert [(block.kind, block.samples_us) for block in blocks] == [(BlockKind.BLOCK, ())] * 4
    for row in outcome.rows:
        assert "profiled" in row.flags
        assert all(getattr(row, name) is None for name in FIGURES)


def test_a_preview_measures_nothing(bench: Any) -> None:
    """`--dry-run` opens the partitions, so that it can tell equal grants, and leaves no folder."""
    seen = preview(request("model:h200", None, plan={"sms": "8,10,16"}))
    assert [point.partition.name for point in seen.points] == ["8", "16", "8", "16"]
    assert seen.notes == ("10 and 16 both give 16 SMs on this driver; measured once, as 16",)
    assert seen.estimate_s > 0
    assert [seen.granted(point) for point in seen.points] == [8, 16, 8, 16]
    assert {seen.obstacle(point) for point in seen.points} == {""}
    assert list(bench.folder.iterdir()) == []


def test_a_preview_knows_what_is_unsupported() -> None:
    """A refused partition, and a kernel that the device is too old for, are told without preparing anything."""
    keys = {"sms": "8", "workqueue": "driver_default,device_ctx", "set": []}
    refused = preview(request("model:h200", None, plan={**keys, "kernels": "copy"}))
    assert [refused.granted(point) for point in refused.points] == [8, None]
    assert [refused.obstacle(point) for point in refused.points] == [
        "",
        "unsupported: workqueue configuration needs driver 13.1, this is 13.0",
    ]
    old = preview(request("model:a100", None, plan={"sms": "8", "kernels": "dsmem", "set": [], "timing": "hot"}))
    assert {old.obstacle(point) for point in old.points} == {"unsupported: needs compute capability 9.0, this is 8.0"}


@pytest.mark.parametrize(
    ("statuses", "strict", "code"),
    [
        (["ok", "ok"], False, 0),
        (["ok", "unsupported"], False, 0),
        (["ok", "unsupported"], True, 5),
        (["ok", "failed"], False, 5),
        (["failed", "unsupported"], False, 5),
        (["unsupported", "unsupported"], False, 4),
        ([], False, 4),
    ],
)
def test_exit_codes(statuses: list[str], strict: bool, code: int) -> None:
    """5 if a row failed (or, strictly, is unsupported), else 4 if none is ok, else 0."""
    assert exit_code([Row(status=status) for status in statuses], strict) == code


# -- interrupted and resumed -----------------------------------------------------------------------------------------------


def interrupting(label: str, times: int = 1) -> Notes:
    """A listener that is hit by Ctrl-C at the n-th step whose label begins so."""
    hits = [0]

    def act(seen: str, _: int) -> None:
        hits[0] += seen.startswith(label)
        if hits[0] == times:
            raise KeyboardInterrupt

    return Notes(act)


def test_ctrl_c_keeps_everything_and_resumes(bench: Any) -> None:
    """130, all files there, no child left; --resume takes up exactly what is missing, and the blocks that were there stay."""
    with pytest.raises(InterruptedRunError) as raised:
        bench.run(device="model:h200", listener=interrupting("round 2", 2), plan={"timing": "auto", "rounds": 3})
    assert raised.value.exit_code is ExitCode.INTERRUPTED
    assert f"greenbench sweep --resume {bench.out}" in str(raised.value)
    assert bench.listener.ended == 1
    before = bench.blocks()
    assert Counter(block.round for block in before if block.kind is BlockKind.BLOCK) == {1: 4, 2: 1}
    rows = read_rows(bench.out)
    assert {row.status for row in rows} == {"ok"}
    assert {row.stop_reason for row in rows} == {"interrupted"}
    assert not read_meta(bench.out / "run.json").finished
    outcome = run_sweep(request("model:h200", None, resume=bench.out, plan={"timing": "auto", "rounds": 3}), Notes())
    assert outcome.folder == bench.out
    after = bench.blocks()
    assert after[: len(before)] == before
    assert Counter(block.round for block in after if block.kind is BlockKind.BLOCK) == {1: 4, 2: 4, 3: 4}
    assert {(row.status, row.rounds) for row in outcome.rows} == {("ok", 3)}
    assert {block.timing for block in after if block.kernel == "copy" and block.kind is BlockKind.BLOCK} == {Timing.GRAPH}
    assert outcome.meta.run_id == bench.out.name
    assert outcome.meta.finished


def test_ctrl_c_before_the_first_block(bench: Any) -> None:
    """While points are prepared there is a folder to go on with, and its rows say that they were not measured."""
    with pytest.raises(InterruptedRunError):
        bench.run(device="model:h200", listener=interrupting("prepare 2/4"))
    rows = failed(read_rows(bench.out))
    assert len(rows) == 4
    assert {row.reason for row in rows} == {"not measured: the run ended before this point was visited"}
    assert exit_code(run_sweep(request("model:h200", None, resume=bench.out), Notes()).rows) is ExitCode.DONE


def test_ctrl_c_before_there_is_a_device(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured and nothing stays behind."""
    monkeypatch.setattr(Crew, "facts", lambda self, key=None: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(InterruptedRunError, match="before anything was measured"):
        bench.run(device="model:h200")
    assert not bench.out.exists()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted in its second round; tests copy it."""
    bench = Bench(tmp_path_factory.mktemp("interrupted"))
    with pytest.raises(InterruptedRunError):
        bench.run(device="model:h200", listener=interrupting("round 2", 2))
    return bench.out


Change = Callable[[Path], SweepRequest]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"plan": {"seed": 99}}, "its seed is"),
        ({"device": "model:h100"}, "its device is NVIDIA H200"),
        ({"device": "model:h200@13.1"}, "its driver is"),
        ({"plan": {"sms": "8,16,24"}}, "lacks a point that is asked for now, copy[n=1048576]@24"),
    ],
)
def test_another_run_is_not_resumed(changes: dict[str, Any], word: str, interrupted: Path, tmp_path: Path) -> None:
    """Seed, device, driver and points must be those of the run: exit 4 with what differs, and its files are untouched."""
    run = Path(shutil.copytree(interrupted, tmp_path / interrupted.name))
    before = {name: (run / name).read_bytes() for name in ("run.json", "blocks.csv", "rows.csv")}
    with pytest.raises(NotComparableError) as raised:
        run_sweep(request(changes.pop("device", "model:h200"), None, resume=run, **changes), Notes())
    assert word in str(raised.value)
    assert raised.value.exit_code is ExitCode.MACHINE
    assert {name: (run / name).read_bytes() for name in before} == before


def test_a_changed_kernel_is_not_resumed(tmp_path: Path) -> None:
    """One comment more in the source is another digest: refused by name."""
    bench, folder = Bench(tmp_path), tmp_path / "kernels"
    folder.mkdir()
    (folder / "mine.cu").write_text(MINE)
    changes = {"plan": {"kernels": "mine", "set": []}, "kernel_dirs": (folder,)}
    with pytest.raises(InterruptedRunError):
        bench.run(device="model:h200", listener=interrupting("round 2"), **changes)
    with (folder / "mine.cu").open("a") as file:
        file.write("// another line\n")
    with pytest.raises(NotComparableError, match="kernel mine was changed since"):
        run_sweep(request("model:h200", None, resume=bench.out, **changes), Notes())


def test_a_journal_that_was_cut_off_is_continued(interrupted: Path, tmp_path: Path) -> None:
    """kill -9 or a power cut in the middle of a line loses that block alone: it is measured again."""
    run = Path(shutil.copytree(interrupted, tmp_path / interrupted.name))
    path = run / "blocks.csv"
    whole = read_journal(path)
    path.write_bytes(path.read_bytes()[:-25])
    (run / "rows.csv").unlink()
    outcome = run_sweep(request("model:h200", None, resume=run), Notes())
    assert {(row.status, row.rounds) for row in outcome.rows} == {("ok", 2)}
    now = read_journal(path)
    assert now[: len(whole) - 1] == whole[:-1]
    assert Counter(block.round for block in now if block.kind is BlockKind.BLOCK) == {1: 4, 2: 4}


@pytest.mark.parametrize(
    ("fault", "reason", "lines"),
    [("crash", "the worker died of SIGSEGV", 2), ("leak", "leaked: 16 SMs granted, CTAs ran on 17", 1)],
)
def test_a_failed_point_stays_failed_on_resume(fault: str, reason: str, lines: int, bench: Any) -> None:
    """What was tried twice, or would only fail the same way again, is not tried once more; the rest is finished."""
    with pytest.raises(InterruptedRunError):
        bench.run({"kind": fault, "kernel": "triad", "sms": 16}, listener=interrupting("round 2"))
    assert len(bench.blocks(status=BlockStatus.FAILED)) == lines
    device = f"model:{bench.folder / 'device' / 'device.toml'}"
    outcome = run_sweep(request(device, None, resume=bench.out), Notes())
    assert only(outcome.rows).reason.startswith(reason)
    assert len(bench.blocks(status=BlockStatus.FAILED)) == lines


def test_a_finished_run_is_resumed_without_a_block(interrupted: Path, tmp_path: Path) -> None:
    """Nothing is left to do: the rows are the same and the journal does not grow."""
    run = Path(shutil.copytree(interrupted, tmp_path / interrupted.name))
    first = run_sweep(request("model:h200", None, resume=run), Notes())
    size = (run / "blocks.csv").stat().st_size
    again = run_sweep(request("model:h200", None, resume=run), Notes())
    assert [replace(row, run_id="") for row in again.rows] == [replace(row, run_id="") for row in first.rows]
    assert (run / "blocks.csv").stat().st_size == size


def held(run: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a run folder: when it was written, and what."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.iterdir()}


def test_a_run_under_way_is_not_touched(interrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--resume of a run that another greenbench writes: refused before a worker starts, and no file of it changes or goes."""
    monkeypatch.setattr(Crew, "facts", lambda self, key=None: pytest.fail("a worker was asked for"))
    run = Path(shutil.copytree(interrupted, tmp_path / interrupted.name))
    (run / "worker.log").touch()
    # The other one is in the middle of a line.
    with (run / "blocks.csv").open("ab") as file:
        file.write(b"13,block,")
    with journal_module.Journal(run / "blocks.csv"):
        before = held(run)
        with pytest.raises(UsageError, match="is being written by another greenbench"):
            run_sweep(request("model:h200", None, resume=run), Notes())
        assert held(run) == before


def test_what_is_refused_is_not_touched(interrupted: Path, tmp_path: Path) -> None:
    """A run with a torn last line that cannot be continued here keeps even that line."""
    run = Path(shutil.copytree(interrupted, tmp_path / interrupted.name))
    with (run / "blocks.csv").open("ab") as file:
        file.write(b"13,block,")
    before = held(run)
    with pytest.raises(NotComparableError):
        run_sweep(request("model:h100", None, resume=run), Notes())
    assert held(run) == before


def test_two_runs_do_not_share_a_new_folder(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two greenbenches find the same empty folder at once: the second is refused and leaves the first one's files."""
    real = RunFolder.create

    def create(*given: Any, **named: Any) -> RunFolder:
        folder = real(*given, **named)
        bench.first = journal_module.Journal(folder.journal_path)
        return folder

    monkeypatch.setattr(RunFolder, "create", create)
    with pytest.raises(UsageError, match="is being written by another greenbench"):
        bench.run(device="model:h200")
    bench.first.close()
    assert [path.name for path in bench.out.iterdir()] == ["blocks.csv"]


def test_a_full_disk_before_the_first_line_leaves_no_folder(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the head of the journal fits: exit 5, and nothing stands in the way of the next try."""

    def full(*_: Any) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr(journal_module.Journal, "_write", full)
    with pytest.raises(OutputError):
        bench.run(device="model:h200")
    assert not bench.out.exists()


def test_what_is_no_run_is_not_resumed(tmp_path: Path) -> None:
    """A folder without run.json, and one that is not there, are exit 2."""
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ResultFileError):
            run_sweep(request("model:h200", None, resume=folder), Notes())


SCRIPT = """
import sys
from pathlib import Path
from greenbench.errors import GreenbenchError
from greenbench.experiments.sweep import run_sweep
from tests.staging import Notes
from tests.test_sweep import request
try:
    run_sweep(request("model:h200", Path(sys.argv[1]), plan={"rounds": 500, "sms": "8:128:8"}), Notes())
except GreenbenchError as error:
    cuda = {name.partition(".")[0] for name in sys.modules} & {"cuda", "cupy", "cupy_backends", "pynvml"}
    print(error, *cuda, flush=True)
    sys.exit(int(error.exit_code))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_middle_of_a_run(how: signal.Signals, bench: Any) -> None:
    """Ctrl-C to the whole group (130) or kill -9 of the parent: no process is left, every line is whole, --resume works.

    The parent of the run has not loaded any CUDA package.
    """
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(bench.out)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    with run.stdout:
        path = bench.out / "blocks.csv"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (path.is_file() and path.read_bytes().count(b"\n") > 25):
            time.sleep(0.02)
        workers = children(run.pid)
        assert workers
        if how is signal.SIGINT:
            os.killpg(run.pid, how)
        else:
            run.send_signal(how)
        said = run.stdout.read()
        assert run.wait(20) == (130 if how is signal.SIGINT else -how)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(alive(pid) for pid in workers):
        time.sleep(0.02)
    assert not any(alive(pid) for pid in workers)
    if how is signal.SIGINT:
        assert said.startswith(f"interrupted; everything measured is in {bench.out}; continue with ")
        assert said.endswith(f"--resume {bench.out}\n")
        assert read_rows(bench.out)
    blocks = bench.blocks()
    assert len(blocks) > 20
    plan = {"rounds": 500, "sms": "8:128:8"}
    with pytest.raises(InterruptedRunError):
        run_sweep(request("model:h200", None, resume=bench.out, plan=plan), interrupting("round", 3))
    assert len(bench.blocks()) > len(blocks)
    assert bench.blocks()[: len(blocks)] == blocks


# -- output ----------------------------------------------------------------------------------------------------------------


class FullDisk:
    """A file on a disk without room: half of the line is written, then ENOSPC."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        """Take what fits, then nothing."""
        if len(data) > 100:
            return int(self._file.write(bytes(data)[:100]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_what_is_measured(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC in the fifth line: exit 5 with the way out, four whole blocks on disk, and --resume finishes the run."""
    real = journal_module.Journal.append

    def append(self: Any, block: Block) -> None:
        if len(self.blocks) == 4:
            self._file = FullDisk(self._file)
        real(self, block)

    monkeypatch.setattr(journal_module.Journal, "append", append)
    with pytest.raises(OutputError, match="the disk is full") as raised:
        bench.run(device="model:h200")
    assert raised.value.exit_code is ExitCode.INCOMPLETE
    assert f"--resume {bench.out}" in str(raised.value)
    monkeypatch.undo()
    assert len(bench.blocks()) == 4
    outcome = run_sweep(request("model:h200", None, resume=bench.out), Notes())
    assert {(row.status, row.rounds) for row in outcome.rows} == {("ok", 2)}


def test_a_folder_that_cannot_be_written_fails_before_measuring(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder where files cannot be made is found out before a worker is started."""
    monkeypatch.setattr(Crew, "facts", lambda self, key=None: pytest.fail("a worker was asked for"))
    for where in (Path("/proc/greenbench/run"), Path("/sys/run")):
        with pytest.raises(OutputError) as raised:
            bench.run(device="model:h200", out=where)
        assert str(where) in str(raised.value)


def test_a_folder_that_is_taken(bench: Any) -> None:
    """A non-empty folder is never written into: exit 2, nothing in it changes; an empty one is fine."""
    bench.out.mkdir()
    (bench.out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        bench.run(device="model:h200")
    assert [path.name for path in bench.out.iterdir()] == ["notes.txt"]
    (bench.out / "notes.txt").unlink()
    assert bench.run(device="model:h200", plan={"kernels": "copy", "sms": "8"}).exit_code is ExitCode.DONE


@pytest.mark.parametrize(
    ("device", "plan", "kind"),
    [
        ("model:h200@12.3", {}, DriverTooOldError),
        ("model:nothing", {}, UsageError),
        ("model:h200", {"sms": "8,200"}, PlanError),
    ],
)
def test_what_cannot_be_measured_leaves_no_folder(
    device: str, plan: dict[str, Any], kind: type[GreenbenchError], bench: Any
) -> None:
    """Errors before the first point leave nothing behind, and no worker."""
    with pytest.raises(kind):
        bench.run(device=device, plan=plan)
    assert not bench.out.exists()
