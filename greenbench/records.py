"""Frozen dataclasses as CSV cells and as JSON, driven by their type hints, so that a new field needs no code here.

Nothing here knows a file: what is wrong with a value is a `BadValueError`, and the caller adds the place.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints

LIST_SEPARATOR = ";"

_INTEGER = re.compile(r"-?[0-9]{1,40}")
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class BadValueError(ValueError):
    """A value that is not of its type; the text says which value and what was expected."""


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a dataclass as a CSV column."""

    name: str
    write: Callable[[object], str]
    read: Callable[[str], object]


def columns(record: type, float_text: Callable[[float], str] = repr) -> tuple[Column, ...]:
    """Return the columns of a dataclass, in the order of its fields; `float_text` decides how many digits are written."""
    return _columns(record, float_text)


@cache
def _columns(record: type, float_text: Callable[[float], str]) -> tuple[Column, ...]:
    hints = get_type_hints(record)
    return tuple(_column(field.name, hints[field.name], float_text) for field in dataclasses.fields(record))


def _column(name: str, hint: object, float_text: Callable[[float], str]) -> Column:
    bare = _without_none(hint)
    if bare is not None:
        if bare is str:
            raise TypeError(f"{name}: an empty cell cannot tell None from an empty text")
        inner = _column(name, bare, float_text)
        return Column(
            name,
            lambda value: "" if value is None else inner.write(value),
            lambda cell: inner.read(cell) if cell else None,
        )
    if get_origin(hint) is tuple:
        item = _column(name, get_args(hint)[0], float_text)
        return Column(
            name,
            lambda value: LIST_SEPARATOR.join(item.write(each) for each in _as_tuple(value)),
            lambda cell: tuple(item.read(each) for each in cell.split(LIST_SEPARATOR)) if cell else (),
        )
    if hint is int:
        return Column(name, _write_integer, _read_integer)
    if hint is float:
        return Column(name, lambda value: float_text(_finite(value)), _read_float)
    if hint is str:
        return Column(name, _write_text, lambda cell: cell)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        choices = hint
        return Column(name, lambda value: choices(_write_text(value)).value, lambda cell: _read_choice(choices, cell))
    raise TypeError(f"{name}: {hint} has no form in a CSV cell")


def _without_none(hint: object) -> object | None:
    """Return X of `X | None`, or None where the hint is not of that form."""
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        rest = [each for each in get_args(hint) if each is not NoneType]
        return rest[0] if len(rest) == 1 else None
    return None


def _as_tuple(value: object) -> tuple[object, ...]:
    if isinstance(value, tuple | list):
        return tuple(value)
    raise BadValueError(f"{value!r} is not a list")


def _write_integer(value: object) -> str:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BadValueError(f"{value!r} is not an integer")
    return str(operator.index(value))


def _read_integer(cell: str) -> int:
    if not _INTEGER.fullmatch(cell):
        raise BadValueError(f"{cell!r} is not an integer")
    return int(cell)


def _finite(value: object) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise BadValueError(f"{value!r} is not a number")
    number = float(value)
    if not math.isfinite(number):
        raise BadValueError(f"{number} is not a finite number, and what was not measured is left empty")
    return number


def _read_float(cell: str) -> float:
    if not _FLOAT.fullmatch(cell):
        raise BadValueError(f"{cell!r} is not a finite number")
    return _finite(float(cell))


def _write_text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    raise BadValueError(f"{value!r} is not a text")


def _read_choice(choices: type[StrEnum], cell: str) -> StrEnum:
    try:
        return choices(cell)
    except ValueError:
        raise BadValueError(f"{cell!r} is none of {', '.join(choices)}") from None


def to_json(value: object, at: str = "") -> object:
    """Return the value in JSON's own types: dataclasses become objects, enums their values, tuples lists."""
    if isinstance(value, StrEnum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise BadValueError(f"{at}: {value} is not a finite number")
    if isinstance(value, tuple | list):
        return [to_json(each, f"{at}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): to_json(each, f"{at}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name), _below(at, field.name)) for field in dataclasses.fields(value)}
    raise BadValueError(f"{at}: {value!r} has no form in JSON")


def from_json(hint: object, data: object, at: str = "") -> object:
    """Return the value of type `hint` that `to_json` made `data` from."""
    if hint is object:
        return data
    if get_origin(hint) in (Union, UnionType):
        return _union_from_json(get_args(hint), data, at)
    if get_origin(hint) is tuple:
        return _tuple_from_json(get_args(hint), data, at)
    if get_origin(hint) is dict:
        item = get_args(hint)[1]
        return {key: from_json(item, each, _below(at, key)) for key, each in _mapping(data, at).items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass_from_json(hint, data, at)
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(data, str):
        try:
            return _read_choice(hint, data)
        except BadValueError as error:
            raise BadValueError(f"{at}: {error}") from None
    if hint is float and type(data) in (int, float):
        return _finite_json(data, at)
    if isinstance(hint, type) and type(data) is hint:
        return data
    raise BadValueError(f"{at}: {data!r} is not of type {getattr(hint, '__name__', hint)}")


def _finite_json(data: object, at: str) -> float:
    try:
        return _finite(data)
    except (BadValueError, OverflowError):
        raise BadValueError(f"{at}: {data!r} is not a finite number") from None


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _mapping(data: object, at: str) -> dict[str, object]:
    if isinstance(data, dict):
        return data
    raise BadValueError(f"{at or 'the whole'}: {data!r} is not an object")


def _union_from_json(hints: tuple[object, ...], data: object, at: str) -> object:
    if data is None and NoneType in hints:
        return None
    rest = [each for each in hints if each is not NoneType]
    # JSON tells 3 from 3.0, so a parameter that is `int | float` keeps its type.
    exact = [each for each in rest if each is type(data)]
    return from_json(exact[0] if exact else rest[0], data, at)


def _tuple_from_json(items: tuple[object, ...], data: object, at: str) -> tuple[object, ...]:
    if not isinstance(data, list):
        raise BadValueError(f"{at}: {data!r} is not a list")
    if items[-1] is Ellipsis:
        items = (items[0],) * len(data)
    if len(items) != len(data):
        raise BadValueError(f"{at}: {len(data)} items where {len(items)} are expected")
    return tuple(from_json(item, each, f"{at}[{index}]") for index, (item, each) in enumerate(zip(items, data, strict=True)))


def _dataclass_from_json(hint: type, data: object, at: str) -> object:
    entries = _mapping(data, at)
    hints = get_type_hints(hint)
    known = {field.name: field for field in dataclasses.fields(hint)}
    for name in entries:
        if name not in known:
            raise BadValueError(f"{_below(at, name)} is not known here")
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in entries:
            raise BadValueError(f"{_below(at, name)} is missing")
    return hint(**{name: from_json(hints[name], each, _below(at, name)) for name, each in entries.items()})
