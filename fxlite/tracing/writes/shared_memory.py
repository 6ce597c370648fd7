"""Finds out which traced values share memory when the program runs on arrays, and the memory layout that they have in
NumPy.

In: view ops, copies and leaf calls, as they are recorded. Out: a tree of :class:`View` for each value that owns memory,
through which :mod:`fxlite.tracing.writes.aliasing` reads and writes. A value without views that is not written into has
no record.

A :class:`Layout` has the strides of a value in elements, as dims; it is None if they are not known. Inputs are assumed
to be C-contiguous, which compiled code ensures. Results of ops are C-contiguous if all operands are in C order, because
NumPy's ufuncs keep the order of their operands. Everything else is "not known", and never guessed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.base.location import is_own_file
from fxlite.base.state import is_traced
from fxlite.graph.graph import Node, map_nodes
from fxlite.ops.op import Op, lookup, normalize_axis
from fxlite.types import shapes
from fxlite.types.shapes import Dim, Shape
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


class Writes:
    """A tracer's facts about in-place writes: their number, and the layouts of nodes that have been computed.
    ``written``: the layouts of nodes that stand for memory that was written into. ``orders``: assumptions about inputs,
    as in :class:`~fxlite.graph.pytree.Interface`. ``asked``: the nodes for whose layouts these were made."""

    __slots__ = ("arrays", "asked", "count", "layouts", "orders", "written")

    def __init__(self) -> None:
        self.count = 0
        self.arrays = 0  # the number of weights and constants that were examined
        self.written: dict[Node, Layout | None] = {}
        self.layouts: dict[Node, Layout | None] = {}
        self.orders: dict[str, tuple[str, str]] = {}
        self.asked: set[tuple[Node, str]] = set()


class Memory:
    """Memory that one value of the program owns. ``refusal``: why the program must not write here; ``doubt``: why the
    contents are not known after a write; both are usually "". ``is_number``: whether it is a NumPy number, which is
    immutable; None if it may be a number or an array of rank 0. ``root``: the view that owns it. ``kin``: other
    memories that may be the same one, so that a write here makes their contents unknown. ``tied``: memories that are
    the same one under a known condition (:class:`Tie`); ``count``: how many are written with it. ``handed_on``: for
    results of branches and loops, the memories that they were given."""

    __slots__ = ("count", "doubt", "handed_on", "is_number", "kin", "refusal", "root", "tied")

    root: View

    def __init__(self, refusal: str = "", is_number: bool | None = False) -> None:
        self.refusal = refusal
        self.is_number = is_number
        self.doubt = ""
        self.kin: tuple[Memory, ...] = ()
        self.tied: tuple[Memory, ...] = ()
        self.count = 1
        self.handed_on: tuple[Memory, ...] = ()

    @property
    def origins(self) -> set[Memory]:
        """The memories that this is, or was given, and so may be."""
        return {self, *self.handed_on}

    @property
    def family(self) -> set[Memory]:
        """This memory and all that may be the same one."""
        found: set[Memory] = set()
        stack = [self]
        while stack:
            memory = stack.pop()
            if memory not in found:
                found.add(memory)
                stack += memory.tied
        return found.union(*(memory.kin for memory in found))

    def link(self, others: Iterable[Memory]) -> None:
        """Record that other memories may be the same as this one."""
        for other in others:
            if other is not self and other not in self.kin:
                self.kin, other.kin = (*self.kin, other), (*other.kin, self)

    def hand_on(self, others: Iterable[Memory]) -> None:
        """Record which memories this was given."""
        self.handed_on = (*{*self.handed_on, *others} - {self},)


class Tie:
    """A view that a value is under the condition that ``chooser``, a number or bool of the graph, is ``number``; with
    None, if it is no other one. ``size``: of a list in which ``chooser`` is a position, which may be negative; else 0.
    ``source``: the node of the view from which the value was derived."""

    __slots__ = ("chooser", "number", "size", "source", "view")

    def __init__(self, chooser: Node, number: int | None, view: View, size: int) -> None:
        self.chooser, self.number, self.view, self.size, self.source = chooser, number, view, size, view.node


class View:
    """How a value is read from the memory of another one: ``op`` applied to ``parent``. A root has ``memory`` instead.
    ``node`` is its value, derived from the node ``source`` of the parent. ``home`` is the graph in which the program
    made it: that of a body, or the main one. ``is_whole``: it is a view only if the parent is in C order without gaps,
    as for ``np.ravel`` and ``np.ascontiguousarray``. ``read_only``: NumPy does not allow writes into it. ``ties``: it
    is one of these views, or else its parent, the result of a branch or an item."""

    __slots__ = (
        *("attributes", "copied", "home", "is_whole", "made", "memory", "node", "op", "parent", "read_only", "seen"),
        *("source", "ties"),
    )

    def __init__(self, node: Node, memory: Memory, seen: int = -1) -> None:
        self.node = node
        self.home = node.graph
        self.made: Node | None = node  # determines the layout of a root; None: C order
        self.copied = False  # the root is a copy, without the gaps of the layout
        self.memory: Memory | None = memory
        memory.root = self
        self.parent: View | None = None
        self.op: Op | None = None  # None with a parent: it may be a view or a copy
        self.attributes: Mapping[str, Any] = {}
        self.source: Node | None = None
        self.is_whole = self.read_only = False
        self.ties: tuple[Tie, ...] = ()
        self.seen = seen

    @property
    def is_part(self) -> bool:
        """Whether it may be less, or in another order, than the memory that contains it."""
        return self.parent is not None and not (self.ties and self.parent.parent is None)

    def detach(self) -> None:
        """Give this value memory of its own from now on."""
        self.parent, self.memory, self.op = None, Memory(), None
        self.memory.root = self
        self.made, self.copied, self.home = self.node, True, self.node.graph


# -- views as the program makes them ---------------------------------------------------------------
def view_of(proxy: Proxy) -> View:
    """The View of a proxy, which is the root of a new tree unless the proxy is known to be a view."""
    if proxy._view is None:
        node = proxy._node
        refusal = ""
        if node.op == "placeholder":
            if not proxy.tracer.writes_inputs:
                refusal = "is an input and belongs to the caller"
            elif not getattr(node.type, "shape", ()) and node.target not in proxy.tracer.input_numbers:
                refusal = "is an input that may be an immutable number"
        elif node.op == "get_attr":
            refusal = "is a parameter, buffer or constant of the program"
        elif node.op == "call_module":
            refusal = "is the result of a leaf module, which may share memory with other values"
        elif node.op == "call_function" and node.target.kind == "opaque":
            refusal = "is the result of a wrapped function and may share memory with other values"
        proxy._view = View(node, Memory(refusal, is_number(proxy)), proxy.tracer.writes.count)
    return proxy._view


#: Arrays that one value may be, through ties of ties: a write into it is one into each of them.
_MOST_TIED = 64


def tie(proxy: Proxy, chooser: Node, views: Mapping[int, View], is_complete: bool, size: int = 0) -> bool:
    """Record that ``proxy`` is one of other arrays: that of the number which ``chooser`` is. ``is_complete``: it is
    always one of them; ``size``: of the list in which the number is a position. Returns False, and records nothing, if
    there are too many."""
    memories = [m for view in views.values() for m in [root_of(view).memory] if m is not None]
    own = view_of(proxy)
    count = 1 + sum(memory.count for memory in memories)
    if own.memory is None or count > _MOST_TIED:
        return False
    own.memory.count = count
    for memory in memories:
        own.memory.tied, memory.tied = (*own.memory.tied, memory), (*memory.tied, own.memory)
        own.memory.hand_on(memory.origins)
    view = View(own.node, Memory())
    view.memory, view.parent, view.source = None, own, own.node
    numbers: list[int | None] = [*views]
    if is_complete:
        numbers[-1] = None
    view.ties = tuple(Tie(chooser, n, v, size) for n, v in zip(numbers, views.values()))
    proxy._view = view
    return True


def is_number(proxy: Proxy) -> bool | None:
    """True if the value is an immutable number in NumPy, False for an array, None if it may be a number or an array of
    rank 0."""
    if getattr(proxy._node.type, "shape", None) != ():
        return False
    view = proxy._view
    if view is not None:
        return view.memory.is_number if view.memory is not None else False
    node = proxy._node
    if node.op != "call_function":
        return proxy.tracer.input_numbers.get(node.target) if node.op == "placeholder" else None
    return node.target.gives_number  # type: ignore[no-any-return]


def note_view(result: Proxy, op: Op, bound: Mapping[str, Any]) -> None:
    """Note that ``result``, recorded as a call of ``op``, may share memory with the operand."""
    operands = [v for v in op.tensors(bound) if hasattr(v, "_view")]
    if not operands or (op.name == "einsum" and len(operands) > 1):
        return
    node = result._node
    shape = node.type.shape if isinstance(node.type, TensorType) else None
    if op.gives_number and shape == ():
        return  # it is a scalar
    if op.name == "take" and not _is_traced_number(bound["index"]):
        return
    number = is_number(operands[0])
    if number:
        return  # an array made from a number has memory of its own
    if op.name == "take" and number is False and node.target is op:
        attach_taken(result, operands[0])  # a row at a NumPy or Python number is a view
        return
    if op.shares_memory == "parts" and not operands[0].type.dtype.is_complex:
        attach(result, operands[0], node.target, {})
        view_of(result).read_only = True
        return
    known = op.shares_memory != "perhaps" and number is False
    attach(result, operands[0], node.target if known else None, node.kwargs if known else {})


def note_parts(parts: Sequence[Proxy], x: Any, sizes: Sequence[Any], axis: int = 0) -> None:
    """Note that ``parts``, which ``split`` made of ``x``, are slices of it."""
    start: Any = 0
    for number, (part, size) in enumerate(zip(parts, sizes)):
        stop = shapes.normalize(start + size)
        end = None if number == len(parts) - 1 else stop
        attributes = {"axis": axis, "start": start, "stop": end}
        if hasattr(x, "_view"):
            attach(part, x, lookup("slice"), attributes)
        start = stop


def note_retraced(result: Any, node: Node, env: Mapping[Node, Any]) -> None:
    """Note that ``result`` records the call ``node`` of a graph that is traced again; ``env`` has the values of its
    arguments."""
    op = node.target
    if op.name != "getitem" and not op.gives_parts:
        if op.shares_memory:
            args = map_nodes(node.args, env.__getitem__)
            note_view(result, op, op.bind(args, node.kwargs))
        return
    source = env[node.args[0]]
    if hasattr(source, "_view") and (op.gives_parts or source._view is not None):
        attach(result, source, None, {})


def note_leaf_call(tracer: Tracer, what: str, arguments: Any) -> None:
    """Note that these values were passed to a leaf, which may keep them or return views: no writes are allowed from now
    on."""
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    if isinstance(arguments, (tuple, list)):
        for value in arguments:
            note_leaf_call(tracer, what, value)
    elif hasattr(arguments, "_view"):
        memory = root_of(view_of(arguments)).memory
        if memory is not None and not memory.refusal:
            memory.refusal = f"was given to {what}, whose result may share its memory"


def fresh(proxy: Proxy, in_c_order: bool = False, number: bool | None = False) -> Proxy:
    """A copy: the same value in memory of its own. ``number``: whether it is a number if its rank is 0."""
    made = proxy.tracer.proxy(proxy.tracer.local(proxy.node))
    if getattr(made._node.type, "shape", None) != ():
        number = False
    made._view = View(made._node, Memory(is_number=number), proxy.tracer.writes.count)
    if in_c_order:
        made._view.made = None
    made._view.copied, made._view.home = True, proxy.tracer.graph
    return made


def copy_of(proxy: Proxy) -> Proxy:
    """A copy, as NumPy makes of selected elements: the same node with memory of its own. Nothing is recorded."""
    made = proxy.tracer.proxy(proxy.node)
    made._view = View(made._node, Memory(), proxy.tracer.writes.count)
    made._view.copied, made._view.home = True, proxy.tracer.graph
    return made


def may_hold(made: Proxy, value: Proxy) -> None:
    """Record that ``made`` may be in the memory of ``value``: a write into one leaves the other in doubt."""
    memory_of(made).link(memory_of(value).family)
    memory_of(made).hand_on(memory_of(value).origins)


def _is_traced_number(index: Any) -> bool:
    return hasattr(index, "_view") and getattr(index._node.type, "shape", None) == ()


def attach(result: Proxy, base: Proxy, op: Op | None, attributes: Mapping[str, Any]) -> None:
    """Note that ``result`` is the view ``op`` of ``base``; with None, it may be a view of some kind."""
    view = View(result._node, Memory(), base.tracer.writes.count)
    view.parent, view.op, view.attributes = view_of(base), op, attributes
    view.memory, view.source = None, view.parent.node
    result._view = view


def attach_taken(result: Proxy, base: Proxy) -> None:
    """Note that ``result``, a call of ``take`` on ``base``, is the view at a computed number, or at as many positions
    one after the other (a *window*)."""
    node = result._node
    attach(result, base, node.target, {"axis": node.bound["axis"], "index": node.args[1]})


def attach_whole(result: Proxy, base: Proxy) -> Proxy:
    """Note that ``result``, a reshaped value, is a view of ``base`` if that is in C order without gaps."""
    if result is not base:
        attach(result, base, lookup("reshape"), {"shape": result.type.shape})
        view_of(result).is_whole = True
    return result


def may_be_same(one: Proxy, other: Proxy) -> bool:
    """Whether two values share memory, or may share it."""
    return memory_of(one) in memory_of(other).family


def name_in_program(view: View) -> str:
    """For messages: the variable or attribute that stands for a view, or for its memory, in a function that runs; else
    the name of its node."""
    frame, root, found = sys._getframe(1), root_of(view), ""
    while frame.f_back is not None and not found:
        if not is_own_file(frame.f_code.co_filename):
            values = dict(frame.f_locals)
            for name, value in frame.f_locals.items():
                if type(value).__dictoffset__ and not is_traced(value):
                    values |= {
                        f"{name}.{key}": part for key, part in object.__getattribute__(value, "__dict__").items()
                    }
            views = {k: getattr(v, "_view", None) for k, v in values.items() if is_traced(v)}
            names = [name for name, other in views.items() if other is view]
            names += [name for name, other in views.items() if other is not None and root_of(other) is root]
            found = names[0] if names else ""
        frame = frame.f_back
    return found or view.node.name


def root_of(view: View) -> View:
    """The view that owns the memory."""
    while view.parent is not None:
        view = view.parent
    return view


def memory_of(proxy: Proxy) -> Memory:
    """The memory that contains a value."""
    memory = root_of(view_of(proxy)).memory
    assert memory is not None
    return memory


def leave_in_doubt(tracer: Tracer, memories: Iterable[Memory], why: str) -> None:
    """Mark the contents of memories as unknown from now on; the body around it notes that."""
    for memory in memories:
        if not memory.doubt:
            if tracer.bodies:
                tracer.bodies[-1].note_doubt(memory)
            memory.doubt = why


# -- strides ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Layout:
    """Strides in elements, one for each axis. ``in_order``: they are positive, and none is smaller than the next one
    (except for axes of size 1), so that results that NumPy computes from the value are C-contiguous."""

    strides: Shape
    in_order: bool = True


def contiguous(shape: Sequence[Dim]) -> Layout:
    """The layout in C order without gaps."""
    strides: list[Dim] = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = shapes.normalize(strides[axis + 1] * shape[axis + 1])
    return Layout(tuple(strides))


def is_contiguous(layout: Layout, shape: Sequence[Dim]) -> bool:
    """Whether a value with that layout is in C order without gaps."""
    steps = zip(shape, layout.strides, contiguous(shape).strides)
    return any(_is(size, 0) for size in shape) or all(_is(n, 1) or shapes.equal(a, b) for n, a, b in steps)


def copied(layout: Layout | None, shape: Sequence[Dim]) -> Layout | None:
    """The layout of a copy, in which NumPy keeps the order of axes and leaves no gaps."""
    if layout is None or layout.in_order:
        return None if layout is None else contiguous(shape)
    if not all(type(v) is int and v for v in (*layout.strides, *shape)):
        return None
    order = sorted(range(len(shape)), key=lambda axis: -abs(int(layout.strides[axis])))
    dense = contiguous([shape[axis] for axis in order]).strides
    return Layout(tuple(dense[order.index(axis)] for axis in range(len(shape))), False)


def view_layout(layout: Layout | None, op: Op, attributes: Mapping[str, Any], old: Any, new: Any) -> Layout | None:
    """The layout of ``op`` applied to a value of type ``old`` with that layout; ``new`` is the type of the result.
    None if it is not known, or if the result is a copy."""
    if layout is None or not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return None
    if op.shares_memory == "contiguous":
        return reshaped(layout, old.shape, new.shape)[1]
    strides, in_order = list(layout.strides), layout.in_order
    if op.name == "permute":
        axes = attributes["axes"]
        return Layout(tuple(strides[a] for a in axes), in_order and [*axes] == sorted(axes))
    if op.name == "expand":
        extra = new.rank - old.rank
        kept = [s if shapes.equal(a, b) else 0 for s, a, b in zip(strides, old.shape, new.shape[extra:])]
        return Layout((0,) * extra + tuple(kept), in_order)
    if op is lookup("bitcast"):
        return layout
    if op.shares_memory == "parts":
        return Layout(tuple(shapes.normalize(2 * step) for step in strides), in_order)
    rank = old.rank + max(op.added_axes, 0)
    axis = normalize_axis(attributes["axis"], rank)
    if op.name == "slice":
        strides[axis] = shapes.normalize(strides[axis] * attributes.get("step", 1))
    elif op.name == "flip":
        strides[axis], in_order = shapes.normalize(-strides[axis]), False
    elif op.added_axes > 0:
        strides.insert(axis, 0)
    elif op.added_axes < 0 or (op.name == "take" and new.rank < old.rank):  # at a number
        del strides[axis]
    elif op.name != "take":
        return None
    return Layout(tuple(strides), in_order)


def reshaped(layout: Layout | None, old: Shape, new: Shape) -> tuple[bool | None, Layout | None]:
    """(True if NumPy's reshape is a view, False if it is a copy, None if not known; the layout of the view).

    The rule is that of NumPy (``_attempt_nocopy_reshape``): except for axes of size 1, each group of axes that is
    merged or split must be contiguous in itself."""
    if layout is None:
        return None, None
    before = [(d, s) for d, s in zip(old, layout.strides) if not _is(d, 1)]
    after = [d for d in new if not _is(d, 1)]
    named = bool(shapes.names((*old, *new)))
    if any(_is(d, 0) for d in old):
        return True, contiguous(new)
    made: list[Dim] = []
    start = 0
    product_old: Dim = 1
    product_new: Dim = 1
    pending: list[Dim] = []  # the sizes of the new axes of the group
    used = 0
    for size in after:
        product_new = shapes.normalize(product_new * size)
        pending.append(size)
        while used < len(before) and not shapes.equal(product_old, product_new):
            if not named and product_old > product_new:
                break
            product_old = shapes.normalize(product_old * before[used][0])
            used += 1
        if not shapes.equal(product_old, product_new):
            if named:
                return None, None
            continue
        group = before[start:used]
        for (_, outer), (inner_size, inner) in itertools.pairwise(group):
            if not shapes.equal(outer, inner * inner_size):
                return (None if named else False), None
        stride = group[-1][1]
        strides: list[Dim] = []
        for part in reversed(pending):
            strides.insert(0, stride)
            stride = shapes.normalize(stride * part)
        made += strides
        start, pending = used, []
    rest = iter(made)
    strides_new = tuple(0 if _is(d, 1) else next(rest, 0) for d in new)
    return True, Layout(strides_new, layout.in_order)


def _is(dim: Dim, value: int) -> bool:
    return type(dim) is int and dim == value


def node_layout(node: Node, known: Mapping[Node, Layout | None], found: dict[Node, Layout | None]) -> Layout | None:
    """The layout of the program's array for ``node``. ``known``: nodes that stand for memory with another layout than
    their op gives; ``found``: a cache of results."""
    stack = [node]
    while stack:  # without recursion, because graphs may be deep
        current = stack[-1]
        if current in found:
            stack.pop()
            continue
        if current in known:
            found[current] = known[current]
            continue
        missing = [n for n in current.all_input_nodes if n not in found]
        if missing and current.op == "call_function":
            stack += missing
            continue
        found[current] = _layout(current, found)
    return found[node]


def _layout(node: Node, known: Mapping[Node, Layout | None]) -> Layout | None:
    kind = node.type
    if not isinstance(kind, TensorType) or node.op == "call_module":
        return None
    if node.op != "call_function":
        return contiguous(kind.shape)
    inputs = node.all_input_nodes
    if len(inputs) == 1 and node.target.shares_memory in ("always", "contiguous", "parts"):
        return view_layout(known[inputs[0]], node.target, node.kwargs, inputs[0].type, kind)
    if sum(not _is(size, 1) for size in kind.shape) < 2:
        return contiguous(kind.shape)  # memory of its own, for which only one order is possible
    if node.target.any_order:
        return None
    layouts = [known[n] for n in inputs]
    if all(found is not None and found.in_order for found in layouts):
        return contiguous(kind.shape)
    return None
