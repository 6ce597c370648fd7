"""The nodes that one call of a module made, found by the module's path or class.

In: a traced module, and ``"layers.*.attn"``, ``"Linear"`` or ``nn.Linear``. Out: one
:class:`SourcePartition` for each call, in the graph's order, as torch.fx's
``get_source_partitions`` gives them: what to replace, to quantize or to look at as one piece.

A graph knows in which module a node was made, not in which call of it. Calls of one module are told
apart in this way: a call is a stretch of nodes that stand together in the graph's order (weights
apart); and where such a stretch does the same on the same weights several times over, with some of
it made in the module itself and not in one inside it, each time is a call. So ``fc(fc(x))`` is two
partitions. What stays one are two calls, one right behind the other, of a module that only calls
others (``Sequential``) or has no weights; a module that loops over its own weights is several.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.show.query.tree import path_key, path_pattern


@dataclass(frozen=True)
class SourcePartition:
    """One call of a module: its path and class, the nodes it made, and what goes in and out.

    ``inputs`` are values from outside that ``nodes`` read, ``weights`` the get_attr nodes among
    what they read, ``outputs`` those of ``nodes`` that are read outside. ``class_name`` is ''
    where no value was made in the module itself, as in most ``Sequential``."""

    path: str
    class_name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    weights: tuple[Node, ...]

    def __repr__(self) -> str:
        names = ", ".join(node.name for node in self.nodes[:4])
        more = f", … {len(self.nodes)} nodes" if len(self.nodes) > 4 else ""
        title = f"{self.path} ({self.class_name})" if self.class_name else self.path
        return f"SourcePartition({title}: {names}{more})"


@checked
def source_partitions(gm: GraphModule, *sources: str | type) -> list[SourcePartition]:
    """The calls of the modules that ``sources`` name, in the graph's order of their first nodes.

    A source is a path (``*`` is any name, ``**`` any number of them, "" the whole), a class, or
    the name of one. Raises ArgumentError for a source that names no module of the graph, with the
    nearest names."""
    nodes = [n for n in gm.graph.nodes if n.op not in ("get_attr", "output")]
    origins = {node: _origin(gm, node) for node in nodes}
    classes: dict[tuple[str, str], None] = {o: None for o in origins.values() if o is not None}
    paths = {prefix for path, _ in classes for prefix in _prefixes(path)}
    wanted: dict[str, set[str]] = {}  # path of a module -> classes that were asked for, "": any
    for source in sources:
        if not isinstance(source, str | type):
            raise ArgumentError(f"a source is a path or a class, not {source!r}; give several of "
                                f"them one after another")  # fmt: skip
        for path, name in _resolve(source, paths, classes):
            wanted.setdefault(path, set()).add(name)
    wanted = {path: {""} if "" in names else names for path, names in wanted.items()}
    found: list[tuple[int, SourcePartition]] = []
    for (path, name), members in _members(nodes, origins, wanted).items():
        own = name or next((c for p, c in classes if p == path), "")
        for call in _calls(members, nodes, path, origins):
            found.append((call[0], _partition(path, own, [nodes[i] for i in call])))
    return [partition for _, partition in sorted(found, key=lambda pair: pair[0])]


def _origin(gm: GraphModule, node: Node) -> tuple[str, str] | None:
    """Path and class of the module that made a node; None for inputs. A leaf module is its own."""
    if node.op == "call_module":
        return node.target, type(gm.get_submodule(node.target)).__name__
    return None if node.scope is None else (node.scope.path, node.scope.class_name)


def _prefixes(path: str) -> list[str]:
    """The path and those of the modules around it: ``a.b`` -> ["", "a", "a.b"]."""
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


def _resolve(
    source: str | type, paths: set[str], classes: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The modules that a source names: pairs of a path and a class, '' where any will do."""
    if isinstance(source, str):
        pattern = path_pattern(source) if source else path_pattern("**")
        matching = [p for p in paths if (pattern.fullmatch(path_key(p)) if source else p == "")]
        if matching:
            return [(path, "") for path in matching]
    name = source if isinstance(source, str) else source.__name__
    matching_classes = [(path, own) for path, own in classes if own == name]
    if not matching_classes:
        known = dict.fromkeys((*(c for _, c in classes), *sorted(p for p in paths if p)))
        near = difflib.get_close_matches(name.replace("*", ""), known, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        if not near and known:
            hint = f"; it has {', '.join(list(known)[:12])}{', …' if len(known) > 12 else ''}"
        raise ArgumentError(f"the graph has no value made in a module {name!r}{hint}")
    return matching_classes


def _members(
    nodes: list[Node],
    origins: dict[Node, tuple[str, str] | None],
    wanted: dict[str, set[str]],
) -> dict[tuple[str, str], list[int]]:
    """Positions of the nodes made in each wanted module or inside it."""
    members: dict[tuple[str, str], list[int]] = {}
    modules: dict[tuple[str, str], list[tuple[str, str]]] = {}  # origin -> wanted modules around it
    for position, node in enumerate(nodes):
        origin = origins[node]
        if origin is None:
            continue
        if origin not in modules:
            path, own = origin
            modules[origin] = [
                (prefix, name)
                for prefix in _prefixes(path)
                for name in wanted.get(prefix, ())
                if not name or prefix != path or name == own
            ]
        for module in modules[origin]:
            members.setdefault(module, []).append(position)
    return members


def _calls(
    members: list[int],
    nodes: list[Node],
    path: str,
    origins: dict[Node, tuple[str, str] | None],
) -> list[list[int]]:
    """The positions of each call; see the module's text."""
    stretches: list[list[int]] = []
    for position in members:
        if stretches and stretches[-1][-1] == position - 1:
            stretches[-1].append(position)
        else:
            stretches.append([position])
    calls: list[list[int]] = []
    for stretch in stretches:
        period = _period([_signature(nodes[i], origins[nodes[i]]) for i in stretch])
        once = [nodes[i] for i in stretch[:period]]
        has_weights = any(
            node.op == "call_module" or any(n.op == "get_attr" for n in node.all_input_nodes)
            for node in once
        )
        is_own = any(origin is not None and origin[0] == path for origin in map(origins.get, once))
        size = period if has_weights and is_own else len(stretch)
        calls.extend(stretch[i : i + size] for i in range(0, len(stretch), size))
    return calls


def _signature(node: Node, origin: tuple[str, str] | None) -> Any:
    """What a node does and on which weights: equal for the same step of two calls."""
    weights = tuple(n.target for n in node.all_input_nodes if n.op == "get_attr")
    return node.op, node.target, weights, origin, repr(node.kwargs)


def _period(items: list[Any]) -> int:
    """Length of the shortest piece that a list repeats from beginning to end, by the failure
    function of Knuth, Morris and Pratt (1977)."""
    border = [0] * len(items)  # of each beginning: length of the longest end that is a beginning
    length = 0
    for position in range(1, len(items)):
        while length and items[position] != items[length]:
            length = border[length - 1]
        length += items[position] == items[length]
        border[position] = length
    period = len(items) - border[-1]
    return period if len(items) % period == 0 else len(items)


def _partition(path: str, class_name: str, nodes: list[Node]) -> SourcePartition:
    inside = set(nodes)
    read = dict.fromkeys(used for node in nodes for used in node.all_input_nodes)
    outside = [node for node in read if node not in inside]
    return SourcePartition(
        path,
        class_name,
        tuple(nodes),
        tuple(node for node in outside if node.op != "get_attr"),
        tuple(node for node in nodes if any(user not in inside for user in node.users)),
        tuple(node for node in outside if node.op == "get_attr"),
    )
