"""Figures of a run: what is drawn, what is left out, what is written; the rows are like those of an H200."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from greenbench import bounds, facts
from greenbench.errors import OutputError
from greenbench.plots import draw_run, figures, style
from greenbench.plots.curves import binary_size, rows_of, run_of
from greenbench.schema import Backend, BoundRow, DeviceFacts, Family, KernelSummary, Row, RunMeta

COUNTS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128)
GIB = 1 << 30

# Figures at 8, 16, 24, 32, 48, 64, 96, 132 SMs (cuBLAS at more): NVBench, torch and BabelStream on an H200.
RATES: dict[str, dict[int, float]] = {
    "copy": {8: 639, 16: 1229, 24: 1776, 32: 2274, 48: 3102, 64: 3659, 96: 3968, 132: 4262},
    "triad": {8: 906, 16: 1780, 24: 2650, 32: 3448, 48: 4080, 64: 4290, 96: 4251, 132: 4368},
    "read": {8: 892, 16: 1759, 24: 2671, 32: 3171, 48: 3967, 64: 4270, 96: 4465, 132: 4537},
    "write": {8: 500, 16: 1006, 24: 1508, 32: 2010, 48: 3000, 64: 3972, 96: 4594, 132: 4645},
}
GEMMS: dict[str, dict[int, float]] = {
    "gemm_bf16": {
        8: 40.1,
        16: 79.8,
        24: 118,
        32: 157,
        48: 232,
        64: 309,
        80: 378,
        96: 442,
        112: 498,
        120: 530,
        128: 577,
        132: 584,
    },
    "gemm_bf16.cublas": {
        **{8: 55.2, 16: 108.4, 24: 162.1, 32: 209.3, 48: 321.9, 64: 389.2, 80: 502},
        **{96: 571.9, 104: 567, 112: 558.9, 120: 555.5, 128: 637.5, 132: 792.6},
    },
    "gemm_fp32": {
        **{8: 3.0, 16: 5.9, 24: 8.8, 32: 12.1, 48: 17.6, 64: 24.6, 80: 28.4},
        **{96: 33.2, 104: 39.5, 112: 39.6, 120: 39.4, 128: 48.6, 132: 49.1},
    },
}
CHASE = {16 << 10: 33.7, 128 << 10: 42.5, 8 << 20: 275.4, 32 << 20: 408.0, 48 << 20: 507.3, GIB: 660.7}


def device(backend: Backend = Backend.CUDA, name: str = "NVIDIA H200") -> DeviceFacts:
    """An H200 as the driver shows it."""
    model = facts.model_facts("h200").device
    return replace(model, backend=backend, name=name, uuid="GPU-1", driver="580.159.04", nvrtc="13.0")


def between(known: dict[int, float], sms: int) -> float:
    """Interpolate a published curve."""
    xs = sorted(known)
    low = max(x for x in xs if x <= sms)
    high = min(x for x in xs if x >= sms)
    return known[low] if low == high else known[low] + (known[high] - known[low]) * (sms - low) / (high - low)


def row(kernel: str, sms: int, asked: str, **more: object) -> Row:
    """One row of the run; figures follow from `rate` (GB/s or TFLOP/s) and the work."""
    family = Family.GEMM if kernel.startswith("gemm") else Family.MEMORY
    base = {
        "label": f"{kernel}@{asked}/driver_default/steady",
        "device": "NVIDIA H200",
        "backend": "cuda",
        "kernel": kernel,
        "family": family.value,
        "dtype": "bfloat16" if "bf16" in kernel else "float32",
        "sms_requested": asked,
        "sms_granted": sms,
        "placement": "confined",
        "workqueue": "driver_default",
        "timing": "steady",
        "sm_clock_mhz": 1980.0,
        "status": "ok",
    }
    return Row(**{**base, **more})  # type: ignore[arg-type]


def timed(found: Row, us: float, *, spread: float = 0.003, grid: int | None = None) -> Row:
    """Add time, interval, rates and bound to a row."""
    dev = device()
    limit = bounds.bound(
        dev,
        facts.peaks(dev),
        family=found.family,
        dtype=found.dtype,
        flops=found.flops,
        bytes=found.bytes,
        sms=found.sms_granted or 0,
        working_set_bytes=found.working_set_bytes,
        sm_clock_mhz=found.sm_clock_mhz,
        grid=grid,
    )
    return replace(
        found,
        time_us=us,
        time_us_ci_low=us * (1 - spread),
        time_us_ci_high=us * (1 + spread),
        tflop_per_s=found.flops / us / 1e6 if found.flops else None,
        gb_per_s=found.bytes / us / 1e3 if found.bytes else None,
        bound_us=limit.us if limit else None,
        bound_by=limit.by if limit else "",
    )


def memory_row(kernel: str, sms: int, asked: str) -> Row:
    """A bandwidth kernel over 1 GiB arrays."""
    moved = {"copy": 2, "triad": 3, "read": 1, "write": 1}[kernel] * GIB
    flops = GIB / 2 if kernel == "triad" else None
    found = row(kernel, sms, asked, params="n=268435456", bytes=float(moved), flops=flops, working_set_bytes=moved)
    return timed(found, moved / between(RATES[kernel], sms) / 1e3)


def gemm_row(kernel: str, sms: int, asked: str) -> Row:
    """A GEMM of 4096 cubed."""
    found = row(
        kernel, sms, asked, params="m=4096,n=4096,k=4096", flops=2.0 * 4096**3, bytes=6.0 * 4096**2, working_set_bytes=6 * 4096**2
    )
    grid = None if kernel.endswith("cublas") else 1024
    return timed(found, 2 * 4096**3 / between(GEMMS[kernel], sms) / 1e6, spread=0.006, grid=grid)


def other_rows(sms: int, asked: str) -> list[Row]:
    """The pointer chase at each working set, and the empty kernel."""
    rows = []
    for size, median in CHASE.items():
        found = row(
            "chase", sms, asked, family="latency", dtype="int64", params=f"bytes={size}", timing="hot", working_set_bytes=size
        )
        cycles = median + sms % 7 / 10
        rows.append(replace(found, time_us=cycles * 4096 / 1980, latency_cycles=cycles, latency_ns=cycles / 1.98))
    empty = row("null_launch", sms, asked, family="probe", dtype="", timing="graph")
    rows.append(replace(empty, time_us=1.31 + sms / 2000, time_us_ci_low=1.29 + sms / 2000, time_us_ci_high=1.33 + sms / 2000))
    return rows


def with_efficiency(rows: list[Row]) -> list[Row]:
    """Add the efficiency against the smallest count of each kernel."""
    out = []
    for found in rows:
        base = min((r for r in rows if (r.kernel, r.params) == (found.kernel, found.params)), key=lambda r: r.sms_granted or 0)
        share = 100 * (base.time_us or 0) * (base.sms_granted or 0) / ((found.time_us or 1) * (found.sms_granted or 1))
        out.append(found if found.sms_requested == "primary" else replace(found, efficiency_pct=share))
    return out


def full_run() -> list[Row]:
    """All kernels at 8 to 128 SMs, full and primary, with failed and unsupported points among them."""
    places = [*((sms, str(sms)) for sms in COUNTS), (132, "full"), (132, "primary")]
    rows: list[Row] = []
    for sms, asked in places:
        rows += [memory_row(kernel, sms, asked) for kernel in RATES]
        rows += [gemm_row(kernel, sms, asked) for kernel in GEMMS]
        rows += other_rows(sms, asked)
    return with_efficiency(rows)


def without(rows: list[Row], kernel: str, asked: str, status: str, reason: str) -> list[Row]:
    """Replace one point by a row that has no figure."""
    bare = row(
        kernel,
        0,
        asked,
        params=next(r.params for r in rows if r.kernel == kernel),
        status=status,
        reason=reason,
        sms_granted=None,
    )
    return [bare if (r.kernel, r.sms_requested) == (kernel, asked) else r for r in rows]


def meta(backend: Backend = Backend.CUDA, **more: object) -> RunMeta:
    """What the run knows of itself."""
    known = [
        ("copy", "memory"),
        ("triad", "memory"),
        ("read", "memory"),
        ("write", "memory"),
        ("gemm_bf16", "gemm"),
        ("gemm_fp32", "gemm"),
    ]
    kernels = [
        KernelSummary(name=n, family=Family(f), dtype="float32", summary=f"What {n} does, in one sentence.", digest="d")
        for n, f in known
    ]
    kernels.append(
        KernelSummary(
            name="gemm_bf16.cublas", family=Family.GEMM, dtype="bfloat16", summary="", digest="", yardstick_of="gemm_bf16"
        )
    )
    base = {
        "run_id": "20261130-031500-h200",
        "created": "2026-11-30T03:15:00+00:00",
        "greenbench": "0.1.0",
        "command": "sweep",
        "argv": (),
        "seed": 1,
        "device": device(backend),
        "kernels": tuple(kernels),
    }
    return RunMeta(**{**base, **more})  # type: ignore[arg-type]


def frame(rows: list[Row], folder: Path) -> pd.DataFrame:
    """Return rows as they come back from rows.csv."""
    path = folder / "rows.csv"
    pd.DataFrame([asdict(found) for found in rows]).to_csv(path, index=False)
    return pd.read_csv(path)


def drawn(
    rows: list[Row], about: RunMeta | None = None, folder: Path | None = None, limits: Sequence[BoundRow] = ()
) -> dict[str, Figure]:
    """Return the figures of a run by the stem of their files."""
    table = pd.DataFrame([asdict(found) for found in rows]) if folder is None else frame(rows, folder)
    with style.context():
        return dict(figures(run_of(table, about or meta(), limits)))


def lines(figure: Figure, gid: str) -> list[Line2D]:
    """Return the lines of one role."""
    return [line for axes in figure.axes for line in axes.get_lines() if line.get_gid() == gid]


def points(figure: Figure, gid: str) -> list[tuple[float, float]]:
    """Return the points of all lines of one role."""
    return [(float(x), float(y)) for line in lines(figure, gid) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def words(figure: Figure) -> str:
    """Return every text that the figure shows, ticks and key included."""
    figure.draw_without_rendering()
    return "\n".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


def test_a_run_has_its_figures_as_png_and_svg(tmp_path: Path) -> None:
    """One scaling figure per kernel, overview, efficiency, latency; the yardstick has none of its own; nothing else is left."""
    out = tmp_path / "plots"
    paths = draw_run(frame(full_run(), tmp_path), meta(), out)
    stems = [f"scaling_{kernel}" for kernel in (*RATES, "gemm_bf16", "gemm_fp32", "chase", "null_launch")]
    stems += ["overview", "efficiency", "latency"]
    assert paths == [out / f"{stem}.{suffix}" for stem in stems for suffix in ("png", "svg")]
    assert sorted(paths) == sorted(out.iterdir())
    assert all(path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml") for path in paths)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    """SVG and PNG hold no date, no random ids: two drawings are equal, so a committed plot changes only with its data."""
    table = frame([memory_row("triad", 8, "8"), memory_row("triad", 16, "16")], tmp_path)
    once, again = draw_run(table, meta(), tmp_path / "a"), draw_run(table, meta(), tmp_path / "b")
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


def test_points_are_the_rows_and_x_starts_at_zero(tmp_path: Path) -> None:
    """Every count is drawn at what was granted with its figure; `full` and `primary` have markers of their own."""
    rows = [replace(memory_row("triad", 16, "12")), *(memory_row("triad", s, str(s)) for s in (24, 32))]
    rows += [memory_row("triad", 132, "full"), memory_row("triad", 132, "primary")]
    figure = drawn(rows, folder=tmp_path)["scaling_triad"]
    assert points(figure, "count") == [(s, pytest.approx(RATES["triad"].get(s, 1780))) for s in (16, 24, 32)]
    assert points(figure, "full") == points(figure, "primary") == [(132, pytest.approx(4368))]
    assert lines(figure, "full")[0].get_marker() != lines(figure, "primary")[0].get_marker()
    assert figure.axes[0].get_xlim()[0] == figure.axes[0].get_ylim()[0] == 0


def test_the_primary_context_is_not_on_the_curve() -> None:
    """A row without a partition is a baseline beside the curve: the line ends at the largest green context."""
    rows = [memory_row("copy", s, str(s)) for s in (8, 16)] + [memory_row("copy", 132, "primary")]
    figure = drawn(rows)["scaling_copy"]
    assert [x for x, _ in points(figure, "measured")] == [8, 16]
    assert not lines(figure, "full")


def test_a_point_without_a_figure_leaves_a_gap_and_says_why(tmp_path: Path) -> None:
    """The line is broken there, an x stands on the axis, the reason is on the figure, and no nan and no zero is."""
    rows = [memory_row("triad", s, str(s)) for s in (8, 16, 24, 32)]
    rows = without(rows, "triad", "16", "unsupported", "the driver refuses 16 SMs (915); nearest sizes: 8 and 24")
    rows[2] = replace(rows[2], time_us=None, gb_per_s=None, tflop_per_s=None, bound_us=None)
    figure = drawn(rows, folder=tmp_path)["scaling_triad"]
    curve = points(figure, "measured")
    assert [x for x, _ in curve] == [8, 16, 24, 32]
    assert [math.isnan(y) for _, y in curve] == [False, True, True, False]
    assert points(figure, "gap") == [(16, 0), (24, 0)]
    text = words(figure)
    assert "× 16 SMs: unsupported: the driver refuses 16 SMs (915); nearest sizes: 8 and 24" in text
    assert "nan" not in text.lower()
    assert "inf" not in text.lower()


def test_a_kernel_without_an_ok_row_has_no_figure(tmp_path: Path) -> None:
    """Nothing is drawn of what failed everywhere, and a run without any figure gives an empty list."""
    dead = [row("dead", 0, str(s), status="failed", reason="illegal address", sms_granted=None) for s in (8, 16)]
    assert "scaling_dead" not in drawn([memory_row("copy", 8, "8"), *dead])
    assert draw_run(frame(dead, tmp_path), meta(), tmp_path / "plots") == []


def test_figures_of_rows_that_are_not_ok_are_ignored() -> None:
    """A leaked row that still carries numbers is never plotted."""
    rows = [memory_row("copy", s, str(s)) for s in (8, 16, 24)]
    rows[1] = replace(rows[1], status="failed", reason="leaked: 24 SMs were seen where 16 are granted")
    figure = drawn(rows)["scaling_copy"]
    assert [x for x, _ in points(figure, "count")] == [8, 24]
    assert points(figure, "gap") == [(16, 0)]


def test_the_knee_is_marked_only_where_full_was_measured() -> None:
    """Without `full`, or with a failed one, or with `primary` alone, no knee is drawn or named anywhere."""
    counts = [memory_row("triad", s, str(s)) for s in COUNTS]
    full = memory_row("triad", 132, "full")
    figure = drawn([*counts, full])["scaling_triad"]
    assert [x for x, _ in points(figure, "knee")] == [56, 56]
    assert "knee: 56 SMs" in words(figure)
    assert "triad: knee at 56 of 132 SMs, 96 % of the full device" in words(figure)
    broken = replace(full, status="failed", reason="throttled")
    for rows in (counts, [*counts, broken], [*counts, memory_row("triad", 132, "primary")]):
        figure = drawn(rows)["scaling_triad"]
        assert not lines(figure, "knee")
        assert "knee" not in words(figure)


def test_the_bound_is_that_of_the_rows() -> None:
    """At 8 SMs the links bind (1283 GB/s read), on the full device the HBM bus (4814 GB/s), written at the end."""
    figure = drawn([memory_row("triad", s, str(s)) for s in (8, 64)] + [memory_row("triad", 132, "full")])["scaling_triad"]
    assert points(figure, "bound") == [
        (8, pytest.approx(1283.0, rel=1e-3)),
        (64, pytest.approx(4814, rel=1e-3)),
        (132, pytest.approx(4814, rel=1e-3)),
    ]
    assert "bound 4814 (HBM bus)" in words(figure)


def test_the_ideal_line_goes_through_the_smallest_count() -> None:
    """It leaves the origin, meets the first point, and ends at the frame."""
    figure = drawn([memory_row("copy", s, str(s)) for s in (16, 32)] + [memory_row("copy", 132, "full")])["scaling_copy"]
    (start, end) = points(figure, "ideal")
    assert start == (0, 0)
    assert end[1] / end[0] == pytest.approx(1229 / 16)
    assert end[1] == pytest.approx(figure.axes[0].get_ylim()[1])


def test_the_yardstick_is_drawn_beside_its_kernel() -> None:
    """`gemm_bf16.cublas` is a curve of gemm_bf16's figure, and stands for itself where that kernel was not run."""
    both = [gemm_row(kernel, s, str(s)) for kernel in ("gemm_bf16", "gemm_bf16.cublas") for s in (8, 64)]
    found = drawn(both)
    assert points(found["scaling_gemm_bf16"], "yardstick") == [(8, pytest.approx(55.2)), (64, pytest.approx(389.2))]
    assert "cuBLAS 389.2" in words(found["scaling_gemm_bf16"])
    assert "scaling_gemm_bf16.cublas" not in found
    assert "scaling_gemm_bf16.cublas" in drawn(both[2:])


