"""What a kernel cannot beat on n SMs, what it may be predicted to take, and when a figure is impossible.

Times are us, rates bytes or FLOP per clock, clocks MHz: bytes / (bytes per clock * MHz) is then us.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from greenbench.facts import ModelFacts, Peaks
from greenbench.schema import DeviceFacts, Family

ALLOWANCE = 1.02
QUANTISED = 1.05
SHARPNESS = 6.0
# Their data begin every launch outside the SM, whatever the launch before left in its L1.
PAST_L1 = (Family.MEMORY, Family.GEMM)


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of one launch, and what sets it: compute, waves, memory, link, l2 (a prediction also latency, launch)."""

    us: float
    by: str


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Nominal ceilings of n SMs at one clock; None (or a dtype that is missing) where the limit is unknown."""

    sms: int
    clock_mhz: float | None
    hbm_gb_s: float | None
    link_gb_s: float | None
    l2_gb_s: float | None
    tflop_s: Mapping[str, float]

    @property
    def memory_gb_s(self) -> float | None:
        """Return what these SMs can move from HBM: the bus, or their links to the L2 where those are narrower."""
        return min((rate for rate in (self.hbm_gb_s, self.link_gb_s) if rate), default=None)

    @property
    def resident_gb_s(self) -> float | None:
        """Return what these SMs can move from the L2: their links, or the L2 where that is narrower."""
        return min((rate for rate in (self.l2_gb_s, self.link_gb_s) if rate), default=None)


class Figure(Protocol):
    """The part of a row that is judged (schema.Row has it)."""

    @property
    def dtype(self) -> str: ...
    @property
    def sms_granted(self) -> int | None: ...
    @property
    def time_us(self) -> float | None: ...
    @property
    def flops(self) -> float | None: ...
    @property
    def bytes(self) -> float | None: ...
    @property
    def working_set_bytes(self) -> int | None: ...


def quantisation(grid: int | None, sms: int) -> float:
    """Return by how much whole waves lengthen tiled work: ceil(T/n) * n / T, 1 for an unknown grid.

    The SM with the most CTAs has ceil(T/n) of them whatever the occupancy, and T < n leaves n - T SMs idle. Waves of
    n * occupancy CTAs (`wave_efficiency`) describe the launch; with more than one CTA per SM they are no bound, since the
    CTAs of a last wave that is not full have their SM to themselves.
    """
    if not grid or grid <= 0:
        return 1.0
    return math.ceil(grid / sms) * sms / grid


def wave_efficiency(grid: int, sms: int, ctas_per_sm: int) -> float:
    """Return how full the waves are on average: grid / (n * occupancy * waves)."""
    slots = sms * ctas_per_sm
    return grid / (slots * math.ceil(grid / slots))


def bound(
    device: DeviceFacts,
    peaks: Peaks,
    *,
    family: str,
    dtype: str,
    flops: float | None,
    bytes: float | None,
    sms: int,
    working_set_bytes: int | None,
    written_bytes: float | None = None,
    sm_clock_mhz: float | None = None,
    grid: int | None = None,
    ctas_per_sm: int | None = None,
    resident: bool = False,
) -> Bound | None:
    """Return the least time of a launch on n SMs, or None where no limit that applies is known.

    t(n) = max(FLOP / (n R f) * q, B / (n L f) * q, B_l2 / (L2 f), B_hbm / HBM) with R and L
    the FLOP and link bytes per clock and SM, q = `quantisation`, f the clock measured in the partition, else the maximum.
    A link reads and writes at rates of its own: B / L is the larger of bytes read and `written_bytes`, each over its rate.
    A `resident` working set (timing `hot`) leaves to HBM only what the L2 cannot hold. `ctas_per_sm` cannot tighten the
    bound (see `quantisation`); it is accepted because a launch is described by grid and occupancy together.
    """
    if sms <= 0 or (ctas_per_sm is not None and ctas_per_sm <= 0):
        return None
    clock = sm_clock_mhz or peaks.clock_mhz
    q = quantisation(grid, sms)
    terms: list[Bound] = []
    rate = peaks.flop(dtype, tensor=family == Family.GEMM)
    if flops and rate and clock:
        terms.append(Bound(flops / (sms * rate * clock) * q, "waves" if q > QUANTISED else "compute"))
    if bytes:
        in_l1 = resident and family not in PAST_L1 and _fits_l1(device, working_set_bytes, sms)
        moved = _Moved(bytes, min(written_bytes or 0.0, bytes), working_set_bytes)
        terms += _memory_terms(device, peaks, moved, sms=sms, clock=None if in_l1 else clock, q=q, resident=resident)
    return max(terms, key=lambda term: term.us, default=None)


def _fits_l1(device: DeviceFacts, working_set: int | None, sms: int) -> bool:
    return working_set is not None and working_set <= sms * device.smem_per_sm_bytes


@dataclass(frozen=True, slots=True)
class _Moved:
    """Bytes of a launch: all of them, those written, and the working set that they belong to."""

    bytes: float
    written: float
    working_set: int | None

    def link_clocks(self, peaks: Peaks) -> float | None:
        """Return the clocks that one SM's link would take for all of it, each direction at its own rate where both are known."""
        read, write = peaks.link_read_bytes_per_clk_sm, peaks.link_write_bytes_per_clk_sm
        if read and write:
            return max((self.bytes - self.written) / read, self.written / write)
        return self.bytes / peaks.link_bytes_per_clk_sm if peaks.link_bytes_per_clk_sm else None


