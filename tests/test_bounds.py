"""Bounds against the tables for the H200, and what a bound, a prediction and an impossible figure must always be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from greenbench import bounds, facts
from greenbench.schema import Backend, DeviceFacts, Row

MIB = 1 << 20
GIB = 1 << 30
MODEL = facts.model_facts("h200")
H200 = replace(MODEL.device, backend=Backend.CUDA)
PEAKS = MODEL.peaks
# The tables below know one rate of 64 B per clock and SM for both directions of a link.
ONE_RATE = replace(PEAKS, link_read_bytes_per_clk_sm=None, link_write_bytes_per_clk_sm=None)
UNKNOWN = replace(H200, name="NVIDIA X9000", compute_capability=(13, 0), max_mem_clock_mhz=None, mem_bus_bits=None)


def memory_bound(sms: int, size: float = 3 * GIB, peaks: facts.Peaks = PEAKS, **more: object) -> bounds.Bound:
    """The bound of a streaming kernel."""
    base = {"family": "memory", "dtype": "float32", "flops": None, "bytes": size, "sms": sms, "working_set_bytes": int(size)}
    found = bounds.bound(H200, peaks, **{**base, **more})  # type: ignore[arg-type]
    assert found is not None
    return found


def gemm_bound(sms: int, dtype: str = "bfloat16", **more: object) -> bounds.Bound:
    """The bound of a GEMM of 4096 cubed."""
    base = {
        "family": "gemm",
        "dtype": dtype,
        "flops": 2.0 * 4096**3,
        "bytes": 6.0 * 4096**2,
        "sms": sms,
        "working_set_bytes": 96 * MIB,
    }
    found = bounds.bound(H200, PEAKS, **{**base, **more})  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sms", "gb_s", "by"),
    [(8, 1014, "link"), (16, 2028, "link"), (24, 3041, "link"), (32, 4055, "link"), (48, 4814, "memory"), (132, 4814, "memory")],
)
def test_the_hbm_row_of_the_table(sms: int, gb_s: float, by: str) -> None:
    """Bound for HBM: 64 B per clock and SM, then the bus."""
    found = memory_bound(sms, peaks=ONE_RATE)
    assert 3 * GIB / found.us / 1e3 == pytest.approx(gb_s, rel=1e-3)
    assert found.by == by


@pytest.mark.parametrize(("written", "gb_s"), [(0, 8 * 81 * 1.98), (3 * GIB, 8 * 32 * 1.98), (1.5 * GIB, 2 * 8 * 32 * 1.98)])
def test_a_link_reads_and_writes_at_rates_of_its_own(written: float, gb_s: float) -> None:
    """8 SMs read at most 81 B and write at most 32 B per clock and SM; a copy is bound by what it writes."""
    found = memory_bound(8, written_bytes=written)
    assert 3 * GIB / found.us / 1e3 == pytest.approx(gb_s, rel=1e-3)
    assert found.by == "link"


@pytest.mark.parametrize(
    ("sms", "gb_s", "by"),
    [(8, 1014, "link"), (32, 4055, "link"), (48, 6083, "link"), (64, 8110, "link"), (96, 9780, "l2"), (132, 9780, "l2")],
)
def test_the_l2_row_of_the_table(sms: int, gb_s: float, by: str) -> None:
    """Bound for reads from the L2: the links, then the L2 itself; HBM has no part in it."""
    found = memory_bound(sms, 40 * MIB, peaks=ONE_RATE, resident=True)
    assert 40 * MIB / found.us / 1e3 == pytest.approx(gb_s, rel=1e-3)
    assert found.by == by


@pytest.mark.parametrize(
    ("sms", "tflop_s"),
    [(8, 64.9), (16, 129.8), (24, 194.6), (32, 259.5), (64, 519.0), (96, 778.6), (120, 973.2), (128, 1038.1), (132, 1070.5)],
)
def test_the_compute_row_of_the_table(sms: int, tflop_s: float) -> None:
    """Bound for bf16 at 1.98 GHz without quantisation."""
    found = gemm_bound(sms)
    assert 2 * 4096**3 / found.us / 1e6 == pytest.approx(tflop_s, rel=1e-3)
    assert found.by == "compute"


@pytest.mark.parametrize(
    ("tiles", "efficiencies"),
    [
        (512, {8: 100, 24: 97.0, 48: 97.0, 96: 88.9, 120: 85.3, 128: 100, 132: 97.0}),
        (1024, {8: 100, 24: 99.2, 48: 97.0, 96: 97.0, 120: 94.8, 128: 100, 132: 97.0}),
    ],
)
def test_wave_efficiencies_of_the_table(tiles: int, efficiencies: dict[int, float]) -> None:
    """Wave efficiency of 4096 x 4096 in 128x256 and 128x128 tiles; the bound is longer by its inverse."""
    for sms, share in efficiencies.items():
        assert 100 / bounds.quantisation(tiles, sms) == pytest.approx(share, abs=0.05)
        assert 100 * bounds.wave_efficiency(tiles, sms, 1) == pytest.approx(share, abs=0.05)
        assert gemm_bound(sms, grid=tiles).us == pytest.approx(gemm_bound(sms).us * 100 / share, rel=1e-3)


def test_waves_bind_where_they_cost_five_percent() -> None:
    """512 tiles on 120 SMs fill 85 % of five waves: said so; on 128 SMs they fill four: compute."""
    assert gemm_bound(120, grid=512).by == "waves"
    assert gemm_bound(128, grid=512).by == "compute"
    assert gemm_bound(132, grid=512).by == "compute"


def test_idle_sms_count_for_nothing() -> None:
    """One CTA on 132 SMs computes and moves like one SM."""
    assert gemm_bound(132, grid=1).us == pytest.approx(gemm_bound(1).us)
    assert memory_bound(132, grid=1).us == pytest.approx(memory_bound(1).us)


def test_occupancy_does_not_lengthen_the_bound() -> None:
    """396 CTAs on 132 SMs take three CTA times of an SM even where two run at once: waves of 264 would say four."""
    assert gemm_bound(132, grid=396, ctas_per_sm=2).us == gemm_bound(132, grid=396, ctas_per_sm=1).us
    assert bounds.wave_efficiency(396, 132, 2) == pytest.approx(0.75)


def test_the_measured_clock_goes_before_the_maximum() -> None:
    """At 1755 MHz the compute bound is 1755/1980 of that at 1980; a memory bound of the bus stays."""
    assert gemm_bound(132, sm_clock_mhz=1755.0).us == pytest.approx(gemm_bound(132).us * 1980 / 1755)
    assert memory_bound(132, sm_clock_mhz=1755.0) == memory_bound(132)


def test_dtypes_have_their_own_compute_bound() -> None:
    """fp8 twice as fast as bf16, tf32 half, fp32 a sixteenth; a GEMM in fp64 has the tensor core, a triad has not."""
    bf16 = gemm_bound(32).us
    assert gemm_bound(32, "fp8").us == pytest.approx(bf16 / 2)
    assert gemm_bound(32, "tf32").us == pytest.approx(bf16 * 2)
    assert gemm_bound(32, "float32").us == pytest.approx(bf16 * 16)
    assert gemm_bound(32, "float64", family="memory").us == pytest.approx(2 * gemm_bound(32, "float64").us)


def test_a_hot_working_set_above_the_l2_reads_the_rest_from_hbm() -> None:
    """Of 1 GiB read in a loop at most 60 MiB are cached: the bus carries the rest, so the bound is 6 % shorter."""
    cold, hot = memory_bound(132, GIB), memory_bound(132, GIB, resident=True)
    assert hot.by == cold.by == "memory"
    assert hot.us / cold.us == pytest.approx(1 - 60 / 1024)


@pytest.mark.parametrize("family", ["memory", "gemm"])
def test_a_hot_working_set_within_the_l1_still_crosses_the_links(family: str) -> None:
    """An L1 does not survive a launch and stores leave the SM: a triad of 64 x 192 KiB on 64 SMs is bound by links or L2."""
    size = 64 * 192 << 10
    work = {"dtype": "float32", "flops": size / 6, "bytes": float(size), "working_set_bytes": size, "resident": True}
    small = bounds.bound(H200, PEAKS, family=family, sms=64, written_bytes=size / 3, **work)  # type: ignore[arg-type]
    assert small is not None
    assert small.by == "l2"
    assert size / small.us / 1e3 == pytest.approx(9781, rel=1e-3)
    probe = bounds.bound(H200, PEAKS, family="probe", sms=64, **{**work, "flops": None})  # type: ignore[arg-type]
    assert probe is None


def test_what_is_unknown_has_no_bound() -> None:
    """Neither work nor an architecture that nobody has described gives a bound; nor does a partition without SMs."""
    chase = {"family": "latency", "dtype": "int64", "flops": None, "bytes": None, "sms": 8, "working_set_bytes": GIB}
    assert bounds.bound(H200, PEAKS, **chase) is None  # type: ignore[arg-type]
    work = {"family": "gemm", "dtype": "bfloat16", "flops": 1e12, "bytes": 1e9, "working_set_bytes": GIB}
    assert bounds.bound(UNKNOWN, facts.peaks(UNKNOWN), **work, sms=8) is None  # type: ignore[arg-type]
    assert bounds.bound(H200, PEAKS, **work, sms=0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("sms", "gb_s"), [(8, 906), (32, 3448), (132, 4146), (132, 4368)])
def test_no_measured_triad_beats_its_bound(sms: int, gb_s: float) -> None:
    """NVBench and BabelStream on an H200: 60 % of the links' rates on few SMs, 72 to 91 % of the bus."""
    share = memory_bound(sms, written_bytes=GIB).us / (3 * GIB / gb_s / 1e3)
    assert 0.55 < share < 0.92


