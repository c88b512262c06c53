"""Ctrl-C while children are being started: it goes to the whole group, and only the parent may answer it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.staging import alive, children, environment

COMPILING = ("kernels", "--check", "--arch", "sm_90a")
MEASURING = ("sweep", "--kernels", "copy", "--sms", "8:132:8", "--rounds", "900", "--device", "model:h200", "--no-plots")


def struck(arguments: tuple[str, ...], out: Path, after_s: float) -> tuple[subprocess.CompletedProcess[str], set[int]]:
    """Run a command and send Ctrl-C to its group so long after its first child is there; return its end and its children."""
    process = subprocess.Popen(
        [sys.executable, "-m", "greenbench", *arguments],
        env=environment(GREENBENCH_CACHE_DIR=str(out / "cache")),
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (found := children(process.pid)):
        assert time.monotonic() < deadline, "no child was started"
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    time.sleep(after_s)
    found |= children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr), found


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3, 0.6])
@pytest.mark.parametrize("command", [COMPILING, MEASURING], ids=lambda command: command[0])
def test_only_the_parent_answers(command: tuple[str, ...], after_s: float, tmp_path: Path) -> None:
    """However far the children have come: one line, 130, no traceback of theirs on the terminal or in a log, none left."""
    if command is COMPILING:
        pytest.importorskip("cuda.core")
    done, found = struck(command, tmp_path, after_s)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("greenbench: interrupted")
    assert [path for path in tmp_path.rglob("worker.log") if "Traceback" in path.read_text()] == []
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in found)
