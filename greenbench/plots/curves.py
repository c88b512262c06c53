"""From rows to what is drawn: kernels, panels of one set of params, curves of one variant, their metric and their gaps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from greenbench.limits import Limits, by_label
from greenbench.schema import Backend, BoundRow, Family, Flag, Row, RunMeta, SmsMode, Status

if TYPE_CHECKING:
    import pandas

_FIELDS = {column.name: str(column.type) for column in fields(Row)}
_VARIANT = ("workqueue", "concurrency_limit", "connections", "granularity", "mechanism", "role", "timing")
_PREFIX = {"concurrency_limit": "limit ", "connections": "connections ", "granularity": "granularity "}


@dataclass(frozen=True, slots=True)
class Metric:
    """What the y axis shows; `scales` tells whether more SMs should give more of it."""

    column: str
    unit: str
    title: str
    scales: bool

    def value(self, row: Row) -> float | None:
        """Return the row's figure, or None where it has none that is a positive number."""
        figure = getattr(row, self.column)
        return float(figure) if row.status == Status.OK and figure is not None and figure > 0 else None

    def interval(self, row: Row) -> tuple[float, float] | None:
        """Return the 95 % interval of the figure, from that of the time."""
        value, low, high = self.value(row), row.time_us_ci_low, row.time_us_ci_high
        if value is None or not low or not high or not row.time_us:
            return None
        if self.scales:
            return value * row.time_us / high, value * row.time_us / low
        return value * low / row.time_us, value * high / row.time_us

    def of_time(self, row: Row, us: float | None) -> float | None:
        """Return the figure that the row would have had with another time."""
        value = self.value(row)
        if value is None or not us or not row.time_us:
            return None
        return value * row.time_us / us if self.scales else value * us / row.time_us


TFLOP = Metric("tflop_per_s", "TFLOP/s", "throughput", True)
BYTES = Metric("gb_per_s", "GB/s", "bandwidth", True)
CYCLES = Metric("latency_cycles", "cycles", "latency", False)
TIME = Metric("time_us", "µs", "time of a launch", False)


@dataclass(frozen=True, slots=True)
class Dot:
    """A row with a figure: where it stands."""

    sms: int
    value: float
    row: Row


@dataclass(frozen=True, slots=True)
class Curve:
    """The rows of one kernel, params and variant, by granted SMs; `label` says how it differs from its neighbours."""

    kernel: str
    params: str
    label: str
    rows: tuple[Row, ...]

    def points(self, metric: Metric) -> list[Dot]:
        """Return the rows on green contexts that have a figure, by SMs."""
        return [dot for dot in self._dots(metric) if dot.row.sms_requested != SmsMode.PRIMARY]

    def primary(self, metric: Metric) -> Dot | None:
        """Return the row on the primary context, if it has a figure."""
        return next((dot for dot in self._dots(metric) if dot.row.sms_requested == SmsMode.PRIMARY), None)

    def gaps(self, metric: Metric, sm_count: int) -> list[tuple[int, Row]]:
        """Return the rows without a figure, each at the SMs that were asked for."""
        drawn = {id(dot.row) for dot in self._dots(metric)}
        return [(asked(row, sm_count), row) for row in self.rows if id(row) not in drawn]

    def line(self, metric: Metric, sm_count: int) -> tuple[list[float], list[float]]:
        """Return the points, parted by NaN where a count between two of them has no figure: no line bridges a gap."""
        places = {float(dot.sms): dot.value for dot in self.points(metric)}
        last = max(places, default=0.0)
        for x, row in self.gaps(metric, sm_count):
            if row.sms_requested != SmsMode.PRIMARY and x < last:
                places.setdefault(float(x), math.nan)
        xs = sorted(places)
        return xs, [places[x] for x in xs]

    def _dots(self, metric: Metric) -> list[Dot]:
        """Return the rows that have a figure and a grant."""
        found = [(row.sms_granted, metric.value(row), row) for row in self.rows]
        return [Dot(sms, value, row) for sms, value, row in found if sms and value is not None]


