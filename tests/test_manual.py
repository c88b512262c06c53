"""The pages under docs/ keep to the code: their examples load, compile and run, and their tables have every key."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from greenbench import kernelfile, operands
from greenbench.bufferspec import ACCESS_KINDS, DTYPE_BYTES, FILL_KINDS
from greenbench.catalog import library
from greenbench.expr import FUNCTIONS
from greenbench.gpu.modelled.faults import FaultKind
from greenbench.gpu.modelled.spec import FAULT_KEYS, read_spec
from greenbench.kernel import BUILT_IN_NAMES
from greenbench.plan import KEYS, load_plan, plan_names
from greenbench.yardsticks import VENDORS, WAYS
from tests.staging import Notes

ROOT = Path(__file__).parent.parent


@cache
def page(name: str) -> str:
    """A page of the manual."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def example(name: str, language: str, number: int = 0) -> str:
    """The n-th example of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.M | re.S)[number]


@pytest.fixture
def own_kernels(tmp_path: Path) -> Path:
    """A folder with the kernel of the page."""
    folder = tmp_path / "my_kernels"
    folder.mkdir()
    (folder / "axpy.cu").write_text(example("kernels", "cuda"), encoding="utf-8")
    return folder


def test_the_kernel_of_the_page_is_read(own_kernels: Path) -> None:
    """The file is taken as it stands: a state, an input, no reference."""
    kernel = library([own_kernels])["axpy"]
    assert [(buffer.name, buffer.access) for buffer in kernel.buffers] == [("y", "state"), ("x", "in")]
    assert kernel.verify == ""


def test_the_kernel_of_the_page_compiles(own_kernels: Path, tmp_path: Path) -> None:
    """NVRTC makes a cubin of it, without a GPU."""
    pytest.importorskip("cuda.core", reason="NVRTC comes with the dev extra")
    from greenbench.gpu.nvrtc import compile_kernel

    done = compile_kernel(library([own_kernels])["axpy"], "sm_90a", cache_dir=tmp_path / "cache")
    assert done.cubin


def test_the_kernel_of_the_page_is_swept(own_kernels: Path, tmp_path: Path) -> None:
    """The modelled device runs it: ok, with the rate of its declared bytes, and no error that nobody measured."""
    from greenbench.experiments.sweep import SweepRequest, run_sweep

    overrides = {"kernels": "axpy", "sms": "8", "rounds": 1}
    plan = load_plan("quick", overrides, library([own_kernels]))
    request = SweepRequest(plan=plan, device="model:h200", out=tmp_path / "run", kernel_dirs=(own_kernels,))
    (row,) = run_sweep(request, Notes()).rows
    assert (row.status, row.verified_error) == ("ok", None)
    assert row.gb_per_s is not None


@pytest.mark.parametrize(
    "words",
    [
        kernelfile.TOP_KEYS,
        kernelfile.LAUNCH_KEYS,
        kernelfile.FAMILIES,
        kernelfile.HOST_ACTIONS,
        tuple(VENDORS),
        tuple(WAYS),
        operands.BUFFER_KEYS,
        operands.MAP_KEYS,
        tuple(DTYPE_BYTES),
        FILL_KINDS,
        ACCESS_KINDS,
        (*FUNCTIONS, *BUILT_IN_NAMES),
        ("buffer", "per", "fact", "defines", "cost", "flops", "bytes"),
    ],
    ids=" ".join,
)
def test_the_page_on_kernels_has_every_word(words: tuple[str, ...]) -> None:
    """A key or a value that front matter takes and the page does not name would not be found."""
    missing = [word for word in words if f"`{word}`" not in page("kernels")]
    assert not missing


def test_the_page_on_kernels_has_the_types_of_each_fill() -> None:
    """Its table of fills is the one by which a file is refused."""
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page("kernels"), re.M))
    for kind in FILL_KINDS:
        assert rows[kind] == ", ".join(f"`{dtype}`" for dtype in kernelfile.FILL_DTYPES.get(kind, ())) or rows[kind] == "all"


def test_the_page_on_kernels_says_which_yardsticks_quick_has() -> None:
    """Whoever looks for the others learns why they are not there."""
    (way,) = load_plan("quick", {}, library()).yardsticks
    assert f"Plan `quick`, which `sweep` takes where none is named, has `{way}` alone" in " ".join(page("kernels").split())


def test_the_plan_of_the_page_is_read(tmp_path: Path) -> None:
    """The example is a plan, with what its lines say."""
    file = tmp_path / "mine.toml"
    file.write_text(example("plans", "toml"), encoding="utf-8")
    plan = load_plan(file, {}, library())
    assert (plan.name, plan.rounds, plan.max_rounds, plan.time_limit_s) == ("mine", 6, 12, 300)
    assert [choice.name for choice in plan.kernels] == ["triad", "gemm_bf16"]
    assert len(list(plan.kernels[0].combinations())) == 2


def test_the_page_on_plans_has_every_key() -> None:
    """All keys of a plan, all plans that ship, all kinds and keys of faults."""
    words = [*KEYS, *plan_names(), *WAYS, *FaultKind, *FAULT_KEYS]
    missing = [word for word in words if f"`{word}`" not in page("plans")]
    assert not missing


def test_the_model_of_the_page_is_read(tmp_path: Path) -> None:
    """The example is a model of 48 SMs that hangs once."""
    file = tmp_path / "device.toml"
    file.write_text(example("plans", "toml", 1), encoding="utf-8")
    spec = read_spec(str(file))
    assert (spec.facts.device.sm_count, spec.facts.refused_sms) == (48, (24,))
    (fault,) = spec.faults.faults
    assert (fault.kind, fault.kernel, fault.sms, fault.at_block, fault.times) == (FaultKind.HANG, "triad", 16, 2, 1)
