"""Ctrl-C goes to a whole process group, also to a child that has not come so far as to ignore it: here it waits until then."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_held() -> Iterator[None]:
    """Spawn children inside this block: they inherit that SIGINT is blocked, and the parent gets one that came as it ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_ctrl_c() -> None:
    """Leave Ctrl-C to the parent from here on, in a child that was spawned inside `ctrl_c_held`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
