"""The graph: a list of nodes in execution order, with use-lists, types, scopes and locations.

The vocabulary is torch.fx's. Tensor code is ``call_function`` with an :class:`~fxlite.ops.op.Op` as
target; ``get_attr`` reads a weight; ``call_module`` appears only for modules declared leaves.
Every edit keeps ``users`` and ``type`` correct, is made completely or not at all, and is recorded in a
journal: ``with graph.transaction("name"):`` rolls back if its body raises, and ``undo`` and ``redo``
work on whole transactions. All traversals are loops; none recurses over the depth of the graph.
"""

from __future__ import annotations

import functools
import heapq
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.checked import checked, checked_methods
from fxlite.base.errors import ArgumentError, GraphError, ShapeError, expect
from fxlite.base.facade import above
from fxlite.base.location import Location, Scope, here
from fxlite.base.outside_text import is_name
from fxlite.base.state import paused_gc
from fxlite.graph.lint import lint
from fxlite.graph.node import (
    OPCODES,
    Node,
    immutable_dict,
    map_nodes,
    new_node,
    nodes_in,
    set_next,
    set_prev,
    stored_args,
    stored_kwargs,
)
from fxlite.graph.node_store import NodeList, NodeStore, add_user, is_container
from fxlite.graph.retype import explained, retype
from fxlite.nn.module import Module
from fxlite.ops.op import Op, as_op
from fxlite.types import shapes
from fxlite.types.guards import DimConditions, Guard
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.graph.further_results import Tap
    from fxlite.graph.pytree import Interface
    from fxlite.graph.size_origin import SizeOrigin
    from fxlite.show.query.search import QueryMatch
    from fxlite.types.symbols import FactSymbol

__all__ = ["OPCODES", "Graph", "Node", "NodeList", "map_nodes", "nodes_in"]


_TYPE = operator.attrgetter("type")


