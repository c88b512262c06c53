"""`greenbench switch` as an experiment: from a request to a run folder, one visit to each point and rows from the journal."""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from greenbench import __version__
from greenbench.catalog import Kernel, library
from greenbench.cojournal import CoJournal, CoVisit, read_cojournal
from greenbench.corow import CoRow
from greenbench.errors import (
    ExitCode,
    NotComparableError,
)
from greenbench.experiments import frame
from greenbench.experiments.cocrew import CoCrew
from greenbench.experiments.fitness import doubts, modes, refuse
from greenbench.experiments.frame import LOG, RUNS
from greenbench.experiments.rounds import COOL_S
from greenbench.experiments.sweep import Listener
from greenbench.experiments.tenants import Tenants, settled
from greenbench.figures import TAKES
from greenbench.runfiles import RunFolder, read_meta, resume_obstacle, write_corows, write_meta
from greenbench.schema import Backend, BlockStatus, DeviceFacts, KernelSummary, Partition, Point, RunMeta, SmsMode, Status
from greenbench.switching.plan import COMMAND, KERNEL, SwitchPlan, SwitchPoint, Way, recorded_switch
from greenbench.switching.rows import decisive, derive_switch_rows
from greenbench.switching.setups import expand, obstacle

# Until a point has been prepared nothing is known of its cost: a process takes its time to start and to compile.
START_S, PREPARE_S, PROCESS_S = 2.5, 0.3, 2.0
# On the model time is virtual.
MODELLED_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRequest:
    """Everything that the command line decides."""

    plan: SwitchPlan
    device: str = "cuda:0"
    out: Path | None = None
    resume: Path | None = None
    timeout_s: float = 60.0
    strict: bool = False
    ci: bool = False
    kernel_dirs: tuple[Path, ...] = ()
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchOutcome:
    """What a run left behind."""

    folder: Path
    meta: RunMeta
    rows: list[CoRow]
    exit_code: ExitCode
    summary: str


@dataclass(frozen=True, slots=True)
class SwitchPreview:
    """What a run would do; `obstacles` are in the order of `points`, empty where nothing is known against one."""

    device: DeviceFacts
    points: list[SwitchPoint]
    obstacles: tuple[str, ...]
    notes: tuple[str, ...]
    estimate_s: float


def preview(request: SwitchRequest) -> SwitchPreview:
    """Open the device, measure nothing; raises as `run_switch` does."""
    crew = CoCrew(request.device, request.kernel_dirs, None, request.timeout_s)
    try:
        facts = crew.facts()
    finally:
        crew.kill()
    points, notes = expand(request.plan)
    estimate = START_S + sum(_cost_s(request.plan, point, facts) for point in points)
    return SwitchPreview(facts, points, tuple(obstacle(point, facts) for point in points), (*modes(facts), *notes), estimate)


def _cost_s(plan: SwitchPlan, point: SwitchPoint, device: DeviceFacts) -> float:
    """Return the seconds that a visit is expected to take."""
    if device.backend is Backend.MODELLED:
        return MODELLED_S
    phases = 2 if point.mechanism is Way.REPARTITION else 1
    own = PROCESS_S * point.processes if point.mechanism.apart else 0.0
    return phases * (plan.seconds + PREPARE_S) + own


def run_switch(request: SwitchRequest, listener: Listener) -> SwitchOutcome:
    """Visit every point of the plan; everything measured is on disk whatever happens.

    Raises MachineError's kin before measuring where this machine cannot, InterruptedRunError on Ctrl-C (resumable).
    """
    kernels = library(request.kernel_dirs)
    now = datetime.now(UTC)
    if request.resume is not None:
        folder = RunFolder.open(request.resume)
    else:
        folder = RunFolder.create(request.out, root=RUNS, command=COMMAND, now=now)
    with frame.locked(folder, CoJournal, new=request.resume is None) as journal:
        crew = CoCrew(request.device, request.kernel_dirs, folder.path / LOG, request.timeout_s)
        with frame.guarded(folder, COMMAND, crew, listener, lambda: _conclude(folder, None)):
            return _run(request, listener, kernels, folder, journal, crew, now)


def _run(
    request: SwitchRequest,
    listener: Listener,
    kernels: Mapping[str, Kernel],
    folder: RunFolder,
    journal: CoJournal,
    crew: CoCrew,
    now: datetime,
) -> SwitchOutcome:
    began = time.perf_counter()
    facts = crew.facts()
    points, said = expand(request.plan)
    notes = (*facts.warnings, *modes(facts), *said)
    meta = _meta(request, folder, facts, kernels, points, notes, now)
    if request.resume is not None:
        earlier = read_meta(folder.meta_path)
        if why := resume_obstacle(earlier, meta):
            raise NotComparableError(why)
        meta = replace(earlier, finished="")
    reading = crew.evidence()
    doubtful = doubts(reading, crew.size)
    if request.ci:
        refuse(doubtful)
    write_meta(folder.meta_path, replace(meta, clocks_before=meta.clocks_before or reading))
    listener.started(meta, folder.path, len(points))
    for text in (*notes, *(doubt.note for doubt in doubtful)):
        listener.note(text)
    with frame.keeping(folder, lambda: _conclude(folder, None)):
        _visit_all(Tenants(crew, request.plan, facts, kernels, folder.path), points, journal, listener)
    meta, rows = _conclude(folder, crew)
    crew.stop()
    counts = ", ".join(f"{n} {s.value}" for s in Status if (n := sum(row.status == s for row in rows)) or s is Status.OK)
    summary = f"{len(rows)} point{'' if len(rows) == 1 else 's'}: {counts} in {time.perf_counter() - began:.1f} s"
    return SwitchOutcome(folder.path, meta, rows, exit_code(rows, strict=request.strict), summary)


