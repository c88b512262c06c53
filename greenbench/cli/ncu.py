"""`greenbench ncu`: one point of a sweep under Nsight Compute, and its figures related to the partition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.cli.nsys_options import BEHIND, UnderTool, refuse_modelled
from greenbench.cli.options import json_option, option
from greenbench.cli.session import Session
from greenbench.cli.signals import ending_like_ctrl_c
from greenbench.cli.terminal import emit
from greenbench.errors import UsageError

if TYPE_CHECKING:
    from greenbench.experiments.profiled import NcuOutcome, NcuRequest
    from greenbench.ncu.figures import NcuRow

POINT, TOOL, OUTPUT = "The point", "Nsight Compute", "Output"
MOST_LAUNCHES = 100
_POINT = re.compile(r"([A-Za-z_]\w*)@([0-9]+|full|primary)")
# Options of ncu that decide where its report goes; their short forms too.
_OURS = frozenset({"-o", "--export", "-i", "--import", "--csv", "--page", "--log-file", "--mode", "--profile-from-start"})
# Options of the sweep that make no sense around a profiler.
_NOT_HERE = ("resume", "profile", "trace", "json", "dry_run")

EPILOG = """\b
Examples:
  greenbench ncu --point triad@32 -- sweep
  greenbench ncu --point gemm_bf16@full -- sweep --set gemm_bf16.m=8192
  greenbench ncu --point triad@32 --against results/mine --set full -- sweep

\b
Exit codes:
  0    done
  2    an option or the sweep is wrong, or it comes to more than one point
  4    no ncu, no permission to read counters, no GPU
  5    nothing was captured, the point failed, or it did not run in its partition"""


class UnderNcu(UnderTool):
    """A line that ends at `--`, behind which stands a sweep."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show what stands where."""
        return ["--point KERNEL@SMS", "[OPTIONS]", "[OPTIONS OF ncu]", "--", "sweep ..."]


@click.command("ncu", cls=UnderNcu, epilog=EPILOG)
@option("--point", POINT, metavar="KERNEL@SMS", help="The kernel and its partition: triad@32, triad@full, triad@primary.")
@option("--launches", POINT, metavar="N", default="3", show_default=True, help="Launches of the point that are profiled.")
@option(
    "--against",
    POINT,
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Compare the duration with this run's row of the point.  [default: the point is measured first]",
)
@option("--no-compare", POINT, is_flag=True, help="Compare with nothing, and measure nothing first.")
@option(
    "--ncu", TOOL, metavar="PATH", default="", help="Nsight Compute's ncu.  [default: PATH, the CUDA toolkit, its own folders]"
)
@json_option(OUTPUT, "Write one JSON object with paths and figures to stdout instead of paths.")
@click.pass_context
def ncu_command(context: click.Context, /, **given: Any) -> int:
    """Run one point of a sweep under Nsight Compute, and relate its figures to the SMs of the partition.

    Options that are not greenbench's go to ncu as they are.  What stands behind -- is a sweep; kernel and size are the point's.
    """
    from greenbench.experiments.profiled import run_ncu

    request = _request(context, given)
    with ending_like_ctrl_c():
        outcome = run_ncu(request, lambda text: emit(text, err=True))
    context.ensure_object(Session).folder = outcome.folder
    for line in lines(outcome):
        emit(line, err=True)
    if given["json"]:
        emit(_as_json(outcome))
    else:
        for path in outcome.paths:
            emit(path)
    return outcome.exit_code


def _request(context: click.Context, given: dict[str, Any]) -> NcuRequest:
    """Check everything that needs no device and no ncu."""
    from greenbench.choices import parse_integer
    from greenbench.experiments.profiled import NcuRequest

    kernel, sms = _point(given["point"])
    if given["against"] is not None and given["no_compare"]:
        raise UsageError("--against and --no-compare contradict each other; give one of them")
    taken = [word for word in context.args if word.partition("=")[0] in _OURS]
    if taken:
        raise UsageError(f"{taken[0]}: greenbench decides where ncu's report goes and what is in it; leave it out")
    words, sweep = _sweep(context)
    return NcuRequest(
        kernel=kernel,
        sms=sms,
        sweep=words,
        options=tuple(context.args),
        launches=parse_integer(given["launches"], "--launches", 1, MOST_LAUNCHES),
        ncu=given["ncu"],
        against=given["against"],
        compare=not given["no_compare"],
        out=sweep.params["out"],
        timeout_given=sweep.get_parameter_source("timeout") is not click.core.ParameterSource.DEFAULT,
    )


