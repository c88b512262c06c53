"""Order, stopping and drift: pure rules that the sweep applies between blocks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from greenbench import stats
from greenbench.schema import Block, BlockStatus, Point

PRECISE_PCT = 0.5
SENTINEL_EVERY = 10
DRIFT = 0.01
DRIFTS_ALLOWED = 3
SENTINELS_FOR_MEDIAN = 3
COOL_S = (2.0, 4.0)


def permutation(points: Sequence[Point], seed: int, round_: int) -> list[Point]:
    """Return this round's order: all points of one environment key together, keys and points in random order."""
    rng = random.Random(f"{seed}:{round_}")
    keys = sorted({point.connections for point in points}, key=lambda key: -1 if key is None else key)
    rng.shuffle(keys)
    order: list[Point] = []
    for key in keys:
        mine = [point for point in points if point.connections == key]
        rng.shuffle(mine)
        order += mine
    return order


@dataclass(slots=True)
class Tally:
    """What a point has so far."""

    block_s: float
    rounds: set[int] = field(default_factory=set)
    seqs: dict[int, float] = field(default_factory=dict)
    over: bool = False

    def add(self, block: Block) -> None:
        """Count an ok block."""
        self.rounds.add(block.round)
        self.seqs[block.seq] = stats.median(block.samples_us) if block.samples_us else 0.0

    def take_back(self, seqs: Sequence[int]) -> bool:
        """Forget blocks that drifted; True if any was this point's."""
        mine = [seq for seq in seqs if self.seqs.pop(seq, None) is not None]
        return bool(mine)

    def settled(self, rounds: int, max_rounds: int) -> bool:
        """Return True once the interval of the median is narrow after `rounds` blocks, or `max_rounds` are done."""
        count = len(self.seqs)
        if count < rounds:
            return False
        width = stats.half_width_pct(list(self.seqs.values()))
        return count >= max_rounds or (width is not None and width <= PRECISE_PCT)


@dataclass(slots=True)
class SentinelWatch:
    """Follows a fixed kernel on the full device; a step away from its median puts the stretch before it in doubt."""

    history: list[float] = field(default_factory=list)
    stretch: list[int] = field(default_factory=list)
    drifts: int = 0

    def visited(self, seq: int) -> None:
        """Add a block to the stretch since the last good sentinel."""
        self.stretch.append(seq)

    def read(self, block: Block) -> list[int]:
        """Judge a sentinel block; return the sequence numbers of the stretch that it puts in doubt (empty: no drift)."""
        if block.status is not BlockStatus.OK or not block.samples_us:
            return []
        value = stats.median(block.samples_us)
        known = len(self.history) >= SENTINELS_FOR_MEDIAN
        off = known and abs(value / stats.median(self.history) - 1) > DRIFT
        self.history.append(value)
        lost, self.stretch = self.stretch, []
        if not off:
            return []
        self.drifts += 1
        return lost

    @property
    def unsteady(self) -> bool:
        """True if the sentinel moved more often than redoing can mend: what is measured stays, and the run says so."""
        return self.drifts > DRIFTS_ALLOWED
