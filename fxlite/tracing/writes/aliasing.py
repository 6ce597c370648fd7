"""Aliasing: the effect of a write into a traced value on the values that share its memory.

With arrays, a write through a view changes its base and all other views of it. A graph only has values. So each value
that owns memory is the root of a tree of the views that the program made. A write makes a new value for the root, by
inverting the chain of views step by step, and views are derived again when the program next reads them.

In: the trees of views of :mod:`fxlite.tracing.writes.shared_memory`, and writes (:func:`write`). Out: nodes, so that
the traced function returns what the program returns for arrays. An error is raised for writes into memory of the
caller (inputs, weights, constants), and for reads or writes whose result depends on whether NumPy made a view or a
copy, if that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import TraceError
from fxlite.base.state import is_traced
from fxlite.ops.op import Op, lookup, normalize_axis
from fxlite.tracing.selections.spans import at_least, at_most
from fxlite.tracing.writes.shared_memory import (
    Layout,
    Memory,
    Tie,
    View,
    attach_whole,
    contiguous,
    copied,
    fresh,
    is_contiguous,
    leave_in_doubt,
    name_in_program,
    node_layout,
    reshaped,
    root_of,
    view_layout,
    view_of,
)
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


_COPY = "copy it first: {0} = {0}.copy()"


# -- reading ---------------------------------------------------------------------------------------
def current_node(view: View, tracer: Tracer, asked: View | None = None) -> Node:
    """The node of the current value of a view. If a write has changed its base, the node is made now. ``asked``: the
    value of the program that is read, which may be this one.

    Raises TraceError if the value depends on what NumPy does, and that is not known."""
    count = tracer.writes.count
    chain: list[View] = []
    at: View | None = view
    while at is not None and at.seen != count:
        chain.append(at)
        at = at.parent
    for v in reversed(chain):
        parent = v.parent
        if parent is None:
            assert v.memory is not None
            if v.memory.doubt:
                name = name_in_program(asked or view)
                raise tracer.error(
                    f"the value of {name} is not known: {v.memory.doubt}",
                    f"copy it where it gets its name: {name} = ....copy()",
                    v.node,
                )
        elif v.ties:
            _follow(v, tracer, asked or view)
        elif parent.node is not v.source:
            shares = _shares_memory(v, tracer)
            if shares is None:
                raise tracer.error(
                    f"{v.node.name} may or may not share memory with {parent.node.name}, which was written to since",
                    _COPY.format("y") + " before one of them is written to",
                    v.node,
                )
            if shares:
                assert v.op is not None
                v.source = parent.node
                with tracer.recording_into(parent.node.graph):
                    v.node = _call(tracer, v.op, (parent.node,), v.attributes)
            else:
                v.detach()
        v.seen = count
    return view.node


def _follow(view: View, tracer: Tracer, asked: View) -> None:
    """Derive a value that is one of several arrays again if one of these has changed."""
    parent = view.parent
    assert parent is not None
    nodes = [current_node(tie.view, tracer, asked) for tie in view.ties]
    if parent.node is view.source and all(tie.source is node for tie, node in zip(view.ties, nodes)):
        return
    view.source = parent.node  # before anything is recorded, which may read the value
    for tie, node in zip(view.ties, nodes):
        tie.source = node
    given = {id(node.graph) for node in (parent.node, *nodes, *(tie.chooser for tie in view.ties))}
    graphs = [*(body.outer for body in tracer.bodies), tracer.graph]
    with tracer.recording_into(next(graph for graph in reversed(graphs) if id(graph) in given)):
        found = parent.node
        for tie, node in zip(reversed(view.ties), reversed(nodes)):
            operands = () if tie.number is None else (_truth(tracer, tie), node, found)
            found = _call(tracer, lookup("where"), operands, {}) if operands else node
    view.node = found


def _truth(tracer: Tracer, tie: Tie) -> Node:
    """Whether a value is the view of a tie."""
    if tie.chooser.type.dtype is not dtypes.bool_:
        position = _call(tracer, lookup("remainder"), (tie.chooser, tie.size), {}) if tie.size else tie.chooser
        return _call(tracer, lookup("eq"), (position, tie.number), {})
    return tie.chooser if tie.number else _call(tracer, lookup("logical_not"), (tie.chooser,), {})


def number_of_tie(tracer: Tracer, ties: Sequence[Tie], numbers: Sequence[int]) -> Node:
    """The number of the tie that a value is, of those that are given for them; -1 for none."""
    found: Any = -1
    for number, tie in reversed([*zip(numbers, ties, strict=True)]):
        found = number if tie.number is None else lookup("where")(tracer.proxy(_truth(tracer, tie)), number, found)
    return found.node if is_traced(found) else lookup("full")((), found, dtypes.int64).node


def _check_tied(tracer: Tracer, view: View, what: str, asked: View) -> None:
    """Raise TraceError if ``view`` is one of several arrays of which some may be the same one: what a write changes is
    then not known."""
    found: set[Memory] = set()
    stack = [view]
    while stack:
        for tie in stack.pop().ties:
            at: View | None = tie.view
            while at is not None:
                if at.memory is not None:
                    found.add(at.memory)
                if at.ties:
                    stack.append(at)
                at = at.parent
    if not all(found.isdisjoint(memory.kin) for memory in found):
        name = name_in_program(asked)
        message = f"{what} changes {name}, which is one of several arrays, and two of them may or may not be the same"
        raise tracer.error(message, _COPY.format(name), asked.node)


def _write_tied(tracer: Tracer, view: View, what: str, asked: View) -> None:
    """Write the new value of ``view``, which is one of several arrays, into the one that it is. ``asked``: the value
    into which the program writes."""
    parent, new = view.parent, view.node
    assert parent is not None
    _replace(tracer, [parent], {0: new}, given=None)
    view.source = new
    for tie in view.ties:
        others = view.ties[:-1] if tie.number is None else (tie,)

        def changed(node: Node, tie: Tie = tie, others: Sequence[Tie] = others) -> Node:
            if tie.number is not None:
                return _call(tracer, lookup("where"), (_truth(tracer, tie), new, node), {})
            found = new
            for other in others:
                found = _call(tracer, lookup("where"), (_truth(tracer, other), node, found), {})
            return found

        target = tracer.proxy(tie.view.node)
        target._view = tie.view
        write(target, changed, what=what, asked=asked)
        tie.source = tie.view.node


def _call(tracer: Tracer, op: Op, args: tuple[Any, ...], attributes: Mapping[str, Any]) -> Node:
    given = {name: tracer.local(v) if hasattr(v, "all_input_nodes") else v for name, v in attributes.items()}
    return tracer.create_proxy("call_function", op, args, given)._node


def _shares_memory(view: View, tracer: Tracer) -> bool | None:
    """Whether a view of its parent is a view in NumPy, too; None if that is not known."""
    if view.ties:
        return True
    if view.op is None or view.parent is None:
        return None
    if view.op.shares_memory != "contiguous":
        return True
    old, new = view.parent.node.type, view.node.type
    if not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return None
    layout = _layout(view.parent, tracer)
    if view.is_whole:
        shares = None if layout is None else is_contiguous(layout, old.shape)
    elif _moves_ones(old.shape, new.shape):
        return True
    else:
        shares = reshaped(layout, old.shape, new.shape)[0]
    if shares is not None:
        take_order_for_granted(view.parent, tracer)
    return shares


def take_order_for_granted(view: View, tracer: Tracer, always: bool = False) -> None:
    """Record that a decision depends on the layout of a value: the layouts of the inputs from which it comes then
    become conditions of a call, once for each memory. ``always``: even if nothing is written."""
    root, orders, asked = root_of(view), tracer.writes.orders, tracer.writes.asked
    kind = "dense" if root.made is not None and root.made.op == "placeholder" and not root.copied else "C"
    if root.made is None or (root.made, kind) in asked:
        return
    asked.add((root.made, kind))
    stack, seen = [root.made], {root.made}
    while stack:
        node = stack.pop()
        if not isinstance(node.type, TensorType) or node.type.rank < 2:
            continue
        if node.op == "placeholder":
            if kind == "dense" or node.target not in orders:
                orders[node.target] = kind, "" if always else str(tracer.place() or "")
        elif node.op == "call_function" and not node.target.is_matrix_product:
            found = [n for n in node.all_input_nodes if n not in seen]
            seen.update(found)
            stack += found


def layout_of(proxy: Proxy) -> Layout | None:
    """The layout that a value has in NumPy; None if it is not known."""
    view, writes = proxy._view, proxy.tracer.writes
    if view is None:
        return node_layout(proxy._node, writes.written, writes.layouts)
    return _layout(view, proxy.tracer)


def laid_out(x: Proxy, order: str | None, copies: bool = False) -> Proxy:
    """A value whose elements are in row-major ("C") or column-major ("F") order in memory, as from
    ``np.ascontiguousarray``: the value itself if it has that order and ``copies`` is False, else a copy."""
    order, rank = (order or "K").upper(), x.type.rank
    if order not in ("C", "F") or not rank:
        return fresh(x) if copies else x
    axes = tuple(reversed(range(rank)))
    turned: Proxy = lookup("permute")(x, axes) if order == "F" and rank > 1 else x
    if copies:
        made = fresh(turned, in_c_order=True)
    else:
        made = attach_whole(x.tracer.proxy(turned.node), turned)
    return made if turned is x else lookup("permute")(made, axes)


def _moves_ones(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """True if only axes of size 1 come or go, which NumPy does without a copy in any layout."""
    before, after = ([d for d in shape if not (type(d) is int and d == 1)] for shape in (old, new))
    return shapes.shapes_equal(before, after)


def _layout(view: View, tracer: Tracer) -> Layout | None:
    chain: list[View] = []
    while view.parent is not None:
        chain.append(view)
        view = view.parent
    writes = tracer.writes
    if not isinstance(view.node.type, TensorType):
        return None
    if writes.arrays != len(tracer._attributes):
        writes.arrays = len(tracer._attributes)
        for node, array in tracer._attributes.values():
            if not np.asarray(array).flags.c_contiguous:
                writes.written[node] = None
    if view.made is None:
        found: Layout | None = contiguous(view.node.type.shape)
    else:
        found = node_layout(view.made, writes.written, writes.layouts)
        if view.copied:
            found = copied(found, view.node.type.shape)
    before = view.node.type
    for v in reversed(chain):
        if v.ties:
            layouts = [_layout(tie.view, tracer) for tie in v.ties]
            found = layouts[0] if all(one == layouts[0] for one in layouts) else None
            before = v.node.type
            continue
        if v.op is None:
            return None
        found = view_layout(found, v.op, v.attributes, before, v.node.type)
        before = v.node.type
        if v.is_whole and isinstance(before, TensorType):
            found = contiguous(before.shape)
    return found


# -- writing ---------------------------------------------------------------------------------------
#: A view op that is not recorded: the op, its attributes and the type of its result.
Step = tuple[Op, Mapping[str, Any], TensorType]


def write(
    proxy: Proxy, value: Any, steps: Sequence[Step] = (), what: str = "writing in place", asked: View | None = None
) -> None:
    """Write ``value`` into the memory of the part of ``proxy`` that ``steps`` select. ``value`` is a node or number
    that can be broadcast to this part and has its dtype, or a function that makes such a node from the node of the
    current value. ``asked``: for messages, the value into which the program writes; by default that of ``proxy``.

    Raises TraceError if the program must not write there, or if it is not known which values change."""
    tracer = proxy.tracer
    asked = asked or view_of(proxy)
    chain = _writable_chain(proxy, what, asked)
    tied = chain.pop(0) and chain[0] if len(chain) > 1 and chain[1].ties else None
    if tied is not None:
        _check_tied(tracer, tied, what, asked)
    views: list[View | None] = [*chain, *[None] * len(steps)]
    types: list[Any] = [v.node.type for v in chain] + [step[2] for step in steps]
    ops: list[tuple[Op, Mapping[str, Any]]] = [(v.op, v.attributes) for v in chain[1:]]  # type: ignore[misc]
    ops += [(op, attributes) for op, attributes, _ in steps]
    if ops and not all(isinstance(t, TensorType) for t in types):
        raise tracer.untyped(f"{what} through a view needs types")
    at_part = next((n for n, (op, _) in enumerate(ops) if op.shares_memory == "parts"), None)
    if at_part is not None:  # complex numbers have the same elements as their parts
        if any(op is lookup("bitcast") for op, _ in ops[at_part:]):
            raise tracer.error(f"{what} changes bits of real or imaginary parts", "change the numbers", proxy.node)
        value, kind = _of_numbers(tracer, ops.pop(at_part)[0], value), types[at_part].dtype
        types[at_part + 1 :] = [TensorType(t.shape, kind) for t in types[at_part + 2 :]]
        views[at_part + 1 :] = [None] * (len(types) - at_part - 1)
        del chain[at_part + 1 :]
    nodes: dict[int, Node] = {level: v.node for level, v in enumerate(chain)}

    def present(level: int) -> Node:
        start = max(known for known in nodes if known <= level)
        for n in range(start, level):
            nodes[n + 1] = _call(tracer, ops[n][0], (nodes[n],), ops[n][1])
        return nodes[level]

    level = len(ops)
    new = value(present(level)) if callable(value) else value
    done: dict[int, Node] = {}
    if _has_shape(new, types[level]):
        done[level] = new
    while level:
        first, at, turned = folded(tracer, ops, types, level)
        if first < level:
            if turned:
                new = _call(tracer, lookup("permute"), (_fitted(tracer, new, types[level]),), {"axes": turned})
            new = updated(tracer, present(first), new, at)
            level = first
        else:
            done[level] = new = _fitted(tracer, new, types[level])
            level -= 1
            new = _call(tracer, *undo_step(*ops[level], types[level], new))
        done[level] = new
    done[0] = _fitted(tracer, new, types[0])
    _replace(tracer, views, done, given=value)
    if tied is not None:
        _write_tied(tracer, tied, what, asked)


def _of_numbers(tracer: Tracer, part: Op, value: Any) -> Callable[[Node], Node]:
    """A function from complex numbers to those in which one ``part`` is replaced by ``value``."""

    def changed(node: Node) -> Node:
        new = value(_call(tracer, part, (node,), {})) if callable(value) else value
        is_real = part is lookup("real")
        other = _call(tracer, lookup("imag") if is_real else lookup("real"), (node,), {})
        return _call(tracer, lookup("complex"), (new, other) if is_real else (other, new), {})

    return changed


def updated(tracer: Tracer, node: Node, new: Any, at: Sequence[Any]) -> Node:
    """``node`` with ``new`` written ``at`` ints, slices, nodes of computed numbers, and windows."""
    if any(map(_is_window, at)):
        return _with_windows(tracer, node, new, at)
    positions = tuple(tracer.local(part) for part in at if hasattr(part, "all_input_nodes"))
    known = tuple(None if hasattr(part, "all_input_nodes") else part for part in at)
    if not positions:
        return _call(tracer, lookup("slice_update"), (node, new), {"at": known})
    op, given = lookup("index_update"), {"values": new, "positions": positions, "at": known}
    target, bound = op.canonicalize(op.bind((), {"x": tracer.local(node), **given}))
    args, attributes = target.split_arguments(bound)
    return tracer.create_proxy("call_function", target, args, attributes)._node


def _with_windows(tracer: Tracer, node: Node, new: Any, at: Sequence[Any]) -> Node:
    """``node`` with ``new`` written ``at`` windows and numbers on adjacent axes, by a scatter along these, which become
    one axis. All other axes are whole."""
    kind = node.type
    axes = [axis for axis, part in enumerate(at) if not isinstance(part, tuple)]
    before, after = kind.shape[: axes[0]], kind.shape[axes[-1] + 1 :]
    places: Any = None
    for axis in axes:
        place, size = at[axis], kind.shape[axis]
        if type(place) is int and place < 0:
            place = shapes.normalize(size + place)
        is_node = hasattr(place, "all_input_nodes")
        place = tracer.proxy(tracer.local(place)) if is_node else shapes.for_user(place)
        if is_node and len(axes) > 1:  # checks the range, and counts from 0; a scatter along one axis does so itself
            place = lookup("take")(lookup("arange")(0, shapes.for_user(size), 1, dtypes.int64), place)
        if _is_window(at[axis]) and is_traced(places):
            places = lookup("unsqueeze")(places, -1)
        places = place if places is None else places * shapes.for_user(size) + place
    lengths = tuple(part.type.shape[0] for part in at if _is_window(part))
    written = (*before, shapes.product(lengths), *after)
    index = _shaped(places, tuple(n if a == len(before) else 1 for a, n in enumerate(written)))
    index = index if shapes.shapes_equal(index.type.shape, written) else lookup("expand")(index, written)
    values = tracer.proxy(_fitted(tracer, new, TensorType((*before, *lengths, *after), kind.dtype)))
    flat = _shaped(tracer.proxy(node), (*before, shapes.product(kind.shape[axes[0] : axes[-1] + 1]), *after))
    made = lookup("scatter_set")(flat, index, _shaped(values, written), axis=len(before))
    return _shaped(made, kind.shape).node  # type: ignore[no-any-return]


def _shaped(value: Any, shape: Any) -> Any:
    return value if shapes.shapes_equal(value.type.shape, shape) else lookup("reshape")(value, shape)


def _replace(tracer: Tracer, views: Sequence[View | None], done: Mapping[int, Node], given: Any) -> None:
    """Set the new values of the views on the path of a write. ``given`` is the written node, which may also stand for
    another value of the program."""
    writes = tracer.writes
    for level, node in done.items():
        view = views[level]
        if view is None:
            continue
        layout = _layout(view, tracer)
        if node is given and node_layout(node, writes.written, writes.layouts) != layout:
            layout = None
        writes.written[node] = layout
        view.node = node
        if level and level - 1 in done:
            view.source = done[level - 1]
    writes.count += 1


def replace_root(tracer: Tracer, root: View, node: Node) -> None:
    """Replace the whole value of the memory of ``root``, after a branch or loop."""
    if tracer.bodies:
        tracer.bodies[-1].may_write(root)
    _replace(tracer, [root], {0: node}, given=None)


def _writable_chain(proxy: Proxy, what: str, asked: View) -> list[View]:
    """The views from the memory that a write changes to that of the proxy, each with its current node."""
    tracer = proxy.tracer
    view = view_of(proxy)
    current_node(view, tracer, asked)
    chain = [view]
    while chain[-1].parent is not None:
        v = chain[-1]
        shares = _shares_memory(v, tracer)
        if shares is None:
            base = root_of(chain[-1].parent).memory
            assert base is not None
            if base.refusal:
                raise _refused(tracer, what, v.node, f"may share memory with a value that {base.refusal}")
            leave_in_doubt(
                tracer,
                base.family,
                f"{v.node.name} was written to, and may or may not share its memory (NumPy makes a view or a copy, "
                "depending on the layout)",
            )
        if not shares:
            v.detach()
            break
        chain.append(v.parent)  # type: ignore[arg-type]
    chain.reverse()
    memory = chain[0].memory
    assert memory is not None
    if memory.refusal:
        name = chain[0].node.name
        reason = memory.refusal
        if len(chain) > 1:
            reason = f"shares memory with {name}, which {reason}"
        raise _refused(tracer, what, view.node, reason, name)
    if tracer.bodies and not tracer.bodies[-1].may_write(chain[0]):
        name = chain[0].node.name
        raise tracer.error(
            f"{what} changes {name}, a value from outside of {tracer.bodies[-1].what}",
            f"let the loop carry it: start with {name}, and return what it becomes; or write into a copy",
            view.node,
        )
    if any(v.op is not None and v.op.name == "expand" for v in chain):
        raise _refused(tracer, what, view.node, "is broadcast: NumPy makes it read-only")
    if any(v.read_only for v in chain):
        raise _refused(tracer, what, view.node, "NumPy makes read-only (of a diagonal, see np.fill_diagonal)")
    if memory.kin:
        why = f"{name_in_program(asked)} was written to, and may or may not share its memory; see {tracer.place()}"
        leave_in_doubt(tracer, memory.kin, why)
    return chain


def _refused(tracer: Tracer, what: str, node: Node, reason: str, name: str = "") -> TraceError:
    return tracer.error(f"{what} changes {node.name}, which {reason}", _COPY.format(name or node.name), node)


def _has_shape(value: Any, type: Any) -> bool:
    found = getattr(value, "type", None)
    if found is None:
        return hasattr(value, "op")  # a node in a trace without types
    return isinstance(type, TensorType) and shapes.shapes_equal(found.shape, type.shape)


def _fitted(tracer: Tracer, value: Any, type: Any) -> Node:
    """A value as a node of exactly that type."""
    if _has_shape(value, type):
        return value  # type: ignore[no-any-return]
    if isinstance(value, dtypes.NUMBERS):
        attributes = {"shape": type.shape, "value": value, "dtype": type.dtype}
        node = _call(tracer, lookup("full"), (), attributes)
    else:
        node = _call(tracer, lookup("expand"), (value,), {"shape": type.shape})
    tracer.require_sizes(node)
    return node


# -- inverses of steps from a value to a view ------------------------------------------------------
#: The longest chain of slices of slices that is written in one step; longer ones are written in several.
_MOST_FOLDED = 8


def undo_step(
    op: Op, attributes: Mapping[str, Any], before: TensorType, new: Any
) -> tuple[Op, tuple[Any, ...], dict[str, Any]]:
    """The call that computes the value of type ``before`` for which ``op`` gives ``new``."""
    if op.shares_memory == "contiguous":
        return lookup("reshape"), (new,), {"shape": before.shape}
    if op is lookup("bitcast"):
        return op, (new,), {"dtype": before.dtype}
    if op.name == "permute":
        axes = [normalize_axis(a, before.rank) for a in attributes["axes"]]
        inverse = tuple(axes.index(a) for a in range(before.rank))
        return op, (new,), {"axes": inverse}
    assert op.inverse is not None, op
    rank = before.rank + max(op.added_axes, 0)
    axis = normalize_axis(attributes["axis"], rank)
    return lookup(op.inverse), (new,), {"axis": axis}


def folded(
    tracer: Tracer, ops: Sequence[tuple[Op, Mapping[str, Any]]], types: Sequence[Any], end: int
) -> tuple[int, tuple[Any, ...], tuple[int, ...]]:
    """The longest run of slices, selects and permutations that ends at level ``end`` and is a single part of the value
    at level ``first``: (first, ``at`` for slice_update, the axes of the part in their order in the value); first is
    ``end`` if there is none, and the axes are () if they are in that order."""
    first, found = end, None
    while first and end - first < _MOST_FOLDED and _is_part(*ops[first - 1]):
        part = _part(tracer, ops[first - 1 : end], types[first - 1 : end])
        if part is None:
            break
        first, found = first - 1, part
    if found is None or all(op.name == "permute" for op, _ in ops[first:end]):
        return end, (), ()
    at, inside, turned = found
    for axis, (start, step) in inside.items():
        place = tracer.proxy(tracer.local(at[axis]))
        place = place if step == 1 else lookup("mul")(place, step)
        at[axis] = (place if type(start) is int and start == 0 else lookup("add")(place, shapes.for_user(start))).node
    return first, tuple(at), turned


def _is_part(op: Op, attributes: Mapping[str, Any]) -> bool:
    """Whether an op is a slice, a select, a permutation, or a take at a computed number or of a window."""
    return bool(op.starts_at) or op.name == "permute" or hasattr(attributes.get("index"), "all_input_nodes")


def _is_window(part: Any) -> bool:
    """Whether a part of an axis is computed positions one after the other, and not a number."""
    return hasattr(part, "all_input_nodes") and bool(part.type.shape)


def _is_inside(tracer: Tracer, place: Node, size: Dim) -> bool:
    """Whether a computed number or window is known to be inside of an axis."""
    first, count = (place.args[0], place.type.shape[0]) if _is_window(place) else (place, 1)
    return at_least(tracer, first, 0) and at_most(tracer, first, shapes.normalize(size - count))


def _part(
    tracer: Tracer, ops: Sequence[tuple[Op, Mapping[str, Any]]], types: Sequence[TensorType]
) -> tuple[list[Any], dict[int, tuple[Dim, int]], tuple[int, ...]] | None:
    """A run of slices, selects and permutations as a single subscript of the value of type ``types[0]``; the starts
    and steps of slices in which it has computed numbers, by axis; and the axes as :func:`folded` gives them. None if
    the bounds cannot be combined."""
    from fxlite.ops.slicing import slice_bounds

    whole = (0, None, 1)
    at: list[Any] = [whole] * types[0].rank
    inside: dict[int, tuple[Dim, int]] = {}
    axes = [*range(types[0].rank)]  # for each axis of the part, that of the value
    for (op, attributes), before in zip(ops, types):
        if op.name == "permute":
            axes = [axes[a] for a in attributes["axes"]]
            continue
        position = normalize_axis(attributes["axis"], before.rank)
        axis, size = axes[position], before.shape[position]
        if not isinstance(at[axis], tuple):
            return None
        start, _, step = at[axis]
        if not op.starts_at:  # a take at a computed number, or a window
            if at[axis] != whole:
                if not _is_inside(tracer, attributes["index"], size):
                    return None
                inside[axis] = start, step
            at[axis] = attributes["index"]
            if not _is_window(at[axis]):
                del axes[position]
            continue
        if op.name == "select":
            index = attributes["index"]
            if at[axis] != whole:
                if type(index) is int and index < 0:
                    index = shapes.normalize(size + index)
                index = shapes.normalize(start + index * step)
            at[axis] = index
            del axes[position]
            continue
        bounds = (attributes.get("start", 0), attributes.get("stop"), attributes.get("step", 1))
        if at[axis] == whole:
            at[axis] = bounds
            continue
        first, last, length = slice_bounds(size, *bounds)
        ints = all(type(v) is int for v in (start, first, last, length))
        if not ints and (step != 1 or bounds[2] != 1):
            return None
        begin = shapes.normalize(start + first * step)
        end = shapes.normalize(start + last * step)
        if ints:
            end = begin if length == 0 else begin + (length - 1) * step * bounds[2] + 1
        at[axis] = (begin, end, step * bounds[2])
    if any(map(_is_window, at)):
        single = [axis for axis, part in enumerate(at) if part != whole]
        if any(isinstance(at[axis], tuple) for axis in single) or single != [*range(single[0], single[-1] + 1)]:
            return None  # it is written in several steps
    turned = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    return at, inside, () if turned == tuple(range(len(axes))) else turned
