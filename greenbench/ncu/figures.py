"""What the metrics of Nsight Compute say of a partition: per-SM percentages related to its SMs, and proof of where it ran.

ncu relates `pct_of_peak_sustained_elapsed` to all units of the device. Of units that come with an SM (sm__, its tensor pipe) a
partition has a share, so those are multiplied by device SMs / partition SMs. L2 and DRAM serve the whole device: their
percentages stay. `pct_of_peak_sustained_active` counts active SMs alone and stays as well. The names below are those of
ncu 2022 to 2025; where a version has another spelling the second name of a tuple is tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from greenbench.ncu.page import Launch
from greenbench.stats import median

# -- the metrics that are relied on ------------------------------------------------------------------------------------
DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg")
SM = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
TENSOR_CYCLES = re.compile(r"sm__pipe_tensor\w*cycles_active\.avg\.pct_of_peak_sustained_(elapsed|active)")
TENSOR_ISSUED = re.compile(r"sm__inst_executed_pipe_tensor\w*\.avg\.pct_of_peak_sustained_(elapsed|active)")
L2 = ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed")
L2_HIT = ("lts__t_sector_hit_rate.pct",)
DRAM = ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed")
DRAM_RATE = ("dram__bytes.sum.per_second",)
CLOCK = ("gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")
CYCLES = ("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max")
OCCUPANCY = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
SM_COUNT = ("launch__sm_count",)
TPC_COUNT = ("launch__tpc_count",)
TPC_IDS = ("launch__tpc_enabled",)
USES_GREEN = ("launch__uses_green_context",)
GREEN_ID = ("launch__green_context_id",)
# ----------------------------------------------------------------------------------------------------------------------

# A percentage may round past 100; what is further above was never of the device.
MOST_PCT = 102.0
CONFINED, LEAKED, UNPROVEN = "confined", "leaked", "unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuRow:
    """One launch: a line of ncu.csv. What this ncu did not collect, or what would mislead, is None.

    `*_device_pct` are ncu's own, of the whole device; `sm_pct` and `tensor_pct` are of the partition's SMs.
    """

    launch: int
    label: str
    kernel: str
    sms_granted: int
    device_sms: int
    placement: str
    ncu_sms: int | None
    ncu_tpcs: int | None
    tpc_ids: str
    uses_green_context: int | None
    green_context_id: int | None
    duration_us: float | None
    sm_clock_mhz: float | None
    sm_pct: float | None
    sm_device_pct: float | None
    tensor_pct: float | None
    tensor_device_pct: float | None
    tensor_metric: str
    l2_device_pct: float | None
    l2_hit_pct: float | None
    dram_device_pct: float | None
    dram_gb_per_s: float | None
    occupancy_pct: float | None
    sweep_us: float | None
    sweep_clock_mhz: float | None
    difference_pct: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """The point as a sweep measured it: us per launch, and the SM clock in MHz."""

    time_us: float
    clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class Where:
    """What a point was given: `green` is False for the primary context."""

    label: str
    sms: int
    device_sms: int
    green: bool


def related(percent: float | None, where: Where) -> float | None:
    """Return a percentage of all SMs of the device as one of the partition's; None where it cannot have been of the device."""
    if percent is None:
        return None
    share = percent * where.device_sms / where.sms
    return share if share <= MOST_PCT else None


