"""Node: one value of a graph, with the call that computes it and its readers; and the view of readers.

A node's fields are read directly, but every write goes through its graph, which keeps use-lists and
types correct and the journal complete. For that reason lists and dicts inside a node's arguments refuse
edits in place, with a TypeError that says what to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from fxlite.base.checked import checked_methods
from fxlite.base.errors import GraphError, expect
from fxlite.base.facade import above
from fxlite.ops.op import Op

if TYPE_CHECKING:
    from fxlite.base.location import Location, Scope
    from fxlite.graph.graph import Graph


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    kind = "list" if isinstance(self, list) else "dict"
    raise TypeError(
        f"this {kind} belongs to a node's arguments and cannot be edited in place; assign a new "
        f"one: node.args = (...), node.kwargs = {{...}}, node.update_arg(index, value) or "
        f"node.update_kwarg(name, value)"
    )


class immutable_list(list[Any]):  # torch.fx's name
    """A list that raises TypeError on every edit; copies and slices are plain lists."""

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (immutable_list, (list(self),))


class immutable_dict(dict[str, Any]):  # torch.fx's name
    """A dict that raises TypeError on every edit; copies are plain dicts."""

    update = setdefault = pop = popitem = clear = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (immutable_dict, (dict(self),))


#: The keyword arguments of every node that has none.
NO_KWARGS = immutable_dict()


def immutable(value: Any) -> Any:
    """``value`` with immutable lists and dicts in the place of its lists and dicts."""
    if isinstance(value, tuple):
        items = tuple(map(immutable, value))
        return tuple.__new__(type(value), items) if hasattr(value, "_fields") else items
    if isinstance(value, list):
        return immutable_list(map(immutable, value))
    if isinstance(value, dict):
        return immutable_dict({k: immutable(v) for k, v in value.items()})
    return value


#: The target of a node: an op (or its name), or the path of an input, weight or leaf module.
Target = Op | str
#: The arguments of a node: nodes, numbers, and tuples, lists and dicts of these.
Argument = Any


class ArgsKwargsPair(NamedTuple):
    """Arguments by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


#: The entry of ``node.meta`` with the attributes that users gave a node.
ATTRIBUTES = "attributes"

