"""Splitting into submodules and flattening again."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.base.errors import GraphError
from tests.graphs import ops_of, trace
from tests.oracle import compare
from tests.zoo import ZOO, Program


def in_parts(gm: fx.GraphModule, count: int) -> fx.GraphModule:
    """Split into ``count`` runs of calls."""
    nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
    place = {n: i * count // len(nodes) for i, n in enumerate(nodes)}
    return passes.split_module(gm, place.__getitem__)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_split_runs_the_same_and_flattens_to_the_original(program: Program, count: int) -> None:
    gm, eager, inputs = program.trace()
    before = [n.name for n in gm.graph.nodes]
    split = in_parts(gm, count)
    split.graph.lint()
    assert [n.name for n in gm.graph.nodes] == before
    expected = eager(*inputs)
    compare("split", split(*inputs), expected)
    compare("split, interpreted", fx.Interpreter(split).run(*inputs), expected)
    assert all(n.type is not None for n in split.graph.find_nodes(op="call_module"))
    flat = passes.inline_modules(split)
    flat.graph.lint()
    fx.assert_same(gm, flat)
    assert set(before) == {n.name for n in flat.graph.nodes}
    assert flat.state_dict().keys() == gm.state_dict().keys()
    places = {n.name: (n.scope, n.loc) for n in gm.graph.nodes if n.op == "call_function"}
    for node in flat.graph.find_nodes(op="call_function"):
        assert (node.scope, node.loc) == places[node.name]


@pytest.mark.parametrize(
    "program",
    [p for p in ZOO if p.name in ("resnet_block", "named_dims", "transformer_block", "splits")],
    ids=lambda p: p.name,
)
def test_split_module_compiles(program: Program) -> None:
    gm, eager, inputs = program.trace()
    split = in_parts(gm, 3)
    for backend in ("c", "python"):
        compiled = fx.compile(split, backend=backend)
        compare(backend, compiled(*inputs), eager(*inputs))
        assert compiled.sources


def test_what_it_looks_like() -> None:
    def three(x: Any) -> Any:
        y = np.exp(x)
        return np.sin(y) + np.cos(y), y

    parts = {"exp": "a", "sin": "b", "cos": "b", "add": "c"}
    split = passes.split_module(trace(three), lambda n: parts[n.target.name])
    lines = [line.partition("  #")[0].strip() for line in split.graph.text(full=True).splitlines()]
    assert lines == [
        "def forward(self, x: f32[3,4]):",
        "submod_a: f32[3,4] = self.submod_a(x)",
        "submod_b: (f32[3,4], f32[3,4]) = self.submod_b(submod_a)",
        "sin: f32[3,4] = ops.getitem(submod_b, index=0)",
        "cos: f32[3,4] = ops.getitem(submod_b, index=1)",
        "submod_c: f32[3,4] = self.submod_c(sin, cos)",
        "return (submod_c, submod_a)",
    ]
    assert isinstance(split.submod_b, fx.GraphModule)
    assert ops_of(split.submod_b) == ["sin", "cos"]


def test_dependency_order_and_nodes_left_outside() -> None:
    def program(x: Any) -> Any:
        a = np.exp(x)
        b = np.sin(x)
        return np.cos(b) + a

    ids = {"exp": 0, "add": 0, "cos": None, "sin": 1}
    split = passes.split_module(trace(program), lambda n: ids[n.target.name])
    ops_in_order = [str(n.target) for n in split.graph.nodes if n.op == "call_module"]
    assert ops_in_order == ["submod_1", "submod_0"]
    assert ops_of(split) == ["cos"]
    x = np.ones((3, 4), np.float32)
    compare("split", split(x), program(x))


def test_circles_are_named() -> None:
    gm = trace(lambda x: np.sin(np.cos(np.exp(x))))
    with pytest.raises(GraphError) as caught:
        passes.split_module(gm, lambda n: int(n.target.name == "cos"))
    message = str(caught.value)
    assert "exp (partition 0" in message and "is read by cos (partition 1" in message
    assert "cos (partition 1" in message and "is read by sin (partition 0" in message
    assert "test_split_module.py" in message


def test_random_draws_keep_their_order() -> None:
    def program(x: Any) -> Any:
        return F.dropout(x), F.dropout(x), F.dropout(x)

    gm = trace(program)
    order = {n: i % 2 for i, n in enumerate(gm.graph.find_nodes(op="call_function"))}
    with pytest.raises(GraphError, match="has effects that come before"):
        passes.split_module(gm, order.__getitem__)


def test_training_mode_reaches_submodules() -> None:
    gm = trace(lambda x: F.dropout(np.exp(x), 0.5))
    split = in_parts(gm, 2)
    x = np.zeros((3, 4), np.float32)
    assert np.array_equal(split.eval()(x), np.ones((3, 4), np.float32))
    assert set(np.unique(split.train()(x))) <= {0.0, 2.0}
    for child in split.children():
        child.eval()
    with pytest.raises(passes.PassError, match=r"inference mode.*training mode"):
        passes.inline_modules(split)


def test_weights_are_shared_and_go_where_they_are_read() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    gm = trace(model)
    split = in_parts(gm, 3)
    assert sorted(split.state_dict()) == [
        "submod_0.0.bias",
        "submod_0.0.weight",
        "submod_2.2.bias",
        "submod_2.2.weight",
    ]
    assert split.get_parameter("submod_0.0.weight") is gm.get_parameter("0.weight")
    kept = passes.inline_modules(split, prefix=True)
    assert sorted(kept.state_dict()) == sorted(split.state_dict())
    x = np.ones((3, 4), np.float32)
    compare("with prefixes", kept(x), model(x))
    assert not kept.graph.find_nodes(op="call_module")


def test_equal_paths_of_different_weights_stay_apart() -> None:
    one, two = (trace(nn.Linear(4, 4)) for _ in range(2))
    outer = trace(lambda x: x)
    outer.add_submodule("encoder", one)
    outer.add_submodule("decoder", two)
    graph, output = outer.graph, outer.graph.output_node()
    with graph.inserting_before(output):
        first = graph.call_module(
            "encoder", (graph.placeholders[0],), type_expr=one.graph.nodes and one.graph.output_node().type
        )
        second = graph.call_module("decoder", (first,), type_expr=two.graph.output_node().type)
    output.args = (second,)
    outer.recompile()
    x = np.ones((3, 4), np.float32)
    expected = two(one(x))
    compare("nested", outer(x), expected)
    flat = passes.inline_modules(outer)
    compare("flat", flat(x), expected)
    assert sorted(flat.state_dict()) == ["bias", "decoder.bias", "decoder.weight", "weight"]


def test_inline_one_call_in_place() -> None:
    gm = trace(lambda x: np.sin(np.exp(x)) * 2)
    split = in_parts(gm, 3)
    node = split.graph.find_nodes(op="call_module")[1]
    passes.inline(split, node)
    split.undo()
    assert ops_of(split) == []
    values = passes.inline(split, node)
    split.graph.lint()
    assert [n.name for n in values.values()] == ["submod_0", "sin"]
    assert ops_of(split) == ["sin"]
    split.delete_all_unused_submodules()
    assert [name for name, _ in split.named_children()] == ["submod_0", "submod_2"]
    x = np.ones((3, 4), np.float32)
    compare("inlined", split(x), gm(x))
    with pytest.raises(GraphError, match="not a call of a GraphModule"):
        passes.inline(split, split.graph.output_node())


def test_inlining_takes_the_callers_sizes() -> None:
    child = trace(lambda x: np.broadcast_to(x.sum(axis=0), x.shape), "f32[N,M]")
    outer = trace(lambda y: y + 1, "f32[M,3]")
    outer.add_submodule("child", child)
    (add,) = outer.graph.find_nodes(op="call_function")
    with outer.graph.inserting_after(add):
        call = outer.graph.call_module("child", (add,), type_expr=add.type)
    outer.graph.output_node().args = (call,)
    flat = passes.inline_modules(outer)
    flat.graph.lint()
    assert str(flat.graph.output_node().type) == "f32[M,3]"
    compare("flat", flat(np.ones((2, 3), np.float32)), np.full((2, 3), 4, np.float32))


def test_inlining_refuses_arguments_that_do_not_fit() -> None:
    child = trace(lambda x, y: x + y, "f32[N]", "f32[N]")
    outer = trace(lambda a, b: a.sum() + b.sum(), "f32[A]", "f32[B]")
    outer.add_submodule("child", child)
    with outer.graph.inserting_before(outer.graph.output_node()):
        outer.graph.call_module("child", tuple(outer.graph.placeholders))
    with pytest.raises(passes.PassError, match="cannot be shown to be equal"):
        passes.inline_modules(outer)


def test_graphs_without_types() -> None:
    gm = fx.symbolic_trace(lambda x: np.sin(np.exp(x)) + np.cos(np.exp(x)))
    split = in_parts(gm, 3)
    assert split.graph.find_nodes(op="call_module")[0].type is None
    x = np.ones((3, 4), np.float32)
    compare("split", split(x), gm(x))
    fx.assert_same(gm, passes.inline_modules(split))


def test_nested_splits_flatten_at_once() -> None:
    gm = trace(lambda x: np.sin(np.cos(np.exp(x))) + ops.split(x, (1, 3), 1)[0])
    twice = in_parts(gm, 4)
    nodes = {n: i // 2 for i, n in enumerate(twice.graph.find_nodes(op="call_module"))}
    twice = passes.split_module(twice, nodes.get)
    x = np.ones((3, 4), np.float32)
    compare("nested", twice(x), gm(x))
    fx.assert_same(gm, passes.inline_modules(twice))


def test_the_rest_of_the_toolkit_copes(tmp_path: Any) -> None:
    gm = trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), "f32[N,4]")
    split = in_parts(gm, 2)
    x = np.ones((3, 4), np.float32)
    expected = gm(x)
    assert "self.submod_0(x)" in split.code
    split.graph.draw(tmp_path / "split.svg")
    assert "submod_1" in split.graph.to_dot()
    split.graph.print_tabular()
    compare("copy", split.copy()(x), expected)
    deep = copy.deepcopy(split)
    compare("deepcopy", deep(x), expected)
    deep.submod_0.state_dict()["0.weight"][...] = 0
    compare("not changed by its copy", split(x), expected)
    compare("Transformer", fx.Transformer(split).transform()(x), expected)
    retraced = fx.symbolic_trace(split, x="f32[B,4]")
    assert str(retraced.graph.output_node().type) == "f32[B,4]"
    compare("traced again", retraced(x), expected)
    part_of_program = fx.symbolic_trace(lambda x: split(x) * 2, "f32[3,4]")
    compare("called in a program", part_of_program(x), expected * 2)
    compare("dce", passes.PassManager(["cse", "dce", "simplify"])(split)(x), expected)
    compare("pickle", pickle.loads(pickle.dumps(split))(x), expected)
    fx.save(split, tmp_path / "split.fxl")
    loaded = fx.load(tmp_path / "split.fxl")
    compare("loaded", loaded(x), expected)
    fx.assert_same(passes.inline_modules(loaded), gm)
    assert fx.parse(split.graph.text(full=True)) == split.graph
    split.to_folder(str(tmp_path / "folder"))
    assert list((tmp_path / "folder").glob("*.py"))


def test_a_submodule_is_swapped() -> None:
    gm = trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    split = passes.split_module(gm, lambda n: "relu" if n.target.name == "relu" else None)
    (call,) = split.graph.find_nodes(op="call_module")
    split.add_submodule(call.target, nn.GELU())
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    expected = F.linear(F.gelu(F.linear(x, *gm[0].parameters())), *gm[2].parameters())
    compare("swapped", split(x), expected)
    split.add_submodule(call.target, fx.symbolic_trace(nn.GELU(), call.args[0].type))
    flat = passes.inline_modules(split)
    assert ops_of(flat) == ["linear", "gelu", "linear"]
    compare("flat", flat(x), expected)


def test_inlining_leaves_children_of_shared_children_as_they_are() -> None:
    gm = trace(lambda x: np.exp(np.sin(np.cos(x)) + 1))
    inner = passes.split_module(gm, lambda n: 0 if n.name in ("sin", "cos") else 1)
    for name in "abcdefgh":  # whatever the order in which paths are visited
        outer = passes.split_module(inner, lambda n: name)  # noqa: B023
        fx.assert_same(passes.inline_modules(outer), gm)
        child = outer.get_submodule(f"submod_{name}")
        assert set(child._modules) == {"submod_0", "submod_1"}


def test_a_checked_pass_inlines_a_part_that_nobody_reads() -> None:
    gm = trace(lambda x: (np.cos(x), np.exp(x))[1])
    split = passes.split_module(gm, lambda n: n.name)
    assert "self.submod_cos(x)" in split.graph.text(full=True)
    flat = passes.PassManager(["inline_modules"], check=True)(split)
    assert "exp" in ops_of(flat) and all(n.op != "call_module" for n in flat.graph.nodes)