def ceiling(found: Row, rate: float | None, kernel: str) -> BoundRow:
    """A line of bounds.csv: what another kernel moved on the same SMs, nothing where none moved more."""
    us = None if rate is None else (found.bytes or 0) / rate / 1e3
    name = "" if rate is None else kernel
    return BoundRow(label=found.label, bound_by="memory", measured_by=name and "memory", measured_kernel=name, measured_us=us)


def test_a_measured_ceiling_is_drawn_beside_the_bound() -> None:
    """Thinner, of a colour of its own, with its value and the kernel that set it; where nothing did better the line is parted."""
    rows = [memory_row("triad", s, str(s)) for s in (8, 32, 64, 128)]
    limits = [ceiling(found, rate, "read") for found, rate in zip(rows, (1268.0, None, 4547.0, 4555.0), strict=True)]
    figure = drawn(rows, limits=limits)["scaling_triad"]
    assert [x for x, _ in points(figure, "ceiling")] == [8, 32, 64, 128]
    assert [round(y) for _, y in points(figure, "ceiling") if not math.isnan(y)] == [1268, 4547, 4555]
    assert math.isnan(points(figure, "ceiling")[1][1])
    (line,), (bound,) = lines(figure, "ceiling"), lines(figure, "bound")
    assert line.get_linewidth() < bound.get_linewidth()
    assert line.get_color() != bound.get_color()
    assert "measured ceiling 4555 (read)" in words(figure)
    assert not lines(drawn(rows)["scaling_triad"], "ceiling")
    assert not lines(drawn(rows, limits=[ceiling(found, None, "") for found in rows])["scaling_triad"], "ceiling")


