"""Times the library's triad on green streams by greenbench (cold) and by NVBench (cuda.bench) in one process, interleaved.

`python benchmarks/nvbench_side.py OUT.json`; one record per case with medians in microseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import cuda.bench as bench
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


class Rival:
    """NVBench's cold measurement of whatever work it is given; registered once, since NVBench takes no more after its first run."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lane: Lane | None = None
        self._work: Work | None = None
        bench.register(self._triad).set_name(name)

    def _triad(self, state: bench.State) -> None:
        work = self._work
        state.set_stream(self._lane)
        state.exec(lambda launch: work.launch(), batched=False)

    def samples_us(self, lane: Lane, work: Work) -> list[float]:
        """Return NVBench's cold samples in microseconds."""
        self._lane, self._work = lane, work
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "out.json"
            bench.run_all_benchmarks(["nvbench", "-b", self._name, "--jsonbin", str(target), "--quiet"])
            state = next(iter(next(iter(BenchmarkResult.from_json(target).values()))))
            return [float(s) * 1e6 for s in state.samples]


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
    """Run all cases in this process."""
    gpu = open_cuda("0")
    records = []
    rivals = {(sms, n): Rival(f"triad_{sms}_{n}") for sms, n in CASES}
    sizes = list(dict.fromkeys(sms for sms, _ in CASES))
    with gpu.lanes([Partition(SmsMode.COUNT, sms) for sms in sizes]) as lanes:
        by_size = dict(zip(sizes, lanes, strict=True))
        for sms, n in CASES:
            lane = by_size[sms]
            if isinstance(lane, Refusal):
                raise lane.error
            work = lane.prepare(library()["triad"], {"n": n, "s": 3.0})
            work.rotate(False)
            launch_s = sampling.estimate(gpu, lane, work)
            dirty = ours(gpu, lane, work, Timing.COLD_DIRTY, launch_s)
            clean = ours(gpu, lane, work, Timing.COLD_CLEAN, launch_s)
            nvbench = rivals[sms, n].samples_us(lane, work)
            clean += ours(gpu, lane, work, Timing.COLD_CLEAN, launch_s)
            dirty += ours(gpu, lane, work, Timing.COLD_DIRTY, launch_s)
            records.append(
                {
                    "sms": sms,
                    "n": n,
                    "dirty_us": statistics.median(dirty),
                    "clean_us": statistics.median(clean),
                    "nvbench_us": statistics.median(nvbench),
                    "nvbench_samples": len(nvbench),
                }
            )
    clock = clock_without_sm0(gpu)
    if clock is not None:
        records[-1]["clock_mhz_without_sm0"] = clock
    target.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
