"""The figures of tenants that share a device, from stamps of their operations: throughput, tails, turns, what an L2 kept.

Stamps are in ns on one clock. A quantity that the data cannot carry is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenbench.arrivals import NS_PER_S
from greenbench.figures import ENERGY_WINDOW_S
from greenbench.stats import median
from greenbench.tails import P50_LEAST, StepTimes, Tail, tail

# Clocks rise and caches fill: the first twentieth of the time that all tenants run is not counted.
WARM_SHARE = 0.05
# A report of the kernel `tenant` is 1000 times a share.
WHOLE = 1000.0


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of one tenant in order; `reported` is what each said of the L2, empty where it has no working set."""

    times: StepTimes
    reported: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """[begin, end) in ns: when every tenant was at work, its first twentieth aside."""

    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.begin_ns) / NS_PER_S


def window(tenants: Sequence[Operations]) -> Window | None:
    """Return when all tenants were at work: from the last one's first due operation to the first one's last end.

    None where a tenant ended no operation, or where there is no such time.
    """
    if not tenants or not all(len(tenant.times) for tenant in tenants):
        return None
    begin = max(tenant.times.intended_ns[0] for tenant in tenants)
    end = min(max(tenant.times.end_ns) for tenant in tenants)
    begin += round(WARM_SHARE * max(end - begin, 0))
    return Window(begin, end) if end > begin else None


def throughput_per_s(tenants: Sequence[Operations], within: Window) -> float:
    """Return the operations of all tenants that ended within the window, a second."""
    ended = sum(within.begin_ns < end <= within.end_ns for tenant in tenants for end in tenant.times.end_ns)
    return ended / within.seconds


def share_pct(throughput: float | None, alone: float | None) -> float | None:
    """Return a throughput in % of that of one process alone."""
    return 100 * throughput / alone if throughput is not None and alone else None


def step_tail(tenants: Sequence[Operations], within: Window) -> Tail:
    """Return the percentiles of (end - due) over the operations of all tenants that were due within the window, in us."""
    inside = [tenant.times.due_within(within.begin_ns, within.end_ns) for tenant in tenants]
    return tail([latency for times in inside for latency in times.latencies_us])


def overlap_frac(tenants: Sequence[Operations], within: Window) -> float | None:
    """Return the share of the window in which operations of two tenants or more were under way; None for one tenant.

    An operation that lost the device on the way counts as under way until it ends.
    """
    import numpy as np

    from greenbench.timeline.intervals import merge, time_by_active

    if len(tenants) < 2:
        return None
    sets = []
    for tenant in tenants:
        start, end = (np.clip(np.asarray(stamps, np.int64), within.begin_ns, within.end_ns) for stamps in _stamps(tenant))
        sets.append(merge(start, end))
    at_once = sum(ns for active, ns in time_by_active(sets).items() if active >= 2)
    return at_once / (within.end_ns - within.begin_ns)


def _stamps(tenant: Operations) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tenant.times.start_ns, tenant.times.end_ns


def turn_gaps_ns(tenants: Sequence[Operations]) -> list[int]:
    """Return the gaps at which the device changed hands: from the end of all that was under way to another tenant's next start.

    Where an operation was interrupted it is under way during the turns of others, and such a change has no gap that stamps of
    whole operations show.
    """
    ordered = sorted((start, end, who) for who, tenant in enumerate(tenants) for start, end in zip(*_stamps(tenant), strict=True))
    gaps: list[int] = []
    last_end, last = -1, -1
    for start, end, who in ordered:
        if last >= 0 and who != last and start >= last_end:
            gaps.append(start - last_end)
        if last < 0 or end >= last_end:
            last_end, last = end, who
    return gaps


def switch_us(tenants: Sequence[Operations]) -> float | None:
    """Return the median gap of a turn in us; None where fewer than 6 turns can be told."""
    gaps = turn_gaps_ns(tenants)
    return median(gaps) / 1e3 if len(gaps) >= P50_LEAST else None


def l2_retained_pct(tenants: Sequence[Operations]) -> float | None:
    """Return how much of its working set an operation found in the L2, in %: the mean of those after others had been at work.

    For one tenant that is every operation but the first. None where nothing was reported.
    """
    found: list[float] = []
    for who, tenant in enumerate(tenants):
        if not tenant.reported:
            continue
        others = [other for other in range(len(tenants)) if other != who]
        disturbed = _disturbed(tenant, [tenants[other] for other in others])
        found += [value for value, counts in zip(tenant.reported[1:], disturbed, strict=True) if counts]
    return 100 * sum(found) / len(found) / WHOLE if found else None


def _disturbed(tenant: Operations, others: Sequence[Operations]) -> Iterable[bool]:
    """Tell of each operation but the first whether another tenant was at work since the one before had started."""
    import numpy as np

    if not others:
        return [True] * (len(tenant.times) - 1)
    starts, ends = (np.sort(np.concatenate([np.asarray(_stamps(other)[i], np.int64) for other in others])) for i in (0, 1))
    own = np.asarray(tenant.times.start_ns, np.int64)
    begun = np.searchsorted(starts, own[1:], side="left")
    over = np.searchsorted(ends, own[:-1], side="right")
    return [bool(each) for each in begun > over]


def energy_mj_per_op(before_mj: float | None, after_mj: float | None, seconds: float, operations: int) -> float | None:
    """Return the device's energy over its operations; None where the window is below two seconds or the counter went back."""
    if before_mj is None or after_mj is None or seconds < ENERGY_WINDOW_S or not operations or after_mj < before_mj:
        return None
    return (after_mj - before_mj) / operations


def gap_us(before: Sequence[Operations], after: Sequence[Operations]) -> float | None:
    """Return the time from the last end of one phase to the first start of the next in us, None where a phase is empty."""
    ends = [end for tenant in before for end in tenant.times.end_ns]
    starts = [start for tenant in after for start in tenant.times.start_ns]
    gap = min(starts) - max(ends) if starts and ends else -1
    return gap / 1e3 if gap >= 0 else None
