"""What the lanes of one modelled device share: where it is, what it has counted, and whether its context is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from greenbench.errors import StickyError
from greenbench.facts import ModelFacts
from greenbench.gpu.modelled.faults import NOWHERE, FaultKind, FaultPlan, Visit

Key = tuple[str, str, int]  # kernel, params, SMs: a point, whatever its timing


@dataclass(slots=True)
class DeviceState:
    """Mutable, one per opened device."""

    facts: ModelFacts
    faults: FaultPlan
    now_ns: float = 0.0
    visit: Visit = NOWHERE
    lost: str = ""
    flushes: int = 0  # how often the L2 was flushed
    looked: bool = False  # evidence was read, and nothing launched since: a probe now opens a block
    thermal_ns: float = 0.0
    power_cap_ns: float = 0.0
    blocks: Counter[Key] = field(default_factory=Counter)

    def arrive(self, key: Key, *, probe: bool) -> Visit:
        """Note that the device now works at this point, and return the visit."""
        self.visit = Visit(*key, self.blocks[key] + 1, probe)
        return self.visit

    def sm_clock_mhz(self) -> float:
        """Return the clock at this visit: lower while a throttle or a power cap is due."""
        clock = self.facts.sm_clock_mhz
        for kind in (FaultKind.THROTTLE, FaultKind.POWER_CAP):
            if fault := self.faults.due(kind, self.visit):
                clock *= fault.size
        return clock

    def require_context(self) -> None:
        """Raise StickyError where an earlier fault has taken the context."""
        if self.lost:
            raise StickyError(self.lost)
