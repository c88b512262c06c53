"""What the streams are: a person's terminal, a pipe or a CI log; decides colour, bars and how wide a table may be."""

from __future__ import annotations

import os
import select
import sys
from typing import IO, TYPE_CHECKING

import click

from greenbench.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 120


def in_ci() -> bool:
    """True where the environment says that a CI system reads along (CI set to anything but 0 or false)."""
    return os.environ.get("CI", "").strip().lower() not in ("", "0", "false", "no")


def is_live(stream: IO[str] | None = None) -> bool:
    """True where a bar that redraws itself makes sense: a terminal that is not dumb, outside CI."""
    stream = sys.stderr if stream is None else stream
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not in_ci()


def wants_colour(stream: IO[str] | None = None) -> bool:
    """True on a live terminal unless NO_COLOR is set (https://no-color.org: to anything that is not empty)."""
    return is_live(stream) and not os.environ.get("NO_COLOR")


def stderr_console() -> Console:
    """Return a rich console on stderr that keeps to the rules above."""
    from rich.console import Console

    class Unheard(Console):
        """A console whose reader may leave; rich itself would exit with 1, which here means a regression."""

        def on_broken_pipe(self) -> None:
            discard(sys.stderr)

    live = is_live()
    return Unheard(
        stderr=True,
        force_terminal=live,
        no_color=not wants_colour(),
        highlight=False,
        markup=False,
        emoji=False,
        width=None if live else PLAIN_WIDTH,
        legacy_windows=False,
    )


def emit(text: object, *, err: bool = False) -> None:
    """Write a line of a run's outcome; a reader that has left (`| head -1`) does not keep the rest from being done.

    Raises OutputError where the stream takes nothing, such as a file on a full disk.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        if not reader_is_gone(stream):
            raise
        discard(stream)
    except OSError as error:
        # What is left in its buffer would be tried again, and fail again, with every further line.
        discard(stream)
        name = "standard error" if err else "standard output"
        told = error.strerror or str(error)
        raise OutputError(f"cannot write {name}: {told}; make room where it leads to, or lead it elsewhere") from error


def reader_is_gone(stream: IO[str]) -> bool:
    """True where the stream is a pipe whose reading end is closed, as after `| head`."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def discard(stream: IO[str]) -> None:
    """Point a stream that nobody reads at the null device, so that the interpreter's last flush stays quiet."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
