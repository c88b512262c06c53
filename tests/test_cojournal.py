"""The journal of a co-location: what was written is read again, whatever ended the run, and what is damaged is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from greenbench.cojournal import CoJournal, CoVisit, Pace, RoleFacts, RoleVisit, VisitKind, holds_nothing, read_cojournal
from greenbench.errors import OutputError, ResultFileError, UsageError
from greenbench.queueing.model import Kind, Mechanism
from greenbench.runfiles import RunFolder
from greenbench.schema import BlockStatus, Evidence, Flag, Grant, Placement
from greenbench.tails import Metric

GRANT = Grant(sms=3, smids=(0, 5, 9), placement=Placement.CONFINED, split_method="units", remainder=True)

text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
real = st.none() | st.floats(0, 1e12)
facts = st.builds(
    RoleFacts,
    name=text,
    kind=st.sampled_from(Kind),
    workload=text,
    params=text,
    metrics=st.lists(st.sampled_from(Metric), max_size=2).map(tuple),
    tokens=st.none() | st.integers(1, 9999),
    slot=st.none() | st.integers(0, 1),
    pace=st.sampled_from(Pace),
    rate_per_s=real,
    due=st.none() | st.integers(0, 9),
    grant=st.none() | st.just(GRANT),
    verified_error=real,
    smids=st.lists(st.integers(0, 200), max_size=3).map(tuple),
)


@st.composite
def roles(draw: st.DrawFn) -> RoleVisit:
    """A role with a few steps, which may be due before the origin."""
    stamps = st.tuples(st.integers(-9, 2**60), st.integers(0, 2**60), st.integers(0, 99), st.integers(0, 9))
    steps = draw(st.lists(stamps, max_size=4))
    pieces = draw(st.integers(0, 3)) * len(steps)
    piece = st.tuples(st.integers(-9, 2**60), st.integers(0, 99)).map(lambda each: (each[0], sum(each)))
    return RoleVisit(
        facts=draw(facts),
        due_ns=tuple(due for due, *_ in steps),
        start_ns=tuple(start for _, start, *_ in steps),
        end_ns=tuple(start + took for _, start, took, _ in steps),
        late_ns=tuple(late for *_, late in steps),
        reported=tuple(draw(st.lists(st.floats(0, 1e9), max_size=2))),
        chunks=tuple(draw(st.lists(piece, min_size=pieces, max_size=pieces))),
    )


visits = st.builds(
    CoVisit,
    kind=st.sampled_from(VisitKind),
    status=st.sampled_from(BlockStatus),
    reason=text,
    label=text,
    mechanism=st.sampled_from(Mechanism),
    sizes=st.sampled_from([(), (20, 112)]),
    rate_per_s=real,
    flags=st.lists(st.sampled_from(Flag), max_size=2).map(tuple),
    notes=text,
    before=st.builds(Evidence, power_w=real, processes=st.lists(st.integers(1, 99), max_size=2).map(tuple)),
    roles=st.lists(roles(), max_size=3).map(tuple),
)
VISIT = CoVisit(
    mechanism=Mechanism.GREEN,
    label="decode[]@20/driver_default/green/-",
    roles=(
        RoleVisit(
            facts=RoleFacts(name="latency", kind=Kind.LATENCY),
            due_ns=(0, 100),
            start_ns=(5, 105),
            end_ns=(50, 160),
            late_ns=(0, 1),
            chunks=((6, 21), (22, 31), (123, 131), (132, 143)),
        ),
        RoleVisit(facts=RoleFacts(name="background", kind=Kind.BACKGROUND)),
    ),
)


@given(drawn=st.lists(visits, max_size=3))
def test_visits_read_back(drawn: list[CoVisit], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every field of every visit, with any number of roles and steps, is what was appended; numbers run from 0."""
    path = tmp_path_factory.mktemp("run") / "blocks.csv"
    with CoJournal(path) as journal:
        written = [journal.append(visit) for visit in drawn]
    assert read_cojournal(path) == written
    assert [visit.seq for visit in written] == list(range(len(drawn)))


