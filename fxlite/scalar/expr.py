"""Scalar expressions: small trees that compute one element of a value.

An op's ``body`` is a function from an output index to an :class:`Expr` over readers of its inputs:
``relu`` is ``maximum(x[i], 0)``, ``matmul`` is
``reduce("sum", (K,), lambda k: a[i, k] * b[k, j])``. To fuse a producer into its consumer, one function
calls the other. Kernels, their NumPy interpreter and the C and CUDA printers all work on these trees.

In: constants, :class:`~fxlite.scalar.index.Index` values, loads. Out: immutable trees with a dtype
on each node; sharing in the tree (the same object reached twice) means "computed once".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from fxlite.scalar.functions import COMBINATIONS, FUNCTIONS
from fxlite.scalar.index import Index, Value, Var
from fxlite.types import dtypes
from fxlite.types.dtypes import DType, Number

MultiIndex: TypeAlias = tuple[Index, ...]


def _operator(name: str, turned: bool = False) -> Callable[[Any, Any], Expr]:
    return lambda self, other: binary(name, other, self) if turned else binary(name, self, other)


@dataclass(frozen=True, eq=False)
class Expr:
    """The base class: a scalar of ``dtype``. Expressions are compared by identity, and operators build new
    ones. ``label`` is a name for emitted source: the graph node with this value."""

    dtype: DType
    label: str = field(default="", init=False, repr=False)

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """The same node with other children."""
        return self

    __add__, __radd__ = _operator("add"), _operator("add", True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", True)
    __lt__, __le__ = _operator("lt"), _operator("le")
    __gt__, __ge__ = _operator("gt"), _operator("ge")

    def __neg__(self) -> Expr:
        return apply("neg", self)


def run_time_values(index: MultiIndex) -> list[Value]:
    """The run-time values inside indices, each once, in the order in which they are written."""
    return list(dict.fromkeys(value for i in index for value in i.run_time_values()))


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A literal: Python bool, int, float or complex (NaN and infinity included)."""

    value: Any


@dataclass(frozen=True, eq=False)
class IndexValue(Expr):
    """An index used as a number (dtype i64)."""

    index: Index

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(v.expr for v in run_time_values((self.index,)))

    def with_children(self, children: Sequence[Expr]) -> Expr:
        values = run_time_values((self.index,))
        env = {v: _in_index(c) for v, c in zip(values, children, strict=True)}
        return IndexValue(self.dtype, self.index.substitute(env))


def _in_index(value: Expr) -> Index | Value:
    return value.index if isinstance(value, IndexValue) else Value(value)


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """An element of a buffer. With a ``guard``, memory is read only if the guard holds; otherwise the value
    is 0 (of the dtype)."""

    buffer: str
    index: MultiIndex
    guard: Expr | None = None

    @property
    def children(self) -> tuple[Expr, ...]:
        values = tuple(v.expr for v in run_time_values(self.index))
        return (*values, self.guard) if self.guard is not None else values

    def with_children(self, children: Sequence[Expr]) -> Expr:
        values = run_time_values(self.index)
        env = {v: _in_index(c) for v, c in zip(values, children) if c is not v.expr}
        index = tuple(i.substitute(env) for i in self.index) if env else self.index
        return Load(self.dtype, self.buffer, index, None if self.guard is None else children[-1])


@dataclass(frozen=True, eq=False)
class Apply(Expr):
    """A scalar function of the table, applied to arguments that already have its operand dtype."""

    function: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Apply(self.dtype, self.function, tuple(children))


@dataclass(frozen=True, eq=False)
class Cast(Expr):
    """A conversion like NumPy's ``astype``; from float to integer it truncates toward zero."""

    operand: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Cast(self.dtype, children[0])


@dataclass(frozen=True, eq=False)
class CheckedIndex(Expr):
    """A run-time integer as an index into an axis of size ``extent``. Negative indices count from the end.
    An index that is out of range is reported (the call raises IndexError) and gives -1. With a ``guard``,
    it is checked only if the guard holds; otherwise the value is -1."""

    operand: Expr
    extent: Index
    where: str
    guard: Expr | None = None

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,) if self.guard is None else (self.operand, self.guard)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return CheckedIndex(self.dtype, children[0], self.extent, self.where, *children[1:])