def test_a_ceiling_above_the_bound_has_room() -> None:
    """The y axis goes as far as the ceiling where that is not far above the data, and no label leaves the figure."""
    rows = [memory_row("copy", s, str(s)) for s in (8, 64, 128)]
    limits = [ceiling(found, 1.2 * (found.gb_per_s or 0), "write") for found in rows]
    figure = drawn(rows, limits=limits)["scaling_copy"]
    assert figure.axes[0].get_ylim()[1] > 1.2 * (rows[-1].gb_per_s or 0)


def test_of_several_yardsticks_the_best_is_drawn_over_each() -> None:
    """One line of the fastest at each count, with its name and value; each way thin below it, told apart by dashes in the key."""
    places = (8, 64, 120)
    rates = {"cublas": (55.2, 389.2, 555.5), "cublas_sms": (50.0, 380.0, 700.0), "cublaslt": (56.0, 390.0, 550.0)}
    rows = [gemm_row("gemm_bf16", s, str(s)) for s in places]
    for way, values in rates.items():
        for s, value in zip(places, values, strict=True):
            plain_row = replace(gemm_row("gemm_bf16.cublas", s, str(s)), kernel=f"gemm_bf16.{way}")
            rows.append(timed(plain_row, 2 * 4096**3 / value / 1e6))
    figure = drawn(rows)["scaling_gemm_bf16"]
    assert [y for _, y in points(figure, "yardstick")] == [pytest.approx(value) for value in (56.0, 390.0, 700.0)]
    for place, values in enumerate(rates.values()):
        assert [y for _, y in points(figure, f"way {place}")] == [pytest.approx(value) for value in values]
    shown = words(figure)
    assert "best cuBLAS 700" in shown
    assert {"cuBLAS", "cuBLAS with SM target", "cuBLASLt"} <= set(shown.split("\n"))
    assert len({line.get_linestyle() for place in range(3) for line in lines(figure, f"way {place}")}) == 2
    assert {name for name in drawn(rows) if name.startswith("scaling")} == {"scaling_gemm_bf16"}


