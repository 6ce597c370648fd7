"""torch.fx's names and keyword names on graphs, nodes, tracers and interpreters do here what they
do there; that all of them are there is checked in :mod:`tests.test_torch_fx_api`."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops

X = np.float32([1, -2, 3])


def scaled(x: Any, factor: Any = 2) -> Any:
    return x * factor


fx.wrap(scaled)  # a statement, as in torch.fx


@fx.wrap
def shifted(x: Any) -> Any:
    return x + 1


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(lambda x: np.tanh(x) * x, x="f32[3]")


def calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "call_function"]


# -- nodes ---------------------------------------------------------------------------------------
def test_attributes_of_nodes_are_copied_and_saved() -> None:
    gm = traced()
    tanh, mul = calls(gm)
    tanh.tag = "first"
    assert (tanh.tag, hasattr(mul, "tag")) == ("first", False)
    for made in (gm.copy(), pickle.loads(pickle.dumps(gm))):
        assert [getattr(n, "tag", "") for n in calls(made)] == ["first", ""]
    copied = gm.copy()
    calls(copied)[0].tag = "second"
    assert tanh.tag == "first"
    del tanh.tag
    assert not hasattr(tanh, "tag")
    with pytest.raises(AttributeError, match=r"node tanh has no attribute 'tag'"):
        del tanh.tag
    with pytest.raises(AttributeError, match="begin with a letter"):
        tanh._hidden = 1


def test_nodes_are_ordered_as_they_stand() -> None:
    def program(x: Any) -> Any:
        for _ in range(200):
            x = np.tanh(x)
        return x

    gm = fx.symbolic_trace(program, x="f32[3]")
    nodes = list(gm.graph.nodes)
    assert sorted(nodes[3:] + nodes[:3]) == nodes
    assert nodes[3] < nodes[150] and not nodes[150] < nodes[3] and nodes[3] <= nodes[3]
    assert max(nodes[150], nodes[40]) is nodes[150]
    nodes[1].prepend(nodes[150])
    assert nodes[150] < nodes[40]
    with pytest.raises(fx.errors.GraphError, match="not in one graph"):
        assert nodes[0] < calls(traced())[0]


def test_arguments_by_torchs_names() -> None:
    gm = fx.symbolic_trace(lambda x, y: x.sum(axis=0) + y, x="f32[3]", y="f32[]")
    total, add = calls(gm)
    assert total.normalized_arguments(gm) == ((total.args[0], 0, False), {})
    named = total.normalized_arguments(gm, normalize_to_only_use_kwargs=True)
    assert named is not None and named.args == () and list(named.kwargs) == list(total.bound)
    assert gm.graph.placeholders[0].normalized_arguments(gm) is None
    add.update_kwarg("y", 3.0)  # an operand, by its name
    assert add.args == (total, 3.0)
    add.update_arg(idx=1, arg=gm.graph.placeholders[1])
    gm.graph.erase_node(to_erase=_inserted(gm, add))
    assert list(total.users.items()) == [(add, None)]
    assert total.stack_trace is not None and "x.sum(axis=0)" in total.stack_trace
    add.stack_trace = total.stack_trace
    assert add.stack_trace == total.stack_trace


def _inserted(gm: fx.GraphModule, before: fx.Node) -> fx.Node:
    with gm.graph.inserting_before(n=before):
        return gm.graph.call_function(the_function=ops.exp, args=(before.args[1],))


def test_insert_arg() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", type_expr=fx.parse_type("f32[3]"))
    y = graph.placeholder("y", default_value=1.0)
    leaf = graph.call_module("leaf", (y,))
    leaf.insert_arg(0, x)
    assert leaf.args == (x, y) and list(x.users) == [leaf] and y.args == (1.0,)


def test_map_arg_and_map_aggregate() -> None:
    tanh, mul = calls(traced())
    seen: list[fx.Node] = []
    made = fx.map_arg(a=([tanh], {"k": (mul, 1)}), fn=lambda n: seen.append(n) or n.name)
    assert made == (["tanh"], {"k": ("mul", 1)}) and seen == [tanh, mul]
    assert isinstance(made[0], fx.immutable_list)
    assert fx.map_aggregate((1, slice(None, 2), [3]), lambda v: v and v + 1) == (2, slice(None, 3), [4])
    with pytest.raises(fx.errors.ArgumentError, match="map_arg"):
        fx.map_arg(lambda n: n, (tanh,))


# -- graphs --------------------------------------------------------------------------------------
def test_proxy_without_a_tracer_writes_at_the_insertion_point() -> None:
    gm = traced()
    tanh, mul = calls(gm)
    with gm.graph.inserting_before(mul):
        new = (np.exp(fx.Proxy(tanh)) + fx.Proxy(gm.graph.placeholders[0])).node
    mul.replace_input_with(old_input=tanh, new_input=new)
    gm.graph.lint()
    np.testing.assert_allclose(gm(X), (np.exp(np.tanh(X)) + X) * X, rtol=1e-6)


def test_call_method_records_what_the_method_does() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[2,3]"))
    made = graph.call_method("reshape", (x, -1))
    assert (made.target, str(made.type)) == (ops.reshape, "f32[6]")
    with pytest.raises(fx.errors.TraceError, match="no attribute or method 'relu'"):
        graph.call_method(method_name="relu", args=(x,))


def test_type_of_a_call_follows_from_its_rule() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[2,3]"))
    made = graph.call_function(ops.relu, (x,), type_expr=np.ndarray)
    assert made.type == x.type
    made = graph.create_node("call_function", "relu", (x,), type_expr=fx.parse_type("f32[9]"))
    assert made.type == x.type
    opaque = graph.call_function(shifted, (x,), type_expr=fx.parse_type("f32[2,3]"))
    assert opaque.type == x.type


def test_topological_sort_moves_what_stands_too_early() -> None:
    gm = traced()
    x, tanh, mul, output = gm.graph.nodes
    x.prepend(mul)
    with pytest.raises(fx.errors.GraphError):
        gm.graph.lint()
    gm.graph.topological_sort()
    gm.graph.lint()
    assert list(gm.graph.nodes) == [x, tanh, mul, output]
    np.testing.assert_allclose(gm(X), np.tanh(X) * X, rtol=1e-6)


def test_copies_and_code() -> None:
    gm = traced()
    new = fx.Graph(tracer_cls=fx.Tracer)
    result, output = new.graph_copy(g=gm.graph, val_map={}, return_output_node=True)
    assert output is gm.graph.output_node() and result.name == "mul"
    assert fx.Tracer().trace(lambda x: x).tracer_cls is fx.Tracer
    space = dict(gm.graph.python_code("self").globals)
    exec(gm.graph.python_code("self").src, space)
    assert "def forward(self, x: f32[3]):" in gm.recompile().src
    np.testing.assert_allclose(space["forward"](gm, X), gm(X), rtol=1e-6)
    gm.meta["note"] = 1
    assert gm.copy().meta == {"note": 1}
    gm.graph.eliminate_dead_code(is_impure_node=lambda node: node.op == "placeholder")


# -- interpreters --------------------------------------------------------------------------------
def test_interpreter_of_another_graph() -> None:
    gm = fx.symbolic_trace(nn.Linear(3, 3), x="f32[B,3]")
    graph = gm.graph.copy()
    linear = graph.find_nodes(op="call_function", target="linear")[0]
    linear.args = linear.args[:2]
    x = np.ones((2, 3), np.float32)
    interpreter = fx.Interpreter(gm, graph=graph)
    np.testing.assert_allclose(interpreter.run(x), x @ gm.weight.T, rtol=1e-6)
    assert len(gm.graph.find_nodes(op="call_function", target="linear")[0].args) == 3
    given = [x]
    np.testing.assert_allclose(fx.Interpreter(gm).boxed_run(given), gm(x), rtol=1e-6)
    assert given == []
    with pytest.raises(fx.errors.ArgumentError, match=r"1 input \(x\), got 2"):
        interpreter.boxed_run([x, x])


def test_interpreter_with_flat_inputs() -> None:
    gm = fx.symbolic_trace(lambda d: d["a"] + d["b"], d={"a": "f32[3]", "b": "f32[3]"})
    assert np.array_equal(fx.Interpreter(gm).run(X, X, enable_io_processing=False), X + X)
    assert set(fx.Interpreter(gm).submodules) == {""}


# -- tracers -------------------------------------------------------------------------------------
def test_concrete_args_come_second() -> None:
    graph = fx.Tracer().trace(lambda x, k: x * k, {"k": 3.0})
    assert [p.target for p in graph.placeholders] == ["x"]


def helper(x: Any) -> Any:
    return np.exp(x)


def calls_helper(x: Any) -> Any:
    return helper(x) * 2


def test_autowrapped_functions_stay_one_node() -> None:
    before = helper
    graph = fx.Tracer(autowrap_functions=(helper,)).trace(calls_helper)
    targets = [n.target for n in graph.nodes if n.op == "call_function"]
    assert targets[0] == helper and helper is before
    assert fx.Tracer().trace(calls_helper).find_nodes(op="call_function", target="exp")


def test_what_says_itself_how_it_is_an_argument() -> None:
    class Bias:
        def __fx_create_arg__(self, tracer: fx.Tracer) -> fx.Node:
            return tracer.create_arg(np.float32([1, 2, 3]))

    graph = fx.Tracer().trace(lambda x: ops.add(x, Bias()))
    assert [n.op for n in graph.nodes] == ["placeholder", "get_attr", "call_function", "output"]


def test_fresh_names() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc0 = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.fc0(x)

    tracer = fx.Tracer()
    tracer.trace(Net())
    assert tracer.get_fresh_qualname("fc") == "fc1"


# -- wrapped functions ---------------------------------------------------------------------------
def test_wrapped_functions_are_targets() -> None:
    gm = fx.symbolic_trace(lambda x: scaled(shifted(x)), x="f32[3]")
    first, second = calls(gm)
    assert first.target == shifted and second.target == scaled and second.target != shifted
    assert first.target in {shifted, np.tanh}
    assert gm.graph.find_nodes(op="call_function", target=shifted) == [first]
    second.target = shifted
    assert np.array_equal(gm(X), X + 2)


def test_wrap_as_a_statement_needs_a_name_to_replace() -> None:
    def local(x: Any) -> Any:
        return x

    with pytest.raises(fx.errors.ArgumentError, match=r"local = fx.wrap\(local\)"):
        fx.wrap(local)
    local = fx.wrap(local)
    assert calls(fx.symbolic_trace(lambda x: local(x), x="f32[3]"))[0].target == local


SEEN: list[Any] = []


@fx.has_side_effect
def note(x: Any) -> Any:
    SEEN.append(x)
    return x


def test_functions_with_side_effects_stay() -> None:
    def program(x: Any) -> Any:
        note(x)
        note(x)
        return x * 2

    gm = fx.passes.PassManager(["cse", "const_fold", "dce"])(fx.symbolic_trace(program, x="f32[3]"))
    assert [n.target for n in calls(gm)].count(note) == 2
    SEEN.clear()
    gm(X)
    assert len(SEEN) == 2
    assert all(n.is_impure() and n.is_impure(impure_random=False) for n in calls(gm)[:2])


def test_concrete_args_of_symbolic_trace_by_position() -> None:
    def program(x: Any, flag: bool) -> Any:
        return np.exp(x) if flag else x

    assert len(calls(fx.symbolic_trace(program, {"flag": True}))) == 1
    assert len(calls(fx.symbolic_trace(program, {"flag": False, "x": fx.PH}))) == 0
    assert len(calls(fx.symbolic_trace(lambda x, mode: x + len(mode), {"mode": "f33"}))) == 1
    typed = fx.symbolic_trace(lambda d: d["d"], {"d": "f32[3]"})  # the type of an input
    assert typed(d={"d": X}) is X


# -- leaves --------------------------------------------------------------------------------------
class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def forward(self, x: Any) -> Any:
        return np.tanh(self.body(x))


def test_layers_as_leaves() -> None:
    class WithTanh(fx.LayerTracer):
        pass

    made = [fx.symbolic_trace(Deep(), x="f32[B,3]", leaf=nn)]
    made += [fx.symbolic_trace(Deep(), x="f32[B,3]", tracer=t) for t in (WithTanh(),)]
    for gm in made:
        targets = [n.target for n in gm.graph.nodes if n.op.startswith("call_")]
        assert targets == ["body.0", "body.1", ops.tanh]
        assert str(gm.graph.find_nodes(op="call_module")[0].type) == "f32[B,4]"
    with pytest.raises(fx.errors.ArgumentError, match="leaf"):
        fx.symbolic_trace(Deep(), leaf=3)


def test_a_node_becomes_another_step_by_step() -> None:
    gm = fx.symbolic_trace(Deep(), x="f32[2,3]", leaf=nn)
    linear, relu = gm.graph.find_nodes(op="call_module")
    relu.op = "call_function"
    relu.target = ops.add
    relu.args = (linear, linear)
    gm.graph.lint(full=True)
    assert str(relu.type) == "f32[2,4]"
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(gm(x), np.tanh(2 * gm.get_submodule("body.0")(x)), rtol=1e-6)
    linear.op, linear.target = "call_function", ops.tanh
    assert gm.graph.undo() == "edits" and linear.target == "body.0"
    gm.graph.lint(full=True)


def test_calls_of_leaves_made_by_hand_have_types() -> None:
    gm = fx.symbolic_trace(Deep(), x="f32[B,3]", leaf=nn)
    gm.add_submodule("more", nn.Linear(4, 7))
    (tanh,) = gm.graph.find_nodes(op="call_function")
    with gm.graph.inserting_after(tanh):
        made = gm.graph.call_module("more", (tanh,))
        assert str(made.type) == "f32[B,7]"
        assert gm.graph.call_module("none", (tanh,)).type is None
    with pytest.raises(fx.errors.ShapeError, match="weight takes 4"):
        gm.graph.call_module("more", (gm.graph.placeholders[0],))


def test_ones_like_a_node_with_named_sizes() -> None:
    gm = fx.symbolic_trace(lambda x: np.tanh(x), x="f32[B,3]")
    (tanh,) = gm.graph.find_nodes(op="call_function")
    with gm.graph.inserting_after(tanh):
        ones = np.ones_like(fx.Proxy(tanh)[:, :1])
    assert str(ones.node.type) == "f32[B,1]"


# -- what people find ---------------------------------------------------------------------------
def test_names_that_are_shown() -> None:
    assert set(dir(fx)) == {*fx.__all__, "__version__"}
    assert set(dir(fx.passes)) == {*fx.passes.__all__, "quantize"}
    for shown in (fx, fx.passes):
        assert all(hasattr(shown, name) for name in dir(shown))


def test_texts_say_what_things_are() -> None:
    gm = traced()
    (match,) = gm.graph.find("tanh")
    assert [node.name for node in match] == ["tanh"] and len(match) == 1
    assert repr(fx.compile(gm, backend="python")) == "<PythonFunction function(x: f32[3]) -> f32[3]>"
