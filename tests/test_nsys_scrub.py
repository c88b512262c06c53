"""A scrubbed export: the same analysis, and not a byte of what the machine told about itself."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from greenbench.cli.main import cli
from greenbench.errors import OutputError, ResultFileError, UsageError
from greenbench.nsight.scrub import NUMBERS, TEXTS, scrub
from greenbench.timeline.analysis import analyse
from greenbench.timeline.database import Database
from greenbench.timeline.perfetto import write_trace
from greenbench.timeline.reading import read_capture
from greenbench.timeline.report import as_json
from tests.nsys_export import Export

DATA = Path(__file__).parent / "data" / "timeline"
REAL = DATA / "nsys_h200_two_green_contexts.sqlite"
EXPORTS = [REAL, DATA / "start_end_only.sqlite"]
# Of the file, not of what it shows: where it is, and how many rows are in tables that nobody reads.
OF_FILE = {"file", "row_counts"}


def analysed(path: Path) -> dict[str, object]:
    """Everything that the analysis says of a file."""
    return {name: value for name, value in as_json(analyse(read_capture(path))).items() if name not in OF_FILE}


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_the_analysis_is_the_same(path: Path, tmp_path: Path) -> None:
    """Figures, findings and the rows that they name are those of the original, for a real capture and a made one."""
    copy = tmp_path / "copy.sqlite"
    before = path.read_bytes()
    scrub(path, copy)
    assert analysed(copy) == analysed(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [copy]
    again = tmp_path / "again.sqlite"
    scrub(copy, again)
    assert again.read_bytes() == copy.read_bytes()


def plant(path: Path, secret: str) -> None:
    """Put a secret wherever nsys puts what it knows of a machine, and where a program may carry a path along."""
    connection = sqlite3.connect(path)
    for table, columns in {
        "TARGET_INFO_SYSTEM_ENV": "name, value",
        "META_DATA_CAPTURE": "name, value",
        "PROCESSES": "pid, name",
        "ThreadNames": "globalTid, nameId",
        "ANALYSIS_FILE": "id, filename",
        "ProcessStreams": "filenameId, contentId",
        "SOMETHING_NEW": "a, b",
    }.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
        connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (1, secret))
    connection.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', ?)", (f"{secret}.host",))
    for place, name in enumerate(("EXPORT_HOST", "EXPORT_USER", "EXPORT_PARAM_INPUT_1", "EXPORT_PARAM_OUTPUT")):
        connection.execute("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", (name, f"{secret}.{place}"))
    connection.execute("INSERT INTO StringIds VALUES (900001, ?)", (f"HOME=/home/{secret}",))
    connection.execute("UPDATE StringIds SET value = value || ? WHERE value = 'step'", (f" [/src/{secret}/step.cu]",))
    connection.execute("ALTER TABLE TARGET_INFO_GPU ADD COLUMN uuid")
    connection.execute("UPDATE TARGET_INFO_GPU SET uuid = ?", (secret,))
    connection.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN jsonText")
    connection.execute("UPDATE NVTX_EVENTS SET jsonText = ?", (secret,))
    connection.execute("INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) VALUES (5, 34, ?, 0)", (secret,))
    told = ((1, secret), (2, f"cannot open /etc/{secret}/x"), (3, f"{secret}.host said no"), (2, "a plain warning"))
    for severity, text in told:
        connection.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?)", (severity, text))
    # What was deleted is still in the pages of a file that is not vacuumed.
    connection.execute("CREATE TABLE gone AS SELECT ? AS text", (secret,))
    connection.execute("DROP TABLE gone")
    connection.commit()
    connection.close()


def made(path: Path, starts: Sequence[int]) -> Path:
    """A small export with green work, a stray, a copy and ranges of two domains."""
    export = Export()
    export.range("step", 0, 500_000)
    export.range("torch op", 1_000, 400_000, domain="")
    for turn, start in enumerate(sorted(starts)):
        export.kernel(600_000 + start, 600_900 + start, green=(2, 3, 0)[turn % 3], launched=2_000 + 5_000 * turn)
    export.copy(700_000, 710_000)
    export.add("TARGET_INFO_GPU", id=0, name="GPU", smCount=132)
    export.add("DIAGNOSTIC_EVENT", severity=2, text="first warning")
    return export.write(path)


LETTERS = st.text("abcdefghijklmnopqrstuvwxyzQXZ0123456789_-", min_size=9, max_size=24)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=LETTERS, starts=st.lists(st.integers(0, 90_000), min_size=1, max_size=12))
def test_no_secret_survives(secret: str, starts: list[int]) -> None:
    """A planted text is in no byte of the copy, and the analysis is that of the file before it was planted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, planted, copy = made(folder / "a.sqlite", starts), folder / "b.sqlite", folder / "c.sqlite"
        planted.write_bytes(source.read_bytes())
        plant(planted, f"S3CRET{secret}")
        assert f"S3CRET{secret}".encode() in planted.read_bytes()
        scrub(planted, copy)
        assert f"S3CRET{secret}".encode() not in copy.read_bytes()
        shown, before = analysed(copy), analysed(source)
        assert _notes(shown) == _notes(before) | {"nsys warning: a plain warning"}
        assert _without_path(shown) == before


