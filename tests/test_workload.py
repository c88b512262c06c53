"""Workloads and models: TOML or a sentence, and steps whose work is that of a transformer layer to the last byte."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from greenbench.catalog import library
from greenbench.errors import ExitCode, PlanError
from greenbench.models import (
    DIMENSIONS,
    PARTS,
    Model,
    decode_step,
    load_model,
    model_names,
    parse_layers,
    prefill_chunks,
    prefill_request,
    read_model,
)
from greenbench.records import from_json, to_json
from greenbench.tails import Metric
from greenbench.workload import (
    MAX_CALLS,
    Call,
    StepKind,
    StepWork,
    Workload,
    load_workload,
    read_workload,
    settled,
    step_work,
    workload_digest,
    workload_names,
)

KERNELS = library()
LLAMA = load_model("llama3-8b")
LLAMA_TABLE: dict[str, object] = {key: getattr(LLAMA, key) for key in DIMENSIONS}

models = st.builds(
    lambda hidden, kv_heads, per_kv, intermediate, layers, vocab: Model(
        name="drawn",
        hidden=8 * hidden,
        heads=kv_heads * per_kv,
        kv_heads=kv_heads,
        head_size=128,
        intermediate=8 * intermediate,
        layers=layers,
        vocab=8 * vocab,
    ),
    st.integers(1, 1024),
    st.integers(1, 16),
    st.integers(1, 8),
    st.integers(1, 4096),
    st.integers(2, 80),
    st.integers(1, 20_000),
)
tables = st.dictionaries(
    st.sampled_from(["summary", "tokens", "repeat", "kernels", "kernel"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.sampled_from(["triad", "", "gemv"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "params", "part", "repeat", "n"]), inner, max_size=4)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


def refusal(table: dict[str, object]) -> str:
    """Return the sentence with which a workload's table is refused."""
    with pytest.raises(PlanError) as caught:
        settled(read_workload("mine", table, "mine.toml: "), KERNELS)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


def work(workload: Workload) -> StepWork:
    """Return the work of a step after its parameters were checked against the library."""
    return step_work(settled(workload, KERNELS), KERNELS)


def part(workload: Workload, name: str) -> list[Call]:
    """Return the calls of a step that stand for a part of the model."""
    return [call for call in workload.calls() if call.part == name]


def test_llama_has_the_published_weights() -> None:
    """Llama 3 8B: 8,030,261,248 parameters, 128 KiB of cache per token over all layers."""
    assert LLAMA.weights == 8_030_261_248
    assert LLAMA.layers * LLAMA.kv_bytes_per_token == 128 * 1024


