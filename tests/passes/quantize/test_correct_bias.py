"""Bias correction: the mean error of every channel goes away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes import quantize as q
from tests.passes.quantize.helpers import draw, everything, sqnr

CONFIGS = [q.static_int8(), q.dynamic_int8(), q.weight_only_int8(), q.weight_only_int4()]


class Biased(nn.Module):
    """Weights a little above halves of a step, so that nearly all are rounded up, and inputs of one
    sign: the errors add up. ``fc`` has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)
        self.fc = nn.Linear(32, 4, bias=False)
        for layer in (self.conv, self.fc):
            rng = np.random.default_rng(layer.weight.size)
            weight = rng.integers(-100, 100, layer.weight.shape) + 0.55
            weight.reshape(len(weight), -1)[:, 0] = 127
            layer.weight[:] = weight / 127

    def forward(self, x: Any) -> Any:
        y = F.relu(self.conv(x))
        return self.fc(y.mean(axis=3).reshape(-1, 32))


def calibrated(gm: fx.GraphModule, config: q.QConfig, batches: list[Any]) -> fx.GraphModule:
    prepared = q.prepare(gm, everything(config))
    for batch in batches:
        prepared(batch)
    return prepared


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_means_are_those_of_the_float_model(config: q.QConfig) -> None:
    model = Biased()
    gm = fx.symbolic_trace(model.eval(), x="f32[B,4,6,6]")
    batches = [np.abs(draw((size, 4, 6, 6), size)) for size in (16, 5)]
    prepared = calibrated(gm, config, batches)
    before = np.array(model.conv.bias)
    corrected = q.correct_bias(prepared, iter(batches))
    np.testing.assert_array_equal(model.conv.bias, before)
    x = np.concatenate(batches)
    expected = gm(x).astype(np.float64)
    plain, better = (q.convert(m) for m in (prepared, corrected))
    error, left = (np.abs((m(x) - expected).mean(axis=0)).max() for m in (plain, better))
    assert left < 0.1 * error, (error, left)
    assert sqnr(expected, better(x)) > sqnr(expected, plain(x)) + 3
    new = np.abs(draw((32, 4, 6, 6), 99))  # and on data it was not fitted to
    assert sqnr(gm(new), better(new)) > sqnr(gm(new), plain(new)) + 3


def test_what_has_no_bias_is_left_with_the_reason() -> None:
    weight = draw((8, 6))
    gm = fx.symbolic_trace(lambda x: x @ weight, x="f32[B,8]")
    prepared = calibrated(gm, q.static_int8(), [draw((4, 8))])
    corrected = q.correct_bias(prepared, [draw((4, 8))])
    (entry,) = passes.ledger(corrected)
    assert entry.reason == "matmul has no bias"


def test_errors() -> None:
    gm = fx.symbolic_trace(Biased().eval(), x="f32[B,4,6,6]")
    prepared = q.prepare(gm, everything(q.static_int8()))
    x = draw((2, 4, 6, 6))
    with pytest.raises(q.QuantizationError, match="not calibrated"):
        q.correct_bias(prepared, [x])
    with pytest.raises(q.QuantizationError, match="no batches"):
        q.correct_bias(prepared, iter(()))
    with pytest.raises(q.QuantizationError, match="what prepare returned"):
        q.correct_bias(gm, [x])
    prepared(x)
    with pytest.raises(q.QuantizationError, match="no numbers"):
        q.correct_bias(prepared, [x[:0]])
    x[0, 0, 0, 0] = np.inf
    with pytest.raises(q.QuantizationError, match=r"conv2d.*NaN or infinities"):
        q.correct_bias(prepared, [x])