@dataclass(frozen=True, eq=False)
class Reduction(Expr):
    """Combines ``body`` over all values of ``variables``.

    ``kind`` is sum, prod, max, min (NaN wins, as in NumPy), any, all, argmax or argmin (the first
    position in row-major order of the variables, an i64; a NaN counts as the extreme)."""

    kind: str
    variables: tuple[Var, ...]
    body: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.body,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Reduction(self.dtype, self.kind, self.variables, children[0])


@dataclass(frozen=True, eq=False)
class Local(Expr):
    """A value that a kernel has computed before: a scalar variable, or an element of a local array."""

    name: str
    index: MultiIndex = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(v.expr for v in run_time_values(self.index))

    def with_children(self, children: Sequence[Expr]) -> Expr:
        env = {v: _in_index(c) for v, c in zip(run_time_values(self.index), children, strict=True)}
        return Local(self.dtype, self.name, tuple(i.substitute(env) for i in self.index))


def const(value: Number, dtype: DType) -> Const:
    """A literal of the given dtype, rounded to it. Raises LiteralError if it does not fit."""
    return Const(dtype, dtypes.literal(value, dtype))


def cast(value: Expr, dtype: DType) -> Expr:
    """The value converted to ``dtype``; unchanged if it already has that dtype, and folded if it is a
    literal. The conversion of a complex number to another dtype keeps the real part."""
    if value.dtype is dtype:
        return value
    if value.dtype.is_complex and not dtype.is_complex:
        return cast(apply("real", value), dtype)
    if isinstance(value, Const) and not (
        isinstance(value.value, float) and not dtype.is_float and not abs(value.value) < 2**31
    ):
        return Const(dtype, dtypes.literal(value.value, dtype, wraps=True))
    return Cast(dtype, value)


def rounded(value: Expr) -> Expr:
    """The value, rounded if it has a half type: these are computed in float32, so a result must be rounded
    before it is used. Other values are returned unchanged."""
    if value.dtype.compute is value.dtype or _is_rounded(value):
        return value
    return Cast(value.dtype, value)


def chooses(kind: str) -> bool:
    """Whether a reduction returns one of the numbers that it combines."""
    return FUNCTIONS[COMBINATIONS[kind].function].keeps


