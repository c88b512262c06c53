"""Plans of co-locations: every key and option, what contradicts, the points on a device, and what stands in their way."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from greenbench.arrivals import Process
from greenbench.catalog import Kernel, library
from greenbench.colocation.keys import EVERY, KEYS, MAX_STEPS, READERS, parse_counts, parse_mechanisms
from greenbench.colocation.plan import CoPlan, CoPoint, coplan_from_dict, expand, load_coplan, obstacle, with_rates
from greenbench.colocation.room import MOST_STEPS, ROOM, most_requests, planned_s, warm_steps
from greenbench.divisions import Pool
from greenbench.errors import PlanError
from greenbench.facts import model_facts
from greenbench.gpu import open_gpu
from greenbench.gpu.ledger import CAPACITY
from greenbench.gpu.modelled.grants import SplitRules
from greenbench.plan import load_plan, plan_names, plan_summaries
from greenbench.queueing.layout import SIZED
from greenbench.queueing.model import Kind, Mechanism
from greenbench.records import BadValueError
from greenbench.schema import Backend, Partition, Scope, SmsMode

H200 = model_facts("h200").device
NEWER = model_facts("h200", (13, 1)).device
DEFAULT = "colocate_llm"


@cache
def kernels() -> Mapping[str, Kernel]:
    """The library, read once."""
    return library()


def plan(**options: object) -> CoPlan:
    """Return the default plan under these options."""
    return load_coplan(DEFAULT, options, kernels())


def points(**options: object) -> list[CoPoint]:
    """Return the points on a modelled H200."""
    return expand(plan(**options), H200)[0]


def refusal(**options: object) -> str:
    """Return the sentence with which options are refused."""
    with pytest.raises(PlanError) as caught:
        plan(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_plan_that_ships() -> None:
    """Decode of four layers at batch 8 beside prefill in pieces of 512 and 2048, by all mechanisms, 1,000 steps."""
    found = plan()
    assert [each.param_text for each in found.latency] == ["model=llama3-8b,layers=4,batch=8,context=4096"]
    assert found.background.param_text == "model=llama3-8b,layers=4,prompt=2048"
    assert [(chunk, len(pieces)) for chunk, pieces in found.chunks] == [(512, 4), (2048, 1)]
    assert found.mechanisms == tuple(each for each in Mechanism if each is not Mechanism.TORCH_GREEN)
    assert (found.sms, found.background_sms, found.steps, found.process) == (None, None, 1000, Process.FIXED)
    assert found.background_process is Process.POISSON
    assert (found.step_rate, found.rates, found.auto_rates, found.slo) == (None, (), False, None)


def test_each_command_has_its_plans() -> None:
    """A plan says in its file which command it is for; none is offered, or taken, by another."""
    assert DEFAULT in plan_names("colocate")
    assert plan_summaries("colocate")[DEFAULT]
    assert not set(plan_names("colocate")) & set(plan_names())
    with pytest.raises(PlanError, match="a plan of greenbench colocate"):
        load_plan(DEFAULT, {}, kernels())
    with pytest.raises(PlanError, match="a plan of greenbench sweep"):
        load_coplan("quick", {}, kernels())
    with pytest.raises(PlanError, match="colocate_llm"):
        load_coplan("colocat_llm", {}, kernels())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mechanisms": "gren"}, ["--mechanisms", "'gren'", "green"]),
        ({"mechanisms": "all,green"}, ["--mechanisms", "stands alone"]),
        ({"mechanisms": "green,green"}, ["--mechanisms", "twice"]),
        ({"mechanisms": "chunked", "background": "hbm"}, ["--mechanisms", "chunked", "hbm"]),
        ({"sms": "0"}, ["--sms", "'0'"]),
        ({"sms": "20,,28"}, ["--sms", "blank"]),
        ({"sms": "full"}, ["--sms", "'full'"]),
        ({"sms": "auto,20"}, ["--sms", "stands alone"]),
        ({"sms": "20,20"}, ["--sms", "20 SMs again"]),
        ({"sms": "8:64"}, ["--sms", "'8:64'", "8:64:8"]),
        ({"sms": "64:8:8"}, ["--sms", "empty", "8:64:8"]),
        ({"background_sms": "x"}, ["--background-sms", "'x'"]),
        ({"workqueue": "fair"}, ["--workqueue", "'fair'"]),
        ({"concurrency_limit": "4", "mechanisms": "green"}, ["--concurrency-limit", "--workqueue", "green_balanced"]),
        ({"connections": "33"}, ["--connections", "'33'"]),
        ({"arrivals": "possion"}, ["--arrivals", "'possion'", "poisson"]),
        ({"background_arrivals": "fix", "rates": "3"}, ["--background-arrivals", "'fix'", "fixed"]),
        ({"background_arrivals": "fixed"}, ["--background-arrivals", "always busy", "--rates"]),
        ({"step_rate": "0"}, ["--step-rate", "'0'"]),
        ({"step_rate": "-5"}, ["--step-rate", "'-5'"]),
        ({"rates": "5,5"}, ["--rates", "twice"]),
        ({"rates": "auto"}, ["--rates", "--slo"]),
        ({"steps": "19"}, ["--steps", "'19'"]),
        ({"steps": "1e3"}, ["--steps", "'1e3'"]),
        ({"steps": "50001"}, ["--steps", "'50001'", "50000"]),
        ({"steps": "50000", "step_rate": "100", "rates": "40"}, ["--steps", "4 pieces each", "room for 16384"]),
        ({"seed": "x"}, ["--seed", "'x'"]),
        ({"slo": "ttft_p99=500"}, ["--slo", "no unit"]),
        ({"slo": "itl_p99=20ms"}, ["--slo", "--layers full"]),
        ({"slo": "ttft_p99=5ms", "background": "hbm"}, ["--slo", "ttft"]),
        ({"interference": True, "mechanisms": "streams"}, ["--interference", "--mechanisms"]),
        ({"mps_memory_limit": "lots"}, ["--mps-memory-limit", "'lots'", "40G"]),
        ({"mps_memory_limit": "4G", "mechanisms": "mps"}, ["--mps-memory-limit", "mps_limited"]),
        ({"time_limit_s": "soon"}, ["--time-limit", "'soon'"]),
        ({"model": "llama4"}, ["--model", "'llama4'", "llama3-8b"]),
        ({"layers": "33"}, ["--layers", "'33'"]),
        ({"layers": "some"}, ["--layers", "'some'"]),
        ({"decode_batch": "8,8"}, ["--decode-batch", "'8'"]),
        ({"context": "0"}, ["--context", "'0'"]),
        ({"prompt": "0"}, ["--prompt", "'0'"]),
        ({"chunk": "4096"}, ["--chunk", "4096", "2048", "--prompt"]),
        ({"latency": "decod"}, ["--latency", "'decod'", "decode"]),
        ({"latency": "hbm,hbm"}, ["--latency", "twice"]),
        ({"latency": "hbm", "background": "compute", "decode_batch": "4"}, ["--decode-batch", "--latency decode"]),
        ({"background": "hbm", "prompt": "512"}, ["--prompt", "--background prefill"]),
        ({"background": "nowhere/mine.toml"}, ["--background", "nowhere/mine.toml"]),
        ({"background": "hbm,l2"}, ["--background", "several"]),
        ({"stepz": "3"}, ["--stepz", "steps"]),
    ],
    ids=str,
)
def test_wrong_options(options: dict[str, object], words: list[str]) -> None:
    """Each is one sentence with the option, the value and the way out."""
    said = refusal(**options)
    for word in words:
        assert word in said, said


def test_a_wrong_file_is_named_with_its_key(tmp_path: Path) -> None:
    """The place of an error in a file is the file and its key, not an option."""
    path = tmp_path / "mine.toml"
    for text, words in (
        ('command = "colocate"\nsteps = 1.5\n', f"{path}: steps: '1.5'"),
        ('command = "colocate"\nsize = 1\n', f"{path}: size is no key"),
        ('command = "colocate"\ninterference = 1\n', f"{path}: interference: 1 is neither"),
        ("steps = 100\n", "is a plan of greenbench sweep"),
        ("steps =", "is not TOML"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(PlanError) as caught:
            load_coplan(path, {}, kernels())
        assert words in str(caught.value)


def test_a_file_may_hold_everything(tmp_path: Path) -> None:
    """Every key reads from TOML in its own types, and workloads of one's own take the place of a model's."""
    load = tmp_path / "mine.toml"
    load.write_text('kernels = [{ name = "triad", params = { n = 4096 } }]\n', encoding="utf-8")
    path = tmp_path / "own.toml"
    path.write_text(
        f"""command = "colocate"
