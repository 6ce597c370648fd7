"""Values that are known while tracing, because a program computes them only from its own arrays and numbers.

In: a traced value. Out: the array that it is in every run of the program, for uses in which Python needs a value
(``if``, ``range(n)``, an index), or None. NumPy computes it once, on the first use. Weights and inputs are never
known.

Whether a variable is None (:class:`fxlite.tracing.capture.places.OrNone`) is known where a condition has decided it:
after ``if best is None`` in one of its ways, and in the rest of an ``and`` or ``or`` (:func:`assuming`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import active_tracer, is_traced
from fxlite.graph.few_numbers import FEW_ELEMENTS, counts_positions, made_from_few_numbers
from fxlite.graph.graph import Node
from fxlite.graph.node import map_nodes, types_of
from fxlite.tracing.writes.shared_memory import is_number
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.proxy import Proxy
    from fxlite.tracing.tracer import Tracer


#: The most bytes that known values may fill before arrays with more than FEW_ELEMENTS elements count as unknown.
MOST_BYTES = 2**28


class TooMuchKnown(BaseException):
    """Raised where known values fill too much memory: the program is traced again, and its large arrays are not
    known."""


#: Kinds of ops that are never computed while tracing.
_UNKNOWN = ("random", "opaque", "control")


def known_value(proxy: Proxy) -> np.ndarray[Any, Any] | None:
    """The array for a traced value that depends on no input and no weight; else None. It is only for reading."""
    found: np.ndarray[Any, Any] | None = _value(proxy.tracer, proxy.node)
    return found


def require_one_truth(value: Proxy) -> None:
    """Raise the error of ``if x`` for an array that does not have exactly one element, as NumPy does."""
    if value.is_typed and any(size != 1 for size in value.type.shape):
        raise value.tracer.error(
            f"the truth of an array is not one bool: {value.node.name} is {value.type}",
            "take x.any() or x.all()",
            value.node,
            ValueError,
        )


def as_known_number(value: Any) -> Any:
    """The number for a traced number that is known while tracing, so that it can be an axis, a size or a count; any
    other value unchanged."""
    if not is_traced(value) or not value.is_typed or value.type.shape or is_number(value) is not True:
        return value
    known = known_value(value)
    if known is None:
        return value
    return known[()].item() if hasattr(value, "python_type") else known[()]


def _value(tracer: Tracer, node: Node) -> Any:
    known = tracer.known
    work = [node]
    while work:
        last = work[-1]
        if last in known:
            work.pop()
            continue
        if not _may_be_known(tracer, last):
            known[last] = None
            continue
        operands = list(last.all_input_nodes)
        waiting = [n for n in operands if n not in known]
        if waiting:
            work += waiting
            continue
        known[last] = None if any(known[n] is None for n in operands) else _compute(tracer, last)
        if any(n in tracer.assumed for n in operands):
            tracer.assumed.setdefault(last, None)
    return known[node]


def _may_be_known(tracer: Tracer, node: Node) -> bool:
    """Whether the value of a node is known if those of its operands are."""
    if node.op == "get_attr":
        return node in tracer.own_constants
    if node.op != "call_function" or node.is_impure() or node.target.kind in _UNKNOWN:
        return False
    types = types_of(node)
    if not all(isinstance(t, TensorType) and all(type(d) is int for d in t.shape) for t in types):
        return False
    return not tracer.knows_few or all(t.size <= FEW_ELEMENTS for t in types)


def _compute(tracer: Tracer, node: Node) -> Any:
    if node.op == "get_attr":
        return np.asarray(tracer.own_constants[node])
    if node.target.kind != "view":
        more = sum(t.nbytes for t in types_of(node))
        if tracer.known_bytes + more > MOST_BYTES and not tracer.knows_few:
            raise TooMuchKnown
        tracer.known_bytes += more
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), tracer.known.__getitem__)
    token = active_tracer.set(None)
    try:
        return node.target.evaluate(node.target.bind(args, kwargs))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None  # the program raises the error when it runs
    finally:
        active_tracer.reset(token)


# -- what conditions decide ------------------------------------------------------------------------
def assume(tracer: Tracer, pred: Any, truth: bool) -> None:
    """From here on, a condition has this truth: what follows from it is known of the variables that may be None."""
    assume_all(tracer, implied(tracer, pred, truth))


def assume_all(tracer: Tracer, facts: Iterable[tuple[Node, bool]]) -> None:
    """Take it as known that nodes have these truths."""
    for node, truth in facts:
        tracer.assumed.setdefault(node, tracer.known.get(node))
        tracer.known[node] = np.bool_(truth)


@contextmanager
def assuming(tracer: Tracer, facts: Iterable[tuple[Node, bool]] = ()) -> Iterator[None]:
    """A context manager: inside, these facts are known, and so is what is assumed there; afterwards, nothing that
    follows from it is."""
    before = len(tracer.assumed)
    assume_all(tracer, facts)
    try:
        yield
    finally:
        for node in [*tracer.assumed][before:]:
            tracer.known[node] = tracer.assumed.pop(node)


def implied(tracer: Tracer, pred: Any, truth: bool) -> list[tuple[Node, bool]]:
    """For each flag of a variable that may be None, its truth if a condition has this truth, where that follows."""
    found: list[tuple[Node, bool]] = []
    work = [(pred.node, truth)] if tracer.flags and is_traced(pred) else []
    while work:
        node, truth = work.pop()
        outside = tracer.outside.get(node, node)
        if outside in tracer.flags or node in tracer.flags:
            found += dict.fromkeys(((node, truth), (outside, truth)))
        name, first = tracer.decided_by.get(outside, ("", None))
        if first is not None:
            work += [(first, truth)] if truth is (name == "logical_and") else []
        elif outside.op == "call_function" and outside.target.name == "logical_not":
            work.append((outside.args[0], not truth))
        elif outside.op == "call_function" and outside.target.name == ("logical_and" if truth else "logical_or"):
            work += [(n, truth) for n in outside.all_input_nodes]
    return found


def fold_known(tracer: Tracer) -> None:
    """Replace known values by constants, and erase nodes that are then no longer read: they were overwritten, or
    only Python needed their values. A new array that is written into stays, and so does a large one that is made
    from a few numbers, or repeats the elements of a small one."""
    graph, known, sizes = tracer.graph, set[Node](), dict[Node, int]()
    for node in graph.nodes:
        if _may_be_known(tracer, node) and known.issuperset(node.all_input_nodes):
            known.add(node)
            if node.op == "call_function" and node.target.kind == "view":  # of so many elements
                sizes[node] = min(sizes.get(n, n.type.size) for n in node.all_input_nodes)
    for node, size in sizes.items():
        if node.type.size > max(FEW_ELEMENTS, size):
            known.discard(node)
    few = made_from_few_numbers(n for n in graph.nodes if n in known)
    for node in [n for n in graph.nodes if n in known and n.op == "call_function"]:
        readers = [user for user in node.users if user not in known]
        stays = _is_written(node) or (node in few and (node.type.size > FEW_ELEMENTS or counts_positions(node)))
        try:
            value = _value(tracer, node) if readers and not stays else None
        except TooMuchKnown:
            value = None
        if isinstance(value, np.ndarray | np.generic):
            tracer.origin = (node.scope, node.loc)
            with graph.inserting_before(node):
                constant = tracer.keep_constant(np.asarray(value, order="C"))
            for user in readers:
                user.replace_input_with(node, constant)
    tracer.origin = None
    for node in reversed(graph.nodes):
        if node in known and not node.users:
            graph.erase_node(node)


def _is_written(node: Node) -> bool:
    """Whether a new array is written into."""
    if node.target.kind != "creation":
        return False
    updates = [user for user in node.users if user.op == "call_function"]
    return any(
        user.target.kind == "control"
        or ((user.target.writes_part or user.target.kind == "scatter") and user.args[0] is node)
        for user in updates
    )
