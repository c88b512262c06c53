"""`greenbench timeline` as its users meet it: formats, expectations, and files that are not what they should be."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sqlite3
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from greenbench.cli.main import cli
from greenbench.runfiles import read_meta, write_meta
from tests.nsys_export import Export

DATA = Path(__file__).parent / "data" / "timeline"
REAL = DATA / "nsys_h200_two_green_contexts.sqlite"


def timeline(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, ["timeline", *map(str, arguments)])


def script(folder: Path, body: str) -> Path:
    """Put a program named nsys into a folder."""
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def stray(folder: Path) -> Path:
    """An export with one stray kernel beside a green one."""
    export = Export()
    export.range("step", 0, 50_000)
    export.kernel(100_000, 200_000, launched=10_000)
    export.kernel(120_000, 150_000, green=0, launched=20_000)
    return export.write(folder / "stray.sqlite")


def test_the_report_says_what_is_asked() -> None:
    """Contexts, overlap, ranges and the verdict are on stdout; notes are on stderr."""
    done = timeline(REAL, "--gaps", "*prefill96")
    assert done.exit_code == 0
    for words in (
        "NVIDIA H200, 132 SMs",
        "1,107,577",
        "63.9 %",
        "greenbench:sweep/decode16 alone",
        "no findings",
        "another context running",
    ):
        assert words in done.stdout
    assert done.stderr == "note: SMs of green contexts are not reported by this nsys\n"


def test_json_is_one_object() -> None:
    """stdout is JSON alone, with row ids in the findings."""
    done = timeline(REAL, "--json", "--gaps", "sweep/decode16 alone")
    found = json.loads(done.stdout)
    assert (found["schema"], found["findings"], found["whole_file"]["kernels"]) == (1, [], 68)
    (gaps,) = found["gaps"]
    assert sum(gaps["by_cause_ns"].values()) == gaps["total_ns"] == 20_895


def test_csv_is_one_table() -> None:
    """stdout is RFC 4180 alone; what does not apply is an empty cell."""
    rows = list(csv.DictReader(io.StringIO(timeline(REAL, "--csv").stdout)))
    assert len(rows) == 7
    assert (rows[0]["busy_ns"], rows[0]["overlap_ns"], rows[2]["overlap_ns"], rows[2]["busy_ns"]) == (
        "1732086",
        "",
        "1107577",
        "",
    )


def test_the_file_is_left_alone(tmp_path: Path) -> None:
    """The capture is opened for reading alone: not a byte of it changes, and nothing appears beside it."""
    path = tmp_path / "a ?#%20 name.sqlite"
    path.write_bytes(REAL.read_bytes())
    path.chmod(0o444)
    before = hashlib.sha256(path.read_bytes()).digest()
    assert timeline(path).exit_code == 0
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("expectation", "code"),
    [
        ("green:2,green:3>=0.5", 0),
        ("green:3 , green:2 >= 0.6", 0),
        ("green:2,green:3<=0.7", 0),
        ("green:2,green:3>=0.64", 5),
        ("green:2,green:3<=0.5", 5),
        ("green:2,green:9>=0.1", 5),
        ("green:2>=0.5", 2),
        ("green:2,green:3", 2),
        ("green:2,green:3>=50", 2),
    ],
)
def test_expected_overlap(expectation: str, code: int) -> None:
    """Met is 0, unmet is 5 with the figure, and what is no expectation is 2."""
    done = timeline(REAL, "--expect-overlap", expectation)
    assert done.exit_code == code
    assert ("error:" in done.stderr) == bool(code)
    if code == 5:
        assert expectation in done.stderr
        assert "63.9 %" in done.stdout


def test_fail_on_stray(tmp_path: Path) -> None:
    """A stray ends with 5 and its sentence; a clean capture with 0; one in which strays cannot be told with 5."""
    assert timeline(REAL, "--fail-on", "stray").exit_code == 0
    done = timeline(stray(tmp_path), "--fail-on", "stray")
    assert done.exit_code == 5
    assert "1 kernel ran outside every green context inside greenbench:step" in done.stderr
    blind = timeline(REAL, "--domain", "nobody", "--fail-on", "stray")
    assert blind.exit_code == 5
    assert "could not be looked for" in blind.stderr


def test_a_range_that_is_not_there() -> None:
    """--gaps names the ranges that there are."""
    done = timeline(REAL, "--gaps", "nothing")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "sweep/decode16 alone" in done.stderr


def test_formats_exclude_each_other() -> None:
    """Two formats cannot share stdout."""
    assert timeline(REAL, "--json", "--csv").exit_code == 2


def empty(path: Path) -> Path:
    """An export of a capture without CUDA work, with nsys's own word on it."""
    export = Export()
    export.add("DIAGNOSTIC_EVENT", severity=2, text="No CUDA events collected. Does the process use CUDA?")
    return export.write(path)


