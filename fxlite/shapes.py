"""Dims: sizes of axes, as Python ints or as sympy expressions in named dims (``B``, ``4*D``).

In: dim text, ints, sympy expressions. Out: the same in one normal form (an int wherever the value
is known), arithmetic on them that never calls ``sympy.simplify``, and :class:`NamedDim`, the object
a traced program sees as ``x.shape[0]`` when that size is a name.

Named dims are non-negative integers.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import sympy

from fxlite.errors import ParseError, ShapeError, TraceError
from fxlite.state import active_tracer

Dim: TypeAlias = Any  # int | sympy.Expr; sympy has no types to check against
Shape: TypeAlias = tuple[Dim, ...]


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """``a // b`` on dims; folds what is exact. (sympy's own floor of a fraction prints as one.)"""

    nargs = (2,)
    is_integer = True
    precedence = 45  # for printing: below a product (50), so that 4*(H//2) keeps its parentheses

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if b == 1:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        if b.is_Integer and int(b) > 0:
            # (k*b*x + r) // b  ==  k*x + r // b  for any integer x
            exact: list[Any] = []
            rest: list[Any] = []
            for term in sympy.Add.make_args(sympy.expand(a)):
                coeff, _ = term.as_coeff_Mul()
                (exact if coeff.is_Integer and int(coeff) % int(b) == 0 else rest).append(term)
            if exact and not rest:
                return sympy.Add(*exact) / b
            if exact:
                return sympy.Add(*exact) / b + FloorDiv(sympy.Add(*rest), b)
            return None
        quotient = sympy.cancel(a / b)
        if sympy.denom(quotient) == 1:
            return sympy.expand(quotient)
        return None

    def _eval_is_nonnegative(self) -> bool | None:
        a, b = self.args
        return True if a.is_nonnegative and (b.is_nonnegative or b.is_positive) else None

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(x, 50) for x in self.args)  # 50: precedence of a product
        if not (self.args[1].is_Symbol or self.args[1].is_Integer):
            b = f"({printer.doprint(self.args[1])})"
        if self.args[0].is_Mul:
            a = f"({printer.doprint(self.args[0])})"
        return f"{a}//{b}"


@functools.cache
def symbol(name: str) -> Any:
    """The named dim ``name``: a sympy symbol, integer and non-negative."""
    if not name.isidentifier():
        raise ParseError(f"a named dim must be an identifier, not {name!r}")
    return sympy.Symbol(name, integer=True, nonnegative=True)


def dims(names: str) -> Any:
    """``B, T = fx.dims("B T")``: named dims to use in shapes and types."""
    made = tuple(symbol(n) for n in names.replace(",", " ").split())
    return made[0] if len(made) == 1 else made


def normalize(value: Any) -> Dim:
    """One normal form: a Python int where the value is known, else an expanded sympy expression."""
    if type(value) is int:
        return value
    if isinstance(value, NamedDim):
        value = value.expr
    if isinstance(value, sympy.Expr):
        if value.is_Integer:
            return int(value)
        if value.has(sympy.floor):  # B // 2 on sympy's own symbols
            value = value.replace(sympy.floor, _floor_as_division)
        return sympy.expand(value) if value.is_Add or value.is_Mul or value.is_Pow else value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ShapeError(f"a dim is an int or a named dim, not {value!r} ({type(value).__name__})")
    return int(value.__index__())


def _floor_as_division(argument: Any) -> Any:
    return FloorDiv(*sympy.fraction(sympy.together(argument)))


def equal(a: Dim, b: Dim) -> bool:
    """True if provably equal for all values of the named dims."""
    if a is b or (type(a) is int and type(b) is int):
        return bool(a == b)
    return bool(a == b) or normalize(a - b) == 0


