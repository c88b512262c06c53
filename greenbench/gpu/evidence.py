"""What NVML knows: clocks, power, temperature, throttle counters, other processes. It reads, and never sets anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from greenbench.schema import Evidence

T = TypeVar("T")

# Field ids of nvml.h, by the names that Evidence uses.
FIELDS = {"power_cap_ns": 74, "thermal_ns": 75, "board_limit_ns": 77, "power_mw": 186}
ENERGY_FIELD = 83
SLOWDOWN_FIELDS = (269, 270, 271)
REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}


class Nvml:
    """One device of NVML, found by its PCI address (its index ignores CUDA_VISIBLE_DEVICES)."""

    def __init__(self, pci_bus_id: str) -> None:
        self._device: Any = None
        self._errors: tuple[type[Exception], ...] = (RuntimeError,)
        self._open(pci_bus_id)

    def _open(self, pci_bus_id: str) -> None:
        try:
            from cuda.core import system
        except ImportError:
            return
        if not getattr(system, "CUDA_BINDINGS_NVML_IS_COMPATIBLE", False):
            return
        self._errors = (RuntimeError, system.NvmlError)
        self._device = self._try(lambda: system.Device(pci_bus_id=pci_bus_id))

    def _try(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except self._errors:
            # NVML answers "not supported" per quantity: an empty cell, not a failure.
            return None

    def driver(self) -> str:
        """Return the version of the kernel driver, `580.159.04`, or an empty string."""
        if self._device is None:
            return ""
        from cuda.core import system

        version = self._try(system.get_kernel_mode_driver_version)
        return _version_text(version) if version else ""

    def max_clock_mhz(self, kind: str) -> int | None:
        """Return the highest `sm` or `memory` clock."""
        if self._device is None:
            return None
        return self._try(lambda: int(self._device.get_clock(kind).get_max_mhz()))

    def processes(self) -> tuple[int, ...]:
        """Return ids of the processes that hold a compute context, as far as this namespace sees them."""
        if self._device is None:
            return ()
        found = self._try(lambda: tuple(sorted(int(p.pid) for p in self._device.compute_running_processes)))
        return found or ()

    def mig(self) -> bool:
        """Return True on a GPU in MIG mode."""
        return bool(self._device is not None and self._try(lambda: self._device.mig.mode))

    def power_limit_w(self) -> float | None:
        """Return the enforced power limit."""
        if self._device is None:
            return None
        from cuda.bindings import nvml

        return self._try(lambda: nvml.device_get_enforced_power_limit(self._handle()) / 1000)

    def _handle(self) -> int:
        from cuda.bindings import nvml

        return int(nvml.device_get_handle_by_uuid(self._device.uuid))

    def read(self, *, energy: bool = False) -> Evidence:
        """Read once, in about 2 ms, so never inside a sample; the energy counter costs 3.5 ms more and moves every 0.1 s."""
        if self._device is None:
            return Evidence()
        device = self._device
        values = self._fields()
        power = values.get("power_mw")
        return Evidence(
            sm_clock_mhz=self._try(lambda: float(device.get_clock("sm").get_current_mhz())),
            mem_clock_mhz=self._try(lambda: float(device.get_clock("memory").get_current_mhz())),
            power_w=None if power is None else power / 1000,
            energy_mj=self._try(lambda: float(device.get_field_values([ENERGY_FIELD])[0].value)) if energy else None,
            temperature_c=self._try(lambda: float(device.temperature.get_sensor())),
            reasons=self._try(lambda: _bits(device.current_clock_event_reasons)),
            power_cap_ns=_whole(values.get("power_cap_ns")),
            thermal_ns=_whole(values.get("thermal_ns")),
            board_limit_ns=_whole(values.get("board_limit_ns")),
            hw_slowdown_ns=_whole(values.get("hw_slowdown_ns")),
            processes=self.processes(),
        )

    def _fields(self) -> dict[str, float]:
        got = self._try(lambda: self._device.get_field_values([*FIELDS.values(), *SLOWDOWN_FIELDS]))
        if got is None:
            return {}
        found: dict[str, float] = {}
        for place, name in enumerate(FIELDS):
            value = self._try(lambda place=place: float(got[place].value))  # type: ignore[misc]
            if value is not None:
                found[name] = value
        lost = [self._try(lambda place=place: float(got[place].value)) for place in range(len(FIELDS), len(got))]  # type: ignore[misc]
        known = [value for value in lost if value is not None]
        if known:
            found["hw_slowdown_ns"] = sum(known)
        return found


def _bits(reasons: Any) -> int:
    return sum(REASON_BITS.get(str(reason), 0) for reason in reasons)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _version_text(version: tuple[int, ...]) -> str:
    return ".".join(f"{part:02d}" if place == 2 else str(part) for place, part in enumerate(version))
