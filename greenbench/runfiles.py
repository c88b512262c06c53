"""A run folder: run.json, the journal, rows.csv and the raw samples; every file but the journal is replaced atomically."""

from __future__ import annotations

import csv
import gzip
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from greenbench import cojournal
from greenbench.corow import CoRow
from greenbench.errors import GreenbenchError, ResultFileError, UsageError
from greenbench.journal import Journal, holds_nothing, read_journal, void_reason, voided
from greenbench.records import BadValueError, from_json, to_json
from greenbench.schema import SCHEMA_VERSION, Block, BlockKind, BlockStatus, BoundRow, Row, RunMeta
from greenbench.storage import replace_file, writing
from greenbench.tables import check_header, header_line, parse_line, parse_record, record_line, split_lines

_Line = TypeVar("_Line", Row, CoRow)

# What a run that was killed before it wrote run.json may leave.
_BARE = frozenset({"blocks.csv", "worker.log", "mps.log", ".run.json.tmp", ".writable"})
_SAMPLE_COLUMNS = ("label", "round", "seq", "sample_index", "time_us", "launches")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where the files of one run are."""

    path: Path

    @property
    def run_id(self) -> str:
        """Name of the folder: column run_id."""
        return self.path.name

    @property
    def meta_path(self) -> Path:
        """run.json."""
        return self.path / "run.json"

    @property
    def journal_path(self) -> Path:
        """blocks.csv."""
        return self.path / "blocks.csv"

    @property
    def rows_path(self) -> Path:
        """rows.csv."""
        return self.path / "rows.csv"

    @property
    def bounds_path(self) -> Path:
        """bounds.csv."""
        return self.path / "bounds.csv"

    @property
    def samples_path(self) -> Path:
        """samples.csv.gz."""
        return self.path / "samples.csv.gz"

    @classmethod
    def create(cls, path: Path | None, *, root: Path, command: str, now: datetime) -> RunFolder:
        """Make the folder of a new run and prove that it can be written to; call this before any GPU work."""
        if path is None:
            path = root / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{command}-{secrets.token_hex(2)}"
        with writing(path):
            try:
                path.mkdir(parents=True, exist_ok=True)
                taken = any(path.iterdir()) and not _is_bare(path)
            except (FileExistsError, NotADirectoryError):
                _refuse_file(path)
            if taken:
                raise UsageError(f"{path} exists and is not empty; continue that run with --resume {path} or give another --out")
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        return cls(path.absolute())

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of an earlier run, refusing what is none."""
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise ResultFileError(f"{path} {what}; a run is the folder that a sweep wrote, with run.json in it")
        folder = cls(path.absolute())
        if not folder.meta_path.is_file():
            missing = "its run.json is a folder" if folder.meta_path.is_dir() else "there is no run.json in it"
            anew = f"; nothing was measured, begin anew with --out {path}" if _is_bare(path) else ""
            raise ResultFileError(f"{path} is not the folder of a run: {missing}{anew}")
        return folder

    def remove_if_empty(self) -> None:
        """Take the folder away again if nothing was written to it, as when there turns out to be no GPU."""
        with suppress(OSError):
            self.path.rmdir()


def _is_bare(path: Path) -> bool:
    """Tell what a run left that was killed before it measured anything; whether it still lives, the journal's lock says."""
    return begun_nothing(path / "blocks.csv") and all(each.name in _BARE for each in path.iterdir())


def begun_nothing(journal: Path) -> bool:
    """Tell a journal, of whichever command, in which no visit was ever begun."""
    return holds_nothing(journal) or cojournal.holds_nothing(journal)


def _refuse_file(path: Path) -> NoReturn:
    blocking = next((each for each in (path, *path.parents) if each.exists() and not each.is_dir()), path)
    raise UsageError(f"--out {path} cannot be a folder: {blocking} is a file; give another name") from None


def write_meta(path: Path, meta: RunMeta) -> None:
    """Write run.json."""
    try:
        text = json.dumps(to_json(meta), indent=1, ensure_ascii=False, allow_nan=False)
    except BadValueError as error:
        raise GreenbenchError(f"{path}: {error}") from error
    replace_file(path, text.encode("utf-8", errors="backslashreplace") + b"\n")


def read_meta(path: Path) -> RunMeta:
    """Read run.json; the result equals what was written."""
    data = _read(path)
    try:
        tree = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{path} is not JSON: {error}") from error
    schema = tree.get("schema") if isinstance(tree, dict) else None
    if schema is not None and schema != SCHEMA_VERSION:
        raise _other_schema(path, schema)
    try:
        return cast(RunMeta, from_json(RunMeta, tree))
    except BadValueError as error:
        raise ResultFileError(f"{path} is not the run.json of a run: {error}") from error


