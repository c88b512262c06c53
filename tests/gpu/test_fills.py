"""Fills and decoders give the same bits on a device (cupy) as on the host (numpy), subnormal numbers too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from greenbench import fills
from greenbench.errors import KernelFileError

DTYPES = ("float32", "float16", "bfloat16", "tf32", "e4m3", "int32", "uint32", "uint64", "uint8")


@pytest.fixture(scope="module")
def cupy() -> Any:
    """cupy on the first device."""
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("dtype", DTYPES)
def test_fills_are_the_same_on_device_and_host(cupy: Any, dtype: str) -> None:
    """All kinds that the type has, at a length that is no multiple of anything."""
    made = 0
    for kind in fills.FILLS:
        try:
            host = fills.fill(np, kind, dtype, 100_000, 3)
        except KernelFileError:
            continue
        device = cupy.asnumpy(fills.fill(cupy, kind, dtype, 100_000, 3))
        assert device.tobytes() == host.tobytes(), kind
        made += 1
    assert made >= 2


def test_all_codes_of_e4m3_are_decoded_alike(cupy: Any) -> None:
    """A device that takes subnormal float32 for zero must not lose those of e4m3."""
    codes = np.arange(256, dtype=np.uint8)
    host, device = fills.from_e4m3(np, codes), cupy.asnumpy(fills.from_e4m3(cupy, cupy.asarray(codes)))
    np.testing.assert_array_equal(device, host)
    assert np.count_nonzero(device) == 254
