"""Converts arguments of nodes to JSON and back.

In: numbers, text, tuples, lists, dicts, dims, dtypes, types, slices, nodes. Out: values for JSON. Values of JSON's
own kinds stand for themselves (an array is a tuple). Any other value is an object with a single key that names its
kind: ``{"dim": "4*D"}``, ``{"float": "inf"}``, ``{"node": "relu"}`` or, in the table of calls of a file, ``{"input":
0}`` for a node's first operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import FileFormatError
from fxlite.base.on_demand import is_expression
from fxlite.graph.graph import Node
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType, parse_type

#: The deepest nesting of values in a file.
DEEPEST = 100


@dataclass(frozen=True)
class Operand:
    """Stands in a call for the operand with that number."""

    number: int


def by_name(node: Node) -> Any:
    """``{"node": "relu"}``"""
    return {"node": node.name}


def encode(value: Any, node_data: Callable[[Node], Any] = by_name) -> Any:
    """A value as JSON, with nodes converted by ``node_data``. Raises TypeError for a value that is not data."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is complex:
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, Node):
        return node_data(value)
    if isinstance(value, tuple):
        return [encode(v, node_data) for v in value]
    if isinstance(value, list):
        return {"list": [encode(v, node_data) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v, node_data)] for k, v in value.items()]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, TensorType):
        return {"type": str(value)}
    if is_expression(value):
        return {"dim": shapes.to_text(value)}
    if isinstance(value, slice):
        return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def refuse(kind: str, content: Any) -> Any:
    """The reader for places where nodes are not allowed; raises an error."""
    raise FileFormatError(f"unknown kind of value {kind!r}")


def decode(value: Any, read_node: Callable[[str, Any], Any] = refuse, room: int = DEEPEST) -> Any:
    """The value from the result of :func:`encode`. ``read_node(kind, content)`` reads an object that stands for a
    node; ``room`` is the number of further levels of nesting that are allowed. Raises FileFormatError, and what the
    readers of dims and types raise."""
    if not isinstance(value, (dict, list)):
        if type(value) is int and not -(1 << 63) <= value < 1 << 64:
            raise FileFormatError(f"a number of {value.bit_length()} bits is too large")
        return value
    if room == 0:
        raise FileFormatError(f"a value is nested more than {DEEPEST} deep")
    if isinstance(value, list):
        return tuple([decode(v, read_node, room - 1) for v in value])
    if len(value) != 1:
        listed = ", ".join(map(repr, value))[:200]
        raise FileFormatError(f"expected one key that says what the value is, not {listed}")
    ((kind, content),) = value.items()
    if kind == "list":
        return [decode(v, read_node, room - 1) for v in content]
    if kind == "dict":
        return {_key(k): decode(v, read_node, room - 1) for k, v in content}
    if kind == "slice":
        start, stop, step = (decode(v, refuse, room - 1) for v in content)
        return slice(start, stop, step)
    reader = _READERS.get(kind)
    return read_node(kind, content) if reader is None else reader(content)


def _key(value: Any) -> Any:
    key = decode(value, refuse, 1)
    if not isinstance(key, (str, int, float, bool, tuple)) and key is not None:
        raise FileFormatError(f"a {type(key).__name__} cannot be a key")
    return key


def _text(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def checked(content: Any) -> Any:
        if not isinstance(content, str):
            raise FileFormatError(f"expected text, not {repr(content)[:100]}")
        return read(content)

    return checked


def _complex(content: Any) -> complex:
    parts = decode(content, refuse, 2)
    if not isinstance(parts, tuple) or [type(p) for p in parts] != [float, float]:
        raise FileFormatError(f"a complex number has two parts, not {repr(content)[:100]}")
    return complex(*parts)


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": _text(float),
    "complex": _complex,
    "dtype": _text(dtypes.dtype),
    "type": _text(parse_type),
    "dim": _text(shapes.parse),
}
