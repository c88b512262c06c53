"""The few cuBLAS calls that yardsticks need, straight from libcublas: cupy's bindings set cupy's stream anew in every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from greenbench.errors import FailedError, UnsupportedError
from greenbench.gpu import driver
from greenbench.gpu.gemm import Gemm

DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t of cublas_api.h
# What cuBLAS's documentation recommends for compute capability 9.0, and enough for older ones.
WORKSPACE_BYTES = 32 << 20
# cublasStatus_t of cublas_api.h; cuBLASLt answers with the same numbers.
STATUSES = {
    1: "not initialized",
    3: "allocation failed",
    7: "invalid value",
    8: "architecture mismatch",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
}
ALLOC_FAILED, UNSUPPORTED = 3, (8, 15)


@cache
def library(name: str = "cublas") -> Any:
    """Load libcublas or libcublasLt from the wheel or the toolkit that fits; raises UnsupportedError with the way to get it."""
    driver.cuda_core()
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        path = load_nvidia_dynamic_lib(name).abs_path
    except DynamicLibNotFoundError as error:
        raise UnsupportedError(f'the cuBLAS yardstick needs lib{name}: pip install "greenbench[yardstick]"') from error
    return ctypes.CDLL(path)


def checked(call: str, status: int) -> None:
    """Raise what a status other than success means for a point."""
    if not status:
        return
    text = f"{call}: cuBLAS status {status} ({STATUSES.get(status, 'unknown')})"
    if status in UNSUPPORTED:
        raise UnsupportedError(text)
    raise FailedError(f"out of memory: {text}" if status == ALLOC_FAILED else text)


class Handle:
    """A cuBLAS handle bound to one stream, with a workspace of its own (so that its calls can be captured in a graph).

    `sm_count_target` is how many SMs its heuristics plan for; 0 leaves that to cuBLAS, which takes the whole device.
    """

    def __init__(self, stream: Any, workspace: int, sm_count_target: int = 0) -> None:
        self._library = library()
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        # A new stream takes the workspace away again, so it comes first.
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(int(stream.handle)))
        self._call("cublasSetWorkspace_v2", self._handle, ctypes.c_void_p(workspace), ctypes.c_size_t(WORKSPACE_BYTES))
        if sm_count_target:
            self._call("cublasSetSmCountTarget", self._handle, sm_count_target)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def _call(self, name: str, *arguments: object) -> None:
        checked(name, getattr(self._library, name)(*arguments))

    def bound(self, gemm: Gemm, a: int, b: int, c: int) -> Callable[[], None]:
        """Return what enqueues the product of the matrices at these addresses."""
        left, right, result = gemm.left, gemm.right, gemm.result
        arguments = (
            *(self._handle, left.operation, right.operation, *gemm.sizes, ctypes.byref(self._one)),
            *(ctypes.c_void_p(b), left.data_type, left.leading),
            *(ctypes.c_void_p(a), right.data_type, right.leading, ctypes.byref(self._zero)),
            *(ctypes.c_void_p(c), result.data_type, result.leading, gemm.compute, DEFAULT_ALGORITHM),
        )
        return lambda: self._call("cublasGemmEx", *arguments)

    def close(self) -> None:
        """Destroy the handle."""
        if self._handle:
            self._call("cublasDestroy_v2", self._handle)
            self._handle = ctypes.c_void_p()