@given(st.integers(1, 131), st.floats(1, 1e13), st.floats(1, 1e11), st.integers(1, 10**5))
def test_more_sms_never_lengthen_the_bound_of_untiled_work(sms: int, flops: float, size: float, extra: int) -> None:
    """Without a grid the bound falls or stays with every SM; with one it is at least that."""
    work = {"family": "gemm", "dtype": "bfloat16", "flops": flops, "bytes": size, "working_set_bytes": int(size) + 1}
    few = bounds.bound(H200, PEAKS, sms=sms, **work)  # type: ignore[arg-type]
    more = bounds.bound(H200, PEAKS, sms=sms + 1, **work)  # type: ignore[arg-type]
    tiled = bounds.bound(H200, PEAKS, sms=sms, grid=extra, **work)  # type: ignore[arg-type]
    assert few is not None
    assert more is not None
    assert tiled is not None
    assert 0 < more.us <= few.us <= tiled.us * (1 + 1e-12)


@given(st.integers(1, 132), st.floats(1e3, 1e13), st.floats(1e3, 1e11), st.booleans(), st.one_of(st.none(), st.integers(1, 4096)))
def test_a_prediction_is_never_better_than_its_bound(sms: int, flops: float, size: float, hot: bool, grid: int | None) -> None:
    """What the model says a kernel takes is longer than the bound, at every size and count."""
    work = {"family": "gemm", "dtype": "bfloat16", "flops": flops, "bytes": size, "working_set_bytes": int(size), "sms": sms}
    limit = bounds.bound(MODEL.device, PEAKS, grid=grid, resident=hot, **work)  # type: ignore[arg-type]
    assert limit is None or bounds.predict(MODEL, grid=grid, resident=hot, **work).us > limit.us  # type: ignore[arg-type]


