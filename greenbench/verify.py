"""References that kernels are checked against: `check` compares a launch's buffers with what they should hold.

`xp` is numpy or cupy, passed in and never imported. A reference names its buffers and params by the letters of its formula; big
arrays are compared piece by piece. NaN never passes: it counts as an infinite error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from greenbench.errors import KernelFileError
from greenbench.fills import (
    FILLS,
    LINE_WORDS as _LINE_WORDS,
    Array,
    chunks,
    fill,
    from_bf16,
    storage_dtype,
    to_bf16,
    write_value_bits,
)
from greenbench.peaked import PEAKS
from greenbench.probed import PROBES, on_host
from greenbench.products import PRODUCTS
from greenbench.schema import ParamValue
from greenbench.streamed import STREAMS

Outcome = tuple[float, float, str]

SPIN_SLACK_NS = 20_000.0
TRIAD_ULPS = 2.0
# Rounding of one result, relative to it, by the type that stores it: uint16 holds bfloat16.
_ROUNDING = {"uint16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}


class Case:
    """The buffers and params of one launch, with errors that say what a reference misses."""

    def __init__(
        self, name: str, xp: Any, buffers: Mapping[str, Array], params: Mapping[str, ParamValue], cache: dict[str, Any]
    ) -> None:
        self.name = name
        self.xp = xp
        self._buffers = buffers
        self._params = params
        self._cache = cache

    def buffer(self, name: str, bits: str = "") -> Array:
        """Return a buffer, viewed as the type `bits` if given."""
        if name not in self._buffers:
            there = ", ".join(self._buffers) or "none"
            raise KernelFileError(f"reference {self.name!r} needs a buffer {name!r}; the kernel has {there}")
        array = self._buffers[name]
        return array.view(bits) if bits else array

    def matrix(self, name: str, rows: int, columns: int) -> Array:
        """Return a buffer as a row-major matrix."""
        array = self.buffer(name)
        if array.size != rows * columns:
            raise KernelFileError(
                f"reference {self.name!r} needs {rows} x {columns} elements in {name!r}, which has {array.size}"
            )
        return array.reshape(rows, columns)

    def integer(self, name: str) -> int:
        """Return a parameter that must be a whole number."""
        value = self.real(name)
        if value != int(value):
            raise KernelFileError(f"reference {self.name!r} needs an integer {name!r}, not {value}")
        return int(value)

    def real(self, name: str) -> float:
        """Return a parameter that must be a number."""
        value = self._params.get(name)
        if not isinstance(value, (int, float)):
            there = ", ".join(self._params) or "none"
            raise KernelFileError(f"reference {self.name!r} needs a parameter {name!r}; the kernel has {there}")
        return value

    def rounding(self, name: str) -> float:
        """Return how far an element of a result may be off for having been rounded to its type, relative to the element."""
        dtype = str(self.buffer(name).dtype)
        if dtype not in _ROUNDING:
            raise KernelFileError(f"reference {self.name!r} knows no tolerance for a result of type {dtype}")
        return _ROUNDING[dtype]

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """Return what `make` gave the first time: inputs do not change between launches."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def check(name: str, xp: Any, buffers: Mapping[str, Array], params: Mapping[str, ParamValue], cache: dict[str, Any]) -> Outcome:
    """Return (error, tolerance, where the worst element is); right if and only if error <= tolerance.

    `cache` is kept by the caller as long as the input buffers are: it holds references that are dear to compute.
    """
    if name not in REFERENCES:
        raise KernelFileError(f"verify names {name!r}, which is no reference; there are {', '.join(REFERENCES)}")
    with np.errstate(all="ignore"):
        return REFERENCES[name](Case(name, xp, buffers, params, cache))


def _none(case: Case) -> Outcome:
    """The kernel has no output to compare."""
    return 0.0, 0.0, "nothing to compare"


def _copy(case: Case) -> Outcome:
    """a = b, bit for bit; error is the number of wrong elements."""
    bits = f"uint{8 * case.buffer('b').dtype.itemsize}"
    source = case.buffer("b", bits)
    return _same_bits(case, case.buffer("a", bits), lambda start, stop: source[start:stop])


def _write(case: Case) -> Outcome:
    """a[i] is the float in [1, 2) whose fraction is the upper 23 bits of i * 2654435761 modulo 2^32, bit for bit."""
    return _same_bits(case, case.buffer("a", "uint32"), lambda start, stop: write_value_bits(case.xp, start, stop))


