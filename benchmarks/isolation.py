"""The acceptance tables of co-location: tails and overlap of one run, what repeats in a second one, and the cost of sharing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from library import Line, rows_of

from greenbench.cojournal import CoVisit, read_cojournal
from greenbench.colocation.outcomes import decisive, kept
from greenbench.queueing.model import Kind
from greenbench.stats import percentile
from greenbench.tails import saturated

Row = Mapping[str, str]
Run = Callable[[Sequence[str]], float]

WATCHED = Path(__file__).parents[1] / "tests" / "gpu" / "corun_watched.py"
MOST_WALL_S = 300
# Points of the table; each alone on what it had, and beside a prefill.
SIZE = "20"
TAILS = ("streams", "priority", "green", "timeslice", "mps", "chunked", "serial")
# A probe with 101 us kernels on an H200: aggregate throughput of one process, and the gap at every turn.
SHARE_PCT, TURN_US, DIFFERENCE = 48.0, 137.0, 0.2
REPEATED = ("--sms", "20,32", "--mechanisms", "green,green_background,serial,chunked", "--slo", "step_p95=4ms,ttft_p50=50ms")


def tail_us(visit: CoVisit, q: int) -> float | None:
    """Return a percentile of the latency role's steps, of as many as there are: a report, not a column of rows.csv."""
    role = visit.role(Kind.LATENCY)
    return percentile(kept(visit, role).latencies_us, q, 100) if role else None


def colocate(run: Run, out: Path) -> list[Line]:
    """The default run: its wall time, a quiet GPU's tail, and the tails of each mechanism in 20 SMs."""
    folder = out / "colocate"
    wall = run(["colocate", "--out", str(folder)])
    lines = [Line("colocate", "default run", f"<= {MOST_WALL_S} s", f"{wall:.0f} s", wall <= MOST_WALL_S)]
    return lines + colocate_table(folder)


def colocate_table(folder: Path) -> list[Line]:
    """Return what a run folder shows, without a GPU."""
    lines: list[Line] = []
    visits = decisive(read_cojournal(folder / "blocks.csv"))
    alone = {visit.split: visit for visit in visits if visit.mechanism == "alone" and visit.role(Kind.LATENCY)}
    for split, visit in sorted(alone.items()):
        low, high = tail_us(visit, 50), tail_us(visit, 99)
        if low and high:
            lines.append(
                Line("colocate", f"alone @{split}, p99 over p50", "<= 1.2", f"{high / low:.3f} ({low:.0f} us)", high / low <= 1.2)
            )
    for visit in visits:
        if visit.load or visit.mechanism not in TAILS or (visit.sizes and visit.split != SIZE):
            continue
        high, role = tail_us(visit, 99), visit.role(Kind.LATENCY)
        grew = role is not None and (role.cut or saturated(kept(visit, role)))
        figure = f"{_us(high)}{', and the queue grew' if grew else ''}"
        lines.append(Line("colocate", f"p99 of {visit.label.split('@')[-1]}", "reported", figure, True))
        base = tail_us(alone[visit.split], 99) if visit.split in alone else None
        if visit.mechanism == "green" and high and base:
            lines.append(Line("colocate", f"green @{SIZE} over its own alone, p99", "reported", f"{high / base:.2f}", True))
    failed = sum(row["status"] == "failed" for row in rows_of(folder))
    return [*lines, Line("colocate", "rows that failed", "0", str(failed), not failed)]


def repeat(run: Run, out: Path) -> list[Line]:
    """Two runs of one seed: medians within 2 %, p95 within 5 %, and the same advice."""
    found = []
    advice = []
    for name in ("first", "second"):
        folder = out / f"repeat-{name}"
        run(["colocate", *REPEATED, "--out", str(folder), "--export", "json", "--no-plots"])
        found.append({(row["label"], row["role"]): row for row in rows_of(folder)})
        text = json.loads((folder / "colocate.json").read_text())
        advice.append(json.dumps(text.get("advice"), sort_keys=True))
    lines = []
    for q, most in ((50, 2.0), (95, 5.0)):
        worst, where = 0.0, ""
        for key in found[0].keys() & found[1].keys():
            first, second = (rows[key][f"step_us_p{q}"] for rows in found)
            if first and second and (off := 100 * abs(float(second) / float(first) - 1)) >= worst:
                worst, where = off, key[0].split("@")[-1]
        lines.append(Line("repeat", f"p{q} of two runs, worst", f"<= {most} %", f"{worst:.2f} % ({where})", worst <= most))
    return [*lines, Line("repeat", "advice of two runs", "equal", advice[0][:80], advice[0] == advice[1])]


def overlap(run: Run, out: Path) -> list[Line]:
    """The overlap by device stamps beside that of CUPTI's kernels, on the same run."""
    lines = []
    for mechanism in ("green", "streams"):
        command = [sys.executable, str(WATCHED), mechanism, "32", "100"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        if done.returncode:
            lines.append(Line("overlap", mechanism, "within 2 %", done.stderr.strip().splitlines()[-1][:80], None))
            continue
        seen = json.loads(done.stdout.splitlines()[-1])
        off = 100 * abs(seen["stamps"] / seen["steps_cupti"] - 1)
        figure = f"{seen['stamps']:.4f} by stamps, {seen['steps_cupti']:.4f} by CUPTI's steps ({off:.2f} %), "
        figure += f"{seen['kernels_cupti']:.4f} by its kernels"
        lines.append(Line("overlap", mechanism, "within 2 %", figure, off <= 2))
    return lines


def switch(run: Run, out: Path) -> list[Line]:
    """Time-slicing of 2 and 8 processes beside the quick probe, and what the other mechanisms reach together."""
    folder = out / "switch"
    run(["switch", "--processes", "1,2,4,8", "--seconds", "0.6", "--out", str(folder)])
    return switch_table(folder)


def switch_table(folder: Path) -> list[Line]:
    """Return what a run folder shows, without a GPU."""
    lines = []
    for row in rows_of(folder):
        if row["status"] != "ok" or row["processes"] not in ("2", "8") or "working_set=0" not in row["params"]:
            continue
        name = f"{row['mechanism']}, {row['processes']} processes"
        share = float(row["throughput_pct"])
        sliced = row["mechanism"] == "timeslice"
        near = abs(share / SHARE_PCT - 1) <= DIFFERENCE
        floor = f"{SHARE_PCT:.0f} % +- 20 %" if sliced else "reported"
        lines.append(Line("switch", f"{name}: of one alone", floor, f"{share:.1f} %", near or not sliced))
        if sliced and row["switch_us"]:
            turn = float(row["switch_us"])
            same = abs(turn / TURN_US - 1) <= DIFFERENCE
            lines.append(Line("switch", f"{name}: a turn", f"{TURN_US:.0f} us +- 20 %", f"{turn:.0f} us", same))
    return lines


def _us(value: float | None) -> str:
    return "no figure" if value is None else f"{value:,.0f} us"
