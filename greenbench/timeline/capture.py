"""What a trace holds, whoever recorded it: work on the GPU, calls of the host, NVTX ranges and contexts, as columns.

All columns of one table have the same length; times are integer ns on the clock of the trace, ids are as recorded.
`row` is the rowid in the table that the entry was read from, so that whatever is claimed can be looked up there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Self

from greenbench.timeline.intervals import Flags, Ints

NOTHING = -1
_TID_BITS = 24


class Kind(IntEnum):
    """What occupied the GPU; a graph is a whole replay whose kernels were not traced."""

    KERNEL = 0
    GRAPH = 1
    COPY = 2
    MEMSET = 3


TABLES = {
    Kind.KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    Kind.GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    Kind.COPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    Kind.MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
}
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"


class Columns:
    """Base of tables whose fields are all columns of one length."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, which: Ints | Flags | slice) -> Self:
        """Return some of the entries: by a mask, by positions, or a stretch of them, which is not copied."""
        return type(self)(*(getattr(self, column.name)[which] for column in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Work(Columns):
    """What ran on the GPU, ordered by context and start.

    `place` is the position in Capture.contexts, `call` the one in Capture.calls or NOTHING; `green` is 0 outside green
    contexts; `name` is an id of Capture.names; `node` a graph node or NOTHING; `size` bytes, `direction`, `source` and
    `target` are of copies (CUDA's copyKind and memory kinds) and NOTHING elsewhere.
    """

    kind: Ints
    row: Ints
    start: Ints
    end: Ints
    process: Ints
    device: Ints
    context: Ints
    green: Ints
    stream: Ints
    correlation: Ints
    name: Ints
    node: Ints
    size: Ints
    direction: Ints
    source: Ints
    target: Ints
    place: Ints
    call: Ints

    @property
    def duration(self) -> Ints:
        """End less start, in ns."""
        return self.end - self.start

    @property
    def computes(self) -> Flags:
        """True for kernels and whole graphs, which are what occupies SMs."""
        return self.kind <= int(Kind.GRAPH)

    def computing(self) -> Work:
        """Return the kernels and whole graphs; not copied where there is nothing else."""
        computes = self.computes
        return self if computes.all() else self.take(computes)


@dataclass(frozen=True, slots=True)
class Calls(Columns):
    """Calls of the CUDA runtime and driver, ordered by start; `name` is an id of Capture.names."""

    row: Ints
    start: Ints
    end: Ints
    thread: Ints
    correlation: Ints
    name: Ints


@dataclass(frozen=True, slots=True)
class Ranges(Columns):
    """NVTX ranges, ordered by thread, start and descending end, so that an inner one comes after the outer.

    `domain`, `name` and `category` are positions in Capture.texts (`category` may be NOTHING), `group` numbers the pairs
    (domain, name), `payload` is an integer payload or NOTHING.
    """

    row: Ints
    start: Ints
    end: Ints
    thread: Ints
    domain: Ints
    name: Ints
    category: Ints
    payload: Ints
    group: Ints


@dataclass(frozen=True, slots=True)
class Waits(Columns):
    """Rows of the synchronisation table: who waited on what stream."""

    row: Ints
    start: Ints
    end: Ints
    process: Ints
    context: Ints
    stream: Ints
    correlation: Ints
    kind: Ints


@dataclass(frozen=True, slots=True)
class Context:
    """A place where work runs: `green` is 0 for a primary context; `sms` where the trace tells, and then from where."""

    process: int
    device: int
    context: int
    green: int
    label: str
    sms: int | None = None
    sms_source: str = ""


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A context as the trace's own table of contexts has it."""

    pid: int
    device: int
    context: int
    parent: int
    green: bool
    null_stream: int
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """Priority and flag (1 blocking, 2 non-blocking, 3 null stream) of a stream."""

    pid: int
    stream: int
    priority: int
    flag: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device as the trace names it."""

    name: str
    sms: int | None


@dataclass(frozen=True, slots=True)
class Capture:
    """Everything that was read from a trace, and in `notes` what could not be."""

    source: str
    product: str
    schema: str
    work: Work
    calls: Calls
    ranges: Ranges
    waits: Waits
    contexts: tuple[Context, ...]
    context_rows: tuple[ContextRow, ...]
    streams: tuple[Stream, ...]
    gpus: Mapping[int, Gpu]
    names: Mapping[int, str]
    texts: tuple[str, ...]
    row_counts: Mapping[str, int]
    knows_green: bool
    notes: tuple[str, ...] = field(default=())

    def name(self, identity: int) -> str:
        """Return the text of an id of the table of strings."""
        return self.names.get(int(identity), f"name #{int(identity)}")


def pid_of(process: int) -> int:
    """Return the process id within a globalPid or globalTid."""
    return (process >> _TID_BITS) & ((1 << _TID_BITS) - 1)


def process_of(thread: Ints) -> Ints:
    """Return the globalPid of globalTids."""
    return (thread >> _TID_BITS) << _TID_BITS
