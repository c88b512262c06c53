"""The knee of a curve: the fewest SMs within 5 % of the full device, where that was measured, and what binds around it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from greenbench.knee import knee
from greenbench.schema import Row


def row(asked: str, sms: int | None, gb_s: float | None, by: str = "", **more: object) -> Row:
    """One point of a triad."""
    base = {
        "kernel": "triad",
        "family": "memory",
        "sms_requested": asked,
        "sms_granted": sms,
        "gb_per_s": gb_s,
        "time_us": 3e6 / gb_s if gb_s else None,
        "bound_by": by,
        "status": "ok",
    }
    return Row(**{**base, **more})  # type: ignore[arg-type]


def triad(*, full: float = 4368.0) -> list[Row]:
    """The triad of an H200."""
    known = {8: 906, 16: 1780, 24: 2650, 32: 3448, 48: 4080, 64: 4290, 96: 4251}
    rows = [row(str(sms), sms, rate, "link" if sms < 38 else "memory") for sms, rate in known.items()]
    return [*rows, row("full", 132, full, "memory")]


def test_the_knee_is_the_fewest_sms_within_five_percent() -> None:
    """64 SMs give 98.2 % of the full device, 48 give 93.4 %."""
    found = knee(triad())
    assert found is not None
    assert (found.sms, found.full_sms, found.below_sms) == (64, 132, 48)
    assert found.share_pct == pytest.approx(98.2, abs=0.05)
    assert found.below_share_pct == pytest.approx(93.4, abs=0.05)


def test_the_words_name_what_binds_on_each_side() -> None:
    """Below the links, above the bus; the same on both sides is said once; without bounds it is not guessed."""
    coarse = [found for found in triad() if found.sms_granted != 48]
    found = knee(coarse)
    assert found is not None
    assert found.sentence == (
        "triad: knee at 64 of 132 SMs, 98 % of the full device; below it the links of the SMs bind, above it HBM binds."
    )
    same = knee(triad())
    assert same is not None
    assert same.sentence.endswith("; on both sides HBM binds.")
    bare = knee([row("8", 8, 100), row("16", 16, 190), row("full", 132, 191)])
    assert bare is not None
    assert bare.sentence == (
        "triad: knee at 16 of 132 SMs, 99 % of the full device, the largest count measured below 132; what binds is not known."
    )


def test_there_is_no_knee_without_the_full_device() -> None:
    """Missing, failed, or measured on the primary context alone: the curve has no knee, whatever its shape."""
    rows = triad()
    assert knee(rows[:-1]) is None
    assert knee([*rows[:-1], row("full", None, None, status="failed", reason="throttled")]) is None
    assert knee([*rows[:-1], row("primary", 132, 4368)]) is None
    assert knee([*rows[:-1], row("132", 132, 4368)]) is None
    assert knee([]) is None


def test_the_primary_context_is_never_the_knee() -> None:
    """A primary row with the best figure neither moves nor becomes the knee."""
    found = knee([row("primary", 132, 9000), *triad()])
    assert found is not None
    assert found.sms == 64


def test_points_that_are_not_ok_do_not_count() -> None:
    """A failed row that carries a figure is passed over: the knee is the next count."""
    rows = [row("64", 64, 4290, status="failed") if found.sms_granted == 64 else found for found in triad()]
    found = knee(rows)
    assert found is not None
    assert found.sms == 96


def test_a_kernel_that_gains_to_the_end_says_so() -> None:
    """Where only the full device is near itself, the sentence names the largest count below and its share."""
    found = knee([row("64", 64, 300, "compute"), row("128", 128, 577, "compute"), row("full", 132, 793, "compute")])
    assert found is not None
    assert found.at_full
    assert found.sentence == ("triad still gains at all 132 SMs: 128 SMs give 73 % of it; there the arithmetic of the SMs binds.")


def test_the_smallest_count_can_be_the_knee() -> None:
    """Then nothing is known below it, and the sentence says that it is the fewest measured, or the only count."""
    alone = knee([row("8", 8, 99, "memory"), row("full", 132, 100, "memory")])
    found = knee([row("8", 8, 99, "memory"), row("16", 16, 99, "memory"), row("full", 132, 100, "memory")])
    assert found is not None
    assert alone is not None
    lead = "triad: knee at 8 of 132 SMs, 99 % of the full device"
    assert found.sentence == f"{lead}, the fewest measured; HBM binds."
    assert alone.sentence == f"{lead}, the only count measured below 132; HBM binds."


def test_a_knee_at_the_last_count_below_full_is_said_to_be_that() -> None:
    """Nothing was measured between it and the full device; a knee with counts above it says nothing of the kind."""
    rows = triad()
    few = knee([row for row in rows if row.sms_granted in {8, 32, 64, 132}])
    assert few is not None
    assert few.last
    assert few.sentence.startswith(
        "triad: knee at 64 of 132 SMs, 98 % of the full device, the largest count measured below 132; below it the links"
    )
    more = knee(rows)
    assert more is not None
    assert not more.last
    assert "largest" not in more.sentence


@pytest.mark.parametrize(("largest", "said"), [(64, False), (65, False), (66, True), (96, True)])
def test_gains_to_the_end_need_a_count_in_the_upper_half(largest: int, said: bool) -> None:
    """From 65 of 132 SMs nothing follows about where the curve flattens above it, so nothing is said."""
    found = knee([row("8", 8, 100), row(str(largest), largest, 800), row("full", 132, 1600)])
    assert (found is not None) is said
    assert found is None or found.sentence.startswith("triad still gains at all 132 SMs: ")


def test_the_full_device_alone_has_no_knee() -> None:
    """One point is no curve."""
    assert knee([row("full", 132, 4368)]) is None


def test_scaling_need_not_be_monotone() -> None:
    """cuBLAS is slower on 120 SMs than on 96: the knee is the first count that reaches 95 %, later dips do not undo it."""
    found = knee([row("96", 96, 572), row("120", 120, 555), row("full", 132, 590)])
    assert found is not None
    assert found.sms == 96


def test_work_that_grows_with_the_partition_is_compared_by_its_rate() -> None:
    """Times differ by the work, rates do not: the knee is read off the rate."""
    rows = [row("8", 8, 500, time_us=10.0), row("full", 132, 510, time_us=160.0)]
    found = knee(rows)
    assert found is not None
    assert found.sms == 8


def test_a_gemm_is_judged_by_its_flops() -> None:
    """Its GB/s would say the same, but a GEMM without bytes has none."""
    rows = [row(str(s), s, None, family="gemm", tflop_per_s=rate, time_us=1e3 / rate) for s, rate in ((64, 500.0), (96, 570.0))]
    found = knee([*rows, row("full", 132, None, family="gemm", tflop_per_s=580.0, time_us=1.7)])
    assert found is not None
    assert found.sms == 96


@pytest.mark.parametrize("family", ["latency", "probe"])
def test_kernels_that_do_not_divide_their_work_have_no_knee(family: str) -> None:
    """A pointer chase is as fast on 8 SMs as on 132, which says nothing about scaling."""
    assert knee([row("8", 8, 10, family=family), row("full", 132, 10, family=family)]) is None


@given(
    st.lists(st.tuples(st.integers(1, 131), st.floats(1, 5000)), min_size=1, max_size=20, unique_by=lambda p: p[0]), st.randoms()
)
def test_the_knee_holds_whatever_the_curve(places: list[tuple[int, float]], source: random.Random) -> None:
    """It is a measured count, reaches 95 %, no smaller one does, and the order of rows does not matter."""
    rows = [row(str(sms), sms, rate) for sms, rate in places] + [row("full", 132, 4000)]
    found = knee(rows)
    if found is None:
        assert all(rate < 0.95 * 4000 and sms < 66 for sms, rate in places)
        return
    assert found.share_pct >= 95 - 1e-9
    assert found.sms in {132, *(sms for sms, _ in places)}
    assert all(rate < 0.95 * 4000 for sms, rate in places if sms < found.sms)
    assert knee(source.sample(rows, len(rows))) == found
    assert "nan" not in found.sentence


def test_a_faster_partition_says_that_the_full_device_is_slower() -> None:
    """111 % of the full device would leave the reader to find out what that means; 101 % is as fast."""
    slower = knee([row("32", 32, 2900), row("64", 64, 4000), row("full", 132, 3600)])
    alike = knee([row("32", 32, 2900), row("64", 64, 3640), row("full", 132, 3600)])
    assert slower is not None
    assert alike is not None
    assert "64 of 132 SMs, 111 % of the full device (which is slower), the largest count" in slower.sentence
    assert "slower" not in alike.sentence


def test_nothing_binds_beyond_what_it_gives() -> None:
    """At 171 % of the bus part of the bytes came from the L2: that is said, and no share of HBM; within 2 % HBM binds."""
    near = {"bound_pct": 101.0}
    rows = [
        row("32", 32, 4000, "memory", **near),
        row("64", 64, 8200, "memory", bound_pct=171.0),
        row("full", 132, 8200, "memory", bound_pct=171.0),
    ]
    found = knee(rows)
    assert found is not None
    assert found.sentence.endswith("; below it HBM binds, above it the L2 serves part of it.")
