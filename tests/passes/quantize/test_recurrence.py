"""Recurrent layers through the flow: their states are observed and become integers in the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.base.errors import ShapeError
from fxlite.passes import quantize as q
from fxlite.passes.quantize.conversion.error_correction import simulate
from fxlite.passes.quantize.schemes.observers import Observer
from tests.graphs import ops_of
from tests.oracle import agree
from tests.passes.quantize.helpers import draw, everything, quantized, sqnr

CONFIGS = {"u8": q.static_int8("minmax"), "i8": q.static_int8("minmax", activation="i8"), "dynamic": q.dynamic_int8()}


class Layers(nn.Module):
    """Two layers in both directions, from states that are given."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(6, 10, num_layers=2, bidirectional=True)
        self.is_lstm = kind == "LSTM"

    def forward(self, x: Any, h: Any) -> Any:
        return self.layer(x, (h, h * 9) if self.is_lstm else h)[0]


def traced(kind: str) -> tuple[fx.GraphModule, Any, Any]:
    gm = fx.symbolic_trace(Layers(kind).eval(), x="f32[T,B,6]", h="f32[4,B,10]")
    return gm, draw((7, 3, 6)), np.tanh(draw((4, 3, 10), 1))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_all_products_become_integers(kind: str, config: str) -> None:
    gm, x, h = traced(kind)
    made = quantized(gm, CONFIGS[config], x, h)
    assert ops_of(made).count("int_recurrence") == 4 and "recurrence" not in ops_of(made)
    found = q.report(made, {"T": 7, "B": 3})
    assert found.integer_share == 1 and not passes.ledger(made)
    loops = [row for row in found.rows if row.op == "recurrence"]
    assert len(loops) == 4 and all(row.bytes_after < row.bytes_before / 2 for row in loops)
    assert sqnr(gm(x, h), made(x, h)) > 25


def test_compiled_states_are_those_of_numpy() -> None:
    gm, x, h = traced("GRU")
    made = quantized(gm, CONFIGS["u8"], x, h)
    found = fx.compile(made)(x, h)
    assert np.abs(found - made(x, h)).max() < 0.01  # where one integer is another: usually 1e-7
    assert np.median(np.abs(found - made(x, h))) < 1e-6


def test_relu_states_have_the_same_bits_everywhere() -> None:
    """Sums are exact, and there is neither tanh nor sigmoid."""
    weight = np.random.default_rng(0).integers(-127, 128, (5, 5)).astype(np.int8)
    scale = np.random.default_rng(1).uniform(0.001, 0.01, 5).astype(np.float32)

    def program(x: Any, h: Any) -> Any:
        made = {"mode": "rnn_relu", "bias_hh": x[0, 0]}
        dynamic = ops.int_recurrence(x, weight, scale, h, **made)
        static = {"state_scale": 0.03, "state_zero_point": 9}
        return dynamic, ops.int_recurrence(x, weight, scale, h, reverse=True, **made, **static)

    types = ("f32[6,B,5]", "f32[B,5]")
    agree(program, draw((6, 3, 5)), draw((3, 5), 1), types=types)


def test_the_first_state_counts_and_the_cell_state_does_not() -> None:
    gm, x, h = traced("LSTM")
    prepared = q.prepare(gm, everything(CONFIGS["u8"]))
    h = h.copy()
    h[:, 0, 0] = 3
    assert np.array_equal(prepared(x, h), gm(x, h))
    named = dict(prepared.named_modules())
    states = [m for path, m in named.items() if isinstance(m, Observer) and "recurrence" in path]
    assert len(states) == 4
    for observer in states:  # the cell state begins with 27
        assert observer.high == 3 and -1 < observer.low < 0


@pytest.mark.parametrize("config", [*CONFIGS, "weight_only"])
def test_simulated_values_are_those_of_convert(config: str) -> None:
    gm, x, h = traced("LSTM")
    prepared = q.prepare(gm, everything(CONFIGS.get(config, q.weight_only_int8())))
    prepared(x, h)
    (result,) = list(simulate(prepared, [(x, h)]))[-1].results()  # states, and twice the last
    converted = q.convert(prepared)
    assert sqnr(converted(x, h)[..., 10:], result[:-2]) > 35 > 20


def test_accuracy_helpers_leave_the_loop_with_a_reason() -> None:
    gm, x, h = traced("GRU")
    prepared = q.prepare(gm, everything(CONFIGS["u8"]))
    prepared(x, h)
    chosen = q.correct_bias(q.gptq(prepared, [(x, h)]), [(x, h)])
    reasons = " ".join(entry.reason for entry in passes.ledger(chosen))
    assert "its own results" in reasons and "part of a loop over time" in reasons
    assert sqnr(gm(x, h), q.convert(chosen)(x, h)) > 25


def test_sensitivity_has_the_loop() -> None:
    gm, x, h = traced("LSTM")
    found = q.sensitivity(gm, [(x, h)], ["static_int8", "dynamic_int8", "weight_only_int8"])
    (layer,) = found.layers
    assert layer.ops == ("linear", "recurrence")
    assert all(choice.sqnr > 20 for choice in layer.choices.values())
    weights = gm.get_submodule("layer").state_dict().values()
    products = sum(w.size for w in weights if w.ndim == 2)
    rows = sum(len(w) for w in weights if w.ndim == 2)
    assert layer.choices["dynamic_int8"].bytes == products + 4 * rows


def test_training_rounds_the_weights_of_the_loop() -> None:
    gm, x, h = traced("LSTM")
    training = q.static_int8("moving_average", averaging=0.5)
    prepared = q.prepare_qat(gm, everything(training))
    prepared(x, h)
    loops = prepared.graph.find_nodes(op="call_function", target="recurrence")
    assert len(loops) == 4
    assert all(n.arguments["weight_hh"].target is ops.fake_quantize for n in loops)
    made = q.convert(prepared)
    assert ops_of(made).count("int_recurrence") == 4
    assert sqnr(prepared(x, h), made(x, h)) > 25


def test_what_stays_float() -> None:
    def program(x: Any, h: Any, w: Any) -> Any:
        return ops.recurrence(x, w, h, mode="rnn_tanh")

    gm = fx.symbolic_trace(program, x="f32[T,B,4]", h="f32[B,4]", w="f32[4,4]")
    made = q.convert(q.prepare(gm, everything(q.dynamic_int8())))
    assert "its weight is computed" in str(passes.ledger(made))


def test_sums_that_could_overflow_are_refused() -> None:
    types = ("f32[1,1,65794]", "i8[65794,65794]", "f32[65794]", "f32[1,65794]")
    affine = {"mode": "rnn_relu", "state_scale": 0.1, "state_zero_point": 0}
    with pytest.raises(ShapeError, match="hold 65793 products"):
        fx.symbolic_trace(lambda x, w, s, h: ops.int_recurrence(x, w, s, h, **affine), *types)
