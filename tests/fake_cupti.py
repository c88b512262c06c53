"""CUPTI in a few lines: the calls of cupti-python that the witness makes, on records that a test puts there."""

from __future__ import annotations

import enum
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any


class Kind(enum.IntEnum):
    """The kinds of records, by CUPTI's numbers."""

    DRIVER = 4
    RUNTIME = 5
    CONTEXT = 9
    CONCURRENT_KERNEL = 10


class Domain(enum.IntEnum):
    """The two sets of calls."""

    DRIVER_API = 1
    RUNTIME_API = 2


class cuptiError(Exception):
    """What CUPTI raises."""


class FakeCupti:
    """Hands what is `pending` to the registered callback when it is flushed; kinds in `refused` cannot be enabled."""

    ActivityKind, CallbackDomain, cuptiError = Kind, Domain, cuptiError

    def __init__(self, *refused: Kind) -> None:
        self.refused, self.enabled = refused, set[Kind]()
        self.pending: list[Any] = []
        self.clock = 1_700_000_000_000_000_000
        self._complete: Callable[[list[Any]], None] = lambda _: None

    def modules(self) -> dict[str, ModuleType]:
        """What `sys.modules` holds where the package is installed."""
        package = ModuleType("cupti")
        package.__spec__ = ModuleSpec("cupti", None)
        package.cupti = self  # type: ignore[attr-defined]
        return {"cupti": package, "cupti.cupti": self}  # type: ignore[dict-item]

    def activity_register_callbacks(self, request: Callable[[], tuple[int, int]], complete: Callable[[list[Any]], None]) -> None:
        """Keep the callback; a buffer has a size and no limit of records."""
        assert request() == (8 << 20, 0)
        self._complete = complete

    def activity_enable(self, kind: Kind) -> None:
        """Refuse or remember."""
        if kind in self.refused:
            raise cuptiError("ERROR_NOT_COMPATIBLE")
        self.enabled.add(kind)

    def activity_disable(self, kind: Kind) -> None:
        """Forget."""
        self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        """Deliver, in no order."""
        assert flag == 1
        records, self.pending = self.pending[::-1], []
        self._complete(records)

    def get_timestamp(self) -> int:
        """Time goes on by a microsecond at every look."""
        self.clock += 1_000
        return self.clock

    def get_callback_name(self, domain: Domain, cbid: int) -> str:
        """Name the one call that the tests make."""
        if cbid != 652:
            raise cuptiError("INVALID_PARAMETER")
        return "cuLaunchKernelEx" if domain is Domain.DRIVER_API else "cudaLaunchKernelExC_v11060"

    # -- what happens on the device ------------------------------------------------------------------------------------

    def context(self, identity: int, sms: int | None, parent: int = 0) -> None:
        """A context is made; green where it has a parent."""
        more = {} if sms is None else {"num_multiprocessors": sms}
        self.pending.append(
            SimpleNamespace(
                kind=Kind.CONTEXT, context_id=identity, parent_context_id=parent, is_green_context=int(parent > 0), **more
            )
        )

    def launch(self, context: int, correlation: int, name: str = "copy", cbid: int = 652) -> None:
        """A call of 2 us, and a kernel of 10 us that starts 1 us after it."""
        begin = self.get_timestamp()
        self.clock += 13_000
        self.pending.append(
            SimpleNamespace(kind=Kind.DRIVER, cbid=cbid, start=begin, end=begin + 2_000, correlation_id=correlation)
        )
        self.pending.append(
            SimpleNamespace(
                kind=Kind.CONCURRENT_KERNEL,
                name=name,
                start=begin + 3_000,
                end=begin + 13_000,
                context_id=context,
                stream_id=10 + context,
                correlation_id=correlation,
                graph_node_id=0,
                device_id=0,
            )
        )
