"""Ways to take one sample, and how many launches and samples a block holds."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from greenbench.errors import FailedError, UnsupportedError
from greenbench.gpu import Gpu, HostTimed, Lane, Replay, Work
from greenbench.schema import Family, Timing

SAMPLE_S = 2e-3
BLOCK_S = 0.1
MAX_LAUNCHES = 240
GRAPH_LAUNCHES = (20, 200)
SAMPLES = (5, 20)
GRAPH_BELOW_S = 20e-6
REWARM_S = 10e-3
REWARM_LAUNCHES = 5
# Below this, events resolve nothing: an estimate of 0 s must not become a division by it.
SHORTEST_S = 1e-7
# A launch costs the host about this much, so more of them would warm the host, not the device.
HOST_LAUNCH_S = 6e-6
COLD = frozenset({Timing.COLD_CLEAN, Timing.COLD_DIRTY})


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the blocks of one point are taken."""

    timing: Timing
    launches: int
    samples: int
    launch_s: float

    @property
    def block_s(self) -> float:
        """Expected device time of one block, re-warming included."""
        return REWARM_S + self.samples * self.launches * self.launch_s


@dataclass(frozen=True, slots=True)
class Taken:
    """The samples of one block in seconds per launch, what the kernel reported, and the host's time per launch."""

    samples: tuple[float, ...]
    reported: tuple[float, ...]
    launch_host_s: float | None


def resolve(timing: Timing, family: Family, launch_s: float, *, on_host: bool = False) -> Timing:
    """Choose the timing of `auto`: host for host probes, hot for latency kernels, graph below 20 us, else steady.

    Raises UnsupportedError where a host probe is to be timed by the device, or anything else by the host.
    """
    if on_host and timing in {Timing.AUTO, Timing.HOST}:
        return Timing.HOST
    if on_host or timing is Timing.HOST:
        said = "is timed by the host, not" if on_host else "is timed by the device, so it has no timing"
        raise UnsupportedError(f"a {'host probe' if on_host else 'kernel'} {said} {timing.value}; leave --timing away")
    if timing is not Timing.AUTO:
        return timing
    if family in {Family.LATENCY, Family.PROBE}:
        return Timing.HOT
    return Timing.GRAPH if launch_s < GRAPH_BELOW_S else Timing.STEADY


def most_launches(work: Work) -> int:
    """Return how many launches of this work a sample may hold."""
    return min(work.most_launches, MAX_LAUNCHES) if isinstance(work, HostTimed) else MAX_LAUNCHES


def recipe(timing: Timing, launch_s: float, most: int = MAX_LAUNCHES) -> Recipe:
    """Size a sample to about 2 ms (at most 240 launches, or `most`) and a block to 5-20 samples of about 100 ms together."""
    launch_s = max(launch_s, SHORTEST_S)
    wanted = math.ceil(SAMPLE_S / launch_s)
    if timing in COLD:
        launches = 1
    elif timing is Timing.GRAPH:
        launches = min(max(wanted, GRAPH_LAUNCHES[0]), GRAPH_LAUNCHES[1])
    else:
        launches = min(max(wanted, 1), most)
    samples = min(max(math.ceil(BLOCK_S / (launches * launch_s)), SAMPLES[0]), SAMPLES[1])
    return Recipe(timing, launches, samples, launch_s)


def gated(
    gpu: Gpu, lane: Lane, work: Work, launches: int, before: Callable[[], None] | None = None
) -> tuple[float, float | None]:
    """Queue `launches` behind a gate between two events, open it; return (device seconds, host seconds spent launching).

    What the host times has no gate and no device seconds: those of the host stand in their place, with nothing beside them.
    """
    if isinstance(work, HostTimed):
        return work.timed(launches), None
    if before is not None:
        before()
    gate = gpu.gate(lane)
    start = lane.mark()
    began = time.perf_counter()
    for _ in range(launches):
        work.launch()
    spent = time.perf_counter() - began
    stop = lane.mark()
    gate.open()
    lane.sync()
    if not gate.passed():
        raise FailedError("gate time-out: the host took more than 2 s to queue a sample")
    return stop.since(start), spent


def estimate(gpu: Gpu, lane: Lane, work: Work) -> float:
    """Return seconds per launch, from single launches and then from a batch of about 2 ms."""
    once = min(gated(gpu, lane, work, 1)[0] for _ in range(3))
    if once >= SAMPLE_S:
        return once
    launches = min(max(math.ceil(SAMPLE_S / max(once, SHORTEST_S)), 1), most_launches(work))
    return gated(gpu, lane, work, launches)[0] / launches


def rewarm(lane: Lane, work: Work, launch_s: float) -> None:
    """Launch for 10 ms (at least five times), so that clocks and caches are those of steady running."""
    if isinstance(work, HostTimed):
        work.timed(REWARM_LAUNCHES)
        return
    wanted = math.ceil(REWARM_S / max(launch_s, HOST_LAUNCH_S))
    for _ in range(max(REWARM_LAUNCHES, wanted)):
        work.launch()
    lane.sync()


def take(gpu: Gpu, lane: Lane, work: Work, plan: Recipe) -> Taken:
    """Take the samples of one block, launch by launch."""

    def flush() -> None:
        # From the whole device, and so outside the partition: a reader of the timeline is told that this is meant.
        with gpu.annotate("flush", category="setup"):
            lane.flush_l2(plan.timing is Timing.COLD_DIRTY)

    samples, reported, host = [], [], []
    with quiet():
        for _ in range(plan.samples):
            device, spent = gated(gpu, lane, work, plan.launches, flush if plan.timing in COLD else None)
            samples.append(device / plan.launches)
            if spent is not None:
                host.append(spent)
            value = work.report()
            if value is not None:
                reported.append(value)
    return Taken(tuple(samples), tuple(reported), sum(host) / (len(host) * plan.launches) if host else None)


def replay(graph: Replay, plan: Recipe) -> Taken:
    """Take the samples of one block by replaying a graph; its events lie inside it."""
    with quiet():
        return Taken(tuple(graph.run() / graph.launches for _ in range(plan.samples)), (), None)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collector out of samples."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