def _is_rounded(value: Expr) -> bool:
    """Whether a value of a half type is already rounded to it."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, (Load, Const, Cast)):
            continue
        if isinstance(node, Apply) and FUNCTIONS[node.function].keeps:
            stack += node.args[1:] if node.function == "where" else node.args
        elif isinstance(node, Reduction) and chooses(node.kind):
            stack.append(node.body)
        else:
            return False
    return True


def _operand(value: Any, dtype: DType) -> Expr:
    return cast(value, dtype) if isinstance(value, Expr) else const(value, dtype)


def binary(function: str, a: Any, b: Any) -> Expr:
    """A function of two operands promoted to their common dtype; Python scalars are weak."""
    weak = [o.dtype if isinstance(o, Expr) else o for o in (a, b)]
    dtype = dtypes.result_type(*weak)
    return apply(function, _operand(a, dtype), _operand(b, dtype))


def apply(function: str, *args: Expr) -> Expr:
    """A scalar function of operands that already have the right dtype."""
    known = FUNCTIONS[function]
    if known.of_bools and args[-1].dtype.is_bool:
        known = FUNCTIONS[known.of_bools]
    assert known.arity == len(args), function
    if len(args) == 1 and isinstance(args[0], Const) and args[0].dtype.is_complex and known.keeps:
        found = known.compute(args[0].dtype.numpy.type(args[0].value))
        return const(found.item(), known.gives(args[0].dtype))
    return Apply(known.gives(args[-1].dtype), known.name, args)


def remainder_of_neighbour(value: Expr) -> Expr | None:
    """``x % n`` without a division, for an index from ``-n`` to ``2*n - 1``, as of the neighbours of a place where the
    last element is beside the first; None for other expressions."""
    if not isinstance(value, Apply) or value.function != "mod" or value.dtype is not dtypes.int64:
        return None
    x, n = map(as_index, value.args)
    if x is None or n is None or not Index.of(0) < n or not (-n <= x and x < n * 2):
        return None
    behind = index_value(x) if x < n else where(less(x, n), index_value(x), index_value(x - n))
    return behind if Index.of(0) <= x else where(less(x, 0), index_value(x + n), behind)


def parts(value: Expr) -> tuple[Expr, Expr]:
    """The real and the imaginary part of a complex number."""
    return apply("real", value), apply("imag", value)


def where(condition: Expr, a: Any, b: Any) -> Expr:
    """``a`` where the condition holds, else ``b``; the operands are promoted."""
    weak = [o.dtype if isinstance(o, Expr) else o for o in (a, b)]
    dtype = dtypes.result_type(*weak)
    if isinstance(condition, Const):
        return _operand(a if condition.value else b, dtype)
    return apply("where", condition, _operand(a, dtype), _operand(b, dtype))


TRUE = Const(dtypes.bool_, True)
FALSE = Const(dtypes.bool_, False)


def index_value(index: Any) -> Expr:
    """An index as an i64 number."""
    index = Index.of(index)
    constant = index.constant
    return IndexValue(dtypes.int64, index) if constant is None else Const(dtypes.int64, constant)


def less(a: Any, b: Any) -> Expr:
    """``a < b`` on indices; a constant if it can be decided."""
    a, b = Index.of(a), Index.of(b)
    if a < b:
        return TRUE
    if b <= a:
        return FALSE
    return apply("lt", index_value(a), index_value(b))


def equals(a: Any, b: Any) -> Expr:
    """``a == b`` on indices; a constant if it can be decided."""
    a, b = Index.of(a), Index.of(b)
    if a == b:
        return TRUE
    if a < b or b < a:
        return FALSE
    return apply("eq", index_value(a), index_value(b))


def both(*conditions: Expr) -> Expr:
    """The conjunction of conditions, without those that always hold."""
    result: Expr = TRUE
    for condition in conditions:
        if isinstance(condition, Const):
            if not condition.value:
                return FALSE
        elif result is TRUE:
            result = condition
        else:
            result = apply("and", result, condition)
    return result


def within(index: Any, extent: Any) -> Expr:
    """``0 <= index < extent``, without the halves that always hold."""
    index = Index.of(index)
    low = TRUE if index.is_nonnegative() else apply("ge", index_value(index), index_value(0))
    return both(low, less(index, extent))


_fresh = itertools.count()


def fresh_var(extent: Any, stem: str = "r") -> Var:
    """A loop variable with a unique name. Kernels rename the variables before they are printed."""
    return Var(f"_{stem}{next(_fresh)}", Index.of(extent))


def reduce(kind: str, extents: Sequence[Any], body: Callable[..., Expr]) -> Expr:
    """A reduction over fresh variables with the given extents; ``body`` takes an index for each of them."""
    variables = tuple(fresh_var(e) for e in extents)
    inner = body(*(Index.of(v) for v in variables))
    dtype = dtypes.int64 if COMBINATIONS[kind].positions else inner.dtype
    return Reduction(dtype, kind, variables, inner)


class Reader(Protocol):
    """The interface through which a body reads an input: ``x[i, j]`` is an :class:`Expr`, and ``shape``
    consists of indices."""

    @property
    def shape(self) -> MultiIndex: ...
    @property
    def dtype(self) -> DType: ...
    def __getitem__(self, index: Any) -> Expr: ...


@dataclass(frozen=True)
class ConstReader:
    """A Python scalar read as a rank-0 input."""

    value: Any

    @property
    def shape(self) -> MultiIndex:
        return ()

    @property
    def dtype(self) -> DType:
        return dtypes.dtype(type(self.value))

    def __getitem__(self, index: Any) -> Expr:
        return const(self.value, self.dtype)

    __iter__ = None  # because of __getitem__, a loop over it would otherwise never end


def read_broadcast(x: Reader, i: MultiIndex) -> Expr:
    """The element of ``x`` at output index ``i`` under NumPy's broadcasting (axes aligned at the end)."""
    offset = len(i) - len(x.shape)
    return x[tuple(Index.of(0) if s.constant == 1 else i[offset + a] for a, s in enumerate(x.shape))]