def _other_schema(place: object, schema: object) -> ResultFileError:
    return ResultFileError(
        f"{place} is of schema {schema!s:.20}; this greenbench reads {SCHEMA_VERSION}: use the version that wrote it"
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultFileError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error


def _seven_digits(value: float) -> str:
    """Return whole numbers (flops, bytes) exactly and anything else to seven digits, as float32 events carry."""
    shown = value if value.is_integer() else float(f"{value:.7g}")
    return str(int(shown)) if shown.is_integer() and abs(shown) < 2**63 else f"{shown:.7g}"


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows.csv."""
    _write_table(path, Row, rows)


def write_corows(path: Path, rows: Sequence[CoRow]) -> None:
    """Write the rows.csv of a colocate or switch run."""
    _write_table(path, CoRow, rows)


def write_bounds(path: Path, lines: Sequence[BoundRow]) -> None:
    """Write bounds.csv."""
    _write_table(path, BoundRow, lines)


def _write_table(path: Path, record: type, items: Sequence[Row] | Sequence[CoRow] | Sequence[BoundRow]) -> None:
    lines = [header_line(record), *(record_line(item, path, _seven_digits) for item in items)]
    replace_file(path, b"".join(lines))


def read_rows(path: Path) -> list[Row]:
    """Read a rows.csv, or that of a run folder; strict, naming row and column of what is wrong."""
    return _read_table(path, Row)


def read_corows(path: Path) -> list[CoRow]:
    """Read the rows.csv of a colocate or switch run, or of its folder; as strict as `read_rows`."""
    return _read_table(path, CoRow)


def readable_corows(path: Path) -> list[CoRow]:
    """Return the rows that can be read of a rows.csv which cannot be read as a whole: none where its head is lost."""
    rows: list[CoRow] = []
    with suppress(ResultFileError):
        lines, rest = split_lines(_read(path).removeprefix(b"\xef\xbb\xbf"))
        header = parse_line(lines[0], f"{path} header") if lines else []
        check_header(CoRow, header, path)
        for line in (*lines[1:], rest):
            with suppress(ResultFileError):
                rows.append(_parse_row(CoRow, header, parse_line(line, str(path)), str(path)))
    return rows


def _read_table(path: Path, record: type[_Line]) -> list[_Line]:
    inside = path / "rows.csv"
    path = inside if path.is_dir() and (path.name != inside.name or inside.exists()) else path
    data = _read(path).removeprefix(b"\xef\xbb\xbf")
    lines, rest = split_lines(data)
    lines += [rest] if rest else []
    if not lines:
        raise ResultFileError(f"{path} is empty, not a table of rows")
    header = parse_line(lines[0], f"{path} header")
    check_header(record, header, path)
    rows = []
    for number, line in enumerate(lines[1:], start=1):
        place = f"{path} row {number}"
        cells = parse_line(line, place)
        if cells:
            rows.append(_parse_row(record, header, cells, place))
    return rows


def _parse_row(record: type[_Line], header: Sequence[str], cells: Sequence[str], place: str) -> _Line:
    schema = cells[header.index("schema")] if len(cells) == len(header) else str(SCHEMA_VERSION)
    if schema.isascii() and schema.isdigit() and int(schema) != SCHEMA_VERSION:
        raise _other_schema(place, schema)
    return parse_record(record, header, cells, place)


def write_samples(path: Path, labels: Mapping[str, str], blocks: Sequence[Block]) -> None:
    """Write samples.csv.gz: the samples of every block that counts; `labels` maps Block.key to the row's label."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(_SAMPLE_COLUMNS)
    gone = voided(blocks)
    for block in blocks:
        if block.kind is BlockKind.BLOCK and block.status is BlockStatus.OK and block.seq not in gone:
            label = labels.get(block.key, "")
            for index, value in enumerate(block.samples_us):
                table.writerow([label, block.round, block.seq, index, repr(value), block.launches_per_sample])
    packed = io.BytesIO()
    # No name and no time in the header: equal samples give equal files.
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(text.getvalue().encode("utf-8", errors="backslashreplace"))
    replace_file(path, packed.getvalue())


def resume_obstacle(old: RunMeta, new: RunMeta) -> str:
    """Return why a run cannot be continued as `new` (its points after merging of equal grants), or an empty text."""
    facts = (
        ("command", old.command, new.command),
        ("backend", old.device.backend.value, new.device.backend.value),
        ("device", f"{old.device.name} {old.device.uuid}", f"{new.device.name} {new.device.uuid}"),
        ("driver", old.device.driver, new.device.driver),
        ("NVRTC", old.device.nvrtc, new.device.nvrtc),
        ("seed", str(old.seed), str(new.seed)),
        ("profiling", str(old.profiled).lower(), str(new.profiled).lower()),
    )
    for name, before, now in facts:
        if before != now:
            return f"run {old.run_id} cannot be continued: its {name} is {before}, now it is {now}; start a new run"
    return _kernel_obstacle(old, new) or _point_obstacle(old, new) or _plan_obstacle(old, new)


def _kernel_obstacle(old: RunMeta, new: RunMeta) -> str:
    digests = {kernel.name: kernel.digest for kernel in new.kernels}
    for kernel in old.kernels:
        if kernel.name in digests and digests[kernel.name] != kernel.digest:
            return f"run {old.run_id} cannot be continued: kernel {kernel.name} was changed since; start a new run"
    return ""


def _point_obstacle(old: RunMeta, new: RunMeta) -> str:
    before, now = set(old.points), set(new.points)
    differing = [("has a point that is not asked for now", point) for point in old.points if point not in now]
    differing += [("lacks a point that is asked for now", point) for point in new.points if point not in before]
    for what, point in differing[:1]:
        return f"run {old.run_id} cannot be continued: it {what}, {point.label()}; start a new run"
    return ""


def _plan_obstacle(old: RunMeta, new: RunMeta) -> str:
    """Compare the plans of runs whose points are not in run.json, since they follow from plan and device."""
    if old.points or new.points or to_json(old.plan) == to_json(new.plan):
        return ""
    keys = [key for key in {**old.plan, **new.plan} if to_json(old.plan.get(key)) != to_json(new.plan.get(key))]
    return f"run {old.run_id} cannot be continued: its plan has another {', '.join(sorted(keys))}; start a new run"


__all__ = [
    "Journal",
    "RunFolder",
    "begun_nothing",
    "read_corows",
    "read_journal",
    "read_meta",
    "read_rows",
    "readable_corows",
    "resume_obstacle",
    "void_reason",
    "voided",
    "write_bounds",
    "write_corows",
    "write_meta",
    "write_rows",
    "write_samples",
]
