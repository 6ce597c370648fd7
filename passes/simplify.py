"""Simplification: algebraic identities that hold bit for bit, NaN, infinities and -0.0 included.

Before::

    reshape: f32[B,8] = ops.reshape(x, shape=(B, 8))
    mul: f32[B,8] = reshape * 1
    reshape_1: f32[B,4,2] = ops.reshape(mul, shape=(B, 4, 2))

After::

    reshape_1: f32[B,4,2] = ops.reshape(x, shape=(B, 4, 2))

``x + 0`` stays: it turns -0.0 into 0.0. The rules are in :data:`RULES`, small functions keyed by
op; one gets a node and returns what its users may read instead: a node, a :class:`Call` of an op,
or None. A rule's answer is used only if it has the node's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxlite import shapes
from fxlite.graph import Node
from fxlite.graph_module import GraphModule
from fxlite.passes.base import graph_pass
from fxlite.passes.exact_casts import cast_of_cast
from fxlite.passes.rewire import Rewiring
from fxlite.types import TensorType


class Call:
    """A call to make in place of a node: ``Call("reshape", x, shape=(2, 3))``."""

    def __init__(self, op: str, *args: Any, **kwargs: Any) -> None:
        self.op, self.args, self.kwargs = op, args, kwargs


Rule = Callable[[Node], "Node | Call | None"]

#: Rules by op name. A user's own rule is added with ``RULES["my_op"].append(function)``.
RULES: dict[str, list[Rule]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ops."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES.setdefault(name, []).append(function)
        return function

    return register


@graph_pass
def simplify(gm: GraphModule) -> None:
    """Apply the rules until none fires; each changed node has its readers looked at again."""
    graph = gm.graph
    rewiring = Rewiring(graph)
    work = [n for n in reversed(graph.nodes) if n.op == "call_function"]
    waiting = set(work)
    made: set[Node] = set()
    inputs: dict[Node, None] = {}  # of replaced nodes: perhaps nobody reads them in the end
    while work:
        node = work.pop()
        waiting.discard(node)
        if node in rewiring or not (node.users or node in made):
            continue
        rewiring.refresh(node)
        new = _apply(node)
        if new is None:
            continue
        inputs.update(dict.fromkeys(node.all_input_nodes))
        again = [u for u in node.users if u.op == "call_function" and u not in waiting]
        if new.op == "call_function" and new not in waiting:
            again.append(new)
            made.add(new)  # nobody reads it yet
        work.extend(reversed(again))
        waiting.update(again)
        rewiring.replace(node, new)
    rewiring.finish(inputs)


def _apply(node: Node) -> Node | None:
    """The first rule's answer that fits, as a node in the graph."""
    for function in RULES.get(node.target.name, ()):
        found = function(node)
        if found is None or found is node:
            continue
        if isinstance(found, Node):
            if found.type == node.type:
                return found
            continue
        graph = node.graph
        with graph.inserting_before(node), graph.with_origin(node):
            made = graph.call_function(found.op, found.args, found.kwargs)
        if made.type == node.type:
            return made
        graph.erase_node(made)
    return None


# -- helpers ---------------------------------------------------------------------------------------
def is_call(value: Any, *names: str) -> bool:
    """True if ``value`` is a node that calls one of these ops."""
    return isinstance(value, Node) and value.op == "call_function" and value.target.name in names


def is_number(value: Any, number: float) -> bool:
    """True for a Python number of that value (sign of zero included), not for a bool."""
    return (
        type(value) in (int, float)
        and value == number
        and math.copysign(1, value) == math.copysign(1, number)
    )


def _dtype(node: Any) -> Any:
    return node.type.dtype if isinstance(node, Node) and isinstance(node.type, TensorType) else None


# -- arithmetic ------------------------------------------------------------------------------------
@rule("mul")
def _times_one(node: Node) -> Any:
    """x * 1 -> x"""
    a, b = node.args
    return a if is_number(b, 1) else b if is_number(a, 1) else None


@rule("div", "pow", "floor_divide")
def _by_one(node: Node) -> Any:
    """x / 1, x ** 1 -> x; x // 1 -> x for integers"""
    x, y = node.args
    if node.target.name == "floor_divide" and (_dtype(node) is None or _dtype(node).is_float):
        return None
    return x if is_number(y, 1) else None


