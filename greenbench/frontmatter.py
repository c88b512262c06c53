"""The TOML comment at the top of a `.cu` file, read key by key with errors that name file, line and key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from greenbench.errors import KernelFileError
from greenbench.expr import FUNCTIONS, Expr, did_you_mean, parse
from greenbench.kernel import BUILT_IN_NAMES
from greenbench.tomlfile import DeepTomlError, TomlError, parse_toml

MAX_SIZE = 65536
HOW_TO_ADD = 'start the file with a comment "/* greenbench ... */" that holds TOML (family, summary, entry, args, [launch])'

Path = tuple[str | int, ...]

_SKIP = re.compile(r"\s+|//[^\n]*|/\*(?!\s*greenbench[ \t]*\n).*?\*/", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPEN = re.compile(r"/\*\s*greenbench[ \t]*(?=\n)")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''  # texts
    r'|\#[^\n]*|\n|[\[\]{}=,.]|[^\s\[\]{}=,."\'\#]+',  # comments, line ends, marks, bare words
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What the comment holds, and the line of the file on which each key stands."""

    file: str
    line: int
    table: Mapping[str, object]
    lines: Mapping[Path, int] = field(repr=False)

    def line_of(self, path: Path) -> int:
        """Return the line of the key, or of the nearest table around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)

    def error(self, path: Path, problem: str) -> KernelFileError:
        """Return an error that starts with file and line."""
        return KernelFileError(f"{self.file}:{self.line_of(path)}: {problem}")


def extract(file: str, source: str) -> FrontMatter:
    """Find and parse the front matter of a kernel's source."""
    position = 0
    while skipped := _SKIP.match(source, position):
        position = skipped.end()
    opened = _OPEN.match(source, position)
    if opened is None:
        raise KernelFileError(f"{file} has no front matter; {HOW_TO_ADD}")
    line = source.count("\n", 0, opened.start()) + 1
    end = source.find("*/", opened.end())
    if end < 0:
        raise KernelFileError(f"{file}:{line}: the front matter is never closed; end the comment with */")
    if end - opened.end() > MAX_SIZE:
        raise KernelFileError(f"{file}:{line}: the front matter is longer than {MAX_SIZE} characters")
    # Newlines in front make tomllib count the lines of the file, not of the comment.
    text = "\n" * (source.count("\n", 0, opened.end())) + source[opened.end() : end]
    return FrontMatter(file, line, _parse_toml(file, text), _positions(text))


def _parse_toml(file: str, text: str) -> dict[str, object]:
    try:
        return parse_toml(text)
    except DeepTomlError:
        raise KernelFileError(f"{file}: the front matter is nested too deeply") from None
    except TomlError as error:
        problem, _, where = str(error).partition(" (at ")
        found = re.search(r"line (\d+)", where)
        line = int(found.group(1)) if found else text.count("\n") + 1
        raise KernelFileError(f"{file}:{line}: the front matter is not valid TOML: {problem}") from None


class _Scanner:
    """Walks text that is known to be TOML and notes where each key stands, which tomllib does not tell."""

    def __init__(self, text: str) -> None:
        self.tokens = [(match.group(), text.count("\n", 0, match.start()) + 1) for match in _TOKEN.finditer(text)]
        self.at = 0
        self.lines: dict[Path, int] = {}

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self) -> tuple[str, int]:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def skip_blank(self) -> None:
        while self.peek() == "\n" or self.peek().startswith("#"):
            self.at += 1

    def key(self, ends: str) -> tuple[Path, int]:
        """Read a dotted key up to `=` or `]`."""
        parts: list[str | int] = []
        line = self.tokens[self.at][1]
        while self.peek() not in ("", *ends):
            token, _ = self.take()
            if token != ".":
                parts.append(token.strip("\"'"))
        return tuple(parts), line

    def pair(self, path: Path) -> None:
        key, line = self.key("=")
        self.lines.setdefault(path + key, line)
        self.at += 1
        self.value(path + key)

    def value(self, path: Path) -> None:
        opener = self.peek()
        if opener not in ("[", "{"):
            while self.peek() not in ("", ",", "]", "}", "\n") and not self.peek().startswith("#"):
                self.at += 1
            return
        self.at += 1
        for index in self.items("]" if opener == "[" else "}"):
            if opener == "{":
                self.pair(path)
            else:
                self.lines[(*path, index)] = self.tokens[self.at][1]
                self.value((*path, index))

    def items(self, closer: str) -> Iterator[int]:
        index = 0
        while True:
            self.skip_blank()
            if self.peek() in ("", closer):
                self.at += 1
                return
            if self.peek() == ",":
                self.at += 1
                continue
            yield index
            index += 1


