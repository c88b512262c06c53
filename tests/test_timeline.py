"""Captures of Nsight Systems: every figure of a real one, attribution against a plain model, and exports that lack things."""

from __future__ import annotations

import json
import shutil
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.errors import IncompleteError, ResultFileError
from greenbench.timeline.analysis import Analysis, analyse
from greenbench.timeline.gaps import Cause, gaps_of
from greenbench.timeline.reading import read_capture
from greenbench.timeline.report import as_json, table
from tests.nsys_export import PROCESS, THREAD, Export

DATA = Path(__file__).parent / "data" / "timeline"
REAL = DATA / "nsys_h200_two_green_contexts.sqlite"
EXPECTED = json.loads((DATA / "nsys_h200_two_green_contexts.expected.json").read_text(encoding="utf-8"))


@cache
def real() -> Analysis:
    """The analysis of the capture of an H200."""
    return analyse(read_capture(REAL))


@cache
def found() -> dict[str, Any]:
    """The same as plain JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(as_json(real())))
    return values


def holds(have: Any, want: Any, place: str = "") -> None:
    """Compare all that is expected; what is reported beyond it is free."""
    if isinstance(want, dict):
        assert isinstance(have, dict), place
        for key, value in want.items():
            assert key in have, f"{place}.{key}"
            holds(have[key], value, f"{place}.{key}")
        if place.endswith((".contexts", ".by_kernel", ".streams", ".by_active_contexts_ns", ".api_calls")):
            assert set(have) == set(want), place
    elif isinstance(want, list):
        assert len(have) == len(want), place
        for index, value in enumerate(want):
            holds(have[index], value, f"{place}[{index}]")
    else:
        assert have == want, place


@pytest.mark.parametrize(
    "part",
    [
        "export",
        "row_counts",
        "context_info",
        "whole_file",
        "ranges",
        "kernels_outside_every_range",
        "streams",
        "synchronization_rows",
        "possibly_synchronising_api_calls",
        "launch_api_calls",
    ],
)
def test_a_real_capture_to_the_ns(part: str) -> None:
    """Every value that three independent methods and nsys stats gave for this capture."""
    want = EXPECTED[part]
    if part == "ranges":
        want = [{key: value for key, value in each.items() if key != "domain_id"} for each in want]
    holds(found()[part], want, part)


def test_nsys_stats_agrees() -> None:
    """Kernel sums, sums by range and projections are those that nsys stats 2025.3.2 printed."""
    stats, ranges = EXPECTED["nsys_stats_2025_3_2"], {each.title: each for each in real().ranges}
    sums = {name: (each.count, each.total_ns) for name, each in real().whole.by_kernel.items()}
    assert sums == {each["kernel"]: (each["instances"], each["total_ns"]) for each in stats["cuda_gpu_kern_sum"]}
    for each in stats["nvtx_kern_sum"]:
        entry = ranges[each["range"]].figures.by_kernel[each["kernel"]]
        assert (entry.count, entry.total_ns) == (each["kern_inst"], each["total_ns"])
    for each in stats["nvtx_gpu_proj_sum"]:
        entry = ranges[each["range"]]
        assert entry.projection is not None
        assert (entry.projection.total_ns, entry.projection.operations) == (each["total_proj_ns"], each["gpu_ops"])
        assert entry.duration_ns == each["total_range_ns"]


def test_a_real_capture_has_nothing_to_report() -> None:
    """No finding is made up where work is as it should be."""
    assert (real().findings, real().strays, real().unchecked) == ((), 0, "")


def test_the_table_has_contexts_and_pairs() -> None:
    """A line per context and pair, of the file and of each range."""
    rows = list(table(real()))
    assert [(row.scope, row.context, row.beside) for row in rows] == [
        ("file", "green:2", ""),
        ("file", "green:3", ""),
        ("file", "green:2", "green:3"),
        ("range", "green:2", ""),
        ("range", "green:3", ""),
        ("range", "green:2", "green:3"),
        ("range", "green:2", ""),
    ]
    assert (rows[2].overlap_ns, rows[5].fraction_of_smaller) == (1107577, 0.994483358)


def test_start_end_ranges_are_ranges() -> None:
    """With start/end ranges alone, kernels are attributed all the same, and SMs come from their names (GindaChen/nsys-ai 314)."""
    analysis = analyse(read_capture(DATA / "start_end_only.sqlite"))
    contexts = {each.label: (each.kernels, each.busy_ns, each.sms) for each in analysis.whole.contexts}
    assert contexts == {"green:2": (6, 180_000, 16), "green:3": (3, 600_000, 116)}
    assert [pair.overlap_ns for pair in analysis.whole.pairs] == [180_000]
    assert {each.name: each.figures.kernels for each in analysis.ranges} == {"load|sms=116": 3, "probe|sms=16": 6}


times = st.integers(0, 40)
interval = st.tuples(times, times).map(sorted)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(interval, st.integers(0, 2)), min_size=1, max_size=10),
    st.lists(st.tuples(interval, st.integers(0, 2)), max_size=8),
)
def test_attribution_is_that_of_the_model(tmp_path_factory: pytest.TempPathFactory, calls: Any, ranges: Any) -> None:
    """A kernel is in every range of its thread that contains the whole call, and in no other; the innermost began last."""
    export = Export()
    for (start, end), thread in calls:
        correlation = export.call("cuLaunchKernel", start, end, thread=THREAD + thread)
        export.kernel(100, 110, correlation=correlation)
    for index, ((start, end), thread) in enumerate(ranges):
        export.range(f"r{index}", start, end, kind=60, globalTid=THREAD + thread)
    analysis = analyse(read_capture(export.write(tmp_path_factory.mktemp("model") / "x.sqlite")))
    capture, pairs = analysis.capture, analysis.attribution
    titles = [capture.texts[name] for name in capture.ranges.name.tolist()]
    have: dict[int, set[str]] = {}
    for work, index in zip(pairs.work.tolist(), pairs.range.tolist(), strict=True):
        have.setdefault(int(capture.work.correlation[work]), set()).add(titles[index])
    for position, ((start, end), thread) in enumerate(calls, start=1):
        want = {f"r{i}" for i, ((low, high), own) in enumerate(ranges) if own == thread and low <= start and end <= high}
        assert have.get(position, set()) == want
    inner = pairs.of_work(capture).tolist()
    for work, index in enumerate(inner):
        around = have.get(int(capture.work.correlation[work]), set())
        assert (index >= 0) == bool(around)
        if index >= 0:
            assert titles[index] in around
            assert int(capture.ranges.start[index]) == max(ranges[int(each[1:])][0][0] for each in around)


def test_repeated_and_nested_ranges(tmp_path: Path) -> None:
    """Instances of one name are one entry, whose projections add up; the outer range has the kernels of the inner one too."""
    export = Export()
    export.range("outer", 0, 100_000, domain="")
    for start in (10_000, 50_000):
        export.range("inner", start - 5_000, start, domain="")
        export.kernel(start, start + 2_000)
    outer, inner = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).ranges
    assert (outer.title, outer.depth, outer.instances, outer.figures.kernels) == (":outer", 0, 1, 2)
    assert (inner.title, inner.depth, inner.instances, inner.figures.kernels) == (":inner", 1, 2, 2)
    assert outer.projection is not None
    assert inner.projection is not None
    assert (outer.projection.total_ns, inner.projection.total_ns) == (42_000, 4_000)


def test_an_unclosed_range_ends_with_the_trace(tmp_path: Path) -> None:
    """A process that was killed left its range open; its kernels are in it."""
    export = Export()
    export.range("open", 1_000, None)
    export.kernel(10_000, 20_000)
    (only,) = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).ranges
    assert (only.end_ns, only.figures.kernels) == (20_000, 1)


def test_a_domain_without_a_name_is_numbered(tmp_path: Path) -> None:
    """Domains made before the capture have no row of their own."""
    export = Export(domains={"": 0, "early": 4})
    export.range("a", 0, 50_000, domain="early")
    export.kernel(10_000, 20_000)
    (only,) = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).ranges
    assert only.domain == "domain#4"


def test_one_domain_is_chosen(tmp_path: Path) -> None:
    """--domain leaves out the others; an unknown one gives figures of the file and names the domains, never 0 strays."""
    export = Export()
    export.range("own", 0, 50_000)
    export.range("torch", 0, 50_000, domain="")
    export.kernel(10_000, 20_000)
    capture = read_capture(export.write(tmp_path / "x.sqlite"))
    assert [each.name for each in analyse(capture, "").ranges] == ["torch"]
    other = analyse(capture, "nothing")
    assert (other.ranges, other.unchecked) == ((), "there are no NVTX ranges")
    assert any("domains seen: 'greenbench', ''" in note for note in other.notes)
    assert as_json(other)["stray_kernels"] is None


def test_ids_repeat_across_processes(tmp_path: Path) -> None:
    """Two processes with the same context, stream and correlation ids stay apart, and labels name the process."""
    other = PROCESS + (1 << 24)
    export = Export()
    first = export.kernel(10_000, 20_000)
    export.call("cuLaunchKernel", 30_000, 31_000, correlation=first, thread=other + 5)
    export.kernel(40_000, 50_000, correlation=first, globalPid=other)
    figures = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).whole
    assert {each.label: each.queue.p50_ns for each in figures.contexts if each.queue} == {
        "green:2@1000": 1_000,
        "green:2@1001": 9_000,
    }


def test_sms_are_read_where_the_file_has_them(tmp_path: Path) -> None:
    """nsys 2026.1 and newer report the SM count of a green context."""
    export = Export()
    export.kernel(10_000, 20_000)
    row = {"processId": 1000, "deviceId": 0, "contextId": 2, "parentContextId": 1, "isGreenContext": 1, "nullStreamId": 14}
    export.add("TARGET_INFO_CUDA_CONTEXT_INFO", **row, numMultiprocessors=24)
    (context,) = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).capture.contexts
    assert (context.sms, context.sms_source) == (24, "file")


def test_sms_are_read_from_greenbench_payloads(tmp_path: Path) -> None:
    """A measured point carries round and granted SMs; ranges that contradict each other are said, not averaged."""
    export = Export()
    export.add("NVTX_EVENTS", start=0, eventType=33, category=2, text="kernel", globalTid=THREAD, domainId=1)
    export.range("triad@20/driver_default", 0, 50_000, category=2, uint64Value=3 << 16 | 24)
    export.kernel(10_000, 20_000)
    export.range("a|sms=8", 60_000, 100_000)
    export.range("b|sms=16", 100_000, 150_000)
    export.kernel(70_000, 80_000, green=3)
    export.kernel(110_000, 120_000, green=3)
    analysis = analyse(read_capture(export.write(tmp_path / "x.sqlite")))
    assert [(each.label, each.sms) for each in analysis.capture.contexts] == [("green:2", 24), ("green:3", None)]
    assert any("different SM counts for green:3 (8, 16)" in note for note in analysis.notes)


def test_queueing_is_per_call(tmp_path: Path) -> None:
    """A graph launch is one call: its first kernel waited, the others did not; a kernel may start before its call returns."""
    export = Export()
    graph = export.call("cuGraphLaunch", 0, 1_000)
    for start in (5_000, 90_000, 95_000):
        export.kernel(start, start + 100, correlation=graph, graphNodeId=start)
    export.kernel(100_000, 101_000, launched=99_000)
    (context,) = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).whole.contexts
    assert context.queue is not None
    assert (context.queue.launches, context.queue.p50_ns, context.queue.p99_ns) == (2, -1_000, 4_000)


def test_several_streams_of_a_context_are_one_union(tmp_path: Path) -> None:
    """Total exceeds busy where a context overlaps itself, and that is no overlap of contexts."""
    export = Export()
    export.kernel(10_000, 30_000)
    export.kernel(20_000, 40_000, streamId=16)
    export.kernel(40_000, 40_000, green=3)
    figures = analyse(read_capture(export.write(tmp_path / "x.sqlite"))).whole
    assert [(each.total_ns, each.busy_ns, each.streams) for each in figures.contexts] == [
        (40_000, 30_000, (15, 16)),
        (0, 0, (18,)),
    ]
    assert (figures.devices[0].most_kernels, figures.devices[0].by_active_ns, figures.pairs[0].overlap_ns) == (
        2,
        {0: 0, 1: 30_000},
        0,
    )


def test_gaps_are_split_by_cause(tmp_path: Path) -> None:
    """Each ns of a gap has one cause: own work, a copy, another context, a wait of the host, else the host."""
    export = Export()
    export.range("r", 0, 9_000)
    export.kernel(10_000, 20_000, launched=0)
    export.kernel(70_000, 80_000, launched=4_000)
    export.kernel(20_000, 25_000, launched=20_000)
    export.copy(25_000, 32_000, green=2)
    export.kernel(30_000, 40_000, green=3, launched=21_000)
    export.call("cuStreamSynchronize", 38_000, 50_000)
    capture = read_capture(export.write(tmp_path / "x.sqlite"))
    (only,) = analyse(capture).ranges
    (gaps,) = gaps_of(capture, only)
    assert dict(gaps.by_cause) == {
        Cause.SAME_CONTEXT: 5_000,
        Cause.COPY: 7_000,
        Cause.OTHER_CONTEXT: 8_000,
        Cause.SYNCHRONISATION: 10_000,
        Cause.HOST: 20_000,
    }
    assert (gaps.gaps, gaps.total_ns, gaps.longest_ns) == (1, 50_000, 50_000)


def without(path: Path, *statements: str) -> Path:
    """A copy of the real capture, changed."""
    shutil.copy(REAL, path)
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


@pytest.mark.parametrize(
    ("statements", "labels", "note"),
    [
        (["ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN greenContextId"], ["primary:1"], "cannot tell green contexts"),
        (["DROP TABLE TARGET_INFO_CUDA_CONTEXT_INFO"], ["green:2", "green:3"], "no table of contexts"),
        (["DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"], ["green:2", "green:3"], "no API calls were recorded"),
        (["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = NULL"], ["green:2", "green:3"], "no correlation ids"),
        (["DROP TABLE NVTX_EVENTS"], ["green:2", "green:3"], "no NVTX ranges"),
        (["UPDATE META_DATA_EXPORT SET value = '7.0.1' WHERE value = '3.20.3'"], ["green:2", "green:3"], "schema 7.0.1 is newer"),
        (["DROP TABLE META_DATA_EXPORT"], ["green:2", "green:3"], "SMs of green contexts are not reported"),
        (
            ["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE correlationId = 24"],
            ["green:2", "green:3"],
            "1 rows of CUPTI",
        ),
        (
            ["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'x' WHERE correlationId = 24"],
            ["green:2", "green:3"],
            "1 rows of CUPTI",
        ),
        (["INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 1, 1, 3, 'went' || char(27) || ' wrong', 1)"], ["green:2", "green:3"], "went"),
    ],
)
def test_what_an_export_lacks_is_a_note(tmp_path: Path, statements: list[str], labels: list[str], note: str) -> None:
    """Other versions and damaged rows degrade: the rest is read, one line says what is missing, and strays are never 0 unseen."""
    analysis = analyse(read_capture(without(tmp_path / "x.sqlite", *statements)))
    assert [each.label for each in analysis.whole.contexts] == labels
    assert any(note in line for line in analysis.notes), analysis.notes
    assert all(line.isprintable() for line in analysis.notes)
    blind = any(word in statements[0] for word in ("greenContextId", "RUNTIME", "NULL", "NVTX"))
    assert (as_json(analysis)["stray_kernels"] is None) == blind


DAMAGE = st.lists(st.tuples(st.integers(100, REAL.stat().st_size - 1), st.integers(0, 255)), min_size=1, max_size=40)


@settings(max_examples=30)
@given(DAMAGE)
def test_damage_is_a_sentence(tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]) -> None:
    """Whatever bytes of a file are wrong, it is read as far as it can be or refused in one sentence; nothing else is raised."""
    data = bytearray(REAL.read_bytes())
    for place, value in damage:
        data[place] = value
    path = tmp_path_factory.mktemp("damage") / "x.sqlite"
    path.write_bytes(bytes(data))
    try:
        told = str(as_json(analyse(read_capture(path)))["file"])
    except (ResultFileError, IncompleteError) as error:
        told = str(error)
    assert str(path) in told


def test_names_of_2022_are_found(tmp_path: Path) -> None:
    """Without shortName, the name of a kernel is the demangled one."""
    path = without(tmp_path / "x.sqlite", "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN shortName")
    assert set(analyse(read_capture(path)).whole.by_kernel) == {"prefill_gemm", "decode_step"}


def test_graphs_traced_whole_are_work(tmp_path: Path) -> None:
    """With --cuda-graph-trace=graph there are no kernel rows; a replay counts as one piece of work, and that is said."""
    export = Export()
    call = export.call("cuGraphLaunch", 0, 1_000)
    row = {"deviceId": 0, "contextId": 1, "greenContextId": 2, "streamId": 15, "correlationId": call, "globalPid": PROCESS}
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=2_000, end=9_000, graphId=4, **row)
    analysis = analyse(read_capture(export.write(tmp_path / "x.sqlite")))
    assert (analysis.whole.kernels, analysis.whole.graphs, list(analysis.whole.by_kernel)) == (0, 1, ["graph 4"])
    assert any("traced whole" in note for note in analysis.notes)
