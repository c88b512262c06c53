"""Exports of a co-location: the JSON to the last field, and SGLang's YAML to the last character, read by its own rules."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings, strategies as st

from greenbench import __version__
from greenbench.colocation.export import export_json, export_sglang
from greenbench.corow import CoRow
from greenbench.errors import ExitCode, GreenbenchError, IncompleteError
from greenbench.facts import MODEL_DRIVER, model_facts
from greenbench.schema import RunMeta
from greenbench.slo import Advice, Slo, Trial, Verdict, advise, parse_slo

SLO = parse_slo("itl_p99=20ms,ttft_p99=500ms")
DEVICE = replace(model_facts("h200", MODEL_DRIVER).device, name="NVIDIA H200", uuid="GPU-1", driver="580.159.04")
META = RunMeta(
    run_id="20261201-1",
    created="2026-12-01T10:00:00Z",
    greenbench=__version__,
    command="colocate",
    argv=("colocate",),
    seed=1,
    device=DEVICE,
)
Point = tuple[int, int, float | None, str]  # decode batch, decode SMs, prefill requests a second, slo_met


def point(
    batch: int, decode: int, rate: float | None, met: str, *, mechanism: str = "green", prefill: int = 0, **more: object
) -> list[CoRow]:
    """The two rows of a point."""
    prefill = prefill or 132 - decode
    row = CoRow(
        run_id="20261201-1",
        label=f"decode[batch={batch}]@{decode}/{mechanism}/{rate}/{more.get('connections')}",
        device="NVIDIA H200",
        driver="580.159.04",
        backend="cuda",
        mechanism=mechanism,
        slo=SLO.text,
        slo_met=met,
        status="ok",
    )
    latency = replace(row, role="latency", kernel="decode", params=f"model=llama3-8b,layers=32,batch={batch}", sms_granted=decode)
    background = replace(
        row, role="background", kernel="prefill", params="model=llama3-8b,layers=32,prompt=2048", sms_granted=prefill
    )
    background = replace(background, rate_per_s=rate, throughput_per_s=11.87)
    return [replace(each, **more) for each in (latency, background)]  # type: ignore[arg-type]


def points(*given: Point) -> list[CoRow]:
    """Rows of several points of green."""
    return [row for batch, decode, rate, met in given for row in point(batch, decode, rate, met)]


def advice(rate: float | None = 12.0, mechanism: str = "green", split: str = "20") -> Advice:
    """What a run found."""
    return Advice(SLO, rate, mechanism, split) if rate else Advice(SLO, tried=(5.0, 12.0))


def read(text: str) -> dict[str, object]:
    """Read the few forms of YAML that the export uses: whole numbers by key, and a list of lists of them."""
    found: dict[str, object] = {}
    divisions: list[list[int]] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if match := re.fullmatch(r"([a-z_]+): (\d+)", line):
            found[match[1]] = int(match[2])
        elif match := re.fullmatch(r"([a-z_]+):", line):
            found[match[1]] = divisions
        elif match := re.fullmatch(r"  - \[(\d+), (\d+), (\d+)\]", line):
            divisions.append([int(number) for number in match.groups()])
        else:
            pytest.fail(f"not YAML that is expected here: {line!r}")
    return found


def refusal(rows: Sequence[CoRow], found: Advice | None) -> tuple[int, str]:
    """Exit code and sentence with which nothing is exported."""
    with pytest.raises(GreenbenchError) as caught:
        export_sglang(rows, found, DEVICE)
    return caught.value.exit_code, str(caught.value)


# ------------------------------------------------------------------------------------------------------------------ YAML


def test_the_yaml_to_the_last_character() -> None:
    """Three decode batches, two of which want 20 SMs: two divisions, four groups, and comments say whose figures they are."""
    rows = points(
        (1, 20, 5.0, "true"), (1, 20, 12.0, "true"), (8, 20, 12.0, "true"), (32, 20, 12.0, "false"), (32, 36, 12.0, "true")
    )
    assert export_sglang(rows, advice(), DEVICE) == (
        f"# SGLang PD multiplexing, written by greenbench {__version__}\n"
        "# Measured on NVIDIA H200, driver 580.159.04, run 20261201-1\n"
        "# itl_p99=20ms,ttft_p99=500ms: green at 20 SMs holds it up to 12 a second\n"
        "# Decode: decode[model=llama3-8b,layers=32,batch=1]; prefill: prefill[model=llama3-8b,layers=32,prompt=2048]\n"
        "# Decode batch 1: 20 SMs hold 12 prefill requests a second\n"
        "# Decode batch 8: 20 SMs hold 12 prefill requests a second\n"
        "# Decode batch 32: 36 SMs hold 12 prefill requests a second\n"
        "# Batches above 32 were not shown to hold; they get the last division\n"
        "# Start SGLang with --enable-pdmux --pdmux-config-path FILE --sm-group-num 4\n"
        "sm_group_num: 4\n"
        "# SMs of prefill, SMs of decode, least decode batch\n"
        "manual_divisions:\n"
        "  - [112, 20, 1]\n"
        "  - [96, 36, 9]\n"
        "# Not measured, so SGLang's defaults stand: split_forward_token_budget.\n"
        "# decode_bs_divisor has no effect beside manual_divisions.\n"
    )


def test_a_modelled_run_says_so_first() -> None:
    """What no device has shown is never called measured."""
    rows = [replace(row, backend="modelled") for row in points((1, 20, 12.0, "true"))]
    text = export_sglang(rows, advice(), DEVICE)
    assert text.splitlines()[1].startswith("# MODELLED, not measured: NVIDIA H200, driver 580.159.04, run 20261201-1;")
    assert "Measured" not in text


def test_of_splits_that_hold_the_same_rate_prefill_gets_the_most() -> None:
    """20 and 36 SMs hold 12 a second, 60 hold only 5; a rate above one that failed is luck."""
    rows = points(
        (8, 60, 5.0, "true"), (8, 36, 12.0, "true"), (8, 20, 12.0, "true"), (8, 28, 5.0, "false"), (8, 28, 20.0, "true")
    )
    assert read(export_sglang(rows, advice(), DEVICE)) == {"sm_group_num": 3, "manual_divisions": [[112, 20, 1]]}


def test_a_busy_prefill_counts_as_the_rate_that_it_reached() -> None:
    """Without rates the requests a second are those that the closed loop did, to two digits."""
    text = export_sglang(points((8, 20, None, "true")), advice(), DEVICE)
    assert "# Decode batch 8: 20 SMs hold 12 prefill requests a second\n" in text


def test_only_splits_that_sglang_makes_are_exported() -> None:
    """Prefill is rounded up to 8: of 16, 20 and 8 SMs that hold only 20 leaves such a count; where there is none that is said."""
    rows = points((8, 8, 12.0, "true"), (8, 16, 12.0, "true"), (8, 20, 5.0, "true"))
    assert read(export_sglang(rows, advice(split="8"), DEVICE))["manual_divisions"] == [[112, 20, 1]]
    code, text = refusal(rows[:4], advice(split="8"))
    assert code == ExitCode.INCOMPLETE
    assert text.startswith("--export sglang: SGLang cannot make the splits that hold, with 8 and 16 SMs")
    code, text = refusal(point(8, 36, 12.0, "true", prefill=64), advice(split="36"))
    assert "with 36 SMs for decode; it gives prefill a multiple of 8 SMs and decode the rest of 132" in text


def test_another_mechanism_that_is_better_is_named() -> None:
    """The best of green is exported beside the sentence that priority holds more."""
    rows = [*points((8, 20, 5.0, "true")), *point(8, 0, 12.0, "true", mechanism="priority", prefill=132)]
    text = export_sglang(rows, advice(12.0, "priority", ""), DEVICE)
    assert "# itl_p99=20ms,ttft_p99=500ms: priority holds it up to 12 a second\n" in text
    assert "# PD multiplexing is the mechanism green, not priority; what follows is the best of green\n" in text
    assert "the best of green" not in export_sglang(rows, advice(5.0, "green:c8"), DEVICE)


def test_a_batch_that_nothing_holds_for_is_named() -> None:
    """Batch 32 has no split: those above 8 get the last division, and the file says that nothing shows it to hold."""
    text = export_sglang(points((8, 20, 5.0, "true"), (32, 20, 5.0, "false")), advice(None), DEVICE)
    assert "# No such split holds for decode batch 32\n" in text
    assert "# Batches above 8 were not shown to hold; they get the last division\n" in text
    assert read(text)["manual_divisions"] == [[112, 20, 1]]


def test_connections_and_other_queues_are_told_apart() -> None:
    """A split that holds with 8 connections only says so; points with a workqueue scope are nothing that SGLang can do."""
    rows = [*point(8, 20, 12.0, "false", connections=1), *point(8, 20, 12.0, "true", connections=8)]
    assert "# Decode batch 8: 20 SMs hold 12 prefill requests a second, with CUDA_DEVICE_MAX_CONNECTIONS=8\n" in export_sglang(
        rows, advice(), DEVICE
    )
    scoped = point(8, 20, 12.0, "true", workqueue="green_ctx_balanced")
    assert refusal(scoped, advice())[0] == ExitCode.USAGE


def test_a_name_cannot_leave_its_comment() -> None:
    """Line ends in the names of a user's workload stay inside one line."""
    rows = [replace(row, kernel="mine\nsm_group_num: 99\r\n") for row in points((8, 20, 5.0, "true"))]
    assert read(export_sglang(rows, advice(), DEVICE))["sm_group_num"] == 3


