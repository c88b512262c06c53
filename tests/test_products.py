"""References of matrix products: every kernel's own arithmetic passes, and what a wrong schedule or layout gives does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from greenbench import fills, products, streamed, verify
from greenbench.errors import KernelFileError

Buffers = dict[str, Any]
M, N, K = 70, 48, 40

# Reference, type of A and B, type of C: what the kernels of the library name.
CASES = [
    ("gemm", "float32", "float32"),
    ("gemm", "float16", "float16"),
    ("gemm", "bfloat16", "bfloat16"),
    ("gemm_nt", "bfloat16", "bfloat16"),
    ("gemm_tf32", "tf32", "float32"),
    ("gemm_fp8", "e4m3", "bfloat16"),
    ("gemm_fp8_raw", "e4m3", "bfloat16"),
]
every_product = pytest.mark.parametrize(("name", "dtype", "result"), CASES)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let matrices of a few thousand elements cross the borders of chunks and panels."""
    monkeypatch.setattr(fills, "CHUNK", 500)
    monkeypatch.setattr(streamed, "CHUNK", 500)


def outcome(name: str, buffers: Buffers, m: int = M, n: int = N, k: int = K) -> verify.Outcome:
    return verify.check(name, np, buffers, {"m": m, "n": n, "k": k}, {})


def passes(name: str, buffers: Buffers, m: int = M, n: int = N, k: int = K) -> bool:
    error, tolerance, _ = outcome(name, buffers, m, n, k)
    return error <= tolerance


def operands(name: str, dtype: str, m: int, n: int, k: int) -> tuple[Buffers, Any, Any]:
    """Return the stored operands, and A[m][k] and B[k][n] as float32."""
    stored = {"a": fills.fill(np, "normal", dtype, m * k, 1), "b": fills.fill(np, "normal", dtype, n * k, 2)}
    a, b = (fills.from_stored(np, each).astype(np.float32) for each in stored.values())
    return stored, a.reshape(m, k), b.reshape(k, n) if name == "gemm" else b.reshape(n, k).T


def stored(values: Any, result: str) -> Any:
    return (fills.to_bf16(np, values) if result == "bfloat16" else values.astype(result)).ravel()


def case(name: str, dtype: str, result: str, m: int = M, n: int = N, k: int = K) -> Buffers:
    buffers, a, b = operands(name, dtype, m, n, k)
    return {**buffers, "c": stored(a @ b, result)}


def spoil(buffers: Buffers, how: str) -> None:
    c = buffers["c"].reshape(M, N)
    if how == "zero tile":
        c[64:, 32:] = 0
    elif how == "swapped rows":
        c[[10, 11]] = c[[11, 10]]
    elif how == "swapped columns":
        c[:, [20, 21]] = c[:, [21, 20]]
    elif how == "poisoned tail":
        c.view(np.uint8)[-1, -c.dtype.itemsize :] = 0xFF
    elif how == "one element":
        c[M - 1, 0] = c[M - 1, 1]
    elif how == "shifted":
        buffers["c"] = np.roll(buffers["c"], 1)


def truncated(sums: Any, bits: int) -> Any:
    """Cut numbers to so many bits, as a register does that drops what does not fit."""
    fraction, exponent = np.frexp(sums)
    return np.ldexp(np.trunc(fraction * 2.0**bits) / 2.0**bits, exponent).astype(np.float32)


