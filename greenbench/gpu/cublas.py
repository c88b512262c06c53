"""The few cuBLAS calls that yardsticks need, straight from libcublas: cupy's bindings set cupy's stream anew in every call."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from greenbench.errors import FailedError, UnsupportedError
from greenbench.gpu import driver

# cudaDataType of library_types.h, cublasComputeType_t and cublasGemmAlgo_t of cublas_api.h.
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
COMPUTE_32F = 68
DEFAULT_ALGORITHM = -1
NO_TRANSPOSE = 0
# What cuBLAS's documentation recommends for compute capability 9.0, and enough for older ones.
WORKSPACE_BYTES = 32 << 20


@cache
def library() -> Any:
    """Load libcublas from the wheel or the toolkit that fits; raises UnsupportedError with the way to get it."""
    driver.cuda_core()
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        path = load_nvidia_dynamic_lib("cublas").abs_path
    except DynamicLibNotFoundError as error:
        raise UnsupportedError('the cuBLAS yardstick needs libcublas: pip install "greenbench[yardstick]"') from error
    return ctypes.CDLL(path)


class Handle:
    """A cuBLAS handle bound to one stream, with a workspace of its own (so that its calls can be captured in a graph)."""

    def __init__(self, stream: Any, workspace: int) -> None:
        self._library = library()
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(int(stream.handle)))
        self._call("cublasSetWorkspace_v2", self._handle, ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES))
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise FailedError(f"{name}: cuBLAS status {status}")

    def gemm(self, sizes: tuple[int, int, int], operands: tuple[int, int, int], types: tuple[int, int, int]) -> None:
        """Enqueue row-major C[m,n] = A[m,k] B[k,n] in 32-bit accumulation, as the column-major C^T = B^T A^T."""
        m, n, k = sizes
        (a, b, c), (a_type, b_type, c_type) = operands, types
        self._call(
            "cublasGemmEx",
            *(self._handle, NO_TRANSPOSE, NO_TRANSPOSE, n, m, k, ctypes.byref(self._one)),
            *(ctypes.c_void_p(b), b_type, n, ctypes.c_void_p(a), a_type, k, ctypes.byref(self._zero)),
            *(ctypes.c_void_p(c), c_type, n, COMPUTE_32F, DEFAULT_ALGORITHM),
        )

    def close(self) -> None:
        """Destroy the handle."""
        if self._handle:
            self._call("cublasDestroy_v2", self._handle)
            self._handle = ctypes.c_void_p()