@rule("sub")
def _minus_zero(node: Node) -> Any:
    """x - 0 -> x (x - 0.0 is x for x = -0.0 too)"""
    x, y = node.args
    return x if is_number(y, 0) else None


@rule("add")
def _plus_zero(node: Node) -> Any:
    """x + 0 -> x for integers; x + -0.0 -> x"""
    for x, y in (node.args, node.args[::-1]):
        if is_number(y, -0.0):
            return x
        if is_number(y, 0) and _dtype(node) is not None and _dtype(node).is_integer:
            return x
    return None


@rule("bitwise_or", "bitwise_xor", "left_shift", "right_shift")
def _with_no_bits(node: Node) -> Any:
    """x | 0, x ^ 0, x << 0, x >> 0 -> x"""
    return node.args[0] if is_number(node.args[1], 0) else None


@rule("neg", "bitwise_not", "logical_not")
def _twice_is_none(node: Node) -> Any:
    """neg(neg(x)) -> x (logical_not: of a bool, by the check of types)"""
    (x,) = node.args
    return x.args[0] if is_call(x, node.target.name) else None


@rule("abs", "relu", "floor", "ceil", "trunc", "round", "sign", "relu6")
def _twice_is_once(node: Node) -> Any:
    """relu(relu(x)) -> relu(x)"""
    (x,) = node.args
    return x if is_call(x, node.target.name) else None


@rule("abs", "square")
def _sign_is_lost(node: Node) -> Any:
    """abs(neg(x)) -> abs(x), square(neg(x)) -> square(x), square(abs(x)) -> square(x)"""
    (x,) = node.args
    return Call(node.target.name, x.args[0]) if is_call(x, "neg", "abs") else None


@rule("relu", "abs")
def _not_negative(node: Node) -> Any:
    """relu(exp(x)) -> exp(x)"""
    (x,) = node.args
    if is_call(x, "exp", "sigmoid", "abs", "relu") and _dtype(x) is not None and _dtype(x).is_float:
        return None if node.target.name == "relu" and x.target.name == "relu" else x
    return None


@rule("maximum", "minimum", "logical_and", "logical_or", "bitwise_and", "bitwise_or")
def _with_itself(node: Node) -> Any:
    """maximum(x, x) -> x"""
    return node.args[0] if node.args[0] is node.args[1] else None


@rule("where")
def _same_branches(node: Node) -> Any:
    """where(c, x, x) -> x"""
    return node.args[1] if node.args[1] is node.args[2] else None


def _bounds(node: Node) -> tuple[Any, Any]:
    if node.target.name == "relu":
        return 0, None
    return node.kwargs.get("min"), node.kwargs.get("max")


