"""Sizes that depend on values: if a mask selects few of many elements, computations on the selected
elements take time in proportion to their number, not to the number that the mask could select.

In: a module. It represents a selection as arrays of all possible positions, of which only the first
ones count (``flatnonzero``, and elements taken at its positions; or those below a number, ``x[:k]``, which are
the elements where ``arange(n) < k``). Out: a copy in which such an array
has a single element after those that count, ``i64[n]``, and a :class:`DataSize` that describes ``n``,
which is known when the node that counts has been computed.

This is exact, because all elements after the count are equal and one of them stays: maxima and their
positions are unchanged; sums are if those elements are 0; other positions are those of the element
that stays. Values that need all elements, such as a result that is a whole array, keep them. What is computed
from other arrays for such elements alone, as a product with the rows of a cache that are filled, is computed for them
alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.graph import pytree
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import map_nodes, stored_kwargs
from fxlite.graph.retype import retype
from fxlite.ops.indexing import NOWHERE
from fxlite.ops.op import lookup, normalize_axis
from fxlite.passes.group import element_of, loops_of
from fxlite.passes.rewrite.rule import is_call
from fxlite.scalar.expr import Load, MultiIndex
from fxlite.scalar.functions import COMBINATIONS
from fxlite.scalar.index import Index
from fxlite.types import shapes
from fxlite.types.facts import Facts
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType

#: Positions below which all are computed with.
FEW = 256


@dataclass(frozen=True)
class DataSize:
    """A size of a program's values: one more than the integer ``count``, and at most ``bound``."""

    count: Node
    bound: Dim


def at_most(dim: Dim, sizes: Mapping[str, DataSize]) -> Dim:
    """The largest value of a size, in terms of the sizes that a call is given."""
    while any(name in sizes for name in shapes.names(dim)):
        dim = shapes.substitute(dim, {name: size.bound for name, size in sizes.items()})
    return dim


def largest_type(type: TensorType, sizes: Mapping[str, DataSize]) -> TensorType:
    """A type with its sizes as large as they can be."""
    return TensorType(tuple(at_most(dim, sizes) for dim in type.shape), type.dtype) if sizes else type


def with_data_sizes(module: GraphModule) -> tuple[GraphModule, dict[str, DataSize]]:
    """The module itself if nothing is selected; otherwise a copy, and the sizes of its arrays."""
    graph = module.graph
    places = lookup("flatnonzero")
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if not any(node.target is places or _first_places(node) for node in calls):
        return module, {}
    made, found = module.copy(), dict[str, DataSize]()
    for node in made.graph.find_nodes(op="call_function", target=places):
        selection = _Selection(made.graph, node, _count_of(node.args[0]))
        if selection.is_open:
            found |= selection.shrink()
    for node in list(made.graph.nodes):
        number = None if node._erased else _first_places(node)
        if number is not None and not found.keys() & shapes.names(node.type.shape):
            prefix = _Prefix(made.graph, node, number)
            if prefix.is_open:
                found |= prefix.shrink()
    return (made, found) if found else (module, {})


@dataclass(frozen=True)
class _Tail:
    """Along ``axis`` all elements from the count on are equal, and equal to ``value`` if that is known."""

    axis: int
    value: Any = None


