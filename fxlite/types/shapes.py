"""Dims: sizes of axes, as Python ints or as sympy expressions in named dims (``B``, ``4*D``).

In: dim text, ints, sympy expressions. Out: the same in one normal form (an int if the value is known),
arithmetic on them that never calls ``sympy.simplify``, and :class:`NamedDim`, the object that a traced
program gets from ``x.shape[0]`` if that size is a name.

Named dims are non-negative integers.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fxlite.base.checked import checked, public_names
from fxlite.base.errors import ArgumentError, ParseError, ShapeError, TraceError
from fxlite.base.on_demand import OnDemand, is_expression, sympy
from fxlite.base.outside_text import LARGEST_INT, bounded, syntax_tree
from fxlite.base.state import active_tracer, is_traced
from fxlite.types.facts import Facts

if TYPE_CHECKING:
    from fxlite.types.guards import Guard

#: Symbols and floor division, whose classes are sympy's: imported when the first named dim is made.
symbols: Any = OnDemand("fxlite.types.symbols")

Dim: TypeAlias = Any  # int | sympy.Expr; sympy has no types to check against
Shape: TypeAlias = tuple[Dim, ...]


#: The options of :func:`dims` by the facts that they state.
_OPTIONS = {"minimum": "min", "maximum": "max", "multiple_of": "multiple_of"}


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple or list as a tuple, any other value as a tuple of one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@checked
def dims(
    names: str,
    *,
    min: int | Mapping[str, int] | None = None,
    max: int | Mapping[str, int] | None = None,
    multiple_of: int | Mapping[str, int] | None = None,
) -> Any:
    """Named dims for shapes and types, with facts about their values:
    ``B, T = fx.dims("B T", max=512)``. An option applies to all of them, or is a dict by name:
    ``max={"T": 512}``.

    Facts decide comparisons while tracing, and are checked when the program is called. Raises
    ArgumentError for facts that no size fulfils."""
    found = names.replace(",", " ").split()
    made = []
    for name in found:
        facts: dict[str, Any] = {}
        for (fact, option), given in zip(_OPTIONS.items(), (min, max, multiple_of)):
            if isinstance(given, Mapping):
                if unknown := sorted(set(given) - set(found)):
                    raise ArgumentError(f"{option} names {', '.join(unknown)}, not in {names!r}")
                given = given.get(name)
            if given is not None:
                facts[fact] = given
        made.append(symbols.symbol(name, Facts(**facts)))
    return made[0] if len(made) == 1 else tuple(made)


def normalize(value: Any) -> Dim:
    """A dim in normal form: a Python int if the value is known, else an expanded sympy expression."""
    if type(value) is int:
        return value
    if isinstance(value, NamedDim):
        value = value.expr
    if is_expression(value):
        if value.is_Integer:
            return int(value)
        return value if value.is_Symbol else _normal_form(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ShapeError(f"a dim is an int or a named dim, not {value!r} ({type(value).__name__})")
    return int(value.__index__())


@functools.lru_cache(maxsize=4096)
def _normal_form(value: Any) -> Any:
    if value.has(sympy.floor):  # from B // 2 on sympy's own symbols
        value = value.replace(sympy.floor, _floor_as_division)
    found = symbols.expanded(value) if value.is_Add or value.is_Mul or value.is_Pow else value
    return int(found) if found.is_Integer else found


def _floor_as_division(argument: Any) -> Any:
    return symbols.FloorDiv(*sympy.fraction(sympy.together(argument)))


def equal(a: Dim, b: Dim) -> bool:
    """True if both dims are provably equal for all values of the named dims."""
    if a is b or (type(a) is int and type(b) is int):
        return bool(a == b)
    if a == b:
        return True
    difference = normalize(a - b)
    return bool(difference == 0 or (type(difference) is not int and symbols.is_zero(difference)))


def shapes_equal(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if both shapes are provably equal, axis by axis."""
    return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))


def at_least(a: Dim, b: Dim) -> bool:
    """True if ``a >= b`` is provable for all values of the named dims."""
    difference = normalize(a - b)
    if type(difference) is int:
        return difference >= 0
    if difference.is_nonnegative:
        return True
    is_bounded = symbols.fact_symbols(difference) or difference.has(symbols.FloorDiv)
    return bool(is_bounded) and symbols.never_negative(difference)


#: Relations with exchanged sides.
TURNED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "==": "==", "!=": "!="}


