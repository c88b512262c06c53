"""What a co-location gave: the stamps of every step, which SMs were used, and how late steps were, in ns on one clock."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from greenbench.stats import median

# A backlog below these is what chance leaves behind in a queue that holds.
FEWEST_WAITING = 5
WAITING_SHARE = 0.01
QUARTERS = 4
FEWEST_STEPS = 8


class Step(NamedTuple):
    """One step: when it was meant to start, when its first CTA started and its last one ended, in ns."""

    intended: int
    start: int
    end: int


class Part(NamedTuple):
    """A stretch of one kernel on one set of SMs: a wave of its CTAs, or a slice of a process's time.

    Where nobody else may use its SMs, one part is the whole kernel. `ready` is when the kernel could have run, had it been
    alone; `smids` is a bit mask.
    """

    role: str
    step: int
    piece: int
    ready: int
    start: int
    end: int
    smids: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per role its steps in order; and all parts, by the time of their end."""

    steps: Mapping[str, tuple[Step, ...]]
    parts: tuple[Part, ...]

    def census(self, role: str) -> tuple[int, ...]:
        """Return the ids of the SMs that the role's CTAs ran on, ascending."""
        seen = 0
        for part in self.parts:
            if part.role == role:
                seen |= part.smids
        return tuple(smid for smid in range(seen.bit_length()) if seen >> smid & 1)


def latencies_us(steps: Sequence[Step]) -> list[float]:
    """Return end minus intended start of every step, in us."""
    return [(step.end - step.intended) / 1000 for step in steps]


def saturated(steps: Sequence[Step], due: int | None = None) -> bool:
    """Return whether an open-loop queue was still growing at the end, so that its percentiles mean nothing.

    It was if, when the last step was due, at least 1 % of all steps (and five) had not ended, and lateness at the start
    rose from each quarter of the run to the next, by median. Simulated for random arrivals and equal steps, 3,000 of them:
    called growing in 0 % of runs at 90 % load, 0.5 % at 95, 86 % at 105, 99.5 % at 110; with 300 steps 8 % at 90 % load and
    all at 130. Below eight steps nothing can be said, and False is. Of a run that was cut short `steps` are those that
    ended, and `due` counts the arrivals up to the cut.
    """
    if len(steps) < FEWEST_STEPS:
        return False
    last = max(step.intended for step in steps)
    ended = bisect.bisect_right(sorted(step.end for step in steps), last) if due is None else len(steps)
    planned = len(steps) if due is None else due
    if planned - ended < max(FEWEST_WAITING, WAITING_SHARE * planned):
        return False
    late = [step.start - step.intended for step in sorted(steps)]
    cuts = [len(late) * quarter // QUARTERS for quarter in range(QUARTERS + 1)]
    middles = [median(late[low:high]) for low, high in itertools.pairwise(cuts)]
    return all(earlier < later for earlier, later in itertools.pairwise(middles))
