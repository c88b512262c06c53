"""The table at the end of a run: what stands in its cells, how it folds into a terminal, and what its footnotes say."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from greenbench.cli.cells import number, percent, plus_minus, spread_pct
from greenbench.cli.drawing import draw, parts
from greenbench.cli.progress import Pace, PlainListener, duration, opening_line
from greenbench.cli.report import FROM_L2, PAST_BOUND, REMARKS, Line, Sheet, closing_lines, lay_out, shortened, title
from greenbench.cli.session import Session
from greenbench.schema import Backend, DeviceFacts, Flag, Row, RunMeta

DRIVER_TOO_OLD = "workqueue configuration needs driver 13.1, this is 13.0"


def device(**changes: Any) -> DeviceFacts:
    """An H200 as far as a table needs one."""
    facts: dict[str, Any] = {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "index": 0,
        "backend": Backend.CUDA,
        "compute_capability": (9, 0),
        "sm_count": 132,
        "min_partition": 8,
        "alignment": 8,
        "driver": "580.159.04",
        "cuda": (13, 0),
        "nvrtc": "13.0",
        "l2_bytes": 60 << 20,
        "memory_bytes": 140 << 30,
        "smem_per_sm_bytes": 228 << 10,
        "smem_optin_bytes": 227 << 10,
        "threads_per_sm": 2048,
        "split_api": "count",
        "workqueue_obstacle": DRIVER_TOO_OLD,
    }
    return DeviceFacts(**(facts | changes))


def meta(**changes: Any) -> RunMeta:
    """The run.json of a sweep of plan quick."""
    facts: dict[str, Any] = {
        "run_id": "r1",
        "created": "2026-01-01T00:00:00+00:00",
        "greenbench": "0.1.0",
        "command": "sweep",
        "argv": (),
        "seed": 1,
        "device": device(),
        "plan": {"name": "quick"},
    }
    return RunMeta(**(facts | changes))


def row(kernel: str = "copy", sms: int | str = 8, **changes: Any) -> Row:
    """An ok row of a memory kernel that reaches 97 % of the link."""
    facts: dict[str, Any] = {
        "kernel": kernel,
        "family": "memory",
        "params": "n=1024",
        "sms_requested": str(sms),
        "sms_granted": sms if isinstance(sms, int) else 132,
        "workqueue": "driver_default",
        "timing": "steady",
        "status": "ok",
        "time_us": 100.0,
        "time_us_ci_low": 99.9,
        "time_us_ci_high": 100.1,
        "gb_per_s": 113.0,
        "bound_pct": 97.2,
        "bound_by": "link",
    }
    return Row(**(facts | changes))


def missing(kernel: str, sms: int | str, status: str, reason: str, **changes: Any) -> Row:
    """A row without figures."""
    nothing = dict.fromkeys(("time_us", "time_us_ci_low", "time_us_ci_high", "gb_per_s", "bound_pct", "sms_granted"))
    return row(kernel, sms, **(nothing | {"status": status, "reason": reason, "bound_by": ""} | changes))


def test_cell_holds_figure_bound_and_interval() -> None:
    """A cell is the figure over its share of the bound and half of its interval; the line names unit and bound."""
    sheet = lay_out([row("copy", 8, gb_per_s=906.4)], meta())
    assert sheet.columns == ("8 SMs",)
    assert sheet.lines == (Line(("copy", "  GB/s, % of link"), (("906", "97 % ±0.1"),)),)


@pytest.mark.parametrize(
    ("changes", "unit", "figure"),
    [
        ({"family": "memory", "gb_per_s": 4368.2}, "GB/s", "4,368"),
        ({"family": "gemm", "tflop_per_s": 55.21}, "TFLOP/s", "55.2"),
        ({"family": "latency", "latency_cycles": 33.66}, "cycles", "33.7"),
        ({"family": "probe", "gb_per_s": None, "time_us": 1.934}, "µs", "1.93"),
        ({"family": "probe", "tflop_per_s": 759.6}, "TFLOP/s", "760"),
        ({"family": "probe", "latency_cycles": 33.66, "tflop_per_s": 759.6}, "cycles", "33.7"),
        ({"family": "gemm", "tflop_per_s": None, "time_us": 12.0}, "µs", "12.0"),
        ({"family": "memory", "gb_per_s": None, "time_us": 1234.5}, "µs", "1,234"),
    ],
)
def test_figure_suits_the_family(changes: dict[str, Any], unit: str, figure: str) -> None:
    """Throughput for what moves bytes or flops, cycles for latency, else time: one unit for all of a line."""
    line = lay_out([row(**changes, bound_by="", bound_pct=None)], meta()).lines[0]
    assert line.heading[1] == f"  {unit}"
    assert line.cells[0][0] == figure


def test_columns_are_what_was_granted() -> None:
    """Columns are granted counts in ascending order, then full and primary; a rounded request is named."""
    rows = [row(sms="primary"), row(sms="full"), row(sms=16), row(sms=12, sms_granted=16, kernel="triad"), row(sms=8)]
    assert lay_out(rows, meta()).columns == ("8 SMs", "16 SMs\nasked 12", "full\n132 SMs", "primary\n132 SMs")


def test_unsupported_and_failed_are_named_and_counted_once() -> None:
    """Cells without a figure say which kind they are; each reason is one footnote with the number of its points."""
    rows = [
        row("copy", 8),
        missing("copy", 8, "unsupported", DRIVER_TOO_OLD, workqueue="device_ctx"),
        missing("triad", 8, "unsupported", DRIVER_TOO_OLD, workqueue="device_ctx"),
        missing("hang", 8, "failed", "timeout, 5 s"),
    ]
    sheet = lay_out(rows, meta())
    by_heading = {line.heading[0]: line.cells[0] for line in sheet.lines}
    assert by_heading["copy device_ctx"] == ("unsupported", "[a]")
    assert by_heading["hang"] == ("failed", "[b]")
    assert sheet.notes[1:] == (f"[a] unsupported, 2 points: {DRIVER_TOO_OLD}", "[b] failed, 1 point: timeout, 5 s")


def test_a_line_without_figures_claims_no_unit() -> None:
    """Where nothing of a kernel was measured, no unit is shown for it, and no zero or nan stands in a cell."""
    sheet = lay_out([missing("hang", 8, "failed", "timeout, 5 s")], meta())
    assert sheet.lines[0].heading == ("hang", "")
    assert sheet.notes == ("[a] failed, 1 point: timeout, 5 s",)


def test_flags_are_marked_and_explained() -> None:
    """A flag puts a letter on its figure and a sentence of advice below; two flags share one bracket."""
    sheet = lay_out([row("copy", 8, flags="power_capped;bimodal"), row("copy", 16, flags="bimodal")], meta())
    assert [cell[0] for cell in sheet.lines[0].cells] == ["113 [a,b]", "113 [b]"]
    assert sheet.notes[2] == f"[b] bimodal, 2 points: {REMARKS[Flag.BIMODAL]}"


def gemm(kernel: str, sms: int | str, tflop_per_s: float, **changes: Any) -> Row:
    """A row of a GEMM that takes the time of its rate."""
    us = 137.4e6 / tflop_per_s / 1e3
    ends = {"time_us_ci_low": None, "time_us_ci_high": None}
    return row(kernel, sms, **{"family": "gemm", "tflop_per_s": tflop_per_s, "time_us": us, **ends, **changes})


def test_a_kernel_says_how_it_stands_beside_the_best_yardstick() -> None:
    """A line of ratios below our figures, a star at the fastest yardstick of each size, and below the table what it means."""
    rows = [
        *(gemm("gemm", 8, 52.0), gemm("gemm.cublas", 8, 50.0, flags="best"), gemm("gemm.cublaslt", 8, 49.0)),
        *(gemm("gemm", "full", 750.0), gemm("gemm.cublas", "full", 700.0), gemm("gemm.cublaslt", "full", 800.0, flags="best")),
    ]
    sheet = lay_out(rows, meta())
    by_heading = {line.heading[0]: line for line in sheet.lines}
    assert by_heading["gemm"].heading[2:] == ("  x best yardstick",)
    assert [cell[2] for cell in by_heading["gemm"].cells] == ["1.04", "0.94"]
    assert [cell[0] for cell in by_heading["gemm.cublas"].cells] == ["50.0*", "700"]
    assert [cell[0] for cell in by_heading["gemm.cublaslt"].cells] == ["49.0", "800*"]
    assert {len(line.heading) for name, line in by_heading.items() if name != "gemm"} == {2}
    assert sheet.notes[-1] == f"* {REMARKS[Flag.BEST]}"
    assert max(len(text) for line in sheet.lines for cell in line.cells for text in cell) <= len("97 % ±0.1")


def test_one_yardstick_is_called_by_its_name() -> None:
    """Without a choice there is no best: the ratio is to torch, and no star is drawn or explained."""
    sheet = lay_out([row("norm", 8, time_us=100.0), row("norm.torch", 8, time_us=110.0)], meta())
    assert sheet.lines[0].heading[2:] == ("  x torch",)
    assert sheet.lines[0].cells[0][2] == "1.10"
    assert not any(note.startswith("*") for note in sheet.notes)


def test_no_ratio_without_both_figures() -> None:
    """A failed yardstick, or a failed kernel of ours, leaves the cell as it is; with neither ok there is no line of ratios."""
    rows = [
        row("norm", 8),
        missing("norm.torch", 8, "failed", "incorrect"),
        missing("norm", 16, "failed", "x"),
        row("norm.torch", 16),
    ]
    assert lay_out(rows, meta()).lines[0].heading == ("norm", "  GB/s, % of link")
    rows += [row("norm", 24), row("norm.torch", 24)]
    ours = lay_out(rows, meta()).lines[0]
    assert [cell[2:] for cell in ours.cells] == [("–",), (), ("1.00",)]


def test_the_end_of_a_run_says_how_a_curve_stands() -> None:
    """Geometric mean, and the sizes where ours is furthest behind and ahead, with the way that was fastest there."""
    rows = [
        *(gemm("gemm", 8, 50.0), gemm("gemm.cublas", 8, 25.0, flags="best"), gemm("gemm.cublaslt", 8, 20.0)),
        *(gemm("gemm", 16, 40.0), gemm("gemm.cublas", 16, 70.0), gemm("gemm.cublaslt", 16, 80.0, flags="best")),
        *(gemm("gemm", "primary", 900.0), gemm("gemm.cublas", "primary", 100.0)),
    ]
    said = closing_lines(rows, meta(), "6 points")
    wanted = "the best yardstick in the geometric mean of 2 sizes: 0.50 at 16 SMs (cublaslt) to 2.00 at 8 SMs (cublas)."
    assert f"gemm is 1.00 x as fast as {wanted}" in said
    alone = closing_lines([row("norm", 8, time_us=100.0), row("norm.torch", 8, time_us=110.0)], meta(), "2 points")
    assert alone[-1] == "norm is 1.10 x as fast as torch at 8 SMs."


def test_of_several_yardsticks_no_knees_are_told() -> None:
    """Three knees of the same vendor would bury ours; where there is one yardstick, its knee is of interest."""
    places = [(8, 50.0), (64, 780.0), ("full", 800.0)]
    rows = [gemm(kernel, sms, rate) for kernel in ("gemm", "gemm.cublas", "gemm.cublaslt") for sms, rate in places]
    assert not [line for line in closing_lines(rows, meta(), "x") if line.startswith("gemm.cublas")]
    one = [each for each in rows if each.kernel != "gemm.cublaslt"]
    assert [line for line in closing_lines(one, meta(), "x") if line.startswith("gemm.cublas")]


def test_every_flag_has_its_sentence() -> None:
    """A flag of the schema without advice would end a run with a traceback."""
    assert set(REMARKS) == set(Flag)


def test_lines_are_told_apart_by_what_differs() -> None:
    """Params appear in a heading only where one kernel has several; a yardstick follows its kernel."""
    rows = [
        row("gemm", 8, params="k=4096,m=4096"),
        row("chase", 8, params="bytes=16384,hops=9"),
        row("chase", 8, params="bytes=8388608,hops=9"),
        row("gemm.cublas", 8, params="k=4096,m=4096"),
    ]
    headings = [line.heading[0] for line in lay_out(rows, meta()).lines]
    assert headings == ["gemm", "gemm.cublas", "chase bytes=16384", "chase bytes=8388608"]


def test_axes_of_a_point_are_named() -> None:
    """Workqueue with its limit, granularity and connections tell lines apart, and no cell hides another."""
    rows = [
        row(),
        row(workqueue="green_ctx_balanced", concurrency_limit=4),
        row(granularity=2),
        row(connections=1),
    ]
    headings = [line.heading[0] for line in lay_out(rows, meta()).lines]
    assert headings == ["copy", "copy green_ctx_balanced:4", "copy granularity 2", "copy connections 1"]


def test_timing_splits_a_line_only_where_a_point_was_timed_twice() -> None:
    """`auto` may turn from steady to graph along one curve, which stays one line."""
    curve = [row(sms=8, timing="steady"), row(sms=16, timing="graph")]
    assert [line.heading[0] for line in lay_out(curve, meta()).lines] == ["copy"]
    twice = [row(sms=8, timing="cold-clean"), row(sms=8, timing="cold-dirty")]
    assert [line.heading[0] for line in lay_out(twice, meta()).lines] == ["copy cold-clean", "copy cold-dirty"]


def test_a_bound_that_changes_along_the_curve_is_named_in_order() -> None:
    """The heading lists the bounds as the curve meets them."""
    rows = [row(sms=8, bound_by="link"), row(sms=64, bound_by="memory"), row(sms=72, bound_by="memory")]
    assert lay_out(rows, meta()).lines[0].heading[1] == "  GB/s, % of link/memory"


def test_details_add_lines_to_a_cell() -> None:
    """-v adds time, noise and clock below each figure, and a dash where one was not measured."""
    sheet = lay_out([row(noise_pct=0.25, sm_clock_mhz=None)], meta(), details=True)
    assert sheet.lines[0].heading[2:] == ("  time µs", "  noise %", "  SM clock MHz")
    assert sheet.lines[0].cells[0][2:] == ("100", "0.25", "–")


def test_modelled_says_so_first() -> None:
    """A table of modelled figures opens with MODELLED; a measured one does not hold the word."""
    modelled = title(meta(device=device(backend=Backend.MODELLED, driver="13.0")))
    assert modelled == "MODELLED, nothing was measured · NVIDIA H200 · driver 13.0 · plan quick"
    assert title(meta()) == "NVIDIA H200 · driver 580.159.04 (CUDA 13.0) · plan quick"


def test_a_long_reason_is_shortened_to_one_line() -> None:
    """A compiler's log does not flood the terminal, and the reader learns where the rest is."""
    text = shortened("bad.cu(3): error: x\n" + "y" * 1000)
    assert "\n" not in text
    assert text.startswith("bad.cu(3): error: x yyy")
    assert text.endswith("… (rows.csv has it whole)")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4367.6, "4,368"),
        (794.6, "795"),
        (99.96, "100"),
        (55.21, "55.2"),
        (9.996, "10.0"),
        (3.14159, "3.14"),
        (0.0824, "0.0824"),
        (0, "0.00"),
    ],
)
def test_numbers_keep_the_digits_that_mean_something(value: float, text: str) -> None:
    """Three or four digits, with separators, and no jump in width at a power of ten."""
    assert number(value) == text


