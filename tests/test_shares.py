"""shares.cuh on the host: every step is done once, and who merges a tile knows exactly who has left a part of it, and where."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from greenbench.catalog import kernels_dir

HOST = Path(__file__).parent / "data" / "host"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The header compiled for the host."""
    if shutil.which("g++") is None:
        pytest.skip("the host's side is compiled by g++")
    target = tmp_path_factory.mktemp("shares") / "shares"
    command = ["g++", "-std=c++17", "-O1", "-w", "-I", str(kernels_dir()), str(HOST / "shares.cpp"), "-o", str(target)]
    subprocess.run(command, check=True, timeout=120)
    return target


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_step_is_done_once_and_every_part_is_found(program: Path, data: st.DataObject) -> None:
    """CTAs get shares that differ by one step at most; parts of a tile lie in slots of their own, in the order of the CTAs."""
    tiles, steps = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    ctas = data.draw(st.integers(1, min(300, tiles * steps)))
    done = subprocess.run([program, str(tiles), str(steps), str(ctas)], capture_output=True, text=True, check=True, timeout=60)
    shares: dict[int, int] = defaultdict(int)
    work: dict[int, list[tuple[int, int, int, int, bool]]] = defaultdict(list)
    lines = [line.split() for line in done.stdout.splitlines()]
    for cta, tile, first, last, slot, whole in (map(int, line[1:]) for line in lines if line[0] == "segment"):
        shares[cta] += last - first
        work[tile].append((cta, first, last, slot, bool(whole)))
    assert len(shares) == ctas
    assert max(shares.values()) - min(shares.values()) <= 1
    slots = [each[3] for parts in work.values() for each in parts if not each[4]]
    assert len(set(slots)) == len(slots)
    assert all(0 <= slot < 2 * ctas for slot in slots)
    for line in lines:
        if line[0] == "tile":
            tile, first, count, *known = map(int, line[1:])
            parts = work[tile]
            assert [(a, b) for _, a, b, _, _ in parts] == list(
                zip([0, *(each[2] for each in parts[:-1])], [each[2] for each in parts], strict=True)
            )
            assert parts[-1][2] == steps
            assert [each[0] for each in parts] == list(range(first, first + count))
            assert parts[0][4] == (count == 1)
            assert count == 1 or [each[3] for each in parts] == known
