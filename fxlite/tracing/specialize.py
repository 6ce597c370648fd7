"""Specialization: a GraphModule for fixed values of some of its named dims.

In: a GraphModule and sizes by name. Out: a new GraphModule over the same weights, whose types,
attributes and guards have these sizes. Nothing else in fxlite ever puts a number in the place of a
named dim by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError, ParseError, ShapeError
from fxlite.base.state import active_tracer
from fxlite.graph.graph import Graph
from fxlite.tracing.retrace import retrace_with_dims
from fxlite.tracing.tracer import Tracer
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph_module import GraphModule


def specialize(module: GraphModule, sizes: Mapping[str, Any]) -> GraphModule:
    """See :meth:`GraphModule.specialize`."""
    dims = {name: _dim(name, value) for name, value in sizes.items()}
    inputs = [n.type.shape for n in module.graph.placeholders if isinstance(n.type, TensorType)]
    known = shapes.names(inputs)
    for name in dims:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            listed = ", ".join(sorted(known)) or "none"
            hint = f"did you mean {near[0]}?" if near else f"there are {listed}"
            raise ArgumentError(f"{module.name} has no named dim {name!r}: {hint}")
    made, tracer = module.copy(), Tracer()
    tracer.attach(made, Graph(made))
    token = active_tracer.set(tracer)
    try:
        retrace_with_dims(tracer, made, dims)
    except ShapeError as error:
        given = ", ".join(f"{n}={d}" for n, d in dims.items())
        raise ArgumentError(f"specialize({given}): {error}") from None
    finally:
        active_tracer.reset(token)
    before = {n: shapes.substitute(d, dims) for n, d in module.graph.specialized.items()}
    tracer.graph.specialized = {**before, **dims}
    made.graph = tracer.graph
    return made


def _dim(name: str, value: Any) -> Dim:
    try:
        dim = shapes.parse(value) if isinstance(value, str) else shapes.normalize(value)
    except (ParseError, ShapeError) as error:
        raise ArgumentError(f"specialize({name}={value!r}): {error}") from None
    if type(dim) is int and dim < 0:
        raise ArgumentError(f"specialize({name}={dim}): a size cannot be negative")
    return dim
