"""Arguments of nodes as JSON and back.

In: numbers, text, tuples, lists, dicts, dims, dtypes, types, slices, nodes (by name). Out: values
JSON can hold. JSON's own kinds stand for themselves (an array is a tuple); the rest is an object
with one key that says what it is: ``{"node": "relu"}``, ``{"dim": "4*D"}``, ``{"float": "inf"}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from fxlite import dtypes, shapes
from fxlite.dtypes import DType
from fxlite.errors import FileFormatError
from fxlite.graph import Node
from fxlite.types import TensorType, parse_type


def encode(value: Any) -> Any:
    """A value as JSON. Raises TypeError for what is not data."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, list):
        return {"list": [encode(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, TensorType):
        return {"type": str(value)}
    if isinstance(value, sympy.Expr):
        return {"dim": shapes.to_text(value)}
    if isinstance(value, slice):
        return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def decode(value: Any, nodes: Mapping[str, Node]) -> Any:
    """The value of :func:`encode`; ``nodes`` are the nodes made so far, by name."""
    if not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return tuple(decode(v, nodes) for v in value)
    if len(value) != 1:
        raise FileFormatError(f"expected one key that says what the value is, not {list(value)}")
    ((kind, content),) = value.items()
    if kind == "node":
        if content not in nodes:
            raise FileFormatError(f"the value {content!r} is used before it is computed")
        return nodes[content]
    if kind == "list":
        return [decode(v, nodes) for v in content]
    if kind == "dict":
        return {decode(k, nodes): decode(v, nodes) for k, v in content}
    if kind == "slice":
        return slice(*(decode(v, nodes) for v in content))
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "dtype": dtypes.dtype,
        "type": parse_type,
        "dim": shapes.parse,
    }
    if kind not in readers:
        raise FileFormatError(f"unknown kind of value {kind!r}")
    return readers[kind](content)
