"""The standard pipeline before code generation: flatten, clean up, fuse, expand composites, clean
up again."""

from __future__ import annotations

from fxlite import passes
from fxlite.graph_module import GraphModule
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.manager import PassManager


def optimize(module: GraphModule) -> tuple[GraphModule, PassManager]:
    """The optimized module (the input is left as it was) and the manager with its report."""
    manager = PassManager(
        [
            passes.remove_dropout,
            passes.simplify,
            passes.fuse_conv_bn,
            passes.decompose,
            passes.simplify,
            passes.const_fold,
            passes.cse,
            passes.dce,
        ],
        check="lint",  # these passes are tested; checks of each use would double the time
    )
    return manager(flattened(module)), manager
