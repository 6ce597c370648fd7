"""Rules of :mod:`fxlite.passes.simplify` about views: reshape, permute, slice and their like.

They move elements or change nothing, so they hold for every value. In: graphs. Out: :data:`VIEWS`,
rules in the order in which they are tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.ops.op import REGISTRY
from fxlite.passes.rewrite.node_rule import Answer, Call, is_call, node_rule
from fxlite.passes.rewrite.rule import rule
from fxlite.passes.rewrite.rule_set import AnyRule
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

RESHAPES = tuple(o.name for o in REGISTRY.values() if o.kind == "view" and o.keeps_order)


@node_rule(*RESHAPES, register=False)
def reshape_back(node: Node) -> Answer:
    """A reshape to the shape a value has, or back to the one it had two steps ago, is that value;
    squeeze and unsqueeze are reshapes."""
    x = node.args[0]
    if not isinstance(node.type, TensorType):
        return _squeeze_of_unsqueeze(node)
    if isinstance(x, Node) and x.type == node.type:
        return x
    if is_call(x, *RESHAPES) and x.args[0].type == node.type:
        return x.args[0]  # type: ignore[no-any-return]
    return None


def _squeeze_of_unsqueeze(node: Node) -> Answer:
    """Without types: only squeeze(unsqueeze(x, axis), axis) is known to be x."""
    x = node.args[0]
    is_pair = node.target.name == "squeeze" and is_call(x, node.target.inverse)
    same = is_pair and node.kwargs.get("axis") == x.kwargs.get("axis")
    return x.args[0] if same and node.kwargs.get("axis") is not None else None


reshape_back.example(lambda x: np.exp(x.reshape(2, 6).reshape(3, 4)), x="f32[3,4]")
reshape_back.counterexample(lambda x: x.reshape(4, 3), "another shape", x="f32[3,4]")


@node_rule("reshape", register=False)
def second_reshape(node: Node) -> Answer:
    """``reshape(reshape(x, a), b)`` is ``reshape(x, b)``."""
    x = node.args[0]
    if not is_call(x, *RESHAPES):
        return None
    shape = node.type.shape if isinstance(node.type, TensorType) else node.kwargs["shape"]
    return Call("reshape", x.args[0], shape=shape)


second_reshape.example(lambda x: x.reshape(2, 6).reshape(12), x="f32[3,4]")
second_reshape.counterexample(lambda x: x.T.reshape(12), "it follows a permute", x="f32[3,4]")


@node_rule("permute", register=False)
def second_permute(node: Node) -> Answer:
    """A permute of a permute is one permute; one that moves no axis is its input."""
    axes = node.kwargs["axes"]
    axes = tuple(a % len(axes) for a in axes)
    if axes == tuple(range(len(axes))):
        return node.args[0]  # type: ignore[no-any-return]
    x = node.args[0]
    if not is_call(x, "permute") or len(x.kwargs["axes"]) != len(axes):
        return None
    inner = tuple(a % len(axes) for a in x.kwargs["axes"])
    return Call("permute", x.args[0], axes=tuple(inner[a] for a in axes))


second_permute.example(lambda x: x.transpose(1, 2, 0).transpose(1, 2, 0), x="f32[2,3,4]")
second_permute.counterexample(lambda x: np.exp(x.T).T, "an op between", x="f32[3,4]")


@node_rule("expand", register=False)
def second_expand(node: Node) -> Answer:
    """``expand(expand(x, a), b)`` is ``expand(x, b)``; to the shape a value has, that value."""
    x = node.args[0]
    if not isinstance(node.type, TensorType) or not isinstance(x, Node):
        return None
    if x.type == node.type:
        return x
    return Call("expand", x.args[0], shape=node.type.shape) if is_call(x, "expand") else None


second_expand.example(lambda x: np.broadcast_to(np.broadcast_to(x, (3, 4)), (2, 3, 4)), x="f32[4]")
second_expand.counterexample(lambda x: np.broadcast_to(x, (3, 4)), "it repeats x", x="f32[4]")


@node_rule("slice", register=False)
def slice_of_all(node: Node) -> Answer:
    """A slice that takes everything is its input."""
    if node.type is None or node.bound["step"] != 1:
        return None
    return node.args[0]  # type: ignore[no-any-return]  # if of the same type, so of the same size


def _first_nine(x: Any) -> Any:
    return np.exp(ops.slice(x, axis=1, start=0, stop=9))


slice_of_all.example(_first_nine, x="f32[3,4]")
slice_of_all.counterexample(lambda x: x[:, 1:], "it takes a part", x="f32[3,4]")


@node_rule("flip", register=False)
def flip_back(node: Node) -> Answer:
    """``flip(flip(x, axis), axis)`` is x."""
    x = node.args[0]
    return x.args[0] if is_call(x, "flip") and x.kwargs == node.kwargs else None


flip_back.example(lambda x: np.exp(x[::-1][::-1]), x="f32[3,4]")
flip_back.counterexample(lambda x: x[::-1][:, ::-1], "another axis", x="f32[3,4]")


@rule(register=False)
def concat_of_one(x: Any, *, axis: Any) -> Any:
    """``concat((x,))`` is x."""
    return np.concatenate([x], axis=axis)


concat_of_one.replacement(lambda x: x)
concat_of_one.example(lambda x: np.exp(np.concatenate([x])), x="f32[4]")
concat_of_one.counterexample(lambda x: np.concatenate([x, x]), "two values", x="f32[4]")


@node_rule("pad", register=False)
def pad_by_nothing(node: Node) -> Answer:
    """A pad by no elements on any side is its input."""
    widths = node.arguments.get("padding", node.arguments.get("pad_width"))
    if not isinstance(widths, tuple) or node.type is None:
        return None
    flat = [w for pair in widths for w in (pair if isinstance(pair, tuple) else (pair,))]
    return node.args[0] if all(shapes.equal(w, 0) for w in flat) else None


pad_by_nothing.example(lambda x: np.exp(np.pad(x, 0)), x="f32[3,4]")
pad_by_nothing.counterexample(lambda x: np.pad(x, (0, 1)), "one more at each end", x="f32[3,4]")


@node_rule("getitem", register=False)
def element_of_split(node: Node) -> Answer:
    """The one element of a split into one part is the value itself."""
    x = node.args[0]
    whole = is_call(x, "split") and isinstance(x.type, tuple) and len(x.type) == 1
    return x.args[0] if whole else None


element_of_split.example(lambda x: np.exp(np.split(x, 1)[0]), x="f32[4]")
element_of_split.counterexample(lambda x: np.split(x, 2)[0], "it is one half", x="f32[4]")

#: In the order in which they are tried.
VIEWS: list[AnyRule] = [
    reshape_back, second_reshape, second_permute, second_expand, slice_of_all, flip_back,
    concat_of_one, pad_by_nothing, element_of_split,
]  # fmt: skip
