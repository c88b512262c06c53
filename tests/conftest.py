"""Ground that every test stands on: a scratch cache, no GREENBENCH_* of the caller, no colour, and no GPU unless one answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

REQUIRE_GPU = "GREENBENCH_REQUIRE_GPU"

# No deadline, since a loaded machine is no failure; derandomized in CI, so that a red build stays red when it is run again.
hypothesis.settings.register_profile("greenbench", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("greenbench")


@cache
def driver_answers() -> bool:
    """Ask in a process of its own, so that the test process stays free of CUDA."""
    script = Path(__file__).with_name("driver.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    return bool(done.stdout.strip())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip `gpu` tests where no driver answers; with GREENBENCH_REQUIRE_GPU=1 fail, so that green cannot mean skipped."""
    if item.get_closest_marker("gpu") is None or driver_answers():
        return
    if os.environ.get(REQUIRE_GPU) == "1":
        pytest.fail(f"{REQUIRE_GPU}=1, and no NVIDIA driver answers on this machine", pytrace=False)
    pytest.skip("no NVIDIA driver answers")


@pytest.fixture(scope="session", autouse=True)
def scratch_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's settings out of the tests, and the tests out of the user's cache; children inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GREENBENCH_") and name != REQUIRE_GPU]:
            patch.delenv(name)
        patch.setenv("GREENBENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("NO_COLOR", "1")
        patch.setenv("MPLBACKEND", "Agg")
        yield