@pytest.mark.parametrize(("sms", "gb_s"), [(8, 906), (32, 3448), (48, 3965), (64, 4293), (132, 4368)])
def test_the_prediction_is_near_the_h200(sms: int, gb_s: float) -> None:
    """Triad and torch add of 1 GiB: within 7 % of what was measured at every count."""
    found = bounds.predict(
        MODEL, family="memory", dtype="float32", flops=None, bytes=3.0 * GIB, sms=sms, working_set_bytes=3 * GIB
    )
    assert 3 * GIB / found.us / 1e3 == pytest.approx(gb_s, rel=0.07)
    assert found.by == ("link" if sms < 38 else "memory")


@pytest.mark.parametrize(("sms", "gb_s"), [(8, 500), (16, 1006), (32, 2010), (64, 3972), (132, 4645)])
def test_writes_are_predicted_at_the_rate_of_writes(sms: int, gb_s: float) -> None:
    """A link writes 32 B per clock, half of what it moves of mixed traffic: near the 500 GB/s of 8 SMs, not 900."""
    found = bounds.predict(
        MODEL,
        family="memory",
        dtype="float32",
        flops=None,
        bytes=1.0 * GIB,
        sms=sms,
        working_set_bytes=GIB,
        written_bytes=1.0 * GIB,
    )
    assert GIB / found.us / 1e3 == pytest.approx(gb_s, rel=0.09)


