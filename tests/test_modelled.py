"""The modelled device: what it grants and refuses, how its time passes, and that every injected fault shows where it should."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from greenbench import stats
from greenbench.catalog import Kernel, load_kernel
from greenbench.errors import DriverTooOldError, FailedError, StickyError, UnsupportedError, UsageError
from greenbench.gpu import Gpu, Lane, Refusal, Work, open_gpu
from greenbench.gpu.modelled import open_modelled
from greenbench.gpu.modelled.faults import FaultKind
from greenbench.schema import Backend, Evidence, Partition, Placement, Scope, SmsMode

ROOT = Path(__file__).parents[1]
MODELS = Path(__file__).parent / "data" / "models"
FULL = Partition(SmsMode.FULL)
PRIMARY = Partition(SmsMode.PRIMARY)

TRIAD = """/* greenbench
family  = "memory"
summary = "triad"
entry   = "triad"
args    = ["a", "b", "n"]
verify  = "copy"
buffers = [{ name = "a", dtype = "float32", count = "n", fill = "poison", access = "out" },
           { name = "b", dtype = "float32", count = "2 * n", fill = "normal", access = "in" }]
[params]
n = 268435456
[launch]
block = 256
grid  = "8 * sms"
[work]
bytes = "12 * n"
flops = "2 * n"
*/
extern "C" __global__ void triad(float *a, const float *b, long long n) {}
"""
CHASE = """/* greenbench
family  = "latency"
summary = "chase"
entry   = "chase"
args    = ["next", "cycles", "bytes", "hops"]
buffers = [{ name = "next", dtype = "uint8", count = "bytes", fill = "poison", access = "in" },
           { name = "cycles", dtype = "uint64", count = 1, fill = "zero", access = "state" }]
[params]
bytes = 16384
hops  = 4096
[launch]
block = 32
grid  = 1
[report]
buffer = "cycles"
per    = "hops"
*/
extern "C" __global__ void chase(const void *next, void *cycles, long long bytes, long long hops) {}
"""
NULL = """/* greenbench
family  = "latency"
summary = "nothing"
entry   = "nothing"
args    = []
buffers = []
[launch]
block = 32
grid  = 1
*/
extern "C" __global__ void nothing() {}
"""
GEMM = """/* greenbench
family  = "gemm"
summary = "gemm"
entry   = "gemm"
args    = ["c", "n"]
dtype   = "bfloat16"
buffers = [{ name = "c", dtype = "bfloat16", count = "3 * n * n", fill = "poison", access = "out" }]
[params]
n = 4096
[launch]
block = 256
grid  = "min(sms, tiles)"
[let]
tiles = "ceil_div(n, BM) * ceil_div(n, BM)"
[[variant]]
defines = { BM = 128 }
cost = "ceil_div(ceil_div(n, 128) * ceil_div(n, 128), sms) * 5"
[[variant]]
defines = { BM = 64 }
cost = "ceil_div(ceil_div(n, 64) * ceil_div(n, 64), sms)"
[work]
bytes = "6 * n * n"
flops = "2 * n * n * n"
*/
extern "C" __global__ void gemm(void *c, long long n) {}
"""
SPIN = """/* greenbench
family  = "probe"
summary = "spin"
entry   = "spin"
args    = ["ns"]
buffers = []
[params]
ns = 100000
[launch]
block = 32
grid  = 1
*/
extern "C" __global__ void spin(long long ns) {}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernel]:
    """Kernels of our own, so that the shipped library may change without a word here."""
    folder = tmp_path_factory.mktemp("kernels")
    sources = {"triad": TRIAD, "copy": TRIAD, "chase": CHASE, "nothing": NULL, "gemm": GEMM, "spin": SPIN}
    loaded = {}
    for name, source in sources.items():
        path = folder / f"{name}.cu"
        path.write_text(source)
        loaded[name] = load_kernel(path, "")
    # No file may say so of one buffer; the modelled device does not ask for the operands.
    loaded["gemm"] = replace(loaded["gemm"], yardstick="cublas")
    return loaded


def sizes(*counts: int, granularity: int | None = None) -> list[Partition]:
    """Partitions of these SM counts."""
    return [Partition(SmsMode.COUNT, count, granularity=granularity) for count in counts]


@contextmanager
def opened(gpu: Gpu, partitions: Sequence[Partition], *, disjoint: bool = False) -> Iterator[list[Lane]]:
    """Lanes of partitions that must all be granted."""
    with gpu.lanes(partitions, disjoint=disjoint) as lanes:
        refused = [lane.error for lane in lanes if isinstance(lane, Refusal)]
        assert refused == []
        yield [lane for lane in lanes if not isinstance(lane, Refusal)]


def granted(gpu: Gpu, *partitions: Partition) -> list[int]:
    """SMs that these partitions get."""
    with opened(gpu, partitions) as lanes:
        return [lane.grant.sms for lane in lanes]


def refusal(gpu: Gpu, partition: Partition) -> str:
    """Why this partition is refused."""
    with gpu.lanes([partition]) as [lane]:
        assert isinstance(lane, Refusal)
        assert isinstance(lane.error, UnsupportedError)
        return str(lane.error)


