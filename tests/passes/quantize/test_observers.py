"""Observers: ranges they choose, and data that has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ShapeError
from fxlite.ops.integer.quantized import SMALLEST_SCALE
from fxlite.passes import quantize as q
from fxlite.passes.quantize.schemes.observers import BINS
from fxlite.passes.quantize.schemes.scheme import parameters, quantize_weight
from tests.passes.quantize.helpers import draw, everything

AFFINE = q.Scheme("u8", False)


def observer(name: str, scheme: q.Scheme = AFFINE, **facts: Any) -> q.Observer:
    fields = {**scheme.__dict__, **facts, "observer": name}
    return q.make_observer(q.Scheme(**fields), "the value")


def test_minmax_is_all_that_was_seen() -> None:
    seen = observer("minmax")
    for batch in ([1.0, 2.0], [-3.0], [5.0, 0.0]):
        seen(np.array(batch, np.float32))
    assert seen.range() == (-3, 5)
    scale, zero_point = seen.calculate_qparams()
    assert scale == np.float32(8 / 255) and zero_point == round(3 / (8 / 255))


def test_moving_average() -> None:
    seen = observer("moving_average", averaging=0.25)
    seen(np.float32([0, 8]))
    seen(np.float32([-4, 4]))
    assert seen.range() == (-1, 7)


def test_moving_averages_of_values_of_one_scale() -> None:
    """Each has its own, and the range holds all of them; an average of both would hold neither."""
    seen = observer("moving_average", averaging=0.5)
    for _ in range(2):
        seen(np.float32([0, 1]))
        seen(np.float32([]), 1)
        seen(np.float32([-100, 80]), 2)
    seen(np.float32([-300, 20]), 2)
    assert seen.range() == (-200, 50)


def test_percentile_leaves_out_outliers() -> None:
    data = np.linspace(0, 1, 100_000).astype(np.float32)
    data[7] = 1000
    seen = observer("percentile", percentile=99.9)
    seen(data)
    low, high = seen.range()
    assert low == 0 and 0.9 < high < 1.5  # a bin is half of 1000 / 1024
    both = observer("percentile", percentile=98)
    both(draw((100_000,)))
    low, high = both.range()
    assert abs(high - 2.326) < 0.05 and abs(low + 2.326) < 0.05  # 1 % of a normal on each side


@pytest.mark.parametrize("scheme", [AFFINE, q.Scheme()])
def test_mse_has_less_error_than_the_extremes(scheme: q.Scheme) -> None:
    data = draw((50_000,))
    data[0] = 60

    def error(name: str) -> float:
        seen = observer(name, scheme)
        seen(data)
        scale, zero_point = seen.calculate_qparams()
        qmin, qmax = scheme.range
        integers = np.clip(np.rint(data / scale) + zero_point, qmin, qmax)
        return float(np.mean((data - (integers - zero_point) * scale) ** 2))

    assert error("mse") < error("minmax")


def test_entropy_cuts_a_long_tail_and_not_a_flat_one() -> None:
    tail = draw((50_000,))
    tail[0] = 60
    seen = observer("entropy", q.Scheme())
    seen(tail)
    low, high = seen.range()
    assert 2 < high < 12 and -12 < low < -2
    flat = observer("entropy", q.Scheme())
    flat(np.linspace(-1, 1, 50_000).astype(np.float32))
    assert flat.range()[1].item() > 0.98
    relu = observer("entropy")
    relu(np.maximum(draw((50_000,)), 0))  # half of it zeros, which cost nothing
    assert relu.range()[1].item() > 2
    two = observer("entropy")
    two(np.float32([0, 0, 2, 14]))  # cut off at 2, they would look the same
    assert two.range()[1].item() == 14


def test_histogram_grows_without_losing_counts() -> None:
    seen = observer("mse")
    batches = [draw((1000,), seed) * 3**seed for seed in range(5)]
    for batch in batches:
        seen(batch)
    assert isinstance(seen, q.HistogramObserver)
    assert seen.counts.sum() == 5000 and seen.counts.shape == (1, BINS)
    edges = np.linspace(-seen.limit[0], seen.limit[0], BINS + 1)
    expected, _ = np.histogram(np.concatenate(batches).astype(np.float64), edges)
    np.testing.assert_array_equal(seen.counts[0], expected)


def test_zeros_first() -> None:
    seen = observer("mse")
    seen(np.zeros(10, np.float32))
    seen(np.float32([1, 2, 4]))
    assert seen.counts.sum() == 13 and seen.range()[1].item() > 2


@pytest.mark.parametrize("name", sorted(q.OBSERVERS))
@pytest.mark.parametrize(
    ("per", "extra", "shape", "count"),
    [
        ("channel", {}, (4, 3, 5, 5), 3),
        ("token", {}, (2, 7, 6), 7),
        ("group", {"group_size": 32}, (4, 64), 2),
        ("tensor", {}, (4, 3), None),
    ],
)
def test_granularity(name: str, per: str, extra: Any, shape: Any, count: int | None) -> None:
    seen = observer(name, q.Scheme(per=per, **extra))
    x = draw(shape)
    assert seen(x) is x
    seen(x)
    scale, _ = seen.calculate_qparams()
    assert scale.shape == (() if count is None else (count,))
    if name == "minmax":
        axes = {"channel": (0, 2, 3), "token": (0, 2), "tensor": (0, 1)}
        largest = np.abs(x).reshape(4, 2, 32).max((0, 2)) if per == "group" else np.abs(x).max(axes[per])
        np.testing.assert_array_equal(scale, np.float32(largest.astype(np.float64) / 127))


def test_other_counts_of_ranges_are_an_error() -> None:
    seen = observer("minmax", q.Scheme(per="token"))
    seen(draw((2, 7, 6)))
    with pytest.raises(ShapeError, match="8 ranges per token, before it had 7"):
        seen(draw((2, 8, 6)))
    with pytest.raises(ShapeError, match="no multiple of group_size 32"):
        observer("minmax", q.Scheme(per="group", group_size=32))(draw((2, 48)))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(np.log(self.first(x)))


@pytest.mark.parametrize(("weight", "kind"), [(-1.0, "NaN"), (0.0, "an infinity")], ids=["NaN", "infinity"])
def test_nan_and_infinity_name_node_module_and_line(weight: float, kind: str) -> None:
    model = Small().eval()
    model.first.weight[:], model.first.bias[:] = weight, 0
    prepared = q.prepare(fx.symbolic_trace(model, x="f32[B,4]"), everything(q.static_int8()))
    with np.errstate(all="ignore"), pytest.raises(q.QuantizationError) as caught:
        prepared(np.ones((2, 4), np.float32))
    message = str(caught.value)
    assert f"log (test_observers.py:{Small.forward.__code__.co_firstlineno + 1}) holds {kind}" in (message)
    assert "in 8 of 8 numbers" in message
    with pytest.raises(q.QuantizationError, match=r"log .*: no data"):  # it took nothing in
        q.convert(prepared)


def test_the_module_is_named_too() -> None:
    prepared = q.prepare(
        fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval(), x="f32[B,4]"),
        everything(q.static_int8()),
    )
    assert "relu (1 (ReLU), " in prepared.observers.relu.of


@pytest.mark.parametrize("name", sorted(q.OBSERVERS))
@pytest.mark.parametrize("constant", [0.0, 2.5, -2.5, 1e-45, 3e38])
def test_constants_are_exact(name: str, constant: float) -> None:
    seen = observer(name)
    value = np.full((3, 5), constant, np.float32)
    seen(value)
    scale, zero_point = seen.calculate_qparams()
    assert np.isfinite(scale) and np.isfinite(np.float32(1) / scale)
    integers = fx.ops.quantize(value, scale, zero_point, dtype="u8")
    back = fx.ops.dequantize(integers, scale, zero_point)
    if constant == 1e-45:  # below what a scale can say
        np.testing.assert_array_equal(back, 0)
    else:
        np.testing.assert_allclose(back, value, rtol=1e-6)


def test_zeros_alone_have_the_scale_one() -> None:
    scale, zero_point = parameters(0.0, 0.0, AFFINE)
    assert scale == 1 and zero_point == 0


def test_empty_batches_do_not_count() -> None:
    seen = observer("mse")
    seen(np.zeros((0, 4), np.float32))
    with pytest.raises(q.QuantizationError, match=r"not calibrated: the value \(1 empty batch\)"):
        seen.calculate_qparams()
    seen(np.ones((1, 4), np.float32))
    assert "4 values in 1..1" in repr(seen)


def test_weights() -> None:
    weight = draw((6, 64))
    weight[2] = 0
    found = quantize_weight(weight, q.Scheme(per="channel"), (1,))
    assert found.scale.shape == (6, 1) and found.scale[2] == SMALLEST_SCALE and not found.integers[2].any()
    assert found.sqnr > 40
    assert np.abs(found.integers).max(axis=1).tolist() == [127, 127, 0, 127, 127, 127]
    groups = quantize_weight(weight, q.Scheme("i4", per="group", group_size=32), (1,))
    assert groups.scale.shape == (6, 2) and np.abs(groups.integers).max() == 7
    better = quantize_weight(weight, q.Scheme("i4", per="group", group_size=32, observer="mse"), (1,))
    assert better.sqnr > groups.sqnr + 0.1
    raised = quantize_weight(weight, q.Scheme(per="channel"), (1,), least_scale=0.5)
    assert raised.scale[0] == 0.5
    assert quantize_weight(weight * 1e-44, q.Scheme(), (1,)).scale.item() == SMALLEST_SCALE
