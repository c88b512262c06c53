"""Writing to disk so that a crash leaves the old file or the new one, and a full disk is a sentence, not a traceback."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from greenbench.errors import OutputError

_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.EROFS: "the file system is read-only; choose a folder on another one",
    errno.EACCES: "permission is denied; choose a folder that you may write to",
    errno.EPERM: "permission is denied; choose a folder that you may write to",
}

# As many as the kernel follows.
_MOST_LINKS = 40


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
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file whose content takes the place of `path` when the block ends well; an OSError becomes an OutputError.

    Links are followed to the file behind them. What is no file (a device, a FIFO, an open descriptor) is written to and stays.
    """
    with writing(path):
        target = file_behind(path)
        if target is None:
            with _stream(path) as file:
                yield file
            return
        # One fixed name beside the target: a leftover of a killed process is overwritten by the next write.
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(target.parent)


def put_in_place(made: Path, path: Path) -> None:
    """Let a finished file take the place of `path`, as `replacing` does; raises OutputError where it cannot."""
    with writing(path):
        target = file_behind(path)
        try:
            if target is not None:
                made.replace(target)
                return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        with made.open("rb") as source, replacing(path) as file:
            shutil.copyfileobj(source, file)
        made.unlink()


def file_behind(path: Path) -> Path | None:
    """Return the file that `path` is or leads to, there or not yet; None where it is a device, a FIFO or a descriptor.

    Raises OSError for links that go in a circle or through a folder that cannot be read.
    """
    if descriptor_of(path) is not None:
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    if stat.S_ISREG(mode):
        return path.resolve()
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    return None


def descriptor_of(path: Path) -> int | None:
    """Return the number of the descriptor of this process that a path such as /dev/stdout or /dev/fd/3 stands for, or None."""
    ours = {"/proc/self/fd", f"/proc/{os.getpid()}/fd", "/dev/fd"}
    for _ in range(_MOST_LINKS):
        if str(path.parent) in ours and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(os.path.normpath(path.parent.resolve() / path.readlink()))
    return None


def _stream(path: Path) -> IO[bytes]:
    """Open what is no file for writing: a descriptor goes on where it stands, and nothing is made or cut."""
    number = descriptor_of(path)
    return os.fdopen(os.open(path, os.O_WRONLY) if number is None else os.dup(number), "wb")


def why_no_file(path: Path) -> str:
    """Return what a path is that can only be confused with a file (`is a folder`), without opening it, which might block.

    An empty text stands for a file, and for what is not there: opening that says why.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    except ValueError:
        return "is no file: its name holds a character that no name can hold"
    if stat.S_ISREG(mode):
        return ""
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return f"is no file but {next((kind for test, kind in kinds if test(mode)), 'a device')}"


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the file system knows that operation."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
