"""References of the memory-bound kernels: right results pass, and every way of being wrong that a schedule brings about fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from greenbench import fills, streamed, verify
from greenbench.catalog import library
from greenbench.errors import KernelFileError, UnsupportedError
from greenbench.gpu.torch_operations import OPERATIONS
from greenbench.gpu.torch_yardstick import load

Buffers = dict[str, Any]
Case = tuple[Buffers, dict[str, float]]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let matrices of a few thousand elements cross the borders of pieces."""
    monkeypatch.setattr(fills, "CHUNK", 1000)
    monkeypatch.setattr(streamed, "CHUNK", 1000)


def passes(name: str, case: Case) -> bool:
    error, tolerance, detail = verify.check(name, np, case[0], case[1], {})
    assert detail
    return error <= tolerance


def values(kind: str, dtype: str, count: int, seed: int = 3) -> Any:
    return verify.fill(np, kind, dtype, count, seed)


def real(bits: Any) -> Any:
    return verify.from_bf16(np, bits).astype(np.float64)


def rounded(reals: Any) -> Any:
    return verify.to_bf16(np, np.asarray(reals, dtype=np.float32)).ravel()


# ---- right results, made in float64 and rounded once


def dot_case(n: int = 3001, tile: int = 512) -> Case:
    b, c = values("index", "float32", n, 1), values("integer", "float32", n, 2)
    parts = [np.float32(b[i : i + tile].astype(np.float64) @ c[i : i + tile].astype(np.float64)) for i in range(0, n, tile)]
    return {"partial": np.array(parts, np.float32), "b": b, "c": c}, {"n": n}


def transpose_case(rows: int = 70, cols: int = 131) -> Case:
    b = values("index", "uint32", rows * cols)
    return {"a": b.reshape(rows, cols).T.copy().ravel(), "b": b}, {"rows": rows, "cols": cols}


def gather_case(rows: int = 90, d: int = 36) -> Case:
    b, index = values("index", "uint32", rows * d), values("permutation", "int32", rows)
    return {"a": b.reshape(rows, d)[index].ravel(), "b": b, "index": index}, {"rows": rows, "d": d}


def rmsnorm_case(rows: int = 12, cols: int = 200) -> Case:
    x, w = values("normal", "bfloat16", rows * cols, 1), values("normal", "bfloat16", cols, 2)
    v = real(x).reshape(rows, cols)
    y = v / np.sqrt((v * v).mean(axis=1, keepdims=True) + 1e-6) * real(w)
    return {"y": rounded(y), "x": x, "w": w}, {"rows": rows, "cols": cols, "eps": 1e-6}


def softmax_case(rows: int = 12, cols: int = 200) -> Case:
    x = values("normal", "bfloat16", rows * cols)
    powers = np.exp(real(x).reshape(rows, cols))
    return {"y": rounded(powers / powers.sum(axis=1, keepdims=True)), "x": x}, {"rows": rows, "cols": cols}


def linear_case(m: int = 5, n: int = 70, k: int = 200) -> Case:
    x, w = values("normal", "bfloat16", m * k, 1), values("normal", "bfloat16", n * k, 2)
    return {"y": rounded(real(x).reshape(m, k) @ real(w).reshape(n, k).T), "x": x, "w": w}, {"m": m, "n": n, "k": k}


