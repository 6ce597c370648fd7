"""All ops: ``fx.ops.NAME``. Importing this package fills the registry (:mod:`fxlite.ops.op`).

There is a file for each family. NumPy's names are aliases of the same ops (``fx.ops.negative`` is
``fx.ops.neg``).
"""

from __future__ import annotations

import importlib
from typing import Any

from fxlite.ops.op import ALIASES, REGISTRY, WRAPPED, lookup

FAMILIES = (
    "elementwise numeric.complex_numbers numeric.elementary numeric.bits reduction view slicing creation "
    "indexing control contraction image.convolution image.transposed_convolution image.pooling image.volume "
    "image.pool_positions image.resize image.resample image.grid_sample composite numeric.sorting "
    "numeric.linalg numeric.random activation normalization attention recurrent loss integer.quantized "
    "integer.quantized_product integer.quantized_recurrence"
).split()
for _family in FAMILIES:
    importlib.import_module(f"fxlite.ops.{_family}")


def __getattr__(name: str) -> Any:
    if name == "wrapped":  # the functions given to fx.wrap
        return _Wrapped()
    found = REGISTRY.get(name) or ALIASES.get(name)
    if found is None:
        raise AttributeError(str(_unknown(name)))
    return found


class _Wrapped:
    """``ops.wrapped``: wrapped functions by module and name, ``ops.wrapped.helpers.scale``."""

    def __init__(self, path: str = "wrapped") -> None:
        self._path = path

    def __getattr__(self, part: str) -> Any:
        path = f"{self._path}.{part}"
        found = WRAPPED.get(path)
        if found is not None:
            return found
        if any(name.startswith(f"{path}.") for name in WRAPPED):
            return _Wrapped(path)
        raise AttributeError(f"no function is wrapped as {path.removeprefix('wrapped.')}")


def _unknown(name: str) -> Any:
    try:
        return lookup(name)
    except Exception as error:
        return error


def __dir__() -> list[str]:
    return sorted([*REGISTRY, *ALIASES])
