"""NVIDIA's GEMMs measured beside ours, on the lane's stream and our buffers, in each of the ways in which users call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, Protocol, TypeVar

from greenbench.catalog import Kernel
from greenbench.gpu import Verification, cublas, cublaslt, driver
from greenbench.gpu.buffers import Arena
from greenbench.gpu.gemm import Gemm
from greenbench.gpu.probes import Probes
from greenbench.gpu.work import GraphReplay, Host
from greenbench.schema import ParamValue

T = TypeVar("T")
Addresses = tuple[int, int, int]
Launches = list[Callable[[], None]]


class Keeper(Host, Protocol):
    """A lane that keeps what a library makes once for its stream."""

    def kept(self, key: str, make: Callable[[], T]) -> T:
        """Return what `make` gave the first time; it is closed with the lane."""


class LibraryGemm:
    """C[m,n] = A[m,k] B by cuBLAS or cuBLASLt: in `cublas` and `cublaslt` their heuristics do not know of the partition."""

    def __init__(
        self, core: Any, host: Keeper, probes: Probes, arena: Arena, kernel: Kernel, params: Mapping[str, ParamValue], way: str
    ) -> None:
        self._core, self._host, self._probes, self._arena = core, host, probes, arena
        self._kernel, self._params = kernel, dict(params)
        env = kernel.environment(params, sms=host.sms, variant=kernel.choose(params, host.sms))
        gemm = Gemm.of(kernel, params)
        self._sets = arena.sets(kernel, params, env)
        names = [buffer.name for buffer in kernel.operands[:3]]
        pointers = [self._sets.pointers(i) for i in range(self._sets.count)]
        workspace = arena.workspace(cublas.WORKSPACE_BYTES)
        a, b, c = names
        self._launches, self.config = _WAYS[way](host, workspace, gemm, [(each[a], each[b], each[c]) for each in pointers])
        self.flops = float(kernel.flops.value(env)) if kernel.flops else None
        self.bytes = float(kernel.bytes.value(env)) if kernel.bytes else None
        self.written_bytes = self._sets.written_bytes
        self.working_set_bytes = self._sets.working_set_bytes
        # What is launched is the library's own affair.
        self.grid = 0
        self.ctas_per_sm: int | None = None
        self.rotate(True)

    def rotate(self, on: bool) -> None:
        """Rotate over the buffer sets, or stay on the first."""
        self._next = cycle(self._launches if on else self._launches[:1])

    def launch(self) -> None:
        """Enqueue one product on the lane's stream."""
        next(self._next)()

    def verify(self) -> Verification:
        """Poison C, multiply once on this lane, compare with the reference of the kernel beside it."""
        self._arena.refill(self._sets, lambda spec: spec.access == "out")
        with driver.translated("launching cuBLAS"):
            self._launches[0]()
        self._host.sync()
        return Verification(*self._arena.check(self._kernel, self._sets, self._params))

    def capture(self, launches: int) -> GraphReplay:
        """Capture that many products, with the clock probe as census in front."""
        return GraphReplay(self._core, self._host, self._probes, lambda target: self.launch(), launches)

    def report(self) -> float | None:
        """The libraries report nothing of themselves."""
        return None


def _plain(host: Keeper, workspace: int, gemm: Gemm, sets: Sequence[Addresses]) -> tuple[Launches, str]:
    """Call cublasGemmEx as everybody does."""
    handle = host.kept("cublas", lambda: cublas.Handle(host.stream, workspace))
    return [handle.bound(gemm, *each) for each in sets], "cublas"


def _targeted(host: Keeper, workspace: int, gemm: Gemm, sets: Sequence[Addresses]) -> tuple[Launches, str]:
    """Tell cuBLAS how many SMs there are, and call the same."""
    handle = host.kept("cublas_sms", lambda: cublas.Handle(host.stream, workspace, sm_count_target=host.sms))
    return [handle.bound(gemm, *each) for each in sets], f"cublas sm_count_target={host.sms}"


def _light(host: Keeper, workspace: int, gemm: Gemm, sets: Sequence[Addresses]) -> tuple[Launches, str]:
    """Take what cuBLASLt's heuristic names first."""
    handle = host.kept("cublaslt", lambda: cublaslt.Handle(host.stream, workspace))
    planned = handle.planned(gemm)
    return [planned.bound(*each) for each in sets], f"cublaslt first heuristic, {planned.words}"


_WAYS: Mapping[str, Callable[[Keeper, int, Gemm, Sequence[Addresses]], tuple[Launches, str]]] = {
    "cublas": _plain,
    "cublas_sms": _targeted,
    "cublaslt": _light,
}