summary = "Mine."
latency = ["{load}", "hbm"]
background = "compute"
mechanisms = ["green", "mps_limited", "green_balanced"]
sms = [20, 28]
background_sms = 64
workqueue = ["driver_default", "balanced"]
concurrency_limit = [2, 4]
connections = [1, 8]
arrivals = "poisson"
background_arrivals = "fixed"
step_rate = 250
rates = [5, 7.5]
steps = 100
seed = 7
slo = "step_p50=1ms"
interference = true
mps_memory_limit = "40G"
time_limit_s = 60
""",
        encoding="utf-8",
    )
    found = load_coplan(path, {}, kernels())
    assert [each.name for each in found.latency] == ["mine", "hbm"]
    assert (found.sms, found.background_sms, found.connections, found.rates) == ((20, 28), 64, (1, 8), (5.0, 7.5))
    assert (found.step_rate, found.time_limit_s, found.seed) == (250.0, 60.0, 7)
    assert (found.process, found.background_process) == (Process.POISSON, Process.FIXED)
    assert [each.name for each in found.loads] == ["compute", "l2", "hbm", "copy"]
    assert set(path.read_text(encoding="utf-8").replace("command", "").split()) >= set(READERS)
    assert coplan_from_dict(json.loads(json.dumps(found.as_dict())), kernels()) == found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"slo": "ttft_p99=0.5s,step_p95=1ms", "rates": "auto"},
        {"interference": True, "sms": "20", "step_rate": "12.5", "workqueue": "balanced", "concurrency_limit": "2,3"},
        {"layers": "full", "slo": "itl_p99=20ms", "decode_batch": "1,8,32", "background_sms": "64"},
        {"background": "hbm", "connections": "1,8", "arrivals": "poisson", "seed": "0", "time_limit_s": "30"},
        {"rates": "2", "background_arrivals": "fixed"},
    ],
    ids=str,
)
def test_a_plan_reads_back_from_its_run(options: dict[str, object]) -> None:
    """What run.json keeps gives the same plan, so that --resume goes on with the same points."""
    found = plan(**options)
    assert coplan_from_dict(json.loads(json.dumps(found.as_dict())), kernels()) == found


@pytest.mark.parametrize(
    "change", [{"steps": 0}, {"rates": "auto"}, {"latency": 3}, {"background": []}, {"sms": ["x"]}, {"unknown": 1}], ids=str
)
def test_an_edited_plan_is_refused(change: dict[str, object]) -> None:
    """A run.json that somebody changed is told apart from one of ours."""
    with pytest.raises((PlanError, BadValueError)):
        coplan_from_dict({**plan().as_dict(), **change}, kernels())


@pytest.mark.parametrize("key", list(plan().as_dict()))
def test_a_plan_that_lost_a_key_is_refused(key: str) -> None:
    """What was deleted from run.json is never filled in: a run goes on with what it began with."""
    table = plan().as_dict()
    del table[key]
    with pytest.raises(BadValueError, match=f"there is no {key} in it"):
        coplan_from_dict(table, kernels())


@pytest.mark.parametrize("change", [{"mechanisms": None}, {"mechanisms": []}, {"latency": []}, {"steps": None}], ids=str)
def test_a_key_that_needs_a_value_has_one(change: dict[str, object]) -> None:
    """What was emptied says that, too."""
    (key,) = change
    with pytest.raises((PlanError, BadValueError), match=f"plan.{key} is empty|plan: {key} is empty"):
        coplan_from_dict({**plan().as_dict(), **change}, kernels())


@pytest.mark.parametrize("key", ["mechanisms", "latency", "sms", "rates"])
def test_an_empty_list_is_said_to_be_empty(key: str) -> None:
    """A list without items has no blank one."""
    with pytest.raises(PlanError, match=f"{key} is empty"):
        plan(**{key: []})


def test_two_points_never_have_one_label(tmp_path: Path) -> None:
    """Rates that are written alike, and workloads of one name, are refused before anything is measured."""
    with pytest.raises(PlanError, match=r"--rates: 1.0 and 1.0000000001 are both written 1; give one"):
        plan(rates="1,2,1.0000000001")
    files = []
    for folder, n in (("a", 1048576), ("b", 2097152)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "short.toml")
        files[-1].write_text(f'[[kernels]]\nname = "copy"\nparams = {{ n = {n} }}\n')
    first, second = map(str, files)
    with pytest.raises(PlanError, match="--latency: two workloads of this co-location are called short"):
        plan(latency=f"{first},{second}")
    with pytest.raises(PlanError, match="--background: two workloads of this co-location are called short"):
        plan(latency=first, background=second)
    assert plan(latency=first, background=first).background.name == "short"


@pytest.mark.parametrize(
    "name", ["=cmd", "+1", "-x", "@sum", "a\x1b[31m", "a\nb", "a b", ".hidden", "ü", "a\u202eb", "in\x1b/short"], ids=ascii
)
@pytest.mark.parametrize("key", ["latency", "background"])
def test_a_workload_is_named_like_a_name(tmp_path: Path, name: str, key: str) -> None:
    """What a terminal or a spreadsheet would take for a command is refused, and shown so that it does nothing."""
    path = tmp_path / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text('[[kernels]]\nname = "copy"\nparams = { n = 1048576 }\n')
    with pytest.raises(PlanError) as refused:
        plan(**{key: str(path)})
    assert str(refused.value).startswith(f"--{key}")
    assert str(refused.value).isprintable()
    good = tmp_path / "a-1_b.c.toml"
    good.write_text(path.read_text())
    table = plan(**{key: str(good)}).as_dict()
    assert coplan_from_dict(table, kernels()).as_dict() == table
    edited = json.loads(json.dumps(table).replace("a-1_b.c", "=1"))
    with pytest.raises(PlanError, match="'=1' is no name of a workload"):
        coplan_from_dict(edited, kernels())


def test_no_visit_lasts_longer_than_an_hour() -> None:
    """1,000 steps and their warm-up of 50 last an hour at 1050 / 3600 a second."""
    with pytest.raises(PlanError, match=r"--steps 1000: 1000 steps at 1e-09 a second make a visit of 1.05e\+12 s, and one lasts"):
        plan(step_rate="1e-9", steps="1000")
    assert planned_s(plan(step_rate="0.3", steps="1000"), None, 0.3) == 3500
    with pytest.raises(PlanError, match="an hour at most"):
        plan(step_rate="0.29", steps="1000")


def test_a_plan_of_other_kernels_is_refused() -> None:
    """A workload whose kernel is gone, or takes other parameters now, cannot be continued."""
    table = plan().as_dict()
    with pytest.raises(PlanError, match="rmsnorm"):
        coplan_from_dict(table, {name: kernel for name, kernel in kernels().items() if name != "rmsnorm"})


def test_chunks_follow_the_prompt() -> None:
    """The plan's chunk of 2048 is the whole of a shorter prompt, once."""
    assert [chunk for chunk, _ in plan(prompt="1024").chunks] == [512, 1024]
    assert [chunk for chunk, _ in plan(prompt="256").chunks] == [256]


