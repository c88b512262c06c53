"""Reads the `buffers` of a kernel's front matter: their sizes, fills and use, and those that are passed as tensor maps."""

from __future__ import annotations

from collections.abc import Collection

from greenbench.bufferspec import ACCESS_KINDS, DTYPE_BYTES, FILL_KINDS, BufferSpec, TensorMap
from greenbench.expr import Expr
from greenbench.frontmatter import Section

BUFFER_KEYS = ("name", "dtype", "count", "shape", "fill", "access", "tensor_map")
MAP_KEYS = ("box", "swizzle", "l2_promotion")
SWIZZLES = (0, 32, 64, 128)
PROMOTIONS = (0, 64, 128, 256)
MAX_RANK = 5


def read_buffers(top: Section, names: Collection[str]) -> tuple[BufferSpec, ...]:
    """Read every buffer; expressions may use `names`."""
    buffers: list[BufferSpec] = []
    for section in top.sections("buffers", BUFFER_KEYS):
        section.need("name", "every buffer has a name")
        section.need("dtype", f"allowed are {', '.join(DTYPE_BYTES)}")
        section.need("fill", f"allowed are {', '.join(FILL_KINDS)}")
        name = section.new_name("name", section.text("name"), {*names, *(buffer.name for buffer in buffers)})
        fill = section.choice("fill", FILL_KINDS)
        shape = _expressions(section, "shape", names) if "shape" in section else ()
        buffers.append(
            BufferSpec(
                name=name,
                dtype=section.choice("dtype", tuple(DTYPE_BYTES)),
                count=_count(section, shape, names),
                fill=fill,
                access=section.choice("access", ACCESS_KINDS, "out" if fill == "poison" else "in"),
                shape=shape,
                tensor_map=_tensor_map(section, shape, names),
            )
        )
    return tuple(buffers)


def _count(section: Section, shape: tuple[Expr, ...], names: Collection[str]) -> Expr:
    if shape and "count" in section:
        raise section.error("count", f"{section.name('count')} and shape say the same; give one of them")
    if shape:
        return section.parse(
            "shape", " * ".join(each.text if each.text.isidentifier() else f"({each.text})" for each in shape), names
        )
    section.need("count", 'give the number of elements, e.g. count = "n", or shape = ["m", "n"]')
    return section.parse("count", section.raw("count"), names)


def _tensor_map(section: Section, shape: tuple[Expr, ...], names: Collection[str]) -> TensorMap | None:
    if "tensor_map" not in section:
        return None
    table = section.section("tensor_map", MAP_KEYS)
    if not shape:
        raise section.error("tensor_map", 'a tensor map needs the matrix\'s shape, row-major, e.g. shape = ["m", "k"]')
    if section.text("access") == "scratch":
        raise section.error("tensor_map", "a scratch buffer is passed as a pointer; leave out tensor_map or access")
    table.need("box", 'give the box in elements, innermost first, e.g. box = [64, "BM"]')
    box = _expressions(table, "box", names)
    if len(box) != len(shape):
        raise table.error("box", f"{table.name('box')} has {len(box)} dimensions, and the shape has {len(shape)}")
    return TensorMap(box, _bytes(table, "swizzle", SWIZZLES), _bytes(table, "l2_promotion", PROMOTIONS))


def _expressions(section: Section, key: str, names: Collection[str]) -> tuple[Expr, ...]:
    value = section.raw(key)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_RANK:
        raise section.error(key, f"{section.name(key)} is {value!r}; it must be a list of one to {MAX_RANK} sizes")
    return tuple(section.parse(key, each, names) for each in value)


def _bytes(section: Section, key: str, allowed: tuple[int, ...]) -> int:
    value = section.raw(key) if key in section else 0
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise section.error(key, f"{section.name(key)} is {value!r}; allowed are {', '.join(map(str, allowed))}")
    return value


__all__ = ["read_buffers"]
