"""greenbench killed in the middle of a `switch`: no process is left, what is on disk can be drawn, and --resume completes it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenbench.catalog import library
from greenbench.cojournal import read_cojournal
from greenbench.colocation.results import read_corun
from greenbench.errors import ExitCode
from greenbench.experiments import cocrew
from greenbench.experiments.switch import SwitchRequest, run_switch
from greenbench.schema import Status
from greenbench.switching.plan import SwitchPlan, load_switch
from tests.staging import Notes, WorkerHere, alive, children, environment

RUNNING = """
import sys
from pathlib import Path
from greenbench.experiments.switch import SwitchRequest, run_switch
from tests.staging import Notes
from tests.test_switch_killed import planned
print("begun", flush=True)
run_switch(SwitchRequest(plan=planned(), device="model:h200", out=Path(sys.argv[1]) / "run"), Notes())
"""
POINTS = 1 + 2 * 6
# While the worker comes up, and among the visits.
DRAW = random.Random(4)
MOMENTS = {0: DRAW.uniform(0.0, 0.5), 3: DRAW.uniform(0.0, 0.1)}


def planned() -> SwitchPlan:
    """Every mechanism with 2 and 3 processes."""
    given = {"processes": "2,3", "mechanisms": "all", "working_set": "0", "seconds": "0.05"}
    return load_switch("switch", given, library())


def lines(path: Path) -> int:
    """Lines that a file has by now."""
    return path.read_bytes().count(b"\n") if path.is_file() else 0


@pytest.mark.parametrize(("visits", "after_s"), MOMENTS.items())
def test_a_killed_run_leaves_nothing_and_goes_on(
    visits: int, after_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL at a random moment after so many visits: every child ends, the journal reads, and the rest is measured once."""
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNING, str(tmp_path)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        # The first line is the head.
        while visits and lines(folder / "blocks.csv") <= visits and process.poll() is None:
            time.sleep(0.01)
        time.sleep(after_s)
        found = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in found)
    begun = (folder / "run.json").is_file()
    before = read_cojournal(folder / "blocks.csv") if begun else []
    assert len(before) >= visits
    if begun and not (folder / "rows.csv").exists():
        read = read_corun(folder)
        assert "has no rows.csv" in read.note
        assert [row.status for row in read.rows].count("ok") == len(before)
        assert len(read.rows) == POINTS
    monkeypatch.setattr(cocrew, "Worker", WorkerHere)
    where = {"resume": folder} if begun else {"out": folder}
    done = run_switch(SwitchRequest(plan=planned(), device="model:h200", **where), Notes())  # type: ignore[arg-type]
    assert done.exit_code is ExitCode.DONE
    assert {row.status for row in done.rows} == {Status.OK}
    after = read_cojournal(folder / "blocks.csv")
    assert after[: len(before)] == before
    assert len({visit.label for visit in after}) == len(after) == POINTS
    # What a worker says as it is killed stays in the log.
    assert {path.name for path in folder.iterdir()} - {"worker.log"} == {"run.json", "blocks.csv", "rows.csv"}