def _memory_terms(
    device: DeviceFacts,
    peaks: Peaks,
    moved: _Moved,
    *,
    sms: int,
    clock: float | None,
    q: float,
    resident: bool,
) -> list[Bound]:
    """Return the limits on moving bytes: links and L2 (None as clock: unused) for what passes them, HBM for the rest of it."""
    terms: list[Bound] = []
    bytes, working_set = moved.bytes, moved.working_set
    if clock:
        link_clocks = moved.link_clocks(peaks)
        if link_clocks:
            terms.append(Bound(link_clocks / (sms * clock) * q, "link"))
        if peaks.l2_bytes_per_clk:
            terms.append(Bound(bytes / (peaks.l2_bytes_per_clk * clock), "l2"))
    from_hbm = hbm_bytes(device, bytes, working_set) if resident else bytes
    if peaks.hbm_gb_s and from_hbm > 0:
        terms.append(Bound(from_hbm / (peaks.hbm_gb_s * 1e3), "memory"))
    return terms


def hbm_bytes(device: DeviceFacts, bytes: float, working_set: int | None) -> float:
    """Return how many of a launch's bytes must cross the HBM bus even if the L2 serves all that it can hold.

    Each pass over the working set can find up to one L2 of it cached, or leave up to one L2 of what it wrote there
    (write-only kernels read 114 % of the bus, NVIDIA/nvbench#270). A working set within the L2 need not touch HBM.
    """
    size = working_set if working_set else bytes
    if size <= device.l2_bytes:
        return 0.0
    passes = max(1.0, bytes / size)
    return max(0.0, bytes - passes * device.l2_bytes)


def ceilings(device: DeviceFacts, peaks: Peaks, sms: int, clock_mhz: float | None = None) -> Ceilings:
    """Return the nominal ceilings of n SMs, at the given clock or else the maximum one."""
    clock = clock_mhz or peaks.clock_mhz
    link = peaks.link_read_bytes_per_clk_sm or peaks.link_bytes_per_clk_sm
    return Ceilings(
        sms=sms,
        clock_mhz=clock,
        hbm_gb_s=peaks.hbm_gb_s,
        link_gb_s=sms * link * clock / 1e3 if link and clock else None,
        l2_gb_s=peaks.l2_bytes_per_clk * clock / 1e3 if peaks.l2_bytes_per_clk and clock else None,
        tflop_s={dtype: sms * rate * clock / 1e6 for dtype, rate in peaks.flop_per_clk_sm.items()} if clock else {},
    )


def link_gb_s(peaks: Peaks, *, sms: int, clock_mhz: float | None, bytes: float | None, written: float | None) -> float | None:
    """Return what the links of n SMs carry of one mix of reads and writes, each way at its own rate where both are known."""
    if not clock_mhz or not bytes:
        return None
    clocks = _Moved(bytes, min(written or 0.0, bytes), None).link_clocks(peaks)
    return bytes / clocks * sms * clock_mhz / 1e3 if clocks else None


