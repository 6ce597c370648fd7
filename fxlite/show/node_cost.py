"""The cost of one node (arithmetic operations, bytes moved and weights read, as numbers or as
expressions in the named dims), the longest chain of operations in a graph, and the limits of a
machine.

In: a typed node. Out: FLOPs and bytes. FLOPs are read off the op's body, and a multiply-add counts as
two; a composite costs as much as its expansion. Bytes are those that the op reads and writes when it
runs by itself: each operand once, and the result; views move nothing. An op whose expansion is as
long as a dim has a formula of its own. A weight is counted once, however many paths it has.

A loop or condition costs as much as its bodies, each times the number of its runs. This is a sum over
the iterations, in closed form if the bounds are polynomials of sizes and of the loop variables
around: ``for i in range(n): for j in range(i)`` runs n*(n - 1)/2 times. The number of iterations of a
loop whose bounds are computed, or that has a condition, is a name of its own: ``while_loop_trips``.

In: measured rates (:mod:`fxlite.codegen.runtime.roofs` measures them). Out: :class:`Roofs`, which
prints them with how each was measured, and :func:`limits`, the least time that arithmetic and memory
allow for some FLOPs and bytes. The model is that of Williams, Waterman and Patterson, "Roofline: An
Insightful Visual Performance Model" (2009).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.console import Printed
from fxlite.base.errors import GraphError
from fxlite.base.on_demand import sympy
from fxlite.base.state import active_tracer
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.nn.module import Parameter
from fxlite.ops.control import BODIES
from fxlite.ops.op import Op
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer
from fxlite.types import shapes
from fxlite.types.agreement import USUAL, Chain
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Cost:
    """FLOPs, bytes read and bytes written, each None if it is unknown (no types, leaf modules)."""

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
    """The arithmetic operations of one call; comparisons and selections for padding do not count.

    Raises GraphError for a node without a type and for a leaf module, whose work is unknown."""
    return _known_cost(node).flops


def node_cost(node: Node) -> Cost:
    """FLOPs and bytes of a node; None where they are unknown."""
    try:
        return _known_cost(node)
    except GraphError:
        return _UNKNOWN


def total_cost(graph: Graph) -> Cost:
    """FLOPs and bytes of all nodes together; None if those of a node are unknown."""
    return sum_of_costs(Counter(node_cost(n) for n in graph.nodes if n.op.startswith("call_")))


def sum_of_costs(counts: Mapping[Cost, int]) -> Cost:
    """The sum of the costs, each times its count."""
    items = counts.items()
    return Cost(
        total((cost.flops, count) for cost, count in items),
        total((cost.read, count) for cost, count in items),
        total((cost.written, count) for cost, count in items),
    )


def total(terms: Iterable[tuple[Dim | None, int]]) -> Dim | None:
    """The sum of ``value * count``; None if a value is unknown."""
    known, named = 0, []
    for value, count in terms:
        if value is None:
            return None
        if type(value) is int:
            known += value * count
        else:
            named.append(value * count)
    return shapes.normalize(sympy.Add(known, *named)) if named else known


def _known_cost(node: Node) -> Cost:
    if node.op == "call_module":
        raise GraphError(f"{node.describe()}: the cost of a leaf module is unknown")
    if node.op != "call_function":
        return _NOTHING
    if node.type is None:
        raise GraphError(f"{node.describe()} has no type; trace with input types")
    op: Op = node.target
    if op.kind == "control":
        parts = [lambda n, name=name: getattr(_known_cost(n), name) for name in ("flops", "read", "written")]
        return Cost(*(loop_cost(node, part) for part in parts))
    types = op.map_tensors(_type_of, node.arguments)
    call = op, tuple(types.items()), _static(node.type)
    try:
        return _call_cost(*call)
    except TypeError as error:
        if "unhashable" not in str(error):  # an attribute such as a slice
            raise
        return _call_cost.__wrapped__(*call)


def is_view(op: Op) -> bool:
    """True if the result is always in the memory of its operand (for reshape: of a contiguous one)."""
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
    if op.is_random:  # drawing numbers does not count as arithmetic
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


def longest_chain(nodes: Iterable[Node], dims: Mapping[str, int] | None = None) -> Chain:
    """The longest chain of operations from an input to one of the nodes, which are in order. It
    determines how large rounding errors may be (:func:`fxlite.types.agreement.bound`). ``dims`` are the
    sizes of named dims."""
    known: dict[Node, Chain] = {}
    longest = _NO_CHAIN
    for node in nodes:
        before = _NO_CHAIN
        for source in node.all_input_nodes:
            before = before.at_least(known.get(source, _NO_CHAIN))
        known[node] = before.then(_link(node, dims or {}))
        longest = longest.at_least(known[node])
    return longest


_NO_CHAIN = Chain()


def _link(node: Node, dims: Mapping[str, int]) -> Chain:
    """The link that one call adds to a chain: its operations for one element of the result."""
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


#: Kinds of ops that do not round: they copy numbers, or make new ones.
_ROUNDS_NOTHING = ("view", "gather", "creation", "random")


def _number(value: Dim, dims: Mapping[str, int]) -> float:
    """A size as a number; dims that are not given are as large as the largest."""
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
        node = tracer.graph.create_node("placeholder", "x", type_expr=value)
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
    """A number or expression in a few characters: ``1.23M``, ``4.1k*B*T + 12*B + …``.

    Numbers have at most four digits and a decimal prefix; of a sum, the three terms of the highest
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
    """``1.23M``; integers below 10,000 are written in full."""
    if abs(value) < 10_000 and value == int(value):
        return str(int(value))
    size = abs(float(value))
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= 0.9995 * factor:
            return f"{'-' if value < 0 else ''}{_three(size / factor)}{prefix}"
    return f"{float(value):.3g}"


