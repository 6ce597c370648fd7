"""What each op becomes; importing this fills the table."""

from fxlite.codegen.onnx.registry import TABLE
from fxlite.codegen.onnx.table import arrays, control, elementwise, indexing, layers, products, quantized, reductions

__all__ = ["TABLE", "arrays", "control", "elementwise", "indexing", "layers", "products", "quantized", "reductions"]
