"""Type inference after edits: only the readers of values whose types changed get new types. Also finds
out which sizes contradict each other in a call that does not fit.

In: nodes to check. Out: correct types, with each change in the journal. The walk follows the list of
nodes from the first edit, skips nodes that no change reaches, and ends as soon as no change is left: an
edit whose effect ends ten nodes further visits ten nodes, not the whole graph.

In: the op and the arguments of a call whose type rule raised a ShapeError. Out: lines for the message,
such as ``y.shape[0] is 385: axis 2 of the input x``. No op declares in which axes its operands must
agree; two axes contradict each other if the call fits once either has the size of the other. This runs
only when an error is raised.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import Details, FxliteError, ShapeError
from fxlite.base.facade import above
from fxlite.graph.node import Node, map_nodes, nodes_in, stored_kwargs
from fxlite.graph.size_origin import Path, Place, operands, result_type, size_origin, with_sizes
from fxlite.ops.op import Op
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph
    from fxlite.graph.node import Node
    from fxlite.nn.module import Module


#: The most walks through the list of a graph in which values are read before they are computed: ``lint``
#: refuses such a graph, but edits may pass through one.
_MOST_ROUNDS = 8


def retype(graph: Graph, start: Node, waiting: Iterable[Node]) -> None:
    """Infer the types of the nodes in ``waiting``, which stand at ``start`` or after it, and of the nodes
    that depend on them. Raises what the type rules raise, with the name of the node."""
    open_nodes = set(waiting)
    node, rounds = start, 0
    while open_nodes:
        if node.op == "root":
            rounds += 1
            if rounds == _MOST_ROUNDS:
                return
        elif node in open_nodes:
            open_nodes.discard(node)
            if node.op == "call_function" and node.target.kind == "control":
                _fit_bodies(graph, node)
            new = _type_of(graph, node)
            if new != node.type:
                graph._store.set_field(node, "type", new)
                open_nodes.update(node.users)
        node = node._next


def _fit_bodies(graph: Graph, node: Node) -> None:
    """Give the inputs of a node's sub-graphs the types of its operands."""
    try:
        target, bound = node.target.canonicalize(node.arguments)
    except FxliteError as error:
        raise at_node(error, node) from None
    args, kwargs = target.split_arguments(bound)
    if kwargs != node._kwargs or args != node._args:
        graph._store.assign(node, args, stored_kwargs(kwargs))


def _type_of(graph: Graph, node: Node) -> Any:
    """The inferred type of a node; inputs, and nodes whose weight or module is missing, keep theirs."""
    try:
        if node.op in ("call_function", "output"):
            return graph._infer(node.op, node.target, node._args, node._kwargs)
        owner = graph.owning_module
        if owner is None or node.op == "placeholder":
            return node.type
        if node.op == "get_attr":
            return type_of(owner.get_attribute(node.target))
        return _type_of_leaf(owner.get_submodule(node.target), node)
    except AttributeError:
        if node.op in ("get_attr", "call_module"):
            return node.type  # lint reports the missing weight
        raise
    except FxliteError as error:
        raise at_node(error, node) from None


def _type_of_leaf(module: Module, node: Node) -> Any:
    """The type that a leaf module returns now, or the node's old type if it cannot be inferred."""
    if not all(isinstance(n.type, TensorType) for n in node.all_input_nodes):
        return node.type
    found = above("leaf_result_type")(module, node._args, dict(node._kwargs))
    return node.type if found is None else found


def infer_types(graph: Graph, inputs: Mapping[Node, Any], dims: Mapping[str, Dim]) -> None:
    """Give inputs other types and infer the types of all other nodes; on an error nothing changes.
    ``dims``: replacements for named dims that occur in calls. Raises what the type rules raise, with the
    name of the node."""
    with graph._store.all_or_nothing():
        for node, type in inputs.items():
            graph._store.set_field(node, "type", type)
            if isinstance(type, TensorType):
                _reserve_names(graph, shapes.names(type.shape))
        for node in graph.nodes if dims else ():
            if node.op == "call_function" and any(map(shapes.names, node._kwargs.values())):
                new = {name: shapes.substitute(v, dims) for name, v in node._kwargs.items()}
                graph._store.assign(node, node._args, stored_kwargs(new))
        retype(graph, graph._store.root._next, graph.nodes)


def _reserve_names(graph: Graph, names: frozenset[str]) -> None:
    """Rename values that have the name of a dim, because a dim and a value never share a name."""
    if not names.isdisjoint(graph._store.namer.taken):
        for node in graph.nodes:
            if node.name in names:
                graph.rename_node(node, f"{node.name}_1")
    graph._store.namer.taken |= names


#: The most operands of different types that are looked at, the most steps back to the origin of a size, and
#: the most lines about it: a message has to stay readable.
_MOST_OPERANDS, _MOST_STEPS, _MOST_LINES = 6, 1000, 4

# -- sizes that contradict each other --------------------------------------------------------------
Axis = tuple[Path, int]


def explained(error: ShapeError, op: Op, args: tuple[Any, ...], kwargs: Any) -> ShapeError:
    """The error of a call, with lines in its message and in ``details.origin`` that tell where the
    contradicting sizes come from."""
    try:
        lines = conflict_lines(op, args, kwargs)
    except Exception:  # a failing explanation must not hide the error itself
        lines = []
    if not lines:
        return error
    made = type(error)("\n  ".join([str(error), *lines]))
    made.details = Details(str(error), origin="\n".join(lines))
    return made


