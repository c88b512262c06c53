"""The model of co-location on cases worked out by hand, and on what was measured on an H200."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from greenbench import bounds, facts
from greenbench.errors import UsageError
from greenbench.queueing import (
    SIZED,
    Closed,
    Device,
    Kind,
    Mechanism,
    Outcome,
    Piece,
    Role,
    Step,
    Table,
    corun,
    predicted,
)
from greenbench.queueing.feed import Feed
from greenbench.queueing.layout import Place
from greenbench.queueing.shared import Shared
from greenbench.stats import percentile
from greenbench.tails import StepTimes, saturated

H200 = Device(132)
BUSY = Closed()


def takes(us: float, **more: float) -> Piece:
    """A kernel that takes as long on any number of SMs."""
    return Piece(lambda _: us, **more)  # type: ignore[arg-type]


def role(
    name: str, *step: Piece, at: tuple[float, ...] | Closed, kind: Kind = Kind.LATENCY, chunk: int | tuple[int, ...] | None = None
) -> Role:
    """A role of these kernels."""
    return Role(name, kind, step, at, chunk)


def background(*step: Piece, at: tuple[float, ...] | Closed = BUSY, chunk: int | tuple[int, ...] | None = None) -> Role:
    """A role that is in the way of others."""
    return role("background", *step, at=at, kind=Kind.BACKGROUND, chunk=chunk)


def stamps_us(outcome: Outcome, name: str) -> list[tuple[float, float]]:
    """(start, end) of each step in us."""
    return [(step.start / 1000, step.end / 1000) for step in outcome.steps[name]]


def poisson(mean_us: float, count: int, seed: int) -> tuple[float, ...]:
    """Arrivals with exponential gaps."""
    source, at, found = random.Random(seed), 0.0, []
    for _ in range(count):
        at += source.expovariate(1 / mean_us)
        found.append(at)
    return tuple(found)


def test_steps_queue_behind_each_other_and_latency_counts_from_the_intended_start() -> None:
    """Service 10 us, arrivals at 0, 0, 5 and 40: the second and third wait 10 and 15 us, the last one not at all."""
    outcome = corun(H200, [role("probe", takes(10), at=(0, 0, 5, 40))], Mechanism.ALONE)
    assert outcome.steps["probe"] == (
        Step(0, 0, 10_000),
        Step(0, 10_000, 20_000),
        Step(5_000, 20_000, 30_000),
        Step(40_000, 40_000, 50_000),
    )
    assert StepTimes.of(outcome.steps["probe"]).latencies_us == [10, 20, 25, 10]


def test_bursts_give_known_percentiles() -> None:
    """100 steps at once, 40 times: latencies are 1 to 100 times the service time, so p50, p95 and p99 are 50, 95 and 99 of it."""
    arrivals = tuple(1000.0 * burst for burst in range(40) for _ in range(100))
    found = StepTimes.of(corun(H200, [role("probe", takes(7), at=arrivals)], Mechanism.ALONE).steps["probe"]).latencies_us
    assert [percentile(found, q, 3000) for q in (50, 95, 99)] == [350, 665, 693]


def test_a_queue_with_random_arrivals_waits_as_the_formula_says() -> None:
    """M/D/1 at half load waits rho s / (2 (1 - rho)) = s / 2 on average (Pollaczek and Khinchine)."""
    steps = corun(H200, [role("probe", takes(10), at=poisson(20, 20_000, 1))], Mechanism.ALONE).steps["probe"]
    assert sum(step.start - step.intended for step in steps) / len(steps) == pytest.approx(5_000, rel=0.05)


def test_serial_is_one_queue_for_both_roles() -> None:
    """Background steps of 100 us at 0 and 10, a probe of 5 us due at 20: it runs third, and nothing overlaps."""
    roles = [role("probe", takes(5), at=(20,)), background(takes(40), takes(60), at=(0, 10))]
    outcome = corun(H200, roles, Mechanism.SERIAL)
    assert stamps_us(outcome, "background") == [(0, 100), (100, 200)]
    assert stamps_us(outcome, "probe") == [(200, 205)]


def test_chunked_lets_a_step_in_after_each_chunk() -> None:
    """Six kernels of 10 us in chunks of two: steps due at 5 and 6 run after the first and the second chunk, 3 us each."""
    roles = [role("probe", takes(1), takes(2), at=(5, 6)), background(*[takes(10)] * 6, at=(0,), chunk=2)]
    outcome = corun(H200, roles, Mechanism.CHUNKED)
    assert stamps_us(outcome, "probe") == [(20, 23), (43, 46)]
    assert stamps_us(outcome, "background") == [(0, 66)]


def test_chunks_may_differ_in_length() -> None:
    """Chunks of two, one and three kernels of 10 us: steps due at 5, 25 and 36 run behind the first, the second and the last."""
    roles = [role("probe", takes(3), at=(5, 25, 36)), background(*[takes(10)] * 6, at=(0, 66), chunk=(2, 1, 3))]
    outcome = corun(H200, roles, Mechanism.CHUNKED)
    assert stamps_us(outcome, "probe") == [(20, 23), (33, 36), (66, 69)]
    assert stamps_us(outcome, "background") == [(0, 66), (69, 129)]


def test_a_closed_loop_ends_past_its_time() -> None:
    """Steps of 10 us until 25: the third one ends past it and is the last; one that ends at 30 to the dot is not past it."""
    assert len(corun(H200, [role("probe", takes(10), at=Closed(until_us=25))], Mechanism.ALONE).steps["probe"]) == 3
    roles = [role("probe", takes(10), at=Closed(until_us=30)), background(takes(1))]
    outcome = corun(H200, roles, Mechanism.GREEN, sizes=(16, 116))
    assert [len(outcome.steps[name]) for name in ("probe", "background")] == [4, 40]
    assert len(corun(H200, [role("probe", takes(10), at=Closed(2, until_us=30))], Mechanism.ALONE).steps["probe"]) == 2


def test_places_of_a_caller_go_before_sizes() -> None:
    """Two roles on SMs 0 to 3 and 2 to 5 share what overlaps: the second takes the two that are free, its rest comes later."""
    placed = [Place(0b1111, 4), Place(0b111100, 4)]
    roles = [role("a", takes(10, ctas=4), at=(0,)), role("b", takes(8, ctas=4), at=(0,))]
    outcome = corun(H200, roles, Mechanism.GREEN, sizes=(132,), placed=placed)
    assert outcome.census("a") == (0, 1, 2, 3)
    assert outcome.census("b") == (4, 5)
    assert stamps_us(outcome, "b") == [(0, 8)]


def test_a_gap_lies_between_the_kernels_of_a_step_and_not_between_steps() -> None:
    """Two kernels of 10 us with 1 us between them take 21 us, under each way of running alone."""
    device = Device(132, gap_us=1)
    for mechanism in (Mechanism.ALONE, Mechanism.SERIAL, Mechanism.STREAMS, Mechanism.TIMESLICE):
        outcome = corun(device, [role("probe", takes(10), takes(10), at=(0, 0))], mechanism)
        assert stamps_us(outcome, "probe") == [(0, 21), (21, 42)], mechanism


def test_streams_wait_for_a_whole_kernel_and_priority_for_a_wave() -> None:
    """A grid of 4 waves of 100 us, and a probe of 20 us due at 150: it starts at 400, or at 200 in front of the third wave."""
    roles = [role("probe", takes(20, ctas=16), at=(150,)), background(takes(400, ctas=528), at=(0,))]
    assert stamps_us(corun(H200, roles, Mechanism.STREAMS), "probe") == [(400, 420)]
    assert stamps_us(corun(H200, roles, Mechanism.MPS), "probe") == [(400, 420)]
    assert stamps_us(corun(H200, roles, Mechanism.PRIORITY), "probe") == [(200, 220)]


def test_streams_share_what_the_last_wave_leaves() -> None:
    """200 CTAs on 132 SMs leave 64 free in the second wave: a probe that is due earlier starts beside that wave."""
    roles = [role("probe", takes(20, ctas=16), at=(10,)), background(takes(200, ctas=200), at=(0,))]
    outcome = corun(H200, roles, Mechanism.STREAMS)
    assert stamps_us(outcome, "probe") == [(100, 120)]
    assert stamps_us(outcome, "background") == [(0, 200)]


def test_which_side_a_partition_protects() -> None:
    """A decode in a partition waits for nobody only if the background is confined too; a confined background is enough."""
    roles = [role("probe", takes(20, ctas=16), at=(50,)), background(takes(400, ctas=528), at=(0,))]
    start = {m: corun(H200, roles, m, sizes=(16, 116)).steps["probe"][0].start for m in SIZED}
    assert start.pop(Mechanism.GREEN_PRIMARY) == 400_000
    assert set(start.values()) == {50_000}, start


def test_a_free_decode_uses_every_sm_that_the_background_leaves() -> None:
    """1320 us of work on one SM: 10 us on the idle device under `green_background`, 82.5 us in a partition of 16."""
    roles = [role("probe", Piece(lambda n: 1320 / n), at=(0,)), background(takes(1), at=())]
    took = {
        m: corun(H200, roles, m, sizes=(16, 116)).steps["probe"][0].end for m in (Mechanism.GREEN_BACKGROUND, Mechanism.GREEN)
    }
    assert took == {Mechanism.GREEN_BACKGROUND: 10_000, Mechanism.GREEN: 82_500}


HALF = role("probe", takes(10, ctas=66), at=(0,))


def test_a_kernel_takes_more_sms_as_they_come_free() -> None:
    """A probe holds half of the SMs for 10 us; the other kernel starts beside it and has all of them from then on.

    In waves: 264 CTAs, 100 us on any half or whole, so 25 us a wave on 66 SMs and 50 on 132: 66 CTAs end at 25, the next ones
    at 60, 75 and 110. Persistent: 132 CTAs of 100 us each, 66 from 0 and 66 from 10 on.
    """
    for kernel in (takes(100, ctas=264), Piece(lambda n: 100 * 132 / n)):
        outcome = corun(H200, [HALF, background(kernel, at=(0,))], Mechanism.STREAMS)
        assert stamps_us(outcome, "background") == [(0, 110)]


def test_waves_out_of_step_want_their_part_of_hbm() -> None:
    """The same waves where the kernel wants the whole bus: 1 on 66 SMs from 0, 1/2 more from 10 on.

    At 2/3 of its speed the first wave ends at 32.5; from there two halves run at full speed, to 67.5 and 82.5, and the last
    66 CTAs to 117.5.
    """
    kernel = takes(100, ctas=264, hbm_bytes=100 * 4e6)
    outcome = corun(Device(132, hbm_gb_s=4000), [HALF, background(kernel, at=(0,))], Mechanism.STREAMS)
    assert outcome.steps["background"][0].end == pytest.approx(117_500, abs=4)


@pytest.mark.parametrize(("mechanism", "measured"), [("streams", 1553), ("priority", 399), ("green", 33.9)])
def test_tails_of_the_measured_example(mechanism: str, measured: float) -> None:
    """16 CTAs of 22.5 us beside 132 * 16 CTAs in 4 waves of 388 us: p99 as on the H200, but for the host's jitter in `green`."""
    probe = role("probe", takes(22.5, ctas=16), at=tuple(4003.7 * i for i in range(3000)))
    load = background(Piece(lambda n: 1552 * 132 / n, ctas=132 * 16, ctas_per_sm=4))
    outcome = corun(H200, [probe, load], Mechanism(mechanism), sizes=(16, 116) if mechanism in SIZED else ())
    found = percentile(StepTimes.of(outcome.steps["probe"]).latencies_us, 99, 3000)
    assert found == (22.5 if mechanism == "green" else pytest.approx(measured, rel=0.025))
    assert len(outcome.census("probe")) == 16


