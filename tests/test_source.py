"""What is told of CUDA C++ without a compiler: comments, signatures, included headers."""

from __future__ import annotations

from pathlib import Path

from greenbench.catalog import Kernel, load_kernel
from greenbench.source import Kind, definitions, foreign_headers, global_names, includes, own_headers, strip_comments

DATA = Path(__file__).parent / "data" / "kernels"
TRIAD = (DATA / "triad.cu").read_text(encoding="utf-8")


def load_text(folder: Path, source: str) -> Kernel:
    """Write a kernel file and read it."""
    (folder / "k.cu").write_text(source, encoding="utf-8")
    return load_kernel(folder / "k.cu", prelude="")


def test_comments_are_blanked_and_literals_kept() -> None:
    """Line numbers survive, and comment marks inside literals are no comments."""
    source = 'a; // x\nconst char* s = "// no /* no */"; /* y\nz */ b; \'"\'; // "\n'
    assert strip_comments(source).splitlines() == ["a;     ", 'const char* s = "// no /* no */";     ', "     b; '\"';     "]


SOURCES = """
template <typename T> __device__ T twice(T x) { return 2 * x; }
__global__ void __launch_bounds__(256, 2) plain(int n) {}
extern "C" __global__ void __launch_bounds__(MAX(32, 64))
    wide(const __grid_constant__ CUtensorMap map, float (*table)[4], u32 count, unsigned long long m,
         double scale = twice<float, 3>(1), const half x[8], float) {
  plain(1); wide(2);
}
extern "C" __global__ void nothing(void) {}
void wide(int not_a_kernel);
"""


def test_signatures_are_read_from_text() -> None:
    """Attributes, defaults, arrays, typedefs and templates in a parameter list do not mislead the reader."""
    (wide,) = definitions(SOURCES, "wide")
    assert [(parameter.name, parameter.kind) for parameter in wide.parameters] == [
        ("map", Kind.TENSOR_MAP),
        ("table", Kind.POINTER),
        ("count", Kind.UNKNOWN),
        ("m", Kind.INTEGER),
        ("scale", Kind.REAL),
        ("x", Kind.POINTER),
        ("float", Kind.REAL),
    ]
    assert wide.extern_c
    assert [definition.parameters for definition in definitions(SOURCES, "nothing")] == [()]
    assert not definitions(SOURCES, "plain")[0].extern_c
    assert definitions(SOURCES, "twice") == []
    assert definitions('extern "C" __global__ void cut(int a, int', "cut") == []
    assert definitions('extern "C" {\n__global__ void inside(int* p) {}\n}', "inside")[0].extern_c
    assert global_names(SOURCES) == ("plain", "wide", "nothing")


def test_macros_and_conditionals_are_left_to_the_compiler(tmp_path: Path) -> None:
    """A kernel that a macro defines cannot be checked as text; of several definitions one must fit."""
    head, _, body = TRIAD.partition("*/")
    assert load_text(tmp_path, f"{head}*/\nDEFINE(triad)\n").entry == "triad"
    other = '#if X\nextern "C" __global__ void triad(int* a) {}\n#else'
    assert load_text(tmp_path, f"{head}*/\n{other}\n{body}#endif\n").args == ("a", "b", "c", "s", "n")


def test_includes_and_own_headers(tmp_path: Path) -> None:
    """Headers beside the file and in `include` folders are found with what they include; the toolkit's are not ours."""
    (tmp_path / "far").mkdir()
    (tmp_path / "near.cuh").write_text('#include "near.cuh"\n#include <far.cuh>\n#define NEAR\n', encoding="utf-8")
    (tmp_path / "far" / "far.cuh").write_text("#define FAR\n", encoding="utf-8")
    code = strip_comments('#include <cuda_fp16.h>\n  #  include "near.cuh"\n// #include "gone.h"\n/*\n#include "gone.h"\n*/')
    assert includes(code) == (("cuda_fp16.h", False), ("near.cuh", True))
    assert len(own_headers(tmp_path / "k.cu", code, [])) == 1
    assert len(own_headers(tmp_path / "k.cu", code, ["far"])) == 2
    assert foreign_headers(tmp_path / "k.cu", code, []) == ("cuda_fp16.h", "far.cuh")
    assert foreign_headers(tmp_path / "k.cu", code, ["far"]) == ("cuda_fp16.h",)
    templated = load_kernel(DATA / "good" / "templated.cu", prelude="")
    assert (templated.headers, templated.toolkit_headers) == (("own/factor.cuh",), ())
    assert templated.is_name_expression
