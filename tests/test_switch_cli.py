"""`greenbench switch` as its users meet it: options, the table, the figure, streams and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from greenbench.cli.main import cli
from greenbench.cli.switch_options import NAMES
from greenbench.cli.switchreport import closing_lines, lay_out, name_of
from greenbench.corow import CoRow
from greenbench.experiments import cocrew
from greenbench.facts import model_facts
from greenbench.plots import style
from greenbench.plots.switching import draw_switch, figures, groups
from greenbench.schema import Backend, RunMeta
from greenbench.switching.plan import Way
from tests.staging import WorkerHere

META = RunMeta(
    run_id="r",
    created="2026-01-01T00:00:00+00:00",
    greenbench="0",
    command="switch",
    argv=(),
    seed=1,
    device=model_facts("h200").device,
    plan={"name": "switch"},
)
MEASURED = replace(META, device=replace(META.device, backend=Backend.CUDA))


def invoke(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, ["switch", *map(str, arguments)])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that need no process: what the command makes of a run is the same."""
    monkeypatch.setattr(cocrew, "Worker", WorkerHere)


def row(mechanism: str, processes: int, pct: float | None = None, params: str = "ahead=1,duration_us=100", **more: Any) -> CoRow:
    """A row as a run would hold it."""
    cells: dict[str, Any] = {"status": "ok", "throughput_per_s": None if pct is None else 90 * pct, **more}
    return CoRow(
        label=f"tenant[{params}]@{processes}x/driver_default/{mechanism}/-",
        kernel="tenant",
        params=params,
        mechanism=mechanism,
        processes=processes,
        role="tenants",
        throughput_pct=pct,
        **cells,
    )


ROWS = [
    row("alone", 1, 100.0, step_us_p50=112.0, step_us_p99=113.0),
    row("timeslice", 2, 47.0, step_us_p50=476.0, step_us_p99=480.0, switch_us=137.0, overlap_frac=0.0),
    row("timeslice", 8, 47.0, step_us_p50=1906.0, step_us_p99=4000.0, switch_us=138.0, overlap_frac=0.0),
    row("green", 2, 99.0, step_us_p50=210.0, step_us_p99=212.0, flags="remainder", create_us=1500.0, overlap_frac=1.0),
    row("green", 20, status="unsupported", reason="132 SMs in units of 8 cannot be split into 20 partitions"),
    row("mps", 1, 98.0, step_us_p50=114.0, step_us_p99=115.0),
    row("mps", 8, 101.0, step_us_p50=880.0, step_us_p99=990.0, overlap_frac=0.9),
]


