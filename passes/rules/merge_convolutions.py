"""Merge convolutions of one image whose results are added into one convolution.

Before (shortened)::

    conv2d: f32[B,8,H,W] = ops.conv2d(x, self.wide.weight, padding=1, groups=8)
    conv2d_1: f32[B,8,H,W] = ops.conv2d(x, self.narrow.weight, groups=8)
    add: f32[B,8,H,W] = conv2d + conv2d_1 + x

After (shortened)::

    add: f32[B,8,H,W] = ops.conv2d(x, self.wide.weight + ops.pad(self.narrow.weight, ...) + ..., padding=1, groups=8)

A convolution is linear in its weight, so the smaller windows are added into the largest one, at the
places of the pixels that they read ("structural re-parameterization": Ding et al., "RepVGG: Making
VGG-style ConvNets great again", 2021, section 3.3). The image is read once instead of once per branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fxlite import nn, ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.image.convolution import padding_pairs
from fxlite.ops.image.spatial import per_axis
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rewrite.rewire import erase_dead
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.decompose import Recorder
from fxlite.tracing.proxy import Proxy


@graph_pass(exactness="allclose")
def merge_convolutions(gm: GraphModule) -> None:
    """Merge convolutions of one image whose results are added into one convolution.

    They have equal strides and groups, the sum alone reads them, and each window reads pixels that the
    largest one reads too. The image itself and its batch_norm (inference) are convolutions with a
    window of one pixel; they are merged into depthwise ones only. In a dense convolution they cost next
    to nothing, and a 1 among its weights would take their digits where they are rounded to few bits.

    Left alone, with the reason in the ledger: windows that lie beside each other, half types, whose
    sums are rounded. Run it after fuse_conv_bn and before const_fold, which computes the weights."""
    recorder = Recorder(gm)
    for root in [n for n in gm.graph.nodes if is_call(n, "add") and not _is_inner(n)]:
        terms = _terms(root)
        merged = _merged(gm, terms)
        if not merged:
            continue
        made = recorder.run(root, partial(_sum_of, recorder, terms, merged))
        name = root.name
        root.replace_all_uses_with(made)
        erase_dead([root])
        gm.graph.rename_node(made, name)


@dataclass(frozen=True)
class _Window:
    """What a term of a sum reads of ``x``: along each axis ``taps`` pixels, ``gaps`` apart, the first
    of which is ``before`` pixels before the place of the result."""

    x: Node
    taps: tuple[int, ...]
    gaps: tuple[int, ...]
    before: tuple[int, ...]

    def places(self, other: _Window) -> list[tuple[int, int]] | None:
        """For each axis, which of these taps the first one of ``other`` is, and how many of them its
        next one is further on; None if it reads a pixel that this window does not read."""
        found = []
        for axis, gap in enumerate(self.gaps):
            first, rest = divmod(self.before[axis] - other.before[axis], gap)
            step, uneven = divmod(other.gaps[axis], gap) if other.taps[axis] > 1 else (1, 0)
            last = first + (other.taps[axis] - 1) * step
            if rest or uneven or first < 0 or last >= self.taps[axis]:
                return None
            found.append((first, step))
        return found


@dataclass
class _Merged:
    """A convolution of a sum, and the terms to be merged into it with the places of their windows."""

    widest: Node
    parts: list[tuple[Node, list[tuple[int, int]]]]


# -- what to merge ---------------------------------------------------------------------------------
def _is_inner(node: Node) -> bool:
    """Whether a sum is a term of a larger one, and of nothing else."""
    return len(node.users) == 1 and all(is_call(u, "add") and u.type == node.type for u in node.users)


def _terms(root: Node) -> list[Any]:
    """What a sum, and the sums that only it reads, add up, in order."""
    found, waiting = [], [root]
    while waiting:
        term = waiting.pop()
        if term is not root and not (is_call(term, "add") and term.type == root.type and len(term.users) == 1):
            found.append(term)
        elif term.args[0] is term.args[1]:
            found += term.args
        else:
            waiting += reversed(term.args)
    return found


def _merged(gm: GraphModule, terms: list[Any]) -> list[_Merged]:
    kinds: dict[Any, list[Node]] = {}
    beside: dict[Any, list[Node]] = {}  # by image: the terms that are the image, or its batch_norm
    often = Counter(map(id, terms))
    for term in terms:
        for image in (term, term.args[0] if is_call(term, "batch_norm") else None):
            if isinstance(image, Node):
                beside.setdefault(image, []).append(term)
        if _is_plain_convolution(term) and often[id(term)] == 1:
            given = term.bound
            same = (given["x"], term.target, given["stride"], given["groups"], given.get("layout"), term.type)
            kinds.setdefault(same, []).append(term)
    found: list[_Merged] = []
    taken: set[Node] = set()
    for convolutions in kinds.values():
        widest = max(convolutions, key=lambda c: int(np.prod(_window(c).taps)))
        if widest.type.dtype.compute is not widest.type.dtype:
            if len(convolutions) > 1:
                reason = f"{widest.type.dtype} is rounded before the sum, and the merged weights would not be"
                refuse(gm, "merge_convolutions", widest, reason, convolutions)
            continue
        parts: list[tuple[Node, list[tuple[int, int]]]] = []
        for term in [*convolutions, *(t for t in _images(beside, widest) if t not in taken)]:
            if term is not widest and (places := _window(widest).places(_window(term, widest))) is not None:
                parts.append((term, places))
            elif term is not widest:
                reason = f"it reads pixels of {widest.args[0].name} that {widest.name} does not read"
                refuse(gm, "merge_convolutions", term, reason, [widest, term])
        if parts:
            found.append(_Merged(widest, parts))
            taken.update(term for term, _ in parts)
    return found


def _is_plain_convolution(term: Any) -> bool:
    """Whether a term is a convolution with weights of the program that nothing else reads."""
    if not isinstance(term, Node) or term.op != "call_function" or not term.target.is_convolution:
        return False
    weights = [v for v in term.all_input_nodes if v is not term.args[0]]
    typed = term.type is not None and term.args[0].type is not None and term.type.dtype.is_float
    return typed and len(term.users) == 1 and all(v.op == "get_attr" for v in weights)


def _images(beside: dict[Any, list[Node]], widest: Node) -> list[Node]:
    """The terms that are the image of a depthwise convolution, or its batch_norm."""
    given, x = widest.bound, widest.args[0]
    outputs, inputs = given["weight"].type.shape[:2]
    if outputs != given["groups"] or inputs != 1 or widest.type != x.type or given.get("layout") == "NHWC":
        return []
    if any(s != 1 for s in per_axis(given["stride"], x.type.rank - 2, "stride")):
        return []
    return [t for t in beside.get(x, ()) if t is x or _is_norm_of(t, x)]


def _is_norm_of(term: Node, x: Node) -> bool:
    if not is_call(term, "batch_norm") or term.args[0] is not x or len(term.users) > 1 or term.bound["training"]:
        return False
    return all(v is x or v.op == "get_attr" for v in term.all_input_nodes)


def _window(term: Node, like: Node | None = None) -> _Window:
    """The window of a convolution, or of an image beside one."""
    if like is not None and not _is_branch(term, like):
        rank = len(_window(like).taps)
        return _Window(like.args[0], (1,) * rank, (1,) * rank, (0,) * rank)
    given = term.bound
    taps = given["weight"].type.shape[2:]
    steps, gaps = (tuple(per_axis(given[n], len(taps), n)) for n in ("stride", "dilation"))
    before = tuple(low for low, _ in padding_pairs(given["padding"], taps, steps, gaps))
    return _Window(given["x"], taps, gaps, before)


def _is_branch(term: Node, widest: Node) -> bool:
    """Whether a term is a convolution beside another one, not the image that both read, which may be a convolution,
    too, nor its batch_norm."""
    return term is not widest.args[0] and term.op == "call_function" and term.target.is_convolution


# -- the merged sum --------------------------------------------------------------------------------
def _sum_of(recorder: Recorder, terms: list[Any], merged: list[_Merged], _: Any) -> Any:
    def read(value: Any) -> Any:
        return Proxy(value, recorder) if isinstance(value, Node) else value

    gone = {id(term) for each in merged for term, _ in each.parts}
    widest = {each.widest: each for each in merged}
    total: Any = None
    for term in terms:
        if id(term) in gone:
            continue
        value = read(term)
        if term in widest:
            value = _one(widest[term], {n: read(v) for n, v in term.arguments.items()}, read)
        total = value if total is None else total + value
    return total


def _one(merged: _Merged, given: Mapping[str, Any], read: Any) -> Any:
    """One convolution of the sum of the weights."""
    weight, bias = given["weight"], given.get("bias")
    for term, places in merged.parts:
        if _is_branch(term, merged.widest):
            more, shift = read(term.bound["weight"]), read(term.bound["bias"])
        else:
            more, shift = _as_weight(term, merged.widest, read)
        weight = weight + _placed(more, places, merged.widest.bound["weight"].type.shape[2:])
        bias = shift if bias is None else bias if shift is None else bias + shift
    others = {n: v for n, v in given.items() if n not in ("x", "weight", "bias")}
    return merged.widest.target(given["x"], weight, bias, **others)


def _placed(weight: Any, places: list[tuple[int, int]], taps: tuple[int, ...]) -> Any:
    """A weight [K, C, ...] with zeros between and around its taps, in a window of ``taps``."""
    for axis, ((_, step), count) in enumerate(zip(places, weight.shape[2:], strict=True), start=2):
        if step > 1:
            before, behind = weight.shape[:axis], weight.shape[axis + 1 :]
            split = weight.reshape(*before, count, 1, *behind)
            apart = ops.pad(split, ((0, 0),) * (axis + 1) + ((0, step - 1),) + ((0, 0),) * len(behind))
            joined = apart.reshape(*before, count * step, *behind)
            weight = ops.slice(joined, axis, 0, (count - 1) * step + 1)
    sizes = weight.shape[2:]
    around = tuple((first, n - first - size) for (first, _), n, size in zip(places, taps, sizes, strict=True))
    return ops.pad(weight, ((0, 0), (0, 0), *around)) if any(map(any, around)) else weight


def _as_weight(term: Node, widest: Node, read: Any) -> tuple[Any, Any]:
    """The weight [C, 1, ...] of one pixel and the bias of an image, or of its batch_norm."""
    kernel = widest.bound["weight"].type
    shape = (kernel.shape[0], *[1] * (kernel.rank - 1))
    if not is_call(term, "batch_norm") or term is widest.args[0]:
        return ops.full(shape, 1, dtype=kernel.dtype), None
    given = {n: read(v) for n, v in term.bound.items()}
    scale = 1 / ops.sqrt(given["running_var"] + given["eps"])
    if given["weight"] is not None:
        scale = scale * given["weight"]
    shift = -given["running_mean"] * scale
    return scale.reshape(*shape), shift if given["bias"] is None else shift + given["bias"]


# -- examples --------------------------------------------------------------------------------------
class _Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.narrow = nn.Conv2d(8, 8, 1, groups=8, bias=False)

    def forward(self, x: Any) -> Any:
        return self.wide(x) + self.narrow(x) + x


class _Crossed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Conv2d(8, 8, (1, 3), padding=(0, 1), bias=False)
        self.columns = nn.Conv2d(8, 8, (3, 1), padding=(1, 0), bias=False)

    def forward(self, x: Any) -> Any:
        return self.rows(x) + self.columns(x)


class _BothRead(_Branches):
    def forward(self, x: Any) -> Any:
        y = self.narrow(x)
        return (self.wide(x) + y) * y


merge_convolutions.example(_Branches, "three branches by one window", x="f32[B,8,8,8]")
merge_convolutions.counterexample(_Crossed, "a window of both would have taps that neither has", x="f32[B,8,8,8]")
merge_convolutions.counterexample(_BothRead, "the narrow one is read elsewhere, too", x="f32[B,8,8,8]")
