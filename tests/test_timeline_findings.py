"""Findings: each is made where it should be, names its evidence and rows, and is not made beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenbench.timeline.analysis import Analysis, analyse
from greenbench.timeline.api import Act, act_of
from greenbench.timeline.finding import Finding, Topic
from greenbench.timeline.reading import read_capture
from tests.nsys_export import THREAD, Export


@pytest.fixture
def analysed(tmp_path: Path) -> Callable[[Export], Analysis]:
    """Write an export and analyse it."""
    return lambda export: analyse(read_capture(export.write(tmp_path / "x.sqlite")))


def of(analysis: Analysis, topic: Topic) -> list[Finding]:
    """The findings on one topic."""
    return [finding for finding in analysis.findings if finding.topic is topic]


def beside(range_name: str = "step", **more: object) -> Export:
    """A green kernel of 2 ms in a range, and a stray of 1 ms beside it."""
    export = Export()
    export.range(range_name, 0, 50_000, **more)  # type: ignore[arg-type]
    export.kernel(100_000, 2_100_000, launched=10_000)
    export.kernel(200_000, 1_200_000, green=0, launched=20_000, name="leak")
    return export


def test_a_stray_is_found_with_its_evidence(analysed: Callable[[Export], Analysis]) -> None:
    """A kernel outside every green context inside a range that uses one: count, times, stream, overlap, API call and row."""
    export = beside()
    export.add("TARGET_INFO_CUDA_STREAM", processId=1000, streamId=7, contextId=1, priority=0, flag=3)
    analysis = analysed(export)
    (stray,) = of(analysis, Topic.STRAY)
    assert (analysis.strays, stray.count, stray.total_ns, stray.where) == (1, 1, 1_000_000, "greenbench:step")
    assert stray.evidence["overlap_ns"] == {"green:2": 1_000_000}
    assert stray.rows == {"CUPTI_ACTIVITY_KIND_KERNEL": (2,)}
    (entry,) = stray.evidence["list"]  # type: ignore[misc]
    assert (entry["name"], entry["stream"], entry["priority"], entry["api"]) == ("leak", 7, 0, "cuLaunchKernelEx")
    for words in (
        "1 kernel ran outside every green context inside greenbench:step",
        "leak",
        "stream 7 (the default stream)",
        "green:2",
    ):
        assert words in stray.text


@pytest.mark.parametrize("priority", [4294967291, -5], ids=["unsigned", "signed"])
def test_the_priority_of_a_stray_is_signed(analysed: Callable[[Export], Analysis], priority: int) -> None:
    """Priorities are exported as unsigned 32 bit."""
    export = beside()
    export.add("TARGET_INFO_CUDA_STREAM", processId=1000, streamId=7, contextId=1, priority=priority, flag=2)
    (stray,) = of(analysed(export), Topic.STRAY)
    assert "stream 7 (priority -5)" in stray.text


@pytest.mark.parametrize(
    "export",
    [
        beside("decode alone"),
        beside("copy@primary/driver_default"),
        beside("mechanism=streams"),
    ],
    ids=["alone", "primary", "streams"],
)
def test_what_is_meant_to_run_without_partitions_is_no_stray(analysed: Callable[[Export], Analysis], export: Export) -> None:
    """Greenbench's own ranges say by name where work has no partition."""
    assert analysed(export).strays == 0


def test_such_names_excuse_nobody_else(analysed: Callable[[Export], Analysis]) -> None:
    """In a domain of somebody else the same word means nothing."""
    assert analysed(beside("decode alone", domain="")).strays == 1


def test_setup_is_no_stray(analysed: Callable[[Export], Analysis]) -> None:
    """Flush, filler and warm-up are in the category `setup`; it excuses what is in it, and nothing beside it."""
    export = beside()
    export.add("NVTX_EVENTS", start=0, eventType=33, category=4, text="setup", globalTid=THREAD, domainId=1)
    export.range("warm-up", 29_000, 40_000, category=4)
    export.kernel(2_200_000, 2_300_000, green=0, launched=30_000, name="flush")
    analysis = analysed(export)
    assert analysis.strays == 1
    assert "leak" in of(analysis, Topic.STRAY)[0].text


def test_ranges_without_green_contexts_have_no_strays(analysed: Callable[[Export], Analysis]) -> None:
    """A program, or a phase of it, that never used a partition broke none; nor did what is in no range."""
    export = Export()
    export.range("a", 0, 50_000)
    export.range("b", 60_000, 90_000)
    export.kernel(100_000, 200_000, green=0, launched=10_000)
    export.kernel(300_000, 400_000, green=2, launched=70_000)
    export.kernel(500_000, 600_000, green=0, launched=95_000)
    analysis = analysed(export)
    assert (analysis.strays, analysis.unchecked, analysis.outside) == (0, "", 1)


