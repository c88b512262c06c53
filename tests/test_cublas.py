"""Yardsticks of cuBLAS and cuBLASLt, without either: what is asked of the libraries, and that it is the product meant."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from greenbench import fills, verify
from greenbench.catalog import Kernel, load_kernel
from greenbench.errors import FailedError, KernelFileError, UnsupportedError
from greenbench.gpu import cublas, cublaslt
from greenbench.gpu.cublaslt_names import CLUSTERS, STAGES, tiles
from greenbench.gpu.gemm import COMPUTE_32F, COMPUTE_32F_FAST_TF32, NO_TRANSPOSE, TRANSPOSE, Gemm
from greenbench.gpu.yardstick import LibraryGemm
from tests.fake_blas import NOT_SUPPORTED, FakeCublas, FakeCublasLt

M, N, K = 5, 12, 7
FRONT = """/* greenbench
family = "gemm"
summary = "A product."
entry = "product"
args = ["a", "b", "c", "m", "n", "k"]
verify = "{verify}"
dtype = "{dtype}"
yardstick = "cublas"
buffers = [
    {{ name = "a", dtype = "{stored}", count = "m * k", fill = "normal" }},
    {{ name = "b", dtype = "{stored}", count = "k * n", fill = "normal" }},
    {{ name = "c", dtype = "{result}", count = "m * n", fill = "poison" }},
]
[params]
m = {m}
n = {n}
k = {k}
[launch]
block = 32
grid = 1
[work]
flops = "2 * m * n * k"
*/
extern "C" __global__ void product(const void* a, const void* b, void* c, int m, int n, int k) {{}}
"""
# What each kernel of the library is, as far as its yardsticks are concerned: reference, dtype, type of the operands and of C.
KINDS = {
    "gemm_bf16": ("gemm", "bfloat16", "bfloat16", "bfloat16"),
    "gemm_fp16": ("gemm", "float16", "float16", "float16"),
    "gemm_fp32": ("gemm", "float32", "float32", "float32"),
    "gemm_nt": ("gemm_nt", "bfloat16", "bfloat16", "bfloat16"),
    "gemm_tf32": ("gemm_tf32", "tf32", "tf32", "float32"),
    "gemm_fp8": ("gemm_fp8", "e4m3", "e4m3", "bfloat16"),
    "gemm_fp8_raw": ("gemm_fp8_raw", "e4m3", "e4m3", "bfloat16"),
}
WAYS = [(kind, way) for kind, values in KINDS.items() for way in ("cublas", "cublas_sms", "cublaslt") if values[1] != "e4m3"]
WAYS += [("gemm_fp8", "cublaslt"), ("gemm_fp8_raw", "cublaslt")]


def kernel_of(folder: Path, kind: str, text: str = FRONT) -> Kernel:
    """Return a kernel with the operands of one of the library."""
    reference, dtype, stored, result = KINDS[kind]
    path = folder / f"{kind}.cu"
    path.write_text(text.format(verify=reference, dtype=dtype, stored=stored, result=result, m=M, n=N, k=K), encoding="utf-8")
    return load_kernel(path, "")


class HostLane:
    """A lane as a library sees it."""

    sms = 32

    def __init__(self) -> None:
        self.stream = SimpleNamespace(handle=77)
        self.keeps: dict[str, Any] = {}

    def sync(self) -> None:
        """Nothing runs."""

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        """Make once."""
        if key not in self.keeps:
            self.keeps[key] = make()
        return self.keeps[key]


class HostArena:
    """Buffers in the host's memory: two sets of a kernel, filled as the device's are."""

    def __init__(self, kernel: Kernel) -> None:
        env = kernel.environment(kernel.params, sms=HostLane.sms)
        self.specs = kernel.operands
        self.pieces = [
            {
                spec.name: fills.fill(np, spec.fill, spec.dtype, int(spec.count.value(env)), 20 + place)
                for place, spec in enumerate(self.specs)
            }
            for _ in range(2)
        ]
        self.workspaces: list[int] = []

    def sets(self, kernel: Kernel, params: Any, env: Any) -> Any:
        """Return the sets."""
        return SimpleNamespace(
            count=2,
            pointers=lambda i: {name: array.ctypes.data for name, array in self.pieces[i].items()},
            written_bytes=1,
            working_set_bytes=2,
        )

    def workspace(self, size: int) -> int:
        """Return the address of the one workspace."""
        self.workspaces.append(size)
        return 4096

    def refill(self, sets: Any, wanted: Callable[[Any], bool]) -> None:
        """Fill what is wanted of the first set."""
        for spec in self.specs:
            if wanted(spec):
                self.pieces[0][spec.name].view(np.uint8)[:] = 0xFF

    def check(self, kernel: Kernel, sets: Any, params: Mapping[str, Any]) -> tuple[float, float, str]:
        """Compare the first set with the reference."""
        return verify.check(kernel.verify, np, self.pieces[0], params, {})


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Both libraries of the host, in place of those of a GPU."""
    found = {"cublas": FakeCublas(), "cublasLt": FakeCublasLt()}
    monkeypatch.setattr(cublas, "library", lambda name="cublas": found[name])
    # The driver's own errors, which need CUDA packages to be named, are not here.
    monkeypatch.setattr("greenbench.gpu.driver.translated", lambda what: nullcontext())
    return found


