"""A run read back: which rows count where files disagree, and what is refused because nothing could be drawn of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from greenbench.catalog import library
from greenbench.cli.main import cli
from greenbench.errors import ExitCode, ResultFileError, UsageError
from greenbench.experiments.sweep import SweepRequest, run_sweep
from greenbench.journal import Journal
from greenbench.plan import load_plan
from greenbench.results import read_run
from greenbench.runfiles import read_rows, write_rows
from greenbench.schema import Row
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


def emptied(run: Path) -> None:
    """Leave nothing of the journal but the file."""
    (run / "blocks.csv").write_bytes(b"")


def beheaded(run: Path) -> None:
    """Leave the names of the columns."""
    lines = (run / "blocks.csv").read_bytes().splitlines(keepends=True)
    (run / "blocks.csv").write_bytes(lines[0])


def halved(run: Path) -> None:
    """Leave the first two lines below the head."""
    lines = (run / "blocks.csv").read_bytes().splitlines(keepends=True)
    (run / "blocks.csv").write_bytes(b"".join(lines[:3]))


@pytest.mark.parametrize("edit", [emptied, beheaded, halved])
def test_rows_whose_journal_was_lost_are_kept(edit: Callable[[Path], None], run: Path) -> None:
    """A journal with less in it than rows.csv is no newer one: the rows stay, and it is said."""
    edit(run)
    found = read_run(run)
    assert list(found.rows) == read_rows(run)
    assert "rows.csv holds 3 ok points from 6 blocks, and blocks.csv lacks " in found.note
    assert found.note.endswith("; rows.csv is taken as it is")


@pytest.mark.parametrize("edit", [lambda run: (run / "blocks.csv").unlink(), emptied, beheaded, halved])
def test_a_run_whose_journal_was_lost_is_not_continued(edit: Callable[[Path], None], run: Path) -> None:
    """--resume would measure all anew and write over rows.csv: exit 2 with what is there and the way out, nothing touched."""
    edit(run)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    plan = load_plan("quick", {"kernels": "copy", "sms": "8,16,full", "rounds": 2, "set": ["n=1048576"]}, library())
    with pytest.raises(ResultFileError) as caught:
        run_sweep(SweepRequest(plan=plan, device="model:h200", resume=run), Notes())
    said = str(caught.value)
    assert said.startswith(f"{run} cannot be continued: rows.csv holds 3 ok points from 6 blocks, and blocks.csv lacks ")
    assert said.endswith("; start a new run with another --out")
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_killed_run_without_a_measurement_is_begun_anew(run: Path) -> None:
    """The head of a journal and a log: --out measures there; a journal that another greenbench holds is left alone."""
    for path in run.iterdir():
        if path.name != "blocks.csv":
            path.unlink()
    beheaded(run)
    plan = load_plan("quick", {"kernels": "copy", "sms": "8", "rounds": 1, "set": ["n=1048576"]}, library())
    request = SweepRequest(plan=plan, device="model:h200", out=run)
    with Journal(run / "blocks.csv"), pytest.raises(UsageError, match="is being written by another greenbench"):
        run_sweep(request, Notes())
    assert [path.name for path in run.iterdir()] == ["blocks.csv"]
    assert [row.status for row in run_sweep(request, Notes()).rows] == ["ok"]


def test_plot_without_an_ok_row_says_so(run: Path, tmp_path: Path) -> None:
    """Nothing to draw is a sentence with the count of each status and exit 5; what else is on the line is drawn."""
    good = Path(shutil.copytree(run, tmp_path / "good"))
    (run / "blocks.csv").unlink()
    first, second, third = (Row(run_id="run", label=row.label, kernel="copy") for row in read_rows(run))
    bad = [replace(first, status="failed"), replace(second, status="unsupported"), replace(third, status="failed")]
    write_rows(run / "rows.csv", bad)
    result = CliRunner().invoke(cli, ["plot", str(run), str(good)])
    assert result.exit_code == ExitCode.INCOMPLETE
    said = f"there is nothing to draw in {run}: of 3 rows 2 failed, 1 unsupported"
    assert said in result.stderr
    assert all(line.startswith(str(good)) for line in result.stdout.splitlines())
    assert result.stdout


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
