"""Split a graph into submodules, as torch.fx's ``split_module`` does.

In: a GraphModule and a function from nodes to partition ids. Out: a GraphModule that calls one
GraphModule for each partition, in dependency order::

    def forward(self, x: f32[B,8]):
        submod_0: f32[B,8] = self.submod_0(x)
        submod_1: f32[B,4] = self.submod_1(submod_0, x)
        return submod_1

``passes.inline_modules`` flattens it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import GraphError, expect
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.cutting.subgraph import Region, bind_named_dims, build, cut, element_source, free_name


@checked
def split_module(
    m: Any,
    root_m: Any = None,
    split_callback: Callable[[Node], Hashable | None] | None = None,
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Split the module into one submodule ``submod_ID`` for each id that ``split_callback(node)``
    returns; the result calls them.

    The callback is called for every call; None leaves the node in the outer graph. Elements of a
    call with several results go with the call. Weights go where they are read, and
    ``qualname_map`` receives the old path for each new one. Arguments and results of submodules are
    in order of use. The result runs as the original does: nodes that draw random numbers, and leaf
    modules, keep their order. A submodule takes the named sizes of ``gm`` from its arguments, or if
    necessary from an additional one in front.

    The parameters are those of torch.fx. ``root_m`` is not needed: ``split_module(gm, callback)``
    works, too. Nodes always keep their names, and calls keep the order of the graph as far as
    possible. Without ``keep_original_input_name`` the inputs of submodules are named ``arg_0``, ...;
    ``partition_affix`` gives ``submod_AFFIX_ID``; with ``tuple_return`` a single result is returned
    as a tuple. ``meta["partition_names"]`` of the result lists the submodules.

    Raises GraphError naming the values by which partitions depend on each other in a circle."""
    callback: Any = root_m if split_callback is None else split_callback
    expect(callback, Callable, "split_callback")
    gm = as_module(m)
    assignment = with_results(gm, lambda n: callback(n))
    stem = "submod_" if partition_affix is None else f"submod_{partition_affix}_"
    calls = _calls(gm, assignment, lambda key: f"{stem}{key}", tuple_return)
    for name, child in calls.children.values():
        if not keep_original_input_name:
            for number, node in enumerate(child.graph.placeholders):
                node.target = node.name = f"arg_{number}"
        if qualname_map is not None:
            qualname_map |= {f"{name}.{path}": path for path in read_paths(child)}
    made = calls.make()
    made.meta["partition_names"] = {name for name, _ in calls.children.values()}
    return made


