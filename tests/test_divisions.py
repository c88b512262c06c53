"""Sizes of a co-location: SGLang's divisions, and the pairs of counts that one split really gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from greenbench.divisions import Pool, latency_sizes, sglang_divisions
from greenbench.errors import PlanError
from greenbench.facts import model_facts
from greenbench.gpu.modelled.grants import SplitRules
from greenbench.schema import Partition, SmsMode

H200 = model_facts("h200").device
pools = st.builds(Pool.of, st.integers(8, 256), st.sampled_from([2, 4, 8]))


def test_the_divisions_of_an_h200_are_those_of_the_issue() -> None:
    """132 SMs in units of 8: decode gets 20, 28, 36, 44, 52, 60, prefill the rest; 8, 16 and 32 come on top."""
    assert sglang_divisions(132, 8, 8) == ((112, 20), (104, 28), (96, 36), (88, 44), (80, 52), (72, 60))
    assert latency_sizes(H200) == (8, 16, 20, 28, 32, 36, 44, 52, 60)


def test_where_there_are_many_candidates_every_third_is_taken() -> None:
    """108 SMs from 4 in steps of 2 (A100): 54 to 92 are twenty candidates, of which six are used, from the smallest on."""
    assert sglang_divisions(108, 4, 2) == ((84, 24), (78, 30), (72, 36), (66, 42), (60, 48), (54, 54))
    assert sglang_divisions(108, 4, 2, groups=3) == ((54, 54),)


@given(sms=st.integers(1, 300), least=st.sampled_from([1, 2, 4, 8]), step=st.sampled_from([1, 2, 8]), groups=st.integers(3, 12))
def test_divisions_use_all_sms_and_favour_prefill(sms: int, least: int, step: int, groups: int) -> None:
    """Both sides add up, prefill is never smaller, decode has 16 or more, no more divisions than asked, largest prefill first."""
    found = sglang_divisions(sms, least, step, groups)
    assert all(prefill + decode == sms and prefill >= decode >= 16 and (prefill - least) % step == 0 for prefill, decode in found)
    assert len(found) <= groups - 2
    assert [prefill for prefill, _ in found] == sorted({prefill for prefill, _ in found}, reverse=True)
    # Only a device of fewer than 32 SMs, or one whose steps miss the range, has none.
    assert found or not any(p >= sms - p >= 16 for p in range(least, sms - least + 1, step))


@pytest.mark.parametrize("sms", [8, 16, 24, 40])
def test_small_devices_keep_a_rest_for_the_background(sms: int) -> None:
    """No default size leaves the background less than the smallest partition."""
    sizes = latency_sizes(replace(H200, sm_count=sms))
    assert all(size <= sms - H200.min_partition for size in sizes)
    assert bool(sizes) == (sms > H200.min_partition)


def test_two_groups_leave_nothing_to_divide() -> None:
    """The first and the last group are the whole device."""
    with pytest.raises(ValueError, match="two of them are the whole device"):
        sglang_divisions(132, 8, 8, groups=2)


def test_what_an_h200_gives_before_driver_13_1() -> None:
    """15 units of 8 and 12 spare: 8k and 8k + 12, so 16 + 116 fits, and 128 does not."""
    pool = Pool.of(132, 8)
    assert (pool.units, pool.spare, pool.total) == (15, 12, 132)
    assert pool.sizes() == tuple(sorted({8 * k for k in range(1, 16)} | {8 * k + 12 for k in range(16)}))
    assert pool.is_exact(116)
    assert not pool.is_exact(128)
    assert (pool.needs_remainder(20), pool.needs_remainder(16)) == (True, False)
    assert all(pool.pair(sms) == (sms, 132 - sms) for sms in latency_sizes(H200))


def test_a_size_that_cannot_be_is_answered_with_its_neighbours() -> None:
    """18 SMs lie between two that can be split off."""
    with pytest.raises(PlanError, match=r"--sms: 18 SMs .*15 units of 8 SMs and 12 in the remainder.*nearest sizes: 16 and 20"):
        Pool.of(132, 8).pair(18)
    with pytest.raises(PlanError, match="nearest sizes: 124$"):
        Pool.of(132, 8).pair(132)


@given(pool=pools)
def test_sizes_are_what_merging_can_give(pool: Pool) -> None:
    """By trying: every choice of units with or without the remainder is a size, and nothing else is."""
    merged = {pool.unit * k + extra for k in range(pool.units + 1) for extra in (0, pool.spare)} - {0}
    assert set(pool.sizes()) == merged


@given(pool=pools)
def test_pairs_share_no_unit(pool: Pool) -> None:
    """Both sides of a pair are exact at once: their units fit, and the remainder is in one of them alone."""
    for latency, background in pool.pairs():
        choices = [
            (k, rest)
            for k in range(pool.units + 1)
            for rest in {0, pool.spare}
            if pool.unit * k + rest == latency and pool.unit * (pool.units - k) + pool.spare - rest == background
        ]
        assert choices


@given(sms=st.sampled_from([size for size, _ in Pool.of(132, 8).pairs()]))
def test_the_modelled_driver_grants_what_a_pair_promises(sms: int) -> None:
    """One split of the modelled H200 gives both counts exactly and disjoint, with the remainder where it was foretold."""
    pair = Pool.of(132, 8).pair(sms)
    grants = SplitRules(H200).disjoint([Partition(SmsMode.COUNT, count) for count in pair])
    assert tuple(grant.sms for grant in grants) == pair
    assert not set(grants[0].smids) & set(grants[1].smids)
    assert [grant.remainder for grant in grants] == [Pool.of(132, 8).needs_remainder(count) for count in pair]
