"""A run of `colocate` or `switch` read back: its visits, and rows.csv where it holds what they give, else the rows they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from greenbench.cojournal import CoVisit, read_cojournal
from greenbench.colocation.outcomes import co_rows, outcomes
from greenbench.corow import CoRow
from greenbench.errors import PlanError, ResultFileError
from greenbench.results import DERIVED, MOST_SMS
from greenbench.runfiles import RunFolder, read_corows, read_meta
from greenbench.schema import RunMeta
from greenbench.slo import Slo, parse_slo
from greenbench.switching.plan import recorded_switch
from greenbench.switching.rows import derive_switch_rows

COLOCATE, SWITCH = "colocate", "switch"


@dataclass(frozen=True, slots=True)
class CoResults:
    """What a run left behind; `note` says where its rows come from, where that is not rows.csv as it stands."""

    folder: RunFolder
    meta: RunMeta
    rows: tuple[CoRow, ...]
    visits: tuple[CoVisit, ...] = ()
    note: str = ""


def is_corun(path: Path) -> bool:
    """Return whether a folder holds a run of `colocate` or `switch`, whose rows.csv has columns of its own."""
    return read_meta(RunFolder.open(path).meta_path).command in (COLOCATE, SWITCH)


def read_corun(path: Path) -> CoResults:
    """Read a run folder of `colocate` or `switch`; raises ResultFileError where it holds no rows."""
    folder = RunFolder.open(path)
    meta = read_meta(folder.meta_path)
    if not 1 <= meta.device.sm_count <= MOST_SMS:
        raise ResultFileError(f"{folder.meta_path}: device.sm_count: {meta.device.sm_count} is no number of SMs of a GPU")
    rows, visits, note = _rows(folder, meta)
    if not rows:
        again = f"{meta.command} --resume {folder.path}"
        raise ResultFileError(f"{folder.path} has no rows, so there is nothing to read; go on with {again}")
    return CoResults(folder, meta, tuple(rows), tuple(visits), note)


def _rows(folder: RunFolder, meta: RunMeta) -> tuple[list[CoRow], list[CoVisit], str]:
    if not folder.journal_path.exists():
        return read_corows(folder.rows_path), [], ""
    if not folder.rows_path.exists():
        visits = read_cojournal(folder.journal_path)
        derived = _derived(meta, visits)
        return derived, visits, f"{folder.path} has no rows.csv, its run was cut off; {DERIVED}"
    kept = read_corows(folder.rows_path)
    try:
        visits = read_cojournal(folder.journal_path)
    except ResultFileError as error:
        strip = ", and there is no timeline strip" if meta.command == COLOCATE else ""
        return kept, [], f"{error}; rows.csv is taken as it is{strip}"
    derived = _derived(meta, visits)
    old = outdated(kept, derived)
    if not old:
        return kept, visits, ""
    return derived, visits, f"{folder.rows_path} is older than blocks.csv ({old} of {len(derived)} rows differ); {DERIVED}"


def _derived(meta: RunMeta, visits: Sequence[CoVisit]) -> list[CoRow]:
    if meta.command == SWITCH:
        return derive_switch_rows(meta, recorded_switch(meta), visits)
    return co_rows(outcomes(meta, visits, objectives(meta)))


def outdated(kept: Sequence[CoRow], derived: Sequence[CoRow]) -> int:
    """Return how many rows of the journal a table lacks, or holds with another outcome or other steps."""
    before = {(row.label, row.role): (row.status, row.steps) for row in kept}
    return sum(before.get((row.label, row.role)) != (row.status, row.steps) for row in derived)


def objectives(meta: RunMeta) -> Slo | None:
    """Return the objectives of a run, None where it had none; raises ResultFileError for what is none."""
    text = meta.plan.get("slo")
    if not text:
        return None
    try:
        return parse_slo(text, "plan.slo")
    except PlanError as error:
        raise ResultFileError(f"run {meta.run_id}: {error}") from error
