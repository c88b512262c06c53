"""Plans: what a TOML file or a command line asks for, as one frozen object, and the points that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from greenbench.catalog import Kernel, sweeps_dir
from greenbench.choices import (
    MAX_CONNECTIONS,
    MAX_LIMIT,
    parse_granularity,
    parse_integer,
    parse_integers,
    parse_seconds,
    parse_setting,
    parse_timing,
    parse_workqueue,
    parse_yardsticks,
    read_text,
)
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.picks import KernelChoice, apply_settings, read_choices, read_sms
from greenbench.planrecord import KernelRecord, read_plan_record
from greenbench.schema import DeviceFacts, ParamValue, Partition, Point, Scope, Timing
from greenbench.sms import SmsSpec, parse_sms
from greenbench.tomlfile import read_toml
from greenbench.yardsticks import WAYS

DEFAULT_PLAN = "quick"
# Which command a plan file is for stands in its key `command`; one without is a sweep.
SWEEP = "sweep"
COMMANDS = (SWEEP, "colocate", "switch")
# Six blocks are the fewest with a 95 % interval of their median; fifteen where the interval stays wide.
ROUNDS, MAX_ROUNDS = 6, 15
KEYS = (
    "summary",
    "kernels",
    "sms",
    "granularity",
    "workqueue",
    "concurrency_limit",
    "connections",
    "rounds",
    "max_rounds",
    "timing",
    "flush",
    "seed",
    "time_limit_s",
    "yardsticks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sweep is asked to do; everything that can be checked without a device has been."""

    name: str
    kernels: tuple[KernelChoice, ...]
    sms: SmsSpec
    summary: str = ""
    granularity: int | None = None
    workqueue: tuple[Scope, ...] = (Scope.DRIVER_DEFAULT,)
    concurrency_limit: tuple[int, ...] = ()
    connections: tuple[int, ...] = ()
    rounds: int = ROUNDS
    max_rounds: int = MAX_ROUNDS
    timing: Timing = Timing.AUTO
    seed: int = 1
    time_limit_s: float | None = None
    yardsticks: tuple[str, ...] = tuple(WAYS)

    @property
    def flush_dirty(self) -> bool:
        """True if the flush before a cold sample leaves written lines behind."""
        return self.timing is Timing.COLD_DIRTY

    def as_dict(self) -> dict[str, object]:
        """Return the plan in JSON's own types, under the keys of a plan file (run.json)."""
        kernels = []
        for choice in self.kernels:
            entry: dict[str, object] = {"name": choice.name, "params": {name: list(values) for name, values in choice.params}}
            if choice.sms is not None:
                entry["sms"] = choice.sms.text
            kernels.append(entry)
        return {
            "name": self.name,
            "summary": self.summary,
            "kernels": kernels,
            "sms": self.sms.text,
            "granularity": self.granularity,
            "workqueue": [scope.value for scope in self.workqueue],
            "concurrency_limit": list(self.concurrency_limit),
            "connections": list(self.connections),
            "rounds": self.rounds,
            "max_rounds": self.max_rounds,
            "timing": self.timing.value,
            "seed": self.seed,
            "time_limit_s": self.time_limit_s,
            "yardsticks": list(self.yardsticks),
        }


def plan_from_dict(table: Mapping[str, object]) -> Plan:
    """Return the plan that `Plan.as_dict` wrote; raises BadValueError or PlanError where it did not."""
    record = read_plan_record(table, "plan")
    # Both may be left out of a plan, and then they are empty.
    empty = {key: () for key in ("concurrency_limit", "connections") if getattr(record, key) == ()}
    given = {key: getattr(record, key) for key in _READERS if key not in empty and getattr(record, key) is not None}
    values = {key: read(given[key], "--sms" if key == "sms" else f"plan.{key}") for key, read in _READERS.items() if key in given}
    if not record.kernels:
        raise PlanError("plan.kernels: the plan names no kernels")
    kernels = tuple(_choice(entry, f"plan.kernels[{index}]") for index, entry in enumerate(record.kernels))
    plan = Plan(name=record.name, kernels=kernels, sms=parse_sms(record.sms), timing=record.timing)
    return _checked(replace(plan, **{**values, **empty}), lambda key: f"plan.{key}")  # type: ignore[arg-type]


