"""Dead-code elimination: drop what no result depends on.

Before::

    relu: f32[4] = ops.relu(x)
    exp: f32[4] = ops.exp(x)
    return exp

After::

    exp: f32[4] = ops.exp(x)
    return exp
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import graph_pass


@graph_pass
def dce(gm: GraphModule) -> None:
    """Drop nodes nobody reads, and the weights no node reads then. Inputs, random ops and calls of
    leaf modules stay."""
    gm.graph.eliminate_dead_code()
    gm.delete_all_unused_submodules()


def _unused(x: Any) -> Any:
    np.exp(x)
    return np.tanh(x)


def _drawn(x: Any) -> Any:
    F.dropout(x, 0.5)
    return np.tanh(x)


dce.example(_unused, "nothing reads exp", x="f32[4]")
dce.counterexample(_drawn, "the next random numbers would be others", x="f32[4]")
