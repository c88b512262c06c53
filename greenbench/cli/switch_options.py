"""The options of `switch`, in the sections and the order in which its help lists them.

Values that a plan also holds are taken as text: the plan's own readers check them, so that both speak with one voice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from greenbench.cli.options import Words, device_option, json_option, kernels_dir_option, option
from greenbench.cli.sweep_options import TIMEOUT_S

WHO, WHAT = "Who shares the device, and how", "What each process does"
HOW, WHERE, RUN = "How it is measured", "Where the results go", "How the run behaves"
# As `switchplan.Way` has them; that module is not imported for a help text.
NAMES = ("streams", "green", "timeslice", "mps", "mps_limited", "repartition")


def _workloads(_: click.Context) -> Sequence[str]:
    from greenbench.workload import workload_names

    return workload_names()


_OPTIONS = (
    option(
        "--processes", WHO, metavar="N", help="Processes that share the device; several give a point each.  [default: 1,2,4,8]"
    ),
    option(
        "--mechanisms",
        WHO,
        metavar="NAMES",
        type=Words(("all", *NAMES)),
        help=f"all, or names of {', '.join(NAMES)}; one process alone is always measured.  [default: all]",
    ),
    option(
        "--duration-us",
        WHAT,
        metavar="US",
        help="Length of an operation that has the device to itself; several give a point each.  [default: 100]",
    ),
    option(
        "--working-set",
        WHAT,
        metavar="BYTES",
        help="What an operation keeps in the L2: 0, or bytes (K, M, G of 1024); several give a point each.  [default: 0,16M]",
    ),
    option(
        "--ahead",
        WHAT,
        metavar="N",
        help="Operations that a process keeps enqueued: 1 waits for the end of each, 3 never lets the device idle.  [default: 1]",
    ),
    option(
        "--workload",
        WHAT,
        metavar="NAME",
        type=Words(_workloads),
        help="A workload by name or file in place of the operation above.",
    ),
    kernels_dir_option(WHAT),
    device_option(HOW, "cuda:0, or a modelled one: model:h200, model:h100@13.1, model:FILE.toml."),
    option("--seconds", HOW, metavar="S", help="How long each point runs; an energy needs 2.  [default: 2]"),
    option("--seed", HOW, metavar="N", help="Order in which points are visited.  [default: 1]"),
    option(
        "--timeout",
        HOW,
        metavar="S",
        default=TIMEOUT_S,
        show_default=True,
        help="Seconds beyond its own length after which a point is given up and its processes replaced.",
    ),
    option(
        "--out",
        WHERE,
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Folder of the run; new or empty.  [default: results/runs/TIME-switch-ID]",
    ),
    option("--resume", WHERE, metavar="RUN", type=click.Path(path_type=Path), help="Go on with the run in this folder."),
    option("--no-plots", WHERE, is_flag=True, help="Draw no figures; `greenbench plot RUN` draws them later."),
    json_option(WHERE, "Write one JSON object with paths, rows and summary to stdout instead of paths."),
    option("--dry-run", RUN, is_flag=True, help="Print the points, what stands in their way and the time they would take."),
    option("--strict", RUN, is_flag=True, help="End with 5 if a point is unsupported."),
    option(
        "--ci", RUN, is_flag=True, help="Refuse (exit 4) to measure on a machine that others use or that throttles; plain output."
    ),
    option("-v", "--verbose", RUN, is_flag=True, help="Show clock, power and the costs of contexts of each point too."),
    option("-q", "--quiet", RUN, is_flag=True, help="No table: paths, counts, reasons and errors only."),
)


def switch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `switch` to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command
