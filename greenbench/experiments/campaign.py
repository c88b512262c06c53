"""The rounds of one run: which point is visited next, what its outcome does to it, and what the journal gets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from greenbench.errors import GreenbenchError, KernelFileError, PointError, StickyError, UnsupportedError
from greenbench.experiments.crew import Crew
from greenbench.experiments.rounds import COOL_S, SENTINEL_EVERY, SentinelWatch, Tally, permutation
from greenbench.figures import TAKES, TRIES
from greenbench.journal import Journal, void_reason, voided
from greenbench.plan import Plan
from greenbench.rows import point_key
from greenbench.schema import Block, BlockKind, BlockStatus, Grant, Partition, Point, SmsMode, Timing

SENTINEL = Point("copy", (("n", 1 << 26),), Partition(SmsMode.PRIMARY), Timing.STEADY)


class Told(Protocol):
    """The part of a listener that rounds need."""

    def note(self, text: str) -> None:
        """Say something in one line."""

    def progress(self, done_s: float, expected_s: float, label: str) -> None:
        """Tell seconds of work done and expected."""


class Campaign:
    """Visits points until each is settled; a visit's line is on disk before the next one starts."""

    def __init__(
        self,
        crew: Crew,
        journal: Journal,
        listener: Told,
        plan: Plan,
        points: Sequence[Point],
        outcomes: Mapping[Partition, Grant | GreenbenchError],
        known: Sequence[Block],
    ) -> None:
        self._crew, self._journal, self._listener, self._plan = crew, journal, listener, plan
        self._outcomes = outcomes
        self._tallies: dict[Point, Tally] = {point: Tally(0.0) for point in points}
        self._watch = SentinelWatch()
        self._since_sentinel = SENTINEL_EVERY
        self._sentinel_ready = False
        self._last_round = 0
        self._began = time.monotonic()
        self.block_s = 0.0
        self._recall(known)

    @property
    def unsteady(self) -> bool:
        """True if the sentinel drifted more often than redoing can mend."""
        return self._watch.unsteady

    def _recall(self, known: Sequence[Block]) -> None:
        """Count the blocks of an earlier part of this run; points that ended there stay ended."""
        by_key = {point_key(point): point for point in self._tallies}
        gone = voided(known)
        for block in known:
            point = by_key.get(block.key)
            if block.kind is not BlockKind.BLOCK or point is None:
                continue
            if block.timing is not Timing.AUTO:
                self._crew.remember(point, block.timing)
            if block.status is BlockStatus.OK and block.seq not in gone:
                self._tallies[point].add(block)
            self._tallies[point].over |= self._ended(block)

    @staticmethod
    def _ended(block: Block) -> bool:
        return block.status is BlockStatus.UNSUPPORTED or (block.status is BlockStatus.FAILED and block.attempt >= TRIES)

    def _open_points(self) -> list[Point]:
        return [p for p, tally in self._tallies.items() if not tally.over and not self._settled(tally)]

    def _settled(self, tally: Tally) -> bool:
        return tally.settled(self._plan.rounds, self._plan.max_rounds)

    # -- preparing ---------------------------------------------------------------------------------------------------

    def _prepare_all(self) -> None:
        again: list[Point] = []
        todo = self._open_points()
        for place, point in enumerate(todo):
            label = f"prepare {place + 1}/{len(todo)} {point.kernel}"
            self._listener.progress(self.block_s, self.block_s + self._expected_s(), label)
            if not self._prepare(point, attempt=1):
                again.append(point)
        for point in again:
            self._prepare(point, attempt=TRIES)

    def _prepare(self, point: Point, attempt: int) -> bool:
        """Prepare a point and journal what stands in its way; False if it is worth a second try in a new worker."""
        refusal = self._outcomes.get(point.partition)
        try:
            if isinstance(refusal, GreenbenchError):
                raise refusal
            prepared = self._crew.prepare(point)
        except GreenbenchError as error:
            return self._stopped(point, error, attempt, round_=0)
        self._tallies[point].block_s = prepared.block_s
        return True

    def _stopped(self, point: Point, error: GreenbenchError, attempt: int, round_: int) -> bool:
        """Journal the outcome of a point that gave no block; False if it should be tried again."""
        if not isinstance(error, PointError | KernelFileError):
            raise error
        retry = isinstance(error, StickyError) and attempt < TRIES
        status = BlockStatus.UNSUPPORTED if isinstance(error, UnsupportedError) else BlockStatus.FAILED
        # What would only fail the same way again counts as tried for good.
        counted = attempt if retry else TRIES
        line = Block.visit(point, status, round_=round_, attempt=counted, started=time.time(), reason=str(error))
        grant = self._outcomes.get(point.partition)
        self._write(line.granted(grant) if isinstance(grant, Grant) else line)
        self._tallies[point].over = not retry
        return not retry

    def _write(self, block: Block) -> Block:
        numbered = replace(block, seq=self._journal.next_seq)
        self._journal.append(numbered)
        return numbered

    # -- measuring ---------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Prepare every point, and the sentinel, with which the device is warmed up."""
        self._prepare_all()
        if self._open_points():
            self._prepare_sentinel()

    def measure(self) -> None:
        """Visit the points that are prepared round by round until all are settled."""
        # A cold compile is not to eat the time that is meant for measuring.
        self._began = time.monotonic()
        # More rounds than asked for, so that blocks taken back are made up for, but not for ever.
        done = max((max(tally.rounds, default=0) for tally in self._tallies.values()), default=0)
        self._last_round = done + self._plan.max_rounds + TRIES
        round_ = 0
        while due := self._due(round_):
            while due:
                round_ += 1
                self._round(round_, due)
                due = self._due(round_)
            # The last sentinel may take blocks back as well: then there are points due again.
            self._sentinel(round_)

    def _due(self, round_: int) -> list[Point]:
        """Return the points that want a block after this round; after the time limit only those without any: never none."""
        if round_ >= self._last_round:
            return []
        return [point for point in self._open_points() if self._may_visit(point)]

    def _round(self, round_: int, due: Sequence[Point]) -> None:
        again: list[Point] = []
        for point in permutation(due, self._plan.seed, round_):
            if round_ not in self._tallies[point].rounds and self._may_visit(point) and not self._visit(point, round_, attempt=1):
                again.append(point)
        for point in again:
            if self._may_visit(point):
                self._visit(point, round_, attempt=TRIES)

    def _may_visit(self, point: Point) -> bool:
        # Slow points get fewer blocks, never none.
        return not (self._tallies[point].seqs and self._out_of_time())

    def _out_of_time(self) -> bool:
        limit = self._plan.time_limit_s
        return limit is not None and time.monotonic() - self._began > limit

    def _visit(self, point: Point, round_: int, attempt: int) -> bool:
        """Take one block; False if the worker was lost on it and it deserves a second try."""
        if self._since_sentinel >= SENTINEL_EVERY:
            self._sentinel(round_)
        self._since_sentinel += 1
        label = f"round {round_} {point.kernel}@{point.partition.name}"
        self._listener.progress(self.block_s, self.block_s + self._expected_s(), label)
        try:
            block = self._taken(point, round_, attempt)
        except GreenbenchError as error:
            return self._stopped(point, error, attempt, round_)
        tally = self._tallies[point]
        tally.block_s = block.seconds
        if block.status is BlockStatus.OK:
            tally.add(block)
            self._watch.visited(block.seq)
        else:
            tally.over = True
            self._tell_lost(point, block)
        return True

    def _tell_lost(self, point: Point, block: Block) -> None:
        """Say which point ends here because its blocks were thrown away; a failure has its row."""
        count = len(self._tallies[point].seqs)
        if block.status is BlockStatus.DISCARDED and count:
            had = f"it keeps {count} of {self._plan.rounds} rounds"
            self._listener.note(f"{block.reason} in {TAKES} tries of {point.label(block.timing)}: {had}")

    def _taken(self, point: Point, round_: int, attempt: int) -> Block:
        """Take a block; a throttled one is discarded, cooled down for, and taken again twice."""
        for pause in (*COOL_S, 0.0):
            block = self._crew.visit(point, round_, attempt)
            if block.status is BlockStatus.FAILED:
                block = replace(block, attempt=TRIES)
            block = self._write(block)
            self.block_s += block.seconds
            if block.status is not BlockStatus.DISCARDED:
                break
            self._pause(pause, block.reason)
        return block

    def _pause(self, seconds: float, why: str) -> None:
        # A block on idle clocks wants to be taken again at once, not after more idling.
        if seconds and self._crew.cools() and why.startswith("throttled"):
            self._listener.note(f"{why}; cooling for {seconds:g} s")
            time.sleep(seconds)

    # -- sentinel ----------------------------------------------------------------------------------------------------

    def _prepare_sentinel(self) -> None:
        try:
            self._crew.open(None, [SENTINEL.partition])
            self._crew.prepare(SENTINEL)
            self._crew.warm_up(SENTINEL)
        except PointError as error:
            self._listener.note(f"no sentinel: {error}")
            return
        self._sentinel_ready = True

    def _sentinel(self, round_: int) -> None:
        self._since_sentinel = 0
        if not self._sentinel_ready:
            return
        try:
            block = self._crew.visit(SENTINEL, round_, kind=BlockKind.SENTINEL)
        except PointError as error:
            self._listener.note(f"the sentinel failed: {error}")
            return
        block = self._write(block)
        self.block_s += block.seconds
        lost = self._watch.read(block)
        if lost:
            self._doubt(lost, round_)

    def _doubt(self, lost: Sequence[int], round_: int) -> None:
        """Take blocks back that the sentinel's step puts in doubt; where there is no taking them again, keep and mark them."""
        moved = f"the sentinel moved by more than 1 %: {len(lost)} block{'' if len(lost) == 1 else 's'} before it"
        if self._watch.unsteady or self._out_of_time() or round_ >= self._last_round:
            self._write(_naming_line(BlockKind.DRIFT, lost, round_))
            self._listener.note(f"{moved} {'is' if len(lost) == 1 else 'are'} kept and flagged, since {self._no_redoing()}")
            return
        self._write(_naming_line(BlockKind.VOID, lost, round_))
        for tally in self._tallies.values():
            tally.take_back(lost)
        self._listener.note(f"{moved} {'is' if len(lost) == 1 else 'are'} taken again")

    def _no_redoing(self) -> str:
        if self._watch.unsteady:
            return "it moves again and again"
        return "the time limit is reached" if self._out_of_time() else "the rounds are used up"

    def _expected_s(self) -> float:
        known = [tally.block_s for tally in self._tallies.values() if tally.block_s]
        usual = sum(known) / len(known) if known else 0.065
        return sum(
            (tally.block_s or usual) * max(self._plan.rounds - len(tally.seqs), 1)
            for tally in self._tallies.values()
            if not tally.over and not self._settled(tally)
        )

    # -- profiling ---------------------------------------------------------------------------------------------------

    def profile(self, launches: int) -> None:
        """Launch each point that many times with no gate, for a profiler that is listening; yields no timings."""
        self._prepare_all()
        for point in self._open_points():
            try:
                block = self._crew.profile(point, launches)
            except GreenbenchError as error:
                self._stopped(point, error, TRIES, round_=0)
                continue
            self.block_s += self._write(block).seconds


def _naming_line(kind: BlockKind, seqs: Sequence[int], round_: int) -> Block:
    return Block(
        seq=0,
        kind=kind,
        round=round_,
        attempt=1,
        started=time.time(),
        seconds=0.0,
        status=BlockStatus.DISCARDED,
        reason=void_reason(seqs, "the sentinel moved"),
    )
