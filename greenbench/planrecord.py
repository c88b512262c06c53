"""A plan as it stands in run.json, by the types of its values; what the values mean is for `plan` to check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from greenbench.records import from_json
from greenbench.schema import ParamValue, Scope, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """A kernel of the plan, its parameters and its own sizes."""

    name: str
    params: dict[str, tuple[ParamValue, ...]]
    sms: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """What `Plan.as_dict` writes."""

    name: str
    summary: str
    kernels: tuple[KernelRecord, ...]
    sms: str
    granularity: int | None
    workqueue: tuple[Scope, ...]
    concurrency_limit: tuple[int, ...]
    connections: tuple[int, ...]
    rounds: int
    max_rounds: int
    timing: Timing
    seed: int
    time_limit_s: float | None
    # A list of names, or true or false as runs before 0.1.0 have it.
    yardsticks: object = True


def read_plan_record(table: Mapping[str, object], at: str) -> PlanRecord:
    """Return the record that JSON holds; raises BadValueError naming the key below `at` that is not of its type."""
    return cast(PlanRecord, from_json(PlanRecord, dict(table), at))
