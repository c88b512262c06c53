"""bounds.csv from run.json and the journal alone: each ok row beside its ceilings, by specification and as measured.

And the same in words, for the end of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from greenbench import bounds
from greenbench.ceilings import Launch, Seen, Way, binding, is_yardstick, lane_of, launches, measured
from greenbench.facts import Peaks, dtype_key, peaks
from greenbench.rows import row_labels
from greenbench.schema import Block, BoundRow, DeviceFacts, Family, Row, RunMeta, Status

Limits = Mapping[str, BoundRow]
NONE: Limits = {}


def derive_bounds(meta: RunMeta, blocks: Sequence[Block], rows: Sequence[Row]) -> list[BoundRow]:
    """Return one line per ok row of a run, in their order; `rows` are those of `derive_rows`."""
    launched = launches(row_labels(meta, blocks), blocks)
    seen, limits = measured(meta.device, rows, launched), peaks(meta.device)
    ok = [row for row in rows if row.status == Status.OK and row.time_us]
    return [_line(meta.device, limits, row, launched.get(row.label, Launch()), seen.get(lane_of(row), Seen())) for row in ok]


def by_label(lines: Sequence[BoundRow]) -> Limits:
    """Return the lines of bounds.csv by the label of their row."""
    return {line.label: line for line in lines}


def _line(device: DeviceFacts, limits: Peaks, row: Row, launch: Launch, seen: Seen) -> BoundRow:
    sms, clock = row.sms_granted or 0, row.sm_clock_mhz or limits.clock_mhz
    spec = bounds.ceilings(device, limits, sms, clock)
    rate = limits.flop(row.dtype, tensor=row.family == Family.GEMM)
    flop, near = seen.flop(row.dtype), binding(device, row, launch, seen)
    hbm = {way: ceiling.rate for way, ceiling in seen.hbm.items()}
    cached = seen.l2.get(Way.READ)
    filled = _filled(row, launch)
    return BoundRow(
        run_id=row.run_id,
        label=row.label,
        kernel=row.kernel,
        family=row.family,
        dtype=row.dtype,
        sms_granted=row.sms_granted,
        timing=row.timing,
        time_us=row.time_us,
        sm_clock_mhz=row.sm_clock_mhz,
        tflop_per_s=row.tflop_per_s,
        gb_per_s=row.gb_per_s,
        grid=launch.grid or None,
        ctas_per_sm=launch.ctas_per_sm,
        wave_efficiency_pct=None if filled is None else 100 * filled,
        spec_tflop_per_s=sms * rate * clock / 1e6 if row.flops and rate and clock else None,
        spec_hbm_gb_per_s=spec.hbm_gb_s,
        spec_link_gb_per_s=bounds.link_gb_s(limits, sms=sms, clock_mhz=clock, bytes=row.bytes, written=launch.written_bytes),
        spec_l2_gb_per_s=spec.l2_gb_s,
        bound_us=row.bound_us,
        bound_by=row.bound_by,
        bound_pct=row.bound_pct,
        measured_tflop_per_s=flop.rate if flop and row.flops else None,
        measured_hbm_read_gb_per_s=hbm.get(Way.READ),
        measured_hbm_write_gb_per_s=hbm.get(Way.WRITE),
        measured_hbm_mixed_gb_per_s=hbm.get(Way.MIXED),
        measured_l2_read_gb_per_s=cached.rate if cached else None,
        measured_us=near.us if near else None,
        measured_by=near.by if near else "",
        measured_kernel=near.ceiling.kernel if near else "",
        measured_pct=100 * near.us / row.time_us if near and row.time_us else None,
        flags=row.flags,
    )


def _filled(row: Row, launch: Launch) -> float | None:
    """Return how full the waves of a kernel are that divides its work; nobody knows those of a vendor's."""
    divides = row.family in (Family.GEMM, Family.MEMORY) or bool(row.flops)
    if not (divides and launch.grid and launch.ctas_per_sm and row.sms_granted) or is_yardstick(row):
        return None
    return bounds.wave_efficiency(launch.grid, row.sms_granted, launch.ctas_per_sm)


def share_of(line: BoundRow | None) -> str:
    """Say how much of what binds a row it reached: of a ceiling measured in the run, else of the specification; else nothing.

    Nothing either of a row that is above it: what was passed does not bind.
    """
    share, whole = _reached(line)
    return f"{100 * share:.0f} % of {whole}" if whole and share <= bounds.ALLOWANCE else ""


