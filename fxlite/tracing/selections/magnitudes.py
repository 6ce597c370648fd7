"""Bounds of the Python integers that a program computes. They are unlimited in Python, but have 64 bits here.

In: a number, or the effect of a loop's round on the numbers that it carries. Out: a bound of the magnitude, with which
the tracer decides where the program has to check for numbers that do not fit 64 bits, and raise OverflowError.
Unknown numbers (elements of inputs, the number of rounds) are assumed to be below :data:`UNKNOWN`. So counters, sums
and indices need no check, but numbers that are multiplied in each round are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.graph.graph import Node
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.subgraph import SubGraph
    from fxlite.tracing.tracer import Tracer


#: Integers of 64 bits are smaller.
LIMIT = 2.0**63
#: The assumed magnitude of a number about which nothing is known.
UNKNOWN = 2.0**20
#: The rounds of a loop that are followed one by one; afterwards, growth is assumed to be that in their second half.
_FOLLOWED = 16
_MOST_EXACT = 64
#: The largest bound: products of two such bounds are still finite floats.
_MOST = 2.0**200
#: How many calls above a number are examined.
_DEEPEST = 40


def _power(x: float, y: float) -> float:
    return _MOST if y * math.log2(max(x, 1)) > 200 else float(x**y)


#: The magnitude of a result from those of both operands.
_RULES: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x + y,
    "*": lambda x, y: x * y,
    "**": _power,
    "<<": lambda x, y: x * _power(2, y),
    ">>": lambda x, y: x,
    "//": lambda x, y: x,
    "%": lambda x, y: y,
    "&": lambda x, y: min(x, y),
    "|": lambda x, y: x + y,
    "^": lambda x, y: x + y,
}


#: Operators whose result is smaller if the second operand is a known number.
_SHRINK = ("//", ">>")


def largest(tracer: Tracer, value: Any, depth: int = _DEEPEST) -> float:
    """A bound of the magnitude of a number."""
    node = getattr(value, "_node", value)
    if not isinstance(node, Node):
        return _of_literal(node)
    node = tracer.outside.get(node, node)
    found = tracer.magnitudes.get(node)
    if found is None:
        found = _of_call(node, lambda v: largest(tracer, v, depth - 1)) if depth else UNKNOWN
        tracer.magnitudes[node] = found
    return found


def _of_literal(value: Any) -> float:
    return min(float(abs(value)), _MOST) if isinstance(value, (bool, int)) else UNKNOWN


def _of_call(node: Node, of: Callable[[Any], float]) -> float:
    """A bound of a node's value, from the bounds of its operands."""
    kind = node.type
    if not isinstance(kind, TensorType) or not (kind.dtype.is_integer or kind.dtype.is_bool):
        return UNKNOWN
    if kind.dtype.is_bool:
        return 1.0
    narrow = float(np.iinfo(kind.dtype.numpy).max) if kind.dtype is not dtypes.int64 else UNKNOWN
    if node.op != "call_function" or kind.shape:
        return min(narrow, UNKNOWN)
    op, bound = node.target, node.bound
    if "value" in bound:  # a created number
        return _of_literal(bound["value"])
    operands = [v for v in op.tensors(bound) if not _is_bool(v)]
    if any(isinstance(v, Node) and not _is_integer(v) for v in operands) or op.kind != "pointwise":
        return min(narrow, UNKNOWN)
    sizes = [of(v) for v in operands] or [1.0]
    rule = _RULES.get(op.symbol or "")
    if rule is None or len(sizes) != 2:
        return min(max(sizes), _MOST)
    if op.symbol in _SHRINK and isinstance(operands[1], int):
        return sizes[0] / (sizes[1] or 1) if op.symbol == "//" else sizes[0] / _power(2, sizes[1])
    return min(rule(*sizes), _MOST)


