"""Model summaries: rows, folding, parameters and FLOPs, and how they look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.base.console import plain_text
from fxlite.passes.costing.cost_report import flops
from fxlite.show.summary import Summary, SummaryRow
from fxlite.types.shapes import parse
from tests.models import MODELS, traced


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.up, self.down = (nn.LayerNorm(width), nn.Linear(width, 16), nn.Linear(16, width))

    def forward(self, x: Any) -> Any:
        y = F.gelu(self.up(self.norm(x))) * 2
        return x + self.down(y.reshape(-1, 16)).reshape(x.shape)


class Net(nn.Module):
    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.tail = nn.Sequential(nn.Linear(8, 4), nn.ReLU())

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return np.exp(self.tail(x)).sum(axis=-1)


def summary_of(program: Any, *types: str, depth: int | None = None) -> Summary:
    return fx.symbolic_trace(program, *types).summary(depth)


def row(summary: Summary, name: str) -> SummaryRow:
    (found,) = (r for r in summary.rows if r.row.name == name)
    return found


def test_rows() -> None:
    """Names, classes, how often, types, parameters and FLOPs; worked out by hand."""
    summary = summary_of(Net(), "f32[B,8]")
    shown = [
        (r.row.depth, r.row.kind, r.row.name, r.row.class_name, r.row.times, r.result, r.parameters, r.flops)
        for r in summary.rows
    ]
    # norm: 8 elements of 7, 4 for the row; gelu 5 for each element; mul and add one
    block = 60 + 16 * 17 + 16 * 5 + 16 + 8 * 33 + 8
    b = fx.dims("B")
    assert shown == [
        (0, "module", "Net", "", 1, "", 3 * 296 + 36, parse(f"B*({3 * block} + 4*17 + 4 + 4 + 4)")),
        (1, "input", "x", "", 1, "f32[B,8]", 0, 0),
        (1, "module", "blocks", "", 1, "f32[B,8]", 3 * 296, 3 * block * b),
        (2, "module", "0…2", "Block", 3, "f32[B,8]", 296, block * b),
        (3, "module", "norm", "LayerNorm", 1, "f32[B,8]", 16, 60 * b),
        (3, "module", "up", "Linear", 1, "f32[B,16]", 144, 272 * b),
        (3, "ops", "gelu, mul", "", 1, "f32[B,16]", 0, 96 * b),
        (3, "module", "down", "Linear", 1, "f32[B,8]", 136, 264 * b),
        (3, "ops", "add", "", 1, "f32[B,8]", 0, 8 * b),
        (1, "module", "tail", "", 1, "f32[B,4]", 36, 72 * b),
        (2, "module", "0", "Linear", 1, "f32[B,4]", 36, 68 * b),
        (2, "module", "1", "ReLU", 1, "f32[B,4]", 0, 4 * b),
        (1, "ops", "exp, sum", "", 1, "f32[B]", 0, 8 * b),
    ]


def test_text() -> None:
    lines = str(summary_of(Net(), "f32[B,8]")).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "module",
        "Net",
        "├─ x",
        "├─ blocks",
        "│",
        "│",
        "│",
        "│",
        "│",
        "│",
        "├─ tail",
        "│",
        "│",
        "└─ exp, sum",
        "",
        "50 nodes (1 input, 20 weights, 28 calls, 1 output)",
        lines[-2].split("  ")[0],
        lines[-1].split("  ")[0],
    ]
    assert lines[4].split() == ["│", "└─", "0…2", "Block", "×3", "f32[B,8]", "296", "700*B"]
    assert lines[-2] == "924 parameters (3.7 kB)"
    assert lines[-1] == "×N: N equal parts in a row; numbers are those of one"


def test_depth() -> None:
    one = summary_of(Net(), "f32[B,8]", depth=1)
    assert [r.row.name for r in one.rows] == ["Net", "x", "blocks", "tail", "exp, sum"]
    assert [r.row.name for r in summary_of(Net(), "f32[B,8]", depth=0).rows] == ["Net"]


def test_shared_weights() -> None:
    """Parameters count once, in the row that reads them first."""
    layer = nn.Linear(4, 4)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(np.tanh(self.layer(x)))

    summary = summary_of(Twice(), "f32[B,4]")
    first, second = (r for r in summary.rows if r.row.name == "layer")
    assert (first.parameters, first.is_shared) == (20, False)
    assert (second.parameters, second.is_shared) == (0, True)
    assert summary.parameters == 20 and "shared" in str(summary)


def test_functional_and_untyped() -> None:
    """A function is one row of ops; without types there are neither results nor FLOPs."""
    summary = summary_of(lambda x: F.softmax(x @ x.T, -1), "f32[5,3]")
    assert [r.row.name for r in summary.rows][1:] == ["x", "matmul, softmax"]
    assert summary.rows[-1].result == "f32[5,5]"
    untyped = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).summary()
    assert untyped.flops is None and untyped.parameters == 6
    assert untyped.rows[2].result == "" and "?" in str(untyped)


def test_leaf_module() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    summary = fx.symbolic_trace(model, x="f32[B,2]", leaf=[nn.Linear]).summary()
    leaf = row(summary, "0")
    assert leaf.parameters == 9 and leaf.flops is None and leaf.result == "f32[B,3]"


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """Rows add up, with repeats as often as they say; every width is kept."""
    gm = traced(name)
    summary = gm.summary()
    assert summary.flops == flops(gm)
    top = [r for r in summary.rows if r.row.depth == 1]
    assert sum(r.flops * r.row.times for r in top) == summary.flops
    assert summary.rows[0].parameters == summary.parameters
    for width in (80, 100):
        lines = plain_text(summary, width).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[1 + len(summary.rows)] == ""  # a line for each row


def test_parameters_of_known_models() -> None:
    assert traced("resnet18").summary().parameters == 11_689_512
    bert = traced("bert").summary()
    assert row(bert, "0…11").row.times == 12
    assert bert.parameters == 64_000 + 8192 + 128 + 12 * row(bert, "0…11").parameters


def test_many_nodes() -> None:
    """20 000 nodes outside modules are one row."""

    def chain(x: Any) -> Any:
        for _ in range(10_000):
            x = np.exp(x) - 1
        return x

    summary = fx.symbolic_trace(chain, "f32[4]", loops="unroll").summary()
    assert [r.row.kind for r in summary.rows] == ["module", "input", "ops"]
    assert summary.rows[-1].row.name == "exp, sub" and summary.flops == 80_000


def test_a_layer_that_passes_rewrote_says_what_it_computes_now() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), x="f32[B,8]")
    assert "1 LayerNorm " in str(gm.summary())

    def pattern(x: Any, weight: Any, bias: Any) -> Any:
        return fx.ops.layer_norm(x, weight, bias, normalized_shape=(8,))

    def replacement(x: Any, weight: Any, bias: Any) -> Any:
        return fx.ops.rms_norm(x, weight, normalized_shape=(8,))

    assert len(fx.replace_pattern(gm, pattern, replacement)) == 1
    text = str(gm.summary())
    assert "1 rms_norm (was LayerNorm)" in text and "0 Linear " in text


def test_nodes_are_counted_by_kind() -> None:
    gm = fx.symbolic_trace(nn.Linear(8, 4), x="f32[B,8]")
    assert gm.summary().facts.startswith("5 nodes (1 input, 2 weights, 1 call, 1 output)\n36 parameters")
