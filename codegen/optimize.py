"""The standard pipeline before code generation: flatten, clean up, fuse, expand composites, clean
up again."""

from __future__ import annotations

import functools

from fxlite import passes
from fxlite.graph_module import GraphModule
from fxlite.passes.base import Pass
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.decompose import Keep
from fxlite.passes.manager import PassManager


def standard_passes(keep: Keep = frozenset()) -> list[Pass]:
    """The passes, in order; composites in ``keep``, for which the target has templates, stay."""
    return [
        passes.remove_dropout,
        passes.simplify,
        passes.fuse_conv_bn,
        _decompose(keep),
        passes.simplify,
        *([passes.fuse_attention, _decompose(keep), passes.simplify] if keep else []),
        *([passes.sub_pixel, passes.channels_last] if keep else []),
        passes.const_fold,
        passes.merge_linears,
        passes.cse,
        passes.merge_steps,  # after cse: a step read twice is one product
        passes.dce,
    ]


def _decompose(keep: Keep) -> Pass:
    """The pass with its option set."""
    expand = passes.decompose

    @functools.wraps(expand.function)
    def run(gm: GraphModule) -> None:
        expand.function(gm, keep)

    return Pass(run, expand.name, expand.exactness)


def optimize(
    module: GraphModule, needed_only: bool = False, keep: Keep = frozenset()
) -> tuple[GraphModule, PassManager]:
    """The optimized module (the input is left as it was) and the manager with its report;
    ``needed_only``: expand composites, which have no code of their own, and do nothing else.
    Composites in ``keep`` (names, or a predicate on nodes) are not expanded."""
    chosen = [_decompose(keep)] if needed_only else standard_passes(keep)
    # these passes are tested; checks of each use would double the time
    manager = PassManager(chosen, check="lint")
    return manager(flattened(module)), manager
