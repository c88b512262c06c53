"""Paths on a command line that are written: none of them may be what is read, nor the same as another."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from greenbench.errors import UsageError


def refuse_same(read: Iterable[tuple[str, Path]], written: Iterable[tuple[str, Path]]) -> None:
    """Raise UsageError where what is written is one of what is read, or two are the same, by whatever names and links.

    `read` has pairs of what it is and its path, `written` of an option and a path that it writes; a device may be written twice.
    """
    sources = tuple(read)
    before: list[tuple[str, Path]] = []
    for option, path in written:
        for what, source in sources:
            if _same(path, source):
                raise UsageError(f"{option} {path} would replace {what} {source}; name another file")
        for earlier, other in before:
            if _same(path, other) and not _is_device(path):
                both = f"{earlier} and {option} both write {path}" if earlier != option else f"{option} writes {path} twice"
                raise UsageError(f"{both}; name two files")
        before.append((option, path))


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        # One of them is not there yet: then they are the same where both would be made in the same place.
        return os.path.realpath(one) == os.path.realpath(other)


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
