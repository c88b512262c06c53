"""The values of options and plan keys: every text is a value or one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from greenbench.choices import (
    parse_integers,
    parse_param,
    parse_seconds,
    parse_setting,
    parse_timing,
    parse_workqueue,
    parse_yardsticks,
)
from greenbench.errors import PlanError
from greenbench.schema import Scope, Timing
from greenbench.yardsticks import WAYS


@given(text=st.text(max_size=30) | st.from_regex(r"[a-z.]{0,8}=[0-9.,e-]{0,12}", fullmatch=True))
def test_any_setting_is_read_or_a_sentence(text: str) -> None:
    """Whatever follows --set: a name with distinct values, or a PlanError that starts with the option."""
    problem = ""
    try:
        setting = parse_setting(text)
    except PlanError as error:
        problem = str(error)
    if problem:
        assert problem.startswith("--set")
        return
    assert setting.name.isidentifier()
    assert setting.values
    assert len(set(setting.values)) == len(setting.values)


@given(value=st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_parameters_keep_value_and_type(value: int | float) -> None:
    """An integer stays an integer, a real a real, as text and as a number."""
    for given_value in (value, str(value)):
        read = parse_param(given_value, "n")
        assert (read, type(read)) == (value, type(value))


@given(text=st.text(max_size=15))
def test_any_word_is_a_value_or_a_sentence(text: str) -> None:
    """Every parser of an option answers any text with a value or with a PlanError that starts with the option."""
    for read in (
        lambda: parse_workqueue(text, "--x"),
        lambda: parse_yardsticks(text, "--x"),
        lambda: parse_integers(text, "--x", 1, 32),
        lambda: parse_seconds(text, "--x"),
        lambda: parse_param(text, "--x"),
        lambda: parse_timing(text, None, "--x"),
        lambda: parse_timing("cold", text, flush_place="--x"),
    ):
        value, problem = None, ""
        try:
            value = read()
        except PlanError as error:
            problem = str(error)
        assert (value is None) == problem.startswith("--x")


@given(names=st.lists(st.sampled_from(list(WAYS)), min_size=1, unique=True), spaced=st.booleans())
def test_yardsticks_are_a_set_of_names(names: list[str], spaced: bool) -> None:
    """As a list of a plan or as words of an option, in any order: the same choice, and read again it stays."""
    read = parse_yardsticks(names)
    assert parse_yardsticks((", " if spaced else ",").join(names)) == parse_yardsticks(list(read)) == read
    assert set(read) == set(names)


def test_cold_is_resolved_by_the_flush() -> None:
    """`cold` alone is clean; the two full names say it themselves."""
    assert parse_timing("cold", None) is Timing.COLD_CLEAN
    assert parse_timing("cold", "dirty") is Timing.COLD_DIRTY
    assert parse_timing("cold-dirty", None) is Timing.COLD_DIRTY
    assert parse_timing("cold-dirty", "dirty") is Timing.COLD_DIRTY
    with pytest.raises(PlanError, match="--flush: 'clean' is for cold timing and this is cold-dirty"):
        parse_timing("cold-dirty", "clean")
    assert parse_workqueue("balanced") == (Scope.GREEN_CTX_BALANCED,)
