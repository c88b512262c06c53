"""bounds.csv: what stands in it, that it follows from run.json and the journal alone, and how a sweep says it in words."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from greenbench.catalog import library
from greenbench.cli.progress import QuietListener
from greenbench.cli.report import closing_lines
from greenbench.cli.session import Session
from greenbench.experiments.sweep import SweepOutcome, SweepRequest, run_sweep
from greenbench.journal import read_journal
from greenbench.knee import knee
from greenbench.limits import by_label, derive_bounds, helped_by_l2, share_of, summary
from greenbench.plan import load_plan
from greenbench.results import read_run
from greenbench.rows import derive_rows
from greenbench.runfiles import read_meta, write_bounds
from greenbench.schema import BoundRow, Row

BASELINE = Path(__file__).parent.parent / "results" / "baselines" / "h200-580" / "scaling"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    """Plan `ceilings` with a triad, a GEMM and a chase beside its probes, on the modelled device."""
    names = "read,write,copy,l2_read,peak_tensor,peak_fma,triad,gemm_bf16,chase"
    plan = load_plan("ceilings", {"kernels": names, "sms": "8,64,full", "rounds": 2, "yardsticks": "cublas"}, library())
    folder = tmp_path_factory.mktemp("limits") / "run"
    return run_sweep(SweepRequest(plan=plan, device="model:h200", out=folder), QuietListener(Session()))


def of(outcome: SweepOutcome, kernel: str, sms: int) -> BoundRow:
    """The line of a kernel at a count."""
    return next(line for line in outcome.limits if line.kernel == kernel and line.sms_granted == sms)


def test_the_file_holds_a_line_per_ok_row(outcome: SweepOutcome) -> None:
    """CRLF line ends, the header of BoundRow, and the labels of rows.csv in their order, by which the two are joined."""
    data = (outcome.folder / "bounds.csv").read_bytes()
    assert data.count(b"\r\n") == data.count(b"\n") == len(outcome.rows) + 1
    with (outcome.folder / "bounds.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == [field.name for field in fields(BoundRow)]
    assert [line["label"] for line in table] == [row.label for row in outcome.rows if row.status == "ok"]


def test_the_file_can_be_made_anew(outcome: SweepOutcome, tmp_path: Path) -> None:
    """run.json and blocks.csv give it byte for byte; nothing that only the running sweep knew is in it."""
    meta, blocks = read_meta(outcome.folder / "run.json"), read_journal(outcome.folder / "blocks.csv")
    write_bounds(tmp_path / "bounds.csv", derive_bounds(meta, blocks, derive_rows(meta, blocks)))
    assert (tmp_path / "bounds.csv").read_bytes() == (outcome.folder / "bounds.csv").read_bytes()
    assert [line.label for line in read_run(outcome.folder).limits] == [line.label for line in outcome.limits]


def test_ceilings_by_specification(outcome: SweepOutcome) -> None:
    """At the clock of the row: 64 SMs of an H200, its bus, the links for this row's own mix of reads and writes, its L2."""
    triad, read = of(outcome, "triad", 64), of(outcome, "read", 64)
    clock = read.sm_clock_mhz or 0
    assert read.spec_hbm_gb_per_s == pytest.approx(4814.3, abs=0.1)
    # A thousandth of the bytes are partial sums, written meanwhile.
    assert read.spec_link_gb_per_s == pytest.approx(64 * 81 * clock / 1e3, rel=1e-3)
    assert triad.spec_link_gb_per_s == pytest.approx(64 * 96 * (triad.sm_clock_mhz or 0) / 1e3)
    assert read.spec_l2_gb_per_s == pytest.approx(4940 * clock / 1e3)
    assert of(outcome, "gemm_bf16", 64).spec_tflop_per_s == pytest.approx(64 * 4096 * 1980 / 1e6)
    assert read.spec_tflop_per_s is None


