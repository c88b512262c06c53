"""From a switch plan to its points on a device, and from a point to what each process prepares and how long it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from greenbench.arrivals import NS_PER_S
from greenbench.catalog import Kernel
from greenbench.colocation.point import EXCLUSIVE
from greenbench.costeps import CoSchedule, CoSetup, RoleSchedule, RoleSpec
from greenbench.divisions import Pool
from greenbench.facts import peaks
from greenbench.queueing.model import Kind
from greenbench.schema import DeviceFacts, ParamValue
from greenbench.switching.plan import KERNEL, SwitchPlan, SwitchPoint, Way
from greenbench.workload import Call, Group, StepKind, Workload, settled

# CTAs for each SM of the device: so many that a partition of a few SMs ends evenly, and that four of them fill an SM at a time.
CTAS_PER_SM, THREADS = 8, 512
# Where nobody has published the latencies: between what GPUs since the A100 have.
THRESHOLD_CYCLES = 468
FLOP_PER_CLK_SM, CLOCK_MHZ = 256.0, 1500.0
# With one process these are `alone`: nothing is shared, split or taken in turn.
NEEDS_TWO = frozenset({Way.STREAMS, Way.GREEN, Way.TIMESLICE, Way.MPS_LIMITED, Way.REPARTITION})


def expand(plan: SwitchPlan) -> tuple[list[SwitchPoint], tuple[str, ...]]:
    """Return the points of a plan, each once, `alone` first, and what should be said of them."""
    found: dict[SwitchPoint, None] = {}
    for duration, size, ahead in product(plan.durations_us, plan.working_sets, plan.ahead):
        point = SwitchPoint(mechanism=Way.ALONE, processes=1, duration_us=duration, working_set=size, ahead=ahead)
        found[point] = None
        for way, processes in product(plan.mechanisms, plan.processes):
            if way is not Way.ALONE and (processes > 1 or way not in NEEDS_TWO):
                found[replace(point, mechanism=way, processes=processes)] = None
    folded = [way.value for way in plan.mechanisms if way in NEEDS_TWO]
    notes = (f"{', '.join(folded)} with one process is alone: one point for all",) if folded and 1 in plan.processes else ()
    return sorted(found, key=lambda point: point.mechanism is not Way.ALONE), notes


def equal_sizes(device: DeviceFacts, parts: int) -> tuple[int, ...]:
    """Return as many SM counts as equal as one split gives, using every SM; the last one has what no unit holds.

    Empty where the device has too few units: 132 SMs in units of 8 are 15 units and 12 SMs, so 8 parts are 7 times 16 and 20.
    """
    pool = Pool.of(device.sm_count, max(1, device.min_partition))
    best: tuple[int, ...] = ()
    for last in range(pool.units + 1):
        each, more = divmod(pool.units - last, parts - 1)
        sizes = (*(pool.unit * (each + (i < more)) for i in range(parts - 1)), pool.unit * last + pool.spare)
        if min(sizes) > 0 and (not best or _unevenness(sizes) < _unevenness(best)):
            best = sizes
    return best


def _unevenness(sizes: tuple[int, ...]) -> int:
    return max(sizes) - min(sizes)


def resized(device: DeviceFacts, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes after a resize: the first partition gives half of its units to the last; empty where it has only one."""
    unit = max(1, device.min_partition)
    given = sizes[0] // unit // 2 * unit if sizes else 0
    return (sizes[0] - given, *sizes[1:-1], sizes[-1] + given) if given else ()