def decide(left: Dim, relation: str, right: Dim, known: Iterable[Guard] = ()) -> bool | None:
    """Whether a relation between dims holds for all their values (True), for none (False), or depends on
    them (None). ``known`` are guards that already hold."""
    if relation in (">", ">="):
        left, relation, right = right, TURNED[relation], left
    if relation in ("<", "!="):
        opposite = decide(right, "<=", left, known) if relation == "<" else None
        opposite = decide(left, "==", right, known) if relation == "!=" else opposite
        return None if opposite is None else not opposite
    if relation == "<=":
        if at_least(right, left) or _follows(left, right, known):
            return True
        return False if _less(right, left, known) else None
    if equal(left, right):
        return True
    for guard in known:
        if {guard.left, guard.right} == {left, right} and guard.relation in ("==", "!="):
            return guard.relation == "=="
    return False if _less(left, right, known) or _less(right, left, known) else None


def _less(a: Dim, b: Dim, known: Iterable[Guard]) -> bool:
    return at_least(b, a + 1) or _follows(a + 1, b, known)


def _follows(small: Dim, large: Dim, known: Iterable[Guard]) -> bool:
    """True if ``small <= large`` follows from one of the guards."""
    for guard in known:
        low, relation, high = guard.left, guard.relation, guard.right
        if relation in (">", ">="):
            low, relation, high = high, TURNED[relation], low
        if relation == "<":
            low = low + 1
        elif relation not in ("<=", "=="):
            continue
        if at_least(large - small, high - low):
            return True
        if relation == "==" and at_least(large - small, low - high):
            return True
    return False


def product(values: Iterable[Dim]) -> Dim:
    """The product of dims, such as the number of elements of a shape."""
    result: Dim = 1
    for value in values:
        result = result * value
    return normalize(result)


