"""Compiles kernels with NVRTC to a cubin for one exact architecture; needs no driver and no GPU."""

from __future__ import annotations

import io
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from greenbench.catalog import Kernel, Variant, program_text
from greenbench.errors import FailedError
from greenbench.gpu.programs import open_cache, programs_dir
from greenbench.gpu.toolkit import Headers, cuda_path_warning, find_headers, nvrtc_version, supported_archs

_ERRORS = (
    re.compile(r"^(?P<place>\S[^\n()]*\(\d+\)): (?:catastrophic |fatal )?error(?: #[\w-]+)?: (?P<what>.*)$", re.MULTILINE),
    re.compile(r"^(?P<place>ptxas)\b.*?, line \d+; (?:error|fatal)\s*: (?P<what>.*)$", re.MULTILINE),
    re.compile(r"^(?P<place>ptxas) (?:error|fatal)\s*: (?P<what>.*)$", re.MULTILINE),
    re.compile(r"^(?P<place>nvrtc)\b[^:\n]*: (?:error|fatal)?\s*:?\s*(?P<what>.*)$", re.MULTILINE),
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(
    r"Function properties for (\S+)\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"Used (\d+) registers([^\n]*)")
_SHARED = re.compile(r"(\d+) bytes smem")


class CompileError(FailedError):
    """A kernel does not compile: the text names the user's file, line and first error, `log` is all that NVRTC said."""

    def __init__(self, text: str, log: str = "", nvrtc: str = "") -> None:
        super().__init__(text)
        self.log = log
        self.nvrtc = nvrtc


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas reported of a kernel; None where it did not say."""

    registers: int | None
    shared_bytes: int | None
    local_bytes: int | None
    spill_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A cubin, the symbol of its entry, and what ptxas reported; `note` is a warning about the cache, said once."""

    cubin: bytes
    symbol: str
    registers: int | None
    shared_bytes: int | None
    local_bytes: int | None
    spill_bytes: int | None
    log: str
    nvrtc: str
    seconds: float
    cached: bool
    headers: str
    note: str = ""


def compile_kernel(kernel: Kernel, arch: str, variant: Variant | None = None, *, cache_dir: Path | None = None) -> Compiled:
    """Compile a kernel (one of its variants) for `arch`, or take it from the cache.

    Raises CompileError where the source is at fault, MissingPackageError where NVRTC is not installed.
    """
    version = nvrtc_version()
    from cuda.core.utils import make_program_cache_key

    started = time.perf_counter()
    headers = find_headers(version) if kernel.toolkit_headers else Headers()
    text, options = program_text(kernel), _options(kernel, arch, variant, headers)
    names = (kernel.entry,) if kernel.is_name_expression else ()
    key = make_program_cache_key(
        code=text,
        code_type="c++",
        options=options,
        target_type="cubin",
        name_expressions=names,
        # The kernel's digest covers its own headers, the label stands for the toolkit's.
        extra_digest=f"{kernel.digest} {headers.label} {headers.paths}".encode() if kernel.headers else None,
    )
    cache = open_cache(programs_dir(cache_dir))
    hit = cache.load(key)
    if hit is None:
        cubin, report = _compile(kernel, text, options, names, headers)
        cache.store(key, cubin, report)
    else:
        cubin, report = hit
    return Compiled(
        cubin=cubin,
        nvrtc=_version_text(),
        seconds=time.perf_counter() - started,
        cached=hit is not None,
        headers=headers.label,
        note=cache.note(),
        symbol=report["symbol"],
        log=report["log"],
        registers=report["registers"],
        shared_bytes=report["shared_bytes"],
        local_bytes=report["local_bytes"],
        spill_bytes=report["spill_bytes"],
    )


def _options(kernel: Kernel, arch: str, variant: Variant | None, headers: Headers) -> Any:
    from cuda.core import ProgramOptions

    macros = [*kernel.defines, *((name, str(value)) for name, value in (variant.defines if variant else ()))]
    own = [str(kernel.path.parent / folder) for folder in kernel.include]
    paths = [*own, *headers.paths] if kernel.headers else []
    return ProgramOptions(
        # NVRTC looks for "own.h" in the folder of this name, and without one in the current folder.
        name=str(kernel.path.resolve()) if kernel.headers else kernel.path.name,
        arch=arch,
        std="c++17",
        ptxas_options=["-v"],
        define_macro=macros or None,
        include_path=paths or None,
        use_bundled_headers=True if headers.bundled else None,
    )


def _compile(kernel: Kernel, text: str, options: Any, names: tuple[str, ...], headers: Headers) -> tuple[bytes, dict[str, Any]]:
    """Run NVRTC; return the cubin and the report that is kept beside it."""
    from cuda.core import Program

    stream = io.StringIO()
    try:
        program = Program(text, "c++", options)
        try:
            code = program.compile("cubin", name_expressions=names, logs=stream)
        finally:
            program.close()
    except Exception as error:
        # NVRTCError lives in a private module of cuda.core, so it is told by its name.
        if type(error).__name__ != "NVRTCError":
            raise
        raise _failure(kernel, options.arch, str(error), headers) from None
    log = stream.getvalue().replace("\x00", "").strip()
    mapped = code.symbol_mapping.get(kernel.entry, kernel.entry)
    symbol = mapped.decode() if isinstance(mapped, bytes) else str(mapped)
    entries = _ENTRY.findall(log)
    if entries and symbol not in entries:
        there = ", ".join(entries)
        what = f'compile error: {kernel.path.name}: no symbol {kernel.entry!r}, only {there}; is it extern "C"?'
        raise CompileError(what, log, _version_text())
    return bytes(code.code), {"symbol": symbol, "log": log, **asdict(resources(log, symbol))}


def resources(log: str, symbol: str) -> Resources:
    """Read ptxas' report of one entry; functions that it calls without inlining count with it."""
    entries = set(_ENTRY.findall(log))
    frames = [match for match in _FRAME.finditer(log) if match.group(1) == symbol or match.group(1) not in entries]
    own = re.split(r"Compiling entry function ", log)
    part = next((piece for piece in own if piece.startswith(f"'{symbol}'")), "")
    used = _USED.search(part)
    shared = _SHARED.search(used.group(2)) if used else None
    return Resources(
        registers=int(used.group(1)) if used else None,
        shared_bytes=(int(shared.group(1)) if shared else 0) if used else None,
        local_bytes=sum(int(match.group(2)) for match in frames) if frames else None,
        spill_bytes=sum(int(match.group(3)) + int(match.group(4)) for match in frames) if frames else None,
    )


def _failure(kernel: Kernel, arch: str, message: str, headers: Headers) -> CompileError:
    """Turn NVRTC's log into one sentence: place, first error, versions, and a way out where one is known."""
    log = message.partition("compilation log:")[2].replace("\x00", "").strip() or message
    first = next((found for pattern in _ERRORS if (found := pattern.search(log))), None)
    what = f"{first['place']}: {first['what'].strip()}" if first else log.splitlines()[0]
    if first and "(" in first["place"] and not first["place"].startswith(kernel.path.name):
        what += f" (included from {kernel.path.name})"
    if "open source file" in what:
        places = "it is not beside the file, not in an `include` folder and not one of CUDA's (NVRTC has none of the host's)"
        what += f"; {headers.problem or places}"
    if "failed to create directory" in what:
        what += "; set XDG_CACHE_HOME to a folder that can be written"
    versions = f"NVRTC {_version_text()}, {arch}" + (f", headers {headers.label}" if headers.label else "")
    return CompileError(f"compile error: {what} [{versions}]", log, _version_text())


def _version_text() -> str:
    return "{}.{}".format(*nvrtc_version())


__all__ = [
    "CompileError",
    "Compiled",
    "Resources",
    "compile_kernel",
    "cuda_path_warning",
    "nvrtc_version",
    "resources",
    "supported_archs",
]
