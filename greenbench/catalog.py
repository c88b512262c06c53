"""The kernel library: finds the `.cu` files that ship with greenbench and the user's own, and reads them into Kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from greenbench.bufferspec import DTYPE_BYTES, FILL_KINDS, BufferSpec, TensorMap
from greenbench.errors import KernelFileError, UsageError
from greenbench.kernel import (
    TRIAL_OCCUPANCY,
    TRIAL_SMS,
    Kernel,
    Launch,
    Report,
    Variant,
)
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
    """Return all kernels by name: the built-in ones, then those of `dirs`; a name may be there only once.

    A file NAME.ARCH.cu is no kernel of its own, but the version of kernel NAME, which lies beside it, for that architecture.
    """
    kernels: dict[str, Kernel] = {}
    for folder in (kernels_dir(), *map(Path, dirs)):
        found = [load_kernel(path) for path in _files(folder)]
        for kernel in _with_versions(found):
            path = kernel.path
            if kernel.name in kernels:
                other = kernels[kernel.name].path
                raise KernelFileError(f"kernel {kernel.name!r} is both {other} and {path}; rename one of the files")
            kernels[kernel.name] = kernel
    return kernels


def _with_versions(found: Sequence[Kernel]) -> list[Kernel]:
    """Give each kernel of a folder its versions; code for one compute capability comes before that for a family."""
    bases = {kernel.name: kernel for kernel in found if not kernel.is_version}
    for version in sorted((kernel for kernel in found if kernel.is_version), key=lambda each: (each.arch or "")[-1:]):
        base = bases.get(version.name)
        if base is None:
            raise KernelFileError(
                f"{version.path}: there is no {version.name}.cu beside it, whose version for {version.arch} it is"
            )
        if difference := _difference(base, version):
            raise KernelFileError(f"{version.path}: {difference} in {base.path.name}; both files are to be one kernel")
        bases[version.name] = replace(base, versions=(*base.versions, version))
    return list(bases.values())


def _difference(base: Kernel, version: Kernel) -> str:
    """Return in what a version contradicts its kernel, an empty string where rows of both may stand side by side."""
    for (what, ours), (_, theirs) in zip(_promises(version), _promises(base), strict=True):
        if ours != theirs:
            return f"{what} is {ours}, but {theirs}"
    return ""


def _promises(kernel: Kernel) -> list[tuple[str, object]]:
    """Return what all versions of a kernel have in common: the question that it answers, not the way."""
    env = kernel.environment(kernel.params, sms=TRIAL_SMS[0], occupancy=TRIAL_OCCUPANCY)
    operands = [(b.name, b.dtype, b.count.value(env), b.fill, b.access) for b in kernel.operands]
    return [
        ("family", kernel.family.value),
        ("dtype", kernel.dtype),
        ("params", kernel.params),
        ("verify", kernel.verify or "none"),
        ("yardstick", kernel.yardstick or "none"),
        ("timing", kernel.timing or "auto"),
        ("internal", kernel.internal),
        ("the list of buffers (scratch aside)", operands),
        ("work.flops", kernel.flops and kernel.flops.value(env)),
        ("work.bytes", kernel.bytes and kernel.bytes.value(env)),
        ("report", kernel.report and (kernel.report.buffer, kernel.report.per)),
    ]


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
    "TensorMap",
    "Variant",
    "data_dir",
    "kernels_dir",
    "library",
    "load_kernel",
    "prelude_text",
    "program_text",
    "sweeps_dir",
]
