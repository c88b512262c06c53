"""The host's part in a co-location, against a device of fakes: what is queued, in which order, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from greenbench.costeps import CoSchedule, RoleSchedule
from greenbench.gpu.hosting import AHEAD_CLOSED, AHEAD_LAUNCHES, AHEAD_OPEN, Queue, in_turn, side_by_side


@dataclass
class Device:
    """Runs one enqueued piece at a time per book, and moves its clock on as it is looked at."""

    tick_ns: int = 1_000
    now: int = 0
    log: list[str] = field(default_factory=list)
    running: list[tuple[Book, int]] = field(default_factory=list)

    def now_ns(self) -> int:
        """Return the time; what was due by then has ended."""
        self.now += self.tick_ns
        for entry in list(self.running):
            book, end = entry
            if end <= self.now:
                book.count += 1
                self.running.remove(entry)
        return self.now


@dataclass
class Book:
    """A ledger of fakes."""

    device: Device
    count: int = 0

    @property
    def done(self) -> int:
        """Steps that have ended; asking lets time pass."""
        self.device.now_ns()
        return self.count


@dataclass
class Piece:
    """A piece of a step that takes a known time."""

    name: str
    book: Book
    us: float
    launches: int = 4

    def launch(self) -> None:
        """Start it behind what is there."""
        device = self.book.device
        device.log.append(self.name)
        begin = max([device.now, *(end for book, end in device.running if book is self.book)])
        device.running.append((self.book, begin + int(self.us * 1e3)))


def queue(device: Device, names: str, schedule: RoleSchedule, *, us: float = 10.0, launches: int = 4, until: int | None = None):
    """Return a queue whose pieces are the letters of `names`."""
    book = Book(device)
    due = list(schedule.due_ns) if schedule.due_ns is not None else [0]
    return Queue([Piece(name, book, us, launches) for name in names], book, schedule, due, until)  # type: ignore[arg-type]


def test_an_open_loop_is_queued_ahead_and_ends_with_its_last_step() -> None:
    """All due steps are enqueued, in order, and the run ends when they are done."""
    device = Device()
    role = queue(device, "d", RoleSchedule(due_ns=tuple(range(0, 50_000, 1_000))))
    assert side_by_side([role], CoSchedule(roles=(role.schedule,)), device)
    assert (role.issued, len(device.log), role.finished) == (50, 50, True)


def test_no_more_launches_are_queued_than_a_stream_holds() -> None:
    """A step of many kernels is queued less far ahead, an ordinary one 32 deep, a closed loop three."""
    device = Device()
    due = RoleSchedule(due_ns=(0,) * 1000)
    assert queue(device, "d", due, launches=4).ahead == AHEAD_OPEN
    assert queue(device, "d", due, launches=100).ahead == AHEAD_LAUNCHES // 100
    assert queue(device, "d", due, launches=600).ahead == 2
    assert queue(device, "abc", RoleSchedule(), launches=4).ahead == 3 * AHEAD_CLOSED


def test_a_host_that_waits_for_each_end_enqueues_one_step_at_a_time() -> None:
    """`ahead` limits what is enqueued, down to a closed loop through the host."""
    device = Device()
    role = queue(device, "b", RoleSchedule(steps=5, ahead=1))
    assert role.fill(lambda: 0)
    assert (role.issued, role.waiting) == (1, 1)
    assert not role.fill(lambda: 0)
    assert side_by_side([role], CoSchedule(roles=(role.schedule,)), device)
    assert role.issued == 5


def test_an_endless_role_ends_with_the_others() -> None:
    """The background goes on as long as the latency role does, and no step of it is left half done."""
    device = Device()
    latency = queue(device, "d", RoleSchedule(due_ns=(0, 100_000, 200_000)), us=5.0)
    background = queue(device, "xyz", RoleSchedule(), us=3.0)
    assert side_by_side([latency, background], CoSchedule(roles=(latency.schedule, background.schedule)), device)
    assert latency.issued == 3
    assert background.issued % 3 == 0
    assert background.issued >= 3


def test_a_closed_loop_ends_after_its_steps_or_its_time() -> None:
    """`steps` is exact; `until_ns` ends at the first look past it."""
    device = Device()
    counted = queue(device, "b", RoleSchedule(steps=7))
    assert side_by_side([counted], CoSchedule(roles=(counted.schedule,)), device)
    assert counted.issued == 7
    device = Device()
    timed = queue(device, "b", RoleSchedule(until_ns=2_000_000), us=100.0, until=2_000_000)
    assert side_by_side([timed], CoSchedule(roles=(timed.schedule,)), device)
    assert timed.issued >= 20


def test_the_limit_ends_a_run_that_would_go_on() -> None:
    """Past the limit nothing is enqueued, what runs is waited for, and the caller is told."""
    device = Device()
    role = queue(device, "d", RoleSchedule(due_ns=tuple(range(0, 10**9, 10_000_000))), us=5.0)
    assert not side_by_side([role], CoSchedule(roles=(role.schedule,), limit_s=0.0), device)
    assert role.issued < 100


def test_a_stop_file_ends_endless_roles(tmp_path: Path) -> None:
    """Another process's role is done: the file appears, and the loop comes to its end."""
    stop = tmp_path / "stop"
    stop.touch()
    device = Device()
    role = queue(device, "b", RoleSchedule())
    assert side_by_side([role], CoSchedule(roles=(role.schedule,), stop=stop), device)
    assert role.finished