def test_efficiency_shows_one_way_of_a_vendor() -> None:
    """Three lines of one vendor could not be told apart: the plain call stands for it."""
    rows = [gemm_row(kernel, s, str(s)) for kernel in ("gemm_bf16", "gemm_bf16.cublas") for s in (8, 64)]
    rows += [replace(found, kernel=f"gemm_bf16.{way}") for found in rows[2:] for way in ("cublas_sms", "cublaslt")]
    shown = words(drawn(with_efficiency(rows))["efficiency"])
    assert "gemm_bf16.cublas " in shown
    assert "cublaslt" not in shown
    assert "cublas_sms" not in shown


def test_a_gap_of_one_way_is_filled_by_another() -> None:
    """Where one way failed the best of the others is drawn, and where all did the line is parted."""
    rows = [gemm_row("gemm_bf16", s, str(s)) for s in (8, 64, 120)]
    plain_rows = [gemm_row("gemm_bf16.cublas", s, str(s)) for s in (8, 64, 120)]
    light = [replace(found, kernel="gemm_bf16.cublaslt") for found in plain_rows]
    rows += without(plain_rows, "gemm_bf16.cublas", "64", "failed", "incorrect") + light
    assert [x for x, _ in points(drawn(rows)["scaling_gemm_bf16"], "yardstick")] == [8, 64, 120]
    parted = without(rows, "gemm_bf16.cublaslt", "64", "failed", "incorrect")
    values = [y for _, y in points(drawn(parted)["scaling_gemm_bf16"], "yardstick")]
    assert [math.isnan(value) for value in values] == [False, True, False]


