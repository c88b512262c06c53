"""Co-runs on the modelled device: known schedules give known stamps, partitions hold, mechanisms rank, faults strike on time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.arrivals import Arrivals, Process
from greenbench.catalog import library
from greenbench.costeps import CoSchedule, CoSetup, RoleSchedule, RoleSpec, RoleTrace, Trace
from greenbench.errors import FailedError, StickyError, UnsupportedError
from greenbench.gpu import Corun, Gpu, open_gpu
from greenbench.models import decode_step, load_model, prefill_chunks, prefill_request
from greenbench.queueing import Kind, Mechanism
from greenbench.schema import Placement, Scope
from greenbench.stats import percentile
from greenbench.tails import StepTimes
from greenbench.workload import Call, Group, StepKind, Workload, settled

ROOT = Path(__file__).parents[1]
KERNELS = library()
LLAMA = load_model("llama3-8b")
BUSY = RoleSchedule()
SPIN_NS = 100_000


def workload(*calls: Call, name: str = "step") -> Workload:
    """A step of these calls, with every parameter that they leave out."""
    kernels = [call for call in calls if call.kernel in KERNELS]
    found = settled(Workload(name=name, kind=StepKind.KERNELS, groups=(Group(tuple(kernels)),)), KERNELS)
    complete = {call.kernel: call for call in found.calls()}
    return replace(found, groups=(Group(tuple(complete.get(call.kernel, call) for call in calls)),))


SPIN = workload(Call("spin", (("ns", SPIN_NS),)), name="spin")
TRIAD = workload(Call("triad", (("n", 2**24),)), name="triad")
COPY = workload(Call("memcpy_h2d", (("bytes", 2**26),)), name="copy")
DECODE = settled(decode_step(LLAMA, batch=8, context=2048, layers=1), KERNELS, "sm_90a")
PREFILL = settled(prefill_request(LLAMA, prompt=2048, layers=1), KERNELS, "sm_90a")
CHUNKS = tuple(settled(each, KERNELS, "sm_90a") for each in prefill_chunks(LLAMA, prompt=2048, chunk=768, layers=1))


def role(name: str, step: Workload = SPIN, *, kind: Kind = Kind.BACKGROUND, slot: int | None = None) -> RoleSpec:
    """A role of this step."""
    return RoleSpec(name=name, kind=kind, workload=step, slot=slot)


def pair(mechanism: str, *, latency: Workload = DECODE, background: Workload = PREFILL) -> CoSetup:
    """A latency role on 20 SMs beside a background on the rest, where the mechanism has partitions."""
    named = Mechanism(mechanism)
    confined = {"green": (0, 1), "green_priority": (0, 1), "green_background": (None, 1), "green_primary": (0, None)}
    slots = confined.get(mechanism, (None, None))
    first = replace(role("latency", latency, kind=Kind.LATENCY, slot=slots[0]), urgent="priority" in mechanism)
    return CoSetup(mechanism=named, roles=(first, role("background", background, slot=slots[1])), sizes=(20, 112))


def model(folder: Path, text: str = "") -> Gpu:
    """An H200 without jitter, with these faults."""
    path = folder / "model.toml"
    path.write_text(f'base = "h200"\njitter_pct = 0\n{text}')
    return open_gpu(f"model:{path}")


@pytest.fixture(name="still")
def still_device(tmp_path: Path) -> Gpu:
    """An H200 without jitter."""
    return model(tmp_path)


def alone(gpu: Gpu, step: Workload = SPIN) -> Corun:
    """A role by itself on the whole device."""
    return gpu.corun(CoSetup(mechanism=Mechanism.ALONE, roles=(role("only", step),)), KERNELS)


def times(trace: Trace, index: int = 0) -> list[tuple[int, int, int]]:
    """(due, start, end) of the steps of a role, in ns from the origin."""
    found = trace.roles[index]
    return [
        (due - trace.origin_ns, start - trace.origin_ns, end - trace.origin_ns)
        for due, start, end in zip(found.due_ns, found.start_ns, found.end_ns, strict=True)
    ]


def latencies(found: RoleTrace) -> list[float]:
    """Latency of every step from its due time, in us."""
    return StepTimes(found.due_ns, found.start_ns, found.end_ns).latencies_us


def intervals(found: RoleTrace) -> list[tuple[int, int]]:
    """[start, end) of every step."""
    return list(zip(found.start_ns, found.end_ns, strict=True))


# ------------------------------------------------------------------------------------------------------------- schedules


def test_known_arrivals_give_known_stamps(still: Gpu) -> None:
    """Steps of exactly 100 us, due at 0, 30 and 500 us: the second waits 70 us for the first, the third for nobody."""
    trace = alone(still).run(CoSchedule(roles=(RoleSchedule(due_ns=(0, 30_000, 500_000)),)))
    assert times(trace) == [(0, 0, 100_000), (30_000, 100_000, 200_000), (500_000, 500_000, 600_000)]
    assert trace.roles[0].late_ns == (0, 0, 0)
    assert (trace.seconds, trace.notes, trace.clock_error_ns) == (600e-6, (), None)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=12).map(sorted))
def test_any_arrivals_queue_behind_each_other(due: Sequence[int]) -> None:
    """A step starts when it is due or when the one before has ended, whichever is later, to the nanosecond."""
    trace = alone(open_gpu("model:h200")).run(CoSchedule(roles=(RoleSchedule(due_ns=tuple(due)),)))
    free = 0
    for (intended, start, end), asked in zip(times(trace), due, strict=True):
        assert (intended, start) == (asked, max(asked, free))
        assert end - start == pytest.approx(SPIN_NS, rel=0.01)
        free = end


def test_stamps_are_on_the_clock_of_the_device(still: Gpu) -> None:
    """Without an origin a run begins now; with one in the future it waits for it; the clock has then passed the last stamp."""
    runs, due = alone(still), RoleSchedule(due_ns=(0, 1000))
    before = still.now_ns()
    first = runs.run(CoSchedule(roles=(due,)))
    assert first.origin_ns == before
    assert still.now_ns() == first.roles[0].end_ns[-1]
    second = runs.run(CoSchedule(roles=(due,), origin_ns=still.now_ns() + 50_000_000))
    assert second.origin_ns == first.roles[0].end_ns[-1] + 50_000_000 == second.roles[0].start_ns[0]
    assert still.now_ns() == second.roles[0].end_ns[-1]


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        (RoleSchedule(steps=4), 4),
        (RoleSchedule(until_ns=250_000), 3),
        (RoleSchedule(until_ns=300_000), 4),
        (RoleSchedule(steps=2, until_ns=900_000), 2),
        (RoleSchedule(steps=9, until_ns=50_000), 1),
    ],
)
def test_a_closed_loop_ends_where_it_should(still: Gpu, asked: RoleSchedule, steps: int) -> None:
    """After its steps, or with the first end past `until_ns`; a step is due when the one before has ended."""
    trace = alone(still).run(CoSchedule(roles=(asked,)))
    assert times(trace) == [(i * SPIN_NS, i * SPIN_NS, (i + 1) * SPIN_NS) for i in range(steps)]
    assert trace.notes == ()


def test_an_endless_role_ends_with_the_others(still: Gpu) -> None:
    """The busy background is released until the last step of the latency role has ended, and no longer."""
    setup = pair("green", latency=SPIN, background=SPIN)
    trace = still.corun(setup, KERNELS).run(CoSchedule(roles=(RoleSchedule(due_ns=(0, 450_000)), BUSY)))
    assert times(trace)[-1] == (450_000, 450_000, 550_000)
    assert [start for _, start, _ in times(trace, 1)] == [i * SPIN_NS for i in range(6)]


def test_tenants_share_by_turns_until_the_time_is_up(still: Gpu) -> None:
    """Three closed loops under `timeslice` for 30 ms: nothing overlaps, turns are 2 ms and 137 us apart, all end past 30 ms."""
    setup = CoSetup(mechanism=Mechanism.TIMESLICE, roles=tuple(role(f"tenant{i}") for i in range(3)))
    trace = still.corun(setup, KERNELS).run(CoSchedule(roles=(RoleSchedule(until_ns=30_000_000, on_host=True),) * 3))
    begun = [times(trace, i)[0][1] for i in range(3)]
    assert begun == [0, 2_137_000, 4_274_000]
    assert all(times(trace, i)[-1][2] > 30_000_000 >= times(trace, i)[-2][2] for i in range(3))
    assert trace.clock_error_ns == 0.0


@pytest.mark.parametrize(("processes", "measured"), [(1, 113), (2, 476), (4, 953), (8, 1906)])
def test_processes_that_wait_for_each_step_take_turns_as_measured(still: Gpu, processes: int, measured: float) -> None:
    """A host that enqueues one step at a time: latencies from the end of the step before, as on an H200 with driver 580."""
    spin = workload(Call("spin", (("ns", 101_000),)))
    setup = CoSetup(mechanism=Mechanism.TIMESLICE, roles=tuple(role(f"tenant{i}", spin) for i in range(processes)))
    loop = RoleSchedule(steps=40, on_host=True, ahead=1)
    trace = still.corun(setup, KERNELS).run(CoSchedule(roles=(loop,) * processes))
    for found in trace.roles:
        assert found.due_ns[1:] == found.end_ns[:-1]
        assert percentile(latencies(found), 50, 6) == pytest.approx(measured, rel=0.002)


def test_a_run_that_does_not_end_is_cut_at_its_limit(still: Gpu) -> None:
    """At five times what the device can do, steps that have not ended after 10 ms are left out, and a note says so."""
    due = tuple(range(0, 20_000_000, 20_000))
    trace = alone(still).run(CoSchedule(roles=(RoleSchedule(due_ns=due),), limit_s=0.01))
    assert len(trace.roles[0].end_ns) == 100
    assert trace.notes == ("stopped at its limit of 0.01 s",)


def test_the_same_seed_gives_the_same_trace_and_another_run_another() -> None:
    """A new process meets the same jitter; a second run of one point does not."""
    asked = CoSchedule(roles=(RoleSchedule(due_ns=tuple(range(0, 20_000_000, 2_000_000))), BUSY))
    first, again = (open_gpu("model:h200").corun(pair("priority"), KERNELS) for _ in range(2))
    found = first.run(asked)
    assert found.roles == again.run(asked).roles
    assert [b - a for _, a, b in times(found)] != [b - a for _, a, b in times(first.run(asked))]


# ------------------------------------------------------------------------------------------------------------ mechanisms


def test_green_partitions_are_disjoint_and_are_the_grants() -> None:
    """20 and 112 SMs of one split: the census of each role is its grant, and they share no SM."""
    made = open_gpu("model:h200").corun(pair("green"), KERNELS)
    trace = made.run(CoSchedule(roles=(RoleSchedule(steps=3), BUSY)))
    seen = [set(found.smids) for found in trace.roles]
    assert [len(smids) for smids in seen] == [20, 112]
    assert not seen[0] & seen[1]
    for found, prepared in zip(seen, made.prepared, strict=True):
        assert found == set(prepared.grant.smids)
        assert (prepared.grant.sms, prepared.grant.placement) == (len(found), Placement.CONFINED)
    assert [prepared.grant.remainder for prepared in made.prepared] == [True, False]


@pytest.mark.parametrize(("mechanism", "sms"), [("green_background", [132, 112]), ("green_primary", [20, 132])])
def test_the_side_without_a_partition_has_every_sm(mechanism: str, sms: list[int]) -> None:
    """One role is confined, the other one sees the whole device."""
    made = open_gpu("model:h200").corun(pair(mechanism), KERNELS)
    assert [prepared.grant.sms for prepared in made.prepared] == sms
    trace = made.run(CoSchedule(roles=(RoleSchedule(steps=2), BUSY)))
    assert [len(found.smids) for found in trace.roles] == sms


def test_a_share_of_mps_is_seen_as_so_many_sms_and_proves_nothing() -> None:
    """Two clients of 20 and 112 SMs: kernels are made for these counts, the placement is unproven."""
    made = open_gpu("model:h200").corun(pair("mps_limited"), KERNELS)
    green = open_gpu("model:h200").corun(pair("green"), KERNELS)
    trace = made.run(CoSchedule(roles=(RoleSchedule(steps=2), BUSY)))
    for found, prepared, confined, sms in zip(trace.roles, made.prepared, green.prepared, (20, 112), strict=True):
        assert (prepared.grant.sms, len(found.smids), prepared.grant.placement) == (sms, sms, Placement.UNPROVEN)
        assert prepared.step_us == pytest.approx(confined.step_us)
        assert prepared.create_us is None
        assert (confined.create_us or 0) > 0


def tail_of(mechanism: str) -> float:
    """p95 of decode steps at a fifth of what they do alone, beside a busy prefill."""
    made = open_gpu("model:h200").corun(pair(mechanism), KERNELS)
    due = Arrivals(Process.POISSON, 0.2e6 / made.prepared[0].step_us, 1, "latency").first(100)
    trace = made.run(CoSchedule(roles=(RoleSchedule(due_ns=due), BUSY)))
    found = percentile(latencies(trace.roles[0]), 95, 100)
    assert found is not None
    return found


def test_mechanisms_rank_as_the_queueing_model_has_them() -> None:
    """A step of eight kernels waits for a whole prefill kernel at each under `streams`, never in a partition of its own."""
    tails = {mechanism: tail_of(mechanism) for mechanism in ("streams", "mps", "priority", "green", "green_priority")}
    assert tails["streams"] == tails["mps"]
    assert tails["green"] == tails["green_priority"]
    assert tails["green"] < tails["priority"] < tails["streams"]


def test_alone_is_as_long_as_prepared_says(still: Gpu) -> None:
    """Without a neighbour every step takes `step_us`, on the whole device and on either side of a split."""
    for slot in (None, 0, 1):
        setup = CoSetup(mechanism=Mechanism.ALONE, roles=(role("only", DECODE, slot=slot),), sizes=(20, 112))
        made = still.corun(setup, KERNELS)
        trace = made.run(CoSchedule(roles=(RoleSchedule(steps=5),)))
        for latency in latencies(trace.roles[0]):
            assert latency == pytest.approx(made.prepared[0].step_us, rel=1e-3)
        assert len(trace.roles[0].smids) == made.prepared[0].grant.sms


def test_serial_overlaps_nothing_and_chunked_lets_steps_in_between(still: Gpu) -> None:
    """Chunks of 768, 768 and 512 tokens: three stamps a request, in order, and no decode step runs inside one."""
    asked = CoSchedule(roles=(RoleSchedule(due_ns=tuple(range(0, 60_000_000, 3_000_000))), BUSY))
    serial = still.corun(pair("serial"), KERNELS).run(asked)
    chunked_pair = pair("chunked")
    both = (chunked_pair.roles[0], replace(chunked_pair.roles[1], chunks=CHUNKS))
    chunked = still.corun(replace(chunked_pair, roles=both), KERNELS).run(asked)
    requests = intervals(chunked.roles[1])
    chunks = chunked.roles[1].chunks
    assert len(chunks) == 3 * len(requests)
    assert [(chunks[i][0], chunks[i + 2][1]) for i in range(0, len(chunks), 3)] == requests
    for trace, exclusive in ((serial, intervals(serial.roles[1])), (chunked, list(chunks))):
        spans = sorted([*intervals(trace.roles[0]), *exclusive])
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
    whole = (both[0], replace(both[1], chunks=(PREFILL,)))
    assert still.corun(replace(chunked_pair, roles=whole), KERNELS).run(asked).roles[1].chunks == ()
    assert serial.roles[1].chunks == ()
    assert max(latencies(chunked.roles[0])) < max(latencies(serial.roles[0]))


def test_a_chunk_that_is_longer_than_the_others_is_one_chunk(still: Gpu) -> None:
    """At full depth the last chunk has two kernels more, the head: a due step waits for those too."""
    model_of_two = replace(LLAMA, layers=2)
    whole = settled(prefill_request(model_of_two, prompt=1024, layers=2), KERNELS, "sm_90a")
    pieces = tuple(settled(each, KERNELS, "sm_90a") for each in prefill_chunks(model_of_two, prompt=1024, chunk=512, layers=2))
    assert [each.launches for each in pieces] == [16, 18]
    roles = (role("latency", SPIN, kind=Kind.LATENCY), replace(role("background", whole), chunks=pieces))
    made = still.corun(CoSetup(mechanism=Mechanism.CHUNKED, roles=roles), KERNELS)
    trace = made.run(CoSchedule(roles=(RoleSchedule(steps=40), RoleSchedule(steps=10))))
    chunks = trace.roles[1].chunks
    assert len(chunks) == 20
    for start, end in intervals(trace.roles[0]):
        assert not [chunk for chunk in chunks if chunk[0] < end and start < chunk[1]]


def test_clients_of_mps_within_their_shares_do_not_wait_for_each_other(still: Gpu) -> None:
    """Shares that fit side by side: a short kernel starts at once beside one that keeps all SMs of its share for long."""
    setup = pair("mps_limited", latency=SPIN, background=workload(Call("peak_tensor")))
    trace = still.corun(setup, KERNELS).run(CoSchedule(roles=(RoleSchedule(due_ns=(7_000, 333_000)), BUSY)))
    assert [start - due for due, start, _ in times(trace)] == [0, 0]


@pytest.mark.parametrize(("kernel", "waits_for_all"), [("transpose", False), ("peak_tensor", True)])
def test_a_grid_that_follows_the_sms_keeps_them_to_its_end(still: Gpu, kernel: str, waits_for_all: bool) -> None:
    """Under `priority` a short kernel waits for a wave of a grid sized by the work, and for all of one sized by the SMs."""
    setup = pair("priority", latency=SPIN, background=workload(Call(kernel)))
    made = still.corun(setup, KERNELS)
    trace = made.run(CoSchedule(roles=(RoleSchedule(due_ns=(1_000,)), BUSY)))
    whole = made.prepared[1].step_us * 1e3
    waited = times(trace)[0][1] - 1_000
    assert waited > 0.9 * whole if waits_for_all else waited < 0.1 * whole


# ------------------------------------------------------------------------------------------------------------- workloads


def test_a_step_that_fits_the_l2_leaves_hbm_to_others(still: Gpu) -> None:
    """Reading 24 MB over and over takes as long beside a load on HBM as alone; reading 1 GiB does not."""
    slow = {}
    for name in ("l2_read", "read"):
        setup = pair("green", latency=workload(Call(name)), background=workload(Call("triad")))
        made = still.corun(setup, KERNELS)
        trace = made.run(CoSchedule(roles=(RoleSchedule(steps=3), BUSY)))
        slow[name] = max(latencies(trace.roles[0])) / made.prepared[0].step_us
    assert slow["l2_read"] == pytest.approx(1.0, rel=1e-3)
    assert slow["read"] > 1.1


@pytest.mark.parametrize(("sizes", "slowed"), [((2**22,), False), ((2**22, 2**22 - 8192), True)])
def test_what_a_step_touches_decides_whether_it_stays_in_the_l2(still: Gpu, sizes: tuple[int, ...], slowed: bool) -> None:
    """50 MB fit the 60 MiB of the L2, twice as much does not, though each kernel's own buffers do: then HBM is shared."""
    step = settled(
        Workload(name="triads", kind=StepKind.KERNELS, groups=(Group(tuple(Call("triad", (("n", size),)) for size in sizes)),)),
        KERNELS,
    )
    made = still.corun(pair("green", latency=step, background=workload(Call("triad"))), KERNELS)
    trace = made.run(CoSchedule(roles=(RoleSchedule(steps=3), BUSY)))
    assert (max(latencies(trace.roles[0])) > 1.05 * made.prepared[0].step_us) is slowed


