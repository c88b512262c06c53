"""How each mechanism of a co-location looks, the same in every figure and run: its colour, ink, marker and dashes."""

from __future__ import annotations

from dataclasses import dataclass

from greenbench.plots import style
from greenbench.queueing.model import Mechanism


@dataclass(frozen=True, slots=True)
class Look:
    """`ink` is the colour dark enough for text on white."""

    color: str
    ink: str
    marker: str
    dashes: tuple[float, ...] = ()


# Relatives have neighbouring hues: what shares a queue is red, what is partitioned is teal to blue, processes are violet.
LOOKS = {
    Mechanism.ALONE: Look(style.MUTED, style.MUTED, "_", (1.2, 1.6)),
    Mechanism.SERIAL: Look("#7D6B5A", "#6B5B4B", "p"),
    Mechanism.CHUNKED: Look("#C99A1B", "#8A6A00", "h"),
    Mechanism.STREAMS: Look("#9A2B4B", "#9A2B4B", "s"),
    Mechanism.PRIORITY: Look("#E07A93", "#B83B5E", "D"),
    Mechanism.GREEN: Look("#0F7B7B", "#0F6B6B", "o"),
    Mechanism.GREEN_BACKGROUND: Look("#2F7FC1", "#1F6BAA", "P", (7, 1.6)),
    Mechanism.GREEN_PRIMARY: Look("#7F8FE0", "#4A58B5", "X", (7, 1.5, 1.5, 1.5)),
    Mechanism.GREEN_PRIORITY: Look("#5BB5A2", "#2A7A6B", "^", (4, 1.6)),
    Mechanism.GREEN_BALANCED: Look("#8DB24A", "#587A1C", "v", (9, 2)),
    Mechanism.TORCH_GREEN: Look("#C2553A", "#A2412A", "*", (5, 1.5, 1.5, 1.5)),
    Mechanism.TIMESLICE: Look("#D2701F", "#B45309", "<"),
    Mechanism.MPS: Look("#6B3FA0", "#6B3FA0", ">"),
    Mechanism.MPS_LIMITED: Look("#B08AD6", "#7F52B0", "d", (2.4, 1.4)),
}
# A mechanism of a later version than this one.
OTHER = Look(style.INK, style.INK, "*")


def look_of(mechanism: str) -> Look:
    """Return the look of a mechanism by its name."""
    return LOOKS.get(Mechanism(mechanism), OTHER) if mechanism in set(Mechanism) else OTHER
