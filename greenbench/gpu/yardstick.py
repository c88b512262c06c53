"""Vendor kernels measured beside ours: cuBLAS, called through cupy's bindings on the lane's stream and on our buffers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from greenbench.catalog import Kernel
from greenbench.errors import UnsupportedError
from greenbench.gpu import Verification, driver
from greenbench.gpu.buffers import Arena
from greenbench.gpu.probes import Probes
from greenbench.gpu.work import GraphReplay, Host
from greenbench.schema import ParamValue

# cudaDataType and cublasComputeType_t of library_types.h and cublas_api.h.
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
COMPUTE_32F = 68
DEFAULT_ALGORITHM = -1
NO_TRANSPOSE, TRANSPOSE = 0, 1


class CublasGemm:
    """C[m,n] = A[m,k] B by cublasGemmEx as a user calls it: cuBLAS plans for the whole device, it does not know the partition.

    Row-major operands are handed over as their column-major transposes: C^T = B^T A^T.
    """

    def __init__(
        self, core: Any, host: Host, probes: Probes, arena: Arena, kernel: Kernel, params: Mapping[str, ParamValue]
    ) -> None:
        self._core, self._host, self._probes, self._arena = core, host, probes, arena
        self._kernel, self._params = kernel, dict(params)
        self._cublas = _library()
        self._handle = self._cublas.create()
        # cupy's bindings give cuBLAS cupy's current stream in every call, whatever was set before.
        self._current = driver.cupy().cuda.ExternalStream(int(host.stream.handle))
        variant = kernel.choose(params, host.sms)
        env = kernel.environment(params, sms=host.sms, variant=variant)
        self._sets = arena.sets(kernel, params, env)
        self.m, self.n, self.k = (int(params[name]) for name in ("m", "n", "k"))
        a, b, c = (spec.name for spec in kernel.buffers[:3])
        self._operands = [(p[a], p[b], p[c]) for p in (self._sets.pointers(i) for i in range(self._sets.count))]
        self._types = tuple(DATA_TYPES[spec.dtype] for spec in kernel.buffers[:3])
        self._scale = np.array([1.0, 0.0], dtype=np.float32)
        self.config = "cublas"
        self.flops = float(kernel.flops.value(env)) if kernel.flops else None
        self.bytes = float(kernel.bytes.value(env)) if kernel.bytes else None
        self.working_set_bytes = self._sets.working_set_bytes
        # cuBLAS does not say what it launches.
        self.grid = 0
        self.ctas_per_sm: int | None = None
        self.rotate(True)

    def rotate(self, on: bool) -> None:
        """Rotate over the buffer sets, or stay on the first."""
        self._next = cycle(self._operands if on else self._operands[:1])

    def launch(self) -> None:
        """Enqueue one product on the lane's stream."""
        self._product(*next(self._next))

    def _product(self, a: int, b: int, c: int) -> None:
        a_type, b_type, c_type = self._types
        alpha, beta = int(self._scale.ctypes.data), int(self._scale.ctypes.data) + 4
        with self._current:
            self._cublas.gemmEx(
                *(self._handle, NO_TRANSPOSE, NO_TRANSPOSE, self.n, self.m, self.k, alpha),
                *(b, b_type, self.n, a, a_type, self.k, beta),
                *(c, c_type, self.n, COMPUTE_32F, DEFAULT_ALGORITHM),
            )

    def verify(self) -> Verification:
        """Poison C, multiply once on this lane, compare with the reference of the kernel beside it."""
        self._arena.refill(self._sets, lambda spec: spec.access == "out")
        with driver.translated("launching cuBLAS"):
            self._product(*self._operands[0])
        self._host.sync()
        return Verification(*self._arena.check(self._kernel, self._sets, self._params))

    def capture(self, launches: int) -> GraphReplay:
        """Capture that many products, with the clock probe as census in front."""
        return GraphReplay(self._core, self._host, self._probes, lambda target: self.launch(), launches)

    def report(self) -> float | None:
        """cuBLAS reports nothing of itself."""
        return None


def _library() -> Any:
    driver.cupy()
    try:
        from cupy_backends.cuda.libs import cublas
    except ImportError as error:
        raise UnsupportedError(f'the cuBLAS yardstick needs libcublas ({error}): pip install "greenbench[yardstick]"') from error
    return cublas
