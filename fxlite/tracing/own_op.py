"""The types of an op of the program's own, found by tracing what it computes.

In: NumPy code, and types of its operands. Out: types of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fxlite.base.errors import TraceError
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph.graph import Graph
from fxlite.nn.module import Module
from fxlite.ops.op import Op
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer
from fxlite.types.tensor_type import TensorType, type_of


def traced_type(function: Callable[..., Any], op: Op, bound: Mapping[str, Any]) -> Any:
    """Type of the result of ``function``, or a tuple of types, for arguments of ``op`` that are
    types in place of tensors. Raises TraceError where it cannot be traced or its types depend on a
    condition, and what the ops in it say of types that do not fit."""
    root, tracer = Module(), Tracer()
    graph = Graph(root, Tracer)
    tracer.attach(root, graph)

    def operand(value: Any) -> Any:
        if not isinstance(value, TensorType):
            return value
        return Proxy(graph.placeholder("x", value), tracer)

    token = active_tracer.set(tracer)
    try:
        result = function(**op.map_tensors(operand, bound))
        several = isinstance(result, (tuple, list))
        types = tuple(_type(tracer, r) for r in (result if several else (result,)))
    finally:
        active_tracer.reset(token)
    if graph.guards:
        raise TraceError(f"its types hold where {' and '.join(map(str, graph.guards))}")
    return types if several else types[0]


def _type(tracer: Tracer, value: Any) -> Any:
    return tracer.create_arg(value).type if is_traced(value) else type_of(value)
