"""Plans: a file and the options over it become points, or one sentence that names the key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from greenbench.catalog import Kernel, library, load_kernel
from greenbench.errors import ExitCode, PlanError
from greenbench.facts import model_facts
from greenbench.plan import KEYS, Plan, expand, load_plan, plan_from_dict, plan_names, without_yardsticks
from greenbench.schema import Point, Scope, Timing
from greenbench.sms import parse_sms
from greenbench.yardsticks import WAYS, ways

H200 = model_facts("h200").device

SOURCE = """/* greenbench
family = "memory"
summary = "A kernel of the tests."
entry = "k"
args = ["n"]
{extra}
[params]
n = 1024
{params}
[launch]
block = 256
grid = "ceil_div(n, 256)"
*/
extern "C" __global__ void k(long long n) {{}}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kernel]:
    """A library of four: two of memory, one with a yardstick, one internal."""
    folder = tmp_path_factory.mktemp("kernels")
    for name, extra, params in (
        ("copy", "", ""),
        ("triad", "", "s = 3.0"),
        ("gemm", "", "m = 64"),
        ("spin", "internal = true", "us = 100"),
    ):
        (folder / f"{name}.cu").write_text(SOURCE.format(extra=extra, params=params))
    found = {path.stem: load_kernel(path, prelude="") for path in sorted(folder.glob("*.cu"))}
    # A file that names it has the operands of a product; a plan does not ask for them.
    return {**found, "gemm": replace(found["gemm"], yardstick="cublas")}


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """A plan that uses every key."""
    path = tmp_path / "mine.toml"
    path.write_text("""
summary = "of the tests"
kernels = ["copy", { name = "triad", params = { n = [256, 512] }, sms = [8, "full"] }]
sms = "8,16"
granularity = 2
workqueue = ["driver_default", "balanced"]
concurrency_limit = 4
connections = [1, 8]
rounds = 7
max_rounds = 9
timing = "cold"
flush = "dirty"
seed = 5
time_limit_s = 2.5
yardsticks = false
""")
    return path


def write(folder: Path, text: str) -> Path:
    """Write a plan file."""
    path = folder / "bad.toml"
    path.write_text(text, encoding="utf-8")
    return path


def cells(points: list[Point]) -> list[tuple[str, str, str]]:
    """Return kernel, parameters and size of each point."""
    return [(point.kernel, point.param_text, point.partition.name) for point in points]


def test_every_key_of_a_file_arrives(plan_file: Path, kernels: dict[str, Kernel]) -> None:
    """A plan file's keys become the plan, its points have them, and run.json can hold it."""
    plan = load_plan(plan_file, {}, kernels)
    assert (plan.name, plan.summary, plan.sms.text, plan.granularity) == ("mine", "of the tests", "8,16", 2)
    assert plan.workqueue == (Scope.DRIVER_DEFAULT, Scope.GREEN_CTX_BALANCED)
    assert (plan.concurrency_limit, plan.connections, plan.seed, plan.time_limit_s) == ((4,), (1, 8), 5, 2.5)
    assert (plan.rounds, plan.max_rounds, plan.yardsticks) == (7, 9, ())
    assert (plan.timing, plan.flush_dirty) == (Timing.COLD_DIRTY, True)
    points = expand(plan, H200, kernels)
    assert len(points) == len(set(points)) == 2 * 2 * (2 + 2 * 2)
    assert cells(points)[:2] == [("copy", "n=1024", "8"), ("copy", "n=1024", "16")]
    assert ("triad", "n=512,s=3.0", "full") in cells(points)
    assert {point.partition.concurrency_limit for point in points} == {None, 4}
    assert {(point.flush_dirty, point.timing) for point in points} == {(True, Timing.COLD_DIRTY)}
    assert json.loads(json.dumps(plan.as_dict())) == plan.as_dict()
    assert set(plan.as_dict()) == {"name", *KEYS} - {"flush"}


