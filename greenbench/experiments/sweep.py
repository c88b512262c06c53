"""A sweep: from a request to a run folder. It opens partitions, prepares points, visits them round by round, and writes rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from greenbench import __version__
from greenbench.catalog import Kernel, library
from greenbench.corow import CoRow
from greenbench.errors import (
    ExitCode,
    GreenbenchError,
    NotComparableError,
    UnfitError,
    UnsupportedError,
)
from greenbench.experiments import frame, tracing
from greenbench.experiments.campaign import Campaign
from greenbench.experiments.crew import Crew
from greenbench.experiments.fitness import doubts, modes, refuse, refuse_warm
from greenbench.experiments.frame import LOG, RUNS
from greenbench.journal import Journal, read_journal
from greenbench.limits import derive_bounds
from greenbench.measure.session import base_kernel
from greenbench.plan import Plan, expand
from greenbench.results import refuse_lost
from greenbench.rows import derive_rows, row_labels
from greenbench.runfiles import RunFolder, read_meta, resume_obstacle, write_bounds, write_meta, write_rows, write_samples
from greenbench.schema import BoundRow, DeviceFacts, Grant, KernelSummary, Partition, Point, Row, RunMeta, Status
from greenbench.sms import merge_same_grants
from greenbench.yardsticks import WAYS

# Before a point is prepared nothing is known of its time: most blocks are 40-80 ms.
GUESSED_BLOCK_S = 0.065
START_S, PREPARE_S = 2.5, 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """Everything that the command line decides."""

    plan: Plan
    device: str = "cuda:0"
    out: Path | None = None
    resume: Path | None = None
    timeout_s: float = 60.0
    strict: bool = False
    ci: bool = False
    profile: int | None = None
    trace: bool = False
    kernel_dirs: tuple[Path, ...] = ()
    argv: tuple[str, ...] = ()


class Listener(Protocol):
    """Who is told how a run goes on."""

    def started(self, meta: RunMeta, folder: Path, total_blocks: int) -> None:
        """The device answered and the points are known."""

    def note(self, text: str) -> None:
        """Something that the user should know, in one line."""

    def progress(self, done_s: float, expected_s: float, label: str) -> None:
        """Seconds of work done and expected, and what is under way."""

    def finished(self) -> None:
        """No more progress will be told."""


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a run left behind."""

    folder: Path
    meta: RunMeta
    rows: list[Row]
    exit_code: ExitCode
    summary: str
    limits: list[BoundRow] = field(default_factory=list)
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do."""

    device: DeviceFacts
    points: list[Point]
    notes: tuple[str, ...]
    estimate_s: float
    outcomes: Mapping[Partition, Grant | GreenbenchError]
    # Per kernel, why this device cannot run it; those that it can run are not in it.
    barred: Mapping[str, str]

    def granted(self, point: Point) -> int | None:
        """Return the SMs that the point's partition got, None where it was refused."""
        outcome = self.outcomes.get(point.partition)
        return outcome.sms if isinstance(outcome, Grant) else None

    def obstacle(self, point: Point) -> str:
        """Return `unsupported: REASON` (or `failed: REASON`) as far as that is known without preparing, else an empty string."""
        outcome = self.outcomes.get(point.partition)
        if isinstance(outcome, UnsupportedError):
            return f"{Status.UNSUPPORTED}: {outcome}"
        if isinstance(outcome, GreenbenchError):
            return f"{Status.FAILED}: {outcome}"
        why = self.barred.get(base_kernel(point.kernel)[0], "")
        return f"{Status.UNSUPPORTED}: {why}" if why else ""


def preview(request: SweepRequest) -> Preview:
    """Open the device and its partitions, measure nothing; raises as `run_sweep` does."""
    kernels = library(request.kernel_dirs)
    crew = Crew(request.device, request.kernel_dirs, None, request.timeout_s)
    try:
        facts = crew.facts()
        points, outcomes, notes = _points(request.plan, facts, kernels, crew)
    finally:
        crew.kill()
    blocks = len(points) * request.plan.rounds
    estimate = START_S + len(points) * PREPARE_S + blocks * GUESSED_BLOCK_S
    names = {base_kernel(point.kernel)[0] for point in points}
    cc = facts.compute_capability
    barred = {name: why for name in sorted(names) if (why := kernels[name].for_arch(facts.arch).obstacle(cc))}
    return Preview(facts, points, (*modes(facts), *notes), estimate, outcomes, barred)