def _three(value: float) -> str:
    """Three digits without an exponent: 1.23, 12.3, 123, 1235."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


# -- the roofs of a machine ------------------------------------------------------------------------
@dataclass(frozen=True)
class Roof:
    """One rate in ``unit`` (``FLOP/s``, ``OP/s`` or ``B/s``), with one thread and with all, and how
    it was measured."""

    name: str
    unit: str
    one_thread: float
    all_threads: float
    how: str


@dataclass(frozen=True)
class Limits:
    """The least times in seconds that the arithmetic and the moving of bytes take. ``memory`` is where
    the bytes are: ``cache`` if they fit into it, else ``memory``."""

    compute_seconds: float
    memory_seconds: float
    memory: str

    @property
    def seconds(self) -> float:
        """The least time in seconds for the work: both may go on at the same time."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def bound(self) -> str:
        """What sets the limit: ``compute``, ``memory`` or ``cache``; empty if there is no work."""
        if not self.seconds:
            return ""
        return "compute" if self.compute_seconds >= self.memory_seconds else self.memory


@dataclass(frozen=True, repr=False)
class Roofs(Printed):
    """The rates of a machine. ``threads`` is the number of threads that ``all_threads`` of a roof was
    measured with, ``cache_bytes`` the size of the last-level cache; ``left_out`` lists what was not
    measured and why, ``measured`` is the day."""

    cpu: str
    threads: int
    cache_bytes: int
    roofs: Mapping[str, Roof]
    left_out: tuple[str, ...]
    measured: str

    @property
    def about(self) -> str:
        return f"{len(self.roofs)} rates of {self.cpu}"

    def rate(self, name: str, threads: int) -> float:
        """The rate with ``threads`` threads: that of one thread times their number, but at most that of
        all threads. Raises KeyError for a roof that was not measured."""
        roof = self.roofs[name]
        if threads >= self.threads:
            return roof.all_threads
        return max(roof.one_thread, min(roof.one_thread * threads, roof.all_threads))

    def compute(self, dtype: str, threads: int) -> float:
        """The most operations per second on values of a dtype (``f32``). 8-bit integers have the best
        rate of the instructions that multiply them; half floats, and all dtypes without a roof of
        their own, are computed as f32."""
        if dtype == "f64":
            return self.rate("fma_f64", threads)
        names = ["fma_f32"]
        if dtype in ("i8", "u8"):
            names += [f"{way}_int8" for way in ("pairs", "dot", "tile")]
        return max(self.rate(name, threads) for name in names if name in self.roofs)

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        many = self.threads > 1
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("roof", no_wrap=True)
        for heading in ("1 thread", f"{self.threads} threads") if many else ("1 thread",):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("how it was measured")
        for roof in self.roofs.values():
            rates = [quantity_text(roof.one_thread, roof.unit)]
            rates += [quantity_text(roof.all_threads, roof.unit)] if many else []
            table.add_row(roof.name, *rates, roof.how)
        notes = [f"{self.cpu}, measured on {self.measured}"]
        notes += [f"left out: {text}" for text in self.left_out]
        return Group(table, Text("\n".join(notes), style="dim"))


def limits(roofs: Roofs, flops: int, bytes_read: int, bytes_written: int, dtype: str, threads: int) -> Limits:
    """The least time for some work.

    Bytes that fit into half of the last-level cache are assumed to be in it, as the results of the
    step before mostly are."""
    in_cache = bytes_read + bytes_written <= roofs.cache_bytes // 2
    place = "cached_" if in_cache else ""
    seconds = bytes_read / roofs.rate(f"{place}read", threads)
    seconds += bytes_written / roofs.rate(f"{place}write", threads)
    memory = "cache" if in_cache else "memory"
    return Limits(flops / roofs.compute(dtype, threads), seconds, memory)


def quantity_text(value: float, unit: str = "") -> str:
    """``117 GFLOP/s``, or ``117G`` without a unit: three digits and a decimal prefix."""
    space = " " if unit else ""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{_three(value / factor)}{space}{prefix}{unit}"
    return f"{_three(value)}{space}{unit}"


