"""What `greenbench devices` shows: every GPU asked in a child of its own, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from greenbench.errors import GreenbenchError, MachineError, NoDriverError, PointError
from greenbench.schema import DeviceFacts, Evidence, Partition, Point, SmsMode
from greenbench.worker.process import START_TIMEOUT_S, Lost, Worker

MOST_GPUS = 64
# Any kernel will do: preparing it raises what the proof of its lane showed.
SPIN = (("ns", 100_000),)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One GPU; an empty obstacle means that the thing works here.

    `processes` are those of others, which are `others` in number; where NVML lists ids of another namespace, that of greenbench
    cannot be told from them and is among them.
    """

    facts: DeviceFacts
    green: str
    workqueue: str
    mps: str
    mig: str
    allowance: str
    processes: tuple[int, ...]
    others: int
    clocks: Evidence
    sizes_hint: str


@dataclass(frozen=True, slots=True)
class Survey:
    """All GPUs of this machine, or why it has none."""

    devices: tuple[DeviceReport, ...]
    obstacle: MachineError | None = None


def survey(spec: str | None = None) -> Survey:
    """Ask every GPU (or the one of `spec`); no answer at all is an obstacle, never a traceback."""
    reports: list[DeviceReport] = []
    wanted = [spec] if spec is not None else [f"cuda:{index}" for index in range(MOST_GPUS)]
    for place, name in enumerate(wanted):
        try:
            reports.append(_ask(name))
        except NoDriverError as error:
            if place == 0:
                return Survey((), error)
            break
        except MachineError as error:
            return Survey(tuple(reports), error)
    return Survey(tuple(reports))


def _ask(spec: str) -> DeviceReport:
    worker = Worker(spec)
    try:
        facts, allowance = worker.start()
        green = _green_obstacle(worker, facts)
        clocks, pid = worker.evidence(), worker.pid
    except Lost as error:
        raise MachineError(f"{spec}: asking the device failed: {error}") from error
    finally:
        worker.stop()
    structured = facts.split_api == "structured"
    return DeviceReport(
        facts=worker.device or facts,
        green=green,
        workqueue=facts.workqueue_obstacle,
        mps="under MPS" if facts.mps else "",
        mig="in MIG mode" if facts.mig else "",
        allowance=allowance,
        processes=_without(clocks.processes, pid),
        others=max(len(clocks.processes) - 1, 0),
        clocks=clocks,
        sizes_hint=f"{facts.min_partition} to {facts.sm_count} in steps of {facts.alignment}"
        + (", exact" if structured else f", others are rounded up; {facts.sm_count} as a whole"),
    )


def _without(processes: tuple[int, ...], own: int | None) -> tuple[int, ...]:
    """Leave out the worker that asked: by its id, or, where that is of another namespace, as the only one there is."""
    if own in processes:
        return tuple(each for each in processes if each != own)
    return processes if len(processes) > 1 else ()


def _green_obstacle(worker: Worker, facts: DeviceFacts) -> str:
    """Open the smallest partition, and let its census and its timer prove it."""
    smallest = Partition(SmsMode.COUNT, facts.min_partition)
    found = worker.open([smallest])[0]
    if isinstance(found, GreenbenchError):
        return str(found)
    try:
        worker.prepare(Point("spin", SPIN, smallest), timeout_s=START_TIMEOUT_S)
    except Lost:
        raise
    except PointError as error:
        return str(error)
    return ""
