"""What buffers hold before a launch: values made alike on the host (numpy) and on a device (cupy), fixed by kind, type and seed.

`xp` is the array module, passed in and never imported, so that this module needs no CUDA. bfloat16 is kept as uint16, e4m3 (four
bits of exponent, three of fraction, no infinity) as uint8, tf32 (ten bits of fraction) as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from greenbench.errors import KernelFileError

Array = Any

# Elements of a temporary: 128 MiB of int64, whatever the size of the buffer.
CHUNK = 1 << 24
# Random values made on the host; longer buffers repeat them, each time rotated further by an odd number.
BLOCK = 1 << 24
ROTATION = 1_299_709

LINE_WORDS = 16  # a chase node: 128 bytes in words of 8

_STORAGE = {"bfloat16": "uint16", "e4m3": "uint8", "tf32": "float32"}
# Types of real numbers, and the period of their index fill: a prime, so that no power of two is a period, small enough that the
# type holds every integer of that range exactly.
_MODULUS = {"float64": 1021, "float32": 1021, "tf32": 1021, "float16": 1021, "bfloat16": 251, "e4m3": 31}
# The largest whole number of an integer fill, 2 elsewhere. Tensor cores sum e4m3 in 14 bits, where larger ones would soon be cut.
_LARGEST = {"e4m3": 1}
_E4M3_MAX = 448.0
_STRIDES = (7919, 104_729, 15_485_863, 32_452_843, 49_979_687)
_HASHED = ("int32", "uint32", "int64", "uint64", "uint8")


def storage_dtype(dtype: str) -> str:
    """Return the array type that holds a buffer type: `uint16` for bfloat16."""
    return _STORAGE.get(dtype, dtype)


def from_bf16(xp: Any, bits: Array) -> Array:
    """Return bfloat16 bits as float32 values."""
    return (bits.astype(xp.uint32) << 16).view(xp.float32)


def to_bf16(xp: Any, values: Array) -> Array:
    """Return float32 values as bfloat16 bits, rounded to nearest even; NaN stays NaN."""
    return (_rounded_bits(xp, values, 16) >> 16).astype(xp.uint16)


def to_tf32(xp: Any, values: Array) -> Array:
    """Return float32 values rounded to nearest even in ten bits of fraction; NaN stays NaN."""
    return _rounded_bits(xp, values, 13).view(xp.float32)


def from_e4m3(xp: Any, bits: Array) -> Array:
    """Return e4m3 bits as float32 values; 0x7f and 0xff are NaN."""
    return xp.asarray(_E4M3_VALUES)[bits]


def _e4m3_values() -> np.ndarray[Any, Any]:
    """Return the values of all 256 codes. A table, because devices may take subnormal float32 for zero, as cupy lets them."""
    codes = np.arange(256, dtype=np.uint32)
    # The fields in those of a float32, whose bias is larger by 120: subnormal numbers come out right as well.
    values = (((codes & 0x80) << 24) | ((codes & 0x7F) << 20)).view(np.float32) * np.float32(2.0**120)
    return np.where((codes & 0x7F) == 0x7F, np.float32(np.nan), values)


_E4M3_VALUES = _e4m3_values()


def to_e4m3(xp: Any, values: Array) -> Array:
    """Return float32 values as e4m3 bits, rounded to nearest even; what is too large becomes 448, NaN stays NaN."""
    values = values.astype(xp.float32)
    magnitude = xp.minimum(xp.abs(xp.where(xp.isnan(values), xp.float32(0), values)), xp.float32(_E4M3_MAX))
    # Below 2^-6 the steps become no finer; a step too many carries into the exponent by itself.
    exponent = xp.frexp(xp.maximum(magnitude, xp.float32(2.0**-6)))[1] - 1
    steps = xp.rint(xp.ldexp(magnitude, 3 - exponent)).astype(xp.int32)
    code = xp.where(xp.isnan(values), 0x7F, 8 * (exponent + 6) + steps)
    return (code + 0x80 * xp.signbit(values)).astype(xp.uint8)


def from_stored(xp: Any, stored: Array) -> Array:
    """Return float64 values of a stored array: uint16 holds bfloat16, uint8 holds e4m3."""
    decode = {"uint16": from_bf16, "uint8": from_e4m3}.get(str(stored.dtype))
    return (decode(xp, stored) if decode else stored).astype(xp.float64)


def _rounded_bits(xp: Any, values: Array, cut: int) -> Array:
    """Return the bits of float32 values rounded to nearest even so that the lowest `cut` are zero."""
    bits = values.astype(xp.float32).view(xp.uint32)
    rounded = (bits + ((1 << (cut - 1)) - 1) + ((bits >> cut) & 1)) >> cut << cut
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return xp.where(is_nan, 0x7FC00000, rounded).astype(xp.uint32)


def fill(xp: Any, kind: str, dtype: str, count: int, seed: int) -> Array:
    """Return `count` elements of a kind of `FILLS`, in the storage type of `dtype`."""
    if kind not in FILLS:
        raise KernelFileError(f"fill {kind!r} is unknown; there are {', '.join(FILLS)}")
    out = xp.empty(count, dtype=storage_dtype(dtype))
    if count:
        FILLS[kind](xp, out, dtype, seed)
    return out


def chunks(count: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of pieces of at most CHUNK elements."""
    for start in range(0, count, CHUNK):
        yield start, min(count, start + CHUNK)


