"""The vendors' GEMMs on a real GPU: each way verified on its own partition, in streams and in graphs, and the fastest marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gpu.cli import sweep

SIZES = ("8", "24", "full")
CUBLAS = ("cublas", "cublas_sms", "cublaslt")
WAYS = {"gemm_bf16": CUBLAS, "gemm_fp16": CUBLAS, "gemm_fp32": CUBLAS, "gemm_tf32": CUBLAS, "gemm_fp8": ("cublaslt",)}
PLAN = """
yardsticks = true
rounds = 1
kernels = [{kernels}]
"""


@pytest.mark.parametrize("timing", ["steady", "graph"])
def test_every_way_is_right_on_every_partition(timing: str, tmp_path: Path) -> None:
    """Sizes that all differ: each yardstick passes its kernel's reference, says what was used, and one of several is best."""
    params = "params = { m = 384, n = 1040, k = 528 }"
    listed = ", ".join(f'{{ name = "{name}", {params} }}' for name in WAYS)
    (tmp_path / "ways.toml").write_text(PLAN.replace("{kernels}", listed), encoding="utf-8")
    ran = sweep(tmp_path / "run", str(tmp_path / "ways.toml"), "--sms", ",".join(SIZES), "--timing", timing)
    assert ran.code == 0, ran.err
    rows = {(row["kernel"], row["sms_requested"]): row for row in ran.rows}
    assert set(rows) == {
        (f"{name}{way}", size) for name, ways in WAYS.items() for way in ("", *(f".{each}" for each in ways)) for size in SIZES
    }
    for row in ran.rows:
        assert (row["status"], row["placement"]) == ("ok", "confined"), row
        assert row["verified_error"], row
    for name, ways in WAYS.items():
        for size in SIZES:
            flagged = [way for way in ways if "best" in rows[f"{name}.{way}", size]["flags"].split(";")]
            assert len(flagged) == (1 if len(ways) > 1 else 0), (name, size)
            assert re.match(r"cublaslt first heuristic, algorithm \d+", rows[f"{name}.cublaslt", size]["config"])
    for size in SIZES:
        target = rows["gemm_bf16.cublas_sms", size]
        assert target["config"] == f"cublas sm_count_target={target['sms_granted']}"


def test_a_graph_of_products_takes_as_long_as_a_stream_of_them(tmp_path: Path) -> None:
    """Every way can be captured: a replay's time for a product is that of launches in a row."""
    times = {}
    for timing in ("steady", "graph"):
        ran = sweep(
            tmp_path / timing,
            *("--kernels", "gemm_bf16", "--set", "m=2048", "--set", "n=2048", "--set", "k=2048", "--yardsticks", "all"),
            *("--sms", "24,full", "--rounds", "1", "--timing", timing),
        )
        assert ran.code == 0, ran.err
        times.update({(row["kernel"], row["sms_granted"], timing): float(row["time_us"]) for row in ran.rows})
    for kernel, sms, _ in {key for key in times if key[2] == "graph"}:
        assert abs(times[kernel, sms, "graph"] / times[kernel, sms, "steady"] - 1) < 0.15, times
