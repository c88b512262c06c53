"""blocks.csv: every visit to a point on disk before the next one starts, and read back after whatever ended the run.

A `void` line takes blocks back: its reason begins with their sequence numbers, `seqs:3-9,12; sentinel off by 1.4 %`. A `drift`
line names blocks in the same way that count although the sentinel moved, since there was no taking them again.
"""

from __future__ import annotations

import fcntl
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

from greenbench.errors import GreenbenchError, ResultFileError, UsageError
from greenbench.schema import Block, BlockKind
from greenbench.storage import sync_folder, writing
from greenbench.tables import header_line, parse_line, parse_record, record_line, split_lines

_SEQS = re.compile(r"seqs:(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)(?:; .*)?", re.DOTALL | re.ASCII)
_NAMING = (BlockKind.VOID, BlockKind.DRIFT)
# Energy is the difference of two counters, which a reload of the driver sets back, and temperatures have no such end.
NEVER_NEGATIVE = (
    *("seq", "round", "attempt", "started", "seconds", "sms_granted", "sms_observed", "launches_per_sample", "samples_us"),
    *("flops", "bytes", "working_set_bytes", "written_bytes", "grid", "ctas_per_sm", "verified_error", "launch_host_us"),
    *("sm_clock_mhz", "mem_clock_mhz", "power_w"),
)


class Journal:
    """The append-only journal of one run; a context manager that holds the file's lock.

    Opening an existing journal changes nothing in it; an unfinished last line is cut off before the next block is appended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            # Unbuffered: what append() wrote is with the kernel when it returns, and a failed write can be cut off.
            self._file = path.open("a+b", buffering=0)
        try:
            self._lock()
            with writing(path):
                self._file.seek(0)
                data = self._file.readall()
            self.blocks, self._size = _parse(data, path)
            self._torn = self._size < len(data)
            if not self._size:
                self._write(header_line(Block))
                sync_folder(path.parent)
        except BaseException:
            self._file.close()
            raise

    @property
    def next_seq(self) -> int:
        """The sequence number of the next block: 0, or one more than that of the last line."""
        return self.blocks[-1].seq + 1 if self.blocks else 0

    def append(self, block: Block) -> None:
        """Put a block on disk (write, fsync); after an OutputError everything appended before is still there."""
        if block.seq < self.next_seq:
            raise GreenbenchError(f"{self.path}: block {block.seq} was appended after block {self.next_seq - 1}")
        self._write(record_line(block, self.path))
        self.blocks.append(block)

    @property
    def empty(self) -> bool:
        """Return whether nothing was ever visited."""
        return not self.blocks

    def close(self) -> None:
        """Close the file and give back the lock; safe to call twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.path} is being written by another greenbench; wait for it to end or write to another folder with --out"
            ) from None
        except OSError:
            # A file system without locks: measuring there is fine, two runs into one folder are the user's to avoid.
            return

    def _write(self, line: bytes) -> None:
        kept = f"; everything before it is kept ({len(self.blocks)} blocks), continue with --resume {self.path.parent}"
        with writing(self.path, kept):
            try:
                if self._torn:
                    self._file.truncate(self._size)
                    self._torn = False
                rest = memoryview(line)
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                with suppress(OSError):
                    self._file.truncate(self._size)
                raise
        self._size += len(line)


def read_journal(path: Path) -> list[Block]:
    """Return the blocks of a journal; an unfinished last line, as kill -9 leaves it, is dropped."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultFileError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    return _parse(data, path)[0]


def _parse(data: bytes, path: Path) -> tuple[list[Block], int]:
    """Return the blocks, and how many bytes of the file are complete lines."""
    lines, rest = split_lines(data)
    expected = header_line(Block)
    if not lines:
        if not expected.startswith(rest):
            raise ResultFileError(f"{path} is not a journal of greenbench: it does not start with the names of its columns")
        return [], 0
    header = parse_line(lines[0], f"{path} header")
    if header != parse_line(expected, "header"):
        raise ResultFileError(f"{path} is not a journal of this greenbench: its columns are not those of a block")
    if _holds_whole_lines(rest, len(header)):
        raise ResultFileError(f"{path} row {len(lines)}: a quoted cell is not closed before the next row begins")
    blocks: list[Block] = []
    for row, line in enumerate(lines[1:], start=1):
        place = f"{path} row {row}"
        block = parse_record(Block, header, parse_line(line, place), place)
        _refuse_negative(block, place)
        _refuse_negative(block, place)
        if blocks and block.seq <= blocks[-1].seq:
            raise ResultFileError(f"{place}, column seq: {block.seq} does not follow {blocks[-1].seq}")
        if block.kind in _NAMING:
            _seqs(block.reason, place)
        blocks.append(block)
    return blocks, len(data) - len(rest)


def _refuse_negative(block: Block, place: str) -> None:
    """Refuse a number that no measurement gives, as an edit may leave it; rows would be derived from it."""
    for name in NEVER_NEGATIVE:
        value = getattr(block, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and number < 0:
                raise ResultFileError(f"{place}, column {name}: {number} is below 0, which is never measured")


def holds_nothing(path: Path) -> bool:
    """Tell a journal in which no block was ever begun: its head alone, or what kill -9 left of that."""
    try:
        return path.is_file() and header_line(Block).startswith(path.read_bytes())
    except OSError:
        return False


def _holds_whole_lines(rest: bytes, cells: int) -> bool:
    """Tell a file damaged by a stray quote, which swallows rows, from one that a crash cut short."""
    for text in rest.splitlines()[1:]:
        with suppress(ResultFileError):
            if len(parse_line(text, "")) == cells:
                return True
    return False


def void_reason(seqs: Iterable[int], why: str = "") -> str:
    """Return the reason of a `void` or `drift` line that names these blocks."""
    ordered = sorted(set(seqs))
    if not ordered:
        raise GreenbenchError("a void or drift line must name at least one block")
    spans: list[list[int]] = []
    for seq in ordered:
        if spans and seq == spans[-1][1] + 1:
            spans[-1][1] = seq
        else:
            spans.append([seq, seq])
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return f"seqs:{text}" + (f"; {why}" if why else "")


def voided(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the sequence numbers that the journal's `void` lines take back."""
    return _named(blocks, BlockKind.VOID)


def drifted(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the sequence numbers of blocks that are kept although the sentinel moved after them."""
    return _named(blocks, BlockKind.DRIFT)


def _named(blocks: Sequence[Block], kind: BlockKind) -> frozenset[int]:
    spans = sorted(span for block in blocks if block.kind is kind for span in _seqs(block.reason, f"block {block.seq}"))
    starts = [low for low, _ in spans]
    # The farthest end of all spans that begin no later: a long span may hold shorter ones.
    ends = list(accumulate((high for _, high in spans), max))
    places = ((block.seq, bisect_right(starts, block.seq)) for block in blocks)
    return frozenset(seq for seq, place in places if place and seq <= ends[place - 1])


def _seqs(reason: str, place: str) -> list[tuple[int, int]]:
    match = _SEQS.fullmatch(reason)
    if not match:
        raise ResultFileError(f"{place}, column reason: {reason!r} names no blocks, as seqs:3-9,12 does")
    ends = [span.partition("-") for span in match[1].split(",")]
    return [(int(low), int(high or low)) for low, _, high in ends]
