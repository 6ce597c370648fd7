"""Dropout traced in training mode follows the module's mode afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.errors import FxliteError
from tests.graphs import ops_of


def _traced() -> fx.GraphModule:
    model = nn.Sequential(nn.Dropout(0.5), nn.ReLU())
    assert model.training
    return fx.symbolic_trace(model, x="f32[1000]")


def test_eval_after_tracing_in_training_mode() -> None:
    gm = _traced()
    x = np.ones(1000, np.float32)
    nn.init.manual_seed(0)
    assert 300 < np.count_nonzero(gm(x)) < 700
    assert 300 < np.count_nonzero(fx.Interpreter(gm).run(x)) < 700
    gm.eval()
    np.testing.assert_array_equal(gm(x), x)
    np.testing.assert_array_equal(fx.Interpreter(gm).run(x), x)
    np.testing.assert_array_equal(fx.compile(gm, backend="c")(x), x)


def test_pass_drops_the_node_only_in_inference() -> None:
    gm = _traced()
    assert len(passes.remove_dropout(gm).graph) == len(gm.graph)
    gm.eval()
    without = passes.remove_dropout(gm)
    assert not without.graph.find_nodes(op="call_function", target="dropout")
    assert fx.parse(gm.graph.text(full=True)) == gm.graph


def test_training_dropout_is_not_compiled() -> None:
    with pytest.raises(FxliteError, match=r"eval\(\)"):
        fx.compile(_traced(), backend="c")


@pytest.mark.parametrize("training", [True, False])
def test_decompose_leaves_dropout_to_this_pass(training: bool) -> None:
    gm = fx.symbolic_trace(lambda x: F.silu(F.dropout(x, 0.5)), x="f32[4]").train(training)
    assert ops_of(passes.decompose(gm)) == ["dropout", "sigmoid", "mul"]
