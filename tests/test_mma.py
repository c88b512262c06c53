"""gemm_mma.cuh on the host: its index arithmetic, swizzles, ring and stores give exact products in every format and tile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from greenbench.catalog import Kernel, Variant, kernels_dir, load_kernel

HOST = Path(__file__).parent / "data" / "host"
KERNELS = {name: load_kernel(kernels_dir() / f"{name}.cu") for name in ("gemm_bf16", "gemm_fp16", "gemm_tf32", "gemm_fp8")}
C_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
# float16 is bfloat16 to all but the instruction itself.
RUN = [(name, variant) for name, kernel in KERNELS.items() if name != "gemm_fp16" for variant in kernel.variants]

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the host's side is compiled by g++")


def constants(kernel: Kernel) -> str:
    """Return what the kernel's file tells gemm_mma.cuh of its format."""
    lines = re.findall(r"^constexpr .*;$", kernel.source, re.MULTILINE)
    assert {"OPERAND", "B_BY_COLUMNS", "PROMOTED"} == set(re.findall(r"(\w+) =", " ".join(lines)))
    return " ".join(lines)


def compiled(kernel: Kernel, variant: Variant, folder: Path) -> Path:
    """Compile the header with the constants of a kernel and one of its tiles."""
    program = folder / f"{kernel.name}_{variant.name}"
    macros = {"CONSTANTS": constants(kernel), "C_BYTES": C_BYTES[kernel.buffers[-1].dtype], **dict(variant.defines)}
    given = [f"-D{name}={value}" for name, value in macros.items()]
    paths = ["-I", str(HOST), "-I", str(kernels_dir())]
    command = ["g++", "-std=c++17", "-O1", "-w", *given, *paths]
    subprocess.run([*command, str(HOST / "gemm.cpp"), "-o", str(program)], check=True, timeout=120)
    return program


def shapes(kernel: Kernel, variant: Variant) -> list[tuple[int, int, int, int]]:
    """Return (m, n, k, CTAs): several tiles for one CTA, k shorter than a stage, a CTA too many, a ninth row of tiles."""
    defines, size = dict(variant.defines), {"e4m3": 1, "tf32": 4}.get(kernel.dtype, 2)
    chunk, result = 16 // size, 16 // C_BYTES[kernel.buffers[-1].dtype]
    bm, bn, bk = (defines[name] for name in ("BM", "BN", "BK"))
    n = bn + max(chunk, result)
    return [
        (bm + 19, n, (defines["STAGES"] + 1) * bk + chunk, 1),
        (bm + 1, 2 * bn + 8, chunk, 2),
        (1, n, bk, 3),
        (9 * bm, 8, 2 * bk, 7),
    ]


@needs_compiler
@pytest.mark.parametrize(("name", "variant"), RUN, ids=lambda each: each if isinstance(each, str) else each.name)
def test_every_tile_gives_the_exact_product_without_bank_conflicts(name: str, variant: Variant, tmp_path: Path) -> None:
    """Warps take turns at random, copies come late, and what is read too early, outside, twice or never makes it end with 1."""
    kernel = KERNELS[name]
    program = compiled(kernel, variant, tmp_path)
    for shape in shapes(kernel, variant):
        assert kernel.unmet(dict(zip("mnk", shape, strict=False))) == ""
        done = subprocess.run([program, *map(str, shape)], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, (shape, done.stderr)


@needs_compiler
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("copy_wait<STAGES - 1>", "copy_wait<STAGES - 2>"),
        ("", "__syncthreads();"),
        ("chunk : chunk", "chunk ^ (row & 7) : chunk"),
        ("write = 0;", "write = STAGES - 1;"),
        ("tile += 1)", "tile += gridDim.x)"),
        ("row < of.m)", "row < of.m && column < of.n)"),
        ("quarter;", "quarter % 2 * 2 + quarter / 2;"),
    ],
)
def test_a_wrong_schedule_or_place_is_seen(wrong: str, right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait too few, a barrier, a swizzle, a stage, a stride, a bound or an order that is off does not pass."""
    text = (kernels_dir() / "gemm_mma.cuh").read_text()
    assert right in text
    (tmp_path / "gemm_mma.cuh").write_text(text.replace(right, wrong))
    monkeypatch.setattr("tests.test_mma.kernels_dir", lambda: tmp_path)
    kernel = KERNELS["gemm_tf32"]
    program = compiled(kernel, kernel.variants[-1], tmp_path)
    done = subprocess.run([program, "140", "140", "200", "2"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("name", KERNELS)
def test_the_ring_fits_every_device_and_the_block_is_the_headers(name: str) -> None:
    """96 KiB of shared memory, and as many threads as the header's formula for the accumulators that a thread keeps."""
    kernel = KERNELS[name]
    for variant in kernel.variants:
        env = kernel.environment(kernel.params, sms=1, occupancy=1, variant=variant)
        size, kept = {"gemm_fp8": (1, 64), "gemm_tf32": (4, 128)}.get(name, (2, 128))
        assert kernel.launch.smem is not None
        assert kernel.launch.smem.value(env) == env["STAGES"] * (env["BM"] + env["BN"]) * env["BK"] * size <= 96 * 1024
        assert kernel.launch.block.value(env) == max(128, env["BM"] * env["BN"] // kept)
        assert f"OPERAND = {size};" in constants(kernel)
        assert ("PROMOTED = true" in constants(kernel)) == (kept == 64)
