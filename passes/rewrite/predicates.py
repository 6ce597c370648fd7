"""Conditions for rules: small questions about the values that the parameters of a pattern match.

In: values as a rule's ``where`` gets them: nodes, numbers, None for an operand left out. Out: truth
values, types and sizes. Without input types, questions about types give False or None.
"""

from __future__ import annotations

from typing import Any

from fxlite.base.checked import public_names
from fxlite.graph.graph import Node
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType


def type_of(x: Any) -> TensorType | None:
    """Type of a value; None for a number, and in a graph without types."""
    found = x.type if isinstance(x, Node) else None
    return found if isinstance(found, TensorType) else None


def same_shape(a: Any, b: Any) -> bool:
    """True if both have types and equal shapes."""
    mine, theirs = type_of(a), type_of(b)
    return mine is not None and theirs is not None and shapes.shapes_equal(mine.shape, theirs.shape)


def same_type(a: Any, b: Any) -> bool:
    """True if both have types, of equal shape and dtype."""
    return type_of(a) is not None and type_of(a) == type_of(b)


def dtype(x: Any) -> DType | None:
    """Dtype of a value, which can be compared with ``fx.float32`` and ``dtypes.dtype("f32")``."""
    found = type_of(x)
    return found.dtype if found is not None else None


def is_float(x: Any) -> bool:
    """True for a tensor of floats or a Python float."""
    found = dtype(x)
    return found.is_float if found is not None else isinstance(x, float)


def is_integer(x: Any) -> bool:
    """True for a tensor of integers or a Python int; False for bool."""
    found = dtype(x)
    if found is not None:
        return found.is_integer
    return isinstance(x, int) and not isinstance(x, bool)


def is_complex(x: Any) -> bool:
    """True for a tensor of complex numbers or a Python complex."""
    found = dtype(x)
    return found.is_complex if found is not None else isinstance(x, complex)


def is_bool(x: Any) -> bool:
    """True for a tensor of truth values, and for True and False."""
    return dtype(x) == dtypes.bool_ or isinstance(x, bool)


def rank(x: Any) -> int | None:
    """Number of axes; 0 for a number, None if unknown."""
    found = type_of(x)
    if found is not None:
        return found.rank
    return None if isinstance(x, Node) else 0


def dim(x: Any, axis: int) -> Dim | None:
    """Size along an axis (negative ones count from the end): an int, or an expression in named
    sizes; None if there is no such axis or no type."""
    found = type_of(x)
    if found is None or not -found.rank <= axis < found.rank:
        return None
    return found.shape[axis]


def constant(x: Any) -> bool:
    """True for a value known before the program runs: a number, a weight, a buffer, or an array of the program."""
    return isinstance(x, dtypes.NUMBERS) or (isinstance(x, Node) and x.op == "get_attr")


def only_use(x: Any) -> bool:
    """True if the value is read once, so that it is no longer needed when its reader is replaced."""
    return isinstance(x, Node) and len(x.users) == 1


def __dir__() -> list[str]:
    return public_names(globals())
