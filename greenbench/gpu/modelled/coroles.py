"""The roles of a co-run on the modelled device: the partition of each, its calls, and what is known once they are prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from greenbench.catalog import Kernel
from greenbench.costeps import CoSetup, RolePrepared, RoleSpec
from greenbench.errors import FailedError
from greenbench.gpu.modelled.grants import SplitRules, sm_order
from greenbench.gpu.modelled.lane import ModelledLane
from greenbench.gpu.modelled.pieces import COPY, PreparedCall, piece, prepare_call
from greenbench.gpu.modelled.state import DeviceState
from greenbench.kernel import digest_of
from greenbench.queueing import Mechanism, Piece, Place
from greenbench.schema import Grant, Partition, Placement, SmsMode
from greenbench.workload import Call

PRIMARY = Partition(SmsMode.PRIMARY)


@dataclass(frozen=True, slots=True)
class ReadyRole:
    """A role on its lane; `calls` are the distinct ones, `order` the launches of a step as indices into them.

    `chunks` has the launches of each piece of a chunked step. `resident`: what the step touches fits the L2.
    """

    spec: RoleSpec
    lane: ModelledLane
    place: Place
    calls: tuple[PreparedCall, ...]
    order: tuple[int, ...]
    chunks: tuple[int, ...]
    resident: bool
    limited: bool

    def pieces(self, state: DeviceState, sm_clock_mhz: float) -> tuple[Piece, ...]:
        """Return the kernels of one step, at this clock."""
        made = [piece(state.facts, call, resident=self.resident, sm_clock_mhz=sm_clock_mhz) for call in self.calls]
        return tuple(made[index] for index in self.order)

    def prepared(self, state: DeviceState, kernels: Mapping[str, Kernel], gap_us: float) -> RolePrepared:
        """Return what is known of the role now."""
        facts = state.facts
        step = self.pieces(state, facts.sm_clock_mhz)
        launched = [self.calls[index] for index in self.order]
        known = all(call.flops is not None or call.bytes is not None for call in launched)
        names = sorted({call.call.kernel for call in self.calls} - {COPY})
        digests = [kernels[name].for_arch(facts.device.arch).summary_record().digest for name in names]
        create = [facts.host_us.get(f"{thing}_create_core") for thing in ("context", "stream")]
        made = self.spec.slot is not None
        return RolePrepared(
            grant=replace(self.lane.grant, placement=Placement.UNPROVEN) if self.limited else self.lane.grant,
            step_us=sum(kernel.us(self.lane.sms) for kernel in step) + gap_us * (len(step) - 1),
            verified_error=None,
            source_digest=digest_of(*digests) if digests else "",
            config="; ".join(dict.fromkeys(call.config for call in self.calls if call.config)),
            flops=sum(call.flops or 0.0 for call in launched) if known else None,
            bytes=sum(call.bytes or 0.0 for call in launched) if known else None,
            create_us=sum(us or 0.0 for us in create) if made and all(create) else None,
            destroy_us=facts.host_us.get("context_destroy_core") if made else None,
        )


class Preparing:
    """Prepares the roles of one setup out of one split."""

    def __init__(self, state: DeviceState, rules: SplitRules, setup: CoSetup, kernels: Mapping[str, Kernel]) -> None:
        self._state, self._setup, self._kernels = state, setup, kernels
        self._whole = rules.grant(PRIMARY)
        self._split = _split(rules, setup)

    def roles(self) -> tuple[ReadyRole, ...]:
        """Return every role on its lane; raises the PointError that is the point's outcome."""
        roles = tuple(self._role(index, spec) for index, spec in enumerate(self._setup.roles))
        need = sum(call.working_set_bytes for role in roles for call in role.calls)
        there = self._state.facts.device.memory_bytes
        if need > there:
            raise FailedError(f"out of memory: the roles need {need / 2**30:.2f} GiB and {there / 2**30:.2f} GiB are there")
        return roles

    def _role(self, index: int, spec: RoleSpec) -> ReadyRole:
        limited = spec.slot is None and self._setup.mechanism is Mechanism.MPS_LIMITED
        partition, grant = self._split[spec.slot] if spec.slot is not None else (PRIMARY, self._whole)
        if limited:
            grant = self._share(index)
        lane = ModelledLane(self._state, partition, grant)
        workloads = spec.chunks or (spec.workload,)
        distinct = {_key(call): call for workload in reversed(workloads) for call in reversed(workload.distinct())}
        calls = tuple(self._call(lane, call) for call in reversed(distinct.values()))
        places = {_key(call.call): place for place, call in enumerate(calls)}
        smids = self._whole.smids if limited else grant.smids
        return ReadyRole(
            spec,
            lane,
            Place(sum(1 << smid for smid in smids), grant.sms, int(not spec.urgent)),
            calls,
            tuple(places[_key(call)] for workload in workloads for call in workload.calls()),
            tuple(workload.launches for workload in spec.chunks),
            sum(call.working_set_bytes for call in calls) <= self._state.facts.device.l2_bytes,
            limited,
        )

    def _share(self, index: int) -> Grant:
        """Return the share of a client of MPS: so many SM ids, as its census shows."""
        if len(self._setup.sizes) != len(self._setup.roles):
            raise FailedError(f"internal: {len(self._setup.sizes)} sizes for {len(self._setup.roles)} clients of mps_limited")
        sms = self._setup.sizes[index]
        return replace(self._whole, sms=sms, smids=tuple(sorted(sm_order(self._whole.sms)[:sms])), split_method="mps")

    def _call(self, lane: ModelledLane, call: Call) -> PreparedCall:
        """Prepare a call, and verify it: one launch, on which faults may strike, and no comparison."""
        ready = prepare_call(self._state, lane, call, self._kernels)
        if ready.work is not None and self._setup.verify:
            found = ready.work.verify()
            if not found.ok:
                raise FailedError(f"{call.text}: incorrect: error {found.error:.3g} above {found.tolerance:.3g}; {found.detail}")
        return ready


def _split(rules: SplitRules, setup: CoSetup) -> Sequence[tuple[Partition, Grant]]:
    """Return the partitions of the one split, if a role has one; raises UnsupportedError where the driver refuses it."""
    if all(role.slot is None for role in setup.roles):
        return ()
    partitions = [
        Partition(SmsMode.COUNT, sms, workqueue=setup.workqueue, concurrency_limit=setup.concurrency_limit) for sms in setup.sizes
    ]
    return tuple(zip(partitions, rules.disjoint(partitions), strict=True))


def _key(call: Call) -> tuple[object, ...]:
    return call.kernel, call.params
