"""Buffers in front matter: shapes, tensor maps, scratch memory, and conditions on parameters; what is wrong is said by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from greenbench.bufferspec import BufferSpec, TensorMap
from greenbench.catalog import Kernel, load_kernel
from greenbench.errors import KernelFileError, PlanError
from greenbench.expr import parse

MAPPED = """/* greenbench
family  = "gemm"
summary = "Takes a matrix as a tensor map."
entry   = "mapped"
args    = ["a", "flags", "m", "n"]
buffers = [
    { name = "a", dtype = "bfloat16", shape = ["m", "n"], fill = "normal", tensor_map = { box = [64, "BM"], swizzle = 128 } },
    { name = "flags", dtype = "uint32", count = "2 * sms", fill = "zero", access = "scratch" },
]
require = ["n % 8", "m // 4096"]
[params]
m = 512
n = 256
[launch]
block = 128
grid = "sms // CLUSTER * CLUSTER"
cluster = "CLUSTER"
[[variant]]
defines = { BM = 128, CLUSTER = 2 }
cost = "sms"
[[variant]]
defines = { BM = 64, CLUSTER = 1 }
cost = 64
*/
extern "C" __global__ void mapped(const __grid_constant__ CUtensorMap a, u32* flags, long long m, long long n) {}
"""


def load(folder: Path, text: str) -> Kernel:
    """Write a kernel file and read it."""
    (folder / "k.cu").write_text(text, encoding="utf-8")
    return load_kernel(folder / "k.cu", prelude="")


def test_what_a_file_says_of_its_buffers(tmp_path: Path) -> None:
    """Shape gives the count, the box may depend on the variant, and so may the cluster."""
    kernel = load(tmp_path, MAPPED)
    a, flags = kernel.buffers
    assert a.tensor_map is not None
    assert (a.tensor_map.swizzle, a.tensor_map.l2_promotion, flags.access) == (128, 0, "scratch")
    few, many = (kernel.choose(kernel.params, sms) for sms in (8, 132))
    assert (few, many) == kernel.variants
    env = kernel.environment(kernel.params, sms=9, variant=few)
    assert (a.count.value(env), [extent.value(env) for extent in a.shape]) == (512 * 256, [512, 256])
    assert [size.value(env) for size in a.tensor_map.box] == [64, 128]
    assert (kernel.launch.cluster.value(env), kernel.launch.grid[0].value(env)) == (2, 8)
    assert (kernel.operands, kernel.scratch) == ((a,), (flags,))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('shape = ["m", "n"]', 'shape = ["m", "n"], count = 8', "7: buffers[0].count and shape say the same; give one of them"),
        ('shape = ["m", "n"]', 'shape = "m * n"', "7: buffers[0].shape is 'm * n'; it must be a list of one to 5 sizes"),
        ('shape = ["m", "n"]', "shape = []", "7: buffers[0].shape is []; it must be a list of one to 5 sizes"),
        ('shape = ["m", "n"]', 'shape = ["m", "k"]', "7: buffers[0].shape 'k' uses 'k'"),
        ('shape = ["m", "n"]', 'shape = ["m - m", "n"]', "7: buffers[0].shape 'm - m' is 0, outside 1 to 4294967296"),
        ('shape = ["m", "n"]', 'count = "m * n"', "7: a tensor map needs the matrix's shape, row-major, e.g. shape ="),
        ('shape = ["m", "n"]', 'shape = ["m", "n // 64"]', "7: buffers[0].shape 'n // 64' makes rows of 8 bytes; a tensor map"),
        ('[64, "BM"]', "[64]", "7: buffers[0].tensor_map.box has 1 dimensions, and the shape has 2"),
        ('[64, "BM"]', "64", "7: buffers[0].tensor_map.box is 64; it must be a list of one to 5 sizes"),
        ('[64, "BM"]', '[64, "3 * BM"]', "7: buffers[0].tensor_map.box '3 * BM' is 384, outside 1 to 256"),
        ('[64, "BM"]', '[32, "BM"]', "7: buffers[0].tensor_map.box '32' is 64 bytes wide; with swizzle = 128 it must be 128"),
        ('box = [64, "BM"], swizzle = 128', 'box = [4, "BM"]', "7: buffers[0].tensor_map.box '4' is 8 bytes wide; it"),
        ('box = [64, "BM"], ', "", "7: buffers[0].tensor_map.box is missing; give the box in elements, innermost first"),
        ("swizzle = 128", "swizzle = 96", "7: buffers[0].tensor_map.swizzle is 96; allowed are 0, 32, 64, 128"),
        ("swizzle = 128", "swizzle = true", "7: buffers[0].tensor_map.swizzle is True; allowed are 0, 32, 64, 128"),
        ("swizzle = 128", "l2_promotion = 512", "7: buffers[0].tensor_map.l2_promotion is 512; allowed are 0, 64, 128, 256"),
        ("swizzle = 128", "swizle = 128", "7: buffers[0].tensor_map.swizle is not a key here (did you mean swizzle?)"),
        ("swizzle = 128 }", 'swizzle = 128 }, access = "scratch"', "7: a scratch buffer is passed as a pointer; leave out"),
        ('cluster = "CLUSTER"', "cooperative = true", "17: a kernel with tensor maps cannot be cooperative yet; leave out one"),
        ("[launch]", '[report]\nbuffer = "flags"\nper = "n"\n[launch]', "15: report.buffer is 'flags'; allowed are a"),
        ("const __grid_constant__ CUtensorMap a", "CUtensorMap a", "5: argument 1, 'a', is a tensor map; it must be a `const"),
        ("const __grid_constant__ CUtensorMap a", "const u16* a", "5: argument 1, 'a', is a tensor map, but `mapped` takes"),
        ("u32* flags", "const __grid_constant__ CUtensorMap flags", "5: argument 2, 'flags', is a buffer, but `mapped` takes"),
        ('"n % 8"', '"n % 7"', "10: the file's own params are refused: n must be a multiple of 7, and 256 is not"),
        ('"m // 4096"', '"m // 256"', "10: the file's own params are refused: m // 256 must be 0, and it is 2"),
        ('"m // 4096"', '"sms"', "10: require 'sms' uses 'sms'; known are m, n"),
        ('["n % 8", "m // 4096"]', '"n % 8"', "10: require is 'n % 8'; it must be a list of texts"),
        ('cluster = "CLUSTER"', 'cluster = "16 * CLUSTER"', "17: launch.cluster '16 * CLUSTER' is 32, outside 1 to 16"),
        ('"sms // CLUSTER * CLUSTER"', '"sms + 1"', "16: launch.grid 'sms + 1' is 133, not a multiple of the cluster of 2"),
    ],
)  # fmt: skip
def test_mistakes_are_told_by_line_and_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """Each mistake in an otherwise good file is refused at its own line, in one sentence."""
    assert MAPPED.count(old) == 1
    with pytest.raises(KernelFileError) as caught:
        load(tmp_path, MAPPED.replace(old, new))
    assert str(caught.value).startswith(f"k.cu:{problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"n": 257}, "kernel k with n=257: n must be a multiple of 8, and 257 is not"),
        ({"m": 8192}, "kernel k with m=8192: m // 4096 must be 0, and it is 2"),
        (
            {"n": 0},
            "kernel k with n=0: k.cu:7: buffers[0].shape 'n' is 0, outside 1 to 4294967296; n is 0 and must be at least 1",
        ),
    ],
)
def test_params_that_the_kernel_cannot_do_are_plan_errors(tmp_path: Path, overrides: dict[str, int], problem: str) -> None:
    """Alignment rules end in one sentence with exit 2, before any GPU work."""
    with pytest.raises(PlanError) as caught:
        load(tmp_path, MAPPED).merged(overrides)
    assert str(caught.value) == problem


@given(st.integers(1, 5000), st.sampled_from(["uint8", "bfloat16", "float32", "float64"]), st.sampled_from([0, 32, 64, 128]))
def test_a_map_is_refused_exactly_where_the_driver_would(row: int, dtype: str, swizzle: int) -> None:
    """Rows of whole 16 bytes pass, others are told with their bytes, whatever the element."""
    size = {"uint8": 1, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]
    box = TensorMap((parse((swizzle or 64) // size, ()), parse(8, ())), swizzle)
    spec = BufferSpec("a", dtype, parse("row", ["row"]), "zero", "in", (parse(4, ()), parse("row", ["row"])), box)
    problem = spec.map_problem({"row": row})
    assert bool(problem) == (row * size % 16 != 0)
    assert not problem or f"{row * size} bytes" in problem
