"""An MPS daemon of our own: private and short folders, an end in every way out, and a sentence where there is none.

The daemon is a script of that name on PATH, with a server as its child, that answers as the real one does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenbench.errors import UnsupportedError
from greenbench.gpu.mps import SHARE
from greenbench.worker import mps
from greenbench.worker.mps import CONTROL, LOG_DIRECTORY, MEMORY_LIMIT, PIPE_DIRECTORY, MpsDaemon
from tests.staging import alive, environment

SCRIPT = """#!/bin/sh
if [ "$1" != "-f" ]; then
  [ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || exit 1
  read command
  [ "$FAKE_MPS" = stubborn ] && exit 0
  [ "$command" = quit ] && rm "$CUDA_MPS_PIPE_DIRECTORY/control"
  exit 0
fi
[ "$FAKE_MPS" = dead ] && { echo "cannot create the log" >&2; exit 1; }
[ "$FAKE_MPS" = stubborn ] && trap '' TERM
sleep 1000 &
printf '%s %s %s %s %s\\n' $$ $! "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY" "[$CUDA_VISIBLE_DEVICES]" > "$FAKE_NOTES"
[ "$FAKE_MPS" = silent ] || touch "$CUDA_MPS_PIPE_DIRECTORY/control"
while [ -d "$CUDA_MPS_PIPE_DIRECTORY" ]; do
  [ "$FAKE_MPS" = silent ] || [ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { kill $!; exit 0; }
  sleep 0.05
done
"""


class Stage:
    """The fake daemon and what it noted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._notes = folder, folder / "notes"
        binary = folder / "bin" / CONTROL
        binary.parent.mkdir()
        binary.write_text(SCRIPT)
        binary.chmod(0o755)
        self.path = f"{binary.parent}{os.pathsep}{os.environ['PATH']}"

    @property
    def notes(self) -> list[str]:
        """Ids of the daemon and its server, its two folders, the devices that it sees."""
        return self._notes.read_text().split()

    def all_gone(self, seconds: float = 10.0) -> bool:
        """True once neither the daemon nor its server runs, nor their folder is there."""
        daemon, server, pipe, *_ = self.notes
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not alive(int(daemon)) and not alive(int(server)) and not Path(pipe).parent.exists():
                return True
            time.sleep(0.02)
        return False


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A fake daemon on PATH."""
    made = Stage(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setenv("FAKE_NOTES", str(tmp_path / "notes"))
    return made


def test_a_daemon_of_our_own(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has private folders whose sockets fit, sees every device, answers, and is gone with its server when the block ends."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with MpsDaemon(stage.folder) as daemon:
        _, _, pipe, log, devices = stage.notes
        assert daemon.environment() == {PIPE_DIRECTORY: pipe, LOG_DIRECTORY: log}
        assert len(pipe) < 80
        assert Path(pipe).stat().st_mode & 0o077 == 0
        assert devices == "[]"
        found = daemon.environment(25, "40G")
        assert found[SHARE] == "25"
        assert found[MEMORY_LIMIT] == "0=40G"
        assert daemon.environment(None, "1=512M")[MEMORY_LIMIT] == "1=512M"
    assert stage.all_gone(0.5)
    assert not (stage.folder / "mps.log").exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_it_ends_when_the_block_fails(stage: Stage, error: type[BaseException]) -> None:
    """An exception, and Ctrl-C, leave nothing behind."""
    with pytest.raises(error), MpsDaemon(stage.folder):
        raise error
    assert stage.all_gone(0.5)


def test_a_daemon_that_does_not_quit_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ignores `quit` and SIGTERM ends all the same, with its server."""
    monkeypatch.setenv("FAKE_MPS", "stubborn")
    with MpsDaemon(stage.folder):
        pass
    assert stage.all_gone(0.5)


def test_no_binary_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver has no MPS a point is unsupported, and the sentence says what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="MPS needs nvidia-cuda-mps-control, which is not on PATH"), MpsDaemon(tmp_path):
        pytest.fail("there is no daemon to be inside of")


def test_a_daemon_that_ends_at_once_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own last words are in the reason, and no folder stays."""
    monkeypatch.setenv("FAKE_MPS", "dead")
    with pytest.raises(UnsupportedError, match="ended at once: cannot create the log"), MpsDaemon(stage.folder):
        pytest.fail("there is no daemon to be inside of")


def test_a_daemon_that_does_not_answer_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that runs and never answers is unsupported, and gone."""
    monkeypatch.setenv("FAKE_MPS", "silent")
    monkeypatch.setattr(mps, "ANSWER_S", 0.3)
    with pytest.raises(UnsupportedError, match="the MPS daemon does not answer"), MpsDaemon(stage.folder):
        pytest.fail("it never answered")
    assert stage.all_gone()


HOLDING = "import sys, time; from pathlib import Path; from greenbench.worker.mps import MpsDaemon\n"
HOLDING += "with MpsDaemon(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_greenbench_leaves_no_daemon(stage: Stage, number: signal.Signals) -> None:
    """When greenbench gets a signal that it cannot answer, the guardian ends daemon and server and removes their folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(stage.folder)], env=environment(PATH=stage.path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"held\n"
        process.send_signal(number)
        process.wait(30)
    assert stage.all_gone()


def test_a_killed_guardian_takes_the_daemon_along(stage: Stage) -> None:
    """A guardian that is killed cannot clean up: its daemon dies with it, and greenbench ends the server and the folder."""
    with MpsDaemon(stage.folder) as daemon:
        guardian = daemon._guardian
        assert guardian is not None
        guardian.kill()
    assert stage.all_gone()
