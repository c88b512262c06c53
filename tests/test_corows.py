"""Rows of colocate and switch: the groups of Row, written and read alike, and figures from the times of both roles."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given, strategies as st

from greenbench.colocation.figures import RoleTimes, co_label, judged, overlap_fraction, with_figures
from greenbench.corow import CoRow
from greenbench.errors import ResultFileError
from greenbench.row import Row
from greenbench.runfiles import read_corows, read_rows, write_corows, write_rows
from greenbench.slo import Verdict, parse_slo
from greenbench.tails import LEAST, Metric, StepTimes, column

METRICS = [f"{metric}_us_p{q}" for metric in ("step", "itl", "ttft") for q in (50, 95, 99)]
THROUGHPUT = ["tokens_per_s", "goodput_rps", "slo_met", "saturated", "throughput_per_s", "arrivals"]
COMPARED = ["overlap_frac", "slowdown", "slowdown_compute", "slowdown_l2", "slowdown_hbm", "slowdown_copy"]
PROMISED = [*METRICS, *THROUGHPUT, *COMPARED, "switch_us", "l2_retained_pct", "energy_mj_per_op"]


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda each: (each[0], sum(each))), max_size=12)
cells = st.fixed_dictionaries(
    {
        "label": st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
        "sms_granted": st.none() | st.integers(1, 500),
        "rate_per_s": st.none() | st.integers(1, 10**6).map(float),
        "itl_us_p99": st.none() | st.integers(0, 10**9).map(lambda us: us / 128),
        "slo_met": st.sampled_from(["true", "false", ""]),
    }
)


def steps(latency_us: int, count: int, period_us: int) -> StepTimes:
    """Return steps that are due at a fixed rate and start at once."""
    return StepTimes.of((i * period_us * 1000, i * period_us * 1000, (i * period_us + latency_us) * 1000) for i in range(count))


def test_groups_are_those_of_rows() -> None:
    """Identity, partition, evidence and outcome have the names, types and order of Row; each promised metric has a column."""
    ours, theirs = list(get_type_hints(CoRow).items()), list(get_type_hints(Row).items())
    until_role = [name for name, _ in theirs].index("role") + 1
    from_evidence = len(theirs) - [name for name, _ in theirs].index("sm_clock_mhz")
    assert ours[:until_role] == theirs[:until_role]
    assert ours[-from_evidence:] == theirs[-from_evidence:]
    assert set(PROMISED) <= set(dict(ours))
    assert {column(metric, q) for metric in Metric for q in LEAST} <= set(dict(ours))


@given(drawn=st.lists(cells, max_size=4))
def test_rows_read_back(drawn: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was written is read again, seven digits of a real and every text."""
    path = tmp_path_factory.mktemp("run") / "rows.csv"
    rows = [CoRow(**each) for each in drawn]  # type: ignore[arg-type]
    write_corows(path, rows)
    found = read_corows(path)
    assert [dataclasses.replace(row, itl_us_p99=None) for row in found] == [
        dataclasses.replace(row, itl_us_p99=None) for row in rows
    ]
    for before, after in zip(rows, found, strict=True):
        assert after.itl_us_p99 == (None if before.itl_us_p99 is None else pytest.approx(before.itl_us_p99, rel=1e-6))


def test_tables_of_the_two_kinds_are_told_apart(tmp_path: Path) -> None:
    """A sweep's rows.csv is no colocation's, nor the other way round; the missing column is named."""
    write_rows(tmp_path / "sweep.csv", [Row()])
    write_corows(tmp_path / "rows.csv", [CoRow()])
    with pytest.raises(ResultFileError, match=r"sweep.csv lacks column arrivals"):
        read_corows(tmp_path / "sweep.csv")
    with pytest.raises(ResultFileError, match=r"rows.csv lacks column timing"):
        read_rows(tmp_path)
    assert read_corows(tmp_path) == [CoRow()]


