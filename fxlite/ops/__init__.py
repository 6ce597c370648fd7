"""All ops: ``fx.ops.NAME``. Importing this package fills the registry (:mod:`fxlite.ops.op`).

One file for each family; NumPy's names are aliases of the same ops (``fx.ops.negative`` is
``fx.ops.neg``).
"""

from __future__ import annotations

import importlib
from typing import Any

from fxlite.ops.op import ALIASES, REGISTRY, lookup

FAMILIES = (
    "elementwise",
    "reduction",
    "view",
    "slicing",
    "joining",
    "creation",
    "indexing",
    "contraction",
    "image.convolution",
    "image.transposed_convolution",
    "image.pooling",
    "image.adaptive_pooling",
    "image.resize",
    "composite",
    "activation",
    "normalization",
    "attention",
    "recurrent",
    "loss",
    "integer.quantized",
    "integer.dynamic_range",
    "integer.quantized_product",
    "integer.weight_only",
    "integer.quantized_recurrence",
    "integer.fake_quantization",
)
for _family in FAMILIES:
    importlib.import_module(f"fxlite.ops.{_family}")


def __getattr__(name: str) -> Any:
    if name == "wrapped":  # functions given to fx.wrap
        from fxlite.tracing.wrapped import Names

        return Names()
    found = REGISTRY.get(name) or ALIASES.get(name)
    if found is None:
        raise AttributeError(str(_unknown(name)))
    return found


def _unknown(name: str) -> Any:
    try:
        return lookup(name)
    except Exception as error:
        return error


def __dir__() -> list[str]:
    return sorted([*REGISTRY, *ALIASES])
