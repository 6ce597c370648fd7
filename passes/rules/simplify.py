"""Simplification: identities that hold bit for bit, NaN, infinities and the sign of zeros included.

Before::

    reshape: f32[B,8] = ops.reshape(x, shape=(B, 8))
    mul: f32[B,8] = reshape * 1
    reshape_1: f32[B,4,2] = ops.reshape(mul, shape=(B, 4, 2))

After::

    reshape_1: f32[B,4,2] = ops.reshape(x, shape=(B, 4, 2))

``x + 0`` stays, because it turns -0.0 into 0.0. Rules are tried in the order of :data:`ELEMENTWISE`
and :data:`VIEWS`; add your own with ``simplify.rules.append(my_rule)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import fxlite.nn.functional as F
from fxlite import ops
from fxlite.graph.graph import Node
from fxlite.ops.op import REGISTRY
from fxlite.passes.base import enter
from fxlite.passes.rewrite.predicates import dtype, is_complex, is_integer
from fxlite.passes.rewrite.rule import Answer, AnyRule, Call, Rule, is_call, node_rule, rule
from fxlite.passes.rewrite.rule_set import RuleSet
from fxlite.passes.rules.redundant import training_dropout, why_dropout_stays
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


# -- arithmetic ------------------------------------------------------------------------------------
def _with_one_part(x: Any) -> bool | str:
    return not is_complex(x) or "the other part of a complex number may change a zero's sign"


def _identity(name: str, pattern: Callable[[Any], Any], says: str, where: Any = None) -> Rule:
    """The rule that a function of x gives x."""
    made = rule(register=False, name=name)(pattern)
    made.__doc__ = says
    made.replacement(lambda x: x)
    if where is not None:
        made.where(where)
    return made


times_one = _identity("times_one", lambda x: x * 1, "``x * 1`` is x.", _with_one_part)
times_one.example(lambda x: np.exp(x) * 1.0, x="f32[4]")
times_one.counterexample(lambda z: z * 1, "the zero of (-0-1j) becomes positive", z="c64[4]")
times_one.counterexample(lambda n: n * 1.0, "the product of integers and 1.0 is f64", n="i32[4]")

divided_by_one = _identity("divided_by_one", lambda x: x / 1, "``x / 1`` is x.", _with_one_part)
divided_by_one.example(lambda x: np.exp(x) / 1, x="f32[4]")
divided_by_one.counterexample(lambda n: n / 1, "the quotient of integers is a float", n="i32[4]")

whole_quotient_by_one = _identity(
    "whole_quotient_by_one",
    lambda x: x // 1,
    "``x // 1`` is x for integers.",
    lambda x: is_integer(x) or "x // 1 rounds a float down",
)
whole_quotient_by_one.example(lambda n: n // 1, n="i32[4]")
whole_quotient_by_one.counterexample(lambda x: x // 1, "it rounds a float down", x="f32[4]")

first_power = _identity("first_power", lambda x: x**1, "``x ** 1`` is x.")
first_power.example(lambda x: np.exp(x) ** 1, x="f32[4]")
first_power.counterexample(lambda x: x**-1, "another power", x="f32[4]")

minus_zero = _identity("minus_zero", lambda x: x - 0, "``x - 0`` is x; -0.0 stays -0.0.")
minus_zero.example(lambda x: np.exp(x) - 0, x="f32[4]")
minus_zero.counterexample(lambda x: x - -0.0, "it turns -0.0 into 0.0", x="f32[4]")

plus_zero = _identity(
    "plus_zero",
    lambda x: x + 0,
    "``x + 0`` is x for integers.",
    lambda x: is_integer(x) or "x + 0 turns -0.0 into 0.0, except for integers",
)
plus_zero.example(lambda n: n + 0, n="i32[4]")
plus_zero.counterexample(lambda x: x + 0, "it turns -0.0 into 0.0", x="f32[4]")

plus_negative_zero = _identity("plus_negative_zero", lambda x: x + -0.0, "``x + -0.0`` is x.", _with_one_part)
plus_negative_zero.example(lambda x: np.exp(x) + -0.0, x="f32[4]")
plus_negative_zero.counterexample(lambda x: x + 0.0, "it turns -0.0 into 0.0", x="f32[4]")


@node_rule("bitwise_or", "bitwise_xor", "left_shift", "right_shift", register=False)
def with_no_bits(node: Node) -> Answer:
    """``x | 0``, ``x ^ 0``, ``x << 0`` and ``x >> 0`` are x."""
    x, y = node.args
    return x if type(y) is int and y == 0 else None


with_no_bits.example(lambda n: (n | 0) << 0, n="i32[4]")
with_no_bits.counterexample(lambda n: n & 0, "that is 0", n="i32[4]")


# -- one after another -----------------------------------------------------------------------------
@node_rule("neg", "bitwise_not", "logical_not", register=False)
def twice_is_none(node: Node) -> Answer:
    """``-(-x)`` is x, so are ``~(~x)`` and, of truth values, not (not x)."""
    (x,) = node.args
    return x.args[0] if is_call(x, node.target.name) else None


twice_is_none.example(lambda x: np.negative(-x) + 1, x="f32[4]")
twice_is_none.counterexample(lambda x: np.logical_not(np.logical_not(x)), "the result is bool, x is not", x="f32[4]")


@node_rule("abs", "relu", "floor", "ceil", "trunc", "round", "sign", "relu6", register=False)
def twice_is_once(node: Node) -> Answer:
    """``relu(relu(x))`` is ``relu(x)``, and so with abs, floor, ceil, trunc, round, sign, relu6."""
    (x,) = node.args
    if node.target.name == "sign" and is_complex(x):
        return None
    return x if is_call(x, node.target.name) else None


twice_is_once.example(lambda x: F.relu(np.maximum(x, 0)), x="f32[4]")
twice_is_once.counterexample(lambda x: np.floor(np.ceil(x * 2) / 2), "ops between", x="f32[4]")


@node_rule("abs", "square", register=False)
def sign_is_lost(node: Node) -> Answer:
    """``abs(-x)`` is ``abs(x)``, ``square(-x)`` and ``square(abs(x))`` are ``square(x)``."""
    (x,) = node.args
    if not is_call(x, "neg", "abs"):
        return None
    kind = dtype(x)
    if node.target.name == "abs" and (kind is None or kind.is_unsigned):
        return None  # of unsigned numbers, abs is no more than the identity: -1 is 255
    if node.target.name == "square" and is_complex(x.args[0]):
        return None if is_call(x, "abs") else Call("square", x.args[0])
    return Call(node.target.name, x.args[0])


sign_is_lost.example(lambda x: np.square(-x), x="f32[4]")
sign_is_lost.counterexample(lambda x: np.exp(-x), "exp tells the signs apart", x="f32[4]")
sign_is_lost.counterexample(lambda x: np.abs(-x), "-1 of u8 is 255, as is its abs", x="u8[4]")


@node_rule("relu", "abs", register=False)
def not_negative(node: Node) -> Answer:
    """relu and abs of what is never negative (exp, sigmoid, softmax, relu, ...) are that value."""
    (x,) = node.args
    found = dtype(x)
    if found is None or x.op != "call_function" or not x.target.nonnegative or found.is_complex:
        return None
    return x if found.is_float else "the smallest integer has a negative abs"


not_negative.example(lambda x: F.relu(np.exp(x)), x="f32[4]")
not_negative.counterexample(lambda x: F.relu(np.log(x)), "log can be negative", x="f32[4]")


# -- choices ---------------------------------------------------------------------------------------
@node_rule("maximum", "minimum", "logical_and", "logical_or", "bitwise_and", "bitwise_or", register=False)
def with_itself(node: Node) -> Answer:
    """``maximum(x, x)`` is x, and so with minimum, and, or."""
    x, y = node.args
    return x if x is y else None


with_itself.example(lambda x: np.maximum(x, x) + 1, x="f32[4]")
with_itself.counterexample(lambda x: np.bitwise_xor(x, x), "that is 0", x="i32[4]")


@rule(register=False)
def same_branches(condition: Any, x: Any) -> Any:
    """``where(c, x, x)`` is x."""
    return np.where(condition, x, x)


same_branches.replacement(lambda x: x)
same_branches.example(lambda x: np.exp(np.where(x > 0, x, x)), x="f32[4]")
same_branches.counterexample(lambda c, x: np.where(c, x, x), "x is broadcast to c", c="bool[3,1]", x="f32[4]")


def _bounds(node: Node) -> tuple[Any, Any]:
    if node.target.name == "relu":
        return 0, None
    return node.kwargs.get("min"), node.kwargs.get("max")


@node_rule("clip", "relu", register=False)
def clip_of_clip(node: Node) -> Answer:
    """``clip(clip(x, a, b), c, d)`` is ``clip(x, max(a, c), min(b, d))`` where the bounds are an
    interval."""
    (inner,) = node.args
    found = dtype(node)
    if not is_call(inner, "clip", "relu") or found is None or found.is_complex:
        return None
    if inner.target is not node.target and found.is_float:
        return "relu turns -0.0 into 0.0, clip at 0 does not"
    if not (inner.type == node.type == getattr(inner.args[0], "type", None)):
        return None
    intervals = [_bounds(n) for n in (node, inner)]
    bounds = [b for interval in intervals for b in interval if b is not None]
    if any(math.isnan(b) or (b == 0 and math.copysign(1, b) < 0) for b in bounds):
        return "a bound is NaN or -0.0"
    low = max((a for a, _ in intervals if a is not None), default=None)
    high = min((b for _, b in intervals if b is not None), default=None)
    for a, b in (*intervals, (low, high)):
        if a is not None and b is not None and a > b:
            return f"the bounds {a} and {b} are not an interval"
    return Call("clip", inner.args[0], low, high)


clip_of_clip.example(lambda x: np.clip(np.clip(x, -2, 3), -1, 5), x="f32[4]")
clip_of_clip.counterexample(lambda x: np.clip(np.clip(x, 2, 3), -1, 1), "the intervals do not meet", x="f32[4]")
clip_of_clip.counterexample(lambda x: F.relu(x).clip(None, 6), "relu turns -0.0 into 0.0, clip does not", x="f32[4]")


@node_rule("quantize", register=False)
def cut_off_anyway(node: Node) -> Answer:
    """``quantize(relu(x), scale, zero_point)`` is ``quantize(x, scale, zero_point)`` where numbers
    below the zero point are not stored: what is not above 0, and NaN, becomes the least one."""
    (x, *_) = node.args
    found = dtype(node)
    if not is_call(x, "relu") or found is None or len(x.users) > 1:
        return None
    arguments = node.arguments
    scale, zero_point = arguments["scale"], arguments.get("zero_point") or 0
    if isinstance(scale, Node) or isinstance(zero_point, Node) or not scale > 0:
        return "the scale and the zero point are computed"
    least = arguments.get("qmin")
    least = int(np.iinfo(found.numpy).min) if least is None else least
    if least < zero_point:
        return f"{least} stands for a number below 0"
    return Call("quantize", x.args[0], **{k: v for k, v in arguments.items() if k != "x"})


def _quantized_relu(x: Any) -> Any:
    return ops.quantize(F.relu(x + 1), 0.1, dtype="u8")


def _relu_above_least(x: Any) -> Any:
    return ops.quantize(F.relu(x), 0.1, 3, dtype="u8")


cut_off_anyway.example(_quantized_relu, x="f32[4]")
cut_off_anyway.counterexample(_relu_above_least, "0 stands for -0.3", x="f32[4]")


# -- casts -----------------------------------------------------------------------------------------
@node_rule("cast", register=False)
def cast_to_own(node: Node) -> Answer:
    """A cast to the dtype a value has is that value."""
    x = node.args[0]
    return x if isinstance(x, Node) and node.type is not None else None


def _cast_to_f32(x: Any) -> Any:
    return np.exp(ops.cast(x, "f32"))


cast_to_own.example(_cast_to_f32, x="f32[4]")
cast_to_own.counterexample(lambda x: x.astype(np.float64), "another dtype", x="f32[4]")


@node_rule("cast", register=False)
def second_cast(node: Node) -> Answer:
    """f32 -> f64 -> f16 is f32 -> f16: the first cast loses nothing."""
    (inner,) = node.args
    target = dtype(node)
    if not is_call(inner, "cast") or target is None:
        return None
    source, between = dtype(inner.args[0]), dtype(inner)
    if source is None or between is None:
        return None
    if not cast_of_cast(source, between, target):
        return f"{source} -> {between} -> {target} is not {source} -> {target} for every value"
    return inner.args[0] if source is target else Call("cast", inner.args[0], target)


second_cast.example(lambda x: x.astype(np.float64).astype(np.float16), x="f32[4]")
second_cast.counterexample(lambda x: x.astype(np.float16).astype(np.float32), "f16 rounds", x="f32[4]")

#: In the order in which they are tried.
ELEMENTWISE: list[AnyRule] = [
    times_one,
    divided_by_one,
    whole_quotient_by_one,
    first_power,
    minus_zero,
    plus_zero,
    plus_negative_zero,
    with_no_bits,
    twice_is_none,
    twice_is_once,
    sign_is_lost,
    not_negative,
    with_itself,
    same_branches,
    clip_of_clip,
    cut_off_anyway,
    cast_to_own,
    second_cast,
]


def keeps_every_value(source: DType, target: DType) -> bool:
    """True if ``target`` can hold every value of ``source``, including NaN, infinities and subnormals."""
    if source is target:
        return True
    if target.is_bool:
        return False
    if source.is_complex or target.is_complex:
        return target.is_complex and keeps_every_value(source.real, target.real)
    bits, room = _bits(source), _bits(target)
    if source.is_float:
        return target.is_float and bits <= room and _reach(source) <= _reach(target)
    if target.is_float:
        return bits <= min(room, _reach(target))
    return bits <= room and not (source.kind == "signed" and target.is_unsigned)


def _bits(dtype: DType) -> int:
    """Bits of magnitude of an integer, or of a float's significand with the leading one."""
    if dtype.is_float:
        return int(ml_dtypes.finfo(dtype.numpy).nmant) + 1
    return int(np.iinfo(dtype.numpy).max).bit_length() if dtype.is_integer else 1


