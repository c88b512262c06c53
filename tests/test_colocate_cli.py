"""`greenbench colocate` as its users meet it: options, streams, the table, exports and exit codes of a run that is pretended."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from greenbench.catalog import Kernel, library
from greenbench.cli.colocate import where
from greenbench.cli.coreport import BEST, NOISE, WORST, closing_lines, lay_out
from greenbench.cli.corequest import empty_columns
from greenbench.cli.main import cli
from greenbench.cli.progress import opening_line
from greenbench.colocation.keys import KEYS, option_of
from greenbench.colocation.pairs import pairs
from greenbench.colocation.plan import expand, load_coplan
from greenbench.colocation.point import CoPoint
from greenbench.colocation.protection import protection
from greenbench.corow import CoRow
from greenbench.errors import ExitCode, GreenbenchError, IncompleteError, InterruptedRunError, UsageError
from greenbench.experiments import colocate as experiment
from greenbench.experiments.colocate import CoOutcome, CoPreview, CoRequest
from greenbench.facts import model_facts
from greenbench.queueing.model import Kind, Mechanism
from greenbench.runfiles import read_corows, write_meta
from greenbench.schema import RunMeta, Status

H200 = model_facts("h200").device
MODEL = ("--device", "model:h200")
DECODE, PREFILL = "model=llama3-8b,layers=4,batch=8,context=4096", "model=llama3-8b,layers=4,prompt=2048"


def invoke(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, ["colocate", *map(str, arguments)])


def refused(result: Result, *words: str) -> None:
    """Exit 2, nothing on stdout, and one line on stderr that has these words."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("greenbench: error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def row(role: Kind, mechanism: str, split: str = "primary", *, text: str = "", rate: str = "-", **cells: Any) -> CoRow:
    """Return a row as a run would hold it; `text` is the mechanism as the label has it."""
    mine, params = ("decode", DECODE) if role is Kind.LATENCY else ("prefill", PREFILL)
    first = mine if mechanism == "alone" else "decode"
    return CoRow(
        label=f"{first}[{params if mechanism == 'alone' else DECODE}]@{split}/driver_default/{text or mechanism}/{rate}",
        kernel=mine,
        params=params,
        mechanism=mechanism,
        workqueue="driver_default",
        role=role.value,
        **{"status": Status.OK.value, **cells},
    )


def both(mechanism: str, split: str, p99: float, tokens: float, **more: Any) -> list[CoRow]:
    """Return the rows of a point at which both roles have figures."""
    latency = {"step_us_p50": p99 / 2, "step_us_p99": p99, "slowdown": 1.5, "overlap_frac": 0.9}
    return [
        row(Kind.LATENCY, mechanism, split, **latency, **more),
        row(Kind.BACKGROUND, mechanism, split, ttft_us_p50=2e4, tokens_per_s=tokens, **more),
    ]


def reason(mechanism: str, split: str, status: Status = Status.UNSUPPORTED, text: str = "needs driver 13.1") -> list[CoRow]:
    """Return the rows of a point without figures."""
    return [row(kind, mechanism, split, status=status.value, reason=text) for kind in Kind]


ROWS = [
    row(Kind.LATENCY, "alone", step_us_p50=400.0, step_us_p99=430.0),
    row(Kind.BACKGROUND, "alone", "112", tokens_per_s=90000.0, ttft_us_p50=1e4),
    *both("streams", "primary", 1553.0, 80000.0),
    *both("green", "20", 700.0, 70000.0),
    *both("green", "28", 610.0, 60000.0),
    *reason("green_balanced", "20"),
    *reason("green_balanced", "28"),
]


@pytest.fixture
def outcome(tmp_path: Path) -> CoOutcome:
    """What a run would leave behind."""
    folder = tmp_path / "run"
    folder.mkdir()
    meta = RunMeta(
        run_id="run",
        created="2026-01-01T00:00:00+00:00",
        greenbench="0",
        command="colocate",
        argv=("colocate", *MODEL),
        seed=1,
        device=H200,
        plan=load_coplan("colocate_llm", {"sms": "20,28"}, _kernels()).as_dict(),
    )
    write_meta(folder / "run.json", meta)
    return CoOutcome(
        folder=folder,
        meta=meta,
        rows=list(ROWS),
        advice=None,
        sentences=("green at 28 SMs protects decode best",),
        exit_code=ExitCode.DONE,
        summary="5 points: 3 ok, 2 unsupported",
    )


@cache
def _kernels() -> Mapping[str, Kernel]:
    return library()


