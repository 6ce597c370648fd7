"""Which traced values share memory when the program runs on arrays.

In: view ops, copies and leaf calls as they are recorded. Out: a tree of :class:`View` for each
value that owns memory, which :mod:`fxlite.tracing.writes.aliasing` reads and writes through. A
value that nobody has made a view of, and nobody writes to, has no record at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fxlite.graph.graph import map_nodes
from fxlite.ops.op import Op, lookup
from fxlite.tracing.writes.strides import Layout
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


class Writes:
    """What a tracer knows of in-place writes: how many there were, and the layouts of nodes, as far
    as somebody has asked; ``written``: of those that stand for memory somebody wrote to."""

    __slots__ = ("arrays", "count", "layouts", "written")

    def __init__(self) -> None:
        self.count = 0
        self.arrays = 0  # how many weights and constants were looked at
        self.written: dict[Node, Layout | None] = {}
        self.layouts: dict[Node, Layout | None] = {}


class Memory:
    """Memory that one value of the program owns. ``refusal``: why the program must not write here.
    ``doubt``: why it is not known what stands here after a write. Both "" mostly. ``is_number``: it
    is a NumPy number, which is immutable; None if that, or an array of rank 0. ``kin``: other
    memory that may be this one, so that a write here leaves it in doubt."""

    __slots__ = ("doubt", "is_number", "kin", "refusal")

    def __init__(self, refusal: str = "", is_number: bool | None = False) -> None:
        self.refusal = refusal
        self.is_number = is_number
        self.doubt = ""
        self.kin: tuple[Memory, ...] = ()


class View:
    """How a value is read from the memory of another: ``op`` applied to ``parent``. A root has
    ``memory`` instead. ``node`` is its value, derived from the node ``source`` of the parent.
    ``home`` is the graph in which the program made it: that of a body, or the whole."""

    __slots__ = ("attributes", "copied", "home", "made", "memory", "node", "op", "parent", "seen", "source")

    def __init__(self, node: Node, memory: Memory, seen: int = -1) -> None:
        self.node = node
        self.home = node.graph
        self.made: Node | None = node  # tells the layout of a root; None: C order
        self.copied = False  # a root is a copy, without the gaps that the layout has
        self.memory: Memory | None = memory
        self.parent: View | None = None
        self.op: Op | None = None  # None below a parent: perhaps a view, perhaps a copy
        self.attributes: Mapping[str, Any] = {}
        self.source: Node | None = None
        self.seen = seen

    def detach(self) -> None:
        """From now on this value has memory of its own."""
        self.parent, self.memory, self.op = None, Memory(), None
        self.made, self.copied, self.home = self.node, True, self.node.graph


# -- views as the program makes them ---------------------------------------------------------------
def view_of(proxy: Proxy) -> View:
    """The proxy's place in a tree of views; a tree of its own, unless it is known as a view."""
    if proxy._view is None:
        node = proxy._node
        refusal = ""
        if node.op == "placeholder":
            if not proxy.tracer.writes_inputs:
                refusal = "is an input and belongs to the caller"
            elif not getattr(node.type, "shape", ()):
                refusal = "is an input that may be an immutable number"
        elif node.op == "get_attr":
            refusal = "is a parameter, buffer or constant of the program"
        elif node.op == "call_module":
            refusal = "is the result of a leaf module, which may share memory with other values"
        elif node.op == "call_function" and node.target.kind == "opaque":
            refusal = "is the result of a wrapped function and may share memory with other values"
        proxy._view = View(node, Memory(refusal, is_number(proxy)), proxy.tracer.writes.count)
    return proxy._view


def is_number(proxy: Proxy) -> bool | None:
    """True if NumPy has an immutable number here, False for an array, None if it may be either (an
    array of rank 0)."""
    if getattr(proxy._node.type, "shape", None) != ():
        return False
    view = proxy._view
    if view is not None:
        return view.memory.is_number if view.memory is not None else False
    node = proxy._node
    if node.op != "call_function":
        return None
    return node.target.gives_number  # type: ignore[no-any-return]


def note_view(result: Proxy, op: Op, bound: Mapping[str, Any]) -> None:
    """``result`` was recorded as a call of ``op``, which may share memory with its operand."""
    operands = [v for v in op.tensors(bound) if hasattr(v, "_view")]
    if not operands or (op.name == "einsum" and len(operands) > 1):
        return
    node = result._node
    shape = node.type.shape if isinstance(node.type, TensorType) else None
    if op.gives_number and shape == ():
        return  # a scalar
    if op.name == "take" and not _is_traced_number(bound["index"]):
        return
    number = is_number(operands[0])
    if number:
        return  # what is made of a number is an array of its own
    if op.name == "take" and number is False and node.target is op:
        # a row at a number of NumPy or Python is a view
        attach(result, operands[0], op, {"axis": node.bound["axis"], "index": node.args[1]})
        return
    known = op.shares_memory != "perhaps" and number is False
    attach(result, operands[0], node.target if known else None, node.kwargs if known else {})


def note_parts(parts: Sequence[Proxy], x: Any, sizes: Sequence[Any], axis: int = 0) -> None:
    """``parts`` are what ``split`` makes of ``x``: slices of it."""
    start: Any = 0
    for number, (part, size) in enumerate(zip(parts, sizes)):
        stop = shapes.normalize(start + size)
        end = None if number == len(parts) - 1 else stop
        attributes = {"axis": axis, "start": start, "stop": end}
        if hasattr(x, "_view"):
            attach(part, x, lookup("slice"), attributes)
        start = stop


def note_retraced(result: Any, node: Node, env: Mapping[Node, Any]) -> None:
    """``result`` records the call ``node`` of a graph that is traced again; ``env`` has the values
    of its arguments."""
    op = node.target
    if op.name not in ("split", "getitem"):
        if op.shares_memory:
            args = map_nodes(node.args, env.__getitem__)
            note_view(result, op, op.bind(args, node.kwargs))
        return
    source = env[node.args[0]]
    if hasattr(source, "_view") and (op.name == "split" or source._view is not None):
        attach(result, source, None, {})


def note_leaf_call(tracer: Tracer, what: str, arguments: Any) -> None:
    """A leaf was given these values and may keep them or return views: no writes from now on."""
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
    """A copy: the same value in memory of its own. ``number``: what it is if its rank is 0."""
    made = proxy.tracer.proxy(proxy.tracer.local(proxy.node))
    if getattr(made._node.type, "shape", None) != ():
        number = False
    made._view = View(made._node, Memory(is_number=number), proxy.tracer.writes.count)
    if in_c_order:
        made._view.made = None
    made._view.copied, made._view.home = True, proxy.tracer.graph
    return made


def _is_traced_number(index: Any) -> bool:
    return hasattr(index, "_view") and getattr(index._node.type, "shape", None) == ()


def attach(result: Proxy, base: Proxy, op: Op | None, attributes: Mapping[str, Any]) -> None:
    """``result`` is the view ``op`` of ``base``; None: perhaps a view of it, in some way."""
    view = View(result._node, Memory(), base.tracer.writes.count)
    view.parent, view.op, view.attributes = view_of(base), op, attributes
    view.memory, view.source = None, view.parent.node
    result._view = view


def may_be_same(one: Proxy, other: Proxy) -> bool:
    """Whether two values have one memory, or may have."""
    memory, found = (root_of(view_of(value)).memory for value in (one, other))
    return memory is not None and found is not None and (memory is found or memory in found.kin)


def root_of(view: View) -> View:
    """The view that owns the memory."""
    while view.parent is not None:
        view = view.parent
    return view
