"""greenbench killed in the middle of a co-location: no process is left, and --resume completes the run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenbench.cojournal import read_cojournal
from greenbench.colocation.keys import EVERY
from greenbench.errors import ExitCode
from greenbench.experiments.colocate import CoRequest, run_colocate
from greenbench.schema import Status
from tests.staging import Notes, alive, children, environment
from tests.test_colocate import planned

RUNNING = """
import sys
from pathlib import Path
from greenbench.experiments.colocate import CoRequest, run_colocate
from tests.staging import Notes
from tests.test_colocate import planned
folder = Path(sys.argv[1])
print("begun", flush=True)
run_colocate(CoRequest(plan=planned(folder, "all"), device="model:h200", out=folder / "run"), Notes())
"""
# At the start, while the worker comes up, and among the visits; the last one is past the end on a quick machine.
DRAW = random.Random(4)
MOMENTS = [DRAW.uniform(*span) for span in ((0.0, 0.5), (0.5, 2.0), (2.0, 4.0))]


@pytest.mark.parametrize("after_s", MOMENTS)
def test_a_killed_run_leaves_nothing_and_goes_on(after_s: float, tmp_path: Path) -> None:
    """SIGKILL at a random moment: every child ends by itself, the journal reads, and the rest is measured once."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNING, str(tmp_path)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        time.sleep(after_s)
        found = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in found)
    folder, plan = tmp_path / "run", planned(tmp_path, "all")
    begun = (folder / "run.json").is_file()
    before = read_cojournal(folder / "blocks.csv") if begun else []
    where = {"resume": folder} if begun else {"out": folder}
    done = run_colocate(CoRequest(plan=plan, device="model:h200", **where), Notes())  # type: ignore[arg-type]
    assert done.exit_code is ExitCode.DONE
    assert {row.status for row in done.rows} == {Status.OK, Status.UNSUPPORTED}
    after = read_cojournal(folder / "blocks.csv")
    assert after[: len(before)] == before
    assert len({visit.key for visit in after}) == len(after) == 4 + len(EVERY) - 2
