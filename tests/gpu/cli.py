"""Runs greenbench as a user would, and reads what it left; shared by the tests of this folder."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FRONT_MATTERS = {
    "hang": """
family = "probe"
summary = "Never ends."
entry = "hang"
args = ["flag"]
buffers = [{ name = "flag", dtype = "uint32", count = 1, fill = "zero" }]
[launch]
block = 32
grid = 1
""",
    "spin_1ms": """
family = "probe"
summary = "One millisecond of %globaltimer."
entry = "spin_1ms"
args = ["elapsed_ns"]
buffers = [{ name = "elapsed_ns", dtype = "uint64", count = 1, fill = "poison" }]
[launch]
block = 32
grid = 1
""",
    "fma_grid": """
family = "gemm"
summary = "Fixed total of fused multiply-adds."
entry = "fma_grid"
args = ["out", "steps"]
dtype = "float32"
buffers = [{ name = "out", dtype = "float32", count = "4096 * 256", fill = "poison" }]
[params]
steps = 2000
[launch]
block = 256
grid = 4096
[work]
flops = "16 * steps * 4096 * 256"
""",
    "copy_bytes": """
family = "memory"
summary = "Copy with a chosen working set."
entry = "copy_bytes"
args = ["dst", "src", "bytes"]
buffers = [
    { name = "dst", dtype = "uint8", count = "bytes", fill = "poison" },
    { name = "src", dtype = "uint8", count = "bytes", fill = "index" },
]
[params]
bytes = 16777216
[launch]
block = 256
grid = "8 * sms"
[work]
bytes = "2 * bytes"
""",
    "needs_grid_sync": """
family = "probe"
summary = "A barrier over the whole grid."
entry = "needs_grid_sync"
args = ["barrier", "met"]
buffers = [
    { name = "barrier", dtype = "uint32", count = 2, fill = "zero", access = "state" },
    { name = "met", dtype = "uint32", count = 132, fill = "poison" },
]
[launch]
block = 256
grid = 132
""",
    "wild": """
family = "probe"
summary = "Writes where nothing is allocated."
entry = "wild"
args = ["out"]
buffers = [{ name = "out", dtype = "uint32", count = 1, fill = "poison" }]
[launch]
block = 32
grid = 1
""",
}
WILD = 'extern "C" __global__ void wild(unsigned int *out) { out[(1ull << 40) + threadIdx.x] = 1u; }\n'
CASES = Path(__file__).parents[1] / "data" / "cases"


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str
    rows: list[dict[str, str]]


def kernel_folder(folder: Path, *names: str, extra: str = "") -> Path:
    """Put front matter on top of the named case kernels; `extra` goes under [launch]."""
    folder.mkdir(exist_ok=True)
    for name in names:
        source = WILD if name == "wild" else (CASES / f"{name}.cu").read_text()
        (folder / f"{name}.cu").write_text(f"/* greenbench{FRONT_MATTERS[name]}{extra}*/\n{source}")
    return folder


def sweep(folder: Path, *arguments: str) -> Ran:
    """Run `greenbench sweep` into `folder`."""
    command = [sys.executable, "-m", "greenbench", "sweep", "--no-plots", "--out", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    table = folder / "rows.csv"
    rows: list[dict[str, str]] = []
    if table.is_file():
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
    return Ran(done.returncode, done.stdout, done.stderr, rows)