def test_stray_copies_are_listed_apart(analysed: Callable[[Export], Analysis]) -> None:
    """Copies outside green contexts are told with the strays, and counted as none."""
    export = beside()
    correlation = export.call("cuMemcpyHtoDAsync_v2", 30_000, 31_000)
    export.copy(400_000, 410_000, correlationId=correlation)
    analysis = analysed(export)
    (stray,) = of(analysis, Topic.STRAY)
    assert (analysis.strays, stray.evidence["copies_and_memsets"]) == (1, 1)
    assert "(and 1 copy or memset)" in stray.text


def serial(queued: bool) -> Export:
    """Two green contexts that take turns: all launched at once, or each launch just before its kernel."""
    export = Export()
    export.range("both", 0, 900_000)
    for turn in range(6):
        start = 100_000 * (turn + 1)
        export.kernel(start, start + 99_000, green=2 + turn % 2, launched=1_000 * turn if queued else None)
    return export


def test_contexts_that_take_turns(analysed: Callable[[Export], Analysis]) -> None:
    """Kernels of one wait in the queue while the other runs, again and again: said with the time that was lost."""
    (turns,) = of(analysed(serial(queued=True)), Topic.NEVER_OVERLAP)
    assert turns.evidence["contexts"] == ["green:2", "green:3"]
    assert turns.evidence["started_right_after"] == {"green:2": 2, "green:3": 3}
    assert turns.total_ns > 400_000
    assert "take turns" in turns.text


def test_contexts_that_the_host_launches_in_turn(analysed: Callable[[Export], Analysis]) -> None:
    """In one range, without anything queued, the same picture is the host's doing."""
    (turns,) = of(analysed(serial(queued=False)), Topic.NEVER_OVERLAP)
    assert turns.total_ns == 0
    assert "the host launches them in turn" in turns.text


def test_one_after_the_other_is_no_finding(analysed: Callable[[Export], Analysis]) -> None:
    """A sweep measures one partition after the other, each in its range: they never overlap, and should not."""
    export = Export()
    for turn in range(4):
        start = 100_000 * (turn + 1)
        export.range(f"point {turn}", start - 5_000, start)
        export.kernel(start, start + 90_000, green=2 + turn % 2)
    assert analysed(export).findings == ()


def overlapping() -> Export:
    """Two green contexts at once in one range that ends with a wait."""
    export = Export()
    export.range("both", 0, 900_000)
    export.kernel(100_000, 400_000, green=2, launched=1_000)
    export.kernel(150_000, 450_000, green=3, launched=4_000)
    return export


def test_a_wait_at_the_end_is_expected(analysed: Callable[[Export], Analysis]) -> None:
    """A range that waits for its own work is no synchronisation between contexts."""
    export = overlapping()
    export.call("cuStreamSynchronize", 10_000, 450_000)
    assert analysed(export).findings == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuStreamSynchronize_ptsz", "explicit synchronisation between contexts inside greenbench:both: 1 host wait"),
        ("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize (1x)"),
        ("cuStreamWaitEvent", "1 wait of a stream for an event"),
        ("cudaMalloc_v3020", "implicit synchronisation"),
        ("cuModuleLoadData", "1 load of a module"),
        ("cudaMemcpy_v3020", "1 synchronous copy"),
    ],
)
def test_synchronisation_between_launches(analysed: Callable[[Export], Analysis], name: str, words: str) -> None:
    """What may hold another context back is told by kind and name, with its rows; only where launches follow."""
    export = overlapping()
    export.call(name, 10_000, 40_000)
    export.kernel(500_000, 600_000, green=2, launched=50_000)
    (sync,) = of(analysed(export), Topic.SYNCHRONISATION)
    assert words in sync.text
    assert (sync.count, sync.total_ns, sync.rows) == (1, 30_000, {"CUPTI_ACTIVITY_KIND_RUNTIME": (3,)})


def test_waits_of_one_context_alone_are_no_finding(analysed: Callable[[Export], Analysis]) -> None:
    """A loop that waits for each of its steps in one context synchronises with nobody."""
    export = Export()
    export.range("loop", 0, 900_000)
    for start in (100_000, 300_000):
        export.kernel(start, start + 50_000)
        export.call("cuStreamSynchronize", start, start + 50_000)
    assert of(analysed(export), Topic.SYNCHRONISATION) == []


def test_pageable_copies_synchronise(analysed: Callable[[Export], Analysis]) -> None:
    """A copy from pageable memory is told apart from one from pinned memory."""
    export = overlapping()
    export.copy(200_000, 210_000, green=2, kinds=(1, 2))
    export.copy(220_000, 230_000, green=2, kinds=(0, 2))
    (sync,) = of(analysed(export), Topic.SYNCHRONISATION)
    assert (sync.count, sync.rows) == (1, {"CUPTI_ACTIVITY_KIND_MEMCPY": (2,)})
    assert "pageable" in sync.text


