"""What `greenbench switch` is asked for: how many processes share the device, by which mechanism, doing what, for how long."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import cast

from greenbench.catalog import Kernel
from greenbench.choices import parse_integer, parse_integers, parse_param, parse_seconds, read_text, split_items
from greenbench.colocation.figures import co_label
from greenbench.colocation.roles import refuse_file, refuse_name
from greenbench.colocation.room import LONGEST_VISIT_S
from greenbench.errors import PlanError, ResultFileError
from greenbench.expr import did_you_mean
from greenbench.plan import plan_path, read_plan_file
from greenbench.queueing.model import Mechanism
from greenbench.records import BadValueError, from_json, to_json
from greenbench.schema import ParamValue, RunMeta, Scope
from greenbench.workload import Workload, load_workload

COMMAND = DEFAULT_PLAN = "switch"
KERNEL = "tenant"
# Clients of one MPS server, from Volta to Hopper.
MAX_PROCESSES = 48
# Steps that the device has room to stamp in one run.
MAX_OPERATIONS = 60_000
SHORTEST_US, LONGEST_US = 5.0, 200_000.0
# Lines are read by CTAs in whole pieces, and a smaller set says nothing about an L2.
SET_STEP, SMALLEST_SET, LARGEST_SET = 8192, 1 << 20, 1 << 34
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# What a stream holds of them with ease.
MAX_AHEAD = 32
ALL = "all"

_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)")


_BYTES = re.compile(r"\bworking_set=([0-9]+)")


def params_text(params: str) -> str:
    """Return column params as it is shown: `working_set=16777216` as `working_set=16 MiB`."""
    return _BYTES.sub(lambda match: f"working_set={binary(int(match[1]))}", params)


def binary(size: int) -> str:
    """Return bytes in the largest unit that they are whole of: 16 MiB, 1032 KiB, 0."""
    units = [(suffix, unit) for suffix, unit in SUFFIXES.items() if suffix and size and size % unit == 0]
    if not units:
        return f"{size} B" if size else "0"
    suffix, unit = units[-1]
    return f"{size // unit} {suffix}iB"


class Way(StrEnum):
    """How tenants share the device; `repartition` is `green` whose sizes change on the way."""

    ALONE = "alone"
    STREAMS = "streams"
    GREEN = "green"
    TIMESLICE = "timeslice"
    MPS = "mps"
    MPS_LIMITED = "mps_limited"
    REPARTITION = "repartition"

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that a device is asked for."""
        return Mechanism.GREEN if self is Way.REPARTITION else Mechanism(self.value)

    @property
    def apart(self) -> bool:
        """Whether every tenant is a process of its own."""
        return self in (Way.TIMESLICE, Way.MPS, Way.MPS_LIMITED)

    @property
    def partitioned(self) -> bool:
        """Whether every tenant has a partition of its own."""
        return self in (Way.GREEN, Way.REPARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """Everything that can be checked without a device has been; `workload` replaces the kernel `tenant`, None is that kernel.

    `durations_us` are those of an operation without a working set that has the device to itself; `working_sets` are in bytes, 0
    is none. `ahead` is how many operations a process keeps enqueued: with 1 it waits for the end of each.
    """

    name: str
    summary: str = ""
    processes: tuple[int, ...] = (1, 2, 4, 8)
    mechanisms: tuple[Way, ...] = tuple(Way)
    durations_us: tuple[float, ...] = (100.0,)
    working_sets: tuple[int, ...] = (0,)
    ahead: tuple[int, ...] = (1,)
    seconds: float = 2.0
    seed: int = 1
    workload: Workload | None = None

    @property
    def operation(self) -> str:
        """Name of what a tenant does again and again: column kernel."""
        return KERNEL if self.workload is None else self.workload.name

    def label(self, point: SwitchPoint) -> str:
        """Return the name of a point, which no other point of the plan has: `tenant[duration_us=100,...]@8x/.../mps/-`."""
        scope = Scope.DRIVER_DEFAULT.value
        return co_label(self.operation, point.params, f"{point.processes}x", scope, point.mechanism.value, None)

    def as_dict(self) -> dict[str, object]:
        """Return the plan in JSON's own types (run.json)."""
        return cast("dict[str, object]", to_json(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPoint:
    """One cell: so many tenants, by this mechanism, each with this operation."""

    mechanism: Way
    processes: int
    duration_us: float
    working_set: int
    ahead: int = 1

    @property
    def params(self) -> tuple[tuple[str, ParamValue], ...]:
        """What a process does: columns params, and the brackets of a label; of a workload of the user's only `ahead`."""
        if not self.duration_us:
            return (("ahead", self.ahead),)
        duration = int(self.duration_us) if self.duration_us.is_integer() else self.duration_us
        return (("ahead", self.ahead), ("duration_us", duration), ("working_set", self.working_set))

    @property
    def alone(self) -> SwitchPoint:
        """The point that this one is compared with: one process that has the device to itself."""
        return replace(self, mechanism=Way.ALONE, processes=1)


def switch_from_dict(table: Mapping[str, object]) -> SwitchPlan:
    """Return the plan that `SwitchPlan.as_dict` wrote; raises BadValueError or PlanError where it did not."""
    if lost := [each.name for each in fields(SwitchPlan) if each.name not in table]:
        raise BadValueError(f"plan: there is no {lost[0]} in it")
    plan = cast(SwitchPlan, from_json(SwitchPlan, dict(table), "plan"))
    if plan.workload is not None:
        refuse_name(plan.workload.name, "plan.workload")
    if not (plan.processes and plan.mechanisms and plan.durations_us and plan.working_sets and plan.ahead):
        raise BadValueError("plan: processes, mechanisms, durations_us, working_sets and ahead each need a value")
    return _checked(plan, lambda key: f"plan.{key}")


def recorded_switch(meta: RunMeta) -> SwitchPlan:
    """Return the plan of a run from its run.json; raises ResultFileError where it holds another one's."""
    try:
        return switch_from_dict(meta.plan)
    except (BadValueError, PlanError) as error:
        raise ResultFileError(f"run {meta.run_id}: the plan in its run.json is not one of this greenbench: {error}") from error


def load_switch(name: str | Path, overrides: Mapping[str, object], kernels: Mapping[str, Kernel]) -> SwitchPlan:
    """Read a plan by name or from a .toml file and put the options over it; raises PlanError without touching a device.

    `overrides` has the keys of a plan file; None means not given, and values may be text.
    """
    path = plan_path(name, COMMAND)
    plan = _read(SwitchPlan(name=path.stem), read_plan_file(path, COMMAND), lambda key: f"{path}: {key}", kernels)
    given = {key: value for key, value in overrides.items() if value is not None}
    return _read(plan, given, lambda key: "--" + key.replace("_", "-"), kernels)


def _read(plan: SwitchPlan, table: Mapping[str, object], at: Callable[[str], str], kernels: Mapping[str, Kernel]) -> SwitchPlan:
    for key in table:
        if key not in KEYS:
            raise PlanError(f"{at(key)} is no key of a switch plan{did_you_mean(key, KEYS)}; keys are {', '.join(KEYS)}")
        if isinstance(table[key], list | tuple) and not table[key]:
            raise PlanError(f"{at(key)} is empty; give it a value, or leave it out")
    plan = replace(plan, **{name: read(table[key], at(key)) for key, (name, read) in READERS.items() if key in table})  # type: ignore[arg-type]
    if WORKLOAD in table:
        name = read_text(table[WORKLOAD], at(WORKLOAD))
        if name.endswith(".toml") or "/" in name:
            refuse_file(name, at(WORKLOAD))
        workload = load_workload(name, kernels)
        plan = replace(plan, workload=workload, durations_us=(0.0,), working_sets=(0,))
    if plan.workload is not None and (own := [key for key in OWN_KEYS if key in table]):
        raise PlanError(f"{at(own[0])} is of the operation that {WORKLOAD} {plan.workload.name} replaces; leave one of them out")
    return _checked(plan, at)


def _checked(plan: SwitchPlan, at: Callable[[str], str]) -> SwitchPlan:
    """Refuse a run of more operations than the device stamps, and a visit that lasts too long."""
    if plan.seconds > LONGEST_VISIT_S:
        raise PlanError(f"{at('seconds')}: {plan.seconds:g} s for each point; a visit lasts an hour at most, give fewer seconds")
    shortest = min(plan.durations_us)
    if shortest and plan.seconds * 1e6 / shortest > MAX_OPERATIONS:
        most = MAX_OPERATIONS * shortest / 1e6
        raise PlanError(
            f"{at('seconds')}: {plan.seconds:g} s hold more than {MAX_OPERATIONS} operations of {shortest:g} us, which is what "
            f"one run can stamp; give at most {most:g} s"
        )
    return plan


def parse_mechanisms(value: object, place: str = "--mechanisms") -> tuple[Way, ...]:
    """Read names of mechanisms, or `all`; `alone` is always measured and may be left out."""
    words = split_items(value, place)
    if words == [ALL]:
        return tuple(Way)
    for word in words:
        if word not in set(Way):
            near = did_you_mean(word, list(Way))
            raise PlanError(f"{place}: {word!r} is no mechanism of switch{near}; give {ALL}, or names of {', '.join(Way)}")
        if words.count(word) > 1:
            raise PlanError(f"{place}: {word!r} is given twice; give each once")
    return tuple(way for way in Way if way is Way.ALONE or way in words)


def parse_durations(value: object, place: str = "--duration-us") -> tuple[float, ...]:
    """Read durations of an operation in us."""
    found: list[float] = []
    for word in split_items(value, place):
        duration = float(parse_param(word, place))
        if not SHORTEST_US <= duration <= LONGEST_US or duration in found:
            again = " again" if duration in found else ""
            raise PlanError(f"{place}: {word!r}{again}; give each once, from {SHORTEST_US:g} to {LONGEST_US:g} us")
        found.append(duration)
    return tuple(found)


def parse_sets(value: object, place: str = "--working-set") -> tuple[int, ...]:
    """Read sizes of a working set in bytes (16777216 or 16M); 0 is none."""
    found: list[int] = []
    for word in split_items(value, place):
        match = _SIZE.fullmatch(word)
        size = int(match[1]) * SUFFIXES[match[2]] if match else -1
        if size and (size % SET_STEP or not SMALLEST_SET <= size <= LARGEST_SET):
            suffixes = f"; suffixes are {', '.join(filter(None, SUFFIXES))}, powers of two (1M is {SUFFIXES['M']} bytes)"
            raise PlanError(
                f"{place}: {word!r} is no working set; give 0, or bytes from 1M up in steps of {SET_STEP}, such as 16M{suffixes}"
            )
        if size in found:
            raise PlanError(f"{place}: {word!r} is given again; give each once")
        found.append(size)
    return tuple(found)


WORKLOAD = "workload"
OWN_KEYS = ("duration_us", "working_set")
READERS: dict[str, tuple[str, Callable[[object, str], object]]] = {
    "summary": ("summary", read_text),
    "processes": ("processes", lambda value, place: tuple(sorted(parse_integers(value, place, 1, MAX_PROCESSES)))),
    "mechanisms": ("mechanisms", parse_mechanisms),
    "duration_us": ("durations_us", parse_durations),
    "working_set": ("working_sets", parse_sets),
    "ahead": ("ahead", lambda value, place: parse_integers(value, place, 1, MAX_AHEAD)),
    "seconds": ("seconds", parse_seconds),
    "seed": ("seed", lambda value, place: parse_integer(value, place, 0, 2**63 - 1)),
}
KEYS = (*READERS, WORKLOAD)