def sample(gpu: Gpu, lane: Lane, work: Work, launches: int = 10) -> float:
    """Microseconds per launch of one gated sample."""
    gate = gpu.gate(lane)
    start = lane.mark()
    for _ in range(launches):
        work.launch()
    stop = lane.mark()
    gate.open()
    lane.sync()
    assert gate.passed()
    return stop.since(start) / launches * 1e6


def block(gpu: Gpu, lane: Lane, work: Work) -> tuple[list[float], Evidence, Evidence, float | None, set[int]]:
    """One block as measure takes it: samples in us, evidence before and after, SM clock, SMs seen."""
    for _ in range(5):
        work.launch()
    lane.sync()
    before, first = gpu.evidence(), lane.probe()
    samples = [sample(gpu, lane, work) for _ in range(5)]
    second, after = lane.probe(), gpu.evidence()
    return samples, before, after, stats.clock_mhz(first.stamps, second.stamps), {*first.smids, *second.smids}


def blocks(gpu: Gpu, lane: Lane, work: Work, count: int) -> list[float]:
    """Medians of so many blocks."""
    return [median(block(gpu, lane, work)[0]) for _ in range(count)]


def prepared(lane: Lane, kernel: Kernel, **overrides: int) -> Work:
    """Prepare with front-matter params, some replaced."""
    return lane.prepare(kernel, dict(kernel.merged(overrides)))


# ------------------------------------------------------------------------------------------------------------ what it is


def test_it_says_that_it_is_modelled() -> None:
    """Facts carry the backend `modelled`, a UUID no GPU has, and the driver's words for what it cannot do."""
    facts = open_gpu("model:h200").device
    assert facts.backend is Backend.MODELLED
    assert facts.uuid.startswith("MODEL-")
    assert (facts.sm_count, facts.min_partition, facts.alignment, facts.cuda) == (132, 8, 8, (13, 0))
    assert facts.split_api == "count"
    assert facts.workqueue_obstacle == "workqueue configuration needs driver 13.1, this is 13.0"
    newer = open_gpu("model:a100@13.1").device
    assert (newer.split_api, newer.workqueue_obstacle) == ("structured", "")


@pytest.mark.parametrize("name", ["h200", "h100", "a100"])
def test_every_model_opens_a_full_lane(name: str) -> None:
    """Each shipped model grants its whole device, by a green context and by the primary one, and proves it by census."""
    gpu = open_modelled(name)
    with opened(gpu, [FULL, PRIMARY]) as lanes:
        for lane in lanes:
            assert lane.census() == tuple(range(gpu.device.sm_count)) == lane.grant.smids
            assert lane.grant.placement is Placement.CONFINED
        assert [lane.grant.split_method for lane in lanes] == ["count", "primary"]