def test_a_context_of_torch_is_asked_for_by_name() -> None:
    """`all` leaves the cross-check out; named, it has the sizes that torch gives exactly, and a modelled device says why not."""
    found = plan(mechanisms="green,torch_green")
    assert found.mechanisms == (Mechanism.ALONE, Mechanism.GREEN, Mechanism.TORCH_GREEN)
    device = open_gpu("model:h200").device
    points = [point for point in expand(found, device)[0] if point.mechanism is Mechanism.TORCH_GREEN]
    assert {point.split for point in points} >= {"16", "20"}
    assert all("modelled" in obstacle(point, device) for point in points)
    real = replace(device, backend=Backend.CUDA)
    reasons = {point.split: obstacle(point, real) for point in points}
    assert reasons["16"] == ""
    assert reasons["20"] == "--sms: torch rounds 20 SMs up to 24; nearest sizes: 16 and 24"


@given(words=st.lists(st.sampled_from(list(Mechanism)), min_size=1, unique=True))
def test_mechanisms_keep_one_order(words: list[Mechanism]) -> None:
    """Whatever order they are written in; `alone` is always there."""
    found = parse_mechanisms(",".join(words))
    assert found == tuple(each for each in Mechanism if each in {*words, Mechanism.ALONE})


@given(first=st.integers(1, 60), more=st.integers(0, 60), step=st.integers(1, 9))
def test_a_range_has_both_ends(first: int, more: int, step: int) -> None:
    """`8:64:8` is 8, 16 ... 64, as for sweep."""
    last = first + more * step
    assert parse_counts(f"{first}:{last}:{step}") == tuple(range(first, last + 1, step))


