"""blocks.csv: what is appended is on disk and comes back exactly, whatever cut the run short."""

from __future__ import annotations

import csv
import errno
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.errors import ExitCode, GreenbenchError, OutputError, ResultFileError, UsageError
from greenbench.journal import Journal, read_journal, void_reason, voided
from greenbench.schema import Block, BlockKind, BlockStatus, Flag, Placement

BLOCK = Block(
    seq=0,
    kind=BlockKind.BLOCK,
    round=1,
    attempt=1,
    started=1732939200.25,
    seconds=0.05,
    status=BlockStatus.OK,
    kernel="triad",
    params="n=1048576,s=3.0",
    sms_requested="16",
    sms_granted=16,
    sms_observed=16,
    placement=Placement.CONFINED,
    flags=(Flag.POWER_CAPPED, Flag.BIMODAL),
    launches_per_sample=3,
    samples_us=(1.5, 0.1 + 0.2, 1e-7, 12345678.125),
)
VOID = replace(BLOCK, kind=BlockKind.VOID, samples_us=())


def blocks(count: int) -> list[Block]:
    """Return blocks as a run appends them."""
    return [replace(BLOCK, seq=seq, reason=f'line "{seq}"\r\nof a log, cut') for seq in range(count)]


def written(path: Path, items: list[Block]) -> bytes:
    """Write a journal and return its bytes."""
    with Journal(path) as journal:
        for block in items:
            journal.append(block)
    return path.read_bytes()