def test_options_win_over_the_file(plan_file: Path, kernels: dict[str, Kernel]) -> None:
    """What is on the command line replaces the file's key; sizes there are for every kernel; None is an option not given."""
    options = {"sms": "24", "workqueue": "driver_default", "concurrency_limit": None, "timing": "hot", "rounds": 3, "set": ()}
    with pytest.raises(PlanError, match=r"^--concurrency-limit: a limit needs a workqueue scope"):
        load_plan(plan_file, options, kernels)
    plan = load_plan(plan_file, {**options, "workqueue": "device_ctx", "connections": "2"}, kernels)
    assert (plan.timing, plan.rounds, plan.max_rounds, plan.connections) == (Timing.HOT, 3, 3, (2,))
    assert cells(expand(plan, H200, kernels)) == [
        ("copy", "n=1024", "24"),
        ("triad", "n=256,s=3.0", "24"),
        ("triad", "n=512,s=3.0", "24"),
    ]


def test_yardsticks_follow_their_kernel(kernels: dict[str, Kernel]) -> None:
    """A kernel with a yardstick gives points of the vendor's beside its own, same parameters and sizes, unless told not to."""
    options = {"kernels": "gemm,copy", "sms": "8", "set": ["m=1"], "yardsticks": "all"}
    points = cells(expand(load_plan("quick", options, kernels | quick(kernels)), H200, kernels))
    assert points == [
        ("gemm", "m=1,n=1024", "8"),
        ("gemm.cublas", "m=1,n=1024", "8"),
        ("gemm.cublas_sms", "m=1,n=1024", "8"),
        ("gemm.cublaslt", "m=1,n=1024", "8"),
        ("copy", "n=1024", "8"),
    ]


@pytest.mark.parametrize(
    ("asked", "suffixes"),
    [
        (False, []),
        (True, ["cublas", "cublas_sms", "cublaslt"]),
        ("none", []),
        ("cublaslt,cublas", ["cublas", "cublaslt"]),
        (["cublas_sms"], ["cublas_sms"]),
        ([], []),
        ("torch,cublas_sms", ["cublas_sms"]),
    ],
)
def test_yardsticks_can_be_picked(asked: object, suffixes: list[str], kernels: dict[str, Kernel]) -> None:
    """All, none, or those named, in one order; run.json holds the choice, and a run of before, which held true, is read too."""
    options = {"kernels": "gemm", "sms": "8", "yardsticks": asked}
    plan = load_plan("quick", options, kernels | quick(kernels))
    assert [kernel for kernel, _, _ in cells(expand(plan, H200, kernels))] == ["gemm", *(f"gemm.{each}" for each in suffixes)]
    assert plan_from_dict(plan.as_dict()) == plan
    assert plan_from_dict({**plan.as_dict(), "yardsticks": True}).yardsticks == tuple(WAYS)


@pytest.mark.parametrize(
    ("asked", "names", "said"),
    [
        (
            "torch",
            "gemm",
            "--yardsticks torch: no kernel of this plan has it (gemm); their yardsticks: cublas, cublas_sms, cublaslt",
        ),
        (
            "cublas,torch",
            "copy,triad",
            "--yardsticks cublas, torch: no kernel of this plan has it (copy, triad); their yardsticks: none",
        ),
    ],
)
def test_yardsticks_that_no_kernel_has_are_refused(asked: str, names: str, said: str, kernels: dict[str, Kernel]) -> None:
    """Rows that were asked for and never come would be missed only after the run."""
    with pytest.raises(PlanError) as caught:
        load_plan("quick", {"kernels": names, "yardsticks": asked}, kernels | quick(kernels))
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        ({"kernels": "gemm,copy,triad", "yardsticks": "cublas"}, ("copy", "triad")),
        ({"kernels": "gemm,copy", "yardsticks": "all"}, ()),
        ({"kernels": "copy", "yardsticks": "none"}, ()),
        ({"kernels": "copy"}, ("copy",)),
    ],
)
def test_kernels_without_a_yardstick_of_the_plan_are_known(
    options: dict[str, object], lacking: tuple[str, ...], kernels: dict[str, Kernel]
) -> None:
    """All means all there are, and what the plan's file names is not refused for the kernels of an option."""
    plan = load_plan("quick", options, kernels | quick(kernels))
    assert without_yardsticks(plan, kernels | quick(kernels)) == lacking


