"""Which SMs a role may use under a mechanism that shares the device, how many at once, and who goes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenbench.errors import UsageError
from greenbench.queueing.model import Device, Kind, Mechanism, Role

GREEN = frozenset(
    {
        Mechanism.GREEN,
        Mechanism.GREEN_BACKGROUND,
        Mechanism.GREEN_PRIMARY,
        Mechanism.GREEN_PRIORITY,
        Mechanism.GREEN_BALANCED,
        Mechanism.TORCH_GREEN,
    }
)
SIZED = GREEN | {Mechanism.MPS_LIMITED}
FAVOURING = frozenset({Mechanism.PRIORITY, Mechanism.GREEN_PRIORITY})


@dataclass(frozen=True, slots=True)
class Place:
    """SMs as a bit mask, the most of them at once, and a rank: the lower one goes first."""

    smids: int
    most: int
    rank: int = 0


def split(sms: int, sizes: Sequence[int]) -> list[int]:
    """Return disjoint bit masks of these sizes, each spread over the whole device as a driver's are."""
    given = [0] * len(sizes)
    masks = [0] * len(sizes)
    spare = sms - sum(sizes)
    left_out = 0
    for smid in range(sms):
        # Who is furthest behind an even spread is next; what nobody asked for is spread like the rest.
        behind = [size * (smid + 1) - had * sms for size, had in zip(sizes, given, strict=True)]
        neediest = max(range(len(sizes)), key=behind.__getitem__, default=-1)
        if neediest < 0 or behind[neediest] < spare * (smid + 1) - left_out * sms:
            left_out += 1
        else:
            given[neediest] += 1
            masks[neediest] |= 1 << smid
    return masks


def places(device: Device, roles: Sequence[Role], mechanism: Mechanism, sizes: Sequence[int]) -> list[Place]:
    """Return the place of each role; raises UsageError for sizes that the device does not have."""
    everything = Place((1 << device.sms) - 1, device.sms)
    _check_sizes(device, roles, mechanism, sizes)
    masks = split(device.sms, sizes) if sizes and mechanism != Mechanism.MPS_LIMITED else [0] * len(roles)
    found = []
    for i, role in enumerate(roles):
        rank = int(mechanism in FAVOURING and role.kind != Kind.LATENCY)
        if mechanism == Mechanism.MPS_LIMITED:
            found.append(Place(everything.smids, sizes[i]))
        elif sizes and _confined(mechanism, role.kind):
            found.append(Place(masks[i], sizes[i], rank))
        else:
            found.append(Place(everything.smids, everything.most, rank))
    return found


def _confined(mechanism: Mechanism, kind: Kind) -> bool:
    """Return whether a role of this kind sits in a partition."""
    if mechanism == Mechanism.GREEN_BACKGROUND:
        return kind == Kind.BACKGROUND
    if mechanism == Mechanism.GREEN_PRIMARY:
        return kind == Kind.LATENCY
    return mechanism in GREEN or mechanism == Mechanism.ALONE


def _check_sizes(device: Device, roles: Sequence[Role], mechanism: Mechanism, sizes: Sequence[int]) -> None:
    if not sizes and mechanism not in SIZED:
        return
    if len(sizes) != len(roles):
        raise UsageError(f"mechanism {mechanism} was given {len(sizes)} SM counts for {len(roles)} roles: give each its count")
    if wrong := [size for size in sizes if not 1 <= size <= device.sms]:
        raise UsageError(f"{wrong[0]} SMs were asked for on a device of {device.sms}: give 1 to {device.sms}")
    if mechanism in GREEN and sum(sizes) > device.sms:
        raise UsageError(f"partitions of {'+'.join(map(str, sizes))} SMs do not fit side by side on {device.sms}: ask for fewer")