def foreign(path: Path) -> Path:
    """A database of somebody else."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE albums (title)")
    connection.close()
    return path


def cut(path: Path, keep: int) -> Path:
    """The first bytes of the real capture."""
    path.write_bytes(REAL.read_bytes()[:keep])
    return path


def scrambled(path: Path) -> Path:
    """The real capture with noise in its middle: the header is whole, the pages are not."""
    data = bytearray(REAL.read_bytes())
    data[8_192:200_000] = bytes(range(256)) * ((200_000 - 8_192) // 256) + bytes(64)
    path.write_bytes(bytes(data[: REAL.stat().st_size]))
    return path


def wrong_types(path: Path) -> Path:
    """A context id that is a text."""
    export = Export()
    export.kernel(10, 20, contextId="one\x1b[31m")
    return export.write(path)


def bare(path: Path) -> Path:
    """A table of kernels without times."""
    export = Export(drop=frozenset({"CUPTI_ACTIVITY_KIND_KERNEL.start"}))
    export.kernel(10, 20)
    return export.write(path)


def looping(path: Path) -> Path:
    """A view in place of the table, which would run for ever."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE META_DATA_EXPORT (name, value)")
    connection.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE t(start, end) AS "
        "(SELECT 1, 2 UNION ALL SELECT start + 1, end + 1 FROM t) SELECT * FROM t"
    )
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda path: path, 2, "is no file"),
        (lambda path: path.mkdir() or path, 2, "run.json"),
        (lambda path: cut(path, 0), 2, "is empty"),
        (lambda path: path.write_text("hello" * 99) and path, 2, "is no SQLite database"),
        (lambda path: cut(path, 100_000), 2, "is cut off"),
        (lambda path: cut(path, 50), 2, "is cut off"),
        (lambda path: os.mkfifo(path) or path, 2, "is no file"),
        (foreign, 2, "no export of Nsight Systems (tables: albums)"),
        (scrambled, 2, "no readable SQLite database"),
        (wrong_types, 2, "holds 'one\\x1b[31m' where an integer belongs"),
        (bare, 2, "lacks its columns start and end"),
        (empty, 5, "Does the process use CUDA?"),
        (looping, 5, "empty capture"),
    ],
    ids=[
        "missing",
        "folder",
        "empty-file",
        "text",
        "cut",
        "short",
        "fifo",
        "foreign",
        "scrambled",
        "types",
        "columns",
        "empty",
        "view",
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, make: Any, code: int, words: str) -> None:
    """What is no capture ends with 2, a valid but empty one with 5, each in one line that shows no control characters."""
    done = timeline(make(tmp_path / "x.sqlite"))
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.strip().isprintable()


def test_a_file_must_be_named() -> None:
    """Without a file there is nothing to read."""
    assert timeline().exit_code == 2


def test_a_run_has_no_trace_yet(tmp_path: Path) -> None:
    """A run folder is known as one, and it is said that it holds no trace, and how its command gets one."""
    run = tmp_path / "run"
    swept = CliRunner().invoke(
        cli, ["sweep", "--kernels", "copy", "--sms", "8", "--rounds", "1", "--device", "model:h200", "--out", str(run)]
    )
    assert swept.exit_code == 0, swept.stderr
    done = timeline(run)
    assert done.exit_code == 2
    assert "a run of sweep without a trace; run it again with --trace, or record one with Nsight Systems" in done.stderr
    assert "greenbench nsys -- sweep" in done.stderr
    for command in ("colocate", "switch"):
        write_meta(run / "run.json", replace(read_meta(run / "run.json"), command=command))
        done = timeline(run)
        assert done.exit_code == 2
        assert f"without a trace; record one with Nsight Systems: greenbench nsys -- {command}" in done.stderr
        assert "--trace" not in done.stderr


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (None, 4, "there is no nsys on PATH; install Nsight Systems"),
        (f'test "$1 $2 $3 $4 $5 $6" = "export -t sqlite -f true -o" && cp {REAL} "$7" && test -s "$8"', 0, ""),
        ("echo 'created in 2030.1, which is newer'; exit 1", 2, "use the nsys that wrote it, or a newer one"),
        ("exit 0", 5, "wrote nothing"),
    ],
    ids=["none", "exports", "newer", "nothing"],
)
def test_raw_reports_need_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None, code: int, words: str) -> None:
    """A .nsys-rep is exported by the nsys that is found; without one, or where it refuses, a sentence says what to do."""
    tools = tmp_path / "tools"
    tools.mkdir()
    if body is not None:
        script(tools, body)
    monkeypatch.setattr("greenbench.timeline.export.PLACES", ())
    monkeypatch.setenv("PATH", str(tools) if body is None else f"{tools}{os.pathsep}{os.environ['PATH']}")
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"raw")
    done = timeline(report)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert code or str(report) in done.stdout


