"""What is named on a command line: outputs that would replace an input or each other, inputs that are no files, empty texts."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from greenbench.cli import terminal
from greenbench.cli.main import cli
from greenbench.tomlfile import TomlError, parse_toml
from tests.nsys_export import Export

MODEL = ("--device", "model:h200")


def run(*arguments: str | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, list(map(str, arguments)))


def refused(done: Result, *words: str) -> None:
    """Exit code 2 and one sentence with these words."""
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("greenbench: error: ")
    for word in words:
        assert word in line


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture with one kernel, in the working folder, and two names of it."""
    monkeypatch.chdir(tmp_path)
    export = Export()
    export.kernel(10_000, 20_000)
    path = export.write(tmp_path / "x.sqlite")
    (tmp_path / "link.svg").symlink_to("x.sqlite")
    (tmp_path / "hard.svg").hardlink_to(path)
    return path


@pytest.mark.parametrize(
    ("option", "name"),
    [
        # An ending that is no figure's makes the value of --plot a folder.
        *((option, name) for option in ("--perfetto", "--scrub", "--plot") for name in ("link.svg", "hard.svg")),
        ("--perfetto", "./x.sqlite"),
        ("--scrub", "./x.sqlite"),
    ],
)
def test_an_output_in_place_of_the_capture(source: Path, option: str, name: str) -> None:
    """By whatever name or link, no option writes over the file that is read."""
    before = source.read_bytes()
    refused(run("timeline", "x.sqlite", option, name), f"{option} {Path(name)} would replace the capture x.sqlite")
    assert source.read_bytes() == before


def test_outputs_in_place_of_each_other(source: Path) -> None:
    """Two options never write one file, be it there or not, nor the second figure of a folder; a device takes both."""
    Path("dangling").symlink_to("new.svg")
    pairs = [
        ("--perfetto", "new.svg", "--scrub", "dangling"),
        ("--plot", "new.svg", "--perfetto", "new.svg"),
        ("--plot", ".", "--scrub", "x_timeline.svg"),
    ]
    for pair in pairs:
        refused(run("timeline", "x.sqlite", *pair), f"{pair[0]} and {pair[2]} both write {pair[3]}")
    assert run("timeline", "x.sqlite", "--perfetto", os.devnull, "--scrub", os.devnull).exit_code == 0
    assert not Path("new.svg").exists()


def test_an_export_in_place_of_the_plan(tmp_path: Path) -> None:
    """`colocate --export-to` does not write over the files that the run is made from."""
    plan = tmp_path / "mine.toml"
    plan.write_text('command = "colocate"\nsteps = 40\n', encoding="utf-8")
    (tmp_path / "link").symlink_to(plan)
    done = run("colocate", plan, "--export", "json", "--export-to", tmp_path / "link", *MODEL, "--dry-run")
    refused(done, "would replace the file of plan")


