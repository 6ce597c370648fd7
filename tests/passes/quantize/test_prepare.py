"""Prepare: where observers stand, who reads them, and that the program computes what it did."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.base.errors import FxliteError
from fxlite.passes import quantize as q
from tests.graphs import ops_of
from tests.models import BasicBlock, GptBlock
from tests.passes.quantize.helpers import draw, everything
from tests.work import assert_linear

STATIC = q.static_int8("minmax")


def observed(prepared: fx.GraphModule) -> dict[str, str]:
    """Observed value -> path of its observer."""
    return {n.args[0].name: n.target for n in prepared.graph.find_nodes(op="call_module")}


def prepare(program: Any, *types: str, mapping: Any = STATIC) -> fx.GraphModule:
    if isinstance(program, nn.Module):
        program.eval()
    if not isinstance(mapping, q.QConfigMapping):
        mapping = everything(mapping)
    return q.prepare(fx.symbolic_trace(program, *types), mapping)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(draw(shape, 7))


def test_a_prepared_graph_runs_eagerly_and_shows_what_it_saw() -> None:
    gm = fx.symbolic_trace(BasicBlock(4, 8, 2).eval(), x="f32[B,4,6,6]")
    prepared = q.prepare(gm, everything(STATIC))
    x = draw((2, 4, 6, 6))
    np.testing.assert_allclose(prepared(x), gm(x), atol=1e-6)
    np.testing.assert_array_equal(fx.Interpreter(prepared).run(x), prepared(x))
    assert "self.observers.relu(relu)" in prepared.graph.text(full=True)
    assert "values in 0.." in repr(prepared.observers.relu)
    assert "batch_norm" not in ops_of(prepared) and "batch_norm" in ops_of(gm)
    assert not gm.graph.find_nodes(op="call_module")  # the input is left as it was


def test_residual_block() -> None:
    """The branch that is computed first is stored; the last product ends in the addition, which is
    observed behind the relu."""
    prepared = prepare(nn.Sequential(BasicBlock(4, 8, 2), nn.Conv2d(8, 4, 1)), "f32[B,4,6,6]")
    last = prepared.graph.find_nodes(op="call_function", target="add")[0]
    names = {n.name: n for n in prepared.graph.nodes}
    assert set(observed(prepared)) == {"x", "relu", "conv2d", "relu_1"}
    assert last.args == (names["conv2d_2"], names["conv2d_observed"])
    assert names["conv2d"].scope.path == "0.downsample.0"


def test_attention_is_opened_and_its_scale_goes_into_the_scale() -> None:
    def attention(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x * 1.5, np.tanh(x))

    prepared = prepare(attention, "f32[B,T,8]")
    assert ops_of(prepared).count("matmul") == 2 and "softmax" in ops_of(prepared)
    assert set(observed(prepared)) == {"x", "scaled_dot_product_attention_softmax", "tanh"}
    softmax = prepared.graph.find_nodes(op="call_function", target="softmax")[0]
    assert softmax.all_input_nodes[0].target is ops.matmul  # what it reads is not rounded


def test_values_computed_in_float_are_rounded_for_products_alone() -> None:
    prepared = prepare(GptBlock(), "f32[B,T,64]")
    names = {n.name: n for n in prepared.graph.nodes}
    assert names["add"].args == (names["x"], names["linear_1"])
    assert names["linear_2"].args[0] is names["layer_norm_1_observed"]
    assert "add" not in observed(prepared)


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.out = nn.Conv2d(8, 2, 3)

    def forward(self, x: Any) -> Any:
        both = np.concatenate([np.maximum(self.a(x), 0), self.b(x)], axis=1)
        wide = ops.pad(F.max_pool2d(both, 2), ((0, 0), (0, 0), (1, 1), (1, 1)))
        return self.out(wide)


def test_what_is_joined_shares_an_observer() -> None:
    prepared = prepare(Joined(), "f32[B,3,6,6]")
    found = observed(prepared)
    assert found["relu"] == found["conv2d_1"] == "observers.relu" and len(found) == 3
    prepared(draw((2, 3, 6, 6)))
    assert prepared.observers.relu.values == 2 * 2 * 4 * 36  # both values went through it
    assert "1 values of equal scale" in prepared.observers.relu.of


@pytest.mark.parametrize(
    ("chain", "type"),
    [
        (lambda x: x.reshape(-1, 8), "f32[B,2,8]"),
        (lambda x: np.transpose(x, (0, 2, 1)), "f32[B,8,3]"),
        (lambda x: x[:, ::2], "f32[B,6,8]"),
        (lambda x: np.stack([x, x])[0], "f32[B,8]"),
        (lambda x: x.max(axis=1), "f32[B,5,8]"),
        (lambda x: x / 4, "f32[B,8]"),
        (lambda x: np.maximum(x[0], x[1]), "f32[2,B,8]"),
        (lambda x: np.split(x, 2, axis=1)[1], "f32[B,16]"),
        (lambda x: np.maximum(x.reshape(-1, 8), 0), "f32[B,2,8]"),
        (lambda x: F.interpolate(x, scale_factor=2)[:, 0], "f32[B,2,2,4]"),
    ],
    ids="reshape permute slice stack max scale maximum split relu nearest".split(),
)
def test_what_only_moves_numbers_is_behind_the_observer(chain: Any, type: str) -> None:
    w = np.ones((3, 8), np.float32)

    def program(x: Any) -> Any:
        return F.linear(chain(x), w)

    prepared = prepare(program, type)
    assert list(observed(prepared)) == ["x"]


@pytest.mark.parametrize(
    "chain",
    [lambda x: x * -2, lambda x: x + 1, lambda x: ops.pad(x, ((0, 0), (0, 0)), 1.0), np.tanh],
    ids="negative add pad-with-1 tanh".split(),
)
def test_what_computes_is_in_front_of_it(chain: Any) -> None:
    w = np.ones((3, 8), np.float32)
    prepared = prepare(lambda x: F.linear(chain(x), w), "f32[B,8]")
    assert "x" not in observed(prepared) and len(observed(prepared)) == 1


def test_readers_of_two_schemes_have_two_observers() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            x = x.reshape(-1, 8)
            return self.a(x) + self.b(x)

    mapping = everything(STATIC).set_module_name("b", q.static_int8("minmax", activation="i8"))
    prepared = prepare(Two(), "f32[B,2,8]", mapping=mapping)
    schemes = [prepared.get_submodule(n.target).scheme.dtype for n in prepared.graph.find_nodes(op="call_module")]
    assert sorted(schemes) == ["i8", "u8", "u8"]  # x twice, and what a adds to b
    x = draw((3, 2, 8))
    prepared(x)
    assert ops_of(q.convert(prepared)).count("int_linear") == 2


def reasons(prepared: fx.GraphModule) -> list[str]:
    return [
        d.reason
        for n in prepared.graph.nodes
        if isinstance(d := n.meta.get("quantize"), q.Decision) and d.role == "float"
    ]


BIG = np.zeros((2, 66_000), np.float32)
LONG = np.zeros((2, 65_700), np.float32)


@pytest.mark.parametrize(
    ("program", "type", "config", "reason"),
    [
        (lambda x: F.linear(x, np.tanh(x)), "f32[4,4]", STATIC, "weight is computed"),
        (lambda x: F.linear(x, BIG), "f32[B,66000]", STATIC, "int32 is certain to hold the sum of 65,793"),
        (lambda x: F.linear(x, LONG, BIG[:, 0]), "f32[B,65700]", STATIC, "no room for the bias"),
        (lambda x: x @ x, "f64[4,4]", STATIC, "not all float32"),
        (lambda x: x @ x, "f32[4,4]", q.dynamic_int8(), "products of activations"),
        (
            lambda x: F.conv_transpose2d(x, np.ones((1, 1, 2, 2), np.float32)),
            "f32[1,1,4,4]",
            STATIC,
            "no integer conv_transpose2d",
        ),
        (lambda x: F.scaled_dot_product_attention(x, x, x), "f32[4,4]", q.dynamic_int8(), "static_int8 quantizes them"),
        (lambda x: x @ x, "f32[4,4]", None, "no rule of the mapping"),
    ],
)
def test_why_a_product_stays_in_float(program: Any, type: str, config: Any, reason: str) -> None:
    (found,) = reasons(prepare(program, type, mapping=config))
    assert reason in found


def test_recurrent_layers_are_a_linear_layer_and_a_loop() -> None:
    prepared = prepare(nn.LSTM(8, 6), "f32[5,B,8]")
    assert not reasons(prepared)
    assert ops_of(prepared).count("linear") == ops_of(prepared).count("recurrence") == 1


def test_a_rule_for_a_composite_holds_for_what_it_becomes() -> None:
    mapping = everything(None).set_object_type("lstm", STATIC)
    prepared = prepare(nn.LSTM(8, 6), "f32[5,B,8]", mapping=mapping)
    assert set(observed(prepared)) == {"x", "full", "lstm_recurrence"}


def test_a_transposed_weight_is_folded_and_is_a_weight() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight(5, 8)

        def forward(self, x: Any) -> Any:
            return x @ self.weight.T

    prepared = prepare(Transposed(), "f32[B,8]", mapping=q.dynamic_int8())
    prepared(draw((3, 8)))
    assert "int_linear" in ops_of(q.convert(prepared))


def test_what_cannot_be_prepared() -> None:
    with pytest.raises(q.QuantizationError, match="has no types"):
        q.prepare(fx.symbolic_trace(lambda x: x @ x), everything(STATIC))
    training = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with pytest.raises(q.QuantizationError, match="draws numbers; call eval"):
        q.prepare(fx.symbolic_trace(training, x="f32[B,4]"), everything(STATIC))


def test_prepared_modules_copy_and_pass_through_passes() -> None:
    prepared = prepare(Joined(), "f32[B,3,6,6]")
    x = draw((2, 3, 6, 6))
    again = passes.PassManager([passes.cse, passes.dce])(prepared)
    again(x)
    made = q.convert(again)
    assert ops_of(made).count("int_conv2d") == 3
    with pytest.raises(FxliteError, match="leaf module"):
        fx.save(prepared, "nowhere.fxl")


@pytest.mark.parametrize("kind", ["chain", "fan"])
def test_time_grows_with_the_size_and_not_with_its_square(kind: str) -> None:
    w = np.full((2, 2), 1e-3, np.float32)

    def chain(length: int, x: Any) -> Any:
        for _ in range(length):
            x = np.maximum(F.linear(x, w), 0) + x
        return x

    def fan(length: int, x: Any) -> Any:
        return F.linear(np.concatenate([F.linear(x, w) for _ in range(length)]), w)

    def make(length: int) -> fx.GraphModule:
        body = chain if kind == "chain" else fan
        return fx.symbolic_trace(lambda x: body(length, x), x="f32[B,2]")

    def quantize(gm: fx.GraphModule) -> None:
        prepared = q.prepare(gm, everything(STATIC))
        prepared(draw((2, 2)))
        made = q.convert(prepared)
        assert ops_of(made).count("int_linear") == ops_of(gm).count("linear") > 0

    assert_linear(make, quantize, 50)


def test_edits_after_prepare_are_noticed() -> None:
    prepared = prepare(lambda x: F.linear(np.exp(x), np.ones((3, 4), np.float32)), "f32[B,4]")
    product = prepared.graph.find_nodes(op="call_function", target="linear")[0]
    prepared(draw((2, 4)))
    product.update_arg(0, prepared.graph.find_nodes(op="call_function", target="exp")[0])
    with pytest.raises(q.QuantizationError, match="edited after prepare; prepare it again"):
        q.convert(prepared)


def test_prepared_modules_are_converted_first() -> None:
    """Prepared once, and neither saved nor compiled before that."""
    prepared = prepare(lambda x: F.linear(x, np.ones((3, 4), np.float32)), "f32[B,4]")
    for again in (q.prepare, q.prepare_qat):
        with pytest.raises(q.QuantizationError, match="is prepared already: calibrate it"):
            again(prepared, everything(STATIC))
    advice = "it observes for calibration: convert the prepared module first"
    for use in (pickle.dumps, fx.compile, lambda gm: gm.to_folder("nowhere")):
        with pytest.raises(FxliteError, match=advice):
            use(prepared)


@pytest.mark.parametrize("given", [None, 3, nn.Linear(2, 2)])
def test_what_is_no_module_of_the_flow(given: Any) -> None:
    for function, message in (
        (q.convert, "convert takes what prepare returned"),
        (q.report, "report takes what convert returned"),
        (lambda x: q.gptq(x, [draw((2, 2))]), "this takes what prepare returned"),
    ):
        with pytest.raises(q.QuantizationError, match=message):
            function(given)
    gm = fx.symbolic_trace(nn.Linear(2, 2).eval(), x="f32[B,2]")
    with pytest.raises(q.QuantizationError, match="batches are a list of batches, each an array"):
        q.quantize(gm, everything(STATIC), {"x": draw((2, 2))} if given else given)