def hostile(folder: Path) -> Path:
    """Names that are markup, formulas, escapes and very long, on overlapping streams and crossing ranges."""
    export = Export()
    names = ["$x_2^{a}$", "<script>alert(1)</script>", "\x1b[31mred\x1b[0m\nline", "=1+1", "n" * 5_000, "\ud7ff\U0010ffff"]
    for index, name in enumerate(names):
        export.range(name, 1_000 * index, 4_000 + 1_500 * index, domain=name[:100], kind=60)
        start = 10_000 + 4_000 * index
        export.kernel(start, start + 9_000, green=2 + index % 2, name=name, launched=1_000 * index)
    export.kernel(90_000, 95_000, green=0)
    export.add("TARGET_INFO_GPU", id=0, name="$\\frac{GPU}$ <b>", smCount=132)
    return export.write(folder / "hostile $1$.sqlite")


def test_names_are_not_trusted(tmp_path: Path) -> None:
    """Text, table, JSON, plot and trace show what a file calls things, and none of it acts."""
    path = hostile(tmp_path)
    shown = timeline(path)
    assert shown.exit_code == 0
    assert all(line.isprintable() for line in shown.stdout.splitlines())
    assert len(list(csv.reader(io.StringIO(timeline(path, "--csv").stdout)))) > 10
    done = timeline(path, "--json", "--plot", tmp_path / "plots", "--perfetto", tmp_path / "trace.json")
    found = json.loads(done.stdout)
    assert "=1+1" in {each["name"] for each in found["ranges"]}
    assert all(Path(each).is_file() for each in found["written"])
    svg = Path(found["written"][1]).read_text(encoding="utf-8")
    assert "<script" not in svg
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["displayTimeUnit"] == "ns"


def test_paths_of_figures_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strip goes into a folder as both, into one file, or, where the value is left out, here."""
    monkeypatch.chdir(tmp_path)
    stem = "nsys_h200_two_green_contexts_timeline"
    assert timeline(REAL, "--plot", "figures").stdout.splitlines()[-2:] == [f"figures/{stem}.png", f"figures/{stem}.svg"]
    assert timeline(REAL, "--plot", "one/strip.svg").stdout.splitlines()[-1] == "one/strip.svg"
    assert timeline("--plot", REAL).stdout.splitlines()[-2:] == [f"{stem}.png", f"{stem}.svg"]
    assert sorted(each.name for each in (tmp_path / "one").iterdir()) == ["strip.svg"]


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    """A trace into a folder that is a file ends with 5, and leaves nothing half-written."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = timeline(REAL, "--perfetto", tmp_path / "file" / "t.json")
    assert done.exit_code == 5
    assert "cannot be written" in done.stderr


def events(path: Path, *arguments: str) -> list[dict[str, Any]]:
    """The events of a trace."""
    target = path.with_suffix(".json")
    assert timeline(path, "--perfetto", target, *arguments).exit_code == 0
    found: list[dict[str, Any]] = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    return found


def nest(slices: list[tuple[int, int]]) -> bool:
    """True where slices in order of start lie within or behind each other."""
    stack: list[int] = []
    for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            return False
        stack.append(end)
    return True


@pytest.mark.parametrize("kind", ["real", "hostile"])
def test_the_perfetto_trace_is_well_formed(tmp_path: Path, kind: str) -> None:
    """Events are in order, kernels sum to the total, slices of a track nest, kernel tracks do not overlap, counters end at 0."""
    path = hostile(tmp_path) if kind == "hostile" else tmp_path / "real.sqlite"
    if kind == "real":
        path.write_bytes(REAL.read_bytes())
    found = events(path)
    timed = [each for each in found if "ts" in each]
    assert [each["ts"] for each in timed] == sorted(each["ts"] for each in timed)
    kernels = [each for each in timed if each["ph"] == "X" and each["cat"] == "kernel"]
    whole = json.loads(timeline(path, "--json").stdout)["whole_file"]
    assert sum(round(1000 * each["dur"]) for each in kernels) == whole["total_ns"]
    tracks: dict[tuple[int, int, bool], list[tuple[int, int]]] = defaultdict(list)
    for each in timed:
        if each["ph"] == "X":
            start, length = round(1000 * each["ts"]), round(1000 * each["dur"])
            tracks[each["pid"], each["tid"], each["cat"] == "kernel"].append((start, start + length))
    assert all(nest(slices) for slices in tracks.values())
    for (*_, kernel), slices in tracks.items():
        assert not kernel or all(a[1] <= b[0] for a, b in zip(sorted(slices), sorted(slices)[1:], strict=False))
    counters = {each["name"]: each["args"]["kernels"] for each in timed if each["ph"] == "C"}
    assert set(counters.values()) == {0}
    named = {(each["pid"], each["tid"]) for each in found if each["name"] == "thread_name"}
    assert {(pid, tid) for pid, tid, _ in tracks if pid < 1_000_000} <= named
