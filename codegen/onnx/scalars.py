"""Elementwise ops as ONNX nodes, written from their bodies: each scalar function becomes a node, with the dtypes that
the body has, so that promotion and rounding are those of the op.

In: a scalar expression over operands that broadcast. Out: the name of its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import ModelExportError
from fxlite.codegen.onnx.builder import WIDE, Builder, Value
from fxlite.importing.onnx.registry import counterparts
from fxlite.ops.op import Op
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, Cast, Const, Expr, Load, MultiIndex
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Index
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class _Operand:
    """An operand as bodies read it: ONNX broadcasts, so the index is ignored."""

    value: Value

    @property
    def shape(self) -> MultiIndex:
        return tuple(Index.of(d) for d in self.value.type.shape)

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    def __getitem__(self, index: Any) -> Expr:
        return Load(self.dtype, self.value.name, index if isinstance(index, tuple) else (index,))

    __iter__ = None  # it has no length: iterating over it would not end


def pointwise(b: Builder, op: Op, arguments: Mapping[str, Any], type: TensorType) -> str:
    """Write a call of an element-wise op. Raises ModelExportError for what ONNX cannot compute."""
    index = tuple(Index.of(expr.fresh_var(d)) for d in type.shape)

    def reader(value: Any) -> Any:
        return _Operand(value) if isinstance(value, Value) else expr.ConstReader(value)

    root = op.element(index, op.map_tensors(reader, arguments))
    found = lower(b, root)
    is_spread = not type.rank or any(isinstance(e, Load) for e in expr.walk(root))
    return found if is_spread else b.expand(found, type.shape)


def lower(b: Builder, root: Expr) -> str:
    """Write an expression; shared parts are computed once."""
    done: dict[int, str] = {}

    def visit(node: Expr) -> str:
        found = done.get(id(node))
        if found is None:
            found = done[id(node)] = _node(b, node, visit)
        return found

    return visit(root)


def _node(b: Builder, node: Expr, visit: Callable[[Expr], str]) -> str:
    if node.dtype.is_complex:
        raise ModelExportError("ONNX's ops do not compute with complex numbers")
    if isinstance(node, Const):
        return b.number(node.value, node.dtype)
    if isinstance(node, Load) and node.guard is None:
        return node.buffer
    if isinstance(node, Cast):
        (value,) = node.children
        return b.cast(visit(value), value.dtype, node.dtype)
    if isinstance(node, Apply):
        return _apply(b, node.function, [visit(c) for c in node.children], node.children[-1].dtype, node.dtype)
    raise ModelExportError(f"ONNX has no op for a {type(node).__name__} of an element-wise op")


_SAME = {op.name: name for op, name, _ in counterparts() if op.name in FUNCTIONS} | {"product": "Mul"}
_BITS = {"and": "And", "or": "Or", "xor": "Xor"}
#: What runtimes have no kernels of for small integers, which are computed in a wider type.
_WIDENED = frozenset("add sub mul product div maximum minimum neg abs sign lt le gt ge floordiv mod pow where".split())


#: What has no bfloat16 in the oldest opsets, and is computed in float32.
_NO_BFLOAT = frozenset(
    "sin cos tan sinh cosh asin acos atan asinh acosh atanh round log1p expm1 atan2 hypot cbrt fmod mod "
    "floordiv".split()
)


#: What has no half types there.
_NO_HALF = frozenset("isinf log1p logaddexp".split())


def _apply(b: Builder, function: str, names: list[str], operand: DType, result: DType) -> str:
    wide = WIDE.get(operand)
    if wide is not None and function in _WIDENED and not (function == "where" and operand.is_bool):
        first = names[:1] if function == "where" else []
        names = [*first, *(b.cast(n, operand, wide) for n in names[len(first) :])]
        found = _apply(b, function, names, wide, wide if result is operand else result)
        return b.cast(found, wide, operand) if result is operand else found
    if (operand is dtypes.bfloat16 and function in _NO_BFLOAT) or (operand.is_half and function in _NO_HALF):
        names = [b.cast(n, operand, dtypes.float32) for n in names]
        found = _apply(b, function, names, dtypes.float32, dtypes.float32 if result is operand else result)
        return b.cast(found, dtypes.float32, operand) if result is operand else found
    if function in _SAME:
        if _SAME[function] in ("Floor", "Ceil", "Round") and not operand.is_float:
            return names[0]
        return b.op(_SAME[function], *names)
    if function in _BITS:
        return b.op(_BITS[function] if operand.is_bool else f"Bitwise{_BITS[function]}", *names)
    composed = _COMPOSED.get(function)
    if composed is None:
        raise ModelExportError(f"no op of ONNX computes {function!r}")
    return composed(_Maker(b, operand), *names)


class _Maker:
    """Writes formulas over values of one dtype."""

    def __init__(self, b: Builder, dtype: DType) -> None:
        self.b, self.dtype = b, dtype

    def __getattr__(self, kind: str) -> Callable[..., str]:
        def call(*values: Any) -> str:
            names = [v if isinstance(v, str) else self.b.number(v, self.dtype) for v in values]
            return self.b.op(kind, *names)

        return call


def _ne(m: _Maker, x: str, y: str) -> str:
    return m.Not(m.Equal(x, y))


def _mod(m: _Maker, x: str, y: str) -> str:
    """The remainder with the sign of the divisor."""
    if not m.dtype.is_float:
        return m.b.op("Mod", x, y)
    rest = m.b.op("Mod", x, y, fmod=1)
    differs = m.Xor(m.Less(rest, 0), m.Less(y, 0))
    return m.Where(m.And(m.Not(m.Equal(rest, 0)), differs), m.Add(rest, y), rest)


def _floordiv(m: _Maker, x: str, y: str) -> str:
    if not m.dtype.is_float:
        return m.Div(m.Sub(x, _mod(m, x, y)), y)
    rest = m.b.op("Mod", x, y, fmod=1)
    below = m.And(m.Not(m.Equal(rest, 0)), m.Xor(m.Less(rest, 0), m.Less(y, 0)))
    quotient = m.Round(m.Div(m.Sub(x, rest), y))
    return m.Where(m.Equal(y, 0), m.Div(x, y), m.Sub(quotient, m.Where(below, 1, 0)))


def _log1p(m: _Maker, x: str) -> str:
    """Kahan's formula: the rounding of 1 + x is divided out."""
    whole = m.Add(x, 1)
    plain = m.Or(m.Equal(whole, 1), m.b.op("IsInf", whole))
    factor = m.Div(x, m.Sub(whole, 1))
    return m.Where(m.Equal(whole, 1), x, m.Where(plain, m.Log(whole), m.Mul(m.Log(whole), factor)))


