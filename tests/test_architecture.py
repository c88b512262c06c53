"""The rules of the house, read from the source: layers, sizes, lazy imports, named streams. No module is exempt by habit."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "greenbench"

# Imports point down or sideways, never up. A new module is given its floor here.
LAYERS = {
    0: "__init__ errors words row schema facts corow",
    1: "stats bounds expr fills references verify peaked probed streamed products yardsticks queueing arrivals tails",
    2: "source frontmatter bufferspec kernel operands kernelfile catalog storage tables records journal runfiles timeline"
    " appending cojournal tomlfile",
    3: "choices sms picks planrecord plan figures rows results ceilings limits knee plots"
    " rates slo workload models divisions costeps colocation switching",
    4: "gpu",
    5: "measure",
    6: "worker nsight ncu",
    7: "experiments",
    8: "cli __main__",
}
FLOOR = {name: layer for layer, names in LAYERS.items() for name in names.split()}

BASE_PACKAGES = {"click", "rich", "numpy", "scipy", "pandas", "matplotlib", "platformdirs", "nvtx"}
CUDA_PACKAGES = {"cuda", "cupy", "cupy_backends", "cupyx", "nvmath", "pynvml", "torch", "cupti"}
CATCH_ALL_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "base", "core", "lib"}
MOST_LINES = 400


@dataclass(frozen=True)
class Module:
    """One source file of the package, parsed."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def floor(self) -> int | None:
        """The layer of this module, or None where LAYERS does not know it."""
        return FLOOR.get(self.name.partition(".")[2].partition(".")[0] or "__init__")

    def at(self, node: ast.AST) -> str:
        """Return `greenbench/x.py:12`, to be clicked on."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield every call with the dotted text of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, ast.unparse(node.func)


@cache
def modules() -> dict[str, Module]:
    """Parse the package once."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, ast.parse(text), len(text.splitlines()))
    return found