@pytest.fixture(autouse=True)
def kernels_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the library takes most of the time of a command that is pretended."""
    monkeypatch.setattr("greenbench.cli.corequest.library", lambda _: _kernels())


Runner = Callable[[CoRequest, Any], CoOutcome]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Runner], list[CoRequest]]:
    """Put a function in place of the experiment, and return the list that its requests go to."""

    def install(runner: Runner) -> list[CoRequest]:
        seen: list[CoRequest] = []

        def run(request: CoRequest, listener: Any) -> CoOutcome:
            seen.append(request)
            return runner(request, listener)

        monkeypatch.setattr(experiment, "run_colocate", run)
        return seen

    return install


def ending(outcome: CoOutcome, error: BaseException | None = None) -> Runner:
    """A run that begins, and ends with this outcome or this error."""

    def run(_: CoRequest, listener: Any) -> CoOutcome:
        listener.started(outcome.meta, outcome.folder, 5)
        if error is not None:
            raise error
        return outcome

    return run


def no_figures(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Path]:
    """Put a drawing that takes no time in place of the figures; return what it says to have drawn."""
    paths = [folder / "plots" / "isolation.png"]
    monkeypatch.setattr("greenbench.colocation.results.read_corun", lambda path: path)
    monkeypatch.setattr("greenbench.cli.plot.draw_corun", lambda *_: paths)
    return paths


def test_the_request_is_what_the_options_say(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """Every option reaches the plan or the request under its own name."""
    seen = pretend(ending(outcome))
    result = invoke(
        *("--decode-batch", "1,8", "--context", "1024", "--prompt", "1024", "--chunk", "256", "--layers", "2"),
        *(
            "--mechanisms",
            "green,mps_limited,green_balanced",
            "--sms",
            "20,28",
            "--background-sms",
            "64",
            "--workqueue",
            "balanced",
        ),
        *("--concurrency-limit", "4", "--connections", "1,8", "--mps-memory-limit", "40G", "--arrivals", "poisson"),
        *("--background-arrivals", "fixed"),
        *("--step-rate", "100", "--rates", "2,4", "--slo", "step_p50=1ms", "--interference", "--steps", "200", "--seed", "3"),
        *("--timeout", "9", "--time-limit", "60", "--strict", "--ci", "--no-plots", "-q", "--out", "here", *MODEL),
    )
    assert result.exit_code == 0, result.output
    (request,) = seen
    plan = request.plan
    assert [dict(each.params)["batch"] for each in plan.latency] == [1, 8]
    assert [chunk for chunk, _ in plan.chunks] == [256]
    assert (plan.sms, plan.background_sms, plan.connections, plan.rates) == ((20, 28), 64, (1, 8), (2.0, 4.0))
    assert (plan.process.value, plan.background_process.value) == ("poisson", "fixed")
    assert (plan.step_rate, plan.steps, plan.seed, plan.time_limit_s) == (100.0, 200, 3, 60.0)
    assert (plan.interference, plan.mps_memory_limit, plan.concurrency_limits) == (True, "40G", (4,))
    assert plan.slo is not None
    assert (request.device, request.timeout_s, request.strict, request.ci, request.export) == ("model:h200", 9.0, True, True, "")
    assert (request.out, request.argv[0]) == (Path("here"), "colocate")


def test_paths_go_to_stdout_and_words_to_stderr(
    outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """stdout has the paths of results, one a line; the table and the sentences are on stderr, MODELLED in the last line."""
    pretend(ending(outcome))
    plots = no_figures(monkeypatch, outcome.folder)
    result = invoke(*MODEL)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [str(path) for path in (outcome.folder, outcome.folder / "rows.csv", *plots)]
    for words in ("green 28", "1,553", "unsupported [a]", "needs driver 13.1", "green at 28 SMs protects decode best"):
        assert words in result.stderr
    assert result.stderr.splitlines()[-1].startswith("MODELLED: ")
    assert "\x1b" not in result.stderr


def test_quiet_leaves_counts_reasons_and_findings(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """-q has no table and no opening, but the reasons that the table would have explained."""
    pretend(ending(outcome))
    result = invoke(*MODEL, "-q", "--no-plots", "--steps", "100")
    assert result.stderr.splitlines() == [
        f"MODELLED: {outcome.summary}",
        f"MODELLED: {outcome.sentences[0]}",
        "MODELLED: unsupported, 2 points: needs driver 13.1",
    ]


def test_json_is_one_object(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """--json replaces the paths by an object that has them, the rows and the sentences."""
    pretend(ending(outcome))
    result = invoke(*MODEL, "--json", "--no-plots")
    told = json.loads(result.stdout)
    assert told["rows_csv"] == str(outcome.folder / "rows.csv")
    assert (told["exit_code"], told["plots"], told["sentences"]) == (0, [], list(outcome.sentences))
    assert [each["label"] for each in told["rows"]] == [each.label for each in ROWS]
    assert told["rows"][0]["step_us_p95"] is None


def test_columns_that_stay_empty_are_told_once(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """p95 needs 1,000 steps and p99 needs 3,000; with enough of them nothing is said."""
    pretend(ending(outcome))
    for steps, words in (
        ("100", ["no step_us_p95 and step_us_p99 of", "1,000", "3,000"]),
        ("1000", ["no step_us_p99 of", "3,000"]),
        ("3000", []),
    ):
        said = invoke(*MODEL, "--no-plots", "--steps", steps).stderr
        notes = [line for line in said.splitlines() if "of the latency role" in line]
        assert len(notes) == bool(words)
        assert all(word in notes[0] for word in words)
        assert ("step_us_p95" in said) == (steps == "100")


def test_only_full_depth_has_inter_token_latencies(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """Which columns are named follows the workload."""
    pretend(ending(outcome))
    assert "itl_us_p99" in invoke(*MODEL, "--no-plots", "--layers", "full").stderr
    assert "itl_us_p99" not in invoke(*MODEL, "--no-plots").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sms", "0"], ["--sms", "'0'"]),
        (["--mechanisms", "gren"], ["--mechanisms", "'gren'", "green"]),
        (["--rates", "auto"], ["--rates", "--slo"]),
        (["--slo", "itl_p99=20ms"], ["--slo", "--layers full"]),
        (["--time-limit", "soon"], ["--time-limit", "'soon'"]),
        (["--timeout", "0"], ["--timeout", "'0'"]),
        (["--export", "yaml"], ["--export", "'yaml'", "sglang"]),
        (["--export", "sglang"], ["--export sglang", "--slo"]),
        (["--export", "sglang", "--slo", "step_p50=1ms", "--mechanisms", "streams"], ["--export sglang", "mechanism green"]),
        (["--export-to", "x.json"], ["--export-to", "--export json"]),
        (["--export", "json", "--export-to", "/nowhere/x.json"], ["--export-to", "/nowhere"]),
        (["--export", "json", "--export-to", "/"], ["--export-to", "is a folder"]),
        (["quick"], ["greenbench sweep"]),
        (["no_such_plan"], ["'no_such_plan'", "colocate_llm"]),
        (["--device", "gpu0"], ["--device", "'gpu0'"]),
        (["--resume", "/nowhere"], ["/nowhere"]),
        (["--no-such-option"], ["--no-such-option", "colocate --help"]),
    ],
    ids=" ".join,
)
def test_wrong_options(arguments: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one sentence and exit 2, before any device is looked for."""

    def touched(*_: object) -> None:
        raise RuntimeError("the experiment was begun for a command line that is wrong")

    monkeypatch.setattr(experiment, "run_colocate", touched)
    refused(invoke(*arguments), *words)


