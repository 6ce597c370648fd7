"""Nested values that go into a body and come out of it, taken apart into arrays and numbers; and
the types that they keep.

In: the values of a program. Out: leaves, and the kind of each: a type, or bool, int or float of
Python, which give way to the types beside them as they do in NumPy (NEP 50).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Node
from fxlite.graph.pytree import LEAF, Structure
from fxlite.ops.op import lookup
from fxlite.tracing.python_numbers import DTYPES, PythonNumber, kind_of_number
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

_ORDER = (bool, int, float)


@dataclass(frozen=True)
class Kind:
    """What a leaf is: of a type, or a number of Python."""

    type: TensorType
    number: Any = None

    def __str__(self) -> str:
        return f"{self.number.__name__} of Python" if self.number else str(self.type)


def number_kind(number: Any) -> Kind:
    """The kind of Python's bool, int or float."""
    return Kind(TensorType((), DTYPES[number]), number)


def leaves_of(value: Any, path: str) -> tuple[list[Any], list[str], Structure]:
    """The arrays and numbers in a nested value, where each stands, and the form of the whole.
    Raises TypeError for what is neither."""
    found: list[Any] = []
    paths: list[str] = []

    def leaf(value: Any, path: str, keys: tuple[Any, ...]) -> Structure:
        if value is None or isinstance(value, str):
            return Structure("constant", value=value)
        kinds = (np.ndarray, np.generic, bool, int, float, NamedDim)
        if not is_traced(value) and not isinstance(value, kinds):
            raise TypeError(f"{path} is a {type(value).__name__}, not an array or a number")
        found.append(value)
        paths.append(path)
        return LEAF

    return found, paths, pytree.structure_of(value, path, leaf)


def kind_of(tracer: Tracer, value: Any, path: str) -> Kind:
    """The kind of a leaf. Raises TraceError for one without a type."""
    number = int if isinstance(value, NamedDim) else kind_of_number(value)
    if number is not None:
        return number_kind(number)
    if is_traced(value):
        return Kind(value.type)
    return Kind(type_of(value))


def joined(one: Kind, other: Kind) -> Kind | None:
    """The kind that values of both kinds can have; None where there is none. A number of Python
    takes another type where that has room for it."""
    if one == other:
        return one
    if one.number and other.number:
        return number_kind(max(one.number, other.number, key=_ORDER.index))
    if one.number is None and other.number is None:
        return None
    strong, weak = (other, one) if one.number else (one, other)
    assert weak.number is not None
    try:
        fits = dtypes.result_type(strong.type.dtype, weak.number(1)) is strong.type.dtype
    except DTypeError:
        fits = False
    return strong if fits and not strong.type.rank else None


def as_node(tracer: Tracer, value: Any, kind: Kind) -> Node:
    """A leaf as a node of its kind, where the tracer records now."""
    if isinstance(value, NamedDim):
        return tracer.local(tracer.size_as_tensor(value, kind.type.dtype))
    if type(value) in DTYPES:
        return lookup("full")((), value, kind.type.dtype).node  # type: ignore[no-any-return]
    if isinstance(value, PythonNumber) and value.type.dtype is not kind.type.dtype:
        return lookup("cast")(value, kind.type.dtype).node  # type: ignore[no-any-return]
    return tracer.create_arg(value)  # type: ignore[no-any-return]


def as_value(tracer: Tracer, node: Node, kind: Kind) -> Any:
    """What the program sees of a result."""
    if kind.number:
        return PythonNumber(node, tracer)
    proxy = tracer.proxy(node)
    if not kind.type.shape:
        from fxlite.tracing.writes.shared_memory import Memory, View

        proxy._view = View(node, Memory(is_number=True), tracer.writes.count)
    return proxy


def taken_apart(tracer: Tracer, value: Any, what: str) -> tuple[list[Any], list[str], Structure]:
    """:func:`leaves_of` with the errors of a trace."""
    try:
        return leaves_of(value, what)
    except TypeError as error:
        raise tracer.error(
            str(error),
            "loops and conditions take and give arrays, numbers, and tuples, lists, dicts and dataclasses of these",
        ) from None
    except FxliteError as error:
        raise tracer._located(error, None) from None


def put_together(structure: Structure, values: Sequence[Any]) -> Any:
    """A nested value of these leaves."""
    given = iter(values)
    return pytree.build(structure, lambda _: next(given))