def test_points_of_the_default_plan() -> None:
    """Sizes of SGLang and 8, 16, 32 for whatever has a partition; one point for whatever has none; alone first, both roles."""
    found = points()
    sizes = [8, 16, 20, 28, 32, 36, 44, 52, 60]
    for mechanism in set(EVERY) - {Mechanism.ALONE, Mechanism.CHUNKED}:
        mine = [point for point in found if point.mechanism is mechanism]
        expected = [(size, 132 - size) for size in sizes] if mechanism in SIZED else [None]
        assert [point.sizes for point in mine] == expected
    assert [point.chunk for point in found if point.mechanism is Mechanism.CHUNKED] == [512, 2048]
    alone = [point for point in found if point.mechanism is Mechanism.ALONE]
    assert found[: len(alone)] == alone
    for kind in Kind:
        sms = [point.sms_requested(kind) for point in alone if point.workload(kind)]
        assert sms == ["primary", *(str(size if kind is Kind.LATENCY else 132 - size) for size in sizes)]
    assert len({point.label for point in found}) == len(found)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decode_batch": "1,8", "connections": "1,8", "rates": "2,4", "interference": True},
        {"workqueue": "driver_default,device_ctx", "concurrency_limit": "1,2", "mechanisms": "green,green_balanced,streams"},
    ],
    ids=str,
)
def test_every_role_has_its_partner_alone(options: dict[str, object]) -> None:
    """slowdown is against a point of the same plan, on the same SMs, with the same workload; labels name one point each."""
    found = points(**options)
    for point in found:
        for kind in Kind if point.mechanism is not Mechanism.ALONE and not point.load else ():
            partner = point.alone(kind)
            assert partner in found
            assert partner.workload(kind) == point.workload(kind)
            assert partner.sms_requested(kind) == point.sms_requested(kind)
    assert len({point.label for point in found}) == len(found) == len(set(found))


