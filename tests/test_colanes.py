"""Lanes that run at the same time, against fakes of the driver: what is opened, what is shared, what is refused."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from greenbench.errors import FailedError, UnsupportedError
from greenbench.schema import Scope, SmsMode

pytest.importorskip("cuda.core")

from greenbench.gpu import driver as door
from greenbench.gpu.colanes import CoLanes, Split
from greenbench.gpu.cuda import CudaGpu
from greenbench.gpu.partition import Splitter
from tests.fake_driver import FakeContext, FakeDriver, install

TORCH_HANDLE = 4711


class Home:
    """What a lane needs of a device, over the fake driver; `extra` SMs are seen by every green lane beside its own."""

    def __init__(self, patch: pytest.MonkeyPatch, extra: tuple[int, ...] = (), **rules: Any) -> None:
        self.driver = FakeDriver(**rules)
        self.core_device = install(patch, self.driver)
        self.core = door.cuda_core()
        self.extra, self.contexts = extra, {0: tuple(range(self.driver.sms))}
        self.torch_ids: tuple[int, ...] = ()
        make = self.core_device.create_context

        def remembered(options: Any) -> FakeContext:
            context: FakeContext = make(options)
            self.contexts[context.number] = context.ids
            return context

        patch.setattr(self.core_device, "create_context", remembered)
        raw = door.bindings()
        patch.setattr(raw, "cuCtxGetStreamPriorityRange", lambda: (SimpleNamespace(value=0, __int__=int), 0, -5), raising=False)
        patch.setattr(door, "checked", lambda answer, what="": answer[1] if len(answer) == 2 else tuple(answer[1:]))
        self.probes = SimpleNamespace(census=self.census)
        self.splitter = Splitter(self.core_device)
        self.lanes = CoLanes(self, self.splitter)  # type: ignore[arg-type]
        self.driver.log.clear()

    description = staticmethod(CudaGpu.description)

    def census(self, stream: Any) -> tuple[int, ...]:
        """Return the SMs of the stream's context."""
        if getattr(stream, "handle", None) == TORCH_HANDLE:
            return self.torch_ids
        own = self.contexts[stream._context]
        return tuple(sorted({*own, *(self.extra if stream._context else ())}))

    def run_nothing(self, stream: Any) -> None:
        """Launch nothing."""
        self.driver.log.append("first launch")


def test_one_split_serves_every_role_and_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots of one split are opened once, are disjoint, and 20 asked are 20 got; another role gets a stream of its own."""
    home = Home(monkeypatch)
    split = Split((20, 112))
    latency, cost = home.lanes.lane("latency", split, 0)
    background, _ = home.lanes.lane("background", split, 1)
    again, _ = home.lanes.lane("latency", split, 0)
    urgent, _ = home.lanes.lane("latency", split, 0, urgent=True)
    assert (latency.sms, background.sms) == (20, 112)
    assert not set(latency.grant.smids) & set(background.grant.smids)
    assert again is latency
    assert urgent is not latency
    assert latency.grant.remainder
    assert cost.create_us is not None
    assert cost.destroy_us is not None
    assert cost.first_launch_us is not None
    # Each slot is made once to learn what destroying costs, and once to stay.
    assert len(home.driver.told("make context")) == 4
    assert len(home.driver.told("close context")) == 2


def test_without_a_partition_a_role_has_the_whole_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slot None is a stream of the primary context, and costs nothing that was measured."""
    home = Home(monkeypatch)
    lane, cost = home.lanes.lane("latency", Split((20, 112)), None)
    assert lane.partition.mode is SmsMode.PRIMARY
    assert lane.sms == 132
    assert cost.create_us is None
    assert not home.driver.told("make context")


def test_sizes_that_one_split_does_not_give_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """More SMs than there are is an outcome of the point, and nothing is left open."""
    home = Home(monkeypatch)
    with pytest.raises(UnsupportedError, match="more than the 132"):
        home.lanes.lane("latency", Split((130, 130)), 0)
    assert not home.driver.told("make context")