class _Selection:
    """The positions of one mask, and everything computed from them."""

    #: What the positions are from the count on.
    beyond: Any = 0

    def __init__(self, graph: Graph, places: Node, count: Node | None) -> None:
        self.graph, self.places, self.count = graph, places, count
        self.size: Dim = places.type.shape[0]
        few = type(self.size) is int and self.size < FEW
        self.is_open = self.count is not None and places.kwargs.get("size") is None and not few
        self.tails: dict[Node, _Tail] = {}
        #: Other values, with the axis along which readers need only as many elements as of the positions.
        self.needed: dict[Node, int] = {}
        #: The operands of these that are read along it, each with its own axis.
        self.read: dict[Node, dict[Node, int]] = {}

    def _counted(self) -> Node:
        """The node that computes the count, which is not negative and at most the size."""
        assert self.count is not None
        return self.count

    def _pays(self, short: set[Node]) -> bool:
        """Whether to shorten these values."""
        return self.places in short

    # -- what is equal from the count on -----------------------------------------------------------
    def tail(self, value: Any, axis: int) -> _Tail | None:
        """The tail of an operand along an axis."""
        if not isinstance(value, Node):
            return _Tail(axis, value)
        found = self.tails.get(value)
        if found is not None:
            return found if found.axis == axis else None
        name = value.target.name if value.op == "call_function" else ""
        if name == "full":
            return _Tail(axis, value.bound["value"])
        if name == "expand" and not _has(value.args[0], axis - value.type.rank, self.size):
            return _Tail(axis)
        return None

    def _note(self, node: Node) -> None:
        rule = _RULES.get(node.target.name) or _RULES.get(node.target.kind)
        found = rule(self, node) if rule is not None and isinstance(node.type, TensorType) else None
        if found is not None:
            self.tails[node] = found

    def _pointwise(self, node: Node) -> _Tail | None:
        for axis, size in enumerate(node.type.shape):
            if not shapes.equal(size, self.size):
                continue
            below = axis - node.type.rank
            bound = node.bound
            operands = {
                name: self.tail(v, v.type.rank + below) if _has(v, below, self.size) else _Tail(axis, _number(v))
                for name, v in bound.items()
                if name in node.target.tensor_kinds
            }
            if not any(_has(v, below, self.size) for v in bound.values()):
                continue
            found = self._compared(node, axis) or _absorbed(node, axis, operands)
            if found is not None:
                return found
            if None not in operands.values():
                return _Tail(axis, _computed(node, {n: t.value for n, t in operands.items() if t is not None}))
        return None

    def _compared(self, node: Node, axis: int) -> _Tail | None:
        """The tail of ``arange(n) < count``, or of a comparison with a number below the count."""
        symbol, (one, other) = node.target.symbol, (*node.args, None, None)[:2]
        if symbol in (">", "<="):  # count > place is place < count
            symbol, one, other = ("<" if symbol == ">" else ">="), other, one
        if symbol not in ("<", ">=") or not _counts(one) or not self._is_at_most(other):
            return None
        return _Tail(axis, symbol == ">=")

    def _is_at_most(self, value: Any) -> bool:
        """Whether a number is at most the count."""
        if not isinstance(value, Node):
            return type(value) is int and value <= 0
        if value is self.count:
            return True
        if value.op != "call_function" or value.type.rank:
            return False
        name, args = value.target.name, value.args
        if name == "minimum":
            return any(map(self._is_at_most, args))
        if name == "relu":  # the count is never below 0
            return self._is_at_most(args[0])
        if name == "maximum":
            return all(map(self._is_at_most, args))
        if name == "where":
            return all(map(self._is_at_most, args[1:]))
        if name == "cast":
            return value.type.dtype.name == "i64" and self._is_at_most(args[0])
        if name == "add":
            pairs = (args, args[::-1])
            return any(self._is_at_most(a) and type(b) is int and b <= 0 for a, b in pairs)
        if name == "sub":
            return self._is_at_most(args[0]) and self._is_nonnegative(args[1])
        return False

    def _is_nonnegative(self, value: Any) -> bool:
        """Whether a number is at least 0, as the count is."""
        if not isinstance(value, Node):
            return type(value) is int and value >= 0
        if value is self.count or (value.op == "call_function" and value.target.nonnegative):
            return True
        return is_call(value, "minimum") and all(map(self._is_nonnegative, value.args))

    def _is_not_before(self, index: Any) -> bool:
        """Whether an index is at least the position at which it stands, or the last position."""
        if _counts(index):
            return True
        if is_call(index, "minimum"):
            last = [v for v in index.args if type(v) is int and shapes.at_least(v, self.size - 1)]
            return bool(last) and any(map(self._is_not_before, index.args))
        if is_call(index, "add"):
            one, other = index.args
            return any(self._is_not_before(a) and self._is_nonnegative(b) for a, b in ((one, other), (other, one)))
        return False

    def _view(self, node: Node) -> _Tail | None:
        found = self.tails.get(node.args[0])
        if found is None or not isinstance(node.args[0], Node):
            return None
        space, index = loops_of(node.type)
        places: list[MultiIndex] = []

        def on_read(read: Node, at: MultiIndex) -> Load:
            places.append(at)
            return Load(read.type.dtype, read.name, at)

        element_of(node, index, on_read)
        for axis, variable in enumerate(space):
            reads = [[n for n, place in enumerate(at) if variable in place.variables()] for at in places]
            whole = _has(node, axis - node.type.rank, self.size)
            if whole and reads == [[found.axis]] and places[0][found.axis] == Index.of(variable):
                return _Tail(axis, found.value)
        return None

    def _take(self, node: Node) -> _Tail | None:
        values, index = node.args[:2]
        axis = normalize_axis(node.bound["axis"], values.type.rank)
        found, around = self.tails.get(index), self.tails.get(values)
        if found is not None:
            return _Tail(axis + found.axis)
        if around is None or around.axis != axis or not isinstance(index, Node) or index.type.rank != 1:
            return None
        # ``values[1:]``: from the count on, it reads what is equal
        return around if _has(index, -1, self.size) and self._is_not_before(index) else None

    def _sort(self, node: Node) -> _Tail | None:
        found = self.tails.get(node.args[0])
        if found is None:
            return None
        if normalize_axis(node.bound["axis"], node.type.rank) != found.axis:
            return found
        return found if is_last(found.value, node) else None

    def _scan(self, node: Node) -> _Tail | None:
        found = self.tails.get(node.args[0])
        if found is None:
            return None
        if normalize_axis(node.bound["axis"], node.type.rank) != found.axis:
            return _Tail(found.axis)
        return _Tail(found.axis) if _may_be_one(found.value, node.target.combines) else None

    def _reduction(self, node: Node) -> _Tail | None:
        found = self.tails.get(node.args[0])
        reduced = _reduced(node)
        if found is None or found.axis in reduced or node.target.name not in COMBINATIONS:
            return None
        keeps = bool(node.bound.get("keepdims"))
        return _Tail(found.axis - (0 if keeps else sum(axis < found.axis for axis in reduced)))

    # -- what may be shorter -----------------------------------------------------------------------
    def _short(self) -> set[Node]:
        """The values for which all readers need only one element after those that count."""
        short: set[Node] = set()
        results = first_elements(self.graph)
        for node in itertools.takewhile(lambda n: n is not self.places, reversed(self.graph.nodes)):
            if node in self.tails:
                if all(self._serves(node, user, short, results) for user in node.users):
                    short.add(node)
            elif node.op == "call_function" and (axis := self._need(node, short)) is not None:
                self.needed[node] = axis
        if all(self._serves(self.places, user, short, results) for user in self.places.users):
            short.add(self.places)
        return short

    def _need(self, node: Node, short: set[Node]) -> int | None:
        """The axis along which the readers of a value need no more elements than of the positions. Ops that may fail
        for an element fail for those that nobody needs, too."""
        if not node.users or not node.target.has_body or node.target.kind not in ("pointwise", "view", "contraction"):
            return None
        axes = [axis for axis, size in enumerate(node.type.shape) if shapes.equal(size, self.size)]
        if len(axes) != 1:
            return None
        (axis,) = axes
        for user in node.users:
            if user in short and user.target.kind == "pointwise":
                read = self.tails[user].axis - user.type.rank + node.type.rank
            elif user in self.needed:
                read = self.read[user].get(node)
            else:
                return None
            if read != axis:
                return None
        self.read[node] = self._along(node, axis)
        return axis if self.read[node] else None

    def _along(self, node: Node, axis: int) -> dict[Node, int]:
        """The operands of a value that are read along an axis, each with its own axis; empty if one is read there in
        another way."""
        space, index = loops_of(node.type)
        variable, found, fits = space[axis], dict[Node, int](), True

        def on_read(read: Node, at: MultiIndex) -> Load:
            nonlocal fits
            axes = [axis for axis, place in enumerate(at) if variable in place.variables()]
            if axes:
                fits &= (
                    len(axes) == 1
                    and at[axes[0]] == Index.of(variable)
                    and _has(read, axes[0] - read.type.rank, self.size)
                    and found.setdefault(read, axes[0]) == axes[0]
                )
            return Load(read.type.dtype, read.name, at)

        element_of(node, index, on_read)
        return found if fits else {}

    def _is_summed(self, node: Node, product: Node) -> bool:
        """Whether a product of matrices sums over the axis of this operand, and what follows the count adds nothing."""
        if product.target.kind != "contraction" or len(product.args) != 2 or product.args.count(node) != 1:
            return False
        tails = [self.tails.get(operand) for operand in product.args]
        read = self._summed_axes(product)
        if read is None or any(tail is None or tail.axis != axis for tail, axis in zip(tails, read)):
            return False
        values = [tail.value for tail in tails if tail is not None]
        return None not in values and bool(np.isfinite(values).all()) and 0 in values

    @staticmethod
    def _summed_axes(product: Node) -> tuple[int, int] | None:
        """The axes of both operands over which a product of matrices sums."""
        one, other = (operand.type.rank for operand in product.args)
        return (one - 1, other - 2) if product.target.name == "matmul" and min(one, other) > 1 else None

    def _serves(self, node: Node, user: Node, short: set[Node], results: Mapping[Node, list[tuple[int, Any]]]) -> bool:
        tail = self.tails[node]
        if user.op == "output":
            cuts = results.get(node, [])
            if shapes.product(node.type.shape[: tail.axis]) != 1:
                return False  # the stride of its rows is that of all elements
            return all(axis == tail.axis and self._is_at_most(count) for axis, count in cuts)
        if user.op != "call_function":
            return False
        kind, name = user.target.kind, user.target.name
        if name == "take" and user.args[0] is node:
            axis = normalize_axis(user.bound["axis"], node.type.rank)
            is_index = user.args[1] is node
            return axis == tail.axis and not is_index and isinstance(user.args[1], Node)
        if user in short:
            return kind != "pointwise" or bool(tail.axis - node.type.rank == self.tails[user].axis - user.type.rank)
        if user in self.needed:
            return self.read[user].get(node) == tail.axis
        if kind == "contraction":
            return self._is_summed(node, user)
        if kind == "reduction" and name in COMBINATIONS:
            return tail.axis in _reduced(user) and _may_be_one(tail.value, name)
        return kind == "scatter" and self._is_scattered(node, user)

    def _is_scattered(self, node: Node, user: Node) -> bool:
        """Whether a scatter of the value, or to the positions in it, gives the same result with fewer elements."""
        values, index, source = user.args[:3]
        axis, found = normalize_axis(user.bound["axis"], values.type.rank), self.tails.get(index)
        if node is values or found is None or found.axis != axis:
            return False
        if user.bound["mode"] == "drop" and found.value == NOWHERE:
            return True
        moved = self.tails.get(source)
        return moved is not None and moved.axis == axis and _may_be_one(moved.value, user.target.combines)

    # -- the program -------------------------------------------------------------------------------
    def shrink(self) -> dict[str, DataSize]:
        """Shorten the values that can be shorter; returns the sizes that they have then."""
        after = itertools.dropwhile(lambda n: n is not self.places, self.graph.nodes)
        self.tails[next(after)] = _Tail(0, self.beyond)
        for node in after:
            if node.op == "call_function":
                self._note(node)
        short = self._short()
        if not self._pays(short):
            return {}
        lowest = 0 if shapes.decide(self.size, ">=", 1) is not True else 1
        with self.graph._store.all_or_nothing():
            assert self.count is not None
            name = _free_name(self.graph, f"n_{self.count.name}")
            most = self.size if type(self.size) is int else None
            number = symbols.symbol(name, Facts(lowest, most))
            changed = [node for node in self.tails if node in short]
            readers = dict.fromkeys(user for node in (*changed, *self.needed) for user in node.users)
            for node in self.needed:
                self._narrow(node, number, short)
            for node in changed:
                self._shorten(node, number, short)
            for user in readers:
                if user.op == "call_function" and user.target.name == "take" and user.args[0] in short:
                    self._clip(user, number)
                elif user.op == "call_function" and user.target.kind == "scatter":
                    self._cut_all(user, number, short)
                elif user.op == "call_function" and user.target.kind == "contraction" and user not in self.needed:
                    self._cut_summed(user, number, short)
            retype(self.graph, self.places, [*changed, *self.needed, *readers])
            self.graph.eliminate_dead_code()
            count = self._counted()  # which no other node may read
        self.graph.guards = tuple(g for g in self.graph.guards if name not in shapes.names(g.left - g.right))
        return {name: DataSize(count, self.size)}

    def _narrow(self, node: Node, number: Dim, short: set[Node]) -> None:
        """Compute of a value only what its readers need."""
        read, axis, kwargs = self.read[node], self.needed[node], dict(node.kwargs)
        cut = {n: self._cut(n, a, number, node) for n, a in read.items() if n not in short and n not in self.needed}
        if "shape" in node.bound:
            shape = list(node.type.shape)
            shape[axis] = number
            kwargs["shape"] = tuple(shape)
        self.graph._store.assign(node, map_nodes(node.args, lambda n: cut.get(n, n)), stored_kwargs(kwargs))

    def _cut_summed(self, product: Node, number: Dim, short: set[Node]) -> None:
        """Cut the operand of a product that is not short."""
        axes = self._summed_axes(product)
        if axes is not None and any(operand in short for operand in product.args):
            pairs = zip(product.args, axes)
            args = tuple(n if n in short else self._cut(n, axis, number, product) for n, axis in pairs)
            self.graph._store.assign(product, args, product._kwargs)

    def _shorten(self, node: Node, number: Dim, short: set[Node]) -> None:
        axis, kwargs, args = self.tails[node].axis, dict(node.kwargs), list(node.args)
        if node.target.kind == "pointwise":
            below = axis - node.type.rank
            for place, operand in enumerate(args):
                if _has(operand, below, self.size) and operand not in short and operand not in self.needed:
                    args[place] = self._cut(operand, operand.type.rank + below, number, node)
        elif node is self.places:
            kwargs["size"] = number
        elif node.target.name == "take" and args[1] not in short:
            args[1] = self._cut(args[1], args[1].type.rank - 1, number, node)
        elif node.target.kind == "view" and args[0] in self.tails and args[0] not in short:
            args[0] = self._cut(args[0], self.tails[args[0]].axis, number, node)
        if node.target.kind == "view" and "shape" in node.bound:
            shape = list(node.type.shape)
            shape[axis] = number
            kwargs["shape"] = tuple(shape)
        self.graph._store.assign(node, tuple(args), stored_kwargs(kwargs))

    def _cut_all(self, scatter: Node, number: Dim, short: set[Node]) -> None:
        """Cut the operands of a scatter that are not short."""
        axis = normalize_axis(scatter.bound["axis"], scatter.type.rank)
        args = [
            self._cut(each, axis, number, scatter) if n in (1, 2) and each not in short else each
            for n, each in enumerate(scatter.args)
        ]
        self.graph._store.assign(scatter, tuple(args), scatter._kwargs)

    def _cut(self, operand: Node, axis: int, number: Dim, reader: Node) -> Node:
        """The first elements of an array, for a reader that needs no more."""
        with self.graph.inserting_before(reader), self.graph.with_origin(reader):
            if _counts(operand):
                attributes = {"start": 0, "stop": number, "dtype": operand.type.dtype.name}
                return self.graph.call_function(lookup("arange"), (), attributes)
            return self.graph.call_function(lookup("slice"), (operand,), {"axis": axis, "stop": number})

    def _clip(self, reader: Node, number: Dim) -> None:
        """Redirect a read at a position after the count to the element that stays there; a position that
        is out of range is an error as before."""
        values, index = reader.args
        call = self._call
        with self.graph.inserting_before(reader), self.graph.with_origin(reader):
            whole = self._number(self.size)
            place = call("where", call("lt", index, 0), call("add", index, whole), index)
            there = call("logical_and", call("ge", place, 0), call("lt", place, whole))
            place = call("minimum", place, self._number(shapes.normalize(number - 1)))
            place = call("where", there, place, whole)
        self.graph._store.assign(reader, (values, place), reader._kwargs)

    def _call(self, name: str, *args: Any, **attributes: Any) -> Node:
        return self.graph.call_function(lookup(name), args, attributes)

    def _number(self, value: Dim) -> Any:
        """A size as an operand."""
        return self._call("full", shape=(), value=value, dtype="i64") if shapes.names(value) else value


