"""Machine code of the library, disassembled without a GPU: the instructions that a kernel is built around are really there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from greenbench.catalog import Kernel, Variant, kernels_dir, load_kernel
from greenbench.errors import MissingPackageError
from greenbench.gpu.nvrtc import compile_kernel, nvrtc_version

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)


@pytest.fixture(scope="module")
def nvdisasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disassembler of the dev extra; wheels may come without the right to execute."""
    try:
        nvrtc_version()
        found = [Path(str(file.locate())) for file in files("nvidia-cuda-nvdisasm") or [] if file.name == "nvdisasm"]
    except (MissingPackageError, PackageNotFoundError) as error:
        pytest.skip(f"NVRTC and nvdisasm come with the dev extra: {error}")
    if os.access(found[0], os.X_OK):
        return found[0]
    copy = tmp_path_factory.mktemp("bin") / "nvdisasm"
    shutil.copy(found[0], copy)
    copy.chmod(0o755)
    return copy


def load(file: str) -> Kernel:
    """Read a kernel of the library."""
    return load_kernel(kernels_dir() / file)


def instructions(nvdisasm: Path, folder: Path, kernel: Kernel, arch: str, variant: Variant | None) -> Counter[str]:
    """Compile and disassemble; count instructions by name with all modifiers."""
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compile_kernel(kernel, arch, variant).cubin)
    done = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True, timeout=60)
    found = Counter(_INSTRUCTION.findall(done.stdout))
    assert found["EXIT"], done.stdout[:500]
    return found


def count(found: Counter[str], *parts: str) -> int:
    """Count instructions whose name has all these parts between dots."""
    return sum(number for name, number in found.items() if set(parts) <= set(name.split(".")))


def test_the_gemm_of_hopper_is_wgmma_fed_by_the_copy_engine(nvdisasm: Path, tmp_path: Path) -> None:
    """Four products per step of 64, boxes of A and B (multicast in a cluster) and C, registers moved to the consumers."""
    kernel = load("gemm_bf16.sm_90a.cu")
    for variant in kernel.variants:
        found, defines = instructions(nvdisasm, tmp_path, kernel, "sm_90a", variant), dict(variant.defines)
        assert count(found, "HGMMA", f"64x{defines['BN']}x16", "F32", "BF16") == 4
        boxes = defines["BN"] // 64 // defines["CLUSTER"]
        assert count(found, "UTMALDG", "2D") == 1 + boxes
        assert count(found, "UTMALDG", "2D", "MULTICAST") == (boxes if defines["CLUSTER"] > 1 else 0)
        assert count(found, "UTMASTG", "2D") == defines["BN"] // 64
        assert count(found, "USETMAXREG") == 2
        assert count(found, "STSM") == defines["BN"] // 16
        assert count(found, "LDL") == count(found, "STL") == 0


def test_the_gemm_of_ampere_is_mma_fed_by_async_copies(nvdisasm: Path, tmp_path: Path) -> None:
    """Tensor-core products in bfloat16, 16-byte copies past the registers, matrices by ldmatrix, 16-byte stores of C."""
    kernel = load("gemm_bf16.cu")
    for arch in ("sm_80", "sm_90a"):
        found = instructions(nvdisasm, tmp_path, kernel, arch, kernel.variants[0])
        assert count(found, "HMMA", "16816", "F32", "BF16") >= 64
        assert count(found, "LDGSTS", "E", "128") > 0
        assert count(found, "LDSM", "M88", "4") > 0
        assert count(found, "STG", "E", "128") > 0
        assert count(found, "HGMMA") == 0


@pytest.mark.parametrize(("name", "loads", "stores"), [("copy", True, True), ("triad", True, True), ("read", True, False)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_memory_kernels_move_16_bytes_at_a_time(
    nvdisasm: Path, tmp_path: Path, name: str, loads: bool, stores: bool, arch: str
) -> None:
    """The tile of every bandwidth kernel is loaded and stored in 128-bit accesses."""
    kernel = load(f"{name}.cu")
    for variant in kernel.variants or (None,):
        found = instructions(nvdisasm, tmp_path, kernel, arch, variant)
        bulk = count(found, "UBLKCP")  # a ring filled by the copy engine needs no loads of its own
        assert (count(found, "LDG", "128") + bulk > 0) == loads
        assert (count(found, "STG", "128") + bulk > 0) == stores or not stores
