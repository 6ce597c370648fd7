"""``fx.from_torch``: PyTorch's models as graphs. An exported program runs, op by op, on fxlite's proxies.

``arrays`` shares tensors' memory, ``exported`` makes the program and names its sizes, ``structure``
takes nested values apart, ``run`` goes through the nodes; ``table`` and its families
(``elementwise``, ``layers``, ...) say what ATen's ops are. Only they import torch.
"""

from __future__ import annotations

from typing import Any

from fxlite.base.errors import FxliteError
from fxlite.graph.graph_module import GraphModule


class MissingLibraryError(FxliteError, ImportError):
    """A library that fxlite does not need itself is not installed."""


def from_torch(model: Any, *example: Any, dynamic_shapes: Any = None, **named: Any) -> GraphModule:
    """The graph of a PyTorch model: ``fx.from_torch(model.eval(), torch.randn(1, 3, 224, 224))``.

    ``model`` is a ``torch.nn.Module`` (or a ``torch.fx.GraphModule``), which is exported with the
    example inputs, by position or ``named``; or an ``ExportedProgram``, or a ``.pt2`` file, without
    any. An input may be a type in place of a tensor, whose names are sizes that may differ,
    ``"f32[B,3,H,W]"``; ``dynamic_shapes`` says the same as torch does, and its names are kept.

    Weights share the tensors' memory; modules are scopes, lines of the model's code are places;
    dicts, lists and classes that torch knows as pytrees are inputs and results as dicts and tuples;
    buffers that the model changes are states of the graph.

    Raises ModelImportError, which names each op that fxlite lacks, or the op, module and line of a
    node that cannot be imported; ArgumentError for what is no model; MissingLibraryError without
    torch."""
    try:
        from fxlite.importing.torch.run import import_model
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingLibraryError('from_torch needs PyTorch: pip install "fxlite[torch]"') from None
    return import_model(model, example, named, dynamic_shapes)
