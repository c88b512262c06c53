"""The keys of a co-location's plan and how their values read, alike from TOML and from the option that stands for the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from greenbench.arrivals import Process
from greenbench.choices import (
    MAX_CONNECTIONS,
    MAX_LIMIT,
    parse_integer,
    parse_integers,
    parse_seconds,
    parse_workqueue,
    read_text,
    split_items,
)
from greenbench.cojournal import MOST_SMS
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.queueing.model import Mechanism
from greenbench.rates import AUTO, MAX_RATE, parse_rates
from greenbench.slo import parse_slo

_T = TypeVar("_T")

ALL, REST, NONE = "all", "rest", "none"
# What `all` means: torch_green is green again, by another library's hand, for whoever asks for that.
EVERY = tuple(each for each in Mechanism if each is not Mechanism.TORCH_GREEN)
MAX_SMS = MOST_SMS
# Fewer than the warm-up say nothing; more than this a run has no room for on the device.
LEAST_STEPS, MAX_STEPS = 20, 50_000
SUMMARY = "summary"
# What the roles do, in the order in which the manual lists it.
ROLE_KEYS = ("latency", "background", "model", "layers", "decode_batch", "context", "prompt", "chunk")

_RATE = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?")
_MEMORY = re.compile(r"[1-9][0-9]{0,5}[GM]")


@dataclass(frozen=True, slots=True)
class Given:
    """The values of keys, each with the place that heads its errors: `FILE: key`, or the option."""

    values: Mapping[str, tuple[object, str]]

    def __contains__(self, key: object) -> bool:
        return key in self.values

    def place(self, key: str) -> str:
        """Return where a key was given, or the option that would give it."""
        return self.values[key][1] if key in self.values else option_of(key)

    def read(self, key: str, reader: Callable[[object, str], _T], default: _T) -> _T:
        """Return the value of a key as `reader` reads it, or `default` where it was not given."""
        return reader(*self.values[key]) if key in self.values else default


def option_of(key: str) -> str:
    """Return the option that stands for a key."""
    return "--" + key.removesuffix("_s").replace("_", "-")


def merged(path: object, table: Mapping[str, object], options: Mapping[str, object]) -> Given:
    """Return the keys of a plan file with the options over them; raises PlanError for a key that there is not."""
    values: dict[str, tuple[object, str]] = {}
    for source, place in ((table, lambda key: f"{path}: {key}"), (options, option_of)):
        for key, value in source.items():
            if key not in KEYS:
                raise PlanError(f"{place(key)} is no key of a co-location{did_you_mean(key, KEYS)}; keys are {', '.join(KEYS)}")
            if isinstance(value, list | tuple) and not value:
                raise PlanError(f"{place(key)} is empty; give it a value, or leave it out")
            values[key] = (value, place(key))
    return Given(values)


def parse_mechanisms(value: object, place: str = "--mechanisms") -> tuple[Mechanism, ...]:
    """Read names of mechanisms, or `all`, in the order of `Mechanism`; `alone` is always measured and may be left out.

    `all` is every way to keep roles apart; the cross-check torch_green is measured where it is named.
    """
    words = split_items(value, place)
    if ALL in words and len(words) > 1:
        raise PlanError(f"{place}: {ALL!r} stands alone; give {ALL}, or names such as green,streams")
    for word in words:
        if word != ALL and word not in set(Mechanism):
            near = did_you_mean(word, list(Mechanism))
            raise PlanError(f"{place}: {word!r} is no mechanism{near}; give {ALL}, or names of {', '.join(Mechanism)}")
        if words.count(word) > 1:
            raise PlanError(f"{place}: {word!r} is given twice; give each once")
    return EVERY if ALL in words else tuple(each for each in Mechanism if each is Mechanism.ALONE or each in words)


def parse_counts(value: object, place: str = "--sms") -> tuple[int, ...] | None:
    """Read SM counts of the latency role and ranges (8:64:8, both ends) in the order given; `auto` alone is None."""
    words = split_items(value, place)
    if AUTO in words:
        if len(words) > 1:
            raise PlanError(f"{place}: {AUTO!r} stands alone; give {AUTO}, or counts such as 20,28,36")
        return None
    counts: dict[int, None] = {}
    for word in words:
        for count in _range(word, place) if ":" in word else (parse_integer(word, place, 1, MAX_SMS),):
            if count in counts:
                raise PlanError(f"{place}: {word!r} gives {count} SMs again; give each size once")
            counts[count] = None
    return tuple(counts)


def _range(word: str, place: str) -> Sequence[int]:
    parts = word.split(":")
    if len(parts) != 3:
        raise PlanError(f"{place}: {word!r} is no range; a range is first:last:step, such as 8:64:8")
    first, last, step = (parse_integer(part, f"{place} {word}", 1, MAX_SMS) for part in parts)
    if last < first:
        raise PlanError(f"{place}: the range {word!r} is empty, since it ends before it begins; write {last}:{first}:{step}")
    return range(first, last + 1, step)


def parse_background_sms(value: object, place: str = "--background-sms") -> int | None:
    """Read the background's SM count; `rest` is None: all that the latency role leaves."""
    return None if str(value).strip() == REST else parse_integer(value, place, 1, MAX_SMS)


