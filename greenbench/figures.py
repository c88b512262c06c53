"""The figures of one point from the blocks that count: times, rates, clocks, evidence. A quantity that is not there is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from greenbench import stats
from greenbench.schema import Block, BlockStatus, Flag, StopReason, Timing

# The energy counter steps every 0.1 s, so an energy needs seconds.
ENERGY_WINDOW_S = 2.0
CLOCK_SPREAD = 0.015
PRECISE_PCT = 0.5
# A point that failed is tried once more in the same round; attempts count from 1.
TRIES = 2
# A block that is discarded is taken again twice; then its point is given up.
TAKES = 3


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of what was measured, None where nothing was."""
    known = [value for value in values if value is not None]
    return stats.median(known) if known else None


def last_of(values: Iterable[float | None]) -> float | None:
    """Return the last known value of a quantity that is the same in every block."""
    return next((value for value in reversed(list(values)) if value is not None), None)


def block_medians(blocks: Sequence[Block]) -> list[float]:
    """Return the median of each block: the data that everything else is derived from."""
    return [stats.median(block.samples_us) for block in blocks]


def times(blocks: Sequence[Block]) -> dict[str, float | int | None]:
    """Return the columns of group `time` (and samples, rounds) of blocks that all have samples."""
    medians = block_medians(blocks)
    samples = [sample for block in blocks for sample in block.samples_us]
    # A sample of several launches is a mean, and tails of means are not tails.
    single = samples if all(block.launches_per_sample == 1 for block in blocks) else []
    low, high = stats.median_interval(medians) or (None, None)
    return {
        "rounds": len({block.round for block in blocks}),
        "samples": len(samples),
        "time_us": stats.median(medians),
        "time_us_ci_low": low,
        "time_us_ci_high": high,
        "time_us_min": min(samples),
        "time_us_p95": stats.percentile(single, 95, stats.P95_LEAST),
        "time_us_p99": stats.percentile(single, 99, stats.P99_LEAST),
        "noise_pct": stats.noise_pct(samples),
        "launch_host_us": median_of(block.launch_host_us for block in blocks),
    }


def rates(blocks: Sequence[Block], time_us: float, clock_mhz: float | None) -> dict[str, float | None]:
    """Return work and rates: what the kernel declares over the time, and what it measured of itself."""
    flops = last_of(block.flops for block in blocks) or None
    moved = last_of(block.bytes for block in blocks) or None
    latency = median_of(value for block in blocks for value in block.reported)
    return {
        "flops": flops,
        "bytes": moved,
        "tflop_per_s": flops / time_us / 1e6 if flops and time_us > 0 else None,
        "gb_per_s": moved / time_us / 1e3 if moved and time_us > 0 else None,
        # The host's time is no number of the SM's cycles.
        "cycles": time_us * clock_mhz if clock_mhz and blocks[-1].timing is not Timing.HOST else None,
        "latency_cycles": latency,
        "latency_ns": latency * 1e3 / clock_mhz if latency is not None and clock_mhz else None,
    }


def evidence(blocks: Sequence[Block]) -> dict[str, float | str | None]:
    """Return clocks, power and temperature as medians over blocks, energy per block where its window carries one."""
    return {
        "sm_clock_mhz": median_of(block.sm_clock_mhz for block in blocks),
        "mem_clock_mhz": median_of(block.mem_clock_mhz for block in blocks),
        "power_w": median_of(block.power_w for block in blocks),
        "energy_mj": median_of(block.energy_mj for block in blocks if block.seconds >= ENERGY_WINDOW_S),
        "temperature_c": median_of(block.temperature_c for block in blocks),
        "throttle": throttle(blocks),
    }


def throttle(blocks: Sequence[Block]) -> str:
    """Return every throttle reason that was seen, once, in the order of the first."""
    words = (word.strip() for block in blocks for word in block.throttle.split(";"))
    return ";".join(dict.fromkeys(word for word in words if word))


def flags(blocks: Sequence[Block], *extra: tuple[Flag, bool]) -> str:
    """Return the flags of the blocks, those that only all blocks together show, and the `extra` ones that hold."""
    found = {flag for block in blocks for flag in block.flags}
    found |= {flag for flag, holds in extra if holds}
    if stats.is_bimodal(block_medians(blocks)):
        found.add(Flag.BIMODAL)
    clocks = [block.sm_clock_mhz for block in blocks if block.sm_clock_mhz]
    if clocks and max(clocks) > (1 + CLOCK_SPREAD) * min(clocks):
        found.add(Flag.CLOCK_UNSTABLE)
    return ";".join(flag for flag in Flag if flag in found)


def stop_reason(plan: Mapping[str, object], good: Sequence[Block], standing: Sequence[Block], finished: bool) -> StopReason:
    """Return why no more blocks were taken, read off the point's lines: those that count, and all that were not taken back."""
    least, most = (_whole(plan.get(key)) for key in ("rounds", "max_rounds"))
    width = stats.half_width_pct(block_medians(good))
    # A narrow interval ends a point only after the rounds that were asked for.
    if width is not None and width <= PRECISE_PCT and len(good) >= (least or 0):
        return StopReason.PRECISE
    if most is not None and len(good) >= most:
        return StopReason.MAX_ROUNDS
    thrown = len(list(takewhile(lambda block: block.status is BlockStatus.DISCARDED, reversed(standing))))
    if thrown >= TAKES or (thrown and finished):
        return StopReason.IDLE if standing[-1].reason.startswith("idle") else StopReason.THROTTLED
    if not finished:
        return StopReason.INTERRUPTED
    # Blocks that were taken back use up rounds as well; a campaign makes up for some of them.
    used_up = most is not None and standing[-1].round >= most + TRIES
    return StopReason.MAX_ROUNDS if used_up or plan.get("time_limit_s") is None else StopReason.TIME_LIMIT


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
