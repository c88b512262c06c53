"""The host's part in a co-location: it keeps graphs queued ahead of the device, or chooses whose turn it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from greenbench.costeps import CoSchedule, RoleSchedule
from greenbench.gpu.ledger import CAPACITY, Ledger

# Replays queued ahead: enough to hide the host, few enough that an endless role ends soon. A stream holds about 1,000 launches,
# and fewer replays of one graph than that; then the host blocks (seen on driver 580), and with it every other role.
AHEAD_OPEN, AHEAD_CLOSED = 8, 3
AHEAD_LAUNCHES = 500
LOOK_S = 1e-3
# Between two looks at the device's counters.
PAUSE_S = 20e-6


class Step(Protocol):
    """A captured step, or one piece of it."""

    launches: int

    def launch(self) -> None:
        """Enqueue it."""


class Clock(Protocol):
    """The device's clock as the host knows it."""

    def now_ns(self) -> int:
        """Return the device's time by the host's."""


class Queue:
    """What one role has to enqueue, and how far it has come; `pieces` are the graphs of one step in order."""

    def __init__(self, pieces: Sequence[Step], ledger: Ledger, schedule: RoleSchedule, due_ns: Sequence[int], end_ns: int | None):
        self.pieces, self.ledger, self.schedule, self.due_ns, self._end_ns = pieces, ledger, schedule, due_ns, end_ns
        self.issued = 0
        self.closed = False
        room = CAPACITY // len(pieces) * len(pieces)
        steps = len(due_ns) if schedule.due_ns is not None else schedule.steps
        self.most = room if steps is None else min(steps * len(pieces), room)
        fit = max(2, AHEAD_LAUNCHES // sum(piece.launches for piece in pieces))
        asked = schedule.ahead or (AHEAD_OPEN if schedule.due_ns is not None else AHEAD_CLOSED)
        self.ahead = min(asked, fit) * len(pieces)
        # Where each end is waited for, or each due time, a pause of the host is in the figures.
        self.patient = not schedule.on_host and schedule.ahead != 1

    @property
    def waiting(self) -> int:
        """Pieces that are enqueued and not done."""
        return self.issued - self.ledger.done

    @property
    def finished(self) -> bool:
        """True when nothing more will be enqueued and all is done."""
        return self._exhausted and self.waiting == 0

    @property
    def _exhausted(self) -> bool:
        # A step that has begun is brought to its end.
        return self.issued >= self.most or (self.closed and self.issued % len(self.pieces) == 0)

    def close_when_over(self, now_ns: Callable[[], int]) -> None:
        """Enqueue no further step once the end of a closed loop has passed."""
        if self._end_ns is not None and not self.closed and now_ns() >= self._end_ns:
            self.closed = True

    def fill(self, now_ns: Callable[[], int]) -> bool:
        """Enqueue the next piece if it may be queued by now; return whether it was. One at a time: no role starves another."""
        if self._exhausted or self.waiting >= self.ahead or (self.schedule.on_host and not self._due(now_ns)):
            return False
        self.issue()
        return True

    def issue(self) -> None:
        """Enqueue the next piece."""
        self.pieces[self.issued % len(self.pieces)].launch()
        self.issued += 1

    def _due(self, now_ns: Callable[[], int]) -> bool:
        if self.issued % len(self.pieces):
            return True
        step = self.issued // len(self.pieces)
        if self.schedule.due_ns is None:
            # A closed loop of its own process: the next step is due when the one before has ended.
            return step > 0 or self.due_ns[0] <= now_ns()
        return self.due_ns[step] <= now_ns()

    @property
    def next_due_ns(self) -> int | None:
        """Return when the next piece is due, by what is known now; None where there is none."""
        if self._exhausted:
            return None
        if self.schedule.due_ns is None or self.issued % len(self.pieces):
            return 0
        return self.due_ns[self.issued // len(self.pieces)]


def side_by_side(queues: Sequence[Queue], schedule: CoSchedule, clock: Clock) -> bool:
    """Keep every role's stream filled until all are done; return False where the limit passed first."""
    watch = _Watch(queues, schedule)
    while not all(queue.finished for queue in queues):
        watch.look(clock)
        enqueued = [queue.fill(clock.now_ns) for queue in queues]
        if not any(enqueued) and all(queue.patient for queue in queues):
            time.sleep(PAUSE_S)
    return watch.in_time


def in_turn(queues: Sequence[Queue], schedule: CoSchedule, clock: Clock, *, alternate: bool) -> bool:
    """Run one piece at a time on a stream that all share; return False where the limit passed first.

    The one that is due longest goes next; with `alternate` another role goes first after each piece, if it is due. The host
    chooses when the piece before has ended, as a serving engine does; what that costs is part of the times.
    """
    watch = _Watch(queues, schedule)
    last: Queue | None = None
    while not all(queue.finished for queue in queues):
        watch.look(clock)
        if any(queue.waiting for queue in queues):
            continue
        ready = _ready(queues, clock.now_ns())
        if not ready:
            continue
        others = [queue for queue in ready if queue is not last]
        chosen = min(others if alternate and others else ready, key=_rank)
        chosen.issue()
        last = chosen
    return watch.in_time


def _ready(queues: Sequence[Queue], now_ns: int) -> list[Queue]:
    """Return those whose next piece is due."""
    return [queue for queue in queues if (due := queue.next_due_ns) is not None and due <= now_ns]


def _rank(queue: Queue) -> tuple[int, int]:
    """Order by due time; a closed loop, due since its last piece ended, comes after what was due while that ran."""
    closed = queue.schedule.due_ns is None
    return (1, 0) if closed else (0, queue.next_due_ns or 0)


class _Watch:
    """Looks from time to time whether roles are to end: others are done, the file is there, the time is up."""

    def __init__(self, queues: Sequence[Queue], schedule: CoSchedule) -> None:
        self._queues, self._stop = queues, schedule.stop
        self._deadline = time.monotonic() + schedule.limit_s
        self._next = 0.0
        self.in_time = True

    def look(self, clock: Clock) -> None:
        """Look, at most once a millisecond."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_S
        if now >= self._deadline:
            self.in_time = False
            for queue in self._queues:
                queue.closed = True
            return
        for queue in self._queues:
            queue.close_when_over(clock.now_ns)
        if _stopped(self._stop) or self._others_done():
            for queue in self._queues:
                queue.closed = queue.closed or queue.schedule.endless

    def _others_done(self) -> bool:
        ending = [queue for queue in self._queues if not queue.schedule.endless]
        return bool(ending) and all(queue.finished for queue in ending)


def _stopped(path: Path | None) -> bool:
    return path is not None and path.exists()


__all__ = ["Clock", "Queue", "Step", "in_turn", "side_by_side"]