@pytest.mark.parametrize("spec", ["h200@12.3", "h200@12.4", "a100@11.8"])
def test_an_old_driver_is_named(spec: str) -> None:
    """H07: below 12.5 the device does not open; the text names what is needed and what was found."""
    with pytest.raises(DriverTooOldError, match=r"12\.4.*12\.5.*" + spec.split("@")[1].replace(".", r"\.")):
        open_modelled(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("v100", "v100.*a100, h100, h200"),
        ("", "a100, h100, h200"),
        ("h200@", "driver ''"),
        ("h200@new", "driver 'new'.*13.0"),
        ("h200@13", "driver '13'"),
        ("nowhere.toml", "nowhere.toml.*cannot be read"),
    ],
)
def test_a_name_that_means_nothing(spec: str, words: str) -> None:
    """A model, driver or file that does not exist is a usage error that says what there is."""
    with pytest.raises(UsageError, match=words):
        open_modelled(spec)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base = 'h200", "not TOML"),
        ("sm_count = 48", "base = 'h200'"),
        ("base = 'v100'", "v100.*h200"),
        ("base = 'h200'\nsm_cuont = 48", "'sm_cuont'.*sm_count"),
        ("base = 'h200'\nsm_count = '48'", "sm_count = '48'.*wrong type"),
        ("base = 'h200'\nsm_count = true", "sm_count = True.*wrong type"),
        ("base = 'h200'\nsm_count = 0", "sm_count = 0.*above zero"),
        ("base = 'h200'\nsm_count = [48]", "sm_count.*list"),
        ("base = 'h200'\ndriver = 13.1", "driver 13.1.*quotes"),
        ("base = 'h200'\nrefuse = 24", r"refuse = 24.*\[24\]"),
        ("base = 'h200'\nstate = 3", "state = 3"),
        ("base = 'h200'\nfault = 1", r"\[\[fault\]\]"),
        ("base = 'h200'\n[[fault]]\nkind = 'explode'", "fault 1: kind 'explode'.*hang"),
        ("base = 'h200'\n[[fault]]\nkernel = 'triad'", "fault 1: kind None"),
        ("base = 'h200'\n[[fault]]\nkind = 'hang'\nat = 1", "fault 1.*'at'.*at_block"),
        ("base = 'h200'\n[[fault]]\nkind = 'hang'\ntimes = 0", "times = 0"),
        ("base = 'h200'\n[[fault]]\nkind = 'hang'\nkernel = 3", "kernel = 3"),
        ("base = 'h200'\n[[fault]]\nkind = 'drift'\nsize = '2 %'", "size = '2 %'"),
    ],
)
def test_a_model_file_that_cannot_be_meant(tmp_path: Path, text: str, words: str) -> None:
    """Every mistake in a model file is a usage error with the file, the key and the value."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        open_modelled(str(path))
    assert "mine.toml" in str(caught.value)


def test_a_model_file_sets_facts(tmp_path: Path) -> None:
    """Facts, driver and constants of a file replace those of its base; the rest stays."""
    path = tmp_path / "mine.toml"
    path.write_text(
        "base = 'h200'\nsm_count = 48\npower_limit_w = 250\necc = false\ncompute_capability = [9, 0]\ndriver = '13.2'"
    )
    facts = open_modelled(str(path)).device
    assert (facts.sm_count, facts.power_limit_w, facts.ecc, facts.cuda, facts.min_partition) == (48, 250, False, (13, 2), 8)
    assert facts.uuid == "MODEL-mine"


# ------------------------------------------------------------------------------------------------------- what it grants


def test_counts_are_rounded_up_before_13_1() -> None:
    """H02, H04, H06: 9 to 16 give 16, 124 to 128 give 128, 130 to 132 give the whole device, as measured on an H200."""
    asked = (1, 8, 9, 10, 12, 16, 24, 124, 128, 130, 132)
    assert granted(open_modelled("h200"), *sizes(*asked)) == [8, 8, 16, 16, 16, 16, 24, 128, 128, 132, 132]


def test_counts_are_exact_from_13_1_on() -> None:
    """Aligned counts are granted exactly, others refused with 915 and their neighbours; the full device is unsplit (H06)."""
    gpu = open_modelled("h200@13.1")
    assert granted(gpu, *sizes(8, 16, 128), FULL) == [8, 16, 128, 132]
    assert "915" in refusal(gpu, *sizes(12))
    assert "8 and 16" in refusal(gpu, *sizes(12))
    assert refusal(gpu, *sizes(130)).endswith("nearest sizes that it grants: 128")
    with opened(gpu, [FULL, *sizes(132)]) as lanes:
        assert [(lane.grant.sms, lane.grant.split_method) for lane in lanes] == [(132, "unsplit")] * 2


@pytest.mark.parametrize("spec", ["h200", "h200@13.1"])
def test_granularity_2_gives_every_even_count(spec: str) -> None:
    """`--granularity 2` reaches 2, 6 and 132 SMs with any driver, and refuses odd counts."""
    gpu = open_modelled(spec)
    assert granted(gpu, *sizes(2, 6, 130, 132, granularity=2)) == [2, 6, 130, 132]
    assert "6 and 8" in refusal(gpu, *sizes(7, granularity=2))
    with opened(gpu, sizes(6, granularity=2)) as [lane]:
        assert lane.grant.note == ("split_flags=1" if spec == "h200" else "coscheduled_sm_count=2")


def test_a_refused_size_names_its_neighbours() -> None:
    """H01: the die that refuses 24 grants 8, 16 and 32, and says 915, 16 and 32."""
    gpu = open_modelled(str(MODELS / "die_48.toml"))
    assert granted(gpu, *sizes(8, 16, 32)) == [8, 16, 32]
    assert "915" in refusal(gpu, *sizes(24))
    assert "16 and 32" in refusal(gpu, *sizes(24))
    assert "48" in refusal(gpu, *sizes(49))


def test_sm_ids_are_those_of_an_h200() -> None:
    """The sets of a split are the measured ones, smaller ones lie inside larger ones, and a sibling lacks SM 0."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8, 16, 64, 132)) as lanes:
        sets = [set(lane.census()) for lane in lanes]
    assert sets[0] == {0, 1, 16, 17, 32, 33, 48, 49}
    assert sets[1] == {*range(4), *range(16, 20), *range(32, 36), *range(48, 52)}
    assert all(small < large for small, large in pairwise(sets))
    assert sets[3] == set(range(132))
    with opened(gpu, sizes(8, 8), disjoint=True) as [_, sibling]:
        assert 0 not in sibling.census()
        assert set(sibling.probe().smids) == set(sibling.census())


@pytest.mark.parametrize(
    ("spec", "asked", "expected", "remainder"),
    [
        ("h200", (96, 36), [96, 36], [False, True]),
        ("h200", (16, 116), [16, 116], [False, True]),
        ("h200", (20, 12), [20, 16], [True, False]),
        ("h200@13.1", (96, 36), [96, 36], [False, True]),
        ("a100", (54, 52), [56, 52], [False, False]),
    ],
)
def test_disjoint_partitions_share_no_sm(spec: str, asked: tuple[int, int], expected: list[int], remainder: list[bool]) -> None:
    """Both sides of a co-location come out of one split; the remainder completes a count once, and says so."""
    with opened(open_modelled(spec), sizes(*asked), disjoint=True) as [left, right]:
        assert [left.grant.sms, right.grant.sms] == expected
        assert [left.grant.remainder, right.grant.remainder] == remainder
        assert not set(left.census()) & set(right.census())
        assert len(left.census()) == left.grant.sms


