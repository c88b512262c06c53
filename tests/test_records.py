"""Any record comes back exactly: strategies are drawn from the same type hints that the writers and readers follow."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.errors import ResultFileError
from greenbench.journal import NEVER_NEGATIVE, Journal, read_journal
from greenbench.records import columns
from greenbench.runfiles import read_meta, read_rows, write_meta, write_rows
from greenbench.schema import Block, BlockKind, Point, Row, RunMeta

# Newlines, quotes and separators are what a CSV writer gets wrong; surrogates cannot be UTF-8 and are tested apart.
NASTY = ('a"b', "x\r\ny", "a,b;c", '"', "\r", "\n", "=")
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(NASTY)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type hint."""
    if get_origin(hint) in (Union, UnionType):
        return st.one_of([values(each) for each in get_args(hint)])
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if items[-1] is Ellipsis:
            return st.lists(values(items[0]), max_size=3).map(tuple)
        return st.tuples(*(values(each) for each in items))
    if get_origin(hint) is dict:
        return st.dictionaries(TEXT, values(get_args(hint)[1]), max_size=2)
    if dataclasses.is_dataclass(hint):
        return records(hint)
    if issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    simple = {object: JSON, NoneType: st.none(), bool: st.booleans(), int: st.integers(-(2**63), 2**63), float: FINITE, str: TEXT}
    return simple[hint]


def records(record: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of a dataclass, every field drawn."""
    hints = get_type_hints(record)
    return st.builds(record, **{field.name: values(hints[field.name]) for field in dataclasses.fields(record)})


def possible(block: Block) -> Block:
    """Return the block with the sign taken off what is never negative: a journal with such a number is refused."""

    def bare(value: Any) -> Any:
        return tuple(map(abs, value)) if isinstance(value, tuple) else value if value is None else abs(value)

    return replace(block, **{name: bare(getattr(block, name)) for name in NEVER_NEGATIVE})


@given(drawn=st.lists(records(Block), max_size=4))
@settings(max_examples=60)
def test_every_block_comes_back_exactly(drawn: list[Block]) -> None:
    """Any block, with quotes, newlines and every float, is read back equal: types come from the hints, not from a list here."""
    items = [replace(possible(block), seq=seq, kind=BlockKind.BLOCK) for seq, block in enumerate(drawn)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blocks.csv"
        with Journal(path) as journal:
            for block in items:
                journal.append(block)
        assert read_journal(path) == items


@given(meta=records(RunMeta))
@settings(max_examples=40)
def test_run_json_comes_back_exactly(meta: RunMeta) -> None:
    """run.json of anything the schema allows is read back equal: nested records, enums, tuples, mixed parameters."""
    meta = replace(meta, schema=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        write_meta(path, meta)
        back = read_meta(path)
    assert back == meta
    kinds = [type(value) for point in meta.points for _, value in point.params]
    assert [type(value) for point in back.points for _, value in point.params] == kinds, "3 and 3.0 are different parameters"


@given(drawn=st.lists(records(Row), max_size=3))
@settings(max_examples=40)
def test_rows_are_a_fixed_point(drawn: list[Row]) -> None:
    """rows.csv keeps texts and integers exactly and floats to seven digits; what was read is written as it was."""
    rows = [replace(row, schema=1) for row in drawn]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_rows(path, rows)
        back, data = read_rows(path), path.read_bytes()
        write_rows(path, back)
        assert path.read_bytes() == data
    for before, after in zip(rows, back, strict=True):
        for field in dataclasses.fields(Row):
            old, new = getattr(before, field.name), getattr(after, field.name)
            assert new == (pytest.approx(old, rel=1e-6) if isinstance(old, float) else old), field.name


def test_a_field_without_a_form_is_found_at_once() -> None:
    """A column whose empty cell would be ambiguous, or whose type has no cell, is told when the columns are made."""

    @dataclass(frozen=True)
    class Ambiguous:
        name: str | None = None

    @dataclass(frozen=True)
    class Nested:
        point: Point

    with pytest.raises(TypeError, match="name: an empty cell cannot tell None from an empty text"):
        columns(Ambiguous)
    with pytest.raises(TypeError, match=r"point: .* has no form in a CSV cell"):
        columns(Nested)


@given(tree=JSON)
def test_any_json_is_a_run_or_a_sentence(tree: object) -> None:
    """Whatever JSON stands in run.json, reading it is a run or a ResultFileError with the path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_text(json.dumps(tree), encoding="utf-8")
        with pytest.raises(ResultFileError, match=r"run\.json"):
            read_meta(path)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_table_or_a_sentence(data: bytes) -> None:
    """Whatever bytes stand in rows.csv or blocks.csv, reading is a table or a ResultFileError with the path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "foreign.csv"
        path.write_bytes(data)
        with pytest.raises(ResultFileError, match=r"foreign\.csv"):
            read_rows(path)
        if data and not data.startswith(b"s"):
            with pytest.raises(ResultFileError, match=r"foreign\.csv"):
                read_journal(path)
