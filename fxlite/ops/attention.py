"""Attention: softmax(Q K^T * scale + mask) V as one op, which back ends compute as a whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.ops.composite import composite, created, number
from fxlite.ops.op import OptionalTensor, Tensor, broadcast_shapes, ops, require_float
from fxlite.ops.samples import Bad, S
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType

#: The result of a row in which the mask leaves nothing.
EMPTY_ROWS = ("zero", "nan")


def _infer(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    empty_rows: str,
    masked_score: float,
    **others: Any,
) -> TensorType:
    for name, operand in (("query", query), ("key", key), ("value", value)):
        require_float(operand, name)
        if operand.rank < 2:
            raise ShapeError(f"{name} must be [..., length, features], not {operand}")
        if operand.dtype is not query.dtype:
            raise DTypeError(f"query, key and value must have one dtype, not {query.dtype} and {operand.dtype}")
    if not shapes.equal(query.shape[-1], key.shape[-1]):
        raise ShapeError(f"query {query} and key {key} must have the same number of features (last axis)")
    if not shapes.equal(key.shape[-2], value.shape[-2]):
        raise ShapeError(f"key {key} and value {value} must have the same length (axis -2)")
    if empty_rows not in EMPTY_ROWS:
        raise ArgumentError(f"empty_rows must be one of {EMPTY_ROWS}, not {empty_rows!r}")
    batch = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    if masked_score != -math.inf and (attn_mask is None or not attn_mask.dtype.is_bool):
        raise ArgumentError(f"masked_score={masked_score} needs a bool attn_mask")
    if attn_mask is not None:
        if is_causal:
            raise ArgumentError("give attn_mask or is_causal, not both")
        if not (attn_mask.dtype.is_bool or attn_mask.dtype.is_float):
            raise DTypeError(f"attn_mask must be bool or float, not {attn_mask}")
        scores = (*batch, query.shape[-2], key.shape[-2])
        if not shapes.shapes_equal(broadcast_shapes(scores, attn_mask.shape), scores):
            raise ShapeError(f"attn_mask {attn_mask} does not broadcast to the scores ({scores})")
    return TensorType((*batch, query.shape[-2], value.shape[-1]), query.dtype)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: Any, empty_rows: str, masked_score: float
) -> Any:
    if scale is None:
        width = query.shape[-1]
        if isinstance(width, int):
            scores = ops.matmul(query * (1 / math.sqrt(max(width, 1))), _swap(key))
        else:
            scores = ops.matmul(query * ops.rsqrt(number(width, query.dtype)), _swap(key))
    else:
        scores = ops.matmul(query * scale, _swap(key))
    if is_causal:
        keep = ops.tril(created(query, ops.ones, (query.shape[-2], key.shape[-2]), dtype="bool"))
        scores = ops.where(keep, scores, -math.inf)
    elif attn_mask is not None:
        masked = np.dtype(attn_mask.dtype) == np.bool_
        scores = ops.where(attn_mask, scores, masked_score) if masked else scores + attn_mask
    weights = ops.softmax(scores, axis=-1)
    if attn_mask is not None and empty_rows == "zero":
        nothing = ops.max(scores, axis=-1, keepdims=True) == -math.inf
        weights = ops.where(nothing, 0.0, weights)
    return ops.matmul(weights, value)


def _swap(x: Any) -> Any:
    """The last two axes exchanged."""
    rank = x.ndim
    return ops.permute(x, (*range(rank - 2), rank - 1, rank - 2))


_QKV = ("f32[B,2,T,8]", "f32[B,2,T,8]", "f32[B,2,T,8]")


@composite(
    opened_in=("static",),
    reads_views=True,
    infer=_infer,
    expansion=_attention,
    first="query",
    samples=[
        S(*_QKV, dims={"B": 2, "T": 5}),
        S(*_QKV, is_causal=True, dims={"B": 2, "T": 5}),
        "f32[3,4] f32[5,4] f32[5,6]; f32[3,4] f32[5,4] f32[5,6] is_causal=True",
        "f32[2,3,4] f32[2,5,4] f32[2,5,4] bool[3,5] scale=0.3; f32[2,2,3,4] f32[2,2,5,4] f32[2,2,5,4] f32[2,1,3,5]",
        "f32[B,T,4] f32[B,T,4] f32[B,T,4] bool[B,1,T] B=9 T=2",
        "f32[B,T,4] f32[B,T,4] f32[B,T,4] bool[B,1,T] empty_rows='nan' B=9 T=2",
        "f32[B,T,4] f32[B,T,4] f32[B,T,4] bool[B,1,T] masked_score=-1000000000.0 B=9 T=2",
        "f64[2,3,4] f64[2,5,4] f64[2,5,4]; f16[3,4] f16[5,4] f16[5,4]; bf16[3,8] bf16[5,8] bf16[5,8] f32[3,5]",
        "f32[B,3,D] f32[B,4,D] f32[B,4,D] B=2 D=5; f32[0,3,4] f32[0,5,4] f32[0,5,4]",
    ],
    bad=[
        Bad("f32[3,4]", "f32[5,6]", "f32[5,6]", match="number of features"),
        Bad("f32[3,4]", "f32[5,4]", "f32[6,4]", match="same length"),
        Bad("f32[3,4]", "f64[5,4]", "f64[5,4]", match="one dtype"),
        Bad("f32[3,4]", "f32[5,4]", "f32[5,4]", "bool[3,5]", is_causal=True, match="not both"),
        Bad("f32[3,4]", "f32[5,4]", "f32[5,4]", "bool[2,3,5]", match="does not broadcast"),
        Bad("f32[3,4]", "f32[5,4]", "f32[5,4]", "i32[3,5]", match="bool or float"),
        Bad("f32[3,4]", "f32[5,4]", "f32[5,4]", masked_score=-1e9, match="needs a bool attn_mask"),
        Bad("f32[3,4]", "f32[5,4]", "f32[5,4]", empty_rows="inf", match="empty_rows"),
    ],
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: OptionalTensor = None,
    is_causal: bool = False,
    scale: float | None = None,
    empty_rows: str = "zero",
    masked_score: float = -math.inf,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``: query [..., L, E], key [..., S, E], value
    [..., S, V] -> [..., L, V].

    ``attn_mask`` broadcasts to [..., L, S]. A bool mask keeps scores where it is True and replaces the
    others by ``masked_score``; a float mask is added. A row in which all scores are -inf gives zeros, as
    in torch, or with ``empty_rows="nan"`` NaN, as a softmax does. ``is_causal`` masks key positions after
    that of the query. If ``scale`` is None, it is 1/sqrt(E)."""
    wide = [v.astype(np.float64) for v in (query, key, value)]
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    scores = factor * (wide[0] @ wide[1].swapaxes(-1, -2))
    # Scores are sums in the dtype of the computation; a score that overflows there is infinite.
    held = dtypes.dtype(query.dtype).compute.numpy
    sums = (query * factor).astype(held) @ key.astype(held).swapaxes(-1, -2)
    scores = np.where(np.isfinite(sums), scores, sums)
    if is_causal:
        scores[..., np.tri(*scores.shape[-2:]) == 0] = -np.inf
    elif attn_mask is not None:
        keep = attn_mask.dtype == np.bool_
        scores = np.where(attn_mask, scores, masked_score) if keep else scores + attn_mask
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = e.sum(axis=-1, keepdims=True)
    weights = e / total
    if attn_mask is not None and empty_rows == "zero":
        weights = np.where(total == 0, 0, weights)
    return weights @ wide[2]