@checked
def split_by_tags(
    gm: GraphModule,
    tags: Iterable[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """Split into one submodule for each of ``tags``, named after it and in their order; it holds the
    nodes whose ``node.tag`` is that tag. See :func:`split_module`. With ``return_fqn_mapping`` the
    function returns the result and a dict from each path of a weight or leaf module to its new path.

    Raises GraphError for a call without one of the tags, and if a node needs a node of a later tag."""
    order_of: dict[Any, int] = {tag: i for i, tag in enumerate(tags)}
    assignment = with_results(gm, lambda n: getattr(n, "tag", None))
    place: dict[Node, int] = {}
    for node in gm.graph.nodes:
        if not node.op.startswith("call_"):
            continue
        tag: Any = assignment.get(node)
        if tag not in order_of:
            known = ", ".join(map(repr, order_of))
            raise GraphError(f"{node.describe()} has the tag {tag!r}; each call needs one: {known}")
        place[node] = order_of[tag]
        for used in node.all_input_nodes:
            if place.get(used, 0) > place[node]:
                later = _with_partition(used, assignment)
                raise GraphError(f"{_with_partition(node, assignment)} reads {later}, whose tag comes later")
    calls = _calls(gm, assignment, str, return_tuple)
    calls.items = [calls.regions[tag].nodes for tag in order_of if tag in calls.regions]
    result = calls.make(GraphModuleCls)
    if not return_fqn_mapping:
        return result
    paths = ((p, name) for name, child in calls.children.values() for p in read_paths(child))
    return result, {path: f"{name}.{path}" for path, name in paths}


@checked
def fuse_by_partitions(
    gm: GraphModule, partitions: Iterable[Iterable[Node]], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Replace each group of nodes by a call of a submodule ``fused_ID``, in ``gm`` itself, which is
    returned; ``gm.undo()`` reverts it. Results are in the graph's order.

    Raises GraphError for nodes of another graph, and if groups depend on each other in a circle."""
    graph = gm.graph
    groups = {node: i for i, nodes in enumerate(partitions) for node in nodes}
    for node in groups:
        if node.graph is not graph or node._erased:
            raise GraphError(f"{node.name} is not in the graph of {gm.name}; partition this one")
    assignment = with_results(gm, groups.get)
    held = {name for group in (gm._modules, gm._parameters, gm._buffers) for name in group}
    calls = _calls(gm, assignment, lambda key: f"{prefix}{key}", always_return_tuple, held)
    with graph.transaction("fuse_by_partitions"):
        for name, child in calls.children.values():
            gm.add_submodule(name, child)
        output = graph.output_node()
        with graph.inserting_before(output):
            for item in calls.items:
                if isinstance(item, Node):
                    output.prepend(item)
                else:
                    calls.call(graph, assignment[item[0]])
        nodes = [node for region in calls.regions.values() for node in region.nodes]
        weights = {n for node in nodes for n in node.all_input_nodes if n.op == "get_attr"}
        for old, new in calls.values.items():
            old.replace_all_uses_with(new)
        for node in (*reversed(nodes), *weights):
            if not node.users:
                graph.erase_node(node)
    return gm


def with_results(gm: GraphModule, key_of: Callable[[Node], Hashable | None]) -> dict[Node, Hashable]:
    """The key of each call that has one; elements of a call's results get the key of the call."""
    assignment: dict[Node, Hashable] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_module"):
            source = element_source(node)
            key = key_of(node) if source is None else assignment.get(source)
            if key is not None:
                assignment[node] = key
    return assignment


def read_paths(gm: GraphModule) -> list[str]:
    """Paths of the weights that a graph reads and of the modules that it calls, each once."""
    nodes = (n for n in gm.graph.nodes if n.op in ("get_attr", "call_module"))
    return list(dict.fromkeys(node.target for node in nodes))


def _calls(
    gm: GraphModule,
    assignment: dict[Node, Hashable],
    name_of: Callable[[Any], str],
    as_tuple: bool,
    taken: set[str] | None = None,
) -> CallingModule:
    """Make a submodule for each key. ``taken`` holds names that they must not have; None means the
    names that the graph reads outside them. If it is given, results are in the graph's order."""
    regions = cut(gm.graph, assignment)
    for region in regions.values():
        bind_named_dims(gm.graph, region)
        if taken is not None:
            region.outputs = dict.fromkeys(sorted(region.outputs))
    if taken is None:
        outside = (n for n in gm.graph.nodes if n not in assignment)
        read = (n for node in outside for n in (node, *node.all_input_nodes))
        taken = {n.target.partition(".")[0] for n in read if n.op in ("get_attr", "call_module")}
    children = {}
    for key, region in regions.items():
        name = free_name(name_of(key), taken)
        children[key] = name, build(gm, region, name, as_tuple=as_tuple)
    return CallingModule(gm, assignment, regions, children, as_tuple)


RESULT = "result"  # in the meta of a call: the former name of its result


class CallingModule:
    """Builds the graph that calls a submodule for each region. ``children`` gives, by the region's
    key, the path of the submodule and the submodule. ``items`` are regions and other calls in their
    new order, and ``values`` are the values that replace nodes of ``gm``."""

    def __init__(
        self,
        gm: GraphModule,
        assignment: dict[Node, Hashable],
        regions: dict[Any, Region],
        children: Mapping[Any, tuple[str, GraphModule]],
        as_tuple: bool = False,
    ) -> None:
        self.gm, self.assignment, self.regions = gm, assignment, regions
        self.children, self.as_tuple = children, as_tuple
        self.items = order(gm, assignment)
        self.values: dict[Node, Node] = {}

    def make(self, kind: type[GraphModule] = GraphModule) -> GraphModule:
        """The outer GraphModule."""
        old, graph = self.gm.graph, Graph()
        graph.take_conditions(old)
        output = old.output_node()
        outside = [n for n in old.nodes if n not in self.assignment]
        read = {u for n in outside for u in n.all_input_nodes if u.op == "get_attr"}
        read |= {n for region in self.regions.values() for n in region.inputs if n.op == "get_attr"}
        for node in old.nodes:
            if node.op == "placeholder" or node in read:
                self.values[node] = graph.node_copy(node)
        holder: dict[str, Any] = {n.target: self.gm.get_attribute(n.target) for n in read}
        for node in outside:
            if node.op == "call_module":
                holder[node.target] = self.gm.get_submodule(node.target)
        for item in self.items:
            if isinstance(item, Node):
                self.values[item] = graph.node_copy(item, self.values.__getitem__)
            else:
                self.call(graph, self.assignment[item[0]])
        holder |= dict(self.children.values())
        with graph.with_origin(output):
            graph.output(map_nodes(output.args[0], self.values.__getitem__))
        graph.interface, graph.taps = old.interface, old.taps
        if graph.interface is not None and graph.states:  # they belong to the root of the outer module
            graph.interface = replace(graph.interface, states=tuple((t, t) for t, _ in graph.states))
            holder |= {target: self.gm.get_attribute(path) for target, path in old.states}
        made = kind(holder, graph, self.gm.name)
        made.training = self.gm.training
        return made

    def origin(self, graph: Graph, key: Any, node: Node) -> Any:
        """A context that gives the call of a region, or a result of it, the origin of a node."""
        return graph.with_origin(node)

    def call(self, graph: Graph, key: Any) -> None:
        """Add the call of the submodule for one region, and record its results."""
        region, (name, _) = self.regions[key], self.children[key]
        arguments = tuple(self.values.get(n, n) for n in region.inputs)
        types = tuple(n.type for n in region.outputs)
        single = len(types) == 1 and not self.as_tuple
        result_type = types[0] if single else (None if None in types else types)
        with self.origin(graph, key, region.nodes[0]):
            call = graph.call_module(name, arguments, {}, result_type)
        if single:
            call.meta = {**call.meta, RESULT: next(iter(region.outputs)).name}
        for index, node in enumerate(region.outputs):
            self.values[node] = call
            if not single:
                with self.origin(graph, key, node):
                    self.values[node] = graph.call_function("getitem", (call,), {"index": index}, name=node.name)


# -- dependencies between partitions ---------------------------------------------------------------
def dependencies(gm: GraphModule) -> Iterator[tuple[Node, Node]]:
    """Pairs (earlier, later) of calls that must keep their order: the later one reads the earlier
    one's value, or both have effects (random numbers, leaf modules)."""
    effect: Node | None = None
    for node in gm.graph.nodes:
        if not node.op.startswith("call_"):
            continue
        for used in node.all_input_nodes:
            if used.op.startswith("call_"):
                yield used, node
        if node.is_impure():
            if effect is not None:
                yield effect, node
            effect = node


def order(gm: GraphModule, assignment: dict[Node, Hashable]) -> list[Node | list[Node]]:
    """Unassigned calls and partitions (as lists of nodes), each after what it needs and as near to
    graph order as possible. Raises GraphError naming a circle."""
    items, done, needs = _sorted_items(gm, assignment)
    if len(done) < len(items):
        raise GraphError(_circle(needs, set(range(len(items))) - set(done), assignment))
    return [items[i] for i in done]


def entangled(gm: GraphModule, assignment: dict[Node, Any]) -> set[Any]:
    """The partitions that depend on themselves through others, and those on a path between such partitions."""
    items, done, needs = _sorted_items(gm, assignment)
    left = set(range(len(items))) - set(done)
    while True:
        needed = left & {need for item in left for need in needs[item]}
        if needed == left:
            return {assignment[x[0]] for i in left if isinstance(x := items[i], list)}
        left = needed


def _sorted_items(
    gm: GraphModule, assignment: dict[Node, Hashable]
) -> tuple[list[Node | list[Node]], list[int], list[dict[int, tuple[Node, Node]]]]:
    """Calls and partitions; the order in which they can run, as far as there is one; and for each
    item the others that it needs."""
    items: list[Node | list[Node]] = []
    item_of: dict[Node, int] = {}
    first: dict[Any, int] = {}
    for node in gm.graph.nodes:
        if not node.op.startswith("call_"):
            continue
        key = assignment.get(node)
        if key is None or key not in first:
            item_of[node] = len(items)
            items.append(node if key is None else [node])
            if key is not None:
                first[key] = item_of[node]
        else:
            item_of[node] = first[key]
            members = items[item_of[node]]
            assert isinstance(members, list)
            members.append(node)
    needs: list[dict[int, tuple[Node, Node]]] = [{} for _ in items]
    readers: list[set[int]] = [set() for _ in items]
    for earlier, later in dependencies(gm):
        a, b = item_of[earlier], item_of[later]
        if a != b:
            needs[b].setdefault(a, (earlier, later))
            readers[a].add(b)
    waiting = [len(n) for n in needs]
    ready = [i for i, count in enumerate(waiting) if count == 0]
    done: list[int] = []
    while ready:
        item = heapq.heappop(ready)
        done.append(item)
        for reader in readers[item]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return items, done, needs


def _circle(needs: list[dict[int, tuple[Node, Node]]], left: set[int], assignment: dict[Node, Hashable]) -> str:
    """Names the values along one circle: every remaining item needs another remaining item."""
    item = min(left)
    seen: dict[int, int] = {}
    while item not in seen:
        seen[item] = len(seen)
        item = next(i for i in needs[item] if i in left)
    path = list(seen)[seen[item] :]
    steps = []
    for later, earlier in zip(path, [*path[1:], path[0]]):
        a, b = needs[later][earlier]
        verb = "is read by" if a in b.all_input_nodes else "has effects that come before those of"
        steps.append(f"{_with_partition(a, assignment)} {verb} {_with_partition(b, assignment)}")
    listed = "\n  ".join(reversed(steps))
    return (
        f"the partitions depend on each other in a circle:\n  {listed}\n"
        f"put these nodes into one partition, or divide one of the partitions"
    )


def _with_partition(node: Node, assignment: dict[Node, Hashable]) -> str:
    key = assignment.get(node)
    where = f"partition {key}" if key is not None else "in no partition"
    return f"{node.name} ({where}{f', {node.origin}' if node.origin else ''})"
