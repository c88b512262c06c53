"""rows.csv of `colocate` and `switch` as data: its columns are the fields of CoRow, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from greenbench.row import SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class CoRow:
    """One line: the outcome of a point for one role, or of a switch point for all tenants. Empty means not measured.

    Identity, partition, evidence and outcome are the columns of Row; `kernel` is the workload and `params` are its own. Only `ok`
    rows carry figures, and a saturated role has no percentiles. `slo_met` and `saturated` are `true`, `false` or empty where it
    cannot be told; `arrivals` says whose clock starts a step: `device`, `host`, or `closed` where a step starts the next one.
    """

    schema: int = SCHEMA_VERSION
    run_id: str = ""
    label: str = ""
    device: str = ""
    device_uuid: str = ""
    driver: str = ""
    cuda: str = ""
    nvrtc: str = ""
    backend: str = ""
    kernel: str = ""
    family: str = ""
    dtype: str = ""
    params: str = ""
    config: str = ""
    source_digest: str = ""
    sms_requested: str = ""
    sms_granted: int | None = None
    sms_observed: int | None = None
    placement: str = ""
    granularity: int | None = None
    workqueue: str = ""
    concurrency_limit: int | None = None
    connections: int | None = None
    mechanism: str = ""
    role: str = ""
    arrivals: str = ""
    process: str = ""
    rate_per_s: float | None = None
    processes: int | None = None
    steps: int | None = None
    step_us_p50: float | None = None
    step_us_p95: float | None = None
    step_us_p99: float | None = None
    itl_us_p50: float | None = None
    itl_us_p95: float | None = None
    itl_us_p99: float | None = None
    ttft_us_p50: float | None = None
    ttft_us_p95: float | None = None
    ttft_us_p99: float | None = None
    tokens_per_s: float | None = None
    goodput_rps: float | None = None
    slo: str = ""
    slo_met: str = ""
    saturated: str = ""
    throughput_per_s: float | None = None
    throughput_pct: float | None = None
    overlap_frac: float | None = None
    slowdown: float | None = None
    slowdown_compute: float | None = None
    slowdown_l2: float | None = None
    slowdown_hbm: float | None = None
    slowdown_copy: float | None = None
    launch_late_us: float | None = None
    clock_error_us: float | None = None
    switch_us: float | None = None
    l2_retained_pct: float | None = None
    create_us: float | None = None
    destroy_us: float | None = None
    first_launch_us: float | None = None
    gap_us: float | None = None
    energy_mj_per_op: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    power_w: float | None = None
    energy_mj: float | None = None
    temperature_c: float | None = None
    throttle: str = ""
    flags: str = ""
    verified_error: float | None = None
    status: str = ""
    reason: str = ""