def _visit_all(tenants: Tenants, points: Sequence[SwitchPoint], journal: CoJournal, listener: Listener) -> None:
    """Visit what is not settled, `alone` first and the rest in random order; what is to be tried again comes last."""
    plan, known = tenants.plan, decisive(journal.visits)
    queue = deque((point, 1) for point in visit_order(plan, points) if not settled(known.get(plan.label(point))))
    done_s, left_s = 0.0, sum(_cost_s(plan, point, tenants.device) for point, _ in queue)
    taken: dict[SwitchPoint, int] = {}
    while queue:
        point, attempt = queue.popleft()
        listener.progress(done_s, done_s + left_s, plan.label(point))
        visit, retry = tenants.visit(point, points.index(point), attempt)
        journal.append(visit)
        taken[point] = taken.get(point, 0) + 1
        again = visit.status is BlockStatus.DISCARDED and taken[point] < TAKES
        if again and tenants.device.backend is Backend.CUDA:
            time.sleep(COOL_S[min(taken[point], len(COOL_S)) - 1])
        if again or retry:
            queue.append((point, attempt + retry))
        else:
            done_s, left_s = done_s + visit.seconds, left_s - _cost_s(plan, point, tenants.device)
    listener.progress(done_s, done_s, "done")


def visit_order(plan: SwitchPlan, points: Sequence[SwitchPoint]) -> list[SwitchPoint]:
    """Return the points with `alone` first and the rest in an order that the seed decides."""
    rest = [point for point in points if point.mechanism is not Way.ALONE]
    random.Random(f"{plan.seed}:{COMMAND}").shuffle(rest)
    return [*(point for point in points if point.mechanism is Way.ALONE), *rest]


def _meta(
    request: SwitchRequest,
    folder: RunFolder,
    facts: DeviceFacts,
    kernels: Mapping[str, Kernel],
    points: Sequence[SwitchPoint],
    notes: Sequence[str],
    now: datetime,
) -> RunMeta:
    workload = request.plan.workload
    names = sorted({call.kernel for call in workload.distinct()}) if workload else [KERNEL]
    return RunMeta(
        run_id=folder.run_id,
        created=now.isoformat(timespec="seconds"),
        greenbench=__version__,
        command=COMMAND,
        argv=request.argv or tuple(sys.argv),
        seed=request.plan.seed,
        device=facts,
        plan=request.plan.as_dict(),
        kernels=tuple(_summary(kernels[name], facts.arch) for name in names),
        points=tuple(_as_point(request.plan, point) for point in points),
        environment=frame.environment(),
        notes=tuple(notes),
        profiled=frame.under_nsys(),
    )


def _summary(kernel: Kernel, arch: str) -> KernelSummary:
    return replace(kernel.summary_record(), summary=kernel.for_arch(arch).summary)


def _as_point(plan: SwitchPlan, point: SwitchPoint) -> Point:
    """Return the point as run.json lists points, so that a run is resumed only with the same ones."""
    more = (("mechanism", point.mechanism.value), ("processes", point.processes), ("seconds", plan.seconds))
    return Point(plan.operation, (*point.params, *more), Partition(SmsMode.PRIMARY))


def _conclude(folder: RunFolder, crew: CoCrew | None) -> tuple[RunMeta, list[CoRow]]:
    """Derive the rows from the journal and close run.json; works without a device."""
    meta = read_meta(folder.meta_path)
    if crew is not None:
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        meta = replace(meta, finished=finished, clocks_after=crew.evidence())
        write_meta(folder.meta_path, meta)
    visits: list[CoVisit] = read_cojournal(folder.journal_path) if folder.journal_path.is_file() else []
    rows = derive_switch_rows(meta, recorded_switch(meta), visits)
    write_corows(folder.rows_path, rows)
    return meta, rows


def exit_code(rows: Sequence[CoRow], *, strict: bool = False) -> ExitCode:
    """Return 5 if a row failed (or, strictly, is unsupported), else 4 if none is ok, else 0."""
    found = {row.status for row in rows}
    if Status.FAILED in found or (strict and Status.UNSUPPORTED in found):
        return ExitCode.INCOMPLETE
    return ExitCode.DONE if Status.OK in found else ExitCode.MACHINE
