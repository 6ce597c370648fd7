"""Types inferred again for other inputs, and types compared with the arrays of a run.

In: a GraphModule, traced with or without types. Out: :func:`shape_prop` returns a copy whose values
have the types that follow from other input types; no program runs. :class:`ShapeProp` runs the graph
on arrays, like torch.fx's class of that name, and records what each node really returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import DTypeError, ShapeError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.graph.retype import infer_types
from fxlite.passes.base import as_module
from fxlite.tracing.inputs import declare
from fxlite.tracing.nonempty import missing_guards
from fxlite.tracing.retrace import kept_facts
from fxlite.types import dtypes
from fxlite.types.dtypes import DType
from fxlite.types.guards import remaining
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, type_of


@checked
def shape_prop(program: Any, *types: Any, inputs: Mapping[str, Any] | None = None, **named: Any) -> GraphModule:
    """A copy over the same weights with every type inferred from the given input types:
    ``shape_prop(gm, x="f32[B,3,H,W]")``.

    Inputs are types, type text or example arrays, given by position or by name; one whose name is
    also an option goes into ``inputs={...}``. Inputs that are not given keep their type, and if none
    is given, all types are checked against the rules.

    Named dims of the graph are replaced, also where they occur in the graph's arguments
    (``x.reshape(B, -1)``). A size that was a number in the trace and was written into the graph
    stays that number. Facts and guards about named dims still hold.

    Raises ShapeError or DTypeError for types that do not fit, naming the node, its line and where
    the sizes come from, and ArgumentError for inputs that the program does not have."""
    made = as_module(program).copy()
    graph, conditions = made.graph, made.graph.conditions()
    declared = declare(made.forward, types, {**(inputs or {}), **named}, {})
    given = {t: type_of(v) for t, v in made.flatten_inputs(declared, True).items()}
    placeholders = graph.placeholders
    known = {node.target: node.type for node in placeholders}
    graph.declared_dims = kept_facts(known, given, given)
    given = {t: type.substitute(graph.declared_dims) for t, type in given.items()}
    dims = _new_dims(placeholders, given)
    new = {node: given[node.target] if node.target in given else _substitute(node.type, dims) for node in placeholders}
    infer_types(graph, new, dims)
    graph.guards = remaining(conditions, {**graph.declared_dims, **dims}, made.name)
    graph.guards = (*graph.guards, *missing_guards(graph))
    return made


def _new_dims(placeholders: list[Node], given: Mapping[str, TensorType]) -> dict[str, Dim]:
    """The graph's named dims in terms of the new types."""
    dims: dict[str, Dim] = {}
    for node in placeholders:
        new = given.get(node.target)
        if new is None or not isinstance(node.type, TensorType) or new.rank != node.type.rank:
            continue
        for before, after in zip(node.type.shape, new.shape, strict=True):
            if getattr(before, "is_Symbol", False):
                dims.setdefault(before.name, after)
    return dims


def _substitute(type: Any, dims: Mapping[str, Dim]) -> Any:
    return type.substitute(dims) if isinstance(type, TensorType) and dims else type


class TensorMetadata(NamedTuple):
    """Describes an array of a run. ``stride`` counts elements, as in torch."""

    shape: tuple[int, ...]
    dtype: DType
    stride: tuple[int, ...]
    nbytes: int


class ShapeProp(Interpreter):
    """``ShapeProp(gm).propagate(x)`` runs the graph and sets ``node.meta["tensor_meta"]`` to the
    :class:`TensorMetadata` of each value (nested like the value; None for anything but an array).

    Raises ShapeError or DTypeError, naming the node and its line, for a value that differs from
    ``node.type`` at the sizes of this run."""

    def propagate(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays, given as they are to the module; returns the program's result."""
        return super().run(*args, **kwargs)

    def run_node(self, n: Node) -> Any:
        """Run the node, compare its value with its type, and record the metadata."""
        node, value = n, super().run_node(n)
        self._compare(node, node.type, value)
        node.meta["tensor_meta"] = _metadata(value)
        return value

    def _compare(self, node: Node, declared: Any, value: Any) -> None:
        if isinstance(declared, TensorType):
            expected = declared.substitute(self.dims)
            found = type_of(value)
            if found is expected:
                return
            kind = DTypeError if found.shape == expected.shape else ShapeError
            at_sizes = f", which is {expected} here" if expected is not declared else ""
            made_at = f"\n  made at {node.loc}: {node.loc.expression}" if node.loc else ""
            raise kind(
                f"{node.describe()}: the value is {found}, but its type says {declared}{at_sizes}; "
                f"correct the type rule of what computes it{made_at}"
            )
        if isinstance(declared, (tuple, list)):
            for part, one in zip(declared, value, strict=True):
                self._compare(node, part, one)
        elif isinstance(declared, dict):
            for key, part in declared.items():
                self._compare(node, part, value[key])


def _metadata(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        stride = tuple(step // value.itemsize for step in value.strides)
        return TensorMetadata(value.shape, dtypes.dtype(value.dtype), stride, value.nbytes)
    if isinstance(value, (tuple, list)):
        return tuple(map(_metadata, value))
    if isinstance(value, dict):
        return {key: _metadata(part) for key, part in value.items()}
    return None
