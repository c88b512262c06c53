"""Public trouble reports of other GPU tools, put to the real command line in processes of its own; no GPU needed.

Each case is named by its number. Whatever happens, a command ends with the exit code of its case and one sentence, never with a
traceback or with 70, and leaves no file that nobody asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from greenbench.journal import read_journal
from greenbench.runfiles import read_meta, read_rows
from greenbench.schema import BlockStatus, Row
from tests.conftest import driver_answers
from tests.gpu.cli import FRONT_MATTERS
from tests.staging import environment, model

CASES = Path(__file__).parent / "data" / "cases"
FIGURES = ("time_us", "time_us_ci_low", "time_us_ci_high", "gb_per_s", "tflop_per_s", "noise_pct", "bound_pct", "speedup")
MODEL = ("--device", "model:h200")
QUICK = ("--kernels", "copy", "--rounds", "1", "--no-plots")
MORE_FRONT_MATTERS = {
    "bad_include": """
family = "probe"
summary = "A header that is nowhere."
entry = "bad_include"
args = ["out"]
buffers = [{ name = "out", dtype = "uint32", count = 32, fill = "poison" }]
[launch]
block = 32
grid = 1
""",
    "half_header": """
family = "memory"
summary = "y = 2x + y in halves."
entry = "half_header"
args = ["y", "x", "count"]
buffers = [
    { name = "y", dtype = "float16", count = "count", fill = "normal", access = "state" },
    { name = "x", dtype = "float16", count = "count", fill = "normal" },
]
[params]
count = 65536
[launch]
block = 256
grid = "ceil_div(count, 256)"
""",
    "type_traits": """
family = "probe"
summary = "A header of the host."
entry = "type_traits"
args = ["out"]
buffers = [{ name = "out", dtype = "uint32", count = 32, fill = "poison" }]
[launch]
block = 32
grid = 1
""",
}


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str
    run: Path
    seconds: float

    @property
    def error(self) -> str:
        """The one sentence of a command that ended with an error."""
        told = [line for line in self.err.splitlines() if line.startswith("greenbench: error: ")]
        assert len(told) == 1, self.err
        assert self.err.splitlines()[-1] == told[0]
        return told[0].removeprefix("greenbench: error: ")

    @property
    def rows(self) -> list[Row]:
        """rows.csv; what is not ok has a reason and no figure."""
        found = read_rows(self.run)
        for row in found:
            assert row.status in {"ok", "unsupported", "failed"}
            assert bool(row.reason) is (row.status != "ok")
            assert row.status == "ok" or all(getattr(row, name) is None for name in FIGURES)
        assert not re.search(r"\b(nan|inf)\b", (self.run / "rows.csv").read_text(), re.IGNORECASE)
        return found


@dataclass
class Shell:
    """Runs greenbench in a folder of its own and looks after what it leaves there."""

    folder: Path
    ran: list[Ran] = field(default_factory=list)

    def __call__(self, *arguments: str | Path, prefix: Sequence[str] = (), **more: str) -> Ran:
        """Run the command, behind `prefix`; `PYTHONPATH` in `more` is put in front of the checkout."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        variables = environment(TMPDIR=str(home), **{k: v for k, v in more.items() if k != "PYTHONPATH"})
        if "PYTHONPATH" in more:
            variables["PYTHONPATH"] = os.pathsep.join([more["PYTHONPATH"], variables["PYTHONPATH"]])
        began = time.monotonic()
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "greenbench", *map(str, arguments)],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert "Traceback" not in done.stderr
        assert "Traceback" not in done.stdout
        assert done.returncode != 70
        assert list(home.iterdir()) == []
        return Ran(done.returncode, done.stdout, done.stderr, self.folder / "run", time.monotonic() - began)

    def sweep(self, *arguments: str | Path, **more: Any) -> Ran:
        """Run a small sweep into the folder `run`, anew each time."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return self("sweep", *QUICK, "--out", "run", *arguments, **more)

    def kernels(self, *names: str, extra: str = "", **sources: str) -> tuple[str, Path]:
        """Put front matter on top of case kernels, and write others as they are; returns the option for them."""
        folder = self.folder / "kernels"
        folder.mkdir(exist_ok=True)
        for name in names:
            matter = {**FRONT_MATTERS, **MORE_FRONT_MATTERS}[name]
            (folder / f"{name}.cu").write_text(f"/* greenbench{matter}{extra}*/\n{(CASES / f'{name}.cu').read_text()}")
        for name, source in sources.items():
            (folder / f"{name}.cu").write_text(source)
        return "--kernels-dir", folder

    def left(self) -> set[str]:
        """Names in the folder, apart from those that the test itself put there."""
        return {path.name for path in self.folder.iterdir()} - {"home", "kernels", "device"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in an empty folder."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An earlier run on the modelled device; tests copy it before they change it."""
    shell = Shell(tmp_path_factory.mktemp("finished"))
    assert shell.sweep(*MODEL, "--sms", "8,16,full", "--rounds", "3").code == 0
    return shell.folder / "run"


