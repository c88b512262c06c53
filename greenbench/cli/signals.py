"""SIGTERM and SIGHUP end a run as Ctrl-C does: what was measured gets its rows, and the run can be resumed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from greenbench.cli.terminal import discard, reader_is_gone

# What a batch system, a container or a supervisor sends, and a terminal that is closed.
ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_like_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt for these signals inside the block; one that the caller ignores, as nohup does, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    hit: list[int] = []

    def end(number: int, _: object) -> None:
        hit.append(number)
        # A closed terminal sends its signal twice (kernel and shell), and the second must not cut the writing of rows short.
        for each in taken:
            signal.signal(each, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            if reader_is_gone(stream):
                discard(stream)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in taken}
    try:
        yield
    finally:
        if not hit:
            for number, handler in before.items():
                signal.signal(number, handler)