@pytest.mark.parametrize(("processes", "measured"), [(1, 113), (2, 476), (4, 953), (8, 1906)])
def test_turns_of_processes_as_measured(processes: int, measured: float) -> None:
    """A 101 us kernel in a closed loop that needs 12 us on the host: N processes have it every N turns of 238 us."""
    tenants = [role(str(i), takes(101), at=Closed(60, think_us=12)) for i in range(processes)]
    for steps in corun(H200, tenants, Mechanism.TIMESLICE).steps.values():
        period = (steps[-1].end - steps[9].end) / (len(steps) - 10) / 1000
        assert period == pytest.approx(measured, rel=0.002)


def test_a_process_keeps_its_slice_while_it_has_work() -> None:
    """Three steps of 10 us that wait together run in one turn; the other process has the next one, 137 us later."""
    roles = [role("probe", takes(10), at=(0, 0, 0)), background(takes(100), at=(0,))]
    outcome = corun(H200, roles, Mechanism.TIMESLICE)
    assert stamps_us(outcome, "probe") == [(0, 10), (10, 20), (20, 30)]
    assert stamps_us(outcome, "background") == [(167, 267)]


def test_a_slice_ends_inside_a_kernel() -> None:
    """A 5 ms kernel is put aside at 2 ms for a step due at 0.5 ms, which runs after the switch; then the kernel runs out."""
    roles = [role("probe", takes(100), at=(500,)), background(takes(5000), at=(0,))]
    outcome = corun(Device(132, slice_us=2000, switch_us=137), roles, Mechanism.TIMESLICE)
    assert stamps_us(outcome, "probe") == [(2137, 2237)]
    assert stamps_us(outcome, "background") == [(0, 5374)]
    assert [(part.start, part.end) for part in outcome.parts if part.role == "background"] == [
        (0, 2_000_000),
        (2_374_000, 4_374_000),
        (4_374_000, 5_374_000),
    ]


