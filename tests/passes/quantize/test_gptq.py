"""GPTQ: the error of a layer's result is smaller than with rounding to nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.passes import quantize as q
from tests.passes.quantize.helpers import draw, everything, sqnr

CONFIGS = [q.static_int8(weight_observer="mse"), q.dynamic_int8(), q.weight_only_int8(), q.weight_only_int4(32)]


def correlated(rows: int, width: int, seed: int) -> Any:
    """Rows that lie close to a subspace of a quarter of the dimensions."""
    basis = draw((width // 4, width), 7)
    noise = 0.05 * draw((rows, width), seed + 1)
    return draw((rows, width // 4), seed) @ basis + noise


def linear(width: int = 128) -> fx.GraphModule:
    layer = nn.Linear(width, 24)
    layer.weight[:] = draw(layer.weight.shape, 3)
    layer.bias[:] = draw(layer.bias.shape, 4)
    return fx.symbolic_trace(layer, x="f32[B,W]".replace("W", str(width)))


def converted(gm: fx.GraphModule, config: q.QConfig, batches: list[Any]) -> list[fx.GraphModule]:
    """Rounded to nearest, and by GPTQ."""
    prepared = q.prepare(gm, everything(config))
    for batch in batches:
        prepared(batch)
    made = [q.convert(prepared), q.convert(q.gptq(prepared, iter(batches)))]
    for module in made:
        module.graph.lint(full=True)
    return made


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_correlated_inputs(config: q.QConfig) -> None:
    """On data that it was not fitted to, with a last block that is not full."""
    gm = linear(160)
    batches = [correlated(300, 160, seed) for seed in (10, 20)]
    nearest, better = converted(gm, config, batches)
    x = correlated(200, 160, 30)
    gain = sqnr(gm(x), better(x)) - sqnr(gm(x), nearest(x))
    # where activations are rounded, too, theirs is the greater error
    assert gain > (3 if config.activation is None else 0.3), gain
    assert (q.report(better).rows[0].scheme, len(q.report(better).rows)) == (q.report(nearest).rows[0].scheme, 1)


def test_the_error_on_the_data_is_least_against_brute_force() -> None:
    """For two columns the second one's best integer follows from the first: what GPTQ does in
    closed form."""
    from fxlite.passes.quantize.conversion.error_correction import _round_columns

    weights = np.array([[0.4, 0.4]])
    hessian = np.array([[1.0, 0.9], [0.9, 1.0]])
    scheme = q.Scheme(per="channel")
    integers, _ = _round_columns(weights, hessian, scheme, np.ones((1, 1)), 1e-9)
    errors = {b: (d := weights[0] - (integers[0, 0], b)) @ hessian @ d for b in range(-3, 4)}
    assert integers[0, 0] == 0 and integers[0, 1] == min(errors, key=errors.__getitem__) == 1


@pytest.mark.parametrize(
    ("weight", "arguments"),
    [
        ((6, 4, 3, 3), {"padding": 1}),
        ((6, 4, 3, 3), {"stride": 2, "padding": ((1, 0), (0, 2)), "dilation": 2}),
        ((6, 2, 3, 3), {"groups": 2}),
        ((4, 1, 5, 5), {"groups": 4, "padding": "same"}),
        ((6, 4, 3), {"padding": 1}),
    ],
    ids=["padded", "strided", "grouped", "depthwise", "conv1d"],
)
def test_convolutions(weight: tuple[int, ...], arguments: dict[str, Any]) -> None:
    """What is compared is the error of weights alone: that of all images the layer was fitted
    to."""
    w = nn.Parameter(draw(weight, 3))
    op = fx.ops.conv2d if len(weight) == 4 else fx.ops.conv1d

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = w

        def forward(self, x: Any) -> Any:
            return op(x, self.weight, **arguments)

    places = (9, 10) if len(weight) == 4 else (40,)
    type = f"f32[B,4,{','.join(map(str, places))}]"
    gm = fx.symbolic_trace(Layer(), x=type)
    x = np.cumsum(draw((32, 4, *places)), axis=-1).astype(np.float32)  # neighbours are alike
    prepared = q.prepare(gm, everything(q.static_int8()))
    prepared(x)
    chosen = q.gptq(prepared, [x])
    assert not passes.ledger(chosen)
    (product,) = chosen.graph.find_nodes(op="call_function", target=op.name)
    found = product.meta["quantize"].weight
    (row,) = q.report(q.convert(prepared)).rows
    assert found.sqnr < row.sqnr  # each weight by itself is further away
    values = found.integers * found.scale
    observed = prepared.observers.x
    scale, zero_point = observed.calculate_qparams()
    rounded = fx.ops.fake_quantize(x, scale, zero_point, "u8", 0, 255)
    nearest = np.rint(w / found.scale) * found.scale
    expected = op(rounded, w, **arguments)
    errors = [np.sum((op(rounded, v.astype(np.float32), **arguments) - expected) ** 2) for v in (values, nearest)]
    assert errors[0] < 0.9 * errors[1], errors
    np.testing.assert_allclose(q.convert(chosen)(x), op(rounded, values, **arguments), atol=1e-3)


def test_what_is_left_has_a_reason() -> None:
    shared = nn.Linear(16, 16)
    shared.weight[:] = draw((16, 16))
    gm = fx.symbolic_trace(nn.Sequential(shared, nn.ReLU(), shared), x="f32[B,16]")
    x = draw((64, 16))
    made = q.gptq(q.prepare(gm, everything(q.weight_only_int8())), [x])
    reasons = [entry.reason for entry in passes.ledger(made)]
    assert reasons == ["its weight is read by 2 nodes, whose inputs differ"] * 2
    exact = nn.Linear(16, 4)
    exact.weight[:] = np.random.default_rng(0).integers(-127, 128, (4, 16))
    exact.weight[:, 0] = 127
    gm = fx.symbolic_trace(exact, x="f32[B,16]")
    made = q.gptq(q.prepare(gm, everything(q.weight_only_int8())), [x])
    (entry,) = passes.ledger(made)
    assert "rounding to nearest is as good" in entry.reason


@pytest.mark.parametrize(
    "program",
    [lambda x: draw((6, 8)) @ x, lambda x: x @ draw((2, 8, 6)), lambda x: x @ draw((8,))],
    ids=["left", "batched", "vector"],
)
def test_matmuls_with_other_weights_are_left(program: Any) -> None:
    gm = fx.symbolic_trace(program, x="f32[2,8,8]")
    x = draw((2, 8, 8))
    prepared = q.prepare(gm, everything(q.static_int8()))
    prepared(x)
    made = q.gptq(prepared, [x])
    (entry,) = passes.ledger(made)
    assert "not a matrix on the right-hand side" in entry.reason
    np.testing.assert_array_equal(q.convert(made)(x), q.convert(prepared)(x))


def test_a_matmul_with_a_weight_is_rounded_like_a_linear() -> None:
    weight = draw((24, 128), 3)
    x = correlated(300, 128, 10)
    for config in (q.static_int8(), q.weight_only_int4()):
        as_matmul, as_linear = (
            converted(fx.symbolic_trace(program, x="f32[B,128]"), config, [x])[1]
            for program in (lambda x: x @ weight.T.copy(), lambda x: fx.ops.linear(x, weight))
        )
        np.testing.assert_allclose(as_matmul(x), as_linear(x), rtol=1e-4, atol=1e-4)


def test_few_rows_and_unused_inputs() -> None:
    """Fewer rows than inputs, and inputs that are always 0: damping makes H invertible."""
    gm = linear()
    x = draw((5, 128))
    x[:, 3:40] = 0
    nearest, better = converted(gm, q.weight_only_int4(), [x])
    assert sqnr(gm(x), better(x)) > sqnr(gm(x), nearest(x)) + 3
    zeros = np.zeros((5, 128), np.float32)
    assert np.isfinite(converted(gm, q.weight_only_int4(), [zeros])[1](x)).all()


def test_errors() -> None:
    gm = linear()
    prepared = q.prepare(gm, everything(q.weight_only_int8()))
    x = draw((5, 128))
    with pytest.raises(q.QuantizationError, match="damping must be positive"):
        q.gptq(prepared, [x], damping=0)
    with pytest.raises(q.QuantizationError, match="no batches"):
        q.gptq(prepared, [])
    x[2, 2] = np.nan
    with pytest.raises(q.QuantizationError, match=r"linear.*NaN or infinities"):
        q.gptq(prepared, [x])
