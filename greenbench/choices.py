"""The values of a plan's keys, read alike from TOML and from the option that stands for the key; `place` heads every error."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.schema import FINE_UNIT, ParamValue, Scope, Timing
from greenbench.yardsticks import WAYS

# CUDA_DEVICE_MAX_CONNECTIONS is capped by the driver at 32.
MAX_CONNECTIONS = 32
MAX_LIMIT = 1_000_000

_ALIASES = {"balanced": Scope.GREEN_CTX_BALANCED}
_TIMINGS = ("auto", "steady", "cold", "hot", "graph")
_FLUSHES = ("clean", "dirty")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_REAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_SETTING = re.compile(r"(?:(?P<kernel>[^=\s]+)\.)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<values>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Setting:
    """One `--set name=v,v` or `--set kernel.name=v,v`; `kernel` is empty where every kernel with that parameter is meant."""

    kernel: str
    name: str
    values: tuple[ParamValue, ...]
    text: str


def split_items(value: object, place: str) -> list[str]:
    """Return the items of `a,b` or of a TOML value; a blank item is refused."""
    listed = value if isinstance(value, list | tuple) else [value]
    words = [word.strip() for each in listed for word in str(each).split(",")]
    if not words or "" in words:
        raise PlanError(f"{place}: {value!r} has a blank item; give values with commas between them")
    return words


def _once(words: Sequence[str], values: Sequence[object], place: str) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            first = words[values.index(value)]
            same = "twice" if first == words[index] else f"again, as {first!r} says the same"
            raise PlanError(f"{place}: {words[index]!r} is given {same}; give each once")


def parse_workqueue(value: object, place: str = "--workqueue") -> tuple[Scope, ...]:
    """Read workqueue scopes; PyTorch's word `balanced` is an alias."""
    words = split_items(value, place)
    scopes = []
    for word in words:
        if word not in _ALIASES and word not in set(Scope):
            known = [*Scope, *_ALIASES]
            choices = f"{', '.join(Scope)} (balanced is short for {Scope.GREEN_CTX_BALANCED})"
            raise PlanError(f"{place}: {word!r} is no workqueue scope{did_you_mean(word, known)}; give {choices}")
        scopes.append(_ALIASES.get(word) or Scope(word))
    _once(words, scopes, place)
    return tuple(scopes)


def parse_integers(value: object, place: str, low: int, high: int) -> tuple[int, ...]:
    """Read integers of a range, each once."""
    words = split_items(value, place)
    numbers = [parse_integer(word, place, low, high) for word in words]
    _once(words, numbers, place)
    return tuple(numbers)


def parse_integer(value: object, place: str, low: int, high: int) -> int:
    """Read one integer of a range."""
    text = str(value).strip()
    # TOML's true is an int in Python; here its text is not.
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise PlanError(f"{place}: {text!r} is no integer from {low} to {high}")
    return int(text)


def parse_granularity(value: object, place: str) -> int:
    """Read the unit of partitions; 2 is the only one beside the device's own, which is left out."""
    unit = parse_integer(value, place, 1, 1024)
    if unit != FINE_UNIT:
        raise PlanError(
            f"{place}: {unit} is no unit that drivers split by; give {FINE_UNIT}, or leave it out for the device's own"
        )
    return unit


def parse_seconds(value: object, place: str) -> float:
    """Read a positive time in seconds."""
    text = str(value).strip()
    seconds = float(text) if _REAL.fullmatch(text) else math.nan
    if not 0 < seconds <= 1e6:
        raise PlanError(f"{place}: {text!r} is no time in seconds; give a number above 0, such as 20")
    return seconds


def read_text(value: object, place: str) -> str:
    """Return a value that must be a text."""
    if isinstance(value, str):
        return value
    raise PlanError(f"{place}: {value!r} is not a text")


def parse_yardsticks(value: object, place: str = "--yardsticks") -> tuple[str, ...]:
    """Read which yardsticks are measured: true or `all`, false or `none`, or the names of ways, in the order of `WAYS`."""
    if isinstance(value, bool) or value in ("all", "none"):
        return tuple(WAYS) if value in (True, "all") else ()
    if isinstance(value, list | tuple) and not value:
        return ()
    words = split_items(value, place)
    for word in words:
        if word not in WAYS:
            near = did_you_mean(word, WAYS)
            raise PlanError(f"{place}: {word!r} is no yardstick{near}; give all, none, or names of {', '.join(WAYS)}")
    _once(words, words, place)
    return tuple(way for way in WAYS if way in words)


def parse_timing(timing: object, flush: object, place: str = "--timing", flush_place: str = "--flush") -> Timing:
    """Return the way of timing; `flush` (None where it was not given) says which `cold`, and means nothing elsewhere."""
    word, cold = str(timing).strip(), str(flush or "clean").strip()
    if cold not in _FLUSHES:
        raise PlanError(f"{flush_place}: {cold!r} is no flush{did_you_mean(cold, _FLUSHES)}; give {' or '.join(_FLUSHES)}")
    if word not in _TIMINGS and word not in set(Timing):
        raise PlanError(f"{place}: {word!r} is no way of timing{did_you_mean(word, _TIMINGS)}; give {', '.join(_TIMINGS)}")
    if word == "cold":
        return Timing(f"cold-{cold}")
    if flush is not None and word != f"cold-{cold}":
        raise PlanError(f"{flush_place}: {cold!r} is for cold timing and this is {word}; add --timing cold")
    return Timing(word)


def parse_setting(text: str, place: str = "--set") -> Setting:
    """Read `n=1024,2048` or `triad.n=1024`."""
    match = _SETTING.fullmatch(text.strip())
    if not match:
        raise PlanError(f"{place}: {text!r} sets nothing; write NAME=VALUE, NAME=VALUE,VALUE or KERNEL.NAME=VALUE")
    words = split_items(match["values"], f"{place} {text}")
    values = [parse_param(word, f"{place} {text}") for word in words]
    _once(words, values, f"{place} {text}")
    return Setting(match["kernel"] or "", match["name"], tuple(values), text)


def parse_param(value: object, place: str) -> ParamValue:
    """Read one value of a kernel parameter: an integer of 64 bits or a finite real."""
    text = str(value).strip()
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    if _REAL.fullmatch(text) and not isinstance(value, bool) and math.isfinite(float(text)):
        return float(text)
    raise PlanError(f"{place}: {text!r} is no number; parameters are integers of 64 bits or reals, such as 1024 or 0.5")
