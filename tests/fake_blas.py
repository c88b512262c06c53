"""libcublas and libcublasLt on the host: the calls that yardsticks make, with their arithmetic, on memory of numpy arrays.

A product is done column by column with leading dimensions and transposes, as the libraries do it, so that what is right here is
right because of what was asked for. Every call is kept by its name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from greenbench.fills import from_stored, to_bf16

# cudaDataType -> the type that stores it.
STORED = {0: np.float32, 2: np.float16, 14: np.uint16, 28: np.uint8}
NOT_SUPPORTED = 15


def plain(argument: Any) -> Any:
    """Return what a ctypes argument says: its number, or the object whose address it is."""
    if hasattr(argument, "_obj"):
        return argument._obj
    return argument.value if hasattr(argument, "value") else argument


def at(address: int, rows: int, columns: int, leading: int, data_type: int) -> np.ndarray[Any, Any]:
    """Return a column-major matrix in memory, as its storage type, to read and to write."""
    stored = np.dtype(STORED[data_type])
    raw = (ctypes.c_char * ((leading * (columns - 1) + rows) * stored.itemsize)).from_address(address)
    flat = np.frombuffer(raw, stored)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (stored.itemsize, leading * stored.itemsize), writeable=True)


def product(
    left: np.ndarray[Any, Any], left_t: int, right: np.ndarray[Any, Any], right_t: int, into: np.ndarray[Any, Any]
) -> None:
    """Multiply in float64 and round to the type of the result."""
    a, b = (from_stored(np, each.T if turned else each) for each, turned in ((left, left_t), (right, right_t)))
    result = (a @ b).astype(np.float32)
    into[...] = to_bf16(np, result) if into.dtype == np.uint16 else result.astype(into.dtype)


@dataclass
class FakeLibrary:
    """What both libraries have: numbered handles, a log, and statuses that a call answers with instead."""

    fails: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    alive: dict[int, str] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: count(0x1000))

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cublas"):
            raise AttributeError(name)
        return lambda *arguments: self._called(name, arguments)

    def _called(self, name: str, arguments: tuple[Any, ...]) -> int:
        known = tuple(plain(argument) for argument in arguments)
        self.calls.append((name, known))
        if status := self.fails.get(name, 0):
            return status
        act = getattr(self, f"_{name}", None)
        status = act(*known) if act else 0
        return int(status or 0)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of all calls of this name."""
        return [arguments for called, arguments in self.calls if called == name]

    def make(self, what: str, into: ctypes.c_void_p) -> int:
        """Give out a new handle."""
        number = int(next(self._numbers))
        into.value = number
        self.alive[number] = what
        return number

    def drop(self, number: int | None) -> None:
        """Destroy a handle; one that is not there is a mistake."""
        assert number is not None
        del self.alive[number]


class FakeCublas(FakeLibrary):
    """libcublas."""

    def _cublasCreate_v2(self, handle: ctypes.c_void_p) -> None:
        self.make("handle", handle)

    def _cublasDestroy_v2(self, handle: int) -> None:
        self.drop(handle)

    def _cublasGemmEx(self, *arguments: Any) -> None:
        _, left_t, right_t, m, n, k, one, a, a_type, lda, b, b_type, ldb, zero, c, c_type, ldc, *_ = arguments
        assert (one.value, zero.value) == (1.0, 0.0)
        left = at(a, *((k, m) if left_t else (m, k)), lda, a_type)
        right = at(b, *((n, k) if right_t else (k, n)), ldb, b_type)
        product(left, left_t, right, right_t, at(c, m, n, ldc, c_type))


class FakeCublasLt(FakeLibrary):
    """libcublasLt, whose heuristic names one algorithm."""

    def __init__(self, config: dict[int, int] | None = None, found: int = 1) -> None:
        super().__init__()
        self.config = {0: 66, 1: 24, 2: 1, 6: 35, 8: 3} if config is None else config
        self.found = found
        self.descriptors: dict[int, dict[Any, Any]] = {}

    def _cublasLtCreate(self, handle: ctypes.c_void_p) -> None:
        self.make("handle", handle)

    def _cublasLtDestroy(self, handle: int) -> None:
        self.drop(handle)
        assert not self.alive, "descriptors go before the handle"

    def _cublasLtMatmulDescCreate(self, into: ctypes.c_void_p, compute: int, scale: int) -> None:
        self.descriptors[self.make("desc", into)] = {"compute": compute, "scale": scale}

    def _cublasLtMatrixLayoutCreate(self, into: ctypes.c_void_p, data_type: int, rows: int, columns: int, leading: int) -> None:
        self.descriptors[self.make("layout", into)] = {"matrix": (rows, columns, leading, data_type)}

    def _cublasLtMatmulPreferenceCreate(self, into: ctypes.c_void_p) -> None:
        self.descriptors[self.make("preference", into)] = {}

    def _set(self, descriptor: int, attribute: int, value: Any, size: int) -> None:
        assert size == ctypes.sizeof(value)
        self.descriptors[descriptor][attribute] = (value.value, size)

    _cublasLtMatmulDescSetAttribute = _cublasLtMatmulPreferenceSetAttribute = _set
    _cublasLtMatmulDescDestroy = _cublasLtMatrixLayoutDestroy = _cublasLtMatmulPreferenceDestroy = FakeLibrary.drop

    def _cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> None:
        *_, wanted, result, answered = arguments
        assert wanted == 1
        result.algorithm.data[0] = 0xA160
        answered.value = self.found

    def _cublasLtMatmulAlgoConfigGetAttribute(self, algorithm: Any, attribute: int, value: Any, size: int, written: Any) -> int:
        assert size == ctypes.sizeof(value)
        if attribute not in self.config:
            return 7
        value.value, written.value = self.config[attribute], size
        return 0

    def _cublasLtMatmul(self, *arguments: Any) -> None:
        _, desc, one, a, a_desc, b, b_desc, zero, c, c_desc, d, d_desc, algorithm, *_ = arguments
        assert (one.value, zero.value, c, c_desc) == (1.0, 0.0, d, d_desc)
        assert algorithm.data[0] == 0xA160
        operation = self.descriptors[desc]
        left, right, into = (
            at(place, *self.descriptors[layout]["matrix"]) for place, layout in ((a, a_desc), (b, b_desc), (d, d_desc))
        )
        product(left, operation[3][0], right, operation[4][0], into)