def test_disjoint_partitions_that_do_not_fit() -> None:
    """More than the device, or more than its units, is refused for all sides with the numbers."""
    gpu = open_modelled("h200")
    with gpu.lanes(sizes(96, 40), disjoint=True) as lanes:
        assert [str(lane.error) for lane in lanes if isinstance(lane, Refusal)] == [
            "96 + 40 SMs are more than the 132 of this device"
        ] * 2
    with gpu.lanes(sizes(64, 64), disjoint=True) as lanes:
        texts = [str(lane.error) for lane in lanes if isinstance(lane, Refusal)]
    assert len(texts) == 2
    assert "15 units of 8" in texts[0]


def test_workqueue_scopes_need_13_1() -> None:
    """H11: a scope is refused on 13.0 with need and find, granted and read back on 13.1; without one nothing is said of it."""
    scoped = Partition(SmsMode.COUNT, 8, workqueue=Scope.GREEN_CTX_BALANCED, concurrency_limit=4)
    assert refusal(open_modelled("h200"), scoped) == "workqueue configuration needs driver 13.1, this is 13.0"
    with opened(open_modelled("h200@13.1"), [scoped, *sizes(8)]) as [lane, plain]:
        assert (lane.grant.workqueue, lane.grant.concurrency_limit) == ("green_ctx_balanced", 4)
        assert (plain.grant.workqueue, plain.grant.concurrency_limit) == ("driver_default", None)


def test_an_mps_share_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: a share below 100 is named with its value and the cure; 100 and none are fine."""
    gpu = open_modelled("h200")
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in gpu.allowance()
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")
    assert gpu.allowance() == ""
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    assert gpu.allowance() == ""


# --------------------------------------------------------------------------------------------------------- how time passes


def test_triad_scales_as_measured(library: dict[str, Kernel]) -> None:
    """Bandwidth at 8, 32 and 132 SMs is within 5 % of NVBench's on an H200, and never above link or bus."""
    gpu = open_modelled("h200")
    with opened(gpu, [*sizes(8, 32), FULL]) as lanes:
        rates = [
            work.bytes / median(blocks(gpu, lane, work, 3)) / 1e3
            for lane in lanes
            if (work := prepared(lane, library["triad"])).bytes
        ]
    assert rates == pytest.approx([906, 3448, 4290], rel=0.05)
    assert rates[0] < 1014
    assert rates[2] < 4814


@pytest.mark.parametrize(("size", "cycles"), [(16 << 10, 33.7), (8 << 20, 275.4), (1 << 30, 660.7)])
def test_chase_reports_latency_by_level(library: dict[str, Kernel], size: int, cycles: float) -> None:
    """The pointer chase reports L1, L2 or HBM cycles by its working set, and takes as long as its hops."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8)) as [lane]:
        work = prepared(lane, library["chase"], bytes=size)
        us = sample(gpu, lane, work)
        reported = work.report()
    assert reported == pytest.approx(cycles, rel=0.01)
    assert us == pytest.approx(4096 * cycles / 1980 + 2.43, rel=0.01)


def test_an_empty_launch_costs_2_us_and_less_in_a_graph(library: dict[str, Kernel]) -> None:
    """Graphs remove the launch gap; without a gate the host's 5.5 us per launch show."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8)) as [lane]:
        work = prepared(lane, library["nothing"])
        replay = work.capture(20)
        assert sample(gpu, lane, work) == pytest.approx(2.43, rel=0.02)
        assert replay.run() / replay.launches * 1e6 == pytest.approx(1.26, rel=0.02)
        assert replay.smids() == lane.grant.smids
        start = lane.mark()
        for _ in range(10):
            work.launch()
        assert lane.mark().since(start) / 10 * 1e6 == pytest.approx(5.5, rel=0.02)
        assert work.report() is None


@pytest.mark.parametrize("ns", [100_000, 1_000_000])
def test_a_spin_of_known_length_reads_as_that(library: dict[str, Kernel], ns: int) -> None:
    """The timer self-test holds on the modelled device: within 1 % + 2 us."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8)) as [lane]:
        us = sample(gpu, lane, prepared(lane, library["spin"], ns=ns), launches=1)
    assert abs(us - ns / 1e3) <= 0.01 * ns / 1e3 + 2


def test_compute_scales_with_the_clock_and_the_sms(library: dict[str, Kernel]) -> None:
    """A GEMM is bound by compute: half the SMs take twice as long; the variant is chosen for the lane; the yardstick is apart."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(32, 64)) as [small, large]:
        work = prepared(small, library["gemm"])
        ratio = sample(gpu, small, work) / sample(gpu, large, prepared(large, library["gemm"]))
        yardstick = small.prepare_yardstick(library["gemm"], dict(library["gemm"].params), "cublas")
        assert ratio == pytest.approx(2.0, rel=0.03)
        assert work.config == "BM64"
        assert yardstick.config != work.config
        assert (yardstick.grid, yardstick.ctas_per_sm) == (0, None)
        assert work.grid > 0
        assert yardstick.flops == work.flops == 2 * 4096**3
        with pytest.raises(UnsupportedError, match="names no yardstick"):
            small.prepare_yardstick(library["triad"], dict(library["triad"].params), "cublas")


