"""Co-location on a real GPU: due times, stamps, who waits for whom, and what a second witness says of the overlap."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenbench.arrivals import Arrivals, Process
from greenbench.catalog import library
from greenbench.colocation.figures import overlap_fraction
from greenbench.costeps import CoSchedule, CoSetup, RoleSchedule, RoleSpec, RoleTrace, Trace
from greenbench.errors import FailedError, UnsupportedError
from greenbench.gpu.cuda import CudaGpu, open_cuda
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Scope
from greenbench.workload import Call, Group, StepKind, Workload, settled

KERNELS = library()
MS = 1_000_000


def spin(us: int) -> Workload:
    """A step that takes a known time on one SM."""
    call = Call("spin", (("ns", us * 1000),))
    return settled(Workload(name="spin", kind=StepKind.KERNELS, groups=(Group((call,)),)), KERNELS)


def role(kind: Kind, workload: Workload, **more: object) -> RoleSpec:
    """A role by its kind."""
    return RoleSpec(name=kind.value, kind=kind, workload=workload, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaGpu]:
    """The first GPU of this machine."""
    device = open_cuda("0")
    yield device
    device.close()


def ran(gpu: CudaGpu, setup: CoSetup, *schedules: RoleSchedule, limit_s: float = 20.0) -> Trace:
    """Prepare, run, and close."""
    corun = gpu.corun(setup, KERNELS)
    try:
        return corun.run(CoSchedule(roles=schedules, limit_s=limit_s))
    finally:
        corun.close()


def latencies(trace: RoleTrace) -> list[float]:
    """Return end less due, in us."""
    return [(end - due) / 1e3 for due, end in zip(trace.due_ns, trace.end_ns, strict=True)]


def intervals(trace: RoleTrace) -> list[tuple[int, int]]:
    """Return start and end of every step."""
    return list(zip(trace.start_ns, trace.end_ns, strict=True))


def test_a_step_starts_when_it_is_due_whatever_the_host_does(gpu: CudaGpu) -> None:
    """300 spins of 100 us at 2,000 a second take 100 us and a launch, p99 as p50: no jitter of the host is left."""
    due = Arrivals(Process.FIXED, 2000.0, 1, "latency").first(300)
    setup = CoSetup(
        mechanism=Mechanism.ALONE, sizes=(20, gpu.device.sm_count - 20), roles=(role(Kind.LATENCY, spin(100), slot=0),)
    )
    (trace,) = ran(gpu, setup, RoleSchedule(due_ns=due)).roles
    found = sorted(latencies(trace)[20:])
    assert len(trace.end_ns) == 300
    assert 100 <= statistics.median(found) <= 112
    assert found[int(0.99 * len(found))] <= 1.2 * statistics.median(found)
    assert all(b - a == due[1] - due[0] for a, b in zip(trace.due_ns, trace.due_ns[1:], strict=False))


def test_green_roles_run_side_by_side_on_their_own_sms(gpu: CudaGpu) -> None:
    """Two endless-looking spins in disjoint contexts overlap, on exactly the SMs that were granted."""
    total = gpu.device.sm_count
    roles = (role(Kind.LATENCY, spin(200), slot=0), role(Kind.BACKGROUND, spin(300), slot=1))
    setup = CoSetup(mechanism=Mechanism.GREEN, sizes=(20, total - 20), roles=roles)
    trace = ran(gpu, setup, RoleSchedule(steps=200), RoleSchedule())
    first, second = trace.roles
    assert (len(first.smids), len(second.smids)) == (20, total - 20)
    assert not set(first.smids) & set(second.smids)
    overlap = overlap_fraction(intervals(first), intervals(second))
    assert overlap is not None
    assert overlap > 0.9


@pytest.mark.parametrize("mechanism", [Mechanism.SERIAL, Mechanism.CHUNKED])
def test_roles_in_turn_never_overlap(gpu: CudaGpu, mechanism: Mechanism) -> None:
    """One stream, one piece at a time; a chunked background gives way between its pieces."""
    pieces = (spin(300), spin(300), spin(300))
    chunks = pieces if mechanism is Mechanism.CHUNKED else ()
    roles = (role(Kind.LATENCY, spin(100)), role(Kind.BACKGROUND, spin(900), chunks=chunks))
    due = Arrivals(Process.FIXED, 1000.0, 1, "latency").first(100)
    trace = ran(gpu, CoSetup(mechanism=mechanism, roles=roles), RoleSchedule(due_ns=due), RoleSchedule())
    first, second = trace.roles
    busy = list(second.chunks) if chunks else intervals(second)
    assert overlap_fraction(intervals(first), busy) == 0
    waits = statistics.median(latencies(first)[5:])
    assert waits < (600 if chunks else 1400)
    assert trace.clock_error_ns is not None


def test_a_closed_loop_ends_with_its_time_and_an_endless_one_with_the_others(gpu: CudaGpu) -> None:
    """`until_ns` ends within a few steps of the time, and so does the background that has no end of its own."""
    roles = (role(Kind.LATENCY, spin(100)), role(Kind.BACKGROUND, spin(150)))
    trace = ran(gpu, CoSetup(mechanism=Mechanism.STREAMS, roles=roles), RoleSchedule(until_ns=50 * MS), RoleSchedule())
    first, second = trace.roles
    assert 45 * MS < first.end_ns[-1] - trace.origin_ns < 60 * MS
    assert abs(second.end_ns[-1] - first.end_ns[-1]) < 5 * MS
    assert second.due_ns[1:] == second.end_ns[:-1]


def test_the_limit_cuts_a_queue_that_would_grow_for_ever(gpu: CudaGpu) -> None:
    """Twice the load of the device: what was done by the limit comes back, and the rest is left out."""
    due = Arrivals(Process.FIXED, 2000.0, 1, "latency").first(10_000)
    setup = CoSetup(mechanism=Mechanism.ALONE, roles=(role(Kind.LATENCY, spin(1000)),))
    trace = ran(gpu, setup, RoleSchedule(due_ns=due), limit_s=1.0)
    assert 500 < len(trace.roles[0].end_ns) < 2000
    assert trace.notes


def test_a_copy_engine_load_takes_no_sm(gpu: CudaGpu) -> None:
    """Transfers of 64 MiB from pinned memory run beside a spin and leave its time alone."""
    copy = Workload(name="copy", kind=StepKind.KERNELS, groups=(Group((Call("memcpy_h2d", (("bytes", 64 * 2**20),)),)),))
    roles = (role(Kind.LATENCY, spin(100), slot=0), role(Kind.BACKGROUND, copy, slot=1))
    setup = CoSetup(mechanism=Mechanism.GREEN, sizes=(16, gpu.device.sm_count - 16), roles=roles)
    due = Arrivals(Process.FIXED, 2000.0, 1, "latency").first(300)
    trace = ran(gpu, setup, RoleSchedule(due_ns=due), RoleSchedule())
    assert statistics.median(latencies(trace.roles[0])[20:]) < 112
    assert len(trace.roles[1].end_ns) > 20


def test_a_green_context_of_torch_is_the_same_partition(gpu: CudaGpu) -> None:
    """torch's GreenContext of 16 SMs has the SMs that our slot has, beside a background of ours that shares none of them."""
    pytest.importorskip("torch")
    seen = []
    for mechanism in (Mechanism.GREEN, Mechanism.TORCH_GREEN):
        roles = (role(Kind.LATENCY, spin(100), slot=0), role(Kind.BACKGROUND, spin(100), slot=1))
        setup = CoSetup(mechanism=mechanism, sizes=(16, gpu.device.sm_count - 16), roles=roles)
        trace = ran(gpu, setup, RoleSchedule(steps=100), RoleSchedule())
        seen.append((trace.roles[0].smids, set(trace.roles[0].smids) & set(trace.roles[1].smids)))
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 16
    assert not seen[0][1]