@pytest.mark.parametrize(
    ("rows", "found", "code", "words"),
    [
        (points((8, 20, 5.0, "true")), None, ExitCode.USAGE, "give --slo"),
        ([], advice(), ExitCode.USAGE, "no point of the mechanism green gave figures"),
        (point(8, 20, 5.0, "true", status="failed"), advice(), ExitCode.USAGE, "no point of the mechanism green"),
        (point(8, 20, 5.0, "true")[:1], advice(), ExitCode.USAGE, "no point of the mechanism green"),
        (point(8, 20, 5.0, "true", mechanism="green_background"), advice(), ExitCode.USAGE, "no point of the mechanism green"),
        (points((8, 20, 5.0, "false")), advice(None), ExitCode.INCOMPLETE, "no green split holds itl_p99=20ms,ttft_p99=500ms"),
        (points((8, 20, 5.0, "")), advice(None), ExitCode.INCOMPLETE, "is not decided: 1 point had too few requests"),
        (points((8, 20, 5.0, ""), (8, 28, 5.0, "false")), advice(None), ExitCode.INCOMPLETE, "--steps 3000 decides itl_p99, "),
    ],
)
def test_nothing_is_exported_without_a_split_that_holds(
    rows: Sequence[CoRow], found: Advice | None, code: ExitCode, words: str
) -> None:
    """No objectives, no points, none that holds: a sentence each, with the exit code that fits."""
    got, text = refusal(rows, found)
    assert got == code
    assert text.startswith("--export sglang: ")
    assert words in text