def test_each_way_of_a_vendor_answers_apart(library: dict[str, Kernel]) -> None:
    """Three configs that say `modelled`; a target of SMs gains where they are few and nothing on all of them."""
    gpu, gemm = open_modelled("h200"), library["gemm"]
    times: dict[tuple[str, int], float] = {}
    with opened(gpu, [*sizes(8), FULL]) as lanes:
        for lane in lanes:
            for way in gemm.yardsticks:
                work = lane.prepare_yardstick(gemm, dict(gemm.params), way)
                times[way, lane.grant.sms] = sample(gpu, lane, work)
                assert work.config == {"cublas_sms": f"modelled cublas sm_count_target={lane.grant.sms}"}.get(
                    way, f"modelled {way}"
                )
    assert times["cublas_sms", 8] < times["cublaslt", 8]
    assert times["cublas_sms", 8] == pytest.approx(0.97 * times["cublas", 8], rel=0.01)
    assert times["cublas_sms", 132] == pytest.approx(times["cublas", 132], rel=0.01)


def test_a_resident_working_set_is_faster_than_a_rotating_one(library: dict[str, Kernel]) -> None:
    """H23: on one buffer set that fits the L2 no byte need come from HBM; with rotation all must."""
    gpu = open_modelled("h200")
    with opened(gpu, [FULL]) as [lane]:
        work = prepared(lane, library["triad"], n=4 << 20)
        rotating = sample(gpu, lane, work)
        work.rotate(False)
        assert sample(gpu, lane, work) < 0.7 * rotating
        work.rotate(True)
        assert sample(gpu, lane, work) == pytest.approx(rotating, rel=0.02)


def test_a_flush_makes_a_resident_working_set_cold(library: dict[str, Kernel]) -> None:
    """Without rotation the launch after a flush moves its bytes from HBM, those after it find them in the L2 again."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(64)) as [lane]:
        work, other = prepared(lane, library["triad"], n=4 << 20), prepared(lane, library["triad"], n=2 << 20)
        rotating = sample(gpu, lane, work, launches=1)
        for each in (work, other):
            each.rotate(False)
        hot, other_hot = sample(gpu, lane, work, launches=1), sample(gpu, lane, other, launches=1)
        assert hot < 0.7 * rotating
        for dirty in (False, True):
            lane.flush_l2(dirty)
            assert sample(gpu, lane, work, launches=1) == pytest.approx(rotating, rel=0.02)
            assert sample(gpu, lane, other, launches=1) > 1.3 * other_hot
            assert sample(gpu, lane, work, launches=1) == pytest.approx(hot, rel=0.02)
        lane.flush_l2(dirty=False)
        many = sample(gpu, lane, work, launches=10)
        assert many == pytest.approx((rotating + 9 * hot) / 10, rel=0.02)


def test_a_flushed_chase_goes_to_memory(library: dict[str, Kernel]) -> None:
    """8 MiB are more lines than the 4096 hops touch: after a flush each hop is a miss of the L2, then none is."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8)) as [lane]:
        work = prepared(lane, library["chase"], bytes=8 << 20)
        reports = []
        for _ in range(2):
            if not reports:
                lane.flush_l2(dirty=False)
            sample(gpu, lane, work, launches=1)
            reports.append(work.report())
    assert reports == pytest.approx([660.7, 275.4], rel=0.01)


def test_jitter_is_seeded_and_small(library: dict[str, Kernel]) -> None:
    """Two processes would read the same numbers; blocks and samples differ by tenths of a percent, not less and not more."""
    runs = []
    for _ in range(2):
        gpu = open_modelled("h200")
        with opened(gpu, sizes(16)) as [lane]:
            work = prepared(lane, library["triad"])
            runs.append([block(gpu, lane, work)[0] for _ in range(12)])
    assert runs[0] == runs[1]
    flat = [value for samples in runs[0] for value in samples]
    assert len(set(flat)) == len(flat)
    assert 0.02 < stats.noise_pct(flat) < 1.0
    assert max(flat) / min(flat) < 1.02


def test_the_clock_is_measured_in_any_partition(library: dict[str, Kernel]) -> None:
    """The probe gives stamps for exactly the lane's SMs, and 1980 MHz also where SM 0 is missing."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(16, 8), disjoint=True) as [_, lane]:
        work = prepared(lane, library["triad"])
        _, before, after, mhz, seen = block(gpu, lane, work)
    assert seen == set(lane.grant.smids)
    assert mhz == pytest.approx(1980, rel=1e-4)
    assert (before.reasons, after.reasons) == (0, 0)
    assert before.energy_mj is not None
    assert after.energy_mj is not None
    assert after.energy_mj > before.energy_mj


def test_lanes_share_the_time_of_their_device(library: dict[str, Kernel]) -> None:
    """A lane that was idle while another one worked is not behind it: marks and counters of both go forward together."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8, 16)) as [first, second]:
        before = max(ns for ns, _ in second.probe().stamps.values())
        took = sample(gpu, first, prepared(first, library["triad"])) * 1e3
        assert max(ns for ns, _ in second.probe().stamps.values()) >= before + took


