"""How one row reads: which figure stands for it, in which unit, and how a number is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenbench.schema import Family, Row, Status

Getter = Callable[[Row], float | None]

_TIME: tuple[str, Getter] = ("µs", lambda row: row.time_us)
# First that the rows of a kernel carry; time stands for anything without work or a report of its own.
_BY_FAMILY: dict[str, tuple[tuple[str, Getter], ...]] = {
    Family.GEMM: (("TFLOP/s", lambda row: row.tflop_per_s), _TIME),
    Family.MEMORY: (("GB/s", lambda row: row.gb_per_s), _TIME),
    Family.LATENCY: (("cycles", lambda row: row.latency_cycles), ("ns", lambda row: row.latency_ns), _TIME),
    Family.PROBE: (
        ("cycles", lambda row: row.latency_cycles),
        ("TFLOP/s", lambda row: row.tflop_per_s),
        ("GB/s", lambda row: row.gb_per_s),
        _TIME,
    ),
}


def measure_of(rows: Sequence[Row]) -> tuple[str, Getter]:
    """Return unit and getter of the figure by which these rows (of one kernel) compare; no unit where none has one."""
    choices = _BY_FAMILY.get(rows[0].family, (_TIME,))
    for unit, getter in choices:
        if any(getter(row) is not None for row in rows if row.status == Status.OK):
            return unit, getter
    return "", _TIME[1]


def number(value: float) -> str:
    """Write a figure with three or four digits that mean something: `4,368`, `55.2`, `3.14`, `0.082`."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3g}"


def spread_pct(row: Row) -> float | None:
    """Return half of the 95 % interval of the time in per cent of the time, or None where there is none."""
    if not row.time_us or row.time_us_ci_low is None or row.time_us_ci_high is None:
        return None
    return 50.0 * (row.time_us_ci_high - row.time_us_ci_low) / row.time_us


def percent(value: float | None) -> str:
    """Write a share of a bound, `97 %`; nothing for nothing."""
    return "" if value is None else f"{value:.0f} %"


def plus_minus(value: float | None) -> str:
    """Write a spread, `±0.1 %`; a spread below what can be shown is `<0.1`, never 0."""
    if value is None:
        return ""
    return "±<0.1" if value < 0.05 else f"±{value:.1f}"