def _is_integer(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype.is_integer and not node.type.shape


def _is_bool(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.type, TensorType) and value.type.dtype.is_bool


#: By the id of a body: the calls on which its results depend.
_Needed = dict[int, list[Node]]


def _of_nodes(nodes: Sequence[Node], sizes: dict[Node, Any], needed: _Needed) -> bool:
    """Add bounds for all nodes to ``sizes``; returns whether one of them exceeds 64 bits."""
    above = False
    for node in nodes:
        if node in sizes or node.op != "call_function":
            continue
        if node.target.kind == "control":
            sizes[node] = _of_control(node, sizes, needed)
        elif node.target.name == "getitem":
            several = sizes.get(node.args[0])
            sizes[node] = several[node.kwargs["index"]] if isinstance(several, list) else UNKNOWN
        elif _is_integer(node):
            sizes[node] = _of_call(node, lambda v: _read(v, sizes))
            above = above or sizes[node] >= LIMIT
    return above


def _read(value: Any, sizes: Mapping[Node, Any]) -> float:
    found = sizes.get(value) if isinstance(value, Node) else _of_literal(value)
    return found if isinstance(found, float) else UNKNOWN


def _calls_for_results(body: SubGraph) -> list[Node]:
    """The calls of a body on which bounds of its results depend. Only single integers have some."""
    wanted, found = {node for node in body.results if _is_integer(node)}, list[Node]()
    for node in reversed(body.calls):
        if node in wanted:
            found.append(node)
            wanted.update(n for n in node.all_input_nodes if _is_integer(n) or type(n.type) is tuple)
    return found[::-1]


def _of_control(node: Node, sizes: Mapping[Node, Any], needed: _Needed) -> list[float]:
    """Bounds of the results of a condition, and of those of a loop after a few rounds."""
    bound = node.arguments
    bodies = [bound[name] for name in ("true_fn", "false_fn", "body_fn") if name in bound]
    found: list[float] = []
    for body in bodies:
        calls = needed.get(id(body))
        if calls is None:
            calls = needed[id(body)] = _calls_for_results(body)
        carried = [_read(v, sizes) for v in bound.get("carried", ())]
        more = [_read(v, sizes) for v in bound.get("captured", bound.get("operands", ()))]
        for _ in range(3 if "carried" in bound else 1):
            numbers = [UNKNOWN] * (len(body.inputs) - len(carried) - len(more))
            inner: dict[Node, Any] = dict(zip(body.inputs, [*numbers, *carried, *more]))
            _of_nodes(calls, inner, needed)
            before = carried or [0.0] * len(body.results)
            carried = [max(a, _read(node, inner)) for a, node in zip(before, body.results)]
            if carried == before:
                break
        found = [max(a, b) for a, b in zip(found, carried)] if found else carried
    return found


def after_rounds(
    tracer: Tracer, nodes: Sequence[Node], carried: Sequence[tuple[Node, Any, float]], count: int | None
) -> list[float] | None:
    """Bounds of carried numbers over ``count`` rounds. Each number is given by an input of the body, the result of a
    round, and its bound before the loop. None if neither they nor numbers computed from them can exceed 64 bits."""
    inputs = {node: largest(tracer, node) for node in nodes if node.op == "placeholder" and _is_integer(node)}
    inputs |= {node: before for node, _, before in carried}
    now = [before for _, _, before in carried]
    rounds = min(UNKNOWN, math.inf if count is None else count)
    followed = int(rounds) if rounds <= _MOST_EXACT else _FOLLOWED
    half, needed = now, _Needed()
    for number in range(followed):
        half = now if number <= followed // 2 else half
        sizes: dict[Node, Any] = inputs | dict(zip([node for node, _, _ in carried], now))
        _of_nodes(nodes, sizes, needed)
        before, now = now, [max(a, _read(after, sizes)) for a, (_, after, _) in zip(now, carried)]
        if now == before:
            break
    if rounds > followed:
        growth = [math.log2(b / a) if a else 1.0 if b else 0.0 for a, b in zip(half, now)]
        now = [min(b * _power(rounds / followed, g), _MOST) for b, g in zip(now, growth)]
    sizes = inputs | dict(zip([node for node, _, _ in carried], now))
    return now if _of_nodes(nodes, sizes, needed) or any(v >= LIMIT for v in now) else None
