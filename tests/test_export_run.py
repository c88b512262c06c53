"""`greenbench colocate --export` from end to end on the modelled device: what is written, and with which code nothing is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from greenbench.cli.main import cli
from greenbench.experiments import cocrew
from greenbench.runfiles import read_corows
from greenbench.schema import Status
from tests.staging import WorkerHere

SMALL = ("--device", "model:h200", "--layers", "1", "--steps", "40", "--no-plots", "-q")
SGLANG = ("--export", "sglang")


@pytest.fixture(autouse=True)
def workers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that need no process."""
    monkeypatch.setattr(cocrew, "Worker", WorkerHere)


def colocate(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, ["colocate", *map(str, arguments)])


def test_both_exports_of_one_run(tmp_path: Path) -> None:
    """The YAML gives decode the 20 SMs that hold; resumed, the same run is written as JSON with the same advice and all rows."""
    run = tmp_path / "run"
    asked = ("--sms", "20", "--mechanisms", "green", "--rates", "5", "--slo", "step_p50=5ms,ttft_p50=50ms")
    result = colocate(*SMALL, *asked, *SGLANG, "--out", run)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [str(run), str(run / "rows.csv"), str(run / "pdmux.yaml")]
    written = (run / "pdmux.yaml").read_text(encoding="utf-8").splitlines()
    assert [line for line in written if not line.startswith("#")] == ["sm_group_num: 3", "manual_divisions:", "  - [112, 20, 1]"]
    assert any(line.startswith("# MODELLED, not measured: ") for line in written)
    target = tmp_path / "mine.json"
    result = colocate("--resume", run, "--export", "json", "--export-to", target, "--no-plots", "-q")
    assert (result.exit_code, result.stdout.splitlines()[2:]) == (0, [str(target)])
    told = json.loads(target.read_text(encoding="utf-8"))
    advice = {key: told["advice"][key] for key in ("holds", "rate_per_s", "mechanism", "sms")}
    assert advice == {"holds": True, "rate_per_s": 5.0, "mechanism": "green", "sms": 20}
    assert [row["label"] for row in told["rows"]] == [row.label for row in read_corows(run)]
    assert told["backend"] == "modelled"


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("--sms", "20", "--mechanisms", "green", "--slo", "step_p50=1us"), 5, "no green split holds step_p50=1us"),
        # 10 SMs are no partition, so that green has rows and no figures.
        (("--sms", "10", "--mechanisms", "streams,green", "--slo", "step_p50=5ms"), 2, "no point of the mechanism green"),
    ],
    ids=["nothing-holds", "no-figures"],
)
def test_what_cannot_be_exported_ends_with_its_own_code(asked: tuple[str, ...], code: int, words: str, tmp_path: Path) -> None:
    """The run is complete on disk, its paths are on stdout, the sentence is the last one on stderr, and no file is written."""
    run = tmp_path / "run"
    result = colocate(*SMALL, *asked, *SGLANG, "--out", run)
    assert result.exit_code == code
    assert result.stdout.splitlines() == [str(run), str(run / "rows.csv")]
    last = result.stderr.splitlines()[-1]
    assert last.startswith("greenbench: error: --export sglang: ")
    assert words in last
    assert Status.OK in {row.status for row in read_corows(run)}
    assert not (run / "pdmux.yaml").exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Where the folder of --export-to vanished meanwhile, the measurement stands and the code is 5."""
    run, target = tmp_path / "run", tmp_path / "gone" / "mine.json"
    target.parent.mkdir()

    class Vanishing(WorkerHere):
        """A worker whose end takes the folder along."""

        def stop(self) -> None:
            """Remove it."""
            super().stop()
            target.parent.rmdir()
            target.parent.touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cocrew, "Worker", Vanishing)
        result = colocate(*SMALL, "--mechanisms", "alone", "--export", "json", "--export-to", target, "--out", run)
    assert result.exit_code == 5
    assert str(target) in result.stderr.splitlines()[-1]
    assert read_corows(run)
