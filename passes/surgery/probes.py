"""Probes: values inside a program, seen while it runs, in Python and in compiled code.

In: a module, nodes, and a function that is told their values. Out: a module with these values as
further results, which a call hands to the function (:mod:`fxlite.graph.further_results`). Nothing is compiled
for them behind the user's back: who taps a module and compiles it gets code that stores the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError
from fxlite.graph.further_results import Tap
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.surgery.places import nodes_at


@checked
def tap(gm: Any, where: Any, fn: Callable[[str, Any], Any]) -> GraphModule:
    """A module that calls ``fn(name, value)`` for the nodes at ``where`` after each call, in the
    graph's order, and is otherwise as ``gm``, which is left as it was::

        seen = {}
        tapped = passes.tap(gm, 'linear:last("layers.*.attn")', seen.__setitem__)
        tapped(x)                                   # and so does fx.compile(tapped)(x)

    The query is "the last linear of each attention". ``where``: a node, a name, a query or a list
    of them. ``fn`` gets arrays that it cannot write into. Passes keep tapped values, which keeps
    what computes them from being fused; passes' checks, profiles and modules that the tapped one is
    a part of tell ``fn`` nothing. A saved file and regenerated source have the values as further
    results, ``(result, *values)``.

    What ``fn`` raises is raised by the call, after inputs that the program writes were written; it
    may be called in several threads at once. Raises ArgumentError where nothing is found, and for
    the output and for calls of which the result is several arrays (tap its elements)."""
    module = as_module(gm)
    nodes = nodes_at(module, where)
    for node in nodes:
        if node.op == "output" or isinstance(node.type, (tuple, list, dict)):
            what = "is the output" if node.op == "output" else "is several arrays"
            raise ArgumentError(
                f"{node.describe()} {what}; tap the nodes that "
                f"{'it returns' if node.op == 'output' else 'take elements of it'}"
            )
    made = module.copy()
    by_name = {n.name: n for n in made.graph.nodes}
    own, values = _results(made)
    values += [(Tap(node.name, fn), by_name[node.name]) for node in nodes]
    _set_results(made, own, values, "tap")
    return made


@checked
def untap(gm: GraphModule, where: Any = None) -> GraphModule:
    """A module without the taps of the nodes at ``where``; without any where that is not given.
    The inverse of :func:`tap`. Raises ArgumentError where a node has no tap."""
    made = gm.copy()
    own, values = _results(made)
    if where is None:
        left = []
    else:
        chosen = set(nodes_at(made, where))
        for node in chosen.difference(n for _, n in values):
            raise ArgumentError(f"{node.describe()} has no tap")
        left = [(tap, node) for tap, node in values if node not in chosen]
    _set_results(made, own, left, "untap")
    return made


def _results(gm: GraphModule) -> tuple[Any, list[tuple[Tap, Node]]]:
    """What the output node has for the program, and the taps with their nodes."""
    return gm.take_taps(gm.graph.output_node().args[0])


def _set_results(gm: GraphModule, own: Any, values: list[tuple[Tap, Node]], label: str) -> None:
    graph = gm.graph
    nodes = tuple(node for _, node in values)
    if nodes:
        own = (*own, *nodes) if gm.written_inputs() else (own, *nodes)
    with graph.transaction(label):
        graph.taps = tuple(tap for tap, _ in values)
        graph.output_node().args = (own,)
