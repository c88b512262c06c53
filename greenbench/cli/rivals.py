"""How our kernels stand beside the vendors': the fastest yardstick of each point, and the ratio of its time to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Self

from greenbench.schema import Row, SmsMode, Status
from greenbench.yardsticks import WAYS

Place = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Rivals:
    """The yardsticks of a run: the fastest ok row at each place, and the ways that stand beside each kernel."""

    fastest: Mapping[Place, Row]
    ways: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Find the yardsticks among the rows of a run."""
        fastest: dict[Place, Row] = {}
        ways: dict[str, dict[str, None]] = {}
        for row in filter(is_yardstick, rows):
            kernel, _, way = row.kernel.partition(".")
            ways.setdefault(kernel, {})[way] = None
            other = fastest.get(_place(row))
            if _us(row) and (other is None or _us(row) < _us(other)):
                fastest[_place(row)] = row
        return cls(fastest, {kernel: tuple(names) for kernel, names in ways.items()})

    def several(self, kernel: str) -> bool:
        """True where a kernel, or the one that a yardstick stands beside, has more than one yardstick."""
        return len(self.ways.get(kernel.partition(".")[0], ())) > 1

    def name(self, kernel: str) -> str:
        """Say with what a kernel is compared: the one way of its vendor, or the best of several."""
        ways = self.ways[kernel]
        return "best yardstick" if len(ways) > 1 else WAYS.get(ways[0], ways[0])

    def ratio(self, row: Row) -> float | None:
        """Return how many times as fast as the fastest yardstick one of our kernels is, None where either has no time."""
        rival = None if is_yardstick(row) else self.fastest.get(_place(row))
        return _us(rival) / _us(row) if rival is not None and _us(row) else None

    def standing(self, heading: str, group: Sequence[Row]) -> Iterator[str]:
        """Say how one of our curves compares with the fastest yardsticks; nothing where there are none."""
        pairs = [(value, row) for row in group if (value := self.ratio(row)) and row.sms_requested != SmsMode.PRIMARY]
        if not pairs:
            return
        kernel = group[0].kernel
        against = f"{'the ' if self.several(kernel) else ''}{self.name(kernel)}"
        lowest, highest = (pick(pairs, key=lambda pair: pair[0]) for pick in (min, max))
        mean = exp(sum(log(value) for value, _ in pairs) / len(pairs))
        lead = f"{heading} is {mean:.2f} x as fast as {against}"
        if len(pairs) == 1:
            yield f"{lead} at {self._where(lowest[1])}."
            return
        mean_of = f"{lead} in the geometric mean of {len(pairs)} sizes"
        if f"{lowest[0]:.2f}" == f"{highest[0]:.2f}":
            yield f"{mean_of}, and at each of them."
            return
        span = " to ".join(f"{value:.2f} at {self._where(row)}" for value, row in (lowest, highest))
        yield f"{mean_of}: {span}."

    def _where(self, row: Row) -> str:
        way = self.fastest[_place(row)].kernel.partition(".")[2]
        return f"{row.sms_granted} SMs" + (f" ({way})" if self.several(row.kernel) else "")


def is_yardstick(row: Row) -> bool:
    """True for a row of a vendor's kernel: `gemm_bf16.cublas`."""
    return "." in row.kernel


def _us(row: Row) -> float:
    """Return the time of an ok row, 0 where there is none."""
    return row.time_us or 0.0 if row.status == Status.OK else 0.0


def _place(row: Row) -> Place:
    kernel = row.kernel.partition(".")[0]
    return (kernel, row.params, row.sms_requested, row.workqueue, row.concurrency_limit, row.granularity, row.connections)
