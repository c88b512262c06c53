"""What front matter declares of a device buffer: its size, fill and use, and the tensor map as which it may be passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from greenbench.expr import LIMIT, Expr, Number

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "tf32": 4,
    "float16": 2,
    "bfloat16": 2,
    "e4m3": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "uint8": 1,
}
FILL_KINDS = ("poison", "zero", "index", "normal", "integer", "cycle", "permutation")
ACCESS_KINDS = ("in", "out", "state", "scratch")
# What the driver takes: sizes of a box in elements, of a matrix in elements, and the bytes that rows and boxes are multiples of.
MAX_BOX = 256
MAX_EXTENT = 2**32
MAP_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How a buffer is passed as a CUtensorMap: the box in elements, innermost first; the rest in bytes, 0 for none."""

    box: tuple[Expr, ...]
    swizzle: int = 0
    l2_promotion: int = 0


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A device buffer: `count` elements of `dtype`, filled before use; `state` is refilled before every verification.

    `scratch` is filled once and never again, does not rotate, and is no part of the working set. `shape` is row-major.
    """

    name: str
    dtype: str
    count: Expr
    fill: str
    access: str
    shape: tuple[Expr, ...] = ()
    tensor_map: TensorMap | None = None

    def map_problem(self, env: Mapping[str, Number]) -> str:
        """Return what a driver would refuse of the tensor map beside the size of its box, an empty string if nothing."""
        if self.tensor_map is None:
            return ""
        size, inner, swizzle = DTYPE_BYTES[self.dtype], self.tensor_map.box[0], self.tensor_map.swizzle
        width = inner.value(env) * size
        if swizzle and width != swizzle:
            return f"{inner.place} {inner.text!r} is {width} bytes wide; with swizzle = {swizzle} it must be {swizzle}"
        if width % MAP_ALIGNMENT:
            return f"{inner.place} {inner.text!r} is {width} bytes wide; it must be a multiple of {MAP_ALIGNMENT}"
        row = self.shape[-1]
        if len(self.shape) > 1 and row.value(env) * size % MAP_ALIGNMENT:
            return (
                f"{row.place} {row.text!r} makes rows of {row.value(env) * size} bytes; "
                f"a tensor map needs multiples of {MAP_ALIGNMENT}"
            )
        return ""

    def ranges(self) -> Iterator[tuple[Expr, int, int]]:
        """Yield every expression with the range of its value."""
        yield from ((extent, 1, MAX_EXTENT) for extent in self.shape)
        yield self.count, 1, LIMIT // DTYPE_BYTES[self.dtype]
        if self.tensor_map is not None:
            yield from ((size, 1, MAX_BOX) for size in self.tensor_map.box)


__all__ = ["ACCESS_KINDS", "DTYPE_BYTES", "FILL_KINDS", "BufferSpec", "TensorMap"]
