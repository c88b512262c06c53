"""Co-locations as plans: two roles, mechanisms, sizes and rates, and the points that they expand to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from greenbench.arrivals import Process
from greenbench.catalog import Kernel
from greenbench.colocation.figures import rate_text
from greenbench.colocation.keys import ALL, EVERY, RATES, READERS, Given, merged, option_of, read_fields
from greenbench.colocation.point import CoPoint as CoPoint, at_rate, obstacle as obstacle
from greenbench.colocation.roles import COPY, interference_loads, read_roles, refuse_name
from greenbench.colocation.room import refuse_crowds
from greenbench.divisions import latency_sizes
from greenbench.errors import PlanError
from greenbench.plan import plan_path, read_plan_file
from greenbench.queueing.layout import GREEN, SIZED
from greenbench.queueing.model import Kind, Mechanism
from greenbench.rates import AUTO
from greenbench.records import BadValueError, from_json, to_json
from greenbench.schema import DeviceFacts, Scope
from greenbench.slo import Slo
from greenbench.workload import Workload, settled

COMMAND = "colocate"
DEFAULT_PLAN = "colocate_llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoPlan:
    """What a co-location is asked for; workloads are settled.

    `latency` holds one workload per --decode-batch. `chunks` maps each --chunk to the pieces of one background step. `sms` are
    the counts of the latency role, None the device's default; `background_sms` None is the rest. `step_rate` is that of the
    latency role's steps a second, None 0.3 of what it does alone on the whole device. `rates` are those of background
    requests: empty with `auto_rates` the ladder; empty without it a closed loop, a background that is always busy. `process` is
    how latency steps follow each other and `background_process` how requests do. `steps` count after the warm-up. `loads` are
    those of `interference`, each for one thing that two roles share.
    """

    name: str
    latency: tuple[Workload, ...]
    background: Workload
    chunks: tuple[tuple[int, tuple[Workload, ...]], ...] = ()
    mechanisms: tuple[Mechanism, ...]
    sms: tuple[int, ...] | None = None
    background_sms: int | None = None
    workqueues: tuple[Scope, ...] = (Scope.DRIVER_DEFAULT,)
    concurrency_limits: tuple[int | None, ...] = (None,)
    connections: tuple[int | None, ...] = (None,)
    process: Process = Process.FIXED
    background_process: Process = Process.POISSON
    step_rate: float | None = None
    rates: tuple[float, ...] = ()
    auto_rates: bool = False
    steps: int = 1000
    seed: int = 1
    slo: Slo | None = None
    interference: bool = False
    mps_memory_limit: str = ""
    time_limit_s: float | None = None
    loads: tuple[Workload, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the plan in JSON's own types (run.json): its keys in the words of a plan file, workloads spelled out.

        Every key is there, None where nothing was asked for, so that one that was deleted is told from one that never was.
        """
        table: dict[str, object] = {"name": self.name}
        for key, (name, _) in READERS.items():
            value = getattr(self, name)
            said = value not in _UNSET
            table[key] = (value.text if isinstance(value, Slo) else to_json(value)) if said else None
        table[RATES] = AUTO if self.auto_rates else list(self.rates) or None
        return table | {name: to_json(getattr(self, name)) for name in _WORKLOADS}


# What a key is that says nothing.
_UNSET = (None, "", (None,))
_WORKLOADS = {"latency": tuple[Workload, ...], "background": Workload, "chunks": tuple[tuple[int, tuple[Workload, ...]], ...]}
_WORKLOADS |= {"loads": tuple[Workload, ...]}


def load_coplan(name_or_path: str | Path, overrides: Mapping[str, object], kernels: Mapping[str, Kernel]) -> CoPlan:
    """Read a plan by name or from a .toml file and put the options over it; raises PlanError without touching a device.

    `overrides` has the keys of a plan file (None: not given); values may be text.
    """
    path = plan_path(name_or_path, COMMAND)
    given = merged(path, read_plan_file(path, COMMAND), {key: value for key, value in overrides.items() if value is not None})
    roles = read_roles(given, kernels)
    found = read_fields(given)
    named = "mechanisms" in given and given.values["mechanisms"][0] != ALL
    plan = CoPlan(
        name=path.stem,
        latency=roles.latency,
        background=roles.background,
        chunks=roles.chunks,
        loads=interference_loads(kernels) if found.get("interference") else (),
        **{"mechanisms": EVERY, **found},  # type: ignore[arg-type]
    )
    if Mechanism.CHUNKED in plan.mechanisms and not plan.chunks and named:
        raise PlanError(
            f"{given.place('mechanisms')}: {Mechanism.CHUNKED} cuts the prefill of a model into pieces, and the background is "
            f"{plan.background.name}; leave it out, or add --background prefill"
        )
    _check(plan, given)
    return plan