def write_value_bits(xp: Any, start: int, stop: int) -> Array:
    """Return the float32 bits that kernel `write` gives to elements start..stop: in [1, 2), different for neighbours."""
    low = xp.arange(start, stop, dtype=xp.int64).astype(xp.uint32)
    return ((low * xp.uint32(2_654_435_761)) >> 9) | xp.uint32(0x3F800000)


def _poison(xp: Any, out: Array, dtype: str, seed: int) -> None:
    """NaN in every floating type, -1 in every signed one."""
    out.view(xp.uint8).fill(0xFF)


def _zero(xp: Any, out: Array, dtype: str, seed: int) -> None:
    out.fill(0)


def _index(xp: Any, out: Array, dtype: str, seed: int) -> None:
    """Depends on the place: multiples of 1/8 for reals, a hash for integers."""
    _require("index", dtype, dtype in _MODULUS or dtype in _HASHED)
    for start, stop in chunks(out.size):
        place = xp.arange(start, stop, dtype=xp.int64)
        if dtype in _HASHED:
            out[start:stop] = _hash(xp, place, seed).astype(out.dtype)
        else:
            modulus = _MODULUS[dtype]
            step = place % modulus * (_STRIDES[seed % len(_STRIDES)] % modulus) + seed
            out[start:stop] = _encode(xp, (step % modulus - modulus // 2).astype(xp.float32) / 8, dtype)


def _hash(xp: Any, place: Array, seed: int) -> Array:
    """A 32-bit finalizer: not linear, so that sums over other places differ, too."""
    x = (place ^ (place >> 32) * 40_503).astype(xp.uint32) + xp.uint32(seed * 2_654_435_769 % 2**32)
    x = (x ^ (x >> 16)) * xp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * xp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _normal(xp: Any, out: Array, dtype: str, seed: int) -> None:
    """N(0, 1), rounded to the type."""
    _require("normal", dtype, dtype in _MODULUS)
    values = _generator(seed).standard_normal(min(out.size, BLOCK), dtype=np.float32)
    _repeat(out, _encode(xp, xp.asarray(values), dtype))


def _integer(xp: Any, out: Array, dtype: str, seed: int) -> None:
    """-2 to 2, -1 to 1 in e4m3: products and sums are exact in any order."""
    _require("integer", dtype, dtype in _MODULUS or dtype in ("int32", "int64"))
    largest = _LARGEST.get(dtype, 2)
    small = xp.asarray(_generator(seed).integers(-largest, largest + 1, min(out.size, BLOCK), dtype=np.int8))
    _repeat(out, _encode(xp, small.astype(xp.float32), dtype) if dtype in _MODULUS else small.astype(out.dtype))


def _cycle(xp: Any, out: Array, dtype: str, seed: int) -> None:
    """One random cycle through all lines of 128 bytes: word 0 of a line is the byte offset of the next one, the rest is 0."""
    _require("cycle", dtype, dtype in ("int64", "uint64"))
    if out.size % LINE_WORDS:
        raise KernelFileError(f"fill 'cycle' needs whole lines of {LINE_WORDS} words, and the buffer has {out.size} words")
    order = _generator(seed).permutation(out.size // LINE_WORDS)
    following = np.empty(order.size, dtype=np.int64)
    following[order] = np.roll(order, -1) * (8 * LINE_WORDS)
    out.fill(0)
    out[::LINE_WORDS] = xp.asarray(following).astype(out.dtype)


def _permutation(xp: Any, out: Array, dtype: str, seed: int) -> None:
    """Every number below the count once, in random order: an index that meets every row of a table."""
    _require("permutation", dtype, dtype in ("int32", "uint32", "int64", "uint64"))
    out[...] = xp.asarray(_generator(seed).permutation(out.size)).astype(out.dtype)


def _repeat(out: Array, block: Array) -> None:
    size = block.size
    for lap, start in enumerate(range(0, out.size, size)):
        turn = lap * ROTATION % size
        length = min(size, out.size - start)
        head = min(length, size - turn)
        out[start : start + head] = block[turn : turn + head]
        out[start + head : start + length] = block[: length - head]


def _encode(xp: Any, values: Array, dtype: str) -> Array:
    encode = {"bfloat16": to_bf16, "e4m3": to_e4m3, "tf32": to_tf32}.get(dtype)
    return encode(xp, values) if encode else values.astype(storage_dtype(dtype))


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _require(kind: str, dtype: str, known: bool) -> None:
    if not known:
        raise KernelFileError(f"there is no fill {kind!r} for {dtype}; use poison, zero or another type")


FILLS: dict[str, Callable[[Any, Array, str, int], None]] = {
    "poison": _poison,
    "zero": _zero,
    "index": _index,
    "normal": _normal,
    "integer": _integer,
    "cycle": _cycle,
    "permutation": _permutation,
}

__all__ = [
    "FILLS",
    "chunks",
    "fill",
    "from_bf16",
    "from_e4m3",
    "from_stored",
    "storage_dtype",
    "to_bf16",
    "to_e4m3",
    "to_tf32",
    "write_value_bits",
]