class PythonCode:
    """The Python function that runs a graph. ``src`` is its text, made from the graph when it is first
    read, and ``globals`` holds the names that the text uses."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @functools.cached_property
    def src(self) -> str:
        return above("code_text")(self._graph)  # type: ignore[no-any-return]

    @functools.cached_property
    def globals(self) -> dict[str, Any]:
        return above("words_in_code")()  # type: ignore[no-any-return]


def _declared_type(type_expr: Any) -> Any:
    """The type that a caller declares for a value; None for a class, which has no shape."""
    if isinstance(type_expr, (TensorType, tuple)):
        return type_expr
    return type_of(type_expr) if isinstance(type_expr, str) else None


def _holds_array(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_holds_array, value))
    return isinstance(value, np.ndarray)


def _check_target(op: str, target: Any) -> None:
    """Raise GraphError for a target that the text of a graph cannot represent."""
    if op == "placeholder":
        if not is_name(target):
            advice = re.sub(r"\W", "_", target, flags=re.ASCII) if isinstance(target, str) else ""
            example = f", for example {advice!r}" if is_name(advice) else ""
            raise GraphError(
                f"the name of an input must be a Python identifier that is not a keyword{example}, not {target!r}"
            )
    elif not isinstance(target, str):
        raise GraphError(f"the target of {op} is a str, not {target!r}")


@checked_methods
class Graph:
    """A program as nodes in execution order. Make one by tracing, or node by node:

    ``graph = Graph(); x = graph.placeholder("x", parse_type("f32[B,3]"))``, then :meth:`call_function`
    and :meth:`output`. Printing a graph shows one line for each node, with its type."""

    def __init__(
        self,
        owning_module: Module | None = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        """``tracer_cls`` and ``tracer_extras`` (its further arguments) record which tracer made the
        graph, so that the program can be traced again in the same way."""
        self.owning_module = owning_module
        self.tracer_cls, self.tracer_extras = tracer_cls, tracer_extras
        self._store = NodeStore(self)
        #: The nodes in order; nodes may be inserted and erased while iterating.
        self.nodes = NodeList(self._store)
        #: The inverses of all edits; see :mod:`fxlite.graph.node_store`.
        self.journal = self._store.journal
        self._dims = DimConditions(self._store.record)
        #: The state of the journal when the graph last passed :meth:`lint`.
        self._linted: tuple[int, int] | None = None
        #: The scope and location of new nodes; the tracer and passes that rewrite a node set it.
        self.current_origin: tuple[Scope | None, Location | None] | None = None
        self._interface: Interface | None = None
        #: Whether the graph becomes a sub-graph of a node in another graph.
        self.is_body = False
        #: The taps that receive values of each call: the last entries of the output are for them.
        self._taps: tuple[Tap, ...] = ()

    # -- iteration ---------------------------------------------------------------------------
    def __len__(self) -> int:
        return self._store.length

    def output_node(self) -> Node:
        """The output node. Raises GraphError if there is none."""
        for node in reversed(self.nodes):
            if node.op == "output":
                return node
        raise GraphError("the graph has no output node; call graph.output(value)")

    @property
    def placeholders(self) -> list[Node]:
        """The inputs, in order."""
        found: list[Node] = []
        for node in self.nodes:
            if len(found) == self._store.n_placeholders:
                break
            if node.op == "placeholder":
                found.append(node)
        return found

    @property
    def input_dims(self) -> frozenset[str]:
        """Named dims in the types of the inputs."""
        types = (node.type for node in self.placeholders)
        return shapes.names([type.shape for type in types if isinstance(type, TensorType)])

    def find_nodes(self, *, op: str | None = None, target: Any = None, sort: bool = True) -> list[Node]:
        """Nodes with that op and target (an Op, its name, or a path), in order. For "call_function",
        raises GraphError or ArgumentError if the target is not an op."""
        if op == "call_function" and target is not None:
            target = as_op(target)
        return [n for n in self.nodes if (op is None or n.op == op) and (target is None or n.target == target)]

    def find(self, query: str, sizes: Mapping[str, int] | None = None) -> list[QueryMatch]:
        """Find nodes by a query: ``graph.find("conv2d > batch_norm > relu")``. The query language is
        described in :mod:`fxlite.show.query`. ``sizes`` gives values to named dims. Raises QueryError
        for a query that cannot be read."""
        expect(query, str, "a query", 'write e.g. graph.find("conv2d > relu")')
        return above("find")(self, query, sizes)  # type: ignore[no-any-return]

    # -- building ----------------------------------------------------------------------------
    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Insert a node at the insertion point (the end, unless inside ``inserting_before``).

        The arguments of a call_function are bound to its op's signature and brought to canonical form,
        and the type is inferred; ``type_expr`` is the type of a node for which nothing can be inferred.
        Raises ArgumentError, ShapeError or DTypeError if the call does not fit the op."""
        if args is not None and args.__class__ is not tuple:
            expect(args, (tuple, list), "args", "a single argument is (x,)")
        if kwargs is not None and kwargs.__class__ is not dict:
            expect(kwargs, Mapping, "kwargs", "give arguments by name")
        args = tuple(args or ())
        if op == "call_function":
            target = as_op(target)
            target, bound = target.canonicalize(target.bind(args, kwargs or {}))
            args, kwargs = target.split_arguments(bound)
        elif op not in OPCODES:
            raise GraphError(f"op must be one of {', '.join(OPCODES)}, not {op!r}")
        elif kwargs and not all(map(is_name, kwargs)):
            wrong = next(name for name in kwargs if not is_name(name))
            raise GraphError(
                f"{target} is called with an argument named {wrong!r}, which no text "
                "of the graph can hold; pass it by another name, or in a dict"
            )
        self._check_owner(args, kwargs)
        kwargs = stored_kwargs(kwargs or {})
        type = None if type_expr is None else _declared_type(type_expr)
        if op == "call_module" and type is None:
            type = self._type_of_leaf(target, args, kwargs)
        if type is not None and op in ("call_function", "output"):  # these infer their types
            inferred = self._infer(op, target, args, kwargs)
            type = type if inferred is None else inferred
        return self._append(op, target, args, kwargs, name, type)

    def call_op(self, target: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str | None = None) -> Node:
        """Like :meth:`call_function`, for arguments that are already bound and canonical, as
        :meth:`Op.split_arguments` returns them. The tracer and copies use it."""
        return self._append("call_function", target, args, stored_kwargs(kwargs), name, None)

    def _append(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: immutable_dict,
        name: str | None = None,
        type: Any = None,
        origin: tuple[Scope | None, Location | None] | None = None,
    ) -> Node:
        """Make, type and insert a node whose arguments are in stored form."""
        if op != "call_function":
            args = stored_args(args)
            _check_target(op, target)
        elif kwargs and self._dims.declared:
            kwargs = stored_kwargs(self._dims.with_own_dims(kwargs))
        is_named = op == "placeholder" and isinstance(type, TensorType) and not type.is_concrete
        if is_named:
            type = self._dims.declare(target, type, self.placeholders)
        if type is None:
            type = self._infer(op, target, args, kwargs)
        if origin is None:
            origin = self.current_origin
            if origin is None:
                origin = (None, here(2))
        if name is None:
            name = target.name if op == "call_function" else str(target).replace(".", "_")
        store = self._store
        if is_named:
            store.namer.taken |= shapes.names(type.shape)  # a dim and a value never share a name
        unique = store.namer.unique(name)
        node = new_node(self, unique, op, target, args, kwargs, type, *origin)
        store.attach(node, store.insert_before)
        return node

    def placeholder(self, name: str, type_expr: TensorType | None = None, default_value: Any = ...) -> Node:
        """Add an input, which a call may give by this name. A name that no Python parameter can have
        (``input:0``) is replaced by the nearest one that is possible (``input_0``), and the entry
        ``original_name`` of the node's ``meta`` keeps the original."""
        expect(name, str, "the name of a placeholder")
        args = () if default_value is ... else (default_value,)
        valid = name if is_name(name) else re.sub(r"\W", "_", name, flags=re.ASCII)
        valid = valid if is_name(valid) else f"input_{valid}"
        node = self.create_node("placeholder", valid, args, {}, valid, type_expr)
        if valid != name:
            node.meta = {"original_name": name}
        return node

    def get_attr(self, qualified_name: str, type_expr: TensorType | None = None) -> Node:
        """Add a node that reads a parameter, buffer or constant of the owning module, by dotted path."""
        expect(qualified_name, str, "the path of an attribute")
        return self.create_node("get_attr", qualified_name, (), {}, None, type_expr)

    def call_function(
        self,
        the_function: Op | str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Add a call of an op: ``graph.call_function(fx.ops.sum, (x,), {"axis": 1})``. Arrays among the
        arguments become buffers of the graph's module. For an op with several results, :meth:`parts`
        returns them one by one."""
        if isinstance(args, (tuple, list)) and any(map(_holds_array, args)):
            args = tuple(map(self._with_buffers, args))
        if isinstance(kwargs, Mapping) and any(map(_holds_array, kwargs.values())):
            kwargs = {k: self._with_buffers(v) for k, v in kwargs.items()}
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def parts(self, node: Node) -> list[Node]:
        """Nodes for the single results of a call that has several, such as ``split``. Raises GraphError
        for a node with one result."""
        if not isinstance(node.type, tuple):
            raise GraphError(f"{node.name} has one result, {node.type}")
        with self.with_origin(node):
            return [self.call_function("getitem", (node,), {"index": i}) for i in range(len(node.type))]

    def _with_buffers(self, value: Any) -> Any:
        """An argument with its arrays replaced by nodes; the graph's module keeps the arrays."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._with_buffers, value))
        if not isinstance(value, np.ndarray):
            return value
        if self.owning_module is None:
            self.owning_module = Module()
        owner, number = self.owning_module, 0
        while hasattr(owner, f"constant_{number}"):
            number += 1
        owner.register_buffer(f"constant_{number}", value)
        return self.get_attr(f"constant_{number}")

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add the calls of ops that a method of an array stands for:
        ``graph.call_method("reshape", (x, -1))``. Raises TraceError for a method that arrays do not
        have, and GraphError if ``args`` is empty."""
        if not args:
            raise GraphError(f"{method_name} has no array that it is called on: that is the first of args")
        made = above("call_method")(self, method_name, args, kwargs or {})
        if type_expr is not None and made.type is None:
            made.type = type_expr
        return made  # type: ignore[no-any-return]

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a leaf module, given by its path."""
        expect(module_name, str, "the path of a leaf module")
        return self.create_node("call_module", module_name, args, kwargs, None, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Add the output node. ``result`` is a node, or nested tuples, lists and dicts of nodes."""
        return self.create_node("output", "output", (result,), {}, None, type_expr)

    def inserting_before(self, n: Node | None = None) -> _Meanwhile:
        """``with graph.inserting_before(n):`` inserts new nodes just before ``n`` (None: at the start)."""
        before = self._store.root._next if n is None else n
        if before.graph is not self or before._erased:
            raise GraphError(f"{before.name} is not in this graph: nothing can be inserted there")
        return _Meanwhile(self._store, "insert_before", before)

    def inserting_after(self, n: Node | None = None) -> _Meanwhile:
        """``with graph.inserting_after(n):`` inserts new nodes just after ``n`` (None: at the end)."""
        return self.inserting_before(self._store.root if n is None else n._next)

    def with_origin(
        self, node: Node | None = None, scope: Scope | None = None, loc: Location | None = None
    ) -> _Meanwhile:
        """``with graph.with_origin(n):`` gives new nodes the scope and location of ``n``, or the given
        ones. They should name the model that the graph represents, not the code that builds the graph."""
        if scope is not None:
            expect(scope, Scope, "the scope")
        if loc is not None:
            expect(loc, Location, "the location")
        if node is not None:
            scope, loc = scope or node.scope, loc or node.loc
        return _Meanwhile(self, "current_origin", (scope, loc))

    # -- editing -----------------------------------------------------------------------------
    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that no other node reads. Otherwise raises GraphError, which names the readers."""
        node = to_erase
        if node.graph is not self or node._erased:
            where = "was erased already" if node.graph is self else "belongs to another graph"
            raise GraphError(f"cannot erase {node.name}: it {where}")
        if node._users is not None:
            users = ", ".join(u.name for u in list(node.users)[:5])
            raise GraphError(f"cannot erase {node.name}: it is read by {users}")
        self._store.detach(node)

    def rename_node(self, node: Node, wish: str) -> str:
        """Rename a node; returns its new name, which is ``wish``, with a number if that is taken."""
        expect(node, Node, "what is renamed")
        expect(wish, str, "the name of a node")
        self._store.namer.taken.discard(node.name)
        name = self._store.namer.unique(wish)
        self._store.set_field(node, "name", name)
        return name

    def topological_sort(self) -> None:
        """Move each node that is before one of its arguments after it; the others keep their order.
        Raises GraphError for nodes that read each other in a circle."""
        waiting = {node: len(node.all_input_nodes) for node in self.nodes}
        position = {node: i for i, node in enumerate(waiting)}
        ready = [position[node] for node, count in waiting.items() if not count]
        order, nodes = [], list(waiting)
        while ready:
            node = nodes[heapq.heappop(ready)]
            order.append(node)
            for user in node.users:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, position[user])
        if len(order) < len(nodes):
            left = ", ".join(n.name for n in [n for n in nodes if waiting[n]][:5])
            raise GraphError(f"the graph cannot be sorted: {left} read each other in a circle")
        if order != nodes:
            for node in order:
                self._store.move(node, self._store.root)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Node] = lambda n: n) -> Node:
        """Insert a copy of a node, which may belong to another graph, with ``arg_transform`` applied to
        the nodes in its arguments. Scope, loc, type and meta are kept."""
        args = map_nodes(node._args, arg_transform)
        kwargs = node._kwargs
        if node.op != "call_function":
            kwargs = stored_kwargs(map_nodes(kwargs, arg_transform))
        self._check_owner(args, kwargs)
        copy = self._append(node.op, node.target, args, kwargs, node.name, node.type, (node.scope, node.loc))
        if node._meta:
            copy.meta = node._meta
        return copy

    def graph_copy(self, g: Graph, val_map: dict[Node, Node] | None = None, return_output_node: bool = False) -> Any:
        """Insert copies of all nodes of ``g`` except its output and the nodes that ``val_map`` already
        maps. Returns the output value of ``g`` with its nodes mapped or, with ``return_output_node``,
        that and the output node of ``g``."""
        val_map = {} if val_map is None else val_map
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_nodes(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase nodes that no node reads, from the end to the start. Inputs and nodes with side effects
        stay; ``is_impure_node`` replaces the test for side effects. Returns True if anything was
        erased."""
        is_impure = is_impure_node
        store = self._store
        before = store.length
        for node in reversed(self.nodes):
            if node._users is None and not (is_impure(node) if is_impure else node.is_impure()):
                store.detach(node)
        return store.length < before

    # -- edits as users make them --------------------------------------------------------------
    def _check_owner(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        for value in (*args, *kwargs.values()) if kwargs else args:
            is_node = value.__class__ is Node
            for used in (value,) if is_node else nodes_in(value) if is_container(value) else ():
                if used.graph is not self or used._erased or used.op == "output":
                    where = "belongs to another graph"
                    if used.graph is self:
                        where = "was erased" if used._erased else "is the output"
                    raise GraphError(f"argument {used.name} {where}")

    def _set_arguments(self, node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Assign arguments in stored form, and update the types that depend on them."""
        if node.op != "call_function":
            args, kwargs = stored_args(args), stored_kwargs(kwargs)
        elif kwargs and self._dims.declared:
            kwargs = self._dims.with_own_dims(kwargs)
        self._check_owner(args, kwargs)
        with self._store.all_or_nothing():
            self._store.assign(node, args, stored_kwargs(kwargs))
            retype(self, node, (node,))

    def _replace_uses(self, old: Node, new: Node, users: list[Node]) -> None:
        """Make ``users`` read ``new`` in place of ``old``. Types are updated after the last user has
        changed, because two users may be operands of one call."""

        def swap(node: Node) -> Node:
            return new if node is old else node

        self._check_owner((new,), None)
        for hook in tuple(self._store.hooks.get("replace", ())):
            for user in users:
                hook(old=old, new=new.name, user=user)
        with self._store.all_or_nothing():
            for user in users:
                args, kwargs = map_nodes(user._args, swap), user._kwargs
                if user.op != "call_function":
                    args, kwargs = stored_args(args), stored_kwargs(map_nodes(kwargs, swap))
                self._store.assign(user, args, kwargs)
            if new.type != old.type:
                retype(self, old, users)

    def _set_bound_arguments(self, node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Assign arguments in any spelling."""
        if node.op == "call_function" and isinstance(node.target, Op):
            args, kwargs = node.target.split_arguments(node.target.bind(args, kwargs))
        self._set_arguments(node, args, kwargs)

    def _write(self, node: Node, field: str, value: Any) -> None:
        """``node.field = value``: check it, record it in the journal, and update dependent types."""
        if node._erased:
            raise GraphError(f"{node.name} was erased")
        with self._store.all_or_nothing():
            if field == "op" and value not in OPCODES:
                raise GraphError(f"op must be one of {', '.join(OPCODES)}, not {value!r}")
            if field == "target":
                if node.op == "call_function":
                    self._retarget(node, value)
                    return
                _check_target(node.op, value)
            self._store.set_field(node, field, value)
            if field == "type":
                retype(self, node, node.users)
            elif field == "target" and node.op in ("get_attr", "call_module"):
                retype(self, node, (node,))

    def _retarget(self, node: Node, target: Any) -> None:
        """``node.target = op``: bind the arguments to the new op's signature by position and name. If
        the node was not a call_function before (``node.op = "call_function"``), arguments that do not
        fit are accepted: they belong to the old call, and the caller assigns new ones next."""
        target = as_op(target)
        try:
            args, kwargs = target.split_arguments(target.bind(node._args, node._kwargs))
        except ArgumentError:
            if isinstance(node.target, Op):
                raise
            self._store.set_field(node, "target", target)
            self._store.set_field(node, "type", None)
            return
        self._store.set_field(node, "target", target)
        self._set_arguments(node, args, kwargs)

    # -- named dims --------------------------------------------------------------------------
    @property
    def declared_dims(self) -> dict[str, FactSymbol]:
        """Named dims that have facts, by name. A graph has one symbol for each name."""
        return self._dims.declared

    @declared_dims.setter
    def declared_dims(self, dims: dict[str, FactSymbol]) -> None:
        self._dims.declared = dims

    @property
    def specialized(self) -> Mapping[str, Any]:
        """Named dims that :meth:`GraphModule.specialize` replaced, and by what; used in messages."""
        return self._dims.specialized

    @specialized.setter
    def specialized(self, sizes: Mapping[str, Any]) -> None:
        self._dims.specialized = sizes

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions on named dims that every call must fulfil, in addition to the facts of
        ``declared_dims``."""
        return self._dims.guards

    @guards.setter
    def guards(self, guards: Iterable[Guard]) -> None:
        self._dims.guards = tuple(guards)

    @property
    def taps(self) -> tuple[Tap, ...]:
        """The taps (:func:`fxlite.passes.tap`), which receive values of each call. The output node holds
        one value at its end for each of them."""
        return self._taps

    @taps.setter
    def taps(self, taps: tuple[Tap, ...]) -> None:
        self._exchange("_taps", taps)

    @property
    def interface(self) -> Interface | None:
        """How a program with nested inputs or results is called, and which inputs it writes into; None
        if the inputs and results are exactly those of the graph."""
        return self._interface

    @interface.setter
    def interface(self, interface: Interface | None) -> None:
        self._exchange("_interface", interface)

    def _exchange(self, field: str, value: Any) -> None:
        """Replace a field, and record the old value in the journal."""
        before = getattr(self, field)
        if value is not before:
            self._store.record((Graph._exchange, self, field, before))
            setattr(self, field, value)

    @property
    def states(self) -> tuple[tuple[str, str], ...]:
        """(placeholder target, path) of each buffer of the program that the graph changes."""
        return () if self._interface is None else self._interface.states

    def declare_dims(self, dims: Mapping[str, FactSymbol]) -> None:
        """Give these facts to the named dims of inputs that are added from now on."""
        self._dims.declared |= dims

    def conditions(self) -> list[Guard]:
        """All conditions on the named dims: declared facts and guards."""
        return self._dims.all()

    def take_conditions(self, graph: Graph, names: frozenset[str] | None = None) -> None:
        """Take over the facts and guards on the named dims of ``graph`` (only on ``names`` if given)."""
        self._dims.take(graph._dims, names)

    # -- history -----------------------------------------------------------------------------
    def transaction(self, label: str) -> AbstractContextManager[None]:
        """``with graph.transaction("fold scales"):`` makes the edits of its body one unit for
        :meth:`undo`. If the body raises, all of them are reverted. Transactions may be nested."""
        return self._store.transaction(label)

    def undo(self) -> str:
        """Revert the last transaction, or the edits made since; returns its label. Raises GraphError if
        there is nothing to undo, or inside a transaction."""
        return self.journal.undo()

    def redo(self) -> str:
        """Repeat what the last :meth:`undo` reverted; returns its label. Raises GraphError if there is
        nothing to redo, or inside a transaction."""
        return self.journal.redo()

    # -- types -------------------------------------------------------------------------------
    def _type_of_leaf(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The type that a leaf module of the owner returns; None if it is not known."""
        nodes = [n for n in nodes_in((args, dict(kwargs))) if n.type is None]
        try:
            module = None if nodes else self.owning_module.get_submodule(target)  # type: ignore[union-attr]
        except AttributeError:
            return None
        if module is None or "_graph" in module.__dict__:  # whoever calls a GraphModule states the type
            return None
        return above("leaf_result_type")(module, args, dict(kwargs))

    def _infer(self, op: str, target: Any, args: tuple[Any, ...], kwargs: immutable_dict) -> Any:
        if op == "call_function":
            try:
                return target.type_of_call(args, kwargs)
            except ShapeError as error:
                raise explained(error, target, args, kwargs) from None
        if op == "output":
            return map_nodes(args[0], _TYPE)
        if op == "get_attr" and self.owning_module is not None:
            return type_of(self.owning_module.get_attribute(target))
        return None

    def _retype_weights(self, targets: Iterable[str]) -> None:
        """Update types after the weights at these paths were replaced by ones of other types."""
        wanted = set(targets)
        readers = [n for n in self.find_nodes(op="get_attr") if n.target in wanted]
        if readers:
            retype(self, readers[0], readers)

    def explain_size(self, node: Node, axis: int) -> SizeOrigin:
        """Trace the size of an axis back to the inputs and weights that determine it, with the lines of
        the program: ``print(gm.graph.explain_size(node, 1))``. Raises GraphError for a node without a
        type, and ShapeError for an axis that the node does not have."""
        from fxlite.graph.size_origin import size_origin

        return size_origin(node, axis)

    # -- checking and copying ------------------------------------------------------------------
    def lint(self, full: bool = False) -> None:
        """Check every invariant; raises GraphError, which lists all violations. In a graph that passed
        before, only what was edited since is checked again; ``full`` checks everything."""
        lint(self, full)

    def copy(self, owning_module: Module | None = None) -> Graph:
        """An independent copy with the same names, order, types, scopes, locations and meta, and with a
        history of its own."""
        return self.copy_with_nodes(owning_module)[0]

    def copy_with_nodes(self, owning_module: Module | None = None) -> tuple[Graph, dict[Node, Node]]:
        """A copy of the graph, and a dict from each node to its copy."""
        owner = owning_module if owning_module is not None else self.owning_module
        new = Graph(owner, self.tracer_cls, self.tracer_extras)
        copies: dict[Node, Node] = {}
        noted: list[Node] = []
        copy_of = copies.__getitem__
        last = new._store.root
        with paused_gc():
            for node in self.nodes:
                args, kwargs = node._args, node._kwargs
                for value in args:
                    if value.__class__ is Node or value.__class__ is tuple or is_container(value):
                        args = stored_args(map_nodes(args, copy_of))
                        break
                if kwargs and node.op != "call_function":
                    kwargs = stored_kwargs(map_nodes(kwargs, copy_of))
                made = new_node(new, node.name, node.op, node.target, args, kwargs, node.type, node.scope, node.loc)
                if node._meta:
                    noted.append(node)
                set_next(last, made)
                set_prev(made, last)
                add_user(args, made)
                if kwargs and node.op != "call_function":
                    add_user(tuple(kwargs.values()), made)
                copies[node] = last = made
        for node in noted:  # notes that name nodes must name their copies
            copies[node].meta = map_nodes(node._meta, lambda n: copies.get(n, n))
        mine, store = self._store, new._store
        set_next(last, store.root)
        set_prev(store.root, last)
        store.length, store.n_placeholders = mine.length, mine.n_placeholders
        store.n_controls = mine.n_controls
        store.namer.taken, store.namer.counts = set(mine.namer.taken), dict(mine.namer.counts)
        new._interface, new._taps = self._interface, self._taps
        new._dims.become(self._dims)
        if self._linted == self.journal.version:
            new._linted = new.journal.version
        return new, copies

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        copied = self.copy()
        memo[id(self)] = copied
        return copied

    def __eq__(self, other: object) -> bool:
        """Structural equality: the same calls in the same order, whatever the names."""
        if not isinstance(other, Graph):
            return NotImplemented
        return above("first_difference")(self, other) is None

    __hash__ = None  # type: ignore[assignment]

    # -- text --------------------------------------------------------------------------------
    def python_code(self, root_module: str = "self") -> PythonCode:
        """The Python function that runs the graph; ``root_module`` is the name of its first
        parameter."""
        if root_module != "self":
            raise GraphError(f"the module is called self in regenerated code, not {root_module!r}")
        return PythonCode(self)

    def text(self, *, full: bool = False, weights: bool = False, width: int | None = None) -> str:
        """The graph as text, which ``str(graph)`` returns, too.

        It is meant for people: lines are broken at ``width`` columns (default: those of the terminal,
        else 100), repeated layers are shown once, and many weights are summed up in one line; ``weights``
        lists them all. ``full=True`` gives the exact text that :func:`fxlite.parse` reads back: one line
        for each node, with nothing left out."""
        return above("text_of")(self, full=full, weights=weights, width=width)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The picture of the graph, which notebooks show."""
        return above("in_notebook")(self)  # type: ignore[no-any-return]

    def print(self, *, full: bool = False, weights: bool = False) -> None:
        """Print :meth:`text`. On a terminal it is coloured (unless ``NO_COLOR`` is set) and has links to
        the lines of the program."""
        above("print_graph")(self, full=full, weights=weights)

    def print_tabular(self) -> None:
        """Print a table with a line for each node: opcode, name, type, value, place. On a terminal with
        fewer than 120 columns it has no opcodes, with fewer than 100 no places either. Text that does
        not fit ends in ``…``."""
        above("print_table")(self)

    def draw(
        self,
        path: str | Path,
        weights: bool = False,
        *,
        color: str | None = None,
        depth: int | None = None,
        fold: bool = True,
        direction: str = "TB",
        times: Any = None,
        changed_from: Graph | None = None,
        sqnr: Mapping[str, float] | None = None,
    ) -> None:
        """Write a picture that shows shapes and modules. The ending of the file decides the format:
        ``.svg`` and ``.html`` need nothing to be installed; ``.dot``, ``.png`` and ``.pdf`` are the others.

        ``color`` is "op", "dtype", "time" (with ``times``: seconds by node, or a profile), "change"
        (with ``changed_from``: another graph), "scope" or "sqnr" (with ``sqnr``: dB by module path).
        ``depth`` draws modules below that many levels as single boxes. ``fold`` draws equal modules in a
        row once. ``direction`` is "TB", from top to bottom, or "LR", from left to right.

        Raises DrawError for other endings and options, and if the tool that writes PNG or PDF is
        missing."""
        above("draw")(
            self,
            path,
            weights=weights,
            color=color,
            depth=depth,
            fold=fold,
            direction=direction,
            times=times,
            changed_from=changed_from,
            sqnr=sqnr,
        )

    @functools.partial(checked, is_whole=True)
    def to_dot(self, weights: bool = False, **options: Any) -> str:
        """The graph in Graphviz's DOT language, with modules as clusters; options as in :meth:`draw`."""
        return above("to_dot")(self, weights=weights, **options)  # type: ignore[no-any-return]


class _Meanwhile:
    """A context manager that gives a field of an object another value inside its body."""

    def __init__(self, owner: Any, field: str, value: Any) -> None:
        self.owner, self.field, self.value = owner, field, value

    def __enter__(self) -> None:
        self.saved = getattr(self.owner, self.field)
        setattr(self.owner, self.field, self.value)

    def __exit__(self, *exc: Any) -> None:
        setattr(self.owner, self.field, self.saved)
