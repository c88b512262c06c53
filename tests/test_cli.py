"""The command line as its users meet it: what goes to which stream, how each ending reads, and which exit code it has."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from greenbench import errors
from greenbench.cli.main import cli
from greenbench.cli.plot import own_names
from greenbench.cli.progress import QuietListener
from greenbench.cli.session import Session
from greenbench.errors import ExitCode, GreenbenchError
from greenbench.experiments import sweep as experiment
from greenbench.experiments.sweep import Listener, SweepOutcome, SweepRequest
from greenbench.plan import load_plan
from greenbench.results import read_run
from greenbench.runfiles import read_meta, read_rows, write_meta
from greenbench.schema import Backend, Evidence, Row, Status

ROOT = Path(__file__).parent.parent
MODEL = ("--device", "model:h200")
SMALL = ("--kernels", "copy,null_launch", "--sms", "8,16,full", "--rounds", "2", *MODEL)


def environment(**more: str) -> dict[str, str]:
    """The environment of a child that finds this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **more}


def greenbench(*arguments: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "greenbench", *map(str, arguments)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def invoke(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    """A real run on the modelled device: two kernels at 8 and 16 SMs and on the full device."""
    from greenbench.catalog import library

    folder = tmp_path_factory.mktemp("real") / "run"
    plan = load_plan("quick", {"kernels": "copy,null_launch", "sms": "8,16,full", "rounds": "6"}, library())
    argv = ("sweep", *SMALL, "--out", str(folder))
    return experiment.run_sweep(SweepRequest(plan=plan, device="model:h200", out=folder, argv=argv), QuietListener(Session()))


Runner = Callable[[SweepRequest, Listener], SweepOutcome]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Runner], list[SweepRequest]]:
    """Put a function in place of the experiment, and return the list that its requests go to."""

    def install(runner: Runner) -> list[SweepRequest]:
        seen: list[SweepRequest] = []

        def run(request: SweepRequest, listener: Listener) -> SweepOutcome:
            seen.append(request)
            return runner(request, listener)

        monkeypatch.setattr(experiment, "run_sweep", run)
        return seen

    return install


def started(outcome: SweepOutcome, listener: Listener) -> None:
    """Let the listener know the run folder, as the experiment does."""
    listener.started(outcome.meta, outcome.folder, 36)


def returning(outcome: SweepOutcome, **changes: Any) -> Runner:
    """A run that ends with this outcome."""

    def run(_: SweepRequest, listener: Listener) -> SweepOutcome:
        started(outcome, listener)
        return replace(outcome, **changes)

    return run


def raising(error: BaseException, outcome: SweepOutcome | None = None) -> Runner:
    """A run that ends with this error, after it began if there is an outcome to borrow the folder from."""

    def run(_: SweepRequest, listener: Listener) -> SweepOutcome:
        if outcome is not None:
            started(outcome, listener)
        raise error

    return run


# -- a run from end to end -----------------------------------------------------------------------------------------------


