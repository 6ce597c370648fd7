"""fuse_attention on the ways in which programs spell attention, and what becomes of it in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from tests.graphs import anchors_of, ops_of
from tests.models import MODELS, Bert, traced
from tests.oracle import agree, agree_on_all

OP = "scaled_dot_product_attention"
QKV = ("f32[B,2,T,4]",) * 3


def calls(gm: fx.GraphModule) -> list[fx.Node]:
    return list(gm.graph.find_nodes(op="call_function", target=OP))


def turned(k: Any) -> Any:
    return k.swapaxes(-1, -2)


def scaled_scores(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ turned(k) / 2.0, -1) @ v


def scaled_query(q: Any, k: Any, v: Any) -> Any:
    return F.softmax((0.5 * q) @ turned(k), axis=3) @ v


def constant_scale(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ turned(k) * np.float32(0.5), -1) @ v


def spelt_softmax(q: Any, k: Any, v: Any) -> Any:
    scores = q @ turned(k) * 0.5
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return (e / np.sum(e, axis=-1, keepdims=True)) @ v


def with_dropout(q: Any, k: Any, v: Any) -> Any:
    return F.dropout(F.softmax(q @ turned(k) * 0.5, -1), 0.1, training=False) @ v


def causal_tril(q: Any, k: Any, v: Any) -> Any:
    seen = ops.tril(ops.ones((q.shape[2], k.shape[2]), dtype="bool"))
    return F.softmax(np.where(seen, q @ turned(k) * 0.5, -np.inf), -1) @ v


def causal_triu(q: Any, k: Any, v: Any) -> Any:
    later = ops.triu(ops.ones((q.shape[2], k.shape[2]), dtype="bool"), 1)
    return F.softmax(np.where(later, -np.inf, q @ turned(k) * 0.5), -1) @ v


class CausalBuffer(nn.Module):
    """GPT-2's way: a table of which the first rows and columns are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", np.tril(np.ones((64, 64), bool))[None, None])

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        T = q.shape[2]
        scores = np.where(self.seen[:, :, :T, :T], q @ turned(k) * 0.5, -np.inf)
        return F.softmax(scores, -1) @ v


PLAIN = [scaled_scores, scaled_query, constant_scale, spelt_softmax, with_dropout]
CAUSAL = [causal_tril, causal_triu, CausalBuffer()]


@pytest.mark.parametrize("program", [*PLAIN, *CAUSAL], ids=lambda p: getattr(p, "__name__", "gpt2"))
def test_spellings(program: Callable[..., Any]) -> None:
    gm = fx.symbolic_trace(program, *QKV)
    fused = passes.fuse_attention(gm)
    (call,) = calls(fused)
    assert call.kwargs.get("is_causal", False) is (program in CAUSAL)
    assert call.kwargs["scale"] == 0.5
    fused = passes.dce(fused)
    others = set(ops_of(fused)) - {OP}
    assert not others, "nothing else is left"


def masked_arrays() -> list[Any]:
    """Queries, keys, values, and a mask with a row that is masked whole and one that is not masked at all."""
    rng = np.random.default_rng(0)
    arrays: list[Any] = [rng.standard_normal((2, 2, 5, 4)).astype(np.float32) for _ in range(3)]
    mask = rng.random((2, 1, 5, 5)) < 0.5
    mask[0, 0, 3], mask[1, 0, 2] = False, True
    return [*arrays, mask]


