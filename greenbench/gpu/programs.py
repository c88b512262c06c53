"""The on-disk cache of compiled kernels: each cubin with its resource report, and no trouble of the disk ever stops a compile."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

MAX_BYTES = 256 * 2**20
_REPORT = b"greenbench report 1"
_FIELDS = {"sha256", "symbol", "log", "registers", "shared_bytes", "local_bytes", "spill_bytes"}


def programs_dir(cache_dir: Path | None = None) -> Path:
    """Return the folder of the cache: under `cache_dir`, else GREENBENCH_CACHE_DIR, else the user's cache folder."""
    chosen = cache_dir or os.environ.get("GREENBENCH_CACHE_DIR")
    if not chosen:
        import platformdirs

        chosen = platformdirs.user_cache_dir("greenbench")
    return Path(chosen) / "programs"


class ProgramCache:
    """A folder of cubins and reports; what it cannot read is a miss, what it cannot write is a note, said once."""

    def __init__(self, folder: Path) -> None:
        from cuda.core.utils import FileStreamProgramCache

        self.folder = folder
        self._note = ""
        self._noted = False
        try:
            self._files: Any = FileStreamProgramCache(folder, max_size_bytes=MAX_BYTES)
        except OSError as error:
            self._files = None
            self._trouble(error)

    def load(self, key: bytes) -> tuple[bytes, dict[str, Any]] | None:
        """Return cubin and report, None unless both are there and belong together."""
        if self._files is None:
            return None
        try:
            cubin, text = bytes(self._files[key]), bytes(self._files[key + _REPORT])
            report = json.loads(text)
        except (KeyError, OSError, ValueError):
            return None
        whole = isinstance(report, dict) and report.keys() >= _FIELDS
        if not whole or report["sha256"] != hashlib.sha256(cubin).hexdigest():
            return None
        return cubin, report

    def store(self, key: bytes, cubin: bytes, report: dict[str, Any]) -> None:
        """Keep a cubin and its report."""
        if self._files is None:
            return
        whole = {**report, "sha256": hashlib.sha256(cubin).hexdigest()}
        try:
            self._files[key] = cubin
            self._files[key + _REPORT] = json.dumps(whole).encode()
        except OSError as error:
            self._trouble(error)

    def note(self) -> str:
        """Return the sentence about a cache that does not work, the first time only."""
        if self._noted or not self._note:
            return ""
        self._noted = True
        return self._note

    def _trouble(self, error: OSError) -> None:
        self._note = (
            f"the program cache {self.folder} cannot be used ({error.strerror}), so kernels are compiled anew every time; "
            "set GREENBENCH_CACHE_DIR to a folder that can be written"
        )


@cache
def open_cache(folder: Path) -> ProgramCache:
    """Return the cache of a folder, one per process."""
    return ProgramCache(folder)


__all__ = ["ProgramCache", "open_cache", "programs_dir"]
