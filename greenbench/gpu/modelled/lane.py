"""A lane of the modelled device: a virtual clock that launches advance and marks read, and the SMs that it was granted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from greenbench.catalog import Kernel
from greenbench.errors import UnsupportedError
from greenbench.gpu import ClockSample, Work
from greenbench.gpu.hostprobes import api_of, obstacle
from greenbench.gpu.modelled.faults import FaultKind, Visit
from greenbench.gpu.modelled.hostwork import ModelledHostWork
from greenbench.gpu.modelled.shape import prepare
from greenbench.gpu.modelled.state import DeviceState, Key
from greenbench.gpu.modelled.work import ModelledWork
from greenbench.schema import Grant, HostAction, ParamValue, Partition, Placement

CENSUS_NS = 100_000.0
PROBE_NS = 5_000.0
# Cycle counters of different SMs do not agree; nor do the modelled ones.
SM_SKEW_CYCLES = 1_000_003
EPOCH_NS = 1_700_000_000_000_000_000
HANG_STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class ModelledMark:
    """A point of a lane's virtual time."""

    lane: ModelledLane
    at_ns: float

    def since(self, earlier: Self) -> float:
        """Return seconds of virtual time between two marks."""
        self.lane.wait()
        return (self.at_ns - earlier.at_ns) / 1e9


class ModelledLane:
    """A partition that the modelled driver granted."""

    def __init__(self, state: DeviceState, partition: Partition, grant: Grant) -> None:
        self._state = state
        self.partition = partition
        self.sms = grant.sms
        self.now_ns = state.now_ns
        self.cycles = state.now_ns * state.facts.sm_clock_mhz / 1e3
        self.gated = False
        self.hung = False
        self.sample = 0  # changes whenever the next launch may behave differently from the last one
        self._in_block = False
        self._ran: Key | None = None
        seen = self._with_leak(grant.smids, Visit("", "", grant.sms, 1))
        self.grant = replace(grant, smids=seen, placement=Placement.CONFINED if len(seen) == grant.sms else Placement.LEAKED)
        self._granted = grant.smids

    def advance(self, ns: float, mhz: float) -> None:
        """Let the lane be busy for a while."""
        self.now_ns += ns
        self.cycles += ns * mhz / 1e3

    def ran(self, key: Key) -> None:
        """Note which point was launched since the probe that opened a block, if one did."""
        self._state.looked = False
        if self._in_block:
            self._ran = key

    def wait(self) -> None:
        """Wait for the stream: for ever if a kernel hangs, until a signal ends the process."""
        while self.hung:
            time.sleep(HANG_STEP_S)
        self._state.require_context()
        self._state.now_ns = max(self._state.now_ns, self.now_ns)

    def _catch_up(self) -> None:
        """Let an idle lane have waited while another one worked."""
        behind = self._state.now_ns - self.now_ns
        if behind > 0:
            self.advance(behind, self._state.facts.sm_clock_mhz)

    def _with_leak(self, smids: tuple[int, ...], visit: Visit) -> tuple[int, ...]:
        if self._state.faults.due(FaultKind.LEAK, visit) is None:
            return smids
        foreign = next((i for i in range(self._state.facts.device.sm_count) if i not in smids), None)
        return smids if foreign is None else tuple(sorted((*smids, foreign)))

    def seen(self) -> tuple[int, ...]:
        """Return the SM ids that CTAs of this lane run on now."""
        return self._with_leak(self._granted, self._state.visit)

    def seen_at(self, visits: Iterable[Visit]) -> tuple[int, ...]:
        """Return the SM ids that CTAs of this lane ran on at these visits."""
        return tuple(sorted({smid for visit in visits for smid in self._with_leak(self._granted, visit)} | set(self._granted)))

    def census(self) -> tuple[int, ...]:
        """Return the SM ids of the lane."""
        self.wait()
        self._catch_up()
        self.advance(CENSUS_NS, self._state.facts.sm_clock_mhz)
        return self.seen()

    def probe(self) -> ClockSample:
        """Read virtual timer and cycles on every SM of the lane; what this means for counting blocks stands in `faults`."""
        self.wait()
        self._catch_up()
        self.sample += 1
        self.advance(PROBE_NS, self._state.sm_clock_mhz())
        tick = int(self._state.facts.device.timer_tick_ns or 1)
        timer = EPOCH_NS + int(self.now_ns) // tick * tick
        sample = ClockSample({smid: (timer, int(self.cycles) + smid * SM_SKEW_CYCLES) for smid in self.seen()})
        if self._state.looked:
            self._in_block = True
        elif self._ran is not None:
            self._state.blocks[self._ran] += 1
            self._in_block = False
        self._ran = None
        return sample

    def prepare(self, kernel: Kernel, params: Mapping[str, ParamValue], share: Work | None = None) -> ModelledWork:
        """Do the arithmetic of launch shape, buffers and bound; `share` changes nothing, as there are no buffers."""
        self.wait()
        if kernel.host:
            if why := obstacle(HostAction(kernel.host), api_of(params), self._state.facts.device.cuda, self.partition):
                raise UnsupportedError(why)
            return ModelledHostWork(self, self._state, prepare(self._state, kernel, params, self.sms))
        return ModelledWork(self, self._state, prepare(self._state, kernel, params, self.sms))

    def prepare_yardstick(self, kernel: Kernel, params: Mapping[str, ParamValue], way: str) -> ModelledWork:
        """Model the vendor's kernel beside this one."""
        self.wait()
        return ModelledWork(self, self._state, prepare(self._state, kernel, params, self.sms, way=way))

    def mark(self) -> ModelledMark:
        """Record the lane's virtual time."""
        self.sample += 1
        self._catch_up()
        return ModelledMark(self, self.now_ns)

    def flush_l2(self, dirty: bool) -> None:
        """Put every working set out of the L2, in the time that writing (dirty), or writing and reading (clean), it takes."""
        device, rate = self._state.facts.device, self._state.facts.peaks.hbm_gb_s
        self._catch_up()
        self._state.flushes += 1
        self.sample += 1
        if rate:
            self.advance((1 if dirty else 4) * device.l2_bytes / rate, self._state.facts.sm_clock_mhz)

    def sync(self) -> None:
        """Wait for the stream."""
        self.wait()

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return a null stream: there is nothing to launch on."""
        return 0, 0

    def close(self) -> None:
        """Nothing is held."""


class ModelledGate:
    """Holds lanes: while it is closed, launches queue up and the host's launch cost does not show."""

    def __init__(self, lanes: tuple[ModelledLane, ...]) -> None:
        self._lanes = lanes
        self._set(True)

    def _set(self, held: bool) -> None:
        for lane in self._lanes:
            lane.gated = held
            lane.sample += 1

    def open(self) -> None:
        """Let the lanes run."""
        self._set(False)

    def passed(self) -> bool:
        """Return True: virtual time does not run out."""
        return True
