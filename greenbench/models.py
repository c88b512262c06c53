"""Language models as dimensions, and the steps that they stand for: what a decode step and a prefill request launch.

A dense transformer with grouped-query attention and a gated MLP. `PARTS` says which kernel of the library stands for which
part. Left out, because no kernel stands for them and they move little: the embedding lookup, rotary positions, writing the new
keys and values, the residual sums (engines fuse them into the norm), sampling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from greenbench.catalog import sweeps_dir
from greenbench.choices import parse_integer, read_text
from greenbench.errors import PlanError
from greenbench.expr import did_you_mean
from greenbench.workload import Call, Group, StepKind, Workload, read_table

FOLDER = "models"
FULL = "full"
# What decode_attention is written for.
HEAD_SIZE = 128
# gemv reads the weights once for up to eight rows; above that the tensor cores of gemm_bf16 do.
GEMV_ROWS = 8
# gemm_bf16 takes widths that are multiples of 8.
GEMM_WIDTH = 8
DIMENSIONS = ("hidden", "heads", "kv_heads", "head_size", "intermediate", "layers", "vocab")
KEYS = ("summary", "source", *DIMENSIONS)
MAX_DIMENSION = 2**24
MAX_BATCH, MAX_CONTEXT = 4096, 2**24

PARTS = {
    "norm": "RMSNorm before attention and before the MLP (rmsnorm)",
    "qkv": "queries, keys and values of the new tokens (gemv up to 8 rows, else gemm_bf16)",
    "attention": "attention over the KV cache (decode_attention); in prefill a gemm_bf16 of the same FLOPs stands for it",
    "output": "the projection behind attention (gemv or gemm_bf16)",
    "gate_up": "both projections into the MLP, as one (gemv or gemm_bf16)",
    "activation": "SiLU and product: triad, which moves the same bytes in float32",
    "down": "the projection out of the MLP (gemv or gemm_bf16)",
    "head": "logits of the last token of each sequence, at full depth only (gemv or gemm_bf16)",
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The dimensions of a model; weights are in bfloat16."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    layers: int
    vocab: int
    summary: str = ""
    source: str = ""

    @property
    def query_width(self) -> int:
        """All query heads side by side."""
        return self.heads * self.head_size

    @property
    def qkv_width(self) -> int:
        """Queries, keys and values side by side."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    @property
    def layer_weights(self) -> int:
        """Weights of the matrices of one layer: 218,103,808 for llama3-8b."""
        return self.hidden * (self.qkv_width + self.query_width + 3 * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights of the matrix that gives the logits."""
        return self.hidden * self.vocab

    @property
    def weights(self) -> int:
        """All weights, with norms and an embedding that is not shared with the head: 8,030,261,248 for llama3-8b."""
        return self.layers * (self.layer_weights + 2 * self.hidden) + 2 * self.head_weights + self.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token keeps in the cache of one layer."""
        return 2 * 2 * self.kv_heads * self.head_size


def model_names() -> list[str]:
    """Return the names of the models that ship with greenbench."""
    return sorted(path.stem for path in (sweeps_dir() / FOLDER).glob("*.toml"))


def load_model(name: str | Path, place: str = "--model") -> Model:
    """Read a model by name or from a .toml file; raises PlanError naming file and key."""
    text = str(name)
    path = Path(text)
    if not text.endswith(".toml") and "/" not in text:
        if text not in model_names():
            near, known = did_you_mean(text, model_names()), ", ".join(model_names())
            raise PlanError(f"{place}: there is no model {text!r}{near}; give {known} or the path of a .toml file")
        path = sweeps_dir() / FOLDER / f"{text}.toml"
    return read_model(path.stem, read_table(path, "model"), f"{path}: ")


def read_model(name: str, table: Mapping[str, object], place: str) -> Model:
    """Return the model of a table with the keys of `KEYS`; `place` heads every error."""
    if not _NAME.fullmatch(name):
        raise PlanError(f"{place}{name!r} is no name of a model; name the file with letters, digits, '.', '_' and '-'")
    for key in table:
        if key not in KEYS:
            raise PlanError(f"{place}{key} is no key of a model{did_you_mean(key, KEYS)}; keys are {', '.join(KEYS)}")
    for key in DIMENSIONS:
        if key not in table:
            raise PlanError(f"{place}{key} is missing; a model needs {', '.join(DIMENSIONS)}")
    sizes = {key: parse_integer(table[key], f"{place}{key}", 1, MAX_DIMENSION) for key in DIMENSIONS}
    texts = {key: read_text(table.get(key, ""), f"{place}{key}") for key in ("summary", "source")}
    model = Model(name=name, **sizes, **texts)  # type: ignore[arg-type]
    if problem := _problem(model):
        raise PlanError(f"{place}{problem}")
    return model


def _problem(model: Model) -> str:
    """Return which dimension no kernel of the library can take, an empty string if all can."""
    if model.head_size != HEAD_SIZE:
        return f"head_size is {model.head_size}; decode_attention is written for heads of {HEAD_SIZE}"
    if model.heads % model.kv_heads:
        return f"heads is {model.heads}, no multiple of the {model.kv_heads} of kv_heads; query heads share a KV head evenly"
    for key in ("hidden", "intermediate", "vocab"):
        if getattr(model, key) % GEMM_WIDTH:
            return f"{key} is {getattr(model, key)}, no multiple of {GEMM_WIDTH}, which the projections need"
    return ""


def parse_layers(value: object, model: Model, place: str = "--layers") -> int:
    """Read `full` or a number of layers from 1 to those of the model."""
    return model.layers if value == FULL else parse_integer(value, place, 1, model.layers)


def decode_step(model: Model, *, batch: int, context: int, layers: int) -> Workload:
    """Return one decode step: a token for each of `batch` sequences that have `context` tokens in the cache.

    At full depth the final norm and the logits belong to it.
    """
    attention = _call("attention", "decode_attention", batch=batch, heads=model.heads, kv_heads=model.kv_heads, context=context)
    return _workload(
        model,
        StepKind.DECODE,
        layers,
        _layer(model, batch, attention),
        head_rows=batch,
        tokens=batch,
        params={"batch": batch, "context": context},
    )


def prefill_request(model: Model, *, prompt: int, layers: int) -> Workload:
    """Return the prefill of a prompt in one piece; at full depth the logits of its last token belong to it."""
    return prefill_chunks(model, prompt=prompt, chunk=prompt, layers=layers)[0]


def prefill_chunks(model: Model, *, prompt: int, chunk: int, layers: int) -> tuple[Workload, ...]:
    """Return the prefill of a prompt in pieces of `chunk` tokens, the last one shorter where they do not divide it.

    Each piece attends to those before it, so later ones do more work; the request is done when the last one is.
    """
    pieces = []
    for before in range(0, prompt, chunk):
        tokens = min(chunk, prompt - before)
        params = {"prompt": prompt} if tokens == prompt else {"prompt": prompt, "chunk": tokens, "before": before}
        head_rows = 1 if before + tokens == prompt else 0
        layer = _layer(model, tokens, _prefill_attention(model, tokens, before))
        pieces.append(_workload(model, StepKind.PREFILL, layers, layer, head_rows=head_rows, tokens=tokens, params=params))
    return tuple(pieces)


def _workload(
    model: Model, kind: StepKind, layers: int, layer: Group, *, head_rows: int, tokens: int, params: Mapping[str, int]
) -> Workload:
    """Return a step of `layers` layers, with the head for `head_rows` rows at full depth."""
    full = layers == model.layers
    head: tuple[Group, ...] = ()
    if full and head_rows:
        head = (Group((_norm(model, head_rows), _linear("head", head_rows, model.vocab, model.hidden))),)
    return Workload(
        name=kind.value,
        kind=kind,
        groups=(Group(layer.calls, layers), *head),
        params=(("model", model.name), ("layers", layers), *params.items()),
        tokens=tokens,
        full_depth=full,
        summary=f"{kind.value} of {model.name}, {layers} of {model.layers} layers",
    )


def _layer(model: Model, rows: int, attention: Call) -> Group:
    """Return one transformer layer for `rows` tokens."""
    return Group(
        (
            _norm(model, rows),
            _linear("qkv", rows, model.qkv_width, model.hidden),
            attention,
            _linear("output", rows, model.hidden, model.query_width),
            _norm(model, rows),
            _linear("gate_up", rows, 2 * model.intermediate, model.hidden),
            # Three bfloat16 of each column (gate and up read, the product written) are the bytes of half as many float32.
            _call("activation", "triad", n=-(-rows * model.intermediate // 2)),
            _linear("down", rows, model.hidden, model.intermediate),
        )
    )


def _call(part: str, kernel: str, **params: int) -> Call:
    return Call(kernel, tuple(sorted(params.items())), part)


def _norm(model: Model, rows: int) -> Call:
    return _call("norm", "rmsnorm", rows=rows, cols=model.hidden)


def _linear(part: str, rows: int, out: int, into: int) -> Call:
    """Return y = x*W^T for `rows` rows of x: 2*rows*out*into FLOP, 2*out*into bytes of weights."""
    return _call(part, "gemv" if rows <= GEMV_ROWS else "gemm_bf16", m=rows, n=out, k=into)


def _prefill_attention(model: Model, tokens: int, before: int) -> Call:
    """Return the GEMM that does as many FLOP as causal attention of `tokens` tokens behind `before` others.

    Scores and values are 4 * query_width FLOP for each pair of a query and a key; a query sees `before` keys and on average
    half of its own piece, which makes 2 * tokens * (2*before + tokens) * query_width. It does not read the cache, and writes
    a matrix of scores that a fused kernel keeps on the SM.
    """
    pairs = 2 * before + tokens
    return _call("attention", "gemm_bf16", m=tokens, n=-(-pairs // GEMM_WIDTH) * GEMM_WIDTH, k=model.query_width)
