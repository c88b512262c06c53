"""NVTX push/pop ranges of domain `greenbench`, shared by both backends; costs next to nothing when no tool listens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar, Protocol

from greenbench.schema import Family

DOMAIN = "greenbench"
CATEGORIES = ("sweep", "kernel", "workload", "setup")
# The whole measuring phase of a process, by which a profiler finds what it is to record.
MEASURING = "measuring"
# ARGB: one colour for each family of kernels, grey for what is not measured, and one for what has no family.
COLOURS: Mapping[str, int] = {
    Family.GEMM: 0xFF2A9D3F,
    Family.MEMORY: 0xFF2B6CB0,
    Family.LATENCY: 0xFFD97706,
    Family.PROBE: 0xFF8B5CF6,
    "setup": 0xFF9CA3AF,
    "workload": 0xFF0E9AA7,
    "sweep": 0xFF374151,
    "kernel": 0xFF374151,
}

# A tool shows itself in one of these before it is loaded; without any of them `nvtx` (which imports numpy) is not imported.
_SIGNS = ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NV_TPS_LAUNCH_TOKEN", "LD_PRELOAD")
_MAX_RANGES = 4096  # (name, category, payload) combinations kept; payloads are SM counts and rounds, so a sweep has far fewer

_Key = tuple[str, str, int | None, Family | None]


class _Domain(Protocol):
    """The part of `nvtx.Domain` that is used."""

    def get_event_attributes(self, message: str, color: int, category: str, payload: int | None) -> object: ...

    def push_range(self, attributes: object) -> None: ...

    def pop_range(self) -> None: ...


class _Silence:
    """The range of a process that no tool listens to: reusable, nestable, stateless."""

    __slots__ = ()
    # C functions that ignore their arguments and return None and "" (false): half the cost of Python-level methods.
    __enter__: ClassVar[Any] = staticmethod([].clear)
    __exit__: ClassVar[Any] = staticmethod("".format)


class _Range:
    """A prebuilt range: stateless between push and pop, so one object may be nested and used from several threads."""

    __slots__ = ("_attributes", "_pop", "_push")

    def __init__(self, domain: _Domain, attributes: object) -> None:
        self._push = domain.push_range
        self._pop = domain.pop_range
        self._attributes = attributes

    def __enter__(self) -> None:
        self._push(self._attributes)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pop()


_SILENCE: AbstractContextManager[None] = _Silence()


class Annotator:
    """Gives ranges to whoever measures; decides once, when it is made, whether a tool listens."""

    __slots__ = ("_domain", "_ranges")

    def __init__(self, enabled: bool | None = None) -> None:
        """Ask nvtx for the domain: never (False), always (True), or if the environment shows signs of a tool (None)."""
        wanted = bool(_signs(os.environ)) if enabled is None else enabled
        self._domain: _Domain | None = _listening_domain() if wanted else None
        self._ranges: dict[_Key, _Range] = {}

    @property
    def listening(self) -> bool:
        """True where ranges reach a tool."""
        return self._domain is not None

    def range(
        self, name: str, category: str = "sweep", payload: int | None = None, family: Family | None = None
    ) -> AbstractContextManager[None]:
        """Return a push/pop range; keep names few and put what varies (SM count, round) into the payload.

        Attributes are built once per (name, category, payload, family) and never changed, which is what makes them safe to share:
        setting the payload of a shared object before each push would race with other threads.
        """
        if self._domain is None:
            return _SILENCE
        key = (name, category, payload, family)
        return self._ranges.get(key) or self._build(self._domain, key)

    def _build(self, domain: _Domain, key: _Key) -> _Range:
        name, category, payload, family = key
        if len(self._ranges) >= _MAX_RANGES:
            self._ranges.clear()
        made = _Range(domain, domain.get_event_attributes(name, COLOURS[family or category], category, payload))
        self._ranges[key] = made
        return made


def tool_problem() -> str:
    """Return why a profiler that is loaded into this process will see no greenbench ranges, or an empty string."""
    injected = _injected(os.environ)
    if not injected:
        return ""
    try:
        import nvtx
    except ImportError:
        return f"{injected} loads a profiler, but the package nvtx is not installed: its report will hold no greenbench ranges"
    if os.environ.get("NVTX_DISABLE"):
        return f"{injected} loads a profiler, but NVTX_DISABLE is set: unset it to see greenbench ranges in the report"
    if type(nvtx.get_domain(DOMAIN)).__name__ != "DummyDomain":
        return ""
    return (
        f"{injected} loads a profiler that does not enable NVTX domains: this nsys is too old for nvtx >= 0.2.12, "
        "use nsys >= 2025.3 or nvtx 0.2.11"
    )


def _listening_domain() -> _Domain | None:
    """Return the domain if a tool has enabled it; a missing package is the same as no tool (see `tool_problem`)."""
    try:
        import nvtx
    except ImportError:
        return None
    if os.environ.get("NVTX_DISABLE"):
        return None
    domain = nvtx.get_domain(DOMAIN)
    if type(domain).__name__ == "DummyDomain":
        return None
    for category in CATEGORIES:  # in this order, so that a category has the same id in every process
        domain.get_category_id(category)
    listening: _Domain = domain
    return listening


def _signs(environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in _SIGNS if environment.get(name))


def _injected(environment: Mapping[str, str]) -> str:
    """Name the variable by which an NVTX tool is loaded for certain, or return an empty string."""
    if environment.get("NVTX_INJECTION64_PATH"):
        return "NVTX_INJECTION64_PATH"
    return "LD_PRELOAD" if "libToolsInjectionProxy64" in environment.get("LD_PRELOAD", "") else ""
