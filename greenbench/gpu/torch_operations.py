"""torch's operations for the formulas of our memory-bound kernels, by the name of their reference in `verify`.

Each is made once for the tensors of a buffer set: they are flat, and called as the reference calls its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from greenbench.errors import UnsupportedError
from greenbench.schema import ParamValue

Tensors = Mapping[str, Any]
Params = Mapping[str, ParamValue]
# Enqueues one operation; what it returns belongs into the kernel's output, where it may be already.
Operation = Callable[[], Any]


def _matrix(tensors: Tensors, name: str, columns: ParamValue) -> Any:
    return tensors[name].view(-1, int(columns))


def _copy(torch: Any, t: Tensors, p: Params) -> Operation:
    return lambda: t["a"].copy_(t["b"])


def _triad(torch: Any, t: Tensors, p: Params) -> Operation:
    return lambda: torch.add(t["b"], t["c"], alpha=p["s"], out=t["a"])


def _read(torch: Any, t: Tensors, p: Params) -> Operation:
    return lambda: torch.sum(t["b"])


def _dot(torch: Any, t: Tensors, p: Params) -> Operation:
    return lambda: torch.dot(t["b"], t["c"])


def _transpose(torch: Any, t: Tensors, p: Params) -> Operation:
    a, b = _matrix(t, "a", p["rows"]), _matrix(t, "b", p["cols"])
    return lambda: a.copy_(b.t())


def _gather(torch: Any, t: Tensors, p: Params) -> Operation:
    a, b = _matrix(t, "a", p["d"]), _matrix(t, "b", p["d"])
    return lambda: torch.index_select(b, 0, t["index"], out=a)


def _rmsnorm(torch: Any, t: Tensors, p: Params) -> Operation:
    x, norm = _matrix(t, "x", p["cols"]), getattr(torch.nn.functional, "rms_norm", None)
    if norm is None:
        raise UnsupportedError(f"torch {torch.__version__} has no rms_norm; it came with 2.4")
    return lambda: norm(x, (int(p["cols"]),), t["w"], p["eps"])


def _softmax(torch: Any, t: Tensors, p: Params) -> Operation:
    x = _matrix(t, "x", p["cols"])
    return lambda: torch.softmax(x, -1)


def _linear(torch: Any, t: Tensors, p: Params) -> Operation:
    x, w = _matrix(t, "x", p["k"]), _matrix(t, "w", p["k"])
    return lambda: torch.nn.functional.linear(x, w)


def _decode_attention(torch: Any, t: Tensors, p: Params) -> Operation:
    """Attention over keys and values that lie in order: gathering the pages is not timed, which favours torch."""
    batch, kv_heads, context, page = (int(p[name]) for name in ("batch", "kv_heads", "context", "page"))
    query = t["q"].view(batch, int(p["heads"]), 1, -1)

    def in_order(pages: Any) -> Any:
        picked = pages.view(t["pages"].numel(), kv_heads, page, -1)[t["pages"].long()]
        by_head = picked.view(batch, -1, kv_heads, page, picked.shape[-1]).transpose(1, 2)
        return by_head.flatten(2, 3)[:, :, :context].contiguous()

    keys, values = in_order(t["keys"]), in_order(t["values"])
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(query, keys, values, enable_gqa=True)


OPERATIONS: dict[str, Callable[[Any, Tensors, Params], Operation]] = {
    "copy": _copy,
    "triad": _triad,
    "read": _read,
    "dot": _dot,
    "transpose": _transpose,
    "gather": _gather,
    "rmsnorm": _rmsnorm,
    "softmax": _softmax,
    "linear": _linear,
    "decode_attention": _decode_attention,
}

__all__ = ["OPERATIONS", "Operation"]
