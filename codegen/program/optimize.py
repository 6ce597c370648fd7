"""The standard pipeline before code generation: flatten, clean up, fuse, expand composites, clean
up again."""

from __future__ import annotations

from fxlite import passes
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import Pass
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.manager import PassManager
from fxlite.passes.rules.decompose import Keep
from fxlite.tracing.nonempty import missing_guards


def standard_passes(keep: Keep = frozenset(), matmul_precision: str = "highest") -> list[Pass]:
    """The passes, in order; composites in ``keep``, for which the target has templates, stay."""
    bf16 = matmul_precision == "medium"
    decompose = passes.decompose.with_options(keep=keep)
    return [
        passes.remove_dropout,
        passes.simplify,
        passes.fuse_conv_bn,
        decompose,
        passes.simplify,
        *([passes.fuse_attention, decompose, passes.simplify] if keep else []),
        *([passes.sub_pixel, passes.channels_last.with_options(bf16=bf16)] if keep else []),
        passes.const_fold,
        passes.merge_linears,
        passes.cse,
        passes.merge_steps,  # after cse: a step read twice is one product
        passes.dce,
        *([passes.store_bf16] if bf16 else []),
    ]


def optimize(
    module: GraphModule, needed_only: bool = False, keep: Keep = frozenset(),
    matmul_precision: str = "highest",
) -> tuple[GraphModule, PassManager]:  # fmt: skip
    """The optimized module (the input is left as it was) and the manager with its report;
    ``needed_only``: expand composites, which have no code of their own, and do nothing else.
    Composites in ``keep`` (names, or a predicate on nodes) are not expanded."""
    chosen = standard_passes(keep, matmul_precision)
    if needed_only:
        chosen = [passes.decompose.with_options(keep=keep)]
    # these passes are tested; checks of each use would double the time
    manager = PassManager(chosen, check="lint")
    whole = flattened(module)
    guards = missing_guards(whole.graph)
    made = manager(whole)
    if guards:
        made.graph.guards = (*made.graph.guards, *guards)
    return made, manager


def said_of_passes(before: GraphModule, after: GraphModule, manager: PassManager) -> str:
    """``12 -> 9 nodes by fuse_conv_bn, dce``"""
    changed = dict.fromkeys(step.name for step in manager.report if step.changes != "-")
    count = f"{len(before.graph)} -> {len(after.graph)} nodes"
    return f"{count} by {', '.join(changed)}" if changed else count
