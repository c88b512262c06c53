"""Draw the table of a co-location with rich, in as many parts as the width of the terminal asks for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from greenbench.cli.coreport import BEST, WORST, CoCell, CoLine, CoPart, CoSheet
from greenbench.schema import Status

# Padding between columns, as SIMPLE_HEAD draws it.
_GAP = 2
_MOODS = {BEST: "green", WORST: "red"}
_COLOURS = {Status.FAILED.value: "red", Status.UNSUPPORTED.value: "yellow"}


def draw(sheet: CoSheet, console: Console) -> None:
    """Draw title, tables and notes."""
    console.print()
    console.print(sheet.title, style="bold")
    for part in sheet.parts:
        if part.name:
            console.print()
            console.print(part.name, style="bold")
        for first, last in spans(part, console.width):
            console.print()
            console.print(_table(part, first, last))
    console.print()
    for note in sheet.notes:
        console.print(note, style="" if note.startswith("[") else "dim", soft_wrap=True)


def spans(part: CoPart, width: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of columns that fit the width beside the headings."""
    room = width - max((len(text) for line in part.lines for text in _heading_lines(line)), default=0)
    first, used = 0, 0
    for index, name in enumerate(part.columns):
        cells = [line.cells[index] for line in part.lines if index < len(line.cells)]
        # One more for the mark, which each cell keeps free.
        wide = max(len(text) for text in (*name.split("\n"), *(f"{cell.text} " for cell in cells))) + _GAP
        if used and used + wide > room:
            yield first, index
            first, used = index, 0
        used += wide
    yield first, len(part.columns)


def _heading_lines(line: CoLine) -> tuple[str, ...]:
    return (line.heading, f"  {line.remark}") if line.remark and not line.cells else (f"{line.heading} {line.remark}".strip(),)


def _table(part: CoPart, first: int, last: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("", no_wrap=True)
    for name in part.columns[first:last]:
        table.add_column(name, justify="right", no_wrap=True)
    # What has no figures says why in the first table; the others go on with those that have.
    for line in part.lines if first == 0 else (each for each in part.lines if each.cells):
        table.add_row(_heading(line), *(_cell(cell) for cell in line.cells[first:last]))
    return table


def _heading(line: CoLine) -> Text:
    text = Text("\n".join(_heading_lines(line)))
    text.stylize(_COLOURS.get(line.remark.partition(" ")[0], "dim"), len(line.heading))
    return text


def _cell(cell: CoCell) -> Text:
    return Text(f"{cell.text}{cell.mark or ' '}", style=_MOODS.get(cell.mark, ""))
