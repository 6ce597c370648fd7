"""Cross-layer equalization: the float model stays what it is, and quantizes better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes import quantize as q
from tests.passes.quantize.helpers import draw, quantized, sqnr


def uneven(layer: nn.Module, seed: int) -> nn.Module:
    """Normal weights, channels of the result of sizes 1 to 100."""
    rng = np.random.default_rng(seed)
    sizes = np.geomspace(1, 100, layer.weight.shape[0])
    rng.shuffle(sizes)
    normal = rng.standard_normal(layer.weight.shape)
    layer.weight[:] = normal * sizes.reshape(-1, *[1] * (normal.ndim - 1))
    layer.bias[:] = rng.standard_normal(layer.bias.shape) * sizes
    return layer


def drawn(layer: nn.Module, seed: int, sizes: Any = 1.0) -> nn.Module:
    """Normal weights times sizes."""
    layer.weight[:] = draw(layer.weight.shape, seed) * sizes
    return layer


class Separable(nn.Module):
    """A convolution, a depthwise one, a pointwise one, pooled and flattened into a linear layer;
    what one layer makes large the next one makes small."""

    def __init__(self) -> None:
        super().__init__()
        self.first = uneven(nn.Conv2d(3, 16, 3, padding=1), 0)
        largest = np.abs(self.first.weight).max(axis=(1, 2, 3)).reshape(-1, 1, 1, 1)
        self.depthwise = drawn(nn.Conv2d(16, 16, 3, padding=1, groups=16), 1, 1 / largest)
        self.point = uneven(nn.Conv2d(16, 8, 1), 2)
        largest = np.abs(self.point.weight).max(axis=(1, 2, 3))
        self.last = drawn(nn.Linear(8 * 16, 10), 3, np.repeat(1 / largest, 16))

    def forward(self, x: Any) -> Any:
        x = F.relu(self.depthwise(F.relu(self.first(x))))
        x = F.max_pool2d(F.relu(self.point(x)), 2)
        return self.last(x.reshape(-1, 8 * 16))


def traced(model: nn.Module, **types: str) -> fx.GraphModule:
    return fx.symbolic_trace(model.eval(), inputs=types)


def test_channels_far_apart_gain_more_than_10_db() -> None:
    model = Separable()
    gm = traced(model, x="f32[B,3,8,8]")
    x = draw((16, 3, 8, 8))
    before = {name: np.array(value) for name, value in model.state_dict().items()}
    equalized = q.equalize(gm)
    assert not passes.ledger(equalized)
    expected = gm(x)
    assert sqnr(expected, equalized(x)) > 110  # float32's rounding
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    plain, better = (sqnr(expected, quantized(m, q.static_int8("minmax"), x)(x)) for m in (gm, equalized))
    assert better > plain + 10, (plain, better)


class Two(nn.Module):
    def __init__(self, between: Any, size: int = 8) -> None:
        super().__init__()
        self.a, self.b = uneven(nn.Linear(size, 6), 0), drawn(nn.Linear(6, 5), 1)
        self.between = between

    def forward(self, x: Any) -> Any:
        return self.b(self.between(self.a(x)))


def test_ranges_are_equal_on_both_sides() -> None:
    equalized = q.equalize(traced(Two(lambda y: F.leaky_relu(y, 0.1)), x="f32[B,T,8]"))
    rows = np.abs(equalized.a.weight_equalized).max(axis=1)
    columns = np.abs(equalized.b.weight_equalized).max(axis=0)
    np.testing.assert_allclose(rows, columns, rtol=1e-5)


def test_grouped_convolutions_and_a_mean() -> None:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = uneven(nn.Conv2d(4, 12, 1), 0)
            self.b = uneven(nn.Conv2d(12, 6, 3, groups=3), 1)
            self.c = drawn(nn.Linear(6, 5), 2)

        def forward(self, x: Any) -> Any:
            return self.c(F.relu(self.b(self.a(x))).mean(axis=(2, 3)))

    gm = traced(Grouped(), x="f32[B,4,6,6]")
    equalized = q.equalize(gm)
    x = draw((2, 4, 6, 6))
    assert not passes.ledger(equalized) and sqnr(gm(x), equalized(x)) > 110
    for name in ("a", "b", "c"):
        assert np.any(getattr(equalized, name).weight_equalized != getattr(gm, name).weight)
        assert "weight" not in getattr(equalized, name)._parameters


def test_channels_of_zeros_are_left() -> None:
    model = Two(F.relu)
    model.a.weight[2] = 0
    model.b.weight[:, 4] = 0
    gm = traced(model, x="f32[B,8]")
    equalized = q.equalize(gm)
    assert sqnr(gm(draw((4, 8))), equalized(draw((4, 8)))) > 110
    np.testing.assert_array_equal(equalized.a.weight_equalized[4], gm.a.weight[4])
    assert equalized.a.bias_equalized[2] == gm.a.bias[2]


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (np.tanh, "tanh"),
        (F.relu6, "relu6"),
        (lambda y: F.relu(y) + y, "read by 2 nodes"),
        (lambda y: np.concatenate([y, y], axis=1)[:, :6], "concat"),
    ],
    ids=["tanh", "relu6", "read-twice", "concat"],
)
def test_refusals_say_why(between: Any, reason: str) -> None:
    gm = traced(Two(between), x="f32[B,8]")
    equalized = q.equalize(gm)
    np.testing.assert_array_equal(equalized.a.weight, gm.a.weight)
    assert any(reason in entry.reason for entry in passes.ledger(equalized))


def test_a_weight_that_others_read_is_kept_for_them() -> None:
    class Shared(Two):
        def forward(self, x: Any) -> Any:
            return super().forward(x), self.a(x[:2])

    gm = traced(Shared(F.relu, 6), x="f32[4,6]")
    equalized = q.equalize(gm)
    x = draw((4, 6))
    for expected, actual in zip(gm(x), equalized(x), strict=True):
        assert sqnr(expected, actual) > 110
    assert np.any(equalized.b.weight_equalized != gm.b.weight)
    np.testing.assert_array_equal(equalized.a.weight, gm.a.weight)
