"""Compiling with NVRTC, without a driver: cubins, resource reports, headers, errors, and a cache that never stands in the way."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from greenbench.catalog import Kernel, load_kernel
from greenbench.errors import FailedError, MissingPackageError
from greenbench.gpu import nvrtc, toolkit
from greenbench.gpu.nvrtc import CompileError, compile_kernel, resources
from greenbench.gpu.programs import open_cache, programs_dir

DATA = Path(__file__).parent / "data" / "kernels"
ROOT = Path(__file__).parent.parent


def nvrtc_obstacle() -> str:
    """Return why NVRTC cannot be used here."""
    try:
        nvrtc.nvrtc_version()
    except MissingPackageError as error:
        return str(error)
    return ""


needs_nvrtc = pytest.mark.skipif(bool(nvrtc_obstacle()), reason=nvrtc_obstacle() or "NVRTC is here")


def load(name: str) -> Kernel:
    """Read a kernel of the test data."""
    return load_kernel(DATA / f"{name}.cu", prelude="typedef unsigned int u32;")


def written(folder: Path, body: str, front: str = "") -> Kernel:
    """Write a kernel `k(out)` around a body and read it."""
    path = folder / "k.cu"
    path.write_text(
        f"""/* greenbench
family = "probe"
summary = "x"
entry = "k"
args = ["out"]
buffers = [{{ name = "out", dtype = "float32", count = 32, fill = "poison" }}]
{front}
[launch]
block = 32
grid = 1
*/
{body}
""",
        encoding="utf-8",
    )
    return load_kernel(path, prelude="")


# Compiling


@needs_nvrtc
def test_a_compile_gives_a_cubin_and_its_resources(tmp_path: Path) -> None:
    """The cubin is an ELF file of the exact architecture, and ptxas' report is read."""
    done = compile_kernel(load("triad"), "sm_90a", cache_dir=tmp_path)
    assert done.cubin.startswith(b"\x7fELF")
    assert done.symbol == "triad"
    assert done.registers is not None
    assert 8 <= done.registers <= 64
    assert (done.shared_bytes, done.local_bytes, done.spill_bytes) == (0, 0, 0)
    assert "Compiling entry function 'triad' for 'sm_90a'" in done.log
    assert (done.cached, done.headers, done.note) == (False, "", "")
    assert done.nvrtc == "{}.{}".format(*toolkit.nvrtc_version())
    assert done.seconds > 0


@needs_nvrtc
def test_every_variant_is_compiled_with_its_own_macros(tmp_path: Path) -> None:
    """Macros of variant and file reach the source, and each variant has a cubin of its own."""
    kernel = load("good/tiled")
    done = [compile_kernel(kernel, "sm_80", variant, cache_dir=tmp_path) for variant in kernel.variants]
    assert not any(each.cached for each in done)
    assert done[0].cubin != done[1].cubin
    with pytest.raises(CompileError, match=r'tiled\.cu\(\d+\): identifier "BM" is undefined'):
        compile_kernel(kernel, "sm_80", cache_dir=tmp_path)


@needs_nvrtc
def test_a_name_expression_keeps_its_symbol_in_the_cache(tmp_path: Path) -> None:
    """A template instance is found under its mangled name, from the cache too; its header beside the file is found."""
    kernel = load("good/templated")
    first, second = (compile_kernel(kernel, "sm_80", cache_dir=tmp_path) for _ in range(2))
    assert first.symbol == second.symbol == "_ZN4user5scaleIfLi128EEEvPT_x"
    assert (first.cached, second.cached) == (False, True)
    assert first.registers == second.registers


@needs_nvrtc
def test_architecture_specific_code(tmp_path: Path) -> None:
    """setmaxnreg compiles for sm_90a alone; elsewhere the assembler's complaint is the reason."""
    assert compile_kernel(load("good/hopper"), "sm_90a", cache_dir=tmp_path).cubin
    with pytest.raises(CompileError, match=r"compile error: ptxas: .*setmaxnreg.* \[NVRTC \d+\.\d+, sm_80\]"):
        compile_kernel(load("good/hopper"), "sm_80", cache_dir=tmp_path)


