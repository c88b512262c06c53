"""The steps of one role as they come due, with what each kernel of them takes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from greenbench.errors import UsageError
from greenbench.queueing.model import Closed, Device, Piece, Role, nanoseconds
from greenbench.queueing.outcome import Step

SCALE = 1 << 20  # fixed point of shares and speeds, so that no result depends on the order of float additions
SLOWEST_JITTER = 0.1
# Waves below this are joined: a wait of at most this much is not worth an event each.
SHORTEST_WAVE_NS = 2000


class Feed:
    """The queue of one role. `head` is when the next step is meant to start, in ns, or None after the last one."""

    def __init__(self, role: Role, device: Device, seed: int, goes_on: Callable[[int], bool]) -> None:
        self.role = role
        self.steps: list[Step] = []
        self._goes_on = goes_on
        self._jitter = device.jitter_pct / 100
        # By name, so that a role meets the same luck under every mechanism.
        self._random = random.Random(f"{seed}/{role.name}")
        self._open: tuple[int, ...] | None = None
        self._think = 0
        self._until: int | None = None
        if isinstance(role.arrivals, Closed):
            self._think = nanoseconds(role.arrivals.think_us)
            self._count = math.inf if role.arrivals.steps is None else role.arrivals.steps
            self._until = None if role.arrivals.until_us is None else nanoseconds(role.arrivals.until_us)
        else:
            self._open = tuple(map(nanoseconds, role.arrivals))
            self._count = len(self._open)
        self.head = self._due(0)

    def _due(self, now: int) -> int | None:
        done = len(self.steps)
        if done >= self._count or (self.role.endless and done and not self._goes_on(now)):
            return None
        if self._until is not None and done and now > self._until:
            return None
        if self._open is not None:
            return self._open[done]
        return now + self._think if done else 0

    def factors(self) -> Sequence[float]:
        """Draw by how much each kernel of the next step is slower than nominal."""
        if not self._jitter:
            return [1.0] * len(self.role.step)
        return [max(SLOWEST_JITTER, 1 + self._jitter * self._random.gauss(0, 1)) for _ in self.role.step]

    def done(self, start: int, end: int) -> None:
        """Note that the head step ran, and go on to the next one."""
        if self.head is not None:
            self.steps.append(Step(self.head, start, end))
            self.head = self._due(end)


class Cost:
    """What one kernel takes on k SMs, for a role that may use up to `width`; asked for once per k.

    Waves of a kernel whose SMs nobody else may use (`apart`) decide nothing and are joined into one.
    """

    def __init__(self, piece: Piece, device: Device, width: int, apart: bool = False) -> None:
        self._piece = piece
        self._rate = device.hbm_gb_s
        self._known: dict[int, tuple[int, int]] = {}
        self.persistent = piece.ctas is None
        self.ctas = width if piece.ctas is None else piece.ctas
        self.per_sm = 1 if piece.ctas is None else piece.ctas_per_sm
        if not self.persistent:
            waves = self.waves(width)
            self.per_sm *= waves if apart else min(waves, math.ceil(SHORTEST_WAVE_NS * waves / self.on(width)[0]))

    def waves(self, sms: int) -> int:
        """Return in how many waves the grid runs on this many SMs."""
        return math.ceil(self.ctas / (sms * self.per_sm))

    def on(self, sms: int) -> tuple[int, int]:
        """Return (ns of the whole kernel, share of HBM that it wants) on this many SMs, the share in 1 / SCALE."""
        if (known := self._known.get(sms)) is not None:
            return known
        us = self._piece.us(sms)
        if not 0 < us < math.inf:
            raise UsageError(f"kernel {self._piece.name!r} takes {us} us on {sms} SMs: give a positive time for every count")
        share = self._piece.hbm_bytes / (us * 1e3 * self._rate) if self._rate else 0.0
        self._known[sms] = found = (max(1, nanoseconds(us)), round(min(share, 1.0) * SCALE))
        return found

    def wave(self, sms: int, started: int, factor: float) -> tuple[int, int]:
        """Return (ns of the wave after `started` CTAs, share of HBM wanted) on this many SMs; all waves are the whole kernel.

        Of a persistent kernel that found only some of its SMs free, the rest of its CTAs carry the rest of its work.
        """
        ns, share = self._known.get(sms) or self.on(sms)
        if factor != 1.0:
            ns = round(ns * factor)
        if self.persistent:
            return (ns if sms == self.ctas else round(ns * sms / self.ctas)) or 1, share
        lot = sms * self.per_sm
        waves = -(-self.ctas // lot)
        if waves > 1:
            each, over = divmod(ns, waves)
            ns = each + (started // lot < over)
        return ns or 1, share
