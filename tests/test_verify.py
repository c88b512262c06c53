"""Fills and references: right results pass, and every way of being wrong that a schedule can bring about does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from greenbench import fills, verify
from greenbench.errors import KernelFileError

Buffers = dict[str, Any]
REALS = ["float64", "float32", "tf32", "float16", "bfloat16", "e4m3"]
INTEGERS = ["int32", "uint32", "int64", "uint64", "uint8"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let arrays of a few thousand elements cross the borders of chunks and blocks."""
    monkeypatch.setattr(fills, "CHUNK", 1000)
    monkeypatch.setattr(fills, "BLOCK", 700)


def passes(name: str, buffers: Buffers, cache: dict[str, Any] | None = None, **params: float) -> bool:
    error, tolerance, detail = verify.check(name, np, buffers, params, {} if cache is None else cache)
    assert detail
    return error <= tolerance


def values(kind: str, dtype: str, count: int, seed: int = 3) -> Any:
    return verify.fill(np, kind, dtype, count, seed)


def as_float(array: Any, dtype: str) -> Any:
    return fills.from_stored(np, array) if dtype in ("bfloat16", "e4m3") else array


# ---- fills


@pytest.mark.parametrize("dtype", REALS + INTEGERS)
@pytest.mark.parametrize("kind", ["index", "normal", "integer", "poison", "zero"])
def test_a_fill_is_fixed_by_its_seed(kind: str, dtype: str) -> None:
    """Two calls give the same bits; another seed gives others where the kind depends on it."""
    if (kind == "normal" and dtype in INTEGERS) or (kind == "integer" and dtype.startswith("u")):
        with pytest.raises(KernelFileError, match=f"no fill '{kind}' for {dtype}"):
            values(kind, dtype, 10)
        return
    first = values(kind, dtype, 2500)
    assert first.dtype == np.dtype(verify.storage_dtype(dtype))
    assert first.tobytes() == values(kind, dtype, 2500).tobytes()
    if kind not in ("poison", "zero"):
        assert first.tobytes() != values(kind, dtype, 2500, seed=4).tobytes()


@pytest.mark.parametrize("kind", ["index", "normal", "integer"])
def test_a_longer_fill_starts_like_a_shorter_one(kind: str) -> None:
    """Chunks and blocks leave no seam: beyond the first block, the elements do not depend on the count."""
    assert np.array_equal(values(kind, "float32", 2500)[:1500], values(kind, "float32", 1500))


@pytest.mark.parametrize("dtype", REALS)
def test_index_fill_is_exact_and_has_no_power_of_two_as_period(dtype: str) -> None:
    """Every value is a multiple of 1/8 that the type holds, neighbours differ, and a shift by a tile never matches."""
    array = as_float(values("index", dtype, 5000), dtype).astype(np.float64)
    assert np.array_equal(array * 8, np.round(array * 8))
    assert abs(array).max() <= {"bfloat16": 16, "e4m3": 2}.get(dtype, 64)
    for shift in [1, *(2**p for p in range(1, 12))]:
        assert np.mean(array[shift:] == array[:-shift]) < 0.05


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_index_fill_of_integers_tells_places_apart(dtype: str) -> None:
    """No two of 5000 elements are equal, so that any element that is read twice changes a sum."""
    assert len(np.unique(values("index", dtype, 5000))) == 5000


def test_normal_fill_is_normal_and_its_laps_are_rotated() -> None:
    """Mean and deviation are those of N(0, 1), and a later lap does not repeat the first at any multiple of its length."""
    array = values("normal", "float32", 2100)
    assert abs(array.mean()) < 0.1
    assert abs(array.std() - 1) < 0.1
    assert not np.array_equal(array[:700], array[700:1400])
    assert np.array_equal(np.sort(array[:700]), np.sort(array[700:1400]))


