"""A library kernel prepared for one lane: its launch shape, its arguments per buffer set, its graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import numpy as np

from greenbench.catalog import DTYPE_BYTES, Kernel, Variant
from greenbench.errors import KernelFileError, StickyError, UnsupportedError
from greenbench.gpu import Verification, driver
from greenbench.gpu.buffers import Arena, BufferSets
from greenbench.gpu.probes import Probes, read_back
from greenbench.schema import ParamValue

INTEGERS: Mapping[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
MAP_BYTES = 128
REALS: Mapping[int, Any] = {4: np.float32, 8: np.float64}


class Host(Protocol):
    """What a Work needs of its lane."""

    stream: Any
    sms: int

    def sync(self) -> None:
        """Wait for the stream."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How one kernel is launched on a lane: cuda.core's configuration, and the figures that are in it."""

    config: Any
    dims: tuple[int, ...]
    block: int
    smem: int
    cluster: int
    ctas_per_sm: int | None

    @property
    def grid(self) -> int:
        """CTAs of the whole grid."""
        return math.prod(self.dims)


def shape_of(core: Any, kernel: Kernel, loaded: Any, env: dict[str, int | float], host: Host) -> Shape:
    """Return the launch shape for the lane's SMs; raises UnsupportedError where the grid cannot be resident as declared."""
    launch = kernel.launch
    block = int(launch.block.value(env))
    smem = int(launch.smem.value(env)) if launch.smem is not None else 0
    if smem > 48 * 1024:
        from greenbench.gpu.probes import allow_shared_memory

        allow_shared_memory(loaded, smem)
    per_sm = int(loaded.occupancy.max_active_blocks_per_multiprocessor(block, smem))
    env["occupancy"] = per_sm
    dims = tuple(int(expr.value(env)) for expr in launch.grid)
    ctas, cluster = math.prod(dims), int(launch.cluster.value(env))
    if min(dims) < 1:
        raise KernelFileError(f"{kernel.path.name}: launch.grid is {dims} for {dict(env)}; every dimension must be at least 1")
    if per_sm < 1:
        raise UnsupportedError(f"a CTA of {block} threads and {smem} bytes of shared memory does not fit an SM of this device")
    if launch.cooperative and ctas > host.sms * per_sm:
        raise UnsupportedError(
            f"cooperative grid of {ctas} CTAs of {block} threads does not fit: "
            f"{host.sms} SMs hold {host.sms * per_sm} ({per_sm} per SM)"
        )
    if dims[0] % cluster:
        raise KernelFileError(f"{kernel.path.name}: launch.grid is {dims[0]}, not a multiple of the cluster of {cluster}")
    # Named only where it is wanted: a launch carries the attribute or does not.
    pdl = {"programmatic_stream_serialization": True} if launch.pdl else {}
    if cluster > 1:
        # cuda.core counts clusters, not CTAs.
        config = core.LaunchConfig(grid=(dims[0] // cluster, *dims[1:]), cluster=cluster, block=block, shmem_size=smem, **pdl)
        if int(loaded.occupancy.max_active_clusters(config, stream=host.stream)) == 0:
            raise UnsupportedError(f"clusters of {cluster} CTAs do not fit this partition of {host.sms} SMs")
    else:
        config = core.LaunchConfig(grid=dims, block=block, shmem_size=smem, is_cooperative=launch.cooperative, **pdl)
    return Shape(config, dims, block, smem, cluster, per_sm)


def pack(kernel: Kernel, loaded: Any, params: Mapping[str, ParamValue], buffers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the launch arguments in signature order, each in the size that the compiled kernel declares.

    `buffers` holds the addresses of buffers, and the tensor maps of those that have one.
    """
    sizes = [int(info.size) for info in loaded.arguments_info]
    if len(sizes) != len(kernel.args):
        named = len(kernel.args)
        raise KernelFileError(f"{kernel.path.name}: args names {named}, but `{kernel.entry}` takes {len(sizes)} parameters")
    packed: list[Any] = []
    for name, size in zip(kernel.args, sizes, strict=True):
        if name in buffers:
            address = isinstance(buffers[name], int)
            packed.append(np.uint64(buffers[name]) if address else buffers[name])
            expected = 8 if address else MAP_BYTES
        else:
            value = params[name]
            kinds = REALS if isinstance(value, float) else INTEGERS
            expected = size if size in kinds else 0
            packed.append(kinds[size](value) if expected else None)
        if expected != size:
            raise KernelFileError(
                f"{kernel.path.name}: args says `{name}` is a {'buffer' if name in buffers else 'number'}, "
                f"but that parameter of `{kernel.entry}` has {size} bytes"
            )
    return tuple(packed)


class KernelWork:
    """A library or user kernel on one lane."""

    def __init__(
        self,
        core: Any,
        host: Host,
        probes: Probes,
        arena: Arena,
        kernel: Kernel,
        params: Mapping[str, ParamValue],
        loaded: Any,
        variant: Variant | None,
        sets: BufferSets | None = None,
    ) -> None:
        self._core, self._host, self._probes, self._arena = core, host, probes, arena
        self._kernel, self._params, self._loaded = kernel, dict(params), loaded
        env = kernel.environment(params, sms=host.sms, variant=variant)
        self._shape = shape_of(core, kernel, loaded, env, host)
        self._sets = sets if sets is not None else arena.sets(kernel, params, env)
        # Of this work alone: two lanes that run at once must not share it, nor do two versions agree on its size.
        self._scratch = arena.scratch(kernel, env)
        self.config = kernel.config(variant)
        self.flops = float(kernel.flops.value(env)) if kernel.flops else None
        self.bytes = float(kernel.bytes.value(env)) if kernel.bytes else None
        self.per = float(env[kernel.report.per]) if kernel.report else None
        self.working_set_bytes = self._sets.working_set_bytes
        self.written_bytes = self._sets.written_bytes
        self.grid, self.ctas_per_sm = self._shape.grid, self._shape.ctas_per_sm
        self._arguments = [self._packed(i, env) for i in range(self._sets.count)]
        self.rotate(True)

    @property
    def sets(self) -> BufferSets:
        """The buffers, for a second version of the kernel that shares them."""
        return self._sets

    def _packed(self, index: int, env: Mapping[str, int | float]) -> Any:
        """Return the arguments of a launch on one of the buffer sets, as `_start` takes them."""
        return pack(self._kernel, self._loaded, self._params, self._addresses(index))

    def _addresses(self, index: int) -> dict[str, int]:
        scratch = {name: int(memory.data.ptr) for name, memory in self._scratch.items()}
        return self._sets.pointers(index) | scratch

    def rotate(self, on: bool) -> None:
        """Rotate over the buffer sets, or stay on the first."""
        self._next = cycle(self._arguments if on else self._arguments[:1])

    def launch(self) -> None:
        """Enqueue one launch on the lane's stream."""
        self._enqueue(self._host.stream)

    def enqueue(self, target: Any) -> None:
        """Enqueue one launch on the lane's stream, or capture it into a graph builder of that stream."""
        self._enqueue(target)

    @property
    def room(self) -> tuple[int, int]:
        """Threads and bytes of shared memory of one CTA."""
        return self._shape.block, self._shape.smem

    @property
    def report_address(self) -> int:
        """Where the kernel reports, in its first buffer set; 0 where it does not."""
        report = self._kernel.report
        return self._sets.pointers(0)[report.buffer] if report is not None else 0

    def _enqueue(self, target: Any) -> None:
        try:
            self._start(target, next(self._next))
        except driver.cuda_error() as error:
            # A launch tells of the fault of an earlier one; a `with` here would cost as much as half a launch.
            raise driver.point_error(str(error), f"launching {self._kernel.name}") from error

    def _start(self, target: Any, arguments: Any) -> None:
        self._core.launch(target, self._shape.config, self._loaded, *arguments)

    def verify(self) -> Verification:
        """Poison outputs and reset state, launch once on this lane, compare with the reference."""
        kernel = self._kernel
        self._arena.refill(self._sets, lambda spec: spec.access != "in")
        with driver.translated(f"launching {kernel.name}"):
            self._start(self._host.stream, self._arguments[0])
        self._host.sync()
        if not kernel.verify:
            return Verification(None, None, "the kernel file names no reference")
        return Verification(*self._arena.check(kernel, self._sets, self._params))

    def capture(self, launches: int) -> GraphReplay:
        """Capture that many launches, with the clock probe as census in front, on the lane's stream."""
        return GraphReplay(self._core, self._host, self._probes, self._enqueue, launches)

    def report(self) -> float | None:
        """Return what the latest launch wrote into the report buffer, per unit."""
        report = self._kernel.report
        if report is None or not self.per:
            return None
        spec = next(s for s in self._kernel.buffers if s.name == report.buffer)
        memory = self._sets.memory[report.buffer]
        value = read_back(memory[: DTYPE_BYTES[spec.dtype]], self._host.stream).view(spec.dtype)[0]
        return float(value) / self.per


class GraphReplay:
    """A graph [clock probe as census, event, launches, event]; the events lie inside it, so nothing of the host is timed."""

    def __init__(self, core: Any, host: Host, probes: Probes, enqueue: Any, launches: int) -> None:
        self._core, self._host, self._probes = core, host, probes
        self.launches = launches
        options = core.EventOptions(timing_enabled=True)
        device = host.stream.device
        self._start, self._stop = device.create_event(options), device.create_event(options)
        with driver.translated("capturing a graph"):
            self._graph = self._build(enqueue)

    def _build(self, enqueue: Any) -> Any:
        drv = driver.bindings()
        external = drv.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL
        builder = self._host.stream.create_graph_builder().begin_building()
        handle = builder.stream.handle
        self._probes.launch_clock(builder, self._host.sms)
        driver.checked(drv.cuEventRecordWithFlags(self._start.handle, handle, external))
        for _ in range(self.launches):
            enqueue(builder)
        driver.checked(drv.cuEventRecordWithFlags(self._stop.handle, handle, external))
        graph = builder.end_building().complete()
        graph.upload(self._host.stream)
        self._host.stream.sync()
        return graph

    def run(self) -> float:
        """Replay once, wait, and return the seconds between the events inside the graph."""
        self._probes.zero_stamps(self._host.stream)
        with driver.translated("replaying a graph"):
            self._graph.launch(self._host.stream)
        self._host.sync()
        return float(self._stop - self._start) / 1e3

    def smids(self) -> tuple[int, ...]:
        """Return the SM ids that the census of the latest replay saw."""
        return self._probes.read_stamps(self._host.stream).smids

    def close(self) -> None:
        """Destroy the graph, then its events."""
        try:
            self._graph.close()
            self._start.close()
            self._stop.close()
        except StickyError:
            return