def ncu_row(launch: Launch, where: Where, measured: Measured | None) -> NcuRow:
    """Return the figures of one launch."""
    duration = launch.number(*DURATION)
    duration_us = None if duration is None else duration / 1e3
    sm, tensor = launch.number(*SM), _tensor(launch)
    rate = launch.number(*DRAM_RATE)
    return NcuRow(
        launch=launch.whole("ID") or 0,
        label=where.label,
        kernel=launch.text("Kernel Name"),
        sms_granted=where.sms,
        device_sms=where.device_sms,
        placement=placement(launch, where),
        ncu_sms=launch.whole(*SM_COUNT),
        ncu_tpcs=launch.whole(*TPC_COUNT),
        tpc_ids=launch.text(*TPC_IDS),
        uses_green_context=launch.whole(*USES_GREEN),
        green_context_id=launch.whole(*GREEN_ID),
        duration_us=duration_us,
        sm_clock_mhz=clock_mhz(launch),
        sm_pct=related(sm, where),
        sm_device_pct=sm,
        tensor_pct=tensor.of(where),
        tensor_device_pct=tensor.percent if tensor.elapsed else None,
        tensor_metric=tensor.name,
        l2_device_pct=launch.number(*L2),
        l2_hit_pct=launch.number(*L2_HIT),
        dram_device_pct=launch.number(*DRAM),
        dram_gb_per_s=None if rate is None else rate / 1e9,
        occupancy_pct=launch.number(*OCCUPANCY),
        sweep_us=measured.time_us if measured else None,
        sweep_clock_mhz=measured.clock_mhz if measured else None,
        difference_pct=100 * (duration_us / measured.time_us - 1) if measured and duration_us else None,
    )


@dataclass(frozen=True, slots=True)
class _Tensor:
    """The busiest tensor metric: of elapsed time on the whole device, or of active SMs alone."""

    name: str
    percent: float | None
    elapsed: bool

    def of(self, where: Where) -> float | None:
        return related(self.percent, where) if self.elapsed else self.percent


def _tensor(launch: Launch) -> _Tensor:
    """Return the tensor pipe: its cycles, else its instructions; of elapsed time where that was collected, else of active SMs."""
    for pattern in (TENSOR_CYCLES, TENSOR_ISSUED):
        found = [(match[1], name) for name in launch.cells if (match := pattern.fullmatch(name))]
        for kind in ("elapsed", "active"):
            values = [(value, name) for word, name in found if word == kind and (value := launch.number(name)) is not None]
            if values:
                value, name = max(values)
                return _Tensor(name, value, kind == "elapsed")
    return _Tensor("", None, elapsed=False)


def clock_mhz(launch: Launch) -> float | None:
    """Return the SM clock under ncu: its rate, else cycles over time; both are of the device's clock domain."""
    rate = launch.number(*CLOCK)
    if rate is not None:
        return _as_mhz(rate, launch.units.get(next(name for name in CLOCK if launch.number(name) is not None), ""))
    cycles, duration = launch.number(*CYCLES), launch.number(*DURATION)
    return cycles / duration * 1e3 if cycles and duration else None


def _as_mhz(rate: float, unit: str) -> float:
    """Bring hertz, cycles per ns and their like to MHz; the units of rates changed with the versions."""
    scale = {"hz": 1e-6, "khz": 1e-3, "mhz": 1.0, "ghz": 1e3, "cycle/nsecond": 1e3, "cycle/ns": 1e3, "cycle/usecond": 1.0}
    return rate * scale.get(unit.lower(), 1e-6)


def placement(launch: Launch, where: Where) -> str:
    """Say whether LaunchStats shows the partition: as many SMs as were granted, in a green context where there should be one."""
    sms, green = launch.whole(*SM_COUNT), launch.whole(*USES_GREEN)
    if sms is None:
        return UNPROVEN
    if sms != where.sms or (green is not None and bool(green) != where.green):
        return LEAKED
    return UNPROVEN if green is None and where.green else CONFINED


def doubts(rows: Sequence[NcuRow]) -> list[str]:
    """Return what a reader must know of these figures, one sentence each."""
    told = []
    if any(row.sm_device_pct is not None and row.sm_pct is None for row in rows):
        told.append(
            "sm_pct is left empty: related to the partition it would be above 100 %, so this ncu seems to relate percentages "
            "to the partition already; sm_device_pct has its figure"
        )
    clocks = [(row.sm_clock_mhz, row.sweep_clock_mhz) for row in rows]
    if any(ncu and sweep and abs(ncu / sweep - 1) > 0.01 for ncu, sweep in clocks):
        ncu = median([clock for clock, _ in clocks if clock])
        told.append(
            f"the SM clock was {ncu:.0f} MHz under ncu and {clocks[0][1]:.0f} MHz in the sweep: compare cycles, not times"
        )
    if any(row.placement == UNPROVEN for row in rows):
        told.append("this ncu does not say whether a launch used a green context; the sweep's own census proves the partition")
    return told