def test_eight_bit_operands_have_one_yardstick(kernels: dict[str, Kernel]) -> None:
    """cublasGemmEx does not multiply them, so rows of it would be nothing but unsupported."""
    assert kernels["gemm"].yardsticks == ways("cublas", ["bfloat16"]) == ("cublas", "cublas_sms", "cublaslt")
    assert ways("cublas", ["e4m3", "e4m3", "bfloat16"]) == ("cublaslt",)
    assert ways("torch", ["e4m3"]) == ("torch",)
    assert kernels["copy"].yardsticks == ()


def quick(kernels: dict[str, Kernel]) -> dict[str, Kernel]:
    """Stand in for the kernels that the built-in plans name, so that this file does not depend on their front matter."""
    params = {"gemm_bf16": ("m", "n", "k"), "gemm_fp32": ("m", "n", "k"), "chase": ("n", "bytes")}
    found = {}
    for name in ("copy", "triad", "read", "write", "gemm_bf16", "gemm_fp32", "chase", "null_launch"):
        own = tuple((each, 4) for each in params.get(name, ("n",)))
        found[name] = replace(kernels.get(name, kernels["copy"]), name=name, params=own)
    return found


def test_the_default_plan_is_what_the_design_says(kernels: dict[str, Kernel]) -> None:
    """quick: copy, triad, gemm_bf16 4096³, gemm_fp32 1024³, chase at 16 KiB, 8 MiB and 1 GiB, null_launch."""
    stand_in = quick(kernels)
    points = expand(load_plan("quick", {"sms": "8"}, stand_in), H200, stand_in)
    assert [kernel for kernel, _, _ in cells(points)] == [
        *("copy", "triad", "gemm_bf16", "gemm_fp32", "chase", "chase", "chase", "null_launch")
    ]
    params = [dict(point.params) for point in points]
    assert {params[2][name] for name in "mnk"} == {4096}
    assert {params[3][name] for name in "mnk"} == {1024}
    assert [each["bytes"] for each in params[4:7]] == [16 << 10, 8 << 20, 1 << 30]


def test_the_other_built_in_plans(kernels: dict[str, Kernel]) -> None:
    """scaling takes every kernel that is not internal through 8:132:8 and full; ci has 64 points and counts its rounds."""
    stand_in = {**quick(kernels), "spin": kernels["spin"]}
    assert {"quick", "scaling", "ci"} <= set(plan_names())
    points = expand(load_plan("scaling", {}, stand_in), H200, stand_in)
    assert {point.kernel for point in points} == set(quick(kernels))
    assert [point.partition.name for point in points][:17] == [*map(str, range(8, 129, 8)), "full"]
    ci = load_plan("ci", {}, stand_in)
    assert len(expand(ci, H200, stand_in)) == 64
    assert ci.rounds == ci.max_rounds >= 6


def test_the_built_in_plans_fit_the_library() -> None:
    """Every kernel and parameter that a shipped plan names is one of the shipped kernels'."""
    kernels = library()
    for name in plan_names():
        assert expand(load_plan(name, {}, kernels), H200, kernels), name


