"""A run folder: made before any work, written atomically, read strictly, continued only as the same run."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import re
import stat
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from greenbench.errors import ExitCode, GreenbenchError, OutputError, ResultFileError, UsageError
from greenbench.facts import model_facts
from greenbench.journal import void_reason
from greenbench.runfiles import (
    RunFolder,
    read_meta,
    read_rows,
    resume_obstacle,
    write_meta,
    write_rows,
    write_samples,
)
from greenbench.schema import (
    Block,
    BlockKind,
    BlockStatus,
    Evidence,
    Family,
    KernelSummary,
    Partition,
    Point,
    Row,
    RunMeta,
    SmsMode,
)
from greenbench.tables import header_line

NOW = datetime(2026, 11, 30, 4, 5, 6, tzinfo=timezone(timedelta(hours=1)))
POINT = Point("triad", (("n", 1024), ("s", 3.0)), Partition(SmsMode.COUNT, 8))
META = RunMeta(
    run_id="r1",
    created="2026-11-30T03:05:06Z",
    greenbench="0.1.0",
    command="sweep",
    argv=("sweep", "--sms", "8"),
    seed=1,
    device=model_facts("h200").device,
    plan={"rounds": 6, "max_rounds": 6, "sms": "8", "kernels": [{"name": "triad", "params": {"n": [1024]}}]},
    kernels=(KernelSummary(name="triad", family=Family.MEMORY, dtype="float32", summary="t", digest="d1"),),
    points=(POINT,),
    clocks_before=Evidence(sm_clock_mhz=1980.0),
)
ROW = Row(run_id="r1", label="triad[n=1]@8/driver_default/steady", time_us=932.3123456, flops=137438953472.0, status="ok")
BLOCK = Block(
    seq=0,
    kind=BlockKind.BLOCK,
    round=0,
    attempt=1,
    started=0.0,
    seconds=0.05,
    status=BlockStatus.OK,
    kernel="triad",
    params="n=1024,s=3.0",
    sms_requested="8",
    samples_us=(1.25, 0.1),
    launches_per_sample=3,
)


def create(path: Path | None, root: Path) -> RunFolder:
    """Make a folder as `sweep` does."""
    return RunFolder.create(path, root=root, command="sweep", now=NOW)


def test_a_run_gets_a_name_of_its_own(tmp_path: Path) -> None:
    """Without --out the folder is <UTC time>-<command>-<4 hex> under the root, and two at one second differ."""
    first, second = create(None, tmp_path / "results"), create(None, tmp_path / "results")
    assert re.fullmatch(r"20261130T030506Z-sweep-[0-9a-f]{4}", first.run_id)
    assert first.path.is_dir()
    assert first.path.parent == tmp_path / "results"
    assert first.path != second.path


def test_out_may_be_new_or_empty(tmp_path: Path) -> None:
    """--out makes its parents, takes an empty folder, leaves nothing in it, and goes away again if nothing was written."""
    for name in ("deep/new", "deep/new"):
        folder = create(tmp_path / name, tmp_path)
        assert folder.run_id == "new"
        assert list(folder.path.iterdir()) == []
    folder.remove_if_empty()
    assert not folder.path.exists()


def test_remove_if_empty_keeps_results(tmp_path: Path) -> None:
    """A folder with anything in it stays."""
    folder = create(tmp_path / "run", tmp_path)
    write_rows(folder.rows_path, [ROW])
    folder.remove_if_empty()
    assert folder.rows_path.exists()


def test_out_that_is_taken_is_refused(tmp_path: Path) -> None:
    """A folder with results is never written into: exit 2, naming --resume and the other way out."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rows.csv").write_text("mine")
    with pytest.raises(UsageError) as caught:
        create(tmp_path / "run", tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/run exists and is not empty; continue that run with --resume {tmp_path}/run or give another --out"
    )
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("keep", [None, 0, 9])
def test_out_that_a_killed_run_left_bare_is_taken_anew(tmp_path: Path, keep: int | None) -> None:
    """kill -9 before run.json: the head of a journal and a log hold nothing measured, so --out takes the folder again."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "blocks.csv").write_bytes(header_line(Block)[:keep])
    (run / "worker.log").write_text("a word\n")
    with pytest.raises(ResultFileError, match=r"no run\.json in it; nothing was measured, begin anew with --out"):
        RunFolder.open(run)
    assert create(run, tmp_path).path == run


@pytest.mark.parametrize(("name", "text"), [("notes.txt", "mine"), ("run.json", "{}"), ("blocks.csv", "a,b\n")])
def test_out_that_holds_more_than_a_bare_head_is_refused(tmp_path: Path, name: str, text: str) -> None:
    """One file that is not of such a run, or a journal that is none, and the folder is somebody's."""
    (tmp_path / "blocks.csv").write_bytes(header_line(Block))
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="is not empty"):
        create(tmp_path, tmp_path)


