"""Passes: each takes a GraphModule and returns a new one over the same weights.

In: traced graphs. Out: graphs that are smaller, cheaper, or better understood. Every pass is
registered by name in :data:`PASSES`, where the command line and :class:`PassManager` find it.
"""

from __future__ import annotations

from fxlite.passes.base import PASSES, Example, Pass, PassBase, PassError, PassResult, graph_pass
from fxlite.passes.checking.claim_check import VerificationError, VerificationReport
from fxlite.passes.checking.minimize import Minimized, minimize, write_repro
from fxlite.passes.checking.verify import ExampleError, check_examples, verify, verify_edits
from fxlite.passes.costing.cost_report import CostReport, cost, pays_when
from fxlite.passes.costing.costs import Costs
from fxlite.passes.costing.timeline import MemoryTimeline, memory_timeline, peak_memory
from fxlite.passes.cutting.inline_modules import inline, inline_modules
from fxlite.passes.cutting.outline_modules import (
    SourcePartition,
    check_subgraphs_connected,
    get_source_partitions,
    outline_modules,
    source_partitions,
)
from fxlite.passes.cutting.partition import (
    CapabilityBasedPartitioner,
    OperatorSupport,
    OperatorSupportBase,
    OpSupports,
    Partition,
    any_chain,
    chain,
    create_op_support,
    fuse_partitions,
    get_node_target,
    partition,
)
from fxlite.passes.cutting.split_module import fuse_by_partitions, split_by_tags, split_module
from fxlite.passes.cutting.subgraph import extract_subgraph
from fxlite.passes.ledger import Ledger, Refusal, ledger, refuse
from fxlite.passes.manager import GraphTransformObserver, PassManager, this_before_that_pass_constraint
from fxlite.passes.profiling.effects import BeforeAfter, before_after
from fxlite.passes.profiling.profile import kernel_bytes, profile
from fxlite.passes.profiling.record import Profile
from fxlite.passes.quantize import cast_floats, quantize_dynamic, quantize_weights
from fxlite.passes.rewrite import predicates
from fxlite.passes.rewrite.explain import Explanation, explain
from fxlite.passes.rewrite.match import (
    Match,
    SubgraphMatcher,
    SubgraphMatcherWithNameNodeMap,
    find_matches,
    replace_pattern,
    replace_pattern_with_filters,
)
from fxlite.passes.rewrite.pattern import Pattern
from fxlite.passes.rewrite.rule import Call, NodeRule, Rule, node_rule, rule
from fxlite.passes.rewrite.rule_set import RuleSet, analyze_rules
from fxlite.passes.rules.channels_last import channels_last
from fxlite.passes.rules.const_fold import const_fold, split_const_subgraphs
from fxlite.passes.rules.decompose import decompose
from fxlite.passes.rules.fuse_attention import fuse_attention
from fxlite.passes.rules.fuse_conv_bn import fuse_conv_bn, fuse_conv_bn_eval, fuse_linear_bn_eval
from fxlite.passes.rules.loop_invariants import loop_invariants
from fxlite.passes.rules.merge_convolutions import merge_convolutions
from fxlite.passes.rules.merge_linears import merge_linears, merge_steps
from fxlite.passes.rules.products import complex_products, promote_operands, transposed_products
from fxlite.passes.rules.redundant import CSEPass, cse, dce, get_CSE_banned_ops, remove_dropout
from fxlite.passes.rules.separate_axes import separate_axes
from fxlite.passes.rules.simplify import simplify
from fxlite.passes.rules.store_bf16 import store_bf16
from fxlite.passes.rules.sub_pixel import sub_pixel
from fxlite.passes.rules.unfold_convolutions import unfold_convolutions
from fxlite.passes.rules.vectorize_loops import vectorize_loops
from fxlite.passes.shape_prop import ShapeProp, shape_prop
from fxlite.passes.surgery.places import tap, untap
from fxlite.passes.surgery.resize import Resized, prune_channels, prune_heads, resize
from fxlite.passes.surgery.statistics import ActivationStatistics, activation_statistics
from fxlite.passes.surgery.swap import Place, swap
from fxlite.passes.surgery.weights import add_lora, low_rank, merge_lora, remove_lora, tie_weights, untie_weights
from fxlite.types.agreement import Exactness, allclose, changes, exact, sqnr

# what a pass is, and the records that passes leave
__all__ = ["PASSES", "Exactness", "Example", "GraphTransformObserver", "Ledger", "Pass", "PassBase", "PassError"]
__all__ += ["PassManager", "PassResult", "Refusal", "allclose", "changes", "exact", "graph_pass", "ledger", "refuse"]
__all__ += ["sqnr", "this_before_that_pass_constraint"]
# checks
__all__ += ["ExampleError", "Minimized", "ShapeProp", "VerificationError", "VerificationReport", "check_examples"]
__all__ += ["minimize", "shape_prop", "verify", "verify_edits", "write_repro"]
# rules
__all__ += ["Call", "Explanation", "Match", "NodeRule", "Pattern", "Rule", "RuleSet", "SubgraphMatcher"]
__all__ += ["SubgraphMatcherWithNameNodeMap", "analyze_rules", "explain", "find_matches", "node_rule", "predicates"]
__all__ += ["replace_pattern", "replace_pattern_with_filters", "rule"]
# passes
__all__ += ["CSEPass", "cast_floats", "channels_last", "const_fold", "cse", "dce", "decompose", "fuse_attention"]
__all__ += ["fuse_conv_bn", "fuse_conv_bn_eval", "fuse_linear_bn_eval", "get_CSE_banned_ops", "loop_invariants"]
__all__ += ["merge_linears", "merge_steps", "quantize_dynamic", "quantize_weights", "remove_dropout", "simplify"]
__all__ += ["separate_axes", "split_const_subgraphs", "store_bf16", "sub_pixel", "unfold_convolutions"]
__all__ += ["complex_products", "merge_convolutions", "promote_operands", "transposed_products"]
__all__ += ["vectorize_loops"]
# parts of a program
__all__ += ["CapabilityBasedPartitioner", "OpSupports", "OperatorSupport", "OperatorSupportBase", "Partition"]
__all__ += ["SourcePartition", "any_chain", "chain", "check_subgraphs_connected", "create_op_support"]
__all__ += ["extract_subgraph", "fuse_by_partitions", "fuse_partitions", "get_node_target", "get_source_partitions"]
__all__ += ["inline", "inline_modules", "outline_modules", "partition", "source_partitions", "split_by_tags"]
__all__ += ["split_module"]
# costs and times
__all__ += ["BeforeAfter", "CostReport", "Costs", "MemoryTimeline", "Profile", "before_after", "cost", "kernel_bytes"]
__all__ += ["memory_timeline", "pays_when", "peak_memory", "profile"]
# other layers and weights
__all__ += ["ActivationStatistics", "Place", "Resized", "activation_statistics", "add_lora", "low_rank", "merge_lora"]
__all__ += ["prune_channels", "prune_heads", "remove_lora", "resize", "swap", "tap", "tie_weights", "untap"]
__all__ += ["untie_weights"]


def __dir__() -> list[str]:
    return [*__all__, "quantize"]
