"""Arguments of nodes as JSON and back.

In: numbers, text, tuples, lists, dicts, dims, dtypes, types, slices, nodes. Out: values JSON can
hold. JSON's own kinds stand for themselves (an array is a tuple); the rest is an object with one
key that says what it is: ``{"dim": "4*D"}``, ``{"float": "inf"}``, ``{"node": "relu"}``, or, in the
table of calls of a file, ``{"input": 0}`` for a node's first operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from fxlite import dtypes, shapes
from fxlite.dtypes import DType
from fxlite.errors import FileFormatError
from fxlite.graph import Node
from fxlite.types import TensorType, parse_type


@dataclass(frozen=True)
class Operand:
    """Stands in a call for the node's operand of that number."""

    number: int


def by_name(node: Node) -> Any:
    """``{"node": "relu"}``"""
    return {"node": node.name}


def encode(value: Any, node_data: Callable[[Node], Any] = by_name) -> Any:
    """A value as JSON, its nodes as ``node_data`` says. Raises TypeError for what is not data."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
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
    if isinstance(value, sympy.Expr):
        return {"dim": shapes.to_text(value)}
    if isinstance(value, slice):
        return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def refuse(kind: str, content: Any) -> Any:
    """The reader for places where no node may stand."""
    raise FileFormatError(f"unknown kind of value {kind!r}")


def decode(value: Any, read_node: Callable[[str, Any], Any] = refuse) -> Any:
    """The value of :func:`encode`. ``read_node(kind, content)`` reads what stands for a node."""
    if not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return tuple([decode(v, read_node) for v in value])
    if len(value) != 1:
        raise FileFormatError(f"expected one key that says what the value is, not {list(value)}")
    ((kind, content),) = value.items()
    if kind == "list":
        return [decode(v, read_node) for v in content]
    if kind == "dict":
        return {decode(k): decode(v, read_node) for k, v in content}
    if kind == "slice":
        return slice(*map(decode, content))
    reader = _READERS.get(kind)
    return read_node(kind, content) if reader is None else reader(content)


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "dtype": dtypes.dtype,
    "type": parse_type,
    "dim": shapes.parse,
}
