"""Splitting a graph into submodules, torch.fx's ``split_module``.

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
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import GraphError, expect
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import as_module
from fxlite.passes.cutting.subgraph import Region, bind_named_dims, build, cut, element_source


@checked
def split_module(program: Any, split_callback: Callable[[Node], Hashable | None]) -> GraphModule:
    """Call one submodule ``submod_ID`` for each id that ``split_callback(node)`` returns.

    The callback is asked for every call; None leaves the node in the outer graph. Elements of a
    call with several results go with the call; weights go where they are read. The result runs as
    the original does: nodes that draw random numbers, and leaf modules, keep their order. A
    submodule takes gm's named sizes from its arguments, if need be from an additional one.

    Raises GraphError naming the values by which partitions depend on each other in a circle."""
    expect(split_callback, Callable, "split_callback")
    gm = as_module(program)
    assignment: dict[Node, Hashable] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_module"):
            source = element_source(node)
            key = split_callback(node) if source is None else assignment.get(source)
            if key is not None:
                assignment[node] = key
    regions = cut(gm.graph, assignment)
    for region in regions.values():
        bind_named_dims(gm.graph, region)
    outside = (n for n in gm.graph.nodes if n not in assignment)
    read = (n for node in outside for n in (node, *node.all_input_nodes))
    taken = {n.target.partition(".")[0] for n in read if n.op in ("get_attr", "call_module")}
    children = {}
    for key, region in regions.items():
        name = _free_name(f"submod_{key}", taken)
        children[key] = name, build(gm, region, name)
    return CallingModule(gm, assignment, regions, children).make()


def _free_name(wish: str, taken: set[str]) -> str:
    name, count = wish, 0
    while name in taken:
        count += 1
        name = f"{wish}_{count}"
    taken.add(name)
    return name


class CallingModule:
    """Writes the graph that calls a submodule for each region; ``children`` says by the region's
    key at which path, and what it is."""

    def __init__(
        self, gm: GraphModule, assignment: dict[Node, Hashable], regions: dict[Any, Region],
        children: Mapping[Any, tuple[str, GraphModule]],
    ) -> None:  # fmt: skip
        self.gm, self.assignment, self.regions = gm, assignment, regions
        self.children = children
        self.graph = Graph()
        self.values: dict[Node, Node] = {}
        self.holder: dict[str, Any] = {}

    def make(self) -> GraphModule:
        """The outer GraphModule."""
        old = self.gm.graph
        self.graph.take_conditions(old)
        output = old.output_node()
        outside = [n for n in old.nodes if n not in self.assignment]
        read = {u for n in outside for u in n.all_input_nodes if u.op == "get_attr"}
        for node in outside:
            if node.op == "placeholder" or node in read:
                self.values[node] = self.graph.node_copy(node)
        self.holder = {n.target: self.gm.get_attribute(n.target) for n in outside if n in read}
        for node in outside:
            if node.op == "call_module":
                self.holder[node.target] = self.gm.get_submodule(node.target)
        for item in order(self.gm, self.assignment):
            if isinstance(item, Node):
                self.values[item] = self.graph.node_copy(item, self.values.__getitem__)
            else:
                self._call(self.assignment[item[0]])
        with self.graph.with_origin(output):
            self.graph.output(map_nodes(output.args[0], self.values.__getitem__))
        self.graph.interface = old.interface
        made = GraphModule(self.holder, self.graph, self.gm.name)
        made.training = self.gm.training
        return made

    def _call(self, key: Any) -> None:
        """A call of the submodule for one region, and the values it gives."""
        region, (name, child) = self.regions[key], self.children[key]
        self.holder[name] = child
        arguments = tuple(self.values[n] for n in region.inputs)
        outputs = list(region.outputs)
        types = tuple(n.type for n in outputs)
        single = len(outputs) == 1
        result_type = types[0] if single else (None if None in types else types)
        with self.graph.with_origin(region.nodes[0]):
            call = self.graph.call_module(name, arguments, {}, result_type)
        for index, node in enumerate(outputs):
            self.values[node] = call
            if not single:
                with self.graph.with_origin(node):
                    self.values[node] = self.graph.call_function(
                        "getitem", (call,), {"index": index}, name=node.name
                    )


# -- dependencies between partitions ---------------------------------------------------------------
def dependencies(gm: GraphModule) -> Iterator[tuple[Node, Node]]:
    """(earlier, later) for all calls of which one must run before the other: it reads the other's
    value, or both have effects (random numbers, leaf modules) and stand in this order."""
    effect: Node | None = None
    pure: dict[str, bool] = {}
    for node in gm.graph.nodes:
        if not node.op.startswith("call_"):
            continue
        for used in node.all_input_nodes:
            if used.op.startswith("call_"):
                yield used, node
        if _has_effects(gm, node, pure):
            if effect is not None:
                yield effect, node
            effect = node


def _has_effects(gm: GraphModule, node: Node, pure: dict[str, bool]) -> bool:
    """True for random ops and leaf modules, but for GraphModules that have neither inside."""
    if node.op != "call_module":
        return node.is_impure()
    if node.target not in pure:
        pure[node.target] = is_pure_module(gm.get_submodule(node.target))
    return not pure[node.target]


def is_pure_module(module: Any) -> bool:
    """True for GraphModules that call neither random ops nor leaf modules but their like."""
    work = [module]
    while work:
        module = work.pop()
        if not isinstance(module, GraphModule):
            return False
        for inner in module.graph.nodes:
            if inner.op == "call_module":
                work.append(module.get_submodule(inner.target))
            elif inner.op == "call_function" and inner.is_impure():
                return False
    return True


def order(gm: GraphModule, assignment: dict[Node, Hashable]) -> list[Node | list[Node]]:
    """Unassigned calls and partitions (lists of nodes) so that each comes after what it needs; as
    near to graph order as possible. Raises GraphError naming a circle."""
    items, done, needs = _sorted_items(gm, assignment)
    if len(done) < len(items):
        raise GraphError(_circle(needs, set(range(len(items))) - set(done), assignment))
    return [items[i] for i in done]


def entangled(gm: GraphModule, assignment: dict[Node, Any]) -> set[Any]:
    """The partitions that depend on themselves through others, and those between such ones."""
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
    """Calls and partitions, the order in which they can run as far as there is one, and which
    others each of them needs."""
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


def _circle(
    needs: list[dict[int, tuple[Node, Node]]], left: set[int], assignment: dict[Node, Hashable]
) -> str:
    """Names the values of one circle: every item that is left needs another one that is left."""
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
