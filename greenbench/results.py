"""A run read back from its folder: rows.csv where it holds what the journal gives, else the rows that the journal gives now."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from greenbench.errors import ResultFileError
from greenbench.journal import read_journal
from greenbench.limits import derive_bounds
from greenbench.rows import derive_rows
from greenbench.runfiles import RunFolder, read_meta, read_rows
from greenbench.schema import Block, BlockKind, BlockStatus, BoundRow, Row, RunMeta, Status

# Far above any GPU; what is drawn has a tick for every so many of them.
MOST_SMS = 100_000
_COUNT = re.compile(r"-?[0-9]{1,40}")
DERIVED = "the rows are derived from blocks.csv"


@dataclass(frozen=True, slots=True)
class Results:
    """What a run left behind; `note` says where its rows come from, where that is not rows.csv as it stands."""

    folder: RunFolder
    meta: RunMeta
    rows: tuple[Row, ...]
    note: str = ""
    limits: tuple[BoundRow, ...] = ()


def read_run(path: Path) -> Results:
    """Read a run folder; a run that was killed while it was resumed has a rows.csv that is older than its journal."""
    folder = RunFolder.open(path)
    meta = read_meta(folder.meta_path)
    if not 1 <= meta.device.sm_count <= MOST_SMS:
        raise ResultFileError(f"{folder.meta_path}: device.sm_count: {meta.device.sm_count} is no number of SMs of a GPU")
    rows, note = _rows(folder, meta)
    if not rows:
        raise ResultFileError(f"{folder.path} has no rows, so there is nothing to read; go on with sweep --resume {folder.path}")
    return Results(folder, meta, tuple(rows), note, _limits(folder, meta, rows))


def _checked(rows: list[Row], path: Path, sm_count: int) -> list[Row]:
    """Return the rows; sizes that the device of the run does not have are refused, since figures are drawn over them."""
    for number, row in enumerate(rows, start=1):
        asked = int(row.sms_requested) if _COUNT.fullmatch(row.sms_requested) else None
        for name, sms in (("sms_requested", asked), ("sms_granted", row.sms_granted)):
            if sms is not None and not 1 <= sms <= sm_count:
                raise ResultFileError(
                    f"{path} row {number}, column {name}: {sms} is not from 1 to the {sm_count} SMs of its device"
                )
    return rows


def _rows(folder: RunFolder, meta: RunMeta) -> tuple[list[Row], str]:
    if not folder.journal_path.exists():
        return _checked(read_rows(folder.rows_path), folder.rows_path, meta.device.sm_count), ""
    if not folder.rows_path.exists():
        rows = derive_rows(meta, read_journal(folder.journal_path))
        return rows, f"{folder.path} has no rows.csv, its run was cut off; {DERIVED}"
    kept = _checked(read_rows(folder.rows_path), folder.rows_path, meta.device.sm_count)
    try:
        blocks = read_journal(folder.journal_path)
    except ResultFileError as error:
        return kept, f"{error}; rows.csv is taken as it is"
    if gone := lost(kept, blocks):
        return kept, f"{gone}; rows.csv is taken as it is"
    derived = derive_rows(meta, blocks)
    old = outdated(kept, derived)
    if not old:
        return kept, ""
    return derived, f"{folder.rows_path} is older than blocks.csv ({old} of {len(kept)} rows differ); {DERIVED}"


def _limits(folder: RunFolder, meta: RunMeta, rows: Sequence[Row]) -> tuple[BoundRow, ...]:
    """Return the lines of bounds.csv, made anew; none where the journal is not there or cannot be read."""
    try:
        return tuple(derive_bounds(meta, read_journal(folder.journal_path), rows))
    except ResultFileError:
        return ()


def refuse_lost(folder: RunFolder) -> None:
    """Refuse to continue a run whose journal lost what its rows.csv holds: it would be measured anew and written over."""
    blocks = read_journal(folder.journal_path) if folder.journal_path.exists() else []
    if not folder.rows_path.exists():
        return
    try:
        kept = read_rows(folder.rows_path)
    except ResultFileError:
        if blocks:
            return
        raise
    if gone := lost(kept, blocks):
        raise ResultFileError(f"{folder.path} cannot be continued: {gone}; start a new run with another --out")


def lost(kept: Sequence[Row], blocks: Sequence[Block]) -> str:
    """Return what rows.csv holds and the journal lacks, or an empty text.

    One block may be missing, as a power cut tears the last line off. Blocks that were taken back count: rows.csv may be older.
    """
    have: Counter[tuple[object, ...]] = Counter(
        (b.kernel, b.params, b.sms_requested, b.granularity, b.workqueue, b.concurrency_limit, b.connections, b.timing)
        for b in blocks
        if b.kind is BlockKind.BLOCK and b.status is BlockStatus.OK
    )
    lacking: dict[str, int] = {}
    good = [row for row in kept if row.status == Status.OK]
    for r in good:
        point = (r.kernel, r.params, r.sms_requested, r.granularity, r.workqueue, r.concurrency_limit, r.connections, r.timing)
        if have[point] < (r.rounds or 1):
            lacking[r.label] = (r.rounds or 1) - have[point]
    missing = sum(lacking.values())
    if not missing or (missing == 1 and blocks):
        return ""
    held = sum(row.rounds or 1 for row in good)
    of = f"{len(good)} ok point{'' if len(good) == 1 else 's'} from {held} block{'' if held == 1 else 's'}"
    return f"rows.csv holds {of}, and blocks.csv lacks {missing} of these, the first of {next(iter(lacking))}"


def outdated(kept: Sequence[Row], derived: Sequence[Row]) -> int:
    """Return how many rows of a table hold other blocks than the journal has; times of files tell nothing after a copy.

    Rows that somebody took out of the table, and figures that somebody changed, stay as they are.
    """
    now = {row.label: (row.rounds, row.samples) for row in derived}
    return sum(now.get(row.label) != (row.rounds, row.samples) for row in kept)
