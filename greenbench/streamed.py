"""References of the memory-bound kernels beside STREAM: reductions, moved rows and columns, normalised rows, decode steps.

What is only moved must be equal bit for bit. What is computed is compared with float64 values of the same inputs, every element
by itself: an error is measured against the size that this element, or its row, should have, so that one wrong row, tile or token
shows beside any number of right ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from greenbench.fills import CHUNK, Array, chunks, from_stored

if TYPE_CHECKING:
    from greenbench.verify import Case, Outcome

# Float32 sums of rows, relative to the result; the rounding of a result comes on top.
RELATIVE = 1e-5
# Below this a result counts as zero: far above float32's smallest normal number, far below any result of random inputs.
SMALLEST = 2.0**-118
HEAD_SIZE = 128
# Attention keeps its probabilities in bfloat16, which costs 1.1e-3 of a result's size, and five times that in a million results.
PROBABILITIES = 1e-2


def heights(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of groups of rows of at most CHUNK elements, but of one row."""
    height = max(1, CHUNK // columns)
    for start in range(0, rows, height):
        yield start, min(rows, start + height)


class Worst:
    """Gathers errors of a matrix piece by piece, and remembers where the largest one is."""

    def __init__(self, xp: Any, columns: int) -> None:
        self._xp, self._columns = xp, columns
        self.error, self.detail = -1.0, ""

    def look(self, first_row: int, got: Array, want: Array, scale: Array | float) -> None:
        """Compare some rows with what they should be, in units of `scale`; NaN is an infinite error."""
        xp = self._xp
        error = xp.abs(got - want) / scale
        error = xp.where(xp.isnan(error), xp.inf, error)
        place = int(error.argmax())
        if float(error.ravel()[place]) > self.error:
            row, column = divmod(place, self._columns)
            self.error = float(error.ravel()[place])
            found, wanted = float(got.ravel()[place]), float(want.ravel()[place])
            self.detail = f"worst at row {first_row + row}, column {column}: {found:.7g} instead of {wanted:.7g}"


def _dot(case: Case) -> Outcome:
    """The partial sums add up to sum(b * c); error is the distance, and only rounding the whole sum once is allowed.

    With b in eighths up to 64 and c in whole numbers up to 2, as fills `index` and `integer` make them, float32 sums of up to
    16384 products are exact in any order.
    """
    xp, b, c = case.xp, case.buffer("b"), case.buffer("c")

    def whole() -> float:
        pieces = chunks(b.size)
        return sum(float((from_stored(xp, b[i:j]) * from_stored(xp, c[i:j])).sum()) for i, j in pieces)

    wanted = case.once("dot", whole)
    partial = case.buffer("partial")
    got = sum(float(from_stored(xp, partial[i:j]).sum()) for i, j in chunks(partial.size))
    apart = abs(got - wanted)
    allowed = case.rounding("partial") * abs(wanted)
    return apart if apart <= math.inf else math.inf, allowed, f"the partial sums give {got:.17g}, the products {wanted:.17g}"


def _transpose(case: Case) -> Outcome:
    """a[col][row] = b[row][col], bit for bit; error is the number of wrong elements."""
    rows, cols = case.integer("rows"), case.integer("cols")
    source = case.matrix("b", rows, cols)
    return _moved(case, case.matrix("a", cols, rows), lambda start, stop: source[:, start:stop].T)


def _gather(case: Case) -> Outcome:
    """a[row] = b[index[row]], bit for bit; error is the number of wrong elements."""
    rows, d = case.integer("rows"), case.integer("d")
    source, index = case.matrix("b", rows, d), case.buffer("index")
    return _moved(case, case.matrix("a", rows, d), lambda start, stop: source[index[start:stop]])


def _moved(case: Case, got: Array, expected: Callable[[int, int], Array]) -> Outcome:
    bits = f"uint{8 * got.dtype.itemsize}"
    rows, columns = got.shape
    wrong, detail = 0, "all elements are equal"
    for start, stop in heights(rows, columns):
        have, want = got[start:stop].view(bits), case.xp.ascontiguousarray(expected(start, stop)).view(bits)
        differs = (have != want).ravel()
        count = int(differs.sum())
        if count and not wrong:
            row, column = divmod(int(differs.argmax()), columns)
            detail = (
                f"first at row {start + row}, column {column}: "
                f"bits {int(have[row, column]):#x} instead of {int(want[row, column]):#x}"
            )
        wrong += count
    return float(wrong), 0.0, detail


def _rmsnorm(case: Case) -> Outcome:
    """y = x / sqrt(mean(x^2) + eps) * w, row by row; error is relative to each element."""
    xp, eps, cols = case.xp, case.real("eps"), case.integer("cols")
    w = from_stored(xp, case.matrix("w", 1, cols))
    return _rows(case, lambda x: x / xp.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * w)


def _softmax(case: Case) -> Outcome:
    """y = exp(x) / sum(exp(x)), row by row; error is relative to each element."""
    return _rows(case, lambda x: _softmax_of(case.xp, x))


def _softmax_of(xp: Any, x: Array) -> Array:
    powers = xp.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _rows(case: Case, formula: Callable[[Array], Array]) -> Outcome:
    xp, rows, cols = case.xp, case.integer("rows"), case.integer("cols")
    x, y, worst = case.matrix("x", rows, cols), case.matrix("y", rows, cols), Worst(case.xp, cols)
    for start, stop in heights(rows, cols):
        want = formula(from_stored(xp, x[start:stop]))
        worst.look(start, from_stored(xp, y[start:stop]), want, xp.maximum(xp.abs(want), SMALLEST))
    return worst.error, RELATIVE + case.rounding("y"), worst.detail


def _decode_attention(case: Case) -> Outcome:
    """out = softmax(q K^T / sqrt(128)) V for every sequence and head; error is relative to the rms of a head's result."""
    xp, batch, heads = case.xp, case.integer("batch"), case.integer("heads")
    rounding = case.rounding("out")
    reference, scale = case.once("decode_attention", lambda: _attention_reference(case, batch, heads))
    worst = Worst(xp, HEAD_SIZE)
    out = from_stored(xp, case.matrix("out", batch * heads, HEAD_SIZE))
    worst.look(0, out, reference, scale + rounding / PROBABILITIES * xp.abs(reference))
    return worst.error, PROBABILITIES, worst.detail


def _attention_reference(case: Case, batch: int, heads: int) -> tuple[Array, Array]:
    xp, kv_heads = case.xp, case.integer("kv_heads")
    context, page = case.integer("context"), case.integer("page")
    row_pages = -(-context // page)
    pages = case.matrix("pages", batch, row_pages)
    cache = [case.matrix(name, batch * row_pages, kv_heads * page * HEAD_SIZE) for name in ("keys", "values")]
    queries = from_stored(xp, case.matrix("q", batch * heads, HEAD_SIZE)).reshape(batch, kv_heads, heads // kv_heads, HEAD_SIZE)
    results = []
    for sequence in range(batch):
        keys, held = (_tokens(xp, part[pages[sequence]], kv_heads, page, context) for part in cache)
        scores = queries[sequence] @ keys.transpose(0, 2, 1) / math.sqrt(HEAD_SIZE)
        results.append(_softmax_of(xp, scores) @ held)
    reference = xp.stack(results).reshape(batch * heads, HEAD_SIZE)
    return reference, xp.sqrt((reference * reference).mean(axis=1, keepdims=True))


def _tokens(xp: Any, pages: Array, kv_heads: int, page: int, context: int) -> Array:
    """Return [kv_head][token][dimension] of the pages of one sequence, in their order."""
    by_head = from_stored(xp, pages).reshape(-1, kv_heads, page, HEAD_SIZE).transpose(1, 0, 2, 3)
    return by_head.reshape(kv_heads, -1, HEAD_SIZE)[:, :context]


STREAMS: dict[str, Callable[[Case], Outcome]] = {
    "dot": _dot,
    "transpose": _transpose,
    "gather": _gather,
    "rmsnorm": _rmsnorm,
    "softmax": _softmax,
    "decode_attention": _decode_attention,
}

__all__ = ["STREAMS", "Worst", "heights"]
