"""The table of ONNX ops by family; importing it enters all of them."""

from fxlite.importing.onnx.registry import TABLE
from fxlite.importing.onnx.table import (
    arrays,
    control,
    elementwise,
    indexing,
    normalization,
    products,
    quantized,
    recurrent,
    reductions,
)

__all__ = [
    "TABLE",
    "arrays",
    "control",
    "elementwise",
    "indexing",
    "normalization",
    "products",
    "quantized",
    "recurrent",
    "reductions",
]
