"""Tests in this folder need a GPU: each gets the marker, and each must leave the thread without a current green context."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies below this folder (the hook is shown the whole session), before `-m` selects by marker."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.gpu)


def foreign_context() -> int:
    """Return the address of the current context if it is not the primary one of device 0, else 0."""
    driver = sys.modules.get("cuda.bindings.driver")
    if driver is None:
        return 0
    error, current = driver.cuCtxGetCurrent()
    if error != driver.CUresult.CUDA_SUCCESS or int(current) == 0:
        return 0
    error, device = driver.cuDeviceGet(0)
    error, primary = driver.cuDevicePrimaryCtxRetain(device)
    driver.cuDevicePrimaryCtxRelease(device)
    return 0 if int(current) == int(primary) else int(current)


@pytest.fixture(autouse=True)
def no_context_left_behind() -> Iterator[None]:
    """Fail a test that leaves a green context current: whatever runs next in this thread would run on its SMs."""
    yield
    left = foreign_context()
    assert left == 0, f"context {left:#x} is still current and is not the primary one"
