"""Rewrites that hold, as patterns and replacements: the pool that rewrites are drawn from.

Each becomes a rule and an argument pair of ``replace_pattern``. What does not hold for a type
(``x * 2`` is ``x + x``, but not for bool) is refused by the rewriter, which is tried here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.passes import Rule, rule
from fxlite.passes.rewrite.predicates import is_bool, is_float, is_integer, rank


@dataclass(frozen=True)
class Identity:
    """``pattern`` equals ``replacement`` where ``condition`` (of the same parameters) holds."""

    name: str
    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    exactness: str = "exact"
    condition: Callable[..., Any] | None = None

    @functools.cached_property
    def rule(self) -> Rule:
        """As a rule, which is a pass."""
        made = rule(name=self.name, exactness=self.exactness, register=False)(self.pattern)
        made.replacement(self.replacement)
        if self.condition is not None:
            made.where(self.condition)
        return made


def _has_axes(x: Any) -> bool:
    return bool(rank(x))


def _is_number(x: Any) -> bool:
    return is_float(x) or is_integer(x)


def _are_tensors(a: Any, b: Any) -> bool:
    return isinstance(a, Node) and isinstance(b, Node)


def _concat_in_parts(xs: Any, axis: int) -> Any:
    return np.concatenate((np.concatenate(xs[:1], axis=axis), *xs[1:]), axis=axis)


IDENTITIES = (
    Identity("commuted add", lambda x, y: x + y, lambda x, y: y + x),
    Identity("commuted mul", lambda x, y: x * y, lambda x, y: y * x),
    Identity("twice", lambda x: x * 2, lambda x: x + x, "exact", _is_number),
    Identity("minus is plus neg", lambda x, y: x - y, lambda x, y: x + -y, "exact", _are_tensors),
    Identity("neg neg", lambda x: np.exp(x), lambda x: np.exp(np.negative(-x)), "exact", is_float),
    Identity("relu as maximum", lambda x: F.relu(x), lambda x: np.maximum(0, x)),
    Identity("relu as where", lambda x: F.relu(x), lambda x: np.where(x <= 0, x * 0, x), "exact", is_integer),
    Identity("square", lambda x: np.square(x), lambda x: x * x, "exact", _is_number),
    Identity("less", lambda x, y: x < y, lambda x, y: y > x),
    Identity("at least", lambda x, y: x >= y, lambda x, y: y <= x),
    Identity("not equal", lambda x, y: x == y, lambda x, y: np.logical_not(x != y)),
    Identity(
        "where swapped",
        lambda c, x, y: np.where(c, x, y),
        lambda c, x, y: np.where(np.logical_not(c), y, x),
        "exact",
        lambda c, x, y: is_bool(c),
    ),
    Identity("de Morgan", lambda a, b: a & b, lambda a, b: ~(~a | ~b), "exact", _are_tensors),
    Identity("xor", lambda a, b: a ^ b, lambda a, b: (a | b) & ~(a & b), "exact", _are_tensors),
    Identity(
        "integers around",
        lambda x, y: x + y,
        lambda x, y: ((x + y) + x) - x,
        "exact",
        lambda x, y: is_integer(x) and is_integer(y),
    ),
    Identity("flip twice", lambda x: np.tanh(x), lambda x: np.flip(np.tanh(np.flip(x, 0)), 0), "exact", _has_axes),
    Identity("flat", lambda x: np.abs(x), lambda x: np.abs(x.reshape(-1)).reshape(x.shape)),
    Identity("unsqueezed", lambda x: -x, lambda x: (-x[None])[0], "exact", _has_axes),
    Identity(
        "transposed",
        lambda x, y: np.maximum(x, y),
        lambda x, y: np.maximum(x.T, y.T).T,
        "exact",
        lambda x, y: rank(x) == 2 and rank(y) == 2,
    ),
    Identity("stack is concat", lambda *xs: np.stack(xs), lambda *xs: np.concatenate([x[None] for x in xs])),
    Identity(
        "concat in parts", lambda *xs, axis: np.concatenate(xs, axis=axis), lambda *xs, axis: _concat_in_parts(xs, axis)
    ),
    Identity(
        "sum keeps axis",
        lambda x, *, axis: np.sum(x, axis=axis),
        lambda x, *, axis: np.sum(x, axis=axis, keepdims=True).squeeze(axis),
        "exact",
        lambda x, *, axis: isinstance(axis, int),
    ),
    Identity("sum of sums", lambda x: np.sum(x), lambda x: np.sum(np.sum(x, axis=0)), "allclose", _has_axes),
    Identity("linear as matmul", lambda x, w, b: F.linear(x, w, b), lambda x, w, b: x @ w.T + b, "allclose"),
    Identity(
        "matmul transposed",
        lambda x, y: x @ y,
        lambda x, y: (y.T @ x.T).T,
        "allclose",
        lambda x, y: rank(x) == 2 and rank(y) == 2,
    ),
    Identity(
        "softmax as log",
        lambda x, *, axis: F.softmax(x, axis),
        lambda x, *, axis: np.exp(F.log_softmax(x, axis)),
        "allclose",
    ),
    Identity("silu", lambda x: F.silu(x), lambda x: x * F.sigmoid(x), "allclose"),
    Identity(
        "permute and flips",
        lambda x, *, axes: ops.permute(x, axes),
        lambda x, *, axes: np.flip(np.flip(ops.permute(x, axes), 0), 0),
        "exact",
        lambda x, *, axes: bool(rank(x)),
    ),
)
