"""How long `greenbench timeline` takes for a capture of a million kernels, and how much memory: no GPU and no nsys needed.

Writes a made-up SQLite export (three contexts on one device, one API call per kernel, nested NVTX ranges), reads it by the
command in a process of its own, and prints seconds and peak memory beside the floors that the project set itself (2 cores).
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MOST_SECONDS = 20.0
MOST_GIB = 1.0
PROCESS, THREAD = 1 << 24 | 1 << 48, 1 << 24 | 1 << 48 | 7
# (green context, stream, shortest and longest kernel in ns)
LANES = ((2, 15, 5_000, 9_000), (3, 18, 20_000, 40_000), (0, 7, 2_000, 3_000))
PER_RANGE = 500

KERNEL = """CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,
mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER,
gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
localMemoryPerThread INTEGER, localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER)"""
RUNTIME = """CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER)"""
NVTX = """CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, category INTEGER, text TEXT,
globalTid INTEGER, textId INTEGER, domainId INTEGER)"""


def kernels(count: int) -> Iterator[tuple[int | None, ...]]:
    """Yield the rows of kernels, a lane behind the other in turn, with gaps between those of one lane."""
    draw = random.Random(5)
    clock = [0] * len(LANES)
    for index in range(count):
        lane = draw.choices(range(len(LANES)), (6, 3, 1))[0]
        green, stream, least, most = LANES[lane]
        start = max(clock[lane], 5_000 * index) + draw.randrange(800, 1_500)
        clock[lane] = start + draw.randrange(least, most)
        name = 1 + index % 50
        shape = (1, 0, 32, 64, 1, 1, 256, 1, 1, 0, 0, 0, 0, index, 32_768, None)
        yield (start, clock[lane], 0, 1, green, stream, index, PROCESS, name, name, name, *shape)


def make(path: Path, count: int) -> None:
    """Write the export."""
    connection = sqlite3.connect(path)
    for statement in ("PRAGMA synchronous = OFF", KERNEL, RUNTIME, NVTX, "CREATE TABLE StringIds (id INTEGER, value TEXT)"):
        connection.execute(statement)
    connection.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
    connection.executemany(
        "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
        [("EXPORT_PRODUCT_VERSION", "2025.3.2.0"), ("EXPORT_SCHEMA_VERSION", "3.20.3")],
    )
    names = [*(f"kernel_{index}" for index in range(1, 51)), "cuLaunchKernelEx", "cuStreamSynchronize"]
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, start=1))
    connection.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 27)})", kernels(count))
    connection.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, 51, 0, NULL)",
        ((5_000 * index - 3_000, 5_000 * index - 1_000, THREAD, index) for index in range(count)),
    )
    step = 5_000 * PER_RANGE
    inner = [(start, start + step - 4_000, 59, f"step {start // step % 40}") for start in range(-3_500, 5_000 * count, step)]
    rows = [(-4_000, 5_000 * count, 59, "serve"), (-4_000, 5_000 * count, 59, "engine"), *inner]
    connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, ?, ?, NULL, 0)", [(*row, THREAD) for row in rows])
    connection.commit()
    connection.close()


def main() -> int:
    """Make, read, print; exit 1 where a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="write the export here and keep it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder) / "million.sqlite"
        make(path, given.kernels)
        command = [sys.executable, "-m", "greenbench", "timeline", str(path)]
        began = time.monotonic()
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seconds = time.monotonic() - began
        size = path.stat().st_size
    if done.returncode:
        print(done.stderr, end="")
        return 1
    gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 << 20)
    print(f"{given.kernels:,} kernels, {size / 1e6:,.0f} MB, {os.cpu_count()} cores")
    print(f"time   {seconds:6.1f} s    floor {MOST_SECONDS:.0f} s")
    print(f"memory {gib:6.2f} GiB  floor {MOST_GIB:.0f} GiB")
    return int(seconds > MOST_SECONDS or gib > MOST_GIB)


if __name__ == "__main__":
    sys.exit(main())
