"""Convert: what becomes integers, and that the integers are the right ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.passes import quantize as q
from fxlite.types import dtypes
from tests.graphs import ops_of
from tests.models import Bert, GptBlock, ResNet18, Tagger
from tests.oracle import agree
from tests.passes.quantize.helpers import draw, everything, quantized, sqnr

STATIC = q.static_int8("minmax")


def made(program: Any, *inputs: Any, config: Any = STATIC, types: Any = None) -> fx.GraphModule:
    """The quantized program, calibrated on its inputs."""
    if isinstance(program, nn.Module):
        program.eval()
    return quantized(fx.symbolic_trace(program, *(types or inputs)), config, *inputs)


class Chain(nn.Module):
    """Two products with a relu between."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.b(np.maximum(self.a(x), 0))


def test_a_chain_is_one_requantize_between_products() -> None:
    gm = made(Chain(), draw((5, 8)))
    assert ops_of(gm) == "quantize int_linear requantize int_linear dequantize".split()


def test_the_integers_are_those_of_the_formulas() -> None:
    """By hand, in float64 and int64: weights, bias, sums and requantization."""
    model = Chain().eval()
    x = draw((5, 8))
    gm = made(model, x)
    hidden = np.maximum(model.a(x), 0)
    low, high = float(x.min()), float(x.max())
    scale = np.float32((high - low) / 255)
    zero = round(-low / float(scale))
    integers = np.clip(np.rint(x * (np.float32(1) / scale)) + zero, 0, 255).astype(np.int64)
    weight = np.asarray(model.a.weight, np.float64)
    weight_scale = (np.abs(weight).max(axis=1, keepdims=True) / 127).astype(np.float32)
    weight_integers = np.rint(weight / weight_scale).astype(np.int64)
    bias = np.rint(np.asarray(model.a.bias, np.float64) / (np.float64(scale) * weight_scale[:, 0]))
    sums = (integers - zero) @ weight_integers.T + bias.astype(np.int64)
    second = np.float32(hidden.max() / 255)
    ratio = (np.float64(scale) * weight_scale[:, 0].astype(np.float64) / second).astype(np.float32)
    expected = np.clip(np.rint(sums.astype(np.float32) * ratio), 0, 255)
    values: dict[str, Any] = {}

    class Recording(fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            values[node.name] = super().run_node(node)
            return values[node.name]

    Recording(gm).run(x)
    np.testing.assert_array_equal(values["linear_sums"], sums)
    np.testing.assert_array_equal(values["relu_integers"], expected)
    np.testing.assert_array_equal(gm.a.weight_i8, weight_integers)
    np.testing.assert_array_equal(gm.a.bias_i32, bias)


IMAGE = draw((2, 3, 8, 8))
BLOCKS: dict[str, tuple[Any, Any, float]] = {
    "padded, grouped, strided": (nn.Conv2d(4, 8, 3, 2, 1, 2, 2), draw((2, 4, 9, 9)), 35),
    "depthwise": (nn.Conv2d(4, 4, 3, padding=1, groups=4), draw((2, 4, 9, 9)), 35),
    "along one axis": (nn.Conv1d(4, 8, 3, 2, 1), draw((2, 4, 9)), 35),
    "same": (nn.Conv1d(4, 8, 3, padding="same"), draw((2, 4, 9)), 35),
    "same, even": (nn.Conv1d(4, 8, 4, padding="same"), draw((2, 4, 9)), 35),
    "no bias": (nn.Conv2d(3, 4, 1, bias=False), IMAGE, 35),
    "clipped": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 2, 3)), IMAGE, 30),
    "sigmoid": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 2, 3)), IMAGE, 30),
    "average": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.AvgPool2d(2), nn.Conv2d(8, 2, 3)), IMAGE, 30),
    "vector": (nn.Linear(8, 4), draw((8,)), 30),
}


