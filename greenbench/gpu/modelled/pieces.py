"""The calls of a step on the modelled device: each prepared for its role's lane, and as a kernel of the queueing model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from greenbench.bounds import latency_cycles
from greenbench.catalog import Kernel
from greenbench.errors import FailedError, UnsupportedError
from greenbench.facts import ModelFacts
from greenbench.gpu.modelled.lane import ModelledLane
from greenbench.gpu.modelled.shape import Shape, prepare
from greenbench.gpu.modelled.state import DeviceState
from greenbench.gpu.modelled.work import ModelledWork
from greenbench.queueing import Piece, predicted
from greenbench.schema import Family
from greenbench.workload import Call

# A transfer from pinned host memory by a copy engine: no kernel of the library.
COPY = "memcpy_h2d"
# What such transfers reach over 16 lanes of PCIe 5 (63 GB/s in each direction by its specification); assumed, not measured.
PCIE_GB_S = 55.0
# A grid that is larger on so many times the SMs follows them.
MORE_SMS = 2
LEAST_US = 1e-3


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One distinct call of a step; a transfer has neither shape nor work. `by_sms` marks a grid sized by the lane's SMs."""

    call: Call
    copied_bytes: int = 0
    shape: Shape | None = None
    work: ModelledWork | None = None
    by_sms: bool = False

    @property
    def working_set_bytes(self) -> int:
        """What its buffers take."""
        return self.shape.working_set_bytes if self.shape else self.copied_bytes

    @property
    def flops(self) -> float | None:
        """Floating-point operations of one launch, None where the kernel does not declare them."""
        return self.shape.flops if self.shape else 0.0

    @property
    def bytes(self) -> float | None:
        """Bytes moved by one launch, None where the kernel does not declare them."""
        return self.shape.bytes if self.shape else float(self.copied_bytes)

    @property
    def config(self) -> str:
        """`gemm_bf16: sm_90a-256x128`, empty where there is nothing to choose."""
        return f"{self.call.kernel}: {self.shape.config}" if self.shape and self.shape.config else ""


def prepare_call(state: DeviceState, lane: ModelledLane, call: Call, kernels: Mapping[str, Kernel]) -> PreparedCall:
    """Prepare a call for a lane; raises UnsupportedError or FailedError as a real lane would."""
    params = dict(call.params)
    if call.kernel == COPY:
        moved = params.get("bytes")
        if not isinstance(moved, int) or moved < 1:
            raise UnsupportedError(f"{COPY}: a transfer of {moved} bytes moves nothing; give bytes = 1 or more")
        return PreparedCall(call, copied_bytes=moved)
    kernel = kernels.get(call.kernel)
    if kernel is None:
        raise FailedError(f"there is no kernel {call.kernel!r}; add its folder with --kernels-dir")
    if kernel.host:
        raise UnsupportedError(f"{call.kernel} is timed by the host and cannot be part of a step")
    shape = prepare(state, kernel, params, lane.sms)
    return PreparedCall(call, 0, shape, ModelledWork(lane, state, shape), _follows_sms(shape, call, lane.sms))


def _follows_sms(shape: Shape, call: Call, sms: int) -> bool:
    """Return whether the grid would be larger on more SMs: its CTAs stay to the end, and none waits for a wave before it.

    A grid that is capped by its work instead (`min(sms, tiles)` with fewer tiles) is an ordinary one.
    """
    # The variant was compiled for this lane; a larger one would have been given another.
    kernel = shape.kernel
    variant = kernel.choose(call.params, sms)
    env = kernel.environment(call.params, sms=MORE_SMS * sms, occupancy=shape.ctas_per_sm or 0, variant=variant)
    return math.prod(int(dimension.value(env)) for dimension in kernel.launch.grid) > shape.grid


def piece(model: ModelFacts, prepared: PreparedCall, *, resident: bool, sm_clock_mhz: float) -> Piece:
    """Return a call as a kernel of the queueing model, at this SM clock; `resident`: the step's buffers fit the L2.

    The queueing model has no copy engines: a transfer is a kernel of one CTA, which therefore holds one SM, and its bytes are
    written to HBM at the rate of the link.
    """
    shape, name = prepared.shape, prepared.call.kernel
    if shape is None:
        us = max(prepared.copied_bytes / (PCIE_GB_S * 1e3), LEAST_US)
        return Piece(lambda _: us, prepared.copied_bytes, 1, 1, name)
    grid = None if prepared.by_sms else max(shape.grid, 1)
    occupancy = shape.ctas_per_sm or 1
    own_us = _own_time_us(model, shape, sm_clock_mhz)
    if own_us is not None:
        return Piece(lambda _: own_us, 0.0, grid, occupancy, name)
    work = predicted.Work(
        family=shape.kernel.family.value,
        dtype=shape.kernel.dtype,
        flops=shape.flops,
        bytes=shape.bytes,
        written_bytes=shape.written_bytes,
        working_set_bytes=shape.working_set_bytes,
        grid=grid,
        ctas_per_sm=occupancy,
        resident=resident or shape.keeps_state,
        name=name,
    )
    return predicted.piece(model, work, sm_clock_mhz)


def _own_time_us(model: ModelFacts, shape: Shape, sm_clock_mhz: float) -> float | None:
    """Return the time of a kernel that takes as long on any SMs: one that waits, or a chain of dependent operations."""
    if shape.lasts_ns is not None:
        return max(shape.lasts_ns / 1e3, LEAST_US)
    if shape.units and shape.kernel.family is Family.LATENCY:
        cycles = shape.unit_cycles or latency_cycles(model, shape.working_set_bytes)
        return max(shape.units * cycles / sm_clock_mhz, LEAST_US)
    return None


def reported(prepared: PreparedCall, us: float, sm_clock_mhz: float) -> float | None:
    """Return the cycles per unit that a launch of this time reports of itself; None for a kernel that reports none.

    Only reports of latency kernels are cycles; what others write (shares, times of a timer) takes code that nobody runs here.
    """
    shape = prepared.shape
    if shape is None or not shape.units or shape.kernel.family is not Family.LATENCY:
        return None
    return us * sm_clock_mhz / shape.units
