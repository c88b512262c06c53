"""NVTX ranges: what a tool sees, what is free when there is none, and what is said when a tool cannot see us."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from greenbench.gpu import annotate
from greenbench.gpu.annotate import Annotator, tool_problem

ROOT = Path(__file__).parents[1]
SOURCE = Path(__file__).parent / "data" / "nvtx_log.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler to build an NVTX tool with")

NESTED = """
from greenbench.gpu.annotate import Annotator
ranges = Annotator().range
for round_ in (1, 2):
    with ranges("triad|sms=16", "sweep", 16):
        with ranges("verify", "setup"):
            pass
        with ranges("triad|sms=16", "kernel", round_):
            with ranges("triad|sms=16", "kernel", round_):
                pass
with ranges("decode", "workload", 0):
    pass
"""

RAISING = """
from greenbench.gpu.annotate import Annotator
ranges = Annotator().range
try:
    with ranges("outer"):
        with ranges("inner", "kernel"):
            raise ValueError
except ValueError:
    pass
with ranges("after"):
    pass
"""


@pytest.fixture(autouse=True)
def no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is run as if under the profiler of whoever runs the tests."""
    for name in (*annotate._SIGNS, "NVTX_DISABLE"):
        monkeypatch.delenv(name, raising=False)


def build_tool(folder: Path, *flags: str) -> Path:
    """Compile the logging tool."""
    assert COMPILER is not None
    library = folder / "nvtx_log.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


def under_tool(script: str, tool: Path, log: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process that the tool is injected into."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "NVTX_INJECTION64_PATH": str(tool),
        "NVTX_LOG": str(log),
    }
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)


@needs_compiler
def test_a_tool_sees_every_range(tmp_path: Path) -> None:
    """A real NVTX tool receives domain, category, name and payload of each push, nested as written, every time."""
    log = tmp_path / "log"
    under_tool(NESTED, build_tool(tmp_path), log)
    one_round = [
        "push|greenbench|sweep|triad|sms=16|16",
        "push|greenbench|setup|verify|",
        "pop|greenbench",
        "push|greenbench|kernel|triad|sms=16|{round}",
        "push|greenbench|kernel|triad|sms=16|{round}",
        "pop|greenbench",
        "pop|greenbench",
        "pop|greenbench",
    ]
    expected = [line.format(round=number) for number in (1, 2) for line in one_round]
    assert log.read_text().splitlines() == [*expected, "push|greenbench|workload|decode|0", "pop|greenbench"]


@needs_compiler
def test_pairs_stay_balanced_when_the_body_raises(tmp_path: Path) -> None:
    """An exception inside nested ranges pops each of them once, and the next range starts at the outer level."""
    log = tmp_path / "log"
    under_tool(RAISING, build_tool(tmp_path), log)
    verbs = [line.split("|")[0] for line in log.read_text().splitlines()]
    assert verbs == ["push", "push", "pop", "pop", "push", "pop"]


@needs_compiler
def test_a_tool_that_does_not_enable_domains_is_named(tmp_path: Path) -> None:
    """Under a tool that declines NVTX extensions (old nsys) ranges are silent, and the doctor check says what to install."""
    log = tmp_path / "log"
    script = (
        "from greenbench.gpu.annotate import Annotator, tool_problem\n"
        "annotator = Annotator()\n"
        "with annotator.range('x'): pass\n"
        "print(annotator.listening, tool_problem())"
    )
    shown = under_tool(script, build_tool(tmp_path, "-DREFUSE_EXTENSIONS"), log).stdout
    assert shown.startswith("False NVTX_INJECTION64_PATH")
    assert "use nsys >= 2025.3 or nvtx 0.2.11" in shown
    assert not log.exists() or log.read_text() == ""


