"""Shared by the tests of passes."""

from __future__ import annotations

from typing import Any

import fxlite as fx


def trace(program: Any, *types: str) -> fx.GraphModule:
    """A traced program; without types one f32[3,4] input."""
    return fx.symbolic_trace(program, *(types or ("f32[3,4]",)))


def calls(gm: fx.GraphModule) -> list[str]:
    """Names of the ops called, in order."""
    return [n.target.name for n in gm.graph.nodes if n.op == "call_function"]
