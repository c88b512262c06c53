"""Rates of arrival: what `--rates` asks for, the ladder of `auto`, and the rate to try next."""

from __future__ import annotations

import math
import re

from greenbench.choices import split_items
from greenbench.errors import PlanError

AUTO = "auto"
MAX_RATE = 1e6
# Measurement under load wants 50 to 90 % of the throughput alone; below that a partition that is slower still finds its rate.
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.8, 0.9)
# Two digits are what the search can tell apart, and equal texts are equal points.
DIGITS = 2
CLOSE = 1.1

_RATE = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?")


def parse_rates(value: object, place: str = "--rates") -> tuple[float, ...]:
    """Read rates per second in the order given; `auto` alone gives none, for the ladder to fill in. Raises PlanError."""
    words = split_items(value, place)
    if AUTO in words:
        if len(words) > 1:
            raise PlanError(f"{place}: {AUTO!r} stands alone; give {AUTO} or rates a second such as 5,10,20")
        return ()
    rates: list[float] = []
    for word in words:
        rate = float(word) if _RATE.fullmatch(word) else math.nan
        if not 0 < rate <= MAX_RATE:
            raise PlanError(f"{place}: {word!r} is no rate; give arrivals a second above 0 up to {MAX_RATE:.0f}, or {AUTO}")
        if rate in rates:
            raise PlanError(f"{place}: {word!r} is given twice; give each rate once")
        rates.append(rate)
    return tuple(rates)


def rounded(rate: float) -> float:
    """Return a rate to two digits, so that two runs on one machine arrive at the same ones."""
    return float(f"{rate:.{DIGITS}g}")


def ladder(alone_per_s: float) -> tuple[float, ...]:
    """Return the absolute rates of `auto`, rising, from the throughput of the role alone on the whole device.

    Every mechanism and every size gets the same ones. Raises ValueError for a throughput that is not above 0.
    """
    if not 0 < alone_per_s < math.inf:
        raise ValueError(f"a ladder of rates was asked for from a throughput of {alone_per_s} a second")
    return tuple(dict.fromkeys(rounded(alone_per_s * share) for share in SHARES))


def next_rate(held: float | None, broken: float | None) -> float | None:
    """Return a rate between the highest that holds and the lowest that does not, or None where they are close enough.

    The two are within 10 % of each other, or nothing lies between them at two digits. None too where one of them is missing:
    nothing is then between them.
    """
    if held is None or broken is None or broken <= held * CLOSE:
        return None
    middle = rounded(math.sqrt(held * broken))
    return middle if held < middle < broken else None
