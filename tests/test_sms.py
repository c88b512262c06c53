"""`--sms`: every text is a specification or one sentence, and equal grants are one point."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from greenbench.errors import ExitCode, PlanError
from greenbench.facts import model_facts
from greenbench.schema import Grant, Partition, Placement, Point, Scope, SmsMode
from greenbench.sms import SmsRange, SmsSpec, SmsWord, merge_same_grants, parse_sms

H200 = model_facts("h200").device
BOTH = (Scope.DRIVER_DEFAULT, Scope.GREEN_CTX_BALANCED)

items = st.one_of(
    st.integers(1, 999_999),
    st.sampled_from(list(SmsWord)),
    st.builds(SmsRange, st.integers(1, 500), st.none() | st.integers(500, 999), st.integers(1, 50)),
)


def names(text: str, **options: object) -> list[str]:
    """Return the names of the partitions that a text stands for on an H200."""
    return [partition.name for partition in parse_sms(text).partitions(H200, **options)]  # type: ignore[arg-type]


def refusal(text: str) -> str:
    """Return the sentence with which a text is refused, device or not."""
    with pytest.raises(PlanError) as caught:
        parse_sms(text)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


@pytest.mark.parametrize("text", ["0", "-8", "8.0", "eight", "True", "1e3", "+8", "8;16", "0x8", "\u0668", "auto8", "AUTO"])
def test_senseless_counts_are_quoted_with_what_is_possible(text: str) -> None:
    """Zero, negatives, reals, words, booleans, other scripts' digits: refused with the item and the choices in the text."""
    said = refusal(f"8,{text}")
    assert repr(text) in said
    assert "give counts from 1 up (8,16,32), ranges first:last:step (8:132:8, or 8:full:8), all, auto, full or primary" in said


def test_a_number_that_python_will_not_read_is_a_sentence() -> None:
    """Beyond 4,300 digits int() raises; such an item is no number of SMs like any other."""
    assert "is no number of SMs" in refusal("9" * 5000)


@pytest.mark.parametrize("text", ["", " ", "8,,16", ",8", "8,", "8, ,16"])
def test_blank_items_are_refused(text: str) -> None:
    """An empty option and an empty place between commas are told apart from a wrong number."""
    assert "blank" in refusal(text)
    assert repr(text) in refusal(text)


@pytest.mark.parametrize("text", ["16,16", "8,016,16", "full,full", "8:32:8,8:32:8", "auto, auto"])
def test_a_literal_repeat_is_refused(text: str) -> None:
    """The same size written twice is a mistake."""
    assert "is given twice" in refusal(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8:32", "'8:32' is no range; a range is first:last:step"),
        ("8:32:8:1", "is no range"),
        ("8:32:0", "'0' in the range '8:32:0'"),
        ("0:32:8", "'0' in the range"),
        ("full:8:8", "'full' in the range"),
        ("32:8:8", "the range '32:8:8' is empty, since it ends before it begins; write 8:32:8"),
        (":::", "is no range"),
        ("::", "'' in the range"),
    ],
)
def test_ranges_that_cannot_be_meant(text: str, said: str) -> None:
    """A range needs its three parts, in rising order."""
    assert said in refusal(text)


@given(text=st.text(max_size=20) | st.text(alphabet="0123456789:, -.aflutopriyml", max_size=20))
def test_any_text_is_a_specification_or_a_sentence(text: str) -> None:
    """Whatever is typed: a PlanError that starts with the option, or a specification that says itself again."""
    problem = ""
    try:
        spec = parse_sms(text)
    except PlanError as error:
        problem = str(error)
    if problem:
        assert problem.startswith("--sms")
    else:
        assert parse_sms(spec.text) == spec


@given(drawn=st.lists(items, min_size=1, max_size=5, unique=True))
def test_a_specification_reads_back_from_its_text(drawn: list[int | SmsRange | SmsWord]) -> None:
    """Text and specification are two forms of one thing."""
    spec = SmsSpec(tuple(drawn))
    assert parse_sms(spec.text) == spec


@given(drawn=st.lists(items, min_size=1, max_size=4, unique=True), granularity=st.none() | st.integers(1, 200))
def test_partitions_are_distinct_and_on_the_device(drawn: list[int | SmsRange | SmsWord], granularity: int | None) -> None:
    """On a device every specification is refused by name or gives distinct partitions of 1 to 132 SMs, each scope alike."""
    spec = SmsSpec(tuple(drawn))
    problem, found = "", []
    try:
        found = spec.partitions(H200, BOTH, (), granularity)
    except PlanError as error:
        problem = str(error)
    assert bool(problem) != bool(found), "some size, or a sentence"
    assert not problem or "this device has 132 SMs" in problem
    assert len(set(found)) == len(found)
    counts = [partition.sms for partition in found if partition.mode is SmsMode.COUNT]
    assert all(sms is not None and 1 <= sms <= 132 for sms in counts)
    green = [partition for partition in found if partition.mode is not SmsMode.PRIMARY]
    assert [p.name for p in green if p.workqueue is BOTH[0]] == [p.name for p in green if p.workqueue is BOTH[1]]


def test_what_the_words_stand_for() -> None:
    """Counts keep their order, ranges include their end, a count inside a range is one size, the full device comes last."""
    assert names("24,8,16") == ["24", "8", "16"]
    assert names("8:32:8,16") == ["8", "16", "24", "32"]
    assert names("16,8:32:8") == ["16", "8", "24", "32"]
    assert names("full,8") == ["8", "full"]
    assert names("primary,full,132") == ["132", "full", "primary"]
    assert names("8:132:8,full") == names("8:full:8,full") == [*map(str, range(8, 129, 8)), "full"]
    assert names("all") == [*map(str, range(8, 129, 8)), "full"]
    assert names("all", granularity=2) == [*map(str, range(2, 131, 2)), "full"]
    assert names("auto") == ["8", "16", "24", "32", "48", "64", "88", "104", "128", "full"]
    assert names("auto,16") == ["8", "16", "24", "32", "48", "64", "88", "104", "128", "full"]


