"""The table of ONNX ops by family; importing it enters all of them."""

from fxlite.importing.onnx.registry import TABLE
from fxlite.importing.onnx.table import (
    arrays,
    attention,
    control,
    elementwise,
    images,
    indexing,
    microsoft,
    normalization,
    products,
    quantized,
    recurrent,
    reductions,
    signals,
)

__all__ = [
    "TABLE",
    "arrays",
    "attention",
    "control",
    "elementwise",
    "images",
    "indexing",
    "microsoft",
    "normalization",
    "products",
    "quantized",
    "recurrent",
    "reductions",
    "signals",
]