def test_a_measured_run_shows_what_the_model_predicts() -> None:
    """The modelled H200 is a curve labelled as such; a GPU without a model has none, and the text does not appear."""
    rows = [memory_row("triad", s, str(s)) for s in (8, 32, 128)]
    figure = drawn(rows)["scaling_triad"]
    assert points(figure, "predicted")[1] == (32, pytest.approx(3448, rel=0.03))
    assert "predicted (model)" in words(figure)
    other = drawn(rows, meta(device=device(name="NVIDIA L40S")))["scaling_triad"]
    assert not lines(other, "predicted")
    assert "predicted" not in words(other)


def test_modelled_and_profiled_runs_say_so_on_every_figure() -> None:
    """The mark stands on each figure, the curve is called modelled, and a model does not predict itself."""
    rows = [replace(found, backend="modelled") for found in full_run()]
    for stem, figure in drawn(rows, meta(Backend.MODELLED)).items():
        text = words(figure)
        assert text.count("MODELLED — not measured") == 2, stem
        assert "predicted" not in text
        assert "measured 4" not in text
    for stem, figure in drawn(full_run(), meta(profiled=True)).items():
        assert words(figure).count("PROFILED — no timing") == 2, stem
    assert not any("MODELLED" in words(figure) or "PROFILED" in words(figure) for figure in drawn(full_run()).values())


def test_one_modelled_row_marks_the_figure() -> None:
    """Rows are believed before run.json: a modelled row among measured ones still marks every figure."""
    rows = [memory_row("copy", 8, "8"), replace(memory_row("copy", 16, "16"), backend="modelled")]
    assert "MODELLED — not measured" in words(drawn(rows)["scaling_copy"])


def test_every_footer_names_device_driver_cuda_date_backend_and_version() -> None:
    """A figure that has lost its folder still tells what it shows."""
    for stem, figure in drawn(full_run()).items():
        text = words(figure)
        for part in ("NVIDIA H200", "driver 580.159.04", "CUDA 13.0", "2026-11-30", "backend cuda", "greenbench 0.1.0"):
            assert part in text, (stem, part)


def test_the_interval_is_drawn_where_it_is_known() -> None:
    """The band spans the figure at both ends of the time's interval; rows without one have no band and no key for it."""
    rows = [memory_row("triad", s, str(s)) for s in (8, 16)]
    figure = drawn(rows)["scaling_triad"]
    (band,) = [part for part in figure.axes[0].collections if part.get_gid() == "interval"]
    low, high = band.get_paths()[0].get_extents().y0, band.get_paths()[0].get_extents().y1
    assert low == pytest.approx(906 / 1.003)
    assert high == pytest.approx(1780 / 0.997)
    bare = drawn([replace(found, time_us_ci_low=None, time_us_ci_high=None) for found in rows])["scaling_triad"]
    assert not [part for part in bare.axes[0].collections if part.get_gid() == "interval"]
    assert "95 % interval" not in words(bare)


def test_names_from_user_files_are_text(tmp_path: Path) -> None:
    """Dollar signs and underscores are not mathtext, characters without a glyph warn nobody, and file names stay plain."""
    name = "ns::k<float,$x_1^2$>/../核\x07"
    rows = [replace(memory_row("copy", s, str(s)), kernel=name, params="a_$b$=1") for s in (8, 16)]
    about = meta(
        kernels=(KernelSummary(name=name, family=Family.MEMORY, dtype="float32", summary=r"\frac{1}{0} $$ %_", digest="d"),)
    )
    paths = draw_run(frame(rows, tmp_path), about, tmp_path / "plots")
    assert {path.parent for path in paths} == {tmp_path / "plots"}
    text = words(drawn(rows, about)["scaling_ns_k_float_x_1_2"])
    assert "ns::k<float,$x_1^2$>/../□□" in text
    assert "a_$b$=1" in text
    assert r"\frac{1}{0} $$ %_" in text


