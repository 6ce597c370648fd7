"""Channels-last: compute parts of a program on images [N, H, W, C] instead of [N, C, H, W].

Before::

    conv2d: f32[B,16,32,32] = ops.conv2d(x, self.first.weight)  # of 3 channels
    max_pool2d: f32[B,16,16,16] = ops.max_pool2d(conv2d, kernel_size=2)
    conv2d_1: f32[B,64,16,16] = ops.conv2d(max_pool2d, self.wide.weight)  # 1x1
    mean: f32[B,64] = ops.mean(conv2d_1, axis=(2, 3))

After::

    conv2d: f32[B,16,32,32] = ops.conv2d(x, self.first.weight)
    conv2d_nhwc: f32[B,32,32,16] = ops.permute(conv2d, axes=(0, 2, 3, 1))
    max_pool2d: f32[B,16,16,16] = ops.max_pool2d(conv2d_nhwc, kernel_size=2, layout="NHWC")
    conv2d_1: f32[B,16,16,64] = ops.conv2d(max_pool2d, self.wide.weight, layout="NHWC")
    mean: f32[B,64] = ops.mean(conv2d_1, axis=(1, 2))

Weights stay as they are (torch's OIHW).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite import nn
from fxlite.graph.disjoint import DisjointSets
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.convolution import padding_pairs
from fxlite.ops.image.spatial import TO_FIRST, TO_LAST, per_axis
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.layout_forms import (
    READ_AND_STORED,
    STORED_ALONG,
    Form,
    elements,
    forms_of,
    has_layouts,
    is_permute,
    may_pay,
)
from fxlite.types import shapes
from fxlite.types.shapes import Shape
from fxlite.types.tensor_type import TensorType

_NEAR = 8  # how many nodes are searched for the reason for an image's layout
_SWEEPS = 6  # at most so many over a component; each can only lower its cost


@graph_pass(exactness="allclose", inside=False)
def channels_last(gm: GraphModule, bf16: bool = False) -> None:
    """Compute convolutions, pooling and the ops between them on channels-last images where that is
    faster: torch's ``memory_format=torch.channels_last`` for the parts of a graph that profit from it.

    1x1 convolutions become products whose rows are pixels, and windows become vectors of channels.
    Elementwise ops, concat, reductions and flattening before a linear layer follow, so that images
    are converted only where such a part begins and ends. Sequences of convolutions over one axis are
    treated as images of a single row. Costs decide: a 3x3 convolution whose channels do not fill whole
    vectors stays as it is, because Winograd's algorithm needs whole vectors, and a part that saves
    less than the conversion of its images costs is left alone. The ledger has a line for each image
    that is converted, and for each convolution or pooling that would be faster but stays. With
    ``bf16`` the costs are those of ``matmul_precision="medium"``. Run it after decompose and
    fuse_conv_bn."""
    _make_images(gm, bf16)
    if any(n.op == "call_function" and has_layouts(n.target) for n in gm.graph.nodes):
        _find_images(gm)
    forms = forms_of(gm, bf16)
    if not any(form.gain.saved > 0 for form in forms.values()):
        return
    plan = _Plan(gm, forms)
    plan.improve()
    plan.drop_losses()
    for form in forms.values():
        if form.gain.saved > 0 and not form.last:
            saved = f"{form.gain.saved:.2g} multiply-adds, because {form.gain.why}"
            reason = f"it would save {saved}, but converting images costs more"
            refuse(gm, "channels_last", form.node, reason, [form.node])
    if any(form.last for form in forms.values()):
        _rewrite(gm, plan)


# -- images made of sequences ----------------------------------------------------------------------
def _make_images(gm: GraphModule, bf16: bool) -> None:
    """Convolutions over one axis that are faster channels-last become convolutions over images of a single row, and
    the elementwise ops after them become ops on these images."""
    rewiring, images, names = Rewiring(gm.graph), dict[Node, Node](), dict[Node, str]()

    def image_of(value: Any) -> Any:
        """An operand of an op on images: a value with several axes gets an axis of size 1 before the last."""
        if not isinstance(value, Node) or value.type.rank < 2:
            return value
        shape = (*value.type.shape[:-1], 1, value.type.shape[-1])
        return images.get(value) or gm.graph.call_function("reshape", (value,), {"shape": shape})

    for node in list(gm.graph.nodes):
        rewiring.refresh(node)
        if node.op != "call_function" or not isinstance(node.type, TensorType) or node.type.rank != 3:
            continue
        if node.target.name == "conv1d" and node.type.dtype.name in ("f32", "f64") and may_pay(node, bf16):
            target, kwargs = "conv2d", _over_rows(node)
        elif node.target.kind == "pointwise" and "axis" not in node.arguments and images.keys() & node.all_input_nodes:
            target, kwargs = node.target, dict(node.kwargs)
        else:
            continue
        with gm.graph.inserting_before(node), gm.graph.with_origin(node):
            image = gm.graph.call_function(target, tuple(map(image_of, node.args)), kwargs)
            sequence = gm.graph.call_function("reshape", (image,), {"shape": node.type.shape})
        images[sequence], names[image] = image, node.name
        rewiring.replace(node, sequence)
    rewiring.finish()
    for image, name in names.items():
        gm.graph.rename_node(image, name)


def _over_rows(node: Node) -> dict[str, Any]:
    """The attributes of a convolution over one axis, for images of a single row."""
    given, kernel = node.bound, node.args[1].type.shape[2:]
    stride, dilation = (per_axis(given[name], 1, name) for name in ("stride", "dilation"))
    padding = ((0, 0), *padding_pairs(given["padding"], kernel, stride, dilation))
    return {"stride": (1, *stride), "dilation": (1, *dilation), "padding": padding, "groups": given["groups"]}


# -- images made of tokens -------------------------------------------------------------------------
def _find_images(gm: GraphModule) -> None:
    """Expose channels-last images. Tokens [N, H*W, C] that become an image by a permute and a reshape are reshaped
    first, and an image that becomes tokens is permuted first: both are then a permuted channels-last image."""
    rewiring = Rewiring(gm.graph)
    for node in list(gm.graph.nodes):
        rewiring.refresh(node)
        if is_call(node, "reshape") and node.type.rank == 4 and is_call(node.args[0], "permute"):
            inner = node.args[0]
            groups = _split(inner.type.shape, node.type.shape)
            if groups is None:
                continue
            sizes, tokens = node.type.shape, inner.args[0]
            stored = [j for axis in np.argsort(_axes(inner)) for j in groups[axis]]
            with gm.graph.inserting_before(node), gm.graph.with_origin(node):
                shape = {"shape": tuple(sizes[j] for j in stored)}
                made = gm.graph.call_function("reshape", (tokens,), shape)
                axes = tuple(stored.index(j) for j in range(4))
                rewiring.replace(node, gm.graph.call_function("permute", (made,), {"axes": axes}))
        elif is_call(node, "permute") and is_call(node.args[0], "reshape"):
            image = node.args[0].args[0]
            if not isinstance(image.type, TensorType) or image.type.rank != 4:
                continue
            groups = _split(node.args[0].type.shape, image.type.shape)
            if groups is None or all(len(group) == 1 for group in groups):
                continue
            with gm.graph.inserting_before(node), gm.graph.with_origin(node):
                axes = tuple(j for axis in _axes(node) for j in groups[axis])
                made = gm.graph.call_function("permute", (image,), {"axes": axes})
                shape = {"shape": node.type.shape}
                rewiring.replace(node, gm.graph.call_function("reshape", (made,), shape))
    rewiring.finish()


def _axes(permute: Node) -> list[int]:
    return [axis % permute.type.rank for axis in permute.kwargs["axes"]]


def _split(joined: Shape, sizes: Shape) -> list[range] | None:
    """For each axis of a shape the adjacent axes of another shape that join into it, using all of them
    in order; None if there is no such way."""
    runs = shapes.matching_runs(joined, sizes)
    if runs is None or any(len(axis) != 1 for axis, _ in runs):
        return None
    return [axes for _, axes in runs]


# -- which of them are -----------------------------------------------------------------------------
@dataclass
class _Plan:
    """Which forms are channels-last, and what that costs.

    For each image: ``last_readers`` counts its channels-last readers, ``undone`` its readers that
    convert it themselves, and ``stored_along`` says whether the kernel that computes it may store it in
    either layout."""

    gm: GraphModule
    forms: dict[Node, Form]
    last_readers: dict[Node, int] = field(default_factory=dict)
    stored_along: dict[Node, bool] = field(default_factory=dict)
    undone: Counter[Node] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for form in self.forms.values():
            for image in form.images:
                self.last_readers[image] = self.last_readers.get(image, 0) + 1
        for node in self.gm.graph.nodes:
            self.stored_along[node] = self._may_store(node)
            if is_permute(node, TO_LAST):
                self.undone[node.args[0]] += 1

    def _may_store(self, node: Node) -> bool:
        """Whether the kernel that computes a node may store it in either layout: a convolution's kernel
        may, with the elementwise ops after it."""
        if node.op != "call_function" or len(node.users) > 1:
            return False
        if node.target.kind == "pointwise":
            return any(self.stored_along[v] for v in node.all_input_nodes)
        return bool(node.target.kind == "contraction" and has_layouts(node.target))

    def is_last(self, node: Node) -> bool:
        form = self.forms.get(node)
        return form is not None and form.is_image and form.last

    def turning(self, image: Node) -> float:
        """The cost of converting an image: nothing if all readers use it as it is stored, or if both
        layouts are the same in memory."""
        readers = self.last_readers.get(image, 0)
        if self.is_last(image):
            if readers + self.undone[image] >= len(image.users):
                return 0
        elif not readers or image.op == "get_attr" or is_permute(image, TO_FIRST):
            return 0
        _, channels, height, width = image.type.shape
        if channels == 1 or height == width == 1:
            return 0
        each = STORED_ALONG if self.stored_along[image] else READ_AND_STORED
        return each * elements(image.type)

    def cost(self, form: Form) -> float:
        """The cost that depends on a node's layout: its own, and that of converting its inputs and its
        result."""
        around = [*form.images, form.node] if form.is_image else form.images
        return sum(map(self.turning, dict.fromkeys(around))) - form.gain.saved * form.last

    def turn(self, form: Form) -> None:
        form.last = not form.last
        for image in form.images:
            self.last_readers[image] += 1 if form.last else -1

    def improve(self) -> None:
        """Switch the layout of single nodes as long as that lowers the cost. Ties are decided for
        channels-first, so that the nodes between two channels-first ones switch one after the other."""
        forms = list(self.forms.values())
        for sweep in range(_SWEEPS):
            changed = False
            for form in forms if sweep % 2 == 0 else reversed(forms):
                before, was = self.cost(form), form.last
                self.turn(form)
                after = self.cost(form)
                if after < before or (was and after == before > 0):
                    changed = True
                else:
                    self.turn(form)
            if not changed:
                return

    def drop_losses(self) -> None:
        """Undo each connected part that saves less than the conversion of its images costs."""
        for part in self._parts():
            nodes = dict.fromkeys(v for f in part for v in (*f.images, f.node))
            ends = sum(self.turning(v) for v in nodes if v in self.last_readers or self.is_last(v))
            if sum(form.gain.saved for form in part) <= ends:
                for form in part:
                    self.turn(form)

    def _parts(self) -> list[list[Form]]:
        """The channels-last forms, in sets that pass images to each other."""
        parts: dict[Node, list[Form]] = {}
        sets, last = DisjointSets(), [form for form in self.forms.values() if form.last]
        for form in last:
            sets.join(form.node, filter(self.is_last, form.images))
        for form in last:
            parts.setdefault(sets.find(form.node), []).append(form)
        return list(parts.values())


# -- rewriting -------------------------------------------------------------------------------------
def _rewrite(gm: GraphModule, plan: _Plan) -> None:
    graph, forms = gm.graph, plan.forms
    rewiring, last, names = Rewiring(graph), dict[Node, Node](), dict[Node, str]()

    def as_last(value: Any) -> Any:
        """An operand's channels-last version."""
        if not isinstance(value, Node):
            return value
        if value not in last:
            last[value] = turned(value)
        return last[value]

    def turned(value: Node) -> Node:
        """A value that is not computed channels-last, permuted to it; numbers as they are."""
        current: Node = rewiring.current(value)
        rank = value.type.rank if isinstance(value.type, TensorType) else 0
        if rank not in (3, 4):
            return current
        if is_permute(current, TO_FIRST):
            return current.args[0]  # type: ignore[no-any-return]
        if rank == 4 and plan.turning(value):
            _note(gm, value, "channels-last", _why(plan, value))
        axes = TO_LAST if rank == 4 else (1, 2, 0)
        return _permuted(current, axes, f"{value.name}_nhwc")

    for node in list(graph.nodes):
        form = forms.get(node)
        if form is None or not form.last:
            continue
        with graph.inserting_before(node), graph.with_origin(node):
            target, args, kwargs = form.call(as_last)
            made = graph.call_function(target, args, kwargs)
        names[made] = node.name
        result = made
        if form.is_image:
            last[node] = made
            outside = [u for u in node.users if not _takes(forms, u, node)]
            for user in [u for u in outside if is_permute(u, TO_LAST)]:
                rewiring.replace(user, made)
                outside.remove(user)
            if outside:
                with graph.inserting_before(node), graph.with_origin(node):
                    result = _permuted(made, TO_FIRST, f"{node.name}_nchw")
                if plan.turning(node):
                    _note(gm, node, "channels-first", _why_first(plan, outside))
        elif node.target.name == "reshape":
            _permute_weights(gm, node)
        rewiring.replace(node, result)
    rewiring.finish()
    for made, name in names.items():
        graph.rename_node(made, name)


