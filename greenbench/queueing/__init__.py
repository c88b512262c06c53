"""A model of co-location: discrete events over SMs that roles share, split or have in turn, in whole ns and the same for a seed.

This is what the modelled device answers with where a real one would run a co-location; it runs no code and measures nothing.

Call
    corun(device, roles, mechanism, sizes=(), placed=(), seed=0, until_us=None) -> Outcome

    `device` is a `Device` (`predicted.device(model)` makes one of a modelled GPU), `roles` are `Role`s, each with the
    kernels of one step (`Piece`; `predicted.piece` makes one with `bounds.predict`) and its arrivals: a tuple of us for an
    open loop, `Closed` for a closed one. `Closed()` is a busy background, one step after the other until the rest is done.
    `placed` says outright which SMs each role may use, how many of them at once and who goes first, where a caller has
    partitions of its own; the sizes are then not looked at.
    `Outcome.steps[name]` holds (intended, start, end) of each step in ns, all on one clock that starts at 0; `parts` holds
    what ran when on which SMs (the timeline strip, overlap, gaps between processes), `census(name)` the SMs used.
    `tails.StepTimes.of` takes the steps as they are: latencies from the intended start, and whether the queue still grew. One
    that grows can take very long: give `until_us`.

Mechanisms, and what `sizes` (SMs, one for each role, in order) means for them
    alone              each role by itself, on its size or, without sizes, on the device; clocks of the roles are unrelated
    serial             one queue on the whole device, steps in the order in which they are due, one after the other
    chunked            in turn on the whole device: `Role.chunk` kernels of a background, then a step of a latency role
    streams            all on the whole device, first come first served
    priority           the same, but kernels of latency roles take SMs before those of background roles
    green              disjoint partitions of these sizes; green_balanced the same, since launch queues are not modelled, and
                       torch_green, whose contexts another library makes
    green_background   background roles in their partitions, latency roles on every SM
    green_primary      latency roles in their partitions, background roles on every SM: a partition reserves nothing
    green_priority     green with priorities, which have nothing to decide between disjoint partitions
    timeslice          processes in turn on the whole device, `Device.slice_us` at most while others wait, and
                       `Device.switch_us` whenever the device changes hands
    mps                as streams: processes under MPS have streams of one device
    mps_limited        as mps, but a role holds at most its size of SMs at once, whichever are free
    Mechanisms that are not in `SIZED` have no partition; except for alone they do not look at sizes, so they run once.

How SMs change hands (`shared`)
    A kernel is a grid of CTAs that starts in waves. Whenever SMs come free, kernels that are ready get them by rank, then in
    the order in which they became ready, then in the order of the roles; nobody takes an SM for which one before him still
    waits, and nothing that runs is preempted. So under `streams` a kernel that comes later waits until the last wave of the
    one before has started, and shares SMs with that; under `priority` it waits for the wave that runs; in its own partition
    for nobody. A step of many short kernels waits anew for each: between two of them (`Device.gap_us`) its SMs are free.
    An SM runs one kernel at a time. A persistent kernel is one wave, so that priority helps little beside it.

How HBM is shared
    A kernel wants hbm_bytes / us(n) while it runs. Where all together want more than `Device.hbm_gb_s`, whatever uses HBM is
    slowed by the same factor, wanted / available; kernels that use none keep their speed. One kernel wants at most all of it.

Not modelled
    L2 and link contention, clocks and power, copies, launch queues, the host. Kernels under `timeslice` lose no cache.

Checked against an H200 (driver 580; 16-CTA probe beside a kernel of 132 * 16 CTAs)
    p99 of the probe in us, measured and modelled: streams 1553 and 1547, priority 399 and 406, green 34 and 22.5 (the
    measured ones hold the host's jitter, 43 us alone). The probe is taken as 22.5 us and the kernel as 4 waves of 388 us,
    which the two upper tails suggest; so this shows that one pair of figures explains both, and no more. With 137 us a
    switch and 12 us of host time, 1, 2, 4 and 8 processes of a 101 us kernel take 113, 476, 952, 1904 us a step, measured
    113, 476, 953, 1906.
"""

from __future__ import annotations

from collections.abc import Sequence

from greenbench.queueing.feed import Feed
from greenbench.queueing.lane import NEVER
from greenbench.queueing.layout import SIZED, Place, places
from greenbench.queueing.model import Closed, Device, Kind, Mechanism, Piece, Role, Table, check, nanoseconds
from greenbench.queueing.outcome import Outcome, Part, Step
from greenbench.queueing.shared import Shared
from greenbench.queueing.turns import Turns

IN_TURN = frozenset({Mechanism.SERIAL, Mechanism.CHUNKED, Mechanism.TIMESLICE})


def corun(
    device: Device,
    roles: Sequence[Role],
    mechanism: Mechanism,
    *,
    sizes: Sequence[int] = (),
    placed: Sequence[Place] = (),
    seed: int = 0,
    until_us: float | None = None,
) -> Outcome:
    """Run every role's steps under one mechanism; the module's text says what `sizes` are and what comes back.

    Steps that have not ended at `until_us` are left out: a queue that grows takes the longer the more it is asked for.
    Raises UsageError for facts, times, arrivals or sizes that cannot be meant, and where no role has a last step.
    """
    together = tuple(roles)
    check(device, together)
    until = NEVER if until_us is None else nanoseconds(until_us)
    if mechanism == Mechanism.ALONE:
        return _alone(device, together, placed or places(device, together, mechanism, sizes), seed, until)
    feeds: list[Feed] = []

    def goes_on(_: int) -> bool:
        return any(feed.head is not None for feed in feeds if not feed.role.endless)

    feeds += [Feed(role, device, seed, goes_on) for role in together]
    if mechanism in IN_TURN:
        parts = Turns(device, feeds, mechanism).run(until)
    else:
        parts = Shared(device, feeds, placed or places(device, together, mechanism, sizes)).run(until)
    return _outcome(feeds, parts, until)


def _alone(device: Device, roles: tuple[Role, ...], placed: Sequence[Place], seed: int, until: int) -> Outcome:
    """Run each role by itself; an endless one for as long as the longest of the others took."""
    longest = 0

    def goes_on(now: int) -> bool:
        return now < longest

    feeds = [Feed(role, device, seed, goes_on) for role in roles]
    parts: list[Part] = []
    found = zip(feeds, placed, strict=True)
    for feed, place in sorted(found, key=lambda pair: pair[0].role.endless):
        parts += Shared(device, [feed], [place]).run(until)
        if not feed.role.endless:
            longest = max(longest, *(step.end for step in feed.steps[-1:]), 0)
    return _outcome(feeds, sorted(parts, key=lambda part: part.end), until)


def _outcome(feeds: Sequence[Feed], parts: Sequence[Part], until: int) -> Outcome:
    """Return what had ended by then."""
    steps = {feed.role.name: tuple(step for step in feed.steps if step.end <= until) for feed in feeds}
    return Outcome(steps, tuple(part for part in parts if part.end <= until))


__all__ = [
    "corun",
    "Mechanism",
    "SIZED",
    "Device",
    "Role",
    "Kind",
    "Closed",
    "Piece",
    "Place",
    "Table",
    "Outcome",
    "Step",
    "Part",
]
