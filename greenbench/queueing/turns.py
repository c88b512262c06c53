"""Roles that have the whole device in turn: step by step, chunk by chunk, or process by process for a slice of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from greenbench.queueing.feed import Cost, Feed
from greenbench.queueing.lane import NEVER
from greenbench.queueing.model import Device, Kind, Mechanism, nanoseconds
from greenbench.queueing.outcome import Part


class _Tenant:
    """One role that has the device from time to time, and how far it is in its step."""

    def __init__(self, feed: Feed, device: Device, parts: list[Part]) -> None:
        self.feed = feed
        self._parts = parts
        self._smids = (1 << device.sms) - 1
        self._gap = nanoseconds(device.gap_us)
        self._costs = [Cost(piece, device, device.sms).on(device.sms)[0] for piece in feed.role.step]
        self._times: list[int] = []  # of the step begun; empty between steps
        self.at = 0
        self._left = 0  # ns of the kernel at which it is
        self._start = -1
        self._ready = 0

    def waits(self, now: int) -> bool:
        """Return whether it has something to run."""
        return self.feed.head is not None and self.feed.head <= now

    def run(self, now: int, kernels: int, until: int) -> int:
        """Run up to so many kernels of one step, up to this time, and return when that ended."""
        if not self._times:
            self._begin(now)
        while kernels and now < until:
            start = max(now, self._ready)
            end = min(start + self._left, max(until, start))
            self._note(start, end)
            self._left -= end - start
            now = end
            if self._left:
                break
            kernels -= 1
            self.at += 1
            if self.at == len(self._times):
                self._times = []
                self.feed.done(self._start, now)
                break
            self._left = self._times[self.at]
            self._ready = now + self._gap
        return now

    def _begin(self, now: int) -> None:
        self._times = [max(1, round(ns * factor)) for ns, factor in zip(self._costs, self.feed.factors(), strict=True)]
        self.at, self._left, self._start = 0, self._times[0], -1
        self._ready = self.feed.head if self.feed.head is not None else now

    def _note(self, start: int, end: int) -> None:
        if end > start:
            if self._start < 0:
                self._start = start
            step = len(self.feed.steps)
            self._parts.append(Part(self.feed.role.name, step, self.at, self._ready, start, end, self._smids))


class Turns:
    """A device that one role has at a time."""

    def __init__(self, device: Device, feeds: Sequence[Feed], mechanism: Mechanism) -> None:
        self.parts: list[Part] = []
        self._tenants = [_Tenant(feed, device, self.parts) for feed in feeds]
        self._last: _Tenant | None = None
        sliced = mechanism == Mechanism.TIMESLICE
        self._switch = nanoseconds(device.switch_us) if sliced else 0
        self._choose: Callable[[int], _Tenant | None] = self._oldest if mechanism == Mechanism.SERIAL else self._following
        self._slice = nanoseconds(device.slice_us) if sliced else None
        self._chunked = mechanism == Mechanism.CHUNKED

    def run(self, until: int = NEVER) -> list[Part]:
        """Run until every step has ended, or the turn in which this time falls, and return the parts in order."""
        now = 0
        while now <= until:
            tenant = self._choose(now)
            if tenant is None:
                now = min((t.feed.head for t in self._tenants if t.feed.head is not None), default=NEVER)
                if now == NEVER:
                    break
                continue
            if self._last not in {None, tenant}:
                now += self._switch
            self._last = tenant
            now = self._turn(tenant, now)
        return self.parts

    def _turn(self, tenant: _Tenant, now: int) -> int:
        """Let a tenant have its turn, and return when it is over."""
        role = tenant.feed.role
        whole = len(role.step)
        if self._slice is None:
            chunk = role.kernels_from(tenant.at) if self._chunked and role.kind == Kind.BACKGROUND else whole
            return tenant.run(now, chunk, NEVER)
        until = now + self._slice
        while now < until and tenant.waits(now):
            now = tenant.run(now, whole, until)
        return now

    def _oldest(self, now: int) -> _Tenant | None:
        """Return who was meant to start first: one queue for all."""
        waiting = [tenant for tenant in self._tenants if tenant.waits(now)]
        return min(waiting, key=lambda tenant: tenant.feed.head or 0, default=None)

    def _following(self, now: int) -> _Tenant | None:
        """Return who is next after the one before, round and round."""
        count = len(self._tenants)
        first = self._tenants.index(self._last) + 1 if self._last else 0
        order = (self._tenants[(first + i) % count] for i in range(count))
        return next((tenant for tenant in order if tenant.waits(now)), None)
