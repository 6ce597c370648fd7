"""Places in a program, and probes there: values inside a program, observed while it runs.

In: a module and what a user says: nodes, their names, a query, or a list of these. Out: nodes of its
graph, each once, in the graph's order.

In: a module, nodes, and a function that receives their values. Out: a module with these values as
further results, which a call passes to the function (:mod:`fxlite.graph.further_results`), both in
Python and in compiled code. Nothing is compiled for them implicitly: a module that is tapped and then
compiled gives code that stores the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, QueryError, did_you_mean
from fxlite.graph.further_results import Tap
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.show.query.search import QueryMatch, unknown_places


def nodes_at(gm: GraphModule, where: Any) -> list[Node]:
    """The nodes that ``where`` names: a node (of ``gm``, or of the module it is a copy of, looked up
    by name), a query (:mod:`fxlite.show.query`; the last node of each match), a match, a name, or
    several of these. Text is a query if it can be one: "relu" is each relu, "#relu" the node of that
    name. Raises ArgumentError if one of them finds nothing, and QueryError for an invalid query."""
    found = set(_each(gm, where))
    if not found:
        raise ArgumentError("where= names no node: it is empty")
    return [node for node in gm.graph.nodes if node in found]


def node_at(gm: GraphModule, where: Any) -> Node:
    """The one node that ``where`` names; text is tried as a name first. Raises ArgumentError for several."""
    named = next((n for n in gm.graph.nodes if n.name == where), None)
    found = [named] if named is not None else nodes_at(gm, where)
    if len(found) > 1:
        raise ArgumentError(f"{where!r} is {', '.join(n.name for n in found)}; give one node")
    return found[0]


def _each(gm: GraphModule, where: Any) -> Iterator[Node]:
    graph = gm.graph
    if isinstance(where, QueryMatch):
        where = where.last
    if isinstance(where, Node):
        if where.graph is graph and not where._erased:
            yield where
            return
        same = next((n for n in graph.nodes if n.name == where.name), None)
        if same is None or (same.op, same.target) != (where.op, where.target):
            raise ArgumentError(f"{where.name} is not a node of {gm.name}; give its name or a query")
        yield same
    elif isinstance(where, str):
        names = {n.name: n for n in graph.nodes}
        try:
            matches = graph.find(where)
        except QueryError:
            if where not in names:
                raise
            matches = []
        if not matches and where in names:
            yield names[where]
        elif not matches:
            said = "; ".join(unknown_places(graph, where)) or did_you_mean(where, names).strip("; ")
            raise ArgumentError(f"{where!r} finds no node of {gm.name}{': ' + said * bool(said)}")
        yield from (match.last for match in matches)
    elif isinstance(where, Iterable):
        for part in where:
            yield from _each(gm, part)
    else:
        raise ArgumentError(f"where= is a node, a name, a query or a list of these, not {type(where).__name__}")


# -- probes ----------------------------------------------------------------------------------------
@checked
def tap(gm: Any, where: Any, fn: Callable[[str, Any], Any]) -> GraphModule:
    """A module that computes what ``gm`` does, and after each call passes the values of the nodes at
    ``where`` to ``fn(name, value)``, in the graph's order. ``gm`` is left as it was::

        seen = {}
        tapped = passes.tap(gm, 'linear:last("layers.*.attn")', seen.__setitem__)
        tapped(x)                                   # and so does fx.compile(tapped)(x)

    The query is "the last linear of each attention". ``where`` is a node, a name, a query or a list
    of them. ``fn`` gets read-only arrays. Passes keep tapped values, which prevents the nodes that
    compute them from being fused. Checks of passes, profiles, and modules that the tapped one is part
    of do not call ``fn``. A saved file and regenerated source return the values as further results,
    ``(result, *values)``.

    An exception in ``fn`` is raised by the call, after inputs that the program updates were updated;
    ``fn`` may be called in several threads at once. Raises ArgumentError if nothing is found, for the
    output, and for calls whose result consists of several arrays (tap its elements)."""
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
    """A module without the taps of the nodes at ``where``, or without any taps if it is not given;
    the inverse of :func:`tap`. Raises ArgumentError if a node has no tap."""
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
    """The program's own result in the output node, and the taps with their nodes."""
    return gm.take_taps(gm.graph.output_node().args[0])


def _set_results(gm: GraphModule, own: Any, values: list[tuple[Tap, Node]], label: str) -> None:
    graph = gm.graph
    nodes = tuple(node for _, node in values)
    if nodes:
        own = (*own, *nodes) if gm.written_inputs() else (own, *nodes)
    with graph.transaction(label):
        graph.taps = tuple(tap for tap, _ in values)
        graph.output_node().args = (own,)
