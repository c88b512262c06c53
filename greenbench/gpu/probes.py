"""The tool's own kernels on a lane: census, clock, gate and flush. Each names the stream that it runs on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenbench.catalog import Kernel
from greenbench.gpu import ClockSample, driver

SLOTS = 2048
CENSUS_CTAS_PER_SM = 8
CENSUS_THREADS = 256
CENSUS_SPIN_CYCLES = 20_000
CLOCK_CTAS_PER_SM = 4
CLOCK_SPIN_NS = 2_000
GATE_TIMEOUT_NS = 2_000_000_000
FLUSH_THREADS = 256
FLUSH_CTAS_PER_SM = 8

Load = Callable[[Kernel], Any]


@dataclass(frozen=True, slots=True)
class ProbeKernels:
    """Compiled probe kernels of one device, from the library's internal files."""

    census: Any
    clock: Any
    gate: Any
    flush_write: Any
    flush_read: Any

    @classmethod
    def load(cls, library: Mapping[str, Kernel], load: Load) -> ProbeKernels:
        """Compile the five; `load` returns cuda.core's kernel object."""
        return cls(*(load(library[name]) for name in ("census", "clock", "gate", "flush_write", "flush_read")))


class Probes:
    """Runs the probes of one device; buffers are made once and used by one lane at a time."""

    def __init__(
        self, core: Any, kernels: ProbeKernels, service: Any, *, sm_count: int, smem_per_sm: int, smem_optin: int, l2_bytes: int
    ) -> None:
        self._core = core
        self._kernels = kernels
        self._sm_count = sm_count
        self._l2_bytes = l2_bytes
        # More than half an SM's shared memory each, so that no two CTAs share an SM.
        self._exclusive_smem = min(smem_per_sm // 2 + 1024, smem_optin)
        if self._exclusive_smem > 48 * 1024:
            allow_shared_memory(kernels.clock, self._exclusive_smem)
        cupy = driver.cupy()
        with driver.cupy_stream(service):
            self._stamps = cupy.empty(2 * SLOTS, dtype="uint64")
            self._bitmap = cupy.empty(SLOTS // 32, dtype="uint32")
            self._flush = cupy.empty(2 * l2_bytes, dtype="uint8")
            self._sink = cupy.empty(1024, dtype="uint32")
        self.flag = GateFlag(core)

    def census(self, stream: Any) -> tuple[int, ...]:
        """Return the ids of the SMs that CTAs of this stream ran on."""
        zero(self._bitmap, stream)
        config = self._core.LaunchConfig(grid=CENSUS_CTAS_PER_SM * self._sm_count, block=CENSUS_THREADS)
        self._core.launch(stream, config, self._kernels.census, int(self._bitmap.data.ptr), np.int64(CENSUS_SPIN_CYCLES))
        words = read_back(self._bitmap, stream)
        return tuple(32 * place + bit for place, word in enumerate(words.tolist()) for bit in range(32) if word >> bit & 1)

    def launch_clock(self, target: Any, sms: int) -> None:
        """Enqueue the clock probe on a stream, or into a graph that is being captured."""
        config = self._core.LaunchConfig(grid=CLOCK_CTAS_PER_SM * sms, block=32, shmem_size=self._exclusive_smem)
        self._core.launch(target, config, self._kernels.clock, int(self._stamps.data.ptr), np.int64(CLOCK_SPIN_NS))

    def zero_stamps(self, stream: Any) -> None:
        """Forget the last clock sample."""
        zero(self._stamps, stream)

    def read_stamps(self, stream: Any) -> ClockSample:
        """Wait for the stream and return what the clock probe wrote."""
        pairs = read_back(self._stamps, stream).reshape(SLOTS, 2)
        seen = np.flatnonzero(pairs[:, 0])
        return ClockSample({int(i): (int(pairs[i, 0]), int(pairs[i, 1])) for i in seen})

    def clock(self, stream: Any, sms: int) -> ClockSample:
        """Read timer and cycle counter on every SM of the lane."""
        self.zero_stamps(stream)
        self.launch_clock(stream, sms)
        return self.read_stamps(stream)

    def hold(self, stream: Any, ticket: int) -> None:
        """Enqueue the gate: the stream waits until the flag reaches `ticket`."""
        config = self._core.LaunchConfig(grid=1, block=1)
        flag = self.flag
        args = (np.uint64(flag.address), np.uint32(ticket), np.int64(GATE_TIMEOUT_NS), np.uint64(flag.address + 64))
        self._core.launch(stream, config, self._kernels.gate, *args)

    def flush(self, stream: Any, dirty: bool) -> None:
        """Replace the L2's contents from the whole device: by written lines (dirty), or written and then read ones (clean)."""
        size = self._l2_bytes if dirty else 2 * self._l2_bytes
        config = self._core.LaunchConfig(grid=FLUSH_CTAS_PER_SM * self._sm_count, block=FLUSH_THREADS)
        address = int(self._flush.data.ptr)
        if dirty:
            driver.checked(driver.bindings().cuMemsetD32Async(address, 0, size // 4, stream.handle))
            return
        self._core.launch(stream, config, self._kernels.flush_write, address, np.int64(size))
        self._core.launch(stream, config, self._kernels.flush_read, address, np.int64(size), int(self._sink.data.ptr))


class GateFlag:
    """A host-mapped word that gates poll, and the word in which they say that they gave up."""

    def __init__(self, core: Any) -> None:
        self._buffer = core.LegacyPinnedMemoryResource().allocate(128)
        self.address = int(self._buffer.handle)
        self._open = ctypes.c_uint32.from_address(self.address)
        self._gave_up = ctypes.c_uint32.from_address(self.address + 64)
        self._open.value = self._gave_up.value = 0
        self._ticket = 0

    def take(self) -> int:
        """Return the next ticket."""
        self._ticket += 1
        return self._ticket

    def open(self, ticket: int) -> None:
        """Let every gate with this ticket or an earlier one pass."""
        self._open.value = ticket

    def gave_up(self, ticket: int) -> bool:
        """Return True if a gate with this ticket ran into its time-out."""
        return bool(self._gave_up.value == ticket)


def allow_shared_memory(kernel: Any, size: int) -> None:
    """Raise a kernel's limit of dynamic shared memory; cuda.core's attributes are read-only."""
    drv = driver.bindings()
    attribute = drv.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device = driver.checked(drv.cuCtxGetDevice())
    driver.checked(drv.cuKernelSetAttribute(attribute, size, kernel.handle, device))


def zero(array: Any, stream: Any) -> None:
    """Enqueue a memset to zero on this stream."""
    words = array.nbytes // 4
    driver.checked(driver.bindings().cuMemsetD32Async(int(array.data.ptr), 0, words, stream.handle))


def read_back(array: Any, stream: Any) -> Any:
    """Copy a small device array to the host on this stream, wait, and return it as a numpy array."""
    host = np.empty(array.shape, dtype=np.dtype(str(array.dtype)))
    driver.checked(driver.bindings().cuMemcpyDtoHAsync(host.ctypes.data, int(array.data.ptr), array.nbytes, stream.handle))
    stream.sync()
    return host
