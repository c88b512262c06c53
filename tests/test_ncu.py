"""`greenbench ncu`: what it makes of ncu's raw page, and how it ends when ncu does not do as it should; ncu itself is made up."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from greenbench.catalog import library
from greenbench.cli.main import cli
from greenbench.errors import ExitCode, IncompleteError, MissingPackageError, UsageError
from greenbench.experiments.sweep import SweepRequest, preview, run_sweep
from greenbench.gpu import driver, open_gpu
from greenbench.gpu.cuda import CudaGpu
from greenbench.gpu.modelled.lane import ModelledGate
from greenbench.measure import Session
from greenbench.ncu.figures import Measured, NcuRow, Where, doubts, ncu_row, placement, related
from greenbench.ncu.page import read_page
from greenbench.ncu.record import measured_in
from greenbench.ncu.tool import Tool, command, find_ncu, run
from greenbench.plan import load_plan
from greenbench.runfiles import read_rows, write_rows
from greenbench.schema import BlockStatus
from greenbench.worker.child import Server
from tests import fake_ncu
from tests.staging import Notes, at

PARTITION = Where("triad[n=1048576]@32/driver_default/steady", 32, 132, green=True)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Two run folders of one point and what a dry run says of it."""

    measured: Path
    profiled: Path
    plan: dict[str, Any]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Measure and profile the point on the modelled device, once."""
    folder = tmp_path_factory.mktemp("stage")
    keys = {"sms": "32", "kernels": "triad", "set": ("n=1048576",), "rounds": "1", "yardsticks": False}
    plan = load_plan("quick", keys, library())
    request = SweepRequest(plan=plan, device="model:h200", out=folder / "measured")
    run_sweep(request, Notes())
    run_sweep(replace(request, out=folder / "profiled", profile=3), Notes())
    seen = preview(request)
    labels = [point.label() for point in seen.points]
    said = {"points": labels, "obstacles": ["" for _ in labels], "device": {"sm_count": seen.device.sm_count}}
    return Stage(folder / "measured", folder / "profiled", said)


@pytest.fixture
def ncu(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command with a made-up ncu and a made-up sweep."""

    def go(*words: str, report: str | None = fake_ncu.page(), says: tuple[str, ...] = (), **sweep: Any) -> Result:
        tool = fake_ncu.ncu(tmp_path / "ncu", report, *says)
        python = fake_ncu.sweep(
            tmp_path / "python", sweep.pop("plan", stage.plan), stage.measured, sweep.pop("profiled", stage.profiled), **sweep
        )
        monkeypatch.setattr(sys, "executable", str(python))
        given = words or ("--point", "triad@32", "--", "sweep")
        if "--out" not in given:
            given = (*given, "--out", str(tmp_path / "run"))
        return CliRunner().invoke(cli, ["ncu", "--ncu", str(tool), *given])

    return go


def figures(page: str, measured: Measured | None = None, where: Where = PARTITION) -> NcuRow:
    """Return the row of the first launch."""
    return ncu_row(read_page(page)[0], where, measured)


# -- the raw page ------------------------------------------------------------------------------------------------------


def test_a_page_is_read_with_its_units() -> None:
    """ncu's own lines in front are skipped, the line of units is no launch, and thousands are set off."""
    launches = read_page("==PROF== Disconnected\n\n" + fake_ncu.page())
    assert len(launches) == 3
    assert launches[2].whole("ID") == 2
    assert launches[0].number("gpu__time_duration.sum") == 926_300
    assert launches[0].text("Kernel Name") == "triad(float *, const float *)"
    assert (launches[0].number("absent"), launches[0].text("absent")) == (None, "")


@given(st.floats(0, 1e15), st.sampled_from([("ns", 1), ("nsecond", 1), ("usecond", 1e3), ("msecond", 1e6), ("second", 1e9)]))
def test_any_duration_is_read_in_ns(value: float, unit: tuple[str, float]) -> None:
    """Whatever unit a version writes, and with commas or not."""
    text = fake_ncu.page(gpu__time_durationDOTsum=f"{value:,.3f}").replace('"ns"', f'"{unit[0]}"')
    read = read_page(text)[0].number("gpu__time_duration.sum")
    assert read is not None
    assert math.isclose(read, round(value, 3) * unit[1], rel_tol=1e-12, abs_tol=1e-3)