class _Prefix(_Selection):
    """The positions below a number, and everything computed from the mask of these."""

    beyond = False

    def _counted(self) -> Node:
        number, size = self.count, self.size
        with self.graph.inserting_before(self.places), self.graph.with_origin(self.places):
            if self.places.target.symbol in ("<=", ">="):
                last = self._call("minimum", number, self._number(shapes.normalize(size - 1)))
                return self._call("relu", self._call("add", last, 1))
            return self._call("relu", self._call("minimum", number, self._number(size)))

    def _is_at_most(self, value: Any) -> bool:
        return super()._is_at_most(value) and self.places.target.symbol in ("<", ">")

    def _is_nonnegative(self, value: Any) -> bool:
        return value is not self.count and super()._is_nonnegative(value)

    def _pays(self, short: set[Node]) -> bool:
        """Whether a product is computed in part: loops of other values leave out what a mask excludes by themselves."""
        users = {user for node in short for user in node.users}
        return any(n.op == "call_function" and n.target.kind == "contraction" for n in (*self.needed, *users))


#: What is equal of a result, by the name of an op or its kind.
_RULES: Mapping[str, Callable[[_Selection, Node], _Tail | None]] = {
    "pointwise": _Selection._pointwise,
    "reduction": _Selection._reduction,
    "scan": _Selection._scan,
    "view": _Selection._view,
    "take": _Selection._take,
    "sort": _Selection._sort,
}


