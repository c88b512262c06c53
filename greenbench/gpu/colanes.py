"""Lanes that are used at the same time: disjoint green contexts out of one split, and streams of the primary context."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from greenbench.errors import FailedError, StickyError
from greenbench.gpu import driver
from greenbench.gpu.lane import CudaLane
from greenbench.gpu.partition import OpenPartition, Splitter
from greenbench.gpu.torch_green import TorchContext
from greenbench.schema import Partition, Placement, Scope, SmsMode

if TYPE_CHECKING:
    from greenbench.gpu.cuda import CudaGpu


@dataclass(frozen=True, slots=True)
class Creation:
    """What making a lane cost on the host, in us; None where nothing was made."""

    create_us: float | None = None
    destroy_us: float | None = None
    first_launch_us: float | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """One decision about the SMs: sizes of one split, and the workqueue of its contexts."""

    sizes: tuple[int, ...]
    workqueue: Scope = Scope.DRIVER_DEFAULT
    concurrency_limit: int | None = None

    def partition(self, slot: int) -> Partition:
        """Return what is asked for in one slot."""
        limit = self.concurrency_limit
        return Partition(SmsMode.COUNT, self.sizes[slot], workqueue=self.workqueue, concurrency_limit=limit)


class CoLanes:
    """The lanes of one process, opened when they are first asked for and kept: contexts cost milliseconds, reading is free."""

    def __init__(self, gpu: CudaGpu, splitter: Splitter) -> None:
        self._gpu, self._splitter = gpu, splitter
        self._stack = ExitStack()
        self._opened: dict[Split, list[OpenPartition]] = {}
        self._costs: dict[tuple[Split, int], Creation] = {}
        self._lanes: dict[tuple[str, Split | None, int | None, bool, bool], CudaLane] = {}
        self._torch: list[TorchContext] = []

    def lane(
        self, role: str, split: Split | None, slot: int | None, *, urgent: bool = False, by_torch: bool = False
    ) -> tuple[CudaLane, Creation]:
        """Return the lane of a role: a slot of a split, or with slot None a stream of the primary context.

        Roles get streams of their own; `by_torch` lets torch make the first slot. Raises UnsupportedError where the driver
        or torch refuses, FailedError where the census of the lane saw other SMs than were granted, or SMs of another slot.
        """
        if slot is None or split is None:
            split = slot = None
        by_torch = by_torch and slot == 0
        key = (role, split, slot, urgent, by_torch)
        if key not in self._lanes:
            with driver.translated("opening a lane"):
                if split is None or slot is None:
                    lane = self._primary(urgent)
                else:
                    lane = self._by_torch(split, slot) if by_torch else self._green(split, slot, urgent)
                    self._prove(lane, split, slot)
                self._lanes[key] = lane
        cost = self._costs.get((split, slot)) if split is not None and slot is not None and not by_torch else None
        return self._lanes[key], cost or Creation()

    def _priority(self) -> int:
        _, greatest = driver.checked(driver.bindings().cuCtxGetStreamPriorityRange())
        return int(greatest)

    def _options(self, urgent: bool) -> Any:
        core = self._gpu.core
        return core.StreamOptions(nonblocking=True, priority=self._priority()) if urgent else core.StreamOptions(nonblocking=True)

    def _primary(self, urgent: bool) -> CudaLane:
        stream = self._gpu.core_device.create_stream(options=self._options(urgent))
        self._stack.callback(stream.close)
        lane = CudaLane(self._gpu, Partition(SmsMode.PRIMARY), stream, self._splitter.total, lambda: {"split_method": "primary"})
        self._stack.callback(lane.close)
        return lane

    def _green(self, split: Split, slot: int, urgent: bool) -> CudaLane:
        opened = self._open(split)[slot]
        stream = opened.context.create_stream(self._options(urgent))
        self._stack.callback(stream.close)
        describe = partial(self._gpu.description, opened)
        lane = CudaLane(self._gpu, split.partition(slot), stream, opened.sms, describe)
        self._stack.callback(lane.close)
        return lane

    def _by_torch(self, split: Split, slot: int) -> CudaLane:
        """Return a lane in a green context that torch made: a split of its own, which begins with the same SMs as ours."""
        context = TorchContext(split.sizes[slot], int(self._gpu.core_device.device_id))
        # Kept to the end: torch destroys the context, and what runs in it, with the object.
        self._torch.append(context)
        stream = self._gpu.core.Stream.from_handle(context.handle)
        lane = CudaLane(self._gpu, split.partition(slot), stream, split.sizes[slot], lambda: {"split_method": "torch"})
        self._stack.callback(lane.close)
        return lane

    def _prove(self, lane: CudaLane, split: Split, slot: int) -> None:
        if lane.grant.placement is not Placement.CONFINED:
            raise FailedError(f"leaked: {lane.grant.sms} SMs granted, the census saw {len(lane.grant.smids)}")
        for (_, other, place, _, _), known in self._lanes.items():
            if other == split and place != slot and (common := set(known.grant.smids) & set(lane.grant.smids)):
                raise FailedError(f"leaked: slots {place} and {slot} of one split share {len(common)} SMs; nothing was measured")

    def _open(self, split: Split) -> list[OpenPartition]:
        if split not in self._opened:
            pieces = self._splitter.disjoint(split.sizes, use_remainder=True)
            opened = []
            for slot, piece in enumerate(pieces):
                partition = split.partition(slot)
                began = time.perf_counter()
                self._splitter.open(piece, partition).close()
                both = time.perf_counter()
                opened.append(self._splitter.open(piece, partition))
                made = time.perf_counter()
                self._stack.callback(opened[-1].close)
                # The first launch in a context loads what the driver needs there.
                self._gpu.run_nothing(opened[-1].stream)
                first = time.perf_counter()
                create_us = (made - both) * 1e6
                destroy_us = max((both - began) * 1e6 - create_us, 0.0)
                self._costs[split, slot] = Creation(create_us, destroy_us, (first - made) * 1e6)
            self._opened[split] = opened
        return self._opened[split]

    def close(self) -> None:
        """Close lanes and streams, then contexts."""
        try:
            self._stack.close()
        except StickyError:
            return
        finally:
            self._lanes.clear()
            self._opened.clear()
            self._torch.clear()


__all__ = ["CoLanes", "Creation", "Split"]
