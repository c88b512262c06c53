"""What the table of references promises of them, held against their source, and what a kernel file hears that lacks it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from greenbench.catalog import kernels_dir, load_kernel
from greenbench.errors import KernelFileError
from greenbench.gpu.gemm import DATA_TYPES
from greenbench.gpu.torch_operations import OPERATIONS
from greenbench.references import NEEDS, Needs
from greenbench.verify import REFERENCES
from greenbench.yardsticks import PRODUCT_DTYPES, TORCH_OPERATIONS, misfit

# How a reference asks its case for something, and the one helper that asks by a name that it is given.
ASKING = {"buffer", "matrix", "integer", "real", "rounding"}
HELPERS = {"_numbers": 1}


def functions(of: Callable[..., Any]) -> Iterator[ast.FunctionDef]:
    """Yield a reference and every function of its module that it hands its case to."""
    module = ast.parse(inspect.getsource(sys.modules[of.__module__]))
    known = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    found, todo = set[str](), [of.__name__]
    while todo:
        name = todo.pop()
        if name in found or name in HELPERS:
            continue
        found.add(name)
        yield known[name]
        calls = [node for node in ast.walk(known[name]) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        todo += [
            node.func.id  # type: ignore[attr-defined]
            for node in calls
            if ast.unparse(node.func) in known and any(ast.unparse(each) == "case" for each in node.args)
        ]


def words(node: ast.expr, inside: ast.FunctionDef) -> set[str]:
    """Return the names that an argument stands for: a text, or what a comprehension goes through."""
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    loops = [each for each in ast.walk(inside) if isinstance(each, ast.comprehension)]
    (source,) = [loop.iter for loop in loops if ast.unparse(loop.target) == ast.unparse(node)]
    return set(ast.literal_eval(source))


def read_by(reference: Callable[..., Any]) -> set[str]:
    """Return every buffer and param that a reference asks for, read off its source."""
    if isinstance(reference, partial):
        return {*reference.args[0].names, *"mnk"}
    found: set[str] = set()
    for function in functions(reference):
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr in ASKING and ast.unparse(node.func.value) == "case":
                found |= words(node.args[0], function)
            elif isinstance(node.func, ast.Name) and node.func.id in HELPERS:
                found |= words(node.args[HELPERS[node.func.id]], function)
    return found


def listed(needs: Needs) -> list[str]:
    """All names of an entry."""
    return f"{needs.buffers} {needs.integers} {needs.reals}".split()


def test_the_table_names_every_reference() -> None:
    """A reference that is not in the table could not be named by a kernel; an entry without one would promise what is not."""
    assert set(NEEDS) == set(REFERENCES)


@pytest.mark.parametrize("name", NEEDS)
def test_the_table_lists_what_a_reference_reads(name: str) -> None:
    """Less would be refused only when the kernel is checked; more would refuse kernels that can be."""
    assert sorted(listed(NEEDS[name])) == sorted(read_by(REFERENCES[name]))


COPY = (kernels_dir() / "copy.cu").read_text()


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("triad", "verify is 'triad', whose reference needs a buffer 'c'; the kernel has a, b"),
        ("dot", "verify is 'dot', whose reference needs a buffer 'c'; the kernel has a, b"),
        ("transpose", "verify is 'transpose', whose reference needs an integer 'rows'; the kernel has n"),
        ("copi", "verify is 'copi' (did you mean copy?); there are references for atomic,"),
    ],
)
def test_a_kernel_without_what_its_reference_reads_is_refused(named: str, said: str, tmp_path: Path) -> None:
    """Already when the file is loaded, with file and line, and not when the first point is checked on a GPU."""
    path = tmp_path / "mine.cu"
    text = COPY.replace('verify  = "copy"', f'verify  = "{named}"', 1)
    assert text != COPY
    path.write_text(text)
    with pytest.raises(KernelFileError) as caught:
        load_kernel(path)
    assert said in str(caught.value)
    assert "mine.cu" in str(caught.value)


def test_scratch_is_not_what_a_reference_reads(tmp_path: Path) -> None:
    """What a kernel keeps for itself is not compared, so a buffer of the right name does not stand for an operand."""
    path = tmp_path / "mine.cu"
    lines = [
        line.replace(' fill = "', ' access = "scratch", fill = "') if 'name = "a"' in line else line for line in COPY.splitlines()
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(KernelFileError, match="needs a buffer 'a'; the kernel has b"):
        load_kernel(path)


def test_the_operations_of_torch_are_those_that_a_file_may_ask_for() -> None:
    """A kernel file is read without torch and without `gpu`, so what torch is called for is listed below both."""
    assert set(TORCH_OPERATIONS) == set(OPERATIONS)
    assert set(TORCH_OPERATIONS) <= set(NEEDS)


def test_the_types_of_a_product_are_those_that_cublas_is_given() -> None:
    """A type that a file may have and `gpu.gemm` has no number for would be unsupported only when it is measured."""
    assert set(PRODUCT_DTYPES) == set(DATA_TYPES)
    assert {dtype for results in PRODUCT_DTYPES.values() for dtype in results} <= set(DATA_TYPES)


GEMM = (kernels_dir() / "gemm_fp32.cu").read_text()


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (COPY, 'verify  = "copy"', "", "9: yardstick is 'torch', but verify is none, and torch has operations for copy, triad, "),
        (
            COPY,
            'yardstick = "torch"',
            'yardstick = "cublas"',
            "9: yardstick is 'cublas', but a product needs integer params m, n and k",
        ),
        (GEMM, 'yardstick = "cublas"', 'yardstick = "torch"', "10: yardstick is 'torch', but verify is gemm, and torch has"),
        (
            GEMM,
            '"b", dtype = "float32"',
            '"b", dtype = "float16"',
            "10: yardstick is 'cublas', but cuBLAS needs A and B of one type",
        ),
        (
            GEMM,
            '"c", dtype = "float32"',
            '"c", dtype = "bfloat16"',
            "needs C of float32, tf32 where A and B are float32; it is bfloat16",
        ),
        (
            GEMM,
            '"c", dtype = "float32"',
            '"c", access = "scratch", dtype = "float32"',
            "buffers of A, B and C, first and in this order",
        ),
    ],
)
def test_a_yardstick_that_the_vendor_has_not_is_refused(text: str, old: str, new: str, said: str, tmp_path: Path) -> None:
    """Exit 2 when the file is read, with line and way out, and not rows that never come or fail on the GPU."""
    assert text.count(old) == 1
    path = tmp_path / "mine.cu"
    # Without a reference a scratch C is no matter to it.
    path.write_text(text.replace(old, new).replace('verify    = "gemm"', "" if "scratch" in new else 'verify    = "gemm"'))
    with pytest.raises(KernelFileError) as caught:
        load_kernel(path)
    assert said in str(caught.value)
    assert str(caught.value).endswith("; leave out yardstick")


@pytest.mark.parametrize("a", [*PRODUCT_DTYPES, "float64", "int32"])
def test_every_declared_product_passes(a: str) -> None:
    """What the table has is taken with m, n and k; what it has not is named."""
    results = PRODUCT_DTYPES.get(a, ())
    assert [misfit("cublas", "gemm", [a, a, c], "mnk") for c in results] == [""] * len(results)
    assert "int64" in misfit("cublas", "gemm", [a, a, "int64"], "mnk") or a in misfit("cublas", "gemm", [a, a, "int64"], "mnk")
    assert misfit("", "", [], "") == ""
