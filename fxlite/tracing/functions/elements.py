"""Access to arrays element by element, as with ``x.flat``, ``np.ndindex`` and ``np.ndenumerate``.

In: traced arrays, and numbers of elements. Out: :class:`Flat`, whose subscripts are those of the flattened array; and
the subscript of the element with a given number. The last axis varies fastest, as in NumPy, whatever the layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.tracing.numpy_functions import ravel, value_type
from fxlite.tracing.writes.shared_memory import fresh
from fxlite.types import shapes
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


class Flat:
    """``x.flat``: reads copy, and writes change ``x``, which may be a view that has no flat view."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        return int(self.x.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(ravel(self.x))

    def __getitem__(self, index: Any) -> Any:
        return fresh(ravel(self.x)[index], number=True)

    def __setitem__(self, index: Any, value: Any) -> None:
        whole = fresh(ravel(self.x))
        if is_traced(value) or np.ndim(value):
            value = repeated(value, whole[index].size)
        whole[index] = value
        self.x[...] = whole.reshape(self.x.shape)

    def copy(self) -> Any:
        """All elements, along one axis."""
        return fresh(ravel(self.x))

    def element(self, number: Any) -> Any:
        """The element with a number, which may be traced."""
        return self.x[position(self.x.tracer, number, self.x.shape)]


def repeated(value: Any, count: Any) -> Any:
    """The elements of an array, repeated until there are ``count``."""
    values = np.ravel(value)
    return values if shapes.equal(value_type(values).shape[0], shapes.normalize(count)) else np.resize(values, count)


def position(tracer: Tracer, number: Any, sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The subscript of the element with a number; the last axis varies fastest."""
    found: list[Any] = []
    for size in reversed(sizes[1:]):
        known = tracer.number_of_size(size) if isinstance(size, NamedDim) else size
        found.append(number % known)
        number = number // known
    return (number, *reversed(found)) if sizes else ()