def test_integer_fill_covers_small_integers() -> None:
    """Values are -2 to 2, all of them present."""
    assert set(np.unique(values("integer", "float32", 2100))) == {-2, -1, 0, 1, 2}
    assert set(np.unique(as_float(values("integer", "bfloat16", 2100), "bfloat16"))) == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize("dtype", REALS)
def test_poison_is_nan(dtype: str) -> None:
    """An element that a kernel forgets is NaN."""
    assert np.isnan(as_float(values("poison", dtype, 10), dtype)).all()


@given(nodes=st.integers(1, 400), seed=st.integers(0, 2**32))
def test_cycle_fill_is_a_single_cycle(nodes: int, seed: int) -> None:
    """From any node, every node is met once before the first returns; offsets are those of lines, other words are zero."""
    array = verify.fill(np, "cycle", "uint64", 16 * nodes, seed).reshape(nodes, 16)
    assert not array[:, 1:].any()
    at, seen = 0, set()
    for _ in range(nodes):
        assert at % 128 == 0
        seen.add(at)
        at = int(array[at // 128, 0])
    assert at == 0
    assert len(seen) == nodes


def test_cycle_fill_needs_words_of_eight_bytes_and_whole_lines() -> None:
    """Other types and ragged lines are refused with the number that is wrong."""
    with pytest.raises(KernelFileError, match="no fill 'cycle' for float32"):
        values("cycle", "float32", 32)
    with pytest.raises(KernelFileError, match="has 24 words"):
        values("cycle", "uint64", 24)


def test_an_unknown_fill_names_the_known_ones() -> None:
    """The error lists what there is."""
    with pytest.raises(KernelFileError, match="'zeros' is unknown; there are poison, zero"):
        values("zeros", "float32", 4)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_bfloat16_rounds_to_nearest_even_and_keeps_nan(reals: list[float]) -> None:
    """The result is one of the two neighbours, never the farther one; ties go to the even one."""
    array = np.array(reals, dtype=np.float32)
    with np.errstate(over="ignore"):
        rounded = verify.from_bf16(np, verify.to_bf16(np, array))
        below = (array.view(np.uint32) & 0xFFFF0000).view(np.float32)
        above = ((array.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    assert np.array_equal(np.isnan(array), np.isnan(rounded))
    fine = np.isfinite(array) & np.isfinite(above)
    exact, low, high = (x[fine].astype(np.float64) for x in (array, below, above))
    nearer = np.where(abs(exact - low) < abs(high - exact), low, high)
    even = np.where(verify.to_bf16(np, below[fine]) % 2 == 0, low, high)
    assert np.array_equal(rounded[fine], np.where(exact - low == high - exact, even, nearer))


# ---- elementwise references


def triad_case(n: int = 3001) -> Buffers:
    b, c = values("index", "float32", n), values("normal", "float32", n)
    return {"a": (b + np.float32(3) * c).astype(np.float32), "b": b, "c": c}


def write_case(n: int = 3001) -> Buffers:
    return {"a": (0x3F800000 | (np.arange(n, dtype=np.uint64) * 2654435761 % 2**32 >> 9)).astype(np.uint32).view(np.float32)}


def copy_case(n: int = 3001) -> Buffers:
    b = values("index", "float32", n)
    return {"a": b.copy(), "b": b}


ELEMENTWISE = {"copy": (copy_case, {}), "triad": (triad_case, {"s": 3.0}), "write": (write_case, {})}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_references_accept_what_is_right(name: str) -> None:
    """The formula's own result passes with error 0 or, for triad, within 2 ulp."""
    case, params = ELEMENTWISE[name]
    assert passes(name, case(), **params)


@pytest.mark.parametrize("place", [0, 1500, 3000])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_one_nan_fails_wherever_it_is(name: str, place: int) -> None:
    """NaN fails in the first, a middle and the last chunk, and the detail names its element."""
    case, params = ELEMENTWISE[name]
    buffers = case()
    buffers["a"][place] = np.nan
    error, tolerance, detail = verify.check(name, np, buffers, params, {})
    assert not error <= tolerance
    assert f"element {place}:" in detail


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_unwritten_tail_fails(name: str) -> None:
    """The last element keeps its poison."""
    case, params = ELEMENTWISE[name]
    buffers = case()
    buffers["a"].view(np.uint8)[-4:] = 0xFF
    assert not passes(name, buffers, **params)


@pytest.mark.parametrize("shift", [1, -1, 4, 1024, 2048])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_results_of_the_wrong_place_fail(name: str, shift: int) -> None:
    """Off by one, by a vector or by a tile: every shift shows."""
    case, params = ELEMENTWISE[name]
    buffers = case()
    buffers["a"] = np.roll(buffers["a"], shift)
    assert not passes(name, buffers, **params)


def test_copy_counts_wrong_elements_and_compares_nan_by_bits() -> None:
    """A copied NaN is right; the error is a count."""
    buffers = copy_case()
    buffers["b"][7] = buffers["a"][7] = np.nan
    assert passes("copy", buffers)
    buffers["a"][[5, 2000]] += 1
    assert verify.check("copy", np, buffers, {}, {})[0] == 2.0


def test_copy_of_another_length_fails() -> None:
    """A source that is shorter than the result is no copy."""
    assert not passes("copy", {"a": np.zeros(10, np.float32), "b": np.zeros(9, np.float32)})


@pytest.mark.parametrize(("ulps", "fine"), [(0, True), (2, True), (3, False), (-2, True), (-3, False)])
def test_triad_allows_two_units_in_the_last_place(ulps: int, fine: bool) -> None:
    """Two ulp either way pass, three do not, where nothing cancels."""
    b, c = abs(values("index", "float32", 3001)) + 1, np.zeros(3001, np.float32)
    a = (b.view(np.int32) + np.int32(ulps)).view(np.float32)
    assert passes("triad", {"a": a, "b": b, "c": c}, s=3.0) is fine


def test_triad_passes_fused_and_not() -> None:
    """Where the terms cancel, an unfused result differs by many ulp of itself, and is right all the same."""
    b, c = values("normal", "float32", 3001, seed=1), values("normal", "float32", 3001, seed=2)
    c[:1000] = -b[:1000] / np.float32(3)
    fused = (b.astype(np.float64) + 3.0 * c.astype(np.float64)).astype(np.float32)
    unfused = b + np.float32(3) * c
    assert not np.array_equal(fused, unfused)
    for a in (fused, unfused):
        assert passes("triad", {"a": a, "b": b, "c": c}, s=3.0)


def test_triad_sees_a_dropped_scalar_and_a_sign() -> None:
    """a = b + c, and a = b - s*c, fail."""
    buffers = triad_case()
    buffers["a"] = buffers["b"] + buffers["c"]
    assert not passes("triad", buffers, s=3.0)
    buffers["a"] = buffers["b"] - 3 * buffers["c"]
    assert not passes("triad", buffers, s=3.0)


def test_triad_of_the_smallest_numbers() -> None:
    """Denormal results are compared in their own unit, and zeros do not divide by zero."""
    tiny = np.array([1], np.uint32).view(np.float32)
    zero = np.zeros(1, np.float32)
    assert passes("triad", {"a": 2 * tiny, "b": tiny, "c": zero}, s=3.0)
    assert not passes("triad", {"a": 5 * tiny, "b": tiny, "c": zero}, s=3.0)
    assert passes("triad", {"a": zero, "b": zero, "c": zero}, s=3.0)


# ---- read


def read_case(n: int = 3001, parts: int = 7) -> Buffers:
    b = values("index", "uint32", n)
    sums = [int(piece.sum(dtype=np.uint64)) % 2**32 for piece in np.array_split(b, parts)]
    return {"partial": np.array(sums, np.uint32), "b": b}


def test_read_accepts_any_split_of_the_sum() -> None:
    """The number of partial sums does not matter, because the sum is exact."""
    for parts in (1, 7, 100):
        assert passes("read", read_case(parts=parts))


@pytest.mark.parametrize("place", [0, 999, 1000, 3000])
def test_read_sees_one_element_missing_or_read_twice(place: int) -> None:
    """One element of 3001, at the border of a chunk or at an end."""
    for sign in (-1, 1):
        buffers = read_case()
        buffers["partial"][0] = (int(buffers["partial"][0]) + sign * int(buffers["b"][place])) % 2**32
        assert not passes("read", buffers)


def test_read_sees_an_unwritten_partial_sum_and_a_neighbour_read_instead() -> None:
    """Poison in place of a partial sum fails; so does reading i-1 and i+1 where i was meant twice."""
    buffers = read_case()
    buffers["partial"][3] = 0xFFFFFFFF
    assert not passes("read", buffers)
    buffers = read_case()
    b = buffers["b"].astype(np.int64)
    buffers["partial"][0] = (int(buffers["partial"][0]) + int(b[4] + b[6] - 2 * b[5])) % 2**32
    assert not passes("read", buffers)


# ---- chase and spin


def chase_case(nodes: int, hops: int) -> Buffers:
    array = verify.fill(np, "cycle", "uint64", 16 * nodes, 5)
    at = 0
    for _ in range(hops):
        at = int(array[at // 8])
    return {"nodes": array, "state": np.array([at, 0], np.uint64), "cycles": np.array([34 * hops], np.uint64)}


@pytest.mark.parametrize(("nodes", "hops"), [(1, 5), (128, 4096), (3000, 100)])
def test_chase_accepts_the_end_of_the_walk(nodes: int, hops: int) -> None:
    """Less than a lap, many laps, and a cycle of one node."""
    assert passes("chase", chase_case(nodes, hops), hops=hops)


def test_chase_sees_a_hop_too_few_or_too_many() -> None:
    """One hop off ends at another node."""
    for wrong in (99, 101):
        assert not passes("chase", chase_case(3000, wrong), hops=100)


@pytest.mark.parametrize("cycles", [0, 99, -1])
def test_chase_without_a_plausible_time_fails(cycles: int) -> None:
    """A deleted loop leaves next to no cycles, an unwritten result is poison."""
    buffers = chase_case(3000, 100)
    buffers["cycles"] = np.array([cycles], np.int64).view(np.uint64)
    assert not passes("chase", buffers, hops=100)


@pytest.mark.parametrize(
    ("elapsed", "fine"), [(100_000, True), (119_000, True), (121_000, False), (99_999, False), (-1, False), (0, False)]
)
def test_spin_allows_twenty_microseconds_more_and_none_less(elapsed: int, fine: bool) -> None:
    """A wait that ends early is wrong by any amount."""
    assert passes("spin", {"elapsed": np.array([elapsed], np.int64).view(np.uint64)}, ns=100_000) is fine


# ---- the registry


def test_a_kernel_without_output_passes() -> None:
    """`none` compares nothing and says so."""
    assert verify.check("none", np, {}, {}, {}) == (0.0, 0.0, "nothing to compare")


def test_an_unknown_reference_names_the_known_ones() -> None:
    """The error lists what `verify` may name."""
    with pytest.raises(KernelFileError, match="'gem', which is no reference; there are none, copy, triad"):
        passes("gem", {})


def test_a_missing_buffer_or_param_is_named() -> None:
    """The error says what is missing and what is there."""
    with pytest.raises(KernelFileError, match="'triad' needs a buffer 'c'; the kernel has a, b"):
        passes("triad", {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}, s=3.0)
    with pytest.raises(KernelFileError, match="'triad' needs a parameter 's'; the kernel has n"):
        passes("triad", triad_case(), n=3)
