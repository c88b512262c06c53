"""Figures of a co-location: what stands on them, what is left out, and that `plot` draws them from the files of a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings, strategies as st
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from greenbench import facts
from greenbench.cli.main import cli
from greenbench.cojournal import CoJournal, CoVisit, Pace, RoleFacts, RoleVisit
from greenbench.colocation.figures import co_label
from greenbench.colocation.results import read_corun
from greenbench.corow import CoRow
from greenbench.plots import style, tradeoff
from greenbench.plots.copoints import Spot, cases_of, duration
from greenbench.plots.costrip import bands_of, window_of
from greenbench.plots.isolation import draw_colocation, figures
from greenbench.plots.mechanisms import LOOKS, look_of
from greenbench.queueing.model import Kind, Mechanism
from greenbench.runfiles import RunFolder, write_corows, write_meta, write_rows
from greenbench.schema import Backend, BlockStatus, Row, RunMeta
from greenbench.slo import Slo, parse_slo
from greenbench.tails import Metric

SIZES = (8, 20, 32)
DECODE = (("model", "llama3-8b"), ("layers", 4), ("batch", 8))
PREFILL = (("model", "llama3-8b"), ("layers", 4), ("prompt", 2048))
PARAMS = {Kind.LATENCY: "model=llama3-8b,layers=4,batch=8", Kind.BACKGROUND: "model=llama3-8b,layers=4,prompt=2048"}
WORKLOADS = {Kind.LATENCY: "decode", Kind.BACKGROUND: "prefill"}
MS = 1_000_000


def meta(backend: Backend = Backend.CUDA, **more: object) -> RunMeta:
    """What a run on an H200 knows of itself."""
    model = facts.model_facts("h200").device
    base: dict[str, object] = {
        "run_id": "20261130T031500Z-colocate-1a2b",
        "created": "2026-11-30T03:15:00+00:00",
        "greenbench": "0.1.0",
        "command": "colocate",
        "argv": (),
        "seed": 1,
        "device": replace(model, backend=backend, name="NVIDIA H200", driver="580.159.04"),
    }
    return RunMeta(**{**base, **more})  # type: ignore[arg-type]


def point(
    mechanism: str,
    size: int | None,
    tail: float | None,
    tokens: float | None,
    *,
    q: str = "step_us_p99",
    rate: float | None = None,
    place: str = "",
    **more: object,
) -> list[CoRow]:
    """Return the rows of both roles of a point; without a throughput that of the latency role alone."""
    first = mechanism.partition(":")[0]
    label = co_label("decode", DECODE, f"{size or 'primary'}{place}", "driver_default", mechanism, rate)
    base: dict[str, object] = {
        "label": label,
        "mechanism": first,
        "workqueue": "driver_default",
        "status": "ok",
        "backend": "cuda",
    }
    grew = "true" if tail is None else "false"
    ours = {
        "role": "latency",
        "kernel": "decode",
        "params": PARAMS[Kind.LATENCY],
        "saturated": grew,
        q: tail,
        "step_us_p50": tail,
    }
    theirs = {"role": "background", "kernel": "prefill", "params": PARAMS[Kind.BACKGROUND], "tokens_per_s": tokens}
    roles = [ours, *([theirs] if tokens is not None else [])]
    return [CoRow(**{**base, **role, **more}) for role in roles]  # type: ignore[arg-type]


def alone(size: int | None, tail: float, q: str = "step_us_p99") -> list[CoRow]:
    """Return the latency role's row by itself."""
    return point("alone", size, tail, None, q=q)


def background_alone(tokens: float) -> CoRow:
    """Return the background's row by itself on the whole device."""
    label = co_label("prefill", PREFILL, "primary", "driver_default", "alone", None)
    return CoRow(
        label=label, mechanism="alone", role="background", kernel="prefill", tokens_per_s=tokens, status="ok", backend="cuda"
    )


def whole_run(q: str = "step_us_p99") -> list[CoRow]:
    """All kinds of points: sizes, none, saturated ones, one that the driver refuses and one that failed."""
    rows = [*alone(None, 500.0, q), background_alone(400e3)]
    for size, own, tokens in zip(SIZES, (4000.0, 1000.0, 600.0), (390e3, 350e3, 300e3), strict=True):
        rows += alone(size, own, q) + point("green", size, 1.1 * own, tokens, q=q)
        rows += point("mps_limited", size, 1.4 * own, 0.99 * tokens, q=q)
        rows += point("green_primary", size, None if size == 8 else 30e3, 0.97 * tokens, q=q)
    rows += point("streams", None, None, 380e3, q=q) + point("priority", None, 20e3, 370e3, q=q)
    rows += point("chunked:512", None, 3e3, 310e3, q=q) + point("chunked:2048", None, 9e3, 340e3, q=q)
    reason = "workqueue configuration needs driver 13.1, this is 13.0"
    for size in SIZES:
        rows += point("green_balanced", size, 77.0, 1.0, q=q, status="unsupported", reason=reason)
    return rows + point("green_priority", 20, 777.0, 1.0, q=q, status="failed", reason="leaked: 24 SMs were seen")