def test_what_the_device_cannot_do_is_refused_in_words(gpu: CudaGpu) -> None:
    """Sizes that no split gives, scopes of later drivers, and a wrong kernel are outcomes of the point."""
    with pytest.raises(UnsupportedError, match="SMs"):
        gpu.corun(CoSetup(mechanism=Mechanism.GREEN, sizes=(130, 130), roles=(role(Kind.LATENCY, spin(10), slot=0),)), KERNELS)
    if gpu.device.workqueue_obstacle:
        setup = CoSetup(
            mechanism=Mechanism.GREEN_BALANCED,
            sizes=(16, 32),
            workqueue=Scope.GREEN_CTX_BALANCED,
            roles=(role(Kind.LATENCY, spin(10), slot=0),),
        )
        with pytest.raises(UnsupportedError, match=r"13\.1"):
            gpu.corun(setup, KERNELS)
    corun = gpu.corun(CoSetup(mechanism=Mechanism.ALONE, roles=(role(Kind.LATENCY, spin(10)),)), KERNELS)
    with pytest.raises(FailedError, match="too many"):
        corun.run(CoSchedule(roles=(RoleSchedule(due_ns=(0,) * 100_000),)))
    corun.close()


@pytest.mark.parametrize("mechanism", ["green", "streams"])
def test_overlap_agrees_with_cupti_on_the_same_run(mechanism: str) -> None:
    """The overlap of decode and prefill by device stamps is within 2 % of that of the same steps by CUPTI.

    In disjoint contexts the kernels alone say the same; where a step waits for SMs between its kernels they cover less.
    """
    pytest.importorskip("cupti")
    script = Path(__file__).with_name("corun_watched.py")
    done = subprocess.run(
        [sys.executable, str(script), mechanism, "32", "60"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert abs(seen["stamps"] - seen["steps_cupti"]) <= 0.02 * seen["steps_cupti"], seen
    assert seen["kernels_cupti"] <= seen["stamps"] * 1.001, seen
    if mechanism == "green":
        assert abs(seen["stamps"] - seen["kernels_cupti"]) <= 0.02 * seen["kernels_cupti"], seen
        assert [True, 32] in seen["contexts"], seen
