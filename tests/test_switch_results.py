"""The folder of a `switch` read back: its rows from the journal where rows.csv is gone or older, and its figure drawn anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from greenbench.catalog import library
from greenbench.cli.main import cli
from greenbench.cojournal import read_cojournal
from greenbench.colocation.results import read_corun
from greenbench.experiments import cocrew
from greenbench.experiments.switch import SwitchRequest, run_switch
from greenbench.runfiles import read_corows, write_corows
from greenbench.switching.plan import load_switch
from tests.staging import Notes, WorkerHere


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of timeslice with 2 processes, which tests copy."""
    given = {"processes": "2", "mechanisms": "timeslice", "working_set": "0", "seconds": "0.05"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cocrew, "Worker", WorkerHere)
        out = tmp_path_factory.mktemp("done") / "run"
        return run_switch(
            SwitchRequest(plan=load_switch("switch", given, library()), device="model:h200", out=out), Notes()
        ).folder


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(done, tmp_path / "run"))


def plot(folder: Path) -> Result:
    """Draw a run."""
    return CliRunner().invoke(cli, ["plot", str(folder)])


def test_a_run_without_rows_is_drawn(run: Path) -> None:
    """As a run leaves it that was killed before rows.csv: the rows are those that it would have written, and a note says so."""
    kept = read_corows(run)
    (run / "rows.csv").unlink()
    read = read_corun(run)
    write_corows(run / "again.csv", read.rows)
    assert read_corows(run / "again.csv") == kept
    assert list(read.visits) == read_cojournal(run / "blocks.csv")
    result = plot(run)
    assert (result.exit_code, [Path(line).name for line in result.stdout.splitlines()]) == (0, ["switching.png", "switching.svg"])
    assert f"note: {run} has no rows.csv, its run was cut off; the rows are derived from blocks.csv" in result.stderr


def test_rows_older_than_the_journal_are_derived(run: Path) -> None:
    """As a run leaves it that was killed while it was resumed; what agrees is taken as it stands."""
    kept = read_corows(run)
    assert read_corun(run).note == ""
    write_corows(run / "rows.csv", kept[:1])
    read = read_corun(run)
    assert [row.label for row in read.rows] == [row.label for row in kept]
    assert "is older than blocks.csv (1 of 2 rows differ)" in read.note


def test_a_lost_journal_leaves_the_rows(run: Path) -> None:
    """Without a journal, or with one that cannot be read, rows.csv stands."""
    kept = read_corows(run)
    (run / "blocks.csv").write_text("nothing of ours\n")
    read = read_corun(run)
    assert list(read.rows) == kept
    assert read.note.endswith("; rows.csv is taken as it is")
    (run / "blocks.csv").unlink()
    assert list(read_corun(run).rows) == kept


def test_a_plan_that_is_none_is_named(run: Path) -> None:
    """A run.json whose plan was edited is exit 2 with the key, for drawing and for going on."""
    table = json.loads((run / "run.json").read_text(encoding="utf-8"))
    table["plan"]["processes"] = []
    (run / "run.json").write_text(json.dumps(table), encoding="utf-8")
    for result in (plot(run), CliRunner().invoke(cli, ["switch", "--resume", str(run)])):
        assert (result.exit_code, result.stdout) == (2, "")
        assert "the plan in its run.json is not one of this greenbench: plan: processes" in result.stderr