def _expm1(m: _Maker, x: str) -> str:
    """2 sinh(x/2) exp(x/2) if x is small, otherwise exp(x) - 1."""
    half = m.Mul(x, 0.5)
    return m.Where(m.Less(m.Abs(x), 1), m.Mul(m.Mul(m.Sinh(half), m.Exp(half)), 2), m.Sub(m.Exp(x), 1))


def _atan2(m: _Maker, y: str, x: str) -> str:
    turned = m.Where(_signbit(m, y), -math.pi, math.pi)
    infinite = m.And(m.Equal(m.Abs(x), math.inf), m.Equal(m.Abs(y), math.inf))
    above, below = (m.Where(infinite, m.Sign(v), v) for v in (y, x))
    angle = m.Atan(m.Div(above, m.Where(m.Equal(below, 0), 0, below)))  # a zero without a sign
    found = m.Where(m.Less(x, 0), m.Add(angle, turned), angle)
    return m.Where(m.And(m.Equal(x, 0), m.Equal(y, 0)), m.Where(_signbit(m, x), turned, y), found)


def _hypot(m: _Maker, x: str, y: str) -> str:
    """The larger number times a factor of at most the root of 2: squares of large and small numbers would overflow or
    underflow."""
    one, other = m.Abs(x), m.Abs(y)
    larger, smaller = m.Max(one, other), m.Min(one, other)
    ratio = m.Div(smaller, m.Where(m.Equal(larger, 0), 1, larger))
    infinite = m.Or(m.Equal(one, math.inf), m.Equal(other, math.inf))
    return m.Where(infinite, math.inf, m.Mul(larger, m.Sqrt(m.Add(m.Mul(ratio, ratio), 1))))


