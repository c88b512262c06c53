"""Reruns the acceptance tables of the project on a GPU and prints the figures beside their floors.

`python benchmarks/accept.py [PART ...]` (`make gpu-accept PART="sweep chase"`); without a part all are run. Everything that was
measured is kept in one archive, results/accept-<time>.tar.gz. Exit status 1 says that a floor was missed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import isolation
import library
from library import Line, rows_of

ROOT = Path(__file__).resolve().parents[1]
GIB, MIB = 268435456, 1048576


Part = Callable[[Path], list[Line]]


def greenbench(arguments: Sequence[str], environment: dict[str, str] | None = None) -> float:
    """Run a greenbench command from the checkout; return its wall time in seconds."""
    began = time.perf_counter()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **(environment or {})}
    done = subprocess.run([sys.executable, "-m", "greenbench", *arguments], env=env, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    if done.returncode not in {0, 5}:
        raise SystemExit(f"greenbench {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return wall


def block_seconds(folder: Path) -> float:
    """Sum the seconds of all blocks and sentinels."""
    import csv

    with (folder / "blocks.csv").open(newline="") as file:
        return sum(float(line["seconds"]) for line in csv.DictReader(file))


def sweep(out: Path) -> list[Line]:
    """Wall time of the default sweep, cold and warm, and whether every point is proven."""
    lines = []
    with tempfile.TemporaryDirectory() as cache:
        fresh = {"GREENBENCH_CACHE_DIR": cache, "CUPY_CACHE_DIR": f"{cache}/cupy"}
        for name, floor in (("cold cache", 45.0), ("warm", 30.0)):
            folder = out / f"sweep-{name.split()[0]}"
            wall = greenbench(["sweep", "--sms", "8,16,24,32", "--out", str(folder)], fresh)
            share = 100 * block_seconds(folder) / wall
            lines.append(Line("sweep", f"wall time, {name}", f"<= {floor:g} s", f"{wall:.1f} s", wall <= floor))
            lines.append(Line("sweep", f"time in blocks / wall, {name}", ">= 60 %", f"{share:.0f} %", share >= 60))
    rows = rows_of(folder)
    good = [r for r in rows if r["status"] == "ok" and r["placement"] == "confined" and r["verified_error"] not in {""}]
    own = [r for r in rows if not r["kernel"].startswith("null_launch")]
    proved = sum(r in good for r in own)
    lines.append(Line("sweep", "points confined, verified, ok", "100 %", f"{proved} of {len(own)}", proved == len(own)))
    return lines


def spread(out: Path) -> list[Line]:
    """Spread of time_us over four fresh processes."""
    found: dict[int, list[float]] = {GIB: [], MIB: []}
    for repeat in range(4):
        folder = out / f"spread-{repeat}"
        sizes = ",".join(map(str, found))
        greenbench(["sweep", "--kernels", "triad", "--set", f"n={sizes}", "--sms", "32", "--no-plots", "--out", str(folder)])
        for row in rows_of(folder):
            found[int(row["params"].partition("n=")[2].partition(",")[0])].append(float(row["time_us"]))
    lines = []
    for n, name, floor in ((GIB, "1 GiB", 0.1), (MIB, "4 MiB", 1.0)):
        times = found[n]
        wide = 100 * (max(times) - min(times)) / statistics.median(times)
        text = f"{wide:.3f} % ({min(times):.3f}-{max(times):.3f} us)"
        lines.append(Line("spread", f"time_us over 4 processes, triad {name}, 32 SMs", f"<= {floor} %", text, wide <= floor))
    return lines


def spin(out: Path) -> list[Line]:
    """Known waits of %globaltimer."""
    folder = out / "spin"
    greenbench(
        ["sweep", "--kernels", "spin", "--set", "ns=100000,1000000", "--sms", "8,32,full", "--no-plots", "--out", str(folder)]
    )
    lines = []
    for row in rows_of(folder):
        wanted = int(row["params"].partition("ns=")[2]) / 1e3
        read = float(row["time_us"])
        lines.append(
            Line(
                "spin",
                f"spin of {wanted:g} us @{row['sms_requested']}",
                "within 1 % + 2 us",
                f"{read:.2f} us",
                abs(read - wanted) <= 0.01 * wanted + 2,
            )
        )
    return lines


def bandwidth(out: Path) -> list[Line]:
    """The memory kernels on the full device."""
    folder = out / "bandwidth"
    greenbench(["sweep", "--kernels", "triad,read,copy,write", "--sms", "full", "--no-plots", "--out", str(folder)])
    floors = {"triad": 4300, "read": 4500, "copy": 4150, "write": 4500}
    return [
        Line(
            "bandwidth",
            f"{r['kernel']} @full",
            f">= {floors[r['kernel']]} GB/s",
            f"{float(r['gb_per_s']):.0f} GB/s",
            float(r["gb_per_s"]) >= floors[r["kernel"]],
        )
        for r in rows_of(folder)
    ]


def chase(out: Path) -> list[Line]:
    """Latency of the three levels."""
    folder = out / "chase"
    sizes = {16384: (33.7, 2), 8388608: (275, 8), 1073741824: (655, 20)}
    text = ",".join(map(str, sizes))
    greenbench(["sweep", "--kernels", "chase", "--set", f"bytes={text}", "--sms", "8,full", "--no-plots", "--out", str(folder)])
    lines = []
    for row in rows_of(folder):
        size = int(row["params"].partition("bytes=")[2].partition(",")[0])
        middle, around = sizes[size]
        cycles = float(row["latency_cycles"])
        lines.append(
            Line(
                "chase",
                f"{size} bytes @{row['sms_requested']}",
                f"{middle} +- {around} cycles",
                f"{cycles:.1f}",
                abs(cycles - middle) <= around,
            )
        )
    return lines


def start(_: Path) -> list[Line]:
    """Start of the command line, and the compile of the library in a worker."""
    times = [greenbench(["--help"]) * 1e3 for _ in range(9)]
    lines = [
        Line("start", "greenbench --help", "<= 120 ms", f"{statistics.median(times):.0f} ms", statistics.median(times) <= 120)
    ]
    with tempfile.TemporaryDirectory() as cache:
        for name, floor in (("cold", 12.0), ("cached", 0.5)):
            code = (
                "import sys,time,pathlib\n"
                "from greenbench.catalog import library\nfrom greenbench.gpu.nvrtc import compile_kernel\n"
                "import cuda.core, cuda.core.utils\n"
                "kernels=library()\nbegan=time.perf_counter()\n"
                "from concurrent.futures import ThreadPoolExecutor\n"
                "def compile(job): compile_kernel(job[0], sys.argv[2], job[1], cache_dir=pathlib.Path(sys.argv[1]))\n"
                "jobs=[(a,v) for k in kernels.values() if not k.obstacle((9, 0)) for a in [k.for_arch(sys.argv[2])]\n"
                "      for v in (a.variants or (None,))]\n"
                "with ThreadPoolExecutor(2) as pool: list(pool.map(compile, jobs))\n"
                "print(time.perf_counter()-began)\n"
            )
            env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
            command = ["taskset", "-c", "0,1", sys.executable, "-c", code, cache, "sm_90a"]
            spent = float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
            lines.append(
                Line("start", f"compile of the library, {name}, 2 cores", f"<= {floor} s", f"{spent:.2f} s", spent <= floor)
            )
    return lines


def nvbench(out: Path) -> list[Line]:
    """The same triad on the same green stream, ours and NVBench's, interleaved in one process."""
    target = out / "nvbench.json"
    side = Path(__file__).with_name("nvbench_side.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, str(side), str(target)], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return [Line("nvbench", "comparison", "runs", done.stderr.strip().splitlines()[-1][:120], None)]
    lines = []
    for case in json.loads(target.read_text()):
        allowed = 0.5 if case["n"] == GIB else 3.0
        off = 100 * (case["dirty_us"] / case["nvbench_us"] - 1)
        text = f"{case['dirty_us']:.3f} against {case['nvbench_us']:.3f} us: {off:+.2f} % (clean {case['clean_us']:.3f} us)"
        size = "1 GiB" if case["n"] == GIB else "4 MiB"
        lines.append(
            Line("nvbench", f"triad {size}, {case['sms']} SMs, cold dirty", f"within {allowed} %", text, abs(off) <= allowed)
        )
        lines += clock_line(case)
    return lines


def clock_line(case: dict[str, float]) -> list[Line]:
    """The SM clock of a partition that has no SM 0, where that was measured."""
    if "clock_mhz_without_sm0" not in case:
        return []
    clock = case["clock_mhz_without_sm0"]
    return [Line("nvbench", "SM clock in a partition without SM 0", "measured", f"{clock:.1f} MHz", clock > 0)]


PARTS: dict[str, Part] = {
    "sweep": sweep,
    "nvbench": nvbench,
    "spread": spread,
    "spin": spin,
    "bandwidth": bandwidth,
    "chase": chase,
    "start": start,
    **{
        name: lambda out, part=part: part(greenbench, out)  # type: ignore[misc]
        for name, part in (
            ("gemm", library.gemm),
            ("gemm_large", library.gemm_large),
            ("memory", library.memory),
            ("latency", library.latency),
            ("colocate", isolation.colocate),
            ("repeat", isolation.repeat),
            ("overlap", isolation.overlap),
            ("switch", isolation.switch),
        )
    },
}


def show(lines: Sequence[Line]) -> None:
    """Print a table."""
    widths = [max(len(getattr(line, name)) for line in lines) for name in ("what", "floor", "figure")]
    for line in lines:
        mark = {True: "ok", False: "MISSED", None: "not run"}[line.met]
        cells = "  ".join(
            getattr(line, name).ljust(width) for name, width in zip(("what", "floor", "figure"), widths, strict=True)
        )
        print(f"{cells}  {mark}", flush=True)


def main(names: Sequence[str]) -> int:
    """Run the parts and leave one archive."""
    unknown = set(names) - PARTS.keys()
    if unknown:
        print(f"there is no part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    lines: list[Line] = []
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    archive = ROOT / "results" / f"accept-{stamp}.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        for name in names or PARTS:
            found = PARTS[name](out)
            show(found)
            lines += found
        (out / "accept.json").write_text(json.dumps([asdict(line) for line in lines], indent=1))
        archive.parent.mkdir(exist_ok=True)
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(out, arcname=f"accept-{stamp}")
    print(archive)
    return int(any(line.met is False for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
