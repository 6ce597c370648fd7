"""The entry point of a compiled model, and the checks before it is called.

In comes a description of the arguments (`Entry`, made by an emitter): names, dtypes, and shapes whose
axes are integers or integer expressions in named dims. Out come the facts that the generated wrapper
and the loader need: which axis binds which dim, which size every axis must then have, and
`bind_arguments`, which turns the arguments of one call into C-contiguous arrays and values of dims, or
raises an error that tells the user what to change.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from fxlite.base.errors import MemoryLimitError, ParseError, number_of
from fxlite.base.outside_text import syntax_tree
from fxlite.codegen.runtime.sizes import ValueSize, count_values, memory_limit
from fxlite.types.dtypes import BY_NAME, dtype, require_plain

Array = np.ndarray[Any, np.dtype[Any]]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
# The names of functions in evaluated expressions: a dim may be called min.
_FUNCTIONS = {"min()": min, "max()": max}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


@dataclass(frozen=True)
class DimText:
    """An integer expression in named dims, such as `"B"`, `"2*T + 1"` or `"min(T, 128) // 4"`.

    It consists of integers, names, `+ - * // %`, `min` and `max`. Divisors must be positive: constant
    ones are checked here, others when called. Raises `ValueError` for any other text.
    """

    python: str

    def __post_init__(self) -> None:
        for node in ast.walk(self._tree):
            _check_node(node, self.python)

    def __str__(self) -> str:
        return self.python

    @cached_property
    def _tree(self) -> ast.expr:
        try:
            return syntax_tree(self.python.strip()).body  # type: ignore[no-any-return]
        except (SyntaxError, ParseError):
            raise ValueError(f"dim {self.python!r} is not an expression") from None

    @cached_property
    def _code(self) -> CodeType:
        tree = ast.parse(self.python.strip(), mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                node.func.id += "()"
        return compile(tree, self.python, "eval")

    @cached_property
    def names(self) -> frozenset[str]:
        """The named dims in the expression."""
        nodes = [*ast.walk(self._tree)]
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in called)

    @cached_property
    def divisors(self) -> tuple[DimText, ...]:
        """The divisors that are not constants, inner ones first; they must be positive."""
        found = [
            DimText(ast.unparse(node.right))
            for node in ast.walk(self._tree)
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, (ast.FloorDiv, ast.Mod))
            and not isinstance(node.right, ast.Constant)
        ]
        return tuple(reversed(found))

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """The value for these dims. Raises `ValueError` when a divisor is not positive."""
        if self.python in dims:
            return dims[self.python]
        for divisor in self.divisors:
            if divisor.evaluate(dims) <= 0:
                raise ValueError(f"dim {self.python}: the divisor {divisor} is not positive")
        return int(eval(self._code, {"__builtins__": {}, **_FUNCTIONS}, dict(dims)))

    def linear(self) -> tuple[str, int, int] | None:
        """`(name, a, b)` when the expression is `a*name + b` with one name and `a != 0`."""
        terms = _linear_terms(self._tree)
        if terms is None:
            return None
        names = [name for name, factor in terms.items() if name and factor]
        return (names[0], terms[names[0]], terms.get("", 0)) if len(names) == 1 else None

    def c(self, prefix: str = "") -> str:
        """The expression as C over `int64_t` variables named `prefix + dim`; it calls functions of
        `c/tiles/helpers.h`."""
        return _c_text(self._tree, lambda dim: c_variable(dim, prefix), "fx_floor_{}", "fx_{}")

    def real_c(self, variable: Callable[[str], str] = str) -> str:
        """The expression as C that computes in double, which does not overflow, from `int64_t`
        variables; it calls `fx_size_div`, `fx_size_mod`, `fmin` and `fmax`."""
        return _c_text(self._tree, lambda dim: f"(double){variable(dim)}", "fx_size_{}", "f{}")


Dim = int | DimText


def _check_node(node: ast.AST, text: str) -> None:
    match node:
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod(), right=ast.Constant(value=0)):
            raise ValueError(f"dim {text!r} divides by zero")
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            return
        case ast.Constant(value=value) if type(value) is int:
            return
        case ast.Name():
            return
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_], keywords=[]):
            return
        case ast.UnaryOp(op=ast.USub()) | ast.operator() | ast.unaryop() | ast.expr_context():
            return
    raise ValueError(f"dim {text!r}: only integers, names, + - * // %, min and max are understood")


def _linear_terms(node: ast.expr) -> dict[str, int] | None:
    """Factor by name (the constant under `""`), or None when the expression is not linear."""
    match node:
        case ast.Constant(value=int(value)):
            return {"": value}
        case ast.Name(id=name):
            return {name: 1}
        case ast.UnaryOp(operand=operand):
            terms = _linear_terms(operand)
            return terms and {name: -factor for name, factor in terms.items()}
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            first, second = _linear_terms(left), _linear_terms(right)
            if first is None or second is None:
                return None
            if isinstance(node.op, ast.Mult):
                if set(first) != {""}:
                    first, second = second, first
                if set(first) != {""}:
                    return None
                return {name: first[""] * factor for name, factor in second.items()}
            sign = 1 if isinstance(node.op, ast.Add) else -1
            names = first.keys() | second.keys()
            return {name: first.get(name, 0) + sign * second.get(name, 0) for name in names}
    return None


def c_variable(dim: str, prefix: str) -> str:
    """The C variable of a dim, such as ``dim_B`` for the prefix ``dim_``; non-ASCII letters are
    written as their numbers (``dimu_fc``)."""
    if dim.isascii():
        return prefix + dim
    return f"{prefix.rstrip('_')}u_{'_'.join(f'{ord(c):x}' for c in dim)}"


def _c_text(node: ast.expr, variable: Callable[[str], str], division: str, extremum: str) -> str:
    """C text; the names of its functions for "div" and "mod", and for "min" and "max", follow two formats."""

    def text(inner: ast.expr) -> str:
        return _c_text(inner, variable, division, extremum)

    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.Name(id=name):
            return variable(name)
        case ast.UnaryOp(operand=operand):
            return f"(-{text(operand)})"
        case ast.Call(func=ast.Name(id=name), args=args):
            result = text(args[0])
            for arg in args[1:]:
                result = f"{extremum.format(name)}({result}, {text(arg)})"
            return result
        case ast.BinOp(left=left, op=op, right=right):
            first, second = text(left), text(right)
            if isinstance(op, (ast.FloorDiv, ast.Mod)):
                kind = "div" if isinstance(op, ast.FloorDiv) else "mod"
                return f"{division.format(kind)}({first}, {second})"
            return f"({first} {_OPERATORS[type(op)]} {second})"
    raise AssertionError(node)


@dataclass(frozen=True)
class ArgSpec:
    """One input or output: its name, the name of its dtype, and its shape."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        if self.dtype not in BY_NAME:
            raise ValueError(f"argument {self.name!r}: no dtype {self.dtype!r}")

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape else self.dtype

    @property
    def dims(self) -> tuple[DimText, ...]:
        """The axes that are expressions, as opposed to plain integers."""
        return tuple(dim for dim in self.shape if isinstance(dim, DimText))


