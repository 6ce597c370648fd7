"""Ops that a program registers with ``fx.op``: one of each sort. A module that saved graphs and
regenerated source name."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite as fx


@fx.op
def swiglu(x: fx.Tensor, gate: fx.Tensor, beta: float = 1.0) -> Any:
    """``x * gate * sigmoid(beta * gate)``."""
    return x * gate / (1 + np.exp(-beta * gate))


@swiglu.scalar
def _(x: Any, gate: Any, beta: float = 1.0) -> Any:
    return x * gate / (1 + fx.expr.exp(-beta * gate))


@fx.op
def skew(x: fx.Tensor) -> Any:
    """Row i of a matrix, turned left by i places."""
    rows, columns = np.indices(x.shape)
    return x[rows, (rows + columns) % max(x.shape[1], 1)]


@skew.infer
def _(x: Any) -> Any:
    if x.rank != 2:
        raise fx.errors.ShapeError(f"skew takes a matrix, not {x}")
    return x


@skew.body
def _(i: Any, x: Any) -> Any:
    row, column = i
    return x[row, (row + column) % x.shape[1]]


@fx.op
def rms(x: np.ndarray[Any, Any], axis: int = -1) -> Any:
    """``x`` over its root mean square along ``axis``."""
    return x / np.sqrt((x * x).mean(axis=axis, keepdims=True))


rms.expansion(rms.reference)


@fx.op
def extent(x: fx.Tensor) -> Any:
    """Largest and smallest number of each row."""
    return x.max(axis=-1), x.min(axis=-1)


extent.expansion(extent.reference)


@fx.op
def flipped(x: fx.Tensor) -> Any:
    """Twice ``x``, with the last axis backwards. (A reference alone, which can be traced.)"""
    return 2 * x[..., ::-1]


@fx.op(infer=lambda x: x)
def one_by_one(x: fx.Tensor) -> Any:
    """``x + 1``, by a loop that cannot be traced."""
    return np.array([float(v) + 1 for v in x.ravel()], x.dtype).reshape(x.shape)


def on_all_back_ends(x: Any, gate: Any) -> Any:
    """A program of those ops that every back end runs."""
    largest, smallest = extent(x)
    return skew(rms(swiglu(x, gate, beta=2.0), axis=1)) + (largest - smallest)[:, None]


def in_python(x: Any, gate: Any) -> Any:
    """A program of all of them."""
    return one_by_one(flipped(on_all_back_ends(x, gate)))