def test_ceilings_by_measurement(outcome: SweepOutcome) -> None:
    """The same for every row of a partition, but for arithmetic, which is that of the row's type."""
    for sms in (8, 64, 132):
        triad, gemm = of(outcome, "triad", sms), of(outcome, "gemm_bf16", sms)
        for line in (triad, gemm):
            assert line.measured_hbm_read_gb_per_s == of(outcome, "read", sms).gb_per_s
            assert line.measured_hbm_write_gb_per_s == of(outcome, "write", sms).gb_per_s
            assert line.measured_l2_read_gb_per_s == of(outcome, "l2_read", sms).gb_per_s
        assert gemm.measured_tflop_per_s == of(outcome, "peak_tensor", sms).tflop_per_s
        assert (gemm.measured_by, gemm.measured_kernel) == ("compute", "peak_tensor")
        assert gemm.measured_pct == pytest.approx(100 * (gemm.tflop_per_s or 0) / (gemm.measured_tflop_per_s or 1))
        assert triad.measured_tflop_per_s == of(outcome, "peak_fma", sms).tflop_per_s
    assert of(outcome, "gemm_bf16.cublas", 64).measured_kernel == "peak_tensor"


def test_a_row_that_is_the_ceiling_has_none(outcome: SweepOutcome) -> None:
    """The probes of one way, the L2 and the units are held against nothing, least of all against themselves."""
    for kernel in ("read", "write", "l2_read", "peak_tensor", "peak_fma"):
        line = of(outcome, kernel, 132)
        assert (line.measured_us, line.measured_by, line.measured_kernel, line.measured_pct) == (None, "", "", None)


def test_waves_of_what_divides_its_work(outcome: SweepOutcome) -> None:
    """One CTA on each SM fills the lane; a chase has no waves to fill, and a vendor's are its own affair."""
    assert of(outcome, "gemm_bf16", 64).wave_efficiency_pct == pytest.approx(100)
    assert of(outcome, "chase", 64).wave_efficiency_pct is None
    yardstick = of(outcome, "gemm_bf16.cublas", 64)
    assert (yardstick.grid, yardstick.wave_efficiency_pct) == (None, None)


def test_a_measured_run_of_old_gets_its_ceilings_too() -> None:
    """The H200's copy on all SMs: 91 % of what `write` moved; on 8 the links bind it. No row is above a probe."""
    run = read_run(BASELINE)
    limits = by_label(run.limits)
    copy = [limits[row.label] for row in run.rows if row.kernel == "copy" and row.sms_granted in (8, 132)]
    assert [(line.measured_by, line.measured_kernel, round(line.measured_pct or 0)) for line in copy] == [
        ("write", "write", 81),
        ("memory", "write", 91),
    ]
    assert not any("above_bound" in row.flags for row in run.rows)
    assert all(not line.measured_by for line in run.limits if line.family == "gemm")


def line(**changes: Any) -> BoundRow:
    """A triad on 64 SMs."""
    base: dict[str, Any] = {
        "label": "triad@64",
        "sms_granted": 64,
        "sm_clock_mhz": 1980.0,
        "time_us": 1000.0,
        "gb_per_s": 4334.0,
        "spec_hbm_gb_per_s": 4814.0,
        "spec_link_gb_per_s": 64 * 96 * 1.98,
        "bound_by": "memory",
        "measured_us": 940.0,
        "measured_by": "memory",
        "measured_kernel": "read",
    }
    return BoundRow(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "94 % of the 4,611 GB/s that read moved here"),
        ({"measured_us": None, "measured_by": "", "measured_kernel": ""}, "90 % of the 4,814 GB/s of its bus"),
        ({"measured_by": "write"}, "90 % of the 4,814 GB/s of its bus"),
        ({"bound_by": "link", "gb_per_s": 11922.0}, "98 % of their 96 B/clk"),
        ({"bound_by": "link", "sm_clock_mhz": None}, ""),
        ({"bound_by": "l2", "measured_by": "l2", "measured_kernel": "l2_read"}, "94 % of the 4,611 GB/s that l2_read moved here"),
        ({"bound_by": "l2", "spec_l2_gb_per_s": 9781.0}, "44 % of the 9,781 GB/s of it at this clock"),
        ({"bound_by": ""}, ""),
        ({"bound_by": "launch"}, ""),
    ],
)
def test_how_near_a_stream_came(changes: dict[str, Any], said: str) -> None:
    """The measured ceiling where there is one for what binds, else the specification, in its own unit."""
    assert share_of(line(**changes)) == said