def at_node(error: FxliteError, node: Node) -> FxliteError:
    """The error with the name and line of the node whose type was inferred again: the edit that caused it
    may be somewhere else."""
    known = error.details or Details(str(error))
    lines = [known.problem, f"in {node.describe()}"]
    if node.loc is not None:
        lines.append(f"made at {node.loc}: {node.loc.expression}")
    made = type(error)("\n  ".join([*lines, *known.origin.splitlines()]))
    made.details = known
    return made


def conflict_lines(op: Op, args: tuple[Any, ...], kwargs: Any) -> list[str]:
    """A line for each of the contradicting sizes or, if no two sizes contradict each other, for the
    sizes of the operands. Empty for calls whose operands have no types."""
    if any(not isinstance(node.type, TensorType) for node in nodes_in(args)):
        return []
    typed = map_nodes(tuple(args), lambda node: node.type)
    axes, hint = conflict(op, typed, tuple(kwargs.items()))
    lines = []
    for path, axis in axes:
        value = args[path[0]]
        node = value if len(path) == 1 else value[path[1]]
        if isinstance(node, Node):
            lines.append(_line(op, path, Place(node, axis)))
    return [*lines, hint] if hint else lines


def _line(op: Op, path: Path, place: Place) -> str:
    name = list(op.tensor_kinds)[path[0]]
    part = f"[{path[1]}]" if len(path) > 1 else ""
    origin = size_origin(place.node, place.axis, most=_MOST_STEPS)
    return f"{name}{part}.shape[{place.axis}] is {place.size}: {origin.summary}"


@functools.lru_cache(maxsize=1024)
def conflict(op: Op, args: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...]) -> tuple[tuple[Axis, ...], str]:
    """The operands' axes that contradict each other, and an additional remark for the message."""
    types = dict(_different(args))
    every = [(path, axis) for path, type in types.items() for axis in range(type.rank)]

    def fits(new: dict[Any, Dim]) -> bool:
        return result_type(op, *with_sizes(args, attributes, new)) is not None

    def size(slot: Axis) -> Dim:
        return types[slot[0]].shape[slot[1]]

    factors = [v for _, v in attributes if type(v) is int and v > 1]  # such as the groups of conv2d

    def like(slot: Axis) -> Iterator[Dim]:
        yield size(slot)
        for factor in factors:
            yield shapes.normalize(size(slot) * factor)
            if type(size(slot)) is int and size(slot) % factor == 0:
                yield size(slot) // factor

    for number, one in enumerate(every):
        for other in every[number + 1 :]:
            if one[0] == other[0] or (shapes.equal(size(one), size(other)) and not factors):
                continue
            if any(fits({one: v}) for v in like(other)) and any(fits({other: v}) for v in like(one)):
                return (one, other), ""
    for one in every:  # one of three operands differs, or a size that is an argument of the call
        for other in every:
            known = [v for v in like(other) if not shapes.equal(v, 1)]
            if one[0] != other[0] and any(fits({one: v}) for v in known):
                return tuple(sorted((one, other))), ""
        for name, wanted in _written(attributes, types[one[0]], one[1]):
            if fits({one: wanted}):
                return (one,), f"{wanted} would fit {name}"
    for first, second in itertools.combinations(types, 2):  # several axes of the same two
        pairs = list(_unequal(first, types[first], second, types[second]))
        if pairs and fits({one: size(other) for one, other in pairs}):
            return tuple(itertools.chain.from_iterable(pairs[: _MOST_LINES // 2])), ""
    crowded = tuple(slot for slot in every if not shapes.equal(size(slot), 1))
    return crowded if len(crowded) <= _MOST_LINES else (), ""


def _unequal(first: Path, one: TensorType, second: Path, other: TensorType) -> Iterator[tuple[Axis, Axis]]:
    """Pairs of axes that broadcasting aligns and whose sizes do not fit."""
    for back in range(1, min(one.rank, other.rank) + 1):
        sizes = one.shape[-back], other.shape[-back]
        if not shapes.equal(*sizes) and not any(shapes.equal(size, 1) for size in sizes):
            yield (first, one.rank - back), (second, other.rank - back)


def _different(args: tuple[Any, ...]) -> Iterator[tuple[Path, TensorType]]:
    """The operands, but only one of each type: most of the thousand operands of a concat are alike."""
    seen: dict[TensorType, int] = {}
    for path, type in operands(args):
        seen[type] = seen.get(type, 0) + 1
        if seen[type] <= 1 or len(path) == 1:
            yield path, type
        if len(seen) >= _MOST_OPERANDS:
            return


def _written(attributes: tuple[tuple[str, Any], ...], type: TensorType, axis: int) -> Iterator[tuple[str, Dim]]:
    """Sizes of an axis that would fit the arguments of the call: an entry of a shape, the sum of parts,
    the number of elements of a shape."""
    others = shapes.product((*type.shape[:axis], *type.shape[axis + 1 :]))
    for name, value in attributes:
        if not isinstance(value, tuple) or not all(_is_size(v) for v in value):
            continue
        text = f"{name}=({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
        for entry in dict.fromkeys(value):
            yield text, entry
        yield text, shapes.normalize(sum(value))
        if not shapes.equal(others, 0):
            count = shapes.floordiv(shapes.product(value), others)
            if shapes.equal(count * others, shapes.product(value)):
                yield text, count


def _is_size(value: Any) -> bool:
    return type(value) is not bool and (
        (type(value) is int and value >= 0) or getattr(value, "is_nonnegative", False) is True
    )