@pytest.mark.parametrize("name", sorted(BLOCKS))
@pytest.mark.parametrize("config", [STATIC, q.dynamic_int8()], ids=["static", "dynamic"])
def test_blocks(name: str, config: Any) -> None:
    model, x, least = BLOCKS[name]
    gm = made(model, x, config=config)
    assert not {"conv2d", "conv1d", "linear"} & set(ops_of(gm))
    assert sqnr(model(x), gm(x)) > least


def test_clip_bounds_go_into_requantize() -> None:
    model, x, _ = BLOCKS["clipped"]
    gm = made(model, x)
    assert "clip" not in ops_of(gm) and ops_of(gm).count("requantize") == 1
    scaled = made(model, x * 100)  # 6 is no longer the end of the range
    agreed = sqnr(model(x * 100), scaled(x * 100))
    assert agreed > 25


def test_pad_and_max_pool_and_relu_stay_in_integers() -> None:
    conv = nn.Conv2d(3, 4, 3)

    def program(x: Any) -> Any:
        x = np.maximum(F.max_pool2d(ops.pad(x - 1, ((0, 0), (0, 0), (1, 1), (1, 1))), 2), 0)
        return conv(x)

    gm = made(program, IMAGE)
    assert ops_of(gm) == "sub quantize pad max_pool2d clip int_conv2d dequantize".split()
    nodes = {n.target.name: n for n in gm.graph.nodes if n.op == "call_function"}
    zero_point = nodes["quantize"].args[2]
    assert nodes["pad"].kwargs["value"] == nodes["clip"].kwargs["min"] == zero_point > 0
    assert sqnr(program(IMAGE), gm(IMAGE)) > 30


def test_scaled_values_keep_their_integers() -> None:
    w = draw((3, 8), 1)
    x = draw((4, 8))
    gm = made(lambda x: F.linear(x / np.float32(8), w), x)
    assert ops_of(gm) == "quantize int_linear dequantize".split()
    assert sqnr(F.linear(x / 8, w), gm(x)) > 35


@pytest.mark.parametrize("observer", ["minmax", "moving_average"])
def test_joined_values_of_very_different_size(observer: str) -> None:
    """What is joined has one scale, which holds the largest; a multiplied operand is computed."""
    x, y = draw((4, 3)), draw((4, 5), 1)
    w, large = draw((6, 8), 2), draw((6, 16), 3)

    def program(x: Any, y: Any) -> Any:
        joined = np.concatenate([x, y * 1000], axis=1)
        scaled = np.maximum(F.linear(joined, w), 0) / 8
        return F.linear(joined, w), F.linear(np.concatenate([scaled, x, y, x[:, :2]], axis=1), large)

    gm = fx.symbolic_trace(program, x, y)
    result = quantized(gm, q.static_int8(observer), x, y)
    assert ops_of(result).count("int_linear") == 3
    for expected, actual in zip(program(x, y), result(x, y), strict=True):
        assert sqnr(expected, actual) > 30


def test_moved_values_are_cut_off_in_their_own_scale() -> None:
    x = draw((4, 8)) * np.float32(100)
    w = draw((3, 8), 1)

    def program(x: Any) -> Any:
        return F.linear(np.clip(x[:, ::-1], -0.5, 2), w)

    assert sqnr(program(x), made(program, x)(x)) > 30


def test_matmul_with_weights_on_either_side() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v, self.u = (nn.Parameter(draw(s, 3)) for s in ((8, 6), (5, 4), (6,)))

        def forward(self, x: Any) -> Any:
            return (self.v @ (x @ self.w)) @ self.u

    x = draw((4, 8))
    gm = made(Both(), x)
    assert ops_of(gm).count("int_matmul") == 2  # of a vector or with a weight on the left
    assert ops_of(gm).count("int_linear") == 1  # its weight's axes exchanged
    assert sqnr(Both()(x), gm(x)) > 30