def test_only_partitions_that_are_used_are_measured_alone() -> None:
    """`streams` has none, so both roles run alone on the whole device only; `alone` by itself means all sizes."""
    assert [point.sizes for point in points(mechanisms="streams")] == [None, None, None]
    assert len(points(mechanisms="alone")) == 20
    kinds = {kind for point in points(mechanisms="green_primary") for kind in Kind if point.sizes and point.workload(kind)}
    background_alone = [p for p in points(mechanisms="green_primary") if p.latency is None and p.sizes]
    assert kinds == set(Kind)
    assert background_alone == []


def test_queues_are_for_green_contexts() -> None:
    """A scope makes points of green mechanisms only; a limit goes with a scope; green_balanced is a scope by itself."""
    found = points(
        sms="20", mechanisms="green,streams,green_balanced", workqueue="driver_default,device_ctx", concurrency_limit="4"
    )
    queues = [(p.mechanism, p.workqueue, p.concurrency_limit) for p in found if p.mechanism is not Mechanism.ALONE]
    assert queues == [
        (Mechanism.STREAMS, Scope.DRIVER_DEFAULT, None),
        (Mechanism.GREEN, Scope.DRIVER_DEFAULT, None),
        (Mechanism.GREEN, Scope.DEVICE_CTX, 4),
        (Mechanism.GREEN_BALANCED, Scope.GREEN_CTX_BALANCED, 4),
    ]
    for point in found:
        assert bool(obstacle(point, H200)) == (point.workqueue is not Scope.DRIVER_DEFAULT)
        assert not obstacle(point, NEWER)


def test_interference_runs_beside_green() -> None:
    """Four loads at each size, one for each thing that two roles share, in the background's partition."""
    found = [point for point in points(sms="20,28", interference=True) if point.load]
    assert [(p.load, p.sizes) for p in found[:4]] == [(name, (20, 112)) for name in ("compute", "l2", "hbm", "copy")]
    assert len(found) == 8
    assert all(point.mechanism is Mechanism.GREEN and point.slot(Kind.BACKGROUND) == 1 for point in found)


def test_rates_come_to_what_has_arrivals() -> None:
    """The ladder makes a point per rate, but not of `alone` nor beside another load."""
    before = points(mechanisms="green,streams", sms="20", rates="auto", slo="ttft_p99=1s", interference=True)
    after = with_rates(before, (2.0, 4.0))
    fixed = [p for p in before if p.mechanism is Mechanism.ALONE or p.load]
    assert [point for point in after if point.rate_per_s is None] == fixed
    assert {p.rate_per_s for p in after if p not in fixed} == {2.0, 4.0}
    assert len(after) == len(fixed) + 2 * (len(before) - len(fixed))
    assert after == points(mechanisms="green,streams", sms="20", rates="2,4", interference=True)


