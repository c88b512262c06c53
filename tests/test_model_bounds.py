"""The modelled devices keep to their own bounds: no point of a built-in plan is above what its SMs can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenbench.catalog import library
from greenbench.errors import PointError
from greenbench.gpu.modelled import open_modelled
from greenbench.measure.session import Session, base_kernel
from greenbench.plan import expand, load_plan
from greenbench.rows import derive_rows
from greenbench.schema import Block, Flag, KernelSummary, Row, RunMeta, Status


def modelled_rows(model: str, plan: str, timing: str | None = None) -> list[Row]:
    """Return the rows of a plan on a modelled device, each point visited once."""
    gpu, kernels = open_modelled(model), library()
    points = expand(load_plan(plan, {"timing": timing}, kernels), gpu.device, kernels)
    session, blocks = Session(gpu, kernels), list[Block]()
    session.open(list(dict.fromkeys(point.partition for point in points)))
    for point in points:
        try:
            session.prepare(point)
        except PointError:
            continue
        blocks.append(replace(session.block(point, round_=0), seq=len(blocks)))
    summaries = []
    for name in dict.fromkeys(point.kernel for point in points):
        base, yardstick = base_kernel(name)
        of = base if yardstick else ""
        known = kernels[base]
        summaries.append(KernelSummary(name=name, family=known.family, dtype=known.dtype, summary="", digest="", yardstick_of=of))
    about = RunMeta(
        run_id="r1",
        created="",
        greenbench="0",
        command="sweep",
        argv=(),
        seed=1,
        device=gpu.device,
        plan={},
        kernels=tuple(summaries),
        points=tuple(points),
        finished="now",
    )
    return derive_rows(about, blocks)


def beyond(rows: list[Row]) -> list[tuple[str, float | None, float | None, str]]:
    """Return what is known of the rows that no device could give."""
    return [
        (row.label, row.time_us, row.bound_us, row.reason)
        for row in rows
        if Flag.ABOVE_BOUND in row.flags or row.reason.startswith("impossible")
    ]


@pytest.mark.parametrize("plan", ["quick", "scaling", "ci", "ceilings"])
@pytest.mark.parametrize("model", ["h200", "h100", "a100"])
def test_no_row_of_a_plan_is_above_its_bound(model: str, plan: str) -> None:
    """On every model and plan most points are ok and bounded, and none is above its bound or impossible."""
    rows = modelled_rows(model, plan)
    assert sum(row.status == Status.OK for row in rows) > 0.6 * len(rows)
    assert sum(row.bound_us is not None for row in rows) > 0.3 * len(rows)
    assert beyond(rows) == []


@pytest.mark.parametrize("timing", ["hot", "cold", "graph"])
def test_no_row_is_above_its_bound_however_it_is_timed(timing: str) -> None:
    """Resident, flushed or in a graph: the model and the bound agree on where the bytes come from."""
    assert beyond(modelled_rows("h200", "ci", timing)) == []


def test_hot_bounds_are_rates_that_a_device_could_give() -> None:
    """Copy and write of 4 MiB fit the L1s of a full device, and are still bound by its links and its L2."""
    rows = [row for row in modelled_rows("h200", "ci", "hot") if row.family == "memory" and row.bytes and row.bound_us]
    assert rows
    assert all((row.bytes or 0) / (row.bound_us or 1) / 1e3 < 10_000 for row in rows)


def test_rows_of_a_model_claim_no_verification() -> None:
    """No code runs, so there is no error: the cell is empty in every row. Of yardsticks no waves are known."""
    rows = modelled_rows("h200", "quick")
    assert {row.verified_error for row in rows} == {None}
    yardsticks = [row for row in rows if row.kernel.endswith(".cublas")]
    assert yardsticks
    assert not any(row.bound_by == "waves" for row in yardsticks)
