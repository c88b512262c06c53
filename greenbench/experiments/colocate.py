"""A co-location: from a request to a run folder with one row per point and role, and what they say together."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from greenbench import __version__
from greenbench.arrivals import NS_PER_S
from greenbench.catalog import Kernel, library
from greenbench.cojournal import CoJournal, CoVisit
from greenbench.colocation.outcomes import Outcome, co_rows, outcomes
from greenbench.colocation.plan import CoPlan, CoPoint, expand
from greenbench.colocation.protection import protection
from greenbench.colocation.room import planned_s, requests_s
from greenbench.colocation.setups import ALONE_NS
from greenbench.colocation.verdicts import advice, interference
from greenbench.corow import CoRow
from greenbench.errors import (
    ExitCode,
    NotComparableError,
    ResultFileError,
)
from greenbench.experiments import frame
from greenbench.experiments.cocampaign import GUESSED_VISIT_S, CoCampaign
from greenbench.experiments.cocrew import CoCrew
from greenbench.experiments.covisits import Visitor
from greenbench.experiments.fitness import doubts, modes, refuse
from greenbench.experiments.frame import LOG, RUNS
from greenbench.experiments.sweep import Listener, exit_code
from greenbench.queueing.model import Mechanism
from greenbench.rates import SHARES
from greenbench.runfiles import RunFolder, read_corows, read_meta, readable_corows, resume_obstacle, write_corows, write_meta
from greenbench.schema import Backend, BlockStatus, DeviceFacts, KernelSummary, RunMeta, Status
from greenbench.slo import Advice

COMMAND = "colocate"
# A visit on a modelled device; on a real one a visit also prepares, and starts processes where a mechanism has several.
MODELLED_VISIT_S, PREPARE_S, PROCESSES_S, START_S = 0.2, 1.5, 6.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoRequest:
    """Everything that the command line decides; `export` is for whoever writes the outcome for other programs."""

    plan: CoPlan
    device: str = "cuda:0"
    out: Path | None = None
    resume: Path | None = None
    timeout_s: float = 60.0
    strict: bool = False
    ci: bool = False
    kernel_dirs: tuple[Path, ...] = ()
    argv: tuple[str, ...] = ()
    export: str = ""


@dataclass(frozen=True, slots=True)
class CoOutcome:
    """What a run left behind; `sentences` say what it found, one a line."""

    folder: Path
    meta: RunMeta
    rows: list[CoRow]
    advice: Advice | None
    sentences: tuple[str, ...]
    exit_code: ExitCode
    summary: str


@dataclass(frozen=True, slots=True)
class CoPreview:
    """What a run would do, in about how many seconds."""

    device: DeviceFacts
    points: list[CoPoint]
    notes: tuple[str, ...]
    estimate_s: float


def preview(request: CoRequest) -> CoPreview:
    """Open the device, measure nothing; raises as `run_colocate` does."""
    crew = CoCrew(request.device, request.kernel_dirs, None, request.timeout_s)
    try:
        facts = crew.facts()
    finally:
        crew.kill()
    points, notes = expand(request.plan, facts)
    if request.plan.auto_rates:
        notes = (*notes, f"--rates auto: up to {len(SHARES)} visits for each mechanism and size; the time is for all of them")
    estimate = sum(_visits(request.plan, point) * _estimate_s(request.plan, point, facts) for point in points)
    return CoPreview(facts, points, (*modes(facts), *notes), START_S + estimate)


def _visits(plan: CoPlan, point: CoPoint) -> int:
    """Return how often a point is visited: with --rates auto at most at every rate of the ladder."""
    climbs = plan.auto_rates and point.mechanism is not Mechanism.ALONE and not point.load
    return len(SHARES) if climbs else 1


def _estimate_s(plan: CoPlan, point: CoPoint, facts: DeviceFacts) -> float:
    if facts.backend is Backend.MODELLED:
        return MODELLED_VISIT_S
    length = length_s(plan, point)
    return (length if point.latency is not None else ALONE_NS / NS_PER_S) + PREPARE_S + (PROCESSES_S if point.apart else 0.0)


def length_s(plan: CoPlan, point: CoPoint) -> float:
    """Return how long the steps of a visit last; without --step-rate as long as usual, and no shorter than requests need."""
    rate = None if point.background is None else point.rate_per_s
    if plan.step_rate is not None:
        return planned_s(plan, rate, plan.step_rate)
    guessed = GUESSED_VISIT_S - PREPARE_S
    return guessed if rate is None else max(guessed, requests_s(plan, rate))


def run_colocate(request: CoRequest, listener: Listener) -> CoOutcome:
    """Measure every point of the plan; everything measured is on disk whatever happens.

    Raises MachineError's kin before measuring where this machine cannot, InterruptedRunError on Ctrl-C (resumable).
    """
    kernels = library(request.kernel_dirs)
    now = datetime.now(UTC)
    if request.resume is not None:
        folder = RunFolder.open(request.resume)
    else:
        folder = RunFolder.create(request.out, root=RUNS, command=COMMAND, now=now)
    anew = ""
    with frame.locked(folder, CoJournal, new=request.resume is None) as journal:
        if request.resume is not None:
            anew = refuse_lost(folder, journal)
        crew = CoCrew(request.device, request.kernel_dirs, folder.path / LOG, request.timeout_s)
        run = _Run(request, listener, kernels, folder, journal, crew, now, (anew,) if anew else ())
        with frame.guarded(folder, COMMAND, crew, listener, lambda: run.conclude(finished=False)):
            return run.go()


def refuse_lost(folder: RunFolder, journal: CoJournal) -> str:
    """Refuse to continue a run whose journal lost what its rows.csv holds: it would be measured anew and written over.

    A rows.csv that cannot be read is no obstacle by itself, since it follows from the journal: what is said of it is returned,
    and of its lines those that can be read are looked up.
    """
    if not folder.rows_path.exists():
        return ""
    damage = ""
    try:
        rows = read_corows(folder.rows_path)
    except ResultFileError as error:
        if not folder.rows_path.is_file():
            journal.close()
            raise
        damage, rows = f"{error}; rows.csv is made anew from blocks.csv", readable_corows(folder.rows_path)
    have = {visit.label for visit in journal.visits if visit.status is BlockStatus.OK}
    lacking = {row.label for row in rows if row.status == Status.OK} - have
    if lacking:
        journal.close()
        raise ResultFileError(
            f"{folder.path} cannot be continued: blocks.csv lacks {len(lacking)} points that rows.csv has, {min(lacking)} among "
            "them; start a new run with another --out"
        )
    return damage


class _Run:
    """One run from the first question to the device to the rows."""

    def __init__(
        self,
        request: CoRequest,
        listener: Listener,
        kernels: Mapping[str, Kernel],
        folder: RunFolder,
        journal: CoJournal,
        crew: CoCrew,
        now: datetime,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self._remarks = remarks
        self._request, self._listener, self._kernels = request, listener, kernels
        self._folder, self._journal, self._crew, self._now = folder, journal, crew, now
        self._campaign: CoCampaign | None = None

    def go(self) -> CoOutcome:
        """Do everything; raises as `run_colocate`."""
        began = time.perf_counter()
        request, crew, listener, folder = self._request, self._crew, self._listener, self._folder
        earlier = read_meta(folder.meta_path) if request.resume is not None else None
        facts = crew.facts()
        points, said = expand(request.plan, facts)
        meta = self._meta(facts, (*facts.warnings, *modes(facts), *said))
        if earlier is not None:
            if obstacle := resume_obstacle(earlier, meta):
                raise NotComparableError(obstacle)
            meta = replace(earlier, finished="")
        reading = crew.evidence()
        doubtful = doubts(reading, crew.size)
        if request.ci:
            refuse(doubtful)
        meta = replace(meta, clocks_before=meta.clocks_before or reading)
        write_meta(folder.meta_path, meta)
        listener.started(meta, folder.path, len(points))
        for text in (*self._remarks, *meta.notes, *(doubt.note for doubt in doubtful)):
            listener.note(text)
        visitor = Visitor(crew, request.plan, facts, folder.path)
        cools = facts.backend is Backend.CUDA
        self._campaign = CoCampaign(visitor, self._journal, listener, request.plan, meta, points, cools)
        with frame.keeping(folder, lambda: self.conclude(finished=False)):
            self._campaign.measure()
        meta, found = self.conclude(finished=True)
        crew.stop()
        return self._told(meta, found, time.perf_counter() - began)

    def _told(self, meta: RunMeta, found: Sequence[Outcome], wall_s: float) -> CoOutcome:
        rows, best = co_rows(found), advice(found, self._request.plan.slo)
        sentences = (*protection(rows), *([best.text] if best else []), *interference(found))
        code = exit_code(rows, self._request.strict)
        summary = f"{_counts(found)} in {wall_s:.1f} s"
        return CoOutcome(self._folder.path, meta, rows, best, sentences, code, summary)

    def conclude(self, *, finished: bool) -> tuple[RunMeta, list[Outcome]]:
        """Derive the rows from the journal, and close run.json where the run came to its end."""
        meta = read_meta(self._folder.meta_path)
        if finished:
            ended = datetime.now(UTC).isoformat(timespec="seconds")
            meta = replace(meta, finished=ended, clocks_after=self._crew.evidence())
            write_meta(self._folder.meta_path, meta)
        missing: Sequence[CoVisit] = list(self._campaign.unvisited()) if self._campaign else []
        found = outcomes(meta, [*self._journal.visits, *missing], self._request.plan.slo)
        write_corows(self._folder.rows_path, co_rows(found))
        return meta, found

    def _meta(self, facts: DeviceFacts, notes: Sequence[str]) -> RunMeta:
        plan = self._request.plan
        return RunMeta(
            run_id=self._folder.run_id,
            created=self._now.isoformat(timespec="seconds"),
            greenbench=__version__,
            command=COMMAND,
            argv=self._request.argv or tuple(sys.argv),
            seed=plan.seed,
            device=facts,
            plan=plan.as_dict(),
            kernels=tuple(used_kernels(plan, self._kernels, facts.arch)),
            environment=frame.environment(),
            notes=tuple(notes),
            profiled=frame.under_nsys(),
        )


def used_kernels(plan: CoPlan, kernels: Mapping[str, Kernel], arch: str) -> Iterator[KernelSummary]:
    """Yield the kernels of all workloads of a plan, by name; a transfer between host and device is none."""
    pieces = [piece for _, chunks in plan.chunks for piece in chunks]
    workloads = [*plan.latency, plan.background, *pieces, *plan.loads]
    for name in sorted({call.kernel for workload in workloads for call in workload.distinct()}):
        if name in kernels:
            yield replace(kernels[name].summary_record(), summary=kernels[name].for_arch(arch).summary)


def _counts(found: Sequence[Outcome]) -> str:
    told = []
    for status in Status:
        count = sum(each.status is status for each in found)
        if count or status is Status.OK:
            told.append(f"{count} {status.value}")
    return f"{len(found)} point{'' if len(found) == 1 else 's'}: {', '.join(told)}"


__all__ = ["COMMAND", "CoOutcome", "CoPreview", "CoRequest", "length_s", "preview", "run_colocate", "used_kernels"]
