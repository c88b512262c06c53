"""`sweep --trace` on a real GPU: CUPTI sees every launch in the green context of its point, and `timeline` reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from greenbench.experiments.tracing import LAUNCHES
from tests.gpu.cli import sweep


@pytest.mark.skipif(find_spec("cupti") is None, reason="needs cupti-python: pip install '.[trace]'")
def test_a_traced_sweep(tmp_path: Path) -> None:
    """Per point so many kernels in a context of its SMs, no stray, and the rows have their times."""
    out = tmp_path / "run"
    done = sweep(out, "--kernels", "copy,triad", "--sms", "8,16,24,32", "--rounds", "2", "--trace")
    assert done.code == 0, done.err
    assert all(row["time_us"] and "profiled" not in row["flags"] for row in done.rows)
    assert "all in the contexts of their points" in done.err
    assert str(out / "trace.sqlite") in done.out.splitlines()
    shown = subprocess.run(
        [sys.executable, "-m", "greenbench", "timeline", str(out), "--json", "--fail-on", "stray"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["whole_file"]["kernels"] == LAUNCHES * len(done.rows)
    assert sorted(context["sms"] for context in found["whole_file"]["contexts"].values()) == [8, 16, 24, 32]
