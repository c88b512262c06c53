"""NVTX as a user meets it: which ranges there are, what is in which category and colour, and what makes a stray of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from greenbench.catalog import library
from greenbench.costeps import CoSetup
from greenbench.gpu import open_gpu
from greenbench.gpu.annotate import CATEGORIES, COLOURS, DOMAIN, MEASURING, Annotator
from greenbench.measure import Session
from greenbench.queueing.model import Mechanism
from greenbench.schema import Family, Partition, Point, SmsMode, Timing
from greenbench.timeline.analysis import analyse
from greenbench.timeline.reading import read_capture
from greenbench.worker import child, process
from tests.nsys_export import PROCESS, Export

Seen = list[tuple[str, str, int, Family | None, int]]
CATEGORY = {name: number for number, name in enumerate(CATEGORIES, 1)}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Session, Seen]]:
    """A session on the modelled device, and every range that it opens with its depth, in order."""
    gpu = open_gpu("model:h200")
    seen: Seen = []
    depth = 0

    @contextmanager
    def annotate(name: str, category: str = "sweep", payload: int = 0, family: Family | None = None) -> Iterator[None]:
        nonlocal depth
        seen.append((name, category, payload, family, depth))
        depth += 1
        yield
        depth -= 1
        seen.append((f"/{name}", category, payload, family, depth))

    monkeypatch.setattr(gpu, "annotate", annotate)
    session = Session(gpu, library())
    yield session, seen
    assert depth == 0, "every range that was opened was closed"


def visited(session: Session, timing: Timing) -> Point:
    """Open, prepare and visit a point twice."""
    point = Point("copy", (("n", 1 << 22),), Partition(SmsMode.COUNT, 8), timing)
    session.open([point.partition])
    session.prepare(point)
    for round_ in (1, 2):
        session.block(point, round_=round_)
    session.close()
    return point


@pytest.mark.parametrize("timing", [Timing.COLD_CLEAN, Timing.GRAPH, Timing.STEADY])
def test_ranges_of_a_visit(watched: tuple[Session, Seen], timing: Timing) -> None:
    """One name per point, the round in the payload; whatever is not timed lies in `setup`; nothing starts before `measuring`."""
    session, seen = watched
    point = visited(session, timing)
    measuring = seen.index((MEASURING, "sweep", 0, None, 0))
    assert seen[-1][0] == f"/{MEASURING}"
    assert {category for _, category, _, _, _ in seen[:measuring]} == {"setup"}
    label = point.label(timing)
    visits = [entry for entry in seen if entry[0] == label and entry[1] == "kernel"]
    assert visits == [(label, "kernel", round_ << 16 | 8, Family.MEMORY, 1) for round_ in (1, 2)]
    inside = {(name, category) for name, category, _, _, depth in seen if depth == 2 and not name.startswith("/")}
    flushed = {("flush", "setup")} if timing is Timing.COLD_CLEAN else set()
    assert inside == {("rewarm", "setup"), ("probe", "setup")} | flushed


def test_profiled_launches_are_in_the_measuring_phase(watched: tuple[Session, Seen]) -> None:
    """--profile opens the same range, by which a profiler starts to record."""
    session, seen = watched
    point = Point("copy", (("n", 1 << 22),), Partition(SmsMode.COUNT, 8), Timing.STEADY)
    session.open([point.partition])
    session.prepare(point)
    session.profile(point, 2)
    session.close()
    assert [name for name, _, _, _, depth in seen if depth == 0][-2:] == [MEASURING, f"/{MEASURING}"]


def test_colours() -> None:
    """Each family has a colour of its own, opaque; so have setup and workload, and every category has one."""
    assert set(COLOURS) == {*Family, *CATEGORIES}
    own = [COLOURS[name] for name in (*Family, "setup", "workload")]
    assert len(set(own)) == len(own)
    assert all(colour >> 24 == 0xFF for colour in own)


def test_the_colour_is_that_of_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of a family has its colour, any other that of its category."""
    made: list[tuple[str, int]] = []
    domain = SimpleNamespace(
        get_event_attributes=lambda name, colour, category, payload: made.append((name, colour)),
        push_range=lambda attributes: None,
        pop_range=lambda: None,
    )
    monkeypatch.setattr("greenbench.gpu.annotate._listening_domain", lambda: domain)
    annotator = Annotator(enabled=True)
    for more in (("kernel", 8, Family.GEMM), ("setup",), ("workload", 16)):
        with annotator.range("x", *more):
            pass
    assert made == [("x", COLOURS[Family.GEMM]), ("x", COLOURS["setup"]), ("x", COLOURS["workload"])]


