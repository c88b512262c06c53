"""Workloads: what a role does in one step, as a list of kernels of the library that run in order as one graph.

A workload comes from a TOML file (`load_workload`) or is derived from a model's dimensions (`models`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from greenbench.catalog import Kernel, sweeps_dir
from greenbench.choices import parse_integer, parse_param, read_text
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.kernel import TRIAL_OCCUPANCY, TRIAL_SMS, digest_of
from greenbench.schema import ParamValue
from greenbench.tails import Metric
from greenbench.tomlfile import read_toml

FOLDER = "workloads"
KEYS = ("summary", "tokens", "repeat", "kernels")
CALL_KEYS = ("name", "params", "part", "repeat")
# A graph of this many nodes takes milliseconds to launch; more is a mistake.
MAX_CALLS = 10_000
MAX_TOKENS = 2**31


class StepKind(StrEnum):
    """What a step is: a decode step of a model, a prefill request of one, or kernels without a model."""

    DECODE = "decode"
    PREFILL = "prefill"
    KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class Call:
    """One launch of a kernel in a step; `part` says what of a model it stands for."""

    kernel: str
    params: tuple[tuple[str, ParamValue], ...] = ()
    part: str = ""

    @property
    def text(self) -> str:
        """`gemv[k=4096,m=1,n=6144]`, with its part in front where it has one."""
        name = f"{self.kernel}[{','.join(f'{name}={value}' for name, value in self.params)}]"
        return f"{self.part}: {name}" if self.part else name


@dataclass(frozen=True, slots=True)
class Group:
    """Calls in their order, done `repeat` times: a layer, or what comes after the last one."""

    calls: tuple[Call, ...]
    repeat: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step of a role. `params` are those of the workload itself (model, batch, context), not of its kernels.

    Calls of the same kernel and parameters share buffers, layers among them: the weights of a layer are meant to exceed the L2
    (436 MB against 60 MiB for llama3-8b on an H200), so that the next layer finds none of them there.
    """

    name: str
    kind: StepKind
    groups: tuple[Group, ...]
    params: tuple[tuple[str, ParamValue], ...] = ()
    tokens: int | None = None
    full_depth: bool = False
    summary: str = ""

    @property
    def param_text(self) -> str:
        """`model=llama3-8b,layers=4,batch=8,context=4096`: column params."""
        return ",".join(f"{name}={value}" for name, value in self.params)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The latencies that a step of this kind has; a step is a token (itl) only with all layers of the model."""
        if self.kind is StepKind.PREFILL:
            return (Metric.TTFT,)
        return (Metric.STEP, Metric.ITL) if self.kind is StepKind.DECODE and self.full_depth else (Metric.STEP,)

    def calls(self) -> Iterator[Call]:
        """Yield every launch of a step, in order."""
        for group in self.groups:
            for _ in range(group.repeat):
                yield from group.calls

    @property
    def launches(self) -> int:
        """Launches of a step: the nodes of its graph, gate and stamp aside."""
        return sum(len(group.calls) * group.repeat for group in self.groups)

    def distinct(self) -> tuple[Call, ...]:
        """Return what has to be prepared: each kernel with its parameters once, under the part that comes first."""
        first: dict[object, Call] = {}
        for group in self.groups:
            for call in group.calls:
                first.setdefault((call.kernel, call.params), call)
        return tuple(first.values())


@dataclass(frozen=True, slots=True)
class StepWork:
    """Floating-point operations and bytes of one step; None where a kernel does not declare them."""

    flops: int | None
    bytes: int | None


def settled(workload: Workload, kernels: Mapping[str, Kernel], arch: str | None = None) -> Workload:
    """Return the workload with complete, checked parameters, as `Point.params` are; `arch` picks a device's own kernel files.

    Raises PlanError naming the call for a kernel that is not there or parameters that it cannot take.
    """

    def call(each: Call) -> Call:
        kernel = kernels.get(each.kernel)
        if kernel is None:
            near = did_you_mean(each.kernel, kernels)
            raise PlanError(
                f"workload {workload.name}: there is no kernel {each.kernel!r}{near}; add its folder with --kernels-dir"
            )
        try:
            params = (kernel.for_arch(arch) if arch else kernel).merged(dict(each.params))
        except PlanError as error:
            raise PlanError(f"workload {workload.name}, {each.part or each.kernel}: {error}") from error
        return replace(each, params=params)

    groups = tuple(replace(group, calls=tuple(call(each) for each in group.calls)) for group in workload.groups)
    return replace(workload, groups=groups)


def step_work(workload: Workload, kernels: Mapping[str, Kernel], sms: int = TRIAL_SMS[0]) -> StepWork:
    """Return the sums over a step of what each kernel's file declares, on a lane of `sms` SMs; the workload is settled.

    A kernel without `work.flops` (a copy) adds none; one without `work.bytes` too leaves the sum of bytes unknown, since it
    may well move some.
    """
    flops, moved = 0, 0
    known = True
    for group in workload.groups:
        for each in group.calls:
            kernel = kernels[each.kernel]
            env = kernel.environment(each.params, sms=sms, occupancy=TRIAL_OCCUPANCY)
            flops += group.repeat * (kernel.flops.value(env) if kernel.flops else 0)
            moved += group.repeat * (kernel.bytes.value(env) if kernel.bytes else 0)
            known = known and (kernel.bytes is not None or kernel.flops is not None)
    return StepWork(flops if known else None, moved if known else None)


def workload_digest(workload: Workload, kernels: Mapping[str, Kernel]) -> str:
    """Return 16 hexadecimal digits that stand for the sources of all kernels of a step: column source_digest."""
    return digest_of(*(kernels[name].summary_record().digest for name in sorted({each.kernel for each in workload.distinct()})))


def workload_names() -> list[str]:
    """Return the names of the workloads that ship with greenbench."""
    return sorted(path.stem for path in (sweeps_dir() / FOLDER).glob("*.toml"))


def load_workload(name: str | Path, kernels: Mapping[str, Kernel]) -> Workload:
    """Read a workload by name or from a .toml file and settle it; raises PlanError naming file and key."""
    text = str(name)
    path = Path(text)
    if not text.endswith(".toml") and "/" not in text:
        if text not in workload_names():
            known = ", ".join(workload_names())
            raise PlanError(
                f"there is no workload {text!r}{did_you_mean(text, workload_names())}; give {known} or the path of a .toml file"
            )
        path = sweeps_dir() / FOLDER / f"{text}.toml"
    return settled(read_workload(path.stem, read_table(path, "workload"), f"{path}: "), kernels)


def read_table(path: Path, what: str) -> dict[str, object]:
    """Return the table of a TOML file; raises PlanError saying which `what` it should have been."""
    return read_toml(path, what, PlanError)


def read_workload(name: str, table: Mapping[str, object], place: str) -> Workload:
    """Return the workload of a table with the keys of `KEYS`; `place` heads every error."""
    _known(table, KEYS, place, "a workload")
    entries = table.get("kernels")
    if not isinstance(entries, list) or not entries:
        raise PlanError(f'{place}kernels: {entries!r} names no kernels; write kernels = ["triad"] or tables with name and params')
    calls = tuple(each for index, entry in enumerate(entries) for each in _calls(entry, f"{place}kernels[{index}]"))
    group = Group(calls, parse_integer(table.get("repeat", 1), f"{place}repeat", 1, MAX_CALLS))
    tokens = parse_integer(table["tokens"], f"{place}tokens", 1, MAX_TOKENS) if "tokens" in table else None
    summary = read_text(table.get("summary", ""), f"{place}summary")
    found = Workload(name=name, kind=StepKind.KERNELS, groups=(group,), tokens=tokens, summary=summary)
    if found.launches > MAX_CALLS:
        raise PlanError(f"{place}kernels: a step of {found.launches} launches is too long for one graph; {MAX_CALLS} at most")
    return found


def _known(table: Mapping[str, object], keys: tuple[str, ...], place: str, what: str) -> None:
    for key in table:
        if key not in keys:
            raise PlanError(f"{place}{key} is no key of {what}{did_you_mean(key, keys)}; keys are {', '.join(keys)}")


def _calls(entry: object, place: str) -> tuple[Call, ...]:
    """Return the launches of one entry: a name, or a table that may repeat it."""
    if not isinstance(entry, Mapping):
        return (Call(_name(entry, place)),)
    _known(entry, CALL_KEYS, f"{place}.", "a kernel in a workload")
    name = _name(entry.get("name", ""), f"{place}.name")
    given = entry.get("params", {})
    if not isinstance(given, Mapping):
        raise PlanError(f"{place}.params of {name}: {given!r} is not a table; write params = {{ n = 1024 }}")
    params = tuple(sorted((str(key), parse_param(value, f"{place}.params.{key} of {name}")) for key, value in given.items()))
    part = read_text(entry.get("part", ""), f"{place}.part of {name}")
    repeat = parse_integer(entry.get("repeat", 1), f"{place}.repeat of {name}", 1, MAX_CALLS)
    return (Call(name, params, part),) * repeat


def _name(value: object, place: str) -> str:
    name = read_text(value, place)
    if not name:
        raise PlanError(f"{place}: a kernel needs a name, such as triad")
    return name
