"""Workers as real child processes: what a hang, a crash and a killed parent leave behind, and how errors cross the pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greenbench import errors
from greenbench.errors import DriverTooOldError, ExitCode, FailedError, StickyError, UnsupportedError, UsageError
from greenbench.gpu.nvrtc import CompileError
from greenbench.schema import BlockKind, BlockStatus, Scope
from greenbench.worker import Lost, Worker, process, survey
from greenbench.worker.child import _portable
from greenbench.worker.survey import _without
from tests.staging import alive, at, environment, model, sized

LIMIT_S = 0.5
# Stopping a process that heeds SIGTERM takes a moment, not seconds.
SLACK_S = 3.0


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start workers; whatever a test does, none is left afterwards."""
    made: list[Worker] = []

    def start(device: str, **more: Any) -> Worker:
        one = Worker(device, log=tmp_path / "worker.log", **more)
        made.append(one)
        one.start()
        return one

    yield start
    for one in made:
        pid = one.pid
        one.kill()
        one.kill()
        assert pid is None or not alive(pid)


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait for a condition without spinning."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_a_worker_serves_until_it_is_stopped(worker: Any) -> None:
    """One child answers hello, open, prepare, block and evidence; a failed point leaves it usable; it ends with status 0."""
    one = worker("model:h200")
    pid, child = one.pid, one._process
    assert one.device.name == "NVIDIA H200"
    grant, refusal = one.open([sized(12), sized(8, workqueue=Scope.DEVICE_CTX)])
    assert grant.sms == 16
    assert type(refusal) is UnsupportedError
    assert str(refusal) == "workqueue configuration needs driver 13.1, this is 13.0"
    assert one.prepare(at(12), timeout_s=20).grant == grant
    with pytest.raises(FailedError, match="out of memory") as raised:
        one.prepare(at(12, n=1 << 37), timeout_s=20)
    assert not isinstance(raised.value, StickyError)
    block = one.block(at(12), 4, 2, BlockKind.BLOCK, 1, timeout_s=20)
    assert (block.round, block.attempt, block.status, block.worker) == (4, 2, BlockStatus.OK, pid)
    assert one.evidence().processes == (pid,)
    # Ctrl-C goes to the whole process group, and what becomes of a worker is the parent's decision.
    os.kill(pid, signal.SIGINT)
    assert one.evidence().processes == (pid,)
    assert one.profile(at(12), 2, timeout_s=20).samples_us == ()
    one.stop()
    assert child.returncode == 0
    with pytest.raises(Lost, match="was not started"):
        one.evidence()


def test_a_hang_costs_its_limit_and_leaves_no_process(worker: Any, tmp_path: Path) -> None:
    """H17: no answer within the limit is `timeout, S s`; the child is gone shortly afterwards, by SIGTERM alone."""
    one = worker(model(tmp_path, {"kind": "hang", "kernel": "copy", "at_block": 2}))
    one.open([sized(8)])
    one.prepare(at(8), timeout_s=20)
    one.block(at(8), 1, 1, BlockKind.BLOCK, 1, timeout_s=20)
    pid, child = one.pid, one._process
    began = time.monotonic()
    with pytest.raises(Lost, match=r"^timeout, 0\.5 s$"):
        one.block(at(8), 2, 1, BlockKind.BLOCK, 1, timeout_s=LIMIT_S)
    assert LIMIT_S <= time.monotonic() - began < LIMIT_S + SLACK_S
    assert child.returncode == -signal.SIGTERM
    assert not alive(pid)


def test_a_process_that_ignores_sigterm_is_killed(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process heeds no SIGTERM; SIGKILL follows after the grace period."""
    monkeypatch.setattr(process, "GRACE_S", 0.3)
    one = worker("model:h200")
    pid, child = one.pid, one._process
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Lost, match=r"^timeout, 0\.5 s$"):
        one._call("evidence", timeout_s=LIMIT_S)
    assert child.returncode == -signal.SIGKILL
    assert not alive(pid)


def test_a_crash_is_told_by_its_signal(worker: Any, tmp_path: Path) -> None:
    """SIGSEGV in the child is `Lost` with the signal's name and the place of its last words, which hold a stack."""
    one = worker(model(tmp_path, {"kind": "crash", "kernel": "copy"}))
    one.open([sized(8)])
    pid = one.pid
    with pytest.raises(Lost, match=r"^the worker died of SIGSEGV; its last words are in worker\.log$"):
        one.prepare(at(8), timeout_s=20)
    assert not alive(pid)
    words = (tmp_path / "worker.log").read_text()
    assert "Segmentation fault" in words
    assert "work.py" in words


def test_a_bug_in_the_child_ends_it_with_its_traceback(worker: Any, tmp_path: Path) -> None:
    """What is no error of ours does not cross the pipe as one: the worker ends, its traceback is in the log."""
    one = worker("model:h200")
    with pytest.raises(Lost, match=r"^the worker ended with status 1; its last words are in worker\.log$"):
        one._call("no_such_verb", timeout_s=20)
    assert "AttributeError" in (tmp_path / "worker.log").read_text()


def test_a_worker_that_someone_killed(worker: Any) -> None:
    """kill -9 from outside, while nothing was asked: the next request says how the worker died."""
    one = worker("model:h200")
    os.kill(one.pid, signal.SIGKILL)
    with pytest.raises(Lost, match="^the worker died of SIGKILL"):
        one.evidence()


def test_a_sticky_error_comes_back_as_one(worker: Any, tmp_path: Path) -> None:
    """The class survives the pipe: the caller must know that this worker is lost, although it still answers."""
    one = worker(model(tmp_path, {"kind": "sticky", "kernel": "copy"}), environment={"CUDA_DEVICE_MAX_CONNECTIONS": "4"})
    assert b"CUDA_DEVICE_MAX_CONNECTIONS=4" in Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0")
    one.open([sized(8)])
    with pytest.raises(StickyError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(700\)") as raised:
        one.prepare(at(8), timeout_s=20)
    assert type(raised.value) is StickyError


@pytest.mark.parametrize(
    ("device", "kind", "words"),
    [
        ("model:h200@12.3", DriverTooOldError, r"12\.4.*12\.5.*12\.3"),
        ("model:nothing", UsageError, "nothing"),
        ("model:/nowhere/device.toml", UsageError, "/nowhere/device.toml"),
    ],
)
def test_errors_of_the_device_keep_class_and_text(device: str, kind: type[Exception], words: str) -> None:
    """What the device says while it is opened is raised here as it was there, and the child goes."""
    one = Worker(device)
    with pytest.raises(kind, match=words) as raised:
        one.start()
    assert type(raised.value) is kind
    pid = one.pid
    one.kill()
    assert pid is not None
    assert not alive(pid)


def test_every_error_of_the_tree_crosses_the_pipe() -> None:
    """Each class is rebuilt as itself with its exit code; one of a lower layer as the nearest of the tree."""
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.GreenbenchError)]
    assert len(kinds) > 15
    for kind in kinds:
        rebuilt = process._rebuilt(*_portable(kind("the text")))
        assert (type(rebuilt), str(rebuilt)) == (kind, "the text")
    assert type(process._rebuilt(*_portable(CompileError("compile error: x", "log", "13.5")))) is FailedError