def coplan_from_dict(table: Mapping[str, object], kernels: Mapping[str, Kernel]) -> CoPlan:
    """Return the plan that `CoPlan.as_dict` wrote; raises BadValueError or PlanError where it did not."""
    if lost := [key for key in ("name", *READERS, RATES, *_WORKLOADS) if key not in table]:
        raise BadValueError(f"plan: there is no {lost[0]} in it")
    rest = {key: value for key, value in table.items() if key not in _WORKLOADS and key != "name" and value is not None}
    given = merged("plan", rest, {})
    read = {name: from_json(hint, table[name], f"plan.{name}") for name, hint in _WORKLOADS.items()}
    unset = {each.name for each in fields(CoPlan) if each.default in _UNSET}
    needed = [key for key, (name, _) in READERS.items() if name not in unset]
    if absent := [key for key in (*needed, "latency") if table[key] in (None, [])]:
        raise BadValueError(f"plan.{absent[0]} is empty; it needs a value")
    plan = CoPlan(name=str(table["name"]), **{**read, **read_fields(given)})  # type: ignore[arg-type]
    for workload in (*plan.latency, plan.background, *plan.loads):
        refuse_name(workload.name, "plan")
    _check(plan, given)
    for workload in (*plan.latency, plan.background, *(piece for _, pieces in plan.chunks for piece in pieces)):
        _unchanged(workload, kernels)
    for workload in plan.loads:
        if workload.name != COPY:
            _unchanged(workload, kernels)
    return plan


def _unchanged(workload: Workload, kernels: Mapping[str, Kernel]) -> None:
    if settled(workload, kernels) != workload:
        raise PlanError(f"workload {workload.name}: its kernels have other parameters now; begin a new run")


def _check(plan: CoPlan, given: Given) -> None:
    """Refuse keys that contradict each other."""
    at = given.place
    _refuse_twins(plan, given)
    has_scope = set(plan.workqueues) != {Scope.DRIVER_DEFAULT} or Mechanism.GREEN_BALANCED in plan.mechanisms
    if plan.concurrency_limits != (None,) and not has_scope:
        raise PlanError(
            f"{at('concurrency_limit')}: a limit needs a workqueue scope to apply to; add --workqueue {Scope.DEVICE_CTX}, "
            f"or {Mechanism.GREEN_BALANCED} to --mechanisms"
        )
    if plan.auto_rates and plan.slo is None:
        raise PlanError(f"{at(RATES)}: {AUTO} looks for the highest rate that holds an objective; add --slo, or give rates")
    place = at("background_arrivals")
    # A plan file may keep it for another day.
    if "background_arrivals" in given and place.startswith("--") and not plan.rates and not plan.auto_rates:
        raise PlanError(f"{place}: the background is always busy, so no request arrives; add --rates, or leave it out")
    if plan.interference and Mechanism.GREEN not in plan.mechanisms:
        raise PlanError(f"{at('interference')}: the loads run beside {Mechanism.GREEN}; add it to --mechanisms")
    if plan.mps_memory_limit and Mechanism.MPS_LIMITED not in plan.mechanisms:
        raise PlanError(f"{at('mps_memory_limit')}: the limit is that of {Mechanism.MPS_LIMITED}; add it to --mechanisms")
    if plan.step_rate is not None:
        refuse_crowds(plan, plan.rates, plan.step_rate, f"{at('steps')} {plan.steps}")
    for workload in plan.latency if plan.slo is not None else ():
        metrics = {*workload.metrics, *plan.background.metrics}
        if plan.slo is not None and (problem := plan.slo.obstacle(metrics)):
            raise PlanError(f"{at('slo')}: {problem}")


def _refuse_twins(plan: CoPlan, given: Given) -> None:
    """Refuse two points that would have one label: one would stand for the other in rows, figures and --resume."""
    texts = [rate_text(rate) for rate in plan.rates]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            first, second = plan.rates[texts.index(text)], plan.rates[place]
            raise PlanError(f"{given.place(RATES)}: {first!r} and {second!r} are both written {text}; give one of them")
    known: dict[tuple[str, str], Workload] = {}
    roles = [*(("latency", each) for each in plan.latency), ("background", plan.background)]
    for key, workload in (*roles, *(("interference", each) for each in plan.loads)):
        name = workload.name, workload.param_text
        if name in known and (key == "latency" or known[name] != workload):
            raise PlanError(
                f"{given.place(key)}: two workloads of this co-location are called {workload.name}, and rows tell them apart by "
                "name; rename one of the files"
            )
        known[name] = workload