def test_hbm_is_shared_by_what_both_want() -> None:
    """Both want 3/4: each runs at 2/3 of its speed until the shorter one ends at 150 us; the other's rest is at full speed."""
    device = Device(132, hbm_gb_s=4000)
    roles = [
        role("short", takes(100, hbm_bytes=0.75 * 100 * 4e6), at=(0,)),
        background(takes(200, hbm_bytes=0.75 * 200 * 4e6), at=(0,)),
        role("arithmetic", takes(120), at=(0,)),
    ]
    outcome = corun(device, roles, Mechanism.GREEN, sizes=(32, 68, 32))
    ends = {name: steps[0].end for name, steps in outcome.steps.items()}
    assert ends == pytest.approx({"short": 150_000, "background": 250_000, "arithmetic": 120_000}, abs=1)


def test_a_kernel_that_takes_over_a_share_of_hbm_starts_at_the_same_speed() -> None:
    """Steps of 100 us, then 100, beside one of 200 that all want 3/4: 150 us each, and 300 for the other."""
    device = Device(132, hbm_gb_s=4000)
    three = 0.75 * 4e6
    roles = [role("probe", takes(100, hbm_bytes=100 * three), at=(0, 0)), background(takes(200, hbm_bytes=200 * three), at=(0,))]
    outcome = corun(device, roles, Mechanism.GREEN, sizes=(32, 100))
    ends = [step.end for steps in outcome.steps.values() for step in steps]
    assert ends == pytest.approx([150_000, 300_000, 300_000], abs=2)


