"""The launch shape of a kernel on so many SMs, from its front matter alone, and what a real device would refuse of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from greenbench.catalog import DTYPE_BYTES, Kernel
from greenbench.errors import FailedError, KernelFileError, UnsupportedError
from greenbench.gpu.buffers import written_bytes
from greenbench.gpu.hostprobes import api_of
from greenbench.gpu.modelled.faults import FaultKind
from greenbench.gpu.modelled.state import DeviceState, Key
from greenbench.schema import Family, ParamValue

RESERVED_SMEM = 1024  # what the driver keeps of each CTA's shared memory
CTAS_PER_SM = 32
# Times of a vendor's ways over that of the bound's arithmetic. Assumed, only so that they differ: a target of SMs helps where
# they are few, cuBLASLt's choice is a little better everywhere.
TARGET_GAIN, LT_GAIN = 0.03, 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is known of a kernel on so many SMs, once its expressions have values."""

    key: Key
    kernel: Kernel
    config: str
    flops: float | None
    bytes: float | None
    working_set_bytes: int
    written_bytes: int
    grid: int
    ctas_per_sm: int | None
    units: int | None
    unit_cycles: float | None
    host_us: float | None
    lasts_ns: float | None
    keeps_state: bool
    pace: float


def prepare(state: DeviceState, kernel: Kernel, params: Mapping[str, ParamValue], sms: int, *, way: str = "") -> Shape:
    """Evaluate the front matter for a lane, or for the `way` of a yardstick; raises as a real lane would."""
    device = state.facts.device
    kernel = kernel.for_arch(device.arch)
    if way and way not in kernel.yardsticks:
        raise UnsupportedError(f"{kernel.name} names no yardstick {way!r}")
    if obstacle := kernel.obstacle(device.compute_capability):
        raise UnsupportedError(obstacle)
    unit_cycles, host_us = _figures(state, kernel, params)
    variant = None if way else kernel.choose(params, sms)
    env = kernel.environment(params, sms=sms, variant=variant)
    block = kernel.launch.block.value(env)
    smem = kernel.launch.smem.value(env) if kernel.launch.smem is not None else 0
    occupancy = _occupancy(state, block, smem)
    env = kernel.environment(params, sms=sms, occupancy=occupancy, variant=variant)
    grid = 1
    for dimension in kernel.launch.grid:
        count = dimension.value(env)
        if count < 1:
            raise KernelFileError(f"{kernel.path.name}: launch.grid {dimension.text!r} is {count}; it must be at least 1")
        grid *= count
    if kernel.launch.cooperative and grid > sms * occupancy:
        raise UnsupportedError(
            f"cooperative grid of {grid} CTAs does not fit: {sms} SMs hold {sms * occupancy} "
            f"({occupancy} per SM) of {block} threads"
        )
    sizes = {spec.name: int(spec.count.value(env)) * DTYPE_BYTES[spec.dtype] for spec in kernel.operands}
    size = sum(sizes.values())
    name = f"{kernel.name}.{way}" if way else kernel.name
    key = (name, ",".join(f"{k}={v}" for k, v in sorted(params.items())), sms)
    visit = state.arrive(key, probe=kernel.family is Family.PROBE)
    free = 0 if state.faults.due(FaultKind.OUT_OF_MEMORY, visit) else device.memory_bytes
    if size > free:
        raise FailedError(f"out of memory: {name} needs {size / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free")
    return Shape(
        key=key,
        kernel=kernel,
        config=_config(way, sms) if way else api_of(params).value if kernel.host else kernel.config(variant),
        flops=None if kernel.flops is None else float(kernel.flops.value(env)),
        bytes=None if kernel.bytes is None else float(kernel.bytes.value(env)),
        working_set_bytes=size,
        written_bytes=written_bytes(kernel.operands, sizes),
        # A vendor's kernel has a launch of its own, which nobody models.
        grid=0 if way else grid,
        ctas_per_sm=None if way else occupancy,
        units=None if kernel.report is None or way else int(env[kernel.report.per]),
        unit_cycles=unit_cycles,
        host_us=host_us,
        lasts_ns=_own_length(kernel, env),
        keeps_state=any(spec.access == "state" for spec in kernel.buffers),
        pace=_pace(way, sms, device.sm_count),
    )


def _config(way: str, sms: int) -> str:
    """Return what column `config` says of a vendor's kernel."""
    return f"modelled cublas sm_count_target={sms}" if way == "cublas_sms" else f"modelled {way}"


def _pace(way: str, sms: int, whole: int) -> float:
    """Return what the time of a way is multiplied by."""
    return {"cublas_sms": 1 - TARGET_GAIN * (1 - sms / whole), "cublaslt": 1 - LT_GAIN}.get(way, 1.0)


def _figures(state: DeviceState, kernel: Kernel, params: Mapping[str, ParamValue]) -> tuple[float | None, float | None]:
    """Return the cycles and the host time that stand in the model's tables for a probe; raises UnsupportedError without them."""
    facts = state.facts
    fact = kernel.report.fact_for(params) if kernel.report else ""
    call = f"{kernel.host}_{api_of(params)}" if kernel.host else ""
    unknown = [name for name, known in ((fact, facts.probe_cycles), (call, facts.host_us)) if name and name not in known]
    if kernel.launch.pdl:
        unknown.append("launch_pdl")
    if unknown:
        raise UnsupportedError(f"nobody has published {unknown[0]} for {facts.device.name}, so it is not modelled; measure it")
    return facts.probe_cycles.get(fact), facts.host_us.get(call)


def _own_length(kernel: Kernel, env: Mapping[str, int | float]) -> float | None:
    """Return the time that a probe sets itself: one that has a parameter `ns` waits that long by the device's timer (spin)."""
    return float(env["ns"]) if kernel.family is Family.PROBE and "ns" in env else None


def _occupancy(state: DeviceState, block: int, smem: int) -> int:
    """Return CTAs per SM by threads and shared memory; registers are not known without compiling."""
    device = state.facts.device
    by_threads = device.threads_per_sm // block
    by_smem = device.smem_per_sm_bytes // (smem + RESERVED_SMEM)
    fits = smem <= device.smem_optin_bytes
    occupancy = min(by_threads, by_smem, state.facts.peaks.ctas_per_sm or CTAS_PER_SM) if fits else 0
    if occupancy < 1:
        raise UnsupportedError(f"a CTA of {block} threads and {smem} bytes of shared memory does not fit an SM of this device")
    return occupancy
