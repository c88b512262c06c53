"""torch's operation measured beside one of our memory-bound kernels: on the lane's stream, on views of our buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from greenbench import fills
from greenbench.catalog import DTYPE_BYTES, BufferSpec, Kernel
from greenbench.errors import FailedError, KernelFileError, UnsupportedError
from greenbench.gpu import Verification, driver
from greenbench.gpu.buffers import Arena, BufferSets
from greenbench.gpu.probes import Probes
from greenbench.gpu.torch_operations import OPERATIONS, Operation
from greenbench.gpu.work import GraphReplay, Host
from greenbench.schema import ParamValue

# torch has few operations for unsigned integers; bits are bits.
_SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}
_TYPES = {"bfloat16": "bfloat16", "e4m3": "float8_e4m3fn"}


def load() -> Any:
    """Import torch, or raise UnsupportedError saying what is missing."""
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(
            "the torch yardstick needs torch built for CUDA, which is not installed: pip install torch"
        ) from error
    if not torch.cuda.is_available():
        raise UnsupportedError(f"the torch yardstick needs torch built for CUDA, and torch {torch.__version__} finds no GPU")
    return torch


class TorchOperation:
    """The torch operation of the same formula as a kernel, as a user calls it: torch does not know the partition."""

    def __init__(
        self, core: Any, host: Host, probes: Probes, arena: Arena, kernel: Kernel, params: Mapping[str, ParamValue]
    ) -> None:
        if kernel.verify not in OPERATIONS:
            raise KernelFileError(f"{kernel.path.name}: torch has no operation for {kernel.verify!r}; leave out yardstick")
        self._torch = load()
        self._core, self._host, self._probes, self._arena = core, host, probes, arena
        self._kernel, self._params = kernel, dict(params)
        env = kernel.environment(params, sms=host.sms, variant=kernel.choose(params, host.sms))
        self._sets = arena.sets(kernel, params, env)
        place = int(host.stream.device.device_id)
        self._stream = self._torch.cuda.ExternalStream(int(host.stream.handle), device=place)
        with _translated(f"preparing torch beside {kernel.name}"):
            self._torch.cuda.set_device(place)
            # Views, and operands that an operation has to make for itself, serve all lanes.
            if "torch" not in self._sets.cache:
                self._sets.cache["torch"] = self._made()
            self._output, self._operations = self._sets.cache["torch"]
        self.config = "torch"
        self.flops = float(kernel.flops.value(env)) if kernel.flops else None
        self.bytes = float(kernel.bytes.value(env)) if kernel.bytes else None
        self.written_bytes = self._sets.written_bytes
        self.working_set_bytes = self._sets.working_set_bytes
        # torch does not say what it launches.
        self.grid = 0
        self.ctas_per_sm: int | None = None
        self.rotate(True)

    def _made(self) -> tuple[Any, list[Operation]]:
        """Return the first set's output as a tensor, and the operation on each set."""
        make, specs = OPERATIONS[self._kernel.verify], self._sets.specs
        tensors = [{spec.name: _view(self._torch, self._sets, spec, i) for spec in specs} for i in range(self._sets.count)]
        with self._torch.cuda.stream(self._stream):
            operations = [make(self._torch, each, self._params) for each in tensors]
        self._host.sync()
        return tensors[0][next(spec.name for spec in specs if spec.access == "out")], operations

    def rotate(self, on: bool) -> None:
        """Rotate over the buffer sets, or stay on the first."""
        self._next = cycle(self._operations if on else self._operations[:1])

    def launch(self) -> None:
        """Enqueue one operation on the lane's stream."""
        try:
            with self._torch.cuda.stream(self._stream):
                next(self._next)()
        except RuntimeError as error:
            raise _point_error(error, f"launching torch beside {self._kernel.name}") from error

    def verify(self) -> Verification:
        """Poison the output, run once on this lane, compare with the reference of the kernel beside it."""
        self._arena.refill(self._sets, lambda spec: spec.access != "in")
        with _translated(f"running torch beside {self._kernel.name}"), self._torch.cuda.stream(self._stream):
            result = self._operations[0]()
            if result.data_ptr() != self._output.data_ptr():
                # A sum is one number where our kernel leaves many.
                self._output.zero_()
                self._output[: result.numel()].copy_(result.reshape(-1))
        self._host.sync()
        return Verification(*self._arena.check(self._kernel, self._sets, self._params))

    def capture(self, launches: int) -> GraphReplay:
        """Capture that many operations, with the clock probe as census in front; torch's memory pool is warm by now."""
        self.launch()
        self._host.sync()
        return GraphReplay(self._core, self._host, self._probes, lambda target: self.launch(), launches)

    def report(self) -> float | None:
        """Torch reports nothing of itself."""
        return None


def _view(torch: Any, sets: BufferSets, spec: BufferSpec, index: int) -> Any:
    """Return one buffer of one set as a flat tensor on the same memory."""
    start = index * sets.strides[spec.name]
    stored = fills.storage_dtype(spec.dtype)
    piece = sets.memory[spec.name][start : start + sets.elements[spec.name] * DTYPE_BYTES[spec.dtype]]
    tensor = torch.from_dlpack(piece.view(_SIGNED.get(stored, stored)))
    return tensor.view(getattr(torch, _TYPES[spec.dtype])) if spec.dtype in _TYPES else tensor


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn errors of torch, and of our own calls, into PointErrors that say what was tried."""
    try:
        with driver.translated(what):
            yield
    except RuntimeError as error:
        raise _point_error(error, what) from error


def _point_error(error: RuntimeError, what: str) -> FailedError | UnsupportedError:
    if type(error).__name__ == "OutOfMemoryError":
        return FailedError(f"out of memory: {what}")
    return driver.point_error(str(error), what)


__all__ = ["TorchOperation", "load"]