@pytest.mark.parametrize(
    ("name", "strays"),
    [
        ("green@16+116", 1),
        ("green_priority@16+116", 1),
        ("green_balanced@16+116", 1),
        ("green_background@16+116", 0),
        ("green_primary@16+116", 0),
        ("alone@16+116", 0),
        ("streams", 0),
        ("priority", 0),
    ],
)
def test_strays_by_mechanism(tmp_path: Path, name: str, strays: int) -> None:
    """A kernel outside is a stray where both roles are to have a partition, and none where one is to run without."""
    export = Export()
    export.range(name, 0, 50_000, category=CATEGORY["workload"])
    export.kernel(100_000, 200_000, launched=10_000)
    export.kernel(100_000, 200_000, green=0, launched=20_000)
    assert analyse(read_capture(export.write(tmp_path / "a.sqlite"))).strays == strays


def test_a_flush_hides_no_sm_count(tmp_path: Path) -> None:
    """The payload of a point's range names the SMs of its green context, though its flush ran on the whole device."""
    export = Export()
    for name, number in CATEGORY.items():
        export.add("NVTX_EVENTS", start=0, eventType=33, category=number, text=name, globalTid=PROCESS, domainId=1)
    export.range("triad@16", 0, 50_000, category=CATEGORY["kernel"], uint64Value=3 << 16 | 16)
    export.range("flush", 5_000, 15_000, category=CATEGORY["setup"])
    export.kernel(60_000, 61_000, green=0, launched=6_000)
    export.kernel(70_000, 90_000, launched=20_000)
    analysis = analyse(read_capture(export.write(tmp_path / "a.sqlite")))
    assert {each.label: each.sms for each in analysis.whole.contexts} == {"green:2": 16, "primary:1": None}
    assert (analysis.strays, analysis.findings) == (0, ())


def test_roles_run_in_a_range_of_their_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """A co-location is prepared in `setup` and run in `workload`, named after mechanism and sizes."""
    seen: list[tuple[str, str, int]] = []

    @contextmanager
    def annotate(name: str, category: str = "sweep", payload: int = 0) -> Iterator[None]:
        seen.append((name, category, payload))
        yield

    corun = SimpleNamespace(run=lambda schedule: schedule, prepared=(), close=lambda: None)
    server = child.Server()
    gpu = SimpleNamespace(annotate=annotate, corun=lambda setup, kernels: corun)
    monkeypatch.setattr(server, "_session", SimpleNamespace(gpu=gpu))
    schedule: Any = object()
    assert server.co_run(CoSetup(mechanism=Mechanism.GREEN, roles=(), sizes=(16, 116)), schedule) is schedule
    assert server.co_run(CoSetup(mechanism=Mechanism.TIMESLICE, roles=()), schedule) is schedule
    prepare = ("prepare", "setup", 0)
    assert seen == [prepare, ("green@16+116", "workload", 16), prepare, ("timeslice", "workload", 0)]


@pytest.mark.parametrize(("watched_by", "waits"), [("", [False]), ("1", [True])])
def test_a_watched_worker_ends_by_itself(monkeypatch: pytest.MonkeyPatch, watched_by: str, waits: list[bool]) -> None:
    """Under nsys a worker is given the time to write out its records before anything is sent to it."""
    monkeypatch.setenv(process.PROFILER_SESSION, watched_by)
    worker = process.Worker("model:h200")
    steps: list[str] = []

    def note(step: str) -> Callable[..., None]:
        return lambda *_, **__: steps.append(step)

    monkeypatch.setattr(worker, "_pipe", object())
    for name in ("_call", "_reap", "kill"):
        monkeypatch.setattr(worker, name, note(name))
    worker.stop()
    assert steps == (["_call", "_reap", "kill"] if waits == [True] else ["_call", "kill"])


def test_the_domain_is_what_the_capture_waits_for() -> None:
    """The line that nsys gets names the very range and domain."""
    from greenbench.nsight.line import Part, flags

    assert f"--nvtx-capture={MEASURING}@{DOMAIN}" in [flag.text for flag in flags(Part.MEASURING)]