def _same_bits(case: Case, got: Array, expected: Callable[[int, int], Array]) -> Outcome:
    wrong, detail = 0, "all elements are equal"
    for start, stop in chunks(got.size):
        want = expected(start, stop)
        if want.size != stop - start:
            return math.inf, 0.0, f"a has {got.size} elements, its source {start + want.size}"
        differs = got[start:stop] != want
        count = int(differs.sum())
        if count and not wrong:
            at = int(differs.argmax())
            detail = f"first at element {start + at}: bits {int(got[start + at]):#x} instead of {int(want[at]):#x}"
        wrong += count
    return float(wrong), 0.0, detail


def _triad(case: Case) -> Outcome:
    """a = b + s*c within 2 units in the last place (of float32) of the largest term, fused or not."""
    xp, a, b, c = case.xp, case.buffer("a"), case.buffer("b"), case.buffer("c")
    s = float(np.float32(case.real("s")))
    worst, at, wanted = -1.0, 0, 0.0
    for start, stop in chunks(a.size):
        first, second = b[start:stop].astype(xp.float64), s * c[start:stop].astype(xp.float64)
        want = first + second
        error = xp.abs(a[start:stop].astype(xp.float64) - want) / _ulp(xp, xp.maximum(xp.abs(first), xp.abs(second)))
        error = xp.where(xp.isnan(error), xp.inf, error)
        place = int(error.argmax())
        if float(error[place]) > worst:
            worst, at, wanted = float(error[place]), start + place, float(want[place])
    return worst, TRIAD_ULPS, f"worst at element {at}: {float(a[at]):.9g} instead of {wanted:.9g}"


def _ulp(xp: Any, magnitude: Array) -> Array:
    """Return the distance of neighbouring float32 numbers of this size."""
    return xp.ldexp(xp.ones_like(magnitude), xp.maximum(xp.frexp(magnitude)[1] - 24, -149))


def _read(case: Case) -> Outcome:
    """The partial sums add up to the sum of b modulo 2^32; error is the distance."""
    wanted = case.once("read", lambda: _sum32(case.xp, case.buffer("b", "uint32")))
    got = _sum32(case.xp, case.buffer("partial", "uint32"))
    apart = (got - wanted) % 2**32
    return float(min(apart, 2**32 - apart)), 0.0, f"the partial sums give {got}, the elements {wanted}, modulo 2^32"


def _sum32(xp: Any, values: Array) -> int:
    return sum(int(values[start:stop].sum(dtype=xp.uint64)) for start, stop in chunks(values.size)) % 2**32


def _chase(case: Case) -> Outcome:
    """From position 0, `hops` steps along the cycle end where the kernel says; its cycles are at least one per hop."""
    hops = case.integer("hops")
    wanted = case.once("chase", lambda: _walk(on_host(case.xp, case.buffer("nodes")[::_LINE_WORDS]), hops))
    got = int(case.buffer("state")[0])
    if got != wanted:
        return 1.0, 0.0, f"{hops} hops from offset 0 ended at offset {got} instead of {wanted}"
    cycles = int(case.buffer("cycles", "int64")[0])
    if cycles < hops:
        return 1.0, 0.0, f"{hops} hops cannot take {cycles} cycles"
    return 0.0, 0.0, f"{hops} hops from offset 0 ended at offset {got}"


def _walk(following: np.ndarray[Any, Any], hops: int) -> int:
    at = 0
    for _ in range(hops % following.size):
        at = int(following[at // (8 * _LINE_WORDS)])
    return at


def _spin(case: Case) -> Outcome:
    """The kernel waited at least `ns`, and at most 20 us longer; error is the excess in ns."""
    wanted = case.integer("ns")
    excess = int(case.buffer("elapsed", "int64")[0]) - wanted
    return float(excess) if excess >= 0 else math.inf, SPIN_SLACK_NS, f"waited {wanted + excess} ns, asked for {wanted} ns"


REFERENCES: dict[str, Callable[[Case], Outcome]] = {
    "none": _none,
    "copy": _copy,
    "triad": _triad,
    "read": _read,
    "write": _write,
    "chase": _chase,
    "spin": _spin,
    **PRODUCTS,
    **STREAMS,
    **PROBES,
    **PEAKS,
}

__all__ = ["FILLS", "REFERENCES", "Case", "check", "fill", "from_bf16", "storage_dtype", "to_bf16"]