@given(st.text(max_size=200))
def test_any_text_is_a_page_or_a_sentence(text: str) -> None:
    """What ncu never wrote gives launches, none, or IncompleteError: never a traceback."""
    for page in (text, '"ID","Kernel Name"\n' + text):
        launches = []
        with suppress(IncompleteError):
            launches = read_page(page)
        assert all(launch.text("ID").isprintable() for launch in launches)


@pytest.mark.parametrize("value", ["n/a", "", "nan", "inf", "(!) nan"])
def test_what_is_no_number_is_not_there(value: str) -> None:
    """ncu writes words where a counter could not be read."""
    assert figures(fake_ncu.page(sm__throughputDOTavgDOTpct_of_peak_sustained_elapsed=value)).sm_pct is None


# -- figures -----------------------------------------------------------------------------------------------------------


def test_per_sm_figures_are_related_to_the_partition_and_shared_ones_stay() -> None:
    """17.9 % of 132 SMs is 73.8 % of 32; L2 and DRAM are the device's; time and clock are compared with the sweep's."""
    row = figures(fake_ncu.page(), Measured(931.0, 1980.0))
    assert row.sm_pct == pytest.approx(17.9 * 132 / 32)
    assert (row.sm_device_pct, row.l2_device_pct, row.dram_device_pct, row.dram_gb_per_s) == (17.9, 41.2, 71.98, 3455.102)
    assert (row.tensor_pct, row.occupancy_pct, row.l2_hit_pct) == (0.0, 97.3, 33.4)
    assert (row.duration_us, row.sm_clock_mhz) == (926.3, 1980.0)
    assert row.difference_pct == pytest.approx(-0.505, abs=0.001)
    assert (row.placement, row.ncu_sms, row.ncu_tpcs, row.green_context_id) == ("confined", 32, 16, 2)
    assert doubts([row]) == []


@given(st.floats(0, 100), st.integers(1, 144), st.integers(1, 144))
def test_a_share_is_of_the_partition_or_not_there(percent: float, sms: int, device: int) -> None:
    """Never above what rounding allows, and on the whole device the figure is ncu's own."""
    share = related(percent, Where("x", min(sms, device), device, green=True))
    assert share is None or (percent <= share * (1 + 1e-12) and share <= 102)
    assert related(percent, Where("x", device, device, green=True)) == pytest.approx(percent)


TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize(
    ("metrics", "percent", "device", "name"),
    [
        ({"sm__pipe_tensor_cycles_activeDOTavgDOTpct_of_peak_sustained_elapsed": "20"}, 82.5, 20.0, TENSOR),
        (
            {"sm__pipe_tensor_op_hmma_cycles_activeDOTavgDOTpct_of_peak_sustained_active": "80"},
            80.0,
            None,
            "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        ),
        (
            {
                "sm__inst_executed_pipe_tensor_op_gmmaDOTavgDOTpct_of_peak_sustained_active": "60",
                "sm__inst_executed_pipe_tensor_op_hmmaDOTavgDOTpct_of_peak_sustained_active": "30",
            },
            60.0,
            None,
            "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
        ),
        ({}, None, None, ""),
    ],
)
def test_the_tensor_pipe_by_what_is_there(metrics: dict[str, str], percent: Any, device: Any, name: str) -> None:
    """Cycles before instructions, elapsed before active; only what is of elapsed time is related to the partition."""
    row = figures(fake_ncu.page(drop=(TENSOR,), **metrics))
    assert (row.tensor_pct, row.tensor_device_pct, row.tensor_metric) == (percent, device, name)


@pytest.mark.parametrize(
    ("changed", "where", "verdict"),
    [
        ({}, PARTITION, "confined"),
        ({"launch__sm_count": "132"}, PARTITION, "leaked"),
        ({"launch__uses_green_context": "0"}, PARTITION, "leaked"),
        ({"launch__uses_green_context": ""}, PARTITION, "unproven"),
        ({"launch__sm_count": "", "launch__uses_green_context": ""}, PARTITION, "unproven"),
        ({"launch__sm_count": "132", "launch__uses_green_context": "0"}, Where("x", 132, 132, green=False), "confined"),
        ({"launch__sm_count": "132"}, Where("x", 132, 132, green=False), "leaked"),
    ],
)
def test_launch_statistics_prove_the_partition(changed: dict[str, str], where: Where, verdict: str) -> None:
    """As many SMs as granted, in a green context exactly where there should be one; what ncu does not say proves nothing."""
    assert placement(read_page(fake_ncu.page(**changed))[0], where) == verdict


def test_what_would_mislead_is_said() -> None:
    """A share above 100 %, another clock and an ncu without green contexts each get a sentence."""
    page = fake_ncu.page(
        sm__throughputDOTavgDOTpct_of_peak_sustained_elapsed="71.6",
        gpc__cycles_elapsedDOTavgDOTper_second="1,500,000,000",
        launch__uses_green_context="",
    )
    row = figures(page, Measured(931.0, 1980.0))
    assert (row.sm_pct, row.sm_device_pct) == (None, 71.6)
    told = doubts([row])
    assert len(told) == 3
    assert "1500 MHz under ncu and 1980 MHz in the sweep" in told[1]


@pytest.mark.parametrize(
    ("unit", "value", "drop"),
    [
        ("hz", "1,980,000,000", ()),
        ("cycle/nsecond", "1.98", ()),
        ("Ghz", "1.98", ()),
        ("", "", ("gpc__cycles_elapsed.avg.per_second",)),
    ],
)
def test_clocks_of_all_versions(unit: str, value: str, drop: tuple[str, ...]) -> None:
    """The rate in any unit, or cycles over time where there is none."""
    more = {} if drop else {"gpc__cycles_elapsedDOTavgDOTper_second": value}
    clock = figures(fake_ncu.page(drop=drop, **more).replace('"hz"', f'"{unit}"')).sm_clock_mhz
    assert clock == pytest.approx(1980, rel=1e-3)


# -- the tool ----------------------------------------------------------------------------------------------------------


def test_a_path_from_here_is_a_path_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`./ncu` is this one, not the one on PATH."""
    fake_ncu.ncu(tmp_path / "ncu", None)
    monkeypatch.chdir(tmp_path)
    assert find_ncu("./ncu", {"PATH": "/nonexistent"}).path == tmp_path / "ncu"


def test_where_ncu_is_looked_for(tmp_path: Path) -> None:
    """--ncu, the variable, PATH, the toolkit, then the newest folder of Nsight Compute by number."""
    places = {name: tmp_path / name for name in ("named", "path", "toolkit/bin", "opt/2025.3.1", "opt/2025.10.0", "opt/2024.1")}
    for place in places.values():
        place.mkdir(parents=True)
        fake_ncu.ncu(place / "ncu", None)
    folders = (str(tmp_path / "opt" / "*"),)
    environment = {
        "GREENBENCH_NCU": str(places["named"] / "ncu"),
        "PATH": str(places["path"]),
        "CUDA_HOME": str(tmp_path / "toolkit"),
    }
    expected = ["named", "path", "toolkit/bin", "opt/2025.10.0"]
    for name, place in zip(("GREENBENCH_NCU", "PATH", "CUDA_HOME", ""), expected, strict=True):
        assert find_ncu("", environment, folders) == Tool(places[place] / "ncu", "2025.3.1.0")
        environment.pop(name, "")
        environment.setdefault("PATH", str(tmp_path / "nothing"))
    assert find_ncu(str(places["opt/2024.1"] / "ncu"), environment, folders).path == places["opt/2024.1"] / "ncu"
    with pytest.raises(MissingPackageError, match="there is no ncu on PATH"):
        find_ncu("", environment, ())


@pytest.mark.parametrize(
    ("body", "said"), [("print('hello')", "is it Nsight Compute"), ("import sys; sys.exit(3)", "ended with 3")]
)
def test_a_program_that_is_no_ncu(tmp_path: Path, body: str, said: str) -> None:
    """It is not run on anything."""
    path = fake_ncu.program(tmp_path / "ncu", body)
    with pytest.raises(MissingPackageError, match=said):
        find_ncu(str(path))
    path.write_text("no program")
    with pytest.raises(MissingPackageError, match="does not start"):
        find_ncu(str(path))
    with pytest.raises(MissingPackageError, match="is no program"):
        find_ncu(str(tmp_path / "absent"))


def test_the_line_of_ncu() -> None:
    """Clocks stay as they are, children are followed, and the user's options come last, so that they win."""
    line = command(Tool(Path("ncu"), "1"), Path("x.ncu-rep"), ["--set", "full"], ["python", "-m", "greenbench"])
    text = " ".join(line)
    assert "--clock-control none" in text
    assert "--target-processes all" in text
    assert "--profile-from-start off" in text
    for section in ("LaunchStats", "SpeedOfLight", "MemoryWorkloadAnalysis"):
        assert f"--section {section} " in text
    assert text.endswith("--set full python -m greenbench")


def test_a_program_that_hangs_leaves_nothing(tmp_path: Path) -> None:
    """It is ended with its children after the limit, and a sentence says so."""
    body = f"""
    import subprocess, time
    child = subprocess.Popen([{sys.executable!r}, "-SE", "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    print("==PROF== waiting", flush=True)
    time.sleep(60)
    """
    heard: list[str] = []
    began = time.monotonic()
    with pytest.raises(IncompleteError, match=r"did not end within 0\.5 s"):
        run([str(fake_ncu.program(tmp_path / "hang", body))], 0.5, heard.append)
    assert heard[0] == "==PROF== waiting"
    assert time.monotonic() - began < 30


def test_lines_of_both_streams(tmp_path: Path) -> None:
    """ncu's own lines are told from the program's, whichever stream they come on."""
    body = """
    import sys
    print("==ERROR== one"); print("path"); print("==WARNING== two", file=sys.stderr); print("words", file=sys.stderr)
    sys.exit(7)
    """
    heard: list[str] = []
    ran = run([str(fake_ncu.program(tmp_path / "both", body))], 20, heard.append)
    assert (ran.code, ran.lines, ran.errors) == (7, ("path",), ["one"])
    assert set(ran.told) == {"==ERROR== one", "==WARNING== two"}
    assert set(heard) == {*ran.told, "words"}


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_point_under_ncu(ncu: Any, stage: Stage, tmp_path: Path) -> None:
    """The exact line is said before it runs; ncu.csv, the report and the run folders are named; the figures are in words."""
    done = ncu("--point", "triad@32", "--set", "full", "--", "sweep", "--rounds", "2")
    assert done.exit_code == 0
    folder = tmp_path / "run"
    expected = [folder, folder / "rows.csv", folder / "ncu.csv", folder / "profile.ncu-rep", tmp_path / "run-measured"]
    assert done.stdout.splitlines() == [str(path) for path in expected]
    assert all(path.exists() for path in expected)
    line = next(line for line in done.stderr.splitlines() if "--export" in line)
    assert line.index("--set full") < line.index("-m greenbench sweep --rounds 2") < line.index("--kernels triad --sms 32")
    assert "--profile 3" in line
    assert done.stderr.index("--export") < done.stderr.index("==PROF== Connected")
    assert "73.8 % of the partition's 32 SMs (ncu: 17.9 % of all 132 SMs)" in done.stderr
    assert "72.0 % of the device, which all partitions share; 3455 GB/s" in done.stderr
    assert "green context 2: confined" in done.stderr
    rows = list(csv.DictReader(io.StringIO((folder / "ncu.csv").read_text())))
    assert [row["launch"] for row in rows] == ["0", "1", "2"]
    assert list(rows[0]) == [field.name for field in dataclasses.fields(NcuRow)]
    time_us = read_rows(stage.measured / "rows.csv")[0].time_us
    assert float(rows[0]["sweep_us"]) == pytest.approx(time_us)
    assert float(rows[0]["difference_pct"]) == pytest.approx(100 * (926.3 / time_us - 1), rel=1e-5)


def test_json_is_one_object(ncu: Any, tmp_path: Path) -> None:
    """stdout is JSON alone."""
    done = ncu("--point", "triad@32", "--json", "--no-compare", "--", "sweep")
    found = json.loads(done.stdout)
    assert (found["exit_code"], found["ncu"]["version"], len(found["launches"])) == (0, "2025.3.1.0", 3)
    assert found["launches"][0]["sweep_us"] is None
    assert not (tmp_path / "run-measured").exists()


def test_against_a_run(ncu: Any, stage: Stage, tmp_path: Path) -> None:
    """A run that has the point is compared with, and nothing is measured; one that has not is a usage error before ncu runs."""
    done = ncu("--point", "triad@32", "--against", str(stage.measured), "--", "sweep")
    assert done.exit_code == 0
    assert "; the sweep: " in done.stderr
    assert not (tmp_path / "run-measured").exists()
    with pytest.raises(UsageError, match="it has no measured row of copy"):
        measured_in(stage.measured, "copy[n=1]@32/driver_default/auto")
    done = ncu("--point", "triad@32", "--against", str(stage.profiled), "--", "sweep", "--out", str(tmp_path / "other"))
    assert done.exit_code == 2
    assert "no measured row" in done.stderr
    assert not (tmp_path / "other").exists()


def test_without_permission(ncu: Any, tmp_path: Path) -> None:
    """4, and the way out."""
    says = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on device 0."
    done = ncu("--point", "triad@32", "--no-compare", "--", "sweep", report=None, says=(says,))
    assert done.exit_code == ExitCode.MACHINE
    assert "NVreg_RestrictProfilingToAdminUsers=0" in done.stderr
    assert not list(tmp_path.glob("*.ncu-rep"))


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (None, "ncu captured nothing: ==WARNING== No kernels"),
        ("", "no launch of the point"),
        ("nonsense", "no launch of the point"),
    ],
)
def test_nothing_captured(ncu: Any, report: str | None, said: str) -> None:
    """5, with what ncu said."""
    says = ("==WARNING== No kernels were profiled.",)
    done = ncu("--point", "triad@32", "--no-compare", "--", "sweep", report=report, says=says)
    assert done.exit_code == ExitCode.INCOMPLETE
    assert said in done.stderr