@given(cut=st.integers(1, 400))
def test_a_line_that_a_crash_cut_short_is_dropped(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever kill -9 left of the last line, those before it count, and the next visit is appended in its place."""
    path = tmp_path_factory.mktemp("run") / "blocks.csv"
    with CoJournal(path) as journal:
        journal.append(VISIT)
        before = path.stat().st_size
        journal.append(VISIT)
    data = path.read_bytes()
    path.write_bytes(data[: max(before, len(data) - cut)])
    assert len(read_cojournal(path)) == 1
    with CoJournal(path) as journal:
        assert len(journal.visits) == 1
        journal.append(VISIT)
    assert [visit.seq for visit in read_cojournal(path)] == [0, 1]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second greenbench at the same run is refused in a sentence."""
    with CoJournal(tmp_path / "blocks.csv"), pytest.raises(UsageError, match="is being written by another greenbench"):
        CoJournal(tmp_path / "blocks.csv")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    """A missing folder is an OutputError with the path."""
    with pytest.raises(OutputError, match="blocks.csv cannot be written"):
        CoJournal(tmp_path / "gone" / "blocks.csv")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0;100|", "0;100;200|", "row 1: the steps of role 'latency' have 3 due_ns, 2 start_ns"),
        ("0;100|", "0;x|", "row 1, column due_ns: invalid literal"),
        ("0;100|", "0;100", "row 1, column due_ns: 1 lists for 2 roles"),
        ("50;160|", "1;160|", "row 1, role 'latency': a step ends before it starts"),
        ("6;22;123;132|", "6;22;123|", "row 1, role 'latency': 3 starts and 4 ends are not the pieces of 2 steps"),
        ("21;31;131;143|", "2;31;131;143|", "row 1, role 'latency': a piece ends before it starts"),
        ("green,", "greens,", "row 1, column mechanism: 'greens' is none of"),
        ('"name""', '"nom""', "row 1, column roles: "),
    ],
)
def test_an_edited_line_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    """What is no visit is named by row and column."""
    path = tmp_path / "blocks.csv"
    with CoJournal(path) as journal:
        journal.append(VISIT)
    data = path.read_text()
    assert old in data
    path.write_text(data.replace(old, new, 1))
    with pytest.raises(ResultFileError) as refused:
        read_cojournal(path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"concurrency_limit": -1}, "column concurrency_limit: -1 cannot be; it is 1 or more"),
        ({"attempt": -1}, "column attempt: -1 cannot be"),
        ({"attempt": 0}, "column attempt: 0 cannot be"),
        ({"seconds": -1.0}, "column seconds: -1.0 cannot be; it is 0 or more"),
        ({"place": -1}, "column place"),
        ({"processes": 0}, "column processes"),
        ({"connections": 0}, "column connections"),
        ({"warm_ns": -1}, "column warm_ns"),
        ({"window_s": -0.1}, "column window_s"),
        ({"rate_per_s": -2.0}, "column rate_per_s"),
        ({"sizes": (20, 10**9)}, "column sizes: 1000000000 cannot be; it is from 1 to 100000"),
        ({"sizes": (0, 112)}, "column sizes: 0 cannot be"),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """What no visit has is named by row and column, and not counted with."""
    path = tmp_path / "blocks.csv"
    with CoJournal(path) as journal:
        journal.append(replace(VISIT, **change))
    with pytest.raises(ResultFileError) as refused:
        read_cojournal(path)
    assert f"row 1, {said}" in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [{"tokens": 0}, {"slot": -1}, {"due": -1}, {"smids": (-1,)}, {"step_us": -1.0}, {"grant": replace(GRANT, sms=0)}],
    ids=str,
)
def test_numbers_of_roles_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """So is what no role has."""
    path = tmp_path / "blocks.csv"
    first, *rest = VISIT.roles
    with CoJournal(path) as journal:
        journal.append(replace(VISIT, roles=(replace(first, facts=replace(first.facts, **change)), *rest)))
    with pytest.raises(ResultFileError, match=f"row 1, role 'latency', column {next(iter(change))}"):
        read_cojournal(path)


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    """A file of other columns, or of none, is refused before anything is read from it."""
    path = tmp_path / "blocks.csv"
    for content, said in (("a,b\n1,2\n", "lacks column seq"), ("hello", "does not start with the names of its columns")):
        path.write_text(content)
        with pytest.raises(ResultFileError, match=said):
            read_cojournal(path)


@pytest.mark.parametrize("count", [1, 3])
def test_pieces_are_as_many_for_each_step(tmp_path: Path, count: int) -> None:
    """Pieces that are not shared out evenly among the steps are no visit."""
    latency = VISIT.roles[0]
    path = tmp_path / "blocks.csv"
    with CoJournal(path) as journal:
        journal.append(replace(VISIT, roles=(replace(latency, chunks=latency.chunks[:count]), VISIT.roles[1])))
    with pytest.raises(ResultFileError, match=f"{count} starts and {count} ends are not the pieces of 2 steps"):
        read_cojournal(path)


def test_a_journal_without_pieces_is_refused_in_words(tmp_path: Path) -> None:
    """One of before steps had pieces is not of this layout, and the column that it lacks is named."""
    path = tmp_path / "blocks.csv"
    with CoJournal(path) as journal:
        journal.append(VISIT)
    path.write_text(path.read_text().replace("piece_start_ns,piece_end_ns,", "", 1))
    with pytest.raises(ResultFileError, match="lacks column piece_start_ns, piece_end_ns: not a table of this greenbench"):
        read_cojournal(path)


def test_a_role_runs_while_its_pieces_do() -> None:
    """Of steps that were due in a stretch: their pieces, or, without any, from start to end."""
    latency = VISIT.roles[0]
    assert latency.running(0, 999) == latency.chunks
    assert latency.running(1, 999) == latency.chunks[2:]
    assert replace(latency, chunks=()).running(0, 100) == ((5, 50),)
    assert VISIT.roles[1].running(0, 999) == ()


def test_a_bare_folder_can_be_taken_again(tmp_path: Path) -> None:
    """A run that was killed before its first visit leaves a head alone, which the next run with the same --out takes over."""
    with CoJournal(tmp_path / "blocks.csv") as journal:
        assert holds_nothing(tmp_path / "blocks.csv")
        RunFolder.create(tmp_path, root=tmp_path, command="colocate", now=datetime.now(UTC))
        journal.append(VISIT)
    assert not holds_nothing(tmp_path / "blocks.csv")
    with pytest.raises(UsageError, match="exists and is not empty"):
        RunFolder.create(tmp_path, root=tmp_path, command="colocate", now=datetime.now(UTC))


def test_roles_are_found_by_kind() -> None:
    """The key of a point tells both roles alone apart, and a role that steps were cut from says so."""
    latency = VISIT.role(Kind.LATENCY)
    assert latency is VISIT.roles[0]
    assert VISIT.key.endswith("/green/- latency background")
    assert not latency.cut
    cut = RoleVisit(
        facts=RoleFacts(name="latency", kind=Kind.LATENCY, due=3), due_ns=(0,), start_ns=(1,), end_ns=(2,), late_ns=(0,)
    )
    assert cut.cut
