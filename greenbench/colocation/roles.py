"""The two roles of a co-location: workloads by name or file, or a decode step and a prefill request derived from a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from greenbench.catalog import Kernel
from greenbench.choices import parse_integer, parse_integers, read_text, split_items
from greenbench.colocation.keys import ROLE_KEYS, Given, parse_chunks
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.models import (
    MAX_BATCH,
    MAX_CONTEXT,
    Model,
    decode_step,
    load_model,
    parse_layers,
    prefill_chunks,
    prefill_request,
)
from greenbench.workload import Call, Group, StepKind, Workload, load_workload, settled, workload_names

DECODE, PREFILL = StepKind.DECODE.value, StepKind.PREFILL.value
MODEL, LAYERS, BATCH, CONTEXT, PROMPT = "llama3-8b", 4, 8, 4096, 2048
CHUNKS: tuple[int, ...] = (512, 2048)
BATCHES: tuple[int, ...] = (BATCH,)
# What each derived role is made from.
_OF_DECODE = ("model", "layers", "decode_batch", "context")
_OF_PREFILL = ("model", "layers", "prompt", "chunk")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

COPY = "copy"
# Loads that take one thing each: tensor cores, the L2, HBM, and the copy engine.
LOADS = ("compute", "l2", "hbm", COPY)
# One transfer from pinned host memory: long beside a decode step, and small beside any device's memory.
COPY_BYTES = 64 * 2**20
COPY_CALL = "memcpy_h2d"


@dataclass(frozen=True, slots=True)
class Roles:
    """Settled workloads: one latency role for each batch, the background, and the pieces of a background step for each chunk."""

    latency: tuple[Workload, ...]
    background: Workload
    chunks: tuple[tuple[int, tuple[Workload, ...]], ...] = ()


def read_roles(given: Given, kernels: Mapping[str, Kernel]) -> Roles:
    """Return the roles that the keys of `ROLE_KEYS` describe; raises PlanError naming the key."""
    names = given.read("latency", split_items, [DECODE])
    beside = given.read("background", split_items, [PREFILL])
    if len(beside) > 1:
        raise PlanError(f"{given.place('background')}: {', '.join(beside)} are several; a latency role has one load beside it")
    for word in names:
        if names.count(word) > 1:
            raise PlanError(f"{given.place('latency')}: {word!r} is given twice; give each workload once")
    _refuse_idle(given, names, beside[0])
    model = load_model(given.read("model", read_text, MODEL), given.place("model"))
    layers = given.read("layers", lambda value, place: parse_layers(value, model, place), min(LAYERS, model.layers))
    latency: list[Workload] = []
    for name in names:
        latency += _decodes(given, model, layers) if name == DECODE else [_named(name, DECODE, given.place("latency"), kernels)]
    if beside[0] != PREFILL:
        background = _named(beside[0], PREFILL, given.place("background"), kernels)
        return Roles(tuple(settled(each, kernels) for each in latency), background)
    prompt = given.read("prompt", lambda value, place: parse_integer(value, place, 1, MAX_CONTEXT), PROMPT)
    pieces = tuple(
        (chunk, tuple(settled(each, kernels) for each in prefill_chunks(model, prompt=prompt, chunk=chunk, layers=layers)))
        for chunk in _chunk_sizes(given, prompt)
    )
    background = settled(prefill_request(model, prompt=prompt, layers=layers), kernels)
    return Roles(tuple(settled(each, kernels) for each in latency), background, pieces)


def _refuse_idle(given: Given, latency: list[str], background: str) -> None:
    """Refuse an option that describes a role which is not there; a plan file may keep it for another day."""
    used = {*(_OF_DECODE if DECODE in latency else ()), *(_OF_PREFILL if background == PREFILL else ())}
    for key in ROLE_KEYS[2:]:
        if key in given and key not in used and given.place(key).startswith("--"):
            role = f"--background {PREFILL}" if key in _OF_PREFILL else f"--latency {DECODE}"
            raise PlanError(
                f"{given.place(key)}: it describes a role that this co-location does not have; leave it out, or add {role}"
            )


def _decodes(given: Given, model: Model, layers: int) -> list[Workload]:
    batches = given.read("decode_batch", lambda value, place: parse_integers(value, place, 1, MAX_BATCH), BATCHES)
    context = given.read("context", lambda value, place: parse_integer(value, place, 1, MAX_CONTEXT), CONTEXT)
    return [decode_step(model, batch=batch, context=context, layers=layers) for batch in batches]


def _chunk_sizes(given: Given, prompt: int) -> tuple[int, ...]:
    """Return the chunks, each once; one above the prompt is the whole prompt, except where somebody just asked for it."""
    chunks = given.read("chunk", parse_chunks, CHUNKS)
    if max(chunks) > prompt and given.place("chunk").startswith("--") and "chunk" in given:
        raise PlanError(f"{given.place('chunk')}: {max(chunks)} is more than the {prompt} tokens of the prompt; raise --prompt")
    return tuple(dict.fromkeys(min(chunk, prompt) for chunk in chunks))


def _named(name: str, derived: str, place: str, kernels: Mapping[str, Kernel]) -> Workload:
    """Return a workload that ships, or one of a file; `derived` is the role that a model gives here."""
    known = [derived, *workload_names()]
    if not name.endswith(".toml") and "/" not in name and name not in known:
        raise PlanError(
            f"{place}: there is no workload {name!r}{did_you_mean(name, known)}; "
            f"give {derived} (of --model), {', '.join(known[1:])} or the path of a .toml file"
        )
    if name not in known:
        refuse_file(name, place)
    try:
        return load_workload(Path(name) if name.endswith(".toml") else name, kernels)
    except PlanError as error:
        raise PlanError(f"{place}: {error}") from error


def refuse_file(path: str, place: str) -> None:
    """Raise PlanError, headed by `place`, for a file whose name is none for a workload, or whose path cannot be shown."""
    if not path.isprintable():
        raise PlanError(f"{place}: {path!r} has characters that cannot be shown; rename the file, or its folder")
    refuse_name(Path(path).stem, f"{place} {path}")


def refuse_name(name: str, place: str) -> None:
    """Raise PlanError, headed by `place`, where a workload's name could be more than a name to a terminal or a spreadsheet."""
    if not _NAME.fullmatch(name):
        raise PlanError(
            f"{place}: {name!r} is no name of a workload; name the file with letters, digits, '.', '_' and '-', a letter or a "
            "digit first"
        )


def interference_loads(kernels: Mapping[str, Kernel]) -> tuple[Workload, ...]:
    """Return the workloads of `LOADS`, in that order; `copy` is no kernel: the device realises its one call itself."""
    transfer = Call(COPY_CALL, (("bytes", COPY_BYTES),))
    copy = Workload(name=COPY, kind=StepKind.KERNELS, groups=(Group((transfer,)),), summary="The copy engine alone.")
    return tuple(copy if name == COPY else load_workload(name, kernels) for name in LOADS)
