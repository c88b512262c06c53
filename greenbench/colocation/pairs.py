"""The rows of a co-location in pairs: the two roles of each point together, and what the label of a point says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from greenbench.corow import CoRow
from greenbench.queueing.model import Kind, Mechanism
from greenbench.schema import Scope, Status

# `…]@20:c8/driver_default/chunked:512/5`: the split, the queue, what tells points of a mechanism apart, requests a second.
_LABEL = re.compile(r"\]@(?P<split>[^/:]*)[^/]*/[^/]*/(?P<mechanism>[^/]*)/(?P<rate>[^/]*)$")
CLOSED = "-"
_SHORT = {Scope.GREEN_CTX_BALANCED.value: "balanced"}


@dataclass(frozen=True, slots=True)
class Pair:
    """The rows of one point, of which one is missing alone."""

    latency: CoRow | None
    background: CoRow | None

    @property
    def row(self) -> CoRow:
        """The latency role's row, or the background's where that is alone."""
        return self.latency or self.background or CoRow()

    @property
    def alone(self) -> bool:
        """Return whether a role is by itself."""
        return self.row.mechanism == Mechanism.ALONE

    @property
    def ok(self) -> bool:
        """Return whether the point has figures."""
        return self.row.status == Status.OK

    def of(self, kind: Kind) -> CoRow | None:
        """Return a role's row."""
        return self.latency if kind is Kind.LATENCY else self.background

    @property
    def split(self) -> int | None:
        """The SMs that name the split: those of the latency role, or of who is alone; None where there is no partition."""
        said = self._said("split")
        return int(said) if said.isdecimal() else None

    @property
    def split_text(self) -> str:
        """The split as it is shown: `20`, and `20 (18)` where MPS granted another count; empty without a partition."""
        return "" if self.split is None else sms_text(self.latency, self.split)

    @property
    def mechanism(self) -> str:
        """The mechanism with what tells points of it apart: `chunked:512`."""
        return self._said("mechanism") or self.row.mechanism

    @property
    def load(self) -> str:
        """The load of --interference beside the latency role, empty for the plan's own background."""
        return self.mechanism.partition("+")[2]

    @property
    def rate(self) -> str:
        """Background requests a second as the label has them, an empty text for a closed loop."""
        said = self._said("rate")
        return "" if said == CLOSED else said

    def _said(self, part: str) -> str:
        match = _LABEL.search(self.row.label)
        return match[part] if match else ""

    @property
    def name(self) -> str:
        """`green 20`, `chunked:512`, `green 20 device_ctx limit 4`, `alone 20 (decode)`, `mps_limited 20 (18)`."""
        row = self.row
        words = [self.mechanism, *([self.split_text] if self.split is not None else [])]
        if row.workqueue not in ("", Scope.DRIVER_DEFAULT) and row.mechanism != Mechanism.GREEN_BALANCED:
            words.append(_SHORT.get(row.workqueue, row.workqueue))
        if row.concurrency_limit is not None:
            words.append(f"limit {row.concurrency_limit}")
        if row.connections is not None:
            words.append(f"connections {row.connections}")
        if self.alone:
            words.append(f"({row.kernel})")
        return " ".join(words)


def granted(row: CoRow | None, asked: int) -> int:
    """Return the SMs that a latency role asked for, or those that MPS granted it: its percentages are whole, its counts even."""
    limited = row is not None and row.mechanism == Mechanism.MPS_LIMITED and row.status == Status.OK
    return (row.sms_granted or row.sms_observed or asked) if row is not None and limited else asked


def sms_text(row: CoRow | None, asked: int) -> str:
    """Write the SMs of a latency role: `20`, and `20 (18)` where 18 were granted."""
    got = granted(row, asked)
    return str(asked) if got == asked else f"{asked} ({got})"


def pairs(rows: Iterable[CoRow]) -> list[Pair]:
    """Return the points of a run in the order of its rows."""
    found: dict[tuple[str, str], Pair] = {}
    for row in rows:
        # Two roles of one name may be alone under one label.
        key = row.label, row.role if row.mechanism == Mechanism.ALONE else ""
        pair = found.setdefault(key, Pair(None, None))
        found[key] = replace(pair, **{"latency" if row.role == Kind.LATENCY else "background": row})
    return list(found.values())
