"""The kernel library: finds the `.cu` files that ship with greenbench and the user's own, and reads them into Kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from greenbench.errors import KernelFileError, UsageError
from greenbench.kernel import DTYPE_BYTES, FILL_KINDS, BufferSpec, Kernel, Launch, Report, Variant
from greenbench.kernelfile import read_kernel
from greenbench.source import read_source

_PACKAGE = Path(__file__).resolve().parent
PRELUDE = "prelude.cuh"


def data_dir(name: str) -> Path:
    """Return a folder of shipped data: inside the package, or beside it where that is greenbench's own checkout."""
    # A wheel puts nothing beside the package but other people's packages, hence the test for our project file.
    packaged = _PACKAGE / "_data" / name
    if packaged.is_dir():
        return packaged
    checkout = _PACKAGE.parent / name
    if (_PACKAGE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    raise UsageError(f"the folder {name!r} of greenbench is neither at {packaged} nor at {checkout}; install greenbench again")


def kernels_dir() -> Path:
    """Return the folder of the built-in kernels."""
    return data_dir("kernels")


def sweeps_dir() -> Path:
    """Return the folder of the built-in plans."""
    return data_dir("sweeps")


@cache
def prelude_text() -> str:
    """Return the device code that is put in front of every kernel."""
    return read_source(kernels_dir() / PRELUDE)


def program_text(kernel: Kernel) -> str:
    """Return what is compiled: the prelude and the file; errors name the line of the one in which they are."""
    return f'#line 1 "{PRELUDE}"\n{kernel.prelude}\n#line 1 "{kernel.path.name}"\n{kernel.source}'


def load_kernel(path: Path, prelude: str | None = None) -> Kernel:
    """Read and check one kernel file, by default with the prelude of the built-in library."""
    return read_kernel(Path(path), prelude_text() if prelude is None else prelude)


def library(dirs: Sequence[Path] = ()) -> dict[str, Kernel]:
    """Return all kernels by name: the built-in ones, then those of `dirs`; a name may be there only once."""
    kernels: dict[str, Kernel] = {}
    for folder in (kernels_dir(), *map(Path, dirs)):
        for path in _files(folder):
            kernel = load_kernel(path)
            if kernel.name in kernels:
                other = kernels[kernel.name].path
                raise KernelFileError(f"kernel {kernel.name!r} is both {other} and {path}; rename one of the files")
            kernels[kernel.name] = kernel
    return kernels


def _files(folder: Path) -> list[Path]:
    """Return the kernel files of a folder, sorted by name."""
    if not folder.is_dir():
        raise KernelFileError(f"{folder} is not a folder; kernels are read from folders that hold .cu files")
    files = sorted(folder.glob("*.cu"))
    if not files:
        raise KernelFileError(f"{folder} holds no .cu file; a kernel is a .cu file with front matter")
    return files


__all__ = [
    "DTYPE_BYTES",
    "FILL_KINDS",
    "BufferSpec",
    "Kernel",
    "Launch",
    "Report",
    "Variant",
    "data_dir",
    "kernels_dir",
    "library",
    "load_kernel",
    "prelude_text",
    "program_text",
    "sweeps_dir",
]
