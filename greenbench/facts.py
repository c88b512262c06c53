"""What is known of GPUs without asking them: peaks per device, and complete facts of the devices that can be modelled.

The figures stand in devices.toml beside this file, each with its source and grade. What is not known there is None here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

from greenbench.errors import UsageError
from greenbench.schema import Backend, DeviceFacts

Table = Mapping[str, Any]

WORKQUEUE_DRIVER = (13, 1)
MODEL_DRIVER = (13, 0)

# What every model has to say, and which facts of its device follow from its driver.
CONSTANTS = ("sm_clock_mhz", "achieved", "launch_us", "graph_launch_us", "launch_host_us", "jitter_pct", "source", "grade")
DERIVED = ("uuid", "index", "backend", "driver", "cuda", "nvrtc", "split_api", "workqueue_obstacle")

_DTYPES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "tfloat32": "tf32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "float8_e4m3": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float4": "fp4",
    "e2m1": "fp4",
}


def dtype_key(dtype: str) -> str:
    """Return the name under which devices.toml lists a dtype: `float32` and `fp32` are one."""
    return _DTYPES.get(dtype.lower(), dtype.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Nominal limits of a device; None (or a dtype that is missing) where nobody has published one."""

    flop_per_clk_sm: Mapping[str, float]
    link_bytes_per_clk_sm: float | None = None
    link_read_bytes_per_clk_sm: float | None = None
    link_write_bytes_per_clk_sm: float | None = None
    l2_bytes_per_clk: float | None = None
    hbm_gb_s: float | None = None
    nominal_mhz: float | None = None
    max_mhz: float | None = None
    threads_per_sm: int | None = None
    ctas_per_sm: int | None = None
    l1_cycles: float | None = None
    l2_cycles: float | None = None
    hbm_cycles: float | None = None
    sources: tuple[str, ...] = ()

    def flop(self, dtype: str, *, tensor: bool = False) -> float | None:
        """Return FLOP per clock and SM, accumulated in 32 bits; `tensor` takes the tensor core where that is a unit apart."""
        key = dtype_key(dtype)
        if tensor and f"{key}_tc" in self.flop_per_clk_sm:
            key = f"{key}_tc"
        return self.flop_per_clk_sm.get(key)

    def most_flop(self, dtype: str) -> float | None:
        """Return the rate that no kernel of this dtype exceeds: the fastest unit that such numbers could be fed to."""
        key = dtype_key(dtype)
        names = [key, f"{key}_tc", f"{key}_acc16"]
        if key == "fp32":
            names.append("tf32")
        rates = [self.flop_per_clk_sm[name] for name in names if name in self.flop_per_clk_sm]
        return max(rates, default=None) if key in self.flop_per_clk_sm else None

    @property
    def clock_mhz(self) -> float | None:
        """SM clock to assume where none was measured: the maximum, so that a bound stays one; else the nominal."""
        return self.max_mhz or self.nominal_mhz


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A device that greenbench can stand in for, and the constants with which `bounds.predict` answers for it."""

    name: str
    device: DeviceFacts
    peaks: Peaks
    sm_clock_mhz: float
    achieved: Mapping[str, float]
    l1_cycles: float
    l2_cycles: float
    hbm_cycles: float
    launch_us: float
    graph_launch_us: float
    launch_host_us: float
    jitter_pct: float
    refused_sms: tuple[int, ...]
    source: str
    grade: str
    probe_cycles: Mapping[str, float]
    host_us: Mapping[str, float]

    @property
    def link_bytes_per_clk_sm(self) -> float | None:
        """Bytes per clock between one SM and the L2."""
        return self.peaks.link_bytes_per_clk_sm


SHARES = ("gemm", "memory", "link", "l2")


@cache
def _tables() -> Table:
    """Read devices.toml once."""
    return tomllib.loads(files("greenbench").joinpath("devices.toml").read_text(encoding="utf-8"))


def _gpu_table(name: str) -> Table:
    """Return the first [[gpu]] table whose pattern is found in the device's name, or an empty one."""
    return next((table for table in _tables()["gpu"] if re.search(table["match"], name)), {})


def _bus_gb_s(clock_mhz: float | None, bits: float | None) -> float | None:
    """Return the peak of a memory bus: two transfers a clock."""
    return 2 * clock_mhz * bits / 8 / 1e3 if clock_mhz and bits else None