def drawn(
    rows: Sequence[CoRow], visits: Sequence[CoVisit] = (), slo: Slo | None = None, about: RunMeta | None = None
) -> dict[str, Figure]:
    """Return the figures of a run by the stem of their files."""
    with style.context():
        return dict(figures(rows, visits, about or meta(), slo))


def lines(figure: Figure, gid: str) -> list[Line2D]:
    """Return the lines of one role."""
    return [line for axes in figure.axes for line in axes.get_lines() if line.get_gid() == gid]


def points(figure: Figure, gid: str) -> list[tuple[float, float]]:
    """Return the points of all lines of one role."""
    return [(float(x), float(y)) for line in lines(figure, gid) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def words(figure: Figure) -> str:
    """Return every text that the figure shows."""
    figure.draw_without_rendering()
    return "\n".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


# -- the tail against the partition --------------------------------------------------------------------------------------


def test_every_mechanism_is_on_the_figure_with_its_own_figures() -> None:
    """Lines over the sizes, levels across for those without a partition, alone as the reference, each with its name."""
    figure = drawn(whole_run())["isolation"]
    found = [pair for pair in points(figure, "mechanism") if not math.isnan(pair[1])]
    assert found == [
        *((size, pytest.approx(1.1 * own)) for size, own in zip(SIZES, (4000, 1000, 600), strict=True)),
        *((size, pytest.approx(1.4 * own)) for size, own in zip(SIZES, (4000, 1000, 600), strict=True)),
        (20, 30e3),
        (32, 30e3),
    ]
    assert sorted({y for _, y in points(figure, "level")}) == [3e3, 9e3, 20e3]
    assert points(figure, "alone") == [(8, 4000), (20, 1000), (32, 600)]
    assert {y for _, y in points(figure, "alone full")} == {500}
    shown = words(figure)
    for text in ("green 660 µs", "mps_limited 840 µs", "priority 20 ms", "chunked 512 3 ms", "chunked 2048 9 ms"):
        assert text in shown
    assert "alone on its SMs 600 µs" in shown
    assert "decode step p99 against its SMs" in shown


def test_what_has_no_percentile_has_no_number() -> None:
    """A queue that grew is a mark at the top and the word `saturated`; no line bridges it and no nan is written."""
    figure = drawn(whole_run())["isolation"]
    top = figure.axes[0].get_ylim()[1]
    assert points(figure, "grew") == [(8, top)]
    assert math.isnan(next(y for line in lines(figure, "mechanism") for y in line.get_ydata() if math.isnan(y)))
    shown = words(figure)
    assert "streams: saturated" in shown
    assert "saturated: the queue of steps was still growing" in shown
    assert "nan" not in shown.lower()


def test_saturated_marks_of_one_size_do_not_hide_each_other() -> None:
    """Five mechanisms whose queue grew at 8 SMs: five marks below each other, of which no two are where another is."""
    names = ("green", "green_background", "green_primary", "green_priority", "mps_limited")
    rows = alone(None, 500.0) + point("green", 20, 600.0, 3e5)
    figure = drawn(rows + [row for name in names for row in point(name, 8, None, 3e5)])["isolation"]
    marks = lines(figure, "grew")
    top = figure.axes[0].get_ylim()[1]
    assert points(figure, "grew") == [(8, top)] * len(names)
    places = [mark.get_transform().transform((8, top)) for mark in marks]
    assert len({round(x) for x, _ in places}) == 1
    step = 5.5 * figure.dpi / 72
    assert all(a[1] - b[1] > step for a, b in itertools.pairwise(places))
    assert len({mark.get_color() for mark in marks} | {mark.get_markeredgecolor() for mark in marks}) >= len(names)


def test_what_mps_granted_instead_is_on_the_figures() -> None:
    """18 of 20 SMs: the point is at 18, and every figure says what was asked for and what was granted."""
    rows = alone(None, 500.0) + point("green", 20, 600.0, 3e5) + point("mps_limited", 28, 800.0, 2e5, sms_granted=28)
    rows += point("mps_limited", 20, 900.0, 3e5, sms_granted=18)
    found = drawn(rows)
    assert points(found["isolation"], "mechanism") == [(20, 600), (18, 900), (28, 800)]
    for figure in found.values():
        assert "mps_limited 20 (18): SMs asked for (granted)" in words(figure)
    assert "20 (18)" in words(found["tradeoff"]).replace(" SMs", "").split("\n")
    whole = drawn([replace(row, sms_granted=None) for row in rows])["isolation"]
    assert "granted" not in words(whole)


def test_points_that_are_not_ok_are_named_and_never_drawn() -> None:
    """One line lists what the driver cannot do, another what failed; the numbers in such rows are nowhere."""
    for stem in ("isolation", "tradeoff"):
        figure = drawn(whole_run())[stem]
        shown = words(figure)
        assert "unsupported: green_balanced (workqueue configuration needs driver 13.1, this is 13.0)" in shown
        assert shown.count("unsupported: ") == 1
        assert "failed: green_priority (leaked: 24 SMs were seen)" in shown
        every = [y for gid in ("mechanism", "level", "points", "frontier") for _, y in points(figure, gid)]
        assert not {77.0, 777.0} & set(every)


@pytest.mark.parametrize(("slowest", "scale"), [(9_000.0, "linear"), (11_000.0, "log")])
def test_the_axis_is_log_where_the_spread_asks_for_it(slowest: float, scale: str) -> None:
    """Above 20 times the smallest figure; below it starts at 0. All points lie within."""
    rows = alone(None, 500.0) + point("green", 20, 600.0, 300e3) + point("streams", None, slowest, 350e3)
    for figure in drawn(rows).values():
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        assert axes.get_yscale() == scale
        assert low < 500
        assert high > slowest
        assert (low == 0) == (scale == "linear")


@pytest.mark.parametrize(
    ("column", "name"),
    [("step_us_p99", "step p99"), ("step_us_p95", "step p95"), ("step_us_p50", "step p50"), ("itl_us_p95", "ITL p95")],
)
def test_the_highest_percentile_with_figures_is_shown(column: str, name: str) -> None:
    """p99, else p95, else p50, and of a token where the model has its full depth; all figures agree."""
    rows = [replace(row, itl_us_p50=row.itl_us_p95) for row in whole_run(column)]
    found = drawn(rows)
    assert all(f"decode {name}" in words(figure) for figure in found.values())


def test_one_point_with_more_steps_does_not_choose_the_percentile() -> None:
    """A p99 that one row of many has would leave the others without a place."""
    rows = [
        replace(row, step_us_p99=row.step_us_p95 if row.mechanism == "priority" else None) for row in whole_run("step_us_p95")
    ]
    assert "decode step p95" in words(drawn(rows)["isolation"])


def test_without_a_partition_anywhere_there_are_levels_alone() -> None:
    """A run of `streams` and `priority` has a figure without an axis of sizes."""
    rows = alone(None, 500.0) + point("streams", None, 900.0, 380e3) + point("priority", None, 700.0, 370e3)
    figure = drawn(rows)["isolation"]
    assert {y for _, y in points(figure, "level")} == {900, 700}
    assert len(figure.axes[0].get_xticks()) == 0


# -- the trade-off -------------------------------------------------------------------------------------------------------


def test_the_trade_off_has_each_point_where_its_rows_say() -> None:
    """Background tokens across, the tail up; the best corner is where both roles would be alone; sizes are written."""
    figure = drawn(whole_run())["tradeoff"]
    found = points(figure, "points")
    assert {(390e3, 4400.0), (350e3, 1100.0)} <= {(x, round(y, 6)) for x, y in found}
    assert (370e3, 20e3) in found
    assert points(figure, "corner") == [(400e3, 500)]
    shown = words(figure)
    assert {"8 SMs", "20", "32", "green", "priority", "best: both as if alone", "saturated: streams"} <= set(shown.split("\n"))
    assert sorted({x for x, _ in points(figure, "grew")}) == pytest.approx([0.97 * 390e3, 380e3])


def test_the_objective_is_shaded_and_the_best_point_within_it_ringed() -> None:
    """The box ends at the limit; the ring is on the most tokens that meet it, the first in the run of those within 1 %."""
    slo = parse_slo("step_p99=1500us")
    met = [
        replace(row, slo_met="true" if row.mechanism in ("green", "mps_limited") and "@20/" in row.label else "false")
        for row in whole_run()
    ]
    found = drawn(met, slo=slo)
    for figure in found.values():
        (box,) = [patch for patch in figure.axes[0].patches if patch.get_gid() == "slo"]
        assert box.get_extents().transformed(figure.axes[0].transData.inverted()).y1 == pytest.approx(1500)
        assert "SLO 1.5 ms" in words(figure)
    assert points(found["tradeoff"], "best") == [(350e3, pytest.approx(1100))]
    assert "most within SLO: green at 20 SMs" in words(found["tradeoff"])
    none = drawn([replace(row, slo_met="false") for row in met], slo=slo)["tradeoff"]
    assert not lines(none, "best")


def test_an_objective_on_another_percentile_is_written_and_not_shaded() -> None:
    """A limit on the p99 says nothing of an axis of p95; nor does one on the first token."""
    for text in ("step_p99=1500us", "ttft_p99=500ms"):
        figure = drawn(whole_run("step_us_p95"), slo=parse_slo(text))["isolation"]
        assert not [patch for patch in figure.axes[0].patches if patch.get_gid() == "slo"]
        assert f"SLO {parse_slo(text).text}" in words(figure)


def test_what_is_saturated_everywhere_is_one_line() -> None:
    """Its names stand together at the top, at one load and at several; what has a figure somewhere is named at its line."""
    rows = alone(None, 500.0) + point("green", 20, 600.0, 3e5) + point("green", 8, None, 3.2e5)
    rows += [row for name in ("streams", "priority", "chunked:2048", "mps") for row in point(name, None, None, 3.3e5)]
    several = [*rows, *point("green", 20, 700.0, 2e5, rate=5.0), *point("streams", None, None, 2e5, rate=5.0)]
    for given_rows in (rows, several):
        shown = words(drawn(given_rows)["tradeoff"])
        assert "saturated: streams, priority, chunked 2048, mps" in shown.split("\n")
        assert "streams: saturated" not in shown
    many = rows + [row for size in range(1, 40) for row in point(f"chunked:{size}", None, None, 3.3e5)]
    figure = drawn(many)["tradeoff"]
    (text,) = [each for each in figure.axes[0].texts if each.get_gid() == "lost"]
    figure.draw_without_rendering()
    assert text.get_window_extent().x0 > figure.axes[0].texts[0].get_window_extent().x1
    assert "chunked 39" in text.get_text()


dots = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.integers(1, 9)).map(
        lambda pair: tradeoff.Dot(float(pair[0]), None if pair[1] is None else float(pair[1]), Spot("green", "green", 8, "-"))
    ),
    max_size=8,
)


