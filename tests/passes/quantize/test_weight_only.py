"""Weights alone in integers: ragged groups, odd rows, and convolutions, whose weights are integers
on the disk and floats once the program is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.codegen.program.program import optimize
from fxlite.passes import quantize as q
from fxlite.passes.quantize.schemes.scheme import quantize_weight, restored_weight
from tests.graphs import ops_of
from tests.oracle import agree
from tests.passes.quantize.helpers import draw, everything, sqnr

CONFIGS = [q.weight_only_int8(), q.weight_only_int4()]


class Images(nn.Module):
    """Convolutions of each kind: ordinary, depthwise, transposed, along one axis; odd rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.each = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=16)
        self.up, self.line = nn.ConvTranspose2d(16, 7, 2, stride=2), nn.Conv1d(7, 5, 5)
        self.out = nn.Linear(45, 6)

    def forward(self, x: Any) -> Any:
        y = self.up(self.each(np.maximum(self.first(x), 0)))
        y = self.line(y.mean(axis=2))
        return self.out(y.reshape(y.shape[0], -1)[:, :45])


def converted(config: q.QConfig) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The float program and its weight-only one."""
    gm = fx.symbolic_trace(Images().eval(), "f32[B,3,12,12]")
    return gm, q.convert(q.prepare(gm, everything(config)))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_convolutions_read_expanded_weights(config: q.QConfig, tmp_path: Path) -> None:
    gm, made = converted(config)
    assert ops_of(made).count("dequantize_weight") == 4 and "linear_weight_only" in ops_of(made)
    assert not [n for n in made.graph.nodes if "float" in n.meta]
    x = draw((2, 3, 12, 12))
    assert sqnr(gm(x), made(x)) > (35 if config.name.endswith("8") else 12)
    fx.save(made, tmp_path / "net.fxl")
    np.testing.assert_array_equal(fx.load(tmp_path / "net.fxl")(x), made(x))
    stored = sum(a.nbytes for n, a in made.state_dict().items() if "weight_i" in n)
    per_byte = 8 // q.report(made).rows[0].bits
    rows = {16: [27, 9, 28], 5: [35], 6: [45]}
    assert stored == sum(n * -(-k // per_byte) for n, ks in rows.items() for k in ks)
    if per_byte == 2:  # where a row may be odd
        agree(made, x)


def test_compiled_programs_have_float_weights_alone() -> None:
    """No integers are left to expand at a call, transposed convolutions are ordinary ones, too."""
    _, made = converted(q.weight_only_int4())
    optimized, _ = optimize(made, keep=frozenset({"lstm"}))  # as for C
    names = ops_of(optimized)
    assert "dequantize_weight" not in names and "conv_transpose2d" not in names
    weights = [n for n in optimized.graph.find_nodes(op="get_attr") if n.target.endswith("_i4")]
    assert [n.target for n in weights] == ["out.weight_i4"]


@pytest.mark.parametrize("shape", [(5, 784), (3, 45), (4, 3, 3, 3), (2, 5), (0, 40)])
def test_the_last_group_may_be_shorter(shape: tuple[int, ...]) -> None:
    weight = draw(shape)
    scheme = q.weight_only_int4(32).weight
    assert scheme is not None
    found = quantize_weight(weight, scheme, tuple(range(1, len(shape))))
    depth = int(np.prod(shape[1:]))
    assert found.integers.shape == shape and found.scale.shape == (shape[0], -(-depth // 32))
    values = restored_weight(found, scheme).reshape(shape[0], depth)
    for group, start in enumerate(range(0, depth, 32)):
        part = weight.reshape(shape[0], depth)[:, start : start + 32]
        alone = quantize_weight(part, scheme, (1,))
        np.testing.assert_array_equal(alone.scale[:, 0], found.scale[:, group])
        np.testing.assert_array_equal(restored_weight(alone, scheme), values[:, start : start + 32])


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_gptq_of_grouped_convolutions_and_odd_rows(config: q.QConfig) -> None:
    gm, nearest = converted(config)
    x = draw((16, 3, 12, 12))
    better = q.convert(q.gptq(q.prepare(gm, everything(config)), [x]))
    assert sqnr(gm(x), better(x)) > sqnr(gm(x), nearest(x))
    assert "transposed" in str(passes.ledger(better))
