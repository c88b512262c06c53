"""From the options of `colocate` to a request: everything that can be checked without a device is checked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from greenbench.catalog import Kernel, library
from greenbench.choices import parse_seconds
from greenbench.cli.request import earlier_run
from greenbench.cli.targets import refuse_same
from greenbench.cli.terminal import emit
from greenbench.colocation.plan import DEFAULT_PLAN, CoPlan, coplan_from_dict, load_coplan
from greenbench.errors import PlanError, ResultFileError, UsageError
from greenbench.queueing.model import Mechanism
from greenbench.records import BadValueError
from greenbench.schema import RunMeta
from greenbench.tails import LEAST, Metric, column

if TYPE_CHECKING:
    from greenbench.experiments.colocate import CoRequest

PLAN_KEYS = (
    "latency",
    "background",
    "model",
    "layers",
    "decode_batch",
    "context",
    "prompt",
    "chunk",
    "mechanisms",
    "sms",
    "background_sms",
    "workqueue",
    "concurrency_limit",
    "connections",
    "mps_memory_limit",
    "arrivals",
    "background_arrivals",
    "step_rate",
    "rates",
    "slo",
    "steps",
    "seed",
)
SGLANG = "sglang"
# What may name files.
_READ = ("plan", "latency", "background", "model")


def colocate_request(context: click.Context, given: Mapping[str, Any], arguments: Sequence[str]) -> CoRequest:
    """Return what `run_colocate` is to do; raises UsageError or one of its kind."""
    from greenbench.experiments.colocate import CoRequest

    if given["resume"] is not None:
        return _resumed(context, given, arguments)
    plan = load_coplan(given["plan"] or DEFAULT_PLAN, overrides(given), library(given["kernels_dir"]))
    check_export(plan, given["export"], given["export_to"])
    _check_target(given)
    request = CoRequest(
        plan=plan,
        device=given["device"],
        out=given["out"],
        resume=None,
        timeout_s=parse_seconds(given["timeout"], "--timeout"),
        strict=given["strict"],
        ci=given["ci"],
        kernel_dirs=given["kernels_dir"],
        argv=tuple(arguments),
        export=given["export"] or "",
    )
    if not given["quiet"] and (note := empty_columns(plan)):
        emit(f"note: {note}", err=True)
    return request


def _resumed(context: click.Context, given: Mapping[str, Any], arguments: Sequence[str]) -> CoRequest:
    """Return a request for the rest of a run: its plan from run.json, its device and kernel folders from its command line."""
    from greenbench.experiments.colocate import CoRequest

    earlier = earlier_run(context, given["resume"])
    plan = recorded_coplan(earlier.meta, library(earlier.then("kernels_dir")))
    export = earlier.then("export") or ""
    check_export(plan, export, given["export_to"])
    return CoRequest(
        plan=plan,
        device=earlier.then("device"),
        out=None,
        resume=given["resume"],
        timeout_s=parse_seconds(earlier.ways("timeout"), "--timeout"),
        strict=earlier.ways("strict"),
        ci=earlier.ways("ci"),
        kernel_dirs=earlier.then("kernels_dir"),
        argv=tuple(arguments),
        export=export,
    )


def overrides(given: Mapping[str, Any]) -> dict[str, object]:
    """Return the options that stand for keys of a plan, as load_coplan takes them."""
    chosen: dict[str, object] = {key: given[key] for key in PLAN_KEYS if given[key] is not None}
    if given["interference"]:
        chosen["interference"] = True
    if given["time_limit"] is not None:
        chosen["time_limit_s"] = given["time_limit"]
    return chosen


def recorded_coplan(meta: RunMeta, kernels: Mapping[str, Kernel]) -> CoPlan:
    """Return the plan that `CoPlan.as_dict` wrote to run.json."""
    try:
        return coplan_from_dict(meta.plan, kernels)
    except (BadValueError, PlanError) as error:
        raise ResultFileError(f"run {meta.run_id}: the plan in its run.json is not one of this greenbench: {error}") from error


def check_export(plan: CoPlan, kind: str | None, target: Path | None) -> None:
    """Refuse before anything is measured what could not be written at the end."""
    if target is not None and not kind:
        raise UsageError(f"--export-to {target}: nothing is exported; add --export json or --export {SGLANG}")
    if kind == SGLANG and plan.slo is None:
        raise UsageError(f"--export {SGLANG}: what is written is the split that holds the objectives; add --slo")
    if kind == SGLANG and Mechanism.GREEN not in plan.mechanisms:
        raise UsageError(f"--export {SGLANG}: its PD multiplexing is the mechanism green; add it to --mechanisms")
    if target is not None and target.is_dir():
        raise UsageError(f"--export-to {target} is a folder; name a file in it")
    if target is not None and not target.parent.is_dir():
        raise UsageError(f"--export-to {target}: there is no folder {target.parent}; make it, or name another file")


def _check_target(given: Mapping[str, Any]) -> None:
    """Refuse an export that would replace a file that the run is made from."""
    if given["export_to"] is not None:
        words = [(key, word) for key in _READ for word in str(given[key] or "").split(",")]
        read = [(f"the file of {key}", Path(word)) for key, word in words if word.endswith(".toml") or "/" in word]
        refuse_same(read, [("--export-to", given["export_to"])])


def empty_columns(plan: CoPlan) -> str:
    """Say which columns of the latency role stay empty with the plan's steps, an empty text where none does."""
    metrics = dict.fromkeys(metric for workload in plan.latency for metric in workload.metrics)
    short = {q: least for q, least in LEAST.items() if plan.steps < least}
    if not short:
        return ""
    *first, last = [column(metric, q) for metric in metrics if metric is not Metric.TTFT for q in short]
    names = f"{', '.join(first)} and {last}" if first else last
    needs = " and ".join(f"a p{q} needs {least:,}" for q, least in short.items())
    return f"--steps {plan.steps}: no {names} of the latency role; {needs} steps"
