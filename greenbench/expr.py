"""Integer arithmetic of front matter (`ceil_div(n, 256) * sms`): parsed once into a small tree, evaluated without `eval`."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from greenbench.errors import KernelFileError

MAX_LENGTH = 400
MAX_DEPTH = 100
LIMIT = 2**63 - 1
ALLOWED = "integers, names, + - * // %, parentheses, min, max and ceil_div"

Node: TypeAlias = "int | str | tuple[Node, ...]"
Number: TypeAlias = int | float

_BINARY: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_OPERATIONS: dict[str, Callable[..., Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "neg": lambda a: -a,
    "min": min,
    "max": max,
    "ceil_div": lambda a, b: -(-a // b),
}
FUNCTIONS = ("min", "max", "ceil_div")


class ExprError(KernelFileError):
    """An expression cannot be read or has no value."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A parsed expression; `place` (file, line and key) heads the text of its errors."""

    text: str
    tree: Node = field(repr=False)
    place: str = field(default="", compare=False, repr=False)
    reals: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Names that the expression reads."""
        return frozenset(_names(self.tree))

    def value(self, env: Mapping[str, Number]) -> int:
        """Return the value; a real operand is an error unless the expression was parsed with `reals`, and is cut off then."""
        for name in sorted(self.names):
            if not self.reals and isinstance(env.get(name), float):
                raise self._error(f"uses {name} = {env[name]}, but only flops and bytes may use a real")
        try:
            return int(_evaluate(self.tree, env))
        except ZeroDivisionError:
            raise self._error("divides by zero") from None
        except _ValueProblem as problem:
            raise self._error(str(problem)) from None

    def _error(self, text: str) -> ExprError:
        return _error(self.place, self.text, text)


class _ValueProblem(Exception):
    """Raised inside an evaluation, where the expression's text is not at hand."""


def parse(text: str | int, names: Collection[str], place: str = "", *, reals: bool = False) -> Expr:
    """Read an expression over `names`, or raise ExprError saying what is wrong and what is allowed."""
    if isinstance(text, int) and not isinstance(text, bool):
        return Expr(str(text), _literal(text, str(text), place), place, reals)
    if not isinstance(text, str):
        raise _error(place, text, "is neither an integer nor a text of integer arithmetic")
    _check_text(text, place)
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _error(place, text, f"cannot be read; allowed are {ALLOWED}") from None
    return Expr(text.strip(), _convert(body, names, text.strip(), place, 0), place, reals)


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for a near miss, else an empty string."""
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _error(place: str, text: object, problem: str) -> ExprError:
    shown = text if len(str(text)) <= 60 else f"{str(text)[:57]}..."
    return ExprError(f"{place} {shown!r} {problem}".strip())


def _check_text(text: str, place: str) -> None:
    """Refuse what the grammar has no place for, before Python's parser sees it (and warns of it)."""
    if not text.strip():
        raise _error(place, text, "is empty; write integer arithmetic such as 'ceil_div(n, 256)'")
    if len(text) > MAX_LENGTH:
        raise _error(place, text, f"has {len(text)} characters, {MAX_LENGTH} at most; name parts of it in [let]")
    if stranger := re.search(r"[^A-Za-z0-9_ \t\n()+\-*/%,]", text):
        raise _error(place, text, f"contains {stranger.group()!r}; allowed are {ALLOWED}")
    if "**" in text:
        raise _error(place, text, "uses **; write n * n")
    if re.search(r"(?<!/)/(?!/)", text):
        raise _error(place, text, "uses /; write // (rounds down) or ceil_div(a, b) (rounds up)")
    if number := re.search(r"(?<![A-Za-z0-9_])[0-9][0-9_]*[A-Za-z]\w*", text):
        raise _error(place, text, f"contains {number.group()!r}; write integers in decimal digits")


def _literal(value: int, text: str, place: str) -> int:
    if abs(value) > LIMIT:
        raise _error(place, text, "does not fit in 64 bits")
    return value


def _convert(node: ast.expr, names: Collection[str], text: str, place: str, depth: int) -> Node:
    """Turn Python's syntax tree into ours, which holds nothing but what may be evaluated."""
    if depth > MAX_DEPTH:
        raise _error(place, text, f"is nested more than {MAX_DEPTH} deep; name parts of it in [let]")

    def inner(*nodes: ast.expr) -> tuple[Node, ...]:
        return tuple(_convert(each, names, text, place, depth + 1) for each in nodes)

    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return _literal(value, text, place)
        case ast.Name(id=name) if name in names:
            return name
        case ast.Name(id=name):
            known = ", ".join(sorted(names)) or "none"
            raise _error(place, text, f"uses {name!r}{did_you_mean(name, names)}; known are {known}")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ("neg", *inner(operand))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return inner(operand)[0]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            return (_BINARY[type(operator)], *inner(left, right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) < 2 or (name == "ceil_div" and len(args) > 2):
                wanted = "two arguments" if name == "ceil_div" else "two or more arguments"
                raise _error(place, text, f"gives {name} {len(args)}; it takes {wanted}")
            return (name, *inner(*args))
    raise _error(place, text, f"contains {ast.unparse(node)!r}; allowed are {ALLOWED}")


def _names(node: Node) -> Iterable[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, tuple):
        for part in node[1:]:
            yield from _names(part)


def _evaluate(node: Node, env: Mapping[str, Number]) -> Number:
    if isinstance(node, int):
        return node
    if isinstance(node, str):
        if node not in env:
            raise _ValueProblem(f"uses {node}, which has no value here")
        result: Number = env[node]
    else:
        operation, *operands = node
        result = _OPERATIONS[str(operation)](*(_evaluate(each, env) for each in operands))
    if not abs(result) <= LIMIT:  # also catches NaN
        raise _ValueProblem("reaches a value that does not fit in 64 bits")
    return result


__all__ = ["ALLOWED", "FUNCTIONS", "LIMIT", "Expr", "ExprError", "Number", "did_you_mean", "parse"]
