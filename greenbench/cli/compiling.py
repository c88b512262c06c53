"""`greenbench kernels --check`: compile kernels in child processes, so that this one never loads CUDA, and lay out the answer."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context

import click

from greenbench.catalog import Kernel, Variant
from greenbench.cli.terminal import is_live, stderr_console
from greenbench.errors import IncompleteError, UsageError
from greenbench.worker.spawning import ctrl_c_held, ignore_ctrl_c

PR_SET_PDEATHSIG = 1
LEGEND = "registers / bytes of static shared memory / bytes spilled; - is not claimed by the kernel"


@dataclass(frozen=True, slots=True)
class Job:
    """One compile: a kernel, one of its variants, an architecture."""

    kernel: Kernel
    variant: Variant | None
    arch: str

    @property
    def title(self) -> str:
        """The kernel's file and its variant: `gemm.sm_90a BM128_BN256`."""
        return f"{self.kernel.label} {self.variant.name}" if self.variant else self.kernel.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job; figures are None where the compile failed, `error` is empty where it did not."""

    kernel: str
    variant: str
    arch: str
    registers: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    spill_bytes: int | None = None
    seconds: float | None = None
    cached: bool | None = None
    headers: str = ""
    nvrtc: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()


def check_kernels(kernels: Sequence[Kernel], archs: Sequence[str], *, as_json: bool, everything: bool) -> None:
    """Compile all kernels for the architectures they claim, write the table, and raise IncompleteError if any failed."""
    with _pool() as pool:
        # Processes are spawned when work is handed over.
        with ctrl_c_held():
            supported = pool.submit(supported_archs)
        jobs = list(plan_jobs(kernels, archs, supported.result(), everything=everything))
        if not jobs:
            names = ", ".join(kernel.label for kernel in kernels)
            raise UsageError(
                f"--arch: none of {', '.join(archs)} is claimed by {names}; see 'runs on' in greenbench kernels NAME"
            )
        outcomes = run_jobs(pool, jobs)
    failed = [outcome for outcome in outcomes if outcome.error]
    if as_json:
        records = [{name: value for name, value in asdict(outcome).items() if name != "warnings"} for outcome in outcomes]
        click.echo(
            json.dumps({"nvrtc": outcomes[0].nvrtc, "compiled": records, "failed": len(failed)}, indent=1, ensure_ascii=False)
        )
    else:
        _write(jobs, outcomes)
    for line in remarks(jobs, outcomes):
        click.echo(line, err=True)
    if failed:
        raise IncompleteError(f"{len(failed)} of {len(outcomes)} compilations failed, as listed above")


def plan_jobs(kernels: Sequence[Kernel], archs: Sequence[str], supported: Sequence[str], *, everything: bool) -> Iterator[Job]:
    """Yield a job per kernel, variant and claimed architecture; `everything` leaves out what NVRTC cannot do, and no kernel."""
    unknown = [arch for arch in archs if arch.rstrip("af") not in supported]
    if unknown and not everything:
        raise UsageError(f"--arch: {unknown[0]!r} is not an architecture of this NVRTC; it compiles for {', '.join(supported)}")
    for kernel in kernels:
        claimed = kernel.archs(arch for arch in archs if arch not in unknown)
        if everything and not claimed and kernel.arch is not None:
            claimed = [kernel.arch]
        for variant in kernel.variants or (None,):
            yield from (Job(kernel, variant, arch) for arch in claimed)


@contextmanager
def _pool() -> Iterator[ProcessPoolExecutor]:
    """Give as many processes as there are cores, and leave none behind."""
    # Spawned, not forked: NVRTC and the threads of a fork do not go together.
    pool = ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn"), _start, (os.getpid(),))
    try:
        yield pool
    except BrokenProcessPool:
        raise IncompleteError("a compiling process died (out of memory, or a crash of NVRTC); try kernels one by one") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(parent: int) -> None:
    """Begin a child process: Ctrl-C is the parent's to answer, and nothing outlives a parent that was killed."""
    ignore_ctrl_c()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def supported_archs() -> list[str]:
    """Return the architectures of this machine's NVRTC; runs in a child process."""
    from greenbench.gpu import nvrtc

    return nvrtc.supported_archs()


def run_jobs(pool: ProcessPoolExecutor, jobs: Sequence[Job]) -> list[Outcome]:
    """Compile all jobs and return the outcomes in their order."""
    with ctrl_c_held():
        futures: list[Future[Outcome]] = [pool.submit(compile_job, job) for job in jobs]
    with _bar(len(jobs)) as advance:
        for future in as_completed(futures):
            future.result()
            advance()
    return [future.result() for future in futures]


def compile_job(job: Job) -> Outcome:
    """Compile one job; runs in a child process."""
    from greenbench.gpu.nvrtc import CompileError, compile_kernel, cuda_path_warning

    variant = job.variant.name if job.variant else ""
    warning = (cuda_path_warning(),)
    try:
        done = compile_kernel(job.kernel, job.arch, job.variant)
    except CompileError as error:
        return Outcome(
            kernel=job.kernel.label, variant=variant, arch=job.arch, nvrtc=error.nvrtc, error=str(error), warnings=warning
        )
    return Outcome(
        kernel=job.kernel.label,
        variant=variant,
        arch=job.arch,
        registers=done.registers,
        shared_bytes=done.shared_bytes,
        local_bytes=done.local_bytes,
        spill_bytes=done.spill_bytes,
        seconds=done.seconds,
        cached=done.cached,
        headers=done.headers,
        nvrtc=done.nvrtc,
        warnings=(*warning, done.note),
    )


def remarks(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield what a person should know beside the table, each once: warnings, failures, spills."""
    yield from dict.fromkeys(f"warning: {warning}" for outcome in outcomes for warning in outcome.warnings if warning)
    archs: dict[tuple[str, str], list[str]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        # What stands in the brackets are versions and the architecture, which would keep equal errors apart.
        text = outcome.error.partition(" [")[0]
        if not text and (outcome.spill_bytes or outcome.local_bytes) and not job.kernel.local_ok:
            text = (
                f"{outcome.spill_bytes} bytes spilled, {outcome.local_bytes} bytes of local memory; if that is meant, "
                "write local_ok = true in the front matter"
            )
        if text:
            archs.setdefault((job.title, text), []).append(job.arch)
    for (title, text), where in archs.items():
        yield f"{title} for {', '.join(where)}: {text}"


def _write(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """Write kernels down, architectures across."""
    from greenbench.cli.listing import write_table

    archs = list(dict.fromkeys(job.arch for job in jobs))
    cells = {(job.title, job.arch): cell(outcome) for job, outcome in zip(jobs, outcomes, strict=True)}
    titles = dict.fromkeys(job.title for job in jobs)
    write_table(("kernel", *archs), [(title, *(cells.get((title, arch), "-") for arch in archs)) for title in titles], right=True)
    click.echo(f"NVRTC {outcomes[0].nvrtc}: {LEGEND}")
    for headers in sorted({each.headers for each in outcomes} - {""}):
        click.echo(f"headers: {headers}")


def cell(outcome: Outcome) -> str:
    """Write one outcome for the table: `168/49152/0`, or `failed`."""
    if outcome.error:
        return "failed"
    figures = (outcome.registers, outcome.shared_bytes, outcome.spill_bytes)
    return "/".join("?" if figure is None else str(figure) for figure in figures)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal; elsewhere the table is soon there."""
    if not is_live():
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
