"""Draw a sheet of results with rich, in as many parts as the width of the terminal asks for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from greenbench.cli.report import Line, Sheet
from greenbench.schema import Status

# Padding and the border that SIMPLE_HEAD draws with a blank.
_GAP = 2
_COLOURS = {Status.FAILED.value: "red", Status.UNSUPPORTED.value: "yellow"}


def draw(sheet: Sheet, console: Console) -> None:
    """Draw title, table and notes."""
    console.print()
    console.print(sheet.title, style="bold")
    for first, last in parts(sheet, console.width):
        console.print()
        console.print(_table(sheet, first, last))
    console.print()
    for note in sheet.notes:
        console.print(note, style="" if note.startswith("[") else "dim", soft_wrap=True)


def parts(sheet: Sheet, width: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of columns that fit the width beside the headings, all of about the same size."""
    heading = max((len(text) for line in sheet.lines for text in line.heading), default=0)
    cells = [text for line in sheet.lines for cell in line.cells for text in cell]
    names = [text for name in sheet.columns for text in name.split("\n")]
    widest = max((len(text) for text in (*cells, *names)), default=0)
    fit = max((width - heading - _GAP) // (widest + _GAP), 1)
    total = len(sheet.columns)
    size = -(-total // -(-total // fit)) if total else 1
    for first in range(0, total, size):
        yield first, min(first + size, total)


def _table(sheet: Sheet, first: int, last: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("kernel", no_wrap=True)
    for name in sheet.columns[first:last]:
        table.add_column(name, justify="right", no_wrap=True)
    for line in sheet.lines:
        table.add_row(_heading(line), *(_cell(text) for text in line.cells[first:last]))
    return table


def _heading(line: Line) -> Text:
    text = Text("\n".join(line.heading))
    text.stylize("dim", len(line.heading[0]))
    return text


def _cell(lines: tuple[str, ...]) -> Text:
    text = Text("\n".join(lines))
    if lines:
        colour = _COLOURS.get(lines[0])
        text.stylize(colour or "dim", 0 if colour else len(lines[0]))
    return text