def test_the_help_names_all_mechanisms() -> None:
    """Those that the plan reads, without importing it, and the plan that ships."""
    assert set(NAMES) | {"alone"} == set(Way)
    text = " ".join(invoke("--help").output.split())
    for words in ("--processes", "--working-set", "--ahead", "repartition", "Plans: switch"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--processes", "0"), "--processes: '0' is no integer from 1 to 48"),
        (("--mechanisms", "magic"), "--mechanisms: 'magic' is no mechanism of switch"),
        (("quick",), "is a plan of greenbench sweep, not of greenbench switch"),
        (("--timeout", "-1"), "--timeout: '-1' is no time in seconds"),
        (("--resume", "nowhere"), "nowhere does not exist"),
        (("--rounds", "3"), "no such option"),
    ],
)
def test_what_cannot_be_meant_is_exit_2(arguments: tuple[str, ...], told: str) -> None:
    """One line on stderr, nothing on stdout, nothing started."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("here")
def test_a_dry_run_names_points_and_obstacles() -> None:
    """One line a point on stdout with what stands in its way, the cost on stderr, as JSON the same."""
    options = ("--device", "model:h200", "--processes", "2,20", "--mechanisms", "green", "--working-set", "0", "--dry-run")
    result = invoke(*options)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split("@")[1].split()[0] for line in lines] == [
        "1x/driver_default/alone/-",
        "2x/driver_default/green/-",
        "20x/driver_default/green/-",
    ]
    assert "unsupported: 132 SMs in units of 8" in lines[2]
    assert "nothing was measured" in result.stderr
    report = json.loads(invoke(*options, "--json").stdout)
    assert (len(report["points"]), [bool(why) for why in report["obstacles"]]) == (3, [False, False, True])


def test_working_sets_are_shown_in_binary_units() -> None:
    """16777216 bytes are 16 MiB in the table, the sentences and the figure; files keep their names."""
    sets = [f"ahead=1,duration_us=100,working_set={size}" for size in (0, 16 << 20)]
    rows = [each for params in sets for each in (row("alone", 1, 100.0, params), row("mps", 2, 101.0, params))]
    wanted = [f"ahead=1,duration_us=100,working_set={size}" for size in ("0", "16 MiB")]
    assert [part.name for part in lay_out(rows, MEASURED).parts] == [f"tenant [{params}]" for params in wanted]
    told = closing_lines(rows, MEASURED, "done")
    assert told[1:] == [f"2 processes [{params}] together reach, of one alone: mps 101 %" for params in wanted]
    with style.context():
        drawn = dict(figures(rows, MEASURED))
    assert list(drawn) == ["switching_working_set_0", "switching_working_set_16777216"]
    shown = [text.get_text() for text in drawn["switching_working_set_16777216"].texts]
    assert "What it costs to share a GPU: working_set=16 MiB" in shown
    assert not any("16777216" in text for text in shown)


@pytest.mark.usefixtures("here")
def test_a_run_prints_paths_rows_and_what_sharing_leaves(tmp_path: Path) -> None:
    """Paths on stdout, table and sentence on stderr, figures; resumed it does nothing more, and other options are refused."""
    out = tmp_path / "run"
    small = ("--processes", "2", "--mechanisms", "timeslice", "--working-set", "0", "--seconds", "0.05")
    result = invoke("--device", "model:h200", *small, "--out", out)
    assert result.exit_code == 0, result.stderr
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert paths[:2] == [out, out / "rows.csv"]
    assert {path.name for path in paths[2:]} == {"switching.png", "switching.svg"}
    assert all(path.exists() for path in paths)
    assert "timeslice 2" in result.stderr
    assert (
        "MODELLED: 2 processes [ahead=1,duration_us=100,working_set=0] together reach, of one alone: timeslice 47 %"
        in result.stderr
    )
    again = invoke("--resume", out, "--json", "--no-plots")
    report = json.loads(again.stdout)
    assert (again.exit_code, report["exit_code"], report["plots"], len(report["rows"])) == (0, 0, [], 2)
    refused = invoke("--resume", out, "--processes", "4")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--processes cannot be changed by --resume" in refused.stderr


def test_the_table_has_what_there_is() -> None:
    """Empty columns are left out, missing figures are dashes, remarks and reasons are said once below."""
    sheet = lay_out(ROWS, MEASURED)
    (part,) = sheet.parts
    assert part.name == "tenant [ahead=1,duration_us=100]"
    headings = [" ".join(heading.split("\n")) for heading in part.columns]
    assert headings == ["operations a second", "of one alone", "p50 µs", "p99 µs", "switch µs", "two at once"]
    lines = {line.heading: line for line in part.lines}
    assert [cell.text for cell in lines["timeslice 2"].cells] == ["4,230", "47 %", "476", "480", "137", "0%"]
    assert [cell.text for cell in lines["alone"].cells][4:] == ["–", "–"]
    assert (lines["green 2"].remark, lines["green 20"].remark, lines["green 20"].cells) == ("[a]", "unsupported [b]", ())
    assert len(sheet.notes) == 2
    more = lay_out(ROWS, MEASURED, details=True).parts[0].columns
    assert "create\nµs" in more
    assert name_of(ROWS[0]) == "alone"


def test_the_last_words_compare_at_the_most_processes() -> None:
    """The best first, only those with a figure at that many; what is modelled says so; brief adds the reasons."""
    lines = closing_lines(ROWS, MEASURED, "7 points", brief=True)
    assert lines[:2] == [
        "7 points",
        "8 processes [ahead=1,duration_us=100] together reach, of one alone: mps 101 %, timeslice 47 %",
    ]
    assert lines[2].startswith("unsupported, 1 point: 132 SMs")
    assert all(line.startswith("MODELLED: ") for line in closing_lines(ROWS, META, "7 points"))
    assert closing_lines(ROWS[:1], MEASURED, "1 point") == ["1 point"]


def test_curves_begin_at_one_process_alone() -> None:
    """Unless the mechanism has a point of its own there; the tail shown is the largest that most points have."""
    (group,) = groups(ROWS)
    assert group.processes == [1, 2, 8]
    assert {name: [each.processes for each in curve] for name, curve in group.curves.items()} == {
        "timeslice": [1, 2, 8],
        "green": [1, 2],
        "mps": [1, 8],
    }
    assert group.curves["mps"][0].mechanism == "mps"
    assert group.tail == 99
    assert groups([replace(each, step_us_p99=None) for each in ROWS])[0].tail == 50


def test_each_operation_has_a_figure(tmp_path: Path) -> None:
    """Named by what differs; both formats, the lines of every mechanism in both panels, what is missing told below."""
    other = [replace(each, params="ahead=3,duration_us=100") for each in ROWS]
    with style.context():
        drawn = dict(figures([*ROWS, *other], MEASURED))
    assert list(drawn) == ["switching_ahead_1", "switching_ahead_3"]
    share, tails = drawn["switching_ahead_1"].axes
    assert [len([line for line in axes.lines if line.get_gid() == "mechanism"]) for axes in (share, tails)] == [3, 3]
    assert (share.get_yscale(), tails.get_yscale()) == ("linear", "log")
    told = [text.get_text() for text in drawn["switching_ahead_1"].texts]
    assert any(text.startswith("unsupported: green 20 (132 SMs") for text in told)
    paths = draw_switch(ROWS, META, tmp_path)
    assert [path.name for path in paths] == ["switching.png", "switching.svg"]
    assert paths[0].read_bytes()[:4] == b"\x89PNG"


def test_without_company_there_is_nothing_to_draw(tmp_path: Path) -> None:
    """One process alone, and points without figures, give no figure."""
    assert draw_switch(ROWS[:1], MEASURED, tmp_path) == []
    assert draw_switch([replace(each, status="failed", throughput_pct=None) for each in ROWS], MEASURED, tmp_path) == []