def accumulated(a: Any, b: Any, *, step: int, promote: int, bits: int) -> Any:
    """Sum `step` products at a time in a register of so many bits, which every `promote` of k is added to a float32 sum."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for start in range(0, a.shape[1], promote):
        register = np.zeros_like(total)
        for at in range(start, min(start + promote, a.shape[1]), step):
            register = truncated(register + a[:, at : at + step] @ b[at : at + step], bits)
        total += register
    return total


def test_the_cases_are_all_the_products_of_matrices() -> None:
    """A reference that is added gets its cases here; `linear` has them beside the memory-bound kernels."""
    assert {name for name, *_ in CASES} | {"linear"} == set(products.PRODUCTS)


@every_product
def test_a_float32_product_rounded_to_its_type_passes(name: str, dtype: str, result: str) -> None:
    """A right product in another order of summation passes."""
    assert passes(name, case(name, dtype, result))


@pytest.mark.parametrize("how", ["zero tile", "swapped rows", "swapped columns", "poisoned tail", "one element", "shifted"])
@every_product
def test_local_faults_are_seen(name: str, dtype: str, result: str, how: str) -> None:
    """One wrong tile, row, column or element fails beside all the right ones."""
    buffers = case(name, dtype, result)
    spoil(buffers, how)
    assert not passes(name, buffers)


@every_product
def test_b_lies_as_the_name_says(name: str, dtype: str, result: str) -> None:
    """The product with B read the other way round fails, even where both are square."""
    buffers, a, b = operands(name, dtype, 32, 32, 32)
    assert passes(name, {**buffers, "c": stored(a @ b, result)}, 32, 32, 32)
    assert not passes(name, {**buffers, "c": stored(a @ b.T, result)}, 32, 32, 32)


@pytest.mark.parametrize("place", [0, M * N // 2, M * N - 1])
@every_product
def test_one_nan_fails_and_its_place_is_named(name: str, dtype: str, result: str, place: int) -> None:
    """NaN is an infinite error in every panel, and never a pass by comparison."""
    buffers = case(name, dtype, result)
    size = buffers["c"].dtype.itemsize
    buffers["c"].view(np.uint8)[place * size : (place + 1) * size] = 0xFF
    error, tolerance, detail = outcome(name, buffers)
    assert error == math.inf
    assert not error <= tolerance
    assert f"row {place // N}, column {place % N}:" in detail


@settings(max_examples=40, deadline=None)
@given(of=st.sampled_from(CASES), m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(1, 40))
def test_every_shape_is_row_major(of: tuple[str, str, str], m: int, n: int, k: int) -> None:
    """Ragged shapes pass, and one element of each that is far off fails."""
    buffers = case(*of, m, n, k)
    assert passes(of[0], buffers, m, n, k)
    c = buffers["c"]
    at = m * n // 2
    c[at : at + 1] = stored(fills.from_stored(np, c[at : at + 1]) + 2 * math.sqrt(k) + 2, of[2])
    assert not passes(of[0], buffers, m, n, k)


def test_an_accumulator_of_sixteen_bits_is_caught() -> None:
    """Rounding the running sum to bfloat16 after every step is not float32 accumulation."""
    buffers, a, b = operands("gemm", "bfloat16", 16, 16, 512)
    total = np.zeros((16, 16), np.float32)
    for p in range(512):
        total = fills.from_bf16(np, fills.to_bf16(np, total + np.outer(a[:, p], b[p])))
    assert not passes("gemm", {**buffers, "c": stored(total, "bfloat16")}, 16, 16, 512)


@pytest.mark.parametrize("k", [4096, 8192])
def test_promoted_and_raw_eight_bit_sums_are_told_apart(k: int) -> None:
    """A register of 14 bits passes as `gemm_fp8` only if it is emptied every 128 of k, and as `gemm_fp8_raw` even if never."""
    buffers, a, b = operands("gemm_fp8", "e4m3", 48, 48, k)
    promoted = {**buffers, "c": stored(accumulated(a, b, step=32, promote=128, bits=14), "bfloat16")}
    raw = {**buffers, "c": stored(accumulated(a, b, step=32, promote=k, bits=14), "bfloat16")}
    assert passes("gemm_fp8", promoted, 48, 48, k)
    assert not passes("gemm_fp8", raw, 48, 48, k)
    assert passes("gemm_fp8_raw", raw, 48, 48, k)


def test_tf32_wants_inputs_that_are_exact() -> None:
    """The tolerance is that of sums: a kernel that cuts whole float32 inputs to ten bits itself is off by more."""
    a, b = (fills.fill(np, "normal", "float32", 48 * 512, seed).reshape(48, 512) for seed in (1, 2))
    cut = (each.view(np.uint32) & 0xFFFFE000 for each in (a, b))
    x, y = (each.view(np.float32) for each in cut)
    assert not passes("gemm_tf32", {"a": a.ravel(), "b": b.ravel(), "c": (x @ y.T).ravel()}, 48, 48, 512)
    buffers, a, b = operands("gemm_tf32", "tf32", 48, 48, 512)
    sums = accumulated(a, b, step=4, promote=512, bits=24)
    assert passes("gemm_tf32", {**buffers, "c": sums.ravel()}, 48, 48, 512)


def test_the_reference_is_computed_once() -> None:
    """The cache holds the product: with the inputs gone bad, the old reference still decides."""
    buffers, cache = case("gemm", "float32", "float32"), {}
    params = {"m": M, "n": N, "k": K}

    def fine(cache: dict[str, Any]) -> bool:
        error, tolerance, _ = verify.check("gemm", np, buffers, params, cache)
        return error <= tolerance

    assert fine(cache)
    buffers["a"] = buffers["a"] * 0
    assert fine(cache)
    assert not fine({})


def test_another_size_or_type_is_refused() -> None:
    """Params that contradict the buffers, and a result of integers, are errors of the kernel file."""
    buffers = case("gemm", "float32", "float32")
    with pytest.raises(KernelFileError, match="needs 71 x 40 elements in 'a', which has 2800"):
        passes("gemm", buffers, 71)
    with pytest.raises(KernelFileError, match="'gemm' knows no tolerance for a result of type int32"):
        passes("gemm", {**buffers, "c": buffers["c"].view(np.int32)})
