"""Sets of intervals against a model that marks every single ns."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, strategies as st

from greenbench.timeline.intervals import (
    Ints,
    Spans,
    coded,
    difference,
    intersection,
    merge,
    most_at_once,
    overlap,
    time_by_active,
    total,
    union,
)

MOST = 60
Pairs = list[tuple[int, int]]
some_intervals = st.lists(st.tuples(st.integers(0, MOST), st.integers(0, MOST)).map(sorted).map(tuple), max_size=12)


def columns(pairs: Pairs) -> tuple[Ints, Ints]:
    """Starts and ends as arrays."""
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def spans(pairs: Pairs) -> Spans:
    """The union of some intervals."""
    return merge(*columns(pairs))


def marked(pairs: Pairs) -> set[int]:
    """The model: every ns that is covered."""
    return {ns for start, end in pairs for ns in range(start, end)}


def covered(found: Spans) -> set[int]:
    """Every ns of a set, whose intervals must be in order and apart."""
    assert (found.end > found.start).all()
    assert (found.start[1:] > found.end[:-1]).all()
    return marked(list(zip(found.start.tolist(), found.end.tolist(), strict=True)))


@given(some_intervals, some_intervals)
def test_sets_are_those_of_the_model(a: Pairs, b: Pairs) -> None:
    """Union, intersection, difference, lengths and overlap agree with marked ns; touching intervals do not overlap."""
    x, y = spans(a), spans(b)
    assert covered(x) == marked(a)
    assert x.length == len(marked(a))
    assert covered(union(x, y)) == marked(a) | marked(b)
    assert covered(intersection(x, y)) == marked(a) & marked(b)
    assert covered(difference(x, y)) == marked(a) - marked(b)
    assert overlap(x, y) == overlap(y, x) == len(marked(a) & marked(b))


@given(some_intervals, st.lists(st.tuples(st.integers(-5, MOST + 5), st.integers(-5, MOST + 5)).map(sorted), max_size=5))
def test_windows_are_those_of_the_model(a: Pairs, windows: list[list[int]]) -> None:
    """The covered part of any window is exact, also before the first and after the last interval."""
    start, end = columns([(low, high) for low, high in windows])
    found = spans(a).covered_within(start, end)
    assert found.tolist() == [len(marked(a) & set(range(low, high))) for low, high in windows]


@given(some_intervals)
def test_gaps_fill_the_span(a: Pairs) -> None:
    """Gaps and intervals together are everything from the first start to the last end."""
    found = spans(a)
    inside = marked(a)
    expected = set(range(min(inside), max(inside) + 1)) - inside if inside else set()
    assert covered(found.gaps()) == expected


@given(some_intervals)
def test_most_at_once_is_that_of_the_model(a: Pairs) -> None:
    """The largest number of open intervals; one that ends when another starts is not beside it."""
    assert most_at_once(*columns(a)) == max((sum(low <= ns < high for low, high in a) for ns in range(MOST)), default=0)


@given(st.lists(some_intervals, max_size=4))
def test_time_by_active_is_that_of_the_model(sets: list[Pairs]) -> None:
    """Every ns of the span is counted once, under the number of sets that cover it."""
    found = time_by_active([spans(each) for each in sets])
    models = [marked(each) for each in sets]
    every = set().union(*models) if models else set()
    expected: dict[int, int] = {0: 0} if every else {}
    for ns in range(min(every, default=0), max(every, default=-1) + 1):
        active = sum(ns in model for model in models)
        expected[active] = expected.get(active, 0) + 1
    assert found == expected
    assert sum(found.values()) == (max(every) + 1 - min(every) if every else 0)
    pairs = sum(len(a & b) for a, b in combinations(models, 2))
    assert pairs == sum(ns * active * (active - 1) // 2 for active, ns in found.items())


@given(st.lists(st.integers(-(1 << 62), (1 << 62) - 1), max_size=30))
def test_totals_leave_64_bits(values: list[int]) -> None:
    """Sums are exact even where they do not fit an array's element."""
    assert total(np.array(values, np.int64)) == sum(values)


@given(st.lists(st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=20))
def test_codes_lead_back(values: list[int]) -> None:
    """Distinct values ascend, and the codes give back what was coded."""
    found, code = coded(np.array(values, np.int64))
    assert found.tolist() == sorted(set(values))
    assert found[code].tolist() == values
