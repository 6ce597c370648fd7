"""Which nodes can be computed channels-last, and how, for :mod:`.channels_last`.

In: a typed graph. Out: a :class:`Form` for each convolution, pool, elementwise op, concat,
reduction and flattening that has one: the images that it reads, and the call on their channels-last
versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.layout import TO_LAST
from fxlite.ops.op import Op, normalize_axes
from fxlite.passes.layout.layout_costs import Gain, gain_of
from fxlite.types.tensor_type import TensorType

_NEUTRAL = Gain(0, "")
_TYPES = ("f32", "f64", "i8", "u8", "i32")  # of results of convolutions and pooling


@dataclass
class Form:
    """How a node is computed channels-last: from which ``images``, by which ``call`` of their
    versions; ``is_image``: its result is an image itself, else it is the same as before."""

    node: Node
    images: dict[Node, None]
    call: Callable[[Callable[[Any], Any]], tuple[Any, tuple[Any, ...], dict[str, Any]]]
    is_image: bool = True
    gain: Gain = _NEUTRAL
    last: bool = True


def forms_of(gm: GraphModule, bf16: bool = False) -> dict[Node, Form]:
    """The nodes that have a channels-last form, in order; ``bf16`` as for `gain_of`."""
    found: dict[Node, Form] = {}
    for node in gm.graph.nodes:
        typed = node.op == "call_function" and isinstance(node.type, TensorType)
        if typed and not node.is_impure():
            form = _form(node, bf16)
            if form is not None:
                found[node] = form
    return found


def has_layouts(op: Op) -> bool:
    """Whether the op takes images in either layout."""
    return "layout" in op.signature.parameters


def _is_image(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.type, TensorType) and value.type.rank == 4


def _form(node: Node, bf16: bool) -> Form | None:
    name, kind = node.target.name, node.target.kind
    if has_layouts(node.target):
        return _window_form(node, bf16)
    if name == "adaptive_avg_pool2d" and node.arguments["output_size"] in (1, (1, 1)):
        x = node.args[0]
        mean = {"axis": (1, 2), "keepdims": True}
        return Form(node, {x: None}, lambda last: ("mean", (last(x),), mean))
    if name == "concat" and _is_image(node):
        return _concat_form(node)
    if name == "reshape":
        return _flatten_form(node)
    if kind == "pointwise" and _is_image(node):
        return _pointwise_form(node)
    return _reduction_form(node) if kind == "reduction" else None


def _window_form(node: Node, bf16: bool) -> Form | None:
    """Convolution and pooling."""
    if node.type.dtype.name not in _TYPES or "layout" in node.arguments:
        return None
    gain = gain_of(node, bf16)
    if gain is None:
        return None
    x, *others = node.args
    kwargs = {**node.kwargs, "layout": "NHWC"}
    return Form(node, {x: None}, lambda last: (node.target, (last(x), *others), kwargs), gain=gain)


def _concat_form(node: Node) -> Form:
    (tensors,) = node.args
    (axis,) = normalize_axes(node.bound["axis"], 4)
    kwargs = {"axis": TO_LAST.index(axis)}
    return Form(
        node,
        dict.fromkeys(tensors),
        lambda last: ("concat", (tuple(map(last, tensors)),), kwargs),
    )


def _pointwise_form(node: Node) -> Form | None:
    """Elementwise ops: operands of rank 4 are images, [C, H, W] are turned by themselves, numbers
    need not be."""
    operands = node.all_input_nodes
    if "axis" in node.arguments:  # as that of a quantization by channels
        return None
    if any(not isinstance(v.type, TensorType) or v.type.rank in (1, 2) for v in operands):
        return None
    images = {v: None for v in operands if v.type.rank == 4}

    def call(last: Callable[[Any], Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        return node.target, tuple(map(last, node.args)), dict(node.kwargs)

    return Form(node, images, call)


def _reduction_form(node: Node) -> Form | None:
    """Reductions that keep the order of the axes that are left, or keep them all."""
    x = node.args[0]
    if not _is_image(x) or node.target.name in ("argmax", "argmin"):
        return None
    keepdims = node.bound["keepdims"]
    axes = normalize_axes(node.bound["axis"], 4)
    left = [a for a in TO_LAST if a not in axes]
    if not keepdims and left != sorted(left):
        return None
    kwargs = {**node.kwargs, "axis": tuple(sorted(TO_LAST.index(a) for a in axes))}
    return Form(
        node, {x: None}, lambda last: (node.target, (last(x),), kwargs), is_image=bool(keepdims)
    )


def _flatten_form(node: Node) -> Form | None:
    """A reshape to rows that only linear layers of known weights read: their columns are
    permuted."""
    x = node.args[0]
    if not _is_image(x) or node.type.rank != 2 or any(type(d) is not int for d in x.type.shape[1:]):
        return None
    _, channels, height, width = x.type.shape
    if node.type.shape[1] != channels * height * width or not node.users:
        return None
    for user in node.users:
        is_linear = user.op == "call_function" and user.target.name in ("linear", "int_linear")
        if not is_linear or user.args[0] is not node or user.args[1].op != "get_attr":
            return None
    kwargs = {"shape": node.type.shape}
    return Form(node, {x: None}, lambda last: ("reshape", (last(x),), kwargs), is_image=False)


def is_permute(node: Node, axes: tuple[int, ...]) -> bool:
    """Whether the node permutes a value to these axes."""
    is_op = node.op == "call_function" and node.target.name == "permute"
    return is_op and node.kwargs.get("axes") == axes
