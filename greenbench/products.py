"""References of matrix products: one formula for all, and a table of how their operands lie and how exact they must be.

An error is max|C - ref| / (rms(A) rms(B) sqrt(k)), against float64 sums of the inputs as stored. Rounding of the output is
allowed on top, in proportion to each element, so that one wrong element or tile shows beside any number of right ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from greenbench.fills import Array, chunks, from_stored
from greenbench.streamed import Worst, heights

if TYPE_CHECKING:
    from greenbench.verify import Case, Outcome


@dataclass(frozen=True, slots=True)
class Product:
    """C = A*B, row-major: `tolerance` follows from k and the type of C; `by_columns` if B lies as [n][k]; names of A, B, C."""

    tolerance: Callable[[int, str], float]
    by_columns: bool = True
    names: tuple[str, str, str] = ("a", "b", "c")


def _by_result(k: int, dtype: str) -> float:
    """SIMT float32 sums have random errors, which grow with the root of k; those of tensor cores are truncated, all one way."""
    return 5e-5 * max(1.0, math.sqrt(k / 4096)) if dtype == "float32" else _tensor_core(k, dtype)


def _tensor_core(k: int, dtype: str) -> float:
    return 1e-4 * max(1.0, k / 4096)


# Each tolerance is about five times the largest error of 20000 dot products of N(0, 1) values, modelled with accumulators that
# align and truncate as tensor cores do: at 24 bits, for e4m3 at 14. Promoted sums leave that register every 128 products.
_TABLE = {
    "gemm": Product(_by_result, by_columns=False),
    "gemm_nt": Product(_by_result),
    "gemm_tf32": Product(_tensor_core),
    "gemm_fp8": Product(lambda k, dtype: 3e-3),
    "gemm_fp8_raw": Product(lambda k, dtype: 5e-2 * max(1.0, k / 4096)),
    "linear": Product(_tensor_core, names=("x", "w", "y")),
}


def _product(product: Product, case: Case) -> Outcome:
    m, n, k = (case.integer(name) for name in "mnk")
    name = product.names[2]
    tolerance, rounding = product.tolerance(k, str(case.buffer(name).dtype)), case.rounding(name)
    reference, scale = case.once("product", lambda: _reference(product, case, m, n, k))
    xp, c, worst = case.xp, case.matrix(name, m, n), Worst(case.xp, n)
    for start, stop in heights(m, n):
        want = reference[start:stop].astype(xp.float64)
        worst.look(start, from_stored(xp, c[start:stop]), want, scale + rounding / tolerance * xp.abs(want))
    return worst.error, tolerance, worst.detail


def _reference(product: Product, case: Case, m: int, n: int, k: int) -> tuple[Array, float]:
    """Return the product in float32 (its rounding is far below every tolerance) and the size of a typical element.

    Panels of both operands are multiplied, so that no whole matrix is held in float64.
    """
    xp = case.xp
    a = case.matrix(product.names[0], m, k)
    b = case.matrix(product.names[1], n, k) if product.by_columns else case.matrix(product.names[1], k, n).T
    result = xp.empty((m, n), dtype=xp.float32)
    for left, right in heights(n, k):
        columns = from_stored(xp, b[left:right]).T
        for start, stop in heights(m, k):
            result[start:stop, left:right] = from_stored(xp, a[start:stop]) @ columns
    return result, math.sqrt(_mean_square(case, product.names[0]) * _mean_square(case, product.names[1]) * k) or 1.0


def _mean_square(case: Case, name: str) -> float:
    stored = case.buffer(name)
    pieces = (from_stored(case.xp, stored[start:stop]) for start, stop in chunks(stored.size))
    return sum(float((piece * piece).sum()) for piece in pieces) / int(stored.size)


def by_columns(name: str) -> bool:
    """Return whether the reference of this name takes B as [n][k]; what is no reference of a product takes it as [k][n]."""
    return name in _TABLE and _TABLE[name].by_columns


PRODUCTS: dict[str, Callable[[Case], Outcome]] = {name: partial(_product, product) for name, product in _TABLE.items()}

__all__ = ["PRODUCTS", "by_columns"]
