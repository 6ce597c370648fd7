"""``x.flat`` of a lazy array: its elements along one axis. Reads make copies, and writes change ``x``.

In: an :class:`~fxlite.lazy.array.Array`. Out: the same as NumPy's ``x.flat`` for subscripts, in loops, and as an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class Flat:
    """The ``flat`` attribute of a lazy array."""

    def __init__(self, x: Any) -> None:
        self.base = x

    def copy(self) -> Any:
        """A copy of all elements, along one axis."""
        return self.base.flatten()

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __getitem__(self, index: Any) -> Any:
        return self.copy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        whole = self.copy()
        whole[index] = value
        self.base[...] = whole.reshape(self.base.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.copy(), dtype)