def test_a_transfer_takes_its_bytes_over_the_link_and_says_what_it_is(still: Gpu) -> None:
    """64 MiB at 55 GB/s are 1220 us on any partition; the note says that it holds an SM here."""
    setup = CoSetup(mechanism=Mechanism.GREEN, roles=(role("a", slot=0), role("copy", COPY, slot=1)), sizes=(16, 116))
    made = still.corun(setup, KERNELS)
    trace = made.run(CoSchedule(roles=(RoleSchedule(steps=20), BUSY)))
    assert made.prepared[1].step_us == pytest.approx(2**26 / 55e3)
    assert (made.prepared[1].source_digest, made.prepared[1].bytes) == ("", 2**26)
    assert latencies(trace.roles[1])[0] == pytest.approx(made.prepared[1].step_us, abs=1e-3)
    assert trace.notes == ("memcpy_h2d is modelled as a kernel that holds one SM: the model has no copy engines",)


def test_prepared_says_what_a_step_is(still: Gpu) -> None:
    """Bytes of a step are those of its kernels, the variants stand in config, and the sources in a digest."""
    first, twice = (alone(still, workload(*[Call("triad", (("n", 2**24),))] * n)).prepared[0] for n in (1, 2))
    assert (first.bytes, twice.bytes) == (12 * 2**24, 24 * 2**24)
    assert twice.step_us > 2 * first.step_us > 0
    assert first.source_digest == twice.source_digest != ""
    prefill = alone(still, PREFILL).prepared[0]
    assert prefill.config.startswith("gemm_bf16: sm_90a-")
    assert (prefill.flops or 0) > 2 * 2048 * LLAMA.layer_weights


