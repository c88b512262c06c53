"""Kernels that take tensor maps: the driver encodes one per buffer and set, and a launch of our own passes them by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from greenbench.catalog import DTYPE_BYTES, BufferSpec
from greenbench.gpu import driver
from greenbench.gpu.work import KernelWork, Shape, pack

# TMA moves eight-bit floats as bytes, and what is tf32 already needs no rounding.
MAP_TYPES: Mapping[str, str] = {name: name.upper() for name in DTYPE_BYTES} | {"e4m3": "UINT8", "tf32": "FLOAT32"}


def encode(spec: BufferSpec, env: Mapping[str, int | float], address: int) -> Any:
    """Return the CUtensorMap of one buffer at `address`; what lies outside the matrix reads as zero and is not written."""
    assumed = spec.tensor_map
    if assumed is None:
        raise ValueError(f"buffer {spec.name} has no tensor map")
    raw = driver.bindings()
    # The driver wants the innermost dimension first, and the bytes from one row to the next, one plane to the next.
    sizes = [int(extent.value(env)) for extent in reversed(spec.shape)]
    strides = list(accumulate(sizes[:-1], mul, initial=DTYPE_BYTES[spec.dtype]))[1:]
    box = [int(size.value(env)) for size in assumed.box]
    answer = raw.cuTensorMapEncodeTiled(
        getattr(raw.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{MAP_TYPES[spec.dtype]}"),
        len(sizes),
        address,
        [raw.cuuint64_t(size) for size in sizes],
        [raw.cuuint64_t(stride) for stride in strides],
        [raw.cuuint32_t(size) for size in box],
        [raw.cuuint32_t(1)] * len(sizes),
        raw.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        _named(raw.CUtensorMapSwizzle, "CU_TENSOR_MAP_SWIZZLE_", "", assumed.swizzle),
        _named(raw.CUtensorMapL2promotion, "CU_TENSOR_MAP_L2_PROMOTION_", "L2_", assumed.l2_promotion),
        raw.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return driver.checked(answer, f"encoding the tensor map of {spec.name}, {sizes} in boxes of {box}")


def _named(words: Any, prefix: str, kind: str, size: int) -> Any:
    return getattr(words, f"{prefix}{kind}{size}B" if size else f"{prefix}NONE")


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a launch as the driver takes them: the address of a table of addresses, and what must stay alive behind it."""

    address: int
    table: Any
    values: tuple[Any, ...]


def by_address(packed: Sequence[Any]) -> Arguments:
    """Lay out what `pack` returned: numpy scalars, and tensor maps."""
    values = tuple(np.array([each]) if isinstance(each, np.generic) else each for each in packed)
    places = [each.ctypes.data if isinstance(each, np.ndarray) else int(each.getPtr()) for each in values]
    table = np.array(places, dtype=np.uint64)
    return Arguments(int(table.ctypes.data), table, values)


class RawLaunch:
    """cuLaunchKernelEx with everything prepared: cuda.core's launch has no argument of 128 bytes but its own descriptors."""

    def __init__(self, loaded: Any, shape: Shape, stream: Any, what: str) -> None:
        self._raw = driver.bindings()
        self._call = self._raw.cuLaunchKernelEx
        self._function = self._raw.CUfunction(int(loaded.handle))
        self._shape, self._stream, self._what = shape, stream, what
        # A kernel with __cluster_dims__ brings its cluster along.
        self._cluster = shape.cluster if shape.cluster > 1 and not loaded.attributes.required_cluster_width else 1
        self._config = self._configured(stream)

    def __call__(self, target: Any, arguments: Arguments) -> None:
        """Enqueue one launch on the lane's stream, or capture it into a graph builder."""
        config = self._config if target is self._stream else self._configured(target.stream)
        (code,) = self._call(config, self._function, arguments.address, 0)
        if int(code):
            driver.checked((code,), self._what)

    def _configured(self, stream: Any) -> Any:
        raw, shape = self._raw, self._shape
        config = raw.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (*shape.dims, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = shape.block, 1, 1
        config.sharedMemBytes = shape.smem
        config.hStream = raw.CUstream(int(stream.handle))
        config.numAttrs = 0
        if self._cluster > 1:
            attribute = raw.CUlaunchAttribute()
            attribute.id = raw.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = self._cluster, 1, 1
            config.attrs, config.numAttrs = [attribute], 1
        return config


class MappedWork(KernelWork):
    """A kernel on one lane, some of whose buffers are passed as tensor maps."""

    def __init__(self, *given: Any) -> None:
        self._launch: RawLaunch | None = None
        super().__init__(*given)

    def _packed(self, index: int, env: Mapping[str, int | float]) -> Arguments:
        addresses = self._addresses(index)
        maps = {spec.name: encode(spec, env, addresses[spec.name]) for spec in self._kernel.operands if spec.tensor_map}
        return by_address(pack(self._kernel, self._loaded, self._params, addresses | maps))

    def _start(self, target: Any, arguments: Arguments) -> None:
        if self._launch is None:
            self._launch = RawLaunch(self._loaded, self._shape, self._host.stream, f"launching {self._kernel.name}")
        self._launch(target, arguments)


__all__ = ["MappedWork", "RawLaunch", "by_address", "encode"]
