"""What must still be known when a command ends badly: its run folder and its exit code, and where the traceback goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from greenbench.errors import ExitCode

TRACEBACK_NAME = "traceback.txt"


@dataclass(slots=True)
class Session:
    """State of one invocation, handed to the commands as click's `obj`; mutable because a command fills it as it goes."""

    arguments: tuple[str, ...] = ()
    command: str = "sweep"
    folder: Path | None = None
    finished: bool = False
    exit_code: ExitCode = ExitCode.DONE


def write_traceback(error: BaseException, folder: Path | None) -> Path | None:
    """Append the traceback to a file in the run folder, else in the temporary folder; None where neither can be written."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    if folder is not None:
        try:
            with (folder / TRACEBACK_NAME).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            pass
        else:
            return folder / TRACEBACK_NAME
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="greenbench-", suffix="-traceback.txt", delete=False
        ) as file:
            file.write(text)
            return Path(file.name)
    except OSError:
        return None


def raised_at(error: BaseException) -> str:
    """Return `file.py:line` of the innermost frame, for when the traceback itself finds no home."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