def _first_places(node: Node) -> Node | None:
    """The number that bounds the places at which a mask is true: ``arange(n) < number``; None for others."""
    if node.op != "call_function" or node.target.symbol not in ("<", "<=", ">", ">=") or node.type.rank != 1:
        return None
    one, other = node.args if node.target.symbol in ("<", "<=") else node.args[::-1]
    is_number = isinstance(other, Node) and other.type.rank == 0 and other.type.dtype.name == "i64"
    return other if is_number and _counts(one) else None


def _count_of(mask: Node) -> Node | None:
    """The node that counts the true elements of a mask."""
    for user in mask.users:
        if user.op == "call_function" and user.target.name == "cast" and user.type.dtype.name == "i64":
            for reader in user.users:
                if reader.op == "call_function" and reader.target.name == "sum" and reader.type.rank == 0:
                    return reader
    return None


def _counts(value: Any) -> bool:
    """Whether a value counts upwards from 0 in integers."""
    if not isinstance(value, Node) or not value.type.dtype.is_integer:
        return False
    owner = value.graph.owning_module
    if value.op == "get_attr" and owner is not None and value.type.rank == 1:
        return bool(np.array_equal(owner.get_attribute(value.target), np.arange(value.type.shape[0])))
    if value.op != "call_function" or value.target.name != "arange":
        return False
    return bool(value.bound["start"] == 0 and value.bound["stop"] is not None and value.bound["step"] == 1)


