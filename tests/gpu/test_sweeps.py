"""Whole sweeps on a real GPU, through the command line: good ones, and those that public trouble reports tell of."""

from __future__ import annotations

import math
from pathlib import Path

from tests.gpu.cli import kernel_folder, sweep


def by(rows: list[dict[str, str]], kernel: str) -> dict[str, dict[str, str]]:
    """Return a kernel's rows by what was asked for."""
    return {row["sms_requested"]: row for row in rows if row["kernel"] == kernel}


def test_every_library_kernel_is_verified_and_confined(tmp_path: Path) -> None:
    """Every kernel of the library, with odd sizes too, is right on every partition that it is timed on."""
    ran = sweep(
        tmp_path / "run",
        "scaling",
        "--sms",
        "8,24,full,primary",
        "--rounds",
        "1",
        "--set",
        "copy.n=1000003",
        "--set",
        "triad.n=1000003",
        "--set",
        "read.n=1000003",
        "--set",
        "write.n=1000003",
        "--set",
        "gemm_bf16.m=1000",
        "--set",
        "gemm_bf16.n=1016",
        "--set",
        "gemm_bf16.k=520",
        "--set",
        "gemm_fp32.m=333",
        "--set",
        "gemm_fp32.n=340",
        "--set",
        "gemm_fp32.k=132",
    )
    assert ran.code == 0, ran.err
    assert ran.rows
    for row in ran.rows:
        if row["kernel"].startswith(("context_", "stream_create")) and row["sms_requested"] == "primary":
            assert row["status"] == "unsupported", row
            continue
        assert row["status"] == "ok", row
        assert row["placement"] == "confined", row
        assert row["verified_error"] or row["kernel"] in {"null_launch", "launch_pdl"}, row
        assert float(row["time_us"]) > 0


def test_rounding_is_recorded_and_met_once(tmp_path: Path) -> None:
    """10 and 16 land on the same grant before 13.1: one row, said once; 12 alone keeps both numbers."""
    ran = sweep(tmp_path / "run", "--kernels", "null_launch", "--sms", "8,10,16", "--rounds", "1")
    assert ran.code == 0
    assert [row["sms_granted"] for row in ran.rows] == ["8", "16"]
    assert ran.err.count("10") >= 1
    alone = sweep(tmp_path / "alone", "--kernels", "null_launch", "--sms", "12", "--rounds", "1")
    assert (alone.rows[0]["sms_requested"], alone.rows[0]["sms_granted"]) == ("12", "16")


def test_order_of_sizes_does_not_matter(tmp_path: Path) -> None:
    """Every point is split from the whole device, whatever came before it (pytorch#198178)."""
    times = []
    for place, sizes in enumerate(("24,8,16", "8,16,24")):
        ran = sweep(tmp_path / str(place), "--kernels", "copy,triad", "--sms", sizes, "--rounds", "2")
        assert ran.code == 0, ran.err
        times.append({row["label"]: float(row["time_us"]) for row in ran.rows})
    assert times[0].keys() == times[1].keys()
    for label, first in times[0].items():
        assert math.isclose(first, times[1][label], rel_tol=0.03), label


def test_unsupported_scopes_are_rows(tmp_path: Path) -> None:
    """On a 13.0 driver workqueue scopes give rows that say what is needed, and nothing is measured in their name."""
    ran = sweep(tmp_path / "run", "--kernels", "null_launch", "--sms", "8", "--workqueue", "device_ctx,balanced")
    if ran.rows[0]["status"] == "unsupported":
        assert ran.code == 4
        assert {row["workqueue"] for row in ran.rows} == {"device_ctx", "green_ctx_balanced"}
        assert all("13.1" in row["reason"] and not row["time_us"] for row in ran.rows)
    else:
        assert ran.code == 0


def test_time_is_inverse_to_sms_by_launches_and_by_graph(tmp_path: Path) -> None:
    """A compute-bound grid takes eight times as long on 8 SMs as on 64, timed either way (TensorRT-LLM#12802)."""
    kernels = kernel_folder(tmp_path / "k", "fma_grid")
    for timing in ("steady", "graph"):
        run = tmp_path / timing
        ran = sweep(
            run, "--kernels-dir", str(kernels), "--kernels", "fma_grid", "--sms", "8,64", "--timing", timing, "--rounds", "2"
        )
        assert ran.code == 0, ran.err
        rows = by(ran.rows, "fma_grid")
        assert 7 <= float(rows["8"]["time_us"]) / float(rows["64"]["time_us"]) <= 8.5
        assert {row["placement"] for row in ran.rows} == {"confined"}


def test_spin_of_one_millisecond(tmp_path: Path) -> None:
    """A millisecond reads 0.95 to 1.10 ms at every size in every way of timing (helion#2994)."""
    kernels = kernel_folder(tmp_path / "k", "spin_1ms")
    for timing in ("steady", "graph", "cold", "hot"):
        ran = sweep(
            tmp_path / timing,
            "--kernels-dir",
            str(kernels),
            "--kernels",
            "spin_1ms",
            "--sms",
            "8,16,64,full",
            "--timing",
            timing,
            "--rounds",
            "1",
        )
        assert ran.code == 0, ran.err
        assert all(950 <= float(row["time_us"]) <= 1100 for row in ran.rows)


