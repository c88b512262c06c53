"""Roles that run at once: waves of CTAs take free SMs in the order of rank and arrival, and HBM is shared by what each wants."""

from __future__ import annotations

from collections.abc import Sequence

from greenbench.queueing.feed import SCALE, Feed
from greenbench.queueing.lane import NEVER, Lane, Wave
from greenbench.queueing.layout import Place
from greenbench.queueing.model import Device
from greenbench.queueing.outcome import Part


class Shared:
    """A device whose SMs and HBM several roles use at the same time."""

    def __init__(self, device: Device, feeds: Sequence[Feed], places: Sequence[Place]) -> None:
        self._lanes = [
            Lane(i, feed, place, device, apart=not any(place.smids & other.smids for j, other in enumerate(places) if j != i))
            for i, (feed, place) in enumerate(zip(feeds, places, strict=True))
        ]
        self._free = (1 << device.sms) - 1
        self._running: list[Wave] = []
        self._speed = SCALE  # of whatever uses HBM
        self._taken: dict[tuple[int, int], int] = {}
        self.parts: list[Part] = []

    def run(self, until: int = NEVER) -> list[Part]:
        """Run until every step has ended, or until this time, and return the parts in the order of their ends."""
        now = -1
        while (now := self._next(now)) <= until and now < NEVER:
            self._retire(now)
            waiting = [lane for lane in self._lanes if lane.ready <= now and lane.left and lane.held < lane.most]
            if len(waiting) == 1 and not self._running:
                self._solo(waiting[0], now, until)
            elif waiting:
                self._dispatch(waiting, now)
            self._share_hbm(now)
        return self.parts

    def _next(self, now: int) -> int:
        """Return when something ends or becomes ready next."""
        soonest = NEVER
        for wave in self._running:
            soonest = min(soonest, wave.end)
        for lane in self._lanes:
            # A lane that was ready before and still waits is woken by what ends.
            if now < lane.ready < soonest and lane.left:
                soonest = lane.ready
        return soonest

    def _retire(self, now: int) -> None:
        """End the waves that are due."""
        ended = [wave for wave in self._running if wave.end <= now]
        for wave in ended:
            self._running.remove(wave)
            self._free |= wave.smids
            self._end(wave.lane, wave, now)

    def _end(self, lane: Lane, wave: Wave, now: int) -> None:
        self.parts.append(Part(lane.name, len(lane.feed.steps), lane.at, wave.ready, wave.start, now, wave.smids))
        lane.end(wave.taken, wave.share, now)

    def _dispatch(self, waiting: list[Lane], now: int) -> None:
        """Give free SMs to who waits, in order: who still waits after his turn has left none that he could use."""
        if len(waiting) > 1:
            waiting.sort(key=lambda lane: (lane.rank, lane.ready, lane.order))
        for lane in waiting:
            usable = self._free & lane.smids
            room = min(usable.bit_count(), lane.most - lane.held)
            if room > 0:
                wave = self._begin(lane, usable, room, now)
                self._free &= ~wave.smids
                self._running.append(wave)
                if wave.share and self._speed != SCALE:
                    wave.retime(now, SCALE, self._speed)

    def _begin(self, lane: Lane, usable: int, room: int, now: int) -> Wave:
        taken, ns, share = lane.begin(room, now)
        return Wave(lane, lane.ready, self._take(usable, taken), taken, now, ns, share)

    def _solo(self, lane: Lane, now: int, until: int) -> None:
        """Run a lane that has the device to itself up to where another one becomes ready: the same, without the bookkeeping."""
        self._speed = SCALE
        bound = min([other.ready for other in self._lanes if other is not lane], default=NEVER)
        bound = min(bound, until)
        while True:
            wave = self._begin(lane, lane.smids, lane.most, now)
            if wave.end >= bound:
                self._free &= ~wave.smids
                self._running.append(wave)
                return
            self._end(lane, wave, wave.end)
            now = max(wave.end, lane.ready)
            if now >= bound:
                return

    def _take(self, usable: int, count: int) -> int:
        """Return the `count` lowest SMs of a mask."""
        if usable.bit_count() == count:
            return usable
        found = self._taken.get((usable, count))
        if found is None:
            found, rest = 0, usable
            for _ in range(count):
                lowest = rest & -rest
                found |= lowest
                rest ^= lowest
            self._taken[usable, count] = found
        return found

    def _share_hbm(self, now: int) -> None:
        """Slow what uses HBM by as much as all together want more than there is."""
        wanted = 0
        for lane in self._lanes:
            wanted += lane.wanted
        speed = SCALE if wanted <= SCALE else SCALE * SCALE // wanted
        if speed != self._speed:
            for wave in self._running:
                if wave.share:
                    wave.retime(now, self._speed, speed)
            self._speed = speed