def test_spreads_and_shares() -> None:
    """Nothing measured is nothing shown, and a spread too small to print is not called zero."""
    assert (percent(None), plus_minus(None)) == ("", "")
    assert plus_minus(0.004) == "±<0.1"
    assert plus_minus(12.34) == "±12.3"
    assert spread_pct(row(time_us=200.0, time_us_ci_low=198.0, time_us_ci_high=202.0)) == pytest.approx(1.0)
    assert spread_pct(row(time_us_ci_low=None)) is None


def drawn(sheet: Sheet, width: int) -> str:
    """What a terminal of that width would show."""
    screen = io.StringIO()
    draw(sheet, Console(file=screen, width=width, no_color=True, highlight=False, markup=False))
    return screen.getvalue()


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_a_wide_table_folds_into_parts(width: int) -> None:
    """17 sizes fit any terminal: in parts, each figure once, no line of the table wider than the screen."""
    rows = [row("copy", sms, gb_per_s=1000.0 + sms) for sms in [*range(8, 132, 8), 132]]
    sheet = lay_out(rows, meta())
    text = drawn(sheet, width)
    table = text.split("\n\n")[1:-1]
    assert len(table) == len(list(parts(sheet, width)))
    assert all(len(line.rstrip()) <= width for part in table for line in part.splitlines())
    for sms in [*range(8, 132, 8), 132]:
        assert text.count(f"{1000 + sms:,}") == 1


