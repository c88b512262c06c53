"""What the tests of sessions, workers and sweeps share: modelled devices with faults, points, and a listener that keeps notes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from greenbench.costeps import CoSchedule, CoSetup, RolePrepared, Trace
from greenbench.schema import DeviceFacts, Evidence, Partition, Point, RunMeta, SmsMode, Timing
from greenbench.worker.child import Server

ROOT = Path(__file__).parent.parent
SMALL = 1 << 20


def model(folder: Path, *faults: dict[str, Any], **facts: Any) -> str:
    """Write a model file with these faults over an H200 and return its `--device`."""
    lines = ['base = "h200"', *(f"{key} = {json.dumps(value)}" for key, value in facts.items())]
    for fault in faults:
        lines += ["[[fault]]", *(f"{key} = {json.dumps(value)}" for key, value in fault.items())]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "device.toml"
    path.write_text("\n".join(lines) + "\n")
    return f"model:{path}"


def sized(sms: int, **more: Any) -> Partition:
    """A partition by count."""
    return Partition(SmsMode.COUNT, sms, **more)


def at(sms: int | Partition, kernel: str = "copy", timing: Timing = Timing.STEADY, **params: Any) -> Point:
    """A point of a library kernel; memory kernels are small."""
    defaults: dict[str, dict[str, Any]] = {"copy": {"n": SMALL}, "triad": {"n": SMALL, "s": 3.0}}
    known = defaults.get(kernel, {})
    partition = sms if isinstance(sms, Partition) else sized(sms)
    return Point(kernel, tuple(sorted({**known, **params}.items())), partition, timing)


def children(parent: int) -> set[int]:
    """Ids of the living child processes of a process."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    """True while the process runs; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def environment(**more: str) -> dict[str, str]:
    """The environment of a child that finds this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **more}


class Notes:
    """A listener that remembers, and does something when a label comes by."""

    def __init__(self, on_progress: Callable[[str, int], None] | None = None) -> None:
        self.notes: list[str] = []
        self.labels: list[str] = []
        self.progressed: list[tuple[float, float]] = []
        self.folder: Path | None = None
        self.meta: RunMeta | None = None
        self.total_blocks = 0
        self.ended = 0
        self._on_progress = on_progress

    def started(self, meta: RunMeta, folder: Path, total_blocks: int) -> None:
        """Keep what the run says of itself."""
        self.meta, self.folder, self.total_blocks = meta, folder, total_blocks

    def note(self, text: str) -> None:
        """Keep the line."""
        self.notes.append(text)

    def progress(self, done_s: float, expected_s: float, label: str) -> None:
        """Keep the label and let the test act."""
        self.labels.append(label)
        self.progressed.append((done_s, expected_s))
        if self._on_progress is not None:
            self._on_progress(label, len(self.labels))

    def finished(self) -> None:
        """Count."""
        self.ended += 1


class WorkerHere:
    """A worker of a modelled device without a process: the verbs of the child are called in this one, which takes no start."""

    def __init__(
        self,
        device: str,
        kernel_dirs: Sequence[Path] = (),
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._hello, self._server = (device, tuple(kernel_dirs), None), Server()
        self.device: DeviceFacts | None = None

    def start(self) -> tuple[DeviceFacts, str]:
        """Open the device."""
        found = self._server.hello(*self._hello)
        self.device = found[0]
        return found

    def co_prepare(self, setup: CoSetup, *, timeout_s: float) -> tuple[RolePrepared, ...]:
        """Prepare the roles of a point."""
        return self._server.co_prepare(setup)

    def co_run(self, setup: CoSetup, schedule: CoSchedule, *, timeout_s: float) -> Trace:
        """Run its schedule."""
        return self._server.co_run(setup, schedule)

    def co_drop(self) -> None:
        """Give up what is prepared."""
        self._server.co_drop()

    def evidence(self) -> Evidence:
        """Read what the model says of itself."""
        return self._server.evidence()

    def stop(self) -> None:
        """Close the device."""
        self._server.close()

    kill = stop