def test_what_the_last_kernel_reports_is_kept_for_each_step(still: Gpu) -> None:
    """A chase over 8 MiB reports its cycles a hop, about 280 on this model; a step without a report has none."""
    trace = alone(still, workload(Call("chase", (("bytes", 2**23),)))).run(CoSchedule(roles=(RoleSchedule(steps=3),)))
    assert trace.roles[0].reported == (pytest.approx(278, rel=0.02),) * 3
    assert alone(still).run(CoSchedule(roles=(RoleSchedule(steps=1),))).roles[0].reported == ()


@pytest.mark.parametrize(
    ("setup", "error", "words"),
    [
        (replace(pair("green"), sizes=(72, 72)), UnsupportedError, "72 [+] 72 SMs are more than the 132"),
        (replace(pair("green"), sizes=(64, 66)), UnsupportedError, "15 units of 8 SMs"),
        (replace(pair("green"), workqueue=Scope.GREEN_CTX_BALANCED), UnsupportedError, "needs driver 13.1"),
        (pair("streams", latency=workload(Call("event_record"))), UnsupportedError, "event_record is timed by the host"),
        (pair("streams", latency=workload(Call("memcpy_h2d"))), UnsupportedError, "None bytes moves nothing"),
        (pair("streams", latency=workload(Call("nowhere"))), FailedError, "no kernel 'nowhere'"),
        (pair("streams", latency=workload(Call("triad", (("n", 2**34),)))), FailedError, "out of memory"),
    ],
)
def test_what_cannot_be_prepared_is_the_points_outcome(setup: CoSetup, error: type[Exception], words: str) -> None:
    """A split that the driver refuses, a scope it lacks, a call that is none: each with its reason."""
    with pytest.raises(error, match=words):
        open_gpu("model:h200").corun(setup, KERNELS)