def test_set_reaches_the_kernels_that_have_it(kernels: dict[str, Kernel]) -> None:
    """A bare name is for every chosen kernel that has it, each list multiplies, and kernel.name wins over the bare one."""
    options = {"kernels": "copy,triad", "sms": "8", "set": ["triad.n=7", "n=1024,2048", "s=1,2.5"]}
    points = cells(expand(load_plan("quick", options, kernels | quick(kernels) | kernels), H200, kernels))
    assert points == [
        ("copy", "n=1024", "8"),
        ("copy", "n=2048", "8"),
        ("triad", "n=7,s=1.0", "8"),
        ("triad", "n=7,s=2.5", "8"),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kernels": "copy,nope"}, "--kernels: there is no kernel 'nope'; kernels are chase, copy"),
        ({"kernels": "traid"}, "did you mean triad?"),
        ({"kernels": "copy,copy"}, "--kernels: 'copy' is given twice"),
        ({"kernels": ""}, "--kernels: '' has a blank item"),
        ({"sms": "8,,16"}, "--sms: '8,,16' has a blank item"),
        ({"workqueue": "fair"}, "--workqueue: 'fair' is no workqueue scope; give driver_default, device_ctx, green_ctx_balanced"),
        ({"workqueue": "balansed"}, "did you mean balanced?"),
        ({"workqueue": "balanced,green_ctx_balanced"}, "'green_ctx_balanced' is given again, as 'balanced' says the same"),
        ({"workqueue": "device_ctx,device_ctx"}, "'device_ctx' is given twice"),
        ({"workqueue": "balanced", "concurrency_limit": "0"}, "--concurrency-limit: '0' is no integer from 1"),
        ({"concurrency_limit": "4"}, "--concurrency-limit: a limit needs a workqueue scope"),
        ({"connections": "33"}, "--connections: '33' is no integer from 1 to 32"),
        ({"rounds": 0}, "--rounds: '0' is no integer from 1"),
        ({"rounds": True}, "--rounds: 'True' is no integer"),
        ({"max_rounds": 2}, "--max-rounds: 2 is below the 6 of rounds"),
        ({"timing": "warm"}, "--timing: 'warm' is no way of timing; give auto, steady, cold, hot, graph"),
        ({"timing": "hot", "flush": "dirty"}, "--flush: 'dirty' is for cold timing and this is hot; add --timing cold"),
        ({"flush": "dirty"}, "--flush: 'dirty' is for cold timing and this is auto"),
        ({"timing": "cold", "flush": "wet"}, "--flush: 'wet' is no flush; give clean or dirty"),
        ({"time_limit_s": "soon"}, "--time-limit: 'soon' is no time in seconds"),
        ({"granularity": "x"}, "--granularity: 'x' is no integer"),
        ({"yardsticks": "cublas,cublas"}, "--yardsticks: 'cublas' is given twice; give each once"),
        ({"yardsticks": "all,cublas"}, "--yardsticks: 'all' is no yardstick"),
        ({"yardsticks": ""}, "--yardsticks: '' has a blank item"),
        ({"granularity": "3"}, "--granularity: 3 is no unit that drivers split by; give 2"),
        ({"colour": 1}, "--colour is no key of a plan"),
        ({"set": ["n"]}, "--set: 'n' sets nothing; write NAME=VALUE"),
        ({"set": ["n=1,"]}, "--set n=1,: '1,' has a blank item"),
        ({"set": ["n=1,1"]}, "--set n=1,1: '1' is given twice"),
        ({"set": ["n=big"]}, "--set n=big: 'big' is no number"),
        ({"set": ["n=1.5"]}, "--set n=1.5: parameter n of kernel copy is 1.5; it must be an integer"),
        ({"set": ["n=-1"]}, "--set n=-1: kernel copy with n=-1: "),
        ({"set": ["n=1", "n=2"]}, "--set n=2: n is set twice; write n=VALUE,VALUE"),
        ({"set": ["byte=1"]}, "has a parameter 'byte' (did you mean bytes?)"),
        ({"set": ["triad.q=1"]}, "--set triad.q=1: none of triad has a parameter 'q'; there is n"),
        ({"set": ["read.n=1"]}, "--set read.n=1: kernel 'read' is not in this plan"),
    ],
)
def test_bad_options_are_told_before_any_device(options: dict[str, object], said: str, kernels: dict[str, Kernel]) -> None:
    """Each wrong option is exit 2 with the option, its value and what is possible; no device is known here."""
    with pytest.raises(PlanError) as caught:
        load_plan("quick", options, quick(kernels))
    assert said in str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kernel = 'copy'", "kernel is no key of a plan (did you mean kernels?); keys are summary, kernels"),
        ("sms = '8'", "the plan names no kernels"),
        ("kernels = []", "kernels: [] names no kernels"),
        ("kernels = [3]", "kernels: 3 is not a text"),
        ("kernels = [{ nam = 'copy' }]", "kernels.nam is no key of a kernel in a plan (did you mean name?)"),
        ("kernels = [{ name = 'kopy' }]", "kernels.name: there is no kernel 'kopy' (did you mean copy?)"),
        ("kernels = [{ name = 'copy', params = 3 }]", "kernels.params of copy: 3 is not a table"),
        ("kernels = [{ name = 'copy', params = { n = [] } }]", "kernels.params.n of copy: [] is empty"),
        ("kernels = [{ name = 'copy', params = { n = true } }]", "kernels.params.n of copy: 'True' is no number"),
        ("kernels = [{ name = 'copy', params = { m = 1 } }]", "kernel copy has no parameter 'm'"),
        ("kernels = [{ name = 'copy', sms = [8, 8] }]", "kernels.sms of copy '8,8': '8' is given twice"),
        ("kernels = 'copy'\nsms = [8, true]", "sms: 'True' is no number of SMs"),
        ("kernels = 'copy'\nsms = 8.0", "sms: '8.0' is no number of SMs"),
        ("kernels = 'copy'\nrounds = 'six'", "rounds: 'six' is no integer"),
        ("kernels = 'copy'\nyardsticks = 1", "yardsticks: '1' is no yardstick; give all, none, or names of cublas, cublas_sms"),
        (
            "kernels = 'copy'\nyardsticks = ['cublas', 'cublaslb']",
            "yardsticks: 'cublaslb' is no yardstick (did you mean cublaslt?)",
        ),
        ("kernels = 'copy'\nsummary = 1", "summary: 1 is not a text"),
        ("kernels = 'copy'\nflush = 'clean'", "flush: 'clean' is for cold timing"),
        ("kernels = ", "is not TOML"),
        ("a = " + "[" * 3000, "is not TOML"),
        ("a = " + "9" * 5000, "is not TOML"),
    ],
)
def test_bad_files_are_told_with_file_and_key(text: str, said: str, tmp_path: Path, kernels: dict[str, Kernel]) -> None:
    """A wrong plan file is exit 2, naming file and key, with the near miss where there is one."""
    path = write(tmp_path, text)
    with pytest.raises(PlanError) as caught:
        load_plan(path, {}, kernels)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path, kernels: dict[str, Kernel]) -> None:
    """A plan that is not there, a folder, bytes that are no text, and a name that is no plan's are sentences."""
    with pytest.raises(PlanError, match=r"none\.toml cannot be read: no such file"):
        load_plan(tmp_path / "none.toml", {}, kernels)
    with pytest.raises(PlanError, match="is no file but a folder"):
        load_plan(tmp_path, {}, kernels)
    path = tmp_path / "latin.toml"
    path.write_bytes(b"summary = '\xe9'")
    with pytest.raises(PlanError, match="is not TOML"):
        load_plan(path, {}, kernels)
    with pytest.raises(PlanError, match=r"there is no plan 'quik' \(did you mean quick\?\); give .*ci, .*quick"):
        load_plan("quik", {}, kernels)


