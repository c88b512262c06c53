"""Whether a machine is fit to be measured: others on the GPU, throttling, and modes that change what SMs and clocks are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenbench.errors import UnfitError
from greenbench.measure.validity import foreign, judge
from greenbench.schema import BlockStatus, DeviceFacts, Evidence

_THROTTLED = "throttled: "


@dataclass(frozen=True, slots=True)
class Doubt:
    """What speaks against measuring here now: a clause, what a run makes of it, and the way out for one that will not."""

    text: str
    effect: str
    way_out: str

    @property
    def note(self) -> str:
        """Say it in one line to somebody who measures all the same."""
        return f"{self.text}; {self.effect}"


def modes(facts: DeviceFacts) -> list[str]:
    """Return what a reader of the rows must know of the mode that the GPU is in."""
    found = []
    if facts.mig:
        found.append(
            f"this GPU is in MIG mode: the {facts.sm_count} SMs are those of one instance, "
            "and work in other instances shares its clocks and its power limit"
        )
    if facts.mps:
        found.append("this GPU is under MPS: other clients of the daemon may run on the same SMs at the same time")
    return found


def doubts(reading: Evidence | None, own: int) -> list[Doubt]:
    """Return what speaks against measuring before anything was launched; `own` is the number of greenbench's workers."""
    if reading is None:
        return []
    found = []
    if foreign(reading.processes, own, pid=-1):
        others = len(reading.processes) - own
        found.append(
            Doubt(
                f"other processes use this GPU ({others} beside greenbench): figures would be theirs as well",
                "rows are flagged contended",
                "wait for them or choose another GPU with --device",
            )
        )
    if reasons := throttling(reading, reading):
        found.append(
            Doubt(
                f"this GPU throttles before anything runs on it ({reasons})",
                "blocks are thrown away as long as it does",
                "let it cool down, and see nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
            )
        )
    return found


def throttling(before: Evidence, after: Evidence) -> str:
    """Return the thermal and hardware reasons for which the clock was held down between two readings, or an empty string.

    Neither idle clocks nor the power limit is one: the first end with the first launch, the second is how big kernels run.
    """
    verdict = judge(before, after, 1.0)
    thrown = verdict.status is BlockStatus.DISCARDED and verdict.reason.startswith(_THROTTLED)
    return verdict.reason.removeprefix(_THROTTLED) if thrown else ""


def refuse(found: Sequence[Doubt]) -> None:
    """Raise UnfitError with every doubt and its way out, as --ci asks for."""
    if found:
        raise UnfitError("; ".join(f"{doubt.text}; {doubt.way_out}" for doubt in found))


def refuse_warm(before: Evidence | None, after: Evidence | None, place: object) -> None:
    """Raise UnfitError if the GPU throttled while points were prepared and the device was warmed up."""
    reasons = throttling(before, after) if before is not None and after is not None else ""
    if reasons:
        raise UnfitError(
            f"this GPU throttles as soon as it is warm ({reasons}), so nothing was measured; "
            f"see its cooling and nvidia-smi -q -d PERFORMANCE,TEMPERATURE, and {place}"
        )
