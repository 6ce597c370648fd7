"""torch.fx's tutorial passes, ported: what its users write first, in at most 30 lines each.

Written from torch.fx's documentation ("Writing transformations", "The Interpreter pattern", the
tutorials on conv-bn fusion and on profiling); the programs are fxlite's own.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.graph.node import map_nodes
from tests.graphs import ops_of

RECIPES: list[Callable[..., Any]] = []


def recipe(function: Any) -> Any:
    """Register a port: its source, this line apart, must not be longer than 30 lines."""
    RECIPES.append(function)
    return function


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()
        self.fc = nn.Linear(4, 2)
        self.bn.running_mean[:] = [0.5, -1, 0, 2]
        self.bn.running_var[:] = [0.5, 1, 2, 4]

    def forward(self, x: Any) -> Any:
        return self.fc(self.act(self.bn(self.conv(x))).mean(axis=(2, 3)))


@pytest.fixture
def net() -> Net:
    return Net().eval()


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(0).standard_normal((2, 1, 5, 5)).astype(np.float32)


def test_no_recipe_is_longer_than_thirty_lines() -> None:
    assert len(RECIPES) >= 10
    for function in RECIPES:
        lines = inspect.getsource(function).strip().splitlines()[1:]
        assert len(lines) <= 30, function.__name__


# -- replace one op by another -----------------------------------------------------------------
@recipe
def replace_add_by_mul(model: Any, **inputs: Any) -> fx.GraphModule:
    gm = fx.symbolic_trace(model, inputs=inputs)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target == ops.add:
            node.target = ops.mul
    gm.graph.lint()
    return gm


def test_replace_one_op() -> None:
    gm = replace_add_by_mul(lambda x, y: x + np.add(y, 2), x="f32[4]", y="f32[4]")
    x, y = np.float32([1, 2, 3, 4]), np.float32([5, 6, 7, 8])
    assert np.array_equal(gm(x, y), x * (y * 2))  # no recompile() is needed


@recipe
def insert_a_node_after_each(gm: fx.GraphModule, op: str, new: str) -> fx.GraphModule:
    for node in gm.graph.find_nodes(op="call_function", target=op):
        with gm.graph.inserting_after(node):
            made = gm.graph.call_function(new, (node,))
        node.replace_all_uses_with(made, delete_user_cb=lambda user, made=made: user is not made)
    return gm


def test_insert_nodes(net: Net, x: Any) -> None:
    gm = insert_a_node_after_each(fx.symbolic_trace(net, x=x), "relu", "neg")
    relu = np.maximum(net.bn(net.conv(x)), 0)
    np.testing.assert_allclose(gm(x), net.fc((-relu).mean(axis=(2, 3))), rtol=1e-5)
    assert gm.graph.find_nodes(op="call_function", target="neg")[0].type == fx.parse_type("f32[2,4,5,5]")


@recipe
def delete_nodes(gm: fx.GraphModule, op: str) -> fx.GraphModule:
    for node in gm.graph.find_nodes(op="call_function", target=op):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    return gm


def test_delete_nodes(net: Net, x: Any) -> None:
    gm = delete_nodes(fx.symbolic_trace(net, x=x), "relu")
    np.testing.assert_allclose(gm(x), net.fc(net.bn(net.conv(x)).mean(axis=(2, 3))), rtol=1e-5)


# -- decompose by retracing with proxies ---------------------------------------------------------
@recipe
def decompose_by_proxies(gm: fx.GraphModule, rules: dict[Any, Callable[..., Any]]) -> Any:
    new, env = fx.Graph(gm), {}
    tracer = fx.GraphAppendingTracer(new)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in rules:
            proxies = map_nodes(node.args, lambda n: fx.Proxy(env[n], tracer))
            env[node] = rules[node.target](*proxies, **node.kwargs).node
        else:
            env[node] = new.node_copy(node, lambda n: env[n])
    return fx.GraphModule(gm, new)


def test_decompose_by_proxies(net: Net, x: Any) -> None:
    gm = fx.symbolic_trace(net, x=x)
    done = decompose_by_proxies(gm, {ops.relu: lambda x: (x > 0) * x})
    done.graph.lint(full=True)
    assert "relu" not in ops_of(done) and {"gt", "mul"} <= set(ops_of(done))
    np.testing.assert_allclose(done(x), gm(x), rtol=1e-6)


# -- interpreters --------------------------------------------------------------------------------
@recipe
class Profiler(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.total: list[float] = []
        self.seconds: dict[fx.Node, list[float]] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = super().run(*args, **kwargs)
        self.total.append(time.perf_counter() - start)
        return result

    def run_node(self, node: fx.Node) -> Any:
        start = time.perf_counter()
        result = super().run_node(node)
        self.seconds.setdefault(node, []).append(time.perf_counter() - start)
        return result

    def summary(self) -> list[tuple[str, str, float]]:
        share = {n: 100 * sum(t) / sum(self.total) for n, t in self.seconds.items()}
        return sorted(((n.op, n.name, s) for n, s in share.items()), key=lambda row: -row[2])


def test_profile_by_an_interpreter(net: Net, x: Any) -> None:
    gm = fx.symbolic_trace(net, x=x)
    profiler = Profiler(gm)
    for _ in range(3):
        np.testing.assert_allclose(profiler.run(x), gm(x), rtol=1e-6)
    rows = profiler.summary()
    assert len(rows) == len(gm.graph) and 0 < sum(share for _, _, share in rows) <= 100
    assert {len(times) for times in profiler.seconds.values()} == {3}


@recipe
class ShapeLogger(fx.Interpreter):
    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        node.meta["seen"] = getattr(result, "shape", None)
        return result


def test_log_shapes(net: Net, x: Any) -> None:
    gm = fx.symbolic_trace(net, x="f32[B,1,5,5]")
    ShapeLogger(gm).run(x)
    found = {n.name: n.meta["seen"] for n in gm.graph.nodes if n.op == "call_function"}
    assert found["conv2d"] == (2, 4, 5, 5) and found["linear"] == (2, 2)


@recipe
class LogCalls(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, log: list[str]) -> None:
        super().__init__(module)
        self.log = log

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        self.log.append(f"{target.name}{[a.shape for a in args if hasattr(a, 'shape')]}")
        return super().call_function(target, args, kwargs)


def test_log_calls(net: Net, x: Any) -> None:
    log: list[str] = []
    LogCalls(fx.symbolic_trace(net, x=x), log).run(x)
    assert log[0].startswith("conv2d[(2, 1, 5, 5), (4, 1, 3, 3)") and len(log) == 5


@recipe
class SwapActivation(fx.Transformer):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target == ops.relu:
            return F.sigmoid(args[0]) * 2
        return super().call_function(target, args, kwargs)


def test_transform_by_a_subclass(net: Net, x: Any) -> None:
    gm = fx.symbolic_trace(net, x=x)
    done = SwapActivation(gm).transform()
    assert ops_of(done) == ["conv2d", "batch_norm", "sigmoid", "mul", "mean", "linear"]
    hidden = 2 / (1 + np.exp(-net.bn(net.conv(x))))
    np.testing.assert_allclose(done(x), net.fc(hidden.mean(axis=(2, 3))), rtol=1e-5)
    sigmoid = done.graph.find_nodes(op="call_function", target="sigmoid")[0]
    assert sigmoid.scope.path == "act" and sigmoid.loc is not None and "relu" in ops_of(gm)


# -- fusion of a convolution and a batch norm ------------------------------------------------------
@recipe
def fold_bn_by_hand(gm: fx.GraphModule) -> fx.GraphModule:
    for conv, bn in (m.nodes for m in gm.graph.find("conv2d:users(1) > batch_norm")):
        weight, bias = (gm.get_attribute(n.target) for n in conv.args[1:3])
        mean, var, scale, shift = (gm.get_attribute(n.target) for n in bn.args[1:5])
        factor = scale / np.sqrt(var + bn.kwargs.get("eps", 1e-5))
        gm.set_attribute("folded.weight", nn.Parameter(weight * factor[:, None, None, None]))
        gm.set_attribute("folded.bias", nn.Parameter((bias - mean) * factor + shift))
        with gm.graph.inserting_before(conv):
            new = gm.graph.get_attr("folded.weight"), gm.graph.get_attr("folded.bias")
        conv.args = (conv.args[0], *new)
        bn.replace_all_uses_with(conv)
    gm.graph.eliminate_dead_code()
    gm.delete_all_unused_submodules()
    return gm


def test_fold_bn_by_hand(net: Net, x: Any) -> None:
    gm = fold_bn_by_hand(fx.symbolic_trace(net, x=x))
    gm.graph.lint(full=True)
    np.testing.assert_allclose(gm(x), net(x), rtol=1e-4, atol=1e-6)
    assert ops_of(gm) == ["conv2d", "relu", "mean", "linear"]
    assert not any(name.startswith(("conv.", "bn.")) for name in gm.state_dict())


# -- module swap -----------------------------------------------------------------------------------
@recipe
def swap_modules(gm: fx.GraphModule, old: type, make: Callable[[Any], nn.Module]) -> Any:
    for path, module in list(gm.named_modules()):
        if isinstance(module, old):
            gm.add_submodule(path, make(module))
    return gm


def test_swap_leaf_modules(net: Net, x: Any) -> None:
    gm = fx.symbolic_trace(net, x=x, leaf=[nn.ReLU])
    (leaf,) = gm.graph.find_nodes(op="call_module")
    assert leaf.target == "act"
    gm = swap_modules(gm, nn.ReLU, lambda _: nn.Sigmoid())
    hidden = 1 / (1 + np.exp(-net.bn(net.conv(x))))
    np.testing.assert_allclose(gm(x), net.fc(hidden.mean(axis=(2, 3))), rtol=1e-5)


# -- tracers -----------------------------------------------------------------------------------
@recipe
class KeepNorms(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        return isinstance(module, nn.BatchNorm2d) or super().is_leaf_module(module, path)


def test_a_tracer_with_other_leaves(net: Net, x: Any) -> None:
    tracer = KeepNorms()
    graph = tracer.trace(net)
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["bn"]
    gm = fx.GraphModule(net, graph)
    np.testing.assert_allclose(gm(x), net(x), rtol=1e-6)


@recipe
class CountNodes(fx.Tracer):
    made = 0

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        self.made += 1
        return super().create_node(*args, **kwargs)


def test_a_tracer_that_sees_every_node(net: Net) -> None:
    tracer = CountNodes()
    graph = tracer.trace(net)
    assert tracer.made >= len([n for n in graph.nodes if n.op == "call_function"]) == 5


@recipe
class AssumeTrue(fx.Tracer):
    def to_bool(self, proxy: fx.Proxy) -> bool:
        return True


def test_a_tracer_that_decides_branches() -> None:
    def program(x: Any) -> Any:
        return np.exp(x) if x.sum() > 0 else -x

    graph = AssumeTrue().trace(program)
    gm = fx.GraphModule({}, graph)
    assert "exp" in ops_of(gm) and "neg" not in ops_of(gm)


# -- patterns ------------------------------------------------------------------------------------
@recipe
def replace_a_pattern(gm: fx.GraphModule) -> list[Any]:
    def pattern(x: Any, w: Any, b: Any) -> Any:
        return np.maximum(F.linear(x, w, b), 0)

    def replacement(x: Any, w: Any, b: Any) -> Any:
        return F.sigmoid(F.linear(x, w, b))

    return fx.replace_pattern(gm, pattern, replacement)


def test_replace_a_pattern() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU())
    gm = fx.symbolic_trace(model, x="f32[B,3]")
    assert len(replace_a_pattern(gm)) == 2
    assert ops_of(gm) == ["linear", "sigmoid", "linear", "sigmoid"]


# -- a print of what flows -------------------------------------------------------------------------
@fx.wrap
def log_mean(x: Any, name: str) -> Any:
    LOG.append((name, float(np.mean(x))))
    return x


LOG: list[tuple[str, float]] = []


@recipe
class InsertLogging(fx.Transformer):
    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        if node.op == "call_function":
            return log_mean(value, node.name)
        return value


def test_insert_logging(net: Net, x: Any) -> None:
    gm = fx.symbolic_trace(net, x=x)
    done = InsertLogging(gm).transform()
    LOG.clear()
    np.testing.assert_allclose(done(x), gm(x), rtol=1e-6)
    assert [name for name, _ in LOG] == [n.name for n in gm.graph.nodes if n.op == "call_function"]