def test_parts_are_of_equal_size() -> None:
    """Ten columns where eight fit become five and five, not eight and two."""
    sheet = Sheet("t", tuple("abcdefghij"), (Line(("kernel", "  unit"), (("12345678",),) * 10),))
    assert list(parts(sheet, 8 + 8 * 10 + 2)) == [(0, 5), (5, 10)]


def test_an_empty_run_draws_no_table() -> None:
    """No rows, no division by zero."""
    assert list(parts(lay_out([], meta()), 80)) == []


def test_brackets_survive_drawing() -> None:
    """Footnote letters look like rich's markup and must not be eaten by it."""
    assert "113 [a]" in drawn(lay_out([row(flags="bimodal")], meta()), 100)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (24.4, "24 s"), (59.7, "1 min 00 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")],
)
def test_durations_read_as_spoken(seconds: float, text: str) -> None:
    """Time left is shown in the units that a person would use."""
    assert duration(seconds) == text


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time that the test has set."""
        return self.now


def test_time_left_follows_the_wall() -> None:
    """Work that takes twice its block time on the wall leaves twice the time; before there is any, the plan's own."""
    clock = Clock()
    pace = Pace(clock)
    assert pace.left_s(0.0, 20.0) == 20.0
    clock.now += 10.0
    assert pace.left_s(5.0, 20.0) == pytest.approx(30.0)
    assert pace.left_s(25.0, 20.0) == 0.0


