"""What a co-location must keep to whatever the roles: no SM used twice, no work lost, no SM idle while somebody waits for it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.queueing import SIZED, Closed, Device, Kind, Mechanism, Outcome, Part, Piece, Role, corun
from greenbench.queueing.layout import split
from greenbench.queueing.shared import Shared

SMS = 12
TOGETHER = (Mechanism.STREAMS, Mechanism.PRIORITY, Mechanism.MPS)
few = settings(max_examples=40, deadline=None)


@st.composite
def pieces(draw: st.DrawFn, hbm: bool = False) -> Piece:
    """A kernel whose time falls with the SMs, as far as it has CTAs for them."""
    work = draw(st.integers(1, 600))
    ctas = draw(st.none() | st.integers(1, 60))
    wanted = draw(st.integers(0, 40_000)) if hbm else 0
    return Piece(lambda n: max(1.0, work / min(n, ctas or n)), wanted, ctas, draw(st.integers(1, 3)))


@st.composite
def pairs(draw: st.DrawFn, hbm: bool = False) -> list[Role]:
    """A latency role with arrivals and a background, each of one to three kernels."""
    steps = st.lists(pieces(hbm=hbm), min_size=1, max_size=3).map(tuple)
    arrivals = tuple(sorted(draw(st.lists(st.integers(0, 900), min_size=1, max_size=8))))
    closed = draw(st.sampled_from([Closed(), Closed(4), Closed(3, 7.5)]))
    loaded = Role("load", Kind.BACKGROUND, draw(steps), closed, draw(st.none() | st.integers(1, 3)))
    return [Role("probe", Kind.LATENCY, draw(steps), arrivals), loaded]


gaps = st.sampled_from([0.0, 0.5, 3.0])


def run(roles: list[Role], mechanism: Mechanism, gap: float = 0.0, hbm: float | None = None) -> Outcome:
    """Run on a small device, 4 of whose SMs are the latency role's, 7 the background's and one nobody's."""
    return corun(
        Device(SMS, hbm, gap_us=gap, slice_us=50, switch_us=9), roles, mechanism, sizes=(4, 7) if mechanism in SIZED else ()
    )


def waits(outcome: Outcome) -> Iterator[tuple[Part, list[Part]]]:
    """Each part that had to wait, with all the others."""
    return ((part, [other for other in outcome.parts if other is not part]) for part in outcome.parts if part.start > part.ready)


@few
@given(pairs(hbm=True), st.sampled_from(Mechanism), gaps)
def test_an_sm_runs_one_kernel_at_a_time_and_steps_are_in_order(roles: list[Role], mechanism: Mechanism, gap: float) -> None:
    """No two parts share an SM at any time, and a role's steps neither overlap nor start before they are due."""
    outcome = run(roles, mechanism, gap, hbm=100.0)
    until: dict[tuple[str, int], int] = defaultdict(int)
    for part in sorted(outcome.parts, key=lambda part: (part.start, part.end)):
        for smid in range(SMS):
            if part.smids >> smid & 1:
                whose = part.role if mechanism == Mechanism.ALONE else ""
                assert until[whose, smid] <= part.start
                until[whose, smid] = part.end
    for role in roles:
        steps = outcome.steps[role.name]
        assert all(step.intended <= step.start < step.end for step in steps)
        assert all(one.end <= two.start for one, two in itertools.pairwise(steps))
        planned = role.arrivals.steps if isinstance(role.arrivals, Closed) else len(role.arrivals)
        assert len(steps) == planned or (planned is None and len(steps) >= 1)


@few
@given(pairs(), st.sampled_from([m for m in Mechanism if m in SIZED and m != Mechanism.MPS_LIMITED]))
def test_partitions_hold_who_is_in_them(roles: list[Role], mechanism: Mechanism) -> None:
    """Confined roles stay on 4 and 7 SMs of their own; the free side of `green_background` and `green_primary` does not."""
    outcome = run(roles, mechanism)
    probe, load = set(outcome.census("probe")), set(outcome.census("load"))
    if mechanism != Mechanism.GREEN_BACKGROUND:
        assert len(probe) <= 4
    if mechanism != Mechanism.GREEN_PRIMARY:
        assert len(load) <= 7
    if mechanism not in {Mechanism.GREEN_BACKGROUND, Mechanism.GREEN_PRIMARY}:
        assert not probe & load


