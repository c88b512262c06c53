"""Kernel files: what a good one becomes, and that a bad one is refused with file, line, key and what is allowed."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path

import pytest

from greenbench import catalog
from greenbench.catalog import Kernel, library, load_kernel, program_text
from greenbench.errors import KernelFileError, PlanError, UsageError
from greenbench.kernel import split_arch
from greenbench.schema import Family, Timing

DATA = Path(__file__).parent / "data" / "kernels"
GOOD = DATA / "good"
TRIAD = (DATA / "triad.cu").read_text(encoding="utf-8")
TILED = (GOOD / "tiled.cu").read_text(encoding="utf-8")


def load(name: str) -> Kernel:
    """Read one of the good kernels, with a prelude of its own so that the library plays no part."""
    return load_kernel((DATA if name == "triad" else GOOD) / f"{name}.cu", prelude="typedef long long i64;")


def load_text(folder: Path, source: str) -> Kernel:
    """Write a kernel file and read it."""
    (folder / "k.cu").write_text(source, encoding="utf-8")
    return load_kernel(folder / "k.cu", prelude="")


def refusal(folder: Path, source: str | bytes, name: str = "k.cu") -> str:
    """Write a kernel file and return the sentence with which it is refused."""
    path = folder / name
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    with pytest.raises(KernelFileError) as caught:
        load_kernel(path, prelude="")
    text = str(caught.value)
    assert "\n" not in text
    return text


# What a good file becomes


def test_a_file_may_say_how_auto_times_it_and_where_it_comes_from(tmp_path: Path) -> None:
    """`timing` stands for `auto` alone; `sources` are lines of text. What is no way of timing is refused by name and line."""
    given = TRIAD.replace("entry", 'timing = "hot"\nsources = ["STREAM", "a paper"]\nentry', 1)
    kernel = load_text(tmp_path, given)
    assert (kernel.timing, kernel.sources) == ("hot", ("STREAM", "a paper"))
    assert [kernel.timing_of(asked) for asked in (Timing.AUTO, Timing.STEADY)] == [Timing.HOT, Timing.STEADY]
    assert load("triad").timing_of(Timing.AUTO) is Timing.AUTO
    assert "timing is 'cold'; allowed are steady, hot, graph" in refusal(tmp_path, given.replace('"hot"', '"cold"'))
    assert "sources" in refusal(tmp_path, given.replace('["STREAM", "a paper"]', "3"))


def test_a_kernel_holds_what_its_file_says() -> None:
    """Every key of the front matter arrives, with its default where it was left out."""
    kernel = load("triad")
    assert (kernel.name, kernel.family, kernel.entry, kernel.verify) == ("triad", Family.MEMORY, "triad", "")
    assert kernel.args == ("a", "b", "c", "s", "n")
    assert (kernel.min_cc, kernel.arch, kernel.dtype) == ((8, 0), None, "float32")
    assert [(b.name, b.dtype, b.count.text, b.fill, b.access) for b in kernel.buffers] == [
        ("a", "float32", "n", "poison", "out"),
        ("b", "float32", "n", "normal", "in"),
        ("c", "float32", "n", "normal", "in"),
    ]
    assert kernel.params == (("n", 1048576), ("s", 3.0))
    assert (kernel.launch.block.text, [g.text for g in kernel.launch.grid]) == ("256", ["ceil_div(n, 256)"])
    assert (kernel.launch.cluster.text, kernel.launch.smem, kernel.launch.cooperative) == ("1", None, False)
    assert (kernel.variants, kernel.report, kernel.yardstick, kernel.internal, kernel.local_ok) == ((), None, "", False, False)
    env = kernel.environment(kernel.params, sms=8)
    assert (kernel.flops and kernel.flops.value(env), kernel.bytes and kernel.bytes.value(env)) == (2 * 1048576, 12 * 1048576)
    assert not kernel.is_name_expression
    assert pickle.loads(pickle.dumps(kernel)) == kernel


def test_names_are_evaluated_in_order() -> None:
    """Parameters, SMs, macros and [let] build on each other: tiles from the variant's macros, waves from tiles."""
    kernel = load("tiled")
    env = kernel.environment(kernel.params, sms=16, occupancy=2, variant=kernel.variants[1])
    assert env == {
        **{"m": 4096, "n": 4096, "sms": 16, "occupancy": 2, "WARPS": 4, "BM": 128, "BN": 128},
        **{"tiles": 32 * 32, "waves": 64},
    }
    assert kernel.launch.block.value(env) == 128
    assert [size.value(env) for size in kernel.launch.grid] == [32, 1]
    assert kernel.launch.smem is not None
    assert kernel.launch.smem.value(env) == 512
    assert kernel.report is not None
    assert (kernel.report.buffer, env[kernel.report.per]) == ("cycles", 1024)
    assert kernel.dtype == "tf32"
    assert kernel.defines == (("WARPS", "4"), ("SCALAR", "float"))


