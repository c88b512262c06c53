"""The few cuBLASLt calls that yardsticks need: a product is described once, and the heuristic's first algorithm kept for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from greenbench.errors import PointError, UnsupportedError
from greenbench.gpu import cublas
from greenbench.gpu.cublaslt_names import CLUSTERS, STAGES, tiles
from greenbench.gpu.gemm import DATA_TYPES, Gemm, Matrix

# Attributes of cublasLt.h, the same from CUDA 12 to 13: of a product, of a preference, and of an algorithm.
DESC_TRANSA, DESC_TRANSB, DESC_FAST_ACCUM = 3, 4, 25
PREF_MAX_WORKSPACE_BYTES = 1
CONFIG_ID, CONFIG_TILE_ID, CONFIG_SPLITK_NUM, CONFIG_STAGES_ID, CONFIG_CLUSTER_SHAPE_ID = 0, 1, 2, 6, 8


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: opaque, and kept by value."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Handle:
    """A cuBLASLt handle for one stream and workspace, with the products that were planned on it."""

    def __init__(self, stream: Any, workspace: int) -> None:
        self._library = cublas.library("cublasLt")
        self._stream, self._workspace = ctypes.c_void_p(int(stream.handle)), ctypes.c_void_p(workspace)
        self._handle = ctypes.c_void_p()
        self._descriptors: list[tuple[str, ctypes.c_void_p]] = []
        self._planned: dict[Gemm, Planned] = {}
        self.call("Create", ctypes.byref(self._handle))
        self._preference = self.made("MatmulPreference")
        self.set("MatmulPreference", self._preference, PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64(cublas.WORKSPACE_BYTES))

    def call(self, name: str, *arguments: object) -> None:
        """Call cublasLtNAME and raise what its status means."""
        cublas.checked(f"cublasLt{name}", getattr(self._library, f"cublasLt{name}")(*arguments))

    def made(self, what: str, *arguments: object) -> ctypes.c_void_p:
        """Return a new descriptor, which lives as long as the handle."""
        descriptor = ctypes.c_void_p()
        self.call(f"{what}Create", ctypes.byref(descriptor), *arguments)
        self._descriptors.append((what, descriptor))
        return descriptor

    def set(self, what: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of a descriptor."""
        self.call(f"{what}SetAttribute", descriptor, attribute, *_sized(value))

    def planned(self, gemm: Gemm) -> Planned:
        """Return a product with its algorithm, chosen at the first time of asking."""
        if gemm not in self._planned:
            self._planned[gemm] = Planned(self, gemm)
        return self._planned[gemm]

    def first(self, operation: ctypes.c_void_p, layouts: tuple[ctypes.c_void_p, ...]) -> Algorithm:
        """Return what the heuristic names first; raises UnsupportedError if nothing."""
        found, count = Found(), ctypes.c_int()
        self.call(
            "MatmulAlgoGetHeuristic",
            *(self._handle, operation, *layouts, self._preference, 1, ctypes.byref(found), ctypes.byref(count)),
        )
        if not count.value:
            raise UnsupportedError("cuBLASLt knows no algorithm for this product on this device")
        cublas.checked("cublasLtMatmulAlgoGetHeuristic", found.state)
        algorithm: Algorithm = found.algorithm
        return algorithm

    def matmul(self, operation: ctypes.c_void_p, operands: tuple[object, ...], algorithm: Algorithm) -> Callable[[], None]:
        """Return what enqueues a product on the stream."""
        size = ctypes.c_size_t(cublas.WORKSPACE_BYTES)
        arguments = (self._handle, operation, *operands, ctypes.byref(algorithm), self._workspace, size, self._stream)
        return lambda: self.call("Matmul", *arguments)

    def close(self) -> None:
        """Destroy all descriptors, then the handle."""
        for what, descriptor in reversed(self._descriptors):
            self.call(f"{what}Destroy", descriptor)
        self._descriptors.clear()
        if self._handle:
            self.call("Destroy", self._handle)
            self._handle = ctypes.c_void_p()


class Planned:
    """One product with its descriptors and its algorithm: nothing is left to be made or chosen while a graph is captured."""

    def __init__(self, handle: Handle, gemm: Gemm) -> None:
        self._handle = handle
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._operation = handle.made("MatmulDesc", gemm.compute, DATA_TYPES["float32"])
        handle.set("MatmulDesc", self._operation, DESC_TRANSA, ctypes.c_int32(gemm.left.operation))
        handle.set("MatmulDesc", self._operation, DESC_TRANSB, ctypes.c_int32(gemm.right.operation))
        if gemm.eight_bit:
            # Scales that are not given are 1.
            handle.set("MatmulDesc", self._operation, DESC_FAST_ACCUM, ctypes.c_int8(gemm.fast_accumulation))
        self._left, self._right, self._result = (self._layout(matrix) for matrix in (gemm.left, gemm.right, gemm.result))
        # What would be added to the product is said to lie where it goes; with beta = 0 it is not read.
        layouts = (self._left, self._right, self._result, self._result)
        self._algorithm = handle.first(self._operation, layouts)

    def _layout(self, matrix: Matrix) -> ctypes.c_void_p:
        sizes = (ctypes.c_uint64(matrix.rows), ctypes.c_uint64(matrix.columns), ctypes.c_int64(matrix.leading))
        return self._handle.made("MatrixLayout", matrix.data_type, *sizes)

    def bound(self, a: int, b: int, c: int) -> Callable[[], None]:
        """Return what enqueues the product of the matrices at these addresses."""
        product = (ctypes.byref(self._one), ctypes.c_void_p(b), self._left, ctypes.c_void_p(a), self._right)
        into = (ctypes.c_void_p(c), self._result)
        return self._handle.matmul(self._operation, (*product, ctypes.byref(self._zero), *into, *into), self._algorithm)

    @property
    def words(self) -> str:
        """Return what cuBLASLt says of the algorithm; numbers that its header does not name stay numbers."""
        said = (
            ("tile", self._said(CONFIG_TILE_ID, ctypes.c_uint32()), tiles()),
            ("stages", self._said(CONFIG_STAGES_ID, ctypes.c_uint32()), STAGES),
            ("cluster", self._said(CONFIG_CLUSTER_SHAPE_ID, ctypes.c_uint16()), CLUSTERS),
            ("split-k", splits := self._said(CONFIG_SPLITK_NUM, ctypes.c_int32()), {splits: str(splits)}),
        )
        # 0 stands for what the kernel decides by itself.
        parts = (f"{word} {names.get(value, f'number {value}')}" for word, value, names in said if value)
        return ", ".join((f"algorithm {self._said(CONFIG_ID, ctypes.c_int32())}", *parts))

    def _said(self, attribute: int, value: Any) -> int:
        """Return one attribute of the algorithm, 0 where this cuBLASLt does not have it."""
        written = ctypes.c_size_t()
        try:
            algorithm = ctypes.byref(self._algorithm)
            self._handle.call("MatmulAlgoConfigGetAttribute", algorithm, attribute, *_sized(value), ctypes.byref(written))
        except PointError:
            return 0
        return int(value.value)


def _sized(value: Any) -> tuple[object, ctypes.c_size_t]:
    """Return the address and the size of a value."""
    return ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
