"""The graph: a list of nodes in execution order, with use-lists, types, scopes and locations.

The vocabulary is torch.fx's. Tensor code is ``call_function`` with an :class:`~fxlite.op.Op` as
target; ``get_attr`` reads a weight; ``call_module`` appears only for modules declared leaves.
Every edit keeps ``users`` and ``type`` true. All walks are loops, never recursion on graph depth.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxlite import shapes
from fxlite.errors import GraphError
from fxlite.location import Location, Scope, here
from fxlite.op import Op, lookup
from fxlite.types import TensorType

if TYPE_CHECKING:
    from fxlite.nn.module import Module

OPCODES = ("placeholder", "get_attr", "call_function", "call_module", "output")


def map_nodes(value: Any, function: Callable[[Node], Any]) -> Any:
    """``value`` with every Node in its tuples, lists and dicts replaced by ``function(node)``."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, tuple):
        mapped = tuple(map_nodes(v, function) for v in value)
        return type(value)(*mapped) if hasattr(value, "_fields") else mapped
    if isinstance(value, list):
        return [map_nodes(v, function) for v in value]
    if isinstance(value, dict):
        return {k: map_nodes(v, function) for k, v in value.items()}
    return value


def nodes_in(value: Any) -> Iterator[Node]:
    """Every Node in nested tuples, lists and dicts, in order, repeats included."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from nodes_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from nodes_in(v)


class Node:
    """One value of a graph.

    ``op``, ``target``, ``args``, ``kwargs`` say how it is computed; ``type`` is its TensorType (a
    tuple of them for several outputs, None in a trace without types); ``users`` are the nodes that
    read it; ``scope`` and ``loc`` say where in the module tree and in the program it was made."""

    __slots__ = ("_args", "_erased", "_kwargs", "_next", "_prev", "graph", "loc", "meta", "name",
                 "op", "scope",
                 "target", "type", "users")  # fmt: skip

    def __init__(self, graph: Graph, name: str, op: str, target: Any) -> None:
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self.type: Any = None
        self.scope: Scope | None = None
        self.loc: Location | None = None
        self.meta: dict[str, Any] = {}
        self._prev = self
        self._next = self
        self._erased = False

    # -- arguments ---------------------------------------------------------------------------
    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, value: Iterable[Any]) -> None:
        self._set_arguments(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: Mapping[str, Any]) -> None:
        self._set_arguments(self._args, dict(value))

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for node in (*nodes_in(args), *nodes_in(kwargs)):
            if node.graph is not self.graph:
                raise GraphError(f"{self.name}: argument {node.name} belongs to another graph")
        for node in self.all_input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        for node in self.all_input_nodes:
            node.users[self] = None
        self.graph._update_types(self)

    @property
    def all_input_nodes(self) -> list[Node]:
        """Nodes among the arguments, each once, in order."""
        return list(dict.fromkeys((*nodes_in(self._args), *nodes_in(self._kwargs))))

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of a call_function bound to the op's signature, by parameter name."""
        assert isinstance(self.target, Op), self
        return self.target.bind(self._args, self._kwargs)

    def replace_input_with(self, old: Node, new: Node) -> None:
        """Read ``new`` wherever this node reads ``old``."""

        def swap(n: Node) -> Node:
            return new if n is old else n

        self._set_arguments(map_nodes(self._args, swap), map_nodes(self._kwargs, swap))

    def replace_all_uses_with(
        self, new: Node, delete_user_cb: Callable[[Node], bool] | None = None
    ) -> list[Node]:
        """Make every user read ``new`` instead. Returns the users changed."""
        changed = [
            u for u in self.users if u is not new and (not delete_user_cb or delete_user_cb(u))
        ]
        for user in changed:
            user.replace_input_with(self, new)
        return changed

    def is_impure(self) -> bool:
        """True for what dead-code elimination must keep: inputs, output, leaf modules,
        randomness."""
        return self.op in ("placeholder", "output", "call_module") or (
            isinstance(self.target, Op) and self.target.is_random
        )

    # -- order -------------------------------------------------------------------------------
    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def append(self, node: Node) -> None:
        """Move ``node`` to just after this one."""
        self._next.prepend(node)

    def prepend(self, node: Node) -> None:
        """Move ``node`` to just before this one."""
        if node is self:
            return
        node._unlink()
        before = self._prev
        before._next, node._prev = node, before
        node._next, self._prev = self, node

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self._prev = self._next = self

    # -- text --------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """One readable line."""
        from fxlite.pretty import node_line

        return node_line(self)

    @property
    def origin(self) -> str:
        """``conv1 (Conv2d), model.py:31``: for messages and comments."""
        parts = [str(self.scope)] if self.scope is not None and self.scope.path else []
        if self.loc is not None:
            parts.append(self.loc.short)
        return ", ".join(parts)

    def describe(self) -> str:
        """Name, op, type and place, for error messages."""
        target = self.target.name if isinstance(self.target, Op) else self.target
        type_text = f": {self.type}" if self.type is not None else ""
        return f"node {self.name}{type_text} = {target}" + (
            f" ({self.origin})" if self.origin else ""
        )


