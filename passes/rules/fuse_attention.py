"""Recognize attention that is written out, and replace it by one op.

Before::

    permute: f32[B,2,4,T] = ops.permute(k, axes=(0, 1, 3, 2))
    matmul: f32[B,2,T,T] = q @ permute
    mul: f32[B,2,T,T] = matmul * 0.5
    where: f32[B,2,T,T] = ops.where(mask, mul, -inf)
    softmax: f32[B,2,T,T] = ops.softmax(where)
    matmul_1: f32[B,2,T,4] = softmax @ v

After::

    scaled_dot_product_attention: f32[B,2,T,4] = ops.scaled_dot_product_attention(
        q, k, v, mask, scale=0.5, empty_rows='nan')

A back end with a template for it never stores the matrix of scores in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.passes.rewrite.rule import is_call, number_of
from fxlite.passes.rules.redundant import why_dropout_stays
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim, Shape
from fxlite.types.tensor_type import TensorType

MOST_ELEMENTS = 2**24
"""Largest constant mask that is compared with a triangle."""


@dataclass
class Mask:
    """A mask of scores whose batch axes are ``batch``. It is ``added`` to them, or selects between them
    and the number ``score``; then ``keeps`` says whether True or False keeps the scores."""

    node: Node
    batch: Shape
    added: bool
    keeps: bool = True
    score: float = -np.inf


@dataclass
class Spelling:
    """The parts of an attention found so far, from its result upwards. ``calls`` are the calls it
    replaces, ``batch`` the batch axes with which it is computed."""

    calls: list[Node]
    query: Node | None = None
    key: Node | None = None  # the right operand of the scores: [..., features, keys]
    scale: float = 1.0
    factors: list[tuple[Node, Shape]] = field(default_factory=list)  # factors of whole score matrices, with batch axes
    masks: list[Mask] = field(default_factory=list)
    batch: Shape = ()
    causal: bool = False


@graph_pass(exactness="allclose")
def fuse_attention(gm: GraphModule) -> None:
    """Replace ``softmax(q @ k.T * scale + mask) @ v`` by ``scaled_dot_product_attention``.

    The scale may be a factor or divisor of the scores or of q, or a factor for each head. Masks may be
    added, or applied by ``where`` against -inf (a single mask also against another number); several
    masks are combined. Batch axes may be split for a mask and joined again; softmax may be written with
    exp and sum; dropout that does nothing is ignored. A mask that is known to be a lower triangle becomes
    ``is_causal``. A row in which nothing is kept gives the same as before: NaN with -inf (``empty_rows="nan"``).

    Refused, with the reason in the ledger: scores or weights that are read elsewhere too; several
    masks of which one sets a finite number; missing types; any dtypes but float32 or float64 throughout."""
    rewiring = Rewiring(gm.graph)
    for node in list(gm.graph.nodes):
        rewiring.refresh(node)
        if not is_call(node, "matmul"):
            continue
        found = Spelling([node])
        weights = _without_dropout(node.args[0], found)
        scores = _softmax_operand(weights, found)
        if scores is None:
            continue
        reason = _read_scores(scores, found) or _why_not(node, found)
        if reason is not None:
            if reason:
                refuse(gm, "fuse_attention", node, reason, found.calls)
            continue
        rewiring.replace(node, _make(gm, node, found))
    rewiring.finish()


def _without_dropout(value: Any, found: Spelling) -> Any:
    while is_call(value, "dropout") and why_dropout_stays(value) is None:
        found.calls.append(value)
        value = value.args[0]
    return value


def _softmax_operand(weights: Any, found: Spelling) -> Any:
    """The operand of a softmax over the last axis, written as the op or as ``e / e.sum(...)`` with ``e =
    exp(x - x.max(...))``; None for other values."""
    if is_call(weights, "softmax"):
        found.calls.append(weights)
        return weights.args[0] if _is_last(weights, weights.bound["axis"]) else None
    if not is_call(weights, "div"):
        return None
    e, total = weights.args
    if not is_call(e, "exp") or not _is_over_rows(total, "sum", e):
        return None
    difference = e.args[0]
    if not is_call(difference, "sub") or not _is_over_rows(difference.args[1], "max", difference.args[0]):
        return None
    found.calls += [weights, total, e, difference, difference.args[1]]
    return difference.args[0]


def _is_over_rows(value: Any, op: str, operand: Any) -> bool:
    """True for a sum or maximum of ``operand`` over its last axis with keepdims."""
    return (
        is_call(value, op)
        and value.args[0] is operand
        and value.bound["keepdims"]
        and _is_last(value, value.bound["axis"])
    )


def _is_last(node: Node, axis: Any) -> bool:
    axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
    operand = node.args[0].type
    return axis == -1 or (isinstance(operand, TensorType) and axis == operand.rank - 1)


def _read_scores(scores: Any, found: Spelling) -> str | None:
    """Take apart the operand of the softmax: masks, scale, product. Returns why that is not an
    attention, or "" if nothing resembles one."""
    while not is_call(scores, "matmul"):
        if not isinstance(scores, Node) or scores.op != "call_function":
            return ""
        name = scores.target.name
        is_scaled = found.scale != 1.0 or found.factors
        added, keeps, masked_score = True, True, -np.inf
        if name == "where" and not is_scaled:
            condition, kept, other = scores.args
            keeps = number_of(kept) is None
            number = number_of(other if keeps else kept)
            if number is None:
                return ""
            masked_score = number
            mask, added, following = condition, False, kept if keeps else other
        elif name == "add" and not is_scaled:
            a, b = scores.args
            following, mask = (a, b) if _leads_to_product(a) else (b, a)
        elif name == "reshape":
            mask, following = None, scores.args[0]
            if not _keeps_matrices(scores):
                return ""
        elif (tensors := _tensor_factor(scores)) is not None:
            mask, following = None, tensors[0]
            found.factors.append((tensors[1], scores.type.shape[:-2]))
        else:
            scaled = _factor(scores)
            if scaled is None:
                return ""
            mask, following, found.scale = None, scaled[0], found.scale * scaled[1]
        if mask is not None:
            if not _is_typed(mask, scores, following):
                return "it needs tensors with types"
            if not shapes.shapes_equal(scores.type.shape, following.type.shape):
                return "the mask has batch axes that the scores do not have"
            found.masks.append(Mask(mask, scores.type.shape[:-2], added, keeps, masked_score))
        found.calls.append(scores)
        scores = following
    found.calls.append(scores)
    found.query, found.key = scores.args
    if is_call(found.query, "mul", "div") and len(found.query.users) == 1:
        scaled = _factor(found.query)
        if scaled is not None:
            found.query, found.scale = scaled[0], found.scale * scaled[1]
    return None


def _is_typed(*values: Any) -> bool:
    return all(isinstance(v, Node) and isinstance(v.type, TensorType) for v in values)


def _keeps_matrices(node: Node) -> bool:
    """Whether a reshape leaves the last two axes as they are."""
    value = node.args[0]
    if not _is_typed(node, value) or min(node.type.rank, value.type.rank) < 2:
        return False
    return shapes.shapes_equal(node.type.shape[-2:], value.type.shape[-2:])


def _leads_to_product(value: Any) -> bool:
    """True for a product of matrices, scaled or not, perhaps with reshaped batch axes, to which another
    mask may be added."""
    while is_call(value, "mul", "div", "reshape"):
        if is_call(value, "mul") and not any(number_of(a) is not None for a in value.args):
            return any(map(_leads_to_product, value.args))
        scaled = (value.args[0], 1.0) if value.target.name == "reshape" else _factor(value)
        if scaled is None:
            return False
        value = scaled[0]
    if is_call(value, "add"):
        return any(map(_leads_to_product, value.args))
    if is_call(value, "where"):
        return any(map(_leads_to_product, value.args[1:]))
    return is_call(value, "matmul")


def _tensor_factor(node: Node) -> tuple[Node, Node] | None:
    """(x, c) for ``x * c``, where x is a product of matrices and c has one number for each whole matrix."""
    if not is_call(node, "mul") or not _is_typed(node, *node.args):
        return None
    x, c = node.args if _leads_to_product(node.args[0]) else node.args[::-1]
    is_whole = c.type.rank > 2 and c.type.shape[-2:] == (1, 1)
    return (x, c) if is_whole and shapes.shapes_equal(x.type.shape, node.type.shape) else None


def _factor(node: Node) -> tuple[Node, float] | None:
    """(x, c) for ``x * c`` and ``x / (1/c)`` with a number c; None for other nodes."""
    if not is_call(node, "mul", "div"):
        return None
    a, b = node.args
    number = number_of(b)
    if number is None and node.target.name == "mul":
        a, number = b, number_of(a)
    if number is None or not isinstance(a, Node):
        return None
    if node.target.name == "mul":
        return a, number
    return (a, 1 / number) if number != 0 else None


def _why_not(node: Node, found: Spelling) -> str | None:
    """Why the attention found cannot be replaced, or None."""
    operands = [found.query, found.key, node.args[1]]
    scores = found.calls[-1]
    if not _is_typed(*operands, scores, node):
        return "it needs tensors with types"
    inside = set(found.calls)
    for call in found.calls[1:]:
        others = [u.name for u in call.users if u not in inside]
        if others:
            return f"{call.name} is read by {', '.join(others[:3])} too"
    names = {v.type.dtype.name for v in (*operands, *found.calls)}
    if len(names) > 1:
        return f"it computes in several dtypes, {' and '.join(sorted(names))}"
    if not names <= {"f32", "f64"}:
        return f"{names.pop()} would be rounded elsewhere"
    if min(v.type.rank for v in operands) < 2:
        return "an operand is a vector"
    found.batch = max((m.batch for m in found.masks), key=len, default=scores.type.shape[:-2])
    for mask in found.masks:
        if mask.node.type.dtype is not (node.type.dtype if mask.added else dtypes.bool_):
            return f"a mask {mask.node.type} is {'added' if mask.added else 'chosen by'}"
        if _in_batch(mask.node.type.shape, mask.batch, found.batch) is None:
            return f"a mask {mask.node.type} does not fit the batch axes of the other"
    for factor, batch in found.factors:
        if factor.type.dtype is not node.type.dtype or _in_batch(factor.type.shape, batch, found.batch) is None:
            return f"a factor {factor.type} does not fit the batch axes of the masks"
    batches = [v.type.shape[:-2] for v in (*operands, scores)]
    if any(not shapes.shapes_equal(b, batches[-1]) for b in batches) and _is_parted(found):
        return "the scores' batch axes are split, and an operand has others"
    finite = next((m.score for m in found.masks if m.score != -np.inf), None)
    if len(found.masks) > 1 and finite is not None:
        return f"there are several masks, and one of them chooses {finite}"
    if len(found.masks) == 1 and not found.masks[0].added and finite is None:
        # A causal row never sees later keys; with a finite score they would still weigh something.
        found.causal = _is_triangle(found.masks[0].node, found.masks[0].keeps, scores.type.shape[-2:])
    return None


def _is_parted(found: Spelling) -> bool:
    """Whether the batch axes of the attention differ from those of the product of queries and keys."""
    return not shapes.shapes_equal(found.batch, found.calls[-1].type.shape[:-2])


def _in_batch(shape: Shape, batch: Shape, wanted: Shape) -> Shape | None:
    """The shape that gives a mask for scores with batch axes ``batch`` the same meaning for batch axes
    ``wanted``, which have as many elements; None if its elements would have to be repeated for that.
    Along axes that are split or joined the mask must have all elements or one."""
    if shapes.shapes_equal(batch, wanted):
        return shape
    *axes, rows, columns = (1,) * (len(batch) + 2 - len(shape)) + tuple(shape)
    runs = shapes.matching_runs(batch, wanted)
    if runs is None:
        return None
    made: list[Dim] = []
    for old, new in runs:
        if all(axes[axis] == 1 for axis in old):
            made += [1] * len(new)
        elif all(shapes.equal(axes[axis], batch[axis]) for axis in old):
            made += [wanted[axis] for axis in new]
        else:
            return None
    return (*made, rows, columns)


def _is_triangle(mask: Node, keeps: bool, sizes: tuple[Any, ...]) -> bool:
    """True if a mask is known to keep exactly the keys up to the query's position: one made by tril or
    triu, or a constant, of which the program may slice the first rows and columns."""
    shape = mask.type.shape
    if len(shape) < 2 or not shapes.shapes_equal(shape[-2:], sizes) or set(shape[:-2]) - {1}:
        return False
    while isinstance(mask, Node) and mask.op == "call_function":
        arguments, name = mask.bound, mask.target.name
        if mask.target.kind == "pointwise" and mask.target.inverse == name:  # not
            keeps = not keeps
        elif mask.target.keeps_order:
            inner = mask.args[0].type.shape
            if mask.type.rank < 2 or not shapes.shapes_equal(inner[-2:], mask.type.shape[-2:]):
                return False
        elif name == "slice":
            if arguments["start"] not in (0, None) or arguments["step"] != 1:
                return False
        elif mask.target.keeps_triangle:
            full = mask.args[0]
            offset = arguments["k"]
            return (
                is_call(full, "full")
                and full.kwargs.get("value") is True
                and (mask.target.keeps_triangle, offset, keeps) in (("lower", 0, True), ("upper", 1, False))
            )
        else:
            return False
        mask = mask.args[0]
    owner = mask.graph.owning_module if isinstance(mask, Node) else None
    if owner is None or mask.op != "get_attr" or mask.type.rank < 2:
        return False
    value = np.asarray(owner.get_attribute(mask.target))
    if value.size > MOST_ELEMENTS or any(n != 1 for n in value.shape[:-2]):
        return False
    rows, keys = value.shape[-2:]
    triangle = np.tri(rows, keys, dtype=bool)
    return np.array_equal(value.reshape(rows, keys) == keeps, triangle)


def _make(gm: GraphModule, node: Node, found: Spelling) -> Node:
    """Create the one call, before ``node``."""
    graph = gm.graph
    assert found.query is not None and found.key is not None

    def in_batch(value: Node) -> Node:
        shape = (*found.batch, *value.type.shape[-2:])
        if is_parted and not shapes.shapes_equal(value.type.shape, shape):
            return graph.call_function(ops.reshape, (value,), {"shape": shape})
        return value

    is_parted = _is_parted(found)
    with graph.inserting_before(node), graph.with_origin(node):
        attributes = dict[str, Any](scale=found.scale)
        mask = None if found.causal else _joined(found)
        if found.causal:
            attributes["is_causal"] = True
        elif mask is not None:
            attributes["empty_rows"] = "nan"
            if found.masks[0].score != -np.inf:
                attributes["masked_score"] = found.masks[0].score
        operands = [in_batch(v) for v in (found.query, _swapped(found.key), node.args[1])]
        for factor, batch in found.factors:
            operands[0] = graph.call_function(ops.mul, (operands[0], _moved(factor, batch, found)))
        if mask is not None:
            operands.append(mask)
        made = graph.call_function(ops.scaled_dot_product_attention, tuple(operands), attributes)
        if not is_parted or shapes.shapes_equal(made.type.shape, node.type.shape):
            return made
        return graph.call_function(ops.reshape, (made,), {"shape": node.type.shape})


def _joined(found: Spelling) -> Node | None:
    """All masks combined into one that is added: it has -inf where a selecting mask keeps nothing."""
    added: Node | None = None
    keeps: Node | None = None
    for mask in found.masks:
        graph, node = mask.node.graph, _moved(mask.node, mask.batch, found)
        if mask.added:
            added = node if added is None else graph.call_function(ops.add, (node, added))
            continue
        if not mask.keeps:
            node = graph.call_function(ops.bitwise_not, (node,))
        keeps = node if keeps is None else graph.call_function(ops.bitwise_and, (node, keeps))
    if added is None or keeps is None:
        return keeps if added is None else added
    return added.graph.call_function(ops.where, (keeps, added, -np.inf))


def _moved(value: Node, batch: Shape, found: Spelling) -> Node:
    """A mask or factor for scores of the batch axes ``batch``, reshaped for those of the attention."""
    shape = _in_batch(value.type.shape, batch, found.batch)
    if shape is None or shapes.shapes_equal(shape, value.type.shape):
        return value
    return value.graph.call_function(ops.reshape, (value,), {"shape": shape})


def _swapped(value: Node) -> Node:
    """The value with its last two axes exchanged."""
    rank = value.type.rank
    axes = [*range(rank - 2), rank - 1, rank - 2]
    if is_call(value, "permute"):
        inner = [a % rank for a in value.kwargs["axes"]]
        axes, value = [inner[a] for a in axes], value.args[0]
        if axes == list(range(rank)):
            return value
    return value.graph.call_function(ops.permute, (value,), {"axes": tuple(axes)})


_QKV: dict[str, Any] = dict.fromkeys(("q", "k", "v"), "f32[B,2,5,4]")


def _masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.transpose(0, 1, 3, 2) * 0.5
    return F.softmax(np.where(mask, scores, -np.inf), -1) @ v


def _written_softmax(q: Any, k: Any, v: Any) -> Any:
    scores = (q / 2) @ k.transpose(0, 1, 3, 2)
    later = np.triu(ops.ones((q.shape[2], k.shape[2]), dtype="bool"), 1)
    scores = np.where(later, -np.inf, scores)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def _weights_too(q: Any, k: Any, v: Any) -> Any:
    weights = F.softmax(q @ k.transpose(0, 1, 3, 2), -1)
    return weights @ v, weights


def _finite(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.transpose(0, 1, 3, 2)
    return F.softmax(np.where(mask, scores, -1e9), -1) @ v  # a row masked whole averages


def _bool_added(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.softmax(q @ k.transpose(0, 1, 3, 2) + mask, -1) @ v  # 1 more where it is True


def _two_finite(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
    scores = np.where(mask, q @ k.transpose(0, 1, 3, 2) + bias, -1e9)
    return F.softmax(scores, -1) @ v


fuse_attention.example(_masked, "a mask", **_QKV, mask="bool[B,1,1,5]")
fuse_attention.example(_written_softmax, "softmax written out, causal", **_QKV)
fuse_attention.counterexample(_weights_too, "the weights are a result, too", **_QKV)
fuse_attention.example(_finite, "masked scores become a number", **_QKV, mask="bool[B,1,1,5]")
fuse_attention.counterexample(_bool_added, "a bool is added", **_QKV, mask="bool[B,1,1,5]")
fuse_attention.counterexample(
    _two_finite, "masked scores become a number, whatever the bias", **_QKV, mask="bool[B,1,1,5]", bias="f32[2,5,5]"
)