def test_a_launch_outside_the_partition(ncu: Any, tmp_path: Path) -> None:
    """5, with the figures written for whoever wants to know."""
    done = ncu("--point", "triad@32", "--no-compare", "--", "sweep", report=fake_ncu.page(launch__sm_count="132"))
    assert done.exit_code == ExitCode.INCOMPLETE
    assert "leaked" in (tmp_path / "run" / "ncu.csv").read_text()


def test_a_point_that_failed(ncu: Any, stage: Stage, tmp_path: Path) -> None:
    """The row's reason is the sentence."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_bytes((stage.profiled / "run.json").read_bytes())
    write_rows(broken / "rows.csv", [replace(read_rows(stage.profiled)[0], status="failed", reason="out of memory")])
    done = ncu("--point", "triad@32", "--no-compare", "--", "sweep", profiled=broken)
    assert done.exit_code == ExitCode.INCOMPLETE
    assert "is failed: out of memory" in done.stderr


def test_fewer_launches_than_asked(ncu: Any) -> None:
    """A user's filter may take some away: said, not failed."""
    done = ncu("--point", "triad@32", "--no-compare", "-c", "1", "--", "sweep", report=fake_ncu.page(1))
    assert done.exit_code == 0
    assert "ncu captured 1 launch where the point was launched 3 times" in done.stderr
    assert " -c 1 " in done.stderr


