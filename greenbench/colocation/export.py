"""What a co-location found, for other programs: JSON with everything, and the configuration of SGLang's PD multiplexing.

The YAML is what `python/sglang/srt/multiplex/pdmux_context.py` reads (as of 2026; docs/advanced_features/pd_multiplexing.md):
`sm_group_num` counts the divisions and two groups that are the whole device; `manual_divisions` lists [SMs of prefill, SMs of
decode, least decode batch], of which the last one takes effect whose batch is reached. The first has to begin at batch 1: below
every threshold SGLang has no group to choose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from greenbench import __version__
from greenbench.corow import CoRow
from greenbench.errors import IncompleteError, UsageError
from greenbench.queueing.model import Kind, Mechanism
from greenbench.rates import rounded
from greenbench.records import to_json
from greenbench.schema import Backend, DeviceFacts, RunMeta, Scope, Status
from greenbench.slo import Advice, Trial, Verdict, advise, deciding, too_few

JSON_SCHEMA = 1
# Groups of SGLang that are no division: every SM for prefill, every SM for decode.
WHOLE_GROUPS = 2
TRUTH = {"true": True, "false": False}
BATCH = "batch"


def export_json(rows: Sequence[CoRow], advice: Advice | None, meta: RunMeta) -> str:
    """Return run, advice and rows as one JSON object; what was not measured is null, as it is an empty cell in rows.csv."""
    run = {key: getattr(meta, key) for key in ("run_id", "created", "finished", "greenbench", "command", "seed", "notes")}
    device = meta.device
    found = {
        "schema": JSON_SCHEMA,
        "backend": device.backend,
        "run": run,
        "device": {key: getattr(device, key) for key in ("name", "uuid", "sm_count", "driver", "cuda", "nvrtc")},
        "advice": None if advice is None else _advice(advice),
        "rows": [{key: _value(key, value) for key, value in asdict(row).items()} for row in rows],
    }
    return json.dumps(to_json(found), indent=1, ensure_ascii=False) + "\n"


def _value(key: str, value: object) -> object:
    if key in {"slo_met", "saturated"}:
        return TRUTH.get(str(value))
    return None if value == "" else value


def _advice(advice: Advice) -> Mapping[str, object]:
    return {
        "slo": advice.slo.text,
        "holds": advice.rate_per_s is not None if advice.decided else None,
        "rate_per_s": advice.rate_per_s,
        "mechanism": advice.mechanism or None,
        "sms": int(advice.split) if advice.split.isdecimal() else None,
        "also": [{"mechanism": name, "sms": int(split) if split.isdecimal() else None} for name, split in advice.also],
        "tried_per_s": advice.tried,
        "undecided": advice.undecided,
        "failed": advice.failed,
        "sentence": advice.text,
    }


@dataclass(frozen=True, slots=True)
class Division:
    """What one decode batch may have: SMs for both sides, the prefill requests a second that these hold, and how it was run."""

    batch: int
    prefill: int
    decode: int
    rate_per_s: float
    connections: int | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two rows of one point."""

    latency: CoRow
    background: CoRow

    @property
    def batch(self) -> int:
        """The decode batch that the latency role stands for; one that is no model's stands for all."""
        given = dict(item.partition("=")[::2] for item in self.latency.params.split(","))
        return int(given[BATCH]) if given.get(BATCH, "").isdecimal() else 1

    @property
    def rate_per_s(self) -> float:
        """Prefill requests a second: those that were due, or what a busy prefill reached."""
        return self.background.rate_per_s or rounded(self.background.throughput_per_s or 0.0)

    @property
    def division(self) -> Division:
        """What SGLang would be told."""
        sms = self.background.sms_granted or 0, self.latency.sms_granted or 0
        return Division(self.batch, *sms, self.rate_per_s, self.latency.connections)

    @property
    def split(self) -> str:
        """Tell the split from others of the same batch."""
        found = self.division
        return f"{found.decode}/{found.prefill}/{found.connections}"


def export_sglang(rows: Sequence[CoRow], advice: Advice | None, device: DeviceFacts) -> str:
    """Return the YAML for --pdmux-config-path: for each decode batch the split that holds the objectives at the highest rate.

    Of several the one with the fewest SMs for decode, as `advise` has it. Raises UsageError where the run was not asked for
    what this takes, IncompleteError where no split holds the objectives or none that holds is one that SGLang can make.
    """
    if advice is None:
        raise UsageError("--export sglang: without objectives no split is better than another; give --slo, such as itl_p99=20ms")
    pairs = list(_pairs(rows))
    if not pairs:
        raise UsageError("--export sglang: no point of the mechanism green gave figures, and PD multiplexing is that; add it")
    batches = sorted({pair.batch for pair in pairs})
    found = [best for batch in batches if (best := _best([p for p in pairs if p.batch == batch], advice, device))]
    if not found:
        raise IncompleteError(_nothing(pairs, advice, device))
    lines = [*_comments(pairs, found, batches, advice, device), f"sm_group_num: {len(_merged(found)) + WHOLE_GROUPS}"]
    lines += ["# SMs of prefill, SMs of decode, least decode batch", "manual_divisions:"]
    lines += [f"  - [{division.prefill}, {division.decode}, {least}]" for least, division in _merged(found)]
    lines += ["# Not measured, so SGLang's defaults stand: split_forward_token_budget."]
    lines += ["# decode_bs_divisor has no effect beside manual_divisions."]
    return "\n".join(lines) + "\n"