def _permuted(value: Node, axes: tuple[int, ...], name: str) -> Node:
    """A value with its axes permuted, by a reshape if the elements keep their order in memory."""
    shape = tuple(value.type.shape[a] for a in axes)
    moved = [a for a in axes if value.type.shape[a] != 1]
    if moved == sorted(moved):
        return value.graph.call_function("reshape", (value,), {"shape": shape}, name=name)
    return value.graph.call_function("permute", (value,), {"axes": axes}, name=name)


def _takes(forms: dict[Node, Form], user: Node, image: Node) -> bool:
    """Whether a reader reads the image channels-last."""
    form = forms.get(user)
    return form is not None and form.last and image in form.images


def _permute_weights(gm: GraphModule, flat: Node) -> None:
    """Permute the columns of the linear layers that read a flattened image to the order of its new
    rows."""
    channels, height, width = flat.args[0].type.shape[1:]
    for user in flat.users:
        weight = user.args[1]
        outputs, columns = weight.type.shape
        with gm.graph.inserting_before(user), gm.graph.with_origin(user):
            for name, kwargs in (
                ("reshape", {"shape": (outputs, channels, height, width)}),
                ("permute", {"axes": TO_LAST}),
                ("reshape", {"shape": (outputs, columns)}),
            ):
                weight = gm.graph.call_function(name, (weight,), kwargs)
        user.update_arg(1, weight)


