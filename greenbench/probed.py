"""References of the latency probes: where a walk must end, what atomics must add up to, which barriers were passed.

Every reference returns (error, tolerance 0, a sentence); an error is a count of what is wrong. What a probe reports of itself is
believed only if it could be true: at least one cycle per operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from greenbench.fills import LINE_WORDS

if TYPE_CHECKING:
    from greenbench.verify import Case, Outcome

LINE_BYTES = 8 * LINE_WORDS
# grid_sync: barriers before its clock starts.
PROOF_BARRIERS = 32
# atomic_global keeps its words 32 bytes apart.
SECTOR_WORDS = 8


def on_host(xp: Any, array: Any) -> np.ndarray[Any, Any]:
    """Return an array of numpy or cupy as numpy's."""
    return np.asarray(xp.asnumpy(array) if hasattr(xp, "asnumpy") else array)


def _numbers(case: Case, name: str) -> np.ndarray[Any, Any]:
    """Return a small buffer of unsigned words as int64; what has its top bit set (poison) is negative."""
    bits = case.buffer(name).dtype.itemsize * 8
    return on_host(case.xp, case.buffer(name, f"int{bits}")).astype(np.int64)


def _following(case: Case) -> np.ndarray[Any, Any]:
    """Return the fill's cycle: for every line the number of the next one."""
    words = on_host(case.xp, case.buffer("nodes")[::LINE_WORDS]).astype(np.int64)
    return np.asarray(case.once("following", lambda: words // LINE_BYTES))


def _slow_enough(case: Case, operations: int) -> str:
    cycles = int(_numbers(case, "cycles")[0])
    return "" if cycles >= operations else f"{operations} dependent operations cannot take {cycles} cycles"


def _chase_index(case: Case) -> Outcome:
    """From line 0, `hops` steps along the cycle end where the kernel says."""
    hops = case.integer("hops")
    following = _following(case)

    def walk() -> int:
        at = 0
        for _ in range(hops % following.size):
            at = int(following[at])
        return at

    wanted, got = case.once("end", walk), int(_numbers(case, "end")[0])
    if got != wanted:
        return 1.0, 0.0, f"{hops} hops from line 0 ended at line {got} instead of {wanted}"
    problem = _slow_enough(case, hops)
    return float(bool(problem)), 0.0, problem or f"{hops} hops from line 0 ended at line {got}"


def _l2_slices(case: Case) -> Outcome:
    """Every SM of the lane walked once round the cycle from its own place, and what is reported is the percentile asked for."""
    lines = case.integer("lines")
    ends, cycles = _numbers(case, "ends").reshape(-1, 2), np.sort(_numbers(case, "per_sm"))
    sms = cycles.size
    missing = int((cycles == 0).sum())
    if missing:
        return float(missing), 0.0, f"{missing} of {sms} SMs did not report"
    starts = np.arange(sms) * lines // sms * LINE_BYTES
    astray = int((ends[:, 0] != ends[:, 1]).sum() + (np.sort(ends[:, 1]) != starts).sum())
    if astray:
        return float(astray), 0.0, f"{astray} walks did not go once round the cycle from a place of their own"
    place = (case.integer("percentile") * (sms - 1) + 50) // 100
    got, wanted = int(_numbers(case, "cycles")[0]), int(cycles[place])
    if got != wanted:
        return 1.0, 0.0, f"percentile {case.integer('percentile')} of {sms} SMs is {wanted} cycles, not {got}"
    problem = _slow_enough(case, lines)
    return float(bool(problem)), 0.0, problem or f"{sms} SMs walked {lines} lines each"


def _l2_halves(case: Case) -> Outcome:
    """The lines are in two halves, the near one nowhere slower than the far one; the half walked is one cycle, walked rightly."""
    nodes = on_host(case.xp, case.buffer("nodes")).astype(np.int64).reshape(-1, LINE_WORDS)
    state, hops, half = _numbers(case, "state"), case.integer("hops"), case.integer("half") & 1
    lines = nodes.shape[0]
    took, far = nodes[:, 2], nodes[:, 3]
    wrong = int(((far != 0) & (far != 1)).sum()) + abs(int((far == 0).sum()) - lines // 2)
    if wrong:
        return float(wrong), 0.0, f"{int((far == 0).sum())} of {lines} lines are near, wanted are {lines // 2}"
    mixed = int((took[far == 0] > took[far == 1].min()).sum())
    if mixed:
        return float(mixed), 0.0, f"{mixed} near lines took longer than the nearest far one"
    at = start = int(state[2 + half] - state[1]) // LINE_BYTES
    members = int((far == half).sum())
    for hop in range(members):
        if not 0 <= at < lines or far[at] != half or (hop and at == start):
            return 1.0, 0.0, f"after {hop} hops the walk leaves its half, or comes back before all {members} lines were met"
        if hop == hops % members:
            end = at
        at = int(nodes[at, 1] - state[1]) // LINE_BYTES
    if at != start:
        return 1.0, 0.0, f"the half of {members} lines is no cycle"
    got = int(state[4] - state[1]) // LINE_BYTES
    if got != end:
        return 1.0, 0.0, f"{hops} hops ended at line {got} instead of {end}"
    problem = _slow_enough(case, hops)
    return float(bool(problem)), 0.0, problem or f"{hops} hops among {members} of {lines} lines ended at line {got}"


def _atomic(case: Case) -> Outcome:
    """A lone thread runs through the Fibonacci numbers modulo 2^32; several add exactly one each time, none of them twice."""
    sums, last = _numbers(case, "sums") % 2**32, _numbers(case, "last") % 2**32
    addresses, hops = case.integer("addresses"), case.integer("hops")
    sums = sums[:: sums.size // addresses][:addresses]
    words = np.arange(last.size) % addresses
    if last.size == 1:
        word, returned = 1, 1
        for _ in range(hops):
            word, returned = (word + returned) % 2**32, word
        wanted, returns = np.zeros(addresses, np.int64), np.array([returned])
        wanted[0] = word
    else:
        wanted = np.bincount(words, minlength=addresses) * hops
        # The add that made a word complete was the last one of some thread, and returned one less.
        returns = np.full(addresses, -1)
        np.maximum.at(returns, words, last)
        last, returns = wanted - 1, np.where(wanted > 0, returns, -1)
    wrong = int((sums != wanted).sum() + (last != returns).sum())
    if wrong:
        at = int((sums != wanted).argmax())
        return float(wrong), 0.0, f"{wrong} words are wrong; word {at} holds {int(sums[at])}, wanted is {int(wanted[at])}"
    problem = _slow_enough(case, hops)
    return float(bool(problem)), 0.0, problem or f"{words.size} threads added up exactly in {addresses} words"


def _grid_sync(case: Case) -> Outcome:
    """Every CTA passed every barrier, none of them early."""
    barriers, passed = case.integer("barriers"), _numbers(case, "passed").reshape(-1, 2)
    wanted = barriers + PROOF_BARRIERS
    wrong = int((passed[:, 0] != wanted).sum())
    if wrong:
        return float(wrong), 0.0, f"{wrong} of {len(passed)} CTAs passed another number of barriers than {wanted}"
    early = int(passed[:, 1].sum())
    if early:
        return float(early), 0.0, f"{early} times a CTA was past a barrier at which its neighbour had not arrived"
    problem = _slow_enough(case, barriers)
    return float(bool(problem)), 0.0, problem or f"{len(passed)} CTAs passed {wanted} barriers, none early"


PROBES: dict[str, Callable[[Case], Outcome]] = {
    "chase_index": _chase_index,
    "l2_slices": _l2_slices,
    "l2_halves": _l2_halves,
    "atomic": _atomic,
    "grid_sync": _grid_sync,
}

__all__ = ["PROBES", "on_host"]