def shapes_equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if both shapes are provably equal, axis by axis."""
    return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))


def at_least(a: Dim, b: Dim) -> bool:
    """True if ``a >= b`` is provable for all non-negative values of the named dims."""
    difference = normalize(a - b)
    if type(difference) is int:
        return difference >= 0
    return bool(difference.is_nonnegative)


def product(values: Iterable[Dim]) -> Dim:
    """Number of elements: the product of dims."""
    result: Dim = 1
    for value in values:
        result = result * value
    return normalize(result)


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b``, rounded down."""
    if type(a) is int and type(b) is int:
        return a // b
    return normalize(FloorDiv(sympy.sympify(a), sympy.sympify(b)))


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims; ``Min(a, b)`` where that is not known."""
    if type(a) is int and type(b) is int:
        return min(a, b)
    if isinstance(a, NamedDim) or isinstance(b, NamedDim):  # in a program that is being traced
        return for_user(minimum(normalize(a), normalize(b)))
    if at_least(a, b):
        return b
    if at_least(b, a):
        return a
    return normalize(sympy.Min(a, b))


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two dims; ``Max(a, b)`` where that is not known."""
    if type(a) is int and type(b) is int:
        return max(a, b)
    if isinstance(a, NamedDim) or isinstance(b, NamedDim):
        return for_user(maximum(normalize(a), normalize(b)))
    if at_least(a, b):
        return a
    if at_least(b, a):
        return b
    return normalize(sympy.Max(a, b))


def names(value: Any) -> frozenset[str]:
    """Names of the named dims in a dim or a (nested) sequence of dims."""
    if isinstance(value, (tuple, list)):
        return frozenset().union(*(names(v) for v in value))
    if isinstance(value, NamedDim):
        value = value.expr
    if isinstance(value, sympy.Expr):
        return frozenset(s.name for s in value.free_symbols)
    return frozenset()


def substitute(value: Any, env: Mapping[str, Dim]) -> Any:
    """Replace named dims by the values in ``env``; works on nested tuples and lists, and leaves
    everything that is not a dim alone."""
    if isinstance(value, (tuple, list)):
        return type(value)(substitute(v, env) for v in value)
    if isinstance(value, NamedDim):
        value = value.expr
    if isinstance(value, sympy.Expr):
        return normalize(value.subs({symbol(k): v for k, v in env.items()}, simultaneous=True))
    return value


def to_text(value: Dim) -> str:
    """Dim as Python text: ``4*D``, ``(H + 1)//2``."""
    return str(value)


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: lambda a, b: sympy.Mod(a, b),
    ast.Pow: lambda a, b: a**b,
}
_FUNCTIONS = {"Min": minimum, "Max": maximum, "min": minimum, "max": maximum}


def from_ast(node: ast.expr, text: str) -> Dim:
    """A dim from a parsed Python expression: names, ints, ``+ - * // % **``, ``Min`` and
    ``Max``."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = from_ast(node.left, text), from_ast(node.right, text)
        return normalize(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return normalize(-from_ast(node.operand, text))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function = _FUNCTIONS.get(node.func.id)
        if function is not None and len(node.args) >= 2 and not node.keywords:
            return functools.reduce(function, (from_ast(a, text) for a in node.args))
        if node.func.id == "Mod" and len(node.args) == 2:
            return normalize(sympy.Mod(*(from_ast(a, text) for a in node.args)))
    raise ParseError(f"{ast.unparse(node)!r} in {text!r} is not a dim; write ints, names, + - * //")


def parse(text: str) -> Dim:
    """``"4*D"`` -> a dim. Raises ParseError."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ParseError(f"{text!r} is not a dim; write an int or an expression like 4*D") from None
    return from_ast(tree, text)


_UFUNC_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "equal": operator.eq,
    "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "maximum": lambda a, b: maximum(a, b),
    "minimum": lambda a, b: minimum(a, b),
}  # fmt: skip


