"""Device memory of kernels: rotating sets that together exceed the L2, filled once and shared by all lanes of a device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from greenbench import fills, verify
from greenbench.catalog import DTYPE_BYTES, BufferSpec, Kernel
from greenbench.errors import FailedError
from greenbench.gpu import driver
from greenbench.schema import ParamValue

# Inputs of every run: same values everywhere, so that data-dependent power and speed compare.
INPUT_SEED = 20
FOOTPRINT_L2S = 5
MAX_SETS = 512
ALIGNMENT = 1024

T = TypeVar("T")


def written_bytes(specs: Iterable[BufferSpec], sizes: Mapping[str, int]) -> int:
    """Return how many bytes of these buffers a launch writes; one with state is read and written in place."""
    return sum(sizes[spec.name] for spec in specs if spec.access in ("out", "state"))


@dataclass(slots=True)
class BufferSets:
    """The buffers of one kernel and its params: `count` sets in one allocation per buffer."""

    specs: tuple[BufferSpec, ...]
    elements: Mapping[str, int]
    count: int
    strides: Mapping[str, int]
    memory: Mapping[str, Any]
    working_set_bytes: int
    written_bytes: int
    cache: dict[str, Any] = field(default_factory=dict)

    def pointers(self, index: int) -> dict[str, int]:
        """Return the device addresses of one set by buffer name."""
        return {s.name: int(self.memory[s.name].data.ptr) + index * self.strides[s.name] for s in self.specs}

    def arrays(self) -> dict[str, Any]:
        """Return the first set as typed cupy arrays, for filling and checking."""
        return {s.name: self._view(s) for s in self.specs}

    def _view(self, spec: BufferSpec) -> Any:
        size = self.elements[spec.name] * DTYPE_BYTES[spec.dtype]
        return self.memory[spec.name][:size].view(fills.storage_dtype(spec.dtype))


class Arena:
    """Allocates and keeps BufferSets of a device; the least recently used ones go when memory runs out."""

    def __init__(self, l2_bytes: int, service_stream: Any) -> None:
        self._l2_bytes = l2_bytes
        self._cupy = driver.cupy()
        self._stream = driver.cupy_stream(service_stream)
        self._kept: OrderedDict[tuple[object, ...], BufferSets] = OrderedDict()
        self._workspace: Any = None

    def sets(self, kernel: Kernel, params: Mapping[str, ParamValue], env: Mapping[str, int | float]) -> BufferSets:
        """Return the filled sets of this kernel and these params; raises FailedError when memory does not suffice."""
        elements = {s.name: int(s.count.value(env)) for s in kernel.operands}
        key = (kernel.name, kernel.digest, tuple(sorted(params.items())), tuple(sorted(elements.items())))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        made = self._retrying(lambda: self._allocate(kernel, elements))
        self._kept[key] = made
        self.refill(made, lambda spec: True)
        self._replicate(made)
        return made

    def scratch(self, kernel: Kernel, env: Mapping[str, int | float]) -> dict[str, Any]:
        """Return new, filled memory for what the kernel keeps for itself, by buffer name; it lives as long as the caller."""
        made = {}
        for place, spec in enumerate(kernel.scratch):
            size = int(spec.count.value(env)) * DTYPE_BYTES[spec.dtype]
            made[spec.name] = self._retrying(partial(self._cupy.empty, size, dtype="uint8"))
            with driver.translated("filling buffers"), self._stream:
                self._fill(made[spec.name].view(fills.storage_dtype(spec.dtype)), spec, INPUT_SEED - 1 - place)
                self._stream.synchronize()
        return made

    def _retrying(self, allocate: Callable[[], T]) -> T:
        while True:
            try:
                with driver.translated("allocating buffers"):
                    return allocate()
            except FailedError as error:
                if not self._kept or "out of memory" not in str(error):
                    raise
                self._kept.popitem(last=False)
                self._cupy.get_default_memory_pool().free_all_blocks()

    def _allocate(self, kernel: Kernel, elements: Mapping[str, int]) -> BufferSets:
        specs = kernel.operands
        sizes = {s.name: elements[s.name] * DTYPE_BYTES[s.dtype] for s in specs}
        total = sum(sizes.values())
        # A state buffer carries from launch to launch, so it must not rotate.
        rotates = total > 0 and not any(s.access == "state" for s in specs)
        target = FOOTPRINT_L2S * self._l2_bytes
        count = min(max(2, -(-target // total)), MAX_SETS) if rotates and total < target else 1
        strides = {name: -(-max(size, 1) // ALIGNMENT) * ALIGNMENT for name, size in sizes.items()}
        free = int(self._cupy.cuda.Device().mem_info[0]) + int(self._cupy.get_default_memory_pool().free_bytes())
        if sum(strides.values()) > free:
            raise FailedError(f"out of memory: {kernel.name} needs {total / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free")
        memory = {name: self._cupy.empty(count * stride, dtype="uint8") for name, stride in strides.items()}
        return BufferSets(specs, elements, count, strides, memory, total, written_bytes(specs, sizes))

    def workspace(self, size: int) -> int:
        """Return the address of one workspace of that size, shared by all library calls: a sweep runs one lane at a time."""
        if self._workspace is None or self._workspace.nbytes < size:
            with driver.translated("allocating a workspace"), self._stream:
                self._workspace = self._cupy.empty(size, dtype="uint8")
        return int(self._workspace.data.ptr)

    def refill(self, sets: BufferSets, wanted: Callable[[BufferSpec], bool]) -> None:
        """Write the declared fill into the first set's buffers that `wanted` picks, and wait."""
        with driver.translated("filling buffers"), self._stream:
            for place, spec in enumerate(sets.specs):
                if wanted(spec):
                    self._fill(sets._view(spec), spec, INPUT_SEED + place)
            self._stream.synchronize()

    def _fill(self, target: Any, spec: BufferSpec, seed: int) -> None:
        if spec.fill == "poison":
            target.view("uint8").fill(0xFF)
        elif spec.fill == "zero":
            target.view("uint8").fill(0)
        else:
            target[...] = fills.fill(self._cupy, spec.fill, spec.dtype, target.size, seed)

    def _replicate(self, sets: BufferSets) -> None:
        if sets.count == 1:
            return
        with driver.translated("filling buffers"), self._stream:
            for name, memory in sets.memory.items():
                table = memory.reshape(sets.count, sets.strides[name])
                table[1:] = table[0]
            self._stream.synchronize()

    def check(self, kernel: Kernel, sets: BufferSets, params: Mapping[str, ParamValue]) -> tuple[float, float, str]:
        """Compare the first set with the kernel's reference; returns (error, tolerance, where)."""
        with driver.translated(f"checking {kernel.name}"), self._stream:
            answer: tuple[float, float, str] = verify.check(kernel.verify, self._cupy, sets.arrays(), params, sets.cache)
            self._stream.synchronize()
        return answer

    def close(self) -> None:
        """Give all memory back."""
        self._kept.clear()
        self._workspace = None
        self._cupy.get_default_memory_pool().free_all_blocks()