def _hbm(device: DeviceFacts, gpu: Table) -> tuple[float | None, str]:
    """Return the memory peak and where it comes from: the device's own clock and bus before any table."""
    own = _bus_gb_s(device.max_mem_clock_mhz, device.mem_bus_bits)
    if own is not None:
        return own, f"HBM: 2 x {device.max_mem_clock_mhz} MHz x {device.mem_bus_bits} bit / 8 as the device reports [device]"
    listed = gpu.get("hbm_gb_s") or _bus_gb_s(gpu.get("mem_clock_mhz"), gpu.get("mem_bus_bits"))
    return (float(listed), "HBM: table of GPU names") if listed else (None, "")


def peaks(device: DeviceFacts) -> Peaks:
    """Return what is known of a device's limits: by its name, else by its compute capability, else nothing."""
    major, minor = device.compute_capability
    by_cc: Table = _tables()["cc"].get(f"{major}.{minor}", {})
    gpu = _gpu_table(device.name)
    hbm, hbm_source = _hbm(device, gpu)
    notes = [f"cc {major}.{minor}: {by_cc['source']} [{by_cc['grade']}]"] if by_cc else []
    notes += [f"{device.name}: {gpu['source']} [{gpu['grade']}]"] if gpu else []
    notes += [hbm_source] if hbm_source else []
    return Peaks(
        flop_per_clk_sm={**by_cc.get("flop_per_clk_sm", {}), **gpu.get("flop_per_clk_sm", {})},
        link_bytes_per_clk_sm=by_cc.get("link_bytes_per_clk_sm"),
        link_read_bytes_per_clk_sm=by_cc.get("link_read_bytes_per_clk_sm"),
        link_write_bytes_per_clk_sm=by_cc.get("link_write_bytes_per_clk_sm"),
        l2_bytes_per_clk=gpu.get("l2_bytes_per_clk"),
        hbm_gb_s=hbm,
        nominal_mhz=gpu.get("nominal_mhz"),
        max_mhz=device.max_sm_clock_mhz,
        threads_per_sm=by_cc.get("threads_per_sm"),
        ctas_per_sm=by_cc.get("ctas_per_sm"),
        l1_cycles=gpu.get("l1_cycles"),
        l2_cycles=gpu.get("l2_cycles"),
        hbm_cycles=gpu.get("hbm_cycles"),
        sources=tuple(notes),
    )


def model_names() -> tuple[str, ...]:
    """Return the names that `--device model:NAME` takes."""
    return tuple(sorted(_tables()["model"]))


def model_facts(name: str, cuda: tuple[int, int] = MODEL_DRIVER) -> ModelFacts:
    """Return the facts of a modelled device as a driver of that CUDA version would show them."""
    models: Table = _tables()["model"]
    key = name.lower()
    if key not in models:
        raise UsageError(f"there is no model {name!r}: choose {', '.join(model_names())}, or give model:FILE.toml")
    return model_from_table(key, models[key], cuda, place=f"model {key}")


def model_of(device: DeviceFacts) -> ModelFacts | None:
    """Return the model that stands for a measured device, or None where there is none."""
    for name, table in _tables()["model"].items():
        if re.search(table["match"], device.name):
            return model_facts(name)
    return None


def model_from_table(name: str, table: Table, cuda: tuple[int, int] = MODEL_DRIVER, *, place: str) -> ModelFacts:
    """Build a model from a table shaped as [model.NAME]; `base` names a model whose values it starts from.

    What is known by name (clocks, L2, latencies) is the base's, whatever the model calls itself. `place` names the file in
    errors.
    """
    part = table.get("device", {}).get("name", "")
    if "base" in table:
        base = _tables()["model"].get(str(table["base"]).lower())
        if base is None:
            raise UsageError(f"{place}: base = {table['base']!r} is no model: choose {', '.join(model_names())}")
        part = base["device"]["name"]
        device_table = {**base["device"], **table.get("device", {})}
        table = {**base, **{key: value for key, value in table.items() if key != "base"}, "device": device_table}
    if missing := _missing(table):
        lacks = ", ".join(missing)
        raise UsageError(f"{place}: without a base a model also needs {lacks}; give them, or start with base = 'h200'")
    device = _model_device(name, table.get("device", {}), cuda, place)
    limits = peaks(replace(device, name=part))
    try:
        model = ModelFacts(
            name=name,
            device=device,
            peaks=limits,
            sm_clock_mhz=float(table["sm_clock_mhz"]),
            achieved={key: float(value) for key, value in table["achieved"].items()},
            l1_cycles=_cycles(table, "l1_cycles", limits.l1_cycles),
            l2_cycles=_cycles(table, "l2_cycles", limits.l2_cycles),
            hbm_cycles=_cycles(table, "hbm_cycles", limits.hbm_cycles),
            launch_us=float(table["launch_us"]),
            graph_launch_us=float(table["graph_launch_us"]),
            launch_host_us=float(table["launch_host_us"]),
            jitter_pct=float(table["jitter_pct"]),
            refused_sms=tuple(int(sms) for sms in table.get("refused_sms", ())),
            source=str(table["source"]),
            grade=str(table["grade"]),
            probe_cycles={key: float(value) for key, value in table.get("probe_cycles", {}).items()},
            host_us={key: float(value) for key, value in table.get("host_us", {}).items()},
        )
    except KeyError as error:
        raise UsageError(f"{place}: key {error.args[0]!r} is missing; give it, or start with base = 'h200'") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{place}: a value has the wrong type ({error})") from error
    _refuse_absurd(model, place)
    return model


