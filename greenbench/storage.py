"""Writing to disk so that a crash leaves the old file or the new one, and a full disk is a sentence, not a traceback."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from greenbench.errors import OutputError

_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.EROFS: "the file system is read-only; choose a folder on another one",
    errno.EACCES: "permission is denied; choose a folder that you may write to",
    errno.EPERM: "permission is denied; choose a folder that you may write to",
}


@contextmanager
def writing(path: Path, kept: str = "") -> Iterator[None]:
    """Turn an OSError into an OutputError that says why, what is `kept` and what to do."""
    try:
        yield
    except OSError as error:
        reason = _WAYS_OUT.get(error.errno or 0, f"{(error.strerror or str(error)).lower()}; choose another folder")
        raise OutputError(f"{path} cannot be written: {reason}{kept}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in place of the file at once: readers and crashes see the old content or the new, never a part."""
    # One fixed name beside the target: a leftover of a killed process is overwritten by the next write.
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the file system knows that operation."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