def read_guarded(x: Reader, index: MultiIndex, guard: Expr, other: Any) -> Expr:
    """``x[index]`` if the guard holds, else ``other``, without a load."""
    fill = const(other, x.dtype) if not isinstance(other, Expr) else cast(other, x.dtype)
    if guard is TRUE:
        return x[index]
    if guard is FALSE:
        return fill
    inner = add_guard(x[index], guard)
    if isinstance(_uncast(inner), Load) and _is_zero(fill):
        return inner
    return where(guard, inner, fill)


def _is_zero(node: Expr) -> bool:
    """True for a literal 0 that is not -0.0."""
    if not isinstance(node, Const) or node.value != 0:
        return False
    value = complex(node.value)
    return math.copysign(1, value.real) > 0 and math.copysign(1, value.imag) > 0


def as_index(value: Expr) -> Index | None:
    """An i64 that is computed only from indices and numbers, as an index; None for other values."""
    if isinstance(value, IndexValue):
        return value.index
    if isinstance(value, Const) and type(value.value) is int:
        return Index.of(value.value)
    if not isinstance(value, Apply) or value.dtype is not dtypes.int64:
        return None
    symbol = FUNCTIONS[value.function].operator
    operands = [as_index(a) for a in value.args]
    return index_arithmetic(symbol, *operands) if len(operands) == 2 else None


def index_arithmetic(symbol: str | None, one: Index | None, other: Index | None) -> Index | None:
    """``one + other``, ``one - other`` or ``one * other`` as an index; None if it is not an index."""
    if one is None or other is None:
        return None
    if symbol == "+":
        return one + other
    if symbol == "-":
        return one - other
    is_scaled = one.constant is not None or other.constant is not None
    return one * other if symbol == "*" and is_scaled else None


def read_at_value(x: Reader, axis: int, before: MultiIndex, position: Expr, after: MultiIndex, where_text: str) -> Expr:
    """``x[before, position, after]`` with a run-time position on ``axis``, bounds-checked."""
    position = cast(position, dtypes.int64)
    known = as_index(position)
    if known is not None and Index.of(0) <= known and known < x.shape[axis]:
        return x[(*before, known, *after)]
    checked = CheckedIndex(dtypes.int64, position, x.shape[axis], where_text)
    guard = apply("ge", checked, const(0, dtypes.int64))
    return add_guard(x[(*before, Index.of(Value(checked)), *after)], guard, (*before, *after))


def add_guard(expr: Expr, guard: Expr, given: MultiIndex = ()) -> Expr:
    """Guard every load in an expression, including loads that compute an index, and check run-time indices
    only if the guard holds. If it does not hold, the value is not used. The indices ``given`` are computed and
    checked whether it holds or not. Run-time indices that the guard checks are checked even if the value, such as
    one of many equal ones, does not depend on them."""
    decided = (guard, *(value.expr for value in run_time_values(given)))
    done: dict[int, Expr] = {id(node): node for part in decided for node in walk(part)}
    checks = [id(node) for node in walk(guard) if isinstance(node, CheckedIndex)]

    def guarded(node: Expr) -> Expr:
        if isinstance(node, Load):
            if not node.index and node.guard is None:
                return node  # a single number is there in any case
            both_guards = guard if node.guard is None else both(guard, node.guard)
            return Load(node.dtype, node.buffer, node.index, both_guards)
        if isinstance(node, CheckedIndex) and _is_decided(node):
            both_guards = guard if node.guard is None else both(guard, node.guard)
            return CheckedIndex(node.dtype, node.operand, node.extent, node.where, both_guards)
        return node

    found = transform(expr, guarded, done)
    if checks and not {id(node) for node in walk(found)}.issuperset(checks):
        is_zero = isinstance(found, Const) and not found.value
        other = const(is_zero if found.dtype.is_bool else int(is_zero), found.dtype)
        found = where(guard, found, other)  # two different numbers, of which neither can stand for both
    return found


def _is_decided(index: CheckedIndex) -> bool:
    """True if an index must not be checked where the guard fails: if it is computed, or belongs to an axis
    that may be empty. An index that is only loaded is 0 there, which is in range."""
    return not isinstance(_uncast(index.operand), Load) or not Index.of(0) < index.extent


def _uncast(node: Expr) -> Expr:
    while isinstance(node, Cast):
        node = node.operand
    return node


