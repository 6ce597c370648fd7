"""Interpreter and Transformer, and what their subclasses may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError
from tests.core.test_retrace import facts
from tests.oracle import compare
from tests.zoo import ZOO, Program

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def model() -> fx.GraphModule:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    return fx.symbolic_trace(net, "f32[B,4]")


# -- Interpreter -----------------------------------------------------------------------------------
def test_methods_see_every_node() -> None:
    class Log(fx.Interpreter):
        def __init__(self, gm: fx.GraphModule) -> None:
            super().__init__(gm)
            self.seen: list[str] = []

        def run_node(self, node: fx.Node) -> Any:
            self.seen.append(node.name)
            return super().run_node(node)

        def fetch_attr(self, target: str) -> Any:
            self.seen.append(target)
            return super().fetch_attr(target)

    gm = model()
    log = Log(gm)
    np.testing.assert_array_equal(log.run(X), gm(X))
    names = [n.name for n in gm.graph.nodes]
    assert [s for s in log.seen if s in names] == names
    assert "0.weight" in log.seen


def test_call_function_and_output_can_be_overridden() -> None:
    class Negative(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().call_function(target, args, kwargs)
            return -result if target is ops.relu else result

        def output(self, target: Any, args: Any, kwargs: Any) -> Any:
            return {"y": super().output(target, args, kwargs)}

    gm = model()
    w = gm.get_attribute("2.weight")
    hidden = np.maximum(X @ gm.get_attribute("0.weight").T + gm.get_attribute("0.bias"), 0)
    expected = -hidden @ w.T + gm.get_attribute("2.bias")
    np.testing.assert_allclose(Negative(gm).run(X)["y"], expected, rtol=1e-5)


def test_placeholders_come_one_after_the_other() -> None:
    class Doubles(fx.Interpreter):
        def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().placeholder(target, args, kwargs) * 2

    gm = fx.symbolic_trace(lambda x, y: x - y, "f32[3]", "f32[3]")
    x, y = np.float32([1, 2, 3]), np.float32([3, 2, 1])
    np.testing.assert_array_equal(Doubles(gm).run(x, y), 2 * (x - y))
    np.testing.assert_array_equal(Doubles(gm).run(y=y, x=x), 2 * (x - y))


def test_initial_env() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x) + x, "f32[3]")
    x = np.float32([1, 2, 3])
    exp = gm.graph.find_nodes(op="call_function", target="exp")[0]
    np.testing.assert_array_equal(fx.Interpreter(gm).run(x, initial_env={exp: x}), x + x)
    start = {gm.graph.placeholders[0]: x}
    np.testing.assert_array_equal(fx.Interpreter(gm).run(initial_env=start), np.exp(x) + x)


def test_values_are_freed_after_their_last_use() -> None:
    class Peak(fx.Interpreter):
        peak = 0

        def run_node(self, node: fx.Node) -> Any:
            self.peak = max(self.peak, len(self.env))
            return super().run_node(node)

    def chain(x: Any) -> Any:
        for _ in range(20):
            x = x + 1
        return x

    gm = fx.symbolic_trace(chain, "f32[3]")
    short, long = Peak(gm), Peak(gm, garbage_collect_values=False)
    short.run(X[0, :3])
    long.run(X[0, :3])
    assert short.peak == 1
    assert long.peak == 21


def test_errors_name_the_node_and_its_line() -> None:
    class Fails(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        Fails(fx.symbolic_trace(lambda x: x + 1, "f32[3]")).run(X[0, :3])
    assert "while running node add" in caught.value.__notes__[0]
    assert "test_interpreter.py" in caught.value.__notes__[0]
    with pytest.raises(ArgumentError, match="missing a required argument"):
        fx.Interpreter(model()).run()


# -- Transformer -----------------------------------------------------------------------------------
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_transformer_keeps_everything(program: Program) -> None:
    gm, _, inputs = program.trace()
    for number, node in enumerate(gm.graph.nodes):
        node.meta["number"] = number
    done = fx.Transformer(gm).transform()
    assert facts(done.graph) == facts(gm.graph)
    done.graph.lint(full=True)
    compare(program.name, done(*inputs), gm(*inputs))


def test_overrides_compute_with_proxies() -> None:
    class ReluToGate(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is ops.relu:
                (x,) = args
                return x / (1 + np.exp(-x)) + ops.sum(x, axis=1, keepdims=True)
            return super().call_function(target, args, kwargs)

    gm = model()
    before = gm.graph.text(full=True)
    done = ReluToGate(gm).transform()
    done.graph.lint(full=True)
    assert gm.graph.text(full=True) == before
    assert not done.graph.find_nodes(op="call_function", target="relu")
    relu = gm.graph.find_nodes(op="call_function", target="relu")[0]
    for name in ("neg", "exp", "div", "sum"):
        (made,) = done.graph.find_nodes(op="call_function", target=name)
        assert (made.scope, made.loc) == (relu.scope, relu.loc)
        assert made.type is not None
    hidden = X @ gm.get_attribute("0.weight").T + gm.get_attribute("0.bias")
    hidden = hidden / (1 + np.exp(-hidden)) + hidden.sum(1, keepdims=True)
    expected = hidden @ gm.get_attribute("2.weight").T + gm.get_attribute("2.bias")
    np.testing.assert_allclose(done(X), expected, rtol=1e-4)


def test_call_super_then_compute() -> None:
    class Scales(fx.Transformer):
        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            value = super().get_attr(target, args, kwargs)
            return value * 2 if target.endswith("weight") else value

        def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().placeholder(target, args, kwargs) + 1

    gm = model()
    done = Scales(gm).transform()
    hidden = np.maximum((X + 1) @ (2 * gm.get_attribute("0.weight").T) + gm.get_attribute("0.bias"), 0)
    expected = hidden @ (2 * gm.get_attribute("2.weight").T) + gm.get_attribute("2.bias")
    np.testing.assert_allclose(done(X), expected, rtol=1e-5)


def test_arrays_in_overrides_become_constants() -> None:
    class AddsBias(fx.Transformer):
        def output(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().output(target, (args[0] + np.float32([1, 2]),), kwargs)

    gm = model()
    done = AddsBias(gm).transform()
    np.testing.assert_allclose(done(X), gm(X) + np.float32([1, 2]), rtol=1e-6)
    assert {n for n, _ in done.named_buffers()} - {n for n, _ in gm.named_buffers()}


def test_leaf_modules_pass_through() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    gm = fx.symbolic_trace(net, "f32[B,4]", leaf=nn.Linear)
    done = fx.Transformer(gm).transform()
    assert facts(done.graph) == facts(gm.graph)
    np.testing.assert_array_equal(done(X), gm(X))
