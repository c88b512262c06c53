"""`greenbench nsys` around a stand-in for nsys that behaves in each way that the real one has been seen to."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from greenbench.cli import nsys as command
from greenbench.cli.main import cli
from greenbench.errors import IncompleteError, MachineError, MissingPackageError
from greenbench.nsight import guardian, line, tool
from greenbench.nsight.line import Part
from greenbench.runfiles import read_corows, read_meta, read_rows
from greenbench.timeline import export as exporting
from tests.nsys_export import Export

ROOT = Path(__file__).parents[1]
FAKE = Path(__file__).parent / "data" / "nsys" / "fake_nsys.py"
MODEL = ("--device", "model:h200")
SWEEP = ("sweep", "--kernels", "triad", "--set", "n=1048576", "--sms", "8,16", "--no-yardsticks", *MODEL)
LABELS = tuple(f"triad[n=1048576,s=3.0]@{sms}/driver_default/graph" for sms in (8, 16))


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named nsys, first on PATH, with its behaviour in FAKE_NSYS; the working folder is a new one."""
    folder = tmp_path / "tools"
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_PIDS", str(tmp_path / "pids"))
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    # The stand-in records what it is given, so that the command under it may run on the model.
    monkeypatch.setattr(command, "refuse_modelled", lambda device, tool: None)
    monkeypatch.chdir(tmp_path)
    return program


def recorded(path: Path, *names: str, stray: bool = False) -> Path:
    """An export as nsys makes it of a sweep: for each name a range of a point with a flush and a kernel in a green context."""
    export = Export()
    for number, name in enumerate(("sweep", "kernel", "workload", "setup"), 1):
        export.add(
            "NVTX_EVENTS", start=0, eventType=33, category=number, text=name, globalTid=(1 << 48) | (1000 << 24), domainId=1
        )
    at = 10_000
    for place, name in enumerate(names):
        export.range(name, at, at + 40_000, category=2, uint64Value=1 << 16 | 8 * (place + 1))
        export.range("flush", at + 1_000, at + 9_000, category=4)
        export.kernel(at + 20_000, at + 22_000, green=0, launched=at + 2_000, name="flush_write")
        export.kernel(at + 30_000, at + 60_000, green=2 + place, launched=at + 12_000, name="triad")
        if stray:
            export.kernel(at + 30_000, at + 40_000, green=0, launched=at + 20_000, name="lost")
        at += 100_000
    return export.write(path)


def run(*arguments: str | Path) -> Result:
    """Run the command in this process; what nsys itself writes goes to the descriptor behind stderr."""
    return CliRunner().invoke(cli, ["nsys", *map(str, arguments)])


def behaves(monkeypatch: pytest.MonkeyPatch, behaviour: str, **more: str) -> None:
    """Choose what the stand-in does."""
    for name, value in {"FAKE_NSYS": behaviour, **more}.items():
        monkeypatch.setenv(name, value)


def one_sentence(result: Result, code: int, *words: str) -> None:
    """The exit code, and one last line on stderr with these words in it; no traceback."""
    assert result.exit_code == code, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("greenbench: error: ")
    for word in words:
        assert word in last
    assert "Traceback" not in result.output