def test_a_variable_stands_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """GREENBENCH_COLOCATE_SMS for --sms, and the mistakes in it are told the same way."""
    monkeypatch.setenv("GREENBENCH_COLOCATE_SMS", "8,,16")
    refused(invoke(), "--sms: '8,,16'")


def test_the_names_of_empty_columns_are_one_list() -> None:
    """At full depth four columns stay empty: commas, and one `and`."""
    plan = load_coplan("colocate_llm", {"layers": "full", "steps": "100"}, _kernels())
    assert "no step_us_p95, step_us_p99, itl_us_p95 and itl_us_p99 of the latency role" in empty_columns(plan)


def test_an_estimate_counts_the_rates_that_are_tried() -> None:
    """With --rates auto up to eight visits for each point but those alone; a rate or none is one visit."""

    def seen(*more: str) -> dict[str, Any]:
        options = ("--sms", "20,28", "--mechanisms", "green,streams", "--slo", "step_p50=1ms", "--dry-run", "--json")
        told: dict[str, Any] = json.loads(invoke(*MODEL, *options, *more).stdout)
        return told

    once, tried = seen(), seen("--rates", "auto")
    assert once["points"] == tried["points"]
    beside = sum("/alone/" not in label for label in once["points"])
    each = (once["estimate_s"] - experiment.START_S) / len(once["points"])
    assert tried["estimate_s"] - once["estimate_s"] == pytest.approx(7 * beside * each)
    assert [note for note in tried["notes"] if note not in once["notes"]] == [
        "--rates auto: up to 8 visits for each mechanism and size; the time is for all of them"
    ]