class NamedDim:
    """What a traced program gets from ``x.shape[0]`` when that size is a named dim.

    It does arithmetic and goes into shapes. Where Python itself needs a number (``range``, ``if``,
    ``np.zeros``) there is none at trace time, and a TraceError says so.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def _number(self, what: str) -> Any:
        """Python needs a number: refused, unless the tracer has one to go on with."""
        problem = (
            f"{what} needs a number, but the size {self.expr} is a named dim, which has no value "
            "while tracing"
        )
        instead = (
            "use it in shapes (x.reshape(...), fx.ops.zeros(...)), or trace with a number in place "
            f"of {', '.join(sorted(names(self.expr)))}"
        )
        tracer = active_tracer.get()
        if tracer is None:
            raise TraceError(f"{problem}\n  instead: {instead}")
        return tracer.size_needed(problem, instead)

    def __index__(self) -> int:
        return int(self._number("range(), len(), indexing or np.zeros"))

    def __int__(self) -> int:
        return int(self._number("int()"))

    def __float__(self) -> float:
        return float(self._number("float()"))

    def __bool__(self) -> bool:
        return bool(self._number("if, while, and, or"))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """``np.float32(2) * B``, ``np.maximum(x, B)``, ``np.sqrt(D)``: with NumPy's ints a size
        stays a size, else it is a traced number; never an array of objects."""
        if any(hasattr(type(v), "__fx_record__") for v in inputs):
            return NotImplemented  # the traced value's own method takes over
        function = _UFUNC_OPERATORS.get(ufunc.__name__)
        plain = [int(v) if isinstance(v, np.integer) else v for v in inputs]
        known = all(isinstance(v, (int, NamedDim)) for v in plain)
        if function is not None and known and method == "__call__" and not kwargs:
            return function(*plain)
        tracer = active_tracer.get()
        if tracer is None:
            self._number(f"np.{ufunc.__name__}")
        from fxlite.tracing.numpy_api import call_ufunc

        traced = [tracer.size(v) if isinstance(v, NamedDim) else v for v in inputs]  # type: ignore[union-attr]
        return call_ufunc(tracer, ufunc, method, tuple(traced), kwargs)  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NamedDim):
            other = other.expr
        if not isinstance(other, (int, sympy.Expr)):
            return NotImplemented
        difference = normalize(self.expr - other)
        if difference == 0:
            return True
        if type(difference) is int or difference.is_positive or difference.is_negative:
            return False
        return bool(self._number(f"the comparison {self.expr} == {other}"))

    def __hash__(self) -> int:
        return hash(self.expr)

    def _compare(self, other: Any, sign: str) -> bool:
        other_expr = other.expr if isinstance(other, NamedDim) else other
        low, high = (other_expr, self.expr) if sign in (">", ">=") else (self.expr, other_expr)
        strict = sign in ("<", ">")
        if at_least(high, low + 1 if strict else low):
            return True
        if at_least(low, high if strict else high + 1):
            return False
        return bool(self._number(f"the comparison {self.expr} {sign} {other_expr}"))

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, ">")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, ">=")

    def __add__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, lambda a, b: a * b)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, lambda a, b: floordiv(b, a))

    def __mod__(self, other: Any) -> Any:
        return _wrap_arithmetic(self, other, lambda a, b: sympy.Mod(a, b))

    def __neg__(self) -> Any:
        return NamedDim(-self.expr)

    def __repr__(self) -> str:
        return str(self.expr)


def _wrap_arithmetic(a: NamedDim, b: Any, function: Callable[[Any, Any], Any]) -> Any:
    if isinstance(b, NamedDim):
        b = b.expr
    elif hasattr(type(b), "__fx_record__"):
        return NotImplemented  # a traced value: its own operators take over
    elif isinstance(b, float) or not (hasattr(b, "__index__") or isinstance(b, sympy.Expr)):
        return NotImplemented
    elif not isinstance(b, sympy.Expr):
        b = int(b)
    return for_user(normalize(function(a.expr, b)))


def for_user(value: Dim) -> Any:
    """A dim as the traced program sees it: a plain int, or a :class:`NamedDim`."""
    return value if type(value) is int else NamedDim(value)
