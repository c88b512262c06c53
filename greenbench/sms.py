"""The language of `--sms`: counts, ranges and words, checked before any device is known and turned into partitions once it is.

Nothing here predicts a grant: what a driver makes of a count is read back, and equal grants are merged afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from greenbench.errors import PlanError
from greenbench.schema import DeviceFacts, Grant, Partition, Point, Scope, SmsMode

POSSIBLE = "give counts from 1 up (8,16,32), ranges first:last:step (8:132:8, or 8:full:8), all, auto, full or primary"
AUTO_SIZES = 10

_COUNT = re.compile(r"[0-9]{1,6}")


class SmsWord(StrEnum):
    """Sizes that are named instead of counted."""

    ALL = "all"
    AUTO = "auto"
    FULL = "full"
    PRIMARY = "primary"


@dataclass(frozen=True, slots=True)
class SmsRange:
    """Counts from `first` to `last`, both included where the step meets them; `last` None is the whole device."""

    first: int
    last: int | None
    step: int

    def __str__(self) -> str:
        return f"{self.first}:{SmsWord.FULL if self.last is None else self.last}:{self.step}"

    def counts(self, sm_count: int) -> range:
        """Return the counts on a device of that many SMs; those above it are kept, for the caller to refuse."""
        return range(self.first, (sm_count if self.last is None else self.last) + 1, self.step)


Item = int | SmsRange | SmsWord


@dataclass(frozen=True, slots=True)
class SmsSpec:
    """What `--sms` asks for; `place` heads the text of its errors."""

    items: tuple[Item, ...]
    place: str = field(default="--sms", compare=False)

    @property
    def text(self) -> str:
        """The specification in its own language."""
        return ",".join(str(item) for item in self.items)

    def partitions(
        self,
        device: DeviceFacts,
        scopes: Sequence[Scope] = (Scope.DRIVER_DEFAULT,),
        limits: Sequence[int] = (),
        granularity: int | None = None,
    ) -> list[Partition]:
        """Return the partitions: counts in the order given, then `full`, then `primary`, each with every scope and limit.

        `primary` is no green context, so it has no workqueue of its own and comes once.
        """
        counts = dict.fromkeys(self._counts(device, granularity))
        whole = {SmsWord.FULL, SmsWord.ALL, SmsWord.AUTO} & set(self.items)
        sizes = [(SmsMode.COUNT, count) for count in counts] + ([(SmsMode.FULL, None)] if whole else [])
        found = [
            Partition(mode, sms, granularity, scope, limit)
            for scope in scopes
            for limit in (limits if limits and scope is not Scope.DRIVER_DEFAULT else (None,))
            for mode, sms in sizes
        ]
        return found + ([Partition(SmsMode.PRIMARY)] if SmsWord.PRIMARY in self.items else [])

    def _counts(self, device: DeviceFacts, granularity: int | None) -> Iterator[int]:
        for item in self.items:
            if isinstance(item, SmsWord):
                sizes = _grantable(device, granularity)
                yield from {SmsWord.ALL: sizes, SmsWord.AUTO: _about_ten(sizes)}.get(item, ())
                continue
            counts = item.counts(device.sm_count) if isinstance(item, SmsRange) else range(item, item + 1)
            if not counts or counts[-1] > device.sm_count:
                raise PlanError(
                    f"{self.place} {item}: this device has {device.sm_count} SMs ({device.name}); "
                    f"give counts from 1 to {device.sm_count}, full or primary"
                )
            yield from counts


def _grantable(device: DeviceFacts, granularity: int | None) -> Sequence[int]:
    """Return the sizes below the full device that the device's own granularity allows."""
    first = granularity or max(1, device.min_partition)
    return range(first, device.sm_count, granularity or max(1, device.alignment))


def _about_ten(sizes: Sequence[int]) -> list[int]:
    """Return nine sizes (`full` is the tenth), closer together at the small end, where a curve bends."""
    last = len(sizes) - 1
    steps = AUTO_SIZES - 2
    if last <= steps:
        return list(sizes)
    return [sizes[index] for index in dict.fromkeys(round(last * (step / steps) ** 1.5) for step in range(steps + 1))]


def parse_sms(text: str, place: str = "--sms") -> SmsSpec:
    """Read `8,16,8:132:8,full`; raises PlanError with the item that cannot be meant.

    An item given twice is refused; a count that also lies in a range is one size and needs no remark.
    """
    items: list[Item] = []
    for word in text.split(","):
        item = _item(word.strip(), text, place)
        if item in items:
            raise PlanError(f"{place} {text!r}: {word.strip()!r} is given twice; give each size once")
        items.append(item)
    return SmsSpec(tuple(items), place)


def _item(word: str, text: str, place: str) -> Item:
    if word in set(SmsWord):
        return SmsWord(word)
    if _COUNT.fullmatch(word) and int(word) > 0:
        return int(word)
    if not word:
        problem = f"{text!r} has a blank item" if "," in text else f"{text!r} is blank"
        raise PlanError(f"{place}: {problem}; {POSSIBLE}")
    if ":" in word:
        return _range(word, place)
    raise PlanError(f"{place}: {word!r} is no number of SMs; {POSSIBLE}")


def _range(word: str, place: str) -> SmsRange:
    parts = [part.strip() for part in word.split(":")]
    if len(parts) != 3:
        raise PlanError(f"{place}: {word!r} is no range; a range is first:last:step, such as 8:132:8")
    whole = parts[1] == SmsWord.FULL
    for part in (parts[0], parts[2]) if whole else parts:
        if not (_COUNT.fullmatch(part) and int(part) > 0):
            raise PlanError(f"{place}: {part!r} in the range {word!r} is no number of SMs; {POSSIBLE}")
    first, last, step = int(parts[0]), None if whole else int(parts[1]), int(parts[2])
    if last is not None and last < first:
        raise PlanError(f"{place}: the range {word!r} is empty, since it ends before it begins; write {last}:{first}:{step}")
    return SmsRange(first, last, step)


def merge_same_grants(points: Sequence[Point], grants: Mapping[Partition, Grant]) -> tuple[list[Point], list[str]]:
    """Keep one of the points whose counts landed on the same grant, and return one note per such meeting.

    Kept is `full`, else the count that is what was granted, else the first asked for. Points without a grant stay.
    """
    groups: dict[object, list[Point]] = {}
    for point in points:
        groups.setdefault(_grant_key(point, grants), []).append(point)
    kept: set[Point] = set()
    notes: dict[str, None] = {}
    for group in groups.values():
        best = min(group, key=lambda point: _preference(point.partition, grants))
        kept.add(best)
        if len(group) > 1:
            names = [point.partition.name for point in group]
            both = "both" if len(names) == 2 else "all"
            sms = grants[best.partition].sms
            notes[
                f"{', '.join(names[:-1])} and {names[-1]} {both} give {sms} SMs on this driver; "
                f"measured once, as {best.partition.name}"
            ] = None
    return [point for point in points if point in kept], list(notes)


def _grant_key(point: Point, grants: Mapping[Partition, Grant]) -> object:
    partition = point.partition
    if partition.mode is SmsMode.PRIMARY or partition not in grants:
        return point
    rest = (point.kernel, point.params, point.timing, point.flush_dirty, point.connections)
    return (*rest, partition.granularity, partition.workqueue, partition.concurrency_limit, grants[partition].sms)


def _preference(partition: Partition, grants: Mapping[Partition, Grant]) -> int:
    if partition.mode is SmsMode.FULL:
        return 0
    return 1 if partition in grants and partition.sms == grants[partition].sms else 2
