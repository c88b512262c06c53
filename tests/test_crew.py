"""The crew of a run: what a replaced worker prepares must be what its predecessor measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from greenbench.errors import FailedError
from greenbench.experiments.crew import Crew
from greenbench.schema import Grant, Partition, Placement, Point, Prepared, SmsMode, Timing

POINT = Point("triad", (("n", 64),), Partition(SmsMode.COUNT, 8))
PREPARED = Prepared(
    timing=Timing.STEADY,
    config="",
    source_digest="a",
    flops=None,
    bytes=None,
    working_set_bytes=0,
    written_bytes=0,
    launches_per_sample=1,
    samples_per_block=5,
    verified_error=None,
    launch_us=1.0,
    block_s=0.1,
    grid=1,
    ctas_per_sm=1,
    grant=Grant(sms=8, smids=tuple(range(8)), placement=Placement.CONFINED, split_method="count"),
)


class Stand:
    """A worker that prepares what it is told to."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    def prepare(self, point: Point, timing: Timing | None, *, timeout_s: float) -> Prepared:
        """Answer with the digest of the file as it is now."""
        return replace(PREPARED, source_digest=self._digest)


def test_a_kernel_that_changes_under_way_fails_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal digests go on; another one after a worker was replaced is refused, so that no row mixes two kernels."""
    crew = Crew("model:h200", (), None, 5.0)
    cast(dict[Any, Any], crew._prepared)[None] = set()
    for digest in ("a", "a"):
        monkeypatch.setattr(crew, "_worker", lambda key, digest=digest: Stand(digest))
        assert crew.prepare(POINT).source_digest == "a"
    monkeypatch.setattr(crew, "_worker", lambda key: Stand("b"))
    with pytest.raises(FailedError, match="kernel triad was changed while the run was under way"):
        crew.prepare(POINT)