def expand(plan: CoPlan, device: DeviceFacts) -> tuple[list[CoPoint], tuple[str, ...]]:
    """Return the points of a plan on a device, each once, those of `alone` first, and what to know of them in a line each.

    Points that cannot run here are among them, for `obstacle` to explain. With `auto_rates` they have no rate yet: see
    `with_rates`. Raises PlanError for sizes that leave the background nothing.
    """
    sizes = _sizes(plan, device)
    points: dict[CoPoint, None] = {}
    beside = [point for mechanism in plan.mechanisms for point in _beside(plan, mechanism, sizes)]
    for connections in plan.connections:
        # Alone on a partition is measured for the partitions that some mechanism has; where only `alone` is asked for, for all.
        needed = [point.alone(kind) for point in beside for kind in Kind if point.connections == connections]
        whole = [*_alone(plan, (None,), connections), *(_alone(plan, sizes, connections) if not beside else ())]
        points.update(dict.fromkeys(whole))
        points.update(dict.fromkeys(needed))
    points.update(dict.fromkeys(beside))
    notes = []
    if Mechanism.CHUNKED in plan.mechanisms and not plan.chunks:
        notes.append(f"{Mechanism.CHUNKED} is left out: {plan.background.name} is no prefill of a model, and has no chunks")
    return [*points, *_loaded(plan, sizes)], tuple(notes)


def _sizes(plan: CoPlan, device: DeviceFacts) -> tuple[tuple[int, int], ...]:
    """Return the (latency, background) sizes in the order asked for; a count that leaves the background none is refused."""
    asked = latency_sizes(device) if plan.sms is None else plan.sms
    most = device.sm_count - max(1, device.min_partition)
    for key, counts in (("sms", asked), ("background_sms", (plan.background_sms or 0,))):
        if max(counts, default=0) > most:
            raise PlanError(
                f"{option_of(key)} {max(counts)}: this device has {device.sm_count} SMs ({device.name}), and the other role "
                f"needs some; give counts from 1 to {most}"
            )
    rest = plan.background_sms
    return tuple((count, device.sm_count - count if rest is None else rest) for count in asked)


def _alone(plan: CoPlan, sizes: Sequence[tuple[int, int] | None], connections: int | None) -> Iterator[CoPoint]:
    roles = [*((workload, None) for workload in plan.latency), (None, plan.background)]
    for latency, background in roles:
        for size in sizes:
            yield CoPoint(mechanism=Mechanism.ALONE, latency=latency, background=background, sizes=size, connections=connections)


def _beside(plan: CoPlan, mechanism: Mechanism, sizes: Sequence[tuple[int, int]]) -> Iterator[CoPoint]:
    """Yield the points of one mechanism: with a partition one per size and workqueue, without one only once."""
    if mechanism is Mechanism.ALONE:
        return
    pieces: Sequence[tuple[int | None, tuple[Workload, ...]]] = plan.chunks if mechanism is Mechanism.CHUNKED else ((None, ()),)
    for connections in plan.connections:
        for latency in plan.latency:
            for scope, limit in _queues(plan, mechanism):
                for size in sizes if mechanism in SIZED else (None,):
                    for chunk, chunks in pieces:
                        for rate in plan.rates or (None,):
                            yield CoPoint(
                                mechanism=mechanism,
                                latency=latency,
                                background=plan.background,
                                chunk=chunk,
                                chunks=chunks,
                                sizes=size,
                                workqueue=scope,
                                concurrency_limit=limit,
                                connections=connections,
                                rate_per_s=rate,
                            )


def _queues(plan: CoPlan, mechanism: Mechanism) -> Iterator[tuple[Scope, int | None]]:
    """Yield scopes and limits; only green contexts have any, and `green_balanced` is a scope by itself."""
    if mechanism not in GREEN:
        yield Scope.DRIVER_DEFAULT, None
        return
    for scope in (Scope.GREEN_CTX_BALANCED,) if mechanism is Mechanism.GREEN_BALANCED else plan.workqueues:
        for limit in (None,) if scope is Scope.DRIVER_DEFAULT else plan.concurrency_limits:
            yield scope, limit


def _loaded(plan: CoPlan, sizes: Sequence[tuple[int, int]]) -> Iterator[CoPoint]:
    """Yield the points of --interference: the latency role in its green partition, a load that takes one thing in the other."""
    for latency in plan.latency if plan.interference else ():
        for size in sizes:
            for load in plan.loads:
                yield CoPoint(
                    mechanism=Mechanism.GREEN,
                    latency=latency,
                    background=load,
                    sizes=size,
                    connections=plan.connections[0],
                    load=load.name,
                )


def with_rates(points: Sequence[CoPoint], rates: Sequence[float]) -> list[CoPoint]:
    """Return the points at each of these rates of background requests; what has no such rate, as alone, stays one point."""
    return list(dict.fromkeys(at_rate(point, rate) for point in points for rate in rates))
