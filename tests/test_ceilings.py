"""Ceilings measured in a run: which rows set them, which rows they hold for, and when a row above one is flagged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from greenbench import bounds, facts
from greenbench.bufferspec import BufferSpec
from greenbench.ceilings import Launch, Launches, Way, binding, flagged, lane_of, launches, measured, way_of
from greenbench.expr import parse
from greenbench.gpu.buffers import written_bytes
from greenbench.journal import void_reason
from greenbench.schema import Block, BlockKind, BlockStatus, Flag, Partition, Point, Row, SmsMode

GIB = 1 << 30
H200 = facts.model_facts("h200").device
# Written bytes of a launch, by kernel; what is not here writes nothing.
WRITTEN = {"write": GIB, "copy": GIB, "triad": GIB, "copy.torch": GIB}


def row(kernel: str, rate: float, sms: int = 132, **changes: Any) -> Row:
    """An ok row of a streaming kernel over arrays of 1 GiB, at so many GB/s."""
    moved = {"read": 1, "write": 1, "dot": 2, "copy": 2, "triad": 3}.get(kernel.partition(".")[0], 1) * GIB
    base: dict[str, Any] = {
        "label": f"{kernel}@{sms}",
        "kernel": kernel,
        "family": "memory",
        "dtype": "float32",
        "sms_requested": str(sms),
        "sms_granted": sms,
        "timing": "steady",
        "status": "ok",
        "bytes": float(moved),
        "working_set_bytes": moved,
        "gb_per_s": rate,
        "time_us": moved / rate / 1e3,
        "bound_by": "memory",
    }
    return Row(**{**base, **changes})


def arithmetic(kernel: str, rate: float, dtype: str = "bfloat16", sms: int = 132, **changes: Any) -> Row:
    """An ok row of a GEMM or, by its name, of a peak probe, at so many TFLOP/s."""
    base: dict[str, Any] = {
        "family": "probe" if kernel.startswith("peak") else "gemm",
        "dtype": dtype,
        "flops": 1e12,
        "tflop_per_s": rate,
        "time_us": 1e6 / rate,
        "bound_by": "compute",
        **dict.fromkeys(("bytes", "gb_per_s", "working_set_bytes")),
    }
    return row(kernel, 1.0, sms, **{**base, **changes})


def launched(*rows: Row) -> Launches:
    """The launches of these rows, as the journal would tell them."""
    return {each.label: Launch(float(WRITTEN.get(each.kernel, 0)), 132, 1) for each in rows}


def nearest(of: Row, *rows: Row) -> tuple[str, str, float] | None:
    """What binds a row by measurement: what it is, whose, and which share of it the row reached."""
    everything = (of, *rows)
    seen = measured(H200, everything, launched(*everything))[lane_of(of)]
    term = binding(H200, of, launched(*everything)[of.label], seen)
    return None if term is None or not of.time_us else (term.by, term.ceiling.kernel, term.us / of.time_us)


def flags(*rows: Row) -> list[str]:
    """The flags of rows that are judged together."""
    return [each.flags for each in flagged(H200, rows, launched(*rows))]


@pytest.mark.parametrize(
    ("kernel", "way"), [("read", Way.READ), ("dot", Way.READ), ("write", Way.WRITE), ("copy", Way.MIXED), ("triad", Way.MIXED)]
)
def test_traffic_goes_one_way_or_both(kernel: str, way: Way) -> None:
    """Up to a tenth of the bytes the other way does not count: partial sums do not make a reduction a mix."""
    found = row(kernel, 4000)
    assert way_of(found, launched(found)[found.label]) is way
    assert way_of(row("read", 4000), Launch(GIB * 0.09)) is Way.READ


def test_an_update_in_place_is_a_mix() -> None:
    """y = a x + y: a third of the bytes is written, into the buffer that was read; the links carry it as they do triad's."""
    one = parse(GIB // 4, ())
    specs = [BufferSpec(name, "float32", one, "normal", access) for name, access in (("y", "state"), ("x", "in"))]
    written = written_bytes(specs, {"y": GIB, "x": GIB})
    assert written == GIB
    axpy = row("axpy", 4000, bytes=3.0 * GIB, working_set_bytes=2 * GIB)
    assert way_of(axpy, Launch(written)) is Way.MIXED
    link = {"sms": 8, "clock_mhz": 1980.0, "bytes": 3.0 * GIB}
    limits = facts.peaks(H200)
    assert bounds.link_gb_s(limits, **link, written=written) != bounds.link_gb_s(limits, **link, written=0)


def test_the_best_row_of_each_way_is_its_ceiling() -> None:
    """Per partition; a failed row, a vendor's, one within the L2 or one that fits four times into nothing sets none."""
    rows = [
        row("read", 4531),
        row("dot", 4400),
        row("write", 4660),
        row("copy", 4243),
        row("triad", 4360),
        row("read", 1268, 8),
        row("copy.torch", 4700),
        row("dot", 9999, label="failed", status="failed"),
        row("dot", 9000, label="small", working_set_bytes=H200.l2_bytes),
        row("dot", 8000, label="hot", timing="hot", working_set_bytes=H200.l2_bytes),
    ]
    found = measured(H200, rows, launched(*rows))
    full, few = found[lane_of(rows[0])], found[lane_of(rows[5])]
    assert {way: (c.rate, c.kernel) for way, c in full.hbm.items()} == {
        Way.READ: (4531, "read"),
        Way.WRITE: (4660, "write"),
        Way.MIXED: (4360, "triad"),
    }
    assert {way: c.rate for way, c in few.hbm.items()} == {Way.READ: 1268}
    assert full.l2 == few.l2 == {}


def test_what_stays_in_the_l2_measures_the_l2() -> None:
    """Timed hot, and at most three fifths of it: beyond, one half may push out what the other reads."""
    inside = row("l2_read", 6800, timing="hot", working_set_bytes=24 << 20)
    seen = measured(H200, [inside], launched(inside))[lane_of(inside)]
    assert seen.l2[Way.READ].rate == 6800
    assert seen.hbm == {}
    hot = row("read", 5000, timing="hot", working_set_bytes=16 << 20, bound_by="l2")
    assert nearest(hot, inside) == ("l2", "l2_read", pytest.approx(5000 / 6800))
    assert nearest(replace(hot, working_set_bytes=100 << 20), inside) is None
    large = replace(inside, working_set_bytes=int(0.61 * H200.l2_bytes))
    assert measured(H200, [large], launched(large))[lane_of(large)].l2 == {}


def test_partitions_do_not_mix() -> None:
    """The same count got in another way (granularity, workqueue, primary context) has ceilings of its own."""
    rows = [row("read", 4531, sms_requested="full")]
    for changes in ({"granularity": 2}, {"workqueue": "device_ctx"}, {"connections": 1}, {"sms_requested": "primary"}):
        other = row("dot", 4400, label="other", **changes)
        assert nearest(other, *rows) is None
    assert nearest(row("dot", 4400), *rows) == ("memory", "read", pytest.approx(4400 / 4531))


def test_one_way_is_held_against_its_own_way() -> None:
    """A reader's ceiling is the best reader, whatever writing reached; the best one has none above it."""
    read, dot, write = row("read", 4531), row("dot", 4400), row("write", 4660)
    assert nearest(dot, read, write) == ("memory", "read", pytest.approx(4400 / 4531))
    assert nearest(read, dot, write) is None
    assert nearest(write, read) is None


def test_a_mix_is_held_against_each_way_and_against_the_best() -> None:
    """On all SMs the bus binds: 4243 of 4660 GB/s. On 8 the link that writes does: half the bytes of a copy at 502 GB/s."""
    full = nearest(row("copy", 4243), row("read", 4531), row("write", 4660))
    assert full == ("memory", "write", pytest.approx(4243 / 4660))
    few = nearest(row("copy", 809, 8, bound_by="link"), row("read", 1268, 8), row("write", 502, 8))
    assert few == ("write", "write", pytest.approx(809 / 1004))
    assert nearest(row("triad", 4700), row("read", 4531), row("write", 4660)) is None


def test_arithmetic_is_held_against_the_probe_of_its_type() -> None:
    """float16 shares the unit and the rate of bfloat16; of fp32 or of a type without a probe nothing is known."""
    probes = (arithmetic("peak_tensor", 760.0), arithmetic("peak_fma", 60.0, "float32"))
    for dtype, kernel, rate in (("bfloat16", "peak_tensor", 760), ("float16", "peak_tensor", 760), ("float32", "peak_fma", 60)):
        assert nearest(arithmetic("gemm", 50.0, dtype), *probes) == ("compute", kernel, pytest.approx(50 / rate))
    assert nearest(arithmetic("gemm", 50.0, "e4m3"), *probes) is None
    assert nearest(probes[0], probes[1]) is None


def test_waves_count_for_kernels_of_ours_alone() -> None:
    """133 tiles on 132 SMs take two waves at the probe's rate; of a vendor's tiles nothing is known."""
    probe, ours, theirs = arithmetic("peak_tensor", 760.0), arithmetic("gemm", 300.0), arithmetic("gemm.cublas", 300.0)
    seen = measured(H200, [probe], launched(probe))[lane_of(probe)]
    tiles = Launch(None, 133, 1)
    term = binding(H200, ours, tiles, seen)
    assert term is not None
    assert term.by == "waves"
    assert term.us == pytest.approx(1e6 / 760 * 264 / 133)
    other = binding(H200, theirs, tiles, seen)
    assert other is not None
    assert (other.by, other.us) == ("compute", pytest.approx(1e6 / 760))


def test_nothing_is_said_where_what_binds_was_not_measured() -> None:
    """A GEMM that its arithmetic binds is not held against the bus alone, nor a stream against arithmetic alone."""
    gemm = arithmetic("gemm", 700.0, bytes=1e8, gb_per_s=70.0, working_set_bytes=100 << 20)
    assert nearest(gemm, row("read", 4531)) is None
    assert nearest(replace(gemm, bound_by="memory"), row("read", 4531)) is not None
    assert nearest(row("triad", 4360, flops=1e9, tflop_per_s=0.7), arithmetic("peak_fma", 60.0, "float32")) is None


def test_a_row_above_the_probe_of_its_lane_is_flagged() -> None:
    """2 % are allowed, the flag joins the others in their order, and the row keeps its figures."""
    read, dot = row("read", 4500), row("dot", 4500 * 1.021, flags="power_capped;profiled")
    assert flags(read, dot) == ["", "power_capped;above_bound;profiled"]
    assert flagged(H200, [read, dot], launched(read, dot))[1].gb_per_s == dot.gb_per_s
    assert flags(read, row("dot", 4500 * 1.019)) == ["", ""]
    assert flags(row("read", 4500, 64), row("dot", 4700)) == ["", ""]
    gemm = arithmetic("gemm.cublas", 800.0)
    assert flags(arithmetic("peak_tensor", 780.0), gemm) == ["", "above_bound"]
    assert flags(arithmetic("peak_tensor", 790.0), gemm) == ["", ""]


def test_of_a_mix_each_way_is_judged_by_itself() -> None:
    """A triad beats a copy without any wonder: turning the bus around costs less. Writing faster than `write` would be one."""
    streams = (row("read", 4531), row("write", 4660), row("copy", 4243))
    assert flags(*streams, row("triad", 4500)) == ["", "", "", ""]
    few = (row("read", 1268, 8), row("write", 502, 8))
    assert flags(*few, row("triad", 1480, 8)) == ["", "", ""]
    assert flags(*few, row("triad", 1560, 8)) == ["", "", "above_bound"]


def test_only_clear_cases_are_judged() -> None:
    """What the L2 may have kept, and rows that failed, are above nothing; of the L2 only reading has a probe."""
    read = row("read", 4500)
    assert flags(read, row("dot", 6000, working_set_bytes=2 * H200.l2_bytes)) == ["", ""]
    assert flags(read, row("dot", 6000, status="failed")) == ["", ""]
    inside = {"timing": "hot", "working_set_bytes": 16 << 20}
    probe = row("l2_read", 5000, **inside)
    assert flags(probe, row("dot", 5200, **inside), row("write", 9000, **inside)) == ["", "above_bound", ""]
    assert flags(read, row("dot", 6000, **inside)) == ["", ""]


def test_the_launch_is_that_of_the_latest_good_block() -> None:
    """Blocks taken back, discarded or without samples say nothing; a point without any has no launch."""
    point = Point("copy", (("n", 4),), Partition(SmsMode.COUNT, 8))

    def block(seq: int, grid: int, **changes: Any) -> Block:
        visit = Block.visit(point, BlockStatus.OK)
        return replace(visit, seq=seq, grid=grid, ctas_per_sm=2, written_bytes=16, samples_us=(1.0,), **changes)

    blocks = [block(0, 10), block(1, 11), block(2, 12, status=BlockStatus.DISCARDED), replace(block(3, 13), samples_us=())]
    labels = {blocks[0].key: "copy@8"}
    assert launches(labels, blocks) == {"copy@8": Launch(16, 11, 2)}
    void = replace(Block.visit(point, BlockStatus.OK, kind=BlockKind.VOID, reason=void_reason([1])), seq=4)
    assert launches(labels, [*blocks, void]) == {"copy@8": Launch(16, 10, 2)}
    assert launches(labels, blocks[2:]) == {}


def test_all_flags_keep_their_order() -> None:
    """A flag that is added does not move or lose another."""
    every = ";".join(flag for flag in Flag if flag is not Flag.ABOVE_BOUND)
    assert flags(row("read", 4500), row("dot", 5000, flags=every))[1] == ";".join(Flag)
