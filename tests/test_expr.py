"""Expressions of front matter: they agree with Python's arithmetic, and whatever cannot be read is told in one sentence."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from greenbench.errors import KernelFileError
from greenbench.expr import LIMIT, MAX_DEPTH, MAX_LENGTH, Expr, ExprError, parse

ENV = {"n": 1000, "m": -7, "sms": 132, "zero": 0}
NAMES = set(ENV)

Thunk = Callable[[], int]
Sample = tuple[str, Thunk]


class TooLargeError(Exception):
    """Python's own integers have no limit, so the model says where ours is passed."""


def bounded(value: int) -> int:
    """Return the value if it fits in 64 bits."""
    if abs(value) > LIMIT:
        raise TooLargeError
    return value


def binary(left: Sample, operator: str, right: Sample) -> Sample:
    """Return the text of an operation with Python's own value of it."""
    operations: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
    }
    return f"({left[0]}) {operator} ({right[0]})", lambda: bounded(operations[operator](left[1](), right[1]()))


def call(name: str, arguments: list[Sample]) -> Sample:
    """Return the text of a call with Python's own value of it."""
    functions: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceil_div": lambda a, b: -(-a // b)}
    used = arguments[:2] if name == "ceil_div" else arguments
    text = ", ".join(text for text, _ in used)
    return f"{name}({text})", lambda: bounded(functions[name](*(value() for _, value in used)))


def negative(operand: Sample) -> Sample:
    """Return the negated text and value."""
    return f"-({operand[0]})", lambda: -operand[1]()


leaves = st.one_of(
    st.integers(0, 10**6).map(lambda value: (str(value), lambda: value)),
    st.sampled_from(sorted(ENV)).map(lambda name: (name, lambda: ENV[name])),
)
samples = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(binary, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner),
        st.builds(call, st.sampled_from(["min", "max", "ceil_div"]), st.lists(inner, min_size=2, max_size=3)),
        inner.map(negative),
    ),
    max_leaves=12,
)


@given(samples.filter(lambda sample: len(sample[0]) <= MAX_LENGTH))
def test_values_are_those_of_python(sample: Sample) -> None:
    """Every expression has Python's value; where Python divides by zero or we pass 64 bits, it is an ExprError."""
    text, expected = sample
    expr = parse(text, NAMES)
    try:
        wanted = expected()
    except (ZeroDivisionError, TooLargeError):
        with pytest.raises(ExprError):
            expr.value(ENV)
    else:
        assert expr.value(ENV) == wanted


def test_precedence_is_that_of_python() -> None:
    """Without parentheses, operators bind as in Python."""
    assert parse("n + 2 * 3 - -n // 7 % 5", NAMES).value(ENV) == 1000 + 2 * 3 - -1000 // 7 % 5
    assert parse(" ceil_div(n,\n 256) ", NAMES).value(ENV) == 4
    assert parse("+n", NAMES).value(ENV) == 1000


@given(st.one_of(st.text(max_size=60), st.text("nms019 ()+-*/%,.'\"\\_=:[]#\n", max_size=40)))
def test_no_text_raises_anything_else(text: str) -> None:
    """Whatever stands in a file is an expression with a value or an ExprError, never another exception or a warning."""
    with suppress(ExprError):
        assert isinstance(parse(text, NAMES).value(ENV), int)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("n +", "cannot be read"),
        ("n n", "cannot be read"),
        ("(" * 30 + "n", "cannot be read"),
        ("010", "cannot be read"),
        ("n ** 2", "uses **; write n * n"),
        ("n / 2", "uses /; write // (rounds down) or ceil_div(a, b) (rounds up)"),
        ("n.real", "contains '.'"),
        ("__import__('os')", 'contains "\'"'),
        ("n > 2", "contains '>'"),
        ("n if n else 2", "contains 'n if n else 2'; allowed are integers"),
        ("lambda", "cannot be read"),
        ("True", "contains 'True'"),
        ("1e9", "contains '1e9'; write integers in decimal digits"),
        ("0x10", "contains '0x10'"),
        ("5or 6", "contains '5or'"),
        ("q + 1", "uses 'q'; known are m, n, sms, zero"),
        ("sm * 2", "uses 'sm' (did you mean sms?)"),
        ("min", "uses 'min'"),
        ("abs(n)", "contains 'abs(n)'"),
        ("min(n)", "gives min 1; it takes two or more arguments"),
        ("ceil_div(n, 2, 3)", "gives ceil_div 3; it takes two arguments"),
        ("max(*n, 2)", "contains '*n'"),
        ("n, 2", "contains '(n, 2)'"),
        ("9" * 20, "does not fit in 64 bits"),
        ("9" * 399, "does not fit in 64 bits"),
        ("n+" * 201, "has 402 characters, 400 at most"),
        ("-" * (MAX_DEPTH + 5) + "n", "is nested more than 100 deep"),
    ],
)
def test_refusals_say_what_is_wrong_and_what_is_allowed(text: str, problem: str) -> None:
    """Each kind of mistake has its own sentence, headed by the place that was given."""
    with pytest.raises(ExprError) as caught:
        parse(text, NAMES, "k.cu:3: launch.grid")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("k.cu:3: launch.grid ")


@pytest.mark.parametrize("value", [True, 1.5, None, [1]])
def test_only_integers_and_texts_are_expressions(value: object) -> None:
    """Other TOML values are refused, booleans too, though Python counts them as integers."""
    with pytest.raises(ExprError, match="neither an integer nor a text"):
        parse(value, NAMES)  # type: ignore[arg-type]


def test_evaluation_errors_name_the_place_and_the_reason() -> None:
    """What only shows with values (zero, size, missing names) is told with place and text."""
    for text, problem in (
        ("n // zero", "divides by zero"),
        ("n % zero", "divides by zero"),
        ("ceil_div(n, zero)", "divides by zero"),
        ("n * 9000000000000000000", "64 bits"),
    ):
        with pytest.raises(ExprError, match=problem) as caught:
            parse(text, NAMES, "k.cu:3: work.flops").value(ENV)
        assert str(caught.value).startswith(f"k.cu:3: work.flops {text!r} ")
    with pytest.raises(ExprError, match="uses n, which has no value here"):
        parse("n + 1", NAMES).value({})
    with pytest.raises(ExprError, match="64 bits"):
        parse("n", NAMES).value({"n": 2**70})


def test_reals_are_for_work_only() -> None:
    """A real operand is refused unless the key allows reals; then the value is cut off to an integer."""
    env = {"n": 10, "s": 2.5}
    with pytest.raises(ExprError, match=r"uses s = 2\.5, but only flops and bytes may use a real"):
        parse("n * s", env).value(env)
    assert parse("n * s", env, reals=True).value(env) == 25
    assert parse("n * s + 1", env, reals=True).value({"n": 1, "s": 0.7}) == 1
    for odd in (float("inf"), float("nan"), 1e300):
        with pytest.raises(ExprError, match="64 bits"):
            parse("n * s", env, reals=True).value({"n": 10, "s": odd})


def test_expressions_travel_and_compare() -> None:
    """An Expr can be sent to a worker, equals one of the same text wherever that stood, and knows its names."""
    expr = parse("ceil_div(n, 4) * sms", NAMES, "a.cu:1: launch.grid")
    assert pickle.loads(pickle.dumps(expr)) == expr == parse("ceil_div(n, 4) * sms", NAMES)
    assert expr != parse("ceil_div(n, 4) * m", NAMES)
    assert expr.names == {"n", "sms"}
    assert parse(256, NAMES) == Expr("256", 256)
    assert issubclass(ExprError, KernelFileError)
