"""Nsight Compute and a sweep as two small programs: their lines, their exit codes and their files, and no GPU.

The raw page is built from the names and units that ncu 2025.3 writes for an H200; its values are made up around a triad.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

VERSION = "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 1) (public-release)"
# Tests put a program of theirs in its place.
PYTHON = sys.executable
# Metric: (unit, value). 17.9 % of 132 SMs are 73.8 % of 32.
TRIAD: Mapping[str, tuple[str, str]] = {
    "dram__bytes.sum.per_second": ("byte/s", "3,455,102,000,000"),
    "gpc__cycles_elapsed.avg.per_second": ("hz", "1,980,000,000"),
    "gpc__cycles_elapsed.max": ("cycle", "1,834,000"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "71.98"),
    "gpu__time_duration.sum": ("ns", "926,300"),
    "launch__context_id": ("", "1"),
    "launch__green_context_id": ("", "2"),
    "launch__sm_count": ("SM", "32"),
    "launch__tpc_count": ("", "16"),
    "launch__tpc_enabled": ("", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"),
    "launch__uses_green_context": ("", "1"),
    "lts__t_sector_hit_rate.pct": ("%", "33.4"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "41.2"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "17.9"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "97.3"),
}
_IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Device", "CC")


def page(launches: int = 3, drop: Sequence[str] = (), **changed: str) -> str:
    """Return a raw page; `changed` has other values, with the dots of a metric written as two underscores and `DOT`."""
    metrics = {name: cell for name, cell in TRIAD.items() if name not in drop}
    for name, value in changed.items():
        key = name.replace("DOT", ".")
        metrics[key] = (metrics.get(key, ("%", ""))[0], value)
    text = io.StringIO()
    table = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow([*_IDENTITY, *metrics])
    table.writerow(["" for _ in _IDENTITY] + [unit for unit, _ in metrics.values()])
    for number in range(launches):
        identity = [str(number), "77", "python3", "127.0.0.1", "triad(float *, const float *)", "1", "15", "0", "9.0"]
        table.writerow([*identity, *(value for _, value in metrics.values())])
    return text.getvalue()


def program(path: Path, body: str) -> Path:
    """Write a program that starts in no time."""
    path.write_text(f"#!{PYTHON} -SE\n{dedent(body)}")
    path.chmod(0o755)
    return path


def ncu(path: Path, report: str | None, *says: str, code: int | None = None) -> Path:
    """Write an ncu that runs the program behind its options, says these lines and leaves `report`, the raw page, behind."""
    body = f"""
    import subprocess, sys
    words, report = sys.argv[1:], {report!r}
    if words == ["--version"]:
        print({VERSION!r})
    elif words[0] == "--import":
        assert words[2:] == ["--csv", "--page", "raw", "--print-units", "base"], words
        print(open(words[1]).read(), end="")
    else:
        print("==PROF== Connected to process 77 (python3)", flush=True)
        done = subprocess.run(words[words.index("-P") - 1:])
        for line in {says!r}:
            print(line, flush=True)
        if report is not None:
            open(words[words.index("--export") + 1], "w").write(report)
        code = {code!r}
        sys.exit(done.returncode if code is None else code)
    """
    return program(path, body)


def sweep(path: Path, plan: object, measured: Path, profiled: Path, code: int = 0, error: str = "") -> Path:
    """Write a `python` whose greenbench answers a dry run with `plan`, and otherwise leaves a copy of one of two run folders."""
    body = f"""
    import os, shutil, sys
    words = sys.argv[1:]
    assert words[:4] == ["-P", "-m", "greenbench", "sweep"], words
    if {error!r}:
        print({error!r}, file=sys.stderr)
    if "--dry-run" in words:
        print({json.dumps(plan)!r})
        sys.exit({code!r})
    out = words[len(words) - 1 - words[::-1].index("--out") + 1]
    template = {str(profiled)!r} if "--profile" in words else {str(measured)!r}
    shutil.copytree(template, out)
    print(out)
    """
    return program(path, body)