def test_the_variant_of_lowest_cost_wins(tmp_path: Path) -> None:
    """The choice depends on parameters and SMs; of equal costs the first is taken, and an environment takes the same one."""
    kernel = load("tiled")
    wide, square = kernel.variants
    assert (wide.name, square.name) == ("BM128_BN256", "BM128_BN128")
    # On 8 SMs 64 waves of 256 x 9 against 128 of 128 x 10; on 120 SMs 5 against 9, which cost the same.
    assert kernel.choose(kernel.params, 8) == kernel.choose(kernel.params, 120) == wide
    narrow = kernel.merged({"m": 128, "n": 384})
    assert kernel.choose(narrow, 1) == square
    assert kernel.environment(narrow, sms=1)["BN"] == 128
    even = load_text(tmp_path, TILED.replace("BM * BN * 9", "BM").replace("BM * BN * 10", "BM * 2 // 2"))
    assert even.choose(narrow, 4) == even.variants[0]
    assert load("triad").choose({}, 8) is None


def test_parameters_are_merged_and_sorted() -> None:
    """Overrides take the place of the file's values; an integral real counts as an integer, an integer as a real."""
    kernel = load("triad")
    assert kernel.merged({}) == (("n", 1048576), ("s", 3.0))
    assert kernel.merged({"s": 2, "n": 512.0}) == (("n", 512), ("s", 2.0))
    assert [type(value) for _, value in kernel.merged({"s": 2, "n": 512.0})] == [int, float]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"N": 1}, "kernel triad has no parameter 'N'; it has n, s"),
        ({"nn": 1}, "kernel triad has no parameter 'nn' (did you mean n?); it has n, s"),
        ({"n": "big"}, "parameter n of kernel triad is 'big'; it must be a number, like 1048576"),
        ({"n": True}, "parameter n of kernel triad is True; it must be a number, like 1048576"),
        ({"n": 1.5}, "parameter n of kernel triad is 1.5; it must be an integer, like 1048576"),
        ({"n": 2.0**63}, "it must fit in 64 bits"),
        ({"s": float("inf")}, "parameter s of kernel triad is inf; it must be a number, like 3.0"),
        ({"n": 0}, "kernel triad with n=0: triad.cu:17: launch.grid 'ceil_div(n, 256)' is 0, outside 1 to 2147483647"),
        ({"n": -5, "s": 1.0}, "kernel triad with n=-5, s=1.0: triad.cu:17: launch.grid"),
        ({"n": 2**62}, "launch.grid 'ceil_div(n, 256)' is 18014398509481984, outside 1 to 2147483647"),
    ],
)
def test_overrides_are_checked_before_any_gpu_work(overrides: dict[str, object], problem: str) -> None:
    """A wrong --set is a plan error (exit 2) that names value and choices, and so is one that leaves nothing to launch."""
    with pytest.raises(PlanError) as caught:
        load("triad").merged(overrides)  # type: ignore[arg-type]
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "overrides", "problem"),
    [
        ("decode_attention", {"page": 0}, "divides by zero; page is 0 and must be at least 1"),
        ("gemm_fp32", {"k": 0}, "is 0, outside 1 to 2305843009213693951; k is 0 and must be at least 1"),
        ("gemm_fp32", {"m": 0, "k": -4}, "; m is 0 and must be at least 1; k is -4 and must be at least 1"),
        ("gemm_fp32", {"k": 2**62}, "reaches a value that does not fit in 64 bits"),
    ],
)
def test_a_size_below_one_is_named(kernel: str, overrides: dict[str, int], problem: str) -> None:
    """The param, its value and what it must be, behind the expression where it came to light; others are not blamed."""
    with pytest.raises(PlanError) as caught:
        load_kernel(catalog.kernels_dir() / f"{kernel}.cu").merged(overrides)
    assert str(caught.value).endswith(problem)


