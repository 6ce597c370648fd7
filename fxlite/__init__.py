"""fxlite: look at a model, rewrite it, and get source code back.

A tracer turns NumPy programs (``nn.Module``-style or plain functions) into an editable graph with a
type on every value; passes rewrite it; code generation turns it into Python, C or CUDA source.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

from fxlite import nn, ops
from fxlite.base import errors
from fxlite.graph.graph import Graph, Node, PythonCode
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.graph.node import ArgsKwargsPair, Argument, Target, immutable_dict, immutable_list, map_aggregate, map_arg
from fxlite.graph.pytree import PH
from fxlite.graph.subgraph import SubGraph
from fxlite.ops.numeric import random
from fxlite.ops.own import expression as expr
from fxlite.ops.own.register import op
from fxlite.ops.parameters import OptionalTensor, Tensor, Tensors
from fxlite.ops.wrapping import has_side_effect, wrap
from fxlite.tracing.capture.control import cond, fori_loop, scan, while_loop
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.tracing.tracer import GraphAppendingTracer, LayerTracer, Tracer
from fxlite.tracing.transformer import Transformer
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import *
from fxlite.types.shapes import dims
from fxlite.types.tensor_type import TensorType, parse_type

if TYPE_CHECKING:
    from fxlite import codegen, lazy, passes
    from fxlite.codegen.onnx.model import to_onnx
    from fxlite.codegen.porting.migrate import migrate
    from fxlite.codegen.python.reimport import reimport
    from fxlite.codegen.reporting.report import report
    from fxlite.compiler import compile
    from fxlite.files.serialize import load, load_safetensors, save, save_safetensors
    from fxlite.files.weights.read import load_weights
    from fxlite.importing.onnx.model import from_onnx
    from fxlite.importing.torch import from_torch, to_torch, to_torch_fx
    from fxlite.just_in_time import jit
    from fxlite.show.comparison.compare import assert_same
    from fxlite.show.comparison.graph_diff import diff
    from fxlite.show.text.parser import parse

__version__ = "0.1.0"
#: The time at which this process imported fxlite, as time.time(): it does not run sources that are newer.
IMPORTED_AT = time.time()

#: Names that need passes or code generation, or are seldom needed: they are imported when first used.
_LAZY = {
    "compile": "fxlite.compiler",
    "jit": "fxlite.just_in_time",
    "parse": "fxlite.show.text.parser",
    "save": "fxlite.files.serialize",
    "load": "fxlite.files.serialize",
    "load_safetensors": "fxlite.files.serialize",
    "save_safetensors": "fxlite.files.serialize",
    "from_torch": "fxlite.importing.torch",
    "to_torch": "fxlite.importing.torch",
    "to_torch_fx": "fxlite.importing.torch",
    "load_weights": "fxlite.files.weights.read",
    "from_onnx": "fxlite.importing.onnx.model",
    "to_onnx": "fxlite.codegen.onnx.model",
    "diff": "fxlite.show.comparison.graph_diff",
    "assert_same": "fxlite.show.comparison.compare",
    "replace_pattern": "fxlite.passes.rewrite.match",
    "ShapeProp": "fxlite.passes.shape_prop",
    "trace_doctor": "fxlite.tracing.doctor",
    "reimport": "fxlite.codegen.python.reimport",
    "report": "fxlite.codegen.reporting.report",
    "migrate": "fxlite.codegen.porting.migrate",
    "passes": None,
    "codegen": None,
    "lazy": None,
}

# graphs and tracing
__all__ = ["PH", "ArgsKwargsPair", "Argument", "Graph", "GraphAppendingTracer", "GraphModule", "Interpreter"]
__all__ += ["LayerTracer", "Node", "Proxy", "PythonCode", "SubGraph", "Target", "Tracer", "Transformer"]
__all__ += ["has_side_effect", "immutable_dict", "immutable_list", "map_aggregate", "map_arg", "symbolic_trace", "wrap"]
# what programs and ops are written with
__all__ += [
    "OptionalTensor",
    "Tensor",
    "TensorType",
    "Tensors",
    "cond",
    "dims",
    "dtypes",
    "errors",
    "expr",
    "fori_loop",
]
__all__ += ["fori_loop", "nn", "op", "ops", "parse_type", "random", "scan", "shapes", "while_loop"]
__all__ += [*_LAZY, *dtypes.__all__]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fxlite' has no attribute {name!r}")
    module = _LAZY[name]
    if module is None:
        return importlib.import_module(f"fxlite.{name}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
