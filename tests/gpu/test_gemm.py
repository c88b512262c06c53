"""The GEMMs on a real GPU: right at every SM count, since the schedule follows from it, and at edges that are not multiples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.cli import Ran, sweep

COUNTS = ("8", "24", "48", "104", "120", "full")
NAMES = ("gemm_bf16", "gemm_fp16", "gemm_tf32", "gemm_fp8", "gemm_fp8_raw", "gemm_fp32")
# Whole tiles; ragged in all directions; a row of tiles more than fits.
SHAPES = ((4096, 4096, 4096), (1000, 1016, 528), (4104, 4096, 4096))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """All GEMMs at all sizes and counts, in one run."""
    folder = tmp_path_factory.mktemp("gemms")
    points = [f'{{ name = "{name}", params = {{ m = {m}, n = {n}, k = {k} }} }},\n' for name in NAMES for m, n, k in SHAPES]
    plan = f'yardsticks = false\nrounds = 1\ntiming = "steady"\nkernels = [\n{"".join(points)}]\n'
    (folder / "gemm.toml").write_text(plan, encoding="utf-8")
    return sweep(folder / "run", str(folder / "gemm.toml"), "--sms", ",".join(COUNTS))


@pytest.mark.parametrize("name", NAMES)
def test_gemms_are_right_at_every_count(ran: Ran, name: str) -> None:
    """Whole tiles, tiles cut along k, pairs of CTAs, ragged edges: every point is verified, and on its own SMs."""
    rows = [row for row in ran.rows if row["kernel"] == name]
    if {row["status"] for row in rows} == {"unsupported"}:
        pytest.skip(rows[0]["reason"])
    assert len({(row["params"], row["sms_granted"]) for row in rows}) == len(SHAPES) * len(COUNTS), ran.err
    for row in rows:
        assert row["status"] == "ok", row
        assert row["placement"] == "confined", row
        assert row["verified_error"], row
        if name != "gemm_fp8_raw":  # which has no file for other architectures
            assert row["config"].startswith("sm_90a-") == (" H" in row["device"]), row


def test_a_graph_of_launches_takes_the_maps_along(tmp_path: Path) -> None:
    """Captured launches copy their tensor maps: a replay is timed like a stream of launches, and its census is right."""
    times = {}
    for timing in ("steady", "graph"):
        ran = sweep(
            tmp_path / timing,
            *("--kernels", "gemm_bf16", "--set", "m=2048", "--set", "n=2048", "--set", "k=2048"),
            *("--sms", "24,120", "--rounds", "1", "--timing", timing),
        )
        assert ran.code == 0, ran.err
        for row in ran.rows:
            assert (row["status"], row["placement"]) == ("ok", "confined"), row
            times[row["kernel"], row["sms_granted"], timing] = float(row["time_us"])
    for sms in ("24", "120"):
        assert abs(times["gemm_bf16", sms, "graph"] / times["gemm_bf16", sms, "steady"] - 1) < 0.15, times


def test_alignment_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """n = 1001 cannot be read in rows of whole 16 bytes: exit 2 before any GPU work."""
    ran = sweep(tmp_path / "run", "--kernels", "gemm_bf16", "--set", "n=1001", "--sms", "8")
    assert ran.code == 2
    assert "n must be a multiple of 8, and 1001 is not" in ran.err