class Recorder:
    """Stands in for an enabled `nvtx.Domain` where no compiler can build a tool."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.built = 0

    def get_category_id(self, name: str) -> int:
        return annotate.CATEGORIES.index(name) + 1

    def get_event_attributes(self, message: str, color: str | None, category: str, payload: int | None) -> object:
        self.built += 1
        return (message, category, payload)

    def push_range(self, attributes: object) -> None:
        self.events.append(attributes)

    def pop_range(self) -> None:
        self.events.append("pop")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Make nvtx hand out a recording domain."""
    nvtx = pytest.importorskip("nvtx")
    domain = Recorder()
    monkeypatch.setattr(nvtx, "get_domain", lambda name: domain if name == "greenbench" else None)
    return domain


def test_attributes_are_built_once(recorder: Recorder) -> None:
    """A repeated (name, category, payload) reuses its attributes; another payload gets its own, never a changed shared one."""
    annotator = Annotator(enabled=True)
    for payload in (8, 16, 8, 16):
        with annotator.range("triad", "sweep", payload), annotator.range("triad", "sweep", payload + 1):
            pass
    assert recorder.built == 4
    assert recorder.events[:4] == [("triad", "sweep", 8), ("triad", "sweep", 9), "pop", "pop"]


def test_the_cache_is_bounded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads without end cannot fill the memory, and ranges stay right after the cache was emptied."""
    monkeypatch.setattr(annotate, "_MAX_RANGES", 3)
    annotator = Annotator(enabled=True)
    for payload in range(8):
        with annotator.range("step", "workload", payload):
            pass
        assert len(annotator._ranges) <= 3
    assert [event for event in recorder.events if event != "pop"] == [("step", "workload", n) for n in range(8)]


def test_nothing_is_pushed_when_switched_off(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """`enabled=False` stays silent even under a tool; without signs of a tool the default is silent too."""
    silent = Annotator()
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/some/tool.so")
    for annotator in (Annotator(enabled=False), silent):
        with annotator.range("triad", "sweep", 8):
            pass
        assert not annotator.listening
    assert recorder.events == []
    assert Annotator().listening


def test_without_the_package_everything_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without nvtx measures as usual, exceptions pass through, and the doctor check names the package."""
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/some/tool.so")
    annotator = Annotator(enabled=True)
    with pytest.raises(KeyError), annotator.range("triad"):
        raise KeyError
    assert not annotator.listening
    assert "nvtx is not installed" in tool_problem()


def test_no_problem_is_reported_without_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor check is silent when no profiler is loaded, also with an unrelated LD_PRELOAD; NVTX_DISABLE is named."""
    assert tool_problem() == ""
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so")
    assert tool_problem() == ""
    monkeypatch.setenv("LD_PRELOAD", "/opt/nsys/libToolsInjectionProxy64.so")
    monkeypatch.setenv("NVTX_DISABLE", "1")
    assert "NVTX_DISABLE" in tool_problem()


def test_nvtx_is_not_imported_without_a_tool() -> None:
    """The 0.1 s import of nvtx and numpy is paid only where something may listen."""
    script = (
        "import sys; from greenbench.gpu.annotate import Annotator\n"
        "with Annotator().range('x'): pass\n"
        "print('nvtx' in sys.modules, 'numpy' in sys.modules)"
    )
    environment = {key: value for key, value in os.environ.items() if key not in annotate._SIGNS} | {"PYTHONPATH": str(ROOT)}
    shown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]


def best_ns(make: Callable[[], AbstractContextManager[None]]) -> float:
    """Return the least time of one `with make(): pass` over several passes."""
    passes = []
    for _ in range(9):
        start = time.perf_counter_ns()
        for _ in range(5000):
            with make():
                pass
        passes.append((time.perf_counter_ns() - start) / 5000)
    return min(passes)


def test_a_silent_range_is_cheaper_than_the_standard_null_context() -> None:
    """With no tool a range costs less than `contextlib.nullcontext()`, the plainest thing that one would write instead."""
    annotator = Annotator()
    assert best_ns(lambda: annotator.range("triad", "sweep", 8)) < best_ns(contextlib.nullcontext)