def test_a_size_below_one_in_the_file_is_named(tmp_path: Path) -> None:
    """The file's own params are told alike."""
    assert refusal(tmp_path, TRIAD.replace("n = 1048576", "n = 0")).endswith("; n is 0 and must be at least 1")


def test_a_grid_for_small_lanes_only_is_no_error(tmp_path: Path) -> None:
    """A file is tried on a large and a small lane, since a grid that divides by sms may be empty on one of them."""
    source = TRIAD.replace('"ceil_div(n, 256)"', '"n // sms"').replace("n = 1048576", "n = 100")
    assert load_text(tmp_path, source).launch.grid[0].value({"n": 100, "sms": 8}) == 12


def test_obstacles_and_architectures(tmp_path: Path) -> None:
    """min_cc is a floor; arch with `a` is one compute capability, with `f` a family; targets follow from that."""
    triad, hopper = load("triad"), load("hopper")
    assert triad.obstacle((8, 0)) == triad.obstacle((12, 0)) == ""
    assert triad.obstacle((7, 5)) == "needs compute capability 8.0, this is 7.5"
    assert hopper.obstacle((9, 0)) == ""
    assert hopper.obstacle((10, 0)) == "needs sm_90a (compute capability 9.0 exactly), this is 10.0"
    targets = ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100f"]
    assert triad.archs(targets) == targets[1:]
    assert hopper.archs(targets) == ["sm_90a"]
    family = load_text(tmp_path, TRIAD.replace("min_cc  = [8, 0]", 'arch = "sm_100f"'))
    assert family.obstacle((10, 3)) == ""
    assert "10.0 or later of 10.x" in family.obstacle((12, 0))
    assert family.archs(["sm_100", "sm_100f", "sm_100a", "sm_103", "sm_120f"]) == ["sm_100f", "sm_100a"]
    assert split_arch("sm_120") == (12, 0, "")
    for wrong in ("sm90", "sm_9", "sm_80a", "sm_90f", "compute_90", "sm_90x", ""):
        with pytest.raises(ValueError, match="is not an architecture"):
            split_arch(wrong)


def test_summary_record_is_what_a_run_keeps() -> None:
    """run.json says of each kernel its digest and whether it measures itself."""
    record = load("tiled").summary_record()
    assert (record.name, record.family, record.dtype, record.reports) == ("tiled", Family.GEMM, "tf32", True)
    assert record.digest == load("tiled").digest
    assert re.fullmatch(r"[0-9a-f]{16}", record.digest)
    assert not load("triad").summary_record().reports


def test_digest_covers_prelude_source_and_own_headers(tmp_path: Path) -> None:
    """Whatever of ours is compiled changes the digest: the prelude, the file, a header beside it; line ends do not."""
    shutil.copytree(GOOD, tmp_path / "k")
    path, header = tmp_path / "k" / "templated.cu", tmp_path / "k" / "own" / "factor.cuh"
    first = load_kernel(path, prelude="").digest
    assert load_kernel(path, prelude="").digest == first
    assert load_kernel(path, prelude="// else").digest != first
    header.write_text("#define FACTOR 3\n", encoding="utf-8")
    second = load_kernel(path, prelude="").digest
    assert second != first
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_kernel(path, prelude="").digest == second
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_kernel(path, prelude="").digest == second
    path.write_bytes(path.read_bytes() + b"// more\n")
    assert load_kernel(path, prelude="").digest != second