@given(found=dots)
def test_a_frontier_is_what_no_point_beats(found: list[tradeoff.Dot]) -> None:
    """Checked against every pair: none on it is beaten, all off it are beaten or equal one on it, and x and y rise together."""
    front = tradeoff._frontier(found, one_load=False)
    known = [dot for dot in found if dot.y is not None]

    def beats(a: tradeoff.Dot, b: tradeoff.Dot) -> bool:
        return a.x >= b.x and (a.y or 0) <= (b.y or 0) and (a.x, a.y) != (b.x, b.y)

    places = {(dot.x, dot.y) for dot in front}
    assert not any(beats(a, b) for a in known for b in front)
    assert all((dot.x, dot.y) in places or any(beats(a, dot) for a in front) for dot in known)
    assert all(a.x < b.x and (a.y or 0) < (b.y or 0) for a, b in itertools.pairwise(front))


def test_several_loads_make_frontiers_and_one_load_the_comparison() -> None:
    """At three rates a mechanism's line joins the points of any size that none beats; the tails are compared at the highest."""
    rows = alone(None, 500.0)
    for rate, share in ((10.0, 1.0), (20.0, 1.2), (40.0, 2.0)):
        for size in SIZES:
            rows += point("green", size, share * 16_000 / size, 2048 * rate, rate=rate)
        rows += point("streams", None, share * 900, 2048 * rate, rate=rate)
    found = drawn(rows)
    assert points(found["tradeoff"], "frontier")[:3] == [
        (20480, pytest.approx(500)),
        (40960, pytest.approx(600)),
        (81920, pytest.approx(1000)),
    ]
    assert len(points(found["tradeoff"], "beaten")) == 6
    assert [y for _, y in points(found["isolation"], "mechanism")] == [pytest.approx(2 * 16_000 / size) for size in SIZES]
    assert "40 requests a second" in words(found["isolation"])
    assert "10, 20, 40 requests a second" in words(found["tradeoff"])