def test_dry_run_prints_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each point with its SMs or its obstacle; the time and the notes are on stderr, and nothing runs."""

    def preview(request: CoRequest) -> CoPreview:
        points, notes = expand(request.plan, H200)
        return CoPreview(device=H200, points=points, notes=notes, estimate_s=75.0)

    monkeypatch.setattr(experiment, "preview", preview)
    options = ("--sms", "20,10", "--mechanisms", "green,green_background,mps_limited,streams", "--time-limit", "60")
    result = invoke(*MODEL, *options, "--dry-run")
    assert result.exit_code == 0
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    said = {label.partition("@")[2]: where.strip() for label, where in lines.items() if label.startswith("decode")}
    assert said["20/driver_default/green/-"] == "20 + 112 SMs"
    assert said["20/driver_default/green_background/-"] == "all + 112 SMs"
    assert said["20/driver_default/mps_limited/-"] == "at most 20 + 112 SMs"
    assert said["primary/driver_default/streams/-"] == "all SMs"
    assert said["20/driver_default/alone/-"] == "20 SMs"
    assert said["10/driver_default/green/-"].startswith("unsupported: --sms: 10 SMs")
    assert "nearest sizes: 8 and 12" in said["10/driver_default/green/-"]
    assert "about 1 min 15 s (time limit 60 s); nothing was measured" in result.stderr
    told = json.loads(invoke(*MODEL, *options, "--dry-run", "--json").stdout)
    assert told["points"] == list(lines)
    assert len(told["points"]) == len(told["obstacles"]) == len(told["sms"])


def test_an_interrupted_run_says_how_to_go_on(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """Exit 130 with the paths of what is there, and the command that continues; Ctrl-C outside the run says it too."""
    pretend(ending(outcome, InterruptedRunError("interrupted; on disk")))
    result = invoke(*MODEL)
    assert result.exit_code == 130
    assert result.stdout.splitlines() == [str(outcome.folder), str(outcome.folder / "rows.csv")]
    pretend(ending(outcome, KeyboardInterrupt()))
    result = invoke(*MODEL)
    assert result.exit_code == 130
    assert f"'greenbench colocate --resume {outcome.folder}' continues" in result.stderr


def test_resume_takes_the_plan_of_the_run(outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]]) -> None:
    """The plan, device and seed are those of the run; what would make it another run is refused, as is a run of sweep."""
    seen = pretend(ending(outcome))
    assert invoke("--resume", outcome.folder, "-q", "--no-plots").exit_code == 0
    (request,) = seen
    assert (request.plan.sms, request.device, request.resume) == ((20, 28), "model:h200", outcome.folder)
    refused(invoke("--resume", outcome.folder, "--steps", "50"), "--steps cannot be changed by --resume")
    refused(invoke("--resume", outcome.folder, "--interference"), "--interference cannot be changed by --resume")
    result = CliRunner().invoke(cli, ["sweep", "--resume", str(outcome.folder)])
    refused(result, f"greenbench colocate --resume {outcome.folder}")
    write_meta(outcome.folder / "run.json", replace(outcome.meta, plan={**outcome.meta.plan, "steps": 0}))
    refused(invoke("--resume", outcome.folder), "run.json", "steps")


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Exports that write what they were asked for."""
    module = ModuleType("greenbench.colocation.export")
    module.export_json = lambda rows, advice, meta: json.dumps([len(rows), meta.run_id])  # type: ignore[attr-defined]
    module.export_sglang = lambda rows, advice, device: f"# {device.name}\n"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "greenbench.colocation.export", module)
    return module


def test_exports_are_written(
    outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]], exports: ModuleType, tmp_path: Path
) -> None:
    """Into the run's folder, or where --export-to says; the path is one of the results."""
    pretend(ending(outcome))
    result = invoke(*MODEL, "--no-plots", "--export", "json")
    assert result.stdout.splitlines()[2:] == [str(outcome.folder / "colocate.json")]
    assert json.loads((outcome.folder / "colocate.json").read_text(encoding="utf-8")) == [len(ROWS), "run"]
    target = tmp_path / "mine.yaml"
    result = invoke(*MODEL, "--no-plots", "--json", "--export", "sglang", "--export-to", target, "--slo", "step_p50=1ms")
    assert json.loads(result.stdout)["exported"] == [str(target)]
    assert H200.name in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(("error", "code"), [(IncompleteError, 5), (UsageError, 2)])
def test_an_export_that_cannot_be_ends_with_its_own_code(
    error: type[GreenbenchError],
    code: int,
    outcome: CoOutcome,
    pretend: Callable[[Runner], list[CoRequest]],
    exports: ModuleType,
) -> None:
    """What was asked for and is not there decides the exit code, its sentence is the last; the run is shown all the same."""

    def nothing(*_: object) -> str:
        raise error("no split holds the objectives")

    exports.export_sglang = nothing  # type: ignore[attr-defined]
    asked = (*MODEL, "--no-plots", "--export", "sglang", "--slo", "step_p50=1ms")
    pretend(ending(outcome))
    result = invoke(*asked)
    assert result.exit_code == code
    assert result.stderr.splitlines()[-1] == "greenbench: error: no split holds the objectives"
    assert outcome.sentences[0] in result.stderr
    assert result.stdout.splitlines() == [str(outcome.folder), str(outcome.folder / "rows.csv")]
    assert json.loads(invoke(*asked, "--json").stdout)["exit_code"] == code


