"""Where integers flow: which values of a graph need observers, which ops pass integers on, and who
reads them; and which values become integers at run time.

In: a graph and the config of each call. Out: an :class:`IntegerFlow`; nothing is edited.

A static product wants its operands as integers. An op that only moves numbers and whose result is
wanted as integers wants its operands as integers in the same scale. Such a chain ends at a computed
value, and that value is observed. Who else reads the integers depends on how the value is computed.
The results of integer products and of elementwise arithmetic on them are stored as integers for all
their readers, in a quarter of the bytes. A value computed in float (layer norm, softmax, an input)
exists in float anyway, and only products read it rounded.

Elementwise arithmetic after a product is computed on its sums before they are stored, so that
intermediate values are not rounded. An addition can be part of only one product, the last; its other
operand is stored, and hence observed.

Operands of dynamic products and states of recurrences become integers at run time. In: a product with
a dynamic config, or the range of the states of a recurrence and a weight as integers. Out:
:class:`Rows`, which says which integers are used and which numbers share a scale; convert writes it as
ops, and :func:`rounded_rows` computes it in float. For recurrences: attributes of
``int_recurrence``, or its result. States become integers in each step of the loop, so runs that
compute other products from rounded floats call the integer op itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.graph.disjoint import DisjointSets
from fxlite.graph.graph import Graph, Node
from fxlite.ops.integer.quantized import dynamic_scale, fake_quantize
from fxlite.ops.integer.quantized_product import largest_depth
from fxlite.passes.quantize.schemes.roles import (
    carries,
    clip_bounds,
    data_slots,
    depth,
    factor,
    is_elementwise,
    is_float32,
    is_reducing,
    is_weight,
    moved,
    multiply_adds,
    operands,
    why_not,
    why_not_table,
)
from fxlite.passes.quantize.schemes.scheme import QConfig, QuantizedWeight, Scheme
from fxlite.passes.rewrite.rule import is_call
from fxlite.types import dtypes


@dataclass(frozen=True)
class IntegerFlow:
    """``products`` are computed as their config says; ``reasons`` says why others are not.
    ``carriers`` run on integers. ``groups`` are the values to observe, in lists that share a scale,
    each with its scheme; those in ``stored`` are rounded for every reader. ``edges`` has (product,
    operand, scheme) if a product wants another scheme than the chain has. ``tables`` are embeddings
    whose rows become integers."""

    products: dict[Node, QConfig]
    tables: dict[Node, QConfig]
    reasons: dict[Node, str]
    carriers: frozenset[Node]
    groups: list[tuple[Scheme, list[Node]]]
    stored: frozenset[Node]
    edges: list[tuple[Node, Node, Scheme]]


@dataclass
class _Flow:
    """What has been found out about the values of a graph."""

    order: dict[Node, int] = field(default_factory=dict)
    static: dict[Node, QConfig] = field(default_factory=dict)  # calls with a static config
    products: dict[Node, QConfig] = field(default_factory=dict)
    tables: dict[Node, QConfig] = field(default_factory=dict)
    reasons: dict[Node, str] = field(default_factory=dict)
    carriers: set[Node] = field(default_factory=set)  # nodes that could carry integers
    #: values that come from integer products and elementwise arithmetic alone
    born: set[Node] = field(default_factory=set)
    #: the product in whose epilogue a value is computed
    epilogue: dict[Node, Node] = field(default_factory=dict)
    wanted: dict[Node, Scheme] = field(default_factory=dict)
    #: values whose integers are joined with others, so that they have one scale
    joined: set[Node] = field(default_factory=set)


def find_integer_flow(graph: Graph, qconfigs: dict[Node, QConfig | None], rules: dict[Node, str]) -> IntegerFlow:
    """Decide for every node how it is computed. The graph must have types."""
    flow = _Flow()
    for position, node in enumerate(graph.nodes):
        flow.order[node] = position
        if node.op == "call_function":
            _classify(flow, node, qconfigs.get(node), rules.get(node, "global"))
    for node in reversed(graph.nodes):
        _find_wants(flow, node)
    # all parts of a split are integers, including unused ones
    carriers = frozenset(
        n for n in flow.carriers if n in flow.wanted or (is_call(n, "getitem") and n.args[0] in flow.wanted)
    )
    groups, edges = _groups(flow, carriers)
    stored = frozenset(v for _, values in groups for v in values if v in flow.born)
    return IntegerFlow(flow.products, flow.tables, flow.reasons, carriers, groups, stored, edges)


def _classify(flow: _Flow, node: Node, qconfig: QConfig | None, rule: str) -> None:
    """Find role and origin of one call; its operands are classified already."""
    is_static = qconfig is not None and qconfig.mode == "static"
    if is_static:
        assert qconfig is not None
        flow.static[node] = qconfig
    is_product = node.target.role == "product" or multiply_adds(node) != 0
    if is_product or node.target.role == "table":
        reason = (why_not if is_product else why_not_table)(node, qconfig, rule)
        if reason is not None:
            flow.reasons[node] = reason
        elif qconfig is not None and qconfig.mode != "cast":
            (flow.products if is_product else flow.tables)[node] = qconfig
            if is_product and is_static and not is_call(node, "recurrence"):  # whose states are computed in float
                flow.born.add(node)
                flow.epilogue[node] = node
    elif is_static and carries(node):
        flow.carriers.add(node)
        if all(v in flow.born for v in moved(node)):
            flow.born.add(node)
    elif is_static and (is_elementwise(node) or is_reducing(node)):
        values = [v for v in operands(node) if not is_weight(v) and is_float32(v)]
        if values and all(v in flow.born for v in values):
            flow.born.add(node)
    if is_static and is_elementwise(node) and node not in flow.products:
        origins = [flow.epilogue[v] for v in operands(node) if v in flow.epilogue]
        if origins:
            flow.epilogue[node] = max(origins, key=flow.order.__getitem__)


def _find_wants(flow: _Flow, node: Node) -> None:
    """Find what a node wants of its operands, once it is known what is wanted of the node."""
    if node in flow.products:
        qconfig = flow.products[node]
        if qconfig.mode == "static":
            assert qconfig.activation is not None
            for value in data_slots(node):
                flow.wanted[value] = qconfig.activation  # the first reader's scheme stays
    elif node in flow.carriers:
        if node in flow.joined and factor(node) is not None:
            flow.carriers.remove(node)  # it would change the scale, so it is computed and observed
        elif node in flow.wanted:
            values = moved(node)
            for value in values:
                flow.wanted.setdefault(value, flow.wanted[node])
            if node in flow.joined or len(values) > 1:
                flow.joined |= set(values)
    elif node in flow.static:
        scheme = flow.static[node].activation
        assert scheme is not None
        for value in operands(node):
            if value not in flow.born or not (is_elementwise(node) or is_reducing(node)):
                continue
            is_fused = value in flow.epilogue and flow.epilogue.get(node) is flow.epilogue[value]
            if not is_fused:
                flow.wanted.setdefault(value, scheme)


def _groups(
    flow: _Flow, carriers: frozenset[Node]
) -> tuple[list[tuple[Scheme, list[Node]]], list[tuple[Node, Node, Scheme]]]:
    """The observed values in lists that share a scale, and the products that want another scheme."""
    sets = DisjointSets()
    for node in carriers:
        sets.join(node, moved(node))
    members: dict[Node, list[Node]] = {}
    for value in sorted(flow.wanted, key=flow.order.__getitem__):
        if value not in carriers:
            members.setdefault(sets.find(value), []).append(value)
    schemes: dict[Node, Scheme] = {}
    readers: list[tuple[Node, Node, Scheme]] = []
    for product in sorted(flow.products, key=flow.order.__getitem__):
        qconfig = flow.products[product]
        if qconfig.mode == "static" and qconfig.activation is not None:
            for value in data_slots(product):
                readers.append((product, value, qconfig.activation))
                schemes.setdefault(sets.find(value), qconfig.activation)
    groups = [(schemes.get(r, flow.wanted[values[0]]), values) for r, values in members.items()]
    edges = [(p, v, s) for p, v, s in readers if schemes[sets.find(v)] != s]
    return groups, edges


# -- integers at run time --------------------------------------------------------------------------
# -- operands of dynamic products ------------------------------------------------------------------
@dataclass(frozen=True)
class Rows:
    """Integers of ``dtype`` in ``qmin..qmax`` with zero point 0; numbers that differ only in their
    position along ``axes`` share a scale."""

    dtype: str
    qmin: int
    qmax: int
    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} per {'token' if len(self.axes) == 1 else 'image'}"


def rows_of(node: Node, scheme: Scheme) -> Rows:
    """The rows of a linear layer's operand, or the images of a convolution's. Values that cannot be
    negative become u8 (0..255), with half the step of i8, if int32 can hold the sums."""
    x = node.arguments["x"]
    is_conv = node.target.name.startswith("conv")
    axes = tuple(range(1, x.type.rank)) if is_conv else (-1,)
    length = depth(node)
    fits = isinstance(length, int) and length <= largest_depth(dtypes.uint8, dtypes.int8)
    if fits and is_never_negative(x):
        return Rows("u8", 0, 255, axes)
    return Rows(scheme.dtype, *scheme.range, axes)


def is_never_negative(value: Node) -> bool:
    """True for the result of a relu or a similar op, even if it was moved or averaged afterwards."""
    while True:
        bounds = clip_bounds(value)
        never = value.op == "call_function" and value.target.nonnegative
        if never or (bounds and bounds[0] is not None and bounds[0] >= 0):
            return True
        if value.op == "call_module" or is_call(value, "fake_quantize"):  # an observer
            value = value.args[0]
            continue
        sources = moved(value) if carries(value) or is_reducing(value) else []
        if len(sources) != 1 or bounds:
            return False
        value = sources[0]


def rounded_rows(x: Any, node: Node, scheme: Scheme) -> Any:
    """An operand of a dynamic product, as the floats that its integers represent."""
    if x.size == 0:
        return x
    rows = rows_of(node, scheme)
    scale = dynamic_scale(x, rows.axes, True, rows.qmax)
    return fake_quantize(x, scale, dtype=rows.dtype, qmin=rows.qmin, qmax=rows.qmax)


# -- states of recurrences -------------------------------------------------------------------------
def state_scheme(scheme: Scheme) -> Scheme:
    """The scheme for states if activations use ``scheme``: i8 becomes symmetric."""
    return scheme if scheme.dtype == "u8" else replace(scheme, symmetric=True)


def state_attributes(scheme: Scheme, scale: Any, zero_point: Any) -> dict[str, Any]:
    """Attributes of ``int_recurrence`` for states with this scale and zero point."""
    affine = {"state_zero_point": int(zero_point)} if scheme.dtype == "u8" else {}
    return {"state_scale": float(scale), **affine}


def row_scales(scale: Any, rows: int) -> Any:
    """A weight's scale for each of its rows."""
    return np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (rows,)))


def integer_recurrence(
    args: Sequence[Any], kwargs: Mapping[str, Any], weight: QuantizedWeight, state: Mapping[str, Any]
) -> Any:
    """The result of a float recurrence with these arguments, computed in integers; the attributes
    ``state`` say how states are rounded (dynamically if there are none)."""
    arguments = ops.recurrence.bind(args, kwargs)
    scales = row_scales(weight.scale, len(weight.integers))
    arguments |= {"weight_hh": weight.integers, "weight_scale": scales, **state}
    return ops.int_recurrence(**arguments)