def test_a_folder_in_place_of_a_file_is_named_once(tmp_path: Path) -> None:
    """rows.csv and run.json that are folders: the sentence names the path as it is."""
    (tmp_path / "run.json").mkdir()
    (tmp_path / "rows.csv").mkdir()
    for given in (tmp_path, tmp_path / "rows.csv"):
        with pytest.raises(ResultFileError, match=f"^{re.escape(str(tmp_path))}/rows\\.csv cannot be read: is a directory$"):
            read_rows(given)
    with pytest.raises(ResultFileError, match=r"is not the folder of a run: its run\.json is a folder$"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("below", ["", "/sub", "/sub/deeper"])
def test_out_on_a_file_is_refused(tmp_path: Path, below: str) -> None:
    """--out that is a file, or below one, names the file in the way."""
    (tmp_path / "file").write_text("x")
    said = rf"--out .*file{below} cannot be a folder: {tmp_path}/file is a file; give another name"
    with pytest.raises(UsageError, match=said):
        create(Path(f"{tmp_path}/file{below}"), tmp_path)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "the file system is read-only; choose a folder on another one"),
        (errno.EACCES, "permission is denied; choose a folder that you may write to"),
        (errno.ENOSPC, "the disk is full; make room"),
        (errno.ENAMETOOLONG, "file name too long; choose another folder"),
    ],
)
def test_out_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    """Read-only, forbidden, full and impossible places are one sentence each, before anything is measured."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError) as caught:
        create(tmp_path / "run", tmp_path)
    assert str(caught.value) == f"{tmp_path}/run cannot be written: {said}"


def test_a_folder_that_lists_but_takes_no_files_is_found_out(tmp_path: Path) -> None:
    """An existing empty folder without write permission is refused at the start, not at the first block."""
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        if os.access(path, os.W_OK):
            pytest.skip("this user may write anywhere")
        with pytest.raises(OutputError, match="permission is denied"):
            create(path, tmp_path)
    finally:
        path.chmod(stat.S_IRWXU)


def test_only_a_run_can_be_opened(tmp_path: Path) -> None:
    """--resume and plot take a folder with run.json; anything else says what it is."""
    folder = create(tmp_path / "run", tmp_path)
    with pytest.raises(ResultFileError, match=r"run is not the folder of a run: there is no run\.json in it"):
        RunFolder.open(folder.path)
    write_meta(folder.meta_path, META)
    assert RunFolder.open(folder.path) == folder
    with pytest.raises(ResultFileError, match=r"run\.json is a file; a run is the folder"):
        RunFolder.open(folder.meta_path)
    with pytest.raises(ResultFileError, match="none does not exist"):
        RunFolder.open(tmp_path / "none")


def test_files_are_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up leaves the old rows.csv and no litter, and a leftover of a crash is in nobody's way."""
    path = tmp_path / "rows.csv"
    write_rows(path, [ROW])
    (tmp_path / ".rows.csv.tmp").write_text("left by kill -9")
    write_rows(path, [ROW, ROW])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"rows\.csv cannot be written: the disk is full; make room"):
        write_rows(path, [])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["rows.csv"]


