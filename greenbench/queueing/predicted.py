"""Devices and kernels of a co-location out of the facts of a modelled device and `bounds.predict`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from greenbench import bounds
from greenbench.facts import ModelFacts
from greenbench.queueing.model import Device, Piece


@dataclass(frozen=True, slots=True)
class Work:
    """What one kernel does, as `bounds.predict` asks for it; the grid is None for a persistent kernel."""

    family: str
    dtype: str
    flops: float | None = None
    bytes: float | None = None
    written_bytes: float | None = None
    working_set_bytes: int | None = None
    grid: int | None = None
    ctas_per_sm: int = 1
    resident: bool = False
    name: str = ""


def device(model: ModelFacts) -> Device:
    """Return the device of a model: HBM at the share of its bus that kernels reach, a launch's time between two kernels."""
    hbm = model.peaks.hbm_gb_s
    reached = hbm * model.achieved["memory"] if hbm else None
    return Device(model.device.sm_count, reached, gap_us=model.launch_us, jitter_pct=model.jitter_pct)


def piece(model: ModelFacts, work: Work, sm_clock_mhz: float | None = None) -> Piece:
    """Return the kernel with its predicted time on n SMs, without the launch, which is the device's gap between kernels.

    Without a clock it is the model's own.
    """
    moved = work.bytes or 0.0
    if work.resident:
        moved = bounds.hbm_bytes(model.device, moved, work.working_set_bytes)
    return Piece(_times(model, work, sm_clock_mhz), moved, work.grid, work.ctas_per_sm, work.name)


def _times(model: ModelFacts, work: Work, sm_clock_mhz: float | None) -> Callable[[int], float]:
    @cache
    def us(sms: int) -> float:
        found = bounds.predict(
            model,
            family=work.family,
            dtype=work.dtype,
            flops=work.flops,
            bytes=work.bytes,
            sms=sms,
            working_set_bytes=work.working_set_bytes,
            written_bytes=work.written_bytes,
            grid=work.grid,
            resident=work.resident,
            sm_clock_mhz=sm_clock_mhz,
        )
        # A kernel that does nothing measurable still ends after it starts.
        return max(found.us - model.launch_us, 1e-3)

    return us