def test_a_sweep_under_nsys(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line, run, report, export, proof and analysis: paths come last on stdout, rows are flagged, and `timeline RUN` reads it."""
    behaves(monkeypatch, "records", FAKE_EXPORT=str(recorded(tmp_path / "made.sqlite", "measuring", *LABELS)))
    done = run("--scrub", "shown.sqlite", "--", *SWEEP)
    assert done.exit_code == 0, done.output
    folder, report, database, shown = map(Path, done.stdout.splitlines()[-4:])
    assert (report, database, shown) == (folder / "nsys.nsys-rep", folder / "nsys.sqlite", Path("shown.sqlite"))
    assert all(path.stat().st_size for path in (report, database, shown))
    assert "greenbench:" + LABELS[0] in done.stdout
    for words in (
        f"{nsys} profile --trace=cuda,nvtx",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
        "--nvtx-capture=measuring@greenbench",
        "note: one round",
        "2 points with their ranges, 2 of them with all kernels in one green context; 0 stray kernels",
        "hold the environment, host, user and command lines",
    ):
        assert words in done.stderr
    meta = read_meta(folder / "run.json")
    assert meta.profiled
    assert meta.argv[:3] == ("sweep", "--rounds", "1")
    assert [row.label for row in read_rows(folder)] == list(LABELS)
    assert all("profiled" in row.flags.split(";") for row in read_rows(folder))
    assert not (folder / "plots").exists()
    assert sorted(each.name for each in folder.parent.iterdir()) == [folder.name]
    read = CliRunner().invoke(cli, ["timeline", str(folder)])
    assert (read.exit_code, "flush_write" in read.output) == (0, False)


def test_the_report_is_compared_with_the_run(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point without its range is named and ends with 5, after the analysis of what is there; JSON holds it too."""
    behaves(monkeypatch, "records", FAKE_EXPORT=str(recorded(tmp_path / "made.sqlite", LABELS[0], stray=True)))
    done = run("-o", "x", "--json", "--", *SWEEP, "--out", "run")
    one_sentence(done, 5, "1 of 2 points have no range with kernels in the report", LABELS[1])
    found = json.loads(done.stdout)
    assert LABELS[1] in found["problem"]
    assert found["stray_kernels"] == 1
    assert found["proof"] == ""
    assert found["written"] == [str(tmp_path / "run"), str(tmp_path / "x.nsys-rep"), str(tmp_path / "x.sqlite")]


def test_points_beyond_what_is_analysed(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that the analysis leaves out for their number are not missing from the report."""
    monkeypatch.setattr("greenbench.timeline.ranges.MOST_RANGES", 1)
    behaves(monkeypatch, "records", FAKE_EXPORT=str(recorded(tmp_path / "made.sqlite", *LABELS)))
    done = run("-o", "x", "--", *SWEEP, "--out", "run")
    assert done.exit_code == 0, done.output
    assert "more names of ranges" in done.stderr
    assert "2 points with their ranges" in done.stderr


@pytest.mark.parametrize(
    ("behaviour", "more", "code", "words"),
    [
        ("nothing", {}, 5, ("ended as if all were well, but wrote no", "No reports were generated", "--capture all")),
        ("empty", {}, 5, ("ended as if all were well, but wrote no",)),
        ("refuses", {}, 5, ("ended with 1, and there is no report", "unrecognised option")),
        ("crashes", {}, 5, ("died of SIGSEGV",)),
        ("hangs", {}, 5, ("did not end within 1 s", "--timeout")),
        ("code", {"FAKE_CODE": "4"}, 4, ("ended with 4",)),
        ("code", {"FAKE_CODE": "2"}, 2, ("ended with 2",)),
        ("code", {"FAKE_CODE": "77"}, 5, ("ended with 77",)),
        ("leaves", {"FAKE_CLOSED": "1"}, 2, ("was refused by", "newer")),
        ("leaves", {"FAKE_VERSION": "2024.2.3.38"}, 4, ("records no ranges of nvtx", "nsys >= 2025.3")),
        ("leaves", {"FAKE_VERSION": "2022.4.2.1"}, 4, ("cannot tell green contexts",)),
    ],
)
def test_what_nsys_does_wrong(
    nsys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: str,
    more: dict[str, str],
    code: int,
    words: tuple[str, ...],
) -> None:
    """Each failure is one sentence; no process is left, and an earlier report of that name stays what it was."""
    monkeypatch.setattr("greenbench.nsight.guardian.TERM_S", 0.3)
    made = recorded(tmp_path / "made.sqlite", *LABELS)
    behaves(monkeypatch, behaviour, FAKE_EXPORT=str(made), **more)
    for name in ("x.nsys-rep", "x.sqlite"):
        (tmp_path / name).write_text("old", encoding="utf-8")
    one_sentence(run("-o", "x", "--timeout", "1", "--", *SWEEP), code, *words)
    assert (tmp_path / "x.sqlite").read_text(encoding="utf-8") == "old"
    if not more.get("FAKE_CLOSED"):
        assert (tmp_path / "x.nsys-rep").read_text(encoding="utf-8") == "old"
    assert not list(tmp_path.glob("*.before"))
    if behaviour in ("crashes", "hangs"):
        assert not [pid for pid in map(int, (tmp_path / "pids").read_text().split()) if alive(pid)]


def alive(pid: int) -> bool:
    """True for a process that runs; one that has ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_ctrl_c_ends_everything(nsys: Path, tmp_path: Path) -> None:
    """SIGTERM, as Ctrl-C, ends nsys, its daemon and the command with 130 and one line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_NSYS": "hangs"}
    program = (
        "import greenbench.cli.nsys as command; command.refuse_modelled = lambda *_: None\n"
        "import greenbench.nsight.running as running; running.INTERRUPT_S = 0.3\n"
        "import greenbench.nsight.guardian as guardian; guardian.TERM_S = 0.3\n"
        f"import sys; sys.argv = ['greenbench', 'nsys', '--', *{list(SWEEP)!r}]\n"
        "from greenbench.cli.main import main; main()"
    )
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told
    assert told.splitlines()[-1].startswith("greenbench: interrupted; nsys and all that it had started is ended")
    assert not [pid for pid in map(int, (tmp_path / "pids").read_text().split()) if alive(pid)]


def started(tmp_path: Path, behaviour: str, setting: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own that ignores Ctrl-C, as one in a shell's background does; nsys is running."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_NSYS": behaviour}
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import greenbench.cli.nsys as command; command.refuse_modelled = lambda *_: None\n"
        f"import greenbench.nsight.running as running; {setting}\n"
        f"import sys; sys.argv = ['greenbench', 'nsys', '--', *{list(SWEEP)!r}]\n"
        "from greenbench.cli.main import main; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL, text=True)
    assert until(lambda: len(pids(tmp_path)) == 2)
    return process


def pids(tmp_path: Path) -> list[int]:
    """The stand-in and the daemon that it has started, once both are there."""
    path = tmp_path / "pids"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def until(true: Callable[[], bool]) -> bool:
    """Wait for what must come; False where it does not."""
    deadline = time.monotonic() + 30
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_nsys_that_listens_is_not_waited_for(nsys: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C reaches an nsys whose parent ignores it, so that the wait, endless here, is over at once."""
    with started(tmp_path, "waits", "running.INTERRUPT_S = 600") as process:
        process.send_signal(number)
        process.wait(timeout=30)
    assert process.returncode == 130
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


@pytest.mark.parametrize("behaviour", ["waits", "hangs"])
def test_a_kill_leaves_nothing(nsys: Path, tmp_path: Path, behaviour: str) -> None:
    """SIGKILL of greenbench ends nsys, whatever that ignores, and its daemon in another session."""
    with started(tmp_path, behaviour, "pass") as process:
        assert all(alive(pid) for pid in pids(tmp_path))
        process.kill()
    assert until(lambda: not [pid for pid in pids(tmp_path) if alive(pid)])


def test_the_guardian_goes_with_the_run() -> None:
    """A run that is done dismisses its guardian, and nothing that lives is ended by it; the mark alone finds what is left."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, guardian.MARK: "t"})
    try:
        with guardian.guarded("t") as guard:
            guard.watch(guardian.NO_SESSION)
        assert guard._process.returncode == 0
        assert alive(bystander.pid)
        assert until(lambda: guardian.living("t", guardian.NO_SESSION) == {bystander.pid})
        guardian.end_all("t", guardian.NO_SESSION)
        assert bystander.wait(30) == -signal.SIGTERM
    finally:
        bystander.kill()
        bystander.wait()


def test_nsys_by_a_relative_path(nsys: Path, tmp_path: Path) -> None:
    """./nsys is the one in this folder, and not looked for on PATH."""
    (tmp_path / "mine").symlink_to(nsys)
    done = run("--nsys", "./mine", "--dry-run", "-o", "x", "--", *SWEEP)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{tmp_path}/mine profile ")
    assert "PATH" not in done.stderr
    one_sentence(run("--nsys", "", "--dry-run", "--", *SWEEP), 2, "--nsys '' names nothing")


def test_what_a_report_would_replace(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that is a FIFO and a copy in the place of the report are refused; a link to an earlier report stays a link."""
    os.mkfifo(tmp_path / "f.sqlite")
    one_sentence(run("-o", "f", "--", *SWEEP), 2, "f.sqlite is no file but a FIFO")
    one_sentence(run("-o", "x", "--scrub", "x.sqlite", "--", *SWEEP), 2, "--scrub x.sqlite would replace the report's export")
    one_sentence(run("--scrub", "r/nsys.sqlite", "--", *SWEEP, "--out", "r"), 2, "would replace the report's export")
    made = recorded(tmp_path / "made.sqlite", LABELS[0])
    behaves(monkeypatch, "records", FAKE_EXPORT=str(made))
    (tmp_path / "kept").write_text("old", encoding="utf-8")
    (tmp_path / "x.sqlite").symlink_to("kept")
    assert run("-o", "x", "--", *SWEEP, "--out", "run").exit_code == 5, "one point has no range"
    assert (tmp_path / "x.sqlite").is_symlink()
    assert (tmp_path / "kept").read_bytes() == made.read_bytes()


def test_without_kernels(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without kernels is 5 whatever nsys said; a command's own 4 stands."""
    export = Export()
    export.range("measuring", 0, 10_000)
    made = export.write(tmp_path / "made.sqlite")
    behaves(monkeypatch, "leaves", FAKE_EXPORT=str(made))
    one_sentence(run("-o", "x", "--", *SWEEP), 5, "valid but empty capture")
    behaves(monkeypatch, "leaves", FAKE_EXPORT=str(made), FAKE_CODE="4")
    done = run("-o", "x", "--", "sweep", "--sms", "8")
    assert (done.exit_code, "ended with 4 before it launched a kernel" in done.stderr) == (4, True)


def test_the_code_of_the_command_is_handed_on(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a good report of roles the exit code is that of the command under nsys."""
    export = Export()
    export.add("NVTX_EVENTS", start=0, eventType=33, category=3, text="workload", globalTid=(1 << 48) | (1000 << 24), domainId=1)
    export.range("green@16+116", 0, 50_000, category=3)
    export.kernel(60_000, 90_000, launched=10_000)
    behaves(monkeypatch, "leaves", FAKE_EXPORT=str(export.write(tmp_path / "made.sqlite")), FAKE_CODE="5")
    done = run("-o", "y.nsys-rep", "--", "colocate", *MODEL)
    assert done.exit_code == 5
    assert "1 mechanism recorded, 0 stray kernels" in done.stderr
    assert "the colocate under nsys 2025.3.2 ended with 5" in done.stderr
    assert "--nvtx-capture" not in done.stderr, "several processes: there is no one range to wait for"
    assert (tmp_path / "y.sqlite").is_file()
    bare = Export()
    bare.kernel(60_000, 90_000)
    behaves(monkeypatch, "leaves", FAKE_EXPORT=str(bare.write(tmp_path / "bare.sqlite")))
    one_sentence(run("-o", "z", "--", "switch", *MODEL), 5, "no range of domain greenbench")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("behind --: greenbench nsys -- sweep --sms 8,16",)),
        (("sweep", "--sms", "8"), ("behind --: greenbench nsys -- sweep",)),
        (("--", "plot"), ("'plot' cannot be run under nsys", "sweep, colocate or switch")),
        (("--", "sweep", "--smz", "8"), ("--smz",)),
        (("--", "sweep", "--dry-run"), ("put it before --",)),
        (("--", "sweep", "--resume", "x"), ("begin a new run",)),
        (("--", "sweep", "--trace"), ("CUPTI serves one client",)),
        (("-o", "a%b", "--", "sweep"), ("percent sign",)),
        (("-o", ".", "--", "sweep"), ("is a folder",)),
        (("--timeout", "soon", "--", "sweep"), ("--timeout",)),
        (("stray", "--", "sweep"), ("'stray' is no option",)),
    ],
)
def test_a_wrong_line(nsys: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    """What is wrong with either command is said before nsys is started."""
    one_sentence(run(*arguments), 2, *words)


def test_no_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without nsys: exit 4, with how to get it; a name that is none says where it came from."""
    monkeypatch.setattr(exporting, "PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    one_sentence(run("--", "sweep"), 4, "there is no nsys on PATH", "install Nsight Systems", "Nsight Compute brings a copy")
    one_sentence(run("--nsys", "/nowhere/nsys", "--", "sweep"), 4, "--nsys names '/nowhere/nsys'")
    monkeypatch.setenv("GREENBENCH_NSYS", "/gone/nsys")
    one_sentence(run("--", "sweep"), 4, "GREENBENCH_NSYS names '/gone/nsys'")


def test_the_line_without_an_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--dry-run starts nothing, so that it needs none: the line has a placeholder, a note says so, and the code is 0."""
    monkeypatch.setattr(exporting, "PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = run("--dry-run", "-o", "x", "--", "sweep", "--sms", "8")
    assert done.exit_code == 0
    assert done.stdout.startswith("nsys profile --trace=cuda,nvtx ")
    assert "note: greenbench nsys needs nsys, and there is no nsys on PATH" in done.stderr
    assert "nsys stands for it in the line" in done.stderr
    assert "  --cuda-graph-trace=node: " in done.stderr


@pytest.mark.parametrize("words", [("sweep",), ("colocate",), ("switch",)])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_modelled_device_has_nothing_to_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """It is refused before nsys is looked for, as ncu does."""
    monkeypatch.setenv("PATH", str(tmp_path))
    one_sentence(run(*more, "--", *words, *MODEL), 2, "--device model:h200", "nothing runs, so nsys sees nothing")


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (
            "echo 'nsys: error while loading shared libraries: libdw.so.1: cannot open' >&2; exit 127",
            MissingPackageError,
            "lacks libdw.so.1: install libdw1",
        ),
        ("echo broken; exit 3", MissingPackageError, "does not start (exit 3): broken"),
        ("sleep 5", IncompleteError, "gave no answer"),
    ],
)
def test_an_nsys_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, error: type[Exception], words: str
) -> None:
    """A library that is missing is named with its package; what hangs is given up."""
    monkeypatch.setattr(tool, "ANSWER_S", 0.3)
    program = tmp_path / "nsys"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        tool.find(str(program))


def test_where_nsys_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest copy inside Nsight Compute, by numbers; Nsight Systems itself comes before it, the copy beside ncu last."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def put(place: str) -> str:
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    old = put("opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys")
    new = put("opt/nvidia/nsight-compute/2025.10.0/host/target-linux-x64/nsys")
    put("bin/ncu")
    beside = put("host/target-linux-x64/nsys")
    assert list(exporting.installed(tmp_path)) == [new, old, beside]
    own = put("opt/nvidia/nsight-systems/2024.1.1/bin/nsys")
    assert next(exporting.installed(tmp_path)) == own


@given(st.tuples(st.integers(2000, 2099), st.integers(0, 99), st.integers(0, 9)), st.text(max_size=20), st.booleans())
def test_versions_are_read(version: tuple[int, ...], rest: str, short: bool) -> None:
    """The year, the release and the patch are read from whatever stands around them; other text holds no version."""
    shown = tool.shown(version[:2] if short else version)
    found = tool.parse_version(f"NVIDIA Nsight Systems version {shown}-{rest}")
    assert found == ((*version[:2], 0) if short else version)
    assert tool.parse_version("".join(c for c in rest if not c.isdigit())) == ()


def test_which_nsys_sees_which_nvtx() -> None:
    """Known blind pairs are refused, known good ones pass without a word, and what nobody has tried is doubted."""

    def doubt(nsys: tuple[int, ...], nvtx: tuple[int, ...]) -> str:
        return tool.refuse_blind(tool.Nsys(Path("nsys"), nsys), nvtx)

    assert doubt((2025, 3, 2), (0, 2, 17)) == doubt((2024, 2, 3), (0, 2, 11)) == ""
    assert "not known" in doubt((2024, 6, 2), (0, 2, 12))
    assert "says no version" in doubt((), (0, 2, 17))
    for nsys, nvtx in (((2024, 2, 3), (0, 2, 12)), ((2023, 3, 9), (0, 2, 11)), ((2025, 3, 2), ())):
        with pytest.raises(MachineError):
            doubt(nsys, nvtx)


SPELLINGS = (
    "-t cuda",
    "--trace=cuda",
    "--sample=cpu",
    "-s cpu",
    "-e A=B",
    "--capture-range=none",
    "-c none",
    "--gpuctxsw=true",
    "-p x@y",
)


@given(st.lists(st.sampled_from(SPELLINGS), unique=True), st.sampled_from(Part))
def test_what_the_user_sets_is_not_set_again(chosen: list[str], part: Part) -> None:
    """nsys refuses a flag that is given twice, so a user's flag replaces ours in any spelling; --env-var adds up."""
    own = [word for spelling in chosen for word in spelling.split()]
    theirs = {line._LONG.get(word, word.partition("=")[0]) for word in own if word.startswith("-")}
    ours = [flag.name for flag in line.flags(part, own)]
    assert len(set(ours)) == len(ours)
    assert theirs & set(ours) <= {"--env-var"}
    assert {"--env-var", "--wait", "--cuda-graph-trace"} <= set(ours)
    assert ("--nvtx-capture" in ours) == (part is Part.MEASURING and not theirs & {"--capture-range", "--nvtx-capture"})


def test_the_line_can_be_looked_at(nsys: Path) -> None:
    """--dry-run prints the line on stdout and a reason for each flag on stderr; foreign options stand in the line."""
    done = run("--gpuctxsw=true", "-t", "cuda", "--capture", "all", "--dry-run", "-o", "x", "--", *SWEEP)
    assert done.exit_code == 0
    assert "--gpuctxsw=true -t cuda --output=" in done.stdout
    assert "--trace" not in done.stdout
    assert "capture-range" not in done.stdout
    assert "  --cuda-graph-trace=node: " in done.stderr
    several = run("--dry-run", "-o", "x", "--", *SWEEP, "--connections", "1,8")
    assert "--capture-range" not in several.stdout, "a process for each number of connections"


def profiled_rows(command: list[str], folder: Path) -> list[Any]:
    """Run a command as if nsys were around it, and return its rows."""
    done = CliRunner().invoke(cli, [*command, *MODEL, "--no-plots", "--out", str(folder)], env={"NSYS_PROFILING_SESSION_ID": "1"})
    assert done.exit_code == 0, done.output
    return read_rows(folder) if command[0] == "sweep" else read_corows(folder)


@pytest.mark.parametrize(
    "command",
    [
        ["colocate", "--mechanisms", "green", "--sms", "32", "--steps", "40"],
        ["switch", "--processes", "2", "--mechanisms", "streams", "--seconds", "0.05"],
    ],
    ids=["colocate", "switch"],
)
def test_rows_under_nsys_are_flagged(command: list[str], tmp_path: Path) -> None:
    """Every ok row of a run under a profiler says so, and run.json too: its times are never a baseline."""
    rows = [row for row in profiled_rows(command, tmp_path / "run") if row.status == "ok"]
    assert rows
    assert all("profiled" in row.flags.split(";") for row in rows)
    assert read_meta(tmp_path / "run" / "run.json").profiled


def test_the_stand_in_writes_what_it_is_given(nsys: Path, tmp_path: Path) -> None:
    """The made export holds what the tests above rely on: a category for the flush, a green context per point."""
    connection = sqlite3.connect(recorded(tmp_path / "made.sqlite", *LABELS))
    found = connection.execute("SELECT count(*), count(DISTINCT greenContextId) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    connection.close()
    assert found == (4, 3)
