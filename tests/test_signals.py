"""Signals that end a run: whatever the sender, what was measured is on disk and the run can be resumed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenbench.cli.signals import ENDING, ending_like_ctrl_c
from greenbench.runfiles import read_rows
from tests.staging import alive, children, environment

LINES = 20
# Makes the terminal that is its stdin its own, so that closing it is told to what runs there.
OWNING = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


def command(run: Path) -> list[str]:
    """A sweep that takes longer than any test waits."""
    sizes = ("--kernels", "copy,triad", "--sms", "8:132:8", "--rounds", "900")
    return [sys.executable, "-m", "greenbench", "sweep", *sizes, "--device", "model:h200", "--out", str(run), "--no-plots"]


def under_way(run: Path) -> None:
    """Wait until the journal has some lines."""
    journal = run / "blocks.csv"
    deadline = time.monotonic() + 60
    while not (journal.is_file() and journal.read_bytes().count(b"\n") > LINES):
        assert time.monotonic() < deadline, "the run did not get going"
        time.sleep(0.02)


def gone(workers: set[int]) -> bool:
    """True once all these processes have ended."""
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in workers)


@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("how", ENDING)
def test_a_signal_ends_a_run_as_ctrl_c_does(how: signal.Signals, to_group: bool, tmp_path: Path) -> None:
    """130, rows.csv, the way to go on, no worker left: sent to the process alone or, as a batch system does, to its group."""
    run = tmp_path / "run"
    process = subprocess.Popen(
        command(run), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    under_way(run)
    workers = children(process.pid)
    assert workers
    if to_group:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout.splitlines() == [str(run), str(run / "rows.csv")]
    assert stderr.splitlines()[-1].endswith(f"greenbench sweep --resume {run}")
    assert len(read_rows(run)) == 32
    assert gone(workers)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal; the test may close the first."""
    master, slave = pty.openpty()
    yield master, slave
    os.close(slave)


def test_a_terminal_that_is_closed(terminal: tuple[int, int], tmp_path: Path) -> None:
    """The window is shut in the middle of a run with a bar: nowhere to write to, and still 130 and all rows."""
    run = tmp_path / "run"
    master, slave = terminal
    process = subprocess.Popen(
        [sys.executable, "-c", OWNING, *command(run)],
        env=environment(TERM="xterm", CI=""),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    under_way(run)
    workers = children(process.pid)
    os.close(master)
    assert process.wait(60) == 130
    assert len(read_rows(run)) == 32
    assert gone(workers)
    assert not (run / "traceback.txt").exists()


def test_nohup_keeps_a_run_going(tmp_path: Path) -> None:
    """A hang-up that the caller ignores does not end the run; SIGTERM still does."""
    run = tmp_path / "run"
    process = subprocess.Popen(
        ["nohup", *command(run)], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    under_way(run)
    process.send_signal(signal.SIGHUP)
    lines = (run / "blocks.csv").read_bytes().count(b"\n")
    deadline = time.monotonic() + 30
    while (run / "blocks.csv").read_bytes().count(b"\n") < lines + LINES:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_handlers_are_put_back() -> None:
    """Whoever calls the command line in a process of their own finds their handlers again."""
    before = [signal.getsignal(number) for number in ENDING]
    with ending_like_ctrl_c():
        assert all(signal.getsignal(number) not in before for number in ENDING)
    assert [signal.getsignal(number) for number in ENDING] == before