def test_labels_of_the_trade_off_do_not_lie_on_each_other() -> None:
    """No two texts within the axes meet, and none leaves the figure."""
    figure = drawn(whole_run(), slo=parse_slo("step_p99=1500us"))["tradeoff"]
    with style.context():
        figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    assert len(boxes) > 12
    width, height = figure.get_size_inches() * figure.dpi
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
    assert not [(a, b) for a, b in itertools.combinations(boxes, 2) if a.padded(-1.5).overlaps(b.padded(-1.5))]


# -- the strip -----------------------------------------------------------------------------------------------------------


def steps(dues: Sequence[int], length: int, *, late: int = 0) -> tuple[tuple[int, ...], ...]:
    """Return due, start and end of steps that run one after the other, in ns."""
    free, found = 0, []
    for due in dues:
        start = max(due + late, free)
        free = start + length
        found.append((due, start, free))
    return tuple(zip(*found, strict=True))


def visit(
    mechanism: Mechanism,
    size: int | None,
    ours: tuple[tuple[int, ...], ...],
    theirs: tuple[tuple[int, ...], ...] | None,
    **more: object,
) -> CoVisit:
    """One visit with stamps of the decode, and of the prefill where it is there."""
    roles = []
    for kind, stamps in ((Kind.LATENCY, ours), (Kind.BACKGROUND, theirs)):
        if stamps is None:
            continue
        metrics = (Metric.STEP,) if kind is Kind.LATENCY else (Metric.TTFT,)
        known = RoleFacts(
            name=kind.value,
            kind=kind,
            workload=WORKLOADS[kind],
            params=PARAMS[kind],
            metrics=metrics,
            tokens=8 if kind is Kind.LATENCY else 2048,
            pace=Pace.DEVICE,
        )
        due, start, end = stamps
        roles.append(RoleVisit(facts=known, due_ns=due, start_ns=start, end_ns=end, late_ns=(0,) * len(due)))
    label = co_label("decode", DECODE, str(size or "primary"), "driver_default", mechanism, None)
    sizes = () if size is None else (size, 132 - size)
    base: dict[str, object] = {"mechanism": mechanism, "label": label, "sizes": sizes, "roles": tuple(roles)}
    return CoVisit(**{**base, **more})  # type: ignore[arg-type]


