"""The book of a role's steps in device memory: when each is due, and the stamps that its graph writes there."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenbench.catalog import Kernel
from greenbench.gpu import driver
from greenbench.gpu.probes import Load, allow_shared_memory

# Steps of one run; a graph finds its own place by a counter, so that it is captured once.
CAPACITY = 65_536
HEAD = 8
# A device that does not answer for so long is asked by a wait for its stream, which says why.
SPIN_S = 0.1
COLUMNS = ("due", "entered", "started", "ended", "reported")


@dataclass(frozen=True, slots=True)
class StepKernels:
    """The compiled kernels that frame a step."""

    gate: Any
    start: Any
    end: Any
    clock: Any

    @classmethod
    def load(cls, library: Mapping[str, Kernel], load: Load) -> StepKernels:
        """Compile the four; `load` returns cuda.core's kernel object."""
        return cls(*(load(library[name]) for name in ("step_gate", "step_start", "step_end", "device_clock")))


class HostWord:
    """One 64-bit word of the host's memory that the device writes."""

    def __init__(self, core: Any) -> None:
        self._buffer = core.LegacyPinnedMemoryResource().allocate(64)
        self.address = int(self._buffer.handle)
        self._word = ctypes.c_uint64.from_address(self.address)
        self._word.value = 0

    @property
    def value(self) -> int:
        """What is there now."""
        return self._word.value

    def clear(self) -> None:
        """Set it to 0; nothing on the device writes it now."""
        self._word.value = 0

    def wait(self) -> int:
        """Spin until it is no longer 0 and return it; 0 after `SPIN_S`."""
        deadline = time.perf_counter() + SPIN_S
        while not (value := self._word.value):
            if time.perf_counter() > deadline:
                return 0
        return value


class Ledger:
    """Due times and stamps of up to `CAPACITY` steps of one role."""

    def __init__(self, core: Any, kernels: StepKernels) -> None:
        self._core, self._kernels = core, kernels
        with driver.translated("allocating a ledger"):
            self._memory = driver.cupy().zeros(HEAD + len(COLUMNS) * CAPACITY, dtype="uint64")
        self._done = HostWord(core)

    def _at(self, column: str) -> int:
        base = int(self._memory.data.ptr)
        return base + 8 * (HEAD + COLUMNS.index(column) * CAPACITY)

    @property
    def done(self) -> int:
        """Steps that have ended."""
        return self._done.value

    def reset(self, stream: Any, due_ns: Sequence[int], *, gated: bool) -> None:
        """Begin anew with these due times on the device's clock (0 or missing: at once); waits for the stream."""
        self._done.clear()
        fresh = np.zeros(HEAD + len(COLUMNS) * CAPACITY, dtype=np.uint64)
        fresh[1] = 1 if gated else 0
        fresh[HEAD : HEAD + len(due_ns)] = np.asarray(due_ns, dtype=np.uint64)
        address = int(self._memory.data.ptr)
        driver.checked(driver.bindings().cuMemcpyHtoDAsync(address, fresh.ctypes.data, fresh.nbytes, stream.handle))
        stream.sync()

    def read(self, stream: Any, count: int) -> dict[str, np.ndarray]:
        """Return the first `count` entries of every column; waits for the stream."""
        host = np.empty(HEAD + len(COLUMNS) * CAPACITY, dtype=np.uint64)
        address = int(self._memory.data.ptr)
        driver.checked(driver.bindings().cuMemcpyDtoHAsync(host.ctypes.data, address, host.nbytes, stream.handle))
        stream.sync()
        table = host[HEAD:].reshape(len(COLUMNS), CAPACITY)
        return {name: table[place, :count] for place, name in enumerate(COLUMNS)}

    def open_step(self, target: Any, block: int, smem: int) -> None:
        """Enqueue the gate, and the stamp that waits for room as a CTA of `block` threads and `smem` bytes would."""
        base = int(self._memory.data.ptr)
        one = self._core.LaunchConfig(grid=1, block=1)
        self._core.launch(target, one, self._kernels.gate, base, self._at("due"), self._at("entered"))
        if smem > 48 * 1024:
            allow_shared_memory(self._kernels.start, smem)
        room = self._core.LaunchConfig(grid=1, block=block, shmem_size=smem)
        self._core.launch(target, room, self._kernels.start, base, self._at("started"))

    def close_step(self, target: Any, report: int) -> None:
        """Enqueue the stamp behind the last kernel; `report` is the address of its report word, 0 for none."""
        one = self._core.LaunchConfig(grid=1, block=1)
        addresses = (int(self._memory.data.ptr), self._at("ended"), self._at("reported"), report, self._done.address)
        self._core.launch(target, one, self._kernels.end, *addresses)


__all__ = ["CAPACITY", "HostWord", "Ledger", "StepKernels"]
