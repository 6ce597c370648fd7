"""Loop-invariant code motion: values that each iteration of a loop would compute again from values that
do not change are computed once, before the loop.

Before::

    for i in range(0, n):
        exp: f32[8] = ops.exp(w)
        add: f32[8] = total + exp
        total = add

After::

    exp: f32[8] = ops.exp(w)
    for i in range(0, n):
        add: f32[8] = total + exp
        total = add

A loop may not run at all, so only calls that cannot fail are moved, and none that draw random numbers
or have effects. Numbers and views, which cost nothing, stay where they are read, and so do masks of
positions, from which loops derive their bounds. Computations in a branch of a condition stay in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.passes.base import graph_pass
from fxlite.passes.group import is_of_places
from fxlite.passes.inside import control_nodes, new_input, set_bodies
from fxlite.passes.rewrite.rewire import needed_by
from fxlite.types.tensor_type import TensorType


@graph_pass
def loop_invariants(gm: GraphModule) -> None:
    """Move computations that do not change in a loop out of the loop. Calls that may fail, such as those that check
    an index when they run, stay, because the loop may not run at all."""
    for node in control_nodes(gm.graph):
        if "body_fn" in node.kwargs:
            for name in bodies_of(node):
                _move_out(node, name)


def _move_out(node: Node, name: str) -> None:
    """Move the calls of one body that depend only on captured values."""
    body: SubGraph = node.kwargs[name]
    captured = node.arguments.get("captured", ())
    start = len(body.inputs) - len(captured)
    outside: dict[Node, Any] = dict(zip(body.inputs[start:], captured))
    moved: list[Node] = []
    for call in body.calls:
        if _may_move(call) and all(n in outside for n in call.all_input_nodes):
            outside[call] = None
            moved.append(call)
    places: dict[Node, int] = {}
    wanted = [call for call in moved if _is_worth(call, places) and _is_read_inside(call, outside, body)]
    needed = needed_by(wanted)
    if not wanted:
        return
    graph = node.graph
    with graph.inserting_before(node):
        for call in body.calls:
            if call in needed:
                outside[call] = graph.node_copy(call, outside.__getitem__)
    _capture(node, name, wanted, [outside[call] for call in wanted])


def _may_move(call: Node) -> bool:
    """Whether a call cannot fail and does the same whenever it runs."""
    kind = call.target.kind
    if kind in ("control", "random", "opaque", "gather", "scatter") or call.is_impure():
        return False
    if call.target.starts_at and not all(n.type.is_concrete for n in call.all_input_nodes):
        return False  # an element of an axis that may be too short
    return call.target.guards == "" and isinstance(call.type, TensorType)


def _is_worth(call: Node, places: dict[Node, int]) -> bool:
    """Whether computing a call once is worth storing its value. ``places`` is the cache of `is_of_places`."""
    return call.target.kind not in ("view", "creation") and not is_of_places(call, places)


def _is_read_inside(call: Node, outside: dict[Node, Any], body: SubGraph) -> bool:
    return call in body.results or any(user not in outside for user in call.users)


def _capture(node: Node, name: str, calls: list[Node], values: list[Node]) -> None:
    """Make a body read ``values`` from around it in place of ``calls``; the node's other bodies capture them, too."""
    bodies: dict[str, SubGraph] = {}
    for key, body in bodies_of(node).items():
        graph, copies = body.copy()
        inputs = [copies[n] for n in body.inputs]
        for call, value in zip(calls, values):
            inputs.append(new_input(graph, f"{call.name}_0", value.type))
            if key == name:
                copies[call].replace_all_uses_with(inputs[-1])
        graph.eliminate_dead_code()
        bodies[key] = SubGraph(graph, inputs)
    set_bodies(node, bodies, values)


def _loop(x: Any, w: Any) -> Any:
    from fxlite.tracing.capture.control import fori_loop

    return fori_loop(0, 3, lambda i, y: y * np.exp(w), x)


def _all_changes(x: Any) -> Any:
    from fxlite.tracing.capture.control import fori_loop

    return fori_loop(0, 3, lambda i, y: y * np.exp(y), x)


loop_invariants.example(_loop, "exp of what the loop does not change", x="f32[4]", w="f32[4]")
loop_invariants.counterexample(_all_changes, "each iteration computes another value", x="f32[4]")
