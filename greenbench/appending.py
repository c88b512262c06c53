"""A file that only grows, one line at a time: one writer holds its lock, and every line is on disk before the next begins."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from greenbench.errors import UsageError
from greenbench.storage import sync_folder, writing
from greenbench.tables import split_lines


class AppendedFile:
    """An open file of lines; `content` holds its complete lines when it was opened.

    Opening changes nothing in it; an unfinished last line, as kill -9 leaves it, is cut off before the next one is appended.
    Raises UsageError where another process writes to it, OutputError where it cannot be written.
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
        except BaseException:
            self._file.close()
            raise
        rest = split_lines(data)[1]
        self.content = data[: len(data) - len(rest)]
        self.rest = rest
        self._size = len(self.content)
        self._torn = bool(rest)

    def append(self, line: bytes, kept: str = "") -> None:
        """Put a line on disk (write, fsync); after an OutputError, which says what is `kept`, all before it is still there."""
        first = not self._size
        with writing(self.path, kept):
            try:
                if self._torn:
                    self._file.truncate(self._size)
                    self._torn = False
                left = memoryview(line)
                while left:
                    left = left[self._file.write(left) :]
                os.fsync(self._file.fileno())
            except OSError:
                with suppress(OSError):
                    self._file.truncate(self._size)
                raise
        self._size += len(line)
        if first:
            sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the file and give back the lock; safe to call twice."""
        self._file.close()

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
