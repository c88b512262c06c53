"""Probes that the host times: what recording an event, or making and destroying a green context and its stream, costs there.

A kernel file with `host = "..."` is such a probe. Its kernel is what runs in the thing made when the probe is verified; its
samples are host time (perf_counter_ns), and stand in rows of timing `host`, apart from all device time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from greenbench.catalog import Kernel
from greenbench.errors import UnsupportedError
from greenbench.gpu import Verification, driver
from greenbench.gpu.contexts import Maker, runtime
from greenbench.schema import Api, HostAction, ParamValue, Partition, SmsMode

if TYPE_CHECKING:
    from greenbench.gpu.lane import CudaLane

# cudaGreenCtxCreate and its kin.
RUNTIME_CONTEXTS = (13, 1)
# Each destroyed context was created before, which takes 60 times as long, and leaves a descriptor behind until the process ends
# (CUDA driver API: there is no call that frees one). In a sweep that made more than 40,000 in one process as many rows failed as
# there are context points; in one that made 8,000 none did, nor did a loop of 10,000 (driver 580).
MAX_LIVES = 3
MAX_LAUNCHES = 240
now = time.perf_counter_ns


def api_of(params: Mapping[str, ParamValue]) -> Api:
    """Return the API that parameter `api` counts out; raises UnsupportedError for a number that stands for none."""
    number, known = params.get("api", 0), list(Api)
    if not isinstance(number, int) or not 0 <= number < len(known):
        listed = ", ".join(f"{index} {api.value}" for index, api in enumerate(known))
        raise UnsupportedError(f"api = {number} is no API; there are {listed}")
    return known[number]


def obstacle(action: HostAction, api: Api, cuda: tuple[int, int], partition: Partition) -> str:
    """Return why a host probe cannot run on this driver and partition, or an empty string."""
    if action is HostAction.EVENT_RECORD:
        return ""
    if partition.mode is SmsMode.PRIMARY:
        return "the primary context is no green context, so there is nothing to make; take a count of SMs or full"
    if api is Api.RUNTIME and cuda < RUNTIME_CONTEXTS:
        return f"execution contexts of the runtime need driver 13.1, this is {cuda[0]}.{cuda[1]}"
    return ""


class Action(Protocol):
    """What is timed."""

    def run(self, times: int) -> int:
        """Do it that many times and return the ns of the host that it took, without what surrounds it."""

    def prove(self, launch: Callable[[Any], None]) -> Verification:
        """Do it once, `launch` a kernel on what came of it, and say whether that worked."""


class EventRecord:
    """Recording a timing event on the lane's idle stream."""

    def __init__(self, lane: CudaLane, api: Api) -> None:
        self._lane, self._api = lane, api

    def _recorder(self, event: Any) -> Callable[[], object]:
        stream = self._lane.stream
        if self._api is Api.CORE:
            return lambda: stream.record(event)
        raw = driver.bindings() if self._api is Api.DRIVER else runtime()
        record = raw.cuEventRecord if self._api is Api.DRIVER else raw.cudaEventRecord
        handles = int(event.handle), int(stream.handle)
        return lambda: driver.checked(record(*handles))

    def run(self, times: int) -> int:
        """Record one event again and again; the stream is idle before and after."""
        event = self._lane.new_event()
        try:
            record = self._recorder(event)
            began = now()
            for _ in range(times):
                record()
            spent = now() - began
            self._lane.sync()
        finally:
            event.close()
        return spent

    def prove(self, launch: Callable[[Any], None]) -> Verification:
        """The event behind a kernel is complete when the kernel is."""
        event = self._lane.new_event()
        try:
            launch(self._lane.stream)
            self._recorder(event)()
            event.sync()
            done = bool(event.is_done)
        finally:
            event.close()
        return Verification(0.0 if done else 1.0, 0.0, "the event waited for the kernel before it" if done else "it never came")


class ContextStep:
    """One step in the life of a green context with a stream; the clock runs during that step alone."""

    def __init__(self, lane: CudaLane, made: Maker, step: HostAction) -> None:
        self._lane, self._maker, self._step = lane, made, step

    def run(self, times: int) -> int:
        """Go through it that many times."""
        return self._streams(times) if self._step is HostAction.STREAM_CREATE else sum(self._life() for _ in range(times))

    def _streams(self, times: int) -> int:
        made, spent = self._maker, 0
        context = made.create()
        try:
            for _ in range(times):
                began = now()
                stream = made.create_stream(context)
                spent += now() - began
                made.destroy_stream(stream)
        finally:
            made.destroy(context)
        return spent

    def _life(self) -> int:
        began = now()
        context = self._maker.create()
        made = now()
        self._maker.destroy(context)
        return made - began if self._step is HostAction.CONTEXT_CREATE else now() - made

    def prove(self, launch: Callable[[Any], None]) -> Verification:
        """A kernel runs in a new context, and a census there sees as many SMs as the lane has."""
        made = self._maker
        context = made.create()
        try:
            stream = made.create_stream(context)
            try:
                usable = made.launchable(stream)
                launch(usable)
                seen = len(self._lane.census_of(usable))
            finally:
                made.destroy_stream(stream)
        finally:
            made.destroy(context)
        return Verification(float(abs(seen - self._lane.sms)), 0.0, f"a new context ran on {seen} SMs of {self._lane.sms}")


class HostWork:
    """A host probe on one lane; it launches nothing, holds no buffers, and its cost is the host's."""

    flops: float | None = None
    bytes: float | None = None
    working_set_bytes = 0
    written_bytes = 0
    grid = 0
    ctas_per_sm: int | None = None

    def __init__(self, action: Action, api: Api, launch: Callable[[Any], None], most_launches: int) -> None:
        self._action, self._launch, self.most_launches = action, launch, most_launches
        self.config = api.value

    def timed(self, times: int) -> float:
        """Do it that many times and return the host's seconds."""
        with driver.translated("timing a host probe"):
            return self._action.run(times) / 1e9

    def launch(self) -> None:
        """Do it once, untimed."""
        self.timed(1)

    def verify(self) -> Verification:
        """Do it once and prove that it worked."""
        with driver.translated("proving a host probe"):
            return self._action.prove(self._launch)

    def rotate(self, on: bool) -> None:
        """Nothing rotates."""

    def capture(self, launches: int) -> Any:
        """A graph holds launches; this is none."""
        raise UnsupportedError("a host probe cannot be captured in a graph; leave --timing away")

    def report(self) -> float | None:
        """Nothing runs that could measure itself."""
        return None


def prepare(lane: CudaLane, kernel: Kernel, params: Mapping[str, ParamValue], launch: Callable[[Any], None]) -> HostWork:
    """Return the probe that a kernel file asks for; `launch` puts the file's kernel on a stream."""
    action, api = HostAction(kernel.host), api_of(params)
    if why := obstacle(action, api, lane.cuda, lane.partition):
        raise UnsupportedError(why)
    if action is HostAction.EVENT_RECORD:
        return HostWork(EventRecord(lane, api), api, launch, MAX_LAUNCHES)
    most = MAX_LIVES if action is HostAction.CONTEXT_DESTROY else MAX_LAUNCHES
    return HostWork(ContextStep(lane, lane.maker(api), action), api, launch, most)


__all__ = ["RUNTIME_CONTEXTS", "HostWork", "api_of", "obstacle", "prepare"]
