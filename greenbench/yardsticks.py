"""Vendor kernels beside ours: what front matter may name, the ways in which each is measured, and the rows that these give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

# The part of a row's name after its kernel's, and how texts and figures write it.
WAYS: Mapping[str, str] = {
    "cublas": "cuBLAS",
    "cublas_sms": "cuBLAS with SM target",
    "cublaslt": "cuBLASLt",
    "torch": "torch",
}
# What front matter names, and its ways: vendor heuristics plan for the whole device unless they are told otherwise.
VENDORS: Mapping[str, tuple[str, ...]] = {"cublas": ("cublas", "cublas_sms", "cublaslt"), "torch": ("torch",)}
# Operands that cublasGemmEx does not take.
ONLY_LT = frozenset({"e4m3"})
# What cuBLAS takes for A and B, with the types that C then has; tf32 lies in memory as float32. A test holds it to `gpu.gemm`.
PRODUCT_DTYPES: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32", "tf32"),
    "tf32": ("float32", "tf32"),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "e4m3": ("bfloat16", "float16", "float32"),
}
# The references that torch has an operation for: those of `gpu.torch_operations`; a test holds both lists together.
TORCH_OPERATIONS = (
    *("copy", "triad", "read", "dot", "transpose", "gather"),
    *("rmsnorm", "softmax", "linear", "decode_attention"),
)


def ways(vendor: str, dtypes: Collection[str]) -> tuple[str, ...]:
    """Return the ways of a vendor to do what a kernel with operands of these types does; none without a vendor."""
    found = VENDORS.get(vendor, ())
    return tuple(way for way in found if way == "cublaslt") if vendor == "cublas" and ONLY_LT & set(dtypes) else found


def misfit(vendor: str, verify: str, dtypes: Sequence[str], integers: Collection[str]) -> str:
    """Return why a vendor has nothing for a kernel with these operands and integer params, an empty string if it has."""
    if vendor == "torch" and verify not in TORCH_OPERATIONS:
        return f"verify is {verify or 'none'}, and torch has operations for {', '.join(TORCH_OPERATIONS)}"
    if vendor != "cublas":
        return ""
    if missing := [name for name in "mnk" if name not in integers]:
        return f"a product needs integer params m, n and k, and the kernel has no {', '.join(missing)}"
    if len(dtypes) < 3:
        return f"a product needs buffers of A, B and C, first and in this order, and the kernel has {len(dtypes) or 'none'}"
    a, b, c = dtypes[:3]
    if a != b or a not in PRODUCT_DTYPES:
        return f"cuBLAS needs A and B of one type of {', '.join(PRODUCT_DTYPES)}; they are {a} and {b}"
    if c not in PRODUCT_DTYPES[a]:
        return f"cuBLAS needs C of {', '.join(PRODUCT_DTYPES[a])} where A and B are {a}; it is {c}"
    return ""


__all__ = ["ONLY_LT", "PRODUCT_DTYPES", "TORCH_OPERATIONS", "VENDORS", "WAYS", "misfit", "ways"]
