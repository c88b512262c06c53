"""The validity table: which evidence discards a block, which only marks it, and what silence means."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from greenbench.measure.validity import foreign, judge
from greenbench.schema import BlockStatus, Evidence, Flag

QUIET = Evidence(
    sm_clock_mhz=1980.0,
    reasons=0,
    power_cap_ns=1_000,
    thermal_ns=2_000,
    board_limit_ns=3_000,
    hw_slowdown_ns=4_000,
    processes=(os.getpid(),),
)
WINDOW_S = 0.1


def test_a_quiet_block_counts() -> None:
    """Counters that stand still, whatever they show, and no bits: ok, with no flag and no word."""
    found = judge(QUIET, QUIET, WINDOW_S)
    assert (found.status, found.reason, found.flags, found.throttle) == (BlockStatus.OK, "", (), "")


def test_a_device_that_reports_nothing_is_not_throttled() -> None:
    """Missing is not zero and not a fault: an empty reading neither discards nor marks."""
    found = judge(Evidence(), Evidence(), WINDOW_S)
    assert (found.status, found.flags, found.throttle) == (BlockStatus.OK, (), "")


@pytest.mark.parametrize("counter", ["thermal_ns", "hw_slowdown_ns"])
def test_lost_time_discards(counter: str) -> None:
    """A single nanosecond of thermal or hardware slowdown within the block discards it, and is named."""
    after = replace(QUIET, **{counter: getattr(QUIET, counter) + 1})
    found = judge(QUIET, after, WINDOW_S)
    assert found.status is BlockStatus.DISCARDED
    assert found.reason == f"throttled: {counter.removesuffix('_ns')}"
    assert found.throttle == counter.removesuffix("_ns")


@pytest.mark.parametrize("counter", ["thermal_ns", "hw_slowdown_ns", "power_cap_ns"])
@pytest.mark.parametrize("which", ["before", "after"])
def test_a_counter_known_on_one_side_only_says_nothing(counter: str, which: str) -> None:
    """A field that NVML answered once and not again is no difference."""
    unknown: dict[str, Any] = {counter: None}
    grown: dict[str, Any] = {counter: 10**12}
    blind, high = replace(QUIET, **unknown), replace(QUIET, **grown)
    found = judge(blind, high, WINDOW_S) if which == "before" else judge(high, blind, WINDOW_S)
    assert (found.status, found.flags) == (BlockStatus.OK, ())


def test_a_counter_that_was_reset_says_nothing() -> None:
    """A counter that runs backwards (driver reload) is no throttling."""
    assert judge(replace(QUIET, thermal_ns=10), replace(QUIET, thermal_ns=0), WINDOW_S).status is BlockStatus.OK


@pytest.mark.parametrize(
    ("bit", "word"), [(0x8, "hw_slowdown"), (0x20, "sw_thermal"), (0x40, "hw_thermal"), (0x80, "power_brake")]
)
@pytest.mark.parametrize("which", ["before", "after"])
def test_hard_reasons_discard(bit: int, word: str, which: str) -> None:
    """Each hard reason, seen at either end of the block, discards it under its own name."""
    seen = replace(QUIET, reasons=bit)
    found = judge(seen, QUIET, WINDOW_S) if which == "before" else judge(QUIET, seen, WINDOW_S)
    assert (found.status, found.reason, found.throttle) == (BlockStatus.DISCARDED, f"throttled: {word}", word)


def test_reasons_are_told_once_and_together() -> None:
    """Bit and counter of the same cause are one word; different causes are all named, in the reason and in the column."""
    before = replace(QUIET, reasons=0x8 | 0x4)
    after = replace(QUIET, reasons=0x40, hw_slowdown_ns=5_000)
    found = judge(before, after, WINDOW_S)
    assert found.reason == "throttled: hw_slowdown, hw_thermal"
    assert found.throttle == "hw_slowdown;hw_thermal;power_cap"
    assert found.flags == (Flag.POWER_CAPPED,)


@pytest.mark.parametrize(("share", "capped"), [(0.009, False), (0.011, True)])
def test_power_cap_is_kept_and_flagged_above_one_per_cent(share: float, capped: bool) -> None:
    """Normal for a full-device GEMM: the block counts, and carries the flag if the cap took more than 1 % of its time."""
    after = replace(QUIET, power_cap_ns=1_000 + int(share * WINDOW_S * 1e9))
    found = judge(QUIET, after, WINDOW_S)
    assert found.status is BlockStatus.OK
    assert (Flag.POWER_CAPPED in found.flags) is capped
    assert found.throttle == ("power_cap" if capped else "")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_power_cap_bit_flags(which: str) -> None:
    """The reason bit alone is enough, without the counter."""
    seen = replace(QUIET, reasons=0x4, power_cap_ns=None)
    found = judge(seen, QUIET, WINDOW_S) if which == "before" else judge(QUIET, seen, WINDOW_S)
    assert (found.status, found.flags) == (BlockStatus.OK, (Flag.POWER_CAPPED,))


def test_idle_clocks_discard_when_they_lasted() -> None:
    """Idle at both ends means the samples ran on idle clocks: taken again. Idle at one end is the edge of the block."""
    idle = replace(QUIET, reasons=0x1)
    found = judge(idle, idle, WINDOW_S)
    assert (found.status, found.reason) == (BlockStatus.DISCARDED, "idle clocks during the block")
    assert judge(idle, QUIET, WINDOW_S).status is BlockStatus.OK
    assert judge(QUIET, idle, WINDOW_S).status is BlockStatus.OK


@pytest.mark.parametrize("bits", [0x2, 0x10, 0x100])
def test_settings_are_no_throttling(bits: int) -> None:
    """Application clocks, sync boost and display clocks are how the machine is set up, not what went wrong."""
    seen = replace(QUIET, reasons=bits)
    assert judge(seen, seen, WINDOW_S).status is BlockStatus.OK


def test_a_foreign_process_flags() -> None:
    """Another process beside ours marks the block as contended and keeps it."""
    found = judge(QUIET, replace(QUIET, processes=(os.getpid(), 4711)), WINDOW_S)
    assert (found.status, found.flags) == (BlockStatus.OK, (Flag.CONTENDED,))


@pytest.mark.parametrize(
    ("processes", "own", "pid", "expected"),
    [
        ((), 1, 10, False),
        ((10,), 1, 10, False),
        ((10, 11), 1, 10, True),
        ((10, 11), 2, 10, False),
        ((10, 11, 12), 2, 10, True),
        # Ids of another namespace: only their number can be compared.
        ((900,), 1, 10, False),
        ((900, 901), 1, 10, True),
        ((900, 901), 2, 10, False),
    ],
)
def test_whose_processes_they_are(processes: tuple[int, ...], own: int, pid: int, expected: bool) -> None:
    """Several workers of ours are not foreign, one process more is, and ids that NVML renumbers are counted, not matched."""
    assert foreign(processes, own, pid=pid) is expected