def work(kernel: Kernel, way: str, lane: HostLane | None = None, arena: HostArena | None = None) -> LibraryGemm:
    """Prepare one way of a kernel's yardstick on the host."""
    held: Any = arena or HostArena(kernel)
    probes: Any = None
    return LibraryGemm(None, lane or HostLane(), probes, held, kernel, dict(kernel.params), way)


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_every_way_computes_what_the_reference_says(kind: str, way: str, libraries: dict[str, Any], tmp_path: Path) -> None:
    """All sizes differ, so that a swapped dimension, stride or transpose gives another product: each passes its reference."""
    found = work(kernel_of(tmp_path, kind), way).verify()
    assert found.ok, found.detail
    assert found.error is not None
    assert found.error >= 0


@pytest.mark.parametrize(("kind", "way"), [("gemm_bf16", "cublas"), ("gemm_nt", "cublas"), ("gemm_nt", "cublaslt")])
def test_the_layout_of_b_matters(kind: str, way: str, libraries: dict[str, Any], tmp_path: Path) -> None:
    """The check above can fail: where all sizes are equal, the product of one layout is not what the other's reference says."""
    square = FRONT.replace("{m}", "8").replace("{n}", "8").replace("{k}", "8")
    kernel = kernel_of(tmp_path, kind, square)
    arena = HostArena(kernel)
    assert work(kernel, way, arena=arena).verify().ok
    other = "gemm" if kernel.verify == "gemm_nt" else "gemm_nt"
    error, tolerance, _ = verify.check(other, np, arena.pieces[0], dict(kernel.params), {})
    assert error > 10 * tolerance


@pytest.mark.parametrize(
    ("kind", "compute", "operation"),
    [
        ("gemm_bf16", COMPUTE_32F, NO_TRANSPOSE),
        ("gemm_fp32", COMPUTE_32F, NO_TRANSPOSE),
        ("gemm_tf32", COMPUTE_32F_FAST_TF32, TRANSPOSE),
        ("gemm_fp8", COMPUTE_32F, TRANSPOSE),
    ],
)
def test_how_a_product_is_asked_for(kind: str, compute: int, operation: int, tmp_path: Path) -> None:
    """float32 is not cut to tf32 where nobody asked for it; B as [n][k] is a transposed matrix of columns of length k."""
    kernel = kernel_of(tmp_path, kind)
    gemm = Gemm.of(kernel, dict(kernel.params))
    assert (gemm.compute, gemm.left.operation, gemm.right.operation) == (compute, operation, NO_TRANSPOSE)
    assert gemm.sizes == (N, M, K)
    assert (gemm.left.leading, gemm.right.leading, gemm.result.leading) == (K if operation else N, K, N)


def test_the_call_of_cublas_is_the_documented_one(libraries: dict[str, Any], tmp_path: Path) -> None:
    """cublasGemmEx(handle, T, N, n, m, k, 1, B, type, k, A, type, k, 0, C, type, n, compute, default algorithm) for tf32."""
    kernel = kernel_of(tmp_path, "gemm_tf32")
    arena = HostArena(kernel)
    work(kernel, "cublas", arena=arena).launch()
    (call,) = libraries["cublas"].named("cublasGemmEx")
    a, b, c = (arena.pieces[0][name].ctypes.data for name in "abc")
    assert call[1:6] == (1, 0, N, M, K)
    assert call[7:13] == (b, 0, K, a, 0, K)
    assert call[14:] == (c, 0, N, 77, -1)


