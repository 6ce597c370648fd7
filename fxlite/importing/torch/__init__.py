"""``fx.from_torch`` and ``fx.to_torch``: convert PyTorch models to graphs, and back.

An exported program runs, op by op, on fxlite's proxies.

``exported`` exports the program and names its sizes; ``run`` flattens nested values and runs the nodes; ``table`` and
its families (``elementwise``, ``layers`` and so on) express ATen's ops. Only these modules, and functions in this
file, import torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fxlite.base.errors import CodegenError, FxliteError, expect
from fxlite.base.facade import above
from fxlite.graph.graph_module import GraphModule


class MissingLibraryError(FxliteError, ImportError):
    """An optional library is not installed."""


def from_torch(model: Any, *example: Any, dynamic_shapes: Any = None, **named: Any) -> GraphModule:
    """Import a PyTorch model: ``fx.from_torch(model.eval(), torch.randn(1, 3, 224, 224))``. Returns a GraphModule.

    ``model`` is a ``torch.nn.Module`` (or a ``torch.fx.GraphModule``), which is exported with the example inputs,
    given by position or ``named``; or an ``ExportedProgram`` or a ``.pt2`` file, without examples. An example may
    also be a type such as ``"f32[B,3,H,W]"``, whose names stand for sizes that may vary; alternatively,
    ``dynamic_shapes`` is as in torch, and its names are kept.

    Weights share memory with the tensors. Modules become scopes, and lines of the model's code become locations. Dicts,
    lists and classes that torch knows as pytrees are dicts and tuples in inputs and results. Buffers that the model
    changes become states of the graph.

    Raises ModelImportError, which names each op that fxlite lacks, or the op, module and line of a node that cannot be
    imported; ArgumentError for anything that is not a model; and MissingLibraryError without torch."""
    with _needing_torch("from_torch"):
        from fxlite.importing.torch.run import import_model
    return import_model(model, example, named, dynamic_shapes)


def to_torch(gm: GraphModule) -> Any:
    """A ``torch.nn.Module`` in evaluation mode that computes the same as the graph: an instance of the class in
    ``gm.source(dialect="torch")``. Layers and weights have the same names as in the graph. The weights share memory
    with its arrays, unless these are read-only.

    Raises CodegenError for operations that torch cannot express, and MissingLibraryError without torch."""
    expect(gm, GraphModule, "what becomes a module of torch", "trace it: fx.symbolic_trace(...)")
    with _needing_torch("to_torch"):
        from fxlite.importing.torch.table import tensor_of
    made, arrays = above("program_in")(gm, "torch")
    made.load_state_dict({name: tensor_of(array) for name, array in arrays.items()}, assign=True)
    return made.eval()


def to_torch_fx(gm: GraphModule) -> Any:
    """The result of :func:`to_torch` as a ``torch.fx.GraphModule``, so that passes written for torch.fx can be used;
    :func:`from_torch` converts it back. Checks of sizes are nodes, and so are functions of the module's file that
    torch.fx cannot follow because they look at values or types. Raises what :func:`to_torch` raises, and CodegenError
    for loops, conditions and writes into inputs, which torch.fx's graphs do not have."""
    with _needing_torch("to_torch_fx"):
        from fxlite.importing.torch.torch_graphs import torch_graph
    made = to_torch(gm)
    try:
        return torch_graph(made)
    except Exception as error:
        raise CodegenError(
            f"torch.fx cannot follow the module of {gm.name}: {error}\n"
            "  instead: fx.to_torch(gm) runs it; torch.export.export takes that, with example inputs, and has its loops"
        ) from error


@contextlib.contextmanager
def _needing_torch(name: str) -> Iterator[None]:
    """A context manager in which torch is imported; an error of the import becomes a MissingLibraryError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingLibraryError(f'{name} needs PyTorch: pip install "fxlite[torch]"') from None