def test_a_sweep_of_several_points(ncu: Any, stage: Stage, tmp_path: Path) -> None:
    """ncu's launches could not be told apart: 2, before ncu runs."""
    plan = stage.plan | {"points": ["triad[n=1]@32/driver_default/auto", "triad[n=2]@32/driver_default/auto"]}
    done = ncu(plan=plan)
    assert done.exit_code == 2
    assert "comes to 2 points" in done.stderr
    assert not (tmp_path / "run").exists()
    done = ncu(plan=stage.plan | {"obstacles": ["unsupported: needs sm_100"]})
    assert done.exit_code == ExitCode.MACHINE
    assert "needs sm_100" in done.stderr


def test_a_sweep_that_cannot_be(ncu: Any) -> None:
    """Its sentence and its exit code are handed on."""
    done = ncu(plan=None, code=4, error="greenbench: error: no NVIDIA driver (libcuda.so.1) was found on this machine")
    assert done.exit_code == ExitCode.MACHINE
    assert done.stderr == "greenbench: error: no NVIDIA driver (libcuda.so.1) was found on this machine\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "sweep"], "--point is missing"),
        (["--point", "triad", "--", "sweep"], "is no point"),
        (["--point", "triad@8,16", "--", "sweep"], "is no point"),
        (["--point", "gemm_bf16.cublas@32", "--", "sweep"], "is no point"),
        (["--point", "triad@32"], "the sweep is missing"),
        (["--point", "triad@32", "--", "colocate"], "'colocate' is no sweep"),
        (["--point", "triad@32", "--", "sweep", "--trace"], "--trace has no place"),
        (["--point", "triad@32", "--", "sweep", "--dry-run"], "--dry-run has no place"),
        (["--point", "triad@32", "--", "sweep", "--device", "model:h200"], "on the modelled device nothing runs"),
        (["--point", "triad@32", "--", "sweep", "--nonsense"], "no such option"),
        (["--point", "triad@32", "--export", "x", "--", "sweep"], "--export: greenbench decides"),
        (["--point", "triad@32", "--launches", "0", "--", "sweep"], "--launches"),
        (["--point", "triad@32", "--against", "x", "--no-compare", "--", "sweep"], "contradict"),
    ],
)
def test_lines_that_cannot_be_meant(words: list[str], said: str) -> None:
    """2 and a sentence, before ncu is even looked for."""
    done = CliRunner().invoke(cli, ["ncu", "--ncu", "/absent", *words])
    assert done.exit_code == 2
    assert said in done.stderr