def test_how_near_arithmetic_came() -> None:
    """In TFLOP/s, waves as well: what they cost is part of the distance. Nothing where no figure is known."""
    gemm = {"bound_by": "compute", "tflop_per_s": 700.0, "measured_by": "compute", "measured_kernel": "peak_tensor"}
    said = "92 % of the 760 TFLOP/s that peak_tensor reached here"
    assert share_of(line(**gemm, measured_tflop_per_s=760.0)) == said
    waves = gemm | {"bound_by": "waves", "measured_by": "waves"}
    assert share_of(line(**waves, measured_tflop_per_s=760.0)) == said
    assert share_of(line(**gemm, spec_tflop_per_s=1070.5)) == "65 % of 1,070 TFLOP/s at this clock"
    assert share_of(line(**gemm | {"tflop_per_s": 55.2}, spec_tflop_per_s=64.9)) == "85 % of 64.9 TFLOP/s at this clock"
    assert share_of(line(**gemm | {"tflop_per_s": None})) == share_of(None) == ""


def test_a_sweep_ends_with_the_knee_and_what_binds(outcome: SweepOutcome) -> None:
    """One line per kernel with how near it came on each side, and one with what the probes reached."""
    said = closing_lines(outcome.rows, outcome.meta, "x", bounds=outcome.limits)
    copy = next(text for text in said if " copy: " in text)
    assert copy.startswith("MODELLED: copy: knee at 64 of 132 SMs, 9")
    assert "; below it the links of the SMs bind (" in copy
    assert " % of their 64 B/clk), above it HBM binds (" in copy
    assert " GB/s that " in copy
    assert said[-1].startswith("MODELLED: ceilings measured on 132 SMs: HBM 4,")
    assert " written, " in said[-1]
    assert "; L2 8," in said[-1]
    assert said[-1].endswith(" fp32")
    assert not any("ceilings measured" in text for text in closing_lines(outcome.rows, outcome.meta, "x"))


def test_ceilings_are_told_for_the_most_sms_with_a_probe() -> None:
    """A run without probes tells none; a probe on few SMs is told for these, though other kernels ran on more."""
    assert summary([]) == summary([line(measured_us=None)]) == ""
    assert summary([line(measured_hbm_mixed_gb_per_s=4243.0)]) == ""
    few = line(sms_granted=8, measured_hbm_read_gb_per_s=1268.0)
    assert summary([few, line(sms_granted=132)]) == "ceilings measured on 8 SMs: HBM 1,268 GB/s read"
    peak = line(sms_granted=132, family="probe", dtype="e4m3", tflop_per_s=1443.0)
    fma = replace(peak, dtype="float32", tflop_per_s=60.13)
    assert summary([few, peak, fma]) == "ceilings measured on 132 SMs: 1,443 TFLOP/s fp8, 60.1 fp32"


def test_without_lines_a_knee_is_told_as_before() -> None:
    """Limits are found by label; rows that have none only lose what stands in brackets."""
    common = {"kernel": "triad", "family": "memory", "status": "ok", "bound_by": "memory"}
    rates = (("16", 16, 1780.0), ("64", 64, 4334.0), ("full", 132, 4400.0))
    rows = [
        Row(label=f"triad@{asked}", sms_requested=asked, sms_granted=sms, gb_per_s=rate, **common) for asked, sms, rate in rates
    ]
    bare, told = knee(rows), knee(rows, by_label([line()]))
    assert bare is not None
    assert told is not None
    lead = "triad: knee at 64 of 132 SMs, 98 % of the full device, the largest count measured below 132; on both sides HBM binds"
    assert bare.sentence == f"{lead}."
    assert told.sentence == f"{lead} (94 % of the 4,611 GB/s that read moved here)."


@pytest.mark.parametrize("by", ["memory", "link", "l2"])
def test_no_share_above_what_binds_is_told(by: str) -> None:
    """Whatever is passed by more than 2 % does not bind; of HBM it is known that the L2 helped."""
    near, past = (line(bound_by=by, measured_by="", spec_l2_gb_per_s=4814.0, gb_per_s=share * 4814.0) for share in (1.01, 1.64))
    if by == "link":
        near, past = (replace(each, spec_link_gb_per_s=4814.0) for each in (near, past))
    assert share_of(near).startswith("101 % of ")
    assert share_of(past) == ""
    found = Row(label="triad@64", bound_by=by)
    assert not helped_by_l2(found, near)
    assert helped_by_l2(found, past) is (by == "memory")


def test_no_share_above_a_probe_is_told() -> None:
    """A GEMM faster than the probe of its type is not held against it."""
    gemm = {"bound_by": "compute", "measured_by": "compute", "measured_kernel": "peak_tensor", "measured_tflop_per_s": 700.0}
    assert share_of(line(**gemm, tflop_per_s=710.0)).startswith("101 % of ")
    assert share_of(line(**gemm, tflop_per_s=756.0)) == ""
