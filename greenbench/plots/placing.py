"""Where labels go between points and lines: beside what they name, over nothing else, found greedily and always the same way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes

from greenbench.plots import style

DISTANCES = (6.0, 11.0, 18.0, 27.0, 40.0, 58.0, 80.0)
ANGLES = tuple(i * math.pi / 8 for i in range(16))
# A label over another one is unreadable; one over a marker or a line, or a leader across a label, is only ugly.
ON_LABEL, ON_MARKER, ON_LINE, ACROSS, PER_POINT = 1000.0, 60.0, 9.0, 40.0, 1.0
SAMPLE = 7.0
# Between two texts on one line.
MARGIN = 5.0

Box = tuple[float, float, float, float]
Place = tuple[float, float]


@dataclass(slots=True)
class Placer:
    """The labels of one pair of axes; all measures are points from its lower left corner."""

    axes: Axes
    width: float
    height: float
    _labels: list[Box] = field(default_factory=list)
    _markers: list[Box] = field(default_factory=list)
    _lines: list[Box] = field(default_factory=list)

    @classmethod
    def of(cls, axes: Axes, frame: style.Frame) -> Placer:
        """Return an empty one; the limits of the axes are settled."""
        place = axes.get_position()
        return cls(axes, place.width * frame.width * 72, place.height * frame.height * 72)

    def at(self, x: float, y: float) -> Place:
        """Return where data lies."""
        across, up = (self.axes.transScale + self.axes.transLimits).transform((x, y))
        return float(across) * self.width, float(up) * self.height

    def avoid(self, points: Sequence[Place]) -> None:
        """Keep labels off these data points."""
        self._markers += [_around(*self.at(x, y), 4.0) for x, y in points]

    def cross(self, points: Sequence[Place]) -> None:
        """Keep labels off the line through these data points, as far as there is room elsewhere."""
        places = [self.at(x, y) for x, y in points]
        for (x, y), (to_x, to_y) in itertools.pairwise(places):
            steps = max(1, int(math.hypot(to_x - x, to_y - y) / SAMPLE))
            self._lines += [_around(x + (to_x - x) * i / steps, y + (to_y - y) * i / steps, 2.0) for i in range(steps)]

    def write(self, anchors: Sequence[Place], text: str, color: str, *, size: float = 8.5, bold: bool = False) -> None:
        """Write plain text beside one of the data points, whichever leaves it the most room; a line leads to it from afar."""
        wide = style.text_inches(text, size, "bold" if bold else "normal") * 72 + MARGIN
        tries = [
            (self._cost(at, box := self._box(at, distance, angle, wide, 1.15 * size)) + PER_POINT * distance, box, at)
            for at in (self.at(x, y) for x, y in anchors)
            for distance in DISTANCES
            for angle in ANGLES
        ]
        _, box, at = min(tries, key=lambda each: each[0])
        self._labels.append(box)
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        near = _nearest(at, box)
        if math.dist(near, at) > DISTANCES[1]:
            self.axes.plot(
                [at[0] / self.width, near[0] / self.width],
                [at[1] / self.height, near[1] / self.height],
                transform=self.axes.transAxes,
                color=color,
                linewidth=0.6,
                alpha=0.6,
                zorder=2,
                gid="leader",
            )
        self.axes.text(
            x / self.width,
            y / self.height,
            text,
            transform=self.axes.transAxes,
            color=color,
            fontsize=size,
            fontweight="bold" if bold else "normal",
            ha="center",
            va="center",
            zorder=6,
        )

    def _box(self, at: Place, distance: float, angle: float, wide: float, high: float) -> Box:
        """Return the box whose nearest edge is so far from a place in this direction."""
        x = at[0] + math.cos(angle) * (distance + wide / 2)
        y = at[1] + math.sin(angle) * (distance + high / 2)
        return x - wide / 2, y - high / 2, x + wide / 2, y + high / 2

    def _cost(self, at: Place, box: Box) -> float:
        out = max(0.0, -box[0]) + max(0.0, box[2] - self.width) + max(0.0, -box[1]) + max(0.0, box[3] - self.height)
        return (
            ON_LABEL * (out > 0)
            + 10 * out
            + ON_LABEL * _hits(box, self._labels)
            + ON_MARKER * _hits(box, self._markers)
            + ON_LINE * _hits(box, self._lines)
            + ACROSS * sum(_hits(_around(x, y, 0.5), self._labels) for x, y in _between(at, _nearest(at, box)))
        )


def _nearest(at: Place, box: Box) -> Place:
    """Return the place in a box that is nearest to another one: where a leader ends."""
    return min(max(at[0], box[0]), box[2]), min(max(at[1], box[1]), box[3])


def _between(start: Place, end: Place) -> list[Place]:
    """Return places along a line, a few points apart, without its ends; none where it is too short to be drawn."""
    length = math.dist(start, end)
    shares = [i * SAMPLE / length for i in range(1, int(length / SAMPLE))] if length > DISTANCES[1] else []
    return [(start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share) for share in shares]


def _around(x: float, y: float, room: float) -> Box:
    return x - room, y - room, x + room, y + room


def _hits(box: Box, others: Iterable[Box]) -> int:
    """Return how many boxes this one meets."""
    return sum(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in others)