def run_sweep(request: SweepRequest, listener: Listener) -> SweepOutcome:
    """Measure every point of the plan; everything measured is on disk whatever happens.

    Raises MachineError's kin before measuring where this machine cannot, InterruptedRunError on Ctrl-C (resumable).
    """
    if request.trace:
        tracing.refuse(request.device)
    kernels = library(request.kernel_dirs)
    now = datetime.now(UTC)
    if request.resume is not None:
        folder = RunFolder.open(request.resume)
        refuse_lost(folder)
    else:
        folder = RunFolder.create(request.out, root=RUNS, command="sweep", now=now)
    # The journal's lock comes before everything that writes: a run that another greenbench is at stays untouched.
    with frame.locked(folder, Journal, new=request.resume is None) as journal:
        # A profiler may let a launch return only when it is done, and then nobody would open the gate before it.
        gates = request.profile is None
        crew = Crew(request.device, request.kernel_dirs, folder.path / LOG, request.timeout_s, gates=gates)
        with frame.guarded(folder, "sweep", crew, listener, lambda: _conclude(folder, None)):
            return _run(request, listener, kernels, folder, journal, crew, now)


def _run(
    request: SweepRequest,
    listener: Listener,
    kernels: Mapping[str, Kernel],
    folder: RunFolder,
    journal: Journal,
    crew: Crew,
    now: datetime,
) -> SweepOutcome:
    began = time.perf_counter()
    earlier = read_meta(folder.meta_path) if request.resume is not None else None
    facts = crew.facts()
    points, grants, said = _points(request.plan, facts, kernels, crew)
    notes = [*facts.warnings, *modes(facts), *said]
    # Opening the lanes measured the timer's tick as well.
    meta = _meta(request, folder, crew.facts(), kernels, points, notes, now)
    if earlier is not None:
        obstacle = resume_obstacle(earlier, meta)
        if obstacle:
            raise NotComparableError(obstacle)
        meta = replace(earlier, finished="")
    reading = crew.evidence()
    doubtful = doubts(reading, crew.size)
    if request.ci:
        refuse(doubtful)
    write_meta(folder.meta_path, replace(meta, clocks_before=meta.clocks_before or reading))
    listener.started(meta, folder.path, len(meta.points) * (1 if request.profile is not None else request.plan.rounds))
    for text in (*notes, *(doubt.note for doubt in doubtful)):
        listener.note(text)
    campaign = Campaign(crew, journal, listener, request.plan, meta.points, grants, tuple(journal.blocks))
    with frame.keeping(folder, lambda: _conclude(folder, None)):
        if request.profile is not None:
            campaign.profile(request.profile)
        else:
            campaign.prepare()
            if request.ci:
                refuse_warm(reading, crew.evidence(), folder.path)
            campaign.measure()
    if campaign.unsteady:
        text = "the sentinel moved by more than 1 % again and again: this machine is not quiet"
        listener.note(text)
        if request.ci:
            _conclude(folder, crew)
            raise UnfitError(f"{text}; see {folder.path}")
    meta, rows, limits = _conclude(folder, crew)
    crew.stop()
    wall = time.perf_counter() - began
    share = 100 * campaign.block_s / wall if wall > 0 else 0.0
    counts = _counts(rows)
    summary = f"{counts} in {wall:.1f} s, {share:.0f} % of it inside blocks"
    code, traced = exit_code(rows, request.strict), None
    if request.trace:
        # After the measuring workers are gone: this pass would disturb them, and they it.
        watched = Crew(request.device, request.kernel_dirs, folder.path / LOG, request.timeout_s, traced=True)
        traced = tracing.trace(folder.path, meta, rows, watched, listener)
        listener.note(traced.sentence)
        code = ExitCode.INCOMPLETE if traced.lost else code
    return SweepOutcome(folder.path, meta, rows, code, summary, limits, traced.path if traced else None)