@needs_nvrtc
def test_local_memory_and_shared_memory_are_reported(tmp_path: Path) -> None:
    """An array with a run-time index costs local memory, __shared__ is counted, of one entry among several in the file."""
    body = """
extern "C" __global__ void other(float* out) {
  __shared__ float big[4096];
  big[threadIdx.x] = out[0];
  __syncthreads();
  out[1] = big[3];
}
extern "C" __global__ void k(float* out) {
  __shared__ float s[32];
  float mine[64];
  for (int i = 0; i < 64; ++i) mine[int(out[i]) & 63] = out[i] * i;
  s[threadIdx.x] = mine[int(out[20]) & 63];
  __syncthreads();
  out[threadIdx.x] = s[31 - threadIdx.x];
}"""
    done = compile_kernel(written(tmp_path, body), "sm_80", cache_dir=tmp_path)
    assert (done.shared_bytes, done.local_bytes, done.spill_bytes) == (128, 256, 0)


def test_resources_of_a_log() -> None:
    """Spills of the entry and of functions that it calls add up, other entries do not; what is missing is None."""
    log = """ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    16 bytes stack frame, 32 bytes spill stores, 64 bytes spill loads
ptxas info    : Used 40 registers, 364 bytes cmem[0]
ptxas info    : Function properties for _Z1fv
    1 bytes stack frame, 2 bytes spill stores, 3 bytes spill loads"""
    assert resources(log, "a") == nvrtc.Resources(registers=40, shared_bytes=0, local_bytes=17, spill_bytes=101)
    assert resources(log, "b") == nvrtc.Resources(registers=255, shared_bytes=512, local_bytes=9, spill_bytes=17)
    assert resources("", "a") == nvrtc.Resources(None, None, None, None)


# Errors


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "line", "header"),
    [("type_traits", 14, "type_traits"), ("bad_include", 13, "greenbench_has_no_such_header.h")],
)
def test_a_missing_header_is_told_by_file_and_line(tmp_path: Path, name: str, line: int, header: str) -> None:
    """The first error names the user's file and its own line, whatever text was put in front, and the log is kept."""
    with pytest.raises(CompileError) as caught:
        compile_kernel(load(f"compile/{name}"), "sm_90a", cache_dir=tmp_path)
    text = str(caught.value)
    assert text.startswith(f"compile error: {name}.cu({line}): ")
    assert f'open source file "{header}"' in text
    assert "it is not beside the file" in text
    assert f"[NVRTC {caught.value.nvrtc}, sm_90a, headers " in text
    assert "\n" not in text
    assert "catastrophic error" in caught.value.log
    assert isinstance(caught.value, FailedError)
    assert pickle.loads(pickle.dumps(caught.value)).log == caught.value.log


@needs_nvrtc
def test_other_errors_name_their_place(tmp_path: Path) -> None:
    """An error in the file, in its own header, in the options, and an entry that was not compiled each have their sentence."""
    broken = written(tmp_path, 'extern "C" __global__ void k(float* out) {\n  out[0] = nowhere;\n  out[1] = never;\n}')
    with pytest.raises(CompileError, match=r'^compile error: k\.cu\(13\): identifier "nowhere" is undefined \[NVRTC'):
        compile_kernel(broken, "sm_80", cache_dir=tmp_path)
    (tmp_path / "own.h").write_text("#define X\n__device__ int bad() { return absent; }\n", encoding="utf-8")
    nested = written(tmp_path, '#include "own.h"\nextern "C" __global__ void k(float* out) {}')
    with pytest.raises(CompileError, match=r"own\.h\(2\): identifier .absent. is undefined \(included from k\.cu\) \["):
        compile_kernel(nested, "sm_80", cache_dir=tmp_path)
    with pytest.raises(CompileError, match=r"compile error: nvrtc: invalid value for --gpu-architecture"):
        compile_kernel(load("triad"), "sm_20", cache_dir=tmp_path)
    macro = written(tmp_path, '#define MAKE(name) extern "C" __global__ void not_##name(float* out) {}\nMAKE(k)')
    with pytest.raises(CompileError, match=r"k\.cu: no symbol 'k', only not_k; is it extern"):
        compile_kernel(macro, "sm_80", cache_dir=tmp_path)


@needs_nvrtc
def test_a_failed_compile_is_not_cached(tmp_path: Path) -> None:
    """What failed is tried anew, since the header that was missing may be there now."""
    kernel = written(tmp_path, '#include "late.h"\nextern "C" __global__ void k(float* out) { out[0] = LATE; }')
    with pytest.raises(CompileError):
        compile_kernel(kernel, "sm_80", cache_dir=tmp_path)
    (tmp_path / "late.h").write_text("#define LATE 1\n", encoding="utf-8")
    assert compile_kernel(kernel, "sm_80", cache_dir=tmp_path).cubin