@given(st.integers(1, 132), st.floats(1e3, 1e11), st.floats(0, 1), st.booleans(), st.sampled_from(facts.model_names()))
def test_a_prediction_knows_both_directions(sms: int, size: float, share: float, hot: bool, name: str) -> None:
    """Whatever share of the traffic is written, on every model, the prediction is longer than the bound."""
    model = facts.model_facts(name)
    work = {"family": "memory", "dtype": "float32", "flops": None, "bytes": size, "written_bytes": share * size}
    work |= {"working_set_bytes": int(size), "sms": sms, "resident": hot}
    limit = bounds.bound(model.device, model.peaks, **work)  # type: ignore[arg-type]
    assert limit is not None
    assert bounds.predict(model, **work).us > limit.us  # type: ignore[arg-type]


def test_an_empty_kernel_takes_a_launch() -> None:
    """Without work the prediction is the launch; a little work comes on top without a jump."""
    empty = {"family": "probe", "dtype": "", "flops": None, "bytes": None, "sms": 8, "working_set_bytes": 0}
    assert bounds.predict(MODEL, **empty) == bounds.Bound(MODEL.launch_us, "launch")  # type: ignore[arg-type]
    times = [
        bounds.predict(MODEL, **{**empty, "bytes": float(size), "working_set_bytes": size}).us  # type: ignore[arg-type]
        for size in range(100_000, 10_000_000, 100_000)
    ]
    steps = [b - a for a, b in itertools.pairwise(times)]
    assert max(steps) < 1.01 * min(steps)


@pytest.mark.parametrize(("size", "cycles"), [(16 * 1024, 33.7), (8 * MIB, 275), (32 * MIB, 408), (48 * MIB, 507), (GIB, 661)])
def test_latencies_are_near_the_h200(size: int, cycles: float) -> None:
    """RRZE gpu-latency on an H200, 16 KiB to 1 GiB, within 5 %."""
    assert bounds.latency_cycles(MODEL, size) == pytest.approx(cycles, rel=0.05)


@given(st.integers(1, 1 << 40), st.sampled_from(facts.model_names()))
def test_latency_grows_with_the_working_set(size: int, name: str) -> None:
    """From L1 to HBM without a step back, at any size, on every model."""
    model = facts.model_facts(name)
    here, beyond = bounds.latency_cycles(model, size), bounds.latency_cycles(model, 2 * size)
    assert model.l1_cycles <= here <= beyond <= model.hbm_cycles


def judged(**more: object) -> Row:
    """A row as `impossible` sees it."""
    base = {"dtype": "float32", "sms_granted": 132, "time_us": 100.0, "working_set_bytes": 2 * GIB}
    return Row(**{**base, **more})  # type: ignore[arg-type]


def test_above_the_bus_is_impossible() -> None:
    """5000 GB/s of 2 GiB read on a 4814 GB/s bus cannot be, even if the L2 held 60 MiB; 4800 can."""
    fast = judged(bytes=2.0 * GIB, time_us=2 * GIB / 5200e3)
    assert bounds.impossible(H200, PEAKS, fast) == "impossible: 5048 GB/s past the L2 is above 102 % of the HBM bus (4814 GB/s)"
    assert bounds.impossible(H200, PEAKS, judged(bytes=2.0 * GIB, time_us=2 * GIB / 4800e3)) == ""


def test_what_the_l2_can_hold_is_no_proof() -> None:
    """114 % of the bus by a write of 256 MiB is true (60 MiB stay in the L2); a set within the L2 is not judged by HBM."""
    write = judged(bytes=256.0 * MIB, working_set_bytes=256 * MIB, time_us=256 * MIB / (1.14 * 4814e3))
    assert bounds.impossible(H200, PEAKS, write) == ""
    resident = judged(bytes=32.0 * MIB, working_set_bytes=32 * MIB, time_us=32 * MIB / 9000e3)
    assert bounds.impossible(H200, PEAKS, resident) == ""
    looped = judged(bytes=1e12, working_set_bytes=32 * MIB, time_us=1e12 / 9000e3)
    assert bounds.impossible(H200, PEAKS, looped) == ""