def sizes_of(point: SwitchPoint, device: DeviceFacts) -> tuple[int, ...]:
    """Return the SM count of each tenant's partition, or under `mps_limited` its share; empty where all have every SM."""
    if point.mechanism.partitioned:
        return equal_sizes(device, point.processes)
    if point.mechanism is Way.MPS_LIMITED:
        return (max(1, device.sm_count * percentage(point) // 100),) * point.processes
    return ()


def percentage(point: SwitchPoint) -> int:
    """Return CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of one tenant of `mps_limited`."""
    return max(1, 100 // point.processes)


def obstacle(point: SwitchPoint, device: DeviceFacts) -> str:
    """Return why this device cannot do a point, as far as its facts tell, else an empty string."""
    if point.mechanism is Way.TIMESLICE and device.compute_mode == EXCLUSIVE:
        return "several processes cannot share a GPU in compute mode exclusive_process; nvidia-smi -c DEFAULT would let them"
    if not point.mechanism.partitioned:
        return ""
    sizes = equal_sizes(device, point.processes)
    unit = max(1, device.min_partition)
    if not sizes:
        return (
            f"{device.sm_count} SMs in units of {unit} cannot be split into {point.processes} partitions; ask for fewer processes"
        )
    if point.mechanism is Way.REPARTITION and not resized(device, sizes):
        return f"with {point.processes} partitions the first has {sizes[0]} SMs, one unit, and nothing to give away"
    return ""


def operation(point: SwitchPoint, plan: SwitchPlan, device: DeviceFacts, kernels: Mapping[str, Kernel], tenant: int) -> Workload:
    """Return what one tenant does again and again: the same work whatever SMs it has, in memory of its own.

    The time of a chain of multiply-adds is their number times the cycles that a full SM takes for one of all its threads.
    """
    if plan.workload is not None:
        return settled(plan.workload, kernels, device.arch)
    limits = peaks(device)
    rate = limits.flop("float32") or FLOP_PER_CLK_SM
    clock = device.max_sm_clock_mhz or limits.nominal_mhz or CLOCK_MHZ
    known = limits.l2_cycles is not None and limits.hbm_cycles is not None
    threshold = round(((limits.l2_cycles or 0) + (limits.hbm_cycles or 0)) / 2) if known else THRESHOLD_CYCLES
    params: dict[str, ParamValue] = {
        "iterations": max(1, round(point.duration_us * clock * rate / (2 * THREADS * CTAS_PER_SM))),
        "bytes": point.working_set,
        "ctas": CTAS_PER_SM * device.sm_count,
        "threshold": threshold,
        "tenant": tenant,
    }
    group = Group((Call(KERNEL, tuple(sorted(params.items()))),))
    found = Workload(name=KERNEL, kind=StepKind.KERNELS, groups=(group,), params=point.params)
    return settled(found, kernels, device.arch)


def setup_of(point: SwitchPoint, plan: SwitchPlan, device: DeviceFacts, kernels: Mapping[str, Kernel]) -> CoSetup:
    """Return the whole point as one process would prepare it."""
    roles = tuple(
        RoleSpec(
            name=f"tenant{i}",
            kind=Kind.BACKGROUND,
            workload=operation(point, plan, device, kernels, i),
            slot=i if point.mechanism.partitioned else None,
        )
        for i in range(point.processes)
    )
    return CoSetup(mechanism=point.mechanism.mechanism, roles=roles, sizes=sizes_of(point, device))


def after_resize(setup: CoSetup, device: DeviceFacts) -> CoSetup:
    """Return the setup of the second phase of `repartition`: what was verified before is not verified again."""
    return replace(setup, sizes=resized(device, setup.sizes), verify=False)


def one_each(setup: CoSetup) -> tuple[CoSetup, ...]:
    """Return a setup for each tenant's own process; the shares of `mps_limited` are set by its environment."""
    return tuple(replace(setup, roles=(role,), sizes=()) for role in setup.roles)


def schedule_of(point: SwitchPoint, setup: CoSetup, seconds: float, limit_s: float) -> CoSchedule:
    """Return a closed loop for each role; hosts keep all of them going alike, whatever the mechanism."""
    loop = RoleSchedule(until_ns=round(seconds * NS_PER_S), on_host=True, ahead=point.ahead)
    return CoSchedule(roles=(loop,) * len(setup.roles), limit_s=limit_s)