def attention_case(batch: int = 2, heads: int = 4, kv_heads: int = 2, context: int = 150, page: int = 16) -> Case:
    row_pages = -(-context // page)
    count = batch * row_pages * kv_heads * page * 128
    q, keys, held = (
        values("normal", "bfloat16", size, seed) for size, seed in ((batch * heads * 128, 1), (count, 2), (count, 4))
    )
    pages = values("permutation", "int32", batch * row_pages)
    out = np.empty((batch, heads, 128))
    for b in range(batch):
        for h in range(heads):
            where = [
                (int(pages[b * row_pages + t // page]) * kv_heads + h * kv_heads // heads) * page + t % page
                for t in range(context)
            ]
            k, v = (real(part).reshape(-1, 128)[where] for part in (keys, held))
            powers = np.exp(k @ real(q).reshape(batch, heads, 128)[b, h] / np.sqrt(128))
            out[b, h] = powers @ v / powers.sum()
    buffers = {"out": rounded(out), "q": q, "keys": keys, "values": held, "pages": pages}
    return buffers, {"batch": batch, "heads": heads, "kv_heads": kv_heads, "context": context, "page": page}


# Reference -> how a right case is made, its output, and the length of a row of the output.
CASES: dict[str, tuple[Callable[[], Case], str, int]] = {
    "dot": (dot_case, "partial", 1),
    "transpose": (transpose_case, "a", 70),
    "gather": (gather_case, "a", 36),
    "rmsnorm": (rmsnorm_case, "y", 200),
    "softmax": (softmax_case, "y", 200),
    "linear": (linear_case, "y", 70),
    "decode_attention": (attention_case, "out", 128),
}
every_reference = pytest.mark.parametrize("name", CASES)
MATRICES = [name for name in CASES if name != "dot"]


@every_reference
def test_what_is_right_passes(name: str) -> None:
    """The formula's own result, rounded once, in pieces that cross every border."""
    assert passes(name, CASES[name][0]())


@pytest.mark.parametrize("place", [0, 0.5, 1])
@every_reference
def test_one_unwritten_element_fails_wherever_it_is(name: str, place: float) -> None:
    """Poison in the first, a middle and the last element is never a pass by comparison."""
    make, output, _ = CASES[name]
    case = make()
    got = case[0][output]
    at = int(place * (got.size - 1))
    size = got.dtype.itemsize
    got.view(np.uint8)[at * size : (at + 1) * size] = 0xFF
    assert not passes(name, case)


@pytest.mark.parametrize("how", ["swapped rows", "row of another", "zero row", "zero tile", "shifted", "one element"])
@pytest.mark.parametrize("name", MATRICES)
def test_local_faults_fail(name: str, how: str) -> None:
    """One wrong row, tile or element fails beside all the right ones."""
    make, output, width = CASES[name]
    case = make()
    got = case[0][output].reshape(-1, width)
    if how == "swapped rows":
        got[[1, 2]] = got[[2, 1]]
    elif how == "row of another":
        got[3] = got[2]
    elif how == "zero row":
        got[-1] = 0
    elif how == "zero tile":
        got[:, 16:24] = 0
    elif how == "shifted":
        case[0][output] = np.roll(got.ravel(), 1)
    else:
        got[-1, 0] = got[-1, 1]
    assert not passes(name, case)


@pytest.mark.parametrize("name", MATRICES)
def test_the_detail_names_the_place(name: str) -> None:
    """A reader finds the element: row and column of the output."""
    make, output, width = CASES[name]
    case = make()
    case[0][output].reshape(-1, width)[2, 7] ^= 0x4000
    assert "at row 2, column 7: " in verify.check(name, np, *case, {})[2]


# ---- dot


@pytest.mark.parametrize("place", [0, 999, 1000, 3000])
def test_dot_sees_one_product_missing_or_added_twice(place: int) -> None:
    """One product of 3001, unless it is zero, at the border of a piece or at an end."""
    buffers, params = dot_case()
    buffers["c"][place] = 1
    buffers["b"][place] = 0.125
    for sign, fine in ((0, True), (1, False), (-1, False)):
        wanted = float(buffers["b"].astype(np.float64) @ buffers["c"].astype(np.float64))
        partial = np.array([wanted + sign * 0.125], np.float32)
        assert passes("dot", ({**buffers, "partial": partial}, params)) is fine


def test_dot_takes_any_tile() -> None:
    """The number of partial sums does not matter, because each is exact."""
    assert all(passes("dot", dot_case(tile=tile)) for tile in (1, 128, 4096))


# ---- rows


@pytest.mark.parametrize("name", ["rmsnorm", "softmax"])
def test_rows_allow_one_rounding_and_no_more(name: str) -> None:
    """Rounded to nearest passes everywhere; two units in the last place do not."""
    buffers, params = CASES[name][0]()
    buffers["y"][77] += 2
    assert not passes(name, (buffers, params))


def test_rmsnorm_sees_missing_weights_and_a_mean_over_too_many() -> None:
    """Left out weights, and a sum of squares that a padded length divides, fail."""
    buffers, params = rmsnorm_case()
    x = real(buffers["x"]).reshape(12, 200)
    plain = x / np.sqrt((x * x).mean(axis=1, keepdims=True))
    assert not passes("rmsnorm", ({**buffers, "y": rounded(plain)}, params))
    padded = x / np.sqrt((x * x).sum(axis=1, keepdims=True) / 208) * real(buffers["w"])
    assert not passes("rmsnorm", ({**buffers, "y": rounded(padded)}, params))


def test_softmax_of_equal_and_of_distant_values() -> None:
    """Powers that underflow may be zero; equal values share alike."""
    x = rounded([0.0, 0.0, -300.0, -300.0])
    params = {"rows": 2, "cols": 2}
    assert passes("softmax", ({"x": x, "y": rounded([0.5, 0.5, 0.5, 0.5])}, params))
    far = rounded([0.0, -300.0])
    assert passes("softmax", ({"x": far, "y": rounded([1.0, 0.0])}, {"rows": 1, "cols": 2}))


def test_zero_rows_are_right_as_zeros() -> None:
    """Nothing divides by zero: zeros in, zeros out."""
    buffers, params = rmsnorm_case(2, 100)
    buffers["x"][:] = 0
    assert passes("rmsnorm", ({**buffers, "y": np.zeros(200, np.uint16)}, params))


def test_types_without_a_tolerance_are_refused() -> None:
    """A result in float64 has no tolerance."""
    x = np.zeros(4)
    with pytest.raises(KernelFileError, match="'softmax' knows no tolerance for a result of type float64"):
        passes("softmax", ({"x": x, "y": x}, {"rows": 2, "cols": 2}))


# ---- linear and attention


@settings(max_examples=20)
@given(m=st.integers(1, 9), n=st.integers(1, 40), k=st.integers(1, 60))
def test_linear_takes_every_shape(m: int, n: int, k: int) -> None:
    """Ragged shapes pass, and one changed element of each fails."""
    case = linear_case(m, n, k)
    assert passes("linear", case)
    case[0]["y"][m * n // 2] ^= 0x4000
    assert not passes("linear", case)


def test_linear_sees_a_slice_of_k_that_is_missing() -> None:
    """Eight of 200 products left out, as a lost split or tail would."""
    buffers, params = linear_case()
    short = real(buffers["x"]).reshape(5, 200)[:, :192] @ real(buffers["w"]).reshape(70, 200)[:, :192].T
    assert not passes("linear", ({**buffers, "y": rounded(short)}, params))


@settings(max_examples=15, deadline=None)
@given(
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    shared_by=st.integers(1, 5),
    context=st.integers(1, 70),
    page=st.sampled_from([1, 5, 16, 64]),
)
def test_attention_takes_every_shape(batch: int, kv_heads: int, shared_by: int, context: int, page: int) -> None:
    """Heads that share keys, pages that the context does not fill, any number of sequences."""
    assert passes("decode_attention", attention_case(batch, kv_heads * shared_by, kv_heads, context, page))


def test_attention_sees_missing_tokens_a_wrong_page_and_a_wrong_head() -> None:
    """What a lost split, a page table read askew and a wrong group of heads would give."""
    buffers, params = attention_case()
    fewer, _ = attention_case(context=148)
    assert np.array_equal(fewer["keys"], buffers["keys"])
    assert not passes("decode_attention", ({**buffers, "out": fewer["out"]}, params))
    turned = {**buffers, "pages": np.roll(buffers["pages"], 1)}
    assert not passes("decode_attention", (turned, params))
    heads = buffers["out"].reshape(2, 4, 128)[:, [2, 3, 0, 1]].ravel()
    assert not passes("decode_attention", ({**buffers, "out": heads}, params))


# ---- the fill, and the library


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_permutation_fill_meets_every_row_once(dtype: str) -> None:
    """All numbers below the count, out of order, the same for the same seed."""
    index = values("permutation", dtype, 1000)
    assert np.array_equal(np.sort(index), np.arange(1000))
    assert np.mean(index == np.arange(1000)) < 0.05
    assert np.array_equal(index, values("permutation", dtype, 1000))
    assert not np.array_equal(index, values("permutation", dtype, 1000, seed=4))
    with pytest.raises(KernelFileError, match="no fill 'permutation' for float32"):
        values("permutation", "float32", 4)


@pytest.mark.parametrize(
    ("kernel", "bytes_", "flops"),
    [
        ("dot", 2 * 4 * 2**28, 2 * 2**28),
        ("transpose", 2 * 4 * 2**28, None),
        ("gather", 2 * 4 * 2**28 + 4 * 2**20, None),
        ("rmsnorm", 2 * 2 * 2**27, 4 * 2**27),
        ("softmax", 2 * 2 * 2**27, 5 * 2**27),
        ("gemv", 2 * 2**26, 2 * 2**26),
        ("decode_attention", 2 * 2 * 16 * 8 * 8192 * 128, 4 * 16 * 32 * 8192 * 128),
    ],
)
def test_work_is_counted_as_the_formula_reads_and_writes(kernel: str, bytes_: int, flops: int | None) -> None:
    """Every operand once, no write-allocate, no partial results: K*N*s for a GEMV, 2*B*Hkv*S*d*s for decode attention."""
    spec = library()[kernel]
    env = spec.environment(spec.params, sms=132)
    assert spec.bytes is not None
    assert spec.bytes.value(env) == bytes_
    assert (spec.flops.value(env) if spec.flops else None) == flops


# ---- torch's operations


@every_reference
def test_torch_operations_compute_the_same_formula(name: str) -> None:
    """On the host, where torch is installed: what the yardstick enqueues passes the reference of the kernel beside it."""
    torch = pytest.importorskip("torch", reason="torch is not a dependency", exc_type=ImportError)
    make, output, _ = CASES[name]
    buffers, params = make()
    signed = {"uint16": "int16", "uint32": "int32"}
    tensors = {key: torch.from_numpy(array.view(signed.get(str(array.dtype), array.dtype))) for key, array in buffers.items()}
    tensors = {key: x.view(torch.bfloat16) if x.dtype is torch.int16 else x for key, x in tensors.items()}
    tensors[output].zero_()
    result = OPERATIONS[name](torch, tensors, params)()
    if result.data_ptr() != tensors[output].data_ptr():
        tensors[output].zero_()
        tensors[output][: result.numel()].copy_(result.reshape(-1))
    assert passes(name, (buffers, params))


def test_every_kernel_beside_torch_has_an_operation() -> None:
    """A yardstick that the front matter promises is there, and every operation belongs to a reference."""
    named = [kernel for kernel in library().values() if kernel.yardstick == "torch"]
    assert {kernel.verify for kernel in named} >= set(CASES)
    assert {kernel.verify for kernel in named} <= set(OPERATIONS) <= set(verify.REFERENCES)


def test_torch_that_is_missing_or_has_no_gpu_makes_its_rows_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says what to install, or that the torch that is there was built without CUDA."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match="which is not installed: pip install torch"):
        load()
    blind = SimpleNamespace(__version__="2.11", cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", blind)
    with pytest.raises(UnsupportedError, match="torch 2.11 finds no GPU"):
        load()