def helped_by_l2(row: Row, line: BoundRow | None = None) -> bool:
    """True where more bytes came than HBM gives: the L2 kept some of them from one launch to the next."""
    if row.bound_by != "memory":
        return False
    return max(_reached(line)[0], (row.bound_pct or 0.0) / 100) > bounds.ALLOWANCE


# A share, and of what it is one; of nothing where that is not known.
Reached = tuple[float, str]
UNKNOWN: Reached = (0.0, "")


def _reached(line: BoundRow | None) -> Reached:
    if line is None:
        return UNKNOWN
    match line.bound_by:
        case "link":
            return _of_links(line)
        case "memory" | "l2":
            return _of_bytes(line)
        case "compute" | "waves":
            return _of_arithmetic(line)
    return UNKNOWN


def _of_links(line: BoundRow) -> Reached:
    if not (line.gb_per_s and line.spec_link_gb_per_s and line.sms_granted and line.sm_clock_mhz):
        return UNKNOWN
    each = line.spec_link_gb_per_s * 1e3 / line.sms_granted / line.sm_clock_mhz
    return line.gb_per_s / line.spec_link_gb_per_s, f"their {each:.0f} B/clk"


def _of_bytes(line: BoundRow) -> Reached:
    if line.gb_per_s and line.measured_us and line.time_us and line.measured_by == line.bound_by:
        rate = line.gb_per_s * line.time_us / line.measured_us
        return line.gb_per_s / rate, f"the {rate:,.0f} GB/s that {line.measured_kernel} moved here"
    spec, what = (line.spec_hbm_gb_per_s, "its bus") if line.bound_by == "memory" else (line.spec_l2_gb_per_s, "it at this clock")
    return (line.gb_per_s / spec, f"the {spec:,.0f} GB/s of {what}") if line.gb_per_s and spec else UNKNOWN


def _of_arithmetic(line: BoundRow) -> Reached:
    rate = line.tflop_per_s
    if rate and line.measured_tflop_per_s and line.measured_by in ("compute", "waves"):
        most = line.measured_tflop_per_s
        return rate / most, f"the {_figure(most)} TFLOP/s that {line.measured_kernel} reached here"
    most = line.spec_tflop_per_s or 0.0
    return (rate / most, f"{_figure(most)} TFLOP/s at this clock") if rate and most else UNKNOWN


def summary(lines: Sequence[BoundRow]) -> str:
    """Say what the probes of a run reached on the most SMs on which there was any; nothing where there was none."""
    most = max((line.sms_granted for line in lines if _ceilings_of([line]) and line.sms_granted), default=None)
    parts = _ceilings_of([line for line in lines if line.sms_granted == most])
    return f"ceilings measured on {most} SMs: {'; '.join(parts)}" if parts else ""


def _ceilings_of(lines: Sequence[BoundRow]) -> list[str]:
    """Return the ceilings that lines of one partition hold; of mixed traffic alone none, since any two streams give that."""
    hbm = {
        "read": _most(line.measured_hbm_read_gb_per_s for line in lines),
        "written": _most(line.measured_hbm_write_gb_per_s for line in lines),
        "both ways": _most(line.measured_hbm_mixed_gb_per_s for line in lines),
    }
    cached = _most(line.measured_l2_read_gb_per_s for line in lines)
    probes = {dtype_key(line.dtype): line.tflop_per_s for line in lines if line.family == Family.PROBE}
    streams = hbm if hbm["read"] or hbm["written"] else {}
    told = (("HBM ", "GB/s", streams), ("L2 ", "GB/s", {"read": cached}), ("", "TFLOP/s", probes))
    return [name + text for name, unit, rates in told if (text := _listed(rates, unit))]


def _listed(rates: Mapping[str, float | None], unit: str) -> str:
    """Write rates with their names, the unit once: `4,531 GB/s read, 4,660 written`."""
    known = [(name, rate) for name, rate in rates.items() if rate]
    return ", ".join(f"{_figure(rate)}{'' if place else f' {unit}'} {name}" for place, (name, rate) in enumerate(known))


def _most(rates: Iterable[float | None]) -> float | None:
    return max((rate for rate in rates if rate), default=None)


def _figure(rate: float) -> str:
    """Write a rate with three digits or more that mean something: `1,070`, `745`, `60.1`."""
    return f"{rate:,.0f}" if rate >= 99.95 else f"{rate:.3g}"
