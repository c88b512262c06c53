"""The kernel `tenant` and its reference: the same work on every partition, exact counts, sums that are checked by CTA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from greenbench import fills
from greenbench.catalog import kernels_dir, load_kernel
from greenbench.errors import PlanError
from greenbench.verify import check

CTAS, LINES, ITERATIONS, TENANT = 12, 192, 77, 3


def buffers(lines: int = LINES) -> dict[str, Any]:
    """What a launch leaves: per CTA 512 counts and its share of the lines, added up one by one."""
    words = fills.fill(np, "index", "uint32", max(32, lines * 32), 0)
    out = np.zeros(CTAS, np.uint32)
    for cta in range(CTAS):
        first, end = cta * lines // CTAS, (cta + 1) * lines // CTAS
        total = 512 * (TENANT + ITERATIONS) + sum(int(word) for word in words[32 * first : 32 * end])
        out[cta] = total % 2**32
    return {"set": words, "out": out}


def verdict(held: dict[str, Any], lines: int = LINES) -> tuple[float, float, str]:
    """What the reference says of them."""
    return check("tenant", np, held, {"iterations": ITERATIONS, "tenant": TENANT, "bytes": 128 * lines}, {})


@pytest.mark.parametrize("lines", [0, LINES])
def test_right_sums_pass_and_each_wrong_one_counts(lines: int) -> None:
    """Sums made by hand are right with and without a working set; poison in one place is one error, named by its CTA."""
    held = buffers(lines)
    assert verdict(held, lines) == (0.0, 0.0, f"all {CTAS} sums are exact")
    held["out"][5] = 0xFFFFFFFF
    error, tolerance, detail = verdict(held, lines)
    assert (error, tolerance) == (1.0, 0.0)
    assert detail.startswith("CTA 5 sums to 4294967295, wanted is ")


def test_a_line_read_by_the_wrong_cta_is_seen() -> None:
    """The total may be right and the shares wrong: then two CTAs are."""
    held = buffers()
    held["out"][2] += np.uint32(9)
    held["out"][3] -= np.uint32(9)
    assert verdict(held)[0] == 2.0


def test_an_operation_is_the_same_work_on_every_partition() -> None:
    """Grid, operations and bytes do not follow the SMs of the lane, or a partition would seem to make a process faster."""
    kernel = load_kernel(kernels_dir() / "tenant.cu")
    assert kernel.flops is not None
    assert kernel.bytes is not None
    for sms in (8, 132):
        params = {**dict(kernel.params), "ctas": 1056, "bytes": 8192 * 7}
        env = kernel.environment(params, sms=sms, occupancy=4)
        assert [expr.value(env) for expr in kernel.launch.grid] == [1056]
        assert kernel.flops.value(env) == 2 * 1056 * 512 * params["iterations"]
        assert kernel.bytes.value(env) == 8192 * 7


@pytest.mark.parametrize("wrong", [{"bytes": 8191}, {"iterations": 16_000_000}, {"tenant": 1024}])
def test_what_could_not_be_exact_is_refused(wrong: dict[str, int]) -> None:
    """Half a line, a count past 24 bits and a tenant past the range of the check are refused before a launch."""
    kernel = load_kernel(kernels_dir() / "tenant.cu")
    with pytest.raises(PlanError, match="tenant"):
        kernel.merged({**dict(kernel.params), **wrong})
