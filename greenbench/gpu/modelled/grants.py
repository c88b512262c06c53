"""What a modelled driver grants: the split rules of drivers before and from 13.1 on, and which SM ids a grant holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from greenbench.errors import UnsupportedError
from greenbench.schema import FINE_UNIT, DeviceFacts, Grant, Partition, Placement, Scope, SmsMode

# SM ids run over the TPCs of eight GPCs in rows: a group of 8 SMs is four TPCs of one GPC, {0,1,16,17,32,33,48,49} (H200).
ROW, ROWS = 16, 4
DEFAULT_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class SplitRules:
    """The rules of one modelled device; `refused` are sizes that its floor-swept die does not hold."""

    device: DeviceFacts
    refused: Collection[int] = ()

    @property
    def structured(self) -> bool:
        """True where the driver has the exact split of 13.1, which refuses instead of rounding up."""
        return self.device.split_api == "structured"

    def grant(self, partition: Partition) -> Grant:
        """Return the grant for a partition with a split of its own; raises UnsupportedError where the driver refuses."""
        self._check_workqueue(partition)
        total = self.device.sm_count
        if partition.mode is SmsMode.PRIMARY:
            return self._made(partition, total, "primary")
        sms = partition.sms or 0
        fine = partition.granularity is not None and partition.granularity < self.device.min_partition
        if partition.mode is SmsMode.FULL or (sms == total and not fine):
            return self._made(partition, total, "unsplit" if self.structured else "count")
        if fine:
            return self._fine(partition, sms)
        granted = sms if self.structured else self._rounded(sms)
        if not self._grants(granted):
            raise self._refusal(sms)
        return self._made(partition, granted, "structured" if self.structured else "count")

    def disjoint(self, partitions: Sequence[Partition]) -> list[Grant]:
        """Return grants that share no SM, out of one split; raises UnsupportedError where that split cannot give them."""
        counts = [p.sms for p in partitions if p.mode is SmsMode.COUNT and p.sms is not None]
        if len(counts) != len(partitions):
            raise UnsupportedError("disjoint partitions are asked for by SM counts only")
        if sum(counts) > self.device.sm_count:
            raise UnsupportedError(f"{' + '.join(map(str, counts))} SMs are more than the {self.device.sm_count} of this device")
        for partition in partitions:
            self._check_workqueue(partition)
        return self._structured(partitions, counts) if self.structured else self._units(partitions, counts)

    def _structured(self, partitions: Sequence[Partition], counts: Sequence[int]) -> list[Grant]:
        grants, taken = [], 0
        for partition, count in zip(partitions, counts, strict=True):
            filled = not self._grants(count)
            if count % FINE_UNIT or (filled and count < self.device.min_partition):
                raise self._refusal(count)
            made = self._made(partition, count, "structured", first=taken, note="backfill" if filled else "")
            grants.append(replace(made, remainder=filled))
            taken += count
        return grants

    def _units(self, partitions: Sequence[Partition], counts: Sequence[int]) -> list[Grant]:
        """Merge units of one split; the SMs that no unit holds complete a count once (36 = 3 x 8 + 12 of 132)."""
        unit, total = self.device.min_partition, self.device.sm_count
        # Where the last unit would be incomplete the driver leaves it, and what it lacks, as the remainder (132: 15 x 8 + 12).
        units = total // unit - (1 if total % unit else 0)
        spare, taken, grants = total - units * unit, 0, []
        order = sm_order(total)
        for partition, count in zip(partitions, counts, strict=True):
            whole, rest = -(-count // unit), 0
            if spare and count % unit and count >= spare and (count - spare) % unit == 0:
                whole, rest, spare = (count - spare) // unit, spare, 0
            if taken + whole > units:
                left = (units - taken) * unit
                raise UnsupportedError(
                    f"{count} SMs: one split gives {units} units of {unit} SMs and {taken} of them are taken; "
                    f"at most {left} SMs are left for this partition"
                )
            ids = [*order[taken * unit : (taken + whole) * unit], *order[total - rest :]]
            made = self._made(partition, len(ids), "units", units=tuple(range(taken, taken + whole)))
            grants.append(replace(made, smids=tuple(sorted(ids)), remainder=bool(rest)))
            taken += whole
        return grants

    def _fine(self, partition: Partition, sms: int) -> Grant:
        if sms % FINE_UNIT:
            raise UnsupportedError(f"{sms} SMs: --granularity 2 gives even counts; nearest sizes: {sms - 1} and {sms + 1}")
        if not 0 < sms <= self.device.sm_count or sms in self.refused:
            raise self._refusal(sms)
        if self.structured:
            return self._made(partition, sms, "structured", note="coscheduled_sm_count=2")
        return self._made(partition, sms, "raw", note="split_flags=1", units=tuple(range(sms // FINE_UNIT)))

    def _rounded(self, sms: int) -> int:
        """Round up to what a split by count gives; the last, incomplete group gives the whole device (130 to 132 of 132)."""
        up = max(-(-sms // self.device.alignment) * self.device.alignment, self.device.min_partition)
        return self.device.sm_count if up > self.device.sm_count >= sms else up

    def _grants(self, sms: int) -> bool:
        if sms in self.refused or not 0 < sms <= self.device.sm_count:
            return False
        aligned = sms % self.device.alignment == 0 and sms >= self.device.min_partition
        return aligned or (not self.structured and sms == self.device.sm_count)

    def _refusal(self, sms: int) -> UnsupportedError:
        sizes = [size for size in range(1, self.device.sm_count + 1) if self._grants(size)]
        near = [*[size for size in sizes if size < sms][-1:], *[size for size in sizes if size > sms][:1]]
        advice = f"; nearest sizes that it grants: {' and '.join(map(str, near))}" if near else ""
        return UnsupportedError(f"{sms} SMs: refused by the driver (915 INVALID_RESOURCE_CONFIGURATION){advice}")

    def _check_workqueue(self, partition: Partition) -> None:
        asked = partition.workqueue is not Scope.DRIVER_DEFAULT or partition.concurrency_limit is not None
        if asked and self.device.workqueue_obstacle:
            raise UnsupportedError(self.device.workqueue_obstacle)

    def _made(
        self, partition: Partition, sms: int, method: str, *, first: int = 0, note: str = "", units: tuple[int, ...] = ()
    ) -> Grant:
        limit = partition.concurrency_limit
        if limit is None and partition.workqueue is not Scope.DRIVER_DEFAULT:
            limit = DEFAULT_CONCURRENCY
        return Grant(
            sms=sms,
            smids=tuple(sorted(sm_order(self.device.sm_count)[first : first + sms])),
            placement=Placement.CONFINED,
            split_method=method,
            unit_ids=units,
            workqueue=partition.workqueue.value,
            concurrency_limit=limit,
            note=note,
        )


def sm_order(sm_count: int) -> Sequence[int]:
    """Return all SM ids in the order in which splits hand them out: group by group, so that 8 SMs lie inside 16."""
    block = ROW * ROWS
    whole = sm_count - sm_count % block
    grouped = [
        start + ROW * row + 2 * group + half
        for start in range(0, whole, block)
        for group in range(ROW // 2)
        for row in range(ROWS)
        for half in (0, 1)
    ]
    return [*grouped, *range(whole, sm_count)]
