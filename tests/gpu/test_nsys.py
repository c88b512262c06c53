"""`greenbench nsys` with the real nsys on a real GPU: a report, its ranges, and every timed kernel in its green context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from greenbench.errors import MachineError
from greenbench.nsight import tool
from greenbench.runfiles import read_corows, read_rows
from greenbench.timeline.analysis import Analysis, analyse
from greenbench.timeline.ranges import RangeFigures
from greenbench.timeline.reading import read_capture
from greenbench.timeline.report import as_json
from tests.conftest import REQUIRE_GPU


@pytest.fixture(scope="module")
def nsys() -> tool.Nsys:
    """The nsys of this machine; without one these tests are skipped, or fail where a GPU run is required."""
    try:
        found = tool.find("")
        tool.refuse_blind(found, tool.nvtx_version())
    except MachineError as error:
        if os.environ.get(REQUIRE_GPU) == "1":
            pytest.fail(f"{REQUIRE_GPU}=1, and {error}", pytrace=False)
        pytest.skip(str(error))
    return found


@dataclass(frozen=True)
class Recorded:
    """What a recording left, and what its timeline says."""

    folder: Path
    shown: Path
    told: dict[str, Any]
    analysis: Analysis

    def range(self, name: str) -> RangeFigures:
        """The only range of greenbench's domain of that name and of a phase that is measured."""
        (found,) = [each for each in self.analysis.ranges if each.name == name and each.domain == "greenbench"]
        return found


def recorded(folder: Path, capture: str, *wrapped: str) -> Recorded:
    """Run `greenbench nsys` as a user would, and read what it wrote."""
    own = ["--capture", capture, "-o", str(folder / "x"), "--scrub", str(folder / "shown.sqlite"), "--json"]
    command = [sys.executable, "-m", "greenbench", "nsys", *own, "--", *wrapped, "--out", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (folder / "x.nsys-rep").stat().st_size
    return Recorded(folder / "run", folder / "shown.sqlite", json.loads(done.stdout), analyse(read_capture(folder / "x.sqlite")))


@pytest.mark.parametrize("capture", ["measuring", "all"])
def test_a_sweep(nsys: tool.Nsys, tmp_path: Path, capture: str) -> None:
    """Each point has its range, all its kernels ran in one green context of its size, and they took what the sweep says."""
    found = recorded(tmp_path, capture, "sweep", "--sms", "8,16", "--rounds", "1", "--kernels", "triad,chase", "--no-yardsticks")
    rows = read_rows(found.folder)
    assert {row.status for row in rows} == {"ok"}
    assert all("profiled" in row.flags.split(";") for row in rows)
    sms = {each.label: each.sms for each in found.analysis.whole.contexts}
    for row in rows:
        figures = found.range(row.label).figures
        green = [each.label for each in figures.contexts if each.label.startswith("green:")]
        assert [sms[label] for label in green] == [row.sms_granted], row.label
        kernel = next(total for name, total in figures.by_kernel.items() if name.startswith(row.kernel))
        assert kernel.count
        if row.kernel == "triad":
            assert row.time_us is not None
            assert kernel.total_ns / kernel.count / 1e3 == pytest.approx(row.time_us, rel=0.02, abs=5)
    assert (found.analysis.strays, found.analysis.unchecked) == (0, "")
    assert found.told["problem"] == ""


def test_the_scrubbed_copy(nsys: tool.Nsys, tmp_path: Path) -> None:
    """The copy of a real report gives the same analysis, and holds no value of this environment, no host and no path of it."""
    found = recorded(tmp_path, "measuring", "sweep", "--sms", "8", "--rounds", "1", "--kernels", "triad", "--no-yardsticks")
    before, after = as_json(found.analysis), as_json(analyse(read_capture(found.shown)))
    of_file = {"file", "row_counts", "notes"}
    assert {name: before[name] for name in before.keys() - of_file} == {name: after[name] for name in after.keys() - of_file}
    held = found.shown.read_bytes()
    telling = [value for value in os.environ.values() if len(value) > 8 and "/" in value]
    assert not [value for value in (*telling, os.uname().nodename, sys.executable, str(tmp_path)) if value.encode() in held]


def test_a_co_location(nsys: tool.Nsys, tmp_path: Path) -> None:
    """Both roles are in green contexts of their own in the range of the mechanism, at once, and no kernel strays."""
    wrapped = ("colocate", "--mechanisms", "green", "--sms", "32", "--steps", "60", "--no-plots")
    found = recorded(tmp_path, "all", *wrapped)
    rows = [row for row in read_corows(found.folder) if row.status == "ok"]
    assert rows
    assert all("profiled" in row.flags.split(";") for row in rows)
    (green,) = [each for each in found.analysis.ranges if each.name.startswith("green@") and each.category == "workload"]
    contexts = [each for each in green.figures.contexts if each.label.startswith("green:")]
    assert len(contexts) == 2
    assert max(pair.overlap_ns for pair in green.figures.pairs) > 0
    assert found.analysis.strays == 0