DUES = tuple(i * 2 * MS for i in range(1, 60))
BUSY = steps(tuple(i * 5 * MS for i in range(24)), 5 * MS)


def visits() -> list[CoVisit]:
    """A decode that waits for the prefill under `serial` and runs beside it under `green`, and one by itself."""
    return [
        visit(Mechanism.ALONE, None, steps(DUES, MS // 2), None),
        visit(Mechanism.SERIAL, None, steps(DUES, MS // 2, late=MS), BUSY),
        visit(Mechanism.GREEN, 20, steps(DUES, MS), BUSY),
        visit(Mechanism.GREEN, 32, steps(DUES, 3 * MS // 4), BUSY),
    ]


def strip_rows() -> list[CoRow]:
    """The rows of the visits, with medians alone."""
    rows = alone(None, 500.0, "step_us_p50") + point("serial", None, 1500.0, 1e5, q="step_us_p50")
    return rows + [row for size, us in ((20, 1000.0), (32, 750.0)) for row in point("green", size, us, 1e5, q="step_us_p50")]


def bars(figure: Figure, gid: str) -> list[tuple[float, float, float]]:
    """Return (from, to, height) of bars of one kind."""
    found = []
    for each in figure.axes[0].collections:
        if each.get_gid() == gid and isinstance(each, PolyCollection):
            for path in each.get_paths():
                box = path.get_extents()
                found.append((box.x0, box.x1, box.y0))
    return found


def test_the_strip_has_both_roles_of_every_mechanism_on_one_axis() -> None:
    """Bars are the stamps, cut to one window that all share; `alone` has no background; ticks are when steps were due."""
    figure = drawn(strip_rows(), visits())["strip"]
    (case,) = cases_of(strip_rows(), meta(), None)
    window = window_of(bands_of(case, visits()), visits())
    shown = [(due - window.start) / 1e6 for due in DUES if window.start <= due < window.end]
    ticks = [each for each in figure.axes[0].collections if isinstance(each, LineCollection) and each.get_gid() == "due"]
    assert [[line[0][0] for line in each.get_segments()] for each in ticks] == [pytest.approx(shown)] * 3
    # From below: green, serial, alone.
    rows = {
        int(y): [(a, b) for a, b, low in bars(figure, "latency") if int(low) == int(y)] for _, _, y in bars(figure, "latency")
    }
    assert sorted(rows) == [0, 1, 2]
    assert [b - a for a, b in rows[0]][:2] == pytest.approx([1.0, 1.0])
    assert [b - a for a, b in rows[2]][:2] == pytest.approx([0.5, 0.5])
    assert rows[1][0][0] == pytest.approx(shown[0] + 1)
    assert {int(y) for _, _, y in bars(figure, "background")} == {0, 1}
    assert all(
        0 <= a <= b <= figure.axes[0].get_xlim()[1] + 1e-9 for gid in ("latency", "background") for a, b, _ in bars(figure, gid)
    )


def test_where_both_run_is_dark_and_nowhere_else() -> None:
    """The dark bars are the intersection: all of the decode under `green`; none where the prefill has a pause instead."""
    figure = drawn(strip_rows(), visits())["strip"]
    latency, both = ([end for *ends, low in bars(figure, gid) if int(low) == 0 for end in ends] for gid in ("latency", "both"))
    assert both == pytest.approx(latency)
    assert len(both) > 6
    paused = steps(tuple(i * 2 * MS + MS for i in range(60)), MS)
    apart = [visits()[0], visit(Mechanism.SERIAL, None, steps(DUES, MS), paused), *visits()[2:]]
    figure = drawn(strip_rows(), apart)["strip"]
    assert not [low for _, _, low in bars(figure, "both") if int(low) == 1]


def test_processes_in_turn_are_not_drawn_as_overlap() -> None:
    """Under `timeslice` a step stays under way while it has lost the device: no dark bar, and the words `in turn`."""
    turns = visit(Mechanism.TIMESLICE, None, steps(DUES, MS), BUSY)
    rows = strip_rows() + point("timeslice", None, 1000.0, 1e5, q="step_us_p50")
    figure = drawn(rows, [*visits(), turns])["strip"]
    assert [band.spot.mechanism for band in bands_of(cases_of(rows, meta(), None)[0], [*visits(), turns])][-1] == "timeslice"
    assert {int(low) for _, _, low in bars(figure, "background")} == {0, 1, 2}
    # From below: timeslice, green, serial, alone.
    assert {int(low) for _, _, low in bars(figure, "both")} == {1, 2}
    assert words(figure).split("\n").count("in turn") == 1


def test_the_strip_draws_pieces_of_a_chunked_request() -> None:
    """Each piece is a bar; between them, where a step has its turn, there is none, and nothing is drawn as run by both."""
    # A request of 5 ms in two pieces with 1 ms between, in which a step of half a millisecond runs.
    pieces = tuple(piece for start in BUSY[1] for piece in ((start, start + 2 * MS), (start + 3 * MS, start + 5 * MS)))
    due = tuple(start + 2 * MS for start in BUSY[1])
    found = visit(Mechanism.CHUNKED, None, steps(due, MS // 2), BUSY, chunk=512)
    cut = replace(found, roles=(found.roles[0], replace(found.roles[1], chunks=pieces)))
    rows = alone(None, 500.0, "step_us_p50") + point("chunked:512", None, 500.0, 1e5, q="step_us_p50")
    apart = [visit(Mechanism.ALONE, None, steps(due, MS // 2), None)]
    whole, parted = (drawn(rows, [*apart, each])["strip"] for each in (found, cut))
    assert bars(whole, "both")
    assert not bars(parted, "both")
    lengths = [b - a for a, b, _ in bars(parted, "background")]
    assert max(lengths) == pytest.approx(2.0)
    assert max(b - a for a, b, _ in bars(whole, "background")) == pytest.approx(5.0)


def test_the_strip_shows_one_size_for_all_and_says_which() -> None:
    """The fewest SMs that SGLang gives a decode on this device, 20 of 132, and the same at every mechanism."""
    shown = words(drawn(strip_rows(), visits())["strip"])
    assert "20 of 132 SMs" in shown
    assert "32 of 132 SMs" not in shown
    assert {"alone", "serial", "green", "p50 1.5 ms"} <= set(shown.split("\n"))


def test_the_last_attempt_that_is_ok_is_shown() -> None:
    """A visit that failed leaves no bars; a later one of the same point takes the place of the first."""
    again = visit(Mechanism.GREEN, 20, steps(DUES, MS // 4), BUSY, seq=9)
    failed = visit(Mechanism.SERIAL, None, steps(DUES, MS), BUSY, status=BlockStatus.FAILED, reason="lost", seq=10)
    figure = drawn(strip_rows(), [*visits(), again, failed])["strip"]
    assert {int(low) for _, _, low in bars(figure, "latency")} == {0, 1}
    assert min(b - a for a, b, low in bars(figure, "latency") if int(low) == 0) == pytest.approx(0.25)


def test_without_stamps_there_is_no_strip() -> None:
    """Rows alone give the two other figures; so do visits of another load."""
    assert set(drawn(strip_rows())) == {"isolation", "tradeoff"}
    assert set(drawn(strip_rows(), [replace(each, rate_per_s=5.0) for each in visits()[1:]])) == {"isolation", "tradeoff"}


starts = st.lists(st.integers(0, 400), min_size=1, max_size=40).map(sorted)


@settings(max_examples=40)
@given(dues=starts, length=st.integers(1, 50))
def test_any_schedule_has_a_window(dues: list[int], length: int) -> None:
    """From a single step to bursts at one instant: the window has a length and holds a due step."""
    ours = steps([due * 1000 for due in dues], length * 1000)
    given_visits = [visit(Mechanism.STREAMS, None, ours, steps([0], 10_000))]
    (case,) = cases_of(point("streams", None, 900.0, 1e5), meta(), None)
    window = window_of(bands_of(case, given_visits), given_visits)
    assert window.end > window.start
    assert any(window.start <= due < window.end for due in ours[0])


# -- all figures ---------------------------------------------------------------------------------------------------------


def test_files_are_written_and_equal_for_equal_runs(tmp_path: Path) -> None:
    """PNG and SVG of each figure in order, without date or random id."""
    folders = [tmp_path / name for name in "ab"]
    once, again = [draw_colocation(strip_rows(), visits(), meta(), folder) for folder in folders]
    assert [path.name for path in once] == [f"{s}.{t}" for s in ("isolation", "tradeoff", "strip") for t in ("png", "svg")]
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]
    assert all(path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml") for path in once)


def test_a_run_without_figures_draws_nothing(tmp_path: Path) -> None:
    """Nothing ok, nothing beside the other role, or nothing at all: an empty list and no file."""
    dead = [replace(row, status="failed", reason="lost") for row in whole_run()]
    for rows in (dead, alone(None, 500.0), []):
        assert draw_colocation(rows, [], meta(), tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_each_latency_workload_has_figures_of_its_own() -> None:
    """Two batches make two sets of files, named by what differs; each has its own rows alone."""
    small = whole_run()
    large = [
        replace(row, label=row.label.replace("batch=8", "batch=32"), params=row.params.replace("batch=8", "batch=32"))
        for row in small
        if row.role == "latency" or row.mechanism != "alone"
    ]
    found = drawn([*small, *large])
    assert set(found) == {f"{name}_{batch}" for name in ("isolation", "tradeoff") for batch in ("batch_8", "batch_32")}
    assert "batch=32" in words(found["isolation_batch_32"])
    assert points(found["isolation_batch_8"], "mechanism")[:2] == points(found["isolation_batch_32"], "mechanism")[:2]


def test_connections_are_cases_and_workqueues_are_names() -> None:
    """`@20:c8` is at 20 SMs in a figure of its own; another workqueue is another line of the same figure."""
    rows = point("green", 20, 600.0, 3e5, place=":c1", connections=1) + point("green", 20, 800.0, 3e5, place=":c8", connections=8)
    found = drawn(rows)
    assert points(found["isolation_connections_8"], "mechanism") == [(20, 800)]
    scoped = [replace(row, label=row.label.replace("driver_default", "device_ctx"), workqueue="device_ctx") for row in rows[:2]]
    figure = drawn([*rows[:2], *scoped])["isolation"]
    assert {"green 600 µs", "green device_ctx 600 µs"} <= set(words(figure).split("\n"))


def test_points_beside_another_load_are_not_drawn() -> None:
    """A failed point of --interference has rows of its own; it is no point of a mechanism."""
    rows = point("green", 20, 600.0, 3e5) + point("green+hbm", 20, 9999.0, 3e5)
    assert points(drawn(rows)["isolation"], "mechanism") == [(20, 600)]


def test_modelled_figures_say_so() -> None:
    """The badge stands on every figure of a modelled run, and on none of a measured one."""
    assert all("MODELLED" not in words(figure) for figure in drawn(strip_rows(), visits()).values())
    modelled = drawn(strip_rows(), visits(), about=meta(Backend.MODELLED))
    assert set(modelled) == {"isolation", "tradeoff", "strip"}
    assert all("MODELLED — not measured" in words(figure) for figure in modelled.values())


def test_absurd_figures_and_sizes_are_no_points() -> None:
    """Infinity, NaN, zero and sizes beyond the device are left out: an axis could not hold them."""
    rows = point("green", 20, 600.0, 3e5)
    for value in (math.inf, math.nan, 0.0, -1.0):
        rows += point("green", 32, value, 2e5) + point("mps_limited", 20, 900.0, value)
    rows += point("green_background", 99_999, 700.0, 1e5)
    found = drawn(rows)
    assert {pair for pair in points(found["isolation"], "mechanism") if not math.isnan(pair[1])} == {(20, 600), (20, 900)}
    assert {x for x, _ in points(found["tradeoff"], "points")} == {3e5, 1e5}
    assert found["isolation"].axes[0].get_xlim()[1] < 40


HOSTILE = r"$\frac{x}$" + "\n\x00" + "☃" * 300


def test_text_from_files_is_no_markup(tmp_path: Path) -> None:
    """Names with mathtext, line breaks, no glyph or endless length are drawn as they are, cut to one line."""
    odd = {"decode": "$x_1^$", "prefill": HOSTILE}
    rows = [replace(row, kernel=odd.get(row.kernel, row.kernel), reason=row.reason and HOSTILE) for row in whole_run()]
    rows += [replace(row, mechanism=HOSTILE, kernel="$x_1^$") for row in point("green", 20, 600.0, 3e5, place=":g1")]
    paths = draw_colocation(rows, [], meta(), tmp_path)
    assert len(paths) == 4
    shown = words(drawn(rows)["isolation"])
    assert "$x_1^$ step p99" in shown
    assert max(len(line) for line in shown.split("\n")) < 200


def test_mechanisms_are_told_apart() -> None:
    """Each has a colour of its own and ink that reads on white (4.5 to 1); one that is unknown has a look too."""
    assert set(LOOKS) == set(Mechanism)
    assert len({look.color for look in LOOKS.values()}) == len(LOOKS)

    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    assert all(1.05 / (luminance(look.ink) + 0.05) >= 4.5 for look in LOOKS.values())
    assert look_of("of tomorrow").ink


def test_durations_read_well() -> None:
    """Three or four digits and a unit that fits."""
    assert [duration(us) for us in (0.5, 43.21, 999, 1553, 20e3, 184_500, 2e6)] == [
        *("0.5 µs", "43.2 µs", "999 µs", "1.55 ms", "20 ms", "184.5 ms", "2 s")
    ]


# -- greenbench plot -----------------------------------------------------------------------------------------------------


def plot(*arguments: Path) -> Result:
    """Run `greenbench plot` in this process."""
    return CliRunner().invoke(cli, ["plot", *map(str, arguments)])


def run_folder(path: Path, rows: Sequence[CoRow] | None, found: Sequence[CoVisit], **more: object) -> Path:
    """Write a run as `colocate` leaves it."""
    path.mkdir()
    folder = RunFolder(path)
    write_meta(folder.meta_path, meta(**more))  # type: ignore[arg-type]
    if rows is not None:
        write_corows(folder.rows_path, rows)
    if found:
        with CoJournal(folder.journal_path) as journal:
            for each in found:
                journal.append(each)
    return path


def test_plot_draws_a_co_location_from_its_journal_alone(tmp_path: Path) -> None:
    """A run that was cut off before rows.csv: rows and strip come from the visits, and a note says so."""
    run = run_folder(tmp_path / "run", None, visits())
    result = plot(run)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        str(run / "plots" / f"{stem}.{suffix}") for stem in ("isolation", "tradeoff", "strip") for suffix in ("png", "svg")
    ]
    assert "has no rows.csv" in result.stderr
    found = read_corun(run)
    medians = {
        (row.mechanism, row.label.split("]@")[1].split("/")[0]): row.step_us_p50 for row in found.rows if row.role == "latency"
    }
    assert medians[("green", "20")] == 1000
    write_corows(run / "rows.csv", found.rows)
    assert plot(run).stderr == ""


def test_plot_notices_rows_that_are_older_than_the_visits(tmp_path: Path) -> None:
    """A run that was killed while it was resumed: its rows.csv lacks points, which the figures have."""
    run = run_folder(tmp_path / "run", strip_rows()[:1], visits())
    assert "is older than blocks.csv" in plot(run).stderr
    assert len(read_corun(run).rows) == 7


def test_plot_takes_rows_as_they_are_beside_a_broken_journal(tmp_path: Path) -> None:
    """What the rows say is drawn; that the strip is missing is said."""
    run = run_folder(tmp_path / "run", strip_rows(), [])
    (run / "blocks.csv").write_bytes(b"no journal\nat all\n")
    result = plot(run)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    assert "no timeline strip" in result.stderr


def test_plot_tells_runs_apart(tmp_path: Path) -> None:
    """A switch run gets none of a co-location's figures; an objective in run.json is used; rows of the wrong kind are named."""
    switch = run_folder(tmp_path / "switch", strip_rows(), [], command="switch")
    assert not {Path(line).stem for line in plot(switch).stdout.splitlines()} & {"isolation", "tradeoff", "strip"}
    limited = run_folder(tmp_path / "limited", strip_rows(), [], plan={"slo": "step_p50=1200us"})
    assert plot(limited).exit_code == 0
    assert "slo" in (limited / "plots" / "isolation.svg").read_text()
    wrong = run_folder(tmp_path / "wrong", strip_rows(), [], plan={"slo": "fast"})
    assert (plot(wrong).exit_code, "plan.slo" in plot(wrong).stderr) == (2, True)
    write_rows(wrong / "rows.csv", [Row()])
    assert "lacks column arrivals" in plot(wrong).stderr