def matching_runs(a: Shape, b: Shape) -> list[tuple[range, range]] | None:
    """The shortest runs of neighbouring axes of two shapes that have equally many elements, in order, as for a
    reshape; None if no such runs can be proved. Axes of size 1 that are left over are paired with an empty run."""
    runs: list[tuple[range, range]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        ends = ((p, q) for p in range(i + 1, len(a) + 1) for q in range(j + 1, len(b) + 1))
        found = next(((p, q) for p, q in ends if equal(product(a[i:p]), product(b[j:q]))), None)
        if found is None:
            return None
        runs.append((range(i, found[0]), range(j, found[1])))
        i, j = found
    if product(a[i:]) != 1 or product(b[j:]) != 1:
        return None
    return runs if i == len(a) and j == len(b) else [*runs, (range(i, len(a)), range(j, len(b)))]


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b``, rounded down."""
    if type(a) is int and type(b) is int:
        return a // b
    return normalize(symbols.FloorDiv(sympy.sympify(a), sympy.sympify(b)))


def remainder(a: Dim, b: Dim) -> Dim:
    """``a % b``, with the sign of b; 0 if b provably divides a."""
    if type(a) is int and type(b) is int:
        return a % b
    if type(b) is int and symbols.divides(b, a):
        return 0
    return normalize(sympy.Mod(a, b))


def minimum(a: Dim, b: Dim, *more: Dim) -> Dim:
    """The smallest of several dims; ``Min(a, b)`` if it is not known which one that is."""
    return functools.reduce(functools.partial(_extreme, min), (b, *more), a)


def maximum(a: Dim, b: Dim, *more: Dim) -> Dim:
    """The largest of several dims; ``Max(a, b)`` if it is not known which one that is."""
    return functools.reduce(functools.partial(_extreme, max), (b, *more), a)


def _extreme(choose: Callable[..., Any], a: Dim, b: Dim) -> Dim:
    if type(a) is int and type(b) is int:
        return choose(a, b)
    if isinstance(a, NamedDim) or isinstance(b, NamedDim):  # the caller is a program that is being traced
        return for_user(_extreme(choose, normalize(a), normalize(b)))
    return _proved_extreme(choose is max, a, b)


@functools.lru_cache(maxsize=8192)  # sympy takes 5 ms, and slices ask for the same values many times
def _proved_extreme(is_largest: bool, a: Dim, b: Dim) -> Dim:
    if at_least(a, b):
        return a if is_largest else b
    if at_least(b, a):
        return b if is_largest else a
    return normalize((sympy.Max if is_largest else sympy.Min)(a, b))


def names(value: Any) -> frozenset[str]:
    """The names of the named dims in a dim or a (nested) sequence of dims."""
    return frozenset([dim.name for dim in named_dims(value)])


def named_dims(value: Any) -> Set[Any]:
    """The named dims in a dim or a (nested) sequence of dims."""
    if value.__class__ is int:
        return frozenset()
    if isinstance(value, (tuple, list)):
        return frozenset().union(*map(named_dims, value))
    if isinstance(value, NamedDim):
        value = value.expr
    if is_expression(value):
        return value.free_symbols  # type: ignore[no-any-return]
    return value.__fx_dims__() if hasattr(value, "__fx_dims__") else frozenset()


def substitute(value: Any, env: Mapping[str, Dim]) -> Any:
    """Replace named dims by the values in ``env``, also in nested tuples and lists; values that are not
    dims stay as they are."""
    if isinstance(value, (tuple, list)):
        return type(value)(substitute(v, env) for v in value)
    if isinstance(value, NamedDim):
        value = value.expr
    if is_expression(value):
        found = {s: sympy.sympify(env[s.name]) for s in value.free_symbols if env.get(s.name, s) is not s}
        return normalize(value.xreplace(found) if found else value)  # `subs` takes 7 times as long
    return value.__fx_substitute__(env) if hasattr(value, "__fx_substitute__") else value


def to_text(value: Dim) -> str:
    """A dim as Python text: ``4*D``, ``(H + 1)//2``."""
    if getattr(value, "is_Symbol", False):
        return str(value.name)  # sympy's printer is slow
    if is_expression(value) and value.has(sympy.Mod):
        value = value.replace(_has_parts, lambda e: symbols.FloorDiv(*symbols.in_parts(e), evaluate=False))
    return str(value)


def _has_parts(value: Any) -> bool:
    """Whether a dim is a sum of fractions, whose value is an integer: ``T/2 - Mod(T, 2)/2``."""
    return isinstance(value, sympy.Add) and symbols.in_parts(value)[1] > 1


_MOST_TERMS, _HIGHEST_POWER, _MOST_PARTS, _MOST_CALLS = 1000, 64, 4000, 64


def _times(a: Dim, b: Dim) -> Dim:
    if _terms(a) * _terms(b) > _MOST_TERMS:
        raise ParseError(f"the product has more than {_MOST_TERMS} terms")
    return a * b


def _power(a: Dim, b: Dim) -> Dim:
    if type(b) is not int or not 0 <= b <= _HIGHEST_POWER:
        raise ParseError(f"the exponent {b} is not a number from 0 to {_HIGHEST_POWER}")
    if _terms(a) ** b > _MOST_TERMS:
        raise ParseError(f"the power has more than {_MOST_TERMS} terms")
    return a**b


def _terms(dim: Dim) -> int:
    return len(dim.args) if isinstance(dim, sympy.Add) else 1


def _divisor(dim: Dim) -> Dim:
    if dim == 0:
        raise ParseError("a size is divided by 0")
    return dim


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: _times,
    ast.FloorDiv: lambda a, b: floordiv(a, _divisor(b)),
    ast.Mod: lambda a, b: remainder(a, _divisor(b)),
    ast.Pow: _power,
}
_FUNCTIONS = {"Min": minimum, "Max": maximum, "min": minimum, "max": maximum}


@bounded(ParseError, "a dim")
def from_ast(node: ast.expr, text: str) -> Dim:
    """A dim from a parsed Python expression: names, ints, ``+ - * // % **``, ``Min`` and ``Max``.
    Raises ParseError for other expressions, and for those that would take long or cannot be a size: numbers
    of more than 63 bits, powers above 64, more than 1000 terms."""
    if isinstance(node, ast.Name | ast.Constant):
        return _small(_from_ast(node, text), text)
    parts = calls = 0
    for part in ast.walk(node):
        parts += 1
        if isinstance(part, ast.Mod | ast.FloorDiv):
            calls += 1
        elif isinstance(part, ast.Call):  # sympy compares the arguments of Min and Max with each other
            is_remainder = isinstance(part.func, ast.Name) and part.func.id == "Mod"
            calls += 1 if is_remainder else 4 * len(part.args)
    if parts > _MOST_PARTS or calls > _MOST_CALLS:
        raise ParseError(f"the dim {text[:200]!r} has too many parts")
    try:
        return _small(_from_ast(node, text), text)
    except ParseError as error:
        if text[:200] in str(error):
            raise
        raise ParseError(f"in {text[:200]!r}: {error}") from None


def _small(dim: Dim, text: str) -> Dim:
    """The dim. Raises ParseError if it contains a number that is too large for a size."""
    numbers = [dim] if type(dim) is int else map(int, dim.atoms(sympy.Integer))
    if any(abs(number) > LARGEST_INT for number in numbers):
        raise ParseError(f"{text[:200]!r} has a number of more than 63 bits, which is too large for a size")
    return dim