def _choice(entry: KernelRecord, place: str) -> KernelChoice:
    for name, values in entry.params.items():
        if not values:
            raise PlanError(f"{place}.params.{name}: there is no value")
    return KernelChoice(entry.name, tuple(entry.params.items()), None if entry.sms is None else parse_sms(entry.sms))


def plan_names(command: str = SWEEP) -> list[str]:
    """Return the names of the plans that ship with greenbench for a command."""
    return list(plan_summaries(command))


def plan_summaries(command: str = SWEEP) -> dict[str, str]:
    """Return the plans that ship with greenbench for a command, each with the line that says what it is for."""
    tables = {path.stem: read_toml(path, "plan", PlanError) for path in sorted(sweeps_dir().glob("*.toml"))}
    return {name: str(table.get("summary", "")) for name, table in tables.items() if table.get("command", SWEEP) == command}


def load_plan(name: str | Path, overrides: Mapping[str, object], kernels: Mapping[str, Kernel]) -> Plan:
    """Read a plan by name or from a .toml file and put the options over it; raises PlanError without touching a device.

    `overrides` has the keys of a plan file (None: not given) and `set`, a sequence of NAME=VALUE; values may be text.
    """
    path = plan_path(name)
    given = {key: value for key, value in overrides.items() if value is not None and value != ()}
    settings = given.pop("set", ())
    plan = _read_keys(Plan(name=path.stem, kernels=(), sms=parse_sms("auto")), read_plan_file(path), f"{path}: ", kernels)
    if not plan.kernels and "kernels" not in given:
        raise PlanError(f'{path}: the plan names no kernels; add kernels = ["triad"] or a [[kernels]] table')
    plan = _read_keys(plan, given, "--", kernels)
    if not isinstance(settings, list | tuple):
        settings = [settings]
    parsed = [parse_setting(str(text)) for text in settings]
    plan = replace(plan, kernels=apply_settings(plan.kernels, parsed, kernels))
    if "yardsticks" in given and plan.kernels and len(lacking := without_yardsticks(plan, kernels)) == len(_names(plan)):
        there = ", ".join(way for way in WAYS if any(way in kernels[name].yardsticks for name in lacking)) or "none"
        said = ", ".join(plan.yardsticks)
        raise PlanError(f"--yardsticks {said}: no kernel of this plan has it ({', '.join(lacking)}); their yardsticks: {there}")
    return plan


def _names(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(choice.name for choice in plan.kernels))


def without_yardsticks(plan: Plan, kernels: Mapping[str, Kernel]) -> tuple[str, ...]:
    """Return the kernels of a plan that have none of the yardsticks it names; none where it wants all or none there are."""
    if plan.yardsticks in ((), tuple(WAYS)):
        return ()
    return tuple(name for name in _names(plan) if not set(plan.yardsticks) & set(kernels[name].yardsticks))


def plan_path(name: str | Path, command: str = SWEEP) -> Path:
    """Return the file of a plan: a path if it looks like one, else a plan that ships with greenbench for the command."""
    text = str(name)
    if text.endswith(".toml") or "/" in text:
        return Path(text)
    path = sweeps_dir() / f"{text}.toml"
    names = plan_names(command)
    if text not in names and not path.is_file():
        known = ", ".join(names)
        raise PlanError(f"there is no plan {text!r}{did_you_mean(text, names)}; give {known} or the path of a .toml file")
    return path


def read_plan_file(path: Path, command: str = SWEEP) -> dict[str, object]:
    """Return the keys of a plan file without `command`; raises PlanError where it is for another command."""
    table = read_toml(path, "plan", PlanError)
    meant = table.pop("command", SWEEP)
    if meant not in COMMANDS:
        raise PlanError(f"{path}: command: {meant!r} is no command that has plans; give {' or '.join(map(repr, COMMANDS))}")
    if meant != command:
        raise PlanError(f"{path} is a plan of greenbench {meant}, not of greenbench {command}; give it to the other command")
    return table


