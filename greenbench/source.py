"""CUDA C++ as text: reading a file, and what can be told of it without a compiler (parameters of an entry, headers)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from greenbench.errors import KernelFileError
from greenbench.storage import why_no_file

MAX_SOURCE = 4 * 2**20

_COMMENT_OR_LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)
# Lines of // from that word on, to one that is empty or no comment.
_LIMITS = re.compile(r"^// Limited by[^\n]*(?:\n//[ \t]*[^\s][^\n]*)*", re.MULTILINE)
_BOUNDS = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")
_INTEGERS = frozenset(
    (
        *("char", "short", "int", "long", "unsigned", "signed", "bool", "size_t", "ptrdiff_t"),
        *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
_QUALIFIERS = frozenset({"const", "volatile", "__restrict__", "restrict", "__grid_constant__", "register"})


class Kind(StrEnum):
    """How a parameter is passed, as far as the text tells; a typedef or macro is unknown."""

    POINTER = "pointer"
    INTEGER = "integer"
    REAL = "real"
    TENSOR_MAP = "tensor map"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, with its declaration as written."""

    name: str
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One __global__ function found in the text."""

    parameters: tuple[Parameter, ...]
    extern_c: bool


def read_source(path: Path) -> str:
    """Return the text of a source file with Unix line ends, or say in one sentence why there is none."""
    if problem := why_no_file(path):
        raise KernelFileError(f"{path} {problem}; a kernel is a .cu file")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise KernelFileError(f"{path}: no such kernel file") from None
    except OSError as error:
        raise KernelFileError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_SOURCE:
        raise KernelFileError(f"{path} has {len(data)} bytes; a kernel file may have {MAX_SOURCE}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise KernelFileError(f"{path.name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save it as UTF-8") from None
    if not text.strip():
        raise KernelFileError(f"{path} is empty; copy a file of the built-in library to start from")
    return text.replace("\r\n", "\n")


def limits_of(source: str) -> str:
    """Return what the first comment that begins with "Limited by" says up to its first blank line, as one line."""
    found = _LIMITS.search(source)
    return " ".join(line.strip().removeprefix("//").strip() for line in found.group().splitlines()) if found else ""


def strip_comments(source: str) -> str:
    """Blank out comments, keeping literals and line numbers."""

    def blank(match: re.Match[str]) -> str:
        text = match.group()
        return re.sub(r"[^\n]", " ", text) if text.startswith("/") else text

    return _COMMENT_OR_LITERAL.sub(blank, source)


def includes(code: str) -> tuple[tuple[str, bool], ...]:
    """Return (header, in quotes) for every #include of comment-free text."""
    return tuple((match.group(1) or match.group(2), match.group(2) is not None) for match in _INCLUDE.finditer(code))


def own_headers(path: Path, code: str, include: Sequence[str]) -> list[str]:
    """Return the text of the headers that lie beside the kernel or in its `include` folders, and of theirs."""
    return list(_headers(path, code, include)[0].values())


def foreign_headers(path: Path, code: str, include: Sequence[str]) -> tuple[str, ...]:
    """Return the headers that lie in none of those places, so that a toolkit must have them."""
    return tuple(dict.fromkeys(_headers(path, code, include)[1]))


def _headers(path: Path, code: str, include: Sequence[str]) -> tuple[dict[Path, str], list[str]]:
    found: dict[Path, str] = {}
    missing: list[str] = []
    waiting = [(path.parent, code)]
    while waiting:
        folder, text = waiting.pop()
        for header, quoted in includes(text):
            places = ([folder] if quoted else []) + [path.parent / each for each in include]
            file = next((place / header for place in places if (place / header).is_file()), None)
            if file is None:
                missing.append(header)
            elif file.resolve() not in found:
                found[file.resolve()] = strip_comments(read_source(file))
                waiting.append((file.parent, found[file.resolve()]))
    return found, missing


def global_names(code: str) -> tuple[str, ...]:
    """Return the names of the __global__ functions in comment-free text."""
    names = []
    for match in re.finditer(r"\b__global__\b([^;{]*)", code):
        found = re.search(r"([A-Za-z_]\w*)\s*\(", _BOUNDS.sub("", match.group(1)))
        if found:
            names.append(found.group(1))
    return tuple(dict.fromkeys(names))


def definitions(code: str, entry: str) -> list[Definition]:
    """Return every __global__ function called `entry` in comment-free text; several if #if chooses among them."""
    block = re.search(r'extern\s+"C"\s*\{', code) is not None
    found = []
    for match in re.finditer(rf"\b{re.escape(entry)}\s*\(", code):
        head = code[max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1 : match.start()]
        if not re.search(r"\b__global__\b", head):
            continue
        pieces = _split(code, match.end())
        if pieces is not None:
            extern_c = block or re.search(r'extern\s+"C"', head) is not None
            found.append(Definition(tuple(_parameter(piece) for piece in pieces), extern_c))
    return found


def _split(code: str, start: int) -> list[str] | None:
    """Split a parameter list that begins at `start` at its outermost commas; None if it never ends."""
    depth, piece, pieces = 1, "", []
    for character in code[start:]:
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        if depth == 0:
            pieces.append(piece)
            break
        if character == "," and depth == 1:
            pieces.append(piece)
            piece = ""
        else:
            piece += character
    else:
        return None
    pieces = [" ".join(each.split()) for each in pieces]
    return [] if pieces in ([""], ["void"]) else pieces


def _parameter(text: str) -> Parameter:
    words = re.findall(r"[A-Za-z_]\w*", text.partition("=")[0])
    name = words[-1] if len(words) > 1 or "*" in text else ""
    types = {word for word in words if word != name and word not in _QUALIFIERS}
    if "*" in text or "[" in text:
        kind = Kind.POINTER
    elif types == {"CUtensorMap"}:
        kind = Kind.TENSOR_MAP
    elif types and types <= _INTEGERS:
        kind = Kind.INTEGER
    elif types in ({"float"}, {"double"}):
        kind = Kind.REAL
    else:
        kind = Kind.UNKNOWN
    return Parameter(name or text, kind, text)


__all__ = [
    "Definition",
    "Kind",
    "Parameter",
    "definitions",
    "foreign_headers",
    "global_names",
    "includes",
    "limits_of",
    "own_headers",
    "read_source",
    "strip_comments",
]