@few
@given(pairs(), gaps)
def test_mps_limits_how_many_sms_a_role_holds(roles: list[Role], gap: float) -> None:
    """At no time do CTAs of a role run on more SMs than its share, though over time they may run on all."""
    outcome = run(roles, Mechanism.MPS_LIMITED, gap)
    for name, most in (("probe", 4), ("load", 7)):
        parts = [part for part in outcome.parts if part.role == name]
        for now in {part.start for part in parts}:
            assert sum(part.smids.bit_count() for part in parts if part.start <= now < part.end) <= most


@few
@given(pairs(), st.sampled_from(TOGETHER), gaps)
def test_no_sm_idles_while_somebody_waits(roles: list[Role], mechanism: Mechanism, gap: float) -> None:
    """From when a kernel is ready to when its last CTAs start, all SMs are busy all the time."""
    for part, others in waits(run(roles, mechanism, gap)):
        busy = sum(
            max(0, min(part.start, other.end) - max(part.ready, other.start)) * other.smids.bit_count() for other in others
        )
        assert busy == (part.start - part.ready) * SMS


@few
@given(pairs(), gaps)
def test_priority_lets_nobody_past(roles: list[Role], gap: float) -> None:
    """No kernel of the background starts while one of the latency role waits for SMs."""
    for part, others in waits(run(roles, Mechanism.PRIORITY, gap)):
        if part.role == "probe":
            assert not [other for other in others if other.role == "load" and part.ready <= other.start < part.start]


@few
@given(pairs(), st.sampled_from([Mechanism.STREAMS, Mechanism.MPS]), gaps)
def test_streams_are_first_come_first_served(roles: list[Role], mechanism: Mechanism, gap: float) -> None:
    """A kernel that was ready later starts no CTA before the last CTA of an earlier one has started."""
    for part, others in waits(run(roles, mechanism, gap)):
        assert not [other for other in others if other.ready > part.ready and other.start < part.start]


@few
@given(st.lists(pieces(hbm=True), min_size=1, max_size=3), st.integers(1, SMS), gaps)
def test_alone_takes_what_its_kernels_take(step: list[Piece], sms: int, gap: float) -> None:
    """The sum of the kernels' times on these SMs and the gaps between, to the ns, whatever the waves."""
    role = Role("probe", Kind.LATENCY, tuple(step), (0.0, 0.0, 5000.0))
    outcome = corun(Device(SMS, 100.0, gap_us=gap), [role], Mechanism.ALONE, sizes=(sms,))
    expected = sum(round(1000 * piece.us(sms)) for piece in step) + round(1000 * gap) * (len(step) - 1)
    assert [one.end - one.start for one in outcome.steps["probe"]] == [expected] * 3


@few
@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=30).map(sorted),
    st.integers(1, 200),
    st.sampled_from([Mechanism.ALONE, Mechanism.SERIAL, Mechanism.STREAMS, Mechanism.CHUNKED, Mechanism.TIMESLICE]),
)
def test_one_role_is_a_single_queue(arrivals: list[int], us: int, mechanism: Mechanism) -> None:
    """Lindley's recursion: a step starts when it is due or when the one before has ended, whichever is later."""
    role = Role("probe", Kind.LATENCY, (Piece(lambda _: us),), tuple(arrivals))
    free = 0
    for step, due in zip(run([role], mechanism).steps["probe"], arrivals, strict=True):
        assert step.start == max(free, 1000 * due)
        assert step.end == step.start + 1000 * us
        free = step.end


@few
@given(pairs(hbm=True), st.sampled_from([Mechanism.SERIAL, Mechanism.CHUNKED, Mechanism.TIMESLICE]), gaps)
def test_turns_lose_no_work(roles: list[Role], mechanism: Mechanism, gap: float) -> None:
    """All parts of a kernel together are its time on the device, also where a slice has cut it."""
    outcome = run(roles, mechanism, gap)
    took: dict[tuple[str, int, int], int] = defaultdict(int)
    for part in outcome.parts:
        took[part.role, part.step, part.piece] += part.end - part.start
    for role in roles:
        for (step, _), (at, piece) in itertools.product(enumerate(outcome.steps[role.name]), enumerate(role.step)):
            assert took[role.name, step, at] == round(1000 * piece.us(SMS))