#: The values of ``node.op``.
OPCODES = ("placeholder", "get_attr", "call_function", "call_module", "output")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """``a`` with every value in its tuples, lists, dicts and slices replaced by ``fn(value)``. Lists and
    dicts of the result are immutable."""
    if isinstance(a, tuple):
        items = [map_aggregate(v, fn) for v in a]
        return tuple.__new__(type(a), items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list(map_aggregate(v, fn) for v in a)
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(v, fn) for v in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """``a`` with every Node in its tuples, lists and dicts replaced by ``fn(node)``."""
    expect(fn, Callable, "what map_arg calls", "it is map_arg(arguments, function)")
    return map_aggregate(a, lambda v: fn(v) if isinstance(v, Node) else v)


def map_nodes(value: Any, function: Callable[[Node], Any]) -> Any:
    """``value`` with every Node in its tuples, lists and dicts replaced by ``function(node)``."""
    kind = value.__class__
    if kind is Node:
        return function(value)
    if kind is tuple:
        return tuple([function(v) if v.__class__ is Node else map_nodes(v, function) for v in value])
    if isinstance(value, tuple):
        return tuple.__new__(kind, [map_nodes(v, function) for v in value])
    if isinstance(value, list):
        return [map_nodes(v, function) for v in value]
    if isinstance(value, dict):
        return {k: map_nodes(v, function) for k, v in value.items()}
    return value


def types_of(node: Node) -> tuple[Any, ...]:
    """The types of a node's values: one, or as many as it has results."""
    return node.type if isinstance(node.type, tuple) else (node.type,)


def origin_text(scope: Scope | None, loc: Location | None) -> str:
    """``conv1 (Conv2d), model.py:31``; empty if nothing is known."""
    parts = [str(scope)] if scope is not None and scope.path else []
    if loc is not None:
        parts.append(loc.short)
    return ", ".join(parts)


def nodes_in(value: Any) -> Iterator[Node]:
    """Every Node in nested tuples, lists and dicts, in order and with repetitions."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from nodes_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from nodes_in(v)


def axes_rank(node: Node) -> int | None:
    """The rank to which the axis numbers of a call refer; None if unknown."""
    inputs = node.all_input_nodes
    rank = getattr(inputs[0].type, "rank", None) if inputs else None
    return None if rank is None else rank + max(node.target.added_axes, 0)


class Users(Set["Node"]):
    """The nodes that read a value, each once: a live, read-only view (``in``, ``len``, loops).

    A loop goes over the readers that existed when it began, so its body may change them."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    @classmethod
    def _from_iterable(cls, values: Iterable[Any]) -> set[Any]:
        return set(values)

    def __iter__(self) -> Iterator[Node]:
        users = self._node._users
        if users is None:
            return iter(())
        return iter((users,)) if users.__class__ is Node else iter(tuple(users))

    def __len__(self) -> int:
        users = self._node._users
        return 0 if users is None else 1 if users.__class__ is Node else len(users)

    def __bool__(self) -> bool:
        return self._node._users is not None

    def __contains__(self, node: object) -> bool:
        users = self._node._users
        if users is None:
            return False
        return users is node if users.__class__ is Node else node in users

    def keys(self) -> Users:
        """The view itself, for programs written for torch.fx, where users is a dict whose values are
        None."""
        return self

    def items(self) -> list[tuple[Node, None]]:
        """The readers, each with None."""
        return [(node, None) for node in self]

    def __repr__(self) -> str:
        return f"{{{', '.join(n.name for n in self)}}}"


class NodeFields:
    """The storage of a Node. The fields of a new node are filled in as plain NodeFields, without entries
    in the journal."""

    __slots__ = tuple("_args _erased _kwargs _meta _next _prev _users graph loc name op scope target type".split())

    graph: Graph
    name: str
    op: str
    target: Any
    type: Any
    scope: Scope | None
    loc: Location | None
    _args: tuple[Any, ...]
    _kwargs: immutable_dict
    #: None, the one reader, or a dict of readers: most values have one, and memory counts
    _users: Any
    _meta: dict[str, Any] | None
    _prev: Any
    _next: Any
    _erased: bool


#: Sets a link between nodes without ``Node.__setattr__``.
set_next: Callable[[Any, Any], None] = vars(NodeFields)["_next"].__set__
set_prev: Callable[[Any, Any], None] = vars(NodeFields)["_prev"].__set__
set_users: Callable[[Any, Any], None] = vars(NodeFields)["_users"].__set__
set_erased: Callable[[Any, Any], None] = vars(NodeFields)["_erased"].__set__

_WRITTEN_BY_GRAPH = frozenset(("op", "target", "type", "scope", "loc"))


class _Attribute:
    """``node.tag``: an attribute that a user added to nodes. It is kept in ``meta``, so that copies and
    files have it and other nodes take no more memory. (A ``__getattr__`` would slow down every
    attribute.)"""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, node: Any, owner: Any = None) -> Any:
        if node is not None and node._meta is not None:
            attributes = node._meta.get(ATTRIBUTES, {})
            if self.name in attributes:
                return attributes[self.name]
        raise AttributeError(f"node {getattr(node, 'name', '')} has no attribute {self.name!r}")

    def __set__(self, node: Any, value: Any) -> None:
        node.meta[ATTRIBUTES] = {**node.meta.get(ATTRIBUTES, {}), self.name: value}

    def __delete__(self, node: Any) -> None:
        self.__get__(node)
        kept = {k: v for k, v in node.meta[ATTRIBUTES].items() if k != self.name}
        node.meta[ATTRIBUTES] = kept


