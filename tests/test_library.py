"""Every kernel that ships: read, compiled for every architecture that it claims, and its resource report looked at."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from greenbench.catalog import Kernel, kernels_dir, library, load_kernel, program_text, sweeps_dir
from greenbench.cli.compiling import Outcome, cell
from greenbench.cli.kernels import CHECK_ARCHS, kernels_command
from greenbench.errors import IncompleteError, KernelFileError, MissingPackageError, UsageError
from greenbench.gpu.nvrtc import Compiled, compile_kernel, nvrtc_version, supported_archs
from greenbench.source import limits_of

DATA = Path(__file__).parent / "data" / "kernels"
FILES = sorted(kernels_dir().glob("*.cu"))

# What the library has by name; the tool's own probes are `internal`.
PROMISED = {"copy", "triad", "read", "write", "gemm_bf16", "gemm_fp32", "chase", "null_launch"}


def nvrtc_obstacle() -> str:
    """Return why NVRTC cannot be used here."""
    try:
        nvrtc_version()
    except MissingPackageError as error:
        return str(error)
    return ""


needs_nvrtc = pytest.mark.skipif(bool(nvrtc_obstacle()), reason=nvrtc_obstacle() or "NVRTC is here")


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    """The library."""
    return library()


def archs_of(kernel: Kernel) -> list[str]:
    """Return what the kernel claims of the architectures that are checked, and of those that this NVRTC knows."""
    claimed = kernel.archs(CHECK_ARCHS) or [kernel.arch or ""]
    return [arch for arch in claimed if arch.rstrip("af") in supported_archs()]


def compiled(kernel: Kernel, arch: str) -> list[Compiled]:
    """Compile all variants; the test session shares a cache."""
    return [compile_kernel(kernel, arch, variant) for variant in kernel.variants or (None,)]


def test_the_library_is_complete(kernels: dict[str, Kernel]) -> None:
    """The kernels that the tool promises are there, and the probes that it needs are kept out of sweeps."""
    assert set(kernels) >= PROMISED
    assert any(kernel.internal for kernel in kernels.values())
    assert not any(kernels[name].internal for name in PROMISED)
    assert sweeps_dir().is_dir()


@every_file
def test_files_keep_to_the_house(path: Path) -> None:
    """A kernel says what limits it, needs no toolkit's header, is checked against a reference, and a GEMM has a yardstick."""
    kernel = load_kernel(path)
    code = kernel.source.partition("*/")[2]
    assert re.search(r"\b[Ll]imited by\b", code), "say in a comment what limits the kernel"
    assert kernel.toolkit_headers == ()
    assert kernel.verify or kernel.internal or not kernel.buffers, "without a reference only probes may ship"
    assert kernel.yardstick or kernel.family != "gemm"
    assert len(kernel.summary) <= 100
    assert kernel.flops or kernel.bytes or kernel.report or kernel.family in ("latency", "probe")


@needs_nvrtc
@every_file
def test_every_kernel_compiles_for_all_it_claims_without_spills(path: Path) -> None:
    """All variants, all architectures: a cubin, no warning, no spilled register, no local memory unless the file allows it."""
    kernel = load_kernel(path)
    archs = archs_of(kernel)
    assert archs
    with ThreadPoolExecutor() as pool:  # a GEMM has thirty cubins
        results = list(pool.map(partial(compiled, kernel), archs))
    for arch, done in ((arch, done) for arch, variants in zip(archs, results, strict=True) for done in variants):
        assert done.cubin.startswith(b"\x7fELF")
        assert done.registers is not None
        assert (kernel.local_ok and done.local_bytes) or (done.spill_bytes, done.local_bytes) == (0, 0), (arch, done.log)
        assert done.shared_bytes is not None
        assert done.shared_bytes <= 48 * 1024, "static shared memory ends at 48 KiB; use smem"
        assert "warning" not in done.log, done.log


@needs_nvrtc
def test_the_whole_library_comes_out_of_the_cache_at_once(kernels: dict[str, Kernel]) -> None:
    """With a warm cache, all kernels and variants for one architecture take at most 0.3 s, imports excluded."""
    jobs = [(kernel, variant) for kernel in kernels.values() for variant in kernel.variants or (None,)]
    jobs = [(kernel, variant) for kernel, variant in jobs if kernel.archs(["sm_90a"])]
    for kernel, variant in jobs:
        compile_kernel(kernel, "sm_90a", variant)
    started = time.perf_counter()
    again = [compile_kernel(kernel, "sm_90a", variant) for kernel, variant in jobs]
    assert time.perf_counter() - started <= 0.3
    assert all(done.cached for done in again)


