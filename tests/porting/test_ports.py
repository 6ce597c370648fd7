"""What passes of public projects do (docs/from_torch_fx.md names them), written anew for fxlite:
the ways in which they look at graphs and edit them, each checked by what the model computes."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from tests.graphs import ops_of

IMAGE = np.random.default_rng(0).random((2, 1, 5, 5), np.float32)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.BatchNorm2d(outputs)
        self.act = nn.ReLU()
        self.norm.running_mean[:] = np.arange(outputs) / 3
        self.norm.running_var[:] = 1 + np.arange(outputs)

    def forward(self, x: Any) -> Any:
        return self.act(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Block(1, 4)
        self.body = nn.Sequential(Block(4, 6), Block(6, 6))
        self.drop = nn.Dropout(0.5)
        self.q, self.k = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.body(self.stem(x)).mean(axis=(2, 3)))
        return self.q(y) * (self.k(y) / 4)


@pytest.fixture
def net() -> Net:
    return Net().eval()


def leaves(model: Any, **types: Any) -> fx.GraphModule:
    return fx.symbolic_trace(model, **(types or {"x": "f32[B,1,5,5]"}), leaf=nn)


def close(gm: Callable[..., Any], wanted: Any, *inputs: Any) -> None:
    np.testing.assert_allclose(gm(*(inputs or (IMAGE,))), wanted, rtol=1e-4, atol=1e-5)


# -- pytorch/examples: inline a leaf, wrap the output --------------------------------------------
def test_inline_a_leaf_by_calling_it_with_proxies(net: Net) -> None:
    gm = leaves(net)
    tracer = fx.GraphAppendingTracer(gm.graph)
    for node in list(gm.graph.nodes):
        if node.op == "call_module" and node.target.endswith("act"):
            with gm.graph.inserting_before(node):
                args = fx.map_arg(node.args, lambda n: fx.Proxy(n, tracer))
                made = gm.get_submodule(node.target)(*args)
            node.replace_all_uses_with(made.node)
            gm.graph.erase_node(node)
    gm.graph.lint(full=True)
    assert len(gm.graph.find_nodes(op="call_function", target="relu")) == 3
    close(gm, net(IMAGE))


class Activation(enum.Enum):
    RELU = enum.auto()
    LEAKY = enum.auto()


def test_wrap_the_output() -> None:
    layers = {Activation.RELU: nn.ReLU(), Activation.LEAKY: nn.LeakyReLU()}
    gm = fx.symbolic_trace(lambda x, y: np.concatenate([x, y]), x="f32[2]", y="f32[2]")
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    (wrapped,) = output.all_input_nodes
    with gm.graph.inserting_after(wrapped):
        made = fx.symbolic_trace(layers[Activation.LEAKY])(fx.Proxy(wrapped))
    output.args = (made.node,)
    gm.recompile()
    x, y = np.float32([1, -2]), np.float32([-3, 4])
    close(gm, [1, -0.02, -0.03, 4], x, y)


# -- pytorch: fusion by the classes of two modules -----------------------------------------------
PAIRS = ((nn.Conv2d, nn.BatchNorm2d), (nn.Linear, nn.BatchNorm1d))


def fuse(model: nn.Module) -> fx.GraphModule:
    traced = leaves(copy.deepcopy(model))
    modules, graph = dict(traced.named_modules()), copy.deepcopy(traced.graph)
    for pair in PAIRS:
        for node in graph.nodes:
            near = node.args[0] if node.op == "call_module" else None
            if not isinstance(near, fx.Node) or near.op != "call_module" or len(near.users) > 1:
                continue
            if tuple(type(modules[n.target]) for n in (near, node)) != pair:
                continue
            fused = passes.fuse_conv_bn_eval(modules[near.target], modules[node.target])
            modules[near.target] = fused
            parent, _, name = near.target.rpartition(".")
            setattr(modules[parent], name, fused)
            node.replace_all_uses_with(near)
            graph.erase_node(node)
    return fx.GraphModule(traced, graph)


def test_fuse_layers(net: Net) -> None:
    fused = fuse(net)
    assert not any("norm" in n.name for n in fused.graph.nodes)
    close(fused, net(IMAGE))
    with pytest.raises(fx.errors.ArgumentError, match="eval"):
        passes.fuse_conv_bn_eval(net.stem.conv, net.stem.norm.train())
    linear, norm = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    x = np.ones((2, 3), np.float32)
    close(passes.fuse_linear_bn_eval(linear, norm), norm(linear(x)), x)
    turned, norm = nn.ConvTranspose2d(4, 6, 2, groups=2).eval(), nn.BatchNorm2d(6).eval()
    norm.running_mean[:] = np.arange(6)
    x = np.ones((1, 4, 3, 3), np.float32)
    close(passes.fuse_conv_bn_eval(turned, norm, transpose=True), norm(turned(x)), x)


def test_remove_leaves_while_transforming(net: Net) -> None:
    class WithoutDropout(fx.Transformer):
        def call_module(self, target: fx.Target, args: Any, kwargs: Any) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    made = WithoutDropout(leaves(net)).transform()
    assert "drop" not in [n.target for n in made.graph.nodes]
    close(made, net(IMAGE))


# -- TensorRT: equal calls by hash, results that are returned twice ------------------------------
def test_equal_calls_by_their_hashes() -> None:
    gm = fx.symbolic_trace(lambda x: (x.sum(axis=1) + x.sum(axis=1), x[:, 1:] * x[:, 1:]), x="f32[3,4]")
    wanted, known = gm(np.ones((3, 4), np.float32)), {}
    for node in gm.graph.nodes:
        if node.op != "call_function" or node.is_impure():
            continue
        key = (node.target, node.args, tuple(sorted(node.kwargs.items())))
        if key in known:
            node.replace_all_uses_with(known[key])
            gm.graph.erase_node(node)
        known.setdefault(key, node)
    names = [n.name for n in gm.graph.nodes if n.op == "call_function"]
    assert names == ["sum", "add", "slice", "mul"]
    for a, b in zip(gm(np.ones((3, 4), np.float32)), wanted):
        np.testing.assert_array_equal(a, b)


def test_results_that_a_submodule_returns_twice() -> None:
    gm = fx.symbolic_trace(lambda x: (np.cos(np.exp(x)), np.sin(np.exp(x))), x="f32[3]")
    gm = passes.cse(gm)
    split = passes.split_module(gm, gm, lambda n: int(n.target is not ops.exp))
    (call,) = (n for n in split.graph.nodes if n.target == "submod_1")
    inner = split.get_submodule("submod_1")
    output = inner.graph.output_node()
    a, b = output.args[0]
    output.args = ((a, b, a),)
    new: dict[fx.Node, int] = {}
    places = [new.setdefault(value, len(new)) for value in output.args[0]]
    output.args = (tuple(new),)
    for user in call.users:
        user.args = (user.args[0], places[user.kwargs["index"]])
    assert places == [0, 1, 0]
    for got, wanted in zip(split(np.ones(3, np.float32)), gm(np.ones(3, np.float32))):
        np.testing.assert_array_equal(got, wanted)


# -- executorch: chains of views -----------------------------------------------------------------
class FuseViews(passes.PassBase):
    through = (ops.abs, ops.sqrt, ops.reshape)

    def call(self, graph_module: fx.GraphModule) -> passes.PassResult:
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=ops.reshape):
            end, views = node, []
            while len(end.users) == 1 and (user := next(iter(end.users))).target in self.through:
                views += [user] if user.target is ops.reshape else []
                end = user
            if views:
                modified = True
                node.args = (node.args[0], views[-1].kwargs["shape"])
                for view in views:
                    view.replace_all_uses_with(view.args[0])
        graph_module.graph.eliminate_dead_code()
        return passes.PassResult(graph_module, modified)


def test_views_become_one() -> None:
    def program(x: Any) -> Any:
        return np.sqrt(abs(x.reshape(3, 4).reshape(12))).reshape(6, 2)

    gm = fx.symbolic_trace(program, x="f32[4,3]")
    result = FuseViews()(gm)
    assert result is not None and result.modified
    names = ops_of(gm)
    assert names == ["reshape", "abs", "sqrt"]
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    close(gm, program(x), x)
    close(passes.PassManager([FuseViews()])(fx.symbolic_trace(program, x="f32[4,3]")), program(x), x)


# -- optimum: layers with one input become one, and back -----------------------------------------
class MergeLinears:
    def transform(self, gm: fx.GraphModule) -> None:
        readers: dict[fx.Node, list[fx.Node]] = {}
        for node in gm.graph.find_nodes(op="call_module"):
            if isinstance(gm.get_submodule(node.target), nn.Linear):
                readers.setdefault(node.args[0], []).append(node)
        for value, nodes in readers.items():
            layers = [gm.get_submodule(n.target) for n in nodes]
            if len(nodes) < 2:
                continue
            merged = nn.Linear(layers[0].in_features, sum(m.out_features for m in layers))
            merged.weight = nn.Parameter(np.concatenate([m.weight for m in layers]))
            merged.bias = nn.Parameter(np.concatenate([m.bias for m in layers]))
            path = "_".join(n.target for n in nodes)
            gm.add_submodule(path, merged)
            with gm.graph.inserting_before(nodes[0]):
                call = gm.graph.call_module(path, args=(value,))
            call.merged = [n.target for n in nodes]
            start = 0
            for node, layer in zip(nodes, layers):
                with gm.graph.inserting_before(node):
                    part = fx.Proxy(call)[..., start : start + layer.out_features]
                start += layer.out_features
                node.replace_all_uses_with(part.node)
                gm.graph.erase_node(node)

    def reverse(self, gm: fx.GraphModule) -> None:
        for call in [n for n in gm.graph.nodes if hasattr(n, "merged")]:
            for part, target in zip(list(call.users), call.merged):
                part.op = "call_module"
                part.target, part.kwargs = target, {}
                part.args = call.args
            gm.graph.erase_node(call)


def test_layers_of_one_input_become_one_and_back(net: Net) -> None:
    gm, merge = leaves(net), MergeLinears()
    merge.transform(gm)
    assert "q_k" in [n.target for n in gm.graph.nodes]
    gm.graph.lint(full=True)
    close(gm, net(IMAGE))
    merge.reverse(gm)
    gm.graph.lint(full=True)
    assert [n.target for n in gm.graph.find_nodes(op="call_module")][-2:] == ["q", "k"]
    close(gm, net(IMAGE))


def test_division_by_a_number_becomes_a_product(net: Net) -> None:
    gm = leaves(net)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target == ops.div:
            x, y = node.args
            if not isinstance(y, fx.Node):
                node.target = ops.mul
                node.args = (x, 1 / y)
                node.changed = {"by": "test"}
    assert [n.changed for n in gm.graph.nodes if hasattr(n, "changed")] == [{"by": "test"}]
    close(gm, net(IMAGE))


# -- mmrazor: observers that are not needed ------------------------------------------------------
class Observer(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


def observed(net: Net) -> fx.GraphModule:
    gm = leaves(net)
    for number, node in enumerate(list(gm.graph.nodes)):
        if node.op == "call_module":
            gm.add_submodule(f"observer_{number}", Observer())
            with gm.graph.inserting_after(node):
                made = gm.graph.call_module(f"observer_{number}", (node,))
            node.replace_all_uses_with(made, delete_user_cb=lambda user, made=made: user is not made)
    return gm


def test_delete_observers_before_an_op(net: Net) -> None:
    gm = observed(net)
    before = len(gm.graph)
    close(gm, net(IMAGE))
    graph = copy.deepcopy(gm.graph)

    def found(node: fx.Node) -> list[fx.Node]:
        is_observer = node.op == "call_module" and isinstance(gm.get_submodule(node.target), Observer)
        return [node] if is_observer else [n for a in node.all_input_nodes for n in found(a)]

    for node in graph.nodes:
        if node.op == "output":
            for old in dict.fromkeys(found(node)):
                assert len(old.args) == 1
                old.replace_all_uses_with(old.args[0])
                graph.erase_node(old)
                delattr(gm, old.target)
    graph.lint()
    gm.graph = graph
    assert len(gm.graph) == before - 2
    close(gm, net(IMAGE))


# -- brevitas: functions become layers -----------------------------------------------------------
def replace_all_uses_except(old: fx.Node, new: fx.Node, others: Iterable[fx.Node]) -> None:
    for user in list(old.users):
        if user not in others:
            user.args = fx.map_arg(user.args, lambda n: new if n is old else n)


def test_functions_become_layers() -> None:
    layers: dict[Any, Any] = {ops.relu: nn.ReLU, ops.leaky_relu: nn.LeakyReLU}
    program = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).eval()

    def both(x: Any) -> Any:
        return ops.leaky_relu(ops.relu(x) - 1, negative_slope=0.5)

    gm = fx.symbolic_trace(lambda x: both(program(x)), x="f32[B,3]")
    x = np.float32([[1, -2, 3], [0, 4, -5]])
    wanted = gm(x)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in layers:
            name, layer = f"layer_{node.name}", layers[node.target](**node.kwargs)
            node.op, node.target, node.kwargs = "call_module", name, {}
            gm.add_submodule(name, layer)
    gm.graph.lint(full=True)
    assert len(gm.graph.find_nodes(op="call_module")) == 2
    close(gm, wanted, x)
    (last,) = (n for n in gm.graph.nodes if n.target == "layer_relu")
    gm.add_submodule("twice", nn.Sigmoid())
    with gm.graph.inserting_after(last):
        new = gm.graph.call_module("twice", args=(last,))
    replace_all_uses_except(last, new, [new])
    assert list(last.users) == [new]
    gm.graph.lint(full=True)


# -- torchvision: values inside as results -------------------------------------------------------
class PathTracer(fx.LayerTracer):
    """Notes the path of each node: that of its module, and its name where it is no leaf."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.current = ""
        self.paths: dict[fx.Node, str] = {}

    def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        before, self.current = self.current, self.path_of_module(m) or ""
        try:
            if not self.is_leaf_module(m, self.current):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", self.current, args, kwargs)
        finally:
            self.current = before

    def create_proxy(self, kind: str, target: fx.Target, *rest: Any, **options: Any) -> fx.Proxy:
        proxy = super().create_proxy(kind, target, *rest, **options)
        own = [] if kind == "call_module" else [str(proxy.node)]
        self.paths[proxy.node] = ".".join([*filter(None, [self.current]), *own])
        return proxy