@settings(max_examples=25)
@given(model=models, batch=st.integers(1, 8), context=st.integers(1, 100_000), cut=st.integers(1, 79))
def test_a_small_decode_step_is_its_weights_and_its_cache(model: Model, batch: int, context: int, cut: int) -> None:
    """Up to eight sequences: 2 FLOP per weight and token, weights read once, the cache once, norms and activation beside it."""
    layers = min(cut, model.layers - 1)
    found = work(decode_step(model, batch=batch, context=context, layers=layers))
    norms, activation = 2 * batch * model.hidden, -(-batch * model.intermediate // 2)
    flops = 2 * batch * model.layer_weights + 4 * batch * model.query_width * context + 4 * norms + 2 * activation
    moved = 2 * model.layer_weights + batch * context * model.kv_bytes_per_token + 4 * norms + 12 * activation
    assert found == StepWork(layers * flops, layers * moved)


@settings(max_examples=25)
@given(model=models, batch=st.integers(9, 256), context=st.integers(1, 4000))
def test_a_larger_decode_step_at_full_depth_has_head_and_activations(model: Model, batch: int, context: int) -> None:
    """Above eight sequences the projections are GEMMs, which also move their rows; the full depth ends in norm and logits."""
    step = decode_step(model, batch=batch, context=context, layers=model.layers)
    norms, activation = 2 * batch * model.hidden, -(-batch * model.intermediate // 2)
    flops = 2 * batch * model.layer_weights + 4 * batch * model.query_width * context + 4 * norms + 2 * activation
    rows = 4 * model.hidden + model.qkv_width + model.query_width + 3 * model.intermediate
    moved = 2 * (model.layer_weights + batch * rows) + batch * context * model.kv_bytes_per_token + 4 * norms + 12 * activation
    head_flops = 2 * batch * model.head_weights + 2 * norms
    head_bytes = 2 * (model.head_weights + batch * (model.hidden + model.vocab)) + 2 * norms
    assert work(step) == StepWork(model.layers * flops + head_flops, model.layers * moved + head_bytes)
    assert step.metrics == (Metric.STEP, Metric.ITL)
    assert step.launches == 8 * model.layers + 2


@settings(max_examples=25)
@given(model=models, eighths=st.integers(2, 500), chunk=st.integers(2, 200))
def test_chunks_do_the_work_of_the_request(model: Model, eighths: int, chunk: int) -> None:
    """However a prompt is cut (in multiples of 8): the FLOPs of its pieces, attention included, are those of the whole."""
    prompt, layers = 8 * eighths, model.layers - 1
    whole = prefill_request(model, prompt=prompt, layers=layers)
    pieces = prefill_chunks(model, prompt=prompt, chunk=8 * chunk, layers=layers)
    causal = 2 * prompt * prompt * model.query_width
    flops = 2 * prompt * model.layer_weights + causal + 8 * prompt * model.hidden + prompt * model.intermediate
    assert work(whole).flops == layers * flops
    assert sum(work(piece).flops or 0 for piece in pieces) == layers * flops
    assert sum(piece.tokens or 0 for piece in pieces) == prompt
    assert whole.metrics == (Metric.TTFT,)


def test_only_the_last_chunk_gives_the_first_token() -> None:
    """At full depth the logits come once, for one row, with the piece that ends the prompt."""
    pieces = prefill_chunks(LLAMA, prompt=1300, chunk=512, layers=32)
    assert [piece.param_text for piece in pieces] == [
        f"model=llama3-8b,layers=32,prompt=1300,chunk={tokens},before={before}"
        for tokens, before in [(512, 0), (512, 512), (276, 1024)]
    ]
    assert [len(part(piece, "head")) for piece in pieces] == [0, 0, 1]
    assert dict(part(pieces[-1], "head")[0].params)["m"] == 1


@pytest.mark.parametrize(("batch", "kernel"), [(1, "gemv"), (8, "gemv"), (9, "gemm_bf16"), (32, "gemm_bf16")])
def test_projections_take_the_kernel_for_their_rows(batch: int, kernel: str) -> None:
    """Up to eight rows gemv, above it tensor cores; every part of a step is one that PARTS explains."""
    step = decode_step(LLAMA, batch=batch, context=2048, layers=4)
    assert {call.kernel for name in ("qkv", "output", "gate_up", "down") for call in part(step, name)} == {kernel}
    assert {call.part for call in step.calls()} <= set(PARTS)
    assert step.metrics == (Metric.STEP,)
    assert step.tokens == batch


def test_every_step_fits_the_kernels_of_an_architecture() -> None:
    """The issue's batches, chunks and depths settle on sm_90a as on the base files, with the same work."""
    steps = [decode_step(LLAMA, batch=batch, context=4096, layers=layers) for batch in (1, 8, 32) for layers in (4, 32)]
    steps += [*prefill_chunks(LLAMA, prompt=4096, chunk=512, layers=4), prefill_request(LLAMA, prompt=2048, layers=32)]
    for step in steps:
        hopper = settled(step, KERNELS, "sm_90a")
        assert hopper == settled(step, KERNELS)
        assert sum(1 for _ in hopper.calls()) == hopper.launches
        assert {call.kernel for call in hopper.distinct()} == {call.kernel for call in hopper.calls()}
        assert len(hopper.distinct()) == len({(call.kernel, call.params) for call in hopper.calls()})


def test_a_workload_is_kept_in_run_json() -> None:
    """What run.json holds of a workload reads back as the same."""
    step = settled(decode_step(LLAMA, batch=8, context=4096, layers=32), KERNELS)
    assert from_json(Workload, cast(object, to_json(step))) == step


def test_the_digest_follows_the_kernels() -> None:
    """Equal kernels give equal digests whatever their sizes; another kernel another digest."""
    small, large, other = (
        decode_step(LLAMA, batch=batch, context=64, layers=layers) for batch, layers in [(1, 4), (8, 32), (9, 4)]
    )
    assert workload_digest(small, KERNELS) == workload_digest(large, KERNELS) != workload_digest(other, KERNELS)


def test_all_shipped_files_can_be_used() -> None:
    """Every model gives a decode step, every workload settles, and each says what it is."""
    assert "llama3-8b" in model_names()
    for name in model_names():
        model = load_model(name)
        assert model.summary
        assert model.source
        assert settled(decode_step(model, batch=1, context=64, layers=1), KERNELS).launches == 8
    assert {"compute", "l2", "hbm"} <= set(workload_names())
    for name in workload_names():
        workload = load_workload(name, KERNELS)
        assert workload.summary
        assert (workload.name, workload.kind, workload.metrics) == (name, StepKind.KERNELS, (Metric.STEP,))


def test_a_file_is_read_with_its_repeats(tmp_path: Path) -> None:
    """Names and tables, each repeated, the whole repeated: the launches in order, parameters complete."""
    path = tmp_path / "mine.toml"
    path.write_text(
        'summary = "mine"\ntokens = 2\nrepeat = 3\n'
        'kernels = ["null_launch", { name = "triad", params = { n = 4096 }, part = "a", repeat = 2 }]\n',
        encoding="utf-8",
    )
    found = load_workload(path, KERNELS)
    triad = Call("triad", (("n", 4096), ("s", 3.0)), "a")
    assert list(found.calls()) == [Call("null_launch"), triad, triad] * 3
    assert (found.name, found.tokens, found.launches, found.distinct()) == ("mine", 2, 9, (Call("null_launch"), triad))
    # An empty kernel declares no work, so the sum is not known.
    assert step_work(found, KERNELS) == StepWork(None, None)
    assert triad.text == "a: triad[n=4096,s=3.0]"


@given(table=tables)
def test_any_table_is_a_workload_or_a_sentence(table: dict[str, object]) -> None:
    """Whatever TOML says: a workload of at least one launch, or a PlanError that names the file."""
    problem = ""
    try:
        found = read_workload("mine", table, "mine.toml: ")
    except PlanError as error:
        problem = str(error)
    if problem:
        assert problem.startswith("mine.toml: ")
    else:
        assert 0 < found.launches <= MAX_CALLS


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(data=st.binary(max_size=60))
def test_any_file_is_a_workload_or_a_sentence(data: bytes, tmp_path: Path) -> None:
    """Bytes that are no TOML, or no text, are refused with the file's name."""
    path = tmp_path / "any.toml"
    path.write_bytes(data)
    for read in (lambda: load_workload(path, KERNELS), lambda: load_model(path)):
        with pytest.raises(PlanError, match="any.toml"):
            read()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "mine.toml: kernels: None names no kernels"),
        ({"kernel": ["triad"]}, "kernel is no key of a workload (did you mean kernels?)"),
        ({"kernels": ["triadd"]}, "there is no kernel 'triadd' (did you mean triad?)"),
        ({"kernels": [{"name": "triad", "params": {"m": 1}}]}, "kernel triad has no parameter 'm'"),
        ({"kernels": [{"name": "triad", "params": {"n": "x"}}]}, "mine.toml: kernels[0].params.n of triad: 'x' is no number"),
        (
            {"kernels": [{"name": "gemm_bf16", "params": {"n": 7}, "part": "q"}]},
            "q: kernel gemm_bf16 with n=7: n must be a multiple",
        ),
        ({"kernels": [{"name": "triad", "reps": 2}]}, "mine.toml: kernels[0].reps is no key of a kernel in a workload"),
        ({"kernels": [""]}, "a kernel needs a name"),
        ({"kernels": ["triad"], "tokens": 0}, "mine.toml: tokens: '0' is no integer"),
        ({"kernels": ["triad", "copy"], "repeat": 6000}, "a step of 12000 launches is too long"),
    ],
)
def test_what_is_no_workload_is_told_why(table: dict[str, object], said: str) -> None:
    """File, key, value and way out are in the sentence."""
    assert said in refusal(table)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head_size": 64}, "head_size is 64; decode_attention is written for heads of 128"),
        ({"kv_heads": 5}, "heads is 32, no multiple of the 5 of kv_heads"),
        ({"vocab": 12}, "vocab is 12, no multiple of 8"),
        ({"layers": 0}, "layers: '0' is no integer"),
        ({"hidden": 4096.5}, "hidden: '4096.5' is no integer"),
        ({"layer": 32}, "layer is no key of a model (did you mean layers?)"),
        ({"summary": 3}, "summary: 3 is not a text"),
    ],
)
def test_what_is_no_model_is_told_why(change: dict[str, object], said: str) -> None:
    """Dimensions that the library's kernels cannot take are refused before anything runs."""
    with pytest.raises(PlanError) as caught:
        read_model("m", {**LLAMA_TABLE, **change}, "m.toml: ")
    assert said in str(caught.value)


def test_names_that_are_not_there_bring_those_that_are() -> None:
    """An unknown model or workload is answered with the near one; a missing dimension with all of them."""
    with pytest.raises(PlanError, match=r"there is no model 'llama3-8' \(did you mean llama3-8b\?\)"):
        load_model("llama3-8")
    with pytest.raises(PlanError, match=r"there is no workload 'hmb' \(did you mean hbm\?\)"):
        load_workload("hmb", KERNELS)
    with pytest.raises(PlanError, match="hidden is missing; a model needs hidden, heads"):
        read_model("m", {}, "m.toml: ")


def test_layers_are_a_number_or_all() -> None:
    """`full` and 32 are the same depth of this model; 33 is refused."""
    assert [parse_layers(text, LLAMA) for text in ("full", "32", "4")] == [32, 32, 4]
    for text in ("33", "0", "all"):
        with pytest.raises(PlanError, match=f"--layers: '{text}' is no integer from 1 to 32"):
            parse_layers(text, LLAMA)