# Headers


@needs_nvrtc
def test_toolkit_headers_come_from_one_place_that_is_named(tmp_path: Path) -> None:
    """cuda_fp16.h is found, and the result says where; a kernel without #include needs and names no headers."""
    if toolkit.find_headers(toolkit.nvrtc_version()).problem:
        pytest.skip(toolkit.find_headers(toolkit.nvrtc_version()).problem)
    done = compile_kernel(load("compile/half_header"), "sm_80", cache_dir=tmp_path)
    assert done.headers == toolkit.find_headers(toolkit.nvrtc_version()).label != ""
    assert compile_kernel(load("compile/half_header"), "sm_80", cache_dir=tmp_path).cached


@needs_nvrtc
def test_a_changed_own_header_is_a_miss(tmp_path: Path) -> None:
    """The key covers the text of the headers that are the user's own, and the folders of `include` are searched."""
    (tmp_path / "inc").mkdir()
    body = '#include <size.h>\nextern "C" __global__ void k(float* out) { out[0] = SIZE; }'
    cubins = []
    for size in (1, 2):
        (tmp_path / "inc" / "size.h").write_text(f"#define SIZE {size}\n", encoding="utf-8")
        done = compile_kernel(written(tmp_path, body, 'include = ["inc"]'), "sm_80", cache_dir=tmp_path)
        assert not done.cached
        cubins.append(done.cubin)
    assert cubins[0] != cubins[1]


@needs_nvrtc
def test_own_headers_ask_for_no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose headers are all its own looks for no toolkit, and is found in the cache whichever there is."""
    (tmp_path / "own.cuh").write_text("#define OWN 1\n", encoding="utf-8")
    kernel = written(tmp_path, '#include "own.cuh"\nextern "C" __global__ void k(float* out) { out[0] = OWN; }')

    def searched(version: tuple[int, int]) -> toolkit.Headers:
        raise AssertionError(f"headers of {version} were looked for")

    monkeypatch.setattr(nvrtc, "find_headers", searched)
    first, second = (compile_kernel(kernel, "sm_80", cache_dir=tmp_path) for _ in range(2))
    assert (first.headers, first.cached, second.cached) == ("", False, True)


@needs_nvrtc
def test_the_current_folder_is_never_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that happens to lie in the current folder does not get into a kernel that lies elsewhere."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "stray.h").write_text("#define STRAY 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    kernel = written(tmp_path / "kernels", '#include "stray.h"\nextern "C" __global__ void k(float* out) { out[0] = STRAY; }')
    with pytest.raises(CompileError, match=r"k\.cu\(12\): .*stray\.h"):
        compile_kernel(kernel, "sm_80", cache_dir=tmp_path)


@needs_nvrtc
def test_a_compile_without_headers_says_why_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only headers of another version exist, a kernel that needs them fails with that reason; others compile."""
    monkeypatch.setattr(nvrtc, "find_headers", lambda version: toolkit.Headers(problem="the CUDA headers at /x are of CUDA 12.2"))
    with pytest.raises(CompileError, match=r"half_header\.cu\(\d+\): .*cuda_fp16\.h.*; the CUDA headers at /x are of CUDA 12\.2"):
        compile_kernel(load("compile/half_header"), "sm_80", cache_dir=tmp_path)
    assert compile_kernel(load("good/templated"), "sm_80", cache_dir=tmp_path).headers == ""


@needs_nvrtc
def test_headers_that_cannot_be_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC unpacks its headers into the user's cache folder; where that cannot be written, the variable to set is named."""
    if not toolkit.find_headers(toolkit.nvrtc_version()).bundled:
        pytest.skip("this NVRTC has no headers of its own")
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CompileError, match=r"compile error: nvrtc: failed to create directory.*; set XDG_CACHE_HOME to a folder"):
        compile_kernel(load("compile/half_header"), "sm_80", cache_dir=tmp_path)


def python(code: str, **environment: str) -> str:
    """Run a program in a fresh interpreter and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_nvrtc
def test_compiling_needs_no_driver_and_makes_no_context(tmp_path: Path) -> None:
    """A fresh process with no device compiles; libcuda is not even loaded."""
    program = f"""
