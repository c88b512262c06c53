"""A timeline for people: tables of contexts, overlap, ranges and gaps as plain lines, then the findings; nothing here draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenbench.timeline.analysis import Analysis
    from greenbench.timeline.capture import Gpu
    from greenbench.timeline.figures import ContextFigures, DeviceFigures, Figures
    from greenbench.timeline.finding import Finding
    from greenbench.timeline.gaps import Gaps
    from greenbench.timeline.ranges import RangeFigures

NAME_WIDTH = 56
MOST_CONTEXTS, MOST_PAIRS, MOST_RANGES, MOST_NAMED = 24, 16, 40, 6
_GAP = "  "


def lines(analysis: Analysis, gaps: Sequence[tuple[RangeFigures, Sequence[Gaps]]] = ()) -> Iterator[str]:
    """Yield the whole report."""
    capture = analysis.capture
    own = capture.product.startswith("greenbench")
    version = f"{'' if own else 'nsys '}{capture.product or 'of unknown version'}"
    version += f", schema {capture.schema}" if capture.schema else ""
    yield f"{capture.source}  ({version})"
    for device in analysis.whole.devices:
        yield _device(device, capture.gpus)
    yield ""
    yield from _contexts(analysis.whole)
    yield from _pairs(analysis.whole)
    yield from _ranges(analysis)
    for found, parts in gaps:
        yield ""
        yield from _gaps(found, parts)
    yield ""
    yield from _findings(analysis)


def _device(device: DeviceFigures, gpus: Mapping[int, Gpu]) -> str:
    gpu = gpus.get(device.device)
    name = f"  {gpu.name}{f', {gpu.sms} SMs' if gpu.sms else ''}" if gpu else ""
    split = ", ".join(f"{active}: {_percent(ns, device.span_ns)}" for active, ns in sorted(device.by_active_ns.items()))
    return (
        f"device {device.device}{name}: span {_ms(device.span_ns)} ms, busy {_percent(device.busy_ns, device.span_ns)}, "
        f"at most {device.most_kernels} kernels at once; time by contexts at once: {split}"
    )


def _contexts(figures: Figures) -> Iterator[str]:
    header = ("context", "SMs", "kernels", "total ms", "busy ms", "idle ms", "gaps", "longest µs", "queue p50 µs", "p99 µs")
    shown = sorted(figures.contexts, key=lambda each: -each.busy_ns)[:MOST_CONTEXTS]
    yield from _table(header, [_context(each) for each in shown])
    yield from _more(len(figures.contexts), MOST_CONTEXTS, "contexts")


def _context(each: ContextFigures) -> tuple[str, ...]:
    queue = (_us(each.queue.p50_ns), _us(each.queue.p99_ns)) if each.queue else ("", "")
    count = f"{each.kernels:,}" + (f" + {each.graphs:,} graphs" if each.graphs else "")
    times = (_ms(each.total_ns), _ms(each.busy_ns), _ms(each.idle.total_ns), f"{each.idle.gaps:,}", _us(each.idle.longest_ns))
    return (_cut(each.label), "" if each.sms is None else str(each.sms), count, *times, *queue)


def _pairs(figures: Figures) -> Iterator[str]:
    if not figures.pairs:
        return
    yield ""
    shown = sorted(figures.pairs, key=lambda pair: -pair.overlap_ns)[:MOST_PAIRS]
    header = ("overlap", "ns", "of the smaller", "of the first", "of the second")
    yield from _table(
        header,
        [
            (
                f"{_cut(pair.a)} + {_cut(pair.b)}",
                f"{pair.overlap_ns:,}",
                *(f"{100 * share:.1f} %" for share in (pair.of_smaller, pair.of_a, pair.of_b)),
            )
            for pair in shown
        ],
    )
    yield from _more(len(figures.pairs), MOST_PAIRS, "pairs")


def _ranges(analysis: Analysis) -> Iterator[str]:
    if not analysis.ranges:
        return
    yield ""
    header = ("range", "times", "kernels", "host ms", "GPU ms", "contexts, and their overlap of the smaller")
    shown = analysis.ranges[:MOST_RANGES]
    yield from _table(header, [_range(each) for each in shown], left=(0, 5))
    yield from _more(len(analysis.ranges), MOST_RANGES, "ranges")
    if analysis.outside:
        yield f"{analysis.outside:,} {'kernel lies' if analysis.outside == 1 else 'kernels lie'} in no range"


def _range(each: RangeFigures) -> tuple[str, ...]:
    figures = each.figures
    used = [f"{part.label} {part.kernels + part.graphs:,}" for part in figures.contexts]
    overlaps = [f"{100 * pair.of_smaller:.1f} %" for pair in sorted(figures.pairs, key=lambda pair: -pair.overlap_ns)[:3]]
    told = ", ".join(used[:MOST_NAMED]) + (f" and {len(used) - MOST_NAMED} more" if len(used) > MOST_NAMED else "")
    projected = _ms(each.projection.total_ns) if each.projection else ""
    name = f"{'  ' * min(each.depth, 6)}{_cut(each.title)}"
    what = f"{told}; {', '.join(overlaps)}" if overlaps else told
    return (name, f"{each.instances:,}", f"{figures.kernels + figures.graphs:,}", _ms(each.duration_ns), projected, what)


def _gaps(found: RangeFigures, parts: Sequence[Gaps]) -> Iterator[str]:
    yield f"gaps between the kernels of {_cut(found.title)}, in ms by cause"
    causes = list(parts[0].by_cause) if parts else []
    header = ("context", "gaps", "all", "longest µs", *(cause.value for cause in causes))
    rows = [
        (_cut(part.context), f"{part.gaps:,}", _ms(part.total_ns), _us(part.longest_ns), *(_ms(part.by_cause[c]) for c in causes))
        for part in parts
    ]
    yield from _table(header, rows)


def _findings(analysis: Analysis) -> Iterator[str]:
    if analysis.unchecked:
        yield f"stray kernels were not looked for: {analysis.unchecked}"
    if not analysis.findings:
        checked = "" if analysis.unchecked else ": no stray kernel, no synchronisation between contexts, no copy in the way"
        yield f"no findings{checked}"
        return
    yield f"{len(analysis.findings)} finding{'' if len(analysis.findings) == 1 else 's'}"
    for finding in analysis.findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"  [{finding.topic.value}] {finding.text}"
    for table, rows in finding.rows.items():
        yield f"      {table} rows {', '.join(map(str, rows[:10]))}{', ...' if len(rows) > 10 else ''}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> Iterator[str]:
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield _GAP.join(cells).rstrip()


def _more(count: int, most: int, what: str) -> Iterator[str]:
    if count > most:
        yield f"... and {count - most} more {what}; --json and --csv have all"


def _cut(text: str) -> str:
    return text if len(text) <= NAME_WIDTH else f"{text[: NAME_WIDTH - 1]}…"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


def _us(ns: int) -> str:
    return f"{ns / 1e3:,.1f}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"