def test_roles_that_fit_only_one_by_one_are_out_of_memory() -> None:
    """Two roles of 96 GiB each on a device of 141 GB: each fits, both do not."""
    big = workload(Call("triad", (("n", 2**33),)))
    open_gpu("model:h200").corun(CoSetup(mechanism=Mechanism.ALONE, roles=(role("only", big),)), KERNELS)
    with pytest.raises(FailedError, match="out of memory: the roles need 192.00 GiB"):
        open_gpu("model:h200").corun(pair("streams", latency=big, background=big), KERNELS)


# ---------------------------------------------------------------------------------------------------------------- faults

ONCE = CoSchedule(roles=(RoleSchedule(steps=2),), limit_s=0.1)


def fault(kind: str, *more: str, kernel: str = "triad") -> str:
    """A fault of a model file."""
    return "\n".join(["[[fault]]", f'kind = "{kind}"', f'kernel = "{kernel}"', *more])


def outcomes(made: Corun, count: int) -> Iterable[str]:
    """What came of so many runs: nothing, or the error's text."""
    for _ in range(count):
        try:
            made.run(ONCE)
        except FailedError as error:
            yield str(error)
        else:
            yield ""


def test_a_fault_strikes_the_co_run_that_it_names(tmp_path: Path) -> None:
    """Out of memory from the second co-run of triad on, once: the first and the third are well."""
    made = alone(model(tmp_path, fault("out_of_memory", "at_block = 2", "times = 1")), TRIAD)
    assert list(outcomes(made, 3)) == ["", "out of memory: triad at 132 SMs, block 2 (modelled fault)", ""]