def test_sums_over_a_named_dim_are_guarded() -> None:
    """On every back end: what is longer could overflow int32."""

    def program(x: Any) -> Any:
        return x.transpose(1, 0) @ x  # sums over T

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
    gm = made(program, x, types=("f32[T,2]",))
    (guard,) = gm.graph.guards
    (product,) = gm.graph.find_nodes(op="call_function", target="int_matmul")
    zeros = product.kwargs["x_zero_point"], product.kwargs["y_zero_point"]
    assert guard.right == largest_depth(dtypes.uint8, dtypes.uint8, *zeros) > 65_000
    found = rf"T <= {guard.right} is required by test_convert.py:\d+: the sums of matmul in int32"
    long = np.ones((guard.right + 1, 2), np.float32)
    for function in (gm, *(fx.compile(gm, backend=name) for name in ("python", "c"))):
        np.testing.assert_array_equal(function(x), gm(x))
        with pytest.raises(ValueError, match=found):
            function(long)
    np.testing.assert_allclose(gm(long[1:]), guard.right, rtol=0.02)


def test_sums_over_a_named_dim_that_is_known_to_be_short_or_long() -> None:
    def program(x: Any) -> Any:
        return x.transpose(1, 0) @ x

    for facts, share in (({"max": 512}, 1), ({"min": 40_000}, 0)):
        type = fx.TensorType((fx.dims("T", **facts), 2), fx.float32)
        gm = fx.symbolic_trace(program, type)
        result = quantized(gm, STATIC, np.ones((facts.get("min", 3), 2), np.float32))
        assert not result.graph.guards and q.report(result).integer_share == share
    assert "33,025 products, and it has T" in str(q.report(result))


def test_a_computed_bias_is_added_in_float() -> None:
    w = draw((3, 8), 1)
    x = draw((3, 8))
    gm = made(lambda x: F.linear(x, w, np.tanh(x[:, 0])), x)
    assert ops_of(gm)[-2:] == ["dequantize", "add"]
    assert sqnr(F.linear(x, w, np.tanh(x[:, 0])), gm(x)) > 35


def test_channels_of_tiny_weights_keep_their_bias() -> None:
    model = nn.Linear(8, 3).eval()
    model.weight[0], model.weight[1] = 0, 1e-30
    model.bias[:] = [0.3, -7, 1]
    x = draw((4, 8))
    np.testing.assert_allclose(made(model, x)(x), model(x), atol=0.05)
    np.testing.assert_allclose(made(model, x)(x)[:, :2], model(x)[:, :2], rtol=1e-6)


def test_one_weight_of_many_calls_is_stored_once() -> None:
    layer = nn.Linear(8, 8)

    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            for _ in range(4):
                x = np.tanh(self.layer(x))
            return x

    for config in (STATIC, q.dynamic_int8(), q.weight_only_int8()):
        gm = made(Again(), draw((4, 8)), config=config)
        assert [k for k in gm.state_dict() if "weight_i8" in k] == ["layer.weight_i8"]


def test_weight_only() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8)).eval()
    x = draw((4, 64))
    eight = made(model, x, config=q.weight_only_int8())
    four = made(model, x, config=q.weight_only_int4())
    assert ops_of(eight).count("linear_weight_only") == ops_of(four).count("linear_weight_only") == 2
    assert sqnr(model(x), eight(x)) > 38 and sqnr(model(x), four(x)) > 16
    state = four.state_dict()
    assert state["0.weight_i4"].shape == (32, 32) and state["0.weight_scale"].shape == (32, 2)


def test_embedding_rows_have_scales_of_their_own() -> None:
    table = nn.Embedding(10, 8).eval()
    table.weight[3] *= 1000
    ids = np.arange(10)
    gm = made(table, ids, config=q.weight_only_int4(), types=("i64[B]",))
    assert ops_of(gm) == ["embedding", "embedding", "dequantize"]
    expected = np.asarray(table.weight)
    np.testing.assert_allclose(gm(ids), expected, atol=0, rtol=0.5 / 127 * 130 * np.abs(expected).max())
    error = np.abs(gm(ids) - expected).max(axis=1)
    assert np.all(error <= np.abs(expected).max(axis=1) / 127 * 0.51)