def transform(expr: Expr, function: Callable[[Expr], Expr], done: dict[int, Expr] | None = None) -> Expr:
    """Rebuild an expression bottom-up with ``function`` applied to every node, including run-time values
    inside indices. Sharing is kept, also between calls with the same ``done`` (results by the id of the old
    node)."""
    done = {} if done is None else done
    stack: list[tuple[Expr, tuple[Expr, ...] | None]] = [(expr, None)]
    while stack:
        node, children = stack.pop()
        if id(node) in done:
            continue
        if children is None:
            children = node.children
            if pending := [(c, None) for c in children if id(c) not in done]:
                stack.append((node, children))
                stack += pending
                continue
        new = [done[id(c)] for c in children]
        if any(n is not c for n, c in zip(new, children, strict=True)):
            result = function(node.with_children(new))
        else:
            result = function(node)
        done[id(node)] = with_label(result, node.label)
    return done[id(expr)]


def with_label(expr: Expr, label: str) -> Expr:
    """Label an expression that has no label yet, in place (a label is not part of its meaning)."""
    if label and not expr.label and not isinstance(expr, (Load, Const, Local, IndexValue)):
        object.__setattr__(expr, "label", label)
    return expr


def walk(expr: Expr, closed: tuple[type[Expr], ...] = ()) -> Iterator[Expr]:
    """All nodes, children first, each once, including run-time values inside indices and guards. Nodes of
    the ``closed`` classes are not entered."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if not isinstance(node, closed):
                stack += [(c, False) for c in reversed(node.children)]


def replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with another one in place of a part of it (of this very object)."""
    return transform(expr, lambda node: new if node is old else node)


def substitute_index(expr: Expr, env: Mapping[Any, Any]) -> Expr:
    """Replace loop variables in all indices of an expression."""

    def replace(node: Expr) -> Expr:
        if isinstance(node, Load):
            return Load(node.dtype, node.buffer, tuple(i.substitute(env) for i in node.index), node.guard)
        if isinstance(node, IndexValue):
            return index_value(node.index.substitute(env))
        if isinstance(node, CheckedIndex):
            extent = node.extent.substitute(env)
            return CheckedIndex(node.dtype, node.operand, extent, node.where, node.guard)
        if isinstance(node, Local) and node.index:
            return Local(node.dtype, node.name, tuple(i.substitute(env) for i in node.index))
        if isinstance(node, Reduction):
            variables = tuple(Var(v.name, v.extent.substitute(env)) for v in node.variables)
            if variables != node.variables:
                renamed = dict(zip(node.variables, variables, strict=True))
                body = substitute_index(node.body, renamed)
                return Reduction(node.dtype, node.kind, variables, body)
        return node

    return transform(expr, replace)


def decided(expr: Expr) -> Expr:
    """The expression without conditions on indices that hold always or never (for instance because the range
    of a loop was cut), and without checks of indices that are in range."""

    def decide(node: Expr) -> Expr:
        if isinstance(node, Apply):
            if node.function in ("lt", "eq") and all(map(is_index, node.args)):
                return (less if node.function == "lt" else equals)(*map(index_of, node.args))
            if node.function == "ge" and all(map(is_index, node.args)):
                below = less(*map(index_of, node.args))
                return const(not below.value, below.dtype) if isinstance(below, Const) else node
            if node.function == "and" and node.dtype.is_bool:  # on integers it is bitwise
                return both(*node.args)
            if node.function == "where" and isinstance(node.args[0], Const):
                return node.args[1] if node.args[0].value else node.args[2]
            if node.function == "where" and _is_same_number(*node.args[1:]):
                return node.args[1]
        if isinstance(node, (Load, CheckedIndex)) and isinstance(node.guard, Const):
            if not node.guard.value:
                return const(0 if isinstance(node, Load) else -1, node.dtype)
            node = replace(node, guard=None)
        if isinstance(node, CheckedIndex):
            known = as_index(node.operand)
            if known is not None and Index.of(0) <= known and known < node.extent:
                return index_value(known)
        return node

    return transform(expr, decide)


def _is_same_number(one: Expr, other: Expr) -> bool:
    """Whether both are literals with the same type and bits."""
    return isinstance(one, Const) and isinstance(other, Const) and repr(one) == repr(other)


