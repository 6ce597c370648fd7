"""What one node costs: arithmetic operations, and bytes moved, as numbers or as expressions in the
named dims; and how many operations a graph does one after the other.

In: a typed node. Out: FLOPs and bytes. FLOPs are read off the op's body, a multiply-add counting as
two; a composite costs what its expansion costs. Bytes are what the op reads and writes when it runs
by itself: each operand once and the result; views move nothing. An op whose expansion is as long as
a dim has a formula of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import GraphError
from fxlite.base.state import active_tracer
from fxlite.graph.graph import Graph, Node
from fxlite.ops.op import Op
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer
from fxlite.types import shapes
from fxlite.types.agreement import USUAL, Chain
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Cost:
    """FLOPs, bytes read and bytes written; None where they are unknown (no types, leaf modules)."""

    flops: Dim | None = 0
    read: Dim | None = 0
    written: Dim | None = 0

    @property
    def bytes(self) -> Dim | None:
        """Bytes read and written together."""
        if self.read is None or self.written is None:
            return None
        return shapes.normalize(self.read + self.written)


_NOTHING = Cost()
_UNKNOWN = Cost(None, None, None)


def node_flops(node: Node) -> Dim:
    """Arithmetic operations of one call; comparisons and selections for padding are none.

    Raises GraphError for a node without a type and for a leaf module, whose work is unknown."""
    return _known_cost(node).flops


def node_bytes(node: Node) -> Dim:
    """Bytes one call reads and writes when it runs by itself, operands and result each once.

    Raises GraphError for a node without a type and for a leaf module."""
    return _known_cost(node).bytes


def node_cost(node: Node) -> Cost:
    """Both; None where they are unknown."""
    try:
        return _known_cost(node)
    except GraphError:
        return _UNKNOWN


def total_cost(graph: Graph) -> Cost:
    """FLOPs and bytes of all nodes together; None where that of a node is unknown."""
    return sum_of_costs(Counter(node_cost(n) for n in graph.nodes if n.op.startswith("call_")))


def sum_of_costs(counts: Mapping[Cost, int]) -> Cost:
    """The sum of costs, each times its count."""
    items = counts.items()
    return Cost(
        total((cost.flops, count) for cost, count in items),
        total((cost.read, count) for cost, count in items),
        total((cost.written, count) for cost, count in items),
    )


def total(terms: Iterable[tuple[Dim | None, int]]) -> Dim | None:
    """The sum of (value, count); None where a value is unknown."""
    result: Dim = 0
    for value, count in terms:
        if value is None:
            return None
        result = result + value * count
    return shapes.normalize(result)


def _known_cost(node: Node) -> Cost:
    if node.op == "call_module":
        raise GraphError(f"{node.describe()}: the cost of a leaf module is unknown")
    if node.op != "call_function":
        return _NOTHING
    if node.type is None:
        raise GraphError(f"{node.describe()} has no type; trace with input types")
    op: Op = node.target
    types = op.map_tensors(_type_of, node.arguments)
    call = op, tuple(types.items()), _static(node.type)
    try:
        return _call_cost(*call)
    except TypeError as error:
        if "unhashable" not in str(error):  # an attribute such as a slice
            raise
        return _call_cost.__wrapped__(*call)


def is_view(op: Op) -> bool:
    """True if the result always is in the memory of the operand, as far as reshape can be."""
    return op.name == "getitem" or op.shares_memory in ("always", "contiguous")


def _type_of(value: Any) -> Any:
    return _static(value.type if isinstance(value, Node) else value)


def _static(type: Any) -> Any:
    return tuple(type) if isinstance(type, list) else type


def _costs_its_expansion(op: Op) -> bool:
    return op.has_expansion and not op.has_body and not op.has_cost


@functools.lru_cache(maxsize=4096)
def _call_cost(op: Op, arguments: tuple[tuple[str, Any], ...], out: Any) -> Cost:
    bound = dict(arguments)
    if op.name == "getitem":  # one of several results
        return _NOTHING
    if op.is_random:  # drawing numbers is no arithmetic
        return Cost(0, *_moved(op, bound, out))
    if _costs_its_expansion(op):
        inner = _expanded(op, bound)
        flops = shapes.normalize(sum((node_flops(node) for node in inner.nodes), start=0))
        calls = inner.find_nodes(op="call_function")
        is_free = all(is_view(node.target) for node in calls)
        return Cost(flops, *((0, 0) if is_free else _moved(op, bound, out)))
    flops = 0
    if isinstance(out, TensorType) and op.kind not in ("view", "gather"):  # those move values only
        flops = op.flops(bound, out)
    return Cost(flops, *((0, 0) if is_view(op) else _moved(op, bound, out)))


def longest_chain(
    nodes: Iterable[Node], dims: Mapping[str, int] | None = None, precision: str = "highest"
) -> Chain:
    """The longest way from an input to one of these nodes, which are in order: what decides how far
    rounding goes (:func:`fxlite.types.agreement.bound`). ``dims`` are the sizes of named dims;
    ``precision`` says how products are computed."""
    known: dict[Node, Chain] = {}
    longest = _NO_CHAIN
    for node in nodes:
        before = _NO_CHAIN
        for source in node.all_input_nodes:
            before = before.at_least(known.get(source, _NO_CHAIN))
        known[node] = before.then(_link(node, dims or {}))
        longest = longest.at_least(known[node])
    return dataclasses.replace(longest, precision=precision)


_NO_CHAIN = Chain()


def _link(node: Node, dims: Mapping[str, int]) -> Chain:
    """What one call adds to a chain: its operations for one element of the result."""
    op: Op = node.target
    if node.op == "call_module" or (node.op == "call_function" and node.type is None):
        return USUAL
    if node.op != "call_function" or op.kind in _ROUNDS_NOTHING or op.name == "getitem":
        return _NO_CHAIN
    if _costs_its_expansion(op):
        inner = _expanded(op, op.map_tensors(_type_of, node.arguments))
        return longest_chain(inner.nodes, dims)
    if not isinstance(node.type, TensorType):
        return USUAL
    work, size = _number(node_flops(node), dims), _number(node.type.size, dims)
    is_product = op.kind in ("contraction", "window")
    return Chain(1, math.ceil(work / max(size, 1)), int(is_product))


#: Kinds of ops whose results are numbers that are there.
_ROUNDS_NOTHING = ("view", "gather", "creation", "random")


def _number(value: Dim, dims: Mapping[str, int]) -> float:
    """A size as a number; dims about which nothing is said are as large as the largest."""
    others = dict.fromkeys(shapes.names(value), max(dims.values(), default=1))
    return float(shapes.substitute(value, {**others, **dims}))


def _moved(op: Op, bound: dict[str, Any], out: Any) -> tuple[Dim, Dim]:
    """Bytes read and written by a call that runs by itself."""
    written = _stored(out)
    table = bound.get(op.reads_some_of or "")
    read: Dim = 0
    for operand in op.tensors(bound):
        read = read + (written if operand is table else _stored(operand))
    return shapes.normalize(read), written


def _stored(type: Any) -> Dim:
    """Bytes of a type or a tuple of them; 0 for Python scalars and None."""
    if isinstance(type, tuple):
        return sum((_stored(t) for t in type), start=0)
    return type.nbytes if isinstance(type, TensorType) else 0


def _expanded(op: Op, arguments: dict[str, Any]) -> Graph:
    """The expansion of a composite, recorded as a graph of its own."""
    tracer = Tracer()

    def enter(value: Any) -> Any:
        if not isinstance(value, (TensorType, tuple)):
            return value
        node = tracer.graph.create_node("placeholder", "x", type=value)
        return Proxy(node, tracer)

    inputs = op.map_tensors(enter, arguments)
    token = active_tracer.set(tracer)
    try:
        op.expand(inputs)
    finally:
        active_tracer.reset(token)
    return tracer.graph


# -- text ------------------------------------------------------------------------------------------
def short_text(value: Dim) -> str:
    """A number or expression in a few letters: ``1.23M``, ``4.1k*B*T + 12*B + …``.

    Numbers have at most four digits and a decimal prefix; of a sum, three terms of the highest
    degree are shown."""
    if isinstance(value, int):
        return _digits(value)
    terms = sorted(value.as_ordered_terms(), key=_degree, reverse=True)
    parts = [_term_text(term) for term in terms[:3]]
    text = parts[0] + "".join(f" - {p[1:]}" if p[0] == "-" else f" + {p}" for p in parts[1:])
    return f"{text} + …" if len(terms) > 3 else text


def _degree(term: Any) -> int:
    return sum(int(e) if e.is_Integer else 1 for e in term.as_powers_dict().values())


def _term_text(term: Any) -> str:
    factor, rest = term.as_coeff_Mul()
    if rest == 1:
        return _digits(factor)
    text = shapes.to_text(rest)
    if factor in (1, -1):
        return text if factor == 1 else f"-{text}"
    return f"{_digits(factor)}*{text}"


def _digits(value: Any) -> str:
    """``1.23M``; numbers below 10,000 whole."""
    if abs(value) < 10_000 and value == int(value):
        return str(int(value))
    size = abs(float(value))
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= 0.9995 * factor:
            return f"{'-' if value < 0 else ''}{_three(size / factor)}{prefix}"
    return f"{float(value):.3g}"


def _three(value: float) -> str:
    """Three digits without an exponent: 1.23, 12.3, 123, 1235."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