def test_only_one_way_tells_cublas_of_the_partition(libraries: dict[str, Any], tmp_path: Path) -> None:
    """`cublas_sms` sets the target to the lane's SMs, on a handle of its own; `config` says which it was."""
    kernel, lane = kernel_of(tmp_path, "gemm_bf16"), HostLane()
    plain, targeted = work(kernel, "cublas", lane), work(kernel, "cublas_sms", lane)
    targets = libraries["cublas"].named("cublasSetSmCountTarget")
    assert (plain.config, targeted.config) == ("cublas", "cublas sm_count_target=32")
    assert [target for _, target in targets] == [32]
    plain.launch()
    targeted.launch()
    first, second = (call[0] for call in libraries["cublas"].named("cublasGemmEx"))
    assert second == targets[0][0] != first


def test_the_workspace_is_set_after_the_stream(libraries: dict[str, Any], tmp_path: Path) -> None:
    """cublasSetStream takes a workspace away, and without one of its own a captured product would allocate."""
    work(kernel_of(tmp_path, "gemm_bf16"), "cublas")
    names = [name for name, _ in libraries["cublas"].calls]
    assert names == ["cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2"]
    handle = libraries["cublas"].named("cublasSetStream_v2")[0][0]
    assert libraries["cublas"].named("cublasSetStream_v2") == [(handle, 77)]
    assert libraries["cublas"].named("cublasSetWorkspace_v2") == [(handle, 4096, cublas.WORKSPACE_BYTES)]


def test_a_lane_has_one_handle_for_all_its_products(libraries: dict[str, Any], tmp_path: Path) -> None:
    """cuBLAS takes device memory for each handle, so a sweep over kernels and params must not make one for each point."""
    lane, kernels = HostLane(), [kernel_of(tmp_path, kind) for kind in ("gemm_bf16", "gemm_fp16")]
    for kernel in kernels:
        for way in ("cublas", "cublas_sms", "cublaslt"):
            work(kernel, way, lane)
    assert len(libraries["cublas"].named("cublasCreate_v2")) == 2
    assert len(libraries["cublasLt"].named("cublasLtCreate")) == 1


@pytest.mark.parametrize("way", ["cublas", "cublas_sms", "cublaslt"])
def test_a_launch_is_one_call(way: str, libraries: dict[str, Any], tmp_path: Path) -> None:
    """All that is made or chosen is so before: what a graph captures is the product alone, on rotating sets or on the first."""
    kernel = kernel_of(tmp_path, "gemm_bf16")
    made = work(kernel, way)
    light = way == "cublaslt"
    library, name, place = (
        libraries["cublasLt" if light else "cublas"],
        "cublasLtMatmul" if light else "cublasGemmEx",
        10 if light else 14,
    )
    library.calls.clear()
    for _ in range(3):
        made.launch()
    made.rotate(False)
    for _ in range(2):
        made.launch()
    assert [called for called, _ in library.calls] == [name] * 5
    outputs = [call[place] for call in library.named(name)]
    assert outputs[0] == outputs[2] == outputs[3] == outputs[4] != outputs[1]


@pytest.mark.parametrize(("kind", "fast"), [("gemm_fp8", (0, 1)), ("gemm_fp8_raw", (1, 1)), ("gemm_bf16", None)])
def test_fast_accumulation_is_for_raw_sums_alone(kind: str, fast: Any, libraries: dict[str, Any], tmp_path: Path) -> None:
    """An int8_t: 0 where sums are promoted, 1 where the reference allows raw ones; nothing of it for other types."""
    work(kernel_of(tmp_path, kind), "cublaslt")
    (desc,) = [each for each in libraries["cublasLt"].descriptors.values() if "compute" in each]
    assert desc.get(cublaslt.DESC_FAST_ACCUM) == fast
    assert (desc["compute"], desc["scale"]) == (COMPUTE_32F, 0)