def test_what_is_no_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO, a socket, a folder and a device as plan, workload, model, kernel or capture are refused without being opened."""
    monkeypatch.chdir(tmp_path)
    Path("k").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.toml")
    os.mkfifo("fifo.toml")
    os.mkfifo("k/fifo.cu")
    Path("folder.toml").mkdir()
    Path("device.toml").symlink_to(os.devnull)
    for kind in ("socket", "fifo", "folder", "device"):
        name = f"./{kind}.toml"
        for line in (
            ("sweep", name),
            ("colocate", name),
            ("switch", name),
            ("colocate", "--latency", name),
            ("colocate", "--model", name),
            ("switch", "--workload", name),
            ("timeline", name),
        ):
            if (line[0], kind) != ("timeline", "folder"):
                refused(run(*line, *(MODEL if line[0] != "timeline" else ())), "is no file")
        refused(run("sweep", "--device", f"model:{name}", "--dry-run"), "is no file")
    refused(run("kernels", "--kernels-dir", "k"), "fifo.cu is no file but a FIFO")


@pytest.mark.parametrize(
    "line",
    [
        ("sweep", ""),
        ("colocate", ""),
        ("switch", ""),
        ("timeline", ""),
        ("plot", ""),
        ("plot", "x", ""),
        ("sweep", "--out", ""),
        ("sweep", "--resume="),
        ("switch", "--out", ""),
        ("colocate", "--export-to", ""),
        ("colocate", "--kernels-dir", ""),
        ("timeline", "x.sqlite", "--scrub", ""),
        ("ncu", "--point", "triad@8", "--ncu", "", "--", "sweep"),
    ],
)
def test_an_empty_text_names_nothing(source: Path, line: tuple[str, ...]) -> None:
    """It becomes neither the default nor the working folder."""
    refused(run(*line), "'' names nothing; give it a value, or leave it out")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('command = ["colocate"]', "command: ['colocate'] is no command that has plans; give 'sweep' or"),
        ('command = "plot"', "command: 'plot' is no command that has plans"),
        ("seed = " + "9" * 5_000, "an integer has thousands of digits"),
        ("seed = 0x" + "f" * 5_000, "an integer has thousands of digits"),
    ],
)
@pytest.mark.parametrize("command", ["sweep", "colocate", "switch"])
def test_plans_that_cannot_be_meant(tmp_path: Path, text: str, words: str, command: str) -> None:
    """A command that is none, and integers that Python itself refuses, are said in words that a user can act on."""
    plan = tmp_path / "mine.toml"
    plan.write_text(text, encoding="utf-8")
    done = run(command, plan, *MODEL)
    refused(done, words)
    assert "set_int_max_str_digits" not in done.stderr


def test_the_same_integers_elsewhere(tmp_path: Path) -> None:
    """A model's file and a kernel's front matter are read as carefully as a plan."""
    text = "n = " + "9" * 5_000
    (tmp_path / "m.toml").write_text(text, encoding="utf-8")
    (tmp_path / "k.cu").write_text(f"/* greenbench\n{text}\n*/\n", encoding="utf-8")
    for line in (("sweep", "--device", f"model:{tmp_path}/m.toml"), ("kernels", "--kernels-dir", tmp_path)):
        refused(run(*line), "an integer has thousands of digits")


@given(st.integers(0, 20_000), st.sampled_from(["{}", "[1, [{}]]", "{{a = {{b = [{}]}}}}"]), st.sampled_from(["9", "0xf"]))
def test_long_integers(digits: int, around: str, digit: str) -> None:
    """Wherever an integer stands, it can be shown, or the text is refused."""
    text = "a = " + around.format(digit + digit[-1] * digits)
    try:
        table = parse_toml(text)
    except TomlError as error:
        assert "digits" in str(error)  # noqa: PT017 - either way is right
        assert digits > 1_000
    else:
        assert len(repr(table)) > digits
        assert digits < 5_000


def test_a_full_standard_output(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    """The sentence names the stream, not the folder of the run nor an option that the command lacks; exit 5."""
    true = terminal.click.echo

    def full(text: object = None, *more: object, err: bool = False, **settings: object) -> None:
        if not err:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        true(text, err=err)

    monkeypatch.setattr(terminal.click, "echo", full)
    monkeypatch.setattr(terminal, "discard", lambda stream: None)
    colocate = (
        "colocate",
        *MODEL,
        "--mechanisms",
        "streams",
        "--steps",
        "30",
        "--no-plots",
        "--quiet",
        "--out",
        tmp_path / "run",
    )
    for line in (("timeline", "x.sqlite", "--json"), ("timeline", "x.sqlite", "--csv"), (*colocate, "--json")):
        done = run(*line)
        assert done.exit_code == 5, done.output
        last = done.stderr.splitlines()[-1]
        assert last.startswith("greenbench: error: cannot write standard output: No space left on device; make room")
        assert "--out" not in last
        assert str(tmp_path) not in last
    assert (tmp_path / "run" / "rows.csv").is_file()


def test_kernels_without_a_usable_time(tmp_path: Path) -> None:
    """A capture of them is not called empty: exit 2, with the number of rows that were left out."""
    export = Export()
    for start, end in ((20_000, 10_000), ("soon", "later"), (10_000, 1e308)):
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=0, contextId=1)
    done = run("timeline", export.write(tmp_path / "x.sqlite"))
    refused(done, "not one of its kernels has a usable time (3 rows left out")
    assert "empty" not in done.stderr