def sizes(rows: list[Row]) -> list[tuple[str, int | None, str]]:
    """Requested, granted and status of rows."""
    return [(row.sms_requested, row.sms_granted, row.status) for row in rows]


# -- A. partition sizes ----------------------------------------------------------------------------------------------------


def test_h01_an_aligned_count_is_refused(shell: Shell) -> None:
    """48 SMs that refuse 24: that row is unsupported with the refusal and 16 and 32, the others are ok, one line counts it."""
    ran = shell.sweep("--device", model(shell.folder / "device", sm_count=48, refuse=[24]), "--sms", "8,16,24,32", "-q")
    assert ran.code == 0
    assert sizes(ran.rows) == [("8", 8, "ok"), ("16", 16, "ok"), ("24", None, "unsupported"), ("32", 32, "ok")]
    assert "915" in ran.rows[2].reason
    assert ran.rows[2].reason.endswith("nearest sizes that it grants: 16 and 32")
    assert "3 ok, 1 unsupported" in ran.err
    assert sum("unsupported, 1 point: 24 SMs: refused by the driver (915" in line for line in ran.err.splitlines()) == 1


def test_h02_more_sms_than_asked(shell: Shell) -> None:
    """12 gives 16 on driver 13.0: the row keeps both numbers, one warning says so, exit 0 (and H11: no word of workqueues)."""
    ran = shell.sweep(*MODEL, "--sms", "12")
    assert ran.code == 0
    assert sizes(ran.rows) == [("12", 16, "ok")]
    assert ran.rows[0].sms_observed == 16
    assert ran.err.count("12 SMs asked, 16 granted") == 1
    assert "workqueue" not in ran.err


def test_h04_rounded_counts_are_one_size(shell: Shell) -> None:
    """8,10,16: 10 and 16 are the same 16 SMs; measured once, said once, no two rows of one size."""
    ran = shell.sweep(*MODEL, "--sms", "8,10,16")
    assert ran.code == 0
    assert sizes(ran.rows) == [("8", 8, "ok"), ("16", 16, "ok")]
    assert ran.err.count("10 and 16 both give 16 SMs on this driver; measured once, as 16") == 1


@pytest.mark.parametrize(
    ("given", "quoted"),
    [("0", "'0'"), ("8,,16", "'8,,16'"), ("8.0", "'8.0'"), ("-8", "'-8'"), ("16,16", "'16'"), ("", "''"), ("eight", "'eight'")],
)
def test_h05_senseless_counts(given: str, quoted: str, shell: Shell) -> None:
    """Exit 2 before anything else: the offending item in quotes, what is allowed, and nothing on disk; no driver is asked."""
    ran = shell("sweep", "--sms", given)
    assert ran.code == 2
    assert quoted in ran.error
    assert re.search(r"give (counts|each size once)", ran.error)
    assert shell.left() == set()


@pytest.mark.parametrize("device", ["model:h200", "model:h200@13.1"])
def test_h06_the_whole_device_is_no_multiple_of_8(device: str, shell: Shell) -> None:
    """128 and 132 are both ok with what was asked; where the driver cannot split 132 off, the run says what it ran on."""
    ran = shell.sweep("--device", device, "--sms", "128,132")
    assert ran.code == 0
    assert sizes(ran.rows) == [("128", 128, "ok"), ("132", 132, "ok")]
    assert ("unsplit resource" in ran.err) is (device != "model:h200")


