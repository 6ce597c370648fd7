"""prepare_qat: values rounded while the model is trained on, and the same integers afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.nn import functional as F
from fxlite.passes import quantize as q
from tests.graphs import ops_of
from tests.passes.quantize.helpers import draw, everything, sqnr

TRAINING = q.static_int8("moving_average", averaging=0.5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)
        self.mix = nn.Parameter(draw((3, 3), 5))

    def forward(self, x: Any) -> Any:
        x = np.maximum(self.norm(self.conv(x)), 0).max(axis=(2, 3))
        return self.fc(x) @ self.mix


@pytest.fixture(scope="module")
def prepared() -> fx.GraphModule:
    return q.prepare_qat(fx.symbolic_trace(Net().eval(), x="f32[B,2,5,5]"), everything(TRAINING))


def test_values_and_weights_are_rounded_in_float(prepared: fx.GraphModule) -> None:
    assert ops_of(prepared).count("fake_quantize") == 6  # three products
    x = draw((4, 2, 5, 5))
    result = prepared(x)
    assert result.dtype == np.float32
    for product in ("conv2d", "linear", "matmul"):
        (node,) = prepared.graph.find_nodes(op="call_function", target=product)
        data, weight = (a for a in node.args[:2])
        assert weight.target is ops.fake_quantize
        assert data.target in (ops.fake_quantize, ops.max)


def test_the_gradient_rule_is_data_of_the_op() -> None:
    assert ops.fake_quantize.gradient == "straight_through"
    assert ops.quantize.gradient is None


def test_weights_are_rounded_as_they_are_in_each_call() -> None:
    gm = q.prepare_qat(fx.symbolic_trace(nn.Linear(4, 2).eval(), x="f32[B,4]"), everything(TRAINING))
    x = draw((3, 4))
    gm(x)
    weight = gm.get_attribute("weight")
    weight *= 3  # a step of training
    weight[1] = 0
    gm(x)
    scale = gm.observers.weight.scale
    assert scale.shape == (2, 1)
    np.testing.assert_array_equal(scale[0, 0], np.float32(np.abs(weight[0]).max() / np.float64(127)))
    made = q.convert(gm)
    assert not made.weight_i8[1].any() and np.abs(made.weight_i8[0]).max() == 127


def test_convert_gives_the_integers_of_what_was_trained(prepared: fx.GraphModule) -> None:
    x = draw((16, 2, 5, 5))
    for _ in range(20):  # until the moving averages stand still
        rounded = prepared(x)
    made = q.convert(prepared)
    assert "fake_quantize" not in ops_of(made) and ops_of(made).count("requantize") == 2
    assert not made.graph.find_nodes(op="call_module")
    assert sqnr(rounded, made(x)) > 40  # but for values halfway between two integers
    report = q.report(made)
    assert report.integer_share == 1 and report.bytes_before == 4 * (72 + 4 + 12 + 3 + 9)


class Computed(nn.Module):
    """Weights that are computed from others, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.gain, self.mix = nn.Parameter(draw((4, 1), 1)), nn.Parameter(draw((4, 4), 2))
        self.half = nn.Parameter(np.float32(0.5))

    def forward(self, x: Any) -> Any:
        x = F.linear(x, self.layer.weight * self.gain, self.layer.bias * 2)
        x = np.maximum(x, 0) @ self.mix.T
        x = np.concatenate([x, self.layer(x) * (self.half + 1)], axis=0) + self.mix[0] * 3
        return self.last(x), self.mix @ self.layer.weight


def test_computed_weights_are_computed_in_each_call_and_folded_by_convert() -> None:
    gm = fx.symbolic_trace(Computed().eval(), x="f32[B,4]")
    x = draw((32, 4))
    plain, trained = q.prepare(gm, everything(TRAINING)), q.prepare_qat(gm, everything(TRAINING))
    plain(x), trained(x)
    made, expected = q.convert(trained), q.convert(plain)

    def listed(module: fx.GraphModule) -> list[tuple[Any, ...]]:
        return [(n.name, n.op, n.target, n.type) for n in module.graph.nodes]

    assert listed(made) == listed(expected) and q.report(made).integer_share == 1
    assert sorted(made.state_dict()) == sorted(expected.state_dict())
    assert q.report(made).bytes_before == q.report(expected).bytes_before
    np.testing.assert_array_equal(made.layer.weight_scaled_i8, expected.layer.weight_scaled_i8)
    before = trained(x)[0]
    trained.get_attribute("gain")[...] *= 2  # a step of training
    trained.get_attribute("mix")[...] *= -1
    assert np.abs(trained(x)[0] - before).max() > 0.1
    for _ in range(20):  # until the moving averages stand still
        rounded = trained(x)
    again = q.convert(trained)
    np.testing.assert_array_equal(again.mix_permuted_i8, -made.mix_permuted_i8)
    assert sqnr(rounded, again(x)) > 30  # but for values halfway


def test_the_declared_gradient_is_that_of_steps() -> None:
    """Over whole steps fake_quantize changes as its argument does, and not at all where it cuts
    off: the gradient that "straight_through" declares, 1 and 0."""
    scale = np.float32(0.25)  # steps are exact
    x = np.arange(-60, 60, dtype=np.float32) * np.float32(0.37)
    integers = np.rint(x / scale) + 3

    def slope(steps: int) -> Any:
        moved = ops.fake_quantize(x + steps * scale, scale, 3, dtype="i8", qmin=-20, qmax=19)
        at = ops.fake_quantize(x, scale, 3, dtype="i8", qmin=-20, qmax=19)
        return (moved - at) / (steps * scale)

    np.testing.assert_allclose(slope(1)[(integers >= -20) & (integers < 19)], 1)
    np.testing.assert_array_equal(slope(1)[(integers < -21) | (integers >= 19)], 0)


def test_only_static_configs_are_trained() -> None:
    gm = fx.symbolic_trace(nn.Linear(4, 2).eval(), x="f32[B,4]")
    for config in (q.dynamic_int8(), q.weight_only_int8(), q.bf16()):
        with pytest.raises(q.QuantizationError, match=f"{config.name}: training needs static"):
            q.prepare_qat(gm, everything(config))
