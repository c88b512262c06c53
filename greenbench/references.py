"""The references of `verify` by name, and what a kernel must have for each: known without numpy, which computing them needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """The buffers and params that a reference reads, by the letters of its formula; several are written `a b c`."""

    buffers: str = ""
    integers: str = ""
    reals: str = ""


# Computed in `verify` and the modules that it gathers; a test holds both lists together.
NEEDS = {
    "none": Needs(),
    "copy": Needs("a b"),
    "triad": Needs("a b c", reals="s"),
    "read": Needs("b partial"),
    "write": Needs("a"),
    "chase": Needs("nodes state cycles", "hops"),
    "spin": Needs("elapsed", "ns"),
    "gemm": Needs("a b c", "m n k"),
    "gemm_nt": Needs("a b c", "m n k"),
    "gemm_tf32": Needs("a b c", "m n k"),
    "gemm_fp8": Needs("a b c", "m n k"),
    "gemm_fp8_raw": Needs("a b c", "m n k"),
    "linear": Needs("x w y", "m n k"),
    "dot": Needs("b c partial"),
    "transpose": Needs("a b", "rows cols"),
    "gather": Needs("a b index", "rows d"),
    "rmsnorm": Needs("x w y", "rows cols", "eps"),
    "softmax": Needs("x y", "rows cols"),
    "decode_attention": Needs("q keys values pages out", "batch heads kv_heads context page"),
    "chase_index": Needs("nodes end cycles", "hops"),
    "l2_slices": Needs("ends per_sm cycles", "lines percentile"),
    "l2_halves": Needs("nodes state cycles", "hops half"),
    "atomic": Needs("sums last cycles", "addresses hops"),
    "grid_sync": Needs("passed cycles", "barriers"),
    "peak_tensor": Needs("out", "loops"),
    "peak_fma": Needs("out", "loops"),
    "l2_read": Needs("b partial", "passes"),
    "tenant": Needs("set out", "iterations tenant bytes"),
}
