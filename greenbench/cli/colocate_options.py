"""The options of `colocate`, in the sections and the order in which its help lists them.

Values that a plan also holds are taken as text: the plan's own readers check them, so that both speak with one voice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from greenbench.arrivals import Process
from greenbench.cli.options import Words, device_option, json_option, kernels_dir_option, option
from greenbench.cli.sweep_options import SCOPES, TIMEOUT_S
from greenbench.queueing.model import Mechanism

ROLES, APART, LOAD = "The two roles", "How they are kept apart", "What arrives, and what is asked of it"
HOW, WHERE, RUN = "How it is measured", "Where the results go", "How the run behaves"
EXPORTS = ("json", "sglang")
SIZES = ("auto", "20", "20,28,36", "8:64:8")


def _workloads(derived: str) -> Callable[[click.Context], Sequence[str]]:
    def names(_: click.Context) -> Sequence[str]:
        from greenbench.workload import workload_names

        return [derived, *workload_names()]

    return names


def _models(_: click.Context) -> Sequence[str]:
    from greenbench.models import model_names

    return model_names()


_OPTIONS = (
    option(
        "--latency",
        ROLES,
        metavar="NAMES",
        type=Words(_workloads("decode")),
        help="What must be quick: decode (of --model), a workload by name or file; several give a point each.  [default: decode]",
    ),
    option(
        "--background",
        ROLES,
        metavar="NAME",
        type=Words(_workloads("prefill")),
        help="What runs beside it: prefill (of --model), or a workload by name or file.  [default: prefill]",
    ),
    option(
        "--model",
        ROLES,
        metavar="NAME",
        type=Words(_models),
        help="Dimensions of the model, by name or file.  [default: llama3-8b]",
    ),
    option(
        "--layers",
        ROLES,
        metavar="N",
        type=Words(("4", "full")),
        help="Layers of a step: a number, or full, which alone has inter-token latencies (itl).  [default: 4]",
    ),
    option(
        "--decode-batch", ROLES, metavar="N", help="Sequences of a decode step; several (1,8,32) give a point each.  [default: 8]"
    ),
    option("--context", ROLES, metavar="N", help="Tokens of each sequence in the KV cache.  [default: 4096]"),
    option("--prompt", ROLES, metavar="N", help="Tokens of a prefill request.  [default: 2048]"),
    option(
        "--chunk", ROLES, metavar="N", help="Tokens of a piece under chunked; several give a point each.  [default: 512,2048]"
    ),
    kernels_dir_option(ROLES),
    option(
        "--mechanisms",
        APART,
        metavar="NAMES",
        type=Words(("all", *Mechanism)),
        help=f"all, or names of {', '.join(Mechanism)}; alone is always measured.  [default: all]",
    ),
    option(
        "--sms",
        APART,
        metavar="SIZES",
        type=Words(SIZES),
        help="SMs of the latency role: counts, ranges (8:64:8), or auto: SGLang's divisions and 8, 16, 32.  [default: auto]",
    ),
    option(
        "--background-sms", APART, metavar="N", help="SMs of the background.  [default: rest, all that the latency role leaves]"
    ),
    option(
        "--workqueue",
        APART,
        metavar="SCOPES",
        type=Words(SCOPES),
        help="Workqueue scopes of green contexts: driver_default, device_ctx, balanced; all but the first need driver 13.1.",
    ),
    option(
        "--concurrency-limit", APART, metavar="N", help="Limit of concurrent work of those scopes; several give a point each."
    ),
    option("--connections", APART, metavar="N", help="CUDA_DEVICE_MAX_CONNECTIONS, 1 to 32; several (1,8,32) give a point each."),
    option(
        "--mps-memory-limit",
        APART,
        metavar="SIZE",
        help="Device memory of each process under mps_limited: 40G, 512M.  [default: none]",
    ),
    option(
        "--arrivals",
        LOAD,
        metavar="KIND",
        type=Words(tuple(Process)),
        help="How latency steps follow each other: poisson or fixed.  [default: fixed]",
    ),
    option(
        "--background-arrivals",
        LOAD,
        metavar="KIND",
        type=Words(tuple(Process)),
        help="How background requests at --rates follow each other: poisson or fixed.  [default: poisson]",
    ),
    option("--step-rate", LOAD, metavar="R", help="Latency steps a second.  [default: auto, 0.3 of what it does alone]"),
    option(
        "--rates",
        LOAD,
        metavar="R,R",
        type=Words(("auto",)),
        help="Background requests a second, or auto: the highest that holds --slo.  [default: none, it is always busy]",
    ),
    option("--slo", LOAD, metavar="LIMITS", help="Objectives, all to hold together, such as step_p99=1ms,ttft_p99=500ms."),
    option("--interference", LOAD, is_flag=True, help="Run the latency role beside compute, L2, HBM and copy loads too."),
    option(
        "--steps",
        LOAD,
        metavar="N",
        help="Latency steps that count, after a warm-up; p95 needs 1000, p99 needs 3000.  [default: 1000]",
    ),
    option("--seed", LOAD, metavar="N", help="Arrivals, and the order in which points are visited.  [default: 1]"),
    device_option(HOW, "cuda:0, or a modelled one: model:h200, model:h100@13.1, model:FILE.toml."),
    option(
        "--timeout",
        HOW,
        metavar="S",
        default=TIMEOUT_S,
        show_default=True,
        help="Seconds beyond its own length after which a point is given up and its process replaced.",
    ),
    option("--time-limit", HOW, metavar="S", help="Seconds after which no new point begins; those left fail."),
    option(
        "--out",
        WHERE,
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Folder of the run; new or empty.  [default: results/runs/TIME-colocate-ID]",
    ),
    option("--resume", WHERE, metavar="RUN", type=click.Path(path_type=Path), help="Go on with the run in this folder."),
    option(
        "--export",
        WHERE,
        metavar="KIND",
        type=click.Choice(EXPORTS),
        help="Write the outcome for a program as well: json (rows and advice), sglang (PD-multiplexing YAML).",
    ),
    option(
        "--export-to",
        WHERE,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Where to.  [default: a file in the run's folder]",
    ),
    option("--no-plots", WHERE, is_flag=True, help="Draw no figures; `greenbench plot RUN` draws them later."),
    json_option(WHERE, "Write one JSON object with paths, rows and summary to stdout instead of paths."),
    option("--dry-run", RUN, is_flag=True, help="Print the points, what stands in their way and the time they would take."),
    option("--strict", RUN, is_flag=True, help="End with 5 if a point is unsupported."),
    option(
        "--ci", RUN, is_flag=True, help="Refuse (exit 4) to measure on a machine that others use or that throttles; plain output."
    ),
    option("-v", "--verbose", RUN, is_flag=True, help="Show throughput, power and lateness of each point too."),
    option("-q", "--quiet", RUN, is_flag=True, help="No table: paths, counts, reasons and errors only."),
)


def colocate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `colocate` to a command."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command
