"""The table of fxlite's ops: what each is in ONNX, one function for one op.

A function gets the :class:`~fxlite.codegen.onnx.builder.Builder` and the op's arguments by name: tensors
as Values (names with types; numbers of Python as they are), attributes as bound. It returns the name of
the result, or a list of names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import ModelExportError
from fxlite.graph.node import Node
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Value:
    """A value of the model: its name, and its type in fxlite."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class Row:
    """What the table has of one op. ``since``: the first opset that has what it becomes. ``when``:
    whether a call's arguments (nodes, attributes, defaults) are among those that it takes."""

    function: Callable[..., Any]
    since: int
    when: Callable[[Mapping[str, Any]], bool] | None
    kind: str

    def takes(self, node: Node, opset: int) -> bool:
        """Whether a node is written by this row; else it is decomposed."""
        return opset >= self.since and (self.when is None or self.when(node.bound))


TABLE: dict[str, Row] = {}


def exports(
    *names: str, since: int = 0, when: Callable[[Mapping[str, Any]], bool] | None = None, kind: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the table under these names of ops. ``kind``: what the builder's ``kind`` is
    while it writes one; else the name of the op."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[name] = Row(function, since, when, kind or name)
        return function

    return enter


def type_of(value: Any) -> TensorType | None:
    """The type of an operand: a node, or a Value; None for numbers."""
    found = getattr(value, "type", None)
    return found if isinstance(found, TensorType) else None


def no(problem: str) -> ModelExportError:
    """The error for what ONNX cannot compute of a call; the node is named around it."""
    return ModelExportError(f"ONNX: {problem}")


def is_single(bound: Mapping[str, Any]) -> bool:
    """Whether the operand ``x`` is of float32 or float16: attributes of ONNX are float32, so that
    float64 is computed from bodies and expansions; and most layers have no bfloat16."""
    given = type_of(bound["x"])
    return given is not None and given.dtype in (dtypes.float32, dtypes.float16)