def _from_ast(node: ast.expr, text: str) -> Dim:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return symbols.symbol(node.id)
    if isinstance(node, ast.BinOp):
        chain: list[ast.BinOp] = []  # a + b + c + ... may have more terms than the stack has room for
        first: ast.expr = node
        while isinstance(first, ast.BinOp) and type(first.op) in _OPERATORS:
            chain.append(first)
            first = first.left
        if chain:
            found = _from_ast(first, text)
            for step in reversed(chain):
                found = _OPERATORS[type(step.op)](found, _from_ast(step.right, text))
                found = _small(normalize(found), text)
            return found
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return normalize(-_from_ast(node.operand, text))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function = _FUNCTIONS.get(node.func.id)
        if function is not None and len(node.args) >= 2 and not node.keywords:
            return functools.reduce(function, (_from_ast(a, text) for a in node.args))
        if node.func.id == "Mod" and len(node.args) == 2:
            value, by = (_from_ast(a, text) for a in node.args)
            return remainder(value, _divisor(by))
    part = ast.unparse(node)
    raise ParseError(f"{part[:200]!r} in {text[:200]!r} is not a dim; write ints, names, + - * //")


@bounded(ParseError, "a dim")
def parse(text: str) -> Dim:
    """A dim from text such as ``"4*D"``. Raises ParseError."""
    try:
        tree = syntax_tree(text.strip()).body
    except SyntaxError:
        shown = f"{text[:200]!r} is not a dim"
        raise ParseError(f"{shown}; write an int or an expression like 4*D") from None
    return from_ast(tree, text)


_UFUNC_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "maximum": lambda a, b: maximum(a, b),
    "minimum": lambda a, b: minimum(a, b),
}


_RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _comparison(relation: str) -> Callable[[Any, Any], Any]:
    def method(self: NamedDim, other: Any) -> Any:
        tracer = active_tracer.get()
        if isinstance(other, float) and tracer is not None:
            return _RELATIONS[relation](tracer.number_of_size(self), other)
        return _decided(self.expr, relation, normalize(own_dims(other)))

    return method