# -- B. versions and environment -------------------------------------------------------------------------------------------

OTHER_DRIVER = {"PYTHONPATH": str(CASES / "other_driver")}


def test_h07_an_old_driver(shell: Shell) -> None:
    """12.3: exit 4 with what is needed and what was found; no row under the name of a partition, and no context."""
    log = shell.folder / "contexts"
    ran = shell("sweep", "--sms", "8", "--out", "run", FAKE_DRIVER="12030", FAKE_NVRTC="12.3", FAKE_LOG=str(log), **OTHER_DRIVER)
    assert ran.code == 4
    for word in ("12.4", "12.5", "12.3"):
        assert word in ran.error
    assert shell.left() == set()


def test_h08_no_cuda_python(finished: Path, shell: Shell) -> None:
    """Without `cuda` and `cupy` help, kernels and plot work; sweep ends with 4 and names the package that a driver lacks."""
    absent = {"PYTHONPATH": str(CASES / "no_cuda_python")}
    shutil.copytree(finished, shell.folder / "run")
    assert shell("--help", **absent).code == 0
    assert "triad" in shell("kernels", **absent).out
    ran = shell("plot", "run", **absent)
    assert ran.code == 0
    assert any(line.endswith(".png") for line in ran.out.splitlines())
    ran = shell("sweep", "--sms", "8", "--out", "other", FAKE_LIBCUDA="1", **absent)
    assert ran.code == 4
    assert "cuda-python" in ran.error
    assert "pip install '.[cu13]'" in ran.error
    assert "--device model:h200" in ran.error
    assert shell.left() == {"run"}


def test_h08_neither_driver_nor_cuda_python(shell: Shell) -> None:
    """A laptop: what is said is that there is no driver, and the modelled device, not a package that would not help."""
    if driver_answers():
        pytest.skip("this machine has a driver")
    ran = shell("sweep", "--sms", "8", "--out", "run", PYTHONPATH=str(CASES / "no_cuda_python"))
    assert ran.code == 4
    assert ran.error.startswith("no NVIDIA driver (libcuda.so.1)")
    assert "--device model:h200" in ran.error
    assert "pip" not in ran.error
    assert shell.left() == set()


def test_h09_no_driver_library(shell: Shell) -> None:
    """A machine without libcuda: sweep and devices end with 4 and the same sentence; usage errors come first."""
    pytest.importorskip("cuda.core")
    if driver_answers():
        pytest.skip("this machine has a driver")
    said = set()
    for command in (("sweep", "--sms", "8", "--out", "run"), ("devices",)):
        ran = shell(*command)
        assert ran.code == 4
        said.add(ran.error)
    (sentence,) = said
    assert sentence.startswith("no NVIDIA driver (libcuda.so.1)")
    assert "model:h200" in sentence
    assert shell("sweep", "--sms", "0").code == 2
    assert shell.left() == set()


def test_h10_no_nvrtc(shell: Shell) -> None:
    """cuda-core without its extra: compiling and sweeping end with 4, libnvrtc named, the line to run; no context was made."""
    log = shell.folder / "contexts"
    runs = [shell("sweep", "--sms", "8", "--out", "run", FAKE_DRIVER="13000", FAKE_NVRTC="", FAKE_LOG=str(log), **OTHER_DRIVER)]
    pytest.importorskip("cuda.pathfinder")
    runs.append(shell("kernels", "--check", "triad", "--arch", "sm_90a", PYTHONPATH=str(CASES / "no_nvrtc")))
    for ran in runs:
        assert ran.code == 4
        assert "libnvrtc" in ran.error
        assert 'pip install "cuda-core[cu13]"' in ran.error
    assert not log.exists()
    assert shell.left() == set()


def test_h11_workqueue_scopes_need_13_1(shell: Shell) -> None:
    """One unsupported row per scope with both versions, exit 4 as none is ok; `devices` tells it too."""
    ran = shell.sweep(*MODEL, "--sms", "8", "--workqueue", "device_ctx,green_ctx_balanced", "-q")
    assert ran.code == 4
    assert [(row.workqueue, row.status) for row in ran.rows] == [
        ("device_ctx", "unsupported"),
        ("green_ctx_balanced", "unsupported"),
    ]
    assert {row.reason for row in ran.rows} == {"workqueue configuration needs driver 13.1, this is 13.0"}
    assert "no: workqueue configuration needs driver 13.1, this is 13.0" in shell("devices", *MODEL).out