@given(latency=st.integers(1, 131))
def test_an_asked_size_is_that_size_or_unsupported(latency: int) -> None:
    """What has no obstacle is granted exactly by the modelled driver, both roles; an obstacle names the nearest sizes."""
    point = CoPoint(mechanism=Mechanism.GREEN, latency=None, background=None, sizes=(latency, 132 - latency))
    if said := obstacle(point, H200):
        assert f"--sms: {latency} SMs" in said
        assert "nearest sizes" in said
        return
    asked = [Partition(SmsMode.COUNT, size) for size in point.sizes or ()]
    assert [grant.sms for grant in SplitRules(H200).disjoint(asked)] == [latency, 132 - latency]


@given(latency=st.sampled_from(Pool.of(132, 8).sizes()), background=st.integers(1, 124))
def test_a_background_of_its_own_size(latency: int, background: int) -> None:
    """Both counts are exact, or the row says which are: by the rules of the modelled driver."""
    point = CoPoint(mechanism=Mechanism.GREEN, latency=None, background=None, sizes=(latency, background))
    said = obstacle(point, H200)
    if latency + background > 132:
        assert "more than the 132" in said
        return
    if said:
        assert f"{background} SMs cannot be split off exactly beside {latency}" in said
        return
    asked = [Partition(SmsMode.COUNT, size) for size in (latency, background)]
    assert [grant.sms for grant in SplitRules(H200).disjoint(asked)] == [latency, background]


def test_sizes_that_the_device_does_not_have() -> None:
    """A count that leaves the other role no SM is an error of usage, as in sweep; one that no split gives is not."""
    for options in ({"sms": "132"}, {"sms": "8,125"}, {"background_sms": "132"}):
        with pytest.raises(PlanError, match="132 SMs"):
            points(**options)
    assert obstacle(next(p for p in points(sms="10") if p.sizes), H200)


def test_two_processes_need_a_shared_mode() -> None:
    """Compute mode exclusive_process forbids time slices, not MPS, whose server is the one process."""
    exclusive = replace(H200, compute_mode="exclusive_process")
    barred = {point.mechanism for point in points(mechanisms="timeslice,mps,streams", sms="20") if obstacle(point, exclusive)}
    assert barred == {Mechanism.TIMESLICE}


def test_chunks_need_a_prompt() -> None:
    """Under `all` a background without a prompt has no chunked point, and a note says so."""
    found, notes = expand(plan(background="hbm"), H200)
    assert Mechanism.CHUNKED not in {point.mechanism for point in found}
    assert any("chunked is left out" in note for note in notes)


def test_every_key_has_a_reader() -> None:
    """No key is accepted and then forgotten: each changes the plan."""
    changed = {
        "latency": "hbm",
        "background": "hbm",
        "layers": "2",
        "decode_batch": "4",
        "context": "512",
        "prompt": "1024",
        "chunk": "1024",
        "mechanisms": "green",
        "sms": "20",
        "background_sms": "64",
        "workqueue": "device_ctx",
        "connections": "8",
        "arrivals": "poisson",
        "step_rate": "10",
        "rates": "3",
        "steps": "300",
        "seed": "9",
        "slo": "step_p50=1ms",
        "interference": True,
        "mps_memory_limit": "4G",
        "time_limit_s": "9",
    }
    for key, value in changed.items():
        assert plan(**{key: value}) != plan(), key
    assert plan(rates="3", background_arrivals="fixed") != plan(rates="3")
    assert set(KEYS) - set(changed) == {"summary", "model", "concurrency_limit", "background_arrivals"}


def test_a_run_has_room_for_its_requests_or_is_refused() -> None:
    """Requests of a run, each in as many pieces as chunked cuts it into, fit the device's ledger, whose size is what we think."""
    assert ROOM == CAPACITY
    assert MAX_STEPS + warm_steps(MAX_STEPS) <= ROOM
    assert MOST_STEPS + warm_steps(MOST_STEPS) <= ROOM
    asked: dict[str, object] = {"steps": "50000", "step_rate": "100"}
    # 52,500 steps at 100 a second last 525 s: 21,000 requests at 40 a second.
    assert most_requests(plan(**asked, rates="3"), 40.0, 100.0) == 21_000 + math.ceil(4 * math.sqrt(21_000))
    assert most_requests(plan(**asked, rates="3", background_arrivals="fixed"), 40.0, 100.0) == 21_000
    assert plan(**asked, rates="40", mechanisms="green").rates == (40.0,)
    assert plan(**asked, rates="40", prompt="512", chunk="512").rates == (40.0,)
