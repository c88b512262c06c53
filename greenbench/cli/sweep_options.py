"""The options of `sweep`, in the sections and the order in which its help lists them.

Values that a plan also holds are taken as text: the plan's own readers check them, so that both speak with one voice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from greenbench.cli.options import Words, device_option, json_option, kernel_names, kernels_dir_option, option
from greenbench.schema import Scope
from greenbench.yardsticks import WAYS

WHAT, HOW, WHERE, RUN = "What is measured", "How it is measured", "Where the results go", "How the run behaves"
SIZES = ("auto", "all", "full", "primary", "8,16,24,32", "8:132:8,full")
SCOPES = ("balanced", *Scope)
TIMINGS = ("auto", "steady", "cold", "hot", "graph")
FLUSHES = ("clean", "dirty")
TIMEOUT_S = "60"

_OPTIONS = (
    option(
        "--sms",
        WHAT,
        metavar="SIZES",
        type=Words(SIZES),
        help=(
            "Sizes of the partitions, in SMs: counts (8,16), ranges with both ends (8:132:8), "
            "all, auto (about ten), full, primary (no green context).  [default: the plan's]"
        ),
    ),
    option("--kernels", WHAT, metavar="NAMES", type=Words(kernel_names), help="Kernels to run, or all.  [default: the plan's]"),
    kernels_dir_option(WHAT),
    option(
        "--set",
        WHAT,
        metavar="NAME=VALUE",
        multiple=True,
        help=(
            "Set a parameter of the kernels that have it; several values (n=1024,2048) give a point each, "
            "and triad.n=1024 means one kernel.  May be given more than once."
        ),
    ),
    option(
        "--workqueue",
        WHAT,
        metavar="SCOPES",
        type=Words(SCOPES),
        help=(
            "Workqueue scopes: driver_default, device_ctx, green_ctx_balanced (or balanced); all but the first need driver 13.1."
        ),
    ),
    option("--concurrency-limit", WHAT, metavar="N", help="Limit of concurrent work of those scopes; several give a point each."),
    option("--connections", WHAT, metavar="N", help="CUDA_DEVICE_MAX_CONNECTIONS, 1 to 32; several values give a point each."),
    option("--granularity", WHAT, metavar="2", help="Build partitions from units of 2 SMs, without the device's co-scheduling."),
    option(
        "--yardsticks",
        WHAT,
        metavar="NAMES",
        type=Words(("all", "none", *WAYS)),
        help=f"Vendor kernels to measure beside ours: all, none, or names of {', '.join(WAYS)}.  [default: the plan's]",
    ),
    option("--no-yardsticks", WHAT, is_flag=True, help="Leave out the vendor kernels that are measured beside ours."),
    device_option(HOW, "cuda:0, or a modelled one: model:h200, model:h100@13.1, model:FILE.toml."),
    option(
        "--timing",
        HOW,
        metavar="WAY",
        type=Words(TIMINGS),
        help=("auto, steady (throughput), cold (first touch), hot (same buffers), graph (short kernels).  [default: the plan's]"),
    ),
    option(
        "--flush",
        HOW,
        metavar="KIND",
        type=Words(FLUSHES),
        help=("What a cold L2 holds before a launch: clean lines, or dirty ones that the kernel must evict.  [default: clean]"),
    ),
    option("--rounds", HOW, metavar="N", help="Passes over all points; alone, exactly so many.  [default: the plan's, 6]"),
    option(
        "--max-rounds", HOW, metavar="N", help="Go on so far for points whose interval is still wide.  [default: the plan's, 15]"
    ),
    option("--seed", HOW, metavar="N", help="Order in which points are visited.  [default: the plan's]"),
    option("--profile", HOW, metavar="N", help=("For a profiler: launch each point N times without a gate; yields no timings.")),
    option(
        "--trace",
        HOW,
        is_flag=True,
        help="After measuring, launch each point again under CUPTI and keep what ran where in trace.sqlite, for `timeline RUN`.",
    ),
    option(
        "--out",
        WHERE,
        metavar="DIR",
        type=click.Path(path_type=Path),
        help=("Folder of the run; new or empty.  [default: results/runs/TIME-sweep-ID]"),
    ),
    option("--resume", WHERE, metavar="RUN", type=click.Path(path_type=Path), help="Go on with the run in this folder."),
    option("--no-plots", WHERE, is_flag=True, help="Draw no figures; `greenbench plot RUN` draws them later."),
    json_option(WHERE, "Write one JSON object with paths, rows and summary to stdout instead of paths."),
    option("--dry-run", RUN, is_flag=True, help="Print the points, their grants and the time they would take; measure nothing."),
    option(
        "--timeout",
        RUN,
        metavar="S",
        default=TIMEOUT_S,
        show_default=True,
        help=("Seconds after which a block is given up and its process replaced."),
    ),
    option("--time-limit", RUN, metavar="S", help="Seconds after which no new round begins."),
    option("--strict", RUN, is_flag=True, help="End with 5 if a point is unsupported."),
    option(
        "--ci", RUN, is_flag=True, help="Refuse (exit 4) to measure on a machine that others use or that throttles; plain output."
    ),
    option("-v", "--verbose", RUN, is_flag=True, help="Show time, noise and clock of each point too."),
    option("-q", "--quiet", RUN, is_flag=True, help="No table: paths, counts, reasons and errors only."),
)


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `sweep` to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command
