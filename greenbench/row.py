"""rows.csv and bounds.csv as data: their columns are the fields of Row and of BoundRow, in their order."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of rows.csv: the outcome of a point. Empty means not measured; only `ok` rows carry figures."""

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
    timing: str = ""
    rounds: int | None = None
    samples: int | None = None
    stop_reason: str = ""
    time_us: float | None = None
    time_us_ci_low: float | None = None
    time_us_ci_high: float | None = None
    time_us_min: float | None = None
    time_us_p95: float | None = None
    time_us_p99: float | None = None
    noise_pct: float | None = None
    cycles: float | None = None
    launch_host_us: float | None = None
    flops: float | None = None
    bytes: float | None = None
    working_set_bytes: int | None = None
    tflop_per_s: float | None = None
    gb_per_s: float | None = None
    latency_cycles: float | None = None
    latency_ns: float | None = None
    bound_us: float | None = None
    bound_by: str = ""
    bound_pct: float | None = None
    speedup: float | None = None
    efficiency_pct: float | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRow:
    """One line of bounds.csv: an ok row beside what its SMs could do, by specification and as measured in the same run."""

    schema: int = SCHEMA_VERSION
    run_id: str = ""
    label: str = ""
    kernel: str = ""
    family: str = ""
    dtype: str = ""
    sms_granted: int | None = None
    timing: str = ""
    time_us: float | None = None
    sm_clock_mhz: float | None = None
    tflop_per_s: float | None = None
    gb_per_s: float | None = None
    grid: int | None = None
    ctas_per_sm: int | None = None
    wave_efficiency_pct: float | None = None
    spec_tflop_per_s: float | None = None
    spec_hbm_gb_per_s: float | None = None
    spec_link_gb_per_s: float | None = None
    spec_l2_gb_per_s: float | None = None
    bound_us: float | None = None
    bound_by: str = ""
    bound_pct: float | None = None
    measured_tflop_per_s: float | None = None
    measured_hbm_read_gb_per_s: float | None = None
    measured_hbm_write_gb_per_s: float | None = None
    measured_hbm_mixed_gb_per_s: float | None = None
    measured_l2_read_gb_per_s: float | None = None
    measured_us: float | None = None
    measured_by: str = ""
    measured_kernel: str = ""
    measured_pct: float | None = None
    flags: str = ""
