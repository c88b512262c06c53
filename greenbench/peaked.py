"""References of the ceiling probes: what comes out of arithmetic that cancels all but a known rest, and of passes over one set.

Every sum on the way is a whole number that its type holds exactly, so nothing is tolerated; an error is a count of what is wrong.
The hash that draws the operands is that of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from greenbench.fills import Array, chunks

if TYPE_CHECKING:
    from greenbench.verify import Case, Outcome

ROWS, COLUMNS, DEPTH = 128, 256, 4
FMA_THREADS, FMA_CHAINS, FMA_FACTORS, FMA_LARGEST, FMA_SEED = 512, 64, 2, 1023, 0x9E3779B9
# Of the kernel `tenant`.
TENANT_THREADS, TENANT_LINE = 512, 128


def mixed(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the kernels' hash of unsigned 32-bit words."""
    x = x.astype(np.uint32)
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D)
    x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
    return np.asarray(x ^ x >> np.uint32(16))


def _sign(places: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(mixed(places) >> np.uint32(31), -1, 1).astype(np.int64)


def _repeated(case: Case, wanted: np.ndarray[Any, Any], what: str) -> Outcome:
    """Compare every SM's words of `out` with the same wanted ones, modulo 2^32."""
    xp, out = case.xp, case.buffer("out", "uint32")
    lanes = out.reshape(-1, wanted.size)
    differs = (lanes != xp.asarray((wanted % 2**32).astype(np.uint32))).ravel()
    wrong = int(differs.sum())
    if not wrong:
        return 0.0, 0.0, f"all {lanes.size} sums of {len(lanes)} SMs are exact"
    sm, place = divmod(int(differs.argmax()), wanted.size)
    got = int(lanes[sm, place])
    return float(wrong), 0.0, f"{what} {place} of SM {sm} sums to {got}, wanted is {int(wanted[place] % 2**32)}"


def _peak_tensor(case: Case) -> Outcome:
    """Row i of every SM: the sum over 256 columns j of (2 j + 1) * 4 * loops * first(i) * first(j), modulo 2^32."""
    rows, columns = np.arange(ROWS), np.arange(COLUMNS)
    weights = int((_sign(2 * columns + 1) * (2 * columns + 1)).sum())
    return _repeated(case, DEPTH * case.integer("loops") * _sign(2 * rows) * weights, "row")


def _peak_fma(case: Case) -> Outcome:
    """Every thread: the sum over its 64 chains q of (2 q + 1) * loops * d(q) * (y0 + y1), modulo 2^32."""
    places = FMA_SEED + np.arange(FMA_THREADS * FMA_FACTORS).reshape(FMA_THREADS, FMA_FACTORS)
    y = ((mixed(places) >> np.uint32(8)) % np.uint32(2 * FMA_LARGEST + 1)).astype(np.int64) - FMA_LARGEST
    chains = np.arange(FMA_CHAINS)
    weights = int((_sign(2 * chains + 1) * (2 * chains + 1)).sum())
    return _repeated(case, case.integer("loops") * weights * y.sum(axis=1), "thread")


def _l2_read(case: Case) -> Outcome:
    """The partial sums add up to `passes` times the sum of b, modulo 2^32; error is the distance."""
    xp = case.xp
    wanted = case.once("l2_read", lambda: _sum32(xp, case.buffer("b", "uint32"))) * case.integer("passes") % 2**32
    got = _sum32(xp, case.buffer("partial", "uint32"))
    apart = (got - wanted) % 2**32
    return float(min(apart, 2**32 - apart)), 0.0, f"the partial sums give {got}, the passes {wanted}, modulo 2^32"


def _tenant(case: Case) -> Outcome:
    """CTA b: 512 threads' counts, tenant + iterations each, and the words of the b-th share of the set's lines, modulo 2^32."""
    xp, out = case.xp, case.buffer("out", "uint32")
    lines = case.integer("bytes") // TENANT_LINE
    ends = (xp.arange(out.size + 1) * lines // out.size) * (TENANT_LINE // 4)

    def sums() -> Array:
        before = xp.zeros(lines * (TENANT_LINE // 4) + 1, xp.uint64)
        xp.cumsum(case.buffer("set", "uint32")[: before.size - 1].astype(xp.uint64), out=before[1:])
        return before[ends[1:]] - before[ends[:-1]]

    counts = TENANT_THREADS * (case.integer("tenant") + case.integer("iterations"))
    wanted = (case.once("tenant", sums) + xp.uint64(counts)).astype(xp.uint32)
    wrong = int((out != wanted).sum())
    if not wrong:
        return 0.0, 0.0, f"all {out.size} sums are exact"
    place = int((out != wanted).argmax())
    return float(wrong), 0.0, f"CTA {place} sums to {int(out[place])}, wanted is {int(wanted[place])}"


def _sum32(xp: Any, values: Array) -> int:
    return sum(int(values[start:stop].sum(dtype=xp.uint64)) for start, stop in chunks(values.size)) % 2**32


PEAKS: dict[str, Callable[[Case], Outcome]] = {
    "peak_tensor": _peak_tensor,
    "peak_fma": _peak_fma,
    "l2_read": _l2_read,
    "tenant": _tenant,
}

__all__ = ["PEAKS", "mixed"]
