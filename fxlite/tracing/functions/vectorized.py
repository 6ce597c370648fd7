"""``np.vectorize(f)`` on traced values: one loop of the graph over all elements.

In: the vectorized function and its arguments. Out: traced arrays, with the broadcast shape of the arguments, of the
results of ``f`` for each element. The control flow of ``f`` is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import broadcast_shapes, lookup
from fxlite.tracing.capture.control import fori_loop
from fxlite.tracing.capture.regions import Region, run
from fxlite.tracing.numpy_functions import value_type
from fxlite.tracing.writes.shared_memory import fresh
from fxlite.types import dtypes, shapes

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


def vectorized(tracer: Tracer, function: Any, arguments: Sequence[Any], captured: Callable[..., Any]) -> Any:
    """``np.vectorize(f)(*arguments)``, where ``captured`` is ``f``. As in NumPy, ``f`` gets Python numbers, and the
    result has the dtype of its value for the first element."""
    if function.signature is not None or function.excluded:
        raise tracer.error(
            "np.vectorize with signature= or excluded= cannot be traced",
            "write the loop: out = np.empty(n), for i in range(n): out[i] = f(x[i])",
        )
    selected = next((a for a in arguments if hasattr(a, "__fx_selected__")), None)
    if selected is not None:  # also of the elements that are not selected, which nothing reads
        whole = [a.values if hasattr(a, "__fx_selected__") else a for a in arguments]
        same = all(selected.same(a) if hasattr(a, "__fx_selected__") else not np.ndim(a) for a in arguments)
        if not same:
            raise selected.refusal("np.vectorize of other arguments beside them")
        found = vectorized(tracer, function, whole, captured)
        return tuple(map(selected.like, found)) if isinstance(found, tuple) else selected.like(found)
    kinds = [value_type(a) for a in arguments]
    sizes = broadcast_shapes(*(kind.shape for kind in kinds))
    count = shapes.product(sizes)
    if shapes.equal(count, 0):
        raise tracer.error("np.vectorize of no elements", "call it with one element or more")
    flat = []
    for argument in arguments:
        if not is_traced(argument):
            argument = tracer.proxy(tracer.create_arg(np.asarray(argument)))
        flat.append(lookup("reshape")(lookup("expand")(argument, sizes), (count,)))
    of_first, several = _of_first(tracer, captured, flat)
    if function.otypes is not None:
        of_first = [dtypes.dtype(np.dtype(code)) for code in function.otypes]
    outs = tuple(lookup("full")((count,), 0, kind) for kind in of_first)

    def body(i: Any, outs: tuple[Any, ...]) -> tuple[Any, ...]:
        results = captured(*(_python_number(tracer, x[i]) for x in flat))
        for out, result in zip(outs, results if several else (results,)):
            out[i] = result
        return outs

    made = fori_loop(0, shapes.for_user(count), body, outs)
    found = tuple(fresh(lookup("reshape")(out, sizes)) for out in made)
    return found if several else found[0]


def _of_first(tracer: Tracer, function: Callable[..., Any], flat: Sequence[Any]) -> tuple[list[dtypes.DType], bool]:
    """The dtypes of the results of a function for the first elements, and whether there are several results."""
    given = [x[0] for x in flat]
    found = run(Region(tracer, "a vectorized function", ()), lambda: function(*given)).outcome
    several = isinstance(found, tuple)
    return [value_type(v).dtype for v in (found if several else (found,))], several


def _python_number(tracer: Tracer, element: Any) -> Any:
    kind = element.type.dtype
    if kind.is_complex:
        return element
    wide = dtypes.bool_ if kind.is_bool else dtypes.float64 if kind.is_float else dtypes.int64
    return tracer.python_number(element if kind is wide else lookup("cast")(element, wide))