def _positions(text: str) -> dict[Path, int]:
    """Return the line of every key and array item of valid TOML."""
    scanner = _Scanner(text)
    header: Path = ()
    counts: dict[Path, int] = {}
    scanner.skip_blank()
    while scanner.peek():
        if scanner.peek() == "[":
            scanner.at += 1
            many = scanner.peek() == "["
            scanner.at += many
            header, line = scanner.key("]")
            scanner.at += 1 + many
            scanner.lines.setdefault(header, line)
            if many:
                counts[header] = counts.get(header, -1) + 1
                header = (*header, counts[header])
                scanner.lines[header] = line
        else:
            scanner.pair(header)
        scanner.skip_blank()
    return scanner.lines


class Section:
    """One table of the front matter; reading a key checks its type, and unknown keys are refused at once."""

    def __init__(self, matter: FrontMatter, table: Mapping[str, object], path: Path, allowed: Collection[str] | None) -> None:
        self.matter = matter
        self.path = path
        self._table = table
        if allowed is None:
            return
        for key in table:
            if key not in allowed:
                choices = ", ".join(allowed)
                raise self.error(key, f"{self.name(key)} is not a key here{did_you_mean(key, allowed)}; allowed are {choices}")

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def name(self, key: str) -> str:
        """Return the key as a user would say it: `launch.grid`, `buffers[1].dtype`."""
        text = ""
        for part in (*self.path, key):
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text

    def error(self, key: str, problem: str) -> KernelFileError:
        """Return an error at the line of `key`."""
        return self.matter.error((*self.path, key), problem)

    def raw(self, key: str) -> object:
        """Return the value as TOML gave it; None if it is not there."""
        return self._table.get(key)

    def need(self, key: str, advice: str) -> None:
        """Refuse a table without `key`."""
        if key not in self._table:
            raise self.error(key, f"{self.name(key)} is missing; {advice}")

    def new_name(self, key: str, name: str, taken: Collection[str] = ()) -> str:
        """Return a name that expressions may use, once it is known to be one and not to be taken."""
        if not _NAME.fullmatch(name) or name in FUNCTIONS or name in BUILT_IN_NAMES:
            reserved = ", ".join((*BUILT_IN_NAMES, *FUNCTIONS))
            raise self.error(key, f"{name!r} cannot be a name; use letters, digits and _, but not {reserved}")
        if name in taken:
            raise self.error(key, f"the name {name!r} is used twice")
        return name

    def text(self, key: str, default: str = "") -> str:
        """Return a one-line text."""
        value = self._table.get(key, default)
        if not isinstance(value, str) or "\n" in value:
            raise self.error(key, f"{self.name(key)} is {value!r}; it must be one line of text in quotes")
        return value

    def choice(self, key: str, allowed: Collection[str], default: str = "") -> str:
        """Return a text that must be one of `allowed`."""
        value = self.text(key, default)
        if value not in allowed and not (value == default and key not in self._table):
            near = did_you_mean(value, allowed)
            raise self.error(key, f"{self.name(key)} is {value!r}{near}; allowed are {', '.join(allowed)}")
        return value

    def flag(self, key: str) -> bool:
        """Return a boolean, false if absent."""
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"{self.name(key)} is {value!r}; it must be true or false")
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """Return an integer of a range."""
        value = self._table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, f"{self.name(key)} is {value!r}; it must be an integer from {low} to {high}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty if absent."""
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, f'{self.name(key)} is {value!r}; it must be a list of texts, like ["a", "n"]')
        return tuple(value)

    def expr(self, key: str, names: Collection[str], *, reals: bool = False) -> Expr | None:
        """Return the expression, None if absent."""
        return self.parse(key, self._table[key], names, reals=reals) if key in self._table else None

    def parse(self, key: str, value: object, names: Collection[str], *, reals: bool = False) -> Expr:
        """Read `value`, which stands under `key`, as an expression."""
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise self.error(key, f"{self.name(key)} is {value!r}; it must be an integer or integer arithmetic in quotes")
        place = f"{self.matter.file}:{self.matter.line_of((*self.path, key))}: {self.name(key)}"
        return parse(value, names, place, reals=reals)

    def section(self, key: str, allowed: Collection[str] | None) -> Section:
        """Return the table under `key`, an empty one if absent."""
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"{self.name(key)} is {value!r}; it must be a table")
        return Section(self.matter, value, (*self.path, key), allowed)

    def sections(self, key: str, allowed: Collection[str]) -> list[Section]:
        """Return the array of tables under `key`, empty if absent."""
        value = self._table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"{self.name(key)} must be a list of tables")
        return [Section(self.matter, item, (*self.path, key, index), allowed) for index, item in enumerate(value)]


__all__ = ["HOW_TO_ADD", "FrontMatter", "Path", "Section", "extract"]
