"""Small floating types that numpy has not: every code of e4m3, rounding to e4m3 and tf32, and the fills made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from greenbench import fills
from greenbench.bufferspec import DTYPE_BYTES, FILL_KINDS
from greenbench.errors import KernelFileError
from greenbench.kernelfile import FILL_DTYPES

CODES = np.arange(256, dtype=np.uint8)


def spelled_out(code: int) -> float:
    """Return the value of an e4m3 code by its definition: bias 7, subnormal below 2^-6, one NaN of each sign."""
    sign, exponent, fraction = -1 if code & 0x80 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and fraction == 7:
        return math.nan
    return sign * (math.ldexp(8 + fraction, exponent - 10) if exponent else math.ldexp(fraction, -9))


VALUES = np.array([spelled_out(int(code)) for code in CODES])
FINITE = CODES[~np.isnan(VALUES)]
floats = st.floats(width=32)


def encoded(*reals: float) -> list[int]:
    return [int(code) for code in fills.to_e4m3(np, np.array(reals, np.float32))]


def test_every_code_of_e4m3_is_decoded() -> None:
    """All 256, zeros of both signs among them; the largest is 448, the smallest 2^-9."""
    decoded = fills.from_e4m3(np, CODES)
    assert decoded.dtype == np.float32
    assert np.array_equal(decoded, VALUES, equal_nan=True)
    assert np.array_equal(np.signbit(decoded[FINITE]), FINITE >= 0x80)
    assert (np.nanmax(decoded), decoded[decoded > 0].min()) == (448, 2.0**-9)


def test_every_code_of_e4m3_is_its_own_encoding() -> None:
    """Encoding what was decoded gives the code back; both NaN become the positive one or keep their sign."""
    again = fills.to_e4m3(np, fills.from_e4m3(np, CODES))
    assert again.dtype == np.uint8
    assert np.array_equal(again[FINITE], FINITE)
    assert set(again[np.isnan(VALUES)]) <= {0x7F, 0xFF}


def test_between_two_codes_the_nearer_one_is_taken_and_the_even_one_of_two() -> None:
    """All 126 gaps of positive codes: the middle, and the float32 numbers beside it; the same for negative ones."""
    for below in range(0x7E):
        low, high = VALUES[below], VALUES[below + 1]
        middle = np.float32((low + high) / 2)
        even = below + below % 2
        beside = [float(np.nextafter(middle, np.float32(side))) for side in (low, high)]
        assert encoded(beside[0], middle, beside[1]) == [below, even, below + 1]
        assert encoded(-beside[0], -middle, -beside[1]) == [0x80 | code for code in (below, even, below + 1)]


def test_what_is_too_large_becomes_the_largest() -> None:
    """448 and all above, infinity too, of both signs; NaN stays NaN, and what is tiny keeps its sign."""
    assert encoded(448, 449, 464, 1e30, math.inf, -465, -math.inf) == [0x7E] * 5 + [0xFE] * 2
    assert encoded(math.nan)[0] & 0x7F == 0x7F
    assert encoded(0.0, -0.0, 1e-30, -1e-30, 1e-45) == [0, 0x80, 0, 0x80, 0]


@given(st.lists(floats, min_size=1, max_size=50))
def test_e4m3_rounds_to_the_nearest_of_all_codes(reals: list[float]) -> None:
    """No other code is nearer than the one that was chosen; a tie goes to the even code."""
    array = np.array(reals, np.float32)
    codes = fills.to_e4m3(np, array)
    for real, code in zip(array.astype(np.float64), codes, strict=True):
        if math.isnan(real):
            assert code & 0x7F == 0x7F
            continue
        within = min(max(real, -448.0), 448.0)
        distances = np.abs(VALUES[FINITE] - within)
        nearest = FINITE[distances == distances.min()]
        assert code in nearest
        assert (code & 0x80 != 0) == (math.copysign(1, real) < 0)
        if len(set(abs(VALUES[nearest]))) > 1:
            assert code % 2 == 0


@given(st.lists(floats, min_size=1, max_size=50))
def test_tf32_keeps_ten_bits_of_fraction(reals: list[float]) -> None:
    """The lowest 13 bits are zero, the value is one of the two neighbours and never the farther; ties go to the even one."""
    array = np.array(reals, np.float32)
    rounded = fills.to_tf32(np, array)
    assert np.array_equal(np.isnan(array), np.isnan(rounded))
    assert not (rounded.view(np.uint32)[~np.isnan(array)] & 0x1FFF).any()
    with np.errstate(over="ignore"):
        below = (array.view(np.uint32) & 0xFFFFE000).view(np.float32)
        above = ((array.view(np.uint32) & 0xFFFFE000) + 0x2000).view(np.float32)
    fine = np.isfinite(array) & np.isfinite(above)
    exact, low, high = (x[fine].astype(np.float64) for x in (array, below, above))
    nearer = np.where(abs(exact - low) < abs(high - exact), low, high)
    even = np.where(below[fine].view(np.uint32) >> 13 & 1 == 0, low, high)
    assert np.array_equal(rounded[fine], np.where(exact - low == high - exact, even, nearer))


def test_tf32_of_tf32_is_itself() -> None:
    """Rounding twice changes nothing, infinities stay, and a carry goes into the exponent."""
    once = fills.fill(np, "normal", "tf32", 5000, 3)
    assert once.dtype == np.float32
    assert np.array_equal(fills.to_tf32(np, once), once)
    edges = np.array([np.inf, -np.inf, np.nextafter(np.float32(2), np.float32(0))], np.float32)
    assert fills.to_tf32(np, edges).tolist() == [np.inf, -np.inf, 2.0]


@pytest.mark.parametrize("dtype", ["e4m3", "tf32", "bfloat16", "float16", "float32"])
def test_normal_fill_is_the_same_numbers_rounded_to_the_type(dtype: str) -> None:
    """Every type gets the draw of float64's seed, no NaN among it, off by at most half a step of the type."""
    drawn = fills.fill(np, "normal", "float32", 5000, 3)
    values = fills.from_stored(np, fills.fill(np, "normal", dtype, 5000, 3))
    step = {"e4m3": 2.0**-4, "tf32": 2.0**-11, "bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0}[dtype]
    assert (abs(values - drawn) <= np.maximum(step * abs(drawn), 2.0**-10)).all()
    assert abs(values.std() - 1) < 0.05


def test_integer_fill_of_e4m3_is_exact_for_tensor_cores() -> None:
    """-1, 0 and 1, so that 14 bits hold every sum of up to 8191 products; the other types go to 2."""
    assert set(fills.from_stored(np, fills.fill(np, "integer", "e4m3", 3000, 3))) == {-1, 0, 1}
    assert set(fills.from_stored(np, fills.fill(np, "integer", "tf32", 3000, 3))) == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize(("dtype", "stored"), [("e4m3", np.uint8), ("bfloat16", np.uint16), ("tf32", np.float32)])
def test_stored_arrays_know_their_values(dtype: str, stored: Any) -> None:
    """float64 values come back from every way of storing, for views that are transposed as well."""
    array = fills.fill(np, "integer", dtype, 12, 3)
    assert array.dtype == stored
    values = fills.from_stored(np, array)
    assert values.dtype == np.float64
    assert np.array_equal(fills.from_stored(np, array.reshape(3, 4).T), values.reshape(3, 4).T)
    assert values.any()


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize("kind", FILL_KINDS)
def test_a_file_may_ask_for_the_fills_that_can_be_made(kind: str, dtype: str) -> None:
    """The table by which a file is refused, read without numpy, against what making them refuses."""
    if dtype in FILL_DTYPES.get(kind, (dtype,)):
        assert fills.fill(np, kind, dtype, 32, 1).size == 32
    else:
        with pytest.raises(KernelFileError, match=f"there is no fill '{kind}' for {dtype}"):
            fills.fill(np, kind, dtype, 32, 1)
