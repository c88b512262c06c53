"""The GEMMs of any architecture on a real GPU, every tile, also where a version for its architecture would be taken instead."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from greenbench.catalog import kernels_dir, load_kernel
from tests.gpu.cli import sweep

GEMMS = ("gemm_bf16", "gemm_fp16", "gemm_tf32", "gemm_fp8", "gemm_fp32")
# Ragged in all directions; k shorter than a stage; whole tiles, more than fit at once.
SHAPES = ((1000, 1016, 528), (129, 264, 16), (1024, 2048, 1024))
COUNTS = ("8", "full")


def base_files(folder: Path) -> list[str]:
    """Write each tile of each base file as a kernel of its own, which has no versions; return their names."""
    shutil.copy(kernels_dir() / "gemm_mma.cuh", folder)
    names = []
    for gemm in GEMMS:
        kernel = load_kernel(kernels_dir() / f"{gemm}.cu")
        before, after = kernel.source.split("[[variant]]", 1)[0], kernel.source.partition("\n[work]")[2]
        tables = re.findall(r"\[\[variant\]\]\ndefines = .*\n", kernel.source)
        assert len(tables) == len(kernel.variants)
        for table, variant in zip(tables, kernel.variants, strict=True):
            names.append(f"mma_{gemm}_{variant.name}")
            (folder / f"{names[-1]}.cu").write_text(f"{before}{table}\n[work]{after}")
    return names


def test_every_tile_of_the_base_files_is_right(tmp_path: Path) -> None:
    """All are verified at every size and count, unless the device is older than the file asks for."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    names = base_files(folder)
    points = [f'{{ name = "{name}", params = {{ m = {m}, n = {n}, k = {k} }} }},\n' for name in names for m, n, k in SHAPES]
    plan = tmp_path / "mma.toml"
    plan.write_text(f'yardsticks = false\nrounds = 1\ntiming = "steady"\nkernels = [\n{"".join(points)}]\n', encoding="utf-8")
    ran = sweep(tmp_path / "run", str(plan), "--kernels-dir", str(folder), "--sms", ",".join(COUNTS))
    assert ran.code == 0, ran.err
    assert len(ran.rows) == len(names) * len(COUNTS) * len(SHAPES)
    for row in ran.rows:
        if row["kernel"].startswith("mma_gemm_fp8") and row["status"] == "unsupported":
            assert "needs compute capability 8.9" in row["reason"], row
            continue
        assert row["status"] == "ok", row
        assert row["verified_error"], row
        assert row["config"] == row["kernel"].split("_", 3)[3], row