def test_h12_two_names_for_one_scope(shell: Shell) -> None:
    """`balanced` is `green_ctx_balanced` in the rows; an unknown word lists the choices; both names are one scope twice."""
    ran = shell.sweep("--device", "model:h200@13.1", "--sms", "8", "--workqueue", "balanced")
    assert ran.code == 0
    assert [row.workqueue for row in ran.rows] == ["green_ctx_balanced"]
    ran = shell("sweep", "--sms", "8", "--workqueue", "fair")
    assert ran.code == 2
    assert "'fair'" in ran.error
    assert all(word in ran.error for word in ("driver_default", "device_ctx", "green_ctx_balanced"))
    ran = shell("sweep", "--sms", "8", "--workqueue", "balanced,green_ctx_balanced")
    assert ran.code == 2
    assert "'balanced'" in ran.error
    assert "green_ctx_balanced" in ran.error
    assert shell.left() == {"run"}


# -- C. concurrency and hangs ----------------------------------------------------------------------------------------------


def test_h14_an_mps_thread_percentage(shell: Shell) -> None:
    """50 is refused before measuring, with variable, value and cure; 100 runs and is recorded."""
    ran = shell.sweep(*MODEL, "--sms", "8", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
    assert ran.code == 4
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in ran.error
    assert "unset it or set it to 100" in ran.error
    assert shell.left() == set()
    ran = shell.sweep(*MODEL, "--sms", "8", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100")
    assert ran.code == 0
    meta = read_meta(ran.run / "run.json")
    assert meta.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"
    assert meta.device.mps is False


def test_h17_a_kernel_that_never_ends(shell: Shell) -> None:
    """Rows of the hang fail with the limit, those of the good kernel are ok, exit 5; a try costs its limit and little more."""
    device = model(shell.folder / "device", {"kind": "hang", "kernel": "hang"})
    option = shell.kernels("hang")
    ran = shell.sweep("--device", device, "--kernels", "copy,hang", *option, "--sms", "8,16", "--timeout", "0.5")
    assert ran.code == 5
    assert [(row.kernel, row.status, row.reason) for row in ran.rows] == [
        *[("copy", "ok", "")] * 2,
        *[("hang", "failed", "timeout, 0.5 s")] * 2,
    ]
    tries = [block.attempt for block in read_journal(ran.run / "blocks.csv") if block.status is BlockStatus.FAILED]
    assert tries == [1, 1, 2, 2]
    assert ran.seconds < len(tries) * (0.5 + 3) + 5


def test_h18_more_ctas_than_the_partition_holds(shell: Shell) -> None:
    """132 cooperative CTAs: 8 and 16 SMs are unsupported with grid and limit, 24 is ok, and the grid is never shrunk."""
    option = shell.kernels("needs_grid_sync", extra="cooperative = true\n")
    ran = shell.sweep(*MODEL, "--kernels", "needs_grid_sync", *option, "--sms", "8,16,24")
    assert ran.code == 0
    assert sizes(ran.rows) == [("8", 8, "unsupported"), ("16", 16, "unsupported"), ("24", 24, "ok")]
    for row, limit in zip(ran.rows, ("64", "128"), strict=False):
        assert "132" in row.reason
        assert limit in row.reason
    blocks = read_journal(ran.run / "blocks.csv")
    assert {block.grid for block in blocks if block.kernel == "needs_grid_sync" and block.status is BlockStatus.OK} == {132}


# -- D. timing and noise ---------------------------------------------------------------------------------------------------


def test_h21_all_samples_thrown_away(shell: Shell) -> None:
    """A point without a valid sample is failed (throttled), exit 5; the plot leaves a gap, and no nan or 0 is printed."""
    device = model(shell.folder / "device", {"kind": "throttle", "kernel": "copy", "sms": 16})
    ran = shell.sweep("--device", device, "--sms", "8,16,24")
    assert ran.code == 5
    assert sizes(ran.rows) == [("8", 8, "ok"), ("16", 16, "failed"), ("24", 24, "ok")]
    assert ran.rows[1].reason.startswith("throttled")
    assert not re.search(r"\b(nan|inf)\b", ran.err + ran.out, re.IGNORECASE)
    plot = shell("plot", "run")
    assert plot.code == 0
    assert not re.search(r"\bnan\b", plot.err + plot.out, re.IGNORECASE)


@pytest.mark.parametrize(("rounds", "plots"), [("1", []), ("2", ["--no-plots"])])
def test_h22_one_or_two_blocks(rounds: str, plots: list[str], shell: Shell) -> None:
    """What needs more data stays empty, in a run and in its plots, and nothing fails."""
    ran = shell("sweep", "--kernels", "copy", "--rounds", rounds, *MODEL, "--sms", "8,16", "--out", "run", *plots)
    assert ran.code == 0
    for row in ran.rows:
        assert row.rounds == int(rounds)
        assert row.time_us is not None
        assert (row.time_us_ci_low, row.time_us_ci_high, row.time_us_p95, row.time_us_p99) == (None,) * 4
    assert any(line.endswith(".svg") for line in ran.out.splitlines()) is not bool(plots)


# -- E. NVRTC --------------------------------------------------------------------------------------------------------------


def test_h25_a_file_that_does_not_compile(shell: Shell) -> None:
    """Headers come from NVRTC's own toolkit, which is named; a header that is nowhere is told with the place, exit 5."""
    pytest.importorskip("cuda.core")
    option = shell.kernels("half_header", "bad_include")
    good, bad = (
        shell("kernels", name, "--check", "--arch", "sm_90a", *option, "--json") for name in ("half_header", "bad_include")
    )
    assert (good.code, bad.code) == (0, 5)
    (compiled,) = json.loads(good.out)["compiled"]
    assert compiled["registers"] > 0
    assert re.search(r"1[23]\.\d", compiled["headers"])
    (failed,) = json.loads(bad.out)["compiled"]
    assert failed["error"].startswith("compile error: bad_include.cu(")
    assert "greenbench_has_no_such_header.h" in failed["error"]
    assert bad.error == "1 of 1 compilations failed, as listed above"


def test_h26_a_host_header_and_a_stray_cuda_path(shell: Shell) -> None:
    """The line is that of the user's file, whatever stands in front of it; another CUDA_PATH gives one warning."""
    pytest.importorskip("cuda.core")
    option = shell.kernels("type_traits")
    line = next(
        number
        for number, text in enumerate((shell.folder / "kernels" / "type_traits.cu").read_text().splitlines(), 1)
        if text.startswith("#include")
    )
    ran = shell("kernels", "type_traits", "--check", "--arch", "sm_90a", *option, CUDA_PATH="/usr/local/cuda-12.2")
    assert ran.code == 5
    assert f"type_traits.cu({line}): " in ran.out + ran.err
    assert "type_traits" in ran.out + ran.err
    assert (ran.out + ran.err).count("CUDA_PATH=/usr/local/cuda-12.2 is CUDA 12.2") == 1


# -- what bad input gets ---------------------------------------------------------------------------------------------------

SOUND = """/* greenbench
family  = "memory"
summary = "a = b"
entry   = "mine"
args    = ["a", "b", "n"]
buffers = [
    { name = "a", dtype = "float32", count = "n", fill = "poison" },
    { name = "b", dtype = "float32", count = "n", fill = "index" },
]
[params]
n = 1048576
[launch]
block = 256
grid  = "ceil_div(n, 256)"
*/
extern "C" __global__ void mine(float *a, const float *b, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i];
}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('["a", "b", "n"]', '["a", "b", "d"]', ["mine.cu", "'d'"]),
        ('"ceil_div(n, 256)"', '"ceil_div(n, 256"', ["mine.cu", "launch.grid"]),
        ('"ceil_div(n, 256)"', '"ceil_div(m, 256)"', ["mine.cu", "launch.grid", "'m'"]),
        ("summary", "sumary", ["mine.cu", "sumary"]),
    ],
)
def test_a_kernel_file_that_contradicts_itself(old: str, new: str, words: list[str], shell: Shell) -> None:
    """A wrong argument list, a bad expression, an unknown key: exit 2 before any device, with file and item."""
    option = shell.kernels(mine=SOUND.replace(old, new, 1))
    ran = shell("sweep", "--sms", "8", "--kernels", "mine", *option)
    assert ran.code == 2, ran.err
    assert all(word in ran.error for word in words)
    assert shell.left() == set()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "sticky"}, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        ({"kind": "out_of_memory"}, "out of memory"),
    ],
)
def test_a_point_that_fails_costs_its_rows(fault: dict[str, Any], words: str, shell: Shell) -> None:
    """An illegal address, missing memory: failed rows with the reason, the other kernel ok, exit 5."""
    device = model(shell.folder / "device", {**fault, "kernel": "triad"})
    ran = shell.sweep("--device", device, "--kernels", "copy,triad", "--sms", "8", "-q")
    assert ran.code == 5
    assert [(row.kernel, row.status) for row in ran.rows] == [("copy", "ok"), ("triad", "failed")]
    assert words in ran.rows[1].reason
    assert words in ran.err


def test_a_foreign_process(shell: Shell) -> None:
    """Someone else on the GPU: said and flagged; with --ci exit 4 before anything is measured."""
    device = model(shell.folder / "device", {"kind": "foreign_process"})
    ran = shell.sweep("--device", device, "--sms", "8")
    assert ran.code == 0
    assert [row.flags for row in ran.rows] == ["contended"]
    assert "other processes use this GPU" in ran.err
    ran = shell.sweep("--device", device, "--sms", "8", "--ci")
    assert ran.code == 4
    assert "other processes use this GPU (1 beside greenbench)" in ran.error
    assert shell.left() == set()


def test_a_full_disk(shell: Shell) -> None:
    """A journal that cannot grow ends the run with 5 and the way to go on; with room again, --resume finishes it."""
    # No file above 31 blocks of 512 or 1024 bytes, as the shell counts them.
    small = ("sh", "-c", 'ulimit -f 31; exec "$@"', "sh")
    ran = shell.sweep(*MODEL, "--kernels", "copy,triad", "--sms", "8,16,24", "--rounds", "20", prefix=small)
    assert ran.code == 5
    assert "blocks.csv cannot be written" in ran.error
    assert "--resume" in ran.error
    kept = read_journal(ran.run / "blocks.csv")
    assert len(kept) > 5
    ran = shell("sweep", "--resume", "run", "--no-plots")
    assert ran.code == 0
    assert read_journal(ran.run / "blocks.csv")[: len(kept)] == kept
    assert {row.rounds for row in ran.rows} == {20}


def test_folders_that_cannot_be_used(finished: Path, shell: Shell) -> None:
    """A read-only place, a file in the way, a folder with files in it: one sentence each, before any device, nothing changed."""
    (shell.folder / "file").write_text("mine")
    for out, code, words in (
        ("/proc/greenbench", 5, "/proc/greenbench cannot be written"),
        ("file/run", 2, "is a file"),
        (str(finished), 2, "is not empty"),
    ):
        ran = shell("sweep", "--sms", "8", "--out", out, "--device", "model:nothing")
        assert (ran.code, words in ran.error) == (code, True), ran.err
    assert shell.left() == {"file"}


def test_a_truncated_journal(finished: Path, shell: Shell) -> None:
    """The last line was cut off by a power cut: --resume measures that block again and exits 0; a damaged one is exit 2."""
    run = Path(shutil.copytree(finished, shell.folder / "run"))
    whole = (run / "blocks.csv").read_bytes()
    lines = whole.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b",block," in line)
    (run / "blocks.csv").write_bytes(b"".join(lines[:last]) + lines[last][:-30])
    ran = shell("sweep", "--resume", "run", "--no-plots")
    assert ran.code == 0, ran.err
    assert {row.rounds for row in ran.rows} == {3}
    (run / "blocks.csv").write_bytes(lines[0] + b"x" + b"".join(lines[1:]))
    ran = shell("sweep", "--resume", "run", "--no-plots")
    assert ran.code == 2
    assert "blocks.csv row 1" in ran.error
