"""Edits of graphs: checked, journalled, undone and redone; types and readers stay true."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import ops
from fxlite.base.errors import ArgumentError, FxliteError, GraphError, ShapeError


def state(gm: fx.GraphModule) -> Any:
    """All there is to know of a module: order, names, calls, types, readers, weights."""
    nodes = [
        (n.name, n.op, n.target, str(n.args), str(n.kwargs), n.type, {u.name for u in n.users}) for n in gm.graph.nodes
    ]
    weights = {k: v.tobytes() for k, v in gm.state_dict().items()}
    return nodes, len(gm.graph), weights


def module() -> fx.GraphModule:
    def program(x: Any) -> Any:
        a = np.exp(x)
        b = np.maximum(a, 0) + x
        return (a * b).sum(axis=1), np.concatenate([a, b, a])

    return fx.symbolic_trace(program, x="f32[3,4]")


def find(gm: fx.GraphModule, name: str) -> fx.Node:
    return next(n for n in gm.graph.nodes if n.name == name)


# -- readers ---------------------------------------------------------------------------------------
def test_users_are_a_live_read_only_view() -> None:
    gm = module()
    x, exp, relu = find(gm, "x"), find(gm, "exp"), find(gm, "relu")
    users = exp.users
    assert [u.name for u in users] == ["relu", "mul", "concat"] and len(users) == 3
    assert relu in users and x not in users and bool(users) and list(users.keys()) == list(users)
    assert set(relu.users) == {find(gm, "add")} and repr(relu.users) == "{add}"
    assert not find(gm, "output").users and len(find(gm, "output").users) == 0
    for user in users:  # may change what it walks over
        user.replace_input_with(exp, x)
    assert not users and [u.name for u in x.users] == ["exp", "add", "relu", "mul", "concat"]
    with pytest.raises(AttributeError):
        exp.users = {}  # type: ignore[misc]


def test_arguments_cannot_be_edited_in_place_and_the_error_says_what_to_do() -> None:
    gm = fx.symbolic_trace(lambda x: {"a": [x, -x]}, x="f32[4]")
    output = gm.graph.output_node()
    for edit in (
        lambda: output.args[0].update(b=1),
        lambda: output.args[0]["a"].append(1),
        lambda: output.args[0]["a"].__setitem__(0, 1),
        lambda: find(gm, "neg").kwargs.update(axis=1),
    ):
        with pytest.raises(TypeError, match=r"node\.args = "):
            edit()
    assert pickle.loads(pickle.dumps(output.args[0]["a"][:0])) == []


# -- writes to fields ------------------------------------------------------------------------------
def test_a_new_target_is_bound_to_its_signature_and_retyped() -> None:
    gm = module()
    add = find(gm, "add")
    add.target = fx.ops.lt
    assert str(add.type) == "bool[3,4]" and find(gm, "mul").type == fx.parse_type("f32[3,4]")
    before = state(gm)
    with pytest.raises(ArgumentError, match="takes 1 argument"):
        add.target = ops.exp
    with pytest.raises(GraphError, match=r"is an op .* did you mean fx.ops.add\?"):
        add.target = np.add
    assert state(gm) == before


def test_what_is_no_op_is_refused_where_one_is_looked_for() -> None:
    graph = module().graph
    assert [n.name for n in graph.find_nodes(op="call_function", target=ops.exp)] == ["exp"]
    with pytest.raises(GraphError, match=r"did you mean fx.ops.concat\?"):
        graph.find_nodes(op="call_function", target=np.concatenate)
    with pytest.raises(GraphError, match="is an op"):
        graph.call_function(print, (graph.placeholders[0],))


def test_bound_arguments_have_defaults_and_the_order_of_the_signature() -> None:
    gm = fx.symbolic_trace(lambda x: ops.conv1d(x, np.ones((2, 3, 3), "f"), stride=2), "f32[1,3,9]")
    (conv,) = gm.graph.find_nodes(op="call_function", target=ops.conv1d)
    x, weight = conv.args
    assert conv.arguments == {"x": x, "weight": weight, "stride": 2}
    assert list(conv.bound) == list(fx.ops.conv1d.signature.parameters)
    assert conv.bound == {"x": x, "weight": weight, "bias": None, "stride": 2, "padding": 0, "dilation": 1, "groups": 1}


def test_arguments_in_any_spelling_are_stored_in_the_one_form() -> None:
    gm = fx.symbolic_trace(lambda x: ops.softmax(x, axis=1), x="f32[3,4]")
    softmax = find(gm, "softmax")
    softmax.args = (softmax.args[0], 0)
    assert len(softmax.args) == 1 and softmax.kwargs == {"axis": 0}
    softmax.update_kwarg("dim", 1)
    assert softmax.kwargs == {"axis": 1}
    add = gm.graph.call_function("add", (softmax, 1.0))
    add.update_arg(1, softmax)
    assert add.args == (softmax, softmax) and list(softmax.users)[-1] is add


def test_an_edit_that_does_not_fit_leaves_everything_as_it_was() -> None:
    gm = module()
    before = state(gm)
    other = fx.symbolic_trace(lambda x: x, x="f32[5]").graph.placeholders[0]
    with pytest.raises(GraphError, match="belongs to another graph"):
        find(gm, "relu").args = (other,)
    with gm.graph.inserting_before(find(gm, "relu")):
        wrong = gm.graph.call_function("sum", (find(gm, "x"),), {"axis": 0})
        wrong = gm.graph.call_function("concat", ((wrong, wrong),))
    with pytest.raises(ShapeError):
        find(gm, "exp").replace_all_uses_with(wrong)  # fits relu, not add
    gm.undo()
    assert state(gm) == before


def test_a_change_of_type_reaches_what_depends_on_it_once() -> None:
    graph = fx.Graph()
    value = x = graph.placeholder("x", fx.parse_type("f32[4]"))
    for _ in range(60):  # 2^60 paths from x to the end
        value = graph.call_function("add", (value, value))
    graph.output(value)
    x.type = fx.parse_type("f64[2,4]")
    assert {str(n.type) for n in graph.nodes} == {"f64[2,4]"}
    graph.lint()


def test_erased_nodes_are_refused() -> None:
    gm = module()
    graph = gm.graph
    with graph.inserting_before(find(gm, "relu")):
        extra = graph.call_function("exp", (find(gm, "x"),))
    graph.erase_node(extra)
    with pytest.raises(GraphError, match="erased already"):
        graph.erase_node(extra)
    with pytest.raises(GraphError, match="was erased"):
        find(gm, "relu").args = (extra,)
    with pytest.raises(GraphError, match="not in this graph"), graph.inserting_before(extra):
        pass
    with pytest.raises(GraphError, match="cannot move"):
        extra.append(find(gm, "relu"))
    with pytest.raises(GraphError, match=r"read by relu, mul, concat"):
        graph.erase_node(find(gm, "exp"))


# -- transactions ----------------------------------------------------------------------------------
def test_a_transaction_that_raises_is_rolled_back_weights_included() -> None:
    gm = fx.symbolic_trace(fx.nn.Linear(4, 2), x="f32[3,4]")
    before = state(gm)
    with pytest.raises(KeyError), gm.graph.transaction("half"):
        gm.set_attribute("weight", np.zeros((2, 4), np.float32))
        gm.set_attribute("deep.down.scale", np.ones(2, np.float32))
        with gm.graph.inserting_before(gm.graph.output_node()):
            scale = gm.graph.get_attr("deep.down.scale")
            out = gm.graph.call_function("mul", (find(gm, "linear"), scale))
        gm.graph.output_node().args = (out,)
        with gm.graph.transaction("inner"):
            gm.graph.rename_node(out, "scaled")
        raise KeyError
    assert state(gm) == before and [p for p, _ in gm.named_modules()] == [""]
    assert gm.graph.journal.labels == []


def test_undo_and_redo_take_whole_transactions() -> None:
    gm = module()
    states = [state(gm)]
    with gm.graph.transaction("one"):
        find(gm, "relu").target = ops.exp
        find(gm, "add").target = ops.sub
    states.append(state(gm))
    find(gm, "add").target = ops.mul
    gm.graph.rename_node(find(gm, "relu"), "second")
    states.append(state(gm))
    assert gm.graph.journal.labels == ["one", "edits"]
    assert gm.undo() == "edits" and state(gm) == states[1]
    assert gm.undo() == "one" and state(gm) == states[0]
    with pytest.raises(GraphError, match="nothing to undo"):
        gm.undo()
    assert gm.redo() == "one" and state(gm) == states[1]
    assert gm.redo() == "edits" and state(gm) == states[2]
    gm.undo()
    find(gm, "add").target = ops.div  # a new edit: what was undone is gone
    with pytest.raises(GraphError, match="nothing to redo"):
        gm.redo()
    with gm.graph.transaction("open"), pytest.raises(GraphError, match="inside a transaction"):
        gm.undo()


def test_an_edited_module_runs_as_it_is_now() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[4]")
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(gm(x), np.exp(x))
    find(gm, "exp").target = ops.neg
    assert np.array_equal(gm(x), -x) and "-x" in gm.code
    gm.undo()
    assert np.array_equal(gm(x), np.exp(x)) and "exp" in gm.code


class Editor:
    """Makes random edits, legal or refused."""

    def __init__(self, gm: fx.GraphModule, draw: Any) -> None:
        self.gm, self.draw = gm, draw

    def pick(self) -> fx.Node:
        return self.draw(st.sampled_from(list(self.gm.graph.nodes)))

    def edit(self) -> None:
        if not len(self.gm.graph):
            return
        graph, node, other = self.gm.graph, self.pick(), self.pick()
        kind = self.draw(st.integers(0, 8))
        if kind == 0:
            with graph.inserting_before(node):
                graph.call_function(self.draw(st.sampled_from(["exp", "neg", "add"])), (other,) * 1)
        elif kind == 1:
            graph.erase_node(node)
        elif kind == 2:
            node.replace_all_uses_with(other)
        elif kind == 3:
            node.append(other)
        elif kind == 4:
            graph.rename_node(node, self.draw(st.sampled_from(["a", "b", "x"])))
        elif kind == 5:
            node.target = self.draw(st.sampled_from([ops.exp, ops.sub, ops.neg, ops.maximum]))
        elif kind == 6:
            node.args = (other, node.args[1] if len(node.args) > 1 else other)[: len(node.args)]
        elif kind == 7:
            graph.eliminate_dead_code()
        else:
            self.gm.set_attribute(self.draw(st.sampled_from(["w", "m.w"])), np.ones(2))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_edits_are_undone_and_redone_exactly(data: Any) -> None:
    gm = module()
    editor = Editor(gm, data.draw)
    states = [state(gm)]
    for number in range(data.draw(st.integers(1, 4))):
        position = len(gm.graph.journal.records)
        with gm.graph.transaction(f"unit {number}"):
            for _ in range(data.draw(st.integers(1, 6))):
                before = state(gm)
                try:
                    editor.edit()
                except FxliteError:
                    assert state(gm) == before  # refused whole
        if len(gm.graph.journal.records) > position:
            states.append(state(gm))
    for earlier in reversed(states[:-1]):
        gm.undo()
        assert state(gm) == earlier
    for later in states[1:]:
        gm.redo()
        assert state(gm) == later


# -- copies ----------------------------------------------------------------------------------------
def test_copies_are_identical_and_independent() -> None:
    gm = module()
    find(gm, "exp").meta["note"] = 1
    find(gm, "exp").meta["twin"] = (find(gm, "mul"),)
    for made in (gm.copy(), copy.deepcopy(gm)):
        assert state(made) == state(gm)
        a, b = list(gm.graph.nodes), list(made.graph.nodes)
        assert [(n.scope, n.loc, str(n.meta)) for n in a] == [(n.scope, n.loc, str(n.meta)) for n in b]
        assert find(made, "exp").meta["twin"] == (find(made, "mul"),)
        made.graph.lint(full=True)
        find(made, "exp").meta["note"] = 2
        find(made, "exp").target = ops.neg
        with made.graph.inserting_before(find(made, "add")):
            assert made.graph.call_function("relu", (find(made, "x"),)).name == "relu_1"
    assert find(gm, "exp").meta["note"] == 1 and find(gm, "exp").target is ops.exp


def test_building_leaves_the_garbage_collector_as_it_was() -> None:
    gm = module()
    gm.graph.copy()
    assert gc.isenabled()
    gc.disable()
    try:
        gm.graph.copy()
        assert not gc.isenabled()
    finally:
        gc.enable()