def test_hbm_is_free_again_when_both_end_at_once() -> None:
    """Two that want all of it end at 180; the next step is by itself until 230, where 40 us of it are left, which take 80."""
    device = Device(132, hbm_gb_s=4000)
    probe = role("probe", takes(10, hbm_bytes=10 * 4e6), takes(80, hbm_bytes=80 * 4e6), at=(0, 0))
    roles = [probe, background(takes(90, hbm_bytes=90 * 4e6), at=(0, 230))]
    outcome = corun(device, roles, Mechanism.GREEN, sizes=(32, 100))
    assert stamps_us(outcome, "probe") == [(0, 180), (180, 310)]
    assert stamps_us(outcome, "background") == [(0, 180), (230, 360)]


def test_alone_is_never_slowed_and_each_role_has_a_clock_of_its_own() -> None:
    """A kernel that asks for more than the bus takes its time all the same; the endless role runs as long as the other."""
    device = Device(132, hbm_gb_s=1000)
    roles = [role("probe", takes(10, hbm_bytes=1e12), at=(0, 100)), background(Piece(Table({66: 40, 132: 20}), ctas=500))]
    assert stamps_us(corun(device, roles, Mechanism.ALONE), "background")[-1] == (100, 120)
    halved = corun(device, roles, Mechanism.ALONE, sizes=(66, 66))
    assert stamps_us(halved, "probe") == [(0, 10), (100, 110)]
    assert stamps_us(halved, "background") == [(0, 40), (40, 80), (80, 120)]