def is_type_checking(node: ast.AST) -> bool:
    """True for `if TYPE_CHECKING:`, whose imports never happen."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def statements_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported: everything outside functions and TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(child):
            continue
        yield child
        yield from statements_at_import(child)


def imported(nodes: Iterator[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yield (statement, module) for every import; `from greenbench import stats` means greenbench.stats."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            submodules = [f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in modules()]
            yield from ((node, name) for name in submodules or [base])


def complaints(found: Iterator[str]) -> None:
    """Fail with all findings, one a line."""
    lines = list(found)
    assert not lines, "\n" + "\n".join(lines)


def test_every_module_has_a_layer() -> None:
    """A module that LAYERS does not name would escape the test of the layers."""
    complaints(module.at(module.tree) for module in modules().values() if module.floor is None)


def test_imports_point_down() -> None:
    """No module imports one of a higher layer, not even inside a function or for types only."""

    def found() -> Iterator[str]:
        for module in modules().values():
            for node, name in imported(ast.walk(module.tree)):
                target = modules().get(name)
                if name.split(".")[0] == "greenbench" and target is None:
                    yield f"{module.at(node)}: {name} is no module of the package"
                elif target is not None and (target.floor or 0) > (module.floor or 0):
                    yield f"{module.at(node)}: layer {module.floor} imports {name} of layer {target.floor}"

    complaints(found())


def test_imports_are_absolute() -> None:
    """Relative imports would slip past the layer test."""
    complaints(
        module.at(node)
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    )


def test_no_import_cycles() -> None:
    """What runs on import forms no ring, so any module can be imported first."""
    graph = {
        module.name: {name for _, name in imported(statements_at_import(module.tree)) if name in modules()} - {module.name}
        for module in modules().values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_packages_are_declared_and_cuda_stays_in_gpu() -> None:
    """Third-party imports are base dependencies, except CUDA ones: in gpu/ alone, and only inside functions."""

    def found() -> Iterator[str]:
        for module in modules().values():
            lazy = {id(node) for node in ast.walk(module.tree)} - {id(node) for node in statements_at_import(module.tree)}
            for node, name in imported(ast.walk(module.tree)):
                package = name.split(".")[0]
                if package in sys.stdlib_module_names or package in {"greenbench", *BASE_PACKAGES}:
                    continue
                if package not in CUDA_PACKAGES:
                    yield f"{module.at(node)}: {package} is no declared dependency"
                elif not module.name.startswith("greenbench.gpu"):
                    yield f"{module.at(node)}: {package} is imported in gpu/ alone"
                elif id(node) not in lazy:
                    yield f"{module.at(node)}: {package} is imported inside functions alone"

    complaints(found())


def test_sizes_and_names() -> None:
    """No file passes 400 lines, and none is named after nothing in particular."""

    def found() -> Iterator[str]:
        for module in modules().values():
            if module.lines > MOST_LINES:
                yield f"{module.at(module.tree)}: {module.lines} lines; would two rooms be clearer?"
            if set(module.name.split(".")) & CATCH_ALL_NAMES:
                yield f"{module.at(module.tree)}: a module is named after what it holds"

    complaints(found())


def test_every_module_says_what_it_is_for() -> None:
    """Each module opens with a docstring."""
    complaints(module.at(module.tree) for module in modules().values() if not ast.get_docstring(module.tree))


def test_only_the_cli_talks_and_exits() -> None:
    """print, echo and exit live in cli/ and below `if __name__`: elsewhere a value is returned or an error raised."""
    banned = {"print", "exit", "quit", "sys.exit", "SystemExit", "click.echo", "click.secho"}
    banned |= {f"sys.{stream}.write" for stream in ("stdout", "stderr")}

    def found() -> Iterator[str]:
        for module in modules().values():
            if module.name.startswith("greenbench.cli"):
                continue
            entry = [node for node in module.tree.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
            exempt = {id(inner) for node in entry for inner in ast.walk(node)}
            yield from (
                f"{module.at(node)}: {name}" for node, name in module.calls() if name in banned and id(node) not in exempt
            )

    complaints(found())


def test_no_assert_in_the_package() -> None:
    """`python -O` removes assert, and its message is no sentence for a user."""
    complaints(module.at(node) for module in modules().values() for node in ast.walk(module.tree) if isinstance(node, ast.Assert))


def test_broad_handlers_give_their_reason() -> None:
    """`except Exception` swallows bugs: it raises again, or says in a `noqa: BLE001 - reason` why it is the last net."""

    def found() -> Iterator[str]:
        for module in modules().values():
            lines = module.path.read_text(encoding="utf-8").splitlines()
            for node in ast.walk(module.tree):
                if not isinstance(node, ast.ExceptHandler):
                    continue
                caught = ast.unparse(node.type) if node.type else ""
                broad = node.type is None or {"Exception", "BaseException"} & set(caught.strip("()").split(", "))
                raises = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
                if broad and not raises and "noqa: BLE001 - " not in lines[node.lineno - 1]:
                    yield f"{module.at(node)}: except {caught or '(everything)'}"

    complaints(found())


def gpu_modules() -> list[Module]:
    """The modules that talk to CUDA."""
    return [module for module in modules().values() if module.name.startswith("greenbench.gpu")]


def test_no_default_stream_in_gpu() -> None:
    """The default stream belongs to whichever context is current (pytorch/pytorch#188419), so nothing in gpu/ names one."""
    words = {"default_stream", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM", "CU_STREAM_LEGACY", "CU_STREAM_PER_THREAD"}
    complaints(
        f"{module.at(node)}: {ast.unparse(node)}"
        for module in gpu_modules()
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and (node.attr in words or ast.unparse(node).endswith("Stream.null")))
        or (isinstance(node, ast.Name) and node.id in words)
    )


def test_no_device_wide_sync_in_gpu() -> None:
    """Waiting goes through a stream or an event: Device.sync() does not cover green contexts in every version."""
    banned = ("cuCtxSynchronize", "cudaDeviceSynchronize", "runtime.deviceSynchronize")
    complaints(
        f"{module.at(node)}: {name}"
        for module in gpu_modules()
        for node, name in module.calls()
        if name.endswith(banned) or (name.endswith(".sync") and name.split(".")[-2].lower().endswith(("dev", "device")))
    )


def test_driver_calls_name_their_stream() -> None:
    """A raw copy, memset, launch or event is asynchronous and says which stream it is on."""

    def found() -> Iterator[str]:
        for module in gpu_modules():
            streams = {
                target.id
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Assign) and "stream" in ast.unparse(node.value).lower()
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for node, name in module.calls():
                call = name.rpartition(".")[2]
                arguments = [ast.unparse(part) for part in [*node.args, *(keyword.value for keyword in node.keywords)]]
                if call.startswith(("cuMemcpy", "cuMemset")) and not call.endswith("Async"):
                    yield f"{module.at(node)}: {call} is on the default stream; use its Async form"
                elif call.startswith(("cuMemcpy", "cuMemset", "cuLaunch", "cuEventRecord", "cuGraphLaunch")) and not any(
                    "stream" in argument.lower() or argument in streams for argument in arguments
                ):
                    yield f"{module.at(node)}: {call} names no stream"

    complaints(found())


def test_cupy_works_on_a_named_stream() -> None:
    """A cupy call that enqueues work (zeros, full, asarray, ...) stands inside `with <stream>`: else the NULL stream takes it."""
    harmless = {"empty", "ndarray", "dtype", "get_default_memory_pool", "get_default_pinned_memory_pool"}

    def in_stream(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.Call, bool]]:
        if isinstance(node, ast.With):
            inside = inside or any("stream" in ast.unparse(item.context_expr).lower() for item in node.items)
        if isinstance(node, ast.Call):
            yield node, inside
        for child in ast.iter_child_nodes(node):
            yield from in_stream(child, inside)

    complaints(
        f"{module.at(node)}: {ast.unparse(node.func)}"
        for module in gpu_modules()
        for node, inside in in_stream(module.tree)
        if (match := re.fullmatch(r"(?:.*\.)?_?cupy\.(\w+)", ast.unparse(node.func))) and match[1] not in harmless and not inside
    )


def run_python(code: str) -> str:
    """Run a program in a fresh interpreter at the top of the checkout and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["sweep", "--help"],
        ["sweep", "--sms", "0"],
        ["kernels", "triad"],
        ["sweep", "--kernels", "copy", "--sms", "8", "--device", "model:h200", "--dry-run"],
    ],
    ids=["help", "version", "sweep-help", "usage-error", "kernel", "dry-run"],
)
def test_what_needs_no_results_imports_only_click(arguments: list[str]) -> None:
    """Help, version, a refused option, a kernel shown and a sweep that is only planned import click and nothing heavier."""
    program = f"""
import sys
before = set(sys.modules)
from greenbench.cli.main import main
sys.argv = ["greenbench", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
roots = {{name.split(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)
print("imported:", *sorted(roots - {{"__mp_main__"}}))
"""
    heavy = run_python(program).rpartition("imported:")[2].split()
    assert set(heavy) <= {"click", "greenbench"}, heavy


def test_seam_and_modelled_device_need_no_cuda() -> None:
    """Where `cuda` and `cupy` cannot be imported, the seam and the modelled device still can."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['cuda', 'cupy', 'nvtx', 'pynvml', 'nvmath', 'torch']))"
    run_python(f"{blocked}; import greenbench.gpu, greenbench.gpu.modelled")