def test_a_kernel_that_never_ends_costs_its_rows_only(tmp_path: Path) -> None:
    """Hung points fail with their time-out, the good kernel's rows stay, exit 5, and the GPU serves the next run."""
    kernels = kernel_folder(tmp_path / "k", "hang")
    ran = sweep(
        tmp_path / "run",
        "--kernels-dir",
        str(kernels),
        "--kernels",
        "hang,null_launch",
        "--sms",
        "8,16",
        "--timeout",
        "3",
        "--rounds",
        "1",
    )
    assert ran.code == 5
    assert all(row["status"] == "failed" and "timeout, 3 s" in row["reason"] for row in by(ran.rows, "hang").values())
    assert all(row["status"] == "ok" for row in by(ran.rows, "null_launch").values())
    after = sweep(tmp_path / "after", "--kernels", "null_launch", "--sms", "8", "--rounds", "1")
    assert after.code == 0


def test_more_ctas_than_the_partition_holds(tmp_path: Path) -> None:
    """A grid barrier of 132 CTAs hangs on 8 and 16 SMs and is unsupported where declared cooperative (vllm#41189)."""
    plain = kernel_folder(tmp_path / "plain", "needs_grid_sync")
    ran = sweep(
        tmp_path / "run",
        "--kernels-dir",
        str(plain),
        "--kernels",
        "needs_grid_sync",
        "--sms",
        "8,16,24",
        "--timeout",
        "3",
        "--rounds",
        "1",
    )
    assert [row["status"] for row in ran.rows] == ["failed", "failed", "ok"]
    assert ran.code == 5
    declared = kernel_folder(tmp_path / "coop", "needs_grid_sync", extra="cooperative = true\n")
    ran = sweep(
        tmp_path / "coop-run", "--kernels-dir", str(declared), "--kernels", "needs_grid_sync", "--sms", "8,16,24", "--rounds", "1"
    )
    assert [row["status"] for row in ran.rows] == ["unsupported", "unsupported", "ok"]
    assert all("132" in row["reason"] for row in ran.rows[:2])
    assert ran.code == 0


def test_an_illegal_address_takes_only_its_own_rows(tmp_path: Path) -> None:
    """A sticky error loses its worker; the other kernel's points are measured by the next one."""
    kernels = kernel_folder(tmp_path / "k", "wild")
    ran = sweep(
        tmp_path / "run",
        "--kernels-dir",
        str(kernels),
        "--kernels",
        "wild,null_launch,triad",
        "--set",
        "triad.n=1048576",
        "--sms",
        "8,16",
        "--rounds",
        "1",
    )
    assert ran.code == 5
    assert all("ILLEGAL_ADDRESS" in row["reason"] for row in by(ran.rows, "wild").values())
    assert all(row["status"] == "ok" for name in ("null_launch", "triad") for row in by(ran.rows, name).values())


def test_out_of_memory_is_one_sentence(tmp_path: Path) -> None:
    """Arrays larger than the device fail their point with what is needed and free; the small ones are measured."""
    ran = sweep(tmp_path / "run", "--kernels", "copy", "--set", "n=1048576,100000000000", "--sms", "8", "--rounds", "1")
    assert ran.code == 5
    small, large = ran.rows
    assert small["status"] == "ok"
    assert large["status"] == "failed"
    assert "out of memory" in large["reason"]


def test_working_sets_inside_the_l2_are_not_called_hbm(tmp_path: Path) -> None:
    """A 32 MiB set is timed over rotating buffers, the 1 GiB one stays below the bus (TileGym#118)."""
    kernels = kernel_folder(tmp_path / "k", "copy_bytes")
    ran = sweep(
        tmp_path / "run",
        "--kernels-dir",
        str(kernels),
        "--kernels",
        "copy_bytes",
        "--set",
        "bytes=16777216,536870912",
        "--sms",
        "full",
        "--rounds",
        "2",
    )
    assert ran.code == 0, ran.err
    assert [int(row["working_set_bytes"]) for row in ran.rows] == [33554432, 1073741824]
    assert all(float(row["gb_per_s"]) < 4814 for row in ran.rows)
    assert float(ran.rows[1]["gb_per_s"]) > 3500


def test_another_default_stream_changes_nothing(tmp_path: Path, monkeypatch: object) -> None:
    """Every launch names its stream, so the per-thread default stream is never used (pytorch#188419)."""
    import os

    os.environ["CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"] = "1"
    try:
        ran = sweep(tmp_path / "run", "--kernels", "copy", "--sms", "8,64", "--rounds", "1")
    finally:
        del os.environ["CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM"]
    assert ran.code == 0, ran.err
    assert {row["placement"] for row in ran.rows} == {"confined"}
