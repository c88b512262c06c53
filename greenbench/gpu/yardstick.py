"""Vendor kernels measured beside ours, on the lane's stream and on our buffers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

from greenbench.catalog import Kernel
from greenbench.gpu import Verification, cublas, driver
from greenbench.gpu.buffers import Arena
from greenbench.gpu.probes import Probes
from greenbench.gpu.work import GraphReplay, Host
from greenbench.schema import ParamValue


class CublasGemm:
    """C[m,n] = A[m,k] B by cublasGemmEx as a user calls it: cuBLAS plans for the whole device, it does not know the partition."""

    def __init__(
        self, core: Any, host: Host, probes: Probes, arena: Arena, kernel: Kernel, params: Mapping[str, ParamValue]
    ) -> None:
        self._core, self._host, self._probes, self._arena = core, host, probes, arena
        self._kernel, self._params = kernel, dict(params)
        self._handle = cublas.Handle(host.stream, arena.workspace(cublas.WORKSPACE_BYTES))
        variant = kernel.choose(params, host.sms)
        env = kernel.environment(params, sms=host.sms, variant=variant)
        self._sets = arena.sets(kernel, params, env)
        self._sizes = (int(params["m"]), int(params["n"]), int(params["k"]))
        a, b, c = kernel.operands[:3]
        self._types = (cublas.DATA_TYPES[a.dtype], cublas.DATA_TYPES[b.dtype], cublas.DATA_TYPES[c.dtype])
        pointers = [self._sets.pointers(i) for i in range(self._sets.count)]
        self._operands = [(p[a.name], p[b.name], p[c.name]) for p in pointers]
        self.config = "cublas"
        self.flops = float(kernel.flops.value(env)) if kernel.flops else None
        self.bytes = float(kernel.bytes.value(env)) if kernel.bytes else None
        self.written_bytes = self._sets.written_bytes
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
        self._handle.gemm(self._sizes, next(self._next), self._types)

    def verify(self) -> Verification:
        """Poison C, multiply once on this lane, compare with the reference of the kernel beside it."""
        self._arena.refill(self._sets, lambda spec: spec.access == "out")
        with driver.translated("launching cuBLAS"):
            self._handle.gemm(self._sizes, self._operands[0], self._types)
        self._host.sync()
        return Verification(*self._arena.check(self._kernel, self._sets, self._params))

    def capture(self, launches: int) -> GraphReplay:
        """Capture that many products, with the clock probe as census in front."""
        return GraphReplay(self._core, self._host, self._probes, lambda target: self.launch(), launches)

    def report(self) -> float | None:
        """cuBLAS reports nothing of itself."""
        return None
