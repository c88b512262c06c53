"""What a run shows while it goes: a bar with time left on a terminal, a plain line now and then in pipes and CI."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from greenbench.cli.report import counted, driver_text
from greenbench.cli.session import Session
from greenbench.cli.terminal import emit, is_live, stderr_console
from greenbench.schema import Backend, RunMeta

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PLAIN_EVERY_S = 10.0
PLAIN_EVERY_PCT = 10.0
PLAIN_LEAST_S = 1.0
# Below this much finished work the pace is that of compiling and warming up, and would mislead.
_PACE_NEEDS_S = 0.5


def duration(seconds: float) -> str:
    """Write a duration as a person says it: `0.4 s`, `24 s`, `3 min 20 s`, `1 h 05 min`."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Pace:
    """Time left from work done: seconds of block time, scaled by how long the wall took for those done so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start: tuple[float, float] | None = None

    def left_s(self, done_s: float, expected_s: float) -> float:
        """Return seconds until `expected_s` is reached at the pace since the first call."""
        now = self._clock()
        if self._start is None:
            self._start = (now, done_s)
        wall, work = now - self._start[0], done_s - self._start[1]
        slower = max(wall / work, 1.0) if work >= _PACE_NEEDS_S else 1.0
        return max(expected_s - done_s, 0.0) * slower


def opening_line(meta: RunMeta, folder: Path, total_blocks: int) -> str:
    """Say what is about to be measured, on what, and where the results go."""
    device = meta.device
    # A co-location visits each of its points once, and keeps them in its plan.
    blocks = f"{counted(len(meta.points), 'point')}, {counted(total_blocks, 'block')}"
    work = f"{blocks if meta.points else counted(total_blocks, 'point')}, into {near(folder)}"
    if device.backend is Backend.MODELLED:
        return f"MODELLED {device.name}, {driver_text(device)}, nothing is measured: {work}"
    return f"{device.name}, {driver_text(device)}: {work}"


def near(path: Path) -> Path:
    """Return a path as one would type it here: relative where it lies below the working folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


class QuietListener(AbstractContextManager["QuietListener"]):
    """Notes where the run folder is and shows nothing; the base of the two that do."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finished()

    def started(self, meta: RunMeta, folder: Path, total_blocks: int) -> None:
        """Keep the folder, for a traceback and for the sentence on how to resume."""
        self._session.folder = folder

    def note(self, text: str) -> None:
        """Show nothing: -q asked for paths and errors only."""

    def progress(self, done_s: float, expected_s: float, label: str) -> None:
        """Show nothing."""

    def finished(self) -> None:
        """Nothing to take down."""


class PlainListener(QuietListener):
    """Lines for a log: one whenever 10 s or 10 % have gone by, but never more than one a second."""

    def __init__(self, session: Session, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(session)
        self._write = write
        self._clock = clock
        self._pace = Pace(clock)
        self._last_at: float | None = None
        self._last_pct = 0.0

    def started(self, meta: RunMeta, folder: Path, total_blocks: int) -> None:
        """Write the opening line."""
        super().started(meta, folder, total_blocks)
        self._write(opening_line(meta, folder, total_blocks))

    def note(self, text: str) -> None:
        """Write a remark as its own line."""
        self._write(f"note: {text}")

    def progress(self, done_s: float, expected_s: float, label: str) -> None:
        """Write a line if the last one is old news."""
        left = self._pace.left_s(done_s, expected_s)
        now = self._clock()
        if self._last_at is None:
            self._last_at = now
            return
        pct = min(100.0 * done_s / expected_s, 100.0) if expected_s > 0 else 0.0
        waited = now - self._last_at
        if waited < PLAIN_LEAST_S or (waited < PLAIN_EVERY_S and pct - self._last_pct < PLAIN_EVERY_PCT):
            return
        self._last_at, self._last_pct = now, pct
        self._write(f"{pct:3.0f} %, {duration(left)} left, at {label}")


class BarListener(QuietListener):
    """A bar that redraws itself; remarks scroll by above it and it leaves nothing behind."""

    def __init__(self, session: Session, console: Console) -> None:
        super().__init__(session)
        self._console = console
        self._pace = Pace()
        self._bar = _new_bar(console)
        self._task = self._bar.add_task("starting the worker", total=None, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def started(self, meta: RunMeta, folder: Path, total_blocks: int) -> None:
        """Write the opening line above the bar."""
        super().started(meta, folder, total_blocks)
        self._console.print(opening_line(meta, folder, total_blocks))
        self._bar.update(self._task, description="preparing")

    def note(self, text: str) -> None:
        """Write a remark above the bar."""
        self._console.print(f"note: {text}", style="yellow")

    def progress(self, done_s: float, expected_s: float, label: str) -> None:
        """Move the bar."""
        pct = min(100.0 * done_s / expected_s, 100.0) if expected_s > 0 else 0.0
        left = f"{pct:3.0f} %, {duration(self._pace.left_s(done_s, expected_s))} left,"
        self._bar.update(self._task, completed=min(done_s, expected_s), total=expected_s, description=label, left=left)

    def finished(self) -> None:
        """Take the bar down; safe to call twice, and what Ctrl-C passes through."""
        self._bar.stop()


def _new_bar(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    # Not to the edge: a terminal echoes ^C there, and a line that is full would wrap and could not be taken down.
    label = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - 60, 10))
    return Progress(
        BarColumn(bar_width=30),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.description}", markup=False, table_column=label),
        console=console,
        transient=True,
        refresh_per_second=5,
    )


def listener(session: Session, *, quiet: bool, ci: bool) -> QuietListener:
    """Return the listener that suits the streams and the options."""
    if quiet:
        return QuietListener(session)
    if ci or not is_live():
        return PlainListener(session, partial(emit, err=True))
    return BarListener(session, stderr_console())