batches = st.sampled_from([1, 2, 8, 16, 32])
splits = st.sampled_from([8, 16, 20, 28, 36, 44, 52, 60])
drawn = st.tuples(batches, splits, st.sampled_from([None, 2.0, 5.0, 12.0]), st.sampled_from(["true", "false", ""]))


def selected(config: dict[str, object], batch: int) -> int:
    """The SMs of decode that SGLang chooses at a decode batch: the last division whose threshold is reached."""
    divisions = config["manual_divisions"]
    assert isinstance(divisions, list)
    return [decode for _, decode, least in divisions if batch >= least][-1]


@settings(max_examples=100, deadline=None)
@given(st.lists(drawn, min_size=1, max_size=12, unique_by=lambda found: found[:3]))
def test_every_export_is_one_that_sglang_takes(given: list[Point]) -> None:
    """Counts match, thresholds rise from 1, splits are whole, and a batch that was measured gets a split that held for it."""
    rows = points(*given)
    try:
        config = read(export_sglang(rows, advice(), DEVICE))
    except IncompleteError:
        return
    divisions = config["manual_divisions"]
    assert isinstance(divisions, list)
    assert config["sm_group_num"] == len(divisions) + 2 >= 3
    thresholds = [least for _, _, least in divisions]
    assert thresholds[0] == 1
    assert thresholds == sorted(set(thresholds))
    assert all(prefill % 8 == 0 and prefill + decode == 132 for prefill, decode, _ in divisions)
    for batch in {batch for batch, _, _, _ in given}:
        held = {decode for b, decode, _, met in given if b == batch and met == "true" and (132 - decode) % 8 == 0}
        mine = [Trial("green", str(d), r or 12.0, Verdict(m)) for b, d, r, m in given if b == batch and (132 - d) % 8 == 0]
        if advise(SLO, mine).rate_per_s is not None:
            assert selected(config, batch) in held


# ------------------------------------------------------------------------------------------------------------------ JSON


def test_json_has_every_column_and_null_for_what_was_not_measured() -> None:
    """Rows keep the columns of rows.csv by name; true and false are JSON's own, an empty cell is null and never 0 or ''."""
    rows = points((8, 20, 12.0, "true"), (8, 28, 12.0, ""))
    text = export_json(rows, advice(), META)
    found = json.loads(text)
    assert text.endswith("}\n")
    assert [list(row) for row in found["rows"]] == [[field.name for field in fields(CoRow)]] * 4
    assert [row["slo_met"] for row in found["rows"]] == [True, True, None, None]
    assert (found["rows"][0]["step_us_p50"], found["rows"][0]["reason"], found["rows"][1]["rate_per_s"]) == (None, None, 12.0)
    assert found["run"]["run_id"] == "20261201-1"
    assert found["device"] == {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "sm_count": 132,
        "driver": "580.159.04",
        "cuda": [13, 0],
        "nvrtc": DEVICE.nvrtc,
    }
    assert (found["schema"], found["backend"]) == (1, "modelled")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, None),
        (advice(None), {"holds": False, "rate_per_s": None, "mechanism": None, "sms": None, "tried_per_s": [5.0, 12.0]}),
        (replace(advice(None), undecided=1, wanting=SLO.limits), {"holds": None, "undecided": 1, "failed": 0}),
        (replace(advice(), also=(("priority", ""), ("green", "28"))), {"holds": True, "mechanism": "green", "sms": 20}),
    ],
)
def test_json_has_the_advice(found: Advice | None, expected: dict[str, object] | None) -> None:
    """The best mechanism and split, who else holds the rate, and the sentence; null where no objectives were given."""
    got = json.loads(export_json([], found, META))["advice"]
    if expected is None:
        assert got is None
        return
    assert {key: got[key] for key in expected} == expected
    assert found is not None
    assert (got["slo"], got["sentence"]) == (Slo(SLO.limits).text, found.text)
    assert got["also"] == [
        {"mechanism": name, "sms": int(split) if split else None} for name, split in (found.also if found else ())
    ]
