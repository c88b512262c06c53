"""When steps are due: Poisson or fixed-rate arrivals as absolute times, drawn once and the same for every mechanism."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

NS_PER_S = 1_000_000_000


class Process(StrEnum):
    """How arrivals follow each other."""

    POISSON = "poisson"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An open loop: `rate_per_s` arrivals a second on average; the schedule never moves, however late the work is.

    `role` is part of the seed, so that two roles of one run are independent of each other. Another rate of the same seed is
    the same pattern on another scale of time, so that neighbouring rates differ by the load alone. Raises ValueError for a
    rate that is not above 0.
    """

    process: Process
    rate_per_s: float
    seed: int = 1
    role: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < math.inf:
            raise ValueError(f"arrivals at {self.rate_per_s} a second were asked for: a rate is above 0")

    def times_ns(self) -> Iterator[int]:
        """Yield the intended starts without end, in ns from the schedule's own zero, never falling."""
        scale = NS_PER_S / self.rate_per_s
        for units in self._units():
            yield round(units * scale)

    def _units(self) -> Iterator[float]:
        """Yield arrival times in mean gaps; the first comes one gap after zero."""
        if self.process is Process.FIXED:
            yield from itertools.count(1)
            return
        # Python promises random() for a seed, but not what expovariate makes of it; a text is hashed, not summed up.
        draw = random.Random(f"{self.seed}/{self.role}/{self.process.value}").random
        elapsed = 0.0
        while True:
            elapsed -= math.log(1 - draw())
            yield elapsed

    def first(self, count: int) -> tuple[int, ...]:
        """Return the first `count` intended starts in ns."""
        return tuple(itertools.islice(self.times_ns(), count))

    def until(self, end_ns: int) -> tuple[int, ...]:
        """Return the intended starts before `end_ns`."""
        return tuple(itertools.takewhile(lambda time: time < end_ns, self.times_ns()))
