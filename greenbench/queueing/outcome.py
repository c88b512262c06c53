"""What a co-location gave: the stamps of every step, and which SMs were used, in ns on one clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


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
