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
from greenbench.references import NEEDS, Needs
from greenbench.verify import REFERENCES

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