def _signbit(m: _Maker, x: str) -> str:
    return m.Or(m.Less(x, 0), m.Less(m.Reciprocal(x), 0))


def _logaddexp(m: _Maker, x: str, y: str) -> str:
    larger = m.Max(x, y)
    apart = m.Where(m.Equal(x, y), 0, m.Sub(m.Min(x, y), larger))
    return m.Add(larger, _log1p(m, m.Exp(apart)))


def _shift_left(m: _Maker, x: str, y: str) -> str:
    return _shifted(m, x, y, "LEFT")


def _shift_right(m: _Maker, x: str, y: str) -> str:
    """For negative numbers the complement is shifted, which fills in the sign."""
    if m.dtype.is_unsigned:
        return _shifted(m, x, y, "RIGHT")
    negative = m.Less(x, 0)
    found = _shifted(m, m.Where(negative, m.BitwiseNot(x), x), y, "RIGHT")
    return m.Where(negative, m.BitwiseNot(found), found)


def _shifted(m: _Maker, x: str, y: str, direction: str) -> str:
    """Write a shift: ONNX shifts unsigned numbers, and runtimes only those of 32 and 64 bits."""
    wide = dtypes.uint64 if m.dtype.itemsize > 4 else dtypes.uint32
    one, other = (m.b.cast(v, m.dtype, wide) for v in (x, y))
    return m.b.cast(m.b.op("BitShift", one, other, direction=direction), wide, m.dtype)


def _copysign(m: _Maker, x: str, y: str) -> str:
    size = m.Abs(x)
    return m.Where(_signbit(m, y), m.Neg(size), size)


def _cbrt(m: _Maker, x: str) -> str:
    return m.Mul(m.Sign(x), m.Pow(m.Abs(x), 1 / 3))


def _saturate(m: _Maker, x: str, low: str, high: str) -> str:
    inner = m.Where(m.Greater(x, low), m.Where(m.Less(x, high), x, high), low)
    return m.b.cast(inner, m.dtype, dtypes.int32)


_COMPOSED: dict[str, Callable[..., str]] = {
    "ne": _ne,
    "mod": _mod,
    "floordiv": _floordiv,
    "fmod": lambda m, x, y: m.b.op("Mod", x, y, fmod=1),
    "fma": lambda m, x, y, z: m.Add(m.Mul(x, y), z),
    "rsqrt": lambda m, x: m.Reciprocal(m.Sqrt(x)),
    "log1p": _log1p,
    "expm1": _expm1,
    "log2": lambda m, x: m.Mul(m.Log(x), 1 / math.log(2)),
    "log10": lambda m, x: m.Mul(m.Log(x), 1 / math.log(10)),
    "exp2": lambda m, x: m.Pow(2, x),
    "cbrt": _cbrt,
    "hypot": _hypot,
    "trunc": lambda m, x: m.Where(m.Less(x, 0), m.Ceil(x), m.Floor(x)) if m.dtype.is_float else x,
    "atan2": _atan2,
    "copysign": _copysign,
    "logaddexp": _logaddexp,
    "invert": lambda m, x: m.BitwiseNot(x),
    "shl": _shift_left,
    "shr": _shift_right,
    "saturate": _saturate,
    "larger_magnitude": lambda m, x, y: m.Max(x, m.Abs(y)),
}


def is_pointwise(op: Op) -> bool:
    """Whether :func:`pointwise` writes calls of an op."""
    return op.kind == "pointwise" and op.has_body