def test_many_passes_over_a_large_set_are_judged() -> None:
    """Each pass can spare one L2, not more: 100 passes over 256 MiB at 3 times the bus are impossible."""
    passes = judged(bytes=100 * 256.0 * MIB, working_set_bytes=256 * MIB, time_us=100 * 256 * MIB / (3 * 4814e3))
    assert "HBM bus" in bounds.impossible(H200, PEAKS, passes)


def test_above_the_tensor_peak_is_impossible() -> None:
    """bf16 on 8 of 132 SMs has 64.9 TFLOP/s at 1980 MHz: 67 is impossible there, 66 within 2 %, 67 on 16 SMs is fine."""
    rate = {"dtype": "bfloat16", "flops": 67e6 * 100, "time_us": 100.0}
    assert "67 TFLOP/s is above 102 % of the bfloat16 peak of 8 SMs at 1980 MHz (64.88 TFLOP/s)" in bounds.impossible(
        H200, PEAKS, judged(**rate, sms_granted=8)
    )
    assert bounds.impossible(H200, PEAKS, judged(**{**rate, "flops": 66e8}, sms_granted=8)) == ""
    assert bounds.impossible(H200, PEAKS, judged(**rate, sms_granted=16)) == ""


def test_float32_may_have_used_tf32() -> None:
    """A user's float32 GEMM at 300 TFLOP/s is above the FFMA rate and possible on tensor cores; at 600 it is not."""
    assert bounds.impossible(H200, PEAKS, judged(flops=300e8)) == ""
    assert "float32 peak" in bounds.impossible(H200, PEAKS, judged(flops=600e8))


def test_nothing_is_impossible_where_nothing_is_known() -> None:
    """No time, no work, an unknown GPU, an unknown dtype or an unknown maximum clock: no judgement."""
    assert bounds.impossible(H200, PEAKS, judged(time_us=None, bytes=1e15, flops=1e15)) == ""
    assert bounds.impossible(H200, PEAKS, judged()) == ""
    assert bounds.impossible(UNKNOWN, facts.peaks(UNKNOWN), judged(bytes=1e15, flops=1e18)) == ""
    assert bounds.impossible(H200, PEAKS, judged(dtype="int64", flops=1e18)) == ""
    unclocked: DeviceFacts = replace(H200, max_sm_clock_mhz=None)
    assert bounds.impossible(unclocked, facts.peaks(unclocked), judged(dtype="bfloat16", flops=1e18)) == ""


def test_above_a_ceiling_by_two_percent_is_flagged() -> None:
    """1.02 times is within the allowance, more is not, and a ceiling that is unknown flags nothing."""
    assert not bounds.above_bound(4910.0, 4814.0)
    assert bounds.above_bound(4911.0, 4814.0)
    assert not bounds.above_bound(None, 4814.0)
    assert not bounds.above_bound(1.0, None)
    assert not bounds.above_bound(1.0, 0.0)


def test_ceilings_of_a_partition() -> None:
    """32 SMs: 5132 GB/s read over their links, 4814 on the bus, 259.5 TFLOP/s in bf16 at 1980 MHz; 239.8 at the nominal clock."""
    found = bounds.ceilings(H200, PEAKS, 32)
    assert found.link_gb_s == found.resident_gb_s == pytest.approx(5132, abs=1)
    assert found.memory_gb_s == pytest.approx(4814, abs=1)
    assert bounds.ceilings(H200, PEAKS, 132).memory_gb_s == pytest.approx(4814, abs=1)
    assert bounds.ceilings(H200, PEAKS, 132).resident_gb_s == pytest.approx(9781, abs=1)
    assert found.tflop_s["bf16"] == pytest.approx(259.5, abs=0.1)
    assert bounds.ceilings(H200, PEAKS, 32, PEAKS.nominal_mhz).tflop_s["bf16"] == pytest.approx(239.9, abs=0.1)
    nothing = bounds.ceilings(UNKNOWN, facts.peaks(replace(UNKNOWN, max_sm_clock_mhz=None)), 32)
    assert (nothing.memory_gb_s, nothing.resident_gb_s, nothing.tflop_s) == (None, None, {})
