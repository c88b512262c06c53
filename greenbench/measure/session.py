"""A session: one opened device, its lanes and prepared works, and the visit to a point that yields a Block."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from greenbench import stats
from greenbench.catalog import Kernel
from greenbench.errors import FailedError, PointError, StickyError, UnsupportedError
from greenbench.gpu import ClockSample, Gpu, HostTimed, Lane, Refusal, Replay, Work
from greenbench.gpu.annotate import MEASURING
from greenbench.measure import sampling
from greenbench.measure.sampling import Recipe, Taken
from greenbench.measure.validity import judge
from greenbench.schema import (
    Block,
    BlockKind,
    BlockStatus,
    DeviceFacts,
    Evidence,
    Flag,
    Grant,
    Partition,
    Placement,
    Point,
    Prepared,
    SmsMode,
    Timing,
)

SELF_TEST_NS = (100_000, 1_000_000)
SELF_TEST_LAUNCHES = 3
WARM_WINDOW_S = 20e-3
WARM_LEAST_S, WARM_MOST_S = 0.3, 3.0
WARM_AGREE = 0.005
ENERGY_WINDOW_S = 2.0


@dataclass(slots=True)
class Ready:
    """A point that can be visited."""

    lane: Lane
    work: Work
    recipe: Recipe
    prepared: Prepared
    replay: Replay | None


@dataclass(frozen=True, slots=True)
class Observed:
    """What one visit saw."""

    before: Evidence
    after: Evidence
    window_s: float
    taken: Taken
    smids: frozenset[int]
    placement: Placement
    sm_clock_mhz: float | None


class Session:
    """Works on one device of this process; the worker calls it, and so may any caller that owns a GPU."""

    def __init__(self, gpu: Gpu, kernels: Mapping[str, Kernel]) -> None:
        self.gpu, self._kernels = gpu, kernels
        self._stack = ExitStack()
        self._lanes: dict[Partition, Lane | Refusal] = {}
        self._grants: dict[Partition, Grant] = {}
        self._ready: dict[Point, Ready] = {}
        self._phase: AbstractContextManager[None] | None = None

    @property
    def device(self) -> DeviceFacts:
        """Facts of the device."""
        return self.gpu.device

    def open(self, partitions: Sequence[Partition]) -> list[Grant | PointError]:
        """Open all lanes at once, prove each by census and timer self-test; return the grant or the refusal of each.

        What was granted and then failed its proof is told by its grant, for the row to show; preparing a point on it raises.
        """
        new = [p for p in partitions if p not in self._lanes]
        with self.gpu.annotate("open", category="setup"):
            lanes = self._stack.enter_context(self.gpu.lanes(new))
            for partition, lane in zip(new, lanes, strict=True):
                if not isinstance(lane, Refusal):
                    self._grants[partition] = lane.grant
                self._lanes[partition] = self._tested(partition, lane)
        return [self._outcome(partition) for partition in partitions]

    def _outcome(self, partition: Partition) -> Grant | PointError:
        lane = self._lanes[partition]
        if isinstance(lane, Refusal):
            return self._grants.get(partition) or lane.error
        return lane.grant

    def _tested(self, partition: Partition, lane: Lane | Refusal) -> Lane | Refusal:
        if isinstance(lane, Refusal):
            return lane
        if lane.grant.placement is Placement.LEAKED:
            text = f"leaked: {lane.grant.sms} SMs granted, the census saw {len(lane.grant.smids)}"
            return Refusal(partition, FailedError(text))
        try:
            if self.gpu.gates:
                self._self_test(lane)
        except PointError as error:
            if isinstance(error, StickyError):
                raise
            return Refusal(partition, error)
        return lane

    def _self_test(self, lane: Lane) -> None:
        """Time spins of known length: an event on the wrong stream, or a lane that waits, shows here."""
        for ns in SELF_TEST_NS:
            spin = lane.prepare(self._kernels["spin"], {**dict(self._kernels["spin"].params), "ns": ns})
            # Several at a time, so that the few microseconds around a launch do not pass for the timer's error.
            read = min(sampling.gated(self.gpu, lane, spin, SELF_TEST_LAUNCHES)[0] for _ in range(2)) / SELF_TEST_LAUNCHES
            if abs(read - ns * 1e-9) > 0.01 * ns * 1e-9 + 2e-6:
                raise FailedError(f"timer self-test: a spin of {ns / 1e3:.0f} us read as {read * 1e6:.1f} us")

    def warm_up(self, point: Point) -> float:
        """Run a point until three 20 ms windows agree within 0.5 %, for 0.3 to 3 s; return the seconds it took."""
        ready = self._ready[point]
        began, windows = time.perf_counter(), []
        per_window = max(1, min(int(WARM_WINDOW_S / max(ready.recipe.launch_s, 1e-6)), sampling.MAX_LAUNCHES))
        with self.gpu.annotate("warm-up", category="setup"):
            while (spent := time.perf_counter() - began) < WARM_MOST_S:
                windows.append(sampling.gated(self.gpu, ready.lane, ready.work, per_window)[0])
                last = windows[-3:]
                if len(last) == 3 and max(last) <= (1 + WARM_AGREE) * min(last) and self._warm_enough(spent):
                    break
        return time.perf_counter() - began

    def _warm_enough(self, spent: float) -> bool:
        return spent >= WARM_LEAST_S or self.device.backend.value == "modelled"

    def prepare(self, point: Point, timing: Timing | None = None, verify: bool = True) -> Prepared:
        """Compile, allocate, verify on the very lane, and size the samples; `timing` repeats an earlier resolution of `auto`.

        Raises UnsupportedError, FailedError or StickyError as the point's outcome.
        """
        if point in self._ready:
            return self._ready[point].prepared
        lane = self._lanes.get(point.partition)
        if lane is None:
            raise FailedError(f"internal: partition {point.partition.name} was not opened")
        if isinstance(lane, Refusal):
            raise lane.error
        with self.gpu.annotate(point.label(timing), category="setup", payload=lane.grant.sms):
            ready = self._make_ready(point, lane, timing, verify)
        self._ready[point] = ready
        return ready.prepared

    def _make_ready(self, point: Point, lane: Lane, timing: Timing | None, verify: bool) -> Ready:
        name, yardstick = base_kernel(point.kernel)
        kernel = self._kernels[name]
        if yardstick and yardstick not in kernel.yardsticks:
            raise UnsupportedError(f"{name} names no yardstick {yardstick!r}")
        params = dict(point.params)
        work = lane.prepare_yardstick(kernel, params, yardstick) if yardstick else lane.prepare(kernel, params)
        error = self._verified(work) if verify else None
        launch_s = sampling.estimate(self.gpu, lane, work)
        asked = kernel.timing_of(point.timing)
        resolved = timing or sampling.resolve(asked, kernel.family, launch_s, on_host=isinstance(work, HostTimed))
        if resolved is Timing.HOT or resolved in sampling.COLD:
            # A flush makes the same buffers cold again, without the TLB misses of other ones.
            work.rotate(False)
        plan = sampling.recipe(resolved, launch_s, sampling.most_launches(work))
        graph = work.capture(plan.launches) if resolved is Timing.GRAPH else None
        if graph is not None:
            plan = replace(plan, launch_s=max(graph.run() / graph.launches, sampling.SHORTEST_S))
        prepared = Prepared(
            timing=resolved,
            config=work.config,
            source_digest="" if yardstick else kernel.for_arch(self.device.arch).digest,
            flops=work.flops,
            bytes=work.bytes,
            working_set_bytes=work.working_set_bytes,
            written_bytes=work.written_bytes,
            launches_per_sample=plan.launches,
            samples_per_block=plan.samples,
            verified_error=error,
            launch_us=plan.launch_s * 1e6,
            block_s=plan.block_s,
            grid=work.grid,
            ctas_per_sm=work.ctas_per_sm,
            grant=lane.grant,
        )
        return Ready(lane, work, plan, prepared, graph)

    @staticmethod
    def _verified(work: Work) -> float | None:
        found = work.verify()
        if not found.ok:
            raise FailedError(f"incorrect: error {found.error:.3g} above {found.tolerance:.3g}; {found.detail}")
        return found.error

    def block(
        self, point: Point, *, round_: int, attempt: int = 1, kind: BlockKind = BlockKind.BLOCK, own_processes: int = 1
    ) -> Block:
        """Visit a prepared point once: re-warm, evidence, probe, samples, probe, evidence. Seconds are the whole visit's."""
        ready = self._ready[point]
        self._begin_measuring()
        started, began = time.time(), time.perf_counter()
        with self._range_of(point, round_ << 16 | ready.lane.grant.sms):
            seen = self._observe(ready)
        verdict = judge(seen.before, seen.after, seen.window_s, own_processes=own_processes)
        status, reason = verdict.status, verdict.reason
        if seen.placement is Placement.LEAKED:
            status, reason = BlockStatus.FAILED, f"leaked: {ready.lane.grant.sms} SMs granted, CTAs ran on {len(seen.smids)}"
        visit = Block.visit(
            point,
            status,
            kind=kind,
            round_=round_,
            attempt=attempt,
            started=started,
            seconds=time.perf_counter() - began,
            reason=reason,
        )
        before, after, taken = seen.before, seen.after, seen.taken
        return replace(
            visit.prepared(ready.prepared),
            sms_observed=len(seen.smids),
            smids=hex(sum(1 << smid for smid in seen.smids)),
            placement=seen.placement,
            flags=(*verdict.flags, *((Flag.REMAINDER,) if ready.lane.grant.remainder else ())),
            samples_us=tuple(s * 1e6 for s in taken.samples),
            reported=taken.reported,
            launch_host_us=None if taken.launch_host_s is None else taken.launch_host_s * 1e6,
            sm_clock_mhz=seen.sm_clock_mhz,
            mem_clock_mhz=after.mem_clock_mhz,
            power_w=after.power_w,
            energy_mj=None if before.energy_mj is None or after.energy_mj is None else after.energy_mj - before.energy_mj,
            temperature_c=after.temperature_c,
            throttle=verdict.throttle,
            worker=os.getpid(),
        )

    def _range_of(self, point: Point, payload: int) -> AbstractContextManager[None]:
        """Return the range of a visit: the name is the row's label, what varies from visit to visit is the payload."""
        label, family = point.label(self._ready[point].recipe.timing), self._kernels[base_kernel(point.kernel)[0]].family
        return self.gpu.annotate(label, category="kernel", payload=payload, family=family)

    def _begin_measuring(self) -> None:
        """Open, at the first visit, the range by which a profiler records the measuring phase; it ends with the session."""
        if self._phase is None:
            self._phase = self.gpu.annotate(MEASURING)
            self._phase.__enter__()

    def _rewarm(self, ready: Ready) -> None:
        plan, graph = ready.recipe, ready.replay
        with self.gpu.annotate("rewarm", category="setup"):
            if graph is None:
                sampling.rewarm(ready.lane, ready.work, plan.launch_s)
                return
            for _ in range(max(1, int(sampling.REWARM_S / (plan.launches * plan.launch_s)))):
                graph.run()

    def _probe(self, lane: Lane) -> ClockSample:
        with self.gpu.annotate("probe", category="setup"):
            return lane.probe()

    def _observe(self, ready: Ready) -> Observed:
        lane, work, plan, graph = ready.lane, ready.work, ready.recipe, ready.replay
        self._rewarm(ready)
        # The counter moves in steps of 0.1 s, so that a block of less than 2 s resolves nothing.
        energy = plan.block_s >= ENERGY_WINDOW_S
        before = self.gpu.evidence(energy=energy)
        first = self._probe(lane)
        began = time.perf_counter()
        taken = sampling.take(self.gpu, lane, work, plan) if graph is None else sampling.replay(graph, plan)
        window = time.perf_counter() - began
        replayed = graph.smids() if graph is not None else None
        second = self._probe(lane)
        smids = frozenset(first.smids) | frozenset(second.smids)
        return Observed(
            before=before,
            after=self.gpu.evidence(energy=energy),
            window_s=window,
            taken=taken,
            smids=smids,
            placement=placed(lane, smids, replayed),
            sm_clock_mhz=stats.clock_mhz(first.stamps, second.stamps),
        )

    def profile(self, point: Point, launches: int) -> Block:
        """Launch a prepared point that many times with no gate, for a profiler that is listening; no timing is taken."""
        ready = self._ready[point]
        self._begin_measuring()
        began, started = time.perf_counter(), time.time()
        with self._range_of(point, ready.lane.grant.sms), self.gpu.profiled():
            for _ in range(launches):
                ready.work.launch()
            ready.lane.sync()
        visit = Block.visit(point, BlockStatus.OK, started=started, seconds=time.perf_counter() - began)
        return replace(visit.prepared(ready.prepared), flags=(Flag.PROFILED,), worker=os.getpid())

    def close(self) -> None:
        """Tear down graphs, then lanes (streams before contexts), then the device's memory."""
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
            self._phase = None
        for ready in self._ready.values():
            close = getattr(ready.replay, "close", None)
            if close is not None:
                close()
        self._ready.clear()
        self._stack.close()
        self._lanes.clear()
        self.gpu.close()


def base_kernel(name: str) -> tuple[str, str]:
    """Return (`gemm_bf16`, `cublas`) for `gemm_bf16.cublas`, and an empty word for a kernel itself: its name has no dot."""
    base, _, yardstick = name.partition(".")
    return base, yardstick


def placed(lane: Lane, seen: frozenset[int], replayed: Sequence[int] | None) -> Placement:
    """Compare the SMs of this very block, and of the graph's own census, with those of the lane."""
    if lane.partition.mode is SmsMode.PRIMARY and lane.grant.placement is not Placement.CONFINED:
        return lane.grant.placement
    granted = set(lane.grant.smids)
    same = seen == granted and (replayed is None or set(replayed) == granted)
    return Placement.CONFINED if same else Placement.LEAKED
