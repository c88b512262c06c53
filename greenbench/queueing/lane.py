"""One role on the SMs that it may use: which kernel of its step it is at, what of it has not started, and its running waves."""

from __future__ import annotations

from collections.abc import Sequence

from greenbench.queueing.feed import SCALE, Cost, Feed
from greenbench.queueing.layout import Place
from greenbench.queueing.model import Device, nanoseconds

NEVER = 1 << 62


class Lane:
    """Mutable; `ready` is when the kernel in front may start, NEVER where the role has nothing left to do."""

    __slots__ = (
        "_costs",
        "_factors",
        "_gap",
        "at",
        "cost",
        "feed",
        "held",
        "left",
        "most",
        "name",
        "order",
        "rank",
        "ready",
        "smids",
        "start",
        "wanted",
    )

    def __init__(self, order: int, feed: Feed, place: Place, device: Device, apart: bool) -> None:
        self.order = order
        self.feed = feed
        self.name = feed.role.name
        self.smids, self.most, self.rank = place.smids, place.most, place.rank
        self.left = 0  # CTAs of the kernel that have not started
        self.held = 0  # SMs that run its CTAs
        self.wanted = 0  # share of HBM that these want, in 1 / SCALE
        self._costs = [Cost(piece, device, place.most, apart) for piece in feed.role.step]
        self._gap = nanoseconds(device.gap_us)
        self._factors: Sequence[float] = ()
        self._load(0)

    def _load(self, now: int) -> None:
        """Put the next step in front, if there is one."""
        self.start = -1
        head = self.feed.head
        if head is None:
            self.ready = NEVER
        else:
            self._factors = self.feed.factors()
            self._put(0, max(now, head))

    def _put(self, at: int, ready: int) -> None:
        self.at = at
        self.ready = ready
        self.cost = self._costs[at]
        self.left = self.cost.ctas

    def begin(self, room: int, now: int) -> tuple[int, int, int]:
        """Start a wave on at most `room` more SMs and return (SMs taken, ns at full speed, share of HBM wanted).

        It runs as fast as on all the SMs that the kernel could have now, even if its last CTAs need fewer.
        """
        cost = self.cost
        reach = self.held + room
        ns, share = cost.wave(reach, cost.ctas - self.left, self._factors[self.at])
        taken = min(room, self.left)
        self.left = max(0, self.left - taken * cost.per_sm)
        self.held += taken
        if share and reach != room:
            share = share * room // reach
        self.wanted += share
        if self.start < 0:
            self.start = now
        return taken, ns, share

    def end(self, taken: int, share: int, now: int) -> None:
        """Note that a wave has ended; after the last one of a kernel go on to the next, and after that to the next step."""
        self.held -= taken
        self.wanted -= share
        if self.held or self.left:
            return
        if self.at + 1 < len(self._costs):
            self._put(self.at + 1, now + self._gap)
        else:
            self.feed.done(self.start, now)
            self._load(now)


class Wave:
    """CTAs of one kernel that started together; `share` is what they want of HBM, in 1 / SCALE."""

    __slots__ = ("_since", "_work", "end", "lane", "ready", "share", "smids", "start", "taken")

    def __init__(self, lane: Lane, ready: int, smids: int, taken: int, now: int, ns: int, share: int) -> None:
        self.lane = lane
        self.ready = ready
        self.smids = smids
        self.taken = taken
        self.start = self._since = now
        self.end = now + ns
        self.share = share
        self._work = ns * SCALE

    def retime(self, now: int, old: int, new: int) -> None:
        """Take account of the speed so far, and go on at another one."""
        self._work = max(0, self._work - old * (now - self._since))
        self._since = now
        self.end = now + -(-self._work // new)