@pytest.mark.parametrize(("flag", "count"), [(1, 1), (2, 0)], ids=["blocking", "non-blocking"])
def test_the_null_stream_waits_for_blocking_streams(analysed: Callable[[Export], Analysis], flag: int, count: int) -> None:
    """Work on both in one primary context is told; non-blocking streams do not wait."""
    export = Export()
    export.kernel(100_000, 200_000, green=0, streamId=7)
    export.kernel(200_000, 300_000, green=0, streamId=20)
    for stream, kind in ((7, 3), (20, flag)):
        export.add("TARGET_INFO_CUDA_STREAM", processId=1000, streamId=stream, contextId=1, priority=0, flag=kind)
    found = of(analysed(export), Topic.SYNCHRONISATION)
    assert [finding.where for finding in found] == ["primary:1"] * count


def test_copies_between_kernels_are_on_the_critical_path(analysed: Callable[[Export], Analysis]) -> None:
    """The time counts in which the context stood still for a copy; a copy under a kernel, or before the first, costs nothing."""
    export = Export()
    export.copy(10_000, 40_000, green=2)
    export.kernel(50_000, 100_000)
    export.copy(90_000, 180_000, green=2)
    export.kernel(200_000, 300_000)
    export.copy(210_000, 290_000, green=2)
    (copy,) = of(analysed(export), Topic.COPY)
    assert (copy.count, copy.total_ns, copy.rows) == (1, 80_000, {"CUPTI_ACTIVITY_KIND_MEMCPY": (2,)})


def graph_export(greens: list[list[int]], same_nodes: bool) -> Export:
    """Replays of a graph: the green context of each of its kernels."""
    export = Export()
    clock = 10_000
    for index, replay in enumerate(greens):
        call = export.call("cuGraphLaunch", clock, clock + 1_000)
        for node, green in enumerate(replay):
            clock += 10_000
            export.kernel(
                clock, clock + 5_000, green=green, correlation=call, graphNodeId=node if same_nodes else 100 * index + node
            )
        clock += 10_000
    return export


@pytest.mark.parametrize(
    ("greens", "same_nodes", "words"),
    [
        ([[2, 0], [2, 2]], False, "while other kernels of the same replay ran in a green context"),
        ([[2, 2], [0, 0]], True, "although the same nodes ran in a green context in other replays"),
        ([[2, 2], [2, 2]], True, None),
        ([[0, 0], [0, 0]], True, None),
    ],
)
def test_graph_replays_that_left_their_partition(
    analysed: Callable[[Export], Analysis], greens: list[list[int]], same_nodes: bool, words: str | None
) -> None:
    """A replay that ran in part, or another time, in a green context; graphs that never had one are left alone."""
    found = of(analysed(graph_export(greens, same_nodes)), Topic.GRAPH)
    assert [words in finding.text for finding in found] == ([True] if words else [])
    assert all(finding.count == 1 for finding in found)


def test_a_whole_replay_outside_in_a_range_with_partitions(analysed: Callable[[Export], Analysis]) -> None:
    """A graph that was captured elsewhere and replayed among green work is a stray, and told as a graph."""
    export = overlapping()
    call = export.call("cudaGraphLaunch_v10000", 20_000, 21_000)
    export.kernel(200_000, 210_000, green=0, correlation=call, graphNodeId=5)
    analysis = analysed(export)
    assert analysis.strays == 1
    (graph,) = of(analysis, Topic.GRAPH)
    assert "inside a range that uses green contexts" in graph.text


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("cuLaunchKernelEx", Act.LAUNCH),
        ("cudaLaunchKernelExC_v11060", Act.LAUNCH),
        ("cudaLaunchCooperativeKernel_v9000", Act.LAUNCH),
        ("cuLaunchHostFunc", Act.OTHER),
        ("cuGraphLaunch_ptsz", Act.GRAPH_LAUNCH),
        ("cuEventSynchronize", Act.WAIT),
        ("cuCtxSynchronize_v2", Act.WAIT),
        ("cuGreenCtxWaitEvent", Act.STREAM_WAIT),
        ("cudaMemcpyAsync_v3020", Act.OTHER),
        ("cuMemcpyDtoH_v2", Act.COPY),
        ("cuMemcpyDtoHAsync_v2", Act.OTHER),
        ("cuMemAlloc_v2", Act.ALLOCATION),
        ("cudaMallocAsync_v11020", Act.OTHER),
        ("cuMemAllocAsync", Act.OTHER),
        ("cudaFree_v3020", Act.ALLOCATION),
        ("cudaFreeHost_v3020", Act.ALLOCATION),
        ("cudaHostAlloc_v3020", Act.ALLOCATION),
        ("cuMemHostRegister_v2", Act.ALLOCATION),
        ("cuLibraryLoadData", Act.MODULE),
        ("cuLibraryGetKernel", Act.OTHER),
        ("cuStreamDestroy_v2", Act.OTHER),
    ],
)
def test_calls_are_told_by_their_names(name: str, act: Act) -> None:
    """Suffixes of versions and of per-thread streams make no difference; asynchronous forms wait for nothing."""
    assert act_of(name) is act