def _point(text: str | None) -> tuple[str, str]:
    match = _POINT.fullmatch(text or "")
    if match is None:
        said = "--point is missing" if text is None else f"--point {text!r} is no point"
        raise UsageError(f"{said}; write KERNEL@SMS, such as triad@32, triad@full or triad@primary")
    return match[1], match[2]


def _sweep(context: click.Context) -> tuple[tuple[str, ...], click.Context]:
    """Return the words of the sweep and what its options mean; refuses what cannot be profiled."""
    from greenbench.cli.sweep import sweep_command

    words = tuple(context.meta[BEHIND])
    if not words or words[0] != "sweep":
        said = f"{words[0]!r} is no sweep" if words else "the sweep is missing"
        raise UsageError(f"{said}; write greenbench ncu --point KERNEL@SMS -- sweep [options]")
    sweep = sweep_command.make_context("sweep", list(words[1:]), parent=context.parent)
    for name in _NOT_HERE:
        if sweep.params[name]:
            raise UsageError(f"--{name.replace('_', '-')} has no place in a sweep under ncu; leave it out")
    refuse_modelled(sweep.params["device"], "ncu")
    return words, sweep


def lines(outcome: NcuOutcome) -> Iterator[str]:
    """Yield the figures of all launches (medians), and say of each what it relates to."""
    from greenbench.timeline.finding import counted

    rows = outcome.rows
    first = rows[0]
    yield f"{first.label}: {counted(len(rows), 'launch', 'launches')} on {outcome.device}, ncu {outcome.tool.version}"
    tpcs = f" in {first.ncu_tpcs} TPCs ({_short(first.tpc_ids)})" if first.ncu_tpcs is not None else ""
    green = f", green context {first.green_context_id}" if first.uses_green_context else ""
    yield f"  partition  {first.sms_granted} SMs granted; ncu: {_whole(first.ncu_sms)}{tpcs}{green}: {first.placement}"
    yield f"  duration   {_duration(rows)}"
    own, all_ = f"of the partition's {first.sms_granted} SMs", f"of all {first.device_sms} SMs"
    yield f"  SM         {_percent(rows, 'sm_pct')} {own} (ncu: {_percent(rows, 'sm_device_pct')} {all_})"
    if first.tensor_metric:
        device = f"ncu: {_percent(rows, 'tensor_device_pct')} {all_}" if first.tensor_device_pct is not None else "of active SMs"
        yield f"  tensor     {_percent(rows, 'tensor_pct')} {own} ({device})"
    hits = _percent(rows, "l2_hit_pct")
    yield f"  L2         {_percent(rows, 'l2_device_pct')} of the device, which all partitions share; hits {hits}"
    rate = _median(rows, "dram_gb_per_s")
    moved = "" if rate is None else f"; {rate:.0f} GB/s"
    yield f"  DRAM       {_percent(rows, 'dram_device_pct')} of the device, which all partitions share{moved}"
    yield from (f"note: {text}" for text in outcome.notes)


def _duration(rows: Sequence[NcuRow]) -> str:
    time, clock = _median(rows, "duration_us"), _median(rows, "sm_clock_mhz")
    text = "not collected" if time is None else f"{time:.1f} us"
    text += f" at {clock:.0f} MHz" if clock is not None else ""
    first, difference = rows[0], _median(rows, "difference_pct")
    if first.sweep_us is None or difference is None:
        return text
    at = f" at {first.sweep_clock_mhz:.0f} MHz" if first.sweep_clock_mhz else ""
    return f"{text}; the sweep: {first.sweep_us:.1f} us{at}; difference {difference:+.1f} %"


def _median(rows: Sequence[NcuRow], name: str) -> float | None:
    from greenbench.figures import median_of

    return median_of(getattr(row, name) for row in rows)


def _percent(rows: Sequence[NcuRow], name: str) -> str:
    value = _median(rows, name)
    return "–" if value is None else f"{value:.1f} %"


def _whole(value: int | None) -> str:
    return "not said" if value is None else f"{value} SMs"


def _short(ids: str) -> str:
    return ids if len(ids) <= 60 else f"{ids[:60].rpartition(',')[0]}, …"


def _as_json(outcome: NcuOutcome) -> str:
    from greenbench.records import to_json

    return dumps(
        {
            "run": str(outcome.folder),
            "paths": [str(path) for path in outcome.paths],
            "ncu": {"path": str(outcome.tool.path), "version": outcome.tool.version},
            "device": outcome.device,
            "exit_code": int(outcome.exit_code),
            "notes": list(outcome.notes),
            "launches": to_json(outcome.rows),
        },
        indent=1,
        ensure_ascii=False,
    )