def test_co_runs_are_counted_by_kernel_and_sms(tmp_path: Path) -> None:
    """A fault on 24 SMs spares the other role and the full device, whose runs do not count there."""
    gpu = model(tmp_path, fault("out_of_memory", "at_block = 2", "sms = 24"))
    full = alone(gpu, TRIAD)
    setup = CoSetup(mechanism=Mechanism.GREEN, roles=(role("a", TRIAD, slot=0), role("b", TRIAD, slot=1)), sizes=(24, 64))
    both = CoSchedule(roles=(RoleSchedule(steps=1),) * 2)
    assert list(outcomes(full, 3)) == ["", "", ""]
    made = gpu.corun(setup, KERNELS)
    assert len(made.run(both).roles) == 2
    with pytest.raises(FailedError, match="triad at 24 SMs, block 2"):
        made.run(both)


@pytest.mark.parametrize(("kind", "words"), [("out_of_memory", "out of memory"), ("wrong_result", "incorrect: error 1")])
def test_block_one_includes_preparing(tmp_path: Path, kind: str, words: str) -> None:
    """A fault of the first block strikes while the point is prepared; the next try, and another kernel, are well."""
    gpu = model(tmp_path, fault(kind, "times = 1"))
    assert alone(gpu, SPIN).prepared
    with pytest.raises(FailedError, match=words):
        alone(gpu, TRIAD)
    assert list(outcomes(alone(gpu, TRIAD), 1)) == [""]