def _refuse_absurd(model: ModelFacts, place: str) -> None:
    """Refuse facts with which the arithmetic would end in an overflow, a division by zero or a time before the launch."""
    shares = {f"achieved.{key}": (model.achieved.get(key, 0.0), 1e-3, 1.0) for key in SHARES}
    ranges = {
        "sm_clock_mhz": (model.sm_clock_mhz, 1.0, 1e5),
        "l1_cycles": (model.l1_cycles, 1.0, 1e6),
        "l2_cycles": (model.l2_cycles, 1.0, 1e6),
        "hbm_cycles": (model.hbm_cycles, 1.0, 1e6),
        "launch_us": (model.launch_us, 0.01, 1e6),
        "graph_launch_us": (model.graph_launch_us, 0.01, 1e6),
        "launch_host_us": (model.launch_host_us, 0.0, 1e6),
        "jitter_pct": (model.jitter_pct, 0.0, 20.0),
        "device.timer_tick_ns": (model.device.timer_tick_ns or 1.0, 1.0, 1e6),
        **shares,
    }
    for key, (value, low, high) in ranges.items():
        # NaN is in no range.
        if not low <= value <= high:
            raise UsageError(f"{place}: {key} = {value:g} is not possible; give a number from {low:g} to {high:g}")


def _missing(table: Table) -> list[str]:
    """Return the keys without a default that a model does not give; latencies may come from the entry of its GPU."""
    given = {*table.get("device", {}), *DERIVED}
    needed = [field.name for field in fields(DeviceFacts) if field.default is MISSING and field.default_factory is MISSING]
    return [key for key in needed if key not in given] + [key for key in CONSTANTS if key not in table]


def _cycles(table: Table, key: str, listed: float | None) -> float:
    """Return a latency from the model's own table, else from the entry of its GPU."""
    if key not in table and listed is not None:
        return listed
    return float(table[key])


def _model_device(name: str, table: Table, cuda: tuple[int, int], place: str) -> DeviceFacts:
    """Build the device facts of a model: what depends on the driver is derived, the rest is in the table."""
    known = {field.name for field in fields(DeviceFacts)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(f"{place}: [device] has no key {unknown[0]!r}; keys are {', '.join(sorted(known))}")
    version = f"{cuda[0]}.{cuda[1]}"
    obstacle = "" if cuda >= WORKQUEUE_DRIVER else f"workqueue configuration needs driver 13.1, this is {version}"
    derived: dict[str, Any] = {
        "uuid": f"MODEL-{name}",
        "index": 0,
        "backend": Backend.MODELLED,
        "driver": version,
        "cuda": cuda,
        "nvrtc": "",
        "split_api": "structured" if cuda >= WORKQUEUE_DRIVER else "count",
        "workqueue_obstacle": obstacle,
    }
    values: dict[str, Any] = {**derived, **table}
    capability = values.get("compute_capability", (0, 0))
    if not isinstance(capability, list | tuple) or [type(part) for part in capability] != [int, int]:
        raise UsageError(f"{place}: compute_capability = {capability!r} is not a pair such as [9, 0]")
    if "compute_capability" in values:
        values["compute_capability"] = tuple(capability)
    sms = values.get("sm_count", 1)
    if not isinstance(sms, int) or sms < 1:
        raise UsageError(f"{place}: sm_count = {sms!r} leaves no SM to run on; give 1 or more")
    return DeviceFacts(**values)