def whole_and_cut(load: float, seed: int) -> Iterator[bool]:
    """Whether a queue at this load is called growing: the whole run, and one that was cut at 20 ms."""
    arrivals = poisson(10 / load, 3000, seed)
    probe = role("probe", takes(10), at=arrivals)
    yield saturated(StepTimes.of(corun(H200, [probe], Mechanism.ALONE).steps["probe"]))
    cut = corun(H200, [probe], Mechanism.ALONE, until_us=20_000).steps["probe"]
    assert len(cut) <= 2000
    yield saturated(StepTimes.of(cut))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_a_queue_that_holds_is_not_saturated(load: float) -> None:
    """Random arrivals below capacity leave backlogs, but none that grows."""
    assert not any(found for seed in range(8) for found in whole_and_cut(load, seed))


@pytest.mark.parametrize("load", [1.2, 1.5, 4])
def test_a_queue_that_grows_is_saturated(load: float) -> None:
    """More work than the device can do is seen, also where the run was cut short."""
    assert all(found for seed in range(8) for found in whole_and_cut(load, seed))


def test_jitter_is_of_a_role_and_a_seed() -> None:
    """A seed gives the same stamps again, another one others, and a role has the same luck whatever the mechanism."""
    device = Device(132, jitter_pct=3)
    roles = [role("probe", takes(10), at=tuple(100.0 * i for i in range(50))), background(takes(20), at=(0, 30))]
    first = corun(device, roles, Mechanism.STREAMS, seed=5)
    assert first == corun(device, roles, Mechanism.STREAMS, seed=5)
    assert first.steps != corun(device, roles, Mechanism.STREAMS, seed=6).steps

    def took(mechanism: Mechanism, name: str = "probe") -> list[int]:
        return [step.end - step.start for step in corun(device, roles, mechanism, seed=5).steps[name]]

    assert took(Mechanism.ALONE) == took(Mechanism.SERIAL) == took(Mechanism.TIMESLICE)
    assert abs(2 * took(Mechanism.ALONE)[0] - took(Mechanism.ALONE, "background")[0]) > 10
    spread = sorted(took(Mechanism.ALONE))
    assert 8_500 < spread[0] < 9_900
    assert spread[25] == pytest.approx(10_000, rel=0.01)
    assert 10_100 < spread[-1] < 11_500


def test_short_waves_are_joined() -> None:
    """A million CTAs in 1 ms are at most 500 waves of 2 us, and the kernel still takes 1 ms."""
    roles = [role("probe", takes(1000, ctas=1_000_000), at=(0,)), background(takes(1), at=())]
    outcome = corun(H200, roles, Mechanism.STREAMS)
    assert len(outcome.parts) <= 500
    assert stamps_us(outcome, "probe") == [(0, 1000)]


def test_a_run_that_is_cut_does_no_work_behind_the_cut() -> None:
    """A role by itself stops at the cut too: that is what a cut is for."""
    feed = Feed(role("probe", takes(10), at=(0.0,) * 1000), H200, 0, lambda _: True)
    assert len(Shared(H200, [feed], [Place((1 << 132) - 1, 132)]).run(45_000)) == 4


