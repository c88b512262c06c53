"""Tensor maps and the raw launch, against the real bindings with the two calls that need a driver replaced."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from greenbench.bufferspec import DTYPE_BYTES, BufferSpec, TensorMap
from greenbench.catalog import kernels_dir, load_kernel
from greenbench.errors import FailedError, KernelFileError, StickyError
from greenbench.expr import parse
from greenbench.gpu import driver, tensormap
from greenbench.gpu.tensormap import MAP_TYPES, MappedWork, RawLaunch, by_address, encode
from greenbench.gpu.work import Shape

raw = pytest.importorskip("cuda.bindings.driver", reason="the bindings come with the dev extra")


class Recorder:
    """The bindings, but what would reach a driver is noted and answered with `code`."""

    def __init__(self) -> None:
        self.encoded: list[tuple[Any, ...]] = []
        self.launched: list[dict[str, Any]] = []
        self.code = raw.CUresult.CUDA_SUCCESS

    def __getattr__(self, name: str) -> Any:
        return getattr(raw, name)

    def cuTensorMapEncodeTiled(self, *given: Any) -> tuple[Any, Any]:
        """Note the arguments; the map that is returned names its call in the first word."""
        self.encoded.append(given)
        made = raw.CUtensorMap()
        made.opaque = [len(self.encoded), *[0] * 15]
        return self.code, made

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, extra: int) -> tuple[Any]:
        """Note the configuration, and the parameters as a driver would read them: through the table of addresses."""
        clusters = [each.value.clusterDim.x for each in config.attrs[: config.numAttrs]]
        self.launched.append(
            {
                "grid": (config.gridDimX, config.gridDimY, config.gridDimZ),
                "block": (config.blockDimX, config.blockDimY, config.blockDimZ),
                "smem": config.sharedMemBytes,
                "stream": int(config.hStream),
                "function": int(function),
                "clusters": clusters,
                "words": [
                    ctypes.c_uint64.from_address(ctypes.c_uint64.from_address(parameters + 8 * i).value).value for i in range(8)
                ],
                "extra": extra,
            }
        )
        return (self.code,)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Put the recorder in the place of the bindings."""
    recorder = Recorder()
    monkeypatch.setattr(driver, "bindings", lambda: recorder)
    return recorder


def spec(dtype: str, shape: list[int], box: list[int], swizzle: int = 0, promotion: int = 0) -> BufferSpec:
    """Return a buffer with a tensor map."""
    sizes = tuple(parse(size, ()) for size in shape)
    chosen = TensorMap(tuple(parse(size, ()) for size in box), swizzle, promotion)
    return BufferSpec("a", dtype, parse(1, ()), "normal", "in", sizes, chosen)