def in_a_process(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run code beside this module's names in a process of its own."""
    here = Path(__file__).parent
    head = "import os, sys, signal; sys.path[:0] = sys.argv[2:]; from test_journal import *"
    command = [sys.executable, "-c", f"{head}\n{program}", str(path), str(here), str(here.parent)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@given(keep=st.integers(0, 10_000))
@settings(max_examples=80)
def test_a_journal_cut_anywhere_keeps_its_whole_lines(keep: int) -> None:
    """Cut at any byte, as kill -9 may leave it, a journal yields exactly the blocks whose lines are complete, and goes on."""
    items = blocks(3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blocks.csv"
        data = written(path, items)
        ends = []
        for count in range(4):
            whole = Path(folder) / f"{count}.csv"
            ends.append(len(written(whole, items[:count])))
        keep %= len(data) + 1
        path.write_bytes(data[:keep])
        complete = items[: sum(end <= keep for end in ends[1:])]
        assert read_journal(path) == complete
        with Journal(path) as journal:
            assert journal.blocks == complete
            assert journal.next_seq == len(complete)
            journal.append(replace(BLOCK, seq=7))
        assert read_journal(path) == [*complete, replace(BLOCK, seq=7)]


def test_the_header_is_there_from_the_start(tmp_path: Path) -> None:
    """A new journal names its columns before the first block, in RFC 4180's line ends."""
    data = written(tmp_path / "blocks.csv", [])
    assert data.startswith(b"seq,kind,round,attempt,")
    assert data.endswith(b"\r\n")
    assert data.count(b"\n") == 1


def test_any_csv_reader_reads_it(tmp_path: Path) -> None:
    """The standard csv module sees lists joined by ';', empty cells for None, and the enums' values."""
    path = tmp_path / "blocks.csv"
    written(path, [BLOCK])
    with path.open(newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    assert row["samples_us"] == "1.5;0.30000000000000004;1e-07;12345678.125"
    assert (row["flags"], row["placement"], row["power_w"], row["reported"]) == ("power_capped;bimodal", "confined", "", "")


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("samples_us", "1.5;nan", "'nan' is not a finite number"),
        ("samples_us", "1.5;;2", "'' is not a finite number"),
        ("seconds", "1e999", "inf is not a finite number"),
        ("round", "1.0", "'1.0' is not an integer"),
        ("status", "fine", "'fine' is none of ok, discarded, failed, unsupported"),
        ("flags", "hot", "'hot' is none of power_capped"),
        ("sm_clock_mhz", "-1980.0", "-1980.0 is below 0, which is never measured"),
        ("bytes", "-1", "-1.0 is below 0"),
        ("sms_granted", "-16", "-16 is below 0"),
        ("seconds", "-0.5", "-0.5 is below 0"),
        ("samples_us", "1.5;-2.5", "-2.5 is below 0"),
        ("launch_host_us", "-3.0", "-3.0 is below 0"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, column: str, cell: str, said: str) -> None:
    """A cell that is not of its type is refused with file, row and column."""
    path = tmp_path / "blocks.csv"
    written(path, blocks(2))
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows[1][column] = cell
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    with pytest.raises(ResultFileError) as caught:
        read_journal(path)
    assert f"{path} row 2, column {column}: {said}" in str(caught.value)


def test_damage_in_the_middle_is_no_cut(tmp_path: Path) -> None:
    """Only the end may be missing: a row with fewer cells, a repeated seq, another header or a stray quote is refused."""
    path = tmp_path / "blocks.csv"
    data = written(path, [replace(BLOCK, seq=seq) for seq in range(3)])
    header, first, second, third = data.splitlines(keepends=True)
    cases = {
        "row 2 has 3 cells where the header has": header + first + b"1,block,1\r\n" + third,
        "row 2, column seq: 0 does not follow 0": header + first + first,
        "columns are not those of a block": header.replace(b"seq,", b"sequence,") + first,
        "does not start with the names of its columns": b"\x00\xff",
        "row 2: a quoted cell is not closed": header + first + second.replace(b"triad", b'"triad') + third,
        "row 1 is not a line of CSV in UTF-8": header + first.replace(b"triad", b"tri\xff") + second,
        "row 2 is not a line of CSV": header + first + second.replace(b"triad", b'"tri"ad') + third,
    }
    for said, content in cases.items():
        path.write_bytes(content)
        with pytest.raises(ResultFileError, match=r"blocks\.csv") as caught:
            read_journal(path)
        assert said in str(caught.value)
        with pytest.raises(ResultFileError):
            Journal(path)
        assert path.read_bytes() == content, "a journal that cannot be read is left as it is"


def test_a_missing_journal_is_a_sentence(tmp_path: Path) -> None:
    """Reading what is not there is exit 2 with the path, not a traceback."""
    with pytest.raises(ResultFileError, match=r"blocks\.csv cannot be read: no such file"):
        read_journal(tmp_path / "blocks.csv")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1.5", True, None])
def test_what_is_no_number_is_never_written(tmp_path: Path, value: object) -> None:
    """NaN and wrong types are refused at the writer, which leaves the journal as it was."""
    path = tmp_path / "blocks.csv"
    with Journal(path) as journal:
        journal.append(BLOCK)
        before = path.read_bytes()
        with pytest.raises(GreenbenchError, match="column samples_us was given a wrong value") as caught:
            journal.append(replace(BLOCK, seq=1, samples_us=(value,)))  # type: ignore[arg-type]
        assert caught.value.exit_code is ExitCode.INTERNAL
        assert path.read_bytes() == before


def test_a_log_with_broken_text_does_not_stop_a_run(tmp_path: Path) -> None:
    """A reason that UTF-8 cannot hold (a path decoded with surrogateescape) is escaped."""
    path = tmp_path / "blocks.csv"
    written(path, [replace(BLOCK, reason="file \udcff.cu")])
    assert read_journal(path)[0].reason == "file \\udcff.cu"


def test_a_long_reason_is_read_back(tmp_path: Path) -> None:
    """The csv module's limit of 128 KiB a cell does not make a journal unreadable."""
    path = tmp_path / "blocks.csv"
    written(path, [replace(BLOCK, reason="x" * 200_000)])
    assert len(read_journal(path)[0].reason) == 200_000


def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC in the middle of a line: exit 5, what is kept and how to go on; the half line is gone, and appending works again."""
    path = tmp_path / "blocks.csv"
    with Journal(path) as journal:
        journal.append(BLOCK)
        kept = path.read_bytes()

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OutputError) as caught:
                journal.append(replace(BLOCK, seq=1))
        assert caught.value.exit_code is ExitCode.INCOMPLETE
        assert str(caught.value) == (
            f"{path} cannot be written: the disk is full; make room; "
            f"everything before it is kept (1 blocks), continue with --resume {tmp_path}"
        )
        assert path.read_bytes() == kept
        journal.append(replace(BLOCK, seq=1))
    assert [block.seq for block in read_journal(path)] == [0, 1]


def test_a_line_that_the_system_cuts_is_taken_back(tmp_path: Path) -> None:
    """A write that the kernel really cuts in the middle (file size limit) is a sentence, and no half line stays."""
    path = tmp_path / "blocks.csv"
    kept = len(written(path, blocks(2)))
    program = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({kept + 40}, {kept + 40}))
with Journal(Path(sys.argv[1])) as journal:
    try:
        journal.append(replace(BLOCK, seq=2))
    except OutputError as error:
        print(error)
"""
    done = in_a_process(program, path)
    assert "cannot be written: file too large; choose another folder; everything before it is kept (2 blocks)" in done.stdout
    assert path.stat().st_size == kept
    assert read_journal(path) == blocks(2)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second greenbench that resumes the same run is refused; when the first is done it may."""
    path = tmp_path / "blocks.csv"
    with Journal(path), pytest.raises(UsageError, match="is being written by another greenbench"):
        Journal(path)
    Journal(path).close()


def test_sequence_numbers_only_rise(tmp_path: Path) -> None:
    """A void line names blocks by number, so a number is never used twice."""
    with Journal(tmp_path / "blocks.csv") as journal:
        journal.append(replace(BLOCK, seq=4))
        assert journal.next_seq == 5
        with pytest.raises(GreenbenchError, match="block 4 was appended after block 4"):
            journal.append(replace(BLOCK, seq=4))


def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    """A process that kills itself right after append() leaves the block behind."""
    path = tmp_path / "blocks.csv"
    done = in_a_process("Journal(Path(sys.argv[1])).append(BLOCK); os.kill(os.getpid(), signal.SIGKILL)", path)
    assert done.returncode == -signal.SIGKILL
    assert read_journal(path) == [BLOCK]


@given(seqs=st.sets(st.integers(0, 60), min_size=1), why=st.text(max_size=10))
def test_void_names_exactly_its_blocks(seqs: set[int], why: str) -> None:
    """What a void line takes back is what was given to it, whatever the explanation says."""
    everything = [replace(BLOCK, seq=seq) for seq in range(61)]
    void = replace(VOID, seq=61, reason=void_reason(seqs, why))
    assert voided([*everything, void]) == seqs


def test_void_text_is_short_and_checked(tmp_path: Path) -> None:
    """Neighbours are written as spans; a void line that names no blocks is a damaged journal."""
    assert void_reason([5, 3, 4, 9], "sentinel off by 1.4 %") == "seqs:3-5,9; sentinel off by 1.4 %"
    path = tmp_path / "blocks.csv"
    written(path, [replace(VOID, reason="sentinel moved")])
    with pytest.raises(ResultFileError, match="row 1, column reason: 'sentinel moved' names no blocks"):
        read_journal(path)
