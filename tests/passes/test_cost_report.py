"""Cost reports: formulas worked out by hand, sums over modules, sizes, comparison, text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.console import plain_text
from fxlite.base.errors import ArgumentError
from fxlite.passes.costing.costs import Costs
from fxlite.types import shapes
from fxlite.types.shapes import parse
from tests.models import traced
from tests.zoo import ZOO
from tests.zoo.registry import Program

# A convolution: for each of the B*16*32*32 results 3*3*3 multiply-adds and a bias. It reads
# B*3*32*32 values and 16*27 + 16 weights of 4 bytes.
CONV = Costs(
    flops=parse("B*16*32*32*(2*27 + 1)"),
    read=parse("4*(B*3*32*32 + 16*27 + 16)"),
    written=parse("4*B*16*32*32"),
    parameters=448,
    parameter_bytes=1792,
    peak=parse("4*B*16*32*32"),
)
# Linear: for each of the B*T*32 results 64 multiply-adds and a bias.
LINEAR = Costs(
    flops=parse("B*T*32*(2*64 + 1)"),
    read=parse("4*(B*T*64 + 32*64 + 32)"),
    written=parse("4*B*T*32"),
    parameters=2080,
    parameter_bytes=8320,
    peak=parse("4*B*T*32"),
)
# Attention: scores and mixing take 2*32 FLOPs for each pair of positions; softmax 5 for each score
# (largest, subtract, exp, sum, divide); the scale one for each element of the query.
ATTENTION = Costs(
    flops=parse("4*B*H*T*T*32 + 5*B*H*T*T + B*H*T*32"),
    read=parse("3*4*B*H*T*32"),
    written=parse("4*B*H*T*32"),
    peak=parse("4*B*H*T*32"),
)
# Layer norm: for each of the 64 elements of a row a sum, a subtraction, a square, its sum, the
# products with 1/deviation and weight, the bias; for each row two divisions, + eps, a root.
LAYER_NORM = Costs(
    flops=parse("B*T*(7*64 + 4)"),
    read=parse("4*(B*T*64 + 2*64)"),
    written=parse("4*B*T*64"),
    parameters=128,
    parameter_bytes=512,
    peak=parse("4*B*T*64"),
)


@pytest.mark.parametrize(
    ("program", "types", "expected"),
    [
        (nn.Conv2d(3, 16, 3, padding=1), ["f32[B,3,32,32]"], CONV),
        (nn.Linear(64, 32), ["f32[B,T,64]"], LINEAR),
        (F.scaled_dot_product_attention, ["f32[B,H,T,32]"] * 3, ATTENTION),
        (nn.LayerNorm(64), ["f32[B,T,64]"], LAYER_NORM),
    ],
)
def test_by_hand(program: Any, types: list[str], expected: Costs) -> None:
    report = passes.cost(fx.symbolic_trace(program, *types))
    assert report.total == expected
    (node,) = report.by_node
    assert report.by_node[node] == expected


def test_what_is_read() -> None:
    """Of a table a row for each index; views move nothing, and einsum is none."""
    gm = fx.symbolic_trace(nn.Embedding(1000, 8), "i64[B]")
    assert passes.cost(gm).total.read == parse("8*B + 4*8*B")
    gm = fx.symbolic_trace(lambda x, i: x[i], "f32[1000,8]", "i32[B]")
    assert passes.cost(gm).total.read == parse("4*B + 4*8*B")
    gm = fx.symbolic_trace(lambda x: x.reshape(-1)[2:].transpose(), "f32[B,8]")
    assert passes.cost(gm).total == Costs()
    gm = fx.symbolic_trace(lambda x, y: np.einsum("ij,kj->ik", x, y), "f32[5,3]", "f32[7,3]")
    assert passes.cost(gm).total == Costs(2 * 5 * 7 * 3, 4 * (15 + 21), 4 * 35, peak=4 * 35)


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_sums(program: Program) -> None:
    """The whole is the sum of its nodes, and of the module's own nodes and what is inside."""
    gm, _, _ = program.trace()
    report = passes.cost(gm)
    for quantity in ("flops", "read", "written"):
        of_nodes = sum(getattr(c, quantity) for c in report.by_node.values())
        assert shapes.equal(getattr(report.total, quantity), shapes.normalize(of_nodes))
    assert report.total.peak == passes.peak_memory(gm.graph)
    outer = [path for path in report.by_module if path and "." not in path]
    direct = [n for n in report.by_node if n.scope is None or not n.scope.path]
    flops = sum(report.by_module[p].flops for p in outer)
    flops += sum(report.by_node[n].flops for n in direct)
    assert shapes.equal(shapes.normalize(flops), report.total.flops)


