"""Switch plans: what may be asked, which points that is, how a device is shared out, and what each process prepares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from greenbench.catalog import Kernel, library
from greenbench.divisions import Pool
from greenbench.errors import PlanError
from greenbench.facts import model_facts
from greenbench.plan import load_plan, plan_names
from greenbench.queueing.model import Kind, Mechanism
from greenbench.records import BadValueError
from greenbench.schema import DeviceFacts
from greenbench.switching.plan import DEFAULT_PLAN, SwitchPlan, SwitchPoint, Way, load_switch, params_text, switch_from_dict
from greenbench.switching.setups import (
    after_resize,
    equal_sizes,
    expand,
    obstacle,
    one_each,
    operation,
    percentage,
    resized,
    schedule_of,
    setup_of,
    sizes_of,
)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    """The library."""
    return dict(library())


@pytest.fixture(scope="module")
def h200() -> DeviceFacts:
    """132 SMs: 15 units of 8, and 12 that no unit holds."""
    return model_facts("h200").device


def plan_of(kernels: dict[str, Kernel], **given: Any) -> SwitchPlan:
    """The default plan with options over it."""
    return load_switch(DEFAULT_PLAN, given, kernels)


def point(mechanism: Way, processes: int, size: int = 0) -> SwitchPoint:
    """A point of 100 us."""
    return SwitchPoint(mechanism=mechanism, processes=processes, duration_us=100.0, working_set=size)


def test_the_plan_that_ships_asks_for_everything(kernels: dict[str, Kernel]) -> None:
    """1, 2, 4 and 8 processes, all mechanisms, long enough for an energy; and `sweep` neither lists it nor takes it."""
    plan = plan_of(kernels)
    assert (plan.processes, plan.mechanisms, plan.durations_us, plan.seconds) == ((1, 2, 4, 8), tuple(Way), (100.0,), 2.0)
    assert plan.working_sets == (0, 16 << 20)
    assert "switch" not in plan_names()
    with pytest.raises(PlanError, match="a plan of greenbench switch, not of greenbench sweep"):
        load_plan("switch", {}, kernels)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0"), (16 << 20, "16 MiB"), (1 << 30, "1 GiB"), (1032 << 10, "1032 KiB"), (3 << 29, "1536 MiB"), (100, "100 B")],
)
def test_bytes_are_shown_in_the_unit_that_they_are_whole_of(size: int, shown: str) -> None:
    """Units are powers of two, as on the command line; what is not of a working set stays as it is."""
    assert params_text(f"ahead=1,working_set={size}") == f"ahead=1,working_set={shown}"
    assert params_text(f"n={size}") == f"n={size}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"processes": "0"}, "--processes: '0' is no integer from 1 to 48"),
        ({"processes": "2,2"}, "--processes: '2' is given twice"),
        ({"mechanisms": "greeen"}, "--mechanisms: 'greeen' is no mechanism of switch (did you mean green?)"),
        ({"mechanisms": "mps,mps"}, "--mechanisms: 'mps' is given twice"),
        ({"duration_us": "4"}, "--duration-us: '4'; give each once, from 5 to 200000 us"),
        ({"duration_us": "100,100"}, "--duration-us: '100' again; give each once"),
        ({"duration_us": "soon"}, "--duration-us: 'soon' is no number"),
        ({"working_set": "1000000"}, "--working-set: '1000000' is no working set; give 0, or bytes from 1M up in steps of 8192"),
        ({"working_set": "64K"}, "--working-set: '64K' is no working set"),
        (
            {"working_set": "16MB"},
            "--working-set: '16MB' is no working set; give 0, or bytes from 1M up in steps of 8192, such as 16M; suffixes are K, "
            "M, G, powers of two (1M is 1048576 bytes)",
        ),
        ({"working_set": "16M,16777216"}, "--working-set: '16777216' is given again"),
        ({"ahead": "0"}, "--ahead: '0' is no integer from 1 to 32"),
        ({"seconds": "0"}, "--seconds: '0' is no time in seconds"),
        ({"seconds": "7"}, "--seconds: 7 s hold more than 60000 operations of 100 us"),
        ({"rounds": "7"}, "--rounds is no key of a switch plan"),
        ({"workload": "l2", "duration_us": "50"}, "--duration-us is of the operation that workload l2 replaces"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_option(kernels: dict[str, Kernel], given: dict[str, str], told: str) -> None:
    """Value, place and way out, before any device is touched."""
    with pytest.raises(PlanError) as caught:
        plan_of(kernels, **given)
    assert str(caught.value).startswith(told)


def test_a_plan_comes_back_from_run_json(kernels: dict[str, Kernel]) -> None:
    """With the kernel of its own and with a workload; an edited one is refused."""
    for asked in ({"working_set": "16M,0", "mechanisms": "mps,timeslice"}, {"workload": "l2"}):
        plan = plan_of(kernels, **asked)
        assert switch_from_dict(plan.as_dict()) == plan
    with pytest.raises(BadValueError, match="each need a value"):
        switch_from_dict({**plan.as_dict(), "processes": []})
    with pytest.raises(PlanError, match=r"plan\.seconds"):
        switch_from_dict({**plan_of(kernels).as_dict(), "seconds": 100.0})


def test_a_plan_that_lost_a_key_is_refused(kernels: dict[str, Kernel]) -> None:
    """What was deleted from run.json is never filled in."""
    table = plan_of(kernels).as_dict()
    for key in table:
        with pytest.raises(BadValueError, match=f"there is no {key} in it"):
            switch_from_dict({name: value for name, value in table.items() if name != key})


@pytest.mark.parametrize("name", ["=cmd", "-x", "a\x1b[31m", "a\nb", "in\x1b/short"], ids=ascii)
def test_a_workload_is_named_like_a_name(tmp_path: Path, kernels: dict[str, Kernel], name: str) -> None:
    """What a terminal or a spreadsheet would take for a command is refused, and shown so that it does nothing."""
    path = tmp_path / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text('[[kernels]]\nname = "copy"\nparams = { n = 1048576 }\n')
    with pytest.raises(PlanError) as refused:
        load_switch(DEFAULT_PLAN, {"workload": str(path)}, kernels)
    assert str(refused.value).startswith("--workload")
    assert str(refused.value).isprintable()


def test_what_lasts_too_long_or_is_empty_is_refused(kernels: dict[str, Kernel]) -> None:
    """A visit is an hour at most, and a list without items has no blank one."""
    with pytest.raises(PlanError, match="--seconds: 3601 s for each point; a visit lasts an hour at most"):
        load_switch(DEFAULT_PLAN, {"seconds": "3601", "duration_us": "200000"}, kernels)
    with pytest.raises(PlanError, match="--mechanisms is empty"):
        load_switch(DEFAULT_PLAN, {"mechanisms": []}, kernels)


def test_a_file_is_a_plan_and_says_where_it_is_wrong(tmp_path: Path, kernels: dict[str, Kernel]) -> None:
    """Keys of the file are named with it; options win over them."""
    path = tmp_path / "mine.toml"
    path.write_text('command = "switch"\nprocesses = [3]\nmechanisms = ["mps"]\nduration_us = 1000\n', encoding="utf-8")
    plan = load_switch(path, {"processes": "5,2"}, kernels)
    assert (plan.name, plan.processes, plan.mechanisms, plan.durations_us) == ("mine", (2, 5), (Way.ALONE, Way.MPS), (1000.0,))
    path.write_text('command = "switch"\nprocess = [3]\n', encoding="utf-8")
    with pytest.raises(PlanError, match=r"mine\.toml: process is no key of a switch plan \(did you mean processes\?\)"):
        load_switch(path, {}, kernels)


def test_one_process_is_alone_once_for_all(kernels: dict[str, Kernel]) -> None:
    """What changes nothing with one process is no point of its own; MPS is, for its daemon has a cost. `alone` comes first."""
    points, notes = expand(plan_of(kernels, processes="1,2", working_set="0"))
    assert points[0] == point(Way.ALONE, 1)
    ones = [each.mechanism for each in points if each.processes == 1]
    twos = [each.mechanism for each in points if each.processes == 2]
    assert ones == [Way.ALONE, Way.MPS]
    assert twos == [way for way in Way if way is not Way.ALONE]
    assert notes == ("streams, green, timeslice, mps_limited, repartition with one process is alone: one point for all",)
    assert expand(plan_of(kernels, processes="2", mechanisms="mps", working_set="0")) == (
        [point(Way.ALONE, 1), point(Way.MPS, 2)],
        (),
    )
    both, _ = expand(plan_of(kernels, processes="2", mechanisms="mps"))
    assert [each.alone for each in both[2:]] == both[:2]


def test_the_device_is_shared_out_as_evenly_as_one_split_allows(h200: DeviceFacts) -> None:
    """By hand for 15 units of 8 and 12 SMs: all of them are used, and the last partition has the 12."""
    assert equal_sizes(h200, 2) == (64, 68)
    assert equal_sizes(h200, 4) == (32, 32, 32, 36)
    assert equal_sizes(h200, 8) == (*(16,) * 7, 20)
    assert equal_sizes(h200, 16) == (*(8,) * 15, 12)
    assert equal_sizes(h200, 17) == ()
    assert resized(h200, (64, 68)) == (32, 100)
    assert resized(h200, (*(16,) * 7, 20)) == (8, *(16,) * 6, 28)
    assert resized(h200, (*(8,) * 15, 12)) == ()


@given(name=st.sampled_from(["h200", "h100", "a100"]), parts=st.integers(2, 40))
def test_shares_use_every_sm_and_exist(name: str, parts: int) -> None:
    """They add up to the device, each can be merged from units, and a resize keeps the sum."""
    device = model_facts(name).device
    pool = Pool.of(device.sm_count, device.min_partition)
    sizes = equal_sizes(device, parts)
    if not sizes:
        assert parts > pool.units
        return
    assert len(sizes) == parts
    assert sum(sizes) == device.sm_count
    for found in (sizes, resized(device, sizes)):
        assert all(pool.is_exact(size) for size in found)
        assert sum(found) in (0, device.sm_count)
        assert all(size % pool.unit == 0 for size in found[:-1])


def test_what_a_device_cannot_do_is_said(h200: DeviceFacts) -> None:
    """Too many partitions, nothing to give away, a device for one process; and nothing is said where nothing is in the way."""
    assert obstacle(point(Way.GREEN, 20), h200).startswith("132 SMs in units of 8 cannot be split into 20 partitions")
    assert obstacle(point(Way.REPARTITION, 16), h200).startswith("with 16 partitions the first has 8 SMs, one unit")
    assert obstacle(point(Way.GREEN, 16), h200) == ""
    import dataclasses

    exclusive = dataclasses.replace(h200, compute_mode="exclusive_process")
    assert "exclusive_process" in obstacle(point(Way.TIMESLICE, 2), exclusive)
    assert obstacle(point(Way.STREAMS, 2), exclusive) == ""


def test_an_operation_lasts_what_was_asked_by_the_arithmetic_of_the_device(kernels: dict[str, Kernel], h200: DeviceFacts) -> None:
    """100 us at 1980 MHz are 198,000 cycles, 32 for a step of 8 CTAs of 512 chains; each tenant has memory of its own."""
    plan = plan_of(kernels)
    (call,) = operation(point(Way.MPS, 2, 16 << 20), plan, h200, kernels, 1).calls()
    given = dict(call.params)
    clock = h200.max_sm_clock_mhz
    assert clock is not None
    assert given["iterations"] == round(100 * clock / 32)
    assert (given["bytes"], given["ctas"], given["tenant"]) == (16 << 20, 1056, 1)
    assert 275 < int(given["threshold"]) < 661
    assert operation(point(Way.MPS, 2), plan, h200, kernels, 0) != operation(point(Way.MPS, 2), plan, h200, kernels, 1)
    assert next(operation(point(Way.MPS, 2), plan_of(kernels, workload="l2"), h200, kernels, 0).calls()).kernel == "l2_read"


def test_setups_and_schedules_of_every_mechanism(kernels: dict[str, Kernel], h200: DeviceFacts) -> None:
    """Partitions are slots of one split, processes hold one role each, and all run the same closed loop until the same time."""
    plan = plan_of(kernels)
    green = setup_of(point(Way.GREEN, 4), plan, h200, kernels)
    assert (green.mechanism, green.sizes, [role.slot for role in green.roles]) == (
        Mechanism.GREEN,
        (32, 32, 32, 36),
        [0, 1, 2, 3],
    )
    assert {role.kind for role in green.roles} == {Kind.BACKGROUND}
    moved = after_resize(setup_of(point(Way.REPARTITION, 2), plan, h200, kernels), h200)
    assert (moved.mechanism, moved.sizes, moved.verify) == (Mechanism.GREEN, (32, 100), False)
    limited = setup_of(point(Way.MPS_LIMITED, 8), plan, h200, kernels)
    assert (percentage(point(Way.MPS_LIMITED, 8)), limited.sizes) == (12, (15,) * 8)
    assert [(len(each.roles), each.sizes, each.roles[0].slot) for each in one_each(limited)] == [(1, (), None)] * 8
    assert sizes_of(point(Way.STREAMS, 4), h200) == ()
    schedule = schedule_of(point(Way.GREEN, 4), green, plan.seconds, 30.0)
    assert [(role.until_ns, role.steps, role.due_ns, role.ahead) for role in schedule.roles] == [
        (2_000_000_000, None, None, 1)
    ] * 4
    assert schedule.limit_s == 30.0
