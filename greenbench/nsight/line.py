"""The command line that is run: nsys, its flags with the reason for each, and the greenbench command under it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from greenbench.gpu.annotate import DOMAIN, MEASURING

# Short spellings of nsys profile for what greenbench sets too.
_LONG = {
    "-t": "--trace",
    "-s": "--sample",
    "-c": "--capture-range",
    "-p": "--nvtx-capture",
    "-f": "--force-overwrite",
    "-e": "--env-var",
}


class Part(StrEnum):
    """What part of a run is recorded."""

    MEASURING = "measuring"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of nsys profile, and why it is there."""

    text: str
    why: str

    @property
    def name(self) -> str:
        """The flag without its value."""
        return self.text.partition("=")[0]


_ALWAYS = (
    Flag("--trace=cuda,nvtx", "GPU work with its API calls, and greenbench's ranges; nothing else is looked at"),
    Flag("--sample=none", "no CPU samples: they need rights that containers lack"),
    Flag("--cpuctxsw=none", "nor context switches of the CPU, for the same reason"),
    Flag("--cuda-graph-trace=node", "the kernels of a graph one by one: whole graphs tell no overlap and no kernel"),
    Flag("--wait=all", "until the worker processes have ended too"),
    Flag("--force-overwrite=true", "or nsys puts the report into the temporary folder, and says that all is well"),
    Flag("--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "ranges of libraries too: by default only registered texts are seen"),
)
_RANGE = (
    Flag("--capture-range=nvtx", "from the measuring phase on: no start, no compiler, no verification"),
    Flag(f"--nvtx-capture={MEASURING}@{DOMAIN}", "that range; a bare name would mean the default domain"),
    Flag("--capture-range-end=stop", "the default would end nsys, and with it the run, when the range ends"),
    Flag("--kill=none", "the run goes on after the range, to write its rows"),
)


def flags(part: Part, own: Sequence[str] = ()) -> Iterator[Flag]:
    """Yield greenbench's flags, but for those that the user's `own` set: nsys takes each once (and --env-var often)."""
    given = {_LONG.get(word[:2], word.partition("=")[0]) for word in own if word.startswith("-")}
    given.discard("--env-var")
    if "--capture-range" in given:
        given.add("--nvtx-capture")
    for flag in (*_ALWAYS, *(_RANGE if part is Part.MEASURING else ())):
        if flag.name not in given:
            yield flag


def command_line(nsys: Path, part: Part, own: Sequence[str], output: Path, wrapped: Sequence[str]) -> list[str]:
    """Return the whole line; `wrapped` are the words after `greenbench`, run by this very interpreter and package."""
    ours = [flag.text for flag in flags(part, own)]
    program = [sys.executable, "-P", "-m", "greenbench", *wrapped]
    return [str(nsys), "profile", *ours, *own, f"--output={output}", *program]
