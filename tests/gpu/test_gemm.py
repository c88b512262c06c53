"""The GEMMs on a real GPU: right at every SM count, since the schedule follows from it, and at edges that are not multiples."""

from __future__ import annotations

from pathlib import Path

from tests.gpu.cli import sweep

COUNTS = ("8", "24", "48", "104", "120", "full")
PLAN = """
yardsticks = false
kernels = [
    { name = "gemm_bf16", params = { m = 4096, n = 4096, k = 4096 } },
    { name = "gemm_bf16", params = { m = 1000, n = 1016, k = 520 } },
    { name = "gemm_bf16", params = { m = 4104, n = 4096, k = 4096 } },
]
"""


def test_gemm_bf16_is_right_at_every_count(tmp_path: Path) -> None:
    """Whole tiles, tiles cut along k, pairs of CTAs, ragged edges: every point is verified, and on its own SMs."""
    (tmp_path / "gemm.toml").write_text(PLAN, encoding="utf-8")
    ran = sweep(tmp_path / "run", str(tmp_path / "gemm.toml"), "--sms", ",".join(COUNTS), "--rounds", "1", "--timing", "steady")
    assert ran.code == 0, ran.err
    assert len({(row["params"], row["sms_granted"]) for row in ran.rows}) == 3 * len(COUNTS)
    for row in ran.rows:
        assert row["status"] == "ok", row
        assert row["placement"] == "confined", row
        assert row["verified_error"], row
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
