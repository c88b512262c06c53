"""The acceptance tables of the kernel library: our kernels beside vendor calls in one interleaved run, count by count.

A ratio is the yardstick's time over ours: above 1 we are faster. Floors are those that the project set itself for an H200.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Row = Mapping[str, str]
Run = Callable[[Sequence[str]], float]

PLAIN = Path(__file__).with_name("plain")
GEMM_SIZES = {"gemm": 4096, "gemm_large": 8192}
CUBLAS_WAYS = ("cublas", "cublas_sms", "cublaslt")
# CUB's sum of int32, BabelStream's dot and triad, torch's fill, as measured on an H200 (1 GiB and more).
FULL_DEVICE = {"read": 4537, "dot": 4401, "write": 4645, "triad": 4368}
SMALL = ("8", "16", "32", "64")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an acceptance table; `met` is None where nothing was measured."""

    part: str
    what: str
    floor: str
    figure: str
    met: bool | None


def rows_of(folder: Path) -> list[Row]:
    """Read rows.csv as text cells."""
    with (folder / "rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Ratios:
    """Times of one run by kernel, params and SM count, and yardsticks over kernels."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._times = {
            (row["kernel"], row["params"], row["sms_requested"]): float(row["time_us"])
            for row in self.rows
            if row["status"] == "ok"
        }

    def time(self, kernel: str, params: str, sms: str) -> float | None:
        """Return the median time in us, or None where there is none."""
        return self._times.get((kernel, params, sms))

    def over(self, kernel: str, params: str, others: Sequence[str]) -> dict[str, float]:
        """Return, per SM count, the best time of the others over the kernel's."""
        found = {}
        for name, mine, sms in self._times:
            if (name, mine) != (kernel, params):
                continue
            best = min((t for other in others if (t := self.time(other, params, sms))), default=None)
            if best is not None:
                found[sms] = best / self._times[kernel, params, sms]
        return found


def judged(part: str, what: str, ratios: Mapping[str, float], mean: float, least: float) -> list[Line]:
    """Return the geometric mean and the smallest ratio as lines."""
    if not ratios:
        return [Line(part, what, f"mean >= {mean}", "no row", None)]
    middle = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
    worst = min(ratios, key=lambda sms: ratios[sms])
    each = " ".join(f"{sms}:{ratio:.2f}" for sms, ratio in ratios.items())
    return [
        Line(part, f"{what}, geometric mean", f">= {mean}", f"{middle:.3f}  ({each})", middle >= mean),
        Line(part, f"{what}, least", f">= {least}", f"{ratios[worst]:.3f} at {worst} SMs", ratios[worst] >= least),
    ]


def params_of(ratios: Ratios, kernel: str) -> list[str]:
    """Return the params of a kernel in a run, in order."""
    return list(dict.fromkeys(row["params"] for row in ratios.rows if row["kernel"] == kernel))


def gemm(run: Run, out: Path) -> list[Line]:
    """GEMM of 4096 cubed at thirteen partitions."""
    run(["sweep", "gemm", "--out", str(out / "gemm")])
    ratios = Ratios(rows_of(out / "gemm"))
    lines = []
    for params in params_of(ratios, "gemm_bf16"):
        plain = ratios.over("gemm_bf16", params, ["gemm_bf16.cublas"])
        lines += judged("gemm", "gemm_bf16 4096 against cuBLAS plain", plain, 1.05, 0.95)
        odd = {sms: ratio for sms, ratio in plain.items() if sms in {"104", "112", "120"}}
        lines += judged("gemm", "the same at 104 to 120 SMs", odd, 1.10, 1.10)
    for kernel, mean, least in (("gemm_bf16", 1.0, 0.93), ("gemm_tf32", 0.97, 0.9), ("gemm_fp32", 1.0, 0.9)):
        lines += best_of_three("gemm", ratios, kernel, mean, least)
    return [*lines, *proven("gemm", ratios)]


def gemm_large(run: Run, out: Path) -> list[Line]:
    """GEMM of 8192 cubed."""
    run(["sweep", "gemm_large", "--out", str(out / "gemm_large")])
    ratios = Ratios(rows_of(out / "gemm_large"))
    lines = []
    floors = {"gemm_bf16": (1.0, 0.93), "gemm_fp16": (1.0, 0.93), "gemm_fp8": (0.95, 0.9), "gemm_fp8_raw": (0.95, 0.9)}
    for kernel, (mean, least) in floors.items():
        lines += best_of_three("gemm_large", ratios, kernel, mean, least)
    return [*lines, *proven("gemm_large", ratios)]


def best_of_three(part: str, ratios: Ratios, kernel: str, mean: float, least: float) -> list[Line]:
    """Compare a GEMM with the fastest vendor call of each SM count."""
    lines = []
    for params in params_of(ratios, kernel):
        others = [f"{kernel}.{way}" for way in CUBLAS_WAYS]
        what = f"{kernel} {GEMM_SIZES[part]} against the best of cuBLAS"
        lines += judged(part, what, ratios.over(kernel, params, others), mean, least)
    return lines


def memory(run: Run, out: Path) -> list[Line]:
    """Memory-bound kernels beside torch, and beside loops as anyone would write them."""
    run(["sweep", "memory", "--out", str(out / "memory")])
    names = "plain_copy,plain_triad,plain_read,copy,triad,read"
    plain = ["--kernels-dir", str(PLAIN), "--kernels", names, "--sms", ",".join(SMALL), "--rounds", "5"]
    run(["sweep", *plain, "--no-plots", "--out", str(out / "plain")])
    ratios, beside = Ratios(rows_of(out / "memory")), Ratios(rows_of(out / "plain"))
    lines = []
    for row in ratios.rows:
        if row["kernel"] in FULL_DEVICE and row["sms_requested"] == "full" and row["status"] == "ok":
            floor, rate = FULL_DEVICE[row["kernel"]], float(row["gb_per_s"])
            lines.append(Line("memory", f"{row['kernel']} @full", f">= {floor} GB/s", f"{rate:.0f} GB/s", rate >= floor))
    for params in params_of(ratios, "copy"):
        beside_torch = ratios.over("copy", params, ["copy.torch"])
        whole = {sms: ratio for sms, ratio in beside_torch.items() if sms == "full"}
        lines += judged("memory", "copy @full against torch", whole, 1.0, 1.0)
    for kernel in ("copy", "triad", "read"):
        for params in params_of(beside, kernel):
            others = [f"plain_{kernel}", f"{kernel}.torch"]
            lines += judged("memory", f"{kernel} against plain loop and torch", beside.over(kernel, params, others), 1.0, 1.0)
    for kernel in ("gemv", "decode_attention", "rmsnorm", "softmax"):
        for params in params_of(ratios, kernel):
            found = ratios.over(kernel, params, [f"{kernel}.torch"])
            asked = {sms: ratio for sms, ratio in found.items() if sms in {"16", "32", "64", "full"}}
            lines += judged("memory", f"{kernel} [{params}] against torch", asked, 1.0, 1.0)
    return [*lines, *proven("memory", ratios)]


def proven(part: str, ratios: Ratios) -> list[Line]:
    """Return how many of our own rows are ok, confined and verified."""
    own = [row for row in ratios.rows if "." not in row["kernel"]]
    good = sum(row["status"] == "ok" and row["placement"] == "confined" and row["verified_error"] != "" for row in own)
    return [Line(part, "own points confined, verified, ok", "100 %", f"{good} of {len(own)}", good == len(own))]


# Cycles of the chip family (GH200 and H800, gpu-benches and HPMLL), or of this GPU by the same probe of others.
LATENCIES = {
    ("chase", "bytes=16384"): ("L1", 32.0),
    ("chase", "bytes=8388608"): ("L2", 280.4),
    ("chase", "bytes=1073741824"): ("HBM", 689.0),
}


def latency(run: Run, out: Path) -> list[Line]:
    """Every latency probe; those with a published value are compared."""
    run(["sweep", "latency", "--out", str(out / "latency")])
    rows = rows_of(out / "latency")
    lines = []
    for row in rows:
        for (kernel, key), (name, cycles) in LATENCIES.items():
            if row["kernel"] == kernel and key in row["params"].split(",") and row["sms_requested"] == "full":
                read = float(row["latency_cycles"])
                off = 100 * (read / cycles - 1)
                figure = f"{read:.1f} cycles ({off:+.1f} %)"
                lines.append(Line("latency", f"{name} @full", f"{cycles} within 3 %", figure, abs(off) <= 3))
        if row["kernel"] == "dsmem" and "remote=1" in row["params"] and row["status"] == "ok":
            read = float(row["latency_cycles"])
            lines.append(
                Line("latency", f"DSMEM @{row['sms_requested']}", "180 to 213", f"{read:.1f} cycles", 180 <= read <= 213)
            )
    failed = [row for row in rows if row["status"] == "failed"]
    why = "; ".join(sorted({row["reason"] for row in failed}))[:120]
    return [*lines, Line("latency", "rows that failed", "0", f"{len(failed)} {why}".strip(), not failed)]
