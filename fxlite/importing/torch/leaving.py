"""From a graph to PyTorch: a ``torch.nn.Module``, or a ``torch.fx.GraphModule``.

In: a GraphModule. Out: an instance of the class that ``gm.source(dialect="torch")`` shows, over the
memory of the graph's weights.
"""

from __future__ import annotations

from typing import Any

import torch

from fxlite.base.facade import above
from fxlite.graph.graph_module import GraphModule
from fxlite.importing.torch.arrays import tensor_of


def module_of(gm: GraphModule) -> torch.nn.Module:
    """What :func:`fxlite.to_torch` does."""
    made, arrays = above("program_in")(gm, "torch")
    made.load_state_dict({name: tensor_of(array) for name, array in arrays.items()}, assign=True)
    return made.eval()  # type: ignore[no-any-return]


def graph_of(gm: GraphModule) -> Any:
    """What :func:`fxlite.to_torch_fx` does."""
    return torch.fx.symbolic_trace(module_of(gm))