def test_a_lane_that_runs_elsewhere_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A census that sees one SM more than was granted fails the point."""
    home = Home(monkeypatch, extra=(131,))
    with pytest.raises(FailedError, match="leaked: 8 SMs granted, the census saw 9"):
        home.lanes.lane("latency", Split((8, 112)), 0)


def test_scopes_of_workqueues_reach_the_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """From driver 13.1 on both slots of a balanced split carry the scope and the limit; before, the reason is given."""
    split = Split((16, 116), Scope.GREEN_CTX_BALANCED, 4)
    lane, _ = Home(monkeypatch, version=(13, 1)).lanes.lane("latency", split, 0)
    assert (lane.grant.workqueue, lane.grant.concurrency_limit) == ("green_ctx_balanced", 4)
    with pytest.raises(UnsupportedError, match=r"needs driver 13\.1"):
        Home(monkeypatch, version=(13, 0)).lanes.lane("latency", split, 0)


def fake_torch(patch: pytest.MonkeyPatch, made: list[int]) -> None:
    """Put a torch with green contexts where it is imported from."""

    class GreenContext:
        @staticmethod
        def create(num_sms: int, device_id: int) -> Any:
            made.append(num_sms)
            return SimpleNamespace(Stream=lambda: SimpleNamespace(cuda_stream=TORCH_HANDLE))

    torch, cuda, green = ModuleType("torch"), ModuleType("torch.cuda"), ModuleType("torch.cuda.green_contexts")
    cuda.is_available = lambda: True  # type: ignore[attr-defined]
    cuda.set_device = lambda device: None  # type: ignore[attr-defined]
    torch.cuda, torch.__version__ = cuda, "2.11.0"  # type: ignore[attr-defined]
    green.GreenContext = GreenContext  # type: ignore[attr-defined]
    for name, module in (("torch", torch), ("torch.cuda", cuda), ("torch.cuda.green_contexts", green)):
        patch.setitem(sys.modules, name, module)


def test_torch_makes_the_first_slot_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its census must be as large as was asked for, and disjoint from our second slot."""
    home, made = Home(monkeypatch), []
    fake_torch(monkeypatch, made)
    split = Split((16, 116))
    ours, _ = home.lanes.lane("latency", split, 0)
    home.torch_ids = ours.grant.smids
    theirs, cost = home.lanes.lane("latency", split, 0, by_torch=True)
    assert made == [16]
    assert theirs.grant.split_method == "torch"
    assert theirs.grant.smids == ours.grant.smids
    assert cost.create_us is None
    background, _ = home.lanes.lane("background", split, 1, by_torch=True)
    assert background.grant.split_method == "units"


@pytest.mark.parametrize(("size", "match"), [(24, "the census saw 24"), (16, "share 16 SMs")])
def test_a_context_of_torch_is_proved_like_ours(size: int, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was rounded up, or that lies on the background's SMs, fails the point."""
    home = Home(monkeypatch)
    fake_torch(monkeypatch, [])
    split = Split((16, 116))
    background, _ = home.lanes.lane("background", split, 1)
    home.torch_ids = background.grant.smids[:size]
    with pytest.raises(FailedError, match=match):
        home.lanes.lane("latency", split, 0, by_torch=True)


def test_without_torch_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without torch has an unsupported point, not a failed one."""
    home = Home(monkeypatch)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match="torch_green needs torch"):
        home.lanes.lane("latency", Split((16, 116)), 0, by_torch=True)


def test_closing_ends_lanes_before_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams go before the contexts that they belong to."""
    home = Home(monkeypatch)
    home.lanes.lane("latency", Split((20, 112)), 0)
    home.driver.log.clear()
    home.lanes.close()
    closed = [entry for entry in home.driver.log if entry.startswith("close")]
    contexts = [place for place, entry in enumerate(closed) if entry.startswith("close context")]
    assert contexts
    for place in contexts:
        number = closed[place].split()[-1]
        assert all(entry != f"close stream of {number}" for entry in closed[place + 1 :])
