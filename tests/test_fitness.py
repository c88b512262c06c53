"""What speaks against measuring on a machine, told from what does not: read off NVML's words alone."""

from __future__ import annotations

import pytest

from greenbench.experiments.fitness import doubts, throttling
from greenbench.schema import Evidence


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (None, ""),
        (0x0, ""),
        (0x1, ""),
        (0x4, ""),
        (0x1 | 0x4 | 0x2 | 0x100, ""),
        (0x8, "hw_slowdown"),
        (0x20 | 0x1, "sw_thermal"),
        (0x40 | 0x4, "hw_thermal"),
        (0x80, "power_brake"),
        (0x8 | 0x40, "hw_slowdown, hw_thermal"),
    ],
)
def test_thermal_and_hardware_reasons_speak_against_a_machine(reasons: int | None, said: str) -> None:
    """Idle clocks, the power limit and clocks that somebody set do not; what NVML does not report is no reason."""
    reading = Evidence(reasons=reasons)
    assert throttling(reading, reading) == said
    assert [doubt.text.partition(" (")[2].rstrip(")") for doubt in doubts(reading, 1)] == ([said] if said else [])


def test_a_counter_that_ran_between_two_readings_is_throttling_too() -> None:
    """The clock was held down in between, although neither reading fell into it."""
    before = Evidence(reasons=0, thermal_ns=5, hw_slowdown_ns=7)
    assert throttling(before, Evidence(reasons=0, thermal_ns=5, hw_slowdown_ns=7)) == ""
    assert throttling(before, Evidence(reasons=0, thermal_ns=6, hw_slowdown_ns=7)) == "thermal"
    assert throttling(before, Evidence(reasons=0, thermal_ns=5, hw_slowdown_ns=8)) == "hw_slowdown"


def test_every_doubt_is_told() -> None:
    """Strangers and heat together are two; greenbench's own workers are no strangers, and no NVML means no doubt."""
    reading = Evidence(reasons=0x40, processes=(1, 2, 3))
    assert len(doubts(reading, 1)) == 2
    assert "(2 beside greenbench)" in doubts(reading, 1)[0].note
    assert len(doubts(reading, 3)) == 1
    assert doubts(None, 1) == []