@few
@given(st.lists(st.integers(1, 90_000), min_size=2, max_size=4), st.integers(1, 30))
def test_the_bus_moves_what_it_can_and_no_more(moved: list[int], us: int) -> None:
    """Roles in partitions of their own, 100 B a ns: nobody is faster than alone, and all bytes take their time on the bus."""
    roles = [Role(str(i), Kind.LATENCY, (Piece(lambda _: us, size),), (0.0,)) for i, size in enumerate(moved)]
    device = Device(SMS, 100.0)
    ends = [steps[0].end for steps in corun(device, roles, Mechanism.GREEN, sizes=[3] * len(roles)).steps.values()]
    assert all(end >= 1000 * us for end in ends)
    carried = [min(size, 100_000 * us) for size in moved]
    assert max(ends) >= sum(carried) / 100 - len(roles)
    # While the bus is wanted by more than it has, it is never idle: it ends with the bytes or with the longest kernel.
    assert max(ends) <= max(1000 * us, sum(carried) / 100) + 2 * len(roles)


@few
@given(pairs(hbm=True), st.sampled_from([*TOGETHER, *sorted(SIZED)]), gaps)
def test_a_lane_by_itself_is_run_by_the_same_rules(roles: list[Role], mechanism: Mechanism, gap: float) -> None:
    """The short way for a role that has the device to itself gives what the long way gives."""
    short = run(roles, mechanism, gap, hbm=100.0)
    with patch.object(Shared, "_solo", lambda self, lane, now, _: self._dispatch([lane], now)):
        long = run(roles, mechanism, gap, hbm=100.0)
    assert short.steps == long.steps
    assert set(short.parts) == set(long.parts)


@few
@given(pairs(hbm=True), gaps)
def test_waves_that_decide_nothing_change_nothing(roles: list[Role], gap: float) -> None:
    """Beside a role that never comes a kernel runs in waves, alone in one go: the stamps are the same."""
    idle = Role("idle", Kind.LATENCY, (Piece(lambda _: 1.0),), ())
    alone = run(roles[:1], Mechanism.ALONE, gap, 100.0)
    assert run([roles[0], idle], Mechanism.STREAMS, gap, 100.0).steps["probe"] == alone.steps["probe"]
    assert len(alone.parts) == len(alone.steps["probe"]) * len(roles[0].step)


@few
@given(pairs(), st.sampled_from(Mechanism), st.integers(0, 1500))
def test_a_run_that_is_cut_is_the_start_of_the_whole_one(roles: list[Role], mechanism: Mechanism, until: int) -> None:
    """Steps that ended in time are there with the same stamps, and no others."""
    sizes = (4, 7) if mechanism in SIZED else ()
    device = Device(SMS, slice_us=50, switch_us=9)
    roles = [roles[0], Role("load", Kind.BACKGROUND, roles[1].step, Closed(5))]
    whole = corun(device, roles, mechanism, sizes=sizes)
    cut = corun(device, roles, mechanism, sizes=sizes, until_us=until)
    for name, steps in whole.steps.items():
        assert cut.steps[name] == tuple(step for step in steps if step.end <= 1000 * until)


@given(st.integers(1, 150), st.data())
def test_partitions_are_disjoint_and_as_large_as_asked(sms: int, data: st.DataObject) -> None:
    """Every split that fits is granted exactly."""
    cuts = sorted(data.draw(st.lists(st.integers(0, sms), min_size=1, max_size=5)))
    sizes = [high - low for low, high in itertools.pairwise([0, *cuts]) if high > low]
    masks = split(sms, sizes)
    assert [mask.bit_count() for mask in masks] == sizes
    assert sum(masks).bit_count() == sum(sizes)
    assert not sum(masks) >> sms


@pytest.mark.parametrize("mechanism", Mechanism)
def test_processes_beyond_two_share_by_the_same_rules(mechanism: Mechanism) -> None:
    """Four tenants in closed loops do the same number of steps each, and none starves."""
    tenants = [Role(str(i), Kind.LATENCY, (Piece(lambda n: 60 / n, ctas=24),), Closed(20, 1.0)) for i in range(4)]
    outcome = corun(Device(SMS, switch_us=2), tenants, mechanism, sizes=(3,) * 4 if mechanism in SIZED else ())
    ends = [steps[-1].end for steps in outcome.steps.values()]
    assert [len(steps) for steps in outcome.steps.values()] == [20] * 4
    assert max(ends) <= 1.1 * min(ends)
