"""Machine code of the library, disassembled without a GPU: the instructions that a kernel is built around are really there."""

from __future__ import annotations

import itertools
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
    (folder / "kernel.cubin").write_bytes(compile_kernel(kernel, arch, variant).cubin)
    sass = disassembled(nvdisasm, folder)
    found = Counter(_INSTRUCTION.findall(sass))
    assert found["EXIT"], sass[:500]
    return found


def disassembled(nvdisasm: Path, folder: Path) -> str:
    """Return the machine code of the kernel that was compiled into this folder last."""
    done = subprocess.run([nvdisasm, "-c", folder / "kernel.cubin"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def threads_of(kernel: Kernel, variant: Variant) -> int:
    """Return the threads of a CTA of this variant."""
    return int(kernel.launch.block.value(kernel.environment(kernel.params, sms=1, variant=variant)))


def count(found: Counter[str], *parts: str) -> int:
    """Count instructions whose name has all these parts between dots."""
    return sum(number for name, number in found.items() if set(parts) <= set(name.split(".")))


@pytest.mark.parametrize(
    ("file", "product", "element", "result"),
    [
        ("gemm_bf16.sm_90a.cu", ("HGMMA", "F32", "BF16"), 2, 2),
        ("gemm_fp16.sm_90a.cu", ("HGMMA", "F32"), 2, 2),
        ("gemm_tf32.sm_90a.cu", ("HGMMA", "F32", "TF32"), 4, 4),
        ("gemm_fp8.sm_90a.cu", ("QGMMA", "F32", "E4M3"), 1, 2),
        ("gemm_fp8_raw.cu", ("QGMMA", "F32", "E4M3"), 1, 2),
    ],
)
def test_the_gemms_of_hopper_are_wgmma_fed_by_the_copy_engine(
    nvdisasm: Path, tmp_path: Path, file: str, product: tuple[str, ...], element: int, result: int
) -> None:
    """Four products for 128 bytes of k, boxes of A, B (multicast in a cluster) and C, registers for the consumers.

    C leaves as matrices of 16 bits or as pairs of float32. Promoted sums are added once more than what another CTA left.
    """
    kernel = load(file)
    for variant in kernel.variants:
        found, defines = instructions(nvdisasm, tmp_path, kernel, "sm_90a", variant), dict(variant.defines)
        columns, cluster = defines["BN"], defines["CLUSTER"]
        assert count(found, *product, f"64x{columns}x{32 // element}") == count(found, product[0]) == 4
        boxes = columns // 64 // cluster if element == 2 else 1
        assert count(found, "UTMALDG", "2D") == 1 + boxes
        assert count(found, "UTMALDG", "2D", "MULTICAST") == (boxes if cluster > 1 else 0)
        assert count(found, "UTMASTG", "2D") == columns * result // 128
        assert count(found, "USETMAXREG") == 2
        assert count(found, "STSM") == (columns // 16 if result == 2 else 0)
        assert count(found, "STS", "64") == (columns // 4 if result == 4 else 0)
        assert count(found, "FADD") == columns // 2 * (2 if file == "gemm_fp8.sm_90a.cu" else 1)
        assert count(found, "LDL") == count(found, "STL") == 0


def test_decoding_on_hopper_takes_memory_straight_to_the_tensor_cores(nvdisasm: Path, tmp_path: Path) -> None:
    """Boxes of the copy engine feed products of 64 x 8; no thread loads an element of the big operand."""
    gemv = load("gemv.sm_90a.cu")
    for variant in gemv.variants:
        found, boxes = instructions(nvdisasm, tmp_path, gemv, "sm_90a", variant), dict(variant.defines)["BOXES"]
        assert count(found, "HGMMA", "64x8x16", "F32", "BF16") == count(found, "HGMMA") == 4 * boxes
        assert count(found, "UTMALDG", "2D") == 2 * boxes
        assert count(found, "LDS") <= 1  # the word that says who came last
    attention = load("decode_attention.sm_90a.cu")
    for variant in attention.variants:
        found = instructions(nvdisasm, tmp_path, attention, "sm_90a", variant)
        assert count(found, "HGMMA", "64x8x16", "F32", "BF16") == 16
        assert disassembled(nvdisasm, tmp_path).count(".tnspA") == 8  # V, across the tokens
        # Lanes send for boxes side by side, keys or values by a predicate of the lane.
        assert count(found, "UTMALDG", "2D") >= 1
        assert count(found, "LDL") == count(found, "STL") == 0


# Kernel, its oldest architecture, what one product of 32 bytes of a row is there, and bytes of an element of A.
PRODUCTS = [
    ("gemm_bf16", "sm_80", ("HMMA", "16816", "F32", "BF16"), 2),
    ("gemm_fp16", "sm_80", ("HMMA", "16816", "F32"), 2),
    ("gemm_tf32", "sm_80", ("HMMA", "1688", "F32", "TF32"), 4),
    ("gemm_fp8", "sm_89", ("QMMA", "16832", "F32", "E4M3"), 1),
]


@pytest.mark.parametrize(("name", "oldest", "product", "size"), PRODUCTS)
def test_gemms_from_ampere_on_are_mma_fed_by_async_copies(
    nvdisasm: Path, tmp_path: Path, name: str, oldest: str, product: tuple[str, ...], size: int
) -> None:
    """The products of one step and no more, 16-byte copies past the registers, matrices by ldmatrix, 16-byte stores of C."""
    kernel = load(f"{name}.cu")
    result = 4 if name == "gemm_tf32" else 2
    for arch, variant in itertools.product((oldest, "sm_120"), kernel.variants):
        found, defines = instructions(nvdisasm, tmp_path, kernel, arch, variant), dict(variant.defines)
        threads, tile = threads_of(kernel, variant), defines["BM"] * defines["BN"]
        steps = defines["BK"] * size // 32
        rows, columns = defines["BM"] // 2 // 16, defines["BN"] // (threads // 64) // 16
        assert count(found, *product) == rows * 2 * columns * steps
        assert count(found, "LDSM", "4") == (rows + columns) * steps
        assert count(found, "LDSM", "MT88", "4") == (columns * steps if kernel.verify == "gemm" else 0)
        assert count(found, "LDGSTS", "E", "BYPASS", "128") > 0
        assert count(found, "STG", "E", "128") == count(found, "STG") == tile * result // 16 // threads
        assert count(found, "FADD") == (tile // threads if name == "gemm_fp8" else 0)
        assert count(found, "HGMMA") == count(found, "LDG") == count(found, "STS") == count(found, "LDL") == 0


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_gemm_fp8_multiplies_float16_where_mma_knows_no_e4m3(nvdisasm: Path, tmp_path: Path, arch: str) -> None:
    """Two products of 16 for each of 32, accumulated in place: the only additions left are those of the promotion."""
    kernel = load("gemm_fp8.cu")
    for variant in kernel.variants:
        found, defines = instructions(nvdisasm, tmp_path, kernel, arch, variant), dict(variant.defines)
        threads, tile = threads_of(kernel, variant), defines["BM"] * defines["BN"]
        assert count(found, "HMMA", "16816", "F32") == 2 * tile // (16 * 8) // (threads // 32) * 4
        assert count(found, "F2FP", "E4M3", "UNPACK_B") > 0
        assert count(found, "FADD") == tile // threads


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


_TARGET = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?BRA(?:\.\w+)*\s.*?`\((\S+?)\)", re.MULTILINE)


def loops(nvdisasm: Path, folder: Path, kernel: Kernel, arch: str) -> list[Counter[str]]:
    """Compile and disassemble; count the instructions of each loop, from the label that it jumps back to."""
    instructions(nvdisasm, folder, kernel, arch, None)
    return [Counter(_INSTRUCTION.findall(code)) for code in bodies(disassembled(nvdisasm, folder))]


def bodies(text: str) -> list[str]:
    """Return the machine code of each loop, from the label that it jumps back to."""
    labels = {
        name: place for place, name in ((match.end(), match[1]) for match in re.finditer(r"^(\.L_\S+):", text, re.MULTILINE))
    }
    found = [(labels[jump[2]], jump.end()) for jump in _TARGET.finditer(text) if labels.get(jump[2], len(text)) < jump.start()]
    return [text[start:end] for start, end in found]


PEAKS = [
    ("peak_tensor", ("HGMMA", "64x256x16", "F32", "BF16"), ("HMMA", "16816", "F32", "BF16")),
    ("peak_tensor_fp8", ("QGMMA", "64x256x32", "F32", "E4M3"), ("QMMA", "16832", "F32", "E4M3")),
    ("peak_tensor_tf32", ("HGMMA", "64x256x8", "F32", "TF32"), ("HMMA", "1688", "F32", "TF32")),
]


@pytest.mark.parametrize(("name", "wgmma", "mma"), PEAKS)
def test_tensor_probes_do_nothing_but_multiply(
    nvdisasm: Path, tmp_path: Path, name: str, wgmma: tuple[str, ...], mma: tuple[str, ...]
) -> None:
    """Eight wgmma in a loop that waits once and touches no memory; or 64 mma.sync and three or four instructions around them."""
    hopper = [found for found in loops(nvdisasm, tmp_path, load(f"{name}.sm_90a.cu"), "sm_90a") if count(found, wgmma[0])]
    assert [count(found, *wgmma) for found in hopper] == [8]
    assert count(hopper[0], "WARPGROUP", "DEPBAR") == count(hopper[0], "WARPGROUP", "ARRIVE") == 1
    memory = ("LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST")
    assert not any(count(hopper[0], access) for access in memory)
    for arch in ("sm_89", "sm_120"):
        inner = min(
            (found for found in loops(nvdisasm, tmp_path, load(f"{name}.cu"), arch) if count(found, *mma)), key=Counter.total
        )
        assert count(inner, *mma) == 64
        assert inner.total() <= 64 + 6
        assert not any(count(inner, access) for access in memory)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_the_float32_probe_is_all_ffma(nvdisasm: Path, tmp_path: Path, arch: str) -> None:
    """256 in a loop, at least 98 of 100 instructions; of their operands one is in the instruction, and one is kept on sm_90a."""
    (inner,) = [found for found in loops(nvdisasm, tmp_path, load("peak_fma.cu"), arch) if count(found, "FFMA")]
    assert count(inner, "FFMA") == 256
    assert count(inner, "FFMA") >= 0.98 * inner.total()
    text = disassembled(nvdisasm, tmp_path)
    products = re.findall(r"FFMA R\d+, R\d+(\.reuse)?, (-?\d+), R\d+", text)
    assert len(products) == 256
    assert len({number for _, number in products}) > 100
    assert arch != "sm_90a" or sum(kept == ".reuse" for kept, _ in products) >= 250


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_l2_read_has_eight_loads_in_flight_past_the_l1(nvdisasm: Path, tmp_path: Path, arch: str) -> None:
    """16 bytes each, none of which allocates a line in the L1."""
    (inner,) = [found for found in loops(nvdisasm, tmp_path, load("l2_read.cu"), arch) if count(found, "LDG")]
    assert count(inner, "LDG", "128", "NA") == count(inner, "LDG") == 8


# An FFMA's operands after its result, each perhaps kept in the reuse cache for the instruction that follows.
_FFMA = re.compile(r"FFMA R\d+, R(\d+)(\.reuse)?, R(\d+)(\.reuse)?, R(\d+)(\.reuse)? *;")


def bank_cycles(code: str) -> int:
    """Return the cycles that FFMAs in this order take, where register banks, odd and even, give one operand each in a cycle.

    The reads of an instruction may spread over three cycles. A kept operand is read again only from its bank and place.
    """
    kept: dict[tuple[int, int], int] = {}
    busy: set[tuple[int, int]] = set()
    now = 0
    for match in _FFMA.finditer(code):
        reads: Counter[int] = Counter()
        for place in range(3):
            register, reuse = int(match[2 * place + 1]), match[2 * place + 2]
            reads[register % 2] += kept.get((register % 2, place)) != register
            kept[register % 2, place] = register if reuse else -1
        free = {bank: [now + i for i in range(6) if (bank, now + i) not in busy] for bank in (0, 1)}
        last = max(free[bank][reads[bank] - 1] for bank in (0, 1) if reads[bank])
        busy.update((bank, cycle) for bank in (0, 1) for cycle in free[bank][: reads[bank]])
        now = max(now, last - 2) + 1
    return now


FLOAT32 = [
    ("gemm_fp32.sm_90a", "sm_90a", 4 * 128, 0.94),
    ("gemm_fp32", "sm_86", 8 * 128, 0.88),
    ("gemm_fp32", "sm_120", 8 * 128, 0.88),
]


@pytest.mark.parametrize(("file", "arch", "products", "share"), FLOAT32)
def test_the_gemm_in_float32_issues_ffma_that_no_bank_holds_up(
    nvdisasm: Path, tmp_path: Path, file: str, arch: str, products: int, share: float
) -> None:
    """The inner loop is FFMA but for six 16-byte loads from shared memory per 128 of them, and little else; no spills."""
    kernel = load(f"{file}.cu")
    for variant in kernel.variants if "sm_90a" in file else kernel.variants[:1]:
        found = instructions(nvdisasm, tmp_path, kernel, arch, variant)
        assert count(found, "LDGSTS", "E") > 0
        assert count(found, "STG", "E", "128") > 0
        assert count(found, "LDL") == count(found, "STL") == count(found, "STS") == 0
        code = min((code for code in bodies(disassembled(nvdisasm, tmp_path)) if _FFMA.search(code)), key=len)
        inner = Counter(_INSTRUCTION.findall(code))
        assert count(inner, "FFMA") == products >= share * inner.total()
        assert count(inner, "LDS", "128") == products // 128 * 6
        assert products >= 0.94 * bank_cycles(code)


def test_the_gemm_in_float32_on_hopper_has_producers(nvdisasm: Path, tmp_path: Path) -> None:
    """One box of B and 32 floats of A for each of 128 threads in a stage, and registers that go to the consumers."""
    kernel = load("gemm_fp32.sm_90a.cu")
    for variant in kernel.variants:
        found = instructions(nvdisasm, tmp_path, kernel, "sm_90a", variant)
        assert count(found, "UTMALDG", "2D") == 1
        assert count(found, "LDGSTS", "E") == 32
        assert count(found, "USETMAXREG") == 2
