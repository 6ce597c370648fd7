"""What nodes of a new trace of a program keep of those of an older one: who is who, and the rest.

In: two GraphModules, and paths of weights that the newer one calls otherwise. Out: the newer one,
whose nodes have the names, notes, scopes and places of those that they are, in their order.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node_store import Namer
from fxlite.passes.ledger import refusals, set_ledger
from fxlite.show.comparison.compare import operands, types_equal
from fxlite.show.comparison.pairing import Pairs, call_key, pair_nodes


def with_identity(new: GraphModule, old: GraphModule, paths: Mapping[str, str], own: Collection[str]) -> GraphModule:
    """``new`` with what its nodes are in ``old``. A node that computes what it did keeps name,
    meta, scope and place in the program; one of which an attribute changed, name and scope.
    ``paths``: weights of ``new`` that are those of ``old`` under another path (new path -> old
    path); ``own``: those that its program holds, the others being constants of the trace.

    Refusals in the ledger stay as far as the nodes that they are of do."""
    before = {str(n.target) for n in old.graph.find_nodes(op="get_attr")}
    paths, moved = _weights(new, old, paths, own)
    old_of = _identities(old.graph, new.graph, {**moved, **paths})
    kept = {node for node, one in old_of.items() if _is_same(one, node)}
    for node, gone in _other_constants(old_of, paths, before):
        paths[node.target], old_of[node] = gone.target, gone
    namer = Namer()
    namer.taken |= {*(one.name for one in old_of.values()), *new.graph.input_dims}
    graph = Graph(new.graph.owning_module, new.graph.tracer_cls, new.graph.tracer_extras)
    graph.take_conditions(new.graph)
    graph.specialized, graph.interface = old.graph.specialized, new.graph.interface
    made: dict[Node, Node] = {}
    of_old: dict[Node, Node] = {}
    for node in _in_order(new.graph, old_of):
        one = old_of.get(node)
        if one in of_old:  # a weight that is read once more
            made[node] = of_old[one]
            continue
        target = paths.get(node.target, node.target) if node.op == "get_attr" else node.target
        name = namer.unique(node.name) if one is None else one.name
        args, kwargs = map_nodes((node.args, node.kwargs), made.__getitem__)
        with graph.with_origin(one if one is not None and node in kept else node):
            made[node] = graph.create_node(node.op, target, args, kwargs, name, node.type)
        if one is not None:
            of_old[one] = made[node]
            made[node].scope = one.scope
            made[node].meta = one.meta if node in kept else {}
    known = {guard: guard for guard in old.graph.guards}
    graph.guards = tuple(known.get(guard, guard) for guard in graph.guards)
    result = old.copy()
    result.graph = graph
    for node in new.graph.find_nodes(op="get_attr"):
        if node in made:
            result.set_attribute(made[node].target, new.get_attribute(node.target))
    result.delete_all_unused_submodules()
    same = {made[node].name for node in kept if node in made}
    set_ledger(result, [e for e in refusals(old) if same.issuperset((e.node, *e.nodes))])
    return result


def _weights(
    new: GraphModule, old: GraphModule, paths: Mapping[str, str], own: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Where weights of ``new`` stand in ``old``: those that are called so again, among them all
    constants of the trace, and others of the same bytes that have moved."""
    before = {str(n.target) for n in old.graph.find_nodes(op="get_attr")}
    now = dict.fromkeys(str(n.target) for n in new.graph.find_nodes(op="get_attr"))
    gone = before - {paths.get(path, path) for path in now if path in own}
    by_bytes: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for path in sorted(gone):
        by_bytes[_content(old, path)].append(path)
    made, moved = {path: paths[path] for path in now if path in paths and path in own}, {}
    free = (f"constant_{number}" for number in itertools.count())
    for path in now:
        if path in own and paths.get(path, path) in before:
            continue
        same = by_bytes[_content(new, path)]
        if path not in own:
            made[path] = same.pop(0) if same else next(f for f in free if f not in before)
        elif same:
            moved[path] = same.pop(0)
    return made, moved


def _content(module: GraphModule, path: str) -> tuple[str, bytes]:
    value = np.asarray(module.get_attribute(path))
    return f"{value.dtype}{value.shape}", value.tobytes()


def _identities(old: Graph, new: Graph, renamed: Mapping[str, str]) -> Pairs:
    """The node of ``old`` that a node of ``new`` is, of the same op; of reads of weights those of
    the same weight in the same place."""
    found: Pairs = {}
    for one, node in pair_nodes(old, new, renamed, inputs_by_name=True).items():
        if (one.op, one.target) == (node.op, node.target) or one.op == "placeholder":
            found[node] = one
            for p, q in zip(operands(one), operands(node)):
                is_weight = p.op == q.op == "get_attr"
                if is_weight and p.target == renamed.get(q.target, q.target):
                    found.setdefault(q, p)
    reads = {n.target: n for n in reversed(old.find_nodes(op="get_attr"))}
    for node in new.find_nodes(op="get_attr"):  # also where what reads a weight is new
        path = renamed.get(node.target, node.target)
        if node not in found and path in reads:
            found[node] = reads[path]
    return found


def _other_constants(old_of: Pairs, paths: Mapping[str, str], before: Collection[str]) -> list[tuple[Node, Node]]:
    """Constants of the trace in the place of others that are gone, and these."""
    left = {*before} - {paths.get(n.target, n.target) for n in old_of if n.op == "get_attr"}
    found: dict[str, tuple[Node, Node]] = {}
    for node, one in old_of.items():
        for p, q in zip(operands(one), operands(node)):
            is_new = q.target in paths and paths[q.target] not in before
            if is_new and p.op == "get_attr" and p.target in left and p.type == q.type:
                found.setdefault(p.target, (q, p))
    return [*found.values()]


def _is_same(old: Node, new: Node) -> bool:
    """Whether a node does what it did, whatever is done before it."""
    is_read = new.op in ("get_attr", "output")
    same = new.op == "placeholder" and old.target == new.target
    return (is_read or same or call_key(old) == call_key(new)) and types_equal(old.type, new.type)


def _in_order(graph: Graph, old_of: Pairs) -> Iterator[Node]:
    """The nodes that are read or have effects, in the order that they had, new ones behind those
    that they stand behind. Inputs and effects keep the order that they have now."""
    nodes = [n for n in graph.nodes if n.users or n.is_impure() or n in old_of]
    place = {one: number for number, one in enumerate(next(iter(old_of.values())).graph.nodes)}
    keys: dict[Node, tuple[int, int]] = {}
    needs: dict[Node, set[Node]] = {}
    last, before = -1, None
    for number, node in enumerate(nodes):
        last = place[old_of[node]] if node in old_of else last
        keys[node] = last, number
        needs[node] = {*node.all_input_nodes}
        if node.is_impure():
            needs[node] |= {before} if before is not None else set()
            before = node
    readers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node, read in needs.items():
        for one in read:
            readers[one].append(node)
    by_key = {key: node for node, key in keys.items()}
    ready = [keys[node] for node in nodes if not needs[node]]
    heapq.heapify(ready)
    while ready:
        node = by_key[heapq.heappop(ready)]
        yield node
        for reader in readers[node]:
            needs[reader].discard(node)
            if not needs[reader]:
                heapq.heappush(ready, keys[reader])
