"""From options to a request: everything that can be checked without a device is checked here, and nothing else is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from greenbench.catalog import library
from greenbench.choices import parse_integer, parse_seconds
from greenbench.cli.options import in_environment
from greenbench.cli.terminal import emit
from greenbench.errors import PlanError, ResultFileError, UsageError
from greenbench.plan import DEFAULT_PLAN, Plan, load_plan, plan_from_dict, without_yardsticks
from greenbench.records import BadValueError
from greenbench.runfiles import RunFolder, read_meta
from greenbench.schema import Backend, RunMeta

if TYPE_CHECKING:
    from greenbench.experiments.sweep import SweepRequest

# A profiler replays each launch dozens of times.
MOST_PROFILED = 10_000

# Options that may differ when a run is continued; the others are what the run is, and come from its run.json.
FREE_ON_RESUME = frozenset(
    {"resume", "device", "kernels_dir", "timeout", "strict", "ci", "no_plots", "json", "dry_run", "verbose", "quiet"}
    | {"export", "export_to", "trace"}
)
PLAN_KEYS = (
    "sms",
    "kernels",
    "set",
    "workqueue",
    "concurrency_limit",
    "connections",
    "granularity",
    "yardsticks",
    "timing",
    "flush",
    "rounds",
    "max_rounds",
    "seed",
)


def sweep_request(context: click.Context, given: Mapping[str, Any], arguments: Sequence[str]) -> SweepRequest:
    """Return what `run_sweep` is to do; raises UsageError or one of its kind."""
    from greenbench.experiments.sweep import SweepRequest

    if given["resume"] is not None:
        return resumed_request(context, given, arguments)
    kernels, chosen = library(given["kernels_dir"]), overrides(given)
    plan = load_plan(given["plan"] or DEFAULT_PLAN, chosen, kernels)
    if "yardsticks" in chosen and not given["quiet"] and (lacking := without_yardsticks(plan, kernels)):
        emit(f"note: --yardsticks {', '.join(plan.yardsticks)}: {', '.join(lacking)} cannot be measured so", err=True)
    return SweepRequest(
        plan=plan,
        device=given["device"],
        out=given["out"],
        resume=None,
        timeout_s=parse_seconds(given["timeout"], "--timeout"),
        strict=given["strict"],
        ci=given["ci"],
        profile=_profile(given["profile"]),
        trace=_trace(given),
        kernel_dirs=given["kernels_dir"],
        argv=tuple(arguments),
    )


def _profile(text: str | None) -> int | None:
    return None if text is None else parse_integer(text, "--profile", 1, MOST_PROFILED)


def _trace(given: Mapping[str, Any]) -> bool:
    if given["trace"] and given["profile"] is not None:
        raise UsageError("--trace and --profile contradict each other: CUPTI serves one tool at a time; give one of them")
    return bool(given["trace"])


@dataclass(frozen=True, slots=True)
class Earlier:
    """A run that is to be continued: what it was begun with, and what today's command line says of it."""

    meta: RunMeta
    context: click.Context
    began: click.Context

    def then(self, name: str) -> Any:
        """Return what the run is: an option of this command line, else of the one that began it, never a variable of today."""
        here = self.context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        return (self.context if here else self.began).params[name]

    def ways(self, name: str) -> Any:
        """Return how the run goes on: as above, but a variable of today stands for what no command line says."""
        said = self.began.get_parameter_source(name) is not ParameterSource.COMMANDLINE
        today = said and self.context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
        return self.context.params[name] if today else self.then(name)


def earlier_run(context: click.Context, run: Path) -> Earlier:
    """Read the run that --resume names; refuses options that would make it another one, and runs of another command."""
    for param in context.command.params:
        name = param.name or ""
        if name not in FREE_ON_RESUME and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            word = max(param.opts, key=len) if isinstance(param, click.Option) else f"{name} {context.params[name]}"
            raise UsageError(f"{word} cannot be changed by --resume {run}: a run goes on as it was planned; leave it out")
    meta = read_meta(RunFolder.open(run).meta_path)
    if meta.command != context.command.name:
        raise UsageError(
            f"{run} is a run of greenbench {meta.command}, not of greenbench {context.command.name}; "
            f"continue it with greenbench {meta.command} --resume {run}"
        )
    return Earlier(meta, context, recorded_context(context, meta))


def resumed_request(context: click.Context, given: Mapping[str, Any], arguments: Sequence[str]) -> SweepRequest:
    """Return a request for the rest of a run: its plan from run.json, its device and kernel folders from its command line."""
    from greenbench.experiments.sweep import SweepRequest

    earlier = earlier_run(context, given["resume"])
    return SweepRequest(
        plan=recorded_plan(earlier.meta),
        device=earlier.then("device"),
        out=None,
        resume=given["resume"],
        timeout_s=parse_seconds(earlier.ways("timeout"), "--timeout"),
        strict=earlier.ways("strict"),
        ci=earlier.ways("ci"),
        profile=_profile(earlier.began.params["profile"]),
        trace=earlier.ways("trace") and earlier.began.params["profile"] is None,
        kernel_dirs=earlier.then("kernels_dir"),
        argv=tuple(arguments),
    )


def recorded_context(context: click.Context, meta: RunMeta) -> click.Context:
    """Return the options that a run was begun with: its command line, read in the environment that it had."""
    words = list(meta.argv)
    if not words or words[0] != context.command.name:
        # Begun by a program, which named the device in its own way.
        words = [
            str(context.command.name),
            *(["--device", f"cuda:{meta.device.index}"] if meta.device.backend is Backend.CUDA else []),
        ]
    try:
        with in_environment(context, meta.environment):
            return context.command.make_context(words[0], words[1:], parent=context.parent)
    except click.UsageError as error:
        raise ResultFileError(f"run {meta.run_id}: its command line is not understood: {error.format_message()}") from error
    except click.exceptions.Exit as error:
        raise ResultFileError(f"run {meta.run_id}: its command line, {' '.join(words)!r}, began no run") from error


def recorded_plan(meta: RunMeta) -> Plan:
    """Return the plan that `Plan.as_dict` wrote to run.json."""
    try:
        return plan_from_dict(meta.plan)
    except (BadValueError, PlanError) as error:
        raise ResultFileError(f"run {meta.run_id}: the plan in its run.json is not one of this greenbench: {error}") from error


def overrides(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the options that stand for keys of a plan, as load_plan takes them."""
    chosen: dict[str, object] = {key: given[key] for key in PLAN_KEYS if given[key] is not None and given[key] != ()}
    if given["time_limit"] is not None:
        chosen["time_limit_s"] = parse_seconds(given["time_limit"], "--time-limit")
    if given["no_yardsticks"]:
        if given["yardsticks"] not in (None, "none"):
            raise UsageError(f"--no-yardsticks and --yardsticks {given['yardsticks']} contradict each other; give one of them")
        chosen["yardsticks"] = False
    return chosen
