"""A plain table on stdout, for commands whose result it is: coloured on a terminal, of fixed width in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from greenbench.cli.terminal import PLAIN_WIDTH, is_live, wants_colour


def write_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, folded: Sequence[str] = (), right: bool = False) -> None:
    """Write a table; the columns of `folded` may break lines, `right` sets all but the first column to the right."""
    live = is_live(sys.stdout)
    console = Console(
        file=sys.stdout,
        force_terminal=live,
        no_color=not wants_colour(sys.stdout),
        highlight=False,
        markup=False,
        emoji=False,
        width=None if live else PLAIN_WIDTH,
        legacy_windows=False,
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), show_edge=False)
    for index, title in enumerate(titles):
        table.add_column(title, no_wrap=title not in folded, justify="right" if right and index else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