def test_a_table_is_exact_where_it_was_filled_and_linear_in_speed_between() -> None:
    """Half-way between speeds 1/100 and 1/50 is 1/66.7; below the least count the time grows, above the greatest it stays."""
    table = Table({8: 100, 16: 50, 32: 40})
    assert [table(sms) for sms in (8, 16, 32, 132, 4)] == [100, 50, 40, 40, 200]
    assert table(12) == pytest.approx(200 / 3)


def test_kernels_and_device_out_of_a_model() -> None:
    """A triad takes what `bounds.predict` says, its launch being the gap; two of them on halves of the device share the bus."""
    model = facts.model_facts("h200")
    device = predicted.device(model)
    size = 3 * 2**30
    triad = predicted.piece(model, predicted.Work("memory", "float32", bytes=size, working_set_bytes=size))
    whole = bounds.predict(model, family="memory", dtype="float32", flops=None, bytes=size, sms=132, working_set_bytes=size)
    assert triad.us(132) + device.gap_us == pytest.approx(whole.us)
    roles = [role("probe", triad, at=(0,)), background(triad, at=(0,))]
    steady = Device(132, device.hbm_gb_s)
    one = corun(steady, roles, Mechanism.ALONE, sizes=(66, 66)).steps["probe"][0].end
    both = corun(steady, roles, Mechanism.GREEN, sizes=(66, 66)).steps["probe"][0].end
    assert 1.85 < both / one <= 2


RIGHT = role("probe", takes(1), at=(0,))


@pytest.mark.parametrize(
    ("device", "roles", "sizes", "sentence"),
    [
        (Device(0), [RIGHT], (), "a device of 0 SMs"),
        (Device(132, hbm_gb_s=0), [RIGHT], (), "hbm_gb_s is 0"),
        (Device(132, gap_us=-1), [RIGHT], (), "gap_us is -1"),
        (Device(132, slice_us=0), [RIGHT], (), "slice_us is 0"),
        (H200, [RIGHT, RIGHT], (), "two roles are called 'probe'"),
        (H200, [background(takes(1))], (), "would never end"),
        (H200, [role("probe", at=(0,))], (), "'probe' has no kernel"),
        (H200, [role("probe", takes(1), at=(0,), chunk=0)], (), "chunks of 0 kernels"),
        (H200, [role("probe", takes(1), at=(3, 2))], (), "have 2 after 3"),
        (H200, [role("probe", takes(1), at=(-1,))], (), "have -1 after 0"),
        (H200, [role("probe", takes(1), at=(float("nan"),))], (), "have nan after 0"),
        (H200, [role("probe", takes(1), at=Closed(-1))], (), "negative number of steps"),
        (H200, [role("probe", takes(1), at=Closed(until_us=-1))], (), "negative number of steps"),
        (H200, [role("probe", takes(1), at=(0,), chunk=(3, 0))], (), "chunks of 0 kernels"),
        (H200, [role("probe", takes(0), at=(0,))], (132,), "takes 0 us on 132 SMs"),
        (H200, [role("probe", takes(1, ctas=0), at=(0,))], (), "a grid below 1"),
        (H200, [role("probe", Piece(Table({})), at=(0,))], (132,), "a table of times is empty"),
        (H200, [RIGHT], (133,), "133 SMs were asked for on a device of 132"),
        (H200, [RIGHT], (0,), "0 SMs were asked for"),
        (H200, [RIGHT], (), "0 SM counts for 1 roles"),
        (H200, [RIGHT, background(takes(1))], (100, 100), "100+100 SMs do not fit"),
    ],
)
def test_what_cannot_be_meant_is_refused(device: Device, roles: list[Role], sizes: tuple[int, ...], sentence: str) -> None:
    """Each refusal is a sentence with the value in it."""
    with pytest.raises(UsageError, match=sentence.replace("+", r"\+")):
        corun(device, roles, Mechanism.GREEN, sizes=sizes)