def _read_keys(plan: Plan, table: Mapping[str, object], place: str, kernels: Mapping[str, Kernel]) -> Plan:
    """Return the plan with the values of `table`; `place` is `FILE: ` or the dashes of an option."""
    option = place == "--"

    def at(key: str) -> str:
        return place + (key.removesuffix("_s").replace("_", "-") if option else key)

    for key in table:
        if key not in KEYS:
            raise PlanError(f"{at(key)} is no key of a plan{did_you_mean(key, KEYS)}; keys are {', '.join(KEYS)}")
    changes: dict[str, object] = {}
    for key, read in _READERS.items():
        if key in table:
            changes[key] = read(table[key], at(key))
    if "timing" in table or "flush" in table:
        default = "cold" if plan.timing in (Timing.COLD_CLEAN, Timing.COLD_DIRTY) else plan.timing.value
        changes["timing"] = parse_timing(table.get("timing", default), table.get("flush"), at("timing"), at("flush"))
    # `rounds` alone asks for exactly that many.
    if "rounds" in changes and "max_rounds" not in changes:
        changes["max_rounds"] = changes["rounds"]
    if "kernels" in table:
        changes["kernels"] = read_choices(table["kernels"], at("kernels"), kernels, plan.kernels)
    read_plan = replace(plan, **changes)  # type: ignore[arg-type]
    if option and "sms" in table:
        # The sizes on the command line are those that the user wants, for every kernel.
        read_plan = replace(read_plan, kernels=tuple(replace(choice, sms=None) for choice in read_plan.kernels))
    return _checked(read_plan, at)


def _checked(plan: Plan, at: Callable[[str], str]) -> Plan:
    """Refuse keys that contradict each other."""
    if plan.max_rounds < plan.rounds:
        raise PlanError(f"{at('max_rounds')}: {plan.max_rounds} is below the {plan.rounds} of rounds; raise it or leave it out")
    if plan.concurrency_limit and set(plan.workqueue) == {Scope.DRIVER_DEFAULT}:
        raise PlanError(
            f"{at('concurrency_limit')}: a limit needs a workqueue scope to apply to; "
            f"add --workqueue {Scope.DEVICE_CTX} or {Scope.GREEN_CTX_BALANCED}"
        )
    return plan


_READERS: dict[str, Callable[[object, str], object]] = {
    "summary": read_text,
    "sms": read_sms,
    "granularity": parse_granularity,
    "workqueue": parse_workqueue,
    "concurrency_limit": lambda value, place: parse_integers(value, place, 1, MAX_LIMIT),
    "connections": lambda value, place: parse_integers(value, place, 1, MAX_CONNECTIONS),
    "rounds": lambda value, place: parse_integer(value, place, 1, 10_000),
    "max_rounds": lambda value, place: parse_integer(value, place, 1, 10_000),
    "seed": lambda value, place: parse_integer(value, place, 0, 2**63 - 1),
    "time_limit_s": parse_seconds,
    "yardsticks": parse_yardsticks,
}


def expand(plan: Plan, device: DeviceFacts, kernels: Mapping[str, Kernel]) -> list[Point]:
    """Return the points of a plan on a device, each once, in an order that depends on nothing else.

    A kernel that cannot run here keeps its points: they become `unsupported` rows. Yardsticks follow their kernel.
    """
    points: dict[Point, None] = {}
    for choice in plan.kernels:
        if choice.name not in kernels:
            known = did_you_mean(choice.name, kernels)
            raise PlanError(f"kernel {choice.name!r} of the plan is in no folder{known}; add its folder with --kernels-dir")
        kernel = kernels[choice.name]
        partitions = (choice.sms or plan.sms).partitions(device, plan.workqueue, plan.concurrency_limit, plan.granularity)
        names = [kernel.name, *(f"{kernel.name}.{way}" for way in kernel.yardsticks if way in plan.yardsticks)]
        for values in choice.combinations():
            # What the file for this architecture requires is known only now.
            params = kernel.for_arch(device.arch).merged(values)
            for name in names:
                points.update(dict.fromkeys(_points(plan, name, params, partitions)))
    return list(points)


def _points(
    plan: Plan, kernel: str, params: tuple[tuple[str, ParamValue], ...], partitions: Sequence[Partition]
) -> Iterator[Point]:
    for connections in plan.connections or (None,):
        for partition in partitions:
            yield Point(kernel, params, partition, plan.timing, plan.flush_dirty, connections)