def is_index(value: Expr) -> bool:
    """Whether an operand of a comparison is an index, or a number that can serve as one."""
    is_number = isinstance(value, Const) and value.dtype is dtypes.int64
    return is_number or isinstance(value, IndexValue)


def index_of(value: Expr) -> Index:
    """The index from which :func:`index_value` made a number."""
    assert isinstance(value, (IndexValue, Const))
    return Index.of(value.index if isinstance(value, IndexValue) else int(value.value))


def conjuncts(condition: Expr | None) -> list[Expr]:
    """The conditions whose conjunction this condition is."""
    if condition is None:
        return []
    if isinstance(condition, Apply) and condition.function == "and":
        return [c for a in condition.args for c in conjuncts(a)]
    return [condition]


def not_negative(condition: Expr, number: Callable[[Expr, Index], Index | None] | None = None) -> Index | None:
    """An index that is not negative exactly if the condition holds; None if there is none. ``number`` finds
    the index for a number that is computed."""
    relation = FUNCTIONS[condition.function].operator if isinstance(condition, Apply) else None
    if not isinstance(condition, Apply) or relation not in ("<", "<=", ">", ">="):
        return None
    known = [index_of(side) if is_index(side) else None for side in condition.args]
    left, right = known
    if number is not None and left is None and right is not None:
        left = number(condition.args[0], right)
    elif number is not None and right is None and left is not None:
        right = number(condition.args[1], left)
    if left is None or right is None:
        return None
    distance = left - right if relation.startswith(">") else right - left
    return distance if relation.endswith("=") else distance - 1


def is_zero_where_equal(condition: Expr) -> Index | None:
    """An index that is 0 exactly if the condition, an equality of two indices, holds; None for others."""
    if not isinstance(condition, Apply) or condition.function != "eq" or not all(map(is_index, condition.args)):
        return None
    one, other = map(index_of, condition.args)
    return one - other


def is_same(one: Expr, other: Expr, env: Mapping[Any, Any]) -> bool:
    """Whether an expression is provably another one with loop variables replaced. Reductions count as the same only
    if they are the same object."""
    if type(one) is not type(other) or one.dtype is not other.dtype:
        return False
    if one is other or isinstance(one, Reduction):
        return one is other and not free_variables(one) & env.keys()
    guard: Any = getattr(one, "guard", None)
    same: Any = getattr(other, "guard", None)
    if (guard is None) != (same is None) or not (guard is None or is_same(guard, same, env)):
        return False
    if isinstance(one, CheckedIndex):
        assert isinstance(other, CheckedIndex)
        if one.where != other.where or one.extent != other.extent.substitute(env):
            return False
    if isinstance(one, (Load, Local)):
        assert isinstance(other, (Load, Local))
        name = "buffer" if isinstance(one, Load) else "name"
        values = run_time_values(one.index), run_time_values(other.index)
        if getattr(one, name) != getattr(other, name) or len(values[0]) != len(values[1]):
            return False
        if not all(is_same(a.expr, b.expr, env) for a, b in zip(*values)):
            return False
        moved = tuple(i.substitute({**env, **{b: Index.of(a) for a, b in zip(*values)}}) for i in other.index)
        return one.index == moved
    if isinstance(one, IndexValue):
        assert isinstance(other, IndexValue)
        return one.index == other.index.substitute(env)
    own = [(getattr(n, "function", ""), getattr(n, "value", None), len(n.children)) for n in (one, other)]
    return own[0] == own[1] and all(is_same(a, b, env) for a, b in zip(one.children, other.children))


def free_variables(expr: Expr, memo: dict[int, frozenset[Var]] | None = None) -> frozenset[Var]:
    """The loop variables on which an expression depends and over which it does not reduce itself."""
    memo = {} if memo is None else memo
    for node in walk(expr):
        if id(node) in memo:
            continue
        found: frozenset[Var] = frozenset().union(*(memo[id(c)] for c in node.children))
        if isinstance(node, (Load, Local)):
            found = found.union(*(i.variables() for i in node.index))
        elif isinstance(node, IndexValue):
            found |= node.index.variables()
        elif isinstance(node, CheckedIndex):
            found |= node.extent.variables()
        elif isinstance(node, Reduction):
            found = found.difference(node.variables)
            found = found.union(*(v.extent.variables() for v in node.variables))
        memo[id(node)] = found
    return memo[id(expr)]
