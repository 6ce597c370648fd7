"""FLOPs against formulas written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.base.errors import GraphError
from fxlite.passes.costing.cost_report import flops, flops_by_node
from fxlite.passes.rules.decompose import decompose
from fxlite.types.shapes import parse, substitute


def count(program: Any, *types: str) -> Any:
    return flops(fx.symbolic_trace(program, *types))


@pytest.mark.parametrize(
    ("program", "types", "expected"),
    [
        (lambda x, y: x @ y, ["f32[3,4]", "f32[4,5]"], 2 * 3 * 4 * 5),
        (lambda x, y: x @ y, ["f32[M,K]", "f32[K,N]"], "2*M*N*K"),
        (lambda x, y: x @ y, ["f32[B,H,T,D]", "f32[B,H,D,T]"], "2*B*H*T*T*D"),
        (lambda x, y: x @ y, ["f32[7]", "f32[7]"], 14),
        (lambda x: x + 1, ["f32[B,3]"], "3*B"),
        (lambda x: np.exp(x) * x, ["f32[N]"], "2*N"),
        *(
            (f, ["i32[N]", "i32[N]"], "N")
            for f in (np.add, np.left_shift, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
        ),
        (lambda x: ~x, ["u8[N]"], "N"),
        *((f, ["bool[N]", "bool[N]"], 0) for f in (np.bitwise_and, np.logical_or, np.bitwise_xor)),
        (lambda x: x.sum(axis=1), ["f32[B,T]"], "B*T"),
        (lambda x: x.reshape(-1).transpose(), ["f32[B,T]"], 0),
        (lambda x: x.astype("float64"), ["f32[B]"], 0),
        (lambda x, w: F.conv2d(x, w), ["f32[B,3,8,8]", "f32[16,3,3,3]"], "2*B*16*6*6*3*9"),
        (lambda x, w: F.conv2d(x, w, padding=1, stride=2, groups=2), ["f32[B,4,8,8]", "f32[6,2,3,3]"], "2*B*6*4*4*2*9"),
        (lambda x, w, b: F.linear(x, w, b), ["f32[B,T,8]", "f32[5,8]", "f32[5]"], "B*T*5*(2*8 + 1)"),
        # max, subtract, exp, sum, divide
        (lambda x: F.softmax(x, dim=1), ["f32[B,10]"], "50*B"),
        (lambda x, w: F.embedding(x, w), ["i64[B]", "f32[100,8]"], 0),
        (lambda x: ops.einsum((x, x), "ij,kj->ik"), ["f32[5,3]"], 2 * 5 * 5 * 3),
        (lambda x: F.max_pool2d(x, 2), ["f32[1,1,4,4]"], 16),
        (lambda x, i, y: ops.scatter_add(x, i, y, axis=0), ["f32[N,4]", "i64[M,4]", "f32[M,4]"], "4*M"),
        (lambda x, i, y: ops.scatter_set(x, i, y, axis=0), ["f32[N,4]", "i64[M,4]", "f32[M,4]"], 0),
    ],
)
def test_formulas(program: Any, types: list[str], expected: Any) -> None:
    wanted = parse(expected) if isinstance(expected, str) else expected
    assert count(program, *types) == wanted


def test_attention() -> None:
    """Two products; for each score the 5 of softmax, for each query element the scale."""
    found = count(F.scaled_dot_product_attention, *["f32[B,H,T,32]"] * 3)
    assert found == parse("4*B*H*T*T*32 + 5*B*H*T*T + B*H*T*32")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers(kind: str, bias: bool) -> None:
    """The formula for any length, against what is counted step by step."""
    layer = getattr(nn, kind)(3, 5, bias=bias, bidirectional=True)
    formula = count(layer, "f32[T,B,3]")
    unrolled = flops(decompose(fx.symbolic_trace(layer, "f32[7,B,3]")))
    assert substitute(formula, {"T": 7}) == unrolled


def test_a_model() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    assert count(model, "f32[B,64]") == parse("B*(32*129 + 32 + 10*65)")
    gm = fx.symbolic_trace(model, x="f32[B,64]")
    by_node = {n.name: c for n, c in flops_by_node(decompose(gm)).items()}
    assert by_node["relu"] == parse("32*B") and by_node["linear"] == parse("B*32*129")


def test_what_is_unknown() -> None:
    with pytest.raises(GraphError, match="has no type; trace with input types"):
        flops(fx.symbolic_trace(lambda x: x + 1))
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)), x="f32[2]", leaf=[nn.Linear])
    with pytest.raises(GraphError, match="the cost of a leaf module is unknown"):
        flops(gm)