def test_dynamic_follows_each_row() -> None:
    """Rows of very different size; a row of zeros; NaN stays in its row."""
    model = nn.Linear(8, 4).eval()
    calibration = draw((4, 8))
    gm = made(model, calibration, config=q.dynamic_int8(), types=("f32[B,8]",))
    x = draw((4, 8)) * np.float32([[1e-6], [1], [1e6], [0]])
    for row in range(4):
        assert sqnr(model(x[row]), gm(x)[row]) > 30
    x[1, 2] = np.nan
    result = gm(x)
    assert np.isnan(result[1]).all() and np.isfinite(result[[0, 2, 3]]).all()


def test_halves() -> None:
    x = draw((4, 64))
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)).eval()
    for config, dtype, least in ((q.fp16(), "f16", 50), (q.bf16(), "bf16", 35)):
        gm = made(model, x, config=config)
        names = {n.type.dtype.name for n in gm.graph.nodes if n.op == "call_function"}
        assert names == {dtype, "f32"} and ops_of(gm).count("cast") == 2
        assert gm(x).dtype == np.float32 and sqnr(model(x), gm(x)) > least
    half = made(model, x, config=everything(q.bf16()).set_module_name("3", None))
    assert ops_of(half)[-2:] == ["cast", "linear"]


def test_halves_of_several_values() -> None:
    x = draw((4, 6))
    gm = made(lambda x: np.split(np.exp(x), 2, axis=1)[1] + 1, x, config=q.bf16())
    assert sqnr(np.exp(x)[:, 3:] + 1, gm(x)) > 35


def test_float16_refuses_weights_it_cannot_hold() -> None:
    model = nn.Linear(4, 4).eval()
    model.weight[0, 0] = 1e6
    with pytest.raises(q.QuantizationError, match=r"weight holds numbers up to 1e\+06.*bf16"):
        made(model, draw((2, 4)), config=q.fp16())


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_weights_that_are_no_numbers_are_refused(name: str) -> None:
    model = nn.Linear(4, 4).eval()
    getattr(model, name)[0] = np.inf
    prepared = q.prepare(fx.symbolic_trace(model, x="f32[B,4]"), everything(STATIC))
    prepared(draw((2, 4)))
    with pytest.raises(q.QuantizationError, match=f"the weight {name} holds . numbers that are"):
        q.convert(prepared)


def test_mixed_configs_in_one_model() -> None:
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6))).eval()
    mapping = everything(None)
    for number, preset in enumerate(q.PRESETS):
        mapping.set_module_name(str(number), preset)
    x = draw((4, 32))
    gm = made(model, x, config=mapping)
    found = [n for n in ops_of(gm) if "linear" in n]
    assert found == ["int_linear", "int_linear", "linear_weight_only", "linear_weight_only", "linear", "linear"]
    assert sqnr(model(x), gm(x)) > 15
    assert [r.qconfig for r in q.report(gm).rows] == list(q.PRESETS)