def test_the_host_waits_for_the_due_time_where_no_gate_does() -> None:
    """With `on_host` a step is enqueued only when it is due by the host's view of the device's clock."""
    device = Device()
    role = queue(device, "d", RoleSchedule(due_ns=(0, 500_000), on_host=True), us=1.0)
    assert role.fill(lambda: 100_000)
    assert role.issued == 1
    assert not role.fill(lambda: 499_999)
    assert role.fill(lambda: 500_000)
    assert role.issued == 2


def test_chunks_and_steps_alternate() -> None:
    """After a piece of the background a due step goes next, and after a step the next piece, whatever else is due."""
    device = Device()
    latency = queue(device, "d", RoleSchedule(due_ns=(0,) * 4), us=2.0)
    background = queue(device, "xyz", RoleSchedule(), us=3.0)
    roles = [latency, background]
    assert in_turn(roles, CoSchedule(roles=tuple(q.schedule for q in roles)), device, alternate=True)
    assert "".join(device.log).startswith("dxdydzd")


def test_serial_runs_what_is_due_before_the_next_request() -> None:
    """In one queue all steps that are due go before the background's next step, and nothing else breaks a step up."""
    device = Device()
    latency = queue(device, "d", RoleSchedule(due_ns=(0, 0, 0)), us=2.0)
    background = queue(device, "b", RoleSchedule(), us=3.0)
    roles = [latency, background]
    assert in_turn(roles, CoSchedule(roles=tuple(q.schedule for q in roles)), device, alternate=False)
    assert "".join(device.log).startswith("ddd")


@pytest.mark.parametrize("alternate", [False, True])
def test_one_piece_at_a_time(alternate: bool) -> None:
    """Where roles share a stream in turn, nothing is enqueued while a piece runs."""
    device = Device()
    latency = queue(device, "d", RoleSchedule(due_ns=tuple(range(0, 100_000, 20_000))), us=4.0)
    background = queue(device, "xy", RoleSchedule(), us=6.0)
    roles = [latency, background]
    most = 0
    for each in (latency, background):
        for piece in each.pieces:
            launch = piece.launch

            def watched(launch: object = launch) -> None:
                nonlocal most
                launch()  # type: ignore[operator]
                most = max(most, len(device.running))

            piece.launch = watched  # type: ignore[method-assign]
    in_turn(roles, CoSchedule(roles=tuple(q.schedule for q in roles)), device, alternate=alternate)
    assert most == 1