def test_sweep_on_the_modelled_device(tmp_path: Path) -> None:
    """Paths of existing files and nothing else on stdout; header, table and closing line on stderr, MODELLED first and last."""
    done = greenbench("sweep", *SMALL, "--out", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert paths[:2] == [tmp_path / "mine", tmp_path / "mine" / "rows.csv"]
    assert {path.suffix for path in paths[2:]} == {".png", ".svg"}
    assert all(path.exists() for path in paths)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert lines[0].startswith("MODELLED")
    assert lines[-1].startswith("MODELLED")
    assert "GB/s" in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_one_object_on_stdout(tmp_path: Path) -> None:
    """--json gives paths, rows and summary to a machine, and a null where nothing was measured."""
    done = greenbench("sweep", *SMALL, "--json", "-q", "--no-plots", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (answer["exit_code"], answer["backend"], answer["plots"]) == (0, "modelled", [])
    assert Path(answer["run"]).parent == tmp_path / "results" / "runs"
    assert len(answer["rows"]) == 6
    assert answer["rows"][0]["kernel"] == "copy"
    assert answer["rows"][0]["gb_per_s"] > 0
    assert answer["rows"][0]["tflop_per_s"] is None


def test_dry_run_measures_nothing(tmp_path: Path) -> None:
    """--dry-run prints one label per point with its grant, an estimate with the plan's time limit, and leaves no folder."""
    done = greenbench("sweep", *SMALL, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert done.stdout.startswith("copy[n=")
    assert {line.split("  ")[-1].strip() for line in done.stdout.splitlines()} == {"8 SMs", "16 SMs", "132 SMs"}
    assert "6 points on modelled" in done.stderr
    assert "(time limit 120 s); nothing was measured" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_dry_run_as_json(tmp_path: Path) -> None:
    """The same for a machine."""
    answer = json.loads(greenbench("sweep", *SMALL, "--dry-run", "--json", cwd=tmp_path).stdout)
    assert len(answer["points"]) == 6
    assert answer["grants"] == [8, 16, 132] * 2
    assert answer["obstacles"] == [""] * 6
    assert (answer["estimate_s"] > 0, answer["time_limit_s"]) == (True, 120)
    assert answer["device"]["backend"] == "modelled"


def test_unsupported_rows_are_explained_in_the_quiet_too(tmp_path: Path) -> None:
    """H11: scopes below driver 13.1 are rows without figures, counted and explained on stderr, and 5 with --strict."""
    line = ("sweep", "--kernels", "copy", "--sms", "8", "--rounds", "1", *MODEL, "--no-plots", "-q")
    both = ("--workqueue", "driver_default,device_ctx")
    done = greenbench(*line, *both, cwd=tmp_path)
    assert done.returncode == 0
    assert "1 unsupported" in done.stderr
    assert "needs driver 13.1, this is 13.0" in done.stderr
    assert greenbench(*line, *both, "--strict", cwd=tmp_path).returncode == 5
    assert greenbench(*line, "--workqueue", "device_ctx,balanced", cwd=tmp_path).returncode == 4


def test_a_size_above_the_device_is_refused_once_it_is_known(tmp_path: Path) -> None:
    """The last of the checks: exit 2, naming the count and the device, and no folder stays behind."""
    done = greenbench("sweep", "--sms", "8,200", *MODEL, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("greenbench: error: --sms 200: this device has 132 SMs")
    assert not list(tmp_path.rglob("run.json"))


def test_no_driver(tmp_path: Path) -> None:
    """H09: sweep and devices end with 4 and one line that names the library; usage errors come first."""
    for arguments in (["sweep", "--sms", "8"], ["devices"]):
        done = greenbench(*arguments, cwd=tmp_path, CUDA_VISIBLE_DEVICES="", NVIDIA_VISIBLE_DEVICES="none")
        assert done.returncode == 4, done.stderr
        assert done.stderr.startswith("greenbench: error: ")
        assert done.stderr.count("\n") == 1
    assert greenbench("sweep", "--sms", "0", cwd=tmp_path).returncode == 2


# -- exit codes and streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.MACHINE, ExitCode.INCOMPLETE])
def test_the_exit_code_is_the_runs(code: ExitCode, outcome: SweepOutcome, pretend: Any) -> None:
    """What the run decides is what the process says, with paths printed all the same."""
    pretend(returning(outcome, exit_code=code))
    result = invoke("sweep", *SMALL, "--no-plots")
    assert result.exit_code == code
    assert result.stdout.splitlines() == [str(outcome.folder), str(outcome.folder / "rows.csv")]


def all_errors() -> list[type[GreenbenchError]]:
    """Every class of the tree."""
    found, waiting = [], [GreenbenchError]
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].__subclasses__()
    return found


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_is_one_line_with_its_code(kind: type[GreenbenchError], pretend: Any) -> None:
    """An error of the tree is its sentence on one line of stderr, its own exit code, and an empty stdout."""
    pretend(raising(kind("first\nsecond  line")))
    result = invoke("sweep", *SMALL)
    assert result.exit_code == kind.exit_code
    assert result.stdout == ""
    assert result.stderr.endswith("first second line\n")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("greenbench: " if kind is errors.InterruptedRunError else "greenbench: error: ")


def test_a_bug_leaves_its_traceback_in_the_run_folder(outcome: SweepOutcome, pretend: Any) -> None:
    """Exit 70, one line that names the file, and the traceback in that file; the run's own files stay."""
    pretend(raising(ZeroDivisionError("division by zero"), outcome))
    result = invoke("sweep", *SMALL)
    path = outcome.folder / "traceback.txt"
    assert result.exit_code == 70
    last = result.stderr.splitlines()[-1]
    assert last.startswith("greenbench: internal error: ZeroDivisionError: division by zero; this is a bug of greenbench")
    assert last.endswith(str(path))
    assert "Traceback (most recent call last)" in path.read_text()
    path.unlink()


def test_a_bug_before_there_is_a_folder(tmp_path: Path, pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run folder the traceback goes to the temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pretend(raising(KeyError("x")))
    result = invoke("sweep", *SMALL)
    (path,) = tmp_path.iterdir()
    assert result.exit_code == 70
    assert str(path) in result.stderr
    assert "KeyError" in path.read_text()


def test_a_bug_where_nothing_can_be_written(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no file takes the traceback, the line at least says where it was raised."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    pretend(raising(KeyError("x")))
    result = invoke("sweep", *SMALL)
    assert result.exit_code == 70
    assert "raised at test_cli.py:" in result.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), errors.InterruptedRunError("interrupted; continue with --resume")])
def test_ctrl_c_says_how_to_go_on(error: BaseException, outcome: SweepOutcome, pretend: Any) -> None:
    """130, never called an error, and the sentence holds --resume."""
    pretend(raising(error, outcome))
    result = invoke("sweep", *SMALL)
    assert result.exit_code == 130
    assert "--resume" in result.stderr.splitlines()[-1]
    assert "error" not in result.stderr


def test_ctrl_c_before_anything(pretend: Any) -> None:
    """Where nothing has been measured, nothing is promised."""
    pretend(raising(KeyboardInterrupt()))
    result = invoke("sweep", *SMALL)
    assert (result.exit_code, result.stderr.strip()) == (130, "greenbench: interrupted; nothing had been measured")


def test_ctrl_c_while_drawing(outcome: SweepOutcome, pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run is not offered for resuming: only its figures are missing, and its paths are out already."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    pretend(returning(outcome))
    monkeypatch.setattr("greenbench.cli.plot.draw", interrupted)
    result = invoke("sweep", *SMALL)
    assert result.exit_code == 130
    assert result.stdout.splitlines() == [str(outcome.folder), str(outcome.folder / "rows.csv")]
    assert f"greenbench plot {outcome.folder}" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("error", [ValueError("bad axis"), errors.OutputError("the disk is full")])
def test_a_figure_that_fails_costs_only_itself(
    error: Exception, outcome: SweepOutcome, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever drawing raises: table, paths and exit code of the run stand, and one line says what is missing."""

    def broken(*_: object) -> None:
        raise error

    pretend(returning(outcome))
    monkeypatch.setattr("greenbench.cli.plot.draw", broken)
    result = invoke("sweep", *SMALL)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [str(outcome.folder), str(outcome.folder / "rows.csv")]
    assert "note: no figures: " in result.stderr
    assert str(error) in result.stderr
    (outcome.folder / "traceback.txt").unlink(missing_ok=True)


def test_no_figures_without_rows(outcome: SweepOutcome, pretend: Any) -> None:
    """Where no point is ok there is nothing to draw, and no complaint about it."""
    rows = [replace(row, status=Status.FAILED, reason="timeout, 5 s") for row in outcome.rows]
    pretend(returning(outcome, rows=rows, exit_code=ExitCode.INCOMPLETE))
    result = invoke("sweep", *SMALL)
    assert result.exit_code == 5
    assert "no figures" not in result.stderr
    assert "[a] failed, 6 points: timeout, 5 s" in result.stderr


def test_the_knee_is_told_where_full_was_measured(outcome: SweepOutcome, pretend: Any) -> None:
    """The closing words name where a curve bends; kernels that divide no work have none."""
    # With nothing measured between 16 SMs and the full device the knee could lie anywhere there.
    rows = [replace(row, sms_requested="72", sms_granted=72) if row.sms_granted == 16 else row for row in outcome.rows]
    pretend(returning(replace(outcome, rows=rows)))
    told = [line for line in invoke("sweep", *SMALL, "--no-plots").stderr.splitlines() if "132 SMs" in line and "copy" in line]
    assert len(told) == 1
    without = [row for row in outcome.rows if row.sms_requested != "full"]
    pretend(returning(outcome, rows=without))
    assert not [line for line in invoke("sweep", *SMALL, "--no-plots").stderr.splitlines() if line.startswith("MODELLED: copy")]


def test_a_measured_run_is_not_called_modelled(outcome: SweepOutcome, pretend: Any) -> None:
    """The word stands on modelled runs alone."""
    measured = replace(outcome.meta, device=replace(outcome.meta.device, backend=Backend.CUDA))
    pretend(lambda _, listener: replace(outcome, meta=measured))
    assert "MODELLED" not in invoke("sweep", *SMALL, "--no-plots").stderr


def test_quiet_prints_paths_and_the_result(outcome: SweepOutcome, pretend: Any) -> None:
    """-q: no header, no table, no progress; one line on stderr says how it ended."""
    pretend(returning(outcome))
    result = invoke("sweep", *SMALL, "--no-plots", "-q")
    assert result.stdout.splitlines()[0] == str(outcome.folder)
    assert result.stderr.splitlines() == [f"MODELLED: {outcome.summary}"]


def child(code: str, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start a process that runs `code`, then the command line."""
    program = f"{code}\nfrom greenbench.cli.main import main\nimport sys\nsys.argv = ['greenbench', *{list(arguments)!r}]\nmain()"
    return subprocess.Popen([sys.executable, "-c", program], env=environment(), **streams)


def test_a_closed_pipe_is_quiet() -> None:
    """`greenbench ... | head -1`: whoever reads may leave; no traceback, and never exit 1, which means a regression."""
    reading, writing = os.pipe()
    os.close(reading)
    process = child("", "sweep", "--help", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b"")


@pytest.mark.parametrize("both", ["", "2>&1"])
def test_a_reader_that_leaves_costs_no_result(both: str, tmp_path: Path) -> None:
    """`sweep | head -1`, even with stderr in the same pipe: the run ends as it would, figures included."""
    words = shlex.join([sys.executable, "-m", "greenbench", "sweep", *SMALL, "--out", "run"])
    script = f"({words} {both}; echo $? > code) | head -n 1"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True, timeout=100
    )
    assert (tmp_path / "code").read_text() == "0\n"
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "run" / "plots").glob("*.png"))


def test_a_lost_worker_is_no_closed_pipe() -> None:
    """A BrokenPipeError from inside, while somebody reads, is a bug and not silence."""
    code = "import greenbench.cli.request as r\ndef broken(*_): raise BrokenPipeError(32, 'x')\nr.sweep_request = broken"
    process = child(code, "sweep", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 70
    path = Path(stderr.decode().strip().rpartition(" ")[2])
    assert "BrokenPipeError" in path.read_text()
    path.unlink()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout() -> None:
    """A stdout that takes nothing is a sentence and exit 5, not a traceback."""
    with Path("/dev/full").open("wb") as full:
        process = child("", "--help", stdout=full, stderr=subprocess.PIPE)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 5
    assert stderr.decode().startswith("greenbench: error: cannot write standard output: No space left on device")
    assert stderr.count(b"\n") == 1


def test_a_full_disk_inside(pretend: Any) -> None:
    """The same for an OSError that nobody below has put into words."""
    pretend(raising(OSError(errno.EROFS, "Read-only file system", "/results/rows.csv")))
    result = invoke("sweep", *SMALL)
    assert result.exit_code == 5
    assert result.stderr.startswith("greenbench: error: cannot write /results/rows.csv: Read-only file system")


def test_interrupting_a_real_run_and_resuming_it(tmp_path: Path) -> None:
    """Ctrl-C after the first block: 130 and the paths; --resume, without any other option, then finishes with all rows."""
    line = [
        "sweep",
        "--kernels",
        "copy,triad",
        "--sms",
        "8:132:8",
        *MODEL,
        "--rounds",
        "12",
        "--out",
        str(tmp_path / "run"),
        "--no-plots",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "greenbench", *line], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    journal = tmp_path / "run" / "blocks.csv"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") > 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout.splitlines() == [str(tmp_path / "run"), str(tmp_path / "run" / "rows.csv")]
    resume = stderr.splitlines()[-1].partition("greenbench sweep ")[2]
    assert resume == f"--resume {tmp_path / 'run'}"
    blocks = journal.read_bytes().count(b"\n")
    done = greenbench("sweep", *shlex.split(resume), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert journal.read_bytes().count(b"\n") > blocks
    assert {row.status for row in read_rows(tmp_path / "run")} == {"ok"}


# -- what a request holds ------------------------------------------------------------------------------------------------


def test_options_reach_the_request(outcome: SweepOutcome, pretend: Any, tmp_path: Path) -> None:
    """Every option lands where the experiment looks for it."""
    seen = pretend(returning(outcome))
    line = [
        "sweep",
        "quick",
        *SMALL,
        "--timing",
        "cold",
        "--flush",
        "dirty",
        "--seed",
        "7",
        "--timeout",
        "5",
        "--time-limit",
        "9",
    ]
    more = ["--set", "copy.n=1024,2048", "--connections", "1,8", "--granularity", "2", "--no-yardsticks", "--strict", "--ci"]
    assert invoke(*line, *more, "--out", tmp_path / "o", "--profile", "3", "--no-plots").exit_code == 0
    (request,) = seen
    plan = request.plan
    assert (plan.name, plan.sms.text, plan.timing.value, plan.seed, plan.time_limit_s) == (
        "quick",
        "8,16,full",
        "cold-dirty",
        7,
        9.0,
    )
    assert (plan.connections, plan.granularity, plan.yardsticks, plan.rounds, plan.max_rounds) == ((1, 8), 2, (), 2, 2)
    assert [choice.name for choice in plan.kernels] == ["copy", "null_launch"]
    assert dict(plan.kernels[0].params)["n"] == (1024, 2048)
    assert (request.device, request.out, request.timeout_s, request.profile) == ("model:h200", tmp_path / "o", 5.0, 3)
    assert (request.strict, request.ci, request.resume) == (True, True, None)
    assert request.argv[:4] == ("sweep", "quick", "--kernels", "copy,null_launch")


def test_resuming_takes_plan_and_device_from_the_run(outcome: SweepOutcome, pretend: Any) -> None:
    """--resume alone repeats the plan to the letter, on the device of the run; safe options may be added."""
    seen = pretend(returning(outcome))
    assert invoke("sweep", "--resume", outcome.folder, "--timeout", "7", "--no-plots").exit_code == 0
    (request,) = seen
    assert request.plan.as_dict() == read_meta(outcome.folder / "run.json").plan
    assert (request.device, request.resume, request.timeout_s) == ("model:h200", outcome.folder, 7.0)


def begun(outcome: SweepOutcome, to: Path, *argv: str, **environment: str) -> Path:
    """A copy of the run whose run.json says that it was begun in this way."""
    run = copied(outcome, to)
    write_meta(run / "run.json", replace(read_meta(run / "run.json"), argv=argv, environment=environment))
    return run


def test_resuming_does_not_look_at_the_variables_of_today(
    outcome: SweepOutcome, pretend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Device, kernel folders and profiling are those of the run, also where it took them from variables; an option still wins."""
    seen = pretend(returning(outcome))
    for name, value in {"DEVICE": "cuda:3", "SWEEP_DEVICE": "cuda:4", "KERNELS_DIR": "/nowhere", "SWEEP_PROFILE": "5"}.items():
        monkeypatch.setenv(f"GREENBENCH_{name}", value)
    named = begun(outcome, tmp_path / "named", "sweep", "--device", "model:h200")
    variable = begun(
        outcome, tmp_path / "variable", "sweep", GREENBENCH_DEVICE="model:h100", GREENBENCH_SWEEP_KERNELS_DIR=f"{tmp_path}"
    )
    plain = begun(outcome, tmp_path / "plain", "sweep")
    for run in (named, variable, plain):
        assert invoke("sweep", "--resume", run, "--no-plots").exit_code == 0
    assert invoke("sweep", "--resume", variable, "--device", "cuda:1", "--no-plots").exit_code == 0
    assert [each.device for each in seen] == ["model:h200", "model:h100", "cuda:0", "cuda:1"]
    assert [each.kernel_dirs for each in seen] == [(), (tmp_path,), (), (tmp_path,)]
    assert {each.profile for each in seen} == {None}


def test_how_a_resumed_run_goes_on_may_come_from_a_variable(
    outcome: SweepOutcome, pretend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Timeout, --strict and --ci are no part of what the run is: today's variable counts unless a command line said otherwise."""
    seen = pretend(returning(outcome))
    monkeypatch.setenv("GREENBENCH_SWEEP_TIMEOUT", "9")
    monkeypatch.setenv("GREENBENCH_SWEEP_CI", "1")
    assert invoke("sweep", "--resume", begun(outcome, tmp_path / "a", "sweep"), "--no-plots").exit_code == 0
    line = ("sweep", "--timeout", "8", "--strict")
    assert invoke("sweep", "--resume", begun(outcome, tmp_path / "b", *line), "--no-plots").exit_code == 0
    assert [(each.timeout_s, each.strict, each.ci) for each in seen] == [(9.0, False, True), (8.0, True, True)]


def test_resuming_a_run_that_a_program_began(outcome: SweepOutcome, pretend: Any, tmp_path: Path) -> None:
    """Without a command line of ours the device is the one whose facts are in run.json."""
    seen = pretend(returning(outcome))
    run = begun(outcome, tmp_path / "run", "my_script.py")
    meta = read_meta(run / "run.json")
    write_meta(run / "run.json", replace(meta, device=replace(meta.device, backend=Backend.CUDA, index=2)))
    assert invoke("sweep", "--resume", run, "--no-plots").exit_code == 0
    assert seen[0].device == "cuda:2"


@pytest.mark.parametrize("option", [["--sms", "8"], ["--rounds", "9"], ["--out", "x"], ["--profile", "1"], ["ci"]], ids=" ".join)
def test_resuming_refuses_another_plan(option: list[str], outcome: SweepOutcome, pretend: Any) -> None:
    """What would make it another run is refused by name, before anything happens."""
    seen = pretend(returning(outcome))
    result = invoke("sweep", *option, "--resume", outcome.folder)
    assert (result.exit_code, seen) == (2, [])
    assert option[0] in result.stderr
    assert "--resume" in result.stderr


def test_resuming_what_is_no_run(tmp_path: Path) -> None:
    """A folder without run.json, and a run.json of something else, are named in exit 2."""
    assert "run.json" in invoke("sweep", "--resume", tmp_path).stderr
    (tmp_path / "run.json").write_text("{}")
    result = invoke("sweep", "--resume", tmp_path)
    assert result.exit_code == 2
    assert "run.json" in result.stderr


def test_variables_stand_for_options(outcome: SweepOutcome, pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """GREENBENCH_SWEEP_* and the shared GREENBENCH_DEVICE reach the request; an option wins over both."""
    seen = pretend(returning(outcome))
    monkeypatch.setenv("GREENBENCH_DEVICE", "model:a100")
    monkeypatch.setenv("GREENBENCH_SWEEP_SMS", "8")
    monkeypatch.setenv("GREENBENCH_SWEEP_NO_PLOTS", "1")
    monkeypatch.setenv("GREENBENCH_SWEEP_JSON", "1")
    result = invoke("sweep", "--kernels", "copy")
    assert json.loads(result.stdout)["plots"] == []
    invoke("sweep", "--kernels", "copy", "--device", "model:h100", "--sms", "16")
    assert [(each.device, each.plan.sms.text) for each in seen] == [("model:a100", "8"), ("model:h100", "16")]


# -- plot ----------------------------------------------------------------------------------------------------------------


def copied(outcome: SweepOutcome, to: Path) -> Path:
    """A copy of the run's files, without its figures."""
    to.mkdir(parents=True)
    for name in ("run.json", "rows.csv", "blocks.csv"):
        (to / name).write_bytes((outcome.folder / name).read_bytes())
    return to


def test_plot_prints_what_it_draws(outcome: SweepOutcome, tmp_path: Path) -> None:
    """Figures as PNG and SVG below the run, their paths on stdout, stderr empty."""
    run = copied(outcome, tmp_path / "run")
    result = invoke("plot", run)
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (0, "")
    assert {path.parent for path in paths} == {run / "plots"}
    assert sorted(paths) == sorted((run / "plots").iterdir())
    assert {path.suffix for path in paths} == {".png", ".svg"}


def test_plots_of_several_runs_keep_apart(outcome: SweepOutcome, tmp_path: Path) -> None:
    """With --out, each run has its own folder, so that no figure overwrites another."""
    runs = [copied(outcome, tmp_path / "one"), copied(outcome, tmp_path / "two")]
    result = invoke("plot", *runs, "--out", tmp_path / "figures", "--json")
    plots = json.loads(result.stdout)["plots"]
    assert list(plots) == [str(run) for run in runs]
    assert {Path(path).parent for paths in plots.values() for path in paths} == {
        tmp_path / "figures" / name for name in ("one", "two")
    }


def test_runs_of_the_same_name_keep_apart_too(outcome: SweepOutcome, tmp_path: Path) -> None:
    """Two runs called `run` get a folder each; the same run written in two ways is one."""
    runs = [copied(outcome, tmp_path / name / "run") for name in ("a", "b")]
    again = tmp_path / "a" / ".." / "b" / "run"
    result = invoke("plot", *runs, again, "--out", tmp_path / "figures", "--json")
    plots = json.loads(result.stdout)["plots"]
    folders = [{Path(path).parent for path in paths} for paths in plots.values()]
    assert folders == [{tmp_path / "figures" / "run"}, {tmp_path / "figures" / "run-2"}]
    assert len({path for paths in plots.values() for path in paths}) == 2 * len(plots[str(runs[0])])


@pytest.mark.parametrize(
    ("names", "own"),
    [
        (["a", "b"], ["a", "b"]),
        (["run", "run", "run"], ["run", "run-2", "run-3"]),
        (["run", "run", "run-2"], ["run", "run-3", "run-2"]),
        (["run-2", "run", "run", "run-2"], ["run-2", "run", "run-3", "run-2-2"]),
    ],
)
def test_names_of_runs(names: list[str], own: list[str]) -> None:
    """A number is put behind a name that an earlier run has, never one that makes it another run's name."""
    assert own_names(names) == own


def test_plot_notices_rows_that_are_older_than_the_journal(tmp_path: Path) -> None:
    """A run that was killed (-9) after it had been resumed: its rows.csv is of the first part, and the figures are not."""
    run = tmp_path / "run"
    arguments = ("sweep", "--kernels", "copy", "--sms", "8,16", *MODEL, "--out", run, "--no-plots")
    assert invoke(*arguments, "--rounds", "2").exit_code == 0
    first = (run / "rows.csv").read_bytes()
    journal = (run / "blocks.csv").read_bytes().splitlines(keepends=True)
    assert invoke("plot", run).stderr == ""
    # What a resumed run had appended when it was killed: one more block of the last point.
    last = next(line for line in reversed(journal) if line.split(b",")[1] == b"block").split(b",")
    last[0], last[2] = b"%d" % len(journal), b"3"
    (run / "blocks.csv").write_bytes(b"".join([*journal, b",".join(last)]))
    result = invoke("plot", run)
    assert result.exit_code == 0
    assert f"{run}/rows.csv is older than blocks.csv (1 of 2 rows differ); the rows are derived from blocks.csv" in result.stderr
    assert (run / "rows.csv").read_bytes() == first, "a reader changes nothing"
    assert sorted(row.rounds or 0 for row in read_run(run).rows) == [2, 3]


def test_plot_of_a_damaged_journal_beside_whole_rows(outcome: SweepOutcome, tmp_path: Path) -> None:
    """The rows are there, so they are drawn, and it is said that nothing could be checked."""
    run = copied(outcome, tmp_path / "run")
    (run / "blocks.csv").write_text("a,b\n1,2\n")
    result = invoke("plot", run)
    assert result.exit_code == 0
    assert "blocks.csv is not a journal" in result.stderr
    assert "rows.csv is taken as it is" in result.stderr


def test_plot_of_a_run_that_was_cut_off(outcome: SweepOutcome, tmp_path: Path) -> None:
    """Without rows.csv the rows come from the journal, and it is said."""
    run = copied(outcome, tmp_path / "run")
    (run / "rows.csv").unlink()
    result = invoke("plot", run)
    assert result.exit_code == 0
    assert result.stdout
    assert "derived from blocks.csv" in result.stderr


def test_plot_leaves_a_gap_for_a_point_without_time(outcome: SweepOutcome, tmp_path: Path) -> None:
    """H21: an ok row with an empty time draws as a gap; nothing fails and no nan is printed."""
    run = copied(outcome, tmp_path / "run")
    lines = (run / "rows.csv").read_text().splitlines(keepends=True)
    header = lines[0].strip().split(",")
    rows = read_rows(run)
    figures = [name for name in header if isinstance(getattr(rows[1], name), float)]
    empty = replace(rows[1], **dict.fromkeys(figures))
    from greenbench.runfiles import write_rows

    write_rows(run / "rows.csv", [rows[0], empty, *rows[2:]])
    result = invoke("plot", run)
    assert result.exit_code == 0, result.stderr
    assert "nan" not in result.output


@pytest.mark.parametrize("wreck", ["missing", "file", "no_meta", "bad_meta", "bad_rows", "no_rows"])
def test_plot_of_what_is_no_run(wreck: str, outcome: SweepOutcome, tmp_path: Path) -> None:
    """Exit 2 and one line that names the file; a good run on the same line is not drawn before that."""
    good, bad = copied(outcome, tmp_path / "good"), tmp_path / "bad"
    if wreck == "file":
        bad.write_text("x")
    elif wreck != "missing":
        copied(outcome, bad)
        if wreck == "no_meta":
            (bad / "run.json").unlink()
        elif wreck == "bad_meta":
            (bad / "run.json").write_text("{")
        elif wreck == "bad_rows":
            (bad / "rows.csv").write_text("a,b\n1,2\n")
        else:
            (bad / "rows.csv").write_text((bad / "rows.csv").read_text().splitlines(keepends=True)[0])
    result = invoke("plot", good, bad)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert str(bad) in result.stderr or bad.name in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (good / "plots").exists()


def test_plot_imports_no_cuda(outcome: SweepOutcome, tmp_path: Path) -> None:
    """H08: plot works where `cuda` and `cupy` cannot be imported."""
    run = copied(outcome, tmp_path / "run")
    blocked = "import sys; sys.modules.update(dict.fromkeys(['cuda', 'cupy', 'nvtx', 'pynvml']))"
    process = child(blocked, "plot", str(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stdout, stderr = process.communicate(timeout=100)
    assert (process.returncode, stderr) == (0, b"")
    assert stdout


def test_plot_where_figures_cannot_be_written(outcome: SweepOutcome, tmp_path: Path) -> None:
    """A target that is a file is a sentence, not a traceback."""
    run = copied(outcome, tmp_path / "run")
    (run / "plots").write_text("in the way")
    result = invoke("plot", run)
    assert result.exit_code == 5
    assert str(run / "plots") in result.stderr


# -- devices -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch, outcome: SweepOutcome) -> Callable[..., None]:
    """Put a survey in place of the worker's."""
    from greenbench import worker

    def install(obstacle: errors.MachineError | None = None, **changes: Any) -> None:
        facts = replace(outcome.meta.device, backend=Backend.CUDA, uuid="GPU-12", driver="580.159.04", nvrtc="13.0")
        report: dict[str, Any] = {
            "facts": facts,
            "green": "",
            "workqueue": "workqueue configuration needs driver 13.1, this is 13.0",
            "mps": "",
            "mig": "",
            "allowance": "",
            "processes": (),
            "others": 0,
            "clocks": Evidence(sm_clock_mhz=345.0, power_w=76.4, temperature_c=31.0),
            "sizes_hint": "8 to 132 in steps of 8",
        }
        devices = () if changes.get("devices") == () else (worker.DeviceReport(**(report | changes)),)
        monkeypatch.setattr(worker, "survey", lambda spec=None: worker.Survey(devices, obstacle))

    return install


def test_devices_tells_what_works_and_why_not(surveyed: Any) -> None:
    """One block per GPU on stdout: what it is, what it can do, and the reason where it cannot."""
    surveyed(processes=(4711, 4712), others=1)
    result = invoke("devices")
    assert result.exit_code == 0
    text = {line[2:18].strip(): line[20:] for line in result.stdout.splitlines()[1:]}
    assert result.stdout.startswith("cuda:0  ")
    assert "GPU-12" in result.stdout.splitlines()[0]
    assert text["workqueues"] == "no: workqueue configuration needs driver 13.1, this is 13.0"
    assert text["green contexts"] == "yes"
    assert text["partitions"] == "8 to 132 in steps of 8"
    assert text["driver"].startswith("580.159.04 (CUDA 13.0)")
    assert text["clocks"].startswith("SM 345 of at most")
    assert text["power"].startswith("76 W")
    assert text["other processes"].startswith("1 beside greenbench (of 4711, 4712)")
    assert "may not measure" not in text


def test_devices_as_json(surveyed: Any) -> None:
    """--json gives facts and obstacles to a machine."""
    surveyed()
    answer = json.loads(invoke("devices", "--json").stdout)
    assert answer["obstacle"] == ""
    assert answer["devices"][0]["facts"]["sm_count"] == 132
    assert answer["devices"][0]["workqueue"].startswith("workqueue configuration needs")


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_devices_without_a_driver(as_json: list[str], surveyed: Any) -> None:
    """H09: exit 4 and one line on stderr; with --json the same reason inside the object."""
    surveyed(errors.NoDriverError("no NVIDIA driver (libcuda.so.1): install one"), devices=())
    result = invoke("devices", *as_json)
    assert result.exit_code == 4
    assert result.stderr == "greenbench: error: no NVIDIA driver (libcuda.so.1): install one\n"
    if as_json:
        assert json.loads(result.stdout) == {"devices": [], "obstacle": "no NVIDIA driver (libcuda.so.1): install one"}
    else:
        assert result.stdout == ""


def test_devices_shows_a_modelled_one(tmp_path: Path) -> None:
    """A modelled device needs no driver, and its heading says what it is."""
    done = greenbench("devices", "--device", "model:h200@13.1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("MODELLED  ")
    assert "  workqueues        yes\n" in done.stdout


# -- terminal, CI, completion --------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, cwd: Path, **more: str) -> str:
    """What a pseudo-terminal of 100 columns is sent."""
    import pty
    from fcntl import ioctl
    from struct import pack
    from termios import TIOCSWINSZ

    mine, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", 40, 100, 0, 0))
    env = {
        name: value
        for name, value in environment(**{"TERM": "xterm", **more}).items()
        if name not in {"CI", "NO_COLOR"} or name in more
    }
    process = subprocess.Popen([sys.executable, "-m", "greenbench", *arguments], cwd=cwd, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    sent = b""
    while True:
        try:
            chunk = os.read(mine, 65536)
        except OSError:
            break
        if not chunk:
            break
        sent += chunk
    os.close(mine)
    assert process.wait(timeout=100) == 0
    return sent.decode()


QUICK = ("sweep", "--kernels", "copy", "--sms", "8,16", "--rounds", "3", *MODEL, "--no-plots")


def test_a_terminal_gets_colour_and_a_bar(tmp_path: Path) -> None:
    """On a terminal: escape sequences, a bar that hides the cursor and shows it again."""
    sent = on_a_terminal(*QUICK, cwd=tmp_path)
    assert "━" in sent
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h") == 1
    assert "\x1b[1m" in sent


def test_no_color_leaves_the_bar_and_drops_the_colours(tmp_path: Path) -> None:
    """NO_COLOR: no colour codes (30-37, 90-97); the bar still moves."""
    import re

    sent = on_a_terminal(*QUICK, cwd=tmp_path, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*\b(3[0-7]|9[0-7]|38|48)[0-9;]*m", sent)
    assert "━" in sent


@pytest.mark.parametrize("more", [{"CI": "true"}, {"TERM": "dumb"}], ids=str)
def test_ci_and_dumb_terminals_get_plain_lines(more: dict[str, str], tmp_path: Path) -> None:
    """CI=true or a dumb terminal: no escape sequence at all."""
    assert "\x1b" not in on_a_terminal(*QUICK, cwd=tmp_path, **more)


def completions(words: str, shell: str = "bash") -> list[str]:
    """What the shell would offer for the last word."""
    parts = words.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "greenbench"],
        env=environment(_GREENBENCH_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=str(len(parts) - 1)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("greenbench sw", {"sweep", "switch"}),
        ("greenbench sweep qu", {"quick"}),
        ("greenbench sweep --kernels tri", {"triad"}),
        ("greenbench sweep --kernels copy,tri", {"copy,triad"}),
        ("greenbench sweep --timing st", {"steady"}),
        ("greenbench sweep --workqueue bal", {"balanced"}),
        ("greenbench sweep --device model:h1", {"model:h100"}),
        ("greenbench sweep --max", {"--max-rounds"}),
        ("greenbench completion f", {"fish"}),
    ],
)
def test_completion(words: str, offered: set[str]) -> None:
    """Commands, options, plans, kernels (also after a comma), devices and words complete."""
    assert set(completions(words)) == offered


def test_a_kernel_is_not_offered_twice() -> None:
    """What stands before the comma is taken."""
    assert "copy,copy" not in completions("greenbench sweep --kernels copy,")


def test_own_probes_are_not_offered() -> None:
    """What greenbench flushes and times with is in the library, but not for the user to choose."""
    offered = completions("greenbench sweep --kernels ")
    assert "chase" in offered
    assert not {"census", "clock", "flush_read", "flush_write", "gate"} & set(offered)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    """Each script names the program and the variable that the program listens to."""
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_GREENBENCH_COMPLETE" in result.stdout
    assert "greenbench" in result.stdout


def test_rows_of_the_fixture_are_whole(outcome: SweepOutcome) -> None:
    """The run that the tests above lean on is what they take it for: six ok rows of a modelled device."""
    rows: list[Row] = outcome.rows
    assert [(row.status, row.backend) for row in rows] == [("ok", "modelled")] * 6
    assert [row.label for row in rows] == [row.label for row in read_rows(outcome.folder)]


def test_kernels_without_the_yardsticks_of_an_option_are_noted() -> None:
    """Their rows would be missed after the run; on stderr, once, and not where -q asked for errors only."""
    arguments = ["sweep", "--kernels", "gemm_bf16,copy,chase", "--sms", "8", "--device", "model:h200", "--dry-run"]
    note = "note: --yardsticks cublas: copy, chase cannot be measured so\n"
    assert invoke(*arguments, "--yardsticks", "cublas").stderr.count(note) == 1
    assert "cannot be measured so" not in "".join(
        invoke(*arguments, *more).stderr for more in ([], ["--yardsticks", "all"], ["--yardsticks", "cublas", "-q"])
    )