def test_program_texts_start_with_the_prelude(kernels: dict[str, Kernel]) -> None:
    """Every kernel of the library is compiled behind the prelude that ships beside it."""
    prelude = (kernels_dir() / "prelude.cuh").read_text(encoding="utf-8")
    assert all(prelude in program_text(kernel) for kernel in kernels.values())


# The command

# Without the group above it; click keeps the names of a command's help from its first use on.
ALONE: dict[str, Any] = {"standalone_mode": False, "help_option_names": ["-h", "--help"]}


def run(*arguments: str) -> Result:
    """Run the command and return what it wrote; errors are raised, as in the entry point."""
    return CliRunner().invoke(kernels_command, list(arguments), catch_exceptions=False, **ALONE)


def refused(*arguments: str) -> str:
    """Run the command and return the usage error that it ends with."""
    with pytest.raises(UsageError) as caught:
        run(*arguments)
    return str(caught.value)


def test_the_listing_names_every_kernel(kernels: dict[str, Kernel]) -> None:
    """One line per kernel with family, dtype and params; probes of the tool in a line of their own."""
    text = run().output
    for name, kernel in kernels.items():
        line = next(line for line in text.splitlines() if name in line.replace(",", " ").split())
        assert ("own probes" in line) == kernel.internal
        if not kernel.internal:
            assert kernel.family.value in line


def test_one_kernel_is_shown_in_full(kernels: dict[str, Kernel]) -> None:
    """What it measures, its parameters, its work and its digest."""
    text = run("triad").output
    kernel = kernels["triad"]
    assert kernel.flops is not None
    for part in (kernel.summary, kernel.digest, str(kernel.path), f"flops       {kernel.flops.text}", "params      n="):
        assert part in text
    shown = run("tiled", "--kernels-dir", str(DATA / "good")).output
    for part in (
        "BM128_BN256  cost waves * BM * BN * 9",
        "tiles = ceil_div(m, BM)",
        "cycles per tiles",
        "BM * 4 bytes of dynamic",
    ):
        assert part in shown
    assert "runs on     sm_90a only" in run("hopper", "--kernels-dir", str(DATA / "good")).output


def test_every_kernel_shows_its_work_limits_and_sources(kernels: dict[str, Kernel]) -> None:
    """What it measures, by which formula, what limits it and where that comes from: for each file of the library."""
    for kernel in (kernel for kernel in kernels.values() if not kernel.internal):
        text = run(kernel.name).output
        for file in (kernel, *kernel.versions):
            part = text[text.index(file.summary) :].partition("\n\n")[0]
            assert re.search(r"^  limits +Limited by ", part, re.MULTILINE), file.label
            assert re.search(r"^  sources +\S", part, re.MULTILINE), file.label
            work = file.flops or file.bytes or file.report or file.host or file.family in ("latency", "probe")
            assert work, file.label
            for expr in (each for each in (file.flops, file.bytes) if each):
                assert expr.text in part


def test_limits_end_with_their_paragraph(tmp_path: Path) -> None:
    """The first comment that begins so, up to an empty line or code; a user's file may have none."""
    head = "/* x */\n// Copyright\n\n"
    assert (
        limits_of(f"{head}// Limited by a, on few SMs\n//   by b.\n//\n// And more.\nint x;") == "Limited by a, on few SMs by b."
    )
    assert limits_of(f"{head}// Limited by a.\nint x;  // Limited by nothing") == "Limited by a."
    assert limits_of(f"{head}int x;  // Limited by a.") == ""
    (tmp_path / "bare.cu").write_text((DATA / "triad.cu").read_text().replace("Limited by", "Bound by"), encoding="utf-8")
    shown = json.loads(run("bare", "--json", "--kernels-dir", str(tmp_path)).output)
    assert (shown["limits"], shown["sources"], shown["timing"]) == (None, [], None)