def impossible(device: DeviceFacts, peaks: Peaks, row: Figure) -> str:
    """Return why a figure cannot be true, or an empty string.

    Judged are the HBM bus, by the bytes that must cross it (`hbm_bytes`; a working set within the L2 is not judged), and
    the fastest unit for the dtype on the granted SMs at the maximum clock; both with 2 % allowance.
    """
    if not row.time_us or row.time_us <= 0:
        return ""
    if row.bytes and peaks.hbm_gb_s:
        rate = hbm_bytes(device, row.bytes, row.working_set_bytes) / row.time_us / 1e3
        if rate > ALLOWANCE * peaks.hbm_gb_s:
            return f"impossible: {rate:.0f} GB/s past the L2 is above 102 % of the HBM bus ({peaks.hbm_gb_s:.0f} GB/s)"
    most = peaks.most_flop(row.dtype)
    if row.flops and most and peaks.max_mhz and row.sms_granted:
        rate = row.flops / row.time_us / 1e6
        peak = row.sms_granted * most * peaks.max_mhz / 1e6
        if rate > ALLOWANCE * peak:
            return (
                f"impossible: {rate:.4g} TFLOP/s is above 102 % of the {row.dtype} peak of {row.sms_granted} SMs "
                f"at {peaks.max_mhz:.0f} MHz ({peak:.4g} TFLOP/s)"
            )
    return ""


def above_bound(figure: float | None, ceiling: float | None) -> bool:
    """Return whether a figure is more than 2 % above a ceiling (flag `above_bound`: kept, unlike an impossible one).

    Both in one unit: a rate and a probe's rate, or the bound's time (figure) and the time measured (ceiling).
    """
    return figure is not None and ceiling is not None and ceiling > 0 and figure > ALLOWANCE * ceiling


def predict(
    model: ModelFacts,
    *,
    family: str,
    dtype: str,
    flops: float | None,
    bytes: float | None,
    sms: int,
    working_set_bytes: int | None,
    written_bytes: float | None = None,
    grid: int | None = None,
    resident: bool = False,
    sm_clock_mhz: float | None = None,
) -> Bound:
    """Return what a well-made kernel is predicted to take: the bound's terms, each over its achieved share, and a launch.

    Memory terms are joined by (a^6 + b^6)^(1/6) in place of their maximum, which rounds the knee as on the H200 (triad at 32
    SMs: 3433 GB/s predicted, 3448 measured). Arithmetic and memory overlap, so their maximum stays. Reads and writes share a
    link at a rate that is only known for both together: a good guess of mixed traffic, but never below what each direction takes
    (8 SMs write 500 GB/s of 507).
    """
    clock = sm_clock_mhz or model.sm_clock_mhz
    q = quantisation(grid, sms)
    terms: list[Bound] = []
    rate = model.peaks.flop(dtype, tensor=family == Family.GEMM)
    if flops and rate:
        # A probe of a unit's peak is made to be its ceiling.
        share = 1.0 if family == Family.PROBE else model.achieved["gemm"]
        terms.append(Bound(flops / (sms * rate * clock * share) * q, "waves" if q > QUANTISED else "compute"))
    if bytes:
        in_l1 = resident and family not in PAST_L1 and _fits_l1(model.device, working_set_bytes, sms)
        moved = _Moved(bytes, min(written_bytes or 0.0, bytes), working_set_bytes)
        mixed = replace(model.peaks, link_read_bytes_per_clk_sm=None, link_write_bytes_per_clk_sm=None)
        memory = _memory_terms(model.device, mixed, moved, sms=sms, clock=None if in_l1 else clock, q=q, resident=resident)
        directions = moved.link_clocks(model.peaks) or 0.0
        least = {"link": directions / (sms * clock) * q}
        slowed = [Bound(max(term.us / model.achieved.get(term.by, 1.0), least.get(term.by, 0.0)), term.by) for term in memory]
        if slowed:
            total = sum(term.us**SHARPNESS for term in slowed) ** (1 / SHARPNESS)
            terms.append(Bound(total, max(slowed, key=lambda term: term.us).by))
    work = max(terms, key=lambda term: term.us, default=Bound(0.0, "launch"))
    return Bound(work.us + model.launch_us, work.by if work.us > model.launch_us else "launch")


def latency_cycles(model: ModelFacts, working_set_bytes: int) -> float:
    """Return the predicted cycles of a dependent load from a working set: L1, L2 or HBM, on a log slope in between.

    The L2 is near up to a quarter of its size and HBM certain from twice its size; on an H200 (60 MiB) the slope gives 402
    cycles at 32 MiB where 408 were measured, 476 at 48 MiB where 507 were.
    """
    l1 = model.device.smem_per_sm_bytes
    knots = [
        (0.5 * l1, model.l1_cycles),
        (4.0 * l1, model.l2_cycles),
        (model.device.l2_bytes / 4, model.l2_cycles),
        (2.0 * model.device.l2_bytes, model.hbm_cycles),
    ]
    if working_set_bytes <= knots[0][0]:
        return knots[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(knots):
        if working_set_bytes <= x1:
            return y0 + (y1 - y0) * math.log(working_set_bytes / x0) / math.log(x1 / x0)
    return knots[-1][1]