def test_program_text_keeps_the_lines_of_the_file() -> None:
    """The prelude comes first, and a #line makes errors name the user's file and its own line."""
    text = program_text(load("triad"))
    assert text == f'#line 1 "prelude.cuh"\ntypedef long long i64;\n#line 1 "triad.cu"\n{TRIAD}'


# Bad files


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"", "k.cu is empty"),
        (b"  \n\n", "k.cu is empty"),
        (b"/* greenbench\n# \xff\n*/", "k.cu:2: byte 0xff is not UTF-8; save it as UTF-8"),
        ("__global__ void k() {}", 'k.cu has no front matter; start the file with a comment "/* greenbench ... */"'),
        ("/* greenbench kernels, by me */ __global__ void k() {}", "has no front matter"),
        ("int x; /* greenbench\n*/", "has no front matter"),
        ("// mine\n\n/* greenbench\nfamily = 1\n", "k.cu:3: the front matter is never closed; end the comment with */"),
        (
            "// mine\n/* a licence */\n/* greenbench\nfamily = memory\n*/",
            "k.cu:4: the front matter is not valid TOML: Invalid value",
        ),
        ('/* greenbench\nfamily = "a"\nfamily = "b"\n*/', "k.cu:3: the front matter is not valid TOML: Cannot overwrite a value"),
        ("/* greenbench\na = [1,\n*/", "k.cu:3: the front matter is not valid TOML"),
        (f"/* greenbench\na = {'[' * 5000}{']' * 5000}\n*/", "k.cu: the front matter is nested too deeply"),
        (f"/* greenbench\n# {'x' * 70000}\n*/", "k.cu:1: the front matter is longer than 65536 characters"),
        ("/* greenbench\n*/", "k.cu:1: family is missing; allowed are gemm, memory, latency, probe"),
    ],
)
def test_files_without_readable_front_matter(tmp_path: Path, source: str | bytes, problem: str) -> None:
    """Empty, undecodable, unclosed or unparsable: one sentence with the line of the .cu file and the way out."""
    assert problem in refusal(tmp_path, source)


