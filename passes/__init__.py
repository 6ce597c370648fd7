"""Passes: each takes a GraphModule and returns a new one over the same weights.

In: traced graphs. Out: smaller, cheaper or better known ones. Every pass is registered by name in
:data:`PASSES`, so that the command line and :class:`PassManager` find it.
"""

from __future__ import annotations

from fxlite.passes.base import (
    PASSES,
    Pass,
    PassError,
    PassManager,
    Refusal,
    graph_pass,
    ledger,
    refuse,
)
from fxlite.passes.const_fold import const_fold
from fxlite.passes.cse import cse
from fxlite.passes.dce import dce
from fxlite.passes.decompose import decompose
from fxlite.passes.fuse_conv_bn import fuse_conv_bn
from fxlite.passes.match import Match, find_matches, replace_pattern
from fxlite.passes.remove_dropout import remove_dropout
from fxlite.passes.simplify import simplify

__all__ = [
    "PASSES",
    "Match",
    "Pass",
    "PassError",
    "PassManager",
    "Refusal",
    "const_fold",
    "cse",
    "dce",
    "decompose",
    "find_matches",
    "fuse_conv_bn",
    "graph_pass",
    "ledger",
    "refuse",
    "remove_dropout",
    "replace_pattern",
    "simplify",
]