def test_a_worker_imports_nothing_from_where_the_user_stands(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder `cuda` or a file `tomllib.py` in the current folder does not get in the way of the child."""
    (tmp_path / "cuda").mkdir()
    for name in ("cuda/__init__.py", "tomllib.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert worker("model:h200").device.sm_count == 132


# -- the parent ------------------------------------------------------------------------------------------------------------

PARENT = """
import sys
from pathlib import Path
from greenbench.schema import BlockKind
from greenbench.worker import Worker
from tests.staging import at, sized

idle = Worker("model:h200")
idle.start()
busy = Worker(sys.argv[1])
busy.start()
busy.open([sized(8)])
foreign = sorted({name.partition(".")[0] for name in sys.modules} & {"cuda", "cupy", "cupy_backends", "pynvml", "nvtx", "numpy"})
print(idle.pid, busy.pid, *foreign, flush=True)
busy.prepare(at(8), timeout_s=60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_no_child(how: signal.Signals, tmp_path: Path) -> None:
    """kill -9 (and TERM) of the parent: the idle worker and the one whose kernel hangs are gone at once. It loaded no CUDA."""
    device = model(tmp_path, {"kind": "hang", "kernel": "copy"})
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, device], env=environment(), stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    try:
        words = parent.stdout.readline().split()
        pids = [int(word) for word in words[:2]]
        assert words[2:] == []
        assert all(alive(pid) for pid in pids)
        time.sleep(0.1)
        parent.send_signal(how)
        parent.wait(10)
        assert until(lambda: not any(alive(pid) for pid in pids))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_a_child_of_another_parent_does_not_serve() -> None:
    """A child whose parent died before it could ask for its death signal ends at once instead of holding the GPU."""
    ours, theirs = os.pipe()
    with os.fdopen(ours), os.fdopen(theirs):
        done = subprocess.run(
            [sys.executable, "-m", "greenbench.worker.child", str(ours), "1"],
            env=environment(),
            pass_fds=(ours,),
            check=False,
            timeout=20,
        )
    assert done.returncode == 1


def test_a_child_ends_when_its_pipe_closes(worker: Any) -> None:
    """No orphan waits for requests that cannot come."""
    one = worker("model:h200")
    one._pipe.close()
    assert one._process.wait(10) == 0


# -- devices ---------------------------------------------------------------------------------------------------------------


def test_a_survey_of_a_model(tmp_path: Path) -> None:
    """`devices` opens the smallest partition and proves it; a lane that leaks is an obstacle in words, not a crash."""
    found = survey("model:h200")
    assert found.obstacle is None
    assert [(report.green, report.workqueue) for report in found.devices] == [
        ("", "workqueue configuration needs driver 13.1, this is 13.0")
    ]
    leaking = survey(model(tmp_path, {"kind": "leak", "sms": 8}))
    assert [report.green for report in leaking.devices] == ["leaked: 8 SMs granted, the census saw 9"]


def test_a_survey_of_what_cannot_be_opened() -> None:
    """A driver too old is the obstacle of the survey, exit 4."""
    found = survey("model:h200@12.3")
    assert found.devices == ()
    assert isinstance(found.obstacle, DriverTooOldError)
    assert found.obstacle.exit_code is ExitCode.MACHINE


@pytest.mark.parametrize(
    ("processes", "own", "left"),
    [((7, 12), 12, (7,)), ((12,), 12, ()), ((), 12, ()), ((1,), 12, ()), ((1, 2), 12, (1, 2))],
)
def test_a_survey_leaves_out_its_own_worker(processes: tuple[int, ...], own: int, left: tuple[int, ...]) -> None:
    """By its id; where ids are of another namespace, a list of one is the worker, and of several nobody can tell which."""
    assert _without(processes, own) == left
