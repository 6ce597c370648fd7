"""Simplification: identities that hold bit for bit, NaN, infinities and -0.0 included.

Before::

    reshape: f32[B,8] = ops.reshape(x, shape=(B, 8))
    mul: f32[B,8] = reshape * 1
    reshape_1: f32[B,4,2] = ops.reshape(mul, shape=(B, 4, 2))

After::

    reshape_1: f32[B,4,2] = ops.reshape(x, shape=(B, 4, 2))

``x + 0`` stays: it turns -0.0 into 0.0. The rules are in
:mod:`fxlite.passes.rules.simplify_elementwise` and :mod:`fxlite.passes.rules.simplify_views`; a
rule of one's own is added with ``simplify.rules.append(my_rule)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite.graph.graph import Node
from fxlite.passes.base import enter
from fxlite.passes.rewrite.node_rule import Answer, node_rule
from fxlite.passes.rewrite.rule_set import RuleSet
from fxlite.passes.rules.remove_dropout import training_dropout, why_not
from fxlite.passes.rules.simplify_elementwise import ELEMENTWISE
from fxlite.passes.rules.simplify_views import VIEWS


@node_rule("dropout", register=False)
def dropout_off(node: Node) -> Answer:
    """Dropout outside training, or with p=0, is its input."""
    return node.args[0] if why_not(node) is None else None


dropout_off.example(lambda x: np.exp(F.dropout(x, 0.5)), "in inference mode", x="f32[4]")
dropout_off.counterexample(training_dropout, "the module is in training mode")

simplify = RuleSet([*ELEMENTWISE, *VIEWS, dropout_off], name="simplify")
simplify.__doc__ = """Apply identities that hold bit for bit until none fires: ``x * 1`` is x, a
reshape of a reshape is one reshape.

``simplify.statistics`` counts, by rule, how often each was tried and fired in the last run."""
enter(simplify)


def _four_calls(x: Any) -> Any:
    return np.exp((x.reshape(2, 6) * 1.0).reshape(4, 3) - 0)


simplify.example(_four_calls, "what is left of four calls", x="f32[3,4]")
simplify.counterexample(
    lambda x: (x + 0).astype(np.float16).astype(np.float32),
    "x + 0 turns -0.0 into 0.0, and f16 rounds", x="f32[4]",
)  # fmt: skip