from pathlib import Path
from greenbench.catalog import load_kernel
from greenbench.gpu.nvrtc import compile_kernel
kernel = load_kernel(Path({str(DATA / "triad.cu")!r}), prelude="")
done = compile_kernel(kernel, "sm_90a", cache_dir=Path({str(tmp_path)!r}))
print(len(done.cubin) > 0, "libcuda.so" in Path("/proc/self/maps").read_text())
"""
    assert python(program, CUDA_VISIBLE_DEVICES="") == "True False"


# The cache


@needs_nvrtc
def test_a_hit_is_the_same_and_fast(tmp_path: Path) -> None:
    """The second compile returns the same cubin and report from the disk, in a fraction of the time."""
    kernel = load("triad")
    first = compile_kernel(kernel, "sm_80", cache_dir=tmp_path)
    second = compile_kernel(kernel, "sm_80", cache_dir=tmp_path)
    assert (first.cached, second.cached) == (False, True)
    assert replace(first, seconds=0, cached=True) == replace(second, seconds=0)
    assert second.seconds < first.seconds / 4
    assert not compile_kernel(kernel, "sm_86", cache_dir=tmp_path).cached


@needs_nvrtc
@pytest.mark.parametrize("damage", ["cubin", "report", "garbage", "fields", "both gone"])
def test_a_damaged_cache_is_a_miss(tmp_path: Path, damage: str) -> None:
    """A truncated cubin, a lost or foreign report: the kernel is compiled anew and the entry replaced."""
    kernel = load("triad")
    good = compile_kernel(kernel, "sm_80", cache_dir=tmp_path)
    files = {path.read_bytes().startswith(b"\x7fELF"): path for path in (tmp_path / "programs" / "entries").glob("*/*")}
    assert set(files) == {True, False}
    match damage:
        case "cubin":
            files[True].write_bytes(files[True].read_bytes()[:100])
        case "report":
            files[False].unlink()
        case "garbage":
            files[False].write_bytes(b"\xff{[")
        case "fields":
            report = json.loads(files[False].read_bytes())
            files[False].write_text(json.dumps({"sha256": report["sha256"]}), encoding="utf-8")
        case _:
            for path in files.values():
                path.unlink()
    again = compile_kernel(kernel, "sm_80", cache_dir=tmp_path)
    assert (again.cached, again.cubin) == (False, good.cubin)
    assert compile_kernel(kernel, "sm_80", cache_dir=tmp_path).cached


@needs_nvrtc
def test_a_cache_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    """Where the folder cannot be made, kernels compile all the same and the first result carries a note."""
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    first, second = (compile_kernel(load("triad"), "sm_80", cache_dir=tmp_path / "file") for _ in range(2))
    assert first.cubin == second.cubin
    assert not second.cached
    assert first.note.startswith(f"the program cache {tmp_path / 'file' / 'programs'} cannot be used (Not a directory)")
    assert "GREENBENCH_CACHE_DIR" in first.note
    assert second.note == ""


@needs_nvrtc
def test_a_full_disk_stops_no_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails leaves the result whole, with a note, and nothing half written to be read later."""
    cache = open_cache(programs_dir(tmp_path))

    class Full:
        def __getitem__(self, key: bytes) -> bytes:
            raise KeyError(key)

        def __setitem__(self, key: bytes, value: bytes) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_files", Full())
    done = compile_kernel(load("triad"), "sm_80", cache_dir=tmp_path)
    assert done.cubin
    assert "No space left on device" in done.note


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's folder, else GREENBENCH_CACHE_DIR, else the user's cache folder."""
    monkeypatch.setenv("GREENBENCH_CACHE_DIR", str(tmp_path / "variable"))
    assert programs_dir(tmp_path / "given") == tmp_path / "given" / "programs"
    assert programs_dir() == tmp_path / "variable" / "programs"
    monkeypatch.delenv("GREENBENCH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert programs_dir() == tmp_path / "xdg" / "greenbench" / "programs"


@needs_nvrtc
def test_an_error_of_ptxas_is_not_hidden_by_its_chatter(tmp_path: Path) -> None:
    """Too much shared memory is told by ptxas after lines of information; the sentence holds the error, not the first line."""
    body = 'extern "C" __global__ void k(float *out) { __shared__ float s[100000]; s[threadIdx.x] = 1; out[0] = s[1]; }'
    with pytest.raises(CompileError, match="too much shared data"):
        compile_kernel(written(tmp_path, body), "sm_90a", cache_dir=tmp_path / "cache")
