"""TOML as people write it, read without waiting for what is no file, and with every fault in words of ours."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from greenbench.storage import why_no_file

# Far beyond every limit of a key, and still short enough to be shown.
MOST_BITS = 4096


class TomlError(ValueError):
    """The text is not TOML, or not such as greenbench can mean; the text of the error goes behind a colon."""


class DeepTomlError(TomlError):
    """The tables or lists of the text stand in each other so deeply that Python cannot read it."""


def parse_toml(text: str) -> dict[str, object]:
    """Return the table of a text; raises TomlError."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise DeepTomlError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from error
    except ValueError as error:
        # Python reads no integer of thousands of digits, and says how a program would change that; dates have limits too.
        told = "an integer has thousands of digits" if "set_int_max_str_digits" in str(error) else str(error)
        raise TomlError(told) from None
    if any(value.bit_length() > MOST_BITS for value in _integers(table)):
        raise TomlError("an integer has thousands of digits")
    return table


def _integers(table: object) -> Iterator[int]:
    """Yield the integers of a table, however deep; a list in place of a recursion, since TOML may be nested deeply."""
    left = [table]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int):
            yield value


def read_toml(path: Path, what: str, error: type[Exception]) -> dict[str, object]:
    """Return the table of a file; raises `error` with a sentence that begins with `what` and the path."""
    if problem := why_no_file(path):
        raise error(f"{what} {path} {problem}; give a .toml file")
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError as problem_of_disk:
        told = (problem_of_disk.strerror or str(problem_of_disk)).lower()
        raise error(f"{what} {path} cannot be read: {told}") from problem_of_disk
    except ValueError as problem_of_text:
        raise error(f"{what} {path} is not TOML: {problem_of_text}") from problem_of_text