TOKENS = np.random.default_rng(0).integers(0, 1000, (2, 12))
MODELS: dict[str, tuple[Any, tuple[Any, ...], tuple[str, ...], float, float]] = {
    "resnet18": (ResNet18, (draw((1, 3, 32, 32)),), ("f32[B,3,32,32]",), 0.999, 30),
    "bert": (lambda: Bert(3), (TOKENS, np.ones_like(TOKENS)), ("i64[B,T]",) * 2, 0.999, 30),
    "gpt": (GptBlock, (draw((2, 12, 64)),), ("f32[B,T,64]",), 0.999, 35),
    "lstm": (Tagger, (TOKENS,), ("i64[B,12]",), 0.999, 35),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_share_of_integer_multiply_adds(name: str) -> None:
    """At least 95 %: in fact all of them."""
    make, inputs, types, share, least = MODELS[name]
    model = make().eval()
    traced = fx.symbolic_trace(model, *types)
    gm = quantized(traced, q.static_int8(), *inputs)
    assert q.report(gm, {"T": 128}).integer_share >= share
    assert sqnr(traced(*inputs), gm(*inputs)) > least
    kinds = {"linear", "conv2d", "matmul", "scaled_dot_product_attention", "recurrence"}
    assert not kinds & set(ops_of(gm)) and not passes.ledger(gm)


def test_no_float_stands_between_the_products_of_a_resnet() -> None:
    gm = quantized(fx.symbolic_trace(ResNet18().eval(), "f32[B,3,32,32]"), STATIC, draw((1, 3, 32, 32)))
    products = [n for n in gm.graph.nodes if n.op == "call_function" and "int_" in n.target.name]
    assert len(products) == 21
    for node in products:
        assert node.args[0].type.dtype.name == "u8"
    # residuals: sums and stored integers are added in one expression, without a float in memory
    for add in gm.graph.find_nodes(op="call_function", target="add"):
        assert {v.target.name for v in add.args} == {"dequantize"}


def test_every_back_end_computes_the_same_bits() -> None:
    """Static and dynamic in one model: integers, and scales that nothing fuses with."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5)
    )
    x = draw((3, 1, 8, 8))
    mapping = everything(STATIC).set_module_name("5", q.dynamic_int8())
    gm = made(model, x, config=mapping, types=("f32[B,1,8,8]",))
    assert {"int_conv2d", "requantize", "int_linear"} <= set(ops_of(gm))
    agree(gm, x, rungs=("graph", "python", "kernel"))
    np.testing.assert_array_equal(fx.compile(gm, backend="c")(x), gm(x))


def test_weight_only_in_c() -> None:
    agree(made(nn.Linear(64, 5), draw((3, 64)), config=q.weight_only_int4()), draw((3, 64)))


def test_uncalibrated_observers_are_all_listed() -> None:
    prepared = q.prepare(fx.symbolic_trace(Chain().eval(), x="f32[B,8]"), everything(STATIC))
    prepared(np.zeros((0, 8), np.float32))
    with pytest.raises(q.QuantizationError) as caught:
        q.convert(prepared)
    message = str(caught.value)
    assert "2 observers are not calibrated" in message
    assert "x (test_convert.py:" in message and "relu (test_convert.py:" in message
    assert "1 empty batch" in message


def test_only_what_was_prepared_is_converted() -> None:
    with pytest.raises(q.QuantizationError, match="convert takes what prepare returned"):
        q.convert(fx.symbolic_trace(Chain().eval(), x="f32[B,8]"))


def test_without_static_products_nothing_is_to_be_calibrated() -> None:
    gm = fx.symbolic_trace(Chain().eval(), x="f32[B,8]")
    assert "int_linear" in ops_of(q.convert(q.prepare(gm, everything(q.dynamic_int8()))))


def test_saved_and_loaded(tmp_path: Any) -> None:
    x = draw((5, 8))
    gm = made(Chain(), x)
    fx.save(gm, tmp_path / "quantized.fxl")
    again = fx.load(tmp_path / "quantized.fxl")
    np.testing.assert_array_equal(again(x), gm(x))
    assert str(q.report(again)) == str(q.report(gm))


def test_new_nodes_say_where_they_come_from() -> None:
    gm = made(Chain(), draw((5, 8)))
    by_op = {n.target.name: n for n in gm.graph.nodes if n.op == "call_function"}
    assert by_op["int_linear"].meta["from"] == (("quantize", "linear_1"),)
    assert by_op["int_linear"].scope.path == "b" and by_op["int_linear"].loc is not None