@pytest.mark.parametrize(
    ("sms", "least", "step"), [(132, 8, 8), (108, 4, 2), (48, 8, 8), (142, 2, 2), (8, 8, 8), (128, 8, 8), (6, 2, 2)]
)
def test_auto_fits_any_device(sms: int, least: int, step: int) -> None:
    """Alignment and size come from the device: auto begins at its smallest partition, ends at full, and has at most ten sizes."""
    device = replace(H200, sm_count=sms, min_partition=least, alignment=step)
    found = [partition.sms or sms for partition in parse_sms("auto").partitions(device)]
    assert found[0] == min(least, sms)
    assert found[-1] == sms
    assert found == sorted(set(found))
    assert len(found) <= 10
    assert all((size - least) % step == 0 for size in found[:-1])


@pytest.mark.parametrize("text", ["200", "8,133", "8:136:8", "133:full:8", "1:999999:1"])
def test_counts_above_the_device_wait_for_the_device(text: str) -> None:
    """Without a device a large count is fine; with one it is exit 2, naming the item, the SMs there are and the way out."""
    spec = parse_sms(text)
    item = text.rpartition(",")[2]
    said = rf"--sms {item}: this device has 132 SMs \(NVIDIA H200.*\); give counts from 1 to 132, full or primary"
    with pytest.raises(PlanError, match=said) as caught:
        spec.partitions(H200)
    assert caught.value.exit_code is ExitCode.USAGE


def test_scopes_and_limits_multiply_but_primary_has_none() -> None:
    """A limit belongs to a scope that is set, so driver_default has none; the primary context has no workqueue and comes once."""
    found = parse_sms("8,primary").partitions(H200, BOTH, (2, 4))
    assert [(p.name, p.workqueue, p.concurrency_limit) for p in found] == [
        ("8", Scope.DRIVER_DEFAULT, None),
        ("8", Scope.GREEN_CTX_BALANCED, 2),
        ("8", Scope.GREEN_CTX_BALANCED, 4),
        ("primary", Scope.DRIVER_DEFAULT, None),
    ]


def grant(sms: int) -> Grant:
    """Return what a driver gave."""
    return Grant(sms=sms, smids=tuple(range(sms)), placement=Placement.CONFINED, split_method="count")


def points(*sizes: str, kernel: str = "triad", scope: Scope = Scope.DRIVER_DEFAULT) -> list[Point]:
    """Return one point per size."""
    found = [partition for size in sizes for partition in parse_sms(size).partitions(H200, (scope,))]
    return [Point(kernel, (("n", 4),), partition) for partition in found]


def test_counts_that_land_on_one_grant_are_one_point() -> None:
    """10 and 16 both give 16 on driver 13.0 (flashinfer#1190): the exact count stays, and the user is told once."""
    wanted = points("8", "10", "16") + points("8", "10", "16", kernel="copy")
    grants = {point.partition: grant({8: 8, 10: 16, 16: 16}[point.partition.sms or 0]) for point in wanted}
    kept, notes = merge_same_grants(wanted, grants)
    assert [(point.kernel, point.partition.sms) for point in kept] == [("triad", 8), ("triad", 16), ("copy", 8), ("copy", 16)]
    assert notes == ["10 and 16 both give 16 SMs on this driver; measured once, as 16"]


def test_merging_compares_only_like_with_like() -> None:
    """Other scopes, kernels with sizes of their own, refused sizes and the primary context are never merged away."""
    wanted = points("10") + points("16", kernel="copy") + points("16", scope=Scope.DEVICE_CTX) + points("primary", "132", "24")
    grants = {point.partition: grant(point.partition.sms or 132) for point in wanted} | {wanted[0].partition: grant(16)}
    del grants[wanted[-1].partition]
    assert merge_same_grants(wanted, grants) == (wanted, [])


def test_full_stands_for_the_whole_device() -> None:
    """130, 132 and full are the same grant; full stays, since a knee is named only where full was measured."""
    wanted = points("130", "132", "full")
    kept, notes = merge_same_grants(wanted, dict.fromkeys((point.partition for point in wanted), grant(132)))
    assert [point.partition.mode for point in kept] == [SmsMode.FULL]
    assert notes == ["130, 132 and full all give 132 SMs on this driver; measured once, as full"]


def test_fewer_than_asked_is_a_grant_like_any_other() -> None:
    """Where 120 gives 114 (pytorch#195378), a 120 beside an exact 114 is that 114, and two roundings keep the first asked for."""
    wanted = points("120", "114", "20", "18")
    grants = dict(zip([p.partition for p in wanted], map(grant, (114, 114, 24, 24)), strict=True))
    kept, notes = merge_same_grants(wanted, grants)
    assert [point.partition.sms for point in kept] == [114, 20]
    assert [note.partition(" both")[0] for note in notes] == ["120 and 114", "20 and 18"]


def test_the_place_heads_the_error() -> None:
    """A plan file's sizes are refused under the name of the file's key."""
    with pytest.raises(PlanError, match=r"^my\.toml: sms: '0' is no number"):
        parse_sms("0", "my.toml: sms")
    with pytest.raises(PlanError, match=r"^my\.toml: sms 500: this device has 132"):
        parse_sms("500", "my.toml: sms").partitions(H200)
    assert Partition(SmsMode.COUNT, 8) in parse_sms("8", "my.toml: sms").partitions(H200)