def _note(gm: GraphModule, node: Node, layout: str, why: str) -> None:
    refuse(gm, "channels_last", node, f"it is converted to {layout}: {why}", [node])


def _why(plan: _Plan, image: Node) -> str:
    """Why an image that has channels-last readers is not computed channels-last."""
    if image.op == "placeholder":
        return "it is an input of the program"
    if image not in plan.forms:
        return f"{image.target} has no channels-last form"
    node: Node | None = image
    for _ in range(_NEAR):
        form = plan.forms.get(node) if node is not None else None
        if form is None or form.last:
            break
        if form.gain.saved < 0:
            return f"{form.node.name} makes it channels-first, because {form.gain.why}"
        node = next(iter(form.images), None)
    return "that costs less than converting what it is computed from"


def _why_first(plan: _Plan, outside: Iterable[Node]) -> str:
    """Why some readers need an image channels-first."""
    for user in outside:
        node = user
        for _ in range(_NEAR):
            if node.op == "output":
                return "it is a result of the program"
            form = plan.forms.get(node)
            if form is None:
                return f"{node.name} ({node.target}) has no channels-last form"
            if form.last or not node.users:
                break
            if form.gain.saved < 0:
                return f"{node.name} reads it so, because {form.gain.why}"
            node = next(iter(node.users))
    return "that costs less than converting what its readers make of it"