def test_masks_keep_their_meaning_for_rows_without_anything() -> None:
    """A softmax over nothing is NaN, what the op gives with empty_rows="nan"."""

    def choose(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.softmax(np.where(mask, q @ turned(k), -np.inf), -1) @ v

    def choose_other(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.softmax(np.where(mask, -np.inf, q @ turned(k)), -1) @ v

    *arrays, mask = masked_arrays()
    for program in (choose, choose_other):
        gm = fx.symbolic_trace(program, *QKV, "bool[B,1,T,T]")
        assert calls(passes.fuse_attention(gm))[0].kwargs["empty_rows"] == "nan"
        with np.errstate(all="ignore"):
            agree(program, *arrays, mask, types=(*QKV, "bool[B,1,T,T]"))


@pytest.mark.parametrize("number", [-1e9, -2.0, float(np.finfo(np.float32).min)])
def test_masked_scores_may_become_a_number(number: float) -> None:
    """A row that is masked whole then averages all values, and a score of -2 still weighs."""

    def choose(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.softmax(np.where(mask, q @ turned(k), number), -1) @ v

    def choose_other(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.softmax(np.where(mask, number, q @ turned(k)), -1) @ v

    def later(q: Any, k: Any, v: Any, mask: Any) -> Any:
        seen = ops.tril(ops.ones((q.shape[2], k.shape[2]), dtype="bool"))
        return F.softmax(np.where(seen, q @ turned(k), number), -1) @ np.where(mask[..., :1], v, 0)

    *arrays, mask = masked_arrays()
    for program in (choose, choose_other, later):
        gm = fx.symbolic_trace(program, *QKV, "bool[B,1,T,T]")
        (call,) = calls(passes.fuse_attention(gm))
        assert call.kwargs["masked_score"] == number and "is_causal" not in call.kwargs
        agree(program, *arrays, mask, types=(*QKV, "bool[B,1,T,T]"))


def test_several_masks_become_one() -> None:
    def both(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        return F.softmax(np.where(mask, q @ turned(k) * 0.5 + bias, -np.inf), -1) @ v

    def before(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        return F.softmax(bias + np.where(~mask, -np.inf, q @ turned(k)), -1) @ v

    def added(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        return F.softmax(q @ turned(k) + bias + np.where(mask, np.float32(0), np.float32(-100)), -1) @ v

    def chosen(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        kept = np.where(bias > -1, np.where(mask, q @ turned(k), -np.inf), -np.inf)
        return F.softmax(kept, -1) @ v

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 2, 5, 4)).astype(np.float32) for _ in range(3)]
    mask, bias = rng.random((2, 1, 5, 5)) < 0.7, rng.standard_normal((2, 5, 5)).astype(np.float32)
    mask[..., 0], bias[..., 0] = True, 0
    types = (*QKV, "bool[B,1,T,T]", "f32[2,T,T]")
    for program in (both, before, added, chosen):
        assert len(calls(passes.fuse_attention(fx.symbolic_trace(program, *types)))) == 1, program.__name__
        agree(program, *arrays, mask, bias, types=types)


def test_windows_of_images_have_a_mask_each() -> None:
    """As in Swin: batch axes are parted for the mask and joined again."""

    def windows(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        scores = q * 0.5 @ turned(k) + bias
        scores = scores.reshape(q.shape[0] // 3, 3, 2, 5, 5) + mask.reshape(1, 3, 1, 5, 5)
        return F.softmax(scores.reshape(q.shape[0], 2, 5, 5), -1) @ v

    def parted(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        scores = (q @ turned(k)).reshape(-1, 2, 5, 5) + bias
        return F.softmax(scores + np.where(mask[0, 0, 0] > 0, np.float32(1), np.float32(0)), -1) @ v.reshape(
            -1, 2, 5, 4
        )

    rng = np.random.default_rng(0)
    mask, bias = (rng.standard_normal(s).astype(np.float32) for s in ((3, 1, 5, 5), (2, 5, 5)))
    for batch in (1, 2):
        arrays = [rng.standard_normal((3 * batch, 2, 5, 4)).astype(np.float32) for _ in range(3)]
        others = [a.reshape(batch, 3, 2, 5, 4) for a in arrays]
        for first in (3 * batch, "3*B"):
            types = (*(f"f32[{first},2,5,4]",) * 3, "f32[3,1,5,5]", "f32[2,5,5]")
            gm = passes.fuse_attention(fx.symbolic_trace(windows, *types))
            (call,) = calls(gm)
            assert call.type.rank == 5 and "softmax" not in str(gm.graph)
            agree(windows, *arrays, mask, bias, types=types)
        types = (*("f32[B,3,2,5,4]",) * 3, "f32[3,1,5,5]", "f32[2,5,5]")
        assert not calls(passes.fuse_attention(fx.symbolic_trace(parted, *types)))
        agree(parted, *others, mask, bias, types=types)


def test_a_factor_for_each_head() -> None:
    """As in Swin V2: scores are cosines, times a learned number."""

    def cosines(q: Any, k: Any, v: Any, scale: Any, mask: Any) -> Any:
        scores = (q @ turned(k)) * np.exp(scale)
        scores = (scores * 2).reshape(q.shape[0] // 3, 3, 2, 5, 5) + mask
        return F.softmax(scores.reshape(q.shape[0], 2, 5, 5), -1) @ v

    def of_rows(q: Any, k: Any, v: Any, scale: Any, mask: Any) -> Any:
        return F.softmax(q @ turned(k) * np.exp(scale[..., :1]) * mask[0, :1, 0, :, :1], -1) @ v

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((6, 2, 5, 4)).astype(np.float32) for _ in range(3)]
    scale, mask = (rng.standard_normal(s).astype(np.float32) for s in ((2, 1, 1), (1, 3, 1, 5, 5)))
    types = (*("f32[3*B,2,5,4]",) * 3, "f32[2,1,1]", "f32[1,3,1,5,5]")
    (call,) = calls(passes.fuse_attention(fx.symbolic_trace(cosines, *types)))
    assert call.kwargs["scale"] == 2
    agree(cosines, *arrays, scale, mask, types=types)
    assert not calls(passes.fuse_attention(fx.symbolic_trace(of_rows, *types)))
    agree(of_rows, *arrays, scale, mask, types=types)


def double_scores(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ turned(k) / np.sqrt(4.0), -1) @ v


def scores_read_twice(q: Any, k: Any, v: Any) -> Any:
    scores = q @ turned(k)
    return F.softmax(scores, -1) @ v, scores.max()


def two_finite(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
    return F.softmax(np.where(mask, q @ turned(k) + bias, -1e9), -1) @ v


def finite_outside(q: Any, k: Any, v: Any, mask: Any, other: Any) -> Any:
    scores = np.where(other, q @ turned(k), -np.inf)
    return F.softmax(np.where(mask, scores, -1e9), -1) @ v


WINDOWS = ("f32[3*B,2,5,4]",) * 3


def joined_windows(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Batch axes that are parted in two ways, each with a mask."""
    scores = (q @ turned(k)).reshape(-1, 3, 2, 5, 5) + mask
    scores = scores.reshape(3, -1, 2, 5, 5) + np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1, 1)
    return F.softmax(scores.reshape(-1, 2, 5, 5), -1) @ v


def over_queries(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ turned(k), 2) @ v


@pytest.mark.parametrize(
    ("program", "types", "reason"),
    [
        (double_scores, QKV, "several dtypes, f32 and f64"),
        (scores_read_twice, QKV, "matmul is read by max too"),
        (two_finite, (*QKV, "bool[T,T]", "f32[T,T]"), "several masks"),
        (finite_outside, (*QKV, "bool[T,T]", "bool[T,T]"), "one of them chooses -1000"),
        (joined_windows, (*WINDOWS, "f32[B,1,1,5,5]"), "does not fit the batch axes"),
        (scaled_scores, ("f16[2,T,4]",) * 3, "f16 would be rounded elsewhere"),
        (over_queries, QKV, ""),
    ],
)
def test_refusals(program: Callable[..., Any], types: tuple[str, ...], reason: str) -> None:
    gm = passes.fuse_attention(fx.symbolic_trace(program, *types))
    assert not calls(gm)
    said = [r.reason for r in passes.ledger(gm)]
    assert any(reason in r for r in said) if reason else not said


def qkv_in_one(x: Any, w: Any) -> Any:
    B, T, width = x.shape
    q, k, v = (p.reshape(B, T, 4, 8).transpose(0, 2, 1, 3) for p in np.split(x @ w, 3, axis=-1))
    mixed = F.softmax(q @ turned(k) * 0.25, -1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(B, T, width) + x


def test_in_c_heads_are_read_in_place_and_the_result_goes_where_it_is_read() -> None:
    types = ("f32[B,T,32]", "f32[32,96]")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 96)).astype(np.float32) * 0.2
    inputs = [rng.standard_normal((B, T, 32)).astype(np.float32) for B, T in ((2, 5), (1, 40), (3, 1), (0, 4))]
    agree_on_all(qkv_in_one, [(x, w) for x in inputs], types=types)
    made = fx.compile(qkv_in_one, *types, backend="c")
    product, attention = made.kernels
    assert attention.anchor is not None and attention.anchor.target.name == OP
    assert {n.name for n in attention.reads} == {product.root.name, "x"}, "no copies"


def test_in_c_no_matrix_of_scores_is_in_memory() -> None:
    block, encoder = (traced("gpt_block"), fx.symbolic_trace(Bert(layers=2).eval(), *MODELS["bert"][1]))
    for model, layers in ((block, 1), (encoder, 2)):
        made = fx.compile(model, backend="c")
        anchors = anchors_of(made)
        assert anchors.count(OP) == layers and "matmul" not in anchors
        small, large = (made.workspace_bytes({"B": 1, "T": T}) for T in (64, 128))
        assert large < 2.1 * small, "it grows as T does"


@pytest.mark.parametrize("length", [1, 3])
def test_decoding_with_a_cache(length: int) -> None:
    def decode(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.softmax(q @ turned(k) * 0.3 + mask, -1) @ v

    rng = np.random.default_rng(1)
    types = (f"f32[B,2,{length},8]", "f32[B,2,S,8]", "f32[B,2,S,6]", "f32[S]")
    sets = []
    for batch, keys in ((1, 700), (2, 3)):
        shapes = ((batch, 2, length, 8), (batch, 2, keys, 8), (batch, 2, keys, 6), (keys,))
        arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        arrays[3][::2] = -1e9
        sets.append(arrays)
    agree_on_all(decode, sets, types=types)


def test_operands_with_zeros_put_in_are_not_read_in_place() -> None:
    """A template reads memory: the zeros of tril and pad are not there."""
    rng = np.random.default_rng(2)
    x, k = (rng.standard_normal(s).astype(np.float32) for s in ((3, 4), (6, 4)))
    agree(lambda x, k: np.tril(x) @ k.T, x, k)

    def attend(x: Any, k: Any) -> Any:
        padded = np.pad(k, ((1, 0), (0, 0)))
        return F.scaled_dot_product_attention(x, padded, np.tril(padded))

    agree(attend, x, k)