def parse_process(value: object, place: str = "--arrivals") -> Process:
    """Read how arrivals follow each other."""
    word = str(value).strip()
    if word not in set(Process):
        near = did_you_mean(word, list(Process))
        raise PlanError(f"{place}: {word!r} is no kind of arrivals{near}; give {' or '.join(Process)}")
    return Process(word)


def parse_step_rate(value: object, place: str = "--step-rate") -> float | None:
    """Read steps a second; `auto` is None: 0.3 of what the role does alone on the whole device."""
    word = str(value).strip()
    if word == AUTO:
        return None
    rate = float(word) if _RATE.fullmatch(word) else 0.0
    if not 0 < rate <= MAX_RATE:
        raise PlanError(f"{place}: {word!r} is no rate; give steps a second above 0 up to {MAX_RATE:.0f}, or {AUTO}")
    return rate


def parse_chunks(value: object, place: str = "--chunk") -> tuple[int, ...]:
    """Read sizes of prefill chunks, in tokens."""
    return parse_integers(value, place, 1, MAX_LIMIT * 16)


def parse_switch(value: object, place: str) -> bool:
    """Read true or false; an option that stands alone is true."""
    if isinstance(value, bool):
        return value
    raise PlanError(f"{place}: {value!r} is neither true nor false")


def parse_memory_limit(value: object, place: str = "--mps-memory-limit") -> str:
    """Read the device memory that an MPS client may take, in MPS's own words: 40G, 512M; `none` is an empty text."""
    word = str(value).strip()
    if word == NONE:
        return ""
    if not _MEMORY.fullmatch(word):
        raise PlanError(f"{place}: {word!r} is no amount of memory; give whole G or M, such as 40G or 512M")
    return word


def _limits(value: object, place: str) -> tuple[int | None, ...]:
    return parse_integers(value, place, 1, MAX_LIMIT)


def _connections(value: object, place: str) -> tuple[int | None, ...]:
    return parse_integers(value, place, 1, MAX_CONNECTIONS)


# Key of a plan -> (field of CoPlan, how it reads). The roles and the rates say more than one field each.
READERS: dict[str, tuple[str, Callable[[object, str], object]]] = {
    "mechanisms": ("mechanisms", parse_mechanisms),
    "sms": ("sms", parse_counts),
    "background_sms": ("background_sms", parse_background_sms),
    "workqueue": ("workqueues", parse_workqueue),
    "concurrency_limit": ("concurrency_limits", _limits),
    "connections": ("connections", _connections),
    "arrivals": ("process", parse_process),
    "background_arrivals": ("background_process", parse_process),
    "step_rate": ("step_rate", parse_step_rate),
    "steps": ("steps", lambda value, place: parse_integer(value, place, LEAST_STEPS, MAX_STEPS)),
    "seed": ("seed", lambda value, place: parse_integer(value, place, 0, 2**63 - 1)),
    "slo": ("slo", parse_slo),
    "interference": ("interference", parse_switch),
    "mps_memory_limit": ("mps_memory_limit", parse_memory_limit),
    "time_limit_s": ("time_limit_s", parse_seconds),
}
RATES = "rates"
KEYS = (SUMMARY, *ROLE_KEYS, *READERS, RATES)


def read_fields(given: Given) -> dict[str, object]:
    """Return the fields of CoPlan that keys were given for, the roles aside."""
    given.read(SUMMARY, read_text, "")
    fields = {name: reader(*given.values[key]) for key, (name, reader) in READERS.items() if key in given}
    if RATES in given:
        rates = parse_rates(*given.values[RATES])
        fields |= {"rates": rates, "auto_rates": not rates}
    return fields