class _Namer:
    """Unique identifiers, ``relu``, ``relu_1``, ...; O(1) each."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.counts: dict[str, int] = {}

    def unique(self, wish: str) -> str:
        wish = re.sub(r"\W", "_", wish) or "value"
        if wish[0].isdigit() or keyword.iskeyword(wish) or wish in ("self", "ops"):
            wish = f"_{wish}"
        name = wish
        if name in self.taken:
            stem = re.sub(r"_\d+$", "", wish)
            count = self.counts.get(stem, 0)
            while True:
                count += 1
                name = f"{stem}_{count}"
                if name not in self.taken:
                    break
            self.counts[stem] = count
        self.taken.add(name)
        return name


class Graph:
    """Nodes in execution order. Make one by tracing, or node by node."""

    def __init__(self, owning_module: Module | None = None) -> None:
        self.owning_module = owning_module
        self._root = Node(self, "", "root", None)
        self._insert_before = self._root
        self._namer = _Namer()
        self._length = 0
        #: Scope and location given to new nodes; set by the tracer and by passes that rewrite a
        #: node.
        self.current_origin: tuple[Scope | None, Location | None] | None = None

    # -- iteration ---------------------------------------------------------------------------
    @property
    def nodes(self) -> NodeList:
        """The nodes in order; nodes may be inserted and erased while iterating."""
        return NodeList(self)

    def __len__(self) -> int:
        return self._length

    def output_node(self) -> Node:
        """The output node. Raises GraphError where there is none."""
        last = self._root._prev
        if last.op != "output":
            found = [n for n in self.nodes if n.op == "output"]
            if not found:
                raise GraphError("the graph has no output node; call graph.output(value)")
            return found[-1]
        return last

    @property
    def placeholders(self) -> list[Node]:
        return [n for n in self.nodes if n.op == "placeholder"]

    def find_nodes(
        self, *, op: str | None = None, target: Any = None, sort: bool = True
    ) -> list[Node]:
        """Nodes with that op and target (an Op, its name, or a path), in order."""
        if isinstance(target, str) and op == "call_function":
            target = lookup(target)
        return [
            n
            for n in self.nodes
            if (op is None or n.op == op) and (target is None or n.target == target)
        ]

    # -- building ----------------------------------------------------------------------------
    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        type: Any = None,
    ) -> Node:
        """Insert a node at the insertion point (the end, unless inside ``inserting_before``).

        A call_function is bound to its op's signature, brought to canonical form and typed.
        Raises ArgumentError, ShapeError or DTypeError where the call does not fit the op."""
        if op not in OPCODES:
            raise GraphError(f"op must be one of {', '.join(OPCODES)}, not {op!r}")
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        if op == "call_function":
            if isinstance(target, str):
                target = lookup(target)
            if not isinstance(target, Op):
                raise GraphError(
                    f"the target of a call_function is an op (fx.ops.…), not {target!r}"
                )
            bound = target.bind(args, kwargs)
            target, bound = target.canonicalize(bound)
            args, kwargs = target.split_arguments(bound)
        for used in (*nodes_in(args), *nodes_in(kwargs)):
            if used.graph is not self:
                raise GraphError(f"argument {used.name} belongs to another graph")
        wish = name or (target.name if isinstance(target, Op) else str(target).replace(".", "_"))
        if op == "placeholder" and isinstance(type, TensorType):
            self._namer.taken |= shapes.names(type.shape)  # a dim and a value never share a name
        node = Node(self, self._namer.unique(wish), op, target)
        node.type = type
        node._args, node._kwargs = tuple(args), dict(kwargs)
        if self.current_origin is not None:
            node.scope, node.loc = self.current_origin
        else:
            node.loc = here(2)
        if type is None:
            try:
                node.type = self._infer(node)
            except Exception:
                self._namer.taken.discard(node.name)
                raise
        for used in node.all_input_nodes:
            used.users[node] = None
        self._insert_before.prepend(node)
        self._length += 1
        return node

    def placeholder(self, name: str, type: TensorType | None = None, default: Any = ...) -> Node:
        """An input of the graph."""
        args = () if default is ... else (default,)
        return self.create_node("placeholder", name, args, {}, name, type)

    def get_attr(self, qualified_name: str, type: TensorType | None = None) -> Node:
        """A parameter, buffer or constant of the owning module."""
        return self.create_node("get_attr", qualified_name, (), {}, None, type)

    def call_function(
        self, target: Op | str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of an op: ``graph.call_function(fx.ops.sum, (x,), {"axis": 1})``."""
        return self.create_node("call_function", target, args, kwargs, name)

    def call_module(
        self, target: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None,
        type: Any = None,
    ) -> Node:  # fmt: skip
        """A call of a leaf module by its path."""
        return self.create_node("call_module", target, args, kwargs, None, type)

    def output(self, result: Any) -> Node:
        """The result: a node, or nested tuples, lists and dicts of nodes."""
        return self.create_node("output", "output", (result,))

    def inserting_before(self, node: Node | None = None) -> _InsertionPoint:
        """``with graph.inserting_before(n):`` new nodes go just before n (None: the start)."""
        return _InsertionPoint(self, self._root._next if node is None else node)

    def inserting_after(self, node: Node | None = None) -> _InsertionPoint:
        """``with graph.inserting_after(n):`` new nodes go just after n (None: the end)."""
        return _InsertionPoint(self, self._root if node is None else node._next)

    def with_origin(self, node: Node) -> _Origin:
        """``with graph.with_origin(n):`` new nodes get n's scope and location."""
        return _Origin(self, (node.scope, node.loc))

    # -- editing -----------------------------------------------------------------------------
    def erase_node(self, node: Node) -> None:
        """Remove a node nobody reads. Raises GraphError naming the users otherwise."""
        if node.graph is not self:
            raise GraphError(f"{node.name} belongs to another graph")
        if node.users:
            users = ", ".join(u.name for u in list(node.users)[:5])
            raise GraphError(f"cannot erase {node.name}: it is read by {users}")
        for used in node.all_input_nodes:
            used.users.pop(node, None)
        if self._insert_before is node:
            self._insert_before = node._next
        before, after = node._prev, node._next
        before._next, after._prev = after, before
        node._erased = True  # it keeps its own links, so that a running iteration goes on past it
        node._args, node._kwargs = (), {}
        self._length -= 1
        self._namer.taken.discard(node.name)

    def rename_node(self, node: Node, wish: str) -> str:
        """Give a node another name (made unique); returns it."""
        self._namer.taken.discard(node.name)
        node.name = self._namer.unique(wish)
        return node.name

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Node] = lambda n: n) -> Node:
        """Copy of a node (maybe of another graph) with its arguments mapped; scope, loc, type and
        meta are kept."""
        args = map_nodes(node._args, arg_transform)
        kwargs = map_nodes(node._kwargs, arg_transform)
        with _Origin(self, (node.scope, node.loc)):
            copy = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copy.meta = dict(node.meta)
        return copy

    def graph_copy(self, graph: Graph, value_map: dict[Node, Node] | None = None) -> Any:
        """Append copies of all nodes of ``graph`` but its output; returns the mapped output
        value."""
        value_map = {} if value_map is None else value_map
        for node in graph.nodes:
            if node in value_map:
                continue
            if node.op == "output":
                return map_nodes(node.args[0], lambda n: value_map[n])
            value_map[node] = self.node_copy(node, lambda n: value_map[n])
        return None

    def eliminate_dead_code(self, is_impure: Callable[[Node], bool] | None = None) -> bool:
        """Erase nodes nobody reads, from the end; inputs and nodes with effects stay.
        Returns True if anything was erased."""
        changed = False
        for node in reversed(self.nodes):
            impure = node.is_impure() if is_impure is None else is_impure(node)
            if not node.users and not impure:
                self.erase_node(node)
                changed = True
        return changed

    # -- types -------------------------------------------------------------------------------
    def _infer(self, node: Node) -> Any:
        if node.op == "call_function":
            bound = node.target.bind(node._args, node._kwargs)
            types = node.target.map_tensors(_value_type, bound)
            if any(t is None for t in node.target.tensors(types)) and _has_untyped(node):
                return None
            return node.target.result_type(types)
        if node.op == "output":
            return map_nodes(node._args[0], lambda n: n.type)
        if node.op == "get_attr" and self.owning_module is not None:
            from fxlite.types import type_of

            return type_of(self.owning_module.get_attribute(node.target))
        return None

    def _update_types(self, node: Node) -> None:
        """Retype a node and, where its type changed, what depends on it."""
        work = [node]
        while work:
            current = work.pop()
            if current.op not in ("call_function", "output"):
                continue
            new = self._infer(current)
            if new != current.type:
                current.type = new
                work.extend(current.users)

    # -- checking and copying ------------------------------------------------------------------
    def lint(self) -> None:
        """Check every invariant; raises GraphError that lists all violations."""
        from fxlite.lint import lint

        lint(self)

    def copy(self, owning_module: Module | None = None) -> Graph:
        """An independent copy: names, order, types, scope, loc and meta."""
        new = Graph(owning_module if owning_module is not None else self.owning_module)
        value_map: dict[Node, Node] = {}
        for node in self.nodes:
            value_map[node] = new.node_copy(node, lambda n: value_map[n])
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        copied = self.copy()
        memo[id(self)] = copied
        return copied

    def __eq__(self, other: object) -> bool:
        """Structural: the same calls in the same order under any names."""
        if not isinstance(other, Graph):
            return NotImplemented
        from fxlite.compare import first_difference

        return first_difference(self, other) is None

    __hash__ = None  # type: ignore[assignment]

    # -- text --------------------------------------------------------------------------------
    def __str__(self) -> str:
        from fxlite.pretty import graph_text

        return graph_text(self)

    __repr__ = __str__

    def print_tabular(self) -> None:
        """Print a table: opcode, name, target, arguments, type, place."""
        from fxlite.pretty import print_table

        print_table(self)

    def draw(self, path: str | Path, weights: bool = False) -> None:
        """Write a picture with shapes and modules: ``.svg`` (nothing to install), ``.dot``,
        ``.png``, ``.pdf``. Raises DrawError for other endings, and where Graphviz is needed and
        missing."""
        from fxlite.draw import draw

        draw(self, path, weights)

    def to_dot(self, weights: bool = False) -> str:
        """The graph in Graphviz's DOT language, modules as clusters."""
        from fxlite.draw import to_dot

        return to_dot(self, weights)


def _value_type(value: Any) -> Any:
    return value.type if isinstance(value, Node) else value


def _has_untyped(node: Node) -> bool:
    return any(n.type is None for n in node.all_input_nodes)


class NodeList:
    """View of a graph's nodes: iteration both ways, length, ``in``. Robust against edits."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __iter__(self) -> Iterator[Node]:
        node = self.graph._root._next
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        node = self.graph._root._prev
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = node._prev

    def __len__(self) -> int:
        return self.graph._length

    def __repr__(self) -> str:
        return f"[{', '.join(n.name for n in self)}]"


class _InsertionPoint:
    def __init__(self, graph: Graph, before: Node) -> None:
        self.graph, self.before = graph, before

    def __enter__(self) -> None:
        self.saved = self.graph._insert_before
        self.graph._insert_before = self.before

    def __exit__(self, *exc: Any) -> None:
        self.graph._insert_before = self.saved


class _Origin:
    def __init__(self, graph: Graph, origin: tuple[Scope | None, Location | None]) -> None:
        self.graph, self.origin = graph, origin

    def __enter__(self) -> None:
        self.saved = self.graph.current_origin
        self.graph.current_origin = self.origin

    def __exit__(self, *exc: Any) -> None:
        self.graph.current_origin = self.saved