@checked_methods
class Node(NodeFields):
    """One value of a graph.

    ``op``, ``target``, ``args`` and ``kwargs`` say how it is computed. ``type`` is its TensorType (a
    tuple of them for several results, None in a trace without types). ``users`` are the nodes that
    read it. ``scope`` and ``loc`` tell in which module and on which line of the program it was made.
    ``meta`` is a dict for passes and users. Assigning to a field is an edit of the graph: it is checked
    and recorded in the journal, and the types that depend on it are updated."""

    __slots__ = ()

    def __init__(self) -> None:
        raise GraphError("make nodes with graph.call_function, graph.placeholder, ...")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _WRITTEN_BY_GRAPH:
            self.graph._write(self, name, value)
        elif name == "name":
            self.graph.rename_node(self, value)
        else:
            if name not in _KNOWN:
                _add_attribute(name)
            object.__setattr__(self, name, value)

    # -- arguments ---------------------------------------------------------------------------
    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments; for a call_function, its tensors."""
        return self._args

    @args.setter
    def args(self, value: Iterable[Any]) -> None:
        args, kwargs = tuple(value), dict(self._kwargs)
        if isinstance(self.target, Op):  # arguments given by position now are no longer given by name
            for name in list(self.target.signature.parameters)[: len(args)]:
                kwargs.pop(name, None)
        self.graph._set_bound_arguments(self, args, kwargs)

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Arguments by name; for a call_function, its attributes."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: Mapping[str, Any]) -> None:
        self.graph._set_bound_arguments(self, self._args, value)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace the positional argument ``idx`` by ``arg``."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert ``arg`` before the positional argument ``idx``."""
        args = list(self._args)
        args.insert(idx, arg)
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replace the argument named ``key`` by ``arg``, even if it is stored in ``args``."""
        if self.op == "call_function":
            key = self.target.parameter_name(key)
            self.graph._set_bound_arguments(self, (), {**self.arguments, key: arg})
        else:
            self.kwargs = {**self._kwargs, key: arg}

    def _set_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Assign arguments that are already in stored form (see :meth:`Op.split_arguments`)."""
        self.graph._set_arguments(self, args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        found: dict[Node, None] = {}
        for value in self._args:
            if value.__class__ is Node:
                found[value] = None
            elif value.__class__ is tuple or isinstance(value, (tuple, list, dict)):
                found.update(dict.fromkeys(nodes_in(value)))
        if self._kwargs and self.op != "call_function":  # attributes of ops hold no nodes
            found.update(dict.fromkeys(nodes_in(self._kwargs)))
        return list(found)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a call_function by parameter name, without those left to their defaults."""
        assert isinstance(self.target, Op), self
        return self.target.named_arguments(self._args, self._kwargs)

    @property
    def bound(self) -> dict[str, Any]:
        """All arguments of a call_function by parameter name, in the order of the op's signature, with
        defaults filled in. (torch.fx: ``normalized_arguments``.)"""
        return self.target.with_defaults(self.arguments)  # type: ignore[no-any-return]

    def normalized_arguments(
        self,
        root: Any = None,
        arg_types: Any = None,
        kwarg_types: Any = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """The arguments by position and by name, with defaults filled in, or all of them by name; None
        for a node that calls nothing. ``root`` holds the leaf modules (default: the graph's owner).
        torch.fx's types are not needed, because an op has a single signature."""
        if self.op == "call_module":
            owner: Any = self.graph.owning_module if root is None else root
            module = owner.get_submodule(self.target)
            bound = inspect.signature(module.forward).bind(*self._args, **self._kwargs)
            bound.apply_defaults()
            named = dict(bound.arguments)
            by_position = tuple(named.values())
        elif self.op == "call_function":
            named = self.bound
            by_position = tuple(named.values())
        else:
            return None
        if normalize_to_only_use_kwargs:
            return ArgsKwargsPair((), named)
        return ArgsKwargsPair(by_position, {})

    @property
    def users(self) -> Users:
        """The nodes that read this value."""
        return Users(self)

    @property
    def meta(self) -> dict[str, Any]:
        """A dict for notes of passes and users. Copies of the node keep it, and the graph ignores it."""
        if self._meta is None:
            object.__setattr__(self, "_meta", {})
        assert self._meta is not None
        return self._meta

    @meta.setter
    def meta(self, value: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_meta", dict(value))
        for name in value.get(ATTRIBUTES, ()):
            if name not in _KNOWN:
                _add_attribute(name)

    @property
    def stack_trace(self) -> str | None:
        """Where in the program the node was made, as in a traceback; None if this is not known. An
        assigned text is kept in ``meta``; see :attr:`loc`."""
        if self._meta is not None and "stack_trace" in self._meta:
            return self._meta["stack_trace"]  # type: ignore[no-any-return]
        loc = self.loc
        if loc is None:
            return None
        return f'  File "{loc.file}", line {loc.line}, in {loc.function}\n    {loc.expression}'

    @stack_trace.setter
    def stack_trace(self, value: str | None) -> None:
        self.meta["stack_trace"] = value

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Make this node read ``new_input`` wherever it reads ``old_input``."""
        self.graph._replace_uses(old_input, new_input, [self])

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Make every user of this node read ``replace_with`` instead, except ``replace_with`` itself and
        users for which ``delete_user_cb`` returns False. Returns the changed users. ``propagate_meta``
        copies this node's meta to ``replace_with``, whose own meta must be empty."""
        if propagate_meta:
            if replace_with._meta:
                raise GraphError(f"{replace_with.name} has meta of its own")
            replace_with.meta = self.meta
        changed = [u for u in self.users if u is not replace_with and (not delete_user_cb or delete_user_cb(u))]
        self.graph._replace_uses(self, replace_with, changed)
        return changed

    def is_impure(self, impure_random: bool = True) -> bool:
        """True for nodes that dead-code elimination must keep: inputs, the output, functions marked by
        :func:`fxlite.has_side_effect`, leaf modules with ``_is_impure`` (in training, layers that draw
        random numbers or keep statistics), and random ops, unless ``impure_random`` is False."""
        op = self.op
        if op == "call_module":
            owner: Any = self.graph.owning_module
            return owner is None or is_impure_module(owner.get_submodule(self.target))
        if op == "call_function":
            if self.target.kind == "control":
                bodies = self._kwargs.values()
                return any(n.is_impure(impure_random) for body in bodies for n in body.calls)
            has_effect: bool = self.target.has_side_effect
            return has_effect or (impure_random and self.target.kind == "random")
        return op != "get_attr"

    # -- order -------------------------------------------------------------------------------
    @property
    def next(self) -> Node:
        """The node after this one; after the last node, the graph's root."""
        return self._next  # type: ignore[no-any-return]

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev  # type: ignore[no-any-return]

    def append(self, x: Node) -> None:
        """Move ``x`` to just after this one."""
        if self._erased:
            raise GraphError(f"cannot move {x.name} behind {self.name}, which was erased")
        if x is not self:
            self.graph._store.move(x, self._next)

    def prepend(self, x: Node) -> None:
        """Move ``x`` to just before this one."""
        self.graph._store.move(x, self)

    def __lt__(self, other: Node) -> bool:
        """Whether this node stands before ``other`` in their graph."""
        if self.__class__ is not other.__class__:
            return NotImplemented
        return self.graph._store.is_before(self, other)

    def __gt__(self, other: Node) -> bool:
        return other.__lt__(self)

    def __le__(self, other: Node) -> bool:
        return self is other or self.__lt__(other)

    def __ge__(self, other: Node) -> bool:
        return self is other or other.__lt__(self)

    # -- text --------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return self.name

    def format_node(self) -> str:
        """The node as one readable line."""
        return above("node_line")(self)  # type: ignore[no-any-return]

    @property
    def module_path(self) -> str:
        """The path of the module in which the node was made, such as ``layers.0.attn``; empty for the
        root module or if it is unknown."""
        return self.scope.path if self.scope is not None else ""

    @property
    def origin(self) -> str:
        """``conv1 (Conv2d), model.py:31``: for messages and comments."""
        return origin_text(self.scope, self.loc)

    def describe(self) -> str:
        """Name, op, type and place, for error messages."""
        target = self.target.name if isinstance(self.target, Op) else self.target
        type_text = f": {self.type}" if self.type is not None else ""
        return f"node {self.name}{type_text} = {target}" + (f" ({self.origin})" if self.origin else "")

    def __deepcopy__(self, memo: Any) -> Node:
        raise GraphError(f"copy the graph or module, not its node {self.name}")


def is_impure_module(module: Any) -> bool:
    """Whether a leaf module or one inside it declares side effects. A GraphModule has the side effects
    of the calls in its graph."""
    for inner in module.modules():
        graph = inner.__dict__.get("_graph")
        nodes = () if graph is None else graph.nodes
        if getattr(inner, "_is_impure", False) or any(n.is_impure() for n in nodes if n.op == "call_function"):
            return True
    return False


#: The names of attributes of nodes: their own, and those that users have given to nodes.
_KNOWN = set(dir(Node))


def _add_attribute(name: str) -> None:
    """Add an attribute to all nodes. Raises AttributeError for a private name (``_name``)."""
    if name.startswith("_"):
        raise AttributeError(f"a node has no attribute {name!r}; attributes of yours begin with a letter")
    setattr(Node, name, _Attribute(name))
    _KNOWN.add(name)


def new_node(
    graph: Graph,
    name: str,
    op: str,
    target: Any,
    args: tuple[Any, ...],
    kwargs: immutable_dict,
    type: Any,
    scope: Scope | None,
    loc: Location | None,
) -> Node:
    """A node that is in no list yet. (Filling the fields first and then changing the class to Node is
    four times as fast as assigning through ``Node.__setattr__``.)"""
    node: Any = NodeFields()
    node.graph = graph
    node.name = name
    node.op = op
    node.target = target
    node._args = args
    node._kwargs = kwargs
    node._users = None
    node._meta = None
    node.type = type
    node.scope = scope
    node.loc = loc
    node._erased = False
    node.__class__ = Node
    return node  # type: ignore[no-any-return]


def stored_kwargs(kwargs: Mapping[str, Any]) -> immutable_dict:
    """Keyword arguments as nodes hold them."""
    if not kwargs:
        return NO_KWARGS
    return kwargs if kwargs.__class__ is immutable_dict else immutable(dict(kwargs))


def stored_args(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Positional arguments as nodes hold them: with immutable lists and dicts."""
    for value in args:
        if isinstance(value, (list, dict)) or value.__class__ is tuple:
            return immutable(args)  # type: ignore[no-any-return]
    return args