def test_two_names_that_make_one_file_name_stay_apart() -> None:
    """No figure overwrites another, on file systems that ignore case as well."""
    rows = [replace(memory_row("copy", s, str(s)), kernel=kernel) for kernel in ("a b", "a/b", "A_b") for s in (8, 16)]
    stems = [stem for stem in drawn(rows) if stem.startswith("scaling")]
    assert len({stem.lower() for stem in stems}) == 3


def test_params_are_panels_and_variants_are_lines() -> None:
    """Two sizes of one kernel are two panels, named by what differs; two timings of one size are two named lines."""
    rows = [memory_row("triad", s, str(s)) for s in (8, 16)]
    small = [replace(found, params="n=1024") for found in rows]
    cold = [replace(found, timing="cold-clean", gb_per_s=(found.gb_per_s or 0) * 0.9) for found in rows]
    figure = drawn([*rows, *small, *cold])["scaling_triad"]
    assert len(figure.axes) == 2
    text = words(figure)
    assert "n=1024" in text
    assert "cold-clean 1602" in text
    assert "steady 1780" in text


def test_timings_that_auto_chose_are_one_curve() -> None:
    """Short points in a graph and long ones in steady belong together: one line over all counts."""
    rows = [replace(memory_row("triad", s, str(s)), timing="steady" if s < 24 else "graph") for s in (8, 16, 24, 32)]
    figure = drawn(rows)["scaling_triad"]
    assert len(lines(figure, "measured")) == 1
    assert "timing steady, graph" in words(figure)


def test_a_scope_that_is_unsupported_leaves_the_names_of_the_others_alone() -> None:
    """The drawn curve is not renamed by a variant that has no figure; the reason names the variant."""
    rows = [memory_row("copy", s, str(s)) for s in (8, 16)]
    reason = "workqueue configuration needs driver 13.1, this is 13.0"
    bare = [
        row(
            "copy",
            0,
            str(s),
            params=rows[0].params,
            workqueue="device_ctx",
            status="unsupported",
            reason=reason,
            sms_granted=None,
        )
        for s in (8, 16)
    ]
    text = words(drawn([*rows, *bare])["scaling_copy"])
    assert "measured 1229" in text
    assert f"× 8, 16 SMs: device_ctx unsupported: {reason}" in text


def test_latency_is_drawn_by_working_set() -> None:
    """Cycles stand at their working sets for the smallest and the largest partition, the L2 is named by its size."""
    rows = [found for sms, asked in ((8, "8"), (64, "64"), (132, "full")) for found in other_rows(sms, asked)]
    figure = drawn(rows)["latency"]
    assert points(figure, "latency 8") == [(size, pytest.approx(cycles + 0.1)) for size, cycles in CHASE.items()]
    assert lines(figure, "latency 132")
    assert not lines(figure, "latency 64")
    text = words(figure)
    for part in ("16 KiB", "1 GiB", "L2 (60 MiB)", "8 SMs 660.8", "334 ns"):
        assert part in text


def test_one_working_set_is_no_latency_curve() -> None:
    """A chase of one size, at however many counts, has no figure over working sets; its cycles stand in its own."""
    one = [found for s in (8, 132) for found in other_rows(s, str(s)) if found.params == f"bytes={GIB}"]
    assert sorted(drawn(one)) == ["scaling_chase"]
    two = [found for s in (8, 132) for found in other_rows(s, str(s)) if found.params in {f"bytes={GIB}", "bytes=16384"}]
    assert "latency" in drawn(two)


def test_a_title_is_cut_only_where_there_is_no_room() -> None:
    """Beside the mark of a modelled run the whole title stands; one that is longer than the figure ends in an ellipsis."""
    rows = [replace(found, backend="modelled") for s in (8, 132) for found in other_rows(s, str(s))]
    assert "null_launch · time of a launch against SMs" in words(drawn(rows, meta(Backend.MODELLED))["scaling_null_launch"])
    long = [replace(memory_row("copy", 8, "8"), kernel="k" * 200)]
    (title,) = [line for line in words(drawn(long)[f"scaling_{'k' * 72}"]).splitlines() if line.startswith("kkk")]
    assert title.endswith("…")
    assert 50 < len(title) < 120


def test_the_axis_follows_the_data() -> None:
    """A bound of a hundred times the figure presses no curve flat: it ends at the frame, and its label keeps its figure."""
    rows = [memory_row("triad", s, str(s)) for s in (8, 64)] + [memory_row("triad", 132, "full")]
    far = [replace(found, bound_us=(found.time_us or 0) / 100, bound_by="l2") for found in rows]
    figure = drawn(far, meta(device=device(name="NVIDIA L40S")))["scaling_triad"]
    assert figure.axes[0].get_ylim()[1] == pytest.approx(1.3 * 4368, rel=0.01)
    assert "bound 436800 (L2)" in words(figure)
    near = drawn(rows, meta(device=device(name="NVIDIA L40S")))["scaling_triad"]
    assert near.axes[0].get_ylim()[1] == pytest.approx(1.08 * 4814, rel=0.01)


def test_a_prediction_is_not_above_the_bound_of_its_row() -> None:
    """The row knows what its stores cost, the model of the figure only the bytes: its curve ends at the bound."""
    rows = [memory_row("write", s, str(s)) for s in (8, 16)]
    rows = [replace(found, bound_us=(found.bytes or 0) / (found.sms_granted or 1) / 63.4e3) for found in rows]
    figure = drawn(rows)["scaling_write"]
    assert points(figure, "predicted") == [(8, pytest.approx(507, rel=0.01)), (16, pytest.approx(1014, rel=0.01))]


