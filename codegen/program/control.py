"""The bodies of a loop or condition as programs of their own.

In: a group of a control op. Out: for each body its groups in order, with names that no other value of
the function has, and its memory. A value that a loop carries has the same name in all its bodies, and
a value that a body captures has the name it has outside. If the number of an iteration is known to be
an index, kernels inside read it as one, so that the range of its selections is checked at compile time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fxlite.codegen.kernel.names import value_name
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import Names, SubGraph, bodies_of
from fxlite.ops.control import BODIES
from fxlite.passes.group import Group
from fxlite.passes.inside import edit_here_and_inside
from fxlite.passes.rules.decompose import decompose
from fxlite.passes.rules.redundant import cse, dce
from fxlite.passes.rules.simplify import simplify
from fxlite.scalar.expr import index_arithmetic
from fxlite.scalar.index import Given, Index
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType


@dataclass(eq=False)
class BodyPlan:
    """``program`` computes ``results`` from ``inputs``."""

    inputs: list[Node]
    results: list[Node]
    program: Any


@dataclass(eq=False)
class ControlPlan:
    """``bodies`` by the names of the attributes; ``carried`` are the inputs of the last body that a loop
    carries; ``index`` is the number of an iteration."""

    bodies: dict[str, BodyPlan] = field(default_factory=dict)
    index: Node | None = None
    carried: list[Node] = field(default_factory=list)


#: Plans the program of a body: its module, which inputs it may write over, names.
PlanBody = Callable[[GraphModule, list[Node], Names], Any]


def plan_control(group: Group, names: Names, plan_body: PlanBody, inside: Callable[[Node], bool]) -> ControlPlan:
    """The plan of a group; see the module's docstring. ``inside`` is true for nodes for which the target
    calls routines."""
    node, found = group.root, ControlPlan()
    operands_of = BODIES[node.target][1]
    carried = node.arguments.get("carried", ())
    captured = node.arguments.get(operands_of, ())
    bodies = bodies_of(node)
    last = bodies[list(bodies)[-1]]
    lead = len(last.inputs) - len(carried) - len(captured)
    own = [names.free(n.name) for n in last.inputs[: lead + len(carried)]]
    given = [v.name for v in captured]
    taken = {number for number, v in enumerate(captured) if v in group.taken.values()}
    for name, body in bodies.items():
        module, inputs = _module(body, inside)
        start = len(inputs) - len(captured)
        for inner, text in zip(inputs, [*own[len(own) - start :], *given]):
            object.__setattr__(inner, "name", text)
        for inner in module.graph.nodes:
            if inner.op == "call_function":
                object.__setattr__(inner, "name", names.free(inner.name))
        for inner, outer in zip(inputs[start:], captured):
            _note_index(inner, known_index(outer))
        if lead and len(inputs) == len(last.inputs):
            found.index = inputs[0]
            _note_index(inputs[0], _range_index(node, inputs[0]))
        for inner in module.graph.nodes:
            if inner.op == "call_function":
                _note_index(inner, _of_iterations(known_index(inner)))
        first = start - len(carried)
        writable = [n for n in inputs[first:start] if n.type.rank and name != "cond_fn"]
        writable += [inputs[start + number] for number in sorted(taken)]
        found.carried = inputs[first:start]
        results = list(module.graph.output_node().args[0])
        found.bodies[name] = BodyPlan(inputs, results, plan_body(module, writable, names))
    return found


def _module(body: SubGraph, inside: Callable[[Node], bool]) -> tuple[GraphModule, list[Node]]:
    """A body as a module in which all ops have code, and its inputs."""
    graph, copies = body.copy()
    inputs = [copies[n].name for n in body.inputs]
    module = GraphModule({}, graph, "body")
    for edit in (partial(decompose.function, keep=inside), simplify.function, cse.function, dce.function):
        edit_here_and_inside(module, edit)
    by_name = {n.name: n for n in module.graph.placeholders}
    return module, [by_name[name] for name in inputs]


# -- indices ---------------------------------------------------------------------------------------
def _note_index(node: Node, index: Index | None) -> None:
    if index is not None and not node.type.rank and node.type.dtype is dtypes.int64:
        node.meta["index"] = index


def _of_iterations(index: Index | None) -> Index | None:
    """An index that depends on the number of an iteration; None for others, which are computed as they are."""
    return index if index is not None and index.variables() else None


def _range_index(node: Node, number: Node) -> Index | None:
    """The number of an iteration as a variable, if its bounds are known to be sizes."""
    lower, upper = known_index(node.args[0]), known_index(node.args[1])
    if lower is None or upper is None or not lower.is_nonnegative():
        return None
    return Index.of(Given(value_name(number.name), upper, lower))


def known_index(value: Any) -> Index | None:
    """A number of rank 0 as an index; None if it is computed from anything but sizes and iteration
    numbers."""
    if type(value) is int:
        return Index.of(value)
    if not isinstance(value, Node) or not isinstance(value.type, TensorType) or value.type.rank:
        return None
    if value.type.dtype is not dtypes.int64:
        return None
    if "index" in value.meta:
        return value.meta["index"]  # type: ignore[no-any-return]
    if value.op != "call_function":
        return None
    if value.target.name == "full":
        number = value.arguments["value"]
        return None if isinstance(number, (float, bool)) else Index.of(number)
    if not value.target.symbol or len(value.args) != 2:
        return None
    return index_arithmetic(value.target.symbol, *map(known_index, value.args))