def test_cublaslt_runs_what_its_heuristic_names_first(libraries: dict[str, Any], tmp_path: Path) -> None:
    """One algorithm is asked for, with the workspace that there is, and launched with the same on the lane's stream."""
    work(kernel_of(tmp_path, "gemm_bf16"), "cublaslt").launch()
    library = libraries["cublasLt"]
    (preference,) = [number for number, what in library.alive.items() if what == "preference"]
    assert library.descriptors[preference] == {cublaslt.PREF_MAX_WORKSPACE_BYTES: (cublas.WORKSPACE_BYTES, 8)}
    (asked,) = library.named("cublasLtMatmulAlgoGetHeuristic")
    (ran,) = library.named("cublasLtMatmul")
    assert asked[1:6] == (ran[1], ran[4], ran[6], ran[9], ran[11])
    assert ran[13:] == (4096, cublas.WORKSPACE_BYTES, 77)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({0: 66, 1: 24, 2: 1, 6: 35, 8: 3}, "algorithm 66, tile 256x128, stages 64xauto, cluster 2x1, split-k 1"),
        ({0: 0, 1: 20, 2: 3, 6: 0, 8: 0}, "algorithm 0, tile 128x128, split-k 3"),
        ({0: 71, 1: 9999, 2: 1}, "algorithm 71, tile number 9999, split-k 1"),
    ],
)
def test_config_says_what_cublaslt_tells(config: dict[int, int], words: str, libraries: dict[str, Any], tmp_path: Path) -> None:
    """Names where the header has them, numbers where not, and nothing for what is undefined, automatic or not known to it."""
    libraries["cublasLt"].config = config
    assert work(kernel_of(tmp_path, "gemm_bf16"), "cublaslt").config == f"cublaslt first heuristic, {words}"


def test_names_of_tiles_stages_and_clusters() -> None:
    """Spots of cublasLt.h from each of the rules that make the lists; no name comes twice."""
    known = {1: "8x8", 23: "128x256", 35: "256x32", 36: "8x128", 116: "64x192", 311: "768x64", 312: "64x16", 513: "256x256"}
    assert {number: tiles()[number] for number in known} == known
    assert (tiles()[630], tiles()[634], len(tiles())) == ("768x80", "512x1024", len(set(tiles().values())))
    assert (STAGES[1], STAGES[24], STAGES[31], STAGES[38], len(set(STAGES.values()))) == ("16x1", "128x6", "8x3", "768xauto", 36)
    assert (CLUSTERS[2], CLUSTERS[16], CLUSTERS[51], len(set(CLUSTERS.values()))) == ("1x1", "1x16", "1x15", 50)


def test_a_product_that_cublaslt_does_not_know_is_unsupported(libraries: dict[str, Any], tmp_path: Path) -> None:
    """No algorithm, or a refusal, is no failure of the point: this device cannot do it."""
    kernel = kernel_of(tmp_path, "gemm_fp8")
    libraries["cublasLt"].found = 0
    with pytest.raises(UnsupportedError, match="cuBLASLt knows no algorithm"):
        work(kernel, "cublaslt")
    libraries["cublasLt"].fails["cublasLtMatmulAlgoGetHeuristic"] = NOT_SUPPORTED
    with pytest.raises(UnsupportedError, match=r"cublasLtMatmulAlgoGetHeuristic: cuBLAS status 15 \(not supported\)"):
        work(kernel, "cublaslt")


@pytest.mark.parametrize(
    ("call", "status", "error", "said"),
    [
        ("cublasCreate_v2", 3, FailedError, "out of memory: cublasCreate_v2: cuBLAS status 3"),
        ("cublasSetWorkspace_v2", 7, FailedError, r"cublasSetWorkspace_v2: cuBLAS status 7 \(invalid value\)"),
        ("cublasGemmEx", 8, UnsupportedError, "architecture mismatch"),
        ("cublasGemmEx", 99, FailedError, "status 99 .unknown."),
    ],
)
def test_a_status_is_an_outcome(
    call: str, status: int, error: type[Exception], said: str, libraries: dict[str, Any], tmp_path: Path
) -> None:
    """Every call's status is looked at, and said with the call's name."""
    libraries["cublas"].fails[call] = status
    with pytest.raises(error, match=said):
        work(kernel_of(tmp_path, "gemm_bf16"), "cublas").launch()


@pytest.mark.parametrize("module", [cublas, cublaslt])
def test_a_closed_handle_leaves_nothing(module: Any, libraries: dict[str, Any], tmp_path: Path) -> None:
    """Descriptors go first, then the handle, each once; closing twice is closing once."""
    lane = HostLane()
    for kind in ("gemm_bf16", "gemm_fp16"):
        work(kernel_of(tmp_path, kind), "cublas" if module is cublas else "cublaslt", lane)
    library = libraries["cublas" if module is cublas else "cublasLt"]
    assert library.alive
    (handle,) = lane.keeps.values()
    handle.close()
    handle.close()
    assert library.alive == {}


