"""integer_products: what a program that was quantized elsewhere computes is computed with its integers, within the
rounding of float sums, and C has the same bits as the graph; what is not of integers stays as it is, with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.passes import quantize as q
from tests.graphs import ops_of

RNG = np.random.default_rng(0)
SCALES = RNG.uniform(0.001, 0.01, 16).astype(np.float32)
ROWS = RNG.integers(-127, 128, (16, 32)).astype(np.int8)
WINDOWS = RNG.integers(-127, 128, (16, 8, 3, 3)).astype(np.int8)
BIAS = RNG.standard_normal(16).astype(np.float32)


class Stored(nn.Module):
    """A program that reads stored weights."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program
        for name, array in {"rows": ROWS, "windows": WINDOWS, "scales": SCALES, "columns": ROWS.T.copy()}.items():
            self.register_buffer(name, array)

    def forward(self, x: Any) -> Any:
        return self.program(self, x)


def stored(x: Any, point: int = 120) -> Any:
    return ops.dequantize(ops.quantize(x, 0.05, point, "u8"), 0.05, point)


PROGRAMS = {
    "linear": (
        "f32[B,T,32]",
        lambda m, x: F.relu(ops.linear(stored(x), ops.dequantize(m.rows, m.scales[:, None]), BIAS)),
    ),
    "one scale": (
        "f32[B,32]",
        lambda m, x: ops.linear(stored(x), ops.dequantize(m.rows, np.float32(0.01), np.int8(0))),
    ),
    "matmul": ("f32[B,32]", lambda m, x: stored(x) @ ops.dequantize(m.columns, m.scales, np.full(16, 5, np.int8))),
    "each token": (
        "f32[B,T,32]",
        lambda m, x: ops.linear(ops.dequantize(*_tokens(x)), ops.dequantize(m.rows, m.scales[:, None]), BIAS),
    ),
    "both computed": ("f32[B,32,32]", lambda m, x: stored(x) @ ops.dequantize(*_tokens(x.mT, -2))),
    "conv2d": (
        "f32[B,8,9,9]",
        lambda m, x: ops.conv2d(
            stored(x), ops.dequantize(m.windows, m.scales[:, None, None, None]), BIAS, padding=1, stride=2
        ),
    ),
    "groups": (
        "f32[B,16,5,5]",
        lambda m, x: ops.conv2d(stored(x), ops.dequantize(m.windows, np.float32(0.01)), BIAS, groups=2, dilation=2),
    ),
}


def _tokens(x: Any, axis: int = -1) -> tuple[Any, Any]:
    scale = ops.dynamic_scale(x, axis=axis, keepdims=True)
    return ops.quantize(x, scale), scale


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_of_integers(name: str) -> None:
    type, program = PROGRAMS[name]
    gm = fx.symbolic_trace(Stored(program), type)
    made = q.integer_products(gm)
    targets = ops_of(made)
    assert {"linear", "matmul", "conv2d"}.isdisjoint(targets), made.graph
    assert sum(t.startswith("int_") for t in targets) == 1
    shape = [d if isinstance(d, int) else 3 for d in gm.graph.placeholders[0].type.shape]
    x = RNG.standard_normal(shape).astype(np.float32) * 3
    expected = gm(x)
    np.testing.assert_allclose(made(x), expected, 1e-4, 1e-5 * np.abs(expected).max())
    np.testing.assert_array_equal(fx.compile(made)(x), made(x))


#: Programs that stay as they are, and what the ledger says of them.
KEPT = {
    "a zero point of the weight": (
        lambda m, x: ops.linear(stored(x), ops.dequantize(m.rows, m.scales[:, None], np.int8(3))),
        "which must be 0",
    ),
    "several zero points": (
        lambda m, x: stored(x) @ ops.dequantize(m.columns, m.scales, np.arange(16).astype(np.int8)),
        "several zero points",
    ),
    "scales along what is summed": (
        lambda m, x: ops.linear(stored(x), ops.dequantize(m.rows, np.linspace(0.1, 0.2, 32, dtype=np.float32))),
        "differs along an axis that is summed",
    ),
    "an operand of floats": (lambda m, x: ops.linear(x, ops.dequantize(m.rows, m.scales[:, None])), ""),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_products_stay(name: str) -> None:
    program, reason = KEPT[name]
    gm = fx.symbolic_trace(Stored(program), "f32[B,32]")
    made = q.integer_products(gm)
    assert reason in " ".join(refusal.reason for refusal in passes.ledger(made))
    assert not any(n.target.name.startswith("int_") for n in made.graph.nodes if n.op == "call_function")
    x = RNG.standard_normal((3, 32)).astype(np.float32)
    np.testing.assert_array_equal(made(x), gm(x))
    made.graph.lint()


def test_sums_of_a_named_length_stay() -> None:
    gm = fx.symbolic_trace(lambda x: stored(x) @ stored(x.T), "f32[B,K]")
    assert "may overflow" in next(iter(passes.ledger(q.integer_products(gm)))).reason
