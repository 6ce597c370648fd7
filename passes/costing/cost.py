"""What a graph costs, as numbers or as expressions in its named dims.

In: a typed GraphModule. Out: :func:`cost`, a report of FLOPs, bytes, parameters and memory for each
node and module and for the whole; :func:`flops` alone. A FLOP is a scalar operation, a multiply-add
counting as two, so that a matrix product of [M, K] by [K, N] counts 2*M*N*K. What a single node
costs is said in :mod:`fxlite.show.node_cost`, what memory a graph needs in
:mod:`fxlite.passes.costing.peak_memory`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import GraphError, expect
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.costing.cost_report import CostReport, check_dims
from fxlite.passes.costing.costs import Costs, SizeRanges, sizes_that_pay
from fxlite.passes.costing.peak_memory import Largest, Polynomial, as_dim, moments
from fxlite.show.node_cost import Cost, Weight, node_cost, node_flops, sum_of_costs, weights_by_node
from fxlite.show.summary import outer_modules
from fxlite.types import shapes
from fxlite.types.shapes import Dim


def flops(gm: GraphModule) -> Dim:
    """Arithmetic operations of one run: an int, or a sympy expression in the named dims.

    Raises GraphError for a graph without types or with leaf modules, whose work is unknown."""
    total: Dim = 0
    for count in flops_by_node(gm).values():
        total = total + count
    return shapes.normalize(total)


def flops_by_node(gm: GraphModule) -> dict[Node, Dim]:
    """Arithmetic operations of each call; a composite's are those of its expansion."""
    return {node: node_flops(node) for node in gm.graph.nodes if node.op.startswith("call_")}


@checked
def cost(gm: GraphModule, sizes: Mapping[str, int] | None = None) -> CostReport:
    """FLOPs, bytes read and written, parameters and live memory of each call, of each module with
    what is inside it, and of the whole: ``print(passes.cost(gm))``.

    Numbers where all sizes are known, else sympy expressions in the named dims that ``sizes`` does
    not give. Every node counts as run by itself, as NumPy does: it reads its operands and writes
    its result; compiled code moves less where it fuses nodes. What is unknown (leaf modules, nodes
    without types) is None. Raises ArgumentError for a dim that the graph does not have."""
    expect(gm, GraphModule, "what is counted", "trace it first: fx.symbolic_trace(...)")
    given = dict(sizes or {})
    check_dims(gm.graph, given)
    weights = weights_by_node(gm)
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    at_sizes: dict[Cost, Cost] = {}
    by_node: dict[Node, Costs] = {}
    modules: dict[str, _Sum] = {"": _Sum()}
    held = _held(gm, given)
    for node in calls:
        found = node_cost(node)
        if found not in at_sizes:
            at_sizes[found] = Cost(*(shapes.substitute(v, given) for v in (found.flops, found.read, found.written)))
        read = dict.fromkeys(weights.get(node, ()))
        live = held.get(node)
        by_node[node] = _costs(at_sizes[found], read, live[1] if live is not None else None)
        for path in outer_modules(node.module_path):
            modules.setdefault(path, _Sum()).add(at_sizes[found], read, live)
    by_module = {path: found.costs() for path, found in modules.items()}
    return CostReport(gm, given, by_node, by_module)


@checked
def pays_when(
    before: CostReport | GraphModule,
    after: CostReport | GraphModule,
    dim: str,
    /,
    by: str | Callable[[Costs], Any] = "bytes",
    **sizes: int,
) -> SizeRanges:
    """For which sizes of ``dim`` the program ``after`` costs less than ``before``::

        >>> two = fx.symbolic_trace(lambda x, a, b: x @ a @ b, *types)
        >>> one = fx.symbolic_trace(lambda x, a, b: x @ (a @ b), *types)
        >>> passes.pays_when(two, one, "T", by="flops")  # x: f32[T,64]; a, b: f32[64,64]
        T > 64

    ``by`` is a cost (``flops``, ``bytes``, ``read``, ``written``, ``parameters``,
    ``parameter_bytes`` or ``peak``), or a function of :class:`Costs`, such as an estimated time,
    ``lambda c: c.flops / 50e9 + c.bytes / 20e9``. ``sizes`` are those of other dims; a dim by which
    both costs are multiplied needs none.

    Raises ArgumentError for an unknown cost or dim, for costs that are unknown (leaf modules, nodes
    without types), and where another dim decides."""
    pair = [r if isinstance(r, CostReport) else cost(r) for r in (before, after)]
    return sizes_that_pay(pair[0].total, pair[1].total, dim, by, sizes)


#: The bytes that are held while a node runs, in both forms.
_Held = tuple[Polynomial, Dim]


def _held(gm: GraphModule, sizes: dict[str, int]) -> dict[Node, _Held]:
    """The memory held while each node runs; of none where there are nodes without types."""
    found: dict[Node, _Held] = {}
    known: dict[frozenset[Any], Dim] = {}
    try:
        for moment in moments(gm.graph, sizes):
            key = frozenset(moment.held.items())
            if key not in known:
                known[key] = as_dim(moment.held)
            found[moment.node] = dict(moment.held), known[key]
    except GraphError:
        return {}
    return found


class _Sum:
    """The costs of the nodes in a module, being added up."""

    def __init__(self) -> None:
        self.counts: Counter[Cost] = Counter()
        self.weights: dict[Weight, None] = {}
        self.largest: Largest | None = Largest()

    def add(self, cost: Cost, weights: dict[Weight, None], held: _Held | None) -> None:
        """Add a node's."""
        self.counts[cost] += 1
        self.weights.update(weights)
        if held is None:
            self.largest = None
        elif self.largest is not None:
            self.largest.add(held[0])

    def costs(self) -> Costs:
        """The sum; the peak is the largest of the nodes'."""
        peak = None if self.largest is None else self.largest.value
        return _costs(sum_of_costs(self.counts), self.weights, peak)


def _costs(cost: Cost, weights: dict[Weight, None], peak: Dim | None) -> Costs:
    parameters = [w for w in weights if w.is_parameter]
    return Costs(
        cost.flops, cost.read, cost.written, sum(w.size for w in parameters), sum(w.nbytes for w in parameters), peak
    )
