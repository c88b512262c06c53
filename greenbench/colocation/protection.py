"""Which mechanism protects the latency role best, and what that costs the background: one sentence for each workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from greenbench.colocation.pairs import Pair, pairs
from greenbench.corow import CoRow
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Status
from greenbench.tails import LEAST, Metric, column

# Up to this tails, and throughputs, are the same; medians of one run repeat within 2 %.
SAME = 1.02
_METRICS = (Metric.ITL, Metric.STEP, Metric.TTFT)


def protection(rows: Sequence[CoRow]) -> tuple[str, ...]:
    """Return a sentence for each latency workload, in the order of the rows.

    Mechanisms are compared at one load: of several rates of the background at that with the most points, of those the highest.
    The best mechanism is the one with the lowest of the highest percentile that the run carries. Of those within 2 % of it the
    one whose background has the highest throughput is named, and of those again within 2 % the first of the plan: what is no
    more than noise decides nothing. What it costs is the background's throughput, beside that of the same role alone on the
    whole device; where its requests arrive at a rate, the median time of a request.
    """
    points = pairs(rows)
    loads: dict[tuple[str, str], dict[str, list[Pair]]] = {}
    for pair in points:
        if pair.ok and not pair.alone and pair.latency is not None and pair.background is not None:
            loads.setdefault((pair.row.kernel, pair.row.params), {}).setdefault(pair.rate, []).append(pair)
    alone = [pair for pair in points if pair.ok and pair.alone and pair.split is None]
    chosen = (max(rates.values(), key=lambda group: (len(group), float(group[0].rate or 0))) for rates in loads.values())
    return tuple(sentence for group in chosen if (sentence := _sentence(group, alone)))


def _sentence(group: Sequence[Pair], alone: Sequence[Pair]) -> str:
    name, values = _tails(group)
    if len(group) < 2 or not values:
        return ""
    place = _best(group, values)
    best, tail = group[place], values[place]
    row = best.row
    load = f" at {best.rate} background requests a second" if best.rate else ""
    who = f"{row.kernel}[{row.params}]" if row.params else row.kernel
    said = f"{who}{load}: {_named(best)} protects it best, {_text(name)} {tail:,.0f} µs"
    whole = _partner(best, alone, Kind.LATENCY)
    base = _get(whole, name)
    if base:
        said += f" ({tail / base:.2f} times alone on the whole device)"
    said += "".join(_cost(best, alone))
    return said + _without(group, name, best)


def _best(group: Sequence[Pair], values: Mapping[int, float]) -> int:
    """Return the place of the point to be named; places are in the order of the plan."""
    lowest = min(values.values())
    reached = {
        place: _get(group[place].background, "throughput_per_s") or 0.0
        for place, value in values.items()
        if value <= SAME * lowest
    }
    highest = max(reached.values())
    return min(place for place, per_s in reached.items() if SAME * per_s >= highest)


def _tails(group: Sequence[Pair]) -> tuple[str, dict[int, float]]:
    """Return the highest percentile that some point has, by its column, and its values by place."""
    for metric in _METRICS:
        for q in reversed(LEAST):
            name = column(metric, q)
            values = {place: value for place, pair in enumerate(group) if (value := _get(pair.latency, name))}
            if values:
                return name, values
    return "", {}


def _cost(best: Pair, alone: Sequence[Pair]) -> Iterator[str]:
    """Yield what the background gets beside it."""
    row = best.background
    whole = _partner(best, alone, Kind.BACKGROUND)
    if row is None:
        return
    name = column(Metric.TTFT, 50) if _get(row, column(Metric.TTFT, 50)) else column(Metric.STEP, 50)
    if best.rate:
        mine, base = _get(row, name), _get(whole, name)
        yield f"; {row.kernel} takes {mine:,.0f} µs in the median" if mine else ""
        yield f", {mine / base:.2f} times alone" if mine and base else ""
        return
    name, unit = ("tokens_per_s", "tokens/s") if row.tokens_per_s else ("throughput_per_s", "steps/s")
    mine, base = _get(row, name), _get(whole, name)
    yield f"; {row.kernel} keeps {mine:,.0f} {unit}" if mine else ""
    yield f", {100 * mine / base:.0f} % of alone on the whole device" if mine and base else ""


def _without(group: Sequence[Pair], name: str, best: Pair) -> str:
    """Say what becomes of the latency role where nothing keeps the two apart."""
    streams = next((pair for pair in group if pair.row.mechanism == Mechanism.STREAMS), None)
    if streams is None or streams is best:
        return ""
    if streams.row.saturated == "true":
        return "; under plain streams its queue grows without end"
    value = _get(streams.latency, name)
    return f"; under plain streams it takes {value:,.0f} µs" if value else ""


def _partner(pair: Pair, alone: Sequence[Pair], kind: Kind) -> CoRow | None:
    """Return the row of the same role alone on the whole device."""
    mine = pair.of(kind)
    rows = (each.of(kind) for each in alone)
    same = (
        row for row in rows if row is not None and mine is not None and (row.kernel, row.params) == (mine.kernel, mine.params)
    )
    return next((row for row in same if mine is not None and row.connections == mine.connections), None)


def _get(row: CoRow | None, name: str) -> float | None:
    value = getattr(row, name) if row is not None and row.status == Status.OK else None
    return float(value) if value else None


def _named(pair: Pair) -> str:
    return pair.mechanism if pair.split is None else f"{pair.mechanism} at {pair.split_text} SMs"


def _text(name: str) -> str:
    """Write `step_us_p99` as `step p99`."""
    return name.replace("_us_", " ")