class TwoGraphs(fx.GraphModule):
    """Runs one graph in training, another in inference."""

    def __init__(self, root: Any, train_graph: fx.Graph, eval_graph: fx.Graph) -> None:
        super().__init__(root, train_graph)
        self.both = {True: train_graph, False: eval_graph}

    def train(self, mode: bool = True) -> Any:
        self.graph = self.both[mode]
        return super().train(mode)


def extract(net: Net, wanted: dict[str, str]) -> fx.GraphModule:
    graphs = []
    for mode in (True, False):
        tracer = PathTracer()
        gm = fx.GraphModule(net.train(mode), tracer.trace(net))
        gm.graph.erase_node(gm.graph.output_node())
        found: dict[str, fx.Node] = {}
        for node in gm.graph.nodes:
            for path, name in wanted.items():
                if f"{tracer.paths[node]}.".startswith(f"{path}."):
                    found[name] = node
        gm.graph.output(found)
        gm.graph.eliminate_dead_code()
        graphs.append(gm.graph)
    net.eval()
    return TwoGraphs(net, *graphs).eval()


def test_values_inside_as_results(net: Net) -> None:
    gm = extract(net, {"stem": "first", "body.1.conv": "conv", "mean": "pooled"})
    result = gm(IMAGE)
    stem = net.stem(IMAGE)
    assert list(result) == ["first", "conv", "pooled"]
    np.testing.assert_allclose(result["first"], stem, rtol=1e-5)
    np.testing.assert_allclose(result["conv"], net.body[1].conv(net.body[0](stem)), rtol=1e-4)
    assert not any(n.name == "q" for n in gm.graph.nodes)
    assert gm.train().training and gm.graph is gm.both[True]


def test_dead_leaves_go_unless_they_say_that_they_have_effects(net: Net) -> None:
    gm = leaves(net)
    q, k = gm.graph.find_nodes(op="call_module")[-2:]
    gm.graph.output_node().args = (k,)
    gm.graph.eliminate_dead_code()
    assert q not in gm.graph.nodes and k in gm.graph.nodes
    net.q._is_impure = True
    gm = leaves(net)
    q, k = gm.graph.find_nodes(op="call_module")[-2:]
    gm.graph.output_node().args = (k,)
    gm.graph.eliminate_dead_code()
    assert q in gm.graph.nodes and q.is_impure()
    trained = fx.symbolic_trace(net.train(), leaf=nn)
    impure = {n.target for n in trained.graph.find_nodes(op="call_module") if n.is_impure()}
    assert impure == {"q", "drop", "stem.norm", "body.0.norm", "body.1.norm"}
    before = net.stem.norm.running_mean.copy()
    trained(IMAGE)
    assert not np.array_equal(net.stem.norm.running_mean, before), "statistics of the batch"
