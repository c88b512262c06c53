"""One product C[m][n] = A[m][k] B as a BLAS library is asked for it: in column-major words, and in its numbers for types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from greenbench.catalog import Kernel
from greenbench.errors import KernelFileError, UnsupportedError
from greenbench.products import by_columns
from greenbench.schema import ParamValue

# cudaDataType of library_types.h, cublasComputeType_t and cublasOperation_t of cublas_api.h: the same from CUDA 11 to 13.
DATA_TYPES = {"float32": 0, "tf32": 0, "float16": 2, "bfloat16": 14, "e4m3": 28}
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
NO_TRANSPOSE, TRANSPOSE = 0, 1
# The reference for sums that stay in the registers of the tensor cores, which keep 14 bits of a product of eight-bit floats.
RAW = "gemm_fp8_raw"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as it is stored, column by column; `operation` is what the library does with it before it multiplies."""

    rows: int
    columns: int
    data_type: int
    operation: int = NO_TRANSPOSE

    @property
    def leading(self) -> int:
        """Elements from one column to the next."""
        return self.rows


@dataclass(frozen=True, slots=True)
class Gemm:
    """The product C^T[n][m] = left right, column-major: what lies in memory as row-major C = A B. left is B, right is A."""

    left: Matrix
    right: Matrix
    result: Matrix
    compute: int
    fast_accumulation: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows and columns of the result, and the length of its sums."""
        return self.result.rows, self.result.columns, self.right.rows

    @property
    def eight_bit(self) -> bool:
        """True for operands of eight bits: only their sums may be left in fewer bits than the compute type has."""
        return self.right.data_type == DATA_TYPES["e4m3"]

    @classmethod
    def of(cls, kernel: Kernel, params: Mapping[str, ParamValue]) -> Self:
        """Describe what a kernel computes: B lies as the kernel's reference reads it, [k][n] or [n][k]."""
        operands = kernel.operands[:3]
        if len(operands) < 3 or not {"m", "n", "k"} <= params.keys():
            raise KernelFileError(
                f"{kernel.path.name}: the cublas yardstick needs params m, n and k, and buffers of A, B and C in this order"
            )
        m, n, k = (int(params[name]) for name in "mnk")
        types = [DATA_TYPES.get(buffer.dtype) for buffer in operands]
        a_type, b_type, c_type = (_known(kernel, number) for number in types)
        left = Matrix(k, n, b_type, TRANSPOSE) if by_columns(kernel.verify) else Matrix(n, k, b_type)
        compute = COMPUTE_32F_FAST_TF32 if kernel.dtype == "tf32" else COMPUTE_32F
        return cls(left, Matrix(k, m, a_type), Matrix(n, m, c_type), compute, kernel.verify == RAW)


def _known(kernel: Kernel, data_type: int | None) -> int:
    if data_type is None:
        there = ", ".join(buffer.dtype for buffer in kernel.operands[:3])
        raise UnsupportedError(f"cuBLAS multiplies {', '.join(DATA_TYPES)} here; {kernel.name} has {there}")
    return data_type
