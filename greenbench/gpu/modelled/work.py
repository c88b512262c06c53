"""A kernel on a lane of the modelled device: `bounds.predict` plus a seeded jitter, and the faults that strike launches."""

from __future__ import annotations

import os
import signal
from random import Random
from typing import TYPE_CHECKING

from greenbench.bounds import latency_cycles, predict
from greenbench.errors import FailedError
from greenbench.gpu import Verification
from greenbench.gpu.modelled.faults import FaultKind, Visit
from greenbench.gpu.modelled.shape import Shape
from greenbench.gpu.modelled.state import DeviceState
from greenbench.schema import Family

if TYPE_CHECKING:
    from greenbench.gpu.modelled.lane import ModelledLane

LINE_BYTES = 128
NO_CODE = "modelled: no code runs, so nothing was computed or compared"


class ModelledWork:
    """A kernel prepared for one lane."""

    def __init__(self, lane: ModelledLane, state: DeviceState, shape: Shape) -> None:
        self._lane, self._state, self._shape = lane, state, shape
        self.config, self.flops, self.bytes = shape.config, shape.flops, shape.bytes
        self.working_set_bytes, self.written_bytes, self.grid = shape.working_set_bytes, shape.written_bytes, shape.grid
        self.ctas_per_sm = shape.ctas_per_sm
        self._resident = shape.keeps_state
        self._flushes = state.flushes
        self._predicted: dict[tuple[bool, bool, float], float] = {}
        self._visit: Visit | None = None
        self._random = Random()
        self._offset = 0.0
        self._sample = -1
        self._step_ns = self._step_cycles = 0.0
        self._counters: tuple[FaultKind, ...] = ()
        self._reported = 0.0

    def rotate(self, on: bool) -> None:
        """Rotate past the L2, or stay on one set; a kernel that carries state never rotates."""
        self._resident = self._shape.keeps_state or not on
        self._sample = -1

    def launch(self) -> None:
        """Let one launch's time pass on the lane."""
        lane = self._lane
        if self._sample != lane.sample:
            self._begin_sample()
        lane.now_ns += self._step_ns
        lane.cycles += self._step_cycles
        if self._counters:
            self._count(self._step_ns)
        if self._flushed:
            self._warm()

    @property
    def _flushed(self) -> bool:
        """True where the L2 was flushed and nothing of this work launched since."""
        return self._flushes != self._state.flushes

    def _warm(self) -> None:
        """Note that a launch after a flush has brought the working set back; the next one may be faster."""
        self._flushes = self._state.flushes
        self._sample = -1

    def _begin_sample(self) -> None:
        """Decide what one launch takes until the next mark, probe or gate."""
        mhz, factor = self._arrive()
        facts = self._state.facts
        step = self._time_us(mhz) * factor
        self._note_report(mhz, factor)
        if not self._lane.gated:
            step = max(step, facts.launch_host_us)
        self._step_ns = step * 1e3
        self._step_cycles = step * mhz
        self._sample = self._lane.sample

    def _note_report(self, mhz: float, factor: float) -> None:
        """Note the cycles that the kernel would measure of itself: without its launch."""
        self._reported = (self._time_us(mhz) - self._state.facts.launch_us) * factor * mhz

    def _arrive(self) -> tuple[float, float]:
        """Make this the device's work, let faults strike, and return the SM clock and the factor on the predicted time."""
        state, lane = self._state, self._lane
        state.require_context()
        visit = state.arrive(self._shape.key, probe=self._shape.kernel.family is Family.PROBE)
        lane.ran(self._shape.key)
        if visit != self._visit:
            self._visit = visit
            self._random.seed(f"{state.facts.name}|{visit}")
            self._offset = self._random.gauss(0.0, state.facts.jitter_pct / 100)
        noise = 1.0 + self._offset + self._random.gauss(0.0, state.facts.jitter_pct / 100)
        if self._shape.lasts_ns is not None:
            noise = 1.0  # timed by the timer itself
        if not state.faults.faults:
            return state.facts.sm_clock_mhz, noise
        self._strike(visit)
        return state.sm_clock_mhz(), noise * self._slowdown(visit)

    def _strike(self, visit: Visit) -> None:
        """Carry out the faults that end a launch, and note which counters run while it lasts."""
        due, where = self._state.faults.due, f"{visit.kernel} at {visit.sms} SMs"
        if due(FaultKind.CRASH, visit):
            os.kill(os.getpid(), signal.SIGSEGV)
        if due(FaultKind.OUT_OF_MEMORY, visit):
            raise FailedError(f"out of memory: {where}, block {visit.block} (modelled fault)")
        if due(FaultKind.STICKY, visit):
            self._state.lost = f"{where}: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access (modelled fault)"
        if due(FaultKind.HANG, visit):
            self._lane.hung = True
        self._counters = tuple(kind for kind in (FaultKind.THROTTLE, FaultKind.POWER_CAP) if due(kind, visit))

    def _slowdown(self, visit: Visit) -> float:
        """Return the factor of the faults that only cost time."""
        factor = 1.0
        if fault := self._state.faults.due(FaultKind.BIMODAL, visit):
            factor += fault.size if visit.block % 2 == 0 else 0.0
        if fault := self._state.faults.due(FaultKind.DRIFT, visit):
            factor += fault.size * (visit.block - fault.at_block + 1)
        return factor

    def _count(self, ns: float) -> None:
        if FaultKind.THROTTLE in self._counters:
            self._state.thermal_ns += ns
        if FaultKind.POWER_CAP in self._counters:
            self._state.power_cap_ns += ns

    def _time_us(self, mhz: float) -> float:
        """Return the predicted time of a plain launch."""
        key = (self._resident, self._flushed, mhz)
        if key not in self._predicted:
            self._predicted[key] = self._predict(mhz, flushed=self._flushed)
        return self._predicted[key]

    def _predict(self, mhz: float, *, flushed: bool) -> float:
        shape, facts = self._shape, self._state.facts
        kernel = shape.kernel
        if shape.lasts_ns is not None:
            return shape.lasts_ns / 1e3 + facts.launch_us
        if shape.host_us is not None:
            return shape.host_us
        if shape.units and kernel.family is Family.LATENCY:
            cycles = shape.units * (shape.unit_cycles or latency_cycles(facts, shape.working_set_bytes))
            if flushed and shape.unit_cycles is None:
                missed = min(shape.units, shape.working_set_bytes // LINE_BYTES)
                cycles += missed * (facts.hbm_cycles - cycles / shape.units)
            return cycles / mhz + facts.launch_us
        predicted = predict(
            facts,
            family=kernel.family.value,
            dtype=kernel.dtype,
            flops=shape.flops,
            bytes=shape.bytes,
            sms=self._lane.sms,
            working_set_bytes=shape.working_set_bytes,
            written_bytes=shape.written_bytes,
            grid=shape.grid,
            resident=self._resident and not flushed,
            sm_clock_mhz=mhz,
        )
        return predicted.us * shape.pace

    def replay(self, launches: int) -> float:
        """Let the time of so many launches inside a graph pass, and return it in seconds."""
        mhz, factor = self._arrive()
        facts = self._state.facts
        first = self._time_us(mhz)
        self._warm()
        work_us = first + self._time_us(mhz) * (launches - 1)
        total = (work_us + (facts.graph_launch_us - facts.launch_us) * launches) * factor
        self._note_report(mhz, factor)
        self._lane.advance(total * 1e3, mhz)
        self._count(total * 1e3)
        self._lane.wait()
        return total / 1e6

    def verify(self) -> Verification:
        """Launch once and compare nothing, so there is no error to report, unless a fault makes the result wrong."""
        self._sample = -1
        self.launch()
        self._sample = -1
        self._lane.wait()
        if self._state.faults.due(FaultKind.WRONG_RESULT, self._state.visit):
            return Verification(1.0, 0.0, "modelled fault: every element differs")
        return Verification(None, None, NO_CODE)

    def capture(self, launches: int) -> ModelledReplay:
        """Return a graph of that many launches."""
        return ModelledReplay(self, self._lane, launches)

    def report(self) -> float | None:
        """Return cycles per unit of the latest launch, for kernels that measure themselves."""
        self._lane.wait()
        units = self._shape.units
        return self._reported / units if units and self._reported > 0 else None


class ModelledReplay:
    """A graph of several launches; inside it a launch costs less than on a stream."""

    def __init__(self, work: ModelledWork, lane: ModelledLane, launches: int) -> None:
        self._work, self._lane = work, lane
        self.launches = launches

    def run(self) -> float:
        """Let the launches' time pass and return it in seconds."""
        return self._work.replay(self.launches)

    def smids(self) -> tuple[int, ...]:
        """Return the SM ids of the lane."""
        return self._lane.seen()

    def close(self) -> None:
        """Nothing is held."""