def test_a_cold_sample_waits_for_the_flush_outside_the_marks(library: dict[str, Kernel]) -> None:
    """The flush costs the lane time, and none of it lies between the marks."""
    gpu = open_modelled("h200")
    with opened(gpu, [FULL]) as [lane]:
        work = prepared(lane, library["triad"])
        plain = sample(gpu, lane, work, launches=1)
        start = lane.mark()
        lane.flush_l2(dirty=False)
        assert lane.mark().since(start) * 1e6 == pytest.approx(4 * (60 << 20) / 4814e3, rel=0.01)
        assert sample(gpu, lane, work, launches=1) == pytest.approx(plain, rel=0.02)


# --------------------------------------------------------------------------------------------------- what it does not run


def kernel_from(folder: Path, source: str, name: str) -> Kernel:
    """Load a kernel from text."""
    path = folder / f"{name}.cu"
    path.write_text(source)
    return load_kernel(path, "")


def test_verification_claims_nothing(library: dict[str, Kernel]) -> None:
    """No code runs, so there is no error to report, with a reference or without one, and the detail says so."""
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8)) as [lane]:
        checked = prepared(lane, library["triad"]).verify()
        unchecked = prepared(lane, library["nothing"]).verify()
    assert checked.ok
    assert checked.error is None
    assert "no code runs" in checked.detail
    assert unchecked.ok
    assert unchecked.error is None


def test_a_cooperative_grid_must_fit(tmp_path: Path) -> None:
    """H18: 132 cooperative CTAs of 256 threads fit 24 SMs, not 8 or 16; the reason has grid and limit."""
    source = NULL.replace("block = 32\ngrid  = 1", "block = 256\ngrid = 132\ncooperative = true")
    kernel = kernel_from(tmp_path, source, "sync")
    gpu = open_modelled("h200")
    with opened(gpu, sizes(8, 16, 24)) as [small, middle, large]:
        with pytest.raises(UnsupportedError, match=r"132 CTAs.*8 SMs hold 64"):
            prepared(small, kernel)
        with pytest.raises(UnsupportedError, match=r"132 CTAs.*16 SMs hold 128"):
            prepared(middle, kernel)
        assert prepared(large, kernel).grid == 132


def test_what_a_device_lacks_is_unsupported(tmp_path: Path) -> None:
    """A kernel for another architecture, and a CTA that no SM holds, are refused before anything is timed."""
    hopper = kernel_from(tmp_path, NULL.replace("args    = []", 'args    = []\narch = "sm_90a"'), "hopper")
    large = kernel_from(tmp_path, NULL.replace("grid  = 1", "grid  = 1\nsmem = 200000"), "large")
    with opened(open_modelled("a100"), sizes(8)) as [lane]:
        with pytest.raises(UnsupportedError, match="needs sm_90a"):
            prepared(lane, hopper)
        with pytest.raises(UnsupportedError, match="200000 bytes of shared memory"):
            prepared(lane, large)


def test_buffers_beyond_the_memory_fail(library: dict[str, Kernel]) -> None:
    """A working set of 144 GiB does not fit an H200; the text names need and supply."""
    with (
        opened(open_modelled("h200"), sizes(8)) as [lane],
        pytest.raises(FailedError, match=r"out of memory: triad needs 144\.00 GiB and 139\.80 GiB are free"),
    ):
        prepared(lane, library["triad"], n=12 << 30)


# ---------------------------------------------------------------------------------------------------------------- faults


