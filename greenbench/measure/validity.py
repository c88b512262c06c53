"""Whether a block counts: throttling, power cap, idle clocks, foreign processes, placement (the validity table)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from greenbench.schema import BlockStatus, Evidence, Flag

IDLE = 0x1
POWER_CAP = 0x4
HARD = {0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "power_brake"}
POWER_CAP_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the evidence around a block says of it."""

    status: BlockStatus
    reason: str
    flags: tuple[Flag, ...]
    throttle: str


def judge(before: Evidence, after: Evidence, seconds: float, *, own_processes: int = 1) -> Judgement:
    """Compare two NVML readings around a block: throttled and idle blocks are discarded, capped and contended ones flagged."""
    lost = {
        "thermal": _grew(before.thermal_ns, after.thermal_ns),
        "hw_slowdown": _grew(before.hw_slowdown_ns, after.hw_slowdown_ns),
    }
    bits = (before.reasons or 0) | (after.reasons or 0)
    hard = sorted({name for bit, name in HARD.items() if bits & bit} | {name for name, ns in lost.items() if ns > 0})
    flags = []
    if bits & POWER_CAP or _grew(before.power_cap_ns, after.power_cap_ns) > POWER_CAP_SHARE * seconds * 1e9:
        flags.append(Flag.POWER_CAPPED)
    if foreign(after.processes, own_processes):
        flags.append(Flag.CONTENDED)
    throttle = [*hard, *(["power_cap"] if Flag.POWER_CAPPED in flags else [])]
    if hard:
        return Judgement(BlockStatus.DISCARDED, f"throttled: {', '.join(hard)}", tuple(flags), ";".join(throttle))
    if (before.reasons or 0) & IDLE and (after.reasons or 0) & IDLE:
        return Judgement(BlockStatus.DISCARDED, "idle clocks during the block", tuple(flags), ";".join(throttle))
    return Judgement(BlockStatus.OK, "", tuple(flags), ";".join(throttle))


def _grew(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else max(after - before, 0)


def foreign(processes: tuple[int, ...], own: int = 1, pid: int | None = None) -> bool:
    """Return True if more processes hold this GPU than greenbench's own `own` ones.

    NVML may list ids of another namespace, where our own cannot be recognised: then only the number can be compared.
    """
    me = os.getpid() if pid is None else pid
    return len(processes) > own if processes and me not in processes else len(set(processes) - {me}) > own - 1
