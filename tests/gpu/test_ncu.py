"""Nsight Compute on a real GPU: the same time as the sweep's at equal clocks, and its word on the partition."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from greenbench.errors import MissingPackageError
from greenbench.ncu.tool import PERMISSION, find_ncu


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    """Skip where there is no ncu."""
    try:
        find_ncu()
    except MissingPackageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("point", "sms"), [("triad@32", 32), ("gemm_bf16@32", 32)])
def test_a_point_takes_as_long_as_in_the_sweep(point: str, sms: int, tmp_path: Path) -> None:
    """Within 2 % at clocks within 1 %, in a green context of as many SMs, half as many TPCs; L2 and DRAM as ncu has them."""
    out = tmp_path / "run"
    line = ["ncu", "--point", point, "--json", "--", "sweep", "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "greenbench", *line], capture_output=True, text=True, check=False, timeout=600)
    if PERMISSION in done.stderr:
        assert done.returncode == 4
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["launches"]
    assert len(found) == 3
    for launch in found:
        assert (launch["placement"], launch["ncu_sms"], launch["ncu_tpcs"]) == ("confined", sms, sms // 2)
        assert launch["uses_green_context"] == 1
        assert len(launch["tpc_ids"].split(",")) == sms // 2
        assert launch["sm_pct"] == pytest.approx(launch["sm_device_pct"] * launch["device_sms"] / sms)
    clocks = [launch["sm_clock_mhz"] / launch["sweep_clock_mhz"] for launch in found]
    assert median(clocks) == pytest.approx(1, abs=0.01)
    assert abs(median(launch["difference_pct"] for launch in found)) <= 2
    rows = list(csv.DictReader(io.StringIO((out / "ncu.csv").read_text())))
    assert [row["placement"] for row in rows] == ["confined"] * 3


def test_the_tensor_pipe_of_a_gemm_is_busy(tmp_path: Path) -> None:
    """Related to its 32 SMs, the pipe is busy most of the time; related to the device it could not be above a quarter."""
    line = ["ncu", "--point", "gemm_bf16@32", "--json", "--no-compare", "--launches", "1", "--", "sweep"]
    done = subprocess.run(
        [sys.executable, "-m", "greenbench", *line, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if PERMISSION in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    (launch,) = json.loads(done.stdout)["launches"]
    assert launch["tensor_metric"]
    assert 50 <= launch["tensor_pct"] <= 102