@pytest.fixture(autouse=True, scope="module")
def copied_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give every test copies of the model files: a fault that is counted leaves a file beside its model."""
    with pytest.MonkeyPatch.context() as patch:
        copies = shutil.copytree(MODELS, tmp_path_factory.mktemp("models"), dirs_exist_ok=True)
        patch.setattr(sys.modules[__name__], "MODELS", copies)
        yield


def model(name: str) -> Gpu:
    """Open a model file of the tests."""
    return open_modelled(str(MODELS / f"{name}.toml"))


def test_every_fault_kind_has_a_model_file() -> None:
    """The fixtures cover all kinds, so that tests of other layers find one for each."""
    found = {fault.kind for path in MODELS.glob("*.toml") for fault in open_modelled(str(path))._state.faults.faults}
    assert found == set(FaultKind)


def test_throttled_blocks_show_in_clock_counters_and_time(library: dict[str, Kernel]) -> None:
    """Two blocks run at 60 % of the clock with thermal counters and reason; the third and other kernels are as ever."""
    gpu = model("throttle")
    with opened(gpu, sizes(8)) as [lane]:
        work, other = prepared(lane, library["triad"]), prepared(lane, library["copy"])
        seen = [block(gpu, lane, each) for each in (work, other, work, work)]
    clocks = [mhz for _, _, _, mhz, _ in seen]
    assert clocks == pytest.approx([1188, 1980, 1188, 1980], rel=1e-3)
    lost = [(after.thermal_ns or 0) - (before.thermal_ns or 0) for _, before, after, _, _ in seen]
    assert [ns > 0 for ns in lost] == [True, False, True, False]
    assert [bool((after.reasons or 0) & 0x40) for _, _, after, _, _ in seen] == [True, False, True, False]
    assert median(seen[0][0]) > 1.3 * median(seen[3][0])


def test_a_fault_counts_a_block_once_whatever_lies_in_between(library: dict[str, Kernel]) -> None:
    """Preparing and the first block of a point are one block: two throttled blocks are one at each of two sizes."""
    gpu = model("throttle")
    with opened(gpu, sizes(8, 16)) as lanes:
        works = [(lane, prepared(lane, library["triad"])) for lane in lanes]
        for lane, work in works:
            sample(gpu, lane, work)
        clocks = [block(gpu, lane, work)[3] for lane, work in (*works, *works)]
    assert clocks == pytest.approx([1188, 1188, 1980, 1980], rel=1e-3)


def test_a_power_cap_is_marked_but_no_thermal_fault(library: dict[str, Kernel]) -> None:
    """The cap shows as reason 0x4, as lost time above 1 % of the block, as power at the limit and a lower clock."""
    gpu = model("power_cap")
    with opened(gpu, sizes(8)) as [lane]:
        samples, before, after, mhz, _ = block(gpu, lane, prepared(lane, library["triad"]))
    assert (after.power_cap_ns or 0) - (before.power_cap_ns or 0) > 0.01 * sum(samples) * 1e3
    assert after.reasons == 0x4
    assert after.power_w == 700
    assert after.thermal_ns == before.thermal_ns
    assert mhz == pytest.approx(0.93 * 1980, rel=1e-3)


def test_a_leak_shows_in_the_block(library: dict[str, Kernel]) -> None:
    """The leaking kernel is seen on one SM more, in probes and graphs; the lane's own census and other kernels are clean."""
    gpu = model("leak")
    with opened(gpu, sizes(8)) as [lane]:
        assert lane.grant.placement is Placement.CONFINED
        clean = block(gpu, lane, prepared(lane, library["copy"]))[4]
        work = prepared(lane, library["triad"])
        leaked = block(gpu, lane, work)[4]
        replay = work.capture(20)
        replay.run()
        assert clean == set(lane.grant.smids)
        assert leaked == clean | {2}
        assert set(replay.smids()) == leaked


def test_a_leaking_lane_is_seen_at_once() -> None:
    """A leak without a kernel shows in the census of the new lane, on that size only."""
    with opened(model("leaking_lane"), sizes(8, 16)) as [clean, leaking]:
        assert (clean.grant.placement, leaking.grant.placement) == (Placement.CONFINED, Placement.LEAKED)
        assert len(leaking.grant.smids) == 17


def test_a_wrong_result_is_wrong_on_its_size_only(library: dict[str, Kernel]) -> None:
    """Verification fails on 16 SMs, with an error, and passes on 8, without one."""
    gpu = model("wrong_result")
    with opened(gpu, sizes(8, 16)) as lanes:
        found = [prepared(lane, library["triad"]).verify() for lane in lanes]
    assert [each.ok for each in found] == [True, False]
    assert [each.error for each in found] == [None, 1.0]


def test_bimodal_blocks_are_found_by_the_statistics(library: dict[str, Kernel]) -> None:
    """Every second block of a point is 6 % slower, whatever is visited in between; a clean kernel has one mode."""
    gpu = model("bimodal")
    with opened(gpu, sizes(8, 16)) as lanes:
        works = [(lane, prepared(lane, library[name])) for lane in lanes for name in ("triad", "copy")]
        rounds = [[median(block(gpu, lane, work)[0]) for lane, work in works] for _ in range(10)]
    assert [stats.is_bimodal(medians) for medians in zip(*rounds, strict=True)] == [True, False, True, False]


def test_drift_grows_and_ends(library: dict[str, Kernel]) -> None:
    """Blocks 2, 3 and 4 are 2, 4 and 6 % slower, block 5 is not: `at_block` and `times` count blocks."""
    gpu = model("drift")
    with opened(gpu, sizes(8)) as [lane]:
        medians = blocks(gpu, lane, prepared(lane, library["triad"]), 5)
    assert [value / medians[0] for value in medians] == pytest.approx([1, 1.02, 1.04, 1.06, 1], abs=0.008)


def test_a_foreign_process_is_listed() -> None:
    """NVML's list holds this process and another one; without the fault only this one."""
    assert open_modelled("h200").evidence().processes == (os.getpid(),)
    assert len(model("foreign_process").evidence().processes) == 2


