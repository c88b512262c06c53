"""The text of the library's kernels: free of foreign headers, documented where it begins, and tiled as the front matter says."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from greenbench.catalog import kernels_dir, library, load_kernel, prelude_text
from greenbench.source import definitions, includes, strip_comments
from greenbench.verify import REFERENCES

FILES = sorted(kernels_dir().glob("*.cu"))
kernel_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_the_tools_own_probes_are_there() -> None:
    """What the lanes launch by name has a file each, and only `spin` is swept by users."""
    kernels = library()
    probes = {"census", "clock", "gate", "spin", "flush_write", "flush_read"}
    assert probes <= set(kernels)
    assert {name for name in probes if not kernels[name].internal} == {"spin"}


@pytest.mark.parametrize("path", [*FILES, *sorted(kernels_dir().glob("*.cuh"))], ids=lambda path: path.name)
def test_only_headers_of_the_library_are_included(path: Path) -> None:
    """NVRTC finds no header by itself, and a toolkit's costs seconds: what several kernels share lies beside them."""
    taken = includes(strip_comments(path.read_text()))
    assert all(quoted and name != "prelude.cuh" and (path.parent / name).is_file() for name, quoted in taken)
    assert not includes(prelude_text())


@kernel_file
def test_front_matter_comes_first_and_a_comment_says_what_limits_the_kernel(path: Path) -> None:
    """A reader meets the facts, then the limit, before any code."""
    text = path.read_text()
    assert text.startswith("/* greenbench\n")
    assert text[text.index("*/") + 2 :].lstrip().startswith("// Limited by ")


@kernel_file
def test_the_entry_is_defined_once_and_its_reference_exists(path: Path) -> None:
    """One extern "C" function of that name, with the args of the front matter in their order."""
    kernel = load_kernel(path)
    found = definitions(strip_comments(path.read_text()), kernel.entry)
    assert [(each.extern_c, [one.name for one in each.parameters]) for each in found] == [(True, list(kernel.args))]
    assert not kernel.verify or kernel.verify in REFERENCES


@pytest.mark.parametrize("name", ["copy", "read", "triad", "write"])
def test_block_and_grid_match_the_tile_in_the_source(name: str) -> None:
    """The block is THREADS, and the grid has a CTA for every THREADS * VECTORS * 4 elements begun."""
    path = kernels_dir() / f"{name}.cu"
    kernel = load_kernel(path)
    written = {word: int(value) for word, value in re.findall(r"\b(THREADS|VECTORS) = (\d+)", strip_comments(path.read_text()))}
    for variant in kernel.variants or (None,):
        found = written | dict(variant.defines if variant else ())
        tile = 4 * found["THREADS"] * found["VECTORS"]
        for n, ctas in ((1, 1), (tile, 1), (tile + 1, 2), (9 * tile, 9)):
            env = kernel.environment({**dict(kernel.params), "n": n}, sms=132, occupancy=1, variant=variant)
            assert [expr.value(env) for expr in kernel.launch.grid] == [ctas]
            assert kernel.launch.block.value(env) == found["THREADS"]


def test_the_prelude_compiles_alone() -> None:
    """It stands in front of every kernel, user kernels included, so it must need nothing and warn of nothing."""
    core = pytest.importorskip("cuda.core", reason="NVRTC comes with the dev extra")
    log = io.StringIO()
    options = core.ProgramOptions(name="prelude.cuh", arch="sm_80")
    core.Program(prelude_text(), "c++", options).compile("cubin", logs=log)
    assert "warning" not in log.getvalue()
