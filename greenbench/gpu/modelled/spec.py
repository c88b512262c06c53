"""From `--device model:...` to what the modelled device is: its facts, its driver, refused sizes and injected faults.

A model file, every key but `base` optional:

    base = "h200"          # h200, h100 or a100; any fact (sm_count = 48) or constant (jitter_pct = 0.3) may follow
    driver = "13.0"        # CUDA version of the driver
    refuse = [24]          # sizes that the driver refuses with error 915
    state = "my.state"     # where `times` is counted across workers, beside this file
    [[fault]]
    kind = "hang"          # see FaultKind
    kernel = "triad"       # default: every kernel but probes; sms = 16: on that grant only
    at_block = 3           # from this block on (`faults` says how blocks are counted)
    times = 1              # default: always
    size = 0.02            # DEFAULT_SIZE says what it means
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from greenbench.errors import DriverTooOldError, UsageError
from greenbench.facts import MODEL_DRIVER, ModelFacts, model_facts, model_from_table
from greenbench.gpu.modelled.faults import DEFAULT_SIZE, Fault, FaultKind, FaultPlan
from greenbench.schema import DeviceFacts
from greenbench.storage import why_no_file
from greenbench.tomlfile import parse_toml

# cuGreenCtxStreamCreate came with 12.5; green contexts themselves with 12.4.
OLDEST_DRIVER = (12, 5)
OWN_KEYS = {"driver", "refuse", "state", "fault"}
MODEL_KEYS = {field.name for field in fields(ModelFacts)} - {"name", "device", "peaks", "refused_sms"} | {"base"}
# What follows from the driver or the backend cannot be set.
DEVICE_KEYS = {field.name for field in fields(DeviceFacts)} - {
    "backend",
    "cuda",
    "driver",
    "index",
    "nvrtc",
    "split_api",
    "workqueue_obstacle",
}
FAULT_KEYS = {field.name for field in fields(Fault)}

# Faults whose size is what they leave of the SM clock.
CLOCK_FAULTS = frozenset({FaultKind.THROTTLE, FaultKind.POWER_CAP})
LEAST_CLOCK_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything that the modelled device answers from."""

    facts: ModelFacts
    faults: FaultPlan


def read_spec(spec: str) -> ModelSpec:
    """Read `NAME[@DRIVER]` or `FILE.toml`; raises UsageError where it cannot be meant, DriverTooOldError below 12.5."""
    if spec.endswith(".toml"):
        made = _read_file(Path(spec))
    else:
        name, at, version = spec.partition("@")
        cuda = _version(version, f"--device model:{spec}") if at else MODEL_DRIVER
        made = ModelSpec(model_facts(name, cuda), FaultPlan())
    cuda = made.facts.device.cuda
    if cuda < OLDEST_DRIVER:
        raise DriverTooOldError(
            "green contexts need a driver for CUDA 12.4, and their streams 12.5; "
            f"that of model:{spec} is for {cuda[0]}.{cuda[1]}: name a newer one, like model:h200@13.0"
        )
    return made


def _version(text: object, place: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,2})", text) if isinstance(text, str) else None
    if found is None:
        raise UsageError(f"{place}: driver {text!r} is not the CUDA version of a driver, like 13.0 (in a file with quotes)")
    return int(found.group(1)), int(found.group(2))


def _read_file(path: Path) -> ModelSpec:
    if problem := why_no_file(path):
        raise UsageError(f"--device model:{path}: the path {problem}")
    try:
        table = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--device model:{path}: the file cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UsageError(f"--device model:{path}: the file is not TOML ({error})") from None
    place = str(path)
    known = OWN_KEYS | MODEL_KEYS | DEVICE_KEYS
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(f"{place}: {unknown[0]!r} is no key of a model; keys are {', '.join(sorted(known))}")
    cuda = _version(table["driver"], place) if "driver" in table else MODEL_DRIVER
    model = {key: value for key, value in table.items() if key in MODEL_KEYS}
    model["device"] = {key: _device_value(key, value, place) for key, value in table.items() if key in DEVICE_KEYS}
    if "refuse" in table:
        model["refused_sms"] = _counts(table["refuse"], f"{place}: refuse")
    facts = model_from_table(path.stem, model, cuda, place=place)
    return ModelSpec(facts, FaultPlan(tuple(_faults(table, place)), _state(table, path)))


def _device_value(key: str, value: object, place: str) -> object:
    """Check a value against the type of the field; TOML arrays become tuples, numbers must not be negative."""
    hint = get_type_hints(DeviceFacts)[key]
    if isinstance(value, list):
        if key not in {"compute_capability", "processes"}:
            raise UsageError(f"{place}: {key} = {value!r} must not be a list")
        return tuple(_counts(value, f"{place}: {key}", least=0))
    number = float if isinstance(value, int) and not isinstance(value, bool) and _allows(hint, float) else type(value)
    if not _allows(hint, number):
        raise UsageError(f"{place}: {key} = {value!r} has the wrong type")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
        raise UsageError(f"{place}: {key} = {value!r} must be above zero")
    return value


def _allows(hint: Any, kind: type) -> bool:
    return kind is hint or kind in getattr(hint, "__args__", ())


def _counts(value: object, place: str, *, least: int = 1) -> list[int]:
    if not isinstance(value, list) or not all(type(item) is int and item >= least for item in value):
        raise UsageError(f"{place} = {value!r} must be a list of integers, like [24]")
    return list(value)


def _state(table: Mapping[str, object], path: Path) -> Path | None:
    name = table.get("state")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"{path}: state = {name!r} must be a file name in quotes")
    return path.parent / name if name else None


def _faults(table: Mapping[str, object], place: str) -> list[Fault]:
    listed = table.get("fault", [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise UsageError(f"{place}: faults are given as [[fault]] tables")
    return [_fault(item, f"{place}: fault {number}") for number, item in enumerate(listed, 1)]


def _fault(table: Mapping[str, Any], place: str) -> Fault:
    unknown = sorted(set(table) - FAULT_KEYS)
    if unknown:
        raise UsageError(f"{place} has no key {unknown[0]!r}; keys are {', '.join(sorted(FAULT_KEYS))}")
    try:
        kind = FaultKind(table.get("kind", ""))
    except ValueError:
        raise UsageError(f"{place}: kind {table.get('kind')!r} is none of {', '.join(FaultKind)}") from None
    for key in ("sms", "at_block", "times"):
        if key in table and (type(table[key]) is not int or table[key] < 1):
            raise UsageError(f"{place}: {key} = {table[key]!r} must be an integer above zero")
    if not isinstance(table.get("kernel", ""), str):
        raise UsageError(f"{place}: kernel = {table['kernel']!r} must be the name of a kernel")
    size = table.get("size", DEFAULT_SIZE.get(kind, 0.0))
    if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 <= size <= 100:
        raise UsageError(f"{place}: size = {size!r} must be a number from 0 to 100")
    if kind in CLOCK_FAULTS and not LEAST_CLOCK_SHARE <= size <= 1:
        raise UsageError(f"{place}: size = {size!r} is the share of the clock that is left; give {LEAST_CLOCK_SHARE} to 1")
    return Fault(
        kind=kind,
        kernel=table.get("kernel"),
        sms=table.get("sms"),
        at_block=table.get("at_block", 1),
        times=table.get("times"),
        size=float(size),
    )
