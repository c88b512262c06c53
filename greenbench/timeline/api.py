"""What CUDA API calls do, told by their names: launch, wait, allocate, load, copy; versions and thread suffixes aside.

Names decide, since the synchronisation types of exports are unreliable. Source: CUDA driver API, "API synchronization behavior"
and "Stream synchronization behavior".
"""

from __future__ import annotations

import re
from enum import StrEnum

import numpy as np

from greenbench.timeline.capture import Capture
from greenbench.timeline.intervals import Flags

_SUFFIX = re.compile(r"(_v[0-9]+|_ptsz|_ptds)+$")


class Act(StrEnum):
    """What a call is to a timeline; the value is a noun for sentences."""

    LAUNCH = "launch"
    GRAPH_LAUNCH = "graph launch"
    WAIT = "host wait"
    STREAM_WAIT = "wait of a stream for an event"
    COPY = "synchronous copy"
    ALLOCATION = "allocation or registration of memory"
    MODULE = "load of a module"
    OTHER = "call"


_STEMS = (
    (Act.GRAPH_LAUNCH, re.compile(r"cu(da)?GraphLaunch")),
    (Act.LAUNCH, re.compile(r"cu(da)?Launch(?!HostFunc).*")),
    (Act.WAIT, re.compile(r"cu(da)?\w*Synchronize")),
    (Act.STREAM_WAIT, re.compile(r"cu(da)?(Stream|Ctx|GreenCtx)Wait(Event|Value\d+)")),
    (Act.COPY, re.compile(r"cu(da)?Memcpy(?!\w*Async)\w*")),
    (Act.ALLOCATION, re.compile(r"cu(da)?(Mem)?(Alloc|Malloc|Free|Host(Alloc|Register|Unregister))(?!\w*Async)\w*")),
    (Act.MODULE, re.compile(r"cu(da)?(Module|Library)(Load|Unload)\w*")),
)


def stem(name: str) -> str:
    """Return the name without version and default-stream suffixes: cuStreamDestroy_v2 is cuStreamDestroy."""
    return _SUFFIX.sub("", name)


def act_of(name: str) -> Act:
    """Return what a call does, by its name."""
    bare = stem(name)
    return next((act for act, pattern in _STEMS if pattern.fullmatch(bare)), Act.OTHER)


def calls_that(capture: Capture, *acts: Act) -> Flags:
    """Return which calls of a capture do one of these things."""
    wanted = [key for key, name in capture.names.items() if act_of(name) in acts]
    return np.isin(capture.calls.name, np.array(wanted, np.int64))