def _points(
    plan: Plan, facts: DeviceFacts, kernels: Mapping[str, Kernel], crew: Crew
) -> tuple[list[Point], dict[Partition, Grant | GreenbenchError], list[str]]:
    """Expand the plan, open every partition that it needs, and fold counts that landed on the same grant."""
    points = expand(plan, facts, kernels)
    outcomes: dict[Partition, Grant | GreenbenchError] = {}
    for key in dict.fromkeys(point.connections for point in points):
        mine = list(dict.fromkeys(point.partition for point in points if point.connections == key))
        crew.facts(key)
        outcomes.update(crew.open(key, mine))
    grants = {partition: got for partition, got in outcomes.items() if isinstance(got, Grant)}
    kept, notes = merge_same_grants(points, grants)
    alone = {point.partition for point in kept}
    for partition, grant in grants.items():
        if partition in alone and partition.sms is not None and partition.sms != grant.sms:
            notes.append(f"{partition.sms} SMs asked, {grant.sms} granted: this driver rounds to what it can split")
        if partition in alone and grant.split_method == "unsplit":
            notes.append(f"{partition.name}: this driver splits off no group of all {grant.sms} SMs; it is the unsplit resource")
    return kept, outcomes, notes


def _meta(
    request: SweepRequest,
    folder: RunFolder,
    facts: DeviceFacts,
    kernels: Mapping[str, Kernel],
    points: Sequence[Point],
    notes: Sequence[str],
    now: datetime,
) -> RunMeta:
    return RunMeta(
        run_id=folder.run_id,
        created=now.isoformat(timespec="seconds"),
        greenbench=__version__,
        command="sweep",
        argv=request.argv or tuple(sys.argv),
        seed=request.plan.seed,
        device=facts,
        plan=request.plan.as_dict(),
        kernels=tuple(_summary(name, kernels, facts.arch) for name in dict.fromkeys(point.kernel for point in points)),
        points=tuple(points),
        environment=frame.environment(),
        notes=tuple(notes),
        profiled=request.profile is not None or frame.under_nsys(),
    )


def _summary(name: str, kernels: Mapping[str, Kernel], arch: str) -> KernelSummary:
    """Describe a kernel by the file that this architecture runs; the digest is that of all its files."""
    base, yardstick = base_kernel(name)
    record = replace(kernels[base].summary_record(), summary=kernels[base].for_arch(arch).summary)
    if not yardstick:
        return record
    summary = f"{WAYS[yardstick]} beside {base}"
    return replace(record, name=name, summary=summary, digest="", reports=False, yardstick_of=base)


def _conclude(folder: RunFolder, crew: Crew | None) -> tuple[RunMeta, list[Row], list[BoundRow]]:
    """Derive rows, bounds and samples from the journal, and close run.json; works without a device."""
    meta = read_meta(folder.meta_path)
    blocks = read_journal(folder.journal_path) if folder.journal_path.is_file() else []
    if crew is not None:
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        meta = replace(meta, finished=finished, clocks_after=crew.evidence())
        write_meta(folder.meta_path, meta)
    rows = derive_rows(meta, blocks)
    write_rows(folder.rows_path, rows)
    limits = derive_bounds(meta, blocks, rows)
    write_bounds(folder.bounds_path, limits)
    write_samples(folder.samples_path, row_labels(meta, blocks), blocks)
    return meta, rows, limits


def _counts(rows: Sequence[Row]) -> str:
    told = []
    for status in Status:
        count = sum(row.status == status for row in rows)
        if count or status is Status.OK:
            told.append(f"{count} {status.value}")
    return f"{len(rows)} point{'' if len(rows) == 1 else 's'}: {', '.join(told)}"


def exit_code(rows: Sequence[Row | CoRow], strict: bool = False) -> ExitCode:
    """Return 5 if a row failed (or, strictly, is unsupported), else 4 if none is ok, else 0."""
    found = {row.status for row in rows}
    if Status.FAILED in found or (strict and Status.UNSUPPORTED in found):
        return ExitCode.INCOMPLETE
    return ExitCode.DONE if Status.OK in found else ExitCode.MACHINE