def test_plain_lines_come_now_and_then(tmp_path: Any) -> None:
    """In a log: an opening line, remarks at once, progress per 10 s or 10 %, never twice in a second."""
    clock, lines = Clock(), []
    session = Session()
    listener = PlainListener(session, lines.append, clock)
    listener.started(meta(), tmp_path, 168)
    listener.note("10 and 16 both give 16 SMs")
    for step in range(1001):
        listener.progress(step * 0.1, 100.0, f"triad@{step}")
        clock.now += 0.1
    assert session.folder == tmp_path
    assert lines[:2] == [opening_line(meta(), tmp_path, 168), "note: 10 and 16 both give 16 SMs"]
    assert lines[2] == " 10 %, 1 min 30 s left, at triad@100"
    assert len(lines) == 12
    assert lines[-1] == "100 %, 0.0 s left, at triad@1000"


def test_plain_lines_of_a_fast_run_are_few(tmp_path: Any) -> None:
    """A modelled run of half a second does not print one line per point."""
    lines: list[str] = []
    listener = PlainListener(Session(), lines.append, Clock())
    listener.started(meta(), tmp_path, 10)
    for step in range(11):
        listener.progress(step * 0.05, 0.5, "x")
    assert len(lines) == 1


def test_opening_line_of_a_modelled_run_says_so(tmp_path: Any) -> None:
    """The first line of a modelled run cannot be taken for a measurement."""
    assert opening_line(meta(device=device(backend=Backend.MODELLED)), tmp_path, 1).startswith("MODELLED")
    assert "MODELLED" not in opening_line(meta(), tmp_path, 1)