def _notes(found: dict[str, Any]) -> set[str]:
    """Take the notes out; that of a warning stands among the others."""
    return set(found.pop("notes"))


def _without_path(value: Any) -> Any:
    """Take the blank that stands for a path out of the names of kernels."""
    if isinstance(value, Mapping):
        return {_without_path(key): _without_path(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_path(each) for each in value)
    return value.replace(" [(path)]", "") if isinstance(value, str) else value


def test_what_is_kept_is_what_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every column that reading, analysis, JSON and trace ask for is kept, and nothing is kept that nobody asks for."""
    asked: dict[str, set[str]] = defaultdict(set)
    integers, rows = Database.integers, Database.rows

    def noted_integers(self: Database, table: str, wanted: Mapping[str, int], where: str = "") -> Any:
        asked[table] |= set(wanted)
        return integers(self, table, wanted, where)

    def noted_rows(self: Database, table: str, wanted: Sequence[str], where: str = "") -> Iterator[Any]:
        asked[table] |= set(wanted)
        return rows(self, table, wanted, where)

    monkeypatch.setattr(Database, "integers", noted_integers)
    monkeypatch.setattr(Database, "rows", noted_rows)
    read_capture(REAL)
    capture = read_capture(made(tmp_path / "a.sqlite", [1, 2]))
    analysis = analyse(capture)
    as_json(analysis)
    write_trace(capture, analysis.attribution, tmp_path / "trace.json")
    # An old nsys has full names of kernels alone, and then these are asked for.
    old = made(tmp_path / "old.sqlite", [1])
    connection = sqlite3.connect(old)
    connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN shortName TO demangledName")
    connection.commit()
    connection.close()
    read_capture(old)
    asked.pop("", None)
    kept = {table: {*numbers, *TEXTS.get(table, ())} for table, numbers in NUMBERS.items()}
    assert dict(asked) == kept


def test_refusals(tmp_path: Path) -> None:
    """The file itself, a foreign one and a place that cannot be written get a sentence, and leave nothing behind."""
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(REAL.read_bytes())
    with pytest.raises(UsageError, match="is the file itself"):
        scrub(copy, copy)
    assert copy.read_bytes() == REAL.read_bytes()
    text = tmp_path / "x.txt"
    text.write_text("no database", encoding="utf-8")
    with pytest.raises(ResultFileError, match="no SQLite database"):
        scrub(text, tmp_path / "y.sqlite")
    with pytest.raises(OutputError, match="cannot be written"):
        scrub(REAL, tmp_path / "nowhere" / "y.sqlite")
    assert {path.name for path in tmp_path.iterdir()} == {"copy.sqlite", "x.txt"}


def test_timeline_scrubs(tmp_path: Path) -> None:
    """`timeline --scrub` writes the copy beside its analysis and names it last."""
    copy = tmp_path / "shown.sqlite"
    done = CliRunner().invoke(cli, ["timeline", str(REAL), "--scrub", str(copy)])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == str(copy)
    assert analysed(copy) == analysed(REAL)
    same = CliRunner().invoke(cli, ["timeline", str(copy), "--scrub", str(copy)])
    assert (same.exit_code, "would replace the capture" in same.stderr) == (2, True)
