"""Where something is done: nodes given by themselves, by name, by a query, or as a list of these.

In: a module and what a user says. Out: nodes of its graph, each once, in the graph's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fxlite.base.errors import ArgumentError, QueryError, did_you_mean
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.show.query.search import QueryMatch, unknown_places


def nodes_at(gm: GraphModule, where: Any) -> list[Node]:
    """The nodes that ``where`` says: a node (of ``gm``, or of the one it is a copy of: by name), a
    query (:mod:`fxlite.show.query`; the last node of each match), a match, a name, or several of
    these. A text is a query if it can be one: "relu" is each relu, "#relu" the node of that name.
    Raises ArgumentError where one of them finds nothing, QueryError for what is no query."""
    found = set(_each(gm, where))
    if not found:
        raise ArgumentError("where= names no node: it is empty")
    return [node for node in gm.graph.nodes if node in found]


def node_at(gm: GraphModule, where: Any) -> Node:
    """The one node that ``where`` says; a text is a name first. Raises ArgumentError for more."""
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
            raise ArgumentError(f"{where.name} is no node of {gm.name}; give its name or a query")
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
