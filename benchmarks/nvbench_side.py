"""Times the library's triad on green streams by greenbench (cold) and by NVBench (cuda.bench) in one process, interleaved.

`python benchmarks/nvbench_side.py OUT.json`; one record per case with medians in microseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cuda import bench
from cuda.bench.results import BenchmarkResult

from greenbench import stats
from greenbench.catalog import library
from greenbench.gpu import Gpu, Lane, Refusal, Work
from greenbench.gpu.cuda import open_cuda
from greenbench.measure import sampling
from greenbench.schema import Partition, SmsMode, Timing

CASES = ((32, 268435456), (132, 268435456), (32, 1048576), (132, 1048576))
OUR_BLOCKS = 6


def ours(gpu: Gpu, lane: Lane, work: Work, timing: Timing, launch_s: float) -> list[float]:
    """Return samples in microseconds, taken as the sweep takes them."""
    plan = sampling.recipe(timing, launch_s)
    samples: list[float] = []
    for _ in range(OUR_BLOCKS // 2):
        sampling.rewarm(lane, work, launch_s)
        samples += [s * 1e6 for s in sampling.take(gpu, lane, work, plan).samples]
    return samples


def theirs(cases: Sequence[tuple[Lane, Work]]) -> list[list[float]]:
    """Return NVBench's cold samples of each case in microseconds, from the one run that a process may make."""

    def triad(state: bench.State) -> None:
        lane, work = cases[state.get_int64("case")]
        state.set_stream(lane)
        state.exec(lambda launch: work.launch(), batched=False)

    bench.register(triad).add_int64_axis("case", range(len(cases)))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.json"
        bench.run_all_benchmarks(["nvbench", "--jsonbin", str(target), "--quiet"])
        states = list(next(iter(BenchmarkResult.from_json(target).values())))
        return [[float(s) * 1e6 for s in state.samples] for state in states]


def clock_without_sm0(gpu: Gpu) -> float | None:
    """Measure the SM clock in the second 8-SM unit of one split, which lacks SM 0."""
    pair = [Partition(SmsMode.COUNT, 8), Partition(SmsMode.COUNT, 8)]
    with gpu.lanes(pair, disjoint=True) as (_, lane):
        if isinstance(lane, Refusal) or 0 in lane.grant.smids:
            return None
        spin = lane.prepare(library()["spin"], {"ns": 2_000_000})
        first = lane.probe()
        spin.launch()
        return stats.clock_mhz(first.stamps, lane.probe().stamps)


def main(target: Path) -> None:
    """Time every case by us, by NVBench, and by us again, in this process."""
    gpu = open_cuda("0")
    sizes = list(dict.fromkeys(sms for sms, _ in CASES))
    with gpu.lanes([Partition(SmsMode.COUNT, sms) for sms in sizes]) as found:
        lanes = {sms: opened(item) for sms, item in zip(sizes, found, strict=True)}
        cases = []
        for sms, n in CASES:
            work = lanes[sms].prepare(library()["triad"], {"n": n, "s": 3.0})
            work.rotate(False)
            cases.append((lanes[sms], work))
        before = [both(gpu, lane, work) for lane, work in cases]
        rival = theirs(cases)
        after = [both(gpu, lane, work) for lane, work in cases]
    records = [
        {
            "sms": sms,
            "n": n,
            "dirty_us": statistics.median(first[0] + last[0]),
            "clean_us": statistics.median(first[1] + last[1]),
            "nvbench_us": statistics.median(samples),
            "nvbench_samples": len(samples),
        }
        for (sms, n), first, samples, last in zip(CASES, before, rival, after, strict=True)
    ]
    clock = clock_without_sm0(gpu)
    if clock is not None:
        records[-1]["clock_mhz_without_sm0"] = clock
    target.write_text(json.dumps(records, indent=1))


def opened(item: Lane | Refusal) -> Lane:
    """Return the lane, or raise what refused it."""
    if isinstance(item, Refusal):
        raise item.error
    return item


def both(gpu: Gpu, lane: Lane, work: Work) -> tuple[list[float], list[float]]:
    """Return our samples after a dirty flush, and after a clean one."""
    launch_s = sampling.estimate(gpu, lane, work)
    return ours(gpu, lane, work, Timing.COLD_DIRTY, launch_s), ours(gpu, lane, work, Timing.COLD_CLEAN, launch_s)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