def test_a_step_that_hangs_takes_the_limit_and_the_process(tmp_path: Path) -> None:
    """The second co-run never ends: it fails when its limit has passed, and nothing can be done in the process any more."""
    gpu = model(tmp_path, fault("hang", "at_block = 2"))
    made = alone(gpu, TRIAD)
    assert next(iter(outcomes(made, 1))) == ""
    with pytest.raises(StickyError, match=r"triad\[n=16777216.*\] has not ended after 0.1 s"):
        made.run(ONCE)
    with pytest.raises(StickyError, match="has not ended"):
        alone(gpu, SPIN)


def test_a_lost_context_is_lost_for_every_point(tmp_path: Path) -> None:
    """An illegal address in the first co-run after preparing without verification: this run and all later ones."""
    gpu = model(tmp_path, fault("sticky"))
    setup = CoSetup(mechanism=Mechanism.ALONE, roles=(role("only", TRIAD),), verify=False)
    made = gpu.corun(setup, KERNELS)
    for _ in range(2):
        with pytest.raises(StickyError, match="illegal memory access"):
            made.run(ONCE)


def test_a_throttled_co_run_is_slower_and_says_why(tmp_path: Path) -> None:
    """The clock falls to 60 % in the second co-run: evidence, clock and times show it there and not in the first."""
    compute = workload(Call("peak_tensor"))
    gpu = model(tmp_path, fault("throttle", "at_block = 2", "times = 1", kernel="peak_tensor"))
    first, second, third = (alone(gpu, compute).run(ONCE) for _ in range(3))
    assert [found.before.reasons for found in (first, second, third)] == [0, 0x40, 0]
    assert (second.after.thermal_ns or 0) - (second.before.thermal_ns or 0) == times(second)[-1][2]
    assert first.after.thermal_ns == first.before.thermal_ns
    assert second.roles[0].sm_clock_mhz == pytest.approx(0.6 * (first.roles[0].sm_clock_mhz or 0))
    assert times(second)[0][2] == pytest.approx(times(first)[0][2] / 0.6, rel=1e-6)
    assert times(third)[0][2] == times(first)[0][2]