# -- weights ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Weight:
    """An array that a program owns: its elements, its bytes, and whether it is a parameter or a buffer
    (running statistics, constants)."""

    path: str
    size: int
    nbytes: int
    is_parameter: bool


def weights_by_node(module: GraphModule) -> dict[Node, tuple[Weight, ...]]:
    """The weights that each call reads, including those of a leaf module; calls that read none are left
    out."""
    known: dict[int, Weight] = {}
    of_path: dict[str, Weight] = {}
    found: dict[Node, tuple[Weight, ...]] = {}

    def weight(path: str, array: Any) -> Weight:
        if id(array) not in known:
            is_parameter = isinstance(array, Parameter) and array.is_parameter
            known[id(array)] = Weight(path, int(array.size), int(array.nbytes), is_parameter)
        return known[id(array)]

    for node in module.graph.nodes:
        if node.op == "get_attr":
            of_path[node.target] = weight(node.target, module.get_attribute(node.target))
            continue
        read = [of_path[used.target] for used in node.all_input_nodes if used.op == "get_attr"]
        if node.op == "call_module":
            leaf = module.get_submodule(node.target)
            for named in (leaf.named_parameters(), leaf.named_buffers()):
                read += [weight(f"{node.target}.{name}", array) for name, array in named]
        if read and node.op != "output":
            found[node] = tuple(dict.fromkeys(read))
    return found


def weights_of(nodes: Iterable[Node], by_node: dict[Node, tuple[Weight, ...]]) -> list[Weight]:
    """The weights that the nodes read, each once."""
    return list(dict.fromkeys(w for node in nodes for w in by_node.get(node, ())))


# -- loops and conditions --------------------------------------------------------------------------
#: A number of operations or bytes for a call.
CostOf = Callable[[Node], Dim]
Env = Mapping[Node, Dim]


def loop_cost(node: Node, cost_of: CostOf, env: Env | None = None) -> Dim:
    """The cost of all calls in the bodies of a node, each times how often it runs; of a condition, the
    cost of its larger branch. ``env`` has the values of the loop variables around."""
    env = env or {}
    bodies = bodies_of(node)
    if "true_fn" in bodies:
        one, other = (_body_cost(node, body, cost_of, env, 0) for body in bodies.values())
        return shapes.maximum(one, other)
    trips = symbols.symbol(f"{node.name}_trips")
    if "cond_fn" in bodies:
        test, body = (_body_cost(node, b, cost_of, env, 0) for b in bodies.values())
        return shapes.normalize(trips * (test + body) + test)
    lower, upper = (_known(value, env) for value in node.args[:2])
    body = bodies["body_fn"]
    if lower is None or upper is None:
        return shapes.normalize(trips * _body_cost(node, body, cost_of, env, 1))
    number = sympy.Symbol(f"_{node.name}", integer=True)
    once = _body_cost(node, body, cost_of, {**env, body.inputs[0]: number}, 1)
    if not sympy.sympify(once).has(number):
        return shapes.normalize(once * _not_negative(upper - lower))
    total = sympy.summation(once, (number, lower, upper - 1))
    return shapes.normalize(sympy.expand(total))


def _not_negative(dim: Any) -> Dim:
    """The number of iterations, 0 for a negative one."""
    dim = shapes.normalize(dim)
    return max(dim, 0) if type(dim) is int else dim


def _body_cost(node: Node, body: SubGraph, cost_of: CostOf, env: Env, lead: int) -> Dim:
    captured = node.arguments.get(BODIES[node.target][1], ())
    start = len(body.inputs) - len(captured)
    inner: dict[Node, Dim] = {n: env[n] for n in body.inputs[:lead] if n in env}
    for own, outer in zip(body.inputs[start:], captured):
        known = _known(outer, env)
        if known is not None:
            inner[own] = known
    total: Dim = 0
    for call in body.calls:
        total = total + (loop_cost(call, cost_of, inner) if bodies_of(call) else cost_of(call))
    return shapes.normalize(total) if not _has_numbers(total) else total


def _has_numbers(value: Any) -> bool:
    found = getattr(value, "free_symbols", ())
    return any(s.name.startswith("_") for s in found)


def _known(value: Any, env: Env) -> Any:
    """A number as a size if it is computed from sizes and loop variables alone, else None."""
    if type(value) is int:
        return value
    if not isinstance(value, Node):
        return None
    if value in env:
        return env[value]
    if value.op != "call_function":
        return None
    if value.target.name == "full":
        found = value.arguments["value"]
        return None if isinstance(found, (float, bool)) or value.type.rank else found
    if len(value.args) != 2 or value.target.symbol not in tuple("+-*"):
        return None
    one, other = (_known(v, env) for v in value.args)
    if one is None or other is None:
        return None
    symbol_ = value.target.symbol
    return one + other if symbol_ == "+" else one - other if symbol_ == "-" else one * other
