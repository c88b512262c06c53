"""The pass of `--trace`: what was measured is launched again under CUPTI, in workers of its own, and yields no timing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from greenbench.errors import GreenbenchError, IncompleteError, PointError, UsageError
from greenbench.experiments.campaign import Told
from greenbench.experiments.crew import Crew
from greenbench.gpu.witness import obstacle
from greenbench.schema import Partition, Point, Row, RunMeta, SmsMode, Status, Timing
from greenbench.timeline.recorded import TRACE, Recorded

LAUNCHES = 5


@dataclass(frozen=True, slots=True)
class Traced:
    """What the pass came to: its file (None where nothing was recorded), the points that it lacks, and a sentence."""

    path: Path | None
    lost: int
    sentence: str


def refuse(device: str) -> None:
    """Say before anything is measured that there can be no trace; raises UsageError or MachineError's kin."""
    if device.startswith("model:"):
        raise UsageError(
            f"--trace and --device {device} contradict each other: on the modelled device nothing runs; leave one out"
        )
    found = obstacle()
    if found is not None:
        raise found


def trace(folder: Path, meta: RunMeta, rows: Sequence[Row], crew: Crew, listener: Told) -> Traced:
    """Launch every ok point under CUPTI and write the folder's trace; `crew` is traced, and is ended here.

    `rows` are those of `meta.points`, in their order. A point that fails here is told and left out; what ends the pass as a
    whole (CUPTI refuses, the device is gone) is told as well, since the run itself is complete.
    """
    from greenbench.timeline.writing import write_trace

    began = time.perf_counter()
    # What times calls of the host has no kernel of its own that CUPTI could see.
    ok = [
        (each, row) for each, row in zip(meta.points, rows, strict=True) if row.status == Status.OK and row.timing != Timing.HOST
    ]
    found: list[tuple[Point, Recorded]] = []
    try:
        _open(crew, [point for point, _ in ok])
        for place, (point, row) in enumerate(ok):
            spent = time.perf_counter() - began
            listener.progress(
                spent, spent * len(ok) / max(place, 1), f"trace {place + 1}/{len(ok)} {point.kernel}@{point.partition.name}"
            )
            crew.remember(point, Timing(row.timing))
            recorded = _recorded(crew, point, listener)
            found += [(point, recorded)] if recorded is not None else []
        crew.stop()
    except GreenbenchError as error:
        listener.note(f"the trace ends early: {error}")
    finally:
        crew.kill()
    lost = len(ok) - len(found)
    if not found:
        return Traced(None, lost, "no trace: nothing was recorded")
    path = folder / TRACE
    device = meta.device
    write_trace(path, [part for _, part in found], device=device.index, name=device.name, sms=device.sm_count)
    return Traced(path, lost, _sentence(found, ok=len(ok), seconds=time.perf_counter() - began))


def _open(crew: Crew, points: Sequence[Point]) -> None:
    for key in dict.fromkeys(point.connections for point in points):
        wanted: list[Partition] = list(dict.fromkeys(point.partition for point in points if point.connections == key))
        crew.open(key, wanted)


def _recorded(crew: Crew, point: Point, listener: Told) -> Recorded | None:
    try:
        recorded = crew.trace(point, LAUNCHES)
        if not recorded.kernels:
            raise IncompleteError("CUPTI saw no kernel")
    except (PointError, IncompleteError) as error:
        listener.note(f"not traced: {point.label()}: {error}")
        return None
    return recorded


def _sentence(found: Sequence[tuple[Point, Recorded]], *, ok: int, seconds: float) -> str:
    """Say what was recorded, where it ran, and what it cost."""
    kernels = sum(len(part.kernels) for _, part in found)
    astray = sum(_astray(point, part) for point, part in found)
    unknown = sum(part.place(kernel) is None for _, part in found for kernel in part.kernels)
    where = f"{astray} outside the context of their point" if astray else "all in the contexts of their points"
    if unknown:
        where += f", {unknown} in contexts that CUPTI does not describe"
    missing = dict.fromkeys(text for _, part in found for text in part.missing)
    lacking = f"; CUPTI does not record {'; '.join(missing)}" if missing else ""
    return (
        f"trace: {len(found)} of {ok} points launched {LAUNCHES} times each under CUPTI in {seconds:.1f} s: {kernels} kernels, "
        f"{where}{lacking}; under CUPTI a launch costs up to twice as much, so no figure of the run comes from here"
    )


def _astray(point: Point, part: Recorded) -> int:
    """Count kernels that ran in a green context where the point has none, or the other way round, or on other SMs."""
    (span,) = part.ranges
    green = point.partition.mode is not SmsMode.PRIMARY
    count = 0
    for kernel in part.kernels:
        place = part.place(kernel)
        if place is not None:
            count += place.green != green or (green and place.sms is not None and place.sms != span.payload)
    return count