def test_a_file_without_three_operands_is_told_so(libraries: dict[str, Any], tmp_path: Path) -> None:
    """A user's kernel that names the yardstick and is no product of A and B: the sentence says what is needed."""
    path = tmp_path / "odd.cu"
    text = (
        FRONT.replace("*/", "")
        .replace('yardstick = "cublas"', "")
        .replace('verify = "{verify}"', "")
        .replace("[params]\nm = {m}", "[params]\nrows = {m}")
    )
    text = text.replace('"m"', '"rows"').replace("m * ", "rows * ").replace("int m", "int rows").replace("{{}}", "{{}}")
    text = text.replace('extern "C"', '*/\nextern "C"')
    path.write_text(text.format(dtype="float32", stored="float32", result="float32", m=M, n=N, k=K), encoding="utf-8")
    with pytest.raises(KernelFileError, match=r"odd.cu: the cublas yardstick needs params m, n and k"):
        work(replace(load_kernel(path, ""), yardstick="cublas"), "cublas")


def test_types_that_no_library_multiplies_are_unsupported(libraries: dict[str, Any], tmp_path: Path) -> None:
    """float64 has no place among these yardsticks: said with the types of the kernel."""
    path = tmp_path / "double.cu"
    text = FRONT.format(verify="none", dtype="float64", stored="float64", result="float64", m=M, n=N, k=K)
    path.write_text(text.replace('yardstick = "cublas"', ""), encoding="utf-8")
    with pytest.raises(UnsupportedError, match="double has float64, float64, float64"):
        work(replace(load_kernel(path, ""), yardstick="cublas"), "cublas")


def test_the_structures_have_the_sizes_of_the_header() -> None:
    """cublasLtMatmulAlgo_t is eight words of 64 bits; the heuristic's result is that, a size, a status, a float, four ints."""
    assert ctypes.sizeof(cublaslt.Algorithm) == 64
    assert ctypes.sizeof(cublaslt.Found) == 96
    assert (cublaslt.Found.workspace_bytes.offset, cublaslt.Found.state.offset, cublaslt.Found.waves.offset) == (64, 72, 76)


def test_the_real_library_takes_these_descriptors() -> None:
    """Where libcublasLt is installed (no GPU is needed): attributes are set in sizes that it accepts, and read back as set."""
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="comes with cuda-core")
    try:
        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("libcublasLt is not installed")
    library = ctypes.CDLL(path)
    size, desc, read = ctypes.c_size_t, ctypes.c_void_p(), ctypes.c_size_t()
    assert library.cublasLtMatmulDescCreate(ctypes.byref(desc), COMPUTE_32F_FAST_TF32, 0) == 0
    for attribute, value in (
        (cublaslt.DESC_TRANSA, ctypes.c_int32(TRANSPOSE)),
        (cublaslt.DESC_TRANSB, ctypes.c_int32(NO_TRANSPOSE)),
        (cublaslt.DESC_FAST_ACCUM, ctypes.c_int8(1)),
    ):
        width = size(ctypes.sizeof(value))
        assert library.cublasLtMatmulDescSetAttribute(desc, attribute, ctypes.byref(value), width) == 0
        back = type(value)(9)
        assert library.cublasLtMatmulDescGetAttribute(desc, attribute, ctypes.byref(back), width, ctypes.byref(read)) == 0
        assert (back.value, read.value) == (value.value, width.value)
    assert library.cublasLtMatmulDescDestroy(desc) == 0
    layout, preference = ctypes.c_void_p(), ctypes.c_void_p()
    matrix = (ctypes.c_uint64(N), ctypes.c_uint64(M), ctypes.c_int64(2**33))
    assert library.cublasLtMatrixLayoutCreate(ctypes.byref(layout), 28, *matrix) == 0
    for attribute, wanted in ((2, N), (3, M), (4, 2**33)):
        found = ctypes.c_int64()
        assert library.cublasLtMatrixLayoutGetAttribute(layout, attribute, ctypes.byref(found), size(8), ctypes.byref(read)) == 0
        assert found.value == wanted
    assert library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)) == 0
    most = ctypes.c_uint64(cublas.WORKSPACE_BYTES)
    setter = library.cublasLtMatmulPreferenceSetAttribute
    assert setter(preference, cublaslt.PREF_MAX_WORKSPACE_BYTES, ctypes.byref(most), size(8)) == 0
    assert library.cublasLtMatmulPreferenceDestroy(preference) == library.cublasLtMatrixLayoutDestroy(layout) == 0
