"""The modelled GPU: answers the seam with the arithmetic of `bounds`, in virtual time; nothing sleeps unless a fault hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from greenbench.catalog import Kernel
from greenbench.costeps import CoSetup
from greenbench.errors import UnsupportedError
from greenbench.gpu import Gate, Lane, OpenGate, Refusal
from greenbench.gpu.annotate import Annotator
from greenbench.gpu.modelled.corun import ModelledCorun
from greenbench.gpu.modelled.faults import NOWHERE, FaultKind
from greenbench.gpu.modelled.grants import SplitRules
from greenbench.gpu.modelled.lane import EPOCH_NS, ModelledGate, ModelledLane
from greenbench.gpu.modelled.spec import ModelSpec
from greenbench.gpu.modelled.state import DeviceState
from greenbench.gpu.mps import share_obstacle
from greenbench.schema import DeviceFacts, Evidence, Family, Partition

# NVML's clock event reasons.
POWER_CAP_REASON = 0x4
THERMAL_REASON = 0x40
FOREIGN_PID = 4_000_001
BUSY_POWER_SHARE = 0.6
BUSY_C, THROTTLING_C = 48.0, 92.0


class ModelledGpu:
    """A device that runs no code."""

    def __init__(self, spec: ModelSpec) -> None:
        self._state = DeviceState(spec.facts, spec.faults)
        self._rules = SplitRules(spec.facts.device, frozenset(spec.facts.refused_sms))
        self._annotator = Annotator()
        self.device: DeviceFacts = spec.facts.device
        self.gates = True

    @contextmanager
    def lanes(self, partitions: Sequence[Partition], *, disjoint: bool = False) -> Iterator[list[Lane | Refusal]]:
        """Give each partition its lane or its refusal; without `disjoint` each has a split of its own: 8 SMs lie inside 16."""
        yield self._disjoint(partitions) if disjoint else [self._lane(partition) for partition in partitions]

    def _disjoint(self, partitions: Sequence[Partition]) -> list[Lane | Refusal]:
        try:
            grants = self._rules.disjoint(partitions)
        except UnsupportedError as error:
            return [Refusal(partition, error) for partition in partitions]
        return [ModelledLane(self._state, p, grant) for p, grant in zip(partitions, grants, strict=True)]

    def _lane(self, partition: Partition) -> Lane | Refusal:
        try:
            return ModelledLane(self._state, partition, self._rules.grant(partition))
        except UnsupportedError as error:
            return Refusal(partition, error)

    def gate(self, *lanes: Lane) -> Gate:
        """Hold these lanes until the gate is opened."""
        if not self.gates:
            return OpenGate()
        return ModelledGate(tuple(lane for lane in lanes if isinstance(lane, ModelledLane)))

    def corun(self, setup: CoSetup, kernels: Mapping[str, Kernel]) -> ModelledCorun:
        """Prepare the roles of one point, whatever its mechanism; raises the PointError that is the point's outcome."""
        return ModelledCorun(self._state, self._rules, self.evidence, setup, kernels)

    def now_ns(self) -> int:
        """Read the virtual clock, on which the stamps of co-runs are."""
        return EPOCH_NS + int(self._state.now_ns)

    def annotate(
        self, name: str, category: str = "sweep", payload: int | None = None, family: Family | None = None
    ) -> AbstractContextManager[None]:
        """Open an NVTX range of domain `greenbench`."""
        return self._annotator.range(name, category, payload, family)

    def profiled(self) -> AbstractContextManager[None]:
        """Do nothing: no profiler sees what does not run."""
        return nullcontext()

    def evidence(self, *, energy: bool = False) -> Evidence:
        """Return what NVML would show at the latest visit; counters run while a fault lasts."""
        state, device = self._state, self.device
        state.looked = True
        throttled = state.faults.due(FaultKind.THROTTLE, state.visit)
        capped = state.faults.due(FaultKind.POWER_CAP, state.visit)
        limit = device.power_limit_w
        power = None if limit is None else limit * (1.0 if capped else BUSY_POWER_SHARE)
        return Evidence(
            sm_clock_mhz=state.sm_clock_mhz(),
            mem_clock_mhz=device.max_mem_clock_mhz,
            power_w=power,
            energy_mj=None if limit is None else limit * BUSY_POWER_SHARE * state.now_ns / 1e6,
            temperature_c=THROTTLING_C if throttled else BUSY_C,
            reasons=(THERMAL_REASON if throttled else 0) | (POWER_CAP_REASON if capped else 0),
            power_cap_ns=int(state.power_cap_ns),
            thermal_ns=int(state.thermal_ns),
            board_limit_ns=0,
            hw_slowdown_ns=0,
            processes=self._processes(),
        )

    def _processes(self) -> tuple[int, ...]:
        """Return what NVML would list: this process, and a foreign one while that fault is due."""
        # A process holds the GPU whatever runs on it: greenbench's own probes, which faults spare, do not hide it.
        visit = NOWHERE if self._state.visit.probe else self._state.visit
        foreign = self._state.faults.due(FaultKind.FOREIGN_PROCESS, visit)
        return (os.getpid(), FOREIGN_PID) if foreign else (os.getpid(),)

    def allowance(self) -> str:
        """Return why this process must not measure partitions now: the same rule as on a real device."""
        return share_obstacle()

    def close(self) -> None:
        """Forget where the device was; safe to call twice."""
        self._state.visit = NOWHERE