@given(a=intervals, b=intervals)
def test_overlap_is_what_counting_each_ns_gives(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    """Against the brute force: the common ns of both unions over the smaller union, whichever comes first."""
    first, second = ({ns for start, end in each for ns in range(start, end)} for each in (a, b))
    expected = len(first & second) / min(len(first), len(second)) if first and second else None
    assert overlap_fraction(a, b) == expected
    assert overlap_fraction(b, a) == expected


def test_figures_come_from_the_times_of_both_roles() -> None:
    """A decode of 100 us each 200 us beside a prefill of 1 ms each 2 ms, by hand; rows of the prefill have ttft alone."""
    decode = RoleTimes(times=steps(100, 3000, 200), metrics=(Metric.STEP, Metric.ITL), tokens=8, alone=steps(50, 3000, 200))
    prefill = RoleTimes(times=steps(1000, 300, 2000), metrics=(Metric.TTFT,), tokens=2048)
    slo = parse_slo("itl_p99=100us,ttft_p95=1ms")
    row = with_figures(CoRow(flags="remainder"), decode, prefill, slo)
    assert (row.step_us_p50, row.itl_us_p99, row.ttft_us_p50, row.steps) == (100, 100, None, 3000)
    assert row.tokens_per_s == pytest.approx(8 * row.throughput_per_s) == pytest.approx(8 * 3000 / 0.5999)
    assert (row.slowdown, row.overlap_frac, row.saturated, row.flags) == (2, 0.5, "false", "remainder")
    assert (row.goodput_rps, row.slo, row.slo_met) == (row.throughput_per_s, "itl_p99=100us,ttft_p95=1ms", "true")
    other = with_figures(CoRow(), prefill, decode, slo)
    # 300 requests, none above: enough to show that a p95 holds, too few to print it.
    assert (other.ttft_us_p50, other.ttft_us_p95, other.step_us_p50, other.slowdown) == (1000, None, None, None)
    assert (other.overlap_frac, other.slo_met) == (0.5, "true")


def test_a_role_whose_queue_grows_has_no_percentiles() -> None:
    """A prefill that is due every 2 ms and takes 3: flagged, without tails, with a throughput, and no objective is met."""
    late = RoleTimes(
        times=StepTimes.of((i * 2_000_000, i * 3_000_000, (i + 1) * 3_000_000) for i in range(1200)), metrics=(Metric.TTFT,)
    )
    decode = RoleTimes(times=steps(100, 3000, 200), metrics=(Metric.STEP,))
    slo = parse_slo("step_p99=1ms,ttft_p99=10s")
    row = with_figures(CoRow(), late, decode, slo)
    assert (row.ttft_us_p50, row.saturated, row.flags, row.slo_met) == (None, "true", "saturated", "false")
    assert row.throughput_per_s == pytest.approx(1000 / 3)
    assert judged([decode, late], slo) == (Verdict.BROKEN, "ttft_p99: the queue was still growing")


def test_alone_and_without_an_objective_cells_stay_empty() -> None:
    """No other role: no overlap; no objective: no verdict and no goodput; few steps: saturation cannot be told."""
    row = with_figures(CoRow(), RoleTimes(times=steps(100, 10, 200), metrics=(Metric.STEP,)), None)
    assert (row.overlap_frac, row.slo_met, row.goodput_rps, row.saturated, row.tokens_per_s) == (None, "", None, "", None)
    assert row.step_us_p50 == 100


def test_labels_name_the_point() -> None:
    """Workload, its parameters, size, scope, mechanism and rate; a closed loop has a dash."""
    params = (("model", "llama3-8b"), ("layers", 4))
    assert co_label("decode", params, "20", "driver_default", "green", 120.0) == (
        "decode[model=llama3-8b,layers=4]@20/driver_default/green/120"
    )
    assert co_label("spin", (), "full", "driver_default", "mps", None) == "spin[]@full/driver_default/mps/-"
