"""`greenbench timeline`: read a capture of Nsight Systems and say what ran where, and beside what; no GPU needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.cli.options import SectionedCommand, json_option, option
from greenbench.cli.targets import refuse_same
from greenbench.cli.terminal import emit
from greenbench.errors import IncompleteError, ResultFileError, UsageError

if TYPE_CHECKING:
    from greenbench.timeline.analysis import Analysis
    from greenbench.timeline.gaps import Gaps
    from greenbench.timeline.ranges import RangeFigures

TOPICS = ("stray", "synchronisation", "copy", "never_overlap", "graph")
_EXPECTATION = re.compile(r"\s*([^,]+?)\s*,\s*([^,]+?)\s*(>=|<=)\s*([0-9]*\.?[0-9]+)\s*")
_DATABASES = (".sqlite", ".nsys-rep", ".qdrep")
# Commands without --trace.
WITHOUT_TRACE = ("colocate", "switch")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What --expect-overlap asks of a pair of contexts, as a fraction of the smaller busy time."""

    a: str
    b: str
    least: bool
    fraction: float
    text: str

    def unmet(self, analysis: Analysis) -> str:
        """Return why the capture does not meet this, or an empty string."""
        pair = next((pair for pair in analysis.whole.pairs if {pair.a, pair.b} == {self.a, self.b}), None)
        if pair is None:
            seen = ", ".join(each.label for each in analysis.whole.contexts[:8])
            return f"--expect-overlap {self.text}: the capture has no such pair of contexts on one device (contexts: {seen})"
        met = pair.of_smaller >= self.fraction if self.least else pair.of_smaller <= self.fraction
        return "" if met else f"--expect-overlap {self.text}: it is {pair.of_smaller:.4f} of the smaller ({pair.overlap_ns:,} ns)"


class ExpectationType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """`A,B>=0.5`, checked before any file is read."""

    name = "expectation"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Expectation:
        """Return the expectation."""
        if isinstance(value, Expectation):
            return value
        match = _EXPECTATION.fullmatch(str(value))
        if match is None or float(match[4]) > 1:
            self.fail(f"{str(value)!r} is no expectation; write green:2,green:3>=0.5 with a fraction from 0 to 1", param, ctx)
        return Expectation(match[1], match[2], match[3] == ">=", float(match[4]), str(value).strip())


@click.command(
    "timeline",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n  greenbench timeline report.sqlite\n"
    "  greenbench timeline report.sqlite --plot figures --perfetto trace.json\n"
    "  greenbench timeline report.sqlite --expect-overlap 'green:2,green:3>=0.5' --fail-on stray",
)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="FILE.sqlite|FILE.nsys-rep|RUN")
@option("--domain", "What is looked at", metavar="NAME", help="Look at NVTX ranges of this domain alone ('' is the default one).")
@option(
    "--gaps",
    "What is looked at",
    multiple=True,
    metavar="RANGE",
    help="Split the gaps between this range's kernels by cause.  A name, domain:name or a pattern with *; may be repeated.",
)
@json_option("Output", "Write one JSON object instead of text.")
@option("--csv", "Output", is_flag=True, help="Write one table of contexts and pairs instead of text.")
@option(
    "--plot",
    "Output",
    is_flag=False,
    flag_value=".",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="Draw the timeline as a strip: PNG and SVG into a folder, or one file that ends so.  [without a value: here]",
)
@option(
    "--perfetto",
    "Output",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Write a trace for ui.perfetto.dev.",
)
@option(
    "--scrub",
    "Output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="COPY.sqlite",
    help="Write a copy that can be shown: what this analysis reads, without environment, host, user and paths.",
)
@option(
    "--expect-overlap",
    "Expectations (exit 5 where one is not met)",
    type=ExpectationType(),
    multiple=True,
    metavar="A,B>=X",
    help="Two contexts overlap by at least (or with <=, at most) this fraction of the smaller busy time.",
)
@option(
    "--fail-on",
    "Expectations (exit 5 where one is not met)",
    type=click.Choice(TOPICS),
    multiple=True,
    help="There is no finding on this topic; for stray, it must also have been possible to look.",
)
def timeline_command(
    file: Path | None,
    domain: str | None,
    gaps: tuple[str, ...],
    json: bool,
    csv: bool,
    plot: Path | None,
    perfetto: Path | None,
    scrub: Path | None,
    expect_overlap: tuple[Expectation, ...],
    fail_on: tuple[str, ...],
) -> None:
    """Say what ran in which context (green contexts, primary), for how long, beside what, and what went wrong.

    FILE is a report of Nsight Systems: exported to SQLite (no nsys needed), or raw, which nsys on PATH exports first.
    """
    if json and csv:
        raise UsageError("--json and --csv both want stdout; give one of them")
    if file is None and plot is not None and plot.suffix in _DATABASES:
        file, plot = plot, Path()  # `--plot FILE.sqlite`: the value was left out
    if file is None:
        raise UsageError("timeline needs a FILE.sqlite, a FILE.nsys-rep or a RUN (see greenbench timeline --help)")
    source = _of_run(file) if file.is_dir() else file
    _check_targets(source, file.stem, plot, perfetto, scrub)
    analysis = _analysis(source, domain, scrub)
    split = _gaps(analysis, gaps)
    written = [*_written(analysis, file.stem, plot, perfetto), *([scrub] if scrub is not None else [])]
    for note in analysis.notes:
        emit(f"note: {note}", err=True)
    _report(analysis, split, written, json, csv)
    failures = [text for text in (*(each.unmet(analysis) for each in expect_overlap), *_failed(analysis, fail_on)) if text]
    if failures:
        raise IncompleteError("; ".join(failures))