@dataclass(frozen=True, slots=True)
class Panel:
    """The curves of a kernel with one set of params, and those of its yardsticks."""

    kernel: str
    params: str
    metric: Metric
    curves: tuple[Curve, ...]
    yardsticks: tuple[Curve, ...]

    @property
    def ways(self) -> tuple[str, ...]:
        """The yardsticks by name, in the order of the run: several where a vendor is called in several ways."""
        return tuple(dict.fromkeys(curve.kernel for curve in self.yardsticks))

    @property
    def best(self) -> tuple[Curve, ...]:
        """The fastest row of all yardsticks at each count, as one curve for each variant; none where there is one yardstick."""
        labels = dict.fromkeys(curve.label for curve in self.yardsticks) if len(self.ways) > 1 else ()
        return tuple(_best_of([curve for curve in self.yardsticks if curve.label == label]) for label in labels)

    @property
    def shown(self) -> bool:
        """Whether any row has a figure."""
        curves = (*self.curves, *self.yardsticks)
        return any(curve.points(self.metric) or curve.primary(self.metric) for curve in curves)

    @property
    def main(self) -> Curve:
        """The curve that ideal, bound, prediction and knee belong to: the first with a figure."""
        return next((curve for curve in self.curves if curve.points(self.metric)), self.curves[0])


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the figures see it."""

    meta: RunMeta
    panels: tuple[Panel, ...]
    modelled: bool
    profiled: bool
    limits: Limits = field(default_factory=dict)

    @property
    def kernels(self) -> dict[str, list[Panel]]:
        """Panels by kernel, in the order of the run."""
        grouped: dict[str, list[Panel]] = {}
        for panel in self.panels:
            grouped.setdefault(panel.kernel, []).append(panel)
        return grouped

    def own_params(self, panel: Panel) -> str:
        """Return the params by which a panel differs from its kernel's others."""
        others = [other.params.split(",") for other in self.kernels[panel.kernel]]
        return ", ".join(part for part in panel.params.split(",") if not all(part in other for other in others))

    def summary(self, kernel: str) -> str:
        """Return the kernel's one sentence as the run recorded it."""
        return next((known.summary for known in self.meta.kernels if known.name == kernel), "")


def asked(row: Row, sm_count: int) -> int:
    """Return the SMs at which a row without a grant belongs on the axis."""
    if row.sms_granted is not None:
        return row.sms_granted
    return int(row.sms_requested) if row.sms_requested.isdigit() else sm_count


def rows_of(frame: pandas.DataFrame) -> list[Row]:
    """Return the rows of a table read from rows.csv; an empty cell, NaN or infinity is a missing value."""
    return [
        Row(**{name: _cell(value, _FIELDS[name]) for name, value in record.items() if name in _FIELDS})
        for record in frame.to_dict("records")
    ]


def _cell(value: Any, kind: str) -> Any:
    """Return a cell as the type of its column."""
    missing = value is None or (isinstance(value, float) and not math.isfinite(value)) or str(value) in ("", "<NA>")
    if kind == "str":
        whole = isinstance(value, float) and not missing and value.is_integer()
        return "" if missing else str(int(value)) if whole else str(value)
    if missing:
        return None if "None" in kind else 0
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if kind.startswith("int") else number


def run_of(frame: pandas.DataFrame, meta: RunMeta, limits: Sequence[BoundRow] = ()) -> Run:
    """Group the rows of a run into panels: those of one kernel and one set of params, its yardstick beside it."""
    rows = rows_of(frame)
    parents = {known.name: known.yardstick_of for known in meta.kernels if known.yardstick_of}
    names = {row.kernel for row in rows}
    kernels: dict[str, list[Row]] = {}
    yards: dict[str, list[Row]] = {}
    for row in rows:
        stem = row.kernel.rpartition(".")[0]
        parent = parents.get(row.kernel, stem)
        (yards if parent in names else kernels).setdefault(parent if parent in names else row.kernel, []).append(row)
    panels = [panel for kernel, members in kernels.items() for panel in _panels(kernel, members, yards.get(kernel, []))]
    modelled = meta.device.backend == Backend.MODELLED or any(row.backend == Backend.MODELLED for row in rows)
    profiled = meta.profiled or any(Flag.PROFILED in row.flags for row in rows)
    return Run(meta, tuple(panels), modelled, profiled, by_label(limits))