@rule("clip", "relu")
def _clip_of_clip(node: Node) -> Any:
    """clip(clip(x, a, b), c, d) -> clip(x, max(a, c), min(b, d)) where that is an interval"""
    (inner,) = node.args
    if not is_call(inner, "clip", "relu") or node.type is None:
        return None
    if inner.target is not node.target and _dtype(node).is_float:
        return None  # relu makes -0.0 to 0.0, clip at 0 does not
    if not (inner.type == node.type == getattr(inner.args[0], "type", None)):
        return None
    bounds = [b for n in (node, inner) for b in _bounds(n) if b is not None]
    if any(math.isnan(b) or (b == 0 and math.copysign(1, b) < 0) for b in bounds):
        return None
    lows = [_bounds(n)[0] for n in (node, inner) if _bounds(n)[0] is not None]
    highs = [_bounds(n)[1] for n in (node, inner) if _bounds(n)[1] is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    for n in (node, inner):  # each of the two, and the result, must be an interval
        a, b = _bounds(n)
        if a is not None and b is not None and a > b:
            return None
    if low is not None and high is not None and low > high:
        return None
    return Call("clip", inner.args[0], low, high)


# -- casts -----------------------------------------------------------------------------------------
@rule("cast")
def _cast_to_own(node: Node) -> Any:
    """A cast to the dtype a value has already."""
    return node.args[0] if isinstance(node.args[0], Node) and node.type is not None else None


@rule("cast")
def _cast_of_cast(node: Node) -> Any:
    """f32 -> f64 -> f16 is f32 -> f16: the first cast loses nothing"""
    (inner,) = node.args
    if not is_call(inner, "cast") or node.type is None:
        return None
    source = inner.args[0]
    if _dtype(source) is None or not cast_of_cast(_dtype(source), _dtype(inner), _dtype(node)):
        return None
    return source if _dtype(source) is _dtype(node) else Call("cast", source, _dtype(node))


# -- views -----------------------------------------------------------------------------------------
RESHAPES = ("reshape", "squeeze", "unsqueeze")  # elements keep their row-major order


@rule(*RESHAPES)
def _reshape_away(node: Node) -> Any:
    """A reshape to the shape a value has, or back to the one it had two steps ago."""
    x = node.args[0]
    if not isinstance(node.type, TensorType):
        return _squeeze_of_unsqueeze(node)
    if isinstance(x, Node) and x.type == node.type:
        return x
    if is_call(x, *RESHAPES) and x.args[0].type == node.type:
        return x.args[0]
    return None


def _squeeze_of_unsqueeze(node: Node) -> Any:
    """Without types: only squeeze(unsqueeze(x, axis), axis) is known to be x."""
    x = node.args[0]
    pair = (node.target.name, x.target.name) if is_call(x, *RESHAPES) else None
    same = pair == ("squeeze", "unsqueeze") and node.kwargs.get("axis") == x.kwargs.get("axis")
    return x.args[0] if same and node.kwargs.get("axis") is not None else None


@rule("reshape")
def _reshape_of_reshape(node: Node) -> Any:
    """reshape(reshape(x, a), b) -> reshape(x, b)"""
    x = node.args[0]
    if not is_call(x, *RESHAPES):
        return None
    shape = node.type.shape if isinstance(node.type, TensorType) else node.kwargs["shape"]
    return Call("reshape", x.args[0], shape=shape)


@rule("permute")
def _permute(node: Node) -> Any:
    """permute by the identity, permute of permute"""
    axes = node.kwargs["axes"]
    axes = tuple(a % len(axes) for a in axes)
    if axes == tuple(range(len(axes))):
        return node.args[0]
    x = node.args[0]
    if not is_call(x, "permute") or len(x.kwargs["axes"]) != len(axes):
        return None
    inner = tuple(a % len(axes) for a in x.kwargs["axes"])
    return Call("permute", x.args[0], axes=tuple(inner[a] for a in axes))


@rule("expand")
def _expand(node: Node) -> Any:
    """expand to the shape a value has, expand of expand"""
    x = node.args[0]
    if not isinstance(node.type, TensorType) or not isinstance(x, Node):
        return None
    if x.type == node.type:
        return x
    return Call("expand", x.args[0], shape=node.type.shape) if is_call(x, "expand") else None


@rule("slice")
def _slice_of_all(node: Node) -> Any:
    """x[0:n] of an axis of size n"""
    if node.type is None or node.kwargs.get("step", 1) != 1:
        return None
    return node.args[0]  # same type, so the same size: the slice takes everything


@rule("flip")
def _flip_of_flip(node: Node) -> Any:
    """flip(flip(x, axis), axis) -> x"""
    x = node.args[0]
    return x.args[0] if is_call(x, "flip") and x.kwargs == node.kwargs else None


@rule("concat")
def _concat_of_one(node: Node) -> Any:
    """concat((x,)) -> x"""
    return node.args[0][0] if len(node.args[0]) == 1 else None


@rule("pad")
def _pad_by_nothing(node: Node) -> Any:
    """pad by zero elements on every side"""
    widths = node.arguments.get("padding", node.arguments.get("pad_width"))
    if not isinstance(widths, tuple) or node.type is None:
        return None
    flat = [w for pair in widths for w in (pair if isinstance(pair, tuple) else (pair,))]
    return node.args[0] if all(shapes.equal(w, 0) for w in flat) else None


@rule("getitem")
def _element_of_split(node: Node) -> Any:
    """A split into one part has one element: the value itself"""
    x = node.args[0]
    whole = is_call(x, "split") and isinstance(x.type, tuple) and len(x.type) == 1
    return x.args[0] if whole else None


# -- randomness that is off ------------------------------------------------------------------------
@rule("dropout")
def _dropout_off(node: Node) -> Any:
    """dropout outside training, or with p=0"""
    arguments = node.arguments
    off = arguments.get("training", True) is False or arguments.get("p", 0.5) == 0
    return node.args[0] if off else None