def test_json_holds_the_same_for_machines(kernels: dict[str, Kernel]) -> None:
    """--json gives all kernels, or with a name one, with expressions as text."""
    everything = json.loads(run("--json").output)["kernels"]
    assert [record["name"] for record in everything] == list(kernels)
    record = json.loads(run("tiled", "--json", "--kernels-dir", str(DATA / "good")).output)
    assert (record["family"], record["params"], record["let"]["waves"]) == (
        "gemm",
        {"m": 4096, "n": 4096},
        "ceil_div(tiles, sms)",
    )
    assert record["variants"][0] == {"name": "BM128_BN256", "defines": {"BM": 128, "BN": 256}, "cost": "waves * BM * BN * 9"}
    assert record["report"] == {"buffer": "cycles", "per": "tiles"}
    assert record["launch"]["grid"] == ["min(tiles, sms * occupancy)", "1"]
    assert record["archs"] == list(CHECK_ARCHS)


def test_wrong_use_is_told_before_anything_is_compiled(tmp_path: Path) -> None:
    """Unknown names, architectures that are none, options without their partner, folders and files that are wrong."""
    assert "there is no kernel 'triadd' (did you mean triad?); there are " in refused("triadd")
    assert "--arch sm_80 says what to compile for; add --check" in refused("--arch", "sm_80")
    for wrong in ("sm_90x", "sm90", "", "all,sm_80", "sm_80,,sm_90a", "compute_90"):
        assert "is no architecture; give all, or names such as sm_80" in refused("--check", "--arch", wrong)
    assert "--arch: 'sm_80' is given twice" in refused("--check", "--arch", "sm_80,sm_80")
    assert f"{tmp_path} holds no .cu file" in refused("--kernels-dir", str(tmp_path))
    (tmp_path / "k.cu").write_text("/* greenbench\nfamily = 1\n*/", encoding="utf-8")
    with pytest.raises(KernelFileError, match=r"k\.cu:2: family is 1"):
        run("--kernels-dir", str(tmp_path))


@needs_nvrtc
def test_check_compiles_and_reports_failures() -> None:
    """Good kernels get their figures, broken ones a sentence with file and line once for all architectures, and exit 5."""
    result = CliRunner().invoke(
        kernels_command,
        ["--check", "--arch", "sm_80,sm_90a", "--kernels-dir", str(DATA / "compile")],
        **ALONE,
    )
    assert isinstance(result.exception, IncompleteError)
    assert str(result.exception).startswith("4 of ")
    assert re.search(r"^triad +\d+/0/0 +\d+/0/0", result.stdout, re.MULTILINE)
    assert re.search(r"^type_traits +failed +failed", result.stdout, re.MULTILINE)
    assert result.stderr.count("type_traits for sm_80, sm_90a: compile error: type_traits.cu(14): ") == 1
    assert "bad_include for sm_80, sm_90a: compile error: bad_include.cu(13): " in result.stderr


@needs_nvrtc
def test_check_of_one_kernel_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """--json lists every compile; what a kernel does not claim is left out, and a stray CUDA_PATH is warned of once."""
    monkeypatch.setenv("CUDA_PATH", "/usr/local/cuda-12.2")
    result = run("hopper", "--check", "--json", "--kernels-dir", str(DATA / "good"))
    report = json.loads(result.stdout)
    assert [(each["kernel"], each["arch"], each["error"]) for each in report["compiled"]] == [("hopper", "sm_90a", "")]
    assert report["failed"] == 0
    assert report["nvrtc"] == "{}.{}".format(*nvrtc_version())
    assert result.stderr.count("warning: CUDA_PATH=/usr/local/cuda-12.2 is CUDA 12.2") == 1
    assert "sm_50" in refused("triad", "--check", "--arch", "sm_50")
    assert "none of sm_80 is claimed by hopper" in refused(
        "hopper", "--check", "--arch", "sm_80", "--kernels-dir", str(DATA / "good")
    )


def test_kernel_names_are_completed() -> None:
    """The shell offers the kernels that begin with what was typed."""
    completion = ShellComplete(kernels_command, {}, "kernels", "_KERNELS_COMPLETE")
    assert "triad" in [item.value for item in completion.get_completions([], "tri")]


def test_cells_tell_unknown_from_zero() -> None:
    """A figure that ptxas did not give is a question mark, never 0."""
    assert cell(Outcome(kernel="k", variant="", arch="sm_80", registers=40, shared_bytes=0, spill_bytes=None)) == "40/0/?"
    assert cell(Outcome(kernel="k", variant="", arch="sm_80", error="compile error")) == "failed"