def _panels(kernel: str, rows: Sequence[Row], yard: Sequence[Row]) -> list[Panel]:
    """Return a kernel's panels: one for each set of params, or one for all where more SMs do not give more."""
    metric = _metric([*rows, *yard])
    if metric.scales:
        sets = dict.fromkeys(row.params for row in rows)
        found = [Panel(kernel, params, metric, _curves(_with(rows, params)), _by_way(_with(yard, params))) for params in sets]
    else:
        found = [Panel(kernel, "", metric, _curves(rows, "params"), _by_way(yard, "params"))]
    return [panel for panel in found if panel.shown]


def _best_of(curves: Sequence[Curve]) -> Curve:
    """Return the fastest rows of several curves; where none has a time, a row of the first stands for the gap."""
    fastest: dict[str, Row] = {}
    for row in (row for curve in curves for row in curve.rows):
        other = fastest.setdefault(row.sms_requested, row)
        if row.status == Status.OK and row.time_us and (other.time_us is None or row.time_us < other.time_us):
            fastest[row.sms_requested] = row
    return Curve(curves[0].kernel, curves[0].params, curves[0].label, _by_sms(fastest.values()))


def _by_sms(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row.sms_granted or 0, row.sms_requested == SmsMode.FULL)))


def _by_way(rows: Sequence[Row], *more: str) -> tuple[Curve, ...]:
    """Return the curves of each yardstick."""
    names = dict.fromkeys(row.kernel for row in rows)
    return tuple(curve for name in names for curve in _curves([row for row in rows if row.kernel == name], *more))


def _with(rows: Sequence[Row], params: str) -> list[Row]:
    return [row for row in rows if row.params == params]


def _metric(rows: Iterable[Row]) -> Metric:
    """Choose what to show: a reported latency, else TFLOP/s of a GEMM, else GB/s, else TFLOP/s, else the time."""
    ok = [row for row in rows if row.status == Status.OK]
    gemm = any(row.family == Family.GEMM for row in ok)
    order = (CYCLES, TFLOP, BYTES) if gemm else (CYCLES, BYTES, TFLOP)
    return next((metric for metric in order if any(metric.value(row) is not None for row in ok)), TIME)


def _curves(rows: Sequence[Row], *more: str) -> tuple[Curve, ...]:
    """Split the rows of a panel into variants, and name each by what differs."""
    names = (*more, *(_VARIANT if _timings_meet(rows) else _VARIANT[:-1]))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    with_figures = [key for key, members in groups.items() if any(row.status == Status.OK for row in members)]
    curves = []
    for key, members in groups.items():
        # A variant that nothing came of must not lengthen the names of those that are drawn.
        others = with_figures if key in with_figures else list(groups)
        differing = [i for i in range(len(names)) if len({other[i] for other in others}) > 1]
        parts = [_part(names[i], key[i], members) for i in differing if key[i] not in (None, "")]
        curves.append(Curve(members[0].kernel, members[0].params, ", ".join(parts), _by_sms(members)))
    return tuple(curves)


def _part(name: str, value: Any, rows: Sequence[Row]) -> str:
    """Name one difference; params of a latency kernel are better known by the working set that they make."""
    sizes = {row.working_set_bytes for row in rows if row.working_set_bytes}
    if name == "params" and len(sizes) == 1 and any(row.latency_cycles for row in rows):
        return binary_size(sizes.pop())
    return f"{_PREFIX.get(name, '')}{value}"


def binary_size(number: float) -> str:
    """Write bytes in the largest binary unit that they fill, to three digits: 16 KiB, 1 GiB, 1.5 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            value = number / unit
            return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"
    return f"{number:.0f} B"


def _timings_meet(rows: Sequence[Row]) -> bool:
    """Tell timings that were asked for side by side from those that `auto` chose by the length of each point.

    Asked for, two timings stand at the same SMs; chosen, each point has one.
    """
    seen: dict[tuple[Any, ...], str] = {}
    for row in rows:
        key = (row.params, row.sms_requested, *(getattr(row, name) for name in _VARIANT[:-1]))
        if seen.setdefault(key, row.timing) != row.timing:
            return True
    return False