def _has(value: Any, axis: int, size: Dim) -> bool:
    """Whether a value has this size along an axis counted from the end."""
    if not isinstance(value, Node) or not isinstance(value.type, TensorType):
        return False
    return value.type.rank >= -axis and shapes.equal(value.type.shape[axis], size)


def _number(value: Any) -> Any:
    """The number that a one-element operand is, if it is known."""
    if not isinstance(value, Node):
        return None if isinstance(value, shapes.NamedDim) else value
    owner = value.graph.owning_module
    return (
        owner.get_attribute(value.target).item() if value.op == "get_attr" and not value.type.rank and owner else None
    )


def _absorbed(node: Node, axis: int, operands: Mapping[str, _Tail | None]) -> _Tail | None:
    """The tail if one operand decides it, whatever the others are."""
    name = node.target.name
    if name == "where":
        condition, x, y = (operands[part] for part in ("condition", "x", "y"))
        if condition is not None and condition.value is not None:
            chosen = x if condition.value else y
            return None if chosen is None else _Tail(axis, _computed_as(node, chosen.value))
        if condition is not None and x is not None and y is not None and x.value is not None and x.value == y.value:
            return _Tail(axis, _computed_as(node, x.value))
        return None
    if len(operands) != 2 or any(n.type.dtype.name != "bool" for n in (node, *node.all_input_nodes)):
        return None
    for name, tail in operands.items():
        if tail is not None and tail.value is not None:
            (other,) = operands.keys() - {name}
            one, two = (bool(node.target(**{name: bool(tail.value), other: value})) for value in (False, True))
            if one is two:
                return _Tail(axis, one)
    return None