def test_roles_share_the_clock_of_the_one_that_is_throttled(tmp_path: Path) -> None:
    """A fault of one kernel of one role slows both, whichever comes first."""
    gpu = model(tmp_path, fault("throttle"))
    for first, second in ((TRIAD, SPIN), (SPIN, TRIAD)):
        made = gpu.corun(pair("streams", latency=first, background=second), KERNELS)
        trace = made.run(CoSchedule(roles=(RoleSchedule(steps=1), RoleSchedule(steps=1))))
        assert [found.sm_clock_mhz for found in trace.roles] == pytest.approx([0.6 * 1980] * 2)
        assert trace.after.reasons == 0x40


def test_a_leak_is_seen_by_the_census(tmp_path: Path) -> None:
    """From the second co-run on, CTAs of triad run on one SM more than was granted."""
    made = model(tmp_path, fault("leak", "at_block = 2")).corun(
        CoSetup(mechanism=Mechanism.GREEN, roles=(role("a", TRIAD, slot=0), role("b", slot=1)), sizes=(16, 116)), KERNELS
    )
    both = CoSchedule(roles=(RoleSchedule(steps=1),) * 2)
    assert [len(found.smids) for found in made.run(both).roles] == [16, 116]
    leaked = made.run(both).roles
    assert [len(found.smids) for found in leaked] == [17, 116]
    assert set(made.prepared[0].grant.smids) < set(leaked[0].smids)