@dataclass(frozen=True)
class Binding:
    """`dim` is solved from `inputs[argument].shape[axis] == scale*dim + offset`."""

    dim: str
    argument: int
    axis: int
    scale: int
    offset: int


@dataclass(frozen=True)
class Condition:
    """`left relation right` must hold for the dims of a call; `reason` explains this to the user."""

    left: Dim
    relation: str
    right: Dim
    reason: str

    @property
    def names(self) -> frozenset[str]:
        """The named dims that the condition mentions."""
        sides = (side for side in (self.left, self.right) if isinstance(side, DimText))
        return frozenset[str]().union(*(side.names for side in sides))

    def holds(self, dims: Mapping[str, int]) -> bool:
        """Whether it holds. Raises `ValueError` when a divisor is not positive."""
        left, right = (d if isinstance(d, int) else d.evaluate(dims) for d in (self.left, self.right))
        return _RELATIONS[self.relation](left, right)

    def c(self, prefix: str) -> str:
        """The condition as C over `int64_t` variables named `prefix + dim`."""
        sides = (str(d) if isinstance(d, int) else d.c(prefix) for d in (self.left, self.right))
        return f" {self.relation} ".join(sides)


_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Entry:
    """The entry point of a compiled model: `NAME_run` and the arguments that it accepts.

    `locations[where]` is the text for the place that `fx_error.where` names; `conditions` are what the
    dims must fulfil. Raises `ValueError` if a dim cannot be solved from the input shapes, or if names
    clash.
    """

    name: str
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    dims: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    single_output: bool = True
    conditions: tuple[Condition, ...] = ()
    note: str = ""  # ends the message for a wrong axis
    values: tuple[ValueSize, ...] = ()  # values whose sizes are checked before a call

    def __post_init__(self) -> None:
        if not _IDENTIFIER.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot be a name in C")
        if len({spec.name for spec in self.inputs}) != len(self.inputs):
            raise ValueError(f"{self.name}: two inputs have the same name")
        if len(set(self.dims)) != len(self.dims):
            raise ValueError(f"{self.name}: two dims have the same name")
        if self.single_output and len(self.outputs) != 1:
            raise ValueError(f"{self.name}: single_output with {len(self.outputs)} outputs")
        for spec in (*self.inputs, *self.outputs):
            for dim in spec.dims:
                if unknown := dim.names - set(self.dims):
                    raise ValueError(f"{spec.name}: {spec} uses unknown dims {sorted(unknown)}")
        _ = self.bindings

    def __str__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(map(str, self.outputs))
        return f"{self.name}({inputs}) -> {outputs if self.single_output else f'({outputs})'}"

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """How each dim is solved: from the first axis that is the bare dim, or else from a linear one."""
        found: dict[str, Binding] = {}
        for argument, spec in enumerate(self.inputs):
            for axis, dim in enumerate(spec.shape):
                form = dim.linear() if isinstance(dim, DimText) else None
                if form is None:
                    continue
                name, scale, offset = form
                bare = (scale, offset) == (1, 0)
                known = found.get(name)
                if known is None or (bare and (known.scale, known.offset) != (1, 0)):
                    found[name] = Binding(name, argument, axis, scale, offset)
        if missing := [name for name in self.dims if name not in found]:
            raise ValueError(
                f"{self.name}: nothing binds {', '.join(missing)}: no input axis is the bare dim or a*dim + b in {self}"
            )
        return tuple(found[name] for name in self.dims)

    def output_shape(self, spec: ArgSpec, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an output for these dims. Raises `ValueError` when an axis is negative."""
        shape = tuple(d if isinstance(d, int) else d.evaluate(dims) for d in spec.shape)
        if any(size < 0 for size in shape):
            values = ", ".join(f"{name} = {value}" for name, value in dims.items())
            raise ValueError(f"{self.name}(): output {spec.name!r}, {spec}, is {shape} for {values}")
        return shape


class HollowCall(MemoryLimitError):
    """A value of the call has no elements, but its other axes are so large that kernels would loop over
    them for hours; NumPy runs such a call immediately. ``arrays`` are the checked inputs, in order;
    ``dims`` and ``most`` are the sizes of the named dims and the memory limit of the call."""

    def __init__(self, message: str, arrays: Sequence[Array], dims: Mapping[str, int], most: int) -> None:
        super().__init__(message)
        self.arrays, self.dims, self.most = tuple(arrays), dict(dims), most


def bind_arguments(
    entry: Entry, args: Sequence[Any], kwargs: Mapping[str, Any], most: int | None = None
) -> tuple[list[Array], dict[str, int]]:
    """The inputs of one call as C-contiguous arrays in order, and the values of the dims. `most` is the
    memory limit in bytes. Strided and unaligned arrays are copied. Raises what
    :func:`check_arguments` raises.
    """
    most = memory_limit() if most is None else most
    arrays, dims = check_arguments(entry, args, kwargs, most)
    return [_ready(entry, spec, a, most) for spec, a in zip(entry.inputs, arrays)], dims


def check_arguments(
    entry: Entry, args: Sequence[Any], kwargs: Mapping[str, Any], most: int | None = None
) -> tuple[list[Array], dict[str, int]]:
    """The inputs of one call as they are, in order, and the values of the dims.

    Raises `TypeError` (missing, unexpected or repeated argument, not an array, wrong dtype),
    `ValueError` (rank, an axis), `MemoryLimitError` (a value whose size overflows or exceeds the limit)
    and `HollowCall`.
    """
    most = memory_limit() if most is None else most
    values = _match_arguments(entry, args, kwargs)
    arrays = [_checked_array(entry, spec, value) for spec, value in zip(entry.inputs, values)]
    dims: dict[str, int] = {}
    for binding in entry.bindings:
        spec, size = entry.inputs[binding.argument], arrays[binding.argument].shape[binding.axis]
        value, rest = divmod(size - binding.offset, binding.scale)
        if rest or value < 0:
            text = f"{spec.shape[binding.axis]} for some {binding.dim} >= 0"
            raise ValueError(_axis_message(entry, spec, binding.axis, text, size))
        dims[binding.dim] = value
    for spec, array in zip(entry.inputs, arrays):
        for axis, (dim, size) in enumerate(zip(spec.shape, array.shape)):
            expected = dim if isinstance(dim, int) else dim.evaluate(dims)
            if size != expected:
                text = _expected_text(entry, dim, expected, dims)
                raise ValueError(_axis_message(entry, spec, axis, text, size))
    for condition in entry.conditions:
        if not condition.holds(dims):
            sources = _sources(entry, condition.names, dims)
            raise ValueError(f"{entry.name}(): {condition.reason}; got {sources}")
    title, sources = f"{entry.name}()", _sources(entry, dims, dims)
    if hollow := count_values(entry.values, dims, most, title, sources):
        problem = f"{title}: {hollow} has no elements, but axes that are looped over for hours"
        raise HollowCall(f"{problem} ({sources})", arrays, dims, most)
    return arrays, dims


def _match_arguments(entry: Entry, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    names = [spec.name for spec in entry.inputs]
    listed = ", ".join(names)
    if len(args) > len(names):
        raise TypeError(
            f"{entry.name}() takes {number_of(len(names), 'argument')} ({listed}) but {len(args)} were given"
        )
    bound = dict(zip(names, args))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(f"{entry.name}() got an unexpected argument {name!r}; its arguments are {listed}")
        if name in bound:
            raise TypeError(f"{entry.name}() got two values for argument {name!r}")
        bound[name] = value
    if missing := [f"{s.name!r} ({s})" for s in entry.inputs if s.name not in bound]:
        raise TypeError(f"{entry.name}() is missing argument {', '.join(missing)}")
    return [bound[name] for name in names]


def _checked_array(entry: Entry, spec: ArgSpec, value: Any) -> Array:
    """The argument as an array of the right dtype and rank; its axes are still unchecked."""
    expected = dtype(spec.dtype).numpy
    if not isinstance(value, (np.ndarray, np.generic)):
        advice = f"np.asarray({spec.name}, dtype={_python_name(spec)})"
        raise TypeError(f"{_start(entry, spec)}, got {type(value).__name__}; pass {advice}")
    require_plain(value, f"{entry.name}(): {spec.name}")
    array = np.asarray(value)
    # By kind and size, since `long` and `long long` are two NumPy dtypes of one layout.
    same = (array.dtype.kind, array.dtype.itemsize) == (expected.kind, expected.itemsize)
    if not same or (expected.kind == "V" and array.dtype != expected):
        advice = f"{spec.name}.astype({_python_name(spec)})"
        raise TypeError(f"{_start(entry, spec)}, got {_actual(array)}; pass {advice}")
    if not array.dtype.isnative:
        advice = f"{spec.name}.astype({spec.name}.dtype.newbyteorder('='))"
        raise TypeError(f"{_start(entry, spec)}, got {_actual(array)} in foreign byte order; pass {advice}")
    if array.ndim != len(spec.shape):
        rank = len(spec.shape)
        raise ValueError(f"{_start(entry, spec)}: {rank} dimensions, got {_actual(array)}")
    return array


def _start(entry: Entry, spec: ArgSpec) -> str:
    return f"{entry.name}(): argument {spec.name!r} must be {spec}"


def _actual(array: Array) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"


def _python_name(spec: ArgSpec) -> str:
    name = dtype(spec.dtype).long_name
    return name if name == "bool" else f"{'ml_dtypes' if name == 'bfloat16' else 'np'}.{name}"


def _ready(entry: Entry, spec: ArgSpec, array: Array, most: int) -> Array:
    """The array C-contiguous and aligned, with the dtype in which compiled code stores it."""
    if not (array.flags.c_contiguous and array.flags.aligned):
        if array.nbytes > most:
            raise MemoryLimitError(
                f"{_start(entry, spec)} in C order; a copy of {_actual(array)} takes "
                f"{array.nbytes:,} bytes, and may take {most:,} (memory_limit=BYTES of fx.compile, "
                "or FXLITE_MEMORY_LIMIT=GIGABYTES)"
            )
        array = np.array(array, order="C")
    kind = dtype(spec.dtype)
    return array if kind.stored is kind.numpy else array.view(kind.stored)


def _axis_message(entry: Entry, spec: ArgSpec, axis: int, expected: str, size: int) -> str:
    note = f" ({entry.note})" if entry.note else ""
    return f"{_start(entry, spec)}: axis {axis} must be {expected}, got {size}{note}"


def _expected_text(entry: Entry, dim: Dim, value: int, dims: Mapping[str, int]) -> str:
    if isinstance(dim, int):
        return str(dim)
    sources = _sources(entry, dim.names, dims)
    if dim.python in dims:
        return sources
    return f"{dim} = {value}" + (f" ({sources})" if sources else "")


def _sources(entry: Entry, names: Collection[str], dims: Mapping[str, int]) -> str:
    """`T = 7 from axis 1 of 'x'` for each of the dims."""
    return "; ".join(
        f"{b.dim} = {dims[b.dim]} from axis {b.axis} of {entry.inputs[b.argument].name!r}"
        for b in entry.bindings
        if b.dim in names
    )