def _computed_as(node: Node, value: Any) -> Any:
    return None if value is None else node.type.dtype.numpy.type(value)


def _computed(node: Node, values: Mapping[str, Any]) -> Any:
    """The result of an op on numbers, if all of them are known."""
    if any(value is None for value in values.values()):
        return None
    given = dict(node.bound)
    for name, value in values.items():
        operand = given[name]
        given[name] = operand.type.dtype.numpy.type(value) if isinstance(operand, Node) else value
    with np.errstate(all="ignore"):
        return np.asarray(node.target(**given))[()]


def _may_be_one(value: Any, combination: str) -> bool:
    """Whether combining several equal elements of a value gives the same as one of them."""
    found = COMBINATIONS.get(combination)  # None if the last one stays
    return found is None or not found.counts_all or (value is not None and bool(value == found.neutral))


def is_last(value: Any, node: Node) -> bool:
    """Whether no element comes after a value in sorting order."""
    if value is None:
        return False
    kind = node.type.dtype
    return bool(np.isnan(value)) if kind.is_float else bool(value == COMBINATIONS["min"].start(kind))


def _reduced(node: Node) -> tuple[int, ...]:
    axis, rank = node.bound["axis"], node.args[0].type.rank
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(normalize_axis(each, rank) for each in axes)


def first_elements(graph: Graph) -> dict[Node, list[tuple[int, Any]]]:
    """For each node, and each time that it is a result, the axis along which only its first elements count, and how
    many do. The axis is -1, which does not exist, if all elements count, or only the first along several axes."""
    found: dict[Node, list[tuple[int, Any]]] = {}
    for value, cuts in pytree.result_leaves(graph):
        if isinstance(value, Node):
            found.setdefault(value, []).append(cuts[0] if len(cuts) == 1 else (-1, None))
    return found


def _free_name(graph: Graph, name: str) -> str:
    taken = {node.name for node in graph.nodes} | {d for n in graph.nodes for d in _names(n)}
    return next(name + "_" * n for n in itertools.count() if name + "_" * n not in taken)


def _names(node: Node) -> Iterator[str]:
    if isinstance(node.type, TensorType):
        yield from shapes.names(node.type.shape)