def _check_targets(source: Path, stem: str, plot: Path | None, perfetto: Path | None, scrub: Path | None) -> None:
    """Refuse, before anything is written, what would replace the capture or another result."""
    drawn: list[Path] = []
    if plot is not None:
        import greenbench.plots  # noqa: F401 - sets matplotlib's backend before it is imported
        from greenbench.plots.strip import strip_paths

        drawn = strip_paths(plot, stem)
    named = (("--perfetto", perfetto), ("--scrub", scrub))
    written = [("--plot", path) for path in drawn] + [(option, path) for option, path in named if path is not None]
    refuse_same([("the capture", source)], written)


def _analysis(path: Path, domain: str | None, scrubbed: Path | None) -> Analysis:
    """Read and analyse a capture, and write the copy without secrets while its SQLite form is there."""
    from dataclasses import replace

    from greenbench.timeline.analysis import analyse
    from greenbench.timeline.export import as_sqlite
    from greenbench.timeline.reading import read_capture

    with as_sqlite(path) as database:
        capture = replace(read_capture(database), source=str(path))
        if scrubbed is not None:
            from greenbench.nsight.scrub import scrub

            scrub(database, scrubbed)
        return analyse(capture, domain)


def _of_run(path: Path) -> Path:
    """Return what was recorded of a run: the trace of --trace, else a report of Nsight Systems that lies in its folder."""
    from greenbench.runfiles import RunFolder, read_meta
    from greenbench.timeline.recorded import TRACE

    run = RunFolder.open(path)
    folder = run.path
    if (folder / TRACE).is_file():
        return folder / TRACE
    reports = sorted(each for each in folder.iterdir() if each.suffix in _DATABASES)
    # An export needs no nsys to be read.
    reports = [each for each in reports if each.suffix == ".sqlite"] or reports
    if not reports:
        command = read_meta(run.meta_path).command
        again = "" if command in WITHOUT_TRACE else "run it again with --trace, or "
        record = f"record one with Nsight Systems: greenbench nsys -- {command} ..."
        raise ResultFileError(f"{path} is a run of {command} without a trace; {again}{record}")
    if len(reports) > 1:
        raise UsageError(f"{path} holds several reports ({', '.join(each.name for each in reports)}); give one of them")
    return reports[0]


def _gaps(analysis: Analysis, patterns: Sequence[str]) -> list[tuple[RangeFigures, tuple[Gaps, ...]]]:
    from greenbench.timeline.gaps import gaps_of

    found = []
    for pattern in dict.fromkeys(patterns):
        exact = [each for each in analysis.ranges if pattern in (each.name, each.title)]
        fitting = exact or [
            each for each in analysis.ranges if fnmatchcase(each.name, pattern) or fnmatchcase(each.title, pattern)
        ]
        if not fitting:
            seen = ", ".join(repr(each.title) for each in analysis.ranges[:5]) or "none"
            raise UsageError(f"--gaps {pattern!r}: the capture has no such range (ranges: {seen})")
        found += [(each, gaps_of(analysis.capture, each)) for each in fitting]
    return found


def _written(analysis: Analysis, stem: str, plot: Path | None, perfetto: Path | None) -> list[Path]:
    paths: list[Path] = []
    if plot is not None:
        import greenbench.plots  # noqa: F401 - sets matplotlib's backend before it is imported
        from greenbench.plots.strip import save_strip

        paths += save_strip(analysis, plot, stem)
    if perfetto is not None:
        from greenbench.timeline.perfetto import write_trace

        write_trace(analysis.capture, analysis.attribution, perfetto)
        paths.append(perfetto)
    return paths


def _report(
    analysis: Analysis, gaps: Sequence[tuple[RangeFigures, tuple[Gaps, ...]]], written: list[Path], json: bool, csv: bool
) -> None:
    """Write text, JSON or the table to stdout, then the paths of what was written (with --csv to stderr, with --json inside)."""
    if json:
        from greenbench.timeline.report import as_json

        emit(dumps(as_json(analysis, gaps) | {"written": [str(path) for path in written]}, indent=1))
        return
    if csv:
        from greenbench.tables import header_line, record_line
        from greenbench.timeline.report import TableRow, table

        emit(header_line(TableRow).decode().rstrip())
        for row in table(analysis):
            emit(record_line(row, "timeline").decode().rstrip())
    else:
        from greenbench.cli.timeline_text import lines

        for line in lines(analysis, gaps):
            emit(line)
    for path in written:
        emit(path, err=csv)


def _failed(analysis: Analysis, topics: Sequence[str]) -> list[str]:
    """Return a sentence for each topic of --fail-on that has findings, or could not be looked at."""
    from greenbench.timeline.finding import counted

    told = []
    for topic in dict.fromkeys(topics):
        found = [finding for finding in analysis.findings if finding.topic.value == topic]
        if topic == "stray" and analysis.unchecked:
            told.append(f"--fail-on stray: stray kernels could not be looked for, since {analysis.unchecked}")
        elif found:
            told.append(f"--fail-on {topic}: {counted(len(found), 'finding')}, first: {found[0].text}")
    return told
