"""What a kernel of the library is: frozen data read from one `.cu` file, and the arithmetic that its front matter declares."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenbench.bufferspec import BufferSpec
from greenbench.errors import PlanError
from greenbench.expr import LIMIT, Expr, ExprError, Number, did_you_mean
from greenbench.schema import Family, KernelSummary, ParamValue, Timing
from greenbench.yardsticks import ways

BUILT_IN_NAMES = ("sms", "occupancy")
MAX_BLOCK = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SMEM = 232448
MAX_CLUSTER = 16

# Where front matter is tried before a device is known: a large and a small lane, one CTA per SM; one of the two must do.
TRIAL_SMS = (132, 8)
TRIAL_OCCUPANCY = 1

_ARCH = re.compile(r"sm_(\d{1,2})(\d)([af]?)")


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch shape; `smem` is dynamic shared memory in bytes, `grid` counts CTAs, `cluster` of them along x."""

    block: Expr
    grid: tuple[Expr, ...]
    cluster: Expr
    smem: Expr | None = None
    cooperative: bool = False
    pdl: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """One choice of macros (tile, pipeline depth); the lowest cost wins."""

    name: str
    defines: tuple[tuple[str, int], ...]
    cost: Expr | None


@dataclass(frozen=True, slots=True)
class Report:
    """The kernel measures itself: `buffer` holds cycles, to be divided by the name `per` (a parameter, or one of [let]).

    `fact`, with parameters in braces, names the figure of devices.toml that the modelled device answers with.
    """

    buffer: str
    per: str
    fact: str = ""

    def fact_for(self, params: Mapping[str, ParamValue]) -> str:
        """Return the name of the figure for these parameters: `dsmem_{remote}` is `dsmem_1`."""
        return self.fact.format_map(params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel file, read and checked; nothing in it depends on a device.

    `versions` are the files NAME.ARCH.cu beside it, each a Kernel of the same name for one architecture.
    """

    name: str
    path: Path
    source: str
    prelude: str
    digest: str
    family: Family
    summary: str
    entry: str
    args: tuple[str, ...]
    verify: str
    min_cc: tuple[int, int] | None
    arch: str | None
    dtype: str
    buffers: tuple[BufferSpec, ...]
    params: tuple[tuple[str, Number], ...]
    let: tuple[tuple[str, Expr], ...]
    launch: Launch
    variants: tuple[Variant, ...]
    flops: Expr | None
    bytes: Expr | None
    report: Report | None
    yardstick: str
    internal: bool
    include: tuple[str, ...]
    headers: tuple[str, ...]
    toolkit_headers: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    local_ok: bool
    require: tuple[Expr, ...] = ()
    versions: tuple[Kernel, ...] = ()
    host: str = ""
    timing: str = ""
    sources: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The file without its ending: `gemm_bf16`, or `gemm_bf16.sm_90a` for the version of one architecture."""
        return self.path.stem

    @property
    def is_version(self) -> bool:
        """True for a file NAME.ARCH.cu."""
        return self.label != self.name

    @property
    def operands(self) -> tuple[BufferSpec, ...]:
        """The buffers that hold inputs and outputs."""
        return tuple(buffer for buffer in self.buffers if buffer.access != "scratch")

    @property
    def scratch(self) -> tuple[BufferSpec, ...]:
        """The buffers that the kernel uses for itself."""
        return tuple(buffer for buffer in self.buffers if buffer.access == "scratch")

    @property
    def yardsticks(self) -> tuple[str, ...]:
        """The ways in which the vendor's kernel is measured beside this one: `cublaslt` for rows `gemm_bf16.cublaslt`."""
        return ways(self.yardstick, [buffer.dtype for buffer in self.operands])

    def for_arch(self, arch: str) -> Kernel:
        """Return the file that is compiled for an NVRTC target: NAME.ARCH.cu if there is one for it, else this one."""
        return next((version for version in self.versions if version.archs([arch])), self)

    def timing_of(self, asked: Timing) -> Timing:
        """Return how a point is timed that asks for this: `auto` is what the file says, if it says anything."""
        return Timing(self.timing) if asked is Timing.AUTO and self.timing else asked

    def config(self, variant: Variant | None) -> str:
        """Return what column `config` says: the variant, behind the architecture if the file is for that one alone."""
        return "-".join(part for part in (self.arch if self.is_version else "", variant.name if variant else "") if part)

    @property
    def is_name_expression(self) -> bool:
        """True if `entry` is C++ (`ns::k<float, 128>`), not an extern "C" symbol."""
        return not self.entry.isidentifier()

    def merged(self, overrides: Mapping[str, ParamValue]) -> tuple[tuple[str, ParamValue], ...]:
        """Return all parameters, sorted by name, with `overrides` in place of the file's values."""
        values = dict(self.params)
        for name, value in overrides.items():
            if name not in values:
                known = ", ".join(sorted(values)) or "none"
                raise PlanError(f"kernel {self.name} has no parameter {name!r}{did_you_mean(name, values)}; it has {known}")
            values[name] = self._checked(name, value)
        if overrides and (problem := self.unmet(values) or self.trial_problem(values)):
            raise PlanError(f"kernel {self.name} with {_pairs(overrides.items())}: {problem}{self.too_low(values)}")
        return tuple(sorted(values.items()))

    def environment(
        self,
        params: Mapping[str, ParamValue] | Iterable[tuple[str, ParamValue]],
        *,
        sms: int,
        occupancy: int = 0,
        variant: Variant | None = None,
    ) -> dict[str, Number]:
        """Return every name an expression may use; without a `variant`, that of `choose`."""
        values = {name: value for name, value in dict(params).items() if not isinstance(value, str)}
        if variant is None:
            variant = self.choose(values, sms)
        env: dict[str, Number] = {"sms": sms, "occupancy": occupancy, **values}
        env.update(integers(self.defines))
        env.update(variant.defines if variant else ())
        for name, expr in self.let:
            env[name] = expr.value(env)
        return env

    def choose(self, params: Mapping[str, ParamValue] | Iterable[tuple[str, ParamValue]], sms: int) -> Variant | None:
        """Return the variant of lowest cost for a lane of `sms` SMs (the first of equals), None if there are none."""
        if not self.variants:
            return None
        values = dict(params)

        def cost(variant: Variant) -> Number:
            if variant.cost is None:
                return 0
            return variant.cost.value(self.environment(values, sms=sms, occupancy=TRIAL_OCCUPANCY, variant=variant))

        return min(self.variants, key=cost)

    def obstacle(self, cc: tuple[int, int]) -> str:
        """Return why this kernel cannot run on a compute capability, an empty string if it can."""
        here = f"this is {cc[0]}.{cc[1]}"
        if self.arch is not None:
            major, minor, suffix = split_arch(self.arch)
            if suffix == "a" and cc != (major, minor):
                return f"needs {self.arch} (compute capability {major}.{minor} exactly), {here}"
            if suffix == "f" and (cc[0] != major or cc[1] < minor):
                return f"needs {self.arch} (compute capability {major}.{minor} or later of {major}.x), {here}"
        if self.min_cc is not None and cc < self.min_cc:
            return f"needs compute capability {self.min_cc[0]}.{self.min_cc[1]}, {here}"
        return ""

    def archs(self, candidates: Iterable[str]) -> list[str]:
        """Return those NVRTC targets that this kernel claims to compile for."""
        return [candidate for candidate in candidates if self._claims(candidate)]

    def summary_record(self) -> KernelSummary:
        """Return what a run's meta data keep of this kernel."""
        return KernelSummary(
            name=self.name,
            family=self.family,
            dtype=self.dtype,
            summary=self.summary,
            digest=digest_of(self.digest, *(version.digest for version in self.versions)) if self.versions else self.digest,
            reports=self.report is not None,
        )

    def unmet(self, params: Mapping[str, ParamValue]) -> str:
        """Return which condition of `require` these parameters do not meet, an empty string if they meet all."""
        env = {**{name: value for name, value in params.items() if not isinstance(value, str)}, **dict(integers(self.defines))}
        for expr in self.require:
            try:
                value = expr.value(env)
            except ExprError as error:
                return str(error)
            if value != 0:
                if multiple := re.fullmatch(r"(\w+) *% *(\d+)", expr.text):
                    return f"{multiple[1]} must be a multiple of {multiple[2]}, and {env.get(multiple[1])} is not"
                return f"{expr.text} must be 0, and it is {value}"
        return ""

    def trial_problem(self, params: Mapping[str, ParamValue]) -> str:
        """Return what is wrong with launch shape, buffers or work under `params`, an empty string if nothing is."""
        for variant in self.variants or (None,):
            problems = [self._problem_on(sms, params, variant) for sms in TRIAL_SMS]
            if all(problems):
                return problems[0]
        return ""

    def too_low(self, params: Mapping[str, ParamValue]) -> str:
        """Return which of `params` are to blame for a problem by being 0 or less, an empty string if none or not they alone."""
        low = {name: value for name, value in params.items() if isinstance(value, int) and value < 1}
        healed = {**params, **{name: max(1, int(value)) for name, value in self.params if name in low}}
        if not low or self.unmet(healed) or self.trial_problem(healed):
            return ""
        trials = {name: {**healed, name: value} for name, value in low.items()}
        blamed = [name for name, trial in trials.items() if self.unmet(trial) or self.trial_problem(trial)]
        return "".join(f"; {name} is {low[name]} and must be at least 1" for name in blamed)

    def _problem_on(self, sms: int, params: Mapping[str, ParamValue], variant: Variant | None) -> str:
        try:
            env = self.environment(params, sms=sms, occupancy=TRIAL_OCCUPANCY, variant=variant)
            if variant is not None and variant.cost is not None:
                variant.cost.value(env)
            for expr, low, high in self._ranges():
                value = expr.value(env)
                if not low <= value <= high:
                    return f"{expr.place} {expr.text!r} is {value}, outside {low} to {high}"
            grid, cluster = self.launch.grid[0], self.launch.cluster.value(env)
            if grid.value(env) % cluster:
                return f"{grid.place} {grid.text!r} is {grid.value(env)}, not a multiple of the cluster of {cluster}"
            for buffer in self.buffers:
                if problem := buffer.map_problem(env):
                    return problem
        except ExprError as error:
            return str(error)
        return ""

    def _ranges(self) -> Iterator[tuple[Expr, int, int]]:
        """Yield every expression with the range of its value."""
        yield self.launch.block, 1, MAX_BLOCK
        yield self.launch.cluster, 1, MAX_CLUSTER
        for expr, high in zip(self.launch.grid, MAX_GRID, strict=False):
            yield expr, 1, high
        if self.launch.smem is not None:
            yield self.launch.smem, 0, MAX_SMEM
        for buffer in self.buffers:
            yield from buffer.ranges()
        for work in (self.flops, self.bytes):
            if work is not None:
                yield work, 0, LIMIT

    def _checked(self, name: str, value: ParamValue) -> Number:
        default = dict(self.params)[name]
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise PlanError(f"parameter {name} of kernel {self.name} is {value!r}; it must be a number, like {default}")
        if isinstance(default, float):
            return float(value)
        if value != int(value):
            raise PlanError(f"parameter {name} of kernel {self.name} is {value!r}; it must be an integer, like {default}")
        if abs(value) > LIMIT:
            raise PlanError(f"parameter {name} of kernel {self.name} is {value!r}; it must fit in 64 bits")
        return int(value)

    def _claims(self, candidate: str) -> bool:
        major, minor, suffix = split_arch(candidate)
        if self.obstacle((major, minor)):
            return False
        needed = split_arch(self.arch)[2] if self.arch else ""
        return not needed or suffix in ("a", needed)


def split_arch(arch: str) -> tuple[int, int, str]:
    """Split `sm_90a` into (9, 0, "a"); ValueError if it is no architecture's name."""
    found = _ARCH.fullmatch(arch)
    # Architecture-specific code began with sm_90a, family-specific code with sm_100f.
    if found is None or (found.group(3) and int(found.group(1)) < {"a": 9, "f": 10}[found.group(3)]):
        raise ValueError(f"{arch!r} is not an architecture like sm_80, sm_90a or sm_100f")
    return int(found.group(1)), int(found.group(2)), found.group(3)


def variant_name(defines: Sequence[tuple[str, int]]) -> str:
    """Return the name of a variant: `BM128_BN256`."""
    return "_".join(f"{macro}{value}" for macro, value in defines)


def digest_of(*texts: str) -> str:
    """Return 16 hexadecimal digits that stand for these texts, in their order."""
    whole = hashlib.sha256()
    for text in texts:
        whole.update(len(text.encode()).to_bytes(8, "big") + text.encode())
    return whole.hexdigest()[:16]


def integers(defines: Iterable[tuple[str, str]]) -> list[tuple[str, int]]:
    """Return those macros of a file that expressions may use, being integers."""
    return [(name, int(text)) for name, text in defines if re.fullmatch(r"-?\d{1,18}", text, re.ASCII)]


def _pairs(items: Iterable[tuple[str, ParamValue]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in items)


__all__ = [
    "BUILT_IN_NAMES",
    "Kernel",
    "Launch",
    "Report",
    "Variant",
    "digest_of",
    "integers",
    "split_arch",
    "variant_name",
]
