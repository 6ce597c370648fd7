"""The part of :mod:`fxlite.nn.functional` with losses, dropout, attention and lookups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.errors import ArgumentError
from fxlite.ops.composite import created

Tensor = Any


# -- losses ----------------------------------------------------------------------------------------
def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor = None, *, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross entropy of softmax(x) [N, C, ...] and class numbers [N, ...] or probabilities."""
    return ops.cross_entropy(
        x, target, weight, ignore_index=ignore_index, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor = None, *, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``-x[target]`` of log-probabilities x [N, C, ...]."""
    return ops.nll_loss(x, target, weight, ignore_index=ignore_index, reduction=reduction)


def mse_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """``(x - target)**2``, reduced."""
    return ops.mse_loss(x, target, reduction=reduction)


def l1_loss(x: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """``|x - target|``, reduced."""
    return ops.l1_loss(x, target, reduction=reduction)


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor = None, *, reduction: str = "mean",
    pos_weight: Tensor = None,
) -> Tensor:  # fmt: skip
    """Cross entropy of sigmoid(x) and ``target``."""
    return ops.binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction=reduction)


# -- dropout ---------------------------------------------------------------------------------------
def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise ArgumentError(f"the dropout probability must be between 0 and 1, not {p}")
    return p


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element 0 with probability ``p``, else scaled by ``1 / (1 - p)``; ``x`` itself (no node
    in a graph) unless ``training``."""
    return ops.dropout(x, p=p) if training and _probability(p) else x


def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of x [N, C, L] or [C, L] set to 0, each with probability ``p``."""
    return _channels(x, p, training, 1)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of x [N, C, H, W] or [C, H, W] set to 0, each with probability ``p``."""
    return _channels(x, p, training, 2)


def _channels(x: Tensor, p: float, training: bool, spatial: int) -> Tensor:
    if not (training and _probability(p)):
        return x
    shape = (*x.shape[:-spatial], *(1,) * spatial)
    return x * ops.dropout(created(x, ops.ones, shape, dtype=x.dtype), p=p)


# -- attention and lookups -------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """``softmax(query @ key.T * scale + mask) @ value`` over [..., L, E], [..., S, E], [..., S, V].

    A bool mask keeps where True. With ``dropout_p`` the weights are dropped out, which takes the
    attention apart into softmax, dropout and matmul."""
    if not _probability(dropout_p):
        return ops.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale
        )
    if is_causal:
        attn_mask = causal_mask(query, key)
    weights = attention_weights(query, key, attn_mask, scale)
    return ops.matmul(ops.dropout(weights, p=dropout_p), value)


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """True [L, S] where the key's position is not after the query's."""
    return ops.tril(created(query, ops.ones, (query.shape[-2], key.shape[-2]), dtype="bool"))


def attention_weights(
    query: Tensor, key: Tensor, attn_mask: Tensor = None, scale: float | None = None
) -> Tensor:
    """``softmax(query @ key.T * scale + mask)``: [..., L, E], [..., S, E] -> [..., L, S]."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rank = key.ndim
    transposed = ops.permute(key, (*range(rank - 2), rank - 1, rank - 2))
    scores = ops.matmul(query * factor, transposed)
    if attn_mask is not None:
        keep = np.dtype(attn_mask.dtype) == np.bool_
        scores = ops.where(attn_mask, scores, -math.inf) if keep else scores + attn_mask
    return ops.softmax(scores, axis=-1)


def embedding(x: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of ``weight`` [N, D] at integers x [...]: [..., D]. ``padding_idx`` has no effect
    here."""
    return ops.embedding(x, weight)


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """1 at position ``x`` along a new last axis of size ``num_classes``, an int64. The number of
    classes must be given: it would depend on values."""
    if num_classes < 0:
        raise ArgumentError("one_hot needs num_classes; it cannot depend on the values of x")
    return ops.one_hot(x, num_classes=num_classes)
