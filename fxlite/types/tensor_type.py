"""Tensor types: the shape and dtype of a value, written ``f32[B,T,4*D]``.

In: type text, arrays. Out: :class:`TensorType`, which prints as the text from which it is parsed.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import DTypeError, ParseError, ShapeError, expect
from fxlite.base.on_demand import is_expression, sympy
from fxlite.base.outside_text import bounded, syntax_tree
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType, plain_array, require_plain
from fxlite.types.shapes import Dim, Shape, symbols


class TensorType:
    """The shape (ints or sympy expressions in named dims) and dtype of a value. Types are immutable, and
    equal types are the same object, so that comparing and hashing them costs nothing. A dtype may also be
    given by its name or as NumPy's: ``"f32"``, ``np.float32``.

    Raises ShapeError for a shape that is no tuple, and DTypeError for an unknown dtype."""

    __slots__ = ("dtype", "has_elements", "is_concrete", "shape")
    _known: ClassVar[dict[tuple[Shape, DType], TensorType]] = {}

    shape: Shape
    dtype: DType
    #: True if no dim is named.
    is_concrete: bool
    #: True if no dim is named, and none is 0.
    has_elements: bool

    def __new__(cls, shape: Shape, dtype: DType | Any) -> TensorType:
        try:
            shape = tuple(shape)
            known = cls._known.get((shape, dtype))
        except TypeError:
            raise ShapeError(f"a shape is a tuple of sizes, not {type(shape).__name__}") from None
        if known is None and type(dtype) is not DType:
            return cls(shape, dtypes.dtype(dtype))
        if known is None:
            known = object.__new__(cls)
            object.__setattr__(known, "shape", shape)
            object.__setattr__(known, "dtype", dtype)
            is_concrete = all(type(dim) is int for dim in shape)
            object.__setattr__(known, "is_concrete", is_concrete)
            object.__setattr__(known, "has_elements", is_concrete and 0 not in shape)
            cls._known[shape, dtype] = known
        return known

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("a TensorType is immutable; use with_shape or with_dtype")

    def __reduce__(self) -> tuple[Any, ...]:
        return (TensorType, (self.shape, self.dtype))

    def __copy__(self) -> TensorType:
        return self

    def __deepcopy__(self, memo: Any) -> TensorType:
        return self

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return shapes.product(self.shape)

    @property
    def nbytes(self) -> Dim:
        """The number of bytes in dense storage."""
        return shapes.normalize(self.size * self.dtype.itemsize)

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)

    def substitute(self, env: Mapping[str, Dim]) -> TensorType:
        """The type with named dims replaced by values or other dims."""
        return TensorType(shapes.substitute(self.shape, env), self.dtype)

    def __str__(self) -> str:
        text = ",".join(shapes.to_text(d).replace(" ", "") for d in self.shape)
        return f"{self.dtype.name}[{text}]" if text else self.dtype.name

    __repr__ = __str__


_TYPE = re.compile(r"^\s*(\w+)\s*(?:\[(.*)\])?\s*$", re.DOTALL)


#: The most axes that NumPy's arrays may have, and the longest text, with room for a long dim on each axis.
_MOST_AXES, _LONGEST = 64, 20_000


@checked
@functools.lru_cache(maxsize=4096)
@bounded(ParseError, "a type")
def parse_type(text: str) -> TensorType:
    """The TensorType for a text such as ``"f32[B,3,224,224]"``. ``f32`` and ``f32[]`` are scalars.

    Raises ParseError for text that is not a type, an unknown dtype or a negative size."""
    expect(text, str, "the text of a type", "write e.g. 'f32[B,3,224,224]'")
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    match = _TYPE.match(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ParseError(f"{shown!r} is not a type; write e.g. f32[B,3,224,224]")
    try:
        dtype = dtypes.dtype(match[1])
    except DTypeError as error:
        raise ParseError(f"in the type {shown!r}: {error}") from None
    body = (match[2] or "").strip()
    shape: list[Dim] = []
    if body:
        try:
            tree = syntax_tree(f"({body},)" if not body.endswith(",") else f"({body})")
        except SyntaxError:
            raise ParseError(f"{shown!r} is not a type; write e.g. f32[B,3,4*D]") from None
        if not isinstance(tree.body, ast.Tuple):
            raise ParseError(f"{shown!r} is not a type; write e.g. f32[B,3,4*D]")
        if len(tree.body.elts) > _MOST_AXES:
            raise ParseError(f"the type {shown!r} has more than {_MOST_AXES} axes")
        shape = [shapes.from_ast(element, text) for element in tree.body.elts]
    for dim in shape:
        if type(dim) is int and dim < 0:
            raise ParseError(f"the type {shown!r} has a negative size {dim}")
    return TensorType(tuple(shape), dtype)


def array_type(dtype: DType, shape: Any) -> TensorType:
    """``dtype[shape]``; see :meth:`DType.__getitem__`."""
    return TensorType(checked_shape(shape if isinstance(shape, tuple) else (shape,)), dtype)


def checked_shape(sizes: tuple[Any, ...]) -> Shape:
    """Sizes in normal form. Raises ShapeError for a negative one and for a value that is not a size."""
    shape = tuple(map(shapes.normalize, sizes))
    for dim in shape:
        if type(dim) is int and dim < 0:
            raise ShapeError(f"a shape has a negative size {dim}")
    return shape


def type_of(value: Any) -> TensorType:
    """The TensorType of an array, a Python scalar (f64, i64 or bool), type text or a TensorType."""
    if isinstance(value, TensorType):
        return value
    if isinstance(value, str):
        return parse_type(value)
    if isinstance(value, np.ndarray):
        require_plain(value)
        found = dtypes.BY_NUMPY.get(value.dtype)
        if found is not None:
            return TensorType(value.shape, found)
    array = plain_array(value)
    return TensorType(array.shape, dtypes.dtype(array.dtype))


def bind_dims(pairs: list[tuple[str, TensorType, tuple[int, ...]]]) -> dict[str, int]:
    """The values of the named dims, from the actual shapes of the inputs.

    ``pairs`` holds (input name, declared type, actual shape). The first axis that is linear in a single
    unknown dim determines it; every other axis is then checked. Raises ShapeError, which names the input,
    the axis, and the expected and actual size, also for a value that the facts of a named dim exclude."""
    env: dict[str, int] = {}
    bound_by: dict[str, str] = {}
    pending: list[tuple[str, int, Dim, int, TensorType]] = []
    for name, declared, actual in pairs:
        if len(actual) != declared.rank:
            raise ShapeError(
                f"{name}: expected {declared} (rank {declared.rank}), got shape {actual} (rank {len(actual)})"
            )
        for axis, (dim, size) in enumerate(zip(declared.shape, actual, strict=True)):
            if type(dim) is int:
                if dim != size:
                    raise ShapeError(
                        f"{name}: expected {declared}, got shape {actual}: axis {axis} must be {dim}, not {size}"
                    )
            elif dim.is_Symbol and dim.name not in env:
                env[dim.name] = int(size)
                _check_facts(dim, int(size), f"{name}: axis {axis} is {size}, but")
                bound_by[dim.name] = f"{name}.shape[{axis}]"
            else:
                pending.append((name, axis, dim, int(size), declared))
    for name, axis, dim, size, declared in pending:
        value = shapes.substitute(dim, env)
        if type(value) is not int:
            value = _solve(value, size, env, name, axis, declared, bound_by)
        if value != size:
            origin = ", ".join(f"{n} = {env[n]} from {bound_by[n]}" for n in sorted(shapes.names(dim)) if n in bound_by)
            raise ShapeError(
                f"{name}: axis {axis} of {declared} must be {dim} = {value}"
                f"{f' ({origin})' if origin else ''}, not {size}"
            )
    return env


def _check_facts(dim: Any, value: int, start: str) -> None:
    if isinstance(dim, symbols.FactSymbol):
        required = dim.facts.broken_by(value)
        if required is not None:
            raise ShapeError(f"{start} {dim} must be {required} (declared by fx.dims)")


def _solve(
    value: Any, size: int, env: dict[str, int], name: str, axis: int, declared: TensorType, bound_by: dict[str, str]
) -> int:
    """Solve a*X + b == size for the only unknown named dim in ``value``, and add it to ``env``."""
    unknown = sorted(value.free_symbols, key=str)
    if len(unknown) == 1 and is_expression(value) and value.is_polynomial(unknown[0]):
        polynomial = sympy.Poly(value, unknown[0])
        if polynomial.degree() == 1:
            a, b = (int(c) for c in polynomial.all_coeffs())
            if (size - b) % a or (size - b) // a < 0:
                raise ShapeError(f"{name}: axis {axis} of {declared} is {value}; no {unknown[0]} gives {size}")
            env[unknown[0].name] = found = (size - b) // a
            start = f"{name}: axis {axis} of {declared} is {size}, so {unknown[0]} is {found}, but"
            _check_facts(unknown[0], found, start)
            bound_by[unknown[0].name] = f"{name}.shape[{axis}]"
            return size
    raise ShapeError(
        f"{name}: cannot find {', '.join(map(str, unknown))} from axis {axis} of {declared}; "
        f"give an input that has the bare name as an axis"
    )