def test_a_run_that_cannot_tells_it_before_its_export(
    outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]], exports: ModuleType
) -> None:
    """Where the run itself ends with 4 the code stays 4: that nothing can be exported follows from it, and is a note."""

    def nothing(*_: object) -> str:
        raise UsageError("no point of the mechanism green")

    exports.export_sglang = nothing  # type: ignore[attr-defined]
    pretend(ending(replace(outcome, exit_code=ExitCode.MACHINE)))
    result = invoke(*MODEL, "--no-plots", "--export", "sglang", "--slo", "step_p50=1ms")
    assert result.exit_code == 4
    assert "note: nothing was exported: no point of the mechanism green" in result.stderr


def test_a_figure_that_fails_does_not_hide_the_run(
    outcome: CoOutcome, pretend: Callable[[Runner], list[CoRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is that of the measurement, and a note says how to try again."""

    def broken(*_: object) -> list[Path]:
        raise ValueError("no axes")

    pretend(ending(outcome))
    monkeypatch.setattr("greenbench.cli.plot.draw_corun", broken)
    monkeypatch.setattr("greenbench.colocation.results.read_corun", lambda path: path)
    result = invoke(*MODEL)
    assert result.exit_code == 0
    assert "no figures: ValueError: no axes" in result.stderr
    assert (outcome.folder / "traceback.txt").is_file()


# -- the table -----------------------------------------------------------------------------------------------------------


def meta_of(rows: list[CoRow], **plan: object) -> RunMeta:
    """Return what lay_out needs to know of a run."""
    return RunMeta(
        run_id="r", created="", greenbench="0", command="colocate", argv=(), seed=1, device=H200, plan={"name": "p", **plan}
    )


def cells(rows: list[CoRow], **settings: Any) -> dict[str, dict[str, str]]:
    """Return the table as {line: {column: cell with its mark}}."""
    found = {}
    for part in lay_out(rows, meta_of(rows), **settings).parts:
        names = [name.replace("\n", " ") for name in part.columns]
        found |= {line.heading: dict(zip(names, [c.text + c.mark for c in line.cells], strict=False)) for line in part.lines}
    return found


def test_the_table_has_both_roles_of_a_point_in_a_line() -> None:
    """Percentiles, slowdown and overlap of the decode, first tokens and tokens of the prefill; alone each has its own line."""
    found = cells(ROWS)
    assert found["green 28"] == {
        "decode p50 µs": f"305{BEST}",
        "decode p99 µs": f"610{BEST}",
        "decode slowdown": "1.50x",
        "time in common": "90%",
        "prefill ttft p50 µs": "20,000",
        "prefill tokens/s": f"60,000{WORST}",
    }
    assert found["streams"]["decode p99 µs"] == f"1,553{WORST}"
    assert found["streams"]["prefill tokens/s"] == f"80,000{BEST}"
    assert found["alone (decode)"]["decode p99 µs"] == "430"
    assert found["alone (decode)"]["prefill tokens/s"] == ""
    assert "decode slowdown" not in found["alone (decode)"]
    assert found["alone 112 (prefill)"]["prefill tokens/s"] == "90,000"


def test_points_with_one_reason_share_a_line() -> None:
    """Nine sizes that the driver cannot do are one line, one reason and the count of the points."""
    sheet = lay_out(ROWS, meta_of(ROWS))
    lines = [line for part in sheet.parts for line in part.lines if not line.cells]
    assert [(line.heading, line.remark) for line in lines] == [("green_balanced 20…28", "unsupported [a]")]
    assert "[a] unsupported, 2 points: needs driver 13.1" in sheet.notes


def test_loads_of_a_run_are_parts_of_their_own() -> None:
    """Best and worst are those of one load: a higher rate is no worse mechanism."""
    rows = [row for row in ROWS if row.mechanism == "alone"]
    for rate in ("2", "4"):
        points = [*both("streams", "primary", 900.0 * float(rate), 1e4), *both("green", "20", 300.0 * float(rate), 9e3)]
        rows += [replace(each, label=each.label.removesuffix("-") + rate) for each in points]
    sheet = lay_out(rows, meta_of(rows))
    names = [part.name for part in sheet.parts]
    assert names == ["", *(f"decode [{DECODE}], {rate} background requests a second" for rate in ("2", "4"))]
    for part in sheet.parts[1:]:
        assert [line.cells[1].mark for line in part.lines] == [WORST, BEST]


def test_a_queue_that_grew_is_marked() -> None:
    """A saturated role has a word instead of a percentile, the worst of its column, and a letter that says why."""
    rows = [*ROWS[:2], *both("streams", "primary", 700.0, 7e4), *both("green", "20", 700.0, 7e4)]
    rows[2] = replace(rows[2], step_us_p50=None, step_us_p99=None, slowdown=None, flags="saturated", saturated="true")
    sheet = lay_out(rows, meta_of(rows))
    line, other = sheet.parts[1].lines
    assert (line.cells[0].text, line.cells[0].mark, line.remark) == ("grows", WORST, "[a]")
    assert other.cells[0].mark == BEST
    assert any(note.startswith("[a] saturated, 1 point:") for note in sheet.notes)


def test_a_latency_role_that_is_lost_is_never_the_best() -> None:
    """Throughput that the background has because the decode cannot keep up gets no star; the best of the others does."""
    rows = [*both("streams", "primary", 700.0, 9e4), *both("mps", "primary", 700.0, 7e4), *both("green", "20", 700.0, 6e4)]
    rows[0] = replace(rows[0], step_us_p50=None, step_us_p99=None, slowdown=None, saturated="true")

    def marks() -> dict[str, str]:
        return {name: line["prefill tokens/s"] for name, line in cells(rows).items()}

    assert marks() == {"streams": "90,000", "mps": f"70,000{BEST}", "green 20": f"60,000{WORST}"}
    rows[3] = replace(rows[3], tokens_per_s=9e4)
    assert marks() == {"streams": "90,000", "mps": f"90,000{BEST}", "green 20": f"60,000{WORST}"}
    for place in (2, 4):
        rows[place] = replace(rows[place], step_us_p50=None, step_us_p99=None, slowdown=None, saturated="true")
    assert marks() == {"streams": "90,000", "mps": "90,000", "green 20": f"60,000{WORST}"}


def test_what_mps_granted_instead_is_shown() -> None:
    """18 SMs where 20 were asked for are in the line's name; a role of a mechanism without shares has every SM."""

    def name(mechanism: str, **more: Any) -> str:
        (point,) = pairs([replace(each, **more) for each in both(mechanism, "20", 700.0, 7e4)])
        return point.name

    assert name("mps_limited", sms_granted=18) == "mps_limited 20 (18)"
    assert name("mps_limited", sms_granted=None, sms_observed=18) == "mps_limited 20 (18)"
    assert name("mps_limited", sms_granted=20) == name("mps_limited") == "mps_limited 20"
    assert name("green_background", sms_granted=132) == "green_background 20"
    assert name("mps_limited", sms_granted=18, status="failed", reason="lost") == "mps_limited 20"


def test_objectives_get_a_column() -> None:
    """Whether a point holds them, in a word; a point that could not be judged is not called broken."""
    rows = list(ROWS[:2])
    for mechanism, met in (("streams", "false"), ("green", "true"), ("mps", "")):
        rows += [replace(each, slo="step_p99=1ms", slo_met=met) for each in both(mechanism, "primary", 500.0, 1e4)]
    sheet = lay_out(rows, meta_of(rows))
    assert [part.columns[-1] == "SLO" for part in sheet.parts] == [False, True]
    assert [line.cells[-1].text for line in sheet.parts[-1].lines] == ["broken", "holds", "unknown"]


def test_details_are_for_verbose() -> None:
    """-v adds throughput, lateness, clock and power, as far as a run has them."""
    rows = [replace(each, power_w=600.0, launch_late_us=1.5) for each in ROWS]
    assert "power W" not in cells(rows)["green 20"]
    assert cells(rows, details=True)["green 20"]["power W"] == "600"


@given(
    p99s=st.lists(st.floats(1, 1e6), min_size=2, max_size=8),
    tokens=st.lists(st.floats(1, 1e6), min_size=8, max_size=8),
)
def test_best_and_worst_are_the_ends(p99s: list[float], tokens: list[float]) -> None:
    """Of any points, the marks stand at the lowest and highest tail as written, and the other way round for throughput."""
    rows = [each for n, p99 in enumerate(p99s) for each in both("green", str(8 * n + 8), p99, tokens[n])]
    (part,) = lay_out(rows, meta_of(rows)).parts
    for place, order, exact in ((1, 1, p99s), (5, -1, tokens[: len(p99s)])):
        values = [float(line.cells[place].text.replace(",", "")) for line in part.lines]
        marks = [line.cells[place].mark for line in part.lines]
        found = {mark: {value for value, at in zip(values, marks, strict=True) if at == mark} for mark in (BEST, WORST)}
        best, worst = sorted({min(values), max(values)})[::order][0], sorted({min(values), max(values)})[::order][-1]
        differ = max(exact) > NOISE * min(exact) and best != worst
        assert found == ({BEST: {best}, WORST: {worst}} if differ else {BEST: set(), WORST: set()})


def test_every_point_of_a_plan_has_its_line() -> None:
    """Rows under the labels that a plan gives are told apart: chunks, limits, connections and rates too."""
    options = {"decode_batch": "1,8", "connections": "1,8", "rates": "2,4", "sms": "20", "workqueue": "driver_default,balanced"}
    points, _ = expand(load_coplan("colocate_llm", options, _kernels()), H200)
    rows = [_row_of(point, kind) for point in points for kind in Kind if point.workload(kind) is not None]
    assert len(pairs(rows)) == len(points)
    sheet = lay_out(rows, meta_of(rows))
    headings = [(part.name, line.heading) for part in sheet.parts for line in part.lines]
    alone = [each for each in headings if "alone" in each[1]]
    # Points alone have no part of their own by batch.
    assert len(set(headings) - set(alone)) == len([point for point in points if point.mechanism is not Mechanism.ALONE])


def _row_of(point: CoPoint, kind: Kind) -> CoRow:
    workload = point.workload(kind)
    assert workload is not None
    return CoRow(
        label=point.label,
        kernel=workload.name,
        params=workload.param_text,
        mechanism=point.mechanism.value,
        role=kind.value,
        workqueue=point.workqueue.value,
        concurrency_limit=point.concurrency_limit,
        connections=point.connections,
        status=Status.OK.value,
        step_us_p50=1.0,
    )


def test_the_closing_lines_of_a_measured_run() -> None:
    """MODELLED stands before a modelled run's lines only."""
    from greenbench.schema import Backend

    meta = meta_of(ROWS)
    measured = replace(meta, device=replace(H200, backend=Backend.CUDA))
    assert closing_lines(ROWS, measured, "done", ["a"]) == ["done", "a"]
    assert closing_lines(ROWS, meta, "done", ["a"]) == ["MODELLED: done", "MODELLED: a"]


def test_the_opening_counts_points(tmp_path: Path) -> None:
    """A co-location has no blocks beside its points."""
    assert "81 points, into" in opening_line(meta_of(ROWS), tmp_path, 81)
    assert "block" not in opening_line(meta_of(ROWS), tmp_path, 81)


def test_where_a_role_runs() -> None:
    """A confined role by its SMs, one that is free by `all`."""
    point = CoPoint(mechanism=Mechanism.GREEN_PRIMARY, latency=None, background=None, sizes=(20, 112))
    plan = load_coplan("colocate_llm", {}, _kernels())
    both_roles = replace(point, latency=plan.latency[0], background=plan.background)
    assert where(both_roles) == "20 + all SMs"
    assert where(replace(both_roles, mechanism=Mechanism.ALONE, latency=None)) == "112 SMs"


# -- from end to end -----------------------------------------------------------------------------------------------------


def test_a_run_on_the_modelled_device(tmp_path: Path) -> None:
    """The real thing, small: rows on disk, a table, the sentence on who protects the decode, and figures drawn anew."""
    folder = tmp_path / "mine"
    options = ("--sms", "20", "--mechanisms", "streams,green,green_balanced", "--steps", "40", "--layers", "1")
    result = invoke(*MODEL, *options, "--no-plots", "--out", folder, "--export", "json")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [str(folder), str(folder / "rows.csv"), str(folder / "colocate.json")]
    for words in ("green 20", "streams", "unsupported", "driver 13.1", "MODELLED"):
        assert words in result.stderr
    rows = read_corows(folder / "rows.csv")
    assert {(row.mechanism, row.role) for row in rows} == {
        (mechanism, kind.value) for mechanism in ("alone", "streams", "green", "green_balanced") for kind in Kind
    }
    assert "protects it best" in result.stderr
    again = invoke("--resume", folder, "--no-plots", "-q")
    assert (again.exit_code, read_corows(folder / "rows.csv")) == (0, rows)


# -- the sentence on protection ------------------------------------------------------------------------------------------


def test_who_protects_and_at_what_cost() -> None:
    """The lowest tail wins, beside the same role alone on the whole device; the cost is the background's throughput."""
    (said,) = protection([*ROWS, row(Kind.BACKGROUND, "alone", tokens_per_s=120000.0)])
    assert said == (
        f"decode[{DECODE}]: green at 28 SMs protects it best, step p99 610 µs (1.42 times alone on the whole device); "
        "prefill keeps 60,000 tokens/s, 50 % of alone on the whole device; under plain streams it takes 1,553 µs"
    )


def test_a_load_has_a_sentence_of_its_own() -> None:
    """At a rate the cost is the time of a request; streams that grow without end are named; one point compares with nothing."""
    points = [*both("streams", "primary", 900.0, 1e4), *both("green", "20", 300.0, 9e3)]
    points[0] = replace(points[0], step_us_p50=None, step_us_p99=None, saturated="true")
    rows = [replace(each, label=each.label.removesuffix("-") + "4") for each in points]
    (said,) = protection(rows)
    assert said == (
        f"decode[{DECODE}] at 4 background requests a second: green at 20 SMs protects it best, step p99 300 µs; "
        "prefill takes 20,000 µs in the median; under plain streams its queue grows without end"
    )
    lower = [replace(each, label=each.label.removesuffix("-") + "2") for each in both("green", "20", 100.0, 9e3)]
    assert protection([*lower, *rows]) == (said,)
    assert protection(rows[2:]) == ()
    assert protection(ROWS[:2]) == ()


def test_of_equal_tails_the_busier_background_is_named() -> None:
    """Within 2 % a tail is the same, and so is a throughput: then the plan's order decides; above 2 % both count."""

    def named(*points: tuple[str, float, float]) -> str:
        rows = [each for name, tail, tokens in points for each in both(name, "20", tail, tokens)]
        rows = [replace(each, throughput_per_s=each.tokens_per_s) for each in rows]
        (said,) = protection(rows)
        return said.split(": ")[1].split(" at ")[0]

    assert named(("green", 302.0, 9e3), ("green_priority", 300.0, 9e3)) == "green"
    assert named(("green_priority", 300.0, 9e3), ("green", 302.0, 9e3)) == "green_priority"
    assert named(("green", 306.0, 9e3), ("green_priority", 300.0, 9.1e3)) == "green"
    assert named(("green", 307.0, 9e3), ("green_priority", 300.0, 9e3)) == "green_priority"
    assert named(("green", 300.0, 9e3), ("green_priority", 305.0, 9.3e3)) == "green_priority"
    assert named(("green", 300.0, 5e3), ("green_priority", 307.0, 9.3e3)) == "green"


def test_one_sentence_whatever_the_rates() -> None:
    """Of several rates the one with the most points is spoken of, of those the highest: `--rates auto` says one sentence."""
    points = [*both("streams", "primary", 900.0, 1e4), *both("green", "20", 300.0, 9e3)]
    rows = [replace(each, label=each.label.removesuffix("-") + rate) for rate in ("2", "4", "8") for each in points]
    rows += [replace(each, label=each.label.removesuffix("-") + "16") for each in points[2:]]
    (said,) = protection(rows)
    assert " at 8 background requests a second: " in said


# -- the page ------------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parent.parent / "docs" / "colocate.md").read_text(encoding="utf-8")


def test_the_page_explains_every_column() -> None:
    """The table of columns is the header of rows.csv, no more and no less."""
    table = PAGE.split("| columns | say |")[1].split("\n\n")[0]
    columns = [name for cell in re.findall(r"^\| (.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(columns) == sorted(field.name for field in fields(CoRow))


def test_the_page_has_every_key_and_option() -> None:
    """Each key of a plan stands in a table beside its option, and no option is named that there is not."""
    command = cli.get_command(click.Context(cli), "colocate")
    assert command is not None
    options = {name for param in command.params for name in param.opts if name.startswith("--")}
    table = "".join(line for line in PAGE.splitlines(keepends=True) if line.startswith("| `--"))
    keys = set(re.findall(r"`([a-z_]+)`", " ".join(line.split("|")[1] for line in table.splitlines())))
    assert keys == set(KEYS) - {"summary"}
    for key in keys:
        assert f"`{option_of(key)}` `{key}`" in table
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= options


def test_the_workload_of_the_page_is_read(tmp_path: Path) -> None:
    """The example stands as a file of one's own."""
    path = tmp_path / "mine.toml"
    path.write_text(re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)[0], encoding="utf-8")
    plan = load_coplan("colocate_llm", {"latency": str(path)}, _kernels())
    assert [each.launches for each in plan.latency] == [4]


def test_the_command_lines_of_the_page_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins a run or refuses for want of the run that it names."""

    def begun(*_: object) -> None:
        raise InterruptedRunError("begun")

    monkeypatch.setattr(experiment, "run_colocate", begun)
    monkeypatch.setattr(experiment, "preview", begun)
    lines = re.findall(r"^greenbench colocate(.*?)(?:\s#.*)?$", PAGE, re.M)
    assert len(lines) >= 7
    for line in lines:
        assert invoke(*line.split()).exit_code == (2 if "--resume" in line else 130)
