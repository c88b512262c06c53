"""Vendor kernels beside ours: what front matter may name, the ways in which each is measured, and the rows that these give."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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


def ways(vendor: str, dtypes: Collection[str]) -> tuple[str, ...]:
    """Return the ways of a vendor to do what a kernel with operands of these types does; none without a vendor."""
    found = VENDORS.get(vendor, ())
    return tuple(way for way in found if way == "cublaslt") if vendor == "cublas" and ONLY_LT & set(dtypes) else found


__all__ = ["ONLY_LT", "VENDORS", "WAYS", "ways"]
