"""Ops and layers of what a mask selects: those that go along the axis position by position are computed for all
positions and selected afterwards, those that go across it as NumPy's functions are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.base.errors import TraceError
from tests.graphs import ops_of

W = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
ONE, ZERO = np.ones(4, np.float32), np.zeros(4, np.float32)


class Net(nn.Module):
    """Layers for the rows of a mask, and a table that they look into."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.table = nn.Linear(4, 3), nn.LayerNorm(3), nn.Embedding(7, 3)

    def forward(self, x: Any, m: Any) -> Any:
        rows = x[m]
        return self.norm(self.linear(rows)) + self.table(np.clip(rows[:, 0], 0, 6).astype(np.int64))


def heads(x: Any, m: Any) -> Any:
    q = x[m].reshape(-1, 1, 2, 2)
    return F.scaled_dot_product_attention(q, q, q)


def added(x: Any, m: Any) -> Any:
    (rows,), out = np.nonzero(m), np.zeros_like(x)
    np.add.at(out, rows % 2, np.maximum(x[rows], 0))
    return out


def written(x: Any, m: Any) -> Any:
    (rows,), out = np.nonzero(m), np.zeros_like(x)
    out[rows] = x[m] * 2
    return out


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "activations": lambda x, m: (F.gelu(x[m]), F.silu(x[m]), F.elu(x[x > 0]), F.glu(x[m]), F.softplus(x[m])),
    "norms": lambda x, m: (
        F.layer_norm(x[m], (4,)),
        F.softmax(x[m], -1),
        F.log_softmax(x[m], 1),
        F.normalize(x[m]),
        F.batch_norm(x[m], ZERO, ONE, ONE, ZERO),
        ops.var(x[m], 1),
    ),
    "views": lambda x, m: (
        x[m].reshape(-1),
        x[m].reshape(-1, 2, 2),
        ops.reshape(x[m], (x[m].shape[0], 4, 1)),
        ops.flatten(x[m], 0),
        x[m].transpose(1, 0),
        np.swapaxes(x[m], 0, 1),
        np.moveaxis(x[m][:, None], 2, 0),
        np.expand_dims(x[m], (0, 3)),
        np.squeeze(x[m][:, None], 1),
        ops.expand(x[m][None], (3, x[m].shape[0], 4)),
        ops.pad(x[m], ((0, 0), (1, 1)), 0),
        ops.flip(x[m], 1),
        np.flip(x[m][:, 1]),
        x[m][:, 0],
        x[m][:, ::2],
    ),
    "products": lambda x, m: (
        F.linear(x[m], W),
        ops.matmul(x[m], W.T),
        ops.matmul(x[m].T, x[m]),
        ops.matmul(x[m].reshape(-1, 2, 2), x[m].reshape(-1, 2, 2)),
        ops.einsum([x[m], W], "nd,ed->ne"),
        F.conv1d(x[m][:, None], np.ones((2, 1, 3), np.float32)),
        F.max_pool1d(x[m][:, None], 2),
    ),
    "across the axis": lambda x, m: (
        ops.sum(x[m], axis=0),
        ops.sum(x[m], axis=0, keepdims=True),
        ops.mean(x[m], axis=1, keepdims=True),
        ops.sum(x[m]),
        ops.sort(x[x > 1], axis=0),
        ops.cumsum(x[x > 1], 0),
        ops.concat([x[m], x], 0),
        ops.var(np.concatenate([x[m], x]), 0),
    ),
    "through an expansion": lambda x, m: (
        F.softmax(x[m], 0),
        F.log_softmax(x[m], 0),
        ops.normalize(x[m], axis=0),
        ops.logsumexp(x[m][:, 1], 0),
    ),
    "several": lambda x, m: (
        ops.concat([x[m], x[m]], 1),
        ops.stack([x[m], x[m]], 1),
        ops.split(x[m], (1, 3), 1),
        np.split(x[m], [1], axis=1),
        ops.argtopk(x[m], 2, axis=1),
        np.take_along_axis(x[m], np.argsort(x[m], 1), 1),
        ops.one_hot(np.abs(x[m][:, 1]).astype(np.int64) % 3, 3),
    ),
    "looked up": lambda x, m: (
        ops.take(W, np.abs(x[m][:, 0]).astype(np.int64) % 3, axis=0),
        np.argmax(x[x > 0]),
        np.argmax(x[m], axis=0),
        x[m].argmin(1),
        ops.take(x[m], np.array([1, 0]), axis=1),
    ),
    "layers": Net(),
    "heads": heads,
    "added": added,
    "written": written,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program = PROGRAMS[name]
    module = fx.symbolic_trace(program, x="f32[N,4]", m="bool[N]")
    module.graph.lint()
    x = (np.random.default_rng(1).standard_normal((6, 4)) * 4).astype(np.float32)
    for rung in (fx.Interpreter(module).run, module, fx.compile(module)):
        for m in ([1, 0, 1, 1, 0, 0], [1] * 6):
            _same(rung(x, np.array(m, bool)), program(x, np.array(m, bool)))
        none = np.zeros(6, bool)
        if name == "looked up":  # the position of the largest of no elements
            with pytest.raises((IndexError, ValueError)):
                rung(x, none)
        else:
            _same(rung(x, none), program(x, none))


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        for one, other in zip(found, expected, strict=True):
            _same(one, other)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6, strict=True)


def test_the_kind_of_op_stays() -> None:
    """Layers are one node each, of all rows."""
    module = fx.symbolic_trace(Net(), x="f32[N,4]", m="bool[N]")
    assert {"linear", "layer_norm", "embedding"} <= set(ops_of(module))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, m: ops.matmul(x[m][:, None], x[:, :, None]),
        lambda x, m: ops.matmul(x[m][:, None], x[~m][:, :, None]),
        lambda x, m: ops.concat([x[m], x], 1),
        lambda x, m: ops.tril(x[m]),
        lambda x, m: x[m].reshape(2, -1),
    ],
)
def test_what_stands_beside_other_positions_is_refused(program: Any) -> None:
    """Rows that a mask selects go with no other rows by their number, which all of them would."""
    with pytest.raises(TraceError, match=r"(?s)a boolean mask selects.*test_selected_ops\.py|computed"):
        fx.symbolic_trace(program, x="f32[6,4]", m="bool[6]")
