"""The strip of a timeline: what is drawn has the area of what ran."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from greenbench.plots import strip, style
from greenbench.timeline.analysis import Analysis, analyse
from greenbench.timeline.reading import read_capture
from tests.nsys_export import Export

REAL = Path(__file__).parent / "data" / "timeline" / "nsys_h200_two_green_contexts.sqlite"


def areas(figure: Figure) -> dict[str, float]:
    """The drawn time of each lane in ns: its area over the height of a full lane."""
    found = {}
    for drawn in figure.axes[0].collections:
        assert isinstance(drawn, PolyCollection)
        x, y = np.concatenate([path.vertices for path in drawn.get_paths()]).T
        found[str(drawn.get_gid())] = abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2 / 0.8 * 1e6
    return found


def drawn(analysis: Analysis) -> Figure:
    """The figure of an analysis."""
    with style.context():
        return strip.draw(analysis)


def test_lanes_have_the_area_of_busy_time() -> None:
    """Busy time of both contexts and the time of both at once, as the exact figures have them."""
    found = areas(drawn(analyse(read_capture(REAL))))
    assert found == pytest.approx({"lane 0": 1_732_086, "lane 1": 2_431_634, "together": 1_107_577}, rel=1e-3)


def test_ranges_stand_over_their_work() -> None:
    """A bar per range, as long as its projection, with its name; SMs, counts and the verdict are written."""
    figure = drawn(analyse(read_capture(REAL)))
    bars = [patch for patch in figure.axes[0].patches if patch.get_gid() == "range"]
    assert [round(bar.get_width() * 1e6) for bar in bars] == [2_450_289, 639_260]  # type: ignore[attr-defined]
    words = {text.get_text() for text in (*figure.axes[0].texts, *figure.texts)}
    assert {"sweep/decode16 alone", "56 kernels", "53.3 % busy", "34.1 % of the span"} <= words
    assert any("0 stray kernels" in text for text in words)


def test_many_contexts_and_several_devices_are_bounded(tmp_path: Path) -> None:
    """Only the busiest contexts get a lane, which is said; lanes of several devices are not called at once."""
    export = Export()
    for index in range(30):
        export.kernel(10_000, 20_000 + 100 * index, green=index, deviceId=index % 2)
    figure = drawn(analyse(read_capture(export.write(tmp_path / "x.sqlite"))))
    assert len(areas(figure)) == strip.MOST_LANES
    assert any("18 more contexts not drawn" in text.get_text() for text in figure.texts)


def test_one_instant_can_be_drawn(tmp_path: Path) -> None:
    """A single kernel of no length has no span to divide by."""
    export = Export()
    export.kernel(10_000, 10_000)
    paths = strip.save_strip(analyse(read_capture(export.write(tmp_path / "x.sqlite"))), tmp_path, "x")
    assert [path.name for path in paths] == ["x_timeline.png", "x_timeline.svg"]
