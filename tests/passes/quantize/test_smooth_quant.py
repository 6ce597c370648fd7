"""SmoothQuant: outlier channels move into the weights; the float model stays what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes import quantize as q
from tests.graphs import ops_of
from tests.passes.quantize.helpers import draw, quantized, sqnr

WIDTH = 64


class Outliers(nn.Module):
    """Queries and keys of a layer norm whose channels 3 and 40 are a hundred times the others; the
    norm is read by the residual too if ``post`` (as in BERT)."""

    def __init__(self, norm: type[nn.Module] = nn.LayerNorm, post: bool = False) -> None:
        super().__init__()
        self.norm, self.post = norm(WIDTH), post
        self.query, self.key = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32)
        self.norm.weight[:] = 1
        self.norm.weight[[3, 40]] = 100
        for seed, layer in enumerate((self.query, self.key)):
            layer.weight[:] = draw(layer.weight.shape, seed)
            layer.weight[:, [3, 40]] *= 0.02

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        y = F.relu(self.query(x)) * self.key(x)
        return (y, x) if self.post else y


def traced(model: nn.Module) -> fx.GraphModule:
    return fx.symbolic_trace(model.eval(), x=f"f32[B,T,{WIDTH}]")


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("config", [q.static_int8(), q.dynamic_int8()], ids=lambda c: c.name)
def test_outliers_gain(config: q.QConfig, norm: type[nn.Module]) -> None:
    model = Outliers(norm)
    gm = traced(model)
    x = draw((8, 16, WIDTH))
    before = np.array(model.norm.weight)
    smooth = q.smooth_quant(gm, iter([x]))
    assert not passes.ledger(smooth) and ops_of(smooth) == ops_of(gm)
    np.testing.assert_array_equal(model.norm.weight, before)
    assert sqnr(gm(x), smooth(x)) > 110
    plain, better = (sqnr(gm(x), quantized(m, config, x)(x)) for m in (gm, smooth))
    assert better > plain + 10, (plain, better)


def test_factors_are_those_of_the_paper() -> None:
    gm = traced(Outliers())
    x = draw((8, 16, WIDTH))
    smooth = q.smooth_quant(gm, [x[:4], x[4:]], alpha=0.75)
    largest = np.abs(F.layer_norm(x, (WIDTH,), gm.norm.weight, gm.norm.bias)).max(axis=(0, 1))
    weights = np.abs(np.concatenate([gm.query.weight, gm.key.weight])).max(axis=0)
    expected = largest**0.75 / weights**0.25
    np.testing.assert_allclose(gm.norm.weight / smooth.norm.weight_smoothed, expected, rtol=1e-4)
    found = smooth.key.weight_smoothed / gm.key.weight
    np.testing.assert_allclose(found, np.tile(expected, (32, 1)), rtol=1e-4)


def test_a_value_that_is_read_elsewhere_is_refused_or_multiplied() -> None:
    gm = traced(Outliers(post=True))
    x = draw((8, 16, WIDTH))
    left = q.smooth_quant(gm, [x])
    (entry,) = passes.ledger(left)
    assert "too, which would see it divided" in entry.reason
    np.testing.assert_array_equal(left.query.weight, gm.query.weight)
    inserted = q.smooth_quant(gm, [x], insert=True)
    inserted.graph.lint(full=True)
    assert not passes.ledger(inserted)
    assert ops_of(inserted).count("mul") == ops_of(gm).count("mul") + 1  # one for both layers
    for expected, actual in zip(gm(x), inserted(x), strict=True):
        assert sqnr(expected, actual) > 110
    plain, better = (sqnr(gm(x), quantized(m, q.static_int8(), x)(x)) for m in (gm, inserted))
    assert better > plain + 10, (plain, better)


def test_factors_go_through_relu_into_a_linear_layer() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(WIDTH, 32), nn.Linear(32, 8)
            self.a.weight[:], self.b.weight[:] = draw((32, WIDTH)), draw((8, 32))
            self.a.weight[5] *= 100

        def forward(self, x: Any) -> Any:
            return self.b(np.maximum(self.a(x), 0))

    gm = traced(Two())
    x = draw((4, 8, WIDTH))
    smooth = q.smooth_quant(gm, [x])
    assert sqnr(gm(x), smooth(x)) > 110
    assert np.abs(smooth.a.weight_smoothed[5]).max() < 0.3 * np.abs(gm.a.weight[5]).max()
    (entry,) = passes.ledger(smooth)  # the first layer reads the input
    assert "x (an input) has no weight" in entry.reason


def test_errors() -> None:
    gm = traced(Outliers())
    with pytest.raises(q.QuantizationError, match=r"alpha must be in 0\.\.1"):
        q.smooth_quant(gm, [draw((1, 2, WIDTH))], alpha=2)
    with pytest.raises(q.QuantizationError, match="no batches"):
        q.smooth_quant(gm, [])
    with pytest.raises(q.QuantizationError, match=r"layer_norm.*NaN"):
        q.smooth_quant(gm, [np.full((1, 2, WIDTH), np.nan, np.float32)])
