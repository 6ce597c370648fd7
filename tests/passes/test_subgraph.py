"""Cutting regions out of graphs: what crosses the border, and that the part computes what it did in
the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.base.errors import ArgumentError, GraphError
from tests.graphs import ops_of, trace
from tests.oracle import compare
from tests.zoo import ZOO, Program


def values_of(gm: fx.GraphModule, *inputs: Any) -> dict[str, Any]:
    """The value of every node by name."""
    interpreter = fx.Interpreter(gm, garbage_collect_values=False)
    interpreter.run(*inputs)
    return {node.name: value for node, value in interpreter.env.items()}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 3)

    def forward(self, x: Any, y: Any) -> Any:
        h = np.maximum(self.first(x), 0)
        return self.second(h) + y, h.sum(axis=-1)


def net() -> fx.GraphModule:
    return fx.symbolic_trace(Net().eval(), x="f32[B,4]", y="f32[B,3]")


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_all_nodes_give_the_graph_again(program: Program) -> None:
    gm, eager, inputs = program.trace()
    whole = passes.extract_subgraph(gm, gm.graph.nodes)
    whole.graph.lint()
    fx.assert_same(gm, whole)
    assert [n.name for n in whole.graph.nodes if n.op != "get_attr"] == [
        n.name for n in gm.graph.nodes if n.op != "get_attr"
    ]
    compare("the whole", whole(*inputs), eager(*inputs))


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_every_third_of_a_graph_computes_its_values(program: Program) -> None:
    gm, _, inputs = program.trace()
    known = values_of(gm, *inputs)
    nodes = [n for n in gm.graph.nodes if n.op == "call_function" and n.target.name != "getitem"]
    for start in range(3):
        chosen = nodes[start * len(nodes) // 3 : (start + 1) * len(nodes) // 3]
        if not chosen:
            continue
        part = passes.extract_subgraph(gm, chosen)
        part.graph.lint()
        result = part(*(np.asarray(known[p.name]) for p in part.graph.placeholders))
        outputs = part.graph.output_node().all_input_nodes
        expected = [known[n.name] for n in outputs]
        compare("the part", result, expected if len(expected) != 1 else expected[0])
        assert {n.name for n in chosen} <= {n.name for n in part.graph.nodes}


def test_border_names_types_and_weights() -> None:
    gm = net()
    gm.graph.find_nodes(op="call_function", target="relu")[0].meta["note"] = 1
    part = passes.extract_subgraph(gm, ["relu", "linear_1"])
    assert [(p.target, str(p.type)) for p in part.graph.placeholders] == [("linear", "f32[B,5]")]
    assert sorted(part.state_dict()) == ["second.bias", "second.weight"]
    assert part.second.weight is gm.second.weight
    assert [n.name for n in part.graph.output_node().args[0]] == ["relu", "linear_1"]
    (relu,) = part.graph.find_nodes(op="call_function", target="relu")
    (before,) = gm.graph.find_nodes(op="call_function", target="relu")
    assert (relu.scope, relu.loc, relu.meta) == (before.scope, before.loc, {"note": 1})
    assert part.graph.placeholders[0].loc == gm.graph.find_nodes(op="call_function")[0].loc


def test_leaves_are_returned_where_nobody_outside_reads() -> None:
    gm = trace(lambda x: np.exp(x))
    with gm.graph.inserting_before(gm.graph.output_node()):
        one = gm.graph.call_function("neg", (gm.graph.placeholders[0],))
        gm.graph.call_function("sin", (one,))
    part = passes.extract_subgraph(gm, ["neg", "sin"])
    assert part.graph.output_node().args[0].name == "sin"


def test_a_cut_by_inputs_and_outputs() -> None:
    gm = net()
    part = passes.extract_subgraph(gm, inputs=["y", "relu"], outputs=["add", "linear_1"])
    assert [p.target for p in part.graph.placeholders] == ["y", "relu"], "in the order given"
    assert [n.name for n in part.graph.output_node().args[0]] == ["add", "linear_1"]
    x, y = np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)
    known = values_of(gm, x, y)
    compare("cut", part(y, known["relu"]), (known["add"], known["linear_1"]))
    head = passes.extract_subgraph(gm, outputs="relu")
    assert [p.target for p in head.graph.placeholders] == ["x"]
    compare("head", head(x), known["relu"])
    tail = passes.extract_subgraph(gm, inputs=["relu", "y"])
    compare("tail", tail(known["relu"], y), gm(x, y))


def test_a_cut_that_leaves_a_way_around_is_refused() -> None:
    gm = net()
    with pytest.raises(GraphError, match=r"reached from the input y .*y -> add; add y"):
        passes.extract_subgraph(gm, inputs=["relu"], outputs=["add"])


def test_elements_stay_with_their_call() -> None:
    def both(x: Any) -> Any:
        left, right = ops.split(x, (2, 2), 1)
        return left + 1, right

    gm = trace(both)
    (head,) = gm.graph.find_nodes(op="call_function", target="split")
    part = passes.extract_subgraph(gm, [head])
    assert ops_of(part) == ["split", "getitem", "getitem"]
    rest = passes.extract_subgraph(gm, [n for n in gm.graph.nodes if n is not head])
    assert "getitem" not in ops_of(rest)
    assert all(isinstance(p.type, fx.TensorType) for p in rest.graph.placeholders)
    with pytest.raises(GraphError, match="several results"):
        passes.extract_subgraph(gm, inputs=[head])


def test_a_size_only_an_attribute_uses_comes_with_an_input() -> None:
    def spread(x: Any, y: Any) -> Any:
        return np.broadcast_to(np.exp(y), (x.shape[0], 4)) + x

    gm = trace(spread, "f32[B,4]", "f32[4]")
    part = passes.extract_subgraph(gm, ["exp", "expand"])
    assert {p.target for p in part.graph.placeholders} == {"x", "y"}
    x, y = np.ones((3, 4), np.float32), np.zeros(4, np.float32)
    arguments = {"x": x, "y": y}
    compare("spread", part(**arguments), np.ones((3, 4), np.float32))


def test_wrong_arguments() -> None:
    gm = net()
    with pytest.raises(ArgumentError, match="did you mean relu"):
        passes.extract_subgraph(gm, ["rellu"])
    with pytest.raises(ArgumentError, match="belongs to another graph"):
        passes.extract_subgraph(gm, net().graph.nodes)
    with pytest.raises(ArgumentError, match="no call among"):
        passes.extract_subgraph(gm, ["x"])
    with pytest.raises(ArgumentError, match="either nodes, or inputs"):
        passes.extract_subgraph(gm, ["relu"], outputs=["relu"])
    with pytest.raises(ArgumentError, match="either nodes, or inputs"):
        passes.extract_subgraph(gm)


def test_an_input_keeps_its_default_where_it_comes_last() -> None:
    graph = fx.Graph()
    x, y = (graph.placeholder(n, fx.parse_type("f32[3]"), 2.0) for n in "xy")
    total = graph.call_function("add", (x, y))
    graph.output(graph.call_function("mul", (graph.call_function("exp", (total,)), y)))
    gm = fx.GraphModule({}, graph)
    assert [p.args for p in passes.extract_subgraph(gm, ["add"]).graph.placeholders] == [(2.0,)] * 2
    part = passes.extract_subgraph(gm, ["mul"])  # y, then exp, which must be given
    assert [(p.target, p.args) for p in part.graph.placeholders] == [("y", ()), ("exp", ())]
