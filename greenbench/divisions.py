"""Sizes of a co-location: which SM counts the latency role gets by default, and which two counts one split can give."""

from __future__ import annotations

from dataclasses import dataclass

from greenbench.errors import PlanError
from greenbench.schema import DeviceFacts

# SGLang's PD multiplexing: eight groups, of which the first and the last are the whole device, and decode gets 16 SMs or more.
SGLANG_GROUPS = 8
SGLANG_LEAST_DECODE = 16
# Besides those of SGLang: what smaller decode steps need.
SMALL_SIZES = (8, 16, 32)


def sglang_divisions(sm_count: int, least: int, step: int, groups: int = SGLANG_GROUPS) -> tuple[tuple[int, int], ...]:
    """Return SGLang's (prefill, decode) SM counts, largest prefill first; none where the device is too small for any.

    The rule of its `pdmux_context.py`: prefill counts go from `least` in steps of `step` as long as decode keeps `least`; those
    where prefill has at least as many as decode, and decode at least 16, are candidates; where they are more than wanted, every
    so-manieth is taken, from the smallest prefill on. SGLang takes `least` and `step` from a table by compute capability (8
    and 8 for 9.x); the device's own smallest partition and alignment are those, and exist for other devices too.
    """
    wanted = groups - 2
    if wanted < 1:
        raise ValueError(f"{groups} groups were asked for: two of them are the whole device")
    candidates = [
        prefill for prefill in range(least, sm_count - least + 1, step) if prefill >= sm_count - prefill >= SGLANG_LEAST_DECODE
    ]
    if len(candidates) >= wanted:
        candidates = candidates[:: len(candidates) // wanted][:wanted]
    return tuple((prefill, sm_count - prefill) for prefill in reversed(candidates))


def latency_sizes(device: DeviceFacts) -> tuple[int, ...]:
    """Return the default `--sms` of the latency role, rising: SGLang's on this device and 8, 16, 32, the rest never empty."""
    least, step = max(1, device.min_partition), max(1, device.alignment)
    decode = {decode for _, decode in sglang_divisions(device.sm_count, least, step)}
    return tuple(sorted(size for size in decode | set(SMALL_SIZES) if size <= device.sm_count - least))


@dataclass(frozen=True, slots=True)
class Pool:
    """What one split by count gives: `units` of `unit` SMs, and `spare` SMs that no unit holds."""

    unit: int
    units: int
    spare: int

    @classmethod
    def of(cls, sm_count: int, unit: int) -> Pool:
        """Return what drivers before 13.1 make of a device (measured on an H200: 132 SMs are 15 units of 8 and 12 spare).

        Where the last unit would be incomplete it stays, with what it lacks, in the remainder.
        """
        units = sm_count // unit - (1 if sm_count % unit else 0)
        return cls(unit, max(0, units), sm_count - max(0, units) * unit)

    @property
    def total(self) -> int:
        """All SMs."""
        return self.unit * self.units + self.spare

    def is_exact(self, sms: int) -> bool:
        """Return whether a partition of exactly these SMs can be merged from units, or from units and the remainder."""
        return self._units_of(sms) is not None

    def needs_remainder(self, sms: int) -> bool:
        """Return whether an exact partition holds the remainder: no co-scheduling guarantee, flag `remainder`."""
        return self.is_exact(sms) and sms % self.unit != 0

    def _units_of(self, sms: int) -> int | None:
        """Return the units of an exact partition; whole units are preferred to the remainder."""
        for units, left in (divmod(sms, self.unit), divmod(sms - self.spare, self.unit)):
            if left == 0 and sms > 0 and 0 <= units <= self.units:
                return units
        return None

    def sizes(self) -> tuple[int, ...]:
        """Return every exact size, rising: 8, 12, 16, 20 ... 120, 124, 132 for 15 units of 8 and 12 spare."""
        return tuple(sms for sms in range(1, self.total + 1) if self.is_exact(sms))

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Return every (latency, background) pair of exact sizes that uses all SMs, the latency rising."""
        return tuple((sms, self.total - sms) for sms in self.sizes() if sms < self.total and self.is_exact(self.total - sms))

    def pair(self, latency: int) -> tuple[int, int]:
        """Return the latency role's SMs and the rest, the remainder included; raises PlanError naming the nearest sizes."""
        if (latency, self.total - latency) in self.pairs():
            return latency, self.total - latency
        sizes = [size for size, _ in self.pairs()]
        below, above = [size for size in sizes if size < latency], [size for size in sizes if size > latency]
        advice = " and ".join(str(size) for size in (*below[-1:], *above[:1])) or "none"
        raise PlanError(
            f"--sms: {latency} SMs cannot be split off exactly on this device ({self.units} units of {self.unit} SMs and "
            f"{self.spare} in the remainder); nearest sizes: {advice}"
        )