def _operators(
    function: Callable[[Any, Any], Any], of_sizes: Callable[[Dim, Dim], Dim | None] | None = None
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The plain and the reflected method of an operator of :class:`NamedDim`. ``of_sizes`` computes a size from
    sizes. A result that is not a size (``B / 2``, ``0.5 * B``) is a traced number, computed at run time."""

    def applied(dim: NamedDim, other: Any, reflected: bool) -> Any:
        if is_traced(other):
            return NotImplemented  # the operators of the traced value are used
        if is_expression(other):
            other = for_user(own_dims(other))
        elif not hasattr(other, "__index__") and not isinstance(other, (float, complex)):
            return NotImplemented
        pair = (other, dim) if reflected else (dim, other)
        if of_sizes is not None and not isinstance(other, (float, complex)):
            one, two = (v.expr if isinstance(v, NamedDim) else int(v) for v in pair)
            found = of_sizes(one, two)
            if found is not None:
                return for_user(normalize(found))
        if function in (operator.pow, operator.lshift) and isinstance(pair[0], int):
            dim._number("an integer of any size")
        tracer = active_tracer.get()
        if tracer is None:
            return NotImplemented
        return function(*(tracer.number_of_size(v) if isinstance(v, NamedDim) else v for v in pair))

    def plain(self: NamedDim, other: Any) -> Any:
        return applied(self, other, False)

    def reflected(self: NamedDim, other: Any) -> Any:
        return applied(self, other, True)

    return plain, reflected


def _power_of_size(base: Dim, exponent: Dim) -> Dim | None:
    """A size to a small integer power, which is a size; None for other exponents."""
    if type(exponent) is not int or not 0 <= exponent <= 8:
        return None
    return functools.reduce(operator.mul, [base] * exponent, 1)


class NamedDim:
    """The object that a traced program gets from ``x.shape[0]`` if that size is a named dim.

    It supports arithmetic and can be used in shapes. If Python itself needs a number (``range``, ``if``,
    ``np.zeros``), it raises TraceError, because the number is not known while tracing.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def _number(self, what: str) -> Any:
        """Called where Python needs a number: raises TraceError, unless the tracer supplies one."""
        problem = f"{what} needs a number, but the size {self.expr} is a named dim, which has no value while tracing"
        instead = (
            "use it in shapes (x.reshape(...), fx.ops.zeros(...)), or trace with a number in place "
            f"of {', '.join(sorted(names(self.expr)))}"
        )
        if what.startswith(("the comparison", "if")):
            instead += (
                "; bounds in fx.dims(..., min=, max=, multiple_of=), or an assert before this "
                "line, decide it for all sizes"
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
        return bool(_decided(self.expr, "!=", 0, is_truth=True))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """``np.float32(2) * B``, ``np.maximum(x, B)``, ``np.sqrt(D)``: combined with NumPy's ints, a size
        stays a size; otherwise the result is a traced number. It is never an array of objects."""
        if any(map(is_traced, inputs)):
            return NotImplemented  # the method of the traced value is used
        function = _UFUNC_OPERATORS.get(ufunc.__name__)
        plain = [int(v) if isinstance(v, np.integer) else v for v in inputs]
        known = all(isinstance(v, (int, NamedDim)) for v in plain)
        if function is not None and known and method == "__call__" and not kwargs:
            return function(*plain)
        tracer = active_tracer.get()
        if tracer is None:
            self._number(f"np.{ufunc.__name__}")
        return tracer.ufunc_of_sizes(ufunc, method, inputs, kwargs)  # type: ignore[union-attr]

    def __eq__(self, other: object) -> bool:
        return self._compare_equal("==", other)  # type: ignore[no-any-return]

    def __ne__(self, other: object) -> bool:  # not the opposite of ==, which may be a guard
        return self._compare_equal("!=", other)  # type: ignore[no-any-return]

    def _compare_equal(self, relation: str, other: object) -> Any:
        if isinstance(other, NamedDim):
            other = other.expr
        if not isinstance(other, (int, sympy.Expr)):
            return NotImplemented
        return _decided(self.expr, relation, own_dims(other))

    def __hash__(self) -> int:
        return hash(self.expr)

    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    __add__, __radd__ = _operators(operator.add, operator.add)
    __sub__, __rsub__ = _operators(operator.sub, operator.sub)
    __mul__, __rmul__ = _operators(operator.mul, operator.mul)
    __floordiv__, __rfloordiv__ = _operators(operator.floordiv, floordiv)
    __mod__, __rmod__ = _operators(operator.mod, remainder)
    __pow__, __rpow__ = _operators(operator.pow, _power_of_size)
    __truediv__, __rtruediv__ = _operators(operator.truediv)
    __and__, __rand__ = _operators(operator.and_)
    __or__, __ror__ = _operators(operator.or_)
    __xor__, __rxor__ = _operators(operator.xor)
    __lshift__, __rlshift__ = _operators(operator.lshift)
    __rshift__, __rrshift__ = _operators(operator.rshift)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return NamedDim(-self.expr)

    def __pos__(self) -> NamedDim:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __round__(self, digits: int | None = None) -> Any:
        return self if digits is None or digits >= 0 else round(int(self), digits)

    def __abs__(self) -> Any:
        return for_user(maximum(self.expr, normalize(-self.expr)))

    def __invert__(self) -> Any:
        return -self - 1

    def bit_length(self) -> int:
        """The method of int, for a size whose value is known."""
        return int(self._number("bit_length()")).bit_length()

    def __repr__(self) -> str:
        return str(self.expr)


def _decided(left: Dim, relation: str, right: Dim, is_truth: bool = False) -> Any:
    """Whether a comparison holds. If that depends on the sizes, the tracer decides, or returns a value that
    stands for the answer."""
    tracer = active_tracer.get()
    known = () if tracer is None else tracer.graph.guards
    answer = decide(left, relation, right, known)
    if answer is None:
        answer = None if tracer is None else tracer.check_of_sizes(left, relation, right, is_truth)
    if answer is None and tracer is not None and not is_truth:
        answer = tracer.compared_sizes(left, relation, right)
    if answer is None:
        what = "if, while, and, or" if is_truth else f"the comparison {left} {relation} {right}"
        answer = bool(NamedDim(left)._number(what))
    return answer


def own_dims(value: Any) -> Any:
    """A dim in a program that is being traced, with the symbols of the graph: the ``T`` of
    ``fx.dims("T")`` becomes the ``T`` of the inputs, whatever the facts about that one."""
    tracer = active_tracer.get()
    if tracer is None or not tracer.graph.declared_dims:
        return value
    return substitute(value, tracer.graph.declared_dims)


def for_user(value: Dim) -> Any:
    """A dim as the traced program sees it: a plain int, or a :class:`NamedDim`."""
    return value if type(value) is int else NamedDim(value)


def __dir__() -> list[str]:
    return public_names(globals())
