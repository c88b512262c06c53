"""A run read back: which rows count where files disagree, and what is refused because nothing could be drawn of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from greenbench.catalog import library
from greenbench.errors import ResultFileError
from greenbench.experiments.sweep import SweepRequest, run_sweep
from greenbench.plan import load_plan
from greenbench.results import read_run
from greenbench.runfiles import read_rows, write_rows
from tests.staging import Notes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run."""
    folder = tmp_path_factory.mktemp("results") / "run"
    plan = load_plan("quick", {"kernels": "copy", "sms": "8,16,full", "rounds": 2, "set": ["n=1048576"]}, library())
    run_sweep(SweepRequest(plan=plan, device="model:h200", out=folder), Notes())
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def column(name: str, value: str) -> Callable[[Path], None]:
    """Return an edit of one cell of the first row."""

    def edit(run: Path) -> None:
        lines = (run / "rows.csv").read_bytes().splitlines(keepends=True)
        cells = lines[1].split(b",")
        # No cell before these holds a comma.
        cells[lines[0].split(b",").index(name.encode())] = value.encode()
        (run / "rows.csv").write_bytes(b"".join([lines[0], b",".join(cells), *lines[2:]]))

    return edit


def sm_count(value: int) -> Callable[[Path], None]:
    """Return an edit of the device."""

    def edit(run: Path) -> None:
        tree = json.loads((run / "run.json").read_text())
        tree["device"]["sm_count"] = value
        (run / "run.json").write_text(json.dumps(tree))

    return edit


def test_rows_are_those_of_the_file(run: Path) -> None:
    """A whole run: rows.csv to the digit, and nothing to say."""
    found = read_run(run)
    assert list(found.rows) == read_rows(run)
    assert found.note == ""


def test_rows_without_a_journal_are_taken_as_they_are(run: Path) -> None:
    """A baseline may be kept without its journal."""
    (run / "blocks.csv").unlink()
    assert len(read_run(run).rows) == 3


def test_rows_that_somebody_took_out_stay_out(run: Path) -> None:
    """A table cut down by hand is no older table: what is left agrees with the journal."""
    write_rows(run / "rows.csv", read_rows(run)[:2])
    found = read_run(run)
    assert (len(found.rows), found.note) == (2, "")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (column("sms_granted", "0"), "row 1, column sms_granted: 0 is not from 1 to the 132 SMs"),
        (column("sms_granted", "999999999"), "row 1, column sms_granted: 999999999 is not from 1"),
        (column("sms_requested", "-8"), "row 1, column sms_requested: -8 is not from 1"),
        (column("sms_requested", "999999999"), "row 1, column sms_requested: 999999999 is not from 1"),
        (sm_count(0), "run.json: device.sm_count: 0 is no number of SMs"),
        (sm_count(10**9), "run.json: device.sm_count: 1000000000 is no number of SMs"),
        (sm_count(12), "column sms_requested: 16 is not from 1 to the 12 SMs"),
    ],
)
def test_sizes_that_no_device_has_are_refused(edit: Callable[[Path], None], said: str, run: Path) -> None:
    """A figure over a thousand million SMs would be drawn for hours, one over none would divide by it."""
    edit(run)
    with pytest.raises(ResultFileError) as caught:
        read_run(run)
    assert said in str(caught.value)
