"""Faults that a model file injects: which visit they strike, how often, and what is kept across worker restarts.

A *block* of a kernel on a lane is counted as measure takes it: evidence, clock probe, launches of the kernel, clock probe. Block
k holds everything from the end of block k-1 on, so block 1 includes preparing, verifying and warming up. A fault
strikes from block `at_block` on (default 1), at most `times` times (default: always): a fault that ends what it strikes counts
every occurrence, one that lasts counts blocks. `times` is counted in `state`, a file beside the model file, where that is named;
otherwise counting begins anew in every process. Block numbers always begin anew. A fault without `kernel` strikes all but
kernels of family probe, with which greenbench tests itself; before the first launch it shows, but uses nothing up.

Of a kernel in co-runs, block k is the k-th co-run in which it takes part on as many SMs (`corun`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from greenbench.errors import OutputError, UsageError


class FaultKind(StrEnum):
    """What can go wrong on the modelled device."""

    HANG = "hang"
    CRASH = "crash"
    STICKY = "sticky"
    THROTTLE = "throttle"
    POWER_CAP = "power_cap"
    OUT_OF_MEMORY = "out_of_memory"
    LEAK = "leak"
    WRONG_RESULT = "wrong_result"
    BIMODAL = "bimodal"
    DRIFT = "drift"
    FOREIGN_PROCESS = "foreign_process"


# Each of these ends what it strikes, so every occurrence counts; the others last a block and count once in it.
EVENTS = frozenset({FaultKind.HANG, FaultKind.CRASH, FaultKind.STICKY, FaultKind.OUT_OF_MEMORY, FaultKind.WRONG_RESULT})

# What `size` means and is by default: the share of the SM clock that is left; the slowdown of every second block; the slowdown
# that each block adds to the one before it.
DEFAULT_SIZE = {FaultKind.THROTTLE: 0.6, FaultKind.POWER_CAP: 0.93, FaultKind.BIMODAL: 0.06, FaultKind.DRIFT: 0.02}


@dataclass(frozen=True, slots=True)
class Fault:
    """One `[[fault]]` of a model file; `kernel` and `sms` None match everything."""

    kind: FaultKind
    kernel: str | None = None
    sms: int | None = None
    at_block: int = 1
    times: int | None = None
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Visit:
    """Where the device is: the block of a kernel, with its params, on a lane of so many SMs."""

    kernel: str
    params: str
    sms: int
    block: int
    probe: bool = False


NOWHERE = Visit("", "", 0, 1)


@dataclass(slots=True)
class FaultPlan:
    """Decides which faults are due; mutable, because `times` is used up."""

    faults: Sequence[Fault] = ()
    state: Path | None = None
    _counts: dict[int, int] = field(default_factory=dict)
    _struck: set[tuple[int, Visit]] = field(default_factory=set)

    def due(self, kind: FaultKind, visit: Visit) -> Fault | None:
        """Return the first such fault that strikes at this visit; asking again within a block counts once."""
        for index, fault in enumerate(self.faults):
            if fault.kind is not kind or not _matches(fault, visit):
                continue
            if kind not in EVENTS and (index, visit) in self._struck:
                return fault
            counts = self._load()
            used = counts.get(index, 0)
            if fault.times is not None and used >= fault.times:
                continue
            if not visit.kernel:
                return fault
            self._struck.add((index, visit))
            counts[index] = used + 1
            self._save(counts)
            return fault
        return None

    def _load(self) -> dict[int, int]:
        if self.state is None or not self.state.exists():
            return self._counts
        try:
            stored = json.loads(self.state.read_text())
            self._counts = {int(index): int(count) for index, count in stored.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise UsageError(f"{self.state}: not a fault state file ({error}); delete it to begin counting anew") from None
        return self._counts

    def _save(self, counts: dict[int, int]) -> None:
        """Keep the counts before the fault is carried out: a crash leaves no second chance."""
        self._counts = counts
        if self.state is None:
            return
        draft = self.state.with_name(f"{self.state.name}.{os.getpid()}.new")
        try:
            draft.write_text(json.dumps({str(index): count for index, count in counts.items()}))
            draft.replace(self.state)
        except OSError as error:
            raise OutputError(
                f"{self.state}: the fault state cannot be written ({error.strerror}); name a writable file"
            ) from None


def _matches(fault: Fault, visit: Visit) -> bool:
    named = fault.kernel == visit.kernel or (fault.kernel is None and not visit.probe)
    return named and fault.sms in (None, visit.sms) and visit.block >= fault.at_block
