"""``fx.from_torch`` and ``fx.to_torch``: PyTorch's models as graphs, and back.

An exported program runs, op by op, on fxlite's proxies.

``exported`` makes the program and names its sizes, ``run`` takes nested values apart and goes through the
nodes; ``table`` and its families (``elementwise``, ``layers``, ...) say what ATen's ops are. Only they, and
functions here, import torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fxlite.base.errors import CodegenError, FxliteError
from fxlite.base.facade import above
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
    node that cannot be imported; ArgumentError for anything that is not a model; MissingLibraryError without
    torch."""
    with _needing_torch("from_torch"):
        from fxlite.importing.torch.run import import_model
    return import_model(model, example, named, dynamic_shapes)


def to_torch(gm: GraphModule) -> Any:
    """A ``torch.nn.Module`` that computes what the graph does, in evaluation mode: an instance of the
    class that ``gm.source(dialect="torch")`` shows. Layers and weights have their names in the
    graph; the weights share its arrays' memory, where these may be written.

    Raises CodegenError for what torch cannot say, MissingLibraryError without torch."""
    with _needing_torch("to_torch"):
        from fxlite.importing.torch.table import tensor_of
    made, arrays = above("program_in")(gm, "torch")
    made.load_state_dict({name: tensor_of(array) for name, array in arrays.items()}, assign=True)
    return made.eval()


def to_torch_fx(gm: GraphModule) -> Any:
    """A ``torch.fx.GraphModule`` of the same, so that passes written for torch.fx can be used;
    :func:`from_torch` takes it back. Raises as :func:`to_torch`, and CodegenError for loops, conditions and writes into
    inputs, which torch.fx's graphs do not have."""
    with _needing_torch("to_torch_fx"):
        import torch
    made = to_torch(gm)
    try:
        return torch.fx.symbolic_trace(made)
    except Exception as error:
        raise CodegenError(
            f"torch.fx cannot follow the module of {gm.name}: {error}\n"
            "  instead: fx.to_torch(gm) runs it; torch.export.export takes that, with example inputs, and has its loops"
        ) from error


@contextlib.contextmanager
def _needing_torch(name: str) -> Iterator[None]:
    """Inside, torch is imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingLibraryError(f'{name} needs PyTorch: pip install "fxlite[torch]"') from None
