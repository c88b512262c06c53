"""What is asked, what was got and what was measured, as frozen data; the words in it are re-exported from `words`.

Times are in the unit that the field's name ends in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from greenbench.row import SCHEMA_VERSION as SCHEMA_VERSION, BoundRow as BoundRow, Row as Row
from greenbench.words import (
    Api as Api,
    Backend as Backend,
    BlockKind as BlockKind,
    BlockStatus as BlockStatus,
    Family as Family,
    Flag as Flag,
    HostAction as HostAction,
    Placement as Placement,
    Scope as Scope,
    SmsMode as SmsMode,
    Status as Status,
    StopReason as StopReason,
    Timing as Timing,
)

ParamValue = int | float | str
# The one granularity beside a device's own: units of 2 SMs, without co-scheduling.
FINE_UNIT = 2


@dataclass(frozen=True, slots=True)
class Partition:
    """The SMs and workqueue scope that are asked for; `sms` is set if and only if `mode` is `count`."""

    mode: SmsMode
    sms: int | None = None
    granularity: int | None = None
    workqueue: Scope = Scope.DRIVER_DEFAULT
    concurrency_limit: int | None = None

    @property
    def name(self) -> str:
        """`16`, `full` or `primary`: column sms_requested, and the part of a label after the @."""
        return str(self.sms) if self.mode is SmsMode.COUNT else self.mode.value


@dataclass(frozen=True, slots=True)
class Point:
    """One cell of a sweep. `params` is sorted by name and complete (front-matter defaults merged in)."""

    kernel: str
    params: tuple[tuple[str, ParamValue], ...]
    partition: Partition
    timing: Timing = Timing.AUTO
    flush_dirty: bool = False
    connections: int | None = None

    @property
    def param_text(self) -> str:
        """`m=4096,n=4096`: column params, and the brackets of a label."""
        return ",".join(f"{name}={value}" for name, value in self.params)

    def label(self, timing: Timing | None = None) -> str:
        """Name of the point: NVTX range, column `label`, join key (`kernel[params]@sms/workqueue/timing`)."""
        scope = self.partition.workqueue.value
        if self.partition.concurrency_limit is not None:
            scope += f":{self.partition.concurrency_limit}"
        name = f"{self.kernel}[{self.param_text}]@{self.partition.name}"
        if self.partition.granularity is not None:
            name += f":g{self.partition.granularity}"
        if self.connections is not None:
            name += f":c{self.connections}"
        return f"{name}/{scope}/{(timing or self.timing).value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a device said of itself; a quantity that it does not report is None."""

    name: str
    uuid: str
    index: int
    backend: Backend
    compute_capability: tuple[int, int]
    sm_count: int
    min_partition: int
    alignment: int
    driver: str
    cuda: tuple[int, int]
    nvrtc: str
    l2_bytes: int
    memory_bytes: int
    smem_per_sm_bytes: int
    smem_optin_bytes: int
    threads_per_sm: int
    split_api: str
    workqueue_obstacle: str
    max_sm_clock_mhz: int | None = None
    max_mem_clock_mhz: int | None = None
    mem_bus_bits: int | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool = False
    mps: bool = False
    compute_mode: str = "default"
    processes: tuple[int, ...] = ()
    timer_tick_ns: float | None = None
    packages: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def arch(self) -> str:
        """Target of NVRTC: `sm_90a` and newer take the architecture-specific form."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    @property
    def cuda_text(self) -> str:
        """CUDA version of the driver, `13.0`."""
        return f"{self.cuda[0]}.{self.cuda[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What was got for a partition, as read back and as the census saw it."""

    sms: int
    smids: tuple[int, ...]
    placement: Placement
    split_method: str
    unit_ids: tuple[int, ...] = ()
    remainder: bool = False
    workqueue: str = ""
    concurrency_limit: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What became known when a point was prepared on its lane; repeated in every block of it."""

    timing: Timing
    config: str
    source_digest: str
    flops: float | None
    bytes: float | None
    working_set_bytes: int
    written_bytes: int
    launches_per_sample: int
    samples_per_block: int
    verified_error: float | None
    launch_us: float
    block_s: float
    grid: int
    ctas_per_sm: int | None
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One NVML reading; what the device does not report is None. Counters are ns since driver load."""

    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_w: float | None = None
    energy_mj: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None
    power_cap_ns: int | None = None
    thermal_ns: int | None = None
    board_limit_ns: int | None = None
    hw_slowdown_ns: int | None = None
    processes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One line of blocks.csv: one visit to one point, with its samples (us per launch) and its evidence.

    The line carries the identity of its point, so that rows.csv can be made anew from the journal and run.json alone.
    """

    seq: int
    kind: BlockKind
    round: int
    attempt: int
    started: float
    seconds: float
    status: BlockStatus
    reason: str = ""
    kernel: str = ""
    params: str = ""
    sms_requested: str = ""
    granularity: int | None = None
    workqueue: Scope = Scope.DRIVER_DEFAULT
    concurrency_limit: int | None = None
    connections: int | None = None
    timing_requested: Timing = Timing.AUTO
    timing: Timing = Timing.AUTO
    config: str = ""
    source_digest: str = ""
    sms_granted: int | None = None
    sms_observed: int | None = None
    smids: str = ""
    placement: Placement | None = None
    split_method: str = ""
    flags: tuple[Flag, ...] = ()
    launches_per_sample: int | None = None
    samples_us: tuple[float, ...] = ()
    reported: tuple[float, ...] = ()
    flops: float | None = None
    bytes: float | None = None
    working_set_bytes: int | None = None
    written_bytes: int | None = None
    grid: int | None = None
    ctas_per_sm: int | None = None
    verified_error: float | None = None
    launch_host_us: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_w: float | None = None
    energy_mj: float | None = None
    temperature_c: float | None = None
    throttle: str = ""
    worker: int | None = None

    @classmethod
    def visit(
        cls,
        point: Point,
        status: BlockStatus,
        *,
        kind: BlockKind = BlockKind.BLOCK,
        round_: int = 0,
        attempt: int = 1,
        started: float = 0.0,
        seconds: float = 0.0,
        reason: str = "",
    ) -> Block:
        """Return the line of a visit to a point, with its identity and nothing measured; the journal gives it its seq."""
        return cls(
            seq=0,
            kind=kind,
            round=round_,
            attempt=attempt,
            started=started,
            seconds=seconds,
            status=status,
            reason=reason,
            kernel=point.kernel,
            params=point.param_text,
            sms_requested=point.partition.name,
            granularity=point.partition.granularity,
            workqueue=point.partition.workqueue,
            concurrency_limit=point.partition.concurrency_limit,
            connections=point.connections,
            timing_requested=point.timing,
        )

    def granted(self, grant: Grant) -> Block:
        """Return the line with what its partition was given, and the census of the lane as what was observed."""
        return replace(
            self,
            sms_granted=grant.sms,
            sms_observed=len(grant.smids),
            smids=hex(sum(1 << smid for smid in grant.smids)),
            placement=grant.placement,
            split_method=grant.split_method,
        )

    def prepared(self, prepared: Prepared) -> Block:
        """Return the line with what was settled when its point was prepared."""
        return replace(
            self.granted(prepared.grant),
            timing=prepared.timing,
            config=prepared.config,
            source_digest=prepared.source_digest,
            launches_per_sample=prepared.launches_per_sample,
            flops=prepared.flops,
            bytes=prepared.bytes,
            working_set_bytes=prepared.working_set_bytes,
            written_bytes=prepared.written_bytes,
            grid=prepared.grid,
            ctas_per_sm=prepared.ctas_per_sm,
            verified_error=prepared.verified_error,
        )

    @property
    def key(self) -> str:
        """Identity of the point within its run: equal for every block of one point, whatever came of it."""
        limit = "" if self.concurrency_limit is None else self.concurrency_limit
        return json.dumps(
            [
                self.kernel,
                self.params,
                self.sms_requested,
                self.granularity,
                self.workqueue.value,
                limit,
                self.connections,
                self.timing_requested.value,
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSummary:
    """What rows and plots need to know of a kernel, kept in run.json so that results outlive the library."""

    name: str
    family: Family
    dtype: str
    summary: str
    digest: str
    reports: bool = False
    yardstick_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeta:
    """run.json: everything that is the same for all points of a run."""

    run_id: str
    created: str
    greenbench: str
    command: str
    argv: tuple[str, ...]
    seed: int
    device: DeviceFacts
    plan: dict[str, object] = field(default_factory=dict)
    kernels: tuple[KernelSummary, ...] = ()
    points: tuple[Point, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    clocks_before: Evidence | None = None
    clocks_after: Evidence | None = None
    notes: tuple[str, ...] = ()
    profiled: bool = False
    finished: str = ""
    schema: int = SCHEMA_VERSION