def test_every_type_of_a_buffer_can_be_mapped() -> None:
    """A dtype that front matter allows is one that the driver knows, of the same size."""
    assert set(MAP_TYPES) == set(DTYPE_BYTES)
    assert all(hasattr(raw.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}") for name in MAP_TYPES.values())
    assert MAP_TYPES["e4m3"] == "UINT8"


def test_a_map_is_encoded_innermost_first(calls: Recorder) -> None:
    """Sizes and strides turn round, strides are bytes without that of the innermost, and the words are the driver's."""
    encode(spec("bfloat16", [4096, 520], [64, 128], 128, 256), {}, 0x7000)
    encode(spec("float32", [3, 5, 8], [8, 5, 3]), {}, 0x8000)
    encode(spec("uint8", [4096], [128], 32, 64), {}, 0x9000)
    matrix, cube, line = calls.encoded
    names = [str(getattr(each, "name", "")) for each in matrix]
    assert names[0] == "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16"
    assert names[7:] == [
        "CU_TENSOR_MAP_INTERLEAVE_NONE",
        "CU_TENSOR_MAP_SWIZZLE_128B",
        "CU_TENSOR_MAP_L2_PROMOTION_L2_256B",
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
    ]
    assert matrix[1:3] == (2, 0x7000)
    assert [[int(each) for each in part] for part in matrix[3:7]] == [[520, 4096], [1040], [64, 128], [1, 1]]
    assert [[int(each) for each in part] for part in cube[3:7]] == [[8, 5, 3], [32, 160], [8, 5, 3], [1, 1, 1]]
    assert [each.name for each in cube[8:10]] == ["CU_TENSOR_MAP_SWIZZLE_NONE", "CU_TENSOR_MAP_L2_PROMOTION_NONE"]
    assert [[int(each) for each in part] for part in line[3:7]] == [[4096], [], [128], [1]]
    assert [each.name for each in line[8:10]] == ["CU_TENSOR_MAP_SWIZZLE_32B", "CU_TENSOR_MAP_L2_PROMOTION_L2_64B"]


def test_a_refused_map_says_which(calls: Recorder) -> None:
    """What the driver refuses fails the point with buffer, sizes and box."""
    calls.code = raw.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(
        FailedError, match=r"^encoding the tensor map of a, \[520, 4096\] in boxes of \[64, 128\]: CUDA_ERROR_INV"
    ):
        encode(spec("bfloat16", [4096, 520], [64, 128]), {}, 0x7000)


def launcher(*, cluster: int = 1, required: int = 0, stream: Any = None) -> RawLaunch:
    """Return a launch of a kernel, whose source may demand a cluster."""
    loaded = SimpleNamespace(handle=raw.CUkernel(0xABC), attributes=SimpleNamespace(required_cluster_width=required))
    return RawLaunch(loaded, Shape(None, (6, 2), 384, 229440, cluster, 1), stream or Stream(0x10), "launching k")


class Stream:
    """A stream, or what a graph builder captures."""

    def __init__(self, address: int) -> None:
        self.handle = raw.CUstream(address)


def test_a_launch_passes_everything_by_address(calls: Recorder) -> None:
    """The driver finds each argument behind the table, maps included, and they live as long as the arguments do."""
    made = raw.CUtensorMap()
    made.opaque = [77, *[0] * 15]
    packed = (made, np.uint64(0x5000), np.int64(-3), np.float32(1.5), *(np.int64(i) for i in range(4)))
    arguments = by_address(packed)
    del made, packed
    stream = Stream(0x10)
    launcher(stream=stream)(stream, arguments)
    (seen,) = calls.launched
    words = seen.pop("words")
    assert (words[0], words[1], words[2], words[4:]) == (77, 0x5000, 2**64 - 3, [0, 1, 2, 3])
    assert np.uint32(words[3] & 0xFFFFFFFF).view(np.float32) == 1.5
    assert seen == {
        **{"grid": (6, 2, 1), "block": (384, 1, 1), "smem": 229440, "stream": 0x10},
        **{"function": 0xABC, "clusters": [], "extra": 0},
    }


def test_a_launch_goes_to_the_stream_or_into_the_graph(calls: Recorder) -> None:
    """On the lane's own stream the configuration is made once; a builder's stream is the one that captures."""
    stream, packed = Stream(0x10), tuple(np.int64(i) for i in range(8))
    launch, arguments = launcher(stream=stream), by_address(packed)
    builder = SimpleNamespace(stream=Stream(0x20))
    for target in (stream, builder, stream):
        launch(target, arguments)
    assert [each["stream"] for each in calls.launched] == [0x10, 0x20, 0x10]


@pytest.mark.parametrize(("cluster", "required", "asked"), [(1, 0, []), (2, 2, []), (2, 0, [2])])
def test_clusters_are_asked_for_unless_the_source_has_them(
    calls: Recorder, cluster: int, required: int, asked: list[int]
) -> None:
    """__cluster_dims__ in the source is enough; without it the launch carries the attribute."""
    stream = Stream(0x10)
    launcher(cluster=cluster, required=required, stream=stream)(stream, by_address([np.int64(0)] * 8))
    assert calls.launched[0]["clusters"] == asked


def test_a_failed_launch_is_an_outcome(calls: Recorder) -> None:
    """The driver's code becomes the error of the point, sticky where the context is lost."""
    calls.code = raw.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    stream = Stream(0x10)
    with pytest.raises(StickyError, match="^launching k: CUDA_ERROR_ILLEGAL_ADDRESS"):
        launcher(stream=stream)(stream, by_address([np.int64(0)] * 8))


class Memory:
    """Device memory, as far as an address goes."""

    def __init__(self, address: int) -> None:
        self.data = SimpleNamespace(ptr=address)


class Arena:
    """Two buffer sets 4 KiB apart, and scratch memory that they share."""

    def sets(self, kernel: Any, params: Any, env: Any) -> Any:
        """Return the sets."""
        place = {spec.name: index for index, spec in enumerate(kernel.operands)}
        pointers = [{name: 0x10000 * (1 + at) + 0x1000 * i for name, at in place.items()} for i in range(2)]
        return SimpleNamespace(count=2, pointers=pointers.__getitem__, working_set_bytes=1, written_bytes=1)

    def scratch(self, kernel: Any, env: Any) -> dict[str, Memory]:
        """Return one piece of memory per scratch buffer."""
        return {spec.name: Memory(0xF0000 + index) for index, spec in enumerate(kernel.scratch)}


def test_the_gemm_of_hopper_rotates_over_maps(calls: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each buffer set has maps of its own, scratch memory is the same in all, and m, n, k arrive as 64-bit integers."""
    kernel = load_kernel(kernels_dir() / "gemm_bf16.sm_90a.cu")
    params = {"m": 1000, "n": 1016, "k": 520}
    variant = kernel.variants[1]
    occupancy = SimpleNamespace(
        max_active_blocks_per_multiprocessor=lambda block, smem: 1, max_active_clusters=lambda config, stream: 4
    )
    loaded = SimpleNamespace(
        handle=raw.CUkernel(0xABC),
        attributes=SimpleNamespace(required_cluster_width=2),
        occupancy=occupancy,
        arguments_info=[SimpleNamespace(size=size) for size in (128, 128, 128, 8, 8, 8, 8, 8)],
    )
    host = SimpleNamespace(stream=Stream(0x10), sms=9, sync=lambda: None)
    core = SimpleNamespace(LaunchConfig=lambda **given: given)
    monkeypatch.setattr("greenbench.gpu.probes.allow_shared_memory", lambda loaded, size: None)
    work = MappedWork(core, host, None, Arena(), kernel, params, loaded, variant)
    assert [[int(each) for each in call[3]] for call in calls.encoded[:3]] == [[520, 1000], [1016, 520], [1016, 1000]]
    assert [[int(each) for each in call[5]] for call in calls.encoded[:3]] == [[64, 128], [64, 64], [64, 64]]
    assert [call[2] for call in calls.encoded] == [0x10000, 0x20000, 0x30000, 0x11000, 0x21000, 0x31000]
    assert (work.config, work.grid, work.ctas_per_sm) == ("sm_90a-BN256_STAGES4_CLUSTER2", 8, 1)
    for _ in range(3):
        work.launch()
    assert [each["words"] for each in calls.launched] == [
        [maps, maps + 1, maps + 2, 0xF0000, 0xF0001, 1000, 1016, 520] for maps in (1, 4, 1)
    ]
    assert {(each["grid"], each["smem"]) for each in calls.launched} == {((8, 1, 1), 229440)}
    work.rotate(False)
    work.launch()
    work.launch()
    assert [each["words"][0] for each in calls.launched[3:]] == [1, 1]
    loaded.arguments_info[0].size = 8
    with pytest.raises(KernelFileError, match=r"args says `a` is a buffer, but that parameter of `gemm_bf16` has 8 bytes"):
        MappedWork(core, host, None, Arena(), kernel, params, loaded, kernel.variants[2])


@pytest.mark.parametrize(
    ("file", "types", "boxes"),
    [
        ("gemm_fp16.sm_90a", ["FLOAT16"] * 3, ([64, 128], [64, 64], [64, 64])),
        ("gemm_tf32.sm_90a", ["FLOAT32"] * 3, ([32, 128], [32, "share"], [32, 64])),
        ("gemm_fp8.sm_90a", ["UINT8", "UINT8", "BFLOAT16"], ([128, 128], [128, "share"], [64, 64])),
        ("gemm_fp8_raw", ["UINT8", "UINT8", "BFLOAT16"], ([128, 128], [128, "share"], [64, 64])),
    ],
)
def test_the_other_gemms_of_hopper_fetch_128_bytes_of_a_row(
    calls: Recorder, file: str, types: list[str], boxes: tuple[list[Any], ...]
) -> None:
    """Whatever the type, a box is as wide as the swizzle; a CTA's share of the columns of B[n][k] is one box."""
    kernel = load_kernel(kernels_dir() / f"{file}.cu")
    for variant in kernel.variants:
        env = kernel.environment({"m": 1000, "n": 1016, "k": 528}, sms=8, variant=variant)
        share = int(env["BN"]) // int(env["CLUSTER"])
        for operand in kernel.operands:
            encode(operand, env, 0x10000)
        made = calls.encoded[-3:]
        assert [each[0].name.rpartition("_")[2] for each in made] == types
        assert [[int(size) for size in each[5]] for each in made] == [
            [share if x == "share" else x for x in box] for box in boxes
        ]


def test_the_module_is_imported_without_cuda() -> None:
    """What a lane imports must not load a driver's package by itself."""
    text = Path(tensormap.__file__).read_text(encoding="utf-8")
    assert "import cuda" not in text
    assert "from cuda" not in text