def test_the_overview_names_a_knee_only_where_it_draws_one() -> None:
    """Without the full device there is no ring, and no word of it; with it both are there."""
    counts = [memory_row(kernel, s, str(s)) for kernel in ("copy", "triad") for s in COUNTS]
    without_full = drawn(counts)["overview"]
    assert not lines(without_full, "knee")
    assert "knee" not in words(without_full)
    with_full = drawn([*counts, *(memory_row(kernel, 132, "full") for kernel in ("copy", "triad"))])["overview"]
    assert lines(with_full, "knee")
    assert "ring: knee" in words(with_full)


def test_a_modelled_yardstick_is_called_modelled() -> None:
    """cuBLAS never ran on a modelled device, and its label says so; a measured one is plain."""
    rows = [gemm_row(kernel, s, str(s)) for kernel in ("gemm_bf16", "gemm_bf16.cublas") for s in (8, 64)]
    assert "cuBLAS 389.2" in words(drawn(rows)["scaling_gemm_bf16"])
    modelled = [replace(found, backend="modelled") for found in rows]
    assert "cuBLAS modelled 389.2" in words(drawn(modelled, meta(Backend.MODELLED))["scaling_gemm_bf16"])


@pytest.mark.parametrize(
    ("texts", "width", "short"),
    [
        (["n=1024", "n=2048"], 10, ["n=1024", "n=2048"]),
        (["m=4096, n=4096, k=4096", "m=4096, n=4096, k=1024"], 15, ["m=4096,… k=4096", "m=4096,… k=1024"]),
        (["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20], 10, ["…1…", "…2…"]),
        (["same" * 10, "same" * 10], 9, ["same…same", "same…same"]),
    ],
)
def test_what_is_cut_keeps_what_differs(texts: list[str], width: int, short: list[str]) -> None:
    """Texts are cut in the middle, else to what differs; equal ones stay equal."""
    assert style.shortened(texts, width) == short


def test_cut_names_that_differ_never_look_alike() -> None:
    """Whatever is cut off, as many names are left as there were, and none is wider than asked."""
    texts = [f"m={m}, n={n}, k={k}, tile={t}" for m in (1, 1024) for n in (2, 1024) for k in (3, 1024) for t in (4, 1024)]
    short = style.shortened(texts, 12)
    assert len(set(short)) == len(texts)
    assert max(map(len, short)) <= 12


def test_efficiency_tells_params_apart() -> None:
    """Three sizes of one GEMM whose names would be cut to the same have three labels."""
    rows = [gemm_row("gemm_bf16", s, asked) for s, asked in ((8, "8"), (64, "64"), (132, "full"))]
    sizes = ("k=64,m=4096,n=4096,split=1", "k=64,m=4096,n=4096,split=2", "k=128,m=4096,n=8192,split=2")
    rows = with_efficiency([replace(found, params=size) for size in sizes for found in rows])
    figure = drawn(rows)["efficiency"]
    figure.draw_without_rendering()
    labels = [text.get_text().rpartition(" ")[0] for text in figure.findobj(Text) if text.get_text().startswith("gemm_bf16 ")]
    assert len(labels) == len(set(labels)) == 3


def test_a_latency_does_not_scale() -> None:
    """The chase has a line per working set and no ideal, bound or knee; its y axis is in cycles."""
    figure = drawn([found for s in (8, 132) for found in other_rows(s, str(s))])["scaling_chase"]
    assert len(lines(figure, "measured")) == len(CHASE)
    assert not any(lines(figure, gid) for gid in ("ideal", "bound", "knee", "predicted"))
    assert "cycles" in words(figure)


def test_efficiency_leaves_out_kernels_that_do_not_divide_their_work() -> None:
    """GEMM and memory curves are there with their last figure, the chase and the empty kernel are not."""
    text = words(drawn(full_run())["efficiency"])
    for part in ("triad 29.2", "gemm_bf16 88.3", "GEMM kernels", "memory kernels"):
        assert part in text
    assert "chase" not in text
    assert "null_launch" not in text


def test_a_single_point_is_visible() -> None:
    """One count has a marker, a bound of one dash, and no ideal line, which would say nothing."""
    figure = drawn([memory_row("read", 16, "16")])["scaling_read"]
    assert points(figure, "count") == [(16, pytest.approx(1759))]
    assert lines(figure, "bound")[0].get_marker() == "_"
    assert not lines(figure, "ideal")


def test_labels_do_not_meet() -> None:
    """However close the ends of lines lie, their labels keep a line's height apart and stay in the frame."""
    for places in ([0.5, 0.5, 0.5], [0.0, 0.01, 0.02], [0.99, 0.995, 1.0], [0.1, 0.48, 0.5, 0.52, 0.9], [0.2]):
        moved = style.spread(places, 0.06)
        assert all(b - a >= 0.06 - 1e-9 for a, b in itertools.pairwise(moved))
        assert min(moved) >= 0
        assert max(moved) <= 1
    assert style.spread([0.1, 0.9], 0.06) == [0.1, 0.9]


def places(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return every text that is drawn and where; a tick label outside the axes' limits is not, and the mark may lie on things."""
    figure.draw_without_rendering()
    hidden = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            hidden |= {tick.label1 for tick in axis.get_major_ticks() if not limits[0] <= tick.get_loc() <= limits[1]}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and text not in hidden]
    return [(text.get_text(), text.get_window_extent()) for text in texts]


def test_no_text_lies_on_another() -> None:
    """On no figure of a run do two texts overlap, with ceilings close to the curve as without."""
    rows = without(full_run(), "triad", "40", "failed", "throttled: thermal slowdown in three tries")
    near = [ceiling(found, 1.01 * found.gb_per_s, "decode_attention") for found in rows if found.gb_per_s]
    for stem, figure in [*drawn(rows).items(), *drawn(rows, limits=near).items()]:
        for (one, box), (other, against) in itertools.combinations(places(figure), 2):
            assert not box.padded(-2).overlaps(against.padded(-2)), (stem, one, other)


def test_every_text_is_on_the_paper() -> None:
    """Nothing is cut off at the edge of any figure."""
    near = [ceiling(found, 1.01 * found.gb_per_s, "decode_attention") for found in full_run() if found.gb_per_s]
    for stem, figure in drawn(full_run(), limits=near).items():
        paper = figure.bbox.padded(1)
        for text, box in places(figure):
            assert paper.x0 <= box.x0 <= box.x1 <= paper.x1, (stem, text)
            assert paper.y0 <= box.y0 <= box.y1 <= paper.y1, (stem, text)


def test_colours_are_apart_in_greyscale() -> None:
    """Neighbours of the palette differ in luminance, and lines differ in dashes or markers as well."""
    light = [sum(share * int(c[i : i + 2], 16) for share, i in ((0.2126, 1), (0.7152, 3), (0.0722, 5))) for c in style.PALETTE]
    assert light == sorted(light)
    assert all(b - a > 20 for a, b in itertools.pairwise(light))
    assert len(set(style.DASHES)) == len(set(style.MARKERS)) == len(style.PALETTE)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """A plot that cannot be saved names the file and the way out, and leaves nothing half written."""
    (tmp_path / "plots").write_text("a file where the folder should be")
    with pytest.raises(OutputError, match=r"plots cannot be written: .*choose another folder"):
        draw_run(frame([memory_row("copy", 8, "8")], tmp_path), meta(), tmp_path / "plots")


def test_empty_cells_are_missing(tmp_path: Path) -> None:
    """A cell that is empty, NaN or infinite is None, a count that pandas made 16.0 is 16, and an unknown column is ignored."""
    rows = [memory_row("copy", 16, "16"), row("copy", 0, "full", status="unsupported", reason="915", sms_granted=None)]
    table = frame(rows, tmp_path)
    table["later"] = 1
    table["power_w"] = [float("inf"), float("nan")]
    first, second = rows_of(table)
    assert (first.sms_granted, first.sms_requested, first.power_w, first.granularity) == (16, "16", None, None)
    assert (second.sms_granted, second.sms_requested, second.time_us, second.status) == (None, "full", None, "unsupported")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (16, "16 B"),
        (16 << 10, "16 KiB"),
        ((16 << 10) + 16, "16 KiB"),
        (1000 << 10, "1000 KiB"),
        (3 << 19, "1.5 MiB"),
        (GIB, "1 GiB"),
    ],
)
def test_working_sets_are_written_as_people_say_them(size: int, text: str) -> None:
    """A result word beside the buffer does not make 16.02 KiB of 16, and a thousand is not 1e+03."""
    assert binary_size(size) == text