def test_modules_and_weights() -> None:
    report = passes.cost(traced("bert"))
    layers = report.by_module["layers"]
    assert layers.parameters == 12 * report.by_module["layers.3"].parameters
    assert report.by_module["layers.3.up"].flops == parse("B*T*256*(2*64 + 1)")
    assert layers.flops == shapes.normalize(12 * report.by_module["layers.0"].flops)
    shared = nn.Linear(4, 4)
    twice = passes.cost(fx.symbolic_trace(lambda x: shared(shared(x)), "f32[B,4]"))
    assert twice.total.parameters == 20 and twice.total.flops == parse("2*B*4*9")
    assert twice.total.read == parse("2*4*(4*B + 20)")  # read twice


def test_sizes() -> None:
    gm = traced("gpt_block")
    open_sizes = passes.cost(gm)
    assert open_sizes.dims == ("B", "T")
    at_sizes = open_sizes.evaluate(B=3, T=7)
    given = passes.cost(gm, {"B": 3, "T": 7})
    assert dict(at_sizes.by_node) == dict(given.by_node)
    assert dict(at_sizes.by_module) == dict(given.by_module)
    assert at_sizes.dims == () and at_sizes.total.flops == 280 * 3 * 49 + 102216 * 3 * 7
    assert at_sizes.total.intensity == at_sizes.total.flops / at_sizes.total.bytes
    assert open_sizes.total.intensity.subs({shapes.symbols.symbol("B"): 3, shapes.symbols.symbol("T"): 7}) == (
        pytest.approx(at_sizes.total.intensity)
    )
    with pytest.raises(ArgumentError, match=r"no named dim 'S'; it has B, T"):
        open_sizes.evaluate(S=3)
    with pytest.raises(ArgumentError, match=r"no named dim 'S'"):
        passes.cost(gm, {"S": 3})


def test_range() -> None:
    report = passes.cost(fx.symbolic_trace(nn.Linear(64, 32), "f32[B,T,64]"))
    table = report.table(T=[1, 2, 10], B=2)
    assert table.column("flops") == [2 * t * 32 * 129 for t in (1, 2, 10)]
    assert table.column("intensity")[0] == 2 * 32 * 129 / (4 * 2 * 96 + 8320)
    assert str(table).splitlines()[1].split()[:2] == ["1", "8256"]
    with pytest.raises(ArgumentError, match="depend on B, too"):
        report.table(T=[1, 2])
    with pytest.raises(ArgumentError, match="several sizes"):
        report.table(T=3, B=2)
    with pytest.raises(ArgumentError, match=r"no cost 'speed'; known: flops, read"):
        table.column("speed")


def test_comparison() -> None:
    gm = traced("resnet18")
    before = passes.cost(gm)
    after = passes.cost(passes.fuse_conv_bn(gm))
    comparison = after - before
    saved = comparison.change
    # 20 batch norms no longer read and write what they normalize
    elements = 802816 + 4 * 200704 + 5 * 100352 + 5 * 50176 + 5 * 25088
    assert saved.written == parse(f"-4*{elements}*B")
    assert saved.parameters == -4800 and saved.peak == 0
    assert comparison.by_module["bn1"].flops == shapes.normalize(-before.by_module["bn1"].flops)
    assert "layer1.0.relu" not in comparison.by_module
    at_one = before.evaluate(B=1)
    lines = str(at_one.compare(after.evaluate(B=1))).splitlines()
    percent = f"{-400 * elements / at_one.total.written:.2f}"
    assert lines[3].split() == ["bytes", "written", "32.9M", "23M", "-9.93M", percent]
    assert any(line.startswith("layer1.0.bn1 ") for line in lines)
    assert "changed modules" not in str(before - before)


def test_unknown() -> None:
    """A leaf module's work is unknown, its weights are not; without types nothing is known."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    gm = fx.symbolic_trace(model, x="f32[B,4]", leaf=[nn.Linear])
    total = passes.cost(gm).total
    assert total.flops is None and total.bytes is None and total.intensity is None
    assert total.parameters == 15
    assert passes.cost(gm).by_module["1"].flops == parse("3*B")
    untyped = passes.cost(fx.symbolic_trace(model))
    assert untyped.total.flops is None and untyped.total.peak is None
    for report in (passes.cost(gm), untyped):
        assert "FLOPs          ?" in str(report)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["resnet18", "bert", "gpt_block", "lstm_tagger", "unet"])
def test_text_fits(name: str, width: int) -> None:
    report = passes.cost(traced(name))
    for each in (report, report.evaluate(**dict.fromkeys(report.dims, 16))):
        text = plain_text(each, width)
        assert max(map(len, text.splitlines())) <= width
    text = plain_text(passes.cost(traced("bert")))
    assert "0…11 EncoderLayer ×12" in text and text.count("query Linear") == 1
    assert "FLOPs          3360*B*T**2 + 1215637*B*T" in text