def test_no_ncu(tmp_path: Path, ncu: Any) -> None:
    """4, with how to get it; a folder that is taken is 2."""
    done = CliRunner().invoke(cli, ["ncu", "--ncu", str(tmp_path / "absent"), "--point", "triad@32", "--", "sweep"])
    assert done.exit_code == ExitCode.MACHINE
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    assert "exists and is not empty" in ncu().stderr


# -- what is bracketed -------------------------------------------------------------------------------------------------


def test_only_the_launches_of_the_point_are_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Census, verification and sizing lie outside the bracket, the launches and the wait for them inside."""
    made = Session(open_gpu("model:h200"), library())
    point = at(32)
    made.open([point.partition])
    made.prepare(point)
    seen: list[str] = []

    @contextmanager
    def profiled() -> Any:
        seen.append("start")
        yield
        seen.append("stop")

    monkeypatch.setattr(made.gpu, "profiled", profiled)
    ready = made._ready[point]
    monkeypatch.setattr(ready, "work", SimpleNamespace(launch=lambda: seen.append("launch")))
    monkeypatch.setattr(ready, "lane", SimpleNamespace(grant=ready.lane.grant, sync=lambda: seen.append("sync")))
    made.profile(point, 2)
    assert seen == ["start", "launch", "launch", "sync", "stop"]


def test_no_gate_holds_a_launch_under_a_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --profile no stream waits for the host, neither when lanes are proved nor when samples are sized; else they do."""
    held: list[bool] = []

    class Watched(ModelledGate):
        """Tells that it was made."""

        def __init__(self, lanes: Any) -> None:
            super().__init__(lanes)
            held.append(True)

    monkeypatch.setattr("greenbench.gpu.modelled.device.ModelledGate", Watched)
    for gates in (False, True):
        server = Server()
        server.hello("model:h200", (), None, False, gates)
        server.open([at(32).partition])
        server.prepare(at(32), None, True)
        assert server.profile(at(32), 2).status is BlockStatus.OK
        server.close()
        assert bool(held) is gates


def test_the_bracket_is_the_profiler_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuProfilerStart and cuProfilerStop, whose answers are checked."""
    calls: list[str] = []

    class Success(int):
        """A code with a name."""

        name = "CUDA_SUCCESS"

    def answer(name: str) -> tuple[Success]:
        calls.append(name)
        return (Success(0),)

    raw = SimpleNamespace(cuProfilerStart=lambda: answer("start"), cuProfilerStop=lambda: answer("stop"))
    monkeypatch.setattr(driver, "bindings", lambda: raw)
    with CudaGpu.profiled(object.__new__(CudaGpu)):
        calls.append("launch")
    assert calls == ["start", "launch", "stop"]
