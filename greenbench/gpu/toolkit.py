"""Which NVRTC there is, and which CUDA headers go with it: those of one toolkit whose version is NVRTC's own, or none."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from greenbench.errors import MissingPackageError

# NVRTC carries the CUDA and CCCL headers since 13.3; before that a toolkit must be found.
FIRST_WITH_HEADERS = (13, 3)

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Headers:
    """Where #include <...> is looked up; `label` is for people, `problem` says why there is nowhere."""

    label: str = ""
    paths: tuple[str, ...] = ()
    bundled: bool = False
    problem: str = ""


@cache
def nvrtc_version() -> Version:
    """Return NVRTC's version, or raise MissingPackageError naming what to install."""
    try:
        from cuda.bindings import nvrtc
        from cuda.core import Program  # noqa: F401 - asked for here, so that one sentence covers both packages
    except ImportError as error:
        raise MissingPackageError(f"compiling kernels needs cuda-core and NVRTC (libnvrtc), but {error}; {_install()}") from None
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError:  # cuda.pathfinder's DynamicLibNotFoundError is one, as is the older bindings' own
        raise MissingPackageError(f"NVRTC (libnvrtc) is not installed, so no kernel can be compiled; {_install()}") from None
    return int(major), int(minor)


def supported_archs() -> list[str]:
    """Return the plain architectures that this NVRTC can compile for: sm_80, sm_90, ..."""
    nvrtc_version()
    from cuda.bindings import nvrtc

    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return [f"sm_{number}" for number in numbers]


def find_headers(nvrtc: Version) -> Headers:
    """Return the headers that belong to this NVRTC; headers of another version are never used."""
    if nvrtc >= FIRST_WITH_HEADERS:
        return Headers(label=f"bundled with NVRTC {_text(nvrtc)}", bundled=True)
    folder = _header_folder("cudart")
    if folder is None:
        return Headers(problem=f"no CUDA headers were found for NVRTC {_text(nvrtc)}; {_install_headers(nvrtc)}")
    found = _header_version(folder)
    if found != nvrtc:
        said = f"of CUDA {_text(found)}" if found else "of an unknown version"
        return Headers(
            problem=f"the CUDA headers at {folder} are {said} and NVRTC is {_text(nvrtc)}, and the two are not mixed; "
            f"{_install_headers(nvrtc)}"
        )
    return Headers(label=f"CUDA {_text(nvrtc)} at {folder}", paths=(str(folder), *_cccl_of(folder)))


def cuda_path_warning() -> str:
    """Return a sentence if CUDA_PATH or CUDA_HOME points at another version than NVRTC's, else an empty string."""
    try:
        nvrtc = nvrtc_version()
    except MissingPackageError:
        return ""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        value = os.environ.get(variable, "")
        found = _toolkit_version(Path(value)) if value else None
        if found is not None and found != nvrtc:
            return (
                f"{variable}={value} is CUDA {_text(found)}, but kernels are compiled by NVRTC {_text(nvrtc)}; "
                f"nothing of {variable} is mixed in, unset it if you see odd errors of other tools"
            )
    return ""


def _cccl_of(cudart: Path) -> tuple[str, ...]:
    """Return the CCCL folder of the same toolkit; cooperative_groups.h and cuda/std need it."""
    if (cudart / "cuda" / "std").is_dir():
        return ()
    beside = cudart / "cccl"
    if beside.is_dir():
        return (str(beside),)
    other = _header_folder("cccl")
    # The wheels of CUDA 12 are nvidia/cuda_runtime/include and nvidia/cuda_cccl/include of one folder.
    if other is not None and other.parent.parent == cudart.parent.parent:
        return (str(other),)
    return ()


def _header_folder(library: str) -> Path | None:
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory(library)
    return Path(folder) if folder else None


def _header_version(folder: Path) -> Version | None:
    """Read CUDART_VERSION of an include folder."""
    try:
        text = (folder / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^\s*#\s*define\s+CUDART_VERSION\s+(\d+)", text, re.MULTILINE)
    return _split_version(int(found.group(1))) if found else None


def _split_version(number: int) -> Version:
    """Turn CUDA's 13050 into (13, 5)."""
    return number // 1000, number % 1000 // 10


def _toolkit_version(root: Path) -> Version | None:
    """Return the version of a toolkit folder by its version file, its headers, or else by its name."""
    try:
        text = json.loads((root / "version.json").read_text(encoding="utf-8"))["cuda"]["version"]
    except (OSError, ValueError, KeyError, TypeError):
        text = ""
    found = re.match(r"(\d+)\.(\d+)", str(text))
    if found is None and (version := _header_version(root / "include")):
        return version
    for name in (root.name, root.resolve().name):
        found = found or re.fullmatch(r"(?:cuda-)?v?(\d+)\.(\d+)(?:\.\d+)?", name)
    return (int(found.group(1)), int(found.group(2))) if found else None


def _text(version: Version | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "?"


def _install() -> str:
    return 'run pip install "cuda-core[cu13]", or pip install "greenbench[cu13]" for cupy as well (cu12 for drivers of CUDA 12)'


def _install_headers(nvrtc: Version) -> str:
    wheels = "nvidia-cuda-runtime nvidia-cuda-cccl" if nvrtc[0] >= 13 else "nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12"
    return f"install {wheels} of version {_text(nvrtc)}, or NVRTC 13.3 or later, which has its own"


__all__ = ["FIRST_WITH_HEADERS", "Headers", "Version", "cuda_path_warning", "find_headers", "nvrtc_version", "supported_archs"]
