"""The knee of a scaling curve: the fewest SMs within 5 % of the full device, and what binds on each side of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenbench.limits import NONE, Limits, helped_by_l2, share_of
from greenbench.schema import Family, Row, SmsMode, Status

NEAR_FULL = 0.95
# From so many per cent of the full device on, that is said to be slower.
SLOWER_PCT = 102
# Binds by HBM alone, were it not for bytes that the L2 kept.
FROM_L2 = "from l2"

# How a sentence names what binds (column bound_by), with its verb.
BINDS = {
    "compute": ("the arithmetic of the SMs", "binds"),
    "waves": ("arithmetic in waves of thread blocks that do not fill the SMs", "binds"),
    "memory": ("HBM", "binds"),
    "link": ("the links of the SMs", "bind"),
    "l2": ("the L2", "binds"),
    FROM_L2: ("the L2", "serves part of it"),
    "latency": ("latency", "binds"),
    "launch": ("the cost of a launch", "binds"),
}
DIVIDED = (Family.GEMM, Family.MEMORY)


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a curve comes within 5 % of the full device; `binds_below` is of the next smaller count, if one was measured.

    `last` tells that no count between it and the full device was measured. The shares say how much of what binds was reached.
    """

    sms: int
    full_sms: int
    share_pct: float
    below_sms: int | None
    below_share_pct: float | None
    binds_below: str
    binds_above: str
    kernel: str
    last: bool = False
    share_below: str = ""
    share_above: str = ""

    @property
    def at_full(self) -> bool:
        """True where only the full device itself is within 5 % of it: the kernel still gains there."""
        return self.sms >= self.full_sms

    @property
    def sentence(self) -> str:
        """Say in words where the knee is and what binds on each side."""
        below, above = _binding(self.binds_below, self.share_below), _binding(self.binds_above, self.share_above)
        if self.at_full:
            short = f"{self.below_sms} SMs give {self.below_share_pct:.0f} % of it"
            return f"{self.kernel} still gains at all {self.full_sms} SMs: {short}{below and f'; there {below}'}."
        lead = f"{self.kernel}: knee at {self.sms} of {self.full_sms} SMs, {self.share_pct:.0f} % of the full device"
        if self.share_pct > SLOWER_PCT:
            lead += " (which is slower)"
        if self.below_sms is None:
            alone = f"the only count measured below {self.full_sms}" if self.last else "the fewest measured"
            return f"{lead}, {alone}{above and f'; {above}'}."
        if self.last:
            lead += f", the largest count measured below {self.full_sms}"
        if self.binds_below == self.binds_above:
            return f"{lead}; {f'on both sides {above}' if above else 'what binds is not known'}."
        unknown = "nothing known binds"
        return f"{lead}; below it {below or unknown}, above it {above or unknown}."


def _binding(by: str, share: str) -> str:
    """Say that something binds, and how much of it was reached; nothing where no bound is known."""
    noun, verb = BINDS.get(by, (by, "binds"))
    return f"{noun} {verb}{share and f' ({share})'}" if by else ""


def _by(row: Row, limits: Limits) -> str:
    """Return what binds a row; not HBM where the L2 served part of it."""
    return FROM_L2 if helped_by_l2(row, limits.get(row.label)) else row.bound_by


def throughput(row: Row) -> float | None:
    """Return work per time of an ok row in a unit of its own: TFLOP/s of a GEMM, else GB/s, else launches per us."""
    if row.status != Status.OK:
        return None
    rates = (row.tflop_per_s, row.gb_per_s) if row.family == Family.GEMM else (row.gb_per_s, row.tflop_per_s)
    rate = next((rate for rate in rates if rate), None)
    if rate is None and row.time_us:
        rate = 1 / row.time_us
    return rate if rate and rate > 0 else None


def knee(rows: Sequence[Row], limits: Limits = NONE) -> Knee | None:
    """Return the knee of one curve (one kernel, params, workqueue and timing), or None where `full` was not measured ok.

    `limits` are the lines of bounds.csv by label, where there are any: from them it is known how near what binds was.

    It is read off the measured points, not off a fit: scaling need not be monotone. A row on the
    primary context is no partition and never the knee; with no count below the full device there is nothing to say, nor is there
    where only the full device is near itself and none of its upper half was measured: the knee may lie anywhere in between.
    Latency kernels and probes do not divide their work, so they have none.
    """
    full = next((row for row in rows if row.sms_requested == SmsMode.FULL and throughput(row) and row.sms_granted), None)
    if full is None or full.sms_granted is None or full.family not in DIVIDED:
        return None
    best = throughput(full) or 0.0
    counts = [(row.sms_granted, throughput(row), row) for row in rows if row.sms_requested != SmsMode.PRIMARY and row.sms_granted]
    ordered = sorted(((sms, rate / best, row) for sms, rate, row in counts if rate), key=lambda item: item[0])
    at = next(i for i, (_, share, _) in enumerate(ordered) if share >= NEAR_FULL)
    sms, share, row = ordered[at]
    below = ordered[at - 1] if at else None
    largest = max((count for count, _, _ in ordered if count < full.sms_granted), default=0)
    if sms >= full.sms_granted and (below is None or 2 * largest < full.sms_granted):
        return None
    return Knee(
        sms=sms,
        full_sms=full.sms_granted,
        share_pct=100 * share,
        below_sms=below[0] if below else None,
        below_share_pct=100 * below[1] if below else None,
        binds_below=_by(below[2], limits) if below else "",
        binds_above=_by(row, limits),
        kernel=row.kernel,
        last=sms == largest,
        share_below=share_of(limits.get(below[2].label)) if below else "",
        share_above=share_of(limits.get(row.label)),
    )