def _reach(dtype: DType) -> int:
    """The largest exponent of a float dtype."""
    return int(ml_dtypes.finfo(dtype.numpy).maxexp) - 1


def cast_of_cast(source: DType, between: DType, target: DType) -> bool:
    """True if ``source -> between -> target`` equals ``source -> target`` for every value."""
    if not keeps_every_value(source, between):
        return False
    if target.is_bool or target.is_inexact:
        return True
    if source.is_inexact:
        return source is target  # out of range the result depends on the source dtype
    return not between.is_inexact or keeps_every_value(source, target)


# -- views: they move elements or change nothing ---------------------------------------------------
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
    """For graphs without types: only squeeze(unsqueeze(x, axis), axis) is known to be x."""
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
    reshape_back,
    second_reshape,
    second_permute,
    second_expand,
    slice_of_all,
    flip_back,
    concat_of_one,
    pad_by_nothing,
    element_of_split,
]


# -- the pass --------------------------------------------------------------------------------------
@node_rule("dropout", register=False)
def dropout_off(node: Node) -> Answer:
    """Dropout outside training, or with p=0, is its input."""
    return node.args[0] if why_dropout_stays(node) is None else None


dropout_off.example(lambda x: np.exp(F.dropout(x, 0.5)), "in inference mode", x="f32[4]")
dropout_off.counterexample(training_dropout, "the module is in training mode")

simplify = RuleSet([*ELEMENTWISE, *VIEWS, dropout_off], name="simplify")
simplify.__doc__ = """Apply identities that hold bit for bit until none fires: ``x * 1`` is x, a
reshape of a reshape is one reshape.

``simplify.statistics`` counts, by rule, how often each was tried and fired in the last run."""
enter(simplify)


def _four_calls(x: Any) -> Any:
    return np.exp((x.reshape(2, 6) * 1.0).reshape(4, 3) - 0)


simplify.example(_four_calls, "what is left of four calls", x="f32[3,4]")
simplify.counterexample(
    lambda x: (x + 0).astype(np.float16).astype(np.float32), "x + 0 turns -0.0 into 0.0, and f16 rounds", x="f32[4]"
)