def test_the_end_says_what_the_time_limit_cut_short() -> None:
    """Points below the rounds of the plan are counted, those that only had no more precision are not; quiet runs say it too."""
    run = meta(plan={"name": "quick", "rounds": 6, "time_limit_s": 120})
    rows = [
        Row(kernel="copy", status="ok", rounds=2, stop_reason="time_limit", sms_requested="8", sms_granted=8),
        Row(kernel="copy", status="ok", rounds=7, stop_reason="time_limit", sms_requested="16", sms_granted=16),
        Row(kernel="copy", status="ok", rounds=2, stop_reason="interrupted", sms_requested="24", sms_granted=24),
    ]
    told = "the time limit of 120 s was reached: 1 point had fewer than 6 rounds; raise --time-limit, or take fewer points"
    for brief in (True, False):
        assert closing_lines(rows, run, "done", brief=brief)[:2] == ["done", told]
    assert closing_lines(rows[1:], run, "done", brief=True) == ["done"]
    assert closing_lines(rows, meta(), "done", brief=True) == ["done"]


def test_ratios_of_a_modelled_run_are_not_told() -> None:
    """Both sides are assumptions, so neither the table nor the end of a run compares them; a measured run has both."""
    rows = [row("norm", 8, time_us=100.0), row("norm.torch", 8, time_us=110.0)]
    modelled = meta(device=replace(device(), backend=Backend.MODELLED))
    assert lay_out(rows, modelled).lines[0].heading[2:] == ()
    assert not [text for text in closing_lines(rows, modelled, "x") if "x as fast as" in text]
    assert lay_out(rows, meta()).lines[0].heading[2:] == ("  x torch",)
    assert [text for text in closing_lines(rows, meta(), "x") if "x as fast as" in text]


def test_a_span_of_one_figure_is_no_span() -> None:
    """`1.00 to 1.00` says nothing that the mean does not."""
    rows = [row(kernel, sms, time_us=us) for sms, us in ((8, 100.0), (16, 50.0)) for kernel in ("norm", "norm.torch")]
    said = "norm is 1.00 x as fast as torch in the geometric mean of 2 sizes, and at each of them."
    assert said in closing_lines(rows, meta(), "x")


def test_a_row_above_its_bound_says_why() -> None:
    """By its cause: the L2, the specification, or a probe; no probe is named where none was run."""
    causes = (("memory", 171.0, FROM_L2), ("link", 105.0, PAST_BOUND), ("memory", 96.0, REMARKS[Flag.ABOVE_BOUND]))
    for by, share, said in causes:
        sheet = lay_out([row("copy", 8, flags="above_bound", bound_by=by, bound_pct=share)], meta())
        assert sheet.notes[-1] == f"[a] above_bound, 1 point: {said}"
    assert "probe" not in FROM_L2 + PAST_BOUND
