"""Values of a traced program on their way into the graph: proxies, numbers, named sizes.

In: the bound arguments of an op, or a program's result. Out: the same with nodes, tensors and
arrays in the places of what a graph cannot hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import Op
from fxlite.tracing.proxy import Proxy
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: Types of values that nodes hold as they are.
PLAIN = frozenset((int, float, bool, type(None)))


def operand_nodes(tracer: Tracer, op: Op, bound: dict[str, Any]) -> dict[str, Any] | None:
    """The bound arguments with nodes for the tracer's proxies; None where an operand is neither a
    proxy nor a number."""
    found = bound.copy()
    for name in op.tensor_kinds:
        value: Any = bound.get(name)
        kind = value.__class__
        if kind is Proxy and value.tracer is tracer:
            found[name] = value.node
        elif kind not in PLAIN:
            return None
    return found


def with_sizes_as_tensors(tracer: Tracer, op: Op, bound: dict[str, Any]) -> dict[str, Any]:
    """A named size among the operands is a Python int when the program runs: it takes the dtype
    of the tensors beside it, as in ``x / x.shape[0]``. Comparisons look at the number itself."""
    operands = list(op.tensors(bound))
    if not any(isinstance(v, NamedDim) for v in operands):
        return bound
    strong = [
        v.type.dtype if is_traced(v) else dtypes.of_value(v)
        for v in operands
        if is_traced(v) or isinstance(v, (np.ndarray, np.generic))
    ]
    compares = op.name in COMPARISONS
    dtype = dtypes.int64 if compares or not strong else dtypes.result_type(*strong, 1)

    def convert(value: Any) -> Any:
        if isinstance(value, NamedDim):
            return tracer.proxy(tracer.size_as_tensor(value, dtype))
        return value

    return op.map_tensors(convert, bound)


def number_as_array(value: Any) -> Any:
    """A number among the program's results as an array of rank 0; anything else as it is."""
    return np.asarray(value) if isinstance(value, (bool, int, float)) else value
