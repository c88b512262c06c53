"""The fixed words of greenbench as enumerations: what a cell of its tables may hold."""

from __future__ import annotations

from enum import StrEnum


class Backend(StrEnum):
    """Who answered: a GPU, or the arithmetic of `bounds`. Never compared with each other."""

    CUDA = "cuda"
    MODELLED = "modelled"


class Family(StrEnum):
    """Kinds of kernel; decides plots and the default way of timing."""

    GEMM = "gemm"
    MEMORY = "memory"
    LATENCY = "latency"
    PROBE = "probe"


class SmsMode(StrEnum):
    """How the SMs of a partition are asked for."""

    COUNT = "count"
    FULL = "full"
    PRIMARY = "primary"


class Scope(StrEnum):
    """Workqueue sharing scopes, in cuda.core's words; `driver_default` sets nothing."""

    DRIVER_DEFAULT = "driver_default"
    DEVICE_CTX = "device_ctx"
    GREEN_CTX_BALANCED = "green_ctx_balanced"


class Timing(StrEnum):
    """Ways to take a sample; `auto` is resolved when the point is prepared, `cold` by the flush; `host` is of host probes."""

    AUTO = "auto"
    STEADY = "steady"
    COLD_CLEAN = "cold-clean"
    COLD_DIRTY = "cold-dirty"
    HOT = "hot"
    GRAPH = "graph"
    HOST = "host"


class HostAction(StrEnum):
    """What the host does and times instead of a launch: key `host` of a kernel file."""

    EVENT_RECORD = "event_record"
    CONTEXT_CREATE = "context_create"
    CONTEXT_DESTROY = "context_destroy"
    STREAM_CREATE = "stream_create"


class Api(StrEnum):
    """Who makes contexts, streams and events for a host probe; parameter `api` counts them from 0."""

    CORE = "core"
    DRIVER = "driver"
    RUNTIME = "runtime"


class Status(StrEnum):
    """Outcome of a point. Unsupported is not failed, failed is not slow."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


class Placement(StrEnum):
    """What the %smid census showed: the grant exactly, something else, or nothing."""

    CONFINED = "confined"
    LEAKED = "leaked"
    UNPROVEN = "unproven"


class StopReason(StrEnum):
    """Why no more blocks were taken at a point."""

    PRECISE = "precise"
    MAX_ROUNDS = "max_rounds"
    TIME_LIMIT = "time_limit"
    THROTTLED = "throttled"
    IDLE = "idle"
    INTERRUPTED = "interrupted"


class Flag(StrEnum):
    """Remarks on a kept row; `best` is the fastest of several yardsticks at one point."""

    POWER_CAPPED = "power_capped"
    CLOCK_UNSTABLE = "clock_unstable"
    CONTENDED = "contended"
    BIMODAL = "bimodal"
    HOST_BOUND = "host_bound"
    ABOVE_BOUND = "above_bound"
    REMAINDER = "remainder"
    SATURATED = "saturated"
    PROFILED = "profiled"
    DRIFTED = "drifted"
    DISCARDED = "discarded"
    BEST = "best"


class BlockKind(StrEnum):
    """Lines of the journal: a visit to a point, one to the sentinel, and blocks around which it moved: taken back, or kept."""

    BLOCK = "block"
    SENTINEL = "sentinel"
    VOID = "void"
    DRIFT = "drift"


class BlockStatus(StrEnum):
    """Outcome of one visit; only `ok` blocks carry samples that count."""

    OK = "ok"
    DISCARDED = "discarded"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