CHILD = """
import sys
from greenbench.catalog import library
from greenbench.costeps import CoSchedule, CoSetup, RoleSchedule, RoleSpec
from greenbench.gpu import open_gpu
from greenbench.queueing import Kind, Mechanism
from greenbench.workload import Call, Group, StepKind, Workload, settled
kernels = library()
step = settled(Workload(name="triad", kind=StepKind.KERNELS, groups=(Group((Call("triad"),)),)), kernels)
spec = RoleSpec(name="only", kind=Kind.LATENCY, workload=step)
made = open_gpu("model:" + sys.argv[1]).corun(CoSetup(mechanism=Mechanism.STREAMS, roles=(spec,)), kernels)
for run in range(3):
    made.run(CoSchedule(roles=(RoleSchedule(steps=1),)))
    print(run, flush=True)
"""


def test_a_crash_takes_the_process_at_the_co_run_that_it_names(tmp_path: Path) -> None:
    """The process dies of SIGSEGV in the second co-run, once: the state file lets the next process get past it."""
    text = 'base = "h200"\nstate = "crash.state"\n' + fault("crash", "at_block = 2", "times = 1")
    (tmp_path / "crash.toml").write_text(text)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "crash.toml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first, second = (
        subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=30, check=False) for _ in range(2)
    )
    assert (first.stdout, first.returncode) == ("0\n", -signal.SIGSEGV)
    assert (second.stdout, second.returncode) == ("0\n1\n2\n", 0)