def test_a_fault_for_all_kernels_leaves_probes_alone(tmp_path: Path, library: dict[str, Kernel]) -> None:
    """Without `kernel` a fault strikes kernels, not the timer self-test, and what is looked at beforehand uses nothing up."""
    path = tmp_path / "mine.toml"
    path.write_text("base = 'h200'\n[[fault]]\nkind = 'throttle'\ntimes = 1\n")
    gpu = open_modelled(str(path))
    assert gpu.evidence().reasons == 0x40
    with opened(gpu, sizes(8)) as [lane]:
        lane.probe()
        spin, work = prepared(lane, library["spin"]), prepared(lane, library["triad"])
        clocks = [block(gpu, lane, each)[3] for each in (spin, work, work)]
    assert clocks == pytest.approx([1980, 1188, 1980], rel=1e-3)


def test_memory_runs_out_when_preparing_or_later(library: dict[str, Kernel]) -> None:
    """Without `at_block` preparing fails each time; with it the launches of that block do, once, and the process lives on."""
    gpu = model("out_of_memory")
    with opened(gpu, sizes(8)) as [lane]:
        for _ in range(2):
            with pytest.raises(FailedError, match="out of memory: triad"):
                prepared(lane, library["triad"])
        work = prepared(lane, library["copy"])
        blocks(gpu, lane, work, 2)
        with pytest.raises(FailedError, match="out of memory: copy at 8 SMs, block 3"):
            work.launch()
        blocks(gpu, lane, work, 1)


def test_a_sticky_error_takes_the_whole_context(library: dict[str, Kernel]) -> None:
    """The illegal address shows when the stream is waited for, and every later call on any lane repeats it."""
    gpu = model("sticky")
    with opened(gpu, sizes(8, 16)) as [lane, struck]:
        work, victim = prepared(lane, library["triad"]), prepared(struck, library["triad"])
        blocks(gpu, lane, work, 1)
        victim.launch()
        with pytest.raises(StickyError, match=r"triad at 16 SMs.*700"):
            struck.sync()
        with pytest.raises(StickyError):
            lane.probe()
        with pytest.raises(StickyError):
            work.launch()


CHILD = """
import sys
from pathlib import Path
from greenbench.catalog import load_kernel
from greenbench.gpu.modelled import open_modelled
from greenbench.schema import Partition, SmsMode
kernel = load_kernel(Path(sys.argv[2]), "")
gpu = open_modelled(sys.argv[1])
with gpu.lanes([Partition(SmsMode.COUNT, 16)]) as [lane]:
    work = lane.prepare(kernel, dict(kernel.params))
    for number in (1, 2, 3):
        gpu.evidence()
        lane.probe()
        work.launch()
        print("launched", number, flush=True)
        lane.sync()
        lane.probe()
print("done", flush=True)
"""


def child(model_file: Path, folder: Path) -> subprocess.Popen[str]:
    """Run three blocks of triad at 16 SMs in a process of its own."""
    kernel = folder / "triad.cu"
    kernel.write_text(TRIAD)
    command = [sys.executable, "-c", CHILD, str(model_file), str(kernel)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_crash_kills_the_process_once(tmp_path: Path) -> None:
    """The process dies of SIGSEGV in block 2; the next one finds in the state file that this has happened, and ends well."""
    file = Path(shutil.copy(MODELS / "crash.toml", tmp_path))
    first = child(file, tmp_path)
    assert first.communicate(timeout=30)[0].split("\n")[:-1] == ["launched 1"]
    assert first.returncode == -signal.SIGSEGV
    second = child(file, tmp_path)
    assert second.communicate(timeout=30)[0].endswith("done\n")
    assert second.returncode == 0


def test_a_hang_ends_by_signal_only_and_once(tmp_path: Path) -> None:
    """The wait of block 2 does not return; SIGTERM ends it at once, and a restarted process gets past it."""
    file = Path(shutil.copy(MODELS / "hang_once.toml", tmp_path))
    first = child(file, tmp_path)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["launched 1\n", "launched 2\n"]
    time.sleep(0.3)
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=5) == -signal.SIGTERM
    assert first.stdout.read() == ""
    first.stdout.close()
    second = child(file, tmp_path)
    assert second.communicate(timeout=30)[0].endswith("done\n")


def test_a_state_file_that_is_none_is_refused(tmp_path: Path, library: dict[str, Kernel]) -> None:
    """A state file with other content is a usage error that says what to do."""
    path = tmp_path / "mine.toml"
    path.write_text("base = 'h200'\nstate = 'mine.state'\n[[fault]]\nkind = 'bimodal'\n")
    (tmp_path / "mine.state").write_text("not json")
    with opened(open_modelled(str(path)), sizes(8)) as [lane]:
        work = prepared(lane, library["triad"])
        with pytest.raises(UsageError, match=r"mine\.state.*delete it"):
            work.launch()


def test_what_is_updated_in_place_is_written(tmp_path: Path) -> None:
    """A buffer with state counts among the bytes written, as on a GPU."""
    source = TRIAD.replace('fill = "poison", access = "out"', 'fill = "normal", access = "state"').replace(
        'verify  = "copy"\n', ""
    )
    with opened(open_modelled("h200"), sizes(8)) as [lane]:
        assert prepared(lane, kernel_from(tmp_path, source, "axpy")).written_bytes == 4 << 28