def test_files_that_are_not_there_or_too_large(tmp_path: Path) -> None:
    """A missing file, a folder of that name, and a huge file are told apart."""
    with pytest.raises(KernelFileError, match="no such kernel file"):
        load_kernel(tmp_path / "none.cu", prelude="")
    (tmp_path / "folder.cu").mkdir()
    with pytest.raises(KernelFileError, match=r"folder\.cu is no file but a folder"):
        load_kernel(tmp_path / "folder.cu", prelude="")
    assert "a kernel file may have" in refusal(tmp_path, b" " * (5 * 2**20))
    assert "a kernel is called like its file" in refusal(tmp_path, TRIAD, "my kernel.cu")
    assert "a kernel is called like its file" in refusal(tmp_path, TRIAD, "gemm.cublas.cu")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        # keys
        ('family  = "memory"', 'famly  = "memory"', "2: famly is not a key here (did you mean family?); allowed are family,"),
        ('family  = "memory"', "", "1: family is missing; allowed are gemm, memory, latency, probe"),
        ('family  = "memory"', 'family = "memroy"', "2: family is 'memroy' (did you mean memory?); allowed are gemm,"),
        ('family  = "memory"', "family = 1", "2: family is 1; it must be one line of text in quotes"),
        ('summary = "STREAM', 'summary = "" # ', "3: summary is empty; say in one line what the kernel measures"),
        ('entry   = "triad"', "", "1: entry is missing; name the extern"),
        ("min_cc  = [8, 0]", "min_cc = 8.0", "6: min_cc is 8.0; it must be a compute capability like [8, 0]"),
        ("min_cc  = [8, 0]", 'arch = "sm_90"', "6: arch is 'sm_90'; it is for code of one architecture"),
        ("min_cc  = [8, 0]", 'min_cc = [9, 0]\narch = "sm_90a"', "7: arch and min_cc exclude each other"),
        ("min_cc  = [8, 0]", "internal = 1", "6: internal is 1; it must be true or false"),
        ("min_cc  = [8, 0]", 'yardstick = "cudnn"', "6: yardstick is 'cudnn'; allowed are cublas"),
        ("min_cc  = [8, 0]", 'dtype = "fp32"', "6: dtype is 'fp32' (did you mean tf32?); allowed are float64"),
        ("min_cc  = [8, 0]", 'include = ["nope"]', "6: include names 'nope', and there is no folder "),
        ("min_cc  = [8, 0]", "include = 3", "6: include is 3; it must be a list of texts"),
        ("min_cc  = [8, 0]", "defines = { X = 1.5 }", "6: defines.X is 1.5; it must be an integer or a text"),
        ("min_cc  = [8, 0]", "defines = { sms = 4 }", "6: 'sms' cannot be a name; use letters, digits and _, but not sms"),
        ("min_cc  = [8, 0]", "defines = { n = 4 }", "6: the name 'n' is used twice"),
        ("[params]", "[parms]", "12: parms is not a key here (did you mean params?)"),
        # args
        ('"s", "n"]', '"s", "d"]', "5: args names 'd', neither a parameter nor a buffer; there are a, b, c, n, s"),
        ('"s", "n"]', '"s", "m"]', "5: args names 'm', neither a parameter nor a buffer; there are a, b, c, n, s"),
        ('["a", "b", "c", "s", "n"]', '["b", "c", "s", "n"]', "8: buffer 'a' is not in args, so the kernel never sees it"),
        ('["a", "b", "c", "s", "n"]', '"abc"', "5: args is 'abc'; it must be a list of texts"),
        (', "s", "n"]', ', "n"]', "5: args names 4, but `triad` takes 5 parameters (a, b, c, s, n)"),
        ('"c", "s", "n"]', '"s", "c", "n"]', "5: argument 3, 's', is a real number, but `triad` takes `const float* __rest"),
        ('"s", "n"]', '"n", "s"]', "5: argument 4, 'n', is an integer, but `triad` takes `float s` there"),
        ("s = 3.0", "s = 3", "5: argument 4, 's', is an integer, but `triad` takes `float s` there"),
        ("triad(float* __restrict__ a,", "triad(long long a,", "5: argument 1, 'a', is a buffer, but `triad` takes `long"),
        ('entry   = "triad"', 'entry = "triads"', "4: entry is 'triads', but the source has no such kernel (did you mean"),
        ('extern "C" __global__', "__global__", "4: `triad` is not extern \"C\"; write extern \"C\" in front of its __global__"),
        # buffers
        ('name = "b", dtype', 'name = "a", dtype', "9: the name 'a' is used twice"),
        ('name = "b", dtype', 'name = "n", dtype', "9: the name 'n' is used twice"),
        ('name = "b", dtype', 'name = "b 2", dtype', "9: 'b 2' cannot be a name; use letters, digits and _, but not sms"),
        ('name = "b", dtype', "dtype", "9: buffers[1].name is missing; every buffer has a name"),
        ('"b", dtype = "float32"', '"b", dtype = "float"', "9: buffers[1].dtype is 'float' (did you mean float64?)"),
        ('"b", dtype = "float32", count = "n"', '"b", dtype = "float32"', "9: buffers[1].count is missing"),
        ('"b", dtype = "float32", count = "n"', '"b", dtype = "float32", count = 0', "9: buffers[1].count '0' is 0, outside 1"),
        ('fill = "poison"', 'fill = "nan"', "8: buffers[0].fill is 'nan'; allowed are poison, zero, index"),
        ('fill = "poison"', 'fill = "cycle"', "8: buffers[0].fill 'cycle' is made in int64, uint64, and the buffer's dtype"),
        ('fill = "poison"', 'fill = "permutation"', "8: buffers[0].fill 'permutation' is made in int32, uint32, int64,"),
        ('"b", dtype = "float32"', '"b", dtype = "uint8"', "9: buffers[1].fill 'normal' is made in"),
        ('fill = "poison"', 'fill = "poison", access = "rw"', "8: buffers[0].access is 'rw'; allowed are in, out, state, scra"),
        ('fill = "poison"', 'fill = "poison", size = 3', "8: buffers[0].size is not a key here; allowed are name, dtype"),
        # params
        ("s = 3.0", 's = "3"', "14: params.s is '3'; it must be an integer of 64 bits or a real number"),
        ("s = 3.0", "s = nan", "14: params.s is nan"),
        ("s = 3.0", "s = 99999999999999999999", "14: params.s is 99999999999999999999"),
        ("s = 3.0", "s = 3.0\nsms = 8", "15: 'sms' cannot be a name; use letters"),
        ("s = 3.0", 's = 3.0\n"a-b" = 8', "15: 'a-b' cannot be a name"),
        # launch and expressions
        ("block = 256", "", "15: launch.block is missing; give the threads per CTA"),
        ("block = 256", "block = 2048", "16: launch.block '2048' is 2048, outside 1 to 1024"),
        ("block = 256", "block = true", "16: launch.block is True; it must be an integer or integer arithmetic in quotes"),
        ("block = 256", 'block = "s"', "16: launch.block 's' uses s = 3.0, but only flops and bytes may use a real"),
        ('"ceil_div(n, 256)"', '"ceil_div(m, 256)"', "17: launch.grid 'ceil_div(m, 256)' uses 'm'; known are n, occup"),
        ('"ceil_div(n, 256)"', '"n // (sms - sms)"', "17: launch.grid 'n // (sms - sms)' divides by zero"),
        ('"ceil_div(n, 256)"', '"n * n * n * n"', "17: launch.grid 'n * n * n * n' reaches a value that does not fit in 64 bits"),
        ('"ceil_div(n, 256)"', '"n / 256"', "17: launch.grid 'n / 256' uses /; write //"),
        ('"ceil_div(n, 256)"', "[]", "17: launch.grid has 0 dimensions; give one to three"),
        ('"ceil_div(n, 256)"', '[1, "n"]', "17: launch.grid 'n' is 1048576, outside 1 to 65535"),
        ('"ceil_div(n, 256)"', "8.0", "17: launch.grid is 8.0; it must be an integer or integer arithmetic in quotes"),
        ("block = 256", "block = 256\ncluster = 17", "17: launch.cluster '17' is 17, outside 1 to 16"),
        ("block = 256", "block = 256\ncluster = 3", "18: launch.grid 'ceil_div(n, 256)' is 4096, not a multiple of the cluster"),
        ("block = 256", "block = 256\nsmem = 999999", "17: launch.smem '999999' is 999999, outside 0 to 232448"),
        ("block = 256", "block = 256\nclusters = 2", "17: launch.clusters is not a key here (did you mean cluster?)"),
        ('flops = "2 * n"', 'flops = "n - 2 * n"', "20: work.flops 'n - 2 * n' is -1048576, outside 0 to"),
        ('flops = "2 * n"', 'flop = "2 * n"', "20: work.flop is not a key here (did you mean flops?); allowed are flops, bytes"),
        ("[work]", "[let]\nn = 4\n[work]", "19: the name 'n' is used twice"),
        ("[work]", "[let]\nt = \"u\"\nu = 1\n[work]", "19: let.t 'u' uses 'u'; known are n, occupancy, s, sms"),
        ("[work]", '[report]\nbuffer = "d"\nper = "n"\n[work]', "19: report.buffer is 'd'; allowed are a, b, c"),
        ("[work]", '[report]\nbuffer = "a"\nper = "hops"\n[work]', "20: report.per is 'hops'; allowed are n, occupancy, s, sms"),
        ("[work]", "[[variant]]\ncost = 1\n[work]", "18: variant[0].defines is missing; give the macros of this variant"),
        ("[work]", "[[variant]]\ndefines = { BM = 1.5 }\n[work]", "19: variant[0].defines.BM is 1.5; it must be an integer"),
        ("[work]", "[[variant]]\ndefines = {}\n[work]", "19: variant[0].defines is empty; give at least one macro"),
        ("[work]", "[[variant]]\ndefines = { n = 1 }\n[work]", "19: the name 'n' is used twice"),
    ],
)  # fmt: skip
def test_bad_front_matter_names_line_key_and_choices(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """Each mistake in an otherwise good file is refused at its own line, with what is allowed."""
    assert TRIAD.count(old) >= 1
    assert refusal(tmp_path, TRIAD.replace(old, new, 1), "triad.cu").startswith(f"triad.cu:{problem}")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "{ BM = 128, BN = 128 }",
            "{ BM = 128, BK = 64 }",
            "27: variant[1].defines must set the same macros as the first variant: BM, BN",
        ),
        ('cost    = "waves * BM * BN * 10"', "", "26: variant[1].cost is missing; the variant of lowest cost is used"),
        ('"waves * BM * BN * 10"', '"waves // (BN - 128)"', "28: variant[1].cost 'waves // (BN - 128)' divides by zero"),
        ("{ BM = 128, BN = 256 }", "{ BM = 128, WARPS = 256 }", "24: the name 'WARPS' is used twice"),
        ('"32 * WARPS"', '"32 * SCALAR"', "20: launch.block '32 * SCALAR' uses 'SCALAR'"),
    ],
)
def test_bad_variants(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """Variants must be comparable: the same macros, a cost each, and expressions that hold for every one of them."""
    assert TILED.count(old) == 1
    assert refusal(tmp_path, TILED.replace(old, new), "tiled.cu").startswith(f"tiled.cu:{problem}")


def test_an_unknown_reference_is_refused(tmp_path: Path) -> None:
    """`verify` names a reference of verify.py; "none" and leaving it out are the same."""
    text = refusal(tmp_path, TRIAD.replace("min_cc  = [8, 0]", 'verify = "triadd"'), "triad.cu")
    assert text.startswith("triad.cu:6: verify is 'triadd' (did you mean triad?); there are references for ")
    assert load_text(tmp_path, TRIAD.replace("min_cc  = [8, 0]", 'verify = "none"')).verify == ""
    assert load_text(tmp_path, TRIAD.replace("min_cc  = [8, 0]", 'verify = "triad"')).verify == "triad"


# The library


def test_library_reads_user_folders_after_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """User kernels join the built-in ones; the same name twice is refused with both files named."""
    built_in, own = tmp_path / "built_in", tmp_path / "own"
    built_in.mkdir()
    own.mkdir()
    (built_in / "triad.cu").write_text(TRIAD, encoding="utf-8")
    (built_in / "prelude.cuh").write_text("// nothing\n", encoding="utf-8")
    (own / "mine.cu").write_text(TRIAD, encoding="utf-8")
    monkeypatch.setattr(catalog, "kernels_dir", lambda: built_in)
    catalog.prelude_text.cache_clear()
    try:
        assert list(library([own])) == ["triad", "mine"]
        assert library()["triad"].prelude == "// nothing\n"
        (own / "triad.cu").write_text(TRIAD, encoding="utf-8")
        with pytest.raises(KernelFileError, match=r"kernel 'triad' is both .*built_in/triad\.cu and .*own/triad\.cu; rename"):
            library([own])
        with pytest.raises(KernelFileError, match=r"nowhere is not a folder"):
            library([tmp_path / "nowhere"])
        (tmp_path / "empty").mkdir()
        with pytest.raises(KernelFileError, match=r"empty holds no \.cu file"):
            library([tmp_path / "empty"])
    finally:
        catalog.prelude_text.cache_clear()


def test_data_is_found_in_the_package_then_in_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packaged data win; a folder beside the package counts only in a checkout, else it may be another package's."""
    package = tmp_path / "greenbench"
    package.mkdir()
    monkeypatch.setattr(catalog, "_PACKAGE", package)
    (tmp_path / "kernels").mkdir()
    with pytest.raises(UsageError, match=r"neither at .*_data/kernels nor at .*kernels; install greenbench again"):
        catalog.data_dir("kernels")
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    assert catalog.data_dir("kernels") == tmp_path / "kernels"
    (package / "_data" / "kernels").mkdir(parents=True)
    assert catalog.kernels_dir() == package / "_data" / "kernels"
    (package / "_data" / "sweeps").mkdir()
    assert catalog.sweeps_dir() == package / "_data" / "sweeps"