def test_matplotlib_is_left_as_it_was(tmp_path: Path) -> None:
    """The style does not leak: settings are the caller's again, and pyplot is never imported for it."""
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw_run(frame([memory_row("copy", 8, "8")], tmp_path), meta(), tmp_path)
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
def test_a_run_is_drawn_in_a_second_per_kernel(tmp_path: Path) -> None:
    """Ten kernels at 17 sizes take less than 10 s of one core; an idle one needs 3 (20 kernels: 6)."""
    stops = [*((sms, str(sms)) for sms in COUNTS), (132, "full")]
    rows = [replace(memory_row("triad", sms, asked), kernel=f"triad_{i}") for i in range(10) for sms, asked in stops]
    table = frame(with_efficiency(rows), tmp_path)
    started = time.process_time()
    assert len(draw_run(table, meta(), tmp_path)) == 24
    assert time.process_time() - started < 10


def test_many_efficiencies_are_drawn_apart() -> None:
    """Up to ten curves share a panel; of more, each kernel and params has its own, the yardstick's beside ours."""
    rows = [gemm_row(kernel, s, str(s)) for kernel in ("gemm_bf16", "gemm_bf16.cublas") for s in (8, 64)]
    rows += [replace(found, kernel="gemm_bf16.cublaslt") for found in rows[2:]]

    def sizes(count: int) -> Figure:
        return drawn(with_efficiency([replace(found, params=f"m={64 << i}") for i in range(count) for found in rows]))[
            "efficiency"
        ]

    few, many = sizes(5), sizes(6)
    assert len(few.axes) == 1
    assert len(lines(few, "efficiency")) == 10
    assert [len([found for found in axes.lines if found.get_gid() == "efficiency"]) for axes in many.axes] == [2] * 6
    assert {"m=64", "m=2048"} <= {text.rpartition(" ")[2] for text in words(many).split("\n")}
    for figure in (few, many):
        assert "throughput per SM, 100 % at the smallest count" in words(figure)
        assert "left out: cuBLASLt" in words(figure)
        assert "time per launch" not in words(figure)
