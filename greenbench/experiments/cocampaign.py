"""The order of a co-location: alone first, since rates and slowdowns rest on it, then everything else, each visit on disk."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from greenbench.arrivals import NS_PER_S
from greenbench.cojournal import CoJournal, CoVisit, VisitKind
from greenbench.colocation.outcomes import Outcome, outcomes, throughput
from greenbench.colocation.plan import CoPlan, CoPoint
from greenbench.colocation.point import at_rate
from greenbench.colocation.room import no_room
from greenbench.colocation.setups import PROBE_STEPS
from greenbench.errors import FailedError, GreenbenchError, KernelFileError, PointError, StickyError, UnsupportedError
from greenbench.experiments.covisits import Job, Visitor
from greenbench.experiments.rounds import COOL_S
from greenbench.experiments.sweep import Listener
from greenbench.figures import TRIES
from greenbench.queueing.model import Kind, Mechanism
from greenbench.rates import ladder, next_rate, rounded
from greenbench.schema import BlockStatus, RunMeta, Status
from greenbench.slo import Verdict
from greenbench.stats import median
from greenbench.workload import Workload

# Of what the latency role does alone on the whole device: its step rate where none is given.
SHARE = 0.3
# A visit that was thrown away is taken once more.
TAKES = 2
GUESSED_VISIT_S = 4.0


class CoCampaign:
    """Visits every point once, retrying what was lost or throttled; what an earlier part of the run settled stays so."""

    def __init__(
        self,
        visitor: Visitor,
        journal: CoJournal,
        listener: Listener,
        plan: CoPlan,
        meta: RunMeta,
        points: Sequence[CoPoint],
        cools: bool,
    ) -> None:
        self._visitor, self._journal, self._listener, self._plan, self._meta = visitor, journal, listener, plan, meta
        self._places = {point: place for place, point in enumerate(points)}
        self._cool_s = COOL_S[0] if cools else 0.0
        self._rates: dict[Workload, float] = {}
        self._left = len(points)
        self._began = time.monotonic()
        self.visit_s = 0.0
        self._visits = 0
        self._latest: dict[tuple[VisitKind, str], CoVisit] = {}
        self._discarded: dict[tuple[VisitKind, str], int] = {}
        for visit in journal.visits:
            visitor.remember(visit)
            self._note(visit)

    @property
    def out_of_time(self) -> bool:
        """True once the plan's time limit has passed."""
        limit = self._plan.time_limit_s
        return limit is not None and time.monotonic() - self._began > limit

    def measure(self) -> None:
        """Learn the rates, then visit all points: alone first, then the others, each part in a random order of its own."""
        points = list(self._places)
        alone = [point for point in points if point.mechanism is Mechanism.ALONE]
        self._learn_step_rates(alone)
        self._visit_all(shuffled(alone, self._plan.seed, "alone"))
        others = shuffled([point for point in points if point.mechanism is not Mechanism.ALONE], self._plan.seed, "beside")
        if not self._plan.auto_rates:
            self._visit_all(others)
            return
        self._visit_all([point for point in others if point.load])
        rates = self._ladder(alone)
        for point in others:
            if not point.load and not self.out_of_time:
                self._climb(point, rates)
                self._left -= 1

    def unvisited(self) -> Iterator[CoVisit]:
        """Yield a line for each point that no visit tells of; it is not journalled, since the run may go on."""
        seen = {visit.place for visit in self._journal.visits if visit.kind is VisitKind.VISIT}
        why = "not measured: the run ended before this point was visited"
        if self.out_of_time:
            why = f"not measured: the time limit of {self._plan.time_limit_s:g} s was reached"
        for point, place in self._places.items():
            if place not in seen:
                yield self._visitor.line(Job(point, place), BlockStatus.FAILED, why)

    # -- rates -------------------------------------------------------------------------------------------------------

    def _learn_step_rates(self, alone: Sequence[CoPoint]) -> None:
        """Settle the rate of every latency workload; one whose look fails has none, and its points fail with that reason."""
        for workload in self._plan.latency:
            if self._plan.step_rate is not None:
                self._rates[workload] = self._plan.step_rate
                continue
            point = next(each for each in alone if each.latency == workload and each.sizes is None)
            visit = self._settled(Job(point, self._places[point], kind=VisitKind.PROBE))
            if visit.status is BlockStatus.OK:
                self._rates[workload] = _step_rate(visit)

    def _refuse_crowd(self, point: CoPoint) -> None:
        """Raise UnsupportedError for a point that no run has room for at the rate that its latency role turned out to have."""
        step_rate = self._step_rate(point)
        rate = None if point.background is None else point.rate_per_s
        if step_rate is not None and (why := no_room(self._plan, rate, step_rate, len(point.chunks) or 1)):
            raise UnsupportedError(why)

    def _step_rate(self, point: CoPoint) -> float | None:
        if point.latency is None:
            return None
        if point.latency not in self._rates:
            raise FailedError("its rate is not known, since a short run of the latency role by itself came to nothing")
        return self._rates[point.latency]

    def _ladder(self, alone: Sequence[CoPoint]) -> tuple[float, ...]:
        """Return the rates to try, from what the background did alone on the whole device; none where that failed."""
        point = next(each for each in alone if each.background is not None and each.sizes is None)
        found = self._outcome(self._latest.get((VisitKind.VISIT, self._key(point))))
        reached = throughput(found, Kind.BACKGROUND) if found else None
        return ladder(reached) if reached else ()

    def _climb(self, point: CoPoint, rates: Sequence[float]) -> None:
        """Try rates until one breaks the objectives, then look between that and the highest that holds."""
        if not rates:
            self._refuse(point, "no rates to try, since the background by itself on the whole device came to nothing")
        held: float | None = None
        broken: float | None = None
        for rate in rates:
            verdict = self._tried(point, rate)
            if verdict is None:
                return
            held = rate if verdict is Verdict.HOLDS else held
            if verdict is Verdict.BROKEN:
                broken = rate
                break
        while (between := next_rate(held, broken)) is not None and not self.out_of_time:
            verdict = self._tried(point, between)
            if verdict is Verdict.HOLDS:
                held = between
            elif verdict is Verdict.BROKEN:
                broken = between
            else:
                return

    def _tried(self, point: CoPoint, rate: float) -> Verdict | None:
        """Return the verdict of a point at a rate, None where no other rate would do better: it cannot run here, or fails."""
        if self.out_of_time:
            return None
        found = self._outcome(self._settled(self._job(at_rate(point, rate), self._places[point])))
        if found is None or found.status is not Status.OK:
            return None
        return Verdict.BROKEN if found.grew else found.verdict

    def _outcome(self, visit: CoVisit | None) -> Outcome | None:
        """Return what came of a visit, seen beside the roles alone: a rate above what a role does alone does not hold."""
        if visit is None:
            return None
        alone = [
            each
            for each in self._latest.values()
            if each.mechanism is Mechanism.ALONE and each.kind is VisitKind.VISIT and each.role(Kind.BACKGROUND)
            if each.sizes in ((), visit.sizes)
        ]
        found = outcomes(self._meta, [*alone, visit], self._plan.slo)
        return next((each for each in found if each.visit.key == visit.key), None)

    # -- visits ------------------------------------------------------------------------------------------------------

    def _visit_all(self, points: Sequence[CoPoint]) -> None:
        for point in points:
            if self.out_of_time:
                return
            self._settled(self._job(point, self._places[point]))
            self._left -= 1

    def _job(self, point: CoPoint, place: int) -> Job:
        return Job(point, place, self._rates.get(point.latency) if point.latency is not None else None)

    def _key(self, point: CoPoint) -> str:
        return self._visitor.line(Job(point, 0), BlockStatus.OK).key

    def _settled(self, job: Job) -> CoVisit:
        """Return the visit that settles a point: an earlier one, or a new one with what second tries it deserves."""
        place = job.kind, self._key(job.point)
        known = self._latest.get(place)
        if known is not None and self._is_final(place, known):
            return known
        visit = self._attempt(job)
        while not self._is_final(place, visit):
            if visit.status is BlockStatus.DISCARDED:
                self._cool(visit)
                visit = self._attempt(job)
            else:
                visit = self._attempt(replace(job, attempt=TRIES))
        return visit

    def _is_final(self, place: tuple[VisitKind, str], visit: CoVisit) -> bool:
        if visit.status is BlockStatus.DISCARDED:
            return self._discarded[place] >= TAKES
        return visit.status is not BlockStatus.FAILED or visit.attempt >= TRIES

    def _attempt(self, job: Job) -> CoVisit:
        self._tell(job)
        began = time.perf_counter()
        try:
            if job.kind is VisitKind.VISIT:
                self._refuse_crowd(job.point)
            visit = self._visitor.take(job)
        except GreenbenchError as error:
            visit = self._stopped(job, error)
        spent = time.perf_counter() - began
        self.visit_s += spent
        self._visits += 1
        return self._written(replace(visit, seconds=visit.seconds or spent))

    def _stopped(self, job: Job, error: GreenbenchError) -> CoVisit:
        if not isinstance(error, PointError | KernelFileError):
            raise error
        status = BlockStatus.UNSUPPORTED if isinstance(error, UnsupportedError) else BlockStatus.FAILED
        # What would only fail the same way again counts as tried for good.
        attempt = job.attempt if isinstance(error, StickyError) else TRIES
        return self._visitor.line(replace(job, attempt=attempt), status, str(error))

    def _refuse(self, point: CoPoint, why: str) -> None:
        self._written(self._visitor.line(Job(point, self._places[point], attempt=TRIES), BlockStatus.FAILED, why))

    def _written(self, visit: CoVisit) -> CoVisit:
        written = self._journal.append(visit)
        self._note(written)
        return written

    def _note(self, visit: CoVisit) -> None:
        place = visit.kind, visit.key
        self._latest[place] = visit
        self._discarded[place] = self._discarded.get(place, 0) + (visit.status is BlockStatus.DISCARDED)

    def _cool(self, visit: CoVisit) -> None:
        if self._cool_s:
            self._listener.note(f"{visit.reason}; cooling for {self._cool_s:g} s")
            time.sleep(self._cool_s)

    def _tell(self, job: Job) -> None:
        usual = self.visit_s / self._visits if self._visits else GUESSED_VISIT_S
        what = "look at " if job.kind is VisitKind.PROBE else ""
        self._listener.progress(self.visit_s, self.visit_s + usual * max(self._left, 1), f"{what}{job.point.label}")


def shuffled(points: Sequence[CoPoint], seed: int, part: str) -> list[CoPoint]:
    """Return the points of each environment together, environments and points in a random order that the seed decides."""
    draw = random.Random(f"{seed}:{part}")
    order: list[CoPoint] = []
    keys = sorted({point.connections for point in points}, key=lambda key: -1 if key is None else key)
    draw.shuffle(keys)
    for key in keys:
        mine = [point for point in points if point.connections == key]
        draw.shuffle(mine)
        order += mine
    return order


def _step_rate(visit: CoVisit) -> float:
    """Return the share of what a closed loop of the role did: its last steps, when clocks had risen, to two digits."""
    role = visit.roles[0]
    last = [end - due for due, end in zip(role.due_ns, role.end_ns, strict=True)][-PROBE_STEPS:]
    return rounded(SHARE * NS_PER_S / max(median(last), 1.0))


__all__ = ["CoCampaign", "shuffled"]
