"""Files NAME.ARCH.cu: they join the kernel of that name for one architecture, and may contradict it in nothing but the way."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from greenbench import catalog
from greenbench.catalog import Kernel, library, load_kernel
from greenbench.cli.compiling import plan_jobs
from greenbench.cli.kernels import kernels_command
from greenbench.errors import KernelFileError, PlanError
from greenbench.gpu.modelled import open_modelled
from greenbench.measure.session import Session
from greenbench.plan import expand, load_plan
from greenbench.schema import Partition, Point, SmsMode, Timing

BASE = """/* greenbench
family  = "gemm"
summary = "Product."
entry   = "product"
args    = ["a", "b", "c", "m", "n", "k"]
min_cc  = [8, 0]
dtype   = "bfloat16"
yardstick = "cublas"
buffers = [
    { name = "a", dtype = "bfloat16", count = "m * k", fill = "normal" },
    { name = "b", dtype = "bfloat16", count = "k * n", fill = "normal" },
    { name = "c", dtype = "bfloat16", count = "m * n", fill = "poison" },
]
[params]
m = 512
n = 256
k = 128
[launch]
block = 128
grid  = "ceil_div(m, 64)"
[work]
flops = "2 * m * n"
*/
extern "C" __global__ void product(
    const unsigned short* a, const unsigned short* b, unsigned short* c, long long m, long long n, long long k) {}
"""
# Bytes of A, B and C.
WORKING_SET = 2 * (512 * 128 + 128 * 256 + 512 * 256)
# The other way to do the same: matrices as tensor maps, memory of its own, tiles that it chooses.
VERSION = (
    BASE.replace("min_cc  = [8, 0]", 'arch    = "sm_90a"\nrequire = ["n % 8"]')
    .replace('args    = ["a", "b", "c",', 'args    = ["a", "b", "c", "flags",')
    .replace('"bfloat16", count = "m * k", fill = "normal"', '"bfloat16", shape = ["m", "k"], fill = "normal", tensor_map = MAP')
    .replace("MAP", '{ box = [64, "BM"], swizzle = 128 }')
    .replace(
        "]\n[params]", '    { name = "flags", dtype = "uint32", count = "sms", fill = "zero", access = "scratch" },\n]\n[params]'
    )
    .replace("[launch]", "[[variant]]\ndefines = { BM = 128 }\n[launch]")
    .replace('"ceil_div(m, 64)"', '"sms"')
    .replace(
        "const unsigned short* a, const unsigned short* b, unsigned short* c,",
        "const __grid_constant__ CUtensorMap a, const unsigned short* b, unsigned short* c, u32* flags,",
    )
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A built-in library of one kernel and its version for sm_90a."""
    (tmp_path / "prelude.cuh").write_text("typedef unsigned int u32;\n", encoding="utf-8")
    (tmp_path / "product.cu").write_text(BASE, encoding="utf-8")
    (tmp_path / "product.sm_90a.cu").write_text(VERSION, encoding="utf-8")
    monkeypatch.setattr(catalog, "kernels_dir", lambda: tmp_path)
    catalog.prelude_text.cache_clear()
    yield tmp_path
    catalog.prelude_text.cache_clear()


def test_a_version_joins_its_kernel(folder: Path) -> None:
    """The library has one kernel; it gives the file for an architecture, and its own for all others."""
    assert list(library()) == ["product"]
    kernel = library()["product"]
    version = kernel.for_arch("sm_90a")
    assert (version.name, version.label, version.arch, version.is_version) == ("product", "product.sm_90a", "sm_90a", True)
    for other in ("sm_80", "sm_90", "sm_100a", "sm_103f"):
        assert kernel.for_arch(other) is kernel
    assert version.for_arch("sm_90a") is version
    assert version.config(version.variants[0]) == "sm_90a-BM128"
    assert kernel.config(None) == ""
    assert replace(version, variants=()).config(None) == "sm_90a"
    assert kernel.archs(["sm_80", "sm_90a"]) == ["sm_80", "sm_90a"], "the base still claims what it can do"
    assert [buffer.name for buffer in version.operands] == ["a", "b", "c"]
    assert [buffer.name for buffer in version.scratch] == ["flags"]
    assert pickle.loads(pickle.dumps(kernel)) == kernel


def test_one_compute_capability_comes_before_its_family(folder: Path) -> None:
    """sm_100a is served by its own file where there is one, sm_103a by that of the family."""
    for arch in ("sm_100f", "sm_100a"):
        (folder / f"product.{arch}.cu").write_text(VERSION.replace("sm_90a", arch), encoding="utf-8")
    kernel = library()["product"]
    assert [kernel.for_arch(arch).label for arch in ("sm_90a", "sm_100a", "sm_103a", "sm_120a")] == [
        *("product.sm_90a", "product.sm_100a", "product.sm_100f", "product")
    ]