def _pairs(rows: Sequence[CoRow]) -> Iterator[_Pair]:
    """Yield the points of the form of PD multiplexing: both sides in green contexts, launch queues as the driver has them."""
    sides: dict[str, dict[str, CoRow]] = {}
    for row in rows:
        plain = row.workqueue in {"", Scope.DRIVER_DEFAULT.value} and row.concurrency_limit is None
        if row.mechanism == Mechanism.GREEN.value and row.status == Status.OK.value and plain:
            sides.setdefault(row.label, {})[row.role] = row
    for found in sides.values():
        if len(found) == len(Kind):
            yield _Pair(found[Kind.LATENCY.value], found[Kind.BACKGROUND.value])


def _best(pairs: Sequence[_Pair], advice: Advice, device: DeviceFacts) -> Division | None:
    """Return the split for one decode batch, None where none holds that SGLang can make."""
    possible = sorted((pair for pair in pairs if _can_be_made(pair.division, device)), key=lambda pair: pair.division.decode)
    trials = [Trial(Mechanism.GREEN.value, p.split, p.rate_per_s, Verdict(p.latency.slo_met)) for p in possible]
    best = advise(advice.slo, trials)
    chosen = [p.division for p in possible if p.split == best.split and p.rate_per_s == best.rate_per_s]
    return chosen[0] if chosen else None


def _can_be_made(division: Division, device: DeviceFacts) -> bool:
    """Return whether SGLang gets these counts: prefill is split off first, rounded up to the unit, and decode is the rest."""
    return division.prefill % max(1, device.alignment) == 0 and division.prefill + division.decode == device.sm_count


def _merged(found: Sequence[Division]) -> list[tuple[int, Division]]:
    """Return the divisions with the least batch of each.

    One that was measured at a batch serves the smaller ones too, down to the next batch that was measured: a smaller batch has
    less to do, so what holds for the larger one is the safe choice in between.
    """
    merged: list[tuple[int, Division]] = []
    least = 1
    for division in found:
        if not merged or (division.prefill, division.decode) != (merged[-1][1].prefill, merged[-1][1].decode):
            merged.append((least, division))
        least = division.batch + 1
    return merged


def _nothing(pairs: Sequence[_Pair], advice: Advice, device: DeviceFacts) -> str:
    held = sorted({pair.division.decode for pair in pairs if pair.latency.slo_met == Verdict.HOLDS.value})
    unknown = sum(pair.latency.slo_met == Verdict.UNKNOWN.value for pair in pairs)
    if not held and unknown:
        more = deciding(advice.wanting or advice.slo.limits)
        return f"--export sglang: whether a green split holds {advice.slo.text} is not decided: {too_few(unknown)}; {more}"
    if not held:
        return f"--export sglang: no green split holds {advice.slo.text} at any rate that was tried"
    sizes = " and ".join(map(str, held))
    return (
        f"--export sglang: SGLang cannot make the splits that hold, with {sizes} SMs for decode; it "
        f"gives prefill a multiple of {device.alignment} SMs and decode the rest of {device.sm_count}: ask for --sms of that form"
    )


def _comments(
    pairs: Sequence[_Pair], found: Sequence[Division], batches: Sequence[int], advice: Advice, device: DeviceFacts
) -> Iterator[str]:
    """Yield where the figures come from, what they promise, and how SGLang is started with them."""
    row = pairs[0].latency
    where = f"{row.device or device.name}, driver {row.driver or device.driver}, run {row.run_id}"
    modelled = row.backend == Backend.MODELLED.value
    yield _comment(f"SGLang PD multiplexing, written by greenbench {__version__}")
    yield _comment(f"MODELLED, not measured: {where}; for trying out the format only" if modelled else f"Measured on {where}")
    yield _comment(advice.text)
    if advice.mechanism and advice.mechanism.partition(":")[0] != Mechanism.GREEN.value:
        yield _comment(f"PD multiplexing is the mechanism green, not {advice.mechanism}; what follows is the best of green")
    yield _comment(f"Decode: {row.kernel}[{row.params}]; prefill: {pairs[0].background.kernel}[{pairs[0].background.params}]")
    for division in found:
        beside = "" if division.connections is None else f", with CUDA_DEVICE_MAX_CONNECTIONS={division.connections}"
        held = f"{division.decode} SMs hold {division.rate_per_s:g} prefill requests a second{beside}"
        yield _comment(f"Decode batch {division.batch}: {held}")
    missing = [batch for batch in batches if batch not in {division.batch for division in found}]
    if missing:
        yield _comment(f"No such split holds for decode batch {', '.join(map(str, missing))}")
    yield _comment(f"Batches above {found[-1].batch} were not shown to hold; they get the last division")
    groups = len(_merged(found)) + WHOLE_GROUPS
    yield _comment(f"Start SGLang with --enable-pdmux --pdmux-config-path FILE --sm-group-num {groups}")


def _comment(text: str) -> str:
    """Return one line of comment, whatever names stand in it."""
    return f"# {' '.join(text.split())}"