def test_rows_are_rfc_4180_with_every_column(tmp_path: Path) -> None:
    """The header holds every field of Row in order, an unmeasured figure is an empty cell, whole numbers are whole."""
    path = tmp_path / "rows.csv"
    write_rows(path, [replace(ROW, reason='a "quoted",\r\nreason')])
    data = path.read_bytes()
    header, cells = csv.reader(io.StringIO(data.decode(), newline=""))
    assert header == [field.name for field in fields(Row)]
    found = dict(zip(header, cells, strict=True))
    assert (found["time_us"], found["flops"], found["bytes"], found["power_w"]) == ("932.3123", "137438953472", "", "")
    assert found["reason"] == 'a "quoted",\r\nreason'
    assert data.endswith(b"\r\n")


def test_rows_survive_an_editor(tmp_path: Path) -> None:
    """A byte order mark, plain or missing line ends, blank lines and another order of columns change nothing."""
    path = tmp_path / "rows.csv"
    write_rows(path, [ROW])
    table = [dict(zip(*csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")), strict=True))]
    names = sorted(table[0])
    text = "\n".join([",".join(names), "", ",".join(table[0][name] for name in names)])
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_rows(tmp_path) == [replace(ROW, time_us=932.3123)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "", "is empty, not a table of rows"),
        (lambda text: "a,b\r\n1,2\r\n", "lacks column schema, run_id, label and 57 more: not a table of this greenbench"),
        (lambda text: text.replace("time_us,", "", 1), "lacks column time_us: not a table"),
        (lambda text: text.replace(",reason\r\n", ",reason,mood\r\n", 1), "has a column 'mood' that this greenbench does"),
        (lambda text: text.replace(",reason\r\n", ",reason,label\r\n", 1), "names a column twice"),
        (lambda text: text.replace("932.3123", "fast"), "row 1, column time_us: 'fast' is not a finite number"),
        (lambda text: text.replace("932.3123", "nan"), "row 1, column time_us: 'nan' is not a finite number"),
        (lambda text: text.replace("\r\n1,r1", "\r\n2,r1"), "row 1 is of schema 2; this greenbench reads 1"),
        (lambda text: text.replace("\r\n1,r1", "\r\nx,r1"), "row 1, column schema: 'x' is not an integer"),
        (lambda text: text[:-20], "row 1 has "),
        (lambda text: text.replace("r1", '"r1'), "row 1 is not a line of CSV"),
    ],
)
def test_foreign_and_damaged_tables_are_named(tmp_path: Path, change, said: str) -> None:  # type: ignore[no-untyped-def]
    """What is no rows.csv of this schema is exit 2 with file, row and column."""
    path = tmp_path / "rows.csv"
    write_rows(path, [ROW])
    path.write_bytes(change(path.read_bytes().decode()).encode())
    with pytest.raises(ResultFileError) as caught:
        read_rows(path)
    assert f"{path} {said}" in str(caught.value)


def test_nan_never_reaches_a_file(tmp_path: Path) -> None:
    """A figure that is NaN is our bug: told, not written, and the old file stays."""
    path = tmp_path / "rows.csv"
    with pytest.raises(GreenbenchError, match=r"rows\.csv: column time_us was given a wrong value: nan is not a finite number"):
        write_rows(path, [replace(ROW, time_us=float("nan"))])
    with pytest.raises(GreenbenchError, match=r"clocks_before\.power_w: inf is not a finite number"):
        write_meta(path, replace(META, clocks_before=Evidence(power_w=float("inf"))))
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: tree.update(schema=2), "is of schema 2; this greenbench reads 1"),
        (lambda tree: tree.pop("seed"), "seed is missing"),
        (lambda tree: tree.update(mood="good"), "mood is not known here"),
        (lambda tree: tree["device"].update(sm_count="132"), "device.sm_count: '132' is not of type int"),
        (lambda tree: tree["device"].update(sm_count=True), "device.sm_count: True is not of type int"),
        (lambda tree: tree["device"].update(compute_capability=[9]), "device.compute_capability: 1 items where 2 are expected"),
        (lambda tree: tree["points"][0]["partition"].update(mode="half"), "points[0].partition.mode: 'half' is none of"),
        (lambda tree: tree.update(argv="x"), "argv: 'x' is not a list"),
        (lambda tree: tree.update(points=[3]), "points[0]: 3 is not an object"),
    ],
)
def test_a_wrong_run_json_names_the_key(tmp_path: Path, change, said: str) -> None:  # type: ignore[no-untyped-def]
    """run.json is read strictly; the error holds the path of the key."""
    path = tmp_path / "run.json"
    write_meta(path, META)
    tree = json.loads(path.read_text(encoding="utf-8"))
    change(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(ResultFileError) as caught:
        read_meta(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_json_that_is_none(tmp_path: Path) -> None:
    """Cut, foreign, NaN and bottomless JSON are sentences; what is missing with a default may be missing."""
    path = tmp_path / "run.json"
    for text in ('{"schema": 1', "\x00", '{"seed": NaN}', "[" * 100_000):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ResultFileError, match=r"run\.json is not JSON"):
            read_meta(path)
    write_meta(path, META)
    tree = json.loads(path.read_text(encoding="utf-8"))
    del tree["notes"], tree["finished"], tree["clocks_after"]
    path.write_text(json.dumps(tree), encoding="utf-8")
    assert read_meta(path) == META


def test_samples_are_raw_and_repeatable(tmp_path: Path) -> None:
    """samples.csv.gz holds the samples of blocks that count, exactly; two exports are the same bytes."""
    void = replace(BLOCK, seq=3, kind=BlockKind.VOID, reason=void_reason([1]), samples_us=())
    blocks = [
        BLOCK,
        replace(BLOCK, seq=1, round=1),
        replace(BLOCK, seq=2, kind=BlockKind.SENTINEL),
        void,
        replace(BLOCK, seq=4, round=2, status=BlockStatus.DISCARDED),
        replace(BLOCK, seq=5, round=2, samples_us=(0.1 + 0.2,)),
    ]
    labels = {BLOCK.key: 'triad[n=1024,s=3.0]@8/driver_default/"steady"'}
    for name in ("samples.csv.gz", "again.gz"):
        write_samples(tmp_path / name, labels, blocks)
    packed = (tmp_path / "samples.csv.gz").read_bytes()
    assert packed == (tmp_path / "again.gz").read_bytes()
    table = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode(), newline="")))
    assert list(table[0]) == ["label", "round", "seq", "sample_index", "time_us", "launches"]
    assert {row["label"] for row in table} == set(labels.values())
    found = [(row["round"], row["seq"], row["sample_index"], float(row["time_us"]), row["launches"]) for row in table]
    assert found == [("0", "0", "0", 1.25, "3"), ("0", "0", "1", 0.1, "3"), ("2", "5", "0", 0.1 + 0.2, "3")]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({"device": replace(META.device, uuid="GPU-2")}, "its device is NVIDIA H200"),
        ({"device": replace(META.device, driver="590.1")}, "now it is 590.1"),
        ({"device": replace(META.device, nvrtc="13.9")}, "its NVRTC is"),
        ({"seed": 2}, "its seed is 1, now it is 2"),
        ({"command": "colocate"}, "its command is sweep, now it is colocate"),
        ({"profiled": True}, "its profiling is false, now it is true"),
        ({"kernels": (replace(META.kernels[0], digest="d2"),)}, "kernel triad was changed since"),
        ({"points": ()}, "it has a point that is not asked for now, triad[n=1024,s=3.0]@8/driver_default/auto"),
        ({"points": (POINT, replace(POINT, connections=2))}, "it lacks a point that is asked for now, triad[n=1024,s=3.0]@8:c2"),
    ],
)
def test_only_the_same_run_is_continued(new: dict[str, object], said: str) -> None:
    """--resume with another device, driver, compiler, seed, kernel or plan is refused, naming run and difference."""
    obstacle = resume_obstacle(META, replace(META, **new))  # type: ignore[arg-type]
    assert said in obstacle
    assert obstacle.startswith("run r1 cannot be continued: ")
    assert obstacle.endswith("; start a new run")


def test_the_same_run_may_be_continued_by_another_greenbench() -> None:
    """Version, time, order of points and notes may differ."""
    assert resume_obstacle(META, replace(META, greenbench="0.2", created="later", notes=("x",), finished="y")) == ""