# -- examples --------------------------------------------------------------------------------------
class _Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.wide = nn.Conv2d(16, 64, 1)
        self.skip = nn.Conv2d(16, 64, 1)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(np.maximum(self.first(x), 0), 2)
        return (self.skip(x) + np.maximum(self.wide(x), 0)).mean(axis=(2, 3))


class _Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.linear = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: Any) -> Any:
        return self.linear(F.max_pool2d(self.conv(x), 2).reshape(x.shape[0], -1))


class _Winograd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return F.max_pool2d(F.relu(self.conv(x)), 3, stride=1, padding=1)


channels_last.example(
    _Stem, "a network's first layers: the image is converted once, where the first layer stores it", x="f32[B,3,32,32]"
)
channels_last.example(_Flat, "rows of another order: the columns of the linear layer are permuted", x="f32[B,1,8,8]")
channels_last.example(
    lambda x: F.max_pool2d(x.transpose(0, 3, 1, 2), 2), "its input is an image [N, H, W, C]", x="f32[B,8,8,16]"
)
channels_last.counterexample(
    _Winograd, "both gain, but less than converting input and result costs", x="f32[B,32,28,28]"
)
channels_last.counterexample(lambda x: F.interpolate(x, scale_factor=2), "nothing gains", x="f32[B,8,8,8]")