def test_points_are_distinct_and_in_one_order(plan_file: Path, kernels: dict[str, Kernel]) -> None:
    """Choices that overlap give each point once, and the same plan gives the same list."""
    plan = load_plan(plan_file, {}, kernels)
    doubled = replace(plan, kernels=(*plan.kernels, *plan.kernels))
    assert expand(doubled, H200, kernels) == expand(plan, H200, kernels)


def test_counts_above_the_device_are_told_when_it_is_known(kernels: dict[str, Kernel]) -> None:
    """The order of checks is syntax, device, ranges: the plan loads, expanding it on the device refuses."""
    plan = load_plan("quick", {"sms": "200"}, quick(kernels))
    with pytest.raises(PlanError, match="--sms 200: this device has 132 SMs"):
        expand(plan, H200, quick(kernels))


def test_a_kernel_that_cannot_run_here_keeps_its_points(kernels: dict[str, Kernel]) -> None:
    """A kernel for a newer architecture becomes unsupported rows later, so its points are not dropped here."""
    newer = {"copy": replace(kernels["copy"], min_cc=(12, 0))}
    plan = Plan(name="x", kernels=load_plan("quick", {"kernels": "copy"}, quick(kernels)).kernels, sms=parse_sms("8"))
    assert len(expand(plan, H200, newer)) == 1


def test_a_kernel_that_is_gone_is_a_sentence() -> None:
    """A run whose kernel file was removed since cannot be expanded again: PlanError with the name and the way out."""
    kernels = library()
    plan = load_plan("quick", {"kernels": "triad", "sms": "8"}, kernels)
    gone = {name: kernel for name, kernel in kernels.items() if name != "triad"}
    with pytest.raises(PlanError, match="kernel 'triad' of the plan is in no folder.*--kernels-dir"):
        expand(plan, H200, gone)
