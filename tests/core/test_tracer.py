"""The tracer: what subclasses decide, leaves, concrete arguments, and programs of every form."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError, ShapeError, TraceError
from fxlite.nn import init
from tests.oracle import agree


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.proj(x)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.attn(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(x)) * np.float32([1, 2])


def leaves(gm: fx.GraphModule) -> list[str]:
    return [n.target for n in gm.graph.find_nodes(op="call_module")]


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


# -- leaves ----------------------------------------------------------------------------------------
def test_leaf_by_object_class_name_and_glob() -> None:
    net = Net().eval()
    both = ["layers.0.attn", "layers.1.attn"]
    assert leaves(fx.symbolic_trace(net, "f32[B,4]", leaf=[net.layers[0].attn])) == both[:1]
    assert leaves(fx.symbolic_trace(net, "f32[B,4]", leaf=Attention)) == both
    assert leaves(fx.symbolic_trace(net, "f32[B,4]", leaf="layers.1.attn")) == both[1:]
    gm = fx.symbolic_trace(net, "f32[B,4]", leaf="layers.*.attn")
    assert leaves(gm) == both
    np.testing.assert_allclose(gm(X), net(X), rtol=1e-6)


def test_a_star_is_one_part_of_the_path() -> None:
    with pytest.raises(ArgumentError, match=r"'layers\.\*\.attn\.\*\.x' names no module"):
        fx.symbolic_trace(Net(), "f32[B,4]", leaf="layers.*.attn.*.x")
    assert leaves(fx.symbolic_trace(Net(), "f32[B,4]", leaf="*")) == ["layers", "head"]


def test_leaf_that_names_nothing_lists_the_nearest() -> None:
    with pytest.raises(ArgumentError, match=r"'layers.0.atn'.*'layers.0.attn'"):
        fx.symbolic_trace(Net(), "f32[B,4]", leaf=["layers.0.atn"])
    with pytest.raises(ArgumentError, match="not a module with children"):
        fx.symbolic_trace(lambda x: x, "f32[B]", leaf=["head"])
    with pytest.raises(ArgumentError, match="leaf must be a module, a class or a path, not 3"):
        fx.symbolic_trace(Net(), "f32[B,4]", leaf=[3])


def test_leaf_made_inside_a_function_belongs_to_the_graph() -> None:
    def program(x: Any) -> Any:
        return nn.Linear(4, 2)(x) + 1

    gm = fx.symbolic_trace(program, "f32[B,4]", leaf=nn.Linear)
    assert leaves(gm) == ["linear_0"]
    assert gm(X).shape == (3, 2)
    gm.graph.lint()


def test_leaves_have_types() -> None:
    class Halves(nn.Module):
        def forward(self, x: Any, size: int = 2) -> Any:
            return x[:, :size], x[:, size:]

    class Opaque(nn.Module):
        def forward(self, x: Any) -> Any:
            return np.asarray(x.tolist(), np.float32)

    halves, opaque = Halves(), Opaque()

    def program(x: Any) -> Any:
        first, second = halves(nn.Linear(4, 6)(x), size=4)
        return opaque(first) + 1, second * 2

    gm = fx.symbolic_trace(program, "f32[B,4]", leaf=[nn.Linear, halves, opaque])
    linear, both, last = gm.graph.find_nodes(op="call_module")
    assert [str(n.type) for n in (linear, *both.users)] == ["f32[B,6]", "f32[B,4]", "f32[B,2]"]
    assert last.type is None  # it cannot be traced
    assert [y.shape for y in gm(X)] == [(3, 4), (3, 2)]
    with pytest.raises(ShapeError, match="linear"):
        fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3)), "f32[B,4]", leaf=nn.Linear)


# -- subclasses ------------------------------------------------------------------------------------
class KeepsNorms(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        return isinstance(module, nn.LayerNorm) or super().is_leaf_module(module, path)


def test_torch_idiom_trace_then_graph_module() -> None:
    net = Net().eval()
    graph = KeepsNorms().trace(net)
    graph.lint()  # the constant that the trace found has an owner
    gm = fx.GraphModule(net, graph)
    assert leaves(gm) == ["layers.0.norm", "layers.1.norm"]
    assert not gm.training
    np.testing.assert_allclose(gm(X), net(X), rtol=1e-6)
    assert "constant_0" not in net.__dict__["_buffers"]  # the program is left as it was


def test_graph_of_a_function_makes_a_graph_module() -> None:
    def program(x: Any) -> Any:
        return x + np.float32([1, 2, 3, 4])

    gm = fx.GraphModule(program, fx.Tracer().trace(program))
    np.testing.assert_array_equal(gm(X), program(X))


def test_symbolic_trace_takes_a_tracer() -> None:
    gm = fx.symbolic_trace(Net(), "f32[B,4]", tracer=KeepsNorms(leaf="layers.0.attn"))
    assert leaves(gm) == ["layers.0.attn", "layers.0.norm", "layers.1.norm"]
    with pytest.raises(ArgumentError, match="give leaf= to the tracer"):
        fx.symbolic_trace(Net(), "f32[B,4]", tracer=KeepsNorms(), leaf="head")


def test_create_node_sees_every_node() -> None:
    class Counts(fx.Tracer):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, Any]] = []

        def create_node(self, op: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
            self.seen.append((op, target))
            node = super().create_node(op, target, *args, **kwargs)
            node.meta["number"] = len(self.seen)
            return node

    tracer = Counts()
    gm = fx.symbolic_trace(lambda x: np.exp(x) * x + np.float32(2), "f32[3]", tracer=tracer)
    assert [op for op, _ in tracer.seen] == [n.op for n in gm.graph.nodes]
    assert [n.meta["number"] for n in gm.graph.nodes] == list(range(1, len(gm.graph.nodes) + 1))


def test_create_proxy_can_replace_ops() -> None:
    class AddIsSub(fx.Tracer):
        def create_proxy(self, op: str, target: Any, *args: Any, **kwargs: Any) -> fx.Proxy:
            return super().create_proxy(op, ops.sub if target is ops.add else target, *args, **kwargs)

    gm = fx.symbolic_trace(lambda x: x + 1, "f32[B,4]", tracer=AddIsSub())
    np.testing.assert_array_equal(gm(X), X - 1)
    retraced = fx.symbolic_trace(fx.symbolic_trace(lambda x: x + 1, "f32[B,4]"), tracer=AddIsSub())
    assert retraced.graph == gm.graph


def test_create_arg_and_proxy() -> None:
    class Money:
        def __init__(self, amount: float) -> None:
            self.amount = amount

    class Named(fx.Proxy):
        __slots__ = ()

    class TakesMoney(fx.Tracer):
        def create_arg(self, value: Any) -> Any:
            return value.amount if isinstance(value, Money) else super().create_arg(value)

        def proxy(self, node: fx.Node) -> fx.Proxy:
            return Named(node, self)

    seen: list[type] = []

    def program(x: Any) -> Any:
        seen.append(type(x))
        return ops.mul(x, Money(3.0))

    gm = fx.symbolic_trace(program, "f32[B,4]", tracer=TakesMoney())
    assert seen == [Named]
    np.testing.assert_array_equal(gm(X), X * 3)


def test_call_module_and_path_of_module() -> None:
    class Paths(fx.Tracer):
        def call_module(self, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
            path = self.path_of_module(module)
            if path == "layers":
                return args[0] * 3
            return super().call_module(module, forward, args, kwargs)

    gm = fx.symbolic_trace(Net(), "f32[B,4]", tracer=Paths(leaf="head"))
    assert [n.op for n in gm.graph.nodes if n.op != "get_attr"] == [
        "placeholder",
        "call_function",
        "call_module",
        "call_function",
        "output",
    ]


def test_to_bool_iter_and_keys() -> None:
    class Decides(fx.Tracer):
        def to_bool(self, proxy: fx.Proxy) -> bool:
            return True

        def iter(self, proxy: fx.Proxy) -> Any:
            return iter((proxy[0], proxy[1]))

        def keys(self, proxy: fx.Proxy) -> Any:
            return ()

    def program(x: Any) -> Any:
        options = dict(**x)
        first, second = x
        return first + second + len(options) if (x > 0).any() else first

    gm = fx.symbolic_trace(program, "f32[3,4]", tracer=Decides())
    np.testing.assert_array_equal(gm(X), X[0] + X[1])
    with pytest.raises(TraceError, match="used as a dict"):
        fx.symbolic_trace(lambda x: dict(**x), "f32[3,4]")


def test_typed_iteration() -> None:
    gm = fx.symbolic_trace(lambda x: sum(row * 2 for row in x), "f32[3,4]")
    np.testing.assert_allclose(gm(X), (X * 2).sum(0), rtol=1e-6)
    with pytest.raises(TraceError, match="needs its length"):
        fx.symbolic_trace(lambda x: list(x))


# -- arguments -------------------------------------------------------------------------------------
def test_concrete_args_are_baked_in() -> None:
    def program(x: Any, power: int, scale: Any = None) -> Any:
        y = x**power
        return y if scale is None else y * scale

    gm = fx.symbolic_trace(program, "f32[B,4]", concrete_args={"power": 2})
    assert [n.target for n in gm.graph.placeholders] == ["x"]
    np.testing.assert_allclose(gm(X), X**2, rtol=1e-6)
    full = fx.symbolic_trace(program, "f32[B,4]", "f32[4]", concrete_args={"power": 2})
    assert [n.target for n in full.graph.placeholders] == ["x", "scale"]
    untyped = fx.symbolic_trace(program, concrete_args={"power": 3})
    np.testing.assert_allclose(untyped(X), X**3, rtol=1e-5)
    with pytest.raises(ArgumentError, match="no parameter 'powr'"):
        fx.symbolic_trace(program, "f32[B,4]", concrete_args={"powr": 2})


def test_an_input_with_a_default_and_a_type_must_be_given() -> None:
    gm = fx.symbolic_trace(lambda x, scale=2.0: x * scale, "f32[4]", scale="f32[4]")
    with pytest.raises(ArgumentError, match="missing a required argument: 'scale'"):
        gm(X[0])


def test_args_and_kwargs() -> None:
    def program(first: Any, *rest: Any, scale: Any = 1.0, **named: Any) -> Any:
        return (first + sum(rest)) * scale + named["bias"]

    gm = fx.symbolic_trace(program, "f32[4]", "f32[4]", "f32[4]", bias="f32[4]", scale="f32")
    targets = [n.target for n in gm.graph.placeholders]
    assert targets == ["first", "rest_0", "rest_1", "scale", "bias"]
    two = np.float32(2)
    np.testing.assert_allclose(
        gm(X[0], X[1], X[2], scale=two, bias=X[0]), program(X[0], X[1], X[2], scale=two, bias=X[0]), rtol=1e-6
    )
    with pytest.raises(ArgumentError, match="rest must have 2 items, not 1"):
        gm(X[0], X[1], scale=two, bias=X[0])
    with pytest.raises(ArgumentError, match=r"named\['bias'\] is missing"):
        gm(X[0], X[1], X[2], scale=two)
    fn = fx.compile(gm, backend="c")
    np.testing.assert_allclose(
        fn(X[0], X[1], X[2], scale=two, bias=X[0]), gm(X[0], X[1], X[2], scale=two, bias=X[0]), rtol=1e-6
    )


def test_wrong_numbers_and_names_of_inputs() -> None:
    with pytest.raises(ArgumentError, match=r"2 input types for 1 parameter$"):
        fx.symbolic_trace(lambda x: x, "f32[4]", "f32[4]")
    with pytest.raises(ArgumentError, match="'x' is given twice"):
        fx.symbolic_trace(lambda x: x, "f32[4]", x="f32[4]")
    with pytest.raises(ArgumentError, match="'y' has no type"):
        fx.symbolic_trace(lambda x, y: x, "f32[4]")
    with pytest.raises(ArgumentError, match="no parameter 'z'"):
        fx.symbolic_trace(lambda x: x, "f32[4]", z="f32[4]")


# -- modules inside functions ----------------------------------------------------------------------
def test_modules_built_inside_a_function() -> None:
    def program(x: Any) -> Any:
        init.manual_seed(0)
        layers = [nn.Linear(4, 4) for _ in range(3)]
        norm = nn.BatchNorm1d(4).eval()
        for layer in layers:
            x = layer(x)
        return norm(x) @ layers[0].weight.T

    gm = fx.symbolic_trace(program, "f32[B,4]")
    np.testing.assert_allclose(gm(X), program(X), rtol=1e-5)
    read = [n.target for n in gm.graph.find_nodes(op="get_attr")]
    assert len(read) == len(set(read)) == 3 * 2 + 4  # the weight read twice is one node
    kinds = {name.rpartition("_")[0] for name, _ in gm.named_parameters()}
    assert kinds == {"weight", "bias"}
    assert {n for n, _ in gm.named_buffers()} >= {"running_mean_0", "running_var_0"}


def test_weights_are_shared_with_the_program() -> None:
    net = Net().eval()
    gm = fx.symbolic_trace(net, "f32[B,4]")
    assert gm.get_attribute("head.weight") is net.head.weight
    net.head.bias[...] = 7
    np.testing.assert_allclose(gm(X), net(X), rtol=1e-6)


def test_rungs_agree_on_a_module_with_constants() -> None:
    agree(Net().eval(), X)


def test_rounds_of_a_loop_share_a_location() -> None:
    def program(x: Any) -> Any:
        for _ in range(5):
            x = x * 2
        return x

    nodes = fx.symbolic_trace(program, "f32[4]").graph.find_nodes(op="call_function")
    assert len({id(n.loc) for n in nodes}) == 1
    assert nodes[0].loc is not None
    assert nodes[0].loc.expression == "x * 2"


def test_functions_around_a_trace_are_not_the_program(tmp_path: Path) -> None:
    """Also where fxlite, or Python itself as for ``python -m``, has called the function that traces a layer."""
    file = tmp_path / "made.py"
    file.write_text("def traced(trace, layer):\n    return trace(layer, 'f32[4]')\n")
    traced = runpy.run_path(str(file))["traced"]
    made = [traced(fx.symbolic_trace, nn.Linear(4, 3))]
    file.write_text(f"{file.read_text()}\ngm = traced(trace, layer)\n")
    found = {"trace": fx.symbolic_trace, "layer": nn.Linear(4, 3)}
    made.append(runpy.run_path(str(file), init_globals=found)["gm"])
    inside: list[fx.GraphModule] = []
    fx.symbolic_trace(lambda x: inside.append(traced(fx.symbolic_trace, nn.Linear(4, 3))) or x, "f32[4]")
    for gm in made + inside:
        nodes = [node for node in gm.graph.nodes if node.op != "output"]
        assert [node.loc.call for node in nodes] == [None] * len(nodes)
        assert "def traced" not in gm.source()


def test_a_ufunc_is_a_program() -> None:
    """A ufunc has no signature that ``inspect`` can read; its arrays are its inputs."""
    a, b = np.array([1.0, 2.0, 4.0], np.float32), np.array([2.0, 2.0, 2.0], np.float32)
    for function, arrays in ((np.reciprocal, (a,)), (np.maximum, (a, b))):
        module = fx.symbolic_trace(function, *("f32[3]" for _ in arrays))
        assert np.array_equal(module(*arrays), function(*arrays))
    with pytest.raises(fx.errors.ArgumentError, match=r"max is not written.*lambda x: max"):
        fx.symbolic_trace(max)