def test_the_digest_of_a_run_covers_all_files_and_that_of_a_row_one(folder: Path) -> None:
    """A change of any file is a change of the kernel for --resume; a row names the file that ran."""
    kernel = library()["product"]
    digests = {kernel.summary_record().digest, kernel.digest, kernel.for_arch("sm_90a").digest}
    assert len(digests) == 3
    (folder / "product.sm_90a.cu").write_text(VERSION + "// more\n", encoding="utf-8")
    changed = library()["product"]
    assert changed.digest == kernel.digest
    assert changed.summary_record().digest != kernel.summary_record().digest
    (folder / "product.cu").write_text(BASE + "// more\n", encoding="utf-8")
    assert library()["product"].summary_record().digest not in {changed.summary_record().digest, *digests}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('family  = "gemm"', 'family  = "memory"', "family is memory, but gemm in product.cu; both files are to be one kernel"),
        ("m = 512", "m = 256", "params is (('m', 256), ('n', 256), ('k', 128)), but (('m', 512), ('n', 256), ('k'"),
        ('yardstick = "cublas"', "", "yardstick is none, but cublas in product.cu"),
        ('dtype   = "bfloat16"', 'dtype   = "float16"', "dtype is float16, but bfloat16 in product.cu"),
        ('entry   = "product"', 'entry   = "product"\nverify = "write"', "verify is write, but none in product.cu"),
        ('name = "c", dtype = "bfloat16"', 'name = "c", dtype = "float32"', "the list of buffers (scratch aside) is [('a', "),
        ('name = "c", dtype = "bfloat16", count = "m * n"', 'name = "c", dtype = "bfloat16", count = "m"', "the list of buffers"),
        ('flops = "2 * m * n"', 'flops = "m * n"', "work.flops is 131072, but 262144 in product.cu"),
    ],
)
def test_contradictions_are_refused(folder: Path, old: str, new: str, problem: str) -> None:
    """What rows of both files have in common must be the same: question, parameters, operands, reference, yardstick."""
    assert VERSION.count(old) == 1
    (folder / "product.sm_90a.cu").write_text(VERSION.replace(old, new), encoding="utf-8")
    with pytest.raises(KernelFileError) as caught:
        library()
    assert str(caught.value).startswith(f"{folder / 'product.sm_90a.cu'}: {problem}")
    assert "\n" not in str(caught.value)


def test_names_of_versions(folder: Path) -> None:
    """The name holds an architecture that the front matter repeats, and the kernel lies beside it."""

    def refusal(name: str, text: str = VERSION) -> str:
        (folder / name).write_text(text, encoding="utf-8")
        with pytest.raises(KernelFileError) as caught:
            library()
        (folder / name).unlink()
        return str(caught.value)

    assert "its version for one architecture is NAME.ARCH.cu, like gemm.sm_90a.cu" in refusal("product.fast.cu")
    assert "a kernel is called like its file" in refusal("product.sm_90.cu")
    assert "a kernel is called like its file" in refusal("product.sm_90a.b.cu")
    assert refusal("product.sm_100a.cu").startswith(
        "product.sm_100a.cu:6: arch is 'sm_90a', but the file is called after sm_100a; write arch = \"sm_100a\""
    )
    assert "arch is '', but the file is called after sm_100a" in refusal("product.sm_100a.cu", BASE)
    assert "there is no other.cu beside it, whose version for sm_90a it is" in refusal("other.sm_90a.cu")


def test_a_version_may_require_more(folder: Path) -> None:
    """What the file for this device cannot do is refused before any GPU work; elsewhere it is no matter."""
    (folder / "plan.toml").write_text('kernels = ["product"]', encoding="utf-8")
    plan = load_plan(folder / "plan.toml", {"set": ["n=100"], "sms": "8"}, library())
    hopper, ampere = open_modelled("h200").device, open_modelled("a100").device
    assert expand(plan, ampere, library())
    with pytest.raises(PlanError, match=r"^kernel product with n=100: n must be a multiple of 8, and 100 is not$"):
        expand(plan, hopper, library())


def spun(device: str) -> tuple[str, str, int, int]:
    """Return config, source digest, grid and working set of a point of the kernel on a modelled device."""
    kernel: Kernel = library()["product"]
    real = load_kernel(Path(__file__).parent.parent / "kernels" / "spin.cu")
    session = Session(open_modelled(device), {"product": kernel, "spin": real})
    partition = Partition(SmsMode.COUNT, 16)
    session.open([partition])
    found = session.prepare(Point("product", kernel.merged({}), partition, Timing.STEADY))
    session.close()
    return found.config, found.source_digest, found.grid, found.working_set_bytes


def test_lanes_run_the_file_of_their_architecture(folder: Path) -> None:
    """Config, digest and grid are those of the file; scratch memory is no part of the working set."""
    kernel = library()["product"]
    assert spun("h200") == ("sm_90a-BM128", kernel.for_arch("sm_90a").digest, 16, WORKING_SET)
    assert spun("a100") == ("", kernel.digest, 8, WORKING_SET)


# Without the group above it; click keeps the names of a command's help from its first use on.
ALONE: dict[str, Any] = {"standalone_mode": False, "help_option_names": ["-h", "--help"]}


def test_the_command_shows_and_compiles_each_file(folder: Path) -> None:
    """`kernels NAME` has a part per file, --json nests it, and --check compiles each for what it claims."""
    done = CliRunner().invoke(kernels_command, ["product"], catch_exceptions=False, **ALONE)
    assert "runs on     compute capability 8.0 and later; on sm_90a product.sm_90a.cu instead" in done.output
    for part in (
        "\nproduct.sm_90a  Product.",
        "runs on     sm_90a only",
        "requires    n % 8 = 0",
        "tensor map in boxes of 64 x BM",
    ):
        assert part in done.output
    record = json.loads(CliRunner().invoke(kernels_command, ["product", "--json"], **ALONE).output)
    (version,) = record["versions"]
    assert (version["arch"], version["require"], version["versions"]) == ("sm_90a", ["n % 8"], [])
    assert version["buffers"][0]["tensor_map"] == {"box": ["64", "BM"], "swizzle": 128, "l2_promotion": 0}
    kernel = library()["product"]
    jobs = plan_jobs([kernel, *kernel.versions], ("sm_80", "sm_90a"), ["sm_80", "sm_90"], everything=True)
    assert [(job.title, job.arch) for job in jobs] == [
        ("product", "sm_80"),
        ("product", "sm_90a"),
        ("product.sm_90a BM128", "sm_90a"),
    ]
